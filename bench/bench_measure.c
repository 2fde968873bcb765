/* bench_measure.c - the cost of measuring, relative to the bare forward pass.
 *
 *     build/bench_measure [--seconds N] [--threads N] [--files DIR] [--demo]
 *
 *     model            context    bare tok/s   measured tok/s    share
 *
 * hl_measure makes a profile of some windows.  After each, the next window is fed to a session
 * without a tap, with the same number of threads.  So the two take turns, window by window, and
 * other load on the machine affects both.  The first window warms up caches and threads and is not
 * counted; nor are opening, hashing the model and the probe, which happen once, however long the
 * text is.  Shares are medians over the pairs.
 *
 * The models are the demo, which is the harder case because it is small, and GPT-2's shapes with
 * random weights (gpt2_files.h). */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "base/threads.h"
#include "gpt2_files.h"
#include "headlight.h"
#include "series.h"

enum { MAX_WINDOWS = 9, MIN_PAIRS = 8 };
#define BAR 0.95

typedef struct bench_options {
    double      seconds; /* seconds per model and context */
    int         n_threads;
    const char *files;
    bool        demo_only;
} bench_options;

typedef struct bench {
    const char  *name;
    int64_t      context;
    int          n_windows; /* number of windows per profile */
    int          n_threads;
    hl_model    *model;
    hl_session  *session;
    hl_corpus   *corpus;
    char         path[64]; /* file with the windows' tokens; a corpus reads it repeatedly */
    int64_t      tokens[MAX_WINDOWS][HL_GPT2_CTX];
    double       resumed; /* time at which hl_measure continued */
    bench_series bare, measured;
} bench;

/* ---------------------------------------------------------------------- windows */

/* Every window is a document of its own, as long as the context. */
static hl_status write_tokens(const bench *b)
{
    FILE *file = fopen(b->path, "w");

    if (file == NULL)
        return hl_fail(HL_IO, "%s cannot be written", b->path);
    for (int window = 0; window < b->n_windows; window++) {
        fputs("[", file);
        for (int64_t i = 0; i < b->context; i++)
            fprintf(file, "%s%lld", i > 0 ? "," : "", (long long)b->tokens[window][i]);
        fputs("]\n", file);
    }
    return fclose(file) == 0 ? HL_OK : hl_fail(HL_IO, "%s cannot be written", b->path);
}

static hl_status open_corpus(bench *b)
{
    hl_corpus_options options = { .token_ids = b->path };
    hl_status         status  = HL_OK;

    snprintf(b->path, sizeof b->path, "/tmp/bench-measure-XXXXXX");
    int handle = mkstemp(b->path);
    if (handle < 0)
        return hl_fail(HL_IO, "%s cannot be made", b->path);
    close(handle);
    HL_TRY(write_tokens(b));
    HL_TRY(hl_corpus_open(&b->corpus, b->model, NULL, &options));

done:
    return status;
}

/* ------------------------------------------------------------------------ lanes */

/* Opens a new session for every profile, as hl_measure does.  The address of its memory changes
 * times by up to a percent, and both lanes must have the same number of addresses. */
static hl_status open_session(bench *b)
{
    hl_session_options options = { .n_ctx = b->context, .n_threads = b->n_threads };

    hl_session_close(b->session);
    b->session = NULL;
    return hl_session_open(&b->session, b->model, &options);
}

/* Runs one window without a tap. */
static hl_status run_bare(bench *b, int window)
{
    hl_status status = HL_OK;
    hl_feed   feed   = { .tokens = b->tokens[window], .n_tokens = b->context };

    HL_TRY(hl_session_rewind(b->session, 0, 0));
    HL_TRY(hl_session_feed(b->session, &feed));

done:
    return status;
}

/* Called when hl_measure has finished a window. */
static hl_status take_turn(void *context, const hl_progress *progress)
{
    bench    *b      = context;
    double    begin  = hl_bench_now();
    hl_status status = HL_OK;

    if (progress->n_windows == 1)
        HL_TRY(open_session(b));
    HL_TRY(run_bare(b, (int)(progress->n_windows - 1)));
    if (progress->n_windows > 1) {
        bench_series_add(&b->measured, begin - b->resumed);
        bench_series_add(&b->bare, hl_bench_now() - begin);
    }
    b->resumed = hl_bench_now();

done:
    return status;
}

