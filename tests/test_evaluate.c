/* test_evaluate.c - many settings of gates at once: the same bits as perplexity for all subsets of
 * heads of a small model; KL and agreement by their definition; too little memory for all streams;
 * resumed work. */
#include "model_support.h"

#include <math.h>

#include "model/sample.h"
#include "prune/evaluate.h"

#define LLAMA  "tests/data/families/llama3"
#define HYBRID "tests/data/hybrids/falcon_h1" /* 3 layers of attention and Mamba-2 */

enum { N_DOCUMENTS = 2, MAX_TOKENS = 40, CONTEXT = 8, N_VARIED = 3 };

/* The last window of the second document has one token, which scores nothing. */
static const int64_t lengths[N_DOCUMENTS] = { 37, 17 };

static int64_t token_at(int64_t document, int64_t i)
{
    return (int64_t)(hl_random_unit((uint64_t)document + 5, (uint64_t)i) * 150);
}

static hl_corpus *open_documents(const hl_model *model, const char *folder, const int64_t *n_tokens,
                                 int64_t n)
{
    const char *path   = in_folder(folder, "ids.jsonl");
    FILE       *file   = fopen(path, "w");
    hl_corpus  *corpus = NULL;

    assert_non_null(file);
    for (int64_t d = 0; d < n; d++) {
        for (int64_t i = 0; i < n_tokens[d]; i++)
            fprintf(file, "%s%d", i == 0 ? "[" : ",", (int)token_at(d, i));
        fprintf(file, "]\n");
    }
    assert_int_equal(fclose(file), 0);
    assert_ok(hl_corpus_open(&corpus, model, NULL, &(hl_corpus_options){ .token_ids = path }));
    return corpus;
}

static hl_corpus *open_corpus(const hl_model *model, const char *folder)
{
    return open_documents(model, folder, lengths, N_DOCUMENTS);
}

/* Makes every subset of the first N_VARIED heads of each layer; *n is their number.  Other heads
 * are enabled. */
static float *all_subsets(const hl_model *model, int64_t *n)
{
    const hl_model_info *info    = hl_model_get_info(model);
    int64_t              n_gates = info->n_layers * info->n_heads;

    assert_true(info->n_layers == 3 && info->n_heads > N_VARIED);
    *n           = (int64_t)1 << info->n_layers * N_VARIED;
    float *gates = malloc(sizeof *gates * (size_t)(*n * n_gates));
    assert_non_null(gates);
    for (int64_t i = 0; i < *n * n_gates; i++) {
        int64_t layer = i % n_gates / info->n_heads, head = i % info->n_heads;
        int64_t bit = layer * N_VARIED + head;
        gates[i]    = head < N_VARIED ? (float)((i / n_gates >> bit) & 1) : 1.0f;
    }
    return gates;
}

/* The model, the text and all settings. */
typedef struct subset_test {
    const char *folder;
    hl_model   *model;
    hl_corpus  *corpus;
    float      *gates;
    int64_t     n;
} subset_test;

static subset_test open_subsets(const char *path)
{
    subset_test t = { .folder = new_folder(), .model = open_model(path) };

    t.corpus = open_corpus(t.model, t.folder);
    t.gates  = all_subsets(t.model, &t.n);
    return t;
}

static void close_subsets(subset_test *t)
{
    free(t->gates);
    hl_corpus_close(t->corpus);
    hl_model_close(t->model);
    remove_folder(t->folder);
}

static hl_nll perplexity_of(const hl_model *model, const float *gates, int64_t n_batch)
{
    hl_perplexity *perplexity = NULL;
    int64_t        tokens[MAX_TOKENS];
    hl_nll         nll;

    assert_ok(hl_perplexity_open(
        &perplexity, model,
        &(hl_perplexity_options){ .n_ctx = CONTEXT, .n_batch = n_batch, .gates = gates }));
    for (int64_t d = 0; d < N_DOCUMENTS; d++) {
        for (int64_t i = 0; i < lengths[d]; i++)
            tokens[i] = token_at(d, i);
        assert_ok(hl_perplexity_add(&nll, perplexity,
                                    &(hl_scored_text){ .tokens = tokens, .n_tokens = lengths[d] }));
    }
    nll = hl_perplexity_total(perplexity);
    hl_perplexity_close(perplexity);
    return nll;
}

