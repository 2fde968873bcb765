/* device_host_likeness.c - what heads write and how alike they are, in plain loops.
 *
 * The definition of what another device computes for hl_likeness of base/row_runs.h: products of
 * floats, added up in double. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "kernels/device_host.h"

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0.0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* ---------------------------------------------------------------- the stream */

hl_status hl_device_host_follow(hl_device *device, const hl_device_follow *f)
{
    (void)device;
    for (int64_t row = 0; row < f->n_rows; row++) {
        float       *kept = f->kept + row * f->n;
        const float *x    = f->x + row * f->n;

        if (f->index[row] < 0)
            continue;
        if (f->influence != NULL)
            f->influence[row] =
                1.0 - dot(kept, x, f->n) / sqrt(dot(kept, kept, f->n) * dot(x, x, f->n));
        memcpy(kept, x, (size_t)f->n * sizeof *kept);
    }
    return HL_OK;
}

/* ------------------------------------------------------------------- kernels */

/* The prepared kernel of a sequence and head: (n, n), the sums of its rows, and of all. */
static double *kernel_of(const hl_device_outputs *o, int64_t sequence, int64_t head)
{
    int64_t size = o->kernel_rows * o->kernel_rows + o->kernel_rows + 1;

    return o->kernels + (sequence * o->n_heads + head) * size;
}

static const float *z_of(const hl_device_outputs *o, int64_t row, int64_t head)
{
    return o->z + (row * o->n_heads + head) * o->d_head;
}

/* y = z G of one row. */
static void multiply(float *y, const hl_device_outputs *o, int64_t row, int64_t head)
{
    int64_t      d    = o->d_head;
    const float *z    = z_of(o, row, head);
    const float *gram = o->gram + head * d * d;

    memset(y, 0, (size_t)d * sizeof *y);
    for (int64_t k = 0; k < d; k++) {
        for (int64_t j = 0; j < d; j++)
            y[j] += z[k] * gram[k * d + j];
    }
}

/* The rows that a sequence has, by their places in (B, n_sampled). */
static int64_t list_rows(int64_t *out, const hl_device_outputs *o, int64_t sequence)
{
    int64_t n = 0;

    for (int64_t i = 0; i < o->n_sampled; i++) {
        if (o->index[sequence * o->n_sampled + i] >= 0)
            out[n++] = sequence * o->n_sampled + i;
    }
    return n;
}

/* NaN in the sum of all tells that a kernel is not finite. */
static void prepare_kernel(double *kernel, int64_t n)
{
    double *sums  = kernel + n * n;
    double  trace = 0.0;

    for (int64_t i = 0; i < n; i++)
        trace += kernel[i * n + i];
    memset(sums, 0, (size_t)(n + 1) * sizeof *sums);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n; j++) {
            /* The trace bounds all entries; a head that writes nothing has a trace of 0. */
            kernel[i * n + j] = i == j || !(trace > 0.0) ? 0.0 : kernel[i * n + j] / trace;
            sums[i] += kernel[i * n + j];
        }
        sums[n] += sums[i];
    }
    if (!isfinite(trace) || !isfinite(sums[n]))
        sums[n] = (double)NAN;
}

static void write_head(const hl_device_outputs *o, int64_t sequence, int64_t head, int64_t *rows,
                       float *y)
{
    double *kernel = kernel_of(o, sequence, head);
    int64_t n_rows = list_rows(rows, o, sequence);
    int64_t n      = n_rows < o->kernel_rows ? n_rows : o->kernel_rows;
    int64_t step   = n > 0 ? n_rows / n : 1;

    for (int64_t i = 0; i < n_rows; i++) {
        multiply(y, o, rows[i], head);
        o->squares[head * o->n_batch * o->n_sampled + rows[i]] =
            dot(y, z_of(o, rows[i], head), o->d_head);
        if (i % step != 0 || i / step >= n)
            continue;
        for (int64_t j = 0; j <= i / step; j++) {
            double product = dot(y, z_of(o, rows[j * step], head), o->d_head);

            kernel[i / step * n + j] = product;
            kernel[j * n + i / step] = product;
        }
    }
    prepare_kernel(kernel, n);
}

