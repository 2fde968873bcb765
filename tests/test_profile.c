/* test_profile.c - rows added to a profile: its results against plain sums in double; merging in
 * any order; kept sequences. */
#include "profile_support.h"

#include "stats/profile_tables.h"

enum { N_MADE = 40 };

static made_sequence made[N_MADE];

static int make_all(void **state)
{
    (void)state;
    for (int i = 0; i < N_MADE; i++)
        make_sequence(&made[i], (uint64_t)i);
    return 0;
}

/* ---------------------------------------------------------------------- moments */

typedef struct plain {
    double count, sum, squares, min, max;
} plain;

static void add_plain(plain *p, double value)
{
    if (p->count == 0.0 || value < p->min)
        p->min = value;
    if (p->count == 0.0 || value > p->max)
        p->max = value;
    p->count += 1.0;
    p->sum += value;
    p->squares += value * value;
}

static void assert_moments(hl_moments seen, plain wanted)
{
    assert_int_equal(seen.count, wanted.count);
    if (wanted.count == 0.0) {
        assert_true(isnan(seen.mean) && isnan(seen.variance));
        return;
    }
    double mean = wanted.sum / wanted.count;
    assert_true(fabs(seen.mean - mean) < 1e-11);
    assert_true(fabs(seen.variance - (wanted.squares / wanted.count - mean * mean)) < 1e-10);
}

/* Returns whether the quantity is defined for row i, which sees the keys 0..i. */
static bool is_defined(hl_quantity quantity, int row)
{
    if (quantity == HL_Q_NORMALIZED)
        return row + 1 >= 16;
    if (quantity == HL_Q_PREVIOUS || quantity == HL_Q_ENTROPY_NOSINK)
        return row >= 1;
    return true;
}

static double value_of(const made_sequence *m, int layer, int quantity, int head, int row)
{
    if (quantity == HL_Q_NORMALIZED)
        return (double)m->values[layer][HL_Q_ENTROPY][head][row] / log(row + 1.0);
    return (double)m->values[layer][quantity][head][row];
}

static void moments_are_those_of_the_rows(void **state)
{
    hl_profile *profile = new_made_profile();
    (void)state;

    for (int i = 0; i < N_MADE; i++)
        add_made(profile, &made[i]);
    for (int q = 0; q < HL_N_QUANTITIES; q++) {
        for (int cell = 0; cell < P_LAYERS * P_HEADS; cell++) {
            int   layer = cell / P_HEADS;
            int   head  = cell % P_HEADS;
            plain all   = { 0 };

            for (int i = 0; i < N_MADE * P_ROWS && head < P_HEADS - layer; i++) {
                if (is_defined((hl_quantity)q, i % P_ROWS))
                    add_plain(&all, value_of(&made[i / P_ROWS], layer, q, head, i % P_ROWS));
            }
            hl_moments seen = hl_profile_moments(profile, layer, head, (hl_quantity)q);
            assert_moments(seen, all);
            if (all.count > 0.0)
                assert_true(seen.min == (double)(float)all.min &&
                            seen.max == (double)(float)all.max);
        }
    }
    assert_int_equal(hl_profile_n_tokens(profile), N_MADE * P_ROWS);
    assert_int_equal(hl_profile_all_sequences(profile), N_MADE);
    assert_int_equal(hl_profile_heads_of(profile, 1), P_HEADS - 1);
    assert_int_equal(hl_profile_nll(profile).count, N_MADE);
    hl_profile_free(profile);
}

