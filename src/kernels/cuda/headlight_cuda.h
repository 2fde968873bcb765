/* headlight_cuda.h - the interface of libheadlight_cuda.so: attention with statistics on an NVIDIA
 * GPU.
 *
 * The library is built by `make CUDA=1` and opened at run time (kernels/cuda.c), so
 * that nothing else needs CUDA.  It takes the problems of headlight.h, checked and
 * completed (kernels/attention.c), in two ways:
 *
 *     hl_cuda_forward         every pointer lies on the device, and so do
 *                             query_start and key_length; returns when the work
 *                             is in the stream
 *     hl_cuda_forward_host    every pointer lies in host memory; copies in,
 *                             computes, copies back
 *
 * It allocates device memory for three purposes.  The host variants need their copies.  The
 * gradient keeps a few numbers per row and, on Hopper, dq as floats, until the next gradient.  The
 * decode kernel allocates the states of split keys, in stream order, for at most two blocks per
 * multiprocessor.  Functions return HL_OK or a status; hl_cuda_error then gives the reason, for
 * this thread. */
#ifndef HL_CUDA_HEADLIGHT_CUDA_H
#define HL_CUDA_HEADLIGHT_CUDA_H

#include "headlight/attention.h"
#include "kernels/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Increases when anything below, or a struct of headlight.h that it takes, changes. */
#define HL_CUDA_INTERFACE 3

typedef enum hl_cuda_kernel {
    HL_CUDA_AUTO,     /* the fastest kernel that takes the problem; if a result is wanted in a
                       * finer type than the inputs', the plain one */
    HL_CUDA_PLAIN,    /* double precision, one warp a row: all types, all sizes */
    HL_CUDA_PORTABLE, /* tensor cores of sm_80 and later: bf16 and fp16         */
    HL_CUDA_HOPPER,   /* sm_90a: bf16 and fp16, d_head 64, 128, 256, and 192 with values of 128 */
    HL_CUDA_DECODE,   /* like PORTABLE, for at most 16 queries: splits the keys */
} hl_cuda_kernel;

typedef struct hl_cuda_launch {
    void          *stream; /* a cudaStream_t, or NULL for the default stream */
    hl_cuda_kernel kernel; /* HL_UNSUPPORTED if this kernel does not take the problem */
} hl_cuda_launch;

HL_API int         hl_cuda_interface(void);
HL_API const char *hl_cuda_error(void);

/* Checks that there is a usable GPU.  Fails with HL_NOT_FOUND. */
HL_API hl_status hl_cuda_probe(void);

HL_API hl_status hl_cuda_forward(const hl_attention_result *result, const hl_attention *problem,
                                 const hl_cuda_launch *launch);
HL_API hl_status hl_cuda_forward_host(const hl_attention_result *result,
                                      const hl_attention *problem, const hl_cuda_launch *launch);

/* The same input gives the same bytes at every run, with every kernel.  The portable gradient takes
 * d_head and d_value up to 128.  The Hopper gradient needs grad_out, dq, dk and dv, and takes no
 * kept keys, softcap, ALiBi or key bias.  AUTO chooses as for hl_cuda_forward. */
HL_API hl_status hl_cuda_backward(const hl_attention_gradient *gradient,
                                  const hl_attention          *problem,
                                  const hl_attention_upstream *upstream,
                                  const hl_cuda_launch        *launch);
HL_API hl_status hl_cuda_backward_host(const hl_attention_gradient *gradient,
                                       const hl_attention          *problem,
                                       const hl_attention_upstream *upstream,
                                       const hl_cuda_launch        *launch);

/* The attention that each key receives (hl_attention_received), of the queries from first_query on.
 * AUTO takes the Hopper kernel, then the portable one, then the plain one. */
HL_API hl_status hl_cuda_received(float *received, const hl_attention *problem, const float *lse,
                                  int64_t first_query, const hl_cuda_launch *launch);
HL_API hl_status hl_cuda_received_host(float *received, const hl_attention *problem,
                                       const float *lse, int64_t first_query,
                                       const hl_cuda_launch *launch);

/* The GPU as a device that runs whole models (kernels/device.h).  The table is static. */
HL_API const hl_device_ops *hl_cuda_device(void);

#ifdef __cplusplus
}
#endif
#endif
