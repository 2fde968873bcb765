/* model_experts.cu - mixtures of experts.
 *
 * Only the device knows how many rows each expert gets:
 *
 *     route    each row chooses its experts and their weights, a warp per row  (rows, used)
 *     list     the pairs (row, place among its experts) by expert, in the order of rows
 *     up       an expert's rows, gathered as they are read, times its gate and up
 *     act      as in any MLP
 *     down     back to D, in f32
 *     combine  a row's parts, weighted, by rising expert
 *
 * A slot is a pair's number in the list.  Products are computed in tiles of 64 slots of one expert
 * by 64 outputs.  There are enough tiles for any division of the rows; tiles that are not needed
 * end at once.  Tensor cores multiply 16-bit types; f32 uses plain arithmetic. */
#include <mma.h>

#include "kernels/cuda/model.cuh"

namespace headlight
{

constexpr int TILE         = 64; /* slots per tile, and outputs per tile */
constexpr int DEPTH        = 32; /* columns per step */
constexpr int TILE_THREADS = 128;
constexpr int MOST_USED    = 32;

/* The parts of hl_device_experts.work. */
struct expert_work {
    int   *chosen;  /* (N, used) */
    float *weights; /* (N, used) */
    int   *slots;   /* (N, used) the slot of each pair */
    int   *pairs;   /* (N used) the pair of each slot: row * used + place */
    int   *begins;  /* (experts + 1) the first slot of each expert */
    void  *up;      /* (N used, 2 F or F) of T */
    void  *acted;   /* (N used, F) of T */
    float *down;    /* (N used, D) */
    void  *scaled;  /* (N used, D) of T: each slot's row times its weight, if the rule says so */
};

static size_t aligned(size_t n_bytes)
{
    return (n_bytes + 255) / 256 * 256;
}

/* Divides `base` (NULL to count) into the parts; returns their total size in bytes. */
static size_t divide(expert_work *w, const hl_device_experts &e)
{
    size_t n       = static_cast<size_t>(e.n_rows * e.n_used);
    size_t element = element_bytes(e.dtype), width = e.is_gated ? 2 * e.d_expert : e.d_expert;
    char  *at      = static_cast<char *>(e.work);
    size_t n_bytes = 0;
    auto   take    = [&](size_t part) {
        char *begin = at != nullptr ? at + n_bytes : nullptr;
        n_bytes += aligned(part);
        return static_cast<void *>(begin);
    };

    w->chosen  = static_cast<int *>(take(4 * n));
    w->weights = static_cast<float *>(take(4 * n));
    w->slots   = static_cast<int *>(take(4 * n));
    w->pairs   = static_cast<int *>(take(4 * n));
    w->begins  = static_cast<int *>(take(4 * static_cast<size_t>(e.n_experts + 1)));
    w->up      = take(n * width * element);
    w->acted   = take(n * static_cast<size_t>(e.d_expert) * element);
    w->down    = static_cast<float *>(take(4 * n * static_cast<size_t>(e.d_model)));
    w->scaled  = take(e.rule.scales_input ? n * static_cast<size_t>(e.d_model) * element : 0);
    return n_bytes;
}

size_t op_experts_bytes(hl_device *device, const hl_device_experts *experts)
{
    hl_device_experts e = *experts;
    expert_work       w;
    (void)device;

    e.work = nullptr;
    return divide(&w, e);
}

/* -------------------------------------------------------------------------- routing */

/* The index of the largest of n numbers, the first of equal ones; the same in all lanes. */
__device__ static int best_of(const float *x, int n)
{
    float value = -INFINITY;
    int   best  = n;

    for (int i = threadIdx.x; i < n; i += 32) {
        if (best == n || x[i] > value) {
            value = x[i];
            best  = i;
        }
    }
    for (int step = 16; step > 0; step /= 2) {
        float other = __shfl_xor_sync(~0u, value, step);
        int   index = __shfl_xor_sync(~0u, best, step);
        if (index < n && (best == n || other > value || (other == value && index < best))) {
            value = other;
            best  = index;
        }
    }
    return best;
}

__device__ static double sum_of_lanes(double x)
{
    for (int step = 16; step > 0; step /= 2)
        x += __shfl_xor_sync(~0u, x, step);
    return x;
}

/* Removes the scores of all groups but the best; groups and kept (n_groups) are scratch. */
__device__ static void keep_groups(float *scores, float *groups, unsigned char *kept,
                                   const hl_device_experts &e)
{
    int n_groups = static_cast<int>(e.rule.n_groups);
    int size     = static_cast<int>(e.n_experts) / n_groups;

    for (int g = threadIdx.x; g < n_groups; g += 32) {
        float first = -INFINITY, second = -INFINITY;
        for (int i = g * size; i < (g + 1) * size; i++) {
            second = fmaxf(second, fminf(first, scores[i]));
            first  = fmaxf(first, scores[i]);
        }
        groups[g] = e.rule.groups_by_two && size > 1 ? first + second : first;
        kept[g]   = 0;
    }
    __syncwarp();
    for (int i = 0; i < e.rule.n_groups_used; i++) {
        int best = best_of(groups, n_groups);
        __syncwarp();
        if (threadIdx.x == 0) {
            kept[best]   = 1;
            groups[best] = -INFINITY;
        }
        __syncwarp();
    }
    for (int i = threadIdx.x; i < e.n_experts; i += 32)
        scores[i] = kept[i / size] ? scores[i] : -INFINITY;
    __syncwarp();
}

/* The sparsemixer's weight of the best of `scores`; -inf takes no part. */
__device__ static float sparse_weight(const float *scores, const hl_device_experts &e, int best)
{
    double sum = 0.0;

    for (int i = threadIdx.x; i < e.n_experts; i += 32) {
        if (scores[i] > -INFINITY && hl_router_is_close(&e.rule, scores[i], scores[best]))
            sum += exp(static_cast<double>(scores[i] - scores[best]));
    }
    return static_cast<float>(e.rule.scale / sum_of_lanes(sum));
}

/* What the search needs in shared memory: scores and groups, (n_experts) each, and which groups
 * are kept. */
static size_t route_bytes(const hl_device_experts &e)
{
    return static_cast<size_t>(e.n_experts) * (2 * sizeof(float) + 1);
}

/* One warp per row chooses its experts and their weights, as hl_router_choose.  Lane i keeps the
 * row's choice i. */
__global__ static void route(const hl_device_experts e, const expert_work w)
{
    extern __shared__ float scores[];
    int          n = static_cast<int>(e.n_experts), n_used = static_cast<int>(e.n_used);
    int          lane = threadIdx.x, mine = 0;
    int64_t      row    = blockIdx.x;
    const float *logits = e.router + row * n;
    float        max = logits[best_of(logits, n)], weight = 0.0f;
    double       total = 0.0, sum = 0.0;

    for (int i = lane; i < n; i += 32)
        total += hl_router_unscaled(&e.rule, logits[i], max);
    total = e.rule.score == HL_ROUTER_SIGMOID ? 1.0 : sum_of_lanes(total);
    for (int i = lane; i < n; i += 32) {
        double score = hl_router_unscaled(&e.rule, logits[i], max) / total;
        scores[i]    = !hl_router_needs_scores(&e.rule)
                           ? logits[i]
                           : static_cast<float>(score) +
                              (e.rule.has_correction ? e.correction[i] : 0.0f);
    }
    __syncwarp();
    if (e.rule.n_groups > 1)
        keep_groups(scores, scores + n, reinterpret_cast<unsigned char *>(scores + 2 * n), e);
    for (int i = 0; i < n_used; i++) {
        int    best  = best_of(scores, n);
        double score = hl_router_unscaled(&e.rule, logits[best], max) / total;
        float  share = e.rule.score == HL_ROUTER_SPARSEMIXER ? sparse_weight(scores, e, best)
                                                             : static_cast<float>(score);
        sum += score;
        mine   = lane == i ? best : mine;
        weight = lane == i ? share : weight;
        __syncwarp();
        if (lane == 0)
            scores[best] = -INFINITY;
        __syncwarp();
    }
    if (lane >= n_used)
        return;
    if (e.rule.score != HL_ROUTER_SPARSEMIXER)
        weight = static_cast<float>(hl_router_unscaled(&e.rule, logits[mine], max) / total *
                                    hl_router_factor(&e.rule, sum));
    w.chosen[row * n_used + lane]  = mine;
    if (e.expert_scale != nullptr)
        weight *= e.expert_scale[mine];
    w.weights[row * n_used + lane] = weight;
}

/* Counts the pairs that chose an expert below this one; one block per expert. */
__global__ static void find_begins(const hl_device_experts e, const expert_work w)
{
    __shared__ int total;
    int64_t        n_pairs = e.n_rows * e.n_used;
    int            count = 0, expert = blockIdx.x;

    if (threadIdx.x == 0)
        total = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < n_pairs; i += blockDim.x)
        count += w.chosen[i] < expert;
    atomicAdd(&total, count);
    __syncthreads();
    if (threadIdx.x == 0)
        w.begins[expert] = total;
}

