/* file.c - reading by mapping, writing by renaming, of files and of whole folders.
 *
 * Reading.  A file is mapped, never read into memory: weights of many gigabytes
 * cost address space only, and pages come in when touched.  The price: a file
 * that somebody truncates while it is mapped raises SIGBUS on the missing pages.
 *
 * Writing.  DIR/NAME is written under a temporary name and renamed when every byte has reached the
 * disk.  The order of the steps makes this safe across a power cut:
 *
 *     write  ->  fsync(file)  ->  rename  ->  fsync(directory)
 *
 * Without the first fsync the new name could refer to an empty file; without
 * the second the rename itself could be lost.  Folders work the same way: every
 * file reaches the disk before it is renamed, and all files before the folder is. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/memory.h"
#include "base/status.h"

/* --------------------------------------------------------------------------------------- names */

hl_status hl_path_join(char **out, const char *folder, const char *name)
{
    size_t room = strlen(folder) + strlen(name) + 2;

    HL_NEED(HL_ALLOC(out, room));
    snprintf(*out, room, "%s/%s", folder, name);
    return HL_OK;
}

hl_status hl_path_folder(char **out, const char *path)
{
    const char *slash = strrchr(path, '/');

    if (slash == NULL)
        return hl_strdup(out, ".");
    return hl_strndup(out, path, slash == path ? 1 : (size_t)(slash - path));
}

const char *hl_path_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

bool hl_path_exists(const char *path)
{
    struct stat about;

    return stat(path, &about) == 0 || errno != ENOENT;
}

bool hl_path_is_folder(const char *path)
{
    struct stat about;

    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

bool hl_ends_with(const char *text, const char *ending)
{
    size_t n_text = strlen(text), n_ending = strlen(ending);

    return n_text >= n_ending && strcmp(text + n_text - n_ending, ending) == 0;
}

/* The length of the directory part of a path, its last slash included. */
static size_t directory_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? (size_t)(slash - path) + 1 : 0;
}

/* ------------------------------------------------------------------ a mapped file that shrinks */

/* Touching a page of a mapping whose file has become shorter raises SIGBUS, and so
 * does a disk that fails to deliver the page.  The process cannot continue: the
 * weights are missing in the middle of a sum.  So the handler names the file and
 * exits with the status for bad input, instead of a core dump.
 * hl_guard_mapped_files (headlight.h) installs the handler, if the program wants it.
 *
 * A handler may call almost nothing, least of all malloc, and another thread may be
 * changing the table at that moment.  So the table has a fixed size and stores the
 * paths themselves, and an entry is valid while its address is set.  Mappings past
 * the last slot are not watched; for them the system prints its own message. */

enum {
    MAX_MAPPINGS     = 1024,
    MAX_PATH_KEPT    = 256, /* largest number of bytes kept; of a longer path, the end is kept */
    EXIT_OF_THE_FILE = 3,   /* the program's exit status for bad input */
};

typedef struct watched {
    _Atomic uintptr_t begin; /* 0: the entry is free */
    size_t            n_bytes;
    char              path[MAX_PATH_KEPT];
} watched;

static watched         mappings[MAX_MAPPINGS];
static pthread_mutex_t watched_lock =
    PTHREAD_MUTEX_INITIALIZER; /* held for changes; the handler does not take it */
static struct sigaction before_us;

static void watch(const void *mapping, size_t n_bytes, const char *path)
{
    size_t length = strlen(path);
    size_t cut    = length < MAX_PATH_KEPT ? 0 : length - (MAX_PATH_KEPT - 1);

    pthread_mutex_lock(&watched_lock);
    for (int i = 0; i < MAX_MAPPINGS; i++) {
        watched *entry = &mappings[i];
        if (atomic_load(&entry->begin) != 0)
            continue;
        entry->n_bytes = n_bytes;
        memcpy(entry->path, path + cut, length - cut + 1);
        atomic_store(&entry->begin, (uintptr_t)mapping);
        break;
    }
    pthread_mutex_unlock(&watched_lock);
}

