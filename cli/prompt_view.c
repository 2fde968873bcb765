/* prompt_view.c - which prompt, how it is drawn, and the JSON of what was seen. */
#include "prompt_view.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "screen.h"
#include "values.h"

/* ------------------------------------------------------------ the command line */

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

/* --------------------------------------------------------------- views as JSON */

/* Quoted and escaped. */
static hl_status put_text(const char *text)
{
    json_t *string = json_string(text);
    char   *dumped = string != NULL ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
    bool    ok     = dumped != NULL;

    if (ok)
        hl_put_json_text(dumped);
    hl_free(dumped);
    json_decref(string);
    return ok ? HL_OK : HL_NO_MEMORY;
}

/* Seven digits are what a float holds. */
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
        if (put_text(tokens[i].text) != HL_OK)
            return HL_NO_MEMORY;
        printf("%s}%s\n", tokens[i].is_marked ? ", \"marked\": true" : "", i + 1 < n ? "," : "");
    }
    fputs("  ]", stdout);
    return HL_OK;
}

static hl_status put_map(const hl_token_view *view, const hl_token_map *map)
{
    int64_t n = view->n_tokens;

    fputs("    {\"name\": ", stdout);
    if (put_text(map->name) != HL_OK)
        return HL_NO_MEMORY;
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

hl_status hl_view_json_tokens(const hl_token_view *view)
{
    hl_status status = HL_OK;

    fputs("{\n  \"family\": ", stdout);
    status = put_text(view->family);
    printf(",\n  \"layers\": %lld,\n  \"heads\": %lld,\n  \"causal\": %s,\n",
           (long long)view->n_layers, (long long)view->n_heads, view->is_causal ? "true" : "false");
    if (status == HL_OK)
        status = put_tokens(view->tokens, view->n_tokens);
    fputs(",\n  \"maps\": [\n", stdout);
    for (int64_t i = 0; i < view->n_maps && status == HL_OK; i++) {
        status = put_map(view, &view->maps[i]);
        fputs(i + 1 < view->n_maps ? ",\n" : "\n", stdout);
    }
    fputs("  ]\n}\n", stdout);
    return status;
}

/* One layer: ids, texts and entropies. */
static hl_status put_layer(const hl_lens_view *view, int64_t row)
{
    int64_t              n       = view->n_tokens;
    const hl_view_token *guesses = view->guesses + row * n;

    if (row == 0)
        fputs("    {\"layer\": null,\n     \"top\": [", stdout); /* the embedding */
    else
        printf("    {\"layer\": %lld,\n     \"top\": [", (long long)(row - 1));
    for (int64_t i = 0; i < n; i++)
        printf("%s%lld", i > 0 ? ", " : "", (long long)guesses[i].id);
    fputs("],\n     \"text\": [", stdout);
    for (int64_t i = 0; i < n; i++) {
        fputs(i > 0 ? ", " : "", stdout);
        if (put_text(guesses[i].text) != HL_OK)
            return HL_NO_MEMORY;
    }
    fputs("],\n     \"entropy\": ", stdout);
    put_numbers(view->entropy + row * n, n);
    fputs("}", stdout);
    return HL_OK;
}

hl_status hl_view_json_lens(const hl_lens_view *view)
{
    hl_status status = HL_OK;

    fputs("{\n  \"family\": ", stdout);
    status = put_text(view->family);
    printf(",\n  \"layers\": %lld,\n  \"vocabulary\": %lld,\n  \"first\": %lld,\n",
           (long long)view->n_layers, (long long)view->d_vocab, (long long)view->first);
    if (status == HL_OK)
        status = put_tokens(view->tokens, view->n_tokens);
    fputs(",\n  \"lens\": [\n", stdout);
    for (int64_t row = 0; row <= view->n_layers && status == HL_OK; row++) {
        status = put_layer(view, row);
        fputs(row < view->n_layers ? ",\n" : "\n", stdout);
    }
    fputs("  ]\n}\n", stdout);
    return status;
}