/* Lists the pairs of each expert in rising order, 32 at a time; one warp per expert. */
__global__ static void list_pairs(const hl_device_experts e, const expert_work w)
{
    int     expert = blockIdx.x, lane = threadIdx.x, at = w.begins[expert];
    int64_t n_pairs = e.n_rows * e.n_used;

    for (int64_t first = 0; first < n_pairs; first += 32) {
        int64_t  pair = first + lane;
        bool     mine = pair < n_pairs && w.chosen[pair] == expert;
        unsigned all  = __ballot_sync(~0u, mine);

        if (mine) {
            int slot      = at + __popc(all & ((1u << lane) - 1));
            w.pairs[slot] = static_cast<int>(pair);
            w.slots[pair] = slot;
        }
        at += __popc(all);
    }
}

/* ------------------------------------------------------------------------- products */

/* out (slots, n_out) = x W' + b, with the W of each slot's expert. */
struct grouped_product {
    span         out;
    const void  *x;      /* (rows, n_in) of T; row pairs[slot] / used, or the slot itself */
    const int   *pairs;  /* NULL: the row is the slot itself */
    const int   *begins; /* (n_experts + 1) */
    const void  *weight; /* (n_experts, n_out, n_in) of T */
    const float *bias;   /* (n_experts, n_out) or NULL */
    int          n_used, n_experts;
    int64_t      n_in, n_out;
};

