/* headlight/budget.h - how far a model can be pruned: orders tried on held-out text, a budget.
 * Part of headlight.h, which see for the conventions. */
#ifndef HEADLIGHT_BUDGET_H
#define HEADLIGHT_BUDGET_H

#include "export.h"
#include "sweep.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ----------------------------------------------------------------- budgets
 *
 *     hl_budget_options options = { .until_loss = 0.05, .path = "smaller" };
 *     if (hl_frontier_find(&frontier, model, tokenizer, corpus, NULL, &options) == HL_OK)
 *         hl_prune_write(NULL, model, frontier->heads, NULL, "smaller");
 *     hl_frontier_free(frontier);
 *
 * Ranks the heads by several rankers on one half of a text, switches more and more of them off, and
 * measures on the other half what that costs: with the heads disabled, or of the models that are repaired
 * on the first half (hl_repair_heads).  Stops where a budget ends, and says which heads to
 * remove.  A rise of the loss or a KL is within its budget where the upper end of its 95% confidence
 * interval is: of all numbers of heads, the largest below which no measured one is beyond. */

#define HL_BUDGET_LOSS 0.05 /* nats per token: the budget where none is given */

typedef struct hl_budget_options {
    /* Budgets, all of which hold; 0: none.  None at all: until_loss is HL_BUDGET_LOSS. */
    double until_loss;  /* rise of the mean negative log-likelihood, nats per token */
    double until_kl;    /* mean KL divergence from the unpruned model, nats per token */
    size_t until_bytes; /* of the tensors that would be written */

    const hl_ranker *rankers; /* (n_rankers); NULL: gradient, output-norm and fluctuation, or with a
                               * repair surgeon */
    int64_t          n_rankers;
    hl_choice        choice; /* limits of the choice; ratio and count are ignored */
    bool             groups; /* query heads of a KV head go together */
    bool             repair; /* measure repaired models */

    const hl_prune_options *write; /* how it would be written, and */
    const char             *path;  /* where, for the size; NULL: a folder, or GGUF of a GGUF file */

    /* Text.  n_ctx 0: the model's, at most 512; stride, n_batch, part and n_parts are not looked at.
     * max_tokens is of both halves together, or of each of two texts. */
    hl_window_options    windows;
    uint64_t             seed;
    size_t               memory_bytes; /* as in hl_evaluate_options */
    int32_t              n_threads;
    hl_progress_callback progress; /* with the stage */
    void                *context;
} hl_budget_options;

typedef struct hl_frontier_point {
    hl_ranker ranker;
    int64_t   n_off;
    size_t    tensor_bytes;
    double    rise; /* of the loss, nats per token, with its 95% confidence interval */
    double    rise_low;
    double    rise_high;
    double    kl;
    double    kl_low;
    double    kl_high;
    double    same;    /* share of predictions with the unpruned model's most likely token */
    bool      fits;    /* every budget */
    bool      is_best; /* no other point is smaller and costs less */
} hl_frontier_point;

typedef struct hl_frontier {
    hl_frontier_point *points; /* (n_points) order by order, by number of heads */
    int64_t            n_points;
    int64_t            recommended;  /* index of a point */
    hl_head_list      *heads;        /* to remove there, in their order */
    hl_budget_options  budget;       /* as it was applied; its pointers are not to be followed */
    size_t             tensor_bytes; /* of the unpruned model */
    int64_t            n_heads;
    double             nll; /* of the unpruned model on the held-out text */
    int64_t            n_scored;
    int64_t            n_windows;
    int64_t            n_ctx;
    bool               all_went; /* the limits of the choice ended it, not the budget */
} hl_frontier;

/* Without a test corpus, every second window of the corpus is held out (whole documents, where there
 * are 16 or more).  HL_BAD_ARGUMENT for budgets that cannot be, or that nothing fits: the message says
 * what came nearest.  HL_BAD_INPUT for a text of too few windows.  HL_UNSUPPORTED for an encoder, and as
 * hl_repair_check with a repair. */
HL_API hl_status hl_frontier_find(hl_frontier **out, const hl_model *model,
                                  const hl_tokenizer *tokenizer, const hl_corpus *corpus,
                                  const hl_corpus *test_corpus, const hl_budget_options *options);
HL_API void      hl_frontier_free(hl_frontier *frontier);
/* The points as a table. */
HL_API hl_status hl_frontier_sheet(hl_sheet **out, const hl_frontier *frontier);

#ifdef __cplusplus
}
#endif
#endif
