/* attention.h - what the attention kernels of all back ends share.
 *
 * hl_attention_forward and _backward (attention.c) check their arguments, fill
 * in defaults (strides, scale, query_start's meaning, threads) and hand a
 * completed copy of the problem to the back end in use. */
#ifndef HL_KERNELS_ATTENTION_H
#define HL_KERNELS_ATTENTION_H

#include "headlight.h"

/* Keys [begin, end); empty when begin == end. */
typedef struct hl_key_range {
    int64_t begin;
    int64_t end;
} hl_key_range;

static inline int64_t hl_attention_key_length(const hl_attention *p, int64_t batch)
{
    return p->key_length != NULL ? p->key_length[batch] : p->n_keys;
}

/* Where row 0 of a sequence stands among its keys; may be negative. */
static inline int64_t hl_attention_query_start(const hl_attention *p, int64_t batch)
{
    if (p->query_start != NULL)
        return p->query_start[batch];
    return hl_attention_key_length(p, batch) - p->n_queries;
}

/* The keys that a row at `position` sees: every mask is one interval. */
static inline hl_key_range hl_attention_visible(const hl_attention *p, int64_t batch,
                                                int64_t position)
{
    int64_t begin = 0;
    int64_t end   = hl_attention_key_length(p, batch);

    if ((p->flags & HL_ATTENTION_CAUSAL) != 0 && end > position + 1)
        end = position + 1;
    if ((p->flags & HL_ATTENTION_WINDOW_RIGHT) != 0 && end > position + p->window_right + 1)
        end = position + p->window_right + 1;
    if ((p->flags & HL_ATTENTION_WINDOW_LEFT) != 0 && begin < position - p->window_left)
        begin = position - p->window_left;
    return begin < end ? (hl_key_range){ begin, end } : (hl_key_range){ 0, 0 };
}

/* The first element of row (batch, head, row), in units of elements. */
static inline int64_t hl_rows_offset(const hl_rows *rows, int64_t batch, int64_t head, int64_t row)
{
    return batch * rows->batch_stride + head * rows->head_stride + row * rows->row_stride;
}

#endif
