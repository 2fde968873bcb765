/* test_config.c - config.json: old and new spellings, rules of families, invalid files. */
#include "support.h"

#include <math.h>

#include "model/config.h"
#include "model/family.h"

/* A small llama.  JSON forbids duplicate keys, so the base lacks the keys that tests set. */
#define SIZES                                                                                      \
    "\"hidden_size\": 64, \"num_attention_heads\": 4, \"num_hidden_layers\": 4, "                  \
    "\"vocab_size\": 100, \"intermediate_size\": 128, \"max_position_embeddings\": 256"
#define MODEL(type, more) "{\"model_type\": \"" type "\", " SIZES more "}"

static hl_config *parse(const char *text)
{
    hl_config *config = NULL;
    assert_ok(hl_config_parse(&config, text, strlen(text), "config.json"));
    return config;
}

static void refuse(const char *text, hl_status wanted, const char *fragment)
{
    hl_config *config = (hl_config *)&config;
    hl_status  status = hl_config_parse(&config, text, strlen(text), "config.json");

    if (status != wanted)
        fail_msg("%s: %s (%s)", text, hl_status_name(status), hl_error_message());
    assert_null(config);
    assert_fails(wanted, fragment, status);
    assert_fails(wanted, "config.json: ", status);
}

/* ------------------------------------------------------------------ families */

/* The descriptions of the 34 reference configurations. */
static const struct {
    const char   *file;
    const char   *family;
    int64_t       n_kv_heads, d_head, d_mlp;
    hl_norm_kind  norm;
    hl_norm_place place;
    hl_residual   residual;
    hl_position   position;
    hl_activation activation;
    bool          gated, tied;
    int           n_local; /* number of layers with a window */
} references[] = {
#define LN  HL_NORM_LAYER
#define RMS HL_NORM_RMS
#define SEQ HL_RESIDUAL_SEQUENTIAL
#define PAR HL_RESIDUAL_PARALLEL
#define ONE HL_RESIDUAL_PARALLEL_SHARED
#define TAB HL_POSITION_LEARNED
#define ROT HL_POSITION_ROPE
    { "bert", "bert", 4, 16, 128, LN, HL_NORM_POST, SEQ, TAB, HL_ACTIVATION_GELU, 0, 1, 0 },
    { "bloom", "bloom", 4, 16, 256, LN, HL_NORM_PRE, SEQ, HL_POSITION_ALIBI,
      HL_ACTIVATION_GELU_TANH, 0, 1, 0 },
    { "cohere", "cohere", 2, 16, 128, LN, HL_NORM_PRE, ONE, ROT, HL_ACTIVATION_SILU, 1, 1, 0 },
    { "cohere2", "cohere2", 2, 16, 128, LN, HL_NORM_PRE, ONE, ROT, HL_ACTIVATION_SILU, 1, 1, 2 },
    { "distilbert", "distilbert", 4, 16, 128, LN, HL_NORM_POST, SEQ, TAB, HL_ACTIVATION_GELU, 0, 1,
      0 },
    { "falcon", "falcon", 1, 16, 256, LN, HL_NORM_PRE, ONE, ROT, HL_ACTIVATION_GELU, 0, 1, 0 },
    { "falcon_new", "falcon", 2, 16, 256, LN, HL_NORM_PRE, PAR, ROT, HL_ACTIVATION_GELU, 0, 1, 0 },
    { "falcon_rw", "falcon", 16, 4, 256, LN, HL_NORM_PRE, SEQ, HL_POSITION_ALIBI_FALCON,
      HL_ACTIVATION_GELU, 0, 1, 0 },
    { "gemma", "gemma", 2, 32, 128, RMS, HL_NORM_PRE, SEQ, ROT, HL_ACTIVATION_GELU_TANH, 1, 1, 0 },
    { "gemma2", "gemma2", 2, 32, 128, RMS, HL_NORM_SANDWICH, SEQ, ROT, HL_ACTIVATION_GELU_TANH, 1,
      1, 2 },
    { "gemma3", "gemma3", 2, 32, 128, RMS, HL_NORM_SANDWICH, SEQ, ROT, HL_ACTIVATION_GELU_TANH, 1,
      1, 2 },
    { "gpt2", "gpt2", 4, 16, 256, LN, HL_NORM_PRE, SEQ, TAB, HL_ACTIVATION_GELU_TANH, 0, 1, 0 },
    { "gpt_bigcode", "gpt_bigcode", 1, 16, 128, LN, HL_NORM_PRE, SEQ, TAB, HL_ACTIVATION_GELU_TANH,
      0, 1, 0 },
    { "gpt_neo", "gpt_neo", 4, 16, 128, LN, HL_NORM_PRE, SEQ, TAB, HL_ACTIVATION_GELU_TANH, 0, 1,
      1 },
    { "gpt_neox", "gpt_neox", 4, 16, 128, LN, HL_NORM_PRE, PAR, ROT, HL_ACTIVATION_GELU, 0, 0, 0 },
    { "gpt_oss", "gpt_oss", 2, 32, 128, RMS, HL_NORM_PRE, SEQ, ROT, HL_ACTIVATION_SWIGLU_CLAMPED, 1,
      0, 2 },
    { "gptj", "gptj", 4, 16, 256, LN, HL_NORM_PRE, ONE, ROT, HL_ACTIVATION_GELU_TANH, 0, 0, 0 },
    { "granite", "granite", 2, 16, 128, RMS, HL_NORM_PRE, SEQ, ROT, HL_ACTIVATION_SILU, 1, 0, 0 },
    { "llama", "llama", 2, 16, 128, RMS, HL_NORM_PRE, SEQ, ROT, HL_ACTIVATION_SILU, 1, 0, 0 },
    { "llama3", "llama", 2, 16, 128, RMS, HL_NORM_PRE, SEQ, ROT, HL_ACTIVATION_SILU, 1, 1, 0 },
    { "mistral", "mistral", 2, 16, 128, RMS, HL_NORM_PRE, SEQ, ROT, HL_ACTIVATION_SILU, 1, 0, 3 },
    { "mixtral", "mixtral", 2, 16, 128, RMS, HL_NORM_PRE, SEQ, ROT, HL_ACTIVATION_SILU, 1, 0, 0 },
    { "modernbert", "modernbert", 4, 16, 128, LN, HL_NORM_PRE, SEQ, ROT, HL_ACTIVATION_GELU, 1, 1,
      1 },
    { "olmo2", "olmo2", 2, 16, 128, RMS, HL_NORM_BRANCH, SEQ, ROT, HL_ACTIVATION_SILU, 1, 0, 0 },
    { "opt", "opt", 4, 16, 128, LN, HL_NORM_PRE, SEQ, TAB, HL_ACTIVATION_RELU, 0, 1, 0 },
    { "phi", "phi", 4, 16, 128, LN, HL_NORM_PRE, ONE, ROT, HL_ACTIVATION_GELU_TANH, 0, 0, 0 },
    { "phi3", "phi3", 2, 16, 128, RMS, HL_NORM_PRE, SEQ, ROT, HL_ACTIVATION_SILU, 1, 0, 0 },
    { "qwen2", "qwen2", 2, 16, 128, RMS, HL_NORM_PRE, SEQ, ROT, HL_ACTIVATION_SILU, 1, 1, 0 },
    { "qwen3", "qwen3", 2, 32, 128, RMS, HL_NORM_PRE, SEQ, ROT, HL_ACTIVATION_SILU, 1, 0, 0 },
    { "qwen3_moe", "qwen3_moe", 2, 32, 128, RMS, HL_NORM_PRE, SEQ, ROT, HL_ACTIVATION_SILU, 1, 0,
      0 },
    { "roberta", "roberta", 4, 16, 128, LN, HL_NORM_POST, SEQ, TAB, HL_ACTIVATION_GELU, 0, 1, 0 },
    { "smollm3", "smollm3", 2, 16, 128, RMS, HL_NORM_PRE, SEQ, ROT, HL_ACTIVATION_SILU, 1, 1, 0 },
    { "stablelm", "stablelm", 2, 16, 128, LN, HL_NORM_PRE, SEQ, ROT, HL_ACTIVATION_SILU, 1, 0, 0 },
    { "starcoder2", "starcoder2", 2, 16, 128, LN, HL_NORM_PRE, SEQ, ROT, HL_ACTIVATION_GELU_TANH, 0,
      1, 0 },
};

