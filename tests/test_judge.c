/* test_judge.c - areas under curves by counting pairs, logistic models against another method,
 * untrusted labels, and artificial signals. */
#include "analysis_support.h"
#include "support.h"

#include <math.h>

#include "analysis/labels.h"
#include "analysis/numbers.h"
#include "analysis/two_kinds.h"
#include "stats/trace_parts.h"

static double unit(hl_random *random)
{
    return (double)(hl_random_next(random) >> 11) * 0x1p-53;
}

/* ----------------------------------------------------------------------- auroc */

static double by_pairs(const double *scores, const uint8_t *positive, int n)
{
    double won = 0.0, pairs = 0.0;

    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            if (positive[i] && !positive[j]) {
                pairs += 1.0;
                won += scores[i] > scores[j] ? 1.0 : scores[i] == scores[j] ? 0.5 : 0.0;
            }
    return pairs > 0.0 ? won / pairs : NAN;
}

static void areas_are_shares_of_pairs(void **state)
{
    hl_random random = { 3 };
    double    scores[60], areas[61];
    uint8_t   positive[60];
    int64_t   groups[60];
    (void)state;

    for (int round = 0; round < 50; round++) {
        int64_t n = 1 + hl_random_below(&random, 60);
        for (int64_t i = 0; i < n; i++) {
            scores[i]   = (double)hl_random_below(&random, round % 2 ? 7 : 1000); /* many ties */
            positive[i] = hl_random_below(&random, 3) == 0;
            groups[i]   = i;
        }
        hl_cases cases  = { positive, groups, n, n };
        double   wanted = by_pairs(scores, positive, (int)n);
        assert_ok(hl_auroc_left_out(areas, scores, &cases));
        assert_true(isnan(wanted) ? isnan(areas[n]) : fabs(areas[n] - wanted) < 1e-12);
    }
}

/* Whole groups are left out, checked by building what is left. */
static void groups_are_left_out_whole(void **state)
{
    enum { N = 30, GROUPS = 6 };
    hl_random random = { 4 };
    double    scores[N], rest[N], areas[GROUPS + 1];
    uint8_t   positive[N], kinds[N];
    int64_t   groups[N];
    (void)state;

    for (int i = 0; i < N; i++) {
        scores[i]   = (double)hl_random_below(&random, 9);
        positive[i] = hl_random_below(&random, 2) == 0;
        groups[i]   = i % GROUPS;
    }
    hl_cases cases = { positive, groups, N, GROUPS };
    assert_ok(hl_auroc_left_out(areas, scores, &cases));
    for (int g = 0; g <= GROUPS; g++) {
        int n = 0;
        for (int i = 0; i < N; i++)
            if (groups[i] != g) {
                rest[n]    = scores[i];
                kinds[n++] = positive[i];
            }
        assert_true(fabs(by_pairs(rest, kinds, n) - areas[g]) < 1e-12);
    }
    hl_interval interval = hl_auroc_interval(areas, &cases, HL_UNITS_SPANS);
    assert_true(interval.low < areas[GROUPS] && areas[GROUPS] < interval.high);
    assert_true(interval.low > 0.0 && interval.high < 1.0 && interval.n == GROUPS);
}

/* All in order: the jackknife sees no error, and yet the interval is not a point. */
static void a_perfect_area_is_not_certain(void **state)
{
    enum { N = 12 };
    double  scores[N], areas[N + 1];
    uint8_t positive[N];
    int64_t groups[N];
    (void)state;

    for (int i = 0; i < N; i++) {
        scores[i]   = i;
        positive[i] = i >= N / 2;
        groups[i]   = i;
    }
    hl_cases cases = { positive, groups, N, N };
    assert_ok(hl_auroc_left_out(areas, scores, &cases));
    hl_interval interval = hl_auroc_interval(areas, &cases, HL_UNITS_SPANS);
    assert_true(areas[N] == 1.0 && interval.low < 0.9 && interval.low > 0.5 &&
                interval.high == 1.0);
}

