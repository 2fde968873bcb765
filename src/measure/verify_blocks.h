/* verify_blocks.h - files of quantised blocks and the values read from them. */
#ifndef HL_MEASURE_VERIFY_BLOCKS_H
#define HL_MEASURE_VERIFY_BLOCKS_H

#include "headlight.h"

/* Is this the name of blocks, as in Q4_K.blocks? */
bool hl_verify_is_blocks(const char *tensor_name);

#endif
