/* unigram.c - Viterbi over the positions of a word.
 *
 * best[i] is the best way to cover the first i bytes: its score, and the piece
 * that ends there.  From each character on, every piece that the text starts
 * with extends what has been reached:
 *
 *     best[i + |piece|] = max(best[i] + score(piece))
 *
 * A character that is not a piece costs the worst score less ten.  Unknown
 * characters side by side become one token. */
#include "tokenize/word_models.h"

#include <math.h>
#include <string.h>

#include "base/buffer.h"
#include "base/status.h"
#include "base/utf8.h"

#define UNKNOWN_PENALTY 10.0

struct hl_unigram {
    const hl_vocab *vocab;
    double         *scores; /* (n_ids) */
    hl_prefixes     pieces;
    double          unknown_score;
    int32_t         unknown;
    int32_t         byte_ids[256];
    bool            byte_fallback;
};

typedef struct hl_unigram_step {
    double   score;
    uint32_t begin; /* where the piece that ends here begins */
    int32_t  id;    /* -1: not reached */
} step;

/* --------------------------------------------------------------- construction */

static hl_status index_pieces(hl_unigram *unigram)
{
    double minimum = INFINITY;

    for (size_t id = 0; id < unigram->vocab->n_ids; id++) {
        hl_bytes spelling = hl_vocab_spelling(unigram->vocab, (int64_t)id);
        if (spelling.data == NULL)
            continue;
        if (isnan(unigram->scores[id]))
            return hl_fail(HL_BAD_INPUT, "the score of piece %zu is not a number", id);
        HL_NEED(hl_prefixes_add(&unigram->pieces, spelling, (int32_t)id));
        minimum = fmin(minimum, unigram->scores[id]);
    }
    hl_prefixes_sort(&unigram->pieces);
    unigram->unknown_score = minimum - UNKNOWN_PENALTY;
    return HL_OK;
}

hl_status hl_unigram_new(hl_unigram **out, const hl_vocab *vocab, const double *scores,
                         int32_t unknown, bool byte_fallback)
{
    HL_CLOSED(hl_unigram_free) hl_unigram *unigram = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&unigram, 1));
    unigram->vocab         = vocab;
    unigram->unknown       = unknown;
    unigram->byte_fallback = byte_fallback;
    HL_NEED(HL_ALLOC(&unigram->scores, vocab->n_ids));
    if (vocab->n_ids > 0)
        memcpy(unigram->scores, scores, vocab->n_ids * sizeof *scores);
    for (unsigned byte = 0; byte < 256; byte++)
        unigram->byte_ids[byte] = hl_vocab_find_byte(vocab, (uint8_t)byte);
    HL_NEED(index_pieces(unigram));
    *out = hl_taken(&unigram);
    return HL_OK;
}

void hl_unigram_free(hl_unigram *unigram)
{
    if (unigram == NULL)
        return;
    hl_prefixes_free(&unigram->pieces);
    hl_free(unigram->scores);
    hl_free(unigram);
}

void hl_unigram_space_free(hl_unigram_space *space)
{
    hl_free(space->steps);
    hl_tokens_free(&space->backwards);
    *space = (hl_unigram_space){ 0 };
}

/* ------------------------------------------------------------------- forwards */

static void offer(step *target, double score, size_t begin, int32_t id)
{
    if (target->id < 0 || score > target->score)
        *target = (step){ score, (uint32_t)begin, id };
}

