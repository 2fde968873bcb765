/* test_diagnose.c - each check on attention that has its problem, and on attention that does
 * not. */
#include "made_profile.h"

#include "analysis/diagnose.h"
#include "analysis/grid.h"

static const char *const names[HL_N_DIAGNOSES] = {
    "dead-or-broken", "entropy-collapse", "entropic-overload", "attention-locking",
    "flat-profile",   "head-redundancy",  "inactive-heads",    "sink-heads",
};

/* Checks that a problem is found exactly if the value is beyond the threshold; texts must not name
 * heads, files or models that do not exist. */
static void check_verdict(const hl_diagnosis *item)
{
    static const char *const placeholders[] = { "MODEL", "TEXT", "PROMPT", "FILE", "L5H1", " P " };

    for (size_t i = 0; i < sizeof placeholders / sizeof *placeholders; i++)
        assert_null(strstr(item->measure, placeholders[i]));
    if (item->verdict == HL_VERDICT_NOT_RUN) {
        assert_memory_equal(item->finding, "needs ", 6);
        assert_true(item->measure[0] != '\0');
        return;
    }
    if (isnan(item->value))
        return;
    bool beyond = item->below ? item->value < item->threshold : item->value > item->threshold;
    if (strcmp(item->name, "head-redundancy") == 0)
        beyond = item->value >= item->threshold;
    if (beyond != (item->verdict == HL_VERDICT_FOUND))
        fail_msg("%s: %s at %g, threshold %g", item->name, hl_verdict_name(item->verdict),
                 item->value, item->threshold);
}

static hl_diagnoses *diagnose(const made_model *model, const made_model *before,
                              const hl_thresholds *thresholds)
{
    hl_profile   *profile = made_profile(model);
    hl_profile   *earlier = before != NULL ? made_profile(before) : NULL;
    hl_diagnoses *found   = NULL;

    assert_ok(hl_diagnose(&found, profile, earlier, thresholds));
    for (int i = 0; i < HL_N_DIAGNOSES; i++)
        check_verdict(&found->items[i]);
    hl_profile_free(profile);
    hl_profile_free(earlier);
    return found;
}

static const hl_diagnosis *named(const hl_diagnoses *found, const char *name)
{
    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        if (strcmp(found->items[i].name, name) == 0)
            return &found->items[i];
    }
    fail_msg("no diagnosis %s", name);
    return NULL;
}

/* Checks that exactly these problems are found, "a b". */
static void assert_present(const hl_diagnoses *found, const char *wanted)
{
    char seen[256] = "";

    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        assert_string_equal(found->items[i].name, names[i]);
        if (found->items[i].verdict == HL_VERDICT_FOUND)
            snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%s%s",
                     seen[0] != '\0' ? " " : "", found->items[i].name);
    }
    assert_string_equal(seen, wanted);
}

static void test_healthy(void **state)
{
    made_model    model = healthy_model();
    hl_diagnoses *found = diagnose(&model, NULL, NULL);

    (void)state;
    assert_present(found, "");
    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        const hl_diagnosis *item = &found->items[i];
        assert_true(item->rule[0] != '\0' && item->mitigation[0] != '\0');
        assert_true(strcmp(item->evidence, "literature") == 0 ||
                    strcmp(item->evidence, "heuristic") == 0);
        assert_true(item->verdict == HL_VERDICT_NOT_FOUND || item->measure[0] != '\0');
        if (item->verdict == HL_VERDICT_NOT_FOUND)
            assert_false(isnan(item->value) || isnan(item->threshold));
    }
    assert_int_equal(named(found, "attention-locking")->verdict, HL_VERDICT_NOT_RUN);
    hl_diagnoses_free(found);
}

