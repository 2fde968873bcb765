/* fuzz_file.h - bytes as files, for readers that take a path.
 *
 *     const char *path = fuzz_file("maps.npy", bytes, n_bytes);
 *
 * The files are in one folder per process, below $TMPDIR, which is removed at the end. */
#ifndef HL_FUZZ_FILE_H
#define HL_FUZZ_FILE_H

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"

enum { FUZZ_FOLDER_BYTES = 256, FUZZ_PATH_BYTES = 600 };

static char fuzz_folder_path[FUZZ_FOLDER_BYTES]; /* empty: not created yet */

/* Removes the files, not the folder. */
static inline void fuzz_folder_clear(void)
{
    char           path[FUZZ_PATH_BYTES];
    DIR           *folder = opendir(fuzz_folder_path);
    struct dirent *entry;

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        snprintf(path, sizeof path, "%s/%s", fuzz_folder_path, entry->d_name);
        if (entry->d_name[0] != '.')
            unlink(path);
    }
    if (folder != NULL)
        closedir(folder);
}

static inline void fuzz_folder_remove(void)
{
    fuzz_folder_clear();
    rmdir(fuzz_folder_path);
}

static inline const char *fuzz_folder(void)
{
    const char *parent = getenv("TMPDIR");

    if (fuzz_folder_path[0] == '\0') {
        snprintf(fuzz_folder_path, sizeof fuzz_folder_path, "%.200s/headlight-fuzz-XXXXXX",
                 parent != NULL ? parent : "/tmp");
        PROMISE(mkdtemp(fuzz_folder_path) != NULL);
        atexit(fuzz_folder_remove);
    }
    return fuzz_folder_path;
}

/* Writes a file of this name.  The path is valid until the next call. */
static inline const char *fuzz_file(const char *name, const uint8_t *bytes, size_t n_bytes)
{
    static char path[FUZZ_PATH_BYTES];

    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    FILE *file = fopen(path, "wb");
    PROMISE(file != NULL);
    PROMISE(fwrite(bytes, 1, n_bytes, file) == n_bytes);
    PROMISE(fclose(file) == 0);
    return path;
}

#endif
