/* test_file.c - mapping files, and writing them completely or not at all. */
#include "support.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/memory.h"

/* --------------------------------------------------------------- mapping */

static void mapped_bytes_are_the_file(void **state)
{
    (void)state;
    const char *folder = new_folder();
    const char *path   = in_folder(folder, "a");
    hl_file     file   = { 0 };

    write_file(path, "head\0light", 10);
    assert_ok(hl_file_map(&file, path));
    assert_int_equal(file.n_bytes, 10);
    assert_memory_equal(file.bytes, "head\0light", 10);
    hl_file_unmap(&file);
    assert_null(file.bytes);
    hl_file_unmap(&file); /* a second call does nothing */
    remove_folder(folder);
}

static void empty_file_is_fine(void **state)
{
    (void)state;
    const char *folder = new_folder();
    const char *path   = in_folder(folder, "empty");
    hl_file     file   = { 0 };

    write_file(path, "", 0);
    assert_ok(hl_file_map(&file, path));
    assert_int_equal(file.n_bytes, 0);
    assert_non_null(file.bytes);
    hl_file_unmap(&file);
    remove_folder(folder);
}

static void what_cannot_be_mapped_is_explained(void **state)
{
    (void)state;
    const char *folder  = new_folder();
    const char *missing = in_folder(folder, "missing");
    const char *pipe    = in_folder(folder, "pipe");
    hl_file     file    = { 0 };

    assert_fails(HL_NOT_FOUND, "missing: No such file", hl_file_map(&file, missing));
    assert_null(file.bytes);
    assert_fails(HL_BAD_INPUT, "is a directory", hl_file_map(&file, folder));
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_fails(HL_BAD_INPUT, "pipe: not a regular file", hl_file_map(&file, pipe));
    assert_fails(HL_BAD_INPUT, "not a regular file", hl_file_map(&file, "/dev/zero"));
    assert_fails(HL_NOT_FOUND, ": ", hl_file_map(&file, ""));
    remove_folder(folder);
}

/* Root may do everything, so a test of permissions runs as another user.  Returns false if that is
 * not possible. */
static bool lower_rights(void)
{
    return geteuid() != 0 || seteuid(65534) == 0;
}

static void restore_rights(void)
{
    assert_int_equal(seteuid(getuid()), 0);
}

static void unreadable_file_is_explained(void **state)
{
    (void)state;
    const char *folder = new_folder();
    const char *path   = in_folder(folder, "secret");
    hl_file     file   = { 0 };

    write_file(path, "x", 1);
    assert_int_equal(chmod(path, 0), 0);
    assert_int_equal(chmod(folder, 0755), 0);
    bool      lowered = lower_rights();
    hl_status mapped  = hl_file_map(&file, path);
    restore_rights();
    hl_file_unmap(&file);
    remove_folder(folder);
    if (!lowered)
        skip();
    assert_fails(HL_IO, "secret: Permission denied", mapped);
}

/* --------------------------------------------------------------- writing */

static void assert_content(const char *path, const void *bytes, size_t n_bytes)
{
    size_t n_read = 0;
    char  *read   = read_file(path, &n_read);
    assert_int_equal(n_read, n_bytes);
    if (n_bytes > 0)
        assert_memory_equal(read, bytes, n_bytes);
    free(read);
}

static void parts_may_come_in_any_order(void **state)
{
    (void)state;
    const char *folder = new_folder();
    const char *path   = in_folder(folder, "parts");
    hl_writer  *writer = NULL;

    assert_ok(hl_writer_open(&writer, path));
    hl_writer_write(writer, "head", 4);
    hl_writer_reserve(writer, 12);
    hl_writer_write_at(writer, 10, "ed", 2);
    hl_writer_write_at(writer, 5, "wri", 3);
    assert_ok(hl_writer_check(writer));
    assert_int_equal(access(path, F_OK), -1); /* the file does not exist before the writer is
                                               * finished */
    assert_ok(hl_writer_finish(writer));
    assert_content(path, "head\0wri\0\0ed", 12);
    remove_folder(folder);
}

/* A file under the caller's own name stays after its writer is closed, and another writer continues
 * it. */
