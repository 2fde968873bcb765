/* test_coverage.c - do 95% intervals hold the number 95% of the time?
 *
 *     population   the demo model's own windows of a text, measured once: entropies of heads, sampled
 *                  rows, losses with heads disabled, KL, losses of single tokens
 *     sample       n of these windows, drawn with replacement, so that no window is used up
 *     interval     by the same calls as in the commands
 *     coverage     in how many samples it holds the number of the whole population
 *
 * HL_COVERAGE=full in the environment takes more windows of a longer text and more samples and prints
 * the table of doc/intervals.md; tools/coverage does that.  Any other value prints the table of the
 * reduced test. */
#include "model_support.h"
#include "profile_support.h"

#include "analysis/grid.h"
#include "analysis/numbers.h"
#include "analysis/two_kinds.h"
#include "headlight/generate.h"
#include "measure/perplexity.h"
#include "prune/evaluate.h"
#include "prune/sweep_stages.h"

#define DEMO   "models/demo"
#define SPARSE "models/demo-sparse"
#define TEXT   (is_table ? "models/text/alice.txt" : "models/text/speech-1960.txt") /* the shorter */

/* The scores of sampled rows that `show --table patterns` gives an interval. */
static const struct {
    const char       *name;
    hl_pattern_metric metric;
} sampled_scores[] = {
    { "`band` of sampled rows, 64 heads", HL_PM_BAND },
    { "`content` of sampled rows, 64 heads", HL_PM_CONTENT },
    { "`k90` of sampled rows, 64 heads", HL_PM_K90 },
    { "`support2` of sampled rows, 64 heads", HL_PM_SUPPORT2 },
};
enum { N_SCORES = sizeof sampled_scores / sizeof *sampled_scores };

enum { N_HEADS = 8, N_LAYERS = 8, SIZE = 64, MAX_N = 32, N_DRAWN_SEEDS = 8, MOST_COLUMNS = 80 };

typedef struct scale_of_test {
    int64_t n_windows;
    int64_t n_ctx;
    int64_t first_layer; /* heads of this layer and later ones are disabled one by one */
    int64_t n_seeds;     /* random settings */
    int64_t of_document; /* windows of a document */
    int64_t one_of;      /* such a share of these heads is disabled in them */
    int     n_samples;
} scale_of_test;

static const scale_of_test small = { 64, 64, 6, 6, 2, 2, 900 };
static const scale_of_test full  = { 160, 96, 4, 16, 4, 4, 2000 };

typedef struct population {
    scale_of_test  size;
    hl_model      *model;
    hl_evaluation *found; /* one setting per head, then n_seeds random ones, then one ordered one */
    int64_t        n_singles;
    double        *heads[2]; /* (n_windows, SIZE) normalized entropy, of two models */
    double        *losses;   /* (n_windows, n_ctx) of tokens with heads disabled */
    uint8_t       *wrong;    /* (n_windows, n_ctx) is the token not the most likely one? */
    hl_moments *sampled; /* (n_windows, SIZE, N_SCORES) of the rows that are sampled of a window */
} population;

static population p;
static bool       is_table; /* print rows of the table */

/* ------------------------------------------------------------------ population */

static hl_corpus *open_text(const hl_model *model, const hl_tokenizer *tokenizer)
{
    const char *inputs[] = { TEXT };
    hl_corpus  *corpus   = NULL;

    assert_ok(hl_corpus_open(&corpus, model, tokenizer,
                             &(hl_corpus_options){ .inputs = inputs, .n_inputs = 1 }));
    return corpus;
}

static hl_window_options windows_of(void)
{
    return (hl_window_options){ .n_ctx      = p.size.n_ctx,
                                .max_tokens = p.size.n_windows * p.size.n_ctx };
}

