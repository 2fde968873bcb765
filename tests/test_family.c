/* test_family.c - the reference models: every role is found, and a model is the same from any file
 * format. */
#include "model_support.h"

#include <math.h>

#include "base/dtype.h"
#include "model/config.h"

static const char *const families[] = {
    "bert",      "bloom",      "cohere",  "cohere2", "distilbert", "falcon",      "falcon_new",
    "falcon_rw", "gemma",      "gemma2",  "gemma3",  "gpt2",       "gpt_bigcode", "gpt_neo",
    "gpt_neox",  "gpt_oss",    "gptj",    "granite", "llama",      "llama3",      "mistral",
    "mixtral",   "modernbert", "olmo2",   "opt",     "phi",        "phi3",        "qwen2",
    "qwen3",     "qwen3_moe",  "roberta", "smollm3", "stablelm",   "starcoder2",
};

enum { N_FAMILIES = sizeof families / sizeof *families };

/* ----------------------------------------------------------------- one model */

static bool is_pooler(const char *name)
{
    return strncmp(name, "pooler.", 7) == 0;
}

/* Checks that every required role exists, that every tensor has a role, and that all elements are
 * counted. */
static void check_model(const hl_model *model)
{
    const hl_config *config = model->config;
    int64_t          total  = 0;

    for (int64_t layer = -1; layer < config->n_layers; layer++) {
        for (hl_role role = 0; role < HL_N_ROLES; role++) {
            if (hl_role_is_of_layer(role) != (layer >= 0))
                continue;
            const hl_param *param = hl_weights_get(model->weights, role, layer, 0);
            if (hl_role_weight_need(role, config, layer) != HL_ROLE_REQUIRED)
                continue;
            assert_non_null(param);
            assert_int_equal(param->weight.n_rows, hl_role_rows(role, config, layer));
            if (hl_role_bias_need(role, config) == HL_ROLE_REQUIRED)
                assert_non_null(param->bias.tensor);
        }
    }
    for (size_t i = 0; i < hl_tensors_count(model->tensors); i++) {
        hl_tensor_use use = hl_weights_use(model->weights, i);
        if (use.role == HL_N_STORED_ROLES && !use.is_buffer && !is_pooler(use.tensor->name))
            fail_msg("%s: '%s' has no role", config->family, use.tensor->name);
        if (!use.is_buffer)
            total += hl_tensor_count(use.tensor);
    }
    assert_int_equal(total, model->info.n_params);
}

static void every_role_of_the_kept_models_is_found(void **state)
{
    static const char *const kept[] = { "gpt_neox", "llama3", "phi3", "starcoder2" };

    (void)state;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        hl_model *model = open_model(in_folder("tests/data/families", kept[i]));
        check_model(model);
        hl_model_close(model);
    }
}

static void every_role_of_all_reference_models_is_found(void **state)
{
    (void)state;
    if (!path_exists(in_shared("golden/families")))
        skip();
    for (int i = 0; i < N_FAMILIES; i++) {
        print_message("%s\n", families[i]);
        hl_model *model = open_model(in_folder(in_shared("golden/families"), families[i]));
        check_model(model);
        hl_model_close(model);
    }
}

/* Parameters are counted as transformers does: all elements of the files. */
static void parameters_are_counted_right(void **state)
{
    hl_model *model = open_model("tests/data/families/gpt_neox");

    (void)state;
    assert_int_equal(hl_model_get_info(model)->n_params, 133312);
    hl_model_close(model);
    model = open_model("tests/data/families/llama3");
    assert_int_equal(hl_model_get_info(model)->n_params, 127424);
    hl_model_close(model);
    /* rope_freqs is a buffer, not a parameter. */
    model = open_model("tests/data/gguf/llama3.gguf");
    assert_int_equal(hl_model_get_info(model)->n_params, 127424);
    hl_model_close(model);
}

/* --------------------------------------------------------------------- twins */

/* A converter that works in the stored type rounds 1 + w to that type. */
static float as_stored(float value, const hl_weight *weight)
{
    if (!weight->plus_one)
        return value;
    if (weight->dtype == HL_DTYPE_F16)
        return hl_f16_to_f32(hl_f32_to_f16(value));
    return weight->dtype == HL_DTYPE_BF16 ? hl_bf16_to_f32(hl_f32_to_bf16(value)) : value;
}

