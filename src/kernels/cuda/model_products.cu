/* model_products.cu - linear maps, out = x W' + b.
 *
 * A step of decoding multiplies few rows: each weight is read once for very little arithmetic.  A
 * kernel here does that, with a warp for some rows of W.  cuBLASLt does everything else; it is
 * opened at run time, so that attention alone needs only a driver.
 *
 * cuBLASLt counts by columns: to it, out' (n_out, n_rows) = W out of (n_in, n_out) transposed,
 * times x' (n_in, n_rows).  Its choice for each shape is kept as a plan. */
#include <cublasLt.h>
#include <dlfcn.h>
#include <stdlib.h>

#include <array>
#include <map>

#include "kernels/cuda/model.cuh"

namespace headlight
{

/* -------------------------------------------------------------------- few rows */

constexpr int FEW_ROWS  = 8;
constexpr int FEW_WARPS = 4;

/* The type in which products of a type are summed.  f32 is for checks, so its sums should add no
 * rounding of their own, which unscaled scores would amplify. */
template <typename T> struct sum_of {
    using type = float;
};
template <> struct sum_of<float> {
    using type = double;
};

/* Each warp multiplies OUTS rows of W with ROWS rows of x. */
template <typename T, int ROWS, int OUTS>
__global__ static void __launch_bounds__(32 * FEW_WARPS) multiply_few(const hl_device_linear l)
{
    using S             = typename sum_of<T>::type;
    constexpr int W     = 16 / sizeof(T);
    int64_t       first = (static_cast<int64_t>(blockIdx.x) * FEW_WARPS + threadIdx.x / 32) * OUTS;
    int           lane  = threadIdx.x % 32;
    const T      *w = static_cast<const T *>(l.weight), *x = static_cast<const T *>(l.x);
    S             sums[OUTS][ROWS] = {};

    if (first >= l.n_out)
        return;
#pragma unroll 4
    for (int64_t at = lane * W; at < l.n_in; at += 32 * W) {
        float weights[OUTS][W];
#pragma unroll
        for (int o = 0; o < OUTS; o++) /* rows beyond the last repeat the first */
            load_pack<T, W>(weights[o], w, (first + o < l.n_out ? first + o : first) * l.n_in + at);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float values[W];
            load_pack<T, W>(values, x, (r < l.n_rows ? r : 0) * l.x_stride + at);
#pragma unroll
            for (int o = 0; o < OUTS; o++) {
#pragma unroll
                for (int i = 0; i < W; i++)
                    sums[o][r] = fma(S(weights[o][i]), S(values[i]), sums[o][r]);
            }
        }
    }
#pragma unroll
    for (int o = 0; o < OUTS; o++) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            S sum = sum_warp(sums[o][r]);
            if (lane != 0 || first + o >= l.n_out || r >= l.n_rows)
                continue;
            if (l.bias != nullptr)
                sum += l.bias[first + o];
            float value[1] = { static_cast<float>(sum) };
            store_some<1>({ l.out, l.out_dtype }, r * l.out_stride + first + o, value);
        }
    }
}

template <typename T, int ROWS, int OUTS>
static hl_status launch_few(hl_device *device, const hl_device_linear &l)
{
    multiply_few<T, ROWS, OUTS>
        <<<blocks_for(l.n_out, FEW_WARPS * OUTS), 32 * FEW_WARPS, 0, device->stream>>>(l);
    return check(cudaGetLastError(), "a product of few rows");
}

template <typename T> static hl_status choose_few(hl_device *device, const hl_device_linear &l)
{
    if (l.n_rows == 1)
        return launch_few<T, 1, 1>(device, l);
    if (l.n_rows == 2)
        return launch_few<T, 2, 2>(device, l);
    return l.n_rows <= 4 ? launch_few<T, 4, 4>(device, l) : launch_few<T, 8, 4>(device, l);
}

static bool is_few(const hl_device_linear &l)
{
    return l.n_rows <= FEW_ROWS && is_wide({ l.x, l.weight }, { l.n_in, l.x_stride });
}

/* ----------------------------------------------------------------------- cuBLASLt */

constexpr size_t WORKSPACE_BYTES = 64 << 20;
constexpr size_t MOST_PLANS      = 512;

/* Products with equal shapes share a plan. */
using product_shape = std::array<int64_t, 8>;

struct product_plan {
    cublasLtMatmulDesc_t   description;
    cublasLtMatrixLayout_t weight, x, out;
    cublasLtMatmulAlgo_t   algorithm;
};

struct blas {
    void                                 *library;
    cublasLtHandle_t                      handle;
    void                                 *workspace;
    void                                 *bias; /* the bias of the next product, in its type */
    int64_t                               bias_room;
    std::map<product_shape, product_plan> plans;

