/* device_ends.c - tokens to the residual stream and the stream to words, on a device; the
 * formulas are those of forward_ends.c. */
#include <string.h>

#include "base/status.h"
#include "model/device.h"

/* ----------------------------------------------------------------- embedding */

static hl_status embed(const hl_device_session *d, const hl_device_embed *embed)
{
    return hl_device_checked(d, d->ops->embed(d->device, embed), "embedding");
}

hl_status hl_device_embed_rows(hl_session *session, const hl_chunk *chunk)
{
    hl_device_session       *d      = session->device;
    const hl_device_weights *w      = &d->weights;
    int64_t                  n_rows = chunk->n_batch * chunk->n_rows;
    hl_device_embed          whole  = { .out            = d->rows.x,
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

    if (w->embed_in.weight != NULL) {
        hl_device_embed narrow = whole;

        narrow.out            = d->rows.embedded;
        narrow.out_dtype      = d->dtype;
        narrow.position_table = NULL;
        narrow.type_table     = NULL;
        narrow.n              = session->config->d_embed;
        HL_NEED(embed(d, &narrow));
        HL_NEED(hl_device_multiply(session, d->rows.normed, d->dtype, d->rows.embedded,
                                   &w->embed_in, n_rows));
        whole.base = d->rows.normed;
    }
    HL_NEED(embed(d, &whole));
    if (hl_session_param_of(session, HL_ROLE_EMBED_NORM, -1, 0) != NULL)
        HL_NEED(hl_device_checked(
            d,
            d->ops->norm(d->device,
                         &(hl_device_norm){ .out       = d->rows.x,
                                            .out_dtype = HL_DTYPE_F32,
                                            .x         = d->rows.x,
                                            .dtype     = d->dtype,
                                            .norm      = hl_device_norm_of(session, &w->embed_norm),
                                            .n_rows    = n_rows,
                                            .n         = session->config->d_model }),
            "norm"));
    return HL_OK;
}

/* ---------------------------------------------------------------------- head */

/* out (n_rows, D) of out_dtype from rows of the residual stream. */
static hl_status finish_hidden(const hl_session *session, void *out, hl_dtype out_dtype,
                               const float *x, int64_t n_rows)
{
    const hl_device_session *d = session->device;

    return hl_device_checked(
        d,
        d->ops->norm(d->device,
                     &(hl_device_norm){ .out       = out,
                                        .out_dtype = out_dtype,
                                        .x         = (float *)x,
                                        .dtype     = d->dtype,
                                        .is_plain  = session->config->no_final_norm,
                                        .norm = hl_device_norm_of(session, &d->weights.final_norm),
                                        .n_rows = n_rows,
                                        .n      = session->config->d_model }),
        "norm");
}

/* An encoder's head, in rows.narrow. */
static hl_status run_head(const hl_session *session, int64_t n_rows)
{
    const hl_device_session *d      = session->device;
    const hl_config         *config = session->config;
    void                    *x      = d->rows.narrow;

    HL_NEED(
        hl_device_multiply(session, x, d->dtype, d->rows.hidden, &d->weights.head_dense, n_rows));
    HL_NEED(hl_device_checked(
        d,
        d->ops->activate(d->device, &(hl_device_activate){ .out        = x,
                                                           .gate       = x,
                                                           .x_stride   = config->d_model,
                                                           .dtype      = d->dtype,
                                                           .activation = config->activation,
                                                           .n_rows     = n_rows,
                                                           .n          = config->d_model }),
        "activation"));
    if (hl_session_param_of(session, HL_ROLE_HEAD_NORM, -1, 0) != NULL)
        HL_NEED(hl_device_checked(
            d,
            d->ops->norm(d->device, &(hl_device_norm){ .out       = x,
                                                       .out_dtype = d->dtype,
                                                       .x         = x,
                                                       .x_dtype   = d->dtype,
                                                       .dtype     = d->dtype,
                                                       .norm      = hl_device_norm_of(
                                                                session, &d->weights.head_norm),
                                                       .n_rows = n_rows,
                                                       .n      = config->d_model }),
            "norm"));
    return HL_OK;
}

/* rows.logits from rows.hidden. */
static hl_status make_logits(const hl_session *session, int64_t n_rows)
{
    const hl_device_session *d      = session->device;
    const hl_device_weights *w      = &d->weights;
    const hl_config         *config = session->config;
    const void              *x      = d->rows.hidden;

    if (w->head_dense.weight != NULL) {
        HL_NEED(run_head(session, n_rows));
        x = d->rows.narrow;
    }
    if (w->embed_out.weight != NULL) {
        HL_NEED(hl_device_multiply(session, d->rows.narrow, d->dtype, x, &w->embed_out, n_rows));
        x = d->rows.narrow;
    }
    HL_NEED(hl_device_multiply(session, d->rows.logits, HL_DTYPE_F32, x, &w->lm_head, n_rows));
    if (config->logit_scale != 1.0 || config->logit_softcap > 0.0)
        HL_NEED(hl_device_checked(
            d,
            d->ops->cap(d->device, &(hl_device_cap){ .x       = d->rows.logits,
                                                     .count   = n_rows * config->d_vocab,
                                                     .scale   = (float)config->logit_scale,
                                                     .softcap = (float)config->logit_softcap }),
            "logits"));
    return HL_OK;
}

/* ---------------------------------------------------------------------- lens */

/* What n_rows of rows.logits say, as far as `wanted` has places for it. */
static hl_status read_logits(const hl_session *session, hl_device_logits wanted, int64_t n_rows)
{
    const hl_device_session *d = session->device;

    wanted.logits = d->rows.logits;
    wanted.n_rows = n_rows;
    wanted.n      = session->config->d_vocab;
    return hl_device_checked(d, d->ops->logits(d->device, &wanted), "logits");
}

hl_status hl_device_make_lens(hl_session *session, const hl_chunk *chunk, hl_device_lane *lane)
{
    hl_device_session *d      = session->device;
    int64_t            n_all  = chunk->n_batch * chunk->n_rows;
    int64_t           *top    = lane->lens.device;
    float             *others = (float *)(void *)(top + n_all); /* entropies, then gaps */

    HL_NEED(hl_device_settle(session, chunk));
    for (int64_t row = 0; row < n_all; row += d->logit_rows) {
        int64_t n = n_all - row < d->logit_rows ? n_all - row : d->logit_rows;

        HL_NEED(finish_hidden(session, d->rows.hidden, d->dtype,
                              d->rows.x + row * session->config->d_model, n));
        HL_NEED(make_logits(session, n));
        HL_NEED(read_logits(session,
                            (hl_device_logits){ .top     = top + row,
                                                .entropy = others + row,
                                                .gap     = others + n_all + row },
                            n));
    }
    return HL_OK;
}

/* --------------------------------------------------------------------- final */

/* What of the tap's wants is made of logits. */
enum { SPEAKS = HL_WANT_LOGITS | HL_WANT_LENS | HL_WANT_LOSSES | HL_WANT_DIVERGENCE };

/* Logits that are no numbers come from the head or the last norm, if not from a layer. */
static hl_status blame_head(hl_session *session)
{
    if (session->searched[0])
        return HL_OK;
    session->searched[0] = true;
    return hl_session_find_nan(session, -1);
}

/* Where parts of rows at the end lie in the pair `ends`: what is said of n rows, which is all
 * that its device's half has; hidden rows; logits. */
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
    return parts;
}