/* The tile's expert and its slots.  Returns false if there is no such tile. */
struct slot_tile {
    int expert, begin, end;

    __device__ bool find(const grouped_product &g, int number)
    {
        for (expert = 0; expert < g.n_experts; expert++) {
            int n_slots = g.begins[expert + 1] - g.begins[expert];
            int n_tiles = (n_slots + TILE - 1) / TILE;
            if (number < n_tiles) {
                begin = g.begins[expert] + number * TILE;
                end   = min(begin + TILE, g.begins[expert + 1]);
                return true;
            }
            number -= n_tiles;
        }
        return false;
    }
};

/* Reads TILE rows of DEPTH columns, from `first_column` on, with zeros beyond the ends. */
template <typename T, typename Row>
__device__ void fill_tile(T (*tile)[DEPTH + 8], Row row_of, int64_t first_column, int64_t n_columns)
{
    for (int i = threadIdx.x; i < TILE * DEPTH; i += TILE_THREADS) {
        int      row = i / DEPTH, column = i % DEPTH;
        const T *from = row_of(row);

        tile[row][column] = from != nullptr && first_column + column < n_columns
                                ? from[first_column + column]
                                : from_float<T>(0.0f);
    }
}

/* A block's TILE by TILE sums: four warps with 32 by 32 sums each. */
template <typename T> struct tile_sums {
    using fragment = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float>;
    fragment sums[2][2];

    __device__ tile_sums()
    {
        for (auto &row : sums) {
            for (fragment &f : row)
                nvcuda::wmma::fill_fragment(f, 0.0f);
        }
    }
    __device__ void add(const T (*x)[DEPTH + 8], const T (*w)[DEPTH + 8])
    {
        using namespace nvcuda::wmma;
        int warp = threadIdx.x / 32, row = warp / 2 * 32, column = warp % 2 * 32;

        for (int k = 0; k < DEPTH; k += 16) {
            for (int i = 0; i < 2; i++) {
                nvcuda::wmma::fragment<matrix_a, 16, 16, 16, T, row_major> a;
                load_matrix_sync(a, &x[row + 16 * i][k], DEPTH + 8);
                for (int j = 0; j < 2; j++) {
                    nvcuda::wmma::fragment<matrix_b, 16, 16, 16, T, col_major> b;
                    load_matrix_sync(b, &w[column + 16 * j][k], DEPTH + 8);
                    mma_sync(sums[i][j], a, b, sums[i][j]);
                }
            }
        }
    }
    __device__ void leave(float (*out)[TILE]) const
    {
        int warp = threadIdx.x / 32, row = warp / 2 * 32, column = warp % 2 * 32;

        for (int i = 0; i < 4; i++)
            nvcuda::wmma::store_matrix_sync(&out[row + 16 * (i / 2)][column + 16 * (i % 2)],
                                            sums[i / 2][i % 2], TILE, nvcuda::wmma::mem_row_major);
    }
};

