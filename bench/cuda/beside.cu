/* beside.cu - what the softmax of the Hopper kernel costs a warp beside busy tensor cores.
 *
 *     make CUDA=1 build/beside && build/beside
 *
 * One block, three warp groups.  The first runs a body over 64 scores a thread again and again, a warp
 * in each quarter of the multiprocessor; the second may run the same, and the third have products of
 * 64 x 128 x 16 made, one after the other, as O += P V is.  Cycles of the first group's body, and
 * beside products those that a product takes (64 at best).
 *
 * Then two groups that issue S = Q K^T and O += P V, eight products each, the second group a while after the
 * first: when each group is through with issuing, and when its results are there. */
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

/* One kind of instruction alone, 64 of it. */
enum kind { ROUNDINGS, INTEGERS, MULTIPLY_ADDS, DOUBLES };

template <kind KIND> struct only {
    float  sums[16];
    double wide[8];

    __device__ void run(float (&scores)[N])
    {
#pragma unroll
        for (int i = 0; i < N; i++) {
            float &sum = sums[i % 16];
            if (KIND == ROUNDINGS)
                sum = __int_as_float(ptx::pack<__nv_bfloat16>(scores[i], sum));
            if (KIND == INTEGERS)
                sum = __int_as_float(added(__float_as_int(sum), __float_as_int(scores[i])));
            if (KIND == MULTIPLY_ADDS)
                sum = fmaf(scores[i], scores[(i + 17) % N], sum);
            if (KIND == DOUBLES)
                wide[i % 8] = fma(wide[(i + 1) % 8], wide[(i + 2) % 8], wide[i % 8]);
        }
    }
    __device__ static int added(int a, int b) /* as it stands: not three at a time */
    {
        asm volatile("add.s32 %0, %0, %1;" : "+r"(a) : "r"(b));
        return a;
    }
    __device__ float result() const
    {
        float all = 0.0f;
        for (int i = 0; i < 16; i++)
            all += sums[i] + static_cast<float>(wide[i % 8]);
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

template <kind KIND> __device__ static only<KIND> open(only<KIND> *, char *, const float *in)
{
    only<KIND> body;
    for (int i = 0; i < 16; i++)
        body.sums[i] = body.wide[i % 8] = in[i % 2];
    return body;
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

/* -------------------------------------------------------------------- the queue */

struct arrivals {
    unsigned begin, scores_issued, out_issued, scores,
        out; /* cycles from the first group's start */
};

__global__ static void __launch_bounds__(256, 1)
    issue(arrivals *out_of, float *sink, unsigned delay)
{
    extern __shared__ __align__(1024) char raw[];
    __shared__ unsigned                    start;
    using consumer_of    = hopper_consumer<shape<HOPPER_NOTHING>>;
    int         group    = __shfl_sync(~0u, threadIdx.x / 128, 0);
    consumer_of consumer = { *reinterpret_cast<shape<HOPPER_NOTHING>::shared *>(raw), group, 1.0f };
    float       scores[N];
    arrivals    at;

    for (int i = threadIdx.x; i < READ / 4; i += 256)
        reinterpret_cast<unsigned *>(raw)[i] = 0x3f803f80u;
    ptx::fence_async();
    consumer.reset();
    for (int i = 0; i < N / 2; i++)
        consumer.weights[i] = 0x3f803f80u;
    for (int turn = 0; turn < 2; turn++) { /* the first one warms up */
        __syncthreads();
        if (threadIdx.x == 0)
            start = now() + 2000;
        __syncthreads();
        while (static_cast<int>(now() - start - group * delay) < 0)
            ;
        ptx::named_sync(1 + group, 128);
        at.begin = now();
        consumer.issue_scores(scores, 0);
        at.scores_issued = now();
        consumer.issue_out(0);
        at.out_issued = now();
        ptx::wgmma_wait<1>();
        ptx::settle(scores);
        at.scores = now();
        ptx::wgmma_wait<0>();
        ptx::settle(consumer.out);
        at.out = now();
    }
    float sum = 0.0f;
    for (int i = 0; i < N; i++)
        sum += scores[i] + consumer.out[i];
    sink[threadIdx.x] = sum;
    if (threadIdx.x % 128 == 0)
        out_of[group] = { at.begin - start, at.scores_issued - start, at.out_issued - start,
                          at.scores - start, at.out - start };
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

static void time_queue(unsigned delay)
{
    arrivals *device, at[2] = {};
    float    *sink;

    if (cudaMalloc(&device, sizeof at) != cudaSuccess ||
        cudaMalloc(&sink, 256 * sizeof *sink) != cudaSuccess)
        return;
    cudaFuncSetAttribute(issue, cudaFuncAttributeMaxDynamicSharedMemorySize, READ + 16);
    issue<<<1, 256, READ + 16>>>(device, sink, delay);
    cudaError_t error = cudaMemcpy(at, device, sizeof at, cudaMemcpyDeviceToHost);
    if (error != cudaSuccess)
        printf("%s\n", cudaGetErrorString(error));
    for (const arrivals &a : at)
        printf("%-28s%8u%10u%10u%10u%10u\n", &a == at ? "the first group" : "the second", a.begin,
               a.scores_issued, a.out_issued, a.scores, a.out);
    cudaFree(device);
    cudaFree(sink);
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
    time_all<only<ROUNDINGS>>("two weights rounded, nothing else", device, in);
    time_all<only<INTEGERS>>("integers added", device, in);
    time_all<only<MULTIPLY_ADDS>>("multiply-adds of three registers", device, in);
    time_all<only<DOUBLES>>("the same in double precision", device, in);
    time_all<weighing<HOPPER_NOTHING>>("the kernel's softmax, no statistics", device, in);
    time_all<weighing<HOPPER_ENTROPIES>>("with Shannon and Renyi-2", device, in);
    time_all<weighing<HOPPER_ALL>>("with all statistics", device, in);
    printf("\n%-28s%8s%10s%10s%10s%10s\n", "cycles", "begins", "S issued", "O issued", "S there",
           "O there");
    for (unsigned delay : { 0u, 300u, 600u, 1200u })
        time_queue(delay);
    return 0;
}
