/* test_weights.c - finding roles in files: missing tensors, wrong shapes, other ways to store them.
 *  (test_family.c has the reference models.) */
#include "model_support.h"

#include "formats/safetensors.h"

/* -------------------------------------------------------- files made by hand */

enum { MAX_BUFFERS = 64, D = 32, H = 4, K = 2, HEAD = 8, F = 64, V = 10 };

/* A folder with a model in it. */
typedef struct maker {
    char                   folder[128];
    hl_safetensors_writer *writer;
    void                  *buffers[MAX_BUFFERS];
    int                    n_buffers;
} maker;

static maker start_model(const char *config)
{
    maker made = { 0 };

    strcpy(made.folder, new_folder());
    write_file(in_folder(made.folder, "config.json"), config, strlen(config));
    assert_ok(hl_safetensors_writer_new(&made.writer));
    return made;
}

/* Adds a tensor; element i of an F32 is i. */
static void *add(maker *made, const char *name, hl_dtype dtype, int n_dims, const int64_t *shape)
{
    hl_tensor tensor = { .name = name, .dtype = dtype, .n_dims = n_dims };

    memcpy(tensor.shape, shape, sizeof *shape * (size_t)n_dims);
    assert_ok(hl_tensor_bytes(&tensor.n_bytes, &tensor));
    float *data = calloc(1, tensor.n_bytes);
    assert_non_null(data);
    for (size_t i = 0; dtype == HL_DTYPE_F32 && i < tensor.n_bytes / 4; i++)
        data[i] = (float)i;
    tensor.data = data;
    hl_safetensors_add(made->writer, &tensor);
    assert_true(made->n_buffers < MAX_BUFFERS);
    return made->buffers[made->n_buffers++] = data;
}

static void add_vector(maker *made, const char *name, int64_t n)
{
    add(made, name, HL_DTYPE_F32, 1, &n);
}

static void add_matrix(maker *made, const char *name, int64_t rows, int64_t columns)
{
    int64_t shape[] = { rows, columns };
    add(made, name, HL_DTYPE_F32, 2, shape);
}

static void add_cube(maker *made, const char *name, int64_t n, int64_t rows, int64_t columns)
{
    int64_t shape[] = { n, rows, columns };
    add(made, name, HL_DTYPE_F32, 3, shape);
}

/* Adds the attention of a Llama's layer. */
static void add_layer(maker *made, int layer)
{
    static const struct {
        const char *name;
        int64_t     rows, columns;
    } tensors[] = {
        { "input_layernorm", D, 1 },         { "post_attention_layernorm", D, 1 },
        { "self_attn.q_proj", H * HEAD, D }, { "self_attn.k_proj", K * HEAD, D },
        { "self_attn.v_proj", K * HEAD, D }, { "self_attn.o_proj", D, H * HEAD },
    };

    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        char name[128];
        snprintf(name, sizeof name, "model.layers.%d.%s.weight", layer, tensors[i].name);
        if (tensors[i].columns == 1)
            add_vector(made, name, tensors[i].rows);
        else
            add_matrix(made, name, tensors[i].rows, tensors[i].columns);
    }
}

/* Adds all of a one-layer Llama except its MLP and head. */
static void add_attention(maker *made)
{
    add_matrix(made, "model.embed_tokens.weight", V, D);
    add_vector(made, "model.norm.weight", D);
    add_layer(made, 0);
}

static void add_mlp(maker *made)
{
    add_matrix(made, "model.layers.0.mlp.gate_proj.weight", F, D);
    add_matrix(made, "model.layers.0.mlp.up_proj.weight", F, D);
    add_matrix(made, "model.layers.0.mlp.down_proj.weight", D, F);
}

static void write_model(maker *made)
{
    assert_ok(hl_safetensors_write(made->writer, in_folder(made->folder, "model.safetensors")));
    hl_safetensors_writer_free(made->writer);
    for (int i = 0; i < made->n_buffers; i++)
        free(made->buffers[i]);
}

static hl_model *finish_model(maker *made)
{
    write_model(made);
    hl_model *model = open_model(made->folder);
    remove_folder(made->folder);
    return model;
}

/* Checks that the model is refused, with this in the message. */
static void refuse_model(maker *made, hl_status wanted, const char *fragment)
{
    hl_model *model = (hl_model *)&model;

    write_model(made);
    assert_fails(wanted, fragment, hl_model_open(&model, made->folder));
    assert_null(model);
    assert_non_null(strstr(hl_error_message(), made->folder));
    remove_folder(made->folder);
}

