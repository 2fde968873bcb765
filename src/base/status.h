/* status.h - how failures are reported inside the library, and logging.
 *
 *     if (n > limit)
 *         return hl_fail(HL_LIMIT, "%s: %zu tensors, at most %zu", path, n, limit);
 *
 * hl_fail stores the message for this thread and returns its code.  Calls that
 * may fail go through HL_NEED, which returns at once; resources are released when
 * their scope ends (HL_FREED and similar macros in base/memory.h).  Where something
 * else must be undone, HL_TRY jumps to the label `done:` and needs a local
 * `hl_status status`. */
#ifndef HL_BASE_STATUS_H
#define HL_BASE_STATUS_H

#include "headlight/base.h"

/* Store a message for hl_error_message() and return `status`. */
hl_status hl_fail(hl_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Put "<prefix>: " before the stored message, unless status is HL_OK; returns it unchanged. */
hl_status hl_fail_within(hl_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The size of a message, its NUL included. */
#define HL_MESSAGE_BYTES 1024

/* The first of several failures, with its message, to be reported later or in another thread. */
typedef struct hl_kept_error {
    hl_status status; /* HL_OK: no failure is kept */
    char      message[HL_MESSAGE_BYTES];
} hl_kept_error;

/* Keeps `status` and the stored message, unless it is HL_OK or another failure is kept already. */
void hl_keep_error(hl_kept_error *kept, hl_status status);
/* Stores the kept message again and returns its status.  Where nothing is kept, returns HL_OK and
 * leaves the stored message unchanged. */
hl_status hl_fail_kept(const hl_kept_error *kept);

/* HL_BAD_ARGUMENT unless least <= value <= most; the message has `name` and all three numbers. */
hl_status hl_check_count(const char *name, int64_t value, int64_t least, int64_t most);
hl_status hl_check_number(const char *name, double value, double least, double most);

/* clang's analyzer does not look into status.c.  These macros show it that both functions return
 * the status that they are given. */
#ifdef __clang_analyzer__
#define hl_fail(status, ...) (hl_fail((status), __VA_ARGS__), (status))
#define hl_fail_within(status, ...)                                                                \
    __extension__({                                                                                \
        hl_status failed_status = (status);                                                        \
        hl_fail_within(failed_status, __VA_ARGS__);                                                \
        failed_status;                                                                             \
    })
#endif

/* Returns from the function with the status of `call` if it fails. */
#define HL_NEED(call)                                                                              \
    do {                                                                                           \
        hl_status needed_status = (call);                                                          \
        if (needed_status != HL_OK)                                                                \
            return needed_status;                                                                  \
    } while (0)

/* For functions that must undo more than their scopes release.  Needs a local `hl_status status`
 * and a label `done`. */
#define HL_TRY(call)                                                                               \
    do {                                                                                           \
        status = (call);                                                                           \
        if (status != HL_OK)                                                                       \
            goto done;                                                                             \
    } while (0)

/* The library never prints.  A program that wants its log messages sets a callback with hl_log_set
 * (headlight.h); without one, logging costs a comparison. */
void hl_log(hl_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
