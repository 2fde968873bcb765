/* select.h - the largest of a row's scores, without sorting them.
 *
 * Floats in an order of integers: the n-th largest is found bit by bit, by counting.  The CPU and CUDA
 * share these formulas. */
#ifndef HL_KERNELS_SELECT_H
#define HL_KERNELS_SELECT_H

#include <stdint.h>
#include <string.h>

#include "base/host_device.h"

/* A number with the order of the float; NaN counts as the smallest. */
HL_HOST_DEVICE uint32_t hl_select_order(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    if (x != x)
        return 0;
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

#endif
