/* profile_add.c - adds batches of sequences to a profile; determines what the rows of a layer see;
 * adds single values.
 *
 * What rows see is the same for all heads, so it is computed once per layer: the logarithms that
 * normalize a row's entropy, and runs of rows that have the same defined quantities, position
 * bucket and token type.  A head then adds up one run at a time (profile_rows.c). */
#include "stats/profile_add.h"

#include <string.h>

#include "base/buffer.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "stats/profile_tables.h"

/* -------------------------------------------------------- memory of a batch */

void hl_profile_flight_free(hl_profile_flight *flight)
{
    if (flight == NULL)
        return;
    hl_free(flight->plans.log_n);
    hl_free(flight->plans.inverse);
    hl_free(flight->plans.inverse_other);
    hl_free(flight->plans.runs);
    hl_free(flight->plans.first_run);
    hl_free(flight->plans.places);
    hl_free(flight->logs);
    hl_free(flight->sequences);
    hl_free(flight->by_head);
    hl_free(flight->by_layer);
    hl_free(flight->means);
    hl_free(flight->more);
    hl_free(flight->positions);
    hl_free(flight->counts);
    hl_free(flight->kernels);
    hl_free(flight->row);
    hl_free(flight->totals);
    hl_free(flight->samples);
    hl_free(flight->places);
    hl_free(flight);
}

/* ----------------------------------------------------------- plans: visible */

hl_visible_keys hl_profile_seen(const hl_profile_mask *mask, int64_t position, int64_t n_keys)
{
    hl_reach reach = { HL_REACH_ALL, mask->is_causal ? 0 : HL_REACH_ALL, 0, 0 };

    if (mask->has_window) {
        reach.window_left  = mask->window_left;
        reach.window_right = mask->is_causal ? 0 : mask->window_right;
        reach.window_sink  = mask->window_sink;
        reach.window_block = mask->window_blocks ? mask->window_left + 1 : 0;
    }
    return hl_visible_join(hl_reach_keys(&reach, n_keys, position));
}

int64_t hl_profile_keys_of(const hl_profile_mask *mask, int64_t n_tokens)
{
    return mask->n_keys > 0 ? mask->n_keys : n_tokens;
}

static int32_t bucket_of(int64_t position)
{
    return (int32_t)(63 - __builtin_clzll((uint64_t)position + 1));
}

static uint32_t defined_for(const hl_profile_mask *mask, hl_visible_keys keys, int64_t n,
                            int64_t n_other, int64_t position)
{
    bool     is_cross = mask->n_keys > 0;
    uint32_t defined =
        1U << HL_Q_ENTROPY | 1U << HL_Q_RENYI2 | 1U << HL_Q_VARENTROPY | 1U << HL_Q_PEAK;

    if (n >= HL_NORMALIZED_KEYS)
        defined |= 1U << HL_Q_NORMALIZED;
    if (!is_cross && hl_visible_has(keys, position))
        defined |= 1U << HL_Q_SELF;
    if (!is_cross && hl_visible_has(keys, position - 1))
        defined |= 1U << HL_Q_PREVIOUS;
    if (hl_visible_has(keys, 0))
        defined |= 1U << HL_Q_FIRST;
    if (n_other >= 1)
        defined |= 1U << HL_Q_ENTROPY_NOSINK;
    if (n >= 2)
        defined |= 1U << (HL_N_QUANTITIES + HL_HIST_NORMALIZED);
    if (n_other >= 2)
        defined |= 1U << (HL_N_QUANTITIES + HL_HIST_NORMALIZED_NOSINK);
    return defined | 1U << (HL_N_QUANTITIES + HL_HIST_PEAK);
}

/* Numbers of keys that a row sees: all of them with a learned sink, and all but the first key. */
typedef struct key_counts {
    int64_t n;
    int64_t n_other;
} key_counts;

static key_counts count_keys(const hl_profile_mask *mask, hl_visible_keys keys)
{
    int64_t n_keys = hl_visible_count(keys);

    return (key_counts){ .n       = n_keys + (mask->has_sink ? 1 : 0),
                         .n_other = n_keys - (hl_visible_has(keys, 0) ? 1 : 0) };
}

