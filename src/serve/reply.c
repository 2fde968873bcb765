/* reply.c - turns tokens into text and into their entries in a choice. */
#include "serve/reply.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"
#include "generate/tracer.h"
#include "model/model.h"

struct hl_reply {
    hl_reply_options  options;
    hl_decode_stream *stream;
    hl_stop_words    *stop;
    hl_spikes        *spikes;  /* NULL: not requested */
    int64_t           last_id; /* the token that precedes the next one */
    int64_t           n_generated;
    hl_stop           ended;
    bool              is_finished;
    size_t            n_characters; /* characters of the text so far, for text_offset */
    bool              has_begun;    /* a part of the choice was taken */
    bool              has_finish;   /* the finish reason was taken */

    /* The fields below hold what was added since the last take. */
    hl_buffer text;
    json_t   *entries; /* token entries for logprobs; NULL: not requested */
    json_t   *watched; /* token entries with headlight's numbers; NULL: not requested */
};

/* --------------------------------------------------------------------- open and close */

/* The text of the first new token can depend on the token before it. */
static hl_status open_stream(hl_reply *reply)
{
    const hl_served_prompt *prompt  = reply->options.prompt;
    bool                    begins  = !reply->options.request->is_chat;
    const char             *text    = "";
    size_t                  n_bytes = 0;

    HL_NEED(hl_decode_stream_open(&reply->stream, reply->options.tokenizer,
                                  &(hl_decode_options){ .skip_special = true }));
    if (begins && !reply->options.request->echo &&
        prompt->kinds[prompt->n_tokens - 1] == HL_KIND_PROMPT)
        HL_NEED(hl_decode_stream_push(&text, &n_bytes, reply->stream,
                                      prompt->tokens[prompt->n_tokens - 1]));
    return HL_OK;
}

hl_status hl_reply_new(hl_reply **out, const hl_reply_options *options)
{
    HL_CLOSED(hl_reply_free) hl_reply *reply   = NULL;
    const hl_wire_request             *request = options->request;
    const hl_model_info               *info    = hl_model_get_info(options->model);

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&reply, 1));
    reply->options = *options;
    reply->last_id = request->echo ? -1 : options->prompt->tokens[options->prompt->n_tokens - 1];
    HL_NEED(open_stream(reply));
    HL_NEED(hl_stop_words_new(&reply->stop, request->stops, (size_t)request->n_stops));
    if (request->watch)
        HL_NEED(hl_spikes_new(&reply->spikes, info->n_layers * info->n_heads, 0));
    *out = hl_taken(&reply);
    return HL_OK;
}

void hl_reply_free(hl_reply *reply)
{
    if (reply == NULL)
        return;
    hl_decode_stream_close(reply->stream);
    hl_stop_words_free(reply->stop);
    hl_spikes_free(reply->spikes);
    json_decref(reply->entries);
    json_decref(reply->watched);
    hl_buffer_free(&reply->text);
    hl_free(reply);
}

hl_job_options hl_reply_job(const hl_reply_options *options)
{
    const hl_wire_request *request = options->request;
    hl_job_options         job     = {
                    .tokens      = options->prompt->tokens,
                    .n_tokens    = options->prompt->n_tokens,
                    .kinds       = options->prompt->kinds,
                    .sample      = request->sample,
                    .max_tokens  = request->max_tokens > 0 ? request->max_tokens : 0,
                    .ignore_end  = request->ignore_end,
                    .gates       = request->gates != NULL ? request->gates->values : NULL,
                    .prompt_only = request->max_tokens == 0,
                    .echo_prompt = request->echo || request->watch,
                    .n_top       = (int)request->n_top,
                    .rows        = request->rows,
    };

    if (request->watch)
        job.rows |= HL_JOB_ROWS(HL_TRACE_NORMALIZED);
    if ((request->rows & HL_JOB_ROWS(HL_WIRE_NOSINK_SHARE)) != 0)
        job.rows =
            (job.rows | HL_JOB_ROWS(HL_TRACE_ENTROPY_NOSINK)) & ~HL_JOB_ROWS(HL_WIRE_NOSINK_SHARE);
    if (request->patterns != NULL) {
        job.pattern_heads   = request->patterns->heads;
        job.n_pattern_heads = (int)request->patterns->n_heads;
    }
    return job;
}

