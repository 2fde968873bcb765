/* clock.c - a clock that only goes forward. */
#include "base/clock.h"

#include <time.h>

double hl_clock_seconds(void)
{
    struct timespec time = { 0 };

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}