/* -------------------------------------------------------------------- logistic */

enum { D = 5, CASES = 80 };

/* Proximal gradient descent with enough small steps. */
static void descend(double *w, const double *x, const uint8_t *y, int n, double l1)
{
    memset(w, 0, (D + 1) * sizeof *w);
    for (int step = 0; step < 100000; step++) {
        double gradient[D + 1] = { 0 };
        for (int i = 0; i < n; i++) {
            double f = w[D];
            for (int j = 0; j < D; j++)
                f += w[j] * x[i * D + j];
            double away = (1.0 / (1.0 + exp(-f)) - y[i]) / n;
            for (int j = 0; j < D; j++)
                gradient[j] += away * x[i * D + j];
            gradient[D] += away;
        }
        for (int j = 0; j <= D; j++) {
            double to = w[j] - 0.5 * gradient[j];
            w[j]      = j == D ? to : copysign(fmax(fabs(to) - 0.5 * l1, 0.0), to);
        }
    }
}

static void models_are_at_the_minimum(void **state)
{
    static const double penalties[] = { 0.001, 0.01, 0.05 };
    hl_random           random      = { 6 };
    double              x[CASES * D], plain[D + 1];
    uint8_t             y[CASES];
    hl_logistic_cases   cases  = { .x = x, .is_positive = y, .n_cases = CASES, .n_features = D };
    int                 n_zero = 0;
    (void)state;

    for (int i = 0; i < CASES; i++) {
        y[i] = unit(&random) < 0.3;
        for (int j = 0; j < D; j++)
            x[i * D + j] = 2.0 * unit(&random) - 1.0 + (j == 1 && y[i] ? 0.8 : 0.0);
    }
    for (int i = 0; i < 3; i++) {
        double w[D + 1] = { 0 };
        assert_ok(hl_logistic_fit(w, &cases, penalties[i]));
        descend(plain, x, y, CASES, penalties[i]);
        for (int j = 0; j <= D; j++) {
            assert_near(w[j], plain[j], 2e-4);
            assert_true((w[j] == 0.0) == (plain[j] == 0.0));
            n_zero += w[j] == 0.0;
        }
        assert_true(w[1] > 0.1);
    }
    assert_true(n_zero >= 4);
}

/* Without the penalty, perfectly separable cases would have infinite weights. */
static void separable_cases_have_a_model(void **state)
{
    double            x[4] = { -2.0, -1.0, 1.0, 2.0 }, w[2] = { 0 };
    uint8_t           y[4]  = { 0, 0, 1, 1 };
    hl_logistic_cases cases = { .x = x, .is_positive = y, .n_cases = 4, .n_features = 1 };
    (void)state;

    assert_ok(hl_logistic_fit(w, &cases, 1e-4));
    assert_true(w[0] > 3.0 && isfinite(w[0]));
    assert_near(w[1], 0.0, 1e-3);
    assert_near(hl_logistic_score(w, x, 1), -2.0 * w[0], 1e-12); /* without b */
}

/* Of 20 features one matters: the chosen penalty keeps that one, and drops nearly all others.  If
 * none matters, it drops all of them, or most. */
static void penalties_are_chosen_by_left_out_cases(void **state)
{
    enum { N = 200, MANY = 20, FOLDS = 4 };
    hl_random         random = { 9 };
    double            x[N * MANY], w[MANY + 1], l1 = 0.0;
    uint8_t           y[N];
    int64_t           folds[N];
    hl_logistic_cases cases = { x, y, folds, N, MANY, FOLDS };
    (void)state;

    for (int matters = 0; matters < 2; matters++) {
        int n_used = 0;
        for (int i = 0; i < N; i++) {
            y[i]     = unit(&random) < 0.5;
            folds[i] = i % FOLDS;
            for (int j = 0; j < MANY; j++)
                x[i * MANY + j] = 3.5 * unit(&random) - 1.75 + (j == 7 && y[i] ? matters : 0.0);
        }
        assert_ok(hl_logistic_choose(w, &l1, &cases));
        for (int j = 0; j < MANY; j++)
            n_used += w[j] != 0.0;
        assert_true(matters ? w[7] > 0.2 && n_used < 15 : n_used < 8);
        for (int j = 0; j < MANY; j++)
            assert_true(j == 7 || fabs(w[j]) < 0.25);
    }
}

