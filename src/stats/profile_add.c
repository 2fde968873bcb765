/* profile_add.c - rows into sums.
 *
 * What a row sees is the same for all heads of a layer, so it is worked out once (a
 * logarithm a row); then each head adds up its rows by itself, which is how threads
 * share the work.  A row costs a head about two dozen additions of 128 bits: less than
 * a hundredth of what the row's attention costs.
 *
 * Rows that are broken (not a number, or more entropy than so many keys can have)
 * are counted as that, and nowhere else. */
#include "stats/profile_add.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "stats/profile_tables.h"

/* A softmax of n outcomes has at most ln n; rounding is allowed this. */
#define ENTROPY_SLACK 1e-3

/* --------------------------------------------------------------------- batches */

void hl_profile_flight_free(hl_profile_flight *flight)
{
    if (flight == NULL)
        return;
    hl_free(flight->plans);
    hl_free(flight->sequences);
    hl_free(flight->means);
    hl_free(flight->kernels);
    hl_free(flight->row);
    hl_free(flight);
}

hl_status hl_profile_grow(void **block, size_t *size, size_t wanted, size_t item)
{
    hl_status status = HL_OK;
    void     *larger = NULL;

    if (wanted <= *size && *block != NULL)
        return HL_OK;
    HL_TRY(hl_alloc(&larger, wanted, item));
    hl_free(*block);
    *block = larger;
    *size  = wanted;

done:
    return status;
}

int hl_profile_threads(const hl_profile_flight *flight, int64_t n_values)
{
    return n_values < 8192 ? 1 : hl_threads(flight->batch->n_threads);
}

static int64_t n_cells(const hl_profile *profile)
{
    return profile->n_layers * profile->n_heads;
}

hl_status hl_profile_begin(hl_profile *profile, const hl_profile_batch *batch)
{
    hl_status          status = HL_OK;
    hl_profile_flight *flight = profile->flight;
    size_t             count  = (size_t)(batch->n_batch * n_cells(profile));

    if (flight == NULL) {
        HL_TRY(HL_ALLOC_ZEROED(&profile->flight, 1));
        flight = profile->flight;
        HL_TRY(HL_ALLOC(&flight->means, (size_t)n_cells(profile) * HL_N_OF_SEQUENCE));
    }
    HL_TRY(hl_profile_grow((void **)&flight->sequences, &flight->n_sequences, count,
                           sizeof *flight->sequences));
    memset(flight->sequences, 0, count * sizeof *flight->sequences);
    flight->batch = batch;

done:
    return status;
}

static void sequence_means(const hl_profile *profile, int64_t sequence)
{
    const hl_profile_flight *flight = profile->flight;

    for (int64_t cell = 0; cell < n_cells(profile); cell++) {
        const hl_sequence_sums *sums = &flight->sequences[sequence * n_cells(profile) + cell];
        for (int i = 0; i < HL_N_OF_SEQUENCE; i++)
            flight->means[cell * HL_N_OF_SEQUENCE + i] =
                (float)hl_wide_mean(sums->sum[i], sums->count[i]);
    }
}

hl_status hl_profile_end(hl_profile *profile)
{
    const hl_profile_batch *batch  = profile->flight->batch;
    int64_t                *totals = hl_counts(profile, HL_TABLE_TOTALS);

    for (int64_t i = 0; i < batch->n_batch; i++) {
        int64_t n_counted = batch->lengths[i] - batch->first_row[i];

        if (n_counted <= 0)
            continue;
        if (totals[0] > HL_MAX_COUNT - n_counted)
            return hl_fail(HL_LIMIT, "profile: more than 2^40 rows");
        sequence_means(profile, i);
        hl_profile_keep(profile, batch->hashes[i], profile->flight->means, totals[1]);
        totals[0] += n_counted;
        totals[1] += 1;
        *(uint64_t *)profile->tables[HL_TABLE_TEXT] += batch->hashes[i];
    }
    profile->flight->batch = NULL;
    return HL_OK;
}