static void test_collapse(void **state)
{
    made_model model = healthy_model();

    (void)state;
    /* 25 of 48 heads attend to one key each: 10 previous, 15 content. */
    for (int i = 0; i < 25; i++)
        model.heads[i / M_HEADS][i % M_HEADS] =
            (made_head){ .kind     = i < 10 ? MADE_PREVIOUS : MADE_CONTENT,
                         .strength = 0.9999 - 1e-6 * i,
                         .norm     = 1.0 };
    hl_diagnoses       *found = diagnose(&model, NULL, NULL);
    const hl_diagnosis *item  = named(found, "entropy-collapse");
    assert_int_equal(item->verdict, HL_VERDICT_FOUND);
    assert_near(item->value, 25.0 / 48.0, 1e-12);
    assert_int_equal(item->n_heads, 25);
    assert_non_null(strstr(item->finding, "0 sink, 10 positional, 15 content"));
    assert_non_null(strstr(item->against, "10 of these"));
    hl_diagnoses_free(found);

    /* 24 heads are not more than half. */
    model.heads[3][0] = healthy_model().heads[3][0];
    found             = diagnose(&model, NULL, NULL);
    assert_int_equal(named(found, "entropy-collapse")->verdict, HL_VERDICT_NOT_FOUND);
    hl_diagnoses_free(found);
}

/* The mean falls, but every head stays above the threshold. */
static void test_fall(void **state)
{
    made_model before = healthy_model();
    made_model after  = healthy_model();

    (void)state;
    for (int i = 0; i < M_LAYERS * M_HEADS; i++) {
        made_head *head = &after.heads[i / M_HEADS][i % M_HEADS];
        head->wobble = before.heads[i / M_HEADS][i % M_HEADS].wobble = 0.01;
        if (head->kind == MADE_CONTENT)
            head->strength += 0.1;
    }
    hl_diagnoses *found = diagnose(&after, &before, NULL);
    assert_int_equal(named(found, "entropy-collapse")->verdict, HL_VERDICT_FOUND);
    assert_near(named(found, "entropy-collapse")->threshold, 4.0, 0.0);
    assert_true(named(found, "entropy-collapse")->value > 4.0);
    hl_diagnoses_free(found);

    found = diagnose(&before, &after, NULL); /* the mean rose */
    assert_int_equal(named(found, "entropy-collapse")->verdict, HL_VERDICT_NOT_FOUND);
    assert_non_null(strstr(named(found, "entropy-collapse")->finding, "rose by"));
    hl_diagnoses_free(found);

    /* Three sequences are too few for a spread; four are enough. */
    hl_level few = { .n_sequences = 3, .mean = 0.5, .median = 0.5, .sigma = 0.01 };
    hl_level now = { .n_sequences = 1, .mean = 0.4, .median = 0.4, .sigma = NAN };
    assert_true(isnan(hl_level_fall(&few, &now)));
    few.n_sequences = 4;
    assert_near(hl_level_fall(&few, &now), 10.0, 1e-9);
    few.sigma = 0.0;
    assert_true(isnan(hl_level_fall(&few, &now)));

    before.context = "128"; /* means with another context are not compared */
    found          = diagnose(&after, &before, NULL);
    assert_int_equal(named(found, "entropy-collapse")->verdict, HL_VERDICT_NOT_FOUND);
    assert_non_null(strstr(named(found, "entropy-collapse")->against, "another context"));
    hl_diagnoses_free(found);
}

static void test_overload(void **state)
{
    made_model model = healthy_model();

    (void)state;
    for (int i = 0; i < 30; i++)
        model.heads[i / M_HEADS][i % M_HEADS] = (made_head){ .kind = MADE_UNIFORM, .norm = 1.0 };
    hl_diagnoses       *found = diagnose(&model, NULL, NULL);
    const hl_diagnosis *item  = named(found, "entropic-overload");
    assert_int_equal(item->verdict, HL_VERDICT_FOUND);
    assert_true(item->value > 0.5);
    assert_non_null(strstr(item->measure, "a second profile"));
    hl_diagnoses_free(found);

    made_model random = healthy_model();
    found             = diagnose(&model, &random, NULL);
    assert_non_null(strstr(named(found, "entropic-overload")->against, "In the other profile"));
    hl_diagnoses_free(found);
}

static void test_flat(void **state)
{
    made_model model = healthy_model();

    (void)state;
    for (int l = 1; l < M_LAYERS; l++)
        memcpy(model.heads[l], model.heads[0], sizeof model.heads[0]);
    hl_diagnoses *found = diagnose(&model, NULL, NULL);
    assert_present(found, "flat-profile");
    assert_non_null(strstr(named(found, "flat-profile")->against, "Least block influence: 0.100"));
    hl_diagnoses_free(found);

    model.n_sequences = 1;
    found             = diagnose(&model, NULL, NULL);
    assert_int_equal(named(found, "flat-profile")->verdict, HL_VERDICT_NOT_RUN);
    assert_string_equal(named(found, "flat-profile")->finding,
                        "needs at least 2 windows of text; the profile has 1");
    hl_diagnoses_free(found);
}

