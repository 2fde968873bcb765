/* view.c - a prompt's tokens as they are shown, and the attention of chosen heads on them.
 *
 * How a token is shown depends on its tokenizer.  Byte-level pieces are spelled in their own
 * alphabet and decode to bytes, which may be part of a character, so these pieces are decoded.
 * Other pieces are shown as they are spelled: SentencePiece writes spaces as U+2581, and decoding a
 * single token would drop the space at its start; WordPiece's ## is informative.  Invisible
 * characters are then replaced by signs:
 *
 *     space and U+2581   \u00b7
 *     line end           \u23ce
 *     tab                \u21e5
 *     not UTF-8          \xe4, byte by byte
 *     control, and what turns or hides other text (U+202E ...)   \u202e
 *
 * A session holds the rows of all heads of a layer while it reports them.  To limit this to 16 MiB,
 * only some positions are requested at a time.  A view of tokens computes only the rows of chosen
 * heads and adds them to their maps. */
#include "measure/view.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"
#include "model/session.h"

/* ---------------------------------------------------------------- characters */

/* The largest number of bytes that replace a character. */
enum { SIGN_BYTES = 12 };

static int write_sign(char out[SIGN_BYTES], uint32_t c, const char *character, size_t length)
{
    if (c == ' ' || c == 0x2581)
        return snprintf(out, SIGN_BYTES, "\u00b7");
    if (c == '\n')
        return snprintf(out, SIGN_BYTES, "\u23ce");
    if (c == '\t')
        return snprintf(out, SIGN_BYTES, "\u21e5");
    if (hl_character_is_unseen(c))
        return snprintf(out, SIGN_BYTES, c < 0x100 ? "\\x%02x" : "\\u%04x", (unsigned)c);
    return snprintf(out, SIGN_BYTES, "%.*s", (int)length, character);
}

static hl_status make_visible(char **out, const char *text, size_t n_bytes)
{
    size_t used = 0;

    HL_NEED(HL_ALLOC(out, n_bytes * SIGN_BYTES + 1));
    for (size_t at = 0; at < n_bytes;) {
        size_t length = hl_utf8_length(text + at, n_bytes - at);
        size_t next   = at;

        if (length > 0)
            used += (size_t)write_sign(*out + used, hl_utf8_next(text, &next), text + at, length);
        else
            used += (size_t)snprintf(*out + used, SIGN_BYTES, "\\x%02x", (unsigned char)text[at]);
        at += length > 0 ? length : 1;
    }
    (*out)[used] = '\0';
    return HL_OK;
}

/* -------------------------------------------------------------------- tokens */

/* Returns true if the piece itself should be shown rather than its decoded text. */
static bool shows_piece(const hl_tokenizer *tokenizer, hl_token_type type, const char *piece)
{
    return type == HL_TOKEN_SPECIAL || type == HL_TOKEN_BYTE || type == HL_TOKEN_UNKNOWN ||
           strcmp(hl_tokenizer_kind(tokenizer), "WordPiece") == 0 ||
           strstr(piece, "\u2581") != NULL;
}

static hl_status name_known(hl_view_token *out, const hl_tokenizer *tokenizer, const char *piece,
                            size_t n_piece)
{
    hl_token_type  type    = hl_tokenizer_type(tokenizer, out->id);
    int64_t        id      = out->id;
    HL_FREED char *decoded = NULL;
    size_t         n_bytes = 0;

    out->is_marked = type == HL_TOKEN_SPECIAL;
    if (!shows_piece(tokenizer, type, piece))
        HL_NEED(hl_tokenizer_decode(&decoded, &n_bytes, tokenizer, &id, 1, NULL));
    /* A token that decodes to nothing is shown as its piece. */
    return n_bytes > 0 ? make_visible(&out->text, decoded, n_bytes)
                       : make_visible(&out->text, piece, n_piece);
}

hl_status hl_view_name_token(hl_view_token *out, const hl_tokenizer *tokenizer, int64_t id)
{
    const char *piece   = NULL;
    size_t      n_piece = 0;
    char        number[24];

    *out = (hl_view_token){ .id = id };
    if (tokenizer != NULL && id >= 0 && id <= INT32_MAX)
        piece = hl_tokenizer_piece(tokenizer, id, &n_piece);
    if (piece != NULL)
        return name_known(out, tokenizer, piece, n_piece);
    snprintf(number, sizeof number, "#%lld", (long long)id);
    return hl_strdup(&out->text, number);
}

hl_status hl_view_check_prompt(const hl_prompt *prompt)
{
    if (prompt->n_tokens <= 0)
        return hl_fail(HL_BAD_ARGUMENT, "the prompt has no tokens");
    if (prompt->n_tokens > HL_VIEW_MOST_TOKENS)
        return hl_fail(HL_LIMIT, "the prompt has %lld tokens; at most %d can be shown",
                       (long long)prompt->n_tokens, (int)HL_VIEW_MOST_TOKENS);
    return HL_OK;
}

hl_status hl_view_check_head(int64_t *n_heads, const hl_model *model, hl_head choice)
{
    int64_t       n_layers = hl_model_get_info(model)->n_layers;
    hl_layer_info layer    = { 0 };

    *n_heads = 0;
    if (choice.layer < 0 || choice.layer >= n_layers)
        return hl_fail(HL_BAD_ARGUMENT, "no layer %lld: the model has %lld layers, counted from 0",
                       (long long)choice.layer, (long long)n_layers);
    HL_NEED(hl_model_get_layer(&layer, model, choice.layer));
    if (choice.head < -1 || choice.head >= layer.n_heads || layer.n_heads == 0)
        return hl_fail(HL_BAD_ARGUMENT,
                       "no head %lld in layer %lld, which has %lld heads, counted from 0",
                       (long long)choice.head, (long long)choice.layer, (long long)layer.n_heads);
    *n_heads = layer.n_heads;
    return HL_OK;
}

