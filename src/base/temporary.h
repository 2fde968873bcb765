/* temporary.h - the names under which outputs are written until they are whole.
 *
 *     hl_temporary temporary = HL_NO_TEMPORARY;
 *     HL_TRY(hl_temporary_file(&temporary, &descriptor, "DIR/NAME"));
 *     ... write, close the descriptor, rename temporary.name to DIR/NAME ...
 *     hl_temporary_free(&temporary);
 *
 * Something that is being written has the name DIR/.NAME.XXXXXX.headlight.tmp, with six random
 * letters, and is locked by its process (flock) until hl_temporary_free.  A process that is killed
 * leaves the name behind but not the lock: whoever next writes to the same folder takes such names
 * away.  Nothing depends on process ids, which are used again and differ between containers.  What
 * is locked, belongs to another user, or has another name is never touched, nor is anything on a file
 * system without locks. */
#ifndef HL_BASE_TEMPORARY_H
#define HL_BASE_TEMPORARY_H

#include "headlight.h"

typedef struct hl_temporary {
    char *name; /* NULL: there is none */
    int   lock; /* a descriptor that holds the lock, or -1 */
} hl_temporary;

#define HL_NO_TEMPORARY ((hl_temporary){ .name = NULL, .lock = -1 })

/* An empty file beside `path`, open for writing; its mode follows the umask. */
hl_status hl_temporary_file(hl_temporary *out, int *descriptor, const char *path);
/* An empty folder beside `path`. */
hl_status hl_temporary_folder(hl_temporary *out, const char *path);
/* Removes the file, or the folder with the files in it, if it is still there, and frees the rest. */
void hl_temporary_remove(hl_temporary *temporary);
/* Gives up the lock and the name; the file or folder stays as it is called now. */
void hl_temporary_free(hl_temporary *temporary);

#endif
