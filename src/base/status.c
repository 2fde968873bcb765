/* status.c - the last error of each thread, and log messages.
 *
 * Each thread has one buffer, written by hl_fail and read by hl_error_message.
 * Nothing is allocated or freed, so reporting that memory ran out works too.
 *
 * Names inside a message often come from a file that somebody else made.  Every message therefore
 * goes through hl_printable: a tensor's name must not be able to move the cursor of the terminal
 * that shows the error. */
#include "base/status.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

#undef hl_fail /* the macro that status.h defines for the analyzer */
#undef hl_fail_within

static _Thread_local char message[HL_MESSAGE_BYTES];

/* Makes a formatted text safe to show.  `length` is the result of vsnprintf: the length that the
 * text would have if it had not been cut. */
static void tidy(char out[HL_MESSAGE_BYTES], const char *text, int length)
{
    static const char more[] = "...";

    if (length < 0)
        text = "(the error message could not be formatted)";
    size_t n_text  = strlen(text);
    size_t n_whole = n_text - hl_utf8_incomplete(text, n_text);
    size_t needed  = hl_printable(out, HL_MESSAGE_BYTES, text,
                                 length >= HL_MESSAGE_BYTES ? n_whole : n_text, HL_PRINTABLE_LINE);

    if (length < HL_MESSAGE_BYTES && needed < HL_MESSAGE_BYTES)
        return;
    size_t at = strlen(out);
    if (at > HL_MESSAGE_BYTES - sizeof more)
        at = HL_MESSAGE_BYTES - sizeof more;
    while (at > 0 && hl_utf8_is_continuation(out[at]))
        at--;
    memcpy(out + at, more, sizeof more);
}

hl_status hl_fail(hl_status status, const char *format, ...)
{
    char    text[HL_MESSAGE_BYTES]; /* a copy, because an argument may be the old message */
    va_list arguments;

    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    tidy(message, text, length);
    return status;
}

hl_status hl_fail_within(hl_status status, const char *format, ...)
{
    char    prefix[HL_MESSAGE_BYTES];
    va_list arguments;

    if (status == HL_OK)
        return status;
    va_start(arguments, format);
    vsnprintf(prefix, sizeof prefix, format, arguments);
    va_end(arguments);
    return hl_fail(status, "%s: %s", prefix, message);
}

void hl_keep_error(hl_kept_error *kept, hl_status status)
{
    if (kept->status != HL_OK || status == HL_OK)
        return;
    kept->status = status;
    memcpy(kept->message, message, sizeof message);
}

hl_status hl_fail_kept(const hl_kept_error *kept)
{
    return kept->status == HL_OK ? HL_OK : hl_fail(kept->status, "%s", kept->message);
}

hl_status hl_check_count(const char *name, int64_t value, int64_t least, int64_t most)
{
    if (value >= least && value <= most)
        return HL_OK;
    return hl_fail(HL_BAD_ARGUMENT, "%s is %lld, wanted %lld to %lld", name, (long long)value,
                   (long long)least, (long long)most);
}

hl_status hl_check_number(const char *name, double value, double least, double most)
{
    if (value >= least && value <= most)
        return HL_OK;
    return hl_fail(HL_BAD_ARGUMENT, "%s is %g, wanted %g to %g", name, value, least, most);
}

const char *hl_error_message(void)
{
    return message;
}

const char *hl_status_name(hl_status status)
{
    switch (status) {
    case HL_OK:
        return "ok";
    case HL_BAD_ARGUMENT:
        return "bad argument";
    case HL_BAD_INPUT:
        return "bad input";
    case HL_NOT_FOUND:
        return "not found";
    case HL_IO:
        return "input/output error";
    case HL_NO_MEMORY:
        return "out of memory";
    case HL_LIMIT:
        return "limit exceeded";
    case HL_UNSUPPORTED:
        return "unsupported";
    case HL_CANCELLED:
        return "cancelled";
    case HL_INTERNAL:
        return "internal error";
    case HL_BUSY:
        return "busy";
    }
    return "unknown status";
}

/* --------------------------------------------------------------------------------------- the log */

/* There is one listener, and it gets one message at a time.  The lowest level that it wants is read
 * without a lock, so that an unwanted message costs one comparison.  The listener itself is read
 * and called under a lock.  So it never gets two messages at once, and after hl_log_set has
 * returned the old listener is never called again.  A listener must not log. */

#define NOBODY_LISTENS (HL_LOG_WARNING + 1)

static atomic_int      lowest_wanted = NOBODY_LISTENS;
static pthread_mutex_t lock          = PTHREAD_MUTEX_INITIALIZER;
static hl_log_callback listener; /* protected by the lock */
static void           *listener_context;

void hl_log_set(hl_log_callback callback, void *context, hl_log_level lowest)
{
    pthread_mutex_lock(&lock);
    listener         = callback;
    listener_context = context;
    atomic_store(&lowest_wanted, callback != NULL ? (int)lowest : NOBODY_LISTENS);
    pthread_mutex_unlock(&lock);
}

void hl_log(hl_log_level level, const char *format, ...)
{
    char    text[1024], shown[2048];
    va_list arguments;

    if ((int)level < atomic_load_explicit(&lowest_wanted, memory_order_relaxed))
        return;

    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length < 0)
        return;
    hl_printable(shown, sizeof shown, text, strlen(text), HL_PRINTABLE_LINE);

    pthread_mutex_lock(&lock);
    if (listener != NULL)
        listener(listener_context, level, shown);
    pthread_mutex_unlock(&lock);
}
