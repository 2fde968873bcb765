/* model.cuh - the GPU as a device that runs whole models: what its files share.
 *
 *     model_device.cu     memory, copies, graphs, the table
 *     model_products.cu   linear maps: cuBLASLt, and a kernel for few rows
 *     model_experts.cu    mixtures of experts
 *     model_rows.cu       embedding, residual sums with norms, activations, copies
 *     model_mixers.cu     convolutions, recurrences and gates of mixers with a state
 *     model_heads.cu      RoPE's angles; q, k and v between projection and attention
 *     model_ends.cu       statistics of rows of logits; the check for non-finite values
 *     model_pick.cu       draws from rows of logits
 *     model_watch.cu      whole rows of attention; sums of rows for a profile
 *     model_likeness.cu   what heads write, and how alike they are
 *     model_values.cu     stored values, GGUF's blocks among them, to the device's types
 *
 * Operations are those of kernels/device.h; each is a launcher here, named after it. */
#ifndef HL_CUDA_MODEL_CUH
#define HL_CUDA_MODEL_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <initializer_list>

#include "kernels/cuda/error.cuh"
#include "kernels/device.h"

namespace headlight
{
struct blas; /* model_products.cu */
}

struct hl_device {
    cudaStream_t     stream; /* runs all operations, in order */
    cudaStream_t     lanes[HL_DEVICE_LANES];
    cudaEvent_t      issued;                /* the event that a lane waits for before it copies */
    cudaEvent_t      copied;                /* the end of a lane's copies, in a graph */
    bool             used[HL_DEVICE_LANES]; /* lanes used by the graph that is being recorded */
    bool             recording;
    int              n_processors;
    headlight::blas *blas;
    void            *stage; /* a buffer for stored values (model_values.cu) */
};

namespace headlight
{

hl_status blas_open(hl_device *device);
void      blas_close(hl_device *device);

hl_status op_linear(hl_device *device, const hl_device_linear *linear);
size_t    op_experts_bytes(hl_device *device, const hl_device_experts *experts);
hl_status op_experts(hl_device *device, const hl_device_experts *experts);
hl_status op_add_gated(hl_device *device, const hl_device_add_gated *add);
hl_status op_embed(hl_device *device, const hl_device_embed *embed);
hl_status op_norm(hl_device *device, const hl_device_norm *norm);
hl_status op_angles(hl_device *device, const hl_device_angles *angles);
hl_status op_heads(hl_device *device, const hl_device_heads *heads);
hl_status op_select(hl_device *device, const hl_device_select *select);
hl_status op_gate_heads(hl_device *device, const hl_device_gate_heads *gates);
hl_status op_activate(hl_device *device, const hl_device_activate *activate);
hl_status op_copy_rows(hl_device *device, const hl_device_copy_rows *copy);
hl_status op_streams(hl_device *device, const hl_device_streams *streams);
hl_status op_match(hl_device *device, const hl_device_match *match);
hl_status op_conv(hl_device *device, const hl_device_conv *conv);
hl_status op_scan(hl_device *device, const hl_device_scan *scan);
hl_status op_gate(hl_device *device, const hl_device_gate *gate);
hl_status op_cap(hl_device *device, const hl_device_cap *cap);
hl_status op_logits(hl_device *device, const hl_device_logits *logits);
hl_status op_pick(hl_device *device, const hl_device_pick *pick);
hl_status op_finite(hl_device *device, const hl_device_finite *finite);
hl_status op_patterns(hl_device *device, const hl_device_patterns *patterns);
hl_status op_follow(hl_device *device, const hl_device_follow *follow);
hl_status op_reduce(hl_device *device, int lane, const hl_device_reduce *reduce);
hl_status op_outputs(hl_device *device, int lane, const hl_device_outputs *outputs);
hl_status op_distances(hl_device *device, int lane, const hl_device_distances *distances);
hl_status op_pattern_sums(hl_device *device, int lane, const hl_device_pattern_sums *sums);
hl_status op_put_values(hl_device *device, void *to, hl_dtype to_dtype, const void *from,
                        hl_dtype from_dtype, int64_t n_values);

/* The next work in the lane starts when all work issued in the stream so far is done. */
hl_status enter_lane(hl_device *device, int lane);

/* Normalizes rows of n elements in place, `stride` apart (model_rows.cu). */
hl_status norm_in_place(hl_device *device, void *x, hl_dtype dtype, int64_t stride,
                        const hl_norm &norm, int64_t n_rows, int64_t n);

/* Computes whole rows from the operator's lse, if the problem allows it (model_whole_rows.cu). */
bool      has_quick_patterns(const hl_device_patterns *patterns);
hl_status make_quick_patterns(hl_device *device, const hl_device_patterns *patterns);

/* An attention problem in the form of the kernels (library.cu). */
struct problem;
problem describe(const hl_attention_result *result, const hl_attention *a);

/* ------------------------------------------------------------------- elements */

/* Rows of f32, bf16 or f16.  Kernels that are limited by memory need not be compiled per type. */
struct span {
    void    *data;
    hl_dtype dtype;
};

__host__ __device__ inline span span_of(const void *data, hl_dtype dtype)
{
    return { const_cast<void *>(data), dtype };
}

inline size_t element_bytes(hl_dtype dtype)
{
    return dtype == HL_DTYPE_F32 ? 4 : 2;
}

__device__ __forceinline__ float to_float(float x)
{
    return x;
}
__device__ __forceinline__ float to_float(__half x)
{
    return __half2float(x);
}
__device__ __forceinline__ float to_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

template <typename T> __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float       from_float<float>(float x)
{
    return x;
}
template <> __device__ __forceinline__ __half from_float<__half>(float x)
{
    return __float2half_rn(x);
}
template <> __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x)
{
    return __float2bfloat16_rn(x);
}

