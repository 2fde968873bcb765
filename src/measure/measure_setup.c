/* measure_setup.c - prepares a measurement: options, settings, session, memory. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "kernels/kernels.h"
#include "measure/corpus.h"
#include "measure/measure.h"
#include "model/forward.h"
#include "model/model.h"

/* ----------------------------------------------------------------------- options */

static hl_status complete_options(hl_measuring *m)
{
    hl_window_options *windows = &m->options.windows;

    windows->n_ctx = hl_config_ctx(m->config, windows->n_ctx);
    if (windows->stride == 0)
        windows->stride = windows->n_ctx;
    if (windows->n_parts == 0)
        windows->n_parts = 1;
    if (m->options.save_every == 0.0)
        m->options.save_every = 30.0;
    if (!(m->options.save_every > 0.0) || !(m->options.epsilon >= 0.0))
        return hl_fail(HL_BAD_ARGUMENT, "save_every and epsilon must not be negative");
    if (m->options.nll && m->config->is_encoder)
        return hl_fail(HL_BAD_ARGUMENT, "%s is an encoder, which does not predict the next token",
                       m->model->path);
    return HL_OK;
}

/* Returns a number of windows that keeps a device busy. */
static int64_t device_batch(int64_t n_ctx)
{
    const int64_t n_tokens = 32768, most = 32;
    int64_t       n = n_tokens / n_ctx;

    return n < 1 ? 1 : n < most ? n : most;
}

/* Chooses the number of windows per batch and whether two batches run at the same time.  In that
 * case each gets half of the threads, from the beginning, so that there are never more threads than
 * cores. */
static hl_status choose_batches(hl_measuring *m)
{
    hl_window_options *windows = &m->options.windows;
    hl_device_choice   choice  = { 0 };

    HL_NEED(hl_device_choose(&choice, m->model, NULL));
    m->may_take_less = !choice.ops->is_near && windows->n_batch == 0;
    if (windows->n_batch == 0)
        windows->n_batch = !choice.ops->is_near ? device_batch(windows->n_ctx) : 1;
    m->in_pairs = !choice.ops->is_near && m->options.rows_path == NULL && m->options.epsilon == 0.0;
    if (m->in_pairs)
        m->options.n_threads = (hl_threads(m->options.n_threads) + 1) / 2;
    return HL_OK;
}

/* ---------------------------------------------------------------------- settings */

/* Hashes the vocabulary in the order of its ids. */
static uint64_t tokenizer_hash(const hl_tokenizer *tokenizer)
{
    hl_hasher hasher;

    hl_hash_start(&hasher, 0);
    for (size_t id = 0; id < hl_tokenizer_size(tokenizer); id++) {
        size_t      n_bytes = 0;
        const char *piece   = hl_tokenizer_piece(tokenizer, id, &n_bytes);

        hl_hash_add_u64(&hasher, n_bytes);
        if (piece != NULL)
            hl_hash_add(&hasher, piece, n_bytes);
    }
    return hl_hash_end(&hasher);
}

/* Returns the dtype that most bytes of the weights have. */
static const char *main_dtype(const hl_model *model)
{
    size_t         n_bytes[HL_DTYPE_COUNT] = { 0 };
    hl_dtype       most                    = HL_DTYPE_F32;
    hl_tensor_info tensor;

    for (int64_t i = 0; hl_model_get_tensor(&tensor, model, i) == HL_OK; i++)
        n_bytes[tensor.dtype] += tensor.n_bytes;
    for (hl_dtype dtype = 0; dtype < HL_DTYPE_COUNT; dtype++)
        most = n_bytes[dtype] > n_bytes[most] ? dtype : most;
    return hl_dtype_name(most);
}

/* Records how tokens are put around windows.  HL_AROUND_DOCUMENT is not recorded, since old
 * profiles, which were made that way, do not record it.  If the tokenizer adds no tokens, all ways
 * are the same and none is recorded. */
static hl_status set_around(hl_measuring *m)
{
    hl_around        way = m->options.windows.around;
    hl_around_tokens around;

    HL_NEED(hl_corpus_around(&around, m->corpus));
    if (way != HL_AROUND_DOCUMENT && around.n_before + around.n_after > 0)
        HL_NEED(hl_profile_set(m->profile, "special", hl_around_name(way)));
    return HL_OK;
}

