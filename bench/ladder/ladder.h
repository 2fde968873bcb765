/* ladder.h - what the steps of the ladder share: the problem, and their names.
 *
 * Causal attention over packed bf16 rows, with Shannon and Renyi-2 entropy.  Each step is a
 * file, NUMBER_name.cu, that defines run_NUMBER; driver.cu checks and times them all. */
#ifndef HL_LADDER_H
#define HL_LADDER_H

#include <cuda_bf16.h>

struct ladder_problem {
    const __nv_bfloat16 *q, *k, *v; /* (n_heads, length, d) */
    __nv_bfloat16       *out;       /* (n_heads, length, d) */
    float               *lse;       /* (n_heads, length)    */
    float               *entropy;
    float               *renyi2;
    int                  n_heads, length, d; /* length a multiple of 128; d 64 or 128 */
    float                scale;
};

void run_1(const ladder_problem &p);
void run_2(const ladder_problem &p);
void run_3(const ladder_problem &p);
void run_4(const ladder_problem &p);
void run_5(const ladder_problem &p);
void run_6(const ladder_problem &p);
void run_7(const ladder_problem &p);
void run_8(const ladder_problem &p);
void run_9(const ladder_problem &p);
void run_9_without(const ladder_problem &p); /* no statistics but lse */

/* Launches KERNEL<64> or KERNEL<128>. */
#define LADDER_BY_WIDTH(p, LAUNCH)                                                                 \
    do {                                                                                           \
        if ((p).d == 64)                                                                           \
            LAUNCH<64>(p);                                                                         \
        else                                                                                       \
            LAUNCH<128>(p);                                                                        \
    } while (0)

#endif
