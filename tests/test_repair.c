/* test_repair.c - output projections solved again: against NumPy, on any number of threads, written and
 * read, cut short and resumed, on another device, and what is refused. */
#include "prune_support.h"

#include <math.h>

#include "kernels/gemm.h"
#include "model/backward.h"
#include "model/sample.h"
#include "prune/repair.h"
#include "prune/stream_walk.h"

#define LLAMA "tests/data/families/llama3"
#define NEOX  "tests/data/families/gpt_neox"
#define DEMO  "models/demo"

enum { N_TEXT = 400, CONTEXT = 32, MAX_LAYERS = 16 };

/* ------------------------------------------------------------------------ a text */

static hl_corpus *open_ids(const hl_model *model, const char *folder, int64_t n_tokens)
{
    const char *path   = in_folder(folder, "ids.jsonl");
    FILE       *file   = fopen(path, "w");
    hl_corpus  *corpus = NULL;
    int64_t     most   = model->info.d_vocab < 250 ? model->info.d_vocab : 250;

    assert_non_null(file);
    for (int64_t i = 0; i < n_tokens; i++)
        fprintf(file, "%s%d", i == 0 ? "[" : ",",
                (int)(hl_random_unit(7, (uint64_t)i) * (double)most));
    fprintf(file, "]\n");
    assert_int_equal(fclose(file), 0);
    assert_ok(hl_corpus_open(&corpus, model, NULL, &(hl_corpus_options){ .token_ids = path }));
    return corpus;
}

static const hl_window_options windows = { .n_ctx = CONTEXT };

static double ridge; /* 0: the repair chooses it */

static hl_repair *repair_on(const hl_model *model, const hl_corpus *corpus, const choice *c,
                            int n_threads)
{
    hl_repair *repair = NULL;

    assert_ok(hl_repair_heads(
        &repair, model, corpus, &c->list,
        &(hl_repair_options){ .windows = windows, .n_threads = n_threads, .ridge = ridge }));
    return repair;
}

static void no_lapack_skips(void)
{
    if (hl_lapack_check() != HL_OK) {
        print_message("skipped: %s\n", hl_error_message());
        skip();
    }
}

/* ----------------------------------------------------------------- against NumPy */

static void put_array(const char *folder, const char *name, const void *values, size_t n_bytes)
{
    write_file(in_folder(folder, name), values, n_bytes);
}

/* Columns of kept heads of (d, n_heads d_head) values. */
static void put_columns(const char *folder, const char *name, const float *values, int64_t n_rows,
                        int64_t n_columns, const int64_t *heads, int64_t n_kept, int64_t d_head)
{
    float *packed = malloc(sizeof *packed * (size_t)(n_rows * n_kept * d_head + 1));

    assert_non_null(packed);
    for (int64_t r = 0; r < n_rows; r++) {
        for (int64_t i = 0; i < n_kept * d_head; i++)
            packed[r * n_kept * d_head + i] =
                values[r * n_columns + heads[i / d_head] * d_head + i % d_head];
    }
    put_array(folder, name, packed, sizeof *packed * (size_t)(n_rows * n_kept * d_head));
    free(packed);
}

static double ask_numpy(const char *script, const char *folder)
{
    char   command[4096];
    FILE  *pipe  = NULL;
    double error = NAN;

    snprintf(command, sizeof command, "python3 tests/%s '%s'", script, folder);
    pipe = popen(command, "r");
    assert_non_null(pipe);
    if (fscanf(pipe, "%lf", &error) != 1)
        error = NAN;
    assert_int_equal(pclose(pipe), 0);
    return error;
}

/* What a layer's problem is made of: streams of the model and of the one whose heads have gates. */
typedef struct problem {
    const hl_model *model;
    int64_t         layer;
    float          *wanted, *had, *z;
    int64_t         heads[MAX_HEADS];
    int64_t         n_kept;
} problem;

static double solve_again(const problem *p, const hl_repaired *values)
{
    const hl_config *config = p->model->config;
    const hl_param  *param  = hl_weights_get(p->model->weights, HL_ROLE_ATTN_O, p->layer, 0);
    int64_t          d = config->d_model, d_head = config->d_head;
    int64_t          n_heads = config->layers[p->layer].n_heads;
    const char      *folder  = new_folder();
    double shape[] = { N_TEXT, (double)(p->n_kept * d_head), (double)d, values->bias != NULL,
                       config->residual_scale };
    float *w0 = read_weight(&param->weight), *zeros = calloc((size_t)d, sizeof *zeros);
    float *b0 = values->bias != NULL ? read_weight(&param->bias) : zeros;

    put_array(folder, "shape", shape, sizeof shape);
    put_array(folder, "z", p->z, sizeof *p->z * (size_t)(N_TEXT * p->n_kept * d_head));
    put_array(folder, "wanted", p->wanted, sizeof *p->wanted * (size_t)(N_TEXT * d));
    put_array(folder, "had", p->had, sizeof *p->had * (size_t)(N_TEXT * d));
    put_columns(folder, "w0", w0, d, n_heads * d_head, p->heads, p->n_kept, d_head);
    put_columns(folder, "w1", values->weight, d, n_heads * d_head, p->heads, p->n_kept, d_head);
    put_array(folder, "b0", b0, sizeof *b0 * (size_t)d);
    put_array(folder, "b1", values->bias != NULL ? values->bias : zeros, sizeof *zeros * (size_t)d);
    double error = ask_numpy("repair_numpy.py", folder);
    remove_folder(folder);
    if (b0 != zeros)
        free(b0);
    free(zeros);
    free(w0);
    return error;
}

