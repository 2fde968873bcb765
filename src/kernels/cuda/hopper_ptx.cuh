/* hopper_ptx.cuh - the instructions of sm_90a that CUDA C++ cannot express.
 *
 * Barriers in shared memory (mbarrier), the tensor copy engine (TMA), products by
 * a warp group (wgmma), and the hand-over of registers between warp groups.
 * Each function is one instruction, or the shortest loop around one.
 *
 * A wgmma runs while its warps continue: its accumulators must not be touched between the issue and
 * the wait.  The compiler does not know that; settle() after the wait declares the registers as
 * changed. */
#ifndef HL_CUDA_HOPPER_PTX_CUH
#define HL_CUDA_HOPPER_PTX_CUH

#include <cuda.h>

#include "kernels/cuda/portable_ptx.cuh"

namespace headlight::ptx
{

/* ------------------------------------------------------------------ barriers */

__device__ __forceinline__ void barrier_init(uint64_t *barrier, uint32_t n_arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(n_arrivals));
}

/* Makes the initialized barriers visible to the copy engine. */
__device__ __forceinline__ void barrier_init_done()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
                 : "memory");
}

/* Arrives, and sets the number of bytes that the copy engine will bring. */
__device__ __forceinline__ void barrier_expect(uint64_t *barrier, uint32_t n_bytes)
{
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(n_bytes)
        : "memory");
}

/* Waits until the phase of this parity is over. */
__device__ __forceinline__ void barrier_wait(uint64_t *barrier, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}\n" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

/* Tests whether the phase is over, without waiting. */
__device__ __forceinline__ bool barrier_is_over(uint64_t *barrier, uint32_t parity)
{
    uint32_t over;
    asm volatile("{\n"
                 ".reg .pred over;\n"
                 "mbarrier.test_wait.parity.shared::cta.b64 over, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, over;\n"
                 "}\n"
                 : "=r"(over)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");
    return over != 0;
}

/* A barrier, by its number, for n_threads threads. */
__device__ __forceinline__ void named_sync(int id, int n_threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n_threads) : "memory");
}

/* -------------------------------------------------------------- copy engine */

/* Copies a box of a tensor map to shared memory; the barrier counts its bytes. */
__device__ __forceinline__ void copy_in(void *target, const CUtensorMap *map, uint64_t *barrier,
                                        int column, int row, int head, int batch)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(target)),
                 "l"(map), "r"(shared_address(barrier)), "r"(column), "r"(row), "r"(head),
                 "r"(batch)
                 : "memory");
}

__device__ __forceinline__ void copy_out(const CUtensorMap *map, const void *source, int column,
                                         int row, int head, int batch)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group"
                 " [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
                 "r"(shared_address(source)), "r"(column), "r"(row), "r"(head), "r"(batch)
                 : "memory");
}

__device__ __forceinline__ void copy_out_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Waits until shared memory has been read, or until everything is written. */
__device__ __forceinline__ void copy_out_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

__device__ __forceinline__ void copy_out_wait()
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* Copies contiguous bytes to shared memory; the barrier counts them.  Addresses and sizes are
 * multiples of 16. */
__device__ __forceinline__ void copy_bytes_in(void *target, const void *source, uint32_t n_bytes,
                                              uint64_t *barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];" ::"r"(shared_address(target)),
                 "l"(source), "r"(n_bytes), "r"(shared_address(barrier))
                 : "memory");
}

/* Copies contiguous bytes from shared memory. */
__device__ __forceinline__ void copy_bytes_out(void *target, const void *source, uint32_t n_bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(target),
                 "r"(shared_address(source)), "r"(n_bytes)
                 : "memory");
}

/* Adds floats in shared memory to floats in global memory. */
__device__ __forceinline__ void add_floats_out(float *target, const float *source, uint32_t n_bytes)
{
    asm volatile(
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(target),
        "r"(shared_address(source)), "r"(n_bytes)
        : "memory");
}

/* Makes earlier reads and writes of global memory visible to the copy engine. */
__device__ __forceinline__ void fence_async_global()
{
    asm volatile("fence.proxy.async.global;" ::: "memory");
}

/* Loads a counter that other blocks increase when they have finished something. */
__device__ __forceinline__ int load_acquire(const int *counter)
{
    int value;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
    return value;
}

__device__ __forceinline__ void add_release(int *counter, int value)
{
    asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(counter), "r"(value) : "memory");
}

