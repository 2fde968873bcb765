/* device.c - which devices there are. */
#include "kernels/device.h"

#include <string.h>

#include "base/status.h"
#include "kernels/cuda.h"

hl_status hl_device_find(const hl_device_ops **out, const char *name)
{
    *out = NULL;
    if (strcmp(name, "cuda") == 0)
        return hl_cuda_device_ops(out);
    if (strcmp(name, "host") != 0)
        return hl_fail(HL_NOT_FOUND, "no device \"%s\"; there are: cpu cuda", name);
    *out = &hl_device_host;
    return HL_OK;
}
