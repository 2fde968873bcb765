/* gpt2_files.h - a model of GPT-2's shapes with random weights, in every format that the benchmark
 * and its peers read.
 *
 *     hl_gpt2_files_make("build/bench")
 *
 * writes those of these files that are missing:
 *
 *     gpt2-f32.gguf  gpt2-f16.gguf  gpt2-q8_0.gguf  gpt2-q4_0.gguf
 *     hf-f32/  hf-f16/            config.json and model.safetensors
 *
 * 12 layers, 12 heads, d_model 768, 50257 tokens, 1024 positions: 124 million
 * weights, drawn as GPT-2's are before training, the same in every file and on every
 * machine.  In the GGUF files matrices have the type of the name, and vectors
 * and positions are F32, as llama.cpp's converter leaves them. */
#ifndef HL_BENCH_GPT2_FILES_H
#define HL_BENCH_GPT2_FILES_H

#include "formats/gguf.h"
#include "headlight.h"

enum {
    HL_GPT2_LAYERS = 12,
    HL_GPT2_HEADS  = 12,
    HL_GPT2_MODEL  = 768,
    HL_GPT2_VOCAB  = 50257,
    HL_GPT2_CTX    = 1024,
};

/* Creates the folder if necessary; its parent must exist. */
hl_status hl_gpt2_files_make(const char *folder);
/* Writes the path of the GGUF file of a type: F32, F16, Q8_0 or Q4_0. */
void hl_gpt2_file(char *out, size_t n_bytes, const char *folder, hl_dtype dtype);

/* For files of other shapes: a folder, unless it is there, a random number of a counter, llama.cpp's number for a file that is
 * mostly of a type, and a vocabulary that tokenizes any text: the 256 letters of byte-level BPE,
 * then pairs of them in the order of their merges, then the end-of-text token. */
typedef struct hl_bench_words hl_bench_words;

hl_status hl_gpt2_folder_make(const char *path);
uint64_t  hl_bench_mix(uint64_t counter);
int64_t   hl_bench_file_type(hl_dtype dtype);
hl_status hl_bench_words_new(hl_bench_words **out); /* hl_free */
/* n_tokens: at most HL_GPT2_VOCAB. */
void hl_bench_words_add(hl_gguf_writer *writer, hl_bench_words *words, int64_t n_tokens);

#endif
