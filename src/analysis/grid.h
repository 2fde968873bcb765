/* grid.h - a profile's numbers as plain arrays.
 *
 *     grid     a place for every layer and head
 *     layers   how entropy goes from layer to layer, and what shape that has
 *     curve    how it goes with where in the text a row stands
 *     level    how spread out attention is as a whole, and whether that fell */
#ifndef HL_ANALYSIS_GRID_H
#define HL_ANALYSIS_GRID_H

#include "base/interval.h"
#include "base/memory.h"
#include "headlight/profile.h"
#include "stats/profile.h"

/* "3"; in a profile with several sets of heads "E3". */
const char *hl_layer_word(char room[HL_HEAD_NAME_BYTES], const hl_profile *profile, int64_t layer);

/* Where a profile holds a number of a head. */
typedef enum hl_number_from {
    HL_FROM_ROWS,           /* mean of an hl_quantity (hl_profile_mean) */
    HL_FROM_PATTERN,        /* mean of an hl_pattern_metric */
    HL_FROM_PATTERN_NOSINK, /* mean of an hl_pattern_metric without the first key */
    HL_FROM_PROBE,          /* mean of an hl_probe */
    HL_FROM_OUTPUT,         /* output norm */
} hl_number_from;
double hl_head_number(const hl_profile *profile, int64_t layer, int64_t head, hl_number_from from,
                      int which);

/* Loops over all heads that exist. */
#define HL_EACH_HEAD(profile, layer, head)                                                         \
    for (int64_t layer = 0; (layer) < hl_profile_n_layers(profile); (layer)++)                     \
        for (int64_t head = 0; (head) < hl_profile_heads_of(profile, layer); (head)++)

/* Do both profiles have the setting, with the same value? */
bool hl_same_setting(const hl_profile *a, const hl_profile *b, const char *key);

/* Were both profiles measured on the same sequences? They are compared by the hashes that
 * profiles keep, of a limited number of sequences. */
bool hl_same_text(const hl_profile *a, const hl_profile *b);

/* Returns the number of places of a grid. */
static inline int64_t hl_grid_size(const hl_profile *profile)
{
    return hl_profile_n_layers(profile) * hl_profile_n_heads(profile);
}

/* Does the head of this place exist? Layers may have fewer heads than the grid has places. */
static inline bool hl_grid_has(const hl_profile *profile, int64_t place)
{
    int64_t n_heads = hl_profile_n_heads(profile);

    return place % n_heads < hl_profile_heads_of(profile, place / n_heads);
}

/* How alike two heads of a layer are beside the first key, from 1 down: their rows' mean distance
 * (total variation) on the other keys, relative to the mass that they put there,
 *
 *     1 - (distance - |sink_a - sink_b| / 2) / (1 - (sink_a + sink_b) / 2)
 *
 * with all means over the sampled rows.  Two sinks whose rows agree because 97% of both is on the
 * first key have nothing else in common by that; what the other 3% look at decides.  The mean of
 * |a(0) - b(0)| is not below the difference of the means, so this is a lower bound.  0 at least, and
 * where nothing is left beside the first key; NaN where the rows were not compared. */
double hl_similarity_beside_first(const hl_profile *profile, int64_t layer, int64_t a, int64_t b);
/* Returns the lower of the similarity on all keys and of that without the first key. It decides
 * whether a pair is redundant. */
double hl_similarity_in_common(const hl_profile *profile, int64_t layer, int64_t a, int64_t b);

/* Computes a quantity's means, out (n_layers, n_heads), to be released with hl_free. A mean is
 * NaN if nothing was counted or if the head does not exist.  HL_Q_OUTPUT stands for the output norm
 * relative to the layer's mean, here and in the functions below, except that hl_grid_sequences has the
 * norms themselves. */
hl_status hl_grid_means(double **out, const hl_profile *profile, hl_quantity quantity);
/* Computes the means of each kept sequence: out (n_sequences, n_layers, n_heads).  Profiles of
 * earlier versions have only HL_Q_ENTROPY, HL_Q_NORMALIZED and HL_Q_ENTROPY_NOSINK; the others are
 * NaN. */
hl_status hl_grid_sequences(double **out, const hl_profile *profile, hl_quantity quantity);
/* Computes the heads' means over the chosen sequences (NULL: all that are kept) with each unit
 * left out, as hl_left_out does: out (n_layers * n_heads, n_groups + 1). Windows are weighted by
 * their rows. *rows gets the number and kind of units, and holds no pointers. */
hl_status hl_grid_left_out(double **out, hl_unit_rows *rows, const hl_profile *profile,
                           hl_quantity quantity, const int64_t *chosen, int64_t n_chosen);
/* Moves the interval of `value` to the value that is shown: the means in a profile are over all
 * sequences, intervals over those that it keeps. */
hl_interval hl_interval_about(hl_interval interval, double value, double shown);
/* Computes 95% intervals of the heads' means: out (n_layers, n_heads). */
hl_status hl_grid_intervals(hl_interval **out, const hl_profile *profile, hl_quantity quantity);
/* The interval of a mean share over sampled rows of n windows: their spread, on the scale of
 * log-odds, with the degrees of freedom of the windows (doc/intervals.md has the coverage). */
hl_interval hl_sampled_interval(const hl_moments *rows, int64_t n);

