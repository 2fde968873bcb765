/* grid.c - a profile's numbers as plain arrays: heads, layers, positions, and the level of the whole. */
#include "analysis/grid.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/numbers.h"
#include "base/memory.h"
#include "base/status.h"
#include "headlight/prune.h"
#include "stats/profile.h"

enum { LEAST_SEQUENCES = 4 }; /* whose spread says how far a fall is */
enum { MAX_DIGITS = 9 };      /* of the number of a layer or a head */

/* -------------------------------------------------------------------- heads */

const char *hl_head_name(char room[HL_HEAD_NAME_BYTES], int64_t layer, int64_t head)
{
    snprintf(room, HL_HEAD_NAME_BYTES, "L%lldH%lld", (long long)layer, (long long)head);
    return room;
}

/* A letter and digits, from *word on; false if they are not there. */
static bool read_number(int64_t *out, const char **word, const char *end, char letter)
{
    const char *at    = *word;
    int64_t     value = 0;

    if (at == end || (*at != letter && *at != letter - 'A' + 'a'))
        return false;
    const char *digits = ++at;
    for (; at < end && *at >= '0' && *at <= '9' && at - digits < MAX_DIGITS; at++)
        value = 10 * value + (*at - '0');
    *out  = value;
    *word = at;
    return at > digits;
}

bool hl_head_read(hl_head *out, const char *word, size_t n_bytes)
{
    const char *at  = word;
    const char *end = word + n_bytes;

    *out = (hl_head){ 0, -1 };
    if (!read_number(&out->layer, &at, end, 'L'))
        return false;
    return at == end || (read_number(&out->head, &at, end, 'H') && at == end);
}

bool hl_same_setting(const hl_profile *a, const hl_profile *b, const char *key)
{
    const char *left  = hl_profile_setting(a, key);
    const char *right = hl_profile_setting(b, key);

    return left != NULL && right != NULL && strcmp(left, right) == 0;
}

bool hl_same_text(const hl_profile *a, const hl_profile *b)
{
    int64_t count = hl_profile_n_sequences(a);

    if (count == 0 || count != hl_profile_n_sequences(b) ||
        hl_profile_n_tokens(a) != hl_profile_n_tokens(b))
        return false;
    for (int64_t i = 0; i < count; i++) { /* both are sorted */
        if (hl_profile_sequence_hash(a, i) != hl_profile_sequence_hash(b, i))
            return false;
    }
    return true;
}

double hl_head_number(const hl_profile *profile, int64_t layer, int64_t head, hl_number_from from,
                      int which)
{
    switch (from) {
    case HL_FROM_ROWS:
        return hl_profile_mean(profile, layer, head, (hl_quantity)which);
    case HL_FROM_PATTERN:
    case HL_FROM_PATTERN_NOSINK:
        return hl_profile_pattern(profile, layer, head, (hl_pattern_metric)which,
                                  from == HL_FROM_PATTERN_NOSINK)
            .mean;
    case HL_FROM_PROBE:
        return hl_profile_probe(profile, layer, head, (hl_probe)which);
    default:
        return hl_profile_output_norm(profile, layer, head);
    }
}

hl_status hl_grid_means(double **out, const hl_profile *profile, hl_quantity quantity)
{
    int64_t n_heads = hl_profile_n_heads(profile);

    HL_NEED(HL_ALLOC(out, (size_t)hl_grid_size(profile)));
    for (int64_t i = 0; i < hl_grid_size(profile); i++)
        (*out)[i] = hl_grid_has(profile, i)
                        ? hl_profile_mean(profile, i / n_heads, i % n_heads, quantity)
                        : NAN;
    return HL_OK;
}

hl_status hl_grid_sequences(double **out, const hl_profile *profile, hl_quantity quantity)
{
    int64_t size        = hl_grid_size(profile);
    int64_t n_heads     = hl_profile_n_heads(profile);
    int64_t n_sequences = hl_profile_n_sequences(profile);

    HL_NEED(HL_ALLOC(out, (size_t)size * (size_t)n_sequences));
    for (int64_t sequence = 0; sequence < n_sequences; sequence++) {
        for (int64_t i = 0; i < size; i++)
            (*out)[sequence * size + i] =
                hl_grid_has(profile, i) ? hl_profile_sequence_mean(profile, sequence, i / n_heads,
                                                                   i % n_heads, quantity)
                                        : NAN;
    }
    return HL_OK;
}

