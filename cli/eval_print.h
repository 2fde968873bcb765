/* eval_print.h - what `headlight eval` shows. */
#ifndef HL_CLI_EVAL_PRINT_H
#define HL_CLI_EVAL_PRINT_H

#include "headlight.h"

typedef struct hl_eval_text {
    char  *name; /* of the document */
    hl_nll nll;
} hl_eval_text;

/* Of documents that end in a word which has something before it. */
typedef struct hl_eval_last_word {
    int64_t n_words;
    int64_t n_right; /* every token of it was the likeliest */
    double  nll;     /* sum over words, nats */
} hl_eval_last_word;

typedef struct hl_eval_speed {
    hl_speed speed;
    size_t   peak_bytes; /* of this process */
    size_t   file_bytes; /* of the files that hold the weights */
    size_t   kv_bytes;   /* of the cache, a token */
} hl_eval_speed;

typedef struct hl_eval_report {
    const char               *model;
    int64_t                   n_ctx;
    int64_t                   stride;
    const char               *special; /* where it stands; NULL: the tokenizer adds nothing */
    hl_nll                    total;
    hl_eval_text             *texts; /* (n_texts); --per-document sorts them */
    int                       n_texts;
    bool                      per_document;
    const hl_eval_last_word  *last_word; /* NULL: not wanted, as what follows */
    const hl_agreement_total *agreement;
    const char               *reference; /* what it agrees with */
    const hl_eval_speed      *speed;
} hl_eval_report;

void hl_eval_print(const hl_eval_report *report);
/* false when memory is out. */
bool hl_eval_print_json(const hl_eval_report *report);

#endif
