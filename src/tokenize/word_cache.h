/* word_cache.h - the tokens of words met before.
 *
 * Text repeats its words: in English prose 19 of 20 were seen a moment ago.  The
 * cache grows to 64 K words (some 7 MB), and then forgets them all. */
#ifndef HL_TOKENIZE_WORD_CACHE_H
#define HL_TOKENIZE_WORD_CACHE_H

#include "tokenize/buffer.h"

typedef struct hl_word_cache hl_word_cache;

hl_status hl_word_cache_new(hl_word_cache **out);
void      hl_word_cache_free(hl_word_cache *cache);

/* Appends the word's tokens, their places counted from `at`; *found says whether the
 * word was there. */
hl_status hl_word_cache_get(hl_tokens *out, bool *found, const hl_word_cache *cache,
                            const char *word, size_t n_bytes, size_t at);
/* Remembers the tokens of a word, whose places count from `at`.  Long words are not kept. */
hl_status hl_word_cache_put(hl_word_cache *cache, const char *word, size_t n_bytes,
                            const hl_token *tokens, size_t n_tokens, size_t at);

#endif