hl_status hl_grid_intervals(hl_interval **out, const hl_profile *profile, hl_quantity quantity,
                            uint64_t seed)
{
    int64_t               size        = hl_grid_size(profile);
    int64_t               n_sequences = hl_profile_n_sequences(profile);
    HL_FREED hl_interval *found       = NULL;
    HL_FREED double      *values = NULL, *draws = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC(&found, (size_t)size));
    if (n_sequences >= 2) {
        HL_NEED(hl_grid_sequences(&values, profile, quantity));
        HL_NEED(hl_bootstrap_draws(&draws, values, n_sequences, size, seed));
    }
    for (int64_t i = 0; i < size; i++)
        found[i] = draws == NULL
                       ? hl_no_interval
                       : hl_bootstrap_interval(draws + i * HL_RESAMPLES, HL_RESAMPLES, 0.95);
    *out = hl_taken(&found);
    return HL_OK;
}

double hl_similarity_beside_first(const hl_profile *profile, int64_t layer, int64_t a, int64_t b)
{
    double distance = 1.0 - hl_profile_similarity(profile, layer, a, b);
    double sink_a   = hl_profile_pattern(profile, layer, a, HL_PM_SINK, false).mean;
    double sink_b   = hl_profile_pattern(profile, layer, b, HL_PM_SINK, false).mean;
    double rest     = 1.0 - 0.5 * (sink_a + sink_b);

    if (isnan(distance) || isnan(rest))
        return (double)NAN;
    if (rest <= 1e-6) /* what rounding leaves of rows that are all on the first key */
        return 0.0;
    distance = fmax(distance - 0.5 * fabs(sink_a - sink_b), 0.0);
    return fmax(1.0 - distance / rest, 0.0);
}

double hl_similarity_in_common(const hl_profile *profile, int64_t layer, int64_t a, int64_t b)
{
    return fmin(hl_profile_similarity(profile, layer, a, b), /* passes NaN over */
                hl_similarity_beside_first(profile, layer, a, b));
}

/* ------------------------------------------------------------------- layers */

void hl_layer_profile_free(hl_layer_profile *layers)
{
    if (layers == NULL)
        return;
    hl_free(layers->means); /* all four */
    hl_free(layers);
}

/* values (n_sequences, n_layers): each sequence's mean over the heads of a layer, drawn anew. */
static hl_status fill_layer_intervals(hl_layer_profile *layers, const hl_profile *profile,
                                      hl_quantity quantity, uint64_t seed)
{
    int64_t          n_layers    = layers->n_layers;
    int64_t          n_heads     = hl_profile_n_heads(profile);
    int64_t          n_sequences = hl_profile_n_sequences(profile);
    HL_FREED double *heads = NULL, *values = NULL, *draws = NULL;

    if (n_sequences >= 2) {
        HL_NEED(hl_grid_sequences(&heads, profile, quantity));
        HL_NEED(HL_ALLOC(&values, (size_t)(n_sequences * n_layers)));
        for (int64_t i = 0; i < n_sequences * n_layers; i++)
            values[i] = hl_mean(heads + i * n_heads, n_heads);
        HL_NEED(hl_bootstrap_draws(&draws, values, n_sequences, n_layers, seed));
    }
    for (int64_t layer = 0; layer < n_layers; layer++) {
        hl_interval interval = hl_no_interval;

        if (draws != NULL)
            interval = hl_bootstrap_interval(draws + layer * HL_RESAMPLES, HL_RESAMPLES, 0.95);
        layers->lows[layer]   = interval.low;
        layers->highs[layer]  = interval.high;
        layers->errors[layer] = interval.error;
    }
    return HL_OK;
}

static void find_range(hl_layer_shape *shape, const double *means, int64_t n_layers)
{
    double  highest = NAN;
    int64_t lowest  = -1;

    for (int64_t layer = 0; layer < n_layers; layer++) {
        if (isnan(means[layer]))
            continue;
        highest = fmax(highest, means[layer]); /* fmax passes NaN over */
        if (lowest < 0 || means[layer] < means[lowest])
            lowest = layer;
    }
    shape->minimum = lowest;
    shape->range   = lowest < 0 ? NAN : highest - means[lowest];
    shape->depth = lowest < 0 ? NAN : n_layers > 1 ? (double)lowest / (double)(n_layers - 1) : 0.0;
}

/* Means of the first, the middle and the last third of the layers. */
static void find_thirds(hl_layer_shape *shape, const double *means, int64_t n_layers)
{
    int64_t third = n_layers >= 3 ? n_layers / 3 : n_layers / 2;

    shape->thirds[0] = hl_mean(means, third);
    shape->thirds[1] = hl_mean(means + third, n_layers - 2 * third);
    shape->thirds[2] = hl_mean(means + n_layers - third, third);
    shape->change    = shape->thirds[2] - shape->thirds[0];
    /* Of two independent layers; thirds of several layers are known better. */
    shape->change_errors = fabs(shape->change) / (sqrt(2.0) * shape->error);
}

