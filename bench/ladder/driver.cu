/* driver.cu - checks and times every step of the ladder.
 *
 *     make CUDA=1 build/ladder && build/ladder [LENGTH]
 *
 * First each step against step 1 (double precision), 1024 rows: entropies within 1e-4, out
 * within 2^-7 of its norm.  Then times at LENGTH rows (16384), 2048 / d heads: the median of
 * nine rounds, all steps of a round in random order; steps 1 and 2 at 1024 and 4096 rows. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <random>
#include <vector>

#include "ladder.h"

struct step {
    const char *name;
    void (*run)(const ladder_problem &);
    int most_rows; /* slower ones are timed on less */
};

static const step STEPS[] = {
    { "1 naive", run_1, 1024 },          { "2 tiled", run_2, 4096 },
    { "3 mma.sync", run_3, 1 << 20 },    { "4 cp.async", run_4, 1 << 20 },
    { "5 TMA, wgmma", run_5, 1 << 20 },  { "6 groups", run_6, 1 << 20 },
    { "7 lazy maxima", run_7, 1 << 20 }, { "8 warps alone", run_8, 1 << 20 },
    { "9 pairs", run_9, 1 << 20 },       { "9 without statistics", run_9_without, 1 << 20 },
};
constexpr int N_STEPS = sizeof STEPS / sizeof *STEPS;

static void must(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        fprintf(stderr, "ladder: %s: %s\n", what, cudaGetErrorString(error));
        exit(1);
    }
}

template <typename T> static T *take(size_t n)
{
    void *pointer = nullptr;
    must(cudaMalloc(&pointer, n * sizeof(T)), "memory");
    must(cudaMemset(pointer, 0xff, n * sizeof(T)), "memory"); /* NaN */
    return static_cast<T *>(pointer);
}

static __nv_bfloat16 *random_rows(size_t n, unsigned seed)
{
    std::mt19937                    engine(seed);
    std::normal_distribution<float> normal;
    size_t                          n_drawn = std::min<size_t>(n, 1 << 22);
    std::vector<__nv_bfloat16>      values(n);
    for (size_t i = 0; i < n; i++) /* long ones repeat, at an odd stride */
        values[i] = i < n_drawn ? __float2bfloat16(normal(engine)) : values[(i * 7 + 3) % n_drawn];
    __nv_bfloat16 *rows = take<__nv_bfloat16>(n);
    must(cudaMemcpy(rows, values.data(), n * 2, cudaMemcpyHostToDevice), "a copy");
    return rows;
}

static ladder_problem make_problem(int d, int length)
{
    ladder_problem p = {};
    p.n_heads        = 2048 / d;
    p.length         = length;
    p.d              = d;
    p.scale          = 1.0f / sqrtf(static_cast<float>(d));
    size_t n_rows    = static_cast<size_t>(p.n_heads) * length;
    p.q              = random_rows(n_rows * d, 1);
    p.k              = random_rows(n_rows * d, 2);
    p.v              = random_rows(n_rows * d, 3);
    p.out            = take<__nv_bfloat16>(n_rows * d);
    p.lse            = take<float>(n_rows);
    p.entropy        = take<float>(n_rows);
    p.renyi2         = take<float>(n_rows);
    return p;
}

static void free_problem(const ladder_problem &p)
{
    const void *all[] = { p.q, p.k, p.v, p.out, p.lse, p.entropy, p.renyi2 };
    for (const void *pointer : all)
        cudaFree(const_cast<void *>(pointer));
}

/* ------------------------------------------------------------------------ checking */

struct answers {
    std::vector<float>         lse, entropy, renyi2;
    std::vector<__nv_bfloat16> out;

    explicit answers(const ladder_problem &p)
        : lse(static_cast<size_t>(p.n_heads) * p.length), entropy(lse.size()), renyi2(lse.size()),
          out(lse.size() * p.d)
    {
        must(cudaDeviceSynchronize(), "a step");
        cudaMemcpy(lse.data(), p.lse, lse.size() * 4, cudaMemcpyDeviceToHost);
        cudaMemcpy(entropy.data(), p.entropy, lse.size() * 4, cudaMemcpyDeviceToHost);
        cudaMemcpy(renyi2.data(), p.renyi2, lse.size() * 4, cudaMemcpyDeviceToHost);
        must(cudaMemcpy(out.data(), p.out, out.size() * 2, cudaMemcpyDeviceToHost), "a copy");
    }
};

