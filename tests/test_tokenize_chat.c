/* test_tokenize_chat.c - chats: templates run, built-in formats, tokens by role. */
#include "tokenize_support.h"

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

/* Checks a chat's text, and that its parts are adjacent and cover it. */
static void check_chat(const hl_chat *chat, const char *wanted, hl_chat_format format)
{
    size_t covered = 0;

    assert_string_equal(chat->text, wanted);
    assert_int_equal(chat->n_bytes, strlen(wanted));
    assert_int_equal(chat->format, format);
    for (size_t i = 0; i < chat->n_parts; i++) {
        assert_int_equal(chat->parts[i].span.begin, covered);
        covered = chat->parts[i].span.end;
    }
    assert_int_equal(covered, chat->n_bytes);
}

static void writes(const char *template, hl_chat_format format, const char *wanted)
{
    hl_tokenizer   *tokenizer = with_template(template);
    hl_chat_options options   = { .format = format };
    hl_chat        *chat      = NULL;

    assert_ok(hl_chat_render(&chat, tokenizer, talk, 4, &options));
    check_chat(chat, wanted, template != NULL ? HL_CHAT_TEMPLATE : format);
    hl_chat_free(chat);
    hl_tokenizer_close(tokenizer);
}

/* A template is run; the built-in formats are for tokenizers without one. */
static void templates_are_run(void **state)
{
    (void)state;
    writes(
        "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{{ eos_token }}"
        "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}",
        HL_CHAT_AUTO,
        "<s><system>Be brief.</s><user>Hi!</s><assistant>Yes?</s><user>Bye.</s><assistant>");
    hl_tokenizer *tokenizer = with_template("{{ raise_exception('only one message') }}");
    hl_chat      *chat      = NULL;
    assert_int_equal(hl_tokenizer_chat_format(tokenizer), HL_CHAT_TEMPLATE);
    assert_string_equal(hl_chat_format_name(HL_CHAT_TEMPLATE), "template");
    assert_fails(HL_BAD_INPUT, "chat template, line 1: TemplateError: only one message",
                 hl_chat_render(&chat, tokenizer, talk, 4, NULL));
    assert_null(chat);
    hl_tokenizer_close(tokenizer);
}

/* A tokenizer opens with a template that cannot be parsed; chats fail. */
static void templates_that_cannot_be_run(void **state)
{
    (void)state;
    hl_tokenizer *tokenizer = with_template("a\n{% if %}");
    hl_chat      *chat      = NULL;

    assert_string_equal(hl_tokenizer_chat_template(tokenizer), "a\n{% if %}");
    assert_fails(HL_BAD_INPUT, "line 2: TemplateSyntaxError",
                 hl_chat_render(&chat, tokenizer, talk, 4, NULL));
    assert_ok(hl_tokenizer_set_chat_template(tokenizer, "b"));
    assert_ok(hl_chat_render(&chat, tokenizer, talk, 4, NULL));
    check_chat(chat, "b", HL_CHAT_TEMPLATE);
    hl_chat_free(chat);
    hl_tokenizer_close(tokenizer);
}

static void built_in_formats(void **state)
{
    (void)state;
    writes(NULL, HL_CHAT_PLAIN,
           "system: Be brief.\nuser:  Hi! \nassistant: Yes?\nuser: Bye.\nassistant: ");
    writes(NULL, HL_CHAT_CHATML,
           "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi! <|im_end|>\n"
           "<|im_start|>assistant\nYes?<|im_end|>\n<|im_start|>user\nBye.<|im_end|>\n"
           "<|im_start|>assistant\n");
    writes(NULL, HL_CHAT_LLAMA3,
           "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
           "<|start_header_id|>user<|end_header_id|>\n\nHi!<|eot_id|>"
           "<|start_header_id|>assistant<|end_header_id|>\n\nYes?<|eot_id|>"
           "<|start_header_id|>user<|end_header_id|>\n\nBye.<|eot_id|>"
           "<|start_header_id|>assistant<|end_header_id|>\n\n");
    writes(NULL, HL_CHAT_GEMMA,
           "<start_of_turn>user\nBe brief.\n\nHi!<end_of_turn>\n<start_of_turn>model\nYes?"
           "<end_of_turn>\n<start_of_turn>user\nBye.<end_of_turn>\n<start_of_turn>model\n");
    writes(NULL, HL_CHAT_MISTRAL, "[INST] Be brief.\n\n Hi!  [/INST]Yes?</s>[INST] Bye. [/INST]");
    writes(NULL, HL_CHAT_PHI3,
           "<|system|>\nBe brief.<|end|>\n<|user|>\n Hi! <|end|>\n<|assistant|>\nYes?<|end|>\n"
           "<|user|>\nBye.<|end|>\n<|assistant|>\n");
}