/* W elements, aligned to their total size, at most 32 bytes. */
template <typename T, int W> struct alignas(sizeof(T) * W > 16 ? 16 : sizeof(T) * W) pack {
    T x[W];
};

template <typename T, int W>
__device__ __forceinline__ void load_pack(float (&out)[W], const void *data, int64_t at)
{
    pack<T, W> p = *reinterpret_cast<const pack<T, W> *>(static_cast<const T *>(data) + at);

#pragma unroll
    for (int i = 0; i < W; i++)
        out[i] = to_float(p.x[i]);
}

template <typename T, int W>
__device__ __forceinline__ void store_pack(void *data, int64_t at, const float (&x)[W])
{
    pack<T, W> p;

#pragma unroll
    for (int i = 0; i < W; i++)
        p.x[i] = from_float<T>(x[i]);
    *reinterpret_cast<pack<T, W> *>(static_cast<T *>(data) + at) = p;
}

template <int W>
__device__ __forceinline__ void load_some(float (&out)[W], const span &from, int64_t at)
{
    if (from.dtype == HL_DTYPE_F32)
        load_pack<float, W>(out, from.data, at);
    else if (from.dtype == HL_DTYPE_BF16)
        load_pack<__nv_bfloat16, W>(out, from.data, at);
    else
        load_pack<__half, W>(out, from.data, at);
}

template <int W>
__device__ __forceinline__ void store_some(const span &to, int64_t at, const float (&x)[W])
{
    if (to.dtype == HL_DTYPE_F32)
        store_pack<float, W>(to.data, at, x);
    else if (to.dtype == HL_DTYPE_BF16)
        store_pack<__nv_bfloat16, W>(to.data, at, x);
    else
        store_pack<__half, W>(to.data, at, x);
}

/* Whether all of these can be read in packs of eight. */
inline bool is_wide(std::initializer_list<const void *> pointers,
                    std::initializer_list<int64_t>      counts)
{
    for (const void *pointer : pointers) {
        if (reinterpret_cast<uintptr_t>(pointer) % 16 != 0)
            return false;
    }
    for (int64_t count : counts) {
        if (count % 8 != 0)
            return false;
    }
    return true;
}

/* ------------------------------------------------------------------- threads */

/* The sum over a warp, in every lane, always added in the same order. */
template <typename S> __device__ __forceinline__ S sum_warp(S value)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        value += __shfl_xor_sync(~0u, value, step);
    return value;
}

/* The sum over a block of at most 1024 threads, in every one of them. */
__device__ __forceinline__ float sum_block(float value)
{
    __shared__ float parts[32];
    int              warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    value = sum_warp(value);
    __syncthreads(); /* the previous sum has been read */
    if (lane == 0)
        parts[warp] = value;
    __syncthreads();
    return sum_warp(lane < static_cast<int>(blockDim.x) / 32 ? parts[lane] : 0.0f);
}

/* The number of blocks for n items, `each` items per block. */
inline unsigned blocks_for(int64_t n, int64_t each)
{
    return static_cast<unsigned>((n + each - 1) / each);
}

/* Whether row `row` of (B, C) counts, and its position. */
struct row_place {
    int64_t batch, row;
    bool    counts;
};

__device__ __forceinline__ row_place place_of(const hl_device_places &places, int64_t index)
{
    int64_t batch = index / places.batch_rows, row = index - batch * places.batch_rows;

    return { batch, row, row < places.lengths[batch] };
}

} // namespace headlight

#endif