/* The sums in plain f32: a thread has every second row of one column. */
template <> struct tile_sums<float> {
    static constexpr int N = TILE * TILE / TILE_THREADS;
    float                sums[N];

    __device__ tile_sums()
    {
        for (float &sum : sums)
            sum = 0.0f;
    }
    __device__ void add(const float (*x)[DEPTH + 8], const float (*w)[DEPTH + 8])
    {
        int column = threadIdx.x % TILE, first = threadIdx.x / TILE;

        for (int k = 0; k < DEPTH; k++) {
#pragma unroll
            for (int i = 0; i < N; i++)
                sums[i] = fmaf(x[first + 2 * i][k], w[column][k], sums[i]);
        }
    }
    __device__ void leave(float (*out)[TILE]) const
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            out[threadIdx.x / TILE + 2 * i][threadIdx.x % TILE] = sums[i];
    }
};

template <typename T>
__global__ static void __launch_bounds__(TILE_THREADS) multiply_slots(const grouped_product g)
{
    __shared__ union {
        struct {
            T x[TILE][DEPTH + 8], w[TILE][DEPTH + 8];
        } in;
        float out[TILE][TILE];
    } shared;
    slot_tile    tile;
    tile_sums<T> sums;
    int64_t      first_out = static_cast<int64_t>(blockIdx.x) * TILE;

    if (!tile.find(g, blockIdx.y))
        return;
    auto x_row = [&](int i) -> const T * {
        int slot = tile.begin + i;
        if (slot >= tile.end)
            return nullptr;
        int64_t row = g.pairs != nullptr ? g.pairs[slot] / g.n_used : slot;
        return static_cast<const T *>(g.x) + row * g.n_in;
    };
    auto w_row = [&](int i) -> const T * {
        if (first_out + i >= g.n_out)
            return nullptr;
        return static_cast<const T *>(g.weight) + (tile.expert * g.n_out + first_out + i) * g.n_in;
    };
    for (int64_t k = 0; k < g.n_in; k += DEPTH) {
        fill_tile<T>(shared.in.x, x_row, k, g.n_in);
        fill_tile<T>(shared.in.w, w_row, k, g.n_in);
        __syncthreads();
        sums.add(shared.in.x, shared.in.w);
        __syncthreads();
    }
    sums.leave(shared.out);
    __syncthreads();
    for (int i = threadIdx.x; i < TILE * TILE; i += TILE_THREADS) {
        int     slot = tile.begin + i / TILE;
        int64_t out  = first_out + i % TILE;

        if (slot >= tile.end || out >= g.n_out)
            continue;
        float value[1] = { shared.out[i / TILE][i % TILE] };
        if (g.bias != nullptr)
            value[0] += g.bias[tile.expert * g.n_out + out];
        store_some<1>(g.out, slot * g.n_out + out, value);
    }
}

static hl_status multiply(hl_device *device, const grouped_product &g, hl_dtype dtype,
                          int64_t n_slots)
{
    dim3 grid(blocks_for(g.n_out, TILE), blocks_for(n_slots, TILE) + g.n_experts);

    if (dtype == HL_DTYPE_F32)
        multiply_slots<float><<<grid, TILE_THREADS, 0, device->stream>>>(g);
    else if (dtype == HL_DTYPE_BF16)
        multiply_slots<__nv_bfloat16><<<grid, TILE_THREADS, 0, device->stream>>>(g);
    else
        multiply_slots<__half><<<grid, TILE_THREADS, 0, device->stream>>>(g);
    return check(cudaGetLastError(), "the products of experts");
}

