/* wire.h - requests of OpenAI clients, checked and turned into our options.
 *
 * Requests are untrusted: a request is refused, with the name of the member, if a member has the
 * wrong type or is out of range.  Members that would change the answer but are not supported
 * (grammars, penalties, images ...) are refused by name; doc/serve.md lists them.  Others that are
 * unknown are ignored, and the answer names them.
 *
 * The functions are pure: JSON in, options out. */
#ifndef HL_SERVE_WIRE_H
#define HL_SERVE_WIRE_H

#include "base/json.h"
#include "generate/engine.h"
#include "headlight/prune.h"

enum {
    HL_WIRE_MAX_STOPS   = 16,
    HL_WIRE_MAX_CHOICES = 16,  /* limit per request: prompts times n */
    HL_WIRE_MAX_TOP     = 20,  /* limit of alternatives per token */
    HL_WIRE_MAX_TEXT    = 256, /* limit of a stop word, in bytes */

    /* A derived kind of rows: HL_TRACE_ENTROPY_NOSINK / ln n', where n' is the number of visible
     * keys without the first one; NaN if n' is less than two. */
    HL_WIRE_NOSINK_SHARE = HL_N_TRACE_ROWS,
    HL_WIRE_N_ROWS
};

/* Why a request was refused; hl_error_message() has the text. */
typedef struct hl_wire_fault {
    int         status;    /* HTTP status */
    const char *code;      /* "model_not_found", ..., static; NULL: none */
    char        param[32]; /* name of the member at fault; "": none */
} hl_wire_fault;

typedef struct hl_wire_request {
    bool              is_chat;
    const json_t     *prompt;    /* the prompt or the messages; borrowed */
    json_t           *variables; /* of the chat template: tools and others; NULL: none */
    json_t           *ignored;   /* names of members that were not understood; NULL: none */
    bool              stream;
    bool              include_usage;
    int64_t           n;          /* choices per prompt */
    int64_t           max_tokens; /* -1: as many as the context holds */
    bool              logprobs;
    int64_t           n_top;
    bool              echo;
    bool              has_seed;
    bool              ignore_end;
    hl_sample_options sample;
    const char       *stops[HL_WIRE_MAX_STOPS]; /* (n_stops) borrowed */
    int               n_stops;

    /* The fields below are the member "headlight". */
    bool          watch;       /* report numbers for every token */
    bool          with_prompt; /* report the prompt's tokens too */
    uint32_t      rows;        /* bits HL_JOB_ROWS(...), including HL_WIRE_NOSINK_SHARE */
    hl_gates     *gates;       /* NULL: no head is disabled */
    hl_head_list *patterns;    /* NULL: none */
} hl_wire_request;

typedef struct hl_wire_context {
    const hl_model *model;
    const char     *model_name;
} hl_wire_context;

/* Must be released whatever it returns. Fails with HL_BAD_INPUT and *fault if the request is
 * refused. */
hl_status hl_wire_read(hl_wire_request *out, hl_wire_fault *fault, const json_t *root, bool is_chat,
                       const hl_wire_context *context);
void      hl_wire_request_release(hl_wire_request *request);

/* Parses "L3H1", or a list of such words as an array of strings or as one string. `where` names it
 * in messages. */
hl_status hl_wire_heads(hl_head_list **out, const json_t *value, const hl_model *model,
                        const char *where);

/* Returns the model's gates with these heads at 0; NULL for an empty list. `where` names the list
 * in messages. */
hl_status hl_wire_gates(hl_gates **out, const json_t *off, const hl_model *model,
                        const char *where);

/* Returns the JSON name of a kind of rows: "entropy", "lookback_prompt", ...; NULL if it is not
 * served. */
const char *hl_wire_rows_name(int rows);

/* ---------------------------------------------------------------------- JSON */

/* Returns { "error": { "message", "type", "param", "code" } }, OpenAI's format. */
json_t *hl_wire_error(int status, const char *message, const char *param, const char *code);

/* Returns (n_rows, n_columns) numbers as an array of arrays; n_rows 0: a plain array. */
json_t *hl_wire_numbers(const float *numbers, int64_t n_rows, int64_t n_columns);
/* Returns the bytes of a token as a string; each byte that is not valid UTF-8 is written as
 * \xNN. */
json_t *hl_wire_piece(const char *bytes, size_t n_bytes);
/* Returns text from malloc, or NULL if out of memory or if the tree is NULL. Releases the tree. */
char *hl_wire_dump(json_t *tree);

#endif