static hl_config *parse_file(const char *name)
{
    char       path[256];
    size_t     n_bytes = 0;
    hl_config *config  = NULL;

    snprintf(path, sizeof path, "tests/data/configs/%s.json", name);
    char *text = read_file(path, &n_bytes);
    assert_ok(hl_config_parse(&config, text, n_bytes, path));
    free(text);
    return config;
}

static void reference_configurations_come_out_right(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof references / sizeof *references; i++) {
        hl_config *config  = parse_file(references[i].file);
        int        n_local = 0;

        print_message("%s\n", references[i].file);
        assert_string_equal(config->family, references[i].family);
        assert_int_equal(config->n_layers, 3);
        assert_int_equal(config->d_model, 64);
        assert_int_equal(config->d_vocab, 256);
        assert_int_equal(config->n_kv_heads, references[i].n_kv_heads);
        assert_int_equal(config->d_head, references[i].d_head);
        assert_int_equal(config->d_mlp, references[i].d_mlp);
        assert_int_equal(config->norm, references[i].norm);
        assert_int_equal(config->norm_place, references[i].place);
        assert_int_equal(config->residual, references[i].residual);
        assert_int_equal(config->position, references[i].position);
        assert_int_equal(config->activation, references[i].activation);
        assert_int_equal(config->gated, references[i].gated);
        assert_int_equal(config->tied, references[i].tied);
        for (int64_t layer = 0; layer < config->n_layers; layer++)
            n_local += config->layers[layer].is_local;
        assert_int_equal(n_local, references[i].n_local);
        hl_config_free(config);
    }
}

static void numbers_of_single_families_come_out_right(void **state)
{
    hl_config *config;

    (void)state;
    config = parse_file("gemma2");
    assert_true(config->attn_softcap == 50.0 && config->logit_softcap == 30.0);
    assert_true(fabs(config->layers[0].attn_scale - 1.0 / sqrt(24.0)) < 1e-15);
    assert_true(config->embed_scale == 8.0);
    assert_int_equal(config->layers[0].window_left, 11);
    hl_config_free(config);

    config = parse_file("granite");
    assert_true(config->embed_scale == 2.0 && config->residual_scale == 0.7);
    assert_true(config->layers[2].attn_scale == 0.2 && config->logit_scale == 1.0 / 3.0);
    hl_config_free(config);

    config = parse_file("gpt_neo");
    assert_true(config->layers[0].attn_scale == 1.0);
    assert_true(!config->layers[0].is_local && config->layers[1].is_local);
    hl_config_free(config);

    config = parse_file("roberta");
    assert_int_equal(config->n_ctx, 128);
    assert_int_equal(config->position_offset, 2);
    hl_config_free(config);

    config = parse_file("modernbert");
    assert_int_equal(config->layers[1].window_left, 6);
    assert_int_equal(config->layers[1].window_right, 6);
    assert_true(config->ropes[config->layers[1].rope].base == 10000.0);
    assert_true(config->ropes[config->layers[0].rope].base == 160000.0);
    hl_config_free(config);

    config = parse_file("gpt_oss");
    assert_true(config->sinks && config->activation_limit == 7.0 && !config->mxfp4);
    assert_true(config->ropes[HL_ROPE_MAIN].untruncated);
    assert_true(fabs(config->ropes[HL_ROPE_MAIN].attention_factor - 1.3465735902799727) < 1e-15);
    hl_config_free(config);

    config = parse_file("cohere2");
    assert_int_equal(config->layers[1].rope, HL_ROPE_NONE);
    assert_true(config->ropes[HL_ROPE_MAIN].interleaved && config->logit_scale == 0.25);
    hl_config_free(config);

    config = parse_file("gptj");
    assert_int_equal(config->ropes[HL_ROPE_MAIN].n_dims, 8);
    hl_config_free(config);
    config = parse_file("stablelm");
    assert_int_equal(config->ropes[HL_ROPE_MAIN].n_dims, 4);
    assert_int_equal(config->biases, HL_BIAS_QKV | HL_BIAS_NORM);
    hl_config_free(config);
}

