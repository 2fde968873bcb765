/* verify.h - what the kinds of verification share: a report, the back ends, and one comparer.
 *
 * A kind (attention cases, files of blocks, models) opens its file, makes a report and
 * hands a function to hl_verify_backends, which calls it once for every back end that
 * the options ask for, with that back end in use.  It computes, and hands pairs of arrays to
 * hl_verify_compare. */
#ifndef HL_MEASURE_VERIFY_H
#define HL_MEASURE_VERIFY_H

#include "base/memory.h"
#include "formats/safetensors.h"
#include "headlight/verify.h"

HL_CLOSES(hl_verify_report_free, hl_verify_report)

/* The kinds; hl_verify finds out which it is. */
hl_status hl_verify_attention(hl_verify_report **out, const char *path,
                              const hl_verify_options *options);
hl_status hl_verify_blocks(hl_verify_report **out, const char *path,
                           const hl_verify_options *options);
hl_status hl_verify_model(hl_verify_report **out, const char *path,
                          const hl_verify_options *options);

/* Scores of size |s| are wrong by about |s| 2^-24 whatever the method: what follows from scores
 * is allowed so much of the largest, where that is more than its tolerance (metrics.md, "Rounding"). */
#define HL_SCORE_ROUNDING (8.0 / 16777216.0)

/* A report on the file at `path`, with room for `n_outputs` entries a back end. */
hl_status hl_verify_report_new(hl_verify_report **out, const char *path, size_t n_outputs);

/* Computes on the back end in use and adds entries to the report; with
 * write_path, stores what was computed there. */
typedef hl_status (*hl_verify_step)(void *context, hl_verify_report *report, const char *backend,
                                    const char *write_path);

/* The back end is a setting of the whole process; it is put back. */
hl_status hl_verify_backends(hl_verify_report *report, const hl_verify_options *options,
                             hl_verify_step step, void *context);

/* What one item of a pair costs, given its index and both values; below 0: it does not count. */
typedef hl_status (*hl_verify_judge)(double *cost, const void *context, size_t index, double ours,
                                     double theirs);

/* An array of ours beside the tensor that another program computed. */
typedef struct hl_verify_pair {
    const char      *output; /* its name in the report */
    const float     *ours;   /* as many as theirs */
    const int64_t   *whole;  /* instead of them, where they are whole numbers */
    const hl_tensor *theirs;
    double           tolerance;
    bool             relative; /* to the largest of theirs */
    hl_verify_judge  judge;    /* NULL: an item costs hl_verify_difference */
    const void      *context;  /* of judge */
} hl_verify_pair;

/* Adds an entry: the largest cost of an item, and where it is. */
hl_status hl_verify_compare(hl_verify_report *report, const char *backend,
                            const hl_verify_pair *pair);
/* Adds an entry that was compared otherwise; `passed` is filled in from its error and tolerance. */
void hl_verify_report_add(hl_verify_report *report, const hl_verify_entry *entry);

/* Is this the name of quantized blocks, as in Q4_K.blocks? */
bool hl_verify_is_blocks(const char *tensor_name);

/* The larger error is infinite where one of two is not a number. */
double hl_verify_difference(double ours, double theirs);

#endif
