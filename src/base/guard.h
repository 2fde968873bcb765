/* guard.h - which files are mapped where, for the handler of SIGBUS.
 *
 * file.c notes every mapping here; hl_guard_mapped_files of headlight.h installs
 * the handler, if the program wants it. */
#ifndef HL_BASE_GUARD_H
#define HL_BASE_GUARD_H

#include "headlight.h"

void hl_guard_add(const void *mapping, size_t n_bytes, const char *path);
void hl_guard_remove(const void *mapping);

#endif
