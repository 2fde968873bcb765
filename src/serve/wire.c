/* wire.c - a table of all members of requests, with one function each; and numbers, texts and
 * errors as JSON. */
#include "serve/wire.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"
#include "model/model.h"
#include "prune/gates.h"

/* The state of parsing a request. */
typedef struct reading {
    hl_wire_request       *request;
    hl_wire_fault         *fault;
    const hl_wire_context *context;
} reading;

typedef hl_status (*read_member)(reading *r, const char *name, const json_t *value);

/* ------------------------------------------------------------------- plain values */

static hl_status get_number(double *out, const char *name, const json_t *value, double low,
                            double high)
{
    if (!json_is_number(value))
        return hl_fail(HL_BAD_INPUT, "%s is %s, wanted a number", name, hl_json_kind(value));
    double number = json_number_value(value);
    if (!(number >= low && number <= high))
        return hl_fail(HL_BAD_INPUT, "%s is %g, wanted %g to %g", name, number, low, high);
    *out = number;
    return HL_OK;
}

static hl_status get_int(int64_t *out, const char *name, const json_t *value, int64_t low,
                         int64_t high)
{
    if (!json_is_integer(value))
        return hl_fail(HL_BAD_INPUT, "%s is %s, wanted a whole number", name, hl_json_kind(value));
    int64_t number = json_integer_value(value);
    if (number < low || number > high)
        return hl_fail(HL_BAD_INPUT, "%s is %lld, wanted %lld to %lld", name, (long long)number,
                       (long long)low, (long long)high);
    *out = number;
    return HL_OK;
}

static hl_status get_bool(bool *out, const char *name, const json_t *value)
{
    if (!json_is_boolean(value))
        return hl_fail(HL_BAD_INPUT, "%s is %s, wanted true or false", name, hl_json_kind(value));
    *out = json_is_true(value);
    return HL_OK;
}

/* ----------------------------------------------------------------- the usual members */

static hl_status read_model(reading *r, const char *name, const json_t *value)
{
    const char *wanted = json_string_value(value);

    if (wanted == NULL)
        return hl_fail(HL_BAD_INPUT, "%s is %s, wanted a name", name, hl_json_kind(value));
    if (strcmp(wanted, r->context->model_name) == 0)
        return HL_OK;
    r->fault->status = 404;
    r->fault->code   = "model_not_found";
    return hl_fail(HL_NOT_FOUND, "The model `%.100s` does not exist; this server has `%.200s`",
                   wanted, r->context->model_name);
}

static hl_status read_prompt(reading *r, const char *name, const json_t *value)
{
    (void)name;
    r->request->prompt = value;
    return HL_OK;
}

static hl_status read_stream_options(reading *r, const char *name, const json_t *value)
{
    const char   *key;
    const json_t *member;

    if (!json_is_object(value))
        return hl_fail(HL_BAD_INPUT, "%s is %s, wanted an object", name, hl_json_kind(value));
    json_object_foreach((json_t *)value, key, member) {
        bool ignored = false;
        if (strcmp(key, "include_usage") != 0 && strcmp(key, "include_obfuscation") != 0)
            return hl_fail(HL_BAD_INPUT, "%s has an unknown member '%.40s'", name, key);
        HL_NEED(get_bool(key[8] == 'u' ? &r->request->include_usage : &ignored, key, member));
    }
    return HL_OK;
}

/* top_p 0 selects only the most likely token; in our options 0 would mean all tokens. */
static hl_status read_top_p(reading *r, const char *name, const json_t *value)
{
    hl_status status = get_number(&r->request->sample.top_p, name, value, 0.0, 1.0);

    if (status == HL_OK && r->request->sample.top_p == 0.0)
        r->request->sample.top_k = 1;
    return status;
}

static hl_status read_seed(reading *r, const char *name, const json_t *value)
{
    int64_t   seed   = 0;
    hl_status status = get_int(&seed, name, value, INT64_MIN, INT64_MAX);

    r->request->sample.seed = (uint64_t)seed;
    r->request->has_seed    = true;
    return status;
}

/* Completions have a number here; chats have a bool and a separate number. */
static hl_status read_logprobs(reading *r, const char *name, const json_t *value)
{
    r->request->logprobs = true;
    return get_int(&r->request->n_top, name, value, 0, HL_WIRE_MAX_TOP);
}

