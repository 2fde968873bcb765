/* measure_rows.c - the statistics of every row, as design: tensors of golden files.
 *
 * Windows come one after the other, but in the file layers come first: (L, B, H, S).  How
 * many windows there will be is counted beforehand, so that the file has its whole size
 * from the start and each batch goes to its places in it: memory does not depend on how
 * much text there is. */
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "formats/safetensors.h"
#include "measure/measure.h"

enum { N_STATISTICS = 8 };

static const char *const names[N_STATISTICS] = { "entropy",  "renyi2",   "varentropy", "peak",
                                                 "diagonal", "previous", "first",      "lse" };

struct hl_measure_rows {
    const char            *path; /* borrowed */
    hl_writer             *file;
    hl_safetensors_writer *header;
    size_t                 offsets[N_STATISTICS];
    int64_t                n_layers;
    int64_t                n_heads;
    int64_t                context;
    int64_t                n_windows; /* in all */
    int64_t                n_done;
    float                 *batch; /* (n_batch, statistics, L, H, S), NaN where there is no row */
};

/* ----------------------------------------------------------------------- opening */

static hl_status count_windows(int64_t *out, const hl_measuring *m)
{
    hl_status   status  = HL_OK;
    hl_windows *windows = NULL;
    hl_batch    batch;

    *out = 0;
    HL_TRY(hl_windows_open(&windows, m->corpus, &m->options.windows));
    do {
        HL_TRY(hl_windows_next(&batch, windows));
        *out += batch.n_windows;
    } while (batch.n_windows > 0);

done:
    hl_windows_close(windows);
    return status;
}

static void add_tensor(hl_safetensors_writer *writer, const char *name, hl_dtype dtype, int n_dims,
                       const int64_t *shape)
{
    hl_tensor tensor = { .name = name, .dtype = dtype, .n_dims = n_dims };

    memcpy(tensor.shape, shape, (size_t)n_dims * sizeof *shape);
    hl_status status = hl_tensor_bytes(&tensor.n_bytes, &tensor);
    if (status != HL_OK) /* too large: the writer finds it as well, and remembers */
        tensor.n_bytes = 0;
    hl_safetensors_add(writer, &tensor);
}

static hl_status open_file(hl_measure_rows *rows)
{
    hl_status     status  = HL_OK;
    const int64_t n       = rows->n_windows;
    const int64_t shape[] = { rows->n_layers, n, rows->n_heads, rows->context };

    HL_TRY(hl_safetensors_writer_new(&rows->header));
    add_tensor(rows->header, "tokens", HL_DTYPE_I64, 2, (const int64_t[]){ n, rows->context });
    add_tensor(rows->header, "lengths", HL_DTYPE_I64, 1, &n);
    for (int i = 0; i < N_STATISTICS; i++)
        add_tensor(rows->header, names[i], HL_DTYPE_F32, 4, shape);
    HL_TRY(hl_safetensors_begin(&rows->file, rows->header, rows->path));
    for (int i = 0; i < N_STATISTICS; i++)
        rows->offsets[i] = hl_safetensors_offset(rows->header, names[i]);

done:
    return status;
}

static size_t window_count(const hl_measure_rows *rows)
{
    return (size_t)(N_STATISTICS * rows->n_layers * rows->n_heads * rows->context);
}

hl_status hl_measure_rows_new(hl_measure_rows **out, const hl_measuring *m)
{
    hl_status        status = HL_OK;
    hl_measure_rows *rows   = NULL;

    *out = NULL;
    HL_TRY(HL_ALLOC_ZEROED(&rows, 1));
    rows->path     = m->options.rows_path;
    rows->n_layers = m->config->n_layers;
    rows->n_heads  = m->config->n_heads;
    rows->context  = m->options.windows.context;
    HL_TRY(HL_ALLOC(&rows->batch, (size_t)m->options.windows.n_batch * window_count(rows)));
    HL_TRY(count_windows(&rows->n_windows, m));
    HL_TRY(open_file(rows));
    *out = rows;
    rows = NULL;

done:
    hl_measure_rows_free(rows);
    return status;
}

void hl_measure_rows_free(hl_measure_rows *rows)
{
    if (rows == NULL)
        return;
    hl_writer_abandon(rows->file);
    hl_safetensors_writer_free(rows->header);
    hl_free(rows->batch);
    hl_free(rows);
}

/* ----------------------------------------------------------------------- batches */

void hl_measure_rows_begin(hl_measure_rows *rows, const hl_batch *batch)
{
    for (size_t i = 0; i < (size_t)batch->n_windows * window_count(rows); i++)
        rows->batch[i] = NAN;
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
        float *out = rows->batch + (size_t)sequence * window_count(rows) +
                     (statistic * rows->n_layers + layer->layer) * n_layer + head * rows->context;
        memcpy(out + layer->start[sequence],
               sources[statistic] + (sequence * layer->n_heads + head) * layer->n_rows,
               (size_t)layer->lengths[sequence] * sizeof *out);
    }
}

/* Items [first, first + n) of a tensor of I64, `width` each. */
static void write_integers(hl_measure_rows *rows, const char *name, const int64_t *values,
                           int64_t n, int64_t width)
{
    size_t offset = hl_safetensors_offset(rows->header, name);

    hl_writer_write_at(rows->file, offset + (size_t)(rows->n_done * width) * sizeof *values, values,
                       (size_t)(n * width) * sizeof *values);
}

/* (H, S) of one window goes to each (statistic, layer). */
static void write_window(hl_measure_rows *rows, int64_t sequence)
{
    size_t n_layer = (size_t)(rows->n_heads * rows->context);
    size_t window  = (size_t)(rows->n_done + sequence);

    for (size_t i = 0; i < (size_t)(N_STATISTICS * rows->n_layers); i++) {
        size_t statistic = i / (size_t)rows->n_layers;
        size_t layer     = i % (size_t)rows->n_layers;
        size_t place     = (layer * (size_t)rows->n_windows + window) * n_layer;

        hl_writer_write_at(rows->file, rows->offsets[statistic] + place * sizeof(float),
                           rows->batch + (size_t)sequence * window_count(rows) + i * n_layer,
                           n_layer * sizeof(float));
    }
}

hl_status hl_measure_rows_end(hl_measure_rows *rows, const hl_batch *batch)
{
    if (rows->n_done + batch->n_windows > rows->n_windows)
        return hl_fail(HL_BAD_INPUT,
                       "%s: more windows than the %lld that were counted: the text "
                       "has changed",
                       rows->path, (long long)rows->n_windows);
    write_integers(rows, "tokens", batch->tokens, batch->n_windows, rows->context);
    write_integers(rows, "lengths", batch->lengths, batch->n_windows, 1);
    for (int64_t i = 0; i < batch->n_windows; i++)
        write_window(rows, i);
    rows->n_done += batch->n_windows;
    return hl_writer_check(rows->file);
}

hl_status hl_measure_rows_finish(hl_measure_rows *rows)
{
    hl_writer *file = rows->file;

    if (rows->n_done != rows->n_windows)
        return hl_fail(HL_BAD_INPUT, "%s: %lld windows, %lld were counted: the text has changed",
                       rows->path, (long long)rows->n_done, (long long)rows->n_windows);
    rows->file = NULL;
    return hl_writer_finish(file);
}