static hl_evaluation *evaluate(const hl_model *model, const hl_corpus *corpus, const float *gates,
                               int64_t n, int64_t n_batch, size_t memory)
{
    hl_evaluation *found = NULL;
    assert_ok(
        hl_evaluate(&found, model, corpus, gates, n,
                    &(hl_evaluate_options){ .windows = { .n_ctx = CONTEXT, .n_batch = n_batch },
                                            .memory_bytes = memory }));
    return found;
}

/* --------------------------------------------------------------------- equal bits */

static void check_subsets(const char *path)
{
    subset_test t      = open_subsets(path);
    int64_t     stride = hl_model_get_info(t.model)->n_layers * hl_model_get_info(t.model)->n_heads;

    for (int64_t n_batch = 1; n_batch <= 3; n_batch += 2) {
        hl_evaluation *found = evaluate(t.model, t.corpus, t.gates, t.n, n_batch, 0);
        for (int64_t i = 0; i < t.n; i += n_batch == 1 ? 7 : 1) {
            hl_nll    wanted = perplexity_of(t.model, t.gates + i * stride, n_batch);
            hl_scores seen   = hl_evaluation_total(found, i);
            if (seen.nll != wanted.sum || found->n_scored != wanted.n_scored)
                fail_msg("setting %d, batches of %d: %.17g, alone %.17g", (int)i, (int)n_batch,
                         seen.nll, wanted.sum);
        }
        /* The last subset has all heads: the reference model. */
        assert_memory_equal(found->scores + (t.n - 1) * found->n_windows, found->dense,
                            sizeof *found->dense * (size_t)found->n_windows);
        assert_int_equal(found->n_windows, 5 + 2);
        assert_int_equal(found->n_documents, 2);
        hl_evaluation_free(found);
    }
    close_subsets(&t);
}

static void all_subsets_are_as_alone(void **state)
{
    (void)state;
    check_subsets(LLAMA);
}

/* States, too, are those of a window's own text and gates. */
static void all_subsets_of_a_hybrid_are_as_alone(void **state)
{
    (void)state;
    check_subsets(HYBRID);
}

/* Without options, a text is one window of up to HL_DEFAULT_CTX tokens for both, for a model
 * without a context length. */
static void defaults_are_those_of_perplexity(void **state)
{
    enum { N_LONG = 1500 };
    const char    *folder     = new_folder();
    hl_model      *model      = open_model(LLAMA);
    hl_corpus     *corpus     = open_documents(model, folder, (int64_t[]){ N_LONG }, 1);
    hl_evaluation *found      = NULL;
    hl_perplexity *perplexity = NULL;
    hl_scored_text text       = { .n_tokens = N_LONG };
    static int64_t tokens[N_LONG];
    float          gates[64];
    hl_nll         wanted;
    (void)state;

    ((hl_config *)model->config)->n_ctx = 0;
    for (int64_t i = 0; i < N_LONG; i++)
        tokens[i] = token_at(0, i);
    for (size_t i = 0; i < sizeof gates / sizeof *gates; i++)
        gates[i] = 1.0f;
    text.tokens = tokens;
    assert_ok(hl_evaluate(&found, model, corpus, gates, 1, NULL));
    assert_ok(hl_perplexity_open(&perplexity, model, NULL));
    assert_ok(hl_perplexity_add(&wanted, perplexity, &text));
    assert_int_equal(found->n_ctx, HL_DEFAULT_CTX);
    assert_int_equal(hl_perplexity_n_ctx(perplexity, NULL), HL_DEFAULT_CTX);
    assert_int_equal(found->n_scored, N_LONG - 1);
    assert_true(hl_evaluation_total(found, 0).nll == wanted.sum);
    hl_perplexity_close(perplexity);
    hl_evaluation_free(found);
    hl_corpus_close(corpus);
    hl_model_close(model);
    remove_folder(folder);
}

