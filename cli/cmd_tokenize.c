/* cmd_tokenize.c - headlight tokenize: text to tokens and back.
 *
 *     4 tokens, 12 bytes (BPE, 1024 pieces)
 *
 *     Hello·world!
 *
 *        #     id  bytes    piece        text
 *        0     41  0-1      H            H
 *
 * The tokens of the text have backgrounds that alternate between blue and orange, which people with
 * red-green color blindness distinguish; black is readable on both.  Special tokens are violet
 * and bold.  Without color, tokens are separated by bars (│). */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "headlight.h"
#include "held.h"
#include "input.h"
#include "options.h"
#include "screen.h"
#include "shared_options.h"
#include "values.h"

typedef struct tokenize_request {
    hl_common    common;
    hl_arguments arguments; /* the model and, optionally, the text */
    const char  *tokenizer_path;
    const char  *text; /* NULL: standard input */
    bool         special;
    bool         plain;
    bool         decode;
    bool         chat;
} tokenize_request;

static int parse_request(tokenize_request *request, int argc, char **argv)
{
    const hl_option options[] = {
        HL_FLAG("special", 's', &request->special, "add the special tokens that the model expects"),
        HL_FLAG("plain", 0, &request->plain,
                "treat special tokens spelled out in TEXT as plain text"),
        HL_FLAG("decode", 'd', &request->decode, "convert ids to text"),
        HL_FLAG("chat", 0, &request->chat,
                "TEXT is a JSON array of messages, or an object with messages and the chat "
                "template's variables: show the rendered chat"),
        HL_TOKENIZER_OPTION(&request->tokenizer_path),
        { 0 },
    };
    const hl_usage usage = {
        .command   = "tokenize",
        .arguments = "MODEL [TEXT]",
        .text =
            "Shows the tokens of a text: ids, pieces as the vocabulary spells them, and the\n"
            "bytes of the text that each stands for.  MODEL is a folder with a tokenizer.json\n"
            "or a vocab.txt, such a file itself, a .gguf file or a llama2.c tokenizer.bin.\n"
            "Without TEXT, the text is read from standard input.\n"
            "\n"
            "--json with TEXT prints one object: ids, pieces, offsets.  --json without TEXT reads\n"
            "one JSON string per line and prints one array of ids per line.  --decode goes the\n"
            "other way: arrays of ids in, text out (JSON strings with --json).\n"
            "\n"
            "--chat runs the model's chat template on messages as OpenAI's clients send them, and\n"
            "shows the tokens of the rendered text with the roles that they come from.",
        .options = options,
    };
    HL_PASS(hl_options_parse(&request->arguments, &request->common, &usage, argc, argv));
    if (request->arguments.count == 0)
        return hl_options_refuse(&usage, "no MODEL given");
    if (request->arguments.count > 2)
        return hl_options_refuse(&usage,
                                 "give one TEXT; got %d arguments (quote a text that has spaces)",
                                 request->arguments.count - 1);
    if (request->chat && request->decode)
        return hl_options_refuse(&usage, "--chat and --decode cannot be combined");
    request->text = request->arguments.count == 2 ? request->arguments.items[1] : NULL;
    return HL_EXIT_OK;
}

/* Returns the exit status after a message; `line` is its place, 0 for none. */
static int fail_line(int code, size_t line, const char *what)
{
    if (line > 0)
        return hl_give_up(code, "tokenize", "line %zu: %s", line, what);
    return hl_give_up(code, "tokenize", "%s", what);
}

static int fail(hl_status status, size_t line)
{
    return fail_line(hl_exit_for(status), line, line > 0 ? hl_error_message() : hl_explain(status));
}

/* ------------------------------------------------------------------- in color */

#define BLUE    "\033[38;5;16;48;5;153m"
#define ORANGE  "\033[38;5;16;48;5;222m"
#define SPECIAL "\033[1;38;5;16;48;5;183m"

/* Returns a printable piece of the vocabulary; the caller frees it. */
static char *shown_piece(const hl_tokenizer *tokenizer, int64_t id)
{
    size_t      n_bytes = 0;
    const char *piece   = hl_tokenizer_piece(tokenizer, id, &n_bytes);

    return hl_printable_text(piece != NULL ? piece : "", n_bytes);
}

/* Returns the text that a token is shown as.  Tokens that share a character show it once, the first
 * time; tokens without text show their piece.  The caller frees it. */
static char *shown_text(const hl_tokenizer *tokenizer, const hl_encoding *encoding, size_t index,
                        const char *text)
{
    hl_span span   = encoding->spans[index];
    size_t  before = index > 0 ? encoding->spans[index - 1].end : 0;

    if (span.begin == span.end)
        return shown_piece(tokenizer, encoding->ids[index]);
    if (span.begin < before)
        span.begin = before < span.end ? before : span.end;
    return hl_printable_text(text + span.begin, span.end - span.begin);
}