#define CONFIG(type, more)                                                                         \
    "{\"model_type\": \"" type "\", \"hidden_size\": 32, \"num_attention_heads\": 4, "             \
    "\"num_key_value_heads\": 2, \"head_dim\": 8, \"num_hidden_layers\": 1, \"vocab_size\": 10, "  \
    "\"intermediate_size\": 64" more "}"
#define TIED ", \"tie_word_embeddings\": true"

/* ------------------------------------------------------------- what is wrong */

static void missing_tensors_are_named(void **state)
{
    maker made = start_model(CONFIG("llama", TIED));

    (void)state;
    add_attention(&made);
    refuse_model(&made, HL_BAD_INPUT,
                 "tensor 'model.layers.0.mlp.gate_proj.weight' is missing, wanted [64,32] "
                 "(mlp.gate of a llama)");

    made = start_model(CONFIG("llama", ""));
    add_attention(&made);
    add_mlp(&made);
    refuse_model(&made, HL_BAD_INPUT, "tensor 'lm_head.weight' is missing");

    made = start_model(CONFIG("mixtral", ", \"num_local_experts\": 2"));
    add_attention(&made);
    add_matrix(&made, "lm_head.weight", V, D);
    add_matrix(&made, "model.layers.0.block_sparse_moe.gate.weight", 2, D);
    add_matrix(&made, "model.layers.0.block_sparse_moe.experts.0.w1.weight", F, D);
    refuse_model(&made, HL_BAD_INPUT, "'model.layers.0.block_sparse_moe.experts.1.w1.weight'");
}

static void misshaped_tensors_are_named(void **state)
{
    maker made = start_model(CONFIG("llama", TIED));

    (void)state;
    add_attention(&made);
    add_matrix(&made, "model.layers.0.mlp.gate_proj.weight", D, F);
    refuse_model(&made, HL_BAD_INPUT,
                 "tensor 'model.layers.0.mlp.gate_proj.weight' has shape [32,64], wanted [64,32]");

    made = start_model(CONFIG("llama", TIED ", \"attention_bias\": true"));
    add_attention(&made);
    add_mlp(&made);
    add_vector(&made, "model.layers.0.self_attn.q_proj.bias", H * HEAD);
    add_vector(&made, "model.layers.0.self_attn.k_proj.bias", H * HEAD);
    refuse_model(&made, HL_BAD_INPUT,
                 "'model.layers.0.self_attn.k_proj.bias' has shape [32], wanted [16]");
}

static void other_dtypes_are_refused(void **state)
{
    maker   made    = start_model(CONFIG("llama", TIED));
    int64_t shape[] = { F, D };

    (void)state;
    add_attention(&made);
    add(&made, "model.layers.0.mlp.gate_proj.weight", HL_DTYPE_I8, 2, shape);
    refuse_model(&made, HL_UNSUPPORTED, "'model.layers.0.mlp.gate_proj.weight' is stored as I8");
}

/* Biases must be in all layers or in none. */
static void biases_of_some_layers_are_refused(void **state)
{
    static const char *const parts[] = { "q", "k", "v", "o" };
    maker                    made = start_model("{\"model_type\": \"llama\", \"hidden_size\": 32, "
                                                                   "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
                                                                   "\"num_hidden_layers\": 2, \"vocab_size\": 10, "
                                                                   "\"attention_bias\": true" TIED ", \"per_layer_config\": "
                                                                   "{\"0\": {\"skip\": [\"mlp\"]}, \"1\": {\"skip\": [\"mlp\"]}}}");

    (void)state;
    add_attention(&made);
    add_layer(&made, 1);
    for (int i = 0; i < 4; i++) {
        char name[128];
        snprintf(name, sizeof name, "model.layers.0.self_attn.%s_proj.bias", parts[i]);
        add_vector(&made, name, i == 0 || i == 3 ? D : K * HEAD);
    }
    refuse_model(&made, HL_BAD_INPUT, "tensor 'model.layers.1.self_attn.q_proj.bias' is missing");
}

/* -------------------------------------------------------- what is tolerated */

static void count_messages(void *context, hl_log_level level, const char *message)
{
    (void)level;
    if (strstr(message, "extra.weight") != NULL)
        ++*(int *)context;
}

