/* test_tokenize_chat.c - chat formats: recognized, written, and encoded by role. */
#include "tokenize_support.h"

#include <dirent.h>

#include "base/file.h"
#include "base/memory.h"
#include "tokenize/tokenizer.h"

#define SPECIAL(id, content)                                                                       \
    "{\"id\":" #id ",\"content\":\"" content "\",\"special\":true,\"normalized\":false}"
static const char file[] =
    "{\"added_tokens\":[" SPECIAL(300, "<s>") "," SPECIAL(301, "</s>") "," SPECIAL(
        302,
        "<|im_start|>") "," SPECIAL(303,
                                    "<|im_end|>") "],"
                                                  "\"pre_tokenizer\":{\"type\":\"Split\","
                                                  "\"pattern\":{\"Regex\":\"[\\\\s\\\\S]\"},"
                                                  "\"behavior\":\"Isolated\",\"invert\":false},"
                                                  "\"model\":{\"type\":\"WordLevel\",\"unk_token\":"
                                                  "\"?\",\"vocab\":{\"?\":0,\"a\":1}}}";

/* Makes a tokenizer whose tokens are characters, with this template. */
static hl_tokenizer *with_template(const char *template)
{
    hl_tokenizer *tokenizer            = parse_tokenizer(file);
    tokenizer->special[HL_SPECIAL_BOS] = 300;
    tokenizer->special[HL_SPECIAL_EOS] = 301;
    if (template != NULL)
        assert_ok(hl_tokenizer_set_chat_template(tokenizer, template));
    return tokenizer;
}

static const hl_chat_message talk[] = {
    { "system", "Be brief." },
    { "user", " Hi! " },
    { "assistant", "Yes?" },
    { "user", "Bye." },
};

static void writes(const char *template, const char *wanted, hl_chat_format format, bool known)
{
    hl_tokenizer *tokenizer = with_template(template);
    hl_chat      *chat      = NULL;

    assert_ok(hl_chat_render(&chat, tokenizer, talk, 4, NULL));
    assert_string_equal(chat->text, wanted);
    assert_int_equal(chat->n_bytes, strlen(wanted));
    assert_int_equal(chat->format, format);
    assert_int_equal(chat->known, known);
    size_t covered = 0;
    for (size_t i = 0; i < chat->n_parts; i++) {
        assert_int_equal(chat->parts[i].span.begin, covered);
        covered = chat->parts[i].span.end;
    }
    assert_int_equal(covered, chat->n_bytes);
    hl_chat_free(chat);
    hl_tokenizer_close(tokenizer);
}

/* Chats are written in the format whose markers a template has, which is then not reported as
 * known. */
static void formats_by_their_markers(void **state)
{
    (void)state;
    writes("{% for m %}<|im_start|>{{role}}\n{{content}}<|im_end|>",
           "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi! <|im_end|>\n"
           "<|im_start|>assistant\nYes?<|im_end|>\n<|im_start|>user\nBye.<|im_end|>\n"
           "<|im_start|>assistant\n",
           HL_CHAT_CHATML, false);
    writes("{{bos_token}}<|start_header_id|><|end_header_id|><|eot_id|>",
           "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
           "<|start_header_id|>user<|end_header_id|>\n\nHi!<|eot_id|>"
           "<|start_header_id|>assistant<|end_header_id|>\n\nYes?<|eot_id|>"
           "<|start_header_id|>user<|end_header_id|>\n\nBye.<|eot_id|>"
           "<|start_header_id|>assistant<|end_header_id|>\n\n",
           HL_CHAT_LLAMA3, false);
    writes("{{ bos_token }}<start_of_turn><end_of_turn>",
           "<s><start_of_turn>user\nBe brief.\n\nHi!<end_of_turn>\n<start_of_turn>model\nYes?"
           "<end_of_turn>\n<start_of_turn>user\nBye.<end_of_turn>\n<start_of_turn>model\n",
           HL_CHAT_GEMMA, false);
    writes("{{ bos_token }}'[INST] ' + m + ' [/INST]' content + eos_token + ' '",
           "<s>[INST] Be brief.\n\n Hi!  [/INST]Yes?</s> [INST] Bye. [/INST]", HL_CHAT_MISTRAL,
           false);
    writes("\"[INST]\" + m + \"[/INST]\" \" \" + message[\"content\"] + eos_token",
           "[INST]Be brief.\n\n Hi! [/INST] Yes?</s>[INST]Bye.[/INST]", HL_CHAT_MISTRAL, false);
    writes("<|user|>\n<|end|>\n<|assistant|>\n",
           "<|system|>\nBe brief.<|end|>\n<|user|>\n Hi! <|end|>\n<|assistant|>\nYes?<|end|>\n"
           "<|user|>\nBye.<|end|>\n<|assistant|>\n",
           HL_CHAT_PHI3, false);
}