    decltype(&cublasLtCreate)                       create;
    decltype(&cublasLtDestroy)                      destroy;
    decltype(&cublasLtMatmul)                       matmul;
    decltype(&cublasLtMatmulDescCreate)             description_create;
    decltype(&cublasLtMatmulDescDestroy)            description_destroy;
    decltype(&cublasLtMatmulDescSetAttribute)       description_set;
    decltype(&cublasLtMatrixLayoutCreate)           layout_create;
    decltype(&cublasLtMatrixLayoutDestroy)          layout_destroy;
    decltype(&cublasLtMatmulPreferenceCreate)       preference_create;
    decltype(&cublasLtMatmulPreferenceDestroy)      preference_destroy;
    decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
    decltype(&cublasLtMatmulAlgoGetHeuristic)       choose;
};

static hl_status check_blas(cublasStatus_t status, const char *what)
{
    return status == CUBLAS_STATUS_SUCCESS
               ? HL_OK
               : fail(HL_INTERNAL, "cuBLASLt: %s: status %d", what, static_cast<int>(status));
}

template <typename F> static bool find(F &function, void *library, const char *name)
{
    function = reinterpret_cast<F>(dlsym(library, name));
    return function != nullptr;
}

static bool find_functions(blas *b)
{
    return find(b->create, b->library, "cublasLtCreate") &&
           find(b->destroy, b->library, "cublasLtDestroy") &&
           find(b->matmul, b->library, "cublasLtMatmul") &&
           find(b->description_create, b->library, "cublasLtMatmulDescCreate") &&
           find(b->description_destroy, b->library, "cublasLtMatmulDescDestroy") &&
           find(b->description_set, b->library, "cublasLtMatmulDescSetAttribute") &&
           find(b->layout_create, b->library, "cublasLtMatrixLayoutCreate") &&
           find(b->layout_destroy, b->library, "cublasLtMatrixLayoutDestroy") &&
           find(b->preference_create, b->library, "cublasLtMatmulPreferenceCreate") &&
           find(b->preference_destroy, b->library, "cublasLtMatmulPreferenceDestroy") &&
           find(b->preference_set, b->library, "cublasLtMatmulPreferenceSetAttribute") &&
           find(b->choose, b->library, "cublasLtMatmulAlgoGetHeuristic");
}

#define HL_TEXT(x)      #x
#define HL_TEXT_OF(x)   HL_TEXT(x)
#define HL_BLAS_LIBRARY "libcublasLt.so." HL_TEXT_OF(CUBLAS_VER_MAJOR)

