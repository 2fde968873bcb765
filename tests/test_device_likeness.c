/* test_device_likeness.c - the similarity of heads' outputs, sums of complete rows and divergences
 * of predictions, on the GPU and on the device "host", which defines them.  Skipped without a
 * GPU. */
#include "device_twins.h"

static void test_follow(void **state)
{
    enum { FOLLOWED = 5, WIDTH = 300 };
    const int64_t places[FOLLOWED] = { 0, 7, -1, 3, 1 };
    twin          kept             = twin_rows(HL_DTYPE_F32, FOLLOWED * WIDTH);
    twin x = twin_rows(HL_DTYPE_F32, FOLLOWED * WIDTH), index = twin_indices(places, FOLLOWED);
    twin influence = twin_of(NULL, FOLLOWED * sizeof(double));
    (void)state;

    EACH_SIDE(side)
    check_call(
        side, ops[side]->follow(devices[side], &(hl_device_follow){ .influence = influence.at[side],
                                                                    .kept      = kept.at[side],
                                                                    .x         = x.at[side],
                                                                    .index     = index.at[side],
                                                                    .n_rows    = FOLLOWED,
                                                                    .n         = WIDTH }));
    compare_doubles("influence of a block", &influence, 1e-6);
    compare_bytes("rows of the stream", &kept);
    twin_free(&kept);
    twin_free(&x);
    twin_free(&index);
    twin_free(&influence);
}

/* Gram matrices of random maps, (n_heads, d, d). */
static twin twin_gram(int64_t n_heads, int64_t d)
{
    enum { WIDTH = 40 };
    float *maps = malloc((size_t)(d * WIDTH) * sizeof *maps);
    float *gram = malloc((size_t)(n_heads * d * d) * sizeof *gram);

    for (int64_t head = 0; head < n_heads; head++) {
        for (int64_t i = 0; i < d * WIDTH; i++)
            maps[i] = random_value();
        for (int64_t i = 0; i < d * d; i++) {
            double sum = 0.0;
            for (int64_t k = 0; k < WIDTH; k++)
                sum += (double)maps[i / d * WIDTH + k] * (double)maps[i % d * WIDTH + k];
            gram[head * d * d + i] = (float)sum;
        }
    }
    twin t = twin_of(gram, (size_t)(n_heads * d * d) * sizeof *gram);
    free(maps);
    free(gram);
    return t;
}

/* One sequence has all rows, one some, one too few to compare; one head's z is not finite. */
static void outputs_case(int64_t n_heads, int64_t d, int64_t kernel_rows)
{
    enum { SEQUENCES = 4, SAMPLED = 32 };
    int64_t places[SEQUENCES * SAMPLED];
    int64_t n_kernel = kernel_rows * kernel_rows + kernel_rows + 1;
    float   none     = INFINITY;

    for (int i = 0; i < SEQUENCES * SAMPLED; i++)
        places[i] = i / SAMPLED == 1 ? (i % SAMPLED < 11 ? i : -1)
                                     : (i / SAMPLED == 2 ? (i % SAMPLED < 2 ? i : -1) : i);
    twin z    = twin_rows(HL_DTYPE_F32, SEQUENCES * SAMPLED * n_heads * d);
    twin gram = twin_gram(n_heads, d), index = twin_indices(places, SEQUENCES * SAMPLED);
    twin squares = twin_of(NULL, (size_t)(SEQUENCES * SAMPLED * n_heads) * sizeof(double));
    twin alike = twin_of(NULL, (size_t)(SEQUENCES * n_heads * (n_heads + 1) / 2) * sizeof(double));
    twin kernels = twin_of(NULL, (size_t)(SEQUENCES * n_heads * n_kernel) * sizeof(double));
    EACH_SIDE(side)
    {
        float *last = (float *)z.at[side] + ((SEQUENCES * SAMPLED - 1) * n_heads - 1) * d;
        check_call(side, ops[side]->copy_in(devices[side], last, &none, sizeof none));
        check_call(side, ops[side]->outputs(devices[side], 1,
                                            &(hl_device_outputs){ .squares     = squares.at[side],
                                                                  .alike       = alike.at[side],
                                                                  .kernels     = kernels.at[side],
                                                                  .z           = z.at[side],
                                                                  .gram        = gram.at[side],
                                                                  .index       = index.at[side],
                                                                  .n_batch     = SEQUENCES,
                                                                  .n_sampled   = SAMPLED,
                                                                  .n_heads     = n_heads,
                                                                  .d_head      = d,
                                                                  .kernel_rows = kernel_rows }));
        check_call(side, ops[side]->arrived(devices[side], 1));
    }
    compare_doubles("squares of outputs", &squares, 1e-6);
    compare_doubles("outputs of two heads", &alike, 1e-6);
    twin_free(&z);
    twin_free(&gram);
    twin_free(&index);
    twin_free(&squares);
    twin_free(&alike);
    twin_free(&kernels);
}

