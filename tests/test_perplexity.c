/* test_perplexity.c - negative log-likelihood: against transformers, against the definition token
 * by token, and the arithmetic of windows, bytes and errors. */
#include "model_support.h"

#include <math.h>

#include "formats/safetensors.h"
#include "measure/perplexity.h"
#include "model/sample.h"

#define LLAMA "tests/data/families/llama3"

enum { N_TEXT = 61 };

static void fill_text(int64_t *tokens, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++)
        tokens[i] = (int64_t)(hl_random_unit(seed, (uint64_t)i) * 256);
}

static hl_perplexity *open_perplexity(const hl_model *model, hl_perplexity_options options)
{
    hl_perplexity *perplexity = NULL;
    assert_ok(hl_perplexity_open(&perplexity, model, &options));
    return perplexity;
}

static hl_nll add(hl_perplexity *perplexity, const int64_t *tokens, int64_t n, double *nll)
{
    hl_nll out;
    assert_ok(hl_perplexity_add(&out, perplexity,
                                &(hl_scored_text){ .tokens = tokens, .n_tokens = n, .nll = nll }));
    return out;
}

/* -------------------------------------------------------------------- windows */

/* The usual recipe with transformers: windows begin every `stride` tokens, labels that an earlier
 * window has seen are masked, and the first label has no prediction. */
static int64_t recipe(int *scored_by, int64_t n, int64_t n_ctx, int64_t stride)
{
    int64_t previous_end = 0;
    int64_t n_windows    = 0;

    for (int64_t begin = 0; begin < n; begin += stride) {
        int64_t end = begin + n_ctx < n ? begin + n_ctx : n;

        for (int64_t i = begin; i < end; i++) {
            if (i >= previous_end && i > begin)
                scored_by[i] = (int)n_windows;
        }
        n_windows++;
        previous_end = end;
        if (end == n)
            break;
    }
    return n_windows;
}

static void windows_are_the_usual_ones(void **state)
{
    (void)state;
    for (int64_t n = 2; n < 24; n++) {
        for (int64_t n_ctx = 2; n_ctx < 9; n_ctx++) {
            for (int64_t stride = 1; stride <= n_ctx; stride++) {
                int           wanted[24], seen[24];
                hl_window_cut cut   = { .n_text = n_ctx, .stride = stride };
                int64_t       count = hl_window_count(&cut, n);

                memset(wanted, -1, sizeof wanted);
                memset(seen, -1, sizeof seen);
                assert_int_equal(recipe(wanted, n, n_ctx, stride), count);
                for (int64_t k = 0; k < count; k++) {
                    hl_window window = hl_window_at(&cut, n, k);
                    assert_true(window.end - window.begin <= n_ctx && window.first > window.begin);
                    for (int64_t i = window.first; i < window.end; i++) {
                        assert_int_equal(seen[i], -1);
                        seen[i] = (int)k;
                    }
                }
                assert_memory_equal(seen, wanted, sizeof seen);
            }
        }
    }
    assert_int_equal(hl_window_count(&(hl_window_cut){ .n_text = 4, .stride = 2 }, 0), 0);
    assert_int_equal(hl_window_count(&(hl_window_cut){ .n_text = 4, .stride = 2 }, 1), 0);
}

/* Scores a token with a session that has read the window up to it.  Products of other numbers of
 * rows round differently, by about 1e-5 here. */
static double plain_nll(const hl_model *model, const int64_t *tokens, int64_t n)
{
    hl_session *session = NULL;
    double      sum     = 0.0;

    assert_ok(
        hl_session_open(&session, model, &(hl_session_options){ .wants = HL_WANT_LAST_LOGITS }));
    assert_ok(hl_session_feed(session, &(hl_feed){ .tokens = tokens, .n_tokens = n - 1 }));
    const float *logits = hl_session_logits(session, 0);
    for (int i = 0; i < 256; i++)
        sum += exp((double)logits[i] - (double)logits[tokens[n - 1]]);
    hl_session_close(session);
    return log(sum);
}

/* With tokens around each window, every token of the text is scored once, given the tokens before
 * it in its window and those added before the window. */
