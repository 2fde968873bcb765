/* library.cu - the entry points of libheadlight_cuda.so: choice of the kernel, and errors. */
#include <stdarg.h>
#include <stdio.h>

#include <algorithm>

#include "kernels/cuda/error.cuh"
#include "kernels/cuda/headlight_cuda.h"
#include "kernels/cuda/kernels.cuh"

namespace headlight
{

/* --------------------------------------------------------------------- errors */

static thread_local char message[512];

hl_status fail(hl_status status, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return status;
}

hl_status check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return HL_OK;
    return fail(error == cudaErrorMemoryAllocation ? HL_NO_MEMORY : HL_INTERNAL, "CUDA: %s: %s",
                what, cudaGetErrorString(error));
}

/* --------------------------------------------------------------------- device */

/* The current device's properties, queried once per device and thread. */
static hl_status current_device(const cudaDeviceProp **out)
{
    static thread_local cudaDeviceProp properties;
    static thread_local int            known = -1;
    int                                device;

    HL_CUDA_TRY(check(cudaGetDevice(&device), "the current device"));
    if (device != known) {
        HL_CUDA_TRY(check(cudaGetDeviceProperties(&properties, device), "the device's properties"));
        known = device;
    }
    *out = &properties;
    return HL_OK;
}

/* -------------------------------------------------------------------- problem */

static int window(bool is_on, int64_t width)
{
    return is_on ? (int)std::min<int64_t>(width, WIDE_OPEN) : WIDE_OPEN;
}

problem describe(const hl_attention_result *result, const hl_attention *a)
{
    problem p = {};

    p.q          = a->q;
    p.k          = a->k;
    p.v          = a->v;
    p.out        = result->out;
    p.n_batch    = (int)a->n_batch;
    p.n_heads    = (int)a->n_heads;
    p.n_kv_heads = (int)a->n_kv_heads;
    p.n_queries  = (int)a->n_queries;
    p.n_keys     = (int)a->n_keys;
    p.d_head     = (int)a->d_head;
    p.d_value    = (int)a->d_value;
    p.group      = p.n_heads / p.n_kv_heads;

    p.window_left  = window((a->flags & HL_ATTENTION_WINDOW_LEFT) != 0, a->window_left);
    p.window_right = window((a->flags & HL_ATTENTION_WINDOW_RIGHT) != 0, a->window_right);
    if ((a->flags & HL_ATTENTION_CAUSAL) != 0)
        p.window_right = 0;
    if (a->query_start == nullptr && p.window_left >= p.n_keys - 1 &&
        (a->flags & HL_ATTENTION_WINDOW_BLOCKS) == 0) /* hides nothing */
        p.window_left = WIDE_OPEN;
    if ((a->flags & HL_ATTENTION_WINDOW_BLOCKS) != 0 && p.window_left < WIDE_OPEN)
        p.window_block = p.window_left + 1;
    p.window_sink    = (int)std::min<int64_t>(a->window_sink, WIDE_OPEN);
    p.scale          = (float)a->scale;
    p.softcap        = (float)a->softcap;
    p.exact_scale    = a->scale;
    p.exact_softcap  = a->softcap;
    p.query_start    = a->query_start;
    p.key_length     = a->key_length;
    p.alibi_slopes   = a->alibi_slopes;
    p.key_bias       = a->key_bias;
    p.row_bias       = a->row_bias;
    p.sinks          = a->sinks;
    p.gates          = a->gates;
    p.segments       = a->segments;
    p.segment_stride = a->segment_stride;
    p.n_segments     = (int)a->n_segments;
    p.result         = *result;
    return p;
}

} // namespace headlight

using namespace headlight;

int hl_cuda_interface(void)
{
    return HL_CUDA_INTERFACE;
}

const char *hl_cuda_error(void)
{
    return message;
}

hl_status hl_cuda_probe(void)
{
    int         count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);

    if (error != cudaSuccess)
        return fail(HL_NOT_FOUND, "no usable NVIDIA GPU: %s", cudaGetErrorString(error));
    if (count == 0)
        return fail(HL_NOT_FOUND, "no NVIDIA GPU in this machine");
    return HL_OK;
}

static hl_status check_limits(const hl_attention *a)
{
    if (a->n_queries > MOST_ROWS || a->n_keys > MOST_ROWS || a->n_batch > INT32_MAX ||
        a->n_heads > INT32_MAX || a->n_batch * a->n_heads > INT32_MAX)
        return fail(HL_LIMIT,
                    "the GPU takes 2^28 queries and keys and 2^31 heads, got %lld, %lld and "
                    "%lld x %lld",
                    (long long)a->n_queries, (long long)a->n_keys, (long long)a->n_batch,
                    (long long)a->n_heads);
    return HL_OK;
}

/* A kernel, and the reason why it does not take the problem, or NULL. */
struct candidate {
    hl_cuda_kernel kernel;
    const char    *name;
    const char    *refusal;
};

static hl_status launch_kernel(const problem &p, hl_cuda_kernel kernel,
                               const cudaDeviceProp &device, cudaStream_t stream)
{
    switch (kernel) {
    case HL_CUDA_DECODE:
        return launch_decode(p, device, stream);
    case HL_CUDA_HOPPER:
        return launch_hopper(p, device, stream);
    case HL_CUDA_PORTABLE:
        return launch_portable(p, stream);
    default:
        return launch_plain(p, stream);
    }
}