static void buckets_and_types_divide_the_rows(void **state)
{
    hl_profile *profile                = new_made_profile();
    plain       by_bucket[8]           = { { 0 } };
    plain       by_type[P_TYPES]       = { { 0 } };
    double      mass[P_TYPES][P_TYPES] = { { 0 } };
    (void)state;

    for (int i = 0; i < N_MADE; i++) {
        add_made(profile, &made[i]);
        for (int row = 0; row < P_ROWS; row++) {
            double value  = value_of(&made[i], 0, HL_Q_ENTROPY, 2, row);
            int    bucket = (int)floor(log2(row + 1.0));
            add_plain(&by_bucket[bucket], value);
            add_plain(&by_type[made[i].types[row]], value);
            for (int to = 0; to < P_TYPES; to++)
                mass[made[i].types[row]][to] += (double)made[i].mass[0][2][row][to];
        }
    }
    assert_int_equal(hl_profile_n_buckets(profile), 7); /* with a context of 64: positions 0 ..
                                                         * 63 */
    for (int bucket = 0; bucket < 7; bucket++)
        assert_moments(hl_profile_by_position(profile, 0, 2, bucket, HL_Q_ENTROPY),
                       by_bucket[bucket]);
    for (int type = 0; type < P_TYPES; type++) {
        assert_moments(hl_profile_by_type(profile, 0, 2, type, HL_Q_ENTROPY), by_type[type]);
        for (int to = 0; to < P_TYPES; to++)
            assert_true(fabs(hl_profile_lookback(profile, 0, 2, type, to) -
                             mass[type][to] / by_type[type].count) < 2e-7);
    }
    assert_string_equal(hl_profile_type_name(profile, 1), "special");
    hl_profile_free(profile);
}

static void histograms_hold_every_row_once(void **state)
{
    hl_profile *profile = new_made_profile();
    (void)state;

    for (int i = 0; i < N_MADE; i++)
        add_made(profile, &made[i]);
    int64_t        total             = 0;
    const int64_t *bins              = hl_profile_histogram(profile, 1, 0, HL_HIST_NORMALIZED);
    int64_t        wanted[HL_N_BINS] = { 0 };
    for (int i = 0; i < N_MADE * P_ROWS; i++) {
        int row = i % P_ROWS;
        if (row == 0)
            continue; /* with one key there is no entropy to normalize */
        double share = (double)made[i / P_ROWS].values[1][HL_Q_ENTROPY][0][row] / log(row + 1.0);
        wanted[(int)fmin(share * 64.0, 63.0)]++;
    }
    for (int bin = 0; bin < HL_N_BINS; bin++) {
        assert_int_equal(bins[bin], wanted[bin]);
        total += bins[bin];
    }
    assert_int_equal(total, N_MADE * (P_ROWS - 1));
    double median = hl_profile_quantile(profile, 1, 0, HL_HIST_NORMALIZED, 0.5);
    assert_true(median > 0.4 && median < 0.6); /* the rows are uniform in [0, 1] */
    assert_true(hl_profile_quantile(profile, 1, 0, HL_HIST_NORMALIZED, 0.0) >= 0.0);
    assert_true(hl_profile_quantile(profile, 1, 0, HL_HIST_NORMALIZED, 1.0) <= 1.0);
    assert_true(isnan(hl_profile_quantile(profile, 1, 2, HL_HIST_PEAK, 0.5))); /* the layer lacks
                                                                                * this head */
    hl_profile_free(profile);
}

/* 6 of 24 rows are in bin 10 and 18 in bin 20; within a bin, rows count as evenly distributed. */
static void quantiles_lie_within_their_bin(void **state)
{
    hl_profile         *profile     = new_made_profile();
    made_sequence       rows        = made[0];
    static const double wanted[][2] = {
        { 0.0, 10.0 }, { 0.125, 10.5 }, { 0.25, 11.0 }, { 0.5, 20.0 + 6.0 / 18.0 }, { 1.0, 21.0 },
    };
    (void)state;

    for (int row = 0; row < P_ROWS; row++)
        rows.values[0][HL_Q_PEAK][0][row] = (row % 4 == 0 ? 10.4f : 20.9f) / 64.0f;
    add_made(profile, &rows);
    assert_int_equal(hl_profile_histogram(profile, 0, 0, HL_HIST_PEAK)[10], 6);
    assert_int_equal(hl_profile_histogram(profile, 0, 0, HL_HIST_PEAK)[20], 18);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        double seen = hl_profile_quantile(profile, 0, 0, HL_HIST_PEAK, wanted[i][0]);
        if (fabs(64.0 * seen - wanted[i][1]) > 1e-12)
            fail_msg("quantile %g is %g / 64, wanted %g", wanted[i][0], 64.0 * seen, wanted[i][1]);
    }
    hl_profile_free(profile);
}

