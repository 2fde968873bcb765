/* buffer.h - memory that grows while something is appended to it: items, bytes, text.
 *
 * All three grow by the rule of hl_grow, so that appending n items costs O(n). */
#ifndef HL_BASE_BUFFER_H
#define HL_BASE_BUFFER_H

#include "base/memory.h"
#include "headlight/base.h"

/* -------------------------------------------------------------------- items */

/* Makes room for `more` items behind the `used` ones; *capacity counts items.  Where none are
 * used the room is not doubled: scratch memory asks with used = 0, and loses what it held.  The
 * block is not NULL afterwards. */
hl_status hl_grow(void **block, size_t *capacity, size_t used, size_t more, size_t size);
/* Room for one more behind `count` items of an array that keeps no capacity.  All of it has to
 * come from here: it is full at 0, 1, 2, 4, 8 ... items. */
hl_status hl_grow_one(void **block, size_t count, size_t size);

/* HL_GROW(&array, &capacity, used, more), HL_GROW_ONE(&array, count): sized by what the array
 * holds. */
#define HL_GROW(array, capacity, used, more)                                                       \
    hl_grow((void **)(array), (capacity), (used), (more), sizeof **(array))
#define HL_GROW_ONE(array, count) hl_grow_one((void **)(array), (size_t)(count), sizeof **(array))

/* -------------------------------------------------------------------- bytes */

/* Bytes that belong to somebody else; not terminated. */
typedef struct hl_bytes {
    const char *data;
    size_t      n_bytes;
} hl_bytes;

bool hl_bytes_equal(hl_bytes bytes, const char *text);
/* Some bytes are owned by who says so: a copy with a NUL behind it, and its end. */
hl_status hl_bytes_copy(hl_bytes *out, const char *bytes, size_t n_bytes);
void      hl_bytes_free(hl_bytes *owned);

/* The first place of a (non-empty) needle; NULL if it is not there. */
const char *hl_find_bytes(const char *text, size_t n_text, const char *needle, size_t n_needle);

/* Starts as {0}; released with hl_buffer_free. */
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

/* --------------------------------------------------------------------- text */

/* A text, or any bytes, whose writer keeps its first error: later calls do nothing, and who wrote
 * looks at `status` once, at the end.  Starts as { 0 }. */
typedef struct hl_text {
    char     *bytes; /* NUL-ended; NULL: nothing yet */
    size_t    n_bytes;
    size_t    room;
    hl_status status;
} hl_text;

void hl_text_add(hl_text *text, const void *bytes, size_t n_bytes);
void hl_text_addf(hl_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Hands the text over (at least ""), to be released with hl_free; on failure *out is NULL and
 * nothing is left to release. */
hl_status hl_text_finish(char **out, hl_text *text);
void      hl_text_free(hl_text *text);

#endif
