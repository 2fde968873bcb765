/* model_device.cu - memory, copies and graphs of the GPU as a device, and its table.
 *
 * Everything runs in one stream, except copies to the host and the work that prepares them.  These
 * run in lanes: separate streams that wait for earlier work and run beside later work.  A lane that
 * is used while a graph is recorded becomes a branch of the graph, joined to its end. */
#include "kernels/cuda/headlight_cuda.h"
#include "kernels/cuda/model.cuh"

struct hl_device_graph {
    cudaGraphExec_t run;
    bool            used[HL_DEVICE_LANES];
};

namespace headlight
{

/* --------------------------------------------------------------------- opening */

static void close_device(hl_device *device)
{
    if (device == nullptr)
        return;
    cudaDeviceSynchronize();
    blas_close(device);
    if (device->stage != nullptr)
        cudaFree(device->stage);
    for (cudaStream_t lane : device->lanes) {
        if (lane != nullptr)
            cudaStreamDestroy(lane);
    }
    if (device->issued != nullptr)
        cudaEventDestroy(device->issued);
    if (device->copied != nullptr)
        cudaEventDestroy(device->copied);
    if (device->stream != nullptr)
        cudaStreamDestroy(device->stream);
    delete device;
}

static hl_status open_streams(hl_device *device)
{
    int number = 0;

    HL_CUDA_TRY(check(cudaGetDevice(&number), "the current device"));
    HL_CUDA_TRY(
        check(cudaDeviceGetAttribute(&device->n_processors, cudaDevAttrMultiProcessorCount, number),
              "the number of multiprocessors"));
    HL_CUDA_TRY(
        check(cudaStreamCreateWithFlags(&device->stream, cudaStreamNonBlocking), "a stream"));
    for (cudaStream_t &lane : device->lanes)
        HL_CUDA_TRY(check(cudaStreamCreateWithFlags(&lane, cudaStreamNonBlocking), "a lane"));
    HL_CUDA_TRY(
        check(cudaEventCreateWithFlags(&device->issued, cudaEventDisableTiming), "an event"));
    return check(cudaEventCreateWithFlags(&device->copied, cudaEventDisableTiming), "an event");
}

static hl_status open_device(hl_device **out, const hl_linear_pool *pool)
{
    hl_device *device = new hl_device();
    (void)pool;

    *out             = nullptr;
    hl_status status = hl_cuda_probe();
    if (status == HL_OK)
        status = open_streams(device);
    if (status == HL_OK)
        status = blas_open(device);
    if (status != HL_OK) {
        close_device(device);
        return status;
    }
    *out = device;
    return HL_OK;
}

/* ---------------------------------------------------------------------- memory */

static hl_status measure_memory(hl_device *device, hl_device_memory *out)
{
    (void)device;
    return check(cudaMemGetInfo(&out->free_bytes, &out->total_bytes), "the memory that is free");
}

static hl_status alloc_memory(hl_device *device, void **out, size_t n_bytes)
{
    *out             = nullptr;
    hl_status status = check(cudaMalloc(out, n_bytes > 0 ? n_bytes : 1), "memory on the device");
    if (status == HL_OK)
        return check(cudaMemsetAsync(*out, 0, n_bytes, device->stream), "zeroes");
    cudaGetLastError(); /* clears the error, which would otherwise be blamed on the next call */
    return status;
}

static void free_memory(hl_device *device, void *block)
{
    (void)device;
    cudaFree(block);
}

static hl_status alloc_host(hl_device *device, void **out, size_t n_bytes)
{
    (void)device;
    *out = nullptr;
    return check(cudaMallocHost(out, n_bytes > 0 ? n_bytes : 1), "memory for copies");
}

static void free_host(hl_device *device, void *block)
{
    (void)device;
    cudaFreeHost(block);
}

/* ---------------------------------------------------------------------- copies */

static hl_status copy_in(hl_device *device, void *to, const void *from, size_t n_bytes)
{
    return check(cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyHostToDevice, device->stream),
                 "a copy to the device");
}

static hl_status zero(hl_device *device, void *to, size_t n_bytes)
{
    return check(cudaMemsetAsync(to, 0, n_bytes, device->stream), "zeroes");
}

hl_status enter_lane(hl_device *device, int lane)
{
    HL_CUDA_TRY(check(cudaEventRecord(device->issued, device->stream), "an event"));
    device->used[lane] = true;
    return check(cudaStreamWaitEvent(device->lanes[lane], device->issued), "a lane's turn");
}

static hl_status copy_out(hl_device *device, int lane, void *to, const void *from, size_t n_bytes)
{
    HL_CUDA_TRY(enter_lane(device, lane));
    return check(cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyDeviceToHost, device->lanes[lane]),
                 "a copy from the device");
}

static hl_status arrived(hl_device *device, int lane)
{
    return check(cudaStreamSynchronize(device->lanes[lane]), "the work on the device");
}

