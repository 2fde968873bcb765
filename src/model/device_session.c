/* device_session.c - which device, and all that a session has there.
 *
 * Memory is planned twice by the same walk: once to count, so that a session that does not
 * fit is refused before anything is copied, with what would fit; then to hand it out. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "model/device.h"
#include "model/model.h"

enum { LOGIT_BYTES = 256 << 20, ALIGNMENT = 256 };

/* ------------------------------------------------------------------ choosing */

/* The names that may be given; host is for tests. */
static const struct named_device {
    const char *name;
    const char *device;
    hl_dtype    dtype;
} named[] = {
    { "cuda", "cuda", HL_DTYPE_BF16 },      { "cuda:bf16", "cuda", HL_DTYPE_BF16 },
    { "cuda:f16", "cuda", HL_DTYPE_F16 },   { "cuda:f32", "cuda", HL_DTYPE_F32 },
    { "host", "host", HL_DTYPE_F32 },       { "host:f32", "host", HL_DTYPE_F32 },
    { "host:bf16", "host", HL_DTYPE_BF16 }, { "host:f16", "host", HL_DTYPE_F16 },
};

static const char *_Atomic selected; /* of `named`, or "cpu"; NULL: not said */

static hl_status find_name(const struct named_device **out, const char *name)
{
    *out = NULL;
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        if (strcmp(named[i].name, name) == 0)
            *out = &named[i];
    }
    if (*out != NULL || strcmp(name, "cpu") == 0)
        return HL_OK;
    return hl_fail(HL_NOT_FOUND, "no device \"%s\"; there are: cpu cuda cuda:f16 cuda:f32", name);
}

hl_status hl_device_choose(hl_device_choice *out, const hl_session_options *options)
{
    const struct named_device *device = NULL;
    const char                *name   = options->device;

    *out = (hl_device_choice){ 0 };
    if (name == NULL)
        name = atomic_load(&selected);
    if (name == NULL)
        name = getenv("HEADLIGHT_DEVICE");
    if (name == NULL || name[0] == '\0')
        return HL_OK;
    HL_NEED(find_name(&device, name));
    if (device == NULL)
        return HL_OK;
    HL_NEED(hl_device_find(&out->ops, device->device));
    out->dtype = device->dtype;
    return HL_OK;
}

