/* headlight.h - the whole public interface of headlight, simplest calls first.
 *
 * headlight shows what every attention head of a transformer looks at, how
 * sharply, and which heads can be switched off, without ever building an
 * attention matrix.  This header is all that a program needs:
 *
 *     float out[2 * 64], entropy[2];
 *     hl_attention problem = {
 *         .n_batch = 1, .n_heads = 2, .n_kv_heads = 1,
 *         .n_queries = 1, .n_keys = 512, .d_head = 64, .d_value = 64,
 *         .q = { .data = q }, .k = { .data = k }, .v = { .data = v },
 *     };
 *     hl_attention_result result = { .out = { .data = out }, .entropy = entropy };
 *     if (hl_attention_forward(&result, &problem) != HL_OK)
 *         fprintf(stderr, "%s\n", hl_error_message());
 *
 * Conventions
 *   - Whatever can fail returns hl_status; hl_error_message() explains the last
 *     failure of the calling thread.  The library never prints, exits or aborts.
 *   - Results come first, then the object, then inputs, then options.
 *   - In a struct of options or optional outputs, zero and NULL mean "default"
 *     and "not wanted": what is not wanted is not computed.
 *   - Shapes are written outermost first: (n_batch, n_heads, n_queries, d_head).
 *   - Logarithms are natural; entropies are in nats.
 */
#ifndef HEADLIGHT_H
#define HEADLIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HL_API __attribute__((visibility("default")))

/* ------------------------------------------------------------------ status */

typedef enum hl_status {
    HL_OK = 0,
    HL_BAD_ARGUMENT, /* the caller passed something impossible        */
    HL_BAD_INPUT,    /* a file or its contents are not what they claim */
    HL_NOT_FOUND,    /* no such file, tensor, back end ...             */
    HL_IO,           /* the system failed to read or write             */
    HL_NO_MEMORY,
    HL_LIMIT,       /* too large for this machine or for a set limit  */
    HL_UNSUPPORTED, /* understood, but not something this build does  */
    HL_CANCELLED,   /* a callback asked to stop                       */
    HL_INTERNAL,    /* a mistake of ours                              */
} hl_status;

/* What went wrong in this thread's last failing call; "" if nothing has.
 * Borrowed; valid until the thread's next failing call. */
HL_API const char *hl_error_message(void);

/* "ok", "bad argument", ... ; never NULL. */
HL_API const char *hl_status_name(hl_status status);

/* "1.2.3", and one line on how this library was built.  Static. */
HL_API const char *hl_version(void);
HL_API const char *hl_build_info(void);

/* What the library does, for whoever wants to hear it: it never prints.  The
 * callback may be called from any thread, one call at a time. */
typedef enum hl_log_level { HL_LOG_DEBUG = 0, HL_LOG_INFO, HL_LOG_WARNING } hl_log_level;
typedef void (*hl_log_callback)(void *context, hl_log_level level, const char *message);
/* NULL: nobody listens, which is the default.  Messages below `lowest` are not made. */
HL_API void hl_log_set(hl_log_callback callback, void *context, hl_log_level lowest);

/* Files are mapped, not read.  If one is cut short by somebody else while it is in
 * use, touching the missing part raises SIGBUS, which kills the process.  After
 * this call it ends with "headlight: FILE: shrank while in use" on standard error and
 * exit status 3 instead.  For programs: a library has no business with signals, so
 * nothing is installed unless asked. */
HL_API void hl_guard_mapped_files(void);

/* ------------------------------------------------------------ element types */

typedef enum hl_dtype {
    HL_DTYPE_F32 = 0, /* the default */
    HL_DTYPE_F16,
    HL_DTYPE_BF16,
    HL_DTYPE_F64,
    HL_DTYPE_I8,
    HL_DTYPE_I16,
    HL_DTYPE_I32,
    HL_DTYPE_I64,
    HL_DTYPE_U8,
    HL_DTYPE_U16,
    HL_DTYPE_U32,
    HL_DTYPE_U64,
    HL_DTYPE_BOOL,
    HL_DTYPE_F8_E4M3,
    HL_DTYPE_F8_E5M2,
    HL_DTYPE_F8_E8M0,
    HL_DTYPE_F8_E4M3FNUZ,
    HL_DTYPE_F8_E5M2FNUZ,
    HL_DTYPE_F4,
    HL_DTYPE_F6_E2M3,
    HL_DTYPE_F6_E3M2,
    HL_DTYPE_C64,
    /* GGUF's blocks: 32 or 256 values that share their scales. */
    HL_DTYPE_Q4_0,
    HL_DTYPE_Q4_1,
    HL_DTYPE_Q5_0,
    HL_DTYPE_Q5_1,
    HL_DTYPE_Q8_0,
    HL_DTYPE_Q2_K,
    HL_DTYPE_Q3_K,
    HL_DTYPE_Q4_K,
    HL_DTYPE_Q5_K,
    HL_DTYPE_Q6_K,
    HL_DTYPE_IQ1_S,
    HL_DTYPE_IQ2_XXS,
    HL_DTYPE_IQ2_XS,
    HL_DTYPE_IQ2_S,
    HL_DTYPE_IQ3_XXS,
    HL_DTYPE_IQ3_S,
    HL_DTYPE_IQ4_NL,
    HL_DTYPE_IQ4_XS,
    HL_DTYPE_TQ1_0,
    HL_DTYPE_TQ2_0,
    HL_DTYPE_MXFP4,
    HL_DTYPE_COUNT
} hl_dtype;

/* As safetensors and GGUF spell it: "F32", "BF16", "Q4_K", ...; "?" for what is
 * not a dtype. */
HL_API const char *hl_dtype_name(hl_dtype dtype);

/* ------------------------------------------------ attention that measures
 *
 * Fused attention.  Beside the weighted values it reports what each row of the
 * attention matrix looked like, from running sums: memory grows with the number
 * of keys, never with its square.
 *
 * Row i of a sequence stands at position  p = query_start + i  and sees keys j
 *
 *     0 <= j < key_length,   j <= p                  if CAUSAL,
 *     j >= p - window_left  or  j < window_sink      if WINDOW_LEFT,
 *     j <= p + window_right                          if WINDOW_RIGHT.
 *
 * Its scores are  s = scale * q.k, then softcap * tanh(s / softcap), then plus
 * alibi_slope * (j - p), then plus key_bias.  With a learned sink the softmax
 * has one more outcome, of score sinks[head] and no value.  A row that sees no
 * key has lse -inf, argmax -1, and zero everywhere else.
 */

/* A matrix of rows for every batch and head: element (b, h, r, d) lies at
 * data[b*batch_stride + h*head_stride + r*row_stride + d], strides counted in
 * elements.  All three strides zero means packed in the order (b, h, r, d). */
typedef struct hl_rows {
    void    *data; /* inputs are only read */
    hl_dtype dtype;
    int64_t  batch_stride;
    int64_t  head_stride;
    int64_t  row_stride;
} hl_rows;

enum {
    HL_ATTENTION_CAUSAL       = 1 << 0,
    HL_ATTENTION_WINDOW_LEFT  = 1 << 1, /* window_left is in force       */
    HL_ATTENTION_WINDOW_RIGHT = 1 << 2, /* window_right is in force      */
    HL_ATTENTION_SCALE        = 1 << 3, /* scale is, not 1/sqrt(d_head)  */
};

#define HL_MAX_HEAD_DIM 256
#define HL_MAX_SEGMENTS 8

typedef struct hl_attention {
    int64_t n_batch;
    int64_t n_heads;    /* a multiple of n_kv_heads */
    int64_t n_kv_heads; /* head h reads K/V head h / (n_heads / n_kv_heads) */
    int64_t n_queries;
    int64_t n_keys;
    int64_t d_head;  /* 1 .. HL_MAX_HEAD_DIM */
    int64_t d_value; /* 1 .. HL_MAX_HEAD_DIM */

    hl_rows q; /* (n_batch, n_heads,    n_queries, d_head)  */
    hl_rows k; /* (n_batch, n_kv_heads, n_keys,    d_head)  */
    hl_rows v; /* (n_batch, n_kv_heads, n_keys,    d_value) */

    uint32_t flags; /* HL_ATTENTION_... */
    double   scale;
    double   softcap; /* 0: none */
    int64_t  window_left;
    int64_t  window_right;
    int64_t  window_sink; /* so many first keys are seen before the window too; 0: none */

    const int64_t *query_start;  /* (n_batch); NULL: key_length - n_queries */
    const int64_t *key_length;   /* (n_batch); NULL: n_keys                 */
    const float   *alibi_slopes; /* (n_heads) */
    const float   *key_bias;     /* (n_heads, n_keys); -inf hides a key     */
    const float   *sinks;        /* (n_heads) learned sink logits           */
    const float   *gates;        /* (n_heads) multiply each head's output   */

    /* A segment number below n_segments for every key.  segment_stride is 0
     * when all sequences share one row of numbers, else n_keys. */
    const uint8_t *segments; /* (n_batch or 1, n_keys) */
    int64_t        segment_stride;
    int64_t        n_segments; /* 0 .. HL_MAX_SEGMENTS */

    int32_t n_threads; /* 0: all that OpenMP would use */
} hl_attention;

