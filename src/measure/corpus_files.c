/* corpus_files.c - files, folders, patterns and standard input; and their bytes.
 *
 * Everything is sorted by the bytes of its name, not by a locale's rules, so that the same folder
 * is the same corpus everywhere. */
#include "measure/corpus_parts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/fault.h"
#include "base/memory.h"
#include "base/status.h"

#define MAX_DEPTH    64
#define MAX_FILES    ((size_t)1 << 24)
#define COPY_BLOCK   ((size_t)1 << 16)
#define DEVICE_BYTES ((uint64_t)1 << 28)
#define ENDINGS      ".txt .text .md .markdown .rst .jsonl .ndjson"
#define STDIN_INPUT  "-"

typedef struct file_finder {
    hl_text_files *files;
    hl_text_format format;
} file_finder;

/* ------------------------------------------------------------------- endings */

static const char *ending_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *dot   = strrchr(slash != NULL ? slash : path, '.');
    return dot != NULL ? dot : "";
}

static bool is_one_of(const char *ending, const char *list)
{
    size_t length = strlen(ending);

    for (const char *word = list; length > 0 && word != NULL; word = strchr(word, ' ')) {
        word += *word == ' ';
        if (strcspn(word, " ") == length && strncmp(word, ending, length) == 0)
            return true;
    }
    return false;
}

static hl_text_format format_of(const char *path, hl_text_format asked)
{
    if (asked != HL_TEXT_AUTO)
        return asked;
    return is_one_of(ending_of(path), ".jsonl .ndjson") ? HL_TEXT_JSONL : HL_TEXT_PLAIN;
}

/* -------------------------------------------------------------------- a file */

static hl_status add_file(file_finder *finder, const char *path, int descriptor)
{
    hl_text_files *files = finder->files;

    if (files->count >= MAX_FILES)
        return hl_fail(HL_LIMIT, "%s: more than %zu files", path, MAX_FILES);
    HL_NEED(HL_GROW(&files->items, &files->capacity, files->count, 1));
    hl_text_file *file = &files->items[files->count];
    HL_NEED(hl_strdup(&file->path, path));
    file->format     = format_of(path, finder->format);
    file->descriptor = descriptor;
    file->memory     = (hl_bytes){ 0 };
    files->count++;
    return HL_OK;
}

static hl_status skip_file(file_finder *finder, const char *path)
{
    if (finder->files->n_skipped++ > 0)
        return HL_OK;
    return hl_strdup(&finder->files->first_skipped, path);
}

/* ------------------------------------------------------------------ a folder */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

typedef struct name_list {
    char **items;
    size_t count;
    size_t capacity;
} name_list;

static void free_names(name_list *names)
{
    for (size_t i = 0; i < names->count; i++)
        hl_free(names->items[i]);
    hl_free(names->items);
}

static hl_status add_name(name_list *names, const char *name)
{
    hl_status status = HL_GROW(&names->items, &names->capacity, names->count, 1);
    if (status == HL_OK)
        status = hl_strdup(&names->items[names->count], name);
    if (status == HL_OK)
        names->count++;
    return status;
}

/* Lists a folder, sorted, without hidden entries. */
static hl_status list_folder(name_list *out, const char *path)
{
    hl_status status = HL_OK;
    DIR      *folder = hl_sys_opendir(path);

    if (folder == NULL)
        return hl_fail(HL_IO, "%s: %s", path, strerror(errno));
    errno = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL; errno = 0) {
        if (entry->d_name[0] != '.')
            HL_TRY(add_name(out, entry->d_name));
    }
    if (errno != 0)
        HL_TRY(hl_fail(HL_IO, "%s: %s", path, strerror(errno)));
    if (out->count > 0)
        qsort(out->items, out->count, sizeof *out->items, compare_names);

done:
    closedir(folder);
    return status;
}

