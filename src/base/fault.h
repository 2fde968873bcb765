/* fault.h - allocations and system calls that fail on a test's request.
 *
 *     hl_fault_arm(HL_FAULT_MEMORY, 17, false);    the 17th allocation fails
 *     status = ...;
 *     n_calls = hl_fault_disarm(&fired);
 *
 * The sources call the functions below instead of open, write, rename, ...  Each makes the same
 * call, but first checks whether it must fail.  They are in every build, so that the tested code
 * is the shipped code.  While nothing is armed, the check costs one load and one branch that is
 * always predicted, before an allocation or a call into the kernel.  Only a program that calls
 * hl_fault_arm can arm a fault; no environment variable and no file can.
 *
 * Counting is atomic, and a fault may hit any thread.  Which call is the 17th is deterministic
 * only with one thread. */
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
    HL_FAULT_SHORT,       /* a read or write moves only one byte */
    HL_FAULT_INTERRUPTED, /* a read or write fails with EINTR */
} hl_fault_kind;

/* Makes call number `nth` of this kind fail, counted from 1; with `stays`, all later ones too. */
void hl_fault_arm(hl_fault_kind kind, int64_t nth, bool stays);
/* Returns the number of calls of the armed kind since hl_fault_arm.  *fired, unless NULL, says
 * whether one of them failed. */
int64_t hl_fault_disarm(bool *fired);

extern int hl_fault_armed; /* a hl_fault_kind; accessed atomically */
bool       hl_fault_is_due(hl_fault_kind kind);

/* Does a call of this kind fail now? */
static inline bool hl_fault(hl_fault_kind kind)
{
    int armed = __atomic_load_n(&hl_fault_armed, __ATOMIC_RELAXED);
    return __builtin_expect(armed != HL_FAULT_NONE, 0) && hl_fault_is_due(kind);
}

/* POSIX calls that can be made to fail. */
int     hl_sys_open(const char *path, int flags, mode_t mode);
int     hl_sys_fstat(int descriptor, struct stat *out);
ssize_t hl_sys_read(int descriptor, void *out, size_t n_bytes);
ssize_t hl_sys_pread(int descriptor, void *out, size_t n_bytes, off_t at);
ssize_t hl_sys_write(int descriptor, const void *bytes, size_t n_bytes);
ssize_t hl_sys_pwrite(int descriptor, const void *bytes, size_t n_bytes, off_t at);
int     hl_sys_fallocate(int descriptor, off_t n_bytes); /* returns the error number */
int     hl_sys_fsync(int descriptor);
int     hl_sys_close_written(int descriptor); /* a close that may report a lost write */
int     hl_sys_rename(const char *from, const char *to);
int     hl_sys_mkdir(const char *path, mode_t mode);
int     hl_sys_mkstemp(char *path);
DIR    *hl_sys_opendir(const char *path);
/* A private mapping for reading, or MAP_FAILED. */
void *hl_sys_map(size_t n_bytes, int descriptor);

#endif
