/* bench_model.c - times whole passes of a model by headlight and by other software.
 *
 *     build/bench_model [--seconds N] [--threads N] [--only WORD,WORD] [--no-peer]
 *                       [--files DIR] [--make-files] [--json FILE]
 *
 * The model has GPT-2's shapes and 124 million random weights (gpt2_files.h).  A round runs every
 * lane once: prefill of 512 and of 1024 tokens, and 64 tokens one by one after 64 others, by
 * headlight with and without statistics on four types of weights, by ONNX Runtime with f32, and by
 * llama.cpp on the same files as headlight.  Lanes that are compared were therefore measured within
 * a minute.  The results are medians; a ratio is the median of the rounds' ratios.
 *
 * llama-bench loads the model and warms up at each start, which is not timed.  All other programs
 * keep running. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/machine.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "gpt2_files.h"
#include "llama_bench.h"
#include "model_report.h"
#include "model_work.h"
#include "neighbors.h"
#include "peer.h"

#define MAX_ERROR 1e-4 /* largest error of a peer's hidden states, which are about 1 */

enum {
    MIN_ROUNDS = 3,
    N_CHECKED  = 512, /* number of tokens for comparing hidden states */
    N_BEFORE   = 64,
    N_DECODED  = 64,
    MAX_WORDS  = 16,
};

typedef struct bench_options {
    double      seconds; /* seconds for all rounds together */
    int         n_threads;
    bool        no_peer;
    bool        make_files; /* only makes the files */
    const char *folder;
    const char *json_path;
    const char *only[MAX_WORDS];
    int         n_only;
} bench_options;

/* The programs that are timed; the peers may be missing. */
typedef struct bench_runners {
    const bench_options *options;
    hl_model_work       *work;
    hl_peer             *onnx;
    char                 llama[64]; /* llama.cpp's name, known after its first run */
} bench_runners;

/* --------------------------------------------------------------------- lanes */

static const char *type_word(hl_dtype dtype)
{
    switch (dtype) {
    case HL_DTYPE_F16:
        return "f16";
    case HL_DTYPE_Q8_0:
        return "q8_0";
    case HL_DTYPE_Q4_0:
        return "q4_0";
    default:
        return "f32";
    }
}

static bool is_ours(hl_runner runner)
{
    return runner != HL_RUNNER_ONNX && runner != HL_RUNNER_LLAMA;
}

static void name_lane(hl_model_lane *lane)
{
    static const char *const endings[] = { ".plain", ".all", ".last", "", "" };
    const char              *who       = lane->runner == HL_RUNNER_ONNX    ? "onnx"
                                         : lane->runner == HL_RUNNER_LLAMA ? "llama"
                                                                           : "ours";
    char                     task[16];

    if (lane->is_decode)
        snprintf(task, sizeof task, "decode");
    else
        snprintf(task, sizeof task, "p%d", (int)lane->n_tokens);
    snprintf(lane->name, sizeof lane->name, "%s.%s.%s%s", task, who, type_word(lane->dtype),
             lane->is_decode ? "" : endings[lane->runner]);
}

static bool is_asked_for(const hl_model_lane *lane, const bench_options *options)
{
    if (options->no_peer && !is_ours(lane->runner))
        return false;
    for (int i = 0; i < options->n_only; i++)
        if (strstr(lane->name, options->only[i]) != NULL)
            return true;
    return options->n_only == 0;
}

static void add_lane(hl_model_result *result, const bench_options *options, hl_model_lane lane)
{
    name_lane(&lane);
    if (is_asked_for(&lane, options))
        result->lanes[result->n_lanes++] = lane;
}

static void add_prefill(hl_model_result *result, const bench_options *options, int64_t n_tokens)
{
    static const struct {
        hl_runner runner;
        hl_dtype  dtype;
    } lanes[] = {
        { HL_RUNNER_PLAIN, HL_DTYPE_F32 },  { HL_RUNNER_ALL, HL_DTYPE_F32 },
        { HL_RUNNER_ONNX, HL_DTYPE_F32 },   { HL_RUNNER_LAST, HL_DTYPE_F32 },
        { HL_RUNNER_LLAMA, HL_DTYPE_F32 },  { HL_RUNNER_LAST, HL_DTYPE_F16 },
        { HL_RUNNER_LLAMA, HL_DTYPE_F16 },  { HL_RUNNER_LAST, HL_DTYPE_Q8_0 },
        { HL_RUNNER_LLAMA, HL_DTYPE_Q8_0 },
    };

    for (size_t i = 0; i < sizeof lanes / sizeof *lanes; i++)
        add_lane(result, options,
                 (hl_model_lane){
                     .n_tokens = n_tokens, .runner = lanes[i].runner, .dtype = lanes[i].dtype });
}

