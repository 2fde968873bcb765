/* kernels.h - a back end is a table of functions, one table an instruction set.
 *
 * The scalar table is the definition, written to be read; every other table
 * must agree with it (tests/test_*_agreement.c).  Tables get arguments
 * that have been checked and completed, and do no checks of their own. */
#ifndef HL_KERNELS_KERNELS_H
#define HL_KERNELS_KERNELS_H

#include "headlight/attention.h"
#include "kernels/dense.h"
#include "kernels/int8.h"

typedef struct hl_kernels {
    const char *name;
    hl_status (*attention_forward)(const hl_attention_result *result, const hl_attention *problem);
    hl_status (*attention_backward)(const hl_attention_gradient *gradient,
                                    const hl_attention          *problem,
                                    const hl_attention_upstream *upstream);
    /* Blocks of F16, BF16 or a block type to values; in quant.h. */
    void (*dequantize)(float *out, hl_dtype dtype, const void *source, size_t n_blocks);
    /* Norms, RoPE, activations, dot products; in dense.h. */
    const hl_dense *dense;
    /* Dot products with activations of 8 bits; in int8.h.  NULL: it has none. */
    void (*int8_dot)(const hl_int8_dot *dot);
} hl_kernels;

extern const hl_kernels hl_kernels_scalar;
extern const hl_kernels hl_kernels_avx2;   /* AVX2 with FMA and F16C    */
extern const hl_kernels hl_kernels_avx512; /* AVX-512 F, BW, DQ and VL  */
extern const hl_kernels hl_kernels_neon;

/* The table in use: the best this CPU has, unless HEADLIGHT_BACKEND or
 * hl_backend_select chose another.  Fails only for a name that is not there. */
hl_status hl_kernels_current(const hl_kernels **out);

#endif
