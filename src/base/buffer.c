/* buffer.c - growing memory, always by one rule: to twice its size, or to what is needed. */
#define _GNU_SOURCE /* memmem: linear time for any long needle */
#include "base/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "base/utf8.h"

#define FIRST_BYTES  512
#define SHORT_NEEDLE 16 /* up to this many bytes, a needle is compared at every position */

/* -------------------------------------------------------------------- items */

hl_status hl_grow(void **block, size_t *capacity, size_t used, size_t more, size_t size)
{
    size_t least = used > 0 ? 2 * *capacity : FIRST_BYTES / size;
    size_t wanted;

    if (more <= *capacity - used && *block != NULL)
        return HL_OK;
    if (!hl_size_add(&wanted, used, more) || wanted > SIZE_MAX / 2)
        return hl_fail(HL_NO_MEMORY, "%zu items and %zu more are more than memory can hold", used,
                       more);
    wanted = wanted < least ? least : wanted;
    HL_NEED(hl_realloc(block, used, wanted, size));
    *capacity = wanted;
    return HL_OK;
}

hl_status hl_grow_one(void **block, size_t count, size_t size)
{
    if ((count & (count - 1)) != 0)
        return HL_OK;
    return hl_realloc(block, count, count == 0 ? 1 : 2 * count, size);
}

/* -------------------------------------------------------------------- bytes */

bool hl_bytes_equal(hl_bytes bytes, const char *text)
{
    return strlen(text) == bytes.n_bytes && memcmp(bytes.data, text, bytes.n_bytes) == 0;
}

hl_status hl_bytes_copy(hl_bytes *out, const char *bytes, size_t n_bytes)
{
    char *copy = NULL;

    HL_NEED(hl_strndup(&copy, bytes, n_bytes));
    *out = (hl_bytes){ copy, n_bytes };
    return HL_OK;
}

void hl_bytes_free(hl_bytes *owned)
{
    hl_free((void *)owned->data);
    *owned = (hl_bytes){ NULL, 0 };
}

const char *hl_find_bytes(const char *text, size_t n_text, const char *needle, size_t n_needle)
{
    if (n_needle > SHORT_NEEDLE)
        return memmem(text, n_text, needle, n_needle);
    while (n_text >= n_needle) {
        const char *found = memchr(text, needle[0], n_text - n_needle + 1);
        if (found == NULL)
            return NULL;
        if (memcmp(found, needle, n_needle) == 0)
            return found;
        n_text -= (size_t)(found + 1 - text);
        text = found + 1;
    }
    return NULL;
}

/* The limit is checked only when a buffer grows, because most appends are of one or two bytes. */
static hl_status grow_buffer(hl_buffer *buffer, size_t more)
{
    if (buffer->most != 0 && more > buffer->most - buffer->n_bytes)
        return hl_fail(HL_LIMIT, "makes %zu bytes or more, at most %zu", buffer->n_bytes + more,
                       buffer->most);
    HL_NEED(HL_GROW(&buffer->data, &buffer->capacity, buffer->n_bytes, more));
    if (buffer->most != 0 && buffer->capacity > buffer->most)
        buffer->capacity = buffer->most;
    return HL_OK;
}

hl_status hl_buffer_append(hl_buffer *buffer, const void *bytes, size_t n_bytes)
{
    if (n_bytes > buffer->capacity - buffer->n_bytes)
        HL_NEED(grow_buffer(buffer, n_bytes));
    if (n_bytes > 0)
        memcpy(buffer->data + buffer->n_bytes, bytes, n_bytes);
    buffer->n_bytes += n_bytes;
    return HL_OK;
}

hl_status hl_buffer_append_text(hl_buffer *buffer, const char *text)
{
    return hl_buffer_append(buffer, text, strlen(text));
}

hl_status hl_buffer_append_code_point(hl_buffer *buffer, uint32_t code_point)
{
    char bytes[4] = { 0 };
    return hl_buffer_append(buffer, bytes, hl_utf8_encode(bytes, code_point));
}

hl_bytes hl_buffer_bytes(const hl_buffer *buffer)
{
    return (hl_bytes){ buffer->data != NULL ? buffer->data : "", buffer->n_bytes };
}

void hl_buffer_free(hl_buffer *buffer)
{
    hl_free(buffer->data);
    *buffer = (hl_buffer){ 0 };
}

/* --------------------------------------------------------------------- text */

/* Makes room for n_more bytes and the NUL; false after an error. */
static bool make_room(hl_text *text, size_t n_more)
{
    if (text->status == HL_OK)
        text->status = HL_GROW(&text->bytes, &text->room, text->n_bytes, n_more + 1);
    return text->status == HL_OK;
}

void hl_text_add(hl_text *text, const void *bytes, size_t n_bytes)
{
    if (!make_room(text, n_bytes))
        return;
    if (n_bytes > 0)
        memcpy(text->bytes + text->n_bytes, bytes, n_bytes);
    text->n_bytes += n_bytes;
    text->bytes[text->n_bytes] = '\0';
}

void hl_text_addf(hl_text *text, const char *format, ...)
{
    int length = 0;

    if (!make_room(text, 0))
        return;
    /* If the room is too small, the first pass measures the text and the second one writes it. */
    do {
        size_t  room = text->room - text->n_bytes;
        va_list arguments;
        va_start(arguments, format);
        length = vsnprintf(text->bytes + text->n_bytes, room, format, arguments);
        va_end(arguments);
        if (length >= 0 && (size_t)length < room)
            break;
        if (length < 0)
            text->status = hl_fail(HL_INTERNAL, "cannot format '%s'", format);
    } while (make_room(text, (size_t)length));
    if (text->status == HL_OK)
        text->n_bytes += (size_t)length;
}

hl_status hl_text_finish(char **out, hl_text *text)
{
    hl_text_add(text, "", 0);
    hl_status status = text->status;
    *out             = status == HL_OK ? hl_taken(&text->bytes) : NULL;
    hl_text_free(text);
    return status;
}

void hl_text_free(hl_text *text)
{
    hl_free(text->bytes);
    *text = (hl_text){ 0 };
}