static void extra_tensors_and_buffers_are_tolerated(void **state)
{
    maker   made     = start_model(CONFIG("llama", TIED));
    int64_t mask[]   = { 1, 1, 4, 4 };
    int     n_heard  = 0;
    int64_t n_params = V * D + 3 * D + 2 * H * HEAD * D + 2 * K * HEAD * D + 3 * F * D;

    (void)state;
    add_attention(&made);
    add_mlp(&made);
    add_matrix(&made, "extra.weight", 2, 3);
    add_vector(&made, "model.layers.0.self_attn.rotary_emb.inv_freq", 4);
    add(&made, "model.layers.0.attn.bias", HL_DTYPE_F32, 4, mask);
    add_matrix(&made, "lm_head.weight", V, D); /* a copy of the embedding: the head is tied */
    hl_log_set(count_messages, &n_heard, HL_LOG_INFO);
    hl_model *model = finish_model(&made);
    hl_log_set(NULL, NULL, HL_LOG_INFO);
    assert_int_equal(n_heard, 1);
    assert_int_equal(hl_model_get_info(model)->n_params, n_params + 6);
    assert_ptr_equal(hl_weights_get(model->weights, HL_ROLE_LM_HEAD, -1, 0)->weight.tensor,
                     hl_weights_get(model->weights, HL_ROLE_EMBED, -1, 0)->weight.tensor);
    hl_model_close(model);
}

static void names_without_the_prefix_are_found(void **state)
{
    maker made = start_model("{\"architectures\": [\"BloomModel\"], \"model_type\": \"bloom\", "
                             "\"hidden_size\": 32, \"n_head\": 4, \"n_layer\": 1, "
                             "\"vocab_size\": 10}");

    (void)state;
    add_matrix(&made, "word_embeddings.weight", V, D);
    for (int i = 0; i < 4; i++) {
        static const char *const norms[] = { "word_embeddings_layernorm", "ln_f",
                                             "h.0.input_layernorm",
                                             "h.0.post_attention_layernorm" };
        char                     name[128];
        snprintf(name, sizeof name, "%s.%s", norms[i], i == 1 ? "gamma" : "weight");
        add_vector(&made, name, D);
        snprintf(name, sizeof name, "%s.%s", norms[i], i == 1 ? "beta" : "bias");
        add_vector(&made, name, D);
    }
    add_matrix(&made, "h.0.self_attention.query_key_value.weight", 3 * D, D);
    add_vector(&made, "h.0.self_attention.query_key_value.bias", 3 * D);
    add_matrix(&made, "h.0.self_attention.dense.weight", D, D);
    add_vector(&made, "h.0.self_attention.dense.bias", D);
    add_matrix(&made, "h.0.mlp.dense_h_to_4h.weight", 4 * D, D);
    add_vector(&made, "h.0.mlp.dense_h_to_4h.bias", 4 * D);
    add_matrix(&made, "h.0.mlp.dense_4h_to_h.weight", D, 4 * D);
    add_vector(&made, "h.0.mlp.dense_4h_to_h.bias", D);
    hl_model *model = finish_model(&made);

    /* q, k, v per head: row 8 of q, the second head's first, is row 24 of the file. */
    const hl_param *q = hl_weights_get(model->weights, HL_ROLE_ATTN_Q, 0, 0);
    const hl_param *v = hl_weights_get(model->weights, HL_ROLE_ATTN_V, 0, 0);
    assert_int_equal(hl_weight_row(&q->weight, 8), 24);
    assert_int_equal(hl_weight_row(&v->weight, 9), 24 + 16 + 1);
    float bias[D];
    assert_ok(hl_weight_read(bias, &v->bias));
    assert_true(bias[0] == 16.0f && bias[8] == 40.0f && bias[31] == 95.0f);
    hl_model_close(model);
}

/* ------------------------------------------------------------- ways to store */

static void rows_are_found_where_they_lie(void **state)
{
    hl_weight plain = { .n_rows = 8, .n_columns = 4, .block = 8, .stride = 8 };
    hl_weight odd   = { .n_rows = 8, .n_columns = 4, .first = 1, .block = 1, .stride = 2 };
    hl_weight pairs = { .n_rows = 16, .n_columns = 4, .block = 16, .stride = 16, .pairs = 8 };

    (void)state;
    assert_int_equal(hl_weight_row(&plain, 5), 5);
    assert_int_equal(hl_weight_row(&odd, 5), 11);
    /* In a head of 8, row i is stored at 2i and row 4 + i at 2i + 1. */
    for (int64_t i = 0; i < 4; i++) {
        assert_int_equal(hl_weight_row(&pairs, i), 2 * i);
        assert_int_equal(hl_weight_row(&pairs, 4 + i), 2 * i + 1);
        assert_int_equal(hl_weight_row(&pairs, 8 + i), 8 + 2 * i);
    }
}

