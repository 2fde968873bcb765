/* test_bad_models.c - models with one error in each tensor in turn: it is missing, has one row too
 * few, or holds a NaN.  Also experts stored as MXFP4 in two tensors, a valid but rare form. */
#include "model_support.h"

#include <math.h>

#include "base/dtype.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "formats/tensors.h"

enum { N_TOKENS = 24, N_LOGITS = N_TOKENS * 256, MAX_TENSORS = 128 };

/* ------------------------------------------------------------------ wrong copies */

/* Tensors of a model, to be changed and written again. */
typedef struct copy {
    char        source[256];
    hl_tensors *tensors;
    hl_tensor   list[MAX_TENSORS];
    void       *blocks[MAX_TENSORS]; /* memory of changed tensors, or NULL */
    size_t      count;
} copy;

static void open_copy(copy *c, const char *source)
{
    memset(c, 0, sizeof *c);
    snprintf(c->source, sizeof c->source, "%s", source);
    assert_ok(hl_tensors_open(&c->tensors, c->source));
    c->count = hl_tensors_count(c->tensors);
    assert_true(c->count <= MAX_TENSORS);
    for (size_t i = 0; i < c->count; i++)
        c->list[i] = *hl_tensors_at(c->tensors, i);
}

static void close_copy(copy *c)
{
    for (size_t i = 0; i < MAX_TENSORS; i++)
        free(c->blocks[i]);
    hl_tensors_close(c->tensors);
}

/* Writes all tensors except `without`; config.json is copied with `more` added. */
static void write_copy(const char *folder, const copy *c, size_t without, const char *more)
{
    hl_safetensors_writer *writer = NULL;
    size_t                 n_bytes;
    char                  *config = read_file(in_folder(c->source, "config.json"), &n_bytes);
    char                  *end    = strrchr(config, '}');
    char                   text[8192];

    int length = snprintf(text, sizeof text, "%.*s%s}", (int)(end - config), config, more);
    assert_true(length < (int)sizeof text);
    write_file(in_folder(folder, "config.json"), text, (size_t)length);
    free(config);
    assert_ok(hl_safetensors_writer_new(&writer));
    for (size_t i = 0; i < c->count; i++) {
        if (i != without)
            hl_safetensors_add(writer, &c->list[i]);
    }
    assert_ok(hl_safetensors_write(writer, in_folder(folder, "model.safetensors")));
    hl_safetensors_writer_free(writer);
}

/* Returns a private copy of a tensor's data. */
static void *own(copy *c, size_t index)
{
    free(c->blocks[index]);
    c->blocks[index] = malloc(c->list[index].n_bytes);
    assert_non_null(c->blocks[index]);
    memcpy(c->blocks[index], c->list[index].data, c->list[index].n_bytes);
    c->list[index].data = c->blocks[index];
    return c->blocks[index];
}

static const char *shape_of(const hl_tensor *tensor, int64_t first)
{
    static char text[64];
    size_t      used = (size_t)snprintf(text, sizeof text, "[%lld", (long long)first);

    for (int i = 1; i < tensor->n_dims; i++)
        used +=
            (size_t)snprintf(text + used, sizeof text - used, ",%lld", (long long)tensor->shape[i]);
    snprintf(text + used, sizeof text - used, "]");
    return text;
}

/* Checks that the message contains all of these. */
static void expect_words(const char *a, const char *b, const char *c)
{
    const char *message = hl_error_message();
    const char *words[] = { a, b, c };

    for (int i = 0; i < 3; i++) {
        if (strstr(message, words[i]) == NULL)
            fail_msg("'%s' is not in '%s'", words[i], message);
    }
}

/* --------------------------------------------------------------------- the sweeps */

/* A bias may be missing in all layers, but not in one. */
static void each_missing_tensor_is_named(const char *source, const char *folder)
{
    static copy c;
    char        name[256];

    open_copy(&c, source);
    for (size_t i = 0; i < c.count; i++) {
        hl_model *model = NULL;
        snprintf(name, sizeof name, "tensor '%s' is missing", c.list[i].name);
        write_copy(folder, &c, i, "");
        if (hl_model_open(&model, folder) != HL_BAD_INPUT)
            fail_msg("%s: without '%s' the model opens", source, c.list[i].name);
        assert_null(model);
        expect_words(name, "wanted ", shape_of(&c.list[i], c.list[i].shape[0]));
    }
    close_copy(&c);
}

