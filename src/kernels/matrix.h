/* matrix.h - a weight as it is stored: the order of its rows, and their values.
 *
 *     hl_matrix matrix = { .data = bytes, .dtype = HL_DTYPE_F16, .n_rows = 256, .n_columns = 64,
 *                          .n_stored = 256, .block = 256, .stride = 256 };
 *     HL_TRY(hl_matrix_read_row(row, &matrix, 7)); */
#ifndef HL_KERNELS_MATRIX_H
#define HL_KERNELS_MATRIX_H

#include "headlight/base.h"

/* A matrix (n_rows, n_columns), which is a part of a stored matrix. */
typedef struct hl_matrix {
    const void *data;   /* stored row 0 */
    const void *scales; /* one byte per 32 values, for MXFP4 kept in two tensors, else NULL */
    hl_dtype    dtype;  /* U8 if there are scales */
    int64_t     n_rows;
    int64_t     n_columns;
    int64_t     n_stored;   /* rows of the stored matrix */
    bool        transposed; /* stored as (n_columns, n_stored); never a block type */
    /* Row r is the stored row  first + r / block * stride + r % block.  If pairs > 0, r's place i
     * among `pairs` is first replaced by 2 (i % half) + i / half. */
    int64_t first;
    int64_t block;
    int64_t stride;
    int64_t pairs;
    struct hl_repacked
        *repacked; /* room for a copy for products of many rows (linear.h), or NULL */
} hl_matrix;

/* The stored row, or column of a transposed matrix, that holds row `row`. */
int64_t hl_matrix_stored_row(const hl_matrix *matrix, int64_t row);

/* The number of bytes of n_values values, which must be whole blocks. */
size_t hl_matrix_bytes(const hl_matrix *matrix, int64_t n_values);

/* The stored bytes of row `row`, or of element (row, 0) in a transposed matrix. */
const uint8_t *hl_matrix_at(const hl_matrix *matrix, int64_t row);

/* The number of rows, from `row` on, that are stored contiguously. */
int64_t hl_matrix_run(const hl_matrix *matrix, int64_t row);

/* Reads row `row` as floats into out (n_columns). */
hl_status hl_matrix_read_row(float *out, const hl_matrix *matrix, int64_t row);

/* Reads rows [begin, end) of a transposed matrix by columns: out (n_columns, end - begin). */
hl_status hl_matrix_read_part(float *out, const hl_matrix *matrix, int64_t begin, int64_t end);

#endif