hl_status blas_open(hl_device *device)
{
    blas *b      = new blas();
    device->blas = b;
    b->library   = dlopen(HL_BLAS_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (b->library == nullptr)
        b->library = dlopen("/usr/local/cuda/lib64/" HL_BLAS_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (b->library == nullptr)
        return fail(HL_NOT_FOUND, "no " HL_BLAS_LIBRARY ", which comes with CUDA: %s", dlerror());
    if (!find_functions(b))
        return fail(HL_UNSUPPORTED, HL_BLAS_LIBRARY " is of another version");
    HL_CUDA_TRY(check_blas(b->create(&b->handle), "a handle"));
    return check(cudaMalloc(&b->workspace, WORKSPACE_BYTES), "memory for products");
}

static void free_plans(blas *b)
{
    for (auto &entry : b->plans) {
        b->layout_destroy(entry.second.weight);
        b->layout_destroy(entry.second.x);
        b->layout_destroy(entry.second.out);
        b->description_destroy(entry.second.description);
    }
    b->plans.clear();
}

void blas_close(hl_device *device)
{
    blas *b = device->blas;

    if (b == nullptr)
        return;
    if (b->handle != nullptr) {
        free_plans(b);
        b->destroy(b->handle);
    }
    cudaFree(b->workspace);
    cudaFree(b->bias);
    if (b->library != nullptr)
        dlclose(b->library);
    delete b;
}

/* -------------------------------------------------------------------------- plans */

static cudaDataType_t blas_type(hl_dtype dtype)
{
    return dtype == HL_DTYPE_F32 ? CUDA_R_32F : (dtype == HL_DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_16F);
}

static product_shape shape_of(const hl_device_linear &l)
{
    return { l.n_rows,     l.n_in,  l.n_out,     l.x_stride,
             l.out_stride, l.dtype, l.out_dtype, l.bias != nullptr };
}

static hl_status describe_product(blas *b, product_plan &plan, const hl_device_linear &l)
{
    const cublasOperation_t  transposed = CUBLAS_OP_T;
    const cublasLtEpilogue_t epilogue   = CUBLASLT_EPILOGUE_BIAS;
    uint64_t                 n_in = l.n_in, n_out = l.n_out, n_rows = l.n_rows;

    HL_CUDA_TRY(check_blas(b->description_create(&plan.description, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                           "a product"));
    HL_CUDA_TRY(check_blas(b->description_set(plan.description, CUBLASLT_MATMUL_DESC_TRANSA,
                                              &transposed, sizeof transposed),
                           "a transposed product"));
    if (l.bias != nullptr)
        HL_CUDA_TRY(check_blas(b->description_set(plan.description, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                  &epilogue, sizeof epilogue),
                               "a product with a bias"));
    HL_CUDA_TRY(check_blas(b->layout_create(&plan.weight, blas_type(l.dtype), n_in, n_out, l.n_in),
                           "a weight's shape"));
    HL_CUDA_TRY(check_blas(b->layout_create(&plan.x, blas_type(l.dtype), n_in, n_rows, l.x_stride),
                           "the shape of rows"));
    return check_blas(
        b->layout_create(&plan.out, blas_type(l.out_dtype), n_out, n_rows, l.out_stride),
        "the shape of a product");
}

static hl_status choose_algorithm(blas *b, product_plan &plan, const hl_device_linear &l)
{
    size_t                          n_bytes    = WORKSPACE_BYTES;
    int                             n_found    = 0;
    cublasLtMatmulPreference_t      preference = nullptr;
    cublasLtMatmulHeuristicResult_t found      = {};

    HL_CUDA_TRY(check_blas(b->preference_create(&preference), "a preference"));
    b->preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &n_bytes,
                      sizeof n_bytes);
    cublasStatus_t status = b->choose(b->handle, plan.description, plan.weight, plan.x, plan.out,
                                      plan.out, preference, 1, &found, &n_found);
    b->preference_destroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS || n_found == 0)
        return fail(HL_UNSUPPORTED,
                    "cuBLASLt has no product of (%lld, %lld) with (%lld, %lld): status %d",
                    (long long)l.n_rows, (long long)l.n_in, (long long)l.n_out, (long long)l.n_in,
                    static_cast<int>(status));
    plan.algorithm = found.algo;
    return HL_OK;
}

static hl_status plan_of(const product_plan **out, hl_device *device, const hl_device_linear &l)
{
    blas *b     = device->blas;
    auto  found = b->plans.find(shape_of(l));

    if (found == b->plans.end()) {
        product_plan plan = {};

        if (b->plans.size() >= MOST_PLANS)
            free_plans(b);
        HL_CUDA_TRY(describe_product(b, plan, l));
        HL_CUDA_TRY(choose_algorithm(b, plan, l));
        found = b->plans.emplace(shape_of(l), plan).first;
    }
    *out = &found->second;
    return HL_OK;
}

/* --------------------------------------------------------------------------- bias */

__global__ static void round_bias(span out, const float *bias, int64_t n)
{
    int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;

    if (at < n) {
        float value[1] = { bias[at] };
        store_some<1>(out, at, value);
    }
}

/* cuBLASLt requires the bias in the type of the output. */
static hl_status prepare_bias(const void **out, hl_device *device, const hl_device_linear &l)
{
    blas *b = device->blas;

    *out = l.bias;
    if (l.bias == nullptr || l.out_dtype == HL_DTYPE_F32)
        return HL_OK;
    if (b->bias_room < l.n_out) {
        HL_CUDA_TRY(check(cudaStreamSynchronize(device->stream), "the work on the device"));
        cudaFree(b->bias);
        b->bias      = nullptr;
        b->bias_room = 0;
        HL_CUDA_TRY(
            check(cudaMalloc(&b->bias, static_cast<size_t>(l.n_out) * 4), "memory for a bias"));
        b->bias_room = l.n_out;
    }
    round_bias<<<blocks_for(l.n_out, 256), 256, 0, device->stream>>>({ b->bias, l.out_dtype },
                                                                     l.bias, l.n_out);
    *out = b->bias;
    return check(cudaGetLastError(), "a bias");
}

static hl_status multiply(hl_device *device, const hl_device_linear &l)
{
    const float         one = 1.0f, none = 0.0f;
    blas               *b    = device->blas;
    const product_plan *plan = nullptr;
    const void         *bias = nullptr;

    HL_CUDA_TRY(plan_of(&plan, device, l));
    HL_CUDA_TRY(prepare_bias(&bias, device, l));
    if (bias != nullptr)
        HL_CUDA_TRY(
            check_blas(b->description_set(plan->description, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                          &bias, sizeof bias),
                       "a bias"));
    return check_blas(b->matmul(b->handle, plan->description, &one, l.weight, plan->weight, l.x,
                                plan->x, &none, l.out, plan->out, l.out, plan->out,
                                &plan->algorithm, b->workspace, WORKSPACE_BYTES, device->stream),
                      "a product");
}

hl_status op_linear(hl_device *device, const hl_device_linear *linear)
{
    const hl_device_linear &l = *linear;

    if (l.n_rows == 0 || l.n_out == 0)
        return HL_OK;
    if (!is_few(l))
        return multiply(device, l);
    if (l.dtype == HL_DTYPE_F32)
        return choose_few<float>(device, l);
    return l.dtype == HL_DTYPE_BF16 ? choose_few<__nv_bfloat16>(device, l)
                                    : choose_few<__half>(device, l);
}

} // namespace headlight
