/* neighbors.h - are we alone on this machine? */
#ifndef HL_BENCH_NEIGHBORS_H
#define HL_BENCH_NEIGHBORS_H

#define HL_BUSY 0.1 /* beyond this share, neighbors are measured as well */

/* How much of the CPUs is in use while we do nothing, for half a second; 0 where
 * Linux is not. */
double hl_share_in_use(void);

#endif
