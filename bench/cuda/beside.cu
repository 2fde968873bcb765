/* beside.cu - what the softmax of the Hopper kernel costs a warp beside busy tensor cores.
 *
 *     make CUDA=1 build/beside && build/beside
 *
 * One block, three warp groups.  The first runs a body over 64 scores a thread again and again, a warp
 * in each quarter of the multiprocessor; the second may run the same, and the third have products of
 * 64 x 128 x 16 made, one after the other, as O += P V is.  Cycles of the first group's body, and
 * beside products those that a product takes (64 at best). */
#include <stdio.h>

#include "kernels/cuda/forward_hopper.cuh"

using namespace headlight;

constexpr int N       = 64; /* scores of a thread: a block of 128 keys */
constexpr int REPEATS = 64;
constexpr int READ    = 200000; /* bytes that products may read; the flag stands behind them */

template <hopper_level LEVEL> using shape = hopper_shape<__nv_bfloat16, 128, 128, 2, LEVEL>;

enum others { NOBODY, THE_SAME, PRODUCTS, BOTH };

struct times {
    int    body;
    double product;
};

__device__ static unsigned now()
{
    unsigned cycle;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(cycle)::"memory");
    return cycle;
}

/* ------------------------------------------------------------------------ bodies */

/* An exponential, and so many multiply-adds that read two registers, 16 scores behind. */
template <int ADDS> struct exponentials {
    float sums[16];

    __device__ void run(float (&scores)[N])
    {
#pragma unroll
        for (int i = 0; i < N; i++) {
            scores[i] = ptx::exp2_fast(scores[i]);
#pragma unroll
            for (int j = 0; j < ADDS; j++) {
                float weight        = scores[(i + 48 - 4 * j) % N];
                sums[4 * j + i % 4] = fmaf(weight, weight, sums[4 * j + i % 4]);
            }
        }
    }
    __device__ float result() const
    {
        float all = 0.0f;
        for (float sum : sums)
            all += sum;
        return all;
    }
};

/* What the library does with a block that hides nothing. */
template <hopper_level LEVEL> struct weighing {
    hopper_consumer<shape<LEVEL>> consumer;
    int                           fits = 1;

    __device__ void run(float (&scores)[N])
    {
        typename hopper_consumer<shape<LEVEL>>::sums block;

        fits &= consumer.weigh_block(block, scores);
        consumer.rows.add(block);
    }
    __device__ float result() const
    {
        const auto &rows = consumer.rows;
        return fits + rows.sum[0] + rows.sum[1] + rows.dot[0] + rows.dot[1] + rows.collision[0] +
               rows.collision[1] + rows.spread[0] + rows.spread[1] + rows.most[0] + rows.most[1];
    }
};

template <int ADDS>
__device__ static exponentials<ADDS> open(exponentials<ADDS> *, char *, const float *)
{
    return {};
}

template <hopper_level LEVEL>
__device__ static weighing<LEVEL> open(weighing<LEVEL> *, char *raw, const float *numbers)
{
    weighing<LEVEL> w = { { *reinterpret_cast<typename shape<LEVEL>::shared *>(raw), 0,
                            numbers[0] } };
    w.consumer.top[0] = w.consumer.top[1] = numbers[1];
    return w;
}

/* ------------------------------------------------------------------------ groups */

template <typename BODY> __device__ static void time_body(times *out, char *raw, const float *in)
{
    BODY  body = open(static_cast<BODY *>(nullptr), raw, in + N);
    float scores[N];

    for (int i = 0; i < N; i++)
        scores[i] = in[i] - threadIdx.x;
    for (int i = 0; i < 2000; i++) /* until products are under way */
        asm volatile("nanosleep.u32 1;");
    unsigned begin = now();
#pragma unroll 1
    for (int i = 0; i < REPEATS; i++) {
        body.run(scores);
        ptx::settle(scores);
    }
    unsigned end = now();
    float    sum = body.result();
    for (int i = 0; i < N; i++)
        sum += scores[i];
    if (threadIdx.x == 0)
        out->body = static_cast<int>(end - begin) / REPEATS;
    if (sum == 12345.678f) /* never, which only we know */
        out->body = 0;
}

/* Has the first group ended?  All of the third learn the same: its products need all four warps. */
__device__ static bool is_over(const volatile int *over)
{
    uint32_t any;
    asm volatile("{\n.reg .pred over, any;\n"
                 "setp.ne.b32 over, %1, 0;\n"
                 "barrier.cta.red.or.pred any, 1, 128, over;\n"
                 "selp.u32 %0, 1, 0, any;\n}\n"
                 : "=r"(any)
                 : "r"(*over)
                 : "memory");
    return __shfl_sync(~0u, any, 0) != 0;
}

