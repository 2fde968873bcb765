/* fuzz_serve.c - arbitrary bytes as a request's body and as its headers.
 *
 * A body is refused with a message and a status, or its options are in range and its token ids are
 * the model's.  Foreign host names are never allowed. */
#define _GNU_SOURCE /* strcasestr */
#include <string.h>
#include <strings.h>

#include "fuzz.h"
#include "serve/server.h"
#include "serve/texts.h"
#include "serve/wire.h"

static void read_ids(const json_t *prompt, const hl_model *model)
{
    hl_served_prompts prompts = { 0 };

    if (json_array_size(prompt) > 0 && !json_is_string(json_array_get(prompt, 0)) &&
        hl_served_prompts_read(&prompts, prompt, false, &(hl_prompt_reader){ .model = model }) ==
            HL_OK) {
        for (int64_t i = 0; i < prompts.count; i++) {
            for (int64_t token = 0; token < prompts.items[i].n_tokens; token++)
                PROMISE(prompts.items[i].tokens[token] >= 0 &&
                        prompts.items[i].tokens[token] < hl_model_get_info(model)->d_vocab);
        }
    }
    hl_served_prompts_release(&prompts);
}

/* Returns true if an array contains a text, which would need a tokenizer. */
static bool has_text(const json_t *value)
{
    size_t        index;
    const json_t *item;

    json_array_foreach(value, index, item) {
        if (json_is_string(item))
            return true;
    }
    return json_is_string(value);
}

static void read_body(const json_t *root, bool is_chat, const hl_model *model)
{
    hl_wire_context context = { .model = model, .model_name = "m" };
    hl_wire_request request;
    hl_wire_fault   fault;

    if (hl_wire_read(&request, &fault, root, is_chat, &context) != HL_OK) {
        PROMISE(fault.status >= 400 && fault.status < 500 && hl_error_message()[0] != '\0');
    } else {
        PROMISE(request.n >= 1 && request.n <= HL_WIRE_MAX_CHOICES);
        PROMISE(request.sample.temperature >= 0.0 && request.sample.temperature <= 2.0);
        PROMISE(request.n_stops <= HL_WIRE_MAX_STOPS && request.n_top <= HL_WIRE_MAX_TOP);
        PROMISE(request.patterns == NULL || request.patterns->n_heads <= HL_JOB_MAX_PATTERNS);
        if (!is_chat && !has_text(request.prompt))
            read_ids(request.prompt, model);
    }
    hl_wire_request_release(&request);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    static hl_model         *model; /* opened once */
    static const char *const names[] = { "lamp.example" };
    const hl_host_rules      rules   = { .bound = "127.0.0.1", .names = names, .n_names = 1 };
    const hl_host_rules      any     = { .bound = "0.0.0.0", .any_address = true };
    json_t                  *root    = NULL;
    char                    *text    = malloc(n_bytes + 1);

    PROMISE(text != NULL);
    if (model == NULL)
        PROMISE(hl_model_open(&model, "tests/data/families/llama3") == HL_OK);
    memcpy(text, bytes, n_bytes);
    text[n_bytes] = '\0';
    if (hl_host_is_allowed(&rules, text))
        PROMISE(strncasecmp(text, "localhost", 9) == 0 || strncmp(text, "127.", 4) == 0 ||
                text[0] == '[' || strncasecmp(text, names[0], strlen(names[0])) == 0);
    (void)hl_host_is_allowed(&any, text);
    (void)hl_address_is_loopback(text);
    PROMISE(!hl_origin_is_allowed(text, "localhost:7700") ||
            strcasestr(text, "localhost:7700") != NULL);
    PROMISE(!hl_token_is_right(text, "a token that nobody can guess") || n_bytes > 30);
    if (hl_json_parse(&root, text, n_bytes, "fuzz") == HL_OK) {
        read_body(root, false, model);
        read_body(root, true, model);
    }
    json_decref(root);
    free(text);
    return 0;
}
