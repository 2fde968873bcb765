/* wordpiece.c - the longest piece first, from left to right.
 *
 *     unaffable  ->  un ##aff ##able
 *
 * If at some place no piece fits, the whole word is unknown. */
#include "tokenize/word_models.h"

#include <string.h>

#include "base/buffer.h"
#include "base/status.h"
#include "base/utf8.h"

static hl_status add_unknown(hl_tokens *out, const hl_wordpiece *model, size_t n_bytes, size_t at)
{
    if (model->unknown < 0)
        return hl_fail(HL_BAD_INPUT, "a word that the vocabulary lacks, and no unknown token");
    return hl_tokens_add(out, model->unknown, at, at + n_bytes);
}

/* Finds the longest piece at `begin`: its id, or -1, and its end.  `key` holds the prefix and as
 * much of the word as the longest piece may have; it is shortened character by character. */
static hl_status find_longest(int32_t *id, size_t *end, const hl_wordpiece *model, hl_bytes key,
                              size_t begin, size_t n_prefix, hl_budget *budget)
{
    *id = -1;
    for (size_t length = key.n_bytes; length > n_prefix && *id < 0; length--) {
        if (length < key.n_bytes && hl_utf8_is_continuation(key.data[length]))
            continue;
        HL_NEED(hl_budget_spend(budget, 8 + length / 8));
        *id  = hl_vocab_find(model->vocab, (hl_bytes){ key.data, length });
        *end = begin + length - n_prefix;
    }
    return HL_OK;
}

static hl_status cut_word(hl_tokens *out, bool *fits, const hl_wordpiece *model, hl_bytes word,
                          hl_buffer *key, size_t at, hl_budget *budget)
{
    size_t  end = 0;
    int32_t id  = -1;

    *fits = true;
    for (size_t begin = 0; begin < word.n_bytes && *fits; begin = end) {
        size_t n_prefix = begin > 0 ? model->prefix.n_bytes : 0;
        key->n_bytes    = 0;
        HL_NEED(hl_buffer_append(key, model->prefix.data, n_prefix));
        size_t n_rest = word.n_bytes - begin;
        HL_NEED(hl_buffer_append(key, word.data + begin,
                                 n_rest < model->vocab->longest ? n_rest : model->vocab->longest));
        HL_NEED(find_longest(&id, &end, model, hl_buffer_bytes(key), begin, n_prefix, budget));
        *fits = id >= 0;
        if (*fits)
            HL_NEED(hl_tokens_add(out, id, at + begin, at + end));
    }
    return HL_OK;
}

hl_status hl_wordpiece_encode(hl_tokens *out, const hl_wordpiece *model, const char *word,
                              size_t n_bytes, size_t at, hl_budget *budget)
{
    hl_bytes                            bytes  = { word, n_bytes };
    size_t                              before = out->count;
    bool                                fits   = false;
    HL_SCOPED(hl_buffer_free) hl_buffer key    = { 0 };

    if (model->whole_words) {
        int32_t id = hl_vocab_find(model->vocab, bytes);
        return id >= 0 ? hl_tokens_add(out, id, at, at + n_bytes)
                       : add_unknown(out, model, n_bytes, at);
    }
    if (hl_utf8_count(word, n_bytes) <= model->max_characters)
        HL_NEED(cut_word(out, &fits, model, bytes, &key, at, budget));
    if (!fits) {
        out->count = before;
        HL_NEED(add_unknown(out, model, n_bytes, at));
    }
    return HL_OK;
}
