/* forward_ends.c - from tokens to the residual stream, from the stream to logits, and draws from
 * them.
 *
 *     x      = norm(scale * embed[token] W_in + position[p] + type[t])
 *     hidden = norm(x)
 *     logits = softcap(scale * (head(hidden W_out) + b))
 *
 * Most models lack most of these parts.  An encoder's head is W norm(act(dense x)).  Logits are
 * computed for d->logit_rows rows at a time: those of a whole chunk would be larger than the
 * model. */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "model/forward.h"
#include "model/pick.h"
#include "model/sample.h"

/* ----------------------------------------------------------------- embedding */

static hl_status embed(const hl_device_session *d, const hl_device_embed *embed)
{
    return hl_device_checked(d, d->ops->embed(d->device, embed), "embedding");
}

/* rows.ple = (norm(W x) + table[token] sqrt(d_ple)) / sqrt(2), for each layer its part.  The norm is
 * of W x / sqrt(d_model), which its epsilon makes good. */
static hl_status embed_inputs(hl_session *session)
{
    hl_device_session       *d      = session->device;
    const hl_config         *config = session->config;
    const hl_device_weights *w      = &d->weights;
    const hl_device_places  *places = &d->inputs.places;
    int64_t                  n_rows = places->n_batch * places->batch_rows;
    int64_t                  n      = config->n_layers * config->d_ple;
    int64_t                  parts  = n_rows * config->n_layers;
    hl_device_embed          table  = { .out       = d->rows.ple,
                                        .out_dtype = d->dtype,
                                        .table     = w->ple_embed.weight,
                                        .tokens    = d->inputs.tokens,
                                        .n_known   = config->d_ple_known,
                                        .scale     = (float)sqrt((double)config->d_ple / 2.0),
                                        .types     = d->inputs.types,
                                        .dtype     = d->dtype,
                                        .n         = n,
                                        .places    = *places };
    hl_device_norm           plain  = { .out       = d->rows.normed,
                                        .out_dtype = d->dtype,
                                        .x         = d->rows.x,
                                        .dtype     = d->dtype,
                                        .is_plain  = true,
                                        .n_rows    = n_rows,
                                        .n         = config->d_model,
                                        .places    = *places };
    hl_device_norm           norm   = { .out       = d->rows.ple_gate,
                                        .out_dtype = d->dtype,
                                        .x         = d->rows.ple_gate,
                                        .x_dtype   = d->dtype,
                                        .dtype     = d->dtype,
                                        .norm      = hl_device_norm_of(session, &w->ple_in_norm),
                                        .n_rows    = parts,
                                        .n         = config->d_ple,
                                        .places = { .n_batch = 1, .batch_rows = parts, .lengths = &parts } };

    norm.norm.eps = (float)(config->norm_eps * (double)config->d_model);
    HL_NEED(embed(d, &table));
    HL_NEED(hl_device_checked(d, d->ops->norm(d->device, &plain), "norm"));
    HL_NEED(hl_device_multiply(session, d->rows.ple_gate, d->dtype, d->rows.normed, &w->ple_in,
                               places));
    HL_NEED(hl_device_checked(d, d->ops->norm(d->device, &norm), "norm"));
    return hl_device_checked(
        d,
        d->ops->add_gated(d->device, &(hl_device_add_gated){ .out    = d->rows.ple,
                                                             .x      = d->rows.ple_gate,
                                                             .dtype  = d->dtype,
                                                             .n_rows = n_rows,
                                                             .n      = n,
                                                             .places = *places }),
        "sum");
}

