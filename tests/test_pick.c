/* test_pick.c - draws from logits on a device against hl_sampler_draw on the same rows: every rule,
 * the same tokens; statistics of rows; rows that do not fit; rows with NaN.  On the device "host",
 * and on the GPU if there is one. */
#include "support.h"

#include <math.h>

#include "kernels/device.h"
#include "kernels/logits.h"
#include "model/sample.h"

enum { N_LOGITS = 4, MAX_V = 32007, N_DRAWS = 20, MAX_PICKS = 256 };

static const hl_sample_options rules[] = {
    { .temperature = 0.0 },
    { .temperature = 0.0, .repeat_penalty = 1.7 },
    { .temperature = 1.0, .seed = 3 },
    { .temperature = 0.7, .seed = 4 },
    { .temperature = 2.0, .repeat_penalty = 1.3, .repeat_last = 5, .seed = 5 },
    { .temperature = 1.0, .top_k = 1 },
    { .temperature = 0.8, .top_k = 40, .seed = 6 },
    { .temperature = 1.5, .top_k = 40, .top_p = 0.7, .seed = 7 },
    { .temperature = 1.0, .top_p = 0.5, .seed = 8 },
    { .temperature = 0.3, .top_p = 0.9, .min_p = 0.01, .seed = 9 },
    { .temperature = 1.0, .min_p = 0.05, .seed = 10 },
    { .temperature = 1.2, .top_k = 100, .top_p = 0.95, .min_p = 0.02, .seed = 11 },
    { .temperature = 0.9, .top_p = 0.8, .repeat_penalty = 1.1, .seed = 12 },
    { .temperature = 0.9, .top_k = 30, .repeat_penalty = 0.6, .repeat_last = 3, .seed = 13 },
    { .temperature = 1.0, .min_p = 0.2, .repeat_penalty = 1.4, .seed = 14 },
    { .temperature = 1e-3, .top_p = 0.99, .seed = 15 },
};
enum { N_RULES = sizeof rules / sizeof *rules };

/* --------------------------------------------------------------------- devices */

/* Memory on a device for all picks, and on the host for the results. */
typedef struct bench {
    const hl_device_ops *ops;
    hl_device           *device;
    hl_device_pick       pick;
    uint32_t            *repeated; /* zeroed memory of the host */
    hl_pick_result       results[MAX_PICKS];
    hl_pick_candidate    candidates[MAX_PICKS * HL_PICK_CANDIDATES];
} bench;

static void *take(const bench *b, size_t n_bytes)
{
    void *block = NULL;

    assert_int_equal(b->ops->alloc(b->device, &block, n_bytes), HL_OK);
    return block;
}

static bench *open_bench(const char *name)
{
    static const hl_linear_pool pool = { .n_threads = 2 };
    bench                      *b    = calloc(1, sizeof *b);

    if (hl_device_find(&b->ops, name) != HL_OK || b->ops->open(&b->device, &pool) != HL_OK) {
        free(b);
        return NULL;
    }
    b->repeated        = calloc(MAX_PICKS, (MAX_V + 31) / 32 * 4);
    b->pick.out        = take(b, sizeof b->results);
    b->pick.candidates = take(b, sizeof b->candidates);
    b->pick.logits     = take(b, sizeof(float) * N_LOGITS * MAX_V);
    b->pick.rules      = take(b, sizeof(hl_pick_rule) * MAX_PICKS);
    b->pick.repeated   = take(b, (size_t)MAX_PICKS * (MAX_V + 31) / 32 * 4);
    b->pick.work       = take(b, (size_t)MAX_PICKS * HL_PICK_WORK_BYTES);
    return b;
}

static void close_bench(bench *b)
{
    const void *blocks[] = { b->pick.out,   b->pick.candidates, b->pick.logits,
                             b->pick.rules, b->pick.repeated,   b->pick.work };

    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        b->ops->free(b->device, (void *)blocks[i]);
    b->ops->close(b->device);
    free(b->repeated);
    free(b);
}

static void check(const bench *b, hl_status status)
{
    if (status != HL_OK)
        fail_msg("%s: %s", b->ops->name, b->ops->error());
}

static void put_logits(bench *b, const float *logits, int64_t n)
{
    b->pick.n = n;
    check(b, b->ops->copy_in(b->device, (void *)b->pick.logits, logits,
                             (size_t)(N_LOGITS * n) * sizeof *logits));
    check(b, b->ops->wait(b->device));
}