/* Everything is optional.  Arrays are packed (n_batch, n_heads, n_queries). */
typedef struct hl_attention_result {
    hl_rows  out; /* (n_batch, n_heads, n_queries, d_value); .data NULL: not wanted */
    float   *lse;
    float   *entropy;        /* Shannon */
    float   *renyi2;         /* collision entropy */
    float   *varentropy;     /* variance of -log p under p */
    float   *entropy_nosink; /* Shannon, over the keys other than key 0; 0 where
                              * no other key is visible */
    float   *peak;           /* largest probability of a key */
    int64_t *argmax;         /* its key; the lowest of equals */
    float   *diagonal;       /* probability of the row's own position */
    float   *previous;       /* ... of the position before it */
    float   *first;          /* ... of key 0 */
    float   *segment_mass;   /* (n_batch, n_heads, n_queries, n_segments) */
} hl_attention_result;

HL_API hl_status hl_attention_forward(hl_attention_result *result, const hl_attention *problem);

/* What comes from above, and what the forward pass said (out with its gates
 * applied, as it was returned).  grad_entropy and grad_lse may be NULL; entropy
 * is read only with grad_entropy. */
typedef struct hl_attention_upstream {
    hl_rows      grad_out;     /* as out; .data NULL: zero */
    const float *grad_entropy; /* (n_batch, n_heads, n_queries) */
    const float *grad_lse;
    hl_rows      out;
    const float *lse;
    const float *entropy;
} hl_attention_upstream;

/* Gradients of the loss; each is optional.  dk and dv are overwritten, not added to. */
typedef struct hl_attention_gradient {
    hl_rows dq;     /* as q */
    hl_rows dk;     /* as k */
    hl_rows dv;     /* as v */
    float  *dgates; /* (n_heads) */
    float  *dsinks; /* (n_heads) */
} hl_attention_gradient;

HL_API hl_status hl_attention_backward(hl_attention_gradient *gradient, const hl_attention *problem,
                                       const hl_attention_upstream *upstream);

/* ------------------------------------------------------------- back ends
 *
 * The kernels exist for several instruction sets; the best one that this CPU
 * has is chosen when first needed.  HEADLIGHT_BACKEND=scalar|avx2|avx512|neon
 * in the environment overrides that, and so does hl_backend_select. */

/* The names of the back ends that this build has and this CPU can run, the
 * scalar definition first, the preferred one last.  Borrowed, NULL-terminated. */
HL_API const char *const *hl_backend_names(void);
/* The one in use, and another from now on (NULL: choose again). */
HL_API const char *hl_backend_name(void);
HL_API hl_status   hl_backend_select(const char *name);

/* ---------------------------------------------------------------- models
 *
 *     hl_model *model = NULL;
 *     if (hl_model_open(&model, "gpt2") == HL_OK)
 *         printf("%lld parameters\n", (long long)hl_model_get_info(model)->n_params);
 *     hl_model_close(model);
 */

typedef struct hl_model hl_model;

/* A Hugging Face folder (or the .safetensors file in it, with config.json beside it),
 * a .gguf file, or a .bin of llama2.c.  Weights are mapped, not read: opening takes
 * no longer for a large model than for a small one. */
HL_API hl_status hl_model_open(hl_model **out, const char *path);
HL_API void      hl_model_close(hl_model *model);

/* What a model is.  Texts are static or the model's. */
typedef struct hl_model_info {
    const char *family;         /* "llama", "gpt2", ... */
    const char *format;         /* "safetensors", "gguf", "llama2.c" */
    const char *tokenizer_path; /* where its tokenizer would be, for hl_tokenizer_open */
    bool        is_encoder;

    int64_t n_layers;
    int64_t n_heads; /* the most that a layer has, as the next two */
    int64_t n_kv_heads;
    int64_t d_mlp; /* 0: only experts */
    int64_t d_model;
    int64_t d_head;
    int64_t d_vocab;
    int64_t n_ctx; /* 0: the file does not say */
    int64_t n_experts;
    int64_t n_experts_used; /* a token */
    int64_t d_expert;

    const char *norm;       /* "RMSNorm", "LayerNorm" */
    const char *norm_place; /* "before", "after", ... the branches */
    const char *residual;   /* "sequential", "parallel" */
    const char *position;   /* "rope", "learned", "alibi", "none" */
    const char *rope;       /* "default", "llama3", ...; "" without rope */
    double      rope_base;
    const char *activation;
    bool        is_gated;
    bool        is_tied;   /* the output head is the embedding */
    bool        has_sinks; /* learned, one a head */

    int64_t bos_id; /* -1: none */
    int64_t pad_id;
    int64_t eos_ids[16];
    int     n_eos_ids;

    int64_t n_params; /* numbers that were learned */
    int64_t n_tensors;
    size_t  tensor_bytes;
    size_t  kv_bytes_f32; /* of the K/V cache, a token; 0 for an encoder */
    size_t  kv_bytes_f16;
} hl_model_info;

/* Borrowed from the model. */
HL_API const hl_model_info *hl_model_get_info(const hl_model *model);

typedef struct hl_layer_info {
    int64_t n_heads; /* 0: no attention */
    int64_t n_kv_heads;
    int64_t d_mlp; /* of one expert in a mixture; 0: no MLP */
    int64_t n_experts;
    int64_t window; /* keys that a row sees at most; 0: all */
    bool    has_rope;
    double  rope_base;
} hl_layer_info;

/* HL_BAD_ARGUMENT past the last. */
HL_API hl_status hl_model_get_layer(hl_layer_info *out, const hl_model *model, int64_t layer);

typedef struct hl_tensor_info {
    const char *name; /* as in the file */
    const char *role; /* "attn.qkv", ...; "" for what plays no part */
    bool        is_bias;
    hl_dtype    dtype;
    int         n_dims;
    int64_t     shape[8];
    size_t      n_bytes;
} hl_tensor_info;

/* In the order of the file; HL_BAD_ARGUMENT past the last. */
HL_API hl_status hl_model_get_tensor(hl_tensor_info *out, const hl_model *model, int64_t index);

/* A hash of all tensors: names, dtypes, shapes and every byte, whatever files they lie in.
 * Reads the whole model. */
HL_API hl_status hl_model_hash(uint64_t *out, const hl_model *model, int32_t n_threads);

/* Running a model otherwise than it was trained, to see what that does.  Zero: as it is. */
typedef struct hl_adjustment {
    double  temperature; /* of attention: q.k is divided by it */
    int64_t window;      /* a row sees so many keys, itself and those before it, and the first */
    double  rope_base;   /* theta, in all layers that turn */
    double  rope_factor; /* positions are divided by it */
    int64_t window_sink; /* so many first keys; 0: 1, since models lean on it; -1: none */
} hl_adjustment;

/* Before a session of the model is opened, and once.  HL_UNSUPPORTED if the model has nothing
 * of the kind: positions that do not turn or are scaled already, an encoder and a window.
 * Profiles say that the model was adjusted. */
HL_API hl_status hl_model_adjust(hl_model *model, const hl_adjustment *adjustment);

/* ------------------------------------------------------------- tokenizers
 *
 *     hl_tokenizer *tokenizer;
 *     hl_encoding  *encoding;
 *     hl_tokenizer_open(&tokenizer, "models/llama");      or .../tokenizer.json
 *     hl_tokenizer_encode(&encoding, tokenizer, text, strlen(text), NULL);
 *     ... encoding->ids[i], encoding->spans[i] ...
 *
 * A tokenizer does not change after it has been opened and may be used by
 * several threads at once.
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
 * and chat_template.jinja beside it are read too); a .safetensors
 * file in such a folder; a .gguf file with a tokenizer in it; a llama2.c tokenizer.bin, or a
 * checkpoint beside one. */
HL_API hl_status hl_tokenizer_open(hl_tokenizer **out, const char *path);
/* From the bytes of a tokenizer.json; `where` names them in messages. */
HL_API hl_status hl_tokenizer_parse(hl_tokenizer **out, const void *json, size_t n_bytes,
                                    const char *where);
HL_API void      hl_tokenizer_close(hl_tokenizer *tokenizer);

typedef struct hl_encode_options {
    bool add_special; /* put the tokens around the text that the model expects */
    bool plain;       /* special tokens spelled out in the text are ordinary text */
} hl_encode_options;

typedef struct hl_encoding {
    int32_t       *ids;   /* (n_tokens) */
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
                                     const int32_t *ids, size_t n_ids,
                                     const hl_decode_options *options);
