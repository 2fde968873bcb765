/* file.h - mapping files for reading, and writing them all or not at all.
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
 * nothing, and `finish` reports it and removes the temporary file. */
#ifndef HL_BASE_FILE_H
#define HL_BASE_FILE_H

#include "headlight.h"

typedef struct hl_file {
    const uint8_t *bytes; /* a read-only mapping; never NULL after success */
    size_t         n_bytes;
    void          *mapping; /* what to unmap; NULL for an empty file */
} hl_file;

hl_status hl_file_map(hl_file *out, const char *path);
void      hl_file_unmap(hl_file *file);

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
/* Goes away, and leaves the temporary file where it is.  Accepts NULL. */
void hl_writer_leave(hl_writer *writer);

#endif
