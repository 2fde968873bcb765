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
static void put_rate(hl_sheet *table, const char *what, int64_t n_tokens, double before,
                     double after, hl_speed_ratio ratio)
{
    hl_sheet_put_text(table, "%s", what);
    hl_sheet_put_reals(table, (double)n_tokens / before, (double)n_tokens / after, ratio.median,
                       ratio.low, ratio.high);
    hl_sheet_put_text(table, "%s",
                      ratio.low > 1.0    ? "faster"
                      : ratio.high < 1.0 ? "slower"
                                         : "no difference");
}

hl_status hl_timing_print(const hl_timing *t)
{
    HL_HELD(hl_sheet_free) hl_sheet *table = NULL;
    const hl_speed                  *a = &t->pair.before, *b = &t->pair.after;

    if (!t->done)
        return HL_OK;
    HL_NEED(hl_sheet_new(&table, "speed", "Tokens per second, both models in turns",
                         "what:t before:1 after:1 ratio:2 lowest:2 highest:2 verdict:t"));
    put_rate(table, "prefill", a->n_prefill, a->prefill_seconds, b->prefill_seconds,
             t->pair.prefill);
    if (a->n_decode > 0)
        put_rate(table, "decode", a->n_decode, a->decode_seconds, b->decode_seconds,
                 t->pair.decode);
    hl_sheet_fact_real(table, "rounds", (double)t->pair.n_rounds);
    HL_NEED(hl_sheet_finish(table));
    printf("\n");
    return hl_print_sheet(table, HL_SHEET_TEXT);
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