hl_status hl_forward_embed(hl_session *session, const hl_chunk *chunk)
{
    hl_device_session       *d     = session->device;
    const hl_device_weights *w     = &d->weights;
    hl_device_embed          whole = { .out            = d->rows.x,
                                       .out_dtype      = HL_DTYPE_F32,
                                       .table          = w->embed.weight,
                                       .tokens         = d->inputs.tokens,
                                       .scale          = (float)session->config->embed_scale,
                                       .position_table = w->position.weight,
                                       .type_table     = w->token_type.weight,
                                       .types          = d->inputs.types,
                                       .dtype          = d->dtype,
                                       .n              = session->config->d_model,
                                       .places         = d->inputs.places };
    (void)chunk;

    if (w->embed_in.weight != NULL) {
        hl_device_embed narrow = whole;

        narrow.out            = d->rows.embedded;
        narrow.out_dtype      = d->dtype;
        narrow.position_table = NULL;
        narrow.type_table     = NULL;
        narrow.n              = session->config->d_embed;
        HL_NEED(embed(d, &narrow));
        HL_NEED(hl_device_multiply(session, d->rows.normed, d->dtype, d->rows.embedded,
                                   &w->embed_in, &d->inputs.places));
        whole.base = d->rows.normed;
    }
    HL_NEED(embed(d, &whole));
    if (hl_session_param_of(session, HL_ROLE_EMBED_NORM, -1, 0) != NULL)
        HL_NEED(hl_device_norm_rows(session, d->rows.x, d->rows.x, HL_DTYPE_F32, &w->embed_norm,
                                    &d->inputs.places));
    if (session->config->d_ple > 0)
        HL_NEED(embed_inputs(session));
    return hl_forward_spread(session);
}

/* ---------------------------------------------------------------------- head */

/* Rows of one sequence, or one row of each of several sequences.  A near device multiplies a row of
 * many differently from a single row. */
typedef struct end_rows {
    int64_t n_batch;
    int64_t n_rows; /* rows per sequence; in total at most d->logit_rows */
    int64_t counts[HL_LOGIT_ROWS];
} end_rows;

static int64_t count_ends(const end_rows *ends)
{
    return ends->n_batch * ends->n_rows;
}

static hl_device_places places_of(end_rows *ends)
{
    for (int64_t i = 0; i < ends->n_batch && i < HL_LOGIT_ROWS; i++)
        ends->counts[i] = ends->n_rows;
    return (hl_device_places){ .n_batch    = ends->n_batch,
                               .batch_rows = ends->n_rows,
                               .lengths    = ends->counts };
}

/* Computes out (n_rows, D) of out_dtype from rows of the residual stream. */
static hl_status finish_hidden(const hl_session *session, void *out, hl_dtype out_dtype,
                               const float *x, int64_t n_rows)
{
    const hl_device_session *d = session->device;

    return hl_device_checked(
        d,
        d->ops->norm(d->device,
                     &(hl_device_norm){
                         .out       = out,
                         .out_dtype = out_dtype,
                         .x         = (float *)x, /* nothing is added */
                         .dtype     = d->dtype,
                         .is_plain  = session->config->no_final_norm,
                         .norm      = hl_device_norm_of(session, &d->weights.final_norm),
                         .n_rows    = n_rows,
                         .n         = session->config->d_model,
                         .places    = { .n_batch = 1, .batch_rows = n_rows, .lengths = &n_rows } }),
        "norm");
}

/* Computes rows.narrow from rows.hidden, with an encoder's head. */
static hl_status run_head(const hl_session *session, const hl_device_places *places)
{
    const hl_device_session *d      = session->device;
    const hl_config         *config = session->config;
    void                    *x      = d->rows.narrow;

    HL_NEED(
        hl_device_multiply(session, x, d->dtype, d->rows.hidden, &d->weights.head_dense, places));
    HL_NEED(hl_device_checked(
        d,
        d->ops->activate(d->device,
                         &(hl_device_activate){ .out        = x,
                                                .gate       = x,
                                                .x_stride   = config->d_model,
                                                .dtype      = d->dtype,
                                                .activation = config->activation,
                                                .n_rows     = places->n_batch * places->batch_rows,
                                                .n          = config->d_model,
                                                .places     = *places }),
        "activation"));
    if (hl_session_param_of(session, HL_ROLE_HEAD_NORM, -1, 0) != NULL)
        HL_NEED(hl_device_norm_rows(session, x, x, d->dtype, &d->weights.head_norm, places));
    return HL_OK;
}

