/* llama_files.c - writes a GGUF file whose blocks are random bytes with small scales. */
#include "llama_files.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "formats/gguf.h"
#include "gpt2_files.h"

enum { LAYERS = 22, HEADS = 32, KV_HEADS = 4, D = 2048, HEAD = 64, MLP = 5632, VOCAB = 32000 };

const hl_dtype hl_llama_types[HL_LLAMA_N_TYPES] = { HL_DTYPE_Q8_0, HL_DTYPE_Q4_0, HL_DTYPE_Q4_K,
                                                    HL_DTYPE_Q5_K, HL_DTYPE_Q6_K, HL_DTYPE_IQ4_XS };

/* Where a block's scales stand, and what makes weights of 0.02 of them. */
typedef struct scales {
    hl_dtype dtype;
    int      place;
    int      minimum; /* -1: none */
    uint16_t scale;   /* f16 */
    uint16_t least;   /* f16, the minimum's scale */
} scales;

static const scales all_scales[] = {
    { HL_DTYPE_Q8_0, 0, -1, 0x0a00, 0 },     { HL_DTYPE_Q4_0, 0, -1, 0x1c00, 0 },
    { HL_DTYPE_Q4_K, 0, 2, 0x0800, 0x1380 }, { HL_DTYPE_Q5_K, 0, 2, 0x0400, 0x1380 },
    { HL_DTYPE_Q6_K, 208, -1, 0x00f5, 0 },   { HL_DTYPE_IQ4_XS, 0, -1, 0x012e, 0 },
};

static const struct {
    const char *name;
    int64_t     n_rows;
    int64_t     n_columns; /* 0: a vector of ones */
} layer_parts[] = {
    { "attn_norm", D, 0 },           { "attn_q", D, D },      { "attn_k", KV_HEADS *HEAD, D },
    { "attn_v", KV_HEADS *HEAD, D }, { "attn_output", D, D }, { "ffn_norm", D, 0 },
    { "ffn_gate", MLP, D },          { "ffn_up", MLP, D },    { "ffn_down", D, MLP },
};
enum { N_PARTS = sizeof layer_parts / sizeof *layer_parts, MAX_TENSORS = 3 + LAYERS * N_PARTS };

typedef struct llama {
    hl_dtype        dtype;
    hl_gguf_writer *writer;
    uint64_t        counter;
    int             n_tensors;
    char            names[MAX_TENSORS][40];
    void           *data[MAX_TENSORS];
} llama;

static const scales *scales_of(hl_dtype dtype)
{
    const scales *found = all_scales;

    while (found->dtype != dtype)
        found++;
    return found;
}

static void fill_blocks(uint8_t *out, size_t n_blocks, hl_dtype dtype, uint64_t counter)
{
    const scales *s    = scales_of(dtype);
    size_t        size = hl_dtype_block_of(dtype).n_bytes;

#pragma omp parallel for
    for (size_t at = 0; at < n_blocks * size / 8; at++) {
        uint64_t bits = hl_bench_mix(counter + at);
        memcpy(out + 8 * at, &bits, sizeof bits);
    }
#pragma omp parallel for
    for (size_t i = 0; i < n_blocks; i++) {
        memcpy(out + i * size + s->place, &s->scale, 2);
        if (s->minimum >= 0)
            memcpy(out + i * size + s->minimum, &s->least, 2);
    }
}

