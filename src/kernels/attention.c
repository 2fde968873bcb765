/* attention.c - the public operator: checks, defaults, dispatch.
 *
 * Nothing below this file checks anything, so everything is checked here: sizes
 * (with overflow in mind), strides, dtypes, alignment, lengths, segment numbers,
 * and that nothing written overlaps anything read or written.  Every message
 * names the argument. */
#include "kernels/attention.h"

#include <math.h>

#include "base/dtype.h"
#include "base/status.h"
#include "base/threads.h"
#include "kernels/kernels.h"

/* Keys, queries and positions fit in the int32 lanes of the vector kernels. */
#define MAX_KEYS      ((int64_t)1 << 30)
#define MAX_DIMENSION ((int64_t)1 << 40)

/* ---------------------------------------------------------------- extents */

/* The memory that an argument covers.  Strided rows span first to last element. */
typedef struct extent {
    const char *name;
    uintptr_t   begin;
    uintptr_t   end;
} extent;

enum { MAX_EXTENTS = 32 };

typedef struct extents {
    extent items[MAX_EXTENTS];
    int    n_items;
    int    n_inputs; /* items before this index are read, the others are written */
} extents;

static void extents_add(extents *list, const char *name, const void *data, size_t n_bytes)
{
    if (data == NULL || n_bytes == 0)
        return;
    uintptr_t begin              = (uintptr_t)data;
    list->items[list->n_items++] = (extent){ name, begin, begin + n_bytes };
}

static void extents_add_floats(extents *list, const char *name, const float *data, int64_t count)
{
    extents_add(list, name, data, (size_t)count * sizeof *data);
}

/* An output must not overlap anything else. */
static hl_status extents_check(const extents *list)
{
    for (int i = list->n_inputs; i < list->n_items; i++) {
        for (int j = 0; j < i; j++) {
            const extent *a = &list->items[i];
            const extent *b = &list->items[j];
            if (a->begin < b->end && b->begin < a->end)
                return hl_fail(HL_BAD_ARGUMENT, "attention: %s overlaps %s in memory", a->name,
                               b->name);
        }
    }
    return HL_OK;
}

/* ------------------------------------------------------------------- sizes */

static hl_status check_size(const char *name, int64_t value, int64_t least, int64_t most)
{
    if (value >= least && value <= most)
        return HL_OK;
    return hl_fail(HL_BAD_ARGUMENT, "attention: %s is %lld, wanted %lld to %lld", name,
                   (long long)value, (long long)least, (long long)most);
}

static hl_status check_sizes(const hl_attention *p)
{
    int64_t n_rows;

    HL_NEED(check_size("n_batch", p->n_batch, 0, MAX_DIMENSION));
    HL_NEED(check_size("n_heads", p->n_heads, 1, MAX_DIMENSION));
    HL_NEED(check_size("n_kv_heads", p->n_kv_heads, 1, p->n_heads));
    HL_NEED(check_size("n_queries", p->n_queries, 0, MAX_KEYS));
    HL_NEED(check_size("n_keys", p->n_keys, 0, MAX_KEYS));
    HL_NEED(check_size("d_head", p->d_head, 1, HL_MAX_HEAD_DIM));
    HL_NEED(check_size("d_value", p->d_value, 1, HL_MAX_HEAD_DIM));
    HL_NEED(check_size("n_segments", p->n_segments, 0, HL_MAX_SEGMENTS));
    HL_NEED(check_size("n_threads", p->n_threads, 0, HL_MAX_THREADS));
    if (p->n_heads % p->n_kv_heads != 0)
        return hl_fail(HL_BAD_ARGUMENT,
                       "attention: n_heads is %lld, not a multiple of n_kv_heads %lld",
                       (long long)p->n_heads, (long long)p->n_kv_heads);
    if (__builtin_mul_overflow(p->n_batch, p->n_heads, &n_rows) ||
        __builtin_mul_overflow(n_rows, p->n_queries, &n_rows) || n_rows > MAX_DIMENSION)
        return hl_fail(HL_LIMIT, "attention: n_batch * n_heads * n_queries is beyond 2^40 rows");
    return HL_OK;
}

/* ------------------------------------------------------------------- masks */

