/* prompt.c - turns a prompt from an argument, a file or standard input into tokens. */
#include "prompt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "held.h"

static int read_text(hl_opened_prompt *out, const hl_prompt_source *source)
{
    if (source->text != NULL) {
        out->text    = source->text;
        out->n_bytes = strlen(source->text);
        return HL_EXIT_OK;
    }
    hl_input *input = &out->input;
    int code = hl_input_read(input, source->file != NULL ? source->file : "-", source->command);
    if (input->n_bytes > 0 && input->bytes[input->n_bytes - 1] == '\n')
        input->bytes[--input->n_bytes] = '\0';
    out->text    = input->bytes;
    out->n_bytes = input->n_bytes;
    return code;
}

/* -------------------------------------------------------------------- text to tokens */

static hl_status encode_chat(hl_opened_prompt *out, const hl_prompt_source *source)
{
    HL_HELD(hl_chat_free) hl_chat *chat = NULL;
    hl_chat_message messages[2]         = { { "system", source->system }, { "user", out->text } };
    size_t          first               = source->system != NULL ? 0 : 1;

    HL_NEED(hl_chat_render(&chat, out->tokenizer, messages + first, 2 - first, NULL));
    if (chat->format != HL_CHAT_TEMPLATE && !source->quiet)
        hl_complain(source->command, "this model has no chat template; messages are plain lines");
    out->chat_format = chat->format;
    return hl_chat_encode(&out->encoding, out->tokenizer, chat, NULL);
}

/* The check is needed since the tokenizer may be another model's. */
int hl_check_encoding(const hl_encoding *encoding, const hl_model *model, const char *tokenizer,
                      const char *command)
{
    const hl_model_info *info = hl_model_get_info(model);

    for (size_t i = 0; i < encoding->n_tokens; i++) {
        if (encoding->ids[i] >= 0 && encoding->ids[i] < info->d_vocab)
            continue;
        return hl_give_up(HL_EXIT_INPUT, command,
                          "%s: the tokenizer gives id %lld, but the model has only %lld tokens: "
                          "this is the tokenizer of another model",
                          tokenizer != NULL ? tokenizer : info->tokenizer_path,
                          (long long)encoding->ids[i], (long long)info->d_vocab);
    }
    return HL_EXIT_OK;
}

/* An empty prompt becomes the token that begins texts. */
static int keep_tokens(hl_opened_prompt *out, const hl_prompt_source *source)
{
    int64_t begin = hl_model_get_info(out->model)->bos_id;

    out->n_tokens = (int64_t)out->encoding->n_tokens;
    out->tokens   = out->encoding->ids;
    if (out->n_tokens > 0)
        return HL_EXIT_OK;
    if (begin < 0)
        return hl_give_up(
            HL_EXIT_INPUT, source->command,
            "the prompt is empty, and the model has no token to begin a text with; give a prompt");
    out->given = malloc(sizeof *out->given);
    if (out->given == NULL)
        return hl_finish(source->command, HL_NO_MEMORY);
    out->given[0] = begin;
    out->tokens   = out->given;
    out->n_tokens = 1;
    out->begins   = true;
    return HL_EXIT_OK;
}

static int encode(hl_opened_prompt *out, const hl_prompt_source *source)
{
    hl_encode_options options      = { .add_special = true };
    bool              has_template = hl_tokenizer_chat_template(out->tokenizer) != NULL;

    out->is_chat = source->chat || (source->chat_if && has_template);
    if (source->system != NULL && !out->is_chat)
        return hl_give_up(HL_EXIT_USAGE, source->command,
                          "--system needs --chat: the model has no chat template");
    HL_CALL(source->command, out->is_chat ? encode_chat(out, source)
                                          : hl_tokenizer_encode(&out->encoding, out->tokenizer,
                                                                out->text, out->n_bytes, &options));
    HL_PASS(hl_check_encoding(out->encoding, out->model, source->tokenizer, source->command));
    return keep_tokens(out, source);
}