/* Both profiles keep the same windows in the same order: that of their hashes. */
static double *measure_heads(const char *path, const hl_tokenizer *tokenizer)
{
    hl_model   *model   = open_model(path);
    hl_corpus  *corpus  = open_text(model, tokenizer);
    hl_profile *profile = NULL;
    double     *values  = NULL;

    assert_ok(hl_measure(&profile, model, tokenizer, corpus,
                         &(hl_measure_options){ .windows = windows_of(), .no_probe = true }));
    assert_int_equal(hl_profile_n_sequences(profile), p.size.n_windows);
    assert_ok(hl_grid_sequences(&values, profile, HL_Q_NORMALIZED));
    hl_profile_free(profile);
    hl_corpus_close(corpus);
    hl_model_close(model);
    return values;
}

static void measure_settings(const hl_corpus *corpus)
{
    int64_t   n      = (N_LAYERS - p.size.first_layer) * N_HEADS;
    int64_t   total  = n + p.size.n_seeds + 1;
    float    *gates  = malloc((size_t)(total * SIZE) * sizeof *gates);
    hl_random random = { 7 };

    assert_non_null(gates);
    for (int64_t i = 0; i < total * SIZE; i++)
        gates[i] = 1.0f;
    for (int64_t i = 0; i < total; i++) {
        float *own = gates + i * SIZE + p.size.first_layer * N_HEADS;
        if (i < n)
            own[i] = 0.0f;
        for (int64_t k = 0; k < n / p.size.one_of && i >= n && i + 1 < total; k++)
            own[hl_random_below(&random, n)] = 0.0f;
        for (int64_t k = 0; k < n / p.size.one_of && i + 1 == total; k++)
            own[k] = 0.0f;
    }
    assert_ok(hl_evaluate(&p.found, p.model, corpus, gates, total,
                          &(hl_evaluate_options){ .windows = windows_of() }));
    assert_int_equal(p.found->n_windows, p.size.n_windows);
    p.n_singles = n;
    free(gates);
}

/* Each window by itself: a profile does not keep these numbers by window. */
static void measure_patterns(const int64_t *ids)
{
    const char *here = new_folder(), *path = in_folder(here, "window.jsonl");

    p.sampled = calloc((size_t)(p.size.n_windows * SIZE * N_SCORES), sizeof *p.sampled);
    assert_non_null(p.sampled);
    for (int64_t i = 0; i < p.size.n_windows; i++) {
        hl_profile *profile = NULL;
        hl_corpus  *corpus  = NULL;
        FILE       *file    = fopen(path, "w");

        assert_non_null(file);
        for (int64_t k = 0; k < p.size.n_ctx; k++)
            fprintf(file, "%s%lld", k == 0 ? "[" : ", ", (long long)ids[i * p.size.n_ctx + k]);
        fprintf(file, "]\n");
        fclose(file);
        assert_ok(
            hl_corpus_open(&corpus, p.model, NULL, &(hl_corpus_options){ .token_ids = path }));
        assert_ok(
            hl_measure(&profile, p.model, NULL, corpus,
                       &(hl_measure_options){ .windows.n_ctx = p.size.n_ctx, .no_probe = true }));
        for (int64_t c = 0; c < SIZE * N_SCORES; c++)
            p.sampled[i * SIZE * N_SCORES + c] =
                hl_profile_pattern(profile, c / N_SCORES / N_HEADS, c / N_SCORES % N_HEADS,
                                   sampled_scores[c % N_SCORES].metric, false);
        hl_profile_free(profile);
        hl_corpus_close(corpus);
    }
    remove_folder(here);
}

