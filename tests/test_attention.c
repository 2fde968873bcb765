/* test_attention.c - masks, offsets, threads and dtypes of the operator.  Its numbers are tested
 * against golden cases (test_verify.c) and between back ends (test_attention_agreement.c). */
#include "attention_support.h"

#include "kernels/pattern.h"

#include "base/dtype.h"

/* --------------------------------------------------------------------- numbers */

static void on_every_back_end(void (*test)(const char *backend))
{
    for (const char *const *name = hl_backend_names(); *name != NULL; name++) {
        assert_int_equal(hl_backend_select(*name), HL_OK);
        test(*name);
    }
    assert_int_equal(hl_backend_select(NULL), HL_OK);
}

/* Adding a constant to all scores must not change the entropies. */
static void check_offset(const char *backend)
{
    float               bias[H * S], moved[H * S];
    hl_attention        p = plain_problem();
    hl_attention_result r = { .entropy = entropy };

    assert_int_equal(hl_attention_forward(&r, &p), HL_OK);
    for (int sign = -1; sign <= 1; sign += 2) {
        for (int i = 0; i < H * S; i++)
            bias[i] = 1000.0f * (float)sign;
        p.key_bias = bias;
        r.entropy  = moved;
        assert_int_equal(hl_attention_forward(&r, &p), HL_OK);
        for (int i = 0; i < H * S; i++)
            if (!(fabsf(moved[i] - entropy[i]) <= 1e-4f))
                fail_msg("%s, bias %g, row %d: %g, without bias %g", backend, (double)bias[i], i,
                         (double)moved[i], (double)entropy[i]);
    }
}

static void a_bias_of_1000_leaves_entropy_alone(void **unused)
{
    (void)unused;
    on_every_back_end(check_offset);
}

/* Every mask of a small problem: no NaN, and blind rows as defined. */
static void check_masks(const char *backend)
{
    static const float  sinks[H] = { 0.5f, -2.0f };
    float               stat[8][H * S];
    int64_t             argmax[H * S], length[1], start[1];
    hl_attention        p = plain_problem();
    hl_attention_result r = {
        .out            = { .data = out },
        .lse            = lse,
        .entropy        = entropy,
        .renyi2         = stat[0],
        .varentropy     = stat[1],
        .entropy_nosink = stat[2],
        .peak           = stat[3],
        .self           = stat[4],
        .previous       = stat[5],
        .first          = stat[6],
        .argmax         = argmax,
    };

    p.key_length  = length;
    p.query_start = start;
    for (int mask = 0; mask < 2 * 8 * 5 * 7; mask++) {
        p.sinks = mask >= 8 * 5 * 7 ? sinks : NULL; /* rows without a visible key stay blind with a
                                                     * sink */
        p.flags = (uint32_t)(mask % 8);
        p.window_left  = mask / 8 % 5;
        p.window_right = mask / 8 % 5;
        length[0]      = mask / 40 % 7 * 4;
        start[0]       = mask % 11 * 5 - 20;
        assert_int_equal(hl_attention_forward(&r, &p), HL_OK);
        for (int i = 0; i < H * S; i++) {
            bool  blind = argmax[i] < 0;
            float sum   = entropy[i];
            for (int j = 0; j < 7; j++)
                sum += stat[j][i];
            for (int d = 0; d < D; d++)
                sum += out[i * D + d] * (blind ? 1e9f : 1.0f);
            if (!isfinite(sum) || (blind && (sum != 0.0f || lse[i] != -INFINITY)) ||
                (!blind && !isfinite(lse[i])))
                fail_msg("%s, mask %d, row %d: sum %g, lse %g", backend, mask, i, (double)sum,
                         (double)lse[i]);
        }
    }
}

static void no_mask_gives_nan(void **unused)
{
    (void)unused;
    on_every_back_end(check_masks);
}