/* ---------------------------------------------------------------------- labels */

static void refuse(const char *text, const char *message)
{
    hl_labels *labels = NULL;

    assert_fails(HL_BAD_INPUT, message, hl_labels_parse(&labels, text, strlen(text), "l"));
    assert_null(labels);
}

static void labels_are_checked(void **state)
{
    static const char good[] =
        "{\"tokens\": [3, 5], \"right\": true}\n\n"
        "{\"trace\": \"a\", \"characters\": [0, 9], \"right\": false, \"x\": 1}";
    static const char tasks[] = "{\"tokens\": [3, 5], \"right\": true, \"task\": \"a\"}\n"
                                "{\"tokens\": [3, 5], \"right\": true, \"task\": \"b\"}\n"
                                "{\"tokens\": [3, 5], \"right\": true, \"task\": \"a\"}";
    hl_labels        *labels  = NULL;
    (void)state;

    assert_ok(hl_labels_parse(&labels, good, strlen(good), "l"));
    assert_int_equal(labels->count, 2);
    assert_true(labels->items[0].is_right && labels->items[0].trace == NULL);
    assert_true(labels->items[1].is_characters && labels->items[1].line == 3);
    assert_true(hl_labels_n_tasks(labels) == 0 && hl_labels_task(labels, 0) == NULL);
    hl_labels_free(labels);
    assert_ok(hl_labels_parse(&labels, tasks, strlen(tasks), "l"));
    assert_true(hl_labels_n_tasks(labels) == 2 && labels->items[2].task == 0);
    assert_string_equal(hl_labels_task(labels, 1), "b");
    hl_labels_free(labels);
    refuse("{\"tokens\": [3, 5], \"right\": true}\nx", "l:2: ");
    refuse("[1]", "l:1: an array, wanted an object");
    refuse("{\"right\": true}", "wanted either 'tokens' or 'characters'");
    refuse("{\"tokens\": [1, 2], \"characters\": [1, 2], \"right\": true}", "wanted either");
    refuse("{\"tokens\": [1, 2]}", "'right' is missing, wanted true or false");
    refuse("{\"tokens\": [1, 2], \"right\": 1}", "wanted true or false");
    refuse("{\"tokens\": [1], \"right\": true}", "wanted two whole numbers");
    refuse("{\"tokens\": \"1\", \"right\": true}", "'tokens' is a string, wanted two");
    refuse("{\"tokens\": [1, 2.5], \"right\": true}", "wanted two whole numbers");
    refuse("{\"tokens\": [-1, 2], \"right\": true}", "from -1 to 2 is not a range");
    refuse("{\"tokens\": [2, 2], \"right\": true}", "from 2 to 2 is not a range");
    refuse("{\"tokens\": [1, 9223372036854775807], \"right\": true}", "is not a range");
    refuse("{\"tokens\": [1, 2], \"right\": true, \"trace\": 5}", "trace");
    refuse("{\"tokens\": [1, 2], \"right\": true, \"task\": 5}", "task");
    refuse("{\"tokens\": [3, 5], \"right\": true}\n"
           "{\"tokens\": [3, 5], \"right\": true, \"task\": \"a\"}",
           "l:2: has a 'task', which earlier lines lack");
    refuse("{\"tokens\": [3, 5], \"right\": true, \"task\": \"a\"}\n"
           "{\"tokens\": [3, 5], \"right\": true}",
           "l:2: 'task' is missing");
}

/* ---------------------------------------------------------------------- judging */

enum { TEXTS = 24, TOKENS = 12, LAYERS = 2, HEADS = 3 };