static hl_status add_stop(reading *r, const char *name, const json_t *value)
{
    size_t n_bytes = json_string_length(value);

    if (!json_is_string(value))
        return hl_fail(HL_BAD_INPUT, "%s has %s in it, wanted texts", name, hl_json_kind(value));
    if (n_bytes == 0 || n_bytes > HL_WIRE_MAX_TEXT)
        return hl_fail(HL_BAD_INPUT, "%s has a text of %zu bytes, wanted 1 to %d", name, n_bytes,
                       HL_WIRE_MAX_TEXT);
    if (r->request->n_stops == HL_WIRE_MAX_STOPS)
        return hl_fail(HL_BAD_INPUT, "%s has more than %d texts", name, HL_WIRE_MAX_STOPS);
    r->request->stops[r->request->n_stops++] = json_string_value(value);
    return HL_OK;
}

static hl_status read_stop(reading *r, const char *name, const json_t *value)
{
    size_t        index;
    const json_t *item;

    if (!json_is_array(value))
        return add_stop(r, name, value);
    json_array_foreach(value, index, item) {
        HL_NEED(add_stop(r, name, item));
    }
    return HL_OK;
}

/* ----------------------------------------------- what is accepted as long as it says nothing */

static hl_status ignore(reading *r, const char *name, const json_t *value)
{
    (void)r, (void)name, (void)value;
    return HL_OK;
}

static hl_status want_nothing(reading *r, const char *name, const json_t *value)
{
    bool empty = (json_is_number(value) && json_number_value(value) == 0.0) ||
                 json_is_false(value) ||
                 ((json_is_array(value) || json_is_object(value)) && json_array_size(value) == 0 &&
                  json_object_size(value) == 0) ||
                 (json_is_string(value) && strcmp(json_string_value(value), "none") == 0);

    (void)r;
    return empty ? HL_OK : hl_fail(HL_BAD_INPUT, "%s is not supported by this server", name);
}

/* A variable of the chat template. */
static hl_status put_variable(reading *r, const char *name, const json_t *value)
{
    if (r->request->variables == NULL)
        r->request->variables = json_object();
    hl_json_put(&r->request->variables, name, json_incref((json_t *)value));
    return r->request->variables != NULL ? HL_OK : hl_fail(HL_NO_MEMORY, "no memory for %s", name);
}

static hl_status read_variable(reading *r, const char *name, const json_t *value)
{
    bool list = strcmp(name, "reasoning_effort") != 0;

    if (list ? !json_is_array(value) : !json_is_string(value))
        return hl_fail(HL_BAD_INPUT, "%s is %s, wanted %s", name, hl_json_kind(value),
                       list ? "an array" : "a string");
    if (list && json_array_size(value) == 0)
        return HL_OK;
    return put_variable(r, name, value);
}

static hl_status read_variables(reading *r, const char *name, const json_t *value)
{
    const char   *key;
    const json_t *item;

    if (!json_is_object(value))
        return hl_fail(HL_BAD_INPUT, "%s is %s, wanted an object", name, hl_json_kind(value));
    json_object_foreach((json_t *)value, key, item) {
        HL_NEED(put_variable(r, key, item));
    }
    return HL_OK;
}

/* The model decides about tools by itself; nothing can make it use one. */
static hl_status read_tool_choice(reading *r, const char *name, const json_t *value)
{
    const char *text = json_string_value(value);

    if (text != NULL && strcmp(text, "auto") == 0)
        return HL_OK;
    return want_nothing(r, name, value);
}

/* best_of must equal n: then there is nothing to choose. */
static hl_status want_one(reading *r, const char *name, const json_t *value)
{
    int64_t number = 0;

    (void)r;
    return get_int(&number, name, value, 1, 1);
}

/* Accepts {"type": "text"}, ["text"] or "text". */
static hl_status want_text(reading *r, const char *name, const json_t *value)
{
    const json_t *type = json_is_object(value)  ? json_object_get(value, "type")
                         : json_is_array(value) ? json_array_get(value, 0)
                                                : value;

    (void)r;
    if (json_is_string(type) && strcmp(json_string_value(type), "text") == 0)
        return HL_OK;
    return hl_fail(HL_BAD_INPUT, "%s: this server generates only text", name);
}

/* ------------------------------------------------------------------ our own member */

