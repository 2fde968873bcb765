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
#include <math.h>
#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "stats/profile_add.h"
#include "stats/profile_tables.h"

/* --------------------------------------------------------- metrics of a row */

/* A row with key 0, or the others as a whole of their own. */
typedef struct pattern_row {
    const hl_pattern_sums *sums;
    hl_visible_keys        keys;
    int64_t                position;
    bool                   has_sink;
    bool                   nosink;
    /* Of the keys: */
    double  total;
    double  squares;
    int64_t top;
    float   peak;
} pattern_row;

typedef struct pattern_values {
    double   value[HL_N_PATTERN_METRICS];
    uint32_t defined;
} pattern_values;

/* The row without key 0, where it begins with it. */
static pattern_row others_of(const hl_sampled_row *sample, const hl_pattern_sums *sums)
{
    pattern_row row = { .sums     = sums,
                        .keys     = sample->place.keys,
                        .position = sample->place.position,
                        .has_sink = sample->has_sink,
                        .nosink   = true,
                        .total    = sums->total,
                        .squares  = sums->squares,
                        .top      = sums->top,
                        .peak     = sums->peak };

    return row;
}

/* And key 0 with the others. */
static pattern_row whole_of(const hl_sampled_row *sample, const hl_pattern_sums *sums)
{
    pattern_row row   = others_of(sample, sums);
    double      first = (double)sums->first;

    row.nosink = false;
    if (!hl_visible_has(row.keys, 0))
        return row;
    row.total += first;
    row.squares += first * first;
    if (sums->first >= sums->peak) {
        row.top  = 0;
        row.peak = sums->first;
    }
    return row;
}

static void set(pattern_values *out, hl_pattern_metric metric, double value)
{
    value              = value > 0.0 ? value : 0.0;
    out->value[metric] = value < 1.0 ? value : 1.0;
    out->defined |= 1U << metric;
}

static bool sees(const pattern_row *row, int64_t key)
{
    return hl_visible_has(row->keys, key) && !(row->nosink && key == 0);
}

static int64_t count_keys(const pattern_row *row)
{
    return hl_visible_count(row->keys) - (row->nosink && hl_visible_has(row->keys, 0) ? 1 : 0);
}

static float near_by(const pattern_row *row, int64_t key)
{
    return row->sums->near_by[key - row->position + HL_BAND];
}

static double band_mass(const pattern_row *row)
{
    double mass = 0.0;

    for (int64_t key = row->position - HL_BAND; key <= row->position + HL_BAND; key++)
        mass += sees(row, key) ? (double)near_by(row, key) : 0.0;
    return mass;
}

/* Of all keys; p is scaled so that the row sums to 1. */
static void whole_row(pattern_values *out, const pattern_row *row, double scale)
{
    double  n       = (double)count_keys(row);
    double  rest    = row->has_sink ? fmax(1.0 - row->total, 0.0) : 0.0;
    double  squares = row->squares * scale * scale + (scale == 1.0 ? rest * rest : 0.0);
    double  n_all   = n + (row->has_sink && scale == 1.0 ? 1.0 : 0.0);
    int32_t n_edges = row->sums->n_edges[row->nosink];
    int32_t k90     = row->sums->k90[row->nosink];

    set(out, HL_PM_PEAK, (double)row->peak * scale);
    set(out, HL_PM_DIAGONAL_TOP, row->top == row->position ? 1.0 : 0.0);
    set(out, HL_PM_EDGES, (double)n_edges / n);
    set(out, HL_PM_K90, (double)k90 / n);
    set(out, HL_PM_SUPPORT2, squares > 0.0 ? 1.0 / squares / n_all : 0.0);
    set(out, HL_PM_CHANCE, 1.0 / n);
}

/* Where key 0 is not among the keys, what is left is the whole. */
static pattern_values metrics_of(const pattern_row *row)
{
    pattern_values out     = { { 0 }, 0 };
    int64_t        i       = row->position;
    bool           to_zero = sees(row, 0);
    double         scale   = row->nosink ? 1.0 / row->total : 1.0;
    double         sink    = to_zero ? (double)row->sums->first : 0.0;
    double         band    = band_mass(row) * scale;

    if (count_keys(row) < 2 || !(row->total > 0.0))
        return out;
    if (sees(row, i))
        set(&out, HL_PM_DIAGONAL, (double)near_by(row, i) * scale);
    if (sees(row, i - 1))
        set(&out, HL_PM_PREVIOUS, (double)near_by(row, i - 1) * scale);
    if (to_zero && i >= 1)
        set(&out, HL_PM_SINK, sink);
    set(&out, HL_PM_BAND, band);
    set(&out, HL_PM_CONTENT, 1.0 - band - sink);
    whole_row(&out, row, scale);
    return out;
}

