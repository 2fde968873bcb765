/* test_backward.c - gradients of gates against differences of the forward pass.
 *
 * The forward pass is checked against other software elsewhere (test_verify_model.c); here its loss
 * L(g) is the reference.  For every head,
 *
 *     (8 (L(1+h) - L(1-h)) - (L(1+2h) - L(1-2h))) / 12 h
 *
 * is dL/dg, up to h^4 and rounding over h. */
#include "model_support.h"

#include <dirent.h>
#include <math.h>

#include "formats/safetensors.h"
#include "kernels/logits.h"
#include "model/backward.h"

enum { MOST_TOKENS = 24, MOST_HEADS = 256 };

/* A long step has less rounding; with a short step fewer rows go to other experts. */
#define LONG_STEP  0.03f
#define SHORT_STEP 0.006f

/* Limit of the largest error over the largest gradient.  Losses have errors of about 1e-7, which
 * the step amplifies to 2e-5, for gradients of about 1e-1. */
#define TOLERANCE 1e-3

typedef struct loss {
    const int64_t *tokens;
    int64_t        n_tokens;
    double         sum;
} loss;

static hl_status add_rows(void *context, const hl_final_rows *rows)
{
    loss *l = context;

    for (int64_t row = 0; row < rows->n_rows && rows->start + row + 1 < l->n_tokens; row++) {
        const float *logits = rows->logits + row * rows->d_vocab;
        l->sum +=
            hl_logits_lse(logits, rows->d_vocab) - (double)logits[l->tokens[rows->start + row + 1]];
    }
    return HL_OK;
}

static double loss_with(hl_session *session, const float *gates, const int64_t *tokens,
                        int64_t n_tokens)
{
    loss    l    = { tokens, n_tokens, 0.0 };
    hl_tap  tap  = { .context = &l, .final = add_rows, .wants = HL_WANT_LOGITS };
    hl_feed feed = { .tokens = tokens, .n_tokens = n_tokens, .gates = gates, .tap = &tap };

    assert_ok(hl_session_rewind(session, 0, 0));
    assert_ok(hl_session_feed(session, &feed));
    return l.sum / (double)(n_tokens - 1);
}

static double difference(hl_session *session, float *gates, int64_t head, const int64_t *tokens,
                         int64_t n_tokens, float step)
{
    static const double weights[4] = { 8.0, -8.0, -1.0, 1.0 };
    const float         steps[4]   = { step, -step, 2 * step, -2 * step };
    float               before     = gates[head];
    double              sum        = 0.0;

    for (int i = 0; i < 4; i++) {
        gates[head] = before + steps[i];
        sum += weights[i] * loss_with(session, gates, tokens, n_tokens);
    }
    gates[head] = before;
    return sum / (12.0 * (double)step);
}

/* Reads tokens of the golden file, or makes some up. */
static int64_t read_tokens(int64_t *out, const char *folder, int64_t d_vocab)
{
    char            path[1024];
    hl_safetensors *file = NULL;

    snprintf(path, sizeof path, "%s/expected.safetensors", folder);
    for (int64_t i = 0; i < MOST_TOKENS; i++)
        out[i] = (i * 37 + 11) % d_vocab;
    if (hl_safetensors_open(&file, path) == HL_OK) {
        const hl_tensor *tokens = hl_safetensors_find(file, "tokens");
        for (int64_t i = 0; i < MOST_TOKENS && i < tokens->shape[1]; i++)
            memcpy(&out[i], (const char *)tokens->data + i * 8, 8);
    }
    hl_safetensors_close(file);
    return MOST_TOKENS;
}

/* Returns the largest error over the largest gradient.  Where a model chooses experts or limits
 * values, the loss has jumps and kinks: a head's difference then counts only if half the step gives
 * the same, as it must for a third of the heads. */
