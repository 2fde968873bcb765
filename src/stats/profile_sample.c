/* profile_sample.c - complete rows of attention, and how similar the outputs of heads are.
 *
 * Some rows are examined completely (metrics.md 5 defines the metrics).  kernels/likeness.h has the
 * formulas that compare two heads: total variation of their rows, and HSIC of their outputs, from
 * which CKA is computed.
 *
 * A device that holds z and complete rows compares heads itself and reports the results
 * (hl_likeness of kernels/row_sums.h).  In both cases the numbers are converted to fixed point here
 * and added. */
#include <math.h>
#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "kernels/likeness.h"
#include "kernels/pattern.h"
#include "stats/profile_add.h"
#include "stats/profile_tables.h"

/* --------------------------------------------------------- metrics of a row */

/* A row with all keys, or without the first key as a row of its own. */
typedef struct pattern_row {
    const hl_pattern_sums *sums;
    hl_visible_keys        keys;
    int64_t                position;
    bool                   has_sink;
    bool                   is_cross;
    bool                   nosink;
    /* Sums over the keys. */
    double  total;
    double  squares;
    int64_t top;
    float   peak;
} pattern_row;

typedef struct pattern_values {
    double   value[HL_N_PATTERN_METRICS];
    uint32_t defined;
} pattern_values;

/* Returns the row without the first key, if it sees that key. */
static pattern_row others_of(const hl_sampled_row *sample, const hl_pattern_sums *sums)
{
    pattern_row row = { .sums     = sums,
                        .keys     = sample->place.keys,
                        .position = sample->place.position,
                        .has_sink = sample->has_sink,
                        .is_cross = sample->is_cross,
                        .nosink   = true,
                        .total    = sums->total,
                        .squares  = sums->squares,
                        .top      = sums->top,
                        .peak     = sums->peak };

    return row;
}

/* Returns the row with the first key included. */
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

/* Computes the metrics over all keys; p is scaled so that the row sums to 1. */
static void whole_row(pattern_values *out, const pattern_row *row, double scale)
{
    double  n       = (double)count_keys(row);
    double  rest    = row->has_sink ? fmax(1.0 - row->total, 0.0) : 0.0;
    double  squares = row->squares * scale * scale + (scale == 1.0 ? rest * rest : 0.0);
    double  n_all   = n + (row->has_sink && scale == 1.0 ? 1.0 : 0.0);
    int32_t n_edges = row->sums->n_edges[row->nosink];
    int32_t k90     = row->sums->k90[row->nosink];

    set(out, HL_PM_PEAK, (double)row->peak * scale);
    if (!row->is_cross)
        set(out, HL_PM_SELF_TOP, row->top == row->position ? 1.0 : 0.0);
    set(out, HL_PM_EDGES, (double)n_edges / n);
    set(out, HL_PM_K90, (double)k90 / n);
    set(out, HL_PM_SUPPORT2, squares > 0.0 ? 1.0 / squares / n_all : 0.0);
    set(out, HL_PM_CHANCE, 1.0 / n);
}