/* Heads are removed from this layer on: below it the two models are the same, to the bit. */
static void check_layer(hl_model *model, const hl_corpus *corpus, int64_t first)
{
    size_t   n_gates  = (size_t)(model->info.n_layers * model->info.n_heads);
    size_t   n_values = (size_t)(N_TEXT * model->info.d_model);
    hl_walk *walk     = NULL;
    choice   all = { 0 }, c = { 0 };
    float   *gates = malloc(sizeof *gates * n_gates);
    problem  p     = { .model  = model,
                       .layer  = first,
                       .wanted = malloc(sizeof(float) * n_values),
                       .had    = malloc(sizeof(float) * n_values),
                       .z      = malloc(sizeof(float) *
                                        (size_t)(N_TEXT * model->info.n_heads * model->info.d_head)) };

    assert_true(gates != NULL && p.wanted != NULL && p.had != NULL && p.z != NULL);
    for (size_t i = 0; i < n_gates; i++)
        gates[i] = 1.0f;
    choose_ragged(&all, model);
    for (int64_t i = 0; i < all.list.n_heads; i++) {
        hl_head head = all.heads[i];

        if (head.layer < first)
            continue;
        choose(&c, head.layer, head.head);
        gates[head.layer * model->info.n_heads + head.head] = 0.0f;
    }
    for (int64_t h = 0; h < model->config->layers[first].n_heads; h++) {
        if (gates[first * model->info.n_heads + h] != 0.0f)
            p.heads[p.n_kept++] = h;
    }
    hl_repair *repair = repair_on(model, corpus, &c, 1);
    assert_int_equal(hl_repair_get_info(repair)->layers[0].dtype, HL_DTYPE_F32);
    assert_int_equal(hl_repair_get_info(repair)->n_tokens, N_TEXT);
    assert_ok(hl_walk_open(&walk, model, corpus, &windows, NULL, 1));
    hl_walk_stream original = { .x = p.wanted };
    hl_walk_stream pruned   = {
          .x = p.had, .gates = gates, .z = p.z, .heads = p.heads, .n_heads = p.n_kept
    };
    for (int64_t layer = 0; layer <= first; layer++) {
        memcpy(p.had, p.wanted, sizeof(float) * n_values);
        assert_ok(hl_walk_step(walk, &original, layer));
    }
    assert_ok(hl_walk_step(walk, &pruned, first));
    double error = solve_again(&p, hl_repair_at(repair, first));
    if (!(error < 1e-6))
        fail_msg("%s, layer %d: off by %.2e", model->path, (int)first, error);
    hl_walk_close(walk);
    hl_repair_free(repair);
    free(gates);
    free(p.wanted);
    free(p.had);
    free(p.z);
}

/* The output projections as F32, so that no rounding stands between; the last of each pair are
 * released with free. */
static void widen_outputs(hl_model *model, float **values)
{
    for (int64_t i = 0; i < model->info.n_layers; i++) {
        hl_param   param  = *hl_weights_get(model->weights, HL_ROLE_ATTN_O, i, 0);
        hl_weight *each[] = { &param.weight, &param.bias };

        for (int k = 0; k < 2; k++) {
            values[2 * i + k] = each[k]->tensor != NULL ? read_weight(each[k]) : NULL;
            if (values[2 * i + k] == NULL)
                continue;
            *each[k] = (hl_weight){ .tensor    = each[k]->tensor,
                                    .data      = values[2 * i + k],
                                    .dtype     = HL_DTYPE_F32,
                                    .n_rows    = each[k]->n_rows,
                                    .n_columns = each[k]->n_columns,
                                    .n_stored  = each[k]->n_rows,
                                    .block     = each[k]->n_rows,
                                    .stride    = each[k]->n_rows };
        }
        hl_weights_put(model->weights, HL_ROLE_ATTN_O, i, &param);
    }
}

static void check_numpy(const char *path)
{
    float    *values[64] = { 0 };
    char      folder[64];
    hl_model *model = open_model(path);

    snprintf(folder, sizeof folder, "%s", new_folder());
    hl_corpus *corpus = open_ids(model, folder, N_TEXT);
    assert_true(2 * model->info.n_layers <= 64);
    widen_outputs(model, values);
    for (int64_t first = 0; first < model->info.n_layers; first++)
        check_layer(model, corpus, first);
    for (int i = 0; i < 64; i++)
        free(values[i]);
    hl_corpus_close(corpus);
    hl_model_close(model);
    remove_folder(folder);
}

static void numpy_solves_the_same(void **state)
{
    static const char *const families[] = { "gpt2", "opt",     "llama",     "granite", "falcon",
                                            "phi",  "mixtral", "qwen3_moe", "bloom",   "gptj" };
    (void)state;

    no_lapack_skips();
    if (system("python3 -c 'import numpy' 2>/dev/null") != 0) {
        print_message("skipped: no NumPy (Debian: python3-numpy)\n");
        skip();
    }
    ridge = 1e-3; /* as repair_numpy.py has it */
    check_numpy(LLAMA);
    check_numpy(NEOX);
    for (size_t i = 0;
         path_exists(in_shared("golden/families")) && i < sizeof families / sizeof *families; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", in_shared("golden/families"), families[i]);
        check_numpy(path);
    }
    ridge = 0.0;
}

