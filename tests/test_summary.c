/* test_summary.c - the three sentences about a profile: each must say what was planted, and name the
 * heads, layers and checks that show it. */
#include "made_profile.h"

#include "analysis/diagnose.h"

/* Plants heads of one kind in a whole layer; a higher strength is more focused. */
static void plant_layer(made_model *model, int layer, made_kind kind, double strength)
{
    for (int head = 0; head < M_HEADS; head++)
        model->heads[layer][head] =
            (made_head){ .kind = kind, .strength = strength, .wobble = 0.02, .norm = 1.0 };
}

static made_model layered(const double strengths[M_LAYERS])
{
    made_model model = healthy_model();

    for (int layer = 0; layer < M_LAYERS; layer++)
        plant_layer(&model, layer, MADE_CONTENT, strengths[layer]);
    return model;
}

/* Summarizes a model; release with hl_summary_free. */
static hl_summary *summary_of(const made_model *model)
{
    hl_profile *profile = made_profile(model);
    hl_summary *summary = NULL;

    assert_ok(hl_summary_new(&summary, profile, NULL));
    assert_int_equal(summary->n_sentences, 3);
    hl_profile_free(profile);
    return summary;
}

/* Whether a sentence contains this. */
static bool says(const hl_summary *summary, int64_t sentence, const char *wanted)
{
    char *text = NULL;

    assert_ok(hl_summary_sentence(&text, summary, sentence));
    bool found = strstr(text, wanted) != NULL;
    if (!found)
        print_message("'%s' is not in: %s\n", wanted, text);
    hl_free(text);
    return found;
}

/* Returns the text of the only part that is shown by this; "": there is none. */
static const char *shown_by(const hl_summary *summary, const char *evidence)
{
    const char *text = "";

    for (int64_t i = 0; i < summary->n_parts; i++) {
        if (strcmp(summary->parts[i].shows, evidence) != 0)
            continue;
        assert_string_equal(text, "");
        text = summary->parts[i].text;
    }
    return text;
}

static void test_layers(void **state)
{
    /* The lowest two are neighbors and close; the next is far. */
    made_model  model   = layered((double[]){ 0.1, 0.4, 0.9, 0.88, 0.4, 0.3 });
    hl_summary *summary = summary_of(&model);

    (void)state;
    assert_string_equal(shown_by(summary, "L2-L3"), "Layers 2–3 are the most focused");
    assert_string_equal(shown_by(summary, "L0"), "layer 0");
    hl_summary_free(summary);

    /* Layer 5 is as low as layer 2: a range from 1 to 2 would claim too much. */
    model   = layered((double[]){ 0.1, 0.86, 0.9, 0.4, 0.4, 0.89 });
    summary = summary_of(&model);
    assert_string_equal(shown_by(summary, "L2"), "Layer 2 is the most focused");
    hl_summary_free(summary);

    model   = layered((double[]){ 0.5, 0.5, 0.5, 0.5, 0.5, 0.5 });
    summary = summary_of(&model);
    assert_string_equal(shown_by(summary, "L0-L5"), "All layers are about equally focused");
    hl_summary_free(summary);
}

static void test_heads(void **state)
{
    made_model model = layered((double[]){ 0.1, 0.4, 0.6, 0.5, 0.4, 0.3 });

    (void)state;
    model.heads[4][5] =
        (made_head){ .kind = MADE_PREVIOUS, .strength = 0.97, .wobble = 0.01, .norm = 1.0 };
    hl_summary *summary = summary_of(&model);
    assert_string_equal(shown_by(summary, "L4H5"), "L4H5 is the most focused head");
    assert_true(
        says(summary, 1, " and looks back: 97% of its attention is on the previous token."));
    hl_summary_free(summary);

    model.heads[1][7].induction = 0.71;
    summary                     = summary_of(&model);
    assert_string_equal(shown_by(summary, "L1H7"), "L1H7 copies");
    assert_true(says(summary, 1, "(previous, normalized entropy 0."));
    assert_true(says(summary, 1, "71% of its attention is on what followed the last occurrence"));
    hl_summary_free(summary);

    /* 18 of 48 heads rest on the first token: that is said instead of the most focused head. */
    for (int i = 0; i < 18; i++)
        model.heads[i % 3 + 3][i / 3 < 5 ? i / 3 : 6] =
            (made_head){ .kind = MADE_FIRST, .strength = i == 7 ? 0.93 : 0.8, .norm = 1.0 };
    summary = summary_of(&model);
    assert_string_equal(shown_by(summary, "type sink"), "18 of 48 heads rest on the first token");
    assert_true(says(summary, 1, ", most of all L4H2 with 9"));
    assert_string_equal(shown_by(summary, "L4H2"), "L4H2");
    hl_summary_free(summary);
}

static void test_checks(void **state)
{
    made_model  model   = healthy_model();
    hl_summary *summary = summary_of(&model);

    (void)state;
    assert_string_equal(shown_by(summary, "checks"), "No check found a problem");
    assert_true(says(summary, 2, ": 6 passed, 2 not run."));
    hl_summary_free(summary);

    for (int layer = 0; layer < M_LAYERS; layer++)
        plant_layer(&model, layer, MADE_CONTENT, 0.9999);
    model.heads[2][1].norm = 1e-6;
    summary                = summary_of(&model);
    assert_string_equal(shown_by(summary, "entropy-collapse"), "entropy-collapse");
    assert_string_equal(shown_by(summary, "inactive-heads"), "inactive-heads");
    assert_true(says(summary, 2, " checks found a problem: "));
    hl_summary_free(summary);
}

/* A profile without rows has nothing to say of layers and heads; the check that says so is named. */
static void test_nothing(void **state)
{
    made_model  model   = { .n_layers = 2, .n_heads = 2, .hash = 7 };
    hl_profile *profile = made_profile(&model);
    hl_summary *summary = NULL;

    (void)state;
    assert_ok(hl_summary_new(&summary, profile, NULL));
    assert_true(says(summary, 0, "No row of attention was measured."));
    assert_string_equal(shown_by(summary, "dead-or-broken"), "dead-or-broken");
    hl_summary_free(summary);
    hl_profile_free(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_checks),
        cmocka_unit_test(test_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
