/* matrix_tile.h - the two small matrix products that attention is made of.
 *
 *     C (m, n) = s C + A B        A is (m, k), row-major:   scores, dK, dV
 *     C (m, n) = s C + A' B       A is (k, m), row-major:   output, dQ
 *
 * B is (k, n) and C is (m, n), both row-major; s is 0, 1, or one factor per row of C.  A register
 * block of TILE_ROWS x TILE_VECTORS vectors of C is kept while k runs: each step loads TILE_VECTORS
 * vectors of B and broadcasts TILE_ROWS numbers of A.  Nothing is packed: the operands are small
 * enough to sit in the first two caches.
 *
 * n is rounded up to whole vectors, so the rows of B and C must be readable
 * (and C's writable) up to that width. */
#ifndef HL_KERNELS_MATRIX_TILE_H
#define HL_KERNELS_MATRIX_TILE_H

#include <stdbool.h>

#include "kernels/simd.h"

typedef struct matrix_product {
    float       *c;
    int64_t      c_stride;
    const float *a;
    int64_t      a_stride;
    const float *b;
    int64_t      b_stride;
    int64_t      k;
    bool         add;   /* true: s is 1 */
    const float *scale; /* (m) factors s, or NULL */
} matrix_product;

/* Computes C's block of m rows and v vectors at (row, column).  m, v and transposed are
 * compile-time constants, so that the block lives in registers. */
HL_INLINE void tile_block(const matrix_product *p, int64_t row, int64_t column, int m, int v,
                          int transposed)
{
    const float *a        = p->a + (transposed ? row : row * p->a_stride);
    const float *b        = p->b + column;
    float       *c        = p->c + row * p->c_stride + column;
    const float *scale    = p->scale;
    int64_t      a_row    = transposed ? 1 : p->a_stride;
    int64_t      a_step   = transposed ? p->a_stride : 1;
    int64_t      b_stride = p->b_stride;
    int64_t      c_stride = p->c_stride;
    vf           sum[TILE_ROWS][TILE_VECTORS];

    for (int i = 0; i < m; i++)
        for (int j = 0; j < v; j++)
            sum[i][j] = (vf){ 0 };

    for (int64_t k = p->k; k > 0; k--) {
        vf columns[TILE_VECTORS];
        for (int j = 0; j < v; j++)
            columns[j] = vf_load(b + j * VL);
        for (int i = 0; i < m; i++) {
            vf factor = vf_set(a[i * a_row]);
            for (int j = 0; j < v; j++)
                sum[i][j] = vf_fma(factor, columns[j], sum[i][j]);
        }
        a += a_step;
        b += b_stride;
    }

    if (p->add)
        for (int i = 0; i < m; i++)
            for (int j = 0; j < v; j++)
                sum[i][j] += vf_load(c + i * c_stride + j * VL);
    if (scale != NULL)
        for (int i = 0; i < m; i++)
            for (int j = 0; j < v; j++)
                sum[i][j] =
                    vf_fma(vf_set(scale[row + i]), vf_load(c + i * c_stride + j * VL), sum[i][j]);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < v; j++)
            vf_store(c + i * c_stride + j * VL, sum[i][j]);
}

/* Computes v vectors of columns for all m rows: whole blocks, then the remainder. */
HL_INLINE void tile_columns(const matrix_product *p, int64_t m, int64_t column, int v,
                            int transposed)
{
    int64_t row = 0;

    for (; row + TILE_ROWS <= m; row += TILE_ROWS)
        tile_block(p, row, column, TILE_ROWS, v, transposed);
    switch (m - row) {
#define LEFT_OVER(n)                                                                               \
    case n:                                                                                        \
        tile_block(p, row, column, n, v, transposed);                                              \
        break;
#if TILE_ROWS > 6
        LEFT_OVER(7)
        LEFT_OVER(6)
#endif
        LEFT_OVER(5)
        LEFT_OVER(4)
        LEFT_OVER(3)
        LEFT_OVER(2)
        LEFT_OVER(1)
#undef LEFT_OVER
    default:
        break;
    }
}

HL_INLINE void tile_product(const matrix_product *p, int64_t m, int64_t n, int transposed)
{
    int64_t column = 0;

    for (; column + LANES <= n; column += LANES)
        tile_columns(p, m, column, TILE_VECTORS, transposed);
    for (; column < n; column += VL)
        tile_columns(p, m, column, 1, transposed);
}

/* C (m, n) = s C + A B. */
static void multiply(const matrix_product *p, int64_t m, int64_t n)
{
    tile_product(p, m, n, 0);
}

/* C (m, n) = s C + A' B. */
static void multiply_transposed(const matrix_product *p, int64_t m, int64_t n)
{
    tile_product(p, m, n, 1);
}

#endif
