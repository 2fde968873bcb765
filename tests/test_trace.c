/* test_trace.c - the contents of a trace, against rows processed separately; its file; and
 * locking. */
#include "analysis_support.h"
#include "model_support.h"

#include "base/memory.h"
#include "formats/safetensors.h"
#include "generate/tracer.h"
#include "stats/trace_parts.h"

#define DEMO "models/demo"

enum { N_LAYERS = 8, N_HEADS = 8, N_CTX = 256, N_TOKENS = 220, FROZEN = 130 };

/* ------------------------------------------------------------- rows by hand */

/* A tap around the tracer's. */
typedef struct watcher {
    const hl_tap *inner;
    float         before[N_LAYERS][N_HEADS][N_CTX];
    double        change[N_LAYERS][N_HEADS];
} watcher;

static hl_status watch(void *context, const hl_layer_rows *rows)
{
    watcher *w        = context;
    int64_t  position = rows->start[0];

    for (int64_t head = 0; head < rows->n_heads; head++) {
        const float *p = rows->pattern + head * rows->n_keys;
        float       *q = w->before[rows->layer][head];
        /* The previous row sums to 1 over the keys that both see; this row has its own key in
         * addition. */
        double sum = (double)p[position];
        for (int64_t key = 0; key < position; key++)
            sum += fabs((double)p[key] - (double)q[key]);
        w->change[rows->layer][head] = 0.5 * sum;
        memcpy(q, p, sizeof *p * (size_t)(position + 1));
    }
    return w->inner->layer(w->inner->context, rows);
}

static hl_session *open_session(const hl_model *model)
{
    hl_session        *session = NULL;
    hl_session_options options = { .n_ctx      = N_CTX,
                                   .n_patterns = 1,
                                   .wants      = HL_WANT_LAST_LOGITS | HL_WANT_PATTERN,
                                   .n_threads  = 1 };

    assert_ok(hl_session_open(&session, model, &options));
    return session;
}

static void test_changes_by_hand(void **state)
{
    hl_model      *model   = open_model(DEMO);
    hl_session    *session = open_session(model);
    hl_tracer     *tracer  = NULL;
    static watcher w;

    (void)state;
    assert_ok(hl_tracer_open(&tracer, model, &(hl_tracer_options){ .n_ctx = N_CTX }));
    w.inner     = hl_tracer_tap(tracer);
    hl_tap tap  = *w.inner;
    tap.layer   = watch;
    tap.context = &w;
    hl_tracer_begin(tracer, 0);
    for (int64_t i = 0; i < 12; i++) {
        int64_t token = (37 * i + 11) % 500;
        assert_ok(
            hl_session_feed(session, &(hl_feed){ .tokens = &token, .n_tokens = 1, .tap = &tap }));
        assert_ok(
            hl_tracer_add(tracer, &(hl_generated){ .id = token, .entropy = 0.5 * (double)i }));
        const hl_trace *trace = hl_tracer_trace(tracer);
        assert_int_equal(hl_trace_token(trace, i).id, token);
        for (int cell = 0; cell < N_LAYERS * N_HEADS; cell++) {
            int    layer = cell / N_HEADS, head = cell % N_HEADS;
            double change  = hl_trace_row(trace, i, layer, head, HL_TRACE_CHANGE);
            double entropy = hl_trace_row(trace, i, layer, head, HL_TRACE_ENTROPY);
            double share   = hl_trace_row(trace, i, layer, head, HL_TRACE_NORMALIZED);
            if (i == 0)
                assert_true(isnan(change) && share == 0.0);
            else
                assert_near(change, w.change[layer][head], 1e-5);
            if (i > 0)
                assert_near(share, entropy / log((double)i + 1.0), 1e-5);
        }
    }
    hl_tracer_close(tracer);
    hl_session_close(session);
    hl_model_close(model);
}

/* -------------------------------------------------------- generating, the file */

static void same_trace(const hl_trace *a, const hl_trace *b)
{
    assert_int_equal(hl_trace_n_tokens(a), hl_trace_n_tokens(b));
    for (int64_t i = 0; i < hl_trace_n_tokens(a); i++) {
        hl_generated left = hl_trace_token(a, i), right = hl_trace_token(b, i);
        assert_true(left.id == right.id);
        if (hl_trace_describe(a, i).kind == HL_KIND_GENERATED)
            assert_true(left.logprob == right.logprob && left.entropy == right.entropy &&
                        left.varentropy == right.varentropy);
        for (int which = HL_TRACE_ENTROPY; which < HL_N_TRACE_ROWS; which++)
            for (int cell = 0; cell < N_LAYERS * N_HEADS; cell++) {
                double x = hl_trace_row(a, i, cell / N_HEADS, cell % N_HEADS, (hl_trace_rows)which);
                double y = hl_trace_row(b, i, cell / N_HEADS, cell % N_HEADS, (hl_trace_rows)which);
                assert_true(x == y || (isnan(x) && isnan(y)));
            }
    }
}

