/* cmd_tokens.c - the two commands that show one prompt: headlight tokens, the attention between its
 * tokens, and headlight lens, what a model would predict after each layer. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "headlight.h"
#include "held.h"
#include "options.h"
#include "prompt.h"
#include "screen.h"
#include "shared_options.h"
#include "values.h"

/* ------------------------------------------------------------ the command line */

typedef struct hl_view_arguments {
    hl_prompt_source  source;
    hl_draw_arguments draw; /* output NULL: print to the terminal */
    const char       *zoom; /* the argument of --zoom */
    bool              beyond;
    /* The fields below are derived from the arguments. */
    hl_print_options print;
    int64_t          zoom_begin; /* both 0: all tokens */
    int64_t          zoom_end;
} hl_view_arguments;

/* clang-format off */
#define HL_VIEW_OPTIONS(a)                                                                         \
    HL_TEXT("output", 'o', &(a)->draw.output, "FILE",                                              \
            "figure to write: .svg, .png or .pdf (the terminal)"),                                 \
    HL_TEXT("zoom", 'z', &(a)->zoom, "A:B", "show only tokens A to B - 1"),                        \
    HL_TEXT("file", 'f', &(a)->source.file, "FILE", "file of the prompt; - is standard input"),    \
    HL_FLAG("chat", 'c', &(a)->source.chat,                                                        \
            "the prompt is a user's turn, in the model's format"),                                 \
    HL_TEXT("system", 0, &(a)->source.system, "TEXT", "with --chat, the system message"),          \
    HL_FLAG("ids", 0, &(a)->source.ids, "the prompt is token ids, as in '5 17 3'"),                \
    HL_TOKENIZER_OPTION(&(a)->source.tokenizer),                                                   \
    HL_FLAG("beyond", 0, &(a)->beyond, "allow more tokens than the model was trained with"),       \
    HL_LOOK_OPTIONS(&(a)->draw, "text for the caption"),                                           \
    HL_GATE_OPTIONS(&(a)->source.gates)
/* clang-format on */

/* Reads "A:B". */
static bool read_zoom(hl_view_arguments *arguments)
{
    long long begin = 0, end = 0;
    int       length = 0;

    if (sscanf(arguments->zoom, "%9lld:%9lld%n", &begin, &end, &length) != 2 ||
        arguments->zoom[length] != '\0' || begin < 0 || end <= begin)
        return false;
    arguments->zoom_begin = begin;
    arguments->zoom_end   = end;
    return true;
}

/* Call it after parsing. MODEL and PROMPT are borrowed from argv. */
static int finish_view(hl_view_arguments *arguments, const hl_usage *usage, const hl_common *common,
                       const hl_arguments *rest)
{
    hl_prompt_source *source = &arguments->source;

    if (rest->count < 1 || rest->count > 2)
        return hl_options_refuse(
            usage, "give MODEL and PROMPT; got %d argument%s (quote a prompt that has spaces)",
            rest->count, rest->count == 1 ? "" : "s");
    if (rest->count == 2 && source->file != NULL)
        return hl_options_refuse(usage, "PROMPT and --file cannot be combined");
    if (source->system != NULL && !source->chat)
        return hl_options_refuse(usage, "--system needs --chat");
    if (source->ids && source->chat)
        return hl_options_refuse(usage, "--ids and --chat cannot be combined");
    if (arguments->zoom != NULL && !read_zoom(arguments))
        return hl_options_refuse(usage, "--zoom: '%.20s' is not A:B with A below B",
                                 arguments->zoom);
    source->command  = usage->command;
    source->model    = rest->items[0];
    source->text     = rest->count == 2 ? rest->items[1] : NULL;
    source->quiet    = common->quiet;
    source->device   = common->device;
    arguments->print = (hl_print_options){ .width = hl_terminal_width(stdout),
                                           .depth = hl_terminal_depth(stdout),
                                           .theme = arguments->draw.how.theme };
    return HL_EXIT_OK;
}

/* --------------------------------------------------------------- views as JSON */

/* Views are written to standard output number by number: the JSON tree of a long prompt would take
 * gigabytes. */

/* Writes a JSON string. */
static hl_status put_text(const char *text)
{
    HL_HELD(json_decref) json_t *string = json_string(text);

    return hl_put_json(string, JSON_ENCODE_ANY) ? HL_OK : HL_NO_MEMORY;
}

