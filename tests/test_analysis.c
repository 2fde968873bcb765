/* test_analysis.c - tables of profiles whose heads follow a rule. */
#include "made_profile.h"

#include "analysis/grid.h"
#include "analysis/head_kinds.h"
#include "analysis/numbers.h"

static hl_sheet *table_of(const hl_profile *profile, const char *name)
{
    hl_sheet *table = NULL;

    assert_ok(hl_analyze(&table, profile, name, NULL));
    assert_non_null(table);
    assert_string_equal(hl_sheet_name(table), name);
    return table;
}

static double number_in(const hl_sheet *table, int64_t row, const char *column)
{
    int64_t at = hl_sheet_find(table, column);

    if (at < 0)
        fail_msg("no column %s", column);
    return hl_sheet_number(table, row, at);
}

/* ---------------------------------------------------------------- closed forms */

/* A uniform head: H of row i is ln(i + 1), so the seed mean is ln(S!) / S, and normalized values
 * are 1. */
static void test_uniform_head(void **state)
{
    made_model  model   = { .n_layers = 1, .n_heads = 1, .n_sequences = 4 };
    hl_profile *profile = made_profile(&model);
    hl_sheet   *heads   = table_of(profile, "heads");

    (void)state;
    assert_int_equal(hl_sheet_n_rows(heads), 1);
    assert_near(number_in(heads, 0, "entropy"), lgamma(M_ROWS + 1.0) / M_ROWS, 1e-6);
    assert_near(number_in(heads, 0, "normalized"), 1.0, 1e-6);
    assert_near(number_in(heads, 0, "rows"), 4.0 * M_ROWS, 0.0);
    assert_near(number_in(heads, 0, "varentropy"), 0.0, 1e-6);
    assert_near(number_in(heads, 0, "entropy_low"), number_in(heads, 0, "entropy"), 1e-6);
    assert_near(number_in(heads, 0, "broken"), 0.0, 0.0);

    double chance = 0;
    for (int n = 1; n <= M_ROWS; n++)
        chance += 1.0 / n;
    assert_near(number_in(heads, 0, "self"), chance / M_ROWS, 1e-6);
    hl_sheet_free(heads);

    hl_sheet *patterns = table_of(profile, "patterns");
    assert_int_equal(hl_sheet_n_rows(patterns), 2);
    assert_near(number_in(patterns, 0, "lift"), 1.0, 1e-5);
    assert_near(number_in(patterns, 0, "support2"), 1.0, 1e-5);
    assert_near(number_in(patterns, 0, "edges"), 1.0, 1e-6);
    hl_sheet_free(patterns);
    hl_profile_free(profile);
}

/* Compares each number in a table of one head with the rows. */
static void test_heads_against_rows(void **state)
{
    made_model model   = { .n_layers = 1, .n_heads = 1, .n_sequences = 1 };
    double     sums[5] = { 0 }, normalized = 0;
    double     p[M_ROWS], h[3], rest[3];
    int        n_normalized = 0;

    (void)state;
    model.heads[0][0] = (made_head){ .kind = MADE_PREVIOUS, .strength = 0.7 };
    for (int row = 0; row < M_ROWS; row++) {
        made_row(p, &model.heads[0][0], 0, row, 700);
        made_entropies(h, p, 0, row + 1);
        sums[0] += h[0];
        sums[1] += h[1];
        sums[2] += row > 0 ? p[row - 1] : 0;
        if (row > 0) {
            made_entropies(rest, p, 1, row + 1);
            sums[3] += rest[0];
        }
        sums[4] += h[2];
        if (row + 1 >= 16) {
            normalized += h[0] / log(row + 1.0);
            n_normalized++;
        }
    }
    hl_profile *profile = made_profile(&model);
    hl_sheet   *heads   = table_of(profile, "heads");
    assert_near(number_in(heads, 0, "entropy"), sums[0] / M_ROWS, 1e-6);
    assert_near(number_in(heads, 0, "renyi2"), sums[1] / M_ROWS, 1e-6);
    assert_near(number_in(heads, 0, "previous"), sums[2] / (M_ROWS - 1), 1e-6);
    assert_near(number_in(heads, 0, "entropy_nosink"), sums[3] / (M_ROWS - 1), 1e-6);
    assert_near(number_in(heads, 0, "varentropy"), sums[4] / M_ROWS, 1e-6);
    assert_near(number_in(heads, 0, "normalized"), normalized / n_normalized, 1e-6);
    assert_true(isnan(number_in(heads, 0, "normalized_low"))); /* one sequence gives no interval */
    hl_sheet_free(heads);
    hl_profile_free(profile);
}