static void each_misshaped_tensor_is_named(const char *source, const char *folder)
{
    static copy c;
    char        name[256], wanted[96];

    open_copy(&c, source);
    for (size_t i = 0; i < c.count; i++) {
        hl_tensor before = c.list[i];
        hl_model *model  = NULL;

        snprintf(name, sizeof name, "tensor '%s' has shape ", before.name);
        snprintf(wanted, sizeof wanted, "wanted %s", shape_of(&before, before.shape[0]));
        c.list[i].n_bytes -= before.n_bytes / (size_t)before.shape[0];
        c.list[i].shape[0]--;
        write_copy(folder, &c, MAX_TENSORS, "");
        hl_status status = hl_model_open(&model, folder);
        assert_int_equal(status, HL_BAD_INPUT);
        expect_words(name, shape_of(&before, before.shape[0] - 1), wanted);
        c.list[i] = before;
    }
    close_copy(&c);
}

static int64_t layer_of(const char *name)
{
    const char *at    = strstr(name, "layers.");
    long long   layer = -1;

    if (at != NULL)
        sscanf(at, "layers.%lld", &layer);
    return layer;
}

/* Damages element 0 of a tensor; for the embedding it belongs to token 0, which is fed. */
static void each_nan_is_found(const char *source, const char *folder)
{
    static copy   c;
    const int64_t tokens[3] = { 0, 5, 9 };
    char          name[256], layer[32];

    open_copy(&c, source);
    for (size_t i = 0; i < c.count; i++) {
        hl_tensor   before  = c.list[i];
        hl_model   *model   = NULL;
        hl_session *session = NULL;

        memset(own(&c, i), 0xff, hl_dtype_bits(before.dtype) / 8); /* bytes of 0xff are NaN in F32,
                                                                    * F16 and BF16 */
        write_copy(folder, &c, MAX_TENSORS, "");
        assert_ok(hl_model_open(&model, folder));
        hl_status status = hl_session_open(
            &session, model, &(hl_session_options){ .wants = HL_WANT_LAST_LOGITS, .n_ctx = 8 });
        if (status == HL_OK)
            status = hl_session_feed(session, &(hl_feed){ .tokens = tokens, .n_tokens = 3 });
        snprintf(name, sizeof name, "tensor '%s' has a NaN or infinite value", before.name);
        expect_words(in_folder(folder, "model.safetensors: "), name, "");
        snprintf(layer, sizeof layer, "layer %lld: ", (long long)layer_of(before.name));
        if (status != HL_BAD_INPUT)
            fail_msg("%s: a NaN was not noticed", before.name);
        expect_words(name, "in row 0", layer_of(before.name) >= 0 ? layer : "");
        hl_session_close(session);
        hl_model_close(model);
        c.list[i] = before;
    }
    close_copy(&c);
}

static void each_tensor_counts(void **state)
{
    static const char *const sources[] = { "tests/data/families/llama3",
                                           "tests/data/families/gpt_neox" };
    const char              *folder    = new_folder();
    (void)state;

    for (size_t i = 0; i < 2; i++) {
        each_missing_tensor_is_named(sources[i], folder);
        each_misshaped_tensor_is_named(sources[i], folder);
        each_nan_is_found(sources[i], folder);
    }
    remove_folder(folder);
}

/* ------------------------------------------------------------------------- GGUF */

