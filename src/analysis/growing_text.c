/* growing_text.c - a text that grows. */
#include "analysis/growing_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

/* Room for so many more bytes and the NUL; false after an error. */
static bool make_room(hl_text *text, size_t n_more)
{
    if (text->status != HL_OK)
        return false;
    size_t wanted = text->n_bytes + n_more + 1;
    if (text->bytes != NULL && wanted <= text->room)
        return true;
    size_t room  = wanted < 1024 ? 1024 : 2 * wanted;
    text->status = hl_realloc((void **)&text->bytes, text->room, room, 1);
    if (text->status == HL_OK)
        text->room = room;
    return text->status == HL_OK;
}

void hl_text_add(hl_text *text, const char *bytes, size_t n_bytes)
{
    if (!make_room(text, n_bytes))
        return;
    memcpy(text->bytes + text->n_bytes, bytes, n_bytes);
    text->n_bytes += n_bytes;
    text->bytes[text->n_bytes] = '\0';
}

void hl_text_addf(hl_text *text, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0 && text->status == HL_OK)
        text->status = hl_fail(HL_INTERNAL, "cannot format '%s'", format);
    if (length < 0 || !make_room(text, (size_t)length))
        return;
    va_start(arguments, format);
    vsnprintf(text->bytes + text->n_bytes, (size_t)length + 1, format, arguments);
    va_end(arguments);
    text->n_bytes += (size_t)length;
}

void hl_text_pad(hl_text *text, int64_t n_spaces)
{
    for (; n_spaces > 0; n_spaces--)
        hl_text_add(text, " ", 1);
}

void hl_text_end_line(hl_text *text)
{
    while (text->n_bytes > 0 && text->bytes[text->n_bytes - 1] == ' ')
        text->n_bytes--;
    hl_text_add(text, "\n", 1);
}

hl_status hl_text_finish(char **out, hl_text *text)
{
    hl_status status = text->status;

    *out = NULL;
    if (status == HL_OK && text->bytes == NULL)
        hl_text_add(text, "", 0);
    status = text->status;
    if (status == HL_OK)
        *out = text->bytes;
    else
        hl_free(text->bytes);
    *text = (hl_text){ 0 };
    return status;
}

int64_t hl_text_width(const char *text)
{
    int64_t width = 0;

    for (; *text != '\0'; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80; /* not the middle of a character */
    return width;
}
