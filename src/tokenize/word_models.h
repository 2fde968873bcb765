/* word_models.h - the models that cut a word into tokens: byte pair encoding, SentencePiece's unigram
 * model, and WordPiece.  Each is made over a vocabulary that it borrows. */
#ifndef HL_TOKENIZE_WORD_MODELS_H
#define HL_TOKENIZE_WORD_MODELS_H

#include "base/buffer.h"
#include "tokenize/budget.h"
#include "tokenize/vocab.h"

/* ------------------------------------------------------------------ tokens */

/* A token and the bytes [begin, end) of the text that it stands for. */
typedef struct hl_token {
    int32_t  id;
    uint32_t begin;
    uint32_t end;
} hl_token;

/* Starts as {0}; released with hl_tokens_free. */
typedef struct hl_tokens {
    hl_token *items;
    size_t    count;
    size_t    capacity;
} hl_tokens;

static inline hl_status hl_tokens_add(hl_tokens *tokens, int32_t id, size_t begin, size_t end)
{
    hl_status status = HL_GROW(&tokens->items, &tokens->capacity, tokens->count, 1);
    if (status == HL_OK)
        tokens->items[tokens->count++] = (hl_token){ id, (uint32_t)begin, (uint32_t)end };
    return status;
}

static inline void hl_tokens_free(hl_tokens *tokens)
{
    hl_free(tokens->items);
    *tokens = (hl_tokens){ 0 };
}

/* ------------------------------------------------------ byte pair encoding */

/* Byte pair encoding.
 *
 *     hl_bpe_new(&bpe, vocab, &options);
 *     hl_bpe_add_merge(bpe, "Ġ", "t") ...      in order of rank, or
 *     hl_bpe_add_scored_merges(bpe)            all that the scores imply
 *     hl_bpe_finish(bpe)
 *     hl_bpe_encode(&tokens, bpe, &space, word, n_bytes, at, budget)
 *
 * Three flavors: over characters; over characters with a fallback to bytes
 * (SentencePiece, Llama-2); and over bytes (GPT-2, Llama-3), where the pieces
 * are spelled as in byte_level.h but words are plain bytes. */

typedef struct hl_bpe_options {
    bool     byte_level;
    bool     byte_fallback;
    bool     fuse_unknown;
    bool     ignore_merges; /* a word that is a piece becomes that piece at once */
    int32_t  unknown;       /* id of the unknown token; -1: unknown characters are dropped */
    hl_bytes prefix;        /* prefix of pieces that do not begin a word; copied */
    hl_bytes suffix;        /* suffix of pieces that end a word; copied */
} hl_bpe_options;

typedef struct hl_bpe hl_bpe;

/* The vocabulary is borrowed and must not change. */
hl_status hl_bpe_new(hl_bpe **out, const hl_vocab *vocab, const hl_bpe_options *options);
void      hl_bpe_free(hl_bpe *bpe);
HL_CLOSES(hl_bpe_free, hl_bpe)

/* Adds the next merge in order of rank.  HL_BAD_INPUT if one of the three is not a piece. */
hl_status hl_bpe_add_merge(hl_bpe *bpe, hl_bytes left, hl_bytes right);
/* Adds every pair of pieces that make a third, ranked by the score of the third. */
hl_status hl_bpe_add_scored_merges(hl_bpe *bpe);
/* Call after the last merge is added. */
hl_status hl_bpe_finish(hl_bpe *bpe);

/* The options that were passed to hl_bpe_new; borrowed. */
const hl_bpe_options *hl_bpe_get_options(const hl_bpe *bpe);

typedef struct hl_bpe_merge {
    int32_t left;
    int32_t right;
    int32_t id; /* the merged piece */
} hl_bpe_merge;

/* All merges in order of rank, to be released with hl_free. */
hl_status hl_bpe_merges(hl_bpe_merge **out, size_t *count, const hl_bpe *bpe);
/* The id of the piece that two pieces merge into, or -1. */
int32_t hl_bpe_merged(const hl_bpe *bpe, int32_t left, int32_t right);

