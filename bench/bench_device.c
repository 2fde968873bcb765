/* bench_device.c - whole models on a device.
 *
 *     build/bench_device MODEL DEVICE forward LENGTH[,LENGTH...]
 *     build/bench_device MODEL DEVICE steady SECONDS[,SECONDS...]
 *     build/bench_device MODEL DEVICE decode BATCH[,BATCH...]
 *     build/bench_device MODEL DEVICE draw BATCH[,BATCH...]
 *     build/bench_device MODEL DEVICE eval BATCH[,BATCH...]
 *
 * forward: passes of 16384 tokens, or of one longer sequence, without logits; bare, and with all
 * statistics of every row reported to a tap.  steady: bare passes of 16 sequences of 1024, repeated
 * for SECONDS, because a card's clock rate falls under load; prints the mean.  decode: 256 tokens
 * after a prompt of 128, each time the most likely token; the time includes the prompt.  draw:
 * decodes with tokens drawn by several rules, from logits that stay on the device and from logits
 * that are copied.  eval: losses in windows of 1024, BATCH windows at a time.  The results are
 * medians of seven rounds (three beyond 64k tokens) of elapsed time.  Every line of output is JSON,
 * as in bench/cuda/model_peers.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "headlight.h"
#include "model/pick.h"
#include "series.h"

enum { TOKENS = 16384, ROUNDS = 7, WARM = 2, PROMPT = 128, NEW = 256, N_VOCAB = 128000 };

typedef struct bench {
    hl_model   *model;
    const char *device;
    hl_session *session;
    int64_t    *tokens;
    int64_t     n_batch;
    int64_t     n_tokens; /* tokens per sequence */
    double      entropy;  /* a result that depends on all reported values, so that they are read */
} bench;

static hl_status add_up(void *context, const hl_layer_rows *rows)
{
    bench *b = context;

    b->entropy += (double)rows->rows->entropy[rows->n_heads * rows->n_rows - 1];
    return HL_OK;
}

static void check(hl_status status, const char *what)
{
    if (status == HL_OK)
        return;
    fprintf(stderr, "bench_device: %s: %s\n", what, hl_error_message());
    exit(3);
}

static void make_tokens(bench *b, int64_t n)
{
    uint32_t state = 1;

    b->tokens = malloc((size_t)n * sizeof *b->tokens);
    for (int64_t i = 0; i < n; i++) {
        state        = state * 1664525U + 1013904223U;
        b->tokens[i] = (int64_t)(state >> 8) % N_VOCAB;
    }
}

static void empty(const bench *b)
{
    for (int64_t i = 0; i < b->n_batch; i++)
        check(hl_session_rewind(b->session, i, 0), "rewinding");
}

/* ------------------------------------------------------------------ forward */

static double time_pass(bench *b, const hl_tap *tap)
{
    hl_feed feed  = { .tokens = b->tokens, .n_tokens = b->n_tokens, .tap = tap };
    double  begin = hl_bench_now();

    check(hl_session_feed(b->session, &feed), "a pass");
    double seconds = hl_bench_now() - begin;
    empty(b);
    return seconds;
}

static void time_passes(bench *b, const char *name, const hl_tap *tap)
{
    bench_series seconds = { 0 };

    int rounds = b->n_tokens > 4 * TOKENS ? 3 : ROUNDS;
    for (int i = 0; i < WARM + rounds; i++) {
        double one = time_pass(b, tap);
        if (i >= WARM)
            bench_series_add(&seconds, one);
    }
    double median = bench_series_median(&seconds);
    printf("{\"ours\": \"%s\", \"device\": \"%s\", \"length\": %lld, \"batch\": %lld, "
           "\"ms\": %.4f, \"tokens_per_s\": %.0f}\n",
           name, b->device, (long long)b->n_tokens, (long long)b->n_batch, 1e3 * median,
           (double)(b->n_batch * b->n_tokens) / median);
    fflush(stdout);
}

static void run_forward(bench *b, int64_t length)
{
    /* The tap wants the output of the final norm, so that no part of the last block is omitted. */
    hl_tap             tap     = { .context = b, .layer = add_up, .wants = HL_WANT_HIDDEN };
    hl_tap             bare    = { .wants = HL_WANT_HIDDEN };
    hl_session_options options = { .n_ctx   = length,
                                   .n_batch = length < TOKENS ? TOKENS / length : 1,
                                   .n_chunk = length < TOKENS ? length : TOKENS,
                                   .wants   = HL_WANT_HIDDEN,
                                   .device  = b->device };

    b->n_tokens = length;
    b->n_batch  = options.n_batch;
    make_tokens(b, b->n_batch * length);
    check(hl_session_open(&b->session, b->model, &options), "a session");
    printf("{\"session_bytes\": %zu}\n", hl_session_bytes(b->session, NULL));
    time_passes(b, "forward", &bare);
    time_passes(b, "forward with all statistics", &tap);
    hl_session_close(b->session);
    free(b->tokens);
}

