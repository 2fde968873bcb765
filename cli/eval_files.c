/* eval_files.c - sizes, from the directory. */
#include "eval_files.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* "model.safetensors", "model-00001-of-00002.safetensors". */
static bool holds_weights(const char *name)
{
    const char *ending = strrchr(name, '.');

    return strncmp(name, "model", 5) == 0 && ending != NULL && strcmp(ending, ".safetensors") == 0;
}

static size_t size_of(const char *path)
{
    struct stat about;

    return stat(path, &about) == 0 && S_ISREG(about.st_mode) ? (size_t)about.st_size : 0;
}

size_t hl_eval_file_bytes(const char *path)
{
    size_t sum    = size_of(path);
    DIR   *folder = sum == 0 ? opendir(path) : NULL;

    if (folder == NULL)
        return sum;
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        char name[4096];

        if (holds_weights(entry->d_name) &&
            snprintf(name, sizeof name, "%s/%s", path, entry->d_name) < (int)sizeof name)
            sum += size_of(name);
    }
    closedir(folder);
    return sum;
}