/* Is a token not the most likely one, and how unlikely is it to a model that lacks two layers' heads? */
static void measure_tokens(const hl_tokenizer *tokenizer)
{
    enum { MOST = 200000 };
    static char  text[MOST];
    int64_t      n     = p.size.n_windows * p.size.n_ctx;
    FILE        *file  = fopen(TEXT, "rb");
    hl_encoding *found = NULL;
    float        gates[SIZE];

    assert_non_null(file);
    size_t n_bytes = fread(text, 1, MOST, file);
    fclose(file);
    assert_ok(hl_tokenizer_encode(&found, tokenizer, text, n_bytes, NULL));
    int64_t *top = malloc((size_t)n * sizeof *top);
    p.losses     = calloc((size_t)n, sizeof *p.losses);
    p.wrong      = calloc((size_t)n, sizeof *p.wrong);
    for (int i = 0; i < SIZE; i++)
        gates[i] = i < 6 * N_HEADS ? 1.0f : 0.0f;
    for (int with = 0; with < 2; with++) {
        hl_perplexity *perplexity = NULL;
        hl_nll         nll;

        assert_ok(hl_perplexity_open(
            &perplexity, p.model,
            &(hl_perplexity_options){ .n_ctx = p.size.n_ctx, .gates = with ? NULL : gates }));
        assert_ok(hl_perplexity_add(&nll, perplexity,
                                    &(hl_scored_text){ .tokens   = found->ids,
                                                       .n_tokens = n,
                                                       .nll      = with ? NULL : p.losses,
                                                       .top      = with ? top : NULL }));
        hl_perplexity_close(perplexity);
    }
    for (int64_t i = 0; i < n; i++)
        p.wrong[i] = top[i] != found->ids[i];
    free(top);
    measure_patterns(found->ids);
    hl_encoding_free(found);
}

static int set_up(void **state)
{
    hl_tokenizer *tokenizer = NULL;
    const char   *asked     = getenv("HL_COVERAGE");
    (void)state;

    is_table = asked != NULL;
    p.size   = is_table && strcmp(asked, "full") == 0 ? full : small;
    p.model  = open_model(DEMO);
    assert_ok(hl_tokenizer_open(&tokenizer, DEMO));
    hl_corpus *corpus = open_text(p.model, tokenizer);
    measure_settings(corpus);
    hl_corpus_close(corpus);
    p.heads[0] = measure_heads(DEMO, tokenizer);
    p.heads[1] = measure_heads(SPARSE, tokenizer);
    measure_tokens(tokenizer);
    hl_tokenizer_close(tokenizer);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    hl_free(p.heads[0]);
    hl_free(p.heads[1]);
    free(p.losses);
    free(p.wrong);
    free(p.sampled);
    hl_evaluation_free(p.found);
    hl_model_close(p.model);
    return 0;
}

/* -------------------------------------------------------------------- coverage */

/* How often intervals held what they are of, by number: of all, and of the number with the fewest. */
typedef struct tally {
    int n[MOST_COLUMNS];
    int held[MOST_COLUMNS];
} tally;

static void count(tally *t, int column, hl_interval interval, double truth)
{
    assert_false(isnan(truth));
    if (isnan(interval.low))
        return;
    t->n[column]++;
    t->held[column] += interval.low <= truth && truth <= interval.high;
}

static const int sizes[] = { 4, 5, 8, 16, 32 };
enum { N_SIZES = sizeof sizes / sizeof *sizes };

/* Asserts the coverage of a kind of number at every size, or prints a row of the table. */
typedef void (*sampler)(tally *out, int n, hl_random *random);

/* n_names 1: of all columns together; else of each column by itself. */
static void cover_each(const char *const *names, int n_names, sampler sample)
{
    double       low              = 1.0;
    static tally tallies[N_SIZES] = { 0 };

    memset(tallies, 0, sizeof tallies);
    for (int i = 0; i < N_SIZES; i++) {
        if (!is_table && i % 2 != 0) /* 4, 8 and 32 are enough for the reduced test */
            continue;
        hl_random random = { 100 + (uint64_t)sizes[i] };
        for (int k = 0; k < p.size.n_samples; k++)
            sample(&tallies[i], sizes[i], &random);
    }
    for (int name = 0; name < n_names; name++) {
        if (is_table)
            printf("| %s |", names[name]);
        for (int i = 0; i < N_SIZES; i++) {
            const tally *t = &tallies[i];
            double       n = 0.0, held = 0.0, least = 1.0;

            for (int c = name; c < (n_names > 1 ? name + 1 : MOST_COLUMNS); c++) {
                n += t->n[c];
                held += t->held[c];
                least = t->n[c] > 0 ? fmin(least, (double)t->held[c] / t->n[c]) : least;
            }
            if (n == 0.0 && !is_table)
                continue;
            assert_true(n > 0.0);
            if (is_table)
                printf(n_names == 1 && t->n[1] > 0 ? " %.3f (%.3f) |" : " %.3f |", held / n, least);
            low = fmin(low, held / n);
        }
        if (is_table)
            printf("\n");
        else if (low < 0.93)
            fail_msg("%s: coverage %.3f, wanted 0.93", names[name], low);
    }
}