static double worst_error(const char *folder, const float *gates, float step)
{
    hl_model            *model    = open_model(folder);
    const hl_model_info *info     = hl_model_get_info(model);
    hl_backward         *backward = NULL;
    hl_session          *session  = NULL;
    int64_t              tokens[MOST_TOKENS];
    int64_t              n_tokens = read_tokens(tokens, folder, info->d_vocab);
    double               gradient[MOST_HEADS];
    double               nll;
    double               worst   = 0.0;
    double               largest = 0.0;
    float                at[MOST_HEADS];
    int64_t              n_counted = 0;
    bool                 is_rough  = model->config->qkv_limit > 0.0 || model->config->n_experts > 0;

    /* Differences are not accurate at the kinks of ReLU.  Its slope has a test of its own, and
     * tests/cli/gradient.py compares OPT with autograd. */
    if (model->config->activation == HL_ACTIVATION_RELU)
        model->config->activation = HL_ACTIVATION_SILU;
    /* With a narrow margin this router's weights jump at every step; with a wide one they move. */
    if (model->config->router.score == HL_ROUTER_SPARSEMIXER)
        model->config->router.margin = 1e9;
    assert_true(info->n_layers * info->n_heads <= MOST_HEADS);
    for (int64_t i = 0; i < info->n_layers * info->n_heads; i++)
        at[i] = gates != NULL ? gates[i] : 1.0f;
    assert_ok(hl_model_set_gates(model, gates));
    assert_ok(hl_backward_open(&backward, model, MOST_TOKENS, 1));
    assert_ok(hl_backward_run(gradient, &nll, backward, tokens, n_tokens, 1));
    assert_ok(hl_session_open(
        &session, model,
        &(hl_session_options){ .n_ctx = MOST_TOKENS, .wants = HL_WANT_LOGITS, .n_threads = 1 }));
    assert_float_equal(nll, loss_with(session, at, tokens, n_tokens), 1e-6);
    for (int64_t i = 0; i < info->n_layers * info->n_heads; i++) {
        double wanted = difference(session, at, i, tokens, n_tokens, step);

        largest = fmax(largest, fabs(wanted));
        if (is_rough && fabs(difference(session, at, i, tokens, n_tokens, step / 2) - wanted) >
                            1e-3 * fabs(wanted))
            continue;
        n_counted++;
        worst = fmax(worst, fabs(gradient[i] - wanted));
    }
    assert_true(largest > 0.0);
    if (3 * n_counted < info->n_layers * info->n_heads)
        worst = largest;
    hl_session_close(session);
    hl_backward_close(backward);
    hl_model_close(model);
    return worst / largest;
}

/* Whether the model opens and has gradients; a model without them must be refused. */
static bool has_gradients(const char *folder)
{
    hl_model    *model    = NULL;
    hl_backward *backward = NULL;

    if (hl_model_open(&model, folder) != HL_OK)
        return false;
    hl_status status = hl_backward_open(&backward, model, MOST_TOKENS, 1);
    assert_true(status == HL_OK || status == HL_UNSUPPORTED);
    hl_backward_close(backward);
    hl_model_close(model);
    return status == HL_OK;
}

static int check_folder(const char *folder)
{
    if (!has_gradients(folder))
        return 0;
    double error = worst_error(folder, NULL, LONG_STEP);

    if (error > TOLERANCE)
        error = worst_error(folder, NULL, SHORT_STEP);

    print_message("# %-50s %.1e\n", folder, error);
    return error <= TOLERANCE ? 0 : 1;
}

static int check_all(const char *parent)
{
    DIR *folder   = opendir(parent);
    int  n_failed = 0;

    if (folder == NULL)
        return -1;
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        char path[512];

        snprintf(path, sizeof path, "%s/%s", parent, entry->d_name);
        if (entry->d_name[0] != '.')
            n_failed += check_folder(path);
    }
    closedir(folder);
    return n_failed;
}

/* With gates other than 1, including 0, dL/dg is not out / g. */
static void test_gates(void **state)
{
    float gates[MOST_HEADS];
    (void)state;

    for (int i = 0; i < MOST_HEADS; i++)
        gates[i] = i % 5 == 0 ? 0.0f : 0.3f + 0.1f * (float)(i % 7);
    assert_true(worst_error("tests/data/families/llama3", gates, SHORT_STEP) <= TOLERANCE);
    assert_true(worst_error("tests/data/families/phi3", gates, SHORT_STEP) <= TOLERANCE);
}

