/* record.c - a profile of attention that the caller computes.
 *
 * hl_measure runs a model of the library.  A recorder takes rows from any other program, window by
 * window and layer by layer, and treats them in the same way: it draws the same sampled rows from the
 * window's tokens and the seed, and adds the same sums.  A program that computes the same attention on
 * the same windows therefore gets the same profile, up to the rounding of its rows. */
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/status.h"
#include "measure/measure.h"
#include "measure/window.h"

struct hl_recorder {
    hl_profile *profile;
    int64_t     n_layers;
    int64_t    *heads; /* (n_layers) */
    int64_t     context;
    uint64_t    seed;
    int32_t     n_threads;

    /* The window that is being recorded; n_tokens 0: none. */
    int64_t  n_tokens;
    int64_t  first_row;
    int64_t  document;
    int64_t  start;
    uint64_t hash;
    uint8_t *types; /* (context) all 0 */
    int64_t *whole; /* (n_whole) positions of rows that are read whole */
    int64_t  n_whole;
    int64_t *outputs; /* (n_outputs) positions of rows whose outputs' norms are read */
    int64_t  n_outputs;

    hl_profile_batch batch;
};

/* ------------------------------------------------------------------------ opening */

static hl_status check_options(const hl_record_options *options)
{
    HL_NEED(hl_check_count("the number of layers", options->n_layers, 1, HL_PROFILE_MAX_LAYERS));
    HL_NEED(hl_check_count("context", options->context, 1, (int64_t)1 << 24));
    for (int64_t layer = 0; layer < options->n_layers; layer++)
        HL_NEED(
            hl_check_count("the number of heads", options->heads[layer], 0, HL_PROFILE_MAX_HEADS));
    return HL_OK;
}

static hl_status make_profile(hl_recorder *recorder, const hl_record_options *options)
{
    static const char *const types[] = { "prompt" };

    HL_NEED(hl_profile_new(&recorder->profile, &(hl_profile_shape){ .n_layers   = options->n_layers,
                                                                    .heads      = options->heads,
                                                                    .context    = options->context,
                                                                    .n_types    = 1,
                                                                    .type_names = types }));
    for (size_t i = 0; i < options->n_settings; i++)
        HL_NEED(hl_profile_set(recorder->profile, options->settings[i].key,
                               options->settings[i].value));
    HL_NEED(hl_profile_set(recorder->profile, "version", hl_version()));
    HL_NEED(hl_profile_set_int(recorder->profile, "context", options->context));
    return hl_profile_set_int(recorder->profile, "seed", (int64_t)options->seed);
}

static int64_t count_pieces(int64_t n_tokens)
{
    return (n_tokens + HL_PIECE - 1) / HL_PIECE;
}

HL_CLOSES(hl_recorder_close, hl_recorder)

hl_status hl_recorder_open(hl_recorder **out, const hl_record_options *options)
{
    HL_CLOSED(hl_recorder_close) hl_recorder *recorder = NULL;

    *out = NULL;
    HL_NEED(check_options(options));
    size_t n_pieces = (size_t)count_pieces(options->context);
    HL_NEED(HL_ALLOC_ZEROED(&recorder, 1));
    recorder->n_layers  = options->n_layers;
    recorder->context   = options->context;
    recorder->seed      = options->seed;
    recorder->n_threads = options->n_threads;
    HL_NEED(HL_ALLOC(&recorder->heads, (size_t)options->n_layers));
    memcpy(recorder->heads, options->heads, (size_t)options->n_layers * sizeof *recorder->heads);
    HL_NEED(HL_ALLOC_ZEROED(&recorder->types, (size_t)options->context));
    HL_NEED(HL_ALLOC(&recorder->whole, n_pieces * HL_PATTERN_ROWS));
    HL_NEED(HL_ALLOC(&recorder->outputs, n_pieces * HL_OUTPUT_ROWS));
    HL_NEED(make_profile(recorder, options));
    *out = hl_taken(&recorder);
    return HL_OK;
}

void hl_recorder_close(hl_recorder *recorder)
{
    if (recorder == NULL)
        return;
    hl_profile_free(recorder->profile);
    hl_free(recorder->heads);
    hl_free(recorder->types);
    hl_free(recorder->whole);
    hl_free(recorder->outputs);
    hl_free(recorder);
}

/* ------------------------------------------------------------------------ windows */

/* Draws rows of every piece, as hl_measure does for a session fed in pieces.  An encoder is fed whole:
 * its window is one piece. */
static int64_t draw(int64_t *out, const hl_recorder *recorder, bool in_pieces, int64_t n,
                    bool is_whole)
{
    int64_t  n_pieces = in_pieces ? count_pieces(recorder->n_tokens) : 1;
    int64_t  length   = in_pieces ? HL_PIECE : recorder->n_tokens;
    uint64_t hash     = hl_hash_pair(recorder->seed, recorder->hash);
    int64_t  count    = 0;

    for (int64_t i = 0; i < n_pieces; i++) {
        int64_t begin = i * length;
        int64_t high  = begin + length < recorder->n_tokens ? begin + length : recorder->n_tokens;
        int64_t low   = recorder->first_row > begin ? recorder->first_row : begin;
        int64_t at    = count;

        if (low >= high)
            continue;
        hl_measure_draw(out + at, n, low, high,
                        hl_hash_pair(hash, is_whole ? (uint64_t)begin : ~(uint64_t)begin));
        for (int64_t k = 0; k < n; k++) {
            if (out[at + k] >= 0)
                out[count++] = out[at + k];
        }
    }
    return count;
}

