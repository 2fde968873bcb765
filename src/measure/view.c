/* view.c - tokens as they are shown.
 *
 * What a token stands for depends on its tokenizer: byte-level pieces are spelled in an
 * alphabet of their own and decode to bytes, which may be part of a character; SentencePiece
 * writes spaces as U+2581, and decoding a token alone would drop the one it begins with;
 * WordPiece's ## is worth seeing.  So the first kind is decoded and the others are shown as
 * they are spelled.  What cannot be seen then gets a sign that can:
 *
 *     space and U+2581   \u00b7
 *     line end           \u23ce
 *     tab                \u21e5
 *     not UTF-8          \xe4, byte by byte
 *     control, and what turns or hides other text (U+202E ...)   \u202e */
#include "measure/view.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/printable.h"
#include "base/status.h"
#include "base/utf8.h"

/* ------------------------------------------------------------------- characters */

/* No character becomes longer than this. */
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

/* ----------------------------------------------------------------------- tokens */

/* Does the piece say best what the token is? */
static bool shows_piece(const hl_tokenizer *tokenizer, hl_token_type type, const char *piece)
{
    return type == HL_TOKEN_SPECIAL || type == HL_TOKEN_BYTE || type == HL_TOKEN_UNKNOWN ||
           strcmp(hl_tokenizer_kind(tokenizer), "WordPiece") == 0 ||
           strstr(piece, "\u2581") != NULL;
}

static hl_status name_known(hl_view_token *out, const hl_tokenizer *tokenizer, const char *piece,
                            size_t n_piece)
{
    hl_status     status  = HL_OK;
    hl_token_type type    = hl_tokenizer_type(tokenizer, (int32_t)out->id);
    int32_t       id      = (int32_t)out->id;
    char         *decoded = NULL;
    size_t        n_bytes = 0;

    out->is_marked = type == HL_TOKEN_SPECIAL;
    if (!shows_piece(tokenizer, type, piece))
        HL_TRY(hl_tokenizer_decode(&decoded, &n_bytes, tokenizer, &id, 1, NULL));
    /* A token that decodes to nothing is still something. */
    HL_TRY(n_bytes > 0 ? make_visible(&out->text, decoded, n_bytes)
                       : make_visible(&out->text, piece, n_piece));

done:
    hl_free(decoded);
    return status;
}

hl_status hl_view_name_token(hl_view_token *out, const hl_tokenizer *tokenizer, int64_t id)
{
    const char *piece   = NULL;
    size_t      n_piece = 0;
    char        number[24];

    *out = (hl_view_token){ .id = id };
    if (tokenizer != NULL && id >= 0 && id <= INT32_MAX)
        piece = hl_tokenizer_piece(tokenizer, (int32_t)id, &n_piece);
    if (piece != NULL)
        return name_known(out, tokenizer, piece, n_piece);
    snprintf(number, sizeof number, "#%lld", (long long)id);
    return hl_strdup(&out->text, number);
}

hl_status hl_view_check_prompt(const hl_prompt *prompt)
{
    if (prompt->n_tokens <= 0)
        return hl_fail(HL_BAD_ARGUMENT, "the prompt has no tokens: there is nothing to look at");
    if (prompt->n_tokens > HL_VIEW_MOST_TOKENS)
        return hl_fail(HL_LIMIT, "the prompt has %lld tokens; at most %d can be looked at",
                       (long long)prompt->n_tokens, (int)HL_VIEW_MOST_TOKENS);
    return HL_OK;
}

hl_status hl_view_check_head(int64_t *n_heads, const hl_model *model, hl_head_choice choice)
{
    int64_t       n_layers = hl_model_get_info(model)->n_layers;
    hl_layer_info layer    = { 0 };

    *n_heads = 0;
    if (choice.layer < 0 || choice.layer >= n_layers)
        return hl_fail(HL_BAD_ARGUMENT, "there is no layer %lld: the model has %lld, from 0 on",
                       (long long)choice.layer, (long long)n_layers);
    hl_status status = hl_model_get_layer(&layer, model, choice.layer);
    if (status != HL_OK)
        return status;
    if (choice.head < -1 || choice.head >= layer.n_heads || layer.n_heads == 0)
        return hl_fail(HL_BAD_ARGUMENT,
                       "there is no head %lld in layer %lld, which has %lld, from 0 on",
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