static hl_status fetch(const hl_device_session *d, void *to, const void *from, size_t n_bytes)
{
    return hl_device_checked(d, d->ops->copy_out(d->device, 0, to, from, n_bytes), "copies");
}

/* The kept rows of a sequence's from `first` on, for these to be put there or compared with. */
static hl_device_kept kept_rows(const hl_session *session, const hl_chunk *chunk, int64_t sequence,
                                int64_t first)
{
    const hl_session *keeper = hl_chunk_keeper(session, chunk);
    hl_device_kept    kept   = keeper->device->kept;
    int64_t           place  = hl_chunk_kept_row(keeper, chunk, sequence, first);

    kept.logits += place * session->config->d_vocab;
    kept.lse += place;
    kept.puts = chunk->feed->keeps_logits;
    return kept;
}

/* Lens, losses and divergence of the n rows of a sequence from `first` on, whose logits are there;
 * and whether these are numbers. */
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

/* What the tap wants of rows [first, first + n) of a sequence, in the host's half of `ends`. */
static hl_status fetch_ends(hl_session *session, const hl_chunk *chunk, int64_t sequence,
                            int64_t first, int64_t n)
{
    hl_device_session *d     = session->device;
    uint32_t           wants = hl_chunk_wants(chunk);
    int64_t            row   = sequence * chunk->n_rows + first;
    const float       *x     = d->rows.x + row * session->config->d_model;
    end_parts          host  = parts_of(session, d->ends.host, n);

    if ((wants & HL_WANT_HIDDEN) != 0) {
        HL_NEED(finish_hidden(session, d->rows.plain, HL_DTYPE_F32, x, n));
        HL_NEED(fetch(d, host.hidden, d->rows.plain,
                      (size_t)(n * session->config->d_model) * sizeof(float)));
    }
    if ((wants & SPEAKS) != 0) {
        HL_NEED(finish_hidden(session, d->rows.hidden, d->dtype, x, n));
        HL_NEED(make_logits(session, n));
        HL_NEED(fetch_said(session, chunk, sequence, first, n));
    }
    if ((wants & HL_WANT_LOGITS) != 0)
        HL_NEED(fetch(d, host.logits, d->rows.logits,
                      (size_t)(n * session->config->d_vocab) * sizeof(float)));
    return hl_device_checked(d, d->ops->arrived(d->device, 0), "copies");
}