/* Windows of different lengths in sequence do not affect each other. */
static void test_lengths(void **state)
{
    hl_model    *model    = open_model("tests/data/families/llama3");
    hl_backward *backward = NULL;
    int64_t      tokens[MOST_TOKENS];
    double       first[MOST_HEADS];
    double       again[MOST_HEADS];
    double       nll;
    size_t       n_heads = (size_t)(model->config->n_layers * model->config->n_heads);
    (void)state;

    read_tokens(tokens, "tests/data/families/llama3", model->config->d_vocab);
    assert_ok(hl_backward_open(&backward, model, MOST_TOKENS, 1));
    assert_ok(hl_backward_run(first, &nll, backward, tokens, 9, 1));
    assert_ok(hl_backward_run(again, &nll, backward, tokens, MOST_TOKENS, 1));
    assert_ok(hl_backward_run(again, &nll, backward, tokens, 9, 1));
    assert_memory_equal(first, again, n_heads * sizeof *first);
    assert_fails(HL_BAD_ARGUMENT, "wanted 2 to 24",
                 hl_backward_run(again, &nll, backward, tokens, 1, 1));
    assert_fails(HL_BAD_ARGUMENT, "gradients of 25 tokens",
                 hl_backward_run(again, &nll, backward, tokens, MOST_TOKENS + 1, 1));
    hl_backward_close(backward);
    hl_model_close(model);
}

/* |dy' x| of a head's rows, entry by entry in double. */
static double rows_norm(const float *dy, const float *x, int64_t head, int64_t n_heads, int64_t d,
                        int64_t width, int64_t n_tokens)
{
    double squares = 0.0;

    for (int64_t i = 0; i < d; i++) {
        for (int64_t j = 0; j < width; j++) {
            double sum = 0.0;

            for (int64_t t = 0; t < n_tokens; t++)
                sum += (double)dy[(t * n_heads + head) * d + i] * (double)x[t * width + j];
            squares += sum * sum;
        }
    }
    return sqrt(squares);
}

static void check_weight_norms(const char *folder)
{
    hl_model        *model    = open_model(folder);
    const hl_config *config   = model->config;
    hl_backward     *backward = NULL;
    int64_t          tokens[MOST_TOKENS];
    double           gradient[MOST_HEADS], nll;
    int64_t          all = config->n_layers * config->n_heads;

    read_tokens(tokens, folder, config->d_vocab);
    assert_ok(hl_backward_open(&backward, model, MOST_TOKENS, 2));
    assert_ok(hl_backward_run(gradient, &nll, backward, tokens, MOST_TOKENS - 1, 1));
    const hl_layer_config *layer      = &config->layers[0]; /* the last to be gone back through */
    const float           *parts[3]   = { backward->d_q, backward->d_k, backward->d_v };
    const int64_t          n_heads[3] = { layer->n_heads, layer->n_kv_heads, layer->n_kv_heads };

    for (int part = 0; part < 3; part++) {
        for (int64_t head = 0; head < layer->n_heads; head++) {
            int64_t own    = head / (layer->n_heads / n_heads[part]);
            double  wanted = rows_norm(parts[part], backward->input, own, n_heads[part],
                                       config->d_head, config->d_model, MOST_TOKENS - 1);

            assert_true(wanted > 0.0);
            assert_float_equal(backward->weight_norms[part * all + head], wanted, 1e-5 * wanted);
        }
        for (int64_t i = 0; i < all; i++) /* and no layer was left out */
            assert_true(backward->weight_norms[part * all + i] > 0.0);
    }
    hl_backward_close(backward);
    hl_model_close(model);
}

/* tests/cli/gradient.py holds the same norms against autograd, in all layers. */
static void test_weight_norms(void **state)
{
    (void)state;
    check_weight_norms("tests/data/families/llama3"); /* two query heads to a KV head */
    check_weight_norms("tests/data/families/phi3");   /* one matrix for all three */
}

