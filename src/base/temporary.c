/* temporary.c - locked temporary names, and the removal of those whose process is gone.
 *
 * Two processes can meet in one folder.  One creates a name and then locks it; the other finds the
 * name, locks it, and removes it.  If the second is faster, the first finds its name locked or gone
 * after its own lock, and takes another name:
 *
 *     writer     create (must be new)  ->  lock  ->  is it still what the name leads to?
 *     remover    open  ->  lock  ->  is it still what the name leads to?  ->  remove
 *
 * Both hold the lock for what follows, so neither can remove under the other. */
#include "base/temporary.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/memory.h"
#include "base/status.h"

#define MARK      ".headlight.tmp"
#define N_LETTERS 6
#define NAME_KEPT 200 /* bytes of the target's name; names end at 255 bytes */
#define RETRIES   100

/* ------------------------------------------------------------------------- names */

/* The length of the directory part of a path, its last slash included. */
static size_t directory_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? (size_t)(slash - path) + 1 : 0;
}

/* Letters that another process or thread is unlikely to pick now. */
static void random_letters(char out[N_LETTERS + 1])
{
    static atomic_uint counter;
    struct timespec    now = { 0 };

    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t mix = (uint64_t)now.tv_nsec ^ ((uint64_t)getpid() << 32);
    mix += 0x9e3779b97f4a7c15U * (atomic_fetch_add(&counter, 1) + 1U);
    mix ^= mix >> 29;
    mix *= 0xbf58476d1ce4e5b9U; /* a step of splitmix64 */
    mix ^= mix >> 32;
    for (int i = 0; i < N_LETTERS; i++, mix /= 26)
        out[i] = (char)('a' + mix % 26);
    out[N_LETTERS] = '\0';
}

/* Is this a name of ours: .NAME.XXXXXX.headlight.tmp? */
static bool is_ours(const char *name)
{
    size_t      length = strlen(name);
    size_t      ending = 1 + N_LETTERS + strlen(MARK);
    const char *at     = name + (length > ending ? length - ending : 0);

    return name[0] == '.' && length > ending + 1 && *at == '.' &&
           strspn(at + 1, "abcdefghijklmnopqrstuvwxyz") == N_LETTERS &&
           strcmp(at + 1 + N_LETTERS, MARK) == 0;
}

/* ------------------------------------------------------------------------- locks */

/* Do the open file and the name lead to the same thing? */
static bool leads_to(int folder, const char *name, int descriptor)
{
    struct stat open_one, named;

    return fstat(descriptor, &open_one) == 0 &&
           fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino;
}

/* Locks what was just created.  false: somebody took it for a leftover, so another name is needed.
 * On a file system without locks it stays unlocked, and nobody takes it for one. */
static bool lock_new(const char *name, int descriptor)
{
    if (flock(descriptor, LOCK_EX | LOCK_NB) == 0)
        return leads_to(AT_FDCWD, name, descriptor);
    return errno != EWOULDBLOCK;
}

/* --------------------------------------------------------------------- leftovers */

static void remove_files(int folder)
{
    int  copy      = dup(folder); /* closedir closes it */
    DIR *directory = copy >= 0 ? fdopendir(copy) : NULL;

    if (directory == NULL) {
        if (copy >= 0)
            close(copy);
        return;
    }
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        (void)unlinkat(folder, entry->d_name, 0);
    closedir(directory);
}

/* Removes a name of ours if its process is gone. */
static void remove_leftover(int folder, const char *name)
{
    struct stat about;

    if (fstatat(folder, name, &about, AT_SYMLINK_NOFOLLOW) != 0 || about.st_uid != geteuid() ||
        (!S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode)))
        return;
    int descriptor = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0)
        return;
    if (flock(descriptor, LOCK_EX | LOCK_NB) == 0 && leads_to(folder, name, descriptor)) {
        if (S_ISDIR(about.st_mode))
            remove_files(descriptor);
        (void)unlinkat(folder, name, S_ISDIR(about.st_mode) ? AT_REMOVEDIR : 0);
    }
    close(descriptor);
}

