/* test_adjust.c - adjusted models, compared with weights or rows that have the same effect. */
#include "analysis_support.h"
#include "model_support.h"

#define LLAMA "tests/data/families/llama3"

enum { N_TOKENS = 24 };

/* Data of the first layer's rows: (n_heads, N_TOKENS) each. */
typedef struct first_layer {
    double  entropy[4][N_TOKENS];
    double  first[4][N_TOKENS];
    double  scores[4][N_TOKENS][N_TOKENS]; /* q.k, before any scale */
    int64_t n_heads;
} first_layer;

static hl_status watch(void *context, const hl_layer_rows *rows)
{
    first_layer *out = context;

    if (rows->layer != 0)
        return HL_OK;
    out->n_heads = rows->n_heads;
    for (int64_t i = 0; i < rows->n_heads * N_TOKENS; i++) {
        int64_t head = i / N_TOKENS, row = i % N_TOKENS;
        out->entropy[head][row] = (double)rows->rows->entropy[head * rows->n_rows + row];
        out->first[head][row]   = (double)rows->rows->first[head * rows->n_rows + row];
        for (int64_t key = 0; key < N_TOKENS; key++) {
            int64_t      group = rows->n_heads / rows->n_kv_heads;
            const float *q     = rows->q + (row * rows->n_heads + head) * rows->d_head;
            const float *k     = rows->k + (key * rows->n_kv_heads + head / group) * rows->d_head;
            double       sum   = 0;
            for (int64_t d = 0; d < rows->d_head; d++)
                sum += (double)q[d] * (double)k[d];
            out->scores[head][row][key] = sum;
        }
    }
    return HL_OK;
}

static first_layer run_on(const char *device, const hl_adjustment *adjustment)
{
    static first_layer out;
    hl_model          *model   = open_model(LLAMA);
    hl_session        *session = NULL;
    int64_t            tokens[N_TOKENS];
    hl_session_options options = {
        .n_ctx = N_TOKENS, .wants = HL_WANT_Q | HL_WANT_K, .n_threads = 1, .device = device
    };
    hl_tap  tap  = { .context = &out, .layer = watch, .wants = HL_WANT_Q | HL_WANT_K };
    hl_feed feed = { .tokens = tokens, .n_tokens = N_TOKENS, .tap = &tap };

    memset(&out, 0, sizeof out);
    for (int i = 0; i < N_TOKENS; i++)
        tokens[i] = (7 * i + 3) % 250;
    if (adjustment != NULL)
        assert_ok(hl_model_adjust(model, adjustment));
    assert_ok(hl_session_open(&session, model, &options));
    assert_ok(hl_session_feed(session, &feed));
    hl_session_close(session);
    hl_model_close(model);
    return out;
}

static first_layer run(const hl_adjustment *adjustment)
{
    return run_on("cpu", adjustment);
}

/* Returns the entropy over the first `kept` keys and those from `from` to the row's own, with
 * scores divided by `divisor`. */
static double entropy_with(const first_layer *layer, int head, int row, int kept, int from,
                           double divisor)
{
    double most = -INFINITY, sum = 0, dot = 0;

    for (int key = 0; key <= row; key++)
        if (key < kept || key >= from)
            most = fmax(most, layer->scores[head][row][key] / divisor);
    for (int key = 0; key <= row; key++) {
        double s = layer->scores[head][row][key] / divisor - most;
        if (key >= kept && key < from)
            continue;
        sum += exp(s);
        dot += exp(s) * s;
    }
    return log(sum) - dot / sum;
}

static double entropy_of(const first_layer *layer, int head, int row, double divisor)
{
    return entropy_with(layer, head, row, 0, 0, divisor);
}

static void test_temperature(void **state)
{
    first_layer plain  = run(NULL);
    first_layer warm   = run(&(hl_adjustment){ .temperature = 3.0 });
    double      d_head = 16.0;

    (void)state;
    for (int head = 0; head < plain.n_heads; head++) {
        for (int row = 0; row < N_TOKENS; row++) {
            assert_near(plain.entropy[head][row], entropy_of(&plain, head, row, sqrt(d_head)),
                        1e-5);
            assert_near(warm.entropy[head][row], entropy_of(&plain, head, row, 3.0 * sqrt(d_head)),
                        1e-5);
        }
    }
}

static void check_window(const char *device, int window, int64_t sink, int kept)
{
    first_layer plain  = run(NULL);
    first_layer narrow = run_on(device, &(hl_adjustment){ .window = window, .window_sink = sink });

    for (int head = 0; head < plain.n_heads; head++) {
        for (int row = 0; row < N_TOKENS; row++) {
            int from = row >= window ? row - window + 1 : 0;
            assert_near(narrow.entropy[head][row], entropy_with(&plain, head, row, kept, from, 4.0),
                        1e-5);
            if (row >= window)
                assert_true((narrow.first[head][row] > 0.0) == (kept > 0));
        }
    }
}

static void test_window(void **state)
{
    (void)state;
    check_window("cpu", 5, 0, 1); /* the first key stays visible by default */
    check_window("cpu", 5, -1, 0);
    check_window("cpu", 5, 3, 3);
}