/* ----------------------------------------------------------------- spellings */

static void old_spellings_are_read(void **state)
{
    hl_config *config;

    (void)state;
    config = parse("{\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_head\": 4, \"n_layer\": 2, "
                   "\"n_ctx\": 32, \"vocab_size\": 10, \"torch_dtype\": \"float16\"}");
    assert_int_equal(config->d_mlp, 256);
    assert_int_equal(config->n_ctx, 32);
    hl_config_free(config);

    config = parse(MODEL("llama", ", \"rope_theta\": 5e5, \"rope_scaling\": {\"type\": \"linear\", "
                                  "\"factor\": 4}"));
    assert_int_equal(config->ropes[HL_ROPE_MAIN].kind, HL_ROPE_LINEAR);
    assert_true(config->ropes[HL_ROPE_MAIN].base == 5e5);
    assert_true(config->ropes[HL_ROPE_MAIN].factor == 4.0);
    hl_config_free(config);

    config = parse(MODEL("gpt_neox", ", \"rotary_pct\": 0.5, \"rotary_emb_base\": 20000, "
                                     "\"use_parallel_residual\": false"));
    assert_int_equal(config->ropes[HL_ROPE_MAIN].n_dims, 8);
    assert_true(config->ropes[HL_ROPE_MAIN].base == 20000.0);
    assert_int_equal(config->residual, HL_RESIDUAL_SEQUENTIAL);
    hl_config_free(config);

    config =
        parse("{\"model_type\": \"RefinedWeb\", \"n_embed\": 64, \"n_head\": 8, \"n_head_kv\": 2, "
              "\"new_decoder_architecture\": true, \"n_layer\": 2, \"vocab_size\": 10}");
    assert_string_equal(config->family, "falcon");
    assert_int_equal(config->n_kv_heads, 2);
    assert_int_equal(config->residual, HL_RESIDUAL_PARALLEL);
    hl_config_free(config);

    config = parse(MODEL("gemma", ", \"hidden_act\": \"gelu\""));
    assert_int_equal(config->activation, HL_ACTIVATION_GELU_TANH);
    hl_config_free(config);
    config = parse(MODEL("gemma", ", \"hidden_activation\": \"gelu\""));
    assert_int_equal(config->activation, HL_ACTIVATION_GELU);
    hl_config_free(config);
}

/* As in google/gemma-3-4b-it: values equal to the class's defaults are left out. */
static void nested_configurations_are_read(void **state)
{
    hl_config *config = parse(
        "{\"architectures\": [\"Gemma3ForConditionalGeneration\"], \"eos_token_id\": [1, 106], "
        "\"model_type\": \"gemma3\", \"vision_config\": {\"hidden_size\": 1152}, "
        "\"text_config\": {\"hidden_size\": 2560, \"intermediate_size\": 10240, "
        "\"model_type\": \"gemma3_text\", \"num_hidden_layers\": 34, \"rope_scaling\": "
        "{\"factor\": 8.0, \"rope_type\": \"linear\"}, \"sliding_window\": 1024}}");

    (void)state;
    assert_string_equal(config->family, "gemma3");
    assert_int_equal(config->d_model, 2560);
    assert_int_equal(config->n_heads, 8);
    assert_int_equal(config->n_kv_heads, 4);
    assert_int_equal(config->d_head, 256);
    assert_int_equal(config->d_vocab, 262208);
    assert_int_equal(config->generation.n_eos_ids, 2);
    assert_true(config->layers[0].is_local && !config->layers[5].is_local);
    assert_int_equal(config->layers[5].rope, HL_ROPE_MAIN);
    assert_int_equal(config->layers[4].rope, HL_ROPE_LOCAL);
    assert_int_equal(config->ropes[HL_ROPE_MAIN].kind, HL_ROPE_LINEAR);
    assert_int_equal(config->ropes[HL_ROPE_LOCAL].kind, HL_ROPE_DEFAULT);
    hl_config_free(config);
}

static void windows_follow_their_rules(void **state)
{
    hl_config *config;

    (void)state;
    /* null means none; a missing key means the class's default, 4096. */
    config = parse(MODEL("mistral", ", \"sliding_window\": null"));
    assert_false(config->layers[0].is_local);
    hl_config_free(config);
    config = parse(MODEL("mistral", ""));
    assert_int_equal(config->layers[0].window_left, 4095);
    hl_config_free(config);

    config = parse(MODEL("qwen2", ", \"use_sliding_window\": true, \"sliding_window\": 16, "
                                  "\"max_window_layers\": 3"));
    assert_true(!config->layers[2].is_local && config->layers[3].is_local);
    hl_config_free(config);
    config = parse(MODEL("qwen2", ", \"sliding_window\": 16, \"max_window_layers\": 3"));
    assert_false(config->layers[3].is_local);
    hl_config_free(config);

    config = parse(MODEL("smollm3", ", \"use_sliding_window\": true, \"sliding_window\": 16"));
    assert_true(config->layers[3].is_local && !config->layers[2].is_local);
    assert_int_equal(config->layers[3].rope, HL_ROPE_NONE);
    hl_config_free(config);

    config = parse(MODEL("gemma2", ", \"attn_logit_softcapping\": null"));
    assert_true(config->attn_softcap == 0.0 && config->logit_softcap == 30.0);
    assert_true(config->layers[2].is_local && !config->layers[3].is_local);
    hl_config_free(config);
}

