/* measure_rows.c - the statistics of every row, as design: tensors of golden files.
 *
 * Windows come one after the other, but in the file layers come first: (L, B, H, S).  Each
 * window is kept as one block until the end, when their number is known. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "formats/safetensors.h"
#include "measure/measure.h"

enum { N_STATISTICS = 8 };

static const char *const names[N_STATISTICS] = { "entropy",  "renyi2",   "varentropy", "peak",
                                                 "diagonal", "previous", "first",      "lse" };

struct hl_measure_rows {
    int64_t  n_layers;
    int64_t  n_heads;
    int64_t  context;
    float  **windows; /* (n_windows) each (statistics, L, H, S), NaN where there is no row */
    int64_t *tokens;  /* (n_windows, S) */
    int64_t *lengths; /* (n_windows) */
    size_t   n_windows;
    size_t   capacity;
    size_t   first; /* window of the batch at hand */
};

hl_status hl_measure_rows_new(hl_measure_rows **out, const hl_measuring *m)
{
    hl_status status = HL_ALLOC_ZEROED(out, 1);

    if (status == HL_OK) {
        (*out)->n_layers = m->config->n_layers;
        (*out)->n_heads  = m->config->n_heads;
        (*out)->context  = m->options.windows.context;
    }
    return status;
}

void hl_measure_rows_free(hl_measure_rows *rows)
{
    if (rows == NULL)
        return;
    for (size_t i = 0; i < rows->n_windows; i++)
        hl_free(rows->windows[i]);
    hl_free(rows->windows);
    hl_free(rows->tokens);
    hl_free(rows->lengths);
    hl_free(rows);
}

static size_t window_count(const hl_measure_rows *rows)
{
    return (size_t)(N_STATISTICS * rows->n_layers * rows->n_heads * rows->context);
}

static hl_status grow(hl_measure_rows *rows)
{
    hl_status status  = HL_OK;
    size_t    more    = 2 * rows->capacity + 16;
    size_t    context = (size_t)rows->context;

    if (rows->n_windows < rows->capacity)
        return HL_OK;
    HL_TRY(hl_realloc((void **)&rows->windows, rows->capacity, more, sizeof *rows->windows));
    HL_TRY(hl_realloc((void **)&rows->lengths, rows->capacity, more, sizeof *rows->lengths));
    HL_TRY(hl_realloc((void **)&rows->tokens, rows->capacity * context, more * context,
                      sizeof *rows->tokens));
    rows->capacity = more;

done:
    return status;
}

hl_status hl_measure_rows_begin(hl_measure_rows *rows, const hl_batch *batch)
{
    hl_status status  = HL_OK;
    size_t    context = (size_t)rows->context;

    rows->first = rows->n_windows;
    for (int64_t i = 0; i < batch->n_windows; i++) {
        float *window = NULL;

        HL_TRY(grow(rows));
        HL_TRY(HL_ALLOC(&window, window_count(rows)));
        for (size_t j = 0; j < window_count(rows); j++)
            window[j] = NAN;
        memcpy(rows->tokens + rows->n_windows * context, batch->tokens + (size_t)i * context,
               context * sizeof *rows->tokens);
        rows->lengths[rows->n_windows]   = batch->lengths[i];
        rows->windows[rows->n_windows++] = window;
    }

done:
    return status;
}

void hl_measure_rows_add(hl_measure_rows *rows, const hl_layer_rows *layer)
{
    const hl_attention_result *r             = layer->rows;
    const float *const sources[N_STATISTICS] = { r->entropy,  r->renyi2,   r->varentropy, r->peak,
                                                 r->diagonal, r->previous, r->first,      r->lse };
    int64_t            n_layer               = rows->n_heads * rows->context;

    for (int64_t i = 0; i < layer->n_batch * layer->n_heads * N_STATISTICS; i++) {
        int64_t statistic = i % N_STATISTICS;
        int64_t head      = i / N_STATISTICS % layer->n_heads;
        int64_t sequence  = i / N_STATISTICS / layer->n_heads;

        if (layer->lengths[sequence] == 0)
            continue;
        float *out = rows->windows[rows->first + (size_t)sequence] +
                     (statistic * rows->n_layers + layer->layer) * n_layer + head * rows->context;
        memcpy(out + layer->start[sequence],
               sources[statistic] + (sequence * layer->n_heads + head) * layer->n_rows,
               (size_t)layer->lengths[sequence] * sizeof *out);
    }
}

/* (L, B, H, S) of one statistic. */
static hl_status gather(float **out, const hl_measure_rows *rows, int64_t statistic)
{
    size_t    n_layer = (size_t)(rows->n_heads * rows->context);
    hl_status status  = HL_ALLOC(out, (size_t)rows->n_layers * rows->n_windows * n_layer);

    for (size_t i = 0; i < (size_t)rows->n_layers * rows->n_windows && status == HL_OK; i++) {
        size_t layer  = i / rows->n_windows;
        size_t window = i % rows->n_windows;
        memcpy(*out + i * n_layer,
               rows->windows[window] + ((size_t)(statistic * rows->n_layers) + layer) * n_layer,
               n_layer * sizeof **out);
    }
    return status;
}

static void add_tensor(hl_safetensors_writer *writer, const char *name, hl_dtype dtype,
                       const void *data, int n_dims, const int64_t *shape)
{
    hl_tensor tensor = { .name = name, .dtype = dtype, .n_dims = n_dims, .data = data };
    size_t    count  = 1;

    for (int i = 0; i < n_dims; i++) {
        tensor.shape[i] = shape[i];
        count *= (size_t)shape[i];
    }
    tensor.n_bytes = count * (dtype == HL_DTYPE_I64 ? sizeof(int64_t) : sizeof(float));
    hl_safetensors_add(writer, &tensor);
}

hl_status hl_measure_rows_write(hl_measure_rows *rows, const char *path)
{
    hl_status              status               = HL_OK;
    hl_safetensors_writer *writer               = NULL;
    float                 *values[N_STATISTICS] = { NULL };
    const int64_t          n                    = (int64_t)rows->n_windows;
    const int64_t          shape[]  = { rows->n_layers, n, rows->n_heads, rows->context };
    const int64_t          tokens[] = { n, rows->context };

    HL_TRY(hl_safetensors_writer_new(&writer));
    add_tensor(writer, "tokens", HL_DTYPE_I64, rows->tokens, 2, tokens);
    add_tensor(writer, "lengths", HL_DTYPE_I64, rows->lengths, 1, &n);
    for (int i = 0; i < N_STATISTICS; i++) {
        HL_TRY(gather(&values[i], rows, i));
        add_tensor(writer, names[i], HL_DTYPE_F32, values[i], 4, shape);
    }
    HL_TRY(hl_safetensors_write(writer, path));

done:
    hl_safetensors_writer_free(writer);
    for (int i = 0; i < N_STATISTICS; i++)
        hl_free(values[i]);
    return status;
}
