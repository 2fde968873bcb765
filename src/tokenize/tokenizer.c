/* tokenizer.c - the pipeline, and questions about the vocabulary.
 *
 * Encoding needs buffers that are worth keeping (and a cache of words), but a
 * tokenizer is shared by threads.  So buffers live in workspaces: a call takes
 * an idle one or makes one, and puts it back. */
#include "tokenize/tokenizer.h"
#include "tokenize/jinja.h"

#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"
#include "tokenize/unicode.h"
#include "tokenize/word_models.h"

#define SPELLED_SPACE 0x120U /* Ġ */

/* ------------------------------------------------------------- words met before
 *
 * Text repeats its words: in English prose 19 of 20 were seen a moment ago.  The cache is a hash
 * table over two arenas, one of bytes and one of tokens.  It grows to 64 K words (some 7 MB), and
 * then forgets them all. */

enum {
    FIRST_SLOTS = 1 << 10,
    MAX_SLOTS   = 1 << 17, /* at most half of the slots are used */
    LONG_WORD   = 64,
    MAX_PROBES  = 64, /* largest number of probes of one search */
};

typedef struct known_word {
    uint64_t hash;  /* 0: the slot is empty */
    uint32_t at;    /* offset in the bytes */
    uint32_t token; /* index in the tokens */
    uint16_t n_bytes;
    uint16_t n_tokens;
} known_word;

typedef struct word_cache {
    known_word *slots; /* (n_slots) */
    size_t      n_slots;
    size_t      n_words;
    hl_buffer   bytes;
    hl_tokens   tokens;
} word_cache;

static uint64_t hash_word(const char *word, size_t n_bytes)
{
    return hl_hash_bytes(word, n_bytes) | 1;
}

/* Finds the word's slot, or the empty slot where it belongs.  NULL if neither is near, as when a
 * text consists of words that collide. */
static known_word *find_word(const word_cache *cache, uint64_t hash, const char *word,
                             size_t n_bytes)
{
    size_t mask = cache->n_slots - 1;
    size_t slot = (size_t)(hash >> 17) & mask;

    for (int i = 0; i < MAX_PROBES; i++, slot = (slot + 1) & mask) {
        known_word *seen = &cache->slots[slot];
        if (seen->hash == 0)
            return seen;
        if (seen->hash == hash && seen->n_bytes == n_bytes &&
            memcmp(cache->bytes.data + seen->at, word, n_bytes) == 0)
            return seen;
    }
    return NULL;
}

