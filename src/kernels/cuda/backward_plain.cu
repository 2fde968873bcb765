/* backward_plain.cu - gradients, one warp per row and then one warp per key, in double.
 *
 *     dS_j = p_j (gate dO.v_j - D + g_lse - g_H (s_j - lse + H)),   D = dO.out
 *     dq = scale dS K      dk = scale dS^T q      dv = gate p^T dO
 *
 * The first kernel walks each row's keys and gives dq, D and the row's shares of the
 * gates' and sinks' gradients; the second walks, for each key, the rows that see it.
 * Every number has one owner, which adds in a fixed order: runs agree to the bit. */
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/plain_row.cuh"

namespace headlight
{

constexpr int COLUMNS = HL_MAX_HEAD_DIM / 32; /* columns per lane */

/* The inputs and outputs besides the problem.  The arrays belong to this file and have one number
 * per row. */
struct plain_backward {
    hl_attention_gradient gradient;
    hl_attention_upstream upstream;
    double               *delta; /* dO.out             */
    double               *gates; /* (n_batch, n_heads, n_queries) shares of dgates */
    double               *sinks; /* (n_batch, n_heads, n_queries) shares of dsinks */
};

/* The gradient values of one row. */
struct row_upstream {
    double lse, entropy = 0, g_lse = 0, g_entropy = 0, gate = 1, delta = 0;

    __device__ row_upstream(const problem &p, const plain_backward &b, const plain_row &row)
    {
        lse = b.upstream.lse[row.index];
        if (p.gates != nullptr)
            gate = p.gates[row.head];
        if (b.upstream.grad_lse != nullptr)
            g_lse = b.upstream.grad_lse[row.index];
        if (b.upstream.grad_entropy != nullptr) {
            g_entropy = b.upstream.grad_entropy[row.index];
            entropy   = b.upstream.entropy[row.index];
        }
    }

    /* The gradient of an outcome's score; value_dot is dO.v. */
    __device__ double score_gradient(double score, double value_dot) const
    {
        return exp(score - lse) *
               (gate * value_dot - delta + g_lse - g_entropy * (score - lse + entropy));
    }
};

/* ------------------------------------------------------------------------ rows */

/* Adds the shares of 32 keys, one per lane, to this lane's columns of dq.  Exactly the keys that
 * count are multiplied: 0 times an infinite element is NaN, as in the definition. */
__device__ static void add_keys(double (&dq)[COLUMNS], const problem &p, const plain_row &row,
                                int base, double mine, bool counts)
{
    int      lane = threadIdx.x % 32;
    unsigned all  = __ballot_sync(~0u, counts);

    for (int i = 0; i < 32; i++) {
        double ds = __shfl_sync(~0u, mine, i);
        if ((all >> i & 1) == 0)
            continue;
        int64_t k = row_offset(p.k, row.batch, row.kv_head, base + i);
        for (int c = 0; c * 32 + lane < p.d_head; c++)
            dq[c] += ds * load(p.k, k + c * 32 + lane);
    }
}

__device__ static void row_backward(const problem &p, const plain_backward &b, const plain_row &row,
                                    const row_upstream &u, const double *q, const double *grad_out)
{
    int    lane        = threadIdx.x % 32;
    double dq[COLUMNS] = {};
    double gate        = 0.0;

    for (int base = 0; u.lse != -INFINITY && base < row.keys.end; base += 32) {
        int    key    = base + lane;
        double mine   = 0.0, slope;
        bool   counts = false;
        if (row.keys.has(key)) {
            int64_t k     = row_offset(p.k, row.batch, row.kv_head, key);
            int64_t v     = row_offset(p.v, row.batch, row.kv_head, key);
            double  score = score_of(p, row, key, dot_row(q, p.k, k, p.d_head), &slope);
            double  value_dot =
                b.upstream.grad_out.data != nullptr ? dot_row(grad_out, p.v, v, p.d_value) : 0.0;
            counts = score != -INFINITY;
            if (counts) {
                mine = p.exact_scale * slope * u.score_gradient(score, value_dot);
                gate += exp(score - u.lse) * value_dot;
            }
        }
        add_keys(dq, p, row, base, mine, counts);
    }

    int64_t target = row_offset(b.gradient.dq, row.batch, row.head, row.query);
    for (int c = 0; b.gradient.dq.data != nullptr && c * 32 + lane < p.d_head; c++)
        store(b.gradient.dq, target + c * 32 + lane, dq[c]);
    gate = warp_sum(gate);
    double sink =
        p.sinks != nullptr && u.lse != -INFINITY ? u.score_gradient(p.sinks[row.head], 0.0) : 0.0;
    if (lane == 0) {
        b.delta[row.index] = u.delta;
        b.gates[row.index] = gate;
        b.sinks[row.index] = sink;
    }
}

__global__ static void backward_rows(const __grid_constant__ problem        p,
                                     const __grid_constant__ plain_backward b)
{
    __shared__ double rows[PLAIN_WARPS][2][HL_MAX_HEAD_DIM];
    int               warp   = threadIdx.x / 32;
    int64_t           index  = static_cast<int64_t>(blockIdx.x) * PLAIN_WARPS + warp;
    int64_t           n_rows = count_rows(p);

    if (index >= n_rows)
        return;
    plain_row    row(p, index);
    row_upstream u(p, b, row);
    double      *q = rows[warp][0], *grad_out = rows[warp][1];
    load_row(q, p.q, row_offset(p.q, row.batch, row.head, row.query), p.d_head);
    if (b.upstream.grad_out.data != nullptr) {
        const hl_rows &g = b.upstream.grad_out;
        load_row(grad_out, g, row_offset(g, row.batch, row.head, row.query), p.d_value);
        u.delta = dot_row(grad_out, b.upstream.out,
                          row_offset(b.upstream.out, row.batch, row.head, row.query), p.d_value);
    }
    row_backward(p, b, row, u, q, grad_out);
}

/* ------------------------------------------------------------------------ keys */

/* The gradients of one key, in this lane's columns. */
struct key_gradient {
    double dk[COLUMNS] = {}, dv[COLUMNS] = {};