static float value_at(const hl_model *model, hl_role role, int64_t part, int64_t row,
                      int64_t column)
{
    const hl_weight *weight = &hl_weights_get(model->weights, role, 0, part)->weight;
    float            values[256];

    assert_true(weight->n_columns <= 256);
    assert_ok(hl_weight_read_row(values, weight, row));
    return values[column];
}

/* Stacked experts, with gate before up, as newer code stores them. */
static void stacked_experts_are_taken_apart(void **state)
{
    maker made = start_model(CONFIG("mixtral", TIED ", \"num_local_experts\": 3"));

    (void)state;
    add_attention(&made);
    add_matrix(&made, "model.layers.0.mlp.gate.weight", 3, D);
    add_cube(&made, "model.layers.0.mlp.experts.gate_up_proj", 3, 2 * F, D);
    add_cube(&made, "model.layers.0.mlp.experts.down_proj", 3, D, F);
    hl_model *model = finish_model(&made);
    assert_true(value_at(model, HL_ROLE_EXPERT_GATE, 1, 2, 3) == 2 * F * D + 2 * D + 3);
    assert_true(value_at(model, HL_ROLE_EXPERT_UP, 2, 0, 0) == 2 * 2 * F * D + F * D);
    assert_true(value_at(model, HL_ROLE_EXPERT_DOWN, 2, 1, 5) == 2 * D * F + F + 5);
    hl_model_close(model);
}

static void shared_experts_are_found(void **state)
{
    maker made = start_model(CONFIG("qwen2_moe", TIED ", \"num_experts\": 1, \"qkv_bias\": false, "
                                                      "\"num_experts_per_tok\": 1, "
                                                      "\"moe_intermediate_size\": 16, "
                                                      "\"shared_expert_intermediate_size\": 24"));

    (void)state;
    add_attention(&made);
    add_matrix(&made, "model.layers.0.mlp.gate.weight", 1, D);
    add_matrix(&made, "model.layers.0.mlp.experts.0.gate_proj.weight", 16, D);
    add_matrix(&made, "model.layers.0.mlp.experts.0.up_proj.weight", 16, D);
    add_matrix(&made, "model.layers.0.mlp.experts.0.down_proj.weight", D, 16);
    add_matrix(&made, "model.layers.0.mlp.shared_expert_gate.weight", 1, D);
    add_matrix(&made, "model.layers.0.mlp.shared_expert.gate_proj.weight", 24, D);
    add_matrix(&made, "model.layers.0.mlp.shared_expert.up_proj.weight", 24, D);
    add_matrix(&made, "model.layers.0.mlp.shared_expert.down_proj.weight", D, 24);
    hl_model *model = finish_model(&made);
    assert_true(value_at(model, HL_ROLE_SHARED_DOWN, 0, 1, 0) == 24.0f);
    assert_true(value_at(model, HL_ROLE_SHARED_ROUTER, 0, 0, 7) == 7.0f);
    hl_model_close(model);
}

/* A norm for every head, in separate tensors or stacked. */
static void norms_of_heads_are_found(void **state)
{
    maker made = start_model(CONFIG("stablelm", TIED ", \"qk_layernorm\": true, "
                                                     "\"partial_rotary_factor\": 0.5, "
                                                     "\"use_parallel_residual\": true"));
    char  name[128];

    (void)state;
    add_attention(&made);
    add_mlp(&made);
    add_vector(&made, "model.norm.bias", D);
    add_vector(&made, "model.layers.0.input_layernorm.bias", D);
    for (int i = 0; i < H + K; i++) {
        snprintf(name, sizeof name, "model.layers.0.self_attn.%c_layernorm.norms.%d.weight",
                 i < H ? 'q' : 'k', i < H ? i : i - H);
        add_vector(&made, name, HEAD);
    }
    hl_model *model = finish_model(&made);
    assert_non_null(hl_weights_get(model->weights, HL_ROLE_Q_NORM, 0, H - 1));
    assert_true(value_at(model, HL_ROLE_K_NORM, K - 1, 5, 0) == 5.0f);
    hl_model_close(model);

    made = start_model(CONFIG("cohere", ", \"use_qk_norm\": true"));
    add_attention(&made);
    add_mlp(&made);
    add_matrix(&made, "model.layers.0.self_attn.q_norm.weight", H, HEAD);
    add_matrix(&made, "model.layers.0.self_attn.k_norm.weight", K, HEAD);
    model = finish_model(&made);
    assert_true(value_at(model, HL_ROLE_Q_NORM, 2, 3, 0) == 2 * HEAD + 3);
    hl_model_close(model);
}

