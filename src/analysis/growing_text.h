/* growing_text.h - a text that grows, with the first error kept. */
#ifndef HL_ANALYSIS_GROWING_TEXT_H
#define HL_ANALYSIS_GROWING_TEXT_H

#include "headlight/base.h"

/* Starts as { 0 }. */
typedef struct hl_text {
    char     *bytes; /* NUL-ended; NULL: nothing yet */
    size_t    n_bytes;
    size_t    room;
    hl_status status;
} hl_text;

void hl_text_add(hl_text *text, const char *bytes, size_t n_bytes);
void hl_text_addf(hl_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* So many spaces; and none at the end of the line. */
void hl_text_pad(hl_text *text, int64_t n_spaces);
void hl_text_end_line(hl_text *text);
/* Hands the text over (at least ""), to be released with hl_free; on failure *out is NULL and
 * nothing is left to release. */
hl_status hl_text_finish(char **out, hl_text *text);

/* How many columns a UTF-8 text takes: one a character. */
int64_t hl_text_width(const char *text);

#endif
