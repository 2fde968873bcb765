/* rope.h - rotary positions: their parameters in a description, and their frequencies. */
#ifndef HL_MODEL_ROPE_H
#define HL_MODEL_ROPE_H

#include "headlight/base.h"
#include "model/config.h"
#include "model/fields.h"

/* Reads the rotary parameters from a file. */
hl_status hl_rope_read_json(hl_config *config, const hl_fields *fields);
hl_status hl_rope_read_gguf(hl_config *config, const hl_fields *fields);
/* Fills in what follows from the parameters, once d_head and n_ctx are known. */
hl_status hl_rope_fill(hl_config *config, const hl_fields *fields);

/* out (n_dims/2): pair i at position p is rotated by p * out[i]; cos and sin are then multiplied
 * by the attention factor. n_positions is the final length of the sequence; only dynamic and
 * longrope depend on it. */
void   hl_rope_frequencies(float *out, const hl_rope *rope, int64_t n_positions);
double hl_rope_attention_factor(const hl_rope *rope, int64_t n_positions);

#endif