static void test_outputs(void **state)
{
    (void)state;
    outputs_case(3, 64, 16);
    outputs_case(1, 20, 32);
    outputs_case(5, 256, 16);
}

static void test_distances(void **state)
{
    enum { SEQUENCES = 2, HEADS = 5, PATTERNS = 3, KEYS = 77, PAIRS = HEADS * (HEADS - 1) / 2 };
    twin p   = twin_rows(HL_DTYPE_F32, SEQUENCES * HEADS * PATTERNS * KEYS);
    twin out = twin_of(NULL, SEQUENCES * PATTERNS * PAIRS * sizeof(double));
    (void)state;

    EACH_SIDE(side)
    {
        check_call(side, ops[side]->distances(devices[side], 1,
                                              &(hl_device_distances){ .out        = out.at[side],
                                                                      .p          = p.at[side],
                                                                      .n_batch    = SEQUENCES,
                                                                      .n_heads    = HEADS,
                                                                      .n_patterns = PATTERNS,
                                                                      .n_keys     = KEYS }));
        check_call(side, ops[side]->arrived(devices[side], 1));
    }
    compare_doubles("distances of heads", &out, 1e-6);
    twin_free(&p);
    twin_free(&out);
}

/* The third of four patterns sees its first keys and a window, and nothing between them. */
static void leave_gap(hl_visible_keys *keys, int64_t row, int64_t n_keys)
{
    if (row % 4 == 2) {
        keys->kept  = 3;
        keys->begin = n_keys / 2;
    }
}

/* Rows of attention (n, n_keys), sharper for higher numbers; the last row ends with NaN. */
static twin twin_weights(int64_t n, int64_t n_keys)
{
    float *p = malloc((size_t)(n * n_keys) * sizeof *p);

    for (int64_t row = 0; row < n; row++) {
        double          sum  = 0.0;
        hl_visible_keys keys = { 0, 0, n_keys };

        leave_gap(&keys, row, n_keys);
        for (int64_t key = 0; key < n_keys; key++) {
            float weight          = expf((float)(row % 9) * random_value());
            p[row * n_keys + key] = hl_visible_has(keys, key) ? weight : 0.0f;
            sum += (double)p[row * n_keys + key];
        }
        for (int64_t key = 0; key < n_keys; key++)
            p[row * n_keys + key] = (float)((double)p[row * n_keys + key] / sum);
    }
    p[n * n_keys - 1] = NAN;
    twin t            = twin_of(p, (size_t)(n * n_keys) * sizeof *p);
    free(p);
    return t;
}

static void compare_sums(const hl_pattern_sums *ours, const hl_pattern_sums *theirs)
{
    if (isnan(ours->total)) {
        assert_true(isnan(theirs->total));
        return;
    }
    assert_true(fabs(ours->total - theirs->total) <= 1e-12);
    assert_true(fabs(ours->squares - theirs->squares) <= 1e-12);
    assert_int_equal(ours->top, theirs->top);
    assert_memory_equal(&ours->peak, &theirs->peak, sizeof ours->peak);
    assert_memory_equal(&ours->first, &theirs->first, sizeof ours->first);
    assert_memory_equal(ours->near_by, theirs->near_by, sizeof ours->near_by);
    assert_memory_equal(ours->n_edges, theirs->n_edges, sizeof ours->n_edges);
    assert_memory_equal(ours->k90, theirs->k90, sizeof ours->k90);
}

