/* profile.c - creating a profile, its shape and settings, and the results of its sums, which
 * headlight.h describes. */
#include "stats/profile.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"
#include "stats/profile_add.h"
#include "stats/profile_tables.h"

/* Number of kept means of heads: with 80 x 64 heads, 32 sequences are kept (profile_tables.c);
 * small models keep up to HL_PROFILE_MAX_KEPT. */
enum { KEPT_HEADS = 32 * 80 * 64, MIN_KEPT = 32 };

static int64_t kept_for(int64_t n_layers, int64_t n_heads)
{
    int64_t kept = KEPT_HEADS / (n_layers * n_heads);

    if (kept > HL_PROFILE_MAX_KEPT)
        return HL_PROFILE_MAX_KEPT;
    return kept < MIN_KEPT ? MIN_KEPT : kept;
}

/* Bucket b ends before position 2^(b+1) - 1. */
static int64_t buckets_for(int64_t context)
{
    int64_t n_buckets = 0;

    while (((int64_t)1 << n_buckets) - 1 < context)
        n_buckets++;
    return n_buckets;
}

/* -------------------------------------------------------------------- shape */

static hl_status check_size(const char *name, int64_t value, int64_t least, int64_t most)
{
    if (value >= least && value <= most)
        return HL_OK;
    return hl_fail(HL_BAD_INPUT, "profile: %s is %lld, wanted %lld to %lld", name, (long long)value,
                   (long long)least, (long long)most);
}

static hl_status check_shape(const hl_profile_shape *shape, int64_t n_buckets, int64_t n_kept)
{
    HL_NEED(check_size("the number of layers", shape->n_layers, 1, HL_PROFILE_MAX_LAYERS));
    for (int64_t layer = 0; layer < shape->n_layers; layer++)
        HL_NEED(
            check_size("a layer's number of heads", shape->heads[layer], 0, HL_PROFILE_MAX_HEADS));
    HL_NEED(check_size("the number of position buckets", n_buckets, 1, HL_PROFILE_MAX_BUCKETS));
    HL_NEED(check_size("the number of token types", shape->n_types, 1, HL_PROFILE_MAX_TYPES));
    return check_size("the number of sequences kept", n_kept, 1, HL_PROFILE_MAX_KEPT);
}

static int64_t most_heads(const hl_profile_shape *shape)
{
    int64_t most = 1; /* a grid needs at least one head */

    for (int64_t layer = 0; layer < shape->n_layers; layer++)
        most = shape->heads[layer] > most ? shape->heads[layer] : most;
    return most;
}

static hl_status copy_shape(hl_profile *profile, const hl_profile_shape *shape)
{
    profile->n_layers = shape->n_layers;
    profile->n_heads  = most_heads(shape);
    profile->n_types  = shape->n_types;
    HL_NEED(HL_ALLOC(&profile->heads, (size_t)shape->n_layers));
    memcpy(profile->heads, shape->heads, (size_t)shape->n_layers * sizeof *shape->heads);
    for (int64_t type = 0; type < shape->n_types; type++)
        HL_NEED(hl_strdup(&profile->type_names[type], shape->type_names[type]));
    return HL_OK;
}

hl_status hl_profile_new_shape(hl_profile **out, const hl_profile_shape *shape, int64_t n_buckets,
                               int64_t n_kept)
{
    HL_CLOSED(hl_profile_free) hl_profile *profile = NULL;

    *out = NULL;
    HL_NEED(check_shape(shape, n_buckets, n_kept));
    HL_NEED(HL_ALLOC_ZEROED(&profile, 1));
    HL_NEED(copy_shape(profile, shape));
    profile->n_buckets = n_buckets;
    profile->n_kept    = n_kept;
    *out               = hl_taken(&profile);
    return HL_OK;
}

hl_status hl_profile_new(hl_profile **out, const hl_profile_shape *shape)
{
    HL_CLOSED(hl_profile_free) hl_profile *profile = NULL;

    *out = NULL;
    HL_NEED(check_size("the context", shape->context, 1, (1 << 30)));
    HL_NEED(check_size("the number of layers", shape->n_layers, 1, HL_PROFILE_MAX_LAYERS));
    HL_NEED(hl_profile_new_shape(&profile, shape, buckets_for(shape->context),
                                 kept_for(shape->n_layers, most_heads(shape))));
    HL_NEED(hl_profile_allocate(profile));
    *out = hl_taken(&profile);
    return HL_OK;
}

