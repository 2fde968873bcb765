/* memory_probe.h - measures the memory of a forward pass beyond its inputs and outputs.
 *
 * A child process fills inputs and outputs, notes its high-water mark, runs the
 * operator and notes it again.  The child is forked, so this must be called
 * before the process has used OpenMP: its threads do not survive a fork. */
#ifndef HL_BENCH_MEMORY_PROBE_H
#define HL_BENCH_MEMORY_PROBE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "headlight.h"

/* The largest memory use of this process so far, in KiB; 0 if the system is not Linux. */
static inline long hl_memory_high_water(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char  line[256];
    long  kib = 0;

    while (file != NULL && kib == 0 && fgets(line, sizeof line, file) != NULL)
        sscanf(line, "VmHWM: %ld", &kib);
    if (file != NULL)
        fclose(file);
    return kib;
}

/* Allocates memory and touches all its pages, with small numbers. */
static inline float *hl_memory_filled(size_t count)
{
    float *numbers = malloc(count * sizeof *numbers);

    for (size_t i = 0; numbers != NULL && i < count; i++)
        numbers[i] = (float)((i * 2654435761u) % 1024) / 512.0f - 1.0f;
    return numbers;
}

/* In the child: returns KiB beyond inputs and outputs for a causal head with all statistics; or
 * -1. */
static inline long hl_memory_measure(int64_t n_keys, int64_t d_head)
{
    size_t              n_numbers = (size_t)(n_keys * d_head);
    float              *rows[4], *stats[12];
    hl_attention        problem = { .n_batch    = 1,
                                    .n_heads    = 1,
                                    .n_kv_heads = 1,
                                    .n_queries  = n_keys,
                                    .n_keys     = n_keys,
                                    .d_head     = d_head,
                                    .d_value    = d_head,
                                    .flags      = HL_ATTENTION_CAUSAL };
    hl_attention_result result  = { 0 };

    for (int i = 0; i < 4; i++)
        rows[i] = hl_memory_filled(n_numbers);
    for (int i = 0; i < 12; i++) /* argmax takes two arrays */
        stats[i] = hl_memory_filled((size_t)n_keys * (i == 0 ? 2 : 1));
    problem.q.data   = rows[0];
    problem.k.data   = rows[1];
    problem.v.data   = rows[2];
    result.out.data  = rows[3];
    result.argmax    = (int64_t *)(void *)stats[0];
    float **wanted[] = { &result.lse,        &result.entropy, &result.renyi2,
                         &result.varentropy, &result.peak,    &result.self,
                         &result.previous,   &result.first,   &result.entropy_nosink };
    for (int i = 0; i < 9; i++)
        *wanted[i] = stats[i + 1];

    long before = hl_memory_high_water();
    if (hl_attention_forward(&result, &problem) != HL_OK)
        return -1;
    return hl_memory_high_water() - before;
}

/* Returns KiB, or -1 if they could not be measured. */
static inline long hl_memory_probe(int64_t n_keys, int64_t d_head)
{
    int  ends[2];
    long kib = -1;

    if (hl_memory_high_water() == 0 || pipe(ends) != 0)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        kib = hl_memory_measure(n_keys, d_head);
        _exit(write(ends[1], &kib, sizeof kib) == (ssize_t)sizeof kib ? 0 : 1);
    }
    close(ends[1]);
    if (child < 0 || read(ends[0], &kib, sizeof kib) != (ssize_t)sizeof kib)
        kib = -1;
    close(ends[0]);
    if (child > 0)
        waitpid(child, NULL, 0);
    return kib;
}

#endif
