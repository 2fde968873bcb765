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
 * text file is read and tokenized in pieces of 256 KiB (corpus_pieces.h), whose tokens are
 * those of the whole text.  Beside that a corpus keeps 40 bytes a document.
 *
 * Files are read again when their documents are asked for.  One that has vanished or
 * has other content than when the corpus was opened is HL_BAD_INPUT, by name: what
 * the corpus's hash says is what was measured. */
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
    uint64_t       n_bytes; /* of the document that they stand for, about: for progress */
} hl_token_piece;

typedef struct hl_token_reader hl_token_reader;

/* Several readers of one corpus may be at work, each in its own thread. */
hl_status hl_token_reader_open(hl_token_reader **out, const hl_corpus *corpus, hl_around around);
void      hl_token_reader_close(hl_token_reader *reader);
HL_CLOSES(hl_token_reader_close, hl_token_reader)
/* Go to the start of a document. */
hl_status hl_token_reader_start(hl_token_reader *reader, int64_t document);
/* The next tokens; none at the end of the document.  The tokens that the tokenizer puts
 * around a text are among them with HL_AROUND_DOCUMENT only, and never around token ids. */
hl_status hl_token_reader_next(hl_token_piece *out, hl_token_reader *reader);
/* With HL_AROUND_WINDOW, what every window of this document begins and ends with; known after
 * its first tokens. */
hl_around_tokens hl_token_reader_around(const hl_token_reader *reader);

/* What the tokenizer puts around the texts of this corpus; nothing where they are token ids.
 * HL_BAD_INPUT for a token that the model does not have. */
hl_status hl_corpus_around(hl_around_tokens *out, const hl_corpus *corpus);

/* What stands between documents that are packed: the tokenizer's end-of-text token, or
 * else the model's; -1 if neither has one. */
int64_t hl_corpus_separator(const hl_corpus *corpus);
/* How many bytes of text a document that exists has. */
uint64_t hl_corpus_bytes_of(const hl_corpus *corpus, int64_t document);

#endif