static void work_on_a_file_goes_on(void **state)
{
    (void)state;
    const char *folder = new_folder();
    const char *path   = in_folder(folder, "rows");
    const char *part   = in_folder(folder, "rows.part");
    hl_writer  *writer = NULL;

    assert_fails(HL_NOT_FOUND, "rows.part: ", hl_writer_open_as(&writer, path, part, true));
    assert_null(writer);
    assert_ok(hl_writer_open_as(&writer, path, part, false));
    hl_writer_write(writer, "head", 4);
    hl_writer_reserve(writer, 8);
    hl_writer_write_at(writer, 4, "ab", 2);
    assert_ok(hl_writer_sync(writer));
    assert_content(part, "headab\0\0", 8);
    hl_writer_leave(writer);
    assert_int_equal(count_files(folder), 1);

    assert_ok(hl_writer_open_as(&writer, path, part, true));
    hl_writer_write(writer, "HEAD", 4);
    hl_writer_reserve(writer, 8);
    hl_writer_write_at(writer, 6, "cd", 2);
    assert_ok(hl_writer_finish(writer));
    assert_content(path, "HEADabcd", 8);
    assert_int_equal(count_files(folder), 1);

    assert_ok(hl_writer_open_as(&writer, path, part, false)); /* from the start, then abandoned */
    hl_writer_abandon(writer);
    assert_int_equal(count_files(folder), 1);
    assert_fails(HL_BAD_ARGUMENT, "is a directory", hl_writer_open_as(&writer, path, folder, true));
    hl_writer_leave(NULL);
    remove_folder(folder);
}

static void room_that_is_not_there_is_known_at_once(void **state)
{
    (void)state;
    const char *folder = new_folder();
    const char *path   = in_folder(folder, "large");
    hl_writer  *writer = NULL;

    assert_ok(hl_writer_open(&writer, path));
    hl_writer_reserve(writer, (size_t)1 << 62);
    assert_int_not_equal(hl_writer_check(writer), HL_OK);
    assert_non_null(strstr(hl_error_message(), "large: no room for 4611686018427387904 bytes: "));
    hl_writer_write_at(writer, 0, "x", 1);
    assert_int_not_equal(hl_writer_finish(writer), HL_OK);
    assert_int_equal(count_files(folder), 0);
    remove_folder(folder);
}

static void pieces_of_any_size_arrive_in_order(void **state)
{
    (void)state;
    enum { N_BYTES = 3000000 };
    const size_t pieces[] = { 1, 7, 4096, 100000, 262143, 262144, 262145, 1000000, N_BYTES };
    const char  *folder   = new_folder();
    const char  *path     = in_folder(folder, "out");
    char        *bytes    = malloc(N_BYTES);

    assert_non_null(bytes);
    for (int i = 0; i < N_BYTES; i++)
        bytes[i] = (char)(i * 31 + (i >> 11));
    for (size_t p = 0; p < sizeof pieces / sizeof pieces[0]; p++) {
        hl_writer *writer = NULL;
        size_t     total  = pieces[p] < 16 ? 600000 : N_BYTES;
        assert_ok(hl_writer_open(&writer, path));
        for (size_t at = 0; at < total; at += pieces[p])
            hl_writer_write(writer, bytes + at, total - at < pieces[p] ? total - at : pieces[p]);
        hl_writer_write(writer, NULL, 0);
        assert_ok(hl_writer_finish(writer));
        assert_content(path, bytes, total);
        assert_int_equal(count_files(folder), 1);
    }
    free(bytes);
    remove_folder(folder);
}

static void target_changes_only_at_finish(void **state)
{
    (void)state;
    const char *folder = new_folder();
    const char *path   = in_folder(folder, "out");
    hl_writer  *writer = NULL;

    write_file(path, "old", 3);
    assert_ok(hl_writer_open(&writer, path));
    hl_writer_write(writer, "new!", 4);
    assert_content(path, "old", 3);
    assert_int_equal(count_files(folder), 2); /* the temporary file is beside it */
    assert_ok(hl_writer_finish(writer));
    assert_content(path, "new!", 4);
    assert_int_equal(count_files(folder), 1);
    remove_folder(folder);
}