static void add_metrics(const hl_profile *profile, int64_t cell, const pattern_row *row)
{
    pattern_values values = metrics_of(row);

    for (int i = 0; i < HL_N_PATTERN_METRICS; i++) {
        int64_t at = (cell * HL_N_PATTERN_METRICS + i) * 2 + (row->nosink ? 1 : 0);

        if ((values.defined & 1U << i) == 0)
            continue;
        hl_counts(profile, HL_TABLE_PATTERN_COUNT)[at] += 1;
        hl_counts(profile, HL_TABLE_PATTERN_SUM)[at] += hl_unit(values.value[i]);
        hl_counts(profile, HL_TABLE_PATTERN_SQUARES)[at] +=
            hl_unit(values.value[i] * values.value[i]);
    }
}

/* ---------------------------------------------------------------- all heads */

static const float *row_of(const hl_sampled_row *sample, int64_t head)
{
    const hl_layer_rows *rows     = sample->rows;
    int64_t              sequence = sample->index / rows->n_patterns;
    int64_t              pattern  = sample->index % rows->n_patterns;

    return rows->pattern +
           ((sequence * rows->n_heads + head) * rows->n_patterns + pattern) * rows->n_keys;
}

/* As it was told, or from the row. */
static hl_pattern_sums sums_of(const hl_sampled_row *sample, int64_t head, float *scratch)
{
    const hl_layer_rows *rows = sample->rows;
    hl_pattern_sums      sums;

    if (hl_rows_likeness(rows) != NULL)
        return hl_rows_likeness(rows)->patterns[sample->index * rows->n_heads + head];
    hl_pattern_sum(&sums, row_of(sample, head), &sample->place, scratch);
    return sums;
}

/* The total of the row, which is not finite where a probability is not. */
static double add_sample(const hl_profile *profile, const hl_sampled_row *sample, int64_t head,
                         float *scratch)
{
    int64_t         cell   = hl_cell(profile, sample->rows->layer, head);
    hl_pattern_sums sums   = sums_of(sample, head, scratch);
    double          total  = sums.total + (double)sums.first;
    pattern_row     others = others_of(sample, &sums);
    pattern_row     whole  = whole_of(sample, &sums);

    if (!isfinite(total))
        return total;
    add_metrics(profile, cell, &others);
    add_metrics(profile, cell, &whole);
    return total;
}

/* Half the sum of |a - b|, in eight sums so that it can be vectors. */
static double total_variation(const float *a, const float *b, hl_visible_keys keys)
{
    float   parts[8] = { 0 };
    double  sum      = 0.0;
    int64_t key      = hl_visible_from(keys, 0);

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
/* How far heads a and b are apart in a row, whose totals (n_heads) over all keys are numbers, goes
 * into the profile; `distance` is that of the keys. */
static void add_distance(const hl_profile *profile, const hl_sampled_row *sample,
                         const double *totals, int64_t a, int64_t b, double distance)
{
    int64_t pair = hl_pair(profile, sample->rows->layer, a, b);

    if (sample->has_sink)
        distance += 0.5 * fabs(totals[a] - totals[b]);
    hl_counts(profile, HL_TABLE_DISTANCE_SUM)[pair] += hl_unit(fmin(distance, 1.0));
}

static bool all_finite(const double *totals, int64_t n)
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

    if (!all_finite(totals, n_heads))
        return;
    for (int64_t b = a + 1; b < n_heads; b++) {
        double distance = total_variation(row_of(sample, a), row_of(sample, b), sample->place.keys);
        add_distance(profile, sample, totals, a, b, distance);
    }
}

static int64_t pattern_row_of(const hl_layer_rows *rows, int64_t sequence, int64_t index)
{
    return rows->pattern_rows[(rows->patterns_differ ? sequence * rows->n_patterns : 0) + index];
}

/* Where a row of (n_batch, n_patterns) stands, if it counts. */
static hl_pattern_place place_row(const hl_profile_batch *batch, const hl_layer_rows *rows,
                                  const hl_profile_mask *mask, int64_t index)
{
    int64_t          sequence = index / rows->n_patterns;
    int64_t          row      = pattern_row_of(rows, sequence, index % rows->n_patterns);
    hl_pattern_place nowhere  = { .position = 0 };
    hl_pattern_place place    = { .position = rows->start[sequence] + row };

    if (row < 0 || row >= rows->lengths[sequence] || place.position < batch->first_row[sequence])
        return nowhere;
    place.keys = hl_profile_seen(mask, place.position, batch->lengths[sequence]);
    return hl_visible_count(place.keys) >= 2 ? place : nowhere;
}

/* The rows of a layer that are looked at; out (n_batch * n_patterns) gets them. */
static int64_t find_samples(hl_sampled_row *out, const hl_profile_batch *batch,
                            const hl_layer_rows *rows, const hl_profile_mask *mask)
{
    int64_t n = 0;

    for (int64_t i = 0; i < rows->n_batch * rows->n_patterns; i++) {
        hl_pattern_place place = place_row(batch, rows, mask, i);

        if (place.keys.end > 0)
            out[n++] = (hl_sampled_row){
                .rows = rows, .index = i, .place = place, .has_sink = mask->has_sink
            };
    }
    return n;
}

