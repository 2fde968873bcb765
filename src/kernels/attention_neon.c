/* attention_neon.c - the vector kernels, compiled for NEON. */
#include "kernels/attention_backward.h"
#include "kernels/attention_forward.h"
#include "kernels/kernels.h"

const hl_kernels hl_kernels_neon = {
    .name               = "neon",
    .attention_forward  = attention_forward,
    .attention_backward = attention_backward,
};
