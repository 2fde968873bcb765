/* test_sweep.c - sweeps: every point against perplexity alone, iterative orders against a separate
 * implementation, interrupted sweeps against complete ones, and the limit of savings against known
 * numbers of GPT-2. */
#include "model_support.h"

#include <math.h>

#include "model/model.h"
#include "model/sample.h"
#include "prune/ceiling.h"
#include "prune/repair.h"
#include "prune/sweep_stages.h"

#define LLAMA "tests/data/families/llama3"

enum { N_DOCUMENTS = 3, N_TOKENS = 40, CONTEXT = 16, N_RATIOS = 4, N_GATES = 12, N_HEADS = 4 };

static const double ratios[N_RATIOS] = { 0.0, 0.25, 0.5, 0.75 };

/* A model and two texts, which have no document in common unless requested. */
typedef struct bench {
    const char *folder;
    hl_model   *model;
    hl_corpus  *rank;
    hl_corpus  *test;
} bench;

static int64_t token_at(uint64_t text, int64_t document, int64_t i)
{
    return (int64_t)(hl_random_unit(text * 100 + (uint64_t)document, (uint64_t)i) * 256);
}

static hl_corpus *open_texts(const bench *b, const char *name, uint64_t text, int64_t n_documents)
{
    const char *path   = in_folder(b->folder, name);
    FILE       *file   = fopen(path, "w");
    hl_corpus  *corpus = NULL;

    assert_non_null(file);
    for (int64_t d = 0; d < n_documents; d++) {
        for (int64_t i = 0; i < N_TOKENS; i++)
            fprintf(file, "%s%d", i == 0 ? "[" : ",", (int)token_at(text, d, i));
        fprintf(file, "]\n");
    }
    assert_int_equal(fclose(file), 0);
    assert_ok(hl_corpus_open(&corpus, b->model, NULL, &(hl_corpus_options){ .token_ids = path }));
    return corpus;
}

static bench open_bench(void)
{
    bench b = { .folder = new_folder(), .model = open_model(LLAMA) };

    b.rank = open_texts(&b, "rank.jsonl", 1, N_DOCUMENTS);
    b.test = open_texts(&b, "test.jsonl", 2, N_DOCUMENTS);
    return b;
}

static void close_bench(bench *b)
{
    hl_corpus_close(b->rank);
    hl_corpus_close(b->test);
    hl_model_close(b->model);
    remove_folder(b->folder);
}

static const hl_ranker all[]   = { HL_RANKER_ENTROPY,        HL_RANKER_NORMALIZED,
                                   HL_RANKER_ENTROPY_NOSINK, HL_RANKER_RENYI2,
                                   HL_RANKER_WEIGHT,         HL_RANKER_ABLATION,
                                   HL_RANKER_OUTPUT_NORM,    HL_RANKER_SINK,
                                   HL_RANKER_GRADIENT };
static const hl_ranker again[] = { HL_RANKER_ENTROPY, HL_RANKER_ABLATION };

static hl_sweep_options options_of(void)
{
    return (hl_sweep_options){ .rankers     = all,
                               .n_rankers   = sizeof all / sizeof *all,
                               .iterative   = again,
                               .n_iterative = sizeof again / sizeof *again,
                               .ratios      = ratios,
                               .n_ratios    = N_RATIOS,
                               .n_seeds     = 3,
                               .seed        = 7,
                               .n_ctx       = CONTEXT,
                               .n_threads   = 1 };
}

static hl_sweep *run(bench *b, const hl_sweep_options *options)
{
    hl_sweep *sweep = NULL;
    assert_ok(hl_sweep_run(&sweep, b->model, NULL, b->rank, b->test, options));
    return sweep;
}

/* ------------------------------------------------------------------- the numbers */

static double perplexity_of(const bench *b, const float *gates)
{
    hl_perplexity *perplexity = NULL;
    int64_t        tokens[N_TOKENS];
    hl_nll         nll;

    assert_ok(hl_perplexity_open(&perplexity, b->model,
                                 &(hl_perplexity_options){ .n_ctx = CONTEXT, .gates = gates }));
    for (int64_t d = 0; d < N_DOCUMENTS; d++) {
        for (int64_t i = 0; i < N_TOKENS; i++)
            tokens[i] = token_at(2, d, i);
        assert_ok(hl_perplexity_add(&nll, perplexity,
                                    &(hl_scored_text){ .tokens = tokens, .n_tokens = N_TOKENS }));
    }
    nll = hl_perplexity_total(perplexity);
    hl_perplexity_close(perplexity);
    return nll.mean;
}

