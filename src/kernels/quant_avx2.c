/* quant_avx2.c - the decoders of quant_decoders.h for AVX2.  (AVX-512 uses them too.)
 *
 * Nearly every type comes down to sixteen signed bytes that share a scale: the
 * bits of q are gathered in byte lanes, where an instruction works on 16 or 32
 * values, and widened to float at the very end.  The codebook types unpack eight
 * values from one entry, in float lanes, as quant_grids.h says.
 *
 * Multiplications and additions are those of the scalar decoders, in their order and
 * not fused, so that the results are the same to the bit. */
#include <immintrin.h>

#include "kernels/quant.h"
#include "kernels/quant_blocks.h"

#define INLINE static inline __attribute__((always_inline))

/* ------------------------------------------------------------ small pieces */

typedef float *place;
#define AT(y, i) ((y) + (i))

/* Eight signed bytes, the lower half of q, as floats. */
INLINE __m256 widen(__m128i q)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q));
}

INLINE __m128i upper_half(__m128i q)
{
    return _mm_srli_si128(q, 8);
}

/* y = d * q for 16 values. */
INLINE void scale16(float *y, __m128i q, float d)
{
    __m256 scale = _mm256_set1_ps(d);

    _mm256_storeu_ps(y, _mm256_mul_ps(scale, widen(q)));
    _mm256_storeu_ps(y + 8, _mm256_mul_ps(scale, widen(upper_half(q))));
}

/* y = d * q + m for 16 values. */
INLINE void affine16(float *y, __m128i q, float d, float m)
{
    __m256 scale = _mm256_set1_ps(d);
    __m256 shift = _mm256_set1_ps(m);

    _mm256_storeu_ps(y, _mm256_add_ps(_mm256_mul_ps(scale, widen(q)), shift));
    _mm256_storeu_ps(y + 8, _mm256_add_ps(_mm256_mul_ps(scale, widen(upper_half(q))), shift));
}

INLINE void scale32(float *y, __m256i q, float d)
{
    scale16(y, _mm256_castsi256_si128(q), d);
    scale16(y + 16, _mm256_extracti128_si256(q, 1), d);
}

INLINE void affine32(float *y, __m256i q, float d, float m)
{
    affine16(y, _mm256_castsi256_si128(q), d, m);
    affine16(y + 16, _mm256_extracti128_si256(q, 1), d, m);
}

#include "kernels/quant_decoders_avx2.h"

/* ---------------------------------------------------------------- 16 bits */

static void loop_f16(float *y, const uint8_t *b, size_t n_values)
{
    for (; n_values >= 8; n_values -= 8, y += 8, b += 16)
        _mm256_storeu_ps(y, _mm256_cvtph_ps(load16(b)));
    for (; n_values > 0; n_values--, y++, b += 2)
        *y = f16_at(b);
}

static void loop_bf16(float *y, const uint8_t *b, size_t n_values)
{
    for (; n_values >= 8; n_values -= 8, y += 8, b += 16) {
        __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(load16(b)), 16);
        _mm256_storeu_ps(y, _mm256_castsi256_ps(bits));
    }
    for (; n_values > 0; n_values--, y++, b += 2) {
        uint32_t bits = (uint32_t)hl_read_u16(b) << 16;
        memcpy(y, &bits, sizeof bits);
    }
}

/* ------------------------------------------------------------- codebooks */

/* Bit j of signs becomes the sign of value j. */
INLINE __m256 apply_signs(__m256 values, uint32_t signs)
{
    const __m256i to_top = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
    __m256i       bits   = _mm256_sllv_epi32(_mm256_set1_epi32((int)signs), to_top);
    __m256i       sign   = _mm256_and_si256(bits, _mm256_set1_epi32(INT32_MIN));

    return _mm256_xor_ps(values, _mm256_castsi256_ps(sign));
}

/* Eight values of 2 bits.  The permute reads only the lowest two bits of a lane. */
INLINE __m256 entry8(uint16_t entry, __m256 book)
{
    const __m256i shifts = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);

    return _mm256_permutevar_ps(book, _mm256_srlv_epi32(_mm256_set1_epi32(entry), shifts));
}

INLINE void store_entry(float *y, __m256 values, uint32_t signs, float scale)
{
    _mm256_storeu_ps(y, apply_signs(_mm256_mul_ps(_mm256_set1_ps(scale), values), signs));
}

INLINE __m256 iq2_book(void)
{
    return _mm256_setr_ps(8, 25, 43, 0, 8, 25, 43, 0);
}

