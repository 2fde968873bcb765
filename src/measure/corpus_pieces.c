/* corpus_pieces.c - tokenizing long texts in pieces that overlap.
 *
 * Two slots take turns: `now` holds the current piece, `next` the one after it, which must be
 * tokenized before the end of `now` is known. */
#include "measure/corpus_parts.h"

#include <assert.h>
#include <string.h>

#include "base/buffer.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"

#define N_AGREE 32

typedef struct piece_slot {
    char        *text;
    size_t       capacity;
    size_t       n_bytes;
    uint64_t     at; /* offset of text[0] in the whole text */
    hl_encoding *encoding;
    size_t       begin; /* first token that has not been returned yet */
} piece_slot;

struct hl_text_pieces {
    const hl_tokenizer *tokenizer;
    hl_encode_options   options;
    size_t              piece_bytes; /* size of a piece as requested */
    size_t              n_overlap;
    size_t              n_bytes; /* size of the next piece, which may have grown */
    hl_text_input       input;
    hl_hasher           hasher;
    piece_slot          slots[2];
    int                 now;     /* index of the current slot */
    bool                started; /* the first piece has been read */
};

hl_status hl_text_pieces_new(hl_text_pieces **out, const hl_tokenizer *tokenizer,
                             const hl_encode_options *options, size_t n_bytes, size_t n_overlap)
{
    hl_status status = HL_ALLOC_ZEROED(out, 1);

    if (status == HL_OK)
        **out = (hl_text_pieces){ .tokenizer   = tokenizer,
                                  .options     = *options,
                                  .piece_bytes = n_bytes,
                                  .n_overlap   = n_overlap };
    return status;
}

void hl_text_pieces_free(hl_text_pieces *pieces)
{
    if (pieces == NULL)
        return;
    for (int i = 0; i < 2; i++) {
        hl_free(pieces->slots[i].text);
        hl_encoding_free(pieces->slots[i].encoding);
    }
    hl_free(pieces);
}

void hl_text_pieces_start(hl_text_pieces *pieces, const hl_text_input *input)
{
    pieces->input   = *input;
    pieces->n_bytes = pieces->piece_bytes;
    pieces->started = false;
    hl_hash_start(&pieces->hasher, 0);
}

uint64_t hl_text_pieces_hash(const hl_text_pieces *pieces)
{
    return hl_hash_end(&pieces->hasher);
}

/* ---------------------------------------------------------------------- reading */

static hl_status read_input(char *out, const hl_text_pieces *pieces, uint64_t at, size_t n_bytes)
{
    const hl_text_input *input = &pieces->input;

    if (input->source != NULL)
        return hl_text_source_read(out, input->source, input->at + at, n_bytes);
    if (n_bytes > 0)
        memcpy(out, input->memory + at, n_bytes);
    return HL_OK;
}

static hl_status bad_text(const hl_text_pieces *pieces, uint64_t at)
{
    const hl_text_source *source = pieces->input.source;

    return hl_fail(HL_BAD_INPUT, "%s: byte %llu is no longer UTF-8: the file changed while in use",
                   source != NULL ? source->path : "text",
                   (unsigned long long)(pieces->input.at + at));
}

/* Appends and hashes `n_fresh` bytes that were not read before. */
static hl_status append_fresh(hl_text_pieces *pieces, piece_slot *slot, size_t n_fresh)
{
    HL_NEED(HL_GROW(&slot->text, &slot->capacity, slot->n_bytes, n_fresh + 1));
    char *fresh = slot->text + slot->n_bytes;
    HL_NEED(read_input(fresh, pieces, slot->at + slot->n_bytes, n_fresh));
    hl_hash_add(&pieces->hasher, fresh, n_fresh);
    slot->n_bytes += n_fresh;
    return HL_OK;
}

/* Fills a slot up to `wanted` bytes, in whole characters, or to the end of the text. */
static hl_status fill(hl_text_pieces *pieces, piece_slot *slot, size_t wanted)
{
    uint64_t left = pieces->input.n_bytes - slot->at - slot->n_bytes;
    uint64_t n    = wanted > slot->n_bytes ? wanted - slot->n_bytes : 0;

    HL_NEED(append_fresh(pieces, slot, (size_t)(n < left ? n : left)));
    for (;;) { /* runs at most three times */
        size_t n_cut = hl_utf8_incomplete(slot->text, slot->n_bytes);
        if (n_cut == 0 || slot->at + slot->n_bytes == pieces->input.n_bytes)
            break;
        HL_NEED(append_fresh(pieces, slot, 1));
    }
    size_t bad = hl_utf8_find_bad(slot->text, slot->n_bytes);
    if (bad < slot->n_bytes)
        HL_NEED(bad_text(pieces, slot->at + bad));
    return HL_OK;
}

static hl_status encode(const hl_text_pieces *pieces, piece_slot *slot)
{
    hl_encoding_free(slot->encoding);
    slot->encoding = NULL;
    return hl_tokenizer_encode(&slot->encoding, pieces->tokenizer, slot->text, slot->n_bytes,
                               &pieces->options);
}