static void every_point_is_perplexity(void **state)
{
    bench            b       = open_bench();
    hl_sweep_options options = options_of();
    hl_sweep        *sweep   = run(&b, &options);
    const hl_sheet  *points  = hl_sweep_table(sweep, "points");
    int64_t          nll     = hl_sheet_find(points, "nll");
    (void)state;

    assert_int_equal(hl_sheet_n_rows(points), sweep->n_fixed * N_RATIOS);
    for (int64_t row = 0; row < hl_sheet_n_rows(points); row++) {
        const float *gates  = sweep->gates + row * N_GATES;
        double       wanted = perplexity_of(&b, row % N_RATIOS == 0 ? NULL : gates);
        int          n_off  = 0;

        if (hl_sheet_number(points, row, nll) != wanted)
            fail_msg("row %d: %.17g, alone %.17g", (int)row, hl_sheet_number(points, row, nll),
                     wanted);
        for (int i = 0; i < N_GATES; i++)
            n_off += gates[i] == 0.0f;
        assert_int_equal(n_off, row % N_RATIOS * 3);
        if (row % N_RATIOS == 0) {
            assert_true(hl_sheet_number(points, row, hl_sheet_find(points, "rise")) == 0.0);
            assert_true(hl_sheet_number(points, row, hl_sheet_find(points, "kl")) == 0.0);
            assert_true(hl_sheet_number(points, row, hl_sheet_find(points, "agreement")) == 1.0);
        }
    }
    hl_sweep_free(sweep);
    close_bench(&b);
}

/* Intervals contain their values, and the limits of the band are in order. */
static void intervals_and_bands_are_sane(void **state)
{
    bench            b       = open_bench();
    hl_sweep_options options = options_of();
    hl_sweep        *sweep   = run(&b, &options);
    (void)state;

    for (int64_t i = 0; i < sweep->n_fixed * N_RATIOS; i++) {
        const hl_sweep_point *p = &sweep->points[i];
        assert_true(p->nll.low < p->nll.value && p->nll.value < p->nll.high);
        assert_true(p->rise.low <= p->rise.value && p->rise.value <= p->rise.high);
        if (i % N_RATIOS == 0)
            assert_true(p->rise.low == 0.0 && p->rise.high == 0.0);
    }
    for (int64_t i = 0; i < N_RATIOS; i++) {
        const hl_sweep_band *band = &sweep->bands[i];
        double               sum  = 0.0;
        double               most = -INFINITY, least = INFINITY;
        for (int64_t seed = 0; seed < 3; seed++) {
            int64_t setting = sweep->orders[sweep->n_fixed + seed].first + i;
            double  mean    = perplexity_of(&b, sweep->gates + setting * N_GATES);
            sum += mean;
            most  = mean > most ? mean : most;
            least = mean < least ? mean : least;
        }
        assert_true(band->least == least && band->most == most);
        assert_true(fabs(band->mean - sum / 3.0) < 1e-12);
        assert_true(least <= band->quarter && band->quarter <= band->median &&
                    band->median <= band->three_quarters && band->three_quarters <= most);
    }
    hl_sweep_free(sweep);
    close_bench(&b);
}

/* One window says nothing of other texts: no interval, and nothing is called better or worse. */
static void one_window_has_no_interval(void **state)
{
    bench            b       = open_bench();
    hl_sweep_options options = options_of();
    bool             is_said = false;
    (void)state;

    options.test_tokens = CONTEXT; /* only the first window */
    hl_sweep *sweep     = run(&b, &options);
    assert_int_equal(sweep->test->n_windows, 1);
    for (int64_t i = 0; i < sweep->n_fixed * N_RATIOS; i++) {
        const hl_sweep_point *p    = &sweep->points[i];
        const hl_sweep_band  *band = &sweep->bands[i % N_RATIOS];
        assert_true(isnan(p->nll.low) && isnan(p->rise.high) && isnan(p->vs_random.low));
        assert_true(fabs(p->vs_random.value - (p->nll.value - band->mean)) < 1e-12);
    }
    for (size_t i = 0; hl_sweep_verdict(sweep, i) != NULL; i++) {
        const char *text = hl_sweep_verdict(sweep, i);
        assert_null(strstr(text, "nan"));
        assert_null(strstr(text, "clearly"));
        is_said |= strstr(text, "1 window: an interval needs 4 or more") != NULL;
    }
    assert_true(is_said);
    hl_sweep_free(sweep);
    close_bench(&b);
}