/* Extends the paths that reach `begin`, where a character of `n_character` bytes lies. */
static hl_status extend(hl_unigram_space *space, const hl_unigram *unigram, hl_bytes word,
                        size_t begin, size_t n_character, hl_budget *budget)
{
    hl_prefix_walk walk   = hl_prefixes_begin(&unigram->pieces);
    double         so_far = space->steps[begin].score;
    bool           single = false;

    for (size_t end = begin; end < word.n_bytes;) {
        if (!hl_prefixes_step(&unigram->pieces, &walk, word.data[end++]))
            break;
        int32_t id = hl_prefixes_match(&unigram->pieces, &walk);
        if (id < 0)
            continue;
        offer(&space->steps[end], so_far + unigram->scores[id], begin, id);
        single = single || end - begin == n_character;
    }
    HL_NEED(hl_budget_spend(budget, 4 * (walk.depth + 1)));
    if (single)
        return HL_OK;
    if (unigram->unknown < 0)
        return hl_fail(HL_BAD_INPUT, "a character that the vocabulary lacks, and no unknown token");
    offer(&space->steps[begin + n_character], so_far + unigram->unknown_score, begin,
          unigram->unknown);
    return HL_OK;
}

static hl_status walk_forwards(hl_unigram_space *space, const hl_unigram *unigram, hl_bytes word,
                               hl_budget *budget)
{
    HL_NEED(HL_GROW(&space->steps, &space->capacity, 0, word.n_bytes + 1));
    space->steps[0] = (step){ .id = 0 };
    for (size_t i = 1; i <= word.n_bytes; i++)
        space->steps[i] = (step){ .id = -1 };
    for (size_t at = 0; at < word.n_bytes;) {
        size_t begin = at;
        (void)hl_utf8_next(word.data, &at);
        HL_NEED(extend(space, unigram, word, begin, at - begin, budget));
    }
    return HL_OK;
}

/* ------------------------------------------------------------------ backwards */

/* Collects the tokens from the end, with neighboring unknown ones joined. */
static hl_status walk_backwards(hl_unigram_space *space, const hl_unigram *unigram, size_t n_bytes)
{
    hl_tokens *tokens = &space->backwards;

    tokens->count = 0;
    for (size_t end = n_bytes; end > 0;) {
        const step *now  = &space->steps[end];
        hl_token   *last = tokens->count > 0 ? &tokens->items[tokens->count - 1] : NULL;
        if (now->id == unigram->unknown && last != NULL && last->id == unigram->unknown) {
            last->begin = now->begin;
        } else {
            HL_NEED(hl_tokens_add(tokens, now->id, now->begin, end));
        }
        end = now->begin;
    }
    return HL_OK;
}

/* Adds unknown text: as bytes if the vocabulary has all of them, else as the unknown token. */
static hl_status add_unknown(hl_tokens *out, const hl_unigram *unigram, hl_bytes word,
                             hl_token token, size_t at)
{
    bool    bytes = unigram->byte_fallback;
    int32_t whole = hl_vocab_find(unigram->vocab,
                                  (hl_bytes){ word.data + token.begin, token.end - token.begin });

    for (size_t i = token.begin; i < token.end && bytes; i++)
        bytes = unigram->byte_ids[(unsigned char)word.data[i]] >= 0;
    if (whole >= 0 || !bytes)
        return hl_tokens_add(out, whole >= 0 ? whole : unigram->unknown, at + token.begin,
                             at + token.end);
    for (size_t i = token.begin; i < token.end; i++)
        HL_NEED(hl_tokens_add(out, unigram->byte_ids[(unsigned char)word.data[i]], at + token.begin,
                              at + token.end));
    return HL_OK;
}

hl_status hl_unigram_encode(hl_tokens *out, const hl_unigram *unigram, hl_unigram_space *space,
                            const char *word, size_t n_bytes, size_t at, hl_budget *budget)
{
    hl_bytes bytes = { word, n_bytes };

    HL_NEED(walk_forwards(space, unigram, bytes, budget));
    HL_NEED(walk_backwards(space, unigram, n_bytes));
    for (size_t i = space->backwards.count; i-- > 0;) {
        hl_token token = space->backwards.items[i];
        if (token.id == unigram->unknown)
            HL_NEED(add_unknown(out, unigram, bytes, token, at));
        else
            HL_NEED(hl_tokens_add(out, token.id, at + token.begin, at + token.end));
    }
    return HL_OK;
}
