/* quant_books.h - blocks whose values are entries of a codebook (quant_decoders.h has their
 * layout).
 *
 * A block gives the entries, their signs and scales; reading them is the same for loops and for
 * vectors. An including file first defines HL_DECODER, HL_DECODER_TABLE and
 *
 *     f16_at(p)                                             the half at p
 *     decode_nibbles(y, qs, book, d)                        32 codes of 4 bits, into a book of 16 values
 *     decode_entry8(y, entry, signs, scale)                 8 values of 2 bits: 8, 25, 43
 *     decode_entry4x2(y, first, second, book, signs, scale) twice 4 values of 3 bits */
#ifndef HL_KERNELS_QUANT_BOOKS_H
#define HL_KERNELS_QUANT_BOOKS_H

#include "kernels/quant_blocks.h"
#include "kernels/quant_grids.h"

#ifndef HL_DECODER
#include "kernels/quant_decoders.h" /* defines them, one value at a time */
#endif

HL_DECODER_TABLE int8_t iq4_values[16] = HL_IQ4_VALUES;
HL_DECODER_TABLE int8_t fp4_values[16] = HL_FP4_VALUES;

HL_DECODER void decode_iq4_nl(float *y, const uint8_t *b)
{
    decode_nibbles(y, b + 2, iq4_values, f16_at(b));
}

HL_DECODER void decode_mxfp4(float *y, const uint8_t *b)
{
    decode_nibbles(y, b + 1, fp4_values, hl_e8m0_half(b[0]));
}

/* Two high bits of each scale in scales_h, four low ones in scales_l; nibbles
 * as in a 32-value block. */
HL_DECODER void decode_iq4_xs(float *y, const uint8_t *b)
{
    float          d        = f16_at(b);
    uint16_t       scales_h = hl_read_u16(b + 2);
    const uint8_t *scales_l = b + 4;
    const uint8_t *qs       = b + 8;

    for (int s = 0; s < 8; s++) {
        int low  = scales_l[s / 2] >> (s % 2 * 4) & 15;
        int high = scales_h >> (2 * s) & 3;
        decode_nibbles(y + 32 * s, qs + 16 * s, iq4_values, d * (float)((low | high << 4) - 32));
    }
}

HL_DECODER_TABLE float iq3_xxs_values[8] = { 4, 12, 20, 28, 36, 44, 52, 62 };
HL_DECODER_TABLE float iq3_s_values[8]   = { 1, 3, 5, 7, 9, 11, 13, 15 };

/* Four codes, followed by four groups of seven sign bits and a scale of 4 bits. */
HL_DECODER void decode_iq2_xxs(float *y, const uint8_t *b)
{
    float d = f16_at(b);

    for (int s = 0; s < 8; s++) {
        const uint8_t *codes = b + 2 + 8 * s;
        uint32_t       rest  = hl_read_u32(codes + 4);
        float          scale = d * (0.5f + (float)(rest >> 28)) * 0.25f;

        for (int k = 0; k < 4; k++)
            decode_entry8(y + 32 * s + 8 * k, hl_grid_iq2_xxs[codes[k]],
                          hl_even_signs(rest >> (7 * k) & 127), scale);
    }
}

/* Nine bits of code under seven of signs. */
HL_DECODER void decode_iq2_xs(float *y, const uint8_t *b)
{
    float          d      = f16_at(b);
    const uint8_t *scales = b + 66; /* nibbles, one per 16 values */

    for (int k = 0; k < 32; k++) {
        uint16_t q     = hl_read_u16(b + 2 + 2 * k);
        int      sc    = scales[k / 4] >> (k / 2 % 2 * 4) & 15;
        float    scale = d * (0.5f + (float)sc) * 0.25f;
        decode_entry8(y + 8 * k, hl_grid_iq2_xs[q & 511], hl_even_signs(q >> 9), scale);
    }
}

/* Ten bits of code, two of them in qh. */
HL_DECODER void decode_iq2_s(float *y, const uint8_t *b)
{
    float          d = f16_at(b);
    const uint8_t *qh =
        b + 66; /* after the codes, at 2, and the signs, at 34; scales follow at 74 */

    for (int k = 0; k < 32; k++) {
        int   code  = b[2 + k] | (qh[k / 4] >> (k % 4 * 2) & 3) << 8;
        int   sc    = b[74 + k / 4] >> (k / 2 % 2 * 4) & 15;
        float scale = d * (0.5f + (float)sc) * 0.25f;
        decode_entry8(y + 8 * k, hl_grid_iq2_s[code], b[34 + k], scale);
    }
}

HL_DECODER void decode_iq3_xxs(float *y, const uint8_t *b)
{
    float          d  = f16_at(b);
    const uint8_t *qs = b + 2;

    for (int s = 0; s < 8; s++) {
        uint32_t rest  = hl_read_u32(b + 66 + 4 * s);
        float    scale = d * (0.5f + (float)(rest >> 28)) * 0.5f;

        for (int k = 0; k < 4; k++) {
            const uint8_t *codes = qs + 8 * s + 2 * k;
            decode_entry4x2(y + 32 * s + 8 * k, hl_grid_iq3_xxs[codes[0]],
                            hl_grid_iq3_xxs[codes[1]], iq3_xxs_values,
                            hl_even_signs(rest >> (7 * k) & 127), scale);
        }
    }
}

/* Nine bits of code, one of them in qh; scales are 1, 3, 5 ... 31. */
HL_DECODER void decode_iq3_s(float *y, const uint8_t *b)
{
    float          d      = f16_at(b);
    const uint8_t *qs     = b + 2;
    const uint8_t *qh     = b + 66;
    const uint8_t *signs  = b + 74;
    const uint8_t *scales = b + 106;

    for (int k = 0; k < 32; k++) {
        int   high   = qh[k / 4] >> (k % 4 * 2); /* two codes, with one high bit each */
        int   first  = qs[2 * k] | (high & 1) << 8;
        int   second = qs[2 * k + 1] | (high >> 1 & 1) << 8;
        int   sc     = scales[k / 8] >> (k / 4 % 2 * 4) & 15;
        float scale  = d * (float)(1 + 2 * sc);
        decode_entry4x2(y + 8 * k, hl_grid_iq3_s[first], hl_grid_iq3_s[second], iq3_s_values,
                        signs[k], scale);
    }
}

#endif
