/* view_tokens.c - whole rows of chosen heads, from a session's tap.
 *
 * view_rows.c runs the model.  Of what it reports only the rows of heads that somebody chose are
 * computed and added to the maps they belong to. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "measure/view.h"

enum { MOST_INSETS = 64 };

/* What is open while a view is made. */
typedef struct watch {
    const hl_model      *model;
    const hl_model_info *info;
    hl_token_view       *view;
    bool                *wanted; /* (n_layers, n_heads) by any map */
    bool                *in_map; /* (n_maps, n_layers, n_heads) */
} watch;

static bool *member(const watch *w, int64_t map, int64_t layer, int64_t head)
{
    return &w->in_map[(map * w->info->n_layers + layer) * w->info->n_heads + head];
}

/* ------------------------------------------------------------------------ choosing */

static hl_status choose(const watch *w, int64_t map, hl_head_choice choice)
{
    int64_t   n_heads = 0;
    hl_status status  = hl_view_check_head(&n_heads, w->model, choice);

    for (int64_t head = 0; head < n_heads && status == HL_OK; head++) {
        if (choice.head == -1 || choice.head == head)
            *member(w, map, choice.layer, head) = true;
    }
    return status;
}

static hl_status choose_all(const watch *w)
{
    for (int64_t i = 0; i < w->info->n_layers; i++) {
        hl_layer_info layer  = { 0 };
        hl_status     status = hl_model_get_layer(&layer, w->model, i);

        if (status == HL_OK && layer.n_heads > 0)
            status = choose(w, 0, (hl_head_choice){ i, -1 });
        if (status != HL_OK)
            return status;
    }
    return HL_OK;
}

static const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

static void name_choice(hl_token_map *map, hl_head_choice choice)
{
    if (choice.head >= 0)
        snprintf(map->name, sizeof map->name, "L%lldH%lld", (long long)choice.layer,
                 (long long)choice.head);
    else
        snprintf(map->name, sizeof map->name, "L%lld, mean of %lld head%s", (long long)choice.layer,
                 (long long)map->n_heads, plural(map->n_heads));
}

static void name_mean(hl_token_map *map, const hl_token_view_options *options)
{
    if (options->n_heads == 1)
        name_choice(map, options->heads[0]);
    else
        snprintf(map->name, sizeof map->name, "mean of %s%lld %shead%s",
                 options->n_heads == 0 ? "all " : "", (long long)map->n_heads,
                 options->n_heads == 0 ? "" : "chosen ", plural(map->n_heads));
}

/* How many heads a map is the mean of; and they are wanted. */
static int64_t count_members(const watch *w, int64_t map)
{
    int64_t n_heads = w->info->n_layers * w->info->n_heads;
    int64_t count   = 0;

    for (int64_t i = 0; i < n_heads; i++) {
        bool is_member = w->in_map[map * n_heads + i];
        w->wanted[i]   = w->wanted[i] || is_member;
        count += is_member;
    }
    return count;
}

static hl_status choose_heads(watch *w, const hl_token_view_options *options)
{
    size_t heads = (size_t)(w->info->n_layers * w->info->n_heads);

    HL_NEED(HL_ALLOC_ZEROED(&w->wanted, heads));
    HL_NEED(HL_ALLOC_ZEROED(&w->in_map, heads * (size_t)w->view->n_maps));
    if (options->n_heads == 0)
        HL_NEED(choose_all(w));
    for (int64_t i = 0; i < options->n_heads; i++)
        HL_NEED(choose(w, 0, options->heads[i]));
    for (int64_t i = 0; i < options->n_insets; i++)
        HL_NEED(choose(w, 1 + i, options->insets[i]));
    for (int64_t map = 0; map < w->view->n_maps; map++)
        w->view->maps[map].n_heads = count_members(w, map);
    name_mean(&w->view->maps[0], options);
    for (int64_t i = 0; i < options->n_insets; i++)
        name_choice(&w->view->maps[1 + i], options->insets[i]);
    return HL_OK;
}

/* ------------------------------------------------------------------------ watching */

