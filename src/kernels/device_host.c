/* device_host.c - the device "host": the CPU behind the seam of device.h.
 *
 * Memory is the process's own and every call is done when it returns, so copies are plain and
 * there is nothing to wait for.  It is no faster than the CPU's own path: it is the
 * definition of what another device must do, and what the driver is tested on. */
#include "kernels/device_host.h"

#include <string.h>
#include <unistd.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "kernels/quant.h"

/* -------------------------------------------------------------------- memory */

hl_status hl_device_host_grow(float **block, size_t *size, int64_t count)
{
    if ((size_t)count <= *size)
        return HL_OK;
    hl_free(*block);
    *block = NULL;
    *size  = 0;
    HL_NEED(HL_ALLOC(block, (size_t)count));
    *size = (size_t)count;
    return HL_OK;
}

void hl_device_host_load(float *out, const void *rows, hl_dtype dtype, int64_t first, int64_t n)
{
    const uint8_t *from = (const uint8_t *)rows + (size_t)first * (hl_dtype_bits(dtype) / 8);

    (void)hl_dtype_to_f32(out, from, dtype, (size_t)n); /* a compute type: cannot fail */
}

void hl_device_host_store(void *rows, hl_dtype dtype, int64_t first, const float *x, int64_t n)
{
    uint8_t *to = (uint8_t *)rows + (size_t)first * (hl_dtype_bits(dtype) / 8);

    (void)hl_dtype_from_f32(to, dtype, x, (size_t)n);
}

static hl_status open_host(hl_device **out, int n_threads)
{
    hl_device        *device  = NULL;
    const hl_kernels *kernels = NULL;

    *out = NULL;
    HL_NEED(hl_kernels_current(&kernels));
    HL_NEED(HL_ALLOC_ZEROED(&device, 1));
    device->dense          = kernels->dense;
    device->pool.n_threads = n_threads;
    *out                   = device;
    return HL_OK;
}

static void close_host(hl_device *device)
{
    if (device == NULL)
        return;
    hl_free(device->pool.scratch);
    hl_free(device->values);
    hl_free(device);
}

/* All that the machine has counts as free: who uses the rest can give it back. */
static hl_status memory_of(hl_device *device, hl_device_memory *out)
{
    size_t n_bytes = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    (void)device;

    *out = (hl_device_memory){ n_bytes, n_bytes };
    return HL_OK;
}

static hl_status alloc_block(hl_device *device, void **out, size_t n_bytes)
{
    (void)device;
    return hl_alloc_zeroed(out, n_bytes, 1);
}

static void free_block(hl_device *device, void *block)
{
    (void)device;
    hl_free(block);
}

/* -------------------------------------------------------------------- copies */

static hl_status copy_in(hl_device *device, void *to, const void *from, size_t n_bytes)
{
    (void)device;
    if (n_bytes > 0)
        memcpy(to, from, n_bytes);
    return HL_OK;
}

static hl_status zero(hl_device *device, void *to, size_t n_bytes)
{
    (void)device;
    memset(to, 0, n_bytes);
    return HL_OK;
}

static hl_status copy_out(hl_device *device, int lane, void *to, const void *from, size_t n_bytes)
{
    (void)lane;
    return copy_in(device, to, from, n_bytes);
}

static hl_status arrived(hl_device *device, int lane)
{
    (void)device;
    (void)lane;
    return HL_OK;
}

static hl_status wait_for_all(hl_device *device)
{
    (void)device;
    return HL_OK;
}

/* Some blocks at a time, by way of floats. */
static hl_status put_values(hl_device *device, void *to, hl_dtype to_dtype, const void *from,
                            hl_dtype from_dtype, int64_t n_values)
{
    enum { MOST = 4096 };
    hl_dtype_block block  = hl_dtype_block_of(from_dtype);
    int64_t        step   = (int64_t)(MOST / block.n_values * block.n_values);
    const uint8_t *source = from;
    float          values[MOST];
    (void)device;

    for (int64_t first = 0; first < n_values; first += step) {
        int64_t n = n_values - first < step ? n_values - first : step;

        HL_NEED(hl_dequantise(values, from_dtype,
                              source + (size_t)first / block.n_values * block.n_bytes, (size_t)n));
        hl_device_host_store(to, to_dtype, first, values, n);
    }
    return HL_OK;
}

/* ----------------------------------------------------------------- attention */

static hl_status attention(hl_device *device, const hl_attention_result *result,
                           const hl_attention *problem)
{
    hl_attention        own = *problem;
    hl_attention_result out = *result;

    own.n_threads = device->pool.n_threads;
    return hl_attention_forward(&out, &own);
}

/* --------------------------------------------------------------------- table */

const hl_device_ops hl_device_host = {
    .interface     = HL_DEVICE_INTERFACE,
    .name          = "host",
    .error         = hl_error_message,
    .open          = open_host,
    .close         = close_host,
    .memory        = memory_of,
    .alloc         = alloc_block,
    .free          = free_block,
    .alloc_host    = alloc_block,
    .free_host     = free_block,
    .copy_in       = copy_in,
    .zero          = zero,
    .copy_out      = copy_out,
    .arrived       = arrived,
    .wait          = wait_for_all,
    .put_values    = put_values,
    .linear        = hl_device_host_linear,
    .experts_bytes = hl_device_host_experts_bytes,
    .experts       = hl_device_host_experts,
    .add_gated     = hl_device_host_add_gated,
    .embed         = hl_device_host_embed,
    .norm          = hl_device_host_norm,
    .angles        = hl_device_host_angles,
    .heads         = hl_device_host_heads,
    .activate      = hl_device_host_activate,
    .copy_rows     = hl_device_host_copy_rows,
    .cap           = hl_device_host_cap,
    .logits        = hl_device_host_logits,
    .pick          = hl_device_host_pick,
    .finite        = hl_device_host_finite,
    .attention     = attention,
    .patterns      = hl_device_host_patterns,
    .follow        = hl_device_host_follow,
    .reduce        = hl_device_host_reduce,
    .outputs       = hl_device_host_outputs,
    .distances     = hl_device_host_distances,
    .pattern_sums  = hl_device_host_pattern_sums,
};