/* The released form of gpt-oss: blocks and scales, with gate and up in turn. */
static void mxfp4_in_two_tensors_is_read(void **state)
{
    maker   made          = start_model(CONFIG("gpt_oss", TIED ", \"num_local_experts\": 2, "
                                                                          "\"num_experts_per_tok\": 1, "
                                                                          "\"attention_bias\": false, "
                                                                          "\"quantization_config\": {\"quant_method\": "
                                                                          "\"mxfp4\"}"));
    int64_t up_blocks[]   = { 2, 2 * F, D / 32, 16 };
    int64_t down_blocks[] = { 2, D, F / 32, 16 };

    (void)state;
    add_attention(&made);
    add_vector(&made, "model.layers.0.self_attn.sinks", H);
    add_matrix(&made, "model.layers.0.mlp.router.weight", 2, D);
    add_vector(&made, "model.layers.0.mlp.router.bias", 2);
    uint8_t *up =
        add(&made, "model.layers.0.mlp.experts.gate_up_proj_blocks", HL_DTYPE_U8, 4, up_blocks);
    uint8_t *up_scales =
        add(&made, "model.layers.0.mlp.experts.gate_up_proj_scales", HL_DTYPE_U8, 3, up_blocks);
    add_matrix(&made, "model.layers.0.mlp.experts.gate_up_proj_bias", 2, 2 * F);
    uint8_t *down =
        add(&made, "model.layers.0.mlp.experts.down_proj_blocks", HL_DTYPE_U8, 4, down_blocks);
    uint8_t *down_scales =
        add(&made, "model.layers.0.mlp.experts.down_proj_scales", HL_DTYPE_U8, 3, down_blocks);
    add_matrix(&made, "model.layers.0.mlp.experts.down_proj_bias", 2, D);
    /* Expert 1, up row 3 is stored row 7; columns 4 and 5 share byte 2. */
    up[(2 * F + 7) * 16 + 2] = 0x9 << 4 | 0x7; /* -0.5, 6 */
    up_scales[2 * F + 7]     = 129;            /* * 4 */
    /* Expert 1, down row 2, columns 32 + 31: the second block's last byte. */
    down[((D + 2) * 2 + 1) * 16 + 15] = 0x3 << 4; /* 1.5 */
    down_scales[(D + 2) * 2 + 1]      = 126;      /* / 2 */
    hl_model *model                   = finish_model(&made);
    assert_true(value_at(model, HL_ROLE_EXPERT_UP, 1, 3, 4) == 24.0f);
    assert_true(value_at(model, HL_ROLE_EXPERT_UP, 1, 3, 5) == -2.0f);
    assert_true(value_at(model, HL_ROLE_EXPERT_GATE, 1, 3, 4) == 0.0f);
    assert_true(value_at(model, HL_ROLE_EXPERT_DOWN, 1, 2, 63) == 0.75f);
    float bias[F];
    assert_ok(hl_weight_read(bias, &hl_weights_get(model->weights, HL_ROLE_EXPERT_UP, 0, 1)->bias));
    assert_true(bias[3] == 2 * F + 7);
    assert_int_equal(hl_model_get_info(model)->n_params, V * D + 3 * D + 2 * H * HEAD * D +
                                                             2 * K * HEAD * D + H + 2 * D + 2 +
                                                             2 * (2 * F * D + 2 * F + D * F + D));
    hl_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_tensors_are_named),
        cmocka_unit_test(misshaped_tensors_are_named),
        cmocka_unit_test(other_dtypes_are_refused),
        cmocka_unit_test(biases_of_some_layers_are_refused),
        cmocka_unit_test(extra_tensors_and_buffers_are_tolerated),
        cmocka_unit_test(names_without_the_prefix_are_found),
        cmocka_unit_test(rows_are_found_where_they_lie),
        cmocka_unit_test(stacked_experts_are_taken_apart),
        cmocka_unit_test(shared_experts_are_found),
        cmocka_unit_test(norms_of_heads_are_found),
        cmocka_unit_test(mxfp4_in_two_tensors_is_read),
    };
    return cmocka_run_group_tests_name("weights", tests, NULL, NULL);
}
