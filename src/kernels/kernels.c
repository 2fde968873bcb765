/* kernels.c - which back ends there are, and which one is in use.
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
#include "kernels/cuda.h"

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
