/* tokenize_print.h - what `headlight tokenize` shows. */
#ifndef HL_CLI_TOKENIZE_PRINT_H
#define HL_CLI_TOKENIZE_PRINT_H

#include "headlight.h"

/* The text with its tokens in colour, and a table of them. */
void hl_tokenize_show(const hl_tokenizer *tokenizer, const hl_encoding *encoding, const char *text,
                      size_t n_bytes);

/* {"ids": [...], "pieces": [...], "offsets": [[begin, end], ...]} */
hl_status hl_tokenize_print_object(const hl_tokenizer *tokenizer, const hl_encoding *encoding);
/* [1, 2, 3] */
void hl_tokenize_print_ids(const hl_encoding *encoding);
/* "text", with what is not UTF-8 replaced; false when memory is out. */
bool hl_tokenize_print_string(const char *text, size_t n_bytes);

#endif
