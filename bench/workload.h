/* workload.h - the work that is timed, for one length, by every method.
 *
 *     hl_workload *work = NULL;
 *     hl_workload_new(&work, (hl_workload_shape){ 12, 4096, 64 }, n_threads);
 *     hl_workload_run(&seconds, work, HL_WORK_ALL, "avx2");
 *     hl_workload_free(work);
 *
 * One sequence, causal, f32, packed. */
#ifndef HL_BENCH_WORKLOAD_H
#define HL_BENCH_WORKLOAD_H

#include <stdint.h>

#include "headlight.h"
#include "peer.h"

typedef enum hl_work {
    HL_WORK_NONE = 0,     /* forward: only out */
    HL_WORK_SHANNON,      /* forward: out and entropy */
    HL_WORK_ALL,          /* forward: everything except segments */
    HL_WORK_BACKWARD,     /* dq dk dv dgates, from grad_out, grad_entropy, grad_lse */
    HL_WORK_MATERIALIZED, /* materialized matrix, in C */
    HL_WORK_PEER,         /* materialized matrix, in PyTorch */
    HL_WORK_PEER_FUSED,   /* PyTorch's scaled_dot_product_attention, which measures nothing */
    HL_N_WORKS
} hl_work;

typedef struct hl_workload_shape {
    int64_t n_heads;
    int64_t n_keys;
    int64_t d_head;
} hl_workload_shape;

typedef struct hl_workload hl_workload;

/* The peer is borrowed and may be NULL. */
hl_status hl_workload_new(hl_workload **out, hl_workload_shape shape, hl_peer *peer, int n_threads);
void      hl_workload_free(hl_workload *work);

/* Makes one run, with this back end if the work uses one. */
hl_status hl_workload_run(double *seconds, hl_workload *work, hl_work kind, const char *backend);

/* A forward pass for the heads [first, first + n_heads) only. */
hl_status hl_workload_run_heads(double *seconds, hl_workload *work, hl_work kind,
                                const char *backend, int64_t first, int64_t n_heads);

/* 4 S^2/2 D H: two products of the causal half. */
double hl_workload_flops(hl_workload_shape shape);

#endif
