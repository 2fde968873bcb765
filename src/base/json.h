/* json.h - jansson, with limits and with messages that name the file and place.
 *
 * The only header that includes jansson.h.  Values are jansson's own; what
 * this adds is parsing that rejects duplicate keys, trailing text and deep
 * nesting, and getters whose errors say which key of which file was wrong. */
#ifndef HL_BASE_JSON_H
#define HL_BASE_JSON_H

#include <jansson.h>

#include "base/memory.h"
#include "headlight/base.h"

HL_CLOSES(json_decref, json_t)

/* Parses one value by the rules of hl_json_walk (headlight/base.h); strings that hold NUL are
 * refused. */
hl_status hl_json_parse(json_t **out, const char *text, size_t n_bytes, const char *where);
/* Parses the one value in a file. */
hl_status hl_json_parse_file(json_t **out, const char *path);

/* JSON objects, one per line.  The caller sets at, end and where, and with_nul if strings may hold
 * NUL. */
typedef struct hl_json_lines {
    const char *at; /* start of the next line */
    const char *end;
    const char *where;
    bool        with_nul;
    int64_t     number;     /* number of the last line read, counted from 1 */
    char        place[600]; /* name of the last line read, for messages: "FILE, line 7" */
} hl_json_lines;

/* Reads the next line; the caller releases the value. */
hl_status hl_json_lines_next(json_t **out, hl_json_lines *lines);

/* The kind of a value, for messages: "an object", "a string", ...; NULL is "missing". */
const char *hl_json_kind(const json_t *value);

/* A string from any bytes: each byte that is not valid UTF-8 becomes U+FFFD.  NULL when memory runs
 * out, as with jansson's own functions. */
json_t *hl_json_text(const char *bytes, size_t n_bytes);

/* A number; NaN and the infinities, which JSON cannot express, become null. */
json_t *hl_json_number(double value);
/* A number as JSON text with n_digits significant digits (at most 17); returns `out`. */
#define HL_JSON_NUMBER 32
const char *hl_json_number_text(char out[HL_JSON_NUMBER], double value, int n_digits);

/* Building.  Both take over the value.  If it is NULL or memory runs out, the whole object or array
 * is released and becomes NULL, and so does every container that it is put into.  One check of the
 * outermost container at the end therefore covers all steps. */
void hl_json_put(json_t **object, const char *key, json_t *value);
void hl_json_add(json_t **array, json_t *value);

/* The value as text, formatted by jansson's flags; NULL for NULL or when memory runs out.  Release
 * with hl_free.  It replaces json_dumps, which silently drops keys when memory runs out. */
char *hl_json_dump(const json_t *value, size_t flags);

/* object[key] as a number or boolean.  A missing key (or null) leaves *out as
 * it is and is not an error; another type is HL_BAD_INPUT. */
hl_status hl_json_get_int(int64_t *out, const json_t *object, const char *key, const char *where);
hl_status hl_json_get_double(double *out, const json_t *object, const char *key, const char *where);
hl_status hl_json_get_bool(bool *out, const json_t *object, const char *key, const char *where);
/* The string is borrowed from the object; a string that holds NUL is HL_BAD_INPUT. */
hl_status hl_json_get_string(const char **out, const json_t *object, const char *key,
                             const char *where);

#endif
