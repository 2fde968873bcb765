/* quant_decoders.h - what every block of GGUF's quantized types means.
 *
 * A block is 32 to 256 values that share their scales.  d (and m, dmin) are
 * f16; q is the stored number, y the value.  [n] after a field are its bytes.
 *
 *     type      layout                                       value
 *     Q1_0      d qs[16]                                     +-d, 128 values of a bit
 *     Q2_0      d qs[16]                                     d (q - 1), 64 values
 *     Q4_0      d qs[16]                                     d (q - 8)
 *     Q4_1      d m qs[16]                                   d q + m
 *     Q5_0      d qh[4] qs[16]                               d (q - 16)
 *     Q5_1      d m qh[4] qs[16]                             d q + m
 *     Q8_0      d qs[32]                                     d q
 *     Q2_K      scales[16] qs[64] d dmin                     d sc q - dmin mn
 *     Q3_K      hmask[32] qs[64] scales[12] d                d sc (q - 4)
 *     Q4_K      d dmin scales[12] qs[128]                    d sc q - dmin mn
 *     Q5_K      d dmin scales[12] qh[32] qs[128]             d sc q - dmin mn
 *     Q6_K      ql[128] qh[64] scales[16] d                  d sc (q - 32)
 *     IQ4_NL    d qs[16]                                     d book[q]
 *     IQ4_XS    d scales_h[2] scales_l[4] qs[128]            d (sc - 32) book[q]
 *     MXFP4     e qs[16]                                     2^(e-128) book[q]
 *     TQ1_0     qs[48] qh[4] d                               d (q - 1), q in base 3
 *     TQ2_0     qs[64] d                                     d (q - 1)
 *     IQ1_S     d qs[32] qh[16]                              d sc (book[q] +- 1/8)
 *     IQ1_M     qs[32] qh[16] scales+d[8]                    d sc (book[q] +- 1/8)
 *     IQ2_XXS   d (codes[4] signs+scale[4])[8]               d sc book[q] +-
 *     IQ2_XS    d (code+signs[2])[32] scales[8]              d sc book[q] +-
 *     IQ2_S     d qs[32] signs[32] qh[8] scales[8]           d sc book[q] +-
 *     IQ3_XXS   d qs[64] (signs+scale[4])[8]                 d sc book[q] +-
 *     IQ3_S     d qs[64] qh[8] signs[32] scales[4]           d sc book[q] +-
 *
 * Nibbles of the 32-value types: low ones are values 0..15, high ones 16..31.
 * Types of 256 values use several bytes' worth at a time: see each decoder.
 *
 * The order of the multiplications is part of the definition.  It is that of GGML and of gguf-py,
 * (d sc) q, rounded after each step: never (d q) sc, never fused.  Therefore all back ends and the
 * reference agree to the bit.
 *
 * Each including file, quant.c and cuda/model_values.cu, gets its own copy of the decoders.
 * HL_DECODER and HL_DECODER_TABLE are the qualifiers of functions and of tables of constants;
 * HL_DECODER_HALF converts from f16. */
#ifndef HL_KERNELS_QUANT_DECODERS_H
#define HL_KERNELS_QUANT_DECODERS_H

#include "base/dtype.h"
#include "kernels/quant_blocks.h"
#include "kernels/quant_grids.h"

#ifndef HL_DECODER
#define HL_DECODER       static inline
#define HL_DECODER_TABLE static const
#define HL_DECODER_HALF  hl_f16_to_f32
#endif

HL_DECODER float f16_at(const uint8_t *p)
{
    return HL_DECODER_HALF(hl_read_u16(p));
}

/* ------------------------------------------------- one and two bits per value
 * Lowest bits first; a bit that is set is +d. */

HL_DECODER void decode_q1_0(float *y, const uint8_t *b)
{
    float d = f16_at(b);

    for (int j = 0; j < 128; j++)
        y[j] = (b[2 + j / 8] >> (j % 8) & 1) != 0 ? d : -d;
}

HL_DECODER void decode_q2_0(float *y, const uint8_t *b)
{
    float d = f16_at(b);

    for (int j = 0; j < 64; j++)
        y[j] = d * (float)((b[2 + j / 4] >> (j % 4 * 2) & 3) - 1);
}

/* ------------------------------------------------------ 32 values a block */

HL_DECODER void decode_q4_0(float *y, const uint8_t *b)
{
    float          d  = f16_at(b);
    const uint8_t *qs = b + 2;

    for (int j = 0; j < 16; j++) {
        y[j]      = d * (float)((qs[j] & 15) - 8);
        y[j + 16] = d * (float)((qs[j] >> 4) - 8);
    }
}

HL_DECODER void decode_q4_1(float *y, const uint8_t *b)
{
    float          d  = f16_at(b);
    float          m  = f16_at(b + 2);
    const uint8_t *qs = b + 4;

    for (int j = 0; j < 16; j++) {
        y[j]      = d * (float)(qs[j] & 15) + m;
        y[j + 16] = d * (float)(qs[j] >> 4) + m;
    }
}

