/* headlight/view.h - one prompt, seen from inside a model.
 * Part of headlight.h, which see for the conventions. */
#ifndef HEADLIGHT_VIEW_H
#define HEADLIGHT_VIEW_H

#include "model.h"
#include "tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------ one prompt
 *
 *     hl_prompt      prompt = { .tokens = ids, .n_tokens = n, .tokenizer = tokenizer };
 *     hl_head        head   = { .layer = 3, .head = 1 };
 *     hl_token_view *view   = NULL;
 *     hl_token_view_new(&view, model, &prompt,
 *                       &(hl_token_view_options){ .heads = &head, .n_heads = 1 });
 *     hl_draw_tokens(view, "L3H1.svg", NULL);
 *     hl_token_view_free(view);
 *
 * A view holds plain numbers and texts: it needs neither model nor tokenizer any more, and
 * another program may fill one. */

typedef struct hl_prompt {
    const int64_t      *tokens; /* (n_tokens) */
    int64_t             n_tokens;
    const uint8_t      *roles;     /* (n_tokens) hl_chat_role; NULL: it is no chat */
    const hl_tokenizer *tokenizer; /* what tokens are called; NULL: they go by number */
} hl_prompt;

typedef struct hl_view_token {
    int64_t id;
    char   *text;      /* UTF-8 for eyes: a space is a dot, a line end and a tab are arrows, what
                        * is no character is \xe4 */
    bool    is_marked; /* a special token, or one that the chat template put there */
} hl_view_token;

/* More than that are HL_LIMIT: a map holds n_tokens * n_tokens numbers. */
enum { HL_VIEW_MOST_TOKENS = 8192, HL_VIEW_NAME_BYTES = 64 };

/* ---------------------------------------------- who looks at whom: token view */

/* The attention of one head, or the mean over several. */
typedef struct hl_token_map {
    char    name[HL_VIEW_NAME_BYTES]; /* "L3H1", "L3, mean of 8 heads", "mean of all 64 heads" */
    int64_t n_heads;
    float  *attention; /* (n_tokens, n_tokens) who looks, at whom; rows add up to 1, less what
                        * goes to a learned sink */
    float  *entropy;   /* (n_tokens) of each row, nats; the mean of the heads' */
} hl_token_map;

typedef struct hl_token_view {
    char           family[HL_VIEW_NAME_BYTES];
    int64_t        n_layers;
    int64_t        n_heads;   /* the most of any layer */
    bool           is_causal; /* no token sees a later one */
    int64_t        n_tokens;
    hl_view_token *tokens; /* (n_tokens) */
    hl_token_map  *maps;   /* (n_maps) the chosen heads' mean, then each inset */
    int64_t        n_maps;
} hl_token_view;

typedef struct hl_token_view_options {
    const hl_head *heads;   /* whose mean is wanted; .head -1: all of a layer, here and below */
    int64_t        n_heads; /* 0: all there are */
    const hl_head *insets;  /* a map of its own for each */
    int64_t        n_insets;
    const float   *gates;      /* (n_layers, n_heads), as in hl_feed */
    bool           beyond_ctx; /* as in hl_session_options */
    int32_t        n_threads;  /* 0: all cores */
} hl_token_view_options;

/* Memory: a map for each inset and one for the mean, and 16 MiB beside what a session takes.
 * HL_BAD_ARGUMENT of a prompt without tokens and of heads that are not there. */
HL_API hl_status hl_token_view_new(hl_token_view **out, const hl_model *model,
                                   const hl_prompt *prompt, const hl_token_view_options *options);
HL_API void      hl_token_view_free(hl_token_view *view);

/* ------------------------------------------------- all heads at once: prompt maps
 *
 * For pages that show any head when it is asked for: a byte a pair of tokens, made row by row, so
 * that no whole matrix of floats is ever held.
 *
 *     p = peak of the row * cell / 255
 *
 * to within 1/510 of the peak. */

typedef struct hl_prompt_maps {
    char           family[HL_VIEW_NAME_BYTES];
    int64_t        n_layers;
    int64_t        n_heads;   /* the most of any layer */
    bool           is_causal; /* no token sees a later one */
    int64_t        n_tokens;
    hl_view_token *tokens;  /* (n_tokens) */
    float         *entropy; /* (n_layers, n_heads, n_tokens) of every row, nats; NaN of heads that a
                             * layer lacks */
    hl_head       *heads;   /* (n_maps) whose they are; { -1, -1 }: the mean of all heads, which is
                             * the first if it is there */
    int64_t        n_maps;
    int64_t        n_cells; /* of a map: n_tokens squared; of causal ones row i has i + 1 */
    uint8_t       *cells;   /* (n_maps, n_cells) */
    float         *peaks;   /* (n_maps, n_tokens) the largest probability of every row */
} hl_prompt_maps;

typedef struct hl_prompt_maps_options {
    const hl_head *heads; /* whose maps are wanted, if not all fit */
    int64_t        n_heads;
    size_t         most_cells; /* all heads' maps if they have no more; 0: 1.5 million */
    bool           beyond_ctx; /* as in hl_session_options */
    int32_t        n_threads;  /* 0: all cores */
} hl_prompt_maps_options;

/* The maps of all heads and their mean if they have most_cells at most.  Otherwise those of the
 * chosen heads, and their mean where that has no more cells than this or no head was chosen.
 * HL_BAD_ARGUMENT of a prompt without tokens and of heads that are not there. */
HL_API hl_status hl_prompt_maps_new(hl_prompt_maps **out, const hl_model *model,
                                    const hl_prompt *prompt, const hl_prompt_maps_options *options);
HL_API void      hl_prompt_maps_free(hl_prompt_maps *maps);

/* ------------------------------------- what a model would say, layer by layer: lens
 *
 * The residual stream after each block (before the first: the embeddings), put through the
 * final norm and the output head as if the model ended there: the likeliest next token, and
 * the entropy over the vocabulary, which is not that of attention. */

typedef struct hl_lens_view {
    char           family[HL_VIEW_NAME_BYTES];
    int64_t        n_layers;
    int64_t        d_vocab;
    int64_t        n_prompt; /* tokens of the whole prompt */
    int64_t        first;    /* the place in it of the first token here */
    int64_t        n_tokens;
    hl_view_token *tokens;  /* (n_tokens) that were read */
    hl_view_token *guesses; /* (n_layers + 1, n_tokens) the likeliest to follow; row 0 is of the
                             * embeddings.  Marked: it does follow */
    float         *entropy; /* (n_layers + 1, n_tokens) nats, 0 to ln d_vocab */
} hl_lens_view;

typedef struct hl_lens_view_options {
    int64_t      begin; /* only tokens [begin, end), after all before them; both 0: all */
    int64_t      end;
    const float *gates; /* (n_layers, n_heads), as in hl_feed */
    bool         beyond_ctx;
    int32_t      n_threads;
} hl_lens_view_options;

/* Memory does not grow with n_tokens * d_vocab.  HL_UNSUPPORTED of encoders and of models
 * without an output head. */
HL_API hl_status hl_lens_view_new(hl_lens_view **out, const hl_model *model,
                                  const hl_prompt *prompt, const hl_lens_view_options *options);
HL_API void      hl_lens_view_free(hl_lens_view *view);

#ifdef __cplusplus
}
#endif
#endif
