/* verify_chat.c - chat templates against what another program rendered with them.
 *
 * NAME.json is read, NAME.jinja beside it is parsed once, and every conversation is rendered and
 * compared.  A template that cannot be parsed refuses every conversation. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "measure/verify.h"
#include "tokenize/jinja.h"

/* 2026-07-14 09:30 */
static const int64_t stored_now = 1784021400;

typedef struct chat_file {
    json_t *conversations;
    hl_jinja *template; /* NULL: it could not be parsed */
    char   *refusal;    /* then, why */
    json_t *rendered;   /* in the form of the file */
} chat_file;

static void release(chat_file *file)
{
    json_decref(file->conversations);
    json_decref(file->rendered);
    hl_jinja_free(file->template);
    hl_free(file->refusal);
}

/* "FOLDER/NAME.jinja, line 3: TypeError: ..." without the place. */
static const char *without_place(const char *message, const char *path)
{
    size_t n = strlen(path);

    if (strncmp(message, path, n) != 0)
        return message;
    const char *colon = strstr(message + n, ": ");
    return colon != NULL ? colon + 2 : message;
}

static hl_status open_template(chat_file *file, const char *path)
{
    HL_SCOPED(hl_text_free) hl_text  name = { 0 };
    HL_SCOPED(hl_file_unmap) hl_file text = { 0 };

    hl_text_addf(&name, "%.*s.jinja", (int)(strlen(path) - strlen(".json")), path);
    HL_NEED(name.status);
    HL_NEED(hl_file_map(&text, name.bytes));
    hl_status status =
        hl_jinja_parse(&file->template, (const char *)text.bytes, text.n_bytes, name.bytes);
    if (status != HL_BAD_INPUT)
        return status;
    return hl_strdup(&file->refusal, without_place(hl_error_message(), name.bytes));
}

static hl_status read_file(chat_file *file, const char *path)
{
    if (!hl_ends_with(path, ".json"))
        return hl_fail(HL_BAD_ARGUMENT, "%s: a file of conversations is called NAME.json", path);
    HL_NEED(hl_json_parse_file(&file->conversations, path));
    if (!json_is_array(file->conversations))
        return hl_fail(HL_BAD_INPUT, "%s: %s, wanted an array of conversations", path,
                       hl_json_kind(file->conversations));
    return open_template(file, path);
}

/* Renders one conversation; one of *text and *refusal is set. */
static hl_status render(char **text, char **refusal, const chat_file *file,
                        const json_t *conversation)
{
    HL_SCOPED(hl_jinja_page_free) hl_jinja_page page = { 0 };

    hl_jinja_input input = {
        .messages                = json_object_get(conversation, "messages"),
        .variables               = json_object_get(conversation, "options"),
        .special[HL_SPECIAL_BOS] = { "<s>", 3 },
        .special[HL_SPECIAL_EOS] = { "</s>", 4 },
        .now                     = &stored_now,
        .add_generation_prompt =
            json_is_true(json_object_get(conversation, "add_generation_prompt")),
    };
    if (file->template == NULL)
        return hl_strdup(refusal, file->refusal);
    hl_status status = hl_jinja_render(&page, file->template, &input);
    if (status != HL_OK && page.refusal == NULL)
        return status;
    *text    = hl_taken(&page.text);
    *refusal = hl_taken(&page.refusal);
    return HL_OK;
}

static hl_status keep_rendered(chat_file *file, const json_t *conversation, const char *text,
                               const char *refusal)
{
    json_t *copy = json_object();

    for (void *i = json_object_iter((json_t *)conversation); i != NULL;
         i       = json_object_iter_next((json_t *)conversation, i)) {
        const char *key = json_object_iter_key(i);
        if (strcmp(key, "text") != 0 && strcmp(key, "error") != 0)
            hl_json_put(&copy, key, json_incref(json_object_iter_value(i)));
    }
    hl_json_put(&copy, refusal != NULL ? "error" : "text",
                json_string(refusal != NULL ? refusal : text));
    hl_json_add(&file->rendered, copy);
    return file->rendered != NULL ? HL_OK : hl_fail(HL_NO_MEMORY, "no memory for the texts");
}

/* Both texts around the place where they part. */
static hl_status describe(hl_verify_chats *chats, const char *ours, const char *theirs)
{
    HL_SCOPED(hl_text_free) hl_text text = { 0 };
    size_t                          at   = 0;

    while (ours[at] != '\0' && ours[at] == theirs[at])
        at++;
    size_t from = at > 20 ? at - 20 : 0;
    hl_text_addf(&text, "conversation %zu, byte %zu: ours \"%.60s\", theirs \"%.60s\"",
                 chats->first, at, ours + from, theirs + from);
    return hl_text_finish(&chats->difference, &text);
}

static hl_status check_conversation(hl_verify_chats *chats, chat_file *file, const char *path,
                                    size_t index, const json_t *conversation)
{
    HL_FREED char *text = NULL, *refusal = NULL;
    const char    *their_text  = json_string_value(json_object_get(conversation, "text"));
    const char    *their_error = json_string_value(json_object_get(conversation, "error"));

    if (!json_is_array(json_object_get(conversation, "messages")))
        return hl_fail(HL_BAD_INPUT, "%s: conversation %zu has no array 'messages'", path, index);
    if (their_text == NULL && their_error == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: conversation %zu has neither 'text' nor 'error'", path,
                       index);
    hl_status status = render(&text, &refusal, file, conversation);
    if (status != HL_OK)
        return hl_fail_within(status, "conversation %zu", index);
    HL_NEED(keep_rendered(file, conversation, text, refusal));
    bool equal = their_text != NULL ? text != NULL && strcmp(text, their_text) == 0
                                    : refusal != NULL && strcmp(refusal, their_error) == 0;
    chats->n_equal += equal;
    if (equal || chats->first < chats->n_chats)
        return HL_OK;
    chats->first = index;
    return describe(chats, text != NULL ? text : refusal,
                    their_text != NULL ? their_text : their_error);
}

static hl_status write_rendered(const json_t *rendered, const char *path)
{
    HL_FREED char                          *text   = hl_json_dump(rendered, JSON_INDENT(1));
    HL_CLOSED(hl_writer_abandon) hl_writer *writer = NULL;

    if (text == NULL)
        return hl_fail(HL_NO_MEMORY, "no memory for the texts");
    HL_NEED(hl_writer_open(&writer, path));
    hl_writer_write(writer, text, strlen(text));
    hl_writer_write(writer, "\n", 1);
    return hl_writer_finish(hl_taken(&writer));
}

hl_status hl_verify_chat(hl_verify_chats **out, const char *path, const char *write_path)
{
    HL_CLOSED(hl_verify_chats_free) hl_verify_chats *chats = NULL;
    HL_SCOPED(release) chat_file                     file  = { .rendered = json_array() };

    *out = NULL;
    HL_NEED(read_file(&file, path));
    HL_NEED(HL_ALLOC_ZEROED(&chats, 1));
    HL_NEED(hl_verify_case_name(&chats->name, path));
    chats->n_chats = json_array_size(file.conversations);
    chats->first   = chats->n_chats;
    for (size_t i = 0; i < chats->n_chats; i++)
        HL_NEED(check_conversation(chats, &file, path, i, json_array_get(file.conversations, i)));
    if (write_path != NULL)
        HL_NEED(write_rendered(file.rendered, write_path));
    *out = hl_taken(&chats);
    return HL_OK;
}

void hl_verify_chats_free(hl_verify_chats *chats)
{
    if (chats == NULL)
        return;
    hl_free(chats->name);
    hl_free(chats->difference);
    hl_free(chats);
}
