/* test_llama2c.c - checkpoints and tokenizers of llama2.c, valid and broken. */
#include "support.h"

#include "formats/llama2c.h"
#include "formats/safetensors.h"

/* dim 4, hidden 6, 2 layers, 2 heads over 1, 5 words, 3 positions. */
static const int32_t sizes[7] = { 4, 6, 2, 2, 1, 5, 3 };

enum {
    N_LAYERS      = 2,
    LAYER_FLOATS  = 4 + 16 + 8 + 8 + 16 + 4 + 24 + 24 + 24,
    COMMON_FLOATS = 20 + N_LAYERS * LAYER_FLOATS + 4, /* embedding, layers, last norm */
    TABLE_FLOATS  = 3 + 3,                            /* cosines, sines */
    OUTPUT_FLOATS = 20,
    MAX_IMAGE     = 256 + 4 * (COMMON_FLOATS + TABLE_FLOATS + OUTPUT_FLOATS),
};

typedef struct image {
    uint8_t bytes[MAX_IMAGE];
    size_t  n_bytes;
} image;

/* The numbers after the header are 0, 1, 2 ... */
static void put_floats(image *file, size_t count)
{
    for (size_t i = 0; i < count; i++, file->n_bytes += 4) {
        float value = (float)i;
        memcpy(file->bytes + file->n_bytes, &value, 4);
    }
}

static image legacy_image(bool tied)
{
    image   file  = { .n_bytes = 28 };
    int32_t words = tied ? 5 : -5;

    memcpy(file.bytes, sizes, 28);
    memcpy(file.bytes + 20, &words, 4);
    put_floats(&file, COMMON_FLOATS + TABLE_FLOATS + (tied ? 0 : OUTPUT_FLOATS));
    return file;
}

static image version_1_image(bool tied)
{
    image    file     = { .n_bytes = 256 };
    uint32_t start[2] = { 0x616b3432, 1 };

    memcpy(file.bytes, start, 8);
    memcpy(file.bytes + 8, sizes, 28);
    file.bytes[36] = tied;
    put_floats(&file, COMMON_FLOATS + (tied ? 0 : OUTPUT_FLOATS));
    return file;
}

static hl_llama2c *accept(const image *made)
{
    hl_llama2c *file = NULL;
    assert_true(hl_llama2c_recognize(made->bytes, made->n_bytes));
    assert_ok(hl_llama2c_parse(&file, made->bytes, made->n_bytes, "x.bin"));
    return file;
}

static void refuse(const image *made, hl_status status, const char *fragment)
{
    hl_llama2c *file = (hl_llama2c *)&file;
    assert_fails(status, fragment, hl_llama2c_parse(&file, made->bytes, made->n_bytes, "x.bin"));
    assert_fails(status, "x.bin: ", status);
    assert_null(file);
}

static const hl_tensor *find_tensor(const hl_llama2c *file, const char *name)
{
    for (size_t i = 0; i < hl_llama2c_count(file); i++) {
        if (strcmp(hl_llama2c_at(file, i)->name, name) == 0)
            return hl_llama2c_at(file, i);
    }
    return NULL;
}

/* Checks a tensor of this shape whose first number is `first`. */
static void assert_tensor(const hl_llama2c *file, const char *name, int64_t rows, int64_t columns,
                          int first)
{
    const hl_tensor *tensor = find_tensor(file, name);
    size_t           needed = 0;
    float            value;

    if (tensor == NULL)
        fail_msg("no %s", name);
    assert_ok(hl_tensor_bytes(&needed, tensor));
    assert_int_equal(needed, tensor->n_bytes);
    assert_int_equal(tensor->n_dims, rows == 0 ? 1 : 2);
    assert_int_equal(tensor->shape[tensor->n_dims - 1], columns);
    if (rows != 0)
        assert_int_equal(tensor->shape[0], rows);
    memcpy(&value, tensor->data, 4);
    assert_int_equal((int)value, first);
}

