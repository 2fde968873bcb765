/* tokenizer_llama2c.c - llama2.c's tokenizer.bin as a tokenizer.
 *
 * It is a SentencePiece vocabulary: 0 is the unknown token, 1 and 2 are begin
 * and end of text, 3 to 258 the bytes.  Spaces are plain spaces, and 1 and 2 are
 * spelled with line feeds around them, for printing. */
#include "base/memory.h"
#include "base/status.h"
#include "formats/llama2c.h"
#include "tokenize/tokenizer.h"
#include "tokenize/vocab_source.h"

enum { UNKNOWN = 0, BEGIN = 1, END = 2, FIRST_BYTE = 3, FIRST_NORMAL = FIRST_BYTE + 256 };

typedef struct lists {
    hl_bytes *tokens;
    float    *scores;
    int32_t  *types;
} lists;

static int32_t type_of(size_t id)
{
    if (id == UNKNOWN)
        return HL_PIECE_UNKNOWN;
    if (id < FIRST_BYTE)
        return HL_PIECE_CONTROL;
    return id < FIRST_NORMAL ? HL_PIECE_BYTE : HL_PIECE_NORMAL;
}

static hl_status copy_pieces(lists *all, const hl_llama2c_tokenizer *file, size_t n_pieces)
{
    hl_status status = HL_OK;

    HL_TRY(HL_ALLOC(&all->tokens, n_pieces));
    HL_TRY(HL_ALLOC(&all->scores, n_pieces));
    HL_TRY(HL_ALLOC(&all->types, n_pieces));
    for (size_t id = 0; id < n_pieces; id++) {
        const hl_llama2c_piece *piece = hl_llama2c_tokenizer_at(file, id);
        all->tokens[id]               = (hl_bytes){ piece->bytes, piece->n_bytes };
        all->scores[id]               = piece->score;
        all->types[id]                = type_of(id);
    }
    all->tokens[BEGIN] = (hl_bytes){ "<s>", 3 };
    all->tokens[END]   = (hl_bytes){ "</s>", 4 };

done:
    return status;
}

static hl_status build(hl_tokenizer **out, const hl_llama2c_tokenizer *file, const char *where)
{
    hl_status       status   = HL_OK;
    size_t          n_pieces = hl_llama2c_tokenizer_count(file);
    lists           all      = { 0 };
    hl_vocab_source source   = hl_vocab_source_empty();

    if (n_pieces < FIRST_NORMAL)
        return hl_fail(HL_BAD_INPUT, "%s: %zu pieces, wanted at least %d: is this a tokenizer.bin?",
                       where, n_pieces, FIRST_NORMAL);
    HL_TRY(copy_pieces(&all, file, n_pieces));
    source.model                   = "llama";
    source.tokens                  = all.tokens;
    source.scores                  = all.scores;
    source.types                   = all.types;
    source.n_tokens                = n_pieces;
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
    hl_llama2c_tokenizer *file   = NULL;
    hl_status             status = hl_llama2c_tokenizer_open(&file, path);

    *out = NULL;
    if (status == HL_OK)
        status = build(out, file, path);
    hl_llama2c_tokenizer_close(file);
    return status;
}
