/* device_host_ends.c - logits, whole rows of attention and sums of rows, on the device "host". */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "kernels/device_host.h"

/* -------------------------------------------------------------------- logits */

hl_status hl_device_host_cap(hl_device *device, const hl_device_cap *cap)
{
    (void)device;
    for (int64_t i = 0; i < cap->count; i++) {
        cap->x[i] *= cap->scale;
        if (cap->softcap > 0.0f)
            cap->x[i] = cap->softcap * tanhf(cap->x[i] / cap->softcap);
    }
    return HL_OK;
}

static int64_t top_of(const float *logits, int64_t n)
{
    int64_t top = 0;

    for (int64_t i = 1; i < n; i++) {
        if (logits[i] > logits[top])
            top = i;
    }
    return top;
}

static float gap_of(const float *logits, int64_t n, int64_t top)
{
    float second = -INFINITY;

    for (int64_t i = 0; i < n; i++) {
        if (i != top && logits[i] > second)
            second = logits[i];
    }
    return logits[top] - second;
}

/* How far a row is from the one kept in its place; or it is kept. */
static double compare_row(const hl_device_kept *kept, const float *logits, int64_t row, double lse,
                          int64_t n)
{
    float *a  = kept->logits + row * n;
    double kl = 0.0;

    if (kept->puts) {
        memcpy(a, logits, (size_t)n * sizeof *a);
        kept->lse[row] = lse;
        return 0.0;
    }
    double shift = lse - kept->lse[row];
    for (int64_t i = 0; i < n; i++) {
        float p = (float)exp((double)a[i] - kept->lse[row]);

        if (p > 0.0f) /* a token that cannot be has logit -inf in both */
            kl += (double)p * ((double)a[i] - (double)logits[i] + shift);
    }
    return kl;
}

static void read_row(const hl_device_logits *l, int64_t row)
{
    const float *logits = l->logits + row * l->n;
    int64_t      top    = top_of(logits, l->n);
    double       max    = (double)logits[top];
    double       rest   = 0.0; /* the sum of exponentials, less the largest's 1 */
    double       dot    = 0.0;

    for (int64_t i = 0; i < l->n; i++) {
        double offset = (double)logits[i] - max;
        double weight = exp(offset);

        if (i != top && !(weight <= 0.0)) { /* 0 * -inf is NaN */
            rest += weight;
            dot += weight * offset;
        }
    }
    if (l->top != NULL)
        l->top[row] = top;
    if (l->entropy != NULL)
        l->entropy[row] = (float)(log1p(rest) - dot / (1.0 + rest));
    if (l->gap != NULL)
        l->gap[row] = gap_of(logits, l->n, top);
    if (l->losses != NULL)
        l->losses[row] =
            l->targets[row] >= 0 ? max + log1p(rest) - (double)logits[l->targets[row]] : NAN;
    if (l->kept.logits != NULL)
        l->divergence[row] = compare_row(&l->kept, logits, row, max + log1p(rest), l->n);
}

static void find_bad(const hl_device_logits *l)
{
    for (int64_t i = 0; i < l->n_rows * l->n; i++) {
        if (!isfinite(l->logits[i]))
            *l->flag |= 1;
    }
}

hl_status hl_device_host_logits(hl_device *device, const hl_device_logits *logits)
{
    (void)device;
    for (int64_t row = 0; row < logits->n_rows; row++)
        read_row(logits, row);
    if (logits->flag != NULL)
        find_bad(logits);
    return HL_OK;
}

hl_status hl_device_host_finite(hl_device *device, const hl_device_finite *finite)
{
    const hl_device_places *places = &finite->places;
    (void)device;

    for (int64_t row = 0; row < places->n_batch * places->batch_rows; row++) {
        if (row % places->batch_rows >= places->lengths[row / places->batch_rows])
            continue;
        for (int64_t i = 0; i < finite->n; i++) {
            if (!isfinite(finite->x[row * finite->n + i]))
                *finite->flag |= 1;
        }
    }
    return HL_OK;
}

/* ------------------------------------------------------------------ patterns */

hl_status hl_device_host_patterns(hl_device *device, const hl_device_patterns *p)
{
    hl_status status = HL_OK;
    double   *scores = NULL;
    (void)device;

    HL_TRY(HL_ALLOC(&scores, (size_t)p->problem->n_keys));
    for (int64_t i = 0; i < p->n_items; i++) {
        const int64_t *item = p->items + 3 * i;
        float         *out  = p->out + i * p->out_stride;

        if (item[2] < 0)
            continue;
        memset(out, 0, (size_t)p->out_stride * sizeof *out);
        HL_TRY(hl_attention_pattern(out, scores, p->statistics != NULL ? &p->statistics[i] : NULL,
                                    p->problem, item[0], item[1], item[2]));
    }

done:
    hl_free(scores);
    return status;
}

/* ---------------------------------------------------------------------- sums */

enum { N_BINS = 64 };
#define FIXED_ONE     0x1p40
#define UNIT_ONE      0x1p22
#define SMALL_LIMIT   32.0f
#define ENTROPY_SLACK 1e-3

/* One head's rows of one run. */
typedef struct run_rows {
    const float *values[HL_N_QUANTITIES]; /* FAIR is made of ENTROPY */
    int64_t      plan;                    /* the run's first row among (B, C) */
    int64_t      first;                   /* ... among (B, H, C) */
    int64_t      n;
} run_rows;

