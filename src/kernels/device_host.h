/* device_host.h - the inside of the device "host", shared by its files.
 *
 * Values of any compute type are read as floats, worked on by the CPU's kernels a row at a
 * time, and rounded once when they are stored. */
#ifndef HL_KERNELS_DEVICE_HOST_H
#define HL_KERNELS_DEVICE_HOST_H

#include "kernels/device.h"
#include "kernels/kernels.h"
#include "kernels/linear.h"

struct hl_device {
    const hl_dense *dense;
    hl_linear_pool  pool;
    size_t          n_scratch; /* floats of pool.scratch */
    float          *values;    /* what a product reads and writes, as floats */
    size_t          n_values;
};

/* At least `count` floats at *block; what was in it is gone if it had to grow. */
hl_status hl_device_host_grow(float **block, size_t *size, int64_t count);

void hl_device_host_load(float *out, const void *rows, hl_dtype dtype, int64_t first, int64_t n);
void hl_device_host_store(void *rows, hl_dtype dtype, int64_t first, const float *x, int64_t n);

/* device_host_experts.c */
size_t    hl_device_host_experts_bytes(hl_device *device, const hl_device_experts *e);
hl_status hl_device_host_experts(hl_device *device, const hl_device_experts *e);
hl_status hl_device_host_add_gated(hl_device *device, const hl_device_add_gated *add);
hl_status hl_device_host_linear(hl_device *device, const hl_device_linear *linear);

/* device_host_rows.c */
hl_status hl_device_host_embed(hl_device *device, const hl_device_embed *embed);
hl_status hl_device_host_norm(hl_device *device, const hl_device_norm *norm);
hl_status hl_device_host_angles(hl_device *device, const hl_device_angles *angles);
hl_status hl_device_host_heads(hl_device *device, const hl_device_heads *heads);
hl_status hl_device_host_activate(hl_device *device, const hl_device_activate *activate);
hl_status hl_device_host_copy_rows(hl_device *device, const hl_device_copy_rows *copy);

/* device_host_ends.c */
hl_status hl_device_host_cap(hl_device *device, const hl_device_cap *cap);
hl_status hl_device_host_logits(hl_device *device, const hl_device_logits *logits);
hl_status hl_device_host_finite(hl_device *device, const hl_device_finite *finite);
hl_status hl_device_host_patterns(hl_device *device, const hl_device_patterns *patterns);
hl_status hl_device_host_reduce(hl_device *device, int lane, const hl_device_reduce *reduce);

/* device_host_pick.c */
hl_status hl_device_host_pick(hl_device *device, const hl_device_pick *pick);

/* device_host_likeness.c */
hl_status hl_device_host_follow(hl_device *device, const hl_device_follow *follow);
hl_status hl_device_host_outputs(hl_device *device, int lane, const hl_device_outputs *outputs);
hl_status hl_device_host_distances(hl_device *device, int lane,
                                   const hl_device_distances *distances);
hl_status hl_device_host_pattern_sums(hl_device *device, int lane,
                                      const hl_device_pattern_sums *sums);

#endif
