/* steps.c - decoding by hand: a session is fed a prompt, then one token at a time.
 *
 *     steps MODEL PROMPT
 *
 * First takes the most likely token each time, then goes back to the prompt and draws tokens at
 * random. Each token is printed with the mean entropy of attention in the last layer, under the
 * name of TransformerLens. */
#include <stdio.h>
#include <string.h>

#include <headlight.h>

enum { N_STEPS = 6, WANTS = HL_WANT_LAST_TOP | HL_WANT_LAST_LOGITS };

typedef struct decoding {
    hl_model     *model;
    hl_tokenizer *tokenizer;
    hl_session   *session;
    double        entropy; /* entropy of the last row, mean over the heads of the last layer */
} decoding;

/* The tap's callback, called for every layer of every feed, in order. */
static hl_status note_layer(void *context, const hl_layer_rows *rows)
{
    double sum = 0.0;

    for (int64_t head = 0; head < rows->n_heads; head++)
        sum += (double)rows->rows->entropy[(head + 1) * rows->n_rows - 1];
    ((decoding *)context)->entropy = sum / (double)rows->n_heads;
    return HL_OK;
}

static bool feed(decoding *d, const int64_t *tokens, int64_t n_tokens)
{
    hl_tap  tap  = { .context = d, .layer = note_layer, .wants = WANTS };
    hl_feed more = { .tokens = tokens, .n_tokens = n_tokens, .tap = &tap };

    return hl_session_feed(d->session, &more) == HL_OK;
}

static bool show(const decoding *d, int64_t token)
{
    int64_t layer = hl_model_get_info(d->model)->n_layers - 1;
    char   *text  = NULL, name[64];
    size_t  n_bytes;

    if (hl_tokenizer_decode(&text, &n_bytes, d->tokenizer, &token, 1, NULL) != HL_OK)
        return false;
    hl_hook_name(name, sizeof name, HL_HOOK_ENTROPY, layer);
    printf("%4lld  %s %.2f  |%.*s|\n", (long long)hl_session_length(d->session, 0), name,
           d->entropy, (int)strcspn(text, "\n"), text);
    hl_free(text);
    return true;
}

/* Draws tokens with the sampler; without one, takes the most likely token. */
static bool take_steps(decoding *d, hl_sampler *sampler)
{
    bool ok = true;

    for (int i = 0; ok && i < N_STEPS; i++) {
        int64_t token = hl_session_top(d->session, 0);
        if (sampler != NULL)
            ok = hl_sampler_draw(&token, sampler, hl_session_logits(d->session, 0)) == HL_OK &&
                 hl_sampler_accept(sampler, token) == HL_OK;
        ok = ok && show(d, token) && feed(d, &token, 1);
    }
    return ok;
}

static bool decode_twice(decoding *d, const hl_encoding *prompt, hl_sampler *sampler)
{
    int64_t last = (int64_t)prompt->n_tokens - 1; /* this token is fed again, to predict the one
                                                   * after it */

    return feed(d, prompt->ids, last + 1) && take_steps(d, NULL) &&
           hl_session_rewind(d->session, 0, last) == HL_OK && feed(d, prompt->ids + last, 1) &&
           take_steps(d, sampler);
}

int main(int argc, char **argv)
{
    hl_session_options options = { .n_ctx = 512, .wants = WANTS };
    hl_sample_options  sample  = { .temperature = 1.0, .repeat_penalty = 1.2, .seed = 7 };
    decoding           d       = { .session = NULL };
    hl_encoding       *prompt  = NULL;
    hl_sampler        *sampler = NULL;
    size_t             cache   = 0;

    if (argc != 3) {
        fprintf(stderr, "usage: steps MODEL PROMPT\n");
        return 2;
    }
    bool ok = hl_model_open(&d.model, argv[1]) == HL_OK &&
              hl_tokenizer_open(&d.tokenizer, argv[1]) == HL_OK &&
              hl_tokenizer_encode(&prompt, d.tokenizer, argv[2], strlen(argv[2]), NULL) == HL_OK &&
              hl_session_open(&d.session, d.model, &options) == HL_OK &&
              hl_sampler_new(&sampler, hl_model_get_info(d.model)->d_vocab, &sample) == HL_OK &&
              decode_twice(&d, prompt, sampler);
    if (ok)
        printf("the session held %zu KiB", hl_session_bytes(d.session, &cache) / 1024);
    if (ok)
        printf(", %zu of them keys and values; all %zu\n", cache / 1024, hl_memory_held() / 1024);
    else
        fprintf(stderr, "%s\n", hl_error_message());
    hl_sampler_free(sampler);
    hl_session_close(d.session);
    hl_encoding_free(prompt);
    hl_tokenizer_close(d.tokenizer);
    hl_model_close(d.model);
    return ok ? 0 : 3;
}