/* Makes room for one more word: doubles the slots, or empties the cache. */
static hl_status make_room_for_word(word_cache *cache)
{
    known_word *slots = NULL;

    if (2 * (cache->n_words + 1) <= cache->n_slots)
        return HL_OK;
    if (cache->n_slots >= MAX_SLOTS) {
        memset(cache->slots, 0, cache->n_slots * sizeof *cache->slots);
        cache->n_words = cache->bytes.n_bytes = cache->tokens.count = 0;
        return HL_OK;
    }
    size_t n_slots = 2 * cache->n_slots;
    HL_NEED(HL_ALLOC_ZEROED(&slots, n_slots));
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

/* Appends the tokens of a word that is in the cache, with places counted from `at`; *found is false
 * if it is not. */
static hl_status recall_word(hl_tokens *out, bool *found, const word_cache *cache, const char *word,
                             size_t n_bytes, size_t at)
{
    *found = false;
    if (n_bytes >= LONG_WORD)
        return HL_OK;
    const known_word *seen = find_word(cache, hash_word(word, n_bytes), word, n_bytes);
    if (seen == NULL || seen->hash == 0)
        return HL_OK;
    HL_NEED(HL_GROW(&out->items, &out->capacity, out->count, seen->n_tokens));
    for (size_t i = 0; i < seen->n_tokens; i++) {
        hl_token token = cache->tokens.items[seen->token + i];
        token.begin += (uint32_t)at;
        token.end += (uint32_t)at;
        out->items[out->count++] = token;
    }
    *found = true;
    return HL_OK;
}

/* Stores the tokens of a word, whose places count from `at`.  Long words are not stored. */
static hl_status remember_word(word_cache *cache, const char *word, size_t n_bytes,
                               const hl_token *tokens, size_t n_tokens, size_t at)
{
    if (n_bytes >= LONG_WORD || n_tokens > LONG_WORD)
        return HL_OK;
    HL_NEED(make_room_for_word(cache));
    uint64_t    hash = hash_word(word, n_bytes);
    known_word *slot = find_word(cache, hash, word, n_bytes);
    if (slot == NULL)
        return HL_OK;
    known_word made = { hash, (uint32_t)cache->bytes.n_bytes, (uint32_t)cache->tokens.count,
                        (uint16_t)n_bytes, (uint16_t)n_tokens };
    HL_NEED(hl_buffer_append(&cache->bytes, word, n_bytes));
    for (size_t i = 0; i < n_tokens; i++)
        HL_NEED(
            hl_tokens_add(&cache->tokens, tokens[i].id, tokens[i].begin - at, tokens[i].end - at));
    *slot = made;
    cache->n_words++;
    return HL_OK;
}

/* -------------------------------------------------------------- workspaces */

struct hl_workspace {
    hl_mapped_text_builder input;
    hl_mapped_text_builder normal[2];
    hl_split_space         split;
    hl_stretches           as_given;
    hl_stretches           normalized;
    hl_tokens              word;   /* tokens of one stretch, with spans in its normalized text */
    hl_tokens              result; /* tokens of the whole input, with spans in the input */
    hl_matcher            *matcher;
    hl_bpe_space           bpe;
    hl_unigram_space       unigram;
    word_cache             cache;
    hl_budget              budget; /* the budget of the current call */
    hl_workspace          *next;   /* next idle workspace */
};

static void free_workspace(hl_workspace *work)
{
    if (work == NULL)
        return;
    hl_mapped_text_builder_free(&work->input);
    hl_mapped_text_builder_free(&work->normal[0]);
    hl_mapped_text_builder_free(&work->normal[1]);
    hl_split_space_free(&work->split);
    hl_free(work->as_given.items);
    hl_free(work->normalized.items);
    hl_tokens_free(&work->word);
    hl_tokens_free(&work->result);
    hl_matcher_free(work->matcher);
    hl_bpe_space_free(&work->bpe);
    hl_unigram_space_free(&work->unigram);
    hl_free(work->cache.slots);
    hl_buffer_free(&work->cache.bytes);
    hl_tokens_free(&work->cache.tokens);
    hl_free(work);
}

HL_CLOSES(free_workspace, hl_workspace)

static hl_status new_workspace(hl_workspace **out)
{
    HL_CLOSED(free_workspace) hl_workspace *work = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&work, 1));
    HL_NEED(hl_matcher_new(&work->matcher));
    HL_NEED(HL_ALLOC_ZEROED(&work->cache.slots, FIRST_SLOTS));
    work->cache.n_slots = FIRST_SLOTS;
    hl_matcher_set_budget(work->matcher, &work->budget);
    for (int i = 0; i < 2; i++)
        work->normal[i].budget = work->split.builders[i].budget = &work->budget;
    work->input.budget = &work->budget;
    *out               = hl_taken(&work);
    return HL_OK;
}

/* Takes an idle workspace.  Their stack is the only thing that changes in a shared tokenizer. */
static hl_status take_workspace(hl_workspace **out, const hl_tokenizer *tokenizer)
{
    hl_tokenizer *shared = (hl_tokenizer *)tokenizer;

    pthread_mutex_lock(&shared->lock);
    *out = shared->idle;
    if (*out != NULL)
        shared->idle = (*out)->next;
    pthread_mutex_unlock(&shared->lock);
    return *out != NULL ? HL_OK : new_workspace(out);
}

static void return_workspace(const hl_tokenizer *tokenizer, hl_workspace *work)
{
    hl_tokenizer *shared = (hl_tokenizer *)tokenizer;

    pthread_mutex_lock(&shared->lock);
    work->next   = shared->idle;
    shared->idle = work;
    pthread_mutex_unlock(&shared->lock);
}

/* ------------------------------------------------------------ making and ending */

hl_status hl_tokenizer_new(hl_tokenizer **out, const char *where)
{
    HL_FREED hl_tokenizer *tokenizer = NULL;
    HL_FREED char         *name      = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&tokenizer, 1));
    HL_NEED(hl_strdup(&name, where));
    if (pthread_mutex_init(&tokenizer->lock, NULL) != 0)
        return hl_fail(HL_NO_MEMORY, "out of memory for a lock");
    for (int i = 0; i < HL_SPECIAL_COUNT; i++)
        tokenizer->special[i] = -1;
    tokenizer->where = hl_taken(&name);
    *out             = hl_taken(&tokenizer);
    return HL_OK;
}