/* Launches the kernel asked for, or the first that does not refuse. */
static hl_status launch_one(const problem &p, const cudaDeviceProp &device,
                            const hl_cuda_launch *launch)
{
    const candidate candidates[] = {
        { HL_CUDA_DECODE, "decode", decode_refuses(p, device) },
        { HL_CUDA_HOPPER, "Hopper", hopper_refuses(p, device) },
        { HL_CUDA_PORTABLE, "portable", portable_refuses(p, device) },
        { HL_CUDA_PLAIN, "plain", nullptr },
    };
    for (const candidate &c : candidates) {
        if (launch->kernel == c.kernel && c.refusal != nullptr)
            return fail(HL_UNSUPPORTED, "the %s kernel does not take %s", c.name, c.refusal);
        if (launch->kernel == c.kernel || (launch->kernel == HL_CUDA_AUTO && c.refusal == nullptr))
            return launch_kernel(p, c.kernel, device, static_cast<cudaStream_t>(launch->stream));
    }
    return fail(HL_BAD_ARGUMENT, "no kernel has the number %d", static_cast<int>(launch->kernel));
}

/* Of the forward kernels only the plain one computes segments.  If another kernel runs, segments
 * are computed after it. */
static hl_status launch_forward(const problem &p, const hl_cuda_launch *launch)
{
    const cudaDeviceProp *device = nullptr;
    problem               rest   = p;

    HL_CUDA_TRY(current_device(&device));
    if (p.result.segment_mass == nullptr || launch->kernel != HL_CUDA_AUTO ||
        segments_refuse(p, *device) != nullptr)
        return launch_one(p, *device, launch);
    rest.result.segment_mass = nullptr;
    HL_CUDA_TRY(launch_one(rest, *device, launch));
    return launch_segments(p, static_cast<cudaStream_t>(launch->stream));
}

static bool is_empty(const problem &p)
{
    return p.n_batch == 0 || p.n_queries == 0;
}

hl_status hl_cuda_forward(const hl_attention_result *result, const hl_attention *attention,
                          const hl_cuda_launch *launch)
{
    HL_CUDA_TRY(check_limits(attention));
    problem p = describe(result, attention);
    return is_empty(p) ? HL_OK : launch_forward(p, launch);
}

/* Launches the gradient kernel asked for, or the first that does not refuse. */
static hl_status launch_backward(const problem &p, const hl_attention_gradient &gradient,
                                 const hl_attention_upstream &upstream,
                                 const hl_cuda_launch        *launch)
{
    const cudaDeviceProp *device = nullptr;
    cudaStream_t          stream = static_cast<cudaStream_t>(launch->stream);
    hl_cuda_kernel        wanted = launch->kernel;

    HL_CUDA_TRY(current_device(&device));
    const char *no_hopper   = backward_hopper_refuses(p, gradient, upstream, *device);
    const char *no_portable = backward_portable_refuses(p, gradient, upstream, *device);
    if (wanted == HL_CUDA_HOPPER && no_hopper != nullptr)
        return fail(HL_UNSUPPORTED, "the Hopper gradient does not take %s", no_hopper);
    if (wanted == HL_CUDA_PORTABLE && no_portable != nullptr)
        return fail(HL_UNSUPPORTED, "the portable gradient does not take %s", no_portable);
    if (wanted == HL_CUDA_HOPPER || (wanted == HL_CUDA_AUTO && no_hopper == nullptr))
        return launch_backward_hopper(p, gradient, upstream, *device, stream);
    if (wanted == HL_CUDA_PORTABLE || (wanted == HL_CUDA_AUTO && no_portable == nullptr))
        return launch_backward_portable(p, gradient, upstream, stream);
    if (wanted != HL_CUDA_AUTO && wanted != HL_CUDA_PLAIN)
        return fail(HL_UNSUPPORTED, "the gradient has no kernel of number %d", (int)wanted);
    return launch_backward_plain(p, gradient, upstream, stream);
}

hl_status hl_cuda_backward(const hl_attention_gradient *gradient, const hl_attention *attention,
                           const hl_attention_upstream *upstream, const hl_cuda_launch *launch)
{
    hl_attention_result nothing = {};

    HL_CUDA_TRY(check_limits(attention));
    return launch_backward(describe(&nothing, attention), *gradient, *upstream, launch);
}

hl_status hl_cuda_received(float *received, const hl_attention *attention, const float *lse,
                           int64_t first_query, const hl_cuda_launch *launch)
{
    const cudaDeviceProp     *device  = nullptr;
    const hl_attention_result nothing = {};
    const received_sums       sums    = { received, lse, static_cast<int>(first_query) };
    cudaStream_t              stream  = static_cast<cudaStream_t>(launch->stream);

    HL_CUDA_TRY(check_limits(attention));
    HL_CUDA_TRY(current_device(&device));
    problem p = describe(&nothing, attention);
    if (p.n_batch == 0 || p.n_keys == 0)
        return HL_OK;
    const struct {
        hl_cuda_kernel kernel;
        const char    *name, *refusal;
        hl_status (*launch)(const problem &, const received_sums &, const cudaDeviceProp &,
                            cudaStream_t);
    } candidates[] = {
        { HL_CUDA_HOPPER, "Hopper", received_hopper_refuses(p, *device), launch_received_hopper },
        { HL_CUDA_PORTABLE, "portable", received_portable_refuses(p, *device),
          launch_received_portable },
        { HL_CUDA_PLAIN, "plain", nullptr, launch_received_plain },
    };
    for (const auto &c : candidates) {
        if (launch->kernel == c.kernel && c.refusal != nullptr)
            return fail(HL_UNSUPPORTED, "the %s kernel does not take %s", c.name, c.refusal);
        if (launch->kernel == c.kernel || (launch->kernel == HL_CUDA_AUTO && c.refusal == nullptr))
            return c.launch(p, sums, *device, stream);
    }
    return fail(HL_UNSUPPORTED, "received attention has no kernel of number %d",
                static_cast<int>(launch->kernel));
}
