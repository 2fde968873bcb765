/* simd.h - one vector type for three instruction sets.
 *
 * The vector kernels are written once, against this header, and compiled once for every instruction
 * set (kernels_avx2.c and its siblings only include them).  gcc and clang support the ordinary
 * operators (+ - * / < & <<) on vectors.  This header adds, for each instruction set, the width of
 * a vector, a fused multiply-add, a maximum, and half precision.
 *
 *     vf, vi         a vector of VL floats, of VL int32
 *     TILE_ROWS      rows of a register block of the matrix products, and
 *     TILE_VECTORS   its width in vectors (matrix_tile.h)
 *
 * Comparisons give vi masks: all ones for true, 0 for false. */
#ifndef HL_KERNELS_SIMD_H
#define HL_KERNELS_SIMD_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define HL_INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
#include <immintrin.h>
typedef __m512 x86_floats;
#define X86(name)      _mm512_##name
#define LOAD_HALVES(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define LOAD_BYTES(p)  _mm_loadu_si128((const __m128i *)(const void *)(p))
#define VL             16
#define TILE_ROWS      8
#define TILE_VECTORS   2
#elif defined(__AVX2__)
#include <immintrin.h>
typedef __m256 x86_floats;
#define X86(name)      _mm256_##name
#define LOAD_HALVES(p) _mm_loadu_si128((const __m128i *)(const void *)(p))
#define LOAD_BYTES(p)  _mm_loadl_epi64((const __m128i *)(const void *)(p))
#define VL             8
#define TILE_ROWS      6
#define TILE_VECTORS   2
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#define VL           4
#define TILE_ROWS    6
#define TILE_VECTORS 4
#else
#error "simd.h needs AVX-512, AVX2 with FMA and F16C, or NEON"
#endif

/* The columns of a register block; also the number of attention rows processed together. */
#define LANES (VL * TILE_VECTORS)

typedef float    vf __attribute__((vector_size(4 * VL)));
typedef int32_t  vi __attribute__((vector_size(4 * VL)));
typedef uint32_t vu __attribute__((vector_size(4 * VL)));
typedef uint16_t vh __attribute__((vector_size(2 * VL)));

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

/* Whether any lane of a mask is true. */
HL_INLINE bool vi_any(vi mask)
{
    uint64_t words[sizeof mask / sizeof(uint64_t)];
    uint64_t any = 0;

    memcpy(words, &mask, sizeof mask);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        any |= words[i];
    return any != 0;
}

/* ------------------------------------------------------------------ bfloat16
 * The upper half of a float. */

HL_INLINE vf vf_load_bf16(const uint16_t *p)
{
#ifdef __AVX2__
    return (vf)X86(slli_epi32)(X86(cvtepu16_epi32)(LOAD_HALVES(p)), 16);
#else
    return (vf)vshll_n_u16(vld1_u16(p), 16);
#endif
}

HL_INLINE void vf_store_bf16(uint16_t *p, vf a)
{
    vu bits    = (vu)a;
    vu rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16; /* to nearest, ties to even */
    vu quiet   = (bits >> 16) | 0x40; /* rounding could turn a NaN into inf */
    vu is_nan  = (vu)(a != a);
    vh half    = __builtin_convertvector((quiet & is_nan) | (rounded & ~is_nan), vh);
    memcpy(p, &half, sizeof half);
}

/* ------------------------------------------------------------ transposition */

/* { a0 b0 a1 b1 ... } of the lower and of the upper halves. */
#if VL == 16
#define LOW_LANES  0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_LANES 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif VL == 8
#define LOW_LANES  0, 8, 1, 9, 2, 10, 3, 11
#define HIGH_LANES 4, 12, 5, 13, 6, 14, 7, 15
#else
#define LOW_LANES  0, 4, 1, 5
#define HIGH_LANES 2, 6, 3, 7
#endif

/* Transposes a square of VL vectors: interleaves the first half of the vectors with the second,
 * log2(VL) times. */
