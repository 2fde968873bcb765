/* test_attention_agreement.c - every back end against the scalar one, on random problems: sizes of
 * 0, 1 and ragged ones, every option, every output. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "attention_cases.h"

/* Enough to include every pair of options; HEADLIGHT_TEST_CASES overrides it. */
static uint64_t n_cases = 400;

static double largest(const float *values, int64_t count)
{
    double most = 0.0;
    for (int64_t i = 0; i < count; i++)
        most = fmax(most, fabs((double)values[i]));
    return most;
}

/* Equal infinities agree; NaN agrees with nothing. */
static void agree(const char *name, const attention_case *c, const char *backend, const float *seen,
                  const float *wanted, int64_t count, double tolerance)
{
    for (int64_t i = 0; i < count; i++) {
        if (seen[i] == wanted[i])
            continue;
        double error = fabs((double)seen[i] - (double)wanted[i]);
        if (!(error <= tolerance))
            fail_msg(
                "%s on %s, element %lld: %.9g, scalar says %.9g (off by %.3g, allowed %.3g)\n%s",
                name, backend, (long long)i, (double)seen[i], (double)wanted[i], error, tolerance,
                case_describe(c));
    }
}

/* Checks for NaN and infinities at the same places as the scalar kernel; other values must be as
 * near as usual. */
static void agree_by_class(const char *name, const attention_case *c, const char *backend,
                           const float *seen, const float *wanted, int64_t count, double tolerance)
{
    for (int64_t i = 0; i < count; i++) {
        if (isnan(wanted[i]) ? isnan(seen[i]) : seen[i] == wanted[i])
            continue;
        if (!(fabs((double)seen[i] - (double)wanted[i]) <= tolerance))
            fail_msg("%s on %s, element %lld: %.9g, scalar says %.9g\n%s", name, backend,
                     (long long)i, (double)seen[i], (double)wanted[i], case_describe(c));
    }
}

/* Gradients that should be NaN or infinite must not be finite. */
static void nothing_is_laundered(const char *name, const attention_case *c, const char *backend,
                                 const float *seen, const float *wanted, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(wanted[i]) && isfinite(seen[i]))
            fail_msg("%s on %s, element %lld: %.9g, scalar says %.9g\n%s", name, backend,
                     (long long)i, (double)seen[i], (double)wanted[i], case_describe(c));
    }
}

/* Two keys may be equal within rounding; then both have nearly the peak's probability. */
static void agree_argmax(const attention_case *c, const char *backend,
                         const attention_outputs *seen, const attention_outputs *wanted)
{
    int64_t n_keys = c->problem.n_keys;

    for (int64_t i = 0; i < case_n_rows(c); i++) {
        bool blind = wanted->argmax[i] < 0;
        if (seen->argmax[i] == wanted->argmax[i])
            continue;
        if (blind || seen->argmax[i] < 0 || seen->argmax[i] >= n_keys)
            fail_msg("argmax on %s, row %lld: %lld, scalar says %lld\n%s", backend, (long long)i,
                     (long long)seen->argmax[i], (long long)wanted->argmax[i], case_describe(c));
        /* Two equal keys have at least two shares of the row. */
        assert_true((double)wanted->statistics[5][i] <= 0.5 + 1e-4);
    }
}

