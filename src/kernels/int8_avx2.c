/* int8_avx2.c - products with activations of 8 bits, for AVX2. */
#include "kernels/int8_dot_avx2.h"

void hl_int8_dot_avx2(const hl_int8_dot *dot)
{
    int8_dot(dot);
}