/* ------------------------------------------------------------------------ windows */

static void rows_that_have_counted_do_not_count_again(void **state)
{
    hl_profile   *profile = new_made_profile();
    made_sequence late    = made[0];
    (void)state;

    late.first_row = 20;
    add_made(profile, &late);
    assert_int_equal(hl_profile_moments(profile, 0, 0, HL_Q_ENTROPY).count, P_ROWS - 20);
    assert_int_equal(hl_profile_n_tokens(profile), P_ROWS - 20);
    hl_profile_free(profile);
}

static void a_window_decides_what_is_seen(void **state)
{
    hl_profile         *profile = new_made_profile();
    made_sequence      *m       = &made[1];
    int64_t             start   = 0;
    hl_attention_result rows    = { .entropy        = m->values[0][0][0],
                                    .renyi2         = m->values[0][2][0],
                                    .varentropy     = m->values[0][3][0],
                                    .peak           = m->values[0][4][0],
                                    .self           = m->values[0][5][0],
                                    .previous       = m->values[0][6][0],
                                    .first          = m->values[0][7][0],
                                    .entropy_nosink = m->values[0][8][0] };
    hl_layer_rows       layer   = { .n_batch = 1,
                                    .n_rows  = P_ROWS,
                                    .n_heads = P_HEADS,
                                    .start   = &start,
                                    .lengths = &m->length,
                                    .rows    = &rows };
    hl_profile_batch    batch   = { .n_batch   = 1,
                                    .lengths   = &m->length,
                                    .first_row = &m->first_row,
                                    .hashes    = &m->hash,
                                    .context   = P_ROWS,
                                    .documents = &m->document,
                                    .starts    = &m->start };
    hl_profile_mask     mask    = { .is_causal = true, .has_window = true, .window_left = 4 };
    (void)state;

    memset(m->values[0][0], 0, sizeof m->values[0][0]); /* five keys have lower entropies */
    assert_ok(hl_profile_begin(profile, &batch));
    assert_ok(hl_profile_layer(profile, &layer, &mask));
    /* Rows see at most five keys, never 16.  Rows 0 .. 4 see the first key. */
    assert_int_equal(hl_profile_moments(profile, 0, 0, HL_Q_NORMALIZED).count, 0);
    assert_int_equal(hl_profile_moments(profile, 0, 0, HL_Q_FIRST).count, 5);
    assert_int_equal(hl_profile_moments(profile, 0, 0, HL_Q_ENTROPY_NOSINK).count, P_ROWS - 1);
    /* A learned sink is one more outcome: 16 of them with a window of 15. */
    mask = (hl_profile_mask){ .is_causal = true, .has_sink = true };
    assert_ok(hl_profile_layer(profile, &layer, &mask));
    assert_int_equal(hl_profile_moments(profile, 0, 0, HL_Q_NORMALIZED).count, P_ROWS - 14);
    make_sequence(m, 1);
    hl_profile_free(profile);
}

static void broken_rows_are_counted_and_placed(void **state)
{
    hl_profile   *profile = new_made_profile();
    made_sequence bad     = made[2];
    int64_t       document;
    int64_t       token;
    (void)state;

    bad.document                       = 7;
    bad.start                          = 100;
    bad.values[0][HL_Q_PEAK][1][9]     = NAN;
    bad.values[0][HL_Q_ENTROPY][1][12] = 2.6f;    /* ln 13 = 2.565 */
    bad.values[0][HL_Q_ENTROPY][0][12] = 2.5655f; /* within the tolerance of 1e-3 */
    add_made(profile, &bad);
    bad.document = 3;
    add_made(profile, &bad);
    assert_int_equal(hl_profile_broken(profile, 0, 1), 4);
    assert_int_equal(hl_profile_broken(profile, 0, 0), 0);
    assert_true(hl_profile_broken_place(&document, &token, profile, 0, 1));
    assert_int_equal(document, 3);
    assert_int_equal(token, 109);
    assert_false(hl_profile_broken_place(&document, &token, profile, 0, 0));
    assert_int_equal(hl_profile_moments(profile, 0, 1, HL_Q_ENTROPY).count, 2 * P_ROWS - 4);
    hl_profile_free(profile);
}

