/* fuzz_trace.c - any bytes at all, as a trace.
 *
 * They are accepted or refused with a message.  What is accepted answers every question. */
#include "fuzz.h"
#include "stats/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    hl_trace     *trace   = NULL;
    volatile char touched = 0; /* every byte that it says is there can be read */

    if (hl_trace_parse(&trace, bytes, n_bytes, "fuzz") != HL_OK)
        return refused(trace);
    for (int64_t i = 0; i < hl_trace_n_tokens(trace); i++) {
        hl_traced_token about = hl_trace_describe(trace, i);
        PROMISE(about.kind < HL_N_KINDS);
        for (size_t j = 0; j < about.n_bytes; j++)
            touched ^= about.text[j];
        (void)hl_trace_token(trace, i);
        for (int which = HL_TRACE_ENTROPY; which < HL_N_TRACE_ROWS; which++)
            (void)hl_trace_row(trace, i, hl_trace_n_layers(trace) - 1, hl_trace_n_heads(trace) - 1,
                               (hl_trace_rows)which);
    }
    hl_trace_free(trace);
    return 0;
}
