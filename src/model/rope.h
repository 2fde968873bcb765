/* rope.h - the frequencies that rotary positions turn with. */
#ifndef HL_MODEL_ROPE_H
#define HL_MODEL_ROPE_H

#include "headlight.h"
#include "model/config.h"

/* out (n_dims/2): pair i at position p turns by p * out[i]; cos and sin are then
 * multiplied by rope->attention_factor.  n_positions is how long the sequence will
 * be: dynamic and longrope depend on it, the other kinds do not. */
void hl_rope_frequencies(float *out, const hl_rope *rope, int64_t n_positions);

#endif
