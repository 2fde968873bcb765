/* test_config_gguf.c - descriptions from GGUF metadata: lists with one value per layer, rotary
 * factors in tensors, blocks, and invalid files. */
#include "model_support.h"

#include <math.h>

#include "formats/gguf.h"
#include "kernels/quant.h"
#include "model/config.h"

enum { MAX_TENSORS = 64, D = 64, HEAD = 16, V = 12 };

/* A GGUF file under construction. */
typedef struct maker {
    char            folder[128];
    char            architecture[32];
    hl_gguf_writer *writer;
    void           *buffers[MAX_TENSORS];
    int             n_buffers;
} maker;

static const char *key(const maker *made, const char *name)
{
    static char text[128];
    snprintf(text, sizeof text, "%s.%s", made->architecture, name);
    return text;
}

static void add_int(maker *made, const char *name, int64_t value)
{
    hl_gguf_add_int(made->writer, key(made, name), HL_GGUF_U32, value);
}

static void add_list(maker *made, const char *name, const int32_t *values, size_t count)
{
    hl_gguf_add_numbers(made->writer, key(made, name), HL_GGUF_I32, values, count);
}

static maker start(const char *architecture, int64_t n_layers)
{
    maker made = { 0 };

    strcpy(made.folder, new_folder());
    strcpy(made.architecture, architecture);
    assert_ok(hl_gguf_writer_new(&made.writer));
    hl_gguf_add_text(made.writer, "general.architecture", architecture);
    add_int(&made, "block_count", n_layers);
    add_int(&made, "embedding_length", D);
    add_int(&made, "context_length", 512);
    hl_gguf_add_float(made.writer, key(&made, "attention.layer_norm_rms_epsilon"), HL_GGUF_F32,
                      1e-5);
    return made;
}

/* Element i of a tensor is i % 100, stored as `dtype`; a matrix if columns > 0. */
static void add_tensor(maker *made, const char *name, hl_dtype dtype, int64_t rows, int64_t columns)
{
    hl_tensor tensor = {
        .name = name, .dtype = dtype, .n_dims = columns > 0 ? 2 : 1, .shape = { rows, columns }
    };
    size_t count  = (size_t)hl_tensor_count(&tensor);
    float *values = malloc(count * sizeof *values);

    assert_non_null(values);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(i % 100 + 1);
    assert_ok(hl_tensor_bytes(&tensor.n_bytes, &tensor));
    tensor.data = malloc(tensor.n_bytes);
    assert_ok(hl_quantize((void *)tensor.data, dtype, values, count));
    free(values);
    hl_gguf_add_tensor(made->writer, &tensor);
    assert_true(made->n_buffers < MAX_TENSORS);
    made->buffers[made->n_buffers++] = (void *)tensor.data;
}

static void add_block(maker *made, int layer, const char *name, int64_t rows, int64_t columns)
{
    char text[64];
    snprintf(text, sizeof text, "blk.%d.%s.weight", layer, name);
    add_tensor(made, text, columns > 0 ? HL_DTYPE_Q8_0 : HL_DTYPE_F32, rows, columns);
}

/* Adds the tensors of a layer: of a Llama, or with fused q, k, v and fused gate, up. */
static void add_layer(maker *made, int layer, int64_t n_heads, int64_t n_kv_heads, int64_t d_mlp)
{
    if (n_heads > 0) {
        add_block(made, layer, "attn_norm", D, 0);
        add_block(made, layer, "attn_q", n_heads * HEAD, D);
        add_block(made, layer, "attn_k", n_kv_heads * HEAD, D);
        add_block(made, layer, "attn_v", n_kv_heads * HEAD, D);
        add_block(made, layer, "attn_output", D, n_heads * HEAD);
    }
    if (d_mlp > 0) {
        add_block(made, layer, "ffn_norm", D, 0);
        add_block(made, layer, "ffn_gate", d_mlp, D);
        add_block(made, layer, "ffn_up", d_mlp, D);
        add_block(made, layer, "ffn_down", D, d_mlp);
    }
}

static void add_ends(maker *made)
{
    add_tensor(made, "token_embd.weight", HL_DTYPE_F16, V, D);
    add_tensor(made, "output_norm.weight", HL_DTYPE_F32, D, 0);
}

static const char *write_model(maker *made)
{
    const char *path = in_folder(made->folder, "model.gguf");

    assert_ok(hl_gguf_write(made->writer, path));
    hl_gguf_writer_free(made->writer);
    for (int i = 0; i < made->n_buffers; i++)
        free(made->buffers[i]);
    return path;
}

