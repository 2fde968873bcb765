/* chat.c - conversations as text and as tokens.
 *
 * A model's chat template is a program, and it is run (jinja.h).  Every byte of what it writes
 * knows whether it comes from a message, and from which role, or from the template itself.  Runs of
 * bytes of one role are the parts of a chat: they give tokens their roles, and special tokens are
 * recognized in the template's own parts only.
 *
 * Files without a template have one of the formats below, which are a few strings around every
 * message:
 *
 *     open ROLE after_role | content | close | ... | prompt
 *     <|im_start|> user \n   Hello     <|im_end|>\n   <|im_start|>assistant\n                     */
#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"
#include "tokenize/jinja.h"
#include "tokenize/tokenizer.h"

typedef struct chat_style {
    hl_chat_format format;
    bool           trims;     /* white space around contents is removed */
    bool           no_system; /* the format has no system role: the system message goes before the
                               * user's next one */
    const char    *name;
    const char    *open;
    const char    *after_role;
    const char    *close;
    const char    *assistant; /* the format's name of the assistant role */
} chat_style;

static const chat_style styles[] = {
    { HL_CHAT_PLAIN, false, false, "plain", "", ": ", "\n", "assistant" },
    { HL_CHAT_CHATML, false, false, "chatml", "<|im_start|>", "\n", "<|im_end|>\n", "assistant" },
    { HL_CHAT_LLAMA3, true, false, "llama3", "<|start_header_id|>", "<|end_header_id|>\n\n",
      "<|eot_id|>", "assistant" },
    { HL_CHAT_GEMMA, true, true, "gemma", "<start_of_turn>", "\n", "<end_of_turn>\n", "model" },
    { HL_CHAT_MISTRAL, false, true, "mistral", "", "", "", "assistant" },
    { HL_CHAT_PHI3, false, false, "phi3", "<|", "|>\n", "<|end|>\n", "assistant" },
};

static const chat_style *find_style(hl_chat_format format)
{
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++) {
        if (styles[i].format == format)
            return &styles[i];
    }
    return NULL;
}

/* --------------------------------------------------------------------- the template */

/* A template that cannot be parsed makes chats impossible, and nothing else: its error is kept for
 * them. */
hl_status hl_tokenizer_set_chat_template(hl_tokenizer *tokenizer, const char *text)
{
    HL_SCOPED(hl_text_free) hl_text where = { 0 };

    hl_free(tokenizer->chat_template);
    hl_free(tokenizer->chat_refusal);
    hl_jinja_free(tokenizer->chat_program);
    tokenizer->chat_template = NULL;
    tokenizer->chat_refusal  = NULL;
    tokenizer->chat_program  = NULL;
    hl_text_addf(&where, "%s, chat template", tokenizer->where);
    HL_NEED(where.status);
    hl_status status = hl_jinja_parse(&tokenizer->chat_program, text, strlen(text), where.bytes);
    if (status == HL_BAD_INPUT || status == HL_LIMIT)
        status = hl_strdup(&tokenizer->chat_refusal, hl_error_message());
    HL_NEED(status);
    return hl_strdup(&tokenizer->chat_template, text);
}

const char *hl_tokenizer_chat_template(const hl_tokenizer *tokenizer)
{
    return tokenizer->chat_template;
}

hl_chat_format hl_tokenizer_chat_format(const hl_tokenizer *tokenizer)
{
    return tokenizer->chat_template != NULL ? HL_CHAT_TEMPLATE : HL_CHAT_PLAIN;
}

const char *hl_chat_format_name(hl_chat_format format)
{
    const chat_style *style = find_style(format);

    return style != NULL ? style->name : format == HL_CHAT_TEMPLATE ? "template" : "auto";
}

/* ---------------------------------------------------------------- texts with parts */

typedef struct chat_writer {
    hl_chat            *chat;
    hl_text             text; /* keeps the first error, also of parts */
    size_t              parts_capacity;
    const hl_tokenizer *tokenizer;
    const chat_style   *style;
} chat_writer;

HL_CLOSES(hl_chat_free, hl_chat)

/* Appends bytes; a part grows as long as the role stays the same. */
static void put_bytes(chat_writer *w, hl_chat_role role, hl_bytes bytes)
{
    hl_chat *chat  = w->chat;
    size_t   begin = w->text.n_bytes;

    if (bytes.n_bytes > 0)
        hl_text_add(&w->text, bytes.data, bytes.n_bytes);
    if (w->text.status != HL_OK || bytes.n_bytes == 0)
        return;
    if (chat->n_parts > 0 && chat->parts[chat->n_parts - 1].role == role) {
        chat->parts[chat->n_parts - 1].span.end = w->text.n_bytes;
        return;
    }
    w->text.status = HL_GROW(&chat->parts, &w->parts_capacity, chat->n_parts, 1);
    if (w->text.status == HL_OK)
        chat->parts[chat->n_parts++] = (hl_chat_part){ role, { begin, w->text.n_bytes } };
}

static void put(chat_writer *w, const char *text)
{
    put_bytes(w, HL_ROLE_TEMPLATE, (hl_bytes){ text, strlen(text) });
}

