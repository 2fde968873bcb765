/* corpus_source.h - the bytes of a text file, in ranges and in lines.
 *
 * Text is read, not mapped: then a file of any length costs one buffer, and one that
 * somebody cuts short is an error with a name instead of a signal. */
#ifndef HL_MEASURE_CORPUS_SOURCE_H
#define HL_MEASURE_CORPUS_SOURCE_H

#include "base/json_reader.h"
#include "headlight.h"

/* A file that is part of a corpus. */
typedef struct hl_text_file {
    char          *path; /* "standard input" for a copy of that */
    hl_text_format format;
    int            descriptor; /* of the copy, which has no name; else -1 */
} hl_text_file;

typedef struct hl_text_source {
    const char *path; /* borrowed */
    int         descriptor;
    bool        borrowed; /* the descriptor is not ours to close */
    uint64_t    n_bytes;  /* when it was opened */
} hl_text_source;

/* HL_BAD_INPUT for what is not a regular file. */
hl_status hl_text_source_open(hl_text_source *out, const hl_text_file *file);
/* Of {0}, nothing. */
void hl_text_source_close(hl_text_source *source);
/* Bytes [at, at + n_bytes), all of them. */
hl_status hl_text_source_read(char *out, const hl_text_source *source, uint64_t at, size_t n_bytes);

/* -------------------------------------------------------------------- lines */

#define HL_MAX_LINE_BYTES ((size_t)1 << 28)

typedef struct hl_line_reader {
    const hl_text_source *source;
    char                 *buffer;
    size_t                capacity;
    size_t                begin; /* of what has not been handed out, in the buffer */
    size_t                end;
    uint64_t              at; /* in the file, of buffer[begin] */
    uint64_t              number;
} hl_line_reader;

typedef struct hl_line {
    hl_bytes bytes;  /* without the end of the line; borrowed until the next */
    uint64_t at;     /* in the file */
    uint64_t number; /* from 1 */
} hl_line;

/* Skips a byte order mark.  The source must outlive it. */
hl_status hl_line_reader_open(hl_line_reader *out, const hl_text_source *source);
void      hl_line_reader_close(hl_line_reader *reader);
/* *more is false at the end.  HL_LIMIT for a line beyond HL_MAX_LINE_BYTES. */
hl_status hl_line_reader_next(hl_line *out, bool *more, hl_line_reader *reader);

/* How many bytes at the start of the file are a byte order mark: 3 or 0. */
hl_status hl_text_source_mark(size_t *out, const hl_text_source *source);
/* Nothing but spaces, tabs and carriage returns. */
bool hl_is_blank(hl_bytes bytes);

#endif
