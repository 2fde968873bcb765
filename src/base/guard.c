/* guard.c - a clear end when a mapped file shrinks.
 *
 * Touching a page of a mapping whose file has become shorter raises SIGBUS, and so
 * does a disk that fails to deliver the page.  There is nothing to go on with: the
 * weights are gone in the middle of a sum.  What can be done is to say which file
 * it was and to end with the status for bad input, instead of a core dump.
 *
 * A handler may call almost nothing, least of all malloc, and another thread may be
 * changing the table at that moment.  So the table has a fixed size and holds the
 * paths themselves, and an entry counts from when its address is set until it is
 * cleared.  Mappings past the last slot are not watched; the system's own message
 * is what they get. */
#include "base/guard.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MAX_MAPPINGS     = 1024,
    MAX_PATH_KEPT    = 256, /* of longer ones the end is kept */
    EXIT_OF_THE_FILE = 3,   /* "bad input", as the program's exit statuses say */
};

typedef struct watched {
    _Atomic uintptr_t begin; /* 0: free */
    size_t            n_bytes;
    char              path[MAX_PATH_KEPT];
} watched;

static watched         table[MAX_MAPPINGS];
static pthread_mutex_t table_lock =
    PTHREAD_MUTEX_INITIALIZER; /* for changes, not for the handler */
static struct sigaction before;

/* -------------------------------------------------------------- the table */

void hl_guard_add(const void *mapping, size_t n_bytes, const char *path)
{
    size_t length = strlen(path);
    size_t cut    = length < MAX_PATH_KEPT ? 0 : length - (MAX_PATH_KEPT - 1);

    pthread_mutex_lock(&table_lock);
    for (int i = 0; i < MAX_MAPPINGS; i++) {
        watched *entry = &table[i];
        if (atomic_load(&entry->begin) != 0)
            continue;
        entry->n_bytes = n_bytes;
        memcpy(entry->path, path + cut, length - cut + 1);
        atomic_store(&entry->begin, (uintptr_t)mapping);
        break;
    }
    pthread_mutex_unlock(&table_lock);
}

void hl_guard_remove(const void *mapping)
{
    pthread_mutex_lock(&table_lock);
    for (int i = 0; i < MAX_MAPPINGS; i++) {
        if (atomic_load(&table[i].begin) == (uintptr_t)mapping) {
            atomic_store(&table[i].begin, 0);
            break;
        }
    }
    pthread_mutex_unlock(&table_lock);
}

/* ------------------------------------------------------------ the handler */

static const watched *find(uintptr_t address)
{
    for (int i = 0; i < MAX_MAPPINGS; i++) {
        uintptr_t begin = atomic_load(&table[i].begin);
        if (begin != 0 && address >= begin && address - begin < table[i].n_bytes)
            return &table[i];
    }
    return NULL;
}

static void say(const char *text)
{
    /* If the message cannot be written there is nobody left to tell. */
    ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored;
}

static void on_bus_error(int signal, siginfo_t *info, void *context)
{
    const watched *entry = info->si_code > 0 ? find((uintptr_t)info->si_addr) : NULL;
    struct stat    file;
    (void)context;

    if (entry != NULL) {
        bool is_whole = stat(entry->path, &file) == 0 && (size_t)file.st_size >= entry->n_bytes;
        say("headlight: ");
        say(entry->path);
        say(is_whole ? ": could not be read (input/output error)\n" : ": shrank while in use\n");
        _exit(EXIT_OF_THE_FILE);
    }
    /* Not ours.  Whoever was here before gets it: by the same instruction again, or by
     * the same signal where somebody sent it. */
    sigaction(signal, &before, NULL);
    if (info->si_code <= 0)
        raise(signal);
}

void hl_guard_mapped_files(void)
{
    static bool      installed;
    struct sigaction action = { 0 };

    action.sa_sigaction = on_bus_error;
    action.sa_flags     = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    pthread_mutex_lock(&table_lock);
    if (!installed)
        installed = sigaction(SIGBUS, &action, &before) == 0;
    pthread_mutex_unlock(&table_lock);
}