/* From HL_MIN_UNITS documents on, whole documents are left out: their windows together. */
static void intervals_are_over_documents(void **state)
{
    enum { MANY = HL_MIN_UNITS + 1, WINDOWS = N_TOKENS / CONTEXT + 1 };
    bench            b               = { .folder = new_folder(), .model = open_model(LLAMA) };
    hl_sweep_options options         = options_of();
    double           values[MANY][2] = { { 0 } }, sum = 0.0, count = 0.0, without[MANY];
    (void)state;

    b.rank          = open_texts(&b, "rank.jsonl", 1, N_DOCUMENTS);
    b.test          = open_texts(&b, "test.jsonl", 2, MANY);
    hl_sweep *sweep = run(&b, &options);
    assert_int_equal(sweep->test->n_windows, MANY * WINDOWS);
    for (int64_t i = 0; i < MANY * WINDOWS; i++) {
        values[i / WINDOWS][0] += sweep->test->scores[i].nll; /* scores of setting 0 */
        values[i / WINDOWS][1] += (double)sweep->test->scored[i];
    }
    for (int i = 0; i < MANY; i++) {
        sum += values[i][0];
        count += values[i][1];
    }
    for (int i = 0; i < MANY; i++)
        without[i] = (sum - values[i][0]) / (count - values[i][1]);
    hl_interval wanted =
        hl_jackknife(sum / count, without, MANY, HL_SCALE_PLAIN, HL_UNITS_DOCUMENTS);
    assert_true(fabs(sweep->points[0].nll.low - wanted.low) < 1e-9);
    assert_true(fabs(sweep->points[0].nll.high - wanted.high) < 1e-9);
    hl_sweep_free(sweep);
    close_bench(&b);
}

/* On the same text, ablation ranks by exactly what it is compared with. */
static void ablation_tells_its_own_importance(void **state)
{
    bench            b       = open_bench();
    hl_sweep_options options = options_of();
    hl_sweep        *sweep   = NULL;
    (void)state;

    options.shared_texts = true;
    assert_ok(hl_sweep_run(&sweep, b.model, NULL, b.test, b.test, &options));
    assert_int_equal(sweep->rankers[5], HL_RANKER_ABLATION);
    assert_true(fabs(sweep->correlations[5].value - 1.0) < 1e-12);
    for (int64_t i = 0; i < sweep->options.n_rankers; i++) {
        hl_sweep_value rho = sweep->correlations[i];
        assert_true(rho.value >= -1.0 - 1e-12 && rho.value <= 1.0 + 1e-12 && rho.low < rho.high);
    }
    assert_non_null(strstr(hl_sweep_verdict(sweep, 0), "At ratio 0.25 (3 of 12 heads disabled)"));
    hl_sweep_free(sweep);
    close_bench(&b);
}

/* Returns the first sentence from `first` on with these words; -1: none. */
static int64_t said(const hl_sweep *sweep, size_t first, const char *words)
{
    for (size_t i = first; i < sweep->n_verdict; i++) {
        if (strstr(sweep->verdict[i], words) != NULL)
            return (int64_t)i;
    }
    return -1;
}

