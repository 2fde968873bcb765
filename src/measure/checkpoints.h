/* checkpoints.h - the training step of a checkpoint; headlight/series.h lists those of a folder. */
#ifndef HL_MEASURE_CHECKPOINTS_H
#define HL_MEASURE_CHECKPOINTS_H

#include "headlight/series.h"

/* Returns the training step in a file name; -1 if there is none. */
int64_t hl_checkpoint_step(const char *name);

#endif
