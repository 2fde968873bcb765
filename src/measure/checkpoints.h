/* checkpoints.h - of which training step a checkpoint is; those of a folder are in headlight/series.h. */
#ifndef HL_MEASURE_CHECKPOINTS_H
#define HL_MEASURE_CHECKPOINTS_H

#include "headlight/series.h"

/* The training step that a name speaks of; -1: none. */
int64_t hl_checkpoint_step(const char *name);

#endif
