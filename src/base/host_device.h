/* host_device.h - formulas that the host and CUDA compile alike.
 *
 * HL_HOST_DEVICE before a small function of a header makes it one that C, C++ and both sides of a
 * .cu file can call: a formula is written once, and only the order in which numbers are added up
 * is each side's own. */
#ifndef HL_BASE_HOST_DEVICE_H
#define HL_BASE_HOST_DEVICE_H

#ifdef __CUDACC__
#define HL_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define HL_HOST_DEVICE static inline
#endif

#endif