/* No ranker is called the best predictor unless it predicts significantly. */
static void verdicts_do_not_contradict_themselves(void **state)
{
    bench            b       = open_bench();
    hl_sweep_options options = options_of();
    hl_sweep        *sweep   = run(&b, &options);
    size_t           first   = sweep->n_verdict;
    (void)state;

    for (int64_t i = 0; i < options.n_rankers; i++)
        sweep->correlations[i] =
            (hl_sweep_value){ all[i] == HL_RANKER_ENTROPY ? -0.14 : 0.0, -0.4, 0.2 };
    assert_ok(hl_sweep_make_verdict(sweep));
    assert_true(said(sweep, first, "there is no evidence that it predicts importance") >= 0);
    assert_true(said(sweep, first, "predicts it best") < 0);
    assert_true(said(sweep, first, "None of the 8 rankers that need no ablation") >= 0);

    first                  = sweep->n_verdict;
    sweep->correlations[4] = (hl_sweep_value){ 0.3, 0.1, 0.5 }; /* weight puts the lowest first */
    sweep->correlations[7] = (hl_sweep_value){ 0.6, 0.5, 0.7 }; /* sink has the wrong sign */
    assert_ok(hl_sweep_make_verdict(sweep));
    assert_true(said(sweep, first,
                     "Of the 8 rankers that need no ablation, weight predicts it best: "
                     "rho +0.300") >= 0);
    assert_true(said(sweep, first, "None of the") < 0);
    hl_sweep_free(sweep);
    close_bench(&b);
}

/* ------------------------------------------------------------------ iterative orders */

/* Repeats a step: measures with the gates and removes the heads of highest entropy; each layer
 * keeps one. */
static void next_by_hand(float *gates, const bench *b, int64_t n_off)
{
    hl_profile *profile = NULL;
    double      entropy[N_GATES];

    assert_ok(hl_model_set_gates(b->model, gates));
    assert_ok(hl_measure(
        &profile, b->model, NULL, b->rank,
        &(hl_measure_options){
            .windows = { .n_ctx = CONTEXT }, .seed = 7, .no_probe = true, .n_threads = 1 }));
    assert_ok(hl_model_set_gates(b->model, NULL));
    hl_ranking *ranking = NULL;
    assert_ok(hl_rank(&ranking, HL_RANKER_ENTROPY, &(hl_rank_inputs){ .profile = profile }, NULL));
    for (int64_t i = 0; i < N_GATES; i++)
        entropy[ranking->heads[i].layer * N_HEADS + ranking->heads[i].head] =
            ranking->heads[i].score;
    for (;;) {
        int best = -1, gone = 0;
        for (int i = 0; i < N_GATES; i++) {
            int left = 0;
            for (int j = i / N_HEADS * N_HEADS; j < (i / N_HEADS + 1) * N_HEADS; j++)
                left += gates[j] != 0.0f;
            gone += gates[i] == 0.0f;
            if (gates[i] != 0.0f && left > 1 && (best < 0 || entropy[i] > entropy[best]))
                best = i;
        }
        if (gone == n_off)
            break;
        gates[best] = 0.0f;
    }
    hl_ranking_free(ranking);
    hl_profile_free(profile);
}

static void iterative_orders_are_as_by_hand(void **state)
{
    bench            b       = open_bench();
    hl_sweep_options options = options_of();
    hl_sweep        *sweep   = run(&b, &options);
    int64_t          first   = sweep->orders[sweep->options.n_rankers].first;
    float            gates[N_GATES];
    (void)state;

    for (int i = 0; i < N_GATES; i++)
        gates[i] = 1.0f;
    for (int64_t ratio = 1; ratio < N_RATIOS; ratio++) {
        next_by_hand(gates, &b, 3 * ratio);
        assert_memory_equal(gates, sweep->gates + (first + ratio) * N_GATES, sizeof gates);
    }
    assert_null(b.model->gates);
    hl_sweep_free(sweep);
    close_bench(&b);
}

/* ------------------------------------------------------------------------- going on */

typedef struct stopper {
    int n_calls;
    int stop_at; /* 0: never */
} stopper;

static hl_status count_calls(void *context, const hl_progress *progress)
{
    stopper *s = context;
    assert_true(progress->share >= 0.0 && progress->share <= 1.0 + 1e-9);
    return ++s->n_calls == s->stop_at ? HL_CANCELLED : HL_OK;
}

/* Renders all tables, one after another. */
static char *all_tables(const hl_sweep *sweep)
{
    char  *out  = NULL;
    size_t size = 0;

    for (size_t i = 0; hl_sweep_table_name(i) != NULL; i++) {
        char *text = NULL;
        assert_ok(
            hl_sheet_render(&text, hl_sweep_table(sweep, hl_sweep_table_name(i)), HL_SHEET_JSON));
        out = realloc(out, size + strlen(text) + 1);
        assert_non_null(out);
        strcpy(out + size, text);
        size += strlen(text);
        hl_free(text);
    }
    return out;
}

