/* fuzz_attention.c - fused attention against materialized attention, on every back end.
 *
 * The input chooses shapes, masks and options; numbers are noise of a chosen size.  The reference
 * is the definition in headlight/attention.h, computed in double precision with the whole row of
 * scores in memory.
 *
 * Tolerance: a score of size S is rounded by at most S * d_head * 2^-24, and the statistics change
 * by no more than a few times that, times the range of the scores. */
#include <math.h>

#include "fuzz_choices.h"

enum { MAX_KEYS = 40, MAX_QUERIES = 9, MAX_DIM = 24, MAX_HEADS = 4, MAX_BATCH = 2 };
enum { MAX_ROWS = MAX_BATCH * MAX_HEADS * MAX_QUERIES };

typedef struct problem {
    hl_attention attention;
    float        q[MAX_ROWS * MAX_DIM];
    float        k[MAX_BATCH * MAX_HEADS * MAX_KEYS * MAX_DIM];
    float        v[MAX_BATCH * MAX_HEADS * MAX_KEYS * MAX_DIM];
    int64_t      query_start[MAX_BATCH];
    int64_t      key_length[MAX_BATCH];
    float        slopes[MAX_HEADS];
    float        key_bias[MAX_HEADS * MAX_KEYS];
    float        sinks[MAX_HEADS];
} problem;

typedef struct row {
    double out[MAX_DIM];
    double lse, entropy, peak, first;
    double size; /* size of the largest score */
} row;

/* -------------------------------------------------------------------------- choosing */

static void fill(float *values, size_t n, float size, choices *from)
{
    for (size_t i = 0; i < n; i++)
        values[i] = size * choose_noise(from);
}

static void choose_shape(hl_attention *a, choices *from)
{
    a->n_batch      = choose(from, 1, MAX_BATCH);
    a->n_kv_heads   = choose(from, 1, 2);
    a->n_heads      = a->n_kv_heads * choose(from, 1, 2);
    a->n_queries    = choose(from, 1, MAX_QUERIES);
    a->n_keys       = choose(from, 0, MAX_KEYS);
    a->d_head       = choose(from, 1, MAX_DIM);
    a->d_value      = choose(from, 1, MAX_DIM);
    a->flags        = (uint32_t)choose(from, 0, 31);
    a->scale        = (double)choose(from, 1, 16) / 8.0;
    a->softcap      = (double)choose(from, 0, 3) * 5.0;
    a->window_left  = choose(from, 0, 8);
    a->window_right = choose(from, 0, 8);
    a->window_sink  = choose(from, 0, 3);
    a->n_threads    = (int32_t)choose(from, 1, 2);
}

static void choose_problem(problem *p, choices *from)
{
    static const float sizes[] = { 0.0f, 0.1f, 1.0f, 4.0f };
    hl_attention      *a       = &p->attention;

    *a = (hl_attention){ .q.data = p->q, .k.data = p->k, .v.data = p->v };
    choose_shape(a, from);
    float size = sizes[choose(from, 0, 3)];
    choose_seed(from);
    fill(p->q, sizeof p->q / sizeof *p->q, size, from);
    fill(p->k, sizeof p->k / sizeof *p->k, 1.0f, from);
    fill(p->v, sizeof p->v / sizeof *p->v, 1.0f, from);
    fill(p->slopes, MAX_HEADS, 1.0f, from);
    fill(p->sinks, MAX_HEADS, 2.0f, from);
    fill(p->key_bias, sizeof p->key_bias / sizeof *p->key_bias, 2.0f, from);
    for (int64_t i = 0; i < MAX_HEADS * MAX_KEYS; i += 7)
        p->key_bias[i] = -INFINITY;
    for (int64_t i = 0; i < a->n_batch; i++) {
        p->key_length[i]  = choose(from, 0, a->n_keys);
        p->query_start[i] = choose(from, 0, MAX_KEYS);
    }
    a->key_length   = choose_bool(from) ? p->key_length : NULL;
    a->query_start  = choose_bool(from) ? p->query_start : NULL;
    a->alibi_slopes = choose_bool(from) ? p->slopes : NULL;
    a->key_bias     = choose_bool(from) ? p->key_bias : NULL;
    a->sinks        = choose_bool(from) ? p->sinks : NULL;
}

/* ------------------------------------------------------------------- the plain way */

static bool is_seen(const hl_attention *a, int64_t key, int64_t position)
{
    bool    blocks = (a->flags & HL_ATTENTION_WINDOW_BLOCKS) != 0 && position >= 0;
    int64_t begin = blocks ? position - position % (a->window_left + 1) : position - a->window_left;
    bool    left  = key >= begin || key < a->window_sink;

    return !((a->flags & HL_ATTENTION_CAUSAL) != 0 && key > position) &&
           !((a->flags & HL_ATTENTION_WINDOW_LEFT) != 0 && !left) &&
           !((a->flags & HL_ATTENTION_WINDOW_RIGHT) != 0 && key > position + a->window_right);
}

