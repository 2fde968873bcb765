/* quant_blocks.h - what the decoders of all instruction sets share.
 *
 * A decoder is a static function of one block, decode_q4_k(y, b).  A file of
 * decoders, one for each type, ends with
 *
 *     HL_EACH_BLOCK_TYPE(HL_BLOCK_LOOP)
 *     static const hl_block_loop loops[HL_DTYPE_COUNT] = HL_BLOCK_TABLE;
 *
 * the first of which makes loop_q4_k and so on: loops over runs of blocks, with
 * the decoders inlined. */
#ifndef HL_KERNELS_QUANT_BLOCKS_H
#define HL_KERNELS_QUANT_BLOCKS_H

#include <stdint.h>
#include <string.h>

#include "headlight/base.h"

/* The qualifiers of these functions; the CUDA library defines its own. */
#ifndef HL_BLOCK_INLINE
#define HL_BLOCK_INLINE static inline
#endif
#ifndef HL_PARITY
#define HL_PARITY __builtin_parity
#endif

typedef void (*hl_block_loop)(float *y, const uint8_t *b, size_t n_blocks);

/* X(type, TYPE, values, bytes) for every block type. */
#define HL_EACH_BLOCK_TYPE(X)                                                                      \
    X(q4_0, Q4_0, 32, 18)                                                                          \
    X(q4_1, Q4_1, 32, 20)                                                                          \
    X(q5_0, Q5_0, 32, 22)                                                                          \
    X(q5_1, Q5_1, 32, 24)                                                                          \
    X(q8_0, Q8_0, 32, 34)                                                                          \
    X(q2_k, Q2_K, 256, 84)                                                                         \
    X(q3_k, Q3_K, 256, 110)                                                                        \
    X(q4_k, Q4_K, 256, 144)                                                                        \
    X(q5_k, Q5_K, 256, 176)                                                                        \
    X(q6_k, Q6_K, 256, 210)                                                                        \
    X(iq1_s, IQ1_S, 256, 50)                                                                       \
    X(iq2_xxs, IQ2_XXS, 256, 66)                                                                   \
    X(iq2_xs, IQ2_XS, 256, 74)                                                                     \
    X(iq2_s, IQ2_S, 256, 82)                                                                       \
    X(iq3_xxs, IQ3_XXS, 256, 98)                                                                   \
    X(iq3_s, IQ3_S, 256, 110)                                                                      \
    X(iq4_nl, IQ4_NL, 32, 18)                                                                      \
    X(iq4_xs, IQ4_XS, 256, 136)                                                                    \
    X(tq1_0, TQ1_0, 256, 54)                                                                       \
    X(tq2_0, TQ2_0, 256, 66)                                                                       \
    X(mxfp4, MXFP4, 32, 17)                                                                        \
    X(iq1_m, IQ1_M, 256, 56)                                                                       \
    X(q1_0, Q1_0, 128, 18)                                                                         \
    X(q2_0, Q2_0, 64, 18)

#define HL_BLOCK_LOOP(type, TYPE, n_values, n_bytes)                                               \
    static void loop_##type(float *y, const uint8_t *b, size_t n_blocks)                           \
    {                                                                                              \
        for (; n_blocks > 0; n_blocks--, y += (n_values), b += (n_bytes))                          \
            decode_##type(y, b);                                                                   \
    }

/* The table of the loops.  16-bit floats count as blocks of one value. */
#define HL_BLOCK_ENTRY(type, TYPE, n_values, n_bytes) [HL_DTYPE_##TYPE] = loop_##type,
#define HL_BLOCK_TABLE                                                                             \
    {                                                                                              \
        [HL_DTYPE_F16] = loop_f16, [HL_DTYPE_BF16] = loop_bf16, HL_EACH_BLOCK_TYPE(HL_BLOCK_ENTRY) \
    }

/* Reads a little-endian and possibly unaligned number. */
HL_BLOCK_INLINE uint16_t hl_read_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

HL_BLOCK_INLINE uint32_t hl_read_u32(const uint8_t *p)
{
    return (uint32_t)hl_read_u16(p) | (uint32_t)hl_read_u16(p + 2) << 16;
}

/* MXFP4's scale, 2^(e - 128): the values are stored doubled, so it is halved.
 * The lowest two are subnormal. */
HL_BLOCK_INLINE float hl_e8m0_half(uint8_t e)
{
    uint32_t bits = e < 2 ? 0x00200000U << e : (uint32_t)(e - 1) << 23;
    float    value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Q4_K's and Q5_K's eight scales and eight minima of 6 bits in 12 bytes.  The
 * first four of each lie in the low 6 bits of bytes 0..3 and 4..7; the last four
 * have their low 4 bits in the nibbles of bytes 8..11, and their high 2 bits on
 * top of bytes 0..3 and 4..7. */
HL_BLOCK_INLINE void hl_unpack_k_scales(uint8_t scale[8], uint8_t minimum[8],
                                        const uint8_t packed[12])
{
    for (int i = 0; i < 4; i++) {
        scale[i]       = packed[i] & 63;
        minimum[i]     = packed[i + 4] & 63;
        scale[i + 4]   = (uint8_t)((packed[i + 8] & 15) | (packed[i] >> 6) << 4);
        minimum[i + 4] = (uint8_t)((packed[i + 8] >> 4) | (packed[i + 4] >> 6) << 4);
    }
}

/* Q3_K's sixteen scales of 6 bits in 12 bytes: low nibbles of bytes 0..7, then
 * their high nibbles; two more bits each from bytes 8..11, four times. */
HL_BLOCK_INLINE void hl_unpack_q3_k_scales(int8_t scale[16], const uint8_t packed[12])
{
    for (int i = 0; i < 16; i++) {
        int low  = i < 8 ? packed[i] & 15 : packed[i - 8] >> 4;
        int high = packed[8 + i % 4] >> (2 * (i / 4)) & 3;
        scale[i] = (int8_t)((low | high << 4) - 32);
    }
}

/* IQ1_M's scale, an f16: 4 bits of it on top of each of the four words of scales, lowest first. */
HL_BLOCK_INLINE uint16_t hl_iq1_m_scale(const uint8_t scales[8])
{
    return (uint16_t)(scales[1] >> 4 | (scales[3] >> 4) << 4 | (scales[5] >> 4) << 8 |
                      (scales[7] >> 4) << 12);
}

/* Seven sign bits stand for eight: the eighth makes the number of set bits even. */
HL_BLOCK_INLINE uint8_t hl_even_signs(uint32_t seven)
{
    return (uint8_t)(seven | (uint32_t)HL_PARITY(seven) << 7);
}

/* The values of 4-bit codes. */
#define HL_IQ4_VALUES                                                                              \
    {                                                                                              \
        -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113                   \
    }
#define HL_FP4_VALUES                                                                              \
    {                                                                                              \
        0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12                                    \
    } /* the values are doubled */

#endif
