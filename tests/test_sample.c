/* test_sample.c - sampling: each filter against its definition written the slow way, the
 * draws against their probabilities, and what must be refused.  tests/cli/sampling.sh
 * compares the same filters with PyTorch. */
#include "support.h"

#include <math.h>

#include "kernels/logits.h"
#include "model/sample.h"

enum { MAX_V = 2000 };

/* Fills logits with random numbers; with a small `n_levels`, values repeat. */
static void fill_logits(float *logits, int64_t n, uint64_t seed, int n_levels)
{
    for (int64_t i = 0; i < n; i++)
        logits[i] =
            12.0f * (float)floor(hl_random_unit(seed, (uint64_t)i) * n_levels) / (float)n_levels -
            6.0f;
}

static hl_sampler *new_sampler(int64_t d_vocab, hl_sample_options options)
{
    hl_sampler *sampler = NULL;
    assert_ok(hl_sampler_new(&sampler, d_vocab, &options));
    return sampler;
}

/* -------------------------------------------------------- the slow definitions */

/* Returns how many tokens come before `token` by falling score, with equal ones by rising
 * number. */
static int64_t rank_of(const double *scores, int64_t n, int64_t token)
{
    int64_t rank = 0;

    for (int64_t i = 0; i < n; i++)
        rank += scores[i] > scores[token] || (scores[i] == scores[token] && i < token);
    return rank;
}

/* Counts strictly larger ones: the k-th largest value and its equals have fewer than k. */
static int64_t n_larger(const double *scores, int64_t n, int64_t token)
{
    int64_t count = 0;

    for (int64_t i = 0; i < n; i++)
        count += scores[i] > scores[token];
    return count;
}

static void softmax(double *out, const double *scores, int64_t n)
{
    double max = -INFINITY, sum = 0.0;

    for (int64_t i = 0; i < n; i++)
        max = fmax(max, scores[i]);
    for (int64_t i = 0; i < n; i++)
        sum += exp(scores[i] - max);
    for (int64_t i = 0; i < n; i++)
        out[i] = exp(scores[i] - max) / sum;
}

/* Returns the mass of the tokens before it. */
static double mass_before(const double *p, const double *scores, int64_t n, int64_t token)
{
    double  mass = 0.0;
    int64_t rank = rank_of(scores, n, token);

    for (int64_t i = 0; i < n; i++)
        mass += rank_of(scores, n, i) < rank ? p[i] : 0.0;
    return mass;
}

/* Computes probabilities after temperature and filters, 0 for tokens that were filtered out. */
static void expected_probabilities(double *out, const float *logits, int64_t n,
                                   const hl_sample_options *o)
{
    double scores[64], left[64], p[64], max = 0.0;

    assert_true(n <= 64);
    for (int64_t i = 0; i < n; i++)
        scores[i] = logits[i] / o->temperature;
    for (int64_t i = 0; i < n; i++)
        left[i] = o->top_k > 0 && n_larger(scores, n, i) >= o->top_k ? -INFINITY : scores[i];
    softmax(p, left, n);
    for (int64_t i = 0; i < n && o->top_p > 0.0 && o->top_p < 1.0; i++) {
        if (mass_before(p, scores, n, i) >= o->top_p)
            left[i] = -INFINITY;
    }
    softmax(p, left, n);
    for (int64_t i = 0; i < n; i++)
        max = fmax(max, p[i]);
    for (int64_t i = 0; i < n; i++) {
        if (p[i] < o->min_p * max)
            left[i] = -INFINITY;
    }
    softmax(out, left, n);
}

static void expect_probabilities(hl_sampler *sampler, const double *wanted, int64_t n)
{
    int64_t             count      = 0;
    int64_t             n_wanted   = 0;
    const hl_candidate *candidates = hl_sampler_candidates(sampler, &count);

    for (int64_t i = 0; i < n; i++)
        n_wanted += wanted[i] > 0.0;
    assert_int_equal(count, n_wanted);
    for (int64_t i = 0; i < count; i++) {
        assert_true(candidates[i].token >= 0 && candidates[i].token < n);
        assert_true(fabs(candidates[i].probability - wanted[candidates[i].token]) < 1e-12);
        assert_true(wanted[candidates[i].token] > 0.0);
    }
}

