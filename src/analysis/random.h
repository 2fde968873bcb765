/* random.h - numbers that look random and are the same everywhere.
 *
 * SplitMix64: a counter that is stepped by an odd constant and mixed.  Any seed is
 * a good one, 0 too, and nothing of the machine or the thread enters. */
#ifndef HL_ANALYSIS_RANDOM_H
#define HL_ANALYSIS_RANDOM_H

#include <stdint.h>

/* Initialized as { seed }. */
typedef struct hl_random {
    uint64_t state;
} hl_random;

static inline uint64_t hl_random_next(hl_random *random)
{
    uint64_t mixed = random->state += 0x9e3779b97f4a7c15u;

    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
}

/* Returns one of 0 ... count - 1 with equal probability; count is at least 1. */
static inline int64_t hl_random_below(hl_random *random, int64_t count)
{
    uint64_t n      = (uint64_t)count;
    uint64_t biased = (UINT64_MAX % n + 1) % n; /* Numbers above the last multiple of n are drawn
                                                 * again; otherwise small results would be more
                                                 * likely. */
    uint64_t number = hl_random_next(random);

    while (number > UINT64_MAX - biased)
        number = hl_random_next(random);
    return (int64_t)(number % n);
}

#endif
