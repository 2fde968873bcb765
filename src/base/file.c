/* file.c - reading by mapping, writing by renaming.
 *
 * Reading.  A file is mapped, never read into memory: weights of many gigabytes
 * cost address space only, and pages come in when touched.  The price: a file
 * that somebody truncates while it is mapped raises SIGBUS on the missing pages
 * (guard.c).
 *
 * Writing.  DIR/NAME is written under a temporary name (temporary.h) and renamed when every
 * byte has reached the disk.  The order matters after a power cut:
 *
 *     write  ->  fsync(file)  ->  rename  ->  fsync(directory)
 *
 * Without the first fsync the new name could stand for an empty file; without
 * the second the rename itself could be forgotten. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/guard.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/temporary.h"

/* ----------------------------------------------------------------- mapping */

/* The size of an open file, which must be a regular one. */
static hl_status regular_size(size_t *out, int descriptor, const char *path)
{
    struct stat info;

    if (hl_sys_fstat(descriptor, &info) != 0)
        return hl_fail(HL_IO, "%s: %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode))
        return hl_fail(HL_BAD_INPUT, "%s: is a directory, wanted a file", path);
    if (!S_ISREG(info.st_mode))
        return hl_fail(HL_BAD_INPUT, "%s: not a regular file, cannot be mapped", path);
    if ((uintmax_t)info.st_size > SIZE_MAX)
        return hl_fail(HL_LIMIT, "%s: %jd bytes, too large to map on this machine", path,
                       (intmax_t)info.st_size);
    *out = (size_t)info.st_size;
    return HL_OK;
}

static hl_status map_descriptor(hl_file *out, int descriptor, const char *path)
{
    size_t    n_bytes = 0;
    hl_status status  = regular_size(&n_bytes, descriptor, path);
    if (status != HL_OK)
        return status;

    if (n_bytes == 0) { /* mmap refuses to map nothing */
        *out = (hl_file){ .bytes = (const uint8_t *)"" };
        return HL_OK;
    }
    void *mapping = hl_sys_map(n_bytes, descriptor);
    if (mapping == MAP_FAILED)
        return hl_fail(errno == ENOMEM ? HL_NO_MEMORY : HL_IO, "%s: mapping %zu bytes: %s", path,
                       n_bytes, strerror(errno));
    hl_guard_add(mapping, n_bytes, path);
    *out = (hl_file){ .bytes = mapping, .n_bytes = n_bytes, .mapping = mapping };
    return HL_OK;
}

hl_status hl_file_map(hl_file *out, const char *path)
{
    *out = (hl_file){ 0 };

    /* O_NONBLOCK: opening a pipe that nobody writes to must not wait. */
    int descriptor = hl_sys_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (descriptor < 0)
        return hl_fail(errno == ENOENT ? HL_NOT_FOUND : HL_IO, "%s: %s", path, strerror(errno));

    hl_status status = map_descriptor(out, descriptor, path);
    close(descriptor); /* the mapping stays */
    return status;
}

void hl_file_unmap(hl_file *file)
{
    if (file->mapping != NULL) {
        hl_guard_remove(file->mapping);
        munmap(file->mapping, file->n_bytes);
    }
    *file = (hl_file){ 0 };
}

/* ----------------------------------------------------------------- writing */

#define BUFFER_BYTES ((size_t)1 << 18)

struct hl_writer {
    int           descriptor;
    char         *path;
    hl_temporary  temporary; /* what is written; without a lock where the caller named it */
    uint8_t      *buffer;    /* (BUFFER_BYTES) */
    size_t        n_buffered;
    hl_kept_error error;
};

/* The length of the directory part of a path, its last slash included. */
static size_t directory_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? (size_t)(slash - path) + 1 : 0;
}

