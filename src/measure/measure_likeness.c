/* measure_likeness.c - what heads write and how alike they are, as a device tells it.
 *
 * In the parts of measure_outputs.c, for layers whose rows come with hl_likeness (base/row_runs.h):
 * z stays where it is, and what is left to do is to add up. */
#include <math.h>

#include "base/row_runs.h"
#include "measure/measure.h"

/* Rows of a sequence's kernels in this chunk. */
static int64_t kernel_rows(const hl_measuring *m, const hl_layer_rows *rows, int64_t sequence)
{
    int64_t sampled[HL_OUTPUT_ROWS];
    int64_t n = hl_measure_output_rows(sampled, m, rows, sequence);

    return n < HL_KERNEL_ROWS ? n : HL_KERNEL_ROWS;
}

void hl_measure_likeness_head(hl_measuring *m, const hl_layer_rows *rows, int64_t head)
{
    int64_t       sampled[HL_OUTPUT_ROWS];
    const double *squares = rows->likeness->squares + head * rows->n_batch * rows->n_sampled;

    for (int64_t sequence = 0; sequence < rows->n_batch; sequence++) {
        int64_t n = hl_measure_output_rows(sampled, m, rows, sequence);

        for (int64_t i = 0; i < n; i++) {
            double square = squares[sampled[i]];

            /* Rounding may make it less than 0; what is no number stays one that is not counted. */
            hl_profile_norm(m->profile, rows->layer, head, square < 0.0 ? 0.0 : sqrt(square));
        }
    }
}

void hl_measure_likeness_pairs(hl_measuring *m, const hl_layer_rows *rows, int64_t head)
{
    hl_profile_made_distances(m->profile, rows, head);
    for (int64_t sequence = 0; sequence < rows->n_batch; sequence++)
        hl_profile_made_kernels(m->profile, rows, sequence, head, kernel_rows(m, rows, sequence));
}

void hl_measure_likeness_close(hl_measuring *m, const hl_layer_rows *rows)
{
    for (int64_t sequence = 0; sequence < rows->n_batch; sequence++)
        hl_profile_made_close(m->profile, rows, sequence, kernel_rows(m, rows, sequence));
}