/* --------------------------------------------------------------------- layers */

/* Layer l has a content head of strength 0.5 + 0.2 |l - 3|.  Its entropy is highest in layer 3: a
 * hill, whose numbers follow from the layers' means. */
/* Layers whose heads give these shares to the last five tokens: the more, the lower the entropy. */
static void test_shapes_in_words(void **state)
{
    static const struct {
        double      strengths[M_LAYERS];
        const char *shape, *specialized;
    } cases[] = {
        { { 0.1, 0.1, 0.8, 0.8, 0.1, 0.1 }, "U-shape", "no difference" },
        { { 0.8, 0.8, 0.1, 0.1, 0.7, 0.7 }, "inverted U-shape", "no: less" },
        { { 0.1, 0.2, 0.4, 0.5, 0.7, 0.8 }, "falls", "yes" },
        { { 0.8, 0.7, 0.5, 0.4, 0.2, 0.1 }, "rises", "no: less" },
        { { 0.5, 0.501, 0.502, 0.503, 0.504, 0.505 }, "flat", "no difference" },
        { { 0.1, 0.8, 0.1, 0.8, 0.1, 0.8 }, "uneven", "no difference" },
        /* The middle is lower than the end by a tenth of the range: too little for a turn. */
        { { 0.1, 0.1, 0.84, 0.84, 0.8, 0.8 }, "uneven", "yes" },
    };
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        made_model model = { .n_layers = M_LAYERS, .n_heads = 2, .n_sequences = 6 };

        for (int l = 0; l < M_LAYERS; l++) {
            for (int h = 0; h < 2; h++)
                model.heads[l][h] = (made_head){ .kind     = MADE_LOCAL,
                                                 .strength = cases[i].strengths[l],
                                                 .wobble   = 1e-4 };
        }
        hl_profile *profile = made_profile(&model);
        hl_sheet   *shape   = table_of(profile, "shape");
        assert_string_equal(hl_sheet_text(shape, 1, hl_sheet_find(shape, "shape")), cases[i].shape);
        assert_string_equal(hl_sheet_text(shape, 1, hl_sheet_find(shape, "later_specialized")),
                            cases[i].specialized);
        assert_near(number_in(shape, 1, "later_change"),
                    number_in(shape, 1, "last_third") - number_in(shape, 1, "first_third"), 1e-12);
        /* The first line, in nats, agrees. */
        assert_string_equal(hl_sheet_text(shape, 0, hl_sheet_find(shape, "shape")), cases[i].shape);
        hl_sheet_free(shape);
        hl_profile_free(profile);
    }

    /* An uncertain shape is not reported: the same falling layers in windows that differ much. */
    made_model model = { .n_layers = M_LAYERS, .n_heads = 2, .n_sequences = 4 };
    for (int l = 0; l < M_LAYERS; l++) {
        for (int h = 0; h < 2; h++)
            model.heads[l][h] =
                (made_head){ .kind = MADE_LOCAL, .strength = 0.4 + 0.02 * l, .wobble = 1.1 };
    }
    hl_profile *profile = made_profile(&model);
    hl_sheet   *shape   = table_of(profile, "shape");
    assert_true(number_in(shape, 1, "range") > HL_LAYERS_DIFFER);
    assert_string_equal(hl_sheet_text(shape, 1, hl_sheet_find(shape, "shape")), "not known");
    assert_string_equal(hl_sheet_text(shape, 1, hl_sheet_find(shape, "later_specialized")),
                        "no difference");
    hl_sheet_free(shape);
    hl_profile_free(profile);
}

