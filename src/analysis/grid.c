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

enum { LEAST_SEQUENCES = 4 }; /* fewer sequences have no usable standard deviation */
enum { MAX_DIGITS = 9 };      /* most digits of a layer's or a head's number */

/* -------------------------------------------------------------------- heads */

/* Reads a letter and digits from *word on; returns false if they are not there. */
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

bool hl_profile_head_find(hl_head *out, const hl_profile *profile, const char *word, size_t n_bytes)
{
    static const char sets[] = "LEXVA";
    char              name[HL_HEAD_NAME_BYTES];
    hl_head           named = { 0, -1 };

    *out = named;
    for (const char *letter = sets; *letter != '\0'; letter++) {
        const char *at = word, *end = word + n_bytes;

        named.head = -1;
        if (!read_number(&named.layer, &at, end, *letter) ||
            (at != end && (!read_number(&named.head, &at, end, 'H') || at != end)))
            continue;
        snprintf(name, sizeof name, "%c%lld", *letter, (long long)named.layer);
        for (int64_t layer = 0; layer < hl_profile_n_layers(profile); layer++) {
            char room[HL_HEAD_NAME_BYTES];

            if (strcmp(hl_profile_head_name(room, profile, layer, -1), name) != 0)
                continue;
            *out = (hl_head){ layer, named.head };
            return named.head < hl_profile_heads_of(profile, layer);
        }
    }
    return false;
}