static void layers_may_differ(void **state)
{
    hl_config *config;

    (void)state;
    config = parse(MODEL("llama", ", \"per_layer_config\": {\"01\": {\"num_attention_heads\": 2, "
                                  "\"num_key_value_heads\": 1}, \"3\": {\"skip\": [\"attention\", "
                                  "\"mlp\"]}}"));
    assert_int_equal(config->layers[0].n_heads, 4);
    assert_int_equal(config->layers[1].n_heads, 2);
    assert_int_equal(config->layers[1].n_kv_heads, 1);
    assert_int_equal(config->layers[3].n_heads, 0);
    assert_int_equal(config->layers[3].d_mlp, 0);
    hl_config_free(config);

    config = parse(
        "{\"model_type\": \"nemotron-nas\", \"hidden_size\": 768, \"num_attention_heads\": 8, "
        "\"num_hidden_layers\": 2, \"vocab_size\": 10, \"block_configs\": ["
        "{\"attention\": {\"n_heads_in_group\": 4}, \"ffn\": {\"ffn_mult\": 1.5}},"
        "{\"attention\": {\"no_op\": true, \"n_heads_in_group\": null}, \"ffn\": {\"no_op\": "
        "true}}]}");
    assert_string_equal(config->family, "deci");
    assert_int_equal(config->layers[0].n_kv_heads, 2);
    assert_int_equal(config->layers[0].d_mlp, 768);
    assert_int_equal(config->layers[1].n_heads, 0);
    assert_int_equal(config->layers[1].d_mlp, 0);
    hl_config_free(config);

    config = parse(MODEL("qwen3_moe", ", \"mlp_only_layers\": [1], \"decoder_sparse_step\": 1, "
                                      "\"num_experts\": 4, \"num_experts_per_tok\": 2, "
                                      "\"moe_intermediate_size\": 32"));
    assert_int_equal(config->layers[0].n_experts, 4);
    assert_int_equal(config->layers[0].d_mlp, 32);
    assert_int_equal(config->layers[1].n_experts, 0);
    assert_int_equal(config->layers[1].d_mlp, 128);
    assert_false(config->router.normed);
    hl_config_free(config);
}

static void variants_of_families_are_read(void **state)
{
    hl_config *config;

    (void)state;
    config = parse(MODEL("opt", ", \"do_layer_norm_before\": false, \"word_embed_proj_dim\": 32"));
    assert_int_equal(config->norm_place, HL_NORM_POST);
    assert_true(config->no_final_norm && config->d_embed == 32);
    hl_config_free(config);

    config = parse(MODEL("gpt2", ", \"scale_attn_by_inverse_layer_idx\": true"));
    assert_true(config->layers[3].attn_scale == 0.25 / 4.0);
    hl_config_free(config);
    config = parse(MODEL("gpt_bigcode", ", \"multi_query\": false, \"num_key_value_heads\": 1"));
    assert_int_equal(config->n_kv_heads, 4);
    hl_config_free(config);
    config = parse(MODEL("stablelm", ", \"qk_layernorm\": true, \"use_parallel_residual\": true"));
    assert_int_equal(config->qk_norm, HL_HEAD_NORM_EACH);
    assert_int_equal(config->residual, HL_RESIDUAL_PARALLEL_SHARED);
    hl_config_free(config);
    config = parse(MODEL("falcon", ", \"new_decoder_architecture\": true, \"num_kv_heads\": 2, "
                                   "\"num_ln_in_parallel_attn\": 1"));
    assert_int_equal(config->residual, HL_RESIDUAL_PARALLEL_SHARED);
    assert_int_equal(config->n_kv_heads, 2);
    hl_config_free(config);
}

static void generation_configurations_override(void **state)
{
    hl_config  *config = parse(MODEL("llama", ", \"eos_token_id\": 2, \"pad_token_id\": -1"));
    const char *text =
        "{\"eos_token_id\": [128001, 128009], \"bos_token_id\": 128000, \"do_sample\": "
        "true, \"temperature\": 0.6, \"top_p\": 0.9, \"top_k\": 40}";

    (void)state;
    assert_int_equal(config->generation.eos_ids[0], 2);
    assert_int_equal(config->generation.bos_id, -1);
    assert_int_equal(config->generation.pad_id, -1);
    assert_ok(hl_config_parse_generation(config, text, strlen(text), "generation_config.json"));
    assert_int_equal(config->generation.n_eos_ids, 2);
    assert_int_equal(config->generation.eos_ids[1], 128009);
    assert_int_equal(config->generation.bos_id, 128000);
    assert_true(config->generation.do_sample && config->generation.temperature == 0.6);
    assert_int_equal(config->generation.top_k, 40);
    assert_fails(HL_BAD_INPUT, "'eos_token_id'",
                 hl_config_parse_generation(config, "{\"eos_token_id\": \"x\"}", 21, "g.json"));
    assert_fails(HL_BAD_INPUT, "not a JSON object",
                 hl_config_parse_generation(config, "[]", 2, "g.json"));
    hl_config_free(config);
}

/* ----------------------------------------------------------------- bad files */

static void unknown_families_are_told_the_nearest(void **state)
{
    (void)state;
    refuse("{\"model_type\": \"rwkv7\"}", HL_UNSUPPORTED, "model_type 'rwkv7'");
    refuse("{\"model_type\": \"rwkv7\"}", HL_UNSUPPORTED, "knows.  doc/families.md lists all");
    refuse("{\"model_type\": \"starcoder\"}", HL_UNSUPPORTED, "; the nearest is 'starcoder2'.");
    refuse("{\"model_type\": \"gpt_neo_y\"}", HL_UNSUPPORTED, "; the nearest is 'gpt_neo");
    refuse("{\"hidden_size\": 64}", HL_BAD_INPUT, "'model_type' is missing");
    refuse("{\"model_type\": 7}", HL_BAD_INPUT, "'model_type' is an integer, wanted a string");
    refuse("[1]", HL_BAD_INPUT, "not a JSON object");
    refuse("{", HL_BAD_INPUT, "JSON line 1");
}

