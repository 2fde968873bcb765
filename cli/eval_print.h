/* eval_print.h - what `headlight eval` shows. */
#ifndef HL_CLI_EVAL_PRINT_H
#define HL_CLI_EVAL_PRINT_H

#include "headlight.h"

typedef struct hl_eval_text {
    const char *name; /* as on the command line */
    hl_nll      nll;
} hl_eval_text;

typedef struct hl_eval_report {
    const char         *model;
    int64_t             n_ctx;
    int64_t             stride;
    hl_nll              total;
    const hl_eval_text *texts; /* (n_texts) */
    int                 n_texts;
    bool                per_document;
} hl_eval_report;

void hl_eval_print(const hl_eval_report *report);
/* false when memory is out. */
bool hl_eval_print_json(const hl_eval_report *report);

#endif