const char *hl_layer_word(char room[HL_HEAD_NAME_BYTES], const hl_profile *profile, int64_t layer)
{
    bool has_sets = hl_profile_setting(profile, "layers") != NULL;

    return hl_profile_head_name(room, profile, layer, -1) + (has_sets ? 0 : 1);
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
    for (int64_t i = 0; i < count; i++) { /* both lists are sorted */
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
        (*out)[i] = !hl_grid_has(profile, i) ? NAN
                    : (int)quantity == HL_Q_OUTPUT
                        ? hl_profile_output_norm(profile, i / n_heads, i % n_heads)
                        : hl_profile_mean(profile, i / n_heads, i % n_heads, quantity);
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

/* Windows of the same document form one unit, if documents are known and there are enough. */
static hl_status find_units(hl_unit_rows *rows, int64_t **groups, const hl_profile *profile,
                            const int64_t *chosen)
{
    HL_FREED uint64_t *seen = NULL; /* hashes of the documents so far */

    HL_NEED(HL_ALLOC(groups, (size_t)rows->n_rows));
    HL_NEED(HL_ALLOC(&seen, (size_t)rows->n_rows));
    *rows = (hl_unit_rows){ .n_rows    = rows->n_rows,
                            .n_columns = rows->n_columns,
                            .groups    = *groups,
                            .units     = HL_UNITS_DOCUMENTS };
    for (int64_t i = 0; i < rows->n_rows; i++) {
        uint64_t document = hl_profile_sequence_document(profile, chosen != NULL ? chosen[i] : i);
        int64_t  at       = 0;

        while (at < rows->n_groups && seen[at] != document)
            at++;
        if (at == rows->n_groups)
            seen[rows->n_groups++] = document;
        (*groups)[i] = at;
        if (document == 0) /* the document is unknown */
            rows->units = HL_UNITS_WINDOWS;
    }
    if (rows->units == HL_UNITS_DOCUMENTS && rows->n_groups >= HL_MIN_UNITS)
        return HL_OK;
    rows->units    = HL_UNITS_WINDOWS;
    rows->n_groups = rows->n_rows;
    rows->groups   = NULL;
    return HL_OK;
}

/* Norms of outputs (n_layers, n_heads, n), relative to the mean of the layer's heads. */
static void relate_to_layers(double *values, const hl_profile *profile, int64_t n)
{
    int64_t n_heads = hl_profile_n_heads(profile);

    for (int64_t at = 0; at < hl_profile_n_layers(profile) * n; at++) {
        double *first = values + at / n * n_heads * n + at % n;
        double  sum   = 0.0;
        int64_t count = 0;

        for (int64_t head = 0; head < n_heads; head++) {
            sum += isnan(first[head * n]) ? 0.0 : first[head * n];
            count += !isnan(first[head * n]);
        }
        for (int64_t head = 0; head < n_heads; head++)
            first[head * n] /= sum / (double)count;
    }
}

hl_status hl_grid_left_out(double **out, hl_unit_rows *rows, const hl_profile *profile,
                           hl_quantity quantity, const int64_t *chosen, int64_t n_chosen)
{
    int64_t           size   = hl_grid_size(profile);
    HL_FREED double  *all    = NULL;                  /* (n_sequences, size) means of all sequences
                                                       * */
    HL_FREED double  *values = NULL, *weights = NULL; /* (n_chosen, size) means of the chosen ones,
                                                       * and their numbers of rows */
    HL_FREED int64_t *groups = NULL;

    *rows = (hl_unit_rows){ .n_rows = n_chosen, .n_columns = size };
    HL_NEED(find_units(rows, &groups, profile, chosen));
    HL_NEED(hl_grid_sequences(&all, profile, quantity));
    HL_NEED(HL_ALLOC(&values, (size_t)(n_chosen * size)));
    HL_NEED(HL_ALLOC(&weights, (size_t)(n_chosen * size)));
    for (int64_t i = 0; i < n_chosen; i++) {
        int64_t sequence = chosen != NULL ? chosen[i] : i;
        double  weight   = 0.0; /* number of rows */

        for (int64_t b = 0; b < hl_profile_n_buckets(profile); b++)
            weight += (double)hl_profile_sequence_rows(profile, sequence, b, HL_Q_ENTROPY);
        memcpy(values + i * size, all + sequence * size, (size_t)size * sizeof *values);
        for (int64_t c = 0; c < size; c++)
            weights[i * size + c] = weight > 0.0 ? weight : 1.0;
    }
    rows->values     = values;
    rows->weights    = weights;
    hl_status status = hl_left_out(out, rows);
    if (status == HL_OK && (int)quantity == HL_Q_OUTPUT)
        relate_to_layers(*out, profile, rows->n_groups + 1);
    rows->values = rows->weights = NULL;
    rows->groups                 = NULL;
    return status;
}

hl_interval hl_interval_about(hl_interval interval, double value, double shown)
{
    interval.low += shown - value;
    interval.high += shown - value;
    return interval;
}

hl_status hl_grid_intervals(hl_interval **out, const hl_profile *profile, hl_quantity quantity)
{
    int64_t               size  = hl_grid_size(profile);
    HL_FREED hl_interval *found = NULL;
    HL_FREED double      *left = NULL, *means = NULL;
    hl_unit_rows          rows;

    *out = NULL;
    HL_NEED(HL_ALLOC(&found, (size_t)size));
    HL_NEED(hl_grid_means(&means, profile, quantity));
    HL_NEED(
        hl_grid_left_out(&left, &rows, profile, quantity, NULL, hl_profile_n_sequences(profile)));
    for (int64_t i = 0; i < size; i++) {
        const double *column = left + i * (rows.n_groups + 1);

        found[i] = hl_interval_about(hl_left_out_interval(column, &rows, HL_SCALE_PLAIN),
                                     column[rows.n_groups], means[i]);
    }
    *out = hl_taken(&found);
    return HL_OK;
}

hl_interval hl_sampled_interval(const hl_moments *rows, int64_t n)
{
    double slope = rows->mean * (1.0 - rows->mean); /* of a share by its log-odds */

    if (n < HL_MIN_UNITS || rows->count < HL_MIN_UNITS || !(slope > 0.0))
        return hl_no_interval(n, HL_UNITS_WINDOWS);
    hl_error error = { .variance = rows->variance / ((double)(rows->count - 1) * slope * slope),
                       .freedom  = (double)(n - 1) };
    return hl_interval_of(rows->mean, error, HL_SCALE_SHARE, n, HL_UNITS_WINDOWS);
}

double hl_similarity_beside_first(const hl_profile *profile, int64_t layer, int64_t a, int64_t b)
{
    double distance = 1.0 - hl_profile_similarity(profile, layer, a, b);
    double sink_a   = hl_profile_pattern(profile, layer, a, HL_PM_SINK, false).mean;
    double sink_b   = hl_profile_pattern(profile, layer, b, HL_PM_SINK, false).mean;
    double rest     = 1.0 - 0.5 * (sink_a + sink_b);

    if (isnan(distance) || isnan(rest))
        return (double)NAN;
    if (rest <= 1e-6) /* all rows are on the first key; the rest is rounding */
        return 0.0;
    distance = fmax(distance - 0.5 * fabs(sink_a - sink_b), 0.0);
    return fmax(1.0 - distance / rest, 0.0);
}

double hl_similarity_in_common(const hl_profile *profile, int64_t layer, int64_t a, int64_t b)
{
    return fmin(hl_profile_similarity(profile, layer, a, b), /* fmin ignores NaN */
                hl_similarity_beside_first(profile, layer, a, b));
}

/* ------------------------------------------------------------------- layers */

void hl_layer_profile_free(hl_layer_profile *layers)
{
    if (layers == NULL)
        return;
    hl_free(layers->means); /* means, lows, highs and errors are one block */
    hl_free(layers);
}

/* With a unit left out, a layer's mean is the mean of its heads' means without that unit. */
static hl_status fill_layer_intervals(hl_layer_profile *layers, const hl_profile *profile,
                                      hl_quantity quantity)
{
    int64_t          n_heads = hl_profile_n_heads(profile);
    HL_FREED double *left = NULL, *heads = NULL, *column = NULL;
    hl_unit_rows     rows;

    HL_NEED(
        hl_grid_left_out(&left, &rows, profile, quantity, NULL, hl_profile_n_sequences(profile)));
    int64_t n = rows.n_groups + 1;
    HL_NEED(HL_ALLOC(&heads, (size_t)n_heads));
    HL_NEED(HL_ALLOC(&column, (size_t)n));
    for (int64_t layer = 0; layer < layers->n_layers; layer++) {
        for (int64_t at = 0; at < n; at++) {
            for (int64_t head = 0; head < n_heads; head++)
                heads[head] = left[(layer * n_heads + head) * n + at];
            column[at] = hl_mean(heads, n_heads);
        }
        hl_interval interval =
            hl_interval_about(hl_left_out_interval(column, &rows, HL_SCALE_PLAIN), column[n - 1],
                              layers->means[layer]);
        layers->lows[layer]   = interval.low;
        layers->highs[layer]  = interval.high;
        layers->errors[layer] = interval.error;
        layers->interval      = interval;
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
        highest = fmax(highest, means[layer]); /* fmax ignores NaN */
        if (lowest < 0 || means[layer] < means[lowest])
            lowest = layer;
    }
    shape->minimum = lowest;
    shape->range   = lowest < 0 ? NAN : highest - means[lowest];
    shape->depth = lowest < 0 ? NAN : n_layers > 1 ? (double)lowest / (double)(n_layers - 1) : 0.0;
}

/* Copies the means of the layers that attend and returns their number. */
static int64_t take_measured(double *out, const double *means, int64_t n_layers)
{
    int64_t n = 0;

    for (int64_t layer = 0; layer < n_layers; layer++) {
        if (!isnan(means[layer]))
            out[n++] = means[layer];
    }
    return n;
}

/* Computes the means of the first, the middle and the last third of the layers. */
static void find_thirds(hl_layer_shape *shape, const double *means, int64_t n_layers)
{
    int64_t third = n_layers >= 3 ? n_layers / 3 : n_layers / 2;

    shape->thirds[0] = hl_mean(means, third);
    shape->thirds[1] = hl_mean(means + third, n_layers - 2 * third);
    shape->thirds[2] = hl_mean(means + n_layers - third, third);
    shape->change    = shape->thirds[2] - shape->thirds[0];
    /* The error is that of a difference of two independent layers, which overestimates the error
     * of a difference of thirds. */
    shape->change_errors = fabs(shape->change) / (sqrt(2.0) * shape->error);
}

/* Returns the sign of a difference that counts; 0 if it does not count. */
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
    HL_FREED double *work     = NULL; /* (3, n_layers): depths, squared errors, measured means */

    HL_NEED(HL_ALLOC(&work, 3 * (size_t)n_layers));
    for (int64_t layer = 0; layer < n_layers; layer++) {
        work[layer]            = n_layers > 1 ? (double)layer / (double)(n_layers - 1) : 0.0;
        work[n_layers + layer] = layers->errors[layer] * layers->errors[layer];
    }
    find_range(shape, layers->means, n_layers);
    shape->error     = sqrt(hl_mean(work + n_layers, n_layers));
    shape->curvature = hl_fit_parabola(work, layers->means, n_layers).quadratic;
    HL_NEED(hl_spearman(&shape->spearman, work, layers->means, n_layers));
    shape->n_measured = take_measured(work + 2 * n_layers, layers->means, n_layers);
    find_thirds(shape, work + 2 * n_layers, shape->n_measured);
    /* A profile of one layer is not called flat. */
    shape->flat = n_layers > 1 && shape->range < least;
    shape->kind = n_layers > 1 ? kind_of(shape, least, flat_errors) : HL_SHAPE_UNKNOWN;
    return HL_OK;
}

hl_status hl_layer_profile_new(hl_layer_profile **out, const hl_profile *profile,
                               hl_quantity quantity, double flat_errors)
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
    HL_NEED(fill_layer_intervals(layers, profile, quantity));
    HL_NEED(find_shape(layers, flat_errors,
                       quantity == HL_Q_NORMALIZED ? HL_LAYERS_DIFFER : HL_LAYERS_DIFFER_NATS));
    *out = hl_taken(&layers);
    return HL_OK;
}

