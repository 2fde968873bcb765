/* tap.c - names of places in a model, and checks of what a tap asks for. */
#include "model/tap.h"

#include <stdio.h>

#include "base/status.h"

static const char *const hooks[HL_N_HOOKS] = {
    [HL_HOOK_Q]           = "attn.hook_q",
    [HL_HOOK_K]           = "attn.hook_k",
    [HL_HOOK_V]           = "attn.hook_v",
    [HL_HOOK_Z]           = "attn.hook_z",
    [HL_HOOK_ATTN_SCORES] = "attn.hook_attn_scores",
    [HL_HOOK_PATTERN]     = "attn.hook_pattern",
    [HL_HOOK_ENTROPY]     = "attn.hook_entropy",
    [HL_HOOK_RESID_PRE]   = "hook_resid_pre",
    [HL_HOOK_RESID_MID]   = "hook_resid_mid",
    [HL_HOOK_RESID_POST]  = "hook_resid_post",
};

size_t hl_hook_name(char *out, size_t n_bytes, hl_hook hook, int64_t layer)
{
    const char *name   = (unsigned)hook < HL_N_HOOKS ? hooks[hook] : "?";
    int         length = snprintf(out, n_bytes, "blocks.%lld.%s", (long long)layer, name);
    return length < 0 ? 0 : (size_t)length;
}

/* -1: they rise, up to the -1 behind the last. */
static int64_t first_not_rising(const int64_t *positions, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        if (positions[i] <= positions[i - 1] && positions[i] != -1)
            return i;
    }
    return -1;
}

hl_status hl_tap_check(const hl_tap *tap, const hl_session_options *options, int64_t n_batch)
{
    int64_t n_patterns = n_batch > 0 ? options->n_batch * options->n_patterns / n_batch : 0;

    if (tap == NULL)
        return HL_OK;
    if ((tap->wants & ~options->wants) != 0)
        return hl_fail(HL_BAD_ARGUMENT, "the tap wants 0x%x, but the session was opened with 0x%x",
                       (unsigned)tap->wants, (unsigned)options->wants);
    if ((tap->wants & HL_WANT_PATTERN) == 0)
        return HL_OK;
    if (tap->n_pattern_positions < 0 || tap->n_pattern_positions > n_patterns)
        return hl_fail(HL_BAD_ARGUMENT,
                       "the tap names %lld positions, the session was opened for %lld",
                       (long long)tap->n_pattern_positions, (long long)n_patterns);
    for (int64_t list = 0; list < (tap->patterns_differ ? n_batch : 1); list++) {
        const int64_t *positions = tap->pattern_positions + list * tap->n_pattern_positions;
        int64_t        bad       = first_not_rising(positions, tap->n_pattern_positions);

        if (bad >= 0)
            return hl_fail(HL_BAD_ARGUMENT, "the tap's positions do not rise at [%lld]",
                           (long long)bad);
    }
    return HL_OK;
}