static void test_redundancy(void **state)
{
    made_model model = healthy_model();

    (void)state;
    model.heads[2][6]         = model.heads[2][1];
    model.heads[2][6].norm    = 0.5;
    hl_diagnoses       *found = diagnose(&model, NULL, NULL);
    const hl_diagnosis *item  = named(found, "head-redundancy");
    assert_present(found, "head-redundancy");
    assert_int_equal(item->n_heads, 1); /* the weaker one */
    assert_int_equal(item->heads[0].layer, 2);
    assert_int_equal(item->heads[0].head, 6);
    assert_near(item->value, 1.0, 1e-6);
    assert_non_null(strstr(item->finding, "L2H1 and H6 (1.000)"));
    hl_diagnoses_free(found);

    /* Of three identical heads, the weakest is the weaker one in two pairs, but is listed once. */
    model.heads[2][4]      = model.heads[2][1];
    model.heads[2][4].norm = 0.25;
    found                  = diagnose(&model, NULL, NULL);
    item                   = named(found, "head-redundancy");
    assert_int_equal(item->n_heads, 2);
    assert_int_equal(item->heads[0].head + item->heads[1].head, 4 + 6);
    hl_diagnoses_free(found);
}

/* Two heads that attend to the first key are similar in that, but differ on the other keys. */
static void test_sinks_are_not_redundant(void **state)
{
    made_model model = healthy_model();

    (void)state;
    model.heads[2][1] = (made_head){ .kind = MADE_FIRST_AND_SELF, .strength = 0.97, .norm = 1.0 };
    model.heads[2][6] =
        (made_head){ .kind = MADE_FIRST_AND_PREVIOUS, .strength = 0.97, .norm = 0.5 };
    model.heads[3][0]   = (made_head){ .kind = MADE_FIRST, .strength = 1.0, .norm = 1.0 };
    model.heads[3][5]   = (made_head){ .kind = MADE_FIRST, .strength = 1.0, .norm = 0.5 };
    hl_profile *profile = made_profile(&model);
    assert_true(hl_profile_similarity(profile, 2, 1, 6) > 0.95);
    assert_near(hl_similarity_beside_first(profile, 2, 1, 6), 0.0, 0.05);
    assert_true(hl_profile_similarity(profile, 3, 0, 5) > 0.999);
    assert_near(hl_similarity_beside_first(profile, 3, 0, 5), 0.0, 0.0);
    hl_profile_free(profile);

    hl_diagnoses       *found = diagnose(&model, NULL, NULL);
    const hl_diagnosis *item  = named(found, "head-redundancy");
    assert_int_equal(item->verdict, HL_VERDICT_NOT_FOUND);
    assert_int_equal(item->n_heads, 0);
    assert_non_null(strstr(item->against,
                           "Not counted: 2 pairs similar only because both attend to the first"));
    hl_diagnoses_free(found);

    /* Sinks that attend to the same other keys are redundant. */
    model.heads[2][6].kind = MADE_FIRST_AND_SELF;
    found                  = diagnose(&model, NULL, NULL);
    item                   = named(found, "head-redundancy");
    assert_int_equal(item->verdict, HL_VERDICT_FOUND);
    assert_int_equal(item->n_heads, 1);
    assert_int_equal(item->heads[0].head, 6);
    hl_diagnoses_free(found);
}

static void test_inactive(void **state)
{
    made_model model = healthy_model();

    (void)state;
    model.heads[1][3].norm = 0.01;
    model.heads[4][0].norm = 0.02;
    hl_diagnoses *found    = diagnose(&model, NULL, NULL);
    assert_present(found, "inactive-heads");
    assert_int_equal(named(found, "inactive-heads")->n_heads, 2);
    assert_int_equal(named(found, "inactive-heads")->heads[0].layer, 1);
    hl_diagnoses_free(found);

    /* One of eight heads with norm x has 8 x / (7 + x) of its layer's mean: 0.09 and 0.11. */
    model                  = healthy_model();
    model.heads[1][3].norm = 7.0 * 0.09 / (8.0 - 0.09);
    model.heads[4][0].norm = 7.0 * 0.11 / (8.0 - 0.11);
    found                  = diagnose(&model, NULL, NULL);
    assert_int_equal(named(found, "inactive-heads")->n_heads, 1);
    assert_near(named(found, "inactive-heads")->heads[0].value, 0.09, 1e-6);
    hl_diagnoses_free(found);
}