hl_row_defined hl_profile_row_defined(const hl_profile_mask *mask, int64_t position, int64_t n_keys)
{
    hl_visible_keys keys   = hl_profile_seen(mask, position, n_keys);
    key_counts      counts = count_keys(mask, keys);

    if (hl_visible_count(keys) < 1)
        return (hl_row_defined){ 0 };
    return (hl_row_defined){
        .bits      = defined_for(mask, keys, counts.n, counts.n_other, position),
        .log_n     = log((double)counts.n),
        .log_other = counts.n_other > 0 ? log((double)counts.n_other) : 0.0,
    };
}

/* ------------------------------------------------------------ plans: memory */

static hl_status grow_rows(hl_row_plans *plans, size_t n_rows)
{
    size_t sizes[] = { plans->n_rows, plans->n_rows, plans->n_rows, plans->n_rows };

    HL_NEED(HL_GROW(&plans->log_n, &sizes[0], 0, n_rows));
    HL_NEED(HL_GROW(&plans->inverse, &sizes[1], 0, n_rows));
    HL_NEED(HL_GROW(&plans->inverse_other, &sizes[2], 0, n_rows));
    HL_NEED(HL_GROW(&plans->runs, &sizes[3], 0, n_rows));
    plans->n_rows = n_rows > plans->n_rows ? n_rows : plans->n_rows;
    return HL_OK;
}

/* Extends the table of logarithms to all numbers of keys that a row can see, including a learned
 * sink. */
static hl_status grow_logs(hl_profile_flight *flight, const hl_profile_mask *mask)
{
    int64_t longest = mask->n_keys;

    for (int64_t i = 0; i < flight->batch->n_batch; i++)
        longest = flight->batch->lengths[i] > longest ? flight->batch->lengths[i] : longest;
    size_t n_logs = (size_t)longest + 2;
    if (n_logs <= flight->n_logs)
        return HL_OK;
    HL_NEED(HL_GROW(&flight->logs, &flight->n_logs, 0, n_logs));
    flight->logs[0] = 0.0;
    for (size_t n = 1; n < flight->n_logs; n++)
        flight->logs[n] = log((double)n);
    return HL_OK;
}

/* -------------------------------------------------------------- plans: rows */

static double inverse_log(const hl_profile_flight *flight, int64_t n)
{
    return n >= 2 ? 1.0 / flight->logs[n] : 0.0;
}

/* Plans row `at`, of a sequence whose rows begin at `start`, as a run of its own; its `defined` is
 * 0 if it does not count. */
static hl_run plan_row(const hl_profile_flight *flight, const hl_profile_mask *mask,
                       int64_t sequence, int64_t start, int64_t position, int64_t at)
{
    const hl_profile_batch *batch  = flight->batch;
    const hl_row_plans     *plans  = &flight->plans;
    int64_t                 n_keys = hl_profile_keys_of(mask, batch->lengths[sequence]);
    hl_visible_keys         keys   = hl_profile_seen(mask, position, n_keys);
    key_counts              counts = count_keys(mask, keys);

    if (hl_visible_count(keys) < 1 || position < batch->first_row[sequence])
        return (hl_run){ 0 };
    plans->log_n[at]         = flight->logs[counts.n];
    plans->inverse[at]       = inverse_log(flight, counts.n);
    plans->inverse_other[at] = inverse_log(flight, counts.n_other);
    return (hl_run){
        .sequence = (int32_t)sequence,
        .begin    = (int32_t)(position - start),
        .end      = (int32_t)(position - start + 1),
        .defined  = defined_for(mask, keys, counts.n, counts.n_other, position),
        .bucket   = bucket_of(position),
        .type     = batch->types != NULL ? batch->types[sequence * batch->context + position] : 0,
    };
}

static bool continues(const hl_run *run, const hl_run *row)
{
    return run->end == row->begin && run->end - run->begin < HL_RUN_ROWS &&
           run->defined == row->defined && run->bucket == row->bucket && run->type == row->type;
}

