/* decode.c - the steps of decoders, and streams, which decode tokens one at a time. */
#include "tokenize/decode.h"

#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"
#include "tokenize/byte_level.h"
#include "tokenize/tokenizer.h"

#define MAX_STEPS 64

hl_status hl_decoder_add(hl_decode_step **out, hl_decoder *decoder, hl_decode_step step)
{
    if (decoder->n_steps >= MAX_STEPS)
        return hl_fail(HL_BAD_INPUT, "more than %d decoders", MAX_STEPS);
    HL_NEED(HL_GROW(&decoder->steps, &decoder->capacity, decoder->n_steps, 1));
    *out  = &decoder->steps[decoder->n_steps++];
    **out = step;
    return HL_OK;
}

void hl_decoder_free(hl_decoder *decoder)
{
    for (size_t i = 0; i < decoder->n_steps; i++) {
        hl_bytes_free(&decoder->steps[i].content);
        hl_bytes_free(&decoder->steps[i].other);
        hl_pattern_free(decoder->steps[i].pattern);
    }
    hl_free(decoder->steps);
    *decoder = (hl_decoder){ 0 };
}

/* ------------------------------------------------------------ lists of strings */

static hl_status end_string(hl_strings *strings)
{
    hl_status status = HL_GROW(&strings->ends, &strings->capacity, strings->count, 1);
    if (status == HL_OK)
        strings->ends[strings->count++] = strings->bytes.n_bytes;
    return status;
}

hl_status hl_strings_add(hl_strings *strings, hl_bytes text)
{
    hl_status status = hl_buffer_append(&strings->bytes, text.data, text.n_bytes);
    return status == HL_OK ? end_string(strings) : status;
}

static hl_bytes string_at(const hl_strings *strings, size_t index)
{
    size_t begin = index > 0 ? strings->ends[index - 1] : 0;
    return (hl_bytes){ hl_buffer_bytes(&strings->bytes).data + begin,
                       strings->ends[index] - begin };
}

void hl_strings_free(hl_strings *strings)
{
    hl_buffer_free(&strings->bytes);
    hl_free(strings->ends);
    *strings = (hl_strings){ 0 };
}

static bool same(hl_bytes a, hl_bytes b)
{
    return a.n_bytes == b.n_bytes && memcmp(a.data, b.data, a.n_bytes) == 0;
}

/* -------------------------------------------------------------- replacing */

static hl_status replace_literal(hl_buffer *out, hl_bytes text, hl_bytes needle, hl_bytes by)
{
    return hl_search_replace(out, (hl_search){ .needle = needle, .text = text }, by);
}

/* Patterns match UTF-8 only: other bytes stay as they are. */
static hl_status replace_pattern(hl_buffer *out, hl_bytes text, const hl_decode_step *step,
                                 hl_matcher *matcher)
{
    hl_search search = { .pattern = step->pattern, .matcher = matcher, .text = text };

    if (hl_utf8_find_bad(text.data, text.n_bytes) < text.n_bytes)
        return hl_buffer_append(out, text.data, text.n_bytes);
    return hl_search_replace(out, search, step->other);
}

/* Removes spaces before punctuation and contractions, as in written English. */
static hl_status clean_up(hl_buffer *out, hl_bytes text)
{
    static const char *const pairs[][2] = {
        { " .", "." },   { " ?", "?" },     { " !", "!" },     { " ,", "," },
        { " ' ", "'" },  { " n't", "n't" }, { " 'm", "'m" },   { " do not", " don't" },
        { " 's", "'s" }, { " 've", "'ve" }, { " 're", "'re" },
    };
    HL_SCOPED(hl_buffer_free) hl_buffer now  = { 0 };
    HL_SCOPED(hl_buffer_free) hl_buffer next = { 0 };

    HL_NEED(hl_buffer_append(&now, text.data, text.n_bytes));
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        hl_bytes from = { pairs[i][0], strlen(pairs[i][0]) };
        hl_bytes to   = { pairs[i][1], strlen(pairs[i][1]) };
        next.n_bytes  = 0;
        HL_NEED(replace_literal(&next, hl_buffer_bytes(&now), from, to));
        hl_buffer swapped = now;
        now               = next;
        next              = swapped;
    }
    return hl_buffer_append(out, now.data, now.n_bytes);
}

