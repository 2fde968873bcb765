/* bpe.c - byte pair encoding with a heap.
 *
 * A word starts as a chain of symbols, one a character or byte.  The pair with
 * the lowest rank is merged, leftmost first, until no pair has a merge:
 *
 *     l o w e r   ->   lo w e r   ->   low e r   ->   low er   ->   lower
 *
 * All pairs that may merge lie in a heap by (rank, position).  Merging changes
 * two neighboring pairs, which are pushed anew; entries that went stale are
 * recognized when they come up, because the symbols are others by then.  A merge
 * removes a symbol, so there are fewer than n of them and at most 3n entries:
 * O(n log n), whatever the file says. */
#include "tokenize/word_models.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"
#include "tokenize/byte_level.h"

#define MARK             "\xe2\x96\x81" /* ▁ */
#define MARK_BYTES       3
#define MAX_SCORED_BYTES 1024 /* longer pieces are not taken apart */

/* -------------------------------------------------------- the table of merges
 *
 * A hash table from pairs of ids to merges: open addressing with linear probing.  An entry is 16
 * bytes, so that a lookup touches one cache line. */

#define FIRST_SLOTS 1024
#define EMPTY       UINT64_MAX
#define PROBES_EACH 64 /* average number of probes per merge; a normalized table needs three */
#define PROBES_BASE (1U << 20)

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* Finds the slot of the pair, or the empty slot where it belongs; adds the number of examined slots
 * to *n_probes. */
static size_t find_slot(const hl_merges *merges, uint64_t pair, uint64_t *n_probes)
{
    size_t   mask = merges->n_slots - 1;
    uint64_t hash = pair * 0x9e3779b97f4a7c15U;
    size_t   slot = (size_t)(hash ^ hash >> 32) & mask;

    for (++*n_probes; merges->slots[slot].pair != pair && merges->slots[slot].pair != EMPTY;
         ++*n_probes)
        slot = (slot + 1) & mask;
    return slot;
}

static hl_status grow_merges(hl_merges *merges)
{
    if (2 * (merges->count + 1) <= merges->n_slots)
        return HL_OK;
    hl_merges grown = { .n_slots  = merges->n_slots > 0 ? 2 * merges->n_slots : FIRST_SLOTS,
                        .count    = merges->count,
                        .n_added  = merges->n_added,
                        .n_probes = merges->n_probes };
    HL_NEED(HL_ALLOC(&grown.slots, grown.n_slots));
    memset(grown.slots, 0xff, grown.n_slots * sizeof *grown.slots);
    for (size_t i = 0; i < merges->n_slots; i++) {
        if (merges->slots[i].pair != EMPTY)
            grown.slots[find_slot(&grown, merges->slots[i].pair, &grown.n_probes)] =
                merges->slots[i];
    }
    hl_free(merges->slots);
    *merges = grown;
    return HL_OK;
}

hl_status hl_merges_add(hl_merges *merges, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    HL_NEED(grow_merges(merges));
    hl_merge *merge = &merges->slots[find_slot(merges, pair_of(left, right), &merges->n_probes)];
    merges->n_added++;
    if (merges->n_probes > PROBES_EACH * merges->n_added + PROBES_BASE)
        return hl_fail(HL_BAD_INPUT, "%llu merges collide: %llu places were searched for them",
                       (unsigned long long)merges->n_added, (unsigned long long)merges->n_probes);
    if (merge->pair == EMPTY)
        merges->count++;
    *merge = (hl_merge){ pair_of(left, right), rank, id };
    return HL_OK;
}

void hl_merges_free(hl_merges *merges)
{
    hl_free(merges->slots);
    *merges = (hl_merges){ 0 };
}

static const hl_merge *find_merge(const hl_merges *merges, int32_t left, int32_t right)
{
    if (merges->n_slots == 0)
        return NULL;
    uint64_t        n_probes = 0;
    const hl_merge *merge    = &merges->slots[find_slot(merges, pair_of(left, right), &n_probes)];
    return merge->pair != EMPTY ? merge : NULL;
}

/* ------------------------------------------------------------ construction */

struct hl_bpe {
    const hl_vocab *vocab;
    hl_bpe_options  options;
    char           *prefix; /* owned; options point here */
    char           *suffix;
    hl_merges       merges;
    uint32_t        n_ranks;
    int32_t         byte_ids[256]; /* piece of each byte; without BYTE_LEVEL, the fallback <0xNN> */
    bool            cuts_at_spaces;
    hl_buffer       joined;
};

