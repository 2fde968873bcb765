/* texts.c - prompts and messages as tokens; texts as lines of JSON, read as a corpus. */
#include "serve/texts.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "tokenize/tokenizer.h"

/* -------------------------------------------------------- a prompt to tokens */

/* Takes the ids and their kinds. An empty prompt becomes the token that begins texts. */
static hl_status keep_encoding(hl_served_prompt *out, hl_encoding *encoding, const hl_model *model)
{
    int64_t begin = hl_model_get_info(model)->bos_id;
    size_t  n     = encoding->n_tokens;

    if (n == 0 && begin < 0)
        return hl_fail(HL_BAD_INPUT,
                       "the prompt is empty, and the model has no token to begin a text with");
    HL_NEED(HL_ALLOC(&out->kinds, n + 1));
    for (size_t i = 0; i < n; i++) {
        bool special = encoding->types[i] == HL_TOKEN_SPECIAL ||
                       (encoding->roles != NULL && encoding->roles[i] == (uint8_t)HL_ROLE_TEMPLATE);
        out->kinds[i] = special ? HL_KIND_SPECIAL : HL_KIND_PROMPT;
    }
    if (n > 0) {
        out->tokens   = hl_taken(&encoding->ids);
        out->n_tokens = (int64_t)n;
        return HL_OK;
    }
    HL_NEED(HL_ALLOC(&out->tokens, 1));
    out->tokens[0] = begin;
    out->kinds[0]  = HL_KIND_SPECIAL;
    out->n_tokens  = 1;
    return HL_OK;
}

/* Takes ids as given; no special tokens are added. */
static hl_status keep_ids(hl_served_prompt *out, const json_t *ids, const hl_model *model)
{
    int64_t d_vocab = hl_model_get_info(model)->d_vocab;
    size_t  n       = json_array_size(ids);

    if (n == 0)
        return hl_fail(HL_BAD_INPUT, "the prompt has no tokens");
    HL_NEED(HL_ALLOC(&out->tokens, n));
    HL_NEED(HL_ALLOC_ZEROED(&out->kinds, n)); /* 0 is HL_KIND_PROMPT */
    for (size_t i = 0; i < n; i++) {
        const json_t *id    = json_array_get(ids, i);
        int64_t       value = json_is_integer(id) ? json_integer_value(id) : -1;
        if (!json_is_integer(id))
            return hl_fail(HL_BAD_INPUT, "prompt token %zu is %s, wanted an id from 0 to %lld", i,
                           json_is_real(id) ? "not a whole number" : hl_json_kind(id),
                           (long long)(d_vocab - 1));
        if (value < 0 || value >= d_vocab)
            return hl_fail(HL_BAD_INPUT, "prompt token %zu is %lld, wanted an id from 0 to %lld", i,
                           (long long)value, (long long)d_vocab - 1);
        out->tokens[i] = value;
    }
    out->n_tokens = (int64_t)n;
    return HL_OK;
}

static bool is_gone(void *exchange)
{
    return hl_exchange_is_gone(exchange);
}

hl_encode_options hl_served_encoding(hl_exchange *exchange)
{
    return (hl_encode_options){ .stop = exchange != NULL ? is_gone : NULL, .context = exchange };
}

/* A text beyond the tokenizer's limits is bad input; HL_LIMIT is reserved for the context here. */
static hl_status too_much(hl_status status)
{
    return status == HL_LIMIT ? HL_BAD_INPUT : status;
}

static hl_status keep_text(hl_served_prompt *out, const char *text, size_t n_bytes,
                           const hl_prompt_reader *reader)
{
    hl_status         status   = HL_OK;
    hl_encoding      *encoding = NULL;
    hl_encode_options options  = hl_served_encoding(reader->exchange);

    options.add_special = true;
    HL_TRY(too_much(hl_tokenizer_encode(&encoding, reader->tokenizer, text, n_bytes, &options)));
    HL_TRY(keep_encoding(out, encoding, reader->model));

done:
    hl_encoding_free(encoding);
    return status;
}

/* ---------------------------------------------------------- a chat to tokens */

