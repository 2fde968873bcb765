/* family_ernie.c - ERNIE 4.5: a Llama with rotary pairs side by side. */
#include "base/status.h"
#include "model/family.h"

#define ERNIE_DEFAULTS                                                                             \
    .position = HL_POSITION_ROPE,                                                                  \
    .ropes = { [HL_ROPE_MAIN] = { .base = 500000, .interleaved = true } }, .norm = HL_NORM_RMS,    \
    .norm_eps = 1e-5, .activation = HL_ACTIVATION_SILU, .gated = true, .tied = true

static const hl_field ernie_fields[] = {
    { "use_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O | HL_BIAS_MLP) },
    { 0 },
};

/* The class's default; GGUF's is d_model / n_heads. */
static hl_status describe_ernie(hl_config *config, const hl_fields *fields)
{
    if (fields->object != NULL && config->d_head == 0)
        config->d_head = 128;
    return HL_OK;
}

const hl_family hl_family_ernie4_5 = {
    .name          = "ernie4_5",
    .model_types   = "ernie4_5",
    .architectures = "ernie4_5",
    .prefixes      = "model.|",
    .defaults      = { ERNIE_DEFAULTS },
    .fields        = ernie_fields,
    .describe      = describe_ernie,
    .tensors       = { hl_llama_tensors },
};