static void find_byte_pieces(hl_bpe *bpe)
{
    for (int byte = 0; byte < 256; byte++) {
        char     character[4];
        hl_bytes spelling   = { character,
                                hl_utf8_encode(character, hl_byte_level_character((uint8_t)byte)) };
        bpe->byte_ids[byte] = bpe->options.byte_level
                                  ? hl_vocab_find(bpe->vocab, spelling)
                                  : hl_vocab_find_byte(bpe->vocab, (uint8_t)byte);
    }
}

hl_status hl_bpe_new(hl_bpe **out, const hl_vocab *vocab, const hl_bpe_options *options)
{
    HL_CLOSED(hl_bpe_free) hl_bpe *bpe = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&bpe, 1));
    bpe->vocab   = vocab;
    bpe->options = *options;
    HL_NEED(hl_strndup(&bpe->prefix, options->prefix.data, options->prefix.n_bytes));
    HL_NEED(hl_strndup(&bpe->suffix, options->suffix.data, options->suffix.n_bytes));
    bpe->options.prefix.data = bpe->prefix;
    bpe->options.suffix.data = bpe->suffix;
    find_byte_pieces(bpe);
    *out = hl_taken(&bpe);
    return HL_OK;
}

void hl_bpe_free(hl_bpe *bpe)
{
    if (bpe == NULL)
        return;
    hl_free(bpe->prefix);
    hl_free(bpe->suffix);
    hl_merges_free(&bpe->merges);
    hl_buffer_free(&bpe->joined);
    hl_free(bpe);
}

static hl_status no_piece(hl_bytes spelling, uint32_t rank)
{
    return hl_fail(HL_BAD_INPUT, "merge %u needs the piece '%.*s', which the vocabulary lacks",
                   rank, (int)(spelling.n_bytes < 100 ? spelling.n_bytes : 100), spelling.data);
}

hl_status hl_bpe_add_merge(hl_bpe *bpe, hl_bytes left, hl_bytes right)
{
    size_t  cut = bpe->options.prefix.n_bytes;
    int32_t ids[3];

    ids[0] = hl_vocab_find(bpe->vocab, left);
    ids[1] = hl_vocab_find(bpe->vocab, right);
    if (ids[0] < 0 || ids[1] < 0)
        return no_piece(ids[0] < 0 ? left : right, bpe->n_ranks);
    if (right.n_bytes < cut)
        return hl_fail(HL_BAD_INPUT, "merge %u: '%.*s' is shorter than the prefix '%s'",
                       bpe->n_ranks, (int)right.n_bytes, right.data, bpe->prefix);
    bpe->joined.n_bytes = 0;
    HL_NEED(hl_buffer_append(&bpe->joined, left.data, left.n_bytes));
    HL_NEED(hl_buffer_append(&bpe->joined, right.data + cut, right.n_bytes - cut));
    hl_bytes joined = { bpe->joined.data, bpe->joined.n_bytes };
    ids[2]          = hl_vocab_find(bpe->vocab, joined);
    if (ids[2] < 0)
        return no_piece(joined, bpe->n_ranks);
    HL_NEED(hl_merges_add(&bpe->merges, ids[0], ids[1], bpe->n_ranks, ids[2]));
    bpe->n_ranks++;
    return HL_OK;
}

/* ----------------------------------------------------- merges from scores */

typedef struct scored {
    float   score;
    int32_t id;
} scored;