static double hsic(const double *a, const double *b, int64_t n)
{
    double both = 0.0;
    double rows = 0.0;
    double all  = a[n * n + n] * b[n * n + n] / (double)((n - 1) * (n - 2));

    for (int64_t i = 0; i < n * n; i++)
        both += a[i] * b[i];
    for (int64_t i = 0; i < n; i++)
        rows += a[n * n + i] * b[n * n + i];
    return both + all - 2.0 / (double)(n - 2) * rows;
}

/* Too few rows have no estimate. */
static void compare_heads(const hl_device_outputs *o, int64_t sequence, int64_t n)
{
    int64_t n_heads = o->n_heads;
    double *out     = o->alike + sequence * (n_heads * (n_heads + 1) / 2);

    for (int64_t a = 0; a < n_heads; a++) {
        for (int64_t b = a; b < n_heads; b++)
            *out++ =
                n < 3 ? (double)NAN : hsic(kernel_of(o, sequence, a), kernel_of(o, sequence, b), n);
    }
}

hl_status hl_device_host_outputs(hl_device *device, int lane, const hl_device_outputs *o)
{
    hl_status status = HL_OK;
    int64_t  *rows   = NULL;
    float    *y      = NULL;
    (void)device;
    (void)lane;

    HL_TRY(HL_ALLOC(&rows, (size_t)o->n_sampled));
    HL_TRY(HL_ALLOC(&y, (size_t)o->d_head));
    for (int64_t sequence = 0; sequence < o->n_batch; sequence++) {
        int64_t n = list_rows(rows, o, sequence);

        for (int64_t head = 0; head < o->n_heads; head++)
            write_head(o, sequence, head, rows, y);
        compare_heads(o, sequence, n < o->kernel_rows ? n : o->kernel_rows);
    }

done:
    hl_free(rows);
    hl_free(y);
    return status;
}

/* ----------------------------------------------------------------- distances */

static double distance(const float *a, const float *b, int64_t n)
{
    double sum = 0.0;

    for (int64_t i = 0; i < n; i++)
        sum += fabs((double)a[i] - (double)b[i]);
    return 0.5 * sum;
}

hl_status hl_device_host_distances(hl_device *device, int lane, const hl_device_distances *d)
{
    int64_t stride = d->n_patterns * d->n_keys; /* from a head to the next */
    double *out    = d->out;
    (void)device;
    (void)lane;

    for (int64_t row = 0; row < d->n_batch * d->n_patterns; row++) {
        int64_t      sequence = row / d->n_patterns;
        const float *p = d->p + sequence * d->n_heads * stride + row % d->n_patterns * d->n_keys;

        for (int64_t a = 0; a < d->n_heads; a++) {
            for (int64_t b = a + 1; b < d->n_heads; b++)
                *out++ = distance(p + a * stride, p + b * stride, d->n_keys);
        }
    }
    return HL_OK;
}

/* ---------------------------------------------------------------- whole rows */

hl_status hl_device_host_pattern_sums(hl_device *device, int lane, const hl_device_pattern_sums *s)
{
    hl_status        status  = HL_OK;
    hl_pattern_sums *out     = s->out;
    float           *scratch = NULL;
    (void)device;
    (void)lane;

    HL_TRY(HL_ALLOC(&scratch, (size_t)s->n_keys));
    for (int64_t row = 0; row < s->n_batch * s->n_patterns; row++) {
        int64_t first = row / s->n_patterns * s->n_heads; /* head of the sequence */

        for (int64_t head = 0; head < s->n_heads; head++, out++) {
            const float *p =
                s->p + ((first + head) * s->n_patterns + row % s->n_patterns) * s->n_keys;

            *out = (hl_pattern_sums){ 0 };
            if (s->places[row].keys.end > 0)
                hl_pattern_sum(out, p, &s->places[row], scratch);
        }
    }

done:
    hl_free(scratch);
    return status;
}