HL_INLINE void vf_transpose(vf *rows)
{
    for (int step = 1; step < VL; step *= 2) {
        vf next[VL];
        for (int i = 0; i < VL / 2; i++) {
            next[2 * i]     = __builtin_shufflevector(rows[i], rows[i + VL / 2], LOW_LANES);
            next[2 * i + 1] = __builtin_shufflevector(rows[i], rows[i + VL / 2], HIGH_LANES);
        }
        memcpy(rows, next, sizeof next);
    }
}

/* ------------------------------------------- what each instruction set says
 *
 * vf_fma(a, b, c) is a * b + c, rounded once.  vf_max(a, b) is NaN where b is: a limit comes first,
 * so that NaN is not lost. vm is a mask as comparisons make it: vm_greater is where a > b; vi_pick,
 * vi_pick_number and vf_pick return `yes` there, else `no`.  vi_load_u8 and vi_load_s8 read VL
 * bytes; store_f16x4 writes the four halves of a word as floats. */

#ifdef __AVX2__ /* the intrinsics of AVX-512 differ only in the width in their names */

HL_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return (vf)X86(fmadd_ps)((x86_floats)a, (x86_floats)b, (x86_floats)c);
}
HL_INLINE vf vf_max(vf a, vf b)
{
    return (vf)X86(max_ps)((x86_floats)a, (x86_floats)b);
}

HL_INLINE vf vf_load_f16(const uint16_t *p)
{
    return (vf)X86(cvtph_ps)(LOAD_HALVES(p));
}

HL_INLINE void vf_store_f16(uint16_t *p, vf a)
{
    vh half = (vh)X86(cvtps_ph)((x86_floats)a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    memcpy(p, &half, sizeof half);
}

HL_INLINE void store_f16x4(float out[4], uint64_t halves)
{
    _mm_storeu_ps(out, _mm_cvtph_ps(_mm_cvtsi64_si128((long long)halves)));
}

HL_INLINE vi vi_load_u8(const uint8_t *p)
{
    return (vi)X86(cvtepu8_epi32)(LOAD_BYTES(p));
}

HL_INLINE vi vi_load_s8(const uint8_t *p)
{
    return (vi)X86(cvtepi8_epi32)(LOAD_BYTES(p));
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

HL_INLINE void vf_store_f16(uint16_t *p, vf a)
{
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(a)));
}

HL_INLINE vi vi_load_u8(const uint8_t *p)
{
    uint32_t word;
    memcpy(&word, p, sizeof word);
    uint8x8_t bytes = vreinterpret_u8_u32(vdup_n_u32(word));
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(bytes))));
}

HL_INLINE vi vi_load_s8(const uint8_t *p)
{
    uint32_t word;
    memcpy(&word, p, sizeof word);
    int8x8_t bytes = vreinterpret_s8_u32(vdup_n_u32(word));
    return vmovl_s16(vget_low_s16(vmovl_s8(bytes)));
}

HL_INLINE void store_f16x4(float out[4], uint64_t halves)
{
    vst1q_f32(out, vcvt_f32_f16(vreinterpret_f16_u64(vcreate_u64(halves))));
}

#endif

#ifdef __AVX512F__

typedef __mmask16 vm;

HL_INLINE vm vm_greater(vf a, vf b)
{
    return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ);
}

HL_INLINE vi vi_pick(vm mask, vi yes, vi no)
{
    return (vi)_mm512_mask_mov_epi32((__m512i)no, mask, (__m512i)yes);
}

HL_INLINE vi vi_pick_number(vm mask, int32_t yes, vi no)
{
    return (vi)_mm512_mask_set1_epi32((__m512i)no, mask, yes);
}

HL_INLINE vf vf_pick(vm mask, vf yes, vf no)
{
    return (vf)_mm512_mask_mov_ps((__m512)no, mask, (__m512)yes);
}

#else

typedef vi vm;

HL_INLINE vm vm_greater(vf a, vf b)
{
    return a > b;
}

HL_INLINE vi vi_pick(vm mask, vi yes, vi no)
{
    return vi_select(mask, yes, no);
}

HL_INLINE vi vi_pick_number(vm mask, int32_t yes, vi no)
{
    return vi_select(mask, vi_set(yes), no);
}

HL_INLINE vf vf_pick(vm mask, vf yes, vf no)
{
    return vf_select(mask, yes, no);
}
#endif

#endif
