/* steer.c - changes a text while it is generated, and writes a trace of it.
 *
 *     steer MODEL PROMPT WORDS OUT.trace
 *
 * A token with a probability below 5% is drawn once more, and after 8 tokens WORDS are inserted.
 * The trace has every head's attention for every token; spikes.c reads it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <headlight.h>

enum { N_CTX = 512, N_BEFORE = 8, N_ALL = 24 };

typedef struct text {
    hl_session   *session;
    hl_generator *generator;
    hl_tracer    *tracer;
    int64_t       ids[N_CTX]; /* all tokens, including those of the prompt */
    int64_t       n_ids;
} text;

/* Tokens are announced to the tracer before they are fed. */
static bool give(text *t, const hl_encoding *encoding, hl_token_kind kind)
{
    uint8_t  kinds[N_CTX];
    int64_t  n = (int64_t)encoding->n_tokens, room = N_CTX - N_ALL - t->n_ids;
    int64_t *ids = t->ids + t->n_ids;

    n = n < room ? n : room;
    memset(kinds, kind, sizeof kinds);
    memcpy(ids, encoding->ids, (size_t)n * sizeof *ids);
    t->n_ids += n;
    return hl_tracer_prompt(t->tracer, ids, kinds, n) == HL_OK &&
           (kind == HL_KIND_PROMPT ? hl_generator_prompt(t->generator, ids, n)
                                   : hl_generator_insert(t->generator, ids, n)) == HL_OK;
}

static bool draw(hl_generated *token, text *t)
{
    bool ok =
        hl_generator_next(token, t->generator) == HL_OK && hl_tracer_add(t->tracer, token) == HL_OK;

    t->ids[t->n_ids++] = token->id;
    return ok;
}

static bool draw_again(hl_generated *token, text *t)
{
    printf("token %lld: %.1f%%, once more\n", (long long)--t->n_ids, 100.0 * exp(token->logprob));
    return hl_tracer_rewind(t->tracer, t->n_ids) == HL_OK &&
           hl_generator_rewind(t->generator, t->ids, t->n_ids) == HL_OK && draw(token, t);
}

static bool write_text(text *t, const hl_encoding *prompt, const hl_encoding *words)
{
    hl_generated token = { .stop = HL_STOP_NONE };
    bool         ok    = give(t, prompt, HL_KIND_PROMPT);

    for (int i = 0; ok && token.stop == HL_STOP_NONE; i++)
        ok = (i != N_BEFORE || give(t, words, HL_KIND_CONTEXT)) && draw(&token, t) &&
             (token.logprob > log(0.05) || draw_again(&token, t));
    return ok;
}

static bool open_text(text *t, const hl_model *model, const hl_tokenizer *tokenizer)
{
    hl_session_options  session = { .n_ctx = N_CTX, .n_patterns = 1 };
    hl_tracer_options   seen    = { .n_ctx = N_CTX, .tokenizer = tokenizer, .n_back = 1 };
    hl_generate_options how = { .sample = { .temperature = 1.0, .seed = 7 }, .max_tokens = N_ALL };

    session.wants = HL_WANT_LAST_LOGITS | HL_WANT_PATTERN; /* complete rows, for HL_TRACE_CHANGE */
    if (hl_session_open(&t->session, model, &session) != HL_OK ||
        hl_tracer_open(&t->tracer, model, &seen) != HL_OK)
        return false;
    how.tap        = hl_tracer_tap(t->tracer);
    how.segments   = hl_tracer_segments(t->tracer);
    how.n_segments = HL_N_KINDS;
    return hl_generator_open(&t->generator, t->session, &how) == HL_OK;
}

int main(int argc, char **argv)
{
    text          t      = { .n_ids = 0 };
    hl_model     *model  = NULL;
    hl_tokenizer *tokens = NULL;
    hl_encoding  *prompt = NULL, *words = NULL;

    if (argc != 5) {
        fprintf(stderr, "usage: steer MODEL PROMPT WORDS OUT.trace\n");
        return 2;
    }
    bool ok = hl_model_open(&model, argv[1]) == HL_OK &&
              hl_tokenizer_open(&tokens, argv[1]) == HL_OK &&
              hl_tokenizer_encode(&prompt, tokens, argv[2], strlen(argv[2]), NULL) == HL_OK &&
              hl_tokenizer_encode(&words, tokens, argv[3], strlen(argv[3]), NULL) == HL_OK &&
              open_text(&t, model, tokens) && write_text(&t, prompt, words) &&
              hl_trace_write(hl_tracer_trace(t.tracer), argv[4]) == HL_OK;
    if (!ok)
        fprintf(stderr, "%s\n", hl_error_message());
    hl_generator_close(t.generator);
    hl_tracer_close(t.tracer);
    hl_session_close(t.session);
    hl_encoding_free(prompt);
    hl_encoding_free(words);
    hl_tokenizer_close(tokens);
    hl_model_close(model);
    return ok ? 0 : 3;
}
