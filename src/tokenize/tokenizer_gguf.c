/* tokenizer_gguf.c - the tokenizer inside a GGUF file: read, and written.
 *
 *     tokenizer.ggml.model            gpt2, llama, bert, t5
 *     tokenizer.ggml.pre              which expressions split words (vocab_source.h)
 *     tokenizer.ggml.tokens           pieces, by id
 *     tokenizer.ggml.scores           a float each
 *     tokenizer.ggml.token_type       a number each: HL_PIECE_...
 *     tokenizer.ggml.merges           "a b" each
 *     tokenizer.ggml.bos_token_id     and eos, eot, unknown, seperator, padding, cls, mask
 *     tokenizer.ggml.add_bos_token    and add_eos_token, add_space_prefix,
 *                                     remove_extra_whitespaces
 *     tokenizer.chat_template                                                     */
#include <stddef.h>
#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"
#include "formats/gguf.h"
#include "tokenize/tokenizer.h"
#include "tokenize/vocab_source.h"

#define PREFIX "tokenizer.ggml."
#define MARK   "\xe2\x96\x81" /* ▁ */

typedef struct lists {
    hl_bytes *tokens;
    float    *scores;
    int32_t  *types;
    hl_bytes *merges;
    char     *model;
    char     *pre;
    char     *chat_template;
    uint8_t  *charsmap;
} lists;

static void free_lists(lists *all)
{
    hl_free(all->tokens);
    hl_free(all->scores);
    hl_free(all->types);
    hl_free(all->merges);
    hl_free(all->model);
    hl_free(all->pre);
    hl_free(all->chat_template);
    hl_free(all->charsmap);
}

/* ------------------------------------------------------------------- reading */

/* Copies a text, with a NUL; NULL if the key is missing. */
static hl_status copy_text(char **out, const hl_gguf *file, const char *key)
{
    hl_bytes text = { 0 };

    HL_NEED(hl_gguf_get_text(&text, file, key));
    return text.data != NULL ? hl_strndup(out, text.data, text.n_bytes) : HL_OK;
}

/* Reads an array of texts; NULL and 0 if the key is missing. */
static hl_status read_texts(hl_bytes **out, size_t *count, const hl_gguf *file, const char *key)
{
    hl_gguf_array array = { 0 };

    *count = 0;
    HL_NEED(hl_gguf_get_array(&array, file, key));
    if (array.count == 0)
        return HL_OK;
    HL_NEED(HL_ALLOC(out, array.count));
    for (size_t i = 0; i < array.count; i++) {
        if (!hl_gguf_array_text(&(*out)[i], &array, i))
            return hl_fail(HL_BAD_INPUT, "%s: '%s' is not an array of texts", hl_gguf_where(file),
                           key);
    }
    *count = array.count;
    return HL_OK;
}

/* Finds an array of numbers, which must have `wanted` elements if the key exists. */
static hl_status get_numbers(hl_gguf_array *out, const hl_gguf *file, const char *key,
                             size_t wanted)
{
    HL_NEED(hl_gguf_get_array(out, file, key));
    if (out->count != 0 && out->count != wanted)
        return hl_fail(HL_BAD_INPUT, "%s: '%s' has %zu elements, wanted %zu", hl_gguf_where(file),
                       key, out->count, wanted);
    return HL_OK;
}

static hl_status read_scores(float **out, const hl_gguf *file, size_t n_tokens)
{
    hl_gguf_array array = { 0 };
    double        value = 0;

    HL_NEED(get_numbers(&array, file, PREFIX "scores", n_tokens));
    if (array.count == 0)
        return HL_OK;
    HL_NEED(HL_ALLOC(out, n_tokens));
    for (size_t i = 0; i < n_tokens; i++) {
        if (!hl_gguf_array_float(&value, &array, i))
            return hl_fail(HL_BAD_INPUT, "%s: '" PREFIX "scores' are not numbers",
                           hl_gguf_where(file));
        (*out)[i] = (float)value;
    }
    return HL_OK;
}

static hl_status read_types(int32_t **out, const hl_gguf *file, size_t n_tokens)
{
    hl_gguf_array array = { 0 };
    int64_t       value = 0;

    HL_NEED(get_numbers(&array, file, PREFIX "token_type", n_tokens));
    if (array.count == 0)
        return HL_OK;
    HL_NEED(HL_ALLOC(out, n_tokens));
    for (size_t i = 0; i < n_tokens; i++) {
        if (!hl_gguf_array_int(&value, &array, i))
            return hl_fail(HL_BAD_INPUT, "%s: '" PREFIX "token_type' are not integers",
                           hl_gguf_where(file));
        (*out)[i] = value >= 0 && value <= HL_PIECE_BYTE ? (int32_t)value : HL_PIECE_NORMAL;
    }
    return HL_OK;
}

