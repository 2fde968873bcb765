/* bench_attention.c - compares attention with entropy with the plain method.
 *
 *     build/bench_attention [--seconds N] [--sizes 1024,4096] [--threads N]
 *                           [--no-peer] [--json FILE]
 *
 * For each length the program runs rounds; a round runs every lane once: headlight's kernels with
 * no, one and all statistics and backward, the materialized method in C and in PyTorch, PyTorch's
 * scaled_dot_product_attention, which measures nothing, and the machine's multiply-add peak.  Lanes that are compared were therefore measured within seconds.
 * The three forward passes of a back end differ by less than the machine's noise, so they take
 * turns; from 4096 keys on, where a pass lasts longer, they take turns after every two heads.  The
 * results are medians; a ratio is the median of the rounds' ratios.
 *
 * A length gets --seconds of headlight's own work, and at least 31 rounds.  Lanes that take long
 * and are far from their bar (backward, the materialized method) run in every fourth round.  Other
 * software stops when it has used half of the seconds in three runs, or twice the seconds in
 * fewer. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"
#include "base/status.h"
#include "base/threads.h"
#include "materialized.h"
#include "memory_probe.h"
#include "neighbors.h"
#include "peak.h"
#include "peer.h"
#include "report.h"
#include "series.h"
#include "workload.h"

enum {
    N_HEADS      = 12,
    HEADS_A_TURN = 2,
    LONG_KEYS    = 4096,
    N_FORWARD    = 3,
    D_HEAD       = 64,
    MIN_ROUNDS   = 31,
    PEER_RUNS    = 3,
    SELDOM       = 4,
    PROBE_KEYS   = 32768
};

typedef struct bench_options {
    double      seconds; /* seconds per length */
    int64_t     sizes[HL_MAX_SIZES];
    int         n_sizes;
    int         n_threads;
    bool        no_peer;
    const char *json_path;
} bench_options;

/* --------------------------------------------------------------------- lanes */

static void add_lane(hl_size_result *size, hl_work kind, const char *backend, const char *text)
{
    hl_lane *lane = &size->lanes[size->n_lanes++];

    lane->kind    = kind;
    lane->backend = backend;
    if (backend != NULL)
        snprintf(lane->label, sizeof lane->label, "%-7s %s", backend, text);
    else
        snprintf(lane->label, sizeof lane->label, "%s", text);
}

static void add_backend(hl_size_result *size, const char *backend)
{
    add_lane(size, HL_WORK_NONE, backend, "out only");
    add_lane(size, HL_WORK_SHANNON, backend, "with Shannon");
    add_lane(size, HL_WORK_ALL, backend, "with all");
    add_lane(size, HL_WORK_BACKWARD, backend, "backward");
}

static void add_lanes(hl_size_result *size, const char *best, const hl_peer *peer)
{
    char text[64];

    add_backend(size, best);
    if (hl_cpu_features()->avx2 && strcmp(best, "avx2") != 0 && strcmp(best, "scalar") != 0)
        add_backend(size, "avx2");
    snprintf(text, sizeof text, "materialized, %s", hl_materialized_product());
    add_lane(size, HL_WORK_MATERIALIZED, NULL, text);
    if (peer == NULL)
        return;
    snprintf(text, sizeof text, "materialized, %.40s", hl_peer_name(peer));
    add_lane(size, HL_WORK_PEER, NULL, text);
    snprintf(text, sizeof text, "SDPA, no entropy, %.36s", hl_peer_name(peer));
    add_lane(size, HL_WORK_PEER_FUSED, NULL, text);
}

/* -------------------------------------------------------------------- rounds */

static void measure_peak(hl_peaks *peaks, int n_threads)
{
#if defined(__x86_64__)
    if (hl_cpu_features()->avx2)
        bench_series_add(&peaks->avx2, hl_peak_avx2(n_threads));
    if (hl_cpu_features()->avx512)
        bench_series_add(&peaks->avx512, hl_peak_avx512(n_threads));
#else
    (void)peaks;
    (void)n_threads;
#endif
}

static bool is_peer(const hl_lane *lane)
{
    return lane->kind == HL_WORK_PEER || lane->kind == HL_WORK_PEER_FUSED;
}

/* A peer that fails is left out from then on; a failure of headlight ends the run. */
static hl_status run_lane(hl_lane *lane, hl_workload *work, double budget)
{
    double    seconds = 0.0;
    hl_status status  = hl_workload_run(&seconds, work, lane->kind, lane->backend);

    if (status != HL_OK && is_peer(lane)) {
        printf("  %s: %s\n", lane->label, hl_error_message());
        lane->gave_up = true;
        return HL_OK;
    }
    if (status == HL_OK)
        bench_series_add(&lane->seconds, seconds);
    double used = bench_series_sum(&lane->seconds);
    if (lane->backend == NULL &&
        (used > 2.0 * budget ||
         (used > 0.5 * budget && bench_series_measured(&lane->seconds) >= PEER_RUNS)))
        lane->gave_up = true;
    return status;
}