static void windows_begin_with_what_stands_around(void **state)
{
    static const int64_t before[] = { 7, 11 };
    static const int64_t after[]  = { 13 };
    static const struct {
        int64_t n_ctx, stride;
        size_t  n_before, n_after;
    } cases[] = { { 16, 16, 1, 0 }, { 16, 5, 1, 0 },  { 16, 0, 2, 1 },
                  { 12, 4, 1, 1 },  { 64, 20, 2, 0 }, { 3, 0, 1, 1 } };
    int64_t   tokens[N_TEXT], window[N_TEXT + 2];
    double    nll[N_TEXT];
    hl_model *model = open_model(LLAMA);
    (void)state;

    fill_text(tokens, N_TEXT, 3);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        hl_around_tokens around     = { before, cases[c].n_before, after, cases[c].n_after };
        int64_t          n_text     = cases[c].n_ctx - (int64_t)(around.n_before + around.n_after);
        int64_t          stride     = cases[c].stride;
        hl_perplexity   *perplexity = open_perplexity(
              model, (hl_perplexity_options){
                         .n_ctx = cases[c].n_ctx, .stride = stride, .n_batch = 3, .around = around });
        hl_nll out = add(perplexity, tokens, N_TEXT, nll);

        stride = stride == 0 || stride > n_text ? n_text : stride;
        assert_int_equal(out.n_scored, N_TEXT);
        assert_int_equal(out.n_tokens, N_TEXT);
        for (int64_t i = 0; i < N_TEXT; i++) {
            int64_t w = i < n_text ? 0 : (i - n_text) / stride + 1; /* the first window that
                                                                     * contains it */
            int64_t n = 0;

            for (size_t b = 0; b < around.n_before; b++)
                window[n++] = before[b];
            for (int64_t j = w * stride; j <= i; j++)
                window[n++] = tokens[j];
            double wanted = plain_nll(model, window, n);
            if (!(fabs(nll[i] - wanted) < 1e-4))
                fail_msg("case %d: token %d scores %.6f, wanted %.6f", (int)c, (int)i, nll[i],
                         wanted);
        }
        add(perplexity, tokens, 1, nll); /* a token precedes the first one */
        assert_false(isnan(nll[0]));
        hl_perplexity_close(perplexity);
    }
    hl_model_close(model);
}

static void tokens_around_need_room(void **state)
{
    static const int64_t ids[] = { 1, 256 };
    hl_model            *model = open_model(LLAMA);
    hl_perplexity       *perplexity;
    (void)state;

    assert_fails(
        HL_BAD_ARGUMENT, "windows of 2 tokens leave no room for text beside the 2 special",
        hl_perplexity_open(&perplexity, model,
                           &(hl_perplexity_options){ .n_ctx = 2, .around = { ids, 1, ids, 1 } }));
    assert_fails(HL_BAD_ARGUMENT,
                 "special token 256 of each window is not an id of the model, 0 to 255",
                 hl_perplexity_open(
                     &perplexity, model,
                     &(hl_perplexity_options){ .n_ctx = 8, .around = { ids, 1, ids + 1, 1 } }));
    hl_model_close(model);
}

static void scores_are_their_definition(void **state)
{
    static const int64_t settings[][2] = { { 16, 16 }, { 16, 5 }, { 60, 60 }, { 64, 3 }, { 2, 1 } };
    int64_t              tokens[N_TEXT];
    double               nll[N_TEXT];
    int                  window_of[N_TEXT];
    hl_model            *model = open_model(LLAMA);
    (void)state;

    fill_text(tokens, N_TEXT, 1);
    for (size_t c = 0; c < sizeof settings / sizeof *settings; c++) {
        int64_t        n_ctx = settings[c][0], stride = settings[c][1];
        hl_perplexity *perplexity = open_perplexity(
            model, (hl_perplexity_options){ .n_ctx = n_ctx, .stride = stride, .n_batch = 3 });
        hl_nll out = add(perplexity, tokens, N_TEXT, nll);
        double sum = 0.0;

        memset(window_of, -1, sizeof window_of);
        recipe(window_of, N_TEXT, n_ctx, stride);
        for (int64_t i = 0; i < N_TEXT; i++) {
            if (window_of[i] < 0) {
                assert_true(isnan(nll[i]));
                continue;
            }
            int64_t begin  = window_of[i] * stride;
            double  wanted = plain_nll(model, tokens + begin, i + 1 - begin);
            if (!(fabs(nll[i] - wanted) < 1e-4))
                fail_msg("windows of %d, stride %d: token %d scores %.6f, wanted %.6f", (int)n_ctx,
                         (int)stride, (int)i, nll[i], wanted);
            sum += nll[i];
        }
        assert_true(fabs(out.sum - sum) < 1e-9);
        hl_perplexity_close(perplexity);
    }
    hl_model_close(model);
}

