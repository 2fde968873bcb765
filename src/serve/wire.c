/* wire.c - numbers, texts and errors as JSON. */
#include "serve/wire.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/utf8.h"

/* Seven digits are what a float holds. */
#define DUMP_FLAGS (JSON_COMPACT | JSON_REAL_PRECISION(7))

json_t *hl_wire_number(double number)
{
    return isfinite(number) ? json_real(number) : json_null();
}

static json_t *number_row(const float *numbers, int64_t n)
{
    json_t *row = json_array();

    for (int64_t i = 0; i < n; i++)
        hl_json_add(&row, hl_wire_number((double)numbers[i]));
    return row;
}

json_t *hl_wire_numbers(const float *numbers, int64_t n_rows, int64_t n_columns)
{
    if (n_rows == 0)
        return number_row(numbers, n_columns);
    json_t *rows = json_array();
    for (int64_t i = 0; i < n_rows; i++)
        hl_json_add(&rows, number_row(numbers + i * n_columns, n_columns));
    return rows;
}

/* Valid UTF-8 from any bytes; a bad one becomes a sign. */
static json_t *clean_text(const char *bytes, size_t n_bytes, bool escapes)
{
    char  *out  = NULL;
    size_t used = 0;

    if (hl_utf8_find_bad(bytes, n_bytes) == n_bytes)
        return json_stringn_nocheck(bytes, n_bytes);
    if (HL_ALLOC(&out, 4 * n_bytes + 1) != HL_OK)
        return NULL;
    for (size_t at = 0; at < n_bytes;) {
        size_t length = hl_utf8_length(bytes + at, n_bytes - at);

        if (length > 0)
            memcpy(out + used, bytes + at, length);
        else if (escapes)
            snprintf(out + used, 5, "\\x%02x", (unsigned char)bytes[at]);
        else
            hl_utf8_encode(out + used, HL_UTF8_REPLACEMENT);
        used += length > 0 ? length : escapes ? 4 : 3;
        at += length > 0 ? length : 1;
    }
    json_t *text = json_stringn_nocheck(out, used);
    hl_free(out);
    return text;
}

json_t *hl_wire_text(const char *bytes, size_t n_bytes)
{
    return clean_text(bytes, n_bytes, false);
}

json_t *hl_wire_piece(const char *bytes, size_t n_bytes)
{
    return clean_text(bytes, n_bytes, true);
}

static const char *error_type(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 429:
        return "rate_limit_error";
    default:
        return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

json_t *hl_wire_error(int status, const char *message, const char *param, const char *code)
{
    bool    named = param != NULL && param[0] != '\0';
    json_t *error =
        json_pack("{s:o, s:s, s:o, s:s?}", "message", hl_wire_text(message, strlen(message)),
                  "type", error_type(status), "param",
                  named ? hl_wire_text(param, strlen(param)) : json_null(), "code", code);

    return json_pack("{s:o}", "error", error);
}

char *hl_wire_dump(json_t *tree)
{
    char *text = hl_json_dump(tree, DUMP_FLAGS);

    json_decref(tree);
    return text;
}