/* Layer 0 has 8 settings, each run once; layer 1 has 8 for each of these. */
static void no_layer_is_run_twice(void **state)
{
    subset_test t = open_subsets(LLAMA);
    (void)state;

    hl_evaluation *found = evaluate(t.model, t.corpus, t.gates, t.n, 1, 0);
    assert_int_equal(found->n_layers_run, 7 * (8 + 64 + 512));
    assert_int_equal(found->n_layers_naive, 7 * 3 * (512 + 1));
    assert_int_equal(found->n_distinct, 512); /* one of them is the reference model */
    hl_evaluation_free(found);
    close_subsets(&t);
}

static void little_memory_changes_nothing_but_time(void **state)
{
    const char *folder = new_folder();
    hl_model   *model  = open_model(LLAMA);
    hl_corpus  *corpus = open_corpus(model, folder);
    float      *gates  = NULL;
    size_t      dense  = 2 * sizeof(float) * CONTEXT * 256;
    size_t      slot   = sizeof(float) * CONTEXT * 64;
    (void)state;

    int64_t n = hl_model_heads(NULL, model);
    assert_int_equal(n, 12);
    assert_ok(hl_single_gates(&gates, model, NULL));
    hl_evaluation *ample = evaluate(model, corpus, gates, n, 1, 0);
    hl_evaluation *tight = evaluate(model, corpus, gates, n, 1, dense + slot);
    hl_evaluation *none  = evaluate(model, corpus, gates, n, 1, dense);
    size_t         bytes = sizeof *ample->scores * (size_t)(n * ample->n_windows);
    assert_memory_equal(ample->scores, tight->scores, bytes);
    assert_memory_equal(ample->scores, none->scores, bytes);
    /* The reference model, then four heads of each layer; layer 2 keeps its stream if there is only
     * one slot. */
    assert_int_equal(ample->n_layers_run, 7 * (3 + 4 * 3 + 4 * 2 + 4 * 1));
    assert_int_equal(tight->n_layers_run, 7 * (3 + 4 * 3 + 4 * 3 + 4 * 1));
    assert_int_equal(none->n_layers_run, 7 * 3 * 13);
    hl_evaluation_free(ample);
    hl_evaluation_free(tight);
    hl_evaluation_free(none);
    hl_free(gates);
    hl_corpus_close(corpus);
    hl_model_close(model);
    remove_folder(folder);
}

/* -------------------------------------------------------------------- definitions */

typedef struct kept {
    float   rows[CONTEXT][256];
    int64_t n_rows;
} kept;

static hl_status keep_logits(void *context, const hl_final_rows *rows)
{
    kept *k = context;
    for (int64_t i = 0; i < rows->n_rows; i++)
        memcpy(k->rows[k->n_rows++], rows->logits + i * rows->d_vocab, sizeof k->rows[0]);
    return HL_OK;
}

static void run_plainly(kept *out, const hl_model *model, const float *gates)
{
    hl_session *session = NULL;
    int64_t     tokens[CONTEXT];
    hl_tap      tap = { .context = out, .final = keep_logits, .wants = HL_WANT_LOGITS };

    for (int64_t i = 0; i < CONTEXT - 1; i++)
        tokens[i] = token_at(0, i);
    out->n_rows = 0;
    assert_ok(hl_session_open(&session, model,
                              &(hl_session_options){ .n_ctx = CONTEXT, .wants = HL_WANT_LOGITS }));
    assert_ok(hl_session_feed(
        session,
        &(hl_feed){ .tokens = tokens, .n_tokens = CONTEXT - 1, .gates = gates, .tap = &tap }));
    hl_session_close(session);
}

static double plain_kl(const float *a, const float *b)
{
    double sum_a = 0.0, sum_b = 0.0, kl = 0.0;

    for (int i = 0; i < 256; i++) {
        sum_a += exp((double)a[i]);
        sum_b += exp((double)b[i]);
    }
    for (int i = 0; i < 256; i++) {
        double p = exp((double)a[i]) / sum_a, q = exp((double)b[i]) / sum_b;
        kl += p * log(p / q);
    }
    return kl;
}