/* ---------------------------------------------------------------------- samples */

static void patterns_are_measured(void **state)
{
    hl_profile   *profile = new_made_profile();
    made_sequence row     = made[3];
    (void)state;

    /* Head 0 gives half to itself, a quarter to the first key, a quarter to the previous key. */
    memset(row.pattern, 0, sizeof row.pattern);
    for (int i = 0; i < P_PATTERNS; i++) {
        int64_t at                = row.pattern_rows[i];
        row.pattern[0][i][at]     = 0.5f;
        row.pattern[0][i][at - 1] = 0.25f;
        row.pattern[0][i][0]      = 0.25f;
        row.pattern[1][i][at]     = 0.5f; /* the other heads differ by a quarter */
        row.pattern[1][i][at - 1] = 0.5f;
        row.pattern[2][i][at - 1] = 1.0f;
    }
    add_made(profile, &row);
    hl_moments diagonal = hl_profile_pattern(profile, 0, 0, HL_PM_SELF, false);
    assert_int_equal(diagonal.count, P_PATTERNS);
    assert_true(diagonal.mean == 0.5 && diagonal.variance == 0.0);
    assert_true(hl_profile_pattern(profile, 0, 0, HL_PM_PREVIOUS, false).mean == 0.25);
    assert_true(hl_profile_pattern(profile, 0, 0, HL_PM_SINK, false).mean == 0.25);
    assert_true(hl_profile_pattern(profile, 0, 0, HL_PM_SELF_TOP, false).mean == 1.0);
    assert_true(hl_profile_pattern(profile, 0, 2, HL_PM_SELF_TOP, false).mean == 0.0);
    assert_true(hl_profile_pattern(profile, 0, 0, HL_PM_PEAK, false).mean == 0.5);
    /* The rows 4, 10 and 16; row 4 has key 0 in its band. */
    assert_true(fabs(hl_profile_pattern(profile, 0, 0, HL_PM_BAND, false).mean - 2.5 / 3.0) < 1e-6);
    double chance = (1.0 / 5.0 + 1.0 / 11.0 + 1.0 / 17.0) / 3.0;
    assert_true(fabs(hl_profile_pattern(profile, 0, 0, HL_PM_CHANCE, false).mean - chance) < 1e-6);
    assert_true(fabs(hl_profile_pattern(profile, 0, 0, HL_PM_EDGES, false).mean - 3 * chance) <
                1e-6);
    assert_true(fabs(hl_profile_pattern(profile, 0, 0, HL_PM_K90, false).mean - 3 * chance) < 1e-6);
    assert_true(fabs(hl_profile_pattern(profile, 0, 0, HL_PM_SUPPORT2, false).mean -
                     chance / (0.25 + 0.0625 + 0.0625)) < 1e-6);
    /* Without the first key: two thirds and one third. */
    assert_true(fabs(hl_profile_pattern(profile, 0, 0, HL_PM_SELF, true).mean - 2.0 / 3.0) < 1e-6);
    assert_int_equal(hl_profile_pattern(profile, 0, 0, HL_PM_SINK, true).count, 0);
    assert_true(fabs(hl_profile_similarity(profile, 0, 0, 1) - 0.75) < 1e-6);
    assert_true(fabs(hl_profile_similarity(profile, 0, 1, 0) - 0.75) < 1e-6);
    assert_true(hl_profile_similarity(profile, 0, 2, 2) == 1.0);
    for (int pair = 0; pair < P_HEADS * P_HEADS; pair++) /* in both directions, for all pairs */
        assert_true(hl_profile_similarity(profile, 0, pair / P_HEADS, pair % P_HEADS) ==
                    hl_profile_similarity(profile, 0, pair % P_HEADS, pair / P_HEADS));
    assert_true(hl_profile_similarity(profile, 0, 0, 1) != hl_profile_similarity(profile, 0, 1, 2));
    hl_profile_free(profile);
}

