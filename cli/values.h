/* values.h - names, texts and numbers made fit for a terminal or for JSON.
 *
 * Nothing from a file, a model, a command line or another program is printed as it is: a name goes
 * through hl_shown, a token through hl_printable_text, a text through hl_put_text, JSON through
 * hl_put_json.  What they replace is in hl_printable (headlight.h). */
#ifndef HL_CLI_VALUES_H
#define HL_CLI_VALUES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "headlight.h"

/* A copy in which bytes that are not UTF-8 are U+FFFD, one for each longest beginning of a
 * character.  With a NUL behind it that is not counted; NULL when memory is out.  The caller
 * frees it. */
char *hl_printable_utf8(size_t *n_out, const char *bytes, size_t n_bytes);

/* A token: spaces, tabs and line ends become · → ↵, other control characters \x1b and the like.  The
 * caller frees it. */
char *hl_printable_text(const char *bytes, size_t n_bytes);

/* A name, as an argument of printf: the text itself where it is harmless, else a copy that stays valid
 * for the next 32 calls.  NULL is "". */
const char *hl_shown(const char *name);

/* How many columns a text of the functions above takes, roughly: one a character. */
size_t hl_printable_width(const char *text);

/* A text that may have several lines: to a terminal with its controls replaced, to a file or a pipe,
 * where it is data, as it is. */
void hl_put_text(FILE *stream, const char *text, size_t n_bytes);

/* What another program said, or a table: safe wherever the stream leads. */
void hl_put_lines(FILE *stream, const char *text, size_t n_bytes);

/* JSON to standard output, laid out by jansson, with the controls in its strings escaped.  False when
 * memory is out or `root` is NULL. */
bool hl_put_json(const json_t *root, size_t flags);
/* The same and the end of the line; releases `root`.  HL_EXIT_OK: where memory was out hl_command_run
 * fails. */
int hl_print_json(json_t *root, size_t flags);
/* The same for JSON that is text already. */
void hl_put_json_text(const char *json);

/* A table in a format; its cells are fit to be shown already, in JSON they are exact. */
hl_status hl_print_sheet(const hl_sheet *table, hl_sheet_format format);
/* What --csv and --json ask for; --csv goes first. */
hl_sheet_format hl_sheet_format_of(bool csv, bool json);
/* A table as a member of `root`, under its name. */
hl_status hl_set_sheet(json_t *root, const hl_sheet *table);

/* ---------------------------------- cells of tables, numbers and texts in JSON */

/* "L3H1". */
enum { HL_HEAD_LABEL_BYTES = 48 };
const char *hl_head_label(char out[HL_HEAD_LABEL_BYTES], int64_t layer, int64_t head);
/* The last part of a path, without slashes at its end; a static copy, valid for the next 4 calls. */
const char *hl_base_name(const char *path);
/* 1234567 as "1,234,567"; static, valid for the next 4 calls. */
const char *hl_grouped(int64_t number);

/* By the name of its column; NaN where there is no such column or no number. */
double hl_cell_number(const hl_sheet *table, int64_t row, const char *column);

/* JSON that anybody may have written (hl_json_walk), as a value that the caller releases; NULL on
 * failure. */
hl_status hl_value_read(json_t **out, const char *text, size_t n_bytes, const char *where);

/* An object:
 *
 *     HL_OBJECT(HL_IS("scored", nll->n_scored), HL_IS("mean", nll->mean))
 *
 * Values are whole numbers, doubles, truth values, UTF-8 (NULL: null) or JSON's own, which goes over to
 * the object; where that is NULL there is no such member. */
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
/* JSON has neither NaN nor infinities: null. */
json_t *hl_value_number(double value);
/* A string of any bytes; NULL when memory is out. */
json_t *hl_value_text(const char *bytes, size_t n_bytes);
/* The same for a name or path, which may be of any bytes, too. */
json_t *hl_value_name(const char *name);

#endif
