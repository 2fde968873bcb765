/* window.h - a corpus as batches of windows, ready to be fed to a session.
 *
 *     hl_windows *windows = NULL;
 *     HL_TRY(hl_windows_open(&windows, corpus, &options));    options as in headlight.h
 *     HL_TRY(hl_windows_seek(windows, &saved));               to go on, if there is a place
 *     for (;;) {
 *         HL_TRY(hl_windows_next(&batch, windows));
 *         if (batch.n_windows == 0)
 *             break;
 *         hl_feed feed = { .tokens = batch.tokens, .n_tokens = batch.context,
 *                          .lengths = batch.lengths, .segments = batch.types,
 *                          .n_segments = info->n_types };
 *         ... rewind all sequences to 0, hl_session_feed, count rows from first_row[b] on ...
 *         hl_windows_place(&saved, windows);                  after this batch
 *     }
 *   done:
 *     hl_windows_close(windows);
 *
 * Window w of a document covers tokens [w * stride, w * stride + room) of its text, where room
 * is the context less what is put around each window:
 *
 *     document       a b c d e f g h i j            context 6, stride 2
 *     window 0       B a b c d E                    B before, E after; room 4
 *     window 1       B c d e f E                    first_row 3: e, f and E count
 *     window 2       B e f g h E
 *
 * There is a next one as long as tokens are left that no window has counted.  Row r of it
 * counts if r >= first_row, which is 0 in the first window of a document and, where windows
 * overlap, behind the overlap in all others, so that every token of the text counts exactly
 * once.  Rows [text_begin, text_end) are text: a prediction is scored if it is of a token
 * there, has a token before it in the window, and counts.
 *
 * Order.  Windows come in the order of the documents and within each from its
 * start, and the n-th is the same window whatever n_batch is.  Which windows are a part's
 * own does not depend on its batches either: whole documents, every n_parts-th, where there
 * are at least 8 documents a part; otherwise single windows, every n_parts-th, which
 * every part has to tokenize.  The latter is also the way with max_tokens and with
 * pack, which count across documents.
 *
 * max_tokens is over all parts together; the window in which it is reached is cut. */
#ifndef HL_MEASURE_WINDOW_H
#define HL_MEASURE_WINDOW_H

#include "base/memory.h"
#include "headlight/corpus.h"

/* Where the next window of the whole work begins: save it, and seek goes on from there,
 * with the documents before it left alone.  All zero is the start. */
typedef struct hl_window_place {
    int64_t document;
    int64_t token;     /* of that document's text, its first being 0; with HL_AROUND_DOCUMENT
                        * what stands before the text counts too */
    int64_t n_windows; /* before this place, those of other parts among them; where whole
                        * documents are dealt out, of this part alone */
    int64_t n_counted; /* tokens that counted in them */
    int64_t overlap;   /* of the next window's rows, how many have counted already */
} hl_window_place;

/* Fits a session whose n_ctx is the context and whose n_batch is n_batch.  Everything is
 * borrowed until the call after the next.  There are always n_batch sequences, as the
 * session wants it; those from n_windows on have length 0. */
typedef struct hl_batch {
    int64_t         n_batch;
    int64_t         n_windows; /* 0: the end */
    int64_t         context;
    const int64_t  *tokens;    /* (n_batch, context), 0 where padded */
    const uint8_t  *types;     /* (n_batch, context), 0 where padded */
    const int64_t  *lengths;   /* (n_batch) */
    const int64_t  *first_row; /* (n_batch) rows before it have counted already */
    const int64_t  *documents; /* (n_batch) the one that row 0 is of */
    const int64_t  *starts; /* (n_batch) which token of it row 0 is, for messages: the first row of
                                * text has its number, with what stands before the document counted */
    const int64_t  *text_begin; /* (n_batch) rows before it were put around the text */
    const int64_t  *text_end;   /* (n_batch) so were rows from it on */
    const uint64_t *hashes;     /* (n_batch) of the window's tokens and first_row: what it is,
                                * not where, so that it can decide about sampling */
    int64_t         n_counted;  /* rows of this batch that count */
} hl_batch;

/* Numbers of a window beside its tokens, and where a batch has them: (HL_BATCH_PLACES, n_batch), in
 * the order of its members. */
enum { HL_BATCH_PLACES = 6 };
void hl_batch_set_places(hl_batch *batch, const int64_t *places);

typedef struct hl_windows hl_windows;

/* Borrows the corpus.  HL_BAD_ARGUMENT for a context below 1, a stride beyond it, a part that
 * does not exist, pack without an end-of-text token, or no room for text. */
hl_status hl_windows_open(hl_windows **out, const hl_corpus *corpus,
                          const hl_window_options *options);
void      hl_windows_close(hl_windows *windows);
HL_CLOSES(hl_windows_close, hl_windows)
hl_status hl_windows_next(hl_batch *out, hl_windows *windows);
void      hl_windows_place(hl_window_place *out, const hl_windows *windows);
/* Before the first batch.  HL_BAD_INPUT for a place that the corpus does not have. */
hl_status hl_windows_seek(hl_windows *windows, const hl_window_place *place);

/* How much of the corpus has been passed, 0 to 1, by bytes of text: for a progress bar. */
double hl_windows_progress(const hl_windows *windows);

/* ------------------------------------------------------------- reading ahead */

/* Batches of windows, each read while the one before is worked on.
 *
 *     hl_ahead_new(&ahead, windows, true);
 *     while (hl_ahead_take(&batch, ahead) == HL_OK && batch.n_windows > 0) {
 *         ... windows stand behind this batch: their place, their progress ...
 *         hl_ahead_begin(ahead);
 *         ... work; the windows must be left alone ...
 *     }
 *     hl_ahead_free(ahead);
 */
typedef struct hl_ahead hl_ahead;

/* Borrows the windows.  in_thread: false has each batch read when it is taken. */
hl_status hl_ahead_new(hl_ahead **out, hl_windows *windows, bool in_thread);
/* The next batch begins to be read. */
void hl_ahead_begin(hl_ahead *ahead);
/* It, or what went wrong; as hl_windows_next, borrowed until the take after the next. */
hl_status hl_ahead_take(hl_batch *out, hl_ahead *ahead);
/* Waits for what is being read. */
void hl_ahead_free(hl_ahead *ahead);

#endif
