/* kernels_avx512.c - the back end for AVX-512 (F, BW, DQ, VL): the vector kernels, compiled for it. */
#include "base/machine.h"
#include "kernels/attention_backward.h"
#include "kernels/attention_forward.h"
#include "kernels/attention_received.h"
#define INT8_VNNI
#include "kernels/int8_dot_avx2.h"
#include "kernels/int8_dot_avx512.h"
#include "kernels/kernels.h"
#include "kernels/quant.h"

/* The first CPUs with AVX-512 lack VNNI. */
void hl_int8_dot_avx512(const hl_int8_dot *dot)
{
    if (!hl_cpu_features()->vnni)
        hl_int8_dot_avx2(dot);
    else if (!int8_dot_wide(dot))
        int8_dot(dot);
}

const hl_kernels hl_kernels_avx512 = {
    .name               = "avx512",
    .attention_forward  = attention_forward,
    .attention_backward = attention_backward,
    .attention_received = attention_received,
    .dequantize         = hl_dequantize_avx2,
    .dense              = &hl_dense_avx512,
    .int8_dot           = hl_int8_dot_avx512,
    .packed             = &hl_packed_avx512,
};