static void check_surgeon(const char *path)
{
    char          folder[64];
    hl_model     *model = open_model(path);
    hl_walk      *walk  = NULL;
    int64_t       H = model->info.n_heads, d = model->info.d_head, D = model->info.d_model;
    double       *scores             = malloc(sizeof *scores * (size_t)(model->info.n_layers * H));
    hl_squares   *fisher[MAX_LAYERS] = { 0 };
    hl_gradients *of_gates           = NULL;
    float        *x                  = malloc(sizeof *x * (size_t)(N_TEXT * D));
    float        *z                  = malloc(sizeof *z * (size_t)(N_TEXT * H * d));
    int64_t       heads[MAX_HEADS];

    assert_true(scores != NULL && x != NULL && z != NULL);
    for (int64_t i = 0; i < H; i++)
        heads[i] = i;
    snprintf(folder, sizeof folder, "%s", new_folder());
    hl_corpus *corpus = open_ids(model, folder, N_TEXT);
    assert_ok(hl_surgeon_scores(scores, model, corpus,
                                &(hl_surgeon_options){ .windows = windows, .n_threads = 2 }));
    for (int64_t layer = 0; layer < model->info.n_layers; layer++)
        assert_ok(hl_squares_new(&fisher[layer], D, 0, 1));
    assert_ok(hl_output_gradients(&of_gates, fisher, model, corpus,
                                  &(hl_gradient_options){ .windows = windows, .n_threads = 1 }));
    hl_gradients_free(of_gates);
    assert_ok(hl_walk_open(&walk, model, corpus, &windows, NULL, 1));
    hl_walk_stream stream = { .x = x, .z = z, .heads = heads, .n_heads = H };
    for (int64_t layer = 0; layer < model->info.n_layers; layer++) {
        const hl_param *param = hl_weights_get(model->weights, HL_ROLE_ATTN_O, layer, 0);
        double shape[] = { N_TEXT, (double)H, (double)d, (double)D, (double)fisher[layer]->n_rows };
        float *w0      = read_weight(&param->weight);

        assert_ok(hl_walk_step(walk, &stream, layer));
        put_array(folder, "shape", shape, sizeof shape);
        put_array(folder, "z", z, sizeof *z * (size_t)(N_TEXT * H * d));
        put_array(folder, "fisher", fisher[layer]->gram, sizeof(double) * (size_t)(D * D));
        put_array(folder, "w0", w0, sizeof *w0 * (size_t)(D * H * d));
        put_array(folder, "scores", scores + layer * H, sizeof *scores * (size_t)H);
        double error = ask_numpy("surgeon_numpy.py", folder);
        if (!(error < 1e-6))
            fail_msg("%s, layer %d: off by %.2e", path, (int)layer, error);
        free(w0);
        hl_squares_free(fisher[layer]);
    }
    free(scores);
    free(x);
    free(z);
    hl_walk_close(walk);
    hl_corpus_close(corpus);
    hl_model_close(model);
    remove_folder(folder);
}

/* Gradients of what the attention of each layer writes. */
typedef struct output_gradients {
    float  *rows[MAX_LAYERS]; /* (CONTEXT, d_model) */
    int64_t d_model;
} output_gradients;

static hl_status take_outputs(void *context, int64_t layer, const float *gradient)
{
    output_gradients *all = context;
    size_t            n   = sizeof *gradient * (size_t)(CONTEXT * all->d_model);

    all->rows[layer] = malloc(n);
    assert_non_null(all->rows[layer]);
    memcpy(all->rows[layer], gradient, n);
    return HL_OK;
}

/* The gradient of a head's gate is the sum over the tokens of g' W_h z_h: gate gradients are tested
 * against PyTorch's elsewhere. */
static void check_output_gradients(const char *path)
{
    char             folder[64];
    hl_model        *model    = open_model(path);
    hl_backward     *backward = NULL;
    hl_walk         *walk     = NULL;
    int64_t          H = model->info.n_heads, d = model->info.d_head, D = model->info.d_model;
    output_gradients g     = { .d_model = D };
    double          *gates = malloc(sizeof *gates * (size_t)(model->info.n_layers * H));
    float           *x     = malloc(sizeof *x * (size_t)(CONTEXT * D));
    float           *z     = malloc(sizeof *z * (size_t)(CONTEXT * H * d));
    int64_t          tokens[CONTEXT], heads[MAX_HEADS];
    double           nll = 0.0;

    assert_true(gates != NULL && x != NULL && z != NULL);
    snprintf(folder, sizeof folder, "%s", new_folder());
    hl_corpus *corpus = open_ids(model, folder, CONTEXT);
    for (int64_t i = 0; i < CONTEXT; i++)
        tokens[i] = (int64_t)(hl_random_unit(7, (uint64_t)i) *
                              (double)(model->info.d_vocab < 250 ? model->info.d_vocab : 250));
    for (int64_t i = 0; i < H; i++)
        heads[i] = i;
    assert_ok(hl_backward_open(&backward, model, CONTEXT, 1));
    backward->outputs         = take_outputs;
    backward->outputs_context = &g;
    assert_ok(hl_backward_run(gates, &nll, backward, tokens, CONTEXT, 1));
    assert_ok(hl_walk_open(&walk, model, corpus, &windows, NULL, 1));
    hl_walk_stream stream = { .x = x, .z = z, .heads = heads, .n_heads = H };
    for (int64_t layer = 0; layer < model->info.n_layers; layer++) {
        float *w0 = read_weight(&hl_weights_get(model->weights, HL_ROLE_ATTN_O, layer, 0)->weight);

        assert_ok(hl_walk_step(walk, &stream, layer));
        for (int64_t h = 0; h < H; h++) {
            double sum = 0.0, size = 0.0;

            for (int64_t i = 0; i < CONTEXT * D; i++) {
                for (int64_t k = 0; k < d; k++) {
                    double term = (double)g.rows[layer][i] * (double)w0[i % D * H * d + h * d + k] *
                                  (double)z[i / D * H * d + h * d + k];
                    sum += term;
                    size += fabs(term);
                }
            }
            if (!(fabs(sum - gates[layer * H + h]) <= 1e-5 * size))
                fail_msg("%s, L%dH%d: %.9g, and the gate has %.9g", path, (int)layer, (int)h, sum,
                         gates[layer * H + h]);
        }
        free(w0);
        free(g.rows[layer]);
    }
    free(gates);
    free(x);
    free(z);
    hl_walk_close(walk);
    hl_backward_close(backward);
    hl_corpus_close(corpus);
    hl_model_close(model);
    remove_folder(folder);
}