static void cover(const char *name, sampler sample)
{
    cover_each(&name, 1, sample);
}

static void draw(int64_t *chosen, int n, hl_random *random)
{
    for (int i = 0; i < n; i++)
        chosen[i] = hl_random_below(random, p.size.n_windows);
}

static double mean_of(const double *values, int64_t n_rows, int64_t stride)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n_rows; i++)
        sum += values[i * stride];
    return sum / (double)n_rows;
}

/* ------------------------------------------------------------- means of profiles */

static void sample_means(tally *out, int n, hl_random *random)
{
    int64_t chosen[MAX_N];
    double  values[MAX_N * SIZE], *left = NULL;

    draw(chosen, n, random);
    for (int i = 0; i < n; i++)
        memcpy(values + i * SIZE, p.heads[0] + chosen[i] * SIZE, SIZE * sizeof *values);
    hl_unit_rows rows = { .values = values, .n_rows = n, .n_columns = SIZE, .n_groups = n };
    assert_ok(hl_left_out(&left, &rows));
    for (int c = 0; c < SIZE; c++)
        count(out, c, hl_left_out_interval(left + c * (n + 1), &rows, HL_SCALE_PLAIN),
              mean_of(p.heads[0] + c, p.size.n_windows, SIZE));
    hl_free(left);
}

static void test_means(void **state)
{
    (void)state;
    cover("mean entropy of a head, 64 heads", sample_means);
}

/* The mean and the spread of the rows of several windows. */
static hl_moments merged(const hl_moments *one, const hl_moments *two)
{
    double     n   = (double)(one->count + two->count);
    hl_moments all = { .count = one->count + two->count };

    all.mean = ((double)one->count * one->mean + (double)two->count * two->mean) / n;
    double a = one->mean - all.mean, b = two->mean - all.mean;
    all.variance = ((double)one->count * (one->variance + a * a) +
                    (double)two->count * (two->variance + b * b)) /
                   n;
    return all;
}

static int score_of_test;

static hl_moments sampled_of(const int64_t *windows, int64_t n, int64_t head)
{
    hl_moments all = { 0 };

    for (int64_t i = 0; i < n; i++) {
        int64_t           window = windows != NULL ? windows[i] : i;
        const hl_moments *own    = &p.sampled[(window * SIZE + head) * N_SCORES + score_of_test];
        all                      = i == 0 ? *own : merged(&all, own);
    }
    return all;
}

static void sample_patterns(tally *out, int n, hl_random *random)
{
    static double truth[N_SCORES][SIZE]; /* no mean is 0 */
    int64_t       chosen[MAX_N];

    draw(chosen, n, random);
    for (int c = 0; c < SIZE; c++) {
        hl_moments rows = sampled_of(chosen, n, c);
        if (truth[score_of_test][c] == 0.0)
            truth[score_of_test][c] = sampled_of(NULL, p.size.n_windows, c).mean;
        count(out, c, hl_sampled_interval(&rows, n), truth[score_of_test][c]);
    }
}

static void test_patterns(void **state)
{
    (void)state;
    for (score_of_test = 0; score_of_test < N_SCORES; score_of_test++)
        cover(sampled_scores[score_of_test].name, sample_patterns);
}

/* A ranking by a number of each window, which here is the entropy: does a head have one of the places
 * that it may have?  Not by the score of the sample, but by that of all windows. */
