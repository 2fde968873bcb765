/* postprocess.h - what is put around the tokens of a text. */
#ifndef HL_TOKENIZE_POSTPROCESS_H
#define HL_TOKENIZE_POSTPROCESS_H

#include "base/buffer.h"
#include "tokenize/tokens.h"
#include "tokenize/vocab.h"

/* A list of special tokens with the text somewhere among them, and whether spaces are
 * taken off the ends of spans. */
typedef struct hl_postprocessor {
    int32_t *before; /* (n_before) ids */
    size_t   n_before;
    size_t   before_capacity;
    int32_t *after; /* (n_after) ids */
    size_t   n_after;
    size_t   after_capacity;
    bool     trim;
    bool     prefix_space; /* the first token's space was put there by us: keep it */
} hl_postprocessor;

hl_status hl_postprocessor_add_before(hl_postprocessor *post, int32_t id);
hl_status hl_postprocessor_add_after(hl_postprocessor *post, int32_t id);
void      hl_postprocessor_free(hl_postprocessor *post);

/* Takes spaces off the spans, where the file asks for that. */
void hl_postprocessor_trim(hl_tokens *tokens, const hl_postprocessor *post, const hl_vocab *vocab);

#endif
