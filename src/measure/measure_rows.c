/* measure_rows.c - writes the statistics of every row as tensors with the names of golden files.
 *
 * Windows come one after another, but in the file layers come first: (L, B, H, S).  The number of
 * windows is counted beforehand, so that the file has its final size from the start and each batch
 * is written to its places.  Memory therefore does not depend on the length of the text.
 *
 * Undefined values are NaN: the previous token's probability in row 0, the entropy without the
 * first token if no other is visible, and everything after a window's end.
 *
 * If a state is saved (measure_state.c), the file is called FILE.part until all rows are in it. The
 * state has the number of finished windows; these are in the file, and what an interrupted process
 * wrote after them is written again.  The last state is saved before FILE.part is renamed to FILE:
 * if no work is left and FILE.part does not exist, the file is complete. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "formats/safetensors.h"
#include "measure/measure.h"

/* Every quantity of a row, by its name in golden files, and the bit of hl_row_defined for rows that
 * have it.  lse is -inf, not NaN, if no key is visible. */
enum { NORMALIZED = 9, NORMALIZED_NOSINK = 10, N_FIXED = 11, ALWAYS = -1 };

static const struct {
    const char *name;
    int         defined;
} fixed[N_FIXED] = {
    { "entropy", HL_Q_ENTROPY },
    { "renyi2", HL_Q_RENYI2 },
    { "varentropy", HL_Q_VARENTROPY },
    { "peak", HL_Q_PEAK },
    { "self", HL_Q_SELF },
    { "previous", HL_Q_PREVIOUS },
    { "first", HL_Q_FIRST },
    { "lse", ALWAYS },
    { "entropy_nosink", HL_Q_ENTROPY_NOSINK },
    [NORMALIZED]        = { "normalized", HL_N_QUANTITIES + HL_HIST_NORMALIZED },
    [NORMALIZED_NOSINK] = { "normalized_nosink", HL_N_QUANTITIES + HL_HIST_NORMALIZED_NOSINK },
};

enum { MAX_STATISTICS = N_FIXED + HL_MAX_SEGMENTS, NAME_BYTES = 96 };

struct hl_measure_rows {
    const char            *path; /* borrowed */
    char                  *part; /* path.part; NULL: no state is saved */
    hl_writer             *file;
    hl_safetensors_writer *header;
    int                    n_statistics; /* number of statistics: the fixed ones, then lookback.TYPE
                                          * if there are types */
    char                   names[MAX_STATISTICS][NAME_BYTES];
    size_t                 offsets[MAX_STATISTICS];
    const int64_t         *lengths; /* (n_batch) lengths of the batch's windows; borrowed */
    int64_t                n_layers;
    int64_t                n_heads;
    int64_t                context;
    int64_t                n_windows; /* number of windows in the whole file */
    int64_t                n_done;
    float                 *batch; /* (n_batch, statistics, L, H, S), NaN for missing rows */
};

/* ----------------------------------------------------------------------- opening */

static hl_status count_windows(int64_t *out, const hl_measuring *m)
{
    HL_CLOSED(hl_windows_close) hl_windows *windows = NULL;

    hl_batch batch;

    *out = 0;
    HL_NEED(hl_windows_open(&windows, m->corpus, &m->options.windows));
    do {
        HL_NEED(hl_windows_next(&batch, windows));
        *out += batch.n_windows;
    } while (batch.n_windows > 0);
    return HL_OK;
}

static void add_tensor(hl_safetensors_writer *writer, const char *name, hl_dtype dtype, int n_dims,
                       const int64_t *shape)
{
    hl_tensor tensor = { .name = name, .dtype = dtype, .n_dims = n_dims };

    memcpy(tensor.shape, shape, (size_t)n_dims * sizeof *shape);
    hl_status status = hl_tensor_bytes(&tensor.n_bytes, &tensor);
    if (status != HL_OK) /* the size is too large; the writer detects that too, and keeps the
                          * error */
        tensor.n_bytes = 0;
    hl_safetensors_add(writer, &tensor);
}

/* Metadata that identifies the rows: settings of the profile, and the text. */
static const char *const provenance[] = { "model", "tokenizer", "context", "stride",  "epsilon",
                                          "gates", "adjusted",  "version", "special", "text" };
enum { N_PROVENANCE = sizeof provenance / sizeof *provenance, HASH_BYTES = 24 };

/* Returns the value of an entry; NULL if the profile does not have it. */
static const char *provenance_of(char text[HASH_BYTES], const hl_measuring *m, int i)
{
    if (i < N_PROVENANCE - 1)
        return hl_profile_setting(m->profile, provenance[i]);
    snprintf(text, HASH_BYTES, "%016" PRIx64, hl_corpus_get_info(m->corpus)->hash);
    return text;
}