hl_status hl_recorder_begin(hl_recorder *recorder, const hl_record_window *window)
{
    HL_NEED(hl_check_count("the number of tokens", window->n_tokens, 1, recorder->context));
    HL_NEED(hl_check_count("first_row", window->first_row, 0, window->n_tokens - 1));
    recorder->n_tokens  = window->n_tokens;
    recorder->first_row = window->first_row;
    recorder->document  = window->document;
    recorder->start     = window->start;
    recorder->hash      = hl_window_hash(window->tokens, window->n_tokens, window->first_row);
    recorder->n_whole   = draw(recorder->whole, recorder, window->in_pieces, HL_PATTERN_ROWS, true);
    recorder->n_outputs =
        draw(recorder->outputs, recorder, window->in_pieces, HL_OUTPUT_ROWS, false);
    recorder->batch = (hl_profile_batch){ .n_batch   = 1,
                                          .lengths   = &recorder->n_tokens,
                                          .first_row = &recorder->first_row,
                                          .hashes    = &recorder->hash,
                                          .types     = recorder->types,
                                          .context   = recorder->context,
                                          .documents = &recorder->document,
                                          .starts    = &recorder->start,
                                          .n_threads = recorder->n_threads };
    return hl_profile_begin(recorder->profile, &recorder->batch);
}

int64_t hl_recorder_whole_rows(const int64_t **out, const hl_recorder *recorder)
{
    *out = recorder->whole;
    return recorder->n_whole;
}

int64_t hl_recorder_output_rows(const int64_t **out, const hl_recorder *recorder)
{
    *out = recorder->outputs;
    return recorder->n_outputs;
}

static hl_status check_layer(const hl_recorder *recorder, const hl_record_layer *layer)
{
    if (recorder->n_tokens == 0)
        return hl_fail(HL_BAD_ARGUMENT, "recorder: no window was begun");
    HL_NEED(hl_check_count("layer", layer->layer, 0, recorder->n_layers - 1));
    HL_NEED(hl_check_count("n_keys", layer->n_keys, 1, (int64_t)1 << 24));
    if (!layer->is_cross && layer->n_keys != recorder->n_tokens)
        return hl_fail(
            HL_BAD_ARGUMENT, "recorder: layer %lld has %lld keys, wanted the window's %lld",
            (long long)layer->layer, (long long)layer->n_keys, (long long)recorder->n_tokens);
    return HL_OK;
}

hl_status hl_recorder_layer(hl_recorder *recorder, const hl_record_layer *layer)
{
    HL_NEED(check_layer(recorder, layer));
    int64_t               start = 0;
    const hl_profile_mask mask  = { .is_causal    = layer->is_causal,
                                    .has_window   = layer->has_window,
                                    .window_left  = layer->window_left,
                                    .window_right = layer->window_right,
                                    .has_sink     = layer->has_sink,
                                    .n_keys       = layer->is_cross ? layer->n_keys : 0 };
    const hl_layer_rows   rows  = { .layer        = layer->layer,
                                    .n_batch      = 1,
                                    .n_rows       = recorder->n_tokens,
                                    .n_heads      = recorder->heads[layer->layer],
                                    .start        = &start,
                                    .lengths      = &recorder->n_tokens,
                                    .rows         = layer->rows,
                                    .pattern      = layer->whole,
                                    .pattern_rows = recorder->whole,
                                    .n_patterns   = layer->whole != NULL ? recorder->n_whole : 0,
                                    .n_keys       = layer->n_keys };

    return hl_profile_layer(recorder->profile, &rows, &mask);
}

hl_status hl_recorder_norms(hl_recorder *recorder, int64_t layer, const float *norms)
{
    HL_NEED(hl_check_count("layer", layer, 0, recorder->n_layers - 1));
    for (int64_t head = 0; head < recorder->heads[layer]; head++) {
        for (int64_t i = 0; i < recorder->n_outputs; i++)
            hl_profile_norm(recorder->profile, layer, head,
                            (double)norms[head * recorder->n_outputs + i]);
    }
    return HL_OK;
}

hl_status hl_recorder_losses(hl_recorder *recorder, const float *losses, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        hl_profile_loss(recorder->profile, (double)losses[i]);
    return HL_OK;
}

hl_status hl_recorder_end(hl_recorder *recorder)
{
    if (recorder->n_tokens == 0)
        return hl_fail(HL_BAD_ARGUMENT, "recorder: no window was begun");
    HL_NEED(hl_profile_end(recorder->profile));
    recorder->n_tokens = 0;
    return HL_OK;
}

hl_status hl_recorder_finish(hl_profile **out, hl_recorder *recorder)
{
    *out = NULL;
    if (recorder->n_tokens != 0)
        return hl_fail(HL_BAD_ARGUMENT, "recorder: the last window has not ended");
    if (recorder->profile == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "recorder: its profile has been taken");
    *out              = recorder->profile;
    recorder->profile = NULL;
    return HL_OK;
}
