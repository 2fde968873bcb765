/* token_view_support.h - views of prompts with known numbers. */
#ifndef HL_TESTS_TOKEN_VIEW_SUPPORT_H
#define HL_TESTS_TOKEN_VIEW_SUPPORT_H

#include "render_support.h"

#include <math.h>

/* Texts of various lengths and scripts; some are empty. */
static const char *const words[] = {
    "The",
    "\u00b7cat",
    "\u00b7sat",
    "\u23ce\u23ce",
    "<|im_start|>",
    "\u00b7incomprehensibilities",
    "\u4f60\u597d",
    "\u0645\u0631\u062d\u0628\u0627",
    "\U0001f642",
    "\u21e5",
    "\\xe4",
    "g\u0308\u00c5\u0302",
    ",",
    "\u00b7\u00b7\u00b7\u00b7\u00b7\u00b7",
    "\u3053\u3093\u306b\u3061\u306f\u3001\u4e16\u754c",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
};

enum { N_WORDS = sizeof words / sizeof *words };

/* Row i gives half of its mass to the first token and spreads the rest evenly over all that it
 * sees. */
static inline float attention_of(int64_t row, int64_t key, int64_t n_seen)
{
    (void)row;
    return 0.5f / (float)n_seen + (key == 0 ? 0.5f : 0.0f);
}

static inline hl_token_view *make(int64_t n_tokens, int64_t n_maps, bool is_causal)
{
    hl_token_view *view = calloc(1, sizeof *view);

    *view =
        (hl_token_view){ .family = "made", .n_layers = 3, .n_heads = 4, .is_causal = is_causal };
    view->n_tokens = n_tokens;
    view->n_maps   = n_maps;
    view->tokens   = calloc((size_t)n_tokens, sizeof *view->tokens);
    view->maps     = calloc((size_t)n_maps, sizeof *view->maps);
    for (int64_t i = 0; i < n_tokens; i++)
        view->tokens[i] = (hl_view_token){ i, strdup(words[i % N_WORDS]), i % N_WORDS == 4 };
    for (int64_t m = 0; m < n_maps; m++) {
        hl_token_map *map = &view->maps[m];
        snprintf(map->name, sizeof map->name, "L%dH%d", (int)(m / 4), (int)(m % 4));
        map->n_heads   = 1;
        map->attention = calloc((size_t)(n_tokens * n_tokens), sizeof *map->attention);
        map->entropy   = calloc((size_t)n_tokens, sizeof *map->entropy);
        for (int64_t row = 0; row < n_tokens; row++) {
            int64_t n_seen    = is_causal ? row + 1 : n_tokens;
            map->entropy[row] = 4.0f * (float)row / (float)n_tokens;
            for (int64_t key = 0; key < n_seen; key++)
                map->attention[row * n_tokens + key] = attention_of(row, key, n_seen);
        }
    }
    return view;
}

static inline void unmake(hl_token_view *view)
{
    for (int64_t i = 0; i < view->n_tokens; i++)
        free(view->tokens[i].text);
    for (int64_t i = 0; i < view->n_maps; i++) {
        free(view->maps[i].attention);
        free(view->maps[i].entropy);
    }
    free(view->tokens);
    free(view->maps);
    free(view);
}

#endif
