/* events.h - TensorBoard's event files; hl_series_write_events is in headlight.h. */
#ifndef HL_RENDER_EVENTS_H
#define HL_RENDER_EVENTS_H

#include "headlight/base.h"

/* Castagnoli's CRC, as in iSCSI (RFC 3720). */
uint32_t hl_crc32c(const void *bytes, size_t n_bytes);

#endif
