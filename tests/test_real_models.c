/* test_real_models.c - trained models by others, if they are beside the checkout.
 *
 * stories260K, a Llama in four files: the text that llama2.c generates with it, token by token, and
 * the entropies of its 40 heads.  gpt-nano-sort, a GPT-2 that sorts: its values inside PyTorch.
 * (Its derived folder lacks c_attn.bias; the biases are in gpt-nano-sort-model.json, and are added
 * here.)  GPT-2 of 124M parameters: its scores and attention maps on five sentences, as
 * transformer-explainer stores them; its weights are missing, so only the operator is compared. */
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

/* Reads the floats of a tensor stored as base64; release with free. */
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

/* Writes the derived folder with the biases that it lacks. */
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

/* ---------------------------------------------------------------- GPT-2's maps */

enum { MAP_LAYERS = 12, MAP_HEADS = 12, MAX_KEYS = 8 };

typedef struct map {
    int64_t n; /* number of tokens */
    float   scores[MAP_HEADS][MAX_KEYS][MAX_KEYS];
    double  weights[MAP_HEADS][MAX_KEYS][MAX_KEYS];
} map;

static const json_t *map_row(const json_t *outputs, int layer, int head, const char *what,
                             size_t row)
{
    char name[64];
    snprintf(name, sizeof name, "block_%d_attn_head_%d_attn%s", layer, head, what);
    return json_array_get(json_object_get(json_object_get(outputs, name), "data"), row);
}

static void read_map(map *out, const json_t *outputs, int layer)
{
    out->n = (int64_t)json_array_size(map_row(outputs, layer, 0, "", 0));
    assert_true(out->n > 1 && out->n <= MAX_KEYS);
    for (int head = 0; head < MAP_HEADS; head++) {
        for (size_t i = 0; i < (size_t)out->n; i++) {
            const json_t *scores  = map_row(outputs, layer, head, "", i);
            const json_t *weights = map_row(outputs, layer, head, "_softmax", i);
            assert_int_equal(json_array_size(weights), out->n);
            for (size_t j = 0; j < (size_t)out->n; j++) {
                out->scores[head][i][j]  = (float)json_number_value(json_array_get(scores, j));
                out->weights[head][i][j] = json_number_value(json_array_get(weights, j));
            }
        }
    }
}

typedef struct map_rows {
    float   out[MAP_HEADS * MAX_KEYS * MAX_KEYS];
    float   entropy[MAP_HEADS * MAX_KEYS], renyi2[MAP_HEADS * MAX_KEYS];
    float   peak[MAP_HEADS * MAX_KEYS], self[MAP_HEADS * MAX_KEYS];
    float   previous[MAP_HEADS * MAX_KEYS], first[MAP_HEADS * MAX_KEYS];
    float   varentropy[MAP_HEADS * MAX_KEYS];
    int64_t argmax[MAP_HEADS * MAX_KEYS];
} map_rows;

/* With the scores as queries and unit vectors as keys, q.k is the score; with unit vectors as
 * values, the output is the map. */
static void attend(map_rows *out, const map *m)
{
    float               q[MAP_HEADS * MAX_KEYS * MAX_KEYS];
    float               unit[MAX_KEYS * MAX_KEYS] = { 0 };
    hl_attention        problem                   = { .n_batch    = 1,
                                                      .n_heads    = MAP_HEADS,
                                                      .n_kv_heads = 1,
                                                      .n_queries  = m->n,
                                                      .n_keys     = m->n,
                                                      .d_head     = m->n,
                                                      .d_value    = m->n,
                                                      .q          = { .data = q },
                                                      .k          = { .data = unit },
                                                      .v          = { .data = unit },
                                                      .flags      = HL_ATTENTION_CAUSAL | HL_ATTENTION_SCALE,
                                                      .scale      = 0.125 };
    hl_attention_result result                    = { .out        = { .data = out->out },
                                                      .entropy    = out->entropy,
                                                      .renyi2     = out->renyi2,
                                                      .varentropy = out->varentropy,
                                                      .peak       = out->peak,
                                                      .argmax     = out->argmax,
                                                      .self       = out->self,
                                                      .previous   = out->previous,
                                                      .first      = out->first };

    for (int64_t i = 0; i < m->n; i++)
        unit[i * m->n + i] = 1.0f;
    for (int64_t r = 0; r < MAP_HEADS * m->n; r++) {
        for (int64_t j = 0; j < m->n; j++)
            q[r * m->n + j] = m->scores[r / m->n][r % m->n][j];
    }
    assert_ok(hl_attention_forward(&result, &problem));
}

