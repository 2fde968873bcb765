/* log.c - one listener, one message at a time.
 *
 * The lowest level that anybody wants is read without a lock, so that a message
 * nobody hears costs one comparison.  The listener itself is read and called
 * under a lock: it never hears two messages at once, and after hl_log_set has
 * returned the old listener is never called again.  It must not log itself. */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define NOBODY_LISTENS (HL_LOG_WARNING + 1)

static atomic_int      lowest_wanted = NOBODY_LISTENS;
static pthread_mutex_t lock          = PTHREAD_MUTEX_INITIALIZER;
static hl_log_callback listener; /* under lock, as is its context */
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
