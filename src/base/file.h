/* file.h - names of files, mapping files for reading, and writing files and folders all or not at all.
 *
 *     hl_file file = {0};
 *     HL_TRY(hl_file_map(&file, path));
 *     ... file.bytes, file.n_bytes ...
 *   done:
 *     hl_file_unmap(&file);
 *
 * A hl_writer writes beside its target under a temporary name; `finish` flushes,
 * syncs and renames it into place, so that the target is always either the old
 * file or the whole new one.  A writer keeps its first error: later writes do
 * nothing, and `finish` reports it and removes the temporary file.  What killed processes left of
 * temporary files is removed by the next that writes to the same folder. */
#ifndef HL_BASE_FILE_H
#define HL_BASE_FILE_H

#include "base/memory.h"
#include "headlight/base.h"

/* --------------------------------------------------------------------------------------- names */

/* The folder of a path: "dir" of "dir/name", "." of "name", "/" of "/name"; release with hl_free. */
hl_status hl_path_folder(char **out, const char *path);
/* folder/name, of any folder; release with hl_free. */
hl_status hl_path_join(char **out, const char *folder, const char *name);
/* What stands behind the last slash; within `path`. */
const char *hl_path_name(const char *path);
/* Is there something of that name, or may we not even look? */
bool hl_path_exists(const char *path);
bool hl_path_is_folder(const char *path);

bool hl_ends_with(const char *text, const char *ending);

/* ------------------------------------------------------------------------------------- reading */

typedef struct hl_file {
    const uint8_t *bytes; /* a read-only mapping; never NULL after success */
    size_t         n_bytes;
    void          *mapping; /* what to unmap; NULL for an empty file */
} hl_file;

hl_status hl_file_map(hl_file *out, const char *path);
void      hl_file_unmap(hl_file *file);

/* ------------------------------------------------------------------------------------- writing */

typedef struct hl_writer hl_writer;

hl_status hl_writer_open(hl_writer **out, const char *path);
/* The same under a temporary name of the caller's, which hl_writer_leave leaves behind for later.
 * go_on: that file is there (HL_NOT_FOUND otherwise), and stays as it is; for hl_writer_write_at.
 * Otherwise one that is there is begun anew. */
hl_status hl_writer_open_as(hl_writer **out, const char *path, const char *temporary, bool go_on);
void      hl_writer_write(hl_writer *writer, const void *bytes, size_t n_bytes);
/* Makes the file `n_bytes` long, on the disk as well: what does not fit is known now.  What is
 * not written is 0.  For a file whose parts come in any order, with hl_writer_write_at. */
void hl_writer_reserve(hl_writer *writer, size_t n_bytes);
void hl_writer_write_at(hl_writer *writer, size_t offset, const void *bytes, size_t n_bytes);
/* The first error so far, for whoever would otherwise go on for hours. */
hl_status hl_writer_check(const hl_writer *writer);
/* What has been written so far is on the disk. */
hl_status hl_writer_sync(hl_writer *writer);
/* Closes the writer in every case. */
hl_status hl_writer_finish(hl_writer *writer);
/* Gives up: removes the temporary file.  Accepts NULL. */
void hl_writer_abandon(hl_writer *writer);
HL_CLOSES(hl_writer_abandon, hl_writer)
/* Goes away, and leaves the temporary file where it is.  Accepts NULL. */
void hl_writer_leave(hl_writer *writer);

/* Copies a file, whole or not at all. */
hl_status hl_file_copy(const char *to, const char *from);

/* ------------------------------------------------------------------------------------- folders */

/* Folders that are written all or not at all:
 *
 *     hl_folder *folder = NULL;
 *     HL_TRY(hl_folder_create(&folder, "OUT"));
 *     HL_TRY(hl_folder_join(&path, folder, "config.json"));
 *     ... write it ...
 *     HL_TRY(hl_folder_finish(&folder));
 *   done:
 *     hl_folder_abandon(folder);
 *
 * Files go to a folder of a temporary name beside the target, which `finish` renames.  The
 * target must not exist: nothing is ever replaced. */
typedef struct hl_folder hl_folder;

/* HL_BAD_ARGUMENT if there is something of that name already. */
hl_status hl_folder_check(const char *path);
hl_status hl_folder_create(hl_folder **out, const char *path);
/* Where a file of that name is to be written; release with hl_free. */
hl_status hl_folder_join(char **out, const hl_folder *folder, const char *name);
/* Into place; *folder is NULL afterwards.  On failure it is as it was. */
hl_status hl_folder_finish(hl_folder **folder);
/* Gives up: removes the folder and the files in it.  Accepts NULL. */
void hl_folder_abandon(hl_folder *folder);
HL_CLOSES(hl_folder_abandon, hl_folder)

#endif
