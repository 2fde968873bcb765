/* postprocess.c - special tokens before and after, and trimmed spans. */
#include "tokenize/postprocess.h"

#include "base/status.h"
#include "base/utf8.h"
#include "tokenize/unicode.h"

#define SPELLED_SPACE 0x120U /* Ġ */

hl_status hl_postprocessor_add(hl_postprocessor *post, bool after, int32_t id)
{
    int32_t *ids   = after ? post->after : post->before;
    size_t  *count = after ? &post->n_after : &post->n_before;

    if (*count >= HL_MAX_AROUND)
        return hl_fail(HL_BAD_INPUT, "more than %d special tokens %s a text", HL_MAX_AROUND,
                       after ? "after" : "before");
    ids[(*count)++] = id;
    return HL_OK;
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