static void output_gradients_add_up_to_gates(void **state)
{
    (void)state;
    check_output_gradients(LLAMA);
    check_output_gradients(NEOX);
    check_output_gradients("tests/data/families/starcoder2");
}

static void numpy_scores_the_same(void **state)
{
    (void)state;
    no_lapack_skips();
    if (system("python3 -c 'import numpy' 2>/dev/null") != 0) {
        print_message("skipped: no NumPy (Debian: python3-numpy)\n");
        skip();
    }
    check_surgeon(LLAMA);
    check_surgeon(NEOX);
}

/* ------------------------------------------------------------------ cases side by side */

static double loss_of(const hl_evaluation *found, int64_t setting)
{
    return hl_evaluation_total(found, setting).nll / (double)found->n_scored;
}

static hl_evaluation *evaluate_as_it_is(const hl_model *model, const hl_corpus *corpus)
{
    hl_evaluation *found = NULL;

    assert_ok(hl_evaluate(&found, model, corpus, NULL, 0,
                          &(hl_evaluate_options){ .windows = windows, .n_threads = 1 }));
    return found;
}

/* Cases that share streams, part and are equal have the losses of models that are repaired one by one,
 * and the original has its own.  Returns false if the model cannot be repaired. */
static bool check_cases(const char *path)
{
    enum { N_CASES = 5 };
    char           folder[64];
    hl_model      *model      = open_model(path);
    choice         c[N_CASES] = { 0 };
    hl_head_list   lists[N_CASES];
    bool           means[N_CASES] = { false, false, false, true, false };
    hl_evaluation *found = NULL, *whole = NULL;

    if (hl_repair_check(model) != HL_OK || hl_walk_check(model) != HL_OK) {
        print_message("%s: %s\n", path, hl_error_message());
        hl_model_close(model);
        return false;
    }
    snprintf(folder, sizeof folder, "%s", new_folder());
    hl_corpus *corpus = open_ids(model, folder, 150);
    choose_ragged(&c[0], model);
    choose_ragged(&c[1], model);
    c[1].list.n_heads -= c[1].list.n_heads > 1; /* parts from the first at its last head */
    choose_ragged(&c[2], model);                /* equal to the first */
    choose_ragged(&c[3], model);
    for (int i = 0; i < N_CASES; i++) /* the last loses no head */
        lists[i] = c[i].list;
    assert_ok(hl_evaluate_cases(&found, model, corpus, corpus, lists, means, N_CASES,
                                &(hl_repair_options){ .windows = windows, .n_threads = 1 },
                                &windows));
    whole = evaluate_as_it_is(model, corpus);
    assert_int_equal(found->n_scored, whole->n_scored);
    assert_int_equal(found->n_windows, whole->n_windows);
    if (!(fabs(loss_of(found, -1) - loss_of(whole, -1)) <= 1e-6 * loss_of(whole, -1)))
        fail_msg("%s: a walk has a loss of %.9f, a pass %.9f", path, loss_of(found, -1),
                 loss_of(whole, -1));
    assert_true(loss_of(found, 4) == loss_of(found, -1));
    assert_true(loss_of(found, 0) == loss_of(found, 2));
    assert_true(hl_evaluation_total(found, 4).kl == 0.0);
    assert_true(hl_evaluation_total(found, 0).kl > 0.0);
    for (int i = 0; i < 2; i++) {
        hl_repair     *repair = repair_on(model, corpus, &c[i], 1);
        hl_evaluation *alone  = NULL;

        assert_ok(hl_model_set_repair(model, repair));
        alone = evaluate_as_it_is(model, corpus);
        if (!(fabs(loss_of(found, i) - loss_of(alone, -1)) <= 2e-5 * loss_of(alone, -1)))
            fail_msg("%s, case %d: %.9f side by side, %.9f alone", path, i, loss_of(found, i),
                     loss_of(alone, -1));
        assert_ok(hl_model_set_repair(model, NULL));
        hl_evaluation_free(alone);
        hl_repair_free(repair);
    }
    hl_evaluation_free(found);
    hl_evaluation_free(whole);
    hl_corpus_close(corpus);
    hl_model_close(model);
    remove_folder(folder);
    return true;
}