static hl_model *finish(maker *made)
{
    hl_model *model = open_model(write_model(made));
    remove_folder(made->folder);
    return model;
}

static void refuse(maker *made, hl_status wanted, const char *fragment)
{
    hl_model *model = (hl_model *)&model;

    assert_fails(wanted, fragment, hl_model_open(&model, write_model(made)));
    assert_null(model);
    assert_non_null(strstr(hl_error_message(), "model.gguf"));
    remove_folder(made->folder);
}

/* ------------------------------------------------------------------ accepted */

/* The second layer has no attention; the third has no MLP and is left out. */
static void layers_of_deci_differ(void **state)
{
    const int32_t heads[] = { 4, 0, 2 }, kv_heads[] = { 2, 0, 1 }, widths[] = { 64, 96, 0 };
    maker         made = start("deci", 3);

    (void)state;
    add_list(&made, "attention.head_count", heads, 3);
    add_list(&made, "attention.head_count_kv", kv_heads, 3);
    add_list(&made, "feed_forward_length", widths, 3);
    add_int(&made, "attention.key_length", HEAD);
    add_int(&made, "rope.dimension_count", HEAD);
    add_ends(&made);
    add_layer(&made, 0, 4, 2, 64);
    add_layer(&made, 1, 0, 0, 96);
    hl_model *model = finish(&made);
    assert_string_equal(model->config->family, "deci");
    assert_int_equal(model->config->layers[0].n_kv_heads, 2);
    assert_int_equal(model->config->layers[1].n_heads, 0);
    assert_int_equal(model->config->layers[1].d_mlp, 96);
    assert_int_equal(model->config->layers[2].n_heads, 0);
    assert_int_equal(model->config->d_mlp, 96);
    assert_true(model->config->tied);
    assert_null(hl_weights_get(model->weights, HL_ROLE_ATTN_Q, 1, 0));
    assert_int_equal(hl_model_get_info(model)->kv_bytes_f16, 2 * 2 * HEAD * 2);

    /* Blocks are read row by row, with rotary pairs restored: row 1 is stored as row 2. */
    const hl_weight *q = &hl_weights_get(model->weights, HL_ROLE_ATTN_Q, 0, 0)->weight;
    float            row[D];
    assert_int_equal(q->dtype, HL_DTYPE_Q8_0);
    assert_ok(hl_weight_read_row(row, q, 1));
    for (int i = 0; i < D; i++)
        assert_true(fabsf(row[i] - (float)((2 * D + i) % 100 + 1)) < 0.5f);
    hl_model_close(model);
}

static void rotary_factors_come_from_tensors(void **state)
{
    maker made = start("phi3", 1);
    float frequencies[HEAD / 2];

    (void)state;
    add_int(&made, "attention.head_count", 4);
    add_int(&made, "feed_forward_length", 64);
    add_int(&made, "rope.scaling.original_context_length", 128);
    hl_gguf_add_float(made.writer, key(&made, "rope.scaling.attn_factor"), HL_GGUF_F32, 1.25);
    add_ends(&made);
    add_tensor(&made, "rope_factors_short.weight", HL_DTYPE_F32, HEAD / 2, 0);
    add_tensor(&made, "rope_factors_long.weight", HL_DTYPE_F32, HEAD / 2, 0);
    add_block(&made, 0, "attn_norm", D, 0);
    add_block(&made, 0, "attn_qkv", 3 * D, D);
    add_block(&made, 0, "attn_output", D, D);
    add_block(&made, 0, "ffn_norm", D, 0);
    add_block(&made, 0, "ffn_up", 128, D);
    add_block(&made, 0, "ffn_down", D, 64);
    hl_model      *model = finish(&made);
    const hl_rope *rope  = &model->config->ropes[HL_ROPE_MAIN];
    assert_int_equal(rope->kind, HL_ROPE_LONGROPE);
    assert_true(rope->attention_factor == 1.25);
    hl_rope_frequencies(frequencies, rope, 8);
    assert_true(fabs(frequencies[1] - pow(10000.0, -2.0 / HEAD) / 2.0) < 1e-7);
    assert_int_equal(hl_weights_get(model->weights, HL_ROLE_MLP_UP, 0, 0)->weight.first, 64);
    hl_model_close(model);
}

