/* cmd_tokenize.c - headlight tokenize: text to tokens and back.
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
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "headlight.h"
#include "input.h"
#include "options.h"
#include "screen.h"
#include "values.h"

typedef struct tokenize_request {
    hl_common    common;
    hl_arguments arguments; /* the model and, maybe, the text */
    const char  *tokenizer_path;
    const char  *text; /* NULL: standard input */
    bool         special;
    bool         plain;
    bool         decode;
} tokenize_request;

static int parse_request(tokenize_request *request, int argc, char **argv)
{
    const hl_option options[] = {
        { "special", 's', HL_OPTION_FLAG, &request->special, NULL,
          "add the special tokens that the model expects", 0, 0 },
        { "plain", 0, HL_OPTION_FLAG, &request->plain, NULL,
          "special tokens spelled out in the text are text", 0, 0 },
        { "decode", 'd', HL_OPTION_FLAG, &request->decode, NULL, "from ids to text", 0, 0 },
        { "tokenizer", 0, HL_OPTION_TEXT, &request->tokenizer_path, "PATH",
          "use this one instead of the model's own", 0, 0 },
        { 0 },
    };
    const hl_usage usage = {
        .command   = "tokenize",
        .arguments = "MODEL [TEXT]",
        .text =
            "Shows the tokens of a text: ids, pieces as the vocabulary spells them, and the\n"
            "bytes of the text that each stands for.  MODEL is a folder with a\n"
            "tokenizer.json or a vocab.txt, such a file itself, a .gguf file or a llama2.c\n"
            "tokenizer.bin.\n"
            "Without TEXT the text comes from standard input.\n"
            "\n"
            "With --json and TEXT, prints an object: ids, pieces, offsets.  With --json and no\n"
            "TEXT, reads one JSON string a line and prints one array of ids a line.  --decode\n"
            "goes the other way: arrays of ids in, text (or with --json, a JSON string) out.",
        .options = options,
    };
    int code = hl_options_parse(&request->arguments, &request->common, &usage, argc, argv);

    if (code != HL_OPTIONS_GO_ON)
        return code;
    if (request->arguments.count == 0)
        return hl_options_refuse(&usage, "no model given");
    if (request->arguments.count > 2)
        return hl_options_refuse(&usage, "one text at a time, got %d (forgot the quotes?)",
                                 request->arguments.count - 1);
    request->text = request->arguments.count == 2 ? request->arguments.items[1] : NULL;
    return HL_OPTIONS_GO_ON;
}

/* The exit status of a failed call; `line` is where, 0 for nowhere in particular. */
static int fail(hl_status status, size_t line)
{
    if (line > 0)
        hl_complain("tokenize", "line %zu: %s", line, hl_error_message());
    else
        hl_complain("tokenize", "%s", hl_explain(status));
    return hl_exit_for(status);
}

static int fail_line(size_t line, const char *what)
{
    if (line > 0)
        hl_complain("tokenize", "line %zu: %s", line, what);
    else
        hl_complain("tokenize", "%s", what);
    return HL_EXIT_INPUT;
}

static int out_of_memory(void)
{
    hl_complain("tokenize", "out of memory");
    return HL_EXIT_RESOURCES;
}

/* ------------------------------------------------------------------- in colour */

#define BLUE    "\033[38;5;16;48;5;153m"
#define ORANGE  "\033[38;5;16;48;5;222m"
#define SPECIAL "\033[1;38;5;16;48;5;183m"

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

/* ------------------------------------------------------------------- the table */

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

/* The text with its tokens in colour, and a table of them. */
static void show_tokens(const hl_tokenizer *tokenizer, const hl_encoding *encoding,
                        const char *text, size_t n_bytes)
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

/* ------------------------------------------------------------------------ JSON */

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

/* {"ids": [...], "pieces": [...], "offsets": [[begin, end], ...]} */
static hl_status print_object(const hl_tokenizer *tokenizer, const hl_encoding *encoding)
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

/* [1, 2, 3] */
static void print_ids(const hl_encoding *encoding)
{
    printf("[");
    for (size_t i = 0; i < encoding->n_tokens; i++)
        printf("%s%d", i > 0 ? ", " : "", encoding->ids[i]);
    printf("]\n");
}

/* "text", with what is not UTF-8 replaced; false when memory is out. */
static bool print_string(const char *text, size_t n_bytes)
{
    json_t *string = hl_value_text(text, n_bytes);
    bool    good   = hl_put_json(string, JSON_ENCODE_ANY);

    printf("\n");
    json_decref(string);
    return good;
}

/* -------------------------------------------------------------------- one text */

static int encode(hl_encoding **out, const tokenize_request *request, const hl_tokenizer *tokenizer,
                  const char *text, size_t n_bytes, size_t line)
{
    hl_encode_options options = { .add_special = request->special, .plain = request->plain };
    hl_status         status  = hl_tokenizer_encode(out, tokenizer, text, n_bytes, &options);

    return status == HL_OK ? HL_EXIT_OK : fail(status, line);
}