/* ------------------------------------------------------------------------ one token's text */

/* Returns the bytes of a token after another one; released with hl_free. */
static hl_status piece_of(char **out, size_t *n_bytes, const hl_reply *reply, int64_t id)
{
    const hl_tokenizer *tokenizer = reply->options.tokenizer;
    int64_t             ids[2]    = { reply->last_id, id };
    bool                follows   = reply->last_id >= 0;
    HL_FREED char      *before    = NULL;
    HL_FREED char      *both      = NULL;
    size_t              n_before = 0, n_both = 0;

    if (follows)
        HL_NEED(hl_tokenizer_decode(&before, &n_before, tokenizer, ids, 1, NULL));
    HL_NEED(hl_tokenizer_decode(&both, &n_both, tokenizer, follows ? ids : ids + 1, follows ? 2 : 1,
                                NULL));
    if (n_both < n_before || memcmp(before != NULL ? before : "", both, n_before) != 0) {
        hl_free(both);
        n_before = 0;
        HL_NEED(hl_tokenizer_decode(&both, &n_both, tokenizer, ids + 1, 1, NULL));
    }
    memmove(both, both + n_before, n_both - n_before);
    *out     = both;
    *n_bytes = n_both - n_before;
    both     = NULL;
    return HL_OK;
}

static json_t *byte_array(const char *bytes, size_t n_bytes)
{
    json_t *array = json_array();

    for (size_t i = 0; i < n_bytes; i++)
        hl_json_add(&array, json_integer((unsigned char)bytes[i]));
    return array;
}

/* { "token", "logprob", "bytes" } */
static json_t *token_entry(const hl_reply *reply, int64_t id, double logprob)
{
    char  *piece   = NULL;
    size_t n_bytes = 0;

    if (piece_of(&piece, &n_bytes, reply, id) != HL_OK)
        return NULL;
    json_t *entry = json_pack("{s:o, s:o, s:o}", "token", hl_wire_piece(piece, n_bytes), "logprob",
                              hl_json_number(logprob), "bytes", byte_array(piece, n_bytes));
    hl_free(piece);
    return entry;
}

static hl_status add_entry(hl_reply *reply, const hl_job_event *event)
{
    json_t *entry = token_entry(reply, event->token.id, event->token.logprob);
    json_t *top   = json_array();

    for (int i = 0; i < event->n_top; i++)
        hl_json_add(&top, token_entry(reply, event->top[i].token, event->top[i].logprob));
    hl_json_put(&entry, "top_logprobs", top);
    hl_json_put(&entry, "text_offset", json_integer((json_int_t)reply->n_characters));
    if (reply->entries == NULL)
        reply->entries = json_array();
    if (json_array_append_new(reply->entries, entry) != 0)
        return hl_fail(HL_NO_MEMORY, "out of memory for a token");
    return HL_OK;
}

/* ------------------------------------------------------------------- headlight's numbers */

/* Returns 1 / ln n', where n' is the number of keys, without the first one, visible to the row that
 * precedes the event's token. */
static double nosink_scale(const hl_config *config, int64_t layer, const hl_job_event *event)
{
    if (event->position == 0)
        return (double)NAN;
    hl_visible_keys seen = hl_trace_seen(config, layer, event->position - 1);
    int64_t         n    = hl_visible_count(seen) - (hl_visible_has(seen, 0) ? 1 : 0);

    return n >= 2 ? 1.0 / log((double)n) : (double)NAN;
}

