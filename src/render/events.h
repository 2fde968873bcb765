/* events.h - TensorBoard's event files, byte by byte.
 *
 *     hl_output file = { 0 };
 *     hl_events_begin(&file);
 *     hl_summary summary = { 0 };
 *     hl_summary_scalar(&summary, "loss", 2.5);
 *     hl_summary_histogram(&summary, "entropy", values, n_values);
 *     hl_events_add(&file, seconds, step, &summary);        and releases the summary
 *     ... file.status, file.bytes ...
 *
 * Everything goes to memory; what fails is remembered, and later calls do nothing. */
#ifndef HL_RENDER_EVENTS_H
#define HL_RENDER_EVENTS_H

#include "headlight.h"
#include "render/output.h"

/* Castagnoli's CRC, as in iSCSI (RFC 3720). */
uint32_t hl_crc32c(const void *bytes, size_t n_bytes);

/* Numbers of one step. */
typedef struct hl_summary {
    hl_output values; /* messages, one behind the other */
} hl_summary;

void hl_summary_scalar(hl_summary *summary, const char *tag, double value);
/* Of the values that are finite; without any nothing is added. */
void hl_summary_histogram(hl_summary *summary, const char *tag, const float *values, int64_t n);

/* The record that every file begins with. */
void hl_events_begin(hl_output *file);
/* seconds: since 1970. */
void hl_events_add(hl_output *file, double seconds, int64_t step, hl_summary *summary);

#endif