/* Compares k90 with sorting, on rows long enough to be divided. */
static int falling(const void *a, const void *b)
{
    float left  = *(const float *)a;
    float right = *(const float *)b;
    return left < right ? 1 : left > right ? -1 : 0;
}

static void k90_is_that_of_a_sorted_row(void **state)
{
    enum { KEYS = 700 };
    static float      pattern[KEYS], sorted[KEYS];
    const int64_t     heads[1] = { 1 };
    const char *const names[1] = { "prompt" };
    int64_t           zero = 0, length = KEYS, row = KEYS - 1;
    uint64_t          hash    = 1;
    hl_profile       *profile = NULL;
    hl_profile_batch  batch   = { .n_batch   = 1,
                                  .lengths   = &length,
                                  .first_row = &zero,
                                  .hashes    = &hash,
                                  .documents = &zero,
                                  .starts    = &zero };
    hl_layer_rows     rows    = { .n_batch      = 1,
                                  .n_rows       = KEYS,
                                  .n_heads      = 1,
                                  .start        = &zero,
                                  .lengths      = &length,
                                  .pattern      = pattern,
                                  .pattern_rows = &row,
                                  .n_patterns   = 1,
                                  .n_keys       = KEYS };
    hl_profile_mask   mask    = { .is_causal = true };
    (void)state;

    for (uint64_t seed = 1; seed < 20; seed++) {
        double total = 0.0, mass = 0.0;
        int    k = 0;

        assert_ok(hl_profile_new(&profile, &(hl_profile_shape){ 1, heads, KEYS, 1, names }));
        for (int i = 0; i < KEYS; i++) {
            /* Some values are equal, some are 0. */
            pattern[i] = (float)floor(pow(made_random(&hash), (double)seed) * 50.0);
            total += (double)pattern[i];
        }
        for (int i = 0; i < KEYS; i++)
            pattern[i] = (float)((double)pattern[i] / total);
        memcpy(sorted, pattern, sizeof sorted);
        qsort(sorted, KEYS, sizeof *sorted, falling);
        /* If 90% is reached exactly, one key more or less is right too. */
        while (mass < 0.9 - 1e-6)
            mass += (double)sorted[k++];
        assert_ok(hl_profile_begin(profile, &batch));
        assert_ok(hl_profile_samples_open(profile, &rows, &mask));
        hl_profile_samples_head(profile, &rows, 0, 0);
        double seen = hl_profile_pattern(profile, 0, 0, HL_PM_K90, false).mean * KEYS;
        assert_true(fabs(seen - k) < 0.01 || (fabs(seen - k - 1) < 0.01 && mass < 0.9 + 1e-6));
        hl_profile_free(profile);
    }
}

/* --------------------------------------------------------------------------- CKA */

enum { CKA_ROWS = 16, CKA_DIMS = 4, CKA_TIMES = 200 };

/* Computes k(i,j) of `rows` rows of CKA_DIMS numbers. */
static void kernel_of(double *out, double outputs[CKA_ROWS][CKA_DIMS])
{
    for (int i = 0; i < CKA_ROWS * CKA_ROWS; i++) {
        out[i] = 0.0;
        for (int d = 0; d < CKA_DIMS; d++)
            out[i] += outputs[i / CKA_ROWS][d] * outputs[i % CKA_ROWS][d];
    }
}

