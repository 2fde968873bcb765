/* folder.c - a folder under a temporary name, until all of its files are written.
 *
 * The order is that of file.c, one level up: every file reaches the disk before its own
 * rename, all of them before the folder's. */
#include "base/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/path.h"
#include "base/status.h"
#include "base/temporary.h"

struct hl_folder {
    char        *path;
    hl_temporary temporary; /* what is written */
};

hl_status hl_folder_check(const char *path)
{
    struct stat about;

    if (path[0] == '\0')
        return hl_fail(HL_BAD_ARGUMENT, "the name of the folder to write is empty");
    if (lstat(path, &about) == 0)
        return hl_fail(HL_BAD_ARGUMENT, "%s: exists already, and is not replaced", path);
    return HL_OK;
}

hl_status hl_folder_create(hl_folder **out, const char *path)
{
    hl_status  status = HL_OK;
    hl_folder *folder = NULL;
    size_t     length = strlen(path);

    *out = NULL;
    while (length > 1 && path[length - 1] == '/')
        length--;
    HL_TRY(hl_folder_check(path));
    HL_TRY(HL_ALLOC_ZEROED(&folder, 1));
    folder->temporary = HL_NO_TEMPORARY;
    HL_TRY(hl_strndup(&folder->path, path, length));
    HL_TRY(hl_temporary_folder(&folder->temporary, folder->path));
    *out   = folder;
    folder = NULL;

done:
    hl_folder_abandon(folder);
    return status;
}

hl_status hl_folder_join(char **out, const hl_folder *folder, const char *name)
{
    return hl_path_join(out, folder->temporary.name, name);
}

/* Some file systems cannot sync a folder; that is no failure of ours. */
static void sync_folder(const char *path)
{
    int descriptor = hl_sys_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);

    if (descriptor >= 0) {
        (void)hl_sys_fsync(descriptor);
        close(descriptor);
    }
}

hl_status hl_folder_finish(hl_folder **folder)
{
    hl_folder *f = *folder;

    sync_folder(f->temporary.name);
    if (hl_sys_rename(f->temporary.name, f->path) != 0)
        return hl_fail(HL_IO, "%s: renaming into place: %s", f->path, strerror(errno));
    hl_temporary_free(&f->temporary);
    hl_folder_abandon(f);
    *folder = NULL;
    return HL_OK;
}

void hl_folder_abandon(hl_folder *folder)
{
    if (folder == NULL)
        return;
    hl_temporary_remove(&folder->temporary);
    hl_free(folder->path);
    hl_free(folder);
}

hl_status hl_file_copy(const char *to, const char *from)
{
    hl_status  status = HL_OK;
    hl_file    file   = { 0 };
    hl_writer *writer = NULL;

    HL_TRY(hl_file_map(&file, from));
    HL_TRY(hl_writer_open(&writer, to));
    hl_writer_write(writer, file.bytes, file.n_bytes);
    status = hl_writer_finish(writer);

done:
    hl_file_unmap(&file);
    return status;
}