static void missing_and_wrong_values_are_named(void **state)
{
    (void)state;
    refuse("{\"model_type\": \"llama\"}", HL_BAD_INPUT, "'num_hidden_layers|n_layer");
    refuse("{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 64, "
           "\"num_attention_heads\": 4}",
           HL_BAD_INPUT, "'vocab_size' is missing, which a model of family llama needs");
    refuse("{\"model_type\": \"llama\", \"num_hidden_layers\": \"2\"}", HL_BAD_INPUT,
           "'num_hidden_layers' is a string, wanted an integer");
    refuse("{\"model_type\": \"llama\", \"num_hidden_layers\": -1}", HL_BAD_INPUT,
           "'num_hidden_layers' is -1, wanted 1 to 1024");
    refuse("{\"model_type\": \"llama\", \"hidden_size\": 1000000000000}", HL_BAD_INPUT,
           "'hidden_size' is 1000000000000, wanted 1 to 1048576");
    refuse("{\"model_type\": \"llama\", \"hidden_size\": 64.5}", HL_BAD_INPUT,
           "'hidden_size' is a number with a fraction");
    refuse(MODEL("llama", ", \"head_dim\": 600"), HL_BAD_INPUT,
           "'head_dim' is 600, wanted 1 to 576");
    refuse(MODEL("llama", ", \"tie_word_embeddings\": 1"), HL_BAD_INPUT,
           "'tie_word_embeddings' is an integer, wanted a boolean");
    refuse(MODEL("llama", ", \"hidden_act\": \"mish\""), HL_UNSUPPORTED, "the activation 'mish'");
    refuse(MODEL("llama", ", \"rms_norm_eps\": -1e-5"), HL_BAD_INPUT, "epsilon is -1e-05");
    refuse(MODEL("llama", ", \"eos_token_id\": {}"), HL_BAD_INPUT, "'eos_token_id'");
}

static void sizes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    refuse("{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 65, "
           "\"vocab_size\": 9, \"num_attention_heads\": 4}",
           HL_BAD_INPUT, "a width of 65 is not divisible by 4 heads");
    refuse(MODEL("llama", ", \"num_key_value_heads\": 3"), HL_BAD_INPUT,
           "layer 0 has 4 heads, not divisible by its 3 KV heads");
    refuse(MODEL("llama", ", \"num_key_value_heads\": 8"), HL_BAD_INPUT,
           "layer 0 has 4 heads and 8 KV heads");
    refuse(MODEL("llama", ", \"head_dim\": 15"), HL_BAD_INPUT, "rope turns 15 of 15 dimensions");
    refuse("{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 1024, "
           "\"vocab_size\": 9, \"num_attention_heads\": 1}",
           HL_LIMIT, "heads of 1024 dimensions, at most 576");
    refuse(MODEL("mixtral", ", \"num_local_experts\": 2, \"num_experts_per_tok\": 3"), HL_BAD_INPUT,
           "a token uses 3 experts of 2");
    refuse(MODEL("glm4_moe", ", \"n_routed_experts\": 0"), HL_BAD_INPUT,
           "'n_routed_experts' is 0, wanted 1 to 4096");
    refuse(MODEL("glm4_moe", ", \"n_routed_experts\": 10, \"n_group\": 4, \"topk_group\": 1"),
           HL_BAD_INPUT, "10 experts are not divisible into 4 groups");
    refuse(MODEL("glm4_moe", ", \"n_group\": 4, \"topk_group\": 5"), HL_BAD_INPUT,
           "a token uses 5 groups of experts, wanted 1 to 4");
    refuse(MODEL("glm4_moe", ", \"n_routed_experts\": 16, \"n_group\": 8, \"topk_group\": 2"),
           HL_BAD_INPUT, "8 experts per token, and 2 groups have 4");
    refuse(MODEL("glm4_moe", ", \"n_shared_experts\": 4096, \"moe_intermediate_size\": 1048576"),
           HL_BAD_INPUT, "a shared expert of 4294967296, at most 1048576");
    refuse(MODEL("glm4_moe", ", \"routed_scaling_factor\": -1"), HL_BAD_INPUT,
           "the scale of the experts' weights is -1");
    refuse(MODEL("dbrx", ", \"ffn_config\": {\"moe_normalize_expert_weights\": 2}"), HL_UNSUPPORTED,
           "'moe_normalize_expert_weights' is 2, wanted 1 or null");
    refuse(MODEL("gpt_neo", ", \"attention_types\": [[[\"global\"], 3]]"), HL_BAD_INPUT,
           "'attention_types' covers 3 layers, wanted 4");
    refuse(MODEL("gemma2", ", \"layer_types\": [\"full_attention\"]"), HL_BAD_INPUT,
           "'layer_types' has 1 entries, wanted 4");
    refuse(MODEL("qwen3", ", \"layer_types\": [\"full_attention\", \"linear_attention\", "
                          "\"full_attention\", \"full_attention\"]"),
           HL_UNSUPPORTED, "'layer_types' [1] is 'linear_attention'");
    refuse(MODEL("llama", ", \"per_layer_config\": {\"7\": {}}"), HL_BAD_INPUT,
           "names layer '7', wanted 0 to 3");
    refuse(MODEL("smollm3", ", \"no_rope_layers\": [1, 0]"), HL_BAD_INPUT,
           "'no_rope_layers' has 2 entries, wanted 4");
    refuse(MODEL("granite", ", \"logits_scaling\": 0"), HL_BAD_INPUT,
           "'logits_scaling' is 0, wanted more than 0");
    refuse(MODEL("roberta", ", \"pad_token_id\": 300"), HL_BAD_INPUT,
           "'max_position_embeddings' is 256, wanted more than 'pad_token_id' + 1 = 301");
}