static hl_status run_measure(bench *b)
{
    hl_profile        *profile = NULL;
    hl_measure_options options = { .windows   = { .n_ctx = b->context },
                                   .no_probe  = true,
                                   .n_threads = b->n_threads,
                                   .progress  = take_turn,
                                   .context   = b };
    hl_status          status  = hl_measure(&profile, b->model, NULL, b->corpus, &options);

    hl_profile_free(profile);
    return status;
}

/* ------------------------------------------------------------------------ whole */

static hl_status open_bench(bench *b, const char *path)
{
    hl_status status = HL_OK;

    for (int window = 0; window < b->n_windows; window++) {
        for (int64_t i = 0; i < b->context; i++)
            b->tokens[window][i] = (i * 31337 + 17 + window) % 4096;
    }
    HL_TRY(hl_model_open(&b->model, path));
    HL_TRY(open_corpus(b));

done:
    return status;
}

static void close_bench(bench *b)
{
    hl_corpus_close(b->corpus);
    hl_session_close(b->session);
    hl_model_close(b->model);
    if (b->path[0] != '\0')
        unlink(b->path);
}

static void print_bench(const bench *b)
{
    double share = bench_series_ratio(&b->bare, &b->measured);

    printf("  %-14s%9lld%14.1f%17.1f%9.3f  >= %.2f  %s\n", b->name, (long long)b->context,
           (double)b->context / bench_series_median(&b->bare),
           (double)b->context / bench_series_median(&b->measured), share, BAR,
           share >= BAR ? "pass" : "MISS");
    fflush(stdout);
}

static hl_status run_bench(const char *name, const char *path, int64_t context, int n_windows,
                           const bench_options *options)
{
    static bench b; /* static because it is large: it has all times of all rounds */
    hl_status    status = HL_OK;

    b = (bench){
        .name = name, .context = context, .n_windows = n_windows, .n_threads = options->n_threads
    };
    HL_TRY(open_bench(&b, path));
    for (double end = hl_bench_now() + options->seconds;
         b.bare.count < MIN_PAIRS ||
         (hl_bench_now() < end && b.bare.count + MAX_WINDOWS <= BENCH_SERIES_MAX);)
        HL_TRY(run_measure(&b));
    print_bench(&b);

done:
    close_bench(&b);
    return status;
}

static hl_status run(const bench_options *options)
{
    hl_status status = HL_OK;
    char      path[512];

    hl_gpt2_file(path, sizeof path, options->files, HL_DTYPE_F32);
    printf("measuring against the bare forward pass, %d threads, medians\n\n", options->n_threads);
    printf("  %-14s%9s%14s%17s%9s\n", "model", "context", "bare tok/s", "measured tok/s", "share");
    HL_TRY(run_bench("models/demo", "models/demo", 512, MAX_WINDOWS, options));
    if (options->demo_only)
        goto done;
    HL_TRY(hl_gpt2_files_make(options->files));
    HL_TRY(run_bench("GPT-2 shapes", path, 512, 3, options));
    HL_TRY(run_bench("GPT-2 shapes", path, 1024, 3, options));

done:
    return status;
}

int main(int argc, char **argv)
{
    static const struct option table[] = {
        { "seconds", required_argument, NULL, 's' },
        { "threads", required_argument, NULL, 't' },
        { "files", required_argument, NULL, 'f' },
        { "demo", no_argument, NULL, 'd' },
        { NULL, 0, NULL, 0 },
    };
    bench_options options = { .seconds = 60.0, .files = "build/bench" };

    for (int letter; (letter = getopt_long(argc, argv, "", table, NULL)) != -1;) {
        if (letter == 's') {
            options.seconds = strtod(optarg, NULL);
        } else if (letter == 't') {
            options.n_threads = atoi(optarg);
        } else if (letter == 'f') {
            options.files = optarg;
        } else if (letter == 'd') {
            options.demo_only = true;
        } else {
            fprintf(stderr,
                    "usage: bench_measure [--seconds N] [--threads N] [--files DIR] [--demo]\n");
            return 2;
        }
    }
    options.n_threads = hl_threads(options.n_threads);
    if (run(&options) != HL_OK) {
        fprintf(stderr, "bench_measure: %s\n", hl_error_message());
        return 1;
    }
    return 0;
}
