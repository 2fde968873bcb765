/* test_diagnose.c - each check on attention that has its problem, and on attention that does
 * not. */
#include "made_profile.h"

#include "analysis/diagnose.h"
#include "analysis/grid.h"

static const char *const names[HL_N_DIAGNOSES] = {
    "dead-or-broken", "entropy-collapse",     "entropic-overload", "attention-locking",
    "flat-profile",   "head-redundancy",      "inactive-heads",    "sink-heads",
    "head-drift",     "previous-token-heads", "alike-heads",       "alike-sinks",
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
    /* What is usual and the causes speak of released models and of commands, not of this one. */
    assert_true(item->unit[0] != '\0');
    assert_true(item->verdict != HL_VERDICT_FOUND || item->kind == HL_CHECK_OBSERVATION ||
                item->n_causes >= 2);
    for (int64_t i = 0; i < item->n_causes; i++)
        assert_true(item->causes[i].name[0] != '\0' && item->causes[i].command[0] != '\0');
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

/* These alarms are found, "a b", and no others. */
static void assert_present(const hl_diagnoses *found, const char *wanted)
{
    char seen[256] = "";

    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        assert_string_equal(found->items[i].name, names[i]);
        assert_string_equal(hl_diagnosis_name((size_t)i), names[i]);
        assert_int_equal(hl_diagnosis_kind((size_t)i), found->items[i].kind);
        if (found->items[i].verdict == HL_VERDICT_FOUND && found->items[i].kind == HL_CHECK_ALARM)
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
        assert_true(item->rule[0] != '\0');
        assert_true((item->mitigation[0] != '\0') == (item->kind == HL_CHECK_ALARM));
        assert_int_equal(item->n_causes, 0);
        assert_true(strcmp(item->evidence, "literature") == 0 ||
                    strcmp(item->evidence, "heuristic") == 0);
        assert_true(item->verdict != HL_VERDICT_NOT_RUN || item->measure[0] != '\0');
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

/* What `after` is found to be since `before`. */
static hl_verdict verdict_since(const made_model *after, const made_model *before,
                                const hl_thresholds *thresholds)
{
    hl_diagnoses *found   = diagnose(after, before, thresholds);
    hl_verdict    verdict = named(found, "entropy-collapse")->verdict;

    hl_diagnoses_free(found);
    return verdict;
}

/* A fall of the mean that leaves every head above the threshold: the loss says whether it is learning. */
static void test_fall(void **state)
{
    made_model before = healthy_model(), after = healthy_model();

    (void)state;
    for (int i = 0; i < M_LAYERS * M_HEADS; i++) {
        made_head *head = &after.heads[i / M_HEADS][i % M_HEADS];
        head->wobble = before.heads[i / M_HEADS][i % M_HEADS].wobble = 0.01;
        if (head->kind == MADE_CONTENT)
            head->strength = fmin(head->strength + 0.3, 0.97 - 1e-4 * i);
    }
    before.loss               = 4.0;
    after.loss                = 4.5;
    hl_diagnoses       *found = diagnose(&after, &before, NULL);
    const hl_diagnosis *item  = named(found, "entropy-collapse");
    assert_int_equal(item->verdict, HL_VERDICT_FOUND);
    assert_string_equal(item->unit, "fall of the mean normalized entropy");
    assert_near(item->threshold, 0.1, 0.0);
    assert_true(item->value > 0.1 && item->value < 0.4 && item->errors > 4.0);
    assert_int_equal(item->n_heads, 0);
    assert_non_null(strstr(item->finding, "and the loss rose by 0.500 nats"));
    /* A cause with its evidence: the loss rose, as with a learning rate that is too high. */
    assert_string_equal(item->causes[2].name, "learning rate too high");
    assert_non_null(strstr(item->causes[2].supports, "The loss rose by 0.500 nats"));
    assert_string_equal(item->causes[2].against, "");
    hl_diagnoses_free(found);

    after.loss = 3.5; /* learning, from random weights on */
    found      = diagnose(&after, &before, NULL);
    item       = named(found, "entropy-collapse");
    assert_int_equal(item->verdict, HL_VERDICT_NOT_FOUND);
    assert_non_null(strstr(item->against, "is learning"));
    hl_diagnoses_free(found);

    /* Where the losses are not known a fall is not enough, nor are heads that became one-hot. */
    before.loss = after.loss = 0.0;
    assert_int_equal(verdict_since(&after, &before, NULL), HL_VERDICT_NOT_FOUND);
    for (int i = 0; i < 12; i++)
        after.heads[i / M_HEADS][i % M_HEADS] =
            (made_head){ .kind = MADE_CONTENT, .strength = 0.9999 - 1e-6 * i };
    assert_int_equal(verdict_since(&after, &before, NULL), HL_VERDICT_FOUND);
    hl_thresholds other = hl_thresholds_default();
    assert_ok(hl_threshold_set(&other, "collapse-new", 0.3)); /* 12 of 48 heads collapsed */
    assert_int_equal(verdict_since(&after, &before, &other), HL_VERDICT_NOT_FOUND);
    other = hl_thresholds_default();
    assert_ok(hl_threshold_set(&other, "collapse-drop", 0.6));
    assert_int_equal(verdict_since(&after, &before, &other), HL_VERDICT_NOT_FOUND);
    other = hl_thresholds_default();
    assert_ok(hl_threshold_set(&other, "collapse-errors", 1e6));
    assert_int_equal(verdict_since(&after, &before, &other), HL_VERDICT_NOT_FOUND);

    found = diagnose(&before, &after, NULL); /* the entropy rose */
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

/* Every part of the rule decides: sure, large, and not learning; or newly one-hot. */
static void test_fall_rule(void **state)
{
    const hl_fall fell = { .drop = 0.2, .errors = 10, .loss_rise = 0.5, .newly_sharp = 0 };
    hl_fall       fall = fell;

    (void)state;
    assert_true(hl_fall_is_collapse(&fall, NULL));
    fall.drop   = 0.09; /* too small to matter, however sure */
    fall.errors = 11578;
    assert_false(hl_fall_is_collapse(&fall, NULL));
    fall.newly_sharp = 0.25;
    assert_true(hl_fall_is_collapse(&fall, NULL));
    fall        = fell;
    fall.errors = 3.9; /* not sure */
    assert_false(hl_fall_is_collapse(&fall, NULL));
    fall           = fell;
    fall.loss_rise = -0.001; /* learning */
    assert_false(hl_fall_is_collapse(&fall, NULL));
    fall.newly_sharp = 1.0;
    assert_false(hl_fall_is_collapse(&fall, NULL));
    fall.loss_rise = NAN;
    assert_true(hl_fall_is_collapse(&fall, NULL));
}

/* One head is replaced, and the loss rises. */
static void test_drift(void **state)
{
    made_model before = healthy_model(), after = healthy_model();

    (void)state;
    before.loss               = 4.0;
    after.loss                = 4.06;
    after.heads[2][3]         = (made_head){ .kind = MADE_UNIFORM, .norm = 1.0 };
    hl_diagnoses       *found = diagnose(&after, &before, NULL);
    const hl_diagnosis *item  = named(found, "head-drift");
    assert_present(found, "head-drift");
    assert_int_equal(item->n_heads, 1);
    assert_int_equal(item->heads[0].layer, 2);
    assert_int_equal(item->heads[0].head, 3);
    assert_string_equal(item->causes[0].name, "one damaged or replaced head");
    assert_non_null(strstr(item->causes[0].supports, "1 of 48 heads"));
    hl_diagnoses_free(found);

    after.loss = 4.04; /* too little to matter */
    found      = diagnose(&after, &before, NULL);
    assert_int_equal(named(found, "head-drift")->verdict, HL_VERDICT_NOT_FOUND);
    hl_diagnoses_free(found);

    after.loss           = 5.0;
    after.first_sequence = 1; /* another text */
    found                = diagnose(&after, &before, NULL);
    assert_int_equal(named(found, "head-drift")->verdict, HL_VERDICT_NOT_RUN);
    hl_diagnoses_free(found);

    found = diagnose(&before, NULL, NULL);
    assert_int_equal(named(found, "head-drift")->verdict, HL_VERDICT_NOT_RUN);
    hl_diagnoses_free(found);
}

/* Vanishing gradients are recognized by the layers' gradients, wherever they are a possible cause. */
static void test_gradients(void **state)
{
    made_model    model                   = healthy_model();
    double        even[M_LAYERS][M_HEADS] = { { 0 } }, gone[M_LAYERS][M_HEADS] = { { 0 } };
    hl_diagnoses *found = NULL;

    (void)state;
    for (int i = 0; i < M_LAYERS * M_HEADS; i++) {
        model.heads[i / M_HEADS][i % M_HEADS] = (made_head){ .kind = MADE_UNIFORM, .norm = 1.0 };
        even[i / M_HEADS][i % M_HEADS]        = 0.1 + 0.01 * i;
        gone[i / M_HEADS][i % M_HEADS]        = pow(10.0, i / M_HEADS - M_LAYERS);
    }
    hl_profile *profile = made_profile(&model);
    for (int vanished = 0; vanished < 2; vanished++) {
        assert_ok(hl_diagnose(&found, profile, NULL, NULL));
        const hl_cause *cause = &named(found, "entropic-overload")->causes[1];
        assert_string_equal(cause->name, "vanishing gradients");
        assert_ok(
            hl_diagnose_gradients(found, "keys", vanished ? gone[0] : even[0], M_LAYERS, M_HEADS));
        const char *words = vanished ? "range from 1e-06 (layer 0) to 0.1." : "(layer 0) to 0.5";
        assert_non_null(strstr(vanished ? cause->supports : cause->against, words));
        assert_null(strstr(vanished ? cause->against : cause->supports, "Gradient norms"));
        hl_diagnoses_free(found);
    }
    assert_ok(hl_diagnose(&found, profile, NULL, NULL));
    double none[4] = { NAN, NAN, NAN, NAN };
    assert_fails(HL_BAD_ARGUMENT, "are NaN or infinite",
                 hl_diagnose_gradients(found, "keys", none, 2, 2));
    hl_diagnoses_free(found);
    hl_profile_free(profile);
}

/* Overfitting is recognized by the gap between the training text and another one. */
static void test_training(void **state)
{
    made_model sharp = healthy_model(), training = healthy_model();

    (void)state;
    for (int i = 0; i < M_LAYERS * M_HEADS; i++)
        sharp.heads[i / M_HEADS][i % M_HEADS] =
            (made_head){ .kind = MADE_CONTENT, .strength = 0.9999 - 1e-6 * i };
    sharp.loss            = 5.0;
    training.loss         = 2.0;
    hl_profile   *profile = made_profile(&sharp), *text = made_profile(&training);
    hl_diagnoses *found = NULL;
    for (int side = 0; side < 2; side++) {
        assert_ok(hl_diagnose(&found, profile, NULL, NULL));
        const hl_cause *cause = &named(found, "entropy-collapse")->causes[0];
        assert_string_equal(cause->name, "overfitting");
        assert_string_equal(cause->supports, "");
        assert_ok(hl_diagnose_training(found, profile, text));
        assert_non_null(strstr(side == 0 ? cause->supports : cause->against, " a gap of "));
        assert_string_equal(side == 0 ? cause->against : cause->supports, "");
        hl_diagnoses_free(found);
        hl_profile_free(text);
        training.loss = 4.9;
        text          = made_profile(&training);
    }
    hl_profile_free(text);

    training.hash = 77;
    text          = made_profile(&training);
    assert_ok(hl_diagnose(&found, profile, NULL, NULL));
    assert_fails(HL_BAD_INPUT, "another model", hl_diagnose_training(found, profile, text));
    hl_profile_free(text);
    training.hash = 0;
    training.loss = 0;
    text          = made_profile(&training);
    assert_fails(HL_BAD_INPUT, "no loss", hl_diagnose_training(found, profile, text));
    hl_diagnoses_free(found);
    hl_profile_free(text);
    hl_profile_free(profile);
}

static void test_overload(void **state)
{
    made_model model = healthy_model();

    (void)state;
    for (int i = 0; i < 44; i++)
        model.heads[i / M_HEADS][i % M_HEADS] = (made_head){ .kind = MADE_UNIFORM, .norm = 1.0 };
    hl_diagnoses       *found = diagnose(&model, NULL, NULL);
    const hl_diagnosis *item  = named(found, "entropic-overload");
    assert_int_equal(item->verdict, HL_VERDICT_FOUND);
    assert_true(item->value > 0.9);
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
                        "needs at least 4 windows of text; the profile has 1");
    hl_diagnoses_free(found);
}

/* A range that is significant and does not matter is flat; one that matters and is not sure is not. */
static void test_flat_by_effect(void **state)
{
    made_model    model  = healthy_model();
    hl_thresholds limits = hl_thresholds_default();

    (void)state;
    for (int l = 0; l < M_LAYERS; l++) {
        for (int h = 0; h < M_HEADS; h++)
            model.heads[l][h] = (made_head){ .kind     = h < 4 ? MADE_UNIFORM : MADE_LOCAL,
                                             .strength = 0.5 + 0.002 * l,
                                             .wobble   = 1e-5 };
    }
    hl_diagnoses       *found = diagnose(&model, NULL, NULL);
    const hl_diagnosis *item  = named(found, "flat-profile");
    assert_int_equal(item->verdict, HL_VERDICT_FOUND);
    assert_true(item->value > 0.0005 && item->value < 0.01);
    assert_true(item->errors > 100.0); /* hundreds of standard errors do not make it matter */
    hl_diagnoses_free(found);

    /* The same range is found with a lower threshold, unless it is within its error. */
    assert_ok(hl_threshold_set(&limits, "flat-range", 0.0001));
    found = diagnose(&model, NULL, &limits);
    assert_int_equal(named(found, "flat-profile")->verdict, HL_VERDICT_NOT_FOUND);
    hl_diagnoses_free(found);
    assert_ok(hl_threshold_set(&limits, "flat-errors", 1e5));
    found = diagnose(&model, NULL, &limits);
    assert_int_equal(named(found, "flat-profile")->verdict, HL_VERDICT_NOT_RUN);
    assert_non_null(strstr(named(found, "flat-profile")->finding, "needs more text"));
    hl_diagnoses_free(found);
}

static void test_alike(void **state)
{
    made_model model = healthy_model();

    (void)state;
    model.heads[2][6]         = model.heads[2][1];
    model.heads[2][6].norm    = 0.5;
    hl_diagnoses       *found = diagnose(&model, NULL, NULL);
    const hl_diagnosis *item  = named(found, "alike-heads");
    assert_present(found, ""); /* one pair is nothing to be alarmed at */
    assert_int_equal(item->verdict, HL_VERDICT_FOUND);
    assert_int_equal(item->n_heads, 1); /* the weaker one */
    assert_int_equal(item->heads[0].layer, 2);
    assert_int_equal(item->heads[0].head, 6);
    assert_near(item->heads[0].value, 1.0, 1e-6);
    assert_near(item->value, 1.0 / 48.0, 1e-12);
    assert_non_null(strstr(item->finding, "L2H1 and H6 (1.000)"));
    hl_diagnoses_free(found);

    /* Of three identical heads, the weakest is the weaker one in two pairs, but is listed once. */
    model.heads[2][4]      = model.heads[2][1];
    model.heads[2][4].norm = 0.25;
    found                  = diagnose(&model, NULL, NULL);
    item                   = named(found, "alike-heads");
    assert_int_equal(item->n_heads, 2);
    assert_int_equal(item->heads[0].head + item->heads[1].head, 4 + 6);
    hl_diagnoses_free(found);
}

/* Four groups of twins in each layer are half of the heads, five alike and two pairs are more. */
static void test_redundancy(void **state)
{
    made_model model = healthy_model();

    (void)state;
    for (int l = 0; l < M_LAYERS; l++) {
        for (int h = 4; h < M_HEADS; h++)
            model.heads[l][h] = model.heads[l][h - 4];
    }
    hl_diagnoses *found = diagnose(&model, NULL, NULL);
    assert_present(found, "");
    assert_near(named(found, "head-redundancy")->value, 0.5, 1e-12);
    hl_diagnoses_free(found);

    model.heads[3][1] = model.heads[3][0];
    model.heads[3][5] = model.heads[3][0];
    found             = diagnose(&model, NULL, NULL);
    assert_present(found, "head-redundancy");
    assert_near(named(found, "head-redundancy")->value, 25.0 / 48.0, 1e-12);
    hl_diagnoses_free(found);
}

/* Two heads that rest on the first key are alike in that, and look elsewhere with the rest. */
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
    const hl_diagnosis *item  = named(found, "alike-heads");
    assert_int_equal(item->verdict, HL_VERDICT_NOT_FOUND);
    assert_int_equal(item->n_heads, 0);
    item = named(found, "alike-sinks");
    assert_int_equal(item->verdict, HL_VERDICT_FOUND);
    assert_int_equal(item->n_heads, 2);
    assert_non_null(strstr(item->finding, "L2H1 and H6"));
    hl_diagnoses_free(found);

    /* Sinks that attend to the same other keys are redundant. */
    model.heads[2][6].kind = MADE_FIRST_AND_SELF;
    found                  = diagnose(&model, NULL, NULL);
    item                   = named(found, "alike-heads");
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

/* Observed, with what is usual, and no alarm. */
static void test_sinks(void **state)
{
    made_model model = healthy_model();

    (void)state;
    model.heads[5][2]         = (made_head){ .kind = MADE_FIRST, .strength = 0.5, .norm = 1.0 };
    hl_diagnoses       *found = diagnose(&model, NULL, NULL);
    const hl_diagnosis *item  = named(found, "sink-heads");
    assert_present(found, "");
    assert_int_equal(item->verdict, HL_VERDICT_FOUND);
    assert_int_equal(item->kind, HL_CHECK_OBSERVATION);
    assert_near(item->value, 1.0 / 48.0, 1e-12);
    assert_int_equal(item->heads[0].layer, 5);
    assert_int_equal(item->heads[0].head, 2);
    assert_int_equal(item->n_causes, 0);
    assert_non_null(strstr(item->usual, "released decoders: "));
    assert_non_null(strstr(item->usual, "SmolLM2-135M 0.5"));
    /* The healthy model has heads that look at the previous token, and says how many. */
    item = named(found, "previous-token-heads");
    assert_int_equal(item->verdict, HL_VERDICT_FOUND);
    assert_near(item->value, 6.0 / 48.0, 1e-12);
    hl_diagnoses_free(found);

    hl_thresholds other = hl_thresholds_default();
    assert_ok(hl_threshold_set(&other, "sink-mass", 0.9));
    assert_ok(hl_threshold_set(&other, "previous-mass", 0.99));
    found = diagnose(&model, NULL, &other);
    assert_int_equal(named(found, "sink-heads")->verdict, HL_VERDICT_NOT_FOUND);
    assert_int_equal(named(found, "previous-token-heads")->verdict, HL_VERDICT_NOT_FOUND);
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

/* Heads' entropies: free, then with a period, with noise and with a drift as the context grows. */
static void make_rows(float *rows, int n_tokens, int n_values, int n_free, int period, double noise,
                      double drift)
{
    for (int t = 0; t < n_tokens; t++) {
        uint64_t place = t < n_free ? (uint64_t)t : (uint64_t)(n_free + (t - n_free) % period);

        for (int i = 0; i < n_values; i++)
            rows[t * n_values + i] =
                (float)(0.3 + 0.4 * made_noise(place, (uint64_t)i, 5) +
                        noise * made_noise((uint64_t)t, (uint64_t)i, 6) + drift * t);
    }
}

static void test_row_loops(void **state)
{
    enum { N = 400, VALUES = 12 };
    static float rows[N * VALUES];
    hl_row_loop  found;

    (void)state;
    for (int period = 2; period <= HL_LOOP_MAX_PERIOD; period++) {
        make_rows(rows, N, VALUES, 150, period, 0.01, 1e-5);
        assert_ok(hl_find_row_loop(&found, rows, N, VALUES, NULL));
        assert_int_equal(found.period, period);
        assert_in_range(found.first, 150 + period - 16, 150 + period + 8);
        assert_true(found.change < 0.02 && found.step > 0.08);
    }
    /* Free text; a smooth drift; rows that do not change; and a loop under too much noise. */
    make_rows(rows, N, VALUES, N, 1, 0.0, 0.0);
    assert_ok(hl_find_row_loop(&found, rows, N, VALUES, NULL));
    assert_int_equal(found.period, 0);
    assert_true(found.change > 0.05 && found.first == -1);
    make_rows(rows, N, VALUES, 0, 1, 0.0, 1e-4);
    assert_ok(hl_find_row_loop(&found, rows, N, VALUES, NULL));
    assert_int_equal(found.period, 0);
    make_rows(rows, N, VALUES, 0, 1, 1e-4, 0.0);
    assert_ok(hl_find_row_loop(&found, rows, N, VALUES, NULL));
    assert_int_equal(found.period, 0);
    make_rows(rows, N, VALUES, 150, 7, 0.2, 0.0);
    assert_ok(hl_find_row_loop(&found, rows, N, VALUES, NULL));
    assert_int_equal(found.period, 0);
    /* Too few tokens say nothing; missing heads are passed over. */
    make_rows(rows, N, VALUES, 0, 7, 0.0, 0.0);
    assert_ok(hl_find_row_loop(&found, rows, 127, VALUES, NULL));
    assert_true(found.period == 0 && isnan(found.change));
    for (int t = 0; t < N; t++)
        rows[t * VALUES + 3] = NAN;
    assert_ok(hl_find_row_loop(&found, rows, 128, VALUES, NULL));
    assert_int_equal(found.period, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_healthy),
        cmocka_unit_test(test_collapse),
        cmocka_unit_test(test_fall),
        cmocka_unit_test(test_overload),
        cmocka_unit_test(test_flat),
        cmocka_unit_test(test_fall_rule),
        cmocka_unit_test(test_drift),
        cmocka_unit_test(test_training),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_flat_by_effect),
        cmocka_unit_test(test_alike),
        cmocka_unit_test(test_redundancy),
        cmocka_unit_test(test_sinks_are_not_redundant),
        cmocka_unit_test(test_inactive),
        cmocka_unit_test(test_sinks),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_diverged),
        cmocka_unit_test(test_nothing_measured),
        cmocka_unit_test(test_thresholds),
        cmocka_unit_test(test_locking),
        cmocka_unit_test(test_row_loops),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
