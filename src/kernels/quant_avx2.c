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

INLINE float f16_at(const uint8_t *p)
{
    return _cvtsh_ss(hl_read_u16(p));
}

INLINE __m128i load16(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

INLINE __m256i load32(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

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

/* The bits of every byte from `shift` on that are in mask.  There is no instruction that shifts
 * bytes, so words are shifted, and the mask removes the bits of the neighbor byte. */
INLINE __m256i bits_of(__m256i bytes, int shift, int mask)
{
    return _mm256_and_si256(_mm256_srli_epi16(bytes, shift), _mm256_set1_epi8((char)mask));
}

/* 16 bytes of nibbles as 32 bytes: the low ones, then the high ones. */
INLINE __m256i nibbles(const uint8_t *qs)
{
    __m128i low = load16(qs);

    return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(low, 4), low), _mm256_set1_epi8(15));
}

/* 32 bits as 32 bytes: `value` where the bit is set, else 0. */
INLINE __m256i spread_bits(uint32_t bits, int value)
{
    const __m256i source = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2,
                                            2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i select = _mm256_set1_epi64x((long long)0x8040201008040201U);
    __m256i       bytes  = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), source);
    __m256i       is_set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, select), select);

    return _mm256_and_si256(is_set, _mm256_set1_epi8((char)value));
}

/* `value` in every byte that has this bit, else 0. */
INLINE __m256i where_bit(__m256i bytes, int bit, int value)
{
    __m256i select = _mm256_set1_epi8((char)(1 << bit));
    __m256i is_set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, select), select);

    return _mm256_and_si256(is_set, _mm256_set1_epi8((char)value));
}

INLINE __m256i minus(__m256i bytes, int value)
{
    return _mm256_sub_epi8(bytes, _mm256_set1_epi8((char)value));
}

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

/* ------------------------------------------------------ 32 values a block */

INLINE void decode_q4_0(float *y, const uint8_t *b)
{
    scale32(y, minus(nibbles(b + 2), 8), f16_at(b));
}

INLINE void decode_q4_1(float *y, const uint8_t *b)
{
    affine32(y, nibbles(b + 4), f16_at(b), f16_at(b + 2));
}

INLINE void decode_q5_0(float *y, const uint8_t *b)
{
    __m256i fifth = spread_bits(hl_read_u32(b + 2), 16);

    scale32(y, minus(_mm256_or_si256(nibbles(b + 6), fifth), 16), f16_at(b));
}

INLINE void decode_q5_1(float *y, const uint8_t *b)
{
    __m256i fifth = spread_bits(hl_read_u32(b + 4), 16);

    affine32(y, _mm256_or_si256(nibbles(b + 8), fifth), f16_at(b), f16_at(b + 2));
}

INLINE void decode_q8_0(float *y, const uint8_t *b)
{
    scale32(y, load32(b + 2), f16_at(b));
}

/* ----------------------------------------------------- 256 values a block */

INLINE void decode_q2_k(float *y, const uint8_t *b)
{
    float d    = f16_at(b + 80);
    float dmin = f16_at(b + 82);

    for (int s = 0; s < 8; s++) {
        __m256i q     = bits_of(load32(b + 16 + s / 4 * 32), s % 4 * 2, 3);
        int     first = b[2 * s], second = b[2 * s + 1];

        affine16(y + 32 * s, _mm256_castsi256_si128(q), d * (float)(first & 15),
                 -(dmin * (float)(first >> 4)));
        affine16(y + 32 * s + 16, _mm256_extracti128_si256(q, 1), d * (float)(second & 15),
                 -(dmin * (float)(second >> 4)));
    }
}

INLINE void decode_q3_k(float *y, const uint8_t *b)
{
    float   d     = f16_at(b + 108);
    __m256i hmask = load32(b);
    int8_t  scales[16];

    hl_unpack_q3_k_scales(scales, b + 96);
    for (int s = 0; s < 8; s++) {
        __m256i low = bits_of(load32(b + 32 + s / 4 * 32), s % 4 * 2, 3);
        __m256i q   = minus(_mm256_or_si256(low, where_bit(hmask, s, 4)), 4);

        scale16(y + 32 * s, _mm256_castsi256_si128(q), d * (float)scales[2 * s]);
        scale16(y + 32 * s + 16, _mm256_extracti128_si256(q, 1), d * (float)scales[2 * s + 1]);
    }
}