/* A float has about seven significant digits. */
static void put_number(double number)
{
    if (isfinite(number))
        printf("%.7g", number);
    else
        fputs("null", stdout);
}

static void put_numbers(const float *numbers, int64_t n)
{
    fputs("[", stdout);
    for (int64_t i = 0; i < n; i++) {
        if (i > 0)
            fputs(", ", stdout);
        put_number((double)numbers[i]);
    }
    fputs("]", stdout);
}

static hl_status put_tokens(const hl_view_token *tokens, int64_t n)
{
    fputs("  \"tokens\": [\n", stdout);
    for (int64_t i = 0; i < n; i++) {
        printf("    {\"id\": %lld, \"text\": ", (long long)tokens[i].id);
        HL_NEED(put_text(tokens[i].text));
        printf("%s}%s\n", tokens[i].is_marked ? ", \"marked\": true" : "", i + 1 < n ? "," : "");
    }
    fputs("  ]", stdout);
    return HL_OK;
}

static hl_status put_map(const hl_token_view *view, const hl_token_map *map)
{
    int64_t n = view->n_tokens;

    fputs("    {\"name\": ", stdout);
    HL_NEED(put_text(map->name));
    printf(", \"heads\": %lld,\n     \"entropy\": ", (long long)map->n_heads);
    put_numbers(map->entropy, n);
    fputs(",\n     \"attention\": [\n", stdout);
    for (int64_t row = 0; row < n; row++) {
        fputs("       ", stdout);
        put_numbers(map->attention + row * n, view->is_causal ? row + 1 : n);
        fputs(row + 1 < n ? ",\n" : "]}", stdout);
    }
    return HL_OK;
}

static hl_status put_token_view(const hl_token_view *view)
{
    fputs("{\n  \"family\": ", stdout);
    HL_NEED(put_text(view->family));
    printf(",\n  \"layers\": %lld,\n  \"heads\": %lld,\n  \"causal\": %s,\n",
           (long long)view->n_layers, (long long)view->n_heads, view->is_causal ? "true" : "false");
    HL_NEED(put_tokens(view->tokens, view->n_tokens));
    fputs(",\n  \"maps\": [\n", stdout);
    for (int64_t i = 0; i < view->n_maps; i++) {
        HL_NEED(put_map(view, &view->maps[i]));
        fputs(i + 1 < view->n_maps ? ",\n" : "\n", stdout);
    }
    fputs("  ]\n}\n", stdout);
    return HL_OK;
}

/* Writes one layer: ids, texts and entropies. */
static hl_status put_layer(const hl_lens_view *view, int64_t row)
{
    int64_t              n       = view->n_tokens;
    const hl_view_token *guesses = view->guesses + row * n;

    if (row == 0)
        fputs("    {\"layer\": null,\n     \"top\": [", stdout); /* row 0 is that of the
                                                                  * embeddings */
    else
        printf("    {\"layer\": %lld,\n     \"top\": [", (long long)(row - 1));
    for (int64_t i = 0; i < n; i++)
        printf("%s%lld", i > 0 ? ", " : "", (long long)guesses[i].id);
    fputs("],\n     \"text\": [", stdout);
    for (int64_t i = 0; i < n; i++) {
        fputs(i > 0 ? ", " : "", stdout);
        HL_NEED(put_text(guesses[i].text));
    }
    fputs("],\n     \"entropy\": ", stdout);
    put_numbers(view->entropy + row * n, n);
    fputs("}", stdout);
    return HL_OK;
}

static hl_status put_lens_view(const hl_lens_view *view)
{
    fputs("{\n  \"family\": ", stdout);
    HL_NEED(put_text(view->family));
    printf(",\n  \"layers\": %lld,\n  \"vocabulary\": %lld,\n  \"first\": %lld,\n",
           (long long)view->n_layers, (long long)view->d_vocab, (long long)view->first);
    HL_NEED(put_tokens(view->tokens, view->n_tokens));
    fputs(",\n  \"lens\": [\n", stdout);
    for (int64_t row = 0; row <= view->n_layers; row++) {
        HL_NEED(put_layer(view, row));
        fputs(row < view->n_layers ? ",\n" : "\n", stdout);
    }
    fputs("  ]\n}\n", stdout);
    return HL_OK;
}