/* The loss of all tokens is the sum of that of the first ones, from a shorter window, and that of
 * the rest; the same holds for gradients. */
static void test_tokens_that_are_not_scored(void **state)
{
    enum { N = 17, FIRST = 4 };
    hl_model    *model    = open_model("tests/data/families/llama3");
    hl_backward *backward = NULL;
    int64_t      tokens[MOST_TOKENS];
    double       all[MOST_HEADS], some[MOST_HEADS], rest[MOST_HEADS];
    double       nll_all, nll_some, nll_rest;
    int64_t      n_heads = model->config->n_layers * model->config->n_heads;
    (void)state;

    read_tokens(tokens, "tests/data/families/llama3", model->config->d_vocab);
    assert_ok(hl_backward_open(&backward, model, MOST_TOKENS, 1));
    assert_ok(hl_backward_run(all, &nll_all, backward, tokens, N, 1));
    assert_ok(hl_backward_run(some, &nll_some, backward, tokens, FIRST, 1));
    assert_ok(hl_backward_run(rest, &nll_rest, backward, tokens, N, FIRST));
    assert_true(fabs(nll_all * (N - 1) - nll_some * (FIRST - 1) - nll_rest * (N - FIRST)) < 1e-4);
    for (int64_t i = 0; i < n_heads; i++)
        assert_true(fabs(all[i] * (N - 1) - some[i] * (FIRST - 1) - rest[i] * (N - FIRST)) < 1e-4);
    assert_fails(HL_BAD_ARGUMENT, "from token 17 on, wanted 1 to 16",
                 hl_backward_run(all, &nll_all, backward, tokens, N, N));
    hl_backward_close(backward);
    hl_model_close(model);
}

/* The slope of every activation, gated or not, by differences of the kernel's own function. */
static void test_activations(void **state)
{
    static const float points[] = { -3.1f, -1.0f, -0.2f, 0.3f, 0.9f, 2.2f, 7.5f };
    enum { N = sizeof points / sizeof *points };
    static const float limit[HL_ACTIVATION_NUMBERS] = { 7.0f };
    static const float xielu[HL_ACTIVATION_NUMBERS] = { 0.3f, 0.7f, 0.5f, -1e-6f };
    const float        h                            = 1e-2f;
    (void)state;

    for (hl_activation kind = 0; kind < HL_N_ACTIVATIONS; kind++) {
        const float *numbers = kind == HL_ACTIVATION_XIELU ? xielu : limit;

        for (int i = 0; i < N; i++) {
            float gate = points[i], up = points[N - 1 - i], d_up = 0.0f, slope = 1.0f;
            float more = gate + h, less = gate - h, up_more = gate, up_less = gate;
            float above = up + h, below = up - h;

            hl_backward_activation(&slope, &d_up, &gate, &up, 1, kind, numbers);
            hl_dense_scalar.activate(&more, &up, 1, kind, numbers);
            hl_dense_scalar.activate(&less, &up, 1, kind, numbers);
            hl_dense_scalar.activate(&up_more, &above, 1, kind, numbers);
            hl_dense_scalar.activate(&up_less, &below, 1, kind, numbers);
            assert_float_equal(slope, (more - less) / (2 * h), 2e-3);
            assert_float_equal(d_up, (up_more - up_less) / (2 * h), 2e-3);
        }
    }
}

static void test_own_families(void **state)
{
    (void)state;
    assert_int_equal(check_all("tests/data/families"), 0);
}

static void test_shared_families(void **state)
{
    const char *path = in_shared("golden/families");
    (void)state;

    if (!path_exists(path))
        skip();
    assert_int_equal(check_all(path), 0);
}

static void test_more_families(void **state)
{
    const char *path = in_shared("golden/families2");
    (void)state;

    if (!path_exists(path))
        skip();
    assert_int_equal(check_all(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_activations),     cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_own_families),    cmocka_unit_test(test_gates),
        cmocka_unit_test(test_shared_families), cmocka_unit_test(test_tokens_that_are_not_scored),
        cmocka_unit_test(test_weight_norms),    cmocka_unit_test(test_more_families),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
