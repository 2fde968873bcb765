/* version.c - describes this build.  The Makefile defines HL_HAVE_... for every instruction set
 * whose kernels are built in. */
#include "headlight/base.h"

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown compiler"
#endif

#if defined(__x86_64__)
#define ARCHITECTURE "x86_64"
#elif defined(__aarch64__)
#define ARCHITECTURE "aarch64"
#else
#define ARCHITECTURE "unknown architecture"
#endif

#ifdef HL_HAVE_AVX2
#define WITH_AVX2 " avx2"
#else
#define WITH_AVX2
#endif

#ifdef HL_HAVE_AVX512
#define WITH_AVX512 " avx512"
#else
#define WITH_AVX512
#endif

#ifdef HL_HAVE_NEON
#define WITH_NEON " neon"
#else
#define WITH_NEON
#endif

const char *hl_version(void)
{
    return HL_VERSION_STRING;
}

const char *hl_build_info(void)
{
    return "headlight " HL_VERSION_STRING ", " ARCHITECTURE ", " COMPILER
           ", back ends: scalar" WITH_AVX2 WITH_AVX512 WITH_NEON;
}