/* ------------------------------------------------------------- running the template */

static hl_bytes special_text(const hl_tokenizer *tokenizer, hl_special which)
{
    if (tokenizer->special[which] < 0)
        return (hl_bytes){ NULL, 0 };
    return hl_vocab_spelling(&tokenizer->vocab, tokenizer->special[which]);
}

static void put_page(chat_writer *w, const hl_jinja_page *page)
{
    for (size_t begin = 0, end; begin < page->n_bytes; begin = end) {
        for (end = begin + 1; end < page->n_bytes && page->roles[end] == page->roles[begin];)
            end++;
        put_bytes(w, (hl_chat_role)page->roles[begin],
                  (hl_bytes){ page->text + begin, end - begin });
    }
}

static hl_status run_template(chat_writer *w, const json_t *messages, const json_t *variables,
                              const hl_chat_options *options)
{
    HL_SCOPED(hl_jinja_page_free) hl_jinja_page page = { 0 };

    const hl_tokenizer *tokenizer = w->tokenizer;
    hl_jinja_input      input     = {
                 .messages              = messages,
                 .variables             = variables,
                 .add_generation_prompt = !options->no_prompt,
                 .now                   = options->now != 0 ? &options->now : NULL,
    };
    for (int i = 0; i < HL_SPECIAL_COUNT; i++)
        input.special[i] = special_text(tokenizer, (hl_special)i);
    if (tokenizer->chat_program == NULL)
        return hl_fail(HL_BAD_INPUT, "%s", tokenizer->chat_refusal);
    HL_NEED(hl_jinja_render(&page, tokenizer->chat_program, &input));
    put_page(w, &page);
    w->chat->generated   = hl_taken(&page.generated);
    w->chat->n_generated = page.n_generated;
    return w->text.status;
}

/* ---------------------------------------------------------------- built-in formats */

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* A message's text: a string, or an array of parts; null has none. */
static void put_content(chat_writer *w, const json_t *message)
{
    const json_t *content = json_object_get(message, "content");
    hl_chat_role  role    = hl_chat_role_of(json_string_value(json_object_get(message, "role")));
    hl_bytes      bytes   = { json_string_value(content), json_string_length(content) };

    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *part = json_object_get(json_array_get(content, i), "text");
        put_bytes(w, role, (hl_bytes){ json_string_value(part), json_string_length(part) });
    }
    while (w->style->trims && bytes.n_bytes > 0 && is_space(bytes.data[0]))
        bytes = (hl_bytes){ bytes.data + 1, bytes.n_bytes - 1 };
    while (w->style->trims && bytes.n_bytes > 0 && is_space(bytes.data[bytes.n_bytes - 1]))
        bytes.n_bytes--;
    put_bytes(w, role, bytes);
}

static void put_opening(chat_writer *w, const char *role)
{
    bool assistant = hl_chat_role_of(role) == HL_ROLE_ASSISTANT;

    put(w, w->style->open);
    put(w, assistant ? w->style->assistant : role != NULL ? role : "user");
    put(w, w->style->after_role);
}

/* Mistral puts brackets around the user's messages. */
static void put_message(chat_writer *w, const json_t *message, const json_t *system)
{
    const char *role    = json_string_value(json_object_get(message, "role"));
    bool        mistral = w->style->format == HL_CHAT_MISTRAL;
    bool        answer  = hl_chat_role_of(role) == HL_ROLE_ASSISTANT;

    if (!mistral)
        put_opening(w, role);
    else if (!answer)
        put(w, "[INST] ");
    if (system != NULL) {
        put_content(w, system);
        put(w, "\n\n");
    }
    put_content(w, message);
    if (mistral && answer)
        put_bytes(w, HL_ROLE_TEMPLATE, special_text(w->tokenizer, HL_SPECIAL_EOS));
    else
        put(w, mistral ? " [/INST]" : w->style->close);
}

static void put_messages(chat_writer *w, const json_t *messages)
{
    const json_t *system = NULL; /* a system message that waits for the user's next one, in formats
                                  * without a system role */

    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        const char   *name    = json_string_value(json_object_get(message, "role"));
        hl_chat_role  role    = hl_chat_role_of(name);
        if (w->style->no_system && role == HL_ROLE_SYSTEM) {
            system = message;
            continue;
        }
        put_message(w, message, role == HL_ROLE_USER ? system : NULL);
        if (role == HL_ROLE_USER)
            system = NULL;
    }
}

/* ------------------------------------------------------------------ rendering */

static hl_status write_chat(chat_writer *w, const json_t *messages, const json_t *variables,
                            const hl_chat_options *options)
{
    if (w->chat->format == HL_CHAT_TEMPLATE)
        return run_template(w, messages, variables, options);
    w->style = find_style(w->chat->format);
    if (w->style == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "no chat format %d", (int)options->format);
    put_messages(w, messages);
    if (!options->no_prompt && w->style->format != HL_CHAT_MISTRAL)
        put_opening(w, "assistant");
    return w->text.status;
}