static hl_status set_options(hl_measuring *m)
{
    const hl_measure_options *options = &m->options;
    char                      text[64];

    HL_NEED(hl_profile_set_int(m->profile, "context", options->windows.n_ctx));
    HL_NEED(hl_profile_set_int(m->profile, "stride", options->windows.stride));
    HL_NEED(hl_profile_set_int(m->profile, "seed", (int64_t)options->seed));
    HL_NEED(set_around(m));
    HL_NEED(hl_profile_set(m->profile, "pack", options->windows.pack ? "yes" : "no"));
    HL_NEED(hl_profile_set(m->profile, "nll", options->nll ? "yes" : "no"));
    HL_NEED(hl_profile_set(m->profile, "probe", options->no_probe ? "no" : "yes"));
    snprintf(text, sizeof text, "%g", options->epsilon);
    HL_NEED(hl_profile_set(m->profile, "epsilon", text));
    if (options->epsilon > 0.0)
        snprintf(text, sizeof text, "all and %d of %lld", HL_OUTPUT_ROWS, (long long)m->n_piece);
    else
        snprintf(text, sizeof text, "%d and %d of %lld", HL_PATTERN_ROWS, HL_OUTPUT_ROWS,
                 (long long)m->n_piece);
    return hl_profile_set(m->profile, "samples", text);
}

/* An adjusted model counts as another model, though its weights are the same. */
static hl_status set_adjustment(hl_profile *profile, const hl_adjustment *adjusted)
{
    char text[160];

    if (adjusted->temperature == 0.0 && adjusted->window == 0 && adjusted->rope_base == 0.0 &&
        adjusted->rope_factor == 0.0)
        return HL_OK;
    snprintf(text, sizeof text,
             "temperature=%.17g window=%lld sink=%lld rope_base=%.17g rope_factor=%.17g",
             adjusted->temperature, (long long)adjusted->window, (long long)adjusted->window_sink,
             adjusted->rope_base, adjusted->rope_factor);
    return hl_profile_set(profile, "adjusted", text);
}

/* And one whose products are rounded.  Profiles without this setting are of f32. */
static hl_status set_math(hl_profile *profile)
{
    hl_math math;

    HL_NEED(hl_math_selected(&math));
    return math == HL_MATH_F32 ? HL_OK : hl_profile_set(profile, "math", hl_math_name(math));
}

/* A model with gates counts as another model. */
static hl_status set_gates(hl_profile *profile, const hl_model *model)
{
    const float *gates = model->gates;
    size_t       count = (size_t)(model->config->n_layers * model->config->n_heads);

    if (gates == NULL)
        return HL_OK;
    return hl_profile_set_hash(profile, "gates", hl_hash(gates, count * sizeof *gates, 0));
}

static hl_status set_model(hl_measuring *m, const hl_tokenizer *tokenizer)
{
    uint64_t hash = 0;

    HL_NEED(hl_model_hash(&hash, m->model, m->options.n_threads));
    HL_NEED(hl_profile_set_hash(m->profile, "model", hash));
    HL_NEED(hl_profile_set(m->profile, "family", m->config->family));
    HL_NEED(hl_profile_set(m->profile, "dtype", main_dtype(m->model)));
    HL_NEED(hl_profile_set(m->profile, "version", hl_version()));
    HL_NEED(set_adjustment(m->profile, &m->model->adjusted));
    HL_NEED(set_gates(m->profile, m->model));
    HL_NEED(set_math(m->profile));
    if (tokenizer != NULL)
        HL_NEED(hl_profile_set_hash(m->profile, "tokenizer", tokenizer_hash(tokenizer)));
    else
        HL_NEED(hl_profile_set(m->profile, "tokenizer", "none"));
    return HL_OK;
}

static hl_status make_profile(hl_measuring *m)
{
    const hl_corpus_info *info = hl_corpus_get_info(m->corpus);
    int64_t               heads[HL_MAX_LAYERS];

    for (int64_t layer = 0; layer < m->config->n_layers; layer++)
        heads[layer] = m->config->layers[layer].n_heads;
    return hl_profile_new(&m->profile, &(hl_profile_shape){ .n_layers   = m->config->n_layers,
                                                            .heads      = heads,
                                                            .context    = m->options.windows.n_ctx,
                                                            .n_types    = info->n_types,
                                                            .type_names = info->type_names });
}

/* ------------------------------------------------------------------------ memory */

static hl_status open_session(hl_measuring *m)
{
    hl_session_options options = {
        .n_ctx      = m->options.windows.n_ctx,
        .n_batch    = m->options.windows.n_batch,
        .n_chunk    = m->n_piece,
        .n_patterns = m->n_patterns,
        .n_sampled  = HL_OUTPUT_ROWS,
        .wants      = HL_WANT_Z | HL_WANT_PATTERN,
        .n_threads  = m->options.n_threads,
        .steady     = true,
        .repack     = true,
    };

    if (m->options.nll)
        options.wants |= HL_WANT_LOSSES;
    return hl_session_open(&m->session, m->model, &options);
}

/* Opens a session; if the caller did not set n_batch, with as many windows as fit in memory. */
static hl_status open_fitting_session(hl_measuring *m)
{
    hl_status status = open_session(m);

    while ((status == HL_NO_MEMORY || status == HL_LIMIT) && m->may_take_less &&
           m->options.windows.n_batch > 1) {
        m->options.windows.n_batch /= 2;
        status = open_session(m);
    }
    return status;
}

