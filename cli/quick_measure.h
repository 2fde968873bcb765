/* quick_measure.h - a profile in memory, for commands that measure on their way. */
#ifndef HL_CLI_QUICK_MEASURE_H
#define HL_CLI_QUICK_MEASURE_H

#include "headlight.h"
#include "shared_options.h"

typedef struct hl_quick_request {
    const char              *model_path;
    const hl_adjustment     *adjustment; /* NULL: as it was trained */
    const hl_gate_arguments *gates;      /* NULL: none */
    const char              *command;    /* that says so */
    const char *const       *texts;
    size_t                   n_texts;
    hl_window_options        windows;
    bool                     nll;
    bool                     no_probe;
    int32_t                  n_threads;
    bool                     quiet; /* no progress */
    /* The attention of every head on so many tokens, the prompt's or the texts' first, comes with
     * the profile; NULL: it is not wanted. */
    hl_patterns **patterns;
    int64_t       n_pattern_tokens;
    const char   *prompt; /* NULL: the texts begin with it */
} hl_quick_request;

/* hl_measure with a progress bar; options without progress. */
hl_status hl_measure_with_bar(hl_profile **out, const hl_model *model,
                              const hl_tokenizer *tokenizer, const hl_corpus *corpus,
                              hl_measure_options options, bool quiet);

/* With the model's own tokenizer.  What request->patterns points to is released with
 * hl_patterns_free, and NULL on failure. */
hl_status hl_quick_measure(hl_profile **out, const hl_quick_request *request);

#endif
