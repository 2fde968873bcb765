/* vocab.c - one array of pieces, one block of bytes, one hash table.
 *
 * The table is open addressing with linear probing, at most half full; a slot
 * holds only an id, and the spelling it stands for is compared in place. */
#include "tokenize/vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"

#define FIRST_SLOTS 1024
#define PROBES_EACH 64 /* average number of probes per piece; a normalized table needs three */
#define PROBES_BASE (1U << 20)

/* Multiplies and mixes, eight bytes at a time.  An adversary can find collisions, so callers must
 * bound what collisions cost. */
uint64_t hl_hash_bytes(const char *bytes, size_t n_bytes)
{
    const uint64_t factor = 0x9e3779b97f4a7c15U;
    uint64_t       hash   = n_bytes * factor;
    uint64_t       word;

    for (; n_bytes >= sizeof word; bytes += sizeof word, n_bytes -= sizeof word) {
        memcpy(&word, bytes, sizeof word);
        hash = (hash ^ word) * factor;
        hash ^= hash >> 32;
    }
    word = 0;
    if (n_bytes > 0)
        memcpy(&word, bytes, n_bytes);
    hash = (hash ^ word) * factor;
    hash ^= hash >> 29;
    hash *= 0xbf58476d1ce4e5b9U;
    return hash ^ hash >> 32;
}

static hl_bytes spelling_of(const hl_vocab *vocab, const hl_piece *piece)
{
    return (hl_bytes){ vocab->bytes + piece->at, piece->n_bytes };
}

/* Finds the slot of this spelling, or the empty slot where it belongs; adds the number of examined
 * slots to *n_probes. */
static size_t find_slot(const hl_vocab *vocab, hl_bytes spelling, uint64_t *n_probes)
{
    size_t mask = vocab->n_slots - 1;
    size_t slot = (size_t)hl_hash_bytes(spelling.data, spelling.n_bytes) & mask;

    for (;; slot = (slot + 1) & mask) {
        ++*n_probes;
        int32_t id = vocab->slots[slot];
        if (id < 0)
            return slot;
        hl_bytes other = spelling_of(vocab, &vocab->pieces[id]);
        if (other.n_bytes == spelling.n_bytes &&
            memcmp(other.data, spelling.data, spelling.n_bytes) == 0)
            return slot;
    }
}

static hl_status grow_slots(hl_vocab *vocab)
{
    if (2 * (vocab->n_pieces + 1) <= vocab->n_slots)
        return HL_OK;
    size_t   n_slots = vocab->n_slots > 0 ? 2 * vocab->n_slots : FIRST_SLOTS;
    int32_t *slots   = NULL;
    HL_NEED(HL_ALLOC(&slots, n_slots));
    int32_t *old   = vocab->slots;
    size_t   n_old = vocab->n_slots;
    memset(slots, 0xff, n_slots * sizeof *slots); /* all bytes 0xff: ids of -1 */
    vocab->slots   = slots;
    vocab->n_slots = n_slots;
    for (size_t i = 0; i < n_old; i++) {
        if (old[i] >= 0)
            slots[find_slot(vocab, spelling_of(vocab, &vocab->pieces[old[i]]), &vocab->n_probes)] =
                old[i];
    }
    hl_free(old);
    return HL_OK;
}

/* Makes room for the id; the new ids below it have no pieces. */
static hl_status grow_ids(hl_vocab *vocab, size_t id)
{
    if (id < vocab->n_ids)
        return HL_OK;
    HL_NEED(HL_GROW(&vocab->pieces, &vocab->pieces_capacity, vocab->n_ids, id + 1 - vocab->n_ids));
    memset(vocab->pieces + vocab->n_ids, 0, (id + 1 - vocab->n_ids) * sizeof *vocab->pieces);
    vocab->n_ids = id + 1;
    return HL_OK;
}

static hl_status check_piece(const hl_vocab *vocab, int64_t id, hl_bytes spelling)
{
    if (id < 0 || id >= HL_MAX_VOCAB)
        return hl_fail(HL_BAD_INPUT, "id %lld of '%.*s' is not between 0 and %d", (long long)id,
                       (int)(spelling.n_bytes < 100 ? spelling.n_bytes : 100), spelling.data,
                       HL_MAX_VOCAB - 1);
    if (spelling.n_bytes > HL_MAX_PIECE_BYTES)
        return hl_fail(HL_BAD_INPUT, "the piece with id %lld has %zu bytes, at most %d",
                       (long long)id, spelling.n_bytes, HL_MAX_PIECE_BYTES);
    if ((size_t)id < vocab->n_ids && vocab->pieces[id].present)
        return hl_fail(HL_BAD_INPUT, "id %lld is given to '%.100s' and to '%.*s'", (long long)id,
                       vocab->bytes + vocab->pieces[id].at,
                       (int)(spelling.n_bytes < 100 ? spelling.n_bytes : 100), spelling.data);
    return HL_OK;
}

