/* linear.h - out = x W' + b, on weights as they are stored.
 *
 *     hl_linear_rows rows = { .out = y, .out_stride = d_mlp, .x = x, .x_stride = d_model,
 *                             .n_batch = 1, .batch_rows = n, .n_rows = &n };
 *     HL_TRY(hl_linear(&rows, &matrix, bias, &pool));
 *
 * A weight is f32, f16, bf16 or one of GGUF's block types, mapped from its file; four numbers
 * (matrix.h) give the order of its stored rows.  A sequence of few rows (decoding) takes dot
 * products on the stored type; a longer one is multiplied by a strip of the weight at a time, packed
 * in scratch (packed.h), or by a panel that is converted to f32 (gemm.h). Independent products (q, k and v) are faster in one call: with few
 * rows, waking threads is a large part of the work.
 *
 * Each sequence is multiplied by itself: a row's result depends neither on the rest of its batch
 * nor on the number of threads. */
#ifndef HL_KERNELS_LINEAR_H
#define HL_KERNELS_LINEAR_H

#include "headlight/base.h"
#include "headlight/session.h"
#include "kernels/matrix.h"

/* Sequences of at most this many rows take dot products. */
#define HL_LINEAR_FEW_ROWS 8

/* The rows to multiply: every sequence has room for batch_rows rows, and its first n_rows count. */
typedef struct hl_linear_rows {
    float         *out; /* (n_batch, batch_rows, W's n_rows) */
    int64_t        out_stride;
    const float   *x; /* (n_batch, batch_rows, W's n_columns) */
    int64_t        x_stride;
    int64_t        n_batch;
    int64_t        batch_rows;
    const int64_t *n_rows; /* (n_batch) */
} hl_linear_rows;

/* One product; bias is (n_rows) or NULL. */
typedef struct hl_linear_product {
    hl_linear_rows   rows;
    const hl_matrix *matrix;
    const float     *bias;
} hl_linear_product;

/* Room for n_values values of x in 8 bits, or in bf16. */
typedef struct hl_linear_low {
    hl_math   math; /* INT8 or BF16 */
    int64_t   n_values;
    uint16_t *bf16;     /* (n_values) */
    int8_t   *q;        /* (n_values) */
    float    *scales;   /* (n_values / 32) */
    float    *sums;     /* (n_values / 32) */
    int32_t  *run_sums; /* (n_values / 16) */
} hl_linear_low;

/* Threads, and hl_linear_scratch(...) floats of scratch for each of them. */
typedef struct hl_linear_pool {
    int     n_threads;
    float  *scratch; /* (n_threads, thread_floats) */
    int64_t thread_floats;
    /* NULL: products are exact.  Else x and w are rounded as the mode says: x for BF16 with long
     * sequences; for INT8 with the types of int8.h, and in long sequences those of packed.h. */
    hl_linear_low *low;
} hl_linear_pool;

/* A copy of a matrix in strips.  Packing takes a part of the time of every product of many rows, and
 * the copy takes memory, which is slow when it is first written: so it is made after HL_REPACK_AFTER
 * such products.  Results are the same bytes with and without it. */
typedef struct hl_repacked {
    struct hl_strip *strips; /* (strips of the matrix) */
    float           *room;   /* (strips of the matrix, floats of one) */
    hl_math          math;
    int64_t          n_products; /* products of many rows so far */
    bool             is_made;
} hl_repacked;

#define HL_REPACK_AFTER 8

/* The floats of hl_repacked.room and the number of strips, for a session with this mode; 0 if the
 * back end multiplies without strips. */
int64_t hl_repacked_floats(int64_t *n_strips, hl_math *math, const hl_matrix *matrix,
                           hl_math wanted);

/* The number of floats that a thread needs for this matrix. */
int64_t hl_linear_scratch(const hl_matrix *matrix);

/* Computes all products of one x, in any order; none may write what another reads. */
#define HL_LINEAR_PRODUCTS 8 /* at most */
hl_status hl_linear_all(const hl_linear_product *products, int n_products,
                        const hl_linear_pool *pool);
/* Computes one product. */
hl_status hl_linear(const hl_linear_rows *rows, const hl_matrix *matrix, const float *bias,
                    const hl_linear_pool *pool);

#endif
