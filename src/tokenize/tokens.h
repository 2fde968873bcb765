/* tokens.h - a growing list of tokens: what models write. */
#ifndef HL_TOKENIZE_TOKENS_H
#define HL_TOKENIZE_TOKENS_H

#include "headlight.h"

/* A token and the bytes [begin, end) of the text that it stands for. */
typedef struct hl_token {
    int32_t  id;
    uint32_t begin;
    uint32_t end;
} hl_token;

typedef struct hl_tokens {
    hl_token *items;
    size_t    count;
    size_t    capacity;
} hl_tokens;

hl_status hl_tokens_add(hl_tokens *tokens, int32_t id, size_t begin, size_t end);
void      hl_tokens_free(hl_tokens *tokens);

#endif