/* ------------------------------------------------------------------------ rows */

hl_seen_keys hl_profile_seen(const hl_profile_mask *mask, int64_t position, int64_t n_keys)
{
    hl_seen_keys keys = { .end = n_keys };

    if (mask->is_causal && keys.end > position + 1)
        keys.end = position + 1;
    if (mask->has_window && keys.begin < position - mask->window_left)
        keys.begin = position - mask->window_left;
    if (mask->has_window && !mask->is_causal && keys.end > position + mask->window_right + 1)
        keys.end = position + mask->window_right + 1;
    if (mask->has_window && mask->window_sink > 0 && keys.begin > 0) {
        keys.gap_end = keys.begin;
        keys.gap     = mask->window_sink < keys.begin ? mask->window_sink : keys.begin;
        keys.begin   = 0;
    }
    return keys;
}

static uint8_t bucket_of(int64_t position)
{
    return (uint8_t)(63 - __builtin_clzll((uint64_t)position + 1));
}

static double inverse_log(int64_t n)
{
    return n >= 2 ? 1.0 / log((double)n) : 0.0;
}

static uint32_t defined_for(hl_seen_keys keys, int64_t n, int64_t n_other, int64_t position)
{
    uint32_t defined =
        1U << HL_Q_ENTROPY | 1U << HL_Q_RENYI2 | 1U << HL_Q_VARENTROPY | 1U << HL_Q_PEAK;

    if (n >= HL_FAIR_KEYS)
        defined |= 1U << HL_Q_FAIR;
    if (hl_seen_has(keys, position))
        defined |= 1U << HL_Q_SELF;
    if (hl_seen_has(keys, position - 1))
        defined |= 1U << HL_Q_PREVIOUS;
    if (keys.begin == 0)
        defined |= 1U << HL_Q_FIRST;
    if (n_other >= 1)
        defined |= 1U << HL_Q_NOSINK;
    return defined;
}

static hl_row_plan plan_row(const hl_profile_batch *batch, const hl_profile_mask *mask,
                            int64_t sequence, int64_t position)
{
    hl_seen_keys keys    = hl_profile_seen(mask, position, batch->lengths[sequence]);
    int64_t      n_keys  = hl_seen_count(keys);
    int64_t      n       = n_keys + (mask->has_sink ? 1 : 0);
    int64_t      n_other = n_keys - (keys.begin == 0 ? 1 : 0);

    if (n_keys < 1)
        return (hl_row_plan){ 0 };
    return (hl_row_plan){
        .log_n         = log((double)n),
        .inverse       = inverse_log(n),
        .inverse_other = inverse_log(n_other),
        .defined       = defined_for(keys, n, n_other, position),
        .bucket        = bucket_of(position),
        .type = batch->types != NULL ? batch->types[sequence * batch->context + position] : 0,
    };
}

static hl_status plan_rows(hl_profile_flight *flight, const hl_layer_rows *rows,
                           const hl_profile_mask *mask)
{
    const hl_profile_batch *batch  = flight->batch;
    hl_status               status = HL_OK;

    HL_TRY(hl_profile_grow((void **)&flight->plans, &flight->n_plans,
                           (size_t)(rows->n_batch * rows->n_rows), sizeof *flight->plans));
    for (int64_t i = 0; i < rows->n_batch; i++) {
        for (int64_t row = 0; row < rows->lengths[i]; row++) {
            int64_t position                      = rows->start[i] + row;
            flight->plans[i * rows->n_rows + row] = position >= batch->first_row[i]
                                                        ? plan_row(batch, mask, i, position)
                                                        : (hl_row_plan){ 0 };
        }
    }

done:
    return status;
}

/* ----------------------------------------------------------------------- sums */

/* The sums of one head, while it adds up the rows of a sequence.  Rows of one bucket and
 * type mostly follow each other: such a run is summed up once, and then added wherever it
 * belongs. */