static void stopped_sweeps_go_on_to_the_same_bytes(void **state)
{
    bench            b       = open_bench();
    hl_sweep_options options = options_of();
    stopper          stop    = { 0 };
    hl_sweep        *sweep   = NULL;
    (void)state;

    options.progress   = count_calls;
    options.context    = &stop;
    options.save_every = 1e-9;
    char path[256];
    snprintf(path, sizeof path, "%s/state", b.folder);
    options.state_path = path;
    sweep              = run(&b, &options);
    char *wanted       = all_tables(sweep);
    int   n_calls      = stop.n_calls;
    hl_sweep_free(sweep);

    /* Interrupted again and again; only the current batch is lost. */
    options.resume = true;
    assert_int_equal(unlink(path), 0);
    int n_stops = 0;
    for (;;) {
        stop             = (stopper){ .stop_at = n_calls / 4 };
        hl_status status = hl_sweep_run(&sweep, b.model, NULL, b.rank, b.test, &options);
        if (status == HL_OK)
            break;
        assert_int_equal(status, HL_CANCELLED);
        assert_non_null(strstr(hl_error_message(), "stopped while"));
        assert_null(b.model->gates);
        if (++n_stops == 40)
            break;
    }
    assert_true(n_stops >= 3 && n_stops < 40);
    char *seen = all_tables(sweep);
    assert_string_equal(seen, wanted);
    hl_sweep_free(sweep);
    free(seen);

    /* A finished state needs no further work. */
    stop  = (stopper){ 0 };
    sweep = run(&b, &options);
    assert_int_equal(stop.n_calls, 0);
    hl_sweep_free(sweep);
    options.seed = 8;
    assert_fails(HL_BAD_INPUT, "was begun with other settings",
                 hl_sweep_run(&sweep, b.model, NULL, b.rank, b.test, &options));
    write_file(path, "{}", 2);
    assert_int_equal(hl_sweep_run(&sweep, b.model, NULL, b.rank, b.test, &options), HL_BAD_INPUT);
    assert_null(sweep);
    free(wanted);
    close_bench(&b);
}

/* The state that an interrupted process leaves: a copy made at one call during the evaluation of
 * settings. */
typedef struct witness {
    const char *state;
    const char *copy;
    int         n_evaluated; /* number of calls of that stage */
    int         copy_at;     /* 0: never */
} witness;

static hl_status copy_state(void *context, const hl_progress *progress)
{
    witness *w = context;

    if (strcmp(progress->stage, "evaluating") != 0 || ++w->n_evaluated != w->copy_at)
        return HL_OK;
    size_t n_bytes = 0;
    char  *bytes   = read_file(w->state, &n_bytes);
    write_file(w->copy, bytes, n_bytes);
    hl_free(bytes);
    return HL_OK;
}

/* --save-every is a time, not a batch: a batch goes through all settings, which takes minutes. */
static void the_state_is_saved_between_settings(void **state)
{
    bench            b       = open_bench();
    hl_sweep_options options = options_of();
    hl_sweep        *sweep   = NULL;
    char             path[256], copy[256];
    witness          w = { .state = path, .copy = copy };
    (void)state;

    snprintf(path, sizeof path, "%s/state", b.folder);
    snprintf(copy, sizeof copy, "%s/copy", b.folder);
    options.progress   = copy_state;
    options.context    = &w;
    options.save_every = 1e-9;
    options.state_path = path;
    sweep              = run(&b, &options);
    char *wanted       = all_tables(sweep);
    int   n_evaluated  = w.n_evaluated;
    hl_sweep_free(sweep);

    for (int copy_at = n_evaluated / 5; copy_at < n_evaluated; copy_at += n_evaluated / 2) {
        w                  = (witness){ .state = path, .copy = copy, .copy_at = copy_at };
        options.resume     = false;
        options.state_path = path;
        sweep              = run(&b, &options);
        hl_sweep_free(sweep);

        w                  = (witness){ .state = path, .copy = copy };
        options.resume     = true;
        options.state_path = copy;
        sweep              = run(&b, &options);
        /* The call comes before its own setting is saved. */
        assert_int_equal(w.n_evaluated, n_evaluated - (copy_at - 1));
        char *seen = all_tables(sweep);
        assert_string_equal(seen, wanted);
        hl_sweep_free(sweep);
        free(seen);
    }

    /* The state is not saved more often than requested. */
    w                  = (witness){ .state = path, .copy = copy, .copy_at = n_evaluated / 2 };
    options.resume     = false;
    options.state_path = path;
    options.save_every = 1e6;
    (void)unlink(path);
    write_file(path, "old", 3);
    sweep = run(&b, &options);
    hl_sweep_free(sweep);
    size_t n_bytes = 0;
    char  *bytes   = read_file(copy, &n_bytes);
    assert_int_equal(n_bytes, 3);
    hl_free(bytes);
    free(wanted);
    close_bench(&b);
}

