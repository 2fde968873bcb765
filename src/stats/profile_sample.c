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

#define EDGE       1e-3
#define KEPT_SHARE 0.9

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

/* Values of a row by size: the bits of a float from 0 to 1 rise with its value, and these are
 * its exponent and two more. */
enum { N_SIZES = 512, SIZE_SHIFT = 21 };

typedef struct size_table {
    int32_t count[N_SIZES];
    double  sum[N_SIZES];
} size_table;

static uint32_t size_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    bits >>= SIZE_SHIFT;
    return bits < N_SIZES ? bits : N_SIZES - 1;
}

static void add_size(size_table *table, float value)
{
    uint32_t size = size_of(value);

    table->count[size]++;
    table->sum[size] += (double)value;
}

/* How many of the largest values, of which the table tells, add up to `wanted`.  Only those
 * of the size at which they do are looked at again. */
static int64_t largest_of_sizes(const size_table *table, const float *values, int64_t n,
                                double wanted, float *scratch)
{
    int64_t  n_larger = 0;
    int64_t  n_equal  = 0;
    uint32_t size     = N_SIZES - 1;

    for (; size > 0 && table->sum[size] < wanted; size--) {
        wanted -= table->sum[size];
        n_larger += table->count[size];
    }
    for (int64_t i = 0; i < n; i++) {
        scratch[n_equal] = values[i];
        n_equal += size_of(values[i]) == size;
    }
    return n_larger + largest_for(scratch, n_equal, wanted);
}

/* --------------------------------------------------------------- metrics of a row */

/* Row `position` of a head: p[key] for keys [begin, end), 0 in the gap. */
typedef struct pattern_row {
    const float *p;
    hl_seen_keys keys;
    int64_t      position;
    bool         has_sink;
    /* Of the keys: */
    double     total;
    double     squares;
    int64_t    top; /* the lowest of equals */
    size_table sizes;
} pattern_row;

typedef struct pattern_values {
    double   value[HL_N_PATTERN_METRICS];
    uint32_t defined;
} pattern_values;

/* In double: without key 0 a row may be left with next to nothing. */
static void add_up(double *total, double *squares, const float *p, int64_t n)
{
    double sums[2][4] = { { 0 } };

    for (int64_t i = 0; i < n / 4 * 4; i += 4) {
        for (int j = 0; j < 4; j++) {
            double value = (double)p[i + j];
            sums[0][j] += value;
            sums[1][j] += value * value;
        }
    }
    for (int64_t i = n / 4 * 4; i < n; i++) {
        sums[0][0] += (double)p[i];
        sums[1][0] += (double)p[i] * (double)p[i];
    }
    *total   = (sums[0][0] + sums[0][1]) + (sums[0][2] + sums[0][3]);
    *squares = (sums[1][0] + sums[1][1]) + (sums[1][2] + sums[1][3]);
}

/* The largest in eight parts, as vectors, then where it first stands. */
static int64_t find_top(const float *p, int64_t begin, int64_t end)
{
    enum { PARTS = 8 };
    float   most[PARTS] = { 0 };
    int64_t key         = begin;
    int64_t top         = begin;

    for (; key + PARTS <= end; key += PARTS) {
        for (int part = 0; part < PARTS; part++)
            most[part] = p[key + part] > most[part] ? p[key + part] : most[part];
    }
    for (; key < end; key++)
        most[0] = fmaxf(most[0], p[key]);
    for (int part = 1; part < PARTS; part++)
        most[0] = fmaxf(most[0], most[part]);
    while (top < end - 1 && p[top] != most[0])
        top++;
    return top;
}

/* The row without key 0, where it begins with it; all that needs a look at every key. */
static void read_others(pattern_row *row)
{
    int64_t begin = row->keys.begin == 0 ? 1 : row->keys.begin;
    int64_t end   = row->keys.end; /* with the gap, which changes no sum */

    memset(&row->sizes, 0, sizeof row->sizes);
    for (int64_t key = begin; key < end; key++)
        add_size(&row->sizes, row->p[key]);
    add_up(&row->total, &row->squares, row->p + begin, end - begin);
    row->top        = find_top(row->p, begin, end);
    row->keys.begin = begin;
}