/* No top_p used here is within rounding of a cumulative sum. */
static void filters_are_their_definitions(void **state)
{
    static const double  temperatures[] = { 0.3, 1.0, 2.5 };
    static const int64_t ks[]           = { 0, 1, 7, 40, 1000 };
    static const double  ps[]           = { 0.0, 1e-9, 0.31, 0.9137, 1.0 };
    static const double  mins[]         = { 0.0, 0.0513, 1.0 };
    static const int     levels[]       = { 9, 1 << 20 };
    float                logits[40];
    double               wanted[40];
    int64_t              token;
    (void)state;

    for (int c = 0; c < 3 * 5 * 5 * 3 * 2; c++) {
        hl_sample_options o       = { .temperature = temperatures[c % 3],
                                      .top_k       = ks[c / 3 % 5],
                                      .top_p       = ps[c / 15 % 5],
                                      .min_p       = mins[c / 75 % 3] };
        hl_sampler       *sampler = new_sampler(40, o);

        fill_logits(logits, 40, (uint64_t)c, levels[c / 225]);
        assert_ok(hl_sampler_draw(&token, sampler, logits));
        expected_probabilities(wanted, logits, 40, &o);
        expect_probabilities(sampler, wanted, 40);
        assert_true(wanted[token] > 0.0);
        hl_sampler_free(sampler);
    }
}

static void penalties_are_their_definition(void **state)
{
    const float       logits[6] = { 2.0f, -1.0f, 0.0f, 3.0f, -4.0f, 1.0f };
    const double      wanted[6] = { 2.0 / 1.5, -1.0 * 1.5, 0.0, 3.0, -4.0, 1.0 };
    double            p[6];
    hl_sample_options o       = { .temperature = 1.0, .repeat_penalty = 1.5, .repeat_last = 4 };
    hl_sampler       *sampler = new_sampler(6, o);
    int64_t           token;
    (void)state;

    /* Token 3 is not among the last four; 0 occurs twice and is penalized once. */
    const int64_t text[] = { 3, 3, 0, 1, 2, 0 };
    for (size_t i = 0; i < 6; i++)
        assert_ok(hl_sampler_accept(sampler, text[i]));
    assert_ok(hl_sampler_draw(&token, sampler, logits));
    softmax(p, wanted, 6);
    int64_t             count;
    const hl_candidate *candidates = hl_sampler_candidates(sampler, &count);
    for (int64_t i = 0; i < count; i++)
        assert_true(fabs(candidates[i].probability - p[i]) < 1e-7);
    hl_sampler_free(sampler);

    /* Without a limit, 3 stays penalized, and greedy sampling takes 0's neighbor. */
    sampler = new_sampler(6, (hl_sample_options){ .repeat_penalty = 4.0 });
    for (size_t i = 0; i < 6; i++)
        assert_ok(hl_sampler_accept(sampler, text[i]));
    assert_ok(hl_sampler_draw(&token, sampler, logits));
    assert_int_equal(token, 5);
    hl_sampler_free(sampler);
}

/* ----------------------------------------------------------------------- draws */

/* Pearson's chi-square of 20000 draws with a fixed seed, over ten outcomes: with 9 degrees of
 * freedom, one seed in a thousand exceeds 27.9. */
