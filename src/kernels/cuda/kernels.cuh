/* kernels.cuh - the kernels' launchers, and which problems each takes.  The library's
 * entry points (library.cu) choose among them. */
#ifndef HL_CUDA_KERNELS_CUH
#define HL_CUDA_KERNELS_CUH

#include <initializer_list>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/error.cuh"
#include "kernels/cuda/problem.cuh"

namespace headlight
{

/* ------------------------------------------------------------ what launchers share */

/* Whether all have the same 16-bit type.  Rows without data match every type. */
inline bool are_half(std::initializer_list<hl_rows> all)
{
    hl_dtype dtype = all.begin()->dtype;

    if (dtype != HL_DTYPE_BF16 && dtype != HL_DTYPE_F16)
        return false;
    for (const hl_rows &rows : all) {
        if (rows.data != nullptr && rows.dtype != dtype)
            return false;
    }
    return true;
}

/* Calls launch(T()) for the 16-bit type T. */
template <typename F> hl_status for_half(hl_dtype dtype, F launch)
{
    return dtype == HL_DTYPE_F16 ? launch(__half()) : launch(__nv_bfloat16());
}

/* Calls launch(WIDTH) with the first constant width that is not below `width`, or with the last. */
template <int WIDTH, int... WIDER, typename F> hl_status for_width(int width, F launch)
{
    if constexpr (sizeof...(WIDER) > 0) {
        if (width > WIDTH)
            return for_width<WIDER...>(width, launch);
    }
    return launch(std::integral_constant<int, WIDTH>());
}

/* Allows a kernel n_bytes of dynamic shared memory. */
template <typename K> hl_status allow_shared(K *kernel, int n_bytes, const char *what)
{
    return check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, n_bytes),
                 what);
}

/* ------------------------------------------------------------------- the kernels */

/* NULL, or the reason why a kernel does not take the problem on this device. */
const char *hopper_refuses(const problem &p, const cudaDeviceProp &device);
const char *decode_refuses(const problem &p, const cudaDeviceProp &device);
const char *portable_refuses(const problem &p, const cudaDeviceProp &device);

hl_status launch_hopper(const problem &p, const cudaDeviceProp &device, cudaStream_t stream);
hl_status launch_decode(const problem &p, const cudaDeviceProp &device, cudaStream_t stream);
hl_status launch_portable(const problem &p, cudaStream_t stream);
hl_status launch_plain(const problem &p, cudaStream_t stream);

/* Whether self, previous or first is wanted.  launch_single_keys computes them from the lse. */
inline bool wants_single_keys(const problem &p)
{
    return p.result.self != nullptr || p.result.previous != nullptr || p.result.first != nullptr;
}
hl_status launch_single_keys(const problem &p, cudaStream_t stream);
/* Like launch_single_keys, for problems that the Hopper kernel takes. */
hl_status launch_near_keys(const problem &p, cudaStream_t stream);

/* Segment masses are also computed from an existing lse. */
const char *segments_refuse(const problem &p, const cudaDeviceProp &device);
hl_status   launch_segments(const problem &p, cudaStream_t stream);

/* The attention that keys receive, of the queries from first_query on. */
struct received_sums {
    float       *received; /* (n_batch, n_heads, n_keys) */
    const float *lse;      /* (n_batch, n_heads, n_queries) */
    int          first_query;
};

const char *received_hopper_refuses(const problem &p, const cudaDeviceProp &device);
const char *received_portable_refuses(const problem &p, const cudaDeviceProp &device);

hl_status launch_received_hopper(const problem &p, const received_sums &sums,
                                 const cudaDeviceProp &device, cudaStream_t stream);
hl_status launch_received_portable(const problem &p, const received_sums &sums,
                                   const cudaDeviceProp &device, cudaStream_t stream);
hl_status launch_received_plain(const problem &p, const received_sums &sums,
                                const cudaDeviceProp &device, cudaStream_t stream);

/* The gradient kernels: their refusals and launches. */
const char *backward_hopper_refuses(const problem &p, const hl_attention_gradient &gradient,
                                    const hl_attention_upstream &upstream,
                                    const cudaDeviceProp        &device);
const char *backward_portable_refuses(const problem &p, const hl_attention_gradient &gradient,
                                      const hl_attention_upstream &upstream,
                                      const cudaDeviceProp        &device);

hl_status launch_backward_hopper(const problem &p, const hl_attention_gradient &gradient,
                                 const hl_attention_upstream &upstream,
                                 const cudaDeviceProp &device, cudaStream_t stream);
hl_status launch_backward_portable(const problem &p, const hl_attention_gradient &gradient,
                                   const hl_attention_upstream &upstream, cudaStream_t stream);
hl_status launch_backward_plain(const problem &p, const hl_attention_gradient &gradient,
                                const hl_attention_upstream &upstream, cudaStream_t stream);

} // namespace headlight

#endif