static void test_layer_shape(void **state)
{
    made_model model = { .n_layers = M_LAYERS, .n_heads = 2, .n_sequences = 10 };

    (void)state;
    for (int l = 0; l < M_LAYERS; l++) {
        for (int h = 0; h < 2; h++)
            model.heads[l][h] = (made_head){ .kind     = MADE_CONTENT,
                                             .strength = 0.3 + 0.2 * abs(l - 3) + 0.05 * h,
                                             .wobble   = 0.04 };
    }
    hl_profile       *profile = made_profile(&model);
    hl_layer_profile *layers  = NULL;
    double            depth[M_LAYERS], rho = 0;

    assert_ok(hl_layer_profile_new(&layers, profile, HL_Q_NORMALIZED, 2.0));
    for (int l = 0; l < M_LAYERS; l++) {
        double mean = 0.5 * (hl_profile_mean(profile, l, 0, HL_Q_NORMALIZED) +
                             hl_profile_mean(profile, l, 1, HL_Q_NORMALIZED));
        assert_near(layers->means[l], mean, 1e-12);
        assert_true(layers->lows[l] < mean && mean < layers->highs[l]);
        depth[l] = l / (M_LAYERS - 1.0);
    }
    assert_int_equal(layers->shape.minimum, 0);
    assert_near(layers->shape.depth, 0.0, 0.0);
    assert_near(layers->shape.range, layers->means[3] - layers->means[0], 1e-12);
    assert_ok(hl_spearman(&rho, depth, layers->means, M_LAYERS));
    assert_near(layers->shape.spearman, rho, 0.0);
    assert_true(layers->shape.curvature < -1.0);
    assert_false(layers->shape.flat);
    hl_layer_profile_free(layers);

    hl_sheet *shape = table_of(profile, "shape");
    assert_int_equal(hl_sheet_n_rows(shape), 3);
    assert_near(number_in(shape, 1, "minimum"), 0.0, 0.0);
    assert_near(number_in(shape, 1, "flat"), 0.0, 0.0);
    hl_sheet_free(shape);
    hl_sheet *table = table_of(profile, "layers");
    assert_int_equal(hl_sheet_n_rows(table), M_LAYERS);
    assert_near(number_in(table, 2, "block_influence"), 0.12, 1e-6);
    hl_sheet_free(table);
    hl_profile_free(profile);
}

static void test_equal_layers_are_flat(void **state)
{
    made_model model = { .n_layers = 4, .n_heads = 2, .n_sequences = 10 };

    (void)state;
    for (int l = 0; l < 4; l++) {
        for (int h = 0; h < 2; h++)
            model.heads[l][h] = (made_head){ .kind = MADE_LOCAL, .strength = 0.5, .wobble = 0.2 };
    }
    hl_profile       *profile = made_profile(&model);
    hl_layer_profile *layers  = NULL;
    assert_ok(hl_layer_profile_new(&layers, profile, HL_Q_NORMALIZED, 2.0));
    assert_near(layers->shape.range, 0.0, 1e-9);
    assert_true(layers->shape.error > 0.0 && layers->shape.flat);
    hl_layer_profile_free(layers);

    /* One layer has no shape; one sequence has no error. */
    model.n_layers = 1;
    hl_profile_free(profile);
    profile = made_profile(&model);
    assert_ok(hl_layer_profile_new(&layers, profile, HL_Q_NORMALIZED, 2.0));
    assert_false(layers->shape.flat);
    hl_layer_profile_free(layers);
    hl_profile_free(profile);
}

