/* postprocess.h - what is put around the tokens of a text. */
#ifndef HL_TOKENIZE_POSTPROCESS_H
#define HL_TOKENIZE_POSTPROCESS_H

#include "tokenize/tokens.h"
#include "tokenize/vocab.h"

#define HL_MAX_AROUND 64 /* tokens on either side */

/* A list of special tokens with the text somewhere among them, and whether spaces are
 * taken off the ends of spans. */
typedef struct hl_postprocessor {
    int32_t before[HL_MAX_AROUND]; /* (n_before) ids */
    size_t  n_before;
    int32_t after[HL_MAX_AROUND]; /* (n_after) ids */
    size_t  n_after;
    bool    trim;
    bool    prefix_space; /* the first token's space was put there by us: keep it */
} hl_postprocessor;

/* Another token at the end of those after the text, or of those before it. */
hl_status hl_postprocessor_add(hl_postprocessor *post, bool after, int32_t id);

/* Takes spaces off the spans, where the file asks for that. */
void hl_postprocessor_trim(hl_tokens *tokens, const hl_postprocessor *post, const hl_vocab *vocab);

#endif
