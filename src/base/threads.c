/* threads.c - the number of threads, from the caller or from OpenMP. */
#include "base/threads.h"

#include <omp.h>

int hl_threads(int32_t wanted)
{
    int n_threads = wanted > 0 ? (int)wanted : omp_get_max_threads();
    if (n_threads < 1)
        return 1;
    return n_threads < HL_MAX_THREADS ? n_threads : HL_MAX_THREADS;
}

int hl_thread_index(void)
{
    return omp_get_thread_num();
}
