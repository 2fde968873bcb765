/* cpu.h - what this processor can execute (and its system will save). */
#ifndef HL_BASE_CPU_H
#define HL_BASE_CPU_H

#include "headlight.h"

typedef struct hl_cpu {
    bool avx2;   /* AVX2, FMA and F16C together */
    bool avx512; /* F, BW, DQ and VL together   */
    bool vnni;   /* AVX-512's, with all of these */
    bool neon;
    char name[64]; /* as the processor calls itself, or "" */
} hl_cpu;

/* Looked up once; borrowed. */
const hl_cpu *hl_cpu_features(void);

#endif
