/* verify_blocks.c - quantized blocks on every back end.
 *
 * A file of blocks is a safetensors file that has, for each type,
 *
 *     NAME.blocks  (..., n_bytes)   U8: raw blocks of the type, one per row
 *     NAME.values  (..., n_values)  F32: what another program read from them
 *
 * where NAME is a dtype's name.  The values must be equal: decoding a block takes a few exact
 * steps, which are the same on all back ends. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "formats/safetensors.h"
#include "kernels/quant.h"
#include "measure/verify.h"

#define BLOCKS    ".blocks"
#define VALUES    ".values"
#define MAX_DTYPE 16 /* largest size of a dtype's name, with its NUL */
#define MAX_NAME  24 /* with a suffix */
#define MAX_TYPES HL_DTYPE_COUNT

typedef struct block_type {
    hl_dtype         dtype;
    const hl_tensor *blocks;
    const hl_tensor *expected;              /* NULL: the file has no values to compare with */
    char             values_name[MAX_NAME]; /* NAME.values */
    float           *values;                /* (n_values) values that we read */
    size_t           n_values;
} block_type;

typedef struct block_file {
    hl_safetensors *file;
    const char     *where;
    block_type      types[MAX_TYPES]; /* each name occurs once, so there is room */
    size_t          n_types;
} block_file;

bool hl_verify_is_blocks(const char *tensor_name)
{
    return strlen(tensor_name) > strlen(BLOCKS) && hl_ends_with(tensor_name, BLOCKS);
}

/* ------------------------------------------------------------------ reading */

/* Parses a name: "Q4_K.blocks" has type Q4_K, and its values are Q4_K.values. */
static hl_status parse_name(block_type *type, const char *name)
{
    char   dtype_name[MAX_DTYPE] = "";
    size_t length                = strlen(name) - strlen(BLOCKS);

    if (length < sizeof dtype_name)
        snprintf(dtype_name, sizeof dtype_name, "%.*s", (int)length, name);
    if (!hl_dtype_parse_any(&type->dtype, dtype_name))
        return hl_fail(HL_BAD_INPUT, "no dtype has this name");
    snprintf(type->values_name, sizeof type->values_name, "%s" VALUES, dtype_name);
    return HL_OK;
}

static hl_status check_blocks(block_type *type)
{
    const hl_tensor *blocks = type->blocks;
    hl_dtype_block   block  = hl_dtype_block_of(type->dtype);
    int64_t          inner  = blocks->n_dims > 0 ? blocks->shape[blocks->n_dims - 1] : 0;

    if (blocks->dtype != HL_DTYPE_U8)
        return hl_fail(HL_BAD_INPUT, "has dtype %s, wanted U8", hl_dtype_name(blocks->dtype));
    if (inner < 1 || inner != (int64_t)block.n_bytes)
        return hl_fail(HL_BAD_INPUT, "rows of %lld bytes, a block of %s has %zu", (long long)inner,
                       hl_dtype_name(type->dtype), block.n_bytes);
    type->n_values = blocks->n_bytes / block.n_bytes * block.n_values;
    return HL_OK;
}

static hl_status check_expected(const block_type *type)
{
    const hl_tensor *expected = type->expected;

    if (expected == NULL)
        return HL_OK;
    if (expected->dtype != HL_DTYPE_F32 || (uint64_t)hl_tensor_count(expected) != type->n_values)
        return hl_fail(HL_BAD_INPUT, "%lld values of type %s, the blocks hold %zu of F32",
                       (long long)hl_tensor_count(expected), hl_dtype_name(expected->dtype),
                       type->n_values);
    return HL_OK;
}

static hl_status add_type(block_file *file, const hl_tensor *blocks)
{
    hl_status   status = HL_OK;
    block_type *type   = &file->types[file->n_types];
    const char *name   = blocks->name;

    type->blocks = blocks;
    HL_TRY(parse_name(type, name));
    HL_TRY(check_blocks(type));
    type->expected = hl_safetensors_find(file->file, type->values_name);
    name           = type->values_name;
    HL_TRY(check_expected(type));
    HL_TRY(HL_ALLOC(&type->values, type->n_values));
    file->n_types++;

done:
    if (status != HL_OK)
        hl_fail_within(status, "%s: tensor '%s'", file->where, name);
    return status;
}

