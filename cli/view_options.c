/* view_options.c - which prompt, and how it is drawn. */
#include "view_options.h"

#include <stdio.h>
#include <string.h>

#include "command.h"
#include "screen.h"

void hl_view_options_list(hl_option *out, hl_view_arguments *arguments)
{
    hl_prompt_source *source                     = &arguments->source;
    hl_draw_options  *draw                       = &arguments->draw;
    const hl_option   options[HL_N_VIEW_OPTIONS] = {
          { "output", 'o', HL_OPTION_TEXT, &arguments->output, "FILE",
            "a picture: .svg, .png or .pdf (the terminal)", 0, 0 },
          { "zoom", 'z', HL_OPTION_TEXT, &arguments->zoom, "A:B", "tokens A to B - 1", 0, 0 },
          { "file", 'f', HL_OPTION_TEXT, &source->file, "FILE",
            "the prompt is in FILE; - is standard input", 0, 0 },
          { "chat", 'c', HL_OPTION_FLAG, &source->chat, NULL,
            "the prompt is a user's turn, in the model's format", 0, 0 },
          { "system", 0, HL_OPTION_TEXT, &source->system, "TEXT", "with --chat, what comes first", 0,
            0 },
          { "ids", 0, HL_OPTION_FLAG, &source->ids, NULL, "the prompt is token ids, as in '5 17 3'",
            0, 0 },
          { "tokenizer", 0, HL_OPTION_TEXT, &source->tokenizer, "PATH",
            "use this one instead of the model's own", 0, 0 },
          { "beyond", 0, HL_OPTION_FLAG, &arguments->beyond, NULL,
            "more tokens than the model was made for, if it can", 0, 0 },
          { "theme", 0, HL_OPTION_CHOICE, &arguments->theme, "light|dark", "for paper or for slides",
            0, 0 },
          { "title", 0, HL_OPTION_TEXT, &draw->title, "TEXT", "above the figure; '' for none", 0, 0 },
          { "caption", 0, HL_OPTION_TEXT, &draw->caption, "TEXT", "in the caption", 0, 0 },
          { "width", 0, HL_OPTION_NUMBER, &draw->width, "POINTS", "of the page, 1/72 inch (480)", 240,
            2000 },
          { "dpi", 0, HL_OPTION_NUMBER, &draw->dpi, "N", "pixels an inch, of PNG (144)", 24, 1200 },
          HL_GATE_OPTIONS(&source->gates),
    };

    arguments->theme = "light";
    memcpy(out, options, sizeof options);
}

/* "A:B" */
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

static int check(const hl_view_arguments *arguments, const hl_usage *usage,
                 const hl_arguments *rest)
{
    const hl_prompt_source *source = &arguments->source;

    if (rest->count < 1 || rest->count > 2)
        return hl_options_refuse(usage, "wanted MODEL and PROMPT, got %d argument%s (quotes?)",
                                 rest->count, rest->count == 1 ? "" : "s");
    if (rest->count == 2 && source->file != NULL)
        return hl_options_refuse(usage, "a prompt and --file exclude each other");
    if (source->system != NULL && !source->chat)
        return hl_options_refuse(usage, "--system needs --chat");
    if (source->ids && source->chat)
        return hl_options_refuse(usage, "--ids and --chat exclude each other");
    return HL_OPTIONS_GO_ON;
}

int hl_view_options_finish(hl_view_arguments *arguments, const hl_usage *usage,
                           const hl_common *common, const hl_arguments *rest)
{
    int code = check(arguments, usage, rest);

    if (code != HL_OPTIONS_GO_ON)
        return code;
    if (arguments->zoom != NULL && !read_zoom(arguments))
        return hl_options_refuse(usage, "--zoom: wanted A:B with A below B, not '%.20s'",
                                 arguments->zoom);
    arguments->source.command = usage->command;
    arguments->source.model   = rest->items[0];
    arguments->source.text    = rest->count == 2 ? rest->items[1] : NULL;
    arguments->source.quiet   = common->quiet;
    arguments->draw.theme = strcmp(arguments->theme, "dark") == 0 ? HL_THEME_DARK : HL_THEME_LIGHT;
    arguments->print      = (hl_print_options){ .width = hl_terminal_width(stdout),
                                                .depth = hl_terminal_depth(stdout),
                                                .theme = arguments->draw.theme };
    return HL_OPTIONS_GO_ON;
}

int hl_view_command(const hl_view_arguments *arguments,
                    int (*look)(const void *context, const hl_opened_prompt *opened),
                    const void *context)
{
    hl_opened_prompt opened = { 0 };
    int              code   = hl_opened_prompt_open(&opened, &arguments->source);

    if (code == HL_EXIT_OK)
        code = look(context, &opened);
    hl_opened_prompt_close(&opened);
    return code;
}

void hl_view_put(char *text)
{
    if (text != NULL)
        fputs(text, stdout);
    hl_free(text);
}
