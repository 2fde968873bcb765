/* status.h - how failure is reported inside the library, and what is said beside it.
 *
 *     if (n > limit)
 *         return hl_fail(HL_LIMIT, "%s: %zu tensors, at most %zu", path, n, limit);
 *
 * hl_fail stores the message for this thread and returns its code.  Calls that
 * may fail go through HL_NEED, which returns at once: what a function holds, its
 * scope releases (HL_FREED and its kin, base/memory.h).  Where something else must
 * be undone, HL_TRY goes to the label `done:` with a local `hl_status status`. */
#ifndef HL_BASE_STATUS_H
#define HL_BASE_STATUS_H

#include "headlight/base.h"

/* Store a message for hl_error_message() and return `status`. */
hl_status hl_fail(hl_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Put "<prefix>: " before the stored message, unless status is HL_OK; returns it unchanged. */
hl_status hl_fail_within(hl_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What a message may take, its end included. */
#define HL_MESSAGE_BYTES 1024

/* The first failure of several, with its message: for who hears of it later, maybe in another
 * thread. */
typedef struct hl_kept_error {
    hl_status status; /* HL_OK: there was none */
    char      message[HL_MESSAGE_BYTES];
} hl_kept_error;

/* Keeps `status` and the stored message, unless it is HL_OK or something is kept already. */
void hl_keep_error(hl_kept_error *kept, hl_status status);
/* Stores what is kept again and returns its status; HL_OK, and the old message, where it is none. */
hl_status hl_fail_kept(const hl_kept_error *kept);

/* HL_BAD_ARGUMENT, which names the thing and all three numbers, unless least <= value <= most. */
hl_status hl_check_count(const char *name, int64_t value, int64_t least, int64_t most);
hl_status hl_check_number(const char *name, double value, double least, double most);

/* clang's analyzer does not look into status.c; so that it knows as much as the
 * reader, it is told that both return the status they are given. */
#ifdef __clang_analyzer__
#define hl_fail(status, ...) (hl_fail((status), __VA_ARGS__), (status))
#define hl_fail_within(status, ...)                                                                \
    __extension__({                                                                                \
        hl_status failed_status = (status);                                                        \
        hl_fail_within(failed_status, __VA_ARGS__);                                                \
        failed_status;                                                                             \
    })
#endif

/* A call that fails ends the function with its status. */
#define HL_NEED(call)                                                                              \
    do {                                                                                           \
        hl_status needed_status = (call);                                                          \
        if (needed_status != HL_OK)                                                                \
            return needed_status;                                                                  \
    } while (0)

/* For functions that undo more than their scopes release: needs a local `hl_status status` and a label `done`. */
#define HL_TRY(call)                                                                               \
    do {                                                                                           \
        status = (call);                                                                           \
        if (status != HL_OK)                                                                       \
            goto done;                                                                             \
    } while (0)

/* The library never prints.  A program that wants to know what it does sets a callback (hl_log_set
 * of headlight.h) for messages such as these; without one, logging costs a comparison. */
void hl_log(hl_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