/* --------------------------------------------------------------------- golden */

static const hl_tensor *get(const hl_safetensors *file, const char *name)
{
    const hl_tensor *tensor = hl_safetensors_find(file, name);
    if (tensor == NULL)
        fail_msg("no tensor '%s'", name);
    return tensor;
}

/* Compares with transformers' own nll (B, S - 1). */
static void check_demo(const char *folder, double tolerance)
{
    hl_safetensors *file  = NULL;
    hl_model       *model = open_model(folder);
    double          nll[256];
    double          worst = 0.0, sum = 0.0, wanted_sum = 0.0;

    assert_ok(hl_safetensors_open(&file, in_folder(folder, "expected.safetensors")));
    const int64_t *tokens     = get(file, "tokens")->data;
    const float   *wanted     = get(file, "nll")->data;
    hl_perplexity *perplexity = open_perplexity(model, (hl_perplexity_options){ .n_ctx = 256 });
    for (int b = 0; b < 2; b++) {
        hl_nll out = add(perplexity, tokens + 256 * b, 256, nll);
        assert_int_equal(out.n_scored, 255);
        assert_true(isnan(nll[0]));
        for (int i = 0; i < 255; i++) {
            worst = fmax(worst, fabs(nll[i + 1] - wanted[255 * b + i]));
            wanted_sum += wanted[255 * b + i];
        }
        sum += out.sum;
    }
    if (!(worst <= tolerance) || fabs(sum - wanted_sum) / 510 > tolerance / 10)
        fail_msg("%s: a token differs by %.2e, the mean by %.2e", folder, worst,
                 (sum - wanted_sum) / 510);
    hl_perplexity_close(perplexity);
    hl_safetensors_close(file);
    hl_model_close(model);
}

static void demo_models_are_as_transformers_saw_them(void **state)
{
    (void)state;
    check_demo("models/demo", 1e-4);
    check_demo("models/demo-sparse", 1e-4);
    assert_ok(select_device("host")); /* a device computes the losses too */
    check_demo("models/demo", 1e-4);
    assert_ok(select_device(NULL));
}

/* -log softmax of golden logits (B, S, V) at the next token. */
static void check_family(const char *folder)
{
    hl_safetensors *file  = NULL;
    hl_model       *model = open_model(folder);
    double          nll[64];

    assert_ok(hl_safetensors_open(&file, in_folder(folder, "expected.safetensors")));
    const hl_tensor *tokens = get(file, "tokens");
    const hl_tensor *logits = get(file, "logits");
    int64_t          n = tokens->shape[1], d_vocab = logits->shape[2];
    hl_perplexity   *perplexity = open_perplexity(model, (hl_perplexity_options){ .n_ctx = n });
    assert_true(n <= 64);
    for (int64_t b = 0; b < tokens->shape[0]; b++) {
        const int64_t *text = (const int64_t *)tokens->data + b * n;
        add(perplexity, text, n, nll);
        for (int64_t i = 1; i < n; i++) {
            const float *row = (const float *)logits->data + (b * n + i - 1) * d_vocab;
            double       sum = 0.0;
            for (int64_t v = 0; v < d_vocab; v++)
                sum += exp((double)row[v] - (double)row[text[i]]);
            if (!(fabs(nll[i] - log(sum)) <= 1e-4))
                fail_msg("%s: token %d of %d scores %.6f, wanted %.6f", folder, (int)i, (int)b,
                         nll[i], log(sum));
        }
    }
    hl_perplexity_close(perplexity);
    hl_safetensors_close(file);
    hl_model_close(model);
}