typedef struct head_sums {
    hl_sums  run[HL_N_QUANTITIES];
    int64_t  run_bucket; /* -1: no row so far */
    int64_t  run_type;
    hl_sums  total[HL_N_QUANTITIES];
    float    min[HL_N_QUANTITIES];
    float    max[HL_N_QUANTITIES];
    int64_t *histogram; /* (3, 64), as what follows in the profile's tables */
    int64_t *position_count;
    hl_wide *position_sum;
    hl_wide *position_squares;
    int64_t *type_count;
    hl_wide *type_sum;
    hl_wide *type_squares;
    int64_t *lookback;
} head_sums;

static head_sums open_sums(const hl_profile *profile, int64_t cell)
{
    int64_t   n_positions = profile->n_buckets * HL_N_BY_POSITION;
    int64_t   n_by_type   = profile->n_types * HL_N_BY_TYPE;
    head_sums sums        = {
               .run_bucket = -1,
               .histogram  = hl_counts(profile, HL_TABLE_HISTOGRAM) + cell * HL_N_HISTOGRAMS * HL_N_BINS,
               .position_count   = hl_counts(profile, HL_TABLE_POSITION_COUNT) + cell * n_positions,
               .position_sum     = hl_wides(profile, HL_TABLE_POSITION_SUM) + cell * n_positions,
               .position_squares = hl_wides(profile, HL_TABLE_POSITION_SQUARES) + cell * n_positions,
               .type_count       = hl_counts(profile, HL_TABLE_TYPE_COUNT) + cell * n_by_type,
               .type_sum         = hl_wides(profile, HL_TABLE_TYPE_SUM) + cell * n_by_type,
               .type_squares     = hl_wides(profile, HL_TABLE_TYPE_SQUARES) + cell * n_by_type,
               .lookback =
                   hl_counts(profile, HL_TABLE_LOOKBACK) + cell * profile->n_types * profile->n_types,
    };

    for (int i = 0; i < HL_N_QUANTITIES; i++) {
        sums.min[i] = INFINITY;
        sums.max[i] = -INFINITY;
    }
    return sums;
}

static void close_sums(const hl_profile *profile, int64_t cell, const head_sums *sums)
{
    for (int i = 0; i < HL_N_QUANTITIES; i++) {
        int64_t at  = cell * HL_N_QUANTITIES + i;
        float  *min = hl_floats(profile, HL_TABLE_MIN) + at;
        float  *max = hl_floats(profile, HL_TABLE_MAX) + at;

        hl_counts(profile, HL_TABLE_COUNT)[at] += sums->total[i].count;
        hl_wides(profile, HL_TABLE_SUM)[at] += sums->total[i].sum;
        hl_wides(profile, HL_TABLE_SQUARES)[at] += sums->total[i].squares;
        *min = sums->min[i] < *min ? sums->min[i] : *min;
        *max = sums->max[i] > *max ? sums->max[i] : *max;
    }
}

static void add_sums(int64_t *count, hl_wide *sum, hl_wide *squares, const hl_sums *more)
{
    *count += more->count;
    *sum += more->sum;
    *squares += more->squares;
}

/* 64 bins over [0, 1]; the last holds 1, and what rounding put outside goes to the ends. */
static int bin_of(double value)
{
    double place = value * HL_N_BINS;
    return place <= 0.0 ? 0 : place >= HL_N_BINS - 1 ? HL_N_BINS - 1 : (int)place;
}

static void add_histograms(head_sums *sums, const hl_row_plan *plan, const double *values)
{
    if (plan->inverse > 0.0)
        sums->histogram[HL_HIST_NORMALISED * HL_N_BINS +
                        bin_of(values[HL_Q_ENTROPY] * plan->inverse)]++;
    if (plan->inverse_other > 0.0)
        sums->histogram[HL_HIST_NOSINK * HL_N_BINS +
                        bin_of(values[HL_Q_NOSINK] * plan->inverse_other)]++;
    sums->histogram[HL_HIST_PEAK * HL_N_BINS + bin_of(values[HL_Q_PEAK])]++;
}

