/* analysis_support.h - what the tests of src/analysis share. */
#ifndef HL_TESTS_ANALYSIS_SUPPORT_H
#define HL_TESTS_ANALYSIS_SUPPORT_H

#include "support.h"

#include <math.h>

#include "analysis/numbers.h"

#define assert_near(got, wanted, tolerance)                                                        \
    do {                                                                                           \
        double got_ = (got), wanted_ = (wanted);                                                   \
        if (!(fabs(got_ - wanted_) <= (tolerance)))                                                \
            fail_msg("%s is %.17g, wanted %.17g", #got, got_, wanted_);                            \
    } while (0)

/* Returns a number in [0, 1). */
static inline double uniform(hl_random *random)
{
    return (double)(hl_random_next(random) >> 11) / 9007199254740992.0;
}

#endif
