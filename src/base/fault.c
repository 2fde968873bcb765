/* fault.c - decides which call fails, and how. */
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int                 hl_fault_armed = HL_FAULT_NONE;
static atomic_llong n_calls;
static atomic_llong first_to_fail;
static atomic_bool  all_after;
static atomic_bool  has_fired;

void hl_fault_arm(hl_fault_kind kind, int64_t nth, bool stays)
{
    n_calls       = 0;
    first_to_fail = nth;
    all_after     = stays;
    has_fired     = false;
    __atomic_store_n(&hl_fault_armed, (int)kind, __ATOMIC_SEQ_CST);
}

int64_t hl_fault_disarm(bool *fired)
{
    __atomic_store_n(&hl_fault_armed, HL_FAULT_NONE, __ATOMIC_SEQ_CST);
    if (fired != NULL)
        *fired = has_fired;
    return n_calls;
}

bool hl_fault_is_due(hl_fault_kind kind)
{
    if (__atomic_load_n(&hl_fault_armed, __ATOMIC_SEQ_CST) != (int)kind)
        return false;

    int64_t number = atomic_fetch_add(&n_calls, 1) + 1;
    bool    due    = number == first_to_fail || (all_after && number > first_to_fail);
    if (due)
        has_fired = true;
    return due;
}

/* True if a system call must fail now; sets errno to `code`. */
static bool fails_with(int code)
{
    if (!hl_fault(HL_FAULT_CALL))
        return false;
    errno = code;
    return true;
}

/* Like fails_with, for a read or write, which may also be cut short by reducing *n_bytes. */
static bool transfer_fails(size_t *n_bytes, int code)
{
    if (hl_fault(HL_FAULT_INTERRUPTED)) {
        errno = EINTR;
        return true;
    }
    if (*n_bytes > 1 && hl_fault(HL_FAULT_SHORT))
        *n_bytes = 1;
    return fails_with(code);
}

/* ------------------------------------------------------------------------ the calls */

int hl_sys_open(const char *path, int flags, mode_t mode)
{
    return fails_with(EMFILE) ? -1 : open(path, flags, mode);
}

int hl_sys_fstat(int descriptor, struct stat *out)
{
    return fails_with(EIO) ? -1 : fstat(descriptor, out);
}

ssize_t hl_sys_read(int descriptor, void *out, size_t n_bytes)
{
    return transfer_fails(&n_bytes, EIO) ? -1 : read(descriptor, out, n_bytes);
}

ssize_t hl_sys_pread(int descriptor, void *out, size_t n_bytes, off_t at)
{
    return transfer_fails(&n_bytes, EIO) ? -1 : pread(descriptor, out, n_bytes, at);
}

ssize_t hl_sys_write(int descriptor, const void *bytes, size_t n_bytes)
{
    return transfer_fails(&n_bytes, ENOSPC) ? -1 : write(descriptor, bytes, n_bytes);
}

ssize_t hl_sys_pwrite(int descriptor, const void *bytes, size_t n_bytes, off_t at)
{
    return transfer_fails(&n_bytes, ENOSPC) ? -1 : pwrite(descriptor, bytes, n_bytes, at);
}

int hl_sys_fallocate(int descriptor, off_t n_bytes)
{
    return fails_with(ENOSPC) ? ENOSPC : posix_fallocate(descriptor, 0, n_bytes);
}

int hl_sys_fsync(int descriptor)
{
    return fails_with(EIO) ? -1 : fsync(descriptor);
}

/* The descriptor is closed even on failure, as with close itself. */
int hl_sys_close_written(int descriptor)
{
    int closed = close(descriptor);
    return fails_with(EIO) ? -1 : closed;
}

int hl_sys_rename(const char *from, const char *to)
{
    return fails_with(EACCES) ? -1 : rename(from, to);
}

int hl_sys_mkdir(const char *path, mode_t mode)
{
    return fails_with(EACCES) ? -1 : mkdir(path, mode);
}

int hl_sys_mkstemp(char *path)
{
    return fails_with(EACCES) ? -1 : mkstemp(path);
}

DIR *hl_sys_opendir(const char *path)
{
    return fails_with(EMFILE) ? NULL : opendir(path);
}

void *hl_sys_map(size_t n_bytes, int descriptor)
{
    return fails_with(ENOMEM) ? MAP_FAILED
                              : mmap(NULL, n_bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
}
