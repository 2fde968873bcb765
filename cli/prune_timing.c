/* prune_timing.c - speed, memory and size of the model before and after pruning. */
#include "prune_parts.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "held.h"
#include "shared_options.h"
#include "values.h"

enum { PREFILL = 128, DECODE = 16, ROUNDS = 9 };

/* Bytes of a file, or of a folder's weights: model*.safetensors, with index and code. */
static size_t bytes_on_disk(const char *path)
{
    struct stat about;
    size_t      bytes  = 0;
    DIR        *folder = NULL;

    if (stat(path, &about) != 0)
        return 0;
    if (!S_ISDIR(about.st_mode))
        return (size_t)about.st_size;
    folder = opendir(path);
    if (folder == NULL)
        return 0;
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        if (strncmp(entry->d_name, "model", 5) == 0 &&
            fstatat(dirfd(folder), entry->d_name, &about, 0) == 0 && S_ISREG(about.st_mode))
            bytes += (size_t)about.st_size;
    }
    closedir(folder);
    return bytes;
}

hl_status hl_timing_take(hl_timing *out, const hl_model *model, const char *before,
                         const char *path, const char *device, int32_t n_threads)
{
    HL_HELD(hl_model_close) hl_model *written = NULL;
    const hl_model_info              *info    = hl_model_get_info(model);
    int64_t                           tokens[PREFILL];

    for (int64_t i = 0; i < PREFILL; i++) /* the time does not depend on the tokens */
        tokens[i] = (i * 37 + 11) % info->d_vocab;
    HL_NEED(hl_model_open_on(&written, path, device));
    HL_NEED(hl_measure_speeds(&out->pair, model, written, tokens, PREFILL,
                              &(hl_speed_options){ .n_prefill = PREFILL,
                                                   .n_decode  = info->is_encoder ? -1 : DECODE,
                                                   .n_rounds  = ROUNDS,
                                                   .n_threads = n_threads }));
    out->files_before = bytes_on_disk(before);
    out->files_after  = bytes_on_disk(path);
    out->done         = true;
    return HL_OK;
}

/* ------------------------------------------------------------------ for people */

/* A ratio of times is a gain or a loss where all rounds agree. */
static void print_rate(const char *what, int64_t n_tokens, double before, double after,
                       hl_speed_ratio ratio)
{
    printf("  %-18s %14.1f %14.1f ", what, (double)n_tokens / before, (double)n_tokens / after);
    if (ratio.low > 1.0 || ratio.high < 1.0)
        printf("  %.2fx, rounds %.2f to %.2f\n", ratio.median, ratio.low, ratio.high);
    else
        printf("  no difference, rounds %.2f to %.2f\n", ratio.low, ratio.high);
}

static void print_bytes(const char *what, size_t before, size_t after)
{
    double change = before > 0 ? 100.0 * ((double)after / (double)before - 1.0) : 0.0;

    printf("  %-18s %14s %14s %8.1f%%\n", what, hl_grouped((int64_t)before),
           hl_grouped((int64_t)after), change + 0.0);
}

void hl_timing_print(const hl_timing *t)
{
    const hl_speed *a = &t->pair.before, *b = &t->pair.after;

    if (!t->done)
        return;
    printf("\n  Run side by side, %lld rounds in turns:\n", (long long)t->pair.n_rounds);
    print_rate("prefill tokens/s", a->n_prefill, a->prefill_seconds, b->prefill_seconds,
               t->pair.prefill);
    if (a->n_decode > 0)
        print_rate("decode tokens/s", a->n_decode, a->decode_seconds, b->decode_seconds,
                   t->pair.decode);
    print_bytes("memory", a->weight_bytes + a->session_bytes, b->weight_bytes + b->session_bytes);
    print_bytes("on disk", t->files_before, t->files_after);
}

/* --------------------------------------------------------------------- as JSON */

static json_t *ratio_json(hl_speed_ratio ratio)
{
    return HL_OBJECT(HL_IS("median", ratio.median), HL_IS("low", ratio.low),
                     HL_IS("high", ratio.high));
}

static json_t *speed_json(const hl_speed *speed, size_t files)
{
    bool decodes = speed->n_decode > 0;

    return HL_OBJECT(
        HL_IS("prefill_per_second", (double)speed->n_prefill / speed->prefill_seconds),
        HL_IS("decode_per_second",
              decodes ? json_real((double)speed->n_decode / speed->decode_seconds) : NULL),
        HL_IS("memory_bytes", speed->weight_bytes + speed->session_bytes),
        HL_IS("cache_bytes", speed->cache_bytes), HL_IS("file_bytes", files));
}

json_t *hl_timing_json(const hl_timing *t)
{
    if (!t->done)
        return NULL;
    return HL_OBJECT(
        HL_IS("rounds", t->pair.n_rounds), HL_IS("prefill_tokens", t->pair.before.n_prefill),
        HL_IS("decode_tokens", t->pair.before.n_decode),
        HL_IS("before", speed_json(&t->pair.before, t->files_before)),
        HL_IS("after", speed_json(&t->pair.after, t->files_after)),
        HL_IS("prefill", ratio_json(t->pair.prefill)),
        HL_IS("decode", t->pair.before.n_decode > 0 ? ratio_json(t->pair.decode) : NULL));
}