/* Reads normalization rules, an array of bytes. */
static hl_status read_charsmap(hl_vocab_source *source, lists *all, const hl_gguf *file)
{
    hl_gguf_array array = { 0 };
    int64_t       value = 0;

    HL_NEED(hl_gguf_get_array(&array, file, PREFIX "precompiled_charsmap"));
    if (array.count == 0)
        return HL_OK;
    HL_NEED(HL_ALLOC(&all->charsmap, array.count));
    for (size_t i = 0; i < array.count; i++) {
        if (!hl_gguf_array_int(&value, &array, i))
            return hl_fail(HL_BAD_INPUT, "%s: '" PREFIX "precompiled_charsmap' is not of bytes",
                           hl_gguf_where(file));
        all->charsmap[i] = (uint8_t)value;
    }
    source->charsmap = (hl_bytes){ (const char *)all->charsmap, array.count };
    return HL_OK;
}

/* ------------------------------------------------------------------- settings */

static const char *const special_keys[HL_SPECIAL_COUNT] = {
    [HL_SPECIAL_BOS]  = PREFIX "bos_token_id",
    [HL_SPECIAL_EOS]  = PREFIX "eos_token_id",
    [HL_SPECIAL_UNK]  = PREFIX "unknown_token_id",
    [HL_SPECIAL_SEP]  = PREFIX "seperator_token_id", /* spelled this way in GGUF */
    [HL_SPECIAL_PAD]  = PREFIX "padding_token_id",
    [HL_SPECIAL_CLS]  = PREFIX "cls_token_id",
    [HL_SPECIAL_MASK] = PREFIX "mask_token_id",
    [HL_SPECIAL_EOT]  = PREFIX "eot_token_id",
};

/* Optional flags; -1 if missing. */
static const struct {
    const char *key;
    size_t      at; /* offset of an int in hl_vocab_source */
} choices[] = {
    { PREFIX "add_bos_token", offsetof(hl_vocab_source, add_bos) },
    { PREFIX "add_eos_token", offsetof(hl_vocab_source, add_eos) },
    { PREFIX "add_space_prefix", offsetof(hl_vocab_source, add_space_prefix) },
    { PREFIX "remove_extra_whitespaces", offsetof(hl_vocab_source, remove_extra_spaces) },
};

#define N_CHOICES (sizeof choices / sizeof *choices)

static hl_status read_special(hl_vocab_source *source, const hl_gguf *file)
{
    for (int i = 0; i < HL_SPECIAL_COUNT; i++) {
        int64_t id = -1;
        HL_NEED(hl_gguf_get_int(&id, file, special_keys[i]));
        /* Some converters store 2^32 - 1 for "none". */
        bool none = id < 0 || id == UINT32_MAX;
        if (!none && id >= (int64_t)source->n_tokens)
            return hl_fail(HL_BAD_INPUT, "%s: '%s' is %lld, but there are %zu tokens",
                           hl_gguf_where(file), special_keys[i], (long long)id, source->n_tokens);
        source->special[i] = none ? -1 : (int32_t)id;
    }
    return HL_OK;
}

static hl_status read_choices(hl_vocab_source *source, const hl_gguf *file)
{
    for (size_t i = 0; i < N_CHOICES; i++) {
        bool value = false;
        HL_NEED(hl_gguf_get_bool(&value, file, choices[i].key));
        if (hl_gguf_find_value(file, choices[i].key) != NULL)
            *(int *)(void *)((char *)source + choices[i].at) = value;
    }
    return HL_OK;
}

/* Sets the ids that llama.cpp assumes if a file does not give them. */
static void assume_special(hl_vocab_source *source)
{
    static const struct {
        const char *model;
        int32_t     ids[HL_SPECIAL_COUNT]; /* bos eos unk sep pad cls mask eot */
    } usual[] = {
        { "llama", { 1, 2, 0, -1, -1, -1, -1, -1 } },
        { "bert", { -1, -1, 100, 102, 0, 101, 103, -1 } },
        { "t5", { -1, 1, 2, -1, 0, -1, -1, -1 } },
    };

    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        for (int k = 0; k < HL_SPECIAL_COUNT; k++) {
            int32_t id = usual[i].ids[k];
            if (strcmp(usual[i].model, source->model) == 0 && source->special[k] < 0 &&
                id < (int64_t)source->n_tokens)
                source->special[k] = id;
        }
    }
}

/* -------------------------------------------------------------------- the whole */

static hl_status read_source(hl_vocab_source *source, lists *all, const hl_gguf *file)
{
    bool lowercase = true;

    HL_NEED(copy_text(&all->model, file, PREFIX "model"));
    HL_NEED(copy_text(&all->pre, file, PREFIX "pre"));
    HL_NEED(copy_text(&all->chat_template, file, "tokenizer.chat_template"));
    HL_NEED(read_texts(&all->tokens, &source->n_tokens, file, PREFIX "tokens"));
    if (all->model == NULL || all->tokens == NULL)
        return hl_fail(HL_NOT_FOUND, "%s: no tokenizer in this file", hl_gguf_where(file));
    HL_NEED(read_scores(&all->scores, file, source->n_tokens));
    HL_NEED(read_types(&all->types, file, source->n_tokens));
    HL_NEED(read_texts(&all->merges, &source->n_merges, file, PREFIX "merges"));
    HL_NEED(read_charsmap(source, all, file));
    source->model         = all->model;
    source->pre           = all->pre;
    source->tokens        = all->tokens;
    source->scores        = all->scores;
    source->types         = all->types;
    source->merges        = all->merges;
    source->chat_template = all->chat_template;
    source->where         = hl_gguf_where(file);
    HL_NEED(read_special(source, file));
    assume_special(source);
    HL_NEED(read_choices(source, file));
    HL_NEED(hl_gguf_get_bool(&lowercase, file, PREFIX "normalizer.lowercase"));
    source->keep_case = !lowercase;
    return HL_OK;
}

