/* fuzz.h - what every fuzz target shares.
 *
 * A target is one function.  libFuzzer calls it with inputs that it makes up (`make fuzz`), and
 * replay.c with those of fuzz/corpus/NAME (`make check`).  A promise that is broken aborts:
 * both of them keep the input. */
#ifndef HL_FUZZ_H
#define HL_FUZZ_H

#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "headlight.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

#define PROMISE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

/* What a parser owes for bytes that it refuses: a message, and nothing that lives on.  Is 0, for
 * targets that end there. */
static inline int refused(const void *result)
{
    PROMISE(result == NULL && hl_error_message()[0] != '\0');
    return 0;
}

/* ------------------------------------------------------------- time and amplification
 *
 *     double begin = fuzz_seconds();
 *     ... a call on n bytes from outside ...
 *     PROMISE(fuzz_in_time(begin, n));
 *
 * What a call may take is linear in its input (tokenize/budget.h): 1 s and 8 us a byte, and
 * texts of 64 bytes a byte and 1 MiB.  A call notices that it is beyond that a little later; five
 * times as long is a call that does not look. */

/* Processor time of this thread. */
static inline double fuzz_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline bool fuzz_in_time(double begin, size_t n_bytes)
{
    return fuzz_seconds() - begin <= 5.0 * (1.0 + 8e-6 * (double)n_bytes);
}

static inline bool fuzz_in_bounds(size_t n_output, size_t n_input)
{
    return n_output <= 64 * n_input + ((size_t)1 << 20);
}

#endif