/* Single rows with every option that changes a score, against a plain computation. */
static void check_single_rows(const char *backend)
{
    static const float slopes[H] = { 0.25f, 0.0625f }, sinks[H] = { 0.3f, -1.0f };
    float              bias[H * S], row[S];
    double             scores[S];
    hl_attention       p = plain_problem();

    fill(bias, H * S, 5);
    p.scale        = 0.7;
    p.softcap      = 2.0;
    p.alibi_slopes = slopes;
    p.key_bias     = bias;
    p.sinks        = sinks;
    p.flags        = HL_ATTENTION_CAUSAL | HL_ATTENTION_WINDOW_LEFT;
    p.window_left  = 6;
    p.q = p.k = p.v = (hl_rows){
        .dtype = HL_DTYPE_F32, .batch_stride = H * S * D, .head_stride = S * D, .row_stride = D
    };
    p.q.data = q;
    p.k.data = k;
    p.v.data = v;
    for (int i = 0; i < H * S; i++) {
        int            head = i / S, query = i % S;
        double         sum = exp((double)sinks[head]), own = 0.0;
        hl_pattern_row statistics;

        assert_int_equal(hl_attention_pattern(row, scores, &statistics, &p, 0, head, query), HL_OK);
        for (int pass = 0; pass < 2; pass++) {
            for (int key = query > 6 ? query - 6 : 0; key <= query; key++) {
                double dot = 0.0;
                for (int d = 0; d < D; d++)
                    dot += (double)q[i * D + d] * (double)k[(head * S + key) * D + d];
                double score = 2.0 * tanh(0.7 * dot / 2.0) - (double)slopes[head] * (query - key) +
                               (double)bias[head * S + key];
                sum += pass == 0 ? exp(score) : 0.0;
                own = exp(score) / sum;
                if (pass == 1 && fabs((double)row[key] - own) > 1e-6)
                    fail_msg("%s: row %d, key %d: %g, wanted %g", backend, i, key, (double)row[key],
                             own);
            }
        }
        assert_true(fabs(statistics.lse - log(sum)) < 1e-9);
        assert_true(fabs(statistics.self - own) < 1e-9);
    }
}

static void single_rows_are_the_definition(void **unused)
{
    (void)unused;
    on_every_back_end(check_single_rows);
}

/* Computes row i of head 0 in float with plain code: the whole row, in two passes. */
static float plain_entropy(int i)
{
    float p[S], max = -INFINITY, sum = 0.0f, entropy_of_row = 0.0f;

    for (int j = 0; j <= i; j++) {
        p[j] = 0.0f;
        for (int d = 0; d < D; d++)
            p[j] += q[i * D + d] * k[j * D + d];
        p[j] *= 1.0f / sqrtf((float)D);
        max = fmaxf(max, p[j]);
    }
    for (int j = 0; j <= i; j++)
        sum += p[j] = expf(p[j] - max);
    for (int j = 0; j <= i; j++)
        entropy_of_row -= p[j] / sum * logf(p[j] / sum);
    return entropy_of_row;
}

/* The error of the fused computation must be at most a small multiple of that of the plain one in
 * the same precision. */
static void check_earned(const char *backend)
{
    float               exact[H * S];
    double              ours = 0.0, plain = 0.0;
    hl_attention        p = plain_problem();
    hl_attention_result r = { .entropy = exact };

    assert_int_equal(hl_backend_select("scalar"), HL_OK); /* computes in double */
    assert_int_equal(hl_attention_forward(&r, &p), HL_OK);
    assert_int_equal(hl_backend_select(backend), HL_OK);
    r.entropy = entropy;
    assert_int_equal(hl_attention_forward(&r, &p), HL_OK);
    for (int i = 0; i < S; i++) {
        ours  = fmax(ours, fabs((double)entropy[i] - (double)exact[i]));
        plain = fmax(plain, fabs((double)plain_entropy(i) - (double)exact[i]));
    }
    if (!(ours <= 3.0 * plain))
        fail_msg("%s: error %g, the plain way %g", backend, ours, plain);
}

static void the_error_is_that_of_the_plain_way(void **unused)
{
    (void)unused;
    on_every_back_end(check_earned);
}

/* A key with an infinite negative bias counts as absent. */
static void check_hidden(const char *backend)
{
    float               bias[H * S] = { 0 }, wanted[H * S];
    hl_attention        p           = plain_problem();
    hl_attention_result r           = plain_result();
    int64_t             length[1]   = { S - 5 };

    (void)backend;
    p.flags       = 0;
    p.key_length  = length;
    p.query_start = (const int64_t[]){ 0 };
    assert_int_equal(hl_attention_forward(&r, &p), HL_OK);
    memcpy(wanted, entropy, sizeof wanted);
    for (int i = 0; i < H * S; i++)
        bias[i] = i % S >= S - 5 ? -INFINITY : 0.0f;
    p.key_length = NULL;
    p.key_bias   = bias;
    assert_int_equal(hl_attention_forward(&r, &p), HL_OK);
    for (int i = 0; i < H * S; i++)
        assert_true(fabsf(entropy[i] - wanted[i]) < 1e-6f);
    for (int i = 0; i < H * S; i++)
        bias[i] = -INFINITY;
    assert_int_equal(hl_attention_forward(&r, &p), HL_OK);
    for (int i = 0; i < H * S; i++)
        assert_true(entropy[i] == 0.0f && lse[i] == -INFINITY && out[i * D] == 0.0f);
}

