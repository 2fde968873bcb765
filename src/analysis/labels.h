/* labels.h - which parts of texts are right and which are wrong, from a file. headlight/judge.h
 * describes its format. */
#ifndef HL_ANALYSIS_LABELS_H
#define HL_ANALYSIS_LABELS_H

#include "headlight/judge.h"

typedef struct hl_label {
    int64_t line;          /* line of the file, from 1 */
    char   *trace;         /* NULL: there is only one trace */
    int64_t task;          /* index of the task; -1: the labels name none */
    bool    is_characters; /* the range counts characters, not tokens */
    int64_t first;         /* 0 <= first < end */
    int64_t end;
    bool    is_right;
} hl_label;

struct hl_labels {
    char     *where; /* file name for messages */
    hl_label *items;
    int64_t   count;
    size_t    capacity;
    char    **tasks; /* (n_tasks) */
    int64_t   n_tasks;
};

/* Parses labels from memory; `where` names the file in messages. */
hl_status hl_labels_parse(hl_labels **out, const char *bytes, size_t n_bytes, const char *where);

#endif