/* Releases memory that the library handed out.  Accepts NULL. */
HL_API void hl_free(void *block);

/* Decoding tokens as they come.  What push and finish return is borrowed until the next
 * call, and push never cuts a character: it may return nothing, and more the next time.
 * finish returns what is left.  The tokenizer must outlive the stream. */
typedef struct hl_decode_stream hl_decode_stream;

HL_API hl_status hl_decode_stream_open(hl_decode_stream **out, const hl_tokenizer *tokenizer,
                                       const hl_decode_options *options);
HL_API hl_status hl_decode_stream_push(const char **text, size_t *n_bytes, hl_decode_stream *stream,
                                       int32_t id);
HL_API hl_status hl_decode_stream_finish(const char **text, size_t *n_bytes,
                                         hl_decode_stream *stream);
HL_API void      hl_decode_stream_close(hl_decode_stream *stream);

/* One more than the largest id; not every id below need have a piece. */
HL_API size_t hl_tokenizer_size(const hl_tokenizer *tokenizer);
/* "BPE", "Unigram", "WordPiece" or "WordLevel". */
HL_API const char *hl_tokenizer_kind(const hl_tokenizer *tokenizer);
/* A piece as the vocabulary spells it, which is not the text it stands for; NULL if the
 * id has none.  Borrowed; n_bytes may be NULL. */
HL_API const char *hl_tokenizer_piece(const hl_tokenizer *tokenizer, int32_t id, size_t *n_bytes);
/* -1 if no piece is spelled so. */
HL_API int32_t hl_tokenizer_id(const hl_tokenizer *tokenizer, const char *piece, size_t n_bytes);
HL_API hl_token_type hl_tokenizer_type(const hl_tokenizer *tokenizer, int32_t id);

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
HL_API int32_t hl_tokenizer_special(const hl_tokenizer *tokenizer, hl_special which);

/* ------------------------------------------------------------------- chats
 *
 * Chat templates are programs; headlight does not run them.  It recognises the
 * usual ones by their markers and writes those formats itself.  A template that
 * it does not know is said to be unknown (a warning in the log, and `known` is
 * false), and the messages are written plainly, "role: content" a line. */

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
    bool           known;  /* false: there is a template, but not one that we know */
} hl_chat;

/* What the tokenizer's own template is; *known as above (may be NULL). */
HL_API hl_chat_format hl_tokenizer_chat_format(const hl_tokenizer *tokenizer, bool *known);
HL_API const char    *hl_chat_format_name(hl_chat_format format);
HL_API hl_status      hl_chat_render(hl_chat **out, const hl_tokenizer *tokenizer,
                                     const hl_chat_message *messages, size_t n_messages,
                                     const hl_chat_options *options);
HL_API void           hl_chat_free(hl_chat *chat);
/* Encodes the text and says whose each token is.  Special tokens are recognised only in
 * what the template wrote: a message cannot pretend to be another turn. */
HL_API hl_status hl_chat_encode(hl_encoding **out, const hl_tokenizer *tokenizer,
                                const hl_chat *chat);

/* -------------------------------------------------------- running a model
 *
 *     hl_session *session = NULL;
 *     hl_session_options options = { .n_ctx = 1024 };
 *     hl_tap  tap  = { .layer = print_entropies };
 *     hl_feed feed = { .tokens = tokens, .n_tokens = n_tokens, .tap = &tap };
 *     if (hl_session_open(&session, model, &options) != HL_OK ||
 *         hl_session_feed(session, &feed) != HL_OK)
 *         fprintf(stderr, "%s\n", hl_error_message());
 *     hl_session_close(session);
 *
 * A session is a model at work: the keys and values of every sequence so far, and
 * all the memory that a pass needs.  Feeding tokens appends them: once a whole
 * prompt, later a token at a time.  What the model does on the way goes to the
 * tap, layer by layer, a chunk of rows at a time; only what is wanted is computed.
 * Tokens that were fed count from position 0 in each sequence. */

typedef struct hl_session hl_session;

/* What a session can be asked for beside the statistics of rows. */
enum {
    HL_WANT_Q           = 1 << 0, /* as they meet: after norm and RoPE */
    HL_WANT_K           = 1 << 1,
    HL_WANT_V           = 1 << 2,
    HL_WANT_Z           = 1 << 3, /* each head's output, gated, before the projection */
    HL_WANT_RESID_PRE   = 1 << 4,
    HL_WANT_RESID_MID   = 1 << 5,
    HL_WANT_RESID_POST  = 1 << 6,
    HL_WANT_PATTERN     = 1 << 7, /* whole rows, at chosen positions */
    HL_WANT_LENS        = 1 << 8, /* final norm and unembedding after every block */
    HL_WANT_HIDDEN      = 1 << 9, /* what the final norm gives */
    HL_WANT_LOGITS      = 1 << 10,
    HL_WANT_LAST_LOGITS = 1 << 11, /* of each sequence's last row; hl_session_logits has them */
};

/* What stored blocks of Q8_0, Q4_0, Q4_K and Q6_K are multiplied with where few rows are
 * (a step of decoding, up to 8 rows of a sequence).  INT8 rounds activations to 8 bits,
 * 32 to a scale: a core then gets through Q8_0 1.4 times and through the others twice as fast, if
 * memory lets it.  On models/demo, decoding 512 tokens of two texts, the entropies of
 * attention rows move by 0.007 nats in the mean and 0.2 at most; as Q8_0 the weights
 * themselves move them by 0.003 and 0.07, as Q4_0 by 0.04 and 0.9.  So it is for
 * generating text, and EXACT for measuring.  Other types, and CPUs without AVX2, take
 * no notice. */
typedef enum hl_activations {
    HL_ACTIVATIONS_EXACT = 0,
    HL_ACTIVATIONS_INT8,
    HL_ACTIVATIONS_COUNT
} hl_activations;

typedef struct hl_session_options {
    int64_t        n_ctx;       /* most tokens of a sequence; 0: the model's, at most 4096 */
    int64_t        n_batch;     /* sequences; 0: 1 */
    int64_t        n_chunk;     /* rows of a sequence that are worked on together; 0: 512 */
    int64_t        n_patterns;  /* most positions that HL_WANT_PATTERN may name; 0: none */
    uint32_t       wants;       /* all that feeds may ask for */
    hl_dtype       cache_dtype; /* of keys and values: F32 or F16 */
    int32_t        n_threads;   /* 0: all cores */
    bool           beyond_ctx;  /* n_ctx may exceed the model's, where that can be computed */
    hl_activations activations;
    bool           steady; /* a row's bytes do not depend on what shares its batch, not even
                            * where a sequence has but a few rows left */
} hl_session_options;

/* One layer's rows.  Borrowed for the call; NULL where not wanted. */
typedef struct hl_layer_rows {
    int64_t        layer;
    int64_t        n_batch;
    int64_t        n_rows; /* of every sequence; the last may be padding */
    int64_t        n_heads;
    int64_t        n_kv_heads;
    int64_t        d_head;
    int64_t        d_model;
    const int64_t *start;   /* (n_batch) the position of row 0 */
    const int64_t *lengths; /* (n_batch) how many rows are no padding */

    const hl_attention_result *rows; /* statistics: (n_batch, n_heads, n_rows) each */

    const float *q;          /* (n_batch, n_rows, n_heads,    d_head) */
    const float *k;          /* (n_batch, n_rows, n_kv_heads, d_head) */
    const float *v;          /* (n_batch, n_rows, n_kv_heads, d_head) */
    const float *z;          /* (n_batch, n_rows, n_heads,    d_head) */
    const float *resid_pre;  /* (n_batch, n_rows, d_model) */
    const float *resid_mid;  /* ... ; NULL where both branches read resid_pre */
    const float *resid_post; /* ... */

    const float   *pattern;      /* (n_batch, n_heads, n_patterns, n_keys) probabilities */
    const int64_t *pattern_rows; /* (n_patterns) the rows of this chunk that they are, or
                                  * (n_batch, n_patterns) with patterns_differ; -1: none */
    bool           patterns_differ;
    int64_t        n_patterns;
    int64_t        n_keys;

    const int64_t *lens_top; /* (n_batch, n_rows) the likeliest token before this layer */
    const float   *lens_entropy;
    const float   *lens_gap; /* how far ahead of the second it is, in logits */
} hl_layer_rows;

/* What comes out at the end, of rows of one sequence. */
typedef struct hl_final_rows {
    int64_t        sequence;
    int64_t        start; /* the position of row 0 */
    int64_t        n_rows;
    int64_t        d_model;
    int64_t        d_vocab;
    const float   *hidden;   /* (n_rows, d_model) */
    const float   *logits;   /* (n_rows, d_vocab) */
    const int64_t *lens_top; /* (n_rows) */
    const float   *lens_entropy;
    const float   *lens_gap;
} hl_final_rows;

