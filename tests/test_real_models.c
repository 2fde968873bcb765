/* test_real_models.c - trained models by others, where they lie beside the checkout.
 *
 * stories260K, a Llama in four files: the text that llama2.c writes with it, token by
 * token, and the entropies of its 40 heads on the way.  gpt-nano-sort, a GPT-2 that
 * sorts: what PyTorch saw inside it.  (Its derived folder lacks c_attn.bias; the biases
 * are in gpt-nano-sort-model.json, and are put back here.) */
#include "model_support.h"

#include <math.h>

#include "base/json.h"
#include "formats/safetensors.h"

static json_t *read_json(const char *path)
{
    size_t  n_bytes;
    char   *text = read_file(path, &n_bytes);
    json_t *root = NULL;

    assert_ok(hl_json_parse(&root, text, n_bytes, path));
    free(text);
    return root;
}

/* ---------------------------------------------------------------- stories260K */

enum { N_STORY = 200, N_LAYERS = 5, N_HEADS = 8 };

typedef double head_means[N_LAYERS][N_HEADS];

static hl_status add_entropies(void *context, const hl_layer_rows *rows)
{
    double(*means)[N_HEADS] = context;

    for (int64_t i = 0; i < rows->n_heads * rows->n_rows; i++)
        means[rows->layer][i / rows->n_rows] += (double)rows->rows->entropy[i] / N_STORY;
    return HL_OK;
}

static int64_t best_token(const float *logits)
{
    int64_t best = 0;

    for (int64_t i = 1; i < 512; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static void tell_story(const char *file, const json_t *golden, hl_dtype cache_dtype,
                       double tolerance)
{
    const json_t *ids    = json_object_get(golden, "greedy_token_ids_incl_bos");
    const json_t *wanted = json_object_get(golden, "mean_head_entropy_nats_over_200_positions");
    head_means    means  = { { 0 } };
    hl_tap        tap    = { .context = means, .layer = add_entropies };
    hl_session_options options = { .n_ctx       = 256,
                                   .beyond_ctx  = true,
                                   .wants       = HL_WANT_LAST_LOGITS,
                                   .n_threads   = 1,
                                   .cache_dtype = cache_dtype };
    hl_model          *model   = open_model(in_folder(in_shared("models/stories260K"), file));
    hl_session        *session = NULL;
    int64_t            token   = 1;

    assert_ok(hl_session_open(&session, model, &options));
    for (size_t i = 0; i < N_STORY; i++) {
        assert_ok(
            hl_session_feed(session, &(hl_feed){ .tokens = &token, .n_tokens = 1, .tap = &tap }));
        token = best_token(hl_session_logits(session, 0));
        assert_int_equal(token, json_integer_value(json_array_get(ids, i + 1)));
    }
    for (size_t i = 0; i < N_LAYERS * N_HEADS; i++) {
        const json_t *layer = json_array_get(wanted, i / N_HEADS);
        double        mean  = json_number_value(json_array_get(layer, i % N_HEADS));
        if (fabs(mean - means[i / N_HEADS][i % N_HEADS]) > tolerance)
            fail_msg("%s: L%zuH%zu has %.7f nats, wanted %.7f", file, i / N_HEADS, i % N_HEADS,
                     means[i / N_HEADS][i % N_HEADS], mean);
    }
    hl_session_close(session);
    hl_model_close(model);
}

/* The golden means have six digits. */
static void stories_are_told(void **state)
{
    (void)state;
    if (!path_exists(in_shared("models/stories260K")))
        skip();
    json_t *golden = read_json(in_shared("models/stories260K/golden_greedy.json"));
    tell_story("stories260K.bin", golden, HL_DTYPE_F32, 3e-6);
    tell_story("stories260K_v1.bin", golden, HL_DTYPE_F32, 3e-6);
    tell_story("derived-hf", golden, HL_DTYPE_F32, 3e-6);
    tell_story("stories260K.gguf", golden, HL_DTYPE_F32, 3e-6);
    tell_story("stories260K.bin", golden, HL_DTYPE_F16, 3e-3);
    json_decref(golden);
}

/* -------------------------------------------------------------- gpt-nano-sort */

enum { NANO_BATCH = 3, NANO_TOKENS = 11, NANO_HEADS = 3, NANO_WIDTH = 48, NANO_VOCAB = 3 };

static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char       *place    = strchr(digits, c);
    return place != NULL && c != '\0' ? (int)(place - digits) : -1;
}

/* The floats of a tensor stored as base64; release with free. */
static float *read_partial(const json_t *partials, const char *name, size_t count)
{
    const char *text  = json_string_value(json_object_get(json_object_get(partials, name), "data"));
    uint8_t    *bytes = malloc(count * sizeof(float) + 4);
    size_t      n     = 0;
    uint32_t    bits  = 0;
    int         n_bits = 0;

    assert_true(text != NULL && bytes != NULL);
    for (; base64_digit(*text) >= 0 && n < count * sizeof(float); text++) {
        bits = bits << 6 | (uint32_t)base64_digit(*text);
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            bytes[n++] = (uint8_t)(bits >> n_bits);
        }
    }
    assert_int_equal(n, count * sizeof(float));
    return (float *)bytes;
}

#define NANO "models/gpt-nano-sort"