/* Sorts by falling score, then by id. */
static int compare_scores(const void *left, const void *right)
{
    const scored *a = left;
    const scored *b = right;
    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* Adds a merge for every cut of one piece between characters. */
static hl_status add_cuts(hl_bpe *bpe, int32_t id, uint32_t rank)
{
    hl_bytes whole = hl_vocab_spelling(bpe->vocab, id);

    for (size_t cut = 1; cut < whole.n_bytes; cut++) {
        if (hl_utf8_is_continuation(whole.data[cut]))
            continue;
        int32_t left = hl_vocab_find(bpe->vocab, (hl_bytes){ whole.data, cut });
        if (left < 0)
            continue;
        int32_t right =
            hl_vocab_find(bpe->vocab, (hl_bytes){ whole.data + cut, whole.n_bytes - cut });
        if (right >= 0)
            HL_NEED(hl_merges_add(&bpe->merges, left, right, rank, id));
    }
    return HL_OK;
}

hl_status hl_bpe_add_scored_merges(hl_bpe *bpe)
{
    const hl_vocab  *vocab = bpe->vocab;
    size_t           count = 0;
    HL_FREED scored *order = NULL;

    HL_NEED(HL_ALLOC(&order, vocab->n_ids));
    for (size_t id = 0; id < vocab->n_ids; id++) {
        const hl_piece *piece = &vocab->pieces[id];
        bool            plain = piece->type == HL_TOKEN_NORMAL || piece->type == HL_TOKEN_ADDED;
        if (piece->present && plain && piece->n_bytes <= MAX_SCORED_BYTES &&
            piece->score == piece->score) /* excludes NaN, which has no order */
            order[count++] = (scored){ piece->score, (int32_t)id };
    }
    qsort(order, count, sizeof *order, compare_scores);
    for (size_t i = 0; i < count; i++) {
        /* Pieces with equal scores get equal ranks; the leftmost is then merged first. */
        if (i > 0 && order[i].score != order[i - 1].score)
            bpe->n_ranks++;
        HL_NEED(add_cuts(bpe, order[i].id, bpe->n_ranks));
    }
    return HL_OK;
}

/* ------------------------------------------------------------- cutting at ▁ */

/* Returns true if a piece has a ▁ after another character. */
static bool has_inner_mark(hl_bytes spelling)
{
    bool seen_other = false;

    for (size_t i = 0; i < spelling.n_bytes;) {
        bool mark =
            spelling.n_bytes - i >= MARK_BYTES && memcmp(spelling.data + i, MARK, MARK_BYTES) == 0;
        if (mark && seen_other)
            return true;
        seen_other = seen_other || !mark;
        i += mark ? MARK_BYTES : 1;
    }
    return false;
}

hl_status hl_bpe_finish(hl_bpe *bpe)
{
    hl_bytes mark = { MARK, MARK_BYTES };

    hl_buffer_free(&bpe->joined);
    bpe->cuts_at_spaces = !bpe->options.byte_level && !bpe->options.ignore_merges &&
                          bpe->options.prefix.n_bytes == 0 && bpe->options.suffix.n_bytes == 0 &&
                          hl_vocab_find(bpe->vocab, mark) >= 0;
    for (size_t i = 0; i < bpe->merges.n_slots && bpe->cuts_at_spaces; i++) {
        const hl_merge *merge = &bpe->merges.slots[i];
        if (merge->pair != UINT64_MAX && has_inner_mark(hl_vocab_spelling(bpe->vocab, merge->id)))
            bpe->cuts_at_spaces = false;
    }
    return HL_OK;
}

/* ------------------------------------------------------------- what is in it */

const hl_bpe_options *hl_bpe_get_options(const hl_bpe *bpe)
{
    return &bpe->options;
}

static int compare_ranks(const void *left, const void *right)
{
    const hl_merge *a = left;
    const hl_merge *b = right;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

hl_status hl_bpe_merges(hl_bpe_merge **out, size_t *count, const hl_bpe *bpe)
{
    HL_FREED hl_merge *sorted = NULL;

    *out   = NULL;
    *count = 0;
    HL_NEED(HL_ALLOC(&sorted, bpe->merges.count));
    for (size_t i = 0; i < bpe->merges.n_slots; i++) {
        if (bpe->merges.slots[i].pair != UINT64_MAX)
            sorted[(*count)++] = bpe->merges.slots[i];
    }
    qsort(sorted, *count, sizeof *sorted, compare_ranks);
    HL_NEED(HL_ALLOC(out, *count));
    for (size_t i = 0; i < *count; i++)
        (*out)[i] = (hl_bpe_merge){ .left  = (int32_t)(sorted[i].pair >> 32),
                                    .right = (int32_t)(sorted[i].pair & UINT32_MAX),
                                    .id    = sorted[i].id };
    return HL_OK;
}

int32_t hl_bpe_merged(const hl_bpe *bpe, int32_t left, int32_t right)
{
    const hl_merge *merge = find_merge(&bpe->merges, left, right);
    return merge != NULL ? merge->id : -1;
}

bool hl_bpe_cuts_at_spaces(const hl_bpe *bpe)
{
    return bpe->cuts_at_spaces;
}

/* --------------------------------------------------------------- the symbols */

typedef struct hl_bpe_symbol {
    int32_t  id;
    uint32_t begin; /* first byte, in the word */
    uint32_t end;
    int32_t  previous; /* -1: none */
    int32_t  next;     /* -1: none */
    bool     gone;
} symbol;

typedef struct hl_bpe_candidate {
    uint64_t key; /* rank in the upper half, position in the lower */
    int32_t  left;
    int32_t  right;
    int32_t  id; /* id of the merged piece */
} candidate;

void hl_bpe_space_free(hl_bpe_space *space)
{
    hl_free(space->symbols);
    hl_free(space->heap);
    hl_buffer_free(&space->spelling);
    *space = (hl_bpe_space){ 0 };
}

static hl_status add_symbol(hl_bpe_space *space, int32_t id, size_t begin, size_t end)
{
    HL_NEED(HL_GROW(&space->symbols, &space->symbols_capacity, space->n_symbols, 1));
    int32_t index         = (int32_t)space->n_symbols++;
    space->symbols[index] = (symbol){ id, (uint32_t)begin, (uint32_t)end, index - 1, -1, false };
    if (index > 0)
        space->symbols[index - 1].next = index;
    return HL_OK;
}

static bool has_fallback(const hl_bpe *bpe, const char *word, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++) {
        if (bpe->byte_ids[(unsigned char)word[i]] < 0)
            return false;
    }
    return bpe->options.byte_fallback;
}

/* Adds the bytes of a character as <0xNN> pieces. */
static hl_status add_fallback(hl_bpe_space *space, const hl_bpe *bpe, const char *word,
                              size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        HL_NEED(add_symbol(space, bpe->byte_ids[(unsigned char)word[i]], i, i + 1));
    return HL_OK;
}

/* Adds a character that the vocabulary lacks; it may be joined to a preceding unknown one. */
static hl_status add_unknown(hl_bpe_space *space, const hl_bpe *bpe, size_t begin, size_t end)
{
    symbol *last = space->n_symbols > 0 ? &space->symbols[space->n_symbols - 1] : NULL;

    if (bpe->options.unknown < 0)
        return HL_OK;
    if (bpe->options.fuse_unknown && last != NULL && last->id == bpe->options.unknown &&
        last->end == begin) {
        last->end = (uint32_t)end;
        return HL_OK;
    }
    return add_symbol(space, bpe->options.unknown, begin, end);
}

/* Spells a character inside a word, with the prefix and the suffix where they apply. */
static hl_status spell(hl_bytes *out, hl_bpe_space *space, const hl_bpe *bpe, hl_bytes word,
                       size_t begin, size_t end)
{
    bool prefix = begin > 0 && bpe->options.prefix.n_bytes > 0;
    bool suffix = end == word.n_bytes && bpe->options.suffix.n_bytes > 0;

    *out = (hl_bytes){ word.data + begin, end - begin };
    if (!prefix && !suffix)
        return HL_OK;
    space->spelling.n_bytes = 0;
    if (prefix)
        HL_NEED(hl_buffer_append(&space->spelling, bpe->prefix, bpe->options.prefix.n_bytes));
    HL_NEED(hl_buffer_append(&space->spelling, out->data, out->n_bytes));
    if (suffix)
        HL_NEED(hl_buffer_append(&space->spelling, bpe->suffix, bpe->options.suffix.n_bytes));
    *out = hl_buffer_bytes(&space->spelling);
    return HL_OK;
}

static hl_status add_characters(hl_bpe_space *space, const hl_bpe *bpe, hl_bytes word,
                                hl_budget *budget)
{
    hl_bytes spelling;

    for (size_t at = 0; at < word.n_bytes;) {
        size_t begin = at;
        (void)hl_utf8_next(word.data, &at);
        HL_NEED(spell(&spelling, space, bpe, word, begin, at));
        HL_NEED(hl_budget_spend(budget, spelling.n_bytes));
        int32_t id = hl_vocab_find(bpe->vocab, spelling);
        if (id >= 0)
            HL_NEED(add_symbol(space, id, begin, at));
        else if (has_fallback(bpe, word.data, begin, at))
            HL_NEED(add_fallback(space, bpe, word.data, begin, at));
        else
            HL_NEED(add_unknown(space, bpe, begin, at));
    }
    return HL_OK;
}

static hl_status add_bytes(hl_bpe_space *space, const hl_bpe *bpe, hl_bytes word)
{
    for (size_t i = 0; i < word.n_bytes; i++) {
        int32_t id = bpe->byte_ids[(unsigned char)word.data[i]];
        if (id >= 0)
            HL_NEED(add_symbol(space, id, i, i + 1));
        else
            HL_NEED(add_unknown(space, bpe, i, i + 1));
    }
    return HL_OK;
}

/* -------------------------------------------------------------------- the heap */

static bool is_before(candidate a, candidate b)
{
    return a.key < b.key;
}

static hl_status push(hl_bpe_space *space, candidate item)
{
    HL_NEED(HL_GROW(&space->heap, &space->heap_capacity, space->n_heap, 1));
    size_t at = space->n_heap++;
    for (; at > 0 && is_before(item, space->heap[(at - 1) / 2]); at = (at - 1) / 2)
        space->heap[at] = space->heap[(at - 1) / 2];
    space->heap[at] = item;
    return HL_OK;
}

static candidate pop(hl_bpe_space *space)
{
    candidate top  = space->heap[0];
    candidate last = space->heap[--space->n_heap];
    size_t    at   = 0;

    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= space->n_heap)
            break;
        if (child + 1 < space->n_heap && is_before(space->heap[child + 1], space->heap[child]))
            child++;
        if (!is_before(space->heap[child], last))
            break;
        space->heap[at] = space->heap[child];
        at              = child;
    }
    space->heap[at] = last;
    return top;
}