/* Writes the file without one tensor, or with another architecture. */
static void write_gguf(const char *path, const char *without, const char *architecture)
{
    hl_gguf        *file   = NULL;
    hl_gguf_writer *writer = NULL;

    assert_ok(hl_gguf_open(&file, "tests/data/gguf/llama3.gguf"));
    assert_ok(hl_gguf_writer_new(&writer));
    for (size_t i = 0; i < hl_gguf_n_values(file); i++) {
        const hl_gguf_value *value = hl_gguf_value_at(file, i);
        if (architecture != NULL && strcmp(value->key, "general.architecture") == 0)
            hl_gguf_add_text(writer, value->key, architecture);
        else
            hl_gguf_add_value(writer, value);
    }
    for (size_t i = 0; i < hl_gguf_count(file); i++) {
        if (without == NULL || strcmp(hl_gguf_at(file, i)->name, without) != 0)
            hl_gguf_add_tensor(writer, hl_gguf_at(file, i));
    }
    assert_ok(hl_gguf_write(writer, path));
    hl_gguf_writer_free(writer);
    hl_gguf_close(file);
}

static void gguf_files_say_what_is_wrong(void **state)
{
    hl_model   *model  = NULL;
    const char *folder = new_folder();
    char        path[128];
    (void)state;

    snprintf(path, sizeof path, "%s/x.gguf", folder);
    write_gguf(path, "blk.1.attn_k.weight", NULL);
    assert_fails(HL_BAD_INPUT, "tensor 'blk.1.attn_k.weight' is missing, wanted [32,64] (attn.k",
                 hl_model_open(&model, path));
    write_gguf(path, NULL, "mamba");
    assert_fails(HL_UNSUPPORTED, "general.architecture 'mamba' is not one that headlight knows",
                 hl_model_open(&model, path));
    expect_words("doc/families.md", "headlight measure --attn FILE", "");
    assert_null(model);
    write_gguf(path, NULL, "qwen3noe");
    assert_fails(HL_UNSUPPORTED, "knows; the nearest is 'qwen3moe'.", hl_model_open(&model, path));
    remove_folder(folder);
}

/* Weights that are finite, but so large that scores overflow: the run has diverged. */
static void a_text_ends_where_attention_is_not_finite(void **state)
{
    static copy   c;
    const char   *folder    = new_folder();
    const int64_t tokens[3] = { 0, 5, 9 };
    hl_model     *model     = NULL;
    hl_session   *session   = NULL;
    hl_generator *generator = NULL;
    hl_generated  token;
    bool          found = false;
    (void)state;

    open_copy(&c, "tests/data/families/phi3");
    for (size_t i = 0; i < c.count; i++) {
        if (strcmp(c.list[i].name, "model.layers.1.self_attn.qkv_proj.weight") != 0)
            continue;
        found         = true;
        size_t count  = (size_t)hl_tensor_count(&c.list[i]);
        float *values = c.blocks[i] = malloc(count * sizeof *values);
        assert_non_null(values);
        for (size_t at = 0; at < count; at++)
            values[at] = 1e38f;
        c.list[i].dtype   = HL_DTYPE_F32;
        c.list[i].data    = values;
        c.list[i].n_bytes = count * sizeof *values;
    }
    assert_true(found);
    write_copy(folder, &c, MAX_TENSORS, "");
    assert_ok(hl_model_open(&model, folder));
    assert_ok(hl_session_open(&session, model,
                              &(hl_session_options){ .wants = HL_WANT_LAST_LOGITS, .n_ctx = 8 }));
    assert_ok(hl_generator_open(&generator, session, &(hl_generate_options){ .max_tokens = 4 }));
    hl_status status = hl_generator_prompt(generator, tokens, 3);
    if (status == HL_OK)
        status = hl_generator_next(&token, generator);
    assert_int_equal(status, HL_BAD_INPUT);
    expect_words(folder, "attention is NaN", "");
    hl_generator_close(generator);
    hl_session_close(session);
    hl_model_close(model);
    close_copy(&c);
    remove_folder(folder);
}