static void abandoning_leaves_no_trace(void **state)
{
    (void)state;
    const char *folder = new_folder();
    const char *path   = in_folder(folder, "out");
    hl_writer  *writer = NULL;

    assert_ok(hl_writer_open(&writer, path));
    hl_writer_write(writer, "x", 1);
    hl_writer_abandon(writer);
    assert_int_equal(count_files(folder), 0);
    hl_writer_abandon(NULL);
    remove_folder(folder);
}

/* A limit of file sizes replaces a full disk: both make write() fail. */
static void full_disk_keeps_the_old_file(void **state)
{
    (void)state;
    static char   bytes[1 << 20];
    const char   *folder = new_folder();
    const char   *path   = in_folder(folder, "out");
    hl_writer    *writer = NULL;
    struct rlimit limit;

    write_file(path, "old", 3);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    struct rlimit small = { .rlim_cur = 100000, .rlim_max = limit.rlim_max };
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);

    hl_status opened = hl_writer_open(&writer, path);
    if (opened == HL_OK) {
        hl_writer_write(writer, bytes, sizeof bytes); /* writes up to the limit, then fails */
        hl_writer_write(writer, "more", 4);           /* does nothing; the error is kept */
    }
    hl_status finished = opened == HL_OK ? hl_writer_finish(writer) : opened;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, before);

    assert_int_equal(opened, HL_OK);
    assert_fails(HL_IO, "out: writing: File too large", finished);
    assert_content(path, "old", 3);
    assert_int_equal(count_files(folder), 1);
    remove_folder(folder);
}

static void first_error_outlives_later_messages(void **state)
{
    (void)state;
    const char   *folder = new_folder();
    const char   *path   = in_folder(folder, "out");
    hl_writer    *writer = NULL;
    hl_file       file;
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    struct rlimit small = { .rlim_cur = 10, .rlim_max = limit.rlim_max };
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_ok(hl_writer_open(&writer, path));
    static char bytes[1 << 20];
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    hl_writer_write(writer, bytes, sizeof bytes);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, before);

    assert_int_equal(hl_file_map(&file, "/nowhere"), HL_NOT_FOUND);
    assert_fails(HL_IO, "out: writing", hl_writer_finish(writer));
    assert_int_equal(count_files(folder), 0);
    remove_folder(folder);
}

