/* patterns.c - the attention of every head on a few tokens, as complete matrices.
 *
 * The tokens are one chunk of one sequence, so a layer's rows arrive in a single call of the tap,
 * and row r is position r. */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "headlight/measure.h"
#include "measure/window.h"
#include "model/session.h"

HL_CLOSES(hl_patterns_free, hl_patterns)

enum { DEFAULT_TOKENS = 32 };

static hl_status keep_layer(void *context, const hl_layer_rows *rows)
{
    hl_patterns *patterns = context;
    int64_t      n        = patterns->n_tokens;

    for (int64_t i = 0; i < rows->n_heads * rows->n_patterns; i++) {
        int64_t head = i / rows->n_patterns, row = rows->pattern_rows[i % rows->n_patterns];
        float  *out = patterns->values + ((rows->layer * patterns->n_heads + head) * n + row) * n;
        memcpy(out, rows->pattern + i * rows->n_keys, (size_t)rows->n_keys * sizeof *out);
    }
    return HL_OK;
}

static hl_status run(hl_patterns *patterns, const hl_model *model, int32_t n_threads)
{
    HL_CLOSED(hl_session_close) hl_session *session = NULL;

    HL_FREED int64_t  *positions = NULL;
    int64_t            n         = patterns->n_tokens;
    hl_session_options options   = {
          .n_ctx = n, .n_chunk = n, .n_patterns = n, .wants = HL_WANT_PATTERN, .n_threads = n_threads
    };

    HL_NEED(HL_ALLOC(&positions, (size_t)n));
    for (int64_t i = 0; i < n; i++)
        positions[i] = i;
    HL_NEED(hl_session_open(&session, model, &options));
    hl_tap  tap  = { .context             = patterns,
                     .layer               = keep_layer,
                     .wants               = HL_WANT_PATTERN,
                     .pattern_positions   = positions,
                     .n_pattern_positions = n };
    hl_feed feed = { .tokens = patterns->tokens, .n_tokens = n, .tap = &tap };
    return hl_session_feed(session, &feed);
}

hl_status hl_patterns_of(hl_patterns **out, const hl_model *model, const int64_t *tokens,
                         int64_t n_tokens, int32_t n_threads)
{
    const hl_model_info *info = hl_model_get_info(model);

    HL_CLOSED(hl_patterns_free) hl_patterns *patterns = NULL;

    *out = NULL;
    if (n_tokens < 1 || n_tokens > HL_PATTERNS_MOST_TOKENS)
        return hl_fail(HL_BAD_ARGUMENT, "patterns of %lld tokens, wanted 1 to %d",
                       (long long)n_tokens, HL_PATTERNS_MOST_TOKENS);
    HL_NEED(HL_ALLOC_ZEROED(&patterns, 1));
    patterns->n_layers = info->n_layers;
    patterns->n_heads  = info->n_heads;
    patterns->n_tokens = n_tokens;
    HL_NEED(HL_ALLOC(&patterns->tokens, (size_t)n_tokens));
    memcpy(patterns->tokens, tokens, (size_t)n_tokens * sizeof *tokens);
    HL_NEED(HL_ALLOC_ZEROED(&patterns->values,
                            (size_t)(info->n_layers * info->n_heads * n_tokens * n_tokens)));
    HL_NEED(run(patterns, model, n_threads));
    *out = hl_taken(&patterns);
    return HL_OK;
}

hl_status hl_patterns_measure(hl_patterns **out, const hl_model *model, const hl_corpus *corpus,
                              const hl_patterns_options *options)
{
    HL_CLOSED(hl_windows_close) hl_windows *windows = NULL;

    hl_batch          batch = { 0 };
    hl_window_options cut   = { .n_ctx = options != NULL ? options->n_tokens : 0 };
    int64_t           n_ctx = hl_model_get_info(model)->n_ctx;

    *out = NULL;
    if (options != NULL)
        cut.around = options->around;
    if (cut.n_ctx == 0)
        cut.n_ctx = DEFAULT_TOKENS;
    if (n_ctx > 0 && cut.n_ctx > n_ctx)
        cut.n_ctx = n_ctx;
    HL_NEED(hl_windows_open(&windows, corpus, &cut));
    HL_NEED(hl_windows_next(&batch, windows));
    if (batch.n_windows == 0)
        return hl_fail(HL_BAD_INPUT, "patterns: the text has no tokens");
    return hl_patterns_of(out, model, batch.tokens, batch.lengths[0],
                          options != NULL ? options->n_threads : 0);
}

void hl_patterns_free(hl_patterns *patterns)
{
    if (patterns == NULL)
        return;
    hl_free(patterns->tokens);
    hl_free(patterns->values);
    hl_free(patterns);
}
