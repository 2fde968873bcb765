/* attention.h - what the attention kernels of all back ends share.
 *
 * hl_attention_forward and _backward (attention.c) check their arguments, fill
 * in defaults (strides, scale, query_start's meaning, threads) and hand a
 * completed copy of the problem to the back end in use. */
#ifndef HL_KERNELS_ATTENTION_H
#define HL_KERNELS_ATTENTION_H

#include "base/dtype.h"
#include "base/visible.h"
#include "headlight/attention.h"

/* Keys [begin, end); empty when begin == end. */
typedef struct hl_key_range {
    int64_t begin;
    int64_t end;
} hl_key_range;

static inline int64_t hl_attention_key_length(const hl_attention *p, int64_t batch)
{
    return p->key_length != NULL ? p->key_length[batch] : p->n_keys;
}

/* The position of row 0 of a sequence among its keys; may be negative. */
static inline int64_t hl_attention_query_start(const hl_attention *p, int64_t batch)
{
    if (p->query_start != NULL)
        return p->query_start[batch];
    return hl_attention_key_length(p, batch) - p->n_queries;
}

/* The range of keys around its own position that a row sees. */
static inline hl_reach hl_attention_reach(const hl_attention *p)
{
    bool     is_causal = (p->flags & HL_ATTENTION_CAUSAL) != 0;
    hl_reach reach     = { HL_REACH_ALL, is_causal ? 0 : HL_REACH_ALL, p->window_sink, 0 };

    if ((p->flags & HL_ATTENTION_WINDOW_LEFT) != 0)
        reach.window_left = p->window_left;
    if ((p->flags & HL_ATTENTION_WINDOW_LEFT) != 0 && (p->flags & HL_ATTENTION_WINDOW_BLOCKS) != 0)
        reach.window_block = p->window_left + 1;
    if ((p->flags & HL_ATTENTION_WINDOW_RIGHT) != 0 && !is_causal)
        reach.window_right = p->window_right;
    return reach;
}

/* The keys that a row at `position` sees. */
static inline hl_visible_keys hl_attention_visible(const hl_attention *p, int64_t batch,
                                                   int64_t position)
{
    hl_reach reach = hl_attention_reach(p);

    return hl_visible_join(hl_reach_keys(&reach, hl_attention_key_length(p, batch), position));
}

/* The first element of row (batch, head, row), in units of elements. */
static inline int64_t hl_rows_offset(const hl_rows *rows, int64_t batch, int64_t head, int64_t row)
{
    return batch * rows->batch_stride + head * rows->head_stride + row * rows->row_stride;
}

static inline void *hl_rows_at(const hl_rows *rows, int64_t batch, int64_t head, int64_t row)
{
    size_t size = hl_dtype_bits(rows->dtype) / 8;

    return (uint8_t *)rows->data + (size_t)hl_rows_offset(rows, batch, head, row) * size;
}

/* Computes all outputs of row `index` of arrays (n_batch, n_heads, n_queries) by the definition in
 * attention_scalar.c.  Fast kernels call it for a row that they cannot compute exactly. */
void hl_attention_row_forward(const hl_attention_result *result, const hl_attention *problem,
                              int64_t index);

/* Like hl_attention_row_forward, for a row with a score that is NaN or +inf.  It does not read the
 * row's keys again; entropy_nosink is the entropy of the keys other than key 0. */
void hl_attention_row_not_finite(const hl_attention_result *result, const hl_attention *problem,
                                 int64_t index, double entropy_nosink);

/* X(name) for every array of floats (n_batch, n_heads, n_queries) of hl_attention_result. */
#define HL_EACH_ROW_STATISTIC(X)                                                                   \
    X(lse)                                                                                         \
    X(entropy)                                                                                     \
    X(renyi2) X(varentropy) X(entropy_nosink) X(peak) X(self) X(previous) X(first) X(max_logit)
#define HL_ROW_STATISTICS 10

/* A result whose statistics lie in one block, `count` floats each.  The other arrays are NULL:
 * argmax has integers, segment_mass has a row of segments. */
static inline hl_attention_result hl_attention_result_in(float *block, int64_t count)
{
    hl_attention_result result = { 0 };
    int64_t             n      = 0;

#define PLACE(name) result.name = block + count * n++;
    HL_EACH_ROW_STATISTIC(PLACE)
#undef PLACE
    return result;
}

/* The arrays of `whole`, starting at row `first` of (batch, heads, rows).  `out` is unchanged. */
static inline hl_attention_result hl_attention_result_from(const hl_attention_result *whole,
                                                           int64_t first, int64_t n_segments)
{
    hl_attention_result part = *whole;

#define MOVE(name) part.name = part.name != NULL ? part.name + first : NULL;
    HL_EACH_ROW_STATISTIC(MOVE)
    MOVE(argmax)
#undef MOVE
    part.segment_mass = part.segment_mass != NULL ? part.segment_mass + first * n_segments : NULL;
    return part;
}

#endif
