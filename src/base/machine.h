/* machine.h - this machine: its instructions, available memory and cores, and its clock. */
#ifndef HL_BASE_MACHINE_H
#define HL_BASE_MACHINE_H

#include "headlight/base.h"

/* Seconds on a monotonic clock. */
double hl_clock_seconds(void);

/* Instruction sets that the processor can execute and whose registers the system saves. */
typedef struct hl_cpu {
    bool avx2;   /* AVX2, FMA and F16C together */
    bool avx512; /* F, BW, DQ and VL together   */
    bool vnni;   /* AVX-512 VNNI, and avx512 */
    bool bf16;   /* AVX-512 BF16, and avx512 */
    bool neon;
    char name[64]; /* the processor's own model name, or "" */
} hl_cpu;

/* Looked up once; borrowed. */
const hl_cpu *hl_cpu_features(void);

/* The memory in bytes that this process may use; 0: not known.  It is the smaller of what the
 * machine has (MemAvailable in /proc/meminfo) and what the process's control groups, version 2 or
 * 1, leave: their limit less their memory that cannot be written back to files.  /proc and /sys
 * are read below `root`; "" is this system, for which hl_memory_available (headlight.h) asks. */
size_t hl_available_below(const char *root);
/* The number of cores that the CPU quota of the control groups allows, rounded up; 0: no quota. */
int hl_available_cores_below(const char *root);

#endif
