/* bench_model.c - times whole passes of models by headlight and by other software.
 *
 *     build/bench_model [--seconds N] [--rounds N] [--threads N] [--only WORD,WORD] [--no-peer]
 *                       [--files DIR] [--make-files] [--json FILE] [FILE.gguf ...]
 *
 * Without files: GPT-2's shapes (gpt2_files.h) and TinyLlama's (llama_files.h), with random weights.
 * A round runs every lane once: prefill, and 64 tokens one by one after 64 others, by headlight in
 * each of its modes with and without statistics, by llama.cpp and ik_llama.cpp on the same files, and
 * for GPT-2's body in f32 by ONNX Runtime, OpenVINO and transformers.  Lanes that are compared were
 * therefore measured within a minute.  The results are medians; a ratio is the median of the rounds'
 * ratios.
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

#include "base/dtype.h"
#include "base/file.h"
#include "base/machine.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "gpt2_files.h"
#include "kernels/linear.h"
#include "llama_bench.h"
#include "llama_files.h"
#include "model_report.h"
#include "model_work.h"
#include "neighbors.h"
#include "peer.h"

#define MAX_ERROR      1e-4 /* largest error of an f32 peer's hidden states, which are about 1 */
#define MAX_ERROR_BF16 0.2

enum {
    N_CHECKED = 512, /* number of tokens for comparing hidden states */
    N_BEFORE  = 64,
    N_DECODED = 64,
    N_PROMPT  = 256, /* of a file other than GPT-2's */
    PEER_RUNS = 2,   /* of llama-bench; the faster one counts */
    MAX_WORDS = 16,
    PAUSE     = 50000, /* microseconds between lanes: programs spin a while after a run */
};

typedef struct bench_options {
    double       seconds;    /* seconds for all rounds together */
    int          min_rounds; /* but at least this many */
    int          n_threads;
    bool         no_peer;
    bool         make_files; /* only makes the files */
    const char  *folder;
    const char  *json_path;
    const char  *only[MAX_WORDS];
    int          n_only;
    char *const *models; /* files instead of ours */
    int          n_models;
} bench_options;

/* The programs that are timed; the peers may be missing. */
typedef struct bench_runners {
    const bench_options *options;
    hl_model_work       *work;
    hl_peer             *scripts[HL_N_RUNNERS];
} bench_runners;

/* --------------------------------------------------------------------- lanes */

static void name_lane(hl_model_lane *lane)
{
    static const char *const works[] = { "body", "last", "" };
    char                     task[32], mode[32] = "";

    if (lane->kind == HL_WORK_DECODE)
        snprintf(task, sizeof task, "decode");
    else
        snprintf(task, sizeof task, "p%d.%s", (int)lane->n_tokens, works[lane->kind]);
    if (lane->runner == HL_RUNNER_OURS)
        snprintf(mode, sizeof mode, ".%s%s", hl_math_name(lane->math),
                 lane->is_plain ? ".plain" : "");
    snprintf(lane->name, sizeof lane->name, "%.40s.%s.%s%s", lane->file->label, task,
             hl_runner_word(lane->runner), mode);
}

static bool is_asked_for(const hl_model_lane *lane, const bench_options *options)
{
    if (options->no_peer && lane->runner != HL_RUNNER_OURS)
        return false;
    for (int i = 0; i < options->n_only; i++)
        if (strstr(lane->name, options->only[i]) != NULL)
            return true;
    return options->n_only == 0;
}

static void add_lane(hl_model_result *result, const bench_options *options, hl_model_lane lane)
{
    name_lane(&lane);
    if (result->n_lanes < HL_MODEL_MAX_LANES && is_asked_for(&lane, options))
        result->lanes[result->n_lanes++] = lane;
}

/* Whether a mode differs from f32 for a file's type and this work. */
static bool has_mode(const hl_model_lane *lane, hl_math math)
{
    bool is_block = lane->file->dtype == HL_DTYPE_F64 || hl_dtype_is_block(lane->file->dtype);

    if (math == HL_MATH_BF16)
        return lane->kind != HL_WORK_DECODE && !is_block && hl_cpu_features()->bf16;
    return math == HL_MATH_F32 || is_block;
}