/* True if a text may be cut before every run of ▁ without changing its tokens.  Most SentencePiece
 * vocabularies allow it, and it saves time where nothing else splits words. */
bool hl_bpe_cuts_at_spaces(const hl_bpe *bpe);

/* Scratch memory for encoding; starts as {0}.  Reuse it from one word to the next. */
typedef struct hl_bpe_space {
    struct hl_bpe_symbol    *symbols;
    size_t                   n_symbols;
    size_t                   symbols_capacity;
    struct hl_bpe_candidate *heap;
    size_t                   n_heap;
    size_t                   heap_capacity;
    hl_buffer                spelling;
} hl_bpe_space;

void hl_bpe_space_free(hl_bpe_space *space);

/* Appends the tokens of a word, which begins at byte `at` of the text. */
hl_status hl_bpe_encode(hl_tokens *out, const hl_bpe *bpe, hl_bpe_space *space, const char *word,
                        size_t n_bytes, size_t at, hl_budget *budget);

/* ------------------------------------------------------------- the table of merges */

/* The pairs of pieces that merge, and their ranks.  Used only by bpe.c and its tests. */
typedef struct hl_merge {
    uint64_t pair; /* left id in the upper half, right id in the lower; all ones: empty */
    uint32_t rank; /* lower ranks merge first */
    int32_t  id;   /* the merged piece */
} hl_merge;

typedef struct hl_merges {
    hl_merge *slots; /* (n_slots) a hash table, at most half full */
    size_t    n_slots;
    size_t    count;
    uint64_t  n_added;  /* calls of hl_merges_add; a pair may be added twice */
    uint64_t  n_probes; /* slots examined in those calls */
} hl_merges;

/* If a pair is added twice, the later merge replaces the earlier one. */
hl_status hl_merges_add(hl_merges *merges, int32_t left, int32_t right, uint32_t rank, int32_t id);
void      hl_merges_free(hl_merges *merges);

/* ----------------------------------------------------------------- unigram */

/* SentencePiece's unigram model: the most probable way to cut a word. */
typedef struct hl_unigram hl_unigram;

/* The vocabulary is borrowed; scores (n_ids) are copied.  unknown may be -1. */
hl_status hl_unigram_new(hl_unigram **out, const hl_vocab *vocab, const double *scores,
                         int32_t unknown, bool byte_fallback);
void      hl_unigram_free(hl_unigram *unigram);
HL_CLOSES(hl_unigram_free, hl_unigram)

/* Scratch memory for encoding; starts as {0}.  Reuse it from one word to the next. */
typedef struct hl_unigram_space {
    struct hl_unigram_step *steps;
    size_t                  capacity;
    hl_tokens               backwards;
} hl_unigram_space;

void hl_unigram_space_free(hl_unigram_space *space);

/* Appends the tokens of a word, which begins at byte `at` of the text. */
hl_status hl_unigram_encode(hl_tokens *out, const hl_unigram *unigram, hl_unigram_space *space,
                            const char *word, size_t n_bytes, size_t at, hl_budget *budget);

/* --------------------------------------------------------------- WordPiece */

/* WordPiece (BERT), and whole words (WordLevel). */
typedef struct hl_wordpiece {
    const hl_vocab *vocab; /* borrowed */
    int32_t         unknown;
    hl_bytes        prefix;         /* prefix of pieces that do not begin a word; owned */
    size_t          max_characters; /* longer words are unknown */
    bool            whole_words;    /* WordLevel */
} hl_wordpiece;

/* Appends the tokens of a word, which begins at byte `at` of the text. */
hl_status hl_wordpiece_encode(hl_tokens *out, const hl_wordpiece *model, const char *word,
                              size_t n_bytes, size_t at, hl_budget *budget);

#endif
