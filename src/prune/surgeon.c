/* surgeon.c - scores of heads by the optimal brain surgeon in block form, layer by layer.
 *
 * Let Z be the outputs of a layer's heads over a text, G = Z'Z (centered, with a ridge) and W the
 * output projection, with rows W_h for head h.  Removing head h and solving the rows of the others
 * again leaves the squared error
 *
 *     cost(h) = tr(W_h' ((G^-1)_hh)^-1 W_h)
 *
 * in the layer's output.  The head with the least cost is removed, and the other rows and the inverse
 * are updated,
 *
 *     W    -= (G^-1)_:h ((G^-1)_hh)^-1 W_h
 *     G^-1 -= (G^-1)_:h ((G^-1)_hh)^-1 (G^-1)_h:
 *
 * and so on until no head is left (Hassibi and Stork 1993; for blocks of weights Kurtic et al. 2022).
 *
 * Errors of different layers are made comparable by the gradients of the loss with respect to what the
 * attention writes.  With F = L L' the mean of their products g g' over the tokens, an error e raises
 * the loss by e' F e / 2 to second order, so with W L in the place of W the costs are nats (as in the
 * LLM Surgeon, van der Ouderaa et al. 2024, whose weights are single ones).  A head's score is its cost
 * when it is removed, or that of a head of its layer removed before it if that is larger, so that a
 * layer's heads keep their order.
 *
 * Where there is no gradient, as in a model with mixers, the score is the cost over the variance of the
 * residual stream after the attention.  On models/demo that is clearly worse; doc/sweep.md has the
 * numbers, also of other scores. */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "base/threads.h"
#include "headlight/prune.h"
#include "kernels/gemm.h"
#include "model/backward.h"
#include "model/model.h"
#include "prune/gates.h"
#include "prune/least_squares.h"
#include "prune/repair.h"
#include "prune/stream_walk.h"

#define RIDGE 1e-3

typedef struct surgeon_work {
    const hl_model  *model;
    const hl_config *config;
    hl_walk         *walk;
    int              n_threads;
    int64_t          n_tokens;
    float           *x; /* (n_tokens, d_model) */
    float           *z; /* (n_tokens, H d) */
    int64_t         *heads;
    double          *out;       /* (n_layers, H) */
    hl_squares     **gradients; /* (n_layers) of the losses with respect to what attention writes */
} surgeon_work;

/* The state of one layer while its heads are removed. */
typedef struct surgery {
    int64_t    n_heads, d_head, n_in, n_out;
    int        n_threads;
    double    *inverse; /* (n_in, n_in) */
    double    *weight;  /* (n_in, n_out) */
    double    *block;   /* (n_heads, d_head, d_head) factors of diagonal blocks of the inverse */
    double    *solved;  /* (n_heads, n_out, d_head) */
    double    *costs;   /* (n_heads); infinite for removed heads */
    double    *left;    /* (n_in, d_head) temporary values */
    bool      *gone;
    hl_status *states; /* (n_heads) */
} surgery;

static void free_surgery(surgery *s)
{
    hl_free(s->inverse);
    hl_free(s->weight);
    hl_free(s->block);
    hl_free(s->solved);
    hl_free(s->costs);
    hl_free(s->left);
    hl_free(s->gone);
    hl_free(s->states);
}

/* Computes the costs of heads [first, end) from factors of (G^-1)_hh.  Row i of `solved` is the
 * solution for column i of W_h (d, n_out). */
static void find_costs(void *context, int64_t first, int64_t end, int member)
{
    surgery *s = context;
    int64_t  d = s->d_head;
    (void)member;

    for (int64_t h = first; h < end; h++) {
        double *block  = s->block + h * d * d;
        double *solved = s->solved + h * s->n_out * d;
        double  cost   = 0.0;

        s->costs[h]  = INFINITY;
        s->states[h] = HL_OK;
        if (s->gone[h])
            continue;
        for (int64_t i = 0; i < d; i++) {
            memcpy(block + i * d, s->inverse + (h * d + i) * s->n_in + h * d,
                   (size_t)d * sizeof *block);
            for (int64_t o = 0; o < s->n_out; o++)
                solved[o * d + i] = s->weight[(h * d + i) * s->n_out + o];
        }
        s->states[h] = hl_cholesky_factor(block, d);
        if (s->states[h] != HL_OK)
            continue;
        hl_cholesky_solve(solved, s->n_out, block, d);
        for (int64_t i = 0; i < d; i++) {
            for (int64_t o = 0; o < s->n_out; o++)
                cost += solved[o * d + i] * s->weight[(h * d + i) * s->n_out + o];
        }
        s->costs[h] = cost;
    }
}