static hl_status check_mask(const hl_attention *p)
{
    if (!isfinite(p->scale) || !isfinite(p->softcap) || p->softcap < 0.0)
        return hl_fail(HL_BAD_ARGUMENT,
                       "attention: scale %g and softcap %g must be finite, softcap not negative",
                       p->scale, p->softcap);
    if ((p->flags & HL_ATTENTION_WINDOW_LEFT) != 0)
        HL_NEED(check_size("window_left", p->window_left, 0, MAX_DIMENSION));
    HL_NEED(check_size("window_sink", p->window_sink, 0, MAX_DIMENSION));
    if ((p->flags & HL_ATTENTION_WINDOW_RIGHT) != 0)
        HL_NEED(check_size("window_right", p->window_right, 0, MAX_DIMENSION));
    for (int64_t b = 0; b < p->n_batch; b++) {
        if (p->key_length != NULL)
            HL_NEED(check_size("key_length", p->key_length[b], 0, p->n_keys));
        if (p->query_start != NULL)
            HL_NEED(check_size("query_start", p->query_start[b], -MAX_KEYS, MAX_KEYS));
    }
    return HL_OK;
}

/* Returns the index of the first of n numbers that is not below `limit`, or -1.  It looks at STEP
 * numbers at a time, because usually there is none. */
static int64_t find_above(const uint8_t *numbers, int64_t n, int64_t limit)
{
    enum { STEP = 64 };
    int64_t i = 0;

    for (; i + STEP <= n; i += STEP) {
        uint8_t most = 0;
        for (int64_t j = i; j < i + STEP; j++)
            most = numbers[j] > most ? numbers[j] : most;
        if (most >= limit)
            break;
    }
    while (i < n && numbers[i] < limit)
        i++;
    return i < n ? i : -1;
}

static hl_status check_segments(const hl_attention *p)
{
    if (p->segments == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "attention: segment_mass is wanted but segments is NULL");
    if (p->segment_stride != 0 && p->segment_stride < p->n_keys)
        return hl_fail(HL_BAD_ARGUMENT,
                       "attention: segment_stride is %lld, wanted 0 or at least n_keys %lld",
                       (long long)p->segment_stride, (long long)p->n_keys);
    /* Only segments of keys in use are checked: a cache may have room for many more, and this runs
     * for every token. */
    for (int64_t b = 0; b < p->n_batch; b++) {
        const uint8_t *segments = p->segments + b * p->segment_stride;
        int64_t        bad = find_above(segments, hl_attention_key_length(p, b), p->n_segments);

        if (bad >= 0)
            return hl_fail(
                HL_BAD_ARGUMENT, "attention: segments[%lld] is %d, wanted below n_segments %lld",
                (long long)(b * p->segment_stride + bad), segments[bad], (long long)p->n_segments);
    }
    return HL_OK;
}

/* -------------------------------------------------------------------- rows */

/* The shape that an hl_rows argument must have. */
typedef struct rows_shape {
    const char *name;
    int64_t     n_heads;
    int64_t     n_rows;
    int64_t     width;
    bool        written;
} rows_shape;

static bool is_float(hl_dtype dtype)
{
    return dtype == HL_DTYPE_F32 || dtype == HL_DTYPE_F16 || dtype == HL_DTYPE_BF16 ||
           dtype == HL_DTYPE_F64;
}

/* The number of elements from the first to the last; false when absurd. */
static bool rows_span(int64_t *out, const hl_rows *rows, int64_t n_batch, const rows_shape *shape)
{
    int64_t batch_part, head_part, row_part;

    return !__builtin_mul_overflow(n_batch - 1, rows->batch_stride, &batch_part) &&
           !__builtin_mul_overflow(shape->n_heads - 1, rows->head_stride, &head_part) &&
           !__builtin_mul_overflow(shape->n_rows - 1, rows->row_stride, &row_part) &&
           !__builtin_add_overflow(batch_part, head_part, out) &&
           !__builtin_add_overflow(*out, row_part, out) &&
           !__builtin_add_overflow(*out, shape->width, out) && *out <= INT64_MAX / 16;
}

static hl_status check_strides(const hl_rows *rows, int64_t n_batch, const rows_shape *shape)
{
    /* Inputs may repeat (stride 0); two outputs must not share an element. */
    int64_t least = shape->written ? shape->width : 0;

    if ((n_batch > 1 && rows->batch_stride < least) ||
        (shape->n_heads > 1 && rows->head_stride < least) ||
        (shape->n_rows > 1 && rows->row_stride < least))
        return hl_fail(HL_BAD_ARGUMENT,
                       "attention: %s has strides (%lld, %lld, %lld), wanted at least %lld each",
                       shape->name, (long long)rows->batch_stride, (long long)rows->head_stride,
                       (long long)rows->row_stride, (long long)least);
    return HL_OK;
}