/* Bit j of qh is the fifth bit of value j. */
HL_DECODER int fifth_bit(uint32_t qh, int j)
{
    return (int)(qh >> j & 1) << 4;
}

HL_DECODER void decode_q5_0(float *y, const uint8_t *b)
{
    float          d  = f16_at(b);
    uint32_t       qh = hl_read_u32(b + 2);
    const uint8_t *qs = b + 6;

    for (int j = 0; j < 16; j++) {
        y[j]      = d * (float)((fifth_bit(qh, j) | (qs[j] & 15)) - 16);
        y[j + 16] = d * (float)((fifth_bit(qh, j + 16) | qs[j] >> 4) - 16);
    }
}

HL_DECODER void decode_q5_1(float *y, const uint8_t *b)
{
    float          d  = f16_at(b);
    float          m  = f16_at(b + 2);
    uint32_t       qh = hl_read_u32(b + 4);
    const uint8_t *qs = b + 8;

    for (int j = 0; j < 16; j++) {
        y[j]      = d * (float)(fifth_bit(qh, j) | (qs[j] & 15)) + m;
        y[j + 16] = d * (float)(fifth_bit(qh, j + 16) | qs[j] >> 4) + m;
    }
}

HL_DECODER void decode_q8_0(float *y, const uint8_t *b)
{
    float d = f16_at(b);

    for (int j = 0; j < 32; j++)
        y[j] = d * (float)(int8_t)b[2 + j];
}

/* 32 codes of 4 bits into a book of 16 values. */
HL_DECODER void decode_nibbles(float *y, const uint8_t qs[16], const int8_t book[16], float d)
{
    for (int j = 0; j < 16; j++) {
        y[j]      = d * (float)book[qs[j] & 15];
        y[j + 16] = d * (float)book[qs[j] >> 4];
    }
}

/* ----------------------------------------------- 256 values per block
 *
 * Two bits per value, in Q2_K, Q3_K, TQ2_0 and on top of Q6_K: 32 bytes hold 128
 * values, byte l having values l, l + 32, l + 64, l + 96, lowest bits first. */

