/* host.cu - problems in host memory: copies them to the device, runs them, copies the results back.
 *
 * A mirror owns the device's copies.  Inputs are sent; outputs are sent too, so that the bytes
 * between strided rows come back unchanged. */
#include <vector>

#include "kernels/cuda/error.cuh"
#include "kernels/cuda/headlight_cuda.h"

namespace headlight
{

class mirror
{
  public:
    ~mirror()
    {
        for (const copy &c : copies)
            cudaFree(c.device);
    }

    /* Replaces a pointer to n_bytes of host memory by a pointer to a copy on the device. */
    template <typename T> hl_status send(T *&pointer, size_t n_bytes, bool is_output)
    {
        void *device = nullptr;

        if (pointer == nullptr || n_bytes == 0)
            return HL_OK;
        HL_CUDA_TRY(check(cudaMalloc(&device, n_bytes), "memory on the device"));
        copies.push_back(
            { device, const_cast<void *>(static_cast<const void *>(pointer)), n_bytes, is_output });
        HL_CUDA_TRY(check(cudaMemcpy(device, pointer, n_bytes, cudaMemcpyHostToDevice),
                          "a copy to the device"));
        pointer = static_cast<T *>(device);
        return HL_OK;
    }

    hl_status send_rows(hl_rows &rows, int64_t n_batch, int64_t n_heads, int64_t n_rows,
                        int64_t width, bool is_output)
    {
        static const size_t sizes[] = { 4, 2, 2, 8 }; /* f32, f16, bf16, f64 */
        int64_t span = (n_batch - 1) * rows.batch_stride + (n_heads - 1) * rows.head_stride +
                       (n_rows - 1) * rows.row_stride + width;

        if (n_batch == 0 || n_rows == 0 || rows.data == nullptr)
            return HL_OK;
        return send(rows.data, static_cast<size_t>(span) * sizes[rows.dtype], is_output);
    }

    /* Waits for the device, then copies the outputs back. */
    hl_status fetch() const
    {
        HL_CUDA_TRY(check(cudaDeviceSynchronize(), "the work on the device"));
        for (const copy &c : copies) {
            if (c.is_output)
                HL_CUDA_TRY(check(cudaMemcpy(c.host, c.device, c.n_bytes, cudaMemcpyDeviceToHost),
                                  "a copy from the device"));
        }
        return HL_OK;
    }

