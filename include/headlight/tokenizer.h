/* headlight/tokenizer.h - text to tokens and back; chats.
 * Part of headlight.h, which see for the conventions. */
#ifndef HEADLIGHT_TOKENIZER_H
#define HEADLIGHT_TOKENIZER_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------- tokenizers
 *
 *     hl_tokenizer *tokenizer;
 *     hl_encoding  *encoding;
 *     hl_tokenizer_open(&tokenizer, "models/llama");      or .../tokenizer.json
 *     hl_tokenizer_encode(&encoding, tokenizer, text, strlen(text), NULL);
 *     ... encoding->ids[i], encoding->spans[i] ...
 *
 * A tokenizer does not change after it has been opened and may be used by
 * several threads at once.  A decode stream is for one thread at a time.
 *
 * A tokenizer's file says what is done with a text, and may have been made to do too much.  Encoding
 * and decoding n bytes makes no text of more than 64 n bytes + 1 MiB and takes no more
 * than 8 microseconds per byte + 1 second of processor time; beyond that they fail with HL_LIMIT and a
 * message that names the file and the step.  Real tokenizers need a hundredth of it.
 *
 * Text is UTF-8.  A byte that is not part of a valid character counts as the
 * character U+FFFD; byte-level tokenizers (GPT-2, Llama-3, Qwen ...) see that
 * character when they split text into words, but encode the byte itself, so that
 * decoding gives the input back. */

/* Bytes [begin, end) of a text. */
typedef struct hl_span {
    size_t begin;
    size_t end;
} hl_span;

typedef enum hl_token_type {
    HL_TOKEN_NORMAL = 0,
    HL_TOKEN_UNKNOWN, /* stands for what the vocabulary lacks             */
    HL_TOKEN_SPECIAL, /* begin of text, end of turn ...: not text         */
    HL_TOKEN_ADDED,   /* text, but found before and not by the model      */
    HL_TOKEN_BYTE,    /* one byte of a character that the vocabulary lacks */
} hl_token_type;

typedef struct hl_tokenizer hl_tokenizer;

/* A tokenizer.json; a folder with one (tokenizer_config.json, special_tokens_map.json
 * and chat_template.jinja beside it are read too), or with a vocab.txt of WordPiece or of
 * characters; such a vocab.txt; a .safetensors file in such a folder; a .gguf file with a tokenizer in it; a llama2.c tokenizer.bin, or a
 * checkpoint beside one. */
HL_API hl_status hl_tokenizer_open(hl_tokenizer **out, const char *path);
/* From the bytes of a tokenizer.json; `where` names them in messages. */
HL_API hl_status hl_tokenizer_parse(hl_tokenizer **out, const void *json, size_t n_bytes,
                                    const char *where);
HL_API void      hl_tokenizer_close(hl_tokenizer *tokenizer);

/* Asked now and then while a call works; true ends the call with HL_CANCELLED. */
typedef bool (*hl_stop_callback)(void *context);

typedef struct hl_encode_options {
    bool             add_special; /* put the tokens around the text that the model expects */
    bool             plain;       /* special tokens spelled out in the text are ordinary text */
    hl_stop_callback stop;        /* NULL: nobody stops the call */
    void            *context;     /* of stop */
} hl_encode_options;

typedef struct hl_encoding {
    int64_t       *ids;   /* (n_tokens) */
    hl_span       *spans; /* (n_tokens) of the input; whole characters, so that the tokens of a
                           * character that was cut in pieces share it.  {0, 0} for tokens that
                           * were put around the text */
    hl_token_type *types; /* (n_tokens) */
    uint8_t       *roles; /* (n_tokens) hl_chat_role, from hl_chat_encode; else NULL */
    size_t         n_tokens;
} hl_encoding;

HL_API hl_status hl_tokenizer_encode(hl_encoding **out, const hl_tokenizer *tokenizer,
                                     const char *text, size_t n_bytes,
                                     const hl_encode_options *options);
HL_API void      hl_encoding_free(hl_encoding *encoding);

typedef struct hl_decode_options {
    bool skip_special;
} hl_decode_options;

/* The text of some tokens, with a NUL behind it that is not counted; released with hl_free.
 * It need not be valid UTF-8: the tokens may cut characters. */
HL_API hl_status hl_tokenizer_decode(char **out, size_t *n_bytes, const hl_tokenizer *tokenizer,
                                     const int64_t *ids, size_t n_ids,
                                     const hl_decode_options *options);

/* Decoding tokens as they come.  What push and finish return is borrowed until the next
 * call, and push never cuts a character: it may return nothing, and more the next time.
 * finish returns what is left.  The tokenizer must outlive the stream. */
typedef struct hl_decode_stream hl_decode_stream;

HL_API hl_status hl_decode_stream_open(hl_decode_stream **out, const hl_tokenizer *tokenizer,
                                       const hl_decode_options *options);
HL_API hl_status hl_decode_stream_push(const char **text, size_t *n_bytes, hl_decode_stream *stream,
                                       int64_t id);
