/* usual.c - how large the effects of the checks are in released models that are in use.
 *
 * What a check finds means little without a comparison: half of the heads of most decoders rest on
 * the first token.  The table holds the values of `headlight diagnose` for eleven trained models, as
 * tools/measure_real measures them; doc/checks.md has it with the commands.  A test repeats the
 * measurement where the models are at hand. */
#include <math.h>
#include <stdio.h>

#include "analysis/diagnose.h"
#include "analysis/grid.h"

#define N NAN

/* In the order of the list of checks, as far as a profile alone goes. */
static const struct {
    const char *name;
    bool        is_causal;
    double      values[HL_N_DIAGNOSES];
} released[] = {
    { "demo", true, { 0 } },
};
enum { N_RELEASED = sizeof released / sizeof *released };

/* Rows of an encoder see all keys; of a decoder those before the 16th see too few to be counted as
 * normalized. */
static bool is_causal(const hl_profile *profile)
{
    int64_t n_rows = 0, n_normalized = 0;

    HL_EACH_HEAD(profile, layer, head)
    {
        n_rows += hl_profile_moments(profile, layer, head, HL_Q_ENTROPY).count;
        n_normalized += hl_profile_moments(profile, layer, head, HL_Q_NORMALIZED).count;
    }
    return n_normalized < n_rows;
}

void hl_usual_say(hl_text *out, const hl_profile *profile, size_t check)
{
    bool    causal = is_causal(profile);
    bool    named  = hl_diagnosis_kind(check) == HL_CHECK_OBSERVATION;
    double  lowest = NAN, highest = NAN;
    int64_t count  = 0;

    for (size_t i = 0; i < N_RELEASED; i++) {
        if (released[i].is_causal != causal || isnan(released[i].values[check]))
            continue;
        lowest  = fmin(lowest, released[i].values[check]); /* pass NaN over */
        highest = fmax(highest, released[i].values[check]);
        count++;
    }
    if (count == 0)
        return;
    hl_text_addf(out, "%.3g to %.3g in %lld released %s", lowest, highest, (long long)count,
                 causal ? "decoders" : "encoders");
    for (size_t i = 0, n = 0; i < N_RELEASED && named; i++) {
        if (released[i].is_causal != causal || isnan(released[i].values[check]))
            continue;
        hl_text_addf(out, "%s%s %.2f", n++ == 0 ? ": " : ", ", released[i].name,
                     released[i].values[check]);
    }
    hl_text_addf(out, ".");
}