  private:
    struct copy {
        void  *device;
        void  *host;
        size_t n_bytes;
        bool   is_output;
    };
    std::vector<copy> copies;
};

static hl_status send_problem(mirror &m, hl_attention &a)
{
    size_t n_batch = a.n_batch, n_heads = a.n_heads, n_keys = a.n_keys;
    size_t n_segment_rows = a.segment_stride == 0 ? 1 : n_batch;

    HL_CUDA_TRY(m.send_rows(a.q, a.n_batch, a.n_heads, a.n_queries, a.d_head, false));
    HL_CUDA_TRY(m.send_rows(a.k, a.n_batch, a.n_kv_heads, a.n_keys, a.d_head, false));
    HL_CUDA_TRY(m.send_rows(a.v, a.n_batch, a.n_kv_heads, a.n_keys, a.d_value, false));
    HL_CUDA_TRY(m.send(a.query_start, n_batch * sizeof *a.query_start, false));
    HL_CUDA_TRY(m.send(a.key_length, n_batch * sizeof *a.key_length, false));
    HL_CUDA_TRY(m.send(a.alibi_slopes, n_heads * sizeof *a.alibi_slopes, false));
    HL_CUDA_TRY(m.send(a.key_bias, n_heads * n_keys * sizeof *a.key_bias, false));
    HL_CUDA_TRY(m.send(a.row_bias, n_batch * a.n_queries * n_keys * sizeof *a.row_bias, false));
    HL_CUDA_TRY(m.send(a.sinks, n_heads * sizeof *a.sinks, false));
    HL_CUDA_TRY(m.send(a.gates, n_heads * sizeof *a.gates, false));
    return m.send(a.segments,
                  n_segment_rows == 1 ? n_keys : (n_batch - 1) * a.segment_stride + n_keys, false);
}

static size_t count_rows(const hl_attention &a)
{
    return static_cast<size_t>(a.n_batch) * a.n_heads * a.n_queries;
}

static hl_status send_result(mirror &m, hl_attention_result &r, const hl_attention &a)
{
    size_t  n_rows   = count_rows(a);
    float **arrays[] = { &r.lse,  &r.entropy,  &r.renyi2,   &r.varentropy, &r.entropy_nosink,
                         &r.peak, &r.self, &r.previous, &r.first,      &r.max_logit };

    HL_CUDA_TRY(m.send_rows(r.out, a.n_batch, a.n_heads, a.n_queries, a.d_value, true));
    for (float **array : arrays)
        HL_CUDA_TRY(m.send(*array, n_rows * sizeof **array, true));
    HL_CUDA_TRY(m.send(r.argmax, n_rows * sizeof *r.argmax, true));
    return m.send(r.segment_mass, n_rows * a.n_segments * sizeof *r.segment_mass, true);
}

static hl_status send_upstream(mirror &m, hl_attention_upstream &u, const hl_attention &a)
{
    size_t n_bytes = count_rows(a) * sizeof(float);

    HL_CUDA_TRY(m.send_rows(u.grad_out, a.n_batch, a.n_heads, a.n_queries, a.d_value, false));
    HL_CUDA_TRY(m.send(u.grad_entropy, n_bytes, false));
    HL_CUDA_TRY(m.send(u.grad_lse, n_bytes, false));
    if (u.grad_out.data != nullptr)
        HL_CUDA_TRY(m.send_rows(u.out, a.n_batch, a.n_heads, a.n_queries, a.d_value, false));
    HL_CUDA_TRY(m.send(u.lse, n_bytes, false));
    return m.send(u.entropy, n_bytes, false);
}

static hl_status send_gradient(mirror &m, hl_attention_gradient &g, const hl_attention &a)
{
    HL_CUDA_TRY(m.send_rows(g.dq, a.n_batch, a.n_heads, a.n_queries, a.d_head, true));
    HL_CUDA_TRY(m.send_rows(g.dk, a.n_batch, a.n_kv_heads, a.n_keys, a.d_head, true));
    HL_CUDA_TRY(m.send_rows(g.dv, a.n_batch, a.n_kv_heads, a.n_keys, a.d_value, true));
    HL_CUDA_TRY(m.send(g.dgates, a.n_heads * sizeof *g.dgates, true));
    return m.send(g.dsinks, a.n_heads * sizeof *g.dsinks, true);
}

} // namespace headlight

using namespace headlight;

hl_status hl_cuda_forward_host(const hl_attention_result *result, const hl_attention *attention,
                               const hl_cuda_launch *launch)
{
    mirror              m;
    hl_attention        a = *attention;
    hl_attention_result r = *result;

    HL_CUDA_TRY(send_problem(m, a));
    HL_CUDA_TRY(send_result(m, r, a));
    HL_CUDA_TRY(hl_cuda_forward(&r, &a, launch));
    return m.fetch();
}

hl_status hl_cuda_backward_host(const hl_attention_gradient *gradient,
                                const hl_attention          *attention,
                                const hl_attention_upstream *upstream, const hl_cuda_launch *launch)
{
    mirror                m;
    hl_attention          a = *attention;
    hl_attention_gradient g = *gradient;
    hl_attention_upstream u = *upstream;

    HL_CUDA_TRY(send_problem(m, a));
    HL_CUDA_TRY(send_upstream(m, u, a));
    HL_CUDA_TRY(send_gradient(m, g, a));
    HL_CUDA_TRY(hl_cuda_backward(&g, &a, &u, launch));
    return m.fetch();
}

hl_status hl_cuda_received_host(float *received, const hl_attention *attention, const float *lse,
                                int64_t first_query, const hl_cuda_launch *launch)
{
    mirror       m;
    hl_attention a = *attention;
    size_t       n = static_cast<size_t>(a.n_batch) * a.n_heads * a.n_keys;

    a.v.data = nullptr; /* not read */
    HL_CUDA_TRY(send_problem(m, a));
    HL_CUDA_TRY(m.send(lse, count_rows(a) * sizeof *lse, false));
    HL_CUDA_TRY(m.send(received, n * sizeof *received, true));
    HL_CUDA_TRY(hl_cuda_received(received, &a, lse, first_query, launch));
    return m.fetch();
}
