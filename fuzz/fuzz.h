/* fuzz.h - what every fuzz target shares.
 *
 * A target is one function.  libFuzzer calls it with inputs that it generates (`make fuzz`), and
 * replay.c with those of fuzz/corpus/NAME (`make check`).  A broken promise aborts; both then keep
 * the input. */
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

/* Checks what a parser promises for bytes that it refuses: a message, and no result.  Returns 0, so
 * that targets can end with it. */
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
 * A call may take 1 s and 8 us per byte, and make texts of 64 bytes per byte and 1 MiB, both linear
 * in its input (tokenize/budget.h).  A call notices an exceeded limit a little later; a call that
 * takes five times as long does not check its budget. */

/* Returns the CPU time of this thread. */
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