/* Appends the runs of a sequence. */
static void plan_sequence(hl_profile_flight *flight, const hl_layer_rows *rows,
                          const hl_profile_mask *mask, int64_t sequence)
{
    hl_row_plans *plans = &flight->plans;
    int64_t       first = plans->first_run[sequence];
    int64_t       start = rows->start[sequence];
    int64_t       n     = first;

    for (int64_t i = 0; i < rows->lengths[sequence]; i++) {
        hl_run row =
            plan_row(flight, mask, sequence, start, start + i, sequence * rows->n_rows + i);

        if (row.defined == 0)
            continue;
        if (n > first && continues(&plans->runs[n - 1], &row))
            plans->runs[n - 1].end = row.end;
        else
            plans->runs[n++] = row;
    }
    plans->first_run[sequence + 1] = n;
}

static bool is_made_for(const hl_row_plans *plans, const hl_layer_rows *rows,
                        const hl_profile_mask *mask)
{
    const hl_profile_mask *made = &plans->mask;
    bool                   same =
        plans->is_made && plans->stride == rows->n_rows && made->is_causal == mask->is_causal &&
        made->has_window == mask->has_window && made->window_left == mask->window_left &&
        made->window_right == mask->window_right && made->window_sink == mask->window_sink &&
        made->window_blocks == mask->window_blocks && made->has_sink == mask->has_sink &&
        made->n_keys == mask->n_keys;

    for (int64_t i = 0; i < rows->n_batch && same; i++)
        same =
            plans->places[2 * i] == rows->start[i] && plans->places[2 * i + 1] == rows->lengths[i];
    return same;
}

static void note_made_for(hl_row_plans *plans, const hl_layer_rows *rows,
                          const hl_profile_mask *mask)
{
    plans->mask    = *mask;
    plans->stride  = rows->n_rows;
    plans->is_made = true;
    for (int64_t i = 0; i < rows->n_batch; i++) {
        plans->places[2 * i]     = rows->start[i];
        plans->places[2 * i + 1] = rows->lengths[i];
    }
}

hl_status hl_profile_plan(hl_profile_flight *flight, const hl_layer_rows *rows,
                          const hl_profile_mask *mask)
{
    size_t n_batch = (size_t)rows->n_batch;

    if (is_made_for(&flight->plans, rows, mask))
        return HL_OK;
    flight->plans.is_made = false;
    HL_NEED(HL_GROW(&flight->plans.places, &flight->plans.n_places, 0, 2 * n_batch));
    HL_NEED(grow_rows(&flight->plans, n_batch * (size_t)rows->n_rows));
    HL_NEED(HL_GROW(&flight->plans.first_run, &flight->plans.n_sequences, 0, n_batch + 1));
    HL_NEED(grow_logs(flight, mask));
    flight->plans.first_run[0] = 0;
    for (int64_t i = 0; i < rows->n_batch; i++)
        plan_sequence(flight, rows, mask, i);
    note_made_for(&flight->plans, rows, mask);
    flight->plans.version++;
    return HL_OK;
}

hl_status hl_profile_list_runs(hl_row_plan *out, hl_profile *profile, const hl_layer_rows *rows,
                               const hl_profile_mask *mask)
{
    const hl_row_plans *plans = &profile->flight->plans;

    HL_NEED(hl_profile_plan(profile->flight, rows, mask));
    *out = (hl_row_plan){ .runs          = plans->runs,
                          .n_runs        = plans->first_run[rows->n_batch],
                          .log_n         = plans->log_n,
                          .inverse       = plans->inverse,
                          .inverse_other = plans->inverse_other,
                          .version       = plans->version };
    return HL_OK;
}

/* ------------------------------------------------------------------ batches */

int hl_profile_threads(const hl_profile *profile, int64_t n_values)
{
    return n_values < 8192 ? 1 : hl_threads(profile->flight->batch->n_threads);
}

static int64_t n_cells(const hl_profile *profile)
{
    return profile->n_layers * profile->n_heads;
}