static void run_picks(bench *b, const hl_pick_rule *wanted, int64_t n_picks)
{
    size_t words = (size_t)(b->pick.n + 31) / 32;

    b->pick.n_rows = n_picks;
    check(b, b->ops->copy_in(b->device, (void *)b->pick.rules, wanted,
                             (size_t)n_picks * sizeof *wanted));
    check(b, b->ops->copy_in(b->device, (void *)b->pick.repeated, b->repeated,
                             (size_t)n_picks * words * sizeof(uint32_t)));
    check(b, b->ops->pick(b->device, &b->pick));
    check(b, b->ops->copy_out(b->device, 0, b->results, b->pick.out,
                              (size_t)n_picks * sizeof *b->results));
    check(b, b->ops->copy_out(b->device, 0, b->candidates, b->pick.candidates,
                              (size_t)n_picks * HL_PICK_CANDIDATES * sizeof *b->candidates));
    check(b, b->ops->arrived(b->device, 0));
}

/* -------------------------------------------------------------------- the rows */

/* Fills rows with few levels and many ties, a smooth row, a certain one, and one in which most
 * tokens are impossible. */
static void fill_logits(float *logits, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float u = (float)hl_random_unit(1, (uint64_t)i);
        float v = (float)hl_random_unit(2, (uint64_t)i);

        logits[i]         = floorf(u * 24.0f) / 2.0f;
        logits[n + i]     = 3.0f * sqrtf(-2.0f * logf(u + 1e-7f)) * cosf(6.2831853f * v);
        logits[2 * n + i] = i == n / 3 ? 9.0f : -6.0f - v;
        logits[3 * n + i] = i % 7 == 3 || i == 0 ? 4.0f * u - 2.0f : -INFINITY;
    }
}

static void expect_said(const hl_pick_result *said, const float *logits, int64_t n)
{
    hl_logits_row row = hl_logits_read(logits, n);

    assert_int_equal(said->is_bad, 0);
    assert_true(fabs(said->lse - row.lse) <= 1e-11 * (1.0 + fabs(row.lse)));
    assert_true(fabs(said->entropy - row.entropy) <= 1e-11 * (1.0 + row.entropy));
    assert_true(fabs(said->varentropy - row.varentropy) <= 1e-10 * (1.0 + row.varentropy));
}

/* --------------------------------------------------------------------- equal draws */

/* Rule i with two samplers: one draws from whole rows, the other with the device's results. */
typedef struct pair {
    hl_sampler *plain[N_RULES];
    hl_sampler *picked[N_RULES];
    int         n_too_many;
} pair;

static void open_pair(pair *p, int64_t n)
{
    *p = (pair){ 0 };
    for (int i = 0; i < N_RULES; i++) {
        assert_ok(hl_sampler_new(&p->plain[i], n, &rules[i]));
        assert_ok(hl_sampler_new(&p->picked[i], n, &rules[i]));
    }
}

static void close_pair(pair *p)
{
    for (int i = 0; i < N_RULES; i++) {
        hl_sampler_free(p->plain[i]);
        hl_sampler_free(p->picked[i]);
    }
}

static void draw_both(bench *b, pair *p, const float *logits, int rule)
{
    hl_pick_result *said  = &b->results[rule];
    int64_t         token = -1, picked = -1;
    float           logit = 0.0f;

    assert_ok(hl_sampler_draw(&token, p->plain[rule], logits));
    expect_said(said, logits, b->pick.n);
    if (said->n_candidates > HL_PICK_CANDIDATES) {
        p->n_too_many++;
        assert_ok(hl_sampler_draw(&picked, p->picked[rule], logits));
    } else {
        hl_sampler_draw_among(&picked, &logit, p->picked[rule], said,
                              b->candidates + rule * HL_PICK_CANDIDATES);
        assert_true(logit == logits[picked]);
    }
    if (picked != token)
        fail_msg("%s: rule %d of %lld tokens: %lld is drawn, %lld from the whole row", b->ops->name,
                 rule, (long long)b->pick.n, (long long)picked, (long long)token);
    assert_ok(hl_sampler_accept(p->plain[rule], token));
    assert_ok(hl_sampler_accept(p->picked[rule], token));
}

static int draw_many(bench *b, const float *logits, int64_t n)
{
    size_t       words = (size_t)(n + 31) / 32;
    hl_pick_rule wanted[N_RULES];
    pair         p;

    open_pair(&p, n);
    put_logits(b, logits, n);
    for (int draw = 0; draw < N_DRAWS; draw++) {
        for (int i = 0; i < N_RULES; i++) {
            const uint32_t *repeated = hl_sampler_repeated(p.picked[i]);

            wanted[i] = hl_sampler_rule(p.picked[i], (draw + i) % N_LOGITS);
            if (repeated != NULL)
                memcpy(b->repeated + (size_t)i * words, repeated, words * sizeof *repeated);
        }
        run_picks(b, wanted, N_RULES);
        for (int i = 0; i < N_RULES; i++)
            draw_both(b, &p, logits + wanted[i].row * n, i);
    }
    close_pair(&p);
    return p.n_too_many;
}

