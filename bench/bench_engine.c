/* bench_engine.c - throughput of one model for many clients.
 *
 *     build/bench_engine [--rounds N] [--clients N] [--prompt N] [--tokens N] [--threads N]
 *                        [--math f32|int8] [--cpu] [MODEL]
 *
 * Generates the same texts in three ways, in turns:
 *
 *     generate  one text, by a generator, as in `headlight generate`
 *     alone     one text, by an engine without other jobs
 *     together  one text per client, all at once
 *
 * `one client` is the rate of tokens after the first, relative to `generate`; `together` is the
 * number of all tokens divided by the time from the first prompt to the last token, relative to
 * `alone`.  Times are elapsed times, so the machine must be idle.  With --cpu one thread is used
 * and CPU time is measured, which shows the cost of computing but not of waiting for memory that
 * threads share.  Ratios are medians over the rounds' ratios.  Without MODEL: GPT-2 124M's shapes
 * in F32, F16, Q8_0 and Q4_0, made in build/bench. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "generate/engine.h"
#include "gpt2_files.h"
#include "series.h"

enum { MAX_CLIENTS = 64 };

typedef struct bench {
    const char *path; /* NULL: all generated files */
    int64_t     n_rounds;
    int64_t     n_clients;
    int64_t     n_prompt;
    int64_t     n_tokens;
    int64_t     n_threads;
    hl_math     math;
    bool        by_cpu;

    hl_model    *model;
    hl_session  *session;
    hl_engine   *engine;
    int64_t     *prompts;  /* (n_clients, n_prompt) */
    bench_series generate; /* seconds from the first to the last token */
    bench_series alone;    /* seconds from the first to the last token */
    bench_series whole;    /* seconds of one text of `alone`, prompt included */
    bench_series together; /* seconds of all texts, prompts included */
} bench;

/* ----------------------------------------------------------------------- lanes */

