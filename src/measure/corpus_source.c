/* corpus_source.c - reading text files in ranges and in lines. */
#include "measure/corpus_source.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/memory.h"
#include "base/status.h"
#include "tokenize/buffer.h"

#define LINE_BLOCK ((size_t)1 << 16)

static hl_status check_kind(const hl_text_source *source, const struct stat *info)
{
    if (S_ISREG(info->st_mode))
        return HL_OK;
    if (S_ISDIR(info->st_mode))
        return hl_fail(HL_BAD_INPUT, "%s: is a directory, wanted a file", source->path);
    if (S_ISFIFO(info->st_mode))
        return hl_fail(HL_BAD_INPUT, "%s: is a pipe, wanted a file (standard input is '-')",
                       source->path);
    return hl_fail(HL_BAD_INPUT, "%s: not a regular file", source->path);
}

static hl_status look_at(hl_text_source *source)
{
    struct stat info;

    if (hl_sys_fstat(source->descriptor, &info) != 0)
        return hl_fail(HL_IO, "%s: %s", source->path, strerror(errno));
    source->n_bytes = (uint64_t)info.st_size;
    return check_kind(source, &info);
}

hl_status hl_text_source_open(hl_text_source *out, const hl_text_file *file)
{
    *out = (hl_text_source){ .path       = file->path,
                             .descriptor = file->descriptor,
                             .borrowed   = file->descriptor >= 0 };
    if (!out->borrowed) /* O_NONBLOCK: a pipe that nobody writes to must not wait */
        out->descriptor = hl_sys_open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (out->descriptor < 0) {
        int code = errno;
        *out     = (hl_text_source){ 0 };
        return hl_fail(code == ENOENT ? HL_NOT_FOUND : HL_IO, "%s: %s", file->path, strerror(code));
    }
    hl_status status = look_at(out);
    if (status != HL_OK)
        hl_text_source_close(out);
    return status;
}

void hl_text_source_close(hl_text_source *source)
{
    if (source->path != NULL && !source->borrowed)
        close(source->descriptor);
    *source = (hl_text_source){ 0 };
}

hl_status hl_text_source_read(char *out, const hl_text_source *source, uint64_t at, size_t n_bytes)
{
    while (n_bytes > 0) {
        ssize_t n_read = hl_sys_pread(source->descriptor, out, n_bytes, (off_t)at);
        if (n_read < 0 && errno == EINTR)
            continue;
        if (n_read < 0)
            return hl_fail(HL_IO, "%s: reading byte %llu: %s", source->path, (unsigned long long)at,
                           strerror(errno));
        if (n_read == 0)
            return hl_fail(
                HL_BAD_INPUT, "%s: ends at byte %llu, it had %llu: it shrank while in use",
                source->path, (unsigned long long)at, (unsigned long long)source->n_bytes);
        out += n_read;
        at += (uint64_t)n_read;
        n_bytes -= (size_t)n_read;
    }
    return HL_OK;
}

hl_status hl_text_source_mark(size_t *out, const hl_text_source *source)
{
    char start[3] = { 0 };

    *out = 0;
    if (source->n_bytes < sizeof start)
        return HL_OK;
    hl_status status = hl_text_source_read(start, source, 0, sizeof start);
    if (status == HL_OK && memcmp(start, "\xef\xbb\xbf", sizeof start) == 0)
        *out = sizeof start;
    return status;
}

/* -------------------------------------------------------------------- lines */

hl_status hl_line_reader_open(hl_line_reader *out, const hl_text_source *source)
{
    size_t mark = 0;

    *out = (hl_line_reader){ .source = source };
    HL_NEED(hl_text_source_mark(&mark, source));
    HL_NEED(HL_ALLOC(&out->buffer, LINE_BLOCK));
    out->capacity = LINE_BLOCK;
    out->at       = mark;
    return HL_OK;
}

void hl_line_reader_close(hl_line_reader *reader)
{
    hl_free(reader->buffer);
    *reader = (hl_line_reader){ 0 };
}

/* More of the file behind what is in the buffer; *more is false when there is none. */
static hl_status fill(bool *more, hl_line_reader *reader)
{
    hl_status status = HL_OK;
    size_t    held   = reader->end - reader->begin;
    uint64_t  left   = reader->source->n_bytes - reader->at - held;

    *more = left > 0;
    if (!*more)
        return status;
    if (held >= HL_MAX_LINE_BYTES)
        HL_NEED(hl_fail(HL_LIMIT, "%s:%llu: a line of more than %zu bytes", reader->source->path,
                        (unsigned long long)reader->number + 1, HL_MAX_LINE_BYTES));
    memmove(reader->buffer, reader->buffer + reader->begin, held);
    reader->begin = 0;
    reader->end   = held;
    HL_NEED(HL_GROW(&reader->buffer, &reader->capacity, held, LINE_BLOCK));
    size_t n_bytes = left < LINE_BLOCK ? (size_t)left : LINE_BLOCK;
    HL_NEED(hl_text_source_read(reader->buffer + held, reader->source, reader->at + held, n_bytes));
    reader->end += n_bytes;
    return status;
}

static void hand_out(hl_line *out, hl_line_reader *reader, size_t n_bytes, size_t n_ending)
{
    *out = (hl_line){ .bytes  = { reader->buffer + reader->begin, n_bytes },
                      .at     = reader->at,
                      .number = ++reader->number };
    reader->begin += n_bytes + n_ending;
    reader->at += n_bytes + n_ending;
}

hl_status hl_line_reader_next(hl_line *out, bool *more, hl_line_reader *reader)
{
    size_t looked = 0; /* bytes that hold no end of line */

    for (;;) {
        size_t      held = reader->end - reader->begin;
        const char *from = reader->buffer + reader->begin;
        const char *end  = memchr(from + looked, '\n', held - looked);
        if (end != NULL) {
            *more = true;
            hand_out(out, reader, (size_t)(end - from), 1);
            return HL_OK;
        }
        looked           = held;
        hl_status status = fill(more, reader);
        if (status != HL_OK)
            return status;
        if (!*more) {
            *more = held > 0; /* the last line need not end */
            if (*more)
                hand_out(out, reader, held, 0);
            return HL_OK;
        }
    }
}

bool hl_is_blank(hl_bytes bytes)
{
    for (size_t i = 0; i < bytes.n_bytes; i++) {
        if (bytes.data[i] != ' ' && bytes.data[i] != '\t' && bytes.data[i] != '\r')
            return false;
    }
    return true;
}
