/* profile_merge.c - merging two profiles.
 *
 * Every table has a rule (profile_tables.h) that is associative and commutative, so that the result
 * has the same bytes in any order. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "stats/profile_tables.h"

/* ---------------------------------------------------------------------- tables */

static void merge_counts(int64_t *to, const int64_t *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] += from[i];
}

static void merge_wides(hl_wide *to, const hl_wide *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] += from[i];
}

static void merge_ends(float *to, const float *from, int64_t count, bool min)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = (min ? from[i] < to[i] : from[i] > to[i]) ? from[i] : to[i];
}

static void merge_places(int64_t *to, const int64_t *from, int64_t count)
{
    for (int64_t i = 0; i < count; i += 2) {
        bool earlier = from[i] < to[i] || (from[i] == to[i] && from[i + 1] < to[i + 1]);
        if (from[i] >= 0 && (to[i] < 0 || earlier))
            memcpy(to + i, from + i, 2 * sizeof *to);
    }
}

static void merge_scores(double *to, const double *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = isnan(to[i]) || from[i] < to[i] ? from[i] : to[i];
}

static void merge_table(hl_profile *to, const hl_profile *from, hl_table table)
{
    int64_t     count = hl_table_count(to, table);
    void       *here  = to->tables[table];
    const void *there = from->tables[table];

    switch (hl_table_form_of(table)->kind) {
    case HL_KIND_COUNT:
    case HL_KIND_UNIT:
        merge_counts(here, there, count);
        break;
    case HL_KIND_WIDE:
    case HL_KIND_SQUARES:
        merge_wides(here, there, count / 2);
        break;
    case HL_KIND_MIN:
    case HL_KIND_MAX:
        merge_ends(here, there, count, hl_table_form_of(table)->kind == HL_KIND_MIN);
        break;
    case HL_KIND_PLACE:
        merge_places(here, there, count);
        break;
    case HL_KIND_SCORE:
        merge_scores(here, there, count);
        break;
    case HL_KIND_HASH:
        *(uint64_t *)here += *(const uint64_t *)there;
        break;
    case HL_KIND_KEPT:
        break; /* merged one by one by hl_profile_keep */
    }
}

/* ------------------------------------------------------------------- sequences */

/* Returns true if the sequence comes before the kept one.  Equal hashes mean equal content and
 * equal means, unless machines round differently: then the bytes decide. */
static bool comes_before(const hl_profile *profile, const hl_kept_sequence *sequence, int64_t kept)
{
    uint64_t hash  = *(const uint64_t *)sequence->parts[0];
    uint64_t other = *(const uint64_t *)hl_kept_part(profile, 0, kept);

    if (hash != other)
        return hash < other;
    for (int i = 1; i < HL_N_KEPT; i++) {
        int order =
            memcmp(sequence->parts[i], hl_kept_part(profile, i, kept), hl_kept_bytes(profile, i));
        if (order != 0)
            return order < 0;
    }
    return false;
}

void hl_profile_keep(hl_profile *profile, const hl_kept_sequence *sequence, int64_t n_before)
{
    int64_t n     = n_before < profile->n_kept ? n_before : profile->n_kept;
    int64_t place = n;

    while (place > 0 && comes_before(profile, sequence, place - 1))
        place--;
    if (place >= profile->n_kept)
        return;
    int64_t n_moved = (n < profile->n_kept ? n : profile->n_kept - 1) - place;
    for (int i = 0; i < HL_N_KEPT; i++) {
        size_t n_bytes = hl_kept_bytes(profile, i);

        memmove(hl_kept_part(profile, i, place + 1), hl_kept_part(profile, i, place),
                (size_t)n_moved * n_bytes);
        memcpy(hl_kept_part(profile, i, place), sequence->parts[i], n_bytes);
    }
}

static void merge_sequences(hl_profile *to, const hl_profile *from)
{
    int64_t n = hl_counts(to, HL_TABLE_TOTALS)[1];

    for (int64_t sequence = 0; sequence < hl_profile_kept(from); sequence++) {
        hl_kept_sequence kept;

        for (int i = 0; i < HL_N_KEPT; i++)
            kept.parts[i] = hl_kept_part(from, i, sequence);
        hl_profile_keep(to, &kept, n + sequence);
    }
}

