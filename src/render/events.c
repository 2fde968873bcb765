/* events.c - TensorBoard's event files, without TensorFlow.
 *
 * A file is a sequence of records (TFRecord), all numbers little-endian:
 *
 *     uint64   n, the length of the data
 *     uint32   masked CRC-32C of those 8 bytes
 *     n bytes  the data: an Event, in protocol buffers' encoding
 *     uint32   masked CRC-32C of the data
 *
 * The mask rotates the sum right by 15 bits and adds a constant.  A message is a sequence of
 * fields, each a key (number * 8 + kind, a varint) and a value.  The kinds are 0, a varint; 1,
 * eight bytes; 2, a length and that number of bytes; 5, four bytes.  These fields are written:
 *
 *     Event      1 wall_time (double), 2 step (int64), 3 file_version (string), 5 summary
 *     Summary    1 value (repeated)
 *     Value      1 tag (string), 2 simple_value (float), 5 histo
 *     Histogram  1 min, 2 max, 3 num, 4 sum, 5 sum_squares (doubles),
 *                6 bucket_limit, 7 bucket (packed doubles)
 *
 * TensorBoard keeps a file open and reads what is appended to it.  Event files are therefore the
 * only files that are not written under another name and renamed: if the file begins as the series
 * does, only the missing records are appended.  All bytes follow from the series, so a record that
 * was cut off by a crash is completed the next time.  Events are first built in memory; the first
 * error is kept, and later calls do nothing. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/status.h"
#include "headlight/series.h"

enum { N_BINS = 32 };
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

/* --------------------------------------------------------------------- CRC-32C */

static uint32_t masked(const void *bytes, size_t n_bytes)
{
    uint32_t crc = hl_crc32c(bytes, n_bytes);

    return (crc >> 15 | crc << 17) + 0xa282ead8U;
}

/* ----------------------------------------------------------------------- fields */

static void put_fixed(hl_text *out, uint64_t value, int n_bytes)
{
    uint8_t bytes[8];

    for (int i = 0; i < n_bytes; i++)
        bytes[i] = (uint8_t)(value >> 8 * i);
    hl_text_add(out, bytes, (size_t)n_bytes);
}

static void put_varint(hl_text *out, uint64_t value)
{
    for (; value > 0x7f; value >>= 7)
        put_fixed(out, (value & 0x7f) | 0x80, 1);
    put_fixed(out, value, 1);
}

static void put_key(hl_text *out, unsigned field, unsigned kind)
{
    put_varint(out, (uint64_t)field << 3 | kind);
}

static void put_double(hl_text *out, double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    put_fixed(out, bits, 8);
}

static void put_double_field(hl_text *out, unsigned field, double value)
{
    put_key(out, field, FIXED64);
    put_double(out, value);
}

static void put_bytes(hl_text *out, unsigned field, const void *bytes, size_t n_bytes)
{
    put_key(out, field, BYTES);
    put_varint(out, n_bytes);
    hl_text_add(out, bytes, n_bytes);
}

/* Adds a message as a field of another one and releases it. */
static void put_message(hl_text *out, unsigned field, hl_text *message)
{
    if (message->status == HL_OK)
        put_bytes(out, field, message->bytes, message->n_bytes);
    else if (out->status == HL_OK)
        out->status = message->status;
    hl_text_free(message);
}

static void put_doubles(hl_text *out, unsigned field, const double *values, int n)
{
    hl_text packed = { 0 };

    for (int i = 0; i < n; i++)
        put_double(&packed, values[i]);
    put_message(out, field, &packed);
}

/* ---------------------------------------------------------------------- summary */

/* Adds a value to a summary, which holds the values of one step.  Values that were not measured are
 * left out, since TensorBoard would draw NaN. */
static void add_scalar(hl_text *summary, const char *tag, double value)
{
    hl_text  message = { 0 };
    float    narrow  = (float)value;
    uint32_t bits;

    if (isnan(value))
        return;
    memcpy(&bits, &narrow, sizeof bits);
    put_bytes(&message, 1, tag, strlen(tag));
    put_key(&message, 2, FIXED32);
    put_fixed(&message, bits, 4);
    put_message(summary, 1, &message);
}

typedef struct histogram {
    int64_t count;
    double  min, max;
    double  sum, squares;
    double  limits[N_BINS]; /* upper end of each bin */
    double  counts[N_BINS];
} histogram;

static void find_range(histogram *h, const float *values, int64_t n)
{
    *h = (histogram){ .min = INFINITY, .max = -INFINITY };
    for (int64_t i = 0; i < n; i++) {
        double value = (double)values[i];
        if (!isfinite(value))
            continue;
        h->count++;
        h->min = fmin(h->min, value);
        h->max = fmax(h->max, value);
        h->sum += value;
        h->squares += value * value;
    }
}

/* Makes equal bins from the smallest to the largest value; if all are equal, the range is one unit
 * wide. */
static void fill_bins(histogram *h, const float *values, int64_t n)
{
    double low   = h->max > h->min ? h->min : h->min - 0.5;
    double width = (h->max > h->min ? h->max - h->min : 1.0) / N_BINS;

    for (int bin = 0; bin < N_BINS; bin++)
        h->limits[bin] = low + width * (bin + 1);
    h->limits[N_BINS - 1] = low + width * N_BINS > h->max ? low + width * N_BINS : h->max;
    for (int64_t i = 0; i < n; i++) {
        int bin = 0;
        if (!isfinite(values[i]))
            continue;
        while (bin < N_BINS - 1 && (double)values[i] >= h->limits[bin])
            bin++;
        h->counts[bin] += 1.0;
    }
}