static void legacy_files_are_read(void **state)
{
    (void)state;
    image                    made   = legacy_image(true);
    hl_llama2c              *file   = accept(&made);
    const hl_llama2c_config *config = hl_llama2c_config_of(file);

    assert_int_equal(config->version, 0);
    assert_true(config->d_model == 4 && config->d_mlp == 6 && config->n_layers == 2);
    assert_true(config->n_heads == 2 && config->n_kv_heads == 1 && config->d_vocab == 5);
    assert_true(config->n_ctx == 3 && config->tied);
    assert_int_equal(hl_llama2c_count(file), 2 + 9 * 2);
    assert_tensor(file, "model.embed_tokens.weight", 5, 4, 0);
    assert_tensor(file, "model.layers.0.input_layernorm.weight", 0, 4, 20);
    assert_tensor(file, "model.layers.1.input_layernorm.weight", 0, 4, 24);
    assert_tensor(file, "model.layers.0.self_attn.q_proj.weight", 4, 4, 28);
    assert_tensor(file, "model.layers.1.self_attn.k_proj.weight", 2, 4, 68);
    assert_tensor(file, "model.layers.0.self_attn.v_proj.weight", 2, 4, 76);
    assert_tensor(file, "model.layers.0.self_attn.o_proj.weight", 4, 4, 92);
    assert_tensor(file, "model.layers.0.post_attention_layernorm.weight", 0, 4, 124);
    assert_tensor(file, "model.layers.0.mlp.gate_proj.weight", 6, 4, 132);
    assert_tensor(file, "model.layers.0.mlp.down_proj.weight", 4, 6, 180);
    assert_tensor(file, "model.layers.1.mlp.up_proj.weight", 6, 4, 252);
    assert_tensor(file, "model.norm.weight", 0, 4, 276);
    assert_null(find_tensor(file, "lm_head.weight"));
    assert_null(hl_llama2c_at(file, hl_llama2c_count(file)));
    hl_llama2c_close(file);
    hl_llama2c_close(NULL);

    made = legacy_image(false);
    file = accept(&made);
    assert_false(hl_llama2c_config_of(file)->tied);
    assert_int_equal(hl_llama2c_config_of(file)->d_vocab, 5);
    assert_tensor(file, "lm_head.weight", 5, 4, COMMON_FLOATS + TABLE_FLOATS);
    hl_llama2c_close(file);
}

static void version_1_files_are_read(void **state)
{
    (void)state;
    image       made = version_1_image(false);
    hl_llama2c *file = accept(&made);

    assert_int_equal(hl_llama2c_config_of(file)->version, 1);
    assert_int_equal(hl_llama2c_count(file), 3 + 9 * 2);
    assert_tensor(file, "model.layers.1.input_layernorm.weight", 0, 4, 4);
    assert_tensor(file, "model.layers.0.post_attention_layernorm.weight", 0, 4, 8);
    assert_tensor(file, "model.norm.weight", 0, 4, 16);
    assert_tensor(file, "model.embed_tokens.weight", 5, 4, 20);
    assert_tensor(file, "model.layers.0.self_attn.q_proj.weight", 4, 4, 40);
    assert_tensor(file, "lm_head.weight", 5, 4, COMMON_FLOATS);
    hl_llama2c_close(file);
    made = version_1_image(true);
    file = accept(&made);
    assert_true(hl_llama2c_config_of(file)->tied);
    hl_llama2c_close(file);
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        image made = kind < 2 ? legacy_image(kind == 0) : version_1_image(kind == 2);
        for (size_t n = 0; n <= made.n_bytes + 1; n++) {
            hl_llama2c *file = NULL;
            uint8_t    *cut  = calloc(1, n > 0 ? n : 1);
            assert_non_null(cut);
            memcpy(cut, made.bytes, n < made.n_bytes ? n : made.n_bytes);
            hl_status wanted = n == made.n_bytes ? HL_OK : HL_BAD_INPUT;
            assert_int_equal(hl_llama2c_parse(&file, cut, n, "x"), wanted);
            hl_llama2c_close(file);
            if (kind < 2)
                assert_int_equal(hl_llama2c_recognize(cut, n), n == made.n_bytes);
            free(cut);
        }
    }
}