/* One block per slot. */
__global__ static void scale_inputs(const hl_device_experts e, const expert_work w)
{
    int64_t pair = w.pairs[blockIdx.x], row = pair / e.n_used;
    span    x = { const_cast<void *>(e.x), e.dtype }, out = { w.scaled, e.dtype };

    for (int64_t i = threadIdx.x; i < e.d_model; i += blockDim.x) {
        float value[1];
        load_some<1>(value, x, row * e.d_model + i);
        value[0] *= w.weights[pair];
        store_some<1>(out, blockIdx.x * e.d_model + i, value);
    }
}

/* -------------------------------------------------------------------------- combining */

/* Adds the parts of a row by rising expert, whatever their weights; one block per row. */
__global__ static void combine(const hl_device_experts e, const expert_work w)
{
    int64_t row    = blockIdx.x;
    int     n_used = static_cast<int>(e.n_used);
    int     order[MOST_USED];

    for (int i = 0; i < n_used; i++) {
        int at = i;
        for (; at > 0 && w.chosen[row * n_used + order[at - 1]] > w.chosen[row * n_used + i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    for (int64_t column = threadIdx.x; column < e.d_model; column += blockDim.x) {
        float sum[1] = { 0.0f };
        for (int i = 0; i < n_used; i++) {
            int64_t pair = row * n_used + order[i];
            sum[0] = fmaf(e.rule.scales_input ? 1.0f : w.weights[pair],
                          w.down[w.slots[pair] * e.d_model + column], sum[0]);
        }
        store_some<1>({ e.out, e.dtype }, row * e.d_model + column, sum);
    }
}

static hl_status list_experts(hl_device *device, const hl_device_experts &e, const expert_work &w)
{
    unsigned n_experts = static_cast<unsigned>(e.n_experts);

    route<<<static_cast<unsigned>(e.n_rows), 32, route_bytes(e), device->stream>>>(e, w);
    find_begins<<<n_experts + 1, 256, 0, device->stream>>>(e, w);
    list_pairs<<<n_experts, 32, 0, device->stream>>>(e, w);
    return check(cudaGetLastError(), "the routes to experts");
}

hl_status op_experts(hl_device *device, const hl_device_experts *o)
{
    const hl_device_experts &e       = *o;
    int64_t                  n_slots = e.n_rows * e.n_used;
    int64_t                  width   = e.is_gated ? 2 * e.d_expert : e.d_expert;
    int                      n_used = static_cast<int>(e.n_used), n_experts = (int)e.n_experts;
    expert_work              w;

    if (e.n_rows == 0)
        return HL_OK;
    if (e.n_used > MOST_USED || n_slots > INT32_MAX)
        return fail(HL_LIMIT, "the GPU takes %d experts a row and 2^31 rows times them, got %lld",
                    MOST_USED, (long long)e.n_used);
    divide(&w, e);
    char              *gate = static_cast<char *>(w.up);
    grouped_product    up   = { span_of(w.up, e.dtype),
                                e.x,
                                w.pairs,
                                w.begins,
                                e.up,
                                e.up_bias,
                                n_used,
                                n_experts,
                                e.d_model,
                                width };
    grouped_product    down = { span_of(w.down, HL_DTYPE_F32),
                                w.acted,
                                nullptr,
                                w.begins,
                                e.down,
                                e.down_bias,
                                n_used,
                                n_experts,
                                e.d_expert,
                                e.d_model };
    hl_device_activate act  = {
         w.acted,     gate,      e.is_gated ? gate + e.d_expert * element_bytes(e.dtype) : nullptr,
         width,       e.dtype,   e.activation,
         { e.limit }, false,     0.0f,
         n_slots,     e.d_expert
    };
    HL_CUDA_TRY(list_experts(device, e, w));
    if (e.rule.scales_input) {
        scale_inputs<<<static_cast<unsigned>(n_slots), 256, 0, device->stream>>>(e, w);
        HL_CUDA_TRY(check(cudaGetLastError(), "the inputs of experts"));
        up.x     = w.scaled;
        up.pairs = nullptr;
    }
    HL_CUDA_TRY(multiply(device, up, e.dtype, n_slots));
    HL_CUDA_TRY(op_activate(device, &act));
    HL_CUDA_TRY(multiply(device, down, e.dtype, n_slots));
    combine<<<static_cast<unsigned>(e.n_rows), 256, 0, device->stream>>>(e, w);
    return check(cudaGetLastError(), "the sums of experts");
}

} // namespace headlight