typedef struct made {
    hl_trace   *traces[TEXTS];
    const char *names[TEXTS];
    char        storage[TEXTS][32];
    hl_labels  *labels;
} made;

/* What is larger about wrong tokens. */
typedef struct planted {
    double logprob; /* subtracted from log p */
    double heads;   /* added to one head's Renyi-2 entropy; in even texts to another head's if
                      * `elsewhere` is set */
    double prompts; /* a head's Renyi-2 entropy in prompts of texts whose tokens are mostly wrong */
    bool   elsewhere;
    bool   shuffled; /* the labels have nothing to do with the tokens */
} planted;

/* In every third text, every other token is wrong, in other texts every fifth. Texts with even
 * numbers are of the task "even", the others of "odd". */
static made make(planted in, uint64_t seed)
{
    hl_random random                      = { seed };
    made      m                           = { 0 };
    char      lines[TEXTS * TOKENS * 120] = "";
    size_t    at                          = 0;

    for (int t = 0; t < TEXTS; t++) {
        int every = t % 3 == 0 ? 2 : 5;
        snprintf(m.storage[t], sizeof m.storage[t], "some/where/%02d.trace", t);
        assert_ok(hl_trace_new(&m.traces[t], LAYERS, HEADS, 0));
        for (int i = 0; i < TOKENS + 2; i++) {
            bool is_wrong = i >= 2 && i % every == 0;
            bool labeled  = in.shuffled ? unit(&random) < 0.3 : is_wrong;
            assert_ok(hl_trace_push(m.traces[t], i, i < 2 ? HL_KIND_PROMPT : HL_KIND_GENERATED));
            assert_ok(hl_trace_append_text(m.traces[t], "né", 3));
            m.traces[t]->numbers[HL_TRACE_LOGPROB][i]    = -unit(&random) - in.logprob * is_wrong;
            m.traces[t]->numbers[HL_TRACE_VOCABULARY][i] = unit(&random);
            m.traces[t]->numbers[HL_TRACE_SPIKE][i]      = unit(&random);
            for (int which = 0; which < HL_N_TRACE_ROWS; which++)
                for (int cell = 0; cell < LAYERS * HEADS; cell++) {
                    bool   larger = cell == (in.elsewhere && t % 2 == 0 ? 3 : 4);
                    double more   = larger ? in.heads * is_wrong : 0.0;
                    if (i == 2 && cell == 2) /* the last row of the prompt */
                        more = in.prompts * (every == 2);
                    /* Layer 1 lacks the last head. */
                    hl_trace_at(m.traces[t], i, (hl_trace_rows)which)[cell] =
                        cell == 5 ? NAN
                                  : (float)(unit(&random) + (which == HL_TRACE_RENYI2) * more);
                }
            if (i >= 2)
                at += (size_t)sprintf(
                    lines + at,
                    "{\"trace\": \"%02d.trace\", \"%s\": [%d, %d], \"right\": %s, "
                    "\"task\": \"%s\"}\n",
                    t, i % 2 ? "tokens" : "characters", i % 2 ? i : 2 * i,
                    i % 2 ? i + 1 : 2 * i + 2, labeled ? "false" : "true", t % 2 ? "odd" : "even");
        }
    }
    assert_ok(hl_labels_parse(&m.labels, lines, at, "made"));
    return m;
}

/* Sets the names, which point into the struct itself. */
static void set_names(made *m)
{
    for (int t = 0; t < TEXTS; t++)
        m->names[t] = m->storage[t];
}

static void release(made *m)
{
    for (int t = 0; t < TEXTS; t++)
        hl_trace_free(m->traces[t]);
    hl_labels_free(m->labels);
}

static hl_judgment judge_with(planted in, uint64_t seed, const hl_judge_options *options)
{
    hl_judgment found;
    made        m = make(in, seed);

    set_names(&m);
    assert_ok(
        hl_judge(&found, (const hl_trace *const *)m.traces, m.names, TEXTS, m.labels, options));
    release(&m);
    return found;
}

