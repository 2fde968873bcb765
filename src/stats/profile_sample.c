/* profile_sample.c - whole rows of attention, and what heads write: how alike heads are.
 *
 * Some rows are looked at whole (metrics.md 5 defines the metrics).  Two heads are
 * compared by the total variation between their rows, half the sum of |A - B|.
 *
 * CKA of what two heads write.  Linear CKA is HSIC(a,b) / sqrt(HSIC(a,a) HSIC(b,b)), and
 * HSIC of all rows would need products of all pairs of them.  Instead it is estimated
 * from few rows at a time, without bias, and the estimates are summed: with the kernels
 * K and M of two heads over n rows, their diagonals set to 0,
 *
 *     sum K.M  +  (1'K1)(1'M1) / ((n-1)(n-2))  -  2/(n-2) 1'KM1
 *
 * (Song et al. 2012; as minibatch CKA, Nguyen et al. 2021).  These sums merge, and take
 * one number a pair.  Kernels are divided by their traces first, so that rows of
 * large norm do not outvote the others, and so that a term is below 8 in size: sum K.M is
 * at most 1, n^2 / ((n-1)(n-2)) and 2n / (n-2) are at most 1.53 and 2.67 from n = 8 on. */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "stats/profile_add.h"
#include "stats/profile_tables.h"

enum { BAND = 4, SORTED = 16 };

#define EDGE         1e-3
#define KEPT_SHARE   0.9
#define KERNEL_BOUND 8.0

/* ----------------------------------------------------------------- k90 of a row */

static void swap(float *a, float *b)
{
    float kept = *a;
    *a         = *b;
    *b         = kept;
}

static void sort_falling(float *values, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        for (int64_t j = i; j > 0 && values[j] > values[j - 1]; j--)
            swap(&values[j], &values[j - 1]);
    }
}

/* How many of the largest values add up to `wanted`; changes their order.  As quickselect:
 * of two halves only one is looked at again. */
static int64_t largest_for(float *values, int64_t n, double wanted)
{
    int64_t first = 0;
    int64_t last  = n;

    while (last - first > SORTED) {
        float   pivot = values[first + (last - first) / 2];
        int64_t above = first; /* values before it are larger than the pivot */
        int64_t below = last;  /* values from it on are smaller */
        double  sum   = 0.0;

        for (int64_t i = first; i < below;) {
            if (values[i] > pivot) {
                sum += (double)values[i];
                swap(&values[above++], &values[i++]);
            } else if (values[i] < pivot) {
                swap(&values[--below], &values[i]);
            } else {
                i++;
            }
        }
        if (sum >= wanted) {
            last = above;
            continue;
        }
        wanted -= sum + (double)(below - above) * (double)pivot;
        if (wanted <= 0.0) /* within those that equal the pivot */
            return below - (int64_t)floor(-wanted / (double)pivot);
        first = below;
    }
    sort_falling(values + first, last - first);
    while (first < last && wanted > 0.0)
        wanted -= (double)values[first++];
    return first;
}

/* --------------------------------------------------------------- metrics of a row */

/* Row `position` of a head: p[key] for keys [begin, end), 0 in the gap. */
typedef struct pattern_row {
    const float *p;
    hl_seen_keys keys;
    int64_t      position;
    double       total; /* of p over the keys */
    bool         has_sink;
} pattern_row;

typedef struct pattern_values {
    double   value[HL_N_PATTERN_METRICS];
    uint32_t defined;
} pattern_values;

static double row_total(const float *p, hl_seen_keys keys)
{
    double total = 0.0;

    for (int64_t key = keys.begin; key < keys.end; key++)
        total += (double)p[key];
    return total;
}

static void set(pattern_values *out, hl_pattern_metric metric, double value)
{
    out->value[metric] = fmin(fmax(value, 0.0), 1.0);
    out->defined |= 1U << metric;
}

static bool sees(const pattern_row *row, int64_t key)
{
    return hl_seen_has(row->keys, key);
}

static double band_mass(const pattern_row *row)
{
    double mass = 0.0;

    for (int64_t key = row->position - BAND; key <= row->position + BAND; key++)
        mass += sees(row, key) ? (double)row->p[key] : 0.0;
    return mass;
}

