/* kernels.h - a back end is a table of functions, one table per instruction set.
 *
 * The scalar table is the definition, written to be read; every other table must agree with it
 * (tests/test_*_agreement.c).  The functions receive checked and completed arguments and check
 * nothing. */
#ifndef HL_KERNELS_KERNELS_H
#define HL_KERNELS_KERNELS_H

#include "headlight/attention.h"
#include "headlight/session.h"
#include "kernels/dense.h"
#include "kernels/int8.h"
#include "kernels/packed.h"

typedef struct hl_kernels {
    const char *name;
    hl_status (*attention_forward)(const hl_attention_result *result, const hl_attention *problem);
    hl_status (*attention_backward)(const hl_attention_gradient *gradient,
                                    const hl_attention          *problem,
                                    const hl_attention_upstream *upstream);
    /* received (n_batch, n_heads, n_keys); of the queries from first_query on. */
    hl_status (*attention_received)(float *received, const hl_attention *problem, const float *lse,
                                    int64_t first_query);
    /* Converts blocks of F16, BF16 or a block type to floats (quant.h). */
    void (*dequantize)(float *out, hl_dtype dtype, const void *source, size_t n_blocks);
    /* Norms, RoPE, activations and dot products (dense.h). */
    const hl_dense *dense;
    /* Dot products with activations of 8 bits (int8.h), or NULL. */
    void (*int8_dot)(const hl_int8_dot *dot);
    /* Products of many rows (packed.h), or NULL: then gemm.h has them. */
    const hl_packed *packed;
} hl_kernels;

extern const hl_kernels hl_kernels_scalar;
extern const hl_kernels hl_kernels_avx2;   /* AVX2 with FMA and F16C    */
extern const hl_kernels hl_kernels_avx512; /* AVX-512 F, BW, DQ and VL  */
extern const hl_kernels hl_kernels_neon;

/* The back end "cuda" has attention on an NVIDIA GPU, and the rest from the table `cpu`.  It lives in
 * libheadlight_cuda.so (kernels/cuda/), which `make CUDA=1` builds and cuda.c opens when it is first
 * requested.  Without the library or a GPU the call returns HL_NOT_FOUND, and the message says which
 * is missing. */
hl_status hl_cuda_kernels(const hl_kernels **out, const hl_kernels *cpu);

/* Returns the table in use: the best for this CPU, unless HEADLIGHT_BACKEND or hl_backend_select
 * chose another.  Fails only if HEADLIGHT_BACKEND names a table that does not exist. */
hl_status hl_kernels_current(const hl_kernels **out);

/* Fails if the table in use cannot multiply in this mode. */
hl_status hl_math_check(hl_math math);

/* The mode of sessions that do not name one.  Fails if HEADLIGHT_MATH is not a mode. */
hl_status hl_math_selected(hl_math *out);

/* What hl_repack_allow said last. */
bool hl_repack_is_allowed(void);

#endif