/* What killed processes left in the folder of `path`.  Whatever fails is left as it is: it is
 * tidying, not the caller's business. */
static void remove_leftovers(const char *path)
{
    size_t length = directory_length(path);
    char  *folder = NULL;

    if (hl_strndup(&folder, length > 0 ? path : ".", length > 0 ? length : 1) != HL_OK)
        return;
    DIR *directory = opendir(folder);
    if (directory != NULL) {
        for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
            if (is_ours(entry->d_name))
                remove_leftover(dirfd(directory), entry->d_name);
        }
        closedir(directory);
    }
    hl_free(folder);
}

/* ---------------------------------------------------------------------- creating */

/* Not mkstemp: its files are private (0600), and widening them needs the umask, which cannot be
 * read without changing it for all threads.  open() and mkdir() apply it by themselves.  A
 * descriptor of what was created, or -1. */
static int create(const char *name, bool is_folder)
{
    if (!is_folder)
        return hl_sys_open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (hl_sys_mkdir(name, 0777) != 0)
        return -1;
    int descriptor = hl_sys_open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (descriptor < 0) {
        int code = errno;
        (void)rmdir(name);
        errno = code;
    }
    return descriptor;
}

static hl_status make_temporary(hl_temporary *out, const char *path, bool is_folder)
{
    size_t directory = directory_length(path);
    size_t room      = strlen(path) + N_LETTERS + strlen(MARK) + 3; /* dots and the final 0 */
    char  *name      = NULL;
    int    code      = EEXIST;
    char   letters[N_LETTERS + 1];

    *out             = HL_NO_TEMPORARY;
    hl_status status = HL_ALLOC(&name, room);
    if (status != HL_OK)
        return status;
    remove_leftovers(path);
    for (int i = 0; i < RETRIES && code == EEXIST; i++) {
        random_letters(letters);
        snprintf(name, room, "%.*s.%.*s.%s" MARK, (int)directory, path, NAME_KEPT, path + directory,
                 letters);
        int descriptor = create(name, is_folder);
        if (descriptor >= 0 && lock_new(name, descriptor)) {
            *out = (hl_temporary){ name, descriptor };
            return HL_OK;
        }
        code = descriptor >= 0 ? EEXIST : errno;
        if (descriptor >= 0)
            close(descriptor);
    }
    hl_free(name);
    return hl_fail(code == ENOENT ? HL_NOT_FOUND : HL_IO, "%s: cannot create a %s beside it: %s",
                   path, is_folder ? "folder" : "file", strerror(code));
}

hl_status hl_temporary_file(hl_temporary *out, int *descriptor, const char *path)
{
    hl_status status = make_temporary(out, path, false);

    *descriptor = -1;
    if (status != HL_OK)
        return status;
    /* Closing the file that was written tells of lost bytes, and comes before the rename; the lock
     * has to last until after it. */
    *descriptor = fcntl(out->lock, F_DUPFD_CLOEXEC, 0);
    if (*descriptor < 0) {
        status = hl_fail(HL_IO, "%s: %s", path, strerror(errno));
        hl_temporary_remove(out);
    }
    return status;
}

hl_status hl_temporary_folder(hl_temporary *out, const char *path)
{
    return make_temporary(out, path, true);
}

void hl_temporary_remove(hl_temporary *temporary)
{
    struct stat about;

    if (temporary->name != NULL && temporary->lock >= 0 && fstat(temporary->lock, &about) == 0) {
        if (S_ISDIR(about.st_mode)) {
            remove_files(temporary->lock);
            (void)rmdir(temporary->name);
        } else {
            (void)unlink(temporary->name);
        }
    }
    hl_temporary_free(temporary);
}

void hl_temporary_free(hl_temporary *temporary)
{
    if (temporary->lock >= 0)
        close(temporary->lock);
    hl_free(temporary->name);
    *temporary = HL_NO_TEMPORARY;
}
