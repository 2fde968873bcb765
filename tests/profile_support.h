/* profile_support.h - profiles made of arbitrary rows. */
#ifndef HL_TESTS_PROFILE_SUPPORT_H
#define HL_TESTS_PROFILE_SUPPORT_H

#include "support.h"

#include <math.h>

#include "stats/profile.h"

enum { P_LAYERS = 2, P_HEADS = 3, P_ROWS = 24, P_TYPES = 2, P_PATTERNS = 3 };

/* One sequence of P_ROWS rows, in every layer; layer 1 has one head less. */
typedef struct made_sequence {
    float values[P_LAYERS][9][P_HEADS][P_ROWS]; /* in the order of hl_quantity, NORMALIZED unused */
    float mass[P_LAYERS][P_HEADS][P_ROWS][P_TYPES];
    float pattern[P_HEADS][P_PATTERNS][P_ROWS];
    int64_t  pattern_rows[P_PATTERNS];
    uint8_t  types[P_ROWS];
    int64_t  length;
    int64_t  first_row;
    int64_t  document;
    int64_t  start;
    uint64_t hash;
} made_sequence;

static inline double made_random(uint64_t *state)
{
    *state = *state * 6364136223846793005U + 1442695040888963407U;
    return (double)(*state >> 11) * 0x1p-53;
}

static inline void make_pattern_rows(made_sequence *made, uint64_t *state)
{
    for (int i = 0; i < P_PATTERNS; i++) {
        made->pattern_rows[i] = 4 + 6 * i;
        for (int head = 0; head < P_HEADS; head++) {
            double total = 0.0;
            for (int key = 0; key <= made->pattern_rows[i]; key++) {
                made->pattern[head][i][key] = (float)made_random(state);
                total += (double)made->pattern[head][i][key];
            }
            for (int key = 0; key < P_ROWS; key++)
                made->pattern[head][i][key] /= (float)total;
        }
    }
}

static inline void make_sequence(made_sequence *made, uint64_t seed)
{
    uint64_t state = seed * 2654435761U + 1;

    memset(made, 0, sizeof *made);
    made->length = P_ROWS;
    made->hash   = (seed + 1) * 0x9e3779b97f4a7c15U;
    for (int i = 0; i < P_LAYERS * 9 * P_HEADS * P_ROWS; i++) {
        int row = i % P_ROWS;
        /* Any number that is possible for n keys. */
        ((float *)made->values)[i] = (float)(made_random(&state) * log(row + 1.0));
    }
    for (int i = 0; i < P_LAYERS * P_HEADS * P_ROWS; i++) {
        float share                            = (float)made_random(&state);
        ((float *)made->mass)[P_TYPES * i]     = share;
        ((float *)made->mass)[P_TYPES * i + 1] = 1.0f - share;
    }
    for (int row = 0; row < P_ROWS; row++)
        made->types[row] = made_random(&state) < 0.3;
    make_pattern_rows(made, &state);
}

static inline hl_profile *new_made_profile(void)
{
    static const int64_t     heads[P_LAYERS] = { P_HEADS, P_HEADS - 1 };
    static const char *const names[P_TYPES]  = { "prompt", "special" };
    hl_profile              *profile         = NULL;

    assert_ok(hl_profile_new(&profile, &(hl_profile_shape){ P_LAYERS, heads, 64, P_TYPES, names }));
    assert_ok(hl_profile_set(profile, "model", "0123456789abcdef"));
    assert_ok(hl_profile_set_int(profile, "context", 64));
    return profile;
}