static void assert_chance(hl_estimate area)
{
    assert_true(area.interval.low < 0.5 && area.interval.high > 0.5);
}

static void planted_signals_are_found(void **state)
{
    hl_judgment found = judge_with((planted){ .heads = 0.8 }, 1, NULL);
    (void)state;

    assert_int_equal(found.n_wrong, 8 * 6 + 16 * 2);
    assert_int_equal(found.n_right, TEXTS * TOKENS - found.n_wrong);
    assert_true(found.n_left_out == 0 && found.n_texts == TEXTS);
    assert_int_equal(found.n_heads, LAYERS * HEADS - 1);
    assert_true(found.auroc[0].interval.units == HL_UNITS_DOCUMENTS && found.n_folds == 5);
    assert_true(found.auroc[HL_SIGNAL_HEADS].interval.low > 0.9);
    assert_true(found.over_lookback.interval.low > 0.2);
    assert_true(found.n_used[HL_SIGNAL_HEADS] < 4.5);           /* of 5: the model is sparse */
    assert_true(found.gain[HL_SIGNAL_BOTH].interval.low > 0.2); /* log-probability knows nothing */
    assert_chance(found.auroc[HL_SIGNAL_LOGPROB]);
    assert_chance(found.auroc[HL_SIGNAL_SPIKE]);
    assert_chance(found.auroc[HL_SIGNAL_HEADS_LOOKBACK]);
}

/* The last row of a prompt shows which texts go wrong. */
static void prompts_alone_can_predict(void **state)
{
    hl_judgment found = judge_with((planted){ .prompts = 2.0 }, 3, NULL);
    (void)state;

    assert_true(found.auroc[HL_SIGNAL_PROMPT_HEADS].interval.low > 0.55);
    assert_true(found.over_first.value > 0.05);
    assert_chance(found.auroc[HL_SIGNAL_FIRST]);
    assert_true(found.auroc[HL_SIGNAL_PROMPT_LENGTH].value == 0.5); /* all are as long */
    assert_true(found.auroc[HL_SIGNAL_LENGTH].value == 0.5);
}

/* What one task teaches holds in the other only if the same head differs. */
static void models_learn_from_other_tasks(void **state)
{
    hl_judge_options within = { .task = "even" }, across = { .task = "even", .across = true };
    (void)state;

    for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
        planted     in  = { .heads = 0.8, .elsewhere = elsewhere };
        hl_judgment own = judge_with(in, 5, &within), other = judge_with(in, 5, &across);
        assert_true(own.n_texts == TEXTS / 2 && other.n_texts == TEXTS / 2);
        assert_true(own.n_right == other.n_right && other.n_folds == 0);
        assert_true(own.auroc[HL_SIGNAL_HEADS].interval.low > 0.8);
        assert_true(own.auroc[HL_SIGNAL_LOGPROB].value == other.auroc[HL_SIGNAL_LOGPROB].value);
        if (elsewhere)
            assert_chance(other.auroc[HL_SIGNAL_HEADS]);
        else
            assert_true(other.auroc[HL_SIGNAL_HEADS].interval.low > 0.8);
    }
}

/* Noise does not look like a finding: a model tested on its own training cases would beat
 * chance. */
static void noise_adds_nothing(void **state)
{
    int n_adds = 0, n_heads = 0;
    (void)state;

    for (uint64_t seed = 10; seed < 20; seed++) {
        hl_judgment found = judge_with((planted){ .logprob = 0.7 }, seed, NULL);
        assert_true(found.auroc[HL_SIGNAL_LOGPROB].interval.low > 0.85);
        n_adds += found.gain[HL_SIGNAL_BOTH].interval.low > 0.0;
        n_heads += found.auroc[HL_SIGNAL_HEADS].interval.low > 0.5;
    }
    assert_in_range(n_adds, 0, 1);
    assert_in_range(n_heads, 0, 1);
}

