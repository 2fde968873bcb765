/* llama2c.h - reading the checkpoints and tokenizers of llama2.c.
 *
 *     HL_CLOSED(hl_llama2c_close) hl_llama2c *file = NULL;
 *     HL_NEED(hl_llama2c_open(&file, "stories15M.bin"));
 *     int64_t n_layers = hl_llama2c_config_of(file)->n_layers;
 *     const hl_tensor *embedding = hl_llama2c_at(file, 0);
 *
 * The file is mapped.  Its tensors get the names and shapes of a Hugging Face Llama,
 * with one difference: rows of q_proj and k_proj are in the order of interleaved
 * rotation, pairs (0, 1), (2, 3) ..., as in GGUF files. */
#ifndef HL_FORMATS_LLAMA2C_H
#define HL_FORMATS_LLAMA2C_H

#include "base/memory.h"
#include "formats/tensors.h"
#include "headlight/base.h"

typedef struct hl_llama2c_config {
    int     version; /* 0 (legacy, without a magic number) or 1 */
    int64_t d_model;
    int64_t d_mlp;
    int64_t n_layers;
    int64_t n_heads;
    int64_t n_kv_heads;
    int64_t d_vocab;
    int64_t n_ctx;
    bool    tied; /* the embedding is also the unembedding; there is no lm_head */
} hl_llama2c_config;

typedef struct hl_llama2c hl_llama2c;

hl_status hl_llama2c_open(hl_llama2c **out, const char *path);
/* Parses bytes in memory that outlives the object; `where` names them in messages. */
hl_status hl_llama2c_parse(hl_llama2c **out, const uint8_t *bytes, size_t n_bytes,
                           const char *where);
void      hl_llama2c_close(hl_llama2c *file);
HL_CLOSES(hl_llama2c_close, hl_llama2c)
/* Whether `bytes` is the beginning of a llama2.c checkpoint of n_bytes in total.  Reads at most the
 * first 256 bytes; n_bytes may be smaller. */
bool hl_llama2c_recognize(const uint8_t *bytes, size_t n_bytes);

/* The configuration and the tensors, in the order of the file.  All are borrowed. */
const hl_llama2c_config *hl_llama2c_config_of(const hl_llama2c *file);
size_t                   hl_llama2c_count(const hl_llama2c *file);
const hl_tensor         *hl_llama2c_at(const hl_llama2c *file, size_t index);

/* ---------------------------------------------------------------- tokenizer */

typedef struct hl_llama2c_piece {
    const char *bytes; /* not NUL-terminated */
    size_t      n_bytes;
    float       score;
} hl_llama2c_piece;

typedef struct hl_llama2c_tokenizer hl_llama2c_tokenizer;

/* A tokenizer.bin: the pieces of a SentencePiece BPE model, by id. */
hl_status hl_llama2c_tokenizer_open(hl_llama2c_tokenizer **out, const char *path);
hl_status hl_llama2c_tokenizer_parse(hl_llama2c_tokenizer **out, const uint8_t *bytes,
                                     size_t n_bytes, const char *where);
void      hl_llama2c_tokenizer_close(hl_llama2c_tokenizer *tokenizer);
HL_CLOSES(hl_llama2c_tokenizer_close, hl_llama2c_tokenizer)

size_t hl_llama2c_tokenizer_count(const hl_llama2c_tokenizer *tokenizer);
/* Borrowed; NULL if the id is out of range. */
const hl_llama2c_piece *hl_llama2c_tokenizer_at(const hl_llama2c_tokenizer *tokenizer, size_t id);

#endif
