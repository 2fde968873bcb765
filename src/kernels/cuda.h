/* cuda.h - the back end "cuda": attention on an NVIDIA GPU, the rest on the CPU.
 *
 * It lives in libheadlight_cuda.so (kernels/cuda/), which `make CUDA=1` builds.  The
 * library is opened when the back end is first asked for: HEADLIGHT_CUDA_LIBRARY
 * names it, else it is looked for beside the program and where the loader looks. */
#ifndef HL_KERNELS_CUDA_H
#define HL_KERNELS_CUDA_H

#include "kernels/device.h"
#include "kernels/kernels.h"

/* Returns the table of the back end; all but attention comes from `cpu`.  Without the library or a
 * GPU it returns HL_NOT_FOUND, and the message says which is missing. */
hl_status hl_cuda_kernels(const hl_kernels **out, const hl_kernels *cpu);
/* Returns the GPU as a device for whole models (device.h).  Fails as hl_cuda_kernels does. */
hl_status hl_cuda_device_ops(const hl_device_ops **out);

#endif