static const struct {
    const char *name;
    int         rows;
} row_names[] = {
    { "entropy", HL_TRACE_ENTROPY },
    { "normalized", HL_TRACE_NORMALIZED },
    { "renyi2", HL_TRACE_RENYI2 },
    { "entropy_nosink", HL_TRACE_ENTROPY_NOSINK },
    { "normalized_nosink", HL_WIRE_NOSINK_SHARE },
    { "lookback_prompt", HL_TRACE_LOOKBACK + HL_KIND_PROMPT },
    { "lookback_special", HL_TRACE_LOOKBACK + HL_KIND_SPECIAL },
    { "lookback_generated", HL_TRACE_LOOKBACK + HL_KIND_GENERATED },
};

enum { N_ROW_NAMES = sizeof row_names / sizeof *row_names };

const char *hl_wire_rows_name(int rows)
{
    for (int i = 0; i < N_ROW_NAMES; i++) {
        if (row_names[i].rows == rows)
            return row_names[i].name;
    }
    return NULL;
}

static hl_status add_rows(reading *r, const json_t *value)
{
    const char *wanted = json_string_value(value);

    if (wanted != NULL && strcmp(wanted, "normalised") == 0) /* spellings that older clients send */
        wanted = "normalized";
    else if (wanted != NULL && strcmp(wanted, "nosink") == 0)
        wanted = "entropy_nosink";
    for (int i = 0; i < N_ROW_NAMES && wanted != NULL; i++) {
        if (strcmp(wanted, row_names[i].name) == 0) {
            r->request->rows |= HL_JOB_ROWS(row_names[i].rows);
            return HL_OK;
        }
    }
    return hl_fail(
        HL_BAD_INPUT,
        "headlight.rows has '%.40s' in it, wanted entropy, normalized, renyi2, entropy_nosink, "
        "normalized_nosink, lookback_prompt, lookback_special, lookback_generated",
        wanted != NULL ? wanted : hl_json_kind(value));
}

static hl_status read_rows(reading *r, const json_t *value)
{
    size_t        index;
    const json_t *item;

    if (!json_is_array(value))
        return hl_fail(HL_BAD_INPUT, "headlight.rows is %s, wanted an array", hl_json_kind(value));
    json_array_foreach(value, index, item) {
        HL_NEED(add_rows(r, item));
    }
    return HL_OK;
}

/* Joins "L5H1", "L7" to "L5H1,L7"; *out has room for all of them. */
static hl_status join_heads(char *out, size_t room, const json_t *list, const char *where)
{
    size_t        used = 0;
    size_t        index;
    const json_t *item;

    out[0] = '\0';
    json_array_foreach(list, index, item) {
        const char *word = json_string_value(item);

        if (word == NULL || word[0] == '\0' || strchr(word, ',') != NULL)
            return hl_fail(HL_BAD_INPUT, "%s: entry %zu is not a head", where, index);
        used += (size_t)snprintf(out + used, room - used, "%s%s", used > 0 ? "," : "", word);
    }
    return HL_OK;
}

hl_status hl_wire_heads(hl_head_list **out, const json_t *value, const hl_model *model,
                        const char *where)
{
    HL_FREED char *text = NULL;
    size_t         room = 1;

    if (json_is_string(value))
        return hl_head_list_parse(out, model, json_string_value(value));
    if (!json_is_array(value))
        return hl_fail(HL_BAD_INPUT, "%s is %s, wanted heads, as [\"L5H1\"]", where,
                       hl_json_kind(value));
    for (size_t i = 0; i < json_array_size(value); i++)
        room += json_string_length(json_array_get(value, i)) + 1;
    HL_NEED(HL_ALLOC(&text, room));
    HL_NEED(join_heads(text, room, value, where));
    return hl_head_list_parse(out, model, text);
}

hl_status hl_wire_gates(hl_gates **out, const json_t *off, const hl_model *model, const char *where)
{
    HL_CLOSED(hl_head_list_free) hl_head_list *heads = NULL;
    HL_CLOSED(hl_gates_free) hl_gates         *gates = NULL;
    const float                               *own   = model->gates;

    *out = NULL;
    if (json_is_array(off) && json_array_size(off) == 0)
        return HL_OK;
    HL_NEED(hl_wire_heads(&heads, off, model, where));
    HL_NEED(hl_gates_new(&gates, model));
    if (own != NULL) /* heads that the server's owner disabled stay disabled */
        memcpy(gates->values, own, (size_t)(gates->n_layers * gates->n_heads) * sizeof *own);
    hl_gates_set(gates, heads, 0.0f);
    *out = hl_taken(&gates);
    return HL_OK;
}

