/* mixer_vector.h - conv and scan of dense.h on vectors of simd.h.
 *
 * Included once by dense_avx2.c and each of its siblings.  Lanes are channels, or columns of a
 * state, which do not depend on each other.  The scan keeps a block of columns in a small array
 * for up to SCAN_ROWS rows; what these rows need of all their entries (decays, lengths of q and k)
 * is computed before.  A row's result does not depend on how rows are divided into calls. */
#ifndef HL_KERNELS_MIXER_VECTOR_H
#define HL_KERNELS_MIXER_VECTOR_H

#include "kernels/dense_vector.h"

/* The first n lanes of a row; a whole vector has its own, faster instruction. */
HL_INLINE vf load_lanes(const float *p, int64_t n)
{
    return n >= VL ? vf_load(p) : load_part(p, n);
}

HL_INLINE void store_lanes(float *p, vf a, int64_t n)
{
    if (n >= VL)
        vf_store(p, a);
    else
        store_part(p, a, n);
}

/* -------------------------------------------------------------- convolutions */

/* Channels [i, i + n), n at most VL. */
static void conv_lanes(const hl_conv *c, int64_t i, int64_t n)
{
    vf      bias = c->bias != NULL ? load_lanes(c->bias + i, n) : vf_set(0.0f);
    vf      weight[HL_MAX_CONV];
    vf      last[HL_MAX_CONV] = { { 0 } };
    int64_t before            = c->width - 1;

    for (int64_t j = 0; j < c->width; j++)
        weight[j] = load_lanes(c->weight + j * c->stride + i, n);
    for (int64_t j = 0; j < before && !c->begins; j++)
        last[j] = load_lanes(c->state + j * c->stride + i, n);
    for (int64_t row = 0; row < c->n_rows; row++) {
        int64_t at  = row * c->x_stride + i;
        vf      sum = bias;

        last[before] = load_lanes(c->x + at, n);
        if (c->times != NULL)
            last[before] *= load_lanes(c->times + at, n);
        for (int64_t j = 0; j <= before; j++)
            sum = vf_fma(weight[j], last[j], sum);
        if (c->is_silu)
            sum *= vf_sigmoid(sum);
        if (c->after != NULL)
            sum *= load_lanes(c->after + at, n);
        store_lanes(c->out + row * c->out_stride + i, sum, n);
        for (int64_t j = 0; j < before; j++)
            last[j] = last[j + 1];
    }
    for (int64_t j = 0; j < before; j++)
        store_lanes(c->state + j * c->stride + i, last[j], n);
}

static void dense_conv(const hl_conv *c)
{
    for (int64_t i = 0; i < c->n; i += VL)
        conv_lanes(c, i, c->n - i);
}

/* --------------------------------------------------------------- recurrences */

enum { SCAN_ROWS = 64, SCAN_VECTORS = 2, SCAN_LANES = SCAN_VECTORS * VL };

/* What rows [first, first + n_rows) need, apart from their vectors. */
typedef struct scan_rows {
    int64_t first;
    int64_t n_rows;
    float   decay[SCAN_ROWS];  /* e^(a dt) */
    float   put[SCAN_ROWS];    /* SSM: dt; DELTA: sigmoid(beta) / |k| */
    float   k_size[SCAN_ROWS]; /* DELTA: e^(a dt) / |k|, for the state before its decay */
    float   q_size[SCAN_ROWS]; /* DELTA: 1 / (|q| sqrt(d_state)) */
} scan_rows;

static double scan_softplus(double x)
{
    return x > 30.0 ? x : log1p(exp(x));
}

static double scan_step(const hl_scan *s, int64_t row, int64_t j)
{
    double bias = s->dt_bias != NULL ? s->dt_bias[j] : 0.0;
    double dt   = scan_softplus((double)s->dt_scale * (double)s->dt[row * s->dt_stride + j] + bias);

    return fmin(fmax(dt, s->dt_low), s->dt_high);
}

static float scan_length(const float *x, int64_t n)
{
    return (float)(1.0 / sqrt(row_mean_square(x, n, 0.0) * (double)n + 1e-6));
}