static void unknown_families_get_the_nearest_one(void **state)
{
    hl_model   *model  = NULL;
    const char *folder = new_folder();
    size_t      n_bytes;
    char       *config = read_file("tests/data/families/phi3/config.json", &n_bytes);
    char       *family = strstr(config, "\"model_type\": \"phi3\"");
    size_t      n_weights;
    char       *weights = read_file("tests/data/families/phi3/model.safetensors", &n_weights);
    (void)state;

    assert_non_null(family);
    memcpy(strstr(family, "phi3"), "phi9", 4);
    write_file(in_folder(folder, "config.json"), config, n_bytes);
    write_file(in_folder(folder, "model.safetensors"), weights, n_weights);
    assert_int_equal(hl_model_open(&model, folder), HL_UNSUPPORTED);
    expect_words(
        "config.json: model_type 'phi9' is not a family that headlight knows; the nearest is "
        "'phi'.",
        "doc/families.md", "headlight measure --attn FILE");
    free(config);
    free(weights);
    remove_folder(folder);
}

/* ------------------------------------------------------------------------ MXFP4 */

#define MXFP4 ",\"quantization_config\":{\"quant_method\":\"mxfp4\"}"

static const float fp4[8] = { 0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f };

/* Returns the code of the nearest value; bit 3 is the sign. */
static uint8_t fp4_code(float value)
{
    uint8_t best = 0;

    for (uint8_t i = 1; i < 8; i++) {
        if (fabsf(fabsf(value) - fp4[i]) < fabsf(fabsf(value) - fp4[best]))
            best = i;
    }
    return value < 0.0f ? best | 8 : best;
}

/* Quantizes experts (E, in, out) to blocks (E, out, in/32, 16) and scales (E, out, in/32), and
 * stores the decoded values back into `weights`. */
static void quantize(uint8_t *blocks, uint8_t *scales, float *weights, const int64_t *shape)
{
    int64_t n_in = shape[1], n_out = shape[2];

    for (int64_t group = 0; group < shape[0] * n_out * (n_in / 32); group++) {
        int64_t expert = group / (n_out * (n_in / 32));
        int64_t out    = group / (n_in / 32) % n_out;
        int64_t first  = group % (n_in / 32) * 32;
        float  *column = weights + expert * n_in * n_out + first * n_out + out;
        float   most   = 0.0f;

        for (int i = 0; i < 32; i++)
            most = fmaxf(most, fabsf(column[i * n_out]));
        int exponent  = most > 0.0f ? (int)floorf(log2f(most)) - 2 : 0;
        scales[group] = (uint8_t)(exponent + 127);
        for (int i = 0; i < 32; i++) {
            uint8_t  code     = fp4_code(ldexpf(column[i * n_out], -exponent));
            uint8_t *byte     = &blocks[group * 16 + i / 2];
            *byte             = i % 2 == 0 ? code : (uint8_t)(*byte | code << 4);
            column[i * n_out] = ldexpf(code >= 8 ? -fp4[code - 8] : fp4[code], exponent);
        }
    }
}

/* Replaces the tensor at `index` by two in `packed`, and rounds its values in `plain`. */
static void pack_experts(copy *packed, copy *plain, size_t index, char names[2][128])
{
    hl_tensor *tensor = &packed->list[index];
    int64_t    shape[3];
    size_t     n_blocks = tensor->n_bytes / sizeof(float) / 32;
    uint8_t   *blocks   = calloc(n_blocks, 16);
    uint8_t   *scales   = calloc(n_blocks, 1);

    assert_true(tensor->n_dims == 3 && tensor->dtype == HL_DTYPE_F32 && blocks && scales);
    memcpy(shape, tensor->shape, sizeof shape);
    quantize(blocks, scales, own(plain, index), shape);
    snprintf(names[0], 128, "%s_blocks", tensor->name);
    snprintf(names[1], 128, "%s_scales", tensor->name);
    *tensor = (hl_tensor){ names[0], HL_DTYPE_U8,  4, { shape[0], shape[2], shape[1] / 32, 16 },
                           blocks,   n_blocks * 16 };
    assert_true(packed->count < MAX_TENSORS);
    packed->list[packed->count] =
        (hl_tensor){ names[1], HL_DTYPE_U8, 3, { shape[0], shape[2], shape[1] / 32 },
                     scales,   n_blocks };
    packed->blocks[index]           = blocks;
    packed->blocks[packed->count++] = scales;
}

