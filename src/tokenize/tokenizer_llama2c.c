/* tokenizer_llama2c.c - llama2.c's tokenizer.bin.
 *
 *     offset  size   what
 *     0       4      the longest piece, in bytes
 *     then for every piece, to the end of the file:
 *             4      score, a 32-bit float
 *             4      L, its length
 *             L      its bytes
 *
 * All numbers are little-endian.  It is a SentencePiece vocabulary: 0 is the
 * unknown token, 1 and 2 are begin and end of text, 3 to 258 the bytes, and
 * spaces are plain spaces.  1 and 2 are spelled with line feeds around them. */
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "tokenize/tokenizer.h"
#include "tokenize/vocab_source.h"

enum { UNKNOWN = 0, BEGIN = 1, END = 2, FIRST_BYTE = 3, FIRST_NORMAL = FIRST_BYTE + 256 };

typedef struct lists {
    hl_bytes *tokens;
    float    *scores;
    int32_t  *types;
    size_t    tokens_capacity;
    size_t    scores_capacity;
    size_t    types_capacity;
    size_t    count;
} lists;

static uint32_t read_u32(const uint8_t *bytes)
{
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static int32_t type_of(size_t id)
{
    if (id == UNKNOWN)
        return HL_PIECE_UNKNOWN;
    if (id < FIRST_BYTE)
        return HL_PIECE_CONTROL;
    return id < FIRST_NORMAL ? HL_PIECE_BYTE : HL_PIECE_NORMAL;
}

static hl_status add_piece(lists *all, hl_bytes piece, float score)
{
    hl_status status = HL_OK;
    size_t    id     = all->count;

    if (id >= HL_MAX_VOCAB)
        return hl_fail(HL_BAD_INPUT, "more than %d pieces", HL_MAX_VOCAB);
    if (id == BEGIN)
        piece = (hl_bytes){ "<s>", 3 };
    if (id == END)
        piece = (hl_bytes){ "</s>", 4 };
    HL_TRY(HL_GROW(&all->tokens, &all->tokens_capacity, id, 1));
    HL_TRY(HL_GROW(&all->scores, &all->scores_capacity, id, 1));
    HL_TRY(HL_GROW(&all->types, &all->types_capacity, id, 1));
    all->tokens[id] = piece;
    all->scores[id] = score;
    all->types[id]  = type_of(id);
    all->count++;

done:
    return status;
}

static hl_status read_pieces(lists *all, const uint8_t *bytes, size_t n_bytes)
{
    hl_status status = HL_OK;
    size_t    at     = 4;

    if (n_bytes < 4)
        return hl_fail(HL_BAD_INPUT, "%zu bytes, a tokenizer.bin has at least 4", n_bytes);
    while (at < n_bytes) {
        float score;
        if (n_bytes - at < 8)
            return hl_fail(HL_BAD_INPUT, "truncated: piece %zu at byte %zu", all->count, at);
        uint32_t bits   = read_u32(bytes + at);
        uint32_t length = read_u32(bytes + at + 4);
        memcpy(&score, &bits, sizeof score);
        at += 8;
        if (length > n_bytes - at)
            return hl_fail(HL_BAD_INPUT, "piece %zu has %u bytes, the file has %zu left",
                           all->count, length, n_bytes - at);
        HL_TRY(add_piece(all, (hl_bytes){ (const char *)bytes + at, length }, score));
        at += length;
    }
    if (all->count < FIRST_NORMAL)
        return hl_fail(HL_BAD_INPUT, "%zu pieces, wanted at least %d: is this a tokenizer.bin?",
                       all->count, FIRST_NORMAL);

done:
    return status;
}

hl_status hl_tokenizer_parse_llama2c(hl_tokenizer **out, const uint8_t *bytes, size_t n_bytes,
                                     const char *where)
{
    lists     all    = { 0 };
    hl_status status = read_pieces(&all, bytes, n_bytes);

    *out = NULL;
    if (status != HL_OK) {
        hl_fail_within(status, "%s", where);
        goto done;
    }
    hl_vocab_source source         = hl_vocab_source_empty();
    source.model                   = "llama";
    source.tokens                  = all.tokens;
    source.scores                  = all.scores;
    source.types                   = all.types;
    source.n_tokens                = all.count;
    source.special[HL_SPECIAL_UNK] = UNKNOWN;
    source.special[HL_SPECIAL_BOS] = BEGIN;
    source.special[HL_SPECIAL_EOS] = END;
    source.plain_spaces            = true;
    source.where                   = where;
    HL_TRY(hl_tokenizer_from_source(out, &source));

done:
    hl_free(all.tokens);
    hl_free(all.scores);
    hl_free(all.types);
    return status;
}

hl_status hl_tokenizer_open_llama2c(hl_tokenizer **out, const char *path)
{
    hl_file   file   = { 0 };
    hl_status status = hl_file_map(&file, path);

    *out = NULL;
    if (status == HL_OK)
        status = hl_tokenizer_parse_llama2c(out, file.bytes, file.n_bytes, path);
    hl_file_unmap(&file);
    return status;
}
