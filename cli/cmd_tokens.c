/* cmd_tokens.c - headlight tokens: which token of a prompt looks at which. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "headlight.h"
#include "heads.h"
#include "options.h"
#include "prompt.h"
#include "shade.h"
#include "view_json.h"

typedef struct tokens_command {
    hl_common        common;
    hl_prompt_source source;
    int64_t          layer; /* -1: not given */
    int64_t          head;
    const char      *heads;
    const char      *insets;
    const char      *zoom;
    hl_option_list   notes;
    const char      *scale;
    const char      *output; /* NULL: the terminal */
    const char      *theme;
    const char      *title;
    const char      *caption;
    const char      *colour;
    double           width;
    double           dpi;
    bool             beyond;

    hl_head_list    chosen; /* what the above came to */
    hl_head_list    inset;
    hl_note         parsed[HL_MAX_OPTION_LIST];
    hl_token_figure figure;
} tokens_command;

/* ------------------------------------------------------------------ the command line */

static int read_heads(hl_head_list *out, const char *name, const char *text, const hl_usage *usage)
{
    const char *bad = text;

    if (text == NULL || hl_heads_parse(out, text, &bad))
        return HL_OPTIONS_GO_ON;
    return hl_options_refuse(usage, "--%s: wanted heads like L3H1,L5H0, not '%.20s'", name, bad);
}

static int choose_heads(tokens_command *c, const hl_usage *usage)
{
    if (c->heads != NULL && (c->layer >= 0 || c->head >= 0))
        return hl_options_refuse(usage, "--heads excludes --layer and --head");
    if (c->head >= 0 && c->layer < 0)
        return hl_options_refuse(usage, "--head needs --layer");
    if (c->layer >= 0) {
        c->chosen.items[0] = (hl_head_choice){ c->layer, c->head };
        c->chosen.count    = 1;
    }
    int code = read_heads(&c->chosen, "heads", c->heads, usage);
    return code == HL_OPTIONS_GO_ON ? read_heads(&c->inset, "inset", c->insets, usage) : code;
}

static int read_zoom(tokens_command *c, const hl_usage *usage)
{
    long long begin = 0, end = 0;
    int       length = 0;

    if (c->zoom == NULL)
        return HL_OPTIONS_GO_ON;
    if (sscanf(c->zoom, "%9lld:%9lld%n", &begin, &end, &length) != 2 || c->zoom[length] != '\0' ||
        begin < 0 || end <= begin)
        return hl_options_refuse(usage, "--zoom: wanted A:B with A below B, not '%.20s'", c->zoom);
    c->figure.zoom_begin = begin;
    c->figure.zoom_end   = end;
    return HL_OPTIONS_GO_ON;
}

/* "TEXT@row,column", cut in place at the last @. */
static int read_notes(tokens_command *c, const hl_usage *usage)
{
    for (int i = 0; i < c->notes.count; i++) {
        char     *text = (char *)c->notes.items[i]; /* argv's, which is ours to change */
        char     *at   = strrchr(text, '@');
        long long row = 0, column = 0;
        int       length = 0;

        if (at == NULL || at == text || sscanf(at, "@%9lld,%9lld%n", &row, &column, &length) != 2 ||
            at[length] != '\0' || row < 0 || column < 0)
            return hl_options_refuse(usage, "--note: wanted TEXT@row,column, not '%.40s'", text);
        *at          = '\0';
        c->parsed[i] = (hl_note){ text, row, column };
    }
    c->figure.notes   = c->parsed;
    c->figure.n_notes = c->notes.count;
    return HL_OPTIONS_GO_ON;
}

static int check(tokens_command *c, const hl_arguments *rest, const hl_usage *usage)
{
    if (rest->count < 1 || rest->count > 2)
        return hl_options_refuse(usage, "wanted MODEL and PROMPT, got %d argument%s (quotes?)",
                                 rest->count, rest->count == 1 ? "" : "s");
    if (rest->count == 2 && c->source.file != NULL)
        return hl_options_refuse(usage, "a prompt and --file exclude each other");
    if (c->source.system != NULL && !c->source.chat)
        return hl_options_refuse(usage, "--system needs --chat");
    if (c->source.ids && c->source.chat)
        return hl_options_refuse(usage, "--ids and --chat exclude each other");
    c->source.model = rest->items[0];
    c->source.text  = rest->count == 2 ? rest->items[1] : NULL;
    c->source.quiet = c->common.quiet;
    c->figure.draw  = (hl_draw_options){
         .title   = c->title,
         .caption = c->caption,
         .theme   = strcmp(c->theme, "dark") == 0 ? HL_THEME_DARK : HL_THEME_LIGHT,
         .width   = c->width,
         .dpi     = c->dpi,
    };
    c->figure.scale = strcmp(c->scale, "linear") == 0 ? HL_ATTENTION_LINEAR : HL_ATTENTION_ROOT;
    int code        = choose_heads(c, usage);
    if (code == HL_OPTIONS_GO_ON)
        code = read_zoom(c, usage);
    return code == HL_OPTIONS_GO_ON ? read_notes(c, usage) : code;
}

/* --------------------------------------------------------------------------- the work */

static hl_status show(const tokens_command *c, const hl_token_view *view)
{
    hl_print_options options = { .width = hl_terminal_width(stdout),
                                 .depth = hl_shade_depth(stdout, c->colour),
                                 .theme = c->figure.draw.theme };
    char            *text    = NULL;
    hl_status        status  = hl_print_tokens(&text, view, &c->figure, &options);

    if (status == HL_OK)
        fputs(text, stdout);
    hl_free(text);
    return status;
}

