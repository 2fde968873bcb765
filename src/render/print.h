/* print.h - what text needs to be lined up in a terminal. */
#ifndef HL_RENDER_PRINT_H
#define HL_RENDER_PRINT_H

#include "base/buffer.h"
#include "headlight/base.h"

/* How many columns a text takes: two for wide characters (CJK, emoji), none for marks upon
 * others.  Bytes that are not UTF-8 take one each. */
int hl_terminal_width_of(const char *text);

/* The text in exactly `width` columns: cut, with an ellipsis, or with spaces behind it, or before
 * it. */
typedef enum hl_align { HL_ALIGN_LEFT = 0, HL_ALIGN_RIGHT } hl_align;
void hl_terminal_put(hl_text *output, const char *text, int width, hl_align align);

#endif