/* Returns the number of buckets of all layers together. */
static int64_t n_curves(const hl_profile *profile)
{
    return profile->n_layers * profile->n_buckets;
}

static hl_status open_flight(hl_profile *profile)
{
    hl_profile_flight *flight = NULL;

    HL_NEED(HL_ALLOC_ZEROED(&profile->flight, 1));
    flight = profile->flight;
    HL_NEED(HL_ALLOC(&flight->means, (size_t)n_cells(profile) * HL_N_OF_SEQUENCE));
    HL_NEED(HL_ALLOC(&flight->more, (size_t)n_cells(profile) * HL_N_MORE));
    HL_NEED(HL_ALLOC(&flight->positions, (size_t)n_curves(profile) * HL_N_BY_POSITION));
    return HL_ALLOC(&flight->counts, (size_t)profile->n_buckets * HL_N_BY_POSITION);
}

hl_status hl_profile_begin(hl_profile *profile, const hl_profile_batch *batch)
{
    hl_profile_flight *flight   = NULL;
    size_t             n_heads  = (size_t)(batch->n_batch * n_cells(profile));
    size_t             n_layers = (size_t)(batch->n_batch * n_curves(profile));

    if (profile->flight == NULL)
        HL_NEED(open_flight(profile));
    flight = profile->flight;
    HL_NEED(HL_GROW(&flight->sequences, &flight->n_sequences, 0, n_heads));
    HL_NEED(HL_GROW(&flight->by_layer, &flight->n_by_layer, 0, n_layers));
    memset(flight->sequences, 0, n_heads * sizeof *flight->sequences);
    memset(flight->by_layer, 0, n_layers * sizeof *flight->by_layer);
    flight->batch         = batch;
    flight->plans.is_made = false;
    return HL_OK;
}

static void sequence_means(const hl_profile *profile, int64_t sequence)
{
    const hl_profile_flight *flight = profile->flight;

    for (int64_t cell = 0; cell < n_cells(profile); cell++) {
        const hl_sequence_sums *sums = &flight->sequences[sequence * n_cells(profile) + cell];
        for (int i = 0; i < HL_N_OF_SEQUENCE; i++)
            flight->means[cell * HL_N_OF_SEQUENCE + i] =
                (float)hl_wide_mean(sums->sum[i], sums->count[i]);
        for (int i = 0; i < HL_N_MORE; i++)
            flight->more[cell * HL_N_MORE + i] = (float)hl_wide_mean(
                sums->sum[HL_N_OF_SEQUENCE + i], sums->count[HL_N_OF_SEQUENCE + i]);
    }
}

/* Computes the sequence's mean for each layer, and its number of rows, in every bucket. */
static void sequence_positions(const hl_profile *profile, int64_t sequence)
{
    const hl_profile_flight *flight    = profile->flight;
    const hl_bucket_sums    *buckets   = flight->by_layer + sequence * n_curves(profile);
    int64_t                  n_buckets = profile->n_buckets;

    memset(flight->counts, 0, (size_t)n_buckets * HL_N_BY_POSITION * sizeof *flight->counts);
    for (int64_t at = 0; at < n_curves(profile); at++) {
        for (int i = 0; i < HL_N_BY_POSITION; i++) {
            flight->positions[at * HL_N_BY_POSITION + i] =
                (float)hl_wide_mean(buckets[at].sum[i], buckets[at].count[i]);
            flight->counts[at % n_buckets * HL_N_BY_POSITION + i] += buckets[at].count[i];
        }
    }
}

static void keep_sequence(hl_profile *profile, int64_t sequence, int64_t n_before)
{
    const hl_profile_flight *flight = profile->flight;
    const hl_profile_batch  *batch  = flight->batch;
    uint64_t                 document =
        batch->corpus != 0 ? hl_hash_pair(batch->corpus, (uint64_t)batch->documents[sequence]) : 0;
    hl_kept_sequence kept = { { &batch->hashes[sequence], flight->means, flight->positions,
                                flight->counts, &document, flight->more } };

    sequence_means(profile, sequence);
    sequence_positions(profile, sequence);
    hl_profile_keep(profile, &kept, n_before);
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
        keep_sequence(profile, i, totals[1]);
        totals[0] += n_counted;
        totals[1] += 1;
        *(uint64_t *)profile->tables[HL_TABLE_TEXT] += batch->hashes[i];
    }
    profile->flight->batch = NULL;
    return HL_OK;
}