hl_status hl_device_select(const char *name)
{
    const struct named_device *device = NULL;
    const hl_device_ops       *ops    = NULL;

    if (name != NULL)
        HL_NEED(find_name(&device, name));
    if (device != NULL)
        HL_NEED(hl_device_find(&ops, device->device));
    atomic_store(&selected, name == NULL ? NULL : device != NULL ? device->name : "cpu");
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

/* -------------------------------------------------------------------- arenas */

void *hl_arena_take(hl_arena *arena, int64_t count, size_t size)
{
    size_t at = arena->used;

    arena->used += ((size_t)count * size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return arena->base != NULL ? arena->base + at : NULL;
}

/* Everything that is planned, by where it lies. */
typedef struct plan {
    hl_arena weights;
    hl_arena cache;
    hl_arena rows;
    hl_arena host;
} plan;

static void take_pair(plan *p, hl_device_pair *pair, int64_t count, size_t size)
{
    pair->device = hl_arena_take(&p->rows, count, size);
    pair->host   = hl_arena_take(&p->host, count, size);
}

/* ------------------------------------------------------------------- planning */

static void plan_cache(plan *p, hl_session *session)
{
    const hl_config *config   = session->config;
    int64_t          n_caches = config->is_encoder ? 1 : config->n_layers;

    for (int64_t i = 0; i < n_caches; i++) {
        int64_t n_kv_heads = config->is_encoder ? config->n_kv_heads : config->layers[i].n_kv_heads;
        int64_t count =
            session->options.n_batch * n_kv_heads * session->options.n_ctx * config->d_head;

        session->caches[i].k = hl_arena_take(&p->cache, count, session->device->size);
        session->caches[i].v = hl_arena_take(&p->cache, count, session->device->size);
    }
    /* With the cache: a byte a token that it can hold. */
    session->device->rows.segments =
        hl_arena_take(&p->cache, session->options.n_batch * session->options.n_ctx, 1);
}

static void plan_stream(plan *p, hl_session *session)
{
    const hl_config   *config = session->config;
    hl_device_session *d      = session->device;
    hl_device_rows    *rows   = &d->rows;
    int64_t            n      = session->options.n_rows;
    int64_t            heads  = config->n_heads + 2 * config->n_kv_heads;

    rows->x      = hl_arena_take(&p->rows, n * config->d_model, sizeof(float));
    rows->normed = hl_arena_take(&p->rows, n * config->d_model, d->size);
    rows->branch = hl_arena_take(&p->rows, n * config->d_model, d->size);
    rows->mlp    = hl_arena_take(&p->rows, n * config->d_model, d->size);
    rows->qkv    = hl_arena_take(&p->rows, n * heads * config->d_head, d->size);
    rows->z      = hl_arena_take(&p->rows, n * config->n_heads * config->d_head, d->size);
    rows->flag   = hl_arena_take(&p->rows, 2, sizeof *rows->flag);
    d->flag      = hl_arena_take(&p->host, 2, sizeof *d->flag);
    if (config->d_embed != config->d_model)
        rows->embedded = hl_arena_take(&p->rows, n * config->d_embed, d->size);
    for (hl_rope_choice choice = HL_ROPE_MAIN; choice < HL_N_ROPES; choice++) {
        int64_t n_pairs = config->ropes[choice].n_dims / 2;

        rows->cosine[choice] = hl_arena_take(&p->rows, n * n_pairs, sizeof(float));
        rows->sine[choice]   = hl_arena_take(&p->rows, n * n_pairs, sizeof(float));
    }
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* After the weights, which say how wide MLPs are. */
static void plan_mlp(plan *p, hl_session *session)
{
    hl_device_session *d      = session->device;
    const hl_config   *config = session->config;
    int64_t            n      = session->options.n_rows;
    int64_t            up     = 0;
    int64_t            active = 0;
    size_t             work   = 0;

    for (int64_t layer = 0; layer < config->n_layers; layer++) {
        const hl_device_layer *w = &d->weights.layers[layer];

        up     = most(up, most(w->up.n_out, w->shared_up.n_out));
        active = most(active, most(w->down.n_in, w->shared_down.n_in));
        if (config->layers[layer].n_experts > 0) {
            hl_device_experts experts = hl_device_experts_of(session, layer, n);
            size_t            bytes   = d->ops->experts_bytes(d->device, &experts);
            work                      = bytes > work ? bytes : work;
        }
    }
    d->rows.up     = hl_arena_take(&p->rows, n * up, d->size);
    d->rows.active = hl_arena_take(&p->rows, n * active, d->size);
    if (config->n_experts == 0)
        return;
    d->rows.work   = hl_arena_take(&p->rows, (int64_t)work, 1);
    d->rows.router = hl_arena_take(&p->rows, n * (config->n_experts + 1), sizeof(float));
    if (config->d_shared > 0)
        d->rows.shared = hl_arena_take(&p->rows, n * config->d_model, d->size);
}

/* How many rows of logits are made at a time: a few hundred megabytes of them, and every
 * sequence's last. */
static int64_t choose_logit_rows(const hl_session *session)
{
    int64_t fit  = LOGIT_BYTES / 4 / session->config->d_vocab;
    int64_t rows = session->options.n_rows < fit ? session->options.n_rows : fit;

    return most(most(rows, HL_LOGIT_ROWS), session->options.n_batch);
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
    d->rows.plain = hl_arena_take(&p->rows, n * config->d_model, sizeof(float));
    d->ends.host =
        hl_arena_take(&p->host, n * (HL_SAID_FLOATS + config->d_model + wide), sizeof(float));
    d->ends.device = hl_arena_take(&p->rows, n * HL_SAID_FLOATS, sizeof(float));
    if (!speaks)
        return;
    d->rows.last   = hl_arena_take(&p->rows, n * config->d_model, sizeof(float));
    d->rows.hidden = hl_arena_take(&p->rows, n * widest, d->size);
    d->rows.narrow = hl_arena_take(&p->rows, n * widest, d->size);
    d->rows.logits = hl_arena_take(&p->rows, n * config->d_vocab, sizeof(float));
    if ((session->options.wants & HL_WANT_DIVERGENCE) != 0) {
        int64_t kept   = session->options.n_batch * session->options.n_kept;
        d->kept.logits = hl_arena_take(&p->rows, kept * config->d_vocab, sizeof(float));
        d->kept.lse    = hl_arena_take(&p->rows, kept, sizeof(double));
    }
}

static int64_t kept_width(const hl_config *config, int kind)
{
    if (kind >= HL_KEPT_PRE)
        return config->d_model;
    return config->d_head *
           (kind == HL_KEPT_K || kind == HL_KEPT_V ? config->n_kv_heads : config->n_heads);
}

/* With sampled positions the stream after a block is among what is told. */
static bool may_keep(const hl_session *session, int kind)
{
    return (session->options.wants & 1U << kind) != 0 ||
           (kind == HL_KEPT_POST && session->options.n_sampled > 0);
}

static void plan_lane(plan *p, hl_session *session, hl_device_lane *lane)
{
    const hl_session_options *options  = &session->options;
    int64_t                   heads    = options->n_batch * session->config->n_heads;
    int64_t                   rows     = options->n_rows;
    int64_t                   max_runs = session->device->max_runs;
    int64_t kept = options->n_sampled > 0 ? options->n_batch * options->n_sampled : rows;

    lane->layer = -1;
    take_pair(p, &lane->statistics,
              (int64_t)hl_device_statistics_bytes(rows * session->config->n_heads, HL_MAX_SEGMENTS),
              1);
    for (int kind = 0; kind < HL_N_KEPT; kind++) {
        if (may_keep(session, kind))
            take_pair(p, &lane->kept[kind], kept * kept_width(session->config, kind),
                      sizeof(float));
    }
    if ((options->wants & HL_WANT_PATTERN) != 0) {
        int64_t count = heads * options->n_patterns;

        take_pair(p, &lane->pattern, count * options->n_ctx, sizeof(float));
        take_pair(p, &lane->exact, count, sizeof(hl_pattern_row));
        take_pair(p, &lane->items, 3 * count, sizeof(int64_t));
    }
    take_pair(p, &lane->sums, (int64_t)hl_device_sums_bytes(session, max_runs), 1);
    take_pair(p, &lane->plan.runs, max_runs, sizeof(hl_run));
    take_pair(p, &lane->plan.numbers, max_runs > 0 ? 3 * rows : 0, sizeof(double));
    take_pair(p, &lane->likeness, (int64_t)hl_device_likeness_bytes(session), 1);
    if (hl_device_likeness_bytes(session) > 0) {
        lane->kernels = hl_arena_take(
            &p->rows, heads * (options->n_sampled * options->n_sampled + options->n_sampled + 1),
            sizeof *lane->kernels);
        take_pair(p, &lane->places, options->n_batch * options->n_patterns,
                  sizeof(hl_pattern_place));
    }
    if ((options->wants & HL_WANT_LENS) != 0)
        take_pair(p, &lane->lens, rows, sizeof(int64_t) + 2 * sizeof(float));
}

/* What all layers' comparisons of heads read, and what one layer leaves to the next. */
static void plan_likeness(plan *p, hl_session *session)
{
    const hl_config          *config  = session->config;
    const hl_session_options *options = &session->options;
    hl_device_session        *d       = session->device;

    if (hl_device_likeness_bytes(session) == 0)
        return;
    d->gram     = hl_arena_take(&p->rows,
                                config->n_layers * config->n_heads * config->d_head * config->d_head,
                                sizeof *d->gram);
    d->followed = hl_arena_take(&p->rows, options->n_batch * options->n_sampled * config->d_model,
                                sizeof *d->followed);
}

static void plan_kept_streams(plan *p, hl_session *session)
{
    int64_t n_rows = session->streams.n_slots * session->options.n_batch * session->options.n_ctx;

    session->streams.x = hl_arena_take(&p->rows, n_rows * session->config->d_model, sizeof(float));
}

static hl_status plan_all(plan *p, hl_session *session)
{
    hl_device_session *d    = session->device;
    int64_t            rows = session->options.n_rows;

    d->logit_rows = choose_logit_rows(session);
    d->step_rows  = rows < HL_STEP_ROWS ? rows : HL_STEP_ROWS;
    HL_NEED(hl_device_load_weights(session, &p->weights, d->has_weights));
    HL_NEED(hl_device_load_biases(session, &p->rows));
    plan_cache(p, session);
    plan_stream(p, session);
    plan_mlp(p, session);
    plan_ends(p, session);
    plan_kept_streams(p, session);
    hl_device_plan_picks(session, &p->rows, &p->host);
    d->max_runs = session->options.n_sampled > 0 ? rows / 16 + 8 * session->options.n_batch : 0;
    plan_likeness(p, session);
    for (int i = 0; i < HL_DEVICE_LANES; i++)
        plan_lane(p, session, &d->lanes[i]);
    take_pair(p, &d->inputs.block, (int64_t)hl_device_inputs_bytes(session), 1);
    take_pair(p, &d->all_statistics,
              session->config->n_layers *
                  (int64_t)(hl_device_statistics_bytes(d->step_rows * session->config->n_heads,
                                                       HL_MAX_SEGMENTS) +
                            16),
              1);
    return HL_OK;
}

/* ------------------------------------------------------------------- memory */

static double gib(size_t n_bytes)
{
    return (double)n_bytes / (double)((size_t)1 << 30);
}

/* What would fit is said in what a caller can change. */
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

    HL_NEED(hl_device_checked(d, ops->memory(d->device, &memory), "memory"));
    if (weights != NULL)
        memory.free_bytes += p->weights.used; /* they have been counted off already */
    if (p->weights.used + p->cache.used + p->rows.used > memory.free_bytes)
        return too_large(session, p, memory.free_bytes);
    if ((weights == NULL && ops->alloc(d->device, &d->weight_block, p->weights.used) != HL_OK) ||
        ops->alloc(d->device, &d->cache_block, p->cache.used) != HL_OK ||
        ops->alloc(d->device, &d->row_block, p->rows.used) != HL_OK)
        return too_large(session, p, memory.free_bytes);
    HL_NEED(hl_device_checked(d, ops->alloc_host(d->device, &d->host_block, p->host.used),
                              "host memory"));
    p->weights = (hl_arena){ weights != NULL ? weights : d->weight_block, 0 };
    p->cache   = (hl_arena){ d->cache_block, 0 };
    p->rows    = (hl_arena){ d->row_block, 0 };
    p->host    = (hl_arena){ d->host_block, 0 };
    return HL_OK;
}

/* ------------------------------------------------------------ what stays here */

static hl_status plan_host(hl_session *session)
{
    const hl_session_options *options = &session->options;
    hl_device_session        *d       = session->device;

    HL_NEED(HL_SESSION_TABLE(session, &d->weights.layers, session->config->n_layers));
    HL_NEED(HL_SESSION_TABLE(session, &d->has_gram, session->config->n_layers));
    for (int i = 0; i < HL_DEVICE_STEPS; i++)
        HL_NEED(HL_SESSION_ALLOC(session, &d->steps[i].sequences, options->n_batch));
    if ((options->wants & HL_WANT_PATTERN) != 0)
        HL_NEED(HL_SESSION_ALLOC(session, &session->rows.pattern_rows,
                                 options->n_batch * options->n_patterns));
    if ((options->wants & HL_WANT_LAST_LOGITS) != 0)
        HL_NEED(HL_SESSION_ALLOC(session, &session->rows.last,
                                 options->n_batch * session->config->d_vocab));
    if ((options->wants & HL_WANT_LAST_TOP) != 0)
        HL_NEED(HL_SESSION_ALLOC(session, &d->tops, options->n_batch));
    return HL_OK;
}

/* -------------------------------------------------------------- open and close */

/* With the model's copies locked; `weights` are those that it has, or NULL. */
static hl_status fill_session(hl_session *session, void *weights)
{
    hl_device_session *d = session->device;
    plan               p = { 0 };

    d->has_weights = weights != NULL;
    HL_NEED(plan_all(&p, session));
    session->cache_bytes = p.cache.used;
    session->n_bytes +=
        (d->has_weights ? 0 : p.weights.used) + p.cache.used + p.rows.used + p.host.used;
    if (session->counting)
        return HL_OK;
    HL_NEED(allocate(session, &p, weights));
    HL_NEED(plan_all(&p, session));
    HL_NEED(hl_device_checked(d, d->ops->wait(d->device), "weights"));
    if (d->has_weights)
        return HL_OK;
    HL_NEED(hl_device_copies_keep(session->model->copies, d->ops, d->dtype, d->weight_block));
    d->weight_block = NULL;
    return HL_OK;
}

hl_status hl_device_session_open(hl_session *session, const hl_device_choice *choice)
{
    hl_status          status = HL_OK;
    hl_device_session *d      = NULL;
    hl_device_copies  *copies = session->model->copies;

    HL_NEED(HL_SESSION_TABLE(session, &d, 1));
    session->device = d;
    d->ops          = choice->ops;
    d->dtype        = choice->dtype;
    d->size         = hl_dtype_bits(choice->dtype) / 8;
    HL_NEED(plan_host(session));
    if (!session->counting)
        HL_NEED(hl_device_checked(d, d->ops->open(&d->device, session->pool.n_threads), "opening"));
    void *weights = hl_device_copies_lock(copies, d->ops, d->dtype);
    status        = fill_session(session, weights);
    hl_device_copies_unlock(copies);
    return status;
}

void hl_device_session_close(hl_session *session)
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