static const char *background(hl_token_type type, size_t index)
{
    if (type == HL_TOKEN_SPECIAL)
        return SPECIAL;
    return index % 2 == 0 ? BLUE : ORANGE;
}

static void show_line(const hl_tokenizer *tokenizer, const hl_encoding *encoding, const char *text)
{
    hl_colors colors = hl_terminal_colors(stdout);
    bool      color  = colors.plain[0] != '\0';

    for (size_t i = 0; i < encoding->n_tokens; i++) {
        HL_HELD(free) char *text_of = shown_text(tokenizer, encoding, i, text);
        const char         *shown   = text_of != NULL ? text_of : "";

        if (color)
            printf("%s%s%s", background(encoding->types[i], i), shown, colors.plain);
        else
            printf("%s%s", i > 0 ? "│" : "", shown);
        if (strstr(shown, "↵") != NULL) /* a line of the text ends here, so the output's line ends
                                         * too */
            printf("\n");
    }
    printf("\n");
}

/* ------------------------------------------------------------------- the table */

static const char *const type_notes[] = { [HL_TOKEN_UNKNOWN] = "unknown",
                                          [HL_TOKEN_SPECIAL] = "special",
                                          [HL_TOKEN_ADDED]   = "added",
                                          [HL_TOKEN_BYTE]    = "byte" };

static const char *const role_names[] = { [HL_ROLE_TEMPLATE]  = "template",
                                          [HL_ROLE_SYSTEM]    = "system",
                                          [HL_ROLE_USER]      = "user",
                                          [HL_ROLE_ASSISTANT] = "assistant",
                                          [HL_ROLE_TOOL]      = "tool" };

/* Pads by characters; printf pads by bytes. */
static void print_padded(const char *text, size_t width)
{
    size_t seen = hl_printable_width(text);
    printf("%s%*s", text, (int)(seen < width ? width - seen : 0), "");
}

static size_t widest_piece(const hl_tokenizer *tokenizer, const hl_encoding *encoding)
{
    size_t widest = strlen("piece");

    for (size_t i = 0; i < encoding->n_tokens; i++) {
        HL_HELD(free) char *shown = shown_piece(tokenizer, encoding->ids[i]);
        size_t              width = shown != NULL ? hl_printable_width(shown) : 0;

        widest = width > widest && width <= 32 ? width : widest;
    }
    return widest;
}

static void show_row(const hl_tokenizer *tokenizer, const hl_encoding *encoding, size_t index,
                     const char *text, size_t piece_width)
{
    hl_span             span      = encoding->spans[index];
    hl_token_type       type      = encoding->types[index];
    HL_HELD(free) char *piece     = shown_piece(tokenizer, encoding->ids[index]);
    HL_HELD(free) char *source    = hl_printable_text(text + span.begin, span.end - span.begin);
    char                place[48] = "-";

    if (span.begin < span.end)
        snprintf(place, sizeof place, "%zu-%zu", span.begin, span.end);
    printf("%4zu %7lld  %-9s  ", index, (long long)encoding->ids[index], place);
    print_padded(piece != NULL ? piece : "", piece_width);
    printf("  %s", source != NULL ? source : "");
    if (type != HL_TOKEN_NORMAL)
        printf("%s(%s)", span.begin < span.end ? "  " : "", type_notes[type]);
    if (encoding->roles != NULL && encoding->roles[index] != HL_ROLE_TEMPLATE)
        printf("  [%s]", role_names[encoding->roles[index]]);
    printf("\n");
}

/* Prints the text with its tokens in color, and a table of the tokens. */
static void show_tokens(const hl_tokenizer *tokenizer, const hl_encoding *encoding,
                        const char *text, size_t n_bytes)
{
    hl_colors colors = hl_terminal_colors(stdout);
    size_t    width  = widest_piece(tokenizer, encoding);

    printf("%zu token%s, %zu byte%s (%s, %zu pieces)\n", encoding->n_tokens,
           encoding->n_tokens == 1 ? "" : "s", n_bytes, n_bytes == 1 ? "" : "s",
           hl_tokenizer_kind(tokenizer), hl_tokenizer_size(tokenizer));
    if (encoding->n_tokens == 0)
        return;
    printf("\n");
    show_line(tokenizer, encoding, text);
    printf("\n%s%4s %7s  %-9s  ", colors.dim, "#", "id", "bytes");
    print_padded("piece", width);
    printf("  text%s\n", colors.plain);
    for (size_t i = 0; i < encoding->n_tokens; i++)
        show_row(tokenizer, encoding, i, text, width);
}