/* ------------------------------------------------------------------ tokens */

typedef struct tokens_command {
    hl_common         common;
    hl_view_arguments view;
    int64_t           layer; /* -1: not given */
    int64_t           head;
    const char       *heads;
    const char       *insets;
    hl_option_list    notes;

    hl_head_choices chosen; /* the heads that the options above name */
    hl_head_choices inset;
    hl_note         parsed[HL_MAX_OPTION_LIST];
    hl_token_figure figure;
} tokens_command;

static int read_heads(hl_head_choices *out, const char *name, const char *text,
                      const hl_usage *usage)
{
    const char *bad = text;

    if (text == NULL || hl_heads_parse(out, text, &bad))
        return HL_EXIT_OK;
    return hl_options_refuse(usage, "--%s: '%.20s' is not a list of heads such as L3H1,L5H0", name,
                             bad);
}

static int choose_heads(tokens_command *c, const hl_usage *usage)
{
    if (c->heads != NULL && (c->layer >= 0 || c->head >= 0))
        return hl_options_refuse(usage, "--heads cannot be combined with --layer or --head");
    if (c->head >= 0 && c->layer < 0)
        return hl_options_refuse(usage, "--head needs --layer");
    if (c->layer >= 0) {
        c->chosen.items[0] = (hl_head){ c->layer, c->head };
        c->chosen.count    = 1;
    }
    HL_PASS(read_heads(&c->chosen, "heads", c->heads, usage));
    return read_heads(&c->inset, "inset", c->insets, usage);
}

/* Reads notes "TEXT@row,column", which are cut in place at the last @. */
static int read_notes(tokens_command *c, const hl_usage *usage)
{
    for (int i = 0; i < c->notes.count; i++) {
        char     *text = (char *)c->notes.items[i]; /* points into argv, which may be changed */
        char     *at   = strrchr(text, '@');
        long long row = 0, column = 0;
        int       length = 0;

        if (at == NULL || at == text || sscanf(at, "@%9lld,%9lld%n", &row, &column, &length) != 2 ||
            at[length] != '\0' || row < 0 || column < 0)
            return hl_options_refuse(usage, "--note: '%.40s' is not TEXT@ROW,COLUMN", text);
        *at          = '\0';
        c->parsed[i] = (hl_note){ text, row, column };
    }
    c->figure.notes   = c->parsed;
    c->figure.n_notes = c->notes.count;
    return HL_EXIT_OK;
}

static int check(tokens_command *c, const hl_arguments *rest, const hl_usage *usage)
{
    HL_PASS(finish_view(&c->view, usage, &c->common, rest));
    HL_PASS(choose_heads(c, usage));
    HL_PASS(read_notes(c, usage));
    c->figure.draw       = c->view.draw.how;
    c->figure.zoom_begin = c->view.zoom_begin;
    c->figure.zoom_end   = c->view.zoom_end;
    return HL_EXIT_OK;
}

static hl_status look(const tokens_command *c, const hl_opened_prompt *opened)
{
    HL_HELD(hl_free) char                     *text = NULL;
    HL_HELD(hl_token_view_free) hl_token_view *view = NULL;

    hl_prompt             prompt  = hl_opened_prompt_view(opened);
    hl_token_view_options options = { .heads      = c->chosen.items,
                                      .n_heads    = c->chosen.count,
                                      .insets     = c->inset.items,
                                      .n_insets   = c->inset.count,
                                      .beyond_ctx = c->view.beyond,
                                      .n_threads  = c->common.n_threads };
    const char           *output  = c->view.draw.output;

    HL_NEED(hl_token_view_new(&view, opened->model, &prompt, &options));
    hl_draw_listen("tokens");
    if (output != NULL)
        HL_NEED(hl_draw_tokens(view, output, &c->figure));
    if (c->common.json)
        return put_token_view(view);
    if (output == NULL) {
        HL_NEED(hl_print_tokens(&text, view, &c->figure, &c->view.print));
        fputs(text, stdout);
    } else if (!c->common.quiet) {
        printf("%s: %s, %lld token%s\n", hl_shown(output), view->maps[0].name,
               (long long)view->n_tokens, view->n_tokens == 1 ? "" : "s");
    }
    return HL_OK;
}

