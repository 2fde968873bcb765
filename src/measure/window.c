/* window.c - moves a window over documents, one after another.
 *
 * The window is an array of places for text: the context minus the tokens that are put around it.
 * It is filled from the reader, returned with these tokens around it, and moved by `stride`; the
 * rest of its text stays at its start as the overlap, which has been counted already.  Without pack
 * it is emptied at the end of each document; with pack the stream of tokens continues, with
 * separators between documents.
 *
 * Every place remembers which token of which document it holds, so the place of the next window is
 * always known. */
#include "measure/window.h"

#include <pthread.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/status.h"
#include "measure/corpus.h"

#define MAX_CONTEXT      ((int64_t)1 << 24)
#define MAX_BATCH        ((int64_t)1 << 16)
#define MAX_PARTS        ((int64_t)1 << 20)
#define DOCUMENTS_A_PART 8

/* One token and its origin. */
typedef struct held_token {
    int64_t id;
    uint8_t type;
    int64_t document;
    int64_t token;
} held_token;

/* Memory that a batch is read into. */
typedef struct batch_memory {
    int64_t  *tokens;
    uint8_t  *types;
    int64_t  *places; /* (HL_BATCH_PLACES, n_batch) lengths, first_row, ... */
    uint64_t *hashes;
} batch_memory;

struct hl_windows {
    const hl_corpus  *corpus;
    hl_window_options options;
    int64_t           n_documents;
    bool              by_document; /* parts consist of whole documents */
    hl_token_reader  *reader;

    /* The position in the stream of tokens. */
    int64_t        document; /* document being read; n_documents at the end */
    int64_t        token;    /* index of its next token */
    bool           is_open;  /* the reader is at that token */
    hl_token_piece piece;
    size_t         at; /* index in the piece */

    /* The current window. */
    hl_around_tokens around; /* tokens around the windows of the document being read */
    held_token      *held;   /* (context) tokens of text */
    int64_t          n_held;
    int64_t          overlap; /* number of these that have been counted before */
    int64_t          n_windows;
    int64_t          n_counted;
    bool             ended;

    /* The current batch and the previous one. */
    batch_memory batches[2];
    int          at_hand;

    /* Progress, in bytes of this part. */
    double n_bytes;
    double n_passed;       /* bytes of finished documents */
    double n_piece_passed; /* bytes of finished pieces of this document */
};

/* ---------------------------------------------------------------------- opening */

static hl_status set_options(hl_windows *windows, const hl_window_options *given)
{
    hl_window_options options = *given;
    hl_around_tokens  around;

    options.n_batch = options.n_batch == 0 ? 1 : options.n_batch;
    options.n_parts = options.n_parts == 0 ? 1 : options.n_parts;
    options.stride  = options.stride == 0 ? options.n_ctx : options.stride;
    HL_NEED(hl_check_count("context", options.n_ctx, 1, MAX_CONTEXT));
    HL_NEED(hl_check_count("stride", options.stride, 1, options.n_ctx));
    HL_NEED(hl_check_count("batch", options.n_batch, 1, MAX_BATCH));
    HL_NEED(hl_check_count("the number of parts", options.n_parts, 1, MAX_PARTS));
    HL_NEED(hl_check_count("part", options.part, 0, options.n_parts - 1));
    HL_NEED(hl_check_count("max_tokens", options.max_tokens, 0, INT64_MAX));
    if ((unsigned)options.around > HL_AROUND_NONE)
        return hl_fail(HL_BAD_ARGUMENT, "windows: no way %d to put special tokens around",
                       (int)options.around);
    HL_NEED(hl_corpus_around(&around, windows->corpus));
    if (options.around == HL_AROUND_WINDOW &&
        options.n_ctx <= (int64_t)(around.n_before + around.n_after))
        return hl_fail(HL_BAD_ARGUMENT,
                       "a context of %lld leaves no room for text: the tokenizer adds %zu token%s "
                       "to every window; use --context %zu or more",
                       (long long)options.n_ctx, around.n_before + around.n_after,
                       around.n_before + around.n_after == 1 ? "" : "s",
                       around.n_before + around.n_after + 1);
    if (options.around == HL_AROUND_WINDOW && options.pack)
        windows->around = around;
    if (options.pack && hl_corpus_separator(windows->corpus) < 0)
        return hl_fail(HL_BAD_ARGUMENT, "--pack: neither tokenizer nor model has an end-of-text "
                                        "token to put between documents");
    windows->options     = options;
    windows->by_document = options.n_parts > 1 && !options.pack && options.max_tokens == 0 &&
                           windows->n_documents / DOCUMENTS_A_PART >= options.n_parts;
    return HL_OK;
}