static hl_status wait(hl_device *device)
{
    HL_CUDA_TRY(check(cudaStreamSynchronize(device->stream), "the work on the device"));
    for (int lane = 0; lane < HL_DEVICE_LANES; lane++)
        HL_CUDA_TRY(arrived(device, lane));
    return HL_OK;
}

/* ------------------------------------------------------------------- attention */

static hl_status attend(hl_device *device, const hl_device_attention *parts, int64_t n_parts)
{
    const hl_cuda_launch launch = { device->stream, HL_CUDA_AUTO };

    for (int64_t i = 0; i < n_parts; i++)
        HL_CUDA_TRY(hl_cuda_forward(&parts[i].result, &parts[i].problem, &launch));
    return HL_OK;
}

/* ---------------------------------------------------------------------- graphs */

static hl_status graph_begin(hl_device *device)
{
    for (bool &used : device->used)
        used = false;
    device->recording = true;
    return check(cudaStreamBeginCapture(device->stream, cudaStreamCaptureModeRelaxed),
                 "recording operations");
}

/* Joins the graph's lanes: branches must end in the stream in which the recording began. */
static hl_status join_lanes(hl_device *device)
{
    for (int lane = 0; lane < HL_DEVICE_LANES; lane++) {
        if (!device->used[lane])
            continue;
        HL_CUDA_TRY(check(cudaEventRecord(device->copied, device->lanes[lane]), "an event"));
        HL_CUDA_TRY(check(cudaStreamWaitEvent(device->stream, device->copied), "a lane's end"));
    }
    return HL_OK;
}

static void graph_free(hl_device *device, hl_device_graph *graph)
{
    (void)device;
    if (graph == nullptr)
        return;
    if (graph->run != nullptr)
        cudaGraphExecDestroy(graph->run);
    delete graph;
}

static hl_status graph_end(hl_device *device, hl_device_graph **out)
{
    cudaGraph_t      recorded = nullptr;
    hl_device_graph *graph    = new hl_device_graph();

    *out              = nullptr;
    hl_status joined  = join_lanes(device);
    hl_status status  = check(cudaStreamEndCapture(device->stream, &recorded), "a recording");
    device->recording = false;
    if (joined != HL_OK)
        status = joined;
    if (status == HL_OK)
        status = check(cudaGraphInstantiate(&graph->run, recorded, 0), "a graph of operations");
    if (recorded != nullptr)
        cudaGraphDestroy(recorded);
    if (status != HL_OK) {
        graph_free(device, graph);
        return status;
    }
    for (int lane = 0; lane < HL_DEVICE_LANES; lane++)
        graph->used[lane] = device->used[lane];
    *out = graph;
    return HL_OK;
}

/* The lanes used by the graph have arrived when the graph has ended. */
static hl_status graph_run(hl_device *device, const hl_device_graph *graph)
{
    HL_CUDA_TRY(check(cudaGraphLaunch(graph->run, device->stream), "a graph of operations"));
    HL_CUDA_TRY(check(cudaEventRecord(device->issued, device->stream), "an event"));
    for (int lane = 0; lane < HL_DEVICE_LANES; lane++) {
        if (graph->used[lane])
            HL_CUDA_TRY(
                check(cudaStreamWaitEvent(device->lanes[lane], device->issued), "a lane's turn"));
    }
    return HL_OK;
}

/* ------------------------------------------------------------------- the table */

static const hl_device_ops table = {
    .interface     = HL_DEVICE_INTERFACE,
    .name          = "cuda",
    .is_near       = false,
    .error         = hl_cuda_error,
    .open          = open_device,
    .close         = close_device,
    .memory        = measure_memory,
    .alloc         = alloc_memory,
    .free          = free_memory,
    .alloc_host    = alloc_host,
    .free_host     = free_host,
    .copy_in       = copy_in,
    .zero          = zero,
    .copy_out      = copy_out,
    .arrived       = arrived,
    .wait          = wait,
    .put_values    = op_put_values,
    .linear        = op_linear,
    .experts_bytes = op_experts_bytes,
    .experts       = op_experts,
    .add_gated     = op_add_gated,
    .embed         = op_embed,
    .norm          = op_norm,
    .angles        = op_angles,
    .heads         = op_heads,
    .activate      = op_activate,
    .select        = op_select,
    .gate_heads    = op_gate_heads,
    .copy_rows     = op_copy_rows,
    .streams       = op_streams,
    .match         = op_match,
    .conv          = op_conv,
    .scan          = op_scan,
    .gate          = op_gate,
    .cap           = op_cap,
    .logits        = op_logits,
    .pick          = op_pick,
    .finite        = op_finite,
    .attention     = attend,
    .patterns      = op_patterns,
    .follow        = op_follow,
    .reduce        = op_reduce,
    .outputs       = op_outputs,
    .distances     = op_distances,
    .pattern_sums  = op_pattern_sums,
    .graph_begin   = graph_begin,
    .graph_end     = graph_end,
    .graph_run     = graph_run,
    .graph_free    = graph_free,
};

} // namespace headlight

const hl_device_ops *hl_cuda_device(void)
{
    return &headlight::table;
}
