/* simd.h - one vector type for three instruction sets.
 *
 * The vector kernels are written once, against this header, and compiled once
 * for every instruction set (attention_avx2.c and its siblings only include
 * them).  gcc and clang give vectors of the language the ordinary operators
 * (+ - * / < & <<); what is left to say for each instruction set is how wide a
 * vector is, a fused multiply-add, a maximum, and the 16-bit conversions.
 *
 *     vf, vi         a vector of VL floats, of VL int32
 *     TILE_ROWS      rows of a register block of the matrix products, and
 *     TILE_VECTORS   its width in vectors (matrix_tile.h)
 *
 * Comparisons give vi masks: all ones for true, 0 for false. */
#ifndef HL_KERNELS_SIMD_H
#define HL_KERNELS_SIMD_H

#include <stdint.h>
#include <string.h>

#define HL_INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
#include <immintrin.h>
#define VL           16
#define TILE_ROWS    8
#define TILE_VECTORS 2
#elif defined(__AVX2__)
#include <immintrin.h>
#define VL           8
#define TILE_ROWS    6
#define TILE_VECTORS 2
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#define VL           4
#define TILE_ROWS    6
#define TILE_VECTORS 4
#else
#error "simd.h needs AVX-512, AVX2 with FMA and F16C, or NEON"
#endif

/* The columns of a register block: the rows of attention worked on together. */
#define LANES (VL * TILE_VECTORS)

typedef float    vf __attribute__((vector_size(4 * VL)));
typedef int32_t  vi __attribute__((vector_size(4 * VL)));
typedef uint32_t vu __attribute__((vector_size(4 * VL)));

/* ------------------------------------------------------- loads and stores */

HL_INLINE vf vf_load(const float *p)
{
    vf a;
    memcpy(&a, p, sizeof a); /* compiles to one unaligned load */
    return a;
}

HL_INLINE void vf_store(float *p, vf a)
{
    memcpy(p, &a, sizeof a);
}

HL_INLINE vi vi_load(const int32_t *p)
{
    vi a;
    memcpy(&a, p, sizeof a);
    return a;
}

HL_INLINE void vi_store(int32_t *p, vi a)
{
    memcpy(p, &a, sizeof a);
}

HL_INLINE vf vf_set(float a)
{
    return a - (vf){ 0 };
}

HL_INLINE vi vi_set(int32_t a)
{
    return a - (vi){ 0 };
}

/* -------------------------------------------------------------- selection */

/* mask ? a : b, lane by lane. */
HL_INLINE vf vf_select(vi mask, vf a, vf b)
{
    return (vf)(((vi)a & mask) | ((vi)b & ~mask));
}

HL_INLINE vi vi_select(vi mask, vi a, vi b)
{
    return (a & mask) | (b & ~mask);
}

/* ------------------------------------------- what each instruction set says
 *
 * vf_fma(a, b, c) is a * b + c, rounded once.  vf_max(a, b) is NaN where b
 * is: a limit comes first, so that what is not a number stays visible.
 * vi_bits has bit i set where lane i of a mask is. */

#if defined(__AVX512F__)

HL_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
HL_INLINE vf vf_max(vf a, vf b)
{
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
}

HL_INLINE vf vf_load_f16(const uint16_t *p)
{
    return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

HL_INLINE vf vf_load_bf16(const uint16_t *p)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return (vf)_mm512_slli_epi32(wide, 16);
}

HL_INLINE uint32_t vi_bits(vi mask)
{
    return _mm512_movepi32_mask((__m512i)mask);
}

#elif defined(__AVX2__)

HL_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
HL_INLINE vf vf_max(vf a, vf b)
{
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
}

HL_INLINE vf vf_load_f16(const uint16_t *p)
{
    return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

HL_INLINE vf vf_load_bf16(const uint16_t *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return (vf)_mm256_slli_epi32(wide, 16);
}

HL_INLINE uint32_t vi_bits(vi mask)
{
    return (uint32_t)_mm256_movemask_ps((__m256)mask);
}

#else /* NEON */

HL_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return vfmaq_f32(c, a, b);
}
HL_INLINE vf vf_max(vf a, vf b)
{
    return vmaxq_f32(a, b);
}

HL_INLINE vf vf_load_f16(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

HL_INLINE vf vf_load_bf16(const uint16_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}

HL_INLINE uint32_t vi_bits(vi mask)
{
    return (uint32_t)vaddvq_s32(mask & (vi){ 1, 2, 4, 8 });
}

#endif

#endif