/* Adds a histogram of the finite values; without any, nothing is added. */
static void add_histogram(hl_text *summary, const char *tag, const float *values, int64_t n)
{
    hl_text   message = { 0 }, fields = { 0 };
    histogram h;

    find_range(&h, values, n);
    if (h.count == 0)
        return;
    fill_bins(&h, values, n);
    const double sums[] = { h.min, h.max, (double)h.count, h.sum, h.squares };
    for (unsigned i = 0; i < sizeof sums / sizeof *sums; i++)
        put_double_field(&fields, i + 1, sums[i]);
    put_doubles(&fields, 6, h.limits, N_BINS);
    put_doubles(&fields, 7, h.counts, N_BINS);
    put_bytes(&message, 1, tag, strlen(tag));
    put_message(&message, 5, &fields);
    put_message(summary, 1, &message);
}

/* ---------------------------------------------------------------------- records */

/* Adds an event as a record and releases it. */
static void put_record(hl_text *file, hl_text *event)
{
    size_t begin = file->n_bytes;

    if (file->status == HL_OK)
        file->status = event->status;
    put_fixed(file, event->n_bytes, 8);
    if (file->status == HL_OK)
        put_fixed(file, masked(file->bytes + begin, 8), 4);
    hl_text_add(file, event->bytes, event->n_bytes);
    put_fixed(file, masked(event->bytes, event->n_bytes), 4);
    hl_text_free(event);
}

/* --------------------------------------------------------------------- a series */

#define FILE_NAME "events.out.tfevents.0000000000.headlight"

enum { TAG_BYTES = 80 };

/* ------------------------------------------------------------- a series: points */

static void add_point(hl_text *file, const hl_series *series, const hl_series_point *point)
{
    int64_t n_heads = hl_series_n_heads(series), size = hl_series_n_layers(series) * n_heads;
    hl_text summary = { 0 }, event = { 0 };
    char    tag[TAG_BYTES];

    add_scalar(&summary, "loss", point->nll);
    add_scalar(&summary, "entropy/mean", point->entropy);
    add_scalar(&summary, "entropy/normalized", point->normalized);
    add_scalar(&summary, "entropy/drop", point->drop);
    add_scalar(&summary, "entropy/drop_errors", point->drop_errors);
    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        snprintf(tag, sizeof tag, "diagnosis/%s", hl_diagnosis_name((size_t)i));
        if (point->verdicts[i] != HL_VERDICT_NOT_RUN)
            add_scalar(&summary, tag, point->verdicts[i] == HL_VERDICT_FOUND ? 1.0 : 0.0);
    }
    for (int64_t i = 0; i < size; i++) {
        snprintf(tag, sizeof tag, "entropy/L%" PRId64 "H%" PRId64, i / n_heads, i % n_heads);
        add_scalar(&summary, tag, (double)point->heads_entropy[i]);
    }
    add_histogram(&summary, "entropy", point->heads_entropy, size);
    put_double_field(&event, 1, 1e-9 * (double)point->modified); /* wall_time: seconds since 1970 */
    put_key(&event, 2, VARINT);
    put_varint(&event, (uint64_t)point->step);
    put_message(&event, 5, &summary);
    put_record(file, &event);
}

/* ----------------------------------------------------------- a series: its file */

/* Counts the bytes of the series that a file has; SIZE_MAX if it differs from the series. */
static hl_status count_written(size_t *out, const char *path, const hl_text *wanted)
{
    HL_SCOPED(hl_file_unmap) hl_file file   = { 0 };
    hl_status                        status = hl_file_map(&file, path);

    *out = SIZE_MAX;
    if (status == HL_NOT_FOUND)
        return HL_OK;
    if (status == HL_OK && file.n_bytes <= wanted->n_bytes &&
        memcmp(file.bytes, wanted->bytes, file.n_bytes) == 0)
        *out = file.n_bytes;
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

static hl_status update(const char *path, const hl_text *wanted)
{
    hl_writer *writer    = NULL;
    size_t     n_written = 0;

    HL_NEED(count_written(&n_written, path, wanted));
    if (n_written == wanted->n_bytes)
        return HL_OK;
    if (n_written != SIZE_MAX)
        return append(path, wanted->bytes + n_written, wanted->n_bytes - n_written);
    HL_NEED(hl_writer_open(&writer, path));
    hl_writer_write(writer, wanted->bytes, wanted->n_bytes);
    return hl_writer_finish(writer);
}

hl_status hl_series_write_events(const hl_series *series, const char *folder)
{
    static const char version[] = "brain.Event:2"; /* version in the first record of every file */
    HL_SCOPED(hl_text_free) hl_text file  = { 0 };
    HL_FREED char                  *path  = NULL;
    hl_text                         event = { 0 };

    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return hl_fail(HL_IO, "%s: %s", folder, strerror(errno));
    HL_NEED(hl_path_join(&path, folder, FILE_NAME));
    put_double_field(&event, 1, 0.0);
    put_bytes(&event, 3, version, sizeof version - 1);
    put_record(&file, &event);
    for (int64_t i = 0; i < hl_series_n_points(series); i++)
        add_point(&file, series, hl_series_at(series, i));
    HL_NEED(file.status);
    return update(path, &file);
}
