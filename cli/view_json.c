/* view_json.c - views of a prompt as JSON. */
#include "view_json.h"
#include "values.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

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