static void families_score_as_their_golden_logits(void **state)
{
    static const char *const ours[]   = { "gpt_neox", "llama3", "phi3", "starcoder2" };
    static const char *const others[] = { "bloom",   "cohere2", "gemma2", "gpt2", "gpt_oss",
                                          "granite", "mixtral", "opt",    "qwen3" };
    (void)state;

    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        check_family(in_folder("tests/data/families", ours[i]));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const char *folder = in_folder(in_shared("golden/families"), others[i]);
        if (path_exists(folder))
            check_family(folder);
    }
}

/* ----------------------------------------------------------------------- sums */

static void batches_change_nothing(void **state)
{
    int64_t   tokens[300];
    hl_model *model = open_model(LLAMA);
    hl_nll    first = { 0 };
    (void)state;

    fill_text(tokens, 300, 2);
    for (int64_t n_batch = 0; n_batch < 9; n_batch += 4) {
        hl_perplexity *perplexity = open_perplexity(
            model, (hl_perplexity_options){ .n_ctx = 32, .stride = 20, .n_batch = n_batch });
        hl_nll out = add(perplexity, tokens, 300, NULL);
        if (n_batch == 0)
            first = out;
        assert_true(out.sum == first.sum && out.interval.error == first.interval.error);
        assert_int_equal(out.n_scored, 299);
        hl_perplexity_close(perplexity);
    }
    hl_model_close(model);
}

/* Computes sqrt(G/(G-1) sum (s - m c)^2) / sum c from the tokens' own scores. */
static double plain_error(const double *sums, const double *counts, int n)
{
    double sum = 0.0, count = 0.0, residual = 0.0;

    for (int i = 0; i < n; i++) {
        sum += sums[i];
        count += counts[i];
    }
    for (int i = 0; i < n; i++)
        residual += pow(sums[i] - sum / count * counts[i], 2);
    return sqrt(n / (n - 1.0) * residual) / count;
}

static void totals_and_errors_are_their_definitions(void **state)
{
    int64_t        tokens[50];
    double         nll[50], sums[16] = { 0 }, counts[16] = { 0 }, sum = 0.0;
    int            n_windows  = 0;
    hl_model      *model      = open_model(LLAMA);
    hl_perplexity *perplexity = open_perplexity(model, (hl_perplexity_options){ .n_ctx = 16 });
    (void)state;

    /* One text: the error is over its windows, of 16, 16, 16 and 2 tokens. */
    fill_text(tokens, 50, 3);
    hl_nll out = add(perplexity, tokens, 50, nll);
    for (int i = 0; i < 50; i++) {
        sums[i / 16] += isnan(nll[i]) ? 0.0 : nll[i];
        counts[i / 16] += isnan(nll[i]) ? 0.0 : 1.0;
    }
    assert_int_equal(out.interval.units, HL_UNITS_WINDOWS);
    assert_int_equal(out.n_windows, 4);
    assert_true(fabs(out.interval.error - plain_error(sums, counts, 4)) < 1e-9);
    hl_perplexity_close(perplexity);

    /* Nine texts of different lengths, one of which scores nothing: the error is over eight
     * texts. */
    perplexity = open_perplexity(model, (hl_perplexity_options){ .n_ctx = 16 });
    for (int t = 0; t < 9; t++) {
        fill_text(tokens, 50, (uint64_t)t + 10);
        out       = add(perplexity, tokens, t == 8 ? 1 : 5 * t + 3, NULL);
        sums[t]   = out.sum;
        counts[t] = (double)out.n_scored;
        sum += out.sum;
        n_windows += (int)out.n_windows;
        assert_true(t == 8 ? isnan(out.mean) : out.perplexity == exp(out.mean));
    }
    out = hl_perplexity_total(perplexity);
    assert_int_equal(out.interval.units, HL_UNITS_DOCUMENTS);
    assert_int_equal(out.n_texts, 8);
    assert_int_equal(out.n_windows, n_windows);
    assert_true(fabs(out.sum - sum) < 1e-9);
    assert_true(fabs(out.interval.error - plain_error(sums, counts, 8)) < 1e-9);
    assert_true(isnan(out.bits_per_byte));
    hl_perplexity_close(perplexity);
    hl_model_close(model);
}