static void add_decode(hl_model_result *result, const bench_options *options)
{
    for (int i = 0; i < HL_MODEL_N_TYPES; i++) {
        hl_model_lane lane = { .is_decode = true,
                               .n_tokens  = N_DECODED,
                               .runner    = HL_RUNNER_LAST,
                               .dtype     = hl_model_types[i] };

        add_lane(result, options, lane);
        lane.runner = HL_RUNNER_LLAMA;
        add_lane(result, options, lane);
    }
}

/* -------------------------------------------------------------------- rounds */

static hl_status run_ours(double *seconds, const hl_model_lane *lane, hl_model_work *work)
{
    static const hl_pass passes[] = { HL_PASS_PLAIN, HL_PASS_ALL, HL_PASS_LAST };

    if (lane->is_decode)
        return hl_model_work_decode(seconds, work, lane->dtype, N_BEFORE, lane->n_tokens);
    return hl_model_work_prefill(seconds, work, lane->dtype, passes[lane->runner], lane->n_tokens);
}

static hl_status run_llama(double *seconds, const hl_model_lane *lane, bench_runners *runners)
{
    const bench_options *options = runners->options;
    char                 path[512];
    hl_llama_test        test = { .model     = path,
                                  .n_prompt  = lane->is_decode ? 0 : lane->n_tokens,
                                  .n_gen     = lane->is_decode ? lane->n_tokens : 0,
                                  .n_depth   = lane->is_decode ? N_BEFORE : 0,
                                  .n_threads = options->n_threads,
                                  .n_runs    = 1 };
    hl_llama_run         run  = { 0 };

    hl_gpt2_file(path, sizeof path, options->folder, lane->dtype);
    hl_status status = hl_llama_bench(&run, &test);
    *seconds         = run.seconds;
    if (status == HL_OK)
        snprintf(runners->llama, sizeof runners->llama, "%s", run.name);
    return status;
}

static hl_status run_once(double *seconds, const hl_model_lane *lane, bench_runners *runners)
{
    switch (lane->runner) {
    case HL_RUNNER_LLAMA:
        return run_llama(seconds, lane, runners);
    case HL_RUNNER_ONNX:
        return hl_peer_time(seconds, runners->onnx, lane->n_tokens);
    default:
        return run_ours(seconds, lane, runners->work);
    }
}

static hl_status run_lane(hl_model_lane *lane, bench_runners *runners, bool counts)
{
    double    seconds = 0.0;
    hl_status status  = run_once(&seconds, lane, runners);

    /* A peer that fails is left out from then on; a failure of headlight ends the run. */
    if (status != HL_OK && !is_ours(lane->runner)) {
        printf("  %s: %s\n", lane->name, hl_error_message());
        lane->gave_up = true;
        return HL_OK;
    }
    if (status == HL_OK && counts)
        bench_series_add(&lane->seconds, seconds);
    return status;
}

/* Each round starts with another lane, because the first lane has a cool machine. */
static hl_status run_round(hl_model_result *result, bench_runners *runners)
{
    hl_status status = HL_OK;

    for (int i = 0; i < result->n_lanes; i++) {
        hl_model_lane *lane = &result->lanes[(i + result->n_rounds) % result->n_lanes];

        if (lane->gave_up)
            bench_series_skip(&lane->seconds);
        else
            HL_TRY(run_lane(lane, runners, true));
    }
    result->n_rounds++;

done:
    return status;
}

/* Maps the weights and touches all memory; llama-bench does this itself. */
static hl_status warm_up(hl_model_result *result, bench_runners *runners)
{
    hl_status status = HL_OK;

    for (int i = 0; i < result->n_lanes; i++) {
        if (result->lanes[i].runner != HL_RUNNER_LLAMA && !result->lanes[i].gave_up)
            HL_TRY(run_lane(&result->lanes[i], runners, false));
    }

done:
    return status;
}

/* --------------------------------------------------------------------- peers */

static bool has_lane(const hl_model_result *result, hl_runner runner)
{
    for (int i = 0; i < result->n_lanes; i++)
        if (result->lanes[i].runner == runner)
            return true;
    return false;
}

static void leave_out(hl_model_result *result, hl_runner runner)
{
    for (int i = 0; i < result->n_lanes; i++)
        result->lanes[i].gave_up |= result->lanes[i].runner == runner;
}