static void test_variance(void **state)
{
    made_model model = { .n_layers = 2, .n_heads = 4, .n_sequences = 2 };
    double     normalized[4];

    (void)state;
    for (int h = 0; h < 4; h++) {
        model.heads[0][h] = (made_head){ .kind = MADE_CONTENT, .strength = 0.2 + 0.2 * h };
        model.heads[1][h] = (made_head){ .kind = MADE_CONTENT, .strength = 0.5 };
    }
    hl_profile *profile = made_profile(&model);
    hl_sheet   *table   = table_of(profile, "variance");
    for (int h = 0; h < 4; h++)
        normalized[h] = hl_profile_mean(profile, 0, h, HL_Q_NORMALIZED);
    assert_near(number_in(table, 0, "normalized_deviation"), sqrt(hl_variance(normalized, 4)),
                1e-12);
    assert_near(number_in(table, 1, "variance"), 0.0, 1e-9);
    hl_sheet_free(table);
    hl_profile_free(profile);
}

/* ----------------------------------------------------------------- head types */

static void test_head_types(void **state)
{
    static const struct {
        made_head    head;
        hl_head_kind kind;
    } cases[M_HEADS] = {
        { { .kind = MADE_PREVIOUS, .strength = 0.8 }, HL_HEAD_PREVIOUS },
        { { .kind = MADE_SELF, .strength = 0.8 }, HL_HEAD_SELF },
        { { .kind = MADE_FIRST, .strength = 0.7 }, HL_HEAD_SINK },
        { { .kind = MADE_LOCAL, .strength = 0.8 }, HL_HEAD_LOCAL },
        { { .kind = MADE_CONTENT, .strength = 0.9 }, HL_HEAD_SPECIALIST },
        { { .kind = MADE_UNIFORM }, HL_HEAD_GLOBAL },
        { { .kind = MADE_CONTENT, .strength = 0.55 }, HL_HEAD_MIXED },
        { { .kind = MADE_FIRST, .strength = 0.7, .induction = 0.6 }, HL_HEAD_INDUCTION },
    };
    made_model model = { .n_layers = 1, .n_heads = M_HEADS, .n_sequences = 3 };

    (void)state;
    for (int h = 0; h < M_HEADS; h++)
        model.heads[0][h] = cases[h].head;
    hl_profile *profile = made_profile(&model);
    for (int h = 0; h < M_HEADS; h++) {
        hl_head_type type = hl_head_type_of(profile, 0, h);
        if (type.kind != cases[h].kind)
            fail_msg("head %d is %s (%s %g), wanted %s", h, hl_head_kind_name(type.kind), type.rule,
                     type.value, hl_head_kind_name(cases[h].kind));
        if (type.kind != HL_HEAD_MIXED)
            assert_true(type.value >= type.threshold);
    }
    hl_sheet *table = table_of(profile, "head-types");
    assert_near(hl_sheet_fact(table, "sink"), 1.0, 0.0);
    assert_string_equal(hl_sheet_text(table, 4, hl_sheet_find(table, "type")), "specialist");
    hl_sheet_free(table);
    hl_profile_free(profile);
}

/* A type that rests on sampled rows is uncertain near the threshold of its rule, and only there; one that
 * rests on all rows is not. */
static void test_uncertain_types(void **state)
{
    const struct {
        made_head head;
        bool      is_uncertain;
    } cases[] = {
        { { .kind = MADE_LOCAL, .strength = 0.9 }, false },
        { { .kind = MADE_LOCAL, .strength = 0.37 }, true },
        { { .kind = MADE_FIRST, .strength = 0.7 }, false },
    };
    enum { N_CASES = sizeof cases / sizeof *cases };
    made_model model = { .n_layers = 1, .n_heads = N_CASES, .n_sequences = 3 };

    (void)state;
    for (int h = 0; h < N_CASES; h++)
        model.heads[0][h] = cases[h].head;
    hl_profile *profile = made_profile(&model);
    hl_sheet   *table   = table_of(profile, "head-types");
    for (int h = 0; h < N_CASES; h++) {
        hl_head_type type = hl_head_type_of(profile, 0, h);
        if (type.is_uncertain != cases[h].is_uncertain)
            fail_msg("head %d is %s by %g, uncertain: %d", h, hl_head_kind_name(type.kind),
                     type.value, type.is_uncertain);
    }
    assert_near(hl_sheet_fact(table, "uncertain"), 1.0, 0.0);
    hl_sheet_free(table);
    hl_profile_free(profile);
}

