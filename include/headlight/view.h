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
 * A view holds plain numbers and texts.  It does not need the model or the tokenizer once it has
 * been computed, and another program may fill one. */

typedef struct hl_prompt {
    const int64_t      *tokens; /* (n_tokens) */
    int64_t             n_tokens;
    const uint8_t      *roles;     /* (n_tokens) hl_chat_role; NULL: the prompt is not a chat */
    const hl_tokenizer *tokenizer; /* gives the texts of tokens; NULL: tokens are shown by id */
} hl_prompt;

typedef struct hl_view_token {
    int64_t id;
    char   *text;      /* printable UTF-8: a dot for a space, arrows for line ends and tabs, \xNN
                        * for a byte that is not valid UTF-8 */
    bool    is_marked; /* a special token, or one that the chat template added */
} hl_view_token;

/* Returns HL_LIMIT for longer prompts: a map holds n_tokens * n_tokens numbers. */
enum { HL_VIEW_MOST_TOKENS = 8192, HL_VIEW_NAME_BYTES = 64 };

/* ---------------------------------------------- who looks at whom: token view */

/* The attention of one head, or the mean over several. */
typedef struct hl_token_map {
    char    name[HL_VIEW_NAME_BYTES]; /* "L3H1", "L3, mean of 8 heads", "mean of all 64 heads" */
    int64_t n_heads;
    float  *attention; /* (n_tokens, n_tokens) attention of the first index to the second; rows sum
                        * to 1, minus the share of a learned sink */
    float  *entropy;   /* (n_tokens) entropy of each row, nats; for several heads the mean of their
                        * entropies */
} hl_token_map;

typedef struct hl_token_view {
    char           family[HL_VIEW_NAME_BYTES];
    int64_t        n_layers;
    int64_t        n_heads;   /* largest number in any layer */
    bool           is_causal; /* no token sees a later one */
    int64_t        n_tokens;
    hl_view_token *tokens; /* (n_tokens) */
    hl_token_map  *maps;   /* (n_maps) the mean of the chosen heads, then each inset */
    int64_t        n_maps;
} hl_token_view;

typedef struct hl_token_view_options {
    const hl_head *heads;   /* heads to average over; here and in `insets`, .head -1 stands for all
                             * heads of the layer */
    int64_t        n_heads; /* 0: all heads */
    const hl_head *insets;  /* each entry gets its own map */
    int64_t        n_insets;
    const float   *gates;      /* (n_layers, n_heads), as in hl_feed */
    bool           beyond_ctx; /* as in hl_session_options */
    int32_t        n_threads;  /* 0: all cores */
} hl_token_view_options;

/* Computes a view.  It holds one map for each inset and one for the mean; computing it takes 16 MiB
 * more than a session does.  Returns HL_BAD_ARGUMENT for an empty prompt and for heads that do not
 * exist. */
HL_API hl_status hl_token_view_new(hl_token_view **out, const hl_model *model,
                                   const hl_prompt *prompt, const hl_token_view_options *options);
HL_API void      hl_token_view_free(hl_token_view *view);

/* ------------------------------------------------- all heads at once: prompt maps
 *
 * Maps for pages that let the reader choose a head.  Each pair of tokens takes one byte, and maps
 * are made row by row, so no complete matrix of floats is ever held.  A cell stands for
 *
 *     p = peak of the row * cell / 255
 *
 * with an error of at most 1/510 of the peak. */

/* A row in which a head is active: it puts much on one token, which is not the first. */
typedef struct hl_active_row {
    int64_t row; /* the token that looks; -1: no such row */
    int64_t key; /* the token that it looks at most, beside the first one */
    float   attention;
} hl_active_row;

enum { HL_ACTIVE_ROWS = 3 };

typedef struct hl_prompt_maps {
    char           family[HL_VIEW_NAME_BYTES];
    int64_t        n_layers;
    int64_t        n_heads;   /* largest number in any layer */
    bool           is_causal; /* no token sees a later one */
    int64_t        n_tokens;
    hl_view_token *tokens;  /* (n_tokens) */
    float         *entropy; /* (n_layers, n_heads, n_tokens) entropy of each row, nats; NaN for
                             * heads that a layer lacks */
    hl_head       *heads;   /* (n_maps) the head of each map; { -1, -1 }: the mean of all heads,
                             * always the first map if present */
    int64_t        n_maps;
    int64_t        n_cells; /* cells per map: n_tokens squared; if causal, row i has i + 1 cells */
    uint8_t       *cells;   /* (n_maps, n_cells) */
    float         *peaks;   /* (n_maps, n_tokens) the largest probability of each row */
    /* (n_layers, n_heads, HL_ACTIVE_ROWS) the rows in which each head puts most on one token beside
     * the first, the clearest first; each is of another pair of token ids, and sees 8 tokens or
     * more.  Heads whose rows were not read have none. */
    hl_active_row *active;
} hl_prompt_maps;

typedef struct hl_prompt_maps_options {
    const hl_head *heads; /* heads to make maps of if the maps of all heads do not fit */
    int64_t        n_heads;
    size_t         most_cells; /* largest total number of cells for all heads; 0: 1.5 million */
    bool           beyond_ctx; /* as in hl_session_options */
    int32_t        n_threads;  /* 0: all cores */
} hl_prompt_maps_options;

/* Makes maps of all heads and of their mean if these have at most most_cells cells.  Otherwise it
 * makes maps of the chosen heads, and of the mean if that has at most most_cells cells or no head
 * was chosen.  Returns HL_BAD_ARGUMENT for an empty prompt and for heads that do not exist. */
HL_API hl_status hl_prompt_maps_new(hl_prompt_maps **out, const hl_model *model,
                                    const hl_prompt *prompt, const hl_prompt_maps_options *options);
HL_API void      hl_prompt_maps_free(hl_prompt_maps *maps);

/* ------------------------------------- what a model would say, layer by layer: lens
 *
 * The final norm and the output head are applied to the embeddings and to the residual stream after
 * each block, as if the model ended there.  The results are the most likely next token and the
 * entropy of the distribution over the vocabulary, which is not an entropy of attention. */

typedef struct hl_lens_view {
    char           family[HL_VIEW_NAME_BYTES];
    int64_t        n_layers;
    int64_t        d_vocab;
    int64_t        n_prompt; /* number of tokens of the whole prompt */
    int64_t        first;    /* index in the prompt of the first token here */
    int64_t        n_tokens;
    hl_view_token *tokens;  /* (n_tokens) tokens that were read */
    hl_view_token *guesses; /* (n_layers + 1, n_tokens) most likely next token; row 0 is that of the
                             * embeddings.  is_marked: this token does follow */
    float         *entropy; /* (n_layers + 1, n_tokens) nats, 0 to ln d_vocab */
} hl_lens_view;

typedef struct hl_lens_view_options {
    int64_t      begin; /* first of the tokens [begin, end) to show, with all tokens before them as
                         * context; both 0: all */
    int64_t      end;
    const float *gates; /* (n_layers, n_heads), as in hl_feed */
    bool         beyond_ctx;
    int32_t      n_threads;
} hl_lens_view_options;

/* Computes a lens view.  Its memory does not grow with n_tokens * d_vocab.  Returns HL_UNSUPPORTED
 * for encoders and for models without an output head. */
HL_API hl_status hl_lens_view_new(hl_lens_view **out, const hl_model *model,
                                  const hl_prompt *prompt, const hl_lens_view_options *options);
HL_API void      hl_lens_view_free(hl_lens_view *view);

#ifdef __cplusplus
}
#endif
#endif