static void cases_are_as_alone(void **state)
{
    static const char *const families[] = { "falcon", "granite", "mixtral", "gemma3", "olmo2" };
    static const char *const more[] = { "lfm2", "gemma4", "helium", "glm4", "falcon_h1", "jamba" };
    const char              *only   = getenv("HEADLIGHT_REPAIR_FAMILY"); /* a folder */
    char                     path[1024];
    (void)state;

    no_lapack_skips();
    if (only != NULL) {
        (void)check_cases(only);
        return;
    }
    assert_true(check_cases(LLAMA));
    assert_true(check_cases(NEOX));
    for (size_t i = 0;
         path_exists(in_shared("golden/families")) && i < sizeof families / sizeof *families; i++) {
        snprintf(path, sizeof path, "%s/%s", in_shared("golden/families"), families[i]);
        assert_true(check_cases(path) == (i < 3));
    }
    for (size_t i = 0; path_exists(in_shared("golden/families2")) && i < sizeof more / sizeof *more;
         i++) {
        snprintf(path, sizeof path, "%s/%s", in_shared("golden/families2"), more[i]);
        (void)check_cases(path);
    }
}

/* ------------------------------------------------------------------ threads, devices */

static double distance(const hl_repair *a, const hl_repair *b, const hl_model *model)
{
    double worst = 0.0, largest = 0.0;

    for (int64_t i = 0; i < model->info.n_layers; i++) {
        const hl_repaired *p = hl_repair_at(a, i), *q = hl_repair_at(b, i);
        size_t             n =
            (size_t)(model->info.d_model * model->config->layers[i].n_heads * model->info.d_head);

        assert_int_equal(p == NULL, q == NULL);
        for (size_t k = 0; p != NULL && k < n; k++) {
            worst   = fmax(worst, fabs((double)p->weight[k] - (double)q->weight[k]));
            largest = fmax(largest, fabs((double)p->weight[k]));
        }
    }
    return worst / largest;
}

static void threads_change_nothing(void **state)
{
    static const char *const models[] = { LLAMA, DEMO };
    (void)state;

    no_lapack_skips();
    for (int m = 0; m < 2; m++) {
        hl_model *model = open_model(models[m]);
        choice    c     = { 0 };

        choose_ragged(&c, model);
        const char *folder = new_folder();
        hl_corpus  *corpus = open_ids(model, folder, 700);
        hl_repair  *one    = repair_on(model, corpus, &c, 1);
        for (int n_threads = 2; n_threads <= 7; n_threads += 5) {
            hl_repair *more = repair_on(model, corpus, &c, n_threads);
            assert_true(distance(one, more, model) == 0.0);
            hl_repair_free(more);
        }
        hl_repair_free(one);
        hl_corpus_close(corpus);
        hl_model_close(model);
        remove_folder(folder);
    }
}

/* The device "host" treats its memory as another's (tests/host_device.c). */
static void devices_agree(void **state)
{
    (void)state;
    no_lapack_skips();
    for (int m = 0; m < 2; m++) {
        hl_model   *model  = open_model(m == 0 ? LLAMA : NEOX);
        choice      c      = { 0 };
        const char *folder = new_folder();
        hl_corpus  *corpus = open_ids(model, folder, N_TEXT);

        choose_ragged(&c, model);
        ridge           = 1e-3; /* fixed: a rounding may decide which of two is best */
        hl_repair *here = repair_on(model, corpus, &c, 1);
        assert_ok(hl_model_set_device(model, "host"));
        hl_repair *there = repair_on(model, corpus, &c, 1);
        double     error = distance(here, there, model);
        if (!(error < 1e-3)) /* of the ridge's condition, 1e3, times what kernels round */
            fail_msg("%s: devices differ by %.1e", model->path, error);
        ridge = 0.0;
        hl_repair_free(here);
        hl_repair_free(there);
        hl_corpus_close(corpus);
        hl_model_close(model);
        remove_folder(folder);
    }
}

/* A device walks all windows at once, the CPU one after the other: 4 of 32 tokens and one of 22. */
static void devices_score_alike(void **state)
{
    (void)state;
    no_lapack_skips();
    for (int m = 0; m < 2; m++) {
        hl_model      *model    = open_model(m == 0 ? LLAMA : NEOX);
        choice         c        = { 0 };
        const char    *folder   = new_folder();
        hl_corpus     *corpus   = open_ids(model, folder, 150);
        hl_evaluation *found[2] = { NULL };

        choose_ragged(&c, model);
        hl_head_list lists[] = { c.list, c.list };
        bool         means[] = { false, true };
        for (int i = 0; i < 2; i++) {
            assert_ok(hl_model_set_device(model, i == 0 ? "cpu" : "host"));
            assert_ok(hl_evaluate_cases(
                &found[i], model, corpus, corpus, lists, means, 2,
                &(hl_repair_options){ .windows = windows, .n_threads = 1, .ridge = 1e-3 },
                &windows));
        }
        assert_int_equal(found[0]->n_windows, 5);
        for (int64_t i = 0; i < 2 * 5; i++) {
            const hl_scores *a = &found[0]->scores[i], *b = &found[1]->scores[i];

            if (!(fabs(a->nll - b->nll) <= 1e-4 * a->nll && fabs(a->kl - b->kl) <= 1e-2 * a->kl))
                fail_msg("%s, row %d: %.9f and %.9f, divergence %.9f and %.9f", model->path, (int)i,
                         a->nll, b->nll, a->kl, b->kl);
        }
        hl_evaluation_free(found[0]);
        hl_evaluation_free(found[1]);
        hl_corpus_close(corpus);
        hl_model_close(model);
        remove_folder(folder);
    }
}