static void close_run(head_sums *sums)
{
    for (int i = 0; i < HL_N_QUANTITIES && sums->run_bucket >= 0; i++) {
        const hl_sums *run = &sums->run[i];
        int64_t        at  = sums->run_type * HL_N_BY_TYPE + i;
        int64_t        by  = sums->run_bucket * HL_N_BY_POSITION + i;

        add_sums(&sums->total[i].count, &sums->total[i].sum, &sums->total[i].squares, run);
        if (i < HL_N_BY_TYPE) /* ENTROPY, FAIR, RENYI2, in this order */
            add_sums(sums->type_count + at, sums->type_sum + at, sums->type_squares + at, run);
        if (i < HL_N_BY_POSITION)
            add_sums(sums->position_count + by, sums->position_sum + by,
                     sums->position_squares + by, run);
    }
    memset(sums->run, 0, sizeof sums->run);
}

static void add_row(head_sums *sums, const hl_row_plan *plan, const double *values)
{
    if (plan->bucket != sums->run_bucket || plan->type != sums->run_type) {
        close_run(sums);
        sums->run_bucket = plan->bucket;
        sums->run_type   = plan->type;
    }
    for (int i = 0; i < HL_N_QUANTITIES; i++) {
        float value = (float)values[i];

        if ((plan->defined & 1U << i) == 0)
            continue;
        hl_sums_add(&sums->run[i], values[i]);
        sums->min[i] = value < sums->min[i] ? value : sums->min[i];
        sums->max[i] = value > sums->max[i] ? value : sums->max[i];
    }
    add_histograms(sums, plan, values);
}

/* ------------------------------------------------------------------------ heads */

static bool is_sound(const double *values, const hl_row_plan *plan)
{
    for (int i = 0; i < HL_N_QUANTITIES; i++) {
        if (!hl_fixed_fits(values[i]))
            return false;
    }
    return values[HL_Q_ENTROPY] <= plan->log_n + ENTROPY_SLACK;
}

static void read_row(double *values, const hl_attention_result *rows, int64_t at,
                     const hl_row_plan *plan)
{
    values[HL_Q_ENTROPY]    = (double)rows->entropy[at];
    values[HL_Q_FAIR]       = values[HL_Q_ENTROPY] * plan->inverse;
    values[HL_Q_RENYI2]     = (double)rows->renyi2[at];
    values[HL_Q_VARENTROPY] = (double)rows->varentropy[at];
    values[HL_Q_PEAK]       = (double)rows->peak[at];
    values[HL_Q_SELF]       = (double)rows->diagonal[at];
    values[HL_Q_PREVIOUS]   = (double)rows->previous[at];
    values[HL_Q_FIRST]      = (double)rows->first[at];
    values[HL_Q_NOSINK]     = (double)rows->entropy_nosink[at];
}

static void add_broken(const hl_profile *profile, int64_t cell, int64_t document, int64_t token)
{
    int64_t *place = hl_counts(profile, HL_TABLE_PLACE) + 2 * cell;

    hl_counts(profile, HL_TABLE_BROKEN)[cell]++;
    if (place[0] < 0 || document < place[0] || (document == place[0] && token < place[1])) {
        place[0] = document;
        place[1] = token;
    }
}

static void add_lookback(head_sums *sums, int64_t n_types, int64_t type, const float *mass)
{
    for (int64_t to = 0; to < n_types && mass != NULL; to++)
        sums->lookback[type * n_types + to] += hl_unit(fmin(fmax((double)mass[to], 0.0), 1.0));
}

