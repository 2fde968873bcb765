/* support.h - what many tests need: cmocka with the headers it requires, a folder for each test,
 * and files in it. */
#ifndef HL_TESTS_SUPPORT_H
#define HL_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h> /* needs the four above before it */

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "headlight.h"

/* A sanitizer has memory of its own, which counts as the process's. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* Checks that the call fails with this status, and that its message contains the fragment. */
#define assert_fails(wanted_status, fragment, call)                                                \
    do {                                                                                           \
        assert_int_equal(call, wanted_status);                                                     \
        if (strstr(hl_error_message(), fragment) == NULL)                                          \
            fail_msg("'%s' is not in '%s'", fragment, hl_error_message());                         \
    } while (0)

#define assert_ok(call)                                                                            \
    do {                                                                                           \
        hl_status status_ = (call);                                                                \
        if (status_ != HL_OK)                                                                      \
            fail_msg("%s: %s", hl_status_name(status_), hl_error_message());                       \
    } while (0)

/* Sets where sessions run by default; NULL: on the CPU. */
static inline hl_status select_device(const char *name)
{
    return (name != NULL ? setenv("HEADLIGHT_DEVICE", name, 1) : unsetenv("HEADLIGHT_DEVICE")) == 0
               ? HL_OK
               : HL_INTERNAL;
}

/* Makes a new empty folder; its name is in a static buffer.  remove_folder removes it with its
 * files. */
static inline const char *new_folder(void)
{
    static char path[64];
    strcpy(path, "/tmp/headlight-test-XXXXXX");
    if (mkdtemp(path) == NULL)
        fail_msg("cannot make a folder in /tmp");
    return path;
}

/* folder/name in one of four static buffers. */
static inline const char *in_folder(const char *folder, const char *name)
{
    static char paths[4][2048];
    static int  next;
    char        path[2048];

    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_true(length > 0 && length < (int)sizeof path);
    return strcpy(paths[next++ % 4], path);
}

/* A path in the folder of shared files, in one of four static buffers; tests that find nothing
 * there call skip(). */
static inline const char *in_shared(const char *name)
{
    const char *shared = getenv("HEADLIGHT_SHARED");
    return in_folder(shared != NULL ? shared : "../shared", name);
}

/* Counts the files in a folder, including hidden ones; with `remove`, also removes them. */
static inline int visit_folder(const char *folder, int remove)
{
    DIR *directory = opendir(folder);
    int  n_files   = 0;

    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        n_files++;
        if (remove) {
            const char *path = in_folder(folder, entry->d_name);
            if (unlink(path) != 0)
                rmdir(path);
        }
    }
    closedir(directory);
    return n_files;
}

static inline int count_files(const char *folder)
{
    return visit_folder(folder, 0);
}

static inline void remove_folder(const char *folder)
{
    visit_folder(folder, 1);
    assert_int_equal(rmdir(folder), 0);
}

/* A setup function for cmocka: *state is a new folder, which the teardown removes. */
static inline int open_folder(void **state)
{
    *state = (void *)(uintptr_t)new_folder();
    return 0;
}

static inline int close_folder(void **state)
{
    remove_folder(*state);
    return 0;
}

static inline void write_file(const char *path, const void *bytes, size_t n_bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n_bytes, file), n_bytes);
    assert_int_equal(fclose(file), 0);
}

/* Writes an array as NumPy saves it; the header must be shorter than 256 bytes. */
static inline void write_npy(const char *path, const char *descr, const char *shape,
                             const void *data, size_t n_bytes)
{
    FILE *file = fopen(path, "wb");
    char  header[128];
    int   length = snprintf(header, sizeof header,
                            "{'descr': '%s', 'fortran_order': False, 'shape': %s}", descr, shape);

    assert_non_null(file);
    fwrite("\x93NUMPY\x01\x00", 1, 8, file);
    fputc(length, file);
    fputc(0, file);
    fwrite(header, 1, (size_t)length, file);
    assert_int_equal(fwrite(data, 1, n_bytes, file), n_bytes);
    assert_int_equal(fclose(file), 0);
}

/* Reads a whole file and adds a NUL; release with free. */
static inline char *read_file(const char *path, size_t *n_bytes)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *n_bytes    = (size_t)ftell(file);
    char *bytes = malloc(*n_bytes + 1);
    assert_non_null(bytes);
    rewind(file);
    assert_int_equal(fread(bytes, 1, *n_bytes, file), *n_bytes);
    bytes[*n_bytes] = '\0';
    fclose(file);
    return bytes;
}

#endif
