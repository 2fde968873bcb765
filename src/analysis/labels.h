/* labels.h - which parts of texts are right and which are wrong, as somebody wrote down.
 * The form of the file is in headlight/judge.h. */
#ifndef HL_ANALYSIS_LABELS_H
#define HL_ANALYSIS_LABELS_H

#include "headlight/judge.h"

typedef struct hl_label {
    int64_t line;          /* in the file, from 1 */
    char   *trace;         /* NULL: the only one */
    bool    is_characters; /* the range is not of tokens */
    int64_t first;         /* 0 <= first < end */
    int64_t end;
    bool    is_right;
} hl_label;

struct hl_labels {
    char     *where; /* for messages */
    hl_label *items;
    int64_t   count;
    size_t    capacity;
};

/* From memory; `where` names it in messages. */
hl_status hl_labels_parse(hl_labels **out, const char *bytes, size_t n_bytes, const char *where);

#endif
