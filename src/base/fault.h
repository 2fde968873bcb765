/* fault.h - memory and system calls that fail when a test says so.
 *
 *     hl_fault_arm(HL_FAULT_MEMORY, 17, false);    the 17th allocation fails
 *     status = ...;
 *     n_calls = hl_fault_disarm(&fired);
 *
 * The sources call what is below instead of open, write, rename, ...: the same calls, which
 * first ask whether it is their turn to fail.  They are in every build, so that what is
 * tested is what is shipped: while nothing is armed the question is one load and one
 * branch that never goes the other way, before an allocation or a call into the kernel.
 * Nothing in the environment or in a file arms them: only a program that calls hl_fault_arm.
 *
 * Counting is atomic, and a fault may hit any thread; which call is the 17th is certain
 * only on one. */
#ifndef HL_BASE_FAULT_H
#define HL_BASE_FAULT_H

#include <dirent.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "headlight/base.h"

typedef enum hl_fault_kind {
    HL_FAULT_NONE,
    HL_FAULT_MEMORY,      /* an allocation finds no memory */
    HL_FAULT_CALL,        /* a system call fails, with an errno that fits it */
    HL_FAULT_SHORT,       /* a read or write moves one byte, of however many */
    HL_FAULT_INTERRUPTED, /* a read or write fails with EINTR */
} hl_fault_kind;

/* Call number `nth` of this kind, from 1, fails; with `stays` all after it do, too. */
void hl_fault_arm(hl_fault_kind kind, int64_t nth, bool stays);
/* How many calls of the kind there were since; *fired: did one fail?  NULL: not asked. */
int64_t hl_fault_disarm(bool *fired);

extern int hl_fault_armed; /* a hl_fault_kind, read and written as an atomic one */
bool       hl_fault_is_due(hl_fault_kind kind);

/* Does a call of this kind fail now? */
static inline bool hl_fault(hl_fault_kind kind)
{
    int armed = __atomic_load_n(&hl_fault_armed, __ATOMIC_RELAXED);
    return __builtin_expect(armed != HL_FAULT_NONE, 0) && hl_fault_is_due(kind);
}

/* The calls of POSIX, each under its own name. */
int     hl_sys_open(const char *path, int flags, mode_t mode);
int     hl_sys_fstat(int descriptor, struct stat *out);
ssize_t hl_sys_read(int descriptor, void *out, size_t n_bytes);
ssize_t hl_sys_pread(int descriptor, void *out, size_t n_bytes, off_t at);
ssize_t hl_sys_write(int descriptor, const void *bytes, size_t n_bytes);
ssize_t hl_sys_pwrite(int descriptor, const void *bytes, size_t n_bytes, off_t at);
int     hl_sys_fallocate(int descriptor, off_t n_bytes); /* the error, as posix_fallocate */
int     hl_sys_fsync(int descriptor);
int     hl_sys_close_written(int descriptor); /* a close that may tell of a lost write */
int     hl_sys_rename(const char *from, const char *to);
int     hl_sys_mkdir(const char *path, mode_t mode);
int     hl_sys_mkstemp(char *path);
DIR    *hl_sys_opendir(const char *path);
/* A private mapping for reading, or MAP_FAILED. */
void *hl_sys_map(size_t n_bytes, int descriptor);

#endif