static void cka_sees_turns_and_scales_but_not_chance(void **state)
{
    static double kernels[P_HEADS][CKA_ROWS * CKA_ROWS];
    hl_profile   *profile = new_made_profile();
    uint64_t      random  = 5;
    (void)state;

    add_made(profile, &made[0]); /* a batch, for its memory; its own kernels are few */
    for (int time = 0; time < CKA_TIMES; time++) {
        double outputs[P_HEADS][CKA_ROWS][CKA_DIMS];
        for (int i = 0; i < CKA_ROWS * CKA_DIMS; i++) {
            int row = i / CKA_DIMS, d = i % CKA_DIMS;
            outputs[0][row][d]                  = made_random(&random) - 0.5;
            outputs[1][row][(d + 1) % CKA_DIMS] = -3.0 * outputs[0][row][d]; /* rotated and
                                                                              * scaled */
            outputs[2][row][d]                  = made_random(&random) - 0.5;
        }
        for (int head = 0; head < P_HEADS; head++)
            kernel_of(kernels[head], outputs[head]);
        add_kernels(profile, 0, kernels[0], CKA_ROWS);
    }
    assert_true(hl_profile_cka(profile, 0, 0, 1) > 0.999);
    assert_true(hl_profile_cka(profile, 0, 0, 2) <
                0.05); /* few random rows are not similar: the estimate has no bias */
    assert_true(hl_profile_cka(profile, 0, 0, 0) == 1.0);
    hl_profile_free(profile);
}

/* ----------------------------------------------------------------------- merging */

static void parts_merge_to_the_whole_in_any_order(void **state)
{
    hl_profile *whole = new_made_profile();
    hl_profile *parts[4];
    (void)state;

    for (int part = 0; part < 4; part++)
        parts[part] = new_made_profile();
    for (int i = 0; i < N_MADE; i++) {
        add_made(whole, &made[i]);
        add_made(parts[i % 3], &made[i]); /* the fourth part stays empty */
    }
    for (int layer = 0; layer < P_LAYERS; layer++) {
        hl_profile_set_probe(whole, layer, 0, HL_PROBE_INDUCTION, 0.25);
        hl_profile_set_probe(parts[1], layer, 0, HL_PROBE_INDUCTION, 0.25);
    }
    assert_ok(hl_profile_merge(parts[3], parts[1]));
    assert_ok(hl_profile_merge(parts[2], parts[0]));
    assert_ok(hl_profile_merge(parts[3], parts[2]));
    assert_same_profile(whole, parts[3]);
    assert_true(hl_profile_probe(parts[3], 0, 0, HL_PROBE_INDUCTION) == 0.25);
    assert_true(isnan(hl_profile_probe(parts[3], 0, 1, HL_PROBE_INDUCTION)));
    assert_fails(HL_BAD_ARGUMENT, "with itself", hl_profile_merge(whole, whole));
    for (int part = 0; part < 4; part++)
        hl_profile_free(parts[part]);
    hl_profile_free(whole);
}

/* The same text on machines that round differently: equal hashes, different means.  Which one is
 * kept does not depend on the order of merging: it is the one with the lower bytes. */
static void equal_hashes_are_kept_by_their_bytes(void **state)
{
    hl_profile   *parts[2][2];
    made_sequence rounded = made[3];
    (void)state;

    rounded.values[0][HL_Q_ENTROPY][1][7] += 1e-3f;
    for (int i = 0; i < 4; i++) {
        parts[i / 2][i % 2] = new_made_profile();
        add_made(parts[i / 2][i % 2], i % 2 == 0 ? &made[3] : &rounded);
    }
    assert_ok(hl_profile_merge(parts[0][0], parts[0][1]));
    assert_ok(hl_profile_merge(parts[1][1], parts[1][0]));
    assert_same_profile(parts[0][0], parts[1][1]);
    assert_int_equal(hl_profile_kept(parts[0][0]), 2);
    int order = 0;
    for (int i = 0; i < HL_N_KEPT && order == 0; i++)
        order = memcmp(hl_kept_part(parts[0][0], i, 0), hl_kept_part(parts[0][0], i, 1),
                       hl_kept_bytes(parts[0][0], i));
    assert_true(order < 0);
    for (int i = 0; i < 4; i++)
        hl_profile_free(parts[i / 2][i % 2]);
}

