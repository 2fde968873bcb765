/* peak.h - the peak speed of this machine: fused multiply-adds and nothing else.
 *
 * Each function runs chains of independent multiply-adds in registers on all threads for about 20
 * ms and returns GFLOP/s, counting two for each lane.  Call them only if the CPU has the
 * instruction set. */
#ifndef HL_BENCH_PEAK_H
#define HL_BENCH_PEAK_H

double hl_peak_avx2(int n_threads);
double hl_peak_avx512(int n_threads);

#endif