/* --------------------------------------------------------- one string at a time */

static hl_status strip(hl_buffer *out, hl_bytes text, const hl_decode_step *step)
{
    hl_bytes mark  = step->content;
    size_t   begin = 0;
    size_t   end   = text.n_bytes;

    for (size_t i = 0; i < step->start && mark.n_bytes > 0 && end - begin >= mark.n_bytes; i++) {
        if (memcmp(text.data + begin, mark.data, mark.n_bytes) != 0)
            break;
        begin += mark.n_bytes;
    }
    for (size_t i = 0; i < step->stop && mark.n_bytes > 0 && end - begin >= mark.n_bytes; i++) {
        if (memcmp(text.data + end - mark.n_bytes, mark.data, mark.n_bytes) != 0)
            break;
        end -= mark.n_bytes;
    }
    return hl_buffer_append(out, text.data + begin, end - begin);
}

static hl_status wordpiece(hl_buffer *out, hl_bytes text, const hl_decode_step *step, bool first)
{
    size_t n_mark = step->content.n_bytes;
    bool   joined =
        !first && text.n_bytes >= n_mark && memcmp(text.data, step->content.data, n_mark) == 0;
    HL_SCOPED(hl_buffer_free) hl_buffer spaced = { 0 };

    if (joined)
        text = (hl_bytes){ text.data + n_mark, text.n_bytes - n_mark };
    else if (!first)
        HL_NEED(hl_buffer_append(&spaced, " ", 1));
    HL_NEED(hl_buffer_append(&spaced, text.data, text.n_bytes));
    text = hl_buffer_bytes(&spaced);
    return step->cleanup ? clean_up(out, text) : hl_buffer_append(out, text.data, text.n_bytes);
}

static hl_status ctc(hl_buffer *out, hl_bytes text, const hl_decode_step *step)
{
    HL_SCOPED(hl_buffer_free) hl_buffer unpadded = { 0 };
    HL_SCOPED(hl_buffer_free) hl_buffer clean    = { 0 };

    HL_NEED(replace_literal(&unpadded, text, step->content, (hl_bytes){ "", 0 }));
    hl_bytes rest = hl_buffer_bytes(&unpadded);
    if (!step->cleanup)
        return hl_buffer_append(out, rest.data, rest.n_bytes);
    HL_NEED(clean_up(&clean, rest));
    return replace_literal(out, hl_buffer_bytes(&clean), step->other, (hl_bytes){ " ", 1 });
}

/* Decodes string `index` of `in` and appends it to `out`. */
static hl_status decode_one(hl_buffer *out, const hl_strings *in, size_t index,
                            const hl_decode_step *step, hl_matcher *matcher)
{
    hl_bytes text  = string_at(in, index);
    hl_bytes space = { " ", 1 };
    hl_bytes empty = { "", 0 };

    switch (step->kind) {
    case HL_DECODE_METASPACE:
        return replace_literal(out, text, step->content,
                               index == 0 && !step->keep_first ? empty : space);
    case HL_DECODE_WORDPIECE:
        return wordpiece(out, text, step, index == 0);
    case HL_DECODE_STRIP:
        return strip(out, text, step);
    case HL_DECODE_REPLACE:
        return step->pattern != NULL ? replace_pattern(out, text, step, matcher)
                                     : replace_literal(out, text, step->content, step->other);
    case HL_DECODE_SUFFIX:
        return replace_literal(out, text, step->content, index + 1 == in->count ? empty : space);
    case HL_DECODE_CTC:
        if (index > 0 && same(text, string_at(in, index - 1)))
            return HL_OK;
        return ctc(out, text, step);
    case HL_DECODE_BYTE_LEVEL:
        return hl_byte_level_read(out, text);
    default:
        return hl_buffer_append(out, text.data, text.n_bytes);
    }
}

