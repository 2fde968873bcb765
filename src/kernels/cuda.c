/* cuda.c - opens libheadlight_cuda.so and makes a back end of it.
 *
 * Its calls work on host memory, so each call copies its data to the GPU and back: this is good for
 * checks, not for speed.  Programs whose tensors lie on the device call the library themselves
 * (kernels/cuda/headlight_cuda.h).
 *
 * The library is opened when the back end is first requested.  HEADLIGHT_CUDA_LIBRARY names it;
 * otherwise it is looked for beside the program and where the loader looks. */
#define _GNU_SOURCE /* dladdr1; NOLINT(bugprone-reserved-identifier): the C library asks for it */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "kernels/cuda/headlight_cuda.h"
#include "kernels/device.h"
#include "kernels/kernels.h"

/* The functions that are used of the library. */
static struct {
    void                              *handle; /* NULL if the library is missing */
    __typeof__(hl_cuda_interface)     *interface;
    __typeof__(hl_cuda_error)         *error;
    __typeof__(hl_cuda_probe)         *probe;
    __typeof__(hl_cuda_forward_host)  *forward;
    __typeof__(hl_cuda_backward_host) *backward;
    __typeof__(hl_cuda_received_host) *received;
    __typeof__(hl_cuda_device)        *device;
    char                               reason[256]; /* why it could not be opened */
} library;

static pthread_once_t opened = PTHREAD_ONCE_INIT;
static hl_kernels     table;

/* --------------------------------------------------------------------- calls */

static hl_status cuda_status(hl_status status)
{
    return status == HL_OK ? HL_OK : hl_fail(status, "attention: %s", library.error());
}

static hl_status attention_forward(const hl_attention_result *result, const hl_attention *problem)
{
    const hl_cuda_launch launch = { 0 };

    return cuda_status(library.forward(result, problem, &launch));
}

static hl_status attention_backward(const hl_attention_gradient *gradient,
                                    const hl_attention          *problem,
                                    const hl_attention_upstream *upstream)
{
    const hl_cuda_launch launch = { 0 };

    return cuda_status(library.backward(gradient, problem, upstream, &launch));
}

static hl_status attention_received(float *received, const hl_attention *problem, const float *lse,
                                    int64_t first_query)
{
    const hl_cuda_launch launch = { 0 };

    return cuda_status(library.received(received, problem, lse, first_query, &launch));
}

/* ------------------------------------------------------------------- opening */

/* Finds a function.  dlsym returns void *, which ISO C does not convert to a function pointer. */
static bool find_function(void *out, const char *name)
{
    void *address = dlsym(library.handle, name);

    memcpy(out, &address, sizeof address);
    return address != NULL;
}

static bool find_functions(void)
{
    return find_function(&library.interface, "hl_cuda_interface") &&
           find_function(&library.error, "hl_cuda_error") &&
           find_function(&library.probe, "hl_cuda_probe") &&
           find_function(&library.forward, "hl_cuda_forward_host") &&
           find_function(&library.backward, "hl_cuda_backward_host") &&
           find_function(&library.received, "hl_cuda_received_host") &&
           find_function(&library.device, "hl_cuda_device");
}

/* Writes the full path of the file that contains this code; returns false if it is unknown.  dladdr
 * names a program as it was started, possibly without a folder.  That name would lead into the
 * working directory, where anybody may have put a library, so the program's path comes from the
 * operating system. */
static bool own_file(char out[PATH_MAX])
{
    Dl_info          here;
    struct link_map *object = NULL;

    if (dladdr1(&library, &here, (void **)&object, RTLD_DL_LINKMAP) == 0 || object == NULL)
        return false;
    if (object->l_name != NULL && object->l_name[0] != '\0') /* this code is in a shared library */
        return object->l_name[0] == '/' && snprintf(out, PATH_MAX, "%s", object->l_name) < PATH_MAX;
    ssize_t length = readlink("/proc/self/exe", out, PATH_MAX - 1);
    if (length <= 0)
        return false;
    out[length] = '\0';
    return out[0] == '/';
}

/* Opens the library where distributions keep plug-ins: the folder headlight beside
 * libheadlight.so. */
static void *open_plug_in(void)
{
    char own[PATH_MAX], path[PATH_MAX];

    if (!own_file(own))
        return NULL;
    int folder = (int)(strrchr(own, '/') - own) + 1;
    int length = snprintf(path, sizeof path, "%.*sheadlight/libheadlight_cuda.so", folder, own);
    return length < (int)sizeof path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

static void open_once(void)
{
    const char *named = getenv("HEADLIGHT_CUDA_LIBRARY");
    bool        any   = named == NULL || named[0] == '\0';
    const char *path  = any ? "libheadlight_cuda.so" : named;

    library.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library.handle == NULL) {
        const char *why = dlerror();
        strncpy(library.reason, why != NULL ? why : path, sizeof library.reason - 1);
    }
    if (library.handle == NULL && any)
        library.handle = open_plug_in();
}

/* Opens the library and checks its version and that it finds a GPU. */
static hl_status open_library(void)
{
    pthread_once(&opened, open_once);
    if (library.handle == NULL)
        return hl_fail(HL_NOT_FOUND,
                       "cuda: libheadlight_cuda.so was not found; build it with make CUDA=1 (%s)",
                       library.reason);
    if (!find_functions() || library.interface() != HL_CUDA_INTERFACE ||
        library.device()->interface != HL_DEVICE_INTERFACE)
        return hl_fail(HL_UNSUPPORTED,
                       "cuda: libheadlight_cuda.so is from another version; build it again "
                       "(interface %d is needed)",
                       HL_CUDA_INTERFACE);
    hl_status status = library.probe();
    return status == HL_OK ? HL_OK : hl_fail(status, "cuda: %s", library.error());
}

hl_status hl_cuda_kernels(const hl_kernels **out, const hl_kernels *cpu)
{
    HL_NEED(open_library());
    table                    = *cpu;
    table.name               = "cuda";
    table.attention_forward  = attention_forward;
    table.attention_backward = attention_backward;
    table.attention_received = attention_received;
    *out                     = &table;
    return HL_OK;
}

hl_status hl_cuda_device_ops(const hl_device_ops **out)
{
    hl_status status = open_library();

    if (status == HL_OK)
        *out = library.device();
    return status;
}
