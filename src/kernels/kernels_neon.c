/* kernels_neon.c - the back end for NEON: the vector kernels, compiled for it. */
#include "kernels/attention_backward.h"
#include "kernels/attention_forward.h"
#include "kernels/attention_received.h"
#include "kernels/kernels.h"
#include "kernels/quant.h"

const hl_kernels hl_kernels_neon = {
    .name               = "neon",
    .attention_forward  = attention_forward,
    .attention_backward = attention_backward,
    .attention_received = attention_received,
    .dequantize         = hl_dequantize_scalar,
    .dense              = &hl_dense_neon,
};
