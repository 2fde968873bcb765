/* gemm.c - the one file that knows OpenBLAS.
 *
 * It is opened when first needed, not linked.  OpenBLAS chooses its kernels when it is loaded, by a
 * list of processors that ends where its release does: on a newer one it falls back to SSE3, a
 * quarter of the speed (0.3.21 on Sapphire Rapids: 22 GFLOP/s, 86 with the right ones).
 * OPENBLAS_CORETYPE in the environment overrides its choice.  While the library is loaded, that
 * variable is set from the CPU's features, unless the user has set it.
 *
 * Many threads call it at a time, and each call must run on the calling thread alone.  The pthread
 * build does so after openblas_set_num_threads(1).  The OpenMP build asks OpenMP at each call; that
 * number belongs to the calling thread, and others (PyTorch) may rely on it, so it is 1 only during
 * the call.  The OpenMP functions are those of the copy that OpenBLAS has loaded. */
#include "kernels/gemm.h"

#include <cblas.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"
#include "base/status.h"
#include "kernels/kernels.h"

static pthread_once_t           opened = PTHREAD_ONCE_INIT;
static __typeof__(cblas_sgemm) *sgemm; /* NULL: OpenBLAS is not available */
static __typeof__(cblas_dgemm) *dgemm;
/* LAPACK's, as Fortran calls them: a matrix by columns, so that ours is its transpose. */
static void (*dpotrf)(const char *part, const blasint *n, double *a, const blasint *stride,
                      blasint *info);
static void (*dpotrs)(const char *part, const blasint *n, const blasint *n_columns, const double *a,
                      const blasint *stride, double *b, const blasint *b_stride, blasint *info);
static void (*dpotri)(const char *part, const blasint *n, double *a, const blasint *stride,
                      blasint *info);
static const char *core_name = "";
/* NULL unless OpenBLAS was built with OpenMP */
static int (*omp_max_threads)(void);
static void (*omp_use_threads)(int);

/* ------------------------------------------------------------------- opening */

