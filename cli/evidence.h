/* evidence.h - measurements that commands make for further work: a profile in memory, and the
 * inputs of rankers (a profile, gradients, the loss without each head) as far as a ranker requires
 * them. */
#ifndef HL_CLI_EVIDENCE_H
#define HL_CLI_EVIDENCE_H

#include "headlight.h"
#include "shared_options.h"

/* ---------------------------------------------- a profile, measured on the way */

typedef struct hl_quick_request {
    const char              *model_path;
    const hl_adjustment     *adjustment; /* NULL: the model as trained */
    const hl_gate_arguments *gates;      /* NULL: none */
    const char              *command;    /* name of the command, for messages */
    const char *const       *texts;
    size_t                   n_texts;
    hl_window_options        windows;
    bool                     nll;
    bool                     no_probe;
    int32_t                  n_threads;
    bool                     quiet; /* show no progress */
    /* If not NULL, receives the attention of every head on the first tokens of the prompt or of the
     * texts. */
    hl_patterns **patterns;
    int64_t       n_pattern_tokens;
    const char   *prompt; /* NULL: the beginning of the texts */
} hl_quick_request;

/* Uses the model's own tokenizer. What request->patterns points to is released with
 * hl_patterns_free; it is NULL on failure. */
hl_status hl_quick_measure(hl_profile **out, const hl_quick_request *request);

/* --------------------------------------------------- what rankings are made of */

typedef struct hl_evidence_request {
    hl_ranker          ranker;
    const char *const *texts; /* (n_texts) */
    size_t             n_texts;
    const char        *tokenizer_path; /* NULL: the model's own */
    hl_window_options  windows;
    int32_t            n_threads;
    bool               quiet; /* show no progress */
} hl_evidence_request;

/* Runs the texts to get what the ranker needs and `evidence` lacks, with a progress bar. */
hl_status hl_evidence_from_texts(hl_evidence *evidence, const hl_model *model,
                                 const hl_evidence_request *request);

/* hl_rank_reselected on the texts; the options' evidence is what the request says. */
hl_status hl_reselect_from_texts(hl_ranking **out, hl_model *model,
                                 const hl_evidence_request *request,
                                 const hl_reselect_options *options);
/* hl_frontier_find on the texts, and on `test_texts` where there are any. */
hl_status hl_frontier_from_texts(hl_frontier **out, const hl_model *model,
                                 const hl_evidence_request *request,
                                 const hl_option_list      *test_texts,
                                 const hl_budget_options   *options);

#endif