typedef struct removal {
    surgery *s;
    int64_t  head;
    double  *by_inverse; /* (d_head, n_in) ((G^-1)_hh)^-1 (G^-1)_h: */
} removal;

enum { TILE = 128 };

/* Subtracts the removed head's terms from tiles [first, end) of rows of the weights and the inverse. */
static void update_rows(void *context, int64_t first, int64_t end, int member)
{
    const removal *r = context;
    surgery       *s = r->s;
    int64_t        d = s->d_head;
    (void)member;

    for (int64_t tile = first; tile < end; tile++) {
        int64_t row   = tile * TILE;
        int64_t count = s->n_in - row < TILE ? s->n_in - row : TILE;

        /* W -= left (n_in, d) solved' (d, n_out); solved is already transposed: (n_out, d). */
        hl_gemm_add(&(hl_gemm_sum){ .c        = s->weight + row * s->n_out,
                                    .c_stride = s->n_out,
                                    .a        = s->left + row * d,
                                    .a_stride = d,
                                    .b        = s->solved,
                                    .b_stride = s->n_out,
                                    .m        = count,
                                    .n        = s->n_out,
                                    .k        = d,
                                    .factor   = -1.0 });
        hl_gemm_add(&(hl_gemm_sum){ .c        = s->inverse + row * s->n_in,
                                    .c_stride = s->n_in,
                                    .a        = s->left + row * d,
                                    .a_stride = d,
                                    .b        = r->by_inverse,
                                    .b_stride = s->n_in,
                                    .m        = count,
                                    .n        = s->n_in,
                                    .k        = d,
                                    .factor   = -1.0 });
    }
}

/* Removes head h, with the factor of its block and the solved weights from find_costs. */
static hl_status remove_head(surgery *s, int64_t h)
{
    int64_t          d      = s->d_head;
    HL_FREED double *solved = NULL, *columns = NULL, *by_inverse = NULL;

    HL_NEED(hl_alloc((void **)&solved, (size_t)d, (size_t)s->n_out * sizeof *solved));
    HL_NEED(hl_alloc((void **)&columns, (size_t)d, (size_t)s->n_in * sizeof *columns));
    HL_NEED(hl_alloc((void **)&by_inverse, (size_t)d, (size_t)s->n_in * sizeof *by_inverse));
    for (int64_t i = 0; i < d; i++) {
        for (int64_t o = 0; o < s->n_out; o++)
            solved[i * s->n_out + o] = s->solved[h * s->n_out * d + o * d + i];
    }
    for (int64_t i = 0; i < s->n_in; i++) {
        for (int64_t k = 0; k < d; k++)
            columns[i * d + k] = s->left[i * d + k] = s->inverse[i * s->n_in + h * d + k];
    }
    hl_cholesky_solve(columns, s->n_in, s->block + h * d * d, d);
    for (int64_t i = 0; i < s->n_in; i++) {
        for (int64_t k = 0; k < d; k++)
            by_inverse[k * s->n_in + i] = columns[i * d + k];
    }
    memcpy(s->solved, solved,
           (size_t)(d * s->n_out) * sizeof *solved); /* find_costs fills it again */
    hl_parallel(s->n_threads, (s->n_in + TILE - 1) / TILE, 1, update_rows,
                &(removal){ .s = s, .head = h, .by_inverse = by_inverse });
    s->gone[h] = true;
    return HL_OK;
}

