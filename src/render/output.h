/* output.h - bytes that grow: what a back end has written so far.
 *
 * Keeps its first error; later calls do nothing. */
#ifndef HL_RENDER_OUTPUT_H
#define HL_RENDER_OUTPUT_H

#include "headlight/base.h"

typedef struct hl_output {
    char     *bytes; /* released by hl_output_free */
    size_t    n_bytes;
    size_t    room;
    hl_status status;
} hl_output;

void hl_output_add(hl_output *output, const void *bytes, size_t n_bytes);
void hl_output_print(hl_output *output, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Two decimals at most and no zeros behind them, whatever the locale: "3", "-0.25". */
void hl_output_number(hl_output *output, double number);
/* Text as XML has it; what XML cannot hold becomes U+FFFD. */
void hl_output_escaped(hl_output *output, const char *text);
void hl_output_free(hl_output *output);

#endif
