/* llama_files.h - files of TinyLlama-1.1B's shapes with random weights, of one GGUF type each.
 *
 *     hl_llama_file_make("build/bench", HL_DTYPE_Q4_K)
 *
 * writes build/bench/llama-q4_k.gguf if it is missing: 22 layers, 32 heads on 4 KV heads, d_model
 * 2048, MLPs of 5632, 32000 tokens.  The bytes of blocks are random, and their scales are such that
 * weights are about 0.02: how fast products are does not depend on the values. */
#ifndef HL_BENCH_LLAMA_FILES_H
#define HL_BENCH_LLAMA_FILES_H

#include "headlight.h"

/* The types that can be made. */
#define HL_LLAMA_N_TYPES 6
extern const hl_dtype hl_llama_types[HL_LLAMA_N_TYPES];

/* Weights that a token is multiplied with, without the unembedding. */
#define HL_LLAMA_PRODUCTS (22.0 * (2 * 2048.0 * 2048 + 2 * 2048.0 * 256 + 3 * 2048.0 * 5632))

void      hl_llama_file(char *out, size_t n_bytes, const char *folder, hl_dtype dtype);
hl_status hl_llama_file_make(const char *folder, hl_dtype dtype);

#endif