INLINE void decode_entry8(float *y, uint16_t entry, uint32_t signs, float scale)
{
    store_entry(y, entry8(entry, iq2_book()), signs, scale);
}

/* Two times four values of 3 bits.  The permute reads only the lowest three bits of a lane. */
INLINE void decode_entry4x2(float *y, uint16_t first, uint16_t second, const float book[8],
                            uint8_t signs, float scale)
{
    const __m256i shifts = _mm256_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21);
    __m256i       both   = _mm256_srlv_epi32(_mm256_set1_epi32(first | second << 12), shifts);

    store_entry(y, _mm256_permutevar8x32_ps(_mm256_loadu_ps(book), both), signs, scale);
}

#define HL_DECODER       INLINE
#define HL_DECODER_TABLE static const
#include "kernels/quant_books.h"

INLINE __m256 iq1_book(void)
{
    return _mm256_setr_ps(-1, 0, 1, 0, -1, 0, 1, 0);
}

INLINE void decode_iq1_s(float *y, const uint8_t *b)
{
    float d = f16_at(b);

    for (int k = 0; k < 32; k++) {
        uint16_t qh    = hl_read_u16(b + 34 + k / 4 * 2);
        int      code  = b[2 + k] | (qh >> (k % 4 * 3) & 7) << 8;
        __m256   scale = _mm256_set1_ps(d * (float)(2 * (qh >> 12 & 7) + 1));
        __m256   delta = _mm256_set1_ps(qh & 0x8000 ? -0.125f : 0.125f);
        __m256   value = _mm256_add_ps(entry8(hl_grid_iq1_s[code], iq1_book()), delta);
        _mm256_storeu_ps(y + 8 * k, _mm256_mul_ps(scale, value));
    }
}

INLINE void decode_iq1_m(float *y, const uint8_t *b)
{
    float d = _cvtsh_ss(hl_iq1_m_scale(b + 48));

    for (int k = 0; k < 32; k++) {
        int    high  = b[32 + k / 2] >> (k % 2 * 4);
        int    code  = b[k] | (high & 7) << 8;
        int    sc    = hl_read_u16(b + 48 + k / 8 * 2) >> (k / 2 % 4 * 3) & 7;
        __m256 scale = _mm256_set1_ps(d * (float)(2 * sc + 1));
        __m256 delta = _mm256_set1_ps((high & 8) != 0 ? -0.125f : 0.125f);
        __m256 value = _mm256_add_ps(entry8(hl_grid_iq1_s[code], iq1_book()), delta);
        _mm256_storeu_ps(y + 8 * k, _mm256_mul_ps(scale, value));
    }
}

/* --------------------------------------------------- one and two bits per value */

/* A cleared bit turns the sign of d. */
INLINE void decode_q1_0(float *y, const uint8_t *b)
{
    const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i sign = _mm256_set1_epi32(INT32_MIN);
    __m256        d    = _mm256_set1_ps(f16_at(b));

    for (int k = 0; k < 16; k++) {
        __m256i set   = _mm256_and_si256(_mm256_set1_epi32(b[2 + k]), bits);
        __m256i minus = _mm256_and_si256(_mm256_cmpeq_epi32(set, _mm256_setzero_si256()), sign);
        _mm256_storeu_ps(y + 8 * k, _mm256_xor_ps(d, _mm256_castsi256_ps(minus)));
    }
}

INLINE void decode_q2_0(float *y, const uint8_t *b)
{
    const __m256i shifts = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    __m256        d      = _mm256_set1_ps(f16_at(b));

    for (int k = 0; k < 8; k++) {
        __m256i codes = _mm256_srlv_epi32(_mm256_set1_epi32(hl_read_u16(b + 2 + 2 * k)), shifts);
        __m256i q =
            _mm256_sub_epi32(_mm256_and_si256(codes, _mm256_set1_epi32(3)), _mm256_set1_epi32(1));
        _mm256_storeu_ps(y + 8 * k, _mm256_mul_ps(d, _mm256_cvtepi32_ps(q)));
    }
}

/* ------------------------------------------------------------------ the table */

HL_EACH_BLOCK_TYPE(HL_BLOCK_LOOP)

static const hl_block_loop loops[HL_DTYPE_COUNT] = HL_BLOCK_TABLE;

void hl_dequantize_avx2(float *out, hl_dtype dtype, const void *source, size_t n_blocks)
{
    loops[dtype](out, source, n_blocks);
}