/* A rename would replace a device or a pipe by a plain file: refuse those. */
static hl_status check_target(const char *path)
{
    struct stat info;

    if (path[directory_length(path)] == '\0')
        return hl_fail(HL_BAD_ARGUMENT, "'%s': not the name of a file", path);
    if (stat(path, &info) != 0)
        return HL_OK; /* it need not exist; whether it can is seen on creation */
    if (S_ISDIR(info.st_mode))
        return hl_fail(HL_BAD_ARGUMENT, "%s: is a directory, wanted a file", path);
    if (!S_ISREG(info.st_mode))
        return hl_fail(HL_BAD_ARGUMENT, "%s: not a regular file, will not be replaced", path);
    return HL_OK;
}

static hl_status new_writer(hl_writer **out, const char *path)
{
    hl_status  status = HL_OK;
    hl_writer *writer = NULL;

    *out = NULL;
    HL_TRY(check_target(path));
    HL_TRY(HL_ALLOC_ZEROED(&writer, 1));
    writer->descriptor = -1;
    writer->temporary  = HL_NO_TEMPORARY;
    HL_TRY(hl_strdup(&writer->path, path));
    HL_TRY(HL_ALLOC(&writer->buffer, BUFFER_BYTES));
    *out   = writer;
    writer = NULL;

done:
    hl_writer_abandon(writer);
    return status;
}

hl_status hl_writer_open(hl_writer **out, const char *path)
{
    hl_status status = new_writer(out, path);

    if (status == HL_OK)
        status = hl_temporary_file(&(*out)->temporary, &(*out)->descriptor, path);
    if (status != HL_OK) {
        hl_writer_abandon(*out);
        *out = NULL;
    }
    return status;
}

hl_status hl_writer_open_as(hl_writer **out, const char *path, const char *temporary, bool go_on)
{
    hl_status  status = HL_OK;
    hl_writer *writer = NULL;
    char      *name   = NULL;
    int        flags  = go_on ? 0 : O_CREAT | O_TRUNC;

    *out = NULL;
    HL_TRY(check_target(temporary));
    HL_TRY(new_writer(&writer, path));
    HL_TRY(hl_strdup(&name, temporary));
    writer->descriptor = hl_sys_open(temporary, O_RDWR | O_CLOEXEC | flags, 0666);
    if (writer->descriptor < 0)
        HL_TRY(
            hl_fail(errno == ENOENT ? HL_NOT_FOUND : HL_IO, "%s: %s", temporary, strerror(errno)));
    writer->temporary.name = name;
    name                   = NULL;
    *out                   = writer;
    writer                 = NULL;

done:
    hl_writer_abandon(writer);
    hl_free(name);
    return status;
}

/* Past the buffer, to the file.  The system may take less than it is given. */
static void write_through(hl_writer *writer, const uint8_t *bytes, size_t n_bytes)
{
    while (n_bytes > 0 && writer->error.status == HL_OK) {
        ssize_t n_written = hl_sys_write(writer->descriptor, bytes, n_bytes);
        if (n_written < 0 && errno == EINTR)
            continue;
        if (n_written < 0) {
            hl_keep_error(&writer->error,
                          hl_fail(HL_IO, "%s: writing: %s", writer->path, strerror(errno)));
            return;
        }
        bytes += n_written;
        n_bytes -= (size_t)n_written;
    }
}

static void flush(hl_writer *writer)
{
    write_through(writer, writer->buffer, writer->n_buffered);
    writer->n_buffered = 0;
}

void hl_writer_write(hl_writer *writer, const void *bytes, size_t n_bytes)
{
    if (n_bytes == 0)
        return;
    if (n_bytes > BUFFER_BYTES - writer->n_buffered)
        flush(writer);
    if (n_bytes >= BUFFER_BYTES) {
        write_through(writer, bytes, n_bytes);
        return;
    }
    memcpy(writer->buffer + writer->n_buffered, bytes, n_bytes);
    writer->n_buffered += n_bytes;
}

