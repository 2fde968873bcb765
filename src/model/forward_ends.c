/* forward_ends.c - tokens to the residual stream, and the stream to words.
 *
 *     x      = norm(scale * embed[token] W_in + position[p] + type[t])
 *     hidden = norm(x)
 *     logits = softcap(scale * (head(hidden W_out) + b))
 *
 * with most of these parts missing in most models.  An encoder's head is
 * W norm(act(dense x)).  Logits are made for HL_LOGIT_ROWS rows at a time: all of
 * a chunk's would be larger than the model. */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "base/threads.h"
#include "model/logits.h"
#include "model/session.h"

/* ----------------------------------------------------------------- embedding */

static void add_vector(float *out, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] += x[i];
}

/* Adds row `row` of a table to out (D). */
static hl_status add_table_row(const hl_session *session, float *out, hl_role role, int64_t row)
{
    const hl_session_param *table = hl_session_param_of(session, role, -1, 0);
    float                  *value = session->rows.hidden; /* free until the end */

    if (table == NULL)
        return HL_OK;
    hl_status status = hl_matrix_read_row(value, &table->matrix, row);
    if (status == HL_OK)
        add_vector(out, value, session->config->d_model);
    return status;
}

static hl_status embed_row(const hl_session *session, const hl_chunk *chunk, float *out,
                           int64_t sequence, int64_t row)
{
    const hl_feed          *feed   = chunk->feed;
    const hl_session_param *embed  = hl_session_param_of(session, HL_ROLE_EMBED, -1, 0);
    int64_t                 column = sequence * feed->n_tokens + chunk->offset + row;
    float                   scale  = (float)session->config->embed_scale;

    HL_NEED(hl_matrix_read_row(out, &embed->matrix, feed->tokens[column]));
    for (int64_t i = 0; i < session->config->d_embed && scale != 1.0f; i++)
        out[i] *= scale;
    return HL_OK;
}

static hl_status place_row(const hl_session *session, const hl_chunk *chunk, float *x,
                           int64_t sequence, int64_t row)
{
    const hl_feed *feed   = chunk->feed;
    int64_t        column = sequence * feed->n_tokens + chunk->offset + row;
    int64_t        type   = feed->token_types != NULL ? feed->token_types[column] : 0;

    HL_NEED(add_table_row(session, x, HL_ROLE_POSITION, chunk->start[sequence] + row));
    return add_table_row(session, x, HL_ROLE_TOKEN_TYPE, type);
}

typedef hl_status (*row_step)(const hl_session *session, const hl_chunk *chunk, float *out,
                              int64_t sequence, int64_t row);

static hl_status each_row(const hl_session *session, const hl_chunk *chunk, float *out,
                          int64_t width, row_step step)
{
    for (int64_t sequence = 0; sequence < chunk->n_batch; sequence++) {
        for (int64_t row = 0; row < chunk->lengths[sequence]; row++) {
            float    *at     = out + (sequence * chunk->n_rows + row) * width;
            hl_status status = step(session, chunk, at, sequence, row);
            if (status != HL_OK)
                return status;
        }
    }
    return HL_OK;
}

hl_status hl_forward_embed(hl_session *session, const hl_chunk *chunk)
{
    hl_session_rows        *rows   = &session->rows;
    const hl_config        *config = session->config;
    const hl_session_param *in     = hl_session_param_of(session, HL_ROLE_EMBED_IN, -1, 0);
    const hl_session_param *norm   = hl_session_param_of(session, HL_ROLE_EMBED_NORM, -1, 0);

    HL_NEED(each_row(session, chunk, in != NULL ? rows->embedded : rows->x, config->d_embed,
                     embed_row));
    if (in != NULL)
        HL_NEED(hl_forward_linear(session, chunk, rows->x, rows->embedded, in));
    HL_NEED(each_row(session, chunk, rows->x, config->d_model, place_row));
    if (norm != NULL)
        hl_forward_norm(session, chunk, rows->x, rows->x, norm);
    return HL_OK;
}

/* ---------------------------------------------------------------------- head */

/* Rows of one sequence, or one row of each of some: a row of many is multiplied in another way
 * than one that is alone. */
typedef struct end_rows {
    int64_t n_batch;
    int64_t n_rows; /* of each; together at most HL_LOGIT_ROWS */
} end_rows;