/* Generates from a prompt and writes the trace to `path`. */
static void generate(const char *path, double temperature)
{
    const int64_t prompt[]  = { 41, 17, 260, 99 };
    hl_model     *model     = open_model(DEMO);
    hl_session   *session   = open_session(model);
    hl_tracer    *tracer    = NULL;
    hl_generator *generator = NULL;
    hl_generated  token     = { 0 };
    hl_trace     *read      = NULL;

    assert_ok(hl_tracer_open(&tracer, model, &(hl_tracer_options){ .n_ctx = N_CTX }));
    hl_generate_options options = { .sample     = { .temperature = temperature, .seed = 5 },
                                    .max_tokens = 200,
                                    .ignore_end = true,
                                    .tap        = hl_tracer_tap(tracer) };
    assert_ok(hl_generator_open(&generator, session, &options));
    assert_ok(hl_tracer_prompt(tracer, prompt, NULL, 4));
    assert_ok(hl_generator_prompt(generator, prompt, 4));
    while (token.stop == HL_STOP_NONE) {
        assert_ok(hl_generator_next(&token, generator));
        assert_ok(hl_tracer_add(tracer, &token));
        int64_t last = hl_trace_n_tokens(hl_tracer_trace(tracer)) - 1;
        assert_near(hl_trace_token(hl_tracer_trace(tracer), last).attention_entropy,
                    token.attention_entropy, 1e-6);
    }
    assert_ok(hl_trace_write(hl_tracer_trace(tracer), path));
    assert_ok(hl_trace_load(&read, path));
    assert_int_equal(hl_trace_n_tokens(read), 204);
    same_trace(read, hl_tracer_trace(tracer));
    hl_trace_free(read);
    /* Lines of JSON preserve every bit too. */
    char lines[256];
    snprintf(lines, sizeof lines, "%s.jsonl", path);
    assert_ok(hl_trace_write(hl_tracer_trace(tracer), lines));
    assert_ok(hl_trace_load(&read, lines));
    same_trace(read, hl_tracer_trace(tracer));
    hl_trace_free(read);
    hl_generator_close(generator);
    hl_tracer_close(tracer);
    hl_session_close(session);
    hl_model_close(model);
}

/* Replaces the finding of the profile by that of the trace on locking. */
static hl_diagnosis judge(hl_diagnoses *found, const hl_trace *trace)
{
    enum { LOCKING = 3 };

    assert_ok(hl_diagnose_trace(found, trace, NULL));
    printf("# %s: %s\n", hl_verdict_name(found->items[LOCKING].verdict),
           found->items[LOCKING].finding);
    assert_string_equal(found->items[LOCKING].name, "attention-locking");
    return found->items[LOCKING];
}

static hl_diagnoses *new_diagnoses(void)
{
    hl_diagnoses *found = NULL;
    assert_ok(hl_alloc_zeroed((void **)&found, 1, sizeof *found));
    return found;
}

static void test_plain_generation_moves(void **state)
{
    const char   *folder = new_folder();
    hl_diagnoses *found  = new_diagnoses();
    hl_trace     *trace  = NULL;

    (void)state;
    for (int i = 0; i < 2; i++) {
        generate(in_folder(folder, "text.trace"), i == 0 ? 0.0 : 0.7);
        assert_ok(hl_trace_load(&trace, in_folder(folder, "text.trace")));
        hl_diagnosis locking = judge(found, trace);
        /* The most likely tokens run into a loop, drawn ones do not. */
        assert_int_equal(locking.verdict, i == 0 ? HL_VERDICT_FOUND : HL_VERDICT_NOT_FOUND);
        assert_true(locking.value > locking.threshold);
        assert_true(i == 1 || strstr(locking.finding, "the text repeats 33 tokens, 3.0 times"));
        hl_trace_free(trace);
    }
    hl_diagnoses_free(found);
    remove_folder(folder);
}

/* ----------------------------------------------------------------- a frozen cache */

/* Decodes tokens; from `frozen` on always the same token at the same place, as if the cache had
 * stopped growing. */
