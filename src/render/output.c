/* output.c - bytes that grow. */
#include "render/output.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"

static hl_status make_room(hl_output *output, size_t n_bytes)
{
    size_t wanted = 0;
    size_t room   = output->room > 0 ? output->room : 4096;

    if (!hl_size_add(&wanted, output->n_bytes, n_bytes) || wanted > SIZE_MAX / 4)
        return hl_fail(HL_NO_MEMORY, "a picture of %zu bytes and more", output->n_bytes);
    if (wanted <= output->room)
        return HL_OK;
    while (room < wanted)
        room *= 2;
    hl_status status = hl_realloc((void **)&output->bytes, output->room, room, 1);
    if (status == HL_OK)
        output->room = room;
    return status;
}

void hl_output_add(hl_output *output, const void *bytes, size_t n_bytes)
{
    if (output->status == HL_OK)
        output->status = make_room(output, n_bytes);
    if (output->status != HL_OK || n_bytes == 0)
        return;
    memcpy(output->bytes + output->n_bytes, bytes, n_bytes);
    output->n_bytes += n_bytes;
}

void hl_output_print(hl_output *output, const char *format, ...)
{
    char    line[512];
    va_list arguments;

    va_start(arguments, format);
    int n_bytes = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (n_bytes < 0 || (size_t)n_bytes >= sizeof line)
        output->status = hl_fail(HL_INTERNAL, "a line of a picture has %d bytes", n_bytes);
    else
        hl_output_add(output, line, (size_t)n_bytes);
}

void hl_output_number(hl_output *output, double number)
{
    long long hundredths = llround(fmin(fmax(number, -1e9), 1e9) * 100.0);
    long long size       = hundredths < 0 ? -hundredths : hundredths;
    char      text[40];
    int       n_bytes = snprintf(text, sizeof text, "%s%lld.%02lld", hundredths < 0 ? "-" : "",
                                 size / 100, size % 100);

    while (text[n_bytes - 1] == '0')
        n_bytes--;
    if (text[n_bytes - 1] == '.')
        n_bytes--;
    hl_output_add(output, text, (size_t)n_bytes);
}

/* One character, which ends before `end`. */
static void add_character(hl_output *output, const char *text, size_t n_bytes)
{
    switch (n_bytes == 1 ? *text : 0) {
    case '&':
        hl_output_add(output, "&amp;", 5);
        break;
    case '<':
        hl_output_add(output, "&lt;", 4);
        break;
    case '>':
        hl_output_add(output, "&gt;", 4);
        break;
    case '"':
        hl_output_add(output, "&quot;", 6);
        break;
    default:
        hl_output_add(output, text, n_bytes);
    }
}

/* XML 1.0 has no other control characters, and neither U+FFFE nor U+FFFF. */
static bool is_xml(const char *text, size_t n_bytes)
{
    if (n_bytes == 1)
        return (unsigned char)*text >= 0x20 || *text == '\t' || *text == '\n';
    return n_bytes > 0 && memcmp(text, "\xef\xbf\xbe", n_bytes < 3 ? n_bytes : 3) != 0 &&
           memcmp(text, "\xef\xbf\xbf", n_bytes < 3 ? n_bytes : 3) != 0;
}

void hl_output_escaped(hl_output *output, const char *text)
{
    size_t left = strlen(text);

    while (left > 0) {
        size_t n_bytes = hl_utf8_length(text, left);
        size_t step    = n_bytes > 0 ? n_bytes : 1;
        if (is_xml(text, n_bytes))
            add_character(output, text, n_bytes);
        else
            hl_output_add(output, "\xef\xbf\xbd", 3);
        text += step;
        left -= step;
    }
}

void hl_output_free(hl_output *output)
{
    hl_free(output->bytes);
    *output = (hl_output){ 0 };
}