/* Runs the forward lanes of a back end in turns; they are adjacent in `lanes`. */
static hl_status run_forward(hl_lane *lanes, hl_workload *work, int64_t n_keys, int round)
{
    hl_status status             = HL_OK;
    double    seconds[N_FORWARD] = { 0.0 };
    int       n_heads            = n_keys < LONG_KEYS ? N_HEADS : HEADS_A_TURN;

    for (int turn = 0; turn < N_HEADS / n_heads; turn++) {
        for (int i = 0; i < N_FORWARD; i++) {
            int    lane = (i + turn + round) % N_FORWARD;
            double part = 0.0;
            HL_TRY(hl_workload_run_heads(&part, work, lanes[lane].kind, lanes[lane].backend,
                                         (int64_t)turn * n_heads, n_heads));
            seconds[lane] += part;
        }
    }
    for (int i = 0; i < N_FORWARD; i++)
        bench_series_add(&lanes[i].seconds, seconds[i]);

done:
    return status;
}

static bool is_turned(const hl_lane *lane)
{
    return lane->kind == HL_WORK_SHANNON || lane->kind == HL_WORK_ALL;
}

static bool sits_out(const hl_lane *lane, int round)
{
    bool seldom = lane->backend == NULL || lane->kind == HL_WORK_BACKWARD;

    return lane->gave_up || (seldom && round % SELDOM != 0);
}

/* The peak is sampled twice next to every back end, so that not all samples follow a rest. */
static hl_status run_round(hl_size_result *size, hl_peaks *peaks, hl_workload *work,
                           const bench_options *options)
{
    for (int i = 0; i < size->n_lanes; i++) {
        /* Each round starts with another lane, because the clock rate falls during a round. */
        hl_lane  *lane   = &size->lanes[(i + size->n_rounds) % size->n_lanes];
        hl_status status = HL_OK;

        if (is_turned(lane)) /* all three run with the first */
            continue;
        if (lane->kind == HL_WORK_NONE || lane->kind == HL_WORK_BACKWARD)
            measure_peak(peaks, options->n_threads);
        if (lane->kind == HL_WORK_NONE)
            status = run_forward(lane, work, size->shape.n_keys, size->n_rounds);
        else if (sits_out(lane, size->n_rounds))
            bench_series_skip(&lane->seconds);
        else
            status = run_lane(lane, work, options->seconds);
        if (status != HL_OK)
            return status;
    }
    size->n_rounds++;
    return HL_OK;
}

/* Warms pages and caches by one untimed run.  PyTorch touches new pages in every run, so a short
 * one is enough for it. */
static hl_status warm_up(hl_size_result *size, hl_workload *work, hl_peer *peer)
{
    hl_status status  = HL_OK;
    double    seconds = 0.0;

    for (int i = 0; i < size->n_lanes; i++) {
        const hl_lane *lane = &size->lanes[i];
        if (!is_peer(lane))
            HL_TRY(hl_workload_run(&seconds, work, lane->kind, lane->backend));
        else if (hl_peer_time(&seconds, peer, 128) != HL_OK)
            printf("  %s: %s\n", lane->label, hl_error_message());
    }

done:
    return status;
}

/* The time of headlight's own lanes: a slow peer must not reduce the number of rounds. */
static double own_seconds(const hl_size_result *size)
{
    double total = 0.0;

    for (int i = 0; i < size->n_lanes; i++)
        total += size->lanes[i].backend != NULL ? bench_series_sum(&size->lanes[i].seconds) : 0.0;
    return total;
}

static hl_status measure_size(hl_size_result *size, hl_bench_result *result,
                              const bench_options *options, hl_peer *peer)
{
    hl_status    status = HL_OK;
    hl_workload *work   = NULL;

    add_lanes(size, result->best, peer);
    HL_TRY(hl_workload_new(&work, size->shape, peer, options->n_threads));
    HL_TRY(warm_up(size, work, peer));

    while (size->n_rounds < MIN_ROUNDS ||
           (size->n_rounds < BENCH_SERIES_MAX && own_seconds(size) < options->seconds))
        HL_TRY(run_round(size, &result->peaks, work, options));

done:
    hl_workload_free(work);
    return status;
}

/* ------------------------------------------------------------------ the whole */

