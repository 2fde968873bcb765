/* corpus_parts.h - internals of a corpus: its parts, in the order in which they are made.
 *
 *     corpus_files.c      names to files, and files to ranges and lines
 *     corpus_documents.c  files to documents: offset, length and content of each
 *     corpus_types.c      types of text, and the rules that find them
 *     corpus.c            opening
 *     corpus_reader.c     documents to tokens, text in pieces
 *     corpus_pieces.c     a text of any length in pieces that overlap
 *
 * An open corpus does not change. */
#ifndef HL_MEASURE_CORPUS_PARTS_H
#define HL_MEASURE_CORPUS_PARTS_H

#include "base/json.h"
#include "base/json_reader.h"
#include "formats/npy.h"
#include "formats/safetensors.h"
#include "headlight/corpus.h"
#include "headlight/tokenizer.h"
#include "tokenize/pattern.h"

/* --------------------------------------------------------------------- files */

/* Text is read, not mapped: a file of any length then needs only one buffer, and a truncated one
 * causes an error with a name instead of a signal. */

/* A file that is part of a corpus. */
typedef struct hl_text_file {
    char          *path; /* path, or "standard input" for a copy of it */
    hl_text_format format;
    int            descriptor; /* descriptor of the copy of standard input, which has no name;
                                * else -1 */
    hl_bytes       memory;     /* borrowed; data NULL: read from the file */
} hl_text_file;

typedef struct hl_text_source {
    const char *path;   /* borrowed */
    const char *memory; /* NULL: read from the descriptor */
    int         descriptor;
    bool        borrowed; /* there is no descriptor, or it must not be closed here */
    uint64_t    n_bytes;  /* size when it was opened */
} hl_text_source;

/* HL_BAD_INPUT unless it is a regular file. */
hl_status hl_text_source_open(hl_text_source *out, const hl_text_file *file);
/* Does nothing to {0}. */
void hl_text_source_close(hl_text_source *source);
/* Reads all of the bytes [at, at + n_bytes). */
hl_status hl_text_source_read(char *out, const hl_text_source *source, uint64_t at, size_t n_bytes);

/* The files that the names given by a user stand for. */
typedef struct hl_text_files {
    hl_text_file *items;
    size_t        count;
    size_t        capacity;
    int64_t       n_skipped;
    char         *first_skipped; /* NULL: none */
} hl_text_files;

/* Appends the files that an input stands for (headlight.h has the rules).  HL_NOT_FOUND
 * where there is no such file, HL_BAD_INPUT for a folder or pattern with nothing to read. */
hl_status hl_text_files_add(hl_text_files *files, const char *input, hl_text_format format);
/* Appends a text in memory, which is borrowed; `name` replaces its path. */
hl_status hl_text_files_add_memory(hl_text_files *files, hl_bytes memory, const char *name,
                                   hl_text_format format);
void      hl_text_files_free(hl_text_files *files);

/* --------------------------------------------------------------------- lines */

#define HL_MAX_LINE_BYTES ((size_t)1 << 28)

typedef struct hl_line_reader {
    const hl_text_source *source;
    char                 *buffer;
    size_t                capacity;
    size_t                begin; /* start of the unread bytes in the buffer */
    size_t                end;
    uint64_t              at; /* offset of buffer[begin] in the file */
    uint64_t              number;
} hl_line_reader;

typedef struct hl_line {
    hl_bytes bytes;  /* without the line ending; borrowed until the next line */
    uint64_t at;     /* offset in the file */
    uint64_t number; /* line number, from 1 */
} hl_line;

/* Skips a byte order mark.  The source must outlive the reader. */
hl_status hl_line_reader_open(hl_line_reader *out, const hl_text_source *source);
void      hl_line_reader_close(hl_line_reader *reader);
/* *more is false at the end.  HL_LIMIT for a line beyond HL_MAX_LINE_BYTES. */
hl_status hl_line_reader_next(hl_line *out, bool *more, hl_line_reader *reader);

/* Length of the byte order mark at the start of the file: 3 or 0. */
hl_status hl_text_source_mark(size_t *out, const hl_text_source *source);
/* Are there only spaces, tabs and carriage returns? */
bool hl_is_blank(hl_bytes bytes);

/* ------------------------------------------------------------- kinds of text */

/* While a corpus is being opened, names are collected (from rules, spans of lines, chats).
 * hl_types_finish gives them their numbers, which depend on the set of names only and not on the
 * order in which they were found. */

#define HL_MAX_TYPE_NAME 31
#define HL_NO_TYPE       0xff

typedef struct hl_type_rule {
    hl_pattern *pattern;
    char       *name;
    uint8_t     type; /* set by hl_types_finish */
} hl_type_rule;

typedef struct hl_types {
    char         *names[HL_MAX_TYPES]; /* while collecting: only the names found so far */
    int64_t       n_types;
    bool          has_chat;
    hl_type_rule *rules;
    size_t        n_rules;
} hl_types;

/* Each rule is "NAME=EXPRESSION". */
hl_status hl_types_open(hl_types *out, const char *const *rules, size_t n_rules);
void      hl_types_close(hl_types *types);

/* Records that a name was found, in `where`. */
hl_status hl_types_need(hl_types *types, const char *name, const char *where);
hl_status hl_types_finish(hl_types *types);
/* The number of a name that hl_types_need has recorded. */
uint8_t hl_types_find(const hl_types *types, const char *name);