static json_t *nosink_shares(const hl_config *config, const hl_job_event *event, const float *row)
{
    json_t *layers = json_array();

    for (int64_t layer = 0; layer < config->n_layers; layer++) {
        json_t *heads = json_array();
        double  scale = nosink_scale(config, layer, event);

        for (int64_t head = 0; head < config->n_heads; head++)
            hl_json_add(&heads,
                        hl_json_number((double)row[layer * config->n_heads + head] * scale));
        hl_json_add(&layers, heads);
    }
    return layers;
}

static json_t *rows_of_kind(const hl_reply *reply, const hl_job_event *event, int which)
{
    const hl_config *config = reply->options.model->config;
    bool             share  = which == HL_WIRE_NOSINK_SHARE;
    const float     *row =
        hl_job_event_rows(event, share ? HL_TRACE_ENTROPY_NOSINK : (hl_trace_rows)which,
                          config->n_layers, config->n_heads);

    if (row == NULL)
        return json_null();
    return share ? nosink_shares(config, event, row)
                 : hl_wire_numbers(row, config->n_layers, config->n_heads);
}

static json_t *row_values(const hl_reply *reply, const hl_job_event *event)
{
    json_t *object = json_object();

    for (int which = 0; which < HL_WIRE_N_ROWS; which++) {
        if ((reply->options.request->rows & HL_JOB_ROWS(which)) != 0)
            hl_json_put(&object, hl_wire_rows_name(which), rows_of_kind(reply, event, which));
    }
    return object;
}

/* Returns one row of attention per chosen head, by name. */
static json_t *pattern_values(const hl_reply *reply, const hl_job_event *event)
{
    const hl_head_list *heads  = reply->options.request->patterns;
    json_t             *object = json_object();
    char                name[48];

    for (int64_t i = 0; i < event->n_patterns && event->patterns != NULL; i++) {
        snprintf(name, sizeof name, "L%lldH%lld", (long long)heads->heads[i].layer,
                 (long long)heads->heads[i].head);
        hl_json_put(&object, name,
                    hl_wire_numbers(event->patterns + i * event->n_keys, 0, event->n_keys));
    }
    return object;
}

static hl_status add_watched(hl_reply *reply, const hl_job_event *event)
{
    const hl_config       *config  = reply->options.model->config;
    const hl_wire_request *request = reply->options.request;
    const hl_generated    *token   = &event->token;
    HL_FREED char         *piece   = NULL;
    size_t                 n_bytes = 0;
    hl_status              status  = HL_OK;
    const float           *row =
        hl_job_event_rows(event, HL_TRACE_NORMALIZED, config->n_layers, config->n_heads);
    double spike = hl_trace_spike(reply->spikes, row, event->position - 1, event->from_prompt);

    if (event->from_prompt && !request->with_prompt)
        return HL_OK;
    HL_NEED(piece_of(&piece, &n_bytes, reply, token->id));
    json_t *entry =
        json_pack("{s:I, s:o, s:I, s:s, s:o, s:o, s:o, s:o, s:o}", "id", (json_int_t)token->id,
                  "text", hl_wire_piece(piece, n_bytes), "position", (json_int_t)event->position,
                  "kind", event->from_prompt ? "prompt" : "generated", "logprob",
                  hl_json_number(token->logprob), "entropy", hl_json_number(token->entropy),
                  "varentropy", hl_json_number(token->varentropy), "attention_entropy",
                  hl_json_number(token->attention_entropy), "spike", hl_json_number(spike));
    if (request->rows != 0)
        hl_json_put(&entry, "rows", row_values(reply, event));
    if (request->patterns != NULL)
        hl_json_put(&entry, "patterns", pattern_values(reply, event));
    if (reply->watched == NULL)
        reply->watched = json_array();
    if (json_array_append_new(reply->watched, entry) != 0)
        status = hl_fail(HL_NO_MEMORY, "out of memory for a token");
    return status;
}

