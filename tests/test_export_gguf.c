/* test_export_gguf.c - models written as GGUF and read back: the same logits in f32, and as close
 * as eight bits allow in Q8_0.  Names, types and order of rows are compared with those of
 * llama.cpp's converter. */
#include "model_support.h"

#include <math.h>

#include "base/json.h"
#include "formats/safetensors.h"
#include "model/export_gguf.h"
#include "tokenize/vocab_source.h"

enum { N_TOKENS = 24, MAX_VOCAB = 512 };

typedef struct run {
    float   logits[N_TOKENS * MAX_VOCAB];
    int64_t d_vocab;
} run;

static hl_status keep_logits(void *context, const hl_final_rows *rows)
{
    run *r = context;

    r->d_vocab = rows->d_vocab;
    memcpy(r->logits + rows->start * rows->d_vocab, rows->logits,
           (size_t)(rows->n_rows * rows->d_vocab) * sizeof(float));
    return HL_OK;
}

static void run_model(run *out, const char *path)
{
    int64_t     tokens[N_TOKENS];
    hl_model   *model   = open_model(path);
    hl_session *session = NULL;
    hl_tap      tap     = { .context = out, .final = keep_logits, .wants = HL_WANT_LOGITS };

    assert_true(hl_model_get_info(model)->d_vocab <= MAX_VOCAB);
    for (int i = 0; i < N_TOKENS; i++)
        tokens[i] = (i * 37 + 5) % 200;
    assert_ok(hl_session_open(&session, model, &(hl_session_options){ .wants = HL_WANT_LOGITS }));
    assert_ok(hl_session_feed(session,
                              &(hl_feed){ .tokens = tokens, .n_tokens = N_TOKENS, .tap = &tap }));
    hl_session_close(session);
    hl_model_close(model);
}

/* Checks that tests write only to their own folder. */
static void assert_ours(const char *path)
{
    assert_int_equal(strncmp(path, "/tmp/", 5), 0);
}

static void write_gguf(const char *out, const char *from, hl_dtype dtype)
{
    assert_ours(out);
    hl_model       *model = open_model(from);
    hl_gguf_export *file  = NULL;

    assert_ok(hl_gguf_export_new(&file, model, NULL, dtype));
    hl_gguf_export_token_ids(file);
    assert_ok(hl_gguf_export_write(file, out));
    hl_gguf_export_free(file);
    hl_model_close(model);
}

/* Returns the largest difference, in units of the largest logit. */
static double difference(const run *a, const run *b)
{
    double worst = 0.0, largest = 0.0;

    assert_int_equal(a->d_vocab, b->d_vocab);
    for (int64_t i = 0; i < N_TOKENS * a->d_vocab; i++) {
        worst   = fmax(worst, fabs((double)a->logits[i] - (double)b->logits[i]));
        largest = fmax(largest, fabs((double)a->logits[i]));
    }
    return worst / largest;
}

/* A value of Q8_0 is within half a step; a step is the block's largest value over 127, rounded to
 * f16.  Rows whose length is not a multiple of 32 are stored as f16. */
static void check_weight(const hl_weight *before, const hl_weight *after, const char *what)
{
    float  *a       = read_weight(before);
    float  *b       = read_weight(after);
    int64_t n       = before->n_columns;
    bool    blocks  = n % 32 == 0 && n > 1;
    float   largest = 0.0f;

    assert_int_equal(after->n_rows, before->n_rows);
    assert_int_equal(after->n_columns, n);
    for (int64_t i = 0; i < before->n_rows * n; i++) {
        if (blocks && i % 32 == 0) {
            largest = 0.0f;
            for (int64_t k = i; k < i + 32; k++)
                largest = fmaxf(largest, fabsf(a[k]));
        }
        float allowed = blocks ? largest / 254.0f + largest * 0x1p-11f : fabsf(a[i]) * 0x1p-11f;
        if (!(fabsf(a[i] - b[i]) <= allowed * 1.001f + 1e-7f))
            fail_msg("%s [%d]: %g became %g", what, (int)i, a[i], b[i]);
    }
    free(a);
    free(b);
}