static hl_status read_off(reading *r, const json_t *value)
{
    hl_gates *gates  = NULL;
    hl_status status = hl_wire_gates(&gates, value, r->context->model, "headlight.off");

    hl_gates_free(r->request->gates);
    r->request->gates = gates;
    return status;
}

static hl_status read_patterns(reading *r, const json_t *value)
{
    if (json_is_array(value) && json_array_size(value) == 0)
        return HL_OK;
    HL_NEED(hl_wire_heads(&r->request->patterns, value, r->context->model, "headlight.patterns"));
    if (r->request->patterns->n_heads <= HL_JOB_MAX_PATTERNS)
        return HL_OK;
    return hl_fail(HL_BAD_INPUT, "headlight.patterns names %lld heads, at most %d",
                   (long long)r->request->patterns->n_heads, HL_JOB_MAX_PATTERNS);
}

static hl_status read_own_member(reading *r, const char *key, const json_t *value)
{
    if (json_is_null(value))
        return HL_OK;
    if (strcmp(key, "entropy") == 0)
        return get_bool(&r->request->watch, "headlight.entropy", value);
    if (strcmp(key, "prompt") == 0)
        return get_bool(&r->request->with_prompt, "headlight.prompt", value);
    if (strcmp(key, "rows") == 0)
        return read_rows(r, value);
    if (strcmp(key, "off") == 0)
        return read_off(r, value);
    if (strcmp(key, "patterns") == 0)
        return read_patterns(r, value);
    return hl_fail(HL_BAD_INPUT, "headlight has an unknown member '%.40s'", key);
}

static hl_status read_headlight(reading *r, const char *name, const json_t *value)
{
    const char   *key;
    const json_t *member;

    if (!json_is_object(value))
        return hl_fail(HL_BAD_INPUT, "%s is %s, wanted an object", name, hl_json_kind(value));
    json_object_foreach((json_t *)value, key, member) {
        HL_NEED(read_own_member(r, key, member));
    }
    if (r->request->rows != 0 || r->request->patterns != NULL || r->request->with_prompt)
        r->request->watch = true;
    return HL_OK;
}

/* ------------------------------------------------------------------------- the table */

enum { CHAT = 1, TEXT = 2, BOTH = 3 };

/* A member is parsed by its own function, or as a plain value into a field of the request. */
typedef struct member {
    const char *name;
    int         where;
    enum { A_FUNCTION, A_BOOL, AN_INT, A_NUMBER } kind;
    read_member read;
    size_t      field;
    double      low;
    double      high;
} member;

#define BY(function)                A_FUNCTION, function, 0, 0.0, 0.0
#define AS_BOOL(field)              A_BOOL, NULL, offsetof(hl_wire_request, field), 0.0, 0.0
#define AS_INT(field, low, high)    AN_INT, NULL, offsetof(hl_wire_request, field), low, high
#define AS_NUMBER(field, low, high) A_NUMBER, NULL, offsetof(hl_wire_request, field), low, high