void hl_tokenizer_close(hl_tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        return;
    for (hl_workspace *work = tokenizer->idle, *next; work != NULL; work = next) {
        next = work->next;
        free_workspace(work);
    }
    pthread_mutex_destroy(&tokenizer->lock);
    hl_vocab_free(&tokenizer->vocab);
    hl_added_free(&tokenizer->added);
    hl_normalizer_free(&tokenizer->normalizer);
    hl_pretokenizer_free(&tokenizer->pretokenizer);
    hl_bpe_free(tokenizer->bpe);
    hl_unigram_free(tokenizer->unigram);
    hl_bytes_free(&tokenizer->wordpiece.prefix);
    hl_decoder_free(&tokenizer->decoder);
    hl_free(tokenizer->chat_template);
    hl_free(tokenizer->chat_refusal);
    hl_jinja_free(tokenizer->chat_program);
    hl_free(tokenizer->where);
    hl_free(tokenizer);
}

hl_status hl_tokenizer_add_token(hl_tokenizer *tokenizer, hl_added_token token)
{
    hl_token_type type = token.special ? HL_TOKEN_SPECIAL : HL_TOKEN_ADDED;
    int32_t       id   = hl_vocab_find(&tokenizer->vocab, token.content);

    if (id < 0) {
        id = token.id;
        HL_NEED(hl_vocab_add(&tokenizer->vocab, id, token.content, type, NULL));
    }
    token.id                            = id;
    tokenizer->vocab.pieces[id].type    = (uint8_t)type;
    tokenizer->vocab.pieces[id].special = token.special;
    return hl_added_add(&tokenizer->added, token);
}

hl_status hl_tokenizer_finish(hl_tokenizer *tokenizer)
{
    int32_t unknown = tokenizer->special[HL_SPECIAL_UNK];

    if (unknown >= 0 && (size_t)unknown < tokenizer->vocab.n_ids)
        tokenizer->vocab.pieces[unknown].type = HL_TOKEN_UNKNOWN;
    return hl_fail_within(hl_added_finish(&tokenizer->added, &tokenizer->normalizer), "%s",
                          tokenizer->where);
}

/* ------------------------------------------------------- what goes around texts */

hl_status hl_postprocessor_add(hl_postprocessor *post, bool after, int32_t id)
{
    int64_t *ids   = after ? post->after : post->before;
    size_t  *count = after ? &post->n_after : &post->n_before;

    if (*count >= HL_MAX_AROUND)
        return hl_fail(HL_BAD_INPUT, "more than %d special tokens %s a text", HL_MAX_AROUND,
                       after ? "after" : "before");
    ids[(*count)++] = id;
    return HL_OK;
}

static bool is_space(uint32_t c)
{
    return c == SPELLED_SPACE || hl_char_is(HL_CHAR_WHITESPACE, c);
}

/* Counts the spaces at the start and at the end of a spelling. */
static void count_spaces(uint32_t *leading, uint32_t *trailing, hl_bytes spelling)
{
    bool only_spaces = true;

    *leading = *trailing = 0;
    if (hl_utf8_find_bad(spelling.data, spelling.n_bytes) < spelling.n_bytes)
        return;
    for (size_t at = 0; at < spelling.n_bytes;) {
        bool space  = is_space(hl_utf8_next(spelling.data, &at));
        only_spaces = only_spaces && space;
        *leading += only_spaces;
        *trailing = space ? *trailing + 1 : 0;
    }
}

/* Removes spaces from spans, if the file asks for it. */
static void trim_spans(hl_tokens *tokens, const hl_postprocessor *post, const hl_vocab *vocab)
{
    for (size_t i = 0; i < tokens->count && post->trim; i++) {
        hl_token *token    = &tokens->items[i];
        hl_bytes  spelling = hl_vocab_spelling(vocab, token->id);
        uint32_t  leading, trailing;

        if (spelling.data == NULL)
            continue;
        count_spaces(&leading, &trailing, spelling);
        bool first = i == 0 || token->begin == 0;
        if (first && post->prefix_space && leading == 1)
            leading = 0;
        if (leading > token->end - token->begin)
            leading = token->end - token->begin;
        token->begin += leading;
        if (trailing > token->end - token->begin)
            trailing = token->end - token->begin;
        token->end -= trailing;
    }
}

