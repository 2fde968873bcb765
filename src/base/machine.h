/* machine.h - what this machine has: instructions, memory and cores that are left, time. */
#ifndef HL_BASE_MACHINE_H
#define HL_BASE_MACHINE_H

#include "headlight/base.h"

/* Seconds, of a clock that only goes forward. */
double hl_clock_seconds(void);

/* What the processor can execute, and its system will save. */
typedef struct hl_cpu {
    bool avx2;   /* AVX2, FMA and F16C together */
    bool avx512; /* F, BW, DQ and VL together   */
    bool vnni;   /* AVX-512's, with all of these */
    bool neon;
    char name[64]; /* as the processor calls itself, or "" */
} hl_cpu;

/* Looked up once; borrowed. */
const hl_cpu *hl_cpu_features(void);

/* How much memory and how many cores this process may use: the least of what the machine has
 * (MemAvailable of /proc/meminfo) and what the control groups of this process, of version 2 or 1,
 * leave: their limit, less what they hold that cannot be written back to files.
 * hl_memory_available of headlight.h asks it of this system; these of one whose /proc and /sys lie
 * below `root`, where "" is this one.  Memory in bytes, 0: not known. */
size_t hl_available_below(const char *root);
/* Cores that the processor quota of the control groups pays for, rounded up; 0: no quota. */
int hl_available_cores_below(const char *root);

#endif
