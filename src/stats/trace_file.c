/* trace_file.c - a trace as a safetensors file (doc/trace.md). */
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "formats/safetensors.h"
#include "stats/trace.h"

/* More tokens than any context, fewer than would overflow. */
#define MAX_TOKENS ((int64_t)1 << 31)
#define MAX_CELLS  ((int64_t)1 << 24)

static const char *const number_names[HL_TRACE_N_NUMBERS] = { "logprob", "vocabulary.entropy",
                                                              "vocabulary.varentropy" };
static const char *const row_names[HL_N_TRACE_ROWS]       = { "entropy", "normalised", "change" };

/* ------------------------------------------------------------------ writing */

static void add_tensor(hl_safetensors_writer *writer, const char *name, hl_dtype dtype,
                       const void *data, const hl_trace *trace, int n_dims)
{
    hl_tensor tensor = { .name   = name,
                         .dtype  = dtype,
                         .n_dims = n_dims,
                         .shape  = { trace->n_tokens, trace->n_layers, trace->n_heads },
                         .data   = data };
    int64_t   count  = trace->n_tokens * (n_dims == 3 ? trace->n_layers * trace->n_heads : 1);

    tensor.n_bytes = (size_t)count * (hl_dtype_bits(dtype) / 8);
    hl_safetensors_add(writer, &tensor);
}

hl_status hl_trace_write(const hl_trace *trace, const char *path)
{
    hl_status              status = HL_OK;
    hl_safetensors_writer *writer = NULL;

    HL_TRY(hl_safetensors_writer_new(&writer));
    hl_safetensors_add_metadata(writer, "format", HL_TRACE_FORMAT);
    add_tensor(writer, "tokens", HL_DTYPE_I64, trace->ids, trace, 1);
    for (int i = 0; i < HL_TRACE_N_NUMBERS; i++)
        add_tensor(writer, number_names[i], HL_DTYPE_F64, trace->numbers[i], trace, 1);
    for (int i = 0; i < HL_N_TRACE_ROWS; i++)
        add_tensor(writer, row_names[i], HL_DTYPE_F32, trace->rows[i], trace, 3);
    HL_TRY(hl_safetensors_write(writer, path));

done:
    hl_safetensors_writer_free(writer);
    return status;
}

/* ------------------------------------------------------------------ reading */

static hl_status find(const hl_tensor **out, const hl_safetensors *file, const char *where,
                      const char *name, hl_dtype dtype, int n_dims)
{
    *out = hl_safetensors_find(file, name);
    if (*out == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: a trace without tensor '%s'", where, name);
    if ((*out)->dtype != dtype || (*out)->n_dims != n_dims)
        return hl_fail(HL_BAD_INPUT, "%s: tensor '%s' is %s with %d dimensions, wanted %s with %d",
                       where, name, hl_dtype_name((*out)->dtype), (*out)->n_dims,
                       hl_dtype_name(dtype), n_dims);
    return HL_OK;
}

/* The shape of the whole is that of its rows. */
static hl_status read_shape(hl_trace **out, const hl_safetensors *file, const char *where)
{
    const hl_tensor *rows   = NULL;
    const char      *format = hl_safetensors_metadata(file, "format");
    hl_status        status = HL_OK;

    if (format == NULL || strcmp(format, HL_TRACE_FORMAT) != 0)
        return hl_fail(HL_BAD_INPUT, "%s: its format is '%s', wanted '%s'", where,
                       format != NULL ? format : "", HL_TRACE_FORMAT);
    HL_TRY(find(&rows, file, where, row_names[0], HL_DTYPE_F32, 3));
    if (rows->shape[0] > MAX_TOKENS || rows->shape[1] < 1 || rows->shape[2] < 1 ||
        rows->shape[1] > MAX_CELLS || rows->shape[2] > MAX_CELLS / rows->shape[1])
        return hl_fail(HL_BAD_INPUT, "%s: %lld tokens of %lld layers and %lld heads", where,
                       (long long)rows->shape[0], (long long)rows->shape[1],
                       (long long)rows->shape[2]);
    HL_TRY(hl_trace_new(out, rows->shape[1], rows->shape[2]));
    HL_TRY(hl_trace_reserve(*out, rows->shape[0]));
    (*out)->n_tokens = rows->shape[0];

done:
    return status;
}

static hl_status read_tensor(void *out, const hl_safetensors *file, const char *where,
                             const char *name, hl_dtype dtype, const hl_trace *trace, int n_dims)
{
    const int64_t    wanted[3] = { trace->n_tokens, trace->n_layers, trace->n_heads };
    const hl_tensor *tensor    = NULL;
    hl_status        status    = find(&tensor, file, where, name, dtype, n_dims);

    for (int i = 0; i < n_dims && status == HL_OK; i++) {
        if (tensor->shape[i] != wanted[i])
            status = hl_fail(
                HL_BAD_INPUT, "%s: dimension %d of tensor '%s' is %lld, wanted %lld as of '%s'",
                where, i, name, (long long)tensor->shape[i], (long long)wanted[i], row_names[0]);
    }
    if (status == HL_OK && trace->n_tokens > 0)
        memcpy(out, tensor->data, tensor->n_bytes);
    return status;
}

static hl_status read_trace(hl_trace **out, const hl_safetensors *file, const char *where)
{
    hl_status status = HL_OK;
    hl_trace *trace  = NULL;

    HL_TRY(read_shape(&trace, file, where));
    HL_TRY(read_tensor(trace->ids, file, where, "tokens", HL_DTYPE_I64, trace, 1));
    for (int i = 0; i < HL_TRACE_N_NUMBERS; i++)
        HL_TRY(
            read_tensor(trace->numbers[i], file, where, number_names[i], HL_DTYPE_F64, trace, 1));
    for (int i = 0; i < HL_N_TRACE_ROWS; i++)
        HL_TRY(read_tensor(trace->rows[i], file, where, row_names[i], HL_DTYPE_F32, trace, 3));
    *out  = trace;
    trace = NULL;

done:
    hl_trace_free(trace);
    return status;
}

hl_status hl_trace_load(hl_trace **out, const char *path)
{
    hl_safetensors *file   = NULL;
    hl_status       status = HL_OK;

    *out = NULL;
    HL_TRY(hl_safetensors_open(&file, path));
    HL_TRY(read_trace(out, file, path));

done:
    hl_safetensors_close(file);
    return status;
}

hl_status hl_trace_parse(hl_trace **out, const uint8_t *bytes, size_t n_bytes, const char *where)
{
    hl_safetensors *file   = NULL;
    hl_status       status = HL_OK;

    *out = NULL;
    HL_TRY(hl_safetensors_parse(&file, bytes, n_bytes, where));
    HL_TRY(read_trace(out, file, where));

done:
    hl_safetensors_close(file);
    return status;
}
