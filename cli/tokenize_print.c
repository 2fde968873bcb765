/* tokenize_print.c - tokens in colour, as a table, and as JSON.
 *
 *     4 tokens, 12 bytes (BPE, 1024 pieces)
 *
 *     Hello·world!
 *
 *        #     id  bytes    piece        text
 *        0     41  0-1      H            H
 *
 * The first line of text has the tokens on backgrounds that take turns: blue and
 * orange, which also those tell apart who cannot tell red from green; black on
 * both is readable.  Special tokens are violet and bold.  Without colour the
 * tokens are separated by bars (│). */
#include "tokenize_print.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "printable.h"
#include "terminal.h"
#include "values.h"

#define BLUE    "\033[38;5;16;48;5;153m"
#define ORANGE  "\033[38;5;16;48;5;222m"
#define SPECIAL "\033[1;38;5;16;48;5;183m"

/* ------------------------------------------------------------------- in colour */

/* What a token is shown as.  Tokens that share a character show it once, the first time;
 * tokens that stand for nothing in the text show their piece.  The caller frees it. */
static char *shown_text(const hl_tokenizer *tokenizer, const hl_encoding *encoding, size_t index,
                        const char *text)
{
    hl_span     span    = encoding->spans[index];
    size_t      n_piece = 0;
    const char *piece   = hl_tokenizer_piece(tokenizer, encoding->ids[index], &n_piece);

    if (span.begin < span.end) {
        size_t before = index > 0 ? encoding->spans[index - 1].end : 0;
        if (span.begin < before)
            span.begin = before < span.end ? before : span.end;
        return hl_printable_text(text + span.begin, span.end - span.begin);
    }
    return hl_printable_text(piece != NULL ? piece : "", n_piece);
}

static const char *background(hl_token_type type, size_t index)
{
    if (type == HL_TOKEN_SPECIAL)
        return SPECIAL;
    return index % 2 == 0 ? BLUE : ORANGE;
}

static void show_line(const hl_tokenizer *tokenizer, const hl_encoding *encoding, const char *text)
{
    hl_colours colours = hl_terminal_colours(stdout);
    bool       colour  = colours.plain[0] != '\0';

    for (size_t i = 0; i < encoding->n_tokens; i++) {
        char       *shown = shown_text(tokenizer, encoding, i, text);
        const char *end   = shown != NULL ? strstr(shown, "↵") : NULL;
        if (colour)
            printf("%s%s%s", background(encoding->types[i], i), shown != NULL ? shown : "",
                   colours.plain);
        else
            printf("%s%s", i > 0 ? "│" : "", shown != NULL ? shown : "");
        if (end != NULL) /* a line of the text ends: so does ours */
            printf("\n");
        free(shown);
    }
    printf("\n");
}

/* --------------------------------------------------------------------- the table */

static const char *type_note(hl_token_type type)
{
    switch (type) {
    case HL_TOKEN_UNKNOWN:
        return "unknown";
    case HL_TOKEN_SPECIAL:
        return "special";
    case HL_TOKEN_ADDED:
        return "added";
    case HL_TOKEN_BYTE:
        return "byte";
    default:
        return "";
    }
}

/* printf pads by bytes; this pads by characters. */
static void print_padded(const char *text, size_t width)
{
    size_t seen = hl_printable_width(text);
    printf("%s%*s", text, (int)(seen < width ? width - seen : 0), "");
}

static size_t widest_piece(const hl_tokenizer *tokenizer, const hl_encoding *encoding)
{
    size_t widest = strlen("piece");

    for (size_t i = 0; i < encoding->n_tokens; i++) {
        size_t      n_bytes = 0;
        const char *piece   = hl_tokenizer_piece(tokenizer, encoding->ids[i], &n_bytes);
        char       *shown   = hl_printable_text(piece != NULL ? piece : "", n_bytes);
        size_t      width   = shown != NULL ? hl_printable_width(shown) : 0;
        widest              = width > widest && width <= 32 ? width : widest;
        free(shown);
    }
    return widest;
}

