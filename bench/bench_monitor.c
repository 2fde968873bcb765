/* bench_monitor.c - the cost of watching a text.
 *
 *     build/bench_monitor [--rounds N] [--prompt N] [--tokens N] [--lane NAME] [MODEL]
 *
 * Three generators write the same text and take turns after each token:
 *
 *     plain     tokens and their text, not watched (each token has its mean entropy)
 *     watched   as `headlight generate` does on a terminal or with --on-spike: statistics and
 *               lookback of every row, spikes, whole rows of two tokens in 64
 *     traced    as with --trace: whole rows of every token, all kept
 *
 * They use one thread and CPU time: other load does not change the clock, and changes caches for
 * all three alike, since turns are short.  The address of a session's memory changes times by up to
 * a percent, so a round is three texts, and each lane has each session for one of them.  Ratios are
 * medians over the rounds.
 *
 * --lane runs a single lane, for `valgrind --tool=callgrind`: instructions can be counted on
 * machines where times are unreliable. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "headlight.h"
#include "series.h"

typedef enum lane { PLAIN = 0, WATCHED, TRACED, N_LANES } lane;

static const char *const lane_names[N_LANES] = { "plain", "watched", "traced" };

/* One lane in one text, with sessions of its own, so that it does not wait for another's cache. */
typedef struct writer {
    hl_tracer        *tracer; /* NULL: plain */
    hl_decode_stream *stream; /* for the plain lane; NULL: no tokenizer */
    hl_generator     *generator;
    double            seconds; /* seconds in this round */
} writer;

typedef struct bench {
    const char   *path;
    int64_t       n_rounds;
    int64_t       n_prompt;
    int64_t       n_tokens;
    int           first; /* first lane that runs */
    int           end;   /* end of the lanes that run */
    hl_model     *model;
    hl_tokenizer *tokenizer;
    int64_t      *prompt; /* (n_prompt) */
    hl_session   *sessions[N_LANES];
    writer        writers[N_LANES];
    bench_series  times[N_LANES];
} bench;

static double cpu_seconds(void)
{
    struct timespec now = { 0 };
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* -------------------------------------------------------------------- a round */

static hl_status open_tracer(hl_tracer **out, const bench *b, lane which)
{
    hl_tracer_options options = { .n_ctx        = b->n_prompt + b->n_tokens,
                                  .tokenizer    = b->tokenizer,
                                  .n_back       = 5,
                                  .change_every = which == WATCHED ? 64 : 0,
                                  .forget       = which == WATCHED };

    return which == PLAIN ? HL_OK : hl_tracer_open(out, b->model, &options);
}

/* Starts a text; the prompt's pass is not timed. */
static hl_status begin(bench *b, lane which, hl_session *session)
{
    writer             *w       = &b->writers[which];
    hl_generate_options options = { .ignore_end = true };
    hl_status           status  = open_tracer(&w->tracer, b, which);

    if (status == HL_OK && w->tracer == NULL && b->tokenizer != NULL)
        status = hl_decode_stream_open(&w->stream, b->tokenizer, NULL);
    if (status == HL_OK && w->tracer != NULL) {
        options.tap        = hl_tracer_tap(w->tracer);
        options.segments   = hl_tracer_segments(w->tracer);
        options.n_segments = HL_N_KINDS;
        status             = hl_tracer_prompt(w->tracer, b->prompt, NULL, b->n_prompt);
    }
    if (status == HL_OK)
        status = hl_session_rewind(session, 0, 0);
    if (status == HL_OK)
        status = hl_generator_open(&w->generator, session, &options);
    if (status == HL_OK)
        status = hl_generator_prompt(w->generator, b->prompt, b->n_prompt);
    return status;
}

static void end(writer *w)
{
    hl_generator_close(w->generator);
    hl_tracer_close(w->tracer);
    hl_decode_stream_close(w->stream);
    w->generator = NULL;
    w->tracer    = NULL;
    w->stream    = NULL;
}

static hl_status write_token(writer *w)
{
    hl_generated token  = { 0 };
    double       begun  = cpu_seconds();
    const char  *text   = NULL;
    size_t       n_text = 0;
    hl_status    status = hl_generator_next(&token, w->generator);

    if (status == HL_OK && w->tracer != NULL)
        status = hl_tracer_add(w->tracer, &token);
    if (status == HL_OK && w->stream != NULL)
        status = hl_decode_stream_push(&text, &n_text, w->stream, token.id);
    w->seconds += cpu_seconds() - begun;
    return status;
}

/* Writes one text in all lanes.  A lane uses the session of the lane `shift` further on.  Each lane
 * is first equally often, and follows each other lane equally often. */
static hl_status run_text(bench *b, int shift)
{
    hl_status status  = HL_OK;
    int       n_lanes = b->end - b->first;

    for (int i = 0; i < n_lanes && status == HL_OK; i++)
        status = begin(b, (lane)(b->first + i), b->sessions[b->first + (i + shift) % n_lanes]);
    for (int64_t token = 0; token < b->n_tokens; token++) {
        bool backwards = token / n_lanes % 2 == 1;
        for (int i = 0; i < n_lanes && status == HL_OK; i++)
            status = write_token(
                &b->writers[b->first + (token + (backwards ? n_lanes - i : i)) % n_lanes]);
    }
    for (int i = b->first; i < b->end; i++)
        end(&b->writers[i]);
    return status;
}

static hl_status run_round(bench *b)
{
    hl_status status = HL_OK;

    for (int i = b->first; i < b->end; i++)
        b->writers[i].seconds = 0.0;
    for (int shift = 0; shift < b->end - b->first && status == HL_OK; shift++)
        status = run_text(b, shift);
    for (int i = b->first; i < b->end && status == HL_OK; i++)
        bench_series_add(&b->times[i], b->writers[i].seconds);
    return status;
}

/* ------------------------------------------------------------------------ whole */

static bool read_number(int64_t *out, const char *name, int argc, char **argv, int *at)
{
    if (strcmp(argv[*at], name) != 0 || *at + 1 >= argc)
        return false;
    *out = atoll(argv[++*at]);
    return *out > 0;
}

static bool read_lane(bench *b, int argc, char **argv, int *at)
{
    if (strcmp(argv[*at], "--lane") != 0 || *at + 1 >= argc)
        return false;
    for (int i = 0; i < N_LANES; i++) {
        if (strcmp(argv[*at + 1], lane_names[i]) == 0) {
            b->first = i;
            b->end   = i + 1;
            ++*at;
            return true;
        }
    }
    return false;
}

static bool read_arguments(bench *b, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (read_number(&b->n_rounds, "--rounds", argc, argv, &i) ||
            read_number(&b->n_prompt, "--prompt", argc, argv, &i) ||
            read_number(&b->n_tokens, "--tokens", argc, argv, &i) || read_lane(b, argc, argv, &i))
            continue;
        if (argv[i][0] == '-')
            return false;
        b->path = argv[i];
    }
    return true;
}

