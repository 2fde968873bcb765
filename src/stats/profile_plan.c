/* profile_plan.c - what the rows of a layer see.
 *
 * It is the same for all heads, so it is worked out once a layer: the logarithms that
 * normalise a row's entropy, and runs of rows for which the same quantities are defined
 * and which belong to the same position bucket and token type.  A head then adds up a
 * run at a time (profile_rows.c). */
#include "base/memory.h"
#include "base/status.h"
#include "stats/profile_add.h"
#include "stats/profile_tables.h"

/* --------------------------------------------------------------------- visible */

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
    if (n >= 2)
        defined |= 1U << (HL_N_QUANTITIES + HL_HIST_NORMALISED);
    if (n_other >= 2)
        defined |= 1U << (HL_N_QUANTITIES + HL_HIST_NOSINK);
    return defined | 1U << (HL_N_QUANTITIES + HL_HIST_PEAK);
}

/* How many keys a row sees, with a learned sink, and how many but key 0. */
typedef struct key_counts {
    int64_t n;
    int64_t n_other;
} key_counts;

static key_counts count_keys(const hl_profile_mask *mask, hl_seen_keys keys)
{
    int64_t n_keys = hl_seen_count(keys);

    return (key_counts){ .n       = n_keys + (mask->has_sink ? 1 : 0),
                         .n_other = n_keys - (keys.begin == 0 ? 1 : 0) };
}

hl_row_defined hl_profile_row_defined(const hl_profile_mask *mask, int64_t position, int64_t n_keys)
{
    hl_seen_keys keys   = hl_profile_seen(mask, position, n_keys);
    key_counts   counts = count_keys(mask, keys);

    if (hl_seen_count(keys) < 1)
        return (hl_row_defined){ 0 };
    return (hl_row_defined){
        .bits      = defined_for(keys, counts.n, counts.n_other, position),
        .log_n     = log((double)counts.n),
        .log_other = counts.n_other > 0 ? log((double)counts.n_other) : 0.0,
    };
}

/* ------------------------------------------------------------------------ memory */

static hl_status grow_rows(hl_row_plans *plans, size_t n_rows)
{
    size_t sizes[] = { plans->n_rows, plans->n_rows, plans->n_rows, plans->n_rows };

    HL_NEED(hl_profile_grow((void **)&plans->log_n, &sizes[0], n_rows, sizeof *plans->log_n));
    HL_NEED(hl_profile_grow((void **)&plans->inverse, &sizes[1], n_rows, sizeof *plans->inverse));
    HL_NEED(hl_profile_grow((void **)&plans->inverse_other, &sizes[2], n_rows,
                            sizeof *plans->inverse_other));
    HL_NEED(hl_profile_grow((void **)&plans->runs, &sizes[3], n_rows, sizeof *plans->runs));
    plans->n_rows = sizes[0];
    return HL_OK;
}

/* Logarithms of all numbers of keys that a row can see, a learned sink among them. */
static hl_status grow_logs(hl_profile_flight *flight)
{
    int64_t longest = 0;

    for (int64_t i = 0; i < flight->batch->n_batch; i++)
        longest = flight->batch->lengths[i] > longest ? flight->batch->lengths[i] : longest;
    size_t n_logs = (size_t)longest + 2;
    if (n_logs <= flight->n_logs)
        return HL_OK;
    HL_NEED(hl_profile_grow((void **)&flight->logs, &flight->n_logs, n_logs, sizeof *flight->logs));
    flight->logs[0] = 0.0;
    for (size_t n = 1; n < n_logs; n++)
        flight->logs[n] = log((double)n);
    return HL_OK;
}

/* -------------------------------------------------------------------------- rows */

static double inverse_log(const hl_profile_flight *flight, int64_t n)
{
    return n >= 2 ? 1.0 / flight->logs[n] : 0.0;
}

