/* cmd_tokens.c - headlight tokens: the attention between the tokens of a prompt. */
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "headlight.h"
#include "held.h"
#include "prompt_view.h"
#include "shared_options.h"
#include "values.h"

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

/* ------------------------------------------------------------------ the command line */

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
    HL_PASS(hl_view_options_finish(&c->view, usage, &c->common, rest));
    HL_PASS(choose_heads(c, usage));
    HL_PASS(read_notes(c, usage));
    c->figure.draw       = c->view.draw.how;
    c->figure.zoom_begin = c->view.zoom_begin;
    c->figure.zoom_end   = c->view.zoom_end;
    return HL_EXIT_OK;
}

/* --------------------------------------------------------------------------- the work */

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
        return hl_view_json_tokens(view);
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