/* Returns the mass of a local head's row on its last five keys, without the first key. */
static double band_of_local(double strength)
{
    double sum = 0.0;

    for (int row = 7; row < M_ROWS; row += 8) {
        double even = (1.0 - strength) / (row + 1.0);
        sum += (strength + 5.0 * even) / (1.0 - even);
    }
    return sum / M_SAMPLED;
}

/* A head gives a share of each row to one key and spreads the rest.  Returns the mean mass of that
 * key, from row `from` on. */
static double share_of_key(double strength, int from)
{
    double sum = 0.0;

    for (int row = from; row < M_ROWS; row++)
        sum += row == 0 ? 1.0 : strength + (1.0 - strength) / (row + 1.0);
    return sum / (M_ROWS - from);
}

static hl_head_kind kind_of(made_head head)
{
    made_model   model   = { .n_layers = 1, .n_heads = 1, .n_sequences = 1, .heads = { { head } } };
    hl_profile  *profile = made_profile(&model);
    hl_head_kind kind    = hl_head_type_of(profile, 0, 0).kind;

    hl_profile_free(profile);
    return kind;
}

/* Heads on both sides of each documented threshold, by closed forms. */
static void test_head_type_thresholds(void **state)
{
    int n_near = 0;

    (void)state;
    for (int i = 15; i < 65; i++) {
        double                    strength = i / 100.0;
        double                    values[] = { share_of_key(strength, 1), share_of_key(strength, 0),
                                               share_of_key(strength, 0), band_of_local(strength), strength };
        static const double       thresholds[] = { 0.4, 0.4, 0.3, 0.5, 0.4 };
        static const hl_head_kind wanted[]     = { HL_HEAD_PREVIOUS, HL_HEAD_SELF, HL_HEAD_SINK,
                                                   HL_HEAD_LOCAL, HL_HEAD_INDUCTION };
        const made_head           heads[]      = {
                           { .kind = MADE_PREVIOUS, .strength = strength },
                           { .kind = MADE_SELF, .strength = strength },
                           { .kind = MADE_FIRST, .strength = strength },
                           { .kind = MADE_LOCAL, .strength = strength },
                           { .kind = MADE_UNIFORM, .induction = strength },
        };
        for (int k = 0; k < 5; k++) {
            if (fabs(values[k] - thresholds[k]) < 1e-4) /* floats may fall on either side */
                continue;
            n_near += fabs(values[k] - thresholds[k]) < 0.01;
            if ((kind_of(heads[k]) == wanted[k]) != (values[k] > thresholds[k]))
                fail_msg("%s: %g of %g is %s", hl_head_kind_name(wanted[k]), values[k],
                         thresholds[k], hl_head_kind_name(kind_of(heads[k])));
        }
    }
    assert_true(n_near >= 5);
}

/* ------------------------------------------------------------------- clusters */

static void test_clusters(void **state)
{
    static const made_kind kinds[] = { MADE_PREVIOUS, MADE_FIRST, MADE_CONTENT };
    made_model             model   = { .n_layers = M_LAYERS, .n_heads = M_HEADS, .n_sequences = 2 };

    (void)state;
    for (int i = 0; i < M_LAYERS * M_HEADS; i++)
        model.heads[i / M_HEADS][i % M_HEADS] =
            (made_head){ .kind = kinds[i % 3], .strength = 0.7 + 0.004 * (i % 7) };
    hl_profile       *profile  = made_profile(&model);
    hl_head_clusters *clusters = NULL;
    assert_ok(hl_head_clusters_new(&clusters, profile, 0));
    assert_int_equal(clusters->n_heads, M_LAYERS * M_HEADS);
    assert_int_equal(clusters->n_clusters, 3);
    for (int i = 0; i < M_LAYERS * M_HEADS; i++)
        assert_int_equal(clusters->labels[i], i % 3);
    for (int k = 0; k < 3; k++)
        assert_int_equal(clusters->medoids[k] % 3, k);
    assert_true(clusters->silhouette > 0.8);
    assert_near(clusters->stability.mean, 1.0, 1e-12);
    hl_head_clusters_free(clusters);

    hl_sheet *table = table_of(profile, "clusters");
    assert_int_equal(hl_sheet_n_rows(table), 3);
    assert_string_equal(hl_sheet_text(table, 0, hl_sheet_find(table, "type")), "previous");
    assert_string_equal(hl_sheet_text(table, 2, hl_sheet_find(table, "type")), "specialist");
    hl_sheet_free(table);
    hl_profile_free(profile);
}