/* Computes rows.logits from rows.hidden. */
static hl_status make_logits(const hl_session *session, end_rows *ends)
{
    const hl_device_session *d      = session->device;
    const hl_device_weights *w      = &d->weights;
    const hl_config         *config = session->config;
    const void              *x      = d->rows.hidden;
    hl_device_places         places = places_of(ends);

    if (w->head_dense.weight != NULL) {
        HL_NEED(run_head(session, &places));
        x = d->rows.narrow;
    }
    if (w->embed_out.weight != NULL) {
        HL_NEED(hl_device_multiply(session, d->rows.narrow, d->dtype, x, &w->embed_out, &places));
        x = d->rows.narrow;
    }
    HL_NEED(hl_device_multiply(session, d->rows.logits, HL_DTYPE_F32, x, &w->lm_head, &places));
    if (config->logit_scale != 1.0 || config->logit_softcap > 0.0)
        HL_NEED(hl_device_checked(
            d,
            d->ops->cap(d->device, &(hl_device_cap){ .x       = d->rows.logits,
                                                     .count   = count_ends(ends) * config->d_vocab,
                                                     .scale   = (float)config->logit_scale,
                                                     .softcap = (float)config->logit_softcap }),
            "logits"));
    return HL_OK;
}

/* ---------------------------------------------------------------------- lens */

/* Computes the statistics of n_rows of rows.logits for which `wanted` has pointers. */
static hl_status read_logits(const hl_session *session, hl_device_logits wanted, int64_t n_rows)
{
    const hl_device_session *d = session->device;

    wanted.logits = d->rows.logits;
    wanted.n_rows = n_rows;
    wanted.n      = session->config->d_vocab;
    return hl_device_checked(d, d->ops->logits(d->device, &wanted), "logits");
}

/* Computes the lens of rows [first, end) of the chunk. */
static hl_status read_lens(const hl_session *session, const hl_chunk *chunk,
                           const hl_device_lane *lane, int64_t first, int64_t end)
{
    const hl_device_session *d      = session->device;
    int64_t                  n_all  = hl_chunk_rows(chunk);
    int64_t                 *top    = lane->lens.device;
    float                   *others = (float *)(void *)(top + n_all); /* entropies, then gaps */

    for (int64_t row = first; row < end; row += d->logit_rows) {
        int64_t  n    = end - row < d->logit_rows ? end - row : d->logit_rows;
        end_rows ends = { .n_batch = 1, .n_rows = n };

        HL_NEED(finish_hidden(session, d->rows.hidden, d->dtype,
                              d->rows.ended + row * session->config->d_model, n));
        HL_NEED(make_logits(session, &ends));
        HL_NEED(read_logits(session,
                            (hl_device_logits){ .top     = top + row,
                                                .entropy = others + row,
                                                .gap     = others + n_all + row },
                            n));
    }
    return HL_OK;
}

/* Processes all rows at once or, on a near device, each sequence without its padding. */
hl_status hl_forward_lens(hl_session *session, const hl_chunk *chunk, hl_device_lane *lane)
{
    HL_NEED(hl_forward_merge(session));
    if (!session->device->ops->is_near)
        return read_lens(session, chunk, lane, 0, hl_chunk_rows(chunk));
    for (int64_t b = 0; b < chunk->n_batch; b++)
        HL_NEED(read_lens(session, chunk, lane, b * chunk->n_rows,
                          b * chunk->n_rows + chunk->lengths[b]));
    return HL_OK;
}

/* --------------------------------------------------------------------- final */

/* The wants of a tap that need logits. */
enum { SPEAKS = HL_WANT_LOGITS | HL_WANT_LENS | HL_WANT_LOSSES | HL_WANT_DIVERGENCE };

/* If no layer produced the non-finite logits, the final norm or the head did. */
static hl_status blame_head(hl_session *session)
{
    if (session->searched[0])
        return HL_OK;
    session->searched[0] = true;
    return hl_session_find_nan(session, -1);
}

