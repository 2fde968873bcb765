#include "attention_cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/dtype.h"

/* ------------------------------------------------------------------- random */

static uint64_t state;

static uint64_t random_bits(void) /* splitmix64 */
{
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z          = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z          = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int64_t random_int(int64_t least, int64_t most)
{
    return least + (int64_t)(random_bits() % (uint64_t)(most - least + 1));
}

static bool chance(int percent)
{
    return random_int(0, 99) < percent;
}

static float random_float(float size) /* roughly normal */
{
    float sum = 0.0f;
    for (int i = 0; i < 4; i++)
        sum += (float)(random_bits() >> 40) / 16777216.0f - 0.5f;
    return sum * 1.7f * size;
}

/* ------------------------------------------------------------------ buffers */

static void *own(attention_case *c, size_t n_bytes)
{
    void *block = calloc(n_bytes > 0 ? n_bytes : 1, 1);
    assert_non_null(block);
    assert_true(c->n_owned < 32);
    return c->owned[c->n_owned++] = block;
}

static float *own_random(attention_case *c, int64_t count, float size)
{
    float *values = own(c, (size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++)
        values[i] = random_float(size);
    return values;
}

/* Stores the values as rows of a dtype, packed or with (row, head) swapped. */
static hl_rows own_rows(attention_case *c, const float *values, hl_dtype dtype, int64_t n_heads,
                        int64_t n_rows, int64_t width)
{
    int64_t n_batch = c->problem.n_batch;
    size_t  size    = hl_dtype_bits(dtype) / 8;
    int64_t gap     = chance(30) ? random_int(1, 9) : 0;
    hl_rows rows    = { .dtype = dtype };

    rows.row_stride   = chance(50) ? width + gap : n_heads * (width + gap);
    rows.head_stride  = rows.row_stride == width + gap ? n_rows * rows.row_stride : width + gap;
    rows.batch_stride = n_heads * n_rows * (width + gap);
    rows.data         = own(c, (size_t)(n_batch * rows.batch_stride + width) * size);
    for (int64_t i = 0; i < n_batch * n_heads * n_rows; i++) {
        int64_t at = i / n_rows / n_heads * rows.batch_stride +
                     i / n_rows % n_heads * rows.head_stride + i % n_rows * rows.row_stride;
        hl_dtype_from_f32((uint8_t *)rows.data + (size_t)at * size, dtype, values + i * width,
                          (size_t)width);
    }
    return rows;
}

/* -------------------------------------------------------------------- cases */

static int64_t random_size(int64_t largest)
{
    switch (random_int(0, 9)) {
    case 0:
        return random_int(0, 1);
    case 1:
        return random_int(2, 20);
    case 2:
        return largest;
    default:
        return random_int(1, largest);
    }
}

static int64_t random_width(void)
{
    static const int64_t usual[] = { 8, 16, 32, 64, 80, 96, 128, 256, 512, 576 };
    return chance(50) ? usual[random_int(0, 9)] : random_int(1, 100);
}

static void draw_sizes(hl_attention *p, int64_t largest)
{
    p->n_batch    = chance(5) ? 0 : random_int(1, 3);
    p->n_kv_heads = random_int(1, 3);
    p->n_heads    = p->n_kv_heads * random_int(1, 4);
    p->n_queries  = chance(25) ? 1 : random_size(largest);
    p->n_keys     = chance(50) ? p->n_queries : random_size(largest);
    p->d_head     = random_width();
    p->d_value    = chance(70) ? p->d_head : random_width();
    p->n_threads  = (int32_t)random_int(1, 3);
}

static void draw_mask(attention_case *c)
{
    hl_attention *p = &c->problem;

    if (chance(70))
        p->flags |= HL_ATTENTION_CAUSAL;
    if (chance(25)) {
        p->flags |= HL_ATTENTION_WINDOW_LEFT;
        p->window_left = random_int(0, 40);
        if (chance(20))
            p->flags |= HL_ATTENTION_WINDOW_BLOCKS;
        if (chance(50))
            p->window_sink = chance(50) ? random_int(1, 8) : random_int(1, 400);
    }
    if (chance(15)) {
        p->flags |= HL_ATTENTION_WINDOW_RIGHT;
        p->window_right = random_int(0, 40);
    }
    if (chance(40)) {
        int64_t *length = own(c, (size_t)p->n_batch * sizeof *length);
        for (int64_t b = 0; b < p->n_batch; b++)
            length[b] = random_int(0, p->n_keys);
        p->key_length = length;
    }
    if (chance(40)) {
        int64_t *start = own(c, (size_t)p->n_batch * sizeof *start);
        for (int64_t b = 0; b < p->n_batch; b++)
            start[b] = random_int(-5, p->n_keys + 5);
        p->query_start = start;
    }
}

/* Draws biases, whose size adds to the bound on the scores. */
static void draw_biases(attention_case *c)
{
    hl_attention *p = &c->problem;

    if (chance(15)) {
        float *slopes = own_random(c, p->n_heads, 0.2f);
        for (int64_t h = 0; h < p->n_heads; h++)
            slopes[h] = fabsf(slopes[h]);
        p->alibi_slopes = slopes;
        c->max_score += 0.7f * (float)(p->n_keys + p->n_queries);
    }
    if (chance(15)) {
        float *bias = own_random(c, p->n_heads * p->n_keys, 2.0f);
        for (int64_t i = 0; i < p->n_heads * p->n_keys; i++)
            bias[i] = chance(10) ? -INFINITY : bias[i];
        p->key_bias = bias;
        c->max_score += 7.0f;
    }
    if (chance(15)) {
        int64_t n    = p->n_batch * p->n_queries * p->n_keys;
        float  *bias = own_random(c, n, 1.0f);

        for (int64_t i = 0; i < n; i++)
            bias[i] = chance(40) ? -INFINITY : bias[i];
        p->row_bias = bias;
        c->max_score += 4.0f;
    }
    if (chance(20))
        p->sinks = own_random(c, p->n_heads, 2.0f);
}

static void draw_options(attention_case *c)
{
    hl_attention *p = &c->problem;

    if (chance(30)) {
        p->flags |= HL_ATTENTION_SCALE;
        p->scale = chance(10) ? 0.0 : (double)random_float(0.3f);
    }
    if (chance(20))
        p->softcap = (double)random_int(2, 50);
    if (chance(30)) {
        float *gates = own_random(c, p->n_heads, 1.0f);
        for (int64_t h = 0; h < p->n_heads; h++)
            gates[h] = chance(30) ? 0.0f : gates[h];
        p->gates = gates;
    }
    if (chance(40)) {
        uint8_t *segments = own(c, (size_t)(p->n_batch * p->n_keys));
        p->n_segments     = random_int(1, HL_MAX_SEGMENTS);
        p->segment_stride = p->n_keys;
        for (int64_t i = 0; i < p->n_batch * p->n_keys; i++)
            segments[i] = (uint8_t)random_int(0, p->n_segments - 1);
        p->segments = segments;
    }
}

/* Returns a bound on the scores: random dot products stay far below d * 3 sizes. */
static float score_bound(const attention_case *c)
{
    double size = 0.0;
    double most = 0.0;

    for (int64_t i = 0; i < case_n_queries(c); i++)
        size = fmax(size, fabs((double)c->q[i]));
    for (int64_t i = 0; i < case_n_keys(c); i++)
        most = fmax(most, fabs((double)c->k[i]));
    double scale = (c->problem.flags & HL_ATTENTION_SCALE) != 0
                       ? fabs(c->problem.scale)
                       : 1.0 / sqrt((double)c->problem.d_head);
    return (float)(size * most * scale * sqrt((double)c->problem.d_head) * 2.0);
}

/* Draws everything except the sizes, which the problem already has. */
static void draw_rest(attention_case *c)
{
    static const hl_dtype dtypes[] = { HL_DTYPE_F32, HL_DTYPE_F32, HL_DTYPE_F16, HL_DTYPE_BF16 };
    hl_attention         *p        = &c->problem;
    float                 size     = chance(20) ? 4.0f : 1.0f; /* sharp rows now and then */

    c->q = own_random(c, case_n_queries(c), size);
    c->k = own_random(c, case_n_keys(c), 1.0f);
    c->v = own_random(c, case_n_values(c), 1.0f);
    draw_options(c);
    c->max_score = score_bound(c);
    draw_mask(c);
    draw_biases(c);
    hl_dtype dtype  = dtypes[random_int(0, 3)];
    p->q            = own_rows(c, c->q, dtype, p->n_heads, p->n_queries, p->d_head);
    p->k            = own_rows(c, c->k, dtype, p->n_kv_heads, p->n_keys, p->d_head);
    p->v            = own_rows(c, c->v, dtype, p->n_kv_heads, p->n_keys, p->d_value);
    c->grad_out     = own_random(c, case_n_out(c), 1.0f);
    c->grad_entropy = chance(70) ? own_random(c, case_n_rows(c), 1.0f) : NULL;
    c->grad_lse     = chance(70) ? own_random(c, case_n_rows(c), 1.0f) : NULL;
}

void case_draw(attention_case *c, uint64_t seed, int64_t largest)
{
    memset(c, 0, sizeof *c);
    state = seed;
    draw_sizes(&c->problem, largest);
    draw_rest(c);
}

void case_draw_decode(attention_case *c, uint64_t seed)
{
    memset(c, 0, sizeof *c);
    state = seed;
    draw_sizes(&c->problem, 1);
    c->problem.n_queries = random_int(1, 2);
    c->problem.n_keys    = random_int(1500, 5000);
    c->problem.d_head    = random_int(1, 40);
    c->problem.d_value   = random_int(1, 40);
    draw_rest(c);
}

/* Spoils one element of (n_batch, n_heads, n_rows, width). */
static void spoil_rows(const hl_rows *rows, int64_t n_batch, int64_t n_heads, int64_t n_rows,
                       int64_t width, float value)
{
    size_t  size = hl_dtype_bits(rows->dtype) / 8;
    int64_t at   = 0;

    if (n_batch * n_heads * n_rows == 0)
        return;
    at += random_int(0, n_batch - 1) * rows->batch_stride;
    at += random_int(0, n_heads - 1) * rows->head_stride;
    at += random_int(0, n_rows - 1) * rows->row_stride;
    at += random_int(0, width - 1);
    hl_dtype_from_f32((uint8_t *)rows->data + (size_t)at * size, rows->dtype, &value, 1);
}

void case_spoil(attention_case *c)
{
    hl_attention *p        = &c->problem;
    const float   values[] = { NAN, NAN, INFINITY, -INFINITY };

    for (int64_t n = random_int(1, 3); n > 0; n--) {
        float value = values[random_int(0, 3)];
        switch (random_int(0, 4)) {
        case 0:
        case 1:
            spoil_rows(&p->q, p->n_batch, p->n_heads, p->n_queries, p->d_head, value);
            break;
        case 2:
            spoil_rows(&p->k, p->n_batch, p->n_kv_heads, p->n_keys, p->d_head, value);
            break;
        case 3:
            spoil_rows(&p->v, p->n_batch, p->n_kv_heads, p->n_keys, p->d_value, value);
            break;
        default:
            if (p->key_bias == NULL)
                p->key_bias = own_random(c, p->n_heads * p->n_keys, 1.0f);
            if (p->n_keys > 0) /* the array is ours; problems only read it */
                ((float *)(uintptr_t)p->key_bias)[random_int(0, p->n_heads * p->n_keys - 1)] =
                    value;
        }
    }
}

void case_free(attention_case *c)
{
    for (int i = 0; i < c->n_owned; i++)
        free(c->owned[i]);
    memset(c, 0, sizeof *c);
}

const char *case_describe(const attention_case *c)
{
    static char         text[320];
    const hl_attention *p = &c->problem;

    snprintf(text, sizeof text,
             "B=%lld Hq=%lld Hkv=%lld Sq=%lld Sk=%lld D=%lld Dv=%lld %s flags=%u wl=%lld wr=%lld "
             "ws=%lld "
             "cap=%g%s%s%s%s%s%s segments=%lld threads=%d",
             (long long)p->n_batch, (long long)p->n_heads, (long long)p->n_kv_heads,
             (long long)p->n_queries, (long long)p->n_keys, (long long)p->d_head,
             (long long)p->d_value, hl_dtype_name(p->q.dtype), p->flags, (long long)p->window_left,
             (long long)p->window_right, (long long)p->window_sink, p->softcap,
             p->key_length != NULL ? " length" : "", p->query_start != NULL ? " start" : "",
             p->alibi_slopes != NULL ? " alibi" : "", p->key_bias != NULL ? " bias" : "",
             p->sinks != NULL ? " sinks" : "", p->gates != NULL ? " gates" : "",
             (long long)p->n_segments, p->n_threads);
    return text;
}

/* ------------------------------------------------------------------ outputs */

int64_t case_n_rows(const attention_case *c)
{
    return c->problem.n_batch * c->problem.n_heads * c->problem.n_queries;
}

int64_t case_n_queries(const attention_case *c)
{
    return case_n_rows(c) * c->problem.d_head;
}

int64_t case_n_keys(const attention_case *c)
{
    return c->problem.n_batch * c->problem.n_kv_heads * c->problem.n_keys * c->problem.d_head;
}

int64_t case_n_values(const attention_case *c)
{
    return c->problem.n_batch * c->problem.n_kv_heads * c->problem.n_keys * c->problem.d_value;
}

int64_t case_n_out(const attention_case *c)
{
    return case_n_rows(c) * c->problem.d_value;
}

int64_t case_n_received(const attention_case *c)
{
    return c->problem.n_batch * c->problem.n_heads * c->problem.n_keys;
}

const char *case_statistic_name(int index)
{
    static const char *const names[CASE_STATISTICS] = {
        "lse",  "entropy", "renyi2",   "varentropy", "entropy_nosink",
        "peak", "self",    "previous", "first",      "max_logit",
    };
    return names[index];
}

/* Allocates values that no result has, so that elements which are not written are noticed. */
static float *poisoned(int64_t count)
{
    float *values = malloc((size_t)(count + 1) * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++)
        values[i] = 12345.0f;
    return values;
}

void case_outputs_new(attention_outputs *o, const attention_case *c)
{
    int64_t n_rows = case_n_rows(c);

    memset(o, 0, sizeof *o);
    o->out = poisoned(case_n_out(c));
    for (int i = 0; i < CASE_STATISTICS; i++)
        o->statistics[i] = poisoned(n_rows);
    o->argmax = calloc((size_t)n_rows + 1, sizeof *o->argmax);
    assert_non_null(o->argmax);
    o->segment_mass = poisoned(n_rows * c->problem.n_segments);
    for (int i = 0; i < 2; i++)
        o->received[i] = poisoned(case_n_received(c));
    o->dq     = poisoned(case_n_queries(c));
    o->dk     = poisoned(case_n_keys(c));
    o->dv     = poisoned(case_n_values(c));
    o->dgates = poisoned(c->problem.n_heads);
    o->dsinks = poisoned(c->problem.n_heads);
}

void case_outputs_free(attention_outputs *o)
{
    free(o->out);
    for (int i = 0; i < CASE_STATISTICS; i++)
        free(o->statistics[i]);
    free(o->argmax);
    free(o->segment_mass);
    free(o->received[0]);
    free(o->received[1]);
    free(o->dq);
    free(o->dk);
    free(o->dv);
    free(o->dgates);
    free(o->dsinks);
    memset(o, 0, sizeof *o);
}

static void succeed(hl_status status, const attention_case *c)
{
    if (status != HL_OK)
        fail_msg("%s: %s", case_describe(c), hl_error_message());
}

void case_run(attention_outputs *o, const attention_case *c, const char *backend)
{
    hl_attention_result result = {
        .out            = { .data = o->out },
        .lse            = o->statistics[0],
        .entropy        = o->statistics[1],
        .renyi2         = o->statistics[2],
        .varentropy     = o->statistics[3],
        .entropy_nosink = o->statistics[4],
        .peak           = o->statistics[5],
        .self           = o->statistics[6],
        .previous       = o->statistics[7],
        .first          = o->statistics[8],
        .max_logit      = o->statistics[9],
        .argmax         = o->argmax,
        .segment_mass   = c->problem.n_segments > 0 ? o->segment_mass : NULL,
    };
    hl_attention_upstream upstream = {
        .grad_out     = { .data = c->grad_out },
        .grad_entropy = c->grad_entropy,
        .grad_lse     = c->grad_lse,
        .out          = { .data = o->out },
        .lse          = o->statistics[0],
        .entropy      = o->statistics[1],
    };
    hl_attention_gradient gradient = {
        .dq     = { .data = o->dq },
        .dk     = { .data = o->dk },
        .dv     = { .data = o->dv },
        .dgates = o->dgates,
        .dsinks = o->dsinks,
    };

    succeed(hl_backend_select(backend), c);
    succeed(hl_attention_forward(&result, &c->problem), c);
    succeed(hl_attention_backward(&gradient, &c->problem, &upstream), c);

    hl_attention without_values = c->problem;
    without_values.v.data       = NULL;
    succeed(hl_attention_received(o->received[0], &without_values, o->statistics[0], 0), c);
    succeed(hl_attention_received(o->received[1], &without_values, o->statistics[0],
                                  c->problem.n_queries / 3),
            c);
}