static double worst(const std::vector<float> &a, const std::vector<float> &b)
{
    double most = 0.0;
    for (size_t i = 0; i < a.size(); i++)
        most = fabs(a[i] - b[i]) <= most ? most : fabs(a[i] - b[i]); /* NaN is the worst */
    return most;
}

static double relative(const std::vector<__nv_bfloat16> &a, const std::vector<__nv_bfloat16> &b)
{
    double difference = 0.0, norm = 0.0;
    for (size_t i = 0; i < a.size(); i++) {
        double x = __bfloat162float(a[i]), y = __bfloat162float(b[i]);
        difference += (x - y) * (x - y);
        norm += y * y;
    }
    return sqrt(difference / norm);
}

static bool check_steps(int d)
{
    ladder_problem p    = make_problem(d, 1024);
    bool           good = true;

    run_1(p);
    answers wanted(p);
    for (const step &s : STEPS) {
        bool with = s.run != run_9_without;
        cudaMemset(p.out, 0xff, wanted.out.size() * 2);
        cudaMemset(p.lse, 0xff, wanted.lse.size() * 4);
        s.run(p);
        answers seen(p);
        double  lse = worst(seen.lse, wanted.lse), out = relative(seen.out, wanted.out);
        double  entropy = with ? worst(seen.entropy, wanted.entropy) : 0.0;
        double  renyi2  = with ? worst(seen.renyi2, wanted.renyi2) : 0.0;
        bool    fine    = lse <= 1e-4 && entropy <= 1e-4 && renyi2 <= 1e-4 && out <= 1.0 / 128;
        printf("%s d=%3d %-20s lse %.1e entropy %.1e renyi2 %.1e out %.1e\n", fine ? "ok " : "BAD",
               d, s.name, lse, entropy, renyi2, out);
        good = good && fine;
    }
    free_problem(p);
    return good;
}

/* ------------------------------------------------------------------------- timing */

static float time_once(const step &s, const ladder_problem &p)
{
    cudaEvent_t begin, end;
    float       ms = 0.0f;

    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    cudaEventRecord(begin);
    s.run(p);
    cudaEventRecord(end);
    must(cudaEventSynchronize(end), s.name);
    cudaEventElapsedTime(&ms, begin, end);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return ms;
}

static void time_steps(int d, int length)
{
    ladder_problem     whole = make_problem(d, length);
    std::vector<float> times[N_STEPS];
    std::vector<int>   order;
    std::mt19937       engine(1);
    auto               part = [&](int i) {
        ladder_problem p = whole;
        p.length         = std::min(length, STEPS[i].most_rows);
        return p;
    };

    for (int i = 0; i < N_STEPS; i++) {
        order.push_back(i);
        time_once(STEPS[i], part(i));
    }
    for (int round = 0; round < 9; round++) {
        std::shuffle(order.begin(), order.end(), engine);
        for (int i : order)
            times[i].push_back(time_once(STEPS[i], part(i)));
    }
    for (int i = 0; i < N_STEPS; i++) {
        std::sort(times[i].begin(), times[i].end());
        double ms = times[i][times[i].size() / 2], rows = part(i).length;
        printf("d=%3d S=%5.0f %-20s %9.3f ms %6.1f TFLOP/s\n", d, rows, STEPS[i].name, ms,
               2.0 * rows * rows * 2048 / ms / 1e9);
    }
    free_problem(whole);
}

int main(int argc, char **argv)
{
    int  length = argc > 1 ? atoi(argv[1]) : 16384;
    bool good   = check_steps(64);

    good = check_steps(128) && good;
    time_steps(64, length);
    time_steps(128, length);
    return good ? 0 : 1;
}