static void draws_follow_the_probabilities(void **state)
{
    enum { N_DRAWS = 20000, N = 10 };
    static const hl_sample_options all[] = { { .temperature = 1.0, .seed = 11 },
                                             { .temperature = 1.3, .top_k = 10, .seed = 12 },
                                             { .temperature = 0.7, .top_p = 0.95, .seed = 13 } };
    float                          logits[N];
    double                         wanted[N];
    (void)state;

    for (size_t c = 0; c < 3; c++) {
        int64_t     seen[N] = { 0 };
        double      chi     = 0.0;
        int64_t     token;
        hl_sampler *sampler = new_sampler(N, all[c]);

        for (int i = 0; i < N; i++)
            logits[i] = (float)i * 0.25f;
        for (int i = 0; i < N_DRAWS; i++) {
            assert_ok(hl_sampler_draw(&token, sampler, logits));
            seen[token]++;
        }
        expected_probabilities(wanted, logits, N, &all[c]);
        for (int i = 0; i < N; i++) {
            if (wanted[i] == 0.0)
                assert_int_equal(seen[i], 0);
            else
                chi += pow((double)seen[i] - N_DRAWS * wanted[i], 2) / (N_DRAWS * wanted[i]);
        }
        if (chi > 27.9)
            fail_msg("case %zu: chi-square %.1f", c, chi);
        hl_sampler_free(sampler);
    }
}

static void a_seed_is_a_text(void **state)
{
    float       logits[MAX_V];
    int64_t     a, b, c, differences = 0;
    hl_sampler *one   = new_sampler(MAX_V, (hl_sample_options){ .temperature = 1.0, .seed = 5 });
    hl_sampler *same  = new_sampler(MAX_V, (hl_sample_options){ .temperature = 1.0, .seed = 5 });
    hl_sampler *other = new_sampler(MAX_V, (hl_sample_options){ .temperature = 1.0, .seed = 6 });
    (void)state;

    for (int i = 0; i < 50; i++) {
        fill_logits(logits, MAX_V, (uint64_t)i, 1 << 20);
        assert_ok(hl_sampler_draw(&a, one, logits));
        assert_ok(hl_sampler_draw(&b, same, logits));
        assert_ok(hl_sampler_draw(&c, other, logits));
        assert_int_equal(a, b);
        differences += a != c;
    }
    assert_true(differences > 40);
    hl_sampler_free(one);
    hl_sampler_free(same);
    hl_sampler_free(other);
}

/* SplitMix64 with state 1234567, as its authors' program prints it. */
static void random_numbers_are_splitmix64(void **state)
{
    static const uint64_t published[] = { UINT64_C(6457827717110365317),
                                          UINT64_C(3203168211198807973),
                                          UINT64_C(9817491932198370423) };
    uint64_t              counter     = 1234567;
    (void)state;

    for (int i = 0; i < 3; i++) {
        counter += UINT64_C(0x9e3779b97f4a7c15);
        assert_true(hl_random_mix(counter) == published[i]);
    }
    for (uint64_t n = 0; n < 1000; n++)
        assert_true(hl_random_unit(3, n) >= 0.0 && hl_random_unit(3, n) < 1.0);
}

/* ----------------------------------------------------------------------- edges */

static void temperature_0_takes_the_first_of_the_largest(void **state)
{
    const float logits[5] = { 1.0f, 3.0f, -INFINITY, 3.0f, 2.0f };
    hl_sampler *sampler   = new_sampler(5, (hl_sample_options){ .top_k = 3, .min_p = 0.5 });
    int64_t     token, count;
    (void)state;

    assert_ok(hl_sampler_draw(&token, sampler, logits));
    assert_int_equal(token, 1);
    assert_true(hl_sampler_candidates(sampler, &count)[0].probability == 1.0);
    assert_int_equal(count, 1);
    hl_sampler_free(sampler);
}

static void one_word_is_always_drawn(void **state)
{
    const float logit = -3.0f;
    hl_sampler *sampler =
        new_sampler(1, (hl_sample_options){ .temperature = 2.0, .top_k = 9, .top_p = 0.1 });
    int64_t token;
    (void)state;

    assert_ok(hl_sampler_draw(&token, sampler, &logit));
    assert_int_equal(token, 0);
    hl_sampler_free(sampler);
}

static void impossible_tokens_are_never_drawn(void **state)
{
    float       logits[100];
    hl_sampler *sampler = new_sampler(100, (hl_sample_options){ .temperature = 50.0 });
    int64_t     token;
    (void)state;

    for (int i = 0; i < 100; i++)
        logits[i] = i % 10 == 3 ? (float)i : -INFINITY;
    for (int i = 0; i < 500; i++) {
        assert_ok(hl_sampler_draw(&token, sampler, logits));
        assert_int_equal(token % 10, 3);
    }
    hl_sampler_free(sampler);
}

