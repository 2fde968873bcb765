/* fuzz_choices.h - an input as a row of choices, for targets that build something valid of it.
 *
 * One byte a choice, and zeros behind the end: so that every input is one, and a byte that
 * changes changes one thing. */
#ifndef HL_FUZZ_CHOICES_H
#define HL_FUZZ_CHOICES_H

#include "fuzz.h"

typedef struct choices {
    const uint8_t *bytes;
    size_t         n_bytes;
    uint32_t       noise; /* of choose_noise; not 0 */
} choices;

static inline uint8_t choose_byte(choices *from)
{
    if (from->n_bytes == 0)
        return 0;
    from->n_bytes--;
    return *from->bytes++;
}

/* From low to high, both included. */
static inline int64_t choose(choices *from, int64_t low, int64_t high)
{
    return low + choose_byte(from) % (high - low + 1);
}

static inline bool choose_bool(choices *from)
{
    return choose_byte(from) % 2 == 1;
}

/* Every following choose_noise depends on one more byte. */
static inline void choose_seed(choices *from)
{
    from->noise = (uint32_t)choose_byte(from) * 2654435761u + 1;
}

/* From -1 to 1; costs no bytes. */
static inline float choose_noise(choices *from)
{
    from->noise ^= from->noise << 13;
    from->noise ^= from->noise >> 17;
    from->noise ^= from->noise << 5;
    return (float)(from->noise >> 8) / (float)(1 << 23) - 1.0f;
}

#endif