void hl_writer_reserve(hl_writer *writer, size_t n_bytes)
{
    int code = 0;

    flush(writer);
    if (writer->error.status != HL_OK || n_bytes == 0)
        return;
    if (n_bytes > INT64_MAX)
        hl_keep_error(&writer->error,
                      hl_fail(HL_LIMIT, "%s: %zu bytes are more than a file can have", writer->path,
                              n_bytes));
    else
        code = hl_sys_fallocate(writer->descriptor, (off_t)n_bytes);
    if (code != 0)
        hl_keep_error(&writer->error, hl_fail(HL_IO, "%s: no room for %zu bytes: %s", writer->path,
                                              n_bytes, strerror(code)));
}

void hl_writer_write_at(hl_writer *writer, size_t offset, const void *bytes, size_t n_bytes)
{
    const uint8_t *next = bytes;

    flush(writer);
    while (n_bytes > 0 && writer->error.status == HL_OK) {
        ssize_t n_written = hl_sys_pwrite(writer->descriptor, next, n_bytes, (off_t)offset);
        if (n_written < 0 && errno == EINTR)
            continue;
        if (n_written < 0) {
            hl_keep_error(&writer->error,
                          hl_fail(HL_IO, "%s: writing: %s", writer->path, strerror(errno)));
            return;
        }
        next += n_written;
        offset += (size_t)n_written;
        n_bytes -= (size_t)n_written;
    }
}

hl_status hl_writer_check(const hl_writer *writer)
{
    return hl_fail_kept(&writer->error);
}

hl_status hl_writer_sync(hl_writer *writer)
{
    flush(writer);
    if (writer->error.status == HL_OK && hl_sys_fsync(writer->descriptor) != 0)
        hl_keep_error(&writer->error,
                      hl_fail(HL_IO, "%s: syncing: %s", writer->path, strerror(errno)));
    return hl_writer_check(writer);
}

/* Make the rename last.  Some file systems cannot sync a directory (EINVAL), and
 * some directories may be written but not opened: neither is the caller's fault. */
static hl_status sync_directory(const char *path)
{
    hl_status status    = HL_OK;
    size_t    length    = directory_length(path);
    char     *directory = NULL;

    HL_TRY(hl_strndup(&directory, length > 0 ? path : ".", length > 0 ? length : 1));
    int descriptor = hl_sys_open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (descriptor < 0)
        goto done;
    if (hl_sys_fsync(descriptor) != 0 && errno != EINVAL)
        status = hl_fail(HL_IO, "%s: syncing its directory: %s", path, strerror(errno));
    close(descriptor);

done:
    hl_free(directory);
    return status;
}

/* Everything after the last write; afterwards the temporary name is gone or
 * the writer has an error. */
static hl_status put_in_place(hl_writer *writer)
{
    if (hl_sys_fsync(writer->descriptor) != 0)
        return hl_fail(HL_IO, "%s: syncing: %s", writer->path, strerror(errno));
    int closed         = hl_sys_close_written(writer->descriptor);
    writer->descriptor = -1;
    if (closed != 0)
        return hl_fail(HL_IO, "%s: closing: %s", writer->path, strerror(errno));
    if (hl_sys_rename(writer->temporary.name, writer->path) != 0)
        return hl_fail(HL_IO, "%s: renaming into place: %s", writer->path, strerror(errno));
    hl_temporary_free(&writer->temporary);
    return sync_directory(writer->path);
}

hl_status hl_writer_finish(hl_writer *writer)
{
    flush(writer);
    if (writer->error.status == HL_OK)
        hl_keep_error(&writer->error, put_in_place(writer));

    hl_status status = hl_fail_kept(&writer->error);
    hl_writer_abandon(writer);
    return status;
}

void hl_writer_abandon(hl_writer *writer)
{
    if (writer == NULL)
        return;
    if (writer->descriptor >= 0)
        close(writer->descriptor);
    if (writer->temporary.name != NULL)
        unlink(writer->temporary.name);
    hl_temporary_free(&writer->temporary);
    hl_free(writer->path);
    hl_free(writer->buffer);
    hl_free(writer);
}

void hl_writer_leave(hl_writer *writer)
{
    if (writer == NULL)
        return;
    flush(writer);
    hl_temporary_free(&writer->temporary);
    hl_writer_abandon(writer);
}