static int64_t top(const float *logits)
{
    int64_t best = 0;
    for (int i = 1; i < 256; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static void distances_are_their_definition(void **state)
{
    static kept          dense, gated;
    const char          *folder = new_folder();
    hl_model            *model  = open_model(LLAMA);
    const hl_model_info *info   = hl_model_get_info(model);
    hl_corpus           *corpus = open_corpus(model, folder);
    float                gates[64];
    double               kl     = 0.0;
    int64_t              n_same = 0;
    (void)state;

    for (int64_t i = 0; i < info->n_layers * info->n_heads; i++)
        gates[i] = (float)(i % 3) / 2.0f;
    run_plainly(&dense, model, NULL);
    run_plainly(&gated, model, gates);
    for (int i = 0; i < CONTEXT - 1; i++) {
        kl += plain_kl(dense.rows[i], gated.rows[i]);
        n_same += top(dense.rows[i]) == top(gated.rows[i]);
    }
    hl_evaluation *found = evaluate(model, corpus, gates, 1, 1, 0);
    assert_true(kl > 0.01);
    assert_true(fabs(found->scores[0].kl - kl) < 1e-6 * kl);
    assert_int_equal(found->scores[0].n_same, n_same);
    assert_true(found->dense[0].kl == 0.0);
    assert_int_equal(found->dense[0].n_same, CONTEXT - 1);
    hl_evaluation_free(found);
    hl_corpus_close(corpus);
    hl_model_close(model);
    remove_folder(folder);
}

static void ablation_is_one_head_at_a_time(void **state)
{
    const char          *folder = new_folder();
    hl_model            *model  = open_model(LLAMA);
    const hl_model_info *info   = hl_model_get_info(model);
    hl_corpus           *corpus = open_corpus(model, folder);
    int64_t              n      = info->n_layers * info->n_heads;
    double               rises[64];
    float                gates[64];
    hl_nll               dense = perplexity_of(model, NULL, 1);
    (void)state;

    assert_ok(hl_ablate(rises, model, corpus,
                        &(hl_evaluate_options){ .windows = { .n_ctx = CONTEXT, .n_batch = 1 } }));
    for (int64_t head = 0; head < n; head++) {
        for (int64_t i = 0; i < n; i++)
            gates[i] = i == head ? 0.0f : 1.0f;
        hl_nll without = perplexity_of(model, gates, 1);
        assert_true(rises[head] == (without.sum - dense.sum) / (double)dense.n_scored);
    }
    hl_corpus_close(corpus);
    hl_model_close(model);
    remove_folder(folder);
}

/* ------------------------------------------------------------------------ going on */

static void work_goes_on_from_a_batch(void **state)
{
    const char         *folder  = new_folder();
    hl_model           *model   = open_model(LLAMA);
    hl_corpus          *corpus  = open_corpus(model, folder);
    int64_t             n       = 0;
    float              *gates   = all_subsets(model, &n);
    hl_evaluate_options options = { .windows = { .n_ctx = CONTEXT, .n_batch = 2 } };
    hl_evaluator       *e       = NULL;
    (void)state;

    hl_evaluation *whole = evaluate(model, corpus, gates, n, 2, 0);
    assert_ok(hl_evaluator_open(&e, model, corpus, gates, n, &options));
    assert_fails(HL_BAD_ARGUMENT, "no batch ends after 3 windows", hl_evaluator_skip(e, 3));
    assert_fails(HL_BAD_ARGUMENT, "no batch ends after 8 windows", hl_evaluator_skip(e, 8));
    assert_ok(hl_evaluator_skip(e, 5)); /* the end of the first document */
    while (!hl_evaluator_is_done(e))
        assert_ok(hl_evaluator_step(e));
    hl_evaluation *part = hl_evaluator_result(e);
    for (int64_t i = 0; i < n; i++)
        assert_memory_equal(part->scores + i * 7 + 5, whole->scores + i * 7 + 5,
                            2 * sizeof *part->scores);
    assert_int_equal(part->n_layers_run, whole->n_layers_run);
    hl_evaluator_close(e);
    hl_evaluation_free(whole);
    free(gates);
    hl_corpus_close(corpus);
    hl_model_close(model);
    remove_folder(folder);
}

static void what_cannot_be_is_refused(void **state)
{
    const char    *folder = new_folder();
    hl_model      *model  = open_model(LLAMA);
    hl_corpus     *corpus = open_corpus(model, folder);
    hl_evaluation *found  = NULL;
    float          gates[64];
    (void)state;

    for (int i = 0; i < 64; i++)
        gates[i] = i == 5 ? 1.5f : 1.0f;
    assert_fails(HL_BAD_ARGUMENT, "the gate of L1H1 is 1.5, wanted 0 to 1",
                 hl_evaluate(&found, model, corpus, gates, 1, NULL));
    gates[5] = NAN;
    assert_fails(HL_BAD_ARGUMENT, "the gate of L1H1 is",
                 hl_evaluate(&found, model, corpus, gates, 1, NULL));
    assert_fails(HL_BAD_ARGUMENT, "-1 settings",
                 hl_evaluate(&found, model, corpus, gates, -1, NULL));
    assert_fails(HL_BAD_ARGUMENT, "wanted 2 or more",
                 hl_evaluate(&found, model, corpus, NULL, 0,
                             &(hl_evaluate_options){ .windows = { .n_ctx = 1 } }));
    assert_fails(HL_BAD_ARGUMENT, "cannot overlap",
                 hl_evaluate(&found, model, corpus, NULL, 0,
                             &(hl_evaluate_options){ .windows = { .n_ctx = 8, .stride = 4 } }));
    assert_fails(HL_LIMIT, "only 0 MiB are allowed",
                 hl_evaluate(&found, model, corpus, NULL, 0,
                             &(hl_evaluate_options){ .memory_bytes = 1000 }));
    assert_null(found);
    hl_corpus_close(corpus);
    hl_model_close(model);
    remove_folder(folder);
}

/* A device's results are those of the CPU, except for rounding. */
static void a_device_says_the_same(void **state)
{
    subset_test t = open_subsets(LLAMA);
    (void)state;

    hl_evaluation *wanted = evaluate(t.model, t.corpus, t.gates, t.n, 3, 0);
    assert_ok(select_device("host"));
    hl_evaluation *seen = evaluate(t.model, t.corpus, t.gates, t.n, 3, 0);
    /* A device keeps the data itself: the host needs room for at most one stream. */
    hl_evaluation *tight = evaluate(t.model, t.corpus, t.gates, t.n, 3, 1);
    assert_ok(select_device(NULL));
    for (int64_t i = -1; i < t.n; i++) {
        hl_scores a = hl_evaluation_total(wanted, i), b = hl_evaluation_total(seen, i);
        hl_scores c = hl_evaluation_total(tight, i);

        assert_true(fabs(a.nll - b.nll) <= 1e-5 * a.nll);
        assert_true(fabs(a.kl - b.kl) <= 1e-5 * (1.0 + a.kl));
        assert_int_equal(a.n_same, b.n_same);
        assert_true(b.nll == c.nll && b.kl == c.kl && b.n_same == c.n_same);
    }
    hl_evaluation_free(wanted);
    hl_evaluation_free(seen);
    hl_evaluation_free(tight);
    close_subsets(&t);
}

/* If n_batch is not set, a device takes many windows at a time. */
static void a_device_chooses_its_batch(void **state)
{
    enum { N = 4 };
    subset_test t = open_subsets(LLAMA);
    (void)state;

    assert_ok(select_device("host"));
    hl_evaluation *wanted = evaluate(t.model, t.corpus, t.gates, N, 2, 0);
    hl_evaluation *many   = evaluate(t.model, t.corpus, t.gates, N, 0, 0);
    assert_ok(select_device(NULL));
    assert_true(many->n_layers_run < wanted->n_layers_run);
    for (int64_t i = -1; i < N; i++) {
        hl_scores a = hl_evaluation_total(wanted, i), b = hl_evaluation_total(many, i);

        assert_true(fabs(a.nll - b.nll) <= 1e-5 * a.nll);
        assert_true(fabs(a.kl - b.kl) <= 1e-5 * (1.0 + a.kl));
        assert_int_equal(a.n_same, b.n_same);
    }
    hl_evaluation_free(wanted);
    hl_evaluation_free(many);
    close_subsets(&t);
}

/* It takes as many windows as fit.  The limit is lowered until fewer fit; between, the work itself
 * may run out of memory. */
static void a_device_takes_what_fits(void **state)
{
    const int64_t       n_tokens = 256 * CONTEXT;
    const char         *folder   = new_folder();
    hl_model           *model    = open_model(LLAMA);
    hl_corpus          *corpus   = open_documents(model, folder, &n_tokens, 1);
    hl_evaluate_options options  = { .windows = { .n_ctx = CONTEXT } };
    hl_evaluation      *fewer    = NULL;
    (void)state;

    assert_ok(select_device("host"));
    hl_evaluation *many = evaluate(model, corpus, NULL, 0, 0, 0);
    for (size_t room = (size_t)64 << 20; fewer == NULL; room -= room / 16) {
        assert_true(room > 1 << 20);
        hl_memory_limit(hl_memory_held() + room);
        hl_status status = hl_evaluate(&fewer, model, corpus, NULL, 0, &options);
        hl_memory_limit(0);
        assert_true(status == HL_OK || status == HL_NO_MEMORY);
        if (fewer != NULL && fewer->n_layers_run == many->n_layers_run) {
            hl_evaluation_free(fewer);
            fewer = NULL;
        }
    }
    assert_ok(select_device(NULL));
    assert_true(fewer->n_layers_run > many->n_layers_run);
    double a = hl_evaluation_total(many, -1).nll, b = hl_evaluation_total(fewer, -1).nll;
    assert_true(fabs(a - b) <= 1e-5 * a);
    hl_evaluation_free(fewer);
    hl_evaluation_free(many);
    hl_corpus_close(corpus);
    hl_model_close(model);
    remove_folder(folder);
}

/* The number of windows goes down to one; if not even one fits, the session's error is returned. */
static void one_window_may_not_fit(void **state)
{
    enum { LENGTH = 64, N_WINDOWS = 8, N_HALVINGS = 4 }; /* batches of 8, 4, 2 and 1 */
    const int64_t       n_tokens         = (int64_t)N_WINDOWS * LENGTH;
    const char         *folder           = new_folder();
    hl_model           *model            = open_model(LLAMA);
    hl_corpus          *corpus           = open_documents(model, folder, &n_tokens, 1);
    hl_evaluate_options options          = { .windows = { .n_ctx = LENGTH } };
    hl_evaluation      *all              = NULL;
    int                 seen[N_HALVINGS] = { 0 }, n_refused = 0;
    (void)state;

    assert_ok(select_device("host"));
    assert_ok(hl_evaluate(&all, model, corpus, NULL, 0, &options));
    double wanted = hl_evaluation_total(all, -1).nll;
    for (size_t room = (size_t)12 << 20; room > (size_t)256 << 10; room -= room / 32) {
        hl_evaluation *found = NULL;

        hl_memory_limit(hl_memory_held() + room);
        hl_status status = hl_evaluate(&found, model, corpus, NULL, 0, &options);
        hl_memory_limit(0);
        for (int i = 0; found != NULL && i < N_HALVINGS; i++)
            seen[i] += found->n_layers_run == all->n_layers_run << i;
        if (found != NULL) {
            assert_ok(status);
            assert_true(fabs(hl_evaluation_total(found, -1).nll - wanted) <= 1e-5 * wanted);
        } else if (status == HL_LIMIT) {
            n_refused++;
            assert_non_null(strstr(hl_error_message(), "memory"));
        } else {
            assert_int_equal(status, HL_NO_MEMORY);
            assert_int_equal(n_refused, 0); /* after one refusal, all lower limits are refused */
        }
        hl_evaluation_free(found);
    }
    assert_ok(select_device(NULL));
    for (int i = 0; i < N_HALVINGS; i++)
        assert_true(seen[i] > 0);
    assert_true(n_refused > 0);
    hl_evaluation_free(all);
    hl_corpus_close(corpus);
    hl_model_close(model);
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_subsets_are_as_alone),
        cmocka_unit_test(all_subsets_of_a_hybrid_are_as_alone),
        cmocka_unit_test(defaults_are_those_of_perplexity),
        cmocka_unit_test(no_layer_is_run_twice),
        cmocka_unit_test(little_memory_changes_nothing_but_time),
        cmocka_unit_test(distances_are_their_definition),
        cmocka_unit_test(ablation_is_one_head_at_a_time),
        cmocka_unit_test(work_goes_on_from_a_batch),
        cmocka_unit_test(a_device_says_the_same),
        cmocka_unit_test(a_device_chooses_its_batch),
        cmocka_unit_test(a_device_takes_what_fits),
        cmocka_unit_test(one_window_may_not_fit),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