static hl_status add_tensor(llama *model, const char *name, int64_t n_rows, int64_t n_columns)
{
    hl_dtype       dtype    = n_columns > 0 ? model->dtype : HL_DTYPE_F32;
    hl_dtype_block block    = hl_dtype_block_of(dtype);
    size_t         n_blocks = (size_t)(n_rows * (n_columns > 0 ? n_columns : 1)) / block.n_values;
    uint8_t       *data     = NULL;
    int            i        = model->n_tensors;

    HL_NEED(HL_ALLOC_ZEROED(&data, n_blocks * block.n_bytes + 8));
    model->data[i] = data;
    model->n_tensors++;
    snprintf(model->names[i], sizeof model->names[i], "%s", name);
    for (int64_t j = 0; j < n_rows && n_columns == 0; j++)
        ((float *)(void *)data)[j] = 1.0f;
    if (n_columns > 0)
        fill_blocks(data, n_blocks, dtype, model->counter);
    model->counter += n_blocks * block.n_bytes;
    hl_gguf_add_tensor(model->writer, &(hl_tensor){ .name    = model->names[i],
                                                    .dtype   = dtype,
                                                    .n_dims  = n_columns > 0 ? 2 : 1,
                                                    .shape   = { n_rows, n_columns },
                                                    .data    = data,
                                                    .n_bytes = n_blocks * block.n_bytes });
    return HL_OK;
}

static hl_status add_tensors(llama *model)
{
    char name[40];

    HL_NEED(add_tensor(model, "token_embd.weight", VOCAB, D));
    HL_NEED(add_tensor(model, "output_norm.weight", D, 0));
    HL_NEED(add_tensor(model, "output.weight", VOCAB, D));
    for (int layer = 0; layer < LAYERS; layer++) {
        for (int i = 0; i < N_PARTS; i++) {
            snprintf(name, sizeof name, "blk.%d.%s.weight", layer, layer_parts[i].name);
            HL_NEED(add_tensor(model, name, layer_parts[i].n_rows, layer_parts[i].n_columns));
        }
    }
    return HL_OK;
}

static void add_config(hl_gguf_writer *writer, hl_dtype dtype)
{
    static const struct {
        const char *name;
        int64_t     value;
    } numbers[] = {
        { "general.quantization_version", 2 },
        { "llama.block_count", LAYERS },
        { "llama.context_length", 2048 },
        { "llama.embedding_length", D },
        { "llama.feed_forward_length", MLP },
        { "llama.attention.head_count", HEADS },
        { "llama.attention.head_count_kv", KV_HEADS },
        { "llama.rope.dimension_count", HEAD },
        { "llama.vocab_size", VOCAB },
    };

    hl_gguf_add_text(writer, "general.architecture", "llama");
    hl_gguf_add_text(writer, "general.name", "made-up weights of TinyLlama's shapes");
    hl_gguf_add_int(writer, "general.file_type", HL_GGUF_U32, hl_bench_file_type(dtype));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        hl_gguf_add_int(writer, numbers[i].name, HL_GGUF_U32, numbers[i].value);
    hl_gguf_add_float(writer, "llama.attention.layer_norm_rms_epsilon", HL_GGUF_F32, 1e-5);
    hl_gguf_add_float(writer, "llama.rope.freq_base", HL_GGUF_F32, 10000.0);
}

void hl_llama_file(char *out, size_t n_bytes, const char *folder, hl_dtype dtype)
{
    char name[16];
    int  i = 0;

    for (const char *p = hl_dtype_name(dtype); *p != '\0' && i < 15; p++)
        name[i++] = (char)tolower((unsigned char)*p);
    name[i] = '\0';
    snprintf(out, n_bytes, "%s/llama-%s.gguf", folder, name);
}

hl_status hl_llama_file_make(const char *folder, hl_dtype dtype)
{
    hl_status       status = HL_OK;
    llama           model  = { .dtype = dtype, .counter = (uint64_t)dtype << 40 };
    hl_bench_words *words  = NULL;
    char            path[512];

    hl_llama_file(path, sizeof path, folder, dtype);
    if (access(path, R_OK) == 0)
        return HL_OK;
    HL_TRY(hl_gpt2_folder_make(folder));
    HL_TRY(hl_bench_words_new(&words));
    HL_TRY(hl_gguf_writer_new(&model.writer));
    add_config(model.writer, dtype);
    hl_bench_words_add(model.writer, words, VOCAB);
    HL_TRY(add_tensors(&model));
    HL_TRY(hl_gguf_write(model.writer, path));

done:
    hl_gguf_writer_free(model.writer);
    for (int i = 0; i < model.n_tensors; i++)
        hl_free(model.data[i]);
    hl_free(words);
    return status;
}