/* Row `at` of the plans: as a run of its own, whose `defined` is 0 if it does not count. */
static hl_row_run plan_row(const hl_profile_flight *flight, const hl_profile_mask *mask,
                           int64_t sequence, int64_t position, int64_t at)
{
    const hl_profile_batch *batch  = flight->batch;
    const hl_row_plans     *plans  = &flight->plans;
    hl_seen_keys            keys   = hl_profile_seen(mask, position, batch->lengths[sequence]);
    key_counts              counts = count_keys(mask, keys);

    if (hl_seen_count(keys) < 1 || position < batch->first_row[sequence])
        return (hl_row_run){ 0 };
    plans->log_n[at]         = flight->logs[counts.n];
    plans->inverse[at]       = inverse_log(flight, counts.n);
    plans->inverse_other[at] = inverse_log(flight, counts.n_other);
    return (hl_row_run){
        .defined = defined_for(keys, counts.n, counts.n_other, position),
        .bucket  = bucket_of(position),
        .type    = batch->types != NULL ? batch->types[sequence * batch->context + position] : 0,
    };
}

static bool continues(const hl_row_run *run, const hl_row_run *row, int64_t at)
{
    return run->end == at && at - run->begin < HL_RUN_ROWS && run->defined == row->defined &&
           run->bucket == row->bucket && run->type == row->type;
}

static void plan_sequence(hl_profile_flight *flight, const hl_layer_rows *rows,
                          const hl_profile_mask *mask, int64_t sequence)
{
    int64_t     first = sequence * rows->n_rows;
    hl_row_run *runs  = flight->plans.runs + first;
    int64_t     count = 0;

    for (int64_t i = 0; i < rows->lengths[sequence]; i++) {
        hl_row_run row = plan_row(flight, mask, sequence, rows->start[sequence] + i, first + i);

        if (row.defined == 0)
            continue;
        if (count > 0 && continues(&runs[count - 1], &row, i)) {
            runs[count - 1].end = i + 1;
            continue;
        }
        row.begin     = i;
        row.end       = i + 1;
        runs[count++] = row;
    }
    flight->plans.n_runs[sequence] = count;
}

static bool is_made_for(const hl_row_plans *plans, const hl_layer_rows *rows,
                        const hl_profile_mask *mask)
{
    const hl_profile_mask *made = &plans->mask;
    bool                   same = plans->is_made && plans->stride == rows->n_rows &&
                made->is_causal == mask->is_causal && made->has_window == mask->has_window &&
                made->window_left == mask->window_left &&
                made->window_right == mask->window_right &&
                made->window_sink == mask->window_sink && made->has_sink == mask->has_sink;

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
    HL_NEED(hl_profile_grow((void **)&flight->plans.places, &flight->plans.n_places, 2 * n_batch,
                            sizeof *flight->plans.places));
    HL_NEED(grow_rows(&flight->plans, n_batch * (size_t)rows->n_rows));
    HL_NEED(hl_profile_grow((void **)&flight->plans.n_runs, &flight->plans.n_sequences, n_batch,
                            sizeof *flight->plans.n_runs));
    HL_NEED(grow_logs(flight));
    for (int64_t i = 0; i < rows->n_batch; i++)
        plan_sequence(flight, rows, mask, i);
    note_made_for(&flight->plans, rows, mask);
    flight->plans.version++;
    return HL_OK;
}

static hl_run listed_run(const hl_row_run *run, int64_t sequence)
{
    return (hl_run){ .sequence = (int32_t)sequence,
                     .begin    = (int32_t)run->begin,
                     .end      = (int32_t)run->end,
                     .defined  = run->defined,
                     .type     = run->type };
}

hl_status hl_profile_list_runs(hl_row_plan *out, hl_profile *profile, const hl_layer_rows *rows,
                               const hl_profile_mask *mask)
{
    hl_row_plans *plans = &profile->flight->plans;
    int64_t       count = 0;

    HL_NEED(hl_profile_plan(profile->flight, rows, mask));
    HL_NEED(hl_profile_grow((void **)&plans->listed, &plans->n_listed, plans->n_rows,
                            sizeof *plans->listed));
    for (int64_t sequence = 0; sequence < rows->n_batch; sequence++) {
        for (int64_t i = 0; i < plans->n_runs[sequence]; i++)
            plans->listed[count++] =
                listed_run(&plans->runs[sequence * rows->n_rows + i], sequence);
    }
    *out = (hl_row_plan){ .runs          = plans->listed,
                          .n_runs        = count,
                          .log_n         = plans->log_n,
                          .inverse       = plans->inverse,
                          .inverse_other = plans->inverse_other,
                          .version       = plans->version };
    return HL_OK;
}
