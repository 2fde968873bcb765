/* window.h - a corpus as batches of windows, ready to be fed to a session.
 *
 *     hl_windows *windows = NULL;
 *     HL_TRY(hl_windows_open(&windows, corpus, &options));    options as in headlight.h
 *     HL_TRY(hl_windows_seek(windows, &saved));               to resume, if a place was saved
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
 * is the context minus the tokens put around each window:
 *
 *     document       a b c d e f g h i j            context 6, stride 2
 *     window 0       B a b c d E                    B before, E after; room 4
 *     window 1       B c d e f E                    first_row 3: e, f and E count
 *     window 2       B e f g h E
 *
 * There is a next window as long as some token has not been counted.  Row r of a window counts
 * if r >= first_row.  first_row is 0 in the first window of a document; in all others it is the
 * end of the overlap, so that every token of the text counts exactly once.  Rows
 * [text_begin, text_end) are text.  A prediction is scored if its token is among these rows, has
 * a token before it in the window, and counts.
 *
 * Order.  Windows come in the order of the documents and within each from its
 * start, and the n-th is the same window whatever n_batch is.  Which windows are a part's
 * own does not depend on its batches either: whole documents, every n_parts-th, where there
 * are at least 8 documents per part; otherwise single windows, every n_parts-th, which
 * every part has to tokenize.  The latter is also the way with max_tokens and with
 * pack, which count across documents.
 *
 * max_tokens limits all parts together; the window that reaches it is cut short. */
#ifndef HL_MEASURE_WINDOW_H
#define HL_MEASURE_WINDOW_H

#include "base/memory.h"
#include "headlight/corpus.h"

/* The hash of a window's content, from which sampled rows are drawn. */
uint64_t hl_window_hash(const int64_t *tokens, int64_t n_tokens, int64_t first_row);

/* Where the next window of the whole job begins.  Save it, and hl_windows_seek continues from
 * there without reading the documents before it.  All zero is the start. */
typedef struct hl_window_place {
    int64_t document;
    int64_t token;     /* Index of the token in that document's text.  With HL_AROUND_DOCUMENT the
                        * tokens put before the text count too. */
    int64_t n_windows; /* Number of windows before this place, including those of other parts. If
                        * parts consist of whole documents, only this part's windows count. */
    int64_t n_counted; /* number of counted tokens in those windows */
    int64_t overlap;   /* number of the next window's rows that have been counted already */
} hl_window_place;

/* A batch for a session whose n_ctx is the context and whose n_batch is n_batch.  Everything is
 * borrowed until the second call after this one.  There are always n_batch sequences, as the
 * session expects; those from n_windows on have length 0. */
typedef struct hl_batch {
    int64_t        n_batch;
    int64_t        n_windows; /* 0: end of the corpus */
    int64_t        context;
    const int64_t *tokens;    /* (n_batch, context), 0 for padding */
    const uint8_t *types;     /* (n_batch, context), 0 for padding */
    const int64_t *lengths;   /* (n_batch) */
    const int64_t *first_row; /* (n_batch) rows before this one have been counted already */
    const int64_t *documents; /* (n_batch) document of row 0 */
    /* (n_batch) For messages: index in its document of the token of row 0.  The first row of text
     * has its own number, with the tokens before the document counted. */
    const int64_t *starts;
    const int64_t *text_begin; /* (n_batch) rows before this one were put before the text */
    const int64_t *text_end;   /* (n_batch) rows from this one on were put after the text */
    /* (n_batch) Hash of the window's tokens and first_row.  It depends on the content and not on
     * the place, so that it can decide about sampling. */
    const uint64_t *hashes;
    int64_t         n_counted; /* number of rows of this batch that count */
} hl_batch;

/* The per-window integers of a batch lie in one array, (HL_BATCH_PLACES, n_batch), in the order
 * of the members of hl_batch. */
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
/* Called before the first batch.  HL_BAD_INPUT for a place that the corpus does not have. */
hl_status hl_windows_seek(hl_windows *windows, const hl_window_place *place);

/* Share of the corpus read so far, 0 to 1, by bytes of text: for a progress bar. */
double hl_windows_progress(const hl_windows *windows);

/* ------------------------------------------------------------- reading ahead */

/* Batches of windows; each is read while the previous one is processed.
 *
 *     hl_ahead_new(&ahead, windows, true);
 *     while (hl_ahead_take(&batch, ahead) == HL_OK && batch.n_windows > 0) {
 *         ... the windows' place and progress are those after this batch ...
 *         hl_ahead_begin(ahead);
 *         ... work; the windows must not be used ...
 *     }
 *     hl_ahead_free(ahead); */
typedef struct hl_ahead hl_ahead;

/* Borrows the windows.  With in_thread false, each batch is read when it is taken. */
hl_status hl_ahead_new(hl_ahead **out, hl_windows *windows, bool in_thread);
/* Starts reading the next batch. */
void hl_ahead_begin(hl_ahead *ahead);
/* Returns the batch or an error.  Like hl_windows_next, the batch is borrowed; it stays valid
 * until the second take after this one. */
hl_status hl_ahead_take(hl_batch *out, hl_ahead *ahead);
/* Waits for a read in progress, then frees. */
void hl_ahead_free(hl_ahead *ahead);

#endif