/* -------------------------------------------------------------------- encoding */

static hl_status run_model(hl_workspace *work, const hl_tokenizer *tokenizer, const char *word,
                           size_t n_bytes, size_t at)
{
    switch (tokenizer->kind) {
    case HL_MODEL_BPE:
        return hl_bpe_encode(&work->word, tokenizer->bpe, &work->bpe, word, n_bytes, at,
                             &work->budget);
    case HL_MODEL_UNIGRAM:
        return hl_unigram_encode(&work->word, tokenizer->unigram, &work->unigram, word, n_bytes, at,
                                 &work->budget);
    case HL_MODEL_WORDPIECE:
    case HL_MODEL_WORDLEVEL:
        return hl_wordpiece_encode(&work->word, &tokenizer->wordpiece, word, n_bytes, at,
                                   &work->budget);
    case HL_MODEL_NONE:
        break;
    }
    return hl_fail(HL_INTERNAL, "a tokenizer without a model");
}

/* Appends the tokens of a word to work->word, from the cache if they are there. */
static hl_status encode_word(hl_workspace *work, const hl_tokenizer *tokenizer, const char *word,
                             size_t n_bytes, size_t at)
{
    size_t    before = work->word.count;
    bool      found  = false;
    hl_status status = recall_word(&work->word, &found, &work->cache, word, n_bytes, at);

    if (status != HL_OK || found)
        return status;
    status = run_model(work, tokenizer, word, n_bytes, at);
    if (status != HL_OK || work->word.count == before)
        return status;
    return remember_word(&work->cache, word, n_bytes, work->word.items + before,
                         work->word.count - before, at);
}

static bool is_mark(const char *text, size_t n_bytes)
{
    return n_bytes >= 3 && memcmp(text, "\xe2\x96\x81", 3) == 0;
}

/* Encodes a part; a long one is cut before every run of ▁ if that does not change the tokens. */
static hl_status encode_part(hl_workspace *work, const hl_tokenizer *tokenizer,
                             const hl_mapped_text *text, hl_part part)
{
    const char *bytes  = text->bytes;
    size_t      begin  = part.begin;
    bool        marked = true; /* the previous character is a ▁, or there is none */

    if (tokenizer->kind != HL_MODEL_BPE || !hl_bpe_cuts_at_spaces(tokenizer->bpe))
        return encode_word(work, tokenizer, bytes + part.begin, part.end - part.begin, part.begin);
    for (size_t at = part.begin; at < part.end;) {
        bool mark = is_mark(bytes + at, part.end - at);
        if (mark && !marked) {
            HL_NEED(encode_word(work, tokenizer, bytes + begin, at - begin, begin));
            begin = at;
        }
        marked = mark;
        at += mark ? 3 : 1;
    }
    return encode_word(work, tokenizer, bytes + begin, part.end - begin, begin);
}

/* Encodes text without added tokens. */
static hl_status encode_text(hl_workspace *work, const hl_tokenizer *tokenizer, hl_mapped_text text)
{
    const hl_parts *parts = NULL;

    HL_NEED(
        hl_pretokenizer_run(&parts, &text, &tokenizer->pretokenizer, &work->split, work->matcher));
    HL_NEED(hl_budget_hand_on(&work->budget, text.n_bytes));
    work->word.count = 0;
    for (size_t i = 0; i < parts->count; i++) {
        HL_NEED(hl_budget_spend(&work->budget, parts->items[i].end - parts->items[i].begin));
        HL_NEED(encode_part(work, tokenizer, &text, parts->items[i]));
    }
    for (size_t i = 0; i < work->word.count; i++) {
        hl_token token = work->word.items[i];
        hl_span  span  = hl_mapped_text_origin(&text, token.begin, token.end);
        HL_NEED(hl_tokens_add(&work->result, token.id, span.begin, span.end));
    }
    return HL_OK;
}

/* Adds the token of an added token found in the text. */
static hl_status add_found(hl_workspace *work, const hl_added *added, const hl_mapped_text *text,
                           hl_stretch stretch)
{
    hl_span span = hl_mapped_text_origin(text, stretch.span.begin, stretch.span.end);

    return hl_tokens_add(&work->result, added->items[stretch.item].id, span.begin, span.end);
}

