/* npy.h - reading .npy files, NumPy's format for one array.
 *
 * The file is mapped; the array becomes a tensor whose bytes are borrowed from the
 * mapping.  Every number in the header is checked against the file when it is opened. */
#ifndef HL_FORMATS_NPY_H
#define HL_FORMATS_NPY_H

#include "formats/tensors.h"
#include "headlight/base.h"

typedef struct hl_npy hl_npy;

hl_status hl_npy_open(hl_npy **out, const char *path);
/* Parses bytes in memory that outlives the object; `where` names them in messages. */
hl_status hl_npy_parse(hl_npy **out, const uint8_t *bytes, size_t n_bytes, const char *where);
void      hl_npy_close(hl_npy *file);
HL_CLOSES(hl_npy_close, hl_npy)
/* Borrowed; its name is "". */
const hl_tensor *hl_npy_tensor(const hl_npy *file);

/* Whether the bytes begin like a .npy file. */
bool hl_npy_is(const uint8_t *bytes, size_t n_bytes);

#endif