/* One cell: our lanes, then those of peers. */
static void add_cell(hl_model_result *result, const bench_options *options,
                     const hl_model_file *file, hl_work_kind kind, int64_t n_tokens)
{
    hl_model_lane lane = { .file = file, .kind = kind, .n_tokens = n_tokens };

    for (int math = HL_MATH_F32; math < HL_MATH_COUNT; math++) {
        lane.math = (hl_math)math;
        for (int plain = 1; plain >= 0 && has_mode(&lane, lane.math); plain--) {
            lane.is_plain = plain == 1;
            add_lane(result, options, lane);
        }
    }
    for (int runner = HL_RUNNER_ONNX; runner < HL_N_RUNNERS; runner++) {
        lane.runner    = (hl_runner)runner;
        bool is_script = runner < HL_RUNNER_LLAMA;
        if (is_script == (kind == HL_WORK_BODY))
            add_lane(result, options, lane);
    }
}

static hl_model_file *add_file(hl_model_result *result, hl_dtype dtype, double products)
{
    hl_model_file *file = &result->files[result->n_files++];

    file->dtype    = dtype;
    file->products = products;
    return file;
}

/* The file's name without its ending; "model" is named by its folder. */
static void label_file(hl_model_file *file)
{
    char  path[512];
    char *name = path, *slash;

    snprintf(path, sizeof path, "%s", file->path);
    char *end = strrchr(path, '.');
    if (end != NULL)
        *end = '\0';
    if ((slash = strrchr(path, '/')) != NULL)
        name = slash + 1;
    if (slash != NULL && strcmp(name, "model") == 0) {
        *slash = '\0';
        slash  = strrchr(path, '/');
        name   = slash != NULL ? slash + 1 : path;
    }
    snprintf(file->label, sizeof file->label, "%.60s", name);
}

static void add_gpt2(hl_model_result *result, const bench_options *options)
{
    static const hl_dtype types[]  = { HL_DTYPE_F32, HL_DTYPE_F16, HL_DTYPE_Q8_0, HL_DTYPE_Q4_0 };
    const double          products = 12.0 * HL_GPT2_LAYERS * HL_GPT2_MODEL * HL_GPT2_MODEL;

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        hl_model_file *file = add_file(result, types[i], products);
        hl_gpt2_file(file->path, sizeof file->path, options->folder, types[i]);
        label_file(file);
        for (int64_t n = 512; n <= 1024 && types[i] == HL_DTYPE_F32; n += 512)
            add_cell(result, options, file, HL_WORK_BODY, n);
        add_cell(result, options, file, HL_WORK_LAST, 512);
        add_cell(result, options, file, HL_WORK_DECODE, N_DECODED);
    }
}

static void add_llama(hl_model_result *result, const bench_options *options)
{
    for (int i = 0; i < HL_LLAMA_N_TYPES; i++) {
        hl_model_file *file = add_file(result, hl_llama_types[i], HL_LLAMA_PRODUCTS);
        hl_llama_file(file->path, sizeof file->path, options->folder, hl_llama_types[i]);
        label_file(file);
        add_cell(result, options, file, HL_WORK_LAST, N_PROMPT);
        add_cell(result, options, file, HL_WORK_DECODE, N_DECODED);
    }
}

static void add_models(hl_model_result *result, const bench_options *options)
{
    for (int i = 0; i < options->n_models && i < HL_MODEL_MAX_FILES; i++) {
        hl_model_file *file = add_file(result, HL_DTYPE_F64, 0.0);
        snprintf(file->path, sizeof file->path, "%s", options->models[i]);
        label_file(file);
        add_cell(result, options, file, HL_WORK_LAST, N_PROMPT);
        add_cell(result, options, file, HL_WORK_DECODE, N_DECODED);
    }
}

/* -------------------------------------------------------------------- rounds */

