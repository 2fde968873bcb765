/* test_rope.c - rotary frequencies against values computed from the definitions. */
#include "support.h"

#include <math.h>

#include "model/config.h"

/* A model with heads of 16, which have 8 pairs. */
#define CONFIG(type, rope)                                                                         \
    "{\"model_type\": \"" type "\", \"hidden_size\": 64, \"num_attention_heads\": 4, "             \
    "\"num_hidden_layers\": 1, \"vocab_size\": 10, \"max_position_embeddings\": 256, "             \
    "\"rope_parameters\": {" rope "}}"

static void check(const char *text, int64_t n_positions, double attention_factor,
                  const double *wanted)
{
    hl_config *config = NULL;
    float      seen[HL_MAX_ROPE_PAIRS];

    assert_ok(hl_config_parse(&config, text, strlen(text), "config.json"));
    const hl_rope *rope = &config->ropes[HL_ROPE_MAIN];
    assert_int_equal(rope->n_dims, 16);
    assert_true(fabs(rope->attention_factor - attention_factor) < 1e-12);
    hl_rope_frequencies(seen, rope, n_positions);
    for (int i = 0; i < 8; i++) {
        /* The tolerance allows for several roundings to float, as in transformers. */
        if (fabs((double)seen[i] - wanted[i]) > 2e-7 * wanted[i])
            fail_msg("%s: frequency %d is %.9g, wanted %.9g", hl_rope_kind_name(rope->kind), i,
                     (double)seen[i], wanted[i]);
    }
    hl_config_free(config);
}

static const double plain[8] = { 1,    0.316227766,   0.1,   0.0316227766,
                                 0.01, 0.00316227766, 0.001, 0.000316227766 };

static void default_and_linear(void **state)
{
    double divided[8];

    (void)state;
    for (int i = 0; i < 8; i++)
        divided[i] = plain[i] / 4.0;
    check(CONFIG("llama", "\"rope_theta\": 10000"), 32, 1.0, plain);
    check(CONFIG("llama", "\"rope_theta\": 10000, \"rope_type\": \"linear\", \"factor\": 4"), 32,
          1.0, divided);
}

static void dynamic_grows_with_the_length(void **state)
{
    static const double stretched[8] = { 1,
                                         0.251273762,
                                         0.0631385036,
                                         0.0158650493,
                                         0.00398647063,
                                         0.00100169547,
                                         0.00025169979,
                                         6.32455532e-05 };
    const char         *text =
        CONFIG("llama", "\"rope_theta\": 10000, \"rope_type\": \"dynamic\", \"factor\": 4");

    (void)state;
    check(text, 200, 1.0, plain); /* a context shorter than that of training changes nothing */
    check(text, 256, 1.0, plain);
    check(text, 512, 1.0, stretched);
}

static void llama3_blends(void **state)
{
    static const double wanted[8] = { 1,
                                      0.0794030092,
                                      0.00470075387,
                                      0.000911583092,
                                      0.000176776695,
                                      3.4281022e-05,
                                      6.64786987e-06,
                                      1.28917317e-06 };

    (void)state;
    check(CONFIG("llama", "\"rope_theta\": 500000, \"rope_type\": \"llama3\", \"factor\": 8, "
                          "\"low_freq_factor\": 1, \"high_freq_factor\": 4, "
                          "\"original_max_position_embeddings\": 64"),
          32, 1.0, wanted);
}

#define YARN                                                                                       \
    "\"rope_theta\": 150000, \"rope_type\": \"yarn\", \"factor\": 32, "                            \
    "\"original_max_position_embeddings\": 4096"

static void yarn_ramps(void **state)
{
    static const double smooth[8]  = { 1,
                                       0.225418,
                                       0.0508132748,
                                       0.00679495949,
                                       0.000456483919,
                                       1.81883367e-05,
                                       4.09997848e-06,
                                       9.2420895e-07 };
    static const double rounded[8] = { 1,
                                       0.225418,
                                       0.0508132748,
                                       0.00775546606,
                                       0.000914454401,
                                       1.81883367e-05,
                                       4.09997848e-06,
                                       9.2420895e-07 };

    (void)state;
    check(CONFIG("qwen2", YARN), 32, 0.1 * log(32.0) + 1.0, rounded);
    check(CONFIG("qwen2", YARN ", \"truncate\": false"), 32, 0.1 * log(32.0) + 1.0, smooth);
    check(CONFIG("qwen2", YARN ", \"attention_factor\": 0.5"), 32, 0.5, rounded);
    check(CONFIG("qwen2", YARN ", \"mscale\": 1, \"mscale_all_dim\": 1"), 32, 1.0, rounded);
}

static void longrope_has_two_lists(void **state)
{
    const char *text = CONFIG("phi3", "\"rope_theta\": 10000, \"rope_type\": \"longrope\", "
                                      "\"short_factor\": [1, 1, 1, 1, 2, 2, 2, 2], "
                                      "\"long_factor\": [1, 2, 4, 8, 16, 32, 64, 128], "
                                      "\"original_max_position_embeddings\": 8");
    double      near[8], far[8];

    (void)state;
    for (int i = 0; i < 8; i++) {
        near[i] = plain[i] / (i < 4 ? 1.0 : 2.0);
        far[i]  = plain[i] / (double)(1 << i);
    }
    check(text, 8, sqrt(1.0 + log(32.0) / log(8.0)), near);
    check(text, 9, sqrt(1.0 + log(32.0) / log(8.0)), far);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(default_and_linear),     cmocka_unit_test(dynamic_grows_with_the_length),
        cmocka_unit_test(llama3_blends),          cmocka_unit_test(yarn_ramps),
        cmocka_unit_test(longrope_has_two_lists),
    };
    return cmocka_run_group_tests_name("rope", tests, NULL, NULL);
}