static void refuse_size(int which, int32_t value, const char *fragment)
{
    image made = legacy_image(true);
    memcpy(made.bytes + 4 * which, &value, 4);
    refuse(&made, HL_BAD_INPUT, fragment);
    made = version_1_image(true);
    memcpy(made.bytes + 8 + 4 * which, &value, 4);
    refuse(&made, HL_BAD_INPUT, fragment);
}

static void impossible_sizes_are_refused(void **state)
{
    (void)state;
    refuse_size(0, 0, "dim is 0");
    refuse_size(0, 3, "dim 3 does not make 2 heads of even size");
    refuse_size(0, 6, "heads of even size");
    refuse_size(1, -1, "hidden_dim is -1");
    refuse_size(2, INT32_MAX, "n_layers is 2147483647, at most 4096");
    refuse_size(3, 0, "n_heads is 0");
    refuse_size(4, 3, "n_heads 2 is not a multiple of n_kv_heads 3");
    refuse_size(5, 0, "vocab_size is 0");
    refuse_size(6, 0, "n_ctx is 0");
    refuse_size(5, INT32_MAX, "the header asks for");

    image         made    = version_1_image(true);
    const int32_t huge[7] = { INT32_MAX - 1, INT32_MAX, 4096, 1, 1, INT32_MAX, INT32_MAX };
    memcpy(made.bytes + 8, huge, 28);
    refuse(&made, HL_BAD_INPUT, "the header asks for 18446744073709551615");
    made.bytes[4] = 2;
    refuse(&made, HL_UNSUPPORTED, "llama2.c version 2 is not read; export it with --version 1");
}

static void other_files_are_not_recognized(void **state)
{
    (void)state;
    assert_false(hl_llama2c_recognize((const uint8_t *)"GGUF", 4));
    assert_false(hl_llama2c_recognize((const uint8_t *)"PK\3\4 and so on and so on and so on", 36));
    assert_false(hl_llama2c_recognize((const uint8_t *)"", 0));
}

/* ---------------------------------------------------------------- tokenizer */

static const uint8_t words[] = { 3, 0, 0,    0, /* length of the longest piece */
                                 0, 0, 0,    0,    1, 0, 0, 0, 'a', 0,   0,
                                 0, 0, 0,    0,    0, 0, /* an empty piece */
                                 0, 0, 0x80, 0x3f, 3, 0, 0, 0, 'x', 'y', 'z' };

static void tokenizers_are_read(void **state)
{
    (void)state;
    hl_llama2c_tokenizer *tokenizer = NULL;

    assert_ok(hl_llama2c_tokenizer_parse(&tokenizer, words, sizeof words, "tokenizer.bin"));
    assert_int_equal(hl_llama2c_tokenizer_count(tokenizer), 3);
    assert_int_equal(hl_llama2c_tokenizer_at(tokenizer, 0)->bytes[0], 'a');
    assert_int_equal(hl_llama2c_tokenizer_at(tokenizer, 1)->n_bytes, 0);
    const hl_llama2c_piece *piece = hl_llama2c_tokenizer_at(tokenizer, 2);
    assert_int_equal(piece->n_bytes, 3);
    assert_memory_equal(piece->bytes, "xyz", 3);
    assert_true(piece->score == 1.0f);
    assert_null(hl_llama2c_tokenizer_at(tokenizer, 3));
    hl_llama2c_tokenizer_close(tokenizer);
    hl_llama2c_tokenizer_close(NULL);
}

