/* progress.c - a bar, a rate, and the time that is left. */
#include "progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { WIDTH = 30 };

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

void hl_progress_start(hl_progress *progress, const char *unit, bool quiet)
{
    *progress = (hl_progress){ .unit  = unit,
                               .shown = !quiet && isatty(STDERR_FILENO) != 0,
                               .begin = now() };
}

static void draw_bar(double share)
{
    int filled = (int)(share * WIDTH + 0.5);

    fputs("\r\033[K  ", stderr);
    for (int i = 0; i < WIDTH; i++)
        fputs(i < filled ? "━" : "─", stderr);
}

void hl_progress_update(hl_progress *progress, int64_t done, int64_t total)
{
    double time = progress->shown ? now() : 0.0;

    if (!progress->shown || total <= 0 || time - progress->last < 0.1)
        return;
    progress->last = time;
    double seconds = time - progress->begin;
    double rate    = seconds > 0.0 ? (double)done / seconds : 0.0;
    long   left    = rate > 0.0 ? (long)((double)(total - done) / rate + 0.5) : 0;

    draw_bar((double)done / (double)total);
    fprintf(stderr, " %3d%%  %.0f %s/s  %ld:%02ld left",
            (int)(100.0 * (double)done / (double)total), rate, progress->unit, left / 60,
            left % 60);
    fflush(stderr);
}

void hl_progress_finish(hl_progress *progress)
{
    if (progress->shown)
        fputs("\r\033[K", stderr);
    progress->shown = false;
}