static void unwatch(const void *mapping)
{
    pthread_mutex_lock(&watched_lock);
    for (int i = 0; i < MAX_MAPPINGS; i++) {
        if (atomic_load(&mappings[i].begin) == (uintptr_t)mapping) {
            atomic_store(&mappings[i].begin, 0);
            break;
        }
    }
    pthread_mutex_unlock(&watched_lock);
}

static const watched *find_watched(uintptr_t address)
{
    for (int i = 0; i < MAX_MAPPINGS; i++) {
        uintptr_t begin = atomic_load(&mappings[i].begin);
        if (begin != 0 && address >= begin && address - begin < mappings[i].n_bytes)
            return &mappings[i];
    }
    return NULL;
}

static void say(const char *text)
{
    /* A failed write cannot be reported: the process is about to exit. */
    ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored;
}

static void on_bus_error(int signal, siginfo_t *info, void *context)
{
    const watched *entry = info->si_code > 0 ? find_watched((uintptr_t)info->si_addr) : NULL;
    struct stat    file;
    (void)context;

    if (entry != NULL) {
        bool is_whole = stat(entry->path, &file) == 0 && (size_t)file.st_size >= entry->n_bytes;
        say("headlight: ");
        say(entry->path);
        say(is_whole ? ": could not be read (input/output error)\n" : ": shrank while in use\n");
        _exit(EXIT_OF_THE_FILE);
    }
    /* The address is not in one of our mappings, so the previous handler gets the signal: the same
     * instruction faults again, or a signal that was sent is raised again. */
    sigaction(signal, &before_us, NULL);
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
    pthread_mutex_lock(&watched_lock);
    if (!installed)
        installed = sigaction(SIGBUS, &action, &before_us) == 0;
    pthread_mutex_unlock(&watched_lock);
}

/* ------------------------------------------------------------------------------------- reading */