static hl_status multiply_rows(const hl_session *session, float *out, const float *x, end_rows ends,
                               const hl_session_param *param)
{
    int64_t        counts[HL_LOGIT_ROWS];
    hl_linear_rows rows = {
        .out        = out,
        .out_stride = param->matrix.n_rows,
        .x          = x,
        .x_stride   = param->matrix.n_columns,
        .n_batch    = ends.n_batch,
        .batch_rows = ends.n_rows,
        .n_rows     = counts,
    };

    for (int64_t i = 0; i < ends.n_batch; i++)
        counts[i] = ends.n_rows;
    return hl_linear(&rows, &param->matrix, param->bias, &session->pool);
}

static void norm_rows(const hl_session *session, float *out, const float *x, int64_t n_rows,
                      const hl_session_param *param)
{
    hl_norm norm    = hl_forward_norm_of(session, param);
    int64_t d_model = session->config->d_model;

    for (int64_t row = 0; row < n_rows; row++)
        session->dense->norm(out + row * d_model, x + row * d_model, d_model, &norm);
}

/* out (n_rows, D) from the residual stream. */
static void finish_hidden(const hl_session *session, float *out, const float *x, int64_t n_rows)
{
    int64_t d_model = session->config->d_model;

    if (session->config->no_final_norm)
        memcpy(out, x, (size_t)(n_rows * d_model) * sizeof *x);
    else
        norm_rows(session, out, x, n_rows, hl_session_param_of(session, HL_ROLE_FINAL_NORM, -1, 0));
}

static void scale_some(void *context, int64_t first, int64_t end, int member)
{
    const hl_session *session = context;
    float            *logits  = session->rows.logits;
    float             scale   = (float)session->config->logit_scale;
    float             cap     = (float)session->config->logit_softcap;
    (void)member;

    for (int64_t i = first; i < end; i++) {
        logits[i] *= scale;
        if (cap > 0.0f)
            logits[i] = cap * tanhf(logits[i] / cap);
    }
}

/* rows.logits from rows.hidden, which an encoder's head overwrites. */
static hl_status make_logits(const hl_session *session, end_rows ends)
{
    int64_t                 n_rows = ends.n_batch * ends.n_rows;
    const hl_session_rows  *rows   = &session->rows;
    const hl_config        *config = session->config;
    const hl_session_param *dense  = hl_session_param_of(session, HL_ROLE_HEAD_DENSE, -1, 0);
    const hl_session_param *norm   = hl_session_param_of(session, HL_ROLE_HEAD_NORM, -1, 0);
    const hl_session_param *out    = hl_session_param_of(session, HL_ROLE_EMBED_OUT, -1, 0);
    const hl_session_param *head   = hl_session_param_of(session, HL_ROLE_LM_HEAD, -1, 0);
    const float            *x      = rows->hidden;

    if (dense != NULL) {
        HL_NEED(multiply_rows(session, rows->narrow, x, ends, dense));
        session->dense->activate(rows->narrow, NULL, n_rows * config->d_model, config->activation,
                                 0.0f);
        if (norm != NULL)
            norm_rows(session, rows->narrow, rows->narrow, n_rows, norm);
        x = rows->narrow;
    }
    if (out != NULL) {
        HL_NEED(multiply_rows(session, rows->narrow, x, ends, out));
        x = rows->narrow;
    }
    HL_NEED(multiply_rows(session, rows->logits, x, ends, head));
    if (config->logit_scale != 1.0 || config->logit_softcap > 0.0)
        hl_parallel(hl_forward_threads(session, n_rows * config->d_vocab), n_rows * config->d_vocab,
                    0, scale_some, (void *)session);
    return HL_OK;
}

/* Logits that are no numbers come from the head or the last norm, if not from a layer
 * that was searched already. */
static hl_status check_logits(hl_session *session, int64_t n_rows)
{
    int64_t count = n_rows * session->config->d_vocab;
    float   sum   = 0.0f;

    /* 0 * x is 0 for what is finite, NaN for what is not. */
    for (int64_t i = 0; i < count && !session->searched[0]; i++)
        sum += 0.0f * session->rows.logits[i];
    if (sum == 0.0f)
        return HL_OK;
    session->searched[0] = true;
    return hl_session_find_nan(session, -1);
}

/* ---------------------------------------------------------------------- lens */

static float second_gap(const float *logits, int64_t n, int64_t top)
{
    float second = -INFINITY;

    for (int64_t i = 0; i < n; i++) {
        if (i != top && logits[i] > second)
            second = logits[i];
    }
    return logits[top] - second;
}

