/* render_profile.h - profiles with known numbers, for the tests of pictures. */
#ifndef HL_TESTS_RENDER_PROFILE_H
#define HL_TESTS_RENDER_PROFILE_H

#include "render_support.h"

#include "stats/profile.h"

enum { ROWS = 32, FIRST = 24 };

/* Returns entropies from 0 to 3, the last head's; rows from 24 on may have up to ln 25. */
static inline float entropy_of(int64_t place, int64_t n_places)
{
    return n_places > 1 ? 3.0f * (float)place / (float)(n_places - 1) : 3.0f;
}

static inline void add_profile_layer(hl_profile *profile, int64_t layer, int64_t n_layers,
                                     int64_t n_heads, int64_t nan_place, float factor)
{
    int64_t             start = 0, length = ROWS;
    float              *entropy    = calloc((size_t)(n_heads * ROWS), sizeof *entropy);
    float              *zero       = calloc((size_t)(n_heads * ROWS), sizeof *zero);
    hl_attention_result statistics = { .entropy        = entropy,
                                       .renyi2         = zero,
                                       .varentropy     = zero,
                                       .peak           = zero,
                                       .self           = zero,
                                       .previous       = zero,
                                       .first          = zero,
                                       .entropy_nosink = zero };
    hl_layer_rows       rows       = { .layer   = layer,
                                       .n_batch = 1,
                                       .n_rows  = ROWS,
                                       .n_heads = n_heads,
                                       .start   = &start,
                                       .lengths = &length,
                                       .rows    = &statistics };
    hl_profile_mask     mask       = { .is_causal = true };

    for (int64_t i = 0; i < n_heads * ROWS; i++) {
        int64_t place = layer * n_heads + i / ROWS;
        entropy[i]    = place == nan_place ? NAN : entropy_of(place, n_layers * n_heads);
        if (place % 2 == 1)
            entropy[i] *= factor;
    }
    assert_ok(hl_profile_layer(profile, &rows, &mask));
    free(entropy);
    free(zero);
}

/* Adds a sequence whose rows are all the same.  nan_place is a head that was not measured, or -1.
 * The entropy of every second head is multiplied. */
static inline hl_profile *make_other_profile(int64_t n_layers, int64_t n_heads, int n_sequences,
                                             int64_t nan_place, float factor)
{
    static const char *const names[] = { "prompt" };
    int64_t                  heads[128];
    hl_profile              *profile = NULL;

    for (int64_t i = 0; i < n_layers; i++)
        heads[i] = n_heads;
    hl_profile_shape shape = { n_layers, heads, ROWS, 1, names };
    assert_ok(hl_profile_new(&profile, &shape));
    assert_ok(hl_profile_set(profile, "family", "made <&>"));
    for (int sequence = 0; sequence < n_sequences; sequence++) {
        int64_t          length = ROWS, first = FIRST, zero = 0;
        uint64_t         hash        = (uint64_t)sequence + 1;
        uint8_t          types[ROWS] = { 0 };
        hl_profile_batch batch = { 1, &length, &first, &hash, types, ROWS, &zero, 0, &zero, 1 };
        assert_ok(hl_profile_begin(profile, &batch));
        for (int64_t layer = 0; layer < n_layers; layer++)
            add_profile_layer(profile, layer, n_layers, n_heads, nan_place, factor);
        assert_ok(hl_profile_end(profile));
    }
    return profile;
}

static inline hl_profile *make_profile(int64_t n_layers, int64_t n_heads, int n_sequences,
                                       int64_t nan_place)
{
    return make_other_profile(n_layers, n_heads, n_sequences, nan_place, 1.0f);
}

#endif