/* Encodes text that has been searched for the tokens that are found as given. */
static hl_status encode_stretch(hl_workspace *work, const hl_tokenizer *tokenizer,
                                hl_mapped_text text, const hl_added_filter *filter)
{
    const hl_added *added = &tokenizer->added;

    HL_NEED(hl_normalizer_run(&text, &tokenizer->normalizer, work->normal, work->matcher));
    HL_NEED(hl_added_split(&work->normalized, added, &added->after_normalizing, &text, filter,
                           &work->budget));
    for (size_t i = 0; i < work->normalized.count; i++) {
        hl_stretch stretch = work->normalized.items[i];
        if (stretch.item >= 0)
            HL_NEED(add_found(work, added, &text, stretch));
        else
            HL_NEED(encode_text(work, tokenizer,
                                hl_mapped_text_slice(&text, stretch.span.begin, stretch.span.end)));
    }
    return HL_OK;
}

static hl_status encode_input(hl_workspace *work, const hl_tokenizer *tokenizer, const char *bytes,
                              size_t n_bytes, const hl_added_filter *filter)
{
    const hl_added *added = &tokenizer->added;
    hl_mapped_text  text;

    work->result.count = 0;
    HL_NEED(hl_mapped_text_from_bytes(&text, &work->input, bytes, n_bytes));
    HL_NEED(hl_added_split(&work->as_given, added, &added->as_given, &text, filter, &work->budget));
    for (size_t i = 0; i < work->as_given.count; i++) {
        hl_stretch stretch = work->as_given.items[i];
        if (stretch.item >= 0)
            HL_NEED(add_found(work, added, &text, stretch));
        else
            HL_NEED(encode_stretch(
                work, tokenizer, hl_mapped_text_slice(&text, stretch.span.begin, stretch.span.end),
                filter));
    }
    trim_spans(&work->result, &tokenizer->postprocessor, &tokenizer->vocab);
    return HL_OK;
}

/* ------------------------------------------------------------------ the result */

static void put_token(hl_encoding *encoding, const hl_tokenizer *tokenizer, int64_t id,
                      hl_span span)
{
    size_t at           = encoding->n_tokens++;
    encoding->ids[at]   = id;
    encoding->spans[at] = span;
    encoding->types[at] = hl_tokenizer_type(tokenizer, id);
}

static hl_status make_encoding(hl_encoding **out, const hl_tokenizer *tokenizer,
                               const hl_tokens *tokens, bool add_special)
{
    const hl_postprocessor *post     = &tokenizer->postprocessor;
    size_t                  n_around = add_special ? post->n_before + post->n_after : 0;
    HL_CLOSED(hl_encoding_free) hl_encoding *encoding = NULL;

    HL_NEED(HL_ALLOC_ZEROED(&encoding, 1));
    HL_NEED(HL_ALLOC(&encoding->ids, tokens->count + n_around));
    HL_NEED(HL_ALLOC(&encoding->spans, tokens->count + n_around));
    HL_NEED(HL_ALLOC(&encoding->types, tokens->count + n_around));
    for (size_t i = 0; i < post->n_before && add_special; i++)
        put_token(encoding, tokenizer, post->before[i], (hl_span){ 0, 0 });
    for (size_t i = 0; i < tokens->count; i++)
        put_token(encoding, tokenizer, tokens->items[i].id,
                  (hl_span){ tokens->items[i].begin, tokens->items[i].end });
    for (size_t i = 0; i < post->n_after && add_special; i++)
        put_token(encoding, tokenizer, post->after[i], (hl_span){ 0, 0 });
    *out = hl_taken(&encoding);
    return HL_OK;
}

hl_status hl_tokenizer_encode_filtered(hl_encoding **out, const hl_tokenizer *tokenizer,
                                       const char *text, size_t n_bytes,
                                       const hl_encode_options *options,
                                       const hl_added_filter   *filter)
{
    hl_workspace *work = NULL;

    *out = NULL;
    HL_NEED(take_workspace(&work, tokenizer));
    work->budget     = hl_budget_begin(n_bytes, options->stop, options->context);
    hl_status status = encode_input(work, tokenizer, text, n_bytes, filter);
    if (status != HL_OK)
        hl_fail_within(status, "%s", tokenizer->where);
    else
        status = make_encoding(out, tokenizer, &work->result, options->add_special);
    return_workspace(tokenizer, work);
    return status;
}

