/* headlight/corpus.h - texts, and the windows of tokens that they are cut into.
 * Part of headlight.h, which see for the conventions. */
#ifndef HEADLIGHT_CORPUS_H
#define HEADLIGHT_CORPUS_H

#include "model.h"
#include "tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ texts
 *
 *     const char        *inputs[] = { "books", "*.jsonl", "-" };
 *     hl_corpus_options  options  = { .inputs = inputs, .n_inputs = 3 };
 *     hl_corpus         *corpus   = NULL;
 *     if (hl_corpus_open(&corpus, model, tokenizer, &options) == HL_OK)
 *         printf("%lld documents\n", (long long)hl_corpus_get_info(corpus)->n_documents);
 *     hl_corpus_close(corpus);
 *
 * A corpus is a list of documents, which never mix: a text file is one, and so is each
 * line of a JSONL file.  Opening reads all of it once, and keeps of each document where
 * it lies and a hash of its content: what is not UTF-8, not JSON or not in the
 * vocabulary is found now and not after a night's work.  Afterwards documents are
 * read and tokenized as they are needed, one at a time and large ones piece by piece.
 *
 * Inputs are, in the order given:
 *   a file     whatever its name; .jsonl and .ndjson are JSONL, all else is text
 *   a folder   its files that end in .txt .text .md .markdown .rst .jsonl .ndjson, sorted by
 *              name, and those of the folders in it; names that begin with a dot are
 *              passed over, and others are counted as skipped
 *   a pattern  with * ? [...], where no file has that very name: what it matches, sorted
 *   "-"        standard input, which is copied to a temporary file first
 *
 * Text must be valid UTF-8; a byte order mark is dropped.  Documents without text are
 * counted and passed over, and a corpus without any text is an error.
 *
 * A corpus does not change after it has been opened, and any number of threads may use it at once, to
 * measure several models, say. */

typedef struct hl_corpus hl_corpus;

typedef enum hl_text_format {
    HL_TEXT_AUTO = 0, /* by the ending of the name; standard input is text */
    HL_TEXT_PLAIN,    /* a file is a document      */
    HL_TEXT_JSONL,    /* a line is a document      */
} hl_text_format;

typedef struct hl_corpus_options {
    const char *const *inputs;
    size_t             n_inputs;
    hl_text_format     format;
    /* Of JSONL lines, which must be objects: the member with the text, a string; or a chat, an
     * array of { "role", "content" }, which goes through the tokenizer's chat template.
     * NULL: "text" and, where that is missing, "messages". */
    const char *field;
    /* Instead of inputs: a file of token ids.  JSON arrays, one a line; a .safetensors file with
     * `tokens` (n, length) of integers and, maybe, `lengths` (n); or a .npy file of one or two
     * dimensions.  Each row is a document; nothing is put around it. */
    const char *token_ids;
    /* "NAME=EXPRESSION": what the regular expression matches is of type NAME; the first that
     * matches counts.  In a document of more than 256 KiB, matches of up to 8 KiB are
     * sure to be found. */
    const char *const *types;
    size_t             n_types;
    /* Only so many documents, chosen by seed and content, whatever their order; 0: all. */
    int64_t  n_sample;
    uint64_t seed;
    bool     plain; /* special tokens spelled out in the text are ordinary text */
    /* Ends whatever tokenizes the corpus, in the middle of a text.  It is asked on whichever thread
     * does that, and on several at once where they use the corpus. */
    hl_stop_callback stop;    /* NULL: nobody does */
    void            *context; /* of stop */
} hl_corpus_options;

/* What kind of text a token is part of; names[type] of hl_corpus_info.  The first two are
 * always there; "system", "user" and "assistant" follow if there are chats; then, in
 * alphabetical order, the names of options' types and of the lines' own spans:
 * "spans": [{ "start": 0, "end": 9, "type": "question" }, ...], counted in characters of the
 * line's text.  A token is of the type of its last byte. */