static void test_one_head_is_one_cluster(void **state)
{
    made_model        model    = { .n_layers = 1, .n_heads = 1, .n_sequences = 1 };
    hl_profile       *profile  = made_profile(&model);
    hl_head_clusters *clusters = NULL;

    (void)state;
    assert_ok(hl_head_clusters_new(&clusters, profile, 0));
    assert_int_equal(clusters->n_clusters, 1);
    assert_true(isnan(clusters->silhouette) && isnan(clusters->stability.mean));
    hl_head_clusters_free(clusters);
    hl_profile_free(profile);
}

/* ---------------------------------------------------------------- other tables */

static void test_extremes(void **state)
{
    made_model  model      = healthy_model();
    hl_profile *profile    = made_profile(&model);
    hl_sheet   *table      = NULL;
    double     *normalized = NULL;

    (void)state;
    assert_ok(hl_analyze(&table, profile, "extremes", &(hl_analysis_options){ .n_extremes = 4 }));
    assert_ok(hl_grid_means(&normalized, profile, HL_Q_NORMALIZED));
    assert_int_equal(hl_sort(normalized, M_LAYERS * M_HEADS), M_LAYERS * M_HEADS);
    assert_int_equal(hl_sheet_n_rows(table), 8);
    for (int i = 0; i < 4; i++) {
        assert_near(number_in(table, i, "normalized"), normalized[i], 0.0);
        assert_near(number_in(table, 4 + i, "normalized"), normalized[M_LAYERS * M_HEADS - 1 - i],
                    0.0);
    }
    assert_string_equal(hl_sheet_text(table, 0, 0), "most");
    assert_string_equal(hl_sheet_text(table, 4, 0), "least");
    hl_free(normalized);
    hl_sheet_free(table);
    hl_profile_free(profile);
}

/* Two identical heads have a similarity of 1; heads with different content share only the part that
 * is spread evenly. */
static void test_similarity(void **state)
{
    made_model model = { .n_layers = 1, .n_heads = 3, .n_sequences = 4 };

    (void)state;
    model.heads[0][0]   = (made_head){ .kind = MADE_PREVIOUS, .strength = 0.8, .norm = 0.5 };
    model.heads[0][1]   = (made_head){ .kind = MADE_SELF, .strength = 0.8 };
    model.heads[0][2]   = (made_head){ .kind = MADE_PREVIOUS, .strength = 0.8, .norm = 1.5 };
    hl_profile *profile = made_profile(&model);
    hl_sheet   *table   = table_of(profile, "similarity");
    assert_int_equal(hl_sheet_n_rows(table), 3);
    assert_near(number_in(table, 0, "a"), 0.0, 0.0);
    assert_near(number_in(table, 0, "b"), 2.0, 0.0);
    assert_near(number_in(table, 0, "similarity"), 1.0, 1e-6);
    assert_near(number_in(table, 0, "redundant"), 1.0, 0.0);
    assert_near(number_in(table, 1, "similarity"), 0.2, 1e-6);
    assert_near(number_in(table, 1, "redundant"), 0.0, 0.0);
    hl_sheet_free(table);
    hl_profile_free(profile);
}

