/* diagnose_try.h - mitigations, tried: the same text measured again under each. */
#ifndef HL_CLI_DIAGNOSE_TRY_H
#define HL_CLI_DIAGNOSE_TRY_H

#include "gate_options.h"
#include "headlight.h"

typedef struct hl_try_request {
    const char          *model_path;
    char               **texts;
    int                  n_texts;
    hl_window_options    windows;
    const hl_thresholds *thresholds;
    hl_adjustment        wanted; /* all 0: what fits the findings */
    hl_gate_arguments    gates;
    double               sampling; /* a sampling temperature; 0: that of attention, if tried */
    int32_t              n_threads;
    bool                 json;
    bool                 quiet;
} hl_try_request;

/* The exit status. */
int hl_diagnose_try(const hl_try_request *request);

#endif