static hl_tracer *decode(const hl_model *model, int n_tokens, int frozen)
{
    hl_session *session = open_session(model);
    hl_tracer  *tracer  = NULL;

    assert_ok(hl_tracer_open(&tracer, model, &(hl_tracer_options){ .n_ctx = N_CTX }));
    for (int i = 0; i < n_tokens; i++) {
        int64_t place = i < frozen ? i : frozen - 1;
        int64_t token = (place * place * 31 + 7 * place + 3) % 1000;

        if (place < i)
            assert_ok(hl_session_rewind(session, 0, place));
        hl_tracer_begin(tracer, place);
        hl_feed feed = { .tokens = &token, .n_tokens = 1, .tap = hl_tracer_tap(tracer) };
        assert_ok(hl_session_feed(session, &feed));
        assert_ok(hl_tracer_add(tracer, &(hl_generated){ .id = token }));
    }
    hl_session_close(session);
    return tracer;
}

static void test_a_frozen_cache_is_locked(void **state)
{
    hl_model     *model   = open_model(DEMO);
    hl_tracer    *tracer  = decode(model, N_TOKENS, FROZEN);
    hl_diagnoses *found   = new_diagnoses();
    hl_diagnosis  locking = judge(found, hl_tracer_trace(tracer));

    (void)state;
    assert_int_equal(locking.verdict, HL_VERDICT_FOUND);
    assert_true(locking.value > locking.threshold && !locking.below); /* tokens of a loop */
    assert_non_null(strstr(locking.finding, "from token 122 on rows change by"));
    /* The window begins with a few tokens that moved: not in all heads too few to matter. */
    assert_in_range(locking.n_heads, N_LAYERS * N_HEADS / 2 + 1, N_LAYERS * N_HEADS);
    hl_tracer_close(tracer);
    tracer  = decode(model, 100, 100); /* too short for two windows */
    locking = judge(found, hl_tracer_trace(tracer));
    assert_int_equal(locking.verdict, HL_VERDICT_NOT_RUN);
    assert_non_null(strstr(locking.measure, "run headlight generate again with --max-tokens 129"));
    hl_diagnoses_free(found);
    hl_tracer_close(tracer);
    hl_model_close(model);
}

/* --------------------------------------------------------------------- bad files */

static void write_bad(const char *path, const char *format, const char *name, hl_dtype dtype,
                      int64_t n_tokens)
{
    static const float     zeros[64] = { 0 };
    hl_safetensors_writer *writer    = NULL;
    hl_tensor rows = { .name = "entropy", .dtype = HL_DTYPE_F32, .n_dims = 3, .data = zeros };
    hl_tensor ids  = { .name = name, .dtype = dtype, .n_dims = 1, .data = zeros };

    rows.shape[0] = 2, rows.shape[1] = 2, rows.shape[2] = 3, rows.n_bytes = 48;
    ids.shape[0] = n_tokens, ids.n_bytes = (size_t)n_tokens * 8;
    assert_ok(hl_safetensors_writer_new(&writer));
    hl_safetensors_add_metadata(writer, "format", format);
    hl_safetensors_add(writer, &rows);
    hl_safetensors_add(writer, &ids);
    assert_ok(hl_safetensors_write(writer, path));
    hl_safetensors_writer_free(writer);
}

static void test_bad_files(void **state)
{
    const char *folder = new_folder();
    const char *path   = in_folder(folder, "bad.trace");
    hl_trace   *trace  = NULL;

    (void)state;
    assert_fails(HL_BAD_INPUT, "wanted 'headlight trace 2' or 'headlight trace 1'",
                 hl_trace_load(&trace, DEMO "/model.safetensors"));
    write_bad(path, "headlight trace 1", "others", HL_DTYPE_I64, 2);
    assert_fails(HL_BAD_INPUT, "without tensor 'tokens'", hl_trace_load(&trace, path));
    write_bad(path, "headlight trace 1", "tokens", HL_DTYPE_F64, 2);
    assert_fails(HL_BAD_INPUT, "'tokens' is F64", hl_trace_load(&trace, path));
    write_bad(path, "headlight trace 1", "tokens", HL_DTYPE_I64, 3);
    assert_fails(HL_BAD_INPUT, "'tokens' is 3, wanted 2", hl_trace_load(&trace, path));
    assert_null(trace);
    remove_folder(folder);
}