static void test_positions_and_types(void **state)
{
    made_model  model   = { .n_layers = 1, .n_heads = 1, .n_sequences = 1 };
    hl_profile *profile = made_profile(&model);
    hl_sheet   *table   = table_of(profile, "positions");
    double      sum     = 0;

    (void)state;
    /* Positions 7 ... 14 see 8 ... 15 keys. */
    for (int n = 8; n <= 15; n++)
        sum += log(n);
    assert_near(number_in(table, 3, "from"), 7.0, 0.0);
    assert_near(number_in(table, 3, "to"), 14.0, 0.0);
    assert_near(number_in(table, 3, "rows"), 8.0, 0.0);
    assert_near(number_in(table, 3, "entropy"), sum / 8, 1e-6);
    hl_sheet_free(table);

    table = table_of(profile, "token-types");
    assert_int_equal(hl_sheet_n_rows(table), 2);
    assert_near(number_in(table, 1, "rows"), M_ROWS / 4.0, 0.0);
    hl_sheet_free(table);

    /* A uniform head gives special tokens a share that is that of their keys. */
    table       = table_of(profile, "lookback");
    double mean = 0;
    for (int row = 0; row < M_ROWS; row++) {
        if (!made_type(row))
            mean += (row / 4 + 1.0) / (row + 1.0) / (0.75 * M_ROWS);
    }
    assert_string_equal(hl_sheet_text(table, 1, 0), "prompt");
    assert_string_equal(hl_sheet_text(table, 1, 1), "special");
    assert_near(number_in(table, 1, "mean"), mean, 1e-6);
    assert_near(number_in(table, 0, "mean") + number_in(table, 1, "mean"), 1.0, 1e-6);
    hl_sheet_free(table);
    hl_profile_free(profile);
}

/* Every table of a real profile renders in all three forms, and twice the same way. */
static void test_all_tables(void **state)
{
    made_model  model   = healthy_model();
    hl_profile *profile = made_profile(&model);
    size_t      n_names = 0;

    (void)state;
    for (; hl_analysis_name(n_names) != NULL; n_names++) {
        for (int format = 0; format <= HL_SHEET_JSON; format++) {
            char *text[2] = { NULL, NULL };
            for (int time = 0; time < 2; time++) {
                hl_sheet *table = table_of(profile, hl_analysis_name(n_names));
                /* Only sparse models have an indexer. */
                assert_true(hl_sheet_n_rows(table) > 0 ||
                            strcmp(hl_analysis_name(n_names), "indexer") == 0);
                assert_ok(hl_sheet_render(&text[time], table, (hl_sheet_format)format));
                hl_sheet_free(table);
            }
            assert_string_equal(text[0], text[1]);
            hl_free(text[0]);
            hl_free(text[1]);
        }
        assert_non_null(hl_analysis_summary(n_names));
    }
    assert_int_equal(n_names, 15);
    hl_sheet *none = NULL;
    assert_fails(HL_BAD_ARGUMENT, "'nothing'", hl_analyze(&none, profile, "nothing", NULL));
    hl_profile_free(profile);
}

/* A profile without rows: all tables exist, with empty fields where nothing was measured. */
static void test_empty_profile(void **state)
{
    made_model  model   = { .n_layers = 2, .n_heads = 3, .n_sequences = 0 };
    hl_profile *profile = made_profile(&model);

    (void)state;
    for (size_t i = 0; hl_analysis_name(i) != NULL; i++) {
        char     *text  = NULL;
        hl_sheet *table = table_of(profile, hl_analysis_name(i));
        assert_ok(hl_sheet_render(&text, table, HL_SHEET_TEXT));
        hl_free(text);
        hl_sheet_free(table);
    }
    hl_profile_free(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uniform_head),
        cmocka_unit_test(test_heads_against_rows),
        cmocka_unit_test(test_layer_shape),
        cmocka_unit_test(test_shapes_in_words),
        cmocka_unit_test(test_equal_layers_are_flat),
        cmocka_unit_test(test_variance),
        cmocka_unit_test(test_head_types),
        cmocka_unit_test(test_uncertain_types),
        cmocka_unit_test(test_head_type_thresholds),
        cmocka_unit_test(test_clusters),
        cmocka_unit_test(test_one_head_is_one_cluster),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_similarity),
        cmocka_unit_test(test_positions_and_types),
        cmocka_unit_test(test_all_tables),
        cmocka_unit_test(test_empty_profile),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
