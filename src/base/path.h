/* path.h - names of files and folders, and what they lead to. */
#ifndef HL_BASE_PATH_H
#define HL_BASE_PATH_H

#include "headlight.h"

/* folder/name, of any folder; release with hl_free. */
hl_status hl_path_join(char **out, const char *folder, const char *name);
/* What stands behind the last slash; within `path`. */
const char *hl_path_name(const char *path);
/* Is there something of that name, or may we not even look? */
bool hl_path_exists(const char *path);
bool hl_path_is_folder(const char *path);

bool hl_ends_with(const char *text, const char *ending);

#endif