static int parse(tokens_command *c, int argc, char **argv)
{
    const hl_option options[] = {
        HL_INT("layer", 'l', &c->layer, "N", "one layer: the mean of its heads", 0, 1 << 20),
        HL_INT("head", 0, &c->head, "N", "one head of that layer", 0, 1 << 20),
        HL_TEXT("heads", 0, &c->heads, "L0H1,L3", "the mean of these heads"),
        HL_TEXT("inset", 0, &c->insets, "L3H1,L5H0", "add small maps of these heads below"),
        HL_LIST("note", 0, &c->notes, "TEXT@ROW,COL", "add a note with an arrow (repeatable)"),
        HL_ENUM("scale", 0, &c->figure.scale, "root|linear", "how color follows attention (root)"),
        HL_VIEW_OPTIONS(&c->view),
        { 0 },
    };
    hl_arguments   rest;
    const hl_usage usage = {
        .command   = "tokens",
        .arguments = "MODEL [PROMPT]",
        .text =
            "Shows where each token of a prompt looks, as an attention map: of all heads in the\n"
            "mean, or of the heads named.  Beside each row is its entropy.  --zoom adds an\n"
            "enlarged part.  Prints to the terminal, or draws with -o.  Without PROMPT, the\n"
            "prompt is read from --file or standard input.  --json prints the numbers.",
        .options = options,
    };

    HL_PASS(hl_options_parse(&rest, &c->common, &usage, argc, argv));
    return check(c, &rest, &usage);
}

int hl_command_tokens(int argc, char **argv)
{
    tokens_command                                   c      = { .layer = -1, .head = -1 };
    HL_KEPT(hl_opened_prompt_close) hl_opened_prompt opened = { 0 };

    HL_PASS(parse(&c, argc, argv));
    HL_PASS(hl_opened_prompt_open(&opened, &c.view.source));
    return hl_finish("tokens", look(&c, &opened));
}

/* -------------------------------------------------------------------- lens */

typedef struct lens_command {
    hl_common         common;
    hl_view_arguments view;
} lens_command;

static hl_status look_through(const lens_command *c, const hl_opened_prompt *opened)
{
    HL_HELD(hl_free) char                   *text = NULL;
    HL_HELD(hl_lens_view_free) hl_lens_view *view = NULL;

    hl_prompt            prompt  = hl_opened_prompt_view(opened);
    hl_lens_view_options options = { .begin      = c->view.zoom_begin,
                                     .end        = c->view.zoom_end,
                                     .beyond_ctx = c->view.beyond,
                                     .n_threads  = c->common.n_threads };
    const char          *output  = c->view.draw.output;

    HL_NEED(hl_lens_view_new(&view, opened->model, &prompt, &options));
    hl_draw_listen("lens");
    if (output != NULL)
        HL_NEED(hl_draw_lens(view, output, &c->view.draw.how));
    if (c->common.json)
        return put_lens_view(view);
    if (output == NULL) {
        HL_NEED(hl_print_lens(&text, view, &c->view.print));
        fputs(text, stdout);
    } else if (!c->common.quiet) {
        printf("%s: %lld layers, %lld token%s\n", hl_shown(output), (long long)view->n_layers,
               (long long)view->n_tokens, view->n_tokens == 1 ? "" : "s");
    }
    return HL_OK;
}

int hl_command_lens(int argc, char **argv)
{
    lens_command    c         = { 0 };
    const hl_option options[] = { HL_VIEW_OPTIONS(&c.view), { 0 } };
    hl_arguments    rest;
    const hl_usage  usage = {
         .command   = "lens",
         .arguments = "MODEL [PROMPT]",
         .text =
             "Shows what a model would predict after each layer (logit lens): the residual stream\n"
              "goes through the final norm and the output head.  Each cell has the most likely\n"
              "next token; its color is the entropy over the vocabulary.  Prints to the terminal,\n"
              "or draws with -o.  Without PROMPT, the prompt is read from --file or standard\n"
              "input.  --json prints the numbers.",
         .options = options,
    };
    HL_KEPT(hl_opened_prompt_close) hl_opened_prompt opened = { 0 };

    HL_PASS(hl_options_parse(&rest, &c.common, &usage, argc, argv));
    HL_PASS(finish_view(&c.view, &usage, &c.common, &rest));
    HL_PASS(hl_opened_prompt_open(&opened, &c.view.source));
    return hl_finish("lens", look_through(&c, &opened));
}
