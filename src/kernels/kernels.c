/* kernels.c - which back ends there are, and which one is in use; which devices there are.
 *
 * The choice is one pointer.  It is set on first use, from HEADLIGHT_BACKEND if
 * that names a back end, else to the best the CPU can run, and read with a
 * relaxed load afterwards. */
#include "kernels/kernels.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"
#include "base/status.h"
#include "kernels/device.h"

enum { MAX_BACKENDS = 4 };

static const hl_kernels *available[MAX_BACKENDS]; /* scalar first, preferred last */
static const char       *names[MAX_BACKENDS + 1]; /* the names of available[], NULL-terminated */
static size_t            n_available;
static pthread_once_t    listed = PTHREAD_ONCE_INIT;

static const hl_kernels *_Atomic chosen; /* NULL: not chosen yet */

static void add(const hl_kernels *kernels)
{
    available[n_available] = kernels;
    names[n_available]     = kernels->name;
    n_available++;
}

static void list_available(void)
{
    const hl_cpu *cpu = hl_cpu_features();

    (void)cpu;
    add(&hl_kernels_scalar);
#ifdef HL_HAVE_NEON
    if (cpu->neon)
        add(&hl_kernels_neon);
#endif
#ifdef HL_HAVE_AVX2
    if (cpu->avx2)
        add(&hl_kernels_avx2);
#endif
#ifdef HL_HAVE_AVX512
    if (cpu->avx512)
        add(&hl_kernels_avx512);
#endif
}

static hl_status find(const hl_kernels **out, const char *name, const char *source)
{
    for (size_t i = 0; i < n_available; i++) {
        if (strcmp(available[i]->name, name) == 0) {
            *out = available[i];
            return HL_OK;
        }
    }

    if (strcmp(name, "cuda") == 0)
        return hl_cuda_kernels(out, available[n_available - 1]);

    char   known[64] = "";
    size_t length    = 0;
    for (size_t i = 0; i < n_available; i++) {
        size_t n = strlen(names[i]);
        memcpy(known + length, names[i], n);
        length += n;
        known[length++] = ' ';
    }
    known[length - 1] = '\0';
    return hl_fail(HL_NOT_FOUND, "%s: no back end \"%s\" on this machine; there are: %s", source,
                   name, known);
}

static hl_status choose(const hl_kernels **out)
{
    const char *wanted = getenv("HEADLIGHT_BACKEND");

    if (wanted != NULL && wanted[0] != '\0')
        return find(out, wanted, "HEADLIGHT_BACKEND");
    *out = available[n_available - 1];
    return HL_OK;
}

hl_status hl_kernels_current(const hl_kernels **out)
{
    *out = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (*out != NULL)
        return HL_OK;

    pthread_once(&listed, list_available);
    hl_status status = choose(out);
    if (status == HL_OK)
        atomic_store_explicit(&chosen, *out, memory_order_relaxed);
    return status;
}

const char *const *hl_backend_names(void)
{
    pthread_once(&listed, list_available);
    return names;
}

const char *hl_backend_name(void)
{
    const hl_kernels *kernels = NULL;

    return hl_kernels_current(&kernels) == HL_OK ? kernels->name : "";
}

hl_status hl_backend_select(const char *name)
{
    const hl_kernels *kernels = NULL;

    pthread_once(&listed, list_available);
    if (name != NULL)
        HL_NEED(find(&kernels, name, "hl_backend_select"));
    atomic_store_explicit(&chosen, kernels, memory_order_relaxed);
    return HL_OK;
}

/* ----------------------------------------------------------------------- modes */

static const char *const math_names[HL_MATH_COUNT] = { "", "f32", "bf16", "int8" };

static _Atomic(int) math_selected; /* HL_MATH_DEFAULT: as the environment says */

hl_status hl_math_check(hl_math math)
{
    const hl_kernels *kernels = NULL;

    HL_NEED(hl_kernels_current(&kernels));
    if (math == HL_MATH_BF16 && (kernels->packed == NULL || !kernels->packed->has(math)))
        return hl_fail(HL_UNSUPPORTED,
                       "math bf16 needs a CPU with AVX-512 BF16 and its back end; \"%s\" is in use "
                       "here (use f32 or int8)",
                       kernels->name);
    if (math == HL_MATH_INT8 && kernels->int8_dot == NULL)
        return hl_fail(HL_UNSUPPORTED,
                       "math int8 needs AVX2 or AVX-512; \"%s\" is in use here (use f32)",
                       kernels->name);
    return HL_OK;
}

hl_status hl_math_select(hl_math math)
{
    HL_NEED(hl_check_count("hl_math_select: math", math, 0, HL_MATH_COUNT - 1));
    HL_NEED(hl_math_check(math));
    atomic_store_explicit(&math_selected, (int)math, memory_order_relaxed);
    return HL_OK;
}

hl_status hl_math_selected(hl_math *out)
{
    const char *wanted = getenv("HEADLIGHT_MATH");

    *out = (hl_math)atomic_load_explicit(&math_selected, memory_order_relaxed);
    if (*out != HL_MATH_DEFAULT)
        return HL_OK;
    *out = HL_MATH_F32;
    if (wanted == NULL || wanted[0] == '\0')
        return HL_OK;
    for (int math = HL_MATH_F32; math < HL_MATH_COUNT; math++) {
        if (strcmp(wanted, math_names[math]) == 0) {
            *out = (hl_math)math;
            return HL_OK;
        }
    }
    return hl_fail(HL_BAD_ARGUMENT, "HEADLIGHT_MATH is \"%s\", wanted f32, bf16 or int8", wanted);
}

const char *hl_math_name(hl_math math)
{
    return math < HL_MATH_COUNT ? math_names[math] : "";
}

static _Atomic(bool) repack_refused;

void hl_repack_allow(bool allowed)
{
    atomic_store_explicit(&repack_refused, !allowed, memory_order_relaxed);
}

bool hl_repack_is_allowed(void)
{
    return !atomic_load_explicit(&repack_refused, memory_order_relaxed);
}

/* --------------------------------------------------------------- devices */

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
