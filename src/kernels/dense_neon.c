/* dense_neon.c - norms, RoPE, activations and dot products, compiled for NEON. */
#include "kernels/dense_products.h"
#include "kernels/dense_vector.h"
#include "kernels/mixer_vector.h"

const hl_dense hl_dense_neon = {
    .norm       = dense_norm,
    .rotate     = dense_rotate,
    .activate   = dense_activate,
    .sparsify   = dense_sparsify,
    .dot        = dense_dot,
    .combine    = dense_combine,
    .dots_exact = dense_dots_exact,
    .exp_exact  = dense_exp_exact,
    .conv       = dense_conv,
    .scan       = dense_scan,
    .predict    = dense_predict,
    .correct    = dense_correct,
    .match      = dense_match,

    .multiply_adds = dense_multiply_adds,
    .n_chains      = VL * PEAK_CHAINS,
};
