/* gpt2_files.c - makes random weights, and the files that hold them.
 *
 * Number i of tensor t is a function of (t, i) alone: the four 16-bit parts of a mixed 64-bit
 * counter, added up, which is close to normal.  Weights have GPT-2's standard deviation before
 * training: 0.02, and 0.02 / sqrt(2 n_layers) at the end of a branch.  Norms are near 1 and biases
 * near 0, but not equal to them, so that a program that omits one of them gives a different result.
 *
 * Hugging Face stores GPT-2's maps as (in, out), GGUF as (out, in). */
#include "gpt2_files.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dtype.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "kernels/quant.h"
#include "tokenize/byte_level.h"

enum {
    D          = HL_GPT2_MODEL,
    MAX_PATH   = 512,
    MAX_PARTS  = 4 + 12 * HL_GPT2_LAYERS,
    N_BYTES    = 256,                         /* the first tokens are the single bytes */
    N_MERGES   = HL_GPT2_VOCAB - 1 - N_BYTES, /* the last token is <|endoftext|> */
    PIECE_SIZE = 8,                           /* room for two letters and the space of a merge */
};

/* ------------------------------------------------------------------- weights */

typedef struct part_shape {
    const char *hf;   /* name in Hugging Face; %d: the layer */
    const char *gguf; /* name in GGUF; for layers, what follows "blk.N." */
    int64_t     n_rows;
    int64_t     n_columns; /* 0: the weight is a vector */
    float       deviation;
    float       mean;
    bool        transposed; /* stored as (in, out) in hf */
    bool        stays_f32;  /* F32 in every GGUF file */
} part_shape;

#define BRANCH_END (0.02f / 4.898979f) /* sqrt(24) */

static const part_shape model_parts[] = {
    { "wte.weight", "token_embd.weight", HL_GPT2_VOCAB, D, 0.02f, 0, false, false },
    { "wpe.weight", "position_embd.weight", HL_GPT2_CTX, D, 0.01f, 0, false, true },
    { "ln_f.weight", "output_norm.weight", D, 0, 0.02f, 1, false, true },
    { "ln_f.bias", "output_norm.bias", D, 0, 0.02f, 0, false, true },
};

static const part_shape layer_parts[] = {
    { "h.%d.ln_1.weight", "attn_norm.weight", D, 0, 0.02f, 1, false, true },
    { "h.%d.ln_1.bias", "attn_norm.bias", D, 0, 0.02f, 0, false, true },
    { "h.%d.attn.c_attn.weight", "attn_qkv.weight", D, 3 * D, 0.02f, 0, true, false },
    { "h.%d.attn.c_attn.bias", "attn_qkv.bias", 3 * D, 0, 0.02f, 0, false, true },
    { "h.%d.attn.c_proj.weight", "attn_output.weight", D, D, BRANCH_END, 0, true, false },
    { "h.%d.attn.c_proj.bias", "attn_output.bias", D, 0, 0.02f, 0, false, true },
    { "h.%d.ln_2.weight", "ffn_norm.weight", D, 0, 0.02f, 1, false, true },
    { "h.%d.ln_2.bias", "ffn_norm.bias", D, 0, 0.02f, 0, false, true },
    { "h.%d.mlp.c_fc.weight", "ffn_up.weight", D, 4 * D, 0.02f, 0, true, false },
    { "h.%d.mlp.c_fc.bias", "ffn_up.bias", 4 * D, 0, 0.02f, 0, false, true },
    { "h.%d.mlp.c_proj.weight", "ffn_down.weight", 4 * D, D, BRANCH_END, 0, true, false },
    { "h.%d.mlp.c_proj.bias", "ffn_down.bias", D, 0, 0.02f, 0, false, true },
};

typedef struct gpt2_part {
    const part_shape *shape;
    char              hf[64];
    char              gguf[64];
    float            *values; /* in the order of hf */
    void             *stored; /* converted values for a file, or NULL */
} gpt2_part;

typedef struct gpt2 {
    gpt2_part parts[MAX_PARTS];
    int       n_parts;
} gpt2;