hl_status hl_view_tokens_new(hl_view_token **out, const hl_prompt *prompt)
{
    hl_status      status = HL_OK;
    hl_view_token *tokens = NULL;

    *out = NULL;
    HL_TRY(HL_ALLOC_ZEROED(&tokens, (size_t)prompt->n_tokens));
    for (int64_t i = 0; i < prompt->n_tokens; i++) {
        HL_TRY(hl_view_name_token(&tokens[i], prompt->tokenizer, prompt->tokens[i]));
        if (prompt->roles != NULL && prompt->roles[i] == HL_ROLE_TEMPLATE)
            tokens[i].is_marked = true;
    }
    *out   = tokens;
    tokens = NULL;

done:
    hl_view_tokens_free(tokens, prompt->n_tokens);
    return status;
}

void hl_view_tokens_free(hl_view_token *tokens, int64_t n_tokens)
{
    for (int64_t i = 0; tokens != NULL && i < n_tokens; i++)
        hl_free(tokens[i].text);
    hl_free(tokens);
}

/* ----------------------------------------------------- whole rows, in pieces */

/* Number of floats of rows that a session may hold. */
enum { ROWS_AT_ONCE = 4 << 20 };

int64_t hl_view_at_once(const hl_model *model, int64_t n_tokens)
{
    int64_t n_rows = ROWS_AT_ONCE / (hl_model_get_info(model)->n_heads * n_tokens);

    return n_rows < 1 ? 1 : n_rows > n_tokens ? n_tokens : n_rows;
}

/* Runs the piece that begins with position `first`. */
static hl_status run_piece(hl_session *session, const hl_prompt *prompt, const hl_tap *tap,
                           int64_t first, const float *gates, bool is_encoder)
{
    hl_feed feed = { .tokens   = prompt->tokens + first,
                     .n_tokens = tap->n_pattern_positions,
                     .gates    = gates,
                     .tap      = tap };

    if (is_encoder) {
        HL_NEED(hl_session_rewind(session, 0, 0));
        feed.tokens   = prompt->tokens;
        feed.n_tokens = prompt->n_tokens;
    }
    return hl_session_feed(session, &feed);
}

static hl_status run_pieces(hl_session *session, const hl_model *model, const hl_prompt *prompt,
                            const hl_view_rows *rows, int64_t at_once)
{
    HL_FREED int64_t *places = NULL; /* holds 0, 1, 2 ... */
    hl_tap            tap    = { .context       = rows->context,
                                 .layer         = rows->layer,
                                 .wants         = HL_WANT_PATTERN,
                                 .pattern_heads = rows->heads };

    HL_NEED(HL_ALLOC(&places, (size_t)prompt->n_tokens));
    for (int64_t i = 0; i < prompt->n_tokens; i++)
        places[i] = i;
    for (int64_t first = 0; first < prompt->n_tokens; first += at_once) {
        int64_t left = prompt->n_tokens - first;

        tap.pattern_positions   = places + first;
        tap.n_pattern_positions = left < at_once ? left : at_once;
        HL_NEED(run_piece(session, prompt, &tap, first, rows->gates,
                          hl_model_get_info(model)->is_encoder));
        if (rows->piece != NULL)
            HL_NEED(rows->piece(rows->context, first, tap.n_pattern_positions));
    }
    return HL_OK;
}

hl_status hl_view_run(const hl_model *model, const hl_prompt *prompt, const hl_view_rows *rows)
{
    HL_CLOSED(hl_session_close) hl_session *session = NULL;

    int64_t at_once = rows->at_once > 0 ? rows->at_once : hl_view_at_once(model, prompt->n_tokens);

    HL_NEED(hl_session_open(&session, model,
                            &(hl_session_options){ .n_ctx      = prompt->n_tokens,
                                                   .n_patterns = at_once,
                                                   .wants      = HL_WANT_PATTERN,
                                                   .beyond_ctx = rows->beyond_ctx,
                                                   .n_threads  = rows->n_threads }));
    return run_pieces(session, model, prompt, rows, at_once);
}

/* ---------------------------------------------------------- a view of tokens */

enum { MOST_INSETS = 64 };

/* The state while a view is made. */
typedef struct watch {
    const hl_model      *model;
    const hl_model_info *info;
    hl_token_view       *view;
    bool                *wanted; /* (n_layers, n_heads) heads that any map needs */
    bool                *in_map; /* (n_maps, n_layers, n_heads) */
} watch;

static bool *member(const watch *w, int64_t map, int64_t layer, int64_t head)
{
    return &w->in_map[(map * w->info->n_layers + layer) * w->info->n_heads + head];
}

/* -------------------------------------------------------------- chosen heads */

static hl_status choose(const watch *w, int64_t map, hl_head choice)
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
        hl_layer_info layer = { 0 };

        HL_NEED(hl_model_get_layer(&layer, w->model, i));
        if (layer.n_heads > 0)
            HL_NEED(choose(w, 0, (hl_head){ i, -1 }));
    }
    return HL_OK;
}

static const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

static void name_choice(hl_token_map *map, hl_head choice)
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

/* Returns the number of heads that a map averages, and marks them as wanted. */
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

/* ------------------------------------------------------------- watching them */

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

/* ------------------------------------------------------------- a view, whole */

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
        status = hl_fail(HL_LIMIT, "%lld insets given; at most %d", (long long)options->n_insets,
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
