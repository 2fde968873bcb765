/* test_agreement.c - KL divergence and top-1 agreement, against logits of transformers. */
#include "model_support.h"

#include <math.h>

#include "formats/safetensors.h"
#include "kernels/logits.h"

#define LLAMA "tests/data/families/llama3"

/* Results of transformers for a model, with all heads and with some disabled. */
typedef struct golden {
    hl_safetensors *file;
    const int64_t  *tokens; /* (B, S) */
    const float    *logits; /* (B, S, V) */
    const float    *masked;
    int64_t         B, S, V;
    float           gates[256];
} golden;

static golden open_golden(const hl_model *model, const char *folder)
{
    golden               g    = { .file = NULL };
    const hl_model_info *info = hl_model_get_info(model);

    assert_ok(hl_safetensors_open(&g.file, in_folder(folder, "expected.safetensors")));
    const hl_tensor *tokens = hl_safetensors_find(g.file, "tokens");
    const hl_tensor *logits = hl_safetensors_find(g.file, "logits");
    const hl_tensor *closed = hl_safetensors_find(g.file, "masked_heads");
    assert_int_equal(logits->dtype, HL_DTYPE_F32);
    g.tokens = tokens->data;
    g.logits = logits->data;
    g.masked = hl_safetensors_find(g.file, "masked_logits")->data;
    g.B = logits->shape[0], g.S = logits->shape[1], g.V = logits->shape[2];
    for (int64_t i = 0; i < info->n_layers * info->n_heads; i++)
        g.gates[i] = 1.0f;
    for (int64_t i = 0; i < closed->shape[0]; i++) {
        const int64_t *at                      = (const int64_t *)closed->data + 2 * i;
        g.gates[at[0] * info->n_heads + at[1]] = 0.0f;
    }
    return g;
}

static void test_golden(void **state)
{
    hl_model     *dense  = open_model(LLAMA);
    hl_model     *pruned = open_model(LLAMA);
    golden        g      = open_golden(dense, LLAMA);
    hl_agreement *a      = NULL;
    double        kl = 0.0, same = 0.0;
    (void)state;

    assert_ok(hl_model_set_gates(pruned, g.gates));
    assert_ok(hl_agreement_open(&a, pruned, dense, &(hl_agreement_options){ .n_ctx = g.S }));
    for (int64_t b = 0; b < g.B; b++) {
        assert_ok(hl_agreement_add(a, g.tokens + b * g.S, g.S));
        for (int64_t s = 0; s + 1 < g.S; s++) {
            const float *p = g.logits + (b * g.S + s) * g.V;
            const float *q = g.masked + (b * g.S + s) * g.V;
            kl += divergence_of(p, q, g.V);
            same += hl_logits_top(p, g.V) == hl_logits_top(q, g.V);
        }
    }
    hl_agreement_total total = hl_agreement_get(a);
    double             n     = (double)(g.B * (g.S - 1));
    assert_int_equal(total.n_tokens, (int64_t)n);
    assert_int_equal(total.n_windows, g.B);
    assert_true(kl / n > 1e-3);
    assert_float_equal(total.kl, kl / n, 1e-4 * kl / n);
    assert_float_equal(total.top1, same / n, 1e-12);
    hl_agreement_close(a);
    hl_safetensors_close(g.file);
    hl_model_close(pruned);
    hl_model_close(dense);
}

/* A model agrees with itself, with any windows; each prediction is counted once. */
static void test_itself(void **state)
{
    hl_model     *model = open_model(LLAMA);
    hl_agreement *a     = NULL;
    int64_t       tokens[30];
    (void)state;

    for (int64_t i = 0; i < 30; i++)
        tokens[i] = (i * 71 + 5) % 256;
    assert_ok(
        hl_agreement_open(&a, model, model, &(hl_agreement_options){ .n_ctx = 12, .stride = 5 }));
    assert_true(isnan(hl_agreement_get(a).kl));
    assert_ok(hl_agreement_add(a, tokens, 30));
    assert_ok(hl_agreement_add(a, tokens, 1)); /* a single token predicts nothing */
    assert_int_equal(hl_agreement_get(a).n_tokens, 29);
    assert_true(hl_agreement_get(a).kl == 0.0);
    assert_true(hl_agreement_get(a).top1 == 1.0);
    hl_agreement_close(a);
    hl_model_close(model);
}

static void test_refused(void **state)
{
    hl_model     *llama = open_model(LLAMA);
    hl_model     *demo  = open_model("models/demo");
    hl_agreement *a     = NULL;
    (void)state;

    assert_fails(HL_BAD_INPUT, "models/demo one of 4096", hl_agreement_open(&a, llama, demo, NULL));
    assert_null(a);
    assert_fails(
        HL_BAD_ARGUMENT, "windows of 8 tokens, stride 9",
        hl_agreement_open(&a, llama, llama, &(hl_agreement_options){ .n_ctx = 8, .stride = 9 }));
    hl_model_close(llama);
    hl_model_close(demo);
}

/* Returns the most likely token in every place, from the logits of transformers. */
static void test_top(void **state)
{
    hl_model      *model      = open_model(LLAMA);
    golden         g          = open_golden(model, LLAMA);
    hl_perplexity *perplexity = NULL;
    hl_nll         nll;
    int64_t        top[256];
    (void)state;

    assert_true(g.S <= 256);
    assert_ok(hl_perplexity_open(&perplexity, model, &(hl_perplexity_options){ .n_ctx = g.S }));
    assert_ok(hl_perplexity_add(
        &nll, perplexity, &(hl_scored_text){ .tokens = g.tokens, .n_tokens = g.S, .top = top }));
    assert_int_equal(top[0], -1);
    for (int64_t s = 1; s < g.S; s++)
        assert_int_equal(top[s], hl_logits_top(g.logits + (s - 1) * g.V, g.V));
    hl_perplexity_close(perplexity);
    hl_safetensors_close(g.file);
    hl_model_close(model);
}

static void test_speed(void **state)
{
    hl_model *model = open_model(LLAMA);
    hl_speed  speed;
    int64_t   tokens[20] = { 0 };
    (void)state;

    assert_ok(hl_measure_speed(&speed, model, tokens, 20,
                               &(hl_speed_options){ .n_decode = 4, .n_threads = 1 }));
    assert_int_equal(speed.n_prefill, 20);
    assert_int_equal(speed.n_decode, 4);
    assert_true(speed.prefill_seconds > 0.0 && speed.decode_seconds > 0.0);
    assert_int_equal(speed.cache_bytes, 24 * hl_model_get_info(model)->kv_bytes_f32);
    assert_fails(HL_BAD_ARGUMENT, "a prompt of 21 tokens, there are 20",
                 hl_measure_speed(&speed, model, tokens, 20,
                                  &(hl_speed_options){ .n_prefill = 21, .n_decode = 1 }));
    hl_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),  cmocka_unit_test(test_itself),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_top),
        cmocka_unit_test(test_speed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