/* Contents are texts, null (of an assistant that calls tools), or arrays of parts.  The template may
 * know more kinds of parts than text; the model reads text alone. */
static hl_status check_content(const json_t *content, size_t number)
{
    if (content == NULL || json_is_null(content) || json_is_string(content))
        return HL_OK;
    if (!json_is_array(content))
        return hl_fail(HL_BAD_INPUT, "messages[%zu].content is not text", number);
    for (size_t i = 0; i < json_array_size(content); i++) {
        if (!json_is_string(json_object_get(json_array_get(content, i), "text")))
            return hl_fail(HL_BAD_INPUT, "messages[%zu].content[%zu] is not text", number, i);
    }
    return HL_OK;
}

static hl_status check_message(const json_t *message, size_t number)
{
    static const char *const roles[] = { "system",    "developer", "user",
                                         "assistant", "tool",      "function" };
    const char              *role    = json_string_value(json_object_get(message, "role"));
    const json_t            *content = json_object_get(message, "content");
    bool                     known   = false;

    for (size_t i = 0; role != NULL && i < sizeof roles / sizeof *roles; i++)
        known |= strcmp(role, roles[i]) == 0;
    if (!known)
        return hl_fail(HL_BAD_INPUT,
                       "messages[%zu].role is none of system, developer, user, assistant, tool",
                       number);
    if ((content == NULL || json_is_null(content)) && strcmp(role, "assistant") != 0)
        return hl_fail(HL_BAD_INPUT, "messages[%zu].content is missing", number);
    return check_content(content, number);
}

/* The arguments of tool calls are JSON in a string, as OpenAI has them; templates expect the value. */
static hl_status open_arguments(json_t *message)
{
    json_t *calls = json_object_get(message, "tool_calls");

    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *function  = json_object_get(json_array_get(calls, i), "function");
        json_t *arguments = json_object_get(function, "arguments");
        json_t *value     = NULL;
        if (!json_is_string(arguments) ||
            hl_json_parse(&value, json_string_value(arguments), json_string_length(arguments),
                          "arguments") != HL_OK)
            continue; /* text that cannot be parsed stays as it is */
        if (json_object_set_new(function, "arguments", value) != 0)
            return hl_fail(HL_NO_MEMORY, "no memory for the messages");
    }
    return HL_OK;
}

/* A copy in which `developer` is `system`, content is never missing, and arguments are values. */
static hl_status copy_messages(json_t **out, const json_t *list)
{
    *out = json_deep_copy(list);
    if (*out == NULL)
        return hl_fail(HL_NO_MEMORY, "no memory for the messages");
    for (size_t i = 0; i < json_array_size(*out); i++) {
        json_t     *message = json_array_get(*out, i);
        const char *role    = json_string_value(json_object_get(message, "role"));
        if (strcmp(role, "developer") == 0)
            json_object_set_new(message, "role", json_string("system"));
        if (json_object_get(message, "content") == NULL)
            json_object_set_new(message, "content", json_null());
        HL_NEED(open_arguments(message));
    }
    return HL_OK;
}

hl_status hl_served_chat_render(hl_chat **out, const hl_tokenizer *tokenizer, const json_t *list,
                                const json_t *variables, const hl_chat_options *options)
{
    HL_CLOSED(json_decref) json_t *messages = NULL;
    size_t                         n        = json_array_size(list);

    *out = NULL;
    if (n == 0 || n > HL_MAX_MESSAGES)
        return hl_fail(HL_BAD_INPUT, "messages has %zu entries, wanted 1 to %d", n,
                       HL_MAX_MESSAGES);
    for (size_t i = 0; i < n; i++)
        HL_NEED(check_message(json_array_get(list, i), i));
    HL_NEED(copy_messages(&messages, list));
    return too_much(hl_chat_render_values(out, tokenizer, messages, variables, options));
}

static hl_status keep_messages(hl_served_prompt *out, const json_t *list, const json_t *variables,
                               const hl_prompt_reader *reader)
{
    hl_status         status   = HL_OK;
    hl_chat          *chat     = NULL;
    hl_encoding      *encoding = NULL;
    hl_encode_options options  = hl_served_encoding(reader->exchange);

    HL_TRY(hl_served_chat_render(&chat, reader->tokenizer, list, variables, NULL));
    HL_TRY(too_much(hl_chat_encode(&encoding, reader->tokenizer, chat, &options)));
    HL_TRY(keep_encoding(out, encoding, reader->model));

done:
    hl_encoding_free(encoding);
    hl_chat_free(chat);
    return status;
}