static void bad_rope_parameters_are_refused(void **state)
{
    (void)state;
    refuse(MODEL("llama", ", \"rope_scaling\": {\"rope_type\": \"spiral\"}"), HL_UNSUPPORTED,
           "the rope type 'spiral' is not one of default, linear");
    refuse(MODEL("llama", ", \"rope_scaling\": {\"rope_type\": \"factors\"}"), HL_UNSUPPORTED,
           "the rope type 'factors'");
    refuse(MODEL("llama", ", \"rope_theta\": 0.5"), HL_BAD_INPUT,
           "'rope_theta' is 0.5, wanted more than 1");
    refuse(MODEL("llama", ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": -2}"),
           HL_BAD_INPUT, "'factor' is -2");
    refuse(MODEL("llama", ", \"rope_scaling\": 3"), HL_BAD_INPUT,
           "the rope parameters are not an object");
    refuse(MODEL("llama", ", \"partial_rotary_factor\": 2"), HL_BAD_INPUT,
           "'partial_rotary_factor' is 2");
    refuse(MODEL("phi3", ", \"rope_scaling\": {\"type\": \"su\", \"short_factor\": [1, 1], "
                         "\"long_factor\": [1]}"),
           HL_BAD_INPUT, "'short_factor' has 2 entries, 'long_factor' 1");
    refuse(MODEL("phi3", ", \"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1, 1], "
                         "\"long_factor\": [1, 1]}"),
           HL_BAD_INPUT, "2 frequency factors, wanted 8");
    refuse(MODEL("llama", ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, "
                          "\"low_freq_factor\": 4, \"high_freq_factor\": 4}"),
           HL_BAD_INPUT, "'high_freq_factor' is 4, wanted more than 'low_freq_factor'");
}

static void quantized_weights_are_refused_by_name(void **state)
{
    static const char *const methods[] = { "gptq", "awq", "bitsandbytes", "fp8",
                                           "compressed-tensors" };

    (void)state;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 MODEL("llama", ", \"quantization_config\": {\"quant_method\": \"%s\"}"),
                 methods[i]);
        refuse(text, HL_UNSUPPORTED, methods[i]);
        refuse(text, HL_UNSUPPORTED, "convert");
    }
    refuse(MODEL("llama", ", \"quantization_config\": {\"load_in_8bit\": true}"), HL_UNSUPPORTED,
           "bitsandbytes");
    hl_config *config = parse(MODEL("gpt_oss", ", \"num_local_experts\": 4, \"head_dim\": 16, "
                                               "\"quantization_config\": {\"quant_method\": "
                                               "\"mxfp4\"}"));
    assert_true(config->mxfp4);
    hl_config_free(config);
}

#define LATENT_OF(latent, rope)                                                                    \
    ", \"kv_lora_rank\": " latent ", \"qk_rope_head_dim\": " rope                                  \
    ", \"qk_nope_head_dim\": 8, \"v_head_dim\": 8"
#define LATENT LATENT_OF("32", "8")
#define GEMMA4                                                                                     \
    ", \"head_dim\": 8, \"layer_types\": [\"sliding_attention\", \"full_attention\", "             \
    "\"sliding_attention\", \"full_attention\"]"

static void hostile_latents_and_layers_are_refused(void **state)
{
    (void)state;
    refuse(MODEL("deepseek_v3", ""), HL_BAD_INPUT, "'kv_lora_rank' is missing");
    refuse(MODEL("deepseek_v3", LATENT_OF("576", "8")), HL_LIMIT,
           "latent keys of 576 and 8 dimensions, at most 576 together");
    refuse(MODEL("deepseek_v3", LATENT_OF("32", "7")), HL_BAD_INPUT,
           "rope turns 7 of 8 dimensions");
    refuse(MODEL("deepseek_v3", LATENT ", \"per_layer_config\": {\"1\": {\"head_dim\": 4}}"),
           HL_BAD_INPUT, "layer 1 has 4 KV heads of 4 dimensions, wanted 4 of 8");
    refuse(MODEL("deepseek_v2", LATENT ", \"topk_method\": \"noaux\""), HL_UNSUPPORTED,
           "'topk_method' is 'noaux', wanted greedy or group_limited_greedy");
    refuse(MODEL("deepseek_v32", LATENT ", \"q_lora_rank\": 16, \"index_head_dim\": 4"),
           HL_BAD_INPUT, "an indexer with 64 heads of 4 dimensions, from queries of rank 16");
    refuse(MODEL("deepseek_v32", LATENT ", \"index_topk\": 0"), HL_BAD_INPUT, "'index_topk' is 0");
    refuse(MODEL("gemma4_text", GEMMA4 ", \"num_kv_shared_layers\": 4"), HL_BAD_INPUT,
           "4 of 4 layers use the keys of others");
    refuse(MODEL("gemma4_text", GEMMA4 ", \"num_kv_shared_layers\": 3"), HL_BAD_INPUT,
           "layer 1 has no earlier layer of its kind with keys");
    refuse(MODEL("gemma4_text", GEMMA4 ", \"num_kv_shared_layers\": 2, \"per_layer_config\": "
                                       "{\"2\": {\"num_key_value_heads\": 1}}"),
           HL_BAD_INPUT, "layer 2 has 1 KV heads of 8 dimensions and uses those of layer 0");
    refuse(MODEL("gemma4_text", GEMMA4 ", \"hidden_size_per_layer_input\": 4, "
                                       "\"vocab_size_per_layer_input\": 3"),
           HL_BAD_INPUT, "'vocab_size_per_layer_input' is 3");
    refuse(MODEL("gemma3n_text", GEMMA4 ", \"altup_num_inputs\": 9"), HL_BAD_INPUT,
           "'altup_num_inputs' is 9, wanted 2 to 8");
    refuse(MODEL("gemma3n_text", GEMMA4 ", \"altup_active_idx\": 1"), HL_UNSUPPORTED,
           "layers run on stream 1 ('altup_active_idx'), supported is 0");
    refuse(MODEL("gemma3n_text", GEMMA4 ", \"laurel_rank\": 0"), HL_BAD_INPUT,
           "'laurel_rank' is 0");
    refuse(MODEL("gemma3n_text", GEMMA4 ", \"activation_sparsity_pattern\": [0.5, 1, 0, 0]"),
           HL_BAD_INPUT, "'activation_sparsity_pattern' [1] is 1, wanted 0 to less than 1");
    refuse(MODEL("gemma3n_text", GEMMA4 ", \"activation_sparsity_pattern\": [0.5]"), HL_BAD_INPUT,
           "'activation_sparsity_pattern' has 1 entries");
    refuse(MODEL("gemma3n_text", GEMMA4 ", \"num_kv_shared_layers\": 3"), HL_BAD_INPUT,
           "layer 1 has no earlier layer of its kind with keys");
    refuse(MODEL("llama4_text", ", \"moe_layers\": [4]"), HL_BAD_INPUT,
           "'moe_layers' [0] is not a layer, 0 to 3");
    refuse(MODEL("phimoe", ", \"router_jitter_noise\": -1"), HL_BAD_INPUT,
           "'router_jitter_noise' is -1, wanted 0 or more");
    refuse(MODEL("phimoe", ", \"num_experts_per_tok\": 3"), HL_UNSUPPORTED,
           "this router chooses 2 experts, not 3");
}

