/* file.h - file names, mapping files for reading, and writing files and folders atomically.
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
 * nothing, and `finish` reports it and removes the temporary file.  Temporary files of killed
 * processes are removed by the next process that writes to the same folder. */
#ifndef HL_BASE_FILE_H
#define HL_BASE_FILE_H

#include "base/memory.h"
#include "headlight/base.h"

/* --------------------------------------------------------------------------------------- names */

/* The folder of a path: "dir" of "dir/name", "." of "name", "/" of "/name".  Release with
 * hl_free. */
hl_status hl_path_folder(char **out, const char *path);
/* folder/name, whether or not `folder` ends in a slash; release with hl_free. */
hl_status hl_path_join(char **out, const char *folder, const char *name);
/* The part after the last slash; points into `path`. */
const char *hl_path_name(const char *path);
/* True if the path exists, or if permissions do not let us find out. */
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
/* Opens a writer under a temporary name chosen by the caller, so that hl_writer_leave can keep the
 * file for a later run.  With go_on the file must exist (else HL_NOT_FOUND) and keeps its contents,
 * for hl_writer_write_at.  Without go_on an existing file is emptied. */
hl_status hl_writer_open_as(hl_writer **out, const char *path, const char *temporary, bool go_on);
void      hl_writer_write(hl_writer *writer, const void *bytes, size_t n_bytes);
/* Makes the file `n_bytes` long and allocates the disk space, so that a full disk is noticed now.
 * Bytes that are never written are 0.  For a file whose parts are written in any order, with
 * hl_writer_write_at. */
void hl_writer_reserve(hl_writer *writer, size_t n_bytes);
void hl_writer_write_at(hl_writer *writer, size_t offset, const void *bytes, size_t n_bytes);
/* The first error so far; lets a long computation stop early. */
hl_status hl_writer_check(const hl_writer *writer);
/* Flushes everything written so far to the disk. */
hl_status hl_writer_sync(hl_writer *writer);
/* Closes the writer in every case. */
hl_status hl_writer_finish(hl_writer *writer);
/* Gives up: removes the temporary file.  Accepts NULL. */
void hl_writer_abandon(hl_writer *writer);
HL_CLOSES(hl_writer_abandon, hl_writer)
/* Closes the writer and keeps the temporary file.  Accepts NULL. */
void hl_writer_leave(hl_writer *writer);

/* Copies a file atomically. */
hl_status hl_file_copy(const char *to, const char *from);

/* ------------------------------------------------------------------------------------- folders */

/* Folders that are written atomically:
 *
 *     hl_folder *folder = NULL;
 *     HL_TRY(hl_folder_create(&folder, "OUT"));
 *     HL_TRY(hl_folder_join(&path, folder, "config.json"));
 *     ... write it ...
 *     HL_TRY(hl_folder_finish(&folder));
 *   done:
 *     hl_folder_abandon(folder);
 *
 * Files are written to a folder with a temporary name beside the target, which `finish` renames.
 * The target must not exist: nothing is ever replaced. */
typedef struct hl_folder hl_folder;

/* HL_BAD_ARGUMENT if the path exists already. */
hl_status hl_folder_check(const char *path);
hl_status hl_folder_create(hl_folder **out, const char *path);
/* The path at which to write a file of that name; release with hl_free. */
hl_status hl_folder_join(char **out, const hl_folder *folder, const char *name);
/* Renames the folder into place and sets *folder to NULL.  On failure *folder is unchanged. */
hl_status hl_folder_finish(hl_folder **folder);
/* Gives up: removes the folder and the files in it.  Accepts NULL. */
void hl_folder_abandon(hl_folder *folder);
HL_CLOSES(hl_folder_abandon, hl_folder)

#endif
