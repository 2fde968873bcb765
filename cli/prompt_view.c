/* prompt_view.c - options that choose and draw a prompt, and views as JSON. */
#include "prompt_view.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "held.h"
#include "screen.h"
#include "values.h"

/* ------------------------------------------------------------ the command line */

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

int hl_view_options_finish(hl_view_arguments *arguments, const hl_usage *usage,
                           const hl_common *common, const hl_arguments *rest)
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

hl_status hl_view_json_tokens(const hl_token_view *view)
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

hl_status hl_view_json_lens(const hl_lens_view *view)
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