/* ---------------------------------------------------------------- positions */

/* Sequences differ in length: later buckets have fewer rows. The mean of a bucket is over rows,
 * not over sequences. */

/* Computes means (n_sequences, n_buckets) with equal weight for all heads, NaN where a sequence
 * has no row, and the numbers of rows. */
static void read_sequences(double *means, double *weights, const hl_profile *profile,
                           hl_quantity quantity)
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
        means[i]   = count > 0 ? sum / (double)count : NAN;
        weights[i] = (double)hl_profile_sequence_rows(profile, sequence, bucket, quantity);
    }
}

/* A bucket that too few sequences reach has no interval. */
static hl_status fill_curve_intervals(hl_position_curve *curve, const hl_profile *profile,
                                      hl_quantity quantity)
{
    int64_t           n = hl_profile_n_sequences(profile), n_buckets = curve->n_buckets;
    HL_FREED double  *room   = NULL; /* (2, n, n_buckets) means and numbers of rows */
    HL_FREED double  *left   = NULL;
    HL_FREED int64_t *groups = NULL;
    hl_unit_rows      rows   = { .n_rows = n, .n_columns = n_buckets };

    HL_NEED(HL_ALLOC(&room, 2 * (size_t)(n * n_buckets)));
    read_sequences(room, room + n * n_buckets, profile, quantity);
    HL_NEED(find_units(&rows, &groups, profile, NULL));
    rows.values  = room;
    rows.weights = room + n * n_buckets;
    HL_NEED(hl_left_out(&left, &rows));
    for (int64_t bucket = 0; bucket < n_buckets; bucket++) {
        const double *column = left + bucket * (rows.n_groups + 1);
        hl_interval   interval =
            hl_interval_about(hl_left_out_interval(column, &rows, HL_SCALE_PLAIN),
                              column[rows.n_groups], curve->means[bucket]);

        if (bucket == 0)
            curve->interval = interval;
        curve->lows[bucket]  = interval.low;
        curve->highs[bucket] = interval.high;
        curve->has_intervals = curve->has_intervals || !isnan(interval.low);
    }
    return HL_OK;
}

hl_status hl_position_curve_read(hl_position_curve *out, const hl_profile *profile,
                                 hl_quantity quantity)
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
    return fill_curve_intervals(out, profile, quantity);
}

/* -------------------------------------------------------------------- level */

hl_status hl_level_of(hl_level *out, const hl_profile *profile)
{
    int64_t          size   = hl_grid_size(profile);
    int64_t          count  = hl_profile_n_sequences(profile);
    HL_FREED double *values = NULL; /* (count, size) */
    HL_FREED double *levels = NULL; /* (2, count) levels, and a sorted copy */

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
