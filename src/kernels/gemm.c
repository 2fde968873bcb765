/* gemm.c - the one file that knows OpenBLAS.
 *
 * Its OpenMP build works on one thread when it is called inside a parallel
 * region, else on as many as OpenMP would use; its pthread build on as many as
 * openblas_set_num_threads says.  hl_gemm is right with either. */
#include "kernels/gemm.h"

#include <cblas.h>
#include <omp.h>
#include <pthread.h>

static pthread_once_t limited = PTHREAD_ONCE_INIT;

static void limit_threads(void)
{
    if (openblas_get_parallel() == OPENBLAS_THREAD)
        openblas_set_num_threads(1);
}

static void multiply(const hl_gemm_operands *o)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, o->b_transposed ? CblasTrans : CblasNoTrans,
                (blasint)o->m, (blasint)o->n, (blasint)o->k, 1.0f, o->a, (blasint)o->a_stride, o->b,
                (blasint)o->b_stride, 0.0f, o->c, (blasint)o->c_stride);
}

void hl_gemm(const hl_gemm_operands *operands)
{
    pthread_once(&limited, limit_threads);
    if (omp_in_parallel()) {
        multiply(operands);
        return;
    }
    int n_threads = omp_get_max_threads();
    omp_set_num_threads(1);
    multiply(operands);
    omp_set_num_threads(n_threads);
}