/* The parts of the pair `ends`: statistics of n rows, which are all that the device's half has;
 * hidden rows; logits.  On a near device, the latter two stay where they were computed. */
typedef struct end_parts {
    int64_t *top;
    double  *losses;
    double  *divergence;
    float   *entropy;
    float   *gap;
    float   *hidden;
    float   *logits;
} end_parts;

static end_parts parts_of(const hl_session *session, void *block, int64_t n)
{
    int64_t   most  = session->device->logit_rows;
    end_parts parts = { .top = block };

    parts.losses     = (double *)(void *)(parts.top + n);
    parts.divergence = parts.losses + n;
    parts.entropy    = (float *)(void *)(parts.divergence + n);
    parts.gap        = parts.entropy + n;
    parts.hidden     = (float *)block + most * HL_SAID_FLOATS;
    parts.logits     = parts.hidden + most * session->config->d_model;
    if (session->device->ops->is_near) {
        parts.hidden = session->device->rows.plain;
        parts.logits = session->device->rows.logits;
    }
    return parts;
}

static hl_status fetch(const hl_device_session *d, void *to, const void *from, size_t n_bytes)
{
    if (n_bytes == 0)
        return HL_OK;
    return hl_device_checked(d, d->ops->copy_out(d->device, 0, to, from, n_bytes), "copies");
}

/* The kept rows of a sequence, from `first` on, which are written or compared with. */
static hl_device_kept kept_rows(const hl_session *session, const hl_chunk *chunk, int64_t sequence,
                                int64_t first)
{
    const hl_session *keeper = hl_chunk_keeper(session, chunk);
    hl_device_kept    kept   = keeper->device->kept;
    int64_t           place  = hl_chunk_kept_row(keeper, chunk, sequence, first);

    kept.logits += place * session->config->d_vocab;
    if (kept.p != NULL)
        kept.p += place * session->config->d_vocab;
    kept.lse += place;
    kept.puts = chunk->feed->keeps_logits;
    return kept;
}

/* Collects lens, losses and divergence of n rows of a sequence, from `first` on, whose logits are
 * ready, and checks that these are finite. */
static hl_status fetch_said(const hl_session *session, const hl_chunk *chunk, int64_t sequence,
                            int64_t first, int64_t n)
{
    const hl_device_session *d      = session->device;
    end_parts                there  = parts_of(session, d->ends.device, n);
    uint32_t                 wants  = hl_chunk_wants(chunk);
    hl_device_logits         wanted = { .top = there.top, .flag = d->rows.flag + 1 };

    if ((wants & HL_WANT_LENS) != 0) {
        wanted.entropy = there.entropy;
        wanted.gap     = there.gap;
    }
    if ((wants & HL_WANT_LOSSES) != 0) {
        wanted.targets = d->inputs.targets + sequence * chunk->n_rows + first;
        wanted.losses  = there.losses;
    }
    if ((wants & HL_WANT_DIVERGENCE) != 0) {
        wanted.kept       = kept_rows(session, chunk, sequence, first);
        wanted.divergence = there.divergence;
    }
    HL_NEED(read_logits(session, wanted, n));
    HL_NEED(fetch(d, d->ends.host, d->ends.device, (size_t)(n * HL_SAID_FLOATS) * sizeof(float)));
    return fetch(d, d->flag + 1, d->rows.flag + 1, sizeof *d->flag);
}