hl_status hl_profile_list_places(hl_row_plan *out, hl_profile *profile, const hl_layer_rows *rows,
                                 const hl_profile_mask *mask)
{
    hl_profile_flight *flight = profile->flight;
    int64_t            n      = rows->n_batch * rows->n_patterns;

    HL_NEED(HL_GROW(&flight->places, &flight->n_places, 0, (size_t)n));
    for (int64_t i = 0; i < n; i++)
        flight->places[i] = place_row(flight->batch, rows, mask, i);
    out->places = flight->places;
    return HL_OK;
}

hl_status hl_profile_samples_open(hl_profile *profile, const hl_layer_rows *rows,
                                  const hl_profile_mask *mask)
{
    hl_profile_flight      *flight    = profile->flight;
    const hl_profile_batch *batch     = flight->batch;
    size_t                  n_samples = (size_t)(rows->n_batch * rows->n_patterns);

    HL_NEED(HL_GROW(&flight->row, &flight->n_row, 0,
                    (size_t)(hl_threads(batch->n_threads) * rows->n_keys)));
    HL_NEED(HL_GROW(&flight->totals, &flight->n_totals, 0, n_samples * (size_t)rows->n_heads));
    HL_NEED(HL_GROW(&flight->samples, &flight->n_samples, 0, n_samples));
    flight->n_found = find_samples(flight->samples, batch, rows, mask);
    return HL_OK;
}

void hl_profile_samples_head(hl_profile *profile, const hl_layer_rows *rows, int64_t head,
                             int member)
{
    const hl_profile_flight *flight  = profile->flight;
    float                   *scratch = flight->row + member * rows->n_keys;

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
            all_finite(flight->totals + i * rows->n_heads, rows->n_heads);
}

/* ---------------------------------------------------------------------- CKA */

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
    return HL_GROW(&flight->kernels, &flight->n_kernels, 0,
                   (size_t)(n_sequences * profile->n_heads * (n * n + n + 2)));
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

/* --------------------------------------------------------- told by a device */

/* A device that holds z and whole rows compares heads itself and tells what came of it
 * (hl_likeness of kernels/row_sums.h).  What is left is what is done with such numbers above:
 * they become whole numbers and are added. */

/* Pairs a < b of n heads, by a, then b. */
static int64_t count_pairs(int64_t n)
{
    return n * (n - 1) / 2;
}

static int64_t pair_of(int64_t n, int64_t a, int64_t b)
{
    return a * (2 * n - a - 1) / 2 + (b - a - 1);
}

/* --------------------------------------------------------- told: whole rows */

static void add_told_distances(const hl_profile *profile, const hl_sampled_row *sample,
                               const double *totals, int64_t a)
{
    int64_t       n_heads = sample->rows->n_heads;
    const double *made =
        hl_rows_likeness(sample->rows)->distances + sample->index * count_pairs(n_heads);

    if (!all_finite(totals, n_heads))
        return;
    for (int64_t b = a + 1; b < n_heads; b++)
        add_distance(profile, sample, totals, a, b, made[pair_of(n_heads, a, b)]);
}

void hl_profile_made_distances(hl_profile *profile, const hl_layer_rows *rows, int64_t head)
{
    const hl_profile_flight *flight = profile->flight;

    for (int64_t i = 0; i < flight->n_found; i++)
        add_told_distances(profile, &flight->samples[i], flight->totals + i * rows->n_heads, head);
}

/* ---------------------------------------------------------------- told: CKA */

/* Terms of one sequence: pairs a <= b. */
static const double *terms_of(const hl_layer_rows *rows, int64_t sequence)
{
    return hl_rows_likeness(rows)->alike + sequence * count_pairs(rows->n_heads + 1);
}

/* A head with itself is the first of its pairs, and finite where its kernel is. */
static bool all_told_sound(const hl_layer_rows *rows, int64_t sequence, int64_t n)
{
    const double *terms = terms_of(rows, sequence);
    bool          sound = n >= HL_CKA_MIN_ROWS;

    for (int64_t head = 0; head < rows->n_heads && sound; head++)
        sound = isfinite(terms[pair_of(rows->n_heads + 1, head, head + 1)]);
    return sound;
}

void hl_profile_made_kernels(hl_profile *profile, const hl_layer_rows *rows, int64_t sequence,
                             int64_t head, int64_t n)
{
    int64_t *sums = hl_counts(profile, HL_TABLE_KERNEL_SUM);

    if (!all_told_sound(rows, sequence, n))
        return;
    for (int64_t other = head; other < rows->n_heads; other++) {
        double term =
            terms_of(rows, sequence)[pair_of(rows->n_heads + 1, head, other + 1)] / HL_KERNEL_BOUND;

        sums[hl_self_pair(profile, rows->layer, head, other)] +=
            hl_unit(fmin(fmax(term, -1.0), 1.0));
    }
}

void hl_profile_made_close(hl_profile *profile, const hl_layer_rows *rows, int64_t sequence,
                           int64_t n)
{
    hl_counts(profile, HL_TABLE_KERNEL_COUNT)[rows->layer] += all_told_sound(rows, sequence, n);
}