hl_status hl_vocab_add(hl_vocab *vocab, int64_t id, hl_bytes spelling, hl_token_type type,
                       bool *replaced)
{
    HL_NEED(check_piece(vocab, id, spelling));
    if (vocab->n_bytes > UINT32_MAX - spelling.n_bytes - 1)
        return hl_fail(HL_BAD_INPUT, "a vocabulary of more than %u bytes", UINT32_MAX);
    HL_NEED(grow_ids(vocab, (size_t)id));
    HL_NEED(grow_slots(vocab));
    HL_NEED(HL_GROW(&vocab->bytes, &vocab->bytes_capacity, vocab->n_bytes, spelling.n_bytes + 1));
    if (spelling.n_bytes > 0)
        memcpy(vocab->bytes + vocab->n_bytes, spelling.data, spelling.n_bytes);
    vocab->bytes[vocab->n_bytes + spelling.n_bytes] = '\0'; /* for messages */
    vocab->pieces[id]                               = (hl_piece){ .at      = (uint32_t)vocab->n_bytes,
                                                                  .n_bytes = (uint32_t)spelling.n_bytes,
                                                                  .type    = (uint8_t)type,
                                                                  .present = true };
    vocab->n_bytes += spelling.n_bytes + 1;
    vocab->n_pieces++;
    vocab->longest = spelling.n_bytes > vocab->longest ? spelling.n_bytes : vocab->longest;

    size_t slot = find_slot(vocab, hl_vocab_spelling(vocab, id), &vocab->n_probes);
    if (vocab->n_probes > PROBES_EACH * vocab->n_pieces + PROBES_BASE)
        return hl_fail(HL_BAD_INPUT,
                       "the %zu pieces up to id %lld collide: %llu places were searched for them",
                       vocab->n_pieces, (long long)id, (unsigned long long)vocab->n_probes);
    if (replaced != NULL)
        *replaced = vocab->slots[slot] >= 0;
    vocab->slots[slot] = (int32_t)id;
    return HL_OK;
}

void hl_vocab_free(hl_vocab *vocab)
{
    hl_free(vocab->pieces);
    hl_free(vocab->bytes);
    hl_free(vocab->slots);
    *vocab = (hl_vocab){ 0 };
}

int32_t hl_vocab_find(const hl_vocab *vocab, hl_bytes spelling)
{
    uint64_t n_probes = 0;
    return vocab->n_slots > 0 ? vocab->slots[find_slot(vocab, spelling, &n_probes)] : -1;
}

int32_t hl_vocab_find_byte(const hl_vocab *vocab, uint8_t byte)
{
    char spelling[8];
    int  length = snprintf(spelling, sizeof spelling, "<0x%02X>", byte);

    return hl_vocab_find(vocab, (hl_bytes){ spelling, (size_t)length });
}

hl_bytes hl_vocab_spelling(const hl_vocab *vocab, int64_t id)
{
    if (id < 0 || (size_t)id >= vocab->n_ids || !vocab->pieces[id].present)
        return (hl_bytes){ NULL, 0 };
    return spelling_of(vocab, &vocab->pieces[id]);
}

/* ------------------------------------------------------------------ prefixes
 *
 * The set is a sorted list.  The strings with a common beginning are neighbors in it, so that a
 * walk is a range that narrows with every byte: no trie, and no memory beyond one pointer and one
 * id a string. */

hl_status hl_prefixes_add(hl_prefixes *set, hl_bytes text, int32_t id)
{
    if (text.n_bytes == 0)
        return HL_OK;
    hl_status status = HL_GROW(&set->items, &set->capacity, set->count, 1);
    if (status == HL_OK)
        set->items[set->count++] = (hl_prefix){ text, id };
    return status;
}

static int compare_text(hl_bytes a, hl_bytes b)
{
    size_t common = a.n_bytes < b.n_bytes ? a.n_bytes : b.n_bytes;
    int    order  = memcmp(a.data, b.data, common);
    return order != 0 ? order : (a.n_bytes > b.n_bytes) - (a.n_bytes < b.n_bytes);
}

static int compare_prefixes(const void *left, const void *right)
{
    const hl_prefix *a     = left;
    const hl_prefix *b     = right;
    int              order = compare_text(a->text, b->text);
    return order != 0 ? order : (a->id > b->id) - (a->id < b->id);
}

void hl_prefixes_sort(hl_prefixes *set)
{
    size_t kept = 0;

    if (set->count > 0)
        qsort(set->items, set->count, sizeof *set->items, compare_prefixes);
    for (size_t i = 0; i < set->count; i++) {
        if (i + 1 < set->count && compare_text(set->items[i].text, set->items[i + 1].text) == 0)
            continue;
        set->items[kept++] = set->items[i];
    }
    set->count = kept;
    size_t at  = 0;
    for (unsigned byte = 0; byte <= 256; byte++) {
        while (at < kept && (unsigned char)set->items[at].text.data[0] < byte)
            at++;
        set->first[byte] = (uint32_t)at;
    }
}

void hl_prefixes_free(hl_prefixes *set)
{
    hl_free(set->items);
    *set = (hl_prefixes){ 0 };
}

hl_prefix_walk hl_prefixes_begin(const hl_prefixes *set)
{
    return (hl_prefix_walk){ .low = 0, .high = set->count };
}

/* Finds the first string in [low, high) whose byte at `depth` is at least `byte`.  All of these
 * strings have the same first `depth` bytes; a string that ends there sorts first. */
static size_t lower_bound(const hl_prefixes *set, const hl_prefix_walk *walk, int byte)
{
    size_t low  = walk->low;
    size_t high = walk->high;

    while (low < high) {
        size_t   middle = low + (high - low) / 2;
        hl_bytes text   = set->items[middle].text;
        int      seen   = walk->depth < text.n_bytes ? (unsigned char)text.data[walk->depth] : -1;
        if (seen < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool hl_prefixes_step(const hl_prefixes *set, hl_prefix_walk *walk, char byte)
{
    unsigned char wanted = (unsigned char)byte;

    if (walk->depth == 0) {
        walk->low  = set->first[wanted];
        walk->high = set->first[wanted + 1U];
    } else {
        size_t low = lower_bound(set, walk, wanted);
        walk->low  = low;
        walk->high = lower_bound(set, walk, wanted + 1);
    }
    walk->depth++;
    return walk->low < walk->high;
}

int32_t hl_prefixes_match(const hl_prefixes *set, const hl_prefix_walk *walk)
{
    const hl_prefix *first = &set->items[walk->low];
    return first->text.n_bytes == walk->depth ? first->id : -1;
}