static void other_settings_are_refused(void **state)
{
    hl_profile *a = new_made_profile();
    hl_profile *b = new_made_profile();
    (void)state;

    assert_ok(hl_profile_set(b, "model", "fedcba9876543210"));
    assert_fails(HL_BAD_INPUT, "'model': 0123456789abcdef and fedcba9876543210",
                 hl_profile_merge(a, b));
    assert_ok(hl_profile_set(b, "model", "0123456789abcdef"));
    assert_ok(hl_profile_merge(a, b));
    assert_ok(hl_profile_set_int(b, "seed", 3));
    assert_fails(HL_BAD_INPUT, "'seed': not given and 3", hl_profile_merge(a, b));
    assert_fails(HL_BAD_INPUT, "'seed': 3 and not given", hl_profile_merge(b, a));
    assert_fails(HL_BAD_INPUT, "cannot be called 'heads'", hl_profile_set(a, "heads", "1"));
    hl_profile_free(a);
    hl_profile_free(b);
}

static void other_shapes_are_refused(void **state)
{
    const int64_t     heads[2] = { 3, 3 };
    const char *const names[2] = { "prompt", "special" };
    const char *const other[2] = { "prompt", "user" };
    hl_profile       *a        = NULL;
    hl_profile       *b        = NULL;
    (void)state;

    assert_ok(hl_profile_new(&a, &(hl_profile_shape){ 2, heads, 64, 2, names }));
    assert_ok(hl_profile_new(&b, &(hl_profile_shape){ 1, heads, 64, 2, names }));
    assert_fails(HL_BAD_INPUT, "'layers': 2 and 1", hl_profile_merge(a, b));
    hl_profile_free(b);
    assert_ok(hl_profile_new(&b, &(hl_profile_shape){ 2, heads, 64, 2, other }));
    assert_fails(HL_BAD_INPUT, "'type': special and user", hl_profile_merge(a, b));
    hl_profile_free(b);
    assert_ok(hl_profile_new(&b, &(hl_profile_shape){ 2, heads, 63, 2, names }));
    assert_fails(HL_BAD_INPUT, "'buckets': 7 and 6", hl_profile_merge(a, b));
    hl_profile_free(b);
    hl_profile_free(a);
}

/* --------------------------------------------------------------------- sequences */

static void the_smallest_hashes_are_kept(void **state)
{
    hl_profile   *profile = new_made_profile();
    hl_profile   *reverse = new_made_profile();
    made_sequence one     = made[0];
    enum { MANY = 600 };
    (void)state;

    for (int i = 0; i < MANY; i++) {
        one.hash                          = (uint64_t)(i * 7919 % MANY);
        one.values[0][HL_Q_ENTROPY][0][1] = (float)one.hash * 0.001f;
        add_made(profile, &one);
    }
    for (int i = MANY - 1; i >= 0; i--) {
        one.hash                          = (uint64_t)(i * 7919 % MANY);
        one.values[0][HL_Q_ENTROPY][0][1] = (float)one.hash * 0.001f;
        add_made(reverse, &one);
    }
    assert_int_equal(hl_profile_n_sequences(profile), HL_PROFILE_MAX_KEPT);
    assert_int_equal(hl_profile_all_sequences(profile), MANY);
    for (int i = 0; i < HL_PROFILE_MAX_KEPT; i++)
        assert_int_equal(hl_profile_sequence_hash(profile, i), i);
    double sum = 0.0;
    for (int row = 0; row < P_ROWS; row++)
        sum += row == 1 ? 0.005 : (double)made[0].values[0][HL_Q_ENTROPY][0][row];
    assert_true(fabs(hl_profile_sequence_mean(profile, 5, 0, 0, HL_Q_ENTROPY) - sum / P_ROWS) <
                1e-6);
    assert_true(isnan(hl_profile_sequence_mean(profile, 5, 1, 2, HL_Q_ENTROPY)));
    sum = 0.0;
    for (int row = 0; row < P_ROWS; row++)
        sum += (double)made[0].values[0][HL_Q_PEAK][0][row];
    assert_true(fabs(hl_profile_sequence_mean(profile, 5, 0, 0, HL_Q_PEAK) - sum / P_ROWS) < 1e-6);
    assert_same_profile(profile, reverse);
    hl_profile_free(profile);
    hl_profile_free(reverse);
}