static void test_sinks(void **state)
{
    made_model model = healthy_model();

    (void)state;
    model.heads[5][2]   = (made_head){ .kind = MADE_FIRST, .strength = 0.5, .norm = 1.0 };
    hl_diagnoses *found = diagnose(&model, NULL, NULL);
    assert_present(found, "sink-heads");
    assert_int_equal(named(found, "sink-heads")->heads[0].layer, 5);
    assert_int_equal(named(found, "sink-heads")->heads[0].head, 2);
    hl_diagnoses_free(found);

    hl_thresholds other = hl_thresholds_default();
    assert_ok(hl_threshold_set(&other, "sink-mass", 0.9));
    found = diagnose(&model, NULL, &other);
    assert_present(found, "");
    assert_non_null(strstr(named(found, "sink-heads")->rule, "0.9"));
    hl_diagnoses_free(found);
}

static void test_broken(void **state)
{
    made_model model = healthy_model();

    (void)state;
    model.heads[3][7].broken  = true;
    hl_diagnoses       *found = diagnose(&model, NULL, NULL);
    const hl_diagnosis *item  = named(found, "dead-or-broken");
    assert_present(found, "dead-or-broken");
    assert_near(item->value, 12.0 * (M_ROWS - 10), 0.0);
    assert_non_null(strstr(item->finding, "L3H7: 648 rows, the first in document 0 at token 10"));
    hl_diagnoses_free(found);
}

/* A run that has diverged: rows before the first NaN are sharp, but few. */
static void test_diverged(void **state)
{
    made_model sharp = healthy_model(), model = healthy_model();

    (void)state;
    for (int i = 0; i < M_LAYERS * M_HEADS; i++) {
        made_head *head = &sharp.heads[i / M_HEADS][i % M_HEADS];

        *head = (made_head){ .kind = MADE_PREVIOUS, .strength = 0.995 };
        model.heads[i / M_HEADS][i % M_HEADS]        = *head;
        model.heads[i / M_HEADS][i % M_HEADS].broken = true;
    }
    hl_diagnoses *found = diagnose(&sharp, NULL, NULL);
    assert_near(named(found, "entropy-collapse")->value, 1.0, 0.0);
    hl_diagnoses_free(found);

    found = diagnose(&model, NULL, NULL);
    assert_present(found, "dead-or-broken");
    assert_string_equal(found->items[0].name, "dead-or-broken");
    const hl_diagnosis *collapse = named(found, "entropy-collapse");
    assert_int_equal(collapse->verdict, HL_VERDICT_NOT_RUN);
    assert_int_equal(collapse->n_heads, 0);
    assert_non_null(strstr(collapse->finding,
                           "needs finite attention: most rows of 48 heads are NaN or infinite"));
    hl_diagnoses_free(found);

    /* Half of the heads are broken; the others are still checked. */
    for (int i = 0; i < M_LAYERS * M_HEADS; i += 2)
        model.heads[i / M_HEADS][i % M_HEADS].broken = false;
    found    = diagnose(&model, NULL, NULL);
    collapse = named(found, "entropy-collapse");
    assert_near(collapse->value, 1.0, 0.0);
    assert_non_null(strstr(collapse->finding, "24 of 24 heads"));
    assert_non_null(strstr(collapse->against, "24 heads are left out"));
    hl_diagnoses_free(found);
}

static void test_nothing_measured(void **state)
{
    made_model    model = { .n_layers = 2, .n_heads = 2 };
    hl_diagnoses *found = diagnose(&model, NULL, NULL);

    (void)state;
    for (int i = 1; i < HL_N_DIAGNOSES; i++)
        assert_int_equal(found->items[i].verdict, HL_VERDICT_NOT_RUN);
    assert_int_equal(found->items[0].verdict, HL_VERDICT_FOUND); /* dead-or-broken */
    hl_diagnoses_free(found);
    hl_diagnoses_free(NULL);
}

