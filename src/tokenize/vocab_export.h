/* vocab_export.h - a tokenizer as a list of pieces: the way back of vocab_source.h.
 *
 *     HL_CLOSED(hl_vocab_export_free) hl_vocab_export *vocab = NULL;
 *     HL_NEED(hl_vocab_export_new(&vocab, tokenizer, d_vocab));
 *     HL_NEED(hl_gguf_add_vocab(writer, hl_vocab_export_source(vocab)));
 *
 * A pipeline of a tokenizer.json is one of the four kinds of vocab_source.h, step for step,
 * or it is HL_UNSUPPORTED, with the step that has no place there: a vocabulary that gives
 * other ids without anybody noticing is worse than none.  Two things are left out and said
 * instead, because files in use leave them out too: Unicode normal forms, and the white
 * space that an added token takes from beside it. */
#ifndef HL_TOKENIZE_VOCAB_EXPORT_H
#define HL_TOKENIZE_VOCAB_EXPORT_H

#include "base/memory.h"
#include "headlight/tokenizer.h"
#include "tokenize/vocab_source.h"

typedef struct hl_vocab_export hl_vocab_export;

/* `n_ids` pieces, as many as the model has embeddings: ids that the tokenizer lacks are
 * [PAD7], unused.  The tokenizer must outlive what is made. */
hl_status hl_vocab_export_new(hl_vocab_export **out, const hl_tokenizer *tokenizer, size_t n_ids);
void      hl_vocab_export_free(hl_vocab_export *vocab);
HL_CLOSES(hl_vocab_export_free, hl_vocab_export)

/* Borrowed, as all it points to; ids of special tokens that no file beside the tokenizer
 * named may be filled in. */
hl_vocab_source *hl_vocab_export_source(hl_vocab_export *vocab);
/* What was left out, in words; "" if nothing was.  Borrowed. */
const char *hl_vocab_export_note(const hl_vocab_export *vocab);

#endif
