/* kernels.cuh - the kernels' launchers, and which problems each takes.  The library's
 * entry points (library.cu) choose among them. */
#ifndef HL_CUDA_KERNELS_CUH
#define HL_CUDA_KERNELS_CUH

#include <cuda_runtime.h>

#include "kernels/cuda/problem.cuh"

namespace headlight
{

/* NULL, or what about the problem a kernel does not take on this device. */
const char *hopper_refuses(const problem &p, const cudaDeviceProp &device);
const char *decode_refuses(const problem &p, const cudaDeviceProp &device);
const char *portable_refuses(const problem &p, const cudaDeviceProp &device);

hl_status launch_hopper(const problem &p, const cudaDeviceProp &device, cudaStream_t stream);
hl_status launch_decode(const problem &p, const cudaDeviceProp &device, cudaStream_t stream);
hl_status launch_portable(const problem &p, cudaStream_t stream);
hl_status launch_plain(const problem &p, cudaStream_t stream);

/* diagonal, previous and first from an lse that is already there; no other output. */
inline bool wants_single_keys(const problem &p)
{
    return p.result.diagonal != nullptr || p.result.previous != nullptr ||
           p.result.first != nullptr;
}
hl_status launch_single_keys(const problem &p, cudaStream_t stream);
/* The same of what the Hopper kernel takes. */
hl_status launch_near_keys(const problem &p, cudaStream_t stream);

/* segment_mass, likewise. */
const char *segments_refuse(const problem &p, const cudaDeviceProp &device);
hl_status   launch_segments(const problem &p, cudaStream_t stream);

/* The same of gradients. */
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