static void rank_windows(hl_ranking **out, double *each, int64_t n)
{
    double       means[SIZE];
    int64_t      documents[200] = { 0 };
    hl_gradients gradients      = { .n_layers  = N_LAYERS,
                                    .n_heads   = N_HEADS,
                                    .each      = each,
                                    .documents = documents,
                                    .n_windows = n };

    for (int c = 0; c < SIZE; c++)
        means[c] = mean_of(each + c, n, SIZE);
    assert_ok(
        hl_rank(out, HL_RANKER_GRADIENT,
                &(hl_rank_inputs){ .model = p.model, .gradient = means, .gradients = &gradients },
                &(hl_rank_options){ .order = HL_ORDER_LOWEST, .places = true }));
}

static void sample_places(tally *out, int n, hl_random *random)
{
    static int64_t place[SIZE]; /* of a head among all windows, from 1 on */
    int64_t        chosen[MAX_N];
    double         values[MAX_N * SIZE];
    hl_ranking    *ranking = NULL;

    if (place[0] == 0) {
        rank_windows(&ranking, p.heads[0], p.size.n_windows);
        for (int64_t i = 0; i < SIZE; i++)
            place[ranking->heads[i].layer * N_HEADS + ranking->heads[i].head] = 1 + i;
        hl_ranking_free(ranking);
    }
    draw(chosen, n, random);
    for (int i = 0; i < n; i++)
        memcpy(values + i * SIZE, p.heads[0] + chosen[i] * SIZE, SIZE * sizeof *values);
    rank_windows(&ranking, values, n);
    for (int64_t i = 0; i < SIZE; i++) {
        int64_t     head     = ranking->heads[i].layer * N_HEADS + ranking->heads[i].head;
        hl_interval interval = hl_no_interval(n, HL_UNITS_WINDOWS);
        interval.low         = (double)ranking->places[i].first;
        interval.high        = (double)ranking->places[i].last;
        count(out, (int)head, interval, (double)place[head]);
    }
    hl_ranking_free(ranking);
}

static void test_places(void **state)
{
    (void)state;
    cover("place of a head in a ranking, 64 heads", sample_places);
}

/* Documents of some windows that follow one another in the population: whole ones are drawn. */
static void sample_documents(tally *out, int n, hl_random *random)
{
    int64_t of_one = p.size.of_document;
    double  values[MAX_N * 4], *left = NULL;
    int64_t groups[MAX_N * 4];

    for (int i = 0; i < n; i++) {
        int64_t document = hl_random_below(random, p.size.n_windows / of_one);
        for (int k = 0; k < of_one; k++) {
            int64_t window         = document * of_one + k;
            values[i * of_one + k] = p.found->dense[window].nll / (double)p.found->scored[window];
            groups[i * of_one + k] = i;
        }
    }
    hl_unit_rows rows  = { .values    = values,
                           .groups    = groups,
                           .n_rows    = n * of_one,
                           .n_columns = 1,
                           .n_groups  = n,
                           .units     = HL_UNITS_DOCUMENTS };
    double       truth = 0.0;
    for (int64_t i = 0; i < p.size.n_windows; i++)
        truth += p.found->dense[i].nll / (double)p.found->scored[i] / (double)p.size.n_windows;
    assert_ok(hl_left_out(&left, &rows));
    count(out, 0, hl_left_out_interval(left, &rows, HL_SCALE_PLAIN), truth);
    hl_free(left);
}

static void test_documents(void **state)
{
    (void)state;
    cover("loss, over documents of several windows", sample_documents);
}