/* -------------------------------------------------------------------------------- text */

static hl_status keep_text(hl_reply *reply, const char *text, size_t n_bytes)
{
    reply->n_characters += hl_utf8_count(text, n_bytes);
    return hl_buffer_append(&reply->text, text, n_bytes);
}

/* Stop words are not searched in tokens of an echoed prompt. */
static hl_status add_text(bool *found, hl_reply *reply, const hl_job_event *event)
{
    const char *text    = "";
    size_t      n_bytes = 0;

    *found = false;
    if (event->token.stop == HL_STOP_END && !event->from_prompt)
        return HL_OK;
    HL_NEED(hl_decode_stream_push(&text, &n_bytes, reply->stream, event->token.id));
    if (!event->from_prompt)
        HL_NEED(hl_stop_words_push(&text, &n_bytes, found, reply->stop, text, n_bytes));
    return keep_text(reply, text, n_bytes);
}

/* ------------------------------------------------------------------------------- tokens */

hl_status hl_reply_add(bool *over, hl_reply *reply, const hl_job_event *event)
{
    hl_status              status  = HL_OK;
    const hl_wire_request *request = reply->options.request;
    bool                   shown   = !event->from_prompt || request->echo;
    bool                   is_text = event->from_prompt || event->token.stop != HL_STOP_END;
    bool                   found   = false;
    size_t                 offset  = reply->n_characters;

    *over = false;
    if (shown)
        HL_NEED(add_text(&found, reply, event));
    if (shown && is_text && request->logprobs && !found) {
        size_t after        = reply->n_characters;
        reply->n_characters = offset;
        status              = add_entry(reply, event);
        reply->n_characters = after;
        HL_NEED(status);
    }
    if (request->watch && !found)
        HL_NEED(add_watched(reply, event));
    reply->last_id = event->token.id;
    if (!event->from_prompt) {
        reply->n_generated++;
        reply->ended = found ? HL_STOP_WORD : event->token.stop;
    }
    *over = reply->ended != HL_STOP_NONE;
    return status;
}

hl_status hl_reply_finish(hl_reply *reply)
{
    const char *text    = "";
    size_t      n_bytes = 0;
    bool        found   = false;

    reply->is_finished = true;
    if (reply->ended == HL_STOP_WORD)
        return HL_OK;
    HL_NEED(hl_decode_stream_finish(&text, &n_bytes, reply->stream));
    HL_NEED(hl_stop_words_push(&text, &n_bytes, &found, reply->stop, text, n_bytes));
    HL_NEED(keep_text(reply, text, n_bytes));
    if (found) {
        reply->ended = HL_STOP_WORD;
        return HL_OK;
    }
    HL_NEED(hl_stop_words_finish(&text, &n_bytes, reply->stop));
    return keep_text(reply, text, n_bytes);
}

int64_t hl_reply_n_generated(const hl_reply *reply)
{
    return reply->n_generated;
}

/* ------------------------------------------------------------------------------ choices */

static const char *finish_reason(const hl_reply *reply)
{
    if (reply->ended == HL_STOP_LENGTH || reply->ended == HL_STOP_CONTEXT ||
        reply->options.request->max_tokens == 0)
        return "length";
    return "stop";
}

/* Returns the most likely tokens by their text; null for a token without a prediction. */
static json_t *top_object(const json_t *entry)
{
    const json_t *top    = json_object_get(entry, "top_logprobs");
    json_t       *object = json_object();

    if (!json_is_real(json_object_get(entry, "logprob"))) {
        json_decref(object);
        return json_null();
    }
    for (size_t i = 0; i < json_array_size(top); i++) {
        const json_t *other = json_array_get(top, i);
        hl_json_put(&object, json_string_value(json_object_get(other, "token")),
                    json_incref(json_object_get(other, "logprob")));
    }
    return object;
}