hl_status hl_tokenizer_encode(hl_encoding **out, const hl_tokenizer *tokenizer, const char *text,
                              size_t n_bytes, const hl_encode_options *options)
{
    hl_encode_options chosen = options != NULL ? *options : (hl_encode_options){ 0 };
    hl_added_filter   filter = { .plain = chosen.plain };

    return hl_tokenizer_encode_filtered(out, tokenizer, text, n_bytes, &chosen, &filter);
}

void hl_encoding_free(hl_encoding *encoding)
{
    if (encoding == NULL)
        return;
    hl_free(encoding->ids);
    hl_free(encoding->spans);
    hl_free(encoding->types);
    hl_free(encoding->roles);
    hl_free(encoding);
}

/* -------------------------------------------------------------------- decoding */

hl_status hl_tokenizer_decode(char **out, size_t *n_bytes, const hl_tokenizer *tokenizer,
                              const int64_t *ids, size_t n_ids, const hl_decode_options *options)
{
    bool                                  skip   = options != NULL && options->skip_special;
    HL_SCOPED(hl_strings_free) hl_strings pieces = { 0 };
    HL_SCOPED(hl_buffer_free) hl_buffer   text   = { 0 };

    *out     = NULL;
    *n_bytes = 0;
    for (size_t i = 0; i < n_ids; i++) {
        hl_bytes spelling = hl_vocab_spelling(&tokenizer->vocab, ids[i]);
        if (spelling.data == NULL)
            return hl_fail(HL_BAD_INPUT, "%s: token %zu: the vocabulary has no id %lld",
                           tokenizer->where, i, (long long)ids[i]);
        if (!skip || !tokenizer->vocab.pieces[ids[i]].special)
            HL_NEED(hl_strings_add(&pieces, spelling));
    }
    hl_budget budget = hl_budget_begin(pieces.bytes.n_bytes, NULL, NULL);
    HL_NEED(hl_fail_within(hl_decoder_run(&text, &tokenizer->decoder, &pieces, &budget), "%s",
                           tokenizer->where));
    text.most = 0;
    HL_NEED(hl_buffer_append(&text, "", 1)); /* the terminator */
    *n_bytes = text.n_bytes - 1;
    *out     = hl_taken(&text.data);
    return HL_OK;
}

/* ------------------------------------------------------------------- questions */

size_t hl_tokenizer_size(const hl_tokenizer *tokenizer)
{
    return tokenizer->vocab.n_ids;
}

const char *hl_tokenizer_kind(const hl_tokenizer *tokenizer)
{
    switch (tokenizer->kind) {
    case HL_MODEL_BPE:
        return "BPE";
    case HL_MODEL_UNIGRAM:
        return "Unigram";
    case HL_MODEL_WORDPIECE:
        return "WordPiece";
    case HL_MODEL_WORDLEVEL:
        return "WordLevel";
    case HL_MODEL_NONE:
        break;
    }
    return "";
}

const char *hl_tokenizer_piece(const hl_tokenizer *tokenizer, int64_t id, size_t *n_bytes)
{
    hl_bytes spelling = hl_vocab_spelling(&tokenizer->vocab, id);
    if (n_bytes != NULL)
        *n_bytes = spelling.n_bytes;
    return spelling.data;
}

int64_t hl_tokenizer_id(const hl_tokenizer *tokenizer, const char *piece, size_t n_bytes)
{
    return hl_vocab_find(&tokenizer->vocab, (hl_bytes){ piece, n_bytes });
}

hl_token_type hl_tokenizer_type(const hl_tokenizer *tokenizer, int64_t id)
{
    if (id < 0 || (size_t)id >= tokenizer->vocab.n_ids)
        return HL_TOKEN_UNKNOWN;
    return (hl_token_type)tokenizer->vocab.pieces[id].type;
}

hl_around_tokens hl_tokenizer_around(const hl_tokenizer *tokenizer)
{
    const hl_postprocessor *post = &tokenizer->postprocessor;

    return (hl_around_tokens){ post->before, post->n_before, post->after, post->n_after };
}

int64_t hl_tokenizer_special(const hl_tokenizer *tokenizer, hl_special which)
{
    return (unsigned)which < HL_SPECIAL_COUNT ? tokenizer->special[which] : -1;
}
