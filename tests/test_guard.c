/* test_guard.c - SIGBUS: a message and an exit status for mapped files, and only for them.
 *
 * Each test runs in a child process; the parent checks its standard error and how it ended. */
#include "support.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/file.h"

enum { PAGES = 4 };

typedef struct ending {
    int  status; /* as from waitpid */
    char message[512];
} ending;

static const char *path;
static size_t      page;

/* Runs `action` in a child. */
static ending run_child(void (*action)(void))
{
    int    pipes[2];
    ending result = { 0 };

    assert_int_equal(pipe(pipes), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(pipes[1], STDERR_FILENO);
        close(pipes[0]);
        signal(SIGBUS, SIG_DFL); /* removes the handlers of cmocka and of sanitizers */
        action();
        _exit(0);
    }
    close(pipes[1]);
    size_t  used = 0;
    ssize_t n_read;
    while ((n_read = read(pipes[0], result.message + used, sizeof result.message - 1 - used)) > 0)
        used += (size_t)n_read;
    close(pipes[0]);
    assert_int_equal(waitpid(child, &result.status, 0), child);
    return result;
}

static void write_pages(void)
{
    char *bytes = calloc(PAGES, page);
    assert_non_null(bytes);
    write_file(path, bytes, PAGES * page);
    free(bytes);
}

static void touch(const uint8_t *bytes)
{
    volatile uint8_t sink = bytes[(PAGES - 1) * page];
    (void)sink;
}

static void shrink(void)
{
    if (truncate(path, (off_t)page) != 0)
        _exit(99);
}

static void touch_shrunk_file(void)
{
    hl_file file = { 0 };

    hl_guard_mapped_files();
    hl_guard_mapped_files(); /* a second call is harmless */
    if (hl_file_map(&file, path) != HL_OK)
        _exit(98);
    touch(file.bytes); /* the file is still complete */
    shrink();
    touch(file.bytes);
}

static void a_shrunk_file_is_named(void **state)
{
    char wanted[256];
    (void)state;

    write_pages();
    ending result = run_child(touch_shrunk_file);
    assert_true(WIFEXITED(result.status));
    assert_int_equal(WEXITSTATUS(result.status), 3);
    snprintf(wanted, sizeof wanted, "headlight: %s: shrank while in use\n", path);
    assert_string_equal(result.message, wanted);
}

static void touch_after_many_mappings(void)
{
    hl_file file = { 0 };

    hl_guard_mapped_files();
    for (int i = 0; i < 3000; i++) { /* more files than the table holds */
        if (hl_file_map(&file, path) != HL_OK)
            _exit(98);
        hl_file_unmap(&file);
    }
    touch_shrunk_file();
}

static void closed_files_leave_no_trace(void **state)
{
    (void)state;
    write_pages();
    ending result = run_child(touch_after_many_mappings);
    assert_true(WIFEXITED(result.status) && WEXITSTATUS(result.status) == 3);
}

static void touch_foreign_mapping(void)
{
    int   descriptor = open(path, O_RDONLY);
    void *mapping    = mmap(NULL, PAGES * page, PROT_READ, MAP_PRIVATE, descriptor, 0);

    hl_guard_mapped_files();
    shrink();
    touch(mapping);
}

static void send_signal(void)
{
    hl_guard_mapped_files();
    raise(SIGBUS);
}

/* Checks that the system's default action ended the child. */
static void assert_killed(ending result)
{
    assert_true(WIFSIGNALED(result.status));
    assert_int_equal(WTERMSIG(result.status), SIGBUS);
    assert_string_equal(result.message, "");
}

static void other_bus_errors_stay_what_they_are(void **state)
{
    (void)state;
    write_pages();
    assert_killed(run_child(touch_foreign_mapping));
    assert_killed(run_child(send_signal));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shrunk_file_is_named),
        cmocka_unit_test(closed_files_leave_no_trace),
        cmocka_unit_test(other_bus_errors_stay_what_they_are),
    };
    const char *folder = new_folder();
    page               = (size_t)sysconf(_SC_PAGESIZE);
    path               = in_folder(folder, "mapped");
    int code           = cmocka_run_group_tests(tests, NULL, NULL);
    remove_folder(folder);
    return code;
}