/* Pushes the pair that starts at this symbol, if it merges. */
static hl_status push_pair(hl_bpe_space *space, const hl_bpe *bpe, int32_t position)
{
    const symbol *left = &space->symbols[position];

    if (left->next < 0)
        return HL_OK;
    int32_t         right = space->symbols[left->next].id;
    const hl_merge *merge = find_merge(&bpe->merges, left->id, right);
    if (merge == NULL)
        return HL_OK;
    return push(space, (candidate){ (uint64_t)merge->rank << 32 | (uint32_t)position, left->id,
                                    right, merge->id });
}

/* ------------------------------------------------------------------- merging */

/* Returns true if the pair has not changed since it was pushed. */
static bool still_merges(const hl_bpe_space *space, int32_t position, const candidate *pair)
{
    const symbol *left = &space->symbols[position];

    return !left->gone && left->id == pair->left && left->next >= 0 &&
           space->symbols[left->next].id == pair->right;
}

static hl_status merge_all(hl_bpe_space *space, const hl_bpe *bpe, hl_budget *budget)
{
    space->n_heap = 0;
    for (size_t i = 0; i + 1 < space->n_symbols; i++)
        HL_NEED(push_pair(space, bpe, (int32_t)i));
    while (space->n_heap > 0) {
        HL_NEED(hl_budget_spend(budget, 16));
        candidate top      = pop(space);
        int32_t   position = (int32_t)(top.key & UINT32_MAX);
        if (!still_merges(space, position, &top))
            continue;
        symbol *left  = &space->symbols[position];
        symbol *right = &space->symbols[left->next];
        left->id      = top.id;
        left->end     = right->end;
        left->next    = right->next;
        right->gone   = true;
        if (left->next >= 0)
            space->symbols[left->next].previous = position;
        if (left->previous >= 0)
            HL_NEED(push_pair(space, bpe, left->previous));
        HL_NEED(push_pair(space, bpe, position));
    }
    return HL_OK;
}

