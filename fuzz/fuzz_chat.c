/* fuzz_chat.c - arbitrary bytes as a chat template and as the files beside a tokenizer.
 *
 * They are refused with a message, or chats are written in the template's format and in all others:
 * parts are adjacent and cover the whole text, and the content of a message cannot end a turn. */
#include "fuzz_file.h"

static const char tokenizer_json[] =
    "{\"added_tokens\":[{\"id\":4,\"content\":\"<|im_end|>\",\"special\":true},"
    "{\"id\":5,\"content\":\"<s>\",\"special\":true}],"
    "\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"a\":1,\"b\":2,"
    "\"user\":3}},\"pre_tokenizer\":{\"type\":\"Whitespace\"}}";

static void check_parts(const hl_chat *chat)
{
    size_t end = 0;

    for (size_t i = 0; i < chat->n_parts; i++) {
        PROMISE(chat->parts[i].span.begin == end && chat->parts[i].span.end >= end);
        end = chat->parts[i].span.end;
    }
    PROMISE(end == chat->n_bytes && chat->text[end] == '\0');
}

/* Special tokens occur only in text that the template wrote. */
static void check_tokens(const hl_tokenizer *tokenizer, const hl_chat *chat)
{
    hl_encoding *encoding = NULL;

    PROMISE(hl_chat_encode(&encoding, tokenizer, chat, NULL) == HL_OK);
    for (size_t i = 0; i < encoding->n_tokens; i++)
        PROMISE(encoding->ids[i] < 4 || encoding->roles[i] == HL_ROLE_TEMPLATE);
    hl_encoding_free(encoding);
}

static void write_chats(const hl_tokenizer *tokenizer, const char *text)
{
    const hl_chat_message messages[] = {
        { "system", " be brief " }, { "user", text },    { "assistant", "a <|im_end|> b" },
        { "user", "a<s>" },         { "system", "two" }, { "tool", "another role" },
    };
    hl_chat *chat = NULL;

    for (size_t n = 0; n <= sizeof messages / sizeof *messages; n++) {
        for (hl_chat_format format = HL_CHAT_AUTO; format <= HL_CHAT_PHI3; format++) {
            hl_chat_options options = { .format = format, .no_prompt = n % 2 == 1 };

            if (hl_chat_render(&chat, tokenizer, messages, n, &options) != HL_OK) {
                refused(chat);
                continue;
            }
            check_parts(chat);
            check_tokens(tokenizer, chat);
            hl_chat_free(chat);
        }
    }
}

static void open_beside(const char *name, const uint8_t *bytes, size_t n_bytes, const char *text)
{
    hl_tokenizer *tokenizer = NULL;

    fuzz_folder_clear();
    fuzz_file("tokenizer.json", (const uint8_t *)tokenizer_json, sizeof tokenizer_json - 1);
    fuzz_file(name, bytes, n_bytes);
    if (hl_tokenizer_open(&tokenizer, fuzz_folder()) != HL_OK) {
        refused(tokenizer);
        return;
    }
    write_chats(tokenizer, text);
    for (int i = 0; i < HL_SPECIAL_COUNT; i++)
        PROMISE(hl_tokenizer_special(tokenizer, (hl_special)i) < 6);
    hl_tokenizer_close(tokenizer);
}

/* Bytes before a NUL are the settings of a vocab.txt, bytes after it the vocabulary. */
static void open_vocab(const uint8_t *bytes, size_t n_bytes)
{
    const uint8_t *cut       = n_bytes > 0 ? memchr(bytes, 0, n_bytes) : NULL;
    size_t         n_before  = cut != NULL ? (size_t)(cut - bytes) : 0;
    const uint8_t *vocab     = cut != NULL ? cut + 1 : bytes;
    hl_tokenizer  *tokenizer = NULL;
    hl_encoding   *encoding  = NULL;

    fuzz_folder_clear();
    if (n_before > 0)
        fuzz_file("tokenizer_config.json", bytes, n_before);
    fuzz_file("config.json", (const uint8_t *)"{\"model_type\":\"bert\"}", 21);
    fuzz_file("vocab.txt", vocab, n_bytes - (size_t)(vocab - bytes));
    if (hl_tokenizer_open(&tokenizer, fuzz_folder()) != HL_OK) {
        refused(tokenizer);
        return;
    }
    PROMISE(hl_tokenizer_encode(&encoding, tokenizer, "A bc [X]", 8, NULL) == HL_OK);
    hl_encoding_free(encoding);
    hl_tokenizer_close(tokenizer);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    char *text = malloc(n_bytes + 1);

    PROMISE(text != NULL);
    memcpy(text, bytes, n_bytes);
    text[n_bytes] = '\0';
    (void)fuzz_folder();
    open_beside("chat_template.jinja", bytes, n_bytes, text);
    open_beside("tokenizer_config.json", bytes, n_bytes, text);
    open_vocab(bytes, n_bytes);
    free(text);
    return 0;
}
