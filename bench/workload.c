/* workload.c - buffers for one length, and the calls. */
#include "workload.h"

#include <stdint.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "materialized.h"
#include "series.h"

/* Rows are (n_heads, n_keys, d_head), statistics (n_heads, n_keys). */
enum { Q, K, V, OUT, GRAD_OUT, DQ, DK, DV, N_ROWS };
enum {
    LSE,
    ENTROPY,
    RENYI2,
    VARENTROPY,
    NOSINK,
    PEAK,
    DIAGONAL,
    PREVIOUS,
    FIRST,
    GRAD_ENTROPY,
    GRAD_LSE,
    N_STATISTICS
};

/* A peer's idle threads spin for some 30 ms before they sleep; a lane that ran in that time would
 * share the cores with them. */
enum { PEER_COOLDOWN_US = 100000 };

struct hl_workload {
    hl_workload_shape shape;
    int               n_threads;
    hl_peer          *peer;
    hl_materialized  *materialized;
    float            *rows[N_ROWS];
    float            *statistics[N_STATISTICS];
    int64_t          *argmax;
    float            *dgates; /* (n_heads) */
};

double hl_workload_flops(hl_workload_shape shape)
{
    double pairs = 0.5 * (double)shape.n_keys * (double)shape.n_keys;

    return 4.0 * pairs * (double)shape.d_head * (double)shape.n_heads;
}

/* -------------------------------------------------------------------- making */

/* Fills with sums of four uniform numbers, which are close to normal with variance 1. */
static void fill(float *numbers, size_t count, uint64_t seed)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;

    for (size_t i = 0; i < count; i++) {
        float sum = 0.0f;
        for (int j = 0; j < 4; j++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            sum += (float)(state >> 40) * (1.0f / 16777216.0f) - 0.5f;
        }
        numbers[i] = 1.7320508f * sum;
    }
}

static hl_status new_filled(float **out, size_t count, uint64_t seed)
{
    hl_status status = HL_ALLOC(out, count);

    if (status == HL_OK)
        fill(*out, count, seed);
    return status;
}

hl_status hl_workload_new(hl_workload **out, hl_workload_shape shape, hl_peer *peer, int n_threads)
{
    hl_status    status    = HL_OK;
    hl_workload *work      = NULL;
    size_t       n_rows    = (size_t)(shape.n_heads * shape.n_keys);
    size_t       n_numbers = n_rows * (size_t)shape.d_head;

    *out = NULL;
    HL_TRY(HL_ALLOC_ZEROED(&work, 1));
    work->shape     = shape;
    work->peer      = peer;
    work->n_threads = n_threads;
    for (int i = 0; i < N_ROWS; i++)
        HL_TRY(new_filled(&work->rows[i], n_numbers, (uint64_t)i));
    for (int i = 0; i < N_STATISTICS; i++)
        HL_TRY(new_filled(&work->statistics[i], n_rows, 100 + (uint64_t)i));
    HL_TRY(HL_ALLOC_ZEROED(&work->argmax, n_rows));
    HL_TRY(HL_ALLOC_ZEROED(&work->dgates, (size_t)shape.n_heads));
    HL_TRY(hl_materialized_new(&work->materialized, shape.n_keys, shape.d_head));
    *out = work;
    work = NULL;

done:
    hl_workload_free(work);
    return status;
}

void hl_workload_free(hl_workload *work)
{
    if (work == NULL)
        return;
    for (int i = 0; i < N_ROWS; i++)
        hl_free(work->rows[i]);
    for (int i = 0; i < N_STATISTICS; i++)
        hl_free(work->statistics[i]);
    hl_free(work->argmax);
    hl_free(work->dgates);
    hl_materialized_free(work->materialized);
    hl_free(work);
}

/* ------------------------------------------------------------------- running */