static hl_status run_ours(double *seconds, const hl_model_lane *lane, hl_model_work *work)
{
    hl_model_pass pass = {
        .path = lane->file->path, .math = lane->math, .kind = lane->kind, .is_plain = lane->is_plain
    };

    if (lane->kind == HL_WORK_DECODE)
        return hl_model_work_decode(seconds, work, &pass, N_BEFORE, lane->n_tokens);
    return hl_model_work_prefill(seconds, work, &pass, lane->n_tokens);
}

static hl_status run_llama(double *seconds, const hl_model_lane *lane, hl_model_result *result)
{
    bool          is_ik   = lane->runner == HL_RUNNER_IK;
    bool          decodes = lane->kind == HL_WORK_DECODE;
    hl_llama_test test    = { .program   = hl_llama_bench_path(is_ik),
                              .is_ik     = is_ik,
                              .model     = lane->file->path,
                              .n_prompt  = decodes ? 0 : lane->n_tokens,
                              .n_gen     = decodes ? lane->n_tokens : 0,
                              .n_depth   = decodes ? N_BEFORE : 0,
                              .n_threads = result->n_threads,
                              .n_runs    = PEER_RUNS };
    hl_llama_run  run     = { 0 };

    hl_status status = hl_llama_bench(&run, &test);
    *seconds         = run.seconds;
    if (status == HL_OK)
        snprintf(result->peers[lane->runner], sizeof result->peers[0], "%s", run.name);
    return status;
}

static hl_status run_once(double *seconds, const hl_model_lane *lane, hl_model_result *result,
                          bench_runners *runners)
{
    usleep(PAUSE);
    switch (lane->runner) {
    case HL_RUNNER_OURS:
        return run_ours(seconds, lane, runners->work);
    case HL_RUNNER_LLAMA:
    case HL_RUNNER_IK:
        return run_llama(seconds, lane, result);
    default:
        return hl_peer_time(seconds, runners->scripts[lane->runner], lane->n_tokens);
    }
}

static hl_status run_lane(hl_model_lane *lane, hl_model_result *result, bench_runners *runners,
                          bool counts)
{
    double    seconds = 0.0;
    hl_status status  = run_once(&seconds, lane, result, runners);

    /* A peer that fails is left out from then on; a failure of headlight ends the run. */
    if (status != HL_OK && lane->runner != HL_RUNNER_OURS) {
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
            HL_TRY(run_lane(lane, result, runners, true));
    }
    result->n_rounds++;

done:
    return status;
}

/* The number of passes after which a lane runs as it does from then on. */
static int warm_passes(const hl_model_lane *lane)
{
    bool repacks = lane->runner == HL_RUNNER_OURS && lane->kind != HL_WORK_DECODE;

    return repacks ? HL_REPACK_AFTER + 1 : 1;
}