/* For comparison with `headlight measure` of a long text. */
static void run_steady(bench *b, int64_t seconds)
{
    hl_tap             bare    = { .wants = HL_WANT_HIDDEN };
    hl_session_options options = {
        .n_ctx = 1024, .n_batch = TOKENS / 1024, .wants = HL_WANT_HIDDEN, .device = b->device
    };
    int64_t n_passes = 0;

    b->n_tokens = options.n_ctx;
    b->n_batch  = options.n_batch;
    make_tokens(b, TOKENS);
    check(hl_session_open(&b->session, b->model, &options), "a session");
    for (int i = 0; i < WARM; i++)
        time_pass(b, &bare);
    double begin = hl_bench_now(), now = begin;
    for (; now - begin < (double)seconds; now = hl_bench_now(), n_passes++)
        time_pass(b, &bare);
    printf(
        "{\"ours\": \"steady\", \"device\": \"%s\", \"seconds\": %.2f, \"tokens_per_s\": %.0f}\n",
        b->device, now - begin, (double)(n_passes * TOKENS) / (now - begin));
    hl_session_close(b->session);
    free(b->tokens);
}

/* ------------------------------------------------------------------- decode */

static double time_text(bench *b, const hl_tap *tap)
{
    int64_t next[64];
    hl_feed feed  = { .tokens = b->tokens, .n_tokens = PROMPT, .tap = tap };
    double  begin = hl_bench_now();

    check(hl_session_feed(b->session, &feed), "a prompt");
    for (int step = 1; step <= NEW; step++) {
        for (int64_t i = 0; i < b->n_batch; i++)
            next[i] = hl_session_top(b->session, i);
        feed.tokens   = next;
        feed.n_tokens = 1;
        if (step < NEW)
            check(hl_session_feed(b->session, &feed), "a step");
    }
    double seconds = hl_bench_now() - begin;
    empty(b);
    return seconds;
}

static void time_texts(bench *b, const char *name, const hl_tap *tap)
{
    bench_series seconds = { 0 };

    for (int i = 0; i < 1 + 5; i++) {
        double one = time_text(b, tap);
        if (i > 0)
            bench_series_add(&seconds, one);
    }
    double median = bench_series_median(&seconds);
    printf("{\"ours\": \"%s\", \"device\": \"%s\", \"batch\": %lld, \"seconds\": %.4f, "
           "\"tokens_per_s\": %.0f}\n",
           name, b->device, (long long)b->n_batch, median, (double)(b->n_batch * NEW) / median);
    fflush(stdout);
}

static void run_decode(bench *b, int64_t n_batch)
{
    hl_tap             tap     = { .context = b, .layer = add_up };
    hl_session_options options = {
        .n_ctx = PROMPT + NEW, .n_batch = n_batch, .wants = HL_WANT_LAST_TOP, .device = b->device
    };

    b->n_batch = n_batch;
    make_tokens(b, n_batch * PROMPT);
    check(hl_session_open(&b->session, b->model, &options), "a session");
    time_texts(b, "decode", NULL);
    time_texts(b, "decode with all statistics", &tap);
    hl_session_close(b->session);
    free(b->tokens);
}

/* --------------------------------------------------------------------- draw */

enum { MOST_TEXTS = 64, DRAWN = 64 };

static const struct rule {
    const char       *name;
    hl_sample_options options;
} rules[] = {
    { "the likeliest", { .temperature = 0.0 } },
    { "temperature 1", { .temperature = 1.0 } },
    { "top_k 40", { .temperature = 0.8, .top_k = 40 } },
    { "top_k 40, top_p 0.9, penalty 1.1",
      { .temperature = 0.8, .top_k = 40, .top_p = 0.9, .repeat_penalty = 1.1 } },
};

/* Returns the seconds of DRAWN steps, without the prompt. */
static double time_draws(bench *b, hl_pick *picks)
{
    int64_t next[MOST_TEXTS];
    hl_feed feed = { .tokens = b->tokens, .n_tokens = PROMPT };

    check(hl_session_feed(b->session, &feed), "a prompt");
    double begin = hl_bench_now();
    for (int step = 0; step < DRAWN; step++) {
        check(hl_session_look(b->session, picks, b->n_batch), "draws");
        for (int64_t i = 0; i < b->n_batch; i++) {
            check(hl_pick_token(&picks[i]), "a draw");
            check(hl_sampler_accept(picks[i].sampler, picks[i].token), "a draw");
            next[i] = picks[i].token;
        }
        check(hl_session_feed(b->session, &(hl_feed){ .tokens = next, .n_tokens = 1 }), "a step");
    }
    double seconds = hl_bench_now() - begin;
    empty(b);
    return seconds;
}