/* The problem for some heads, which are contiguous. */
static hl_attention problem_of(const hl_workload *work, int64_t first, int64_t n_heads)
{
    int64_t skipped = first * work->shape.n_keys * work->shape.d_head;

    return (hl_attention){
        .n_batch    = 1,
        .n_heads    = n_heads,
        .n_kv_heads = n_heads,
        .n_queries  = work->shape.n_keys,
        .n_keys     = work->shape.n_keys,
        .d_head     = work->shape.d_head,
        .d_value    = work->shape.d_head,
        .q          = { .data = work->rows[Q] + skipped },
        .k          = { .data = work->rows[K] + skipped },
        .v          = { .data = work->rows[V] + skipped },
        .flags      = HL_ATTENTION_CAUSAL,
        .n_threads  = work->n_threads,
    };
}

static hl_status run_forward(hl_workload *work, hl_work kind, int64_t first, int64_t n_heads)
{
    hl_attention        problem    = problem_of(work, first, n_heads);
    float             **statistics = work->statistics;
    int64_t             row        = first * work->shape.n_keys;
    hl_attention_result result = { .out = { .data = work->rows[OUT] + row * work->shape.d_head } };

    if (kind != HL_WORK_NONE)
        result.entropy = statistics[ENTROPY] + row;
    if (kind == HL_WORK_ALL) {
        result.lse            = statistics[LSE] + row;
        result.renyi2         = statistics[RENYI2] + row;
        result.varentropy     = statistics[VARENTROPY] + row;
        result.entropy_nosink = statistics[NOSINK] + row;
        result.peak           = statistics[PEAK] + row;
        result.argmax         = work->argmax + row;
        result.self           = statistics[DIAGONAL] + row;
        result.previous       = statistics[PREVIOUS] + row;
        result.first          = statistics[FIRST] + row;
    }
    return hl_attention_forward(&result, &problem);
}

/* Needs out, lse and entropy of the last forward pass with all statistics. */
static hl_status run_backward(hl_workload *work)
{
    hl_attention          problem  = problem_of(work, 0, work->shape.n_heads);
    hl_attention_upstream upstream = {
        .grad_out     = { .data = work->rows[GRAD_OUT] },
        .grad_entropy = work->statistics[GRAD_ENTROPY],
        .grad_lse     = work->statistics[GRAD_LSE],
        .out          = { .data = work->rows[OUT] },
        .lse          = work->statistics[LSE],
        .entropy      = work->statistics[ENTROPY],
    };
    hl_attention_gradient gradient = {
        .dq     = { .data = work->rows[DQ] },
        .dk     = { .data = work->rows[DK] },
        .dv     = { .data = work->rows[DV] },
        .dgates = work->dgates,
    };
    return hl_attention_backward(&gradient, &problem, &upstream);
}

hl_status hl_workload_run(double *seconds, hl_workload *work, hl_work kind, const char *backend)
{
    hl_status status = HL_OK;

    if (kind == HL_WORK_PEER || kind == HL_WORK_PEER_FUSED) {
        status = hl_peer_time_of(seconds, work->peer, kind == HL_WORK_PEER ? "time" : "sdpa",
                                 work->shape.n_keys);
        usleep(PEER_COOLDOWN_US);
        return status;
    }
    if (backend != NULL)
        HL_TRY(hl_backend_select(backend));

    double start = hl_bench_now();
    if (kind == HL_WORK_MATERIALIZED)
        hl_materialized_run(work->materialized, work->rows[OUT], work->statistics[ENTROPY],
                            work->rows[Q], work->rows[K], work->rows[V], work->shape.n_heads,
                            work->n_threads);
    else
        HL_TRY(kind == HL_WORK_BACKWARD ? run_backward(work)
                                        : run_forward(work, kind, 0, work->shape.n_heads));
    *seconds = hl_bench_now() - start;

done:
    return status;
}

hl_status hl_workload_run_heads(double *seconds, hl_workload *work, hl_work kind,
                                const char *backend, int64_t first, int64_t n_heads)
{
    hl_status status = HL_OK;

    HL_TRY(hl_backend_select(backend));
    double start = hl_bench_now();
    HL_TRY(run_forward(work, kind, first, n_heads));
    *seconds = hl_bench_now() - start;

done:
    return status;
}