/* Complete rows, windows, first keys before a window, and rows that are not sampled. */
static void pattern_sums_case(int64_t n_keys)
{
    enum { SEQUENCES = 3, HEADS = 5, PATTERNS = 4, ROWS = SEQUENCES * PATTERNS };
    hl_pattern_place places[ROWS] = { 0 };
    hl_pattern_sums  sums[N_SIDES][ROWS * HEADS];

    for (int row = 0; row < ROWS; row++) {
        places[row].position   = n_keys - 1 - row;
        places[row].keys.end   = row % 4 == 3 && row < ROWS - 1 ? 0 : n_keys - row % 4;
        places[row].keys.begin = row % 4 == 1 ? n_keys / 3 : 0;
        leave_gap(&places[row].keys, row, n_keys);
    }
    places[ROWS - 1].keys.end = n_keys;
    twin p                    = twin_weights(SEQUENCES * HEADS * PATTERNS, n_keys);
    twin at                   = twin_of(places, sizeof places);
    twin out                  = twin_of(NULL, sizeof sums[0]);
    EACH_SIDE(side)
    {
        check_call(side, ops[side]->pattern_sums(devices[side], 1,
                                                 &(hl_device_pattern_sums){ .out     = out.at[side],
                                                                            .p       = p.at[side],
                                                                            .places  = at.at[side],
                                                                            .n_batch = SEQUENCES,
                                                                            .n_heads = HEADS,
                                                                            .n_patterns = PATTERNS,
                                                                            .n_keys = n_keys }));
        check_call(side, ops[side]->copy_out(devices[side], 1, sums[side], out.at[side],
                                             sizeof sums[side]));
        check_call(side, ops[side]->arrived(devices[side], 1));
    }
    for (int i = 0; i < ROWS * HEADS; i++)
        compare_sums(&sums[HOST][i], &sums[CUDA][i]);
    twin_free(&p);
    twin_free(&at);
    twin_free(&out);
}

static void test_pattern_sums(void **state)
{
    (void)state;
    pattern_sums_case(17);
    pattern_sums_case(1024);
    pattern_sums_case(5000);
}

/* Kept rows, and rows that are compared with them. */
static void test_kept_logits(void **state)
{
    int64_t n_rows = 3, n = 32007;
    twin first = twin_rows(HL_DTYPE_F32, n_rows * n), second = twin_rows(HL_DTYPE_F32, n_rows * n);
    twin kept = twin_of(NULL, (size_t)(n_rows * n) * 4), lse = twin_of(NULL, 8 * 3);
    twin told[2] = { twin_of(NULL, 8 * 3), twin_of(NULL, 8 * 3) };
    (void)state;

    EACH_SIDE(side)
    {
        hl_device_logits l = {
            .logits     = first.at[side],
            .n_rows     = n_rows,
            .n          = n,
            .kept       = { .logits = kept.at[side], .lse = lse.at[side], .puts = true },
            .divergence = told[0].at[side]
        };
        check_call(side, ops[side]->logits(devices[side], &l));
        l.logits     = second.at[side];
        l.kept.puts  = false;
        l.divergence = told[1].at[side];
        check_call(side, ops[side]->logits(devices[side], &l));
    }
    compare_bytes("logits that are kept", &kept);
    compare_doubles("their lse", &lse, 1e-12);
    compare_bytes("divergence from themselves", &told[0]);
    compare_doubles("divergence from others", &told[1], 1e-9);
    twin *all[] = { &first, &second, &kept, &lse, &told[0], &told[1] };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        twin_free(all[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_follow),      cmocka_unit_test(test_outputs),
        cmocka_unit_test(test_distances),   cmocka_unit_test(test_pattern_sums),
        cmocka_unit_test(test_kept_logits),
    };

    if (!open_twins())
        return 0;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    close_twins();
    return failed;
}