/* The derived folder with the biases that it lacks. */
static void complete_model(const char *folder)
{
    char                   names[3][64];
    float                 *biases[3];
    size_t                 n_bytes;
    hl_safetensors        *file   = NULL;
    hl_safetensors_writer *writer = NULL;
    json_t                *stored = read_json(in_shared(NANO "/gpt-nano-sort-model.json"));
    char                  *config = read_file(in_shared(NANO "/derived-hf/config.json"), &n_bytes);

    write_file(in_folder(folder, "config.json"), config, n_bytes);
    free(config);
    assert_ok(hl_safetensors_open(&file, in_shared(NANO "/derived-hf/model.safetensors")));
    assert_ok(hl_safetensors_writer_new(&writer));
    for (size_t i = 0; i < hl_safetensors_count(file); i++)
        hl_safetensors_add(writer, hl_safetensors_at(file, i));
    for (int i = 0; i < 3; i++) {
        snprintf(names[i], sizeof names[i], "transformer.h.%d.attn.c_attn.bias", i);
        biases[i]        = read_partial(stored, names[i], 3 * NANO_WIDTH);
        hl_tensor tensor = { names[i],           HL_DTYPE_F32, 1,
                             { 3 * NANO_WIDTH }, biases[i],    3 * NANO_WIDTH * sizeof(float) };
        hl_safetensors_add(writer, &tensor);
    }
    assert_ok(hl_safetensors_write(writer, in_folder(folder, "model.safetensors")));
    hl_safetensors_writer_free(writer);
    hl_safetensors_close(file);
    json_decref(stored);
    for (int i = 0; i < 3; i++)
        free(biases[i]);
}

static void expect_close(const float *seen, const json_t *partials, const char *name, size_t count)
{
    float *wanted = read_partial(partials, name, count);

    for (size_t i = 0; i < count; i++) {
        if (!(fabsf(seen[i] - wanted[i]) <= 1e-5f))
            fail_msg("%s[%zu] is %.8g, wanted %.8g", name, i, seen[i], wanted[i]);
    }
    free(wanted);
}

static hl_status check_block(void *context, const hl_layer_rows *rows)
{
    static const char *const blocks[] = { "block0", "block1", "block2" };
    const json_t            *partials = context;
    size_t                   n_rows   = (size_t)NANO_BATCH * NANO_TOKENS;

    if (rows->layer == 0) {
        expect_close(rows->pattern, partials, "attSm", NANO_HEADS * n_rows * NANO_TOKENS);
        expect_close(rows->z, partials, "y", n_rows * NANO_WIDTH);
        expect_close(rows->resid_pre, partials, "x", n_rows * NANO_WIDTH);
        expect_close(rows->resid_mid, partials, "attnResid", n_rows * NANO_WIDTH);
    }
    expect_close(rows->resid_post, partials, blocks[rows->layer], n_rows * NANO_WIDTH);
    return HL_OK;
}

typedef struct nano_logits {
    float values[NANO_BATCH * NANO_TOKENS * NANO_VOCAB];
} nano_logits;

static nano_logits nano_seen;

static hl_status keep_logits(void *context, const hl_final_rows *rows)
{
    (void)context;
    memcpy(nano_seen.values + (rows->sequence * NANO_TOKENS + rows->start) * NANO_VOCAB,
           rows->logits, (size_t)(rows->n_rows * NANO_VOCAB) * sizeof(float));
    return HL_OK;
}

static void sorting_is_as_pytorch_saw_it(void **state)
{
    int64_t     tokens[NANO_BATCH * NANO_TOKENS], positions[NANO_TOKENS];
    hl_session *session = NULL;
    uint32_t    wants   = HL_WANT_PATTERN | HL_WANT_Z | HL_WANT_RESID_PRE | HL_WANT_RESID_MID |
                     HL_WANT_RESID_POST | HL_WANT_LOGITS;
    (void)state;

    if (!path_exists(in_shared(NANO)))
        skip();
    json_t     *partials = read_json(in_shared(NANO "/gpt-nano-sort-t0-partials.json"));
    const char *folder   = new_folder();
    complete_model(folder);
    hl_model *model = open_model(folder);
    float    *idx   = read_partial(partials, "idx", NANO_BATCH * NANO_TOKENS);
    hl_tap    tap   = { .context             = partials,
                        .layer               = check_block,
                        .final               = keep_logits,
                        .wants               = wants,
                        .pattern_positions   = positions,
                        .n_pattern_positions = NANO_TOKENS };

    for (int i = 0; i < NANO_BATCH * NANO_TOKENS; i++)
        tokens[i] = (int64_t)idx[i];
    for (int i = 0; i < NANO_TOKENS; i++)
        positions[i] = i;
    assert_ok(hl_session_open(
        &session, model,
        &(hl_session_options){ .n_batch = NANO_BATCH, .wants = wants, .n_patterns = NANO_TOKENS }));
    assert_ok(hl_session_feed(
        session, &(hl_feed){ .tokens = tokens, .n_tokens = NANO_TOKENS, .tap = &tap }));
    expect_close(nano_seen.values, partials, "lm_head", NANO_BATCH * NANO_TOKENS * NANO_VOCAB);
    free(idx);
    hl_session_close(session);
    hl_model_close(model);
    json_decref(partials);
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stories_are_told),
        cmocka_unit_test(sorting_is_as_pytorch_saw_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
