/* headlight_cuda.h - what libheadlight_cuda.so offers: attention that measures, on
 * an NVIDIA GPU.
 *
 * The library is built by `make CUDA=1` and opened at run time (kernels/cuda.c), so
 * that nothing else needs CUDA.  It takes the problems of headlight.h, checked and
 * completed (kernels/attention.c), in two ways:
 *
 *     hl_cuda_forward         every pointer lies on the device, and so do
 *                             query_start and key_length; returns when the work
 *                             is in the stream
 *     hl_cuda_forward_host    every pointer lies in host memory; copies there,
 *                             works, copies back
 *
 * It allocates nothing on the device but what the host variants copy; for the gradient
 * a few numbers a row and, on Hopper, dq once more as floats, kept for the next
 * gradient; and for the decode kernel, in the stream's own order, the states of split
 * keys, at most two blocks' a multiprocessor.  Functions return HL_OK or a status, and then
 * hl_cuda_error says why, for this thread.  */
#ifndef HL_CUDA_HEADLIGHT_CUDA_H
#define HL_CUDA_HEADLIGHT_CUDA_H

#include "headlight/attention.h"
#include "kernels/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Grows when anything below, or a struct of headlight.h that it takes, changes. */
#define HL_CUDA_INTERFACE 2

typedef enum hl_cuda_kernel {
    HL_CUDA_AUTO,     /* the fastest that takes the problem; a result wanted in a
                       * finer type than the inputs' is computed by the plain one */
    HL_CUDA_PLAIN,    /* double precision, one warp a row: all types, all sizes */
    HL_CUDA_PORTABLE, /* tensor cores of sm_80 and later: bf16 and fp16         */
    HL_CUDA_HOPPER,   /* sm_90a: bf16 and fp16, d_head 64 and 128               */
    HL_CUDA_DECODE,   /* as portable, for 16 queries at most: keys are split    */
} hl_cuda_kernel;

typedef struct hl_cuda_launch {
    void          *stream; /* a cudaStream_t; NULL: the default one */
    hl_cuda_kernel kernel; /* one that does not take the problem: HL_UNSUPPORTED */
} hl_cuda_launch;

HL_API int         hl_cuda_interface(void);
HL_API const char *hl_cuda_error(void);

/* Is there a GPU that can be used?  Fails with HL_NOT_FOUND. */
HL_API hl_status hl_cuda_probe(void);

HL_API hl_status hl_cuda_forward(const hl_attention_result *result, const hl_attention *problem,
                                 const hl_cuda_launch *launch);
HL_API hl_status hl_cuda_forward_host(const hl_attention_result *result,
                                      const hl_attention *problem, const hl_cuda_launch *launch);

/* Runs with the same input give the same bytes, with every kernel.  The portable gradient
 * takes d_head and d_value up to 128; the Hopper gradient wants grad_out, dq, dk and dv,
 * and takes no kept keys, softcap, ALiBi or key bias.  What AUTO chooses is as above. */
HL_API hl_status hl_cuda_backward(const hl_attention_gradient *gradient,
                                  const hl_attention          *problem,
                                  const hl_attention_upstream *upstream,
                                  const hl_cuda_launch        *launch);
HL_API hl_status hl_cuda_backward_host(const hl_attention_gradient *gradient,
                                       const hl_attention          *problem,
                                       const hl_attention_upstream *upstream,
                                       const hl_cuda_launch        *launch);

/* The GPU as a device that runs whole models: kernels/device.h.  Static. */
HL_API const hl_device_ops *hl_cuda_device(void);

#ifdef __cplusplus
}
#endif
#endif