static void *open_library(void)
{
    static const char *const names[] = { "libopenblas.so.0", "libopenblas.so",
                                         "libopenblas.dylib" };
    void                    *library = NULL;

    for (size_t i = 0; i < sizeof names / sizeof *names && library == NULL; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

static const char *core_type(void)
{
    const hl_cpu *cpu = hl_cpu_features();
    return cpu->avx512 ? "SkylakeX" : (cpu->avx2 ? "Haswell" : NULL);
}

/* Finds a function.  dlsym returns void *, which ISO C does not convert to a function pointer. */
static void find_function(void *out, void *library, const char *name)
{
    void *address = dlsym(library, name);
    memcpy(out, &address, sizeof address);
}

static void use_library(void *library)
{
    __typeof__(openblas_get_parallel)    *get_parallel    = NULL;
    __typeof__(openblas_set_num_threads) *set_num_threads = NULL;
    __typeof__(openblas_get_corename)    *get_corename    = NULL;

    find_function(&sgemm, library, "cblas_sgemm");
    find_function(&dgemm, library, "cblas_dgemm");
    find_function(&dpotrf, library, "dpotrf_");
    find_function(&dpotrs, library, "dpotrs_");
    find_function(&dpotri, library, "dpotri_");
    find_function(&get_parallel, library, "openblas_get_parallel");
    find_function(&set_num_threads, library, "openblas_set_num_threads");
    find_function(&get_corename, library, "openblas_get_corename");
    if (get_parallel != NULL && set_num_threads != NULL && get_parallel() == OPENBLAS_THREAD)
        set_num_threads(1);
    if (get_parallel != NULL && get_parallel() == OPENBLAS_OPENMP) {
        find_function(&omp_max_threads, library, "omp_get_max_threads");
        find_function(&omp_use_threads, library, "omp_set_num_threads");
    }
    if (get_corename != NULL)
        core_name = get_corename();
}

static void open_once(void)
{
    static const char variable[] = "OPENBLAS_CORETYPE";
    bool              is_ours    = getenv(variable) == NULL && core_type() != NULL;

    if (is_ours)
        setenv(variable, core_type(), 1);
    void *library = open_library();
    if (is_ours)
        unsetenv(variable);
    if (library != NULL)
        use_library(library);
    if (sgemm == NULL)
        hl_log(HL_LOG_WARNING, "libopenblas was not found; long sequences are slower without it");
}

const char *hl_gemm_name(void)
{
    pthread_once(&opened, open_once);
    return core_name;
}

/* --------------------------------------------------------------- multiplying */

/* Makes OpenBLAS work on the calling thread alone; returns what is to be given to end_alone. */
static int begin_alone(void)
{
    bool is_omp    = omp_max_threads != NULL && omp_use_threads != NULL;
    int  n_threads = is_omp ? omp_max_threads() : 1;

    if (n_threads > 1)
        omp_use_threads(1);
    return n_threads;
}

static void end_alone(int n_threads)
{
    if (n_threads > 1)
        omp_use_threads(n_threads);
}

static void multiply(const hl_gemm_operands *o)
{
    sgemm(CblasRowMajor, CblasNoTrans, o->b_transposed ? CblasTrans : CblasNoTrans, (blasint)o->m,
          (blasint)o->n, (blasint)o->k, 1.0f, o->a, (blasint)o->a_stride, o->b,
          (blasint)o->b_stride, 0.0f, o->c, (blasint)o->c_stride);
}

static void plain_columns(const hl_dense *dense, const hl_gemm_operands *o)
{
    for (int64_t column = 0; column < o->n; column++) {
        const void *w = o->b + column * o->b_stride;

        dense->dot(&(hl_dot){ .out        = o->c + column,
                              .out_stride = o->c_stride,
                              .x          = o->a,
                              .x_stride   = o->a_stride,
                              .n_rows     = o->m,
                              .w          = &w,
                              .dtype      = HL_DTYPE_F32,
                              .n_weights  = 1,
                              .n          = o->k });
    }
}

static void plain_rows(const hl_dense *dense, const hl_gemm_operands *o)
{
    for (int64_t row = 0; row < o->m; row++) {
        float *out = o->c + row * o->c_stride;

        memset(out, 0, (size_t)o->n * sizeof *out);
        dense->combine(&(hl_combine){ .out      = out,
                                      .x        = o->a + row * o->a_stride,
                                      .n_outs   = 1,
                                      .n_rows   = o->k,
                                      .w        = o->b,
                                      .w_stride = o->b_stride,
                                      .dtype    = HL_DTYPE_F32,
                                      .n        = o->n });
    }
}

void hl_gemm_plain(const hl_gemm_operands *operands)
{
    const hl_kernels *kernels = &hl_kernels_scalar;

    (void)hl_kernels_current(&kernels); /* if this fails, the scalar kernels are also correct */
    if (operands->b_transposed)
        plain_columns(kernels->dense, operands);
    else
        plain_rows(kernels->dense, operands);
}

void hl_gemm(const hl_gemm_operands *operands)
{
    pthread_once(&opened, open_once);
    if (sgemm == NULL) {
        hl_gemm_plain(operands);
        return;
    }
    int n_threads = begin_alone();
    multiply(operands);
    end_alone(n_threads);
}

/* ---------------------------------------------------------------- in double, and LAPACK */

hl_status hl_lapack_check(void)
{
    pthread_once(&opened, open_once);
    if (dgemm != NULL && dpotrf != NULL && dpotrs != NULL && dpotri != NULL)
        return HL_OK;
    return hl_fail(HL_UNSUPPORTED,
                   "%s: least squares are solved by libopenblas.so.0 with LAPACK (Debian and "
                   "Ubuntu: libopenblas0)",
                   sgemm == NULL ? "there is no OpenBLAS here"
                                 : "the OpenBLAS that is here has no LAPACK");
}

void hl_gemm_add(const hl_gemm_sum *o)
{
    int n_threads = begin_alone();

    dgemm(CblasRowMajor, o->a_transposed ? CblasTrans : CblasNoTrans, CblasNoTrans, (blasint)o->m,
          (blasint)o->n, (blasint)o->k, o->factor, o->a, (blasint)o->a_stride, o->b,
          (blasint)o->b_stride, 1.0, o->c, (blasint)o->c_stride);
    end_alone(n_threads);
}

hl_status hl_cholesky_factor(double *a, int64_t n)
{
    blasint order = (blasint)n, info = 0;
    int     n_threads = begin_alone();

    if (n > 0)
        dpotrf("U", &order, a, &order, &info);
    end_alone(n_threads);
    return info == 0 ? HL_OK
                     : hl_fail(HL_BAD_INPUT, "a matrix of %lld rows is not positive definite at %d",
                               (long long)n, (int)info);
}

void hl_cholesky_solve(double *x, int64_t n_rows, const double *factor, int64_t n)
{
    blasint order = (blasint)n, count = (blasint)n_rows, info = 0;
    int     n_threads = begin_alone();

    if (n > 0 && n_rows > 0)
        dpotrs("U", &order, &count, factor, &order, x, &order, &info);
    end_alone(n_threads);
}

hl_status hl_cholesky_invert(double *factor, int64_t n)
{
    blasint order = (blasint)n, info = 0;
    int     n_threads = begin_alone();

    if (n > 0)
        dpotri("U", &order, factor, &order, &info);
    end_alone(n_threads);
    return info == 0 ? HL_OK
                     : hl_fail(HL_BAD_INPUT, "a matrix of %lld rows cannot be inverted at %d",
                               (long long)n, (int)info);
}
