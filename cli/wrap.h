/* wrap.h - text in columns. */
#ifndef HL_CLI_WRAP_H
#define HL_CLI_WRAP_H

/* Prints the text from column `start` on, where the line is already, and breaks it between words
 * so that it ends before column 80; later lines begin at `start` too. */
void hl_print_wrapped(const char *text, int start);

#endif
