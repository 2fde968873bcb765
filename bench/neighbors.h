/* neighbors.h - detects other load on this machine. */
#ifndef HL_BENCH_NEIGHBORS_H
#define HL_BENCH_NEIGHBORS_H

#define HL_BUSY 0.1 /* above this share, other load distorts the measurements */

/* The share of the CPUs used by others, measured for half a second; 0 if the system is not
 * Linux. */
double hl_share_in_use(void);

#endif
