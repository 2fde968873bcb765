/* backward_hopper.cu - launches of the Hopper gradient: maps, working memory, kernels. */
#include "kernels/cuda/backward_hopper.cuh"

#include <algorithm>

#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/tensor_map.cuh"

namespace headlight
{

const char *backward_hopper_refuses(const problem &p, const hl_attention_gradient &gradient,
                                    const hl_attention_upstream &upstream,
                                    const cudaDeviceProp        &device)
{
    if (device.major != 9)
        return "GPUs other than sm_90";
    if (p.d_head != p.d_value || (p.d_head != 64 && p.d_head != 128))
        return "d_head and d_value other than 64 or 128";
    if (p.n_batch == 0 || p.n_queries == 0 || p.n_keys == 0)
        return "problems without rows or keys";
    if (upstream.grad_out.data == nullptr || gradient.dq.data == nullptr ||
        gradient.dk.data == nullptr || gradient.dv.data == nullptr)
        return "problems without all of grad_out, dq, dk and dv";
    for (const hl_rows &rows : { p.q, p.k, p.v, upstream.grad_out, upstream.out, gradient.dq,
                                 gradient.dk, gradient.dv }) {
        if (!tensor_map_takes(rows))
            return "rows that do not lie on 16 bytes";
    }
    if (p.window_block > 0 || p.row_bias != nullptr)
        return "windows in blocks, or biases of rows";
    if (p.window_sink > 0 || p.softcap != 0.0f || p.alibi_slopes != nullptr ||
        p.key_bias != nullptr)
        return "kept keys, softcap, ALiBi or key bias";
    return rows_refuse(p, gradient, upstream);
}

/* Reserves the arrays of working memory.  It only counts bytes until the memory is open. */
static void place(backward_problem &b, backward_schedule &schedule, workspace &memory,
                  const problem &p)
{
    size_t n_heads = static_cast<size_t>(p.n_batch) * p.n_heads;
    size_t n_rows  = n_heads * b.n_row_blocks;

    b.rows          = memory.take<row_block>(n_rows);
    b.sinks         = p.sinks != nullptr ? memory.take<float>(n_rows * BLOCK_ROWS) : nullptr;
    schedule.dq     = memory.take<float>(n_rows * BLOCK_ROWS * p.d_head);
    schedule.ticket = memory.take<int>(1);
    schedule.turns  = memory.take<int>(n_rows);
    schedule.gates  = b.gradient.dgates != nullptr
                          ? memory.take<float>(n_heads * schedule.n_key_blocks * 8)
                          : nullptr;
}

static hl_status make_maps(backward_maps *maps, const problem &p, const backward_problem &b)
{
    const hl_rows &grad_out = b.upstream.grad_out, &dk = b.gradient.dk, &dv = b.gradient.dv;
    int            d = p.d_head;

    HL_CUDA_TRY(tensor_map_make(&maps->q, p.q, p.n_batch, p.n_heads, p.n_queries, d, BLOCK_ROWS));
    HL_CUDA_TRY(tensor_map_make(&maps->grad_out, grad_out, p.n_batch, p.n_heads, p.n_queries, d,
                                BLOCK_ROWS));
    HL_CUDA_TRY(tensor_map_make(&maps->k, p.k, p.n_batch, p.n_kv_heads, p.n_keys, d, BLOCK_KEYS));
    HL_CUDA_TRY(tensor_map_make(&maps->v, p.v, p.n_batch, p.n_kv_heads, p.n_keys, d, BLOCK_KEYS));
    HL_CUDA_TRY(tensor_map_make(&maps->dk, dk, p.n_batch, p.n_kv_heads, p.n_keys, d, 64));
    return tensor_map_make(&maps->dv, dv, p.n_batch, p.n_kv_heads, p.n_keys, d, 64);
}

template <typename S>
static hl_status run(const problem &p, const backward_problem &b, const backward_schedule &schedule,
                     const cudaDeviceProp &device, cudaStream_t stream)
{
    backward_maps maps;
    int           n_row_blocks = p.n_batch * p.n_heads * b.n_row_blocks;

    HL_CUDA_TRY(make_maps(&maps, p, b));
    HL_CUDA_TRY(
        allow_shared(backward_hopper<S>, S::SHARED_BYTES, "shared memory for the Hopper gradient"));
    int n_blocks = std::min(schedule.n_items, device.multiProcessorCount);
    backward_hopper<S><<<n_blocks, S::THREADS, S::SHARED_BYTES, stream>>>(maps, p, b, schedule);
    HL_CUDA_TRY(check(cudaGetLastError(), "the Hopper gradient"));
    backward_dq<typename S::T, S::D><<<n_row_blocks, 128, 0, stream>>>(p, b, schedule.dq);
    return check(cudaGetLastError(), "the sums of dq");
}

template <typename T>
static hl_status choose(const problem &p, const backward_problem &b,
                        const backward_schedule &schedule, const cudaDeviceProp &device,
                        cudaStream_t stream)
{
    bool gates = p.gates != nullptr || b.gradient.dgates != nullptr;

    if (p.d_head == 128)
        return gates ? run<backward_shape<T, 128, true>>(p, b, schedule, device, stream)
                     : run<backward_shape<T, 128, false>>(p, b, schedule, device, stream);
    return gates ? run<backward_shape<T, 64, true>>(p, b, schedule, device, stream)
                 : run<backward_shape<T, 64, false>>(p, b, schedule, device, stream);
}

hl_status launch_backward_hopper(const problem &p, const hl_attention_gradient &gradient,
                                 const hl_attention_upstream &upstream,
                                 const cudaDeviceProp &device, cudaStream_t stream)
{
    workspace         memory(stream);
    backward_schedule schedule = {};
    backward_problem  b        = { gradient, upstream };

    b.n_row_blocks        = (p.n_queries + BLOCK_ROWS - 1) / BLOCK_ROWS;
    schedule.n_key_blocks = (p.n_keys + BLOCK_KEYS - 1) / BLOCK_KEYS;
    schedule.n_items      = schedule.n_key_blocks * p.n_batch * p.n_kv_heads;
    schedule.backwards =
        2 * schedule.n_key_blocks > device.multiProcessorCount ? p.n_batch * p.n_kv_heads - 1 : -1;
    place(b, schedule, memory, p);
    HL_CUDA_TRY(memory.open(memory.n_taken));
    place(b, schedule, memory, p);

    /* The ticket and everything after it must start at zero. */
    char *zeros = reinterpret_cast<char *>(schedule.ticket);
    HL_CUDA_TRY(
        check(cudaMemsetAsync(zeros, 0, memory.end() - zeros, stream), "the gradient's counters"));
    HL_CUDA_TRY(launch_rows(p, b, stream));
    HL_CUDA_TRY(for_half(p.q.dtype, [&](auto type) {
        return choose<decltype(type)>(p, b, schedule, device, stream);
    }));
    return launch_heads(p, b, schedule.gates, int64_t{ 8 } * schedule.n_key_blocks, stream);
}

} // namespace headlight