static void compare_weights(const hl_weight *a, const hl_weight *b, const char *what)
{
    assert_int_equal(a->tensor == NULL, b->tensor == NULL);
    if (a->tensor == NULL)
        return;
    assert_int_equal(a->n_rows, b->n_rows);
    assert_int_equal(a->n_columns, b->n_columns);
    float *left  = read_weight(a);
    float *right = read_weight(b);
    for (int64_t i = 0; i < a->n_rows * a->n_columns; i++) {
        if (as_stored(left[i], a) != as_stored(right[i], b))
            fail_msg("%s: element %lld of '%s' is %g, of '%s' %g", what, (long long)i,
                     a->tensor->name, (double)left[i], b->tensor->name, (double)right[i]);
    }
    free(left);
    free(right);
}

/* Compares all roles of both models as f32, to the bit. */
static void compare_models(const hl_model *a, const hl_model *b, const char *what)
{
    for (int64_t layer = -1; layer < a->config->n_layers; layer++) {
        for (hl_role role = 0; role < HL_N_ROLES; role++) {
            if (hl_role_is_of_layer(role) != (layer >= 0))
                continue;
            for (int64_t part = 0; part < hl_role_parts(role, a->config, layer); part++) {
                const hl_param *left  = hl_weights_get(a->weights, role, layer, part);
                const hl_param *right = hl_weights_get(b->weights, role, layer, part);
                assert_int_equal(left == NULL, right == NULL);
                if (left == NULL)
                    continue;
                compare_weights(&left->weight, &right->weight, what);
                compare_weights(&left->bias, &right->bias, what);
            }
        }
    }
}

static void compare_layers(const hl_model *a, const hl_model *b)
{
    for (int64_t i = 0; i < a->config->n_layers; i++) {
        const hl_layer_config *left  = &a->config->layers[i];
        const hl_layer_config *right = &b->config->layers[i];
        assert_int_equal(left->n_heads, right->n_heads);
        assert_int_equal(left->n_kv_heads, right->n_kv_heads);
        assert_int_equal(left->d_mlp, right->d_mlp);
        assert_int_equal(left->n_experts, right->n_experts);
        assert_int_equal(left->is_local, right->is_local);
        assert_int_equal(left->window_left, right->window_left);
        assert_int_equal(left->window_right, right->window_right);
        assert_int_equal(left->rope, right->rope);
        /* GGUF has no key for gemma2's query_pre_attn_scalar. */
        if (strcmp(a->config->family, "gemma2") != 0)
            assert_true(fabs(left->attn_scale - right->attn_scale) < 1e-6);
    }
}

/* Compares rotary frequencies, which may come from a rule or from a tensor. */
static void compare_ropes(const hl_model *a, const hl_model *b)
{
    for (int i = HL_ROPE_MAIN; i < HL_N_ROPES; i++) {
        const hl_rope *left  = &a->config->ropes[i];
        const hl_rope *right = &b->config->ropes[i];
        float          f[HL_MAX_ROPE_PAIRS], g[HL_MAX_ROPE_PAIRS];

        assert_int_equal(left->n_dims, right->n_dims);
        assert_int_equal(left->interleaved, right->interleaved);
        if (left->n_dims == 0)
            continue;
        hl_rope_frequencies(f, left, 32);
        hl_rope_frequencies(g, right, 32);
        for (int64_t pair = 0; pair < left->n_dims / 2; pair++)
            assert_true(fabs(f[pair] - g[pair]) <= 1e-6 * fabs(f[pair]));
        assert_true(fabs(left->attention_factor - right->attention_factor) < 1e-6);
    }
}

