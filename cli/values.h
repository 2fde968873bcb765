/* values.h - makes names, texts and numbers safe for a terminal or for JSON.
 *
 * Nothing from a file, a model, a command line or another program is printed unchanged.  Names go
 * through hl_shown, tokens through hl_printable_text, texts through hl_put_text, JSON through
 * hl_put_json. hl_printable (headlight.h) describes the replacements. */
#ifndef HL_CLI_VALUES_H
#define HL_CLI_VALUES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "headlight.h"
#include "options.h"

/* Returns a copy in which bytes that are not valid UTF-8 become U+FFFD, one for each longest
 * beginning of a character. It is NUL-terminated; the NUL is not counted. NULL if out of memory.
 * The caller frees it. */
char *hl_printable_utf8(size_t *n_out, const char *bytes, size_t n_bytes);

/* Returns the text of a token: spaces, tabs and line ends become · → ↵, and other control
 * characters \x1b and the like. The caller frees it. */
char *hl_printable_text(const char *bytes, size_t n_bytes);

/* Returns a name as an argument of printf: the text itself if it is harmless, otherwise a copy that
 * stays valid for the next 32 calls. NULL becomes "". */
const char *hl_shown(const char *name);

/* Returns the approximate number of columns of a text made by the functions above: one per
 * character. */
size_t hl_printable_width(const char *text);

/* Writes a text that may have several lines. On a terminal its control characters are replaced; in
 * a file or a pipe, where it is data, it is unchanged. */
void hl_put_text(FILE *stream, const char *text, size_t n_bytes);

/* Writes the output of another program, or a table, with control characters replaced on every
 * stream. */
void hl_put_lines(FILE *stream, const char *text, size_t n_bytes);

/* Writes JSON to standard output in jansson's layout, with control characters in its strings
 * escaped. Returns false if out of memory or if `root` is NULL. */
bool hl_put_json(const json_t *root, size_t flags);
/* As hl_put_json, followed by a line end; releases `root`. Returns HL_EXIT_OK: if memory was out,
 * hl_command_run fails. */
int hl_print_json(json_t *root, size_t flags);
/* As hl_put_json, for JSON that is already text. */
void hl_put_json_text(const char *json);

/* Prints a table in a format. Its cells are already printable; in JSON they are exact. */
hl_status hl_print_sheet(const hl_sheet *table, hl_sheet_format format);
/* Returns the format that --csv or --json chooses. */
hl_sheet_format hl_sheet_format_of(const hl_common *common);
/* Makes an array of a table's rows, one object each, and releases the table; NULL for NULL. */
json_t *hl_value_rows(hl_sheet *table);
/* Adds a table to `root`, under its name. */
hl_status hl_set_sheet(json_t *root, const hl_sheet *table);

/* ---------------------------------- cells of tables, numbers and texts in JSON */

/* Bytes of a head's name, "L3H1", with its NUL. */
enum { HL_HEAD_LABEL_BYTES = 48 };
const char *hl_head_label(char out[HL_HEAD_LABEL_BYTES], int64_t layer, int64_t head);
/* Returns the last part of a path, without trailing slashes; a static copy, valid for the next 4
 * calls. */
const char *hl_base_name(const char *path);
/* Returns 1234567 as "1,234,567"; static, valid for the next 4 calls. */
const char *hl_grouped(int64_t number);

/* Finds a cell by the name of its column; NaN if there is no such column or number. */
double hl_cell_number(const hl_sheet *table, int64_t row, const char *column);

/* Parses untrusted JSON (hl_json_walk) into a value that the caller releases; NULL on failure. */
hl_status hl_value_read(json_t **out, const char *text, size_t n_bytes, const char *where);

/* Makes a JSON object:
 *
 *     HL_OBJECT(HL_IS("scored", nll->n_scored), HL_IS("mean", nll->mean))
 *
 * Values are integers, doubles, booleans, UTF-8 texts (NULL: null) or JSON values.  The object
 * takes over a JSON value; a NULL one adds no member. */
#define HL_OBJECT(...) hl_object(__VA_ARGS__, (const char *)NULL)
/* clang-format off */
#define HL_IS(key, value)                                                                          \
    (key), _Generic((value), bool: hl_value_bool, int: json_integer, long: json_integer,           \
                    long long: json_integer, size_t: hl_value_size, double: hl_value_number,       \
                    char *: hl_value_string, const char *: hl_value_string,                        \
                    json_t *: hl_value_itself)(value)
/* clang-format on */

json_t *hl_object(const char *key, ...);
json_t *hl_value_bool(bool value);
json_t *hl_value_size(size_t value);
json_t *hl_value_string(const char *text);
json_t *hl_value_itself(json_t *value);
/* NaN and infinities become null, as JSON has neither. */
json_t *hl_value_number(double value);
/* Makes a string of any bytes; NULL if out of memory. */
json_t *hl_value_text(const char *bytes, size_t n_bytes);
/* Makes a string of a name or path, which may contain any bytes. */
json_t *hl_value_name(const char *name);
/* { "low", "high", "level", "method", "n" }; where there is no interval, low and high are null and
 * "missing" says why. */
json_t *hl_value_interval(const hl_interval *interval);

#endif