/* Fills in packed strides, checks everything, and notes the memory covered. */
static hl_status complete_rows(hl_rows *rows, extents *covered, int64_t n_batch, rows_shape shape)
{
    int64_t span;

    if (n_batch == 0 || shape.n_rows == 0 || (shape.written && rows->data == NULL))
        return HL_OK; /* there are no rows, or the caller does not want this result */
    if (rows->data == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "attention: %s.data is NULL", shape.name);
    if (!is_float(rows->dtype))
        return hl_fail(HL_BAD_ARGUMENT, "attention: %s.dtype is %s, wanted F32, F16, BF16 or F64",
                       shape.name, hl_dtype_name(rows->dtype));
    size_t size = hl_dtype_bits(rows->dtype) / 8;
    if ((uintptr_t)rows->data % size != 0)
        return hl_fail(HL_BAD_ARGUMENT,
                       "attention: %s.data is not aligned to its %zu-byte elements", shape.name,
                       size);
    if (rows->batch_stride == 0 && rows->head_stride == 0 && rows->row_stride == 0) {
        rows->row_stride   = shape.width;
        rows->head_stride  = shape.n_rows * rows->row_stride;
        rows->batch_stride = shape.n_heads * rows->head_stride;
    }
    HL_NEED(check_strides(rows, n_batch, &shape));
    if (!rows_span(&span, rows, n_batch, &shape))
        return hl_fail(HL_LIMIT, "attention: %s spans more than memory can hold", shape.name);
    extents_add(covered, shape.name, rows->data, (size_t)span * size);
    return HL_OK;
}

/* Inputs that all passes share; `values`: whether the pass reads v. */
static hl_status complete_problem(hl_attention *p, extents *covered, bool values)
{
    int64_t n_segment_rows;

    HL_NEED(check_sizes(p));
    HL_NEED(check_mask(p));
    HL_NEED(complete_rows(&p->q, covered, p->n_batch,
                          (rows_shape){ "q", p->n_heads, p->n_queries, p->d_head, false }));
    HL_NEED(complete_rows(&p->k, covered, p->n_batch,
                          (rows_shape){ "k", p->n_kv_heads, p->n_keys, p->d_head, false }));
    if (values)
        HL_NEED(complete_rows(&p->v, covered, p->n_batch,
                              (rows_shape){ "v", p->n_kv_heads, p->n_keys, p->d_value, false }));
    if ((p->flags & HL_ATTENTION_SCALE) == 0)
        p->scale = 1.0 / sqrt((double)p->d_head);
    p->n_threads = hl_threads(p->n_threads);

    extents_add_floats(covered, "alibi_slopes", p->alibi_slopes, p->n_heads);
    extents_add_floats(covered, "key_bias", p->key_bias, p->n_heads * p->n_keys);
    extents_add_floats(covered, "row_bias", p->row_bias, p->n_batch * p->n_queries * p->n_keys);
    extents_add_floats(covered, "sinks", p->sinks, p->n_heads);
    extents_add_floats(covered, "gates", p->gates, p->n_heads);
    n_segment_rows = p->segment_stride == 0 ? 1 : p->n_batch;
    extents_add(covered, "segments", p->segments,
                (size_t)((n_segment_rows - 1) * p->segment_stride + p->n_keys));
    return HL_OK;
}

/* Only the scalar back end computes in f64. */
static hl_status kernels_for(const hl_kernels **out, const hl_attention *p)
{
    *out = &hl_kernels_scalar;
    if (p->q.dtype == HL_DTYPE_F64 || p->k.dtype == HL_DTYPE_F64 || p->v.dtype == HL_DTYPE_F64)
        return HL_OK;
    return hl_kernels_current(out);
}

static bool is_empty(const hl_attention *p)
{
    return p->n_batch == 0 || p->n_queries == 0;
}

/* ----------------------------------------------------------------- forward */

static void add_statistics(extents *covered, const hl_attention_result *r, const hl_attention *p)
{
    int64_t n_rows = p->n_batch * p->n_heads * p->n_queries;

    extents_add_floats(covered, "lse", r->lse, n_rows);
    extents_add_floats(covered, "entropy", r->entropy, n_rows);
    extents_add_floats(covered, "renyi2", r->renyi2, n_rows);
    extents_add_floats(covered, "varentropy", r->varentropy, n_rows);
    extents_add_floats(covered, "entropy_nosink", r->entropy_nosink, n_rows);
    extents_add_floats(covered, "peak", r->peak, n_rows);
    extents_add(covered, "argmax", r->argmax, (size_t)n_rows * sizeof *r->argmax);
    extents_add_floats(covered, "self", r->self, n_rows);
    extents_add_floats(covered, "previous", r->previous, n_rows);
    extents_add_floats(covered, "first", r->first, n_rows);
    extents_add_floats(covered, "segment_mass", r->segment_mass, n_rows * p->n_segments);
    extents_add_floats(covered, "max_logit", r->max_logit, n_rows);
}