static void check_q8(const char *from, const char *path)
{
    write_gguf(path, from, HL_DTYPE_Q8_0);
    hl_model *before = open_model(from);
    hl_model *after  = open_model(path);
    int       count  = 0;

    for (int64_t layer = -1; layer < before->config->n_layers; layer++) {
        for (hl_role role = 0; role < HL_N_ROLES; role++) {
            if (hl_role_is_of_layer(role) != (layer >= 0))
                continue;
            const hl_param *a = hl_weights_get(before->weights, role, layer, 0);
            const hl_param *b = hl_weights_get(after->weights, role, layer, 0);
            assert_int_equal(a == NULL, b == NULL);
            if (a == NULL)
                continue;
            check_weight(&a->weight, &b->weight, hl_role_name(role));
            count += b->weight.dtype == HL_DTYPE_Q8_0;
        }
    }
    assert_true(count > 7 * before->config->n_layers / 2);
    hl_model_close(before);
    hl_model_close(after);
}

static void check_round_trip(const char *from, const char *folder)
{
    static run wanted, seen;
    char       path[128];
    double     error;

    run_model(&wanted, from);
    snprintf(path, sizeof path, "%s/x.gguf", folder);
    write_gguf(path, from, HL_DTYPE_F32);
    run_model(&seen, path);
    error = difference(&wanted, &seen);
    if (error > 1e-6)
        fail_msg("%s: logits differ by %.2e", from, error);
    check_q8(from, path);
}

static void models_come_back_as_they_were(void **state)
{
    static const char *const ours[]   = { "llama3", "starcoder2" };
    static const char *const others[] = { "llama", "gpt2", "qwen2", "qwen3", "olmo2" };
    const char              *folder   = new_folder();
    (void)state;

    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        char path[1024];
        snprintf(path, sizeof path, "tests/data/families/%s", ours[i]);
        check_round_trip(path, folder);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", in_shared("golden/families"), others[i]);
        if (path_exists(path))
            check_round_trip(path, folder);
    }
    remove_folder(folder);
}

/* --------------------------------------------------------- llama.cpp's converter */

/* Checks that our file has all tensors of the other file, with the same shapes and, in f32, the
 * same numbers. */
static void compare_files(const char *ours, const char *theirs)
{
    hl_gguf *a = NULL, *b = NULL;

    assert_ok(hl_gguf_open(&a, ours));
    assert_ok(hl_gguf_open(&b, theirs));
    assert_int_equal(hl_gguf_count(a), hl_gguf_count(b));
    for (size_t i = 0; i < hl_gguf_count(b); i++) {
        const hl_tensor *wanted = hl_gguf_at(b, i);
        const hl_tensor *seen   = hl_gguf_find(a, wanted->name);

        if (seen == NULL)
            fail_msg("no tensor '%s'", wanted->name);
        assert_int_equal(seen->n_dims, wanted->n_dims);
        assert_memory_equal(seen->shape, wanted->shape, sizeof(int64_t) * (size_t)seen->n_dims);
        assert_int_equal(seen->dtype, wanted->dtype);
        if (strcmp(wanted->name, "rope_freqs.weight") == 0) {
            for (int64_t k = 0; k < wanted->shape[0]; k++)
                assert_true(
                    fabsf(((const float *)seen->data)[k] / ((const float *)wanted->data)[k] -
                          1.0f) < 1e-5f);
        } else {
            assert_memory_equal(seen->data, wanted->data, wanted->n_bytes);
        }
    }
    hl_gguf_close(a);
    hl_gguf_close(b);
}

static void tensors_are_those_of_llama_cpp(void **state)
{
    const char *folder = new_folder();
    (void)state;

    write_gguf(in_folder(folder, "x.gguf"), "tests/data/families/llama3", HL_DTYPE_BF16);
    compare_files(in_folder(folder, "x.gguf"), "tests/data/gguf/llama3.gguf");
    if (path_exists(in_shared("golden/gguf/gpt2.gguf"))) {
        write_gguf(in_folder(folder, "x.gguf"), in_shared("golden/families/gpt2"), HL_DTYPE_F32);
        compare_files(in_folder(folder, "x.gguf"), in_shared("golden/gguf/gpt2.gguf"));
    }
    remove_folder(folder);
}

