/* decode_stream.c - decoding tokens as they come.
 *
 * What a token adds to the text can depend on the one before it (a space is
 * dropped at the very start, bytes join to characters), but on no more than
 * that.  So a short window is kept and decoded twice, without and with the new
 * token; what the second has more than the first is new:
 *
 *     window   [ shown tokens | waiting tokens ]
 *     prefix   decode(shown)              already given out
 *     text     decode(shown + waiting)    give out what follows the prefix,
 *                                         unless it ends inside a character
 *
 * Once something was given out, what waited becomes the new `shown`. */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"
#include "tokenize/buffer.h"
#include "tokenize/tokenizer.h"

#define MAX_WAITING 16 /* tokens; more than that are not one character */

struct hl_decode_stream {
    const hl_tokenizer *tokenizer;
    hl_decode_options   options;
    int32_t            *ids;
    size_t              n_ids;
    size_t              capacity;
    size_t              n_shown;
    hl_buffer           prefix;
    char               *text; /* the last decoding; what is returned lies in it */
};

hl_status hl_decode_stream_open(hl_decode_stream **out, const hl_tokenizer *tokenizer,
                                const hl_decode_options *options)
{
    hl_status status = HL_ALLOC_ZEROED(out, 1);
    if (status != HL_OK)
        return status;
    (*out)->tokenizer = tokenizer;
    if (options != NULL)
        (*out)->options = *options;
    return HL_OK;
}

void hl_decode_stream_close(hl_decode_stream *stream)
{
    if (stream == NULL)
        return;
    hl_free(stream->ids);
    hl_buffer_free(&stream->prefix);
    hl_free(stream->text);
    hl_free(stream);
}

/* Does the text end inside a character, or in what may become one? */
static bool is_cut(const char *text, size_t n_bytes)
{
    return hl_utf8_incomplete(text, n_bytes) > 0 ||
           (n_bytes >= 3 && memcmp(text + n_bytes - 3, "\xef\xbf\xbd", 3) == 0);
}

/* The waiting tokens have been given out: forget the shown ones. */
static hl_status move_window(hl_decode_stream *stream)
{
    hl_status status  = HL_OK;
    char     *prefix  = NULL;
    size_t    n_bytes = 0;

    memmove(stream->ids, stream->ids + stream->n_shown,
            (stream->n_ids - stream->n_shown) * sizeof *stream->ids);
    stream->n_ids -= stream->n_shown;
    stream->n_shown = stream->n_ids;
    HL_TRY(hl_tokenizer_decode(&prefix, &n_bytes, stream->tokenizer, stream->ids, stream->n_ids,
                               &stream->options));
    stream->prefix.n_bytes = 0;
    HL_TRY(hl_buffer_append(&stream->prefix, prefix, n_bytes));

done:
    hl_free(prefix);
    return status;
}

/* Decodes the window and finds what is new in it. */
static hl_status find_new(const char **text, size_t *n_bytes, hl_decode_stream *stream)
{
    size_t length = 0;

    hl_free(stream->text);
    stream->text     = NULL;
    hl_status status = hl_tokenizer_decode(&stream->text, &length, stream->tokenizer, stream->ids,
                                           stream->n_ids, &stream->options);
    if (status != HL_OK)
        return status;
    size_t known = stream->prefix.n_bytes < length ? stream->prefix.n_bytes : length;
    *text        = stream->text != NULL ? stream->text + known : "";
    *n_bytes     = length - known;
    return HL_OK;
}

hl_status hl_decode_stream_push(const char **text, size_t *n_bytes, hl_decode_stream *stream,
                                int32_t id)
{
    hl_status status = HL_OK;

    *text    = "";
    *n_bytes = 0;
    if (hl_tokenizer_piece(stream->tokenizer, id, NULL) == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: the vocabulary has no id %d", stream->tokenizer->where,
                       id);
    /* A hidden token must not become what the next one follows. */
    if (stream->options.skip_special && stream->tokenizer->vocab.pieces[id].special)
        return HL_OK;
    HL_NEED(HL_GROW(&stream->ids, &stream->capacity, stream->n_ids, 1));
    stream->ids[stream->n_ids++] = id;
    HL_NEED(find_new(text, n_bytes, stream));
    /* What shows nothing yet stays beside what it follows. */
    bool waits =
        (*n_bytes == 0 || is_cut(*text, *n_bytes)) && stream->n_ids - stream->n_shown < MAX_WAITING;
    if (waits) {
        *text    = "";
        *n_bytes = 0;
        return status;
    }
    HL_NEED(move_window(stream));
    return status;
}

hl_status hl_decode_stream_finish(const char **text, size_t *n_bytes, hl_decode_stream *stream)
{
    *text    = "";
    *n_bytes = 0;
    if (stream->n_ids == stream->n_shown)
        return HL_OK;
    HL_NEED(find_new(text, n_bytes, stream));
    return move_window(stream);
}