static void what_is_no_number_is_named(void **state)
{
    float       logits[4] = { 0.0f, 1.0f, NAN, 2.0f };
    hl_sampler *sampler   = new_sampler(4, (hl_sample_options){ .temperature = 1.0 });
    int64_t     token, count;
    (void)state;

    assert_fails(HL_BAD_INPUT, "the logit of token 2 is NaN",
                 hl_sampler_draw(&token, sampler, logits));
    assert_int_equal(token, -1);
    hl_sampler_candidates(sampler, &count);
    assert_int_equal(count, 0);
    logits[2] = INFINITY;
    assert_fails(HL_BAD_INPUT, "the logit of token 2 is +inf",
                 hl_sampler_draw(&token, sampler, logits));
    for (int i = 0; i < 4; i++)
        logits[i] = -INFINITY;
    assert_fails(HL_BAD_INPUT, "no token can be drawn", hl_sampler_draw(&token, sampler, logits));
    assert_fails(HL_BAD_ARGUMENT, "token 4, wanted 0 to 3", hl_sampler_accept(sampler, 4));
    hl_sampler_free(sampler);
}

static void options_out_of_range_are_refused(void **state)
{
    static const struct {
        hl_sample_options options;
        const char       *message;
    } wrong[] = {
        { { .temperature = -1.0 }, "temperature is -1, wanted 0 to" },
        { { .temperature = NAN }, "temperature is " },
        { { .top_k = -1 }, "top_k is -1" },
        { { .top_p = 1.5 }, "top_p is 1.5, wanted 0 to 1" },
        { { .min_p = -0.5 }, "min_p is -0.5" },
        { { .repeat_penalty = 1e9 }, "repeat_penalty is 1e+09" },
        { { .repeat_last = -1 }, "repeat_last is -1" },
    };
    hl_sampler *sampler;
    (void)state;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        sampler = (hl_sampler *)&sampler;
        assert_fails(HL_BAD_ARGUMENT, wrong[i].message,
                     hl_sampler_new(&sampler, 10, &wrong[i].options));
        assert_null(sampler);
    }
    assert_fails(HL_BAD_ARGUMENT, "d_vocab is 0", hl_sampler_new(&sampler, 0, NULL));
}

/* -------------------------------------------------------------------- entropies */

static void rows_of_logits_are_measured(void **state)
{
    const float   flat[4] = { 7.0f, 7.0f, 7.0f, 7.0f };
    float         sure[3] = { 0.0f, 40.0f, -INFINITY };
    hl_logits_row row     = hl_logits_read(flat, 4);
    (void)state;

    assert_true(fabs(row.entropy - log(4.0)) < 1e-15 && row.varentropy < 1e-15);
    assert_true(fabs(row.lse - 7.0 - log(4.0)) < 1e-15);
    assert_int_equal(row.top, 0);
    row = hl_logits_read(sure, 3);
    assert_int_equal(row.top, 1);
    /* q = e^-40: H = log(1 + q) + 40 q / (1 + q), whose digits must all be right. */
    assert_true(fabs(row.entropy / (41.0 * exp(-40.0)) - 1.0) < 1e-12);
    assert_true(fabs(row.varentropy / (1600.0 * exp(-40.0)) - 1.0) < 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filters_are_their_definitions),
        cmocka_unit_test(penalties_are_their_definition),
        cmocka_unit_test(draws_follow_the_probabilities),
        cmocka_unit_test(a_seed_is_a_text),
        cmocka_unit_test(random_numbers_are_splitmix64),
        cmocka_unit_test(temperature_0_takes_the_first_of_the_largest),
        cmocka_unit_test(one_word_is_always_drawn),
        cmocka_unit_test(impossible_tokens_are_never_drawn),
        cmocka_unit_test(what_is_no_number_is_named),
        cmocka_unit_test(options_out_of_range_are_refused),
        cmocka_unit_test(rows_of_logits_are_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
