/* prompt_view.h - what the commands that show one prompt share: which prompt, how it is drawn, and
 * views as JSON.
 *
 *     hl_view_arguments view = { 0 };
 *     hl_option options[HL_N_VIEW_OPTIONS + 1];
 *     hl_view_options_list(options, &view);
 *     options[HL_N_VIEW_OPTIONS] = (hl_option){ 0 };
 *     ... hl_options_parse ...
 *     code = hl_view_options_finish(&view, &usage, &common, &rest);
 *     ... hl_opened_prompt_open(&opened, &view.source), view.draw, view.print */
#ifndef HL_CLI_PROMPT_VIEW_H
#define HL_CLI_PROMPT_VIEW_H

#include "headlight.h"
#include "options.h"
#include "prompt.h"

/* ------------------------------------------------------------ the command line */

enum { HL_N_VIEW_OPTIONS = 14 + HL_N_GATE_OPTIONS };

typedef struct hl_view_arguments {
    hl_prompt_source source;
    hl_draw_options  draw;
    hl_print_options print;
    const char      *output;     /* NULL: the terminal */
    int64_t          zoom_begin; /* both 0: all tokens */
    int64_t          zoom_end;
    bool             beyond;
    const char      *zoom; /* as they were given */
    const char      *theme;
} hl_view_arguments;

/* Fills the first HL_N_VIEW_OPTIONS entries of a table, and in the defaults. */
void hl_view_options_list(hl_option *out, hl_view_arguments *arguments);

/* After parsing: MODEL and PROMPT, borrowed from argv.  HL_OPTIONS_GO_ON, or the exit status after
 * a complaint. */
int hl_view_options_finish(hl_view_arguments *arguments, const hl_usage *usage,
                           const hl_common *common, const hl_arguments *rest);

/* Opens model and prompt, looks, and closes them: what `look` returns, or the exit status after a
 * complaint. */
int hl_view_command(const hl_view_arguments *arguments,
                    int (*look)(const void *context, const hl_opened_prompt *opened),
                    const void *context);
/* Prints a text (NULL: nothing) and releases it. */
void hl_view_put(char *text);

/* --------------------------------------------------------------- views as JSON */

/* On standard output, number by number: the tree of a long prompt would take gigabytes. */

/* Rows of attention end with the last token they can see.  HL_NO_MEMORY is the only failure. */
hl_status hl_view_json_tokens(const hl_token_view *view);
hl_status hl_view_json_lens(const hl_lens_view *view);

#endif
