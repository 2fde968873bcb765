/* buffer.h - memory that grows while something is appended to it: items, bytes, text.
 *
 * All three grow by the rule of hl_grow, so that appending n items costs O(n). */
#ifndef HL_BASE_BUFFER_H
#define HL_BASE_BUFFER_H

#include "base/memory.h"
#include "headlight/base.h"

/* -------------------------------------------------------------------- items */

/* Makes room for `more` items after the `used` ones; *capacity counts items.  With used = 0 the
 * room is not doubled and the old contents are lost: that is how scratch memory is resized.
 * After success the block is not NULL. */
hl_status hl_grow(void **block, size_t *capacity, size_t used, size_t more, size_t size);
/* Makes room for one more item in an array of `count` items that stores no capacity.  Such an
 * array may grow only through this function, which takes it to be full at 0, 1, 2, 4, 8 ...
 * items. */
hl_status hl_grow_one(void **block, size_t count, size_t size);

/* HL_GROW(&array, &capacity, used, more) and HL_GROW_ONE(&array, count) take the item size from
 * the type of the array. */
#define HL_GROW(array, capacity, used, more)                                                       \
    hl_grow((void **)(array), (capacity), (used), (more), sizeof **(array))
#define HL_GROW_ONE(array, count) hl_grow_one((void **)(array), (size_t)(count), sizeof **(array))

/* -------------------------------------------------------------------- bytes */

/* Borrowed bytes, not NUL-terminated. */
typedef struct hl_bytes {
    const char *data;
    size_t      n_bytes;
} hl_bytes;

bool hl_bytes_equal(hl_bytes bytes, const char *text);
/* Some structs own their hl_bytes; their comments say so.  hl_bytes_copy makes an owned copy, which
 * ends in a NUL that n_bytes does not count.  hl_bytes_free releases it. */
hl_status hl_bytes_copy(hl_bytes *out, const char *bytes, size_t n_bytes);
void      hl_bytes_free(hl_bytes *owned);

/* The first occurrence of a non-empty needle; NULL if there is none. */
const char *hl_find_bytes(const char *text, size_t n_text, const char *needle, size_t n_needle);

/* Starts as {0}; released with hl_buffer_free. */
typedef struct hl_buffer {
    char  *data;
    size_t n_bytes;
    size_t capacity;
    size_t most; /* largest number of bytes; 0: no limit */
} hl_buffer;

hl_status hl_buffer_append(hl_buffer *buffer, const void *bytes, size_t n_bytes);
hl_status hl_buffer_append_text(hl_buffer *buffer, const char *text);
hl_status hl_buffer_append_code_point(hl_buffer *buffer, uint32_t code_point);
void      hl_buffer_free(hl_buffer *buffer);
/* The contents; data is never NULL.  Borrowed until the buffer changes. */
hl_bytes hl_buffer_bytes(const hl_buffer *buffer);

/* --------------------------------------------------------------------- text */

/* A text, or any bytes, under construction.  It keeps its first error and ignores later calls, so
 * the caller checks `status` once, at the end.  Starts as { 0 }. */
typedef struct hl_text {
    char     *bytes; /* NUL-terminated; NULL: still empty */
    size_t    n_bytes;
    size_t    room;
    hl_status status;
} hl_text;

void hl_text_add(hl_text *text, const void *bytes, size_t n_bytes);
void hl_text_addf(hl_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Hands the text over; release it with hl_free.  An empty text is "", not NULL.  On failure *out
 * is NULL and nothing is left to release. */
hl_status hl_text_finish(char **out, hl_text *text);
void      hl_text_free(hl_text *text);

#endif