/* Parses numbers with spaces or commas between them. */
static int parse_ids(hl_opened_prompt *out, const hl_prompt_source *source)
{
    const char *at    = out->text;
    int64_t     n_ids = hl_model_get_info(out->model)->d_vocab;

    out->given  = malloc((out->n_bytes / 2 + 1) * sizeof *out->given);
    out->tokens = out->given;
    if (out->given == NULL)
        return hl_finish(source->command, HL_NO_MEMORY);
    while (*(at += strspn(at, " ,\t\r\n")) != '\0') {
        char *end    = NULL;
        errno        = 0;
        long long id = strtoll(at, &end, 10);
        if (end == at || errno != 0 || id < 0 || strchr(" ,\t\r\n", *end) == NULL)
            return hl_give_up(
                HL_EXIT_INPUT, source->command,
                "'%.12s' is not a token id: give whole numbers, separated by spaces or commas", at);
        if (id >= n_ids)
            return hl_give_up(HL_EXIT_INPUT, source->command,
                              "%s: token %lld has the id %lld; the model's ids are 0 to %lld",
                              source->text != NULL   ? "the prompt"
                              : source->file != NULL ? source->file
                                                     : "standard input",
                              (long long)out->n_tokens, id, (long long)n_ids - 1);
        out->given[out->n_tokens++] = id;
        at                          = end;
    }
    if (out->n_tokens == 0)
        return hl_give_up(HL_EXIT_INPUT, source->command, "no token ids given");
    return HL_EXIT_OK;
}

/* A prompt of ids needs no tokenizer, if the model has none. */
static int open_tokenizer(hl_opened_prompt *out, const hl_prompt_source *source)
{
    const char *own = hl_model_get_info(out->model)->tokenizer_path;

    if (source->ids && source->tokenizer == NULL &&
        hl_tokenizer_open(&out->tokenizer, own) == HL_NOT_FOUND)
        return HL_EXIT_OK;
    return out->tokenizer != NULL ? HL_EXIT_OK
                                  : hl_tokenizer_needed(&out->tokenizer, out->model,
                                                        source->tokenizer, source->command);
}

int hl_opened_prompt_open(hl_opened_prompt *out, const hl_prompt_source *source)
{
    HL_CALL(source->command, hl_model_options_open(&out->model, source->model, source->device,
                                                   &source->gates, source->command, source->quiet));
    if (source->writes)
        HL_PASS(hl_model_must_write(out->model, source->model, source->command));
    HL_PASS(open_tokenizer(out, source));
    HL_PASS(read_text(out, source));
    return source->ids ? parse_ids(out, source) : encode(out, source);
}

void hl_opened_prompt_close(hl_opened_prompt *prompt)
{
    free(prompt->given);
    hl_encoding_free(prompt->encoding);
    hl_tokenizer_close(prompt->tokenizer);
    hl_model_close(prompt->model);
    hl_input_free(&prompt->input);
    *prompt = (hl_opened_prompt){ 0 };
}

hl_prompt hl_opened_prompt_view(const hl_opened_prompt *prompt)
{
    bool has_roles = prompt->encoding != NULL && !prompt->begins;

    return (hl_prompt){ .tokens    = prompt->tokens,
                        .n_tokens  = prompt->n_tokens,
                        .roles     = has_roles ? prompt->encoding->roles : NULL,
                        .tokenizer = prompt->tokenizer };
}

uint8_t *hl_opened_prompt_kinds(const hl_opened_prompt *prompt)
{
    const hl_encoding *encoding = prompt->encoding;
    uint8_t           *kinds    = malloc((size_t)prompt->n_tokens);

    for (int64_t i = 0; kinds != NULL && i < prompt->n_tokens; i++) {
        bool made    = i >= (int64_t)encoding->n_tokens; /* the token was added to an empty
                                                          * prompt */
        bool special = made || encoding->types[i] == HL_TOKEN_SPECIAL ||
                       (encoding->roles != NULL && encoding->roles[i] == (uint8_t)HL_ROLE_TEMPLATE);
        kinds[i] = special ? HL_KIND_SPECIAL : HL_KIND_PROMPT;
    }
    return kinds;
}
