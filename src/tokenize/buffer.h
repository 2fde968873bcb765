/* buffer.h - memory that grows while something is appended to it: bytes, and tokens. */
#ifndef HL_TOKENIZE_BUFFER_H
#define HL_TOKENIZE_BUFFER_H

#include "base/json_reader.h"
#include "base/memory.h"
#include "headlight/base.h"

/* Makes room for `more` items behind the `used` ones; *capacity counts items. */
hl_status hl_grow(void **block, size_t *capacity, size_t used, size_t more, size_t size);

/* HL_GROW(&array, &capacity, used, more): sized by what the array holds. */
#define HL_GROW(array, capacity, used, more)                                                       \
    hl_grow((void **)(array), (capacity), (used), (more), sizeof **(array))

/* Bytes.  Starts as {0}; released with hl_buffer_free. */
typedef struct hl_buffer {
    char  *data;
    size_t n_bytes;
    size_t capacity;
    size_t most; /* bytes that it may hold; 0: as many as memory has */
} hl_buffer;

hl_status hl_buffer_append(hl_buffer *buffer, const void *bytes, size_t n_bytes);
hl_status hl_buffer_append_text(hl_buffer *buffer, const char *text);
hl_status hl_buffer_append_code_point(hl_buffer *buffer, uint32_t code_point);
void      hl_buffer_free(hl_buffer *buffer);
/* What is in it; data is never NULL.  Borrowed until the buffer changes. */
hl_bytes hl_buffer_bytes(const hl_buffer *buffer);

/* The first place of a (non-empty) needle; NULL if it is not there. */
const char *hl_find_bytes(const char *text, size_t n_text, const char *needle, size_t n_needle);

/* ------------------------------------------------------------------- tokens */

/* A token and the bytes [begin, end) of the text that it stands for. */
typedef struct hl_token {
    int32_t  id;
    uint32_t begin;
    uint32_t end;
} hl_token;

typedef struct hl_tokens {
    hl_token *items;
    size_t    count;
    size_t    capacity;
} hl_tokens;

hl_status hl_tokens_add(hl_tokens *tokens, int32_t id, size_t begin, size_t end);
void      hl_tokens_free(hl_tokens *tokens);

#endif
