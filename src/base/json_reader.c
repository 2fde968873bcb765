/* json_reader.c - a pull parser for JSON.
 *
 * It keeps one position in the text, builds no tree, and allocates only for strings
 * that contain escapes.  Vocabularies are large (Llama-3's tokenizer.json has 17 MB),
 * and jansson refuses some of their contents: NUL in keys and numbers of thirty digits.
 *
 * The grammar is RFC 8259's.  UTF-8 is checked once, when the reader opens, so
 * that the rest may copy bytes without looking at them. */
#include "base/json_reader.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"

#define MAX_DEPTH  64
#define MAX_NUMBER 64 /* largest size of a number's text, with its NUL */

/* ------------------------------------------------------------------ failing */

static void find_place(const hl_json_reader *reader, size_t *line, size_t *column)
{
    size_t end = reader->at < reader->n_bytes ? reader->at : reader->n_bytes;

    *line   = 1;
    *column = 1;
    for (size_t i = 0; i < end; i++) {
        if (reader->text[i] == '\n') {
            (*line)++;
            *column = 1;
        } else {
            (*column)++;
        }
    }
}

hl_status hl_json_reader_fail(hl_json_reader *reader, const char *format, ...)
{
    char    message[512];
    size_t  line, column;
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    find_place(reader, &line, &column);
    reader->status = hl_fail(HL_BAD_INPUT, "%s: JSON line %zu, column %zu: %s", reader->where, line,
                             column, message);
    return reader->status;
}

/* ------------------------------------------------------------ open and close */

hl_status hl_json_reader_open(hl_json_reader *out, const char *text, size_t n_bytes,
                              const char *where)
{
    *out       = (hl_json_reader){ .text = text, .n_bytes = n_bytes, .where = where };
    size_t bad = hl_utf8_find_bad(text, n_bytes);
    if (bad < n_bytes) {
        out->at = bad;
        return hl_json_reader_fail(out, "not UTF-8: byte 0x%02x", (unsigned char)text[bad]);
    }
    return HL_OK;
}

void hl_json_reader_open_part(hl_json_reader *out, hl_bytes part, const char *where)
{
    *out = (hl_json_reader){ .text = part.data, .n_bytes = part.n_bytes, .where = where };
}

void hl_json_reader_close(hl_json_reader *reader)
{
    hl_free(reader->scratch);
    reader->scratch       = NULL;
    reader->scratch_bytes = 0;
}

