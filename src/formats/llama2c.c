/* llama2c.c - reading the checkpoints of llama2.c, and its tokenizer.bin (at the end).
 *
 *     legacy    i32 dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, n_ctx
 *               then the tensors.  vocab_size is negative if the output matrix
 *               is not the embedding.
 *     version 1 u32 "ak42", i32 1, the seven sizes, u8 tied; zeros up to byte 256;
 *               then the tensors.
 *
 * All tensors are f32, little-endian, and follow each other without a gap.  Each kind is stored for
 * all layers, in the order of the tables below.  A legacy file has no magic number, so it is
 * recognized by its size: seven small numbers that require exactly the size of the file.
 *
 * (Version 2 has 8-bit weights in groups of varying size; it is refused.) */
#include "formats/llama2c.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"

#define MAGIC         0x616b3432 /* "ak42" read as a big-endian number */
#define N_SIZES       7
#define LEGACY_HEADER ((size_t)N_SIZES * 4)
#define HEADER        256 /* size of the header in version 1 */
#define MAX_LAYERS    4096
#define NAME_BYTES    64

/* Sizes are letters:  D d_model   F d_mlp   V d_vocab   K n_kv_heads * d_head
 *                     S n_ctx     R d_head / 2   1 one */
typedef struct tensor_segment {
    const char *name; /* follows "model.layers.N." if each layer has one */
    char        rows; /* '1': the tensor is a vector */
    char        columns;
    bool        each_layer;
} tensor_segment;

#define EMBEDDING   "model.embed_tokens.weight"
#define FINAL_NORM  "model.norm.weight"
#define UNEMBEDDING "lm_head.weight"

static const tensor_segment legacy_segments[] = {
    { EMBEDDING, 'V', 'D', false },
    { "input_layernorm.weight", '1', 'D', true },
    { "self_attn.q_proj.weight", 'D', 'D', true },
    { "self_attn.k_proj.weight", 'K', 'D', true },
    { "self_attn.v_proj.weight", 'K', 'D', true },
    { "self_attn.o_proj.weight", 'D', 'D', true },
    { "post_attention_layernorm.weight", '1', 'D', true },
    { "mlp.gate_proj.weight", 'F', 'D', true },
    { "mlp.down_proj.weight", 'D', 'F', true },
    { "mlp.up_proj.weight", 'F', 'D', true },
    { FINAL_NORM, '1', 'D', false },
    { NULL, 'S', 'R', false }, /* cosines of the rotation, skipped */
    { NULL, 'S', 'R', false }, /* sines of the rotation, skipped */
    { UNEMBEDDING, 'V', 'D', false },
    { 0 },
};

static const tensor_segment version_1_segments[] = {
    { "input_layernorm.weight", '1', 'D', true },
    { "post_attention_layernorm.weight", '1', 'D', true },
    { FINAL_NORM, '1', 'D', false },
    { EMBEDDING, 'V', 'D', false },
    { "self_attn.q_proj.weight", 'D', 'D', true },
    { "self_attn.k_proj.weight", 'K', 'D', true },
    { "self_attn.v_proj.weight", 'K', 'D', true },
    { "self_attn.o_proj.weight", 'D', 'D', true },
    { "mlp.gate_proj.weight", 'F', 'D', true },
    { "mlp.down_proj.weight", 'D', 'F', true },
    { "mlp.up_proj.weight", 'F', 'D', true },
    { UNEMBEDDING, 'V', 'D', false },
    { 0 },
};

struct hl_llama2c {
    hl_file           file; /* empty if the bytes are the caller's */
    hl_llama2c_config config;
    char (*names)[NAME_BYTES]; /* (n_tensors) */
    hl_tensor *tensors;        /* (n_tensors) in the order of the file */
    size_t     n_tensors;
};

/* ------------------------------------------------------------------- config */