static bool reaches_the_end(const hl_text_pieces *pieces, const piece_slot *slot)
{
    return slot->at + slot->n_bytes == pieces->input.n_bytes;
}

/* ---------------------------------------------------------------------- joining */

static uint64_t begin_of(const piece_slot *slot, size_t token)
{
    return slot->at + slot->encoding->spans[token].begin;
}

/* Returns the first token that begins at or after a byte of the whole text. */
static size_t token_at(const piece_slot *slot, uint64_t at, size_t from)
{
    size_t token = from;

    while (token < slot->encoding->n_tokens && begin_of(slot, token) < at)
        token++;
    return token;
}

/* Finds where two neighbors meet: left's tokens end before *left_end, right's begin at
 * *right_begin. */
static bool join(size_t *left_end, size_t *right_begin, const piece_slot *left,
                 const piece_slot *right, uint64_t from)
{
    assert(left->encoding != NULL && right->encoding != NULL);

    size_t i = token_at(left, from, left->begin);
    size_t j = token_at(right, from, 0);
    size_t n = 0; /* number of consecutive equal tokens */

    while (n < N_AGREE && i < left->encoding->n_tokens && j < right->encoding->n_tokens) {
        uint64_t left_at = begin_of(left, i), right_at = begin_of(right, j);
        bool     same = left_at == right_at && left->encoding->ids[i] == right->encoding->ids[j];
        n             = same ? n + 1 : 0;
        i += left_at <= right_at;
        j += right_at <= left_at;
    }
    *left_end    = i - n / 2;
    *right_begin = j - n / 2;
    return n == N_AGREE;
}

/* Reads the next piece, which begins with the end of the current one. */
static hl_status open_next(hl_text_pieces *pieces)
{
    piece_slot *now     = &pieces->slots[pieces->now];
    piece_slot *next    = &pieces->slots[!pieces->now];
    size_t      overlap = pieces->n_overlap < now->n_bytes ? pieces->n_overlap : now->n_bytes;

    while (hl_utf8_is_continuation(now->text[now->n_bytes - overlap]))
        overlap--; /* the text is valid, so this stops at the first byte of a character */
    next->n_bytes = 0;
    next->at      = now->at + now->n_bytes - overlap;
    HL_NEED(HL_GROW(&next->text, &next->capacity, 0, overlap));
    memcpy(next->text, now->text + now->n_bytes - overlap, overlap);
    next->n_bytes = overlap;
    HL_NEED(fill(pieces, next, pieces->n_bytes));
    return encode(pieces, next);
}

/* Joins neighbors that do not agree into one piece; the next piece will be longer.  Text that is
 * added at the end changes no token near the start of a piece, so `begin` stays. */
static hl_status swallow_next(hl_text_pieces *pieces)
{
    piece_slot *now    = &pieces->slots[pieces->now];
    piece_slot *next   = &pieces->slots[!pieces->now];
    size_t      shared = (size_t)(now->at + now->n_bytes - next->at);

    HL_NEED(HL_GROW(&now->text, &now->capacity, now->n_bytes, next->n_bytes - shared));
    memcpy(now->text + now->n_bytes, next->text + shared, next->n_bytes - shared);
    now->n_bytes += next->n_bytes - shared;
    pieces->n_bytes *= 2;
    return encode(pieces, now);
}

/* Makes `next` the piece after `now`, and finds where `now` ends. */
static hl_status find_end(size_t *end, size_t *next_begin, hl_text_pieces *pieces)
{
    piece_slot *now  = &pieces->slots[pieces->now];
    piece_slot *next = &pieces->slots[!pieces->now];

    while (!reaches_the_end(pieces, now)) {
        HL_NEED(open_next(pieces));
        if (join(end, next_begin, now, next, next->at + pieces->n_overlap / 2))
            return HL_OK;
        HL_NEED(swallow_next(pieces));
    }
    *end = now->encoding->n_tokens;
    return HL_OK;
}

hl_status hl_text_pieces_next(hl_text_piece *out, hl_text_pieces *pieces)
{
    size_t      end        = 0;
    size_t      next_begin = 0;
    piece_slot *now;

    if (!pieces->started) {
        now          = &pieces->slots[pieces->now];
        now->at      = 0;
        now->n_bytes = 0;
        now->begin   = 0;
        HL_NEED(fill(pieces, now, pieces->n_bytes));
        HL_NEED(encode(pieces, now));
        pieces->started = true;
    } else {
        pieces->now = !pieces->now;
        now         = &pieces->slots[pieces->now];
    }
    HL_NEED(find_end(&end, &next_begin, pieces));
    pieces->slots[!pieces->now].begin = next_begin;
    *out                              = (hl_text_piece){ .encoding = now->encoding,
                                                         .begin    = now->begin,
                                                         .end      = end,
                                                         .text     = now->text,
                                                         .n_text   = now->n_bytes,
                                                         .at       = now->at,
                                                         .last     = reaches_the_end(pieces, now) };
    return HL_OK;
}