/* Collects what the tap wants of rows [first, first + n) of a sequence, in the host's `ends`. */
static hl_status fetch_ends(hl_session *session, const hl_chunk *chunk, int64_t sequence,
                            int64_t first, int64_t n)
{
    hl_device_session *d     = session->device;
    uint32_t           wants = hl_chunk_wants(chunk);
    int64_t            row   = sequence * chunk->n_rows + first;
    const float       *x     = d->rows.ended + row * session->config->d_model;
    end_parts          host  = parts_of(session, d->ends.host, n);

    if ((wants & HL_WANT_HIDDEN) != 0) {
        HL_NEED(finish_hidden(session, d->rows.plain, HL_DTYPE_F32, x, n));
        HL_NEED(fetch(d, host.hidden, d->rows.plain,
                      (size_t)(n * session->config->d_model) * sizeof(float)));
    }
    if ((wants & SPEAKS) != 0) {
        end_rows ends = { .n_batch = 1, .n_rows = n };

        HL_NEED(finish_hidden(session, d->rows.hidden, d->dtype, x, n));
        HL_NEED(make_logits(session, &ends));
        HL_NEED(fetch_said(session, chunk, sequence, first, n));
    }
    if ((wants & HL_WANT_LOGITS) != 0)
        HL_NEED(fetch(d, host.logits, d->rows.logits,
                      (size_t)(n * session->config->d_vocab) * sizeof(float)));
    return hl_device_checked(d, d->ops->arrived(d->device, 0), "copies");
}

/* Reports `n` fetched rows to the tap, as many at a time as on the CPU. */
static hl_status tell_ends(const hl_session *session, const hl_tap *tap, hl_final_rows whole,
                           int64_t n)
{
    hl_status status = HL_OK;
    end_parts host   = parts_of(session, session->device->ends.host, n);

    for (int64_t row = 0; row < n && status == HL_OK; row += HL_LOGIT_ROWS) {
        hl_final_rows rows = whole;

        rows.start += row;
        rows.n_rows = n - row < HL_LOGIT_ROWS ? n - row : HL_LOGIT_ROWS;
        if ((tap->wants & HL_WANT_HIDDEN) != 0)
            rows.hidden = host.hidden + row * rows.d_model;
        if ((tap->wants & HL_WANT_LOGITS) != 0)
            rows.logits = host.logits + row * rows.d_vocab;
        if ((tap->wants & HL_WANT_LENS) != 0) {
            rows.lens_top     = host.top + row;
            rows.lens_entropy = host.entropy + row;
            rows.lens_gap     = host.gap + row;
        }
        if ((tap->wants & HL_WANT_LOSSES) != 0) {
            rows.losses = host.losses + row;
            rows.tops   = host.top + row;
        }
        if ((tap->wants & HL_WANT_DIVERGENCE) != 0)
            rows.divergence = host.divergence + row;
        status = tap->final(tap->context, &rows);
    }
    return status;
}

static hl_status deliver(hl_session *session, const hl_chunk *chunk, int64_t sequence,
                         int64_t first, int64_t n)
{
    const hl_tap *tap  = chunk->feed->tap;
    hl_final_rows rows = { .sequence = chunk->sequences[sequence],
                           .start    = chunk->start[sequence] + first,
                           .d_model  = session->config->d_model,
                           .d_vocab  = session->config->d_vocab };

    HL_NEED(fetch_ends(session, chunk, sequence, first, n));
    if ((tap->wants & SPEAKS) != 0 && session->device->flag[1] != 0)
        HL_NEED(blame_head(session));
    return tell_ends(session, tap, rows, n);
}

hl_status hl_forward_final(hl_session *session, const hl_chunk *chunk)
{
    int64_t  step    = session->device->logit_rows;
    uint32_t wants   = hl_chunk_wants(chunk);
    bool     watched = chunk->feed->tap != NULL && chunk->feed->tap->final != NULL &&
                   (wants & (HL_WANT_HIDDEN | SPEAKS)) != 0;

    if (session->device->ops->is_near)
        session->device->flag[1] = 0;
    for (int64_t sequence = 0; sequence < chunk->n_batch && watched; sequence++) {
        int64_t length = chunk->lengths[sequence];

        for (int64_t row = 0; row < length; row += step)
            HL_NEED(
                deliver(session, chunk, sequence, row, length - row < step ? length - row : step));
    }
    return HL_OK;
}

/* ---------------------------------------------------------------------- last */

static bool wants_last(const hl_session *session)
{
    uint32_t last = HL_WANT_LAST_LOGITS | HL_WANT_LAST_TOP | HL_WANT_LAST_DRAW;

    return (session->options.wants & last) != 0;
}

