/* folder.h - folders that are written all or not at all.
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
#ifndef HL_BASE_FOLDER_H
#define HL_BASE_FOLDER_H

#include "headlight.h"

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

/* Copies a file, whole or not at all. */
hl_status hl_file_copy(const char *to, const char *from);

#endif