/* Returns true if this part reads the document. */
static bool is_ours(const hl_windows *windows, int64_t document)
{
    return !windows->by_document || document % windows->options.n_parts == windows->options.part;
}

static double bytes_of(const hl_windows *windows, int64_t document)
{
    return (double)hl_corpus_bytes_of(windows->corpus, document);
}

static hl_status allocate(hl_windows *windows)
{
    size_t context = (size_t)windows->options.n_ctx;
    size_t n_batch = (size_t)windows->options.n_batch;

    HL_NEED(HL_ALLOC(&windows->held, context));
    for (int i = 0; i < 2; i++) {
        batch_memory *memory = &windows->batches[i];

        HL_NEED(HL_ALLOC(&memory->tokens, context * n_batch)); /* the product is at most 2^40 */
        HL_NEED(HL_ALLOC(&memory->types, context * n_batch));
        HL_NEED(HL_ALLOC(&memory->places, HL_BATCH_PLACES * n_batch));
        HL_NEED(HL_ALLOC(&memory->hashes, n_batch));
    }
    return HL_OK;
}

/* Goes to the first document of this part, from this one on. */
static void go_to_document(hl_windows *windows, int64_t document)
{
    while (document < windows->n_documents && !is_ours(windows, document))
        document++;
    windows->document       = document;
    windows->token          = 0;
    windows->is_open        = false;
    windows->n_piece_passed = 0.0;
}

hl_status hl_windows_open(hl_windows **out, const hl_corpus *corpus,
                          const hl_window_options *options)
{
    HL_CLOSED(hl_windows_close) hl_windows *windows = NULL;

    *out = NULL;
    if (corpus == NULL || options == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "windows: no corpus or no options");
    HL_NEED(HL_ALLOC_ZEROED(&windows, 1));
    windows->corpus      = corpus;
    windows->n_documents = hl_corpus_get_info(corpus)->n_documents;
    HL_NEED(set_options(windows, options));
    HL_NEED(allocate(windows));
    HL_NEED(hl_token_reader_open(&windows->reader, corpus, options->around));
    for (int64_t i = 0; i < windows->n_documents; i++)
        windows->n_bytes += is_ours(windows, i) ? bytes_of(windows, i) : 0.0;
    go_to_document(windows, 0);
    *out = hl_taken(&windows);
    return HL_OK;
}

void hl_windows_close(hl_windows *windows)
{
    if (windows == NULL)
        return;
    hl_token_reader_close(windows->reader);
    hl_free(windows->held);
    for (int i = 0; i < 2; i++) {
        hl_free(windows->batches[i].tokens);
        hl_free(windows->batches[i].types);
        hl_free(windows->batches[i].places);
        hl_free(windows->batches[i].hashes);
    }
    hl_free(windows);
}

/* --------------------------------------------------------------- the token stream */

/* Reads the next piece of the document when this one is used up; n_tokens is 0 at its end.  With
 * pack, all documents are one text with the same tokens around it. */
static hl_status next_piece(hl_windows *windows)
{
    if (windows->at < windows->piece.n_tokens)
        return HL_OK;
    windows->n_piece_passed += (double)windows->piece.n_bytes;
    windows->at      = 0;
    hl_status status = hl_token_reader_next(&windows->piece, windows->reader);
    if (!windows->options.pack)
        windows->around = hl_token_reader_around(windows->reader);
    return status;
}

static hl_status open_document(hl_windows *windows)
{
    if (windows->is_open)
        return HL_OK;
    windows->piece   = (hl_token_piece){ 0 };
    windows->at      = 0;
    windows->is_open = true;
    return hl_token_reader_start(windows->reader, windows->document);
}

static void take(held_token *out, hl_windows *windows, int64_t id, uint8_t type)
{
    *out = (held_token){ id, type, windows->document, windows->token++ };
}

