/* path.c - names of files and folders, and what they lead to. */
#include "base/path.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"

hl_status hl_path_join(char **out, const char *folder, const char *name)
{
    size_t    room   = strlen(folder) + strlen(name) + 2;
    hl_status status = HL_ALLOC(out, room);

    if (status == HL_OK)
        snprintf(*out, room, "%s/%s", folder, name);
    return status;
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