static inline void add_made_layer(hl_profile *profile, made_sequence *made, int64_t layer)
{
    float(*values)[P_HEADS][P_ROWS] = made->values[layer];
    int64_t             start       = 0;
    hl_attention_result statistics  = {
         .entropy        = values[HL_Q_ENTROPY][0],
         .renyi2         = values[HL_Q_RENYI2][0],
         .varentropy     = values[HL_Q_VARENTROPY][0],
         .peak           = values[HL_Q_PEAK][0],
         .self           = values[HL_Q_SELF][0],
         .previous       = values[HL_Q_PREVIOUS][0],
         .first          = values[HL_Q_FIRST][0],
         .entropy_nosink = values[HL_Q_ENTROPY_NOSINK][0],
         .segment_mass   = made->mass[layer][0][0],
    };
    hl_layer_rows   rows = { .layer        = layer,
                             .n_batch      = 1,
                             .n_rows       = P_ROWS,
                             .n_heads      = P_HEADS - layer,
                             .start        = &start,
                             .lengths      = &made->length,
                             .rows         = &statistics,
                             .pattern      = made->pattern[0][0],
                             .pattern_rows = made->pattern_rows,
                             .n_patterns   = P_PATTERNS,
                             .n_keys       = P_ROWS };
    hl_profile_mask mask = { .is_causal = true };

    assert_ok(hl_profile_layer(profile, &rows, &mask));
}

/* Adds kernels of one sequence: (n_heads of the layer, n, n). */
static inline void add_kernels(hl_profile *profile, int64_t layer, const double *kernels, int64_t n)
{
    hl_layer_rows rows = { .layer = layer, .n_heads = P_HEADS - layer };

    assert_ok(hl_profile_kernels_open(profile, 1, n));
    for (int64_t head = 0; head < rows.n_heads; head++)
        hl_profile_kernels_head(profile, 0, head, kernels + head * n * n, n);
    for (int64_t head = 0; head < rows.n_heads; head++)
        hl_profile_kernels_pairs(profile, &rows, 0, head, n);
    hl_profile_kernels_close(profile, &rows, 0, n);
}

static inline void add_made(hl_profile *profile, made_sequence *made)
{
    hl_profile_batch batch = { .n_batch   = 1,
                               .lengths   = &made->length,
                               .first_row = &made->first_row,
                               .hashes    = &made->hash,
                               .types     = made->types,
                               .context   = P_ROWS,
                               .documents = &made->document,
                               .starts    = &made->start,
                               .n_threads = 2 };
    double           kernels[P_HEADS * 64];
    uint64_t         state = made->hash;

    assert_ok(hl_profile_begin(profile, &batch));
    for (int64_t layer = 0; layer < P_LAYERS; layer++) {
        add_made_layer(profile, made, layer);
        for (int64_t head = 0; head < P_HEADS - layer; head++) {
            hl_profile_norm(profile, -1, layer, head, 10.0 * made_random(&state));
            for (int i = 0; i < 64; i++) /* not a kernel, but symmetric and bounded */
                kernels[head * 64 + i] =
                    i / 8 == i % 8 ? 1.0 : 0.1 * (double)((i / 8) * (i % 8) % 5);
        }
        add_kernels(profile, layer, kernels, 8);
        hl_profile_influence(profile, layer, made_random(&state));
    }
    hl_profile_loss(profile, 5.0 * made_random(&state));
    assert_ok(hl_profile_end(profile));
}

/* Returns the profile's bytes, by way of a file; release with free. */
static inline char *profile_bytes(const hl_profile *profile, size_t *n_bytes)
{
    char path[] = "/tmp/headlight-profile-XXXXXX";
    int  file   = mkstemp(path);

    assert_true(file >= 0);
    close(file);
    assert_ok(hl_profile_write(profile, path));
    char *bytes = read_file(path, n_bytes);
    unlink(path);
    return bytes;
}

static inline void assert_same_profile(const hl_profile *a, const hl_profile *b)
{
    size_t n_a     = 0;
    size_t n_b     = 0;
    char  *bytes_a = profile_bytes(a, &n_a);
    char  *bytes_b = profile_bytes(b, &n_b);

    assert_int_equal(n_a, n_b);
    assert_memory_equal(bytes_a, bytes_b, n_a);
    free(bytes_a);
    free(bytes_b);
}

#endif
