/* test_attention.c - the operator's manners: bad arguments, masks, offsets,
 * threads, dtypes.  Its numbers are tested against the golden cases
 * (test_verify.c) and between back ends (test_attention_agreement.c). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "attention_cases.h"
#include "base/dtype.h"

enum { S = 24, D = 16, H = 2 };

static float q[H * S * D], k[H * S * D], v[H * S * D], out[H * S * D], grad[H * S * D];
static float lse[H * S], entropy[H * S];

static void fill(float *values, size_t count, uint32_t state)
{
    for (size_t i = 0; i < count; i++) {
        state     = state * 1664525u + 1013904223u;
        values[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
    }
}

static hl_attention plain_problem(void)
{
    fill(q, H * S * D, 1);
    fill(k, H * S * D, 2);
    fill(v, H * S * D, 3);
    fill(grad, H * S * D, 4);
    return (hl_attention){
        .n_batch    = 1,
        .n_heads    = H,
        .n_kv_heads = H,
        .n_queries  = S,
        .n_keys     = S,
        .d_head     = D,
        .d_value    = D,
        .q          = { .data = q },
        .k          = { .data = k },
        .v          = { .data = v },
        .flags      = HL_ATTENTION_CAUSAL,
    };
}

static hl_attention_result plain_result(void)
{
    return (hl_attention_result){ .out = { .data = out }, .lse = lse, .entropy = entropy };
}

/* --------------------------------------------------------------- bad arguments */

/* The call must fail with a message that names the argument. */
static void refused(hl_status wanted, const char *name, hl_attention_result result,
                    hl_attention problem)
{
    hl_status status = hl_attention_forward(&result, &problem);
    if (status != wanted || strstr(hl_error_message(), name) == NULL)
        fail_msg("%s: status \"%s\", message \"%s\"", name, hl_status_name(status),
                 status == HL_OK ? "" : hl_error_message());
}