/* Anything but HL_OK from a callback ends the feed with that status. */
typedef struct hl_tap {
    void *context;
    hl_status (*layer)(void *context, const hl_layer_rows *rows);
    hl_status (*final)(void *context, const hl_final_rows *rows);
    uint32_t       wants;             /* HL_WANT_..., of those the session was opened with */
    const int64_t *pattern_positions; /* (n_pattern_positions) rising */
    int64_t        n_pattern_positions;
    bool           patterns_differ; /* each sequence has its own: (n_batch, n_pattern_positions),
                                     * each rising, -1 where it has no more */
} hl_tap;

typedef struct hl_feed {
    const int64_t *tokens; /* (n_batch, n_tokens) */
    int64_t        n_tokens;
    const int64_t *lengths;     /* (n_batch) the rest is padding; NULL: n_tokens each */
    const int64_t *token_types; /* (n_batch, n_tokens); NULL: 0 */
    const float   *gates;       /* (n_layers, n_heads) multiply heads' outputs; NULL: 1 */
    const uint8_t *segments;    /* (n_batch, n_ctx) for rows' segment_mass; NULL: none */
    int64_t        n_segments;
    const hl_tap  *tap; /* NULL: nobody listens */
} hl_feed;

/* Borrows the model, which must outlive the session. */
HL_API hl_status hl_session_open(hl_session **out, const hl_model *model,
                                 const hl_session_options *options);
HL_API void      hl_session_close(hl_session *session);
/* After a failure the sequences are as long as before, but for the encoder's: an
 * encoder sees a whole sequence at once and keeps nothing. */
HL_API hl_status hl_session_feed(hl_session *session, const hl_feed *feed);
/* How many tokens a sequence has, and back to fewer (0: an empty one). */
HL_API int64_t   hl_session_length(const hl_session *session, int64_t sequence);
HL_API hl_status hl_session_rewind(hl_session *session, int64_t sequence, int64_t length);
/* (d_vocab) after the last token of a sequence; NULL without HL_WANT_LAST_LOGITS. */
HL_API const float *hl_session_logits(const hl_session *session, int64_t sequence);
/* What a session holds beside the mapped weights, all of it allocated when it opens: so
 * the peak of a process is weights + cache + work, and what the kernels take while they
 * run, under 1 MiB a thread, and OpenBLAS for its own buffers. */
typedef struct hl_session_memory {
    int64_t n_ctx;       /* what the options' became */
    size_t  cache_bytes; /* keys and values; the one thing that grows with n_ctx */
    size_t  work_bytes;  /* all else; grows with n_chunk, n_threads and what is wanted */
} hl_session_memory;

/* What hl_session_open would hold with these options, exactly, without holding it. */
HL_API hl_status hl_session_measure(hl_session_memory *out, const hl_model *model,
                                    const hl_session_options *options);
/* Bytes that the session holds beside the mapped weights, the cache among them. */
HL_API size_t hl_session_bytes(const hl_session *session, size_t *cache_bytes);

/* "blocks.5.attn.hook_pattern", "blocks.5.hook_resid_pre", ... : what researchers
 * call a place in a model.  Writes up to n_bytes and returns the length it has. */
typedef enum hl_hook {
    HL_HOOK_Q = 0,
    HL_HOOK_K,
    HL_HOOK_V,
    HL_HOOK_Z,
    HL_HOOK_ATTN_SCORES,
    HL_HOOK_PATTERN,
    HL_HOOK_ENTROPY,
    HL_HOOK_RESID_PRE,
    HL_HOOK_RESID_MID,
    HL_HOOK_RESID_POST,
    HL_N_HOOKS
} hl_hook;
HL_API size_t hl_hook_name(char *out, size_t n_bytes, hl_hook hook, int64_t layer);

/* -------------------------------------------------------------- sampling
 *
 *     hl_sampler       *sampler = NULL;
 *     hl_sample_options options = { .temperature = 0.8, .top_k = 40, .seed = 7 };
 *     hl_sampler_new(&sampler, d_vocab, &options);
 *     hl_sampler_draw(&token, sampler, logits);
 *     hl_sampler_accept(sampler, token);
 *
 * From logits to a token, in this order, which is that of transformers:
 *
 *     repeat_penalty   logits of tokens among the last repeat_last: l / penalty where
 *                      l > 0, l * penalty where l < 0; once, however often they came
 *     temperature      l / temperature; 0 takes the largest and the rest is skipped
 *     top_k            the k largest, and what equals the k-th
 *     top_p            of those, by falling probability, as few as hold a mass of p: a
 *                      token stays where less than p lies before it
 *     min_p            of those, what has at least p of the likeliest one's probability
 *
 * The draw is by the probabilities of what is left.  Draw number n of a seed is a
 * function of both and of nothing else, so one seed gives one text on every machine
 * and with any number of threads, as far as the logits are the same. */

typedef struct hl_sample_options {
    double   temperature;    /* 0: always the likeliest token, the lowest of equals */
    int64_t  top_k;          /* 0: all */
    double   top_p;          /* 0: all, as 1 */
    double   min_p;          /* 0: all */
    double   repeat_penalty; /* 0: none, as 1 */
    int64_t  repeat_last;    /* 0: all tokens so far */
    uint64_t seed;
} hl_sample_options;

typedef struct hl_sampler hl_sampler;

typedef struct hl_candidate {
    int64_t token;
    double  probability; /* after all of the above */
} hl_candidate;

/* All memory is taken here, none by a draw. */
HL_API hl_status hl_sampler_new(hl_sampler **out, int64_t d_vocab,
                                const hl_sample_options *options);
HL_API void      hl_sampler_free(hl_sampler *sampler);
/* logits (d_vocab); -inf is a token that cannot be.  HL_BAD_INPUT, naming the token,
 * where one is NaN or +inf. */
HL_API hl_status hl_sampler_draw(int64_t *token, hl_sampler *sampler, const float *logits);
/* A token is part of the text now, drawn or given: repeat_penalty looks at these. */
HL_API hl_status hl_sampler_accept(hl_sampler *sampler, int64_t token);
/* Those that the last draw chose among; borrowed until the next.  By falling
 * probability with top_k or top_p, else by token. */
HL_API const hl_candidate *hl_sampler_candidates(const hl_sampler *sampler, int64_t *count);

/* ------------------------------------------------------------- generating
 *
 *     hl_generator *generator = NULL;
 *     hl_generated  token     = { 0 };
 *     hl_generator_open(&generator, session, &(hl_generate_options){ .max_tokens = 100 });
 *     hl_generator_prompt(generator, tokens, n_tokens);
 *     while (token.stop == HL_STOP_NONE && hl_generator_next(&token, generator) == HL_OK)
 *         hl_decode_stream_push(&text, &n_bytes, stream, (int32_t)token.id);
 *
 * Tokens only; hl_decode_stream turns them into text and hl_stop_words looks for the
 * words that end it. */

typedef enum hl_stop {
    HL_STOP_NONE = 0, /* it goes on */
    HL_STOP_END,      /* the model said so, with one of its eos_ids or of end_ids */
    HL_STOP_LENGTH,   /* max_tokens */
    HL_STOP_CONTEXT,  /* the session's context is full */
    HL_STOP_WORD,     /* hl_stop_words found one; never from a generator */
} hl_stop;

/* "end", "length", "context", "stop"; "" for HL_STOP_NONE. */
HL_API const char *hl_stop_name(hl_stop stop);

typedef struct hl_generate_options {
    hl_sample_options sample;
    int64_t           max_tokens; /* 0: as many as the context holds */
    bool              ignore_end; /* tokens that end a text are tokens like others */
    const int64_t    *end_ids;    /* (n_end_ids) such tokens, beside the model's eos_ids */
    int               n_end_ids;
    const float      *gates; /* (n_layers, n_heads), as in hl_feed */
    const hl_tap     *tap;   /* also watches; borrowed, as gates and end_ids */
} hl_generate_options;

/* A new token and what the model was like as it chose.  Both describe the model's own
 * distribution, before temperature and filters. */
typedef struct hl_generated {
    int64_t id;
    double  logprob;           /* of this token */
    double  entropy;           /* of the next token, over the vocabulary */
    double  varentropy;        /* ... */
    double  attention_entropy; /* mean over all heads of the row that led to it */
    hl_stop stop;              /* not HL_STOP_NONE: this is the last; HL_STOP_END: the token
                                * is the model's sign and not text */
} hl_generated;

typedef struct hl_generator hl_generator;

/* The session needs HL_WANT_LAST_LOGITS and one sequence; it is borrowed, and what it has
 * been fed before stays before the prompt. */
HL_API hl_status hl_generator_open(hl_generator **out, hl_session *session,
                                   const hl_generate_options *options);
HL_API void      hl_generator_close(hl_generator *generator);
/* At least one token.  May be called again, also after the last token: text that others
 * wrote, after which max_tokens counts anew. */
