/* neighbors.c - compares two readings of the kernel's count of ticks. */
#include "neighbors.h"

#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

/* Reads the ticks since the machine started: all of them, and the idle ones. */
static bool read_ticks(double *all, double *idle)
{
    FILE  *file     = fopen("/proc/stat", "r");
    double ticks[8] = { 0 }; /* user nice system idle iowait irq softirq steal */
    int    n_read   = 0;

    if (file == NULL)
        return false;
    n_read = fscanf(file, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &ticks[0], &ticks[1], &ticks[2],
                    &ticks[3], &ticks[4], &ticks[5], &ticks[6], &ticks[7]);
    fclose(file);
    *all = 0.0;
    for (int i = 0; i < 8; i++)
        *all += ticks[i];
    *idle = ticks[3] + ticks[4];
    return n_read == 8;
}

double hl_share_in_use(void)
{
    double all[2], idle[2];

    if (!read_ticks(&all[0], &idle[0]))
        return 0.0;
    usleep(500000);
    if (!read_ticks(&all[1], &idle[1]) || all[1] <= all[0])
        return 0.0;
    return 1.0 - (idle[1] - idle[0]) / (all[1] - all[0]);
}