/* ------------------------------------------------------------------------ JSON */

/* Prints {"ids": [...], "pieces": [...], "offsets": [[begin, end], ...]}, of a chat also its text
 * and the roles. */
static void print_object(const hl_tokenizer *tokenizer, const hl_encoding *encoding,
                         const char *text)
{
    json_t *roles = encoding->roles != NULL ? json_array() : NULL;

    json_t *ids = json_array(), *pieces = json_array(), *offsets = json_array();

    for (size_t i = 0; i < encoding->n_tokens; i++) {
        size_t      n_bytes = 0;
        const char *piece   = hl_tokenizer_piece(tokenizer, encoding->ids[i], &n_bytes);
        hl_span     span    = encoding->spans[i];

        json_array_append_new(ids, json_integer(encoding->ids[i]));
        json_array_append_new(pieces, hl_value_text(piece != NULL ? piece : "", n_bytes));
        json_array_append_new(offsets,
                              json_pack("[I,I]", (json_int_t)span.begin, (json_int_t)span.end));
    }
    for (size_t i = 0; roles != NULL && i < encoding->n_tokens; i++)
        json_array_append_new(roles, json_string(role_names[encoding->roles[i]]));
    json_t *root = HL_OBJECT(HL_IS("ids", ids), HL_IS("pieces", pieces), HL_IS("offsets", offsets));
    if (roles != NULL) {
        json_object_set_new(root, "roles", roles);
        json_object_set_new(root, "text", hl_value_name(text));
    }
    hl_print_json(root, 0);
}

/* Prints ids as [1, 2, 3]. */
static void print_ids(const hl_encoding *encoding)
{
    printf("[");
    for (size_t i = 0; i < encoding->n_tokens; i++)
        printf("%s%lld", i > 0 ? ", " : "", (long long)encoding->ids[i]);
    printf("]\n");
}

/* -------------------------------------------------------------------- one text */

static int encode(hl_encoding **out, const tokenize_request *request, const hl_tokenizer *tokenizer,
                  const char *text, size_t n_bytes, size_t line)
{
    hl_encode_options options = { .add_special = request->special, .plain = request->plain };
    hl_status         status  = hl_tokenizer_encode(out, tokenizer, text, n_bytes, &options);

    return status == HL_OK ? HL_EXIT_OK : fail(status, line);
}

/* Renders messages, or {"messages": [...], "add_generation_prompt": false, "tools": [...], ...}. */
static hl_status render_chat(hl_chat **out, const hl_tokenizer *tokenizer, const char *text,
                             size_t n_bytes)
{
    HL_HELD(json_decref) json_t *root = NULL;

    HL_NEED(hl_value_read(&root, text, n_bytes, "the chat"));
    if (!json_is_object(root))
        return hl_chat_render_json(out, tokenizer, text, n_bytes, NULL);
    HL_HELD(free)
    char *messages  = json_dumps(json_object_get(root, "messages"), JSON_COMPACT | JSON_ENCODE_ANY);
    bool  no_prompt = json_is_false(json_object_get(root, "add_generation_prompt"));
    json_object_del(root, "messages");
    json_object_del(root, "add_generation_prompt");
    HL_HELD(free) char *variables = json_dumps(root, JSON_COMPACT);
    hl_chat_options     options   = { .no_prompt = no_prompt, .variables = variables };
    const char         *list      = messages != NULL ? messages : "null";
    return hl_chat_render_json(out, tokenizer, list, strlen(list), &options);
}

/* Tokenizes the text of the command line, or all of standard input. */
static int tokenize_text(const tokenize_request *request, const hl_tokenizer *tokenizer,
                         const char *text, size_t n_bytes)
{
    HL_HELD(hl_encoding_free) hl_encoding *encoding = NULL;

    HL_HELD(hl_chat_free) hl_chat *chat = NULL;

    if (request->chat) {
        HL_CALL("tokenize", render_chat(&chat, tokenizer, text, n_bytes));
        HL_CALL("tokenize", hl_chat_encode(&encoding, tokenizer, chat, NULL));
        text    = chat->text;
        n_bytes = chat->n_bytes;
    } else {
        HL_PASS(encode(&encoding, request, tokenizer, text, n_bytes, 0));
    }
    if (request->common.json)
        print_object(tokenizer, encoding, text);
    else if (!request->common.quiet)
        show_tokens(tokenizer, encoding, text, n_bytes);
    return HL_EXIT_OK;
}