static hl_status allocate(hl_measuring *m)
{
    size_t n_batch   = (size_t)m->options.windows.n_batch;
    size_t n_piece   = (size_t)m->n_piece;
    size_t n_heads   = (size_t)m->config->n_heads;
    size_t n_threads = (size_t)hl_threads(m->options.n_threads);

    HL_NEED(HL_ALLOC(&m->tokens, n_batch * n_piece));
    HL_NEED(HL_ALLOC(&m->targets, n_batch * n_piece));
    HL_NEED(HL_ALLOC(&m->lengths, n_batch));
    HL_NEED(HL_ALLOC(&m->positions, n_batch * (size_t)m->n_patterns));
    HL_NEED(HL_ALLOC(&m->outputs, n_batch * HL_OUTPUT_ROWS));
    HL_NEED(HL_ALLOC_ZEROED(&m->stream, n_batch * HL_OUTPUT_ROWS * (size_t)m->config->d_model));
    HL_NEED(HL_ALLOC(&m->products, n_threads * 2 * HL_OUTPUT_ROWS * (size_t)m->config->d_head));
    HL_NEED(HL_ALLOC(&m->influence, n_batch * HL_OUTPUT_ROWS));
    if (m->options.epsilon > 0.0)
        HL_NEED(HL_ALLOC(&m->entropy, n_batch * n_heads * n_piece));
    return HL_OK;
}

/* Makes memory for a copy of a batch, needed if the windows read on during the work. */
static hl_status make_copy(hl_measuring *m)
{
    size_t n_batch = (size_t)m->options.windows.n_batch;
    size_t n_rows  = n_batch * (size_t)m->options.windows.n_ctx;

    HL_NEED(HL_ALLOC(&m->copy.tokens, n_rows));
    HL_NEED(HL_ALLOC(&m->copy.types, n_rows));
    HL_NEED(HL_ALLOC(&m->copy.places, HL_BATCH_PLACES * n_batch));
    return HL_ALLOC(&m->copy.hashes, n_batch);
}

hl_status hl_measure_setup(hl_measuring *m, const hl_tokenizer *tokenizer)
{
    m->config = m->model->config;
    HL_NEED(complete_options(m));
    HL_NEED(choose_batches(m));
    m->n_piece = m->options.windows.n_ctx;
    if (!m->config->is_encoder && m->n_piece > HL_PIECE)
        m->n_piece = HL_PIECE;
    m->n_patterns = m->options.epsilon > 0.0 ? m->n_piece : HL_PATTERN_ROWS;
    HL_NEED(make_profile(m));
    HL_NEED(set_options(m));
    HL_NEED(set_model(m, tokenizer));
    HL_NEED(open_fitting_session(m));
    HL_NEED(hl_windows_open(&m->windows, m->corpus, &m->options.windows));
    HL_NEED(hl_ahead_new(&m->ahead, m->windows, !m->session->device->ops->is_near));
    HL_NEED(allocate(m));
    HL_NEED(hl_measure_make_gram(m));
    if (m->in_pairs)
        HL_NEED(make_copy(m));
    return HL_OK;
}

/* Closes what each of the two owns. */
static void close_own(hl_measuring *m)
{
    hl_session_close(m->session);
    hl_profile_free(m->profile);
    hl_free(m->copy.tokens);
    hl_free(m->copy.types);
    hl_free(m->copy.places);
    hl_free(m->copy.hashes);
    hl_free(m->tokens);
    hl_free(m->targets);
    hl_free(m->lengths);
    hl_free(m->positions);
    hl_free(m->outputs);
    hl_free(m->stream);
    hl_free(m->products);
    hl_free(m->influence);
    hl_free(m->entropy);
}

void hl_measure_close(hl_measuring *m)
{
    hl_measure_rows_free(m->rows);
    hl_ahead_free(m->ahead);
    hl_windows_close(m->windows);
    hl_free(m->gram);
    close_own(m);
}

/* ------------------------------------------------------------------------- twins */

hl_status hl_measure_twin_new(hl_measuring **out, const hl_measuring *m)
{
    HL_CLOSED(hl_measure_twin_free) hl_measuring *twin = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&twin, 1));
    twin->model      = m->model;
    twin->config     = m->config;
    twin->corpus     = m->corpus;
    twin->options    = m->options;
    twin->n_piece    = m->n_piece;
    twin->n_patterns = m->n_patterns;
    twin->gram       = m->gram;
    HL_NEED(hl_profile_new_like(&twin->profile, m->profile));
    HL_NEED(open_session(twin));
    HL_NEED(allocate(twin));
    HL_NEED(make_copy(twin));
    *out = hl_taken(&twin);
    return HL_OK;
}

void hl_measure_twin_free(hl_measuring *twin)
{
    if (twin == NULL)
        return;
    close_own(twin);
    hl_free(twin);
}