/* --------------------------------------------------------------- byte fallback */

/* Returns the byte of "<0xNN>", or -1. */
static int fallback_byte(hl_bytes text)
{
    int value = 0;

    if (text.n_bytes != 6 || memcmp(text.data, "<0x", 3) != 0 || text.data[5] != '>')
        return -1;
    for (int i = 3; i < 5; i++) {
        char c     = text.data[i];
        int  digit = c >= '0' && c <= '9'   ? c - '0'
                     : c >= 'A' && c <= 'F' ? c - 'A' + 10
                     : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                            : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* A run of bytes becomes one string if it is valid UTF-8, otherwise one U+FFFD per byte. */
static hl_status end_run(hl_strings *out, hl_buffer *run)
{
    size_t length = run->n_bytes;

    if (length == 0)
        return HL_OK;
    run->n_bytes = 0;
    if (hl_utf8_find_bad(run->data, length) == length)
        return hl_strings_add(out, (hl_bytes){ run->data, length });
    for (size_t i = 0; i < length; i++)
        HL_NEED(hl_strings_add(out, (hl_bytes){ "\xef\xbf\xbd", 3 }));
    return HL_OK;
}

static hl_status byte_fallback(hl_strings *out, const hl_strings *in)
{
    HL_SCOPED(hl_buffer_free) hl_buffer run = { 0 };

    for (size_t i = 0; i < in->count; i++) {
        hl_bytes text = string_at(in, i);
        int      byte = fallback_byte(text);
        char     c    = (char)byte;
        if (byte >= 0) {
            HL_NEED(hl_buffer_append(&run, &c, 1));
            continue;
        }
        HL_NEED(end_run(out, &run));
        HL_NEED(hl_strings_add(out, text));
    }
    return end_run(out, &run);
}

/* -------------------------------------------------------------------- running */

static hl_status run_step(hl_strings *out, const hl_strings *in, const hl_decode_step *step,
                          hl_matcher *matcher)
{
    bool joins = step->kind == HL_DECODE_BYTE_LEVEL || step->kind == HL_DECODE_FUSE;

    if (step->kind == HL_DECODE_BYTE_FALLBACK)
        return byte_fallback(out, in);
    for (size_t i = 0; i < in->count; i++) {
        HL_NEED(decode_one(&out->bytes, in, i, step, matcher));
        if (!joins)
            HL_NEED(end_string(out));
    }
    if (joins)
        HL_NEED(end_string(out));
    return HL_OK;
}

static hl_status join(hl_buffer *out, const hl_strings *pieces, const char *between)
{
    for (size_t i = 0; i < pieces->count; i++) {
        hl_bytes text = string_at(pieces, i);
        if (i > 0)
            HL_NEED(hl_buffer_append_text(out, between));
        HL_NEED(hl_buffer_append(out, text.data, text.n_bytes));
    }
    return HL_OK;
}

hl_status hl_decoder_run(hl_buffer *out, const hl_decoder *decoder, hl_strings *pieces,
                         hl_budget *budget)
{
    HL_SCOPED(hl_strings_free) hl_strings  next    = { 0 };
    HL_CLOSED(hl_matcher_free) hl_matcher *matcher = NULL;

    HL_NEED(hl_matcher_new(&matcher));
    hl_matcher_set_budget(matcher, budget);
    if (budget != NULL)
        out->most = pieces->bytes.most = next.bytes.most = budget->most_bytes;
    for (size_t i = 0; i < decoder->n_steps; i++) {
        next.count         = 0;
        next.bytes.n_bytes = 0;
        hl_status status   = run_step(&next, pieces, &decoder->steps[i], matcher);
        if (status == HL_OK)
            status = hl_budget_spend(budget, next.bytes.n_bytes);
        HL_NEED(hl_fail_within(status, "decoder %zu", i));
        hl_strings swapped = *pieces;
        *pieces            = next;
        next               = swapped;
    }
    return join(out, pieces, decoder->present ? "" : " ");
}

/* ----------------------------------------------------------- tokens as they come
 *
 * What a token adds to the text can depend on the one before it (a space is dropped at the very
 * start, bytes join to characters), but on no more than that.  So a short window is kept and
 * decoded twice, without and with the new token; what the second has more than the first is new:
 *
 *     window   [ shown tokens | waiting tokens ]
 *     prefix   decode(shown)              already given out
 *     text     decode(shown + waiting)    give out what follows the prefix,
 *                                         unless it ends inside a character
 *
 * Once something was given out, what waited becomes the new `shown`. */

#define MAX_WAITING 16 /* largest number of waiting tokens, far more than one character needs */

struct hl_decode_stream {
    const hl_tokenizer *tokenizer;
    hl_decode_options   options;
    int64_t            *ids;
    size_t              n_ids;
    size_t              capacity;
    size_t              n_shown;
    hl_buffer           prefix;
    char               *text; /* the last decoded text, which the returned text is a part of */
};

hl_status hl_decode_stream_open(hl_decode_stream **out, const hl_tokenizer *tokenizer,
                                const hl_decode_options *options)
{
    HL_NEED(HL_ALLOC_ZEROED(out, 1));
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

/* Returns true if the text ends inside a character, or in an incomplete one. */
static bool is_cut(const char *text, size_t n_bytes)
{
    return hl_utf8_incomplete(text, n_bytes) > 0 ||
           (n_bytes >= 3 && memcmp(text + n_bytes - 3, "\xef\xbf\xbd", 3) == 0);
}

/* The waiting tokens have been given out: forget the shown ones. */
static hl_status move_window(hl_decode_stream *stream)
{
    size_t         n_bytes = 0;
    HL_FREED char *prefix  = NULL;

    memmove(stream->ids, stream->ids + stream->n_shown,
            (stream->n_ids - stream->n_shown) * sizeof *stream->ids);
    stream->n_ids -= stream->n_shown;
    stream->n_shown = stream->n_ids;
    HL_NEED(hl_tokenizer_decode(&prefix, &n_bytes, stream->tokenizer, stream->ids, stream->n_ids,
                                &stream->options));
    stream->prefix.n_bytes = 0;
    return hl_buffer_append(&stream->prefix, prefix, n_bytes);
}

/* Decodes the window and finds what is new in it. */
static hl_status find_new(const char **text, size_t *n_bytes, hl_decode_stream *stream)
{
    size_t length = 0;

    hl_free(stream->text);
    stream->text = NULL;
    HL_NEED(hl_tokenizer_decode(&stream->text, &length, stream->tokenizer, stream->ids,
                                stream->n_ids, &stream->options));
    size_t known = stream->prefix.n_bytes < length ? stream->prefix.n_bytes : length;
    *text        = stream->text != NULL ? stream->text + known : "";
    *n_bytes     = length - known;
    return HL_OK;
}

hl_status hl_decode_stream_push(const char **text, size_t *n_bytes, hl_decode_stream *stream,
                                int64_t id)
{
    hl_status status = HL_OK;

    *text    = "";
    *n_bytes = 0;
    if (hl_tokenizer_piece(stream->tokenizer, id, NULL) == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: the vocabulary has no id %lld", stream->tokenizer->where,
                       (long long)id);
    /* A hidden token must not become what the next one follows. */
    if (stream->options.skip_special && stream->tokenizer->vocab.pieces[id].special)
        return HL_OK;
    HL_NEED(HL_GROW(&stream->ids, &stream->capacity, stream->n_ids, 1));
    stream->ids[stream->n_ids++] = id;
    HL_NEED(find_new(text, n_bytes, stream));
    /* A token that shows nothing yet stays in the window, next to the token that it follows. */
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