/* `n` fetched rows to the tap, as many at a time as on the CPU. */
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

hl_status hl_device_final(hl_session *session, const hl_chunk *chunk)
{
    int64_t  step    = session->device->logit_rows;
    uint32_t wants   = hl_chunk_wants(chunk);
    bool     watched = chunk->feed->tap != NULL && chunk->feed->tap->final != NULL &&
                   (wants & (HL_WANT_HIDDEN | SPEAKS)) != 0;

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

hl_status hl_device_make_last(hl_session *session, const hl_chunk *chunk)
{
    hl_device_session *d       = session->device;
    int64_t            d_model = session->config->d_model;

    if (!wants_last(session))
        return HL_OK;
    HL_NEED(hl_device_settle(session, chunk));
    HL_NEED(hl_device_checked(
        d,
        d->ops->copy_rows(d->device, &(hl_device_copy_rows){ .out        = d->rows.last,
                                                             .out_dtype  = HL_DTYPE_F32,
                                                             .out_stride = d_model,
                                                             .x          = d->rows.x,
                                                             .x_dtype    = HL_DTYPE_F32,
                                                             .x_stride   = d_model,
                                                             .index      = d->inputs.last,
                                                             .n_rows     = chunk->n_batch,
                                                             .n          = d_model }),
        "last rows"));
    HL_NEED(finish_hidden(session, d->rows.hidden, d->dtype, d->rows.last, chunk->n_batch));
    HL_NEED(make_logits(session, chunk->n_batch));
    HL_NEED(read_logits(session,
                        (hl_device_logits){ .top  = d->tops != NULL ? d->ends.device : NULL,
                                            .flag = d->rows.flag + 1 },
                        chunk->n_batch));
    return hl_device_keep_last(session);
}

hl_status hl_device_send_last(hl_session *session, const hl_chunk *chunk)
{
    hl_device_session *d = session->device;

    if (!wants_last(session))
        return HL_OK;
    end_parts host = parts_of(session, d->ends.host, chunk->n_batch);
    if ((session->options.wants & HL_WANT_LAST_LOGITS) != 0)
        HL_NEED(fetch(d, host.logits, d->rows.logits,
                      (size_t)(chunk->n_batch * session->config->d_vocab) * sizeof(float)));
    if (d->tops != NULL)
        HL_NEED(fetch(d, host.top, d->ends.device, (size_t)chunk->n_batch * sizeof *d->tops));
    return fetch(d, d->flag + 1, d->rows.flag + 1, sizeof *d->flag);
}

hl_status hl_device_receive_last(hl_session *session, const hl_chunk *chunk)
{
    int64_t            d_vocab = session->config->d_vocab;
    hl_device_session *d       = session->device;

    if (!wants_last(session))
        return HL_OK;
    end_parts host = parts_of(session, d->ends.host, chunk->n_batch);
    if (d->flag[1] != 0)
        HL_NEED(blame_head(session));
    for (int64_t i = 0; i < chunk->n_batch; i++) {
        if (!hl_chunk_has_last(chunk, i))
            continue;
        if (d->tops != NULL)
            d->tops[chunk->sequences[i]] = host.top[i];
        if ((session->options.wants & HL_WANT_LAST_LOGITS) != 0)
            memcpy(session->rows.last + chunk->sequences[i] * d_vocab, host.logits + i * d_vocab,
                   (size_t)d_vocab * sizeof *host.logits);
    }
    return HL_OK;
}