static void an_infinite_bias_hides_a_key(void **unused)
{
    (void)unused;
    on_every_back_end(check_hidden);
}

static void check_ties(const char *backend)
{
    int64_t             argmax[H * S];
    float               peak[H * S];
    hl_attention        p = plain_problem();
    hl_attention_result r = { .argmax = argmax, .peak = peak };

    memset(q, 0, sizeof q); /* all scores equal */
    assert_int_equal(hl_attention_forward(&r, &p), HL_OK);
    for (int i = 0; i < H * S; i++)
        if (argmax[i] != 0 || fabsf(peak[i] * (float)(i % S + 1) - 1.0f) > 1e-6f)
            fail_msg("%s, row %d: argmax %lld, peak %g", backend, i, (long long)argmax[i],
                     (double)peak[i]);
    p.flags |= HL_ATTENTION_WINDOW_LEFT;
    p.window_left = 7;
    assert_int_equal(hl_attention_forward(&r, &p), HL_OK);
    for (int i = 0; i < H * S; i++)
        assert_int_equal(argmax[i], i % S < 7 ? 0 : i % S - 7);
}

static void of_equal_keys_the_lowest_is_argmax(void **unused)
{
    (void)unused;
    on_every_back_end(check_ties);
}

/* NaN in an input must be visible in the result, and the call must not hang. */
static void check_nan(const char *backend)
{
    int64_t             argmax[H * S];
    hl_attention        p = plain_problem();
    hl_attention_result r = plain_result();

    k[5 * D + 3] = NAN;
    r.argmax     = argmax;
    assert_int_equal(hl_attention_forward(&r, &p), HL_OK);
    for (int i = 5; i < S; i++)
        if (isfinite(out[i * D]))
            fail_msg("%s: row %d sees a NaN key and says %g", backend, i, (double)out[i * D]);
    assert_true(isfinite(out[4 * D]));
}

static void a_nan_key_spoils_the_rows_that_see_it(void **unused)
{
    (void)unused;
    on_every_back_end(check_nan);
}

/* ------------------------------------------------------------ threads and bytes */

static void same_bytes(uint64_t seed, int64_t largest, bool forward_only)
{
    attention_case    c;
    attention_outputs one, many;

    case_draw(&c, seed, largest);
    case_outputs_new(&one, &c);
    case_outputs_new(&many, &c);
    c.problem.n_threads = 1;
    case_run(&one, &c, NULL);
    c.problem.n_threads = forward_only ? 5 : 1;
    case_run(&many, &c, NULL);
    size_t n_rows = (size_t)case_n_rows(&c);
    assert_int_equal(memcmp(one.out, many.out, (size_t)case_n_out(&c) * sizeof(float)), 0);
    for (int i = 0; i < CASE_STATISTICS; i++)
        assert_int_equal(memcmp(one.statistics[i], many.statistics[i], n_rows * sizeof(float)), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            memcmp(one.received[i], many.received[i], (size_t)case_n_received(&c) * sizeof(float)),
            0);
    if (!forward_only)
        assert_int_equal(memcmp(one.dk, many.dk, (size_t)case_n_keys(&c) * sizeof(float)), 0);
    case_outputs_free(&one);
    case_outputs_free(&many);
    case_free(&c);
}

static void threads_do_not_change_the_forward_pass(void **unused)
{
    (void)unused;
    for (uint64_t seed = 1; seed < 20; seed++)
        same_bytes(seed, 200, true);
}

static void the_same_call_gives_the_same_bytes(void **unused)
{
    (void)unused;
    for (uint64_t seed = 1; seed < 20; seed++)
        same_bytes(seed, 200, false);
}

/* A row's bytes do not depend on the number of its neighbors. */
static void a_row_does_not_depend_on_its_neighbors(void **unused)
{
    enum { N = 17 }; /* more rows than a narrow head has on any back end, less than S */
    float               some[N * D], some_entropy[N];
    hl_attention        p = plain_problem();
    hl_attention_result r = plain_result();

    (void)unused;
    assert_int_equal(hl_attention_forward(&r, &p), HL_OK);
    for (int64_t i = 0; i + N <= S; i++) {
        hl_attention        few  = plain_problem();
        hl_attention_result mine = { .out = { .data = some }, .entropy = some_entropy };
        few.n_heads = few.n_kv_heads = 1;
        few.n_queries                = N;
        few.q                        = (hl_rows){ .data = q + i * D };
        few.query_start              = &i;
        assert_int_equal(hl_attention_forward(&mine, &few), HL_OK);
        assert_int_equal(memcmp(some, out + i * D, sizeof some), 0);
        assert_int_equal(memcmp(some_entropy, entropy + i, sizeof some_entropy), 0);
    }
}

