/* usual.c - how large the effects of the checks are in released models that are in use.
 *
 * What a check finds means little without a comparison: half of the heads of most decoders rest on
 * the first token.  The table holds the values of `headlight diagnose` for eleven trained models, as
 * tools/check_table.py measures them and prints the rows (--usual); doc/checks.md has all of it with
 * the commands. */
#include <math.h>
#include <stdio.h>

#include "analysis/diagnose.h"
#include "analysis/grid.h"

#define N NAN

/* Values are in the order of the list of checks, as far as a profile alone suffices. */
static const struct {
    const char *name;
    bool        is_causal;
    double      values[HL_N_DIAGNOSES];
} released[] = {
    { "SmolLM2-135M",
      true,
      { 0, 0, 0.0185, N, 0.599, 0.0037, 0.344, 0.522, N, 0.0185, 0.0037, 0.0111 } },
    { "Qwen2.5-Coder-0.5B (code)",
      true,
      { 0, 0.0179, 0.00298, N, 0.426, 0, 0.192, 0.494, N, 0.0327, 0, 0.0179 } },
    { "Gemma-3-270M", true, { 0, 0, 0, N, 0.325, 0, 0.604, 0.625, N, 0.0278, 0, 0 } },
    { "TinyLlama-1.1B",
      true,
      { 0, 0.00284, 0.0469, N, 0.759, 0.0199, 0.29, 0.821, N, 0.00284, 0.0199, 0.101 } },
    { "IgLM (antibodies)", true, { 0, 0.0938, 0, N, 0.404, 0, 0.648, 0, N, 0.125, 0, 0 } },
    { "IgLM-S (antibodies)", true, { 0, 0.167, 0.111, N, 0.329, 0, 0.716, 0, N, 0.111, 0, 0 } },
    { "MiniLM-L6", false, { 0, 0.0139, 0.111, N, 0.325, 0, 0.613, 0.361, N, 0.0278, 0, 0 } },
    { "AntiBERTy (antibodies)", false, { 0, 0, 0.203, N, 0.254, 0, 0.739, 0, N, 0, 0, 0 } },
    { "Sapiens-VH (antibodies)", false, { 0, 0, 0.0312, N, 0.15, 0, 0.722, 0, N, 0, 0, 0 } },
    { "Sapiens-VL (antibodies)",
      false,
      { 0, 0, 0.562, N, 0.245, 0.219, 0.301, 0, N, 0, 0.219, 0 } },
    { "rxnfp (reactions)",
      false,
      { 0, 0.208, 0.0833, N, 0.88, 0.0417, 0.514, 0, N, 0.104, 0.0417, 0 } },
};
enum { N_RELEASED = sizeof released / sizeof *released };

/* Is this a decoder? In an encoder each row sees all keys; in a decoder the first 15 rows see
 * too few keys to be counted as normalized. */
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
    int64_t count = 0;

    for (size_t i = 0; i < N_RELEASED; i++) {
        if (released[i].is_causal != causal || isnan(released[i].values[check]))
            continue;
        lowest  = fmin(lowest, released[i].values[check]); /* fmin and fmax ignore NaN */
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