/* Finds the whole word as a piece; -1 if it is not a piece. */
static hl_status find_whole(int32_t *out, hl_bpe_space *space, const hl_bpe *bpe, hl_bytes word)
{
    *out = -1;
    if (bpe->options.byte_level) {
        space->spelling.n_bytes = 0;
        HL_NEED(hl_byte_level_spell_bytes(&space->spelling, word));
        word = hl_buffer_bytes(&space->spelling);
    }
    *out = hl_vocab_find(bpe->vocab, word);
    return HL_OK;
}

hl_status hl_bpe_encode(hl_tokens *out, const hl_bpe *bpe, hl_bpe_space *space, const char *word,
                        size_t n_bytes, size_t at, hl_budget *budget)
{
    hl_bytes bytes = { word, n_bytes };
    int32_t  whole = -1;

    if (bpe->options.ignore_merges) {
        HL_NEED(find_whole(&whole, space, bpe, bytes));
        if (whole >= 0)
            return hl_tokens_add(out, whole, at, at + n_bytes);
    }
    space->n_symbols = 0;
    if (bpe->options.byte_level)
        HL_NEED(add_bytes(space, bpe, bytes));
    else
        HL_NEED(add_characters(space, bpe, bytes, budget));
    HL_NEED(merge_all(space, bpe, budget));
    for (size_t i = 0; i < space->n_symbols; i++) {
        const symbol *s = &space->symbols[i];
        if (!s->gone)
            HL_NEED(hl_tokens_add(out, s->id, at + s->begin, at + s->end));
    }
    return HL_OK;
}
