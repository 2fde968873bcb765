/* device_twins.h - the same memory on two devices, and comparisons of the results. */
#ifndef HL_TESTS_DEVICE_TWINS_H
#define HL_TESTS_DEVICE_TWINS_H

#include "support.h"

#include <math.h>

#include "base/dtype.h"
#include "kernels/device.h"

enum { HOST, CUDA, N_SIDES };

static const hl_device_ops *ops[N_SIDES];
static hl_device           *devices[N_SIDES];
static const hl_dtype       types[] = { HL_DTYPE_F32, HL_DTYPE_BF16, HL_DTYPE_F16 };

#define EACH_SIDE(side)  for (int side = 0; side < N_SIDES; side++)
#define EACH_TYPE(dtype) for (const hl_dtype *dtype = types; dtype < types + 3; dtype++)

/* ------------------------------------------------------------------- memory */

/* A block with the same bytes on both devices. */
typedef struct twin {
    void  *at[N_SIDES];
    size_t n_bytes;
} twin;

static inline void check_call(int side, hl_status status)
{
    if (status != HL_OK)
        fail_msg("%s: %s", ops[side]->name, ops[side]->error());
}

static inline twin twin_of(const void *bytes, size_t n_bytes)
{
    twin t = { .n_bytes = n_bytes };

    EACH_SIDE(side)
    {
        check_call(side, ops[side]->alloc(devices[side], &t.at[side], n_bytes));
        if (bytes != NULL)
            check_call(side, ops[side]->copy_in(devices[side], t.at[side], bytes, n_bytes));
        check_call(side, ops[side]->wait(devices[side]));
    }
    return t;
}

static inline float random_value(void)
{
    static uint64_t state = 7;

    state = state * 6364136223846793005U + 1442695040888963407U;
    return (float)(int32_t)(state >> 32) * 0x1p-30f;
}

/* n random values of a type, within +-2. */
static inline twin twin_rows(hl_dtype dtype, int64_t n)
{
    size_t size   = hl_dtype_bits(dtype) / 8;
    float *values = malloc((size_t)n * sizeof *values);
    void  *bytes  = malloc((size_t)n * size);

    for (int64_t i = 0; i < n; i++)
        values[i] = random_value();
    assert_ok(hl_dtype_from_f32(bytes, dtype, values, (size_t)n));
    twin t = twin_of(bytes, (size_t)n * size);
    free(values);
    free(bytes);
    return t;
}

static inline twin twin_indices(const int64_t *values, size_t n)
{
    return twin_of(values, n * sizeof *values);
}

static inline void twin_free(twin *t)
{
    EACH_SIDE(side) ops[side]->free(devices[side], t->at[side]);
}

static inline void *fetch(int side, const twin *t)
{
    void *bytes = malloc(t->n_bytes);

    check_call(side, ops[side]->copy_out(devices[side], 0, bytes, t->at[side], t->n_bytes));
    check_call(side, ops[side]->arrived(devices[side], 0));
    return bytes;
}

/* Returns the error of one rounding to the type, for values up to `most`. */
static inline float tolerance_of(hl_dtype dtype, float most)
{
    return most * (dtype == HL_DTYPE_F32 ? 2e-5f : (dtype == HL_DTYPE_BF16 ? 0x1p-7f : 0x1p-10f));
}

/* Compares n values from `first` on; `most` is the size of the inputs, since outputs may be smaller. */
static inline void compare_values(const char *what, const twin *t, hl_dtype stored,
                                  hl_dtype computed, float most, size_t first, size_t n)
{
    size_t size = hl_dtype_bits(stored) / 8;
    float *values[N_SIDES];
    float  worst = 0.0f;

    EACH_SIDE(side)
    {
        uint8_t *bytes = fetch(side, t);
        values[side]   = malloc(n * sizeof **values);
        assert_ok(hl_dtype_to_f32(values[side], bytes + first * size, stored, n));
        free(bytes);
    }
    for (size_t i = 0; i < n; i++) {
        float error = fabsf(values[HOST][i] - values[CUDA][i]);

        if (isnan(values[HOST][i]) != isnan(values[CUDA][i]))
            fail_msg("%s: %g and %g at %zu", what, (double)values[HOST][i], (double)values[CUDA][i],
                     i);
        most  = fmaxf(most, fabsf(values[HOST][i]));
        worst = fmaxf(worst, error);
    }
    printf("%-28s %-4s %.2e of %.2e\n", what, hl_dtype_name(computed), (double)worst, (double)most);
    if (!(worst <= tolerance_of(computed, most)))
        fail_msg("%s, %s: off by %g where the largest is %g", what, hl_dtype_name(computed),
                 (double)worst, (double)most);
    EACH_SIDE(side) free(values[side]);
}

static inline void compare_scaled(const char *what, const twin *t, hl_dtype stored,
                                  hl_dtype computed, float most)
{
    compare_values(what, t, stored, computed, most, 0, t->n_bytes / (hl_dtype_bits(stored) / 8));
}

/* Compares n values from `first` on: the others are padding. */
static inline void compare_part(const char *what, const twin *t, hl_dtype stored, int64_t first,
                                int64_t n)
{
    compare_values(what, t, stored, stored, 0.0f, (size_t)first, (size_t)n);
}

static inline void compare(const char *what, const twin *t, hl_dtype stored, hl_dtype computed)
{
    compare_scaled(what, t, stored, computed, 0.0f);
}

static inline void compare_bytes(const char *what, const twin *t)
{
    uint8_t *host = fetch(HOST, t), *cuda = fetch(CUDA, t);

    for (size_t i = 0; i < t->n_bytes; i++) {
        if (host[i] != cuda[i])
            fail_msg("%s: bytes differ at %zu of %zu", what, i, t->n_bytes);
    }
    free(host);
    free(cuda);
}

/* Compares doubles within `tolerance` of the largest; both must be finite at the same places. */
static inline void compare_doubles(const char *what, const twin *t, double tolerance)
{
    size_t  n    = t->n_bytes / sizeof(double);
    double *host = fetch(HOST, t), *cuda = fetch(CUDA, t), most = 0.0, worst = 0.0;

    for (size_t i = 0; i < n; i++) {
        if (isfinite(host[i]) != isfinite(cuda[i]))
            fail_msg("%s: %g and %g at %zu", what, host[i], cuda[i], i);
        if (!isfinite(host[i]))
            continue;
        most  = fmax(most, fabs(host[i]));
        worst = fmax(worst, fabs(host[i] - cuda[i]));
    }
    printf("%-28s      %.2e of %.2e\n", what, worst, most);
    if (!(most > 0.0) || !(worst <= tolerance * most))
        fail_msg("%s: off by %g where the largest is %g", what, worst, most);
    free(host);
    free(cuda);
}

/* ------------------------------------------------------------------- devices */

/* Opens both devices; returns false, with a message, if there is no GPU. */
static inline bool open_twins(void)
{
    static const hl_linear_pool pool           = { .n_threads = 4 };
    const char                 *names[N_SIDES] = { "host", "cuda" };

    EACH_SIDE(side)
    {
        if (hl_device_find(&ops[side], names[side]) != HL_OK ||
            ops[side]->open(&devices[side], &pool) != HL_OK) {
            printf("1..1\nok 1 - the GPU # SKIP %s\n",
                   ops[side] != NULL ? ops[side]->error() : hl_error_message());
            return false;
        }
    }
    return true;
}

static inline void close_twins(void)
{
    EACH_SIDE(side) ops[side]->close(devices[side]);
}

#endif
