/* host_device.h - formulas that the host and CUDA compile alike.
 *
 * HL_HOST_DEVICE before a small function in a header lets C, C++ and both sides of a .cu file call
 * it.  Each formula is written once; only the order of summation differs between the sides. */
#ifndef HL_BASE_HOST_DEVICE_H
#define HL_BASE_HOST_DEVICE_H

#ifdef __CUDACC__
#define HL_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define HL_HOST_DEVICE static inline
#endif

#endif
