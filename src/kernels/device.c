/* device.c - which devices there are. */
#include "kernels/device.h"

#include <stdatomic.h>
#include <string.h>

#include "base/status.h"
#include "kernels/cuda.h"

static const hl_device_ops *_Atomic offered; /* a device that a test offers, or NULL */

void hl_device_offer(const hl_device_ops *ops)
{
    atomic_store(&offered, ops);
}

hl_status hl_device_find(const hl_device_ops **out, const char *name)
{
    const hl_device_ops *other = atomic_load(&offered);

    *out = NULL;
    if (strcmp(name, "cuda") == 0)
        return hl_cuda_device_ops(out);
    if (strcmp(name, hl_device_cpu.name) == 0)
        *out = &hl_device_cpu;
    else if (other != NULL && strcmp(name, other->name) == 0)
        *out = other;
    else
        return hl_fail(HL_NOT_FOUND, "no device \"%s\"; there are: cpu cuda cuda:f16 cuda:f32",
                       name);
    return HL_OK;
}
