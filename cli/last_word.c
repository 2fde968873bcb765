/* last_word.c - finds the last word of a text, in bytes and in tokens. */
#include "last_word.h"

#include <stdlib.h>

#include "command.h"
#include "held.h"
#include "input.h"
#include "prompt.h"

/* ------------------------------------------------------------------------ one */

static bool is_blank(char letter)
{
    return letter == ' ' || letter == '\n' || letter == '\t' || letter == '\r';
}

/* Returns the word's first byte; 0 if nothing precedes it. */
static size_t word_start(const char *text, size_t n_bytes)
{
    size_t at = n_bytes;

    while (at > 0 && is_blank(text[at - 1]))
        at--;
    while (at > 0 && !is_blank(text[at - 1]))
        at--;
    return at;
}

bool hl_last_word_find(size_t *first, size_t *count, const hl_encoding *encoding, const char *text,
                       size_t n_bytes)
{
    size_t start = word_start(text, n_bytes);

    *first = *count = 0;
    for (size_t i = 0; i < encoding->n_tokens; i++) {
        const hl_span *span = &encoding->spans[i];

        if (span->end <= start || span->end == span->begin)
            continue;
        if (*count == 0)
            *first = i;
        *count = i + 1 - *first;
    }
    return start > 0 && *first > 0 && *count > 0;
}

/* ------------------------------------------------------------------------ many */

/* Adds a text if its last word can be predicted; there must be room. */
static int add_text(hl_last_words *out, const hl_input_document *document,
                    const hl_tokenizer *tokenizer, hl_around around, const char *command)
{
    HL_HELD(hl_encoding_free) hl_encoding *encoding = NULL;
    hl_encode_options options = { .add_special = around == HL_AROUND_DOCUMENT };
    size_t            first = 0, count = 0;

    if (hl_tokenizer_encode(&encoding, tokenizer, document->text, document->n_bytes, &options) !=
        HL_OK)
        return hl_give_up(HL_EXIT_INPUT, command, "%s: %s", document->name, hl_error_message());
    if (!hl_last_word_find(&first, &count, encoding, document->text, document->n_bytes))
        return HL_EXIT_OK;
    out->items[out->count]       = (hl_word_text){ encoding->ids, (int64_t)encoding->n_tokens,
                                                   (int64_t)first, (int64_t)count };
    out->encodings[out->count++] = encoding;
    encoding                     = NULL;
    return HL_EXIT_OK;
}

int hl_last_words_read(hl_last_words *out, const char *path, const hl_tokenizer *tokenizer,
                       hl_around around, int64_t most, const char *command)
{
    HL_KEPT(hl_input_documents_free) hl_input_documents documents = { 0 };

    *out = (hl_last_words){ 0 };
    HL_PASS(hl_input_documents_read(&documents, path, command));
    out->items     = malloc(((size_t)documents.count + 1) * sizeof *out->items);
    out->encodings = malloc(((size_t)documents.count + 1) * sizeof *out->encodings);
    if (out->items == NULL || out->encodings == NULL)
        return hl_finish(command, HL_NO_MEMORY);
    for (int i = 0; i < documents.count && (most == 0 || i < most); i++)
        HL_PASS(add_text(out, &documents.items[i], tokenizer, around, command));
    if (out->count == 0)
        return hl_give_up(HL_EXIT_INPUT, command, "%s: no text with two words or more", path);
    return HL_EXIT_OK;
}

void hl_last_words_free(hl_last_words *words)
{
    for (int64_t i = 0; i < words->count; i++)
        hl_encoding_free(words->encodings[i]);
    free(words->encodings);
    free(words->items);
    *words = (hl_last_words){ 0 };
}
