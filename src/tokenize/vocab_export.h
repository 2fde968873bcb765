/* vocab_export.h - a tokenizer as a list of pieces: the inverse of vocab_source.h.
 *
 *     HL_CLOSED(hl_vocab_export_free) hl_vocab_export *vocab = NULL;
 *     HL_NEED(hl_vocab_export_new(&vocab, tokenizer, d_vocab));
 *     HL_NEED(hl_gguf_add_vocab(writer, hl_vocab_export_source(vocab)));
 *
 * The pipeline of a tokenizer.json must match one of the four kinds of vocab_source.h step
 * for step.  Otherwise it is HL_UNSUPPORTED, and the message names the step that does not
 * fit: a vocabulary that silently gives other ids is worse than none.  Two things are left
 * out and reported in a note, because files in use leave them out too: Unicode normal forms,
 * and the white space that an added token consumes beside it. */
#ifndef HL_TOKENIZE_VOCAB_EXPORT_H
#define HL_TOKENIZE_VOCAB_EXPORT_H

#include "base/memory.h"
#include "headlight/tokenizer.h"
#include "tokenize/vocab_source.h"

typedef struct hl_vocab_export hl_vocab_export;

/* Exports `n_ids` pieces, one per embedding of the model.  An id that the tokenizer lacks, such
 * as 7, becomes the unused piece [PAD7].  The tokenizer must outlive the export. */
hl_status hl_vocab_export_new(hl_vocab_export **out, const hl_tokenizer *tokenizer, size_t n_ids);
void      hl_vocab_export_free(hl_vocab_export *vocab);
HL_CLOSES(hl_vocab_export_free, hl_vocab_export)

/* The source and everything it points to are borrowed.  The caller may fill in ids of special
 * tokens that no file beside the tokenizer names. */
hl_vocab_source *hl_vocab_export_source(hl_vocab_export *vocab);
/* What was left out, in words; "" if nothing was.  Borrowed. */
const char *hl_vocab_export_note(const hl_vocab_export *vocab);

#endif