void hl_profile_free(hl_profile *profile)
{
    if (profile == NULL)
        return;
    for (size_t i = 0; i < profile->n_settings; i++) {
        hl_free(profile->settings[i].key);
        hl_free(profile->settings[i].value);
    }
    for (int64_t type = 0; type < HL_PROFILE_MAX_TYPES; type++)
        hl_free(profile->type_names[type]);
    hl_profile_flight_free(profile->flight);
    hl_free(profile->settings);
    hl_free(profile->heads);
    hl_free(profile->block);
    hl_free(profile);
}

/* ----------------------------------------------------------------- settings */

static int compare_keys(const void *left, const void *right)
{
    return strcmp(((const hl_setting *)left)->key, ((const hl_setting *)right)->key);
}

static hl_setting *find_setting(const hl_profile *profile, const char *key)
{
    hl_setting wanted = { .key = (char *)key };

    if (profile->n_settings == 0)
        return NULL;
    return bsearch(&wanted, profile->settings, profile->n_settings, sizeof wanted, compare_keys);
}

/* Returns true for keys that the file itself uses. */
static bool is_taken(const char *key)
{
    static const char *const taken[] = { "format", "heads",    "buckets",        "kept",
                                         "types",  "settings", HL_PROFILE_STATE, NULL };

    for (int i = 0; taken[i] != NULL; i++) {
        if (strcmp(key, taken[i]) == 0)
            return true;
    }
    return strncmp(key, "type.", 5) == 0 || key[0] == '\0' || strchr(key, ' ') != NULL;
}

hl_status hl_profile_set(hl_profile *profile, const char *key, const char *value)
{
    hl_status   status  = HL_OK;
    hl_setting  setting = { 0 };
    hl_setting *there   = find_setting(profile, key);

    if (is_taken(key))
        return hl_fail(HL_BAD_INPUT, "profile: a setting cannot be called '%s'", key);
    HL_TRY(hl_strdup(&setting.value, value));
    if (there != NULL) {
        hl_free(there->value);
        there->value = setting.value;
        return HL_OK;
    }
    HL_TRY(hl_strdup(&setting.key, key));
    HL_TRY(HL_GROW_ONE(&profile->settings, profile->n_settings));
    profile->settings[profile->n_settings++] = setting;
    qsort(profile->settings, profile->n_settings, sizeof setting, compare_keys);
    setting = (hl_setting){ 0 };

done:
    hl_free(setting.key);
    hl_free(setting.value);
    return status;
}

hl_status hl_profile_new_like(hl_profile **out, const hl_profile *other)
{
    HL_CLOSED(hl_profile_free) hl_profile *profile = NULL;

    hl_profile_shape shape = { .n_layers   = other->n_layers,
                               .heads      = other->heads,
                               .n_types    = other->n_types,
                               .type_names = (const char *const *)other->type_names };

    *out = NULL;
    HL_NEED(hl_profile_new_shape(&profile, &shape, other->n_buckets, other->n_kept));
    HL_NEED(hl_profile_allocate(profile));
    for (size_t i = 0; i < other->n_settings; i++)
        HL_NEED(hl_profile_set(profile, other->settings[i].key, other->settings[i].value));
    *out = hl_taken(&profile);
    return HL_OK;
}

hl_status hl_profile_set_int(hl_profile *profile, const char *key, int64_t value)
{
    char text[24];

    snprintf(text, sizeof text, "%" PRId64, value);
    return hl_profile_set(profile, key, text);
}

hl_status hl_profile_set_hash(hl_profile *profile, const char *key, uint64_t hash)
{
    char text[24];

    snprintf(text, sizeof text, "%016" PRIx64, hash);
    return hl_profile_set(profile, key, text);
}

const char *hl_profile_setting(const hl_profile *profile, const char *key)
{
    const hl_setting *setting = find_setting(profile, key);
    return setting != NULL ? setting->value : NULL;
}

/* Finds the word with this index in a text of words; returns its length, 0 if there are fewer. */
static int nth_word(const char **out, const char *words, int64_t index)
{
    while (words != NULL && *words != '\0') {
        size_t length = strcspn(words, " ");

        *out = words;
        if (index-- == 0)
            return (int)(length < 16 ? length : 16);
        words += length + (words[length] == ' ');
    }
    return 0;
}

