/* tokenizer_json.h - reads single members of a large JSON object, in any order.  Used for
 * tokenizer.json and the files beside it.
 *
 *     hl_member members[] = { { "type", { 0 } }, { "vocab", { 0 } } };
 *     HL_NEED(hl_members_find(members, 2, object, "tokenizer.json"));
 *     HL_NEED(hl_member_text(&type, "tokenizer.json", &members[0]));
 *
 * The first pass only notes where each member is; then each is read in place. */
#ifndef HL_TOKENIZE_TOKENIZER_JSON_H
#define HL_TOKENIZE_TOKENIZER_JSON_H

#include "base/json.h"
#include "base/json_reader.h"
#include "tokenize/tokenizer.h"

typedef struct hl_member {
    const char *name;
    hl_bytes    text; /* data NULL: absent */
} hl_member;

/* Finds the members of an object whose names are in the table. */
hl_status hl_members_find(hl_member *members, size_t n_members, hl_bytes object, const char *where);

/* Opens a reader at the start of a member.  `where` receives the member's name for messages, and
 * must outlive the reader. */
void hl_member_open(hl_json_reader *out, char where[256], const char *file, const hl_member *part);

/* Reads a boolean; *out is unchanged if the member is absent. */
hl_status hl_member_flag(bool *out, const char *file, const hl_member *part);
/* Copies a string, to be released with hl_free; {NULL, 0} if the member is absent. */
hl_status hl_member_text(hl_bytes *out, const char *file, const hl_member *part);

/* --------------------------------------------------------- the small parts */

/* The small parts of a tokenizer.json: everything but the
 * vocabulary.  Each takes a parsed JSON value, which may be null. */

hl_status hl_normalizer_from_json(hl_normalizer *out, const json_t *value, const char *where);
hl_status hl_pretokenizer_from_json(hl_pretokenizer *out, const json_t *value, const char *where);
hl_status hl_decoder_from_json(hl_decoder *out, const json_t *value, const char *where);
hl_status hl_postprocessor_from_json(hl_postprocessor *out, const json_t *value, const char *where);

#endif
