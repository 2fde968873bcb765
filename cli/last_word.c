/* last_word.c - where the last word of a text begins, in bytes and in tokens. */
#include "last_word.h"

#include <stdlib.h>

#include "command.h"
#include "input.h"

/* ------------------------------------------------------------------------ one */

static bool is_blank(char letter)
{
    return letter == ' ' || letter == '\n' || letter == '\t' || letter == '\r';
}

/* The byte; at 0 there is nothing before it. */
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

static int out_of_memory(const char *command)
{
    hl_complain(command, "out of memory");
    return HL_EXIT_RESOURCES;
}

/* One more, if it has a word to foretell; there is room. */
static int add_text(hl_last_words *out, const hl_input_document *document,
                    const hl_tokenizer *tokenizer, hl_around around, const char *command)
{
    hl_encoding      *encoding = NULL;
    hl_encode_options options  = { .add_special = around == HL_AROUND_DOCUMENT };
    size_t            first = 0, count = 0;
    int               code = HL_EXIT_OK;

    if (hl_tokenizer_encode(&encoding, tokenizer, document->text, document->n_bytes, &options) !=
        HL_OK) {
        hl_complain(command, "%s: %s", document->name, hl_error_message());
        return HL_EXIT_INPUT;
    }
    if (hl_last_word_find(&first, &count, encoding, document->text, document->n_bytes)) {
        int64_t *tokens = malloc(encoding->n_tokens * sizeof *tokens);

        for (size_t i = 0; tokens != NULL && i < encoding->n_tokens; i++)
            tokens[i] = encoding->ids[i];
        if (tokens == NULL)
            code = out_of_memory(command);
        else
            out->items[out->count++] = (hl_word_text){ tokens, (int64_t)encoding->n_tokens,
                                                       (int64_t)first, (int64_t)count };
    }
    hl_encoding_free(encoding);
    return code;
}

int hl_last_words_read(hl_last_words *out, const char *path, const hl_tokenizer *tokenizer,
                       hl_around around, int64_t most, const char *command)
{
    hl_input_documents documents;
    int                code = hl_input_documents_read(&documents, path, command);

    *out = (hl_last_words){ 0 };
    if (code == HL_EXIT_OK) {
        out->items = malloc(((size_t)documents.count + 1) * sizeof *out->items);
        code       = out->items == NULL ? out_of_memory(command) : HL_EXIT_OK;
    }
    for (int i = 0; i < documents.count && code == HL_EXIT_OK && (most == 0 || i < most); i++)
        code = add_text(out, &documents.items[i], tokenizer, around, command);
    if (code == HL_EXIT_OK && out->count == 0) {
        hl_complain(command, "%s: no text of two words", path);
        code = HL_EXIT_INPUT;
    }
    hl_input_documents_free(&documents);
    return code;
}

void hl_last_words_free(hl_last_words *words)
{
    for (int64_t i = 0; i < words->count; i++)
        free((void *)words->items[i].tokens);
    free(words->items);
    *words = (hl_last_words){ 0 };
}