/* ------------------------------------------------------------------------- written */

static void check_written(const char *from, hl_prune_form form)
{
    char      folder[64], path[128];
    hl_model *model = open_model(from);
    choice    c     = { 0 };

    snprintf(folder, sizeof folder, "%s", new_folder());
    snprintf(path, sizeof path, "%s/x", folder);
    hl_corpus *corpus = open_ids(model, folder, N_TEXT);
    choose_ragged(&c, model);
    hl_repair *repair = repair_on(model, corpus, &c, 2);
    run        before = run_tokens(model, NULL, N_TOKENS);
    assert_ok(hl_model_set_repair(model, repair));
    run set = run_tokens(model, NULL, N_TOKENS);
    assert_ok(hl_model_set_repair(model, NULL));
    run after = run_tokens(model, NULL, N_TOKENS);
    assert_true(difference(&before, &after, N_TOKENS) == 0.0);
    assert_true(difference(&before, &set, N_TOKENS) > 1e-4);
    assert_ok(hl_prune_write(NULL, model, &c.list,
                             &(hl_prune_options){ .form = form, .repair = repair }, path));
    run    written = run_file(path);
    double error   = difference(&set, &written, N_TOKENS);
    if (!(error < 1e-5))
        fail_msg("%s as %s: off by %.1e", from, hl_prune_form_name(form), error);
    run gated = run_gated(model, &c);
    assert_true(difference(&set, &gated, N_TOKENS) > 1e-4); /* zeroed is another thing */
    hl_head one = { 0, 0 };
    assert_fails(HL_BAD_ARGUMENT, "for other heads",
                 hl_prune_write(NULL, model, &(hl_head_list){ &one, 1 },
                                &(hl_prune_options){ .form = form, .repair = repair },
                                in_folder(folder, "y")));
    free(before.values);
    free(after.values);
    free(set.values);
    free(written.values);
    free(gated.values);
    hl_repair_free(repair);
    hl_corpus_close(corpus);
    hl_model_close(model);
    if (form == HL_PRUNE_GGUF)
        unlink(path);
    else
        remove_folder(path);
    remove_folder(folder);
}

static void repaired_models_are_written(void **state)
{
    (void)state;
    no_lapack_skips();
    for (hl_prune_form form = HL_PRUNE_MASKED; form <= HL_PRUNE_GGUF; form++) {
        check_written(LLAMA, form);
        check_written("tests/data/families/starcoder2", form);
        if (form != HL_PRUNE_GGUF)
            check_written(NEOX, form);
        check_written(DEMO, form);
    }
}

/* -------------------------------------------------------------------- what it is for */

static double rise_on(const hl_model *model, const hl_corpus *corpus, const float *gates)
{
    hl_evaluation *found = NULL;
    int64_t        n     = model->info.n_layers * model->info.n_heads;
    float         *ones  = malloc(sizeof *ones * (size_t)n);

    for (int64_t i = 0; i < n; i++)
        ones[i] = 1.0f;
    assert_ok(
        hl_evaluate(&found, model, corpus, gates != NULL ? gates : ones, 1,
                    &(hl_evaluate_options){ .windows = { .n_ctx = 256, .max_tokens = 8192 } }));
    double nll = hl_evaluation_total(found, 0).nll / (double)found->n_scored;
    hl_evaluation_free(found);
    free(ones);
    return nll;
}

/* By output norm, what is ranked and solved on the first texts, and what it costs on the others. */
static void check_half(const char *const *rank_texts, size_t n_rank, const char *test_text)
{
    hl_model     *model     = open_model(DEMO);
    hl_tokenizer *tokenizer = NULL;
    hl_corpus    *rank = NULL, *test = NULL;
    hl_evidence   evidence = { 0 };
    hl_ranking   *ranking  = NULL;
    hl_gates     *gates    = NULL;

    assert_ok(hl_tokenizer_open(&tokenizer, model->info.tokenizer_path));
    assert_ok(hl_corpus_open(&rank, model, tokenizer,
                             &(hl_corpus_options){ .inputs = rank_texts, .n_inputs = n_rank }));
    assert_ok(hl_corpus_open(&test, model, tokenizer,
                             &(hl_corpus_options){ .inputs = &test_text, .n_inputs = 1 }));
    assert_ok(hl_evidence_take(&evidence, HL_RANKER_OUTPUT_NORM, model, tokenizer, rank,
                               &(hl_evidence_options){ .windows = { .max_tokens = 8192 } }));
    assert_ok(hl_evidence_rank(&ranking, &evidence, HL_RANKER_OUTPUT_NORM, model, NULL));
    double whole = rise_on(model, test, NULL);
    for (int percent = 20; percent <= 40; percent += 20) {
        hl_head_list *heads  = NULL;
        hl_repair    *repair = NULL;

        assert_ok(hl_gates_new(&gates, model));
        assert_ok(hl_ranking_choose(&heads, ranking, &(hl_choice){ .ratio = percent / 100.0 }));
        hl_gates_set(gates, heads, 0.0f);
        double zeroed = rise_on(model, test, gates->values) - whole;
        assert_ok(hl_repair_heads(&repair, model, rank, heads,
                                  &(hl_repair_options){ .windows = { .n_ctx = 256 } }));
        assert_ok(hl_model_set_repair(model, repair));
        double repaired = rise_on(model, test, NULL) - whole;
        assert_ok(hl_model_set_repair(model, NULL));
        print_message("%s, %d%%: %+.4f zeroed, %+.4f repaired\n", test_text, percent, zeroed,
                      repaired);
        assert_true(zeroed > 0.02);
        assert_true(repaired <= 0.5 * zeroed);
        hl_repair_free(repair);
        hl_head_list_free(heads);
        hl_gates_free(gates);
    }
    hl_ranking_free(ranking);
    hl_evidence_free(&evidence);
    hl_corpus_close(rank);
    hl_corpus_close(test);
    hl_tokenizer_close(tokenizer);
    hl_model_close(model);
}

