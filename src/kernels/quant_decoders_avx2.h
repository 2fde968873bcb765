/* quant_decoders_avx2.h - the decoders of quant_decoders.h for AVX2, but for the large codebooks.
 *
 * Sixteen signed bytes share a scale: the bits of q are gathered in byte lanes, where an instruction
 * works on 16 or 32 values.  What becomes of them is up to the including file, which first defines
 *
 *     INLINE                   the qualifiers of these functions
 *     place, AT(y, i)          where values go, and the place i values further
 *     scale16(y, q, d)         16 values d q, and scale32 for 32
 *     affine16(y, q, d, m)     16 values d q + m, and affine32 for 32
 *
 * quant_avx2.c makes floats, quant_ints_avx2.h keeps the bytes and the scales. */
#ifndef HL_KERNELS_QUANT_DECODERS_AVX2_H
#define HL_KERNELS_QUANT_DECODERS_AVX2_H

#include <immintrin.h>

#include "kernels/quant_blocks.h"

#ifdef AT /* an including file has defined the names above */

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

/* y = d * (16 signed bytes), as the scales of a block are stored. */
INLINE void byte_scales(float y[16], __m128i bytes, float d)
{
    for (int half = 0; half < 2; half++) {
        __m256 wide = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
        _mm256_storeu_ps(y + 8 * half, _mm256_mul_ps(_mm256_set1_ps(d), wide));
        bytes = _mm_srli_si128(bytes, 8);
    }
}

/* Q4_K's and Q5_K's scales times d and minima times -dmin; like hl_unpack_k_scales, for four bytes
 * at a time. */
INLINE void k_scales(float scales[8], float minima[8], const uint8_t *b)
{
    uint32_t low    = hl_read_u32(b + 4);
    uint32_t middle = hl_read_u32(b + 8);
    uint32_t high   = hl_read_u32(b + 12);
    uint32_t first  = (high & 0x0f0f0f0f) | (low >> 2 & 0x30303030);
    uint32_t second = (high >> 4 & 0x0f0f0f0f) | (middle >> 2 & 0x30303030);
    float    both[16];

    byte_scales(both,
                _mm_setr_epi32((int)(low & 0x3f3f3f3f), (int)first, (int)(middle & 0x3f3f3f3f),
                               (int)second),
                1.0f);
    _mm256_storeu_ps(scales, _mm256_mul_ps(_mm256_set1_ps(f16_at(b)), _mm256_loadu_ps(both)));
    _mm256_storeu_ps(minima,
                     _mm256_mul_ps(_mm256_set1_ps(-f16_at(b + 2)), _mm256_loadu_ps(both + 8)));
}

/* ------------------------------------------------------ 32 values a block */

INLINE void decode_q4_0(place y, const uint8_t *b)
{
    scale32(y, minus(nibbles(b + 2), 8), f16_at(b));
}

INLINE void decode_q4_1(place y, const uint8_t *b)
{
    affine32(y, nibbles(b + 4), f16_at(b), f16_at(b + 2));
}

INLINE void decode_q5_0(place y, const uint8_t *b)
{
    __m256i fifth = spread_bits(hl_read_u32(b + 2), 16);

    scale32(y, minus(_mm256_or_si256(nibbles(b + 6), fifth), 16), f16_at(b));
}

INLINE void decode_q5_1(place y, const uint8_t *b)
{
    __m256i fifth = spread_bits(hl_read_u32(b + 4), 16);

    affine32(y, _mm256_or_si256(nibbles(b + 8), fifth), f16_at(b), f16_at(b + 2));
}

INLINE void decode_q8_0(place y, const uint8_t *b)
{
    scale32(y, load32(b + 2), f16_at(b));
}

/* ----------------------------------------------------- 256 values a block */

INLINE void decode_q2_k(place y, const uint8_t *b)
{
    __m128i packed = load16(b), low = _mm_set1_epi8(15);
    float   scales[16], minima[16];

    byte_scales(scales, _mm_and_si128(packed, low), f16_at(b + 80));
    byte_scales(minima, _mm_and_si128(_mm_srli_epi16(packed, 4), low), -f16_at(b + 82));
    for (int s = 0; s < 8; s++) {
        __m256i q = bits_of(load32(b + 16 + s / 4 * 32), s % 4 * 2, 3);

        affine16(AT(y, 32 * s), _mm256_castsi256_si128(q), scales[2 * s], minima[2 * s]);
        affine16(AT(y, 32 * s + 16), _mm256_extracti128_si256(q, 1), scales[2 * s + 1],
                 minima[2 * s + 1]);
    }
}

