/* tokens.h - a growing list of tokens, with the bytes of the text that they stand for. */
#ifndef HL_TOKENIZE_TOKENS_H
#define HL_TOKENIZE_TOKENS_H

#include "base/buffer.h"

/* A token and the bytes [begin, end) of the text that it stands for. */
typedef struct hl_token {
    int32_t  id;
    uint32_t begin;
    uint32_t end;
} hl_token;

/* Starts as {0}; released with hl_tokens_free. */
typedef struct hl_tokens {
    hl_token *items;
    size_t    count;
    size_t    capacity;
} hl_tokens;

static inline hl_status hl_tokens_add(hl_tokens *tokens, int32_t id, size_t begin, size_t end)
{
    hl_status status = HL_GROW(&tokens->items, &tokens->capacity, tokens->count, 1);
    if (status == HL_OK)
        tokens->items[tokens->count++] = (hl_token){ id, (uint32_t)begin, (uint32_t)end };
    return status;
}

static inline void hl_tokens_free(hl_tokens *tokens)
{
    hl_free(tokens->items);
    *tokens = (hl_tokens){ 0 };
}

#endif
