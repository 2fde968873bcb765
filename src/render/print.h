/* print.h - what text needs to be lined up in a terminal. */
#ifndef HL_RENDER_PRINT_H
#define HL_RENDER_PRINT_H

#include "base/buffer.h"
#include "headlight/base.h"

/* Returns the number of columns of a text: two for wide characters (CJK, emoji), zero for combining
 * marks. Bytes that are not valid UTF-8 take one column each. */
int hl_terminal_width_of(const char *text);

/* Fits the text to exactly `width` columns: cut with an ellipsis, or padded with spaces on the
 * right or the left. */
typedef enum hl_align { HL_ALIGN_LEFT = 0, HL_ALIGN_RIGHT } hl_align;
void hl_terminal_put(hl_text *output, const char *text, int width, hl_align align);

#endif
