/* stop_words.c - finding words that end a text, while the text arrives in pieces.
 *
 *     pending   [ shown by the last call | not yet shown ]
 *
 * As little as possible is held back: the longest end of the text that is the beginning of a
 * word. */
#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"
#include "headlight/generate.h"

struct hl_stop_words {
    char    **words; /* (n_words) */
    size_t    n_words;
    hl_buffer pending;
    size_t    n_shown; /* bytes of pending that the last call returned */
    bool      found;
};

HL_CLOSES(hl_stop_words_free, hl_stop_words)

hl_status hl_stop_words_new(hl_stop_words **out, const char *const *words, size_t n_words)
{
    HL_CLOSED(hl_stop_words_free) hl_stop_words *stop = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&stop, 1));
    HL_NEED(HL_ALLOC_ZEROED(&stop->words, n_words));
    for (size_t i = 0; i < n_words; i++) {
        if (words[i][0] == '\0')
            return hl_fail(HL_BAD_ARGUMENT, "stop word %zu is empty", i);
        HL_NEED(hl_strdup(&stop->words[i], words[i]));
        stop->n_words++;
    }
    *out = hl_taken(&stop);
    return HL_OK;
}

void hl_stop_words_free(hl_stop_words *stop)
{
    if (stop == NULL)
        return;
    for (size_t i = 0; i < stop->n_words; i++)
        hl_free(stop->words[i]);
    hl_free(stop->words);
    hl_buffer_free(&stop->pending);
    hl_free(stop);
}

/* Returns 1 if the bytes begin with the word, 0 if they may when more bytes come, else -1. */
static int begins_with(const char *bytes, size_t n_bytes, const char *word)
{
    size_t length = strlen(word);
    size_t n      = length < n_bytes ? length : n_bytes;

    if (memcmp(bytes, word, n) != 0)
        return -1;
    return n == length ? 1 : 0;
}

/* Returns how much of the text may be shown: up to the first word, or to a possible beginning of
 * one. */
static size_t find_end(hl_stop_words *stop)
{
    const char *bytes   = stop->pending.data;
    size_t      n_bytes = stop->pending.n_bytes;
    size_t      waits   = n_bytes; /* place of the first possible beginning */

    for (size_t at = 0; at < n_bytes; at++) {
        for (size_t i = 0; i < stop->n_words; i++) {
            int answer = begins_with(bytes + at, n_bytes - at, stop->words[i]);
            if (answer > 0) {
                stop->found = true;
                return at;
            }
            if (answer == 0 && at < waits)
                waits = at;
        }
    }
    return waits;
}

/* Drops the text that has been shown. */
static void drop_shown(hl_stop_words *stop)
{
    stop->pending.n_bytes -= stop->n_shown;
    if (stop->n_shown > 0)
        memmove(stop->pending.data, stop->pending.data + stop->n_shown, stop->pending.n_bytes);
    stop->n_shown = 0;
}

hl_status hl_stop_words_push(const char **text, size_t *n_bytes, bool *found, hl_stop_words *stop,
                             const char *more, size_t n_more)
{
    *text    = "";
    *n_bytes = 0;
    *found   = stop->found;
    if (stop->found)
        return HL_OK;
    drop_shown(stop);
    HL_NEED(hl_buffer_append(&stop->pending, more, n_more));
    if (stop->pending.n_bytes == 0)
        return HL_OK;
    stop->n_shown = find_end(stop);
    *text         = stop->pending.data;
    *n_bytes      = stop->n_shown;
    *found        = stop->found;
    return HL_OK;
}

hl_status hl_stop_words_finish(const char **text, size_t *n_bytes, hl_stop_words *stop)
{
    *text    = "";
    *n_bytes = 0;
    drop_shown(stop);
    if (!stop->found && stop->pending.n_bytes > 0) {
        *text         = stop->pending.data;
        *n_bytes      = stop->pending.n_bytes;
        stop->n_shown = *n_bytes;
    }
    return HL_OK;
}
