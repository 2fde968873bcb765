/* generate_print.c - text as it comes, one JSON object, and how fast it went. */
#include "generate_print.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "printable.h"
#include "terminal.h"
#include "values.h"

/* ----------------------------------------------------------------------- text */

void hl_generate_show(const char *text, size_t n_bytes)
{
    hl_put_text(stdout, text, n_bytes);
    fflush(stdout);
}

void hl_generate_show_prompt(const char *text, size_t n_bytes)
{
    hl_colours colours = hl_terminal_colours(stdout);

    if (isatty(STDOUT_FILENO) == 0)
        return;
    fputs(colours.dim, stdout);
    hl_generate_show(text, n_bytes);
    fputs(colours.plain, stdout);
    fflush(stdout);
}

/* ----------------------------------------------------------------------- JSON */

bool hl_generate_keep_text(hl_generate_result *result, const char *text, size_t n_bytes)
{
    if (result->text_capacity - result->n_text < n_bytes) {
        size_t capacity = 2 * result->text_capacity + n_bytes + 256;
        char  *grown    = realloc(result->text, capacity);
        if (grown == NULL)
            return false;
        result->text          = grown;
        result->text_capacity = capacity;
    }
    if (n_bytes > 0)
        memcpy(result->text + result->n_text, text, n_bytes);
    result->n_text += n_bytes;
    return true;
}

bool hl_generate_keep_token(hl_generate_result *result, const hl_generated *token, const char *text,
                            size_t n_bytes)
{
    json_t *object = json_pack("{s:I, s:o, s:f, s:f, s:f, s:f}", "id", (json_int_t)token->id,
                               "text", hl_value_text(text, n_bytes), "logprob", token->logprob,
                               "entropy", token->entropy, "varentropy", token->varentropy,
                               "attention_entropy", token->attention_entropy);

    return json_array_append_new(result->tokens, object) == 0;
}

bool hl_generate_keep_spike(hl_generate_result *result, double spike)
{
    json_t *last = json_array_get(result->tokens, json_array_size(result->tokens) - 1);

    return json_object_set_new(last, "spike", isnan(spike) ? json_null() : json_real(spike)) == 0;
}

/* Passes a second; null where there was none to time. */
static json_t *make_rate(int64_t n_passes, double seconds)
{
    return n_passes > 0 && seconds > 0.0 ? json_real((double)n_passes / seconds) : json_null();
}

bool hl_generate_print_json(const hl_generate_result *result, const char *model, int64_t seed)
{
    json_t *root = json_pack(
        "{s:o, s:I, s:o, s:O, s:I, s:I, s:I, s:s, s:f, s:f, s:o, s:o}", "model",
        hl_value_name(model), "seed", (json_int_t)seed, "text",
        hl_value_text(result->text, result->n_text), "tokens", result->tokens, "prompt_tokens",
        (json_int_t)result->n_prompt, "generated_tokens", (json_int_t)result->n_tokens, "context",
        (json_int_t)result->n_ctx, "stop", hl_stop_name(result->stop), "prompt_seconds",
        result->prompt_seconds, "generation_seconds", result->seconds, "prompt_tokens_per_second",
        make_rate(result->n_prompt, result->prompt_seconds), "tokens_per_second",
        make_rate(result->n_tokens - 1, result->seconds));
    json_t *chat = result->chat_format == NULL
                       ? json_null()
                       : json_pack("{s:s, s:b}", "format", result->chat_format, "known",
                                   (int)result->chat_known);
    json_object_set_new(root, "chat", chat);
    if (result->events != NULL && root != NULL)
        json_object_set(root, "events", result->events);
    bool good = hl_put_json(root, JSON_INDENT(1));

    printf("\n");
    json_decref(root);
    return good;
}

/* ---------------------------------------------------------------------- stats */

static void print_rate(const char *name, int64_t n_tokens, int64_t n_passes, double seconds)
{
    fprintf(stderr, "  %-10s %6lld token%s %8.3f s", name, (long long)n_tokens,
            n_tokens == 1 ? " " : "s", seconds);
    if (n_passes > 0 && seconds > 0.0)
        fprintf(stderr, " %10.1f tokens/s", (double)n_passes / seconds);
    fputc('\n', stderr);
}

void hl_generate_print_stats(const hl_generate_result *result)
{
    static const char *const reasons[] = { [HL_STOP_NONE]    = "",
                                           [HL_STOP_END]     = "the model",
                                           [HL_STOP_LENGTH]  = "--max-tokens",
                                           [HL_STOP_CONTEXT] = "a full context",
                                           [HL_STOP_WORD]    = "--stop",
                                           [HL_STOP_SPIKE]   = "--on-spike" };

    fputc('\n', stderr);
    print_rate("prompt", result->n_prompt, result->n_prompt, result->prompt_seconds);
    print_rate("generated", result->n_tokens, result->n_tokens - 1, result->seconds);
    fprintf(stderr, "  %-10s %s\n", "ended by", reasons[result->stop]);
}