/* The size of an open file; fails unless it is a regular file. */
static hl_status regular_size(size_t *out, int descriptor, const char *path)
{
    struct stat info;

    if (hl_sys_fstat(descriptor, &info) != 0)
        return hl_fail(HL_IO, "%s: %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode))
        return hl_fail(HL_BAD_INPUT, "%s: is a directory, wanted a file", path);
    if (!S_ISREG(info.st_mode))
        return hl_fail(HL_BAD_INPUT, "%s: not a regular file, cannot be mapped", path);
    if ((uintmax_t)info.st_size > SIZE_MAX)
        return hl_fail(HL_LIMIT, "%s: %jd bytes, too large to map on this machine", path,
                       (intmax_t)info.st_size);
    *out = (size_t)info.st_size;
    return HL_OK;
}

static hl_status map_descriptor(hl_file *out, int descriptor, const char *path)
{
    size_t n_bytes = 0;
    HL_NEED(regular_size(&n_bytes, descriptor, path));

    if (n_bytes == 0) { /* mmap refuses a length of 0 */
        *out = (hl_file){ .bytes = (const uint8_t *)"" };
        return HL_OK;
    }
    void *mapping = hl_sys_map(n_bytes, descriptor);
    if (mapping == MAP_FAILED)
        return hl_fail(errno == ENOMEM ? HL_NO_MEMORY : HL_IO, "%s: mapping %zu bytes: %s", path,
                       n_bytes, strerror(errno));
    watch(mapping, n_bytes, path);
    *out = (hl_file){ .bytes = mapping, .n_bytes = n_bytes, .mapping = mapping };
    return HL_OK;
}

hl_status hl_file_map(hl_file *out, const char *path)
{
    *out = (hl_file){ 0 };

    /* O_NONBLOCK: opening a pipe that nobody writes to must not wait. */
    int descriptor = hl_sys_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (descriptor < 0)
        return hl_fail(errno == ENOENT ? HL_NOT_FOUND : HL_IO, "%s: %s", path, strerror(errno));

    hl_status status = map_descriptor(out, descriptor, path);
    close(descriptor); /* the mapping stays */
    return status;
}

void hl_file_unmap(hl_file *file)
{
    if (file->mapping != NULL) {
        unwatch(file->mapping);
        munmap(file->mapping, file->n_bytes);
    }
    *file = (hl_file){ 0 };
}

/* ----------------------------------------------------------------------------- temporary names */

/* A temporary file or folder is named DIR/.NAME.XXXXXX.headlight.tmp, with six random letters.  Its
 * process locks it (flock) until it is in place.  A killed process leaves the name behind but not
 * the lock, and the next process that writes to the same folder removes such names.  Process ids
 * are not used, because they are reused and differ between containers.  Names that are locked,
 * belong to another user, or have another form are never touched, nor is anything on a file system
 * without locks.
 *
 * Two processes can meet in one folder.  One creates a name and then locks it; the other finds the
 * name, locks it, and removes it.  If the second is faster, the first finds its name locked or
 * removed after its own lock, and takes another name:
 *
 *     writer     create (must be new)  ->  lock  ->  does the name still refer to it?
 *     remover    open  ->  lock  ->  does the name still refer to it?  ->  remove
 *
 * Each holds the lock during its next steps, so neither can remove a file that the other uses. */

typedef struct locked_name {
    char *name; /* NULL: no file or folder */
    int   lock; /* a descriptor that holds the lock, or -1 */
} locked_name;

#define NO_TEMPORARY ((locked_name){ .name = NULL, .lock = -1 })

#define MARK      ".headlight.tmp"
#define N_LETTERS 6
#define NAME_KEPT 200 /* bytes kept of the target's name; file names have at most 255 */
#define RETRIES   100

/* Makes letters that another process or thread is unlikely to choose at the same time. */
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

/* True for a temporary name: .NAME.XXXXXX.headlight.tmp. */
static bool is_ours(const char *name)
{
    size_t      length = strlen(name);
    size_t      ending = 1 + N_LETTERS + strlen(MARK);
    const char *at     = name + (length > ending ? length - ending : 0);

    return name[0] == '.' && length > ending + 1 && *at == '.' &&
           strspn(at + 1, "abcdefghijklmnopqrstuvwxyz") == N_LETTERS &&
           strcmp(at + 1 + N_LETTERS, MARK) == 0;
}

/* True if the name still refers to the open file. */
static bool leads_to(int folder, const char *name, int descriptor)
{
    struct stat open_one, named;

    return fstat(descriptor, &open_one) == 0 &&
           fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino;
}

/* Locks a name that was just created.  Returns false if another process took it for a leftover: the
 * caller must choose a new name.  On a file system without locks the name stays unlocked, and no
 * process removes it. */
static bool lock_new(const char *name, int descriptor)
{
    if (flock(descriptor, LOCK_EX | LOCK_NB) == 0)
        return leads_to(AT_FDCWD, name, descriptor);
    return errno != EWOULDBLOCK;
}

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

/* Removes a temporary name if the process that made it has ended. */
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

/* Removes what killed processes left in the folder of `path`.  Failures are ignored, because the
 * caller did not ask for this cleanup. */
static void remove_leftovers(const char *path)
{
    HL_FREED char *folder    = NULL;
    DIR           *directory = hl_path_folder(&folder, path) == HL_OK ? opendir(folder) : NULL;

    if (directory == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (is_ours(entry->d_name))
            remove_leftover(dirfd(directory), entry->d_name);
    }
    closedir(directory);
}

/* Creates a file or folder and returns its descriptor, or -1.  It does not use mkstemp, whose files
 * are private (0600): widening them needs the umask, which cannot be read without changing it for
 * all threads.  open() and mkdir() apply the umask by themselves. */
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

/* Makes an empty file or folder beside `path`; its mode follows the umask. */
static hl_status make_temporary(locked_name *out, const char *path, bool is_folder)
{
    size_t         directory = directory_length(path);
    size_t         room      = strlen(path) + N_LETTERS + strlen(MARK) + 3; /* dots and the NUL */
    HL_FREED char *name      = NULL;
    int            code      = EEXIST;
    char           letters[N_LETTERS + 1];

    *out = NO_TEMPORARY;
    HL_NEED(HL_ALLOC(&name, room));
    remove_leftovers(path);
    for (int i = 0; i < RETRIES && code == EEXIST; i++) {
        random_letters(letters);
        snprintf(name, room, "%.*s.%.*s.%s" MARK, (int)directory, path, NAME_KEPT, path + directory,
                 letters);
        int descriptor = create(name, is_folder);
        if (descriptor >= 0 && lock_new(name, descriptor)) {
            *out = (locked_name){ hl_taken(&name), descriptor };
            return HL_OK;
        }
        code = descriptor >= 0 ? EEXIST : errno;
        if (descriptor >= 0)
            close(descriptor);
    }
    return hl_fail(code == ENOENT ? HL_NOT_FOUND : HL_IO, "%s: cannot create a %s beside it: %s",
                   path, is_folder ? "folder" : "file", strerror(code));
}

/* Releases the lock and the memory; the file or folder keeps its current name. */
static void free_temporary(locked_name *temporary)
{
    if (temporary->lock >= 0)
        close(temporary->lock);
    hl_free(temporary->name);
    *temporary = NO_TEMPORARY;
}

/* Removes the file, or the folder and the files in it, if it still exists, and frees the rest. */
static void remove_temporary(locked_name *temporary)
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
    free_temporary(temporary);
}

