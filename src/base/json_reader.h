/* json_reader.h - reading JSON piece by piece, without building a tree.
 *
 * For files with hundreds of thousands of strings that are each read once (a
 * vocabulary and its merges).  The caller says what it expects:
 *
 *     HL_SCOPED(hl_json_reader_close) hl_json_reader reader = { 0 };
 *
 *     HL_NEED(hl_json_reader_open(&reader, text, n_bytes, where));
 *     HL_NEED(hl_json_enter(&reader, '{'));
 *     while (hl_json_next_key(&reader, &key))
 *         HL_NEED(hl_json_read_int(&reader, &value));
 *     HL_NEED(hl_json_reader_finish(&reader));
 *
 * Unlike jansson's, strings and keys may hold NUL; they come with their length.
 * Errors name the source, line and column.  After an error every call repeats it. */
#ifndef HL_BASE_JSON_READER_H
#define HL_BASE_JSON_READER_H

#include "base/buffer.h"

typedef struct hl_json_reader {
    const char *text;
    size_t      n_bytes;
    size_t      at;
    const char *where; /* borrowed */
    bool        first; /* nothing has been read in the innermost container yet */
    int         depth;
    char       *scratch; /* the last string, if it had escapes */
    size_t      scratch_bytes;
    bool        refuses_nul; /* refuse NUL in strings; set by the caller */
    hl_status   status;      /* the first error so far */
} hl_json_reader;

/* Opens a reader and checks that the text is UTF-8.  The text must outlive the reader. */
hl_status hl_json_reader_open(hl_json_reader *out, const char *text, size_t n_bytes,
                              const char *where);
/* Opens a part of a text that has been checked already, as found by hl_json_skip. */
void hl_json_reader_open_part(hl_json_reader *out, hl_bytes part, const char *where);
void hl_json_reader_close(hl_json_reader *reader);
/* Fails if anything but white space is left. */
hl_status hl_json_reader_finish(hl_json_reader *reader);

/* The first character of the next value, or 0 at the end: '{', '[', '"', 't', ... */
char hl_json_peek(hl_json_reader *reader);

/* Enters an object '{' or an array '['. */
hl_status hl_json_enter(hl_json_reader *reader, char bracket);
/* True if there is another member; otherwise steps past the closing bracket.  Also false after an
 * error, so the caller must check reader->status after the loop, or call hl_json_reader_finish. */
bool hl_json_next(hl_json_reader *reader, char closing);
/* Like hl_json_next, inside an object.  *key is the member's name; it is valid until the next
 * string is read. */
bool hl_json_next_key(hl_json_reader *reader, hl_bytes *key);

hl_status hl_json_read_string(hl_json_reader *reader, hl_bytes *out);
hl_status hl_json_read_int(hl_json_reader *reader, int64_t *out);
hl_status hl_json_read_double(hl_json_reader *reader, double *out);
hl_status hl_json_read_bool(hl_json_reader *reader, bool *out);
/* Skips the next value, of any kind; *out is its bytes. */
hl_status hl_json_skip(hl_json_reader *reader, hl_bytes *out);

/* HL_BAD_INPUT; the message begins with the reader's source, line and column. */
hl_status hl_json_reader_fail(hl_json_reader *reader, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
