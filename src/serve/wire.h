/* wire.h - what OpenAI's clients send, checked and put into our terms.
 *
 * Requests are untrusted: every member is known by name, of the right type and in its range, or
 * the request is refused with the member's name.  What would change the answer and is not done
 * here (tools, penalties, images ...) is refused rather than ignored; doc/serve.md has the list.
 *
 * Pure functions: JSON in, options out. */
#ifndef HL_SERVE_WIRE_H
#define HL_SERVE_WIRE_H

#include "base/json.h"
#include "generate/engine.h"
#include "headlight/prune.h"

enum {
    HL_WIRE_MAX_STOPS   = 16,
    HL_WIRE_MAX_CHOICES = 16,  /* of one request: prompts times n */
    HL_WIRE_MAX_TOP     = 20,  /* alternatives of a token */
    HL_WIRE_MAX_TEXT    = 256, /* bytes of a stop word */

    /* A kind of rows that is made of another: HL_TRACE_NOSINK / ln n', of the n' keys other than
     * key 0 that the row sees; NaN where they are fewer than two. */
    HL_WIRE_NOSINK_SHARE = HL_N_TRACE_ROWS,
    HL_WIRE_N_ROWS
};

/* Why a request was refused; hl_error_message() says it in words. */
typedef struct hl_wire_fault {
    int         status;    /* of HTTP */
    const char *code;      /* "model_not_found", ...; NULL: none.  Static */
    char        param[32]; /* the member; "": none */
} hl_wire_fault;

typedef struct hl_wire_request {
    bool              is_chat;
    const json_t     *prompt; /* or messages; borrowed */
    bool              stream;
    bool              include_usage;
    int64_t           n;          /* choices of each prompt */
    int64_t           max_tokens; /* -1: as many as the context holds */
    bool              logprobs;
    int64_t           n_top;
    bool              echo;
    bool              has_seed;
    bool              ignore_end;
    hl_sample_options sample;
    const char       *stops[HL_WIRE_MAX_STOPS]; /* (n_stops) borrowed */
    int               n_stops;

    /* The member "headlight". */
    bool          watch;       /* numbers of every token */
    bool          with_prompt; /* of the prompt's tokens, too */
    uint32_t      rows;        /* bits HL_JOB_ROWS(...), of HL_WIRE_NOSINK_SHARE too */
    hl_gates     *gates;       /* NULL: all heads are on */
    hl_head_list *patterns;    /* NULL: none */
} hl_wire_request;

typedef struct hl_wire_context {
    const hl_model *model;
    const char     *model_name;
} hl_wire_context;

/* To be released in every case.  HL_BAD_INPUT with *fault where it is refused. */
hl_status hl_wire_read(hl_wire_request *out, hl_wire_fault *fault, const json_t *root, bool is_chat,
                       const hl_wire_context *context);
void      hl_wire_request_release(hl_wire_request *request);

/* "L3H1", or a list of such words, as an array of strings or one string; for `where` in
 * messages. */
hl_status hl_wire_heads(hl_head_list **out, const json_t *value, const hl_model *model,
                        const char *where);

/* The model's gates with these heads at 0, for `where` in messages; NULL of an empty list. */
hl_status hl_wire_gates(hl_gates **out, const json_t *off, const hl_model *model,
                        const char *where);

/* The name of a kind of rows on the wire: "entropy", "lookback_prompt", ...; NULL of what is not
 * served. */
const char *hl_wire_rows_name(int rows);

/* ---------------------------------------------------------------------- JSON */

/* { "error": { "message", "type", "param", "code" } } as OpenAI writes it. */
json_t *hl_wire_error(int status, const char *message, const char *param, const char *code);

/* (n_rows, n_columns) as an array of arrays; n_rows 0: a plain array. */
json_t *hl_wire_numbers(const float *numbers, int64_t n_rows, int64_t n_columns);
/* Bytes of a token as a string: what is no UTF-8 becomes \xe4, byte by byte. */
json_t *hl_wire_piece(const char *bytes, size_t n_bytes);
/* From malloc; NULL when memory is out or the tree is NULL.  Releases it. */
char *hl_wire_dump(json_t *tree);

#endif