HL_API hl_status hl_generator_prompt(hl_generator *generator, const int64_t *tokens,
                                     int64_t n_tokens);
/* HL_BAD_ARGUMENT before the first prompt and after the last token. */
HL_API hl_status hl_generator_next(hl_generated *out, hl_generator *generator);

/* What was seen of every token while a text was generated; a safetensors file, which
 * doc/trace.md describes.
 *
 *     hl_tracer *tracer = NULL;
 *     hl_session_options options = { .wants = HL_WANT_LAST_LOGITS | HL_WANT_PATTERN,
 *                                    .n_patterns = 1, .n_ctx = 1024 };
 *     hl_tracer_open(&tracer, model, 1024);
 *     hl_generator_open(&generator, session,
 *                       &(hl_generate_options){ .tap = hl_tracer_tap(tracer) });
 *     hl_tracer_begin(tracer, n_prompt - 1);
 *     hl_generator_prompt(generator, prompt, n_prompt);
 *     while (token.stop == HL_STOP_NONE && hl_generator_next(&token, generator) == HL_OK)
 *         hl_tracer_add(tracer, &token);
 *     hl_trace_write(hl_tracer_trace(tracer), "text.trace"); */
typedef struct hl_trace  hl_trace;
typedef struct hl_tracer hl_tracer;

/* Of every head, in the row that led to the token; NaN of heads that a layer lacks. */
typedef enum hl_trace_rows {
    HL_TRACE_ENTROPY = 0, /* H, nats */
    HL_TRACE_NORMALISED,  /* H / ln n of the n keys it sees; 0 where that is one */
    HL_TRACE_CHANGE,      /* total variation from the row before, over the keys that both see, all
                           * else being one outcome; NaN of the first token */
    HL_N_TRACE_ROWS
} hl_trace_rows;

/* HL_BAD_INPUT, naming the tensor, of what is no trace. */
HL_API hl_status hl_trace_load(hl_trace **out, const char *path);
HL_API hl_status hl_trace_write(const hl_trace *trace, const char *path);
HL_API void      hl_trace_free(hl_trace *trace);
HL_API int64_t   hl_trace_n_tokens(const hl_trace *trace);
HL_API int64_t   hl_trace_n_layers(const hl_trace *trace);
HL_API int64_t   hl_trace_n_heads(const hl_trace *trace); /* the most of any layer */
/* Token, layer and head must exist.  A token's .stop is not kept. */
HL_API hl_generated hl_trace_token(const hl_trace *trace, int64_t token);
HL_API double       hl_trace_row(const hl_trace *trace, int64_t token, int64_t layer, int64_t head,
                                 hl_trace_rows which);
/* Over all heads that are not NaN. */
HL_API double hl_trace_mean(const hl_trace *trace, int64_t token, hl_trace_rows which);

/* Keeps the row before in memory: n_layers * n_heads * n_ctx floats.  Borrows the model. */
HL_API hl_status hl_tracer_open(hl_tracer **out, const hl_model *model, int64_t n_ctx);
HL_API void      hl_tracer_close(hl_tracer *tracer);
/* For the generator, or for feeds; borrowed. */
HL_API const hl_tap *hl_tracer_tap(const hl_tracer *tracer);
/* The next feed ends with the token at `position`, and from there on they come one by one.  A
 * row at the place of the last one (after a rewind) or right after it is compared with that. */
HL_API void hl_tracer_begin(hl_tracer *tracer, int64_t position);
/* The token that the last row led to. */
HL_API hl_status       hl_tracer_add(hl_tracer *tracer, const hl_generated *token);
HL_API const hl_trace *hl_tracer_trace(const hl_tracer *tracer);

/* Words that end a text that comes in pieces.  push returns what can be shown: not what
 * may be the beginning of such a word, and nothing from the first one on; then *found is
 * true and the text is over.  finish returns what was held back.  What they return is
 * borrowed until the next call. */
typedef struct hl_stop_words hl_stop_words;

/* words are not empty and are copied. */
HL_API hl_status hl_stop_words_new(hl_stop_words **out, const char *const *words, size_t n_words);
HL_API void      hl_stop_words_free(hl_stop_words *stop);
HL_API hl_status hl_stop_words_push(const char **text, size_t *n_bytes, bool *found,
                                    hl_stop_words *stop, const char *more, size_t n_more);
HL_API hl_status hl_stop_words_finish(const char **text, size_t *n_bytes, hl_stop_words *stop);

/* -------------------------------------------------------------- perplexity
 *
 *     hl_perplexity *perplexity = NULL;
 *     hl_nll         nll;
 *     hl_perplexity_open(&perplexity, model, &(hl_perplexity_options){ .stride = 256 });
 *     for each text
 *         hl_perplexity_add(&nll, perplexity, &(hl_scored_text){ .tokens = ..., .n_tokens = n });
 *     nll = hl_perplexity_total(perplexity);
 *
 * How well a model predicts texts.  A text is cut into windows: window k is the tokens
 * from k * stride on, n_ctx of them or as many as there are; the last one is the first
 * that reaches the end.  Windows never cross texts, and each starts at position 0.  A
 * token is scored in the first window that has it with a token before it, given all that
 * stand before it there: so every token but the first is scored once if stride < n_ctx,
 * and if stride = n_ctx, the default, the first of each window is given, not scored. */

typedef struct hl_perplexity hl_perplexity;

typedef struct hl_perplexity_options {
    int64_t      n_ctx;     /* tokens of a window; 0: the model's context, at most 4096 */
    int64_t      stride;    /* 1 to n_ctx; 0: n_ctx */
    int64_t      n_batch;   /* windows of a text that are worked on together; 0: 512 rows' worth */
    const float *gates;     /* (n_layers, n_heads), as in hl_feed; borrowed */
    int32_t      n_threads; /* 0: all cores */
    /* Called after every batch of windows; anything but HL_OK ends it with that status. */
    hl_status (*progress)(void *context, int64_t n_tokens, int64_t n_total);
    void *context;
} hl_perplexity_options;

typedef struct hl_scored_text {
    const int64_t *tokens;
    int64_t        n_tokens;
    const int64_t *n_bytes; /* (n_tokens) of the text that each stands for; NULL: not known */
    double        *nll; /* (n_tokens) gets -log p of each, NaN where it is not scored; or NULL */
} hl_scored_text;

typedef struct hl_nll {
    double  sum;            /* nats */
    int64_t n_scored;       /* tokens */
    int64_t n_tokens;       /* those of the texts */
    int64_t n_bytes;        /* of the scored tokens; 0: not known */
    int64_t n_windows;      /* that score a token */
    int64_t n_texts;        /* ... */
    double  mean;           /* sum / n_scored; NaN where nothing was scored, as what follows */
    double  perplexity;     /* e^mean */
    double  bits_per_byte;  /* sum / (n_bytes ln 2) */
    double  standard_error; /* of the mean: of a ratio of sums over texts, or else windows */
    bool    over_texts;     /* there were at least HL_MIN_TEXTS; windows are less independent */
} hl_nll;

#define HL_MIN_TEXTS 8

/* The model must have an output head and see no token that follows: an encoder is
 * HL_UNSUPPORTED.  Borrows it. */
HL_API hl_status hl_perplexity_open(hl_perplexity **out, const hl_model *model,
                                    const hl_perplexity_options *options);
HL_API void      hl_perplexity_close(hl_perplexity *perplexity);
/* One more text; *out is of it alone.  A text of one token or none scores nothing. */
HL_API hl_status hl_perplexity_add(hl_nll *out, hl_perplexity *perplexity,
                                   const hl_scored_text *text);
/* Of all texts so far. */
HL_API hl_nll hl_perplexity_total(const hl_perplexity *perplexity);
/* What the options became. */
HL_API int64_t hl_perplexity_context(const hl_perplexity *perplexity, int64_t *stride);
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
 * read and tokenised as they are needed, one at a time and large ones piece by piece.
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
 * counted and passed over, and a corpus without any text is an error. */

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

/* How documents are cut for a model.  A window holds at most `context` tokens of one
 * document and begins `stride` tokens after the one before it; the first of a document begins
 * with the tokens that the tokenizer puts before a text, the last ends with those behind
 * it.  Where windows overlap, a token counts in the first window it is in. */
typedef struct hl_window_options {
    int64_t context;
    int64_t stride;     /* 0: the context */
    int64_t n_batch;    /* windows at a time; 0: 1 */
    int64_t max_tokens; /* stop after so many tokens that count; 0: never */
    /* One long document: all of them with the end-of-text token between, so that all windows but
     * the last are full. */
    bool pack;
    /* Only part `part` of `n_parts` of the work; 0: all of it.  The parts together are the
     * windows of the whole, each once. */
    int64_t part;
    int64_t n_parts;
} hl_window_options;