/* ChatML as in many templates, in spellings that are equal in Jinja. */
#define CHATML_LOOP(role, content, newline)                                                        \
    "{% for message in messages %}{{'<|im_start|>' + " role " + " newline " + " content            \
    " + '<|im_end|>' + " newline "}}{% endfor %}"                                                  \
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"

static void templates_that_are_known(void **state)
{
    (void)state;
    const char *chatml =
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi! <|im_end|>\n"
        "<|im_start|>assistant\nYes?<|im_end|>\n<|im_start|>user\nBye.<|im_end|>\n"
        "<|im_start|>assistant\n";

    writes(CHATML_LOOP("message['role']", "message['content']", "'\\n'"), chatml, HL_CHAT_CHATML,
           true);
    writes(CHATML_LOOP("message[\"role\"]", "message[ 'content' ]", "\"\\n\"") "\n", chatml,
           HL_CHAT_CHATML, true);
    writes(CHATML_LOOP("message.role", "message.content", "'\n'"), chatml, HL_CHAT_CHATML, true);
    writes(
        "{{ bos_token }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + "
        "'<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
        "{%if add_generation_prompt%}{{'<|start_header_id|>assistant<|end_header_id|>\\n\\n'}}"
        "{% endif %}",
        "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHi!<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nYes?<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nBye.<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        HL_CHAT_LLAMA3, true);
    /* Changes that affect the text make the template unknown: trimmed contents, a space, another
     * condition. */
    writes(CHATML_LOOP("message['role']", "message['content'] | trim", "'\\n'"), chatml,
           HL_CHAT_CHATML, false);
    writes(CHATML_LOOP("message['role']", "message['content']", "' \\n'"), chatml, HL_CHAT_CHATML,
           false);
    writes(" " CHATML_LOOP("message['role']", "message['content']", "'\\n'"), chatml,
           HL_CHAT_CHATML, false);
    writes("{% if messages %}x{% endif %}" CHATML_LOOP("message['role']", "message['content']",
                                                       "'\\n'"),
           chatml, HL_CHAT_CHATML, false);
}

/* ------------------------------------------------------- templates of real models */

static int n_warnings;

static void count_warning(void *context, hl_log_level level, const char *message)
{
    (void)context;
    n_warnings += level == HL_LOG_WARNING && strstr(message, "chat template") != NULL;
}

/* Returns whether a conversation has only texts of the three roles and no other options. */
static bool can_be_written(const json_t *conversation, hl_chat_message *messages, size_t *n)
{
    const json_t *list = json_object_get(conversation, "messages");
    size_t        index;
    json_t       *message;

    *n = 0;
    if (json_object_size(json_object_get(conversation, "options")) > 0 ||
        json_object_get(conversation, "tools") != NULL || json_array_size(list) > 16)
        return false;
    json_array_foreach(list, index, message) {
        const char *role    = json_string_value(json_object_get(message, "role"));
        const char *content = json_string_value(json_object_get(message, "content"));
        if (json_object_size(message) != 2 || role == NULL || content == NULL ||
            (strcmp(role, "system") != 0 && strcmp(role, "user") != 0 &&
             strcmp(role, "assistant") != 0))
            return false;
        messages[(*n)++] = (hl_chat_message){ role, content };
    }
    return true;
}

/* Checks that a known template gives the text of Jinja2, and that others get a warning; returns
 * whether it is known. */
static bool check_template(const char *name, const char *template, const json_t *conversations)
{
    hl_tokenizer   *tokenizer = with_template(template);
    hl_chat_message messages[16];
    bool            known     = false;
    size_t          n_written = 0, n = 0, index;
    json_t         *conversation;

    (void)hl_tokenizer_chat_format(tokenizer, &known);
    json_array_foreach(conversations, index, conversation) {
        hl_chat        *chat    = NULL;
        hl_chat_options options = { .no_prompt = !json_is_true(
                                        json_object_get(conversation, "add_generation_prompt")) };
        const char     *wanted  = json_string_value(json_object_get(conversation, "text"));
        if (!can_be_written(conversation, messages, &n))
            continue;
        n_warnings = 0;
        assert_ok(hl_chat_render(&chat, tokenizer, messages, n, &options));
        assert_int_equal(chat->known, known);
        assert_int_equal(n_warnings, known ? 0 : 1);
        if (known && (wanted == NULL || strcmp(chat->text, wanted) != 0))
            fail_msg("%s, conversation %zu: '%s', wanted '%s'", name, index, chat->text,
                     wanted != NULL ? wanted : "an error");
        hl_chat_free(chat);
        n_written++;
    }
    assert_true(n_written >= 8);
    hl_tokenizer_close(tokenizer);
    return known;
}

static void known_means_the_same_text(void **state)
{
    (void)state;
    const char    *folder = shared_path("golden/templates");
    DIR           *list   = opendir(folder);
    int            n_seen = 0, n_known = 0;
    struct dirent *entry;

    assert_non_null(list);
    hl_log_set(count_warning, NULL, HL_LOG_WARNING);
    while ((entry = readdir(list)) != NULL) {
        char   path[1024];
        size_t length         = strlen(entry->d_name);
        hl_file template      = { 0 };
        json_t *conversations = NULL;
        if (length < 7 || strcmp(entry->d_name + length - 6, ".jinja") != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        assert_ok(hl_file_map(&template, path));
        snprintf(path, sizeof path, "%s/%.*s.json", folder, (int)length - 6, entry->d_name);
        conversations = json_load_file(path, 0, NULL);
        assert_non_null(conversations);
        char *text = NULL;
        assert_ok(hl_strndup(&text, (const char *)template.bytes, template.n_bytes));
        n_known += check_template(entry->d_name, text, conversations);
        n_seen++;
        hl_free(text);
        hl_file_unmap(&template);
        json_decref(conversations);
    }
    hl_log_set(NULL, NULL, HL_LOG_WARNING);
    closedir(list);
    assert_true(n_seen >= 51);
    assert_true(n_known >= 4);
}

static void unknown_templates_say_so(void **state)
{
    (void)state;
    const char *plain = "system: Be brief.\nuser:  Hi! \nassistant: Yes?\nuser: Bye.\nassistant: ";
    writes(NULL, plain, HL_CHAT_PLAIN, true);
    writes("### Instruction: {{x}}", plain, HL_CHAT_PLAIN, false);
    writes("<|im_start|>{{role}}<|im_sep|>{{content}}<|im_end|>", plain, HL_CHAT_PLAIN, false);
    writes("[INST] <<SYS>>{{system}}<</SYS>> [/INST]", plain, HL_CHAT_PLAIN, false);
}

static void options_are_obeyed(void **state)
{
    (void)state;
    hl_tokenizer   *tokenizer = with_template(NULL);
    hl_chat        *chat      = NULL;
    hl_chat_options options   = { .format = HL_CHAT_CHATML, .no_prompt = true };

    assert_ok(hl_chat_render(&chat, tokenizer, talk + 3, 1, &options));
    assert_string_equal(chat->text, "<|im_start|>user\nBye.<|im_end|>\n");
    hl_chat_free(chat);
    assert_ok(hl_chat_render(&chat, tokenizer, NULL, 0, &options));
    assert_string_equal(chat->text, "");
    hl_chat_free(chat);
    options.format = (hl_chat_format)99;
    assert_fails(HL_BAD_ARGUMENT, "no chat format 99",
                 hl_chat_render(&chat, tokenizer, talk, 4, &options));
    assert_string_equal(hl_chat_format_name(HL_CHAT_GEMMA), "gemma");
    hl_tokenizer_close(tokenizer);
}

/* Qwen's templates have a system message that is used if the chat has none. */
static void standard_system_messages(void **state)
{
    (void)state;
    hl_tokenizer *tokenizer = with_template(
        "{{- '<|im_start|>system\\n' }}{{- '<|im_start|>system\\nYou are Q.<|im_end|>\\n' }}");
    hl_chat *chat = NULL;

    assert_ok(hl_chat_render(&chat, tokenizer, talk + 3, 1, NULL));
    assert_string_equal(chat->text, "<|im_start|>system\nYou are Q.<|im_end|>\n"
                                    "<|im_start|>user\nBye.<|im_end|>\n<|im_start|>assistant\n");
    hl_chat_free(chat);
    hl_tokenizer_close(tokenizer);
}

static void tokens_have_roles(void **state)
{
    (void)state;
    hl_tokenizer   *tokenizer  = with_template("<|im_start|><|im_end|>");
    hl_chat        *chat       = NULL;
    hl_encoding    *encoding   = NULL;
    hl_chat_message messages[] = { { "system", "S" }, { "user", "a<|im_end|>" } };
    hl_chat_options options    = { .no_prompt = true };

    assert_ok(hl_chat_render(&chat, tokenizer, messages, 2, &options));
    assert_ok(hl_chat_encode(&encoding, tokenizer, chat, NULL));
    size_t n_special = 0, n_user = 0, n_system = 0;
    for (size_t i = 0; i < encoding->n_tokens; i++) {
        n_special += encoding->types[i] == HL_TOKEN_SPECIAL;
        n_user += encoding->roles[i] == HL_ROLE_USER;
        n_system += encoding->roles[i] == HL_ROLE_SYSTEM;
        if (encoding->types[i] == HL_TOKEN_SPECIAL)
            assert_int_equal(encoding->roles[i], HL_ROLE_TEMPLATE);
    }
    assert_int_equal(n_special, 4); /* not five: the marker in the user's text is ordinary text */
    assert_int_equal(n_system, 1);
    assert_int_equal(n_user, strlen("a<|im_end|>"));
    assert_int_equal(encoding->ids[0], 302);
    hl_encoding_free(encoding);
    hl_chat_free(chat);
    hl_tokenizer_close(tokenizer);
}

/* The real templates of two families. */
static void real_templates(void **state)
{
    (void)state;
    hl_tokenizer *tokenizer = open_tokenizer(shared_path("tokenizers/qwen2_5"));
    hl_chat      *chat      = NULL;
    bool          known     = false;

    assert_int_equal(hl_tokenizer_chat_format(tokenizer, &known), HL_CHAT_CHATML);
    assert_true(known);
    assert_ok(hl_chat_render(&chat, tokenizer, talk + 3, 1, NULL));
    assert_string_equal(chat->text,
                        "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a "
                        "helpful assistant.<|im_end|>\n<|im_start|>user\nBye.<|im_end|>\n"
                        "<|im_start|>assistant\n");
    hl_chat_free(chat);
    hl_tokenizer_close(tokenizer);

    tokenizer = open_tokenizer(shared_path("tokenizers/llama3_2"));
    assert_int_equal(hl_tokenizer_chat_format(tokenizer, &known), HL_CHAT_LLAMA3);
    assert_ok(hl_chat_render(&chat, tokenizer, talk, 2, NULL));
    assert_string_equal(chat->text,
                        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting "
                        "Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\nBe brief."
                        "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi!<|eot_id|>"
                        "<|start_header_id|>assistant<|end_header_id|>\n\n");
    hl_chat_free(chat);
    hl_tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats_by_their_markers),  cmocka_unit_test(templates_that_are_known),
        cmocka_unit_test(known_means_the_same_text), cmocka_unit_test(unknown_templates_say_so),
        cmocka_unit_test(options_are_obeyed),        cmocka_unit_test(standard_system_messages),
        cmocka_unit_test(tokens_have_roles),         cmocka_unit_test(real_templates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