#define REFUSED_SIZE(field, value)                                                                 \
    do {                                                                                           \
        hl_attention p = plain_problem();                                                          \
        p.field        = (value);                                                                  \
        refused(HL_BAD_ARGUMENT, #field, plain_result(), p);                                       \
    } while (0)

static void impossible_sizes_are_refused_by_name(void **unused)
{
    (void)unused;
    REFUSED_SIZE(n_batch, -1);
    REFUSED_SIZE(n_heads, 0);
    REFUSED_SIZE(n_heads, -4);
    REFUSED_SIZE(n_kv_heads, 0);
    REFUSED_SIZE(n_kv_heads, 3);
    REFUSED_SIZE(n_queries, -1);
    REFUSED_SIZE(n_queries, INT64_MAX);
    REFUSED_SIZE(n_keys, -1);
    REFUSED_SIZE(n_keys, INT64_MAX);
    REFUSED_SIZE(d_head, 0);
    REFUSED_SIZE(d_head, HL_MAX_HEAD_DIM + 1);
    REFUSED_SIZE(d_value, -1);
    REFUSED_SIZE(d_value, HL_MAX_HEAD_DIM + 1);
    REFUSED_SIZE(n_threads, -1);
    REFUSED_SIZE(n_segments, HL_MAX_SEGMENTS + 1);
    REFUSED_SIZE(softcap, -1.0);
    REFUSED_SIZE(softcap, (double)NAN);
    REFUSED_SIZE(scale, (double)INFINITY);

    hl_attention p = plain_problem();
    p.n_heads      = 3;
    refused(HL_BAD_ARGUMENT, "n_heads", plain_result(), p);
    p         = plain_problem();
    p.n_batch = p.n_heads = p.n_kv_heads = (int64_t)1 << 30;
    refused(HL_LIMIT, "n_batch", plain_result(), p);
}

static void impossible_rows_are_refused_by_name(void **unused)
{
    hl_attention p = plain_problem();

    (void)unused;
    p.q.data = NULL;
    refused(HL_BAD_ARGUMENT, "q.data", plain_result(), p);
    p        = plain_problem();
    p.k.data = NULL;
    refused(HL_BAD_ARGUMENT, "k.data", plain_result(), p);
    p         = plain_problem();
    p.v.dtype = HL_DTYPE_I32;
    refused(HL_BAD_ARGUMENT, "v.dtype", plain_result(), p);
    p        = plain_problem();
    p.q.data = (char *)q + 1;
    refused(HL_BAD_ARGUMENT, "q.data", plain_result(), p);
    p              = plain_problem();
    p.k.row_stride = -D;
    refused(HL_BAD_ARGUMENT, "k has strides", plain_result(), p);
    p              = plain_problem();
    p.k.row_stride = INT64_MAX / 2;
    refused(HL_LIMIT, "k spans", plain_result(), p);

    hl_attention_result r = plain_result();
    r.out.row_stride      = 1; /* rows that overlap each other */
    refused(HL_BAD_ARGUMENT, "out has strides", r, plain_problem());
    assert_int_equal(hl_attention_forward(NULL, &p), HL_BAD_ARGUMENT);
    assert_int_equal(hl_attention_forward(&r, NULL), HL_BAD_ARGUMENT);
}

static void overlapping_memory_is_refused_by_name(void **unused)
{
    hl_attention_result r = plain_result();

    (void)unused;
    r.out.data = q + 3;
    refused(HL_BAD_ARGUMENT, "out overlaps q", r, plain_problem());
    r         = plain_result();
    r.entropy = v + H * S * D - H * S;
    refused(HL_BAD_ARGUMENT, "entropy overlaps v", r, plain_problem());
    r        = plain_result();
    r.renyi2 = entropy;
    refused(HL_BAD_ARGUMENT, "renyi2 overlaps entropy", r, plain_problem());

    hl_attention          p = plain_problem();
    hl_attention_upstream u = { .grad_out = { .data = grad }, .out = { .data = out }, .lse = lse };
    hl_attention_gradient g = { .dq = { .data = grad } };
    assert_int_equal(hl_attention_backward(&g, &p, &u), HL_BAD_ARGUMENT);
    assert_non_null(strstr(hl_error_message(), "dq overlaps grad_out"));
}

static void impossible_masks_are_refused_by_name(void **unused)
{
    int64_t      bad[1]      = { S + 1 };
    uint8_t      segments[S] = { 0 };
    hl_attention p           = plain_problem();

    (void)unused;
    p.key_length = bad;
    refused(HL_BAD_ARGUMENT, "key_length", plain_result(), p);
    bad[0] = -1;
    refused(HL_BAD_ARGUMENT, "key_length", plain_result(), p);
    bad[0]        = INT64_MIN;
    p             = plain_problem();
    p.query_start = bad;
    refused(HL_BAD_ARGUMENT, "query_start", plain_result(), p);
    p             = plain_problem();
    p.flags       = HL_ATTENTION_WINDOW_LEFT;
    p.window_left = -1;
    refused(HL_BAD_ARGUMENT, "window_left", plain_result(), p);
    p.window_left = 3;
    p.window_sink = -1;
    refused(HL_BAD_ARGUMENT, "window_sink", plain_result(), p);

    float               mass[H * S * 2];
    hl_attention_result r = plain_result();
    r.segment_mass        = mass;
    p                     = plain_problem();
    p.n_segments          = 2;
    refused(HL_BAD_ARGUMENT, "segments", r, p);
    segments[S - 1] = 2;
    p.segments      = segments;
    refused(HL_BAD_ARGUMENT, "segments[23]", r, p);
}

static void backward_needs_what_forward_said(void **unused)
{
    hl_attention          p = plain_problem();
    hl_attention_gradient g = { 0 };
    hl_attention_upstream u = { .grad_out = { .data = grad }, .out = { .data = out } };

    (void)unused;
    assert_int_equal(hl_attention_backward(&g, &p, &u), HL_BAD_ARGUMENT);
    assert_non_null(strstr(hl_error_message(), "lse"));
    u.lse          = lse;
    u.grad_entropy = entropy;
    assert_int_equal(hl_attention_backward(&g, &p, &u), HL_BAD_ARGUMENT);
    assert_non_null(strstr(hl_error_message(), "entropy is NULL"));
    u = (hl_attention_upstream){ .grad_out = { .data = grad }, .lse = lse };
    assert_int_equal(hl_attention_backward(&g, &p, &u), HL_BAD_ARGUMENT);
    assert_non_null(strstr(hl_error_message(), "out.data"));
}

/* --------------------------------------------------------------------- numbers */

static void on_every_back_end(void (*test)(const char *backend))
{
    for (const char *const *name = hl_backend_names(); *name != NULL; name++) {
        assert_int_equal(hl_backend_select(*name), HL_OK);
        test(*name);
    }
    assert_int_equal(hl_backend_select(NULL), HL_OK);
}

/* A constant on all scores must leave the entropies where they were. */
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

/* Every mask of a small problem: no NaN anywhere, and blind rows as defined. */
static void check_masks(const char *backend)
{
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
        .diagonal       = stat[4],
        .previous       = stat[5],
        .first          = stat[6],
        .argmax         = argmax,
    };

    p.key_length  = length;
    p.query_start = start;
    for (int mask = 0; mask < 8 * 5 * 7; mask++) {
        p.flags        = (uint32_t)(mask % 8);
        p.window_left  = mask / 8 % 5;
        p.window_right = mask / 8 % 5;
        length[0]      = mask / 40 * 4;
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

/* Row i of head 0 as plain code does it in float: whole row, two passes. */
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

/* Tolerance is earned: fused, our error must not be worse than a small multiple
 * of what the plain way makes at the same precision. */
static void check_earned(const char *backend)
{
    float               exact[H * S];
    double              ours = 0.0, plain = 0.0;
    hl_attention        p = plain_problem();
    hl_attention_result r = { .entropy = exact };

    assert_int_equal(hl_backend_select("scalar"), HL_OK); /* double inside */
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

/* A key hidden by an infinite bias is as good as absent. */
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

/* A number that is not one must show, not disappear, and must not hang. */
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

/* A row's bytes are its own: with many neighbours or few, they are the same. */
static void a_row_does_not_depend_on_its_neighbours(void **unused)
{
    enum { N = 17 }; /* more than a narrow head has on any back end, less than S */
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

/* What row i comes to, from the whole row in double. */
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
        /* Rows in other company, whose gaps lie elsewhere: the same bytes. */
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

/* f64 inputs take the scalar back end whatever was chosen, at full precision. */
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

/* Rows stored in 16 bits are the float rows, rounded as base/dtype.h says. */
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
            /* The scalar back end rounds once, from double: half a step is no error. */
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
        cmocka_unit_test(impossible_sizes_are_refused_by_name),
        cmocka_unit_test(impossible_rows_are_refused_by_name),
        cmocka_unit_test(overlapping_memory_is_refused_by_name),
        cmocka_unit_test(impossible_masks_are_refused_by_name),
        cmocka_unit_test(backward_needs_what_forward_said),
        cmocka_unit_test(a_bias_of_1000_leaves_entropy_alone),
        cmocka_unit_test(no_mask_gives_nan),
        cmocka_unit_test(the_error_is_that_of_the_plain_way),
        cmocka_unit_test(an_infinite_bias_hides_a_key),
        cmocka_unit_test(of_equal_keys_the_lowest_is_argmax),
        cmocka_unit_test(a_nan_key_spoils_the_rows_that_see_it),
        cmocka_unit_test(threads_do_not_change_the_forward_pass),
        cmocka_unit_test(the_same_call_gives_the_same_bytes),
        cmocka_unit_test(a_row_does_not_depend_on_its_neighbours),
        cmocka_unit_test(a_window_can_keep_the_first_keys),
        cmocka_unit_test(double_inputs_are_taken),
        cmocka_unit_test(half_outputs_are_rounded_floats),
        cmocka_unit_test(unknown_back_ends_are_refused),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