static const member members[] = {
    { "model", BOTH, BY(read_model) },
    { "prompt", TEXT, BY(read_prompt) },
    { "messages", CHAT, BY(read_prompt) },
    { "stream", BOTH, AS_BOOL(stream) },
    { "stream_options", BOTH, BY(read_stream_options) },
    { "max_tokens", TEXT, AS_INT(max_tokens, 0, 1 << 30) },
    { "max_tokens", CHAT, AS_INT(max_tokens, 1, 1 << 30) },
    { "max_completion_tokens", CHAT, AS_INT(max_tokens, 1, 1 << 30) },
    { "temperature", BOTH, AS_NUMBER(sample.temperature, 0.0, 2.0) },
    { "top_p", BOTH, BY(read_top_p) },
    { "top_k", BOTH, AS_INT(sample.top_k, 0, 1 << 30) },
    { "min_p", BOTH, AS_NUMBER(sample.min_p, 0.0, 1.0) },
    { "repetition_penalty", BOTH, AS_NUMBER(sample.repeat_penalty, 0.01, 100.0) },
    { "seed", BOTH, BY(read_seed) },
    { "n", BOTH, AS_INT(n, 1, HL_WIRE_MAX_CHOICES) },
    { "echo", TEXT, AS_BOOL(echo) },
    { "ignore_eos", BOTH, AS_BOOL(ignore_end) },
    { "logprobs", TEXT, BY(read_logprobs) },
    { "logprobs", CHAT, AS_BOOL(logprobs) },
    { "top_logprobs", CHAT, AS_INT(n_top, 0, HL_WIRE_MAX_TOP) },
    { "stop", BOTH, BY(read_stop) },
    { "headlight", BOTH, BY(read_headlight) },
    { "frequency_penalty", BOTH, BY(want_nothing) },
    { "presence_penalty", BOTH, BY(want_nothing) },
    { "logit_bias", BOTH, BY(want_nothing) },
    { "suffix", TEXT, BY(want_nothing) },
    { "best_of", TEXT, BY(want_one) },
    { "tools", CHAT, BY(read_variable) },
    { "documents", CHAT, BY(read_variable) },
    { "reasoning_effort", CHAT, BY(read_variable) },
    { "chat_template_kwargs", CHAT, BY(read_variables) },
    { "functions", CHAT, BY(want_nothing) },
    { "tool_choice", CHAT, BY(read_tool_choice) },
    { "function_call", CHAT, BY(want_nothing) },
    { "response_format", CHAT, BY(want_text) },
    { "modalities", CHAT, BY(want_text) },
    { "grammar", BOTH, BY(want_nothing) },
    { "json_schema", BOTH, BY(want_nothing) },
    { "guided_json", BOTH, BY(want_nothing) },
    { "guided_regex", BOTH, BY(want_nothing) },
    { "guided_choice", BOTH, BY(want_nothing) },
    { "mirostat", BOTH, BY(want_nothing) },
    { "dry_multiplier", BOTH, BY(want_nothing) },
    { "xtc_probability", BOTH, BY(want_nothing) },
    { "dynatemp_range", BOTH, BY(want_nothing) },
    { "lora", BOTH, BY(want_nothing) },
    { "prediction", CHAT, BY(want_nothing) },
    { "audio", CHAT, BY(want_nothing) },
    { "web_search_options", CHAT, BY(want_nothing) },
    { "user", BOTH, BY(ignore) },
    { "metadata", CHAT, BY(ignore) },
    { "store", CHAT, BY(ignore) },
    { "service_tier", CHAT, BY(ignore) },
    { "parallel_tool_calls", CHAT, BY(ignore) },
    { "safety_identifier", CHAT, BY(ignore) },
    { "prompt_cache_key", CHAT, BY(ignore) },
};

enum { N_MEMBERS = sizeof members / sizeof *members };

static hl_status read_value(reading *r, const member *m, const json_t *value)
{
    void *field = (char *)r->request + m->field;

    switch (m->kind) {
    case A_FUNCTION:
        return m->read(r, m->name, value);
    case A_BOOL:
        return get_bool(field, m->name, value);
    case AN_INT:
        return get_int(field, m->name, value, (int64_t)m->low, (int64_t)m->high);
    case A_NUMBER:
        return get_number(field, m->name, value, m->low, m->high);
    }
    return HL_OK;
}

static hl_status read_named(reading *r, const char *name, const json_t *value)
{
    int where = r->request->is_chat ? CHAT : TEXT;

    snprintf(r->fault->param, sizeof r->fault->param, "%.31s", name);
    for (int i = 0; i < N_MEMBERS; i++) {
        if ((members[i].where & where) != 0 && strcmp(name, members[i].name) == 0)
            return json_is_null(value) ? HL_OK : read_value(r, &members[i], value);
    }
    /* The other endpoint's own member is a mistake; anything else does not change this answer. */
    if (strcmp(name, "prompt") == 0 || strcmp(name, "messages") == 0)
        return hl_fail(HL_BAD_INPUT, "Unrecognized request argument supplied: %.40s", name);
    if (r->request->ignored == NULL)
        r->request->ignored = json_array();
    hl_json_add(&r->request->ignored, json_string(name));
    return r->request->ignored != NULL ? HL_OK : hl_fail(HL_NO_MEMORY, "no memory for the request");
}