/* Messages as JSON: all members reach the template, and so do the variables. */
static void messages_as_json(void **state)
{
    (void)state;
    static const char json[] =
        "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]},"
        "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"name\":\"f\"}]},"
        "{\"role\":\"tool\",\"content\":\"5\"}]";
    hl_tokenizer *tokenizer =
        with_template("{{ messages[0].content[0].text }}|{{ messages[1].content }}|"
                      "{{ messages[1].tool_calls | tojson }}|{{ messages[2].content }}|{{ tools }}|"
                      "{{ strftime_now('%Y') }}{{ add_generation_prompt }}");
    hl_chat_options options = { .variables = "{\"tools\":[\"g\"]}",
                                .now       = 1784021400,
                                .no_prompt = true };
    hl_chat        *chat    = NULL;

    assert_ok(hl_chat_render_json(&chat, tokenizer, json, strlen(json), &options));
    check_chat(chat, "a|None|[{\"name\": \"f\"}]|5|['g']|2026False", HL_CHAT_TEMPLATE);
    assert_int_equal(chat->parts[0].role, HL_ROLE_USER);
    hl_chat_free(chat);
    assert_fails(HL_BAD_INPUT, "wanted an array",
                 hl_chat_render_json(&chat, tokenizer, "{}", 2, NULL));
    assert_fails(HL_BAD_INPUT, "messages[0] is",
                 hl_chat_render_json(&chat, tokenizer, "[5]", 3, NULL));
    options.variables = "[]";
    assert_fails(HL_BAD_INPUT, "variables are",
                 hl_chat_render_json(&chat, tokenizer, "[]", 2, &options));
    hl_tokenizer_close(tokenizer);
}

static void options_are_obeyed(void **state)
{
    (void)state;
    hl_tokenizer   *tokenizer = with_template(NULL);
    hl_chat        *chat      = NULL;
    hl_chat_options options   = { .format = HL_CHAT_CHATML, .no_prompt = true };

    assert_int_equal(hl_tokenizer_chat_format(tokenizer), HL_CHAT_PLAIN);
    assert_ok(hl_chat_render(&chat, tokenizer, talk + 3, 1, &options));
    assert_string_equal(chat->text, "<|im_start|>user\nBye.<|im_end|>\n");
    hl_chat_free(chat);
    assert_ok(hl_chat_render(&chat, tokenizer, NULL, 0, &options));
    assert_string_equal(chat->text, "");
    hl_chat_free(chat);
    options.format = (hl_chat_format)99;
    assert_fails(HL_BAD_ARGUMENT, "no chat format 99",
                 hl_chat_render(&chat, tokenizer, talk, 4, &options));
    options.format = HL_CHAT_TEMPLATE;
    assert_fails(HL_BAD_INPUT, "there is no chat template",
                 hl_chat_render(&chat, tokenizer, talk, 4, &options));
    assert_string_equal(hl_chat_format_name(HL_CHAT_GEMMA), "gemma");
    hl_tokenizer_close(tokenizer);
}

static void tokens_have_roles(void **state)
{
    (void)state;
    hl_tokenizer *tokenizer = with_template(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}");
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

/* The templates of two families, as their tokenizers have them. */
static void real_templates(void **state)
{
    (void)state;
    hl_tokenizer   *tokenizer = open_tokenizer(shared_path("tokenizers/qwen2_5"));
    hl_chat        *chat      = NULL;
    hl_chat_options options   = { .now = 1784021400 };

    assert_ok(hl_chat_render(&chat, tokenizer, talk + 3, 1, NULL));
    assert_string_equal(chat->text,
                        "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a "
                        "helpful assistant.<|im_end|>\n<|im_start|>user\nBye.<|im_end|>\n"
                        "<|im_start|>assistant\n");
    hl_chat_free(chat);
    hl_tokenizer_close(tokenizer);

    tokenizer = open_tokenizer(shared_path("tokenizers/llama3_2"));
    assert_ok(hl_chat_render(&chat, tokenizer, talk, 2, &options));
    assert_non_null(strstr(chat->text, "Be brief.<|eot_id|><|start_header_id|>user<|end_header_id|>"
                                       "\n\nHi!<|eot_id|><|start_header_id|>assistant"));
    hl_chat_free(chat);
    hl_tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_are_run),  cmocka_unit_test(templates_that_cannot_be_run),
        cmocka_unit_test(built_in_formats),   cmocka_unit_test(messages_as_json),
        cmocka_unit_test(options_are_obeyed), cmocka_unit_test(tokens_have_roles),
        cmocka_unit_test(real_templates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
