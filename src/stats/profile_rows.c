/* profile_rows.c - adds the statistics of rows to a profile.
 *
 * Threads share the work by heads.  Each head adds up its rows, one run and one quantity at a time:
 * the run's values become doubles, then 64-bit integers, which are summed up in vectors; the sums
 * are then added wherever the run belongs.  Values that are too large for that are added row by
 * row, in 128 bits; both give the same numbers (exact.h).
 *
 * Broken rows (NaN, or more entropy than their number of keys allows) are only counted as
 * broken. */
#include <string.h>

#include "base/buffer.h"
#include "base/machine.h"
#include "base/status.h"
#include "stats/profile_add.h"
#include "stats/profile_tables.h"

/* ------------------------------------------------------------------------ sums */

/* The sums of one head, while it adds up the rows of a sequence. */
typedef struct head_sums {
    hl_sums  total[HL_N_QUANTITIES];
    float    min[HL_N_QUANTITIES];
    float    max[HL_N_QUANTITIES];
    int64_t *histogram; /* (3, 64), in the order of the profile's tables */
    int64_t *position_count;
    hl_wide *position_sum;
    hl_wide *position_squares;
    int64_t *type_count;
    hl_wide *type_sum;
    hl_wide *type_squares;
    int64_t *lookback;

    hl_bucket_sums *buckets; /* (P) sums of this sequence */
} head_sums;

static head_sums open_sums(const hl_profile *profile, int64_t cell)
{
    int64_t   n_positions = profile->n_buckets * HL_N_BY_POSITION;
    int64_t   n_by_type   = profile->n_types * HL_N_BY_TYPE;
    head_sums sums        = {
               .histogram = hl_counts(profile, HL_TABLE_HISTOGRAM) + cell * HL_N_HISTOGRAMS * HL_N_BINS,
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
        *min = fminf(sums->min[i], *min);
        *max = fmaxf(sums->max[i], *max);
    }
}

static void add_sums(int64_t *count, hl_wide *sum, hl_wide *squares, const hl_sums *more)
{
    *count += more->count;
    *sum += more->sum;
    *squares += more->squares;
}

/* Adds the sums of one quantity over rows of a run to all tables that the run belongs to. */
static void spread(head_sums *sums, const hl_run *run, int quantity, const hl_sums *more)
{
    int64_t at = run->type * HL_N_BY_TYPE + quantity;
    int64_t by = run->bucket * HL_N_BY_POSITION + quantity;

    add_sums(&sums->total[quantity].count, &sums->total[quantity].sum,
             &sums->total[quantity].squares, more);
    if (quantity < HL_N_BY_TYPE) /* ENTROPY, NORMALIZED and RENYI2 are the first three */
        add_sums(sums->type_count + at, sums->type_sum + at, sums->type_squares + at, more);
    if (quantity < HL_N_BY_POSITION) {
        add_sums(sums->position_count + by, sums->position_sum + by, sums->position_squares + by,
                 more);
        sums->buckets[run->bucket].sum[quantity] += more->sum;
        sums->buckets[run->bucket].count[quantity] += more->count;
    }
}

/* -------------------------------------------------------------------- quantities */

/* Rows [begin, end) of one run and head. */
typedef struct head_rows {
    const float  *values[HL_N_QUANTITIES]; /* (n) values from the first row on */
    const double *log_n;
    const double *inverse;
    const double *inverse_other;
    const float  *mass; /* (n, n_types); NULL: there is one type */
    int64_t       n;
} head_rows;

/* Rows of a head: `first` is the index of its row 0 in the layer, `plan` that of the sequence's row
 * 0 in the plans. */
static head_rows rows_of(const hl_row_plans *plans, const hl_attention_result *rows, int64_t first,
                         int64_t plan, int64_t begin, int64_t end)
{
    head_rows out = { .log_n         = plans->log_n + plan + begin,
                      .inverse       = plans->inverse + plan + begin,
                      .inverse_other = plans->inverse_other + plan + begin,
                      .n             = end - begin };

    hl_quantity_rows(out.values, rows, first + begin);
    return out;
}

/* Multiplies values by `scale`; `narrow` gets the results as floats. */
static void scale_values(double *restrict out, float *restrict narrow, const float *restrict values,
                         const double *restrict scale, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        out[i]    = (double)values[i] * scale[i];
        narrow[i] = (float)out[i];
    }
}

static bool entropy_is_possible(const head_rows *rows)
{
    const float *entropy = rows->values[HL_Q_ENTROPY];
    int          n_above = 0;

    for (int64_t i = 0; i < rows->n; i++)
        n_above += !hl_entropy_is_possible(entropy[i], rows->log_n[i]);
    return n_above == 0;
}

