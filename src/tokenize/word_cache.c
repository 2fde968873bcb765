/* word_cache.c - a hash table over two arenas, one of bytes and one of tokens. */
#include "tokenize/word_cache.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "tokenize/buffer.h"
#include "tokenize/vocab.h"

enum {
    FIRST_SLOTS = 1 << 10,
    MAX_SLOTS   = 1 << 17, /* half of them are used */
    LONG_WORD   = 64,
    MAX_PROBES  = 64, /* of one search */
};

typedef struct entry {
    uint64_t hash;  /* 0: empty */
    uint32_t at;    /* in bytes */
    uint32_t token; /* in tokens */
    uint16_t n_bytes;
    uint16_t n_tokens;
} entry;

struct hl_word_cache {
    entry    *slots; /* (n_slots) */
    size_t    n_slots;
    size_t    n_words;
    hl_buffer bytes;
    hl_tokens tokens;
};

hl_status hl_word_cache_new(hl_word_cache **out)
{
    hl_status      status = HL_OK;
    hl_word_cache *cache  = NULL;

    *out = NULL;
    HL_TRY(HL_ALLOC_ZEROED(&cache, 1));
    HL_TRY(HL_ALLOC_ZEROED(&cache->slots, FIRST_SLOTS));
    cache->n_slots = FIRST_SLOTS;
    *out           = cache;
    cache          = NULL;

done:
    hl_word_cache_free(cache);
    return status;
}

void hl_word_cache_free(hl_word_cache *cache)
{
    if (cache == NULL)
        return;
    hl_free(cache->slots);
    hl_buffer_free(&cache->bytes);
    hl_tokens_free(&cache->tokens);
    hl_free(cache);
}

static uint64_t hash_word(const char *word, size_t n_bytes)
{
    return hl_hash_bytes(word, n_bytes) | 1;
}

/* The word's slot, or the empty one where it belongs; NULL where neither is near, as when a text is
 * made of words that collide. */
static entry *find_slot(const hl_word_cache *cache, uint64_t hash, const char *word, size_t n_bytes)
{
    size_t mask = cache->n_slots - 1;
    size_t slot = (size_t)(hash >> 17) & mask;

    for (int i = 0; i < MAX_PROBES; i++, slot = (slot + 1) & mask) {
        entry *seen = &cache->slots[slot];
        if (seen->hash == 0)
            return seen;
        if (seen->hash == hash && seen->n_bytes == n_bytes &&
            memcmp(cache->bytes.data + seen->at, word, n_bytes) == 0)
            return seen;
    }
    return NULL;
}

/* Room for one more: twice the slots, or a fresh start. */
static hl_status make_room(hl_word_cache *cache)
{
    entry *slots = NULL;

    if (2 * (cache->n_words + 1) <= cache->n_slots)
        return HL_OK;
    if (cache->n_slots >= MAX_SLOTS) {
        memset(cache->slots, 0, cache->n_slots * sizeof *cache->slots);
        cache->n_words = cache->bytes.n_bytes = cache->tokens.count = 0;
        return HL_OK;
    }
    size_t    n_slots = 2 * cache->n_slots;
    hl_status status  = HL_ALLOC_ZEROED(&slots, n_slots);
    if (status != HL_OK)
        return status;
    for (size_t i = 0; i < cache->n_slots; i++) {
        size_t slot = (size_t)(cache->slots[i].hash >> 17) & (n_slots - 1);
        if (cache->slots[i].hash == 0)
            continue;
        while (slots[slot].hash != 0)
            slot = (slot + 1) & (n_slots - 1);
        slots[slot] = cache->slots[i];
    }
    hl_free(cache->slots);
    cache->slots   = slots;
    cache->n_slots = n_slots;
    return HL_OK;
}

hl_status hl_word_cache_get(hl_tokens *out, bool *found, const hl_word_cache *cache,
                            const char *word, size_t n_bytes, size_t at)
{
    *found = false;
    if (n_bytes >= LONG_WORD)
        return HL_OK;
    const entry *seen = find_slot(cache, hash_word(word, n_bytes), word, n_bytes);
    if (seen == NULL || seen->hash == 0)
        return HL_OK;
    hl_status status = HL_GROW(&out->items, &out->capacity, out->count, seen->n_tokens);
    if (status != HL_OK)
        return status;
    for (size_t i = 0; i < seen->n_tokens; i++) {
        hl_token token = cache->tokens.items[seen->token + i];
        token.begin += (uint32_t)at;
        token.end += (uint32_t)at;
        out->items[out->count++] = token;
    }
    *found = true;
    return HL_OK;
}

hl_status hl_word_cache_put(hl_word_cache *cache, const char *word, size_t n_bytes,
                            const hl_token *tokens, size_t n_tokens, size_t at)
{
    hl_status status = HL_OK;

    if (n_bytes >= LONG_WORD || n_tokens > LONG_WORD)
        return HL_OK;
    HL_NEED(make_room(cache));
    uint64_t hash = hash_word(word, n_bytes);
    entry   *slot = find_slot(cache, hash, word, n_bytes);
    if (slot == NULL)
        return status;
    entry made = { hash, (uint32_t)cache->bytes.n_bytes, (uint32_t)cache->tokens.count,
                   (uint16_t)n_bytes, (uint16_t)n_tokens };
    HL_NEED(hl_buffer_append(&cache->bytes, word, n_bytes));
    for (size_t i = 0; i < n_tokens; i++)
        HL_NEED(
            hl_tokens_add(&cache->tokens, tokens[i].id, tokens[i].begin - at, tokens[i].end - at));
    *slot = made;
    cache->n_words++;
    return status;
}
