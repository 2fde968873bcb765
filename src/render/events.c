/* events.c - TensorBoard's event files, without TensorFlow.
 *
 * A file is a row of records (TFRecord), all numbers little-endian:
 *
 *     uint64   n, the length of the data
 *     uint32   masked CRC-32C of those 8 bytes
 *     n bytes  the data: an Event, in protocol buffers' encoding
 *     uint32   masked CRC-32C of the data
 *
 * The mask turns the sum right by 15 bits and adds a constant.  A message is a row of fields, each
 * a key (number * 8 + kind, a varint) and a value: kind 0 a varint, 1 eight bytes, 2 a length
 * and so many bytes, 5 four bytes.  These are the fields that are written:
 *
 *     Event      1 wall_time (double), 2 step (int64), 3 file_version (string), 5 summary
 *     Summary    1 value (repeated)
 *     Value      1 tag (string), 2 simple_value (float), 5 histo
 *     Histogram  1 min, 2 max, 3 num, 4 sum, 5 sum_squares (doubles),
 *                6 bucket_limit, 7 bucket (packed doubles) */
#include "render/events.h"

#include <math.h>
#include <string.h>

enum { N_BINS = 32 };
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

/* --------------------------------------------------------------------- CRC-32C */

uint32_t hl_crc32c(const void *bytes, size_t n_bytes)
{
    const uint8_t *at  = bytes;
    uint32_t       crc = 0xffffffffU;

    /* Bit by bit: a checkpoint has kilobytes of numbers, and takes seconds to measure. */
    for (size_t i = 0; i < n_bytes; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ ((crc & 1U) != 0 ? 0x82f63b78U : 0U);
    }
    return ~crc;
}

static uint32_t masked(const void *bytes, size_t n_bytes)
{
    uint32_t crc = hl_crc32c(bytes, n_bytes);

    return (crc >> 15 | crc << 17) + 0xa282ead8U;
}

/* ----------------------------------------------------------------------- fields */

static void put_fixed(hl_output *out, uint64_t value, int n_bytes)
{
    uint8_t bytes[8];

    for (int i = 0; i < n_bytes; i++)
        bytes[i] = (uint8_t)(value >> 8 * i);
    hl_output_add(out, bytes, (size_t)n_bytes);
}

static void put_varint(hl_output *out, uint64_t value)
{
    for (; value > 0x7f; value >>= 7)
        put_fixed(out, (value & 0x7f) | 0x80, 1);
    put_fixed(out, value, 1);
}

static void put_key(hl_output *out, unsigned field, unsigned kind)
{
    put_varint(out, (uint64_t)field << 3 | kind);
}

static void put_double(hl_output *out, double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    put_fixed(out, bits, 8);
}

static void put_double_field(hl_output *out, unsigned field, double value)
{
    put_key(out, field, FIXED64);
    put_double(out, value);
}

static void put_bytes(hl_output *out, unsigned field, const void *bytes, size_t n_bytes)
{
    put_key(out, field, BYTES);
    put_varint(out, n_bytes);
    hl_output_add(out, bytes, n_bytes);
}

/* A message within another; releases it. */
static void put_message(hl_output *out, unsigned field, hl_output *message)
{
    if (message->status == HL_OK)
        put_bytes(out, field, message->bytes, message->n_bytes);
    else if (out->status == HL_OK)
        out->status = message->status;
    hl_output_free(message);
}

static void put_doubles(hl_output *out, unsigned field, const double *values, int n)
{
    hl_output packed = { 0 };

    for (int i = 0; i < n; i++)
        put_double(&packed, values[i]);
    put_message(out, field, &packed);
}

/* ---------------------------------------------------------------------- summary */

void hl_summary_scalar(hl_summary *summary, const char *tag, double value)
{
    hl_output message = { 0 };
    float     narrow  = (float)value;
    uint32_t  bits;

    memcpy(&bits, &narrow, sizeof bits);
    put_bytes(&message, 1, tag, strlen(tag));
    put_key(&message, 2, FIXED32);
    put_fixed(&message, bits, 4);
    put_message(&summary->values, 1, &message);
}

typedef struct histogram {
    int64_t count;
    double  min, max;
    double  sum, squares;
    double  limits[N_BINS]; /* where each bin ends */
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

/* Equal bins from the least value to the largest; of values that are all alike one unit wide. */
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

void hl_summary_histogram(hl_summary *summary, const char *tag, const float *values, int64_t n)
{
    hl_output message = { 0 }, fields = { 0 };
    histogram h;

    find_range(&h, values, n);
    if (h.count == 0)
        return;
    fill_bins(&h, values, n);
    put_double_field(&fields, 1, h.min);
    put_double_field(&fields, 2, h.max);
    put_double_field(&fields, 3, (double)h.count);
    put_double_field(&fields, 4, h.sum);
    put_double_field(&fields, 5, h.squares);
    put_doubles(&fields, 6, h.limits, N_BINS);
    put_doubles(&fields, 7, h.counts, N_BINS);
    put_bytes(&message, 1, tag, strlen(tag));
    put_message(&message, 5, &fields);
    put_message(&summary->values, 1, &message);
}

/* ---------------------------------------------------------------------- records */

/* Releases the event. */
static void put_record(hl_output *file, hl_output *event)
{
    uint8_t length[8];

    if (event->status == HL_OK) {
        for (int i = 0; i < 8; i++)
            length[i] = (uint8_t)((uint64_t)event->n_bytes >> 8 * i);
        hl_output_add(file, length, sizeof length);
        put_fixed(file, masked(length, sizeof length), 4);
        hl_output_add(file, event->bytes, event->n_bytes);
        put_fixed(file, masked(event->bytes, event->n_bytes), 4);
    } else if (file->status == HL_OK) {
        file->status = event->status;
    }
    hl_output_free(event);
}

void hl_events_begin(hl_output *file)
{
    static const char version[] = "brain.Event:2";
    hl_output         event     = { 0 };

    put_double_field(&event, 1, 0.0);
    put_bytes(&event, 3, version, sizeof version - 1);
    put_record(file, &event);
}

void hl_events_add(hl_output *file, double seconds, int64_t step, hl_summary *summary)
{
    hl_output event = { 0 };

    put_double_field(&event, 1, seconds);
    put_key(&event, 2, VARINT);
    put_varint(&event, (uint64_t)step);
    put_message(&event, 5, &summary->values);
    put_record(file, &event);
}