/* The text of the command line, or all of standard input. */
static int tokenize_text(const tokenize_request *request, const hl_tokenizer *tokenizer,
                         const char *text, size_t n_bytes)
{
    hl_encoding *encoding = NULL;
    int          code     = encode(&encoding, request, tokenizer, text, n_bytes, 0);

    if (code != HL_EXIT_OK)
        return code;
    if (request->common.json && print_object(tokenizer, encoding) != HL_OK)
        code = out_of_memory();
    else if (!request->common.json && !request->common.quiet)
        show_tokens(tokenizer, encoding, text, n_bytes);
    hl_encoding_free(encoding);
    return code;
}

static int tokenize_input(const tokenize_request *request, const hl_tokenizer *tokenizer)
{
    hl_input input = { 0 };
    int      code  = hl_input_read(&input, "-", "tokenize");

    if (code == HL_EXIT_OK)
        code = tokenize_text(request, tokenizer, input.bytes, input.n_bytes);
    hl_input_free(&input);
    return code;
}

/* ----------------------------------------------------------------------- lines */

/* One JSON string in, one array of ids out. */
static int encode_line(const tokenize_request *request, const hl_tokenizer *tokenizer,
                       const json_t *value, size_t line)
{
    hl_encoding *encoding = NULL;

    if (!json_is_string(value))
        return fail_line(line, "not a JSON string");
    int code = encode(&encoding, request, tokenizer, json_string_value(value),
                      json_string_length(value), line);
    if (code == HL_EXIT_OK)
        print_ids(encoding);
    hl_encoding_free(encoding);
    return code;
}

static bool is_id(const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) >= 0 &&
           json_integer_value(value) <= INT32_MAX;
}

/* The ids of a JSON array; a complaint if it is something else. */
static int read_ids(int32_t **out, const json_t *value, size_t line)
{
    size_t count = json_array_size(value);
    bool   good  = json_is_array(value);

    *out = NULL;
    for (size_t i = 0; i < count && good; i++)
        good = is_id(json_array_get(value, i));
    if (!good)
        return fail_line(line, "not an array of ids");
    *out = malloc((count > 0 ? count : 1) * sizeof **out);
    if (*out == NULL)
        return out_of_memory();
    for (size_t i = 0; i < count; i++)
        (*out)[i] = (int32_t)json_integer_value(json_array_get(value, i));
    return HL_EXIT_OK;
}

/* One array of ids in, text out. */
static int decode_line(const tokenize_request *request, const hl_tokenizer *tokenizer,
                       const json_t *value, size_t line)
{
    int32_t *ids     = NULL;
    char    *text    = NULL;
    size_t   n_bytes = 0;
    int      code    = read_ids(&ids, value, line);

    if (code != HL_EXIT_OK)
        return code;
    hl_status status =
        hl_tokenizer_decode(&text, &n_bytes, tokenizer, ids, json_array_size(value), NULL);
    free(ids);
    if (status != HL_OK)
        return fail(status, line);
    if (request->common.json) {
        code = print_string(text, n_bytes) ? HL_EXIT_OK : out_of_memory();
    } else if (!request->common.quiet) {
        hl_put_text(stdout, text, n_bytes);
        printf("\n");
    }
    hl_free(text);
    return code;
}

/* A line of JSON; `line` 0 is the command line. */
static int handle_json(const tokenize_request *request, const hl_tokenizer *tokenizer,
                       const char *text, size_t n_bytes, size_t line)
{
    char    place[32] = "the text";
    json_t *value     = NULL;

    if (line > 0)
        snprintf(place, sizeof place, "line %zu", line);
    hl_status status = hl_json_read(&value, text, n_bytes, place);
    if (status != HL_OK)
        return fail(status, 0); /* the message has the place */
    int code = request->decode ? decode_line(request, tokenizer, value, line)
                               : encode_line(request, tokenizer, value, line);
    json_decref(value);
    return code;
}

/* Each answer is flushed, so that another program may wait for it. */
static int handle_lines(const tokenize_request *request, const hl_tokenizer *tokenizer)
{
    hl_input line   = { 0 };
    size_t   number = 0;
    int      code   = HL_EXIT_OK;

    while (code == HL_EXIT_OK && (code = hl_input_read_line(&line, "tokenize")) == HL_EXIT_OK &&
           line.n_bytes > 0) {
        code = handle_json(request, tokenizer, line.bytes, line.n_bytes, ++number);
        if (fflush(stdout) != 0)
            break; /* main.c complains */
    }
    hl_input_free(&line);
    return code;
}

int hl_command_tokenize(int argc, char **argv)
{
    tokenize_request request = { 0 };
    int              code    = parse_request(&request, argc, argv);

    if (code != HL_OPTIONS_GO_ON)
        return code;
    const char *path =
        request.tokenizer_path != NULL ? request.tokenizer_path : request.arguments.items[0];
    hl_tokenizer *tokenizer = NULL;
    hl_status     status    = hl_tokenizer_open(&tokenizer, path);
    if (status != HL_OK)
        return fail(status, 0);

    if (request.decode && request.text != NULL)
        code = handle_json(&request, tokenizer, request.text, strlen(request.text), 0);
    else if (request.text != NULL)
        code = tokenize_text(&request, tokenizer, request.text, strlen(request.text));
    else if (request.decode || request.common.json)
        code = handle_lines(&request, tokenizer);
    else
        code = tokenize_input(&request, tokenizer);
    hl_tokenizer_close(tokenizer);
    return code;
}
