/* int8_avx512.c - products with activations of 8 bits, for AVX-512 with VNNI.
 *
 * Vectors stay at 32 bytes: what AVX-512 adds is the one instruction.  The first CPUs
 * with AVX-512 lack it. */
#define INT8_VNNI
#include "kernels/int8_dot_avx2.h"

#include "base/machine.h"

void hl_int8_dot_avx512(const hl_int8_dot *dot)
{
    if (hl_cpu_features()->vnni)
        int8_dot(dot);
    else
        hl_int8_dot_avx2(dot);
}
