/* tokens.c - a growing list of tokens. */
#include "tokenize/tokens.h"

#include "tokenize/buffer.h"

hl_status hl_tokens_add(hl_tokens *tokens, int32_t id, size_t begin, size_t end)
{
    hl_status status = HL_GROW(&tokens->items, &tokens->capacity, tokens->count, 1);
    if (status == HL_OK)
        tokens->items[tokens->count++] = (hl_token){ id, (uint32_t)begin, (uint32_t)end };
    return status;
}

void hl_tokens_free(hl_tokens *tokens)
{
    hl_free(tokens->items);
    *tokens = (hl_tokens){ 0 };
}