/* Earlier traces have the British spelling, which has the same length. */
static void test_the_old_spelling_is_read(void **state)
{
    const char *folder = new_folder();
    const char *path   = in_folder(folder, "text.trace");
    char        bytes[4096];
    hl_trace   *now    = NULL;
    hl_trace   *before = NULL;

    (void)state;
    generate(path, 0.0);
    assert_ok(hl_trace_load(&now, path));
    FILE  *file = fopen(path, "r+b");
    size_t n    = fread(bytes, 1, sizeof bytes - 1, file);
    bytes[n]    = '\0';
    char *name  = strstr(bytes + 8, "\"normalized\"");
    assert_non_null(name);
    name[8] = 's';
    assert_int_equal(fseek(file, 0, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);

    assert_ok(hl_trace_load(&before, path));
    assert_int_equal(before->n_tokens, now->n_tokens);
    assert_memory_equal(before->rows[HL_TRACE_NORMALIZED], now->rows[HL_TRACE_NORMALIZED],
                        (size_t)(now->n_tokens * now->n_layers * now->n_heads) * sizeof(float));
    hl_trace_free(now);
    hl_trace_free(before);
    remove_folder(folder);
}

#define LINE_1 "{\"format\": \"headlight trace 2\", \"tokens\": 1, \"layers\": 1, \"heads\": 2}\n"
#define TOKEN  "{\"id\": 7, \"kind\": \"generated\", \"text\": \"a\u00e9\", \"entity\": true"

static void test_bad_lines(void **state)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        { "", "x, line 1: is missing" },
        { "[]", "x, line 1: is an array, wanted an object" },
        { "{\"format\": \"headlight trace 1\"}", "wanted 'headlight trace 2'" },
        { "{\"format\": \"headlight trace 2\", \"tokens\": 1, \"layers\": 1}\n{}", "-1 heads" },
        { "{\"format\": \"headlight trace 2\", \"tokens\": 9000000000, \"layers\": 9000000000, "
          "\"heads\": 9000000000}\n{}",
          "do not fit into the 2 bytes" },
        { LINE_1, "do not fit into the 0 bytes" },
        { LINE_1 "{}  ", "x, line 2: no kind of token is called ''" },
        { LINE_1 "{\"kind\": \"poem\"}", "'poem'" },
        { LINE_1 "{\"kind\": \"prompt\\u0000s\"}", "'kind' has NUL" },
        { LINE_1 "{\"kind\": \"prompt\", \"text\": 7}", "'text' is an integer, wanted a string" },
        { LINE_1 TOKEN ", \"spike\": \"high\"}", "x, line 2: spike has a string" },
        { LINE_1 TOKEN ", \"entropy\": [[1]]}", "entropy is not 1 lists of 2 numbers" },
        { LINE_1 TOKEN ", \"entropy\": [[1, {}]]}", "entropy has an object" },
        { LINE_1 TOKEN "}\n" TOKEN "}\n", "x: continues after its 1 tokens" },
        { LINE_1 TOKEN, "x, line 2" },
    };
    static const char nul[]  = LINE_1 "{\"kind\": \"prompt\", \"text\": \"a\\u0000b\"}\n";
    static const char good[] = LINE_1 TOKEN ", \"entropy\": [[0.5, null]], \"spike\": 4}\n";
    hl_trace                         *trace = NULL;
    (void)state;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_fails(HL_BAD_INPUT, bad[i].why,
                     hl_trace_parse_lines(&trace, bad[i].text, strlen(bad[i].text), "x"));
        assert_null(trace);
    }
    assert_ok(hl_trace_parse_lines(&trace, nul, strlen(nul), "x")); /* the text of a token may have
                                                                     * any bytes */
    hl_traced_token about = hl_trace_describe(trace, 0);
    assert_int_equal(about.n_bytes, 3);
    assert_memory_equal(about.text, "a\0b", 3);
    hl_trace_free(trace);
    assert_ok(hl_trace_parse_lines(&trace, good, strlen(good), "x"));
    about = hl_trace_describe(trace, 0);
    assert_true(about.kind == HL_KIND_GENERATED && about.is_entity && about.spike == 4.0);
    assert_int_equal(about.n_bytes, 3);
    assert_true(hl_trace_row(trace, 0, 0, 0, HL_TRACE_ENTROPY) == 0.5);
    assert_true(isnan(hl_trace_row(trace, 0, 0, 1, HL_TRACE_ENTROPY)));
    assert_true(isnan(hl_trace_row(trace, 0, 0, 0, HL_TRACE_RENYI2)));
    hl_trace_free(trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changes_by_hand),
        cmocka_unit_test(test_plain_generation_moves),
        cmocka_unit_test(test_a_frozen_cache_is_locked),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_the_old_spelling_is_read),
        cmocka_unit_test(test_bad_lines),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
