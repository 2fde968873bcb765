/* vocab_source.h - tokenizers that come as lists of pieces.
 *
 * GGUF files and llama2.c's tokenizer.bin do not contain a pipeline, only a
 * vocabulary and the name of the algorithm:
 *
 *     gpt2    byte-level BPE; `pre` names the expressions that split words
 *     llama   SentencePiece BPE: merges follow from the scores
 *     bert    WordPiece; a piece that begins a word starts with ▁ (vocab.txt: others with ##)
 *     t5      Unigram
 *
 * All pointers are borrowed and need not live longer than the call. */
#ifndef HL_TOKENIZE_VOCAB_SOURCE_H
#define HL_TOKENIZE_VOCAB_SOURCE_H

#include "base/json_reader.h"
#include "base/memory.h"
#include "headlight/tokenizer.h"

/* GGUF's token types. */
enum {
    HL_PIECE_NORMAL       = 1,
    HL_PIECE_UNKNOWN      = 2,
    HL_PIECE_CONTROL      = 3,
    HL_PIECE_USER_DEFINED = 4,
    HL_PIECE_UNUSED       = 5,
    HL_PIECE_BYTE         = 6,
};

typedef struct hl_vocab_source {
    const char     *model;  /* "gpt2", "llama", "bert", "t5" */
    const char     *pre;    /* gpt2 only; NULL: "default" */
    const hl_bytes *tokens; /* (n_tokens) */
    const float    *scores; /* (n_tokens) or NULL */
    const int32_t  *types;  /* (n_tokens) HL_PIECE_..., or NULL: all normal */
    size_t          n_tokens;
    const hl_bytes *merges; /* (n_merges) "a b"; gpt2 only */
    size_t          n_merges;
    int32_t         special[HL_SPECIAL_COUNT]; /* ids; -1: none */
    int             add_bos;                   /* 1, 0, or -1: the model's default */
    int             add_eos;                   /* 1, 0, or -1: the model's default */
    int             add_space_prefix;          /* 1, 0, or -1: the model's default */
    int             remove_extra_spaces;       /* t5: 1, 0, or -1: the default */
    bool            plain_spaces;  /* llama: pieces write a space as a space, not as ▁ */
    bool            keep_case;     /* bert: do not lowercase */
    int             strip_accents; /* bert: 1, 0, or -1: only if text is lowercased */
    int             space_chinese; /* bert: spaces around ideographs; 0: no; 1, -1: yes */
    bool            inner_marks;   /* bert: pieces inside words start with ##, others have no mark,
                                    * as in vocab.txt */
    bool            characters;    /* bert: every character is a word */
    hl_bytes        charsmap;      /* t5: normalization rules, or {NULL, 0} */
    const char     *chat_template; /* or NULL */
    const char     *where;         /* for messages */
} hl_vocab_source;

/* An empty source: all ids and choices are -1. */
hl_vocab_source hl_vocab_source_empty(void);

hl_status hl_tokenizer_from_source(hl_tokenizer **out, const hl_vocab_source *source);

/* ------------------------------------------------------ names of pre-tokenizers */

#define HL_MAX_PRE_PATTERNS 6

typedef struct hl_pre {
    const char *names;                             /* names, separated by spaces */
    const char *patterns[HL_MAX_PRE_PATTERNS + 1]; /* expressions, applied in turn; NULL ends
                                                    * them */
    bool        ignore_merges;
    bool        add_bos; /* the default of models with this pre-tokenizer */
} hl_pre;

/* NULL if the name is not known. */
const hl_pre *hl_pre_find(const char *name);
/* Returns the pre-tokenizer with exactly these expressions (n_patterns); NULL if none has them. */
const hl_pre *hl_pre_match(const char *const *patterns, size_t n_patterns, bool ignore_merges);

/* ---------------------------------------------------- where they come from */

/* Calls `read` on FOLDER/NAME, if it exists; the folder ends in a slash, or is empty. */
hl_status hl_sibling_read(void *context, const char *folder, const char *name,
                          hl_status (*read)(void *context, hl_bytes text, const char *path));

/* llama2.c's tokenizer.bin, as a tokenizer or as a list of pieces; `path` must outlive the list. */
hl_status                       hl_tokenizer_open_llama2c(hl_tokenizer **out, const char *path);
typedef struct hl_llama2c_vocab hl_llama2c_vocab;
hl_status                       hl_llama2c_vocab_open(hl_llama2c_vocab **out, const char *path);
void                            hl_llama2c_vocab_close(hl_llama2c_vocab *vocab);
HL_CLOSES(hl_llama2c_vocab_close, hl_llama2c_vocab)
const hl_vocab_source *hl_llama2c_vocab_source(const hl_llama2c_vocab *vocab); /* borrowed from the
                                                                                * vocabulary */

/* A BERT vocab.txt and the files beside it in `folder`, which ends in a slash.  HL_NOT_FOUND if it
 * does not exist, HL_UNSUPPORTED if no file says how it is used. */
hl_status hl_tokenizer_open_vocab_text(hl_tokenizer **out, const char *path, const char *folder);

/* The tokenizer inside a GGUF file; HL_NOT_FOUND if there is none. */
struct hl_gguf;
hl_status hl_tokenizer_open_gguf(hl_tokenizer **out, const char *path);

/* Writes a vocabulary as the metadata of a GGUF file, or copies all "tokenizer." keys of another
 * file unchanged. */
struct hl_gguf_writer;
hl_status hl_gguf_add_vocab(struct hl_gguf_writer *writer, const hl_vocab_source *source);
void      hl_gguf_copy_vocab(struct hl_gguf_writer *writer, const struct hl_gguf *file);

/* A tokenizer as a list of pieces: the inverse of the above.
 *
 *     HL_CLOSED(hl_vocab_export_free) hl_vocab_export *vocab = NULL;
 *     HL_NEED(hl_vocab_export_new(&vocab, tokenizer, d_vocab));
 *     HL_NEED(hl_gguf_add_vocab(writer, hl_vocab_export_source(vocab)));
 *
 * The pipeline of a tokenizer.json must match one of the four kinds above step
 * for step.  Otherwise it is HL_UNSUPPORTED, and the message names the step that does not
 * fit: a vocabulary that silently gives other ids is worse than none.  Two things are left
 * out and reported in a note, because files in use leave them out too: Unicode normal forms,
 * and the white space that an added token consumes beside it. */

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
