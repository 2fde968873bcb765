/* fuzz.h - what every fuzz target shares.
 *
 * A target is one function.  libFuzzer calls it with inputs that it makes up (`make fuzz`), and
 * replay.c with those of fuzz/corpus/NAME (`make check`).  A promise that is broken aborts:
 * both of them keep the input. */
#ifndef HL_FUZZ_H
#define HL_FUZZ_H

#include <stdint.h>
#include <stdlib.h>

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

#endif