/* --------------------------------------------------- a window with first keys kept */

enum { LONG = 300, WIDE = 12 };

/* Results for row i, from the whole row in double. */
typedef struct whole_row {
    double lse;
    double entropy;
    double nosink;
    double first;
    double out[WIDE];
} whole_row;

static double entropy_of(const double *p, int n)
{
    double sum = 0.0, entropy_of_row = 0.0;

    for (int j = 0; j < n; j++)
        sum += p[j];
    for (int j = 0; j < n; j++)
        entropy_of_row -= p[j] > 0.0 ? p[j] / sum * log(p[j] / sum) : 0.0;
    return entropy_of_row;
}

static whole_row whole(const float *qs, const float *ks, const float *vs, int64_t i, int64_t left,
                       int64_t sink)
{
    whole_row r       = { 0 };
    double    p[LONG] = { 0 };
    double    sum     = 0.0;

    for (int64_t j = 0; j <= i; j++) {
        double score = 0.0;
        if (j < i - left && j >= sink)
            continue;
        for (int d = 0; d < WIDE; d++)
            score += (double)qs[i * WIDE + d] * (double)ks[j * WIDE + d];
        sum += p[j] = exp(score / sqrt((double)WIDE));
    }
    for (int64_t j = 0; j <= i; j++)
        for (int d = 0; d < WIDE; d++)
            r.out[d] += p[j] / sum * (double)vs[j * WIDE + d];
    r.lse     = log(sum);
    r.entropy = entropy_of(p, LONG);
    r.first   = p[0] / sum;
    p[0]      = 0.0;
    r.nosink  = i == 0 ? 0.0 : entropy_of(p, LONG);
    return r;
}

typedef struct long_rows {
    float q[LONG * WIDE], k[LONG * WIDE], v[LONG * WIDE], out[LONG * WIDE];
    float lse[LONG], entropy[LONG], nosink[LONG], first[LONG];
} long_rows;

static void run_long(long_rows *r, int64_t row, int64_t n_rows, int64_t left, int64_t sink)
{
    hl_attention p = {
        .n_batch     = 1,
        .n_heads     = 1,
        .n_kv_heads  = 1,
        .n_queries   = n_rows,
        .n_keys      = LONG,
        .d_head      = WIDE,
        .d_value     = WIDE,
        .q           = { .data = r->q + row * WIDE },
        .k           = { .data = r->k },
        .v           = { .data = r->v },
        .flags       = HL_ATTENTION_CAUSAL | HL_ATTENTION_WINDOW_LEFT,
        .window_left = left,
        .window_sink = sink,
        .query_start = &row,
    };
    hl_attention_result result = {
        .out            = { .data = r->out + row * WIDE },
        .lse            = r->lse + row,
        .entropy        = r->entropy + row,
        .entropy_nosink = r->nosink + row,
        .first          = r->first + row,
    };

    assert_int_equal(hl_attention_forward(&result, &p), HL_OK);
}

static void check_kept_keys(const char *backend)
{
    static const int64_t cases[][2] = { { 19, 1 },  { 19, 4 },   { 0, 1 },    { 150, 1 },
                                        { 5, 100 }, { 40, 250 }, { 300, 10 }, { 3, 400 } };
    static long_rows     all, part;

    fill(all.q, LONG * WIDE, 5);
    fill(all.k, LONG * WIDE, 6);
    fill(all.v, LONG * WIDE, 7);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        int64_t left = cases[c][0], sink = cases[c][1];
        run_long(&all, 0, LONG, left, sink);
        for (int64_t i = 0; i < LONG; i++) {
            whole_row want = whole(all.q, all.k, all.v, i, left, sink);
            double    off  = fabs(want.lse - (double)all.lse[i]);
            off            = fmax(off, fabs(want.entropy - (double)all.entropy[i]));
            off            = fmax(off, fabs(want.nosink - (double)all.nosink[i]));
            off            = fmax(off, fabs(want.first - (double)all.first[i]));
            for (int d = 0; d < WIDE; d++)
                off = fmax(off, fabs(want.out[d] - (double)all.out[i * WIDE + d]));
            if (!(off < 3e-6))
                fail_msg("%s, window %lld and %lld kept, row %lld: off by %g", backend,
                         (long long)left, (long long)sink, (long long)i, off);
        }
        /* Rows among other rows, with gaps at other places, have the same bytes. */
        part = all;
        for (int64_t row = 1; row + 23 <= LONG; row += 23)
            run_long(&part, row, 23, left, sink);
        assert_int_equal(memcmp(&part, &all, sizeof all), 0);
    }
}