static hl_status make_header(hl_measure_rows *rows, const hl_measuring *m)
{
    const int64_t n       = rows->n_windows;
    const int64_t shape[] = { rows->n_layers, n, rows->n_heads, rows->context };
    char          text[HASH_BYTES];

    HL_NEED(hl_safetensors_writer_new(&rows->header));
    for (int i = 0; i < N_PROVENANCE; i++) {
        const char *value = provenance_of(text, m, i);
        if (value != NULL)
            hl_safetensors_add_metadata(rows->header, provenance[i], value);
    }
    add_tensor(rows->header, "tokens", HL_DTYPE_I64, 2, (const int64_t[]){ n, rows->context });
    add_tensor(rows->header, "lengths", HL_DTYPE_I64, 1, &n);
    for (int i = 0; i < rows->n_statistics; i++)
        add_tensor(rows->header, rows->names[i], HL_DTYPE_F32, 4, shape);
    return HL_OK;
}

/* Checks that FILE.part belongs to this work.  A file that opens has all bytes that its shapes
 * need. */
static hl_status check_part(const hl_measure_rows *rows, const hl_measuring *m)
{
    HL_CLOSED(hl_safetensors_close) hl_safetensors *file = NULL;

    char text[HASH_BYTES];

    HL_NEED(hl_safetensors_open(&file, rows->part));
    for (int i = 0; i < N_PROVENANCE; i++) {
        const char *wanted = provenance_of(text, m, i);
        const char *seen   = hl_safetensors_metadata(file, provenance[i]);

        if ((wanted == NULL) != (seen == NULL) || (seen != NULL && strcmp(wanted, seen) != 0))
            return hl_fail(HL_BAD_INPUT,
                           "%s: '%s' is %s, wanted %s: these are the rows of another measurement",
                           rows->part, provenance[i], seen != NULL ? seen : "not given",
                           wanted != NULL ? wanted : "none");
    }
    for (int i = 0; i < rows->n_statistics; i++) {
        const hl_tensor *tensor = hl_safetensors_find(file, rows->names[i]);
        if (tensor == NULL || tensor->n_dims != 4 || tensor->shape[1] != rows->n_windows)
            return hl_fail(HL_BAD_INPUT, "%s: not the %s of %lld windows", rows->part,
                           rows->names[i], (long long)rows->n_windows);
    }
    return HL_OK;
}

/* Creates a new file; if there is no space for it, this fails before any work is done. */
static hl_status open_new(hl_measure_rows *rows)
{
    hl_status status = HL_OK;

    if (rows->part == NULL)
        return hl_safetensors_begin(&rows->file, rows->header, rows->path);
    HL_TRY(hl_writer_open_as(&rows->file, rows->path, rows->part, false));
    HL_TRY(hl_safetensors_begin_in(rows->file, rows->header, rows->path));

done:
    if (status != HL_OK) {
        hl_writer_abandon(rows->file);
        rows->file = NULL;
    }
    return status;
}

static hl_status open_file(hl_measure_rows *rows, const hl_measuring *m)
{
    HL_NEED(make_header(rows, m));
    if (rows->n_done == 0) {
        HL_NEED(open_new(rows));
    } else {
        HL_NEED(check_part(rows, m));
        HL_NEED(hl_writer_open_as(&rows->file, rows->path, rows->part, true));
        HL_NEED(hl_safetensors_begin_in(rows->file, rows->header, rows->path));
    }
    for (int i = 0; i < rows->n_statistics; i++)
        rows->offsets[i] = hl_safetensors_offset(rows->header, rows->names[i]);
    return HL_OK;
}

static hl_status name_part(hl_measure_rows *rows)
{
    size_t    room   = strlen(rows->path) + sizeof ".part";
    hl_status status = HL_ALLOC(&rows->part, room);

    if (status == HL_OK)
        snprintf(rows->part, room, "%s.part", rows->path);
    return status;
}

static size_t window_count(const hl_measure_rows *rows)
{
    return (size_t)(rows->n_statistics * rows->n_layers * rows->n_heads * rows->context);
}

/* The attention to tokens of each type is stored if there are several types. */
static void name_statistics(hl_measure_rows *rows, const hl_profile *profile)
{
    int64_t n_types = hl_profile_n_types(profile);

    for (int i = 0; i < N_FIXED; i++)
        snprintf(rows->names[i], NAME_BYTES, "%s", fixed[i].name);
    rows->n_statistics = N_FIXED;
    for (int64_t type = 0; n_types > 1 && type < n_types; type++)
        snprintf(rows->names[rows->n_statistics++], NAME_BYTES, "lookback.%s",
                 hl_profile_type_name(profile, type));
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
    rows->context  = m->options.windows.n_ctx;
    rows->n_done   = hl_profile_all_sequences(m->profile);
    name_statistics(rows, m->profile);
    if (m->options.state_path != NULL)
        HL_TRY(name_part(rows));
    HL_TRY(HL_ALLOC(&rows->batch, (size_t)m->options.windows.n_batch * window_count(rows)));
    HL_TRY(count_windows(&rows->n_windows, m));
    if (rows->n_done > 0 && rows->n_done == rows->n_windows && !hl_path_exists(rows->part) &&
        hl_path_exists(rows->path))
        goto done;
    HL_TRY(open_file(rows, m));
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
    if (rows->part != NULL)
        hl_writer_leave(rows->file);
    else
        hl_writer_abandon(rows->file);
    hl_safetensors_writer_free(rows->header);
    hl_free(rows->part);
    hl_free(rows->batch);
    hl_free(rows);
}

