/* quick_measure.h - a profile in memory, for commands that measure on their way. */
#ifndef HL_CLI_QUICK_MEASURE_H
#define HL_CLI_QUICK_MEASURE_H

#include "gate_options.h"
#include "headlight.h"

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
} hl_quick_request;

/* With the model's own tokenizer. */
hl_status hl_quick_measure(hl_profile **out, const hl_quick_request *request);

#endif