/* ------------------------------------------------------------------- stories260K */

enum { N_STORY = 200, N_LAYERS = 5, N_HEADS = 8 };

static void write_story(const char *out, hl_dtype dtype)
{
    hl_model         *model = open_model(in_shared("models/stories260K/stories260K.bin"));
    hl_gguf_export   *file  = NULL;
    hl_llama2c_vocab *vocab = NULL;
    const char       *words = in_shared("models/stories260K/tok512.bin");

    assert_ok(hl_llama2c_vocab_open(&vocab, words));
    assert_ok(hl_gguf_export_new(&file, model, NULL, dtype));
    assert_ok(hl_gguf_add_vocab(hl_gguf_export_writer(file), hl_llama2c_vocab_source(vocab)));
    assert_ours(out);
    assert_ok(hl_gguf_export_write(file, out));
    hl_llama2c_vocab_close(vocab);
    hl_gguf_export_free(file);
    hl_model_close(model);
}

typedef struct story {
    double means[N_LAYERS][N_HEADS];
    int    n_agree; /* tokens that the model would also have chosen */
    char   text[2048];
} story;

static hl_status add_entropies(void *context, const hl_layer_rows *rows)
{
    story *s = context;

    for (int64_t i = 0; i < rows->n_heads * rows->n_rows; i++)
        s->means[rows->layer][i / rows->n_rows] += (double)rows->rows->entropy[i] / N_STORY;
    return HL_OK;
}

/* Runs 200 rows: the begin token and 199 of the 200 tokens after it. */
static void tell(story *out, const char *path)
{
    hl_model           *model     = open_model(path);
    hl_tokenizer       *tokenizer = NULL;
    hl_session         *session   = NULL;
    hl_generator       *generator = NULL;
    hl_decode_stream   *stream    = NULL;
    hl_generated        token     = { 0 };
    int64_t             begin     = hl_model_get_info(model)->bos_id;
    hl_tap              tap       = { .context = out, .layer = add_entropies };
    hl_session_options  sizes     = { .n_ctx = 256, .wants = HL_WANT_LAST_LOGITS, .n_threads = 1 };
    hl_generate_options options   = { .max_tokens = N_STORY, .tap = &tap };
    size_t              used      = 0;

    memset(out, 0, sizeof *out);
    assert_ok(hl_tokenizer_open(&tokenizer, path));
    assert_ok(hl_session_open(&session, model, &sizes));
    assert_ok(hl_generator_open(&generator, session, &options));
    assert_ok(hl_decode_stream_open(&stream, tokenizer, &(hl_decode_options){ true }));
    assert_ok(hl_generator_prompt(generator, &begin, 1));
    while (token.stop == HL_STOP_NONE) {
        const char *text;
        size_t      n_bytes;
        assert_ok(hl_generator_next(&token, generator));
        assert_ok(hl_decode_stream_push(&text, &n_bytes, stream, token.id));
        memcpy(out->text + used, text, n_bytes);
        used += n_bytes;
        assert_true(used < sizeof out->text - 64);
    }
    assert_int_equal(token.stop, HL_STOP_LENGTH);
    hl_decode_stream_close(stream);
    hl_generator_close(generator);
    hl_session_close(session);
    hl_tokenizer_close(tokenizer);
    hl_model_close(model);
}

/* Eight bits change a word sooner or later, and then all words after it.  So the golden text is
 * fed, and the heads are compared on the same tokens. */
