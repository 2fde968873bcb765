/* profile_read.c - what a profile's sums say.  headlight.h says what each call means. */
#include "stats/profile_tables.h"

int64_t hl_profile_n_layers(const hl_profile *profile)
{
    return profile->n_layers;
}

int64_t hl_profile_n_heads(const hl_profile *profile)
{
    return profile->n_heads;
}

int64_t hl_profile_heads_of(const hl_profile *profile, int64_t layer)
{
    return profile->heads[layer];
}

int64_t hl_profile_n_buckets(const hl_profile *profile)
{
    return profile->n_buckets;
}

int64_t hl_profile_n_types(const hl_profile *profile)
{
    return profile->n_types;
}

const char *hl_profile_type_name(const hl_profile *profile, int64_t type)
{
    return profile->type_names[type];
}

/* -------------------------------------------------------------------- moments */

static hl_moments nothing(void)
{
    return (hl_moments){ 0, (double)NAN, (double)NAN, (double)NAN, (double)NAN };
}

/* Of a count, and of the sum and the squares that follow it in the list of tables. */
static hl_moments moments_at(const hl_profile *profile, hl_table counts, int64_t at)
{
    int64_t    count   = hl_counts(profile, counts)[at];
    hl_moments moments = nothing();

    if (count == 0)
        return moments;
    moments.count = count;
    moments.mean  = hl_wide_mean(hl_wides(profile, counts + 1)[at], count);
    moments.variance =
        hl_variance_of(moments.mean, hl_wide_mean(hl_wides(profile, counts + 2)[at], count));
    return moments;
}

hl_moments hl_profile_moments(const hl_profile *profile, int64_t layer, int64_t head,
                              hl_quantity quantity)
{
    int64_t    at      = hl_cell(profile, layer, head) * HL_N_QUANTITIES + quantity;
    hl_moments moments = moments_at(profile, HL_TABLE_COUNT, at);

    if (moments.count > 0) {
        moments.min = (double)hl_floats(profile, HL_TABLE_MIN)[at];
        moments.max = (double)hl_floats(profile, HL_TABLE_MAX)[at];
    }
    return moments;
}

hl_moments hl_profile_by_position(const hl_profile *profile, int64_t layer, int64_t head,
                                  int64_t bucket, hl_quantity quantity)
{
    int64_t cell = hl_cell(profile, layer, head);

    if (quantity != HL_Q_ENTROPY && quantity != HL_Q_FAIR)
        return nothing();
    return moments_at(profile, HL_TABLE_POSITION_COUNT,
                      (cell * profile->n_buckets + bucket) * HL_N_BY_POSITION + quantity);
}

hl_moments hl_profile_by_type(const hl_profile *profile, int64_t layer, int64_t head, int64_t type,
                              hl_quantity quantity)
{
    int64_t cell = hl_cell(profile, layer, head);

    if (quantity != HL_Q_ENTROPY && quantity != HL_Q_FAIR && quantity != HL_Q_RENYI2)
        return nothing();
    return moments_at(profile, HL_TABLE_TYPE_COUNT,
                      (cell * profile->n_types + type) * HL_N_BY_TYPE + quantity);
}

int64_t hl_profile_broken_losses(const hl_profile *profile)
{
    return hl_counts(profile, HL_TABLE_NLL_BROKEN)[0];
}

hl_moments hl_profile_nll(const hl_profile *profile)
{
    hl_moments found = moments_at(profile, HL_TABLE_NLL_COUNT, 0);

    if (hl_profile_broken_losses(profile) > 0) /* the mean of the others says nothing of the text */
        found.mean = found.variance = found.min = found.max = NAN;
    return found;
}

double hl_profile_block_influence(const hl_profile *profile, int64_t layer)
{
    return moments_at(profile, HL_TABLE_INFLUENCE_COUNT, layer).mean;
}

