/* session_memory.c - chooses the device of a session, and plans all of its memory.
 *
 * The same code plans memory twice.  The first time it counts, so that a session that does not fit
 * is refused before anything is copied, with a message of what would fit.  The second time it
 * assigns addresses.  Besides the weights, with N = n_rows, which is n_batch * n_chunk by default:
 *
 *     cache      2 * n_layers * n_batch * n_ctx * n_kv_heads * d_head  elements
 *     states     2 * n_batch * floats of hl_mixer_state_floats, for each layer with a mixer
 *     rows       N * (4 or 5 d_model + 2 (n_heads + n_kv_heads) d_head + 3 d_mlp)  elements
 *     statistics N * n_heads * 11 numbers
 *     panels     a part of a weight as floats, for every thread
 *
 * Only the cache grows with n_ctx (and, for Falcon's ALiBi, a bias per head and key).
 * hl_session_measure runs the same plan without allocating. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "kernels/attention.h"
#include "kernels/int8.h"
#include "kernels/kernels.h"
#include "model/forward.h"
#include "model/model.h"

enum { LOGIT_BYTES = 256 << 20, ALIGNMENT = 256, COPIES_SHARE = 8 /* of the machine's memory */ };

/* ------------------------------------------------------------------ choosing */

/* A suffix of a device's name, and the compute type that it selects. */
static const struct named_type {
    const char *suffix;
    hl_dtype    dtype;
} named[] = { { ":bf16", HL_DTYPE_BF16 }, { ":f16", HL_DTYPE_F16 }, { ":f32", HL_DTYPE_F32 } };

/* Splits "cuda:f16" into the table of "cuda" and F16. */
static hl_status find_device(hl_device_choice *out, const char *name)
{
    char        device[HL_DEVICE_NAME];
    const char *type     = strchr(name, ':');
    size_t      n        = type != NULL ? (size_t)(type - name) : strlen(name);
    bool        is_known = type == NULL;

    *out = (hl_device_choice){ 0 };
    for (size_t i = 0; i < sizeof named / sizeof *named && type != NULL; i++) {
        if (strcmp(named[i].suffix, type) == 0) {
            out->dtype = named[i].dtype;
            is_known   = true;
        }
    }
    snprintf(device, sizeof device, "%.*s", (int)n, name);
    if (!is_known || n >= sizeof device || (type != NULL && strcmp(device, "cpu") == 0))
        return hl_fail(HL_NOT_FOUND, "no device \"%s\"; there are: cpu cuda cuda:f16 cuda:f32",
                       name);
    HL_NEED(hl_device_find(&out->ops, device));
    if (type == NULL)
        out->dtype = strcmp(device, "cuda") == 0 ? HL_DTYPE_BF16 : HL_DTYPE_F32;
    return HL_OK;
}

hl_status hl_device_choose(hl_device_choice *out, const hl_model *model, const char *name)
{
    if (name == NULL && model->device[0] != '\0')
        name = model->device;
    if (name == NULL)
        name = getenv("HEADLIGHT_DEVICE");
    return find_device(out, name != NULL && name[0] != '\0' ? name : "cpu");
}

hl_status hl_device_check(const char *name)
{
    hl_device_choice choice;

    return find_device(&choice, name);
}

hl_status hl_model_set_device(hl_model *model, const char *name)
{
    if (name != NULL)
        HL_NEED(hl_device_check(name));
    snprintf(model->device, sizeof model->device, "%s", name != NULL ? name : "");
    return HL_OK;
}

hl_status hl_device_checked(const hl_device_session *d, hl_status status, const char *what)
{
    char reason[512];

    if (status == HL_OK)
        return HL_OK;
    snprintf(reason, sizeof reason, "%s", d->ops->error());
    return hl_fail(status, "%s: %s: %s", d->ops->name, what, reason);
}

/* ---------------------------------------------------------- the process's own */

static hl_status keep_block(hl_session *session, void *block)
{
    HL_NEED(HL_GROW(&session->blocks, &session->max_blocks, session->n_blocks, 1));
    session->blocks[session->n_blocks++] = block;
    return HL_OK;
}

static hl_status count_block(hl_session *session, int64_t count, size_t size)
{
    size_t n_bytes = 0;

    if (count < 0 || !hl_size_multiply(&n_bytes, (size_t)count, size) ||
        !hl_size_add(&session->n_bytes, session->n_bytes, n_bytes))
        return hl_fail(HL_NO_MEMORY, "a session's memory is beyond 2^63 bytes");
    return HL_OK;
}

hl_status hl_session_alloc_table(hl_session *session, void **out, int64_t count, size_t size)
{
    HL_FREED void *block = NULL;

    HL_NEED(count_block(session, count, size));
    HL_NEED(hl_alloc_zeroed(&block, (size_t)count, size));
    HL_NEED(keep_block(session, block));
    *out = hl_taken(&block);
    return HL_OK;
}

hl_status hl_session_alloc(hl_session *session, void **out, int64_t count, size_t size)
{
    *out = NULL;
    return session->counting ? count_block(session, count, size)
                             : hl_session_alloc_table(session, out, count, size);
}

/* Returns the product, or -1 if it overflows, which hl_session_alloc refuses. */
static int64_t product(int64_t a, int64_t b, int64_t c)
{
    int64_t result;

    if (a < 0 || b < 0 || c < 0 || __builtin_mul_overflow(a, b, &result) ||
        __builtin_mul_overflow(result, c, &result) || result > INT64_MAX / 16)
        return -1;
    return result;
}

