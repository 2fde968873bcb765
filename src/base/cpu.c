/* cpu.c - asks the processor once, on first use.
 *
 * On x86 a feature counts only if the system also saves its registers on a task
 * switch.  The compiler's __builtin_cpu_supports looks at both (CPUID and
 * XCR0).  It has no portable name for F16C, so that one bit comes from CPUID; its
 * registers are those of AVX2, which was checked.  On arm64 NEON is always there. */
#include "base/cpu.h"

#include <pthread.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static hl_cpu         features;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#if defined(__x86_64__)

static bool has_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

/* The brand string: 48 bytes in three leaves, padded with spaces in front or
 * behind. */
static void read_name(char name[64])
{
    unsigned words[12];
    char     text[sizeof words + 1] = { 0 };

    for (unsigned leaf = 0; leaf < 3; leaf++) {
        unsigned *word = &words[4 * leaf];
        if (__get_cpuid(0x80000002U + leaf, &word[0], &word[1], &word[2], &word[3]) == 0)
            return;
    }
    memcpy(text, words, sizeof words);

    const char *start  = text + strspn(text, " ");
    size_t      length = strlen(start);
    while (length > 0 && start[length - 1] == ' ')
        length--;
    memcpy(name, start, length);
    name[length] = '\0';
}

static void look_up(void)
{
    __builtin_cpu_init();
    features.avx2   = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    features.avx512 = features.avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
    features.vnni = features.avx512 && __builtin_cpu_supports("avx512vnni");
    read_name(features.name);
}

#else

static void look_up(void)
{
#if defined(__aarch64__)
    features.neon = true;
#endif
}

#endif

const hl_cpu *hl_cpu_features(void)
{
    (void)pthread_once(&once, look_up);
    return &features;
}