static void print_title(const hl_bench_result *result, const bench_options *options)
{
    printf("attention, B=1 H=%d D=%d causal f32, %d threads, %.0f s for each length\n", N_HEADS,
           D_HEAD, options->n_threads, options->seconds);
    printf("%s\n%s\npeer: %s\n", hl_cpu_features()->name, hl_build_info(), result->peer);
    if (result->busy > HL_BUSY)
        printf("NOTE: others used %.0f%% of the CPUs before this began.  Times, and shares of a\n"
               "peak that was itself not reached, mean little; run this on a quiet machine.\n",
               100.0 * result->busy);
    if (result->memory_kib >= 0)
        printf("memory: S=%d H=1 with all statistics takes %.1f MiB beyond inputs and outputs\n",
               PROBE_KEYS, (double)result->memory_kib / 1024.0);
    fflush(stdout);
}

static hl_status measure(hl_bench_result *result, const bench_options *options, hl_peer *peer)
{
    for (int i = 0; i < options->n_sizes; i++) {
        hl_size_result *size   = &result->sizes[i];
        hl_status       status = HL_OK;

        fprintf(stderr, "measuring S = %lld ...\n", (long long)options->sizes[i]);
        size->peaks = &result->peaks;
        size->shape = (hl_workload_shape){ N_HEADS, options->sizes[i], D_HEAD };
        status      = measure_size(size, result, options, peer);
        if (status != HL_OK)
            return status;
        result->n_sizes++;
    }
    hl_report_print(result);
    return options->json_path != NULL ? hl_report_json(result, options->json_path) : HL_OK;
}

static hl_status run(const bench_options *options)
{
    static hl_bench_result result; /* static because it is large: it has all times of all rounds */
    hl_peer               *peer = NULL;
    char                   reason[256];

    result.best          = hl_backend_name();
    result.n_threads     = options->n_threads;
    result.busy          = hl_share_in_use();
    result.memory_n_keys = PROBE_KEYS;
    result.memory_kib    = -1;
    /* Both fork, so they must come before the first parallel region. */
    if (strcmp(result.best, "scalar") != 0)
        result.memory_kib = hl_memory_probe(PROBE_KEYS, D_HEAD);
    if (options->no_peer)
        snprintf(reason, sizeof reason, "not asked for");
    else if (hl_peer_open(&peer, "bench/peers/torch_attention.py", options->n_threads, NULL) !=
             HL_OK)
        snprintf(reason, sizeof reason, "none: %.200s", hl_error_message());
    result.peer = peer != NULL ? hl_peer_name(peer) : reason;

    print_title(&result, options);
    hl_status status = measure(&result, options, peer);
    hl_peer_close(peer);
    return status;
}

/* ------------------------------------------------------------------- options */

static bool parse_sizes(bench_options *options, char *text)
{
    options->n_sizes = 0;
    for (char *word = strtok(text, ","); word != NULL; word = strtok(NULL, ",")) {
        long long size = strtoll(word, NULL, 10);
        if (size < 1 || size > 65536 || options->n_sizes == HL_MAX_SIZES)
            return false;
        options->sizes[options->n_sizes++] = size;
    }
    return options->n_sizes > 0;
}

static bool parse(bench_options *options, int argc, char **argv)
{
    static const struct option table[] = {
        { "seconds", required_argument, NULL, 's' }, { "sizes", required_argument, NULL, 'n' },
        { "threads", required_argument, NULL, 't' }, { "no-peer", no_argument, NULL, 'p' },
        { "json", required_argument, NULL, 'j' },    { NULL, 0, NULL, 0 },
    };
    bool good = true;

    for (int letter; (letter = getopt_long(argc, argv, "", table, NULL)) != -1;) {
        switch (letter) {
        case 's':
            options->seconds = strtod(optarg, NULL);
            break;
        case 'n':
            good = good && parse_sizes(options, optarg);
            break;
        case 't':
            options->n_threads = atoi(optarg);
            break;
        case 'p':
            options->no_peer = true;
            break;
        case 'j':
            options->json_path = optarg;
            break;
        default:
            good = false;
        }
    }
    return good && optind == argc;
}

int main(int argc, char **argv)
{
    bench_options options = { .seconds = 60.0, .sizes = { 1024, 4096, 8192 }, .n_sizes = 3 };

    if (!parse(&options, argc, argv)) {
        fprintf(stderr, "usage: bench_attention [--seconds N] [--sizes S,S] [--threads N] "
                        "[--no-peer] [--json FILE]\n");
        return 2;
    }
    options.n_threads = hl_threads(options.n_threads);
    if (run(&options) != HL_OK) {
        fprintf(stderr, "bench_attention: %s\n", hl_error_message());
        return 1;
    }
    return 0;
}