/* ------------------------------------------------------------------------- refusals */

static void what_makes_no_sense_is_refused(void **state)
{
    bench            b       = open_bench();
    hl_sweep_options options = options_of();
    hl_sweep        *sweep   = NULL;
    const double     bad[3]  = { 0.0, 0.5, 0.5 };
    const double     most[2] = { 0.0, 0.9 };
    const hl_ranker  fixed   = HL_RANKER_WEIGHT;
    (void)state;

    assert_fails(HL_BAD_ARGUMENT, "rank on one text and test on another",
                 hl_sweep_run(&sweep, b.model, NULL, b.rank, b.rank, &options));
    options.ratios   = bad;
    options.n_ratios = 3;
    assert_fails(HL_BAD_ARGUMENT, "ratio 2 is 0.5; ratios must rise",
                 hl_sweep_run(&sweep, b.model, NULL, b.rank, b.test, &options));
    options.ratios   = most;
    options.n_ratios = 2;
    assert_fails(HL_BAD_ARGUMENT,
                 "11 of 12 heads are to be removed, but only 9 can be: every layer keeps one "
                 "(--empty-layers allows more)",
                 hl_sweep_run(&sweep, b.model, NULL, b.rank, b.test, &options));
    options             = options_of();
    options.iterative   = &fixed;
    options.n_iterative = 1;
    assert_fails(HL_BAD_ARGUMENT, "weight does not use a text",
                 hl_sweep_run(&sweep, b.model, NULL, b.rank, b.test, &options));
    options         = options_of();
    options.n_seeds = 1;
    assert_fails(HL_BAD_ARGUMENT, "1 seeds, wanted 2",
                 hl_sweep_run(&sweep, b.model, NULL, b.rank, b.test, &options));
    assert_null(sweep);
    close_bench(&b);
}

/* -------------------------------------------------------------------------- savings */

/* GPT-2 small at 1024 tokens: half of the heads are 11.4% of the parameters and 14.2% of the
 * operations. */
static void ceilings_are_those_of_gpt2(void **state)
{
    double     d    = 768.0;
    hl_shapes  gpt2 = { .n_params      = 124439808.0,
                        .n_multiplied  = 12.0 * 12.0 * d * d + 50257.0 * d,
                        .query_params  = 2.0 * d * 64.0 + 64.0,
                        .key_params    = 2.0 * (d * 64.0 + 64.0),
                        .query_weights = 2.0 * d * 64.0,
                        .key_weights   = 2.0 * d * 64.0,
                        .n_heads       = 144.0,
                        .group         = 1.0,
                        .d_head        = 64.0,
                        .keys          = 512.5 };
    hl_ceiling half = hl_ceiling_of(&gpt2, 72);
    (void)state;

    assert_true(fabs(half.params_share - 0.114) < 0.0005);
    assert_true(fabs(half.flops_share - 0.142) < 0.0005);
    assert_true(hl_ceiling_of(&gpt2, 0).flops_share == 0.0);
}