/* Keeps the last logits of the fed sequences, for draws. */
static hl_status keep_last(const hl_session *session)
{
    const hl_device_session *d = session->device;
    int64_t                  n = session->config->d_vocab;

    if (d->inputs.kept == NULL)
        return HL_OK;
    return hl_device_checked(
        d,
        d->ops->copy_rows(d->device, &(hl_device_copy_rows){ .out        = d->picks.logits,
                                                             .out_dtype  = HL_DTYPE_F32,
                                                             .out_stride = n,
                                                             .x          = d->rows.logits,
                                                             .x_dtype    = HL_DTYPE_F32,
                                                             .x_stride   = n,
                                                             .index      = d->inputs.kept,
                                                             .n_rows     = session->options.n_batch,
                                                             .n          = n }),
        "last logits");
}

/* Computes the logits of n last rows, from `first` on. */
static hl_status make_some_last(const hl_session *session, int64_t first, int64_t n)
{
    const hl_device_session *d       = session->device;
    int64_t                  d_model = session->config->d_model;
    end_rows                 ends    = { .n_batch = n, .n_rows = 1 };

    HL_NEED(hl_device_checked(
        d,
        d->ops->copy_rows(d->device, &(hl_device_copy_rows){ .out        = d->rows.last,
                                                             .out_dtype  = HL_DTYPE_F32,
                                                             .out_stride = d_model,
                                                             .x          = d->rows.ended,
                                                             .x_dtype    = HL_DTYPE_F32,
                                                             .x_stride   = d_model,
                                                             .index      = d->inputs.last + first,
                                                             .n_rows     = n,
                                                             .n          = d_model }),
        "last rows"));
    HL_NEED(finish_hidden(session, d->rows.hidden, d->dtype, d->rows.last, n));
    HL_NEED(make_logits(session, &ends));
    return read_logits(session,
                       (hl_device_logits){ .top  = d->tops != NULL ? d->ends.device : NULL,
                                           .flag = d->rows.flag + 1 },
                       n);
}

static hl_status receive_some_last(hl_session *session, const hl_chunk *chunk, int64_t first,
                                   int64_t n)
{
    hl_device_session *d       = session->device;
    int64_t            d_vocab = session->config->d_vocab;
    end_parts          host    = parts_of(session, d->ends.host, n);

    if (d->flag[1] != 0)
        HL_NEED(blame_head(session));
    for (int64_t i = 0; i < n; i++) {
        int64_t fed = d->inputs.last_of[first + i];

        if (!hl_chunk_has_last(chunk, fed))
            continue;
        if (d->tops != NULL)
            d->tops[chunk->sequences[fed]] = host.top[i];
        if ((session->options.wants & HL_WANT_LAST_LOGITS) != 0)
            memcpy(session->last + chunk->sequences[fed] * d_vocab, host.logits + i * d_vocab,
                   (size_t)d_vocab * sizeof *host.logits);
    }
    return HL_OK;
}

/* Processes as many sequences at a time as fit, because the head is read once for them.  Only a
 * near device, which needs no copies, can have more sequences than fit. */
hl_status hl_forward_make_last(hl_session *session, const hl_chunk *chunk)
{
    hl_device_session *d = session->device;

    if (!wants_last(session) || d->inputs.n_last == 0)
        return HL_OK;
    HL_NEED(hl_device_settle(session));
    if (!d->ops->is_near) {
        HL_NEED(make_some_last(session, 0, d->inputs.n_last));
        return keep_last(session);
    }
    d->flag[1] = 0;
    for (int64_t first = 0; first < d->inputs.n_last; first += d->logit_rows) {
        int64_t left = d->inputs.n_last - first;
        int64_t n    = left < d->logit_rows ? left : d->logit_rows;

        HL_NEED(make_some_last(session, first, n));
        HL_NEED(receive_some_last(session, chunk, first, n));
    }
    return HL_OK;
}