/* Checks combinations of members; a fault names one of them. */
static hl_status check_whole(reading *r)
{
    const hl_wire_request *request = r->request;
    const char            *needed  = request->is_chat ? "messages" : "prompt";
    const struct {
        const char *param;
        bool        is_wrong;
        const char *problem;
    } rules[] = {
        { needed, request->prompt == NULL, " is missing" },
        { "max_tokens", request->max_tokens == 0 && !request->echo,
          " is 0, which gives nothing without echo" },
        { "top_logprobs", request->n_top > 0 && !request->logprobs, " needs logprobs: true" },
        { "stream_options", request->include_usage && !request->stream, " needs stream: true" },
    };

    r->fault->param[0] = '\0';
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (!rules[i].is_wrong)
            continue;
        snprintf(r->fault->param, sizeof r->fault->param, "%s", rules[i].param);
        return hl_fail(HL_BAD_INPUT, "%s%s", rules[i].param, rules[i].problem);
    }
    return HL_OK;
}

hl_status hl_wire_read(hl_wire_request *out, hl_wire_fault *fault, const json_t *root, bool is_chat,
                       const hl_wire_context *context)
{
    reading       r = { .request = out, .fault = fault, .context = context };
    const char   *key;
    const json_t *value;

    *fault = (hl_wire_fault){ .status = 400 };
    *out   = (hl_wire_request){ .is_chat    = is_chat,
                                .n          = 1,
                                .max_tokens = is_chat ? -1 : 16,
                                .sample     = { .temperature = 1.0 } };
    if (!json_is_object(root))
        return hl_fail(HL_BAD_INPUT, "the request is %s, wanted an object", hl_json_kind(root));
    json_object_foreach((json_t *)root, key, value) {
        HL_NEED(read_named(&r, key, value));
    }
    return check_whole(&r);
}

void hl_wire_request_release(hl_wire_request *request)
{
    hl_gates_free(request->gates);
    hl_head_list_free(request->patterns);
    json_decref(request->variables);
    json_decref(request->ignored);
    *request = (hl_wire_request){ 0 };
}

/* ---------------------------------------------------------------------- JSON */

/* A float has about seven significant digits. */
#define DUMP_FLAGS (JSON_COMPACT | JSON_REAL_PRECISION(7))

static json_t *number_row(const float *numbers, int64_t n)
{
    json_t *row = json_array();

    for (int64_t i = 0; i < n; i++)
        hl_json_add(&row, hl_json_number((double)numbers[i]));
    return row;
}

json_t *hl_wire_numbers(const float *numbers, int64_t n_rows, int64_t n_columns)
{
    if (n_rows == 0)
        return number_row(numbers, n_columns);
    json_t *rows = json_array();
    for (int64_t i = 0; i < n_rows; i++)
        hl_json_add(&rows, number_row(numbers + i * n_columns, n_columns));
    return rows;
}

json_t *hl_wire_piece(const char *bytes, size_t n_bytes)
{
    HL_FREED char *out  = NULL;
    size_t         used = 0;

    if (hl_utf8_find_bad(bytes, n_bytes) == n_bytes)
        return json_stringn_nocheck(bytes, n_bytes);
    if (HL_ALLOC(&out, 4 * n_bytes + 1) != HL_OK)
        return NULL;
    for (size_t at = 0; at < n_bytes;) {
        size_t length = hl_utf8_length(bytes + at, n_bytes - at);

        if (length > 0)
            memcpy(out + used, bytes + at, length);
        else
            snprintf(out + used, 5, "\\x%02x", (unsigned char)bytes[at]);
        used += length > 0 ? length : 4;
        at += length > 0 ? length : 1;
    }
    return json_stringn_nocheck(out, used);
}

static const char *error_type(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 429:
        return "rate_limit_error";
    default:
        return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

json_t *hl_wire_error(int status, const char *message, const char *param, const char *code)
{
    bool    named = param != NULL && param[0] != '\0';
    json_t *error =
        json_pack("{s:o, s:s, s:o, s:s?}", "message", hl_json_text(message, strlen(message)),
                  "type", error_type(status), "param",
                  named ? hl_json_text(param, strlen(param)) : json_null(), "code", code);

    return json_pack("{s:o}", "error", error);
}

char *hl_wire_dump(json_t *tree)
{
    char *text = hl_json_dump(tree, DUMP_FLAGS);

    json_decref(tree);
    return text;
}
