/* verify.h - what the kinds of verification share: a report, the back ends, and the comparison.
 *
 * A kind (attention cases, files of blocks, models) opens its file, makes a report and passes a
 * function to hl_verify_backends.  The function is called once for every back end that the options
 * select, with that back end in use.  It computes and passes pairs of arrays to
 * hl_verify_compare. */
#ifndef HL_MEASURE_VERIFY_H
#define HL_MEASURE_VERIFY_H

#include "base/memory.h"
#include "formats/safetensors.h"
#include "headlight/verify.h"

HL_CLOSES(hl_verify_report_free, hl_verify_report)
HL_CLOSES(hl_verify_chats_free, hl_verify_chats)

/* The kinds of verification; hl_verify finds out which one a file needs. */
hl_status hl_verify_attention(hl_verify_report **out, const char *path,
                              const hl_verify_options *options);
hl_status hl_verify_blocks(hl_verify_report **out, const char *path,
                           const hl_verify_options *options);
hl_status hl_verify_model(hl_verify_report **out, const char *path,
                          const hl_verify_options *options);

/* Scores of size |s| have an error of about |s| 2^-24 whatever the method.  Values computed from
 * scores may differ by this share of the largest score, where that exceeds their tolerance
 * (metrics.md, "Rounding"). */
#define HL_SCORE_ROUNDING (8.0 / 16777216.0)

/* Makes a report on the file at `path`, with room for `n_outputs` entries per back end. */
hl_status hl_verify_report_new(hl_verify_report **out, const char *path, size_t n_outputs);

/* Returns the name of a case: "gqa" for "dir/gqa.safetensors", "demo-1.5" for the folder
 * "models/demo-1.5/". */
hl_status hl_verify_case_name(char **out, const char *path);

/* Computes on the back end in use and adds entries to the report.  With write_path, the results
 * are also stored there. */
typedef hl_status (*hl_verify_step)(void *context, hl_verify_report *report, const char *backend,
                                    const char *write_path);

/* Runs `step` on each back end.  The back end is a setting of the whole process; the previous one
 * is restored at the end. */
hl_status hl_verify_backends(hl_verify_report *report, const hl_verify_options *options,
                             hl_verify_step step, void *context);

/* The cost of one item of a pair, given its index and both values; a negative cost is ignored. */
typedef hl_status (*hl_verify_judge)(double *cost, const void *context, size_t index, double ours,
                                     double theirs);

/* One of our arrays, and the tensor that another program computed. */
typedef struct hl_verify_pair {
    const char      *output; /* the array's name in the report */
    const float     *ours;   /* as many values as in `theirs` */
    const int64_t   *whole;  /* used instead of `ours` if the values are integers */
    const hl_tensor *theirs;
    double           tolerance;
    bool             relative; /* tolerance is relative to the largest value of `theirs` */
    hl_verify_judge  judge;    /* NULL: the cost of an item is hl_verify_difference */
    const void      *context;  /* passed to `judge` */
} hl_verify_pair;

/* Adds an entry with the largest cost of an item, and its index. */
hl_status hl_verify_compare(hl_verify_report *report, const char *backend,
                            const hl_verify_pair *pair);
/* Adds an entry that was compared by the caller; `passed` is filled in from its error and
 * tolerance. */
void hl_verify_report_add(hl_verify_report *report, const hl_verify_entry *entry);

/* Returns true for names of quantized blocks, such as Q4_K.blocks. */
bool hl_verify_is_blocks(const char *tensor_name);

/* Returns |ours - theirs|; infinite if one of the two is NaN. */
double hl_verify_difference(double ours, double theirs);

#endif
