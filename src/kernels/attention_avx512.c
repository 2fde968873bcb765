/* attention_avx512.c - the vector kernels, compiled for AVX-512 (F, BW, DQ, VL). */
#include "kernels/attention_backward.h"
#include "kernels/attention_forward.h"
#include "kernels/kernels.h"
#include "kernels/quant.h"

const hl_kernels hl_kernels_avx512 = {
    .name               = "avx512",
    .attention_forward  = attention_forward,
    .attention_backward = attention_backward,
    .dequantise         = hl_dequantise_avx2,
    .dense              = &hl_dense_avx512,
    .int8_dot           = hl_int8_dot_avx512,
};