/* Adds up a sequence's rows of a layer in a bucket, over its heads. */
static plain rows_in_bucket(const made_sequence *m, int layer, int bucket, int quantity)
{
    plain all = { 0 };

    for (int head = 0; head < P_HEADS - layer; head++) {
        for (int row = (int)m->first_row; row < m->length; row++) {
            double value = value_of(m, layer, quantity, head, row);
            if ((int)floor(log2(row + 1.0)) == bucket && is_defined((hl_quantity)quantity, row) &&
                !isnan(value))
                add_plain(&all, value);
        }
    }
    return all;
}

/* One batch each: complete, cut short, with a later first row, and with a broken row. */
static void kept_sequences_have_curves_by_position(void **state)
{
    hl_profile   *profile = new_made_profile();
    made_sequence four[4];
    (void)state;

    for (int i = 0; i < 4; i++) {
        four[i]      = made[i];
        four[i].hash = (uint64_t)i;
    }
    four[1].length                         = 10;
    four[2].first_row                      = 5;
    four[3].values[0][HL_Q_ENTROPY][1][20] = NAN;
    for (int i = 3; i >= 0; i--)
        add_made(profile, &four[i]);
    for (int place = 0; place < 4 * 7 * 2; place++) {
        int     i = place / 14, bucket = place / 2 % 7, quantity = place % 2;
        int64_t n_rows = 0;

        for (int layer = 0; layer < P_LAYERS; layer++) {
            plain  rows = rows_in_bucket(&four[i], layer, bucket, quantity);
            double mean =
                hl_profile_sequence_position(profile, i, layer, bucket, (hl_quantity)quantity);
            n_rows += (int64_t)rows.count;
            assert_true(rows.count > 0.0 ? fabs(mean - rows.sum / rows.count) < 1e-6 : isnan(mean));
        }
        assert_int_equal(hl_profile_sequence_rows(profile, i, bucket, (hl_quantity)quantity),
                         n_rows);
    }
    assert_true(isnan(hl_profile_sequence_position(profile, 0, 0, 0, HL_Q_PEAK)));
    assert_int_equal(hl_profile_sequence_rows(profile, 0, 0, HL_Q_PEAK), 0);
    hl_profile_free(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moments_are_those_of_the_rows),
        cmocka_unit_test(buckets_and_types_divide_the_rows),
        cmocka_unit_test(histograms_hold_every_row_once),
        cmocka_unit_test(quantiles_lie_within_their_bin),
        cmocka_unit_test(rows_that_have_counted_do_not_count_again),
        cmocka_unit_test(a_window_decides_what_is_seen),
        cmocka_unit_test(broken_rows_are_counted_and_placed),
        cmocka_unit_test(patterns_are_measured),
        cmocka_unit_test(k90_is_that_of_a_sorted_row),
        cmocka_unit_test(cka_sees_turns_and_scales_but_not_chance),
        cmocka_unit_test(parts_merge_to_the_whole_in_any_order),
        cmocka_unit_test(equal_hashes_are_kept_by_their_bytes),
        cmocka_unit_test(other_settings_are_refused),
        cmocka_unit_test(other_shapes_are_refused),
        cmocka_unit_test(the_smallest_hashes_are_kept),
        cmocka_unit_test(kept_sequences_have_curves_by_position),
    };
    return cmocka_run_group_tests(tests, make_all, NULL);
}