__device__ static void multiply(times *out, char *raw, const volatile int *over)
{
    constexpr int AT_ONCE     = 32;
    auto         &shared      = *reinterpret_cast<shape<HOPPER_NOTHING>::shared *>(raw);
    uint32_t      v           = ptx::describe(ptx::shared_address(shared.v[0]), 128 * 128);
    float         product[64] = {};
    uint32_t      weights[32];
    int           n = 0;

    for (int i = 0; i < 32; i++)
        weights[i] = 0x3f803f80 ^ (threadIdx.x * 77 + i & 0x7f);
    unsigned begin = now();
    while (!is_over(over)) {
        ptx::wgmma_fence();
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            ptx::wgmma_rs<__nv_bfloat16>(product, weights + i % 8 * 4, v + i % 8 * 128);
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
        ptx::settle(product);
        n += AT_ONCE;
    }
    double cycles = static_cast<double>(now() - begin) / n;
    float  sum    = 0.0f;
    for (float value : product)
        sum += value;
    if (threadIdx.x == 256)
        out->product = sum == 12345.678f ? 0 : cycles; /* the assembler drops what nobody reads */
}

template <typename BODY, others OTHERS>
__global__ static void __launch_bounds__(384, 1) test(times *out, const float *in)
{
    extern __shared__ __align__(1024) char raw[];
    auto                                  *over = reinterpret_cast<volatile int *>(raw + READ);

    for (int i = threadIdx.x; i < READ / 4; i += 384)
        reinterpret_cast<unsigned *>(raw)[i] = 0x3f803f80u ^ (i * 2654435761u & 0x007f007f);
    if (threadIdx.x == 0)
        *over = 0;
    ptx::fence_async();
    __syncthreads();
    int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (group == 0) {
        time_body<BODY>(out, raw, in);
        __threadfence_block();
        if (threadIdx.x == 0)
            *over = 1;
    } else if (group == 1 && (OTHERS == THE_SAME || OTHERS == BOTH)) {
        time_body<BODY>(out + 1, raw, in);
    } else if (group == 2 && (OTHERS == PRODUCTS || OTHERS == BOTH)) {
        multiply(out, raw, over);
    }
}

/* -------------------------------------------------------------------------- host */

template <typename BODY, others OTHERS> static void time_beside(times *device, const float *in)
{
    times t = {};

    cudaFuncSetAttribute(test<BODY, OTHERS>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         READ + 16);
    for (int i = 0; i < 2; i++) /* the first one warms up */
        test<BODY, OTHERS><<<1, 384, READ + 16>>>(device, in);
    cudaError_t error = cudaMemcpy(&t, device, sizeof t, cudaMemcpyDeviceToHost);
    if (error != cudaSuccess)
        printf("  %s", cudaGetErrorString(error));
    printf("%10d", t.body);
    if (OTHERS >= PRODUCTS)
        printf(" (%.0f)", t.product);
}

template <typename BODY> static void time_all(const char *name, times *device, const float *in)
{
    printf("%-44s", name);
    time_beside<BODY, NOBODY>(device, in);
    time_beside<BODY, THE_SAME>(device, in);
    time_beside<BODY, PRODUCTS>(device, in);
    time_beside<BODY, BOTH>(device, in);
    printf("\n");
}

int main()
{
    float  scores[N + 2], *in; /* and the scale, and a maximum */
    times *device;

    for (int i = 0; i < N; i++)
        scores[i] = -0.01f * (i % 13);
    scores[N]     = 0.1275f;
    scores[N + 1] = 1.0f;
    if (cudaMalloc(&in, sizeof scores) != cudaSuccess ||
        cudaMalloc(&device, 2 * sizeof *device) != cudaSuccess)
        return fprintf(stderr, "beside: no memory on a GPU\n"), 1;
    cudaMemcpy(in, scores, sizeof scores, cudaMemcpyHostToDevice);
    printf("%-44s%10s%10s%15s%15s\n", "64 scores, cycles", "alone", "two", "and products",
           "two and they");
    time_all<exponentials<0>>("exponentials", device, in);
    time_all<exponentials<2>>("and two multiply-adds each", device, in);
    time_all<exponentials<3>>("three", device, in);
    time_all<exponentials<4>>("four", device, in);
    time_all<weighing<HOPPER_NOTHING>>("the kernel's softmax, no statistics", device, in);
    time_all<weighing<HOPPER_ENTROPIES>>("with Shannon and Renyi-2", device, in);
    time_all<weighing<HOPPER_ALL>>("with all statistics", device, in);
    return 0;
}