static void compare(const attention_case *c, const char *backend, const attention_outputs *seen,
                    const attention_outputs *wanted)
{
    double  rounding  = 8.0 * ldexp((double)c->max_score, -24);
    double  entropies = fmax(2e-5, rounding);
    double  singles   = fmax(1e-5, rounding);
    double  gradients = fmax(1e-4, rounding);
    int64_t n_rows    = case_n_rows(c);
    /* If a gradient cancels to nearly 0, the rounding is that of its terms: a score times a query
     * or key, and dot products of d_value numbers of size 1. */
    double terms = 0.1 * fmax(1.0, (double)c->max_score / sqrt((double)c->problem.d_head)) *
                   sqrt((double)c->problem.d_value);

    for (int i = 0; i < CASE_STATISTICS; i++) {
        /* Varentropy is a square of nats, so its rounding scales with its root. */
        double scale = i == 3 ? fmax(1.0, 2.0 * sqrt(largest(wanted->statistics[i], n_rows))) : 1.0;
        agree(case_statistic_name(i), c, backend, seen->statistics[i], wanted->statistics[i],
              n_rows, (i < 5 ? entropies : singles) * scale);
    }
    agree_argmax(c, backend, seen, wanted);
    agree("segment_mass", c, backend, seen->segment_mass, wanted->segment_mass,
          n_rows * c->problem.n_segments, singles);
    for (int i = 0; i < 2; i++)
        agree("received", c, backend, seen->received[i], wanted->received[i], case_n_received(c),
              singles * fmax(1.0, largest(wanted->received[i], case_n_received(c))));
    agree("out", c, backend, seen->out, wanted->out, case_n_out(c),
          singles * fmax(1.0, largest(wanted->out, case_n_out(c))));
    agree("dq", c, backend, seen->dq, wanted->dq, case_n_queries(c),
          gradients * fmax(terms, largest(wanted->dq, case_n_queries(c))));
    agree("dk", c, backend, seen->dk, wanted->dk, case_n_keys(c),
          gradients * fmax(terms, largest(wanted->dk, case_n_keys(c))));
    agree("dv", c, backend, seen->dv, wanted->dv, case_n_values(c),
          gradients * fmax(terms, largest(wanted->dv, case_n_values(c))));
    agree("dgates", c, backend, seen->dgates, wanted->dgates, c->problem.n_heads,
          gradients * fmax(terms, largest(wanted->dgates, c->problem.n_heads)));
    agree("dsinks", c, backend, seen->dsinks, wanted->dsinks, c->problem.n_heads,
          gradients * fmax(terms, largest(wanted->dsinks, c->problem.n_heads)));
}

/* Returns the largest finite magnitude. */
static double largest_finite(const float *values, int64_t count)
{
    double most = 0.0;
    for (int64_t i = 0; i < count; i++)
        most = isfinite(values[i]) ? fmax(most, fabs((double)values[i])) : most;
    return most;
}

/* Compares a problem with NaN or infinity in its inputs.  A tensor core multiplies weights of 0
 * with values that a row does not see, so `out` of a GPU may be NaN in more rows than necessary. */
static void compare_spoiled(const attention_case *c, const char *backend,
                            const attention_outputs *seen, const attention_outputs *wanted)
{
    double  rounding = 8.0 * ldexp((double)c->max_score, -24);
    int64_t n_rows   = case_n_rows(c);

    for (int i = 0; i < CASE_STATISTICS; i++) {
        double scale =
            i == 3 ? fmax(1.0, 2.0 * sqrt(largest_finite(wanted->statistics[i], n_rows))) : 1.0;
        agree_by_class(case_statistic_name(i), c, backend, seen->statistics[i],
                       wanted->statistics[i], n_rows, fmax(i < 5 ? 2e-5 : 1e-5, rounding) * scale);
    }
    for (int64_t i = 0; i < n_rows; i++) {
        if ((seen->argmax[i] < 0) != (wanted->argmax[i] < 0))
            fail_msg("argmax on %s, row %lld: %lld, scalar says %lld\n%s", backend, (long long)i,
                     (long long)seen->argmax[i], (long long)wanted->argmax[i], case_describe(c));
    }
    agree_by_class("segment_mass", c, backend, seen->segment_mass, wanted->segment_mass,
                   n_rows * c->problem.n_segments, fmax(1e-5, rounding));
    for (int i = 0; i < 2; i++)
        agree_by_class("received", c, backend, seen->received[i], wanted->received[i],
                       case_n_received(c),
                       fmax(1e-5, rounding) *
                           fmax(1.0, largest_finite(wanted->received[i], case_n_received(c))));
    if (strcmp(backend, "cuda") == 0)
        nothing_is_laundered("out", c, backend, seen->out, wanted->out, case_n_out(c));
    else
        agree_by_class("out", c, backend, seen->out, wanted->out, case_n_out(c),
                       fmax(1e-5, rounding) *
                           fmax(1.0, largest_finite(wanted->out, case_n_out(c))));
    nothing_is_laundered("dq", c, backend, seen->dq, wanted->dq, case_n_queries(c));
    nothing_is_laundered("dk", c, backend, seen->dk, wanted->dk, case_n_keys(c));
    nothing_is_laundered("dv", c, backend, seen->dv, wanted->dv, case_n_values(c));
    nothing_is_laundered("dgates", c, backend, seen->dgates, wanted->dgates, c->problem.n_heads);
    nothing_is_laundered("dsinks", c, backend, seen->dsinks, wanted->dsinks, c->problem.n_heads);
}

typedef void comparison(const attention_case *c, const char *backend, const attention_outputs *seen,
                        const attention_outputs *wanted);