/* Maps the weights and touches all memory; llama-bench does this itself. */
static hl_status warm_up(hl_model_result *result, bench_runners *runners)
{
    hl_status status = HL_OK;

    for (int i = 0; i < result->n_lanes; i++) {
        hl_model_lane *lane = &result->lanes[i];

        for (int k = 0; k < warm_passes(lane) && lane->runner < HL_RUNNER_LLAMA && !lane->gave_up;
             k++)
            HL_TRY(run_lane(lane, result, runners, false));
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

static void look_for_llama(hl_model_result *result, hl_runner runner)
{
    if (hl_llama_bench_path(runner == HL_RUNNER_IK) != NULL)
        return;
    snprintf(result->peers[runner], sizeof result->peers[0], "none: %.180s", hl_error_message());
    leave_out(result, runner);
}

static void look_for_script(hl_model_result *result, bench_runners *runners, hl_runner runner)
{
    char argument[600];

    snprintf(argument, sizeof argument, "%s:%s", hl_runner_word(runner), runners->options->folder);
    if (hl_peer_open(&runners->scripts[runner], "bench/peers/gpt2_peer.py", result->n_threads,
                     argument) == HL_OK) {
        snprintf(result->peers[runner], sizeof result->peers[0], "%s",
                 hl_peer_name(runners->scripts[runner]));
        return;
    }
    snprintf(result->peers[runner], sizeof result->peers[0], "none: %.180s", hl_error_message());
    leave_out(result, runner);
}

static void look_for_peers(hl_model_result *result, bench_runners *runners)
{
    for (int i = HL_RUNNER_ONNX; i < HL_N_RUNNERS; i++) {
        if (!has_lane(result, (hl_runner)i))
            snprintf(result->peers[i], sizeof result->peers[0], "not asked for");
        else if (i >= HL_RUNNER_LLAMA)
            look_for_llama(result, (hl_runner)i);
        else
            look_for_script(result, runners, (hl_runner)i);
    }
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
static hl_status check_peers(hl_model_result *result, const bench_runners *runners)
{
    hl_status status = HL_OK;
    size_t    count  = (size_t)N_CHECKED * HL_GPT2_MODEL;
    float    *ours   = NULL;
    char      path[512], line[600];

    for (int i = HL_RUNNER_ONNX; i < HL_RUNNER_LLAMA; i++) {
        double limit = i == HL_RUNNER_OPENVINO_BF16 ? MAX_ERROR_BF16 : MAX_ERROR;

        if (runners->scripts[i] == NULL)
            continue;
        if (ours == NULL) {
            HL_TRY(HL_ALLOC(&ours, count));
            hl_gpt2_file(path, sizeof path, runners->options->folder, HL_DTYPE_F32);
            HL_TRY(hl_model_work_hidden(ours, runners->work, path, N_CHECKED));
        }
        snprintf(path, sizeof path, "%s/peer-hidden.f32", runners->options->folder);
        snprintf(line, sizeof line, "hidden %d %s", N_CHECKED, path);
        bool answered = hl_peer_tell(runners->scripts[i], line) == HL_OK &&
                        largest_difference(&result->errors[i], ours, path, count) == HL_OK;
        if (!answered)
            printf("%s is left out: %s\n", result->peers[i], hl_error_message());
        else if (!(result->errors[i] < limit))
            printf("%s is left out: its hidden states are off by %g\n", result->peers[i],
                   result->errors[i]);
        if (!(result->errors[i] < limit))
            leave_out(result, (hl_runner)i);
    }

done:
    hl_free(ours);
    return status;
}

/* --------------------------------------------------------------------- whole */

static void print_title(const hl_model_result *result, const bench_options *options)
{
    printf("one sequence, %d threads, %.0f s\n", options->n_threads, options->seconds);
    printf("%s\n%s\n", hl_cpu_features()->name, hl_build_info());
    if (result->busy > HL_BUSY)
        printf("NOTE: others used %.0f%% of the CPUs before this began.\n", 100.0 * result->busy);
    fflush(stdout);
}

static hl_status measure(hl_model_result *result, bench_runners *runners)
{
    hl_status  status = HL_OK;
    hl_machine machine;

    HL_TRY(warm_up(result, runners));
    double start = hl_bench_now();
    while (result->n_rounds < runners->options->min_rounds ||
           (result->n_rounds < BENCH_SERIES_MAX &&
            hl_bench_now() - start < runners->options->seconds)) {
        fprintf(stderr, "round %d, %.0f s ...\n", result->n_rounds + 1, hl_bench_now() - start);
        HL_TRY(run_round(result, runners));
        HL_TRY(hl_machine_probe(&machine, result->n_threads));
        bench_series_add(&result->peak, machine.all.gflops);
        bench_series_add(&result->bandwidth, machine.all.gigabytes);
    }

done:
    return status;
}

/* Makes the files of the lanes. */
static hl_status make_all(const hl_model_result *result, const char *folder)
{
    bool has_gpt2 = false;

    for (int i = 0; i < result->n_lanes; i++)
        has_gpt2 = has_gpt2 || strncmp(result->lanes[i].file->label, "gpt2", 4) == 0;
    if (has_gpt2)
        HL_NEED(hl_gpt2_files_make(folder));
    for (int i = 0; i < result->n_lanes; i++) {
        if (strncmp(result->lanes[i].file->label, "llama", 5) == 0)
            HL_NEED(hl_llama_file_make(folder, result->lanes[i].file->dtype));
    }
    return HL_OK;
}

/* Runs in a child, because OpenMP's threads would not survive the later forks. */
static hl_status make_files(const hl_model_result *made, const char *folder)
{
    int   result = 0;
    pid_t child  = fork();

    if (child == 0) {
        hl_status status = make_all(made, folder);
        if (status != HL_OK)
            fprintf(stderr, "bench_model: %s\n", hl_error_message());
        _exit(status == HL_OK ? 0 : 1);
    }
    if (child < 0 || waitpid(child, &result, 0) != child || result != 0)
        return hl_fail(HL_IO, "%s: the models' files could not be made", folder);
    return HL_OK;
}

/* Measures memory for the files and modes of headlight's lanes. */
static void probe_memory(hl_model_result *result)
{
    for (int i = 0; i < result->n_files; i++) {
        for (int math = 0; math < HL_MATH_COUNT; math++)
            result->files[i].memory_kib[math] = -1;
    }
    for (int i = 0; i < result->n_lanes; i++) {
        hl_model_lane *lane = &result->lanes[i];
        long          *kib  = &result->files[lane->file - result->files].memory_kib[lane->math];

        if (lane->runner == HL_RUNNER_OURS && lane->kind != HL_WORK_DECODE && *kib < 0)
            *kib = hl_model_work_memory(lane->file->path, lane->math, result->n_threads);
    }
}

static hl_status run(const bench_options *options)
{
    static hl_model_result result; /* static because it is large: it has all times of all rounds */
    hl_status              status  = HL_OK;
    bench_runners          runners = { .options = options };

    if (options->n_models == 0) {
        add_gpt2(&result, options);
        add_llama(&result, options);
    }
    add_models(&result, options);
    if (result.n_lanes == 0)
        return hl_fail(HL_BAD_ARGUMENT, "--only: no lane has such a name");
    if (options->n_models == 0)
        HL_TRY(make_files(&result, options->folder));
    if (options->make_files)
        return HL_OK;
    result.n_threads = options->n_threads;
    for (int i = 0; i < HL_N_RUNNERS; i++)
        result.errors[i] = NAN;
    result.busy = hl_share_in_use();
    probe_memory(&result);
    look_for_peers(&result, &runners);
    print_title(&result, options);

    HL_TRY(hl_model_work_new(&runners.work, options->n_threads));
    HL_TRY(check_peers(&result, &runners));
    HL_TRY(measure(&result, &runners));
    hl_model_report_print(&result);
    if (options->json_path != NULL)
        HL_TRY(hl_model_report_json(&result, options->json_path));

done:
    for (int i = 0; i < HL_N_RUNNERS; i++)
        hl_peer_close(runners.scripts[i]);
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
    case 'r':
        options->min_rounds = atoi(optarg);
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
        { "seconds", required_argument, NULL, 's' },
        { "rounds", required_argument, NULL, 'r' },
        { "threads", required_argument, NULL, 't' },
        { "only", required_argument, NULL, 'o' },
        { "no-peer", no_argument, NULL, 'p' },
        { "files", required_argument, NULL, 'f' },
        { "make-files", no_argument, NULL, 'm' },
        { "json", required_argument, NULL, 'j' },
        { NULL, 0, NULL, 0 },
    };
    bool good = true;

    for (int letter; (letter = getopt_long(argc, argv, "", table, NULL)) != -1;)
        good = parse_one(options, letter) && good;
    options->models   = argv + optind;
    options->n_models = argc - optind;
    return good;
}

int main(int argc, char **argv)
{
    bench_options options = { .seconds = 600.0, .min_rounds = 3, .folder = "build/bench" };

    if (!parse(&options, argc, argv)) {
        fprintf(stderr,
                "usage: bench_model [--seconds N] [--rounds N] [--threads N] [--only WORD,WORD] "
                "[--no-peer]\n                   [--files DIR] [--make-files] "
                "[--json FILE] [FILE.gguf ...]\n");
        return 2;
    }
    options.n_threads = hl_threads(options.n_threads);
    if (run(&options) != HL_OK) {
        fprintf(stderr, "bench_model: %s\n", hl_error_message());
        return 1;
    }
    return 0;
}
