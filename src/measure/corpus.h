/* corpus.h - tokens of one document after another, without holding more than a piece.
 *
 *     hl_token_reader *reader = NULL;
 *     HL_TRY(hl_token_reader_open(&reader, corpus, HL_AROUND_DOCUMENT));
 *     for (int64_t document = 0; document < info->n_documents; document++) {
 *         HL_TRY(hl_token_reader_start(reader, document));
 *         do {
 *             HL_TRY(hl_token_reader_next(&piece, reader));
 *             ... piece.ids[i], piece.types[i], i < piece.n_tokens ...
 *         } while (piece.n_tokens > 0);
 *     }
 *   done:
 *     hl_token_reader_close(reader);
 *
 * What a corpus is, and how to open one, is in headlight.h.
 *
 * Memory: a document of a JSONL file or of token ids is held whole, one at a time; a
 * text file is read and tokenized in pieces of 256 KiB (corpus_parts.h), whose tokens are
 * those of the whole text.  In addition, a corpus keeps 40 bytes per document.
 *
 * Files are read again when their documents are requested.  A file that has vanished or
 * changed since the corpus was opened is HL_BAD_INPUT, with its name: the corpus's hash always
 * describes what was measured. */
#ifndef HL_MEASURE_CORPUS_H
#define HL_MEASURE_CORPUS_H

#include "base/memory.h"
#include "headlight/corpus.h"

HL_CLOSES(hl_corpus_close, hl_corpus)

/* Tokens that follow each other in a document.  Borrowed until the next call. */
typedef struct hl_token_piece {
    const int64_t *ids;   /* (n_tokens) */
    const uint8_t *types; /* (n_tokens) below n_types of hl_corpus_info */
    size_t         n_tokens;
    uint64_t       n_bytes; /* bytes of the document that they cover, approximately: for progress */
} hl_token_piece;

typedef struct hl_token_reader hl_token_reader;

/* Several readers may read one corpus at the same time, each in its own thread. */
hl_status hl_token_reader_open(hl_token_reader **out, const hl_corpus *corpus, hl_around around);
void      hl_token_reader_close(hl_token_reader *reader);
HL_CLOSES(hl_token_reader_close, hl_token_reader)
/* Goes to the start of a document. */
hl_status hl_token_reader_start(hl_token_reader *reader, int64_t document);
/* Reads the next tokens; n_tokens is 0 at the end of the document.  The tokens that the tokenizer
 * puts around a text are included with HL_AROUND_DOCUMENT only, and never around token ids. */
hl_status hl_token_reader_next(hl_token_piece *out, hl_token_reader *reader);
/* With HL_AROUND_WINDOW: the tokens that every window of this document begins and ends with;
 * known after its first tokens. */
hl_around_tokens hl_token_reader_around(const hl_token_reader *reader);

/* The tokens that the tokenizer puts around the texts of this corpus; empty where documents are
 * token ids.  HL_BAD_INPUT for a token that the model does not have. */
hl_status hl_corpus_around(hl_around_tokens *out, const hl_corpus *corpus);

/* The token between packed documents: the tokenizer's end-of-text token, else the model's; -1 if
 * neither has one. */
int64_t hl_corpus_separator(const hl_corpus *corpus);
/* The number of bytes of text in a document, which must exist. */
uint64_t hl_corpus_bytes_of(const hl_corpus *corpus, int64_t document);

#endif