/* ------------------------------------------------------------------- layers */

/* Smallest difference between layers that matters: of normalized entropies, and in nats. */
#define HL_LAYERS_DIFFER      0.03
#define HL_LAYERS_DIFFER_NATS 0.1

/* The shape of the layers' means from first to last, by the means of the first, the middle and
 * the last third of the layers. A difference of thirds counts if it matters (see above) and is
 * at least `flat_errors` standard errors; the standard error of a third is taken to be that of
 * one layer. */
typedef enum hl_shape_kind {
    HL_SHAPE_UNKNOWN = 0, /* nothing was measured, there is one layer, or no difference is
                           * significant */
    HL_SHAPE_FLAT,        /* the range is too small to matter */
    HL_SHAPE_FALLS, /* the last third is lower, no third is lower than a later one, and the rank
                           * correlation with depth is at most -0.5 */
    HL_SHAPE_RISES,
    HL_SHAPE_U,    /* the middle third is lower than both others, by at least 15% of the range */
    HL_SHAPE_HILL, /* the middle third is higher than both others, by at least 15% of the range */
    HL_SHAPE_UNEVEN,
} hl_shape_kind;

typedef struct hl_layer_shape {
    double        range; /* highest mean - lowest mean */
    double        error; /* a layer mean's standard error, root mean square over layers; NaN with
                        * fewer than HL_MIN_UNITS */
    int64_t       n_measured; /* number of layers that attend */
    int64_t       minimum;    /* the lowest layer; -1: none was measured */
    double        depth;      /* depth of the minimum: 0 is the first layer, 1 the last */
    double        curvature;  /* c of a + b x + c x^2, with the depth x from 0 to 1; positive if the
                              * middle is lowest */
    double        spearman;   /* rank correlation of mean and depth */
    bool          flat;       /* the range is too small to matter */
    hl_shape_kind kind;
    double        thirds
        [3]; /* means of the first, middle and last third of the layers that attend; with fewer
                              * than three layers the middle is NaN */
    double change;        /* last third - first third; below 0: later layers are more focused */
    double change_errors; /* change in standard errors; NaN: not tested */
} hl_layer_shape;

typedef struct hl_layer_profile {
    int64_t        n_layers;
    double        *means; /* (n_layers) means of the heads' means */
    double        *lows;  /* (n_layers) limits of 95% intervals; NaN with fewer than HL_MIN_UNITS
                           * units */
    double        *highs;
    double        *errors;   /* (n_layers) standard errors; lows, highs and errors are in the block
                              * of means */
    hl_interval    interval; /* of the last layer; level, number and kind of units hold for all
                              * layers */
    hl_layer_shape shape;
} hl_layer_profile;

/* The quantity is HL_Q_ENTROPY, HL_Q_NORMALIZED or HL_Q_ENTROPY_NOSINK. */
hl_status hl_layer_profile_new(hl_layer_profile **out, const hl_profile *profile,
                               hl_quantity quantity, double flat_errors);
/* Returns "U-shape", "falls" and so on. */
const char *hl_shape_name(hl_shape_kind kind);
/* Are later layers more specialized, which means more focused? Returns "yes", "no: less", "no
 * difference" or "not known". */
const char *hl_shape_specialized(const hl_layer_shape *shape, double least, double errors);
void        hl_layer_profile_free(hl_layer_profile *layers);
HL_CLOSES(hl_layer_profile_free, hl_layer_profile)

/* ---------------------------------------------------------------- positions */

typedef struct hl_position_curve {
    int64_t n_buckets;
    double  means[HL_PROFILE_MAX_BUCKETS]; /* means over heads of the heads' means; NaN if there is
                                            * no such row */
    /* Limits of 95% intervals. NaN if fewer than HL_MIN_UNITS units have such rows, and for
     * profiles of versions that kept no curves of sequences. */
    double      lows[HL_PROFILE_MAX_BUCKETS];
    double      highs[HL_PROFILE_MAX_BUCKETS];
    bool        has_intervals; /* at least one bucket has an interval */
    hl_interval interval;      /* of the first bucket; level and kind of units hold for all buckets
                                * */
} hl_position_curve;

/* The quantity is HL_Q_ENTROPY or HL_Q_NORMALIZED. */
hl_status hl_position_curve_read(hl_position_curve *out, const hl_profile *profile,
                                 hl_quantity quantity);

/* -------------------------------------------------------------------- level */

/* A sequence's level is the mean normalized entropy of all heads on it.
 *
 *     hl_level before, now;
 *     HL_TRY(hl_level_of(&before, earlier));
 *     HL_TRY(hl_level_of(&now, profile));
 *     double fall = hl_level_fall(&before, &now);      in robust standard deviations */
typedef struct hl_level {
    int64_t n_sequences;
    double  mean;   /* mean of the sequences' levels; NaN if there are none */
    double  median; /* median of the sequences' levels */
    double  sigma;  /* robust standard deviation about that median */
} hl_level;

hl_status hl_level_of(hl_level *out, const hl_profile *profile);
/* Returns how far the mean is below the median of `before`, in its sigmas. NaN if `before` has
 * fewer than four sequences, or if all of them are equal. */
double hl_level_fall(const hl_level *before, const hl_level *now);

#endif
