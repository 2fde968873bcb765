/* fuzz_trace_lines.c - arbitrary bytes as a trace in lines of JSON.
 *
 * They are accepted or refused with a message.  An accepted trace answers every query. */
#include "fuzz.h"
#include "stats/trace_parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    hl_trace *trace = NULL;

    if (hl_trace_parse_lines(&trace, (const char *)bytes, n_bytes, "fuzz") != HL_OK)
        return refused(trace);
    for (int64_t i = 0; i < hl_trace_n_tokens(trace); i++) {
        PROMISE(hl_trace_describe(trace, i).kind < HL_N_KINDS);
        (void)hl_trace_token(trace, i);
        for (int which = HL_TRACE_ENTROPY; which < HL_N_TRACE_ROWS; which++)
            (void)hl_trace_row(trace, i, hl_trace_n_layers(trace) - 1, hl_trace_n_heads(trace) - 1,
                               (hl_trace_rows)which);
    }
    hl_trace_free(trace);
    return 0;
}