static void prepare_rows(scan_rows *r, const hl_scan *s)
{
    for (int64_t i = 0; i < r->n_rows; i++) {
        int64_t row = r->first + i;
        double  dt  = scan_step(s, row, 0);

        r->decay[i] = (float)exp((double)*s->a * dt);
        r->put[i]   = (float)dt;
        if (s->kind != HL_SCAN_DELTA)
            continue;
        float k_size = scan_length(s->k + row * s->k_stride, s->d_state);
        r->q_size[i] = scan_length(s->q + row * s->k_stride, s->d_state) / sqrtf((float)s->d_state);
        r->k_size[i] = r->decay[i] * k_size;
        r->put[i]    = k_size / (1.0f + expf(-s->beta[row * s->beta_stride]));
    }
}

/* Columns of a state, kept for the rows of a call. */
typedef struct scan_block {
    int64_t first;
    int64_t n[SCAN_VECTORS]; /* columns of each vector; 0 or less: none */
    vf      state[HL_MAX_STATE][SCAN_VECTORS];
} scan_block;

HL_INLINE vf load_column(const float *p, int64_t n)
{
    return n > 0 ? load_lanes(p, n) : vf_set(0.0f);
}

static void load_state(scan_block *b, const hl_scan *s, int64_t first, bool begins)
{
    b->first = first;
    for (int v = 0; v < SCAN_VECTORS; v++)
        b->n[v] = s->d_head - first - v * VL;
    for (int64_t i = 0; i < s->d_state; i++) {
        const float *from = s->state + i * s->state_stride + first;

        for (int v = 0; v < SCAN_VECTORS; v++)
            b->state[i][v] = begins ? vf_set(0.0f) : load_column(from + v * VL, b->n[v]);
    }
}

static void store_state(const scan_block *b, const hl_scan *s)
{
    for (int64_t i = 0; i < s->d_state; i++) {
        float *to = s->state + i * s->state_stride + b->first;

        for (int v = 0; v < SCAN_VECTORS && b->n[v] > 0; v++)
            store_lanes(to + v * VL, b->state[i][v], b->n[v]);
    }
}

/* put = S' k * size, by two independent sums. */
HL_INLINE void read_state(vf out[SCAN_VECTORS], const scan_block *b, const float *k, int64_t n)
{
    vf odd[SCAN_VECTORS] = { { 0 } };

    for (int v = 0; v < SCAN_VECTORS; v++)
        out[v] = vf_set(0.0f);
    for (int64_t i = 0; i < n; i += 2) {
        for (int v = 0; v < SCAN_VECTORS; v++)
            out[v] = vf_fma(vf_set(k[i]), b->state[i][v], out[v]);
        for (int v = 0; v < SCAN_VECTORS && i + 1 < n; v++)
            odd[v] = vf_fma(vf_set(k[i + 1]), b->state[i + 1][v], odd[v]);
    }
    for (int v = 0; v < SCAN_VECTORS; v++)
        out[v] += odd[v];
}

/* S = decay S + k put', and out = S' q. */
HL_INLINE void write_state(vf out[SCAN_VECTORS], scan_block *b, const float *k, const float *q,
                           vf decay, const vf put[SCAN_VECTORS], int64_t n)
{
    vf odd[SCAN_VECTORS] = { { 0 } };

    for (int v = 0; v < SCAN_VECTORS; v++)
        out[v] = vf_set(0.0f);
    for (int64_t i = 0; i < n; i += 2) {
        for (int v = 0; v < SCAN_VECTORS; v++) {
            b->state[i][v] = vf_fma(vf_set(k[i]), put[v], decay * b->state[i][v]);
            out[v]         = vf_fma(vf_set(q[i]), b->state[i][v], out[v]);
        }
        for (int v = 0; v < SCAN_VECTORS && i + 1 < n; v++) {
            b->state[i + 1][v] = vf_fma(vf_set(k[i + 1]), put[v], decay * b->state[i + 1][v]);
            odd[v]             = vf_fma(vf_set(q[i + 1]), b->state[i + 1][v], odd[v]);
        }
    }
    for (int v = 0; v < SCAN_VECTORS; v++)
        out[v] += odd[v];
}