/* A new file beside `path`, open for writing. */
static hl_status temporary_file(locked_name *out, int *descriptor, const char *path)
{
    *descriptor = -1;
    HL_NEED(make_temporary(out, path, false));
    /* Closing the written file reports lost bytes, so it must happen before the rename.  The lock
     * must last until after the rename, so it needs a descriptor of its own. */
    *descriptor = fcntl(out->lock, F_DUPFD_CLOEXEC, 0);
    if (*descriptor >= 0)
        return HL_OK;
    hl_fail(HL_IO, "%s: %s", path, strerror(errno));
    remove_temporary(out);
    return HL_IO;
}

/* ------------------------------------------------------------------------------------- writing */

#define BUFFER_BYTES ((size_t)1 << 18)

struct hl_writer {
    int           descriptor;
    char         *path;
    locked_name   temporary; /* the file being written; unlocked if the caller named it */
    uint8_t      *buffer;    /* (BUFFER_BYTES) */
    size_t        n_buffered;
    hl_kept_error error;
};

/* Refuses devices and pipes, which a rename would replace by a plain file. */
static hl_status check_target(const char *path)
{
    struct stat info;

    if (path[directory_length(path)] == '\0')
        return hl_fail(HL_BAD_ARGUMENT, "'%s': not the name of a file", path);
    if (stat(path, &info) != 0)
        return HL_OK; /* the target need not exist; creating it reports other errors */
    if (S_ISDIR(info.st_mode))
        return hl_fail(HL_BAD_ARGUMENT, "%s: is a directory, wanted a file", path);
    if (!S_ISREG(info.st_mode))
        return hl_fail(HL_BAD_ARGUMENT, "%s: not a regular file; it is not overwritten", path);
    return HL_OK;
}

static hl_status new_writer(hl_writer **out, const char *path)
{
    HL_CLOSED(hl_writer_abandon) hl_writer *writer = NULL;

    *out = NULL;
    HL_NEED(check_target(path));
    HL_NEED(HL_ALLOC_ZEROED(&writer, 1));
    writer->descriptor = -1;
    writer->temporary  = NO_TEMPORARY;
    HL_NEED(hl_strdup(&writer->path, path));
    HL_NEED(HL_ALLOC(&writer->buffer, BUFFER_BYTES));
    *out = hl_taken(&writer);
    return HL_OK;
}

hl_status hl_writer_open(hl_writer **out, const char *path)
{
    HL_CLOSED(hl_writer_abandon) hl_writer *writer = NULL;

    *out = NULL;
    HL_NEED(new_writer(&writer, path));
    HL_NEED(temporary_file(&writer->temporary, &writer->descriptor, path));
    *out = hl_taken(&writer);
    return HL_OK;
}