/* With shuffled labels each signal has 0.5 on average, learned ones too: neither above, as with
 * a model that has seen its cases, nor below, as with scores that contain the share of wrong cases
 * in the other folds. */
static void shuffled_labels_give_a_half(void **state)
{
    enum { ROUNDS = 24 };
    double means[HL_N_SIGNALS] = { 0 };
    (void)state;

    for (uint64_t seed = 100; seed < 100 + ROUNDS; seed++) {
        hl_judgment found =
            judge_with((planted){ .logprob = 0.7, .heads = 0.8, .prompts = 2.0, .shuffled = true },
                       seed, NULL);
        for (int s = 0; s < HL_N_SIGNALS; s++)
            means[s] += found.auroc[s].value / ROUNDS;
    }
    for (int s = 0; s < HL_N_SIGNALS; s++) /* a mean of 24 areas of 86 x 202 pairs: error 0.008 */
        assert_near(means[s], 0.5, 0.025);
}

static void labels_must_fit(void **state)
{
    made        m = make((planted){ 0 }, 2);
    hl_judgment found;
    hl_labels  *labels = NULL;
    static const struct {
        const char *line, *message;
    } cases[] = {
        { "{\"tokens\": [3, 4], \"right\": true}",
          "24 traces are given, so the line needs 'trace'" },
        { "{\"trace\": \"x\", \"tokens\": [3, 4], \"right\": true}",
          "no given trace is called 'x'" },
        { "{\"trace\": \"00.trace\", \"tokens\": [3, 15], \"right\": true}", "has 14 tokens" },
        { "{\"trace\": \"00.trace\", \"characters\": [3, 29], \"right\": true}",
          "has 28 characters" },
        { "{\"trace\": \"00.trace\", \"tokens\": [3, 4], \"right\": true}",
          "1 right and 0 wrong spans (0 left out" },
        { "{\"trace\": \"00.trace\", \"tokens\": [0, 2], \"right\": true}", /* tokens of the
                                                                             * prompt */
          "0 right and 0 wrong spans (1 left out" },
    };
    (void)state;

    set_names(&m);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_ok(hl_labels_parse(&labels, cases[i].line, strlen(cases[i].line), "l"));
        assert_fails(
            HL_BAD_INPUT, cases[i].message,
            hl_judge(&found, (const hl_trace *const *)m.traces, m.names, TEXTS, labels, NULL));
        hl_labels_free(labels);
    }
    assert_fails(HL_BAD_ARGUMENT, "1 folds",
                 hl_judge(&found, (const hl_trace *const *)m.traces, m.names, TEXTS, m.labels,
                          &(hl_judge_options){ .n_folds = 1 }));
    assert_fails(HL_BAD_ARGUMENT, "across tasks",
                 hl_judge(&found, (const hl_trace *const *)m.traces, m.names, TEXTS, m.labels,
                          &(hl_judge_options){ .across = true }));
    assert_fails(HL_BAD_INPUT, "0 right and 0 wrong spans of the task x",
                 hl_judge(&found, (const hl_trace *const *)m.traces, m.names, TEXTS, m.labels,
                          &(hl_judge_options){ .task = "x" }));
    release(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(areas_are_shares_of_pairs),
        cmocka_unit_test(groups_are_left_out_whole),
        cmocka_unit_test(a_perfect_area_is_not_certain),
        cmocka_unit_test(models_are_at_the_minimum),
        cmocka_unit_test(separable_cases_have_a_model),
        cmocka_unit_test(penalties_are_chosen_by_left_out_cases),
        cmocka_unit_test(labels_are_checked),
        cmocka_unit_test(planted_signals_are_found),
        cmocka_unit_test(prompts_alone_can_predict),
        cmocka_unit_test(models_learn_from_other_tasks),
        cmocka_unit_test(noise_adds_nothing),
        cmocka_unit_test(shuffled_labels_give_a_half),
        cmocka_unit_test(labels_must_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