/* ---------------------------------------------------------------- profiles
 *
 *     hl_profile *profile = NULL;
 *     if (hl_profile_load(&profile, "gpt2.profile") == HL_OK)
 *         printf("L5H3: %.3f nats\n",
 *                hl_profile_moments(profile, 5, 3, HL_Q_ENTROPY).mean);
 *     hl_profile_free(profile);
 *
 * A profile is what was measured of every head on some text, as sums that add up
 * exactly: profiles of parts of a text merge to the very bytes of the whole's, in any
 * order.  It is a safetensors file, which doc/profile.md describes. */

typedef struct hl_profile hl_profile;

HL_API hl_status hl_profile_load(hl_profile **out, const char *path);
/* From memory; `where` names it in messages.  Nothing of it is needed afterwards. */
HL_API hl_status hl_profile_parse(hl_profile **out, const void *bytes, size_t n_bytes,
                                  const char *where);
HL_API hl_status hl_profile_write(const hl_profile *profile, const char *path);
HL_API void      hl_profile_free(hl_profile *profile);
/* Adds another profile.  HL_BAD_INPUT if that is of another model or was measured in another
 * way; the message names what differs, and nothing has been added. */
HL_API hl_status hl_profile_merge(hl_profile *profile, const hl_profile *other);
/* What was measured and how: "model", "context", "seed" ...; NULL if it does not say. */
HL_API const char *hl_profile_setting(const hl_profile *profile, const char *key);

/* What is kept of every row.  Undefined values (no other key than the first, fewer
 * than 16 visible keys for the fair entropy, a key that is not visible) are not
 * counted, so that each quantity has a count of its own. */
typedef enum hl_quantity {
    HL_Q_ENTROPY = 0, /* H, nats, all rows: the seed mean                */
    HL_Q_FAIR,        /* H / ln n, rows that see at least 16 keys        */
    HL_Q_RENYI2,
    HL_Q_VARENTROPY,
    HL_Q_PEAK,
    HL_Q_SELF,
    HL_Q_PREVIOUS,
    HL_Q_FIRST,
    HL_Q_NOSINK, /* H over the keys other than the first, renormalised */
    HL_N_QUANTITIES
} hl_quantity;

/* Histograms of 64 equal bins over [0, 1]. */
typedef enum hl_histogram {
    HL_HIST_NORMALISED = 0, /* H / ln n, rows that see at least 2 keys */
    HL_HIST_NOSINK,         /* H_nosink / ln n', n' >= 2               */
    HL_HIST_PEAK,
    HL_N_HISTOGRAMS
} hl_histogram;

/* Means over sampled rows (whole rows of attention), metrics.md 5; each also over the
 * row without key 0, renormalised, where `nosink` is true below. */
typedef enum hl_pattern_metric {
    HL_PM_DIAGONAL = 0, /* A(i,i)                                    */
    HL_PM_PREVIOUS,     /* A(i,i-1)                                  */
    HL_PM_BAND,         /* sum of A(i,j), i - j <= 4                 */
    HL_PM_SINK,         /* A(i,0), i >= 1                            */
    HL_PM_DIAGONAL_TOP, /* share of rows whose largest is A(i,i)     */
    HL_PM_PEAK,
    HL_PM_CONTENT,  /* 1 - band - sink, not below 0              */
    HL_PM_EDGES,    /* share of visible pairs with A > 1e-3      */
    HL_PM_K90,      /* share of keys that hold 90% of the row    */
    HL_PM_SUPPORT2, /* exp(H2) / n                               */
    HL_PM_CHANCE,   /* 1 / n, for the lift of the diagonal       */
    HL_N_PATTERN_METRICS
} hl_pattern_metric;

/* Scores on a repeated random sequence: the mean of A on an offset diagonal. */
typedef enum hl_probe {
    HL_PROBE_INDUCTION = 0,
    HL_PROBE_DUPLICATE,
    HL_PROBE_PREVIOUS,
    HL_N_PROBES
} hl_probe;

/* A count, a mean and a variance; mean and variance are NaN when nothing was counted. */
typedef struct hl_moments {
    int64_t count;
    double  mean;
    double  variance; /* of the sample, divided by count */
    double  min;
    double  max;
} hl_moments;

/* Every function takes a layer and a head that exist; heads of a layer beyond its own
 * number (per-layer head counts) read as never counted. */

HL_API int64_t hl_profile_n_layers(const hl_profile *profile);
HL_API int64_t hl_profile_n_heads(const hl_profile *profile); /* the most of any layer */
HL_API int64_t hl_profile_heads_of(const hl_profile *profile, int64_t layer);

HL_API hl_moments hl_profile_moments(const hl_profile *profile, int64_t layer, int64_t head,
                                     hl_quantity quantity);
/* Rows with a NaN, an infinity, or H > ln n + 1e-3: counted here and nowhere else. */
HL_API int64_t hl_profile_broken(const hl_profile *profile, int64_t layer, int64_t head);
/* Where the first of them was: a document, and a token of it; false if there is none. */
HL_API bool hl_profile_broken_place(int64_t *document, int64_t *token, const hl_profile *profile,
                                    int64_t layer, int64_t head);

/* (64) counts; and the value below which a share q of the rows lies, NaN of none. */
HL_API const int64_t *hl_profile_histogram(const hl_profile *profile, int64_t layer, int64_t head,
                                           hl_histogram histogram);
HL_API double         hl_profile_quantile(const hl_profile *profile, int64_t layer, int64_t head,
                                          hl_histogram histogram, double q);

/* By position: bucket b holds the positions 2^b - 1 <= i < 2^(b+1) - 1.  ENTROPY and FAIR
 * only; min and max are NaN. */
HL_API int64_t    hl_profile_n_buckets(const hl_profile *profile);
HL_API hl_moments hl_profile_by_position(const hl_profile *profile, int64_t layer, int64_t head,
                                         int64_t bucket, hl_quantity quantity);

/* By type of the row's token: ENTROPY, FAIR and RENYI2 only; min and max are NaN.
 * hl_profile_lookback is the mean share of attention that rows of type `from` give to
 * keys of type `to`. */
HL_API int64_t     hl_profile_n_types(const hl_profile *profile);
HL_API const char *hl_profile_type_name(const hl_profile *profile, int64_t type);
HL_API hl_moments  hl_profile_by_type(const hl_profile *profile, int64_t layer, int64_t head,
                                      int64_t type, hl_quantity quantity);
HL_API double      hl_profile_lookback(const hl_profile *profile, int64_t layer, int64_t head,
                                       int64_t from, int64_t to);

/* Sampled rows. */
HL_API hl_moments hl_profile_pattern(const hl_profile *profile, int64_t layer, int64_t head,
                                     hl_pattern_metric metric, bool nosink);
/* 1 - mean total variation between two heads' rows, and linear CKA of their outputs. */
HL_API double hl_profile_similarity(const hl_profile *profile, int64_t layer, int64_t a, int64_t b);
HL_API double hl_profile_cka(const hl_profile *profile, int64_t layer, int64_t a, int64_t b);
/* NaN where the probe was not run. */
HL_API double hl_profile_probe(const hl_profile *profile, int64_t layer, int64_t head,
                               hl_probe probe);

/* Mean norm of what the head writes over the layer's mean of that; NaN: not measured. */
HL_API double hl_profile_output_norm(const hl_profile *profile, int64_t layer, int64_t head);
/* Mean of 1 - cos(in, out) of the block; NaN: not measured. */
HL_API double hl_profile_block_influence(const hl_profile *profile, int64_t layer);
/* Nats a token; count 0: not measured. */
HL_API hl_moments hl_profile_nll(const hl_profile *profile);

/* Sequences kept for the bootstrap: those with the smallest content hashes.  ENTROPY
 * and FAIR and NOSINK means of a sequence, NaN where it has no such row. */
HL_API int64_t  hl_profile_n_sequences(const hl_profile *profile); /* kept */
HL_API int64_t  hl_profile_all_sequences(const hl_profile *profile);
HL_API int64_t  hl_profile_n_tokens(const hl_profile *profile);
HL_API uint64_t hl_profile_sequence_hash(const hl_profile *profile, int64_t sequence);
HL_API double   hl_profile_sequence_mean(const hl_profile *profile, int64_t sequence, int64_t layer,
                                         int64_t head, hl_quantity quantity);
/* --------------------------------------------------------------- measuring
 *
 *     hl_corpus_open(&corpus, model, tokenizer, &corpus_options);
 *     hl_measure(&profile, model, tokenizer, corpus, NULL);
 *     hl_profile_write(profile, "gpt2.profile");
 *
 * Runs a model over a text and sums up what its heads do.  The profile depends on the
 * model, the text and the options that say so below; not on batches, parts, threads'
 * order or interruptions. */

typedef struct hl_measure_progress {
    int64_t n_tokens;    /* that have counted, before an interruption too */
    int64_t n_sequences; /* windows */
    double  share;       /* of the work, 0 to 1 */
} hl_measure_progress;