hl_status hl_writer_open_as(hl_writer **out, const char *path, const char *temporary, bool go_on)
{
    int                                     flags  = go_on ? 0 : O_CREAT | O_TRUNC;
    HL_CLOSED(hl_writer_abandon) hl_writer *writer = NULL;
    HL_FREED char                          *name   = NULL;

    *out = NULL;
    HL_NEED(check_target(temporary));
    HL_NEED(new_writer(&writer, path));
    HL_NEED(hl_strdup(&name, temporary));
    writer->descriptor = hl_sys_open(temporary, O_RDWR | O_CLOEXEC | flags, 0666);
    if (writer->descriptor < 0)
        return hl_fail(errno == ENOENT ? HL_NOT_FOUND : HL_IO, "%s: %s", temporary,
                       strerror(errno));
    writer->temporary.name = hl_taken(&name);
    *out                   = hl_taken(&writer);
    return HL_OK;
}

/* Writes to the file without the buffer: at `offset`, or after the last write (-1).  It loops,
 * because the system may take fewer bytes than it is given. */
static void write_through(hl_writer *writer, const uint8_t *bytes, size_t n_bytes, off_t offset)
{
    while (n_bytes > 0 && writer->error.status == HL_OK) {
        ssize_t n_written = offset < 0 ? hl_sys_write(writer->descriptor, bytes, n_bytes)
                                       : hl_sys_pwrite(writer->descriptor, bytes, n_bytes, offset);
        if (n_written < 0 && errno == EINTR)
            continue;
        if (n_written < 0) {
            hl_keep_error(&writer->error,
                          hl_fail(HL_IO, "%s: writing: %s", writer->path, strerror(errno)));
            return;
        }
        bytes += n_written;
        n_bytes -= (size_t)n_written;
        offset += offset < 0 ? 0 : n_written;
    }
}

static void flush(hl_writer *writer)
{
    write_through(writer, writer->buffer, writer->n_buffered, -1);
    writer->n_buffered = 0;
}

void hl_writer_write(hl_writer *writer, const void *bytes, size_t n_bytes)
{
    if (n_bytes == 0)
        return;
    if (n_bytes > BUFFER_BYTES - writer->n_buffered)
        flush(writer);
    if (n_bytes >= BUFFER_BYTES) {
        write_through(writer, bytes, n_bytes, -1);
        return;
    }
    memcpy(writer->buffer + writer->n_buffered, bytes, n_bytes);
    writer->n_buffered += n_bytes;
}

void hl_writer_reserve(hl_writer *writer, size_t n_bytes)
{
    hl_status status = HL_OK;
    int       code   = 0;

    flush(writer);
    if (writer->error.status != HL_OK || n_bytes == 0)
        return;
    if (n_bytes > INT64_MAX)
        status =
            hl_fail(HL_LIMIT, "%s: %zu bytes are more than a file can have", writer->path, n_bytes);
    else if ((code = hl_sys_fallocate(writer->descriptor, (off_t)n_bytes)) != 0)
        status =
            hl_fail(HL_IO, "%s: no room for %zu bytes: %s", writer->path, n_bytes, strerror(code));
    hl_keep_error(&writer->error, status);
}

void hl_writer_write_at(hl_writer *writer, size_t offset, const void *bytes, size_t n_bytes)
{
    flush(writer);
    write_through(writer, bytes, n_bytes, (off_t)offset);
}

hl_status hl_writer_check(const hl_writer *writer)
{
    return hl_fail_kept(&writer->error);
}

hl_status hl_writer_sync(hl_writer *writer)
{
    flush(writer);
    if (writer->error.status == HL_OK && hl_sys_fsync(writer->descriptor) != 0)
        hl_keep_error(&writer->error,
                      hl_fail(HL_IO, "%s: syncing: %s", writer->path, strerror(errno)));
    return hl_writer_check(writer);
}

/* Syncs the names in a folder to the disk; returns 0 or an error number.  Some file systems cannot
 * sync a folder (EINVAL), and some folders may be written but not opened; neither is an error. */
static int sync_folder(const char *folder)
{
    int descriptor = hl_sys_open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);

    if (descriptor < 0)
        return 0;
    int code = hl_sys_fsync(descriptor) != 0 && errno != EINVAL ? errno : 0;
    close(descriptor);
    return code;
}

/* Does all steps after the last write.  Afterwards the temporary name no longer exists, or the
 * writer has an error. */