/* Reads the next token of the document or, with pack, the separator after it; *there is false if
 * there is none. */
static hl_status next_token(held_token *out, bool *there, hl_windows *windows)
{
    *there = true;
    HL_NEED(open_document(windows));
    HL_NEED(next_piece(windows));
    if (windows->at < windows->piece.n_tokens) {
        take(out, windows, windows->piece.ids[windows->at], windows->piece.types[windows->at]);
        windows->at++;
        return HL_OK;
    }
    windows->n_passed += bytes_of(windows, windows->document);
    bool separated = windows->options.pack && windows->document + 1 < windows->n_documents;
    if (separated)
        take(out, windows, hl_corpus_separator(windows->corpus), HL_TYPE_SPECIAL);
    *there = separated;
    go_to_document(windows, windows->document + 1);
    return HL_OK;
}

/* ---------------------------------------------------------------------- the window */

/* Returns the room for text in a window of the document that was read last. */
static int64_t room_for_text(const hl_windows *windows)
{
    return windows->options.n_ctx - (int64_t)(windows->around.n_before + windows->around.n_after);
}

static int64_t window_length(const hl_windows *windows)
{
    return windows->n_held + (int64_t)(windows->around.n_before + windows->around.n_after);
}

static int64_t first_row(const hl_windows *windows)
{
    return windows->overlap > 0 ? windows->overlap + (int64_t)windows->around.n_before : 0;
}

/* Fills the window with the rest of the document or, with pack, of all documents.  The room of its
 * windows is known after the document's first token, and is at least one token. */
static hl_status fill(hl_windows *windows, bool *document_ended)
{
    *document_ended = false;
    while (windows->n_held < room_for_text(windows) && windows->document < windows->n_documents &&
           !*document_ended) {
        bool there = false;
        HL_NEED(next_token(&windows->held[windows->n_held], &there, windows));
        windows->n_held += there;
        *document_ended = !there && !windows->options.pack;
    }
    return HL_OK;
}

/* After a window, keeps the overlap, or nothing at the end of a document. */
static void slide(hl_windows *windows, bool document_ended)
{
    int64_t stays = room_for_text(windows) - windows->options.stride;

    if (document_ended || windows->n_held < room_for_text(windows) || stays < 0)
        stays = 0;
    memmove(windows->held, windows->held + windows->n_held - stays,
            (size_t)stays * sizeof *windows->held);
    windows->n_held  = stays;
    windows->overlap = stays;
}

/* Fills the window as the next one of all parts; *there is false at the end. */
static hl_status next_window(bool *there, bool *document_ended, hl_windows *windows)
{
    int64_t limit = windows->options.max_tokens;

    *there          = false;
    *document_ended = false;
    while (!windows->ended) {
        HL_NEED(fill(windows, document_ended));
        if (windows->n_held > windows->overlap)
            break;
        slide(windows, true); /* all tokens of this document have been counted */
        windows->ended = windows->document == windows->n_documents;
    }
    if (windows->ended)
        return HL_OK;
    int64_t n_new = window_length(windows) - first_row(windows);
    if (limit > 0 && n_new >= limit - windows->n_counted) {
        windows->n_held -= n_new - (limit - windows->n_counted);
        windows->ended = true;
        if (windows->n_held <= windows->overlap) /* the window would have no new text */
            return HL_OK;
        n_new = limit - windows->n_counted;
    }
    windows->n_windows++;
    windows->n_counted += n_new;
    *there = true;
    return HL_OK;
}

/* ----------------------------------------------------------------------- the batch */

uint64_t hl_window_hash(const int64_t *tokens, int64_t n_tokens, int64_t first_row)
{
    hl_hasher hasher;

    hl_hash_start(&hasher, (uint64_t)first_row);
    for (int64_t i = 0; i < n_tokens; i++)
        hl_hash_add_u32(&hasher, (uint32_t)tokens[i]);
    return hl_hash_end(&hasher);
}

static void put_around(int64_t *tokens, uint8_t *types, const int64_t *ids, size_t n_ids)
{
    for (size_t i = 0; i < n_ids; i++) {
        tokens[i] = ids[i];
        types[i]  = HL_TYPE_SPECIAL;
    }
}

