/* profile.c - a profile's shape and settings. */
#include "stats/profile.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "stats/profile_add.h"
#include "stats/profile_file.h"
#include "stats/profile_tables.h"

/* So many kept means of heads that 80 x 64 heads keep 32 sequences (profile_tables.c),
 * and small models as many as may be. */
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

/* ----------------------------------------------------------------------- shape */

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
    int64_t most = 1; /* a grid without heads would have no cells to show */

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
    hl_status   status  = HL_OK;
    hl_profile *profile = NULL;

    *out = NULL;
    HL_TRY(check_shape(shape, n_buckets, n_kept));
    HL_TRY(HL_ALLOC_ZEROED(&profile, 1));
    HL_TRY(copy_shape(profile, shape));
    profile->n_buckets = n_buckets;
    profile->n_kept    = n_kept;
    *out               = profile;
    profile            = NULL;

done:
    hl_profile_free(profile);
    return status;
}

hl_status hl_profile_new(hl_profile **out, const hl_profile_shape *shape)
{
    hl_status   status  = HL_OK;
    hl_profile *profile = NULL;

    *out = NULL;
    HL_TRY(check_size("the context", shape->context, 1, (1 << 30)));
    HL_TRY(check_size("the number of layers", shape->n_layers, 1, HL_PROFILE_MAX_LAYERS));
    HL_TRY(hl_profile_new_shape(&profile, shape, buckets_for(shape->context),
                                kept_for(shape->n_layers, most_heads(shape))));
    HL_TRY(hl_profile_allocate(profile));
    *out    = profile;
    profile = NULL;

done:
    hl_profile_free(profile);
    return status;
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

/* -------------------------------------------------------------------- settings */

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

/* Names that the file needs for itself. */
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
    HL_TRY(hl_realloc((void **)&profile->settings, profile->n_settings, profile->n_settings + 1,
                      sizeof setting));
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
    hl_status        status  = HL_OK;
    hl_profile      *profile = NULL;
    hl_profile_shape shape   = { .n_layers   = other->n_layers,
                                 .heads      = other->heads,
                                 .n_types    = other->n_types,
                                 .type_names = (const char *const *)other->type_names };

    *out = NULL;
    HL_TRY(hl_profile_new_shape(&profile, &shape, other->n_buckets, other->n_kept));
    HL_TRY(hl_profile_allocate(profile));
    for (size_t i = 0; i < other->n_settings; i++)
        HL_TRY(hl_profile_set(profile, other->settings[i].key, other->settings[i].value));
    *out    = profile;
    profile = NULL;

done:
    hl_profile_free(profile);
    return status;
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
