/* chat.c - the usual chat formats, written by hand.
 *
 * A format is a few strings around every message (and around the whole), so it is a row of a table:
 *
 *     start  | open ROLE after_role | content | close | ... | prompt
 *     <s>      <|im_start|> user \n   Hello     <|im_end|>\n   <|im_start|>assistant\n
 *
 * Where a template does more, a function does the same.  A template is a program, and two templates
 * with the markers of one format may differ, for example in what they do with an empty system
 * message.  A format is therefore only called known for templates that gave exactly the text
 * written here when Jinja2 ran them; their hashes are in a table. Other templates are reported as
 * unknown, and their chats are written in the format whose markers they have.  Every byte of the
 * result belongs to a part: a message's own content has that message's role, all other bytes are
 * the template's. */
#include <string.h>

#include "base/buffer.h"
#include "base/hash.h"
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
    const char    *markers[3]; /* a template has this format if it contains all of these */
    const char    *open;
    const char    *after_role;
    const char    *close;
    const char    *assistant; /* the format's name of the assistant role */
} chat_style;

/* The first entry that fits a template is taken. */
static const chat_style styles[] = {
    { HL_CHAT_CHATML,
      false,
      false,
      "chatml",
      { "<|im_start|>", "<|im_end|>" },
      "<|im_start|>",
      "\n",
      "<|im_end|>\n",
      "assistant" },
    { HL_CHAT_LLAMA3,
      true,
      false,
      "llama3",
      { "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>" },
      "<|start_header_id|>",
      "<|end_header_id|>\n\n",
      "<|eot_id|>",
      "assistant" },
    { HL_CHAT_GEMMA,
      true,
      true,
      "gemma",
      { "<start_of_turn>", "<end_of_turn>" },
      "<start_of_turn>",
      "\n",
      "<end_of_turn>\n",
      "model" },
    { HL_CHAT_PHI3,
      false,
      false,
      "phi3",
      { "<|assistant|>", "<|end|>" },
      "<|",
      "|>\n",
      "<|end|>\n",
      "assistant" },
    { HL_CHAT_MISTRAL, false, true, "mistral", { "[INST]", "[/INST]" }, "", "", "", "assistant" },
    { HL_CHAT_PLAIN, false, false, "plain", { NULL }, "", ": ", "\n", "assistant" },
};

enum { N_STYLES = sizeof styles / sizeof *styles };

/* Markers of templates that also have the markers of a format, but do not have that format. */
static const char *const impostors[] = { "<|im_sep|>", "<end_of_utterance>", "[SYSTEM_PROMPT]",
                                         "<<SYS>>", "<|im_middle|>" };

/* Hashes of normalized templates that give what this file writes for every conversation of a test
 * set; tests/test_tokenize_chat.c compares them. */
static const uint64_t known_templates[] = {
    0x1e0564a458dac94fU, /* ChatML, message['role'] */
    0xfc32a098698ebfa6U, /* ChatML, message.role */
    0x670c8f697495cec9U, /* ChatML with a standard system message: SmolLM2 */
    0x535a78fb66959d56U, /* Qwen2.5, MiMo-VL */
    0x4d09dfd9a7f97428U, /* Qwen3-Coder */
    0x89e40d558a2266f2U, /* Llama 3 */
    0x46ed71195d8f6f77U, /* Llama 3, with the begin of text first */
    0xac1c43bb5ab5dd3bU, /* Llama 3.1 */
    0xe418a631a7fa4b01U, /* Phi-3's turns in a plain loop */
};

/* --------------------------------------------------------------- recognizing */

static bool contains(const char *text, const char *word)
{
    return text != NULL && strstr(text, word) != NULL;
}

static const chat_style *recognize(const char *template)
{
    for (size_t i = 0; i < sizeof impostors / sizeof *impostors; i++) {
        if (contains(template, impostors[i]))
            return NULL;
    }
    for (int i = 0; i < N_STYLES && styles[i].markers[0] != NULL; i++) {
        bool all = true;
        for (int k = 0; k < 3 && styles[i].markers[k] != NULL; k++)
            all = all && contains(template, styles[i].markers[k]);
        if (all)
            return &styles[i];
    }
    return NULL;
}