/* -------------------------------------------------------------------- arenas */

void *hl_arena_take(hl_arena *arena, int64_t a, int64_t b, size_t size)
{
    size_t  at    = arena->used;
    int64_t count = product(a, b, (int64_t)size);

    if (count < 0 || arena->used > (size_t)INT64_MAX / 2 - (size_t)count) {
        arena->is_beyond = true;
        return NULL;
    }
    arena->used += ((size_t)count + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return arena->base != NULL ? arena->base + at : NULL;
}

/* All planned memory, by the place where it lies. */
typedef struct plan {
    hl_arena weights;
    hl_arena cache;
    hl_arena rows;
    hl_arena host;
    bool     is_near; /* both halves of a pair are the same memory */
} plan;

static void take_pair(plan *p, hl_device_pair *pair, int64_t a, int64_t b, size_t size)
{
    pair->device = hl_arena_take(&p->rows, a, b, size);
    pair->host   = p->is_near ? pair->device : hl_arena_take(&p->host, a, b, size);
}

/* ------------------------------------------------------------------- planning */

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t count_caches(const hl_config *config)
{
    return config->is_encoder ? 1 : config->n_layers;
}

static void plan_cache(plan *p, hl_session *session)
{
    const hl_config *config = session->config;
    size_t           size   = hl_dtype_bits(session->device->cache_dtype) / 8;

    for (int64_t i = 0; i < count_caches(config); i++) {
        bool    one        = config->is_encoder;
        int64_t n_kv_heads = one ? config->n_kv_heads : hl_config_own_kv_heads(config, i);
        int64_t d_head     = one ? config->d_head : config->layers[i].d_head;
        int64_t rows       = product(session->options.n_batch, n_kv_heads, session->options.n_ctx);

        if (config->latent.d_latent > 0 && config->layers[i].n_heads > 0) {
            session->caches[i].k = hl_arena_take(
                &p->cache, product(session->options.n_batch, session->options.n_ctx, 1),
                hl_latent_key_size(config), size);
            session->caches[i].v = NULL;
            if (config->latent.n_top > 0) /* the indexer's keys */
                session->caches[i].v = hl_arena_take(
                    &p->cache, product(session->options.n_batch, session->options.n_ctx, 1),
                    config->latent.d_index, size);
            continue;
        }
        session->caches[i].k = hl_arena_take(&p->cache, rows, d_head, size);
        session->caches[i].v = hl_arena_take(&p->cache, rows, d_head, size);
    }
    /* Segments belong to the cache: one byte per token that it can hold. */
    if (!p->is_near)
        session->device->rows.segments =
            hl_arena_take(&p->cache, session->options.n_batch, session->options.n_ctx, 1);
}

static void plan_states(plan *p, hl_session *session)
{
    const hl_config *config = session->config;

    for (int64_t i = 0; i < config->n_layers && session->states.layers != NULL; i++) {
        hl_session_state *state  = &session->states.layers[i];
        int64_t           floats = hl_mixer_state_floats(config, config->layers[i].mixer);

        *state = (hl_session_state){ 0 };
        if (floats == 0)
            continue;
        state->now  = hl_arena_take(&p->cache, session->options.n_batch, floats, sizeof(float));
        state->kept = hl_arena_take(&p->cache, session->options.n_batch, floats, sizeof(float));
    }
}

static void plan_ple(plan *p, hl_session *session)
{
    hl_device_rows *rows = &session->device->rows;
    int64_t         n    = session->options.n_rows;
    int64_t         all  = session->config->n_layers * session->config->d_ple;

    if (all == 0)
        return;
    rows->ple        = hl_arena_take(&p->rows, n, all, session->device->size);
    rows->ple_gate   = hl_arena_take(&p->rows, n, all, session->device->size);
    rows->ple_active = hl_arena_take(&p->rows, n, session->config->d_ple, session->device->size);
}

static void plan_latent(plan *p, hl_session *session)
{
    const hl_config        *config = session->config;
    const hl_latent_config *latent = &config->latent;
    hl_device_rows         *rows   = &session->device->rows;
    size_t                  size   = session->device->size;
    int64_t                 n      = session->options.n_rows;
    int64_t                 H      = config->n_heads;

    if (latent->d_latent == 0)
        return;
    rows->qkv        = hl_arena_take(&p->rows, n, H * hl_latent_key_size(config), size);
    rows->query      = hl_arena_take(&p->rows, n, latent->d_query, size);
    rows->heads      = hl_arena_take(&p->rows, n, H * (latent->d_nope + latent->d_rope), size);
    rows->compressed = hl_arena_take(&p->rows, n, most(latent->d_latent, latent->d_rope), size);
    rows->latent     = hl_arena_take(&p->rows, n, hl_latent_key_size(config), size);
    if (latent->n_top > 0) {
        rows->index_q = hl_arena_take(&p->rows, n, latent->n_index_heads * latent->d_index, size);
        rows->index_k = hl_arena_take(&p->rows, n, latent->d_index, size);
        rows->index_weight = hl_arena_take(&p->rows, n, latent->n_index_heads, sizeof(float));
        rows->index_bias   = hl_arena_take(&p->rows, n, session->options.n_ctx, sizeof(float));
    }
    rows->latent_z = hl_arena_take(&p->rows, n, H * latent->d_latent, size);
}

/* Must follow the weights. */
static void plan_mixers(plan *p, hl_session *session)
{
    hl_device_session     *d     = session->device;
    const hl_mixer_config *mixer = &session->config->mixer;
    hl_device_rows        *rows  = &d->rows;
    int64_t                n     = session->options.n_rows;
    int64_t                in    = 0;
    int64_t                x     = 0;

    for (int64_t i = 0; i < session->config->n_layers; i++) {
        in = most(in, d->weights.layers[i].mixer.in.n_out);
        x  = most(x, d->weights.layers[i].mixer.x.n_out);
    }
    if (in == 0)
        return;
    rows->mix_in = hl_arena_take(&p->rows, n, in, d->size);
    rows->mix    = hl_arena_take(&p->rows, n, mixer->n_channels, d->size);
    rows->mixed  = hl_arena_take(&p->rows, n, mixer->n_heads * mixer->d_head, d->size);
    if (x == 0)
        return;
    rows->mix_dt   = hl_arena_take(&p->rows, n, 2 * x, d->size);
    rows->mix_step = hl_arena_take(&p->rows, n, mixer->d_head, d->size);
}

/* Whether the outputs of two branches are needed at a time: they are added together, or gradients
 * (backward.c) read an output again, before its norm. */
static bool keeps_branches(const hl_config *config)
{
    bool keeps = config->n_streams > 1 || hl_config_has_mixer(config);

    for (int64_t layer = 0; layer < config->n_layers; layer++) {
        hl_half halves[HL_BLOCK_HALVES];
        int     n = hl_block_halves(halves, config, layer);

        for (int i = 0; i < n; i++)
            keeps = keeps || halves[i].joins || halves[i].post != HL_POST_NONE;
    }
    return keeps;
}

static void plan_stream(plan *p, hl_session *session)
{
    hl_device_session *d       = session->device;
    hl_device_rows    *rows    = &d->rows;
    const hl_config   *config  = session->config;
    int64_t            n       = session->options.n_rows;
    int64_t            queries = config->n_heads * config->d_head;
    int64_t            keys    = config->n_kv_heads * config->d_head;

    rows->stride = n * config->d_model;
    rows->x =
        hl_arena_take(&p->rows, product(n, config->n_streams, 1), config->d_model, sizeof(float));
    if (config->n_streams > 1) {
        rows->predicted     = hl_arena_take(&p->rows, n, config->d_model, sizeof(float));
        rows->other         = hl_arena_take(&p->rows, n, config->d_model, sizeof(float));
        rows->merged        = hl_arena_take(&p->rows, n, config->d_model, sizeof(float));
        rows->stream_logits = hl_arena_take(&p->rows, n, config->n_streams, sizeof(float));
    }
    if (config->d_laurel > 0)
        rows->laurel = hl_arena_take(&p->rows, n, config->d_laurel, d->size);
    rows->normed = hl_arena_take(&p->rows, n, config->d_model, d->size);
    rows->branch = hl_arena_take(&p->rows, n, config->d_model, d->size);
    rows->mlp    = rows->branch;
    if (!p->is_near || keeps_branches(config))
        rows->mlp = hl_arena_take(&p->rows, n, config->d_model, d->size);
    if (config->latent.d_latent == 0)
        rows->qkv = hl_arena_take(&p->rows, n, queries + 2 * keys, d->size);
    rows->z = hl_arena_take(&p->rows, n, queries, d->size);
    if (config->attn_gated)
        rows->gate = hl_arena_take(&p->rows, n, queries, d->size);
    if (config->inner_norms)
        rows->z_normed = hl_arena_take(&p->rows, n, queries, d->size);
    if (config->d_embed != config->d_model)
        rows->embedded = hl_arena_take(&p->rows, n, config->d_embed, d->size);
    rows->flag = hl_arena_take(&p->rows, 2, 1, sizeof *rows->flag);
    d->flag    = p->is_near ? rows->flag : hl_arena_take(&p->host, 2, 1, sizeof *d->flag);
    for (hl_rope_choice choice = HL_ROPE_MAIN; choice < HL_N_ROPES; choice++) {
        int64_t n_pairs = config->ropes[choice].n_dims / 2;

        rows->cosine[choice] = hl_arena_take(&p->rows, n, n_pairs, sizeof(float));
        rows->sine[choice]   = hl_arena_take(&p->rows, n, n_pairs, sizeof(float));
    }
}

/* Must follow the weights, which determine the widths of MLPs. */
static void plan_mlp(plan *p, hl_session *session)
{
    hl_device_session *d      = session->device;
    const hl_config   *config = session->config;
    int64_t            n      = session->options.n_rows;
    int64_t            up     = 0;
    int64_t            active = 0;
    size_t             work   = 0;
    hl_device_places   places = { .n_batch = 1, .batch_rows = n };

    for (int64_t layer = 0; layer < config->n_layers; layer++) {
        const hl_device_layer *w = &d->weights.layers[layer];

        up     = most(up, most(w->up.n_out, w->shared_up.n_out));
        active = most(active, most(w->down.n_in, w->shared_down.n_in));
        if (config->layers[layer].n_experts > 0) {
            hl_device_experts experts = hl_device_experts_of(session, layer, &places);
            size_t            bytes   = d->ops->experts_bytes(d->device, &experts);
            work                      = bytes > work ? bytes : work;
        }
    }
    d->rows.up     = hl_arena_take(&p->rows, n, up, d->size);
    d->rows.active = hl_arena_take(&p->rows, n, active, d->size);
    if (config->n_experts == 0)
        return;
    d->rows.work   = hl_arena_take(&p->rows, (int64_t)work, 1, 1);
    d->rows.router = hl_arena_take(&p->rows, n, config->n_experts + 1, sizeof(float));
    if (config->d_shared > 0)
        d->rows.shared = hl_arena_take(&p->rows, n, config->d_model, d->size);
    if (p->is_near) {
        d->rows.chosen = hl_arena_take(&p->rows, n, config->n_experts_used, sizeof(int64_t));
        d->rows.shares = hl_arena_take(&p->rows, n, config->n_experts_used, sizeof(float));
    }
}

/* The number of rows of logits computed at a time: a few hundred megabytes, and at least every
 * sequence's last row.  On a near device it is small and does not depend on memory. */
static int64_t choose_logit_rows(const hl_session *session)
{
    int64_t fit  = LOGIT_BYTES / 4 / session->config->d_vocab;
    int64_t rows = session->options.n_rows < fit ? session->options.n_rows : fit;

    if (session->device->ops->is_near)
        return HL_LOGIT_ROWS;
    return most(most(rows, HL_LOGIT_ROWS), session->options.n_batch);
}

static void plan_kept(plan *p, hl_session *session)
{
    hl_device_session *d       = session->device;
    int64_t            kept    = product(session->options.n_batch, session->options.n_kept, 1);
    int64_t            d_vocab = session->config->d_vocab;

    if ((session->options.wants & HL_WANT_DIVERGENCE) == 0)
        return;
    d->kept.logits = hl_arena_take(&p->rows, kept, d_vocab, sizeof(float));
    d->kept.p      = p->is_near ? hl_arena_take(&p->rows, kept, d_vocab, sizeof(float)) : NULL;
    d->kept.lse    = hl_arena_take(&p->rows, kept, 1, sizeof(double));
}

static void plan_ends(plan *p, hl_session *session)
{
    hl_device_session *d      = session->device;
    const hl_config   *config = session->config;
    uint32_t           copied = HL_WANT_LOGITS | HL_WANT_LAST_LOGITS;
    uint32_t words = copied | HL_WANT_LAST_TOP | HL_WANT_LAST_DRAW | HL_WANT_LENS | HL_WANT_LOSSES |
                     HL_WANT_DIVERGENCE;
    bool    speaks = (session->options.wants & words) != 0;
    int64_t n      = d->logit_rows;
    int64_t widest = most(config->d_embed, config->d_model);
    int64_t wide   = (session->options.wants & copied) != 0 ? config->d_vocab : 0;

    if (!speaks && (session->options.wants & HL_WANT_HIDDEN) == 0)
        return;
    d->rows.plain  = hl_arena_take(&p->rows, n, config->d_model, sizeof(float));
    d->ends.device = hl_arena_take(&p->rows, n, HL_SAID_FLOATS, sizeof(float));
    d->ends.host   = p->is_near ? d->ends.device
                                : hl_arena_take(&p->host, n, HL_SAID_FLOATS + config->d_model + wide,
                                                sizeof(float));
    if (!speaks)
        return;
    d->rows.last   = hl_arena_take(&p->rows, n, config->d_model, sizeof(float));
    d->rows.hidden = hl_arena_take(&p->rows, n, widest, d->size);
    d->rows.narrow = hl_arena_take(&p->rows, n, widest, d->size);
    d->rows.logits = hl_arena_take(&p->rows, n, config->d_vocab, sizeof(float));
    plan_kept(p, session);
}

static int64_t kept_width(const hl_config *config, int kind)
{
    if (kind >= HL_KEPT_PRE)
        return config->d_model;
    return config->d_head *
           (kind == HL_KEPT_K || kind == HL_KEPT_V ? config->n_kv_heads : config->n_heads);
}

/* If rows are sampled, the stream after a block is also reported.  Rows that a near device still
 * has when a layer is reported are not copied. */
static bool may_keep(const hl_session *session, int kind)
{
    if (session->device->ops->is_near && (kind == HL_KEPT_Z || kind == HL_KEPT_POST))
        return false;
    return (session->options.wants & 1U << kind) != 0 ||
           (kind == HL_KEPT_POST && session->options.n_sampled > 0);
}

static void plan_patterns(plan *p, hl_session *session, hl_device_lane *lane)
{
    const hl_session_options *options = &session->options;
    int64_t count = product(options->n_batch, session->config->n_heads, options->n_patterns);

    take_pair(p, &lane->pattern, count, options->n_ctx, sizeof(float));
    take_pair(p, &lane->exact, count, 1, sizeof(hl_pattern_row));
    if (session->config->latent.n_top > 0)
        take_pair(p, &lane->full, count, 1, sizeof(hl_pattern_row));
    take_pair(p, &lane->items, count, 3, sizeof(int64_t));
    if (p->is_near)
        session->device->rows.scores =
            hl_arena_take(&p->rows, session->pool.n_threads, options->n_ctx, sizeof(double));
}

static void plan_lane(plan *p, hl_session *session, hl_device_lane *lane)
{
    const hl_session_options *options  = &session->options;
    int64_t                   n_heads  = session->config->n_heads;
    int64_t                   heads    = product(options->n_batch, n_heads, 1);
    int64_t                   rows     = options->n_rows;
    int64_t                   max_runs = session->device->max_runs;
    int64_t                   kept =
        options->n_sampled > 0 && !p->is_near ? options->n_batch * options->n_sampled : rows;

    lane->layer = -1;
    take_pair(p, &lane->statistics, product(rows, n_heads, 1), HL_ROW_STATISTICS + HL_MAX_SEGMENTS,
              sizeof(float));
    if (p->is_near)
        lane->argmax = hl_arena_take(&p->rows, rows, n_heads, sizeof *lane->argmax);
    for (int kind = 0; kind < HL_N_KEPT; kind++) {
        if (may_keep(session, kind))
            take_pair(p, &lane->kept[kind], kept, kept_width(session->config, kind), sizeof(float));
    }
    if ((options->wants & HL_WANT_PATTERN) != 0)
        plan_patterns(p, session, lane);
    take_pair(p, &lane->sums, (int64_t)hl_device_sums_bytes(session, max_runs), 1, 1);
    take_pair(p, &lane->plan.runs, max_runs, 1, sizeof(hl_run));
    take_pair(p, &lane->plan.numbers, max_runs > 0 ? 3 * rows : 0, 1, sizeof(double));
    take_pair(p, &lane->likeness, (int64_t)hl_device_likeness_bytes(session), 1, 1);
    if (hl_device_likeness_bytes(session) > 0) {
        int64_t n     = options->n_sampled;
        lane->kernels = hl_arena_take(&p->rows, heads, n * n + n + 1, sizeof *lane->kernels);
        take_pair(p, &lane->places, options->n_batch, options->n_patterns,
                  sizeof(hl_pattern_place));
    }
    if ((options->wants & HL_WANT_LENS) != 0)
        take_pair(p, &lane->lens, rows, 1, sizeof(int64_t) + 2 * sizeof(float));
}

/* Plans the inputs of all layers' comparisons of heads, and the stream kept between layers. */
static void plan_likeness(plan *p, hl_session *session)
{
    const hl_config          *config  = session->config;
    const hl_session_options *options = &session->options;
    hl_device_session        *d       = session->device;

    if (hl_device_likeness_bytes(session) == 0)
        return;
    d->gram     = hl_arena_take(&p->rows, config->n_layers * config->n_heads,
                                config->d_head * config->d_head, sizeof *d->gram);
    d->followed = hl_arena_take(&p->rows, options->n_batch * options->n_sampled, config->d_model,
                                sizeof *d->followed);
}

static void plan_streams(plan *p, hl_session *session)
{
    int64_t n_rows =
        product(session->streams.n_slots, session->options.n_batch, session->options.n_ctx);

    session->streams.x = hl_arena_take(
        &p->rows, n_rows, session->config->d_model * session->config->n_streams, sizeof(float));
}

static hl_status plan_all(plan *p, hl_session *session)
{
    hl_device_session *d    = session->device;
    int64_t            rows = session->options.n_rows;

    d->logit_rows = choose_logit_rows(session);
    d->step_rows  = rows < HL_STEP_ROWS ? rows : HL_STEP_ROWS;
    if (!p->is_near)
        HL_NEED(hl_device_load_weights(session, &p->weights, d->has_weights));
    HL_NEED(hl_device_load_biases(session, &p->rows));
    plan_cache(p, session);
    plan_states(p, session);
    plan_stream(p, session);
    plan_latent(p, session);
    plan_ple(p, session);
    plan_mixers(p, session);
    plan_mlp(p, session);
    plan_ends(p, session);
    plan_streams(p, session);
    take_pair(p, &d->inputs.block, (int64_t)hl_device_inputs_bytes(session), 1, 1);
    if (p->is_near) {
        plan_lane(p, session, &d->lanes[0]);
        d->lanes[1].layer = -1;
    } else {
        hl_device_plan_picks(session, &p->rows, &p->host);
        d->max_runs = session->options.n_sampled > 0 ? rows / 16 + 8 * session->options.n_batch : 0;
        plan_likeness(p, session);
        for (int i = 0; i < HL_DEVICE_LANES; i++)
            plan_lane(p, session, &d->lanes[i]);
        take_pair(p, &d->all_statistics, session->config->n_layers,
                  (int64_t)hl_device_statistics_bytes(d->step_rows * session->config->n_heads,
                                                      HL_MAX_SEGMENTS) +
                      16,
                  1);
    }
    if (p->weights.is_beyond || p->cache.is_beyond || p->rows.is_beyond || p->host.is_beyond)
        return hl_fail(HL_NO_MEMORY, "a session's memory is beyond 2^63 bytes");
    return HL_OK;
}

/* ------------------------------------------------------------------- memory */

static double gib(size_t n_bytes)
{
    return (double)n_bytes / (double)((size_t)1 << 30);
}

/* The message gives what would fit in terms of options that a caller can change. */
static hl_status too_large(const hl_session *session, const plan *p, size_t free_bytes)
{
    const hl_session_options *options = &session->options;
    size_t                    need    = p->weights.used + p->cache.used + p->rows.used;
    size_t                    fixed   = p->weights.used + p->rows.used;
    size_t                    each    = p->cache.used / (size_t)options->n_ctx + 1;
    size_t                    batch = (p->cache.used + p->rows.used) / (size_t)options->n_batch + 1;
    int64_t n_ctx = fixed < free_bytes ? (int64_t)((free_bytes - fixed) / each) : 0;
    int64_t n_batch =
        p->weights.used < free_bytes ? (int64_t)((free_bytes - p->weights.used) / batch) : 0;
    char advice[160] = "its weights alone do not fit";

    if (n_batch >= 1 && n_batch < options->n_batch)
        snprintf(advice, sizeof advice, "%lld sequences at a time would fit", (long long)n_batch);
    else if (n_ctx >= 1)
        snprintf(advice, sizeof advice, "a context of %lld tokens would fit", (long long)n_ctx);
    else if (p->weights.used < free_bytes)
        snprintf(advice, sizeof advice,
                 "its weights fit, with fewer rows at a time or a shorter "
                 "context it may");
    return hl_fail(
        HL_NO_MEMORY,
        "%s: a session of %lld sequences of %lld tokens, %lld rows at a time, takes "
        "%.2f GiB (weights %.2f, keys and values %.2f, work %.2f), %.2f GiB are free: %s",
        session->device->ops->name, (long long)options->n_batch, (long long)options->n_ctx,
        (long long)options->n_rows, gib(need), gib(p->weights.used), gib(p->cache.used),
        gib(p->rows.used), gib(free_bytes), advice);
}

/* `weights` are those of an earlier session, or NULL. */
static hl_status allocate(hl_session *session, plan *p, void *weights)
{
    hl_device_session   *d      = session->device;
    const hl_device_ops *ops    = d->ops;
    hl_device_memory     memory = { 0 };

    if (ops->is_near) {
        HL_NEED(ops->alloc(d->device, &d->cache_block, p->cache.used));
        HL_NEED(ops->alloc(d->device, &d->row_block, p->rows.used));
        p->cache = (hl_arena){ .base = d->cache_block };
        p->rows  = (hl_arena){ .base = d->row_block };
        return HL_OK;
    }
    HL_NEED(hl_device_checked(d, ops->memory(d->device, &memory), "memory"));
    if (weights != NULL)
        memory.free_bytes += p->weights.used; /* already allocated */
    if (p->weights.used + p->cache.used + p->rows.used > memory.free_bytes)
        return too_large(session, p, memory.free_bytes);
    if ((weights == NULL && ops->alloc(d->device, &d->weight_block, p->weights.used) != HL_OK) ||
        ops->alloc(d->device, &d->cache_block, p->cache.used) != HL_OK ||
        ops->alloc(d->device, &d->row_block, p->rows.used) != HL_OK)
        return too_large(session, p, memory.free_bytes);
    HL_NEED(hl_device_checked(d, ops->alloc_host(d->device, &d->host_block, p->host.used),
                              "host memory"));
    p->weights = (hl_arena){ .base = weights != NULL ? weights : d->weight_block };
    p->cache   = (hl_arena){ .base = d->cache_block };
    p->rows    = (hl_arena){ .base = d->row_block };
    p->host    = (hl_arena){ .base = d->host_block };
    return HL_OK;
}

/* ------------------------------------------------------ what stays on the host */

/* Plans a panel for every thread, as large as the largest of any weight. */
static hl_status plan_panels(hl_session *session)
{
    for (int64_t i = 0; i < session->n_params; i++) {
        const hl_matrix *matrix = &session->params[i].matrix;
        int64_t          count  = matrix->data != NULL ? hl_linear_scratch(matrix) : 0;

        if (count > session->pool.thread_floats)
            session->pool.thread_floats = count;
    }
    return HL_SESSION_ALLOC(session, &session->pool.scratch,
                            product(session->pool.n_threads, session->pool.thread_floats, 1));
}

/* Memory that is not written before it is needed. */
static hl_status alloc_room(hl_session *session, float **out, int64_t n)
{
    HL_FREED float *room = NULL;

    *out = NULL;
    HL_NEED(count_block(session, n, sizeof **out));
    if (session->counting)
        return HL_OK;
    HL_NEED(HL_ALLOC(&room, (size_t)n));
    HL_NEED(keep_block(session, room));
    *out = hl_taken(&room);
    return HL_OK;
}

/* What copies of weights may take, by the machine, not by what is free now: sessions of the same
 * options have the same memory. */
static int64_t copies_budget(void)
{
    long n_pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

    return n_pages > 0 && page > 0 ? product(n_pages, page, 1) / COPIES_SHARE : 0;
}

static hl_status plan_copy(hl_session *session, hl_matrix *matrix, int64_t *left)
{
    hl_math      math     = HL_MATH_F32;
    int64_t      n_strips = 0;
    int64_t      floats   = hl_repacked_floats(&n_strips, &math, matrix, session->options.math);
    hl_repacked *copy     = NULL;

    if (floats == 0 || product(floats, sizeof(float), 1) < 0 ||
        floats * (int64_t)sizeof(float) > *left)
        return HL_OK;
    *left -= floats * (int64_t)sizeof(float);
    HL_NEED(HL_SESSION_TABLE(session, &copy, 1));
    copy->math = math;
    HL_NEED(HL_SESSION_ALLOC(session, &copy->strips, n_strips));
    HL_NEED(alloc_room(session, &copy->room, floats));
    matrix->repacked = copy;
    return HL_OK;
}

static hl_status plan_copies_of(hl_session *session, hl_role role, int64_t layer, int64_t *left)
{
    if (hl_session_param_of(session, role, layer, 0) == NULL || hl_role_is_floats(role))
        return HL_OK;
    for (int64_t part = 0; part < hl_role_parts(role, session->config, layer); part++) {
        hl_session_param *param =
            (hl_session_param *)hl_session_param_of(session, role, layer, part);
        if (param->matrix.data != NULL)
            HL_NEED(plan_copy(session, &param->matrix, left));
    }
    return HL_OK;
}

/* Plans copies of weights as long as they fit: of the output head, which multiplies few rows at a
 * time, then of the layers. */
static hl_status plan_copies(hl_session *session)
{
    int64_t left = copies_budget();

    if (!session->options.repack || !hl_repack_is_allowed() || !session->device->ops->is_near)
        return HL_OK;
    HL_NEED(plan_copies_of(session, HL_ROLE_LM_HEAD, -1, &left));
    for (int64_t layer = 0; layer < session->config->n_layers; layer++)
        for (hl_role role = 0; role < HL_N_ROLES; role++)
            if (hl_role_is_of_layer(role))
                HL_NEED(plan_copies_of(session, role, layer, &left));
    return HL_OK;
}

/* Plans copies of the rows of x, rounded as options.math says, as wide as the widest input. */
static hl_status plan_low(hl_session *session)
{
    hl_linear_low *low    = &session->low;
    int64_t        widest = 0;

    low->math = session->options.math;
    if (low->math == HL_MATH_F32)
        return HL_OK;
    for (int64_t i = 0; i < session->n_params; i++) {
        const hl_matrix *matrix = &session->params[i].matrix;
        if (matrix->data != NULL && matrix->n_columns > widest)
            widest = matrix->n_columns;
    }
    low->n_values     = product(session->options.n_rows, (widest + 31) / 32 * 32, 1);
    session->pool.low = low;
    if (low->math == HL_MATH_BF16)
        return HL_SESSION_ALLOC(session, &low->bf16, low->n_values);
    HL_NEED(HL_SESSION_ALLOC(session, &low->q, low->n_values));
    HL_NEED(HL_SESSION_ALLOC(session, &low->scales, low->n_values / HL_INT8_BLOCK));
    HL_NEED(HL_SESSION_ALLOC(session, &low->sums, low->n_values / HL_INT8_BLOCK));
    return HL_SESSION_ALLOC(session, &low->run_sums, low->n_values / HL_INT8_RUN);
}

/* 2^(-exponent (h+1)/c), with c the largest power of two up to n_heads.  The heads beyond c get every other
 * slope of a model with 2c heads. */
static double alibi_slope(int64_t head, int64_t n_heads, double exponent)
{
    int64_t power = 1;

    while (power * 2 <= n_heads)
        power *= 2;
    if (head < power)
        return exp2(-exponent * (double)(head + 1) / (double)power);
    return exp2(-0.5 * exponent * (double)(2 * (head - power) + 1) / (double)power);
}

static float as_bf16(float value)
{
    return hl_bf16_to_f32(hl_f32_to_bf16(value));
}

/* Falcon adds ALiBi to q.k before it scales: score = (q.k + slope * key) / sqrt(d_head).  It rounds
 * slope, position and their product to bf16, for all types of weights; the division follows.
 * (transformers' eager attention adds the biases a second time, in the mask; its SDPA path and the
 * code that the models were trained with do not.) */
static hl_status plan_falcon_bias(hl_session *session)
{
    const hl_config *config = session->config;
    int64_t          n_ctx  = session->options.n_ctx;
    float            root   = (float)sqrt((double)config->d_head);
    hl_status        status =
        HL_SESSION_ALLOC(session, &session->key_bias, product(config->n_heads, n_ctx, 1));

    if (session->counting)
        return status;
    for (int64_t head = 0; head < config->n_heads && status == HL_OK; head++) {
        float slope = as_bf16((float)alibi_slope(head, config->n_heads, 8.0));
        for (int64_t key = 0; key < n_ctx; key++)
            session->key_bias[head * n_ctx + key] = as_bf16(slope * as_bf16((float)key)) / root;
    }
    return status;
}

static hl_status plan_alibi(hl_session *session)
{
    const hl_config *config = session->config;

    if (config->position == HL_POSITION_ALIBI_FALCON)
        return plan_falcon_bias(session);
    if (config->position != HL_POSITION_ALIBI)
        return HL_OK;
    hl_status status = HL_SESSION_TABLE(session, &session->alibi_slopes, config->n_heads);
    for (int64_t head = 0; head < config->n_heads && status == HL_OK; head++)
        session->alibi_slopes[head] = (float)alibi_slope(
            head, config->n_heads, config->alibi_max > 0.0 ? config->alibi_max : 8.0);
    return status;
}

/* Plans the table of kept rows of streams. */
static hl_status plan_ranges(hl_session *session)
{
    hl_kept_streams *kept  = &session->streams;
    int64_t          every = session->options.stream_every;

    kept->n_slots = every > 0 ? (session->config->n_layers - 1) / every : 0;
    return HL_SESSION_ALLOC(session, &kept->ranges,
                            product(kept->n_slots, session->options.n_batch, 1));
}

static hl_status plan_tokens(hl_session *session)
{
    hl_session_states *states  = &session->states;
    int64_t            n_batch = session->options.n_batch;

    if (!hl_config_has_mixer(session->config))
        return HL_OK;
    HL_NEED(HL_SESSION_TABLE(session, &states->layers, session->config->n_layers));
    HL_NEED(HL_SESSION_ALLOC(session, &states->at, n_batch));
    HL_NEED(HL_SESSION_ALLOC(session, &states->kept, n_batch));
    return HL_SESSION_ALLOC(session, &states->tokens, product(n_batch, session->options.n_ctx, 1));
}

static hl_status plan_host(hl_session *session)
{
    const hl_session_options *options = &session->options;
    hl_device_session        *d       = session->device;
    int64_t                   n_batch = options->n_batch;

    HL_NEED(HL_SESSION_ALLOC(session, &session->searched, session->config->n_layers + 1));
    HL_NEED(HL_SESSION_ALLOC(session, &session->places, product(4, n_batch, 1)));
    HL_NEED(HL_SESSION_ALLOC(session, &session->kept, n_batch));
    HL_NEED(HL_SESSION_ALLOC(session, &session->length, n_batch));
    HL_NEED(HL_SESSION_TABLE(session, &session->caches, count_caches(session->config)));
    HL_NEED(plan_ranges(session));
    HL_NEED(plan_tokens(session));
    HL_NEED(plan_panels(session));
    HL_NEED(plan_copies(session));
    HL_NEED(plan_low(session));
    HL_NEED(plan_alibi(session));
    HL_NEED(HL_SESSION_TABLE(session, &d->weights.layers, session->config->n_layers));
    HL_NEED(HL_SESSION_ALLOC(session, &d->parts, n_batch));
    HL_NEED(HL_SESSION_ALLOC(session, &d->inputs.last_of, n_batch));
    if ((options->wants & HL_WANT_PATTERN) != 0)
        HL_NEED(
            HL_SESSION_ALLOC(session, &d->pattern_rows, product(n_batch, options->n_patterns, 1)));
    if ((options->wants & HL_WANT_LAST_LOGITS) != 0)
        HL_NEED(HL_SESSION_ALLOC(session, &session->last,
                                 product(n_batch, session->config->d_vocab, 1)));
    if (d->ops->is_near)
        return HL_OK;
    HL_NEED(HL_SESSION_TABLE(session, &d->has_gram, session->config->n_layers));
    for (int i = 0; i < HL_DEVICE_STEPS; i++)
        HL_NEED(HL_SESSION_ALLOC(session, &d->steps[i].sequences, n_batch));
    if ((options->wants & HL_WANT_LAST_TOP) != 0)
        HL_NEED(HL_SESSION_ALLOC(session, &d->tops, n_batch));
    return HL_OK;
}

/* -------------------------------------------------------------- open and close */

/* `weights` are those that the model already has on this device, or NULL. */
static hl_status fill_session(hl_session *session, void *weights)
{
    hl_device_session *d = session->device;
    plan               p = { .is_near = d->ops->is_near };

    d->has_weights = weights != NULL;
    HL_NEED(plan_all(&p, session));
    session->cache_bytes = p.cache.used;
    session->n_bytes +=
        (d->has_weights ? 0 : p.weights.used) + p.cache.used + p.rows.used + p.host.used;
    if (session->counting)
        return HL_OK;
    HL_NEED(allocate(session, &p, weights));
    HL_NEED(plan_all(&p, session));
    if (d->ops->is_near)
        return HL_OK;
    HL_NEED(hl_device_checked(d, d->ops->wait(d->device), "weights"));
    if (d->has_weights)
        return HL_OK;
    HL_NEED(hl_device_copies_keep(session->model->copies, d->ops, d->dtype, d->weight_block));
    d->weight_block = NULL;
    return HL_OK;
}

static hl_status choose_math(hl_session *session, bool is_near)
{
    hl_math *math = &session->options.math;

    if (*math == HL_MATH_DEFAULT)
        HL_NEED(hl_math_selected(math));
    if (is_near)
        return hl_math_check(*math);
    if (*math != HL_MATH_F32)
        return hl_fail(HL_UNSUPPORTED, "math %s is a mode of the CPU; this model runs on a device",
                       hl_math_name(*math));
    return HL_OK;
}

hl_status hl_session_plan(hl_session *session)
{
    hl_device_choice   choice;
    hl_device_session *d = NULL;

    HL_NEED(count_block(session, 1, sizeof *session));
    HL_NEED(hl_device_choose(&choice, session->model, session->options.device));
    HL_NEED(choose_math(session, choice.ops->is_near));
    session->options.device = NULL; /* the name was borrowed */
    if (choice.ops->is_near &&
        (session->options.wants & (HL_WANT_LAST_TOP | HL_WANT_LAST_DRAW)) != 0)
        session->options.wants |= HL_WANT_LAST_LOGITS; /* draws read them */
    HL_NEED(hl_session_load_weights(session));
    HL_NEED(HL_SESSION_TABLE(session, &d, 1));
    session->device = d;
    d->ops          = choice.ops;
    d->dtype        = choice.dtype;
    d->size         = hl_dtype_bits(choice.dtype) / 8;
    d->cache_dtype  = choice.ops->is_near ? session->options.cache_dtype : choice.dtype;
    HL_NEED(plan_host(session));
    if (!session->counting)
        HL_NEED(hl_device_checked(d, d->ops->open(&d->device, &session->pool), "opening"));
    if (d->ops->is_near) {
        HL_NEED(hl_device_load_weights(session, NULL, true));
        return fill_session(session, NULL);
    }
    void     *weights = hl_device_copies_lock(session->model->copies, d->ops, d->dtype);
    hl_status status  = fill_session(session, weights);
    hl_device_copies_unlock(session->model->copies);
    return status;
}

void hl_session_release(hl_session *session)
{
    hl_device_session *d = session->device;

    if (d == NULL || d->device == NULL)
        return;
    (void)d->ops->wait(d->device);
    for (int i = 0; i < HL_DEVICE_STEPS; i++) {
        if (d->steps[i].graph != NULL)
            d->ops->graph_free(d->device, d->steps[i].graph);
    }
    d->ops->free(d->device, d->weight_block);
    d->ops->free(d->device, d->cache_block);
    d->ops->free(d->device, d->row_block);
    d->ops->free_host(d->device, d->host_block);
    d->ops->close(d->device);
    d->device = NULL;
}