/* Computes the inverse of the centered Gram matrix with its ridge, and reads the weights. */
static hl_status prepare(surgery *s, const surgeon_work *w, hl_squares *squares, int64_t layer)
{
    const hl_weight *weight = &hl_weights_get(w->model->weights, HL_ROLE_ATTN_O, layer, 0)->weight;
    size_t           n_in   = (size_t)s->n_in;
    HL_FREED float  *row    = NULL;

    HL_NEED(hl_alloc((void **)&s->weight, n_in, (size_t)s->n_out * sizeof *s->weight));
    HL_NEED(HL_ALLOC(&row, n_in));
    HL_NEED(HL_ALLOC(&s->block, n_in * (size_t)s->d_head));
    HL_NEED(HL_ALLOC(&s->solved, n_in * (size_t)s->n_out));
    HL_NEED(HL_ALLOC(&s->costs, (size_t)s->n_heads));
    HL_NEED(HL_ALLOC(&s->left, n_in * (size_t)s->d_head));
    HL_NEED(HL_ALLOC_ZEROED(&s->gone, (size_t)s->n_heads));
    HL_NEED(HL_ALLOC_ZEROED(&s->states, (size_t)s->n_heads));
    for (int64_t o = 0; o < s->n_out; o++) {
        HL_NEED(hl_weight_read_row(row, weight, o));
        for (int64_t i = 0; i < s->n_in; i++)
            s->weight[i * s->n_out + o] = (double)row[i];
    }
    HL_NEED(hl_fail_within(hl_squares_solve(squares, RIDGE, true), "layer %lld", (long long)layer));
    HL_NEED(hl_cholesky_invert(squares->factor, s->n_in));
    s->inverse = hl_taken(&squares->factor);
    for (int64_t i = 0; i < s->n_in; i++) {
        for (int64_t k = i + 1; k < s->n_in; k++)
            s->inverse[i * s->n_in + k] = s->inverse[k * s->n_in + i];
    }
    return HL_OK;
}

/* Returns the variance of the stream per token. */
static double variance_of(const float *x, int64_t n_rows, int64_t n)
{
    double sum = 0.0;

    for (int64_t i = 0; i < n; i++) {
        double mean = 0.0, square = 0.0;

        for (int64_t row = 0; row < n_rows; row++) {
            double value = (double)x[row * n + i];
            mean += value;
            square += value * value;
        }
        mean /= (double)n_rows;
        sum += square / (double)n_rows - mean * mean;
    }
    return sum;
}

/* Multiplies the weights by a root of the layer's Fisher matrix F = L L', so that squared errors become
 * twice the rise of the loss that they cause, to second order. */
static hl_status weigh_errors(surgery *s, hl_squares *gradients)
{
    HL_FREED double *root = NULL, *weighted = NULL;
    size_t           n     = (size_t)s->n_out;
    double           trace = 0.0;

    HL_NEED(hl_alloc_zeroed((void **)&root, n, n * sizeof *root));
    HL_NEED(hl_alloc_zeroed((void **)&weighted, (size_t)s->n_in, n * sizeof *weighted));
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k <= i; k++)
            root[i * n + k] = gradients->gram[i * n + k] / (double)gradients->n_rows;
        trace += root[i * n + i];
    }
    if (!isfinite(trace))
        return hl_fail(HL_BAD_INPUT, "the gradients on this text are not finite");
    for (size_t i = 0; i < n; i++)
        root[i * n + i] += 1e-6 * trace / (double)n + 1e-300;
    HL_NEED(hl_cholesky_factor(root, s->n_out));
    for (size_t i = 0; i < n; i++)
        memset(root + i * n + i + 1, 0, (n - i - 1) * sizeof *root);
    for (int64_t row = 0; row < s->n_in; row += TILE)
        hl_gemm_add(&(hl_gemm_sum){ .c        = weighted + row * s->n_out,
                                    .c_stride = s->n_out,
                                    .a        = s->weight + row * s->n_out,
                                    .a_stride = s->n_out,
                                    .b        = root,
                                    .b_stride = s->n_out,
                                    .m        = s->n_in - row < TILE ? s->n_in - row : TILE,
                                    .n        = s->n_out,
                                    .k        = s->n_out,
                                    .factor   = 1.0 });
    memcpy(s->weight, weighted, (size_t)s->n_in * n * sizeof *weighted);
    return HL_OK;
}

