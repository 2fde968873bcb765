/* fuzz_choices.h - an input as a sequence of choices, for targets that build something valid from
 * it.
 *
 * Each choice takes one byte, and zeros after the end.  Every input is therefore valid, and
 * changing a byte changes one choice. */
#ifndef HL_FUZZ_CHOICES_H
#define HL_FUZZ_CHOICES_H

#include "fuzz.h"

typedef struct choices {
    const uint8_t *bytes;
    size_t         n_bytes;
    uint32_t       noise; /* state of choose_noise; not 0 */
} choices;

static inline uint8_t choose_byte(choices *from)
{
    if (from->n_bytes == 0)
        return 0;
    from->n_bytes--;
    return *from->bytes++;
}

/* Chooses from low to high, both included. */
static inline int64_t choose(choices *from, int64_t low, int64_t high)
{
    return low + choose_byte(from) % (high - low + 1);
}

static inline bool choose_bool(choices *from)
{
    return choose_byte(from) % 2 == 1;
}

/* Makes every later choose_noise depend on one more byte. */
static inline void choose_seed(choices *from)
{
    from->noise = (uint32_t)choose_byte(from) * 2654435761u + 1;
}

/* Returns a number from -1 to 1; takes no bytes. */
static inline float choose_noise(choices *from)
{
    from->noise ^= from->noise << 13;
    from->noise ^= from->noise >> 17;
    from->noise ^= from->noise << 5;
    return (float)(from->noise >> 8) / (float)(1 << 23) - 1.0f;
}

#endif