/* And key 0 with the others. */
static void add_first(pattern_row *row)
{
    double first = (double)row->p[0];

    add_size(&row->sizes, row->p[0]);
    row->total += first;
    row->squares += first * first;
    row->top        = row->p[0] >= row->p[row->top] ? 0 : row->top;
    row->keys.begin = 0;
}

static void set(pattern_values *out, hl_pattern_metric metric, double value)
{
    value              = value > 0.0 ? value : 0.0;
    out->value[metric] = value < 1.0 ? value : 1.0;
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

static int64_t count_edges(const pattern_row *row, float edge)
{
    int32_t n_edges = 0;

    for (int64_t key = row->keys.begin; key < row->keys.end; key++)
        n_edges += row->p[key] > edge;
    return n_edges;
}

/* Of all keys; p is scaled so that the row sums to 1. */
static void whole_row(pattern_values *out, const pattern_row *row, double scale, float *scratch)
{
    int64_t n       = hl_seen_count(row->keys);
    int64_t n_hull  = row->keys.end - row->keys.begin;
    double  rest    = row->has_sink ? fmax(1.0 - row->total, 0.0) : 0.0;
    double  squares = row->squares * scale * scale + (scale == 1.0 ? rest * rest : 0.0);
    int64_t n_all   = n + (row->has_sink && scale == 1.0 ? 1 : 0);
    int64_t k90     = largest_of_sizes(&row->sizes, row->p + row->keys.begin, n_hull,
                                       KEPT_SHARE * row->total, scratch);

    set(out, HL_PM_PEAK, (double)row->p[row->top] * scale);
    set(out, HL_PM_DIAGONAL_TOP, row->top == row->position ? 1.0 : 0.0);
    set(out, HL_PM_EDGES, (double)count_edges(row, (float)(EDGE / scale)) / (double)n);
    set(out, HL_PM_K90, (double)k90 / (double)n);
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

static const float *row_of(const hl_sampled_row *sample, int64_t head)
{
    return sample->p + head * sample->rows->n_patterns * sample->rows->n_keys;
}

/* The total of the row, which is not finite where a probability is not. */
static double add_sample(const hl_profile *profile, const hl_sampled_row *sample, int64_t head,
                         float *scratch)
{
    int64_t        cell = hl_cell(profile, sample->rows->layer, head);
    pattern_row    row  = { .p        = row_of(sample, head),
                            .keys     = sample->keys,
                            .position = sample->position,
                            .has_sink = sample->has_sink };
    pattern_values values;

    read_others(&row);
    double total = row.total + (sample->keys.begin == 0 ? (double)row.p[0] : 0.0);
    if (!isfinite(total))
        return total;
    values = metrics_of(&row, true, scratch);
    add_metrics(profile, cell, &values, true);
    if (sample->keys.begin == 0)
        add_first(&row);
    values = metrics_of(&row, false, scratch);
    add_metrics(profile, cell, &values, false);
    return total;
}

/* Half the sum of |a - b|, in eight sums so that it can be vectors. */
static double total_variation(const float *a, const float *b, hl_seen_keys keys)
{
    float   parts[8] = { 0 };
    double  sum      = 0.0;
    int64_t key      = keys.begin;

    for (; key + 8 <= keys.end; key += 8) {
        for (int i = 0; i < 8; i++)
            parts[i] += fabsf(a[key + i] - b[key + i]);
    }
    for (; key < keys.end; key++)
        parts[0] += fabsf(a[key] - b[key]);
    for (int i = 0; i < 8; i++)
        sum += (double)parts[i];
    return 0.5 * sum;
}

/* What a learned sink takes differs by as much as the keys' totals do. */
void hl_profile_add_distance(const hl_profile *profile, const hl_sampled_row *sample,
                             const double *totals, int64_t a, int64_t b, double distance)
{
    int64_t pair = hl_pair(profile, sample->rows->layer, a, b);

    if (sample->has_sink)
        distance += 0.5 * fabs(totals[a] - totals[b]);
    hl_counts(profile, HL_TABLE_DISTANCE_SUM)[pair] += hl_unit(fmin(distance, 1.0));
}

bool hl_profile_all_finite(const double *totals, int64_t n)
{
    bool finite = true;

    for (int64_t i = 0; i < n; i++)
        finite = finite && isfinite(totals[i]);
    return finite;
}

/* Of head a to those that follow. */
static void add_distances(const hl_profile *profile, const hl_sampled_row *sample,
                          const double *totals, int64_t a)
{
    int64_t n_heads = sample->rows->n_heads;

    if (!hl_profile_all_finite(totals, n_heads))
        return;
    for (int64_t b = a + 1; b < n_heads; b++) {
        double distance = total_variation(row_of(sample, a), row_of(sample, b), sample->keys);
        hl_profile_add_distance(profile, sample, totals, a, b, distance);
    }
}

static int64_t pattern_row_of(const hl_layer_rows *rows, int64_t sequence, int64_t index)
{
    return rows->pattern_rows[(rows->patterns_differ ? sequence * rows->n_patterns : 0) + index];
}

/* The rows of a layer that are looked at; out (n_batch * n_patterns) gets them. */
static int64_t find_samples(hl_sampled_row *out, const hl_profile_batch *batch,
                            const hl_layer_rows *rows, const hl_profile_mask *mask)
{
    int64_t n = 0;

    for (int64_t i = 0; i < rows->n_batch * rows->n_patterns; i++) {
        int64_t        sequence = i / rows->n_patterns;
        int64_t        index    = i % rows->n_patterns;
        int64_t        row      = pattern_row_of(rows, sequence, index);
        hl_sampled_row sample   = { .rows     = rows,
                                    .position = rows->start[sequence] + row,
                                    .has_sink = mask->has_sink };

        if (row < 0 || row >= rows->lengths[sequence] ||
            sample.position < batch->first_row[sequence])
            continue;
        sample.keys = hl_profile_seen(mask, sample.position, batch->lengths[sequence]);
        sample.p =
            rows->pattern + (sequence * rows->n_heads * rows->n_patterns + index) * rows->n_keys;
        if (hl_seen_count(sample.keys) >= 2)
            out[n++] = sample;
    }
    return n;
}

hl_status hl_profile_samples_open(hl_profile *profile, const hl_layer_rows *rows,
                                  const hl_profile_mask *mask)
{
    hl_profile_flight      *flight    = profile->flight;
    const hl_profile_batch *batch     = flight->batch;
    size_t                  n_samples = (size_t)(rows->n_batch * rows->n_patterns);
    hl_status               status    = HL_OK;

    HL_TRY(hl_profile_grow((void **)&flight->row, &flight->n_row,
                           (size_t)(hl_threads(batch->n_threads) * rows->n_keys),
                           sizeof *flight->row));
    HL_TRY(hl_profile_grow((void **)&flight->totals, &flight->n_totals,
                           n_samples * (size_t)rows->n_heads, sizeof *flight->totals));
    HL_TRY(hl_profile_grow((void **)&flight->samples, &flight->n_samples, n_samples,
                           sizeof *flight->samples));
    flight->n_found = find_samples(flight->samples, batch, rows, mask);

done:
    return status;
}

void hl_profile_samples_head(hl_profile *profile, const hl_layer_rows *rows, int64_t head)
{
    const hl_profile_flight *flight  = profile->flight;
    float                   *scratch = flight->row + hl_thread_index() * rows->n_keys;

    for (int64_t i = 0; i < flight->n_found; i++)
        flight->totals[i * rows->n_heads + head] =
            add_sample(profile, &flight->samples[i], head, scratch);
}

void hl_profile_samples_pairs(hl_profile *profile, const hl_layer_rows *rows, int64_t head)
{
    const hl_profile_flight *flight = profile->flight;

    for (int64_t i = 0; i < flight->n_found; i++)
        add_distances(profile, &flight->samples[i], flight->totals + i * rows->n_heads, head);
}

void hl_profile_samples_close(hl_profile *profile, const hl_layer_rows *rows)
{
    const hl_profile_flight *flight = profile->flight;

    for (int64_t i = 0; i < flight->n_found; i++)
        hl_counts(profile, HL_TABLE_DISTANCE_COUNT)[rows->layer] +=
            hl_profile_all_finite(flight->totals + i * rows->n_heads, rows->n_heads);
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

static double dot_of(const double *a, const double *b, int64_t n)
{
    double sums[4] = { 0 };

    for (int64_t i = 0; i < n / 4 * 4; i += 4) {
        for (int j = 0; j < 4; j++)
            sums[j] += a[i + j] * b[i + j];
    }
    for (int64_t i = n / 4 * 4; i < n; i++)
        sums[0] += a[i] * b[i];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

static double hsic(const double *a, const double *b, int64_t n)
{
    const double *a_sums = a + n * n;
    const double *b_sums = b + n * n;
    double        both   = dot_of(a, b, n * n);
    double        rows   = dot_of(a_sums, b_sums, n);

    return both + a_sums[n] * b_sums[n] / (double)((n - 1) * (n - 2)) -
           2.0 / (double)(n - 2) * rows;
}

/* Of one sequence and head, prepared for (n, n), and behind that whether all is finite. */
static double *prepared_kernel(const hl_profile *profile, int64_t sequence, int64_t head)
{
    int64_t most = profile->flight->kernel_rows;
    int64_t size = most * most + most + 2;

    return profile->flight->kernels + (sequence * profile->n_heads + head) * size;
}

static bool all_sound(const hl_profile *profile, int64_t layer, int64_t sequence, int64_t n)
{
    bool sound = n >= HL_CKA_MIN_ROWS;

    for (int64_t head = 0; head < profile->heads[layer] && sound; head++)
        sound = prepared_kernel(profile, sequence, head)[n * n + n + 1] != 0.0;
    return sound;
}

hl_status hl_profile_kernels_open(hl_profile *profile, int64_t n_sequences, int64_t n)
{
    hl_profile_flight *flight = profile->flight;

    flight->kernel_rows = n;
    return hl_profile_grow((void **)&flight->kernels, &flight->n_kernels,
                           (size_t)(n_sequences * profile->n_heads * (n * n + n + 2)),
                           sizeof *flight->kernels);
}

void hl_profile_kernels_head(hl_profile *profile, int64_t sequence, int64_t head,
                             const double *kernel, int64_t n)
{
    double *prepared = prepared_kernel(profile, sequence, head);

    prepared[n * n + n + 1] = prepare_kernel(prepared, kernel, n) ? 1.0 : 0.0;
}

void hl_profile_kernels_pairs(hl_profile *profile, int64_t layer, int64_t sequence, int64_t head,
                              int64_t n)
{
    int64_t *sums = hl_counts(profile, HL_TABLE_KERNEL_SUM);

    if (!all_sound(profile, layer, sequence, n))
        return;
    for (int64_t other = head; other < profile->heads[layer]; other++) {
        double term = hsic(prepared_kernel(profile, sequence, head),
                           prepared_kernel(profile, sequence, other), n) /
                      HL_KERNEL_BOUND;
        sums[hl_self_pair(profile, layer, head, other)] += hl_unit(fmin(fmax(term, -1.0), 1.0));
    }
}

void hl_profile_kernels_close(hl_profile *profile, int64_t layer, int64_t sequence, int64_t n)
{
    hl_counts(profile, HL_TABLE_KERNEL_COUNT)[layer] += all_sound(profile, layer, sequence, n);
}