static void bytes_are_those_of_scored_tokens(void **state)
{
    int64_t        tokens[10], n_bytes[10];
    hl_model      *model      = open_model(LLAMA);
    hl_perplexity *perplexity = open_perplexity(model, (hl_perplexity_options){ .n_ctx = 5 });
    hl_nll         out;
    (void)state;

    fill_text(tokens, 10, 4);
    for (int i = 0; i < 10; i++)
        n_bytes[i] = 1 << i;
    assert_ok(hl_perplexity_add(
        &out, perplexity,
        &(hl_scored_text){ .tokens = tokens, .n_tokens = 10, .n_bytes = n_bytes }));
    assert_int_equal(out.n_bytes, 1023 - 1 - 32); /* the first token of each window is not scored */
    assert_true(fabs(out.bits_per_byte - out.sum / log(2.0) / 990) < 1e-12);
    hl_perplexity_close(perplexity);
    hl_model_close(model);
}

/* -------------------------------------------------------------------- mistakes */

static hl_status stop_at_once(void *context, const hl_progress *progress)
{
    (void)context;
    assert_null(progress->stage);
    assert_true(fabs(progress->share - 0.2) < 1e-9);
    assert_int_equal(progress->n_tokens, 4);
    assert_int_equal(progress->n_windows, 1);
    return HL_CANCELLED;
}

static void mistakes_are_named(void **state)
{
    int64_t        tokens[20] = { 0 };
    hl_nll         out;
    hl_perplexity *perplexity = NULL;
    hl_model      *model      = open_model(LLAMA);
    (void)state;

    assert_fails(HL_BAD_ARGUMENT, "a stride of 9, wanted 1 to 8",
                 hl_perplexity_open(&perplexity, model,
                                    &(hl_perplexity_options){ .n_ctx = 8, .stride = 9 }));
    assert_fails(HL_BAD_ARGUMENT, "windows of 1 tokens",
                 hl_perplexity_open(&perplexity, model, &(hl_perplexity_options){ .n_ctx = 1 }));
    assert_fails(HL_LIMIT, "a context of 129 tokens exceeds the model's limit of 128",
                 hl_perplexity_open(&perplexity, model, &(hl_perplexity_options){ .n_ctx = 129 }));
    assert_null(perplexity);

    perplexity = open_perplexity(
        model, (hl_perplexity_options){ .n_ctx = 4, .n_batch = 1, .progress = stop_at_once });
    tokens[19] = 256;
    assert_fails(
        HL_BAD_ARGUMENT, "token 19 of the text is 256, the model knows 0 to 255",
        hl_perplexity_add(&out, perplexity, &(hl_scored_text){ .tokens = tokens, .n_tokens = 20 }));
    tokens[19] = 0;
    assert_int_equal(
        hl_perplexity_add(&out, perplexity, &(hl_scored_text){ .tokens = tokens, .n_tokens = 20 }),
        HL_CANCELLED);
    assert_int_equal(hl_perplexity_total(perplexity).n_scored, 0);
    hl_perplexity_close(perplexity);
    hl_model_close(model);
}

static void encoders_have_no_perplexity(void **state)
{
    hl_perplexity *perplexity = NULL;
    (void)state;

    if (!path_exists(in_shared("golden/families/bert")))
        skip();
    hl_model *model = open_model(in_shared("golden/families/bert"));
    assert_fails(HL_UNSUPPORTED, "is an encoder (bert)",
                 hl_perplexity_open(&perplexity, model, NULL));
    hl_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_are_the_usual_ones),
        cmocka_unit_test(scores_are_their_definition),
        cmocka_unit_test(windows_begin_with_what_stands_around),
        cmocka_unit_test(tokens_around_need_room),
        cmocka_unit_test(demo_models_are_as_transformers_saw_them),
        cmocka_unit_test(families_score_as_their_golden_logits),
        cmocka_unit_test(batches_change_nothing),
        cmocka_unit_test(totals_and_errors_are_their_definitions),
        cmocka_unit_test(bytes_are_those_of_scored_tokens),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(encoders_have_no_perplexity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