/* The first part of a book for the rest of it. */
static void half_the_loss_is_left(void **state)
{
    char        folder[64], command[512];
    const char *first = NULL;
    (void)state;

    no_lapack_skips();
    snprintf(folder, sizeof folder, "%s", new_folder());
    snprintf(command, sizeof command,
             "head -c 70000 models/text/alice.txt | iconv -c -f UTF-8 -t UTF-8 > %s/a; "
             "tail -c +70001 models/text/alice.txt | iconv -c -f UTF-8 -t UTF-8 > %s/b",
             folder, folder);
    assert_int_equal(system(command), 0);
    first = in_folder(folder, "a");
    check_half(&first, 1, in_folder(folder, "b"));
    remove_folder(folder);
}

/* Eight books for others. */
static void half_the_loss_is_left_for_other_books(void **state)
{
    static const char script[] =
        "cd '%s' && tar xJf '%s' --strip-components=1 && i=0 && "
        "for f in *Emma* *Moby* *Sherlock* *Dracula* *Species* *Huckleberry* *Odyssey* *Republic*; "
        "do tail -c +48001 \"$f\" | head -c 12000 | iconv -c -f UTF-8 -t UTF-8 > ../$i.text; "
        "i=$((i + 1)); done; rm -f ./*; mv ../[0-7].text .";
    char        top[64], folder[80], command[8192], names[8][128], archive[4096];
    const char *texts[8];
    (void)state;

    no_lapack_skips();
    if (!path_exists(in_shared("corpora/gutenberg.tar.xz"))) {
        print_message("skipped: no ../shared/corpora/gutenberg.tar.xz\n");
        skip();
    }
    snprintf(top, sizeof top, "%s", new_folder());
    snprintf(folder, sizeof folder, "%s/books", top);
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_non_null(realpath(in_shared("corpora/gutenberg.tar.xz"), archive));
    snprintf(command, sizeof command, script, folder, archive);
    assert_int_equal(system(command), 0);
    for (int i = 0; i < 8; i++) {
        snprintf(names[i], sizeof names[i], "%s/%d.text", folder, i);
        texts[i] = names[i];
    }
    check_half(texts, 8, "models/text/alice.txt");
    remove_folder(folder);
    remove_folder(top);
}

/* ----------------------------------------------------------------------- cut short */

static hl_status stop_later(void *context, const hl_progress *progress)
{
    int *left = context;
    (void)progress;

    return --*left == 0 ? HL_CANCELLED : HL_OK;
}

static void a_killed_repair_continues(void **state)
{
    char       folder[64], saved[128];
    hl_model  *model = open_model(DEMO);
    choice     c     = { 0 };
    hl_repair *again = NULL;
    (void)state;

    no_lapack_skips();
    snprintf(folder, sizeof folder, "%s", new_folder());
    snprintf(saved, sizeof saved, "%s/state", folder);
    hl_corpus *corpus = open_ids(model, folder, 600);
    choose_ragged(&c, model);
    hl_repair *whole = repair_on(model, corpus, &c, 2);
    for (int stop = 1; stop < 8; stop += 3) {
        int               left    = stop;
        hl_repair_options options = { .windows    = windows,
                                      .state_path = saved,
                                      .resume     = true,
                                      .progress   = stop_later,
                                      .context    = &left };

        assert_int_equal(hl_repair_heads(&again, model, corpus, &c.list, &options), HL_CANCELLED);
        assert_null(again);
        options.progress = NULL;
        assert_ok(hl_repair_heads(&again, model, corpus, &c.list, &options));
        assert_true(distance(whole, again, model) == 0.0);
        const hl_repair_info *a = hl_repair_get_info(whole), *b = hl_repair_get_info(again);
        assert_int_equal(a->n_layers, b->n_layers);
        assert_memory_equal(a->layers, b->layers, (size_t)a->n_layers * sizeof *a->layers);
        hl_repair_free(again);
        c.list.n_heads--;
        assert_fails(HL_BAD_INPUT, "was begun with other settings",
                     hl_repair_heads(&again, model, corpus, &c.list, &options));
        c.list.n_heads++;
        unlink(saved);
    }
    hl_repair_free(whole);
    hl_corpus_close(corpus);
    hl_model_close(model);
    remove_folder(folder);
}

