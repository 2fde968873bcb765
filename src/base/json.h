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

/* A value, read as hl_json_walk of headlight/base.h reads it; strings that hold NUL are refused. */
hl_status hl_json_parse(json_t **out, const char *text, size_t n_bytes, const char *where);
/* The same of a file. */
hl_status hl_json_parse_file(json_t **out, const char *path);

/* Objects, one a line.  Made with at, end and where, and with_nul where strings may hold it. */
typedef struct hl_json_lines {
    const char *at; /* the next line */
    const char *end;
    const char *where;
    bool        with_nul;
    int64_t     number;     /* of the line that was read last, from 1 on */
    char        place[600]; /* of that line, for messages: "FILE, line 7" */
} hl_json_lines;

/* The next line, which the caller releases. */
hl_status hl_json_lines_next(json_t **out, hl_json_lines *lines);

/* What a value is, for messages: "an object", "a string", ...; NULL is "missing". */
const char *hl_json_kind(const json_t *value);

/* A string of any bytes: each that is part of no character becomes U+FFFD.  NULL when memory is
 * out, as of jansson's own. */
json_t *hl_json_text(const char *bytes, size_t n_bytes);

/* A number; NaN and the infinities, which JSON does not have, are null. */
json_t *hl_json_number(double value);
/* The same as text, with so many significant digits (up to 17); returns `out`. */
#define HL_JSON_NUMBER 32
const char *hl_json_number_text(char out[HL_JSON_NUMBER], double value, int n_digits);

/* Building.  Both take over the value; where it is NULL or memory is out, the whole object or
 * array is let go of and becomes NULL, as does what it is put into in turn: a look at the
 * end tells whether all is there. */
void hl_json_put(json_t **object, const char *key, json_t *value);
void hl_json_add(json_t **array, json_t *value);

/* As text, by jansson's flags; NULL for NULL, or when memory is out.  Release with hl_free.
 * Not json_dumps, which leaves out the keys that it finds no memory for. */
char *hl_json_dump(const json_t *value, size_t flags);

/* object[key] as a number or boolean.  A missing key (or null) leaves *out as
 * it is and is not an error; another type is HL_BAD_INPUT. */
hl_status hl_json_get_int(int64_t *out, const json_t *object, const char *key, const char *where);
hl_status hl_json_get_double(double *out, const json_t *object, const char *key, const char *where);
hl_status hl_json_get_bool(bool *out, const json_t *object, const char *key, const char *where);
/* Borrowed from the object; one with NUL in it is HL_BAD_INPUT. */
hl_status hl_json_get_string(const char **out, const json_t *object, const char *key,
                             const char *where);

#endif