/* Makes ordinary stores to shared memory visible to the copy engine. */
__device__ __forceinline__ void fence_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void prefetch_map(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* ---------------------------------------------------------------- registers */

template <int N> __device__ __forceinline__ void registers_give()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> __device__ __forceinline__ void registers_take()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* Stores four 8x8 matrices of 16 bits from registers to shared memory. */
__device__ __forceinline__ void store_matrices(uint32_t address, uint32_t a, uint32_t b, uint32_t c,
                                               uint32_t d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

/* -------------------------------------------------------------------- wgmma */

__device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until at most N groups are running. */
template <int N> __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

template <int N> __device__ __forceinline__ void settle(float (&values)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(values[i])::"memory");
}

/* The descriptor of a matrix in shared memory for wgmma: panels with 64 values (128 bytes,
 * swizzled) per row, eight rows (1024 bytes) per group, and `panel_bytes` from one panel to the
 * next (used only if panels lie along the product's N).  This is the lower half, to which steps are
 * added in units of 16 bytes; HL_UPPER is the rest. */
__device__ __forceinline__ uint32_t describe(uint32_t address, uint32_t panel_bytes)
{
    return (address & 0x3ffff) >> 4 | panel_bytes >> 4 << 16;
}

#define HL_UPPER "0x40000040" /* swizzle of 128 bytes; 1024 bytes per group */

/* Operand lists, eight registers at a time. */
#define HL_D8(d, i)                                                                                \
    "+f"((d)[(i)]), "+f"((d)[(i) + 1]), "+f"((d)[(i) + 2]), "+f"((d)[(i) + 3]),                    \
        "+f"((d)[(i) + 4]), "+f"((d)[(i) + 5]), "+f"((d)[(i) + 6]), "+f"((d)[(i) + 7])
#define HL_D32(d, i) HL_D8(d, i), HL_D8(d, (i) + 8), HL_D8(d, (i) + 16), HL_D8(d, (i) + 24)
#define HL_D40(d)    HL_D32(d, 0), HL_D8(d, 32)
#define HL_D48(d)    HL_D40(d), HL_D8(d, 40)
#define HL_D64(d)    HL_D32(d, 0), HL_D32(d, 32)
#define HL_D128(d)   HL_D64(d), HL_D32(d, 64), HL_D32(d, 96)

#define HL_D16(d) HL_D8(d, 0), HL_D8(d, 8)
#define HL_S16    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"

#define HL_S32                                                                                     \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                       \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define HL_S40 HL_S32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define HL_S48 HL_S40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define HL_S64                                                                                     \
    HL_S48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define HL_S128                                                                                    \
    HL_S64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "    \
           "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "      \
           "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "      \
           "%110, %111, "                                                                          \
           "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, "  \
           "%126, %127"

/* d (64, N) = or += A (64, 16) B (16, N), both in shared memory.  ALONG is "0, 0" if both lie along
 * K, "1, 1" if A lies along M and B along N. */
#define HL_WGMMA_SHARED(N, TYPE, S, D, A, B, P, ALONG)                                             \
    asm volatile("{\n.reg .pred add;\n.reg .b64 a, b;\nsetp.ne.b32 add, %" P ", 0;\n"              \
                 "mov.b64 a, {%" A ", " HL_UPPER "};\nmov.b64 b, {%" B ", " HL_UPPER "};\n"        \
                 "wgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE "." TYPE " {" S             \
                 "}, a, b, add, 1, 1, " ALONG ";\n}\n"                                             \
                 : D                                                                               \
                 : "r"(a), "r"(b), "r"(add))

/* d (64, N) += A (64, 16) in registers, B (16, N) in shared memory along N. */
#define HL_WGMMA_RS(N, TYPE, S, D, A, B)                                                           \
    asm volatile("{\n.reg .b64 b;\nmov.b64 b, {%" B ", " HL_UPPER "};\n"                           \
                 "wgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE "." TYPE " {" S "}, {" A    \
                 "}, b, 1, 1, 1, 1;\n}\n"                                                          \
                 : D                                                                               \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b))

/* The functions for both types, for d of COUNT registers. */
#define HL_WGMMA_FUNCTION(NAME, COUNT, N, S, D, A, B, P, ALONG)                                    \
    template <typename T>                                                                          \
    __device__ __forceinline__ void NAME(float(&d)[COUNT], uint32_t a, uint32_t b, int add)        \
    {                                                                                              \
        if constexpr (std::is_same<T, __half>::value)                                              \
            HL_WGMMA_SHARED(N, "f16", S, HL_LIST D, A, B, P, ALONG);                               \
        else                                                                                       \
            HL_WGMMA_SHARED(N, "bf16", S, HL_LIST D, A, B, P, ALONG);                              \
    }
#define HL_LIST(...) __VA_ARGS__

HL_WGMMA_FUNCTION(wgmma_ss, 32, "64", HL_S32, (HL_D32(d, 0)), "32", "33", "34", "0, 0")
HL_WGMMA_FUNCTION(wgmma_ss, 40, "80", HL_S40, (HL_D40(d)), "40", "41", "42", "0, 0")
HL_WGMMA_FUNCTION(wgmma_ss, 48, "96", HL_S48, (HL_D48(d)), "48", "49", "50", "0, 0")
HL_WGMMA_FUNCTION(wgmma_ss, 64, "128", HL_S64, (HL_D64(d)), "64", "65", "66", "0, 0")
HL_WGMMA_FUNCTION(wgmma_tt, 16, "32", HL_S16, (HL_D16(d)), "16", "17", "18", "1, 1")
HL_WGMMA_FUNCTION(wgmma_tt, 32, "64", HL_S32, (HL_D32(d, 0)), "32", "33", "34", "1, 1")

template <typename T>
__device__ __forceinline__ void wgmma_rs(float (&d)[32], const uint32_t *a, uint32_t b)
{
    if constexpr (std::is_same<T, __half>::value)
        HL_WGMMA_RS("64", "f16", HL_S32, HL_D32(d, 0), "%32, %33, %34, %35", "36");
    else
        HL_WGMMA_RS("64", "bf16", HL_S32, HL_D32(d, 0), "%32, %33, %34, %35", "36");
}

template <typename T>
__device__ __forceinline__ void wgmma_rs(float (&d)[64], const uint32_t *a, uint32_t b)
{
    if constexpr (std::is_same<T, __half>::value)
        HL_WGMMA_RS("128", "f16", HL_S64, HL_D64(d), "%64, %65, %66, %67", "68");
    else
        HL_WGMMA_RS("128", "bf16", HL_S64, HL_D64(d), "%64, %65, %66, %67", "68");
}

template <typename T>
__device__ __forceinline__ void wgmma_rs(float (&d)[128], const uint32_t *a, uint32_t b)
{
    if constexpr (std::is_same<T, __half>::value)
        HL_WGMMA_RS("256", "f16", HL_S128, HL_D128(d), "%128, %129, %130, %131", "132");
    else
        HL_WGMMA_RS("256", "bf16", HL_S128, HL_D128(d), "%128, %129, %130, %131", "132");
}

} // namespace headlight::ptx

#endif