static void sample_ranks(tally *out, int n, hl_random *random)
{
    int64_t       chosen[MAX_N];
    double        values[2][MAX_N * SIZE], *left[2], means[2][SIZE], truth = 0.0;
    hl_rank_noise noise = { 0 };

    draw(chosen, n, random);
    for (int m = 0; m < 2; m++) {
        for (int i = 0; i < n; i++)
            memcpy(values[m] + i * SIZE, p.heads[m] + chosen[i] * SIZE, SIZE * sizeof(double));
        assert_ok(hl_left_out(
            &left[m],
            &(hl_unit_rows){ .values = values[m], .n_rows = n, .n_columns = SIZE, .n_groups = n }));
        for (int c = 0; c < SIZE; c++)
            means[m][c] = mean_of(p.heads[m] + c, p.size.n_windows, SIZE);
    }
    assert_ok(hl_spearman(&truth, means[0], means[1], SIZE));
    assert_ok(hl_rank_noise_add(&noise, left[0], left[1], SIZE, n));
    count(out, 0, hl_rank_interval(&noise, HL_UNITS_WINDOWS), truth);
    hl_free(left[0]);
    hl_free(left[1]);
}

static void test_ranks(void **state)
{
    (void)state;
    cover("Spearman, heads of two models", sample_ranks);
}

/* ---------------------------------------------------------- losses, as eval has them */

/* Windows of unequal length: every third one goes together with the next. */
static hl_ratio_sums loss_sums(const int64_t *chosen, int64_t n, int64_t setting, bool kl,
                               bool rise)
{
    hl_ratio_sums sums = { 0 };

    for (int64_t i = 0; i < n; i++) {
        int64_t first = chosen != NULL ? chosen[i] : i;
        double  sum = 0.0, tokens = 0.0;

        for (int64_t k = 0; k < (first % 3 == 0 ? 2 : 1); k++) {
            int64_t          at     = (first + k) % p.size.n_windows;
            const hl_scores *scores = setting < 0
                                          ? &p.found->dense[at]
                                          : &p.found->scores[setting * p.size.n_windows + at];
            sum += kl ? scores->kl : scores->nll - (rise ? p.found->dense[at].nll : 0.0);
            tokens += (double)p.found->scored[at];
        }
        hl_ratio_add(&sums, sum, tokens);
    }
    return sums;
}

/* The mean of the whole population. */
static double loss_truth(int64_t setting, bool kl, bool rise)
{
    static double known[2][2][1 + MOST_COLUMNS]; /* no mean is 0 */
    double       *at = &known[kl][rise][1 + setting];

    if (*at == 0.0) {
        hl_ratio_sums whole = loss_sums(NULL, p.size.n_windows, setting, kl, rise);
        *at                 = whole.sum / whole.count;
    }
    return *at;
}

static void sample_losses(tally *out, int n, hl_random *random, int64_t first, int64_t end, bool kl,
                          bool rise)
{
    hl_ratio_sums none = { 0 };
    int64_t       chosen[MAX_N];

    draw(chosen, n, random);
    for (int64_t s = first; s < end; s++) {
        hl_ratio_sums sums = loss_sums(chosen, n, s, kl, rise);

        count(out, (int)(s - first),
              hl_ratio_interval(&sums, &none, kl ? HL_SCALE_KL : HL_SCALE_PLAIN),
              loss_truth(s, kl, rise));
    }
}

static void sample_loss(tally *out, int n, hl_random *random)
{
    sample_losses(out, n, random, -1, 0, false, false);
}

static void sample_rise(tally *out, int n, hl_random *random)
{
    sample_losses(out, n, random, 0, p.n_singles, false, true);
}

static void sample_kl(tally *out, int n, hl_random *random)
{
    sample_losses(out, n, random, p.n_singles, p.n_singles + p.size.n_seeds, true, false);
}

static void sample_kl_of_heads(tally *out, int n, hl_random *random)
{
    sample_losses(out, n, random, 0, p.n_singles, true, false);
}

static void test_losses(void **state)
{
    (void)state;
    cover("loss per token, windows of unequal length", sample_loss);
}

static void test_rises(void **state)
{
    (void)state;
    cover("loss of two models, one head disabled", sample_rise);
}

static void test_kl(void **state)
{
    (void)state;
    cover("KL, heads disabled at random", sample_kl);
}

static void test_kl_of_heads(void **state)
{
    (void)state;
    cover("KL, one head disabled", sample_kl_of_heads);
}