/* Marks each byte of a text that a rule matches and that has no type yet: marks (n_bytes),
 * HL_NO_TYPE where there is no type. */
hl_status hl_types_mark(uint8_t *marks, const hl_types *types, hl_matcher *matcher,
                        const char *text, size_t n_bytes);

/* ------------------------------------------------------------------- records */

/* One line of a JSONL file: a text with spans, or a chat.
 *
 *     {"text": "...", "spans": [{"start": 0, "end": 9, "type": "question"}]}
 *     {"messages": [{"role": "user", "content": "..."}, ...]}
 *
 * A message's content is a string, null, or an array of parts { "type": "text", "text" }; its other
 * members reach the chat template, too, and so do the line's `tools`, `documents` and
 * `chat_template_kwargs`. */

typedef struct hl_record_span {
    hl_span     span; /* bytes of the text */
    const char *type; /* borrowed from the value */
} hl_record_span;

typedef struct hl_record {
    json_t         *value;
    hl_bytes        text; /* data is NULL for a chat */
    hl_record_span *spans;
    size_t          n_spans;
    const json_t   *chat;     /* the messages, borrowed from `value`; NULL for a text */
    bool            has_tool; /* a message has the role of a tool */
} hl_record;

/* `field` as in hl_corpus_options; `where` names the line in messages. */
hl_status hl_record_parse(hl_record *out, hl_bytes line, const char *field, const char *where);
void      hl_record_free(hl_record *record);

/* The variables of a chat's template: the line's `tools`, `documents` and members of
 * `chat_template_kwargs`; NULL if there are none.  The caller releases them. */
hl_status hl_record_variables(json_t **out, const hl_record *record);

/* Hash of the text, or of the messages and variables. */
uint64_t hl_record_hash(const hl_record *record);
/* Number of bytes of the text, or of the messages' contents. */
size_t hl_record_bytes(const hl_record *record);

/* ----------------------------------------------------------------- documents */

/* The list of documents, made in one pass over the files, which also finds whatever is wrong
 * with them. */

typedef struct hl_document {
    uint64_t at;       /* offset in the file of its first byte, or of its line */
    uint64_t n_stored; /* number of bytes in the file */
    uint64_t n_bytes;  /* number of bytes of text */
    uint64_t hash;
    uint32_t file;
    uint32_t line; /* from 1; 0: the whole file */
} hl_document;

typedef struct hl_documents {
    hl_document *items;
    size_t       count;
    size_t       capacity;
    int64_t      n_empty;
} hl_documents;

void hl_documents_free(hl_documents *documents);

/* Adds a file as one document. */
hl_status hl_documents_add_text(hl_documents *documents, const hl_text_source *source,
                                uint32_t file);
/* Adds each non-blank line of a JSONL file; names of types go to `types`. */
hl_status hl_documents_add_lines(hl_documents *documents, hl_types *types,
                                 const hl_text_source *source, uint32_t file, const char *field);

/* Keeps n_sample documents, or all if there are fewer: those with the smallest hashes under the
 * seed, in their original order. */
hl_status hl_documents_sample(hl_documents *documents, int64_t n_sample, uint64_t seed);

/* "PATH:LINE", or "PATH" for line 0. */
void hl_name_line(char *out, size_t n_bytes, const char *path, uint64_t line);

/* ----------------------------------------------------------------- token ids */

typedef struct hl_ids {
    int64_t *items;
    size_t   count;
    size_t   capacity;
} hl_ids;

/* `tokens` (n_rows, n_columns) of a .safetensors or .npy file; rows may be shorter. */
typedef struct hl_id_table {
    hl_npy          *npy;
    hl_safetensors  *safetensors;
    const char      *path; /* borrowed */
    const hl_tensor *tokens;
    const hl_tensor *lengths; /* (n_rows); NULL: n_columns each */
    int64_t          n_rows;
    int64_t          n_columns;
} hl_id_table;

/* *is_table is false, and nothing is opened, for a file of another kind. */
hl_status hl_id_table_open(hl_id_table *out, bool *is_table, const char *path);
void      hl_id_table_close(hl_id_table *table);

/* The ids of a row, or of a line that is a JSON array.  All must lie in [0, n_vocab). */
hl_status hl_ids_of_row(hl_ids *out, const hl_id_table *table, int64_t row, int64_t n_vocab);
hl_status hl_ids_of_line(hl_ids *out, hl_bytes line, int64_t n_vocab, const char *where);
void      hl_ids_free(hl_ids *ids);
uint64_t  hl_ids_hash(const int64_t *ids, size_t n_ids);

/* Adds a document for each row or line. */
hl_status hl_documents_add_rows(hl_documents *documents, const hl_id_table *table, int64_t n_vocab);
hl_status hl_documents_add_id_lines(hl_documents *documents, const hl_text_source *source,
                                    int64_t n_vocab);

/* ------------------------------------------------------------------ a corpus */

struct hl_corpus {
    const hl_tokenizer *tokenizer; /* NULL: token ids only */
    int64_t             n_vocab;
    int64_t             separator;
    hl_text_files       files;
    hl_documents        documents;
    hl_types            types;
    bool                has_ids;   /* documents are token ids */
    bool                has_table; /* documents are rows of `table` */
    hl_id_table         table;
    char               *field;    /* field that holds the text; NULL: the usual ones */
    hl_encode_options   encoding; /* how texts are tokenized */
    hl_corpus_info      info;
};

/* ------------------------------------------------------------------ pieces */

/* The tokens of a text of any length, in pieces.
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
