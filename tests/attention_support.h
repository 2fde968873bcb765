/* attention_support.h - a small problem that tests make invalid in one place. */
#ifndef HL_TESTS_ATTENTION_SUPPORT_H
#define HL_TESTS_ATTENTION_SUPPORT_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "attention_cases.h"

enum { S = 24, D = 16, H = 2 };

static float q[H * S * D], k[H * S * D], v[H * S * D], out[H * S * D], grad[H * S * D];
static float lse[H * S], entropy[H * S];

static inline void fill(float *values, size_t count, uint32_t state)
{
    for (size_t i = 0; i < count; i++) {
        state     = state * 1664525u + 1013904223u;
        values[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
    }
}

static inline hl_attention plain_problem(void)
{
    fill(q, H * S * D, 1);
    fill(k, H * S * D, 2);
    fill(v, H * S * D, 3);
    fill(grad, H * S * D, 4);
    return (hl_attention){
        .n_batch    = 1,
        .n_heads    = H,
        .n_kv_heads = H,
        .n_queries  = S,
        .n_keys     = S,
        .d_head     = D,
        .d_value    = D,
        .q          = { .data = q },
        .k          = { .data = k },
        .v          = { .data = v },
        .flags      = HL_ATTENTION_CAUSAL,
    };
}

static inline hl_attention_result plain_result(void)
{
    return (hl_attention_result){ .out = { .data = out }, .lse = lse, .entropy = entropy };
}

#endif
