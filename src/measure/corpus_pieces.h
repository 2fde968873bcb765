/* corpus_pieces.h - the tokens of a text of any length, in pieces.
 *
 * A text is tokenized in pieces that overlap.  Both neighbors have tokens for the bytes of the
 * overlap.  Once these agree on N_AGREE tokens in a row, text before the overlap no longer matters
 * to the right piece, nor text after it to the left one, and the two are joined in the middle of
 * the agreeing tokens:
 *
 *     left   ....|the|cat|sat|on|the|mat|an        the cut spoils the last word
 *     right              |at|on|the|mat|and|...    ... and the first
 *     joined ....|the|cat|sat|on|the|mat|and|...
 *
 * If they never agree (a word as long as the overlap), the left piece grows by the right one and
 * the next is twice as long: at worst a piece is the whole text. */
#ifndef HL_MEASURE_CORPUS_PIECES_H
#define HL_MEASURE_CORPUS_PIECES_H

#include "headlight/tokenizer.h"
#include "measure/corpus_parts.h"

#define HL_PIECE_BYTES   ((size_t)1 << 18)
#define HL_PIECE_OVERLAP ((size_t)1 << 15)

/* A text in a file, starting at byte `at`, or in memory. */
typedef struct hl_text_input {
    const hl_text_source *source; /* NULL: the text is in `memory` */
    uint64_t              at;
    const char           *memory;
    uint64_t              n_bytes;
} hl_text_input;

/* Tokens [begin, end) of an encoding, whose spans refer to `text`.  Borrowed until the next
 * call. */
typedef struct hl_text_piece {
    const hl_encoding *encoding;
    size_t             begin;
    size_t             end;
    const char        *text;
    size_t             n_text;
    uint64_t           at; /* offset of text[0] in the whole text */
    bool               last;
} hl_text_piece;

typedef struct hl_text_pieces hl_text_pieces;

/* Borrows the tokenizer. n_bytes is the size of a piece, HL_PIECE_BYTES except in tests.  A piece
 * overlaps the next by n_overlap, at most half of n_bytes. */
hl_status hl_text_pieces_new(hl_text_pieces **out, const hl_tokenizer *tokenizer,
                             const hl_encode_options *options, size_t n_bytes, size_t n_overlap);
void      hl_text_pieces_free(hl_text_pieces *pieces);

/* Begins another text, which must not change until its last piece. */
void hl_text_pieces_start(hl_text_pieces *pieces, const hl_text_input *input);
/* HL_BAD_INPUT where the text is not (or no longer) UTF-8.  After a failure the only valid call
 * is hl_text_pieces_start. */
hl_status hl_text_pieces_next(hl_text_piece *out, hl_text_pieces *pieces);
/* Hash of all bytes that have been read. */
uint64_t hl_text_pieces_hash(const hl_text_pieces *pieces);

#endif