static void families_are_found_by_every_name(void **state)
{
    const hl_family *family = NULL;

    (void)state;
    assert_ptr_equal(hl_family_named("deepseek_v3"), &hl_family_deepseek_v3);
    assert_ok(hl_family_of_model_type(&family, "xlm-roberta", "x"));
    assert_ptr_equal(family, &hl_family_roberta);
    assert_ok(hl_family_of_architecture(&family, "command-r", "x"));
    assert_ptr_equal(family, &hl_family_cohere);
    assert_fails(HL_UNSUPPORTED, "; the nearest is 'gpt-oss'",
                 hl_family_of_architecture(&family, "gpt-os", "x"));
    assert_fails(HL_UNSUPPORTED, "doc/families.md lists all",
                 hl_family_of_architecture(&family, "mamba", "x"));
    assert_null(hl_family_named("mamba"));
}

/* ------------------------------------------------------------------- hybrids */

/* A description of two layers of width 64 with four heads, and what is added. */
#define HYBRID(type, more)                                                                         \
    "{\"model_type\": \"" type "\", \"num_hidden_layers\": 2, \"hidden_size\": 64, "               \
    "\"num_attention_heads\": 4, \"vocab_size\": 100" more "}"
#define TWO_LAYERS "\"layer_types\": [\"linear_attention\", \"full_attention\"]"

static void impossible_mixers_are_refused(void **state)
{
    (void)state;
    /* Groups, heads and widths that do not divide each other, and sizes beyond every limit. */
    refuse(HYBRID("qwen3_5", ", \"linear_num_key_heads\": 0"), HL_BAD_INPUT,
           "'linear_num_key_heads' is 0, wanted 1 to");
    refuse(HYBRID("qwen3_5", ", " TWO_LAYERS ", \"linear_num_key_heads\": 3"), HL_BAD_INPUT,
           "32 heads of a gated delta rule in 3 groups, wanted a divisor");
    refuse(HYBRID("qwen3_5", ", \"linear_key_head_dim\": 1000"), HL_BAD_INPUT,
           "'linear_key_head_dim' is 1000, wanted 1 to 256");
    refuse(HYBRID("qwen3_5", ", \"linear_conv_kernel_dim\": 9"), HL_BAD_INPUT,
           "'linear_conv_kernel_dim' is 9, wanted 1 to 8");
    refuse(HYBRID("qwen3_5",
                  ", " TWO_LAYERS
                  ", \"linear_value_head_dim\": 1048576, \"linear_num_value_heads\": 4096"),
           HL_BAD_INPUT, "inner width of the layers with a gated delta rule is 4294967296");
    refuse(HYBRID("qwen3_5", ", \"full_attention_interval\": 0"), HL_BAD_INPUT,
           "'full_attention_interval' is 0, wanted 1 to");
    refuse(HYBRID("qwen3_5", ", \"full_attention_interval\": 5"), HL_BAD_INPUT,
           "no layer has an attention head");
    refuse(HYBRID("qwen3_5", ", \"layer_types\": [\"linear_attention\"]"), HL_BAD_INPUT,
           "'layer_types' has 1 entries, wanted 2");
    refuse(HYBRID("qwen3_5", ", \"layer_types\": [\"retention\", \"full_attention\"]"),
           HL_UNSUPPORTED, "'layer_types' [0] is 'retention'");
    refuse(HYBRID("qwen3_next", ", " TWO_LAYERS ", \"num_experts\": 4, \"num_experts_per_tok\": 9"),
           HL_BAD_INPUT, "a token uses 9 experts of 4");
    refuse(HYBRID("bamba", ", \"attn_layer_indices\": [2]"), HL_BAD_INPUT,
           "'attn_layer_indices' [0] is not a layer, 0 to 1");
    refuse(HYBRID("bamba", ", \"attn_layer_indices\": [\"1\"]"), HL_BAD_INPUT,
           "'attn_layer_indices' [0] is not a layer");
    refuse(HYBRID("bamba", ", \"mamba_n_heads\": 5"), HL_BAD_INPUT,
           "Mamba's width of 128 is not divisible by its 5 heads");
    refuse(HYBRID("bamba", ", \"mamba_n_heads\": 8, \"mamba_d_head\": 12"), HL_BAD_INPUT,
           "8 heads of 12, and Mamba's width is 128");
    refuse(HYBRID("bamba", ", \"mamba_expand\": 65"), HL_BAD_INPUT, "'mamba_expand' is 65");
    refuse(HYBRID("bamba", ", \"mamba_n_heads\": 8, \"time_step_limit\": [0.1]"), HL_BAD_INPUT,
           "'time_step_limit' has 1 entries, wanted 2");
    refuse(HYBRID("bamba", ", \"mamba_n_heads\": 8, \"time_step_limit\": [0.1, \"much\"]"),
           HL_BAD_INPUT, "'time_step_limit' has an entry that is not a number");
    refuse(HYBRID("bamba", ", \"mamba_n_heads\": 8, \"time_step_limit\": [0.0, 0.0]"), HL_BAD_INPUT,
           "'time_step_limit' ends at 0, wanted more than 0");
    refuse(HYBRID("bamba", ", \"mamba_n_heads\": 8, \"time_step_limit\": [0.5, 0.1], "
                           "\"attn_layer_indices\": [1]"),
           HL_BAD_INPUT, "time steps from 0.5 to 0.1");
    refuse(HYBRID("falcon_h1", ", \"mamba_d_ssm\": 64, \"mamba_n_heads\": 8, "
                               "\"ssm_multipliers\": [1, 1, 0, 1, 1]"),
           HL_BAD_INPUT, "'ssm_multipliers' [2] is 0, wanted another number than 0");
    refuse(HYBRID("falcon_h1", ", \"mamba_d_ssm\": 64, \"mamba_n_heads\": 8, "
                               "\"ssm_multipliers\": [1, 1]"),
           HL_BAD_INPUT, "'ssm_multipliers' has 2 entries, wanted 5");
    refuse(HYBRID("falcon_h1", ", \"mamba_d_ssm\": 64, \"mamba_n_heads\": 8, "
                               "\"ssm_in_multiplier\": -1"),
           HL_BAD_INPUT, "the multiplier of the mixer's input is -1, wanted more than 0");
    refuse(HYBRID("nemotron_h", ", \"hybrid_override_pattern\": \"M?\""), HL_UNSUPPORTED,
           "layer 1 is neither mamba, attention, mlp nor moe");
    refuse(HYBRID("nemotron_h", ", \"hybrid_override_pattern\": \"\""), HL_BAD_INPUT,
           "'hybrid_override_pattern' has 0 entries, wanted 1 to");
    refuse(HYBRID("nemotron_h", ", \"layers_block_type\": 7"), HL_BAD_INPUT,
           "'layers_block_type' is an integer, wanted a list or a string");
    refuse(HYBRID("nemotron_h", ", \"moe_latent_size\": 16"), HL_UNSUPPORTED,
           "'moe_latent_size' is 16: experts that work on a projection");
    refuse(HYBRID("nemotron_h", ", \"mamba_hidden_act\": \"gelu\""), HL_UNSUPPORTED,
           "'mamba_hidden_act' is 'gelu', wanted silu");
    refuse(HYBRID("jamba", ", \"attn_layer_period\": 2, \"attn_layer_offset\": 2"), HL_BAD_INPUT,
           "'attn_layer_offset' is 2, wanted 0 to 1");
    refuse(HYBRID("jamba", ", \"mamba_dt_rank\": 0"), HL_BAD_INPUT, "'mamba_dt_rank' is 0");
    refuse(HYBRID("granitemoehybrid", ", " TWO_LAYERS ", \"num_local_experts\": 4, "
                                      "\"num_experts_per_tok\": 5, \"mamba_n_heads\": 8"),
           HL_BAD_INPUT, "a token uses 5 experts of 4");
}