/* Returns true if none of these rows is broken and all values are small. */
static bool all_small(const head_rows *rows)
{
    int n_large = 0;

    for (int quantity = 0; quantity < HL_N_QUANTITIES; quantity++) {
        const float *values = rows->values[quantity];
        for (int64_t i = 0; i < rows->n; i++)
            n_large += !hl_is_small(values[i]);
    }
    return n_large == 0 && entropy_is_possible(rows);
}

/* Returns true if the only row is not broken. */
static bool is_sound(const head_rows *row)
{
    for (int quantity = 0; quantity < HL_N_QUANTITIES; quantity++) {
        if (!hl_fixed_fits((double)row->values[quantity][0]))
            return false;
    }
    return entropy_is_possible(row);
}

/* -------------------------------------------------------------------- histograms */

/* Neighboring rows often share a bin, and each addition there waits for the previous one.  Several
 * tables, which take turns, avoid this. */
static void add_histogram(int64_t *histogram, const float *values, const double *scale, int64_t n)
{
    enum { TABLES = 4, WORTH_IT = 64 };
    int32_t bins[HL_RUN_ROWS];
    int32_t counts[TABLES][HL_N_BINS];
    int64_t i = 0;

    for (int64_t row = 0; row < n; row++)
        bins[row] = hl_bin_of((double)values[row] * (scale != NULL ? scale[row] : 1.0));
    if (n >= WORTH_IT) {
        memset(counts, 0, sizeof counts);
        for (; i + TABLES <= n; i += TABLES) {
            for (int table = 0; table < TABLES; table++)
                counts[table][bins[i + table]]++;
        }
        for (int bin = 0; bin < HL_N_BINS; bin++)
            histogram[bin] += counts[0][bin] + counts[1][bin] + counts[2][bin] + counts[3][bin];
    }
    for (; i < n; i++)
        histogram[bins[i]]++;
}

static void add_histograms(head_sums *sums, const hl_run *run, const head_rows *rows)
{
    const struct {
        hl_histogram  histogram;
        const float  *values;
        const double *scale;
    } sources[] = {
        { HL_HIST_NORMALIZED, rows->values[HL_Q_ENTROPY], rows->inverse },
        { HL_HIST_NORMALIZED_NOSINK, rows->values[HL_Q_ENTROPY_NOSINK], rows->inverse_other },
        { HL_HIST_PEAK, rows->values[HL_Q_PEAK], NULL },
    };

    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        if ((run->defined & 1U << (HL_N_QUANTITIES + sources[i].histogram)) != 0)
            add_histogram(sums->histogram + sources[i].histogram * HL_N_BINS, sources[i].values,
                          sources[i].scale, rows->n);
    }
}

/* ------------------------------------------------------------------------- runs */

/* A separate loop clamps shares to [0, 1]: compilers vectorize it, but use branches if it does
 * more. */
static void add_lookback(int64_t *lookback, const head_rows *rows, int64_t n_types)
{
    enum { STEP = 64 }; /* number of rows */
    float shares[STEP * HL_PROFILE_MAX_TYPES];

    for (int64_t row = 0; row < rows->n; row += STEP) {
        int64_t      n    = (rows->n - row < STEP ? rows->n - row : STEP) * n_types;
        const float *mass = rows->mass + row * n_types;

        for (int64_t i = 0; i < n; i++)
            shares[i] = hl_share_of(mass[i]);
        for (int64_t to = 0; to < n_types; to++) {
            int64_t sum = 0;

            for (int64_t i = to; i < n; i += n_types)
                sum += hl_unit_share(shares[i]);
            lookback[to] += sum;
        }
    }
}

/* An integer with the order of the floats: unlike for floats, compilers vectorize the minimum of
 * integers. */
static int32_t rank_of(float value)
{
    int32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits < 0 ? bits ^ INT32_MAX : bits;
}