/* Returns the logprobs of the completions API: parallel arrays. */
static json_t *completion_logprobs(const json_t *entries, int64_t n_top)
{
    json_t *tokens = json_array(), *logprobs = json_array(), *tops = json_array();
    json_t *offsets = json_array();

    for (size_t i = 0; i < json_array_size(entries); i++) {
        const json_t *entry = json_array_get(entries, i);
        hl_json_add(&tokens, json_incref(json_object_get(entry, "token")));
        hl_json_add(&logprobs, json_incref(json_object_get(entry, "logprob")));
        hl_json_add(&offsets, json_incref(json_object_get(entry, "text_offset")));
        hl_json_add(&tops, top_object(entry));
    }
    if (n_top == 0) {
        json_decref(tops);
        tops = json_null();
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", logprobs,
                     "top_logprobs", tops, "text_offset", offsets);
}

static json_t *chat_logprobs(json_t *entries)
{
    for (size_t i = 0; i < json_array_size(entries); i++)
        json_object_del(json_array_get(entries, i), "text_offset");
    return json_pack("{s:O, s:n}", "content", entries, "refusal");
}

static json_t *take_logprobs(hl_reply *reply)
{
    const hl_wire_request *request = reply->options.request;
    bool                   ends    = request->stream && reply->entries == NULL;

    if (!request->logprobs || ends)
        return json_null();
    json_t *entries = reply->entries != NULL ? reply->entries : json_array();
    json_t *shown =
        request->is_chat ? chat_logprobs(entries) : completion_logprobs(entries, request->n_top);
    json_decref(entries);
    reply->entries = NULL;
    return shown;
}

/* Sets "text", "message" or "delta". */
static void set_text(json_t **choice, hl_reply *reply)
{
    const hl_wire_request *request = reply->options.request;
    hl_bytes               bytes   = hl_buffer_bytes(&reply->text);
    json_t                *text    = hl_json_text(bytes.data, bytes.n_bytes);

    if (!request->is_chat) {
        hl_json_put(choice, "text", text);
    } else if (!request->stream) {
        hl_json_put(choice, "message",
                    json_pack("{s:s, s:o, s:n}", "role", "assistant", "content", text, "refusal"));
    } else if (!reply->has_begun) {
        hl_json_put(choice, "delta", json_pack("{s:s, s:o}", "role", "assistant", "content", text));
    } else if (reply->text.n_bytes == 0 && reply->is_finished) {
        hl_json_put(choice, "delta", json_object());
        json_decref(text);
    } else {
        hl_json_put(choice, "delta", json_pack("{s:o}", "content", text));
    }
    reply->text.n_bytes = 0;
}

/* In a stream the finish reason is sent alone, after all text. */
static bool shows_reason(const hl_reply *reply)
{
    return reply->is_finished &&
           (!reply->options.request->stream ||
            (reply->text.n_bytes == 0 && reply->entries == NULL && reply->watched == NULL));
}

json_t *hl_reply_take(hl_reply *reply)
{
    bool    ends   = shows_reason(reply);
    json_t *choice = json_pack("{s:I}", "index", (json_int_t)reply->options.index);

    if (choice == NULL)
        return NULL;
    hl_json_put(&choice, "logprobs", take_logprobs(reply));
    set_text(&choice, reply);
    hl_json_put(&choice, "finish_reason", ends ? json_string(finish_reason(reply)) : json_null());
    if (reply->options.request->watch) {
        json_t *tokens = reply->watched != NULL ? reply->watched : json_array();
        hl_json_put(&choice, "headlight", json_pack("{s:o}", "tokens", tokens));
        reply->watched = NULL;
    }
    reply->has_begun  = true;
    reply->has_finish = ends;
    return choice;
}

bool hl_reply_has_news(const hl_reply *reply)
{
    return reply->text.n_bytes > 0 || reply->entries != NULL || reply->watched != NULL ||
           (reply->is_finished && !reply->has_finish);
}