/* A GPU is not among the names of back ends. */
static bool has_cuda(void)
{
    bool found = hl_backend_select("cuda") == HL_OK;

    assert_int_equal(hl_backend_select(NULL), HL_OK);
    return found;
}

/* Runs a case and frees it. */
static void run_case(attention_case *c, comparison *agrees)
{
    attention_outputs  wanted, seen;
    const char *const *backend = hl_backend_names();

    case_outputs_new(&wanted, c);
    case_run(&wanted, c, "scalar");
    for (backend++; *backend != NULL; backend++) {
        case_outputs_new(&seen, c);
        case_run(&seen, c, *backend);
        agrees(c, *backend, &seen, &wanted);
        case_outputs_free(&seen);
    }
    case_outputs_free(&wanted);
    case_free(c);
}

static void skip_without_vectors(void)
{
    if (hl_backend_names()[1] == NULL)
        skip();
}

static void back_ends_agree_on_small_problems(void **unused)
{
    attention_case c;

    (void)unused;
    skip_without_vectors();
    for (uint64_t seed = 1; seed <= n_cases; seed++) {
        case_draw(&c, seed, 40);
        run_case(&c, compare);
    }
}

static void back_ends_agree_on_ragged_problems(void **unused)
{
    attention_case c;

    (void)unused;
    skip_without_vectors();
    for (uint64_t seed = 1; seed <= n_cases / 8; seed++) {
        case_draw(&c, seed * 7919, 300);
        run_case(&c, compare);
    }
}

/* Long contexts with few rows: keys are split over threads and merged. */
static void back_ends_agree_on_long_decoding(void **unused)
{
    attention_case c;

    (void)unused;
    skip_without_vectors();
    for (uint64_t seed = 1; seed <= n_cases / 20; seed++) {
        case_draw_decode(&c, seed);
        run_case(&c, compare);
    }
}

/* Draws shapes of all three kinds, including few queries with many keys. */
static void draw_spoiled(attention_case *c, uint64_t seed)
{
    if (seed % 10 == 0)
        case_draw_decode(c, seed);
    else
        case_draw(c, seed * 31, seed % 4 == 0 ? 300 : 40);
    case_spoil(c);
}

static void back_ends_agree_on_what_is_not_finite(void **unused)
{
    attention_case c;

    (void)unused;
    skip_without_vectors();
    for (uint64_t seed = 1; seed <= n_cases; seed++) {
        draw_spoiled(&c, seed);
        run_case(&c, compare_spoiled);
    }
}

static void run_cuda(attention_case *c, comparison *agrees)
{
    attention_outputs wanted, seen;

    case_outputs_new(&wanted, c);
    case_outputs_new(&seen, c);
    case_run(&wanted, c, "scalar");
    case_run(&seen, c, "cuda");
    agrees(c, "cuda", &seen, &wanted);
    case_outputs_free(&seen);
    case_outputs_free(&wanted);
    case_free(c);
}

static void cuda_agrees_where_there_is_a_gpu(void **unused)
{
    attention_case c;

    (void)unused;
    if (!has_cuda())
        skip();
    for (uint64_t seed = 1; seed <= n_cases / 2; seed++) {
        case_draw(&c, seed, 40);
        run_cuda(&c, compare);
    }
    for (uint64_t seed = 1; seed <= n_cases / 20; seed++) {
        case_draw(&c, seed * 7919, 300);
        run_cuda(&c, compare);
        case_draw_decode(&c, seed);
        run_cuda(&c, compare);
    }
    for (uint64_t seed = 1; seed <= n_cases / 2; seed++) {
        draw_spoiled(&c, seed);
        run_cuda(&c, compare_spoiled);
    }
}

int main(void)
{
    const char *wanted = getenv("HEADLIGHT_TEST_CASES");
    if (wanted != NULL && atoi(wanted) > 0)
        n_cases = (uint64_t)atoi(wanted);

    const struct CMUnitTest tests[] = {
        cmocka_unit_test(back_ends_agree_on_small_problems),
        cmocka_unit_test(back_ends_agree_on_ragged_problems),
        cmocka_unit_test(back_ends_agree_on_long_decoding),
        cmocka_unit_test(back_ends_agree_on_what_is_not_finite),
        cmocka_unit_test(cuda_agrees_where_there_is_a_gpu),
    };
    return cmocka_run_group_tests_name("attention agreement", tests, NULL, NULL);
}