static void run_rule(bench *b, const struct rule *rule, bool copies)
{
    hl_pick            picks[MOST_TEXTS] = { 0 };
    bench_series       seconds           = { 0 };
    int64_t            d_vocab           = hl_model_get_info(b->model)->d_vocab;
    hl_session_options options           = { .n_ctx   = PROMPT + DRAWN,
                                             .n_batch = b->n_batch,
                                             .wants   = copies ? HL_WANT_LAST_LOGITS : HL_WANT_LAST_DRAW,
                                             .device  = b->device };

    check(hl_session_open(&b->session, b->model, &options), "a session");
    for (int64_t i = 0; i < b->n_batch; i++) {
        picks[i].sequence = i;
        check(hl_sampler_new(&picks[i].sampler, d_vocab, &rule->options), "a sampler");
    }
    for (int i = 0; i < 4; i++) {
        double one = time_draws(b, picks);
        if (i > 0)
            bench_series_add(&seconds, one);
    }
    printf("{\"ours\": \"draw, %s\", \"logits\": \"%s\", \"device\": \"%s\", \"batch\": %lld, "
           "\"tokens_per_s\": %.0f}\n",
           rule->name, copies ? "copied" : "stay", b->device, (long long)b->n_batch,
           (double)(b->n_batch * DRAWN) / bench_series_median(&seconds));
    fflush(stdout);
    for (int64_t i = 0; i < b->n_batch; i++)
        hl_sampler_free(picks[i].sampler);
    hl_session_close(b->session);
}

static void run_draws(bench *b, int64_t n_batch)
{
    b->n_batch = n_batch < MOST_TEXTS ? n_batch : MOST_TEXTS;
    make_tokens(b, b->n_batch * PROMPT);
    for (int copies = 0; copies < 2; copies++) {
        for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
            run_rule(b, &rules[i], copies != 0);
    }
    free(b->tokens);
}

/* --------------------------------------------------------------------- eval */

static void run_eval(bench *b, int64_t n_batch)
{
    enum { WINDOW = 1024, WINDOWS = 64 };
    hl_perplexity *perplexity = NULL;
    bench_series   seconds    = { 0 };
    hl_scored_text text       = { .n_tokens = WINDOW * WINDOWS };
    hl_nll         nll        = { 0 };

    make_tokens(b, text.n_tokens);
    text.tokens = b->tokens;
    check(hl_model_set_device((hl_model *)b->model, b->device), "the device");
    check(hl_perplexity_open(&perplexity, b->model,
                             &(hl_perplexity_options){ .n_ctx = WINDOW, .n_batch = n_batch }),
          "losses");
    for (int i = 0; i < WARM + ROUNDS; i++) {
        double begin = hl_bench_now();

        check(hl_perplexity_add(&nll, perplexity, &text), "losses");
        if (i >= WARM)
            bench_series_add(&seconds, hl_bench_now() - begin);
    }
    printf("{\"ours\": \"eval\", \"device\": \"%s\", \"batch\": %lld, \"nats\": %.9f, "
           "\"tokens_per_s\": %.0f}\n",
           b->device, (long long)n_batch, nll.mean,
           (double)text.n_tokens / bench_series_median(&seconds));
    fflush(stdout);
    hl_perplexity_close(perplexity);
    free(b->tokens);
}

/* --------------------------------------------------------------------- main */

static void run(bench *b, const char *what, int64_t number)
{
    if (strcmp(what, "steady") == 0)
        run_steady(b, number);
    else if (strcmp(what, "decode") == 0)
        run_decode(b, number);
    else if (strcmp(what, "draw") == 0)
        run_draws(b, number);
    else if (strcmp(what, "eval") == 0)
        run_eval(b, number);
    else
        run_forward(b, number);
}

int main(int argc, char **argv)
{
    bench b = { 0 };

    if (argc != 5) {
        fprintf(stderr,
                "usage: bench_device MODEL DEVICE forward|steady|decode|draw|eval NUMBERS\n");
        return 2;
    }
    b.device = argv[2];
    check(hl_model_open(&b.model, argv[1]), "the model");
    for (char *at = strtok(argv[4], ","); at != NULL; at = strtok(NULL, ","))
        run(&b, argv[3], strtoll(at, NULL, 10));
    hl_model_close(b.model);
    return 0;
}
