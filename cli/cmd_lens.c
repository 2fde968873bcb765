/* cmd_lens.c - headlight lens: what a model would say after each layer. */
#include <stdio.h>

#include "command.h"
#include "headlight.h"
#include "prompt_view.h"
#include "shared_options.h"
#include "values.h"

typedef struct lens_command {
    hl_common         common;
    hl_view_arguments view;
} lens_command;

static int look(const void *context, const hl_opened_prompt *opened)
{
    const lens_command  *c       = context;
    char                *text    = NULL;
    hl_lens_view        *view    = NULL;
    hl_prompt            prompt  = hl_opened_prompt_view(opened);
    hl_lens_view_options options = { .begin      = c->view.zoom_begin,
                                     .end        = c->view.zoom_end,
                                     .beyond_ctx = c->view.beyond,
                                     .n_threads  = (int32_t)c->common.n_threads };
    hl_status            status  = hl_lens_view_new(&view, opened->model, &prompt, &options);

    hl_draw_listen("lens");
    if (status == HL_OK && c->view.output != NULL)
        status = hl_draw_lens(view, c->view.output, &c->view.draw);
    if (status == HL_OK && c->common.json)
        status = hl_view_json_lens(view);
    else if (status == HL_OK && c->view.output == NULL)
        status = hl_print_lens(&text, view, &c->view.print);
    else if (status == HL_OK && !c->common.quiet)
        printf("%s: %lld layers, %lld token%s\n", hl_shown(c->view.output),
               (long long)view->n_layers, (long long)view->n_tokens,
               view->n_tokens == 1 ? "" : "s");
    if (status != HL_OK)
        hl_complain("lens", "%s", hl_explain(status));
    hl_view_put(text);
    hl_lens_view_free(view);
    return hl_exit_for(status);
}

int hl_command_lens(int argc, char **argv)
{
    lens_command   c = { 0 };
    hl_arguments   rest;
    hl_option      options[HL_N_VIEW_OPTIONS + 1];
    const hl_usage usage = {
        .command   = "lens",
        .arguments = "MODEL [PROMPT]",
        .text = "Shows what a model would say after each layer: the residual stream through its\n"
                "final norm and output head, the likeliest next token in every cell and, as its\n"
                "colour, the entropy over the vocabulary.  In the terminal or in a picture.\n"
                "Without PROMPT it is read from --file or standard input.  --json prints the\n"
                "numbers.",
        .options = options,
    };

    hl_view_options_list(options, &c.view);
    options[HL_N_VIEW_OPTIONS] = (hl_option){ 0 };
    int code                   = hl_options_parse(&rest, &c.common, &usage, argc, argv);
    if (code == HL_OPTIONS_GO_ON)
        code = hl_view_options_finish(&c.view, &usage, &c.common, &rest);
    if (code != HL_OPTIONS_GO_ON)
        return code;
    return hl_view_command(&c.view, look, &c);
}