static hl_config *parse_hybrid(const char *text)
{
    hl_config *config = NULL;

    assert_ok(hl_config_parse(&config, text, strlen(text), "config.json"));
    return config;
}

/* Spellings of released files: patterns of letters, old words, Infinity as Python writes it. */
static void hybrids_have_several_spellings(void **state)
{
    hl_config *config = parse_hybrid(
        HYBRID("nemotron_h", ", \"hybrid_override_pattern\": \"M-*E\", \"head_dim\": 16, "
                             "\"num_key_value_heads\": 2, \"time_step_limit\": [0.0, Infinity]"));
    (void)state;

    assert_int_equal(config->n_layers, 4); /* the pattern counts, not num_hidden_layers */
    assert_int_equal(config->layers[0].mixer, HL_MIXER_MAMBA2);
    assert_true(config->layers[0].n_heads == 0 && config->layers[0].d_mlp == 0);
    assert_true(config->layers[1].d_mlp > 0 && config->layers[1].n_experts == 0);
    assert_true(config->layers[2].n_heads == 4 && config->layers[2].mixer == HL_MIXER_NONE);
    assert_true(config->layers[3].n_experts == 8 && config->layers[3].n_heads == 0);
    hl_config_free(config);

    config =
        parse_hybrid(HYBRID("bamba", ", \"attn_layer_indices\": [1], \"mamba_n_heads\": 8, "
                                     "\"mamba_d_head\": \"auto\", "
                                     "\"time_step_limit\": [0.01, {\"__float__\": \"Infinity\"}]"));
    assert_int_equal(config->mixer.d_head, 16);
    assert_true(isinf(config->mixer.dt_high) && config->mixer.dt_low == 0.01);
    assert_int_equal(config->ropes[HL_ROPE_MAIN].n_dims, 8);
    hl_config_free(config);

    config = parse_hybrid(HYBRID(
        "granitemoehybrid", ", \"layer_types\": [\"mamba\", \"attention\"], \"mamba_n_heads\": 8, "
                            "\"num_local_experts\": 0, \"shared_intermediate_size\": 96"));
    assert_int_equal(config->position, HL_POSITION_NONE);
    assert_int_equal(config->layers[0].mixer, HL_MIXER_MAMBA2);
    assert_true(config->layers[1].d_mlp == 96 && config->layers[1].n_experts == 0);
    hl_config_free(config);

    config = parse_hybrid(HYBRID("qwen3_next", ", \"full_attention_interval\": 2"));
    assert_true(config->layers[0].mixer == HL_MIXER_DELTA && config->layers[1].n_heads == 4);
    assert_int_equal(config->ropes[HL_ROPE_MAIN].n_dims, 64);
    hl_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_configurations_come_out_right),
        cmocka_unit_test(numbers_of_single_families_come_out_right),
        cmocka_unit_test(old_spellings_are_read),
        cmocka_unit_test(nested_configurations_are_read),
        cmocka_unit_test(windows_follow_their_rules),
        cmocka_unit_test(layers_may_differ),
        cmocka_unit_test(variants_of_families_are_read),
        cmocka_unit_test(generation_configurations_override),
        cmocka_unit_test(unknown_families_are_told_the_nearest),
        cmocka_unit_test(missing_and_wrong_values_are_named),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused),
        cmocka_unit_test(hostile_latents_and_layers_are_refused),
        cmocka_unit_test(bad_rope_parameters_are_refused),
        cmocka_unit_test(quantized_weights_are_refused_by_name),
        cmocka_unit_test(families_are_found_by_every_name),
        cmocka_unit_test(impossible_mixers_are_refused),
        cmocka_unit_test(hybrids_have_several_spellings),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
