/* evidence.h - what rankings are made of: a profile, gradients, the loss without each head; taken
 * from texts as far as a ranker needs them. */
#ifndef HL_CLI_EVIDENCE_H
#define HL_CLI_EVIDENCE_H

#include "headlight.h"

typedef struct hl_evidence {
    hl_profile   *profile; /* each NULL: not there */
    hl_gradients *gradients;
    double       *ablation; /* (n_layers, n_heads) */
} hl_evidence;

typedef struct hl_evidence_request {
    hl_ranker          ranker;
    const char *const *texts; /* (n_texts) */
    size_t             n_texts;
    const char        *tokenizer_path; /* NULL: the model's */
    hl_window_options  windows;
    int32_t            n_threads;
    bool               quiet; /* no progress */
} hl_evidence_request;

/* Does the ranker need a profile; gradients? */
bool hl_evidence_needs_profile(hl_ranker ranker);
bool hl_evidence_needs_gradients(hl_ranker ranker);

/* Runs the texts for what the ranker needs and `evidence` does not have yet; the model's gates are
 * as they are. */
hl_status      hl_evidence_take(hl_evidence *evidence, const hl_model *model,
                                const hl_evidence_request *request);
hl_rank_inputs hl_evidence_inputs(const hl_evidence *evidence, const hl_model *model);
void           hl_evidence_free(hl_evidence *evidence);

#endif