static void expect_near(double seen, double wanted, double tolerance, const char *what, int64_t row)
{
    if (!(fabs(seen - wanted) <= tolerance))
        fail_msg("%s of row %d is %.8f, wanted %.8f", what, (int)row, seen, wanted);
}

/* Compares all statistics of one row with the stored probabilities, in double. */
static void check_row(const map_rows *rows, const double *p, int64_t n, int64_t r, double tolerance)
{
    int64_t i = r % n, top = 0;
    double  entropy = 0.0, squares = 0.0, second = 0.0;

    for (int64_t j = 0; j <= i; j++) {
        double surprise = p[j] > 0.0 ? -log(p[j]) : 0.0;
        entropy += p[j] * surprise;
        second += p[j] * surprise * surprise;
        squares += p[j] * p[j];
        top = p[j] > p[top] ? j : top;
        expect_near(rows->out[r * n + j], p[j], tolerance, "a weight", r);
    }
    for (int64_t j = i + 1; j < n; j++)
        assert_true(rows->out[r * n + j] == 0.0f && p[j] == 0.0);
    expect_near(rows->entropy[r], entropy, tolerance, "entropy", r);
    expect_near(rows->renyi2[r], -log(squares), tolerance, "renyi2", r);
    expect_near(rows->varentropy[r], second - entropy * entropy, 10 * tolerance, "varentropy", r);
    expect_near(rows->peak[r], p[top], tolerance, "peak", r);
    expect_near(rows->self[r], p[i], tolerance, "self", r);
    expect_near(rows->previous[r], i > 0 ? p[i - 1] : 0.0, tolerance, "previous", r);
    expect_near(rows->first[r], p[0], tolerance, "first", r);
    assert_int_equal(rows->argmax[r], top);
}

/* 1e-6, or the rounding of scores in f32: 8 * 2^-24 of the largest. */
static void check_map(const map *m)
{
    static map_rows rows;
    double          largest = 0.0;

    for (int head = 0; head < MAP_HEADS; head++) {
        for (int64_t i = 0; i < m->n * m->n; i++)
            largest = fmax(largest, 0.125 * fabs(m->scores[head][i / m->n][i % m->n]));
    }
    attend(&rows, m);
    for (int64_t r = 0; r < MAP_HEADS * m->n; r++)
        check_row(&rows, m->weights[r / m->n][r % m->n], m->n, r,
                  fmax(1e-6, 8 * 0x1p-24 * largest));
}

static void maps_of_gpt2_have_the_same_statistics(void **state)
{
    static map m;
    (void)state;

    if (!path_exists(in_shared("models/gpt2-124m-reference-activations")))
        skip();
    for (int i = 0; i < 5; i++) {
        char name[64];
        snprintf(name, sizeof name, "models/gpt2-124m-reference-activations/ex%d.json", i);
        json_t *root = read_json(in_shared(name));
        for (int layer = 0; layer < MAP_LAYERS; layer++) {
            read_map(&m, json_object_get(root, "outputs"), layer);
            for (const char *const *back = hl_backend_names(); *back != NULL; back++) {
                assert_ok(hl_backend_select(*back));
                check_map(&m);
            }
        }
        json_decref(root);
    }
    assert_ok(hl_backend_select(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stories_are_told),
        cmocka_unit_test(sorting_is_as_pytorch_saw_it),
        cmocka_unit_test(maps_of_gpt2_have_the_same_statistics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