/* All rows of one sequence and head. */
static void add_head(const hl_profile *profile, const hl_layer_rows *rows, int64_t sequence,
                     int64_t head)
{
    const hl_profile_flight *flight  = profile->flight;
    const hl_profile_batch  *batch   = flight->batch;
    int64_t                  cell    = hl_cell(profile, rows->layer, head);
    int64_t                  first   = (sequence * rows->n_heads + head) * rows->n_rows;
    int64_t                  n_types = profile->n_types;
    const float             *mass    = n_types > 1 ? rows->rows->segment_mass : NULL;
    head_sums                sums    = open_sums(profile, cell);
    hl_sequence_sums        *own     = &flight->sequences[sequence * n_cells(profile) + cell];
    static const hl_quantity of_sequence[HL_N_OF_SEQUENCE] = { HL_Q_ENTROPY, HL_Q_FAIR,
                                                               HL_Q_NOSINK };

    for (int64_t row = 0; row < rows->lengths[sequence]; row++) {
        const hl_row_plan *plan = &flight->plans[sequence * rows->n_rows + row];
        double             values[HL_N_QUANTITIES];

        if (plan->defined == 0)
            continue;
        read_row(values, rows->rows, first + row, plan);
        if (!is_sound(values, plan)) {
            add_broken(profile, cell, batch->documents[sequence],
                       batch->starts[sequence] + rows->start[sequence] + row);
            continue;
        }
        add_row(&sums, plan, values);
        if (mass != NULL)
            add_lookback(&sums, n_types, plan->type, mass + (first + row) * n_types);
    }
    close_run(&sums);
    close_sums(profile, cell, &sums);
    for (int i = 0; i < HL_N_OF_SEQUENCE; i++) {
        own->sum[i] += sums.total[of_sequence[i]].sum;
        own->count[i] += sums.total[of_sequence[i]].count;
    }
}

static hl_status check_rows(const hl_profile *profile, const hl_layer_rows *rows)
{
    const hl_profile_batch *batch = profile->flight != NULL ? profile->flight->batch : NULL;

    if (batch == NULL || batch->n_batch != rows->n_batch)
        return hl_fail(HL_BAD_ARGUMENT, "profile: rows of a batch that was not begun");
    if (rows->layer < 0 || rows->layer >= profile->n_layers ||
        rows->n_heads != profile->heads[rows->layer])
        return hl_fail(HL_BAD_ARGUMENT, "profile: layer %lld with %lld heads is not in its shape",
                       (long long)rows->layer, (long long)rows->n_heads);
    return HL_OK;
}

hl_status hl_profile_rows(hl_profile *profile, const hl_layer_rows *rows,
                          const hl_profile_mask *mask)
{
    hl_status status = HL_OK;

    HL_TRY(check_rows(profile, rows));
    HL_TRY(plan_rows(profile->flight, rows, mask));
#pragma omp parallel for schedule(static)                                                          \
    num_threads(hl_profile_threads(profile->flight, rows->n_batch * rows->n_rows * rows->n_heads))
    for (int64_t head = 0; head < rows->n_heads; head++) {
        for (int64_t sequence = 0; sequence < rows->n_batch; sequence++)
            add_head(profile, rows, sequence, head);
    }

done:
    return status;
}

/* ---------------------------------------------------------------- single values */

static void add_single(const hl_profile *profile, hl_table count, int64_t at, double value)
{
    if (!hl_fixed_fits(value))
        return;
    hl_counts(profile, count)[at] += 1;
    hl_wides(profile, count + 1)[at] += hl_fixed(value);
    hl_wides(profile, count + 2)[at] += hl_fixed_square(value);
}

void hl_profile_norm(hl_profile *profile, int64_t layer, int64_t head, double norm)
{
    add_single(profile, HL_TABLE_NORM_COUNT, hl_cell(profile, layer, head), norm);
}

void hl_profile_influence(hl_profile *profile, int64_t layer, double influence)
{
    add_single(profile, HL_TABLE_INFLUENCE_COUNT, layer, influence);
}

void hl_profile_loss(hl_profile *profile, double nll)
{
    add_single(profile, HL_TABLE_NLL_COUNT, 0, nll);
}

void hl_profile_set_probe(hl_profile *profile, int64_t layer, int64_t head, hl_probe probe,
                          double score)
{
    double *scores                                              = profile->tables[HL_TABLE_PROBE];
    scores[hl_cell(profile, layer, head) * HL_N_PROBES + probe] = score;
}