hl_status hl_tokenizer_open_gguf(hl_tokenizer **out, const char *path)
{
    hl_vocab_source                   source = hl_vocab_source_empty();
    HL_SCOPED(free_lists) lists       all    = { 0 };
    HL_CLOSED(hl_gguf_close) hl_gguf *file   = NULL;

    *out = NULL;
    HL_NEED(hl_gguf_open(&file, path));
    HL_NEED(read_source(&source, &all, file));
    return hl_tokenizer_from_source(out, &source);
}

/* ----------------------------------------------------------------- writing */

/* GGUF spells a space as ▁; control and byte tokens are names and are not changed. */
static hl_status append_piece(hl_buffer *out, const hl_vocab_source *source, size_t id)
{
    hl_bytes piece = source->tokens[id];
    bool     plain =
        source->plain_spaces && (source->types == NULL || source->types[id] == HL_PIECE_NORMAL);

    for (size_t i = 0; i < piece.n_bytes; i++) {
        if (plain && piece.data[i] == ' ')
            HL_NEED(hl_buffer_append_text(out, MARK));
        else
            HL_NEED(hl_buffer_append(out, piece.data + i, 1));
    }
    return HL_OK;
}

/* Writes all pieces: first they are appended to one buffer, then their places are taken. */
static hl_status add_tokens(hl_gguf_writer *writer, const hl_vocab_source *source)
{
    HL_FREED hl_bytes                  *texts  = NULL;
    HL_FREED size_t                    *starts = NULL;
    HL_SCOPED(hl_buffer_free) hl_buffer bytes  = { 0 };

    HL_NEED(HL_ALLOC(&starts, source->n_tokens + 1));
    HL_NEED(HL_ALLOC(&texts, source->n_tokens));
    for (size_t id = 0; id < source->n_tokens; id++) {
        starts[id] = bytes.n_bytes;
        HL_NEED(append_piece(&bytes, source, id));
    }
    starts[source->n_tokens] = bytes.n_bytes;
    for (size_t id = 0; id < source->n_tokens; id++)
        texts[id] =
            (hl_bytes){ hl_buffer_bytes(&bytes).data + starts[id], starts[id + 1] - starts[id] };
    hl_gguf_add_texts(writer, PREFIX "tokens", texts, source->n_tokens);
    return HL_OK;
}

hl_status hl_gguf_add_vocab(hl_gguf_writer *writer, const hl_vocab_source *source)
{
    hl_gguf_add_text(writer, PREFIX "model", source->model);
    if (source->pre != NULL)
        hl_gguf_add_text(writer, PREFIX "pre", source->pre);
    HL_NEED(add_tokens(writer, source));
    if (source->scores != NULL)
        hl_gguf_add_numbers(writer, PREFIX "scores", HL_GGUF_F32, source->scores, source->n_tokens);
    if (source->types != NULL)
        hl_gguf_add_numbers(writer, PREFIX "token_type", HL_GGUF_I32, source->types,
                            source->n_tokens);
    if (source->n_merges > 0)
        hl_gguf_add_texts(writer, PREFIX "merges", source->merges, source->n_merges);
    for (int i = 0; i < HL_SPECIAL_COUNT; i++) {
        if (source->special[i] >= 0)
            hl_gguf_add_int(writer, special_keys[i], HL_GGUF_U32, source->special[i]);
    }
    for (size_t i = 0; i < N_CHOICES; i++) {
        int choice = *(const int *)(const void *)((const char *)source + choices[i].at);
        if (choice >= 0)
            hl_gguf_add_bool(writer, choices[i].key, choice > 0);
    }
    if (source->keep_case)
        hl_gguf_add_bool(writer, PREFIX "normalizer.lowercase", false);
    if (source->charsmap.n_bytes > 0)
        hl_gguf_add_numbers(writer, PREFIX "precompiled_charsmap", HL_GGUF_U8,
                            source->charsmap.data, source->charsmap.n_bytes);
    if (source->chat_template != NULL)
        hl_gguf_add_text(writer, "tokenizer.chat_template", source->chat_template);
    return HL_OK;
}

void hl_gguf_copy_vocab(hl_gguf_writer *writer, const hl_gguf *file)
{
    for (size_t i = 0; i < hl_gguf_n_values(file); i++) {
        const hl_gguf_value *value = hl_gguf_value_at(file, i);
        if (strncmp(value->key, "tokenizer.", strlen("tokenizer.")) == 0)
            hl_gguf_add_value(writer, value);
    }
}