static hl_status keep_logits(void *context, const hl_final_rows *rows)
{
    memcpy((float *)context + rows->start * rows->d_vocab, rows->logits,
           (size_t)(rows->n_rows * rows->d_vocab) * sizeof(float));
    return HL_OK;
}

/* Feeds n_chunk tokens at a time: many rows and single rows take different paths. */
static void run_model(float *logits, const char *folder, int64_t n_chunk)
{
    int64_t     tokens[N_TOKENS];
    hl_model   *model   = open_model(folder);
    hl_session *session = NULL;
    hl_tap      tap     = { .context = logits, .final = keep_logits, .wants = HL_WANT_LOGITS };

    for (int i = 0; i < N_TOKENS; i++)
        tokens[i] = (i * 37 + 5) % 200;
    assert_ok(hl_session_open(&session, model, &(hl_session_options){ .wants = HL_WANT_LOGITS }));
    for (int64_t i = 0; i < N_TOKENS; i += n_chunk)
        assert_ok(hl_session_feed(
            session, &(hl_feed){ .tokens = tokens + i, .n_tokens = n_chunk, .tap = &tap }));
    hl_session_close(session);
    hl_model_close(model);
}

/* Returns the largest difference, in units of the largest logit. */
static double difference(const float *a, const float *b)
{
    double largest = 0.0, worst = 0.0;

    for (int i = 0; i < N_LOGITS; i++) {
        largest = fmax(largest, fabs(a[i]));
        worst   = fmax(worst, fabs(a[i] - b[i]));
    }
    assert_true(largest > 0.1);
    return worst / largest;
}

/* Products of single rows are summed in double, so the results must be equal.  Products of many
 * rows come from sgemm, which sums in a different order for each layout; then both must be about
 * equally accurate. */
static void compare_runs(const char *folder, const copy *plain, const copy *packed)
{
    static float exact[N_LOGITS], plain_rows[N_LOGITS], packed_rows[N_LOGITS];

    write_copy(folder, plain, MAX_TENSORS, "");
    run_model(exact, folder, 1);
    run_model(plain_rows, folder, N_TOKENS);
    write_copy(folder, packed, MAX_TENSORS, MXFP4);
    run_model(packed_rows, folder, 1);
    double by_token = difference(exact, packed_rows);
    run_model(packed_rows, folder, N_TOKENS);
    double plain_error  = difference(exact, plain_rows);
    double packed_error = difference(exact, packed_rows);

    print_message("# by token they differ by %.1e; rounding %.1e, as MXFP4 %.1e\n", by_token,
                  plain_error, packed_error);
    assert_true(by_token <= 1e-6);
    assert_true(packed_error <= 2.0 * plain_error + 1e-7);
}

static void mxfp4_experts_are_their_values(void **state)
{
    static copy packed, plain;
    static char names[16][2][128];
    size_t      n_packed = 0;
    (void)state;

    if (!path_exists(in_shared("golden/families/gpt_oss")))
        skip();
    const char *folder = new_folder();
    open_copy(&packed, in_shared("golden/families/gpt_oss"));
    open_copy(&plain, packed.source);
    for (size_t i = 0; i < plain.count; i++) {
        const char *name = plain.list[i].name;
        if (strstr(name, "experts.") != NULL && strstr(name, "_bias") == NULL)
            pack_experts(&packed, &plain, i, names[n_packed++]);
    }
    assert_int_equal(n_packed, 6);
    compare_runs(folder, &plain, &packed);

    /* The scales are required too. */
    hl_model *model = NULL;
    write_copy(folder, &packed, packed.count - 1, MXFP4);
    assert_fails(HL_BAD_INPUT, "has no scales beside it", hl_model_open(&model, folder));
    close_copy(&packed);
    close_copy(&plain);
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_tensor_counts),
        cmocka_unit_test(gguf_files_say_what_is_wrong),
        cmocka_unit_test(a_text_ends_where_attention_is_not_finite),
        cmocka_unit_test(unknown_families_get_the_nearest_one),
        cmocka_unit_test(mxfp4_experts_are_their_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
