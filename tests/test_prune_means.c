/* test_prune_means.c - the mean output of removed heads, added as a bias. */
#include "prune_support.h"

/* ------------------------------------------------------------------------------ means */

/* Returns the error of a bias that is stored in the type of the model's weights. */
static double rounding_of(const hl_model *model)
{
    switch (hl_weights_get(model->weights, HL_ROLE_ATTN_O, 0, 0)->weight.tensor->dtype) {
    case HL_DTYPE_BF16:
        return 0x1p-8;
    case HL_DTYPE_F16:
        return 0x1p-11;
    default:
        return 1e-5;
    }
}

static void check_mean(const hl_model *model, hl_prune_form form, const choice *c,
                       const float *means, const char *path)
{
    run whole = run_tokens(model, NULL, 1);

    assert_ok(hl_prune_write(NULL, model, &c->list,
                             &(hl_prune_options){ .form = form, .means = means }, path));
    hl_model *written = open_model(path);
    run       seen    = run_tokens(written, NULL, 1);
    double    error   = difference(&whole, &seen, 1);
    if (!(error < rounding_of(model)))
        fail_msg("%s, %s: off by %.2e", model->path, hl_prune_form_name(form), error);
    assert_true((written->config->biases & HL_BIAS_O) != 0);
    free(seen.values);
    free(whole.values);
    hl_model_close(written);
    if (form == HL_PRUNE_GGUF)
        unlink(path);
    else
        remove_folder(path);
}

/* Over a text of one token, the mean of a head is its output there, so the result does not
 * change. */
static void check_means(const char *from, hl_prune_form last)
{
    char          folder[64], path[128];
    hl_model     *model = open_model(from);
    const int64_t token = 5; /* the first of run_tokens */
    choice        c     = { 0 };
    float *means = calloc((size_t)(model->info.n_layers * model->info.n_heads * model->info.d_head),
                          sizeof *means);

    snprintf(folder, sizeof folder, "%s", new_folder());
    snprintf(path, sizeof path, "%s/x", folder);
    choose_ragged(&c, model);
    assert_ok(hl_head_means(means, model, &token, 1, NULL, 1));
    for (hl_prune_form form = HL_PRUNE_MASKED; form <= last; form++)
        check_mean(model, form, &c, means, path);
    run whole = run_tokens(model, NULL, 1);
    run gated = run_gated(model, &c);
    if (!(difference(&whole, &gated, 1) > 0.1)) /* zeros would have a different result */
        fail_msg("%s: zero is off by %.2e only", from, difference(&whole, &gated, 1));
    free(gated.values);
    free(whole.values);
    free(means);
    hl_model_close(model);
    remove_folder(folder);
}

static void a_mean_stands_for_the_head(void **state)
{
    (void)state;
    check_means("tests/data/families/gpt_neox", HL_PRUNE_COMPACT);
    check_means("tests/data/families/starcoder2", HL_PRUNE_GGUF);
}

/* Families that have no output biases but may have them. */
static void biases_are_added(void **state)
{
    static const char *const families[] = { "llama", "qwen3",  "qwen3_moe", "granite", "smollm3",
                                            "gemma", "gemma2", "gemma3",    "cohere",  "cohere2" };
    (void)state;

    check_means("tests/data/families/llama3", HL_PRUNE_GGUF);
    if (!path_exists(in_shared("golden/families")))
        return;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", in_shared("golden/families"), families[i]);
        check_means(path, HL_PRUNE_COMPACT);
    }
    char path[1024];
    snprintf(path, sizeof path, "%s/olmo2", in_shared("golden/families"));
    check_means(path, HL_PRUNE_MASKED);
}

static void means_need_a_bias(void **state)
{
    hl_model *model             = open_model("tests/data/families/phi3");
    choice    c                 = { 0 };
    float     means[3 * 4 * 16] = { 0 };
    (void)state;

    choose(&c, 0, 0);
    assert_fails(HL_UNSUPPORTED, "a phi3 has no output bias, and transformers would not load one",
                 hl_prune_write(NULL, model, &c.list, &(hl_prune_options){ .means = means },
                                "/tmp/headlight-never"));
    assert_fails(HL_BAD_ARGUMENT, "no tokens", hl_head_means(means, model, NULL, 0, NULL, 1));
    hl_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mean_stands_for_the_head),
        cmocka_unit_test(biases_are_added),
        cmocka_unit_test(means_need_a_bias),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
