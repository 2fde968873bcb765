/* confidence.c - a generated text, with the model's confidence in every token.
 *
 *     confidence MODEL PROMPT
 *
 * Prints a table with a line per token: its probability, the entropy of the distribution over the
 * vocabulary, and the mean entropy of attention.  hl_sheet_render makes CSV or JSON of the same
 * table. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <headlight.h>

static hl_status add_token(hl_sheet *table, const hl_tokenizer *tokenizer,
                           const hl_generated *token)
{
    char     *text    = NULL;
    size_t    n_bytes = 0;
    hl_status status  = hl_tokenizer_decode(&text, &n_bytes, tokenizer, &token->id, 1, NULL);

    hl_sheet_put_real(table, 100.0 * exp(token->logprob));
    hl_sheet_put_reals(table, token->entropy, token->attention_entropy);
    hl_sheet_put_text(table, "|%s|", status == HL_OK ? text : "");
    hl_free(text);
    return status;
}

static hl_status write_text(hl_sheet *table, hl_session *session, const hl_tokenizer *tokenizer,
                            const char *prompt)
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
            status = add_token(table, tokenizer, &token);
    }
    hl_generator_close(generator);
    hl_encoding_free(encoding);
    return status;
}

static hl_status print(const hl_sheet *table)
{
    char     *text   = NULL;
    hl_status status = hl_sheet_render(&text, table, HL_SHEET_TEXT);

    if (status == HL_OK)
        fputs(text, stdout);
    hl_free(text);
    return status;
}

int main(int argc, char **argv)
{
    hl_model          *model     = NULL;
    hl_tokenizer      *tokenizer = NULL;
    hl_session        *session   = NULL;
    hl_sheet          *table     = NULL;
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
        status = hl_sheet_new(&table, "confidence", "Confidence in each token",
                              "percent:1 entropy:2 attention:2 token:t");
    if (status == HL_OK)
        status = write_text(table, session, tokenizer, argv[2]);
    if (status == HL_OK) {
        hl_sheet_fact_text(table, "prompt", "%s", argv[2]);
        hl_sheet_fact_real(table, "tokens", (double)hl_sheet_n_rows(table));
        status = hl_sheet_finish(table);
    }
    if (status == HL_OK)
        status = print(table);
    if (status != HL_OK)
        fprintf(stderr, "%s\n", hl_error_message());
    hl_sheet_free(table);
    hl_session_close(session);
    hl_tokenizer_close(tokenizer);
    hl_model_close(model);
    return status == HL_OK ? 0 : 3;
}
