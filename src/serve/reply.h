/* reply.h - one text as it is made: from the engine's events to the choices that clients get.
 *
 *     event  ->  decode stream (whole characters)  ->  stop words  ->  text
 *            ->  log-probabilities of the token and of the most likely ones
 *            ->  headlight's numbers, and the score of a spike
 *
 * hl_reply_take returns what was added since the last call.  In a stream it is called after every
 * token, otherwise once. */
#ifndef HL_SERVE_REPLY_H
#define HL_SERVE_REPLY_H

#include "base/json.h"
#include "base/memory.h"
#include "generate/engine.h"
#include "headlight/model.h"
#include "headlight/tokenizer.h"
#include "serve/texts.h"
#include "serve/wire.h"

typedef struct hl_reply hl_reply;

/* Borrowed members must outlive the reply. */
typedef struct hl_reply_options {
    const hl_wire_request  *request;
    const hl_served_prompt *prompt;
    const hl_model         *model;
    const hl_tokenizer     *tokenizer;
    int64_t                 index; /* index of the choice */
} hl_reply_options;

hl_status hl_reply_new(hl_reply **out, const hl_reply_options *options);
void      hl_reply_free(hl_reply *reply);
HL_CLOSES(hl_reply_free, hl_reply)

/* Returns the job options that make a job's events contain what the reply shows. Borrows from the
 * request and the prompt. */
hl_job_options hl_reply_job(const hl_reply_options *options);

/* Adds a token. *over: the text has ended, possibly by a stop word. */
hl_status hl_reply_add(bool *over, hl_reply *reply, const hl_job_event *event);
/* Ends the text: what was held back is shown. */
hl_status hl_reply_finish(hl_reply *reply);

/* Returns a choice: { "index", "text" or "message" or "delta", "logprobs", "finish_reason",
 * "headlight" }. Returns NULL if out of memory. */
json_t *hl_reply_take(hl_reply *reply);
/* In a stream: is there anything to take? */
bool hl_reply_has_news(const hl_reply *reply);

int64_t hl_reply_n_generated(const hl_reply *reply);

#endif