/* A file with nothing to compare would always pass. */
static hl_status check_purpose(const block_file *file, const hl_verify_options *options)
{
    for (size_t i = 0; i < file->n_types; i++) {
        if (file->types[i].expected != NULL || options->write_path != NULL)
            return HL_OK;
    }
    return hl_fail(HL_BAD_INPUT, "%s: no expected values to compare with", file->where);
}

static hl_status read_types(block_file *file, const char *path)
{
    file->where = path;
    HL_NEED(hl_safetensors_open(&file->file, path));
    for (size_t i = 0; i < hl_safetensors_count(file->file); i++) {
        const hl_tensor *tensor = hl_safetensors_at(file->file, i);
        if (hl_verify_is_blocks(tensor->name))
            HL_NEED(add_type(file, tensor));
    }
    return HL_OK;
}

static void release(block_file *file)
{
    for (size_t i = 0; i < file->n_types; i++)
        hl_free(file->types[i].values);
    hl_safetensors_close(file->file);
}

/* ---------------------------------------------------------------- comparing */

/* A hl_verify_judge for which all NaNs are equal. */
static hl_status judge_value(double *cost, const void *context, size_t index, double ours,
                             double theirs)
{
    (void)context;
    (void)index;
    *cost = isnan(ours) && isnan(theirs) ? 0.0 : hl_verify_difference(ours, theirs);
    return HL_OK;
}

static hl_status write_values(const block_file *file, const char *path)
{
    HL_CLOSED(hl_safetensors_writer_free) hl_safetensors_writer *writer = NULL;

    HL_NEED(hl_safetensors_writer_new(&writer));
    for (size_t i = 0; i < file->n_types; i++) {
        const block_type *type   = &file->types[i];
        hl_tensor         tensor = *type->blocks;

        tensor.name                     = type->values_name;
        tensor.dtype                    = HL_DTYPE_F32;
        tensor.shape[tensor.n_dims - 1] = (int64_t)hl_dtype_block_of(type->dtype).n_values;
        tensor.data                     = type->values;
        tensor.n_bytes                  = type->n_values * sizeof *type->values;
        hl_safetensors_add(writer, &tensor);
    }
    return hl_safetensors_write(writer, path);
}

/* A hl_verify_step: decodes everything, compares, and writes results if requested. */
static hl_status decode_all(void *context, hl_verify_report *report, const char *backend,
                            const char *write_path)
{
    block_file *file = context;

    for (size_t i = 0; i < file->n_types; i++) {
        const block_type *type = &file->types[i];

        HL_NEED(hl_dequantize(type->values, type->dtype, type->blocks->data, type->n_values));
        if (type->expected != NULL)
            HL_NEED(hl_verify_compare(report, backend,
                                      &(hl_verify_pair){ .output = hl_dtype_name(type->dtype),
                                                         .ours   = type->values,
                                                         .theirs = type->expected,
                                                         .judge  = judge_value }));
    }
    return write_path != NULL ? write_values(file, write_path) : HL_OK;
}

hl_status hl_verify_blocks(hl_verify_report **out, const char *path,
                           const hl_verify_options *options)
{
    const hl_verify_options defaults = { 0 };

    HL_CLOSED(hl_verify_report_free) hl_verify_report *report = NULL;
    HL_SCOPED(release) block_file                      file   = { 0 };

    *out    = NULL;
    options = options != NULL ? options : &defaults;
    if (path == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "hl_verify_blocks: path is NULL");
    HL_NEED(read_types(&file, path));
    HL_NEED(check_purpose(&file, options));
    HL_NEED(hl_verify_report_new(&report, path, file.n_types));
    HL_NEED(hl_verify_backends(report, options, decode_all, &file));
    *out = hl_taken(&report);
    return HL_OK;
}
