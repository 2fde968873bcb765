/* printable.h - bytes from somewhere else, made fit for a terminal or for JSON. */
#ifndef HL_CLI_PRINTABLE_H
#define HL_CLI_PRINTABLE_H

#include <stddef.h>

/* A copy in which bytes that are not UTF-8 are U+FFFD, one for each longest beginning of a
 * character.  With a NUL behind it that is not counted; NULL when memory is out.  The caller
 * frees it. */
char *hl_printable_utf8(size_t *n_out, const char *bytes, size_t n_bytes);

/* For a terminal: as above, and spaces, tabs and line ends become · → ↵, other
 * control characters \x1b and the like. */
char *hl_printable_text(const char *bytes, size_t n_bytes);

/* How many columns a text of hl_printable_text takes, roughly: one a character. */
size_t hl_printable_width(const char *text);

#endif