static int look(const tokens_command *c, const hl_opened_prompt *opened)
{
    hl_token_view        *view    = NULL;
    hl_prompt             prompt  = hl_opened_prompt_view(opened);
    hl_token_view_options options = { .heads      = c->chosen.items,
                                      .n_heads    = c->chosen.count,
                                      .insets     = c->inset.items,
                                      .n_insets   = c->inset.count,
                                      .beyond_ctx = c->beyond,
                                      .n_threads  = (int32_t)c->common.n_threads };
    hl_status             status  = hl_token_view_new(&view, opened->model, &prompt, &options);

    if (status == HL_OK && c->output != NULL)
        status = hl_draw_tokens(view, c->output, &c->figure);
    if (status == HL_OK && c->common.json)
        status = hl_view_json_tokens(view);
    else if (status == HL_OK && c->output == NULL)
        status = show(c, view);
    else if (status == HL_OK && !c->common.quiet)
        printf("%s: %s, %lld token%s\n", c->output, view->maps[0].name, (long long)view->n_tokens,
               view->n_tokens == 1 ? "" : "s");
    if (status != HL_OK)
        hl_complain("tokens", "%s", hl_error_message());
    hl_token_view_free(view);
    return hl_exit_for(status);
}

int hl_command_tokens(int argc, char **argv)
{
    static tokens_command c; /* too large for some stacks */
    hl_arguments          rest;
    hl_opened_prompt      opened = { 0 };

    c                         = (tokens_command){ .source = { .command = "tokens" },
                                                  .layer  = -1,
                                                  .head   = -1,
                                                  .scale  = "root",
                                                  .theme  = "light",
                                                  .colour = "auto" };
    const hl_option options[] = {
        { "layer", 'l', HL_OPTION_INT, &c.layer, "N", "of one layer: the mean of its heads", 0,
          1 << 20 },
        { "head", 0, HL_OPTION_INT, &c.head, "N", "of one head of that layer", 0, 1 << 20 },
        { "heads", 0, HL_OPTION_TEXT, &c.heads, "L0H1,L3", "the mean of these", 0, 0 },
        { "inset", 0, HL_OPTION_TEXT, &c.insets, "L3H1,L5H0", "small maps of these below", 0, 0 },
        { "zoom", 'z', HL_OPTION_TEXT, &c.zoom, "A:B", "tokens A to B - 1 again, and larger", 0,
          0 },
        { "note", 0, HL_OPTION_LIST, &c.notes, "TEXT@ROW,COL",
          "words with an arrow; may be repeated", 0, 0 },
        { "scale", 0, HL_OPTION_CHOICE, &c.scale, "root|linear", "how shades follow attention", 0,
          0 },
        { "output", 'o', HL_OPTION_TEXT, &c.output, "FILE",
          "a picture: .svg, .png or .pdf (the terminal)", 0, 0 },
        { "file", 'f', HL_OPTION_TEXT, &c.source.file, "FILE",
          "the prompt is in FILE; - is standard input", 0, 0 },
        { "chat", 'c', HL_OPTION_FLAG, &c.source.chat, NULL,
          "the prompt is a user's turn, in the model's format", 0, 0 },
        { "system", 0, HL_OPTION_TEXT, &c.source.system, "TEXT", "with --chat, what comes first", 0,
          0 },
        { "ids", 0, HL_OPTION_FLAG, &c.source.ids, NULL, "the prompt is token ids, as in '5 17 3'",
          0, 0 },
        { "tokenizer", 0, HL_OPTION_TEXT, &c.source.tokenizer, "PATH",
          "use this one instead of the model's own", 0, 0 },
        { "beyond", 0, HL_OPTION_FLAG, &c.beyond, NULL,
          "more tokens than the model was made for, if it can", 0, 0 },
        { "theme", 0, HL_OPTION_CHOICE, &c.theme, "light|dark", "for paper or for slides", 0, 0 },
        { "title", 0, HL_OPTION_TEXT, &c.title, "TEXT", "above the figure; '' for none", 0, 0 },
        { "caption", 0, HL_OPTION_TEXT, &c.caption, "TEXT", "in the caption", 0, 0 },
        { "width", 0, HL_OPTION_NUMBER, &c.width, "POINTS", "of the page, 1/72 inch (480)", 240,
          2000 },
        { "dpi", 0, HL_OPTION_NUMBER, &c.dpi, "N", "pixels an inch, of PNG (144)", 24, 1200 },
        { "colour", 0, HL_OPTION_CHOICE, &c.colour, "auto|never|256|truecolor", "in the terminal",
          0, 0 },
        { 0 },
    };
    const hl_usage usage = {
        .command   = "tokens",
        .arguments = "MODEL [PROMPT]",
        .text = "Shows which token of a prompt looks at which, and how sharply: the attention of\n"
                "all heads in the mean, or of those that are named, as a map in the terminal or\n"
                "in a picture.  Beside each row is its entropy.  Without PROMPT it is read from\n"
                "--file or standard input.  --json prints the numbers.",
        .options = options,
    };

    int code = hl_options_parse(&rest, &c.common, &usage, argc, argv);
    if (code == HL_OPTIONS_GO_ON)
        code = check(&c, &rest, &usage);
    if (code != HL_OPTIONS_GO_ON)
        return code;
    code = hl_opened_prompt_open(&opened, &c.source);
    if (code == HL_EXIT_OK)
        code = look(&c, &opened);
    hl_opened_prompt_close(&opened);
    return code;
}