static int32_t read_i32(const uint8_t *bytes)
{
    int32_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

/* Reads the seven sizes, which are i32 each. */
static void read_sizes(hl_llama2c_config *config, const uint8_t *bytes)
{
    config->d_model    = read_i32(bytes);
    config->d_mlp      = read_i32(bytes + 4);
    config->n_layers   = read_i32(bytes + 8);
    config->n_heads    = read_i32(bytes + 12);
    config->n_kv_heads = read_i32(bytes + 16);
    config->d_vocab    = read_i32(bytes + 20);
    config->n_ctx      = read_i32(bytes + 24);
}

static hl_status check_sizes(const hl_llama2c_config *config)
{
    const struct {
        const char *name;
        int64_t     value;
    } sizes[N_SIZES] = {
        { "dim", config->d_model },           { "hidden_dim", config->d_mlp },
        { "n_layers", config->n_layers },     { "n_heads", config->n_heads },
        { "n_kv_heads", config->n_kv_heads }, { "vocab_size", config->d_vocab },
        { "n_ctx", config->n_ctx },
    };

    for (int i = 0; i < N_SIZES; i++) {
        if (sizes[i].value < 1)
            return hl_fail(HL_BAD_INPUT, "%s is %lld", sizes[i].name, (long long)sizes[i].value);
    }
    if (config->n_layers > MAX_LAYERS)
        return hl_fail(HL_BAD_INPUT, "n_layers is %lld, at most %d", (long long)config->n_layers,
                       MAX_LAYERS);
    if (config->d_model % config->n_heads != 0 || config->d_model / config->n_heads % 2 != 0)
        return hl_fail(HL_BAD_INPUT, "dim %lld does not make %lld heads of even size",
                       (long long)config->d_model, (long long)config->n_heads);
    if (config->n_heads % config->n_kv_heads != 0)
        return hl_fail(HL_BAD_INPUT, "n_heads %lld is not a multiple of n_kv_heads %lld",
                       (long long)config->n_heads, (long long)config->n_kv_heads);
    return HL_OK;
}

/* Reads the config, and finds where the tensors begin. */
static hl_status read_config(hl_llama2c_config *config, size_t *begin, const uint8_t *bytes,
                             size_t n_bytes)
{
    if (n_bytes < LEGACY_HEADER)
        return hl_fail(HL_BAD_INPUT, "%zu bytes, a llama2.c checkpoint has at least %zu", n_bytes,
                       LEGACY_HEADER);
    if (read_i32(bytes) != MAGIC) {
        *begin = LEGACY_HEADER;
        read_sizes(config, bytes);
        config->tied    = config->d_vocab > 0;
        config->d_vocab = config->tied ? config->d_vocab : -config->d_vocab;
        return check_sizes(config);
    }
    config->version = read_i32(bytes + 4);
    if (config->version != 1)
        return hl_fail(HL_UNSUPPORTED,
                       "llama2.c version %d is not read; export it with --version 1",
                       config->version);
    if (n_bytes < HEADER)
        return hl_fail(HL_BAD_INPUT, "truncated: %zu bytes, the header has %d", n_bytes, HEADER);
    *begin = HEADER;
    read_sizes(config, bytes + 8);
    config->tied = bytes[8 + LEGACY_HEADER] != 0;
    return check_sizes(config);
}

/* ------------------------------------------------------------------ tensors */

static const tensor_segment *segments_of(const hl_llama2c_config *config)
{
    return config->version == 0 ? legacy_segments : version_1_segments;
}

static bool is_present(const tensor_segment *segment, const hl_llama2c_config *config)
{
    return !config->tied || segment->name == NULL || strcmp(segment->name, UNEMBEDDING) != 0;
}

static int64_t size_of(const hl_llama2c_config *config, char letter)
{
    int64_t d_head = config->d_model / config->n_heads;

    switch (letter) {
    case 'D':
        return config->d_model;
    case 'F':
        return config->d_mlp;
    case 'V':
        return config->d_vocab;
    case 'K':
        return config->n_kv_heads * d_head;
    case 'S':
        return config->n_ctx;
    case 'R':
        return d_head / 2;
    default:
        return 1;
    }
}

/* The bytes of a segment in one layer.  The product of two i32 and four fits. */
static uint64_t segment_bytes(const tensor_segment *segment, const hl_llama2c_config *config)
{
    return (uint64_t)size_of(config, segment->rows) * (uint64_t)size_of(config, segment->columns) *
           sizeof(float);
}

/* The bytes of all tensors.  14 segments of up to 2^64 bytes times 2^12 layers could overflow, so
 * the sum stops when it exceeds `limit`. */
static uint64_t total_bytes(const hl_llama2c_config *config, uint64_t limit)
{
    uint64_t total = 0;

    for (const tensor_segment *segment = segments_of(config); segment->rows != '\0'; segment++) {
        uint64_t n_times = segment->each_layer ? (uint64_t)config->n_layers : 1;
        uint64_t n_bytes = is_present(segment, config) ? segment_bytes(segment, config) : 0;
        if (n_bytes > (limit - total) / n_times)
            return UINT64_MAX;
        total += n_bytes * n_times;
    }
    return total;
}

static hl_status check_total(const hl_llama2c_config *config, size_t n_data)
{
    uint64_t wanted = total_bytes(config, INT64_MAX);

    if (wanted != n_data)
        return hl_fail(HL_BAD_INPUT, "%zu bytes of tensors, the header asks for %llu", n_data,
                       (unsigned long long)wanted);
    return HL_OK;
}

static void add_tensor(hl_llama2c *file, const tensor_segment *segment, int64_t layer,
                       const uint8_t *data)
{
    char      *name   = file->names[file->n_tensors];
    hl_tensor *tensor = &file->tensors[file->n_tensors++];

    if (segment->each_layer)
        snprintf(name, NAME_BYTES, "model.layers.%d.%s", (int)layer, segment->name);
    else
        snprintf(name, NAME_BYTES, "%s", segment->name);
    *tensor = (hl_tensor){ .name    = name,
                           .dtype   = HL_DTYPE_F32,
                           .data    = data,
                           .n_bytes = (size_t)segment_bytes(segment, &file->config) };
    if (segment->rows != '1')
        tensor->shape[tensor->n_dims++] = size_of(&file->config, segment->rows);
    tensor->shape[tensor->n_dims++] = size_of(&file->config, segment->columns);
}

static hl_status list_tensors(hl_llama2c *file, const uint8_t *data)
{
    size_t n_most = 9 * (size_t)file->config.n_layers + 3;

    HL_NEED(HL_ALLOC(&file->names, n_most));
    HL_NEED(HL_ALLOC(&file->tensors, n_most));
    for (const tensor_segment *segment = segments_of(&file->config); segment->rows != '\0';
         segment++) {
        int64_t n_times = segment->each_layer ? file->config.n_layers : 1;
        for (int64_t layer = 0; layer < n_times && is_present(segment, &file->config); layer++) {
            if (segment->name != NULL)
                add_tensor(file, segment, layer, data);
            data += segment_bytes(segment, &file->config);
        }
    }
    return HL_OK;
}

/* --------------------------------------------------------------------- file */

bool hl_llama2c_recognize(const uint8_t *bytes, size_t n_bytes)
{
    hl_llama2c_config config = { 0 };
    size_t            begin  = 0;

    if (n_bytes >= 8 && read_i32(bytes) == MAGIC)
        return true;
    return read_config(&config, &begin, bytes, n_bytes) == HL_OK &&
           total_bytes(&config, INT64_MAX) == n_bytes - begin;
}

static hl_status parse(hl_llama2c *file, const uint8_t *bytes, size_t n_bytes)
{
    size_t begin = 0;

    HL_NEED(read_config(&file->config, &begin, bytes, n_bytes));
    HL_NEED(check_total(&file->config, n_bytes - begin));
    return list_tensors(file, bytes + begin);
}

hl_status hl_llama2c_parse(hl_llama2c **out, const uint8_t *bytes, size_t n_bytes,
                           const char *where)
{
    HL_CLOSED(hl_llama2c_close) hl_llama2c *file = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&file, 1));
    HL_NEED(hl_fail_within(parse(file, bytes, n_bytes), "%s", where));
    *out = hl_taken(&file);
    return HL_OK;
}

