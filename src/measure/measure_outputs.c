/* measure_outputs.c - what heads write into the residual stream, without computing it.
 *
 * A head writes y = z W_h, where W_h is its d rows of the output projection.  The norm of y and its
 * products with other rows follow from the d x d Gram matrix alone,
 *
 *     y_i . y_j = z_i (W_h W_h') z_j',
 *
 * so that a row costs d^2 instead of d * d_model.  Row i of z W_h W_h' serves both.  Only some rows
 * of every piece are used, which is enough for means of norms. */
#include "measure/measure.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "kernels/gemm.h"
#include "kernels/likeness.h"
#include "model/model.h"

/* ----------------------------------------------------------------- Gram matrices */

static float *gram_of(const hl_measuring *m, int64_t layer, int64_t head)
{
    int64_t d    = m->config->layers[layer].d_head;
    int64_t most = m->config->d_head;

    return m->gram + layer * m->config->n_heads * most * most + head * d * d;
}

/* The output projection is stored as (d_model, n_heads d), with d columns per head; its rows are
 * gathered first. */
static void make_head_gram(float *out, float *rows, const float *weight, int64_t d_model,
                           const hl_layer_config *layer, int64_t head)
{
    int64_t d       = layer->d_head;
    int64_t n_heads = layer->n_heads;

    for (int64_t i = 0; i < d_model; i++) {
        for (int64_t j = 0; j < d; j++)
            rows[j * d_model + i] = weight[(i * n_heads + head) * d + j];
    }
    hl_gemm(&(hl_gemm_operands){ .c            = out,
                                 .c_stride     = d,
                                 .a            = rows,
                                 .a_stride     = d_model,
                                 .b            = rows,
                                 .b_stride     = d_model,
                                 .b_transposed = true,
                                 .m            = d,
                                 .n            = d,
                                 .k            = d_model });
}

/* The argument of the threads that make a layer's Gram matrices. */
typedef struct gram_job {
    hl_measuring *m;
    int64_t       layer;
    const float  *weight;
    float        *rows; /* (n_threads, d_head, d_model) */
} gram_job;

static void make_grams(void *context, int64_t first, int64_t end, int member)
{
    const gram_job  *job    = context;
    const hl_config *config = job->m->config;

    for (int64_t head = first; head < end; head++)
        make_head_gram(gram_of(job->m, job->layer, head),
                       job->rows + member * config->d_head * config->d_model, job->weight,
                       config->d_model, &config->layers[job->layer], head);
}

static hl_status make_layer_gram(hl_measuring *m, int64_t layer, float *weight, float *rows)
{
    const hl_config *config  = m->config;
    int64_t          n_heads = config->layers[layer].n_heads;
    const hl_param  *param   = hl_weights_get(m->model->weights, HL_ROLE_ATTN_O, layer, 0);

    if (param == NULL || n_heads == 0)
        return HL_OK;
    HL_NEED(hl_weight_read(weight, &param->weight));
    hl_parallel(hl_threads(m->options.n_threads), n_heads, 1, make_grams,
                &(gram_job){ m, layer, weight, rows });
    return HL_OK;
}

hl_status hl_measure_make_gram(hl_measuring *m)
{
    const hl_config *config = m->config;
    HL_FREED float  *weight = NULL;
    HL_FREED float  *rows   = NULL;
    size_t           d      = (size_t)config->d_head;
    size_t           width  = (size_t)config->d_model * d;

    HL_NEED(HL_ALLOC_ZEROED(&m->gram, (size_t)(config->n_layers * config->n_heads) * d * d));
    HL_NEED(HL_ALLOC(&weight, width * (size_t)config->n_heads));
    HL_NEED(HL_ALLOC(&rows, width * (size_t)hl_threads(m->options.n_threads)));
    for (int64_t layer = 0; layer < config->n_layers; layer++)
        HL_NEED(make_layer_gram(m, layer, weight, rows));
    return HL_OK;
}

/* ------------------------------------------------------------------------- rows */

/* Lists those rows of m->outputs that are in this chunk, by their places among the reported rows:
 * out (HL_OUTPUT_ROWS). */
static int64_t output_rows(int64_t *out, const hl_measuring *m, const hl_layer_rows *rows,
                           int64_t sequence)
{
    int64_t n = 0;

    for (int64_t i = 0; i < HL_OUTPUT_ROWS; i++) {
        int64_t row = m->outputs[sequence * HL_OUTPUT_ROWS + i] - rows->start[sequence];
        if (row >= 0 && row < rows->lengths[sequence])
            out[n++] = rows->n_sampled > 0 ? sequence * rows->n_sampled + i
                                           : sequence * rows->n_rows + row;
    }
    return n;
}

/* Sampled rows of one head in one sequence: z and y = z W_h W_h', (n, d) each. */
typedef struct head_outputs {
    float  *z;
    float  *y;
    int64_t n;
    int64_t d;
} head_outputs;

