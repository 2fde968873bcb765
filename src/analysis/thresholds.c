/* thresholds.c - names and defaults. */
#include "analysis/thresholds.h"

#include <math.h>
#include <string.h>

#include "base/status.h"

static const struct {
    const char *name;
    double      value;
} defaults[HL_N_THRESHOLDS] = {
    [HL_T_COLLAPSE_SHARE]        = { "collapse-share", 0.5 },
    [HL_T_COLLAPSE_ENTROPY]      = { "collapse-entropy", 0.05 },
    [HL_T_COLLAPSE_FALL]         = { "collapse-fall", 4.0 },
    [HL_T_OVERLOAD_SHARE]        = { "overload-share", 0.5 },
    [HL_T_OVERLOAD_ENTROPY]      = { "overload-entropy", 0.9 },
    [HL_T_OVERLOAD_CHANGE]       = { "overload-change", 0.05 },
    [HL_T_LOCKING_WINDOW]        = { "locking-window", 64.0 },
    [HL_T_LOCKING_CHANGE]        = { "locking-change", 0.05 },
    [HL_T_LOCKING_SPREAD]        = { "locking-spread", 0.01 },
    [HL_T_FLAT_ERRORS]           = { "flat-errors", 2.0 },
    [HL_T_REDUNDANCY_SIMILARITY] = { "redundancy-similarity", 0.9 },
    [HL_T_INACTIVE_NORM]         = { "inactive-norm", 0.1 },
    [HL_T_SINK_MASS]             = { "sink-mass", 0.3 },
    [HL_T_BROKEN_ROWS]           = { "broken-rows", 0.0 },
};

hl_thresholds hl_thresholds_default(void)
{
    hl_thresholds all;

    for (int i = 0; i < HL_N_THRESHOLDS; i++)
        all.values[i] = defaults[i].value;
    return all;
}

const char *hl_threshold_name(size_t index)
{
    return index < HL_N_THRESHOLDS ? defaults[index].name : NULL;
}

double hl_threshold_of(const hl_thresholds *thresholds, hl_threshold which)
{
    return thresholds != NULL ? thresholds->values[which] : defaults[which].value;
}

hl_status hl_threshold_set(hl_thresholds *thresholds, const char *name, double value)
{
    for (int i = 0; i < HL_N_THRESHOLDS; i++) {
        if (strcmp(name, defaults[i].name) != 0)
            continue;
        if (!isfinite(value) || value < 0.0)
            return hl_fail(HL_BAD_ARGUMENT, "threshold %s: %g is not a number of at least 0", name,
                           value);
        thresholds->values[i] = value;
        return HL_OK;
    }
    return hl_fail(HL_BAD_ARGUMENT, "no threshold is called '%s'", name);
}