hl_status hl_llama2c_open(hl_llama2c **out, const char *path)
{
    HL_SCOPED(hl_file_unmap) hl_file file = { 0 };

    *out = NULL;
    HL_NEED(hl_file_map(&file, path));
    HL_NEED(hl_llama2c_parse(out, file.bytes, file.n_bytes, path));
    (*out)->file = file;
    file         = (hl_file){ 0 };
    return HL_OK;
}

void hl_llama2c_close(hl_llama2c *file)
{
    if (file == NULL)
        return;
    hl_free(file->tensors);
    hl_free(file->names);
    hl_file_unmap(&file->file);
    hl_free(file);
}

const hl_llama2c_config *hl_llama2c_config_of(const hl_llama2c *file)
{
    return &file->config;
}

size_t hl_llama2c_count(const hl_llama2c *file)
{
    return file->n_tensors;
}

const hl_tensor *hl_llama2c_at(const hl_llama2c *file, size_t index)
{
    return index < file->n_tensors ? &file->tensors[index] : NULL;
}

/* ---------------------------------------------------------------- tokenizer.bin
 *
 *     i32     the length of the longest piece
 *     then for each id, to the end of the file:
 *     f32     score
 *     i32     n_bytes
 *             the bytes
 *
 * The number of pieces is not stored; they end with the file. */