static void impossible_targets_are_refused(void **state)
{
    (void)state;
    const char *folder = new_folder();
    const char *plain  = in_folder(folder, "plain");
    hl_writer  *writer = (hl_writer *)&writer;
    struct stat info;

    write_file(plain, "x", 1);
    assert_fails(HL_BAD_ARGUMENT, "is a directory", hl_writer_open(&writer, folder));
    assert_null(writer);
    assert_fails(HL_BAD_ARGUMENT, "not the name of a file", hl_writer_open(&writer, "/tmp/"));
    assert_fails(HL_BAD_ARGUMENT, "not the name of a file", hl_writer_open(&writer, ""));
    assert_fails(HL_NOT_FOUND, "nowhere/out: cannot create a file beside it: No such file",
                 hl_writer_open(&writer, in_folder(folder, "nowhere/out")));
    assert_fails(HL_IO, "Not a directory", hl_writer_open(&writer, in_folder(plain, "out")));
    assert_fails(HL_BAD_ARGUMENT, "not a regular file", hl_writer_open(&writer, "/dev/full"));
    assert_int_equal(stat("/dev/full", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
    assert_int_equal(count_files(folder), 1);
    remove_folder(folder);
}

static void unwritable_folder_is_explained(void **state)
{
    (void)state;
    const char *folder = new_folder();
    hl_writer  *writer = NULL;

    assert_int_equal(chmod(folder, 0555), 0);
    bool      lowered = lower_rights();
    hl_status opened  = hl_writer_open(&writer, in_folder(folder, "out"));
    restore_rights();
    hl_writer_abandon(writer);
    assert_int_equal(chmod(folder, 0755), 0);
    remove_folder(folder);
    if (!lowered)
        skip();
    assert_fails(HL_IO, "Permission denied", opened);
    assert_null(writer);
}

static void new_files_obey_the_umask(void **state)
{
    (void)state;
    const char *folder = new_folder();
    const char *path   = in_folder(folder, "out");
    hl_writer  *writer = NULL;
    struct stat info;

    mode_t before = umask(027);
    assert_ok(hl_writer_open(&writer, path));
    assert_ok(hl_writer_finish(writer));
    umask(before);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    remove_folder(folder);
}

static void names_up_to_the_limit_work(void **state)
{
    (void)state;
    const char *folder = new_folder();
    char        name[256];
    hl_writer  *writer = NULL;

    memset(name, 'n', 255);
    name[255] = '\0';
    assert_ok(hl_writer_open(&writer, in_folder(folder, name)));
    hl_writer_write(writer, "x", 1);
    assert_ok(hl_writer_finish(writer));
    assert_content(in_folder(folder, name), "x", 1);
    remove_folder(folder);
}

static void names_without_folder_go_here(void **state)
{
    (void)state;
    const char *folder = new_folder();
    char        here[4096];
    hl_writer  *writer = NULL;

    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(folder), 0);
    hl_status opened   = hl_writer_open(&writer, "out");
    hl_status finished = opened == HL_OK ? hl_writer_finish(writer) : opened;
    assert_int_equal(chdir(here), 0);
    assert_int_equal(finished, HL_OK);
    assert_content(in_folder(folder, "out"), "", 0);
    remove_folder(folder);
}

/* Each of many writers of one file writes its own number everywhere, so a mixture would be
 * noticed. */
enum { N_WRITERS = 8, N_REPEATS = 20, N_NUMBERS = 5000 };
static char shared_path[1024];

/* Returns its argument if something failed. */
static void *write_often(void *number)
{
    int numbers[N_NUMBERS];
    for (int i = 0; i < N_NUMBERS; i++)
        numbers[i] = *(int *)number;
    for (int r = 0; r < N_REPEATS; r++) {
        hl_writer *writer = NULL;
        if (hl_writer_open(&writer, shared_path) != HL_OK)
            return number;
        hl_writer_write(writer, numbers, sizeof numbers);
        if (hl_writer_finish(writer) != HL_OK)
            return number;
    }
    return NULL;
}

static void concurrent_writers_do_not_mix(void **state)
{
    (void)state;
    const char *folder = new_folder();
    pthread_t   threads[N_WRITERS];
    int         numbers[N_WRITERS];
    size_t      n_bytes = 0;

    snprintf(shared_path, sizeof shared_path, "%s/out", folder);
    for (int i = 0; i < N_WRITERS; i++) {
        numbers[i] = i + 1;
        assert_int_equal(pthread_create(&threads[i], NULL, write_often, &numbers[i]), 0);
    }
    for (int i = 0; i < N_WRITERS; i++) {
        void *problem = NULL;
        assert_int_equal(pthread_join(threads[i], &problem), 0);
        assert_null(problem);
    }
    int *written = (int *)(void *)read_file(shared_path, &n_bytes);
    assert_int_equal(n_bytes, N_NUMBERS * sizeof(int));
    assert_true(written[0] >= 1 && written[0] <= N_WRITERS);
    for (int i = 0; i < N_NUMBERS; i++)
        assert_int_equal(written[i], written[0]);
    free(written);
    assert_int_equal(count_files(folder), 1);
    remove_folder(folder);
}

/* ------------------------------------------------------------ order of calls */

/* The linker redirects these two calls to this file (-Wl,--wrap, in the Makefile), which records
 * them: after a rename, even after a crash, the bytes must be on the disk. */
int __real_fsync(int descriptor);
int __real_rename(const char *from, const char *to);
int __wrap_fsync(int descriptor);
int __wrap_rename(const char *from, const char *to);

static char   calls[1024];
static bool   is_noting;
static ino_t  inode_of_parent, inode_of_new;
static size_t bytes_at_sync;

int __wrap_fsync(int descriptor)
{
    struct stat about;

    if (is_noting && fstat(descriptor, &about) == 0) {
        if (!S_ISDIR(about.st_mode))
            bytes_at_sync = (size_t)about.st_size;
        strcat(calls, S_ISREG(about.st_mode)            ? "sync file, "
                      : about.st_ino == inode_of_parent ? "sync parent, "
                                                        : "sync folder, ");
        if (about.st_ino != inode_of_parent)
            inode_of_new = about.st_ino;
    }
    return __real_fsync(descriptor);
}

int __wrap_rename(const char *from, const char *to)
{
    struct stat about;

    /* The file that is renamed must have been synced. */
    if (is_noting && stat(from, &about) == 0)
        strcat(calls, about.st_ino == inode_of_new ? "rename it, " : "rename another, ");
    return __real_rename(from, to);
}

static void note_calls(const char *parent)
{
    struct stat about;

    assert_int_equal(stat(parent, &about), 0);
    inode_of_parent = about.st_ino;
    inode_of_new    = 0;
    bytes_at_sync   = 0;
    calls[0]        = '\0';
    is_noting       = true;
}

static void a_file_reaches_the_disk_before_its_name(void **state)
{
    static char bytes[300000]; /* more than a buffer, with some bytes left in it */
    const char *folder = new_folder();
    hl_writer  *writer = NULL;
    (void)state;

    for (int round = 0; round < 2; round++) { /* a new file, then one that is replaced */
        assert_ok(hl_writer_open(&writer, in_folder(folder, "x")));
        hl_writer_write(writer, bytes, sizeof bytes);
        hl_writer_write(writer, "end", 3);
        note_calls(folder);
        assert_ok(hl_writer_finish(writer));
        is_noting = false;
        assert_string_equal(calls, "sync file, rename it, sync parent, ");
        assert_int_equal(bytes_at_sync, sizeof bytes + 3);
    }
    assert_ok(hl_writer_open_as(&writer, in_folder(folder, "y"), in_folder(folder, "part"), false));
    hl_writer_write(writer, "abc", 3);
    note_calls(folder);
    assert_ok(hl_writer_sync(writer)); /* syncs what was written so far, under its current name */
    assert_string_equal(calls, "sync file, ");
    assert_int_equal(bytes_at_sync, 3);
    hl_writer_abandon(writer);
    is_noting = false;
    remove_folder(folder);
}

static void a_folder_reaches_the_disk_before_its_name(void **state)
{
    const char *parent = new_folder();
    hl_folder  *folder = NULL;
    hl_writer  *writer = NULL;
    char       *path   = NULL;
    (void)state;

    assert_ok(hl_folder_create(&folder, in_folder(parent, "model")));
    assert_ok(hl_folder_join(&path, folder, "file"));
    assert_ok(hl_writer_open(&writer, path));
    hl_writer_write(writer, "abc", 3);
    note_calls(parent);
    assert_ok(hl_writer_finish(writer));
    assert_ok(hl_folder_finish(&folder));
    is_noting = false;
    /* "folder" is the new one, synced twice: for the file's name, and before its own rename. */
    assert_string_equal(calls, "sync file, rename it, sync folder, sync folder, rename it, ");
    hl_free(path);
    remove_folder(in_folder(parent, "model"));
    remove_folder(parent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mapped_bytes_are_the_file),
        cmocka_unit_test(empty_file_is_fine),
        cmocka_unit_test(what_cannot_be_mapped_is_explained),
        cmocka_unit_test(unreadable_file_is_explained),
        cmocka_unit_test(pieces_of_any_size_arrive_in_order),
        cmocka_unit_test(target_changes_only_at_finish),
        cmocka_unit_test(parts_may_come_in_any_order),
        cmocka_unit_test(work_on_a_file_goes_on),
        cmocka_unit_test(room_that_is_not_there_is_known_at_once),
        cmocka_unit_test(abandoning_leaves_no_trace),
        cmocka_unit_test(full_disk_keeps_the_old_file),
        cmocka_unit_test(first_error_outlives_later_messages),
        cmocka_unit_test(impossible_targets_are_refused),
        cmocka_unit_test(unwritable_folder_is_explained),
        cmocka_unit_test(new_files_obey_the_umask),
        cmocka_unit_test(names_up_to_the_limit_work),
        cmocka_unit_test(names_without_folder_go_here),
        cmocka_unit_test(concurrent_writers_do_not_mix),
        cmocka_unit_test(a_file_reaches_the_disk_before_its_name),
        cmocka_unit_test(a_folder_reaches_the_disk_before_its_name),
    };
    return cmocka_run_group_tests_name("file", tests, NULL, NULL);
}