/* ------------------------------------------------------------------- layers */

static int layer_threads(const hl_profile *profile, const hl_layer_rows *rows)
{
    int64_t n_cells = rows->n_batch * rows->n_heads * (rows->n_rows + rows->n_keys);

    return hl_profile_threads(profile, n_cells * HL_N_QUANTITIES);
}

/* The rows of a layer: the argument of the threads. */
typedef struct layer_job {
    hl_profile          *profile;
    const hl_layer_rows *rows;
} layer_job;

static void add_heads(void *context, int64_t first, int64_t end, int member)
{
    const layer_job *job = context;

    for (int64_t head = first; head < end; head++) {
        hl_profile_rows_head(job->profile, job->rows, head);
        hl_profile_samples_head(job->profile, job->rows, head, member);
    }
}

static void add_pairs(void *context, int64_t first, int64_t end, int member)
{
    const layer_job *job = context;
    (void)member;

    for (int64_t head = first; head < end; head++)
        hl_profile_samples_pairs(job->profile, job->rows, head);
}

hl_status hl_profile_layer(hl_profile *profile, const hl_layer_rows *rows,
                           const hl_profile_mask *mask)
{
    layer_job job       = { profile, rows };
    int       n_threads = layer_threads(profile, rows);

    HL_NEED(hl_profile_rows_open(profile, rows, mask));
    HL_NEED(hl_profile_samples_open(profile, rows, mask));
    hl_parallel(n_threads, rows->n_heads, 1, add_heads, &job);
    hl_parallel(n_threads, rows->n_heads, 1, add_pairs, &job);
    hl_profile_rows_close(profile, rows);
    hl_profile_samples_close(profile, rows);
    return HL_OK;
}

/* ------------------------------------------------------------ single values */

static void add_single(const hl_profile *profile, hl_table count, int64_t at, double value)
{
    if (!hl_fixed_fits(value))
        return;
    hl_counts(profile, count)[at] += 1;
    hl_wides(profile, count + 1)[at] += hl_fixed(value);
    hl_wides(profile, count + 2)[at] += hl_fixed_square(value);
}

void hl_profile_norm(hl_profile *profile, int64_t sequence, int64_t layer, int64_t head,
                     double norm)
{
    int64_t cell = hl_cell(profile, layer, head);

    add_single(profile, HL_TABLE_NORM_COUNT, cell, norm);
    if (sequence < 0 || profile->flight == NULL || profile->flight->batch == NULL ||
        !hl_fixed_fits(norm))
        return;
    hl_sequence_sums *own   = &profile->flight->sequences[sequence * n_cells(profile) + cell];
    int               place = hl_place_of_sequence(HL_Q_OUTPUT);
    own->sum[place] += hl_fixed(norm);
    own->count[place] += 1;
}

void hl_profile_influence(hl_profile *profile, int64_t layer, double influence)
{
    add_single(profile, HL_TABLE_INFLUENCE_COUNT, layer, influence);
}

void hl_profile_recall_add(hl_profile *profile, int64_t layer, int64_t head, double recall)
{
    add_single(profile, HL_TABLE_RECALL_COUNT, hl_cell(profile, layer, head), recall);
}

void hl_profile_loss(hl_profile *profile, double nll)
{
    hl_counts(profile, HL_TABLE_NLL_BROKEN)[0] += !hl_fixed_fits(nll);
    add_single(profile, HL_TABLE_NLL_COUNT, 0, nll);
}

void hl_profile_set_probe(hl_profile *profile, int64_t layer, int64_t head, hl_probe probe,
                          double score)
{
    double *scores                                              = profile->tables[HL_TABLE_PROBE];
    scores[hl_cell(profile, layer, head) * HL_N_PROBES + probe] = score;
}
