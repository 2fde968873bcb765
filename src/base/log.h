/* log.h - messages for whoever asked for them.
 *
 * The library never prints.  A program that wants to know what it does sets a
 * callback (hl_log_set in headlight.h); without one, logging costs a comparison. */
#ifndef HL_BASE_LOG_H
#define HL_BASE_LOG_H

#include "headlight.h"

void hl_log(hl_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