/* ------------------------------------------------------ prompts of a request */

static hl_status add_prompt(hl_served_prompts *out, const json_t *prompt,
                            const hl_prompt_reader *reader)
{
    if (out->count == HL_WIRE_MAX_CHOICES)
        return hl_fail(HL_BAD_INPUT, "more than %d prompts", HL_WIRE_MAX_CHOICES);
    hl_served_prompt *to = &out->items[out->count++];
    if (json_is_string(prompt))
        return keep_text(to, json_string_value(prompt), json_string_length(prompt), reader);
    if (json_is_array(prompt))
        return keep_ids(to, prompt, reader->model);
    return hl_fail(HL_BAD_INPUT, "prompt is %s, wanted a text or token ids", hl_json_kind(prompt));
}

hl_status hl_served_prompts_read(hl_served_prompts *out, const json_t *prompt, bool is_chat,
                                 const hl_prompt_reader *reader)
{
    size_t        index;
    const json_t *item;
    const json_t *first = json_array_get(prompt, 0);

    *out = (hl_served_prompts){ 0 };
    if (is_chat) {
        out->count = 1;
        return keep_messages(&out->items[0], prompt, reader->variables, reader);
    }
    if (!json_is_array(prompt) || first == NULL || json_is_number(first))
        return add_prompt(out, prompt, reader);
    json_array_foreach(prompt, index, item)
        HL_NEED(add_prompt(out, item, reader));
    return HL_OK;
}

void hl_served_prompts_release(hl_served_prompts *prompts)
{
    for (int64_t i = 0; i < prompts->count; i++) {
        hl_free(prompts->items[i].tokens);
        hl_free(prompts->items[i].kinds);
    }
    *prompts = (hl_served_prompts){ 0 };
}

/* --------------------------------------------------------- texts to a corpus */

/* Appends {"text": ...} and a line end. */
static hl_status add_text(hl_buffer *lines, const json_t *text)
{
    if (!json_is_string(text))
        return hl_fail(HL_BAD_INPUT, "input has %s in it, wanted texts", hl_json_kind(text));
    json_t   *line   = json_pack("{s:O}", "text", text);
    char     *dumped = line != NULL ? json_dumps(line, JSON_COMPACT) : NULL;
    hl_status status = dumped != NULL ? hl_buffer_append_text(lines, dumped)
                                      : hl_fail(HL_NO_MEMORY, "the texts cannot be kept");

    free(dumped);
    json_decref(line);
    return status == HL_OK ? hl_buffer_append_text(lines, "\n") : status;
}

static hl_status add_texts(hl_buffer *lines, const json_t *input)
{
    size_t n = json_array_size(input);

    if (json_is_string(input))
        return add_text(lines, input);
    if (!json_is_array(input) || n == 0 || n > HL_SERVED_MAX_TEXTS)
        return hl_fail(HL_BAD_INPUT, "input: wanted a text or an array of 1 to %d texts",
                       HL_SERVED_MAX_TEXTS);
    for (size_t i = 0; i < n; i++)
        HL_NEED(add_text(lines, json_array_get(input, i)));
    return HL_OK;
}

hl_status hl_served_texts_open(hl_served_texts *out, const hl_server *server, const json_t *input,
                               hl_exchange *exchange)
{
    HL_NEED(add_texts(&out->lines, input));
    return hl_corpus_open_bytes(
        &out->corpus, server->model, server->tokenizer, out->lines.data, out->lines.n_bytes,
        "input",
        &(hl_corpus_options){ .format = HL_TEXT_JSONL, .stop = is_gone, .context = exchange });
}

void hl_served_texts_close(hl_served_texts *texts)
{
    hl_corpus_close(texts->corpus);
    hl_buffer_free(&texts->lines);
    *texts = (hl_served_texts){ 0 };
}