/* If the first key is not visible, the row without it is the complete row. */
static pattern_values metrics_of(const pattern_row *row)
{
    pattern_values out     = { { 0 }, 0 };
    int64_t        i       = row->position;
    bool           to_zero = sees(row, 0);
    double         scale   = row->nosink ? 1.0 / row->total : 1.0;
    double         sink    = to_zero ? (double)row->sums->first : 0.0;
    double         band    = row->is_cross ? 0.0 : band_mass(row) * scale;

    if (count_keys(row) < 2 || !(row->total > 0.0))
        return out;
    if (!row->is_cross && sees(row, i))
        set(&out, HL_PM_SELF, (double)near_by(row, i) * scale);
    if (!row->is_cross && sees(row, i - 1))
        set(&out, HL_PM_PREVIOUS, (double)near_by(row, i - 1) * scale);
    if (to_zero && i >= 1)
        set(&out, HL_PM_SINK, sink);
    if (!row->is_cross)
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

/* Returns the sums that a device reported, or computes them from the row. */
static hl_pattern_sums sums_of(const hl_sampled_row *sample, int64_t head, float *scratch)
{
    const hl_layer_rows *rows = sample->rows;
    hl_pattern_sums      sums;

    if (hl_rows_likeness(rows) != NULL)
        return hl_rows_likeness(rows)->patterns[sample->index * rows->n_heads + head];
    hl_pattern_sum(&sums, row_of(sample, head), &sample->place, scratch);
    return sums;
}

/* Adds a row and returns its total, which is not finite if a probability is not. */
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

/* ------------------------------------------------------------------ two heads */

/* Returns the number of pairs a < b of n heads. */
static int64_t count_pairs(int64_t n)
{
    return n * (n - 1) / 2;
}

static int64_t pair_of(int64_t n, int64_t a, int64_t b)
{
    return a * (2 * n - a - 1) / 2 + (b - a - 1);
}

/* Returns the total variation between the rows of heads a < b, as a device reported it or from the
 * rows. */
static double distance_of(const hl_sampled_row *sample, int64_t a, int64_t b)
{
    const hl_likeness *told    = hl_rows_likeness(sample->rows);
    int64_t            n_heads = sample->rows->n_heads;

    if (told != NULL)
        return told->distances[sample->index * count_pairs(n_heads) + pair_of(n_heads, a, b)];
    return hl_rows_apart(row_of(sample, a), row_of(sample, b),
                         hl_visible_from(sample->place.keys, 0), sample->place.keys.end);
}

static bool all_finite(const double *totals, int64_t n)
{
    bool finite = true;

    for (int64_t i = 0; i < n; i++)
        finite = finite && isfinite(totals[i]);
    return finite;
}

/* Adds the distances between head a and all later heads, in a row with each head's total
 * (n_heads). */
static void add_distances(const hl_profile *profile, const hl_sampled_row *sample,
                          const double *totals, int64_t a)
{
    int64_t *sums = hl_counts(profile, HL_TABLE_DISTANCE_SUM);

    if (!all_finite(totals, sample->rows->n_heads))
        return;
    for (int64_t b = a + 1; b < sample->rows->n_heads; b++) {
        double distance = distance_of(sample, a, b);

        if (sample->has_sink)
            distance += hl_total_variation(fabs(totals[a] - totals[b]));
        sums[hl_pair(profile, sample->rows->layer, a, b)] += hl_unit(fmin(distance, 1.0));
    }
}

/* --------------------------------------------------------------- rows of a layer */

static int64_t pattern_row_of(const hl_layer_rows *rows, int64_t sequence, int64_t index)
{
    return rows->pattern_rows[(rows->patterns_differ ? sequence * rows->n_patterns : 0) + index];
}

/* Returns the place of a row of (n_batch, n_patterns), if it counts. */
static hl_pattern_place place_row(const hl_profile_batch *batch, const hl_layer_rows *rows,
                                  const hl_profile_mask *mask, int64_t index)
{
    int64_t          sequence = index / rows->n_patterns;
    int64_t          row      = pattern_row_of(rows, sequence, index % rows->n_patterns);
    hl_pattern_place nowhere  = { .position = 0 };
    hl_pattern_place place    = { .position = rows->start[sequence] + row };

    if (row < 0 || row >= rows->lengths[sequence] || place.position < batch->first_row[sequence])
        return nowhere;
    place.keys =
        hl_profile_seen(mask, place.position, hl_profile_keys_of(mask, batch->lengths[sequence]));
    return hl_visible_count(place.keys) >= 2 ? place : nowhere;
}

/* Lists the sampled rows of a layer in out (n_batch * n_patterns). */
static int64_t find_samples(hl_sampled_row *out, const hl_profile_batch *batch,
                            const hl_layer_rows *rows, const hl_profile_mask *mask)
{
    int64_t n = 0;

    for (int64_t i = 0; i < rows->n_batch * rows->n_patterns; i++) {
        hl_pattern_place place = place_row(batch, rows, mask, i);

        if (place.keys.end > 0)
            out[n++] = (hl_sampled_row){
                .rows       = rows,
                .index      = i,
                .place      = place,
                .has_sink   = mask->has_sink,
                .is_cross   = mask->n_keys > 0,
                .leaves_out = mask->n_chosen > 0 && hl_visible_count(place.keys) > mask->n_chosen,
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

/* Of a row of sparse attention that does not see all keys: how much of the mass of the full softmax is on
 * the keys that it sees, from the lse of both. */
static void add_recall(hl_profile *profile, const hl_sampled_row *sample, int64_t head)
{
    const hl_layer_rows *rows     = sample->rows;
    const hl_observed   *observed = rows->observed;
    int64_t              sequence = sample->index / rows->n_patterns;
    int64_t              place =
        (sequence * rows->n_heads + head) * rows->n_patterns + sample->index % rows->n_patterns;

    if (!sample->leaves_out || observed == NULL || observed->exact == NULL ||
        observed->full == NULL)
        return;
    double recall = exp(observed->exact[place].lse - observed->full[place].lse);
    if (isfinite(recall))
        hl_profile_recall_add(profile, rows->layer, head, fmin(recall, 1.0));
}

void hl_profile_samples_head(hl_profile *profile, const hl_layer_rows *rows, int64_t head,
                             int member)
{
    const hl_profile_flight *flight  = profile->flight;
    float                   *scratch = flight->row + member * rows->n_keys;

    for (int64_t i = 0; i < flight->n_found; i++) {
        flight->totals[i * rows->n_heads + head] =
            add_sample(profile, &flight->samples[i], head, scratch);
        add_recall(profile, &flight->samples[i], head);
    }
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

/* Returns the memory of a kernel of one sequence and head, used if no device compares heads. */
static double *prepared_kernel(const hl_profile *profile, int64_t sequence, int64_t head)
{
    return profile->flight->kernels +
           (sequence * profile->n_heads + head) * hl_kernel_size(profile->flight->kernel_rows);
}

/* Returns the HSIC of heads a <= b of a sequence, from n compared rows. */
static double alike(const hl_profile *profile, const hl_layer_rows *rows, int64_t sequence,
                    int64_t a, int64_t b, int64_t n)
{
    const hl_likeness *told = hl_rows_likeness(rows);

    if (told != NULL)
        return told->alike[sequence * count_pairs(rows->n_heads + 1) +
                           pair_of(rows->n_heads + 1, a, b + 1)];
    return hl_kernels_alike(prepared_kernel(profile, sequence, a),
                            prepared_kernel(profile, sequence, b), n);
}

/* Returns true if all kernels are finite; a head's similarity to itself shows this. */
static bool all_sound(const hl_profile *profile, const hl_layer_rows *rows, int64_t sequence,
                      int64_t n)
{
    bool sound = n >= HL_HSIC_MIN_ROWS;

    for (int64_t head = 0; head < rows->n_heads && sound; head++)
        sound = hl_rows_likeness(rows) != NULL
                    ? isfinite(alike(profile, rows, sequence, head, head, n))
                    : !isnan(prepared_kernel(profile, sequence, head)[n * n + n]);
    return sound;
}

hl_status hl_profile_kernels_open(hl_profile *profile, int64_t n_sequences, int64_t n)
{
    hl_profile_flight *flight = profile->flight;

    flight->kernel_rows = n;
    return HL_GROW(&flight->kernels, &flight->n_kernels, 0,
                   (size_t)(n_sequences * profile->n_heads * hl_kernel_size(n)));
}

void hl_profile_kernels_head(hl_profile *profile, int64_t sequence, int64_t head,
                             const double *kernel, int64_t n)
{
    hl_kernel_prepare(prepared_kernel(profile, sequence, head), kernel, n);
}

void hl_profile_kernels_pairs(hl_profile *profile, const hl_layer_rows *rows, int64_t sequence,
                              int64_t head, int64_t n)
{
    int64_t *sums = hl_counts(profile, HL_TABLE_KERNEL_SUM);

    if (!all_sound(profile, rows, sequence, n))
        return;
    for (int64_t other = head; other < rows->n_heads; other++) {
        double term = alike(profile, rows, sequence, head, other, n) / HL_HSIC_BOUND;

        sums[hl_self_pair(profile, rows->layer, head, other)] +=
            hl_unit(fmin(fmax(term, -1.0), 1.0));
    }
}

void hl_profile_kernels_close(hl_profile *profile, const hl_layer_rows *rows, int64_t sequence,
                              int64_t n)
{
    hl_counts(profile, HL_TABLE_KERNEL_COUNT)[rows->layer] += all_sound(profile, rows, sequence, n);
}