static void show_row(const hl_tokenizer *tokenizer, const hl_encoding *encoding, size_t index,
                     const char *text, size_t piece_width)
{
    hl_span     span    = encoding->spans[index];
    size_t      n_piece = 0;
    const char *bytes   = hl_tokenizer_piece(tokenizer, encoding->ids[index], &n_piece);
    char       *piece   = hl_printable_text(bytes != NULL ? bytes : "", n_piece);
    char       *source  = hl_printable_text(text + span.begin, span.end - span.begin);
    char        place[48];

    snprintf(place, sizeof place, "%zu-%zu", span.begin, span.end);
    printf("%4zu %7d  %-9s  ", index, encoding->ids[index], span.begin < span.end ? place : "-");
    print_padded(piece != NULL ? piece : "", piece_width);
    printf("  %s", source != NULL ? source : "");
    if (encoding->types[index] != HL_TOKEN_NORMAL)
        printf("%s(%s)", span.begin < span.end ? "  " : "", type_note(encoding->types[index]));
    printf("\n");
    free(piece);
    free(source);
}

void hl_tokenize_show(const hl_tokenizer *tokenizer, const hl_encoding *encoding, const char *text,
                      size_t n_bytes)
{
    hl_colours colours = hl_terminal_colours(stdout);
    size_t     width   = widest_piece(tokenizer, encoding);

    printf("%zu token%s, %zu byte%s (%s, %zu pieces)\n", encoding->n_tokens,
           encoding->n_tokens == 1 ? "" : "s", n_bytes, n_bytes == 1 ? "" : "s",
           hl_tokenizer_kind(tokenizer), hl_tokenizer_size(tokenizer));
    if (encoding->n_tokens == 0)
        return;
    printf("\n");
    show_line(tokenizer, encoding, text);
    printf("\n%s%4s %7s  %-9s  ", colours.dim, "#", "id", "bytes");
    print_padded("piece", width);
    printf("  text%s\n", colours.plain);
    for (size_t i = 0; i < encoding->n_tokens; i++)
        show_row(tokenizer, encoding, i, text, width);
}

/* -------------------------------------------------------------------------- JSON */

static json_t *make_ids(const hl_encoding *encoding)
{
    json_t *ids = json_array();
    for (size_t i = 0; i < encoding->n_tokens; i++)
        json_array_append_new(ids, json_integer(encoding->ids[i]));
    return ids;
}

static json_t *make_pieces(const hl_tokenizer *tokenizer, const hl_encoding *encoding)
{
    json_t *pieces = json_array();
    for (size_t i = 0; i < encoding->n_tokens; i++) {
        size_t      n_bytes = 0;
        const char *piece   = hl_tokenizer_piece(tokenizer, encoding->ids[i], &n_bytes);
        json_array_append_new(pieces, hl_value_text(piece != NULL ? piece : "", n_bytes));
    }
    return pieces;
}

static json_t *make_offsets(const hl_encoding *encoding)
{
    json_t *offsets = json_array();
    for (size_t i = 0; i < encoding->n_tokens; i++)
        json_array_append_new(offsets, json_pack("[I,I]", (json_int_t)encoding->spans[i].begin,
                                                 (json_int_t)encoding->spans[i].end));
    return offsets;
}

hl_status hl_tokenize_print_object(const hl_tokenizer *tokenizer, const hl_encoding *encoding)
{
    json_t *object = json_object();
    int     failed = json_object_set_new(object, "ids", make_ids(encoding));

    failed |= json_object_set_new(object, "pieces", make_pieces(tokenizer, encoding));
    failed |= json_object_set_new(object, "offsets", make_offsets(encoding));
    if (failed == 0)
        failed = hl_put_json(object, 0) ? 0 : -1;
    printf("\n");
    json_decref(object);
    return failed == 0 ? HL_OK : HL_NO_MEMORY;
}

void hl_tokenize_print_ids(const hl_encoding *encoding)
{
    printf("[");
    for (size_t i = 0; i < encoding->n_tokens; i++)
        printf("%s%d", i > 0 ? ", " : "", encoding->ids[i]);
    printf("]\n");
}

bool hl_tokenize_print_string(const char *text, size_t n_bytes)
{
    json_t *string = hl_value_text(text, n_bytes);
    bool    good   = hl_put_json(string, JSON_ENCODE_ANY);

    printf("\n");
    json_decref(string);
    return good;
}