static void broken_tokenizers_are_refused(void **state)
{
    (void)state;
    hl_llama2c_tokenizer *tokenizer = NULL;
    uint8_t               bent[sizeof words];

    for (size_t n = 0; n < sizeof words; n++) {
        uint8_t *cut = malloc(n > 0 ? n : 1);
        assert_non_null(cut);
        memcpy(cut, words, n);
        bool whole = n == 13 || n == 21; /* true at the end of a piece */
        assert_int_equal(hl_llama2c_tokenizer_parse(&tokenizer, cut, n, "x"),
                         whole ? HL_OK : HL_BAD_INPUT);
        hl_llama2c_tokenizer_close(tokenizer);
        free(cut);
    }
    memcpy(bent, words, sizeof words);
    bent[8] = 4;
    assert_fails(HL_BAD_INPUT, "x: piece 0: 4 bytes long, the longest has 3",
                 hl_llama2c_tokenizer_parse(&tokenizer, bent, sizeof bent, "x"));
    memset(bent + 8, 255, 4);
    assert_fails(HL_BAD_INPUT, "piece 0: -1 bytes long",
                 hl_llama2c_tokenizer_parse(&tokenizer, bent, sizeof bent, "x"));
    assert_null(tokenizer);
}

/* --------------------------------------------------------------- real files */

/* Row `row` of q_proj or k_proj on Hugging Face is this row of the checkpoint: there the halves of
 * a head are rotated together, in the checkpoint neighbors are. */
static int64_t rotated_row(int64_t row, int64_t d_head)
{
    int64_t head = row / d_head, in_head = row % d_head;
    return head * d_head + in_head % (d_head / 2) * 2 + in_head / (d_head / 2);
}

static void assert_twin(const hl_tensor *ours, const hl_tensor *twin)
{
    bool   rotated = strstr(ours->name, "q_proj") != NULL || strstr(ours->name, "k_proj") != NULL;
    size_t n_row   = ours->n_bytes / (size_t)ours->shape[0];

    assert_int_equal(ours->n_dims, twin->n_dims);
    assert_int_equal(ours->n_bytes, twin->n_bytes);
    for (int64_t row = 0; row < ours->shape[0]; row++) {
        int64_t from = rotated ? rotated_row(row, 8) : row;
        assert_memory_equal((const char *)twin->data + (size_t)row * n_row,
                            (const char *)ours->data + (size_t)from * n_row, n_row);
    }
}

static void real_checkpoints_equal_their_twin(void **state)
{
    static const char *const files[] = { "stories260K.bin", "stories260K_v1.bin" };
    hl_safetensors          *twin    = NULL;
    (void)state;

    if (access(in_shared("models/stories260K/stories260K.bin"), F_OK) != 0)
        skip();
    assert_ok(
        hl_safetensors_open(&twin, in_shared("models/stories260K/derived-hf/model.safetensors")));
    for (int i = 0; i < 2; i++) {
        hl_llama2c *file = NULL;
        char        path[64];
        snprintf(path, sizeof path, "models/stories260K/%s", files[i]);
        assert_ok(hl_llama2c_open(&file, in_shared(path)));
        assert_int_equal(hl_llama2c_count(file), hl_safetensors_count(twin));
        for (size_t t = 0; t < hl_llama2c_count(file); t++) {
            const hl_tensor *ours = hl_llama2c_at(file, t);
            assert_non_null(hl_safetensors_find(twin, ours->name));
            assert_twin(ours, hl_safetensors_find(twin, ours->name));
        }
        hl_llama2c_close(file);
    }
    hl_safetensors_close(twin);
}

static void a_real_tokenizer_is_read(void **state)
{
    hl_llama2c_tokenizer *tokenizer = NULL;
    (void)state;

    if (access(in_shared("models/stories260K/tok512.bin"), F_OK) != 0)
        skip();
    assert_ok(hl_llama2c_tokenizer_open(&tokenizer, in_shared("models/stories260K/tok512.bin")));
    assert_int_equal(hl_llama2c_tokenizer_count(tokenizer), 512);
    assert_memory_equal(hl_llama2c_tokenizer_at(tokenizer, 0)->bytes, "<unk>", 5);
    assert_true(hl_llama2c_tokenizer_at(tokenizer, 511)->score == -252.0f);
    hl_llama2c_tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(legacy_files_are_read),
        cmocka_unit_test(version_1_files_are_read),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(other_files_are_not_recognized),
        cmocka_unit_test(tokenizers_are_read),
        cmocka_unit_test(broken_tokenizers_are_refused),
        cmocka_unit_test(real_checkpoints_equal_their_twin),
        cmocka_unit_test(a_real_tokenizer_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