static void test_thresholds(void **state)
{
    hl_thresholds all = hl_thresholds_default();

    (void)state;
    assert_near(all.values[HL_T_LOCKING_WINDOW], 64.0, 0.0);
    for (size_t i = 0; hl_threshold_name(i) != NULL; i++) {
        assert_ok(hl_threshold_set(&all, hl_threshold_name(i), 7.0 + (double)i));
        assert_near(all.values[i], 7.0 + (double)i, 0.0);
    }
    assert_fails(HL_BAD_ARGUMENT, "'sink'", hl_threshold_set(&all, "sink", 1.0));
    assert_fails(HL_BAD_ARGUMENT, "sink-mass", hl_threshold_set(&all, "sink-mass", -1.0));
    assert_fails(HL_BAD_ARGUMENT, "sink-mass", hl_threshold_set(&all, "sink-mass", NAN));
}

/* -------------------------------------------------------------------- locking */

/* Makes a trace that moves for `n_free` tokens and then stays. */
static void make_trace(double *entropy, double *change, int n_tokens, int n_free)
{
    hl_random random = { 12 };

    for (int i = 0; i < n_tokens; i++) {
        entropy[i] = 0.5 + (i < n_free ? 0.2 * (uniform(&random) - 0.5) : 1e-4 * uniform(&random));
        change[i]  = i < n_free ? 0.1 + 0.3 * uniform(&random) : 0.001;
    }
}

static void test_locking(void **state)
{
    double     entropy[400], change[400];
    hl_locking found;

    (void)state;
    make_trace(entropy, change, 400, 200);
    assert_ok(hl_find_locking(&found, entropy, change, 400, NULL));
    assert_true(found.locked);
    assert_in_range(found.first, 195, 205);
    assert_true(found.change < 0.05 && found.spread < 0.01);

    for (int i = 0; i < 400; i++) /* rows were measured only sometimes */
        change[i] = i % 32 == 1 ? change[i] : NAN;
    assert_ok(hl_find_locking(&found, entropy, change, 400, NULL));
    assert_true(found.locked);
    assert_in_range(found.first, 195, 205);

    make_trace(entropy, change, 400, 400); /* never locks */
    assert_ok(hl_find_locking(&found, entropy, change, 400, NULL));
    assert_false(found.locked);
    assert_int_equal(found.n_windows, 400 - 63);

    make_trace(entropy, change, 400, 0); /* never moved */
    assert_ok(hl_find_locking(&found, entropy, change, 400, NULL));
    assert_false(found.locked);

    /* Rows stay the same, but the entropy drifts up or down: by 0.032 per window, with a spread of
     * 0.0092. */
    for (int sign = -1; sign <= 1; sign += 2) {
        make_trace(entropy, change, 400, 200);
        for (int i = 200; i < 400; i++)
            entropy[i] = 0.5 + sign * 0.0005 * (i - 200);
        assert_ok(hl_find_locking(&found, entropy, change, 400, NULL));
        assert_false(found.locked);
    }

    assert_ok(hl_find_locking(&found, entropy, change, 63, NULL)); /* too short for a window */
    assert_false(found.locked);
    assert_int_equal(found.n_windows, 0);

    hl_thresholds narrow = hl_thresholds_default();
    assert_ok(hl_threshold_set(&narrow, "locking-window", 1));
    assert_fails(HL_BAD_ARGUMENT, "at least 2",
                 hl_find_locking(&found, entropy, change, 400, &narrow));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_healthy),
        cmocka_unit_test(test_collapse),
        cmocka_unit_test(test_fall),
        cmocka_unit_test(test_overload),
        cmocka_unit_test(test_flat),
        cmocka_unit_test(test_redundancy),
        cmocka_unit_test(test_sinks_are_not_redundant),
        cmocka_unit_test(test_inactive),
        cmocka_unit_test(test_sinks),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_diverged),
        cmocka_unit_test(test_nothing_measured),
        cmocka_unit_test(test_thresholds),
        cmocka_unit_test(test_locking),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