typedef struct hl_measure_options {
    /* Change the numbers. */
    hl_window_options windows; /* context 0: the model's, at most 1024; n_batch, part and
                                * n_parts do not change the numbers */
    uint64_t          seed;    /* of the rows that are looked at whole, and of the probe */
    bool              nll;     /* the loss of every token */
    bool              no_probe;
    double            epsilon; /* above 0: entropy is -sum p ln(p + epsilon), by the definition,
                                * from whole rows; slow */

    /* Do not. */
    const char *rows_path;  /* every row's statistics, to this file; held in memory */
    const char *state_path; /* where the state is saved; NULL: nowhere */
    double      save_every; /* seconds; 0: 30 */
    bool        resume;     /* go on from the state, if there is one */
    int32_t     n_threads;
    /* After every batch.  Anything but HL_OK ends the work with that status, after its state
     * has been saved. */
    hl_status (*progress)(void *context, const hl_measure_progress *progress);
    void *context;
} hl_measure_options;

/* The tokenizer may be NULL, as the options.  A state of other settings or of another text is
 * HL_BAD_INPUT.  The state's file is for the caller to remove, once the profile lies safe. */
HL_API hl_status hl_measure(hl_profile **out, const hl_model *model, const hl_tokenizer *tokenizer,
                            const hl_corpus *corpus, const hl_measure_options *options);

/* Attention that another program computed, of any kind of model: a .safetensors or .npy file
 * of floating-point numbers,
 *
 *     one tensor   [L,B,H,S,S], [L,H,S,S] or [H,S,S]; in safetensors it is called attention,
 *                  attentions, attn, pattern, patterns, scores or attn_scores, or it is the only
 *                  one in the file
 *     one a layer  [B,H,S,S] or [H,S,S] each, named alike but for a number, from 0 up:
 *                  "blocks.10.attn.hook_pattern" is layer 10.  The names must have attn,
 *                  attention, pattern or scores in them; heads may differ in number
 *
 * with queries before keys, and maybe `lengths` [B], integers: how many positions are real.
 * Where there are fewer queries than keys, they are the last positions.  Rows must
 * sum to 1 within 1e-3, or to 0 where they see nothing. */

/* Whether a row sees the keys up to its own position or all: it decides how many keys it
 * could have looked at, and so about normalised entropies. */
typedef enum hl_maps_mask {
    HL_MAPS_MASK_AUTO = 0, /* look whether the file is causal */
    HL_MAPS_MASK_CAUSAL,   /* it must be */
    HL_MAPS_MASK_FULL,     /* it is not, whatever it looks like */
} hl_maps_mask;

typedef struct hl_maps_options {
    bool         scores; /* entries are scores before the softmax */
    hl_maps_mask mask;
    uint64_t     seed; /* of the rows that are looked at whole */
    int32_t      n_threads;
} hl_maps_options;

/* The profile of all sequences of a file.  What only a model knows (outputs, loss, probes)
 * is not measured; all positions are of type "prompt".  The options may be NULL. */
HL_API hl_status hl_measure_maps(hl_profile **out, const char *path,
                                 const hl_maps_options *options);

/* Many machines.  Under mpirun, in a library that was built with MPI (make MPI=1), a process
 * is one of several ranks, which all call these in this order; else it is rank 0 of 1.
 *
 *     hl_ranks_start(&rank, &n_ranks);
 *     options.windows.part = rank, options.windows.n_parts = n_ranks;
 *     status = hl_measure(&profile, ...);
 *     status = hl_ranks_reduce(profile, status);      rank 0 has the whole
 *     hl_ranks_finish();
 *
 * HL_UNSUPPORTED under mpirun without MPI: all ranks would do all the work. */
HL_API hl_status hl_ranks_start(int32_t *rank, int32_t *n_ranks);
/* A rank's own status in; out the same, or HL_CANCELLED with the number of a rank that
 * failed.  Nobody goes on before all are here. */
HL_API hl_status hl_ranks_agree(hl_status own);
/* Agrees, then adds up the profiles at rank 0.  The profile may be NULL where the status is not
 * HL_OK. */
HL_API hl_status hl_ranks_reduce(hl_profile *profile, hl_status own);
HL_API void      hl_ranks_finish(void);

/* ------------------------------------------------------------------ tables
 *
 * What follows from profiles comes as tables, which can be read cell by cell or
 * rendered whole:
 *
 *     char *text = NULL;
 *     if (hl_sheet_render(&text, table, HL_SHEET_CSV) == HL_OK)
 *         fputs(text, stdout);
 *     hl_free(text); */

typedef struct hl_sheet hl_sheet;

typedef enum hl_column_type {
    HL_COLUMN_TEXT = 0,
    HL_COLUMN_INT,
    HL_COLUMN_REAL,
    HL_COLUMN_BOOL,
} hl_column_type;

typedef enum hl_sheet_format {
    HL_SHEET_TEXT = 0, /* for people */
    HL_SHEET_CSV,      /* RFC 4180, all digits; empty: not measured */
    HL_SHEET_JSON,     /* { "table", "title", "facts", "rows" }; null: not measured */
} hl_sheet_format;

HL_API void hl_sheet_free(hl_sheet *table);
/* *out is released with hl_free. */
HL_API hl_status hl_sheet_render(char **out, const hl_sheet *table, hl_sheet_format format);

/* What is returned is borrowed from the table; rows and columns must exist. */
HL_API const char    *hl_sheet_name(const hl_sheet *table);
HL_API const char    *hl_sheet_title(const hl_sheet *table);
HL_API int64_t        hl_sheet_n_rows(const hl_sheet *table);
HL_API int64_t        hl_sheet_n_columns(const hl_sheet *table);
HL_API const char    *hl_sheet_column_name(const hl_sheet *table, int64_t column);
HL_API hl_column_type hl_sheet_column_type(const hl_sheet *table, int64_t column);
/* The column of that name, or -1. */
HL_API int64_t hl_sheet_find(const hl_sheet *table, const char *name);
/* NaN of text and of what was not measured; booleans are 0 and 1. */
HL_API double hl_sheet_number(const hl_sheet *table, int64_t row, int64_t column);
/* "" of what is no text. */
HL_API const char *hl_sheet_text(const hl_sheet *table, int64_t row, int64_t column);
/* What holds for the whole table; NaN if there is no such number. */
HL_API double hl_sheet_fact(const hl_sheet *table, const char *name);

/* ---------------------------------------------------------------- analyses
 *
 *     hl_sheet *table = NULL;
 *     if (hl_analyse(&table, profile, "layers", NULL) == HL_OK) ...
 *
 * One table a question; doc/metrics.md defines every number in them. */

/* The names of the tables, and a line on each; NULL past the last. */
HL_API const char *hl_analysis_name(size_t index);
HL_API const char *hl_analysis_summary(size_t index);

typedef struct hl_analysis_options {
    uint64_t seed;       /* of the bootstrap and of the clusters' trials */
    int64_t  n_extremes; /* how many heads (pairs) at each end; 0: 10 (20) */
} hl_analysis_options;

/* HL_BAD_ARGUMENT if there is no table of that name. */
HL_API hl_status hl_analyse(hl_sheet **out, const hl_profile *profile, const char *name,
                            const hl_analysis_options *options);

/* --------------------------------------------------------------- diagnoses
 *
 * Eight things that can be wrong with attention, each with its rule, what was
 * found, what speaks against it, and what to do. */

/* The thresholds of the rules; hl_threshold_name has their names. */
typedef enum hl_threshold {
    HL_T_COLLAPSE_SHARE = 0, /* of heads with */
    HL_T_COLLAPSE_ENTROPY,   /* a median normalised entropy without the sink below this */
    HL_T_COLLAPSE_FALL,      /* robust standard deviations */
    HL_T_OVERLOAD_SHARE,     /* of heads with */
    HL_T_OVERLOAD_ENTROPY,   /* a median normalised entropy of at least this, and */
    HL_T_OVERLOAD_CHANGE,    /* a standard deviation over sequences below this */
    HL_T_LOCKING_WINDOW,     /* tokens */
    HL_T_LOCKING_CHANGE,     /* total variation between consecutive rows */
    HL_T_LOCKING_SPREAD,     /* standard deviation and drift of the entropy in a window */
    HL_T_FLAT_ERRORS,        /* standard errors */
    HL_T_REDUNDANCY_SIMILARITY,
    HL_T_INACTIVE_NORM, /* of the layer's mean */
    HL_T_SINK_MASS,
    HL_T_BROKEN_ROWS, /* more than so many */
    HL_N_THRESHOLDS
} hl_threshold;

typedef struct hl_thresholds {
    double values[HL_N_THRESHOLDS];
} hl_thresholds;