hl_status hl_forward_send_last(hl_session *session, const hl_chunk *chunk)
{
    hl_device_session *d = session->device;

    if (!wants_last(session) || d->ops->is_near)
        return HL_OK;
    end_parts host = parts_of(session, d->ends.host, chunk->n_batch);
    if ((session->options.wants & HL_WANT_LAST_LOGITS) != 0)
        HL_NEED(fetch(d, host.logits, d->rows.logits,
                      (size_t)(chunk->n_batch * session->config->d_vocab) * sizeof(float)));
    if (d->tops != NULL)
        HL_NEED(fetch(d, host.top, d->ends.device, (size_t)chunk->n_batch * sizeof *d->tops));
    return fetch(d, d->flag + 1, d->rows.flag + 1, sizeof *d->flag);
}

hl_status hl_forward_receive_last(hl_session *session, const hl_chunk *chunk)
{
    if (!wants_last(session) || session->device->ops->is_near)
        return HL_OK;
    return receive_some_last(session, chunk, 0, chunk->n_batch);
}

/* --------------------------------------------------------------------- draws */

/* Draws from logits that stay on a device.  The last logits of every sequence have a row there,
 * which the forward pass leaves.  A draw sends its rule and gets back the row's statistics and some
 * candidates.  The row itself is fetched if the caller wants it, if there are too many candidates,
 * or if it has a non-finite value, which the sampler then names. */

static int64_t n_words(const hl_session *session)
{
    return (session->config->d_vocab + 31) / 32;
}

void hl_device_plan_picks(hl_session *session, hl_arena *rows, hl_arena *host)
{
    hl_device_picks *picks  = &session->device->picks;
    int64_t          n      = session->options.n_batch;
    hl_device_pair  *pair[] = { &picks->rules, &picks->results, &picks->candidates,
                                &picks->repeated };
    const size_t     size[] = { sizeof(hl_pick_rule), sizeof(hl_pick_result),
                                HL_PICK_CANDIDATES * sizeof(hl_pick_candidate),
                                (size_t)n_words(session) * sizeof(uint32_t) };

    if ((session->options.wants & HL_WANT_LAST_DRAW) == 0)
        return;
    picks->logits = hl_arena_take(rows, n, session->config->d_vocab, sizeof(float));
    picks->work   = hl_arena_take(rows, n, 1, HL_PICK_WORK_BYTES);
    for (int i = 0; i < 4; i++) {
        pair[i]->device = hl_arena_take(rows, n, 1, size[i]);
        pair[i]->host   = hl_arena_take(host, n, 1, size[i]);
    }
    if ((session->options.wants & HL_WANT_LAST_LOGITS) == 0)
        session->last = hl_arena_take(host, n, session->config->d_vocab, sizeof(float));
}

static hl_status send_draws(const hl_device_session *d, const hl_device_pair *pair, size_t n_bytes)
{
    return hl_device_checked(d, d->ops->copy_in(d->device, pair->device, pair->host, n_bytes),
                             "draws");
}

static hl_status receive(const hl_device_session *d, void *to, const void *from, size_t n_bytes)
{
    return hl_device_checked(d, d->ops->copy_out(d->device, 0, to, from, n_bytes), "draws");
}

/* Sends the rules of all draws, and the bits of repeated tokens. */
static hl_status send_rules(const hl_session *session, const hl_pick *picks, int64_t n)
{
    const hl_device_session *d          = session->device;
    hl_pick_rule            *rules      = d->picks.rules.host;
    size_t                   row_bytes  = (size_t)n_words(session) * sizeof(uint32_t);
    bool                     any_repeat = false;

    for (int64_t i = 0; i < n; i++) {
        const uint32_t *repeated = hl_sampler_repeated(picks[i].sampler);

        rules[i] = hl_sampler_rule(picks[i].sampler, picks[i].sequence);
        if (repeated != NULL)
            memcpy((uint8_t *)d->picks.repeated.host + (size_t)i * row_bytes, repeated, row_bytes);
        any_repeat = any_repeat || repeated != NULL;
    }
    HL_NEED(send_draws(d, &d->picks.rules, (size_t)n * sizeof *rules));
    if (any_repeat)
        HL_NEED(send_draws(d, &d->picks.repeated, (size_t)n * row_bytes));
    return HL_OK;
}