INLINE void decode_tq2_0(float *y, const uint8_t *b)
{
    float d = f16_at(b + 64);

    for (int s = 0; s < 8; s++)
        scale32(y + 32 * s, minus(bits_of(load32(b + s / 4 * 32), s % 4 * 2, 3), 1), d);
}

INLINE void decode_q4_k(float *y, const uint8_t *b)
{
    float   d    = f16_at(b);
    float   dmin = f16_at(b + 2);
    uint8_t scales[8], minima[8];

    hl_unpack_k_scales(scales, minima, b + 4);
    for (int s = 0; s < 8; s++) {
        __m256i q = bits_of(load32(b + 16 + s / 2 * 32), s % 2 * 4, 15);
        affine32(y + 32 * s, q, d * (float)scales[s], -(dmin * (float)minima[s]));
    }
}

INLINE void decode_q5_k(float *y, const uint8_t *b)
{
    float   d    = f16_at(b);
    float   dmin = f16_at(b + 2);
    __m256i qh   = load32(b + 16);
    uint8_t scales[8], minima[8];

    hl_unpack_k_scales(scales, minima, b + 4);
    for (int s = 0; s < 8; s++) {
        __m256i low = bits_of(load32(b + 48 + s / 2 * 32), s % 2 * 4, 15);
        __m256i q   = _mm256_or_si256(low, where_bit(qh, s, 16));
        affine32(y + 32 * s, q, d * (float)scales[s], -(dmin * (float)minima[s]));
    }
}

INLINE void decode_q6_k(float *y, const uint8_t *b)
{
    const int8_t *scales = (const int8_t *)(b + 192);
    float         d      = f16_at(b + 208);

    for (int s = 0; s < 8; s++) {
        __m256i low  = bits_of(load32(b + s / 4 * 64 + s % 2 * 32), s / 2 % 2 * 4, 15);
        __m256i high = bits_of(load32(b + 128 + s / 4 * 32), s % 4 * 2, 3);
        __m256i q    = minus(_mm256_or_si256(low, _mm256_slli_epi16(high, 4)), 32);

        scale16(y + 32 * s, _mm256_castsi256_si128(q), d * (float)scales[2 * s]);
        scale16(y + 32 * s + 16, _mm256_extracti128_si256(q, 1), d * (float)scales[2 * s + 1]);
    }
}

/* ---------------------------------------------------------- three values */

/* The digits that multiplying by 3 carries out of 16 bytes, minus one.  There is no product of
 * bytes, so they are widened to words. */
INLINE __m128i digits16(__m256i words, int power_of_3)
{
    __m256i rest = _mm256_and_si256(_mm256_mullo_epi16(words, _mm256_set1_epi16((short)power_of_3)),
                                    _mm256_set1_epi16(255));
    __m256i digit = _mm256_srli_epi16(_mm256_mullo_epi16(rest, _mm256_set1_epi16(3)), 8);
    __m128i bytes =
        _mm_packus_epi16(_mm256_castsi256_si128(digit), _mm256_extracti128_si256(digit, 1));

    return _mm_sub_epi8(bytes, _mm_set1_epi8(1));
}

INLINE void decode_tq1_0(float *y, const uint8_t *b)
{
    static const int powers_of_3[5] = { 1, 3, 9, 27, 81 };
    float            d              = f16_at(b + 52);
    __m256i          words[3];

    for (int i = 0; i < 3; i++)
        words[i] = _mm256_cvtepu8_epi16(load16(b + 16 * i));
    for (int digit = 0; digit < 5; digit++) {
        scale16(y + 32 * digit, digits16(words[0], powers_of_3[digit]), d);
        scale16(y + 32 * digit + 16, digits16(words[1], powers_of_3[digit]), d);
        scale16(y + 160 + 16 * digit, digits16(words[2], powers_of_3[digit]), d);
    }
    for (int i = 0; i < 16; i++) { /* the remainder: four digits of four bytes */
        uint8_t rest = (uint8_t)(b[48 + i % 4] * powers_of_3[i / 4]);
        y[240 + i]   = d * (float)((rest * 3 >> 8) - 1);
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

/* 32 codes into a book of 16. */
INLINE void decode_nibbles(float *y, const uint8_t *qs, const int8_t book[16], float d)
{
    __m256i values = _mm256_broadcastsi128_si256(load16((const uint8_t *)book));

    scale32(y, _mm256_shuffle_epi8(values, nibbles(qs)), d);
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

/* ------------------------------------------------- one bit and two bits a value */

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