static float of_rank(int32_t rank)
{
    int32_t bits = rank < 0 ? rank ^ INT32_MAX : rank;
    float   value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static void add_range(head_sums *sums, const float *values, int quantity, int64_t n)
{
    int32_t least = rank_of(sums->min[quantity]);
    int32_t most  = rank_of(sums->max[quantity]);

    for (int64_t i = 0; i < n; i++) {
        int32_t rank = rank_of(values[i]);

        least = rank < least ? rank : least;
        most  = rank > most ? rank : most;
    }
    sums->min[quantity] = of_rank(least);
    sums->max[quantity] = of_rank(most);
}

/* Adds rows of one run that are not broken: all of them if they are small, or a single one. */
static void add_rows(head_sums *sums, const hl_run *run, const head_rows *rows, bool small,
                     int64_t n_types)
{
    double values[HL_RUN_ROWS];
    float  normalized[HL_RUN_ROWS];

    for (int quantity = 0; quantity < HL_N_QUANTITIES; quantity++) {
        const float *narrow = rows->values[quantity];
        hl_sums      more   = { 0 };

        if ((run->defined & 1U << quantity) == 0)
            continue;
        if (quantity == HL_Q_NORMALIZED) {
            scale_values(values, normalized, narrow, rows->inverse, rows->n);
            narrow = normalized;
        }
        if (!small)
            hl_sums_add(&more, quantity == HL_Q_NORMALIZED ? values[0] : (double)narrow[0]);
        else if (quantity == HL_Q_NORMALIZED)
            more = hl_sums_of_small(values, rows->n);
        else
            more = hl_sums_of_small_floats(narrow, rows->n);
        spread(sums, run, quantity, &more);
        add_range(sums, narrow, quantity, rows->n);
    }
    add_histograms(sums, run, rows);
    if (rows->mass != NULL)
        add_lookback(sums->lookback + run->type * n_types, rows, n_types);
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

/* ------------------------------------------------------------------------ heads */

/* One sequence and one head of a layer. */
typedef struct head_place {
    const hl_layer_rows *rows;
    int64_t              sequence;
    int64_t              head;
    int64_t              cell;
} head_place;

static head_rows rows_at(const hl_profile *profile, const head_place *place, int64_t begin,
                         int64_t end)
{
    const hl_layer_rows *rows    = place->rows;
    int64_t              first   = (place->sequence * rows->n_heads + place->head) * rows->n_rows;
    int64_t              n_types = profile->n_types;
    head_rows            at      = rows_of(&profile->flight->plans, rows->rows, first,
                                           place->sequence * rows->n_rows, begin, end);

    if (n_types > 1 && rows->rows->segment_mass != NULL)
        at.mass = rows->rows->segment_mass + (first + begin) * n_types;
    return at;
}

static inline void add_any_run(const hl_profile *profile, head_sums *sums, const head_place *place,
                               const hl_run *run)
{
    const hl_profile_batch *batch   = profile->flight->batch;
    int64_t                 n_types = profile->n_types;
    head_rows               all     = rows_at(profile, place, run->begin, run->end);

    if (all_small(&all)) {
        add_rows(sums, run, &all, true, n_types);
        return;
    }
    for (int64_t row = run->begin; row < run->end; row++) {
        head_rows one = rows_at(profile, place, row, row + 1);

        if (is_sound(&one))
            add_rows(sums, run, &one, false, n_types);
        else
            add_broken(profile, place->cell, batch->documents[place->sequence],
                       batch->starts[place->sequence] + place->rows->start[place->sequence] + row);
    }
}

/* The same code for wider vectors; results are the same to the bit. */
#if defined(__x86_64__)
__attribute__((flatten, target("avx2"))) static void
add_run_avx2(const hl_profile *profile, head_sums *sums, const head_place *place, const hl_run *run)
{
    add_any_run(profile, sums, place, run);
}
#endif

static void add_run(const hl_profile *profile, head_sums *sums, const head_place *place,
                    const hl_run *run)
{
#if defined(__x86_64__)
    if (hl_cpu_features()->avx2) {
        add_run_avx2(profile, sums, place, run);
        return;
    }
#endif
    add_any_run(profile, sums, place, run);
}

/* -------------------------------------------------------- sums made elsewhere */

/* Adds a run whose sums came with the rows; false if its rows must be read. */
static bool add_run_sums(head_sums *sums, const hl_run *run, const hl_run_sums *made)
{
    if (!made->is_small)
        return false;
    for (int quantity = 0; quantity < HL_N_QUANTITIES; quantity++) {
        hl_sums more = { made->sum[quantity], made->squares[quantity], run->end - run->begin };

        if ((run->defined & 1U << quantity) == 0)
            continue;
        spread(sums, run, quantity, &more);
        sums->min[quantity] = fminf(sums->min[quantity], made->min[quantity]);
        sums->max[quantity] = fmaxf(sums->max[quantity], made->max[quantity]);
    }
    return true;
}

/* Adds what was counted over all sequences of a head at once. */
static void add_counts(const hl_profile *profile, const hl_row_sums *made, int64_t head,
                       int64_t cell)
{
    int64_t  n_bins    = HL_N_HISTOGRAMS * HL_N_BINS;
    int64_t  n_pairs   = profile->n_types * profile->n_types;
    int64_t *histogram = hl_counts(profile, HL_TABLE_HISTOGRAM) + cell * n_bins;
    int64_t *lookback  = hl_counts(profile, HL_TABLE_LOOKBACK) + cell * n_pairs;

    for (int64_t i = 0; i < n_bins; i++)
        histogram[i] += made->histogram[head * n_bins + i];
    for (int64_t i = 0; i < n_pairs && made->lookback != NULL && profile->n_types > 1; i++)
        lookback[i] += made->lookback[head * n_pairs + i];
}

/* -------------------------------------------------------------- kept sequences */

/* A kept sequence has one curve by position per layer, not per head.  Threads work on different
 * heads, so each head has its own sums here, which are added up later. */

static hl_bucket_sums *buckets_of(const hl_profile *profile, int64_t sequence, int64_t head)
{
    return profile->flight->by_head + (sequence * profile->n_heads + head) * profile->n_buckets;
}

static hl_status open_buckets(const hl_profile *profile, int64_t n_batch)
{
    hl_profile_flight *flight = profile->flight;
    size_t             count  = (size_t)(n_batch * profile->n_heads * profile->n_buckets);

    HL_NEED(HL_GROW(&flight->by_head, &flight->n_by_head, 0, count));
    memset(flight->by_head, 0, count * sizeof *flight->by_head);
    return HL_OK;
}

static void close_buckets(const hl_profile *profile, const hl_layer_rows *rows)
{
    int64_t n_buckets = profile->n_buckets;

    for (int64_t i = 0; i < rows->n_batch * rows->n_heads; i++) {
        int64_t               sequence = i / rows->n_heads;
        const hl_bucket_sums *head     = buckets_of(profile, sequence, i % rows->n_heads);
        hl_bucket_sums       *layer =
            profile->flight->by_layer + (sequence * profile->n_layers + rows->layer) * n_buckets;

        for (int64_t at = 0; at < n_buckets * HL_N_BY_POSITION; at++) {
            int64_t bucket = at / HL_N_BY_POSITION;
            int64_t j      = at % HL_N_BY_POSITION;

            layer[bucket].sum[j] += head[bucket].sum[j];
            layer[bucket].count[j] += head[bucket].count[j];
        }
    }
}

/* ------------------------------------------------------------------------ layers */

/* Adds all rows of one sequence and head. */
static void add_head(const hl_profile *profile, const hl_layer_rows *rows, int64_t sequence,
                     int64_t head)
{
    const hl_profile_flight *flight = profile->flight;
    head_place               place  = { rows, sequence, head, hl_cell(profile, rows->layer, head) };
    head_sums                sums   = open_sums(profile, place.cell);
    int64_t                  n_cells = profile->n_layers * profile->n_heads;
    hl_sequence_sums        *own     = &flight->sequences[sequence * n_cells + place.cell];

    const hl_row_sums *told = hl_rows_sums(rows);
    const hl_run_sums *made = told != NULL ? told->runs + head * told->n_runs : NULL;

    sums.buckets = buckets_of(profile, sequence, head);
    for (int64_t i = flight->plans.first_run[sequence]; i < flight->plans.first_run[sequence + 1];
         i++) {
        const hl_run *run = &flight->plans.runs[i];

        if (made == NULL || !add_run_sums(&sums, run, &made[i]))
            add_run(profile, &sums, &place, run);
    }
    close_sums(profile, place.cell, &sums);
    for (int i = 0; i < HL_N_QUANTITIES; i++) {
        own->sum[hl_place_of_sequence(i)] += sums.total[i].sum;
        own->count[hl_place_of_sequence(i)] += sums.total[i].count;
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

hl_status hl_profile_rows_open(hl_profile *profile, const hl_layer_rows *rows,
                               const hl_profile_mask *mask)
{
    HL_NEED(check_rows(profile, rows));
    HL_NEED(hl_profile_plan(profile->flight, rows, mask));
    return open_buckets(profile, rows->n_batch);
}

void hl_profile_rows_head(hl_profile *profile, const hl_layer_rows *rows, int64_t head)
{
    for (int64_t sequence = 0; sequence < rows->n_batch; sequence++)
        add_head(profile, rows, sequence, head);
    if (hl_rows_sums(rows) != NULL)
        add_counts(profile, hl_rows_sums(rows), head, hl_cell(profile, rows->layer, head));
}

void hl_profile_rows_close(hl_profile *profile, const hl_layer_rows *rows)
{
    close_buckets(profile, rows);
}