static double score(const problem *p, const float *q, const float *k, int64_t head, int64_t key,
                    int64_t position)
{
    const hl_attention *a   = &p->attention;
    double              sum = 0.0;

    if (!is_seen(a, key, position))
        return -INFINITY;
    for (int64_t i = 0; i < a->d_head; i++)
        sum += (double)q[i] * (double)k[i];
    sum *= (a->flags & HL_ATTENTION_SCALE) != 0 ? a->scale : 1.0 / sqrt((double)a->d_head);
    if (a->softcap > 0.0)
        sum = a->softcap * tanh(sum / a->softcap);
    if (a->alibi_slopes != NULL)
        sum += (double)p->slopes[head] * (double)(key - position);
    return a->key_bias != NULL ? sum + (double)p->key_bias[head * a->n_keys + key] : sum;
}

/* Turns scores (n_keys) into a row; the learned sink takes its share and contributes no value. */
static row finish(const hl_attention *a, const double *scores, int64_t n_keys, const float *v,
                  double sink)
{
    row    made  = { .lse = -INFINITY };
    double most  = -INFINITY;
    double total = 0.0;

    for (int64_t i = 0; i < n_keys; i++)
        most = fmax(most, scores[i]);
    if (isinf(most))
        return made; /* the row sees no key; a sink does not change that */
    most = fmax(most, sink);
    for (int64_t i = 0; i < n_keys; i++)
        total += exp(scores[i] - most);
    total += exp(sink - most);
    made.lse = most + log(total);
    for (int64_t i = 0; i <= n_keys; i++) {
        double s = i < n_keys ? scores[i] : sink;
        double p = exp(s - made.lse);
        if (isinf(s))
            continue;
        made.size = fmax(made.size, fabs(s));
        made.entropy -= p * (s - made.lse);
        for (int64_t d = 0; d < a->d_value && i < n_keys; d++)
            made.out[d] += p * (double)v[i * a->d_value + d];
        made.peak = i < n_keys ? fmax(made.peak, p) : made.peak;
    }
    made.first = n_keys > 0 && isfinite(scores[0]) ? exp(scores[0] - made.lse) : 0.0;
    return made;
}

static row plain_row(const problem *p, int64_t batch, int64_t head, int64_t query)
{
    const hl_attention *a    = &p->attention;
    int64_t             kv   = batch * a->n_kv_heads + head / (a->n_heads / a->n_kv_heads);
    int64_t             n    = a->key_length != NULL ? a->key_length[batch] : a->n_keys;
    int64_t             base = a->query_start != NULL ? a->query_start[batch] : n - a->n_queries;
    const float        *q = p->q + ((batch * a->n_heads + head) * a->n_queries + query) * a->d_head;
    double              scores[MAX_KEYS + 1];

    for (int64_t key = 0; key < n; key++)
        scores[key] =
            score(p, q, p->k + (kv * a->n_keys + key) * a->d_head, head, key, base + query);
    return finish(a, scores, n, p->v + kv * a->n_keys * a->d_value,
                  a->sinks != NULL ? (double)a->sinks[head] : -INFINITY);
}

/* ----------------------------------------------------------------------- comparing */

static void compare(double seen, double wanted, double within)
{
    PROMISE(seen == wanted || fabs(seen - wanted) <= within);
}

static void run(const problem *p)
{
    static float        out[MAX_ROWS * MAX_DIM], lse[MAX_ROWS], entropy[MAX_ROWS], peak[MAX_ROWS];
    static float        first[MAX_ROWS];
    const hl_attention *a      = &p->attention;
    hl_attention_result result = {
        .out.data = out, .lse = lse, .entropy = entropy, .peak = peak, .first = first
    };
    int64_t n_rows = a->n_batch * a->n_heads * a->n_queries;

    PROMISE(hl_attention_forward(&result, a) == HL_OK);
    for (int64_t i = 0; i < n_rows; i++) {
        row    r = plain_row(p, i / a->n_queries / a->n_heads, i / a->n_queries % a->n_heads,
                             i % a->n_queries);
        double e = 1e-5 + r.size * (double)(a->d_head + 8) * 1.2e-7;

        compare((double)lse[i], r.lse, e);
        compare((double)entropy[i], r.entropy, e * (4.0 + r.size));
        compare((double)peak[i], r.peak, e);
        compare((double)first[i], r.first, e);
        for (int64_t d = 0; d < a->d_value; d++)
            compare((double)out[i * a->d_value + d], r.out[d], 4.0 * e);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    static problem p;
    choices        from = { bytes, n_bytes, 1 };

    choose_problem(&p, &from);
    for (const char *const *name = hl_backend_names(); *name != NULL; name++) {
        PROMISE(hl_backend_select(*name) == HL_OK);
        run(&p);
    }
    return 0;
}
