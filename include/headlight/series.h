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
 * The checkpoints in a folder are the folders in it that have a config.json and weights
 * (.safetensors, or .bin: opening these gives an error that says what to do), and its .gguf files;
 * of a split file, only the first part is listed.  Names that begin with a dot or with "tmp" are
 * ignored, since these files may be incomplete; so are names that are not UTF-8.  The step in a
 * name is the number after the first of the words "step(s)", "checkpoint", "ckpt", "iter(ation)"
 * or "epoch" that is followed by a number; otherwise it is the last number before the extension
 * and before the part number of a split file. */

typedef struct hl_checkpoint {
    char   *path;
    char   *name;     /* last part of the path: "checkpoint-500" */
    int64_t step;     /* step that the name gives */
    int64_t n_bytes;  /* size of config.json and weights */
    int64_t modified; /* last change of config.json and weights: nanoseconds since 1970 */
} hl_checkpoint;

typedef struct hl_checkpoints {
    hl_checkpoint *items; /* (count) sorted by step, then by name */
    int64_t        count;
    int64_t        n_unnumbered;     /* number of checkpoints left out, since their names have no
                                      * number */
    char          *first_unnumbered; /* one of the checkpoints left out; NULL if there is none */
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
 * A series has one point per checkpoint, in the order in which they were measured, all on the same
 * text and in the same way.  Its file has lines of JSON, described in doc/watch.md; each write
 * replaces the whole file.
 *
 * Any number of threads may read a series at once; no other thread may use it during
 * hl_series_add. */

typedef struct hl_series hl_series;

/* A point is owned by the series and valid until the next hl_series_add. */
typedef struct hl_series_point {
    char   *name;
    int64_t step;
    int64_t n_bytes;    /* size of the checkpoint, to detect changes */
    int64_t modified;   /* time of the checkpoint's last change, to detect changes */
    int64_t n_tokens;   /* number of tokens measured */
    double  entropy;    /* mean over heads, nats; NaN: not measured */
    double  normalized; /* mean over heads, of rows that see at least 16 keys; NaN: not measured */
    double  nll;        /* nats per token; NaN: not measured */
    /* The mean normalized entropy of all heads, measured for each sequence. */
    int64_t n_sequences;
    double  level;  /* mean over sequences */
    double  median; /* median over sequences */
    double  sigma;  /* robust standard deviation over sequences */
    /* How far `level` lies below the highest median of the earlier checkpoints (of those since
     * which attention collapsed, if there are any); the same in sigmas of that checkpoint; and the
     * step of that checkpoint, -1 if there is none to compare with. */
    double     drop;
    double     drop_errors;
    int64_t    since;
    hl_verdict verdicts[HL_N_DIAGNOSES]; /* in the order of hl_diagnosis_name */
    double     values[HL_N_DIAGNOSES];
    char      *findings[HL_N_DIAGNOSES]; /* the findings in words; "" for a check that found
                                          * nothing */
    float     *heads_entropy;            /* (n_layers, n_heads) nats; NaN for heads that a layer
                                          * lacks */
    float     *heads_normalized;         /* (n_layers, n_heads) */
} hl_series_point;

/* The checkpoint and the text that a profile was measured on. */
typedef struct hl_series_entry {
    const char *name; /* UTF-8, not empty */
    int64_t     step; /* not negative */
    int64_t     n_bytes;
    int64_t     modified;
    uint64_t    text; /* hash of the text, as in hl_corpus_info */
} hl_series_entry;

typedef struct hl_series_options {
    const hl_thresholds *thresholds; /* NULL: the defaults */
    int64_t              n_back;     /* number of earlier checkpoints that the level is compared
                                      * with; 0: 5 */
} hl_series_options;

HL_API hl_status hl_series_new(hl_series **out);
HL_API void      hl_series_free(hl_series *series);
HL_API hl_status hl_series_load(hl_series **out, const char *path);
HL_API hl_status hl_series_write(const hl_series *series, const char *path);

/* Diagnoses the profile and adds a point at the end, or replaces the point of the same name.
 * Entropy-collapse is also looked for against the highest of the n_back previous steps, as
 * hl_diagnose does against an earlier profile, and head-drift against the step just before.
 * Returns HL_BAD_INPUT, with the difference, for a profile of another shape or text, or one that
 * was measured in another way. */
HL_API hl_status hl_series_add(hl_series *series, const hl_profile *profile,
                               const hl_series_entry *entry, const hl_series_options *options);

HL_API int64_t hl_series_n_points(const hl_series *series);
HL_API int64_t hl_series_n_layers(const hl_series *series); /* 0: the series is empty */
HL_API int64_t hl_series_n_heads(const hl_series *series);  /* largest number in any layer */
/* hl_series_at returns points in the order in which they were added.  hl_series_find returns the
 * point of a name, or NULL. */
HL_API const hl_series_point *hl_series_at(const hl_series *series, int64_t index);
HL_API const hl_series_point *hl_series_find(const hl_series *series, const char *name);
/* Renders a point as its line of the file, without the line end.  Release *out with hl_free. */
HL_API hl_status hl_series_render(char **out, const hl_series *series, int64_t index);

/* Updates FOLDER/events.out.tfevents.0000000000.headlight, which TensorBoard reads, and creates the
 * folder if necessary.  New points are appended, since TensorBoard reads a file once; if the file
 * does not begin with the series' earlier points, it is rewritten.  Times are those of the
 * checkpoints, so the same series gives the same bytes. */
HL_API hl_status hl_series_write_events(const hl_series *series, const char *folder);

#ifdef __cplusplus
}
#endif
#endif
