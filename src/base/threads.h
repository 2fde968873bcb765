/* threads.h - how many OpenMP threads to use. */
#ifndef HL_BASE_THREADS_H
#define HL_BASE_THREADS_H

#include "headlight.h"

/* `wanted` if positive, else what OpenMP would use (OMP_NUM_THREADS, the cores
 * this process may run on); never below 1 nor above HL_MAX_THREADS. */
#define HL_MAX_THREADS 1024
int hl_threads(int32_t wanted);
/* The calling thread's number inside a parallel region, from 0. */
int hl_thread_index(void);

#endif
