/* verify.h - what the kinds of verification share: a report, and the back ends.
 *
 * A kind (attention cases, files of blocks) opens its file, makes a report and
 * hands a function to hl_verify_backends, which calls it once for every back end that
 * the options ask for, with that back end in use. */
#ifndef HL_MEASURE_VERIFY_H
#define HL_MEASURE_VERIFY_H

#include "headlight/verify.h"

/* A report on the file at `path`, with room for `n_outputs` entries a back end. */
hl_status hl_verify_report_new(hl_verify_report **out, const char *path, size_t n_outputs);

/* Computes on the back end in use and adds entries to the report; with
 * write_path, stores what was computed there. */
typedef hl_status (*hl_verify_step)(void *context, hl_verify_report *report, const char *backend,
                                    const char *write_path);

/* The back end is a setting of the whole process; it is put back. */
hl_status hl_verify_backends(hl_verify_report *report, const hl_verify_options *options,
                             hl_verify_step step, void *context);

/* Adds an entry; `passed` is filled in from its error and tolerance. */
void hl_verify_report_add(hl_verify_report *report, const hl_verify_entry *entry);

/* Is this the name of quantised blocks, as in Q4_K.blocks? */
bool hl_verify_is_blocks(const char *tensor_name);

/* The larger error is infinite where only one of two is not a number. */
double hl_verify_difference(double ours, double wanted);

#endif
