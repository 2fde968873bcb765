/* word_cache.c - a hash table over two arenas, one of bytes and one of tokens. */
#include "tokenize/word_cache.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "tokenize/buffer.h"
#include "tokenize/vocab.h"

enum {
    N_SLOTS    = 1 << 17,
    MAX_WORDS  = N_SLOTS / 2,
    MAX_BYTES  = 1 << 20,
    MAX_TOKENS = 1 << 18,
    LONG_WORD  = 64,
};

typedef struct entry {
    uint64_t hash; /* 0: empty */
    uint32_t at;   /* in bytes */
    uint32_t token;
    uint16_t n_bytes;
    uint16_t n_tokens;
} entry;

struct hl_word_cache {
    entry    slots[N_SLOTS];
    char     bytes[MAX_BYTES];
    hl_token tokens[MAX_TOKENS];
    size_t   n_words;
    size_t   n_bytes;
    size_t   n_tokens;
};

hl_status hl_word_cache_new(hl_word_cache **out)
{
    hl_status status = HL_ALLOC(out, 1);
    if (status == HL_OK) {
        memset((*out)->slots, 0, sizeof(*out)->slots);
        (*out)->n_words = (*out)->n_bytes = (*out)->n_tokens = 0;
    }
    return status;
}

void hl_word_cache_free(hl_word_cache *cache)
{
    hl_free(cache);
}

static uint64_t hash_word(const char *word, size_t n_bytes)
{
    return hl_hash_bytes(word, n_bytes) | 1;
}

/* The word's slot, or the empty one where it belongs. */
static size_t find_slot(const hl_word_cache *cache, uint64_t hash, const char *word, size_t n_bytes)
{
    size_t slot = (size_t)(hash >> 17) & (N_SLOTS - 1);

    for (;; slot = (slot + 1) & (N_SLOTS - 1)) {
        const entry *seen = &cache->slots[slot];
        if (seen->hash == 0)
            return slot;
        if (seen->hash == hash && seen->n_bytes == n_bytes &&
            memcmp(cache->bytes + seen->at, word, n_bytes) == 0)
            return slot;
    }
}

hl_status hl_word_cache_get(hl_tokens *out, bool *found, const hl_word_cache *cache,
                            const char *word, size_t n_bytes, size_t at)
{
    *found = false;
    if (n_bytes >= LONG_WORD)
        return HL_OK;
    const entry *seen = &cache->slots[find_slot(cache, hash_word(word, n_bytes), word, n_bytes)];
    if (seen->hash == 0)
        return HL_OK;
    hl_status status = HL_GROW(&out->items, &out->capacity, out->count, seen->n_tokens);
    if (status != HL_OK)
        return status;
    for (size_t i = 0; i < seen->n_tokens; i++) {
        hl_token token = cache->tokens[seen->token + i];
        token.begin += (uint32_t)at;
        token.end += (uint32_t)at;
        out->items[out->count++] = token;
    }
    *found = true;
    return HL_OK;
}

void hl_word_cache_put(hl_word_cache *cache, const char *word, size_t n_bytes,
                       const hl_token *tokens, size_t n_tokens, size_t at)
{
    if (n_bytes >= LONG_WORD || n_tokens > LONG_WORD)
        return;
    if (cache->n_words >= MAX_WORDS || n_bytes > MAX_BYTES - cache->n_bytes ||
        n_tokens > MAX_TOKENS - cache->n_tokens) {
        memset(cache->slots, 0, sizeof cache->slots);
        cache->n_words = cache->n_bytes = cache->n_tokens = 0;
    }
    uint64_t hash = hash_word(word, n_bytes);
    entry   *slot = &cache->slots[find_slot(cache, hash, word, n_bytes)];
    if (slot->hash != 0)
        return;
    *slot = (entry){ hash, (uint32_t)cache->n_bytes, (uint32_t)cache->n_tokens, (uint16_t)n_bytes,
                     (uint16_t)n_tokens };
    memcpy(cache->bytes + cache->n_bytes, word, n_bytes);
    for (size_t i = 0; i < n_tokens; i++) {
        hl_token token = tokens[i];
        token.begin -= (uint32_t)at;
        token.end -= (uint32_t)at;
        cache->tokens[cache->n_tokens + i] = token;
    }
    cache->n_words++;
    cache->n_bytes += n_bytes;
    cache->n_tokens += n_tokens;
}
