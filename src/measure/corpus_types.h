/* corpus_types.h - the kinds of text in a corpus, and where rules find them.
 *
 * While a corpus is being opened names collect (rules, spans of lines, chats); finish
 * gives them their numbers, which depend on the set of names alone and not on the order in
 * which they were met. */
#ifndef HL_MEASURE_CORPUS_TYPES_H
#define HL_MEASURE_CORPUS_TYPES_H

#include "headlight.h"
#include "tokenize/pattern.h"

#define HL_MAX_TYPE_NAME 31
#define HL_NO_TYPE       0xff

typedef struct hl_type_rule {
    hl_pattern *pattern;
    char       *name;
    uint8_t     type; /* after finish */
} hl_type_rule;

typedef struct hl_types {
    char         *names[HL_MAX_TYPES]; /* while collecting, only those met */
    int64_t       n_types;
    bool          has_chat;
    hl_type_rule *rules;
    size_t        n_rules;
} hl_types;

/* rules: "NAME=EXPRESSION" each. */
hl_status hl_types_open(hl_types *out, const char *const *rules, size_t n_rules);
void      hl_types_close(hl_types *types);

/* A name was met, in `where`. */
hl_status hl_types_need(hl_types *types, const char *name, const char *where);
hl_status hl_types_finish(hl_types *types);
/* The number of a name that was needed. */
uint8_t hl_types_find(const hl_types *types, const char *name);

/* Writes the type of every byte of some text that a rule matches and that has none yet:
 * marks (n_bytes), HL_NO_TYPE where none. */
hl_status hl_types_mark(uint8_t *marks, const hl_types *types, hl_matcher *matcher,
                        const char *text, size_t n_bytes);

#endif