static void read_out(story *out, const char *path, const json_t *ids)
{
    hl_model          *model   = open_model(path);
    hl_session        *session = NULL;
    hl_tap             tap     = { .context = out, .layer = add_entropies };
    hl_session_options options = { .n_ctx = 256, .wants = HL_WANT_LAST_LOGITS, .n_threads = 1 };

    memset(out, 0, sizeof *out);
    assert_ok(hl_session_open(&session, model, &options));
    for (size_t i = 0; i < N_STORY; i++) {
        int64_t token = json_integer_value(json_array_get(ids, i));
        int64_t top   = 0;

        assert_ok(
            hl_session_feed(session, &(hl_feed){ .tokens = &token, .n_tokens = 1, .tap = &tap }));
        const float *logits = hl_session_logits(session, 0);
        for (int64_t k = 1; k < 512; k++)
            top = logits[k] > logits[top] ? k : top;
        out->n_agree += top == json_integer_value(json_array_get(ids, i + 1));
    }
    hl_session_close(session);
    hl_model_close(model);
}

/* Returns the largest difference of the 40 heads. */
static double farthest(const story *s, const json_t *golden)
{
    const json_t *wanted = json_object_get(golden, "mean_head_entropy_nats_over_200_positions");
    double        worst  = 0.0;

    for (size_t i = 0; i < N_LAYERS * N_HEADS; i++) {
        const json_t *layer = json_array_get(wanted, i / N_HEADS);
        worst = fmax(worst, fabs(json_number_value(json_array_get(layer, i % N_HEADS)) -
                                 s->means[i / N_HEADS][i % N_HEADS]));
    }
    return worst;
}

static void our_own_file_tells_the_story(void **state)
{
    static story s;
    size_t       n_bytes;
    json_t      *golden = NULL;
    (void)state;

    if (!path_exists(in_shared("models/stories260K")))
        skip();
    const char *folder = new_folder();
    char        path[128];
    char       *text = read_file(in_shared("models/stories260K/golden_greedy.json"), &n_bytes);
    assert_ok(hl_json_parse(&golden, text, n_bytes, "golden_greedy.json"));
    free(text);
    snprintf(path, sizeof path, "%s/stories.gguf", folder);
    const char *wanted = json_string_value(json_object_get(golden, "greedy_text"));

    write_story(path, HL_DTYPE_F32);
    tell(&s, path);
    assert_string_equal(s.text, wanted);
    double error = farthest(&s, golden);
    print_message("f32: the same text, entropies within %.1e nats\n", error);
    assert_true(error <= 1e-4);

    write_story(path, HL_DTYPE_Q8_0);
    read_out(&s, path, json_object_get(golden, "greedy_token_ids_incl_bos"));
    error = farthest(&s, golden);
    print_message("Q8_0: %d of %d tokens as in the text, entropies within %.1e nats\n", s.n_agree,
                  N_STORY, error);
    assert_true(s.n_agree >= 195);
    assert_true(error <= 0.01);
    json_decref(golden);
    remove_folder(folder);
}

/* ---------------------------------------------------------------------- refused */

static void what_cannot_be_written_is_said(void **state)
{
    hl_gguf_export *file  = NULL;
    hl_model       *model = open_model("tests/data/families/phi3");
    (void)state;

    assert_fails(HL_UNSUPPORTED,
                 "a model of family phi3 cannot be written as GGUF here, only: llama",
                 hl_gguf_export_new(&file, model, NULL, HL_DTYPE_F32));
    assert_null(file);
    hl_model_close(model);
    model = open_model("tests/data/families/llama3");
    assert_fails(HL_UNSUPPORTED, "not Q6_K", hl_gguf_export_new(&file, model, NULL, HL_DTYPE_Q6_K));
    hl_model_close(model);
    if (!path_exists(in_shared("golden/families/mistral")))
        return;
    model = open_model(in_shared("golden/families/mistral"));
    assert_fails(HL_UNSUPPORTED, "layer 0 sees a window of",
                 hl_gguf_export_new(&file, model, NULL, HL_DTYPE_F32));
    hl_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_come_back_as_they_were),
        cmocka_unit_test(tensors_are_those_of_llama_cpp),
        cmocka_unit_test(our_own_file_tells_the_story),
        cmocka_unit_test(what_cannot_be_written_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