/* Groups of two: a KV head is removed with every second query head. */
static void shapes_are_those_of_the_model(void **state)
{
    hl_model *model  = open_model(LLAMA);
    hl_shapes shapes = hl_shapes_of(model, 16);
    (void)state;

    /* 3 layers of width 64 with 4 heads of 16 and 2 KV heads, MLPs of 128, 256 tokens. */
    assert_true(shapes.n_multiplied ==
                3.0 * (2.0 * 64 * 64 + 2.0 * 32 * 64 + 3.0 * 128 * 64) + 256.0 * 64);
    assert_true(shapes.n_params == 127424.0 && shapes.n_heads == 12.0 && shapes.group == 2.0);
    assert_true(shapes.keys == 8.5);
    assert_true(hl_ceiling_of(&shapes, 1).params == 2048.0);
    assert_true(hl_ceiling_of(&shapes, 2).params == 2.0 * 2048.0 + 2048.0);
    hl_model_close(model);
}

/* The table of repairs against the calls that it is made of. */
static void repairs_are_as_by_hand(void **state)
{
    bench            b       = open_bench();
    hl_sweep_options options = options_of();
    float            ones[N_GATES];
    hl_evaluation   *found  = NULL;
    hl_repair       *repair = NULL;
    (void)state;

    if (hl_repair_check(b.model) != HL_OK) {
        print_message("skipped: %s\n", hl_error_message());
        close_bench(&b);
        skip();
    }
    options.n_rankers   = 1;
    options.n_iterative = 0;
    options.repair      = true;
    hl_sweep *sweep     = run(&b, &options);
    assert_int_equal(hl_sheet_n_rows(hl_sweep_table(sweep, "repair")), 2 * N_RATIOS);
    for (int i = 0; i < N_GATES; i++)
        ones[i] = 1.0f;
    for (int64_t ratio = 1; ratio < N_RATIOS; ratio++) {
        const float          *gates = sweep->gates + (sweep->orders[0].first + ratio) * N_GATES;
        const hl_sweep_value *rises = sweep->mended_rises + ratio * (1 + HL_SWEEP_WAYS);
        hl_head               off[N_GATES];
        hl_head_list          list = { .heads = off };

        for (int64_t i = 0; i < N_GATES; i++) {
            if (gates[i] == 0.0f)
                off[list.n_heads++] = (hl_head){ i / N_HEADS, i % N_HEADS };
        }
        assert_ok(hl_repair_heads(
            &repair, b.model, b.rank, &list,
            &(hl_repair_options){ .windows = { .n_ctx = CONTEXT }, .n_threads = 1 }));
        assert_ok(hl_model_set_repair(b.model, repair));
        assert_ok(
            hl_evaluate(&found, b.model, b.test, ones, 1,
                        &(hl_evaluate_options){ .windows = { .n_ctx = CONTEXT }, .n_threads = 1 }));
        assert_ok(hl_model_set_repair(b.model, NULL));
        double rise =
            (hl_evaluation_total(found, 0).nll - hl_evaluation_total(sweep->test, -1).nll) /
            (double)found->n_scored;
        /* The sweep adds Z D to the stream, where the repaired model has W + D: f32 sums of other
         * terms, 1e-7 to 2.4e-7 apart here. */
        assert_true(fabs(rises[1 + HL_SWEEP_REPAIRED].value - rise) < 2e-6);
        assert_true(rises[1 + HL_SWEEP_REPAIRED].low <= rise &&
                    rise <= rises[1 + HL_SWEEP_REPAIRED].high);
        assert_true(rises[1 + HL_SWEEP_MEAN].value != rises[0].value);
        hl_evaluation_free(found);
        hl_repair_free(repair);
    }
    hl_sweep_free(sweep);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_point_is_perplexity),
        cmocka_unit_test(intervals_and_bands_are_sane),
        cmocka_unit_test(one_window_has_no_interval),
        cmocka_unit_test(intervals_are_over_documents),
        cmocka_unit_test(ablation_tells_its_own_importance),
        cmocka_unit_test(verdicts_do_not_contradict_themselves),
        cmocka_unit_test(iterative_orders_are_as_by_hand),
        cmocka_unit_test(stopped_sweeps_go_on_to_the_same_bytes),
        cmocka_unit_test(the_state_is_saved_between_settings),
        cmocka_unit_test(repairs_are_as_by_hand),
        cmocka_unit_test(what_makes_no_sense_is_refused),
        cmocka_unit_test(ceilings_are_those_of_gpt2),
        cmocka_unit_test(shapes_are_those_of_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