/* ------------------------------------------------------------------------- AUROC */

static void sample_area(tally *out, int n, hl_random *random)
{
    int64_t        m = p.size.n_ctx - 1, all = p.size.n_windows * m;
    int64_t        chosen[MAX_N];
    static double  scores[200 * 96], whole = NAN;
    static uint8_t wrong[200 * 96];
    static int64_t groups[200 * 96];
    double         left[MAX_N + 1];

    for (int pass = isnan(whole) ? 0 : 1; pass < 2; pass++) {
        if (pass == 1)
            draw(chosen, n, random);
        int64_t  n_windows = pass == 0 ? p.size.n_windows : n;
        hl_cases cases     = { wrong, groups, n_windows * m, pass == 0 ? 1 : n_windows };
        for (int64_t i = 0; i < n_windows * m; i++) {
            int64_t window = pass == 0 ? i / m : chosen[i / m];
            scores[i]      = p.losses[window * p.size.n_ctx + 1 + i % m];
            wrong[i]       = p.wrong[window * p.size.n_ctx + 1 + i % m];
            groups[i]      = pass == 0 ? 0 : i / m;
        }
        if (pass == 0) {
            assert_true(all <= (int64_t)(sizeof scores / sizeof *scores));
            assert_ok(hl_auroc_left_out(left, scores, &cases));
            whole = left[1];
            continue;
        }
        assert_ok(hl_auroc_left_out(left, scores, &cases));
        count(out, 0, hl_auroc_interval(left, &cases, HL_UNITS_WINDOWS), whole);
    }
}

static void test_area(void **state)
{
    (void)state;
    cover("AUROC of a token's loss", sample_area);
}

/* -------------------------------------------------------------- the sweep's verdict */

/* A sweep of one order, N_DRAWN_SEEDS random ones and every head alone, at one ratio, on these windows
 * and with these seeds and heads (indices of settings). */
static void conclude(double out[3][3], const int64_t *windows, int64_t n_windows,
                     const int64_t *seeds, int64_t n_seeds, const int64_t *heads)
{
    int64_t        n_singles = p.n_singles, n_settings = 1 + n_seeds + n_singles;
    int64_t        ordered = p.n_singles + p.size.n_seeds;
    hl_ranked      ranked[SIZE];
    hl_ranker      ranker         = HL_RANKER_OUTPUT_NORM;
    hl_ranking     ranking        = { .ranker = ranker, .n_heads = n_singles, .heads = ranked };
    hl_sweep_order orders[1 + 16] = { { .ranker = ranker, .ranking = &ranking } };
    double         ratio          = 1.0 / (double)p.size.one_of;
    int64_t        n_off          = n_singles / p.size.one_of;
    hl_evaluation  test = { .n_settings = n_settings, .n_windows = n_windows, .n_documents = 1 };
    hl_sweep       s    = { .model        = p.model,
                            .rankers      = &ranker,
                            .ratios       = &ratio,
                            .n_gates      = SIZE,
                            .orders       = orders,
                            .n_orders     = 1 + n_seeds,
                            .n_fixed      = 1,
                            .n_off        = &n_off,
                            .n_settings   = n_settings,
                            .first_single = 1 + n_seeds,
                            .n_singles    = n_singles,
                            .test         = &test };

    s.options.n_rankers = s.options.n_ratios = 1;
    s.options.n_seeds                        = n_seeds;
    s.options.n_ctx                          = p.size.n_ctx;
    s.gates                                  = calloc((size_t)(n_settings * SIZE), sizeof *s.gates);
    s.heads                                  = calloc((size_t)n_singles, sizeof *s.heads);
    test.scored                              = calloc((size_t)n_windows, sizeof *test.scored);
    test.dense                               = calloc((size_t)n_windows, sizeof *test.dense);
    test.scores    = calloc((size_t)(n_settings * n_windows), sizeof *test.scores);
    test.documents = calloc((size_t)n_windows, sizeof *test.documents);
    for (int64_t i = 0; i < n_seeds; i++)
        orders[1 + i].first = 1 + i;
    for (int64_t i = 0; i < n_singles;
         i++) { /* a score of the head: its entropy in the population */
        s.heads[i] = (hl_head){ 0, i };
        ranked[i]  = (hl_ranked){ 0, i,
                                  mean_of(p.heads[0] + p.size.first_layer * N_HEADS + heads[i],
                                          p.size.n_windows, SIZE) };
    }
    for (int64_t w = 0; w < n_windows; w++) {
        int64_t from   = windows[w];
        test.scored[w] = p.found->scored[from];
        test.dense[w]  = p.found->dense[from];
        test.n_scored += test.scored[w];
        for (int64_t i = 0; i < n_settings; i++) {
            int64_t of                     = i == 0         ? ordered
                                             : i <= n_seeds ? p.n_singles + seeds[i - 1]
                                                            : heads[i - 1 - n_seeds];
            test.scores[i * n_windows + w] = p.found->scores[of * p.size.n_windows + from];
        }
    }
    assert_ok(hl_sweep_conclude(&s));
    const hl_sweep_value *values[] = { &s.points[0].rise, &s.points[0].vs_random,
                                       &s.correlations[0] };
    for (int i = 0; i < 3; i++) {
        out[i][0] = values[i]->value;
        out[i][1] = values[i]->low;
        out[i][2] = values[i]->high;
    }
    for (size_t i = 0; i < sizeof s.tables / sizeof *s.tables; i++)
        hl_sheet_free(s.tables[i]);
    for (size_t i = 0; i < s.n_verdict; i++)
        hl_free(s.verdict[i]);
    hl_free(s.verdict);
    hl_free(s.left);
    hl_free(s.work);
    hl_free(s.points);
    hl_free(s.bands);
    hl_free(s.rises);
    hl_free(s.correlations);
    free(s.gates);
    free(s.heads);
    free(test.scored);
    free(test.dense);
    free(test.scores);
    free(test.documents);
}