double hl_profile_output_norm(const hl_profile *profile, int64_t layer, int64_t head)
{
    double  sum     = 0.0;
    int64_t n_heads = 0;

    for (int64_t i = 0; i < profile->heads[layer]; i++) {
        hl_moments norm = moments_at(profile, HL_TABLE_NORM_COUNT, hl_cell(profile, layer, i));
        sum += norm.count > 0 ? norm.mean : 0.0;
        n_heads += norm.count > 0 ? 1 : 0;
    }
    hl_moments own = moments_at(profile, HL_TABLE_NORM_COUNT, hl_cell(profile, layer, head));
    return own.count > 0 && sum > 0.0 ? own.mean / (sum / (double)n_heads) : (double)NAN;
}

/* ----------------------------------------------------------------- broken rows */

int64_t hl_profile_broken(const hl_profile *profile, int64_t layer, int64_t head)
{
    return hl_counts(profile, HL_TABLE_BROKEN)[hl_cell(profile, layer, head)];
}

bool hl_profile_broken_place(int64_t *document, int64_t *token, const hl_profile *profile,
                             int64_t layer, int64_t head)
{
    const int64_t *place = hl_counts(profile, HL_TABLE_PLACE) + 2 * hl_cell(profile, layer, head);

    *document = place[0];
    *token    = place[1];
    return place[0] >= 0;
}

/* ------------------------------------------------------------------ histograms */

const int64_t *hl_profile_histogram(const hl_profile *profile, int64_t layer, int64_t head,
                                    hl_histogram histogram)
{
    int64_t cell = hl_cell(profile, layer, head);
    return hl_counts(profile, HL_TABLE_HISTOGRAM) +
           (cell * HL_N_HISTOGRAMS + histogram) * HL_N_BINS;
}

/* Within a bin the rows are taken to lie evenly. */
double hl_profile_quantile(const hl_profile *profile, int64_t layer, int64_t head,
                           hl_histogram histogram, double q)
{
    const int64_t *bins  = hl_profile_histogram(profile, layer, head, histogram);
    int64_t        total = 0;
    double         below = 0.0;

    for (int bin = 0; bin < HL_N_BINS; bin++)
        total += bins[bin];
    for (int bin = 0; bin < HL_N_BINS && total > 0; bin++) {
        double wanted = q * (double)total - below;
        if (bins[bin] > 0 && wanted <= (double)bins[bin])
            return (bin + fmax(wanted, 0.0) / (double)bins[bin]) / HL_N_BINS;
        below += (double)bins[bin];
    }
    return total > 0 ? 1.0 : (double)NAN;
}

/* ---------------------------------------------------------------- sampled rows */

double hl_profile_lookback(const hl_profile *profile, int64_t layer, int64_t head, int64_t from,
                           int64_t to)
{
    int64_t row = hl_cell(profile, layer, head) * profile->n_types + from;
    return hl_unit_mean(hl_counts(profile, HL_TABLE_LOOKBACK)[row * profile->n_types + to],
                        hl_counts(profile, HL_TABLE_TYPE_COUNT)[row * HL_N_BY_TYPE]);
}

hl_moments hl_profile_pattern(const hl_profile *profile, int64_t layer, int64_t head,
                              hl_pattern_metric metric, bool nosink)
{
    int64_t    at    = (hl_cell(profile, layer, head) * HL_N_PATTERN_METRICS + metric) * 2 + nosink;
    int64_t    count = hl_counts(profile, HL_TABLE_PATTERN_COUNT)[at];
    hl_moments moments = nothing();

    if (count == 0)
        return moments;
    moments.count    = count;
    moments.mean     = hl_unit_mean(hl_counts(profile, HL_TABLE_PATTERN_SUM)[at], count);
    moments.variance = hl_variance_of(
        moments.mean, hl_unit_mean(hl_counts(profile, HL_TABLE_PATTERN_SQUARES)[at], count));
    return moments;
}