/* Every layer has a window, except those in a list. */
static void window_patterns_may_be_lists(void **state)
{
    const int32_t local[] = { 0, 1 };
    maker         made    = start("gemma2", 2);

    (void)state;
    add_int(&made, "attention.head_count", 4);
    add_int(&made, "feed_forward_length", 64);
    add_int(&made, "attention.key_length", HEAD);
    add_int(&made, "attention.sliding_window", 8);
    add_list(&made, "attention.sliding_window_pattern", local, 2);
    add_ends(&made);
    for (int i = 0; i < 2; i++) {
        add_layer(&made, i, 4, 4, 64);
        add_block(&made, i, "post_attention_norm", D, 0);
        add_block(&made, i, "post_ffw_norm", D, 0);
    }
    hl_model *model = finish(&made);
    assert_false(model->config->layers[0].is_local);
    assert_true(model->config->layers[1].is_local);
    assert_int_equal(model->config->layers[1].window_left, 7);
    assert_true(model->config->layers[0].attn_scale == 0.25);
    hl_model_close(model);
}

/* --------------------------------------------------------------------- refused */

static void bad_metadata_is_refused(void **state)
{
    const int32_t heads[] = { 4, 4, 4 };
    maker         made    = start("mamba", 1);

    (void)state;
    refuse(&made, HL_UNSUPPORTED, "general.architecture 'mamba' is not one that headlight knows");

    made = start("llama", 1);
    add_ends(&made);
    refuse(&made, HL_BAD_INPUT, "'attention.head_count' is missing");

    made = start("llama", 1);
    add_int(&made, "attention.head_count", 4);
    refuse(&made, HL_BAD_INPUT, "tensor 'token_embd.weight' is missing");

    made = start("llama", 1);
    add_ends(&made);
    hl_gguf_add_text(made.writer, key(&made, "attention.head_count"), "four");
    refuse(&made, HL_BAD_INPUT, "'llama.attention.head_count' is a string, wanted an integer");

    made = start("llama", 1);
    add_ends(&made);
    add_int(&made, "attention.head_count", 0);
    refuse(&made, HL_BAD_INPUT, "'llama.attention.head_count' is 0, wanted 1 to 4096");

    made = start("llama", 2000);
    refuse(&made, HL_BAD_INPUT, "'llama.block_count' is 2000, wanted 1 to 1024");

    made = start("deci", 2);
    add_ends(&made);
    add_list(&made, "attention.head_count", heads, 3);
    refuse(&made, HL_BAD_INPUT, "'deci.attention.head_count' has 3 entries, wanted 2");

    made = start("deci", 3);
    add_ends(&made);
    add_list(&made, "attention.head_count", heads, 3);
    add_list(&made, "attention.head_count_kv", (const int32_t[]){ 2, 0, 2 }, 3);
    refuse(&made, HL_UNSUPPORTED, "layer 1 has 4 heads and no KV heads: linear attention");
}

static void bad_tensors_are_refused(void **state)
{
    maker made = start("llama", 1);

    (void)state;
    add_int(&made, "attention.head_count", 4);
    add_int(&made, "feed_forward_length", 64);
    add_ends(&made);
    add_tensor(&made, "rope_freqs.weight", HL_DTYPE_F32, 3, 0);
    refuse(&made, HL_BAD_INPUT, "3 frequency factors, wanted 8");

    made = start("llama", 1);
    add_int(&made, "attention.head_count", 4);
    add_int(&made, "feed_forward_length", 64);
    add_ends(&made);
    add_layer(&made, 0, 4, 4, 96);
    refuse(&made, HL_BAD_INPUT, "tensor 'blk.0.ffn_gate.weight' has shape [96,64], wanted [64,64]");

    made = start("llama", 1);
    add_int(&made, "attention.head_count", 4);
    add_int(&made, "feed_forward_length", 64);
    add_ends(&made);
    add_layer(&made, 0, 4, 4, 0);
    refuse(&made, HL_BAD_INPUT,
           "tensor 'blk.0.ffn_norm.weight' is missing, wanted [64] (mlp.norm of a llama)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_of_deci_differ),
        cmocka_unit_test(rotary_factors_come_from_tensors),
        cmocka_unit_test(window_patterns_may_be_lists),
        cmocka_unit_test(bad_metadata_is_refused),
        cmocka_unit_test(bad_tensors_are_refused),
    };
    return cmocka_run_group_tests_name("config_gguf", tests, NULL, NULL);
}
