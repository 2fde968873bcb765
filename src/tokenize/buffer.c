/* buffer.c - doubling, so that appending n items costs O(n). */
#define _GNU_SOURCE /* memmem: linear, whatever a long needle is */
#include "tokenize/buffer.h"

#include <string.h>

#include "base/status.h"
#include "base/utf8.h"

#define FIRST_ITEMS  64
#define SHORT_NEEDLE 16 /* bytes that are compared at every place */

hl_status hl_grow(void **block, size_t *capacity, size_t used, size_t more, size_t size)
{
    if (more <= *capacity - used)
        return HL_OK;
    size_t wanted;
    if (!hl_size_add(&wanted, used, more) || wanted > SIZE_MAX / 2)
        return hl_fail(HL_NO_MEMORY, "%zu items and %zu more are more than memory can hold", used,
                       more);
    wanted           = wanted < FIRST_ITEMS / 2 ? FIRST_ITEMS : 2 * wanted;
    hl_status status = hl_realloc(block, used, wanted, size);
    if (status == HL_OK)
        *capacity = wanted;
    return status;
}

/* Only where a buffer grows is it asked how much it may hold: most appends are of a byte or two. */
static hl_status grow_buffer(hl_buffer *buffer, size_t more)
{
    if (buffer->most != 0 && more > buffer->most - buffer->n_bytes)
        return hl_fail(HL_LIMIT, "makes %zu bytes or more, at most %zu", buffer->n_bytes + more,
                       buffer->most);
    hl_status status = HL_GROW(&buffer->data, &buffer->capacity, buffer->n_bytes, more);
    if (status == HL_OK && buffer->most != 0 && buffer->capacity > buffer->most)
        buffer->capacity = buffer->most;
    return status;
}

hl_status hl_buffer_append(hl_buffer *buffer, const void *bytes, size_t n_bytes)
{
    if (n_bytes > buffer->capacity - buffer->n_bytes) {
        hl_status status = grow_buffer(buffer, n_bytes);
        if (status != HL_OK)
            return status;
    }
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

hl_status hl_tokens_add(hl_tokens *tokens, int32_t id, size_t begin, size_t end)
{
    hl_status status = HL_GROW(&tokens->items, &tokens->capacity, tokens->count, 1);
    if (status == HL_OK)
        tokens->items[tokens->count++] = (hl_token){ id, (uint32_t)begin, (uint32_t)end };
    return status;
}

void hl_tokens_free(hl_tokens *tokens)
{
    hl_free(tokens->items);
    *tokens = (hl_tokens){ 0 };
}
