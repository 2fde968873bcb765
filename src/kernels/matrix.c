/* matrix.c - where the rows of a weight are stored, and how they are read. */
#include "kernels/matrix.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"
#include "kernels/quant.h"

enum { MXFP4_VALUES = 32 }; /* values that share a scale */

/* ------------------------------------------------------------------- stored */

int64_t hl_matrix_stored_row(const hl_matrix *matrix, int64_t row)
{
    if (matrix->pairs > 1) {
        int64_t half = matrix->pairs / 2;
        int64_t i    = row % matrix->pairs;
        row += i % half * 2 + i / half - i;
    }
    return matrix->first + row / matrix->block * matrix->stride + row % matrix->block;
}

int64_t hl_matrix_run(const hl_matrix *matrix, int64_t row)
{
    if (matrix->pairs > 0)
        return 1;
    if (matrix->stride == matrix->block)
        return matrix->n_rows - row;
    return matrix->block - row % matrix->block;
}

size_t hl_matrix_bytes(const hl_matrix *matrix, int64_t n_values)
{
    hl_dtype_block block = hl_dtype_block_of(matrix->dtype);

    if (matrix->scales != NULL)
        return (size_t)n_values / 2;
    return (size_t)n_values / block.n_values * block.n_bytes;
}

const uint8_t *hl_matrix_at(const hl_matrix *matrix, int64_t row)
{
    int64_t width = matrix->transposed ? 1 : matrix->n_columns;
    return (const uint8_t *)matrix->data +
           hl_matrix_bytes(matrix, hl_matrix_stored_row(matrix, row) * width);
}

/* ---------------------------------------------------------------- converting */

/* MXFP4: two values per byte, the lower nibble first, times 2^(scale - 127). */
static void read_mxfp4(float *out, const hl_matrix *matrix, int64_t row)
{
    static const float values[16] = { 0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                      -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f };
    const uint8_t     *bytes      = hl_matrix_at(matrix, row);
    const uint8_t     *scales     = (const uint8_t *)matrix->scales +
                            hl_matrix_stored_row(matrix, row) * (matrix->n_columns / MXFP4_VALUES);

    for (int64_t i = 0; i < matrix->n_columns; i += 2) {
        float scale = ldexpf(1.0f, (int)scales[i / MXFP4_VALUES] - 127);
        out[i]      = values[bytes[i / 2] & 15] * scale;
        out[i + 1]  = values[bytes[i / 2] >> 4] * scale;
    }
}

static hl_status read_values(float *out, const hl_matrix *matrix, const void *source, int64_t n)
{
    if (matrix->dtype == HL_DTYPE_F32) {
        memcpy(out, source, (size_t)n * sizeof *out);
        return HL_OK;
    }
    return hl_dequantize(out, matrix->dtype, source, (size_t)n);
}

hl_status hl_matrix_read_part(float *out, const hl_matrix *matrix, int64_t begin, int64_t end)
{
    for (int64_t row = begin, n; row < end; row += n) {
        const uint8_t *source = hl_matrix_at(matrix, row);
        size_t         step   = hl_matrix_bytes(matrix, matrix->n_stored);

        n = hl_matrix_run(matrix, row);
        n = n > end - row ? end - row : n;
        for (int64_t column = 0; column < matrix->n_columns; column++)
            HL_NEED(read_values(out + column * (end - begin) + row - begin, matrix,
                                source + (size_t)column * step, n));
    }
    return HL_OK;
}

hl_status hl_matrix_read_row(float *out, const hl_matrix *matrix, int64_t row)
{
    if (matrix->transposed)
        return hl_matrix_read_part(out, matrix, row, row + 1);
    if (matrix->scales == NULL)
        return read_values(out, matrix, hl_matrix_at(matrix, row), matrix->n_columns);
    read_mxfp4(out, matrix, row);
    return HL_OK;
}
