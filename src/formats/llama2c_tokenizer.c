/* llama2c_tokenizer.c - reading the tokenizer.bin of llama2.c.
 *
 *     i32     the length of the longest piece
 *     then for each id, to the end of the file:
 *     f32     score
 *     i32     n_bytes
 *             the bytes
 *
 * How many pieces there are is not stored; they end with the file. */
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "formats/llama2c.h"

#define HEADER_BYTES 4
#define PIECE_BYTES  8 /* before its own bytes */
#define MAX_PIECES   (1 << 24)

struct hl_llama2c_tokenizer {
    hl_file           file;   /* nothing if the bytes are the caller's */
    hl_llama2c_piece *pieces; /* (n_pieces) */
    size_t            n_pieces;
};

static int32_t read_i32(const uint8_t *bytes)
{
    int32_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

/* One piece, at *at, which then is behind it. */
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

/* With pieces NULL they are only counted. */
static hl_status read_pieces(hl_llama2c_piece *pieces, size_t *n_pieces, const uint8_t *bytes,
                             size_t n_bytes)
{
    int32_t          longest = read_i32(bytes);
    hl_llama2c_piece piece;

    *n_pieces = 0;
    for (size_t at = HEADER_BYTES; at < n_bytes; (*n_pieces)++) {
        if (*n_pieces == MAX_PIECES)
            return hl_fail(HL_BAD_INPUT, "more than %d pieces", MAX_PIECES);
        hl_status status = read_piece(&piece, &at, bytes, n_bytes, longest);
        if (status != HL_OK)
            return hl_fail_within(status, "piece %zu", *n_pieces);
        if (pieces != NULL)
            pieces[*n_pieces] = piece;
    }
    return HL_OK;
}

hl_status hl_llama2c_tokenizer_parse(hl_llama2c_tokenizer **out, const uint8_t *bytes,
                                     size_t n_bytes, const char *where)
{
    hl_status             status    = HL_OK;
    hl_llama2c_tokenizer *tokenizer = NULL;
    size_t                n_pieces  = 0;

    *out = NULL;
    HL_TRY(HL_ALLOC_ZEROED(&tokenizer, 1));
    if (n_bytes < HEADER_BYTES + PIECE_BYTES)
        HL_TRY(hl_fail(HL_BAD_INPUT, "%zu bytes, not a llama2.c tokenizer", n_bytes));
    HL_TRY(read_pieces(NULL, &n_pieces, bytes, n_bytes));
    HL_TRY(HL_ALLOC(&tokenizer->pieces, n_pieces));
    HL_TRY(read_pieces(tokenizer->pieces, &tokenizer->n_pieces, bytes, n_bytes));
    *out      = tokenizer;
    tokenizer = NULL;

done:
    hl_llama2c_tokenizer_close(tokenizer);
    if (status != HL_OK)
        hl_fail_within(status, "%s", where);
    return status;
}

hl_status hl_llama2c_tokenizer_open(hl_llama2c_tokenizer **out, const char *path)
{
    hl_status status = HL_OK;
    hl_file   file   = { 0 };

    *out = NULL;
    HL_TRY(hl_file_map(&file, path));
    HL_TRY(hl_llama2c_tokenizer_parse(out, file.bytes, file.n_bytes, path));
    (*out)->file = file;
    file         = (hl_file){ 0 };

done:
    hl_file_unmap(&file);
    return status;
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