/* ------------------------------------------------------------------------- bad input */

static void fails(hl_status wanted, const char *message, const char *path, const choice *c,
                  const hl_repair_options *options)
{
    hl_model   *model  = open_model(path);
    const char *folder = new_folder();
    hl_corpus  *corpus = open_ids(model, folder, 100);
    hl_repair  *repair = NULL;

    assert_fails(wanted, message, hl_repair_heads(&repair, model, corpus, &c->list, options));
    assert_null(repair);
    hl_corpus_close(corpus);
    hl_model_close(model);
    remove_folder(folder);
}

static void what_cannot_be_is_refused(void **state)
{
    choice one = { 0 }, all = { 0 }, none = { 0 };
    (void)state;

    no_lapack_skips();
    choose(&one, 0, 1);
    choose(&none, 7, 0);
    for (int64_t i = 0; i < 12; i++)
        choose(&all, i / 4, i % 4);
    fails(HL_BAD_ARGUMENT, "all heads of the model are removed", LLAMA, &all, NULL);
    fails(HL_BAD_ARGUMENT, "the model has no head L7H0", LLAMA, &none, NULL);
    fails(HL_LIMIT, "fewer tokens take less", LLAMA, &one,
          &(hl_repair_options){ .memory_bytes = 10000 });
    fails(HL_BAD_ARGUMENT, "windows lie side by side", LLAMA, &one,
          &(hl_repair_options){ .windows = { .stride = 3 } });
    fails(HL_BAD_ARGUMENT, "ridge", LLAMA, &one, &(hl_repair_options){ .ridge = -1.0 });
    if (!path_exists(in_shared("golden/families")))
        return;
    char path[1024];
    snprintf(path, sizeof path, "%s", in_shared("golden/families/gemma3"));
    fails(HL_UNSUPPORTED, "a norm stands between its output projection and the stream", path, &one,
          NULL);
    snprintf(path, sizeof path, "%s", in_shared("golden/families/bert"));
    fails(HL_UNSUPPORTED, "goes through a norm before anything reads it", path, &one, NULL);
}

static void short_texts_and_empty_layers_are_told(void **state)
{
    hl_model   *model  = open_model(LLAMA);
    const char *folder = new_folder();
    hl_corpus  *corpus = open_ids(model, folder, 20);
    choice      c      = { 0 };
    (void)state;

    no_lapack_skips();
    for (int64_t i = 0; i < 4; i++)
        choose(&c, 1, i);
    hl_repair            *repair = repair_on(model, corpus, &c, 1);
    const hl_repair_info *info   = hl_repair_get_info(repair);
    assert_int_equal(info->n_layers, 2); /* from the first that loses a head on */
    assert_int_equal(info->n_empty, 1);
    assert_int_equal(info->n_short, 1);
    assert_int_equal(info->layers[0].layer, 1);
    assert_int_equal(info->layers[0].n_unknowns, 0);
    assert_true(fabs(info->layers[0].after / info->layers[0].before - 1.0) < 1e-12);
    assert_true(info->layers[1].after < info->layers[1].before);
    hl_repair_free(repair);
    hl_corpus_close(corpus);
    hl_model_close(model);
    remove_folder(folder);
}

/* Weights that are numbers, and a stream that overflows all the same. */
static void activations_must_be_finite(void **state)
{
    hl_model   *model  = open_model(LLAMA);
    const char *folder = new_folder();
    hl_corpus  *corpus = open_ids(model, folder, 50);
    hl_param    param = *hl_weights_get(model->weights, HL_ROLE_ATTN_V, 1, 0), huge = param;
    choice      c      = { 0 };
    hl_repair  *repair = NULL;
    int64_t     count  = param.weight.n_rows * param.weight.n_columns;
    float      *values = read_weight(&param.weight);
    (void)state;

    no_lapack_skips();
    choose(&c, 0, 1);
    for (int64_t i = 0; i < count; i++)
        values[i] *= 1e38f;
    huge.weight.data  = values;
    huge.weight.dtype = HL_DTYPE_F32;
    assert_int_equal(param.weight.n_stored, param.weight.n_rows);
    hl_weights_put(model->weights, HL_ROLE_ATTN_V, 1, &huge);
    assert_fails(HL_BAD_INPUT, "layer 1: the activations on this text are not finite",
                 hl_repair_heads(&repair, model, corpus, &c.list, NULL));
    assert_null(repair);
    hl_weights_put(model->weights, HL_ROLE_ATTN_V, 1, &param);
    free(values);
    hl_corpus_close(corpus);
    hl_model_close(model);
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numpy_solves_the_same),
        cmocka_unit_test(output_gradients_add_up_to_gates),
        cmocka_unit_test(numpy_scores_the_same),
        cmocka_unit_test(cases_are_as_alone),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(devices_agree),
        cmocka_unit_test(devices_score_alike),
        cmocka_unit_test(repaired_models_are_written),
        cmocka_unit_test(half_the_loss_is_left),
        cmocka_unit_test(half_the_loss_is_left_for_other_books),
        cmocka_unit_test(a_killed_repair_continues),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(short_texts_and_empty_layers_are_told),
        cmocka_unit_test(activations_must_be_finite),
    };
    cmocka_set_test_filter(getenv("HEADLIGHT_REPAIR_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