/* -1 and 1: a difference that counts; 0: none does. */
static int sign_of(const hl_layer_shape *shape, double difference, double least, double errors)
{
    bool sure = isnan(shape->error) || fabs(difference) >= errors * sqrt(2.0) * shape->error;

    if (!(fabs(difference) >= least) || !sure)
        return 0;
    return difference < 0.0 ? -1 : 1;
}

static hl_shape_kind kind_of(const hl_layer_shape *shape, double least, double errors)
{
    double first  = shape->thirds[1] - shape->thirds[0],
           second = shape->thirds[2] - shape->thirds[1];
    int  down     = sign_of(shape, first, least, errors);
    int  up       = sign_of(shape, second, least, errors);
    int  all      = sign_of(shape, shape->change, least, errors);
    bool turns    = fmin(fabs(first), fabs(second)) >= 0.15 * shape->range;

    if (isnan(shape->range))
        return HL_SHAPE_UNKNOWN;
    if (shape->range < least)
        return HL_SHAPE_FLAT;
    if (down * up < 0 && turns)
        return down < 0 ? HL_SHAPE_U : HL_SHAPE_HILL;
    if (all != 0 && down != -all && up != -all && all * shape->spearman >= 0.5)
        return all < 0 ? HL_SHAPE_FALLS : HL_SHAPE_RISES;
    return sign_of(shape, shape->range, least, errors) == 0 ? HL_SHAPE_UNKNOWN : HL_SHAPE_UNEVEN;
}

const char *hl_shape_name(hl_shape_kind kind)
{
    static const char *const names[] = { "not known",        "flat",  "falls", "rises", "U-shape",
                                         "inverted U-shape", "uneven" };

    return names[kind];
}

const char *hl_shape_specialized(const hl_layer_shape *shape, double least, double errors)
{
    if (isnan(shape->change))
        return "not known";
    int sign = sign_of(shape, shape->change, least, errors);
    return sign == 0 ? "no difference" : sign < 0 ? "yes" : "no: less";
}

static hl_status find_shape(hl_layer_profile *layers, double flat_errors, double least)
{
    int64_t          n_layers = layers->n_layers;
    hl_layer_shape  *shape    = &layers->shape;
    HL_FREED double *work     = NULL; /* (2, n_layers): depths, squared errors */

    HL_NEED(HL_ALLOC(&work, 2 * (size_t)n_layers));
    for (int64_t layer = 0; layer < n_layers; layer++) {
        work[layer]            = n_layers > 1 ? (double)layer / (double)(n_layers - 1) : 0.0;
        work[n_layers + layer] = layers->errors[layer] * layers->errors[layer];
    }
    find_range(shape, layers->means, n_layers);
    shape->error     = sqrt(hl_mean(work + n_layers, n_layers));
    shape->curvature = hl_fit_parabola(work, layers->means, n_layers).quadratic;
    HL_NEED(hl_spearman(&shape->spearman, work, layers->means, n_layers));
    find_thirds(shape, layers->means, n_layers);
    /* One layer has no profile to be flat. */
    shape->flat = n_layers > 1 && shape->range < least;
    shape->kind = n_layers > 1 ? kind_of(shape, least, flat_errors) : HL_SHAPE_UNKNOWN;
    return HL_OK;
}

hl_status hl_layer_profile_new(hl_layer_profile **out, const hl_profile *profile,
                               hl_quantity quantity, double flat_errors, uint64_t seed)
{
    int64_t n_layers = hl_profile_n_layers(profile), n_heads = hl_profile_n_heads(profile);
    HL_CLOSED(hl_layer_profile_free) hl_layer_profile *layers = NULL;
    HL_FREED double                                   *means  = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&layers, 1));
    HL_NEED(HL_ALLOC(&layers->means, 4 * (size_t)n_layers));
    layers->n_layers = n_layers;
    layers->lows     = layers->means + n_layers;
    layers->highs    = layers->lows + n_layers;
    layers->errors   = layers->highs + n_layers;
    HL_NEED(hl_grid_means(&means, profile, quantity));
    for (int64_t layer = 0; layer < n_layers; layer++)
        layers->means[layer] = hl_mean(means + layer * n_heads, n_heads);
    HL_NEED(fill_layer_intervals(layers, profile, quantity, seed));
    HL_NEED(find_shape(layers, flat_errors,
                       quantity == HL_Q_NORMALIZED ? HL_LAYERS_DIFFER : HL_LAYERS_DIFFER_NATS));
    *out = hl_taken(&layers);
    return HL_OK;
}

/* ---------------------------------------------------------------- positions */

/* Sequences differ in length, so the later a bucket, the fewer rows some of them have in it.
 * A draw of sequences therefore gives the mean of their rows, not the mean of their means:
 * rows and sums of rows are drawn together, and then divided. */

/* values (n_sequences, n_buckets, 2): the sum of a sequence's rows, in which every head counts alike,
 * and how many they are. */