static const chat_style *find_style(hl_chat_format format)
{
    for (int i = 0; i < N_STYLES; i++) {
        if (styles[i].format == format)
            return &styles[i];
    }
    return NULL;
}

/* Finds the system message that Qwen's templates use if there is none:
 *     '<|im_start|>system\nYou are ... <|im_end|>\n' */
static hl_bytes find_standard_system(const char *template)
{
    static const char *const openings[] = { "<|im_start|>system\\n", "<|im_start|>system\n" };

    for (size_t i = 0; i < sizeof openings / sizeof *openings; i++) {
        const char *at = template;
        while (at != NULL && (at = strstr(at, openings[i])) != NULL) {
            at += strlen(openings[i]);
            size_t length = strcspn(at, "'\"{}<\\");
            if (length > 0 && strncmp(at + length, "<|im_end|>", 10) == 0)
                return (hl_bytes){ at, length };
        }
    }
    return (hl_bytes){ NULL, 0 };
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Copies a string literal, starting at its quote: in single quotes if that changes nothing, and
 * with line ends as \\n.  Also returns its length. */
static hl_status copy_literal(hl_buffer *out, size_t *n_bytes, const char *text)
{
    size_t length = 1;

    while (text[length] != '\0' && text[length] != text[0])
        length += text[length] == '\\' && text[length + 1] != '\0' ? 2 : 1;
    *n_bytes         = length + (text[length] != '\0');
    bool        both = memchr(text + 1, '\'', length - 1) != NULL;
    const char *mark = text[0] == '"' && both ? "\"" : "'";
    HL_NEED(hl_buffer_append(out, mark, 1));
    for (size_t i = 1; i < length; i++)
        HL_NEED(text[i] == '\n' ? hl_buffer_append(out, "\\n", 2)
                                : hl_buffer_append(out, text + i, 1));
    return hl_buffer_append(out, mark, 1);
}

/* Normalizes a template for hashing: line ends at its end are dropped; inside {{ }} and {% %},
 * spaces stand only between names, and strings have single quotes.  Text outside is output, and
 * stays. */
static hl_status normalize(hl_buffer *out, const char *template)
{
    size_t end     = strlen(template);
    bool   inside  = false;
    size_t n_bytes = 0;

    while (end > 0 && (template[end - 1] == '\n' || template[end - 1] == '\r'))
        end--;
    for (size_t at = 0; at < end;) {
        const char *text = template + at;
        if (!inside && text[0] == '{' && (text[1] == '{' || text[1] == '%')) {
            inside = true;
            HL_NEED(hl_buffer_append(out, text, 2));
            at += 2;
        } else if (inside && (text[0] == '}' || text[0] == '%') && text[1] == '}') {
            inside = false;
            HL_NEED(hl_buffer_append(out, text, 2));
            at += 2;
        } else if (inside && (text[0] == '\'' || text[0] == '"')) {
            HL_NEED(copy_literal(out, &n_bytes, text));
            at += n_bytes;
        } else if (inside && strchr(" \t\r\n", text[0]) != NULL) {
            size_t n_spaces = strspn(text, " \t\r\n");
            if (out->n_bytes > 0 && is_name(out->data[out->n_bytes - 1]) && is_name(text[n_spaces]))
                HL_NEED(hl_buffer_append(out, " ", 1));
            at += n_spaces;
        } else {
            HL_NEED(hl_buffer_append(out, text, 1));
            at++;
        }
    }
    return HL_OK;
}

static hl_status hash_template(uint64_t *out, const char *template)
{
    HL_SCOPED(hl_buffer_free) hl_buffer hidden = { 0 };
    HL_SCOPED(hl_buffer_free) hl_buffer text   = { 0 };

    *out = 0;
    HL_NEED(normalize(&text, template));
    /* The standard system message is replaced by one letter. */
    HL_NEED(hl_search_replace(
        &hidden,
        (hl_search){ .needle = find_standard_system(template), .text = hl_buffer_bytes(&text) },
        (hl_bytes){ "S", 1 }));
    *out = hl_hash(hl_buffer_bytes(&hidden).data, hidden.n_bytes, 0);
    return HL_OK;
}

hl_status hl_tokenizer_set_chat_template(hl_tokenizer *tokenizer, const char *text)
{
    const chat_style *style = recognize(text);
    uint64_t          hash  = 0;

    HL_NEED(hash_template(&hash, text));
    hl_free(tokenizer->chat_template);
    tokenizer->chat_format = style != NULL ? style->format : HL_CHAT_PLAIN;
    tokenizer->chat_known  = false;
    for (size_t i = 0; i < sizeof known_templates / sizeof *known_templates; i++)
        tokenizer->chat_known |= style != NULL && known_templates[i] == hash;
    return hl_strdup(&tokenizer->chat_template, text);
}

const char *hl_tokenizer_chat_template(const hl_tokenizer *tokenizer)
{
    return tokenizer->chat_template;
}

hl_chat_format hl_tokenizer_chat_format(const hl_tokenizer *tokenizer, bool *known)
{
    if (known != NULL)
        *known = tokenizer->chat_template == NULL || tokenizer->chat_known;
    return tokenizer->chat_format;
}

const char *hl_chat_format_name(hl_chat_format format)
{
    const chat_style *style = find_style(format);
    return style != NULL ? style->name : "auto";
}

/* ------------------------------------------------------------------- writing */

typedef struct chat_writer {
    hl_chat            *chat;
    hl_text             text; /* keeps the first error, also of parts */
    size_t              parts_capacity;
    const hl_tokenizer *tokenizer;
    const chat_style   *style;
} chat_writer;

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

static void put_special(chat_writer *w, hl_special which)
{
    put_bytes(w, HL_ROLE_TEMPLATE,
              hl_vocab_spelling(&w->tokenizer->vocab, w->tokenizer->special[which]));
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static void put_content(chat_writer *w, const hl_chat_message *message)
{
    hl_bytes bytes = { message->content, strlen(message->content) };

    while (w->style->trims && bytes.n_bytes > 0 && is_space(bytes.data[0]))
        bytes = (hl_bytes){ bytes.data + 1, bytes.n_bytes - 1 };
    while (w->style->trims && bytes.n_bytes > 0 && is_space(bytes.data[bytes.n_bytes - 1]))
        bytes.n_bytes--;
    put_bytes(w, hl_chat_role_of(message->role), bytes);
}

static void put_opening(chat_writer *w, const char *role)
{
    put(w, w->style->open);
    put(w, hl_chat_role_of(role) == HL_ROLE_ASSISTANT ? w->style->assistant : role);
    put(w, w->style->after_role);
}

/* ------------------------------------------- what single templates say besides */

/* Llama-3.1 and later always open with a system turn that holds two dates. */
#define LLAMA31_DATES "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"

static bool has_dates(const chat_writer *w)
{
    return w->style->format == HL_CHAT_LLAMA3 &&
           contains(w->tokenizer->chat_template, "Cutting Knowledge Date: ");
}

static hl_bytes standard_system(const chat_writer *w)
{
    return w->style->format == HL_CHAT_CHATML ? find_standard_system(w->tokenizer->chat_template)
                                              : (hl_bytes){ NULL, 0 };
}

static void put_start(chat_writer *w, bool has_system)
{
    const char *template = w->tokenizer->chat_template;
    hl_bytes standard    = standard_system(w);

    if (contains(template, "bos_token") || contains(template, "<bos>") ||
        contains(template, "<|begin_of_text|>"))
        put_special(w, HL_SPECIAL_BOS);
    if (has_system)
        return;
    if (has_dates(w)) {
        put_opening(w, "system");
        put(w, LLAMA31_DATES);
        put(w, w->style->close);
    } else if (standard.n_bytes > 0) {
        put_opening(w, "system");
        put_bytes(w, HL_ROLE_TEMPLATE, standard);
        put(w, w->style->close);
    }
}

/* ----------------------------------------------------------------- messages */

static void put_message(chat_writer *w, const hl_chat_message *message,
                        const hl_chat_message *system)
{
    put_opening(w, message->role);
    if (has_dates(w) && hl_chat_role_of(message->role) == HL_ROLE_SYSTEM)
        put(w, LLAMA31_DATES);
    if (system != NULL) {
        put_content(w, system);
        put(w, "\n\n");
    }
    put_content(w, message);
    put(w, w->style->close);
}

/* Mistral puts brackets around the user's messages.  Its releases differ in where they put spaces;
 * the template shows which release it is. */
static void put_mistral(chat_writer *w, const hl_chat_message *message,
                        const hl_chat_message *system)
{
    const char *template = w->tokenizer->chat_template;

    if (hl_chat_role_of(message->role) == HL_ROLE_ASSISTANT) {
        if (contains(template, "\" \" + message") || contains(template, "' ' + message"))
            put(w, " ");
        put_content(w, message);
        put_special(w, HL_SPECIAL_EOS);
        if (contains(template, "eos_token + ' '"))
            put(w, " ");
        return;
    }
    put(w, template == NULL || contains(template, "[INST] ") ? "[INST] " : "[INST]");
    if (system != NULL) {
        put_content(w, system);
        put(w, "\n\n");
    }
    put_content(w, message);
    put(w, template == NULL || contains(template, " [/INST]") ? " [/INST]" : "[/INST]");
}

static void put_messages(chat_writer *w, const hl_chat_message *messages, size_t n_messages)
{
    const hl_chat_message *system = NULL; /* a system message that waits for the user's next one, in
                                           * formats without a system role */

    for (size_t i = 0; i < n_messages; i++) {
        hl_chat_role role = hl_chat_role_of(messages[i].role);
        if (w->style->no_system && role == HL_ROLE_SYSTEM) {
            system = &messages[i];
            continue;
        }
        const hl_chat_message *before = role == HL_ROLE_USER ? system : NULL;
        if (w->style->format == HL_CHAT_MISTRAL)
            put_mistral(w, &messages[i], before);
        else
            put_message(w, &messages[i], before);
        if (before != NULL)
            system = NULL;
    }
}

/* ------------------------------------------------------------------ rendering */

HL_CLOSES(hl_chat_free, hl_chat)

static const chat_style *choose_style(bool *known, const hl_tokenizer *tokenizer,
                                      hl_chat_format wanted)
{
    *known = true;
    if (wanted != HL_CHAT_AUTO)
        return find_style(wanted);
    hl_chat_format format = hl_tokenizer_chat_format(tokenizer, known);
    if (!*known)
        hl_log(HL_LOG_WARNING,
               "%s: headlight does not know this chat template; messages are written as %s",
               tokenizer->where, hl_chat_format_name(format));
    return find_style(format);
}

hl_status hl_chat_render(hl_chat **out, const hl_tokenizer *tokenizer,
                         const hl_chat_message *messages, size_t n_messages,
                         const hl_chat_options *options)
{
    hl_chat_options                  chosen = options != NULL ? *options : (hl_chat_options){ 0 };
    chat_writer                      w      = { .tokenizer = tokenizer };
    HL_CLOSED(hl_chat_free) hl_chat *chat   = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&chat, 1));
    w.chat  = chat;
    w.style = choose_style(&chat->known, tokenizer, chosen.format);
    if (w.style == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "no chat format %d", (int)chosen.format);
    chat->format = w.style->format;
    put_start(&w, n_messages == 0 || hl_chat_role_of(messages[0].role) == HL_ROLE_SYSTEM);
    put_messages(&w, messages, n_messages);
    if (!chosen.no_prompt && w.style->format != HL_CHAT_MISTRAL)
        put_opening(&w, "assistant");
    chat->n_bytes = w.text.n_bytes;
    HL_NEED(hl_text_finish(&chat->text, &w.text));
    *out = hl_taken(&chat);
    return HL_OK;
}

void hl_chat_free(hl_chat *chat)
{
    if (chat == NULL)
        return;
    hl_free(chat->text);
    hl_free(chat->parts);
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