static hl_status run_layer(surgeon_work *w, int64_t layer)
{
    HL_CLOSED(hl_squares_free) hl_squares *squares = NULL;
    HL_SCOPED(free_surgery)
    surgery s       = { .n_heads   = w->config->layers[layer].n_heads,
                        .d_head    = w->config->layers[layer].d_head,
                        .n_out     = w->config->d_model,
                        .n_threads = w->n_threads };
    double  highest = 0.0;

    s.n_in                = s.n_heads * s.d_head;
    hl_walk_stream stream = { .x = w->x, .z = w->z, .heads = w->heads, .n_heads = s.n_heads };
    HL_NEED(hl_walk_step(w->walk, &stream, layer));
    if (s.n_heads == 0)
        return HL_OK;
    double scale = 2.0;
    if (w->gradients == NULL)
        scale = variance_of(w->x, w->n_tokens, s.n_out);
    scale *= (double)w->n_tokens;
    HL_NEED(hl_squares_new(&squares, s.n_in, 0, w->n_threads));
    hl_squares_add(squares, w->z, NULL, NULL, NULL, w->n_tokens, 1.0);
    HL_NEED(prepare(&s, w, squares, layer));
    if (w->gradients != NULL)
        HL_NEED(weigh_errors(&s, w->gradients[layer]));
    for (int64_t left = s.n_heads; left > 0; left--) {
        int64_t best = -1;

        hl_parallel(w->n_threads, s.n_heads, 1, find_costs, &s);
        for (int64_t h = 0; h < s.n_heads; h++) {
            HL_NEED(s.states[h]);
            if (!s.gone[h] && (best < 0 || s.costs[h] < s.costs[best]))
                best = h;
        }
        highest                                   = fmax(highest, s.costs[best]);
        w->out[layer * w->config->n_heads + best] = highest / scale;
        HL_NEED(remove_head(&s, best));
    }
    return HL_OK;
}

static void free_work(surgeon_work *w)
{
    hl_walk_close(w->walk);
    hl_free(w->x);
    hl_free(w->z);
    hl_free(w->heads);
    for (int64_t i = 0; w->gradients != NULL && i < w->config->n_layers; i++)
        hl_squares_free(w->gradients[i]);
    hl_free(w->gradients);
}

static hl_status take_gradients(surgeon_work *w, const hl_corpus *corpus,
                                const hl_surgeon_options *options)
{
    HL_CLOSED(hl_gradients_free) hl_gradients *of_gates = NULL;
    hl_gradient_options how = { .windows = options->windows, .n_threads = options->n_threads };

    HL_NEED(HL_ALLOC_ZEROED(&w->gradients, (size_t)w->config->n_layers));
    for (int64_t i = 0; i < w->config->n_layers; i++)
        HL_NEED(hl_squares_new(&w->gradients[i], w->config->d_model, 0, w->n_threads));
    return hl_output_gradients(&of_gates, w->gradients, w->model, corpus, &how);
}

static hl_status report_progress(const surgeon_work *w, const hl_surgeon_options *options,
                                 int64_t n_done)
{
    hl_progress progress = { .share = (double)n_done / (double)w->config->n_layers };

    return options->progress == NULL ? HL_OK : options->progress(options->context, &progress);
}

hl_status hl_surgeon_scores(double *out, const hl_model *model, const hl_corpus *corpus,
                            const hl_surgeon_options *options)
{
    static const hl_surgeon_options   defaults = { 0 };
    const hl_config                  *config   = model->config;
    HL_SCOPED(free_work) surgeon_work w        = { .model = model, .config = config, .out = out };

    options     = options != NULL ? options : &defaults;
    w.n_threads = hl_threads(options->n_threads);
    HL_NEED(hl_lapack_check());
    HL_NEED(hl_walk_open(&w.walk, model, corpus, &options->windows, NULL, options->n_threads));
    w.n_tokens = hl_walk_n_tokens(w.walk);
    HL_NEED(hl_alloc((void **)&w.x, (size_t)w.n_tokens, (size_t)config->d_model * sizeof *w.x));
    HL_NEED(hl_alloc((void **)&w.z, (size_t)w.n_tokens,
                     (size_t)(config->n_heads * config->d_head) * sizeof *w.z));
    HL_NEED(HL_ALLOC(&w.heads, (size_t)config->n_heads));
    for (int64_t i = 0; i < config->n_heads; i++)
        w.heads[i] = i;
    for (int64_t i = 0; i < config->n_layers * config->n_heads; i++)
        out[i] = NAN;
    if (hl_backward_check(model) == HL_OK)
        HL_NEED(take_gradients(&w, corpus, options));
    for (int64_t layer = 0; layer < config->n_layers; layer++) {
        HL_NEED(run_layer(&w, layer));
        HL_NEED(report_progress(&w, options, layer + 1));
    }
    return HL_OK;
}
