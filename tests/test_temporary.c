/* test_temporary.c - leftovers of killed processes are removed by the next one, and nothing else
 * is. */
#include "support.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"

/* Starts a process that begins a file and a folder in `here`, and then waits to be killed. */
static pid_t begin_elsewhere(const char *here)
{
    int ready[2];

    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        hl_writer *writer = NULL;
        hl_folder *folder = NULL;
        char      *path   = NULL;
        bool       good   = hl_writer_open(&writer, in_folder(here, "figure.pdf")) == HL_OK &&
                    hl_folder_create(&folder, in_folder(here, "small")) == HL_OK &&
                    hl_folder_join(&path, folder, "config.json") == HL_OK;
        if (good) {
            hl_writer_write(writer, "half", 4);
            write_file(path, "{", 1);
        }
        (void)!write(ready[1], good ? "y" : "n", 1);
        for (;;)
            pause();
    }
    char answer = 'n';
    close(ready[1]);
    assert_int_equal(read(ready[0], &answer, 1), 1);
    close(ready[0]);
    assert_int_equal(answer, 'y');
    return child;
}

static void kill_it(pid_t child)
{
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void write_something(const char *here)
{
    hl_writer *writer = NULL;

    assert_ok(hl_writer_open(&writer, in_folder(here, "other.svg")));
    hl_writer_write(writer, "x", 1);
    assert_ok(hl_writer_finish(writer));
}

static void leftovers_of_the_killed_are_removed(void **state)
{
    const char *here  = new_folder();
    pid_t       child = begin_elsewhere(here);
    (void)state;

    /* As long as the process lives, other writers do not remove its files. */
    assert_int_equal(count_files(here), 2);
    write_something(here);
    assert_int_equal(count_files(here), 3);
    kill_it(child);
    assert_int_equal(count_files(here), 3);
    write_something(here);
    assert_int_equal(count_files(here), 1);
    remove_folder(here);
}

static void a_folder_removes_them_too(void **state)
{
    const char *here   = new_folder();
    hl_folder  *folder = NULL;
    (void)state;

    kill_it(begin_elsewhere(here));
    assert_int_equal(count_files(here), 2);
    assert_ok(hl_folder_create(&folder, in_folder(here, "small")));
    assert_int_equal(count_files(here), 1);
    assert_ok(hl_folder_finish(&folder));
    assert_int_equal(count_files(here), 1);
    remove_folder(in_folder(here, "small"));
    remove_folder(here);
}

/* Names of a slightly different form, and things that are not files. */
static void nothing_else_is_touched(void **state)
{
    static const char *const names[] = {
        ".figure.pdf.abcdef.tmp",
        "figure.pdf.abcdef.headlight.tmp",
        ".figure.pdf.abcde.headlight.tmp",
        ".figure.pdf.abcdE0.headlight.tmp",
        ".figure.pdf.abcdef.headlight.tmp~",
        ".abcdef.headlight.tmp",
        "..abcdef.headlight.tm",
        "headlight.tmp",
    };
    const char *here    = new_folder();
    int         n_names = (int)(sizeof names / sizeof *names);
    (void)state;

    for (int i = 0; i < n_names; i++)
        write_file(in_folder(here, names[i]), "mine", 4);
    write_file(in_folder(here, "kept"), "text", 4);
    assert_int_equal(symlink("kept", in_folder(here, ".figure.pdf.abcdef.headlight.tmp")), 0);
    assert_int_equal(mkfifo(in_folder(here, ".pipe.abcdef.headlight.tmp"), 0666), 0);
    write_something(here);
    assert_int_equal(count_files(here), n_names + 4);
    remove_folder(here);
}

/* The holder of a lock is alive, whatever the name; an unlocked name of this form is a leftover. */
static void a_lock_protects(void **state)
{
    const char *here = new_folder();
    const char *path = in_folder(here, ".a.b.qwerty.headlight.tmp");
    (void)state;

    write_file(path, "half", 4);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(descriptor >= 0);
    assert_int_equal(flock(descriptor, LOCK_EX | LOCK_NB), 0);
    write_something(here);
    assert_int_equal(count_files(here), 2);
    close(descriptor);
    write_something(here);
    assert_int_equal(count_files(here), 1);
    remove_folder(here);
}

/* The lock must last from the last close of the written file to its rename: both writers of a
 * folder finish here, one after the other has begun. */
static void two_writers_leave_each_other_alone(void **state)
{
    const char *here  = new_folder();
    hl_writer  *first = NULL, *second = NULL;
    (void)state;

    assert_ok(hl_writer_open(&first, in_folder(here, "x")));
    hl_writer_write(first, "1", 1);
    assert_ok(hl_writer_open(&second, in_folder(here, "x")));
    hl_writer_write(second, "22", 2);
    assert_ok(hl_writer_finish(second));
    write_something(here);
    assert_ok(hl_writer_finish(first));
    assert_int_equal(count_files(here), 2);
    remove_folder(here);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leftovers_of_the_killed_are_removed),
        cmocka_unit_test(a_folder_removes_them_too),
        cmocka_unit_test(nothing_else_is_touched),
        cmocka_unit_test(a_lock_protects),
        cmocka_unit_test(two_writers_leave_each_other_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
