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

struct hl_llama2c_vocab {
    hl_llama2c_tokenizer *file;
    hl_bytes             *tokens;
    float                *scores;
    int32_t              *types;
    hl_vocab_source       source;
};

static int32_t type_of(size_t id)
{
    if (id == UNKNOWN)
        return HL_PIECE_UNKNOWN;
    if (id < FIRST_BYTE)
        return HL_PIECE_CONTROL;
    return id < FIRST_NORMAL ? HL_PIECE_BYTE : HL_PIECE_NORMAL;
}

static hl_status copy_pieces(hl_llama2c_vocab *all, size_t n_pieces)
{
    HL_NEED(HL_ALLOC(&all->tokens, n_pieces));
    HL_NEED(HL_ALLOC(&all->scores, n_pieces));
    HL_NEED(HL_ALLOC(&all->types, n_pieces));
    for (size_t id = 0; id < n_pieces; id++) {
        const hl_llama2c_piece *piece = hl_llama2c_tokenizer_at(all->file, id);
        all->tokens[id]               = (hl_bytes){ piece->bytes, piece->n_bytes };
        all->scores[id]               = piece->score;
        all->types[id]                = type_of(id);
    }
    all->tokens[BEGIN] = (hl_bytes){ "<s>", 3 };
    all->tokens[END]   = (hl_bytes){ "</s>", 4 };
    return HL_OK;
}

static void describe(hl_llama2c_vocab *all, size_t n_pieces, const char *where)
{
    all->source                         = hl_vocab_source_empty();
    all->source.model                   = "llama";
    all->source.tokens                  = all->tokens;
    all->source.scores                  = all->scores;
    all->source.types                   = all->types;
    all->source.n_tokens                = n_pieces;
    all->source.special[HL_SPECIAL_UNK] = UNKNOWN;
    all->source.special[HL_SPECIAL_BOS] = BEGIN;
    all->source.special[HL_SPECIAL_EOS] = END;
    all->source.plain_spaces            = true;
    all->source.where                   = where;
}

hl_status hl_llama2c_vocab_open(hl_llama2c_vocab **out, const char *path)
{
    HL_CLOSED(hl_llama2c_vocab_close) hl_llama2c_vocab *all = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&all, 1));
    HL_NEED(hl_llama2c_tokenizer_open(&all->file, path));
    size_t n_pieces = hl_llama2c_tokenizer_count(all->file);
    if (n_pieces < FIRST_NORMAL)
        return hl_fail(HL_BAD_INPUT, "%s: %zu pieces, wanted at least %d: is this a tokenizer.bin?",
                       path, n_pieces, FIRST_NORMAL);
    HL_NEED(copy_pieces(all, n_pieces));
    describe(all, n_pieces, path);
    *out = hl_taken(&all);
    return HL_OK;
}

void hl_llama2c_vocab_close(hl_llama2c_vocab *all)
{
    if (all == NULL)
        return;
    hl_llama2c_tokenizer_close(all->file);
    hl_free(all->tokens);
    hl_free(all->scores);
    hl_free(all->types);
    hl_free(all);
}

const hl_vocab_source *hl_llama2c_vocab_source(const hl_llama2c_vocab *all)
{
    return &all->source;
}

hl_status hl_tokenizer_open_llama2c(hl_tokenizer **out, const char *path)
{
    HL_CLOSED(hl_llama2c_vocab_close) hl_llama2c_vocab *vocab = NULL;

    *out = NULL;
    HL_NEED(hl_llama2c_vocab_open(&vocab, path));
    return hl_tokenizer_from_source(out, &vocab->source);
}
