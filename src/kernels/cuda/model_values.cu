/* model_values.cu - stored values to the device's types: 16-bit floats and GGUF's blocks.
 *
 * Stored bytes are copied to a stage in device memory, a piece at a time.  One thread per block
 * then decodes them with the CPU's decoders (kernels/quant_decoders.h), compiled without fused
 * multiply-adds.  So the values equal the CPU's to the bit, before they are rounded to the wanted
 * type. */
#define HL_BLOCK_INLINE       static __device__ __forceinline__
#define HL_PARITY(bits)       (__popc(bits) & 1)
#define HL_DECODER            static __device__ __forceinline__
#define HL_DECODER_TABLE      static __device__ const
#define HL_DECODER_HALF(bits) __half2float(__ushort_as_half(bits))
#define HL_GRID               static __device__ const

#include <algorithm>

#include "kernels/cuda/model.cuh"
#include "kernels/quant_grids.c"

#include "kernels/quant_decoders.h"

namespace headlight
{

constexpr int64_t STAGE_BYTES = 32 << 20;

/* ------------------------------------------------------------------------- kernels */

using decoder = void (*)(float *y, const uint8_t *b);

template <int VALUES, int BYTES, decoder DECODE>
__global__ static void __launch_bounds__(64)
    decode_blocks(span out, int64_t first, const uint8_t *blocks, int64_t n_blocks)
{
    int64_t block = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    float   y[VALUES];

    if (block >= n_blocks)
        return;
    DECODE(y, blocks + block * BYTES);
    for (int i = 0; i < VALUES; i++) {
        float value[1] = { y[i] };
        store_some<1>(out, first + block * VALUES + i, value);
    }
}

__global__ static void convert(span out, int64_t first, span from, int64_t n)
{
    int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    float   value[1];

    if (at >= n)
        return;
    load_some<1>(value, from, at);
    store_some<1>(out, first + at, value);
}

/* -------------------------------------------------------------------------- pieces */

struct block_size {
    int64_t n_values, n_bytes;
};

/* Returns {0, 0} for a type that has no decoder here. */
static block_size size_of_block(hl_dtype dtype)
{
    switch (dtype) {
    case HL_DTYPE_F32:
        return { 1, 4 };
    case HL_DTYPE_F16:
    case HL_DTYPE_BF16:
        return { 1, 2 };
#define SIZE(type, TYPE, n_values, n_bytes)                                                        \
    case HL_DTYPE_##TYPE:                                                                          \
        return { n_values, n_bytes };
        HL_EACH_BLOCK_TYPE(SIZE)
#undef SIZE
    default:
        return { 0, 0 };
    }
}

/* Decodes n_blocks blocks of the stage to `out`, from value `first` on. */
static void launch(hl_device *device, span out, int64_t first, hl_dtype dtype, int64_t n_blocks)
{
    const uint8_t *stage = static_cast<const uint8_t *>(device->stage);

    switch (dtype) {
#define LAUNCH(type, TYPE, n_values, n_bytes)                                                      \
    case HL_DTYPE_##TYPE:                                                                          \
        decode_blocks<n_values, n_bytes, decode_##type>                                            \
            <<<blocks_for(n_blocks, 64), 64, 0, device->stream>>>(out, first, stage, n_blocks);    \
        break;
        HL_EACH_BLOCK_TYPE(LAUNCH)
#undef LAUNCH
    default:
        convert<<<blocks_for(n_blocks, 256), 256, 0, device->stream>>>(
            out, first, { device->stage, dtype }, n_blocks);
    }
}

static hl_status put_pieces(hl_device *device, span out, const uint8_t *from, hl_dtype dtype,
                            block_size block, int64_t n_blocks)
{
    int64_t most = STAGE_BYTES / block.n_bytes;

    if (device->stage == nullptr)
        HL_CUDA_TRY(check(cudaMalloc(&device->stage, STAGE_BYTES), "memory for stored values"));
    for (int64_t done = 0; done < n_blocks; done += most) {
        int64_t n = std::min(most, n_blocks - done);

        HL_CUDA_TRY(check(cudaMemcpyAsync(device->stage, from + done * block.n_bytes,
                                          static_cast<size_t>(n * block.n_bytes),
                                          cudaMemcpyHostToDevice, device->stream),
                          "a copy to the device"));
        launch(device, out, done * block.n_values, dtype, n);
        HL_CUDA_TRY(check(cudaGetLastError(), "stored values"));
    }
    return HL_OK;
}

hl_status op_put_values(hl_device *device, void *to, hl_dtype to_dtype, const void *from,
                        hl_dtype from_dtype, int64_t n_values)
{
    block_size block = size_of_block(from_dtype);

    if (block.n_values == 0 || n_values % block.n_values != 0)
        return fail(HL_UNSUPPORTED, "the GPU has no %lld values of type %d", (long long)n_values,
                    static_cast<int>(from_dtype));
    if (from_dtype == to_dtype)
        HL_CUDA_TRY(check(cudaMemcpyAsync(to, from, static_cast<size_t>(n_values * block.n_bytes),
                                          cudaMemcpyHostToDevice, device->stream),
                          "a copy to the device"));
    else
        HL_CUDA_TRY(put_pieces(device, span_of(to, to_dtype), static_cast<const uint8_t *>(from),
                               from_dtype, block, n_values / block.n_values));
    return check(cudaStreamSynchronize(device->stream), "the work on the device");
}

} // namespace headlight