static void scan_one_row(scan_block *b, const hl_scan *s, const scan_rows *r, int64_t i)
{
    int64_t      row   = r->first + i;
    bool         delta = s->kind == HL_SCAN_DELTA;
    const float *k     = s->k + row * s->k_stride;
    const float *q     = s->q + row * s->k_stride;
    vf           skip  = vf_set(s->skip != NULL ? *s->skip : 0.0f);
    vf           x[SCAN_VECTORS];
    vf           put[SCAN_VECTORS];
    vf           out[SCAN_VECTORS];

    for (int v = 0; v < SCAN_VECTORS; v++)
        x[v] = load_column(s->x + row * s->x_stride + b->first + v * VL, b->n[v]);
    if (delta)
        read_state(put, b, k, s->d_state);
    for (int v = 0; v < SCAN_VECTORS; v++)
        put[v] = delta ? (x[v] - put[v] * vf_set(r->k_size[i])) * vf_set(r->put[i])
                       : x[v] * vf_set(r->put[i]);
    write_state(out, b, k, q, vf_set(r->decay[i]), put, s->d_state);
    for (int v = 0; v < SCAN_VECTORS && b->n[v] > 0; v++) {
        out[v] = delta ? out[v] * vf_set(r->q_size[i]) : vf_fma(skip, x[v], out[v]);
        store_lanes(s->out + row * s->out_stride + b->first + v * VL, out[v], b->n[v]);
    }
}

/* HL_SCAN_CHANNEL: every entry has its own decay. */
static void scan_channels(scan_block *b, const hl_scan *s, const scan_rows *r)
{
    for (int v = 0; v < SCAN_VECTORS && b->n[v] > 0; v++) {
        int64_t at   = b->first + v * VL;
        int64_t n    = b->n[v] < VL ? b->n[v] : VL;
        vf      skip = s->skip != NULL ? load_lanes(s->skip + at, n) : vf_set(0.0f);

        for (int64_t row = r->first; row < r->first + r->n_rows; row++) {
            const float *k       = s->k + row * s->k_stride;
            const float *q       = s->q + row * s->k_stride;
            float        dts[VL] = { 0 };

            for (int64_t j = 0; j < n; j++)
                dts[j] = (float)scan_step(s, row, at + j);
            vf dt  = vf_load(dts);
            vf x   = load_lanes(s->x + row * s->x_stride + at, n);
            vf sum = skip * x;
            for (int64_t i = 0; i < s->d_state; i++) {
                vf a = load_lanes(s->a + i * s->state_stride + at, n);
                b->state[i][v] =
                    vf_fma(vf_set(k[i]), dt * x, vf_exp2(a * dt * vf_set(LOG2E)) * b->state[i][v]);
                sum = vf_fma(vf_set(q[i]), b->state[i][v], sum);
            }
            store_lanes(s->out + row * s->out_stride + at, sum, n);
        }
    }
}

static void dense_scan(const hl_scan *s)
{
    for (int64_t first = 0; first < s->n_rows; first += SCAN_ROWS) {
        int64_t    left = s->n_rows - first;
        scan_rows  r    = { .first = first, .n_rows = left < SCAN_ROWS ? left : SCAN_ROWS };
        scan_block b;

        if (s->kind != HL_SCAN_CHANNEL)
            prepare_rows(&r, s);
        for (int64_t column = 0; column < s->d_head; column += SCAN_LANES) {
            load_state(&b, s, column, s->begins && first == 0);
            if (s->kind == HL_SCAN_CHANNEL)
                scan_channels(&b, s, &r);
            for (int64_t i = 0; i < r.n_rows && s->kind != HL_SCAN_CHANNEL; i++)
                scan_one_row(&b, s, &r, i);
            store_state(&b, s);
        }
    }
}

#endif