static run_rows rows_of(const hl_device_reduce *r, int64_t head, const hl_run *run)
{
    const hl_attention_result *rows = r->rows;

    return (run_rows){
        .values = { [HL_Q_ENTROPY]    = rows->entropy,
                    [HL_Q_FAIR]       = rows->entropy,
                    [HL_Q_RENYI2]     = rows->renyi2,
                    [HL_Q_VARENTROPY] = rows->varentropy,
                    [HL_Q_PEAK]       = rows->peak,
                    [HL_Q_SELF]       = rows->diagonal,
                    [HL_Q_PREVIOUS]   = rows->previous,
                    [HL_Q_FIRST]      = rows->first,
                    [HL_Q_NOSINK]     = rows->entropy_nosink },
        .plan   = run->sequence * r->batch_rows + run->begin,
        .first  = (run->sequence * r->n_heads + head) * r->batch_rows + run->begin,
        .n      = run->end - run->begin,
    };
}

static bool is_small(const hl_device_reduce *r, const run_rows *rows)
{
    for (int64_t i = 0; i < rows->n; i++) {
        double entropy = (double)rows->values[HL_Q_ENTROPY][rows->first + i];

        if (!(entropy <= r->log_n[rows->plan + i] + ENTROPY_SLACK))
            return false;
        for (int quantity = 0; quantity < HL_N_QUANTITIES; quantity++) {
            if (!(fabsf(rows->values[quantity][rows->first + i]) < SMALL_LIMIT))
                return false;
        }
    }
    return true;
}

static void sum_quantity(hl_run_sums *out, const hl_device_reduce *r, const run_rows *rows,
                         int quantity)
{
    for (int64_t i = 0; i < rows->n; i++) {
        double value = (double)rows->values[quantity][rows->first + i];

        if (quantity == HL_Q_FAIR)
            value *= r->inverse[rows->plan + i];
        out->sum[quantity] += llrint(value * FIXED_ONE);
        out->squares[quantity] += llrint(value * value * FIXED_ONE);
        out->min[quantity] = fminf(out->min[quantity], (float)value);
        out->max[quantity] = fmaxf(out->max[quantity], (float)value);
    }
}

static void add_histogram(int64_t *out, const float *values, const double *scale, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double place = (double)values[i] * (scale != NULL ? scale[i] : 1.0) * N_BINS;

        place = place > 0.0 ? place : 0.0;
        out[(int)(place < N_BINS - 1 ? place : N_BINS - 1)]++;
    }
}

static void add_histograms(int64_t *out, const hl_device_reduce *r, const run_rows *rows,
                           uint32_t defined)
{
    const float  *values[HL_N_HISTOGRAMS] = { [HL_HIST_NORMALISED] = rows->values[HL_Q_ENTROPY],
                                              [HL_HIST_NOSINK]     = rows->values[HL_Q_NOSINK],
                                              [HL_HIST_PEAK]       = rows->values[HL_Q_PEAK] };
    const double *scales[HL_N_HISTOGRAMS] = { [HL_HIST_NORMALISED] = r->inverse + rows->plan,
                                              [HL_HIST_NOSINK] = r->inverse_other + rows->plan };

    for (int i = 0; i < HL_N_HISTOGRAMS; i++) {
        if ((defined & 1U << (HL_N_QUANTITIES + i)) != 0)
            add_histogram(out + i * N_BINS, values[i] + rows->first, scales[i], rows->n);
    }
}

static void add_lookback(int64_t *out, const hl_device_reduce *r, const run_rows *rows)
{
    for (int64_t i = 0; i < rows->n * r->n_types; i++) {
        float share = r->rows->segment_mass[rows->first * r->n_types + i];

        share = share > 0.0f ? share : 0.0f;
        share = share < 1.0f ? share : 1.0f;
        out[i % r->n_types] += llrint((double)share * UNIT_ONE);
    }
}

static void reduce_run(const hl_device_reduce *r, int64_t head, int64_t index)
{
    const hl_run *run  = &r->runs[index];
    hl_run_sums  *out  = &r->sums[head * r->n_runs + index];
    run_rows      rows = rows_of(r, head, run);

    *out = (hl_run_sums){ .is_small = is_small(r, &rows) };
    for (int quantity = 0; quantity < HL_N_QUANTITIES; quantity++) {
        out->min[quantity] = INFINITY;
        out->max[quantity] = -INFINITY;
        if (out->is_small && (run->defined & 1U << quantity) != 0)
            sum_quantity(out, r, &rows, quantity);
    }
    if (!out->is_small)
        return;
    add_histograms(r->histogram + head * HL_N_HISTOGRAMS * N_BINS, r, &rows, run->defined);
    if (r->lookback != NULL)
        add_lookback(r->lookback + (head * r->n_types + run->type) * r->n_types, r, &rows);
}

hl_status hl_device_host_reduce(hl_device *device, int lane, const hl_device_reduce *r)
{
    (void)device;
    (void)lane;
    memset(r->histogram, 0, (size_t)(r->n_heads * HL_N_HISTOGRAMS * N_BINS) * sizeof(int64_t));
    if (r->lookback != NULL)
        memset(r->lookback, 0, (size_t)(r->n_heads * r->n_types * r->n_types) * sizeof(int64_t));
    for (int64_t i = 0; i < r->n_heads * r->n_runs; i++)
        reduce_run(r, i / r->n_runs, i % r->n_runs);
    return HL_OK;
}
