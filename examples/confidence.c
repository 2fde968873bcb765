/* confidence.c - a generated text, with the model's confidence in every token.
 *
 *     confidence MODEL PROMPT
 *
 * Prints one token per line: its probability, the entropy of the distribution over the vocabulary,
 * and the mean entropy of attention. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <headlight.h>

static hl_status show_token(const hl_tokenizer *tokenizer, const hl_generated *token)
{
    char     *text    = NULL;
    size_t    n_bytes = 0;
    hl_status status  = hl_tokenizer_decode(&text, &n_bytes, tokenizer, &token->id, 1, NULL);

    if (status == HL_OK)
        printf("%5.1f%%  %.2f nats  attention %.2f nats  |%.*s|\n", 100.0 * exp(token->logprob),
               token->entropy, token->attention_entropy, (int)strcspn(text, "\n"), text);
    hl_free(text);
    return status;
}

static hl_status write_text(hl_session *session, const hl_tokenizer *tokenizer, const char *prompt)
{
    hl_generate_options options   = { .max_tokens = 12 };
    hl_generator       *generator = NULL;
    hl_generated        token     = { 0 };
    hl_encoding        *encoding  = NULL;
    hl_status status = hl_tokenizer_encode(&encoding, tokenizer, prompt, strlen(prompt), NULL);

    if (status == HL_OK)
        status = hl_generator_open(&generator, session, &options);
    if (status == HL_OK)
        status = hl_generator_prompt(generator, encoding->ids, (int64_t)encoding->n_tokens);
    while (status == HL_OK && token.stop == HL_STOP_NONE) {
        status = hl_generator_next(&token, generator);
        if (status == HL_OK && token.stop != HL_STOP_END)
            status = show_token(tokenizer, &token);
    }
    hl_generator_close(generator);
    hl_encoding_free(encoding);
    return status;
}

int main(int argc, char **argv)
{
    hl_model          *model     = NULL;
    hl_tokenizer      *tokenizer = NULL;
    hl_session        *session   = NULL;
    hl_session_options options   = { .wants = HL_WANT_LAST_LOGITS };

    if (argc != 3) {
        fprintf(stderr, "usage: confidence MODEL PROMPT\n");
        return 2;
    }
    hl_status status = hl_model_open(&model, argv[1]);
    if (status == HL_OK)
        status = hl_tokenizer_open(&tokenizer, argv[1]);
    if (status == HL_OK)
        status = hl_session_open(&session, model, &options);
    if (status == HL_OK)
        status = write_text(session, tokenizer, argv[2]);
    if (status != HL_OK)
        fprintf(stderr, "%s\n", hl_error_message());
    hl_session_close(session);
    hl_tokenizer_close(tokenizer);
    hl_model_close(model);
    return status == HL_OK ? 0 : 3;
}