static void skip_space(hl_json_reader *reader)
{
    const char *at  = reader->text + reader->at;
    const char *end = reader->text + reader->n_bytes;

    while (at < end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
        at++;
    reader->at = (size_t)(at - reader->text);
}

char hl_json_peek(hl_json_reader *reader)
{
    skip_space(reader);
    return reader->at < reader->n_bytes ? reader->text[reader->at] : '\0';
}

hl_status hl_json_reader_finish(hl_json_reader *reader)
{
    if (reader->status == HL_OK) {
        skip_space(reader);
        if (reader->at < reader->n_bytes)
            return hl_json_reader_fail(reader, "something after the end");
    }
    return reader->status;
}

/* --------------------------------------------------------------- containers */

static hl_status expect(hl_json_reader *reader, char wanted)
{
    if (reader->status != HL_OK)
        return reader->status;
    char seen = hl_json_peek(reader);
    if (seen == wanted && reader->at < reader->n_bytes) {
        reader->at++;
        return HL_OK;
    }
    if (reader->at >= reader->n_bytes)
        return hl_json_reader_fail(reader, "the text ends where '%c' should be", wanted);
    return hl_json_reader_fail(reader, "'%c' where '%c' should be", seen, wanted);
}

hl_status hl_json_enter(hl_json_reader *reader, char bracket)
{
    HL_NEED(expect(reader, bracket));
    if (++reader->depth > MAX_DEPTH)
        return hl_json_reader_fail(reader, "nested deeper than %d", MAX_DEPTH);
    reader->first = true;
    return HL_OK;
}

bool hl_json_next(hl_json_reader *reader, char closing)
{
    if (reader->status != HL_OK)
        return false;
    if (hl_json_peek(reader) == closing) {
        reader->at++;
        reader->depth--;
        reader->first = false; /* the enclosing container has a member now */
        return false;
    }
    if (!reader->first && expect(reader, ',') != HL_OK)
        return false;
    reader->first = false;
    return true;
}

bool hl_json_next_key(hl_json_reader *reader, hl_bytes *key)
{
    return hl_json_next(reader, '}') && hl_json_read_string(reader, key) == HL_OK &&
           expect(reader, ':') == HL_OK;
}

/* ------------------------------------------------------------------ strings */

/* The four digits after \u; -1 if they are not hexadecimal. */
static int32_t read_hex4(const hl_json_reader *reader, size_t at)
{
    int32_t value = 0;

    if (reader->n_bytes - at < 4)
        return -1;
    for (size_t i = at; i < at + 4; i++) {
        char c     = reader->text[i];
        int  digit = c >= '0' && c <= '9'   ? c - '0'
                     : c >= 'a' && c <= 'f' ? c - 'a' + 10
                     : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                            : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* Reads \uXXXX, or a pair of them for a character beyond U+FFFF.  reader->at is at the first digit
 * and moves past the last. */
static hl_status read_unicode_escape(hl_json_reader *reader, uint32_t *code_point)
{
    int32_t high = read_hex4(reader, reader->at);

    if (high < 0)
        return hl_json_reader_fail(reader, "\\u without four hexadecimal digits");
    reader->at += 4;
    *code_point = (uint32_t)high;
    if (high < 0xd800 || high > 0xdfff)
        return HL_OK;

    const char *next = reader->text + reader->at;
    int32_t     low  = -1;
    if (reader->n_bytes - reader->at >= 6 && next[0] == '\\' && next[1] == 'u')
        low = read_hex4(reader, reader->at + 2);
    if (high > 0xdbff || low < 0xdc00 || low > 0xdfff)
        return hl_json_reader_fail(reader, "half of a surrogate pair");
    reader->at += 6;
    *code_point = 0x10000U + (((uint32_t)high - 0xd800U) << 10) + ((uint32_t)low - 0xdc00U);
    return HL_OK;
}

/* Reads one escape; reader->at is after the backslash.  Appends at most four bytes. */
static hl_status read_escape(hl_json_reader *reader, size_t *used)
{
    static const char from[]     = "\"\\/bfnrt";
    static const char to[]       = "\"\\/\b\f\n\r\t";
    uint32_t          code_point = 0;

    if (reader->at >= reader->n_bytes)
        return hl_json_reader_fail(reader, "the text ends inside a string");
    char letter = reader->text[reader->at++];
    if (letter == 'u') {
        hl_status status = read_unicode_escape(reader, &code_point);
        if (status == HL_OK)
            *used += hl_utf8_encode(reader->scratch + *used, code_point);
        return status;
    }
    const char *found = letter != '\0' ? strchr(from, letter) : NULL;
    if (found == NULL)
        return hl_json_reader_fail(reader, "no such escape: \\%c", letter);
    reader->scratch[(*used)++] = to[found - from];
    return HL_OK;
}

/* The number of bytes from reader->at to the next quote, backslash or control character. */
static size_t plain_run(const hl_json_reader *reader)
{
    size_t i = reader->at;
    while (i < reader->n_bytes) {
        unsigned char c = (unsigned char)reader->text[i];
        if (c == '"' || c == '\\' || c < 0x20)
            break;
        i++;
    }
    return i - reader->at;
}

/* Reads the rest of a string that has escapes into scratch. */
static hl_status read_escaped(hl_json_reader *reader, hl_bytes *out)
{
    size_t used = 0;

    for (;;) {
        size_t run     = plain_run(reader);
        reader->status = HL_GROW(&reader->scratch, &reader->scratch_bytes, used, run + 4);
        if (reader->status != HL_OK)
            return reader->status;
        memcpy(reader->scratch + used, reader->text + reader->at, run);
        used += run;
        reader->at += run;
        if (reader->at >= reader->n_bytes)
            return hl_json_reader_fail(reader, "the text ends inside a string");
        char c = reader->text[reader->at];
        if (c != '"' && c != '\\')
            return hl_json_reader_fail(reader, "a control character inside a string");
        reader->at++;
        if (c == '"')
            break;
        if (read_escape(reader, &used) != HL_OK)
            return reader->status;
    }
    *out = (hl_bytes){ reader->scratch, used };
    return HL_OK;
}

hl_status hl_json_read_string(hl_json_reader *reader, hl_bytes *out)
{
    *out = (hl_bytes){ "", 0 };
    HL_NEED(expect(reader, '"'));
    size_t run = plain_run(reader);
    size_t end = reader->at + run;
    if (end < reader->n_bytes &&
        reader->text[end] == '"') { /* the usual case: no escapes, no copy */
        *out       = (hl_bytes){ reader->text + reader->at, run };
        reader->at = end + 1;
        return HL_OK;
    }
    return read_escaped(reader, out);
}

/* ------------------------------------------------------------ other scalars */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static size_t skip_digits(const char *text, size_t at)
{
    while (is_digit(text[at]))
        at++;
    return at;
}

/* The length of the JSON number at the start of a terminated text; 0 if there is none. */
static size_t number_length(const char *text, bool *whole)
{
    size_t at = text[0] == '-' ? 1 : 0;

    *whole = true;
    if (!is_digit(text[at]))
        return 0;
    at = text[at] == '0' ? at + 1 : skip_digits(text, at);
    if (text[at] == '.') {
        if (!is_digit(text[at + 1]))
            return 0;
        at     = skip_digits(text, at + 1);
        *whole = false;
    }
    if (text[at] == 'e' || text[at] == 'E') {
        at += text[at + 1] == '+' || text[at + 1] == '-' ? 2 : 1;
        if (!is_digit(text[at]))
            return 0;
        at     = skip_digits(text, at);
        *whole = false;
    }
    return at;
}

/* Copies the number and adds a NUL, because strtod must not read past the text. */
static hl_status read_number(hl_json_reader *reader, char out[MAX_NUMBER], bool *whole)
{
    if (reader->status != HL_OK)
        return reader->status;
    skip_space(reader);
    size_t left = reader->n_bytes - reader->at;
    size_t kept = left < MAX_NUMBER - 1 ? left : MAX_NUMBER - 1;
    memcpy(out, reader->text + reader->at, kept);
    out[kept]     = '\0';
    size_t length = number_length(out, whole);
    if (length == 0 || length == MAX_NUMBER - 1)
        return hl_json_reader_fail(reader, "not a number");
    out[length] = '\0';
    reader->at += length;
    return HL_OK;
}

hl_status hl_json_read_int(hl_json_reader *reader, int64_t *out)
{
    char text[MAX_NUMBER];
    bool whole;

    HL_NEED(read_number(reader, text, &whole));
    errno           = 0;
    long long value = strtoll(text, NULL, 10);
    if (!whole || errno == ERANGE)
        return hl_json_reader_fail(reader, "%s is not an integer of 64 bits", text);
    *out = value;
    return HL_OK;
}

hl_status hl_json_read_double(hl_json_reader *reader, double *out)
{
    char text[MAX_NUMBER];
    bool whole;

    HL_NEED(read_number(reader, text, &whole));
    *out = strtod(text, NULL);
    return HL_OK;
}

/* Skips a literal; false if the text does not continue with it. */
static bool accept(hl_json_reader *reader, const char *literal)
{
    size_t length = strlen(literal);

    if (reader->n_bytes - reader->at < length ||
        memcmp(reader->text + reader->at, literal, length) != 0)
        return false;
    reader->at += length;
    return true;
}

hl_status hl_json_read_bool(hl_json_reader *reader, bool *out)
{
    if (reader->status != HL_OK)
        return reader->status;
    skip_space(reader);
    if (accept(reader, "true"))
        *out = true;
    else if (accept(reader, "false"))
        *out = false;
    else
        return hl_json_reader_fail(reader, "neither true nor false");
    return HL_OK;
}

/* --------------------------------------------------------------- whole values */

static hl_status skip_scalar(hl_json_reader *reader)
{
    hl_bytes text;
    double   number;

    switch (hl_json_peek(reader)) {
    case '"':
        return hl_json_read_string(reader, &text);
    case 't':
    case 'f':
    case 'n':
        if (accept(reader, "true") || accept(reader, "false") || accept(reader, "null"))
            return HL_OK;
        return hl_json_reader_fail(reader, "not a value");
    case 'I':
        return accept(reader, "Infinity") ? HL_OK : hl_json_reader_fail(reader, "not a value");
    default:
        return hl_json_read_double(reader, &number);
    }
}

/* Recursion is bounded by hl_json_enter. */
static hl_status skip_value(hl_json_reader *reader)
{
    char     opening = hl_json_peek(reader);
    hl_bytes key;

    if (opening != '{' && opening != '[')
        return skip_scalar(reader);
    HL_NEED(hl_json_enter(reader, opening));
    while (opening == '{' ? hl_json_next_key(reader, &key) : hl_json_next(reader, ']'))
        HL_NEED(skip_value(reader));
    return reader->status;
}

hl_status hl_json_skip(hl_json_reader *reader, hl_bytes *out)
{
    if (reader->status != HL_OK)
        return reader->status;
    skip_space(reader);
    size_t    begin  = reader->at;
    hl_status status = skip_value(reader);
    *out             = (hl_bytes){ reader->text + begin, reader->at - begin };
    return status;
}