hl_status hl_attention_forward(hl_attention_result *result, const hl_attention *problem)
{
    extents           covered = { 0 };
    const hl_kernels *kernels = NULL;

    if (result == NULL || problem == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "attention: result or problem is NULL");
    hl_attention        p = *problem;
    hl_attention_result r = *result;

    HL_NEED(complete_problem(&p, &covered, true));
    covered.n_inputs = covered.n_items;
    HL_NEED(complete_rows(&r.out, &covered, p.n_batch,
                          (rows_shape){ "out", p.n_heads, p.n_queries, p.d_value, true }));
    if (r.segment_mass != NULL)
        HL_NEED(check_segments(&p));
    add_statistics(&covered, &r, &p);
    HL_NEED(extents_check(&covered));
    HL_NEED(kernels_for(&kernels, &p));
    if (!is_empty(&p))
        HL_NEED(kernels->attention_forward(&r, &p));
    return HL_OK;
}

/* ---------------------------------------------------------------- backward */

static hl_status complete_upstream(hl_attention_upstream *u, const hl_attention *p,
                                   extents *covered)
{
    int64_t n_rows = p->n_batch * p->n_heads * p->n_queries;

    if (u->lse == NULL && !is_empty(p))
        return hl_fail(HL_BAD_ARGUMENT, "attention: lse of the forward pass is NULL");
    if (u->grad_entropy != NULL && u->entropy == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "attention: grad_entropy is given but entropy is NULL");
    if (u->grad_out.data != NULL) {
        HL_NEED(
            complete_rows(&u->grad_out, covered, p->n_batch,
                          (rows_shape){ "grad_out", p->n_heads, p->n_queries, p->d_value, false }));
        HL_NEED(complete_rows(&u->out, covered, p->n_batch,
                              (rows_shape){ "out", p->n_heads, p->n_queries, p->d_value, false }));
    }
    extents_add_floats(covered, "lse", u->lse, n_rows);
    extents_add_floats(covered, "entropy", u->entropy, n_rows);
    extents_add_floats(covered, "grad_entropy", u->grad_entropy, n_rows);
    extents_add_floats(covered, "grad_lse", u->grad_lse, n_rows);
    return HL_OK;
}

static hl_status complete_gradient(hl_attention_gradient *g, const hl_attention *p,
                                   extents *covered)
{
    HL_NEED(complete_rows(&g->dq, covered, p->n_batch,
                          (rows_shape){ "dq", p->n_heads, p->n_queries, p->d_head, true }));
    HL_NEED(complete_rows(&g->dk, covered, p->n_batch,
                          (rows_shape){ "dk", p->n_kv_heads, p->n_keys, p->d_head, true }));
    HL_NEED(complete_rows(&g->dv, covered, p->n_batch,
                          (rows_shape){ "dv", p->n_kv_heads, p->n_keys, p->d_value, true }));
    extents_add_floats(covered, "dgates", g->dgates, p->n_heads);
    extents_add_floats(covered, "dsinks", g->dsinks, p->n_heads);
    return HL_OK;
}

hl_status hl_attention_backward(hl_attention_gradient *gradient, const hl_attention *problem,
                                const hl_attention_upstream *upstream)
{
    extents           covered = { 0 };
    const hl_kernels *kernels = NULL;

    if (gradient == NULL || problem == NULL || upstream == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "attention: gradient, problem or upstream is NULL");
    hl_attention          p = *problem;
    hl_attention_gradient g = *gradient;
    hl_attention_upstream u = *upstream;

    HL_NEED(complete_problem(&p, &covered, true));
    HL_NEED(complete_upstream(&u, &p, &covered));
    covered.n_inputs = covered.n_items;
    HL_NEED(complete_gradient(&g, &p, &covered));
    HL_NEED(extents_check(&covered));
    HL_NEED(kernels_for(&kernels, &p));
    return kernels->attention_backward(&g, &p, &u);
}

/* ----------------------------------------------------------------- received */

hl_status hl_attention_received(float *received, const hl_attention *problem, const float *lse,
                                int64_t n_last)
{
    extents           covered = { 0 };
    const hl_kernels *kernels = NULL;

    if (received == NULL || problem == NULL || lse == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "attention: received, problem or lse is NULL");
    hl_attention p = *problem;
    HL_NEED(complete_problem(&p, &covered, false));
    HL_NEED(check_size("n_last", n_last, 0, p.n_queries));
    extents_add_floats(&covered, "lse", lse, p.n_batch * p.n_heads * p.n_queries);
    covered.n_inputs = covered.n_items;
    extents_add_floats(&covered, "received", received, p.n_batch * p.n_heads * p.n_keys);
    HL_NEED(extents_check(&covered));
    HL_NEED(kernels_for(&kernels, &p));
    if (p.n_batch == 0 || p.n_keys == 0)
        return HL_OK;
    return kernels->attention_received(received, &p, lse, n_last == 0 ? 0 : p.n_queries - n_last);
}
