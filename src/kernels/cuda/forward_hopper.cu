/* forward_hopper.cu - launches of the Hopper kernel: tensor maps and the schedule. */
#include <algorithm>
#include <atomic>

#include "kernels/cuda/forward_hopper.cuh"
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/tensor_map.cuh"

namespace headlight
{

/* -------------------------------------------------------------- what it takes */

static hopper_level level_of(const hl_attention_result &r)
{
    if (r.varentropy != nullptr || r.entropy_nosink != nullptr || r.peak != nullptr ||
        r.max_logit != nullptr)
        return HOPPER_ALL;
    return r.entropy != nullptr || r.renyi2 != nullptr ? HOPPER_ENTROPIES : HOPPER_NOTHING;
}

/* Latent attention, written out, has keys of 192 and values of 128. */
static bool has_shape(const problem &p)
{
    if (p.d_head == 192)
        return p.d_value == 128;
    return p.d_head == p.d_value && (p.d_head == 64 || p.d_head == 128 || p.d_head == 256);
}

const char *hopper_refuses(const problem &p, const cudaDeviceProp &device)
{
    if (device.major != 9)
        return "GPUs other than sm_90";
    if (!are_half({ p.q, p.k, p.v, p.out }))
        return "types other than bf16 or fp16 throughout";
    if (!has_shape(p))
        return "d_head and d_value other than 64, 128 or 256, or than 192 and 128";
    if (p.out.data == nullptr || !tensor_map_takes(p.q) || !tensor_map_takes(p.k) ||
        !tensor_map_takes(p.v) || !tensor_map_takes(p.out))
        return "rows that do not lie on 16 bytes";
    if (p.window_block > 0 || p.row_bias != nullptr)
        return "windows in blocks, or biases of rows";
    if (p.d_head == 192 && p.window_left < WIDE_OPEN)
        return "a window with keys of 192";
    if (p.softcap != 0.0f || p.alibi_slopes != nullptr || p.key_bias != nullptr ||
        !(p.scale > 0.0f))
        return "softcap, ALiBi, key bias, or a scale not above 0";
    if (p.result.argmax != nullptr || p.result.segment_mass != nullptr)
        return "argmax or segment_mass";
    if (p.result.lse == nullptr && wants_single_keys(p))
        return "self, previous or first without lse";
    return nullptr;
}

/* --------------------------------------------------------------------- counters */

/* Each launch has two counters, which are zero before and after it.  This is the number of launches
 * that may run at once, on all streams. */
constexpr int  N_COUNTERS = 1024;
__device__ int counters[2 * N_COUNTERS];

static hl_status next_counter(int **out)
{
    static std::atomic<unsigned> n_launches;
    void                        *base = nullptr;

    HL_CUDA_TRY(check(cudaGetSymbolAddress(&base, counters), "the tile counters"));
    *out = static_cast<int *>(base) + 2 * (n_launches++ % N_COUNTERS);
    return HL_OK;
}

/* ---------------------------------------------------------------------- launch */

/* Keys and values of heads up to this size stay in the cache while their tiles run. */
constexpr int64_t CACHE_BYTES = 32 << 20;

template <typename S>
static hl_status launch(const problem &p, const cudaDeviceProp &device, cudaStream_t stream)
{
    hopper_maps     maps;
    hopper_schedule schedule;
    int64_t         head_bytes = (int64_t)p.n_keys * (S::K_BYTES + S::V_BYTES) / S::KEYS;
    int64_t         together   = CACHE_BYTES / head_bytes;
    int             n_heads    = p.n_batch * p.n_heads;

    HL_CUDA_TRY(tensor_map_make(&maps.q, p.q, p.n_batch, p.n_heads, p.n_queries, S::D, S::ROWS));
    HL_CUDA_TRY(tensor_map_make(&maps.k, p.k, p.n_batch, p.n_kv_heads, p.n_keys, S::D, S::KEYS));
    HL_CUDA_TRY(
        tensor_map_make(&maps.v, p.v, p.n_batch, p.n_kv_heads, p.n_keys, S::D_VALUE, S::KEYS));
    HL_CUDA_TRY(
        tensor_map_make(&maps.out, p.out, p.n_batch, p.n_heads, p.n_queries, S::D_VALUE, 64));
    HL_CUDA_TRY(next_counter(&schedule.counter));
    schedule.n_row_tiles = (p.n_queries + S::ROWS - 1) / S::ROWS;
    schedule.n_tiles     = schedule.n_row_tiles * n_heads;
    schedule.heads_together =
        (int)std::min<int64_t>(n_heads, std::max<int64_t>(1, together) * p.group);

    HL_CUDA_TRY(
        allow_shared(forward_hopper<S>, S::SHARED_BYTES, "shared memory for the Hopper kernel"));
    int n_blocks = std::min(schedule.n_tiles, device.multiProcessorCount);
    forward_hopper<S><<<n_blocks, S::THREADS, S::SHARED_BYTES, stream>>>(maps, p, schedule);
    HL_CUDA_TRY(check(cudaGetLastError(), "the Hopper kernel"));
    problem rest = p;
    if (S::ALL)
        rest.result.first = nullptr; /* already computed */
    if (keeps_near<S>(p))
        rest.result.self = rest.result.previous = nullptr;
    if (!wants_single_keys(rest))
        return HL_OK;
    return S::D == 192 ? launch_single_keys(rest, stream) : launch_near_keys(rest, stream);
}

/* Tiles of 192 queries are faster from this number of queries on (for d_head 64; at 128, three
 * groups need too many registers).  With statistics, blocks of 96 keys use less local memory. */
constexpr int LONG = 2048;

template <typename T, hopper_level LEVEL>
static hl_status choose(const problem &p, const cudaDeviceProp &device, cudaStream_t stream)
{
    if (p.d_head == 256)
        return launch<hopper_shape<T, 256, 80, 2, LEVEL>>(p, device, stream);
    if (p.d_head == 192)
        return launch<hopper_shape<T, 192, 128, 2, LEVEL, false, 128>>(p, device, stream);
    if (p.d_head == 128)
        return launch<hopper_shape<T, 128, 128, 2, LEVEL>>(p, device, stream);
    if (p.n_queries > LONG)
        return launch<hopper_shape<T, 64, LEVEL == HOPPER_NOTHING ? 128 : 96, 3, LEVEL>>(p, device,
                                                                                         stream);
    return launch<hopper_shape<T, 64, 128, 2, LEVEL>>(p, device, stream);
}

/* The first and the last block of a window need masks, and masks cost more with all statistics:
 * windows narrower than this use small blocks and tiles. */
constexpr int WIDE = 2048;

template <typename T, hopper_level LEVEL>
static hl_status choose_windowed(const problem &p, const cudaDeviceProp &device,
                                 cudaStream_t stream)
{
    constexpr int NARROW = LEVEL == HOPPER_ALL ? 64 : 128;
    bool          wide   = p.window_left >= WIDE;

    if (p.d_head == 256)
        return launch<hopper_shape<T, 256, 80, 2, LEVEL, true>>(p, device, stream);
    if (p.d_head == 128)
        return wide ? launch<hopper_shape<T, 128, 128, 2, LEVEL, true>>(p, device, stream)
                    : launch<hopper_shape<T, 128, NARROW, 2, LEVEL, true>>(p, device, stream);
    return wide && p.n_queries > LONG
               ? launch<hopper_shape<T, 64, 96, 3, LEVEL, true>>(p, device, stream)
               : launch<hopper_shape<T, 64, NARROW, 2, LEVEL, true>>(p, device, stream);
}

/* Windows always sum the entropies, so that fewer kernels are compiled. */
template <typename T>
static hl_status choose_level(const problem &p, const cudaDeviceProp &device, cudaStream_t stream)
{
    hopper_level level = level_of(p.result);

    if (p.window_left < WIDE_OPEN)
        return level == HOPPER_ALL ? choose_windowed<T, HOPPER_ALL>(p, device, stream)
                                   : choose_windowed<T, HOPPER_ENTROPIES>(p, device, stream);
    switch (level) {
    case HOPPER_ALL:
        return choose<T, HOPPER_ALL>(p, device, stream);
    case HOPPER_ENTROPIES:
        return choose<T, HOPPER_ENTROPIES>(p, device, stream);
    default:
        return choose<T, HOPPER_NOTHING>(p, device, stream);
    }
}

hl_status launch_hopper(const problem &p, const cudaDeviceProp &device, cudaStream_t stream)
{
    return for_half(p.q.dtype,
                    [&](auto type) { return choose_level<decltype(type)>(p, device, stream); });
}

} // namespace headlight