/* A device takes windows that hide no key for no window, but not those that hide one key. */
static void test_windows_as_wide_as_the_text(void **state)
{
    (void)state;
    for (int window = N_TOKENS - 2; window <= N_TOKENS + 1; window++)
        check_window("host", window, -1, 0);
    check_window("host", 5, 3, 3);
}

static hl_profile *measure(const hl_adjustment *adjustment)
{
    const char        *inputs[]  = { "models/text/alice.txt" };
    hl_corpus_options  text      = { .inputs = inputs, .n_inputs = 1 };
    hl_measure_options options   = { .windows   = { .n_ctx = 64, .max_tokens = 128 },
                                     .no_probe  = true,
                                     .n_threads = 1 };
    hl_model          *model     = open_model("models/demo");
    hl_tokenizer      *tokenizer = NULL;
    hl_corpus         *corpus    = NULL;
    hl_profile        *profile   = NULL;

    if (adjustment != NULL)
        assert_ok(hl_model_adjust(model, adjustment));
    assert_ok(hl_tokenizer_open(&tokenizer, "models/demo"));
    assert_ok(hl_corpus_open(&corpus, model, tokenizer, &text));
    assert_ok(hl_measure(&profile, model, tokenizer, corpus, &options));
    hl_corpus_close(corpus);
    hl_tokenizer_close(tokenizer);
    hl_model_close(model);
    return profile;
}

/* A row with a window of 20 and two first keys sees 22 keys: with any other count, the normalized
 * entropy would differ. */
static void test_visible_keys_are_counted(void **state)
{
    hl_profile *profile = measure(&(hl_adjustment){ .window = 20, .window_sink = 2 });
    hl_profile *hidden  = measure(&(hl_adjustment){ .window = 20, .window_sink = -1 });

    (void)state;
    for (int64_t head = 0; head < 8; head++) {
        hl_moments entropy    = hl_profile_by_position(profile, 3, head, 5, HL_Q_ENTROPY);
        hl_moments normalized = hl_profile_by_position(profile, 3, head, 5, HL_Q_NORMALIZED);
        assert_int_equal(normalized.count, 2 * 32); /* positions 31 .. 62 of two windows */
        assert_near(normalized.mean, entropy.mean / log(22.0), 1e-6);
        assert_int_equal(hl_profile_moments(profile, 3, head, HL_Q_FIRST).count, 128);
        assert_int_equal(hl_profile_moments(hidden, 3, head, HL_Q_FIRST).count, 2 * 20);
    }
    hl_profile_free(profile);
    hl_profile_free(hidden);
}

/* Another RoPE base rotates keys differently, except for the key at a row's own position. */
static void test_rope(void **state)
{
    first_layer plain = run(NULL);
    first_layer other = run(&(hl_adjustment){ .rope_base = 1e4 });
    double      apart = 0;

    (void)state;
    for (int row = 0; row < N_TOKENS; row++)
        apart = fmax(apart, fabs(plain.scores[0][row][0] - other.scores[0][row][0]));
    assert_true(apart > 1e-4);
    for (int row = 0; row < N_TOKENS; row++)
        assert_near(plain.scores[1][row][row], other.scores[1][row][row], 1e-4);
}

/* An adjusted model's profile records it, and does not merge with the model's own. */
static void test_profiles_say_so(void **state)
{
    hl_profile *plain = measure(NULL);
    hl_profile *warm  = measure(&(hl_adjustment){ .temperature = 2.0 });

    (void)state;
    assert_null(hl_profile_setting(plain, "adjusted"));
    assert_string_equal(hl_profile_setting(warm, "adjusted"),
                        "temperature=2 window=0 sink=0 rope_base=0 rope_factor=0");
    assert_fails(HL_BAD_INPUT, "adjusted", hl_profile_merge(plain, warm));
    hl_profile_free(plain);
    hl_profile_free(warm);
}

static void test_refusals(void **state)
{
    hl_model *llama = open_model(LLAMA);
    hl_model *gpt2  = open_model("models/demo");

    (void)state;
    assert_fails(HL_BAD_ARGUMENT, "-1",
                 hl_model_adjust(llama, &(hl_adjustment){ .temperature = -1.0 }));
    assert_fails(HL_BAD_ARGUMENT, "-3 keys",
                 hl_model_adjust(llama, &(hl_adjustment){ .window = -3 }));
    assert_fails(HL_BAD_ARGUMENT, "-2 first keys",
                 hl_model_adjust(llama, &(hl_adjustment){ .window = 3, .window_sink = -2 }));
    assert_fails(HL_UNSUPPORTED, "already scaled (llama3)",
                 hl_model_adjust(llama, &(hl_adjustment){ .rope_factor = 2.0 }));
    assert_fails(HL_UNSUPPORTED, "has no RoPE",
                 hl_model_adjust(gpt2, &(hl_adjustment){ .rope_base = 1e6 }));
    hl_model_close(llama);
    hl_model_close(gpt2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_temperature),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_windows_as_wide_as_the_text),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_profiles_say_so),
        cmocka_unit_test(test_visible_keys_are_counted),
        cmocka_unit_test(test_refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
