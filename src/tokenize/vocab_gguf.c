/* vocab_gguf.c - a vocabulary as metadata of a GGUF file (keys: tokenizer_gguf.c). */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "formats/gguf.h"
#include "tokenize/buffer.h"
#include "tokenize/vocab_source.h"

#define PREFIX "tokenizer.ggml."
#define MARK   "\xe2\x96\x81" /* ▁ */

/* --------------------------------------------------------------------- pieces */

/* GGUF spells a space as the mark; control and byte tokens are names and stay. */
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

/* All pieces in one buffer, and where each of them lies once it has stopped growing. */
static hl_status add_tokens(hl_gguf_writer *writer, const hl_vocab_source *source)
{
    hl_status     status = HL_OK;
    hl_buffer     bytes  = { 0 };
    size_t       *starts = NULL;
    hl_gguf_text *texts  = NULL;

    HL_TRY(HL_ALLOC(&starts, source->n_tokens + 1));
    HL_TRY(HL_ALLOC(&texts, source->n_tokens));
    for (size_t id = 0; id < source->n_tokens; id++) {
        starts[id] = bytes.n_bytes;
        HL_TRY(append_piece(&bytes, source, id));
    }
    starts[source->n_tokens] = bytes.n_bytes;
    for (size_t id = 0; id < source->n_tokens; id++)
        texts[id] = (hl_gguf_text){ hl_buffer_bytes(&bytes).data + starts[id],
                                    starts[id + 1] - starts[id] };
    hl_gguf_add_texts(writer, PREFIX "tokens", texts, source->n_tokens);

done:
    hl_buffer_free(&bytes);
    hl_free(starts);
    hl_free(texts);
    return status;
}

static hl_status add_merges(hl_gguf_writer *writer, const hl_vocab_source *source)
{
    hl_gguf_text *texts = NULL;

    if (source->n_merges == 0)
        return HL_OK;
    hl_status status = HL_ALLOC(&texts, source->n_merges);
    for (size_t i = 0; status == HL_OK && i < source->n_merges; i++)
        texts[i] = (hl_gguf_text){ source->merges[i].data, source->merges[i].n_bytes };
    if (status == HL_OK)
        hl_gguf_add_texts(writer, PREFIX "merges", texts, source->n_merges);
    hl_free(texts);
    return status;
}

/* ------------------------------------------------------------------- settings */

static void add_special(hl_gguf_writer *writer, const hl_vocab_source *source)
{
    static const char *const keys[HL_SPECIAL_COUNT] = {
        [HL_SPECIAL_BOS]  = PREFIX "bos_token_id",
        [HL_SPECIAL_EOS]  = PREFIX "eos_token_id",
        [HL_SPECIAL_UNK]  = PREFIX "unknown_token_id",
        [HL_SPECIAL_SEP]  = PREFIX "seperator_token_id", /* sic */
        [HL_SPECIAL_PAD]  = PREFIX "padding_token_id",
        [HL_SPECIAL_CLS]  = PREFIX "cls_token_id",
        [HL_SPECIAL_MASK] = PREFIX "mask_token_id",
        [HL_SPECIAL_EOT]  = PREFIX "eot_token_id",
    };

    for (int i = 0; i < HL_SPECIAL_COUNT; i++) {
        if (source->special[i] >= 0)
            hl_gguf_add_int(writer, keys[i], HL_GGUF_U32, source->special[i]);
    }
}

static void add_choice(hl_gguf_writer *writer, const char *key, int choice)
{
    if (choice >= 0)
        hl_gguf_add_bool(writer, key, choice > 0);
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
    HL_NEED(add_merges(writer, source));
    add_special(writer, source);
    add_choice(writer, PREFIX "add_bos_token", source->add_bos);
    add_choice(writer, PREFIX "add_eos_token", source->add_eos);
    add_choice(writer, PREFIX "add_space_prefix", source->add_space_prefix);
    add_choice(writer, PREFIX "remove_extra_whitespaces", source->remove_extra_spaces);
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
