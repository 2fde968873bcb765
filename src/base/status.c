/* status.c - the last error of each thread.
 *
 * One buffer a thread, written by hl_fail and read by hl_error_message.  There
 * is nothing to allocate and nothing to free, so reporting that memory ran out
 * works too.
 *
 * Names inside a message often come from a file that somebody else made.
 * Control characters are therefore replaced: a tensor's name must not be able
 * to move the cursor of the terminal that shows the error. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#undef hl_fail /* what the analyzer sees elsewhere */
#undef hl_fail_within

static _Thread_local char message[HL_MESSAGE_BYTES];

/* Make a formatted text fit to be shown.  `length` is what vsnprintf returned:
 * what the text would measure had it not been cut. */
static void tidy(char *text, int length)
{
    if (length < 0)
        strcpy(text, "(the error message could not be formatted)");
    if (length >= HL_MESSAGE_BYTES)
        strcpy(text + HL_MESSAGE_BYTES - sizeof "...", "...");
    for (char *at = text; *at != '\0'; at++) {
        unsigned char byte = (unsigned char)*at;
        if (byte < 0x20 || byte == 0x7f)
            *at = '?';
    }
}

hl_status hl_fail(hl_status status, const char *format, ...)
{
    char    text[HL_MESSAGE_BYTES]; /* an argument may be the old message itself */
    va_list arguments;

    va_start(arguments, format);
    tidy(text, vsnprintf(text, sizeof text, format, arguments));
    va_end(arguments);
    memcpy(message, text, sizeof text);
    return status;
}

hl_status hl_fail_within(hl_status status, const char *format, ...)
{
    char    prefix[HL_MESSAGE_BYTES];
    va_list arguments;

    va_start(arguments, format);
    tidy(prefix, vsnprintf(prefix, sizeof prefix, format, arguments));
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