enum {
    HL_TYPE_PROMPT  = 0, /* "prompt": plain text */
    HL_TYPE_SPECIAL = 1, /* "special": special tokens, and what a chat template adds */
    HL_MAX_TYPES    = 8, /* = HL_MAX_SEGMENTS */
};

typedef struct hl_corpus_info {
    int64_t            n_documents;
    uint64_t           n_bytes;   /* of text in them; of token ids, 4 each */
    uint64_t           hash;      /* of their contents, whatever their order: the sum of theirs */
    int64_t            n_files;   /* that were read */
    int64_t            n_empty;   /* documents without text */
    int64_t            n_skipped; /* files in folders that do not look like text */
    const char        *first_skipped; /* one of them; NULL if there is none */
    const char *const *type_names;    /* (n_types) */
    int64_t            n_types;
} hl_corpus_info;

/* Borrows both.  The model may be NULL: ids are then checked against the tokenizer.  So may
 * the tokenizer, if there are only token ids. */
HL_API hl_status hl_corpus_open(hl_corpus **out, const hl_model *model,
                                const hl_tokenizer *tokenizer, const hl_corpus_options *options);
/* A text in memory instead of files: documents as those of a file of this name, which messages say
 * too.  options->inputs must be empty; the bytes are borrowed until the corpus is closed. */
HL_API hl_status hl_corpus_open_bytes(hl_corpus **out, const hl_model *model,
                                      const hl_tokenizer *tokenizer, const void *bytes,
                                      size_t n_bytes, const char *name,
                                      const hl_corpus_options *options);
HL_API void      hl_corpus_close(hl_corpus *corpus);
/* Borrowed from the corpus. */
HL_API const hl_corpus_info *hl_corpus_get_info(const hl_corpus *corpus);

typedef struct hl_document_info {
    char     name[256]; /* for messages: "books/emma.txt", "news.jsonl:12" */
    uint64_t n_bytes;
    uint64_t hash; /* of the content alone */
} hl_document_info;

/* HL_BAD_ARGUMENT past the last. */
HL_API hl_status hl_corpus_get_document(hl_document_info *out, const hl_corpus *corpus,
                                        int64_t document);

/* Where the tokens go that the tokenizer adds to a text (hl_tokenizer_around).  A model that was
 * trained with <bos> before every sequence computes something else in a window that has none:
 * heads that attend to it find nothing there, and the loss is higher. */
typedef enum hl_around {
    HL_AROUND_WINDOW = 0, /* around every window, which has that much less room for text */
    HL_AROUND_DOCUMENT,   /* around a document, before it is cut: only its first window begins as a
                           * sequence should, and only its last one ends so */
    HL_AROUND_NONE,       /* nowhere */
} hl_around;

/* "window", "document", "none"; NULL past the last. */
HL_API const char *hl_around_name(size_t around);

/* How documents are cut for a model.  A window holds at most n_ctx tokens: text of one document,
 * and what `around` puts before and behind it.  The text of a window begins `stride` tokens after
 * that of the window before it.  Where windows overlap, a token of the text counts in the first
 * window it is in.  Tokens that are put around a window are rows like others (of the type
 * "special"), but those before a text do not count where its first tokens have counted already,
 * and none is ever a prediction that is scored.
 *
 * Token ids are left alone: nothing is put around them.  A chat has what its own template writes;
 * if it begins with the tokens that the tokenizer adds before a text, so does each of its
 * windows, and else none. */
typedef struct hl_window_options {
    int64_t n_ctx;      /* tokens of a window; 0: the default (HL_DEFAULT_CTX) */
    int64_t stride;     /* 0, or more than there is room for text: windows side by side */
    int64_t n_batch;    /* windows at a time; 0: 1 */
    int64_t max_tokens; /* stop after so many tokens that count; 0: never */
    /* One long document: the text of all of them with the end-of-text token between, so that all
     * windows but the last are full. */
    bool pack;
    /* Only part `part` of `n_parts` of the work; 0: all of it.  The parts together are the
     * windows of the whole, each once. */
    int64_t   part;
    int64_t   n_parts;
    hl_around around;
} hl_window_options;

#ifdef __cplusplus
}
#endif
#endif
