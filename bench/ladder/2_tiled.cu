/* 2_tiled.cu - keys and values in shared memory, one pass, in float on the CUDA cores.
 *
 * A block has 32 rows, four threads a row, each with a quarter of the row's columns.  Tiles
 * of 32 keys are read once for all of them; the softmax and its sums move along with the
 * maximum (row_state.h), so nothing is read twice. */
#include "ladder.h"

constexpr int ROWS = 32, KEYS = 32, PARTS = 4;

struct float_state {
    float max = -INFINITY, sum = 0, dot = 0, collision = 0;

    /* One more score, x = score - max; returns its weight, and what the others' are times. */
    __device__ float push(float score, float *factor)
    {
        float most  = fmaxf(max, score);
        float shift = max == -INFINITY ? 0.0f : max - most;
        float scale = __expf(shift), x = score - most, weight = __expf(x);

        dot       = fmaf(weight, x, scale * fmaf(shift, sum, dot));
        sum       = fmaf(scale, sum, weight);
        collision = fmaf(weight, weight, scale * scale * collision);
        max       = most;
        *factor   = scale;
        return weight;
    }
};

template <int D> __global__ static void tiled(const ladder_problem p)
{
    constexpr int    PART = D / PARTS;
    __shared__ float k[KEYS][D], v[KEYS][D];
    int              first = (p.length / ROWS - 1 - static_cast<int>(blockIdx.x)) * ROWS;
    int              row = first + threadIdx.x / PARTS, part = threadIdx.x % PARTS;
    size_t           head = static_cast<size_t>(blockIdx.y) * p.length;
    float            q[PART], out[PART] = {};
    float_state      state;

    for (int i = 0; i < PART; i++) /* columns part, part + 4, ...: no bank conflicts */
        q[i] = p.scale * __bfloat162float(p.q[(head + row) * D + i * PARTS + part]);
    for (int base = 0; base < first + ROWS; base += KEYS) {
        __syncthreads();
        for (int i = threadIdx.x; i < KEYS * D; i += blockDim.x) {
            k[i / D][i % D] = __bfloat162float(p.k[(head + base) * D + i]);
            v[i / D][i % D] = __bfloat162float(p.v[(head + base) * D + i]);
        }
        __syncthreads();
        for (int key = 0; key < KEYS && base + key <= first + ROWS - 1; key++) {
            float score = 0.0f, factor;
            for (int i = 0; i < PART; i++)
                score = fmaf(q[i], k[key][i * PARTS + part], score);
            score += __shfl_xor_sync(~0u, score, 1);
            score += __shfl_xor_sync(~0u, score, 2);
            if (base + key > row)
                continue;
            float weight = state.push(score, &factor);
            for (int i = 0; i < PART; i++)
                out[i] = fmaf(weight, v[key][i * PARTS + part], factor * out[i]);
        }
        __syncwarp();
    }
    for (int i = 0; i < PART; i++)
        p.out[(head + row) * D + i * PARTS + part] = __float2bfloat16(out[i] / state.sum);
    if (part == 0) {
        p.lse[head + row]     = state.max + logf(state.sum);
        p.entropy[head + row] = logf(state.sum) - state.dot / state.sum;
        p.renyi2[head + row]  = 2.0f * logf(state.sum) - logf(state.collision);
    }
}

template <int D> static void launch(const ladder_problem &p)
{
    tiled<D><<<dim3(p.length / ROWS, p.n_heads), ROWS * PARTS>>>(p);
}

void run_2(const ladder_problem &p)
{
    LADDER_BY_WIDTH(p, launch);
}