static void look_for_llama(hl_model_result *result)
{
    if (!has_lane(result, HL_RUNNER_LLAMA)) {
        snprintf(result->llama, sizeof result->llama, "llama.cpp: not asked for");
    } else if (hl_llama_bench_path() == NULL) {
        snprintf(result->llama, sizeof result->llama, "llama.cpp: none: %.160s",
                 hl_error_message());
        leave_out(result, HL_RUNNER_LLAMA);
    }
}

static void look_for_onnx(hl_model_result *result, bench_runners *runners)
{
    if (!has_lane(result, HL_RUNNER_ONNX)) {
        snprintf(result->onnx, sizeof result->onnx, "ONNX Runtime: not asked for");
        return;
    }
    if (hl_peer_open(&runners->onnx, "bench/peers/onnx_gpt2.js", runners->options->n_threads,
                     runners->options->folder) == HL_OK) {
        snprintf(result->onnx, sizeof result->onnx, "%s", hl_peer_name(runners->onnx));
        return;
    }
    snprintf(result->onnx, sizeof result->onnx, "ONNX Runtime: none: %.160s", hl_error_message());
    leave_out(result, HL_RUNNER_ONNX);
}

/* Compares the hidden states that a peer has written to a file with headlight's. */
static hl_status largest_difference(double *out, const float *ours, const char *path,
                                    size_t n_values)
{
    hl_file   file   = { 0 };
    hl_status status = hl_file_map(&file, path);

    if (status != HL_OK)
        return status;
    if (file.n_bytes != n_values * sizeof *ours)
        status = hl_fail(HL_BAD_INPUT, "%s: %zu bytes, wanted %zu", path, file.n_bytes,
                         n_values * sizeof *ours);
    *out = 0.0;
    for (size_t i = 0; i < n_values && status == HL_OK; i++) {
        float theirs;
        memcpy(&theirs, file.bytes + i * sizeof theirs, sizeof theirs);
        double difference = fabs((double)ours[i] - (double)theirs);
        *out              = difference > *out || isnan(difference) ? difference : *out;
    }
    hl_file_unmap(&file);
    return status;
}

/* A peer whose results differ is not comparable: its lanes are dropped. */
static hl_status check_onnx(hl_model_result *result, const bench_runners *runners)
{
    hl_status status = HL_OK;
    size_t    count  = (size_t)N_CHECKED * HL_GPT2_MODEL;
    float    *ours   = NULL;
    char      path[512], line[600];

    if (runners->onnx == NULL)
        return HL_OK;
    snprintf(path, sizeof path, "%s/onnx-hidden.f32", runners->options->folder);
    snprintf(line, sizeof line, "hidden %d %s", N_CHECKED, path);
    HL_TRY(HL_ALLOC(&ours, count));
    HL_TRY(hl_model_work_hidden(ours, runners->work, N_CHECKED));
    bool answered = hl_peer_tell(runners->onnx, line) == HL_OK &&
                    largest_difference(&result->onnx_error, ours, path, count) == HL_OK;
    if (!answered)
        printf("ONNX Runtime is left out: %s\n", hl_error_message());
    else if (!(result->onnx_error < MAX_ERROR))
        printf("ONNX Runtime is left out: its hidden states are off by %g\n", result->onnx_error);
    if (!(result->onnx_error < MAX_ERROR))
        leave_out(result, HL_RUNNER_ONNX);

done:
    hl_free(ours);
    return status;
}

/* --------------------------------------------------------------------- whole */

static void print_title(const hl_model_result *result, const bench_options *options)
{
    printf("GPT-2's shapes, 124M made-up weights, one sequence, %d threads, %.0f s\n",
           options->n_threads, options->seconds);
    printf("%s\n%s\n", hl_cpu_features()->name, hl_build_info());
    if (result->busy > HL_BUSY)
        printf("NOTE: others used %.0f%% of the CPUs before this began.\n", 100.0 * result->busy);
    fflush(stdout);
}

static hl_status measure(hl_model_result *result, bench_runners *runners)
{
    hl_status status = HL_OK;

    HL_TRY(warm_up(result, runners));
    double start = hl_bench_now();
    while (result->n_rounds < MIN_ROUNDS || (result->n_rounds < BENCH_SERIES_MAX &&
                                             hl_bench_now() - start < runners->options->seconds)) {
        fprintf(stderr, "round %d, %.0f s ...\n", result->n_rounds + 1, hl_bench_now() - start);
        HL_TRY(run_round(result, runners));
    }

done:
    return status;
}

