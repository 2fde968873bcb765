/* available.h - how much memory and how many cores this process may use.
 *
 * The least of what the machine has (MemAvailable of /proc/meminfo) and what the control
 * groups of this process, of version 2 or 1, leave: their limit, less what they hold that cannot
 * be written back to files.  hl_memory_available of headlight.h asks it of this system. */
#ifndef HL_BASE_AVAILABLE_H
#define HL_BASE_AVAILABLE_H

#include "headlight.h"

/* Of a system whose /proc and /sys lie below `root`; "": this one.  0: not known. */
size_t hl_available_below(const char *root);
/* Cores that the processor quota of the control groups pays for, rounded up; 0: no quota. */
int hl_available_cores_below(const char *root);

#endif
