/* tokenizer_json.h - single members of a large JSON object, in whatever order they come:
 * how a tokenizer.json is read, and what lies beside it.
 *
 *     hl_member members[] = { { "type", { 0 } }, { "vocab", { 0 } } };
 *     HL_NEED(hl_members_find(members, 2, object, "tokenizer.json"));
 *     HL_NEED(hl_member_text(&type, "tokenizer.json", &members[0]));
 *
 * The first pass only notes where they lie; then each is read where it is. */
#ifndef HL_TOKENIZE_TOKENIZER_JSON_H
#define HL_TOKENIZE_TOKENIZER_JSON_H

#include "base/json_reader.h"

typedef struct hl_member {
    const char *name;
    hl_bytes    text; /* data NULL: absent */
} hl_member;

/* Notes where the members of an object lie, those that have a name in the table. */
hl_status hl_members_find(hl_member *members, size_t n_members, hl_bytes object, const char *where);

/* A reader at the start of a member, whose errors name it: `where` is written and borrowed. */
void hl_member_open(hl_json_reader *out, char where[256], const char *file, const hl_member *part);

/* The value; *out stays as it is where the member is absent. */
hl_status hl_member_flag(bool *out, const char *file, const hl_member *part);
/* A copy of a string, released with hl_free; {NULL, 0} if the member is absent. */
hl_status hl_member_text(hl_bytes *out, const char *file, const hl_member *part);

#endif