hl_status hl_chat_render_values(hl_chat **out, const hl_tokenizer *tokenizer,
                                const json_t *messages, const json_t *variables,
                                const hl_chat_options *options)
{
    hl_chat_options                  chosen = options != NULL ? *options : (hl_chat_options){ 0 };
    chat_writer                      w      = { .tokenizer = tokenizer };
    HL_CLOSED(hl_chat_free) hl_chat *chat   = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&chat, 1));
    w.chat = chat;
    chat->format =
        chosen.format != HL_CHAT_AUTO ? chosen.format : hl_tokenizer_chat_format(tokenizer);
    if (chat->format == HL_CHAT_TEMPLATE && tokenizer->chat_template == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: there is no chat template", tokenizer->where);
    hl_status status = write_chat(&w, messages, variables, &chosen);
    chat->n_bytes    = w.text.n_bytes;
    if (status == HL_OK)
        status = hl_text_finish(&chat->text, &w.text);
    else
        hl_text_free(&w.text);
    HL_NEED(status);
    *out = hl_taken(&chat);
    return HL_OK;
}

static hl_status parse_array(json_t **out, const char *text, size_t n_bytes)
{
    HL_NEED(hl_json_parse(out, text, n_bytes, "messages"));
    for (size_t i = 0; i < json_array_size(*out); i++) {
        const json_t *message = json_array_get(*out, i);
        if (!json_is_object(message))
            return hl_fail(HL_BAD_INPUT, "messages[%zu] is %s, wanted an object", i,
                           hl_json_kind(message));
    }
    return json_is_array(*out)
               ? HL_OK
               : hl_fail(HL_BAD_INPUT, "messages are %s, wanted an array", hl_json_kind(*out));
}

hl_status hl_chat_render_json(hl_chat **out, const hl_tokenizer *tokenizer, const char *messages,
                              size_t n_bytes, const hl_chat_options *options)
{
    HL_CLOSED(json_decref) json_t *list      = NULL;
    HL_CLOSED(json_decref) json_t *variables = NULL;
    const char                    *given     = options != NULL ? options->variables : NULL;

    *out = NULL;
    HL_NEED(parse_array(&list, messages, n_bytes));
    if (given != NULL)
        HL_NEED(hl_json_parse(&variables, given, strlen(given), "variables"));
    if (variables != NULL && !json_is_object(variables))
        return hl_fail(HL_BAD_INPUT, "variables are %s, wanted an object", hl_json_kind(variables));
    return hl_chat_render_values(out, tokenizer, list, variables, options);
}

hl_status hl_chat_render(hl_chat **out, const hl_tokenizer *tokenizer,
                         const hl_chat_message *messages, size_t n_messages,
                         const hl_chat_options *options)
{
    HL_SCOPED(hl_text_free) hl_text text = { 0 };
    json_t                         *list = json_array();

    *out = NULL;
    for (size_t i = 0; i < n_messages; i++) {
        json_t *message = json_object();
        hl_json_put(&message, "role", hl_json_text(messages[i].role, strlen(messages[i].role)));
        hl_json_put(&message, "content",
                    hl_json_text(messages[i].content, strlen(messages[i].content)));
        hl_json_add(&list, message);
    }
    HL_FREED char *json = hl_json_dump(list, JSON_COMPACT);
    json_decref(list);
    if (json == NULL)
        return hl_fail(HL_NO_MEMORY, "no memory for the messages");
    return hl_chat_render_json(out, tokenizer, json, strlen(json), options);
}

void hl_chat_free(hl_chat *chat)
{
    if (chat == NULL)
        return;
    hl_free(chat->text);
    hl_free(chat->parts);
    hl_free(chat->generated);
    hl_free(chat);
}

/* ------------------------------------------------------------------- encoding */

hl_status hl_chat_encode(hl_encoding **out, const hl_tokenizer *tokenizer, const hl_chat *chat,
                         const hl_encode_options *options)
{
    hl_added_filter filter = { .parts = chat->parts, .n_parts = chat->n_parts };
    HL_CLOSED(hl_encoding_free) hl_encoding *coded = NULL;

    hl_encode_options chosen = options != NULL ? *options : (hl_encode_options){ 0 };

    *out = NULL;
    HL_NEED(hl_tokenizer_encode_filtered(&coded, tokenizer, chat->text, chat->n_bytes, &chosen,
                                         &filter));
    HL_NEED(HL_ALLOC(&coded->roles, coded->n_tokens));
    size_t part = 0;
    for (size_t i = 0; i < coded->n_tokens; i++) {
        /* A token that crosses a border of parts belongs to the part of its end, where the content
         * is ("▁Hello" with the template's space).  Spans are in increasing order. */
        size_t last = coded->spans[i].end > 0 ? coded->spans[i].end - 1 : 0;
        while (part + 1 < chat->n_parts && chat->parts[part].span.end <= last)
            part++;
        coded->roles[i] = (uint8_t)(chat->n_parts > 0 ? chat->parts[part].role : HL_ROLE_TEMPLATE);
    }
    *out = hl_taken(&coded);
    return HL_OK;
}