static double now(const bench *b)
{
    struct timespec time = { 0 };

    if (!b->by_cpu)
        return hl_bench_now();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static hl_status run_generate(bench *b)
{
    hl_generator       *generator = NULL;
    hl_generate_options options   = { .ignore_end = true };
    hl_generated        token     = { 0 };
    double              begin     = 0.0;
    hl_status           status    = hl_session_rewind(b->session, 0, 0);

    if (status == HL_OK)
        status = hl_generator_open(&generator, b->session, &options);
    if (status == HL_OK)
        status = hl_generator_prompt(generator, b->prompts, b->n_prompt);
    for (int64_t i = 0; i < b->n_tokens && status == HL_OK; i++) {
        status = hl_generator_next(&token, generator);
        begin  = i == 0 ? now(b) : begin;
    }
    bench_series_add(&b->generate, now(b) - begin);
    hl_generator_close(generator);
    return status;
}

/* Takes all events of a job; *first gets the time of its first token. */
static hl_status take_all(const bench *b, hl_job *job, double *first)
{
    hl_job_event event  = { 0 };
    hl_status    status = HL_OK;

    for (int64_t n = 0; status == HL_OK && event.kind != HL_JOB_END; n++) {
        status = hl_job_wait(&event, job, 60.0);
        if (n == 0)
            *first = now(b);
    }
    return status;
}

/* Runs the first n_jobs texts; returns the seconds from the start, and from the first token. */
static hl_status run_jobs(bench *b, int64_t n_jobs, double *whole, double *after_first)
{
    hl_job   *jobs[MAX_CLIENTS] = { NULL };
    hl_status status            = HL_OK;
    double    begin = now(b), first = 0.0, other = 0.0;

    for (int64_t i = 0; i < n_jobs && status == HL_OK; i++) {
        hl_job_options options = { .tokens     = b->prompts + i * b->n_prompt,
                                   .n_tokens   = b->n_prompt,
                                   .max_tokens = b->n_tokens,
                                   .ignore_end = true };
        status                 = hl_engine_submit(&jobs[i], b->engine, &options);
    }
    for (int64_t i = 0; i < n_jobs && status == HL_OK; i++)
        status = take_all(b, jobs[i], i == 0 ? &first : &other);
    *whole       = now(b) - begin;
    *after_first = now(b) - first;
    for (int64_t i = 0; i < n_jobs; i++)
        hl_job_free(jobs[i]);
    return status;
}

static hl_status run_round(bench *b)
{
    double    whole = 0.0, after = 0.0;
    hl_status status = run_generate(b);

    if (status == HL_OK)
        status = run_jobs(b, 1, &whole, &after);
    bench_series_add(&b->whole, whole);
    bench_series_add(&b->alone, after);
    if (status == HL_OK)
        status = run_jobs(b, b->n_clients, &whole, &after);
    bench_series_add(&b->together, whole);
    return status;
}

/* ----------------------------------------------------------------------- models */

static hl_status open_all(bench *b, const char *path)
{
    int64_t            n_ctx   = b->n_prompt + b->n_tokens;
    hl_session_options session = { .n_ctx     = n_ctx,
                                   .n_chunk   = HL_ENGINE_CHUNK,
                                   .n_threads = (int32_t)b->n_threads,
                                   .math      = b->math,
                                   .wants     = HL_WANT_LAST_LOGITS };
    /* No events are taken while texts are generated, so there must be room for all of them. */
    hl_engine_options engine = { .n_slots      = b->n_clients,
                                 .n_ctx        = n_ctx,
                                 .n_events     = b->n_tokens + HL_ENGINE_CHUNK,
                                 .n_threads    = (int32_t)b->n_threads,
                                 .math         = b->math,
                                 .keep_nothing = true };
    hl_status         status = hl_model_open(&b->model, path);

    if (status == HL_OK)
        status = hl_session_open(&b->session, b->model, &session);
    if (status == HL_OK)
        status = hl_engine_open(&b->engine, b->model, &engine);
    b->prompts = malloc((size_t)(b->n_clients * b->n_prompt) * sizeof *b->prompts);
    for (int64_t i = 0; status == HL_OK && i < b->n_clients * b->n_prompt; i++)
        b->prompts[i] = (i * i * 31 + 7 * i + 3) % hl_model_get_info(b->model)->d_vocab;
    return status;
}

static void close_all(bench *b)
{
    hl_engine_close(b->engine);
    hl_session_close(b->session);
    hl_model_close(b->model);
    free(b->prompts);
    b->engine  = NULL;
    b->session = NULL;
    b->model   = NULL;
    b->prompts = NULL;
}

static void print_result(const bench *b, const char *path)
{
    double n       = (double)b->n_tokens;
    double clients = (double)b->n_clients;

    printf("%s: %lld tokens after %lld, %lld rounds\n", path, (long long)b->n_tokens,
           (long long)b->n_prompt, (long long)b->n_rounds);
    printf("  generate    %8.1f tokens/s\n", (n - 1.0) / bench_series_median(&b->generate));
    printf("  one client  %8.1f tokens/s   %.3f of generate\n",
           (n - 1.0) / bench_series_median(&b->alone), bench_series_ratio(&b->generate, &b->alone));
    printf("  alone       %8.1f tokens/s   with the prompt\n", n / bench_series_median(&b->whole));
    printf("  %2lld together %8.1f tokens/s   %.2f of alone\n\n", (long long)b->n_clients,
           clients * n / bench_series_median(&b->together),
           clients * bench_series_ratio(&b->whole, &b->together));
    fflush(stdout);
}

static hl_status run_model(bench *b, const char *path)
{
    hl_status status = open_all(b, path);

    for (int64_t round = 0; round <= b->n_rounds && status == HL_OK; round++) {
        status = run_round(b);
        if (round == 0) /* the first round warms up */
            b->generate = b->alone = b->whole = b->together = (bench_series){ 0 };
    }
    if (status == HL_OK)
        print_result(b, path);
    close_all(b);
    return status;
}

static hl_status run_ours(bench *b)
{
    static const hl_dtype types[] = { HL_DTYPE_F32, HL_DTYPE_F16, HL_DTYPE_Q8_0, HL_DTYPE_Q4_0 };
    hl_status             status  = hl_gpt2_files_make("build/bench");
    char                  path[256];

    for (size_t i = 0; i < sizeof types / sizeof *types && status == HL_OK; i++) {
        hl_gpt2_file(path, sizeof path, "build/bench", types[i]);
        status = run_model(b, path);
    }
    return status == HL_OK ? run_model(b, "build/bench/hf-f32") : status;
}

/* -------------------------------------------------------------------- arguments */

static bool read_number(int64_t *out, const char *name, int argc, char **argv, int *at)
{
    if (strcmp(argv[*at], name) != 0 || *at + 1 >= argc)
        return false;
    *out = atoll(argv[++*at]);
    return *out > 0;
}

static bool read_activations(bench *b, int argc, char **argv, int *at)
{
    if (strcmp(argv[*at], "--math") != 0 || *at + 1 >= argc)
        return false;
    b->math = strcmp(argv[++*at], "int8") == 0 ? HL_MATH_INT8 : HL_MATH_F32;
    return true;
}

static bool read_arguments(bench *b, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (read_number(&b->n_rounds, "--rounds", argc, argv, &i) ||
            read_number(&b->n_clients, "--clients", argc, argv, &i) ||
            read_number(&b->n_prompt, "--prompt", argc, argv, &i) ||
            read_number(&b->n_tokens, "--tokens", argc, argv, &i) ||
            read_number(&b->n_threads, "--threads", argc, argv, &i) ||
            read_activations(b, argc, argv, &i))
            continue;
        if (strcmp(argv[i], "--cpu") == 0)
            b->by_cpu = true;
        else if (argv[i][0] == '-')
            return false;
        else
            b->path = argv[i];
    }
    if (b->by_cpu)
        b->n_threads = 1;
    return b->n_clients <= MAX_CLIENTS && b->n_rounds < BENCH_SERIES_MAX;
}

int main(int argc, char **argv)
{
    static bench b = { .n_rounds = 5, .n_clients = 8, .n_prompt = 32, .n_tokens = 64 };

    if (!read_arguments(&b, argc, argv)) {
        fprintf(stderr, "usage: bench_engine [--rounds N] [--clients N] [--prompt N] [--tokens N] "
                        "[--threads N] [--math f32|int8] [--cpu] [MODEL]\n");
        return 2;
    }
    hl_status status = b.path != NULL ? run_model(&b, b.path) : run_ours(&b);
    if (status != HL_OK)
        fprintf(stderr, "bench_engine: %s\n", hl_error_message());
    return status == HL_OK ? 0 : 1;
}