/* Rows of a sequence whose logits are in rows.logits (n_rows, V): what a thread is given. */
typedef struct logit_rows {
    const hl_session *session;
    const hl_chunk   *chunk;
    int64_t           sequence;
    int64_t           first; /* the sequence's row that rows.logits begins with */
} logit_rows;

/* The lens of these rows. */
static void read_lens(void *context, int64_t begin, int64_t end, int member)
{
    const logit_rows      *part    = context;
    const hl_session_rows *rows    = &part->session->rows;
    int64_t                d_vocab = part->session->config->d_vocab;
    (void)member;

    for (int64_t row = begin; row < end; row++) {
        const float  *logits = rows->logits + row * d_vocab;
        hl_logits_row read   = hl_logits_read(logits, d_vocab);

        rows->lens_top[part->first + row]     = read.top;
        rows->lens_entropy[part->first + row] = (float)read.entropy;
        rows->lens_gap[part->first + row]     = second_gap(logits, d_vocab, read.top);
    }
}

static void share_out(hl_parallel_work work, int64_t n_rows, logit_rows part)
{
    int64_t n_values = n_rows * part.session->config->d_vocab;

    hl_parallel(hl_forward_threads(part.session, n_values), n_rows, 0, work, &part);
}

hl_status hl_forward_lens(hl_session *session, const hl_chunk *chunk, const float *x)
{
    int64_t d_model = session->config->d_model;

    for (int64_t sequence = 0; sequence < chunk->n_batch; sequence++) {
        int64_t first = sequence * chunk->n_rows;
        int64_t end   = first + chunk->lengths[sequence];

        for (int64_t row = first; row < end; row += HL_LOGIT_ROWS) {
            int64_t n_rows = end - row < HL_LOGIT_ROWS ? end - row : HL_LOGIT_ROWS;

            finish_hidden(session, session->rows.hidden, x + row * d_model, n_rows);
            HL_NEED(make_logits(session, (end_rows){ 1, n_rows }));
            share_out(read_lens, n_rows, (logit_rows){ session, chunk, sequence, row });
        }
    }
    return HL_OK;
}

/* ------------------------------------------------- losses, and rows compared */

/* How far a row is from the one kept in its place; or it is kept. */
static double compare_row(const hl_session *keeper, const hl_chunk *chunk, int64_t place,
                          const float *logits, double lse)
{
    const hl_kept_logits *kept    = &keeper->rows.kept;
    int64_t               d_vocab = keeper->config->d_vocab;

    if (!chunk->feed->keeps_logits)
        return hl_kept_divergence(kept, place, logits, lse, d_vocab);
    hl_kept_put(kept, place, logits, lse, d_vocab);
    return 0.0;
}

static void read_losses(void *context, int64_t begin, int64_t end, int member)
{
    const logit_rows      *part     = context;
    const hl_chunk        *chunk    = part->chunk;
    const hl_session_rows *rows     = &part->session->rows;
    int64_t                d_vocab  = part->session->config->d_vocab;
    const hl_session      *keeper   = hl_chunk_keeper(part->session, chunk);
    bool                   loses    = (hl_chunk_wants(chunk) & HL_WANT_LOSSES) != 0;
    bool                   compares = (hl_chunk_wants(chunk) & HL_WANT_DIVERGENCE) != 0;
    (void)member;

    for (int64_t row = begin; row < end; row++) {
        const float *logits = rows->logits + row * d_vocab;
        int64_t      place  = part->first + row;
        int64_t      target = loses ? hl_chunk_target(chunk, part->sequence, place) : -1;
        int64_t      top    = hl_logits_top(logits, d_vocab);
        double       lse    = NAN;

        if (target >= 0 || compares)
            lse = hl_logits_lse_around(top, logits, d_vocab);
        if (loses) {
            rows->losses[row] = target >= 0 ? lse - (double)logits[target] : NAN;
            rows->tops[row]   = top;
        }
        if (compares)
            rows->divergence[row] =
                compare_row(keeper, chunk, hl_chunk_kept_row(keeper, chunk, part->sequence, place),
                            logits, lse);
    }
}

/* --------------------------------------------------------------------- final */

/* What of the tap's wants is made of logits. */
enum { SPEAKS = HL_WANT_LOGITS | HL_WANT_LENS | HL_WANT_LOSSES | HL_WANT_DIVERGENCE };

