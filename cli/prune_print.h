/* prune_print.h - what headlight prune says. */
#ifndef HL_CLI_PRUNE_PRINT_H
#define HL_CLI_PRUNE_PRINT_H

#include "headlight.h"

/* With --mean: nats a token on its text. */
typedef struct hl_mean_check {
    bool    done;
    int64_t n_scored;
    double  whole; /* all heads */
    double  zero;  /* the heads off */
    double  mean;  /* the model that was written */
} hl_mean_check;

typedef struct hl_prune_story {
    const char            *model_path;
    const char            *output;
    const char            *form;
    hl_ranker              ranker; /* AUTO: heads were named, or none were taken */
    const hl_model_info   *before;
    const hl_prune_report *report;
    const hl_head_list    *heads;
    int64_t                n_heads; /* of the model */
    hl_mean_check          check;
} hl_prune_story;

void hl_prune_print(const hl_prune_story *story);
/* An exit status. */
int hl_prune_print_json(const hl_prune_story *story);

#endif