static hl_status run_draws(const hl_session *session, int64_t n)
{
    const hl_device_session *d     = session->device;
    const hl_device_picks   *all   = &d->picks;
    const hl_pick_rule      *rules = all->rules.host;
    bool                     lists = false;

    for (int64_t i = 0; i < n; i++)
        lists = lists || (rules[i].kind != HL_PICK_GREEDY && rules[i].kind != HL_PICK_ALL);
    HL_NEED(hl_device_checked(
        d,
        d->ops->pick(d->device, &(hl_device_pick){ .out        = all->results.device,
                                                   .candidates = all->candidates.device,
                                                   .logits     = all->logits,
                                                   .rules      = all->rules.device,
                                                   .repeated   = all->repeated.device,
                                                   .n_rows     = n,
                                                   .n          = session->config->d_vocab,
                                                   .work       = all->work }),
        "draws"));
    HL_NEED(receive(d, all->results.host, all->results.device, (size_t)n * sizeof(hl_pick_result)));
    if (lists)
        HL_NEED(receive(d, all->candidates.host, all->candidates.device,
                        (size_t)n * HL_PICK_CANDIDATES * sizeof(hl_pick_candidate)));
    return hl_device_checked(d, d->ops->arrived(d->device, 0), "draws");
}

static bool needs_logits(const hl_pick *pick)
{
    return pick->wants_logits || pick->result->is_bad ||
           pick->result->n_candidates > HL_PICK_CANDIDATES;
}

hl_status hl_device_look(hl_session *session, hl_pick *picks, int64_t n)
{
    const hl_device_session *d       = session->device;
    int64_t                  d_vocab = session->config->d_vocab;

    HL_NEED(send_rules(session, picks, n));
    HL_NEED(run_draws(session, n));
    for (int64_t i = 0; i < n; i++) {
        int64_t at = picks[i].sequence * d_vocab;

        picks[i].result = (const hl_pick_result *)d->picks.results.host + i;
        picks[i].candidates =
            (hl_pick_candidate *)d->picks.candidates.host + i * HL_PICK_CANDIDATES;
        if (needs_logits(&picks[i]))
            HL_NEED(receive(d, session->last + at, d->picks.logits + at,
                            (size_t)d_vocab * sizeof(float)));
        else
            picks[i].logits = NULL;
    }
    return hl_device_checked(d, d->ops->arrived(d->device, 0), "draws");
}

/* --------------------------------------------- draws from the last logits of sequences */

hl_status hl_session_look(hl_session *session, hl_pick *picks, int64_t n)
{
    int64_t d_vocab = session->config->d_vocab;

    for (int64_t i = 0; i < n; i++) {
        picks[i].d_vocab = d_vocab;
        picks[i].logits  = session->last + picks[i].sequence * d_vocab;
    }
    if (session->device->ops->is_near || (session->options.wants & HL_WANT_LAST_DRAW) == 0)
        return HL_OK;
    return hl_device_look(session, picks, n);
}

static hl_status draw_on_host(hl_pick *pick)
{
    HL_NEED(hl_sampler_draw(&pick->token, pick->sampler, pick->logits));
    pick->row     = hl_logits_read(pick->logits, pick->d_vocab);
    pick->logprob = (double)pick->logits[pick->token] - pick->row.lse;
    return HL_OK;
}

hl_status hl_pick_token(hl_pick *pick)
{
    const hl_pick_result *result = pick->result;
    float                 logit  = 0.0f;

    if (pick->logits != NULL)
        return draw_on_host(pick);
    hl_sampler_draw_among(&pick->token, &logit, pick->sampler, result, pick->candidates);
    pick->row = (hl_logits_row){
        .top = -1, .lse = result->lse, .entropy = result->entropy, .varentropy = result->varentropy
    };
    pick->logprob = (double)logit - result->lse;
    return HL_OK;
}
