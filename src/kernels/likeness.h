/* likeness.h - how alike two heads are, and how much a block changes the stream.
 *
 * Total variation of two rows of attention: half the sum of |a - b| over the keys.  The mass of a
 * learned sink is one more outcome; it differs by as much as the keys' totals do.
 *
 * Block influence: 1 - cos of a row of the residual stream before and after the block.
 *
 * CKA of what two heads write.  Linear CKA is HSIC(a,b) / sqrt(HSIC(a,a) HSIC(b,b)), and HSIC over
 * all rows would need the products of all pairs of rows.  Instead it is estimated from few rows at
 * a time, without bias, and the estimates are summed: with the kernels K and M of two heads over n
 * rows, their diagonals set to 0,
 *
 *     sum K.M  +  (1'K1)(1'M1) / ((n-1)(n-2))  -  2/(n-2) 1'KM1
 *
 * (Song et al. 2012; as minibatch CKA, Nguyen et al. 2021).  These sums merge and take one number
 * per pair.  Kernels are divided by their traces first, so that rows of large norm do not outvote
 * the others, and so that a term is below HL_HSIC_BOUND in size: sum K.M is at most 1, n^2 /
 * ((n-1)(n-2)) and 2n / (n-2) are at most 1.53 and 2.67 from n = 8 on.
 *
 * A prepared kernel is (n, n), then the sums of its rows (n), then the sum of all (1), which is NaN
 * where the kernel is not finite. */
#ifndef HL_KERNELS_LIKENESS_H
#define HL_KERNELS_LIKENESS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/host_device.h"

#define HL_HSIC_MIN_ROWS 8 /* estimates from fewer rows are not used */
#define HL_HSIC_BOUND    8.0

/* ------------------------------------------------- formulas of host and device */

/* Total variation from the sum of |a - b| over the keys. */
HL_HOST_DEVICE double hl_total_variation(double apart)
{
    return 0.5 * apart;
}

/* Block influence from the product of the stream before and after, and from the square of each. */
HL_HOST_DEVICE double hl_block_influence(double both, double before, double after)
{
    return 1.0 - both / sqrt(before * after);
}

/* The size of a prepared kernel of n rows. */
HL_HOST_DEVICE int64_t hl_kernel_size(int64_t n)
{
    return n * n + n + 1;
}

/* Entry `i` of a prepared kernel.  The trace bounds all entries; it may be 0. */
HL_HOST_DEVICE double hl_kernel_entry(double value, double trace, int64_t i, int64_t n)
{
    return i / n == i % n || !(trace > 0.0) ? 0.0 : value / trace;
}

/* The last number of a prepared kernel. */
HL_HOST_DEVICE double hl_kernel_total(double sum, double trace)
{
    return isfinite(trace) && isfinite(sum) ? sum : (double)NAN;
}

/* HSIC from the sum of products of all entries, that of the row sums, and the two totals. */
HL_HOST_DEVICE double hl_hsic(double entries, double rows, double total_a, double total_b,
                              int64_t n)
{
    return entries + total_a * total_b / (double)((n - 1) * (n - 2)) - 2.0 / (double)(n - 2) * rows;
}

/* ------------------------------------------------------------------ on the host */

/* Half the sum of |a - b| over keys [begin, end), in eight partial sums so that it vectorizes. */
static inline double hl_rows_apart(const float *a, const float *b, int64_t begin, int64_t end)
{
    float   parts[8] = { 0 };
    double  sum      = 0.0;
    int64_t key      = begin;

    for (; key + 8 <= end; key += 8) {
        for (int i = 0; i < 8; i++)
            parts[i] += fabsf(a[key + i] - b[key + i]);
    }
    for (; key < end; key++)
        parts[0] += fabsf(a[key] - b[key]);
    for (int i = 0; i < 8; i++)
        sum += (double)parts[i];
    return hl_total_variation(sum);
}

static inline double hl_dot_of_floats(const float *a, const float *b, int64_t n)
{
    float   parts[8] = { 0 };
    double  sum      = 0.0;
    int64_t first    = 0;

    for (; first + 8 <= n; first += 8) {
        for (int i = 0; i < 8; i++)
            parts[i] += a[first + i] * b[first + i];
    }
    for (; first < n; first++)
        parts[0] += a[first] * b[first];
    for (int i = 0; i < 8; i++)
        sum += (double)parts[i];
    return sum;
}

/* Prepares a kernel (n, n); `out` may be the kernel itself. */
static inline void hl_kernel_prepare(double *out, const double *kernel, int64_t n)
{
    double  trace = 0.0;
    double *sums  = out + n * n;

    for (int64_t i = 0; i < n; i++)
        trace += kernel[i * n + i];
    memset(sums, 0, (size_t)(n + 1) * sizeof *sums);
    for (int64_t i = 0; i < n * n; i++) {
        out[i] = hl_kernel_entry(kernel[i], trace, i, n);
        sums[i / n] += out[i];
        sums[n] += out[i];
    }
    sums[n] = hl_kernel_total(sums[n], trace);
}

static inline double hl_dot_of_doubles(const double *a, const double *b, int64_t n)
{
    double sums[4] = { 0 };

    for (int64_t i = 0; i < n / 4 * 4; i += 4) {
        for (int j = 0; j < 4; j++)
            sums[j] += a[i + j] * b[i + j];
    }
    for (int64_t i = n / 4 * 4; i < n; i++)
        sums[0] += a[i] * b[i];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* HSIC of two prepared kernels; NaN if one is not finite. */
static inline double hl_kernels_alike(const double *a, const double *b, int64_t n)
{
    double entries = hl_dot_of_doubles(a, b, n * n);
    double rows    = hl_dot_of_doubles(a + n * n, b + n * n, n);

    return hl_hsic(entries, rows, a[n * n + n], b[n * n + n], n);
}

#endif
