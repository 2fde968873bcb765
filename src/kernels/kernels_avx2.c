/* kernels_avx2.c - the back end for AVX2 with FMA and F16C: the vector kernels, compiled for it. */
#include "kernels/attention_backward.h"
#include "kernels/attention_forward.h"
#include "kernels/attention_received.h"
#include "kernels/int8_dot_avx2.h"
#include "kernels/kernels.h"
#include "kernels/quant.h"

void hl_int8_dot_avx2(const hl_int8_dot *dot)
{
    int8_dot(dot);
}

const hl_kernels hl_kernels_avx2 = {
    .name               = "avx2",
    .attention_forward  = attention_forward,
    .attention_backward = attention_backward,
    .attention_received = attention_received,
    .dequantize         = hl_dequantize_avx2,
    .dense              = &hl_dense_avx2,
    .int8_dot           = hl_int8_dot_avx2,
};