static void draws_are_those_from_whole_rows(bench *b)
{
    static const int64_t sizes[] = { 1, 5, 33, 700, MAX_V };
    float               *logits  = malloc(sizeof(float) * N_LOGITS * MAX_V);

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        fill_logits(logits, sizes[i]);
        int n_too_many = draw_many(b, logits, sizes[i]);
        /* For the largest size some ties are wider than what fits; most are not. */
        assert_in_range(n_too_many, sizes[i] == MAX_V ? 1 : 0,
                        sizes[i] == MAX_V ? N_DRAWS * N_RULES / 3 : 0);
    }
    free(logits);
}

/* ------------------------------------------------------------------- frequencies */

static void frequencies_are_probabilities(bench *b)
{
    enum { V = 40, CALLS = 80 };
    float        logits[N_LOGITS * V];
    hl_pick_rule wanted[MAX_PICKS];
    int          counts[V] = { 0 };

    fill_logits(logits, V);
    put_logits(b, logits, V);
    for (int call = 0; call < CALLS; call++) {
        for (int i = 0; i < MAX_PICKS; i++)
            wanted[i] = (hl_pick_rule){
                .row         = 1,
                .kind        = HL_PICK_ALL,
                .penalty     = 1.0f,
                .temperature = 2.0,
                .unit        = hl_random_unit(77, (uint64_t)(call * MAX_PICKS + i)),
            };
        run_picks(b, wanted, MAX_PICKS);
        for (int i = 0; i < MAX_PICKS; i++) {
            assert_in_range(b->results[i].token, 0, V - 1);
            counts[b->results[i].token]++;
        }
    }
    double total = 0.0, chi2 = 0.0, n = (double)CALLS * MAX_PICKS;
    for (int i = 0; i < V; i++)
        total += exp((double)logits[V + i] / 2.0);
    for (int i = 0; i < V; i++) {
        double expected = n * exp((double)logits[V + i] / 2.0) / total;
        chi2 += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    assert_true(chi2 < 39.0 + 5.0 * sqrt(2.0 * 39.0)); /* V - 1 degrees of freedom */
}

/* ----------------------------------------------------------------------- bad rows */

static void what_is_no_number_is_said(bench *b)
{
    enum { V = 1000 };
    float       *logits = malloc(sizeof(float) * N_LOGITS * V);
    hl_pick_rule wanted[N_LOGITS];

    fill_logits(logits, V);
    logits[999] = NAN;
    logits[V]   = INFINITY;
    for (int i = 0; i < V; i++)
        logits[2 * V + i] = -INFINITY;
    put_logits(b, logits, V);
    for (int i = 0; i < N_LOGITS; i++)
        wanted[i] = (hl_pick_rule){
            .row = i, .kind = HL_PICK_TOP_K, .penalty = 1.0f, .temperature = 1.0, .top_k = 3
        };
    run_picks(b, wanted, N_LOGITS);
    for (int i = 0; i < N_LOGITS; i++)
        assert_int_equal(b->results[i].is_bad, i < 3);
    free(logits);
}

/* ------------------------------------------------------------------------- main */

static void all_of(const char *name)
{
    bench *b = open_bench(name);

    if (b == NULL)
        skip();
    draws_are_those_from_whole_rows(b);
    frequencies_are_probabilities(b);
    what_is_no_number_is_said(b);
    close_bench(b);
}

static void on_the_host(void **state)
{
    (void)state;
    all_of("host");
}

static void on_the_gpu(void **state)
{
    (void)state;
    all_of("cuda");
}

/* Bins widen and never shrink. */
static void bins_rise(void **state)
{
    int last = 0;
    (void)state;

    assert_int_equal(hl_pick_bin(0.0f), 0);
    for (float below = 0x1p-12f; below < 1e4f; below *= 1.001f) {
        int bin = hl_pick_bin(below);

        assert_in_range(bin, last, last + 1);
        last = bin;
    }
    assert_int_equal(last, HL_PICK_BINS - 1);
    assert_int_equal(hl_pick_bin(INFINITY), HL_PICK_BINS - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_the_host),
        cmocka_unit_test(on_the_gpu),
        cmocka_unit_test(bins_rise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