/* Copies the window to sequence b of the batch. */
static void put_window(hl_windows *windows, int64_t b)
{
    batch_memory           *memory = &windows->batches[windows->at_hand];
    const hl_around_tokens *around = &windows->around;
    int64_t                 begin  = (int64_t)around->n_before;
    int64_t                 end    = begin + windows->n_held;
    int64_t                *tokens = memory->tokens + b * windows->options.n_ctx;
    uint8_t                *types  = memory->types + b * windows->options.n_ctx;

    put_around(tokens, types, around->before, around->n_before);
    for (int64_t i = 0; i < windows->n_held; i++) {
        tokens[begin + i] = windows->held[i].id;
        types[begin + i]  = windows->held[i].type;
    }
    put_around(tokens + end, types + end, around->after, around->n_after);

    const int64_t places[HL_BATCH_PLACES] = {
        window_length(windows),
        first_row(windows),
        windows->held[0].document,
        windows->held[0].token,
        begin,
        end,
    };
    for (int64_t i = 0; i < HL_BATCH_PLACES; i++)
        memory->places[b + i * windows->options.n_batch] = places[i];
    memory->hashes[b] = hl_window_hash(tokens, window_length(windows), first_row(windows));
}

/* Returns the memory of the batch before the previous one, cleared. */
static batch_memory *new_batch(hl_windows *windows)
{
    size_t context = (size_t)windows->options.n_ctx;
    size_t n_batch = (size_t)windows->options.n_batch;

    windows->at_hand     = 1 - windows->at_hand;
    batch_memory *memory = &windows->batches[windows->at_hand];

    memset(memory->tokens, 0, context * n_batch * sizeof *memory->tokens);
    memset(memory->types, 0, context * n_batch);
    memset(memory->places, 0, HL_BATCH_PLACES * n_batch * sizeof *memory->places);
    memset(memory->hashes, 0, n_batch * sizeof *memory->hashes);
    return memory;
}

void hl_batch_set_places(hl_batch *batch, const int64_t *places)
{
    int64_t n = batch->n_batch;

    batch->lengths    = places;
    batch->first_row  = places + n;
    batch->documents  = places + 2 * n;
    batch->starts     = places + 3 * n;
    batch->text_begin = places + 4 * n;
    batch->text_end   = places + 5 * n;
}

hl_status hl_windows_next(hl_batch *out, hl_windows *windows)
{
    const hl_window_options *options = &windows->options;
    int64_t                  n       = options->n_batch;
    const batch_memory      *memory  = new_batch(windows);
    bool                     there = true, document_ended = false;

    *out = (hl_batch){ .n_batch = n,
                       .context = options->n_ctx,
                       .tokens  = memory->tokens,
                       .types   = memory->types,
                       .hashes  = memory->hashes };
    hl_batch_set_places(out, memory->places);
    while (out->n_windows < n) {
        hl_status status = next_window(&there, &document_ended, windows);
        if (status != HL_OK || !there)
            return status;
        if (windows->by_document || (windows->n_windows - 1) % options->n_parts == options->part) {
            put_window(windows, out->n_windows++);
            out->n_counted += window_length(windows) - first_row(windows);
        }
        slide(windows, document_ended);
    }
    return HL_OK;
}

/* ----------------------------------------------------------------------- the place */

void hl_windows_place(hl_window_place *out, const hl_windows *windows)
{
    bool overlaps = windows->n_held > 0;

    *out = (hl_window_place){
        .document  = overlaps ? windows->held[0].document : windows->document,
        .token     = overlaps ? windows->held[0].token : windows->token,
        .n_windows = windows->n_windows,
        .n_counted = windows->n_counted,
        .overlap   = windows->overlap,
    };
    if (windows->ended)
        *out = (hl_window_place){ .document  = windows->n_documents,
                                  .n_windows = windows->n_windows,
                                  .n_counted = windows->n_counted };
}

static hl_status check_place(const hl_windows *windows, const hl_window_place *place)
{
    HL_NEED(hl_check_count("document", place->document, 0, windows->n_documents));
    HL_NEED(hl_check_count("token", place->token, 0, INT64_MAX));
    HL_NEED(hl_check_count("the number of windows", place->n_windows, 0, INT64_MAX));
    HL_NEED(hl_check_count("the number of tokens", place->n_counted, 0, INT64_MAX));
    HL_NEED(hl_check_count("the overlap", place->overlap, 0,
                           windows->options.n_ctx - windows->options.stride));
    if (place->document < windows->n_documents && !is_ours(windows, place->document))
        return hl_fail(HL_BAD_INPUT, "document %lld belongs to another part",
                       (long long)place->document);
    return HL_OK;
}