uint64_t hl_bench_mix(uint64_t counter)
{
    uint64_t z = counter * UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* A sum of four uniform numbers, each of variance 1/12, scaled to mean 0 and deviation 1. */
static float near_normal(uint64_t counter)
{
    uint64_t bits = hl_bench_mix(counter);
    int32_t  sum  = 0;

    for (int i = 0; i < 4; i++)
        sum += (int32_t)(bits >> (16 * i) & 0xffff) - 32768;
    return (float)sum * (1.7320508f / 65536.0f);
}

static int64_t count_of(const part_shape *shape)
{
    return shape->n_rows * (shape->n_columns > 0 ? shape->n_columns : 1);
}

static hl_status add_part(gpt2 *model, const part_shape *shape, int layer)
{
    int        index = model->n_parts;
    gpt2_part *next  = &model->parts[index];
    int64_t    count = count_of(shape);
    uint64_t   first = (uint64_t)(index + 1) << 32;

    next->shape = shape;
    if (layer >= 0) {
        const char *rest = strchr(shape->hf + 2, '.'); /* the name after "h.%d" */
        snprintf(next->hf, sizeof next->hf, "h.%d%s", layer, rest);
        snprintf(next->gguf, sizeof next->gguf, "blk.%d.%s", layer, shape->gguf);
    } else {
        snprintf(next->hf, sizeof next->hf, "%s", shape->hf);
        snprintf(next->gguf, sizeof next->gguf, "%s", shape->gguf);
    }
    hl_status status = HL_ALLOC(&next->values, (size_t)count);
    if (status != HL_OK)
        return status;
    model->n_parts++;
#pragma omp parallel for
    for (int64_t i = 0; i < count; i++)
        next->values[i] = shape->mean + shape->deviation * near_normal(first + (uint64_t)i);
    return HL_OK;
}

static void gpt2_free(gpt2 *model)
{
    for (int i = 0; model != NULL && i < model->n_parts; i++) {
        hl_free(model->parts[i].values);
        hl_free(model->parts[i].stored);
    }
    hl_free(model);
}

static hl_status gpt2_new(gpt2 **out)
{
    hl_status status = HL_OK;
    gpt2     *model  = NULL;

    *out = NULL;
    HL_TRY(HL_ALLOC_ZEROED(&model, 1));
    for (size_t i = 0; i < sizeof model_parts / sizeof *model_parts; i++)
        HL_TRY(add_part(model, &model_parts[i], -1));
    for (int layer = 0; layer < HL_GPT2_LAYERS; layer++)
        for (size_t i = 0; i < sizeof layer_parts / sizeof *layer_parts; i++)
            HL_TRY(add_part(model, &layer_parts[i], layer));
    *out  = model;
    model = NULL;

done:
    gpt2_free(model);
    return status;
}

/* -------------------------------------------------------------------- stored */

/* to (n_columns, n_rows) = the transpose of from (n_rows, n_columns). */
static void transpose(float *to, const float *from, int64_t n_rows, int64_t n_columns)
{
#pragma omp parallel for
    for (int64_t column = 0; column < n_columns; column++)
        for (int64_t row = 0; row < n_rows; row++)
            to[column * n_rows + row] = from[row * n_columns + column];
}

/* Converts n_rows rows of n_columns values to another type, in part->stored. */
static hl_status convert(gpt2_part *part, hl_dtype dtype, const float *values, int64_t n_rows,
                         int64_t n_columns)
{
    hl_dtype_block block     = hl_dtype_block_of(dtype);
    size_t         row_bytes = (size_t)n_columns / block.n_values * block.n_bytes;
    uint8_t       *stored    = NULL;
    hl_status      failure   = HL_ALLOC(&stored, (size_t)n_rows * row_bytes);

    if (failure != HL_OK)
        return failure;
    hl_free(part->stored);
    part->stored = stored;
#pragma omp parallel for
    for (int64_t row = 0; row < n_rows; row++) {
        hl_status status = hl_quantize(stored + (size_t)row * row_bytes, dtype,
                                       values + row * n_columns, (size_t)n_columns);
        if (status != HL_OK) {
#pragma omp atomic write
            failure = status;
        }
    }
    return failure;
}

static hl_tensor tensor_of(const char *name, hl_dtype dtype, int64_t n_rows, int64_t n_columns,
                           const void *data)
{
    hl_dtype_block block  = hl_dtype_block_of(dtype);
    size_t         count  = (size_t)n_rows * (size_t)(n_columns > 0 ? n_columns : 1);
    hl_tensor      tensor = { .name    = name,
                              .dtype   = dtype,
                              .n_dims  = n_columns > 0 ? 2 : 1,
                              .shape   = { n_rows, n_columns },
                              .data    = data,
                              .n_bytes = count / block.n_values * block.n_bytes };

    return tensor;
}

/* ------------------------------------------------------------- Hugging Face */

static const char config_format[] = "{\n"
                                    "  \"model_type\": \"gpt2\",\n"
                                    "  \"architectures\": [\"GPT2LMHeadModel\"],\n"
                                    "  \"torch_dtype\": \"%s\",\n"
                                    "  \"n_layer\": %d,\n"
                                    "  \"n_head\": %d,\n"
                                    "  \"n_embd\": %d,\n"
                                    "  \"n_positions\": %d,\n"
                                    "  \"n_ctx\": %d,\n"
                                    "  \"vocab_size\": %d,\n"
                                    "  \"activation_function\": \"gelu_new\",\n"
                                    "  \"layer_norm_epsilon\": 1e-05,\n"
                                    "  \"bos_token_id\": %d,\n"
                                    "  \"eos_token_id\": %d\n"
                                    "}\n";

static hl_status write_config(const char *folder, hl_dtype dtype)
{
    hl_status  status = HL_OK;
    hl_writer *writer = NULL;
    char       path[MAX_PATH + 16];
    char       text[1024];

    snprintf(path, sizeof path, "%s/config.json", folder);
    int length =
        snprintf(text, sizeof text, config_format, dtype == HL_DTYPE_F32 ? "float32" : "float16",
                 HL_GPT2_LAYERS, HL_GPT2_HEADS, HL_GPT2_MODEL, HL_GPT2_CTX, HL_GPT2_CTX,
                 HL_GPT2_VOCAB, HL_GPT2_VOCAB - 1, HL_GPT2_VOCAB - 1);
    HL_TRY(hl_writer_open(&writer, path));
    hl_writer_write(writer, text, (size_t)length);
    HL_TRY(hl_writer_finish(writer));

done:
    return status;
}

hl_status hl_gpt2_folder_make(const char *path)
{
    if (mkdir(path, 0777) == 0 || errno == EEXIST)
        return HL_OK;
    return hl_fail(HL_IO, "%s: %s", path, strerror(errno));
}

static hl_status write_hf(gpt2 *model, const char *folder, hl_dtype dtype)
{
    hl_status              status = HL_OK;
    hl_safetensors_writer *writer = NULL;
    char                   path[MAX_PATH + 32];

    HL_TRY(hl_gpt2_folder_make(folder));
    HL_TRY(hl_safetensors_writer_new(&writer));
    for (int i = 0; i < model->n_parts; i++) {
        gpt2_part        *part  = &model->parts[i];
        const part_shape *shape = part->shape;

        if (dtype != HL_DTYPE_F32)
            HL_TRY(convert(part, dtype, part->values, 1, count_of(shape)));
        hl_tensor tensor = tensor_of(part->hf, dtype, shape->n_rows, shape->n_columns,
                                     dtype != HL_DTYPE_F32 ? part->stored : part->values);
        hl_safetensors_add(writer, &tensor);
    }
    hl_safetensors_add_metadata(writer, "format", "pt");
    HL_TRY(write_config(folder, dtype));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    HL_TRY(hl_safetensors_write(writer, path));

done:
    hl_safetensors_writer_free(writer);
    return status;
}

/* ---------------------------------------------------------------------- GGUF */

struct hl_bench_words {
    char     pieces[HL_GPT2_VOCAB][2 * PIECE_SIZE];
    char     spelled[N_MERGES][2 * PIECE_SIZE];
    hl_bytes tokens[HL_GPT2_VOCAB];
    hl_bytes merges[N_MERGES];
    int32_t  types[HL_GPT2_VOCAB];
};

static hl_bytes spell(char *out, const char *a, const char *between, const char *b)
{
    int length = snprintf(out, 2 * PIECE_SIZE, "%s%s%s", a, between, b);

    return (hl_bytes){ out, (size_t)length };
}

hl_status hl_bench_words_new(hl_bench_words **out)
{
    hl_bench_words *words  = NULL;
    hl_status       status = HL_ALLOC_ZEROED(&words, 1);
    char            letters[N_BYTES][5];

    *out = words;
    if (status != HL_OK)
        return status;
    for (int i = 0; i < N_BYTES; i++) {
        letters[i][hl_utf8_encode(letters[i], hl_byte_level_character((uint8_t)i))] = '\0';
        words->tokens[i] = spell(words->pieces[i], letters[i], "", "");
    }
    for (int i = 0; i < N_MERGES; i++) {
        const char *a = letters[i / N_BYTES], *b = letters[i % N_BYTES];

        words->tokens[N_BYTES + i] = spell(words->pieces[N_BYTES + i], a, "", b);
        words->merges[i]           = spell(words->spelled[i], a, " ", b);
    }
    words->tokens[HL_GPT2_VOCAB - 1] =
        spell(words->pieces[HL_GPT2_VOCAB - 1], "<|endoftext|>", "", "");
    for (int i = 0; i < HL_GPT2_VOCAB; i++)
        words->types[i] = i == HL_GPT2_VOCAB - 1 ? 3 : 1; /* 3: a control token, 1: a normal one */
    return HL_OK;
}

void hl_bench_words_add(hl_gguf_writer *writer, hl_bench_words *words, int64_t n_tokens)
{
    int64_t last = n_tokens - 1;

    words->tokens[last] = words->tokens[HL_GPT2_VOCAB - 1];
    words->types[last]  = words->types[HL_GPT2_VOCAB - 1];
    hl_gguf_add_text(writer, "tokenizer.ggml.model", "gpt2");
    hl_gguf_add_text(writer, "tokenizer.ggml.pre", "gpt-2");
    hl_gguf_add_texts(writer, "tokenizer.ggml.tokens", words->tokens, n_tokens);
    hl_gguf_add_numbers(writer, "tokenizer.ggml.token_type", HL_GGUF_I32, words->types, n_tokens);
    hl_gguf_add_texts(writer, "tokenizer.ggml.merges", words->merges, last - N_BYTES);
    hl_gguf_add_int(writer, "tokenizer.ggml.bos_token_id", HL_GGUF_U32, last);
    hl_gguf_add_int(writer, "tokenizer.ggml.eos_token_id", HL_GGUF_U32, last);
}

int64_t hl_bench_file_type(hl_dtype dtype)
{
    switch (dtype) {
    case HL_DTYPE_F16:
        return 1;
    case HL_DTYPE_Q4_0:
        return 2;
    case HL_DTYPE_Q8_0:
        return 7;
    case HL_DTYPE_Q4_K:
        return 15;
    case HL_DTYPE_Q5_K:
        return 17;
    case HL_DTYPE_Q6_K:
        return 18;
    case HL_DTYPE_IQ4_XS:
        return 30;
    default:
        return 0;
    }
}

static void add_config(hl_gguf_writer *writer, hl_dtype dtype)
{
    hl_gguf_add_text(writer, "general.architecture", "gpt2");
    hl_gguf_add_text(writer, "general.name", "made-up weights of GPT-2's shapes");
    hl_gguf_add_int(writer, "general.file_type", HL_GGUF_U32, hl_bench_file_type(dtype));
    hl_gguf_add_int(writer, "general.quantization_version", HL_GGUF_U32, 2);
    hl_gguf_add_int(writer, "gpt2.block_count", HL_GGUF_U32, HL_GPT2_LAYERS);
    hl_gguf_add_int(writer, "gpt2.context_length", HL_GGUF_U32, HL_GPT2_CTX);
    hl_gguf_add_int(writer, "gpt2.embedding_length", HL_GGUF_U32, HL_GPT2_MODEL);
    hl_gguf_add_int(writer, "gpt2.feed_forward_length", HL_GGUF_U32, 4 * HL_GPT2_MODEL);
    hl_gguf_add_int(writer, "gpt2.attention.head_count", HL_GGUF_U32, HL_GPT2_HEADS);
    hl_gguf_add_float(writer, "gpt2.attention.layer_norm_epsilon", HL_GGUF_F32, 1e-5);
}

/* Matrices are transposed to (out, in) and converted to the type; other weights are unchanged. */
static hl_status add_weights(hl_gguf_writer *writer, gpt2 *model, hl_dtype dtype, float *turned)
{
    hl_status status = HL_OK;

    for (int i = 0; i < model->n_parts; i++) {
        gpt2_part        *part   = &model->parts[i];
        const part_shape *shape  = part->shape;
        const float      *values = part->values;
        int64_t           height = shape->transposed ? shape->n_columns : shape->n_rows;
        int64_t           width  = shape->transposed ? shape->n_rows : shape->n_columns;
        hl_dtype          type   = shape->stays_f32 ? HL_DTYPE_F32 : dtype;

        if (shape->transposed) {
            transpose(turned, part->values, shape->n_rows, shape->n_columns);
            values = turned;
        }
        if (!shape->stays_f32) {
            HL_TRY(convert(part, type, values, height, width));
            values = part->stored;
        }
        hl_tensor tensor = tensor_of(part->gguf, type, height, width, values);
        hl_gguf_add_tensor(writer, &tensor);
    }

done:
    return status;
}

static hl_status write_gguf(gpt2 *model, const char *path, hl_dtype dtype)
{
    hl_status       status = HL_OK;
    hl_gguf_writer *writer = NULL;
    hl_bench_words *words  = NULL;
    float          *turned = NULL;

    HL_TRY(HL_ALLOC(&turned, (size_t)4 * D * D));
    HL_TRY(hl_bench_words_new(&words));
    HL_TRY(hl_gguf_writer_new(&writer));
    add_config(writer, dtype);
    hl_bench_words_add(writer, words, HL_GPT2_VOCAB);
    HL_TRY(add_weights(writer, model, dtype, turned));
    HL_TRY(hl_gguf_write(writer, path));

done:
    hl_gguf_writer_free(writer);
    hl_free(words);
    hl_free(turned);
    return status;
}

/* --------------------------------------------------------------------- whole */

void hl_gpt2_file(char *out, size_t n_bytes, const char *folder, hl_dtype dtype)
{
    const char *name = dtype == HL_DTYPE_F16    ? "f16"
                       : dtype == HL_DTYPE_Q8_0 ? "q8_0"
                       : dtype == HL_DTYPE_Q4_0 ? "q4_0"
                                                : "f32";

    snprintf(out, n_bytes, "%s/gpt2-%s.gguf", folder, name);
}

static void hf_folder(char *out, size_t n_bytes, const char *folder, hl_dtype dtype)
{
    snprintf(out, n_bytes, "%s/hf-%s", folder, dtype == HL_DTYPE_F32 ? "f32" : "f16");
}

static bool is_missing(const char *path)
{
    return access(path, R_OK) != 0;
}

typedef hl_status (*write_step)(gpt2 *model, const char *path, hl_dtype dtype);

/* Computes the weights only if a file is missing. */
static hl_status write_missing(gpt2 **model, const char *path, const char *sign, hl_dtype dtype,
                               write_step step)
{
    hl_status status = HL_OK;

    if (!is_missing(sign))
        return HL_OK;
    if (*model == NULL)
        HL_TRY(gpt2_new(model));
    HL_TRY(step(*model, path, dtype));

done:
    return status;
}

hl_status hl_gpt2_files_make(const char *folder)
{
    static const hl_dtype types[] = { HL_DTYPE_F32, HL_DTYPE_F16, HL_DTYPE_Q8_0, HL_DTYPE_Q4_0 };
    hl_status             status  = HL_OK;
    gpt2                 *model   = NULL;
    char                  path[MAX_PATH], sign[MAX_PATH + 32];

    HL_TRY(hl_gpt2_folder_make(folder));
    for (int i = 0; i < 4; i++) {
        hl_gpt2_file(path, sizeof path, folder, types[i]);
        HL_TRY(write_missing(&model, path, path, types[i], write_gguf));
    }
    for (int i = 0; i < 2; i++) {
        hf_folder(path, sizeof path, folder, types[i]);
        snprintf(sign, sizeof sign, "%s/model.safetensors", path);
        HL_TRY(write_missing(&model, path, sign, types[i], write_hf));
    }

done:
    gpt2_free(model);
    return status;
}