const char *hl_head_name_among(char room[HL_HEAD_NAME_BYTES], const char *layers, int64_t layer,
                               int64_t head)
{
    const char *word   = NULL;
    int         length = nth_word(&word, layers, layer), used;

    if (length > 0)
        used = snprintf(room, HL_HEAD_NAME_BYTES, "%.*s", length, word);
    else
        used = snprintf(room, HL_HEAD_NAME_BYTES, "L%lld", (long long)layer);
    if (head >= 0)
        snprintf(room + used, (size_t)(HL_HEAD_NAME_BYTES - used), "H%lld", (long long)head);
    return room;
}

const char *hl_profile_head_name(char room[HL_HEAD_NAME_BYTES], const hl_profile *profile,
                                 int64_t layer, int64_t head)
{
    return hl_head_name_among(room, hl_profile_setting(profile, "layers"), layer, head);
}

/* --------------------------------------------------------- questions: shape */

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

/* ------------------------------------------------------- questions: moments */

static hl_moments nothing(void)
{
    return (hl_moments){ 0, (double)NAN, (double)NAN, (double)NAN, (double)NAN };
}

/* Computes moments from a count, and from the sum and the squares that follow it in the list of
 * tables. */
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

    if (quantity != HL_Q_ENTROPY && quantity != HL_Q_NORMALIZED)
        return nothing();
    return moments_at(profile, HL_TABLE_POSITION_COUNT,
                      (cell * profile->n_buckets + bucket) * HL_N_BY_POSITION + quantity);
}

hl_moments hl_profile_by_type(const hl_profile *profile, int64_t layer, int64_t head, int64_t type,
                              hl_quantity quantity)
{
    int64_t cell = hl_cell(profile, layer, head);

    if (quantity != HL_Q_ENTROPY && quantity != HL_Q_NORMALIZED && quantity != HL_Q_RENYI2)
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

    if (hl_profile_broken_losses(profile) > 0) /* the mean of the other tokens would say nothing
                                                * about the text */
        found.mean = found.variance = found.min = found.max = NAN;
    return found;
}

double hl_profile_block_influence(const hl_profile *profile, int64_t layer)
{
    return moments_at(profile, HL_TABLE_INFLUENCE_COUNT, layer).mean;
}

hl_moments hl_profile_recall(const hl_profile *profile, int64_t layer, int64_t head)
{
    return moments_at(profile, HL_TABLE_RECALL_COUNT, hl_cell(profile, layer, head));
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

/* --------------------------------------------------- questions: broken rows */

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

/* ---------------------------------------------------- questions: histograms */

const int64_t *hl_profile_histogram(const hl_profile *profile, int64_t layer, int64_t head,
                                    hl_histogram histogram)
{
    int64_t cell = hl_cell(profile, layer, head);
    return hl_counts(profile, HL_TABLE_HISTOGRAM) +
           (cell * HL_N_HISTOGRAMS + histogram) * HL_N_BINS;
}

/* Rows are assumed to be evenly distributed within a bin. */
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

/* -------------------------------------------------- questions: sampled rows */

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

/* The estimates are unbiased, so the ratio may be slightly outside [0, 1]. */
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

/* ----------------------------------------------------- questions: sequences */

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

uint64_t hl_profile_sequence_document(const hl_profile *profile, int64_t sequence)
{
    return ((const uint64_t *)profile->tables[HL_TABLE_DOCUMENTS])[sequence];
}

double hl_profile_sequence_mean(const hl_profile *profile, int64_t sequence, int64_t layer,
                                int64_t head, hl_quantity quantity)
{
    int64_t n_cells = profile->n_layers * profile->n_heads;
    int64_t at      = sequence * n_cells + hl_cell(profile, layer, head);
    int     place   = hl_place_of_sequence(quantity);
    int     more    = place - HL_N_OF_SEQUENCE;

    return more < 0 ? (double)hl_floats(profile, HL_TABLE_MEANS)[at * HL_N_OF_SEQUENCE + place]
                    : (double)hl_floats(profile, HL_TABLE_MORE)[at * HL_N_MORE + more];
}

/* Returns the index of a quantity among those by position; -1 if it is not one of them. */
static int by_position(hl_quantity quantity)
{
    return quantity == HL_Q_ENTROPY ? 0 : quantity == HL_Q_NORMALIZED ? 1 : -1;
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
