/* headlight/corpus.h - texts, and how they are cut into windows of tokens. Part of headlight.h,
 * which see for the conventions. */
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
 * A corpus is a list of documents, which are never mixed: each text file is a document, and so is
 * each line of a JSONL file.  Opening a corpus reads everything once and keeps the location and a
 * content hash of each document.  Invalid UTF-8, invalid JSON and unknown tokens are therefore
 * found at once, not after hours of work.  Later, documents are read and tokenized as they are
 * needed, one at a time, and large ones piece by piece.
 *
 * Inputs are, in the order given:
 *   a file     whatever its name; .jsonl and .ndjson are JSONL, all else is text
 *   a folder   its files that end in .txt .text .md .markdown .rst .jsonl .ndjson, sorted by
 *              name, and those of the folders in it; names that begin with a dot are
 *              ignored, and other files are counted as skipped
 *   a pattern  with * ? [...], if there is no file of exactly that name: its matches, sorted
 *   "-"        standard input, which is copied to a temporary file first
 *
 * Text must be valid UTF-8; a byte order mark is dropped.  Documents without text are counted and
 * skipped, and a corpus without any text is an error.
 *
 * A corpus does not change after it has been opened, and any number of threads may use it at
 * once, for example to measure several models. */

typedef struct hl_corpus hl_corpus;

typedef enum hl_text_format {
    HL_TEXT_AUTO = 0, /* chosen by the file name's extension; standard input is text */
    HL_TEXT_PLAIN,    /* each file is a document */
    HL_TEXT_JSONL,    /* each line is a document */
} hl_text_format;

typedef struct hl_corpus_options {
    const char *const *inputs;
    size_t             n_inputs;
    hl_text_format     format;
    /* The member of each JSONL line, which must be an object, that holds the text: a string, or
     * a chat, an array of { "role", "content" }, which is formatted with the tokenizer's chat
     * template.  NULL: "text" or, if that is missing, "messages". */
    const char *field;
    /* A file of token ids, instead of inputs: JSON arrays, one per line; a .safetensors file
     * with `tokens` (n, length) of integers and optionally `lengths` (n); or a .npy file with
     * one or two dimensions.  Each row is a document; no tokens are added around it. */
    const char *token_ids;
    /* Each entry is "NAME=EXPRESSION": text that the regular expression matches has type NAME.
     * The first matching entry counts.  In a document of more than 256 KiB, only matches of up
     * to 8 KiB are sure to be found. */
    const char *const *types;
    size_t             n_types;
    /* Number of documents to use, chosen by seed and content, independent of their order; 0:
     * all. */
    int64_t  n_sample;
    uint64_t seed;
    bool     plain; /* special tokens spelled out in the text are ordinary text */
    /* Called to ask whether to stop; it can stop tokenization in the middle of a text.  It is
     * called on the thread that tokenizes, and on several threads at once if several use the
     * corpus. */
    hl_stop_callback stop;    /* NULL: tokenization is never stopped */
    void            *context; /* passed to `stop` */
} hl_corpus_options;

/* Types of tokens: the kind of text that a token belongs to.  hl_corpus_info.type_names has
 * their names.  The first two types always exist; "system", "user" and "assistant" follow if
 * there are chats; then, in alphabetical order, the names from hl_corpus_options.types and from
 * the lines' own spans: "spans": [{ "start": 0, "end": 9, "type": "question" }, ...], counted in
 * characters of the line's text.  A token has the type of its last byte. */
enum {
    HL_TYPE_PROMPT  = 0, /* "prompt": plain text */
    HL_TYPE_SPECIAL = 1, /* "special": special tokens, and text that a chat template adds */
    HL_MAX_TYPES    = 8, /* = HL_MAX_SEGMENTS */
};

