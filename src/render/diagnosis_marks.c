/* diagnosis_marks.c - diagnoses that hold, layer by layer. */
#include "render/diagnosis_marks.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

static void fill_row(hl_diagnosis_marks *marks, const hl_diagnosis *diagnosis,
                     const hl_profile *profile)
{
    double *shares = marks->shares + marks->n_rows * marks->n_layers;

    for (int64_t layer = 0; layer < marks->n_layers; layer++)
        shares[layer] = diagnosis->n_heads == 0 ? 1.0 : 0.0;
    for (int64_t i = 0; i < diagnosis->n_heads; i++) {
        int64_t layer = diagnosis->heads[i].layer;
        if (layer >= 0 && layer < marks->n_layers)
            shares[layer] += 1.0 / (double)hl_profile_heads_of(profile, layer);
    }
    marks->names[marks->n_rows]     = diagnosis->name;
    marks->n_heads[marks->n_rows++] = diagnosis->n_heads;
}

hl_status hl_diagnosis_marks_read(hl_diagnosis_marks *out, const hl_profile *profile)
{
    hl_status     status = HL_OK;
    hl_diagnoses *found  = NULL;

    *out = (hl_diagnosis_marks){ .n_layers = hl_profile_n_layers(profile) };
    HL_TRY(HL_ALLOC(&out->shares, (size_t)out->n_layers * HL_N_DIAGNOSES));
    HL_TRY(hl_diagnose(&found, profile, NULL, NULL));
    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        if (found->items[i].verdict == HL_VERDICT_FOUND)
            fill_row(out, &found->items[i], profile);
    }

done:
    hl_diagnoses_free(found);
    return status;
}

void hl_diagnosis_marks_free(hl_diagnosis_marks *marks)
{
    hl_free(marks->shares);
    *marks = (hl_diagnosis_marks){ 0 };
}

bool hl_diagnosis_marks_has(const hl_diagnosis_marks *marks, const char *name)
{
    for (int i = 0; i < marks->n_rows; i++) {
        if (strcmp(marks->names[i], name) == 0)
            return true;
    }
    return false;
}

void hl_diagnosis_marks_say(char *out, size_t n_bytes, const hl_diagnosis_marks *marks)
{
    size_t used = 0;

    out[0] = '\0';
    for (int i = 0; i < marks->n_rows && used < n_bytes; i++) {
        char heads[48] = "";
        if (marks->n_heads[i] > 0)
            snprintf(heads, sizeof heads, " (%lld head%s)", (long long)marks->n_heads[i],
                     marks->n_heads[i] == 1 ? "" : "s");
        int added = snprintf(out + used, n_bytes - used, "%s%s%s%s", i == 0 ? "Diagnoses: " : ", ",
                             marks->names[i], heads, i == marks->n_rows - 1 ? "." : "");
        used += added > 0 ? (size_t)added : 0;
    }
}
