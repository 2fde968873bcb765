/* cmd_lens.c - headlight lens: what a model would predict after each layer. */
#include <stdio.h>

#include "command.h"
#include "headlight.h"
#include "held.h"
#include "prompt_view.h"
#include "shared_options.h"
#include "values.h"

typedef struct lens_command {
    hl_common         common;
    hl_view_arguments view;
} lens_command;

static hl_status look(const lens_command *c, const hl_opened_prompt *opened)
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
        return hl_view_json_lens(view);
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
    HL_PASS(hl_view_options_finish(&c.view, &usage, &c.common, &rest));
    HL_PASS(hl_opened_prompt_open(&opened, &c.view.source));
    return hl_finish("lens", look(&c, &opened));
}