typedef struct hl_corpus_info {
    int64_t            n_documents;
    uint64_t           n_bytes;       /* bytes of text in all documents; 4 bytes per token id */
    uint64_t           hash;          /* sum of the documents' hashes, independent of their order */
    int64_t            n_files;       /* number of files read */
    int64_t            n_empty;       /* number of documents without text */
    int64_t            n_skipped;     /* number of files in folders that were skipped because of
                                       * their extension */
    const char        *first_skipped; /* one of the skipped files; NULL if there is none */
    const char *const *type_names;    /* (n_types) */
    int64_t            n_types;
} hl_corpus_info;

/* Opens a corpus.  It borrows the model and the tokenizer.  The model may be NULL: ids are then
 * checked against the tokenizer.  The tokenizer may be NULL if there are only token ids. */
HL_API hl_status hl_corpus_open(hl_corpus **out, const hl_model *model,
                                const hl_tokenizer *tokenizer, const hl_corpus_options *options);
/* Opens a text in memory instead of files.  It is treated like a file of this name, which also
 * appears in messages.  options->inputs must be empty; the bytes are borrowed until the corpus
 * is closed. */
HL_API hl_status hl_corpus_open_bytes(hl_corpus **out, const hl_model *model,
                                      const hl_tokenizer *tokenizer, const void *bytes,
                                      size_t n_bytes, const char *name,
                                      const hl_corpus_options *options);
HL_API void      hl_corpus_close(hl_corpus *corpus);
/* The result is borrowed from the corpus. */
HL_API const hl_corpus_info *hl_corpus_get_info(const hl_corpus *corpus);

typedef struct hl_document_info {
    char     name[256]; /* for messages: "books/emma.txt", "news.jsonl:12" */
    uint64_t n_bytes;
    uint64_t hash; /* hash of the content alone */
} hl_document_info;

/* Returns HL_BAD_ARGUMENT if the document does not exist. */
HL_API hl_status hl_corpus_get_document(hl_document_info *out, const hl_corpus *corpus,
                                        int64_t document);

/* Where to add the tokens that the tokenizer puts around a text (hl_tokenizer_around).  A model
 * that was trained with <bos> before every sequence behaves differently in a window without it:
 * heads that attend to <bos> have no target, and the loss is higher. */
typedef enum hl_around {
    HL_AROUND_WINDOW = 0, /* around every window; they take room from the text */
    HL_AROUND_DOCUMENT,   /* around each document, before it is cut: only its first window
                           * begins, and only its last window ends, as a sequence should */
    HL_AROUND_NONE,       /* nowhere */
} hl_around;

/* The name of a setting: "window", "document", "none"; NULL past the last. */
HL_API const char *hl_around_name(size_t around);

/* How documents are cut into windows.  A window holds at most n_ctx tokens: text of one document,
 * and the tokens that `around` adds before and after it.  The text of a window begins `stride`
 * tokens after that of the previous window.  Where windows overlap, a token of the text counts only
 * in its first window.  Tokens added around a window are rows like others (of type "special").
 * Tokens added before a text do not count if the first tokens of that text have counted already,
 * and added tokens are never scored as predictions.
 *
 * Nothing is added around documents of token ids.  A chat has the tokens that its own template
 * writes; if it begins with the tokens that the tokenizer adds before a text, then each of its
 * windows does, and otherwise none does. */
typedef struct hl_window_options {
    int64_t n_ctx;      /* tokens per window; 0: the default (HL_DEFAULT_CTX) */
    int64_t stride;     /* tokens from one window's text to the next; 0, or more than fits: no
                         * overlap */
    int64_t n_batch;    /* windows computed together; 0: 1 */
    int64_t max_tokens; /* stop after this number of counted tokens; 0: no limit */
    /* Join all documents into one, with the end-of-text token between them, so that all windows
     * but the last are full. */
    bool pack;
    /* Process only part `part` of `n_parts` of the work; n_parts 0: everything.  Each window
     * belongs to exactly one part. */
    int64_t   part;
    int64_t   n_parts;
    hl_around around;
} hl_window_options;

#ifdef __cplusplus
}
#endif
#endif
