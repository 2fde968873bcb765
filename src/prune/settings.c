/* settings.c - settings of gates, sorted. */
#include "prune/settings.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "model/model.h"

enum { MAX_SETTINGS = 1 << 24 };

static int64_t gate_count(const hl_settings *settings)
{
    return settings->n_layers * settings->n_heads;
}

/* ------------------------------------------------------------------------- order */

/* Larger gates first, layer by layer. */
static int compare_gates(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (a[i] != b[i])
            return a[i] > b[i] ? -1 : 1;
    }
    return 0;
}

static bool comes_first(const hl_settings *settings, int64_t a, int64_t b)
{
    int64_t n = gate_count(settings);
    return compare_gates(settings->gates + a * n, settings->gates + b * n, n) <= 0;
}

/* Stable, so that of equal settings the first comes first: merges runs of 1, 2, 4, ... */
static void merge_runs(int64_t *out, const hl_settings *settings, int64_t width)
{
    const int64_t *in = settings->order;
    int64_t        n  = settings->n_settings + 1;

    for (int64_t low = 0; low < n; low += 2 * width) {
        int64_t middle = low + width < n ? low + width : n;
        int64_t high   = low + 2 * width < n ? low + 2 * width : n;
        int64_t a = low, b = middle;

        for (int64_t i = low; i < high; i++) {
            bool left = a < middle && (b >= high || comes_first(settings, in[a], in[b]));
            out[i]    = left ? in[a++] : in[b++];
        }
    }
}

static hl_status sort(hl_settings *settings)
{
    int64_t   n      = settings->n_settings + 1;
    int64_t  *work   = NULL;
    hl_status status = HL_ALLOC(&work, (size_t)n);

    if (status != HL_OK)
        return status;
    settings->order[0] = n - 1; /* the dense model's, before its equals */
    for (int64_t i = 1; i < n; i++)
        settings->order[i] = i - 1;
    for (int64_t width = 1; width < n; width *= 2) {
        merge_runs(work, settings, width);
        memcpy(settings->order, work, (size_t)n * sizeof *work);
    }
    hl_free(work);
    return HL_OK;
}

/* ------------------------------------------------------------------ init and clear */

static hl_status check_gates(const hl_settings *settings)
{
    int64_t n_gates = gate_count(settings);

    for (int64_t i = 0; i < settings->n_settings * n_gates; i++) {
        float gate = settings->gates[i];
        if (!(gate >= 0.0f && gate <= 1.0f))
            return hl_fail(HL_BAD_ARGUMENT,
                           "setting %lld: the gate of L%lldH%lld is %g, wanted 0 to 1",
                           (long long)(i / n_gates), (long long)(i % n_gates / settings->n_heads),
                           (long long)(i % settings->n_heads), (double)gate);
    }
    return HL_OK;
}

hl_status hl_settings_init(hl_settings *out, const hl_model *model, const float *gates,
                           int64_t n_settings)
{
    hl_status status = HL_OK;

    *out = (hl_settings){ .n_settings = n_settings,
                          .n_layers   = model->config->n_layers,
                          .n_heads    = model->config->n_heads };
    if (n_settings < 0 || n_settings > MAX_SETTINGS || (gates == NULL && n_settings > 0))
        return hl_fail(HL_BAD_ARGUMENT, "evaluate: %lld settings of gates, wanted 0 to %d",
                       (long long)n_settings, MAX_SETTINGS);
    size_t n_gates = (size_t)gate_count(out);
    size_t count   = (size_t)n_settings * n_gates;
    HL_TRY(HL_ALLOC(&out->gates, count + n_gates));
    HL_TRY(HL_ALLOC(&out->order, (size_t)n_settings + 1));
    if (n_settings > 0)
        memcpy(out->gates, gates, count * sizeof *gates);
    for (size_t i = 0; i < n_gates; i++)
        out->gates[count + i] = 1.0f;
    HL_TRY(check_gates(out));
    HL_TRY(sort(out));

done:
    if (status != HL_OK)
        hl_settings_clear(out);
    return status;
}

void hl_settings_clear(hl_settings *settings)
{
    hl_free(settings->gates);
    hl_free(settings->order);
    *settings = (hl_settings){ 0 };
}

/* ---------------------------------------------------------------------- questions */

const float *hl_settings_gates(const hl_settings *settings, int64_t leaf)
{
    return settings->gates + settings->order[leaf] * gate_count(settings);
}

int64_t hl_settings_first(const hl_settings *settings, int64_t leaf)
{
    int64_t n_heads = settings->n_heads;
    int64_t layer   = 0;

    if (leaf == 0)
        return 0;
    const float *before = hl_settings_gates(settings, leaf - 1);
    const float *gates  = hl_settings_gates(settings, leaf);
    while (layer < settings->n_layers &&
           compare_gates(before + layer * n_heads, gates + layer * n_heads, n_heads) == 0)
        layer++;
    return layer;
}
