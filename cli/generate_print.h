/* generate_print.h - what `headlight generate` shows: text as it comes, or one object. */
#ifndef HL_CLI_GENERATE_PRINT_H
#define HL_CLI_GENERATE_PRINT_H

#include <jansson.h>

#include "headlight.h"

/* What was made, and how long it took. */
typedef struct hl_generate_result {
    int64_t     n_prompt;
    int64_t     n_tokens;
    int64_t     n_ctx;
    double      prompt_seconds;
    double      seconds; /* of all tokens; the first needs no pass of its own */
    hl_stop     stop;
    json_t     *tokens; /* an array, or NULL */
    json_t     *events; /* what a watch did, or NULL; borrowed */
    char       *text;   /* all that was shown, for JSON */
    size_t      n_text;
    size_t      text_capacity;
    const char *chat_format; /* of the prompt's turn; NULL: it is continued as it is */
    bool        chat_known;
} hl_generate_result;

/* To standard output, at once.  On a terminal control characters are spelled out: a model
 * must not move the cursor. */
void hl_generate_show(const char *text, size_t n_bytes);
/* The prompt, before the text, where somebody watches. */
void hl_generate_show_prompt(const char *text, size_t n_bytes);

/* Appends to result->text and result->tokens; false when memory is out. */
bool hl_generate_keep_text(hl_generate_result *result, const char *text, size_t n_bytes);
bool hl_generate_keep_token(hl_generate_result *result, const hl_generated *token, const char *text,
                            size_t n_bytes);
/* The spike score of the token that was kept last; null of NaN. */
bool hl_generate_keep_spike(hl_generate_result *result, double spike);

/* The object; false when memory is out. */
bool hl_generate_print_json(const hl_generate_result *result, const char *model, int64_t seed);
/* How fast it went, on standard error. */
void hl_generate_print_stats(const hl_generate_result *result);

#endif