static head_outputs multiply(const hl_measuring *m, const hl_layer_rows *rows, int64_t sequence,
                             int64_t head, int member)
{
    int64_t      sampled[HL_OUTPUT_ROWS];
    int64_t      n       = output_rows(sampled, m, rows, sequence);
    int64_t      d       = rows->d_head;
    float       *own     = m->products + member * 2 * HL_OUTPUT_ROWS * d;
    head_outputs outputs = { own, own + HL_OUTPUT_ROWS * d, n, d };

    for (int64_t i = 0; i < n; i++)
        memcpy(own + i * d, rows->z + (sampled[i] * rows->n_heads + head) * d,
               (size_t)d * sizeof *own);
    hl_gemm(&(hl_gemm_operands){ .c        = outputs.y,
                                 .c_stride = d,
                                 .a        = outputs.z,
                                 .a_stride = d,
                                 .b        = gram_of(m, rows->layer, head),
                                 .b_stride = d,
                                 .m        = n,
                                 .n        = d,
                                 .k        = d });
    return outputs;
}

/* Adds |z W_h| from its square, which rounding may make negative; NaN stays NaN and is not
 * counted. */
static void add_norm(const hl_measuring *m, const hl_layer_rows *rows, int64_t sequence,
                     int64_t head, double square)
{
    hl_profile_norm(m->profile, sequence, rows->layer, head, square < 0.0 ? 0.0 : sqrt(square));
}

/* Computes k(i,j) of n rows, `step` apart; it is symmetric. */
static void make_kernel(double *out, const head_outputs *outputs, int64_t n, int64_t step)
{
    int64_t d = outputs->d;

    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j <= i; j++) {
            double product =
                hl_dot_of_floats(outputs->y + i * step * d, outputs->z + j * step * d, d);
            out[i * n + j] = product;
            out[j * n + i] = product;
        }
    }
}

/* Returns how many of n rows are compared between heads. */
static int64_t kernel_rows(int64_t n)
{
    return n > HL_KERNEL_ROWS ? HL_KERNEL_ROWS : n;
}

static void add_outputs(hl_measuring *m, const hl_layer_rows *rows, int64_t sequence, int64_t head,
                        int member)
{
    double       kernel[HL_KERNEL_ROWS * HL_KERNEL_ROWS];
    head_outputs outputs = multiply(m, rows, sequence, head, member);
    int64_t      n       = kernel_rows(outputs.n);
    int64_t      d       = outputs.d;

    if (n == 0)
        return;
    for (int64_t i = 0; i < outputs.n; i++)
        add_norm(m, rows, sequence, head,
                 hl_dot_of_floats(outputs.y + i * d, outputs.z + i * d, d));
    make_kernel(kernel, &outputs, n, outputs.n / n);
    hl_profile_kernels_head(m->profile, sequence, head, kernel, n);
}

/* Adds norms from hl_likeness (kernels/row_sums.h), which is computed where z is. */
static void add_told_norms(const hl_measuring *m, const hl_layer_rows *rows, int64_t sequence,
                           int64_t head)
{
    int64_t       sampled[HL_OUTPUT_ROWS];
    int64_t       n = output_rows(sampled, m, rows, sequence);
    const double *squares =
        hl_rows_likeness(rows)->squares + head * rows->n_batch * rows->n_sampled;

    for (int64_t i = 0; i < n; i++)
        add_norm(m, rows, sequence, head, squares[sampled[i]]);
}

void hl_measure_outputs_head(hl_measuring *m, const hl_layer_rows *rows, int64_t head, int member)
{
    for (int64_t sequence = 0; sequence < rows->n_batch; sequence++) {
        if (hl_rows_likeness(rows) != NULL)
            add_told_norms(m, rows, sequence, head);
        else
            add_outputs(m, rows, sequence, head, member);
    }
}

/* Returns the number of rows of a sequence in this chunk that are compared. */
static int64_t sequence_kernel_rows(const hl_measuring *m, const hl_layer_rows *rows,
                                    int64_t sequence)
{
    int64_t sampled[HL_OUTPUT_ROWS];

    return kernel_rows(output_rows(sampled, m, rows, sequence));
}

void hl_measure_outputs_pairs(hl_measuring *m, const hl_layer_rows *rows, int64_t head)
{
    for (int64_t sequence = 0; sequence < rows->n_batch; sequence++)
        hl_profile_kernels_pairs(m->profile, rows, sequence, head,
                                 sequence_kernel_rows(m, rows, sequence));
}

void hl_measure_outputs_close(hl_measuring *m, const hl_layer_rows *rows)
{
    for (int64_t sequence = 0; sequence < rows->n_batch; sequence++)
        hl_profile_kernels_close(m->profile, rows, sequence,
                                 sequence_kernel_rows(m, rows, sequence));
}
