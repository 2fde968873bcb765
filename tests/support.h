/* support.h - what several tests need: cmocka with what it wants included first, a
 * folder of one's own, and files in it. */
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

/* A sanitizer keeps memory of its own, which counts as ours. */
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

/* The call failed in this way, and its message contains this. */
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

/* Where sessions run from now on that do not say otherwise; NULL: on the CPU. */
static inline hl_status select_device(const char *name)
{
    return (name != NULL ? setenv("HEADLIGHT_DEVICE", name, 1) : unsetenv("HEADLIGHT_DEVICE")) == 0
               ? HL_OK
               : HL_INTERNAL;
}

/* A new empty folder; a static buffer.  Removed, files and all, by
 * remove_folder. */
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

/* A path in the folder of files that are not ours to keep here, in one of four
 * static buffers; tests that find nothing there say skip(). */
static inline const char *in_shared(const char *name)
{
    const char *shared = getenv("HEADLIGHT_SHARED");
    return in_folder(shared != NULL ? shared : "../shared", name);
}

/* How many files lie in a folder, hidden ones too; with `remove`, none after. */
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

/* For cmocka: *state is a new folder, and it goes again. */
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

/* An array as NumPy saves it; its header must be shorter than 256 bytes. */
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

/* The whole file, with a NUL after it; release with free. */
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