void hl_profile_add_tables(hl_profile *to, const hl_profile *from)
{
    merge_sequences(to, from); /* first, since it needs the totals before the merge */
    for (hl_table table = 0; table < HL_N_TABLES; table++)
        merge_table(to, from, table);
}

/* -------------------------------------------------------------------- checking */

static bool same_numbers(const hl_profile *a, const hl_profile *b)
{
    return a->n_layers == b->n_layers &&
           memcmp(a->heads, b->heads, (size_t)a->n_layers * sizeof *a->heads) == 0;
}

/* Returns the way of a profile; one that does not record it was measured in the original way. */
static const char *name_way(const char *special)
{
    return special == NULL ? "document" : special;
}

static hl_status differ(const char *key, const char *here, const char *there)
{
    if (strcmp(key, "special") == 0)
        return hl_fail(HL_BAD_INPUT,
                       "the profiles were measured with different --special (%s and %s); measure "
                       "both with the same",
                       name_way(here), name_way(there));
    if (strcmp(key, "math") == 0)
        return hl_fail(HL_BAD_INPUT,
                       "the profiles were measured with different --math (%s and %s); measure both "
                       "with the same",
                       here != NULL ? here : "f32", there != NULL ? there : "f32");
    return hl_fail(HL_BAD_INPUT, "the profiles differ in '%s': %s and %s", key,
                   here != NULL ? here : "not given", there != NULL ? there : "not given");
}

static hl_status differ_number(const char *key, int64_t here, int64_t there)
{
    return hl_fail(HL_BAD_INPUT, "the profiles differ in '%s': %" PRId64 " and %" PRId64, key, here,
                   there);
}

/* Settings are checked first, since they give the clearest messages. */
static hl_status check_settings(const hl_profile *a, const hl_profile *b)
{
    size_t i = 0;
    size_t j = 0;

    while (i < a->n_settings || j < b->n_settings) {
        int order = i == a->n_settings   ? 1
                    : j == b->n_settings ? -1
                                         : strcmp(a->settings[i].key, b->settings[j].key);
        if (order < 0)
            return differ(a->settings[i].key, a->settings[i].value, NULL);
        if (order > 0)
            return differ(b->settings[j].key, NULL, b->settings[j].value);
        if (strcmp(a->settings[i].value, b->settings[j].value) != 0)
            return differ(a->settings[i].key, a->settings[i].value, b->settings[j].value);
        i++;
        j++;
    }
    return HL_OK;
}

hl_status hl_profile_check_same(const hl_profile *a, const hl_profile *b)
{
    HL_NEED(check_settings(a, b));
    if (a->n_layers != b->n_layers)
        return differ_number("layers", a->n_layers, b->n_layers);
    if (!same_numbers(a, b))
        return differ_number("heads", a->n_heads, b->n_heads);
    if (a->n_buckets != b->n_buckets)
        return differ_number("buckets", a->n_buckets, b->n_buckets);
    if (a->n_types != b->n_types)
        return differ_number("types", a->n_types, b->n_types);
    if (a->n_kept != b->n_kept)
        return differ_number("kept", a->n_kept, b->n_kept);
    for (int64_t type = 0; type < a->n_types; type++) {
        if (strcmp(a->type_names[type], b->type_names[type]) != 0)
            return differ("type", a->type_names[type], b->type_names[type]);
    }
    return HL_OK;
}

hl_status hl_profile_merge(hl_profile *profile, const hl_profile *other)
{
    const int64_t *here  = hl_counts(profile, HL_TABLE_TOTALS);
    const int64_t *there = hl_counts(other, HL_TABLE_TOTALS);

    if (profile == other)
        return hl_fail(HL_BAD_ARGUMENT, "a profile cannot be merged with itself");
    HL_NEED(hl_profile_check_same(profile, other));
    /* No count is larger than that of tokens, so this check covers all of them. */
    if (here[0] > HL_MAX_COUNT - there[0] || here[1] > HL_MAX_COUNT - there[1])
        return hl_fail(HL_LIMIT, "the profiles have more than 2^40 rows together");
    hl_profile_add_tables(profile, other);
    return HL_OK;
}
