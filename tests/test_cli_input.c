/* test_cli_input.c - a file is read up to its length at opening, whatever happens to it meanwhile.
 *
 * This file replaces the program's fread (--wrap, in the Makefile) and changes the file before
 * every read. */
#include "support.h"

#include <unistd.h>

#include "command.h"
#include "input.h"

size_t __real_fread(void *out, size_t size, size_t count, FILE *stream);
size_t __wrap_fread(void *out, size_t size, size_t count, FILE *stream);

enum { N_BYTES = 200000 };

static char path[4096];
static int  n_reads;
static void (*meanwhile)(void);

size_t __wrap_fread(void *out, size_t size, size_t count, FILE *stream)
{
    n_reads++;
    if (meanwhile != NULL)
        meanwhile();
    return __real_fread(out, size, count, stream);
}

static void append(void)
{
    static char more[1 << 17]; /* more than one read takes, so that following the file would never
                                * end */
    FILE       *file = fopen(path, "a");

    memset(more, 'b', sizeof more);
    assert_non_null(file);
    assert_int_equal(fwrite(more, 1, sizeof more, file), sizeof more);
    fclose(file);
}

static void cut(void)
{
    assert_int_equal(truncate(path, N_BYTES / 2), 0);
}

static void put_text(void)
{
    char *text = malloc(N_BYTES);

    assert_non_null(text);
    memset(text, 'a', N_BYTES);
    write_file(path, text, N_BYTES);
    free(text);
}

/* Reads the file during these changes; returns the number of bytes, all of which must be 'a'. */
static size_t read_meanwhile(void (*what)(void))
{
    hl_input input;

    put_text();
    meanwhile = what;
    n_reads   = 0;
    alarm(60);
    int code = hl_input_read(&input, path, "test");
    alarm(0);
    meanwhile = NULL;
    assert_int_equal(code, HL_EXIT_OK);
    assert_true(n_reads > 0);
    for (size_t i = 0; i < input.n_bytes; i++)
        assert_int_equal(input.bytes[i], 'a');
    assert_int_equal(input.bytes[input.n_bytes], '\0');
    size_t n_bytes = input.n_bytes;
    hl_input_free(&input);
    return n_bytes;
}

static void what_is_appended_is_not_read(void **state)
{
    (void)state;
    assert_int_equal(read_meanwhile(NULL), N_BYTES);
    assert_int_equal(n_reads, (N_BYTES + 65535) / 65536);
    assert_int_equal(read_meanwhile(append), N_BYTES);
}

static void what_was_cut_off_is_not_waited_for(void **state)
{
    (void)state;
    assert_int_equal(read_meanwhile(cut), N_BYTES / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_appended_is_not_read),
        cmocka_unit_test(what_was_cut_off_is_not_waited_for),
    };
    const char *folder = new_folder();

    snprintf(path, sizeof path, "%s", in_folder(folder, "text"));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_folder(folder);
    return failed;
}