/* In double: without key 0 a row may be left with next to nothing. */
static double sum_of_squares(const float *p, int64_t n)
{
    double parts[4] = { 0 };

    for (int64_t i = 0; i < n / 4 * 4; i += 4) {
        for (int j = 0; j < 4; j++)
            parts[j] += (double)p[i + j] * (double)p[i + j];
    }
    for (int64_t i = n / 4 * 4; i < n; i++)
        parts[0] += (double)p[i] * (double)p[i];
    return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

/* What needs one look at every key; p is scaled so that the row sums to 1. */
static void whole_row(pattern_values *out, const pattern_row *row, double scale, float *scratch)
{
    int64_t n       = hl_seen_count(row->keys);
    int64_t n_hull  = row->keys.end - row->keys.begin; /* with the gap, which changes no sum */
    int64_t n_edges = 0;
    int64_t top     = row->keys.begin;
    double  rest    = row->has_sink ? fmax(1.0 - row->total, 0.0) : 0.0;
    double  squares = scale == 1.0 ? rest * rest : 0.0;
    int64_t n_all   = n + (row->has_sink && scale == 1.0 ? 1 : 0);
    float   edge    = (float)(EDGE / scale);

    for (int64_t key = row->keys.begin; key < row->keys.end; key++)
        n_edges += row->p[key] > edge;
    for (int64_t key = row->keys.begin; key < row->keys.end; key++)
        top = row->p[key] > row->p[top] ? key : top;
    squares += sum_of_squares(row->p + row->keys.begin, n_hull) * scale * scale;
    memcpy(scratch, row->p + row->keys.begin, (size_t)n_hull * sizeof *scratch);
    set(out, HL_PM_PEAK, (double)row->p[top] * scale);
    set(out, HL_PM_DIAGONAL_TOP, top == row->position ? 1.0 : 0.0);
    set(out, HL_PM_EDGES, (double)n_edges / (double)n);
    set(out, HL_PM_K90, (double)largest_for(scratch, n_hull, KEPT_SHARE * row->total) / (double)n);
    set(out, HL_PM_SUPPORT2, squares > 0.0 ? 1.0 / squares / (double)n_all : 0.0);
    set(out, HL_PM_CHANCE, 1.0 / (double)n);
}

/* With key 0, or with `row` beginning after it: then what is left is the whole. */
static pattern_values metrics_of(const pattern_row *row, bool nosink, float *scratch)
{
    pattern_values out     = { { 0 }, 0 };
    int64_t        i       = row->position;
    bool           to_zero = !nosink && row->keys.begin == 0;
    double         scale   = nosink ? 1.0 / row->total : 1.0;
    double         sink    = to_zero ? (double)row->p[0] : 0.0;
    double         band    = band_mass(row) * scale;

    if (hl_seen_count(row->keys) < 2 || !(row->total > 0.0))
        return out;
    if (sees(row, i))
        set(&out, HL_PM_DIAGONAL, (double)row->p[i] * scale);
    if (sees(row, i - 1))
        set(&out, HL_PM_PREVIOUS, (double)row->p[i - 1] * scale);
    if (to_zero && i >= 1)
        set(&out, HL_PM_SINK, sink);
    set(&out, HL_PM_BAND, band);
    set(&out, HL_PM_CONTENT, 1.0 - band - sink);
    whole_row(&out, row, scale, scratch);
    return out;
}

static void add_metrics(const hl_profile *profile, int64_t cell, const pattern_values *values,
                        bool nosink)
{
    for (int i = 0; i < HL_N_PATTERN_METRICS; i++) {
        int64_t at = (cell * HL_N_PATTERN_METRICS + i) * 2 + (nosink ? 1 : 0);

        if ((values->defined & 1U << i) == 0)
            continue;
        hl_counts(profile, HL_TABLE_PATTERN_COUNT)[at] += 1;
        hl_counts(profile, HL_TABLE_PATTERN_SUM)[at] += hl_unit(values->value[i]);
        hl_counts(profile, HL_TABLE_PATTERN_SQUARES)[at] +=
            hl_unit(values->value[i] * values->value[i]);
    }
}

/* -------------------------------------------------------------------- all heads */

/* One sampled row: all heads of it. */
typedef struct sampled_row {
    const hl_layer_rows *rows;
    const float         *p; /* (n_heads, n_patterns, n_keys), from this row's on */
    hl_seen_keys         keys;
    int64_t              position;
    bool                 has_sink;
} sampled_row;

static const float *row_of(const sampled_row *sample, int64_t head)
{
    return sample->p + head * sample->rows->n_patterns * sample->rows->n_keys;
}

static void add_sample(const hl_profile *profile, const sampled_row *sample, int64_t head,
                       float *scratch)
{
    int64_t        cell = hl_cell(profile, sample->rows->layer, head);
    pattern_row    row  = { row_of(sample, head), sample->keys, sample->position,
                            row_total(row_of(sample, head), sample->keys), sample->has_sink };
    pattern_values values;

    if (!isfinite(row.total))
        return;
    values = metrics_of(&row, false, scratch);
    add_metrics(profile, cell, &values, false);
    if (row.keys.begin == 0) {
        row.keys.begin = 1;
        row.total      = row_total(row.p, row.keys);
    }
    values = metrics_of(&row, true, scratch);
    add_metrics(profile, cell, &values, true);
}

/* Half the sum of |a - b|, in eight sums so that it can be vectors; what a learned sink
 * takes differs by as much as the keys' totals do. */
static double total_variation(const float *a, const float *b, hl_seen_keys keys, bool has_sink)
{
    float  parts[8] = { 0 };
    double sum      = 0.0;
    double net      = 0.0;

    int64_t key = keys.begin;

    for (; key + 8 <= keys.end; key += 8) {
        for (int i = 0; i < 8; i++)
            parts[i] += fabsf(a[key + i] - b[key + i]);
    }
    for (; key < keys.end; key++)
        parts[0] += fabsf(a[key] - b[key]);
    for (int i = 0; i < 8; i++)
        sum += (double)parts[i];
    if (has_sink)
        net = row_total(a, keys) - row_total(b, keys);
    return fmin(0.5 * (sum + fabs(net)), 1.0);
}

static bool all_finite(const sampled_row *sample)
{
    for (int64_t head = 0; head < sample->rows->n_heads; head++) {
        if (!isfinite(row_total(row_of(sample, head), sample->keys)))
            return false;
    }
    return true;
}

static void add_distances(const hl_profile *profile, const sampled_row *sample, int n_threads)
{
    int64_t *sums    = hl_counts(profile, HL_TABLE_DISTANCE_SUM);
    int64_t  layer   = sample->rows->layer;
    int64_t  n_heads = sample->rows->n_heads;

    if (!all_finite(sample))
        return;
    hl_counts(profile, HL_TABLE_DISTANCE_COUNT)[layer]++;
#pragma omp parallel for schedule(dynamic) num_threads(n_threads)
    for (int64_t a = 0; a < n_heads; a++) {
        for (int64_t b = a + 1; b < n_heads; b++)
            sums[hl_pair(profile, layer, a, b)] += hl_unit(total_variation(
                row_of(sample, a), row_of(sample, b), sample->keys, sample->has_sink));
    }
}

static int64_t pattern_row_of(const hl_layer_rows *rows, int64_t sequence, int64_t index)
{
    return rows->pattern_rows[(rows->patterns_differ ? sequence * rows->n_patterns : 0) + index];
}

static void add_row_samples(hl_profile *profile, const sampled_row *sample)
{
    hl_profile_flight *flight = profile->flight;
    int64_t            n_keys = sample->rows->n_keys;
    int                n_threads =
        hl_profile_threads(flight, sample->rows->n_heads * (sample->keys.end - sample->keys.begin));

#pragma omp parallel for schedule(static) num_threads(n_threads)
    for (int64_t head = 0; head < sample->rows->n_heads; head++)
        add_sample(profile, sample, head, flight->row + hl_thread_index() * n_keys);
    add_distances(profile, sample, n_threads);
}

hl_status hl_profile_samples(hl_profile *profile, const hl_layer_rows *rows,
                             const hl_profile_mask *mask)
{
    const hl_profile_batch *batch  = profile->flight->batch;
    hl_status               status = HL_OK;

    HL_TRY(hl_profile_grow((void **)&profile->flight->row, &profile->flight->n_row,
                           (size_t)(hl_threads(batch->n_threads) * rows->n_keys),
                           sizeof *profile->flight->row));
    for (int64_t i = 0; i < rows->n_batch * rows->n_patterns; i++) {
        int64_t     sequence = i / rows->n_patterns;
        int64_t     index    = i % rows->n_patterns;
        int64_t     row      = pattern_row_of(rows, sequence, index);
        sampled_row sample   = { .rows     = rows,
                                 .position = rows->start[sequence] + row,
                                 .has_sink = mask->has_sink };

        if (row < 0 || row >= rows->lengths[sequence] ||
            sample.position < batch->first_row[sequence])
            continue;
        sample.keys = hl_profile_seen(mask, sample.position, batch->lengths[sequence]);
        sample.p =
            rows->pattern + (sequence * rows->n_heads * rows->n_patterns + index) * rows->n_keys;
        if (hl_seen_count(sample.keys) >= 2)
            add_row_samples(profile, &sample);
    }

done:
    return status;
}

/* -------------------------------------------------------------------------- CKA */

/* A kernel with its diagonal gone and its trace divided out: (n, n), then the sums of
 * its rows (n) and of all of it (1). */
static bool prepare_kernel(double *out, const double *kernel, int64_t n)
{
    double  trace = 0.0;
    double *sums  = out + n * n;

    for (int64_t i = 0; i < n; i++)
        trace += kernel[i * n + i];
    memset(sums, 0, (size_t)(n + 1) * sizeof *sums);
    for (int64_t i = 0; i < n * n; i++) {
        /* The trace bounds all entries; a head that writes nothing has a trace of 0. */
        out[i] = i / n == i % n || !(trace > 0.0) ? 0.0 : kernel[i] / trace;
        sums[i / n] += out[i];
        sums[n] += out[i];
    }
    return isfinite(trace) && isfinite(sums[n]);
}

static double hsic(const double *a, const double *b, int64_t n)
{
    const double *a_sums = a + n * n;
    const double *b_sums = b + n * n;
    double        both   = 0.0;
    double        rows   = 0.0;

    for (int64_t i = 0; i < n * n; i++)
        both += a[i] * b[i];
    for (int64_t i = 0; i < n; i++)
        rows += a_sums[i] * b_sums[i];
    return both + a_sums[n] * b_sums[n] / (double)((n - 1) * (n - 2)) -
           2.0 / (double)(n - 2) * rows;
}

hl_status hl_profile_kernels(hl_profile *profile, int64_t layer, const double *kernels, int64_t n)
{
    hl_status status  = HL_OK;
    int64_t   n_heads = profile->heads[layer];
    int64_t   size    = n * n + n + 1;
    int64_t  *sums    = hl_counts(profile, HL_TABLE_KERNEL_SUM);
    bool      sound   = true;

    if (n < HL_CKA_MIN_ROWS)
        return HL_OK;
    HL_TRY(hl_profile_grow((void **)&profile->flight->kernels, &profile->flight->n_kernels,
                           (size_t)(n_heads * size), sizeof *profile->flight->kernels));
    double *prepared = profile->flight->kernels;
    for (int64_t head = 0; head < n_heads; head++)
        sound = prepare_kernel(prepared + head * size, kernels + head * n * n, n) && sound;
    if (!sound)
        return HL_OK;
    hl_counts(profile, HL_TABLE_KERNEL_COUNT)[layer]++;
    for (int64_t a = 0; a < n_heads; a++) {
        for (int64_t b = a; b < n_heads; b++) {
            double term = hsic(prepared + a * size, prepared + b * size, n) / KERNEL_BOUND;
            sums[hl_self_pair(profile, layer, a, b)] += hl_unit(fmin(fmax(term, -1.0), 1.0));
        }
    }

done:
    return status;
}
