/* series_events.c - a series for TensorBoard.
 *
 * TensorBoard keeps a file open and reads what is appended to it.  So this is the one file that
 * is not written under another name and renamed: as long as it begins as the series does, only
 * what is missing is written behind it.  Every byte follows from the series, so a record that was
 * cut off by a crash is a beginning of the right one, and is completed. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "render/events.h"

#define FILE_NAME "events.out.tfevents.0000000000.headlight"

enum { TAG_BYTES = 80 };

/* ----------------------------------------------------------------------- points */

/* What was not measured is left out: TensorBoard would draw NaN. */
static void add_scalar(hl_summary *summary, const char *tag, double value)
{
    if (!isnan(value))
        hl_summary_scalar(summary, tag, value);
}

static void add_heads(hl_summary *summary, const hl_series *series, const hl_series_point *point)
{
    int64_t n_heads = hl_series_n_heads(series);
    int64_t size    = hl_series_n_layers(series) * n_heads;
    char    tag[TAG_BYTES];

    for (int64_t i = 0; i < size; i++) {
        snprintf(tag, sizeof tag, "entropy/L%" PRId64 "H%" PRId64, i / n_heads, i % n_heads);
        add_scalar(summary, tag, (double)point->heads_entropy[i]);
    }
    hl_summary_histogram(summary, "entropy", point->heads_entropy, size);
}

static void add_point(hl_output *file, const hl_series *series, const hl_series_point *point)
{
    hl_summary summary = { 0 };
    char       tag[TAG_BYTES];

    add_scalar(&summary, "loss", point->nll);
    add_scalar(&summary, "entropy/mean", point->entropy);
    add_scalar(&summary, "entropy/fair", point->fair);
    add_scalar(&summary, "entropy/fall", point->fall);
    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        snprintf(tag, sizeof tag, "diagnosis/%s", hl_diagnosis_name((size_t)i));
        if (point->verdicts[i] != HL_VERDICT_NOT_RUN)
            add_scalar(&summary, tag, point->verdicts[i] == HL_VERDICT_FOUND ? 1.0 : 0.0);
    }
    add_heads(&summary, series, point);
    hl_events_add(file, 1e-9 * (double)point->modified, point->step, &summary);
}

/* ------------------------------------------------------------------------- file */

/* How many bytes of the series a file has; SIZE_MAX if it has others. */
static hl_status count_written(size_t *out, const char *path, const hl_output *wanted)
{
    hl_file   file   = { 0 };
    hl_status status = hl_file_map(&file, path);

    *out = SIZE_MAX;
    if (status == HL_NOT_FOUND)
        return HL_OK;
    if (status == HL_OK && file.n_bytes <= wanted->n_bytes &&
        memcmp(file.bytes, wanted->bytes, file.n_bytes) == 0)
        *out = file.n_bytes;
    hl_file_unmap(&file);
    return status;
}

static hl_status append(const char *path, const char *bytes, size_t n_bytes)
{
    int descriptor = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);

    if (descriptor < 0)
        return hl_fail(HL_IO, "%s: %s", path, strerror(errno));
    while (n_bytes > 0) {
        ssize_t n = write(descriptor, bytes, n_bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        bytes += n;
        n_bytes -= (size_t)n;
    }
    bool      good   = n_bytes == 0 && fsync(descriptor) == 0;
    hl_status status = good ? HL_OK : hl_fail(HL_IO, "%s: %s", path, strerror(errno));
    close(descriptor);
    return status;
}

static hl_status write_anew(const char *path, const hl_output *wanted)
{
    hl_writer *writer = NULL;
    hl_status  status = hl_writer_open(&writer, path);

    if (status != HL_OK)
        return status;
    hl_writer_write(writer, wanted->bytes, wanted->n_bytes);
    return hl_writer_finish(writer);
}

static hl_status update(const char *path, const hl_output *wanted)
{
    size_t    n_written = 0;
    hl_status status    = count_written(&n_written, path, wanted);

    if (status != HL_OK)
        return status;
    if (n_written == SIZE_MAX)
        return write_anew(path, wanted);
    return n_written < wanted->n_bytes
               ? append(path, wanted->bytes + n_written, wanted->n_bytes - n_written)
               : HL_OK;
}

hl_status hl_series_write_events(const hl_series *series, const char *folder)
{
    hl_status status = HL_OK;
    hl_output file   = { 0 };
    char     *path   = NULL;

    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return hl_fail(HL_IO, "%s: %s", folder, strerror(errno));
    HL_TRY(hl_path_join(&path, folder, FILE_NAME));
    hl_events_begin(&file);
    for (int64_t i = 0; i < hl_series_n_points(series); i++)
        add_point(&file, series, hl_series_at(series, i));
    HL_TRY(file.status);
    HL_TRY(update(path, &file));

done:
    hl_output_free(&file);
    hl_free(path);
    return status;
}