static void add_row(const watch *w, hl_token_map *map, const hl_layer_rows *rows, int64_t head,
                    int64_t index)
{
    int64_t      n_tokens = w->view->n_tokens;
    int64_t      row      = rows->pattern_rows[index];
    int64_t      position = rows->start[0] + row;
    const float *pattern  = rows->pattern + (head * rows->n_patterns + index) * rows->n_keys;
    float       *out      = map->attention + position * n_tokens;
    float        share    = 1.0f / (float)map->n_heads;

    for (int64_t key = 0; key < n_tokens; key++)
        out[key] += share * pattern[key];
    map->entropy[position] += share * rows->rows->entropy[head * rows->n_rows + row];
}

static hl_status watch_layer(void *context, const hl_layer_rows *rows)
{
    const watch *w = context;

    for (int64_t map = 0; map < w->view->n_maps; map++) {
        for (int64_t head = 0; head < rows->n_heads; head++) {
            if (!*member(w, map, rows->layer, head))
                continue;
            for (int64_t i = 0; i < rows->n_patterns; i++)
                add_row(w, &w->view->maps[map], rows, head, i);
        }
    }
    return HL_OK;
}

/* ------------------------------------------------------------------- open and close */

static hl_status allocate(watch *w, const hl_prompt *prompt, int64_t n_maps)
{
    hl_token_view *view = w->view;
    size_t         size = (size_t)prompt->n_tokens;

    view->n_tokens  = prompt->n_tokens;
    view->n_layers  = w->info->n_layers;
    view->n_heads   = w->info->n_heads;
    view->is_causal = !w->info->is_encoder;
    snprintf(view->family, sizeof view->family, "%s", w->info->family);
    HL_NEED(hl_view_tokens_new(&view->tokens, prompt));
    HL_NEED(HL_ALLOC_ZEROED(&view->maps, (size_t)n_maps));
    view->n_maps = n_maps;
    for (int64_t i = 0; i < n_maps; i++) {
        HL_NEED(HL_ALLOC_ZEROED(&view->maps[i].attention, size * size));
        HL_NEED(HL_ALLOC_ZEROED(&view->maps[i].entropy, size));
    }
    return HL_OK;
}

hl_status hl_token_view_in_pieces(hl_token_view **out, const hl_model *model,
                                  const hl_prompt *prompt, const hl_token_view_options *options,
                                  int64_t at_once)
{
    static const hl_token_view_options none   = { 0 };
    hl_status                          status = HL_OK;
    watch                              w = { .model = model, .info = hl_model_get_info(model) };

    *out    = NULL;
    options = options != NULL ? options : &none;
    HL_TRY(hl_view_check_prompt(prompt));
    if (options->n_insets > MOST_INSETS) {
        status = hl_fail(HL_LIMIT, "%lld insets; at most %d", (long long)options->n_insets,
                         (int)MOST_INSETS);
        goto done;
    }
    HL_TRY(HL_ALLOC_ZEROED(&w.view, 1));
    HL_TRY(allocate(&w, prompt, 1 + options->n_insets));
    HL_TRY(choose_heads(&w, options));
    HL_TRY(hl_view_run(model, prompt,
                       &(hl_view_rows){ .context    = &w,
                                        .layer      = watch_layer,
                                        .heads      = w.wanted,
                                        .at_once    = at_once,
                                        .gates      = options->gates,
                                        .beyond_ctx = options->beyond_ctx,
                                        .n_threads  = options->n_threads }));
    *out   = w.view;
    w.view = NULL;

done:
    hl_token_view_free(w.view);
    hl_free(w.wanted);
    hl_free(w.in_map);
    return status;
}

hl_status hl_token_view_new(hl_token_view **out, const hl_model *model, const hl_prompt *prompt,
                            const hl_token_view_options *options)
{
    return hl_token_view_in_pieces(out, model, prompt, options, 0);
}

void hl_token_view_free(hl_token_view *view)
{
    if (view == NULL)
        return;
    for (int64_t i = 0; i < view->n_maps; i++) {
        hl_free(view->maps[i].attention);
        hl_free(view->maps[i].entropy);
    }
    hl_free(view->maps);
    hl_view_tokens_free(view->tokens, view->n_tokens);
    hl_free(view);
}