/* Rows [first, first + n_rows) of a sequence to the tap. */
static hl_status deliver(hl_session *session, const hl_chunk *chunk, int64_t sequence,
                         int64_t first, int64_t n_rows)
{
    hl_session_rows *rows  = &session->rows;
    const hl_tap    *tap   = chunk->feed->tap;
    int64_t          row   = sequence * chunk->n_rows + first;
    hl_final_rows    final = { .sequence = chunk->sequences[sequence],
                               .start    = chunk->start[sequence] + first,
                               .n_rows   = n_rows,
                               .d_model  = session->config->d_model,
                               .d_vocab  = session->config->d_vocab };

    finish_hidden(session, rows->hidden, rows->x + row * final.d_model, n_rows);
    if ((tap->wants & HL_WANT_HIDDEN) != 0)
        final.hidden = rows->hidden;
    if ((tap->wants & SPEAKS) != 0) {
        HL_NEED(make_logits(session, (end_rows){ 1, n_rows }));
        HL_NEED(check_logits(session, n_rows));
    }
    if ((tap->wants & HL_WANT_LOGITS) != 0)
        final.logits = rows->logits;
    if ((tap->wants & HL_WANT_LENS) != 0) {
        share_out(read_lens, n_rows, (logit_rows){ session, chunk, sequence, 0 });
        final.lens_top     = rows->lens_top;
        final.lens_entropy = rows->lens_entropy;
        final.lens_gap     = rows->lens_gap;
    }
    if ((tap->wants & (HL_WANT_LOSSES | HL_WANT_DIVERGENCE)) != 0)
        share_out(read_losses, n_rows, (logit_rows){ session, chunk, sequence, first });
    if ((tap->wants & HL_WANT_LOSSES) != 0) {
        final.losses = rows->losses;
        final.tops   = rows->tops;
    }
    if ((tap->wants & HL_WANT_DIVERGENCE) != 0)
        final.divergence = rows->divergence;
    return tap->final(tap->context, &final);
}

static hl_status deliver_sequence(hl_session *session, const hl_chunk *chunk, int64_t sequence)
{
    hl_status status = HL_OK;
    int64_t   length = chunk->lengths[sequence];

    for (int64_t row = 0; row < length && status == HL_OK; row += HL_LOGIT_ROWS)
        status = deliver(session, chunk, sequence, row,
                         length - row < HL_LOGIT_ROWS ? length - row : HL_LOGIT_ROWS);
    return status;
}

/* rows.last from the last rows of n sequences, which lie in rows.hidden. */
static hl_status keep_logits(hl_session *session, const int64_t *sequences, int64_t n)
{
    int64_t d_vocab = session->config->d_vocab;

    if (n == 0)
        return HL_OK;
    HL_NEED(make_logits(session, (end_rows){ n, 1 }));
    HL_NEED(check_logits(session, n));
    for (int64_t i = 0; i < n; i++)
        memcpy(session->rows.last + sequences[i] * d_vocab, session->rows.logits + i * d_vocab,
               (size_t)d_vocab * sizeof(float));
    return HL_OK;
}

/* As many sequences at a time as there is room for: the head is read once for them. */
static hl_status keep_last(hl_session *session, const hl_chunk *chunk)
{
    int64_t d_model = session->config->d_model;
    int64_t n       = 0;
    int64_t sequences[HL_LOGIT_ROWS];

    for (int64_t i = 0; i < chunk->n_batch; i++) {
        int64_t row = i * chunk->n_rows + chunk->lengths[i] - 1;

        if (!hl_chunk_has_last(chunk, i))
            continue;
        finish_hidden(session, session->rows.hidden + n * d_model, session->rows.x + row * d_model,
                      1);
        sequences[n++] = chunk->sequences[i];
        if (n == HL_LOGIT_ROWS) {
            HL_NEED(keep_logits(session, sequences, n));
            n = 0;
        }
    }
    return keep_logits(session, sequences, n);
}

hl_status hl_forward_final(hl_session *session, const hl_chunk *chunk)
{
    uint32_t wants   = hl_chunk_wants(chunk);
    bool     watched = chunk->feed->tap != NULL && chunk->feed->tap->final != NULL &&
                   (wants & (HL_WANT_HIDDEN | SPEAKS)) != 0;

    for (int64_t sequence = 0; sequence < chunk->n_batch && watched; sequence++)
        HL_NEED(deliver_sequence(session, chunk, sequence));
    if ((session->options.wants & HL_WANT_LAST_LOGITS) != 0)
        HL_NEED(keep_last(session, chunk));
    return HL_OK;
}