HL_API hl_status hl_decode_stream_finish(const char **text, size_t *n_bytes,
                                         hl_decode_stream *stream);
HL_API void      hl_decode_stream_close(hl_decode_stream *stream);

/* One more than the largest id; not every id below need have a piece. */
HL_API size_t hl_tokenizer_size(const hl_tokenizer *tokenizer);
/* "BPE", "Unigram", "WordPiece" or "WordLevel". */
HL_API const char *hl_tokenizer_kind(const hl_tokenizer *tokenizer);
/* A piece as the vocabulary spells it, which is not the text it stands for; NULL if the
 * id has none.  Borrowed; n_bytes may be NULL. */
HL_API const char *hl_tokenizer_piece(const hl_tokenizer *tokenizer, int64_t id, size_t *n_bytes);
/* -1 if no piece is spelled so. */
HL_API int64_t hl_tokenizer_id(const hl_tokenizer *tokenizer, const char *piece, size_t n_bytes);
HL_API hl_token_type hl_tokenizer_type(const hl_tokenizer *tokenizer, int64_t id);

typedef enum hl_special {
    HL_SPECIAL_BOS = 0, /* begin of text */
    HL_SPECIAL_EOS,     /* end of text   */
    HL_SPECIAL_UNK,
    HL_SPECIAL_SEP,
    HL_SPECIAL_PAD,
    HL_SPECIAL_CLS,
    HL_SPECIAL_MASK,
    HL_SPECIAL_EOT, /* end of turn */
    HL_SPECIAL_COUNT
} hl_special;

/* The id, or -1. */
HL_API int64_t hl_tokenizer_special(const hl_tokenizer *tokenizer, hl_special which);

/* Tokens to put around a text: <bos>; [CLS] and [SEP]; or none at all. */
typedef struct hl_around_tokens {
    const int64_t *before; /* (n_before) ids */
    size_t         n_before;
    const int64_t *after; /* (n_after) ids */
    size_t         n_after;
} hl_around_tokens;

/* What the tokenizer's own template says, and add_special of hl_encode_options does.  Borrowed
 * from the tokenizer. */
HL_API hl_around_tokens hl_tokenizer_around(const hl_tokenizer *tokenizer);

/* ------------------------------------------------------------------- chats
 *
 * Chat templates are programs; headlight does not run them.  It writes the usual formats itself.
 * A template is known if it was found to give what headlight writes, byte for byte.  Any other is
 * said to be unknown (a warning in the log, and `known` is false): its messages are written in the
 * format whose markers it has, which may not be all that the template does, or plainly,
 * "role: content" a line. */

typedef enum hl_chat_format {
    HL_CHAT_AUTO = 0, /* what the tokenizer's template looks like */
    HL_CHAT_PLAIN,
    HL_CHAT_CHATML,
    HL_CHAT_LLAMA3,
    HL_CHAT_GEMMA,
    HL_CHAT_MISTRAL,
    HL_CHAT_PHI3,
} hl_chat_format;

typedef enum hl_chat_role {
    HL_ROLE_TEMPLATE = 0, /* what the format puts around the messages */
    HL_ROLE_SYSTEM,
    HL_ROLE_USER,
    HL_ROLE_ASSISTANT,
} hl_chat_role;

typedef struct hl_chat_message {
    const char *role; /* "system", "user", "assistant" */
    const char *content;
} hl_chat_message;

typedef struct hl_chat_options {
    hl_chat_format format;
    bool           no_prompt; /* leave out the opening of the assistant's next turn */
} hl_chat_options;

typedef struct hl_chat_part {
    hl_chat_role role;
    hl_span      span; /* of the text */
} hl_chat_part;

typedef struct hl_chat {
    char          *text;
    size_t         n_bytes;
    hl_chat_part  *parts; /* (n_parts) in order, side by side, from the first byte to the last */
    size_t         n_parts;
    hl_chat_format format; /* what was written */
    bool           known;  /* false: there is a template, and it may give another text */
} hl_chat;

/* The template, as the file has it; NULL: it has none.  Borrowed. */
HL_API const char *hl_tokenizer_chat_template(const hl_tokenizer *tokenizer);
/* What the tokenizer's own template is; *known as above (may be NULL). */
HL_API hl_chat_format hl_tokenizer_chat_format(const hl_tokenizer *tokenizer, bool *known);
HL_API const char    *hl_chat_format_name(hl_chat_format format);
HL_API hl_status      hl_chat_render(hl_chat **out, const hl_tokenizer *tokenizer,
                                     const hl_chat_message *messages, size_t n_messages,
                                     const hl_chat_options *options);
HL_API void           hl_chat_free(hl_chat *chat);
/* Encodes the text and says whose each token is.  Special tokens are recognized only in
 * what the template wrote: a message cannot pretend to be another turn. */
HL_API hl_status hl_chat_encode(hl_encoding **out, const hl_tokenizer *tokenizer,
                                const hl_chat *chat, const hl_encode_options *options);

#ifdef __cplusplus
}
#endif
#endif