double hl_profile_similarity(const hl_profile *profile, int64_t layer, int64_t a, int64_t b)
{
    int64_t count = hl_counts(profile, HL_TABLE_DISTANCE_COUNT)[layer];
    int64_t n     = profile->heads[layer];

    if (count == 0 || a >= n || b >= n)
        return (double)NAN;
    if (a == b)
        return 1.0;
    int64_t at = a < b ? hl_pair(profile, layer, a, b) : hl_pair(profile, layer, b, a);
    return 1.0 - hl_unit_mean(hl_counts(profile, HL_TABLE_DISTANCE_SUM)[at], count);
}

/* The estimates have no bias, so the ratio may leave [0, 1] by a little. */
double hl_profile_cka(const hl_profile *profile, int64_t layer, int64_t a, int64_t b)
{
    const int64_t *sums = hl_counts(profile, HL_TABLE_KERNEL_SUM);
    int64_t        low  = a < b ? a : b;
    int64_t        high = a < b ? b : a;
    double         own  = (double)sums[hl_self_pair(profile, layer, a, a)] *
                 (double)sums[hl_self_pair(profile, layer, b, b)];

    if (sums[hl_self_pair(profile, layer, a, a)] <= 0 || !(own > 0.0))
        return (double)NAN;
    double cka = (double)sums[hl_self_pair(profile, layer, low, high)] / sqrt(own);
    return fmin(fmax(cka, 0.0), 1.0);
}

double hl_profile_probe(const hl_profile *profile, int64_t layer, int64_t head, hl_probe probe)
{
    const double *scores = profile->tables[HL_TABLE_PROBE];
    return scores[hl_cell(profile, layer, head) * HL_N_PROBES + probe];
}

/* ------------------------------------------------------------------- sequences */

int64_t hl_profile_n_sequences(const hl_profile *profile)
{
    return hl_profile_kept(profile);
}

int64_t hl_profile_all_sequences(const hl_profile *profile)
{
    return hl_counts(profile, HL_TABLE_TOTALS)[1];
}

int64_t hl_profile_n_tokens(const hl_profile *profile)
{
    return hl_counts(profile, HL_TABLE_TOTALS)[0];
}

uint64_t hl_profile_sequence_hash(const hl_profile *profile, int64_t sequence)
{
    return ((const uint64_t *)profile->tables[HL_TABLE_HASHES])[sequence];
}

double hl_profile_sequence_mean(const hl_profile *profile, int64_t sequence, int64_t layer,
                                int64_t head, hl_quantity quantity)
{
    int64_t n_cells = profile->n_layers * profile->n_heads;
    int64_t at      = sequence * n_cells + hl_cell(profile, layer, head);
    int     which   = quantity == HL_Q_ENTROPY  ? 0
                      : quantity == HL_Q_FAIR   ? 1
                      : quantity == HL_Q_NOSINK ? 2
                                                : -1;

    return which < 0 ? (double)NAN
                     : (double)hl_floats(profile, HL_TABLE_MEANS)[at * HL_N_OF_SEQUENCE + which];
}

/* Which of the quantities by position it is; -1: none. */
static int by_position(hl_quantity quantity)
{
    return quantity == HL_Q_ENTROPY ? 0 : quantity == HL_Q_FAIR ? 1 : -1;
}

double hl_profile_sequence_position(const hl_profile *profile, int64_t sequence, int64_t layer,
                                    int64_t bucket, hl_quantity quantity)
{
    int64_t at = (sequence * profile->n_layers + layer) * profile->n_buckets + bucket;
    int     i  = by_position(quantity);

    return i < 0 ? (double)NAN
                 : (double)hl_floats(profile, HL_TABLE_KEPT_POSITIONS)[at * HL_N_BY_POSITION + i];
}

int64_t hl_profile_sequence_rows(const hl_profile *profile, int64_t sequence, int64_t bucket,
                                 hl_quantity quantity)
{
    int64_t at = sequence * profile->n_buckets + bucket;
    int     i  = by_position(quantity);

    return i < 0 ? 0 : hl_counts(profile, HL_TABLE_KEPT_COUNTS)[at * HL_N_BY_POSITION + i];
}