/* ----------------------------------------------------------------------- batches */

void hl_measure_rows_begin(hl_measure_rows *rows, const hl_batch *batch)
{
    rows->lengths = batch->lengths;
    for (size_t i = 0; i < (size_t)batch->n_windows * window_count(rows); i++)
        rows->batch[i] = NAN;
}

/* Returns one statistic of row `at` of a layer. */
static float value_of(const hl_layer_rows *layer, int statistic, int64_t at,
                      const hl_row_defined *defined)
{
    const hl_attention_result *r        = layer->rows;
    const float *const         direct[] = { r->entropy, r->renyi2, r->varentropy,
                                            r->peak,    r->self,   r->previous,
                                            r->first,   r->lse,    r->entropy_nosink };

    if (statistic >= N_FIXED)
        return defined->bits == 0 ? NAN
                                  : r->segment_mass[at * layer->n_segments + statistic - N_FIXED];
    if (fixed[statistic].defined != ALWAYS && (defined->bits >> fixed[statistic].defined & 1) == 0)
        return NAN;
    if (statistic == NORMALIZED)
        return (float)((double)r->entropy[at] / defined->log_n);
    if (statistic == NORMALIZED_NOSINK)
        return (float)((double)r->entropy_nosink[at] / defined->log_other);
    return direct[statistic][at];
}

void hl_measure_rows_add(hl_measure_rows *rows, const hl_layer_rows *layer,
                         const hl_profile_mask *mask)
{
    int64_t n_layer = rows->n_heads * rows->context;

    for (int64_t i = 0; i < layer->n_batch * layer->n_rows; i++) {
        int64_t        sequence = i / layer->n_rows;
        int64_t        row      = i % layer->n_rows;
        int64_t        position = layer->start[sequence] + row;
        float         *out      = rows->batch + (size_t)sequence * window_count(rows) + position;
        hl_row_defined defined;

        if (row >= layer->lengths[sequence])
            continue;
        defined = hl_profile_row_defined(mask, position, rows->lengths[sequence]);
        for (int64_t head = 0; head < layer->n_heads; head++) {
            int64_t at = (sequence * layer->n_heads + head) * layer->n_rows + row;
            for (int s = 0; s < rows->n_statistics; s++)
                out[(s * rows->n_layers + layer->layer) * n_layer + head * rows->context] =
                    value_of(layer, s, at, &defined);
        }
    }
}

/* Writes items [first, first + n) of an I64 tensor, `width` numbers each. */
static void write_integers(hl_measure_rows *rows, const char *name, const int64_t *values,
                           int64_t n, int64_t width)
{
    size_t offset = hl_safetensors_offset(rows->header, name);

    hl_writer_write_at(rows->file, offset + (size_t)(rows->n_done * width) * sizeof *values, values,
                       (size_t)(n * width) * sizeof *values);
}

/* Writes the (H, S) of one window to each (statistic, layer). */
static void write_window(hl_measure_rows *rows, int64_t sequence)
{
    size_t n_layer = (size_t)(rows->n_heads * rows->context);
    size_t window  = (size_t)(rows->n_done + sequence);

    for (size_t i = 0; i < (size_t)(rows->n_statistics * rows->n_layers); i++) {
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
        return hl_fail(
            HL_BAD_INPUT,
            "%s: more windows than the %lld that were counted: the text changed while in use",
            rows->path, (long long)rows->n_windows);
    write_integers(rows, "tokens", batch->tokens, batch->n_windows, rows->context);
    write_integers(rows, "lengths", batch->lengths, batch->n_windows, 1);
    for (int64_t i = 0; i < batch->n_windows; i++)
        write_window(rows, i);
    rows->n_done += batch->n_windows;
    return hl_writer_check(rows->file);
}

hl_status hl_measure_rows_sync(hl_measure_rows *rows)
{
    return hl_writer_sync(rows->file);
}

hl_status hl_measure_rows_finish(hl_measure_rows *rows)
{
    hl_writer *file = rows->file;

    if (rows->n_done != rows->n_windows)
        return hl_fail(HL_BAD_INPUT,
                       "%s: %lld windows, but %lld were counted: the text changed while in use",
                       rows->path, (long long)rows->n_done, (long long)rows->n_windows);
    rows->file = NULL;
    return hl_writer_finish(file);
}