HL_API hl_thresholds hl_thresholds_default(void);
/* "collapse-share", ...; NULL past the last. */
HL_API const char *hl_threshold_name(size_t index);
/* HL_BAD_ARGUMENT if there is no such name, or if the value is below 0 or no number. */
HL_API hl_status hl_threshold_set(hl_thresholds *thresholds, const char *name, double value);

typedef enum hl_verdict {
    HL_VERDICT_ABSENT = 0,
    HL_VERDICT_PRESENT,
    HL_VERDICT_NOT_MEASURED, /* the profile does not hold what the rule needs */
} hl_verdict;

typedef struct hl_shown_by {
    int64_t layer;
    int64_t head;
    double  value;
} hl_shown_by;

typedef struct hl_diagnosis {
    const char  *name; /* "entropy-collapse" */
    hl_verdict   verdict;
    double       value; /* what the rule compares; NaN: not measured */
    double       threshold;
    const char  *evidence;   /* "literature" or "heuristic" */
    const char  *source;     /* who described it; "" of a heuristic */
    const char  *mitigation; /* what can be done */
    const char  *measure;    /* how to measure what is missing; "" where nothing is */
    char        *rule;       /* with the thresholds in force */
    char        *finding;    /* what was found, in words */
    char        *against;    /* what speaks against it, or is not known; "" if nothing */
    hl_shown_by *heads;      /* (n_heads) that show it, the clearest first */
    int64_t      n_heads;
} hl_diagnosis;

enum { HL_N_DIAGNOSES = 8 };

typedef struct hl_diagnoses {
    hl_diagnosis items[HL_N_DIAGNOSES];
} hl_diagnoses;

/* `before` is the same model's profile at an earlier time, or at random weights; NULL: none.
 * thresholds NULL: the defaults. */
HL_API hl_status hl_diagnose(hl_diagnoses **out, const hl_profile *profile,
                             const hl_profile *before, const hl_thresholds *thresholds);
HL_API void      hl_diagnoses_free(hl_diagnoses *diagnoses);
/* Attention-locking, which profiles cannot tell, from a trace: takes the place of what `found`
 * said of it. */
HL_API hl_status hl_diagnose_trace(hl_diagnoses *found, const hl_trace *trace,
                                   const hl_thresholds *thresholds);
/* "absent", "present", "not measured". */
HL_API const char *hl_verdict_name(hl_verdict verdict);

/* Attention-locking, from what was seen of each new token while generating: entropy (n_tokens)
 * normalised, mean over heads; change (n_tokens) total variation between the row and the one
 * before it, mean over heads.  A window is locked if its entropy neither drifts nor spreads and
 * its rows do not change, while the rows of an earlier window did. */
typedef struct hl_locking {
    bool    locked;
    int64_t first;  /* token of the first locked window; -1: none */
    double  slope;  /* of the entropy over that window, a token; NaN: no window */
    double  spread; /* its standard deviation */
    double  change; /* mean */
    int64_t n_windows;
} hl_locking;

HL_API hl_status hl_find_locking(hl_locking *out, const double *entropy, const double *change,
                                 int64_t n_tokens, const hl_thresholds *thresholds);

/* ---------------------------------------------------------------- comparing
 *
 * Two profiles of models with equally many layers and heads.  Sequences that both hold
 * are drawn together (the paired bootstrap); without any the two are drawn apart. */

typedef enum hl_comparison_kind {
    HL_COMPARE_SAME_TOKENS = 0, /* sequences in common */
    HL_COMPARE_TWO_TEXTS,       /* one model, nothing in common: are its heads' ranks stable? */
    HL_COMPARE_APART,           /* neither model nor text in common */
} hl_comparison_kind;

typedef struct hl_comparison {
    hl_comparison_kind kind;
    bool               same_model;    /* both profiles say so, by hash */
    int64_t            n_shared;      /* sequences */
    int64_t            n_heads;       /* compared */
    int64_t            n_significant; /* heads whose fair entropy differs, false discovery < 5% */
    /* Owned by the comparison. */
    hl_sheet *ranks;       /* is the order of the heads the same? */
    hl_sheet *metrics;     /* every metric over all heads */
    hl_sheet *layers;      /* fair entropy of every layer */
    hl_sheet *heads;       /* fair entropy of every head, with interval, p and q */
    hl_sheet *differences; /* every metric of every head, B - A */
    hl_sheet *matching;    /* which head of B is which of A, layer by layer */
} hl_comparison;

HL_API hl_status hl_compare(hl_comparison **out, const hl_profile *a, const hl_profile *b,
                            const hl_analysis_options *options);
HL_API void      hl_comparison_free(hl_comparison *comparison);
/* "same tokens", "two texts", "apart". */
HL_API const char *hl_comparison_kind_name(hl_comparison_kind kind);
/* "ranks", "metrics", ...; NULL past the last.  And the table of that name, NULL if there is
 * none. */
HL_API const char     *hl_comparison_table_name(size_t index);
HL_API const hl_sheet *hl_comparison_table(const hl_comparison *comparison, const char *name);

/* ---------------------------------------------------------------- pictures
 *
 *     hl_draw_options options = { .theme = HL_THEME_DARK };
 *     hl_draw(profile, "heatmap", "heads.svg", &options);
 *
 * One figure a file; its ending says which format: .svg, .png or .pdf. */

typedef enum hl_theme { HL_THEME_LIGHT = 0, HL_THEME_DARK } hl_theme;

typedef enum hl_entropy_unit {
    HL_UNIT_NATS = 0,
    HL_UNIT_BITS,
    HL_UNIT_NORMALISED, /* H / ln n, of rows that see at least 16 keys */
} hl_entropy_unit;

typedef enum hl_scale {
    HL_SCALE_CONTINUOUS = 0,
    HL_SCALE_CLASSES, /* under 0.5 nats, to 1, to 1.5, to 2, to 2.5, over it; heatmap only */
} hl_scale;

typedef struct hl_draw_options {
    const char     *title;   /* NULL: the figure's own; "": none */
    const char     *caption; /* before what the profile says of itself: which corpus, say */
    hl_theme        theme;
    hl_entropy_unit unit;
    hl_scale        scale;
    double          width; /* points, 240 to 2000; 0: 480 */
    double          dpi;   /* of PNG, 24 to 1200; 0: 144 */
    uint64_t        seed;  /* of the bootstrap */
} hl_draw_options;

/* The names of the figures, and a line on each; NULL past the last. */
HL_API const char *hl_figure_name(size_t index);
HL_API const char *hl_figure_summary(size_t index);

/* The options may be NULL.  HL_BAD_ARGUMENT if there is no such figure, format or width;
 * HL_BAD_INPUT if the profile does not hold what the figure shows. */
HL_API hl_status hl_draw(const hl_profile *profile, const char *figure, const char *path,
                         const hl_draw_options *options);

/* ---------------------------------------------------------------- verify
 *
 * Runs a golden file, a safetensors file with inputs and what another program
 * computed from them, and reports the largest error of every output.  There are
 * attention cases; files of quantised blocks: NAME.blocks, U8, beside
 * NAME.values, F32, for each type, which must be read exactly; and models, with
 * the tensors of an expected.safetensors beside them, or else by themselves: fused
 * rows against rows materialised in double precision. */

typedef struct hl_verify_options {
    const char *backend;    /* NULL: every one that this CPU can run */
    const char *write_path; /* store what the chosen back end computed, under the case's names */
    int32_t     n_threads;
    /* Of models only. */
    const char *expected_path; /* NULL: expected.safetensors beside the model, if there */
    int64_t     n_chunk;       /* prefill so many tokens at a time; 0: all */
    bool        decode;        /* one token at a time, through the cache */
} hl_verify_options;

typedef struct hl_verify_entry {
    const char *backend; /* borrowed, as is output */
    const char *output;  /* "entropy", "dq", ...; of blocks the type, "Q4_K" */
    double      error;   /* largest, absolute or relative as `relative` says */
    double      tolerance;
    bool        relative; /* to the largest value of the tensor */
    bool        passed;
} hl_verify_entry;

typedef struct hl_verify_report {
    char            *name; /* of the case: the file's name without its ending */
    hl_verify_entry *entries;
    size_t           n_entries;
    bool             passed;
    double           max_score; /* of a model, the largest |score|: its rounding, 8 * 2^-24 of
                                 * it, is allowed in any case; 0: not looked at */
} hl_verify_report;

/* Whichever of the three it is. */
HL_API hl_status hl_verify(hl_verify_report **out, const char *path,
                           const hl_verify_options *options);
HL_API hl_status hl_verify_attention(hl_verify_report **out, const char *path,
                                     const hl_verify_options *options);
HL_API hl_status hl_verify_blocks(hl_verify_report **out, const char *path,
                                  const hl_verify_options *options);
HL_API hl_status hl_verify_model(hl_verify_report **out, const char *path,
                                 const hl_verify_options *options);
HL_API void      hl_verify_report_free(hl_verify_report *report);

#ifdef __cplusplus
}
#endif
#endif