#define TOKENIZER_HEADER 4
#define PIECE_BYTES      8 /* size of a piece before its bytes */
#define MAX_PIECES       (1 << 24)

struct hl_llama2c_tokenizer {
    hl_file           file;   /* empty if the bytes are the caller's */
    hl_llama2c_piece *pieces; /* (n_pieces) */
    size_t            n_pieces;
};

/* Reads one piece at *at and moves *at past it. */
static hl_status read_piece(hl_llama2c_piece *piece, size_t *at, const uint8_t *bytes,
                            size_t n_bytes, int32_t longest)
{
    if (n_bytes - *at < PIECE_BYTES)
        return hl_fail(HL_BAD_INPUT, "truncated: %zu bytes left", n_bytes - *at);
    int32_t length = read_i32(bytes + *at + sizeof piece->score);
    if (length < 0 || length > longest)
        return hl_fail(HL_BAD_INPUT, "%d bytes long, the longest has %d", length, longest);
    if ((size_t)length > n_bytes - *at - PIECE_BYTES)
        return hl_fail(HL_BAD_INPUT, "truncated: %d bytes wanted, %zu left", length,
                       n_bytes - *at - PIECE_BYTES);
    memcpy(&piece->score, bytes + *at, sizeof piece->score);
    piece->bytes   = (const char *)bytes + *at + PIECE_BYTES;
    piece->n_bytes = (size_t)length;
    *at += PIECE_BYTES + piece->n_bytes;
    return HL_OK;
}

/* If pieces is NULL, they are only counted. */
static hl_status read_pieces(hl_llama2c_piece *pieces, size_t *n_pieces, const uint8_t *bytes,
                             size_t n_bytes)
{
    int32_t          longest = read_i32(bytes);
    hl_llama2c_piece piece;

    *n_pieces = 0;
    for (size_t at = TOKENIZER_HEADER; at < n_bytes; (*n_pieces)++) {
        if (*n_pieces == MAX_PIECES)
            return hl_fail(HL_BAD_INPUT, "more than %d pieces", MAX_PIECES);
        HL_NEED(hl_fail_within(read_piece(&piece, &at, bytes, n_bytes, longest), "piece %zu",
                               *n_pieces));
        if (pieces != NULL)
            pieces[*n_pieces] = piece;
    }
    return HL_OK;
}

static hl_status parse_tokenizer(hl_llama2c_tokenizer *tokenizer, const uint8_t *bytes,
                                 size_t n_bytes)
{
    size_t n_pieces = 0;

    if (n_bytes < TOKENIZER_HEADER + PIECE_BYTES)
        return hl_fail(HL_BAD_INPUT, "%zu bytes, not a llama2.c tokenizer", n_bytes);
    HL_NEED(read_pieces(NULL, &n_pieces, bytes, n_bytes));
    HL_NEED(HL_ALLOC(&tokenizer->pieces, n_pieces));
    return read_pieces(tokenizer->pieces, &tokenizer->n_pieces, bytes, n_bytes);
}

hl_status hl_llama2c_tokenizer_parse(hl_llama2c_tokenizer **out, const uint8_t *bytes,
                                     size_t n_bytes, const char *where)
{
    HL_CLOSED(hl_llama2c_tokenizer_close) hl_llama2c_tokenizer *tokenizer = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&tokenizer, 1));
    HL_NEED(hl_fail_within(parse_tokenizer(tokenizer, bytes, n_bytes), "%s", where));
    *out = hl_taken(&tokenizer);
    return HL_OK;
}

hl_status hl_llama2c_tokenizer_open(hl_llama2c_tokenizer **out, const char *path)
{
    HL_SCOPED(hl_file_unmap) hl_file file = { 0 };

    *out = NULL;
    HL_NEED(hl_file_map(&file, path));
    HL_NEED(hl_llama2c_tokenizer_parse(out, file.bytes, file.n_bytes, path));
    (*out)->file = file;
    file         = (hl_file){ 0 };
    return HL_OK;
}

void hl_llama2c_tokenizer_close(hl_llama2c_tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        return;
    hl_free(tokenizer->pieces);
    hl_file_unmap(&tokenizer->file);
    hl_free(tokenizer);
}

size_t hl_llama2c_tokenizer_count(const hl_llama2c_tokenizer *tokenizer)
{
    return tokenizer->n_pieces;
}

const hl_llama2c_piece *hl_llama2c_tokenizer_at(const hl_llama2c_tokenizer *tokenizer, size_t id)
{
    return id < tokenizer->n_pieces ? &tokenizer->pieces[id] : NULL;
}
