/* memory.c - malloc, and a flag that is atomic because `serve` has threads. */
#include "memory.h"

#include <jansson.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "headlight.h"

static atomic_bool ran_out;

void *hl_memory_take(size_t n_bytes)
{
    void *block = malloc(n_bytes > 0 ? n_bytes : 1);

    if (block == NULL)
        ran_out = true;
    return block;
}

void *hl_memory_take_zeroed(size_t count, size_t size)
{
    void *block = calloc(count > 0 ? count : 1, size);

    if (block == NULL)
        ran_out = true;
    return block;
}

static void *take_counted(size_t n_bytes)
{
    void *block = hl_memory_allocate(n_bytes);

    if (block == NULL)
        ran_out = true;
    return block;
}

void hl_memory_watch(void)
{
    json_set_alloc_funcs(take_counted, hl_free);
}

bool hl_memory_ran_out(void)
{
    return ran_out;
}

void hl_memory_forget(void)
{
    ran_out = false;
}