HL_DECODER int two_bits(const uint8_t *qs, int i)
{
    return qs[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
}

HL_DECODER void decode_q2_k(float *y, const uint8_t *b)
{
    const uint8_t *scales = b; /* per 16 values; low nibble: scale, high nibble: minimum */
    const uint8_t *qs     = b + 16;
    float          d      = f16_at(b + 80);
    float          dmin   = f16_at(b + 82);

    for (int i = 0; i < 256; i++) {
        float scale   = d * (float)(scales[i / 16] & 15);
        float minimum = dmin * (float)(scales[i / 16] >> 4);
        y[i]          = scale * (float)two_bits(qs, i) - minimum;
    }
}

HL_DECODER void decode_q3_k(float *y, const uint8_t *b)
{
    const uint8_t *hmask = b; /* bit i / 32 of byte i % 32: the third bit of value i */
    const uint8_t *qs    = b + 32;
    float          d     = f16_at(b + 108);
    int8_t         scales[16];

    hl_unpack_q3_k_scales(scales, b + 96);
    for (int i = 0; i < 256; i++) {
        int s     = i / 16;
        int third = (hmask[i % 32] >> (i / 32) & 1) << 2;
        y[i]      = d * (float)scales[s] * (float)((two_bits(qs, i) | third) - 4);
    }
}

HL_DECODER void decode_tq2_0(float *y, const uint8_t *b)
{
    float d = f16_at(b + 64);

    for (int i = 0; i < 256; i++)
        y[i] = d * (float)(two_bits(b, i) - 1);
}

/* Q4_K and Q5_K have four bits per value: 32 bytes hold 64 values, low nibbles first.  Each 32
 * values have their own scale and minimum. */
HL_DECODER int k_nibble(const uint8_t *qs, int i)
{
    return qs[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
}

HL_DECODER void decode_q4_k(float *y, const uint8_t *b)
{
    float          d    = f16_at(b);
    float          dmin = f16_at(b + 2);
    const uint8_t *qs   = b + 16;
    uint8_t        scales[8], minima[8];

    hl_unpack_k_scales(scales, minima, b + 4);
    for (int i = 0; i < 256; i++) {
        int   s       = i / 32;
        float scale   = d * (float)scales[s];
        float minimum = dmin * (float)minima[s];
        y[i]          = scale * (float)k_nibble(qs, i) - minimum;
    }
}

HL_DECODER void decode_q5_k(float *y, const uint8_t *b)
{
    float          d    = f16_at(b);
    float          dmin = f16_at(b + 2);
    const uint8_t *qh   = b + 16; /* bit i / 32 of byte i % 32: the fifth bit of value i */
    const uint8_t *qs   = b + 48;
    uint8_t        scales[8], minima[8];

    hl_unpack_k_scales(scales, minima, b + 4);
    for (int i = 0; i < 256; i++) {
        int   s       = i / 32;
        float scale   = d * (float)scales[s];
        float minimum = dmin * (float)minima[s];
        int   fifth   = (qh[i % 32] >> s & 1) << 4;
        y[i]          = scale * (float)(k_nibble(qs, i) | fifth) - minimum;
    }
}

/* 64 bytes of ql hold 128 values, low nibbles first. */
HL_DECODER void decode_q6_k(float *y, const uint8_t *b)
{
    const uint8_t *ql     = b;
    const uint8_t *qh     = b + 128;
    const uint8_t *scales = b + 192; /* signed, one per 16 values */
    float          d      = f16_at(b + 208);

    for (int i = 0; i < 256; i++) {
        int low = ql[i / 128 * 64 + i % 64] >> (i / 64 % 2 * 4) & 15;
        int q   = (low | two_bits(qh, i) << 4) - 32;
        y[i]    = d * (float)(int8_t)scales[i / 16] * (float)q;
    }
}

/* ---------------------------------------------------------- three values
 *
 * TQ1_0 keeps five digits of base 3 in a byte, as a fraction of 256: the next
 * digit is what multiplying by 3 carries out of the byte. */

HL_DECODER_TABLE uint8_t powers_of_3[5] = { 1, 3, 9, 27, 81 };

/* `n_digits` values from each of `n_bytes` bytes: first digits first. */
HL_DECODER float *decode_digits(float *y, const uint8_t *q, int n_bytes, int n_digits, float d)
{
    for (int digit = 0; digit < n_digits; digit++) {
        for (int j = 0; j < n_bytes; j++) {
            uint8_t rest = (uint8_t)(q[j] * powers_of_3[digit]);
            *y++         = d * (float)((rest * 3 >> 8) - 1);
        }
    }
    return y;
}

HL_DECODER void decode_tq1_0(float *y, const uint8_t *b)
{
    float d = f16_at(b + 52);

    y = decode_digits(y, b, 32, 5, d);
    y = decode_digits(y, b + 32, 16, 5, d);
    decode_digits(y, b + 48, 4, 4, d);
}

/* ------------------------------------------------------------- codebooks */

HL_DECODER_TABLE float iq2_values[4] = { 8.0f, 25.0f, 43.0f, 0.0f };

/* Eight values of 2 bits; bit j of signs makes value j negative. */
HL_DECODER void decode_entry8(float *y, uint16_t entry, uint8_t signs, float scale)
{
    for (int j = 0; j < 8; j++) {
        float value = scale * iq2_values[entry >> (2 * j) & 3];
        y[j]        = signs >> j & 1 ? -value : value;
    }
}

/* Two times four values of 3 bits. */
HL_DECODER void decode_entry4x2(float *y, uint16_t first, uint16_t second, const float book[8],
                                uint8_t signs, float scale)
{
    uint32_t entry = (uint32_t)first | (uint32_t)second << 12;

    for (int j = 0; j < 8; j++) {
        float value = scale * book[entry >> (3 * j) & 7];
        y[j]        = signs >> j & 1 ? -value : value;
    }
}

/* Codes have eleven bits, three of them in qh.  The top bits of qh are the scale and the sign of
 * the delta that is added to every value. */
HL_DECODER void decode_iq1_s(float *y, const uint8_t *b)
{
    float          d  = f16_at(b);
    const uint8_t *qs = b + 2;

    for (int k = 0; k < 32; k++) {
        uint16_t qh    = hl_read_u16(b + 34 + k / 4 * 2);
        int      code  = qs[k] | (qh >> (k % 4 * 3) & 7) << 8;
        float    scale = d * (float)(2 * (qh >> 12 & 7) + 1);
        float    delta = qh & 0x8000 ? -0.125f : 0.125f;

        for (int j = 0; j < 8; j++) {
            int value    = (hl_grid_iq1_s[code] >> (2 * j) & 3) - 1;
            y[8 * k + j] = scale * ((float)value + delta);
        }
    }
}

/* The codes of IQ1_S, for eight values each.  A nibble of qh has the upper three bits of a code and
 * the sign of the delta.  Two codes share a scale of 3 bits.  A word has four scales, and its top
 * nibble is a part of d. */
HL_DECODER void decode_iq1_m(float *y, const uint8_t *b)
{
    const uint8_t *qh     = b + 32;
    const uint8_t *scales = b + 48;
    float          d      = HL_DECODER_HALF(hl_iq1_m_scale(scales));

    for (int k = 0; k < 32; k++) {
        int   high  = qh[k / 2] >> (k % 2 * 4);
        int   code  = b[k] | (high & 7) << 8;
        int   sc    = hl_read_u16(scales + k / 8 * 2) >> (k / 2 % 4 * 3) & 7;
        float scale = d * (float)(2 * sc + 1);
        float delta = (high & 8) != 0 ? -0.125f : 0.125f;

        for (int j = 0; j < 8; j++) {
            int value    = (hl_grid_iq1_s[code] >> (2 * j) & 3) - 1;
            y[8 * k + j] = scale * ((float)value + delta);
        }
    }
}

#include "kernels/quant_books.h" /* the other codebook decoders, written with these */

#endif
