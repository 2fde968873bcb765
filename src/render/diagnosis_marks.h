/* diagnosis_marks.h - what is wrong with a model, where in a figure it shows.
 *
 *     hl_diagnosis_marks marks = { 0 };
 *     HL_TRY(hl_diagnosis_marks_read(&marks, figure->profile));
 *     ... hl_plot_words.marks = &marks ...
 *   done:
 *     hl_diagnosis_marks_free(&marks); */
#ifndef HL_RENDER_DIAGNOSIS_MARKS_H
#define HL_RENDER_DIAGNOSIS_MARKS_H

#include "headlight.h"

typedef struct hl_diagnosis_marks {
    int64_t     n_layers;
    int         n_rows;                  /* diagnoses that hold */
    const char *names[HL_N_DIAGNOSES];   /* (n_rows) */
    int64_t     n_heads[HL_N_DIAGNOSES]; /* (n_rows) that show it; 0: it is of the whole model */
    double     *shares; /* (n_rows, n_layers) of the layer's heads; 1 everywhere of the whole
                         * model's */
} hl_diagnosis_marks;

hl_status hl_diagnosis_marks_read(hl_diagnosis_marks *out, const hl_profile *profile);
void      hl_diagnosis_marks_free(hl_diagnosis_marks *marks);
/* Does the one of this name hold? */
bool hl_diagnosis_marks_has(const hl_diagnosis_marks *marks, const char *name);
/* "Diagnoses: sink-heads (12 heads)." for captions; "" if there is none. */
void hl_diagnosis_marks_say(char *out, size_t n_bytes, const hl_diagnosis_marks *marks);

#endif