/* Runs in a child, because OpenMP's threads would not survive the later forks. */
static hl_status make_files(const char *folder)
{
    int   result = 0;
    pid_t child  = fork();

    if (child == 0) {
        hl_status status = hl_gpt2_files_make(folder);
        if (status != HL_OK)
            fprintf(stderr, "bench_model: %s\n", hl_error_message());
        _exit(status == HL_OK ? 0 : 1);
    }
    if (child < 0 || waitpid(child, &result, 0) != child || result != 0)
        return hl_fail(HL_IO, "%s: the model's files could not be made", folder);
    return HL_OK;
}

/* Measures memory for the types of weights in headlight's lanes. */
static void probe_memory(hl_model_result *result, const bench_options *options)
{
    for (int i = 0; i < HL_MODEL_N_TYPES; i++) {
        bool wanted = false;

        for (int j = 0; j < result->n_lanes; j++)
            wanted |=
                is_ours(result->lanes[j].runner) && result->lanes[j].dtype == hl_model_types[i];
        result->memory_kib[i] = -1;
        if (wanted)
            result->memory_kib[i] =
                hl_model_work_memory(options->folder, hl_model_types[i], options->n_threads);
    }
}

static hl_status run(const bench_options *options)
{
    static hl_model_result result; /* static because it is large: it has all times of all rounds */
    hl_status              status  = HL_OK;
    bench_runners          runners = { .options = options };

    HL_TRY(make_files(options->folder));
    if (options->make_files)
        return HL_OK;
    add_prefill(&result, options, 512);
    add_prefill(&result, options, 1024);
    add_decode(&result, options);
    if (result.n_lanes == 0)
        return hl_fail(HL_BAD_ARGUMENT, "--only: no lane has such a name");
    result.n_threads  = options->n_threads;
    result.onnx_error = NAN;
    result.busy       = hl_share_in_use();
    probe_memory(&result, options);
    look_for_llama(&result);
    look_for_onnx(&result, &runners);
    print_title(&result, options);

    HL_TRY(hl_model_work_new(&runners.work, options->folder, options->n_threads));
    HL_TRY(check_onnx(&result, &runners));
    HL_TRY(measure(&result, &runners));
    if (runners.llama[0] != '\0')
        snprintf(result.llama, sizeof result.llama, "%s", runners.llama);
    hl_model_report_print(&result);
    if (options->json_path != NULL)
        HL_TRY(hl_model_report_json(&result, options->json_path));

done:
    hl_peer_close(runners.onnx);
    hl_model_work_free(runners.work);
    return status;
}

/* ------------------------------------------------------------------- options */

static bool parse_only(bench_options *options, char *text)
{
    for (char *word = strtok(text, ","); word != NULL; word = strtok(NULL, ",")) {
        if (options->n_only == MAX_WORDS)
            return false;
        options->only[options->n_only++] = word;
    }
    return true;
}

static bool parse_one(bench_options *options, int letter)
{
    switch (letter) {
    case 's':
        options->seconds = strtod(optarg, NULL);
        return true;
    case 't':
        options->n_threads = atoi(optarg);
        return true;
    case 'o':
        return parse_only(options, optarg);
    case 'p':
        options->no_peer = true;
        return true;
    case 'f':
        options->folder = optarg;
        return true;
    case 'm':
        options->make_files = true;
        return true;
    case 'j':
        options->json_path = optarg;
        return true;
    default:
        return false;
    }
}

static bool parse(bench_options *options, int argc, char **argv)
{
    static const struct option table[] = {
        { "seconds", required_argument, NULL, 's' }, { "threads", required_argument, NULL, 't' },
        { "only", required_argument, NULL, 'o' },    { "no-peer", no_argument, NULL, 'p' },
        { "files", required_argument, NULL, 'f' },   { "make-files", no_argument, NULL, 'm' },
        { "json", required_argument, NULL, 'j' },    { NULL, 0, NULL, 0 },
    };
    bool good = true;

    for (int letter; (letter = getopt_long(argc, argv, "", table, NULL)) != -1;)
        good = parse_one(options, letter) && good;
    return good && optind == argc;
}

int main(int argc, char **argv)
{
    bench_options options = { .seconds = 180.0, .folder = "build/bench" };

    if (!parse(&options, argc, argv)) {
        fprintf(stderr, "usage: bench_model [--seconds N] [--threads N] [--only WORD,WORD] "
                        "[--no-peer]\n                   [--files DIR] [--make-files] "
                        "[--json FILE]\n");
        return 2;
    }
    options.n_threads = hl_threads(options.n_threads);
    if (run(&options) != HL_OK) {
        fprintf(stderr, "bench_model: %s\n", hl_error_message());
        return 1;
    }
    return 0;
}