static hl_status open_bench(bench *b)
{
    hl_session_options options = { .n_ctx      = b->n_prompt + b->n_tokens,
                                   .n_patterns = 1,
                                   .wants      = HL_WANT_LAST_LOGITS | HL_WANT_PATTERN,
                                   .n_threads  = 1 };
    hl_status          status  = hl_model_open(&b->model, b->path);

    /* Models with random weights have no useful tokenizer. */
    if (status == HL_OK)
        (void)hl_tokenizer_open(&b->tokenizer, hl_model_get_info(b->model)->tokenizer_path);
    for (int i = b->first; i < b->end && status == HL_OK; i++)
        status = hl_session_open(&b->sessions[i], b->model, &options);
    b->prompt = malloc((size_t)b->n_prompt * sizeof *b->prompt);
    for (int64_t i = 0; status == HL_OK && i < b->n_prompt; i++)
        b->prompt[i] = (i * i * 31 + 7 * i + 3) % hl_model_get_info(b->model)->d_vocab;
    return status;
}

static void print_result(const bench *b)
{
    const hl_model_info *info = hl_model_get_info(b->model);

    printf("%s: %lld layers, %lld heads; %lld tokens after %lld, %lld rounds, one thread, CPU "
           "time\n\n",
           b->path, (long long)info->n_layers, (long long)info->n_heads, (long long)b->n_tokens,
           (long long)b->n_prompt, (long long)b->n_rounds);
    for (int i = b->first; i < b->end; i++) {
        const bench_series *times = &b->times[i];

        printf("  %-8s %8.3f ms a token", lane_names[i],
               1e3 * bench_series_median(times) / (double)(b->n_tokens * (b->end - b->first)));
        if (b->end - b->first == N_LANES)
            printf("  %+6.2f%%", 100.0 * (bench_series_ratio(times, &b->times[PLAIN]) - 1.0));
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    static bench b = {
        .path = "models/demo", .n_rounds = 15, .n_prompt = 64, .n_tokens = 128, .end = N_LANES
    };

    if (!read_arguments(&b, argc, argv) || b.n_rounds > BENCH_SERIES_MAX) {
        fprintf(stderr, "usage: bench_monitor [--rounds N] [--prompt N] [--tokens N] "
                        "[--lane plain|watched|traced] [MODEL]\n");
        return 2;
    }
    hl_status status = open_bench(&b);
    /* The first round warms up. */
    for (int64_t round = 0; round <= b.n_rounds && status == HL_OK; round++) {
        status = run_round(&b);
        for (int i = 0; i < N_LANES && round == 0; i++)
            b.times[i] = (bench_series){ 0 };
    }
    if (status == HL_OK)
        print_result(&b);
    else
        fprintf(stderr, "bench_monitor: %s\n", hl_error_message());
    for (int i = 0; i < N_LANES; i++)
        hl_session_close(b.sessions[i]);
    hl_tokenizer_close(b.tokenizer);
    hl_model_close(b.model);
    free(b.prompt);
    return status == HL_OK ? 0 : 1;
}