static void read_sequences(double *values, const hl_profile *profile, hl_quantity quantity)
{
    int64_t n_buckets = hl_profile_n_buckets(profile);

    for (int64_t i = 0; i < hl_profile_n_sequences(profile) * n_buckets; i++) {
        int64_t sequence = i / n_buckets, bucket = i % n_buckets, count = 0;
        double  sum = 0.0;

        for (int64_t layer = 0; layer < hl_profile_n_layers(profile); layer++) {
            double  mean = hl_profile_sequence_position(profile, sequence, layer, bucket, quantity);
            int64_t n    = hl_profile_heads_of(profile, layer);

            sum += isnan(mean) ? 0.0 : mean * (double)n;
            count += isnan(mean) ? 0 : n;
        }
        double n_rows     = (double)hl_profile_sequence_rows(profile, sequence, bucket, quantity);
        values[2 * i]     = count > 0 ? n_rows * (sum / (double)count) : 0.0;
        values[2 * i + 1] = count > 0 ? n_rows : 0.0;
    }
}

/* A bucket that fewer than two sequences reach has no interval. */
static hl_status fill_curve_intervals(hl_position_curve *curve, const hl_profile *profile,
                                      hl_quantity quantity, uint64_t seed)
{
    int64_t          n         = hl_profile_n_sequences(profile);
    int64_t          n_columns = 2 * curve->n_buckets;
    HL_FREED double *values    = NULL; /* (n, n_buckets, 2) */
    HL_FREED double *draws     = NULL; /* (n_buckets, 2, HL_RESAMPLES) */

    if (n < 2)
        return HL_OK;
    HL_NEED(HL_ALLOC(&values, (size_t)(n * n_columns)));
    read_sequences(values, profile, quantity);
    HL_NEED(hl_bootstrap_draws(&draws, values, n, n_columns, seed));
    for (int64_t bucket = 0; bucket < curve->n_buckets; bucket++) {
        double *sums     = draws + 2 * bucket * HL_RESAMPLES;
        double *rows     = sums + HL_RESAMPLES;
        int64_t n_having = 0; /* sequences with rows in it */

        for (int64_t sequence = 0; sequence < n; sequence++)
            n_having += values[sequence * n_columns + 2 * bucket + 1] > 0.0;
        if (n_having < 2)
            continue;
        for (int64_t draw = 0; draw < HL_RESAMPLES; draw++)
            sums[draw] = rows[draw] > 0.0 ? sums[draw] / rows[draw] : NAN;
        hl_interval interval = hl_bootstrap_interval(sums, HL_RESAMPLES, 0.95);
        curve->lows[bucket]  = interval.low;
        curve->highs[bucket] = interval.high;
        curve->has_intervals = true;
    }
    return HL_OK;
}

hl_status hl_position_curve_read(hl_position_curve *out, const hl_profile *profile,
                                 hl_quantity quantity, uint64_t seed)
{
    *out = (hl_position_curve){ .n_buckets = hl_profile_n_buckets(profile) };
    for (int64_t bucket = 0; bucket < out->n_buckets; bucket++) {
        double  sum   = 0.0;
        int64_t count = 0;

        HL_EACH_HEAD(profile, layer, head)
        {
            hl_moments moments = hl_profile_by_position(profile, layer, head, bucket, quantity);
            sum += moments.count > 0 ? moments.mean : 0.0;
            count += moments.count > 0;
        }
        out->means[bucket] = count > 0 ? sum / (double)count : NAN;
        out->lows[bucket] = out->highs[bucket] = NAN;
    }
    return fill_curve_intervals(out, profile, quantity, seed);
}

/* -------------------------------------------------------------------- level */

hl_status hl_level_of(hl_level *out, const hl_profile *profile)
{
    int64_t          size   = hl_grid_size(profile);
    int64_t          count  = hl_profile_n_sequences(profile);
    HL_FREED double *values = NULL; /* (count, size) */
    HL_FREED double *levels = NULL; /* (2, count) and room to sort them in */

    HL_NEED(hl_grid_sequences(&values, profile, HL_Q_NORMALIZED));
    HL_NEED(HL_ALLOC(&levels, 2 * (size_t)count));
    for (int64_t i = 0; i < count; i++)
        levels[i] = hl_mean(values + i * size, size);
    hl_robust spread = hl_robust_spread(levels, count, levels + count);
    *out             = (hl_level){ .n_sequences = count,
                                   .mean        = hl_mean(levels, count),
                                   .median      = spread.median,
                                   .sigma       = spread.sigma };
    return HL_OK;
}

double hl_level_fall(const hl_level *before, const hl_level *now)
{
    if (before->n_sequences < LEAST_SEQUENCES || !(before->sigma > 0.0))
        return NAN;
    return (before->median - now->mean) / before->sigma;
}