static hl_status put_in_place(hl_writer *writer)
{
    HL_FREED char *folder = NULL;

    if (hl_sys_fsync(writer->descriptor) != 0)
        return hl_fail(HL_IO, "%s: syncing: %s", writer->path, strerror(errno));
    int closed         = hl_sys_close_written(writer->descriptor);
    writer->descriptor = -1;
    if (closed != 0)
        return hl_fail(HL_IO, "%s: closing: %s", writer->path, strerror(errno));
    if (hl_sys_rename(writer->temporary.name, writer->path) != 0)
        return hl_fail(HL_IO, "%s: renaming into place: %s", writer->path, strerror(errno));
    free_temporary(&writer->temporary);
    HL_NEED(hl_path_folder(&folder, writer->path));
    int code = sync_folder(folder);
    if (code != 0)
        return hl_fail(HL_IO, "%s: syncing its directory: %s", writer->path, strerror(code));
    return HL_OK;
}

hl_status hl_writer_finish(hl_writer *writer)
{
    flush(writer);
    if (writer->error.status == HL_OK)
        hl_keep_error(&writer->error, put_in_place(writer));

    hl_status status = hl_fail_kept(&writer->error);
    hl_writer_abandon(writer);
    return status;
}

void hl_writer_abandon(hl_writer *writer)
{
    if (writer == NULL)
        return;
    if (writer->descriptor >= 0)
        close(writer->descriptor);
    if (writer->temporary.name != NULL)
        unlink(writer->temporary.name);
    free_temporary(&writer->temporary);
    hl_free(writer->path);
    hl_free(writer->buffer);
    hl_free(writer);
}

void hl_writer_leave(hl_writer *writer)
{
    if (writer == NULL)
        return;
    flush(writer);
    free_temporary(&writer->temporary);
    hl_writer_abandon(writer);
}

hl_status hl_file_copy(const char *to, const char *from)
{
    HL_SCOPED(hl_file_unmap) hl_file file   = { 0 };
    hl_writer                       *writer = NULL;

    HL_NEED(hl_file_map(&file, from));
    HL_NEED(hl_writer_open(&writer, to));
    hl_writer_write(writer, file.bytes, file.n_bytes);
    return hl_writer_finish(writer);
}

/* ------------------------------------------------------------------------------------- folders */

struct hl_folder {
    char       *path;
    locked_name temporary; /* the folder being written */
};

hl_status hl_folder_check(const char *path)
{
    struct stat about;

    if (path[0] == '\0')
        return hl_fail(HL_BAD_ARGUMENT, "the name of the folder to write is empty");
    if (lstat(path, &about) == 0)
        return hl_fail(HL_BAD_ARGUMENT, "%s: exists already; remove it or choose another name",
                       path);
    return HL_OK;
}

hl_status hl_folder_create(hl_folder **out, const char *path)
{
    size_t                                  length = strlen(path);
    HL_CLOSED(hl_folder_abandon) hl_folder *folder = NULL;

    *out = NULL;
    while (length > 1 && path[length - 1] == '/')
        length--;
    HL_NEED(hl_folder_check(path));
    HL_NEED(HL_ALLOC_ZEROED(&folder, 1));
    folder->temporary = NO_TEMPORARY;
    HL_NEED(hl_strndup(&folder->path, path, length));
    HL_NEED(make_temporary(&folder->temporary, folder->path, true));
    *out = hl_taken(&folder);
    return HL_OK;
}

hl_status hl_folder_join(char **out, const hl_folder *folder, const char *name)
{
    return hl_path_join(out, folder->temporary.name, name);
}

hl_status hl_folder_finish(hl_folder **folder)
{
    hl_folder *f = *folder;

    (void)sync_folder(f->temporary.name); /* the files are on the disk already, but their names may
                                           * not be */
    if (hl_sys_rename(f->temporary.name, f->path) != 0)
        return hl_fail(HL_IO, "%s: renaming into place: %s", f->path, strerror(errno));
    free_temporary(&f->temporary);
    hl_folder_abandon(f);
    *folder = NULL;
    return HL_OK;
}

void hl_folder_abandon(hl_folder *folder)
{
    if (folder == NULL)
        return;
    remove_temporary(&folder->temporary);
    hl_free(folder->path);
    hl_free(folder);
}