static hl_status join_path(char **out, const char *folder, const char *name)
{
    size_t      room  = strlen(folder) + strlen(name) + 2;
    const char *slash = folder[0] != '\0' && folder[strlen(folder) - 1] == '/' ? "" : "/";
    hl_status   status;

    status = HL_ALLOC(out, room);
    if (status == HL_OK)
        snprintf(*out, room, "%s%s%s", folder, slash, name);
    return status;
}

static hl_status add_folder(file_finder *finder, const char *path, int depth);

/* A link to a file counts as that file; a link to a folder is skipped, since it could lead back
 * here. */
static hl_status add_entry(file_finder *finder, const char *path, int depth)
{
    struct stat info;
    struct stat target;

    if (lstat(path, &info) != 0)
        return hl_fail(errno == ENOENT ? HL_NOT_FOUND : HL_IO, "%s: %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode))
        return add_folder(finder, path, depth + 1);
    bool is_file = stat(path, &target) == 0 && S_ISREG(target.st_mode);
    if (is_file && is_one_of(ending_of(path), ENDINGS))
        return add_file(finder, path, -1);
    return skip_file(finder, path);
}

static hl_status add_folder(file_finder *finder, const char *path, int depth)
{
    HL_SCOPED(free_names) name_list names = { 0 };

    HL_FREED char *inside = NULL;

    if (depth > MAX_DEPTH)
        return hl_fail(HL_LIMIT, "%s: folders nested more than %d deep", path, MAX_DEPTH);
    HL_NEED(list_folder(&names, path));
    for (size_t i = 0; i < names.count; i++) {
        HL_NEED(join_path(&inside, path, names.items[i]));
        HL_NEED(add_entry(finder, inside, depth));
        hl_free(inside);
        inside = NULL;
    }
    return HL_OK;
}

static hl_status add_whole_folder(file_finder *finder, const char *path)
{
    size_t    before  = finder->files->count;
    int64_t   skipped = finder->files->n_skipped;
    hl_status status  = add_folder(finder, path, 0);

    if (status != HL_OK || finder->files->count > before)
        return status;
    return hl_fail(HL_BAD_INPUT, "%s: no text in this folder (looked for %s; %lld other files)",
                   path, ENDINGS, (long long)(finder->files->n_skipped - skipped));
}

/* ----------------------------------------------------------------- a pattern */

static hl_status add_path(file_finder *finder, const char *path)
{
    struct stat info;

    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return add_whole_folder(finder, path);
    return add_file(finder, path, -1); /* if it cannot be read, opening it reports that */
}

/* A folder that is not there has no matches; one that cannot be read is an error. */
static int is_serious(const char *path, int code)
{
    (void)path;
    return code != ENOENT && code != ENOTDIR;
}

static hl_status add_matches(file_finder *finder, const char *pattern)
{
    hl_status status  = HL_OK;
    glob_t    matches = { 0 };
    int       code    = glob(pattern, GLOB_NOSORT, is_serious, &matches);

    if (code == GLOB_NOMATCH)
        return hl_fail(HL_NOT_FOUND, "%s: no such file, and no file matches", pattern);
    if (code != 0)
        HL_TRY(hl_fail(code == GLOB_NOSPACE ? HL_NO_MEMORY : HL_IO,
                       "%s: cannot look for matches: %s", pattern, strerror(errno)));
    qsort(matches.gl_pathv, matches.gl_pathc, sizeof *matches.gl_pathv, compare_names);
    for (size_t i = 0; i < matches.gl_pathc; i++)
        HL_TRY(add_path(finder, matches.gl_pathv[i]));

done:
    globfree(&matches);
    return status;
}

/* ------------------------------------------------------------ standard input */

/* Creates a file without a name, which disappears when it is closed. */
static hl_status make_nameless(int *out)
{
    const char *folder = getenv("TMPDIR");
    char        path[4096];

    if (folder == NULL || folder[0] == '\0')
        folder = "/tmp";
    int length = snprintf(path, sizeof path, "%s/headlight-XXXXXX", folder);
    if (length < 0 || length >= (int)sizeof path)
        return hl_fail(HL_IO, "TMPDIR is too long a path");
    *out = hl_sys_mkstemp(path);
    if (*out < 0)
        return hl_fail(HL_IO, "%s: cannot create a file there for standard input: %s", folder,
                       strerror(errno));
    fcntl(*out, F_SETFD, FD_CLOEXEC);
    unlink(path);
    return HL_OK;
}

static hl_status write_all(int descriptor, const char *bytes, size_t n_bytes)
{
    while (n_bytes > 0) {
        ssize_t n_written = hl_sys_write(descriptor, bytes, n_bytes);
        if (n_written < 0 && errno == EINTR)
            continue;
        if (n_written < 0)
            return hl_fail(HL_IO, "standard input: keeping a copy: %s", strerror(errno));
        bytes += n_written;
        n_bytes -= (size_t)n_written;
    }
    return HL_OK;
}

/* Limits how much of standard input is copied: of a file, its current size; of a device
 * (/dev/zero), DEVICE_BYTES; of a pipe, half of the free space.  With *is_all, more input is not an
 * error. */
static hl_status bound_input(uint64_t *most, bool *is_all, int copy)
{
    struct stat    input;
    struct statvfs place;

    *is_all = false;
    if (hl_sys_fstat(STDIN_FILENO, &input) != 0)
        return hl_fail(HL_IO, "standard input: %s", strerror(errno));
    if (S_ISREG(input.st_mode)) {
        off_t at = lseek(STDIN_FILENO, 0, SEEK_CUR);
        *is_all  = true;
        *most    = at >= 0 && at < input.st_size ? (uint64_t)(input.st_size - at) : 0;
        return HL_OK;
    }
    *most = DEVICE_BYTES;
    if (!S_ISCHR(input.st_mode) && fstatvfs(copy, &place) == 0)
        *most = (uint64_t)place.f_bavail * place.f_frsize / 2;
    return HL_OK;
}

static hl_status copy_input(int descriptor)
{
    HL_FREED char *block    = NULL;
    uint64_t       n_copied = 0;
    uint64_t       most     = 0;
    bool           is_all   = false;

    HL_NEED(bound_input(&most, &is_all, descriptor));
    HL_NEED(HL_ALLOC(&block, COPY_BLOCK));
    while (!is_all || n_copied < most) {
        ssize_t n_read = hl_sys_read(STDIN_FILENO, block, COPY_BLOCK);
        if (n_read < 0 && errno == EINTR)
            continue;
        if (n_read < 0)
            return hl_fail(HL_IO, "standard input: %s", strerror(errno));
        if (n_read == 0)
            break;
        n_copied += (uint64_t)n_read;
        if (n_copied > most && is_all) {
            n_read -= (ssize_t)(n_copied - most);
            n_copied = most;
        }
        if (n_copied > most)
            HL_NEED(
                hl_fail(HL_LIMIT,
                        "standard input: more than %llu bytes, the most that is copied; use a file",
                        (unsigned long long)most));
        HL_NEED(write_all(descriptor, block, (size_t)n_read));
    }
    return HL_OK;
}

static hl_status add_standard_input(file_finder *finder)
{
    hl_status status     = HL_OK;
    int       descriptor = -1;

    for (size_t i = 0; i < finder->files->count; i++) {
        if (finder->files->items[i].descriptor >= 0)
            return hl_fail(HL_BAD_ARGUMENT, "standard input ('-') can be read only once");
    }
    HL_TRY(make_nameless(&descriptor));
    HL_TRY(copy_input(descriptor));
    HL_TRY(add_file(finder, "standard input", descriptor));
    descriptor = -1;

done:
    if (descriptor >= 0)
        close(descriptor);
    return status;
}

/* --------------------------------------------------------------- any of them */

hl_status hl_text_files_add(hl_text_files *files, const char *input, hl_text_format format)
{
    file_finder finder = { files, format };
    struct stat info;

    if (strcmp(input, STDIN_INPUT) == 0)
        return add_standard_input(&finder);
    if (stat(input, &info) != 0 && errno == ENOENT && strpbrk(input, "*?[") != NULL)
        return add_matches(&finder, input);
    return add_path(&finder, input);
}

hl_status hl_text_files_add_memory(hl_text_files *files, hl_bytes memory, const char *name,
                                   hl_text_format format)
{
    HL_NEED(add_file(&(file_finder){ files, format }, name, -1));
    files->items[files->count - 1].memory = memory;
    return HL_OK;
}

void hl_text_files_free(hl_text_files *files)
{
    for (size_t i = 0; i < files->count; i++) {
        hl_free(files->items[i].path);
        if (files->items[i].descriptor >= 0)
            close(files->items[i].descriptor);
    }
    hl_free(files->items);
    hl_free(files->first_skipped);
    *files = (hl_text_files){ 0 };
}

/* ---------------------------------------------------------- ranges of a file */

#define LINE_BLOCK ((size_t)1 << 16)

static hl_status check_kind(const hl_text_source *source, const struct stat *info)
{
    if (S_ISREG(info->st_mode))
        return HL_OK;
    if (S_ISDIR(info->st_mode))
        return hl_fail(HL_BAD_INPUT, "%s: is a directory, wanted a file", source->path);
    if (S_ISFIFO(info->st_mode))
        return hl_fail(HL_BAD_INPUT, "%s: is a pipe; give a file, or '-' for standard input",
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
                             .memory     = file->memory.data,
                             .descriptor = file->descriptor,
                             .borrowed   = file->descriptor >= 0 || file->memory.data != NULL,
                             .n_bytes    = file->memory.n_bytes };
    if (out->memory != NULL)
        return HL_OK;
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
    if (source->memory != NULL) {
        memcpy(out, source->memory + at, n_bytes); /* memory does not change its size */
        return HL_OK;
    }
    while (n_bytes > 0) {
        ssize_t n_read = hl_sys_pread(source->descriptor, out, n_bytes, (off_t)at);
        if (n_read < 0 && errno == EINTR)
            continue;
        if (n_read < 0)
            return hl_fail(HL_IO, "%s: reading byte %llu: %s", source->path, (unsigned long long)at,
                           strerror(errno));
        if (n_read == 0)
            return hl_fail(
                HL_BAD_INPUT, "%s: ends at byte %llu, but had %llu bytes: it shrank while in use",
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

/* ----------------------------------------------------------- lines of a file */

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

/* Reads more of the file into the buffer; *more is false at its end. */
static hl_status fill(bool *more, hl_line_reader *reader)
{
    size_t   held = reader->end - reader->begin;
    uint64_t left = reader->source->n_bytes - reader->at - held;

    *more = left > 0;
    if (!*more)
        return HL_OK;
    if (held >= HL_MAX_LINE_BYTES)
        return hl_fail(HL_LIMIT, "%s:%llu: a line of more than %zu bytes", reader->source->path,
                       (unsigned long long)reader->number + 1, HL_MAX_LINE_BYTES);
    memmove(reader->buffer, reader->buffer + reader->begin, held);
    reader->begin = 0;
    reader->end   = held;
    HL_NEED(HL_GROW(&reader->buffer, &reader->capacity, held, LINE_BLOCK));
    size_t n_bytes = left < LINE_BLOCK ? (size_t)left : LINE_BLOCK;
    HL_NEED(hl_text_source_read(reader->buffer + held, reader->source, reader->at + held, n_bytes));
    reader->end += n_bytes;
    return HL_OK;
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
    size_t looked = 0; /* number of bytes without a line end */

    for (;;) {
        size_t      held = reader->end - reader->begin;
        const char *from = reader->buffer + reader->begin;
        const char *end  = memchr(from + looked, '\n', held - looked);
        if (end != NULL) {
            *more = true;
            hand_out(out, reader, (size_t)(end - from), 1);
            return HL_OK;
        }
        looked = held;
        HL_NEED(fill(more, reader));
        if (!*more) {
            *more = held > 0; /* the last line may lack a line end */
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