    /* Adds the shares of 32 rows, one per lane; `weight` is gate times probability.  As in add_keys,
     * exactly the rows that count are multiplied. */
    __device__ void add_rows(const problem &p, const plain_backward &b, int batch, int head,
                             int base, double ds, double weight, bool counts)
    {
        int      lane = threadIdx.x % 32;
        unsigned all  = __ballot_sync(~0u, counts);

        for (int i = 0; i < 32 && base + i < p.n_queries; i++) {
            double  row_ds     = __shfl_sync(~0u, ds, i);
            double  row_weight = __shfl_sync(~0u, weight, i);
            int64_t q          = row_offset(p.q, batch, head, base + i);
            if ((all >> i & 1) == 0)
                continue;
            for (int c = 0; c * 32 + lane < p.d_head; c++)
                dk[c] += row_ds * load(p.q, q + c * 32 + lane);
            if (b.upstream.grad_out.data == nullptr)
                continue;
            int64_t g = row_offset(b.upstream.grad_out, batch, head, base + i);
            for (int c = 0; c * 32 + lane < p.d_value; c++)
                dv[c] += row_weight * load(b.upstream.grad_out, g + c * 32 + lane);
        }
    }
};

__device__ static void head_backward(key_gradient &total, const problem &p, const plain_backward &b,
                                     int batch, int head, int key, const double *k, const double *v)
{
    int lane = threadIdx.x % 32;

    for (int base = 0; base < p.n_queries; base += 32) {
        double ds = 0.0, weight = 0.0, slope;
        bool   counts = false;
        int    query  = base + lane;
        if (query < p.n_queries) {
            plain_row    row(p, row_index(p, batch, head, query));
            row_upstream u(p, b, row);
            u.delta = b.delta[row.index];
            if (row.keys.has(key) && u.lse != -INFINITY) {
                double product   = dot_row(k, p.q, row_offset(p.q, batch, head, query), p.d_head);
                double score     = score_of(p, row, key, product, &slope);
                double value_dot = 0.0;
                if (b.upstream.grad_out.data != nullptr)
                    value_dot =
                        dot_row(v, b.upstream.grad_out,
                                row_offset(b.upstream.grad_out, batch, head, query), p.d_value);
                counts = score != -INFINITY;
                if (counts) {
                    ds     = p.exact_scale * slope * u.score_gradient(score, value_dot);
                    weight = u.gate * exp(score - u.lse);
                }
            }
        }
        total.add_rows(p, b, batch, head, base, ds, weight, counts);
    }
}

__global__ static void backward_keys(const __grid_constant__ problem        p,
                                     const __grid_constant__ plain_backward b)
{
    __shared__ double rows[PLAIN_WARPS][2][HL_MAX_HEAD_DIM];
    int               warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int64_t           index = static_cast<int64_t>(blockIdx.x) * PLAIN_WARPS + warp;

    if (index >= static_cast<int64_t>(p.n_batch) * p.n_kv_heads * p.n_keys)
        return;
    int          key     = static_cast<int>(index % p.n_keys);
    int          kv_head = static_cast<int>(index / p.n_keys % p.n_kv_heads);
    int          batch   = static_cast<int>(index / p.n_keys / p.n_kv_heads);
    key_gradient total;
    load_row(rows[warp][0], p.k, row_offset(p.k, batch, kv_head, key), p.d_head);
    load_row(rows[warp][1], p.v, row_offset(p.v, batch, kv_head, key), p.d_value);
    for (int head = kv_head * p.group; head < (kv_head + 1) * p.group; head++)
        head_backward(total, p, b, batch, head, key, rows[warp][0], rows[warp][1]);

    const hl_rows &dk = b.gradient.dk, &dv = b.gradient.dv;
    for (int c = 0; dk.data != nullptr && c * 32 + lane < p.d_head; c++)
        store(dk, row_offset(dk, batch, kv_head, key) + c * 32 + lane, total.dk[c]);
    for (int c = 0; dv.data != nullptr && c * 32 + lane < p.d_value; c++)
        store(dv, row_offset(dv, batch, kv_head, key) + c * 32 + lane, total.dv[c]);
}

/* ----------------------------------------------------------------------- heads */

/* Sums a head's rows, with one warp. */
__device__ static double head_total(const problem &p, const double *shares, int head)
{
    double total = 0.0;

    for (int batch = 0; batch < p.n_batch; batch++) {
        int64_t first = row_index(p, batch, head, 0);
        for (int query = threadIdx.x; query < p.n_queries; query += 32)
            total += shares[first + query];
    }
    return warp_sum(total);
}

__global__ static void backward_heads(const __grid_constant__ problem        p,
                                      const __grid_constant__ plain_backward b)
{
    int    head  = blockIdx.x;
    double gates = head_total(p, b.gates, head);
    double sinks = head_total(p, b.sinks, head);

    if (threadIdx.x != 0)
        return;
    if (b.gradient.dgates != nullptr)
        b.gradient.dgates[head] = static_cast<float>(gates);
    if (b.gradient.dsinks != nullptr)
        b.gradient.dsinks[head] = static_cast<float>(sinks);
}

/* ---------------------------------------------------------------------- launch */

static hl_status run(const problem &p, const plain_backward &b, cudaStream_t stream)
{
    int64_t n_rows = count_rows(p);
    int64_t n_keys = static_cast<int64_t>(p.n_batch) * p.n_kv_heads * p.n_keys;

    if (n_rows / PLAIN_WARPS >= INT32_MAX || n_keys / PLAIN_WARPS >= INT32_MAX)
        return fail(HL_LIMIT, "the plain gradient takes 2^33 rows and keys, got %lld and %lld",
                    (long long)n_rows, (long long)n_keys);
    if (n_rows > 0)
        backward_rows<<<static_cast<unsigned>((n_rows + PLAIN_WARPS - 1) / PLAIN_WARPS),
                        32 * PLAIN_WARPS, 0, stream>>>(p, b);
    if (n_keys > 0)
        backward_keys<<<static_cast<unsigned>((n_keys + PLAIN_WARPS - 1) / PLAIN_WARPS),
                        32 * PLAIN_WARPS, 0, stream>>>(p, b);
    backward_heads<<<p.n_heads, 32, 0, stream>>>(p, b);
    return check(cudaGetLastError(), "the plain gradient");
}

hl_status launch_backward_plain(const problem &p, const hl_attention_gradient &gradient,
                                const hl_attention_upstream &upstream, cudaStream_t stream)
{
    size_t         n_rows    = static_cast<size_t>(count_rows(p));
    double        *workspace = nullptr;
    plain_backward b         = { gradient, upstream, nullptr, nullptr, nullptr };

    HL_CUDA_TRY(check(cudaMallocAsync(&workspace, (3 * n_rows + 1) * sizeof *workspace, stream),
                      "memory for the gradient"));
    b.delta          = workspace;
    b.gates          = workspace + n_rows;
    b.sinks          = workspace + 2 * n_rows;
    hl_status status = run(p, b, stream);
    cudaFreeAsync(workspace, stream);
    return status;
}

} // namespace headlight