static void a_window_can_keep_the_first_keys(void **unused)
{
    (void)unused;
    on_every_back_end(check_kept_keys);
}

/* ----------------------------------------------------------------------- dtypes */

/* f64 inputs use the scalar back end, whatever was chosen, at full precision. */
static void double_inputs_are_taken(void **unused)
{
    double              q64[H * S * D], k64[H * S * D], v64[H * S * D], out64[H * S * D];
    hl_attention        p = plain_problem();
    hl_attention_result r = plain_result();

    (void)unused;
    for (int i = 0; i < H * S * D; i++) {
        q64[i] = (double)q[i];
        k64[i] = (double)k[i];
        v64[i] = (double)v[i];
    }
    assert_int_equal(hl_attention_forward(&r, &p), HL_OK);
    p.q   = (hl_rows){ .data = q64, .dtype = HL_DTYPE_F64 };
    p.k   = (hl_rows){ .data = k64, .dtype = HL_DTYPE_F64 };
    p.v   = (hl_rows){ .data = v64, .dtype = HL_DTYPE_F64 };
    r.out = (hl_rows){ .data = out64, .dtype = HL_DTYPE_F64 };
    assert_int_equal(hl_attention_forward(&r, &p), HL_OK);
    for (int i = 0; i < H * S * D; i++)
        assert_true(fabs(out64[i] - (double)out[i]) < 1e-6);
    /* Row 0 sees one key: its output is that key's value, to the last bit. */
    for (int d = 0; d < D; d++)
        assert_true(out64[d] == v64[d]);
}

/* Rows stored in 16 bits are the rows in float, rounded as in base/dtype.h. */
static void check_halves(const char *backend)
{
    static const hl_dtype dtypes[] = { HL_DTYPE_F16, HL_DTYPE_BF16 };
    uint16_t              half[H * S * D], wanted[H * S * D];
    hl_attention          p = plain_problem();
    hl_attention_result   r = plain_result();

    assert_int_equal(hl_attention_forward(&r, &p), HL_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hl_dtype_from_f32(wanted, dtypes[i], out, H * S * D), HL_OK);
        r.out = (hl_rows){ .data = half, .dtype = dtypes[i] };
        assert_int_equal(hl_attention_forward(&r, &p), HL_OK);
        for (int j = 0; j < H * S * D; j++) {
            /* The scalar back end rounds once, from double, so an error of half a step is
             * allowed. */
            if (abs(half[j] - wanted[j]) > (strcmp(backend, "scalar") == 0 ? 1 : 0))
                fail_msg("%s, element %d: bits %x, wanted %x", backend, j, half[j], wanted[j]);
        }
    }
}

static void half_outputs_are_rounded_floats(void **unused)
{
    (void)unused;
    on_every_back_end(check_halves);
}

static void unknown_back_ends_are_refused(void **unused)
{
    const char *before = hl_backend_name();

    (void)unused;
    assert_int_equal(hl_backend_select("sse9"), HL_NOT_FOUND);
    assert_non_null(strstr(hl_error_message(), "sse9"));
    assert_non_null(strstr(hl_error_message(), "scalar"));
    assert_string_equal(hl_backend_name(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bias_of_1000_leaves_entropy_alone),
        cmocka_unit_test(no_mask_gives_nan),
        cmocka_unit_test(single_rows_are_the_definition),
        cmocka_unit_test(the_error_is_that_of_the_plain_way),
        cmocka_unit_test(an_infinite_bias_hides_a_key),
        cmocka_unit_test(of_equal_keys_the_lowest_is_argmax),
        cmocka_unit_test(a_nan_key_spoils_the_rows_that_see_it),
        cmocka_unit_test(threads_do_not_change_the_forward_pass),
        cmocka_unit_test(the_same_call_gives_the_same_bytes),
        cmocka_unit_test(a_row_does_not_depend_on_its_neighbors),
        cmocka_unit_test(a_window_can_keep_the_first_keys),
        cmocka_unit_test(double_inputs_are_taken),
        cmocka_unit_test(half_outputs_are_rounded_floats),
        cmocka_unit_test(unknown_back_ends_are_refused),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