/* The numbers of the whole population. */
static double truths[3] = { NAN, NAN, NAN };

static void sample_sweep(tally *out, int n, hl_random *random)
{
    int64_t windows[200], seeds[16], heads[SIZE];
    double  found[3][3];

    if (isnan(truths[0])) {
        for (int64_t i = 0; i < p.size.n_windows; i++)
            windows[i] = i;
        for (int64_t i = 0; i < p.size.n_seeds; i++)
            seeds[i] = i;
        for (int64_t i = 0; i < p.n_singles; i++)
            heads[i] = i;
        conclude(found, windows, p.size.n_windows, seeds, p.size.n_seeds, heads);
        for (int i = 0; i < 3; i++)
            truths[i] = found[i][0];
    }
    draw(windows, n, random);
    for (int64_t i = 0; i < N_DRAWN_SEEDS; i++)
        seeds[i] = hl_random_below(random, p.size.n_seeds);
    for (int64_t i = 0; i < p.n_singles; i++)
        heads[i] = hl_random_below(random, p.n_singles);
    conclude(found, windows, n, seeds, N_DRAWN_SEEDS, heads);
    for (int i = 0; i < 3; i++) {
        hl_interval interval = hl_no_interval(n, HL_UNITS_WINDOWS);
        interval.low         = found[i][1];
        interval.high        = found[i][2];
        count(out, i, interval, truths[i]);
    }
}

static void test_sweep(void **state)
{
    (void)state;
    cover_each((const char *const[]){ "sweep: rise over the reference model",
                                      "sweep: against random orders",
                                      "sweep: rank correlation with the rise" },
               3, sample_sweep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_means),     cmocka_unit_test(test_losses),
        cmocka_unit_test(test_documents), cmocka_unit_test(test_rises),
        cmocka_unit_test(test_kl),        cmocka_unit_test(test_kl_of_heads),
        cmocka_unit_test(test_area),      cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_patterns),  cmocka_unit_test(test_places),
        cmocka_unit_test(test_sweep),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
