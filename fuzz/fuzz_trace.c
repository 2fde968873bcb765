/* fuzz_trace.c - arbitrary bytes as a trace.
 *
 * They are accepted or refused with a message.  An accepted trace answers every query, and is the
 * same after it has been written and read again. */
#include "fuzz_file.h"
#include "stats/trace_parts.h"

/* Lines of JSON cannot hold bytes that are not valid UTF-8. */
static void write_and_read(const hl_trace *trace, const char *name, bool is_exact)
{
    char      path[FUZZ_PATH_BYTES];
    hl_trace *again = NULL;

    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    PROMISE(hl_trace_write(trace, path) == HL_OK);
    PROMISE(hl_trace_load(&again, path) == HL_OK);
    PROMISE(hl_trace_n_tokens(again) == hl_trace_n_tokens(trace));
    for (int64_t i = 0; i < hl_trace_n_tokens(trace); i++) {
        hl_traced_token a = hl_trace_describe(trace, i);
        hl_traced_token b = hl_trace_describe(again, i);
        PROMISE(a.kind == b.kind && hl_trace_token(trace, i).id == hl_trace_token(again, i).id);
        PROMISE(!is_exact || (a.n_bytes == b.n_bytes &&
                              (a.n_bytes == 0 || memcmp(a.text, b.text, a.n_bytes) == 0)));
    }
    hl_trace_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    hl_trace     *trace   = NULL;
    volatile char touched = 0; /* every byte of the text can be read */

    if (hl_trace_parse(&trace, bytes, n_bytes, "fuzz") != HL_OK)
        return refused(trace);
    for (int64_t i = 0; i < hl_trace_n_tokens(trace); i++) {
        hl_traced_token about = hl_trace_describe(trace, i);
        PROMISE(about.kind < HL_N_KINDS);
        for (size_t j = 0; j < about.n_bytes; j++)
            touched = (char)(touched ^ about.text[j]);
        (void)hl_trace_token(trace, i);
        for (int which = HL_TRACE_ENTROPY; which < HL_N_TRACE_ROWS; which++)
            (void)hl_trace_row(trace, i, hl_trace_n_layers(trace) - 1, hl_trace_n_heads(trace) - 1,
                               (hl_trace_rows)which);
    }
    write_and_read(trace, "again.trace", true);
    write_and_read(trace, "again.jsonl", false);
    hl_trace_free(trace);
    return 0;
}