INLINE void decode_q3_k(place y, const uint8_t *b)
{
    __m256i hmask = load32(b);
    int8_t  packed[16];
    float   scales[16];

    hl_unpack_q3_k_scales(packed, b + 96);
    byte_scales(scales, load16((const uint8_t *)packed), f16_at(b + 108));
    for (int s = 0; s < 8; s++) {
        __m256i low = bits_of(load32(b + 32 + s / 4 * 32), s % 4 * 2, 3);
        __m256i q   = minus(_mm256_or_si256(low, where_bit(hmask, s, 4)), 4);

        scale16(AT(y, 32 * s), _mm256_castsi256_si128(q), scales[2 * s]);
        scale16(AT(y, 32 * s + 16), _mm256_extracti128_si256(q, 1), scales[2 * s + 1]);
    }
}

INLINE void decode_tq2_0(place y, const uint8_t *b)
{
    float d = f16_at(b + 64);

    for (int s = 0; s < 8; s++)
        scale32(AT(y, 32 * s), minus(bits_of(load32(b + s / 4 * 32), s % 4 * 2, 3), 1), d);
}

INLINE void decode_q4_k(place y, const uint8_t *b)
{
    float scales[8], minima[8];

    k_scales(scales, minima, b);
    for (int s = 0; s < 8; s++) {
        __m256i q = bits_of(load32(b + 16 + s / 2 * 32), s % 2 * 4, 15);
        affine32(AT(y, 32 * s), q, scales[s], minima[s]);
    }
}

INLINE void decode_q5_k(place y, const uint8_t *b)
{
    __m256i qh = load32(b + 16);
    float   scales[8], minima[8];

    k_scales(scales, minima, b);
    for (int s = 0; s < 8; s++) {
        __m256i low = bits_of(load32(b + 48 + s / 2 * 32), s % 2 * 4, 15);
        __m256i q   = _mm256_or_si256(low, where_bit(qh, s, 16));
        affine32(AT(y, 32 * s), q, scales[s], minima[s]);
    }
}

INLINE void decode_q6_k(place y, const uint8_t *b)
{
    float scales[16];

    byte_scales(scales, load16(b + 192), f16_at(b + 208));
    for (int s = 0; s < 8; s++) {
        __m256i low  = bits_of(load32(b + s / 4 * 64 + s % 2 * 32), s / 2 % 2 * 4, 15);
        __m256i high = bits_of(load32(b + 128 + s / 4 * 32), s % 4 * 2, 3);
        __m256i q    = minus(_mm256_or_si256(low, _mm256_slli_epi16(high, 4)), 32);

        scale16(AT(y, 32 * s), _mm256_castsi256_si128(q), scales[2 * s]);
        scale16(AT(y, 32 * s + 16), _mm256_extracti128_si256(q, 1), scales[2 * s + 1]);
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

INLINE void decode_tq1_0(place y, const uint8_t *b)
{
    static const int powers_of_3[5] = { 1, 3, 9, 27, 81 };
    float            d              = f16_at(b + 52);
    __m256i          words[3];
    uint8_t          rest[16];

    for (int i = 0; i < 3; i++)
        words[i] = _mm256_cvtepu8_epi16(load16(b + 16 * i));
    for (int digit = 0; digit < 5; digit++) {
        scale16(AT(y, 32 * digit), digits16(words[0], powers_of_3[digit]), d);
        scale16(AT(y, 32 * digit + 16), digits16(words[1], powers_of_3[digit]), d);
        scale16(AT(y, 160 + 16 * digit), digits16(words[2], powers_of_3[digit]), d);
    }
    for (int i = 0; i < 16; i++) { /* the remainder: four digits of four bytes */
        uint8_t digit = (uint8_t)(b[48 + i % 4] * powers_of_3[i / 4]);
        rest[i]       = (uint8_t)((digit * 3 >> 8) - 1);
    }
    scale16(AT(y, 240), load16(rest), d);
}

/* 32 codes into a book of 16. */
INLINE void decode_nibbles(place y, const uint8_t *qs, const int8_t book[16], float d)
{
    __m256i values = _mm256_broadcastsi128_si256(load16((const uint8_t *)book));

    scale32(y, _mm256_shuffle_epi8(values, nibbles(qs)), d);
}

#endif
#endif
