/* postprocess.c - special tokens before and after, and trimmed spans. */
#include "tokenize/postprocess.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"
#include "tokenize/tokens.h"
#include "tokenize/unicode.h"

#define MAX_AROUND    64
#define SPELLED_SPACE 0x120U /* Ġ */

hl_status hl_postprocessor_add_before(hl_postprocessor *post, int32_t id)
{
    if (post->n_before >= MAX_AROUND)
        return hl_fail(HL_BAD_INPUT, "more than %d special tokens before a text", MAX_AROUND);
    hl_status status = HL_GROW(&post->before, &post->before_capacity, post->n_before, 1);
    if (status == HL_OK)
        post->before[post->n_before++] = id;
    return status;
}

hl_status hl_postprocessor_add_after(hl_postprocessor *post, int32_t id)
{
    if (post->n_after >= MAX_AROUND)
        return hl_fail(HL_BAD_INPUT, "more than %d special tokens after a text", MAX_AROUND);
    hl_status status = HL_GROW(&post->after, &post->after_capacity, post->n_after, 1);
    if (status == HL_OK)
        post->after[post->n_after++] = id;
    return status;
}

void hl_postprocessor_free(hl_postprocessor *post)
{
    hl_free(post->before);
    hl_free(post->after);
    *post = (hl_postprocessor){ 0 };
}

static bool is_space(uint32_t c)
{
    return c == SPELLED_SPACE || hl_char_is(HL_CHAR_WHITESPACE, c);
}

/* How many spaces a spelling starts and ends with. */
static void count_spaces(uint32_t *leading, uint32_t *trailing, hl_bytes spelling)
{
    bool only_spaces = true;

    *leading = *trailing = 0;
    if (hl_utf8_find_bad(spelling.data, spelling.n_bytes) < spelling.n_bytes)
        return;
    for (size_t at = 0; at < spelling.n_bytes;) {
        bool space  = is_space(hl_utf8_next(spelling.data, &at));
        only_spaces = only_spaces && space;
        *leading += only_spaces;
        *trailing = space ? *trailing + 1 : 0;
    }
}

void hl_postprocessor_trim(hl_tokens *tokens, const hl_postprocessor *post, const hl_vocab *vocab)
{
    for (size_t i = 0; i < tokens->count && post->trim; i++) {
        hl_token *token    = &tokens->items[i];
        hl_bytes  spelling = hl_vocab_spelling(vocab, token->id);
        uint32_t  leading, trailing;

        if (spelling.data == NULL)
            continue;
        count_spaces(&leading, &trailing, spelling);
        bool first = i == 0 || token->begin == 0;
        if (first && post->prefix_space && leading == 1)
            leading = 0;
        if (leading > token->end - token->begin)
            leading = token->end - token->begin;
        token->begin += leading;
        if (trailing > token->end - token->begin)
            trailing = token->end - token->begin;
        token->end -= trailing;
    }
}