static int tokenize_input(const tokenize_request *request, const hl_tokenizer *tokenizer)
{
    HL_KEPT(hl_input_free) hl_input input = { 0 };

    HL_PASS(hl_input_read(&input, "-", "tokenize"));
    return tokenize_text(request, tokenizer, input.bytes, input.n_bytes);
}

/* ----------------------------------------------------------------------- lines */

/* Encodes one JSON string; prints one array of ids. */
static int encode_line(const tokenize_request *request, const hl_tokenizer *tokenizer,
                       const json_t *value, size_t line)
{
    HL_HELD(hl_encoding_free) hl_encoding *encoding = NULL;

    if (!json_is_string(value))
        return fail_line(HL_EXIT_INPUT, line, "not a JSON string");
    HL_PASS(encode(&encoding, request, tokenizer, json_string_value(value),
                   json_string_length(value), line));
    print_ids(encoding);
    return HL_EXIT_OK;
}

static bool is_id(const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) >= 0 &&
           json_integer_value(value) <= INT32_MAX;
}

/* Reads the ids of a JSON array; prints a message if it is something else. */
static int read_ids(int64_t **out, const json_t *value, size_t line)
{
    size_t count = json_array_size(value);
    bool   good  = json_is_array(value);

    *out = NULL;
    for (size_t i = 0; i < count && good; i++)
        good = is_id(json_array_get(value, i));
    if (!good)
        return fail_line(HL_EXIT_INPUT, line, "not an array of ids");
    *out = malloc((count > 0 ? count : 1) * sizeof **out);
    if (*out == NULL)
        return hl_finish("tokenize", HL_NO_MEMORY);
    for (size_t i = 0; i < count; i++)
        (*out)[i] = json_integer_value(json_array_get(value, i));
    return HL_EXIT_OK;
}

/* Decodes one array of ids; prints the text. */
static int decode_line(const tokenize_request *request, const hl_tokenizer *tokenizer,
                       const json_t *value, size_t line)
{
    HL_HELD(free) int64_t *ids     = NULL;
    HL_HELD(hl_free) char *text    = NULL;
    size_t                 n_bytes = 0;

    HL_PASS(read_ids(&ids, value, line));
    hl_status status =
        hl_tokenizer_decode(&text, &n_bytes, tokenizer, ids, json_array_size(value), NULL);
    if (status != HL_OK)
        return fail(status, line);
    if (request->common.json)
        return hl_print_json(hl_value_text(text, n_bytes), JSON_ENCODE_ANY);
    if (!request->common.quiet) {
        hl_put_text(stdout, text, n_bytes);
        printf("\n");
    }
    return HL_EXIT_OK;
}

/* Processes a line of JSON; `line` 0 is the command line. */
static int handle_json(const tokenize_request *request, const hl_tokenizer *tokenizer,
                       const char *text, size_t n_bytes, size_t line)
{
    char                         place[32] = "the text";
    HL_HELD(json_decref) json_t *value     = NULL;

    if (line > 0)
        snprintf(place, sizeof place, "line %zu", line);
    HL_CALL("tokenize",
            hl_value_read(&value, text, n_bytes, place)); /* the message contains the place */
    return request->decode ? decode_line(request, tokenizer, value, line)
                           : encode_line(request, tokenizer, value, line);
}

/* Each answer is flushed, since another program may wait for it. */
static int handle_lines(const tokenize_request *request, const hl_tokenizer *tokenizer)
{
    hl_input line   = { 0 };
    size_t   number = 0;
    int      code   = HL_EXIT_OK;

    while (code == HL_EXIT_OK && (code = hl_input_read_line(&line, "tokenize")) == HL_EXIT_OK &&
           line.n_bytes > 0) {
        code = handle_json(request, tokenizer, line.bytes, line.n_bytes, ++number);
        if (fflush(stdout) != 0)
            break; /* main.c reports a failure of standard output */
    }
    hl_input_free(&line);
    return code;
}

int hl_command_tokenize(int argc, char **argv)
{
    tokenize_request                          request   = { 0 };
    HL_HELD(hl_tokenizer_close) hl_tokenizer *tokenizer = NULL;

    HL_PASS(parse_request(&request, argc, argv));
    HL_CALL("tokenize", hl_tokenizer_open(&tokenizer, request.tokenizer_path != NULL
                                                          ? request.tokenizer_path
                                                          : request.arguments.items[0]));
    if (request.decode && request.text != NULL)
        return handle_json(&request, tokenizer, request.text, strlen(request.text), 0);
    if (request.text != NULL)
        return tokenize_text(&request, tokenizer, request.text, strlen(request.text));
    if (request.decode || (request.common.json && !request.chat))
        return handle_lines(&request, tokenizer);
    return tokenize_input(&request, tokenizer);
}
