/* profile_add.c - batches of sequences, and what is added one value at a time. */
#include "stats/profile_add.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "stats/profile_tables.h"

/* --------------------------------------------------------------------- batches */

void hl_profile_flight_free(hl_profile_flight *flight)
{
    if (flight == NULL)
        return;
    hl_free(flight->plans.log_n);
    hl_free(flight->plans.inverse);
    hl_free(flight->plans.inverse_other);
    hl_free(flight->plans.runs);
    hl_free(flight->plans.n_runs);
    hl_free(flight->plans.places);
    hl_free(flight->plans.listed);
    hl_free(flight->logs);
    hl_free(flight->sequences);
    hl_free(flight->by_head);
    hl_free(flight->by_layer);
    hl_free(flight->means);
    hl_free(flight->positions);
    hl_free(flight->counts);
    hl_free(flight->kernels);
    hl_free(flight->row);
    hl_free(flight->totals);
    hl_free(flight->samples);
    hl_free(flight->places);
    hl_free(flight);
}

hl_status hl_profile_grow(void **block, size_t *size, size_t wanted, size_t item)
{
    void *larger = NULL;

    if (wanted <= *size && *block != NULL)
        return HL_OK;
    HL_NEED(hl_alloc(&larger, wanted, item));
    hl_free(*block);
    *block = larger;
    *size  = wanted;
    return HL_OK;
}

int hl_profile_threads(const hl_profile *profile, int64_t n_values)
{
    return n_values < 8192 ? 1 : hl_threads(profile->flight->batch->n_threads);
}

static int64_t n_cells(const hl_profile *profile)
{
    return profile->n_layers * profile->n_heads;
}

/* Buckets of all layers. */
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
    HL_NEED(hl_profile_grow((void **)&flight->sequences, &flight->n_sequences, n_heads,
                            sizeof *flight->sequences));
    HL_NEED(hl_profile_grow((void **)&flight->by_layer, &flight->n_by_layer, n_layers,
                            sizeof *flight->by_layer));
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
    }
}

/* What the sequence's rows come to in every bucket: a mean for each layer, and how many. */
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
    hl_kept_sequence kept = { { &flight->batch->hashes[sequence], flight->means, flight->positions,
                                flight->counts } };

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

/* ----------------------------------------------------------------------- layers */

static int layer_threads(const hl_profile *profile, const hl_layer_rows *rows)
{
    int64_t n_cells = rows->n_batch * rows->n_heads * (rows->n_rows + rows->n_keys);

    return hl_profile_threads(profile, n_cells * HL_N_QUANTITIES);
}

/* A layer's rows: what a thread is given. */
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
    hl_counts(profile, HL_TABLE_NLL_BROKEN)[0] += !hl_fixed_fits(nll);
    add_single(profile, HL_TABLE_NLL_COUNT, 0, nll);
}

void hl_profile_set_probe(hl_profile *profile, int64_t layer, int64_t head, hl_probe probe,
                          double score)
{
    double *scores                                              = profile->tables[HL_TABLE_PROBE];
    scores[hl_cell(profile, layer, head) * HL_N_PROBES + probe] = score;
}