/* Drops the tokens of a document before the place to seek. */
static hl_status drop_tokens(hl_windows *windows, int64_t n_tokens)
{
    held_token unused;

    while (windows->token < n_tokens) {
        int64_t document = windows->document;
        bool    there    = false;
        HL_NEED(next_token(&unused, &there, windows));
        if (windows->document != document) /* this token, or the separator after it, was the last */
            return hl_fail(HL_BAD_INPUT, "document %lld has no token %lld", (long long)document,
                           (long long)n_tokens);
    }
    return HL_OK;
}

hl_status hl_windows_seek(hl_windows *windows, const hl_window_place *place)
{
    hl_status status = check_place(windows, place);

    if (status != HL_OK)
        return hl_fail_within(HL_BAD_INPUT, "the place to continue from");
    windows->n_held    = 0;
    windows->overlap   = place->overlap;
    windows->n_windows = place->n_windows;
    windows->n_counted = place->n_counted;
    windows->ended     = place->document == windows->n_documents;
    windows->n_passed  = 0.0;
    for (int64_t i = 0; i < place->document; i++)
        windows->n_passed += is_ours(windows, i) ? bytes_of(windows, i) : 0.0;
    go_to_document(windows, place->document);
    return drop_tokens(windows, windows->ended ? 0 : place->token);
}

double hl_windows_progress(const hl_windows *windows)
{
    const hl_token_piece *piece = &windows->piece;
    double                done  = windows->n_passed;

    if (windows->ended)
        return 1.0;
    if (windows->is_open) {
        double share = piece->n_tokens > 0 ? (double)windows->at / (double)piece->n_tokens : 0.0;
        done += windows->n_piece_passed + share * (double)piece->n_bytes;
    }
    double progress = windows->n_bytes > 0.0 ? done / windows->n_bytes : 0.0;
    if (windows->options.max_tokens > 0) {
        double counted = (double)windows->n_counted / (double)windows->options.max_tokens;
        progress       = counted > progress ? counted : progress;
    }
    return progress < 1.0 ? progress : 1.0;
}

/* ------------------------------------------------------------- reading ahead */

/* On a GPU, reading and tokenizing take a few percent of the time; a thread does it so that the GPU
 * is not idle between batches.  On the CPU, which has no idle time, a batch is read when it is
 * needed. */

struct hl_ahead {
    hl_windows   *windows;
    bool          in_thread; /* false: the batch is read when it is taken */
    bool          is_running;
    pthread_t     thread;
    hl_batch      batch;
    hl_kept_error error; /* error of the thread, kept because the thread's own message ends with
                          * it */
};

hl_status hl_ahead_new(hl_ahead **out, hl_windows *windows, bool in_thread)
{
    HL_NEED(HL_ALLOC_ZEROED(out, 1));
    (*out)->windows   = windows;
    (*out)->in_thread = in_thread;
    return HL_OK;
}

static void *read_batch(void *context)
{
    hl_ahead *ahead = context;

    hl_keep_error(&ahead->error, hl_windows_next(&ahead->batch, ahead->windows));
    return NULL;
}

/* If no thread can be started, the batch is read when it is taken. */
void hl_ahead_begin(hl_ahead *ahead)
{
    ahead->is_running =
        ahead->in_thread && pthread_create(&ahead->thread, NULL, read_batch, ahead) == 0;
}

hl_status hl_ahead_take(hl_batch *out, hl_ahead *ahead)
{
    if (!ahead->is_running)
        return hl_windows_next(out, ahead->windows);
    pthread_join(ahead->thread, NULL);
    ahead->is_running = false;
    HL_NEED(hl_fail_kept(&ahead->error));
    *out = ahead->batch;
    return HL_OK;
}

void hl_ahead_free(hl_ahead *ahead)
{
    if (ahead == NULL)
        return;
    if (ahead->is_running)
        pthread_join(ahead->thread, NULL);
    hl_free(ahead);
}
