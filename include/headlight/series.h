/* headlight/series.h - a training run, checkpoint by checkpoint.
 * Part of headlight.h, which see for the conventions. */
#ifndef HEADLIGHT_SERIES_H
#define HEADLIGHT_SERIES_H

#include "analysis.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------- checkpoints
 *
 *     hl_checkpoints *found = NULL;
 *     if (hl_checkpoints_list(&found, "runs/first") == HL_OK)
 *         for (int64_t i = 0; i < found->count; i++)
 *             printf("%lld %s\n", (long long)found->items[i].step, found->items[i].path);
 *     hl_checkpoints_free(found);
 *
 * Checkpoints are the folders in a folder that have a config.json and weights (.safetensors;
 * .bin, so that opening them can say what to do), and its .gguf files; of a split one the
 * first part.  Names that begin with a dot or with "tmp", and those that are not UTF-8, are
 * passed over: somebody is still writing, or will not be understood.  A name's step is the number
 * behind "step(s)", "checkpoint", "ckpt", "iter(ation)" or "epoch", the first of these words that has
 * one; else the last number before the ending and before the part of a split file. */

typedef struct hl_checkpoint {
    char   *path;
    char   *name;     /* its last part: "checkpoint-500" */
    int64_t step;     /* by its name */
    int64_t n_bytes;  /* of config.json and weights, as the next */
    int64_t modified; /* when the last of them was changed: nanoseconds since 1970 */
} hl_checkpoint;

typedef struct hl_checkpoints {
    hl_checkpoint *items; /* (count) by step, then by name */
    int64_t        count;
    int64_t        n_unnumbered;     /* that were left out: no number in their names */
    char          *first_unnumbered; /* one of them; NULL if there is none */
} hl_checkpoints;

HL_API hl_status hl_checkpoints_list(hl_checkpoints **out, const char *folder);
HL_API void      hl_checkpoints_free(hl_checkpoints *checkpoints);

/* ------------------------------------------------------------------ series
 *
 *     hl_series_new(&series);
 *     hl_series_add(series, profile, &(hl_series_entry){ .name = "checkpoint-500", .step = 500 },
 *                   NULL);
 *     hl_series_write(series, "first.jsonl");
 *
 * What the profiles of a run's checkpoints say, in the order in which they were measured, all on
 * the same text and in the same way.  The file is lines of JSON, which doc/watch.md
 * describes; it is written whole each time.
 *
 * Any number of threads may read a series at once; hl_series_add needs it alone. */

typedef struct hl_series hl_series;

/* Owned by the series; valid until the next hl_series_add. */
typedef struct hl_series_point {
    char   *name;
    int64_t step;
    int64_t n_bytes;    /* as the checkpoint's: is it still the same? */
    int64_t modified;   /* likewise */
    int64_t n_tokens;   /* measured */
    double  entropy;    /* mean over heads, nats; NaN: not measured, as all that follow */
    double  normalized; /* mean over heads, normalized, of rows that see at least 16 keys */
    double  nll;        /* nats a token */
    /* The mean normalized entropy of all heads, by sequence. */
    int64_t n_sequences;
    double  level;  /* its mean */
    double  median; /* and median, with */
    double  sigma;  /* a robust standard deviation */
    /* How far `level` lies below the highest median of the checkpoints before (of those since which
     * attention collapsed, if there are any), in that one's sigmas; and the step of that one, -1: there
     * is none to compare with. */
    double     fall;
    double     drop; /* the same in normalized entropy */
    int64_t    since;
    hl_verdict verdicts[HL_N_DIAGNOSES]; /* in the order of hl_diagnosis_name */
    double     values[HL_N_DIAGNOSES];
    char      *findings[HL_N_DIAGNOSES]; /* in words; "" where there is nothing to say */
    float     *heads_entropy;            /* (n_layers, n_heads) nats; NaN: no such head */
    float     *heads_normalized;         /* (n_layers, n_heads) */
} hl_series_point;

/* Which checkpoint a profile is of, and on what text. */
typedef struct hl_series_entry {
    const char *name; /* UTF-8, not "" */
    int64_t     step; /* from 0 on */
    int64_t     n_bytes;
    int64_t     modified;
    uint64_t    text; /* hl_corpus_info's hash */
} hl_series_entry;

typedef struct hl_series_options {
    const hl_thresholds *thresholds; /* NULL: the defaults */
    int64_t              n_back;     /* how many checkpoints a fall is looked for in; 0: 5 */
} hl_series_options;

HL_API hl_status hl_series_new(hl_series **out);
HL_API void      hl_series_free(hl_series *series);
HL_API hl_status hl_series_load(hl_series **out, const char *path);
HL_API hl_status hl_series_write(const hl_series *series, const char *path);

/* Diagnoses the profile and adds a point behind the others, in place of one that has the same
 * name.  Entropy-collapse is also looked for against the highest of the n_back steps before, as
 * hl_diagnose does against an earlier profile, and head-drift against the step just before.  HL_BAD_INPUT, saying what differs, for a
 * profile of another shape, of another text, or measured in another way. */
HL_API hl_status hl_series_add(hl_series *series, const hl_profile *profile,
                               const hl_series_entry *entry, const hl_series_options *options);

HL_API int64_t hl_series_n_points(const hl_series *series);
HL_API int64_t hl_series_n_layers(const hl_series *series); /* 0: nothing was added yet */
HL_API int64_t hl_series_n_heads(const hl_series *series);  /* the most of any layer */
/* By the order in which they were added; and by name, NULL if there is none. */
HL_API const hl_series_point *hl_series_at(const hl_series *series, int64_t index);
HL_API const hl_series_point *hl_series_find(const hl_series *series, const char *name);
/* The point's line of the file, without its end; *out is released with hl_free. */
HL_API hl_status hl_series_render(char **out, const hl_series *series, int64_t index);

/* Brings FOLDER/events.out.tfevents.0000000000.headlight up to date, which TensorBoard reads; the
 * folder is made if it is not there.  New points are appended, as whoever is looking expects; where
 * the file does not begin as the series does, it is written anew.  Times are those of the
 * checkpoints: the same series is the same bytes. */
HL_API hl_status hl_series_write_events(const hl_series *series, const char *folder);

#ifdef __cplusplus
}
#endif
#endif