static void compare_configs(const hl_model *a, const hl_model *b)
{
    const hl_config *left  = a->config;
    const hl_config *right = b->config;

    assert_int_equal(left->n_layers, right->n_layers);
    assert_int_equal(left->d_model, right->d_model);
    assert_int_equal(left->d_head, right->d_head);
    assert_int_equal(left->d_vocab, right->d_vocab);
    assert_int_equal(left->is_encoder, right->is_encoder);
    assert_int_equal(left->position, right->position);
    assert_int_equal(left->norm, right->norm);
    assert_int_equal(left->norm_place, right->norm_place);
    assert_int_equal(left->residual, right->residual);
    assert_int_equal(left->qk_norm, right->qk_norm);
    assert_int_equal(left->activation, right->activation);
    assert_int_equal(left->gated, right->gated);
    assert_int_equal(left->biases, right->biases);
    assert_int_equal(left->sinks, right->sinks);
    assert_int_equal(left->router.score, right->router.score);
    assert_int_equal(left->router.normed, right->router.normed);
    assert_int_equal(left->router.n_groups, right->router.n_groups);
    assert_int_equal(left->n_experts_used, right->n_experts_used);
    assert_true(fabs(left->norm_eps / right->norm_eps - 1.0) < 1e-6);
    assert_true(fabs(left->embed_scale - right->embed_scale) < 1e-6);
    assert_true(fabs(left->residual_scale - right->residual_scale) < 1e-6);
    assert_true(fabs(left->logit_scale - right->logit_scale) < 1e-6);
    assert_true(left->attn_softcap == right->attn_softcap);
    assert_true(left->logit_softcap == right->logit_softcap);
    compare_layers(a, b);
    compare_ropes(a, b);
}

static void compare_files(const char *folder_path, const char *gguf_path, const char *name)
{
    hl_model *folder = open_model(folder_path);
    hl_model *gguf   = open_model(gguf_path);

    print_message("%s\n", name);
    check_model(gguf);
    compare_configs(folder, gguf);
    compare_models(folder, gguf, name);
    hl_model_close(folder);
    hl_model_close(gguf);
}

static void kept_gguf_files_equal_their_folders(void **state)
{
    (void)state;
    compare_files("tests/data/families/llama3", "tests/data/gguf/llama3.gguf", "llama3");
    compare_files("tests/data/families/starcoder2", "tests/data/gguf/starcoder2.gguf",
                  "starcoder2");
}

static void all_gguf_files_equal_their_folders(void **state)
{
    int n_compared = 0;

    (void)state;
    if (!path_exists(in_shared("golden/gguf")))
        skip();
    for (int i = 0; i < N_FAMILIES; i++) {
        char folder[256], gguf[256];
        snprintf(folder, sizeof folder, "golden/families/%s", families[i]);
        snprintf(gguf, sizeof gguf, "golden/gguf/%s.gguf", families[i]);
        if (!path_exists(in_shared(gguf)))
            continue;
        compare_files(in_shared(folder), in_shared(gguf), families[i]);
        n_compared++;
    }
    assert_int_equal(n_compared, 26);
}

/* A trained model in three formats; the GGUF file has another context, and stores the head
 * twice. */
static void stories_are_the_same_from_every_file(void **state)
{
    if (!path_exists(in_shared("models/stories260K")))
        skip();
    hl_model *folder   = open_model(in_shared("models/stories260K/derived-hf"));
    hl_model *others[] = { open_model(in_shared("models/stories260K/stories260K.bin")),
                           open_model(in_shared("models/stories260K/stories260K_v1.bin")),
                           open_model(in_shared("models/stories260K/stories260K.gguf")) };

    (void)state;
    assert_int_equal(hl_model_get_info(folder)->n_params, 260032);
    for (int i = 0; i < 3; i++) {
        compare_configs(folder, others[i]);
        compare_models(folder, others[i], others[i]->info.format);
        assert_int_equal(hl_model_get_info(others[i])->n_params,
                         i < 2 ? 260032 : 260032 + 512 * 64);
        hl_model_close(others[i]);
    }
    hl_model_close(folder);
}

/* A model without biases on q, k and v, in a family that usually has them. */
static void a_model_without_some_biases_opens(void **state)
{
    (void)state;
    if (!path_exists(in_shared("models/gpt-nano-sort")))
        skip();
    hl_model *model = open_model(in_shared("models/gpt-nano-sort/derived-hf"));
    assert_null(hl_weights_get(model->weights, HL_ROLE_ATTN_Q, 0, 0)->bias.tensor);
    assert_non_null(hl_weights_get(model->weights, HL_ROLE_ATTN_O, 0, 0)->bias.tensor);
    hl_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_role_of_the_kept_models_is_found),
        cmocka_unit_test(every_role_of_all_reference_models_is_found),
        cmocka_unit_test(parameters_are_counted_right),
        cmocka_unit_test(kept_gguf_files_equal_their_folders),
        cmocka_unit_test(all_gguf_files_equal_their_folders),
        cmocka_unit_test(stories_are_the_same_from_every_file),
        cmocka_unit_test(a_model_without_some_biases_opens),
    };
    return cmocka_run_group_tests_name("family", tests, NULL, NULL);
}
