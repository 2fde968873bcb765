/* memory.c - allocation on top of posix_memalign, counted.
 *
 * 64 bytes are a cache line and the widest vector register, so a kernel may
 * use aligned loads on every block, and two threads that write to
 * different blocks never share a line.
 *
 * The memory held is the sum of the blocks' real sizes (malloc_usable_size).  The C library also
 * reports that size at release, so blocks need no header of ours.  A request is added to the sum
 * before the block is allocated, and subtracted if it exceeds the bound, so that simultaneous
 * requests of several threads cannot exceed the bound together. */
#include "base/memory.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/status.h"

void *hl_taken(void *held)
{
    void *pointer;
    memcpy(&pointer, held, sizeof pointer);
    memset(held, 0, sizeof pointer);
    return pointer;
}

void hl_free_at(void *held)
{
    hl_free(hl_taken(held));
}

bool hl_size_multiply(size_t *out, size_t a, size_t b)
{
    size_t product;
    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *out = product;
    return true;
}

bool hl_size_add(size_t *out, size_t a, size_t b)
{
    size_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *out = sum;
    return true;
}

/* -------------------------------------------------------------------- the bound */

static atomic_size_t bound; /* 0: no bound */
static atomic_size_t held;

void hl_memory_limit(size_t n_bytes)
{
    bound = n_bytes;
}

size_t hl_memory_limited_to(void)
{
    return bound;
}

size_t hl_memory_held(void)
{
    return held;
}

hl_status hl_memory_reserve(size_t n_bytes)
{
    size_t limit  = atomic_load_explicit(&bound, memory_order_relaxed);
    size_t before = atomic_fetch_add_explicit(&held, n_bytes, memory_order_relaxed);

    if (limit == 0 || (before <= limit && n_bytes <= limit - before))
        return HL_OK;
    hl_memory_release(n_bytes);
    return hl_fail(HL_NO_MEMORY,
                   "%zu more bytes of memory are needed beside the %zu in use, but the limit is "
                   "%zu; --max-memory sets it",
                   n_bytes, before, limit);
}

void hl_memory_release(size_t n_bytes)
{
    atomic_fetch_sub_explicit(&held, n_bytes, memory_order_relaxed);
}

/* Replaces the n_bytes that were reserved for a block by its real size, or by 0 if it is NULL. */
static void *counted(void *block, size_t n_bytes)
{
    size_t real = block != NULL ? malloc_usable_size(block) : 0;

    atomic_fetch_add_explicit(&held, real - n_bytes, memory_order_relaxed); /* the difference is
                                                                             * modulo 2^64 */
    return block;
}

/* ------------------------------------------------------------------------ blocks */

void *hl_memory_allocate(size_t n_bytes)
{
    if (hl_memory_reserve(n_bytes) != HL_OK)
        return NULL;
    void *block = counted(malloc(n_bytes > 0 ? n_bytes : 1), n_bytes);
    if (block == NULL)
        hl_fail(HL_NO_MEMORY, "out of memory: %zu bytes wanted", n_bytes);
    return block;
}

/* Returns NULL and stores a message if there is not enough memory. */
static void *allocate(size_t count, size_t size)
{
    size_t n_bytes = 0;
    void  *block   = NULL;

    if (!hl_size_multiply(&n_bytes, count, size)) {
        hl_fail(HL_NO_MEMORY, "%zu items of %zu bytes are more than memory can hold", count, size);
        return NULL;
    }
    if (hl_memory_reserve(n_bytes) != HL_OK)
        return NULL;
    if (hl_fault(HL_FAULT_MEMORY) ||
        posix_memalign(&block, HL_ALIGNMENT, n_bytes > 0 ? n_bytes : 1) != 0) {
        hl_fail(HL_NO_MEMORY, "out of memory: %zu bytes wanted", n_bytes);
        block = NULL;
    }
    return counted(block, n_bytes);
}

hl_status hl_alloc(void **out, size_t count, size_t size)
{
    *out = allocate(count, size);
    return *out != NULL ? HL_OK : HL_NO_MEMORY;
}

hl_status hl_alloc_zeroed(void **out, size_t count, size_t size)
{
    *out = allocate(count, size);
    if (*out == NULL)
        return HL_NO_MEMORY;
    memset(*out, 0, count * size);
    return HL_OK;
}

hl_status hl_realloc(void **block, size_t old_count, size_t new_count, size_t size)
{
    size_t kept  = old_count < new_count ? old_count : new_count;
    void  *grown = allocate(new_count, size);

    if (grown == NULL)
        return HL_NO_MEMORY;
    if (*block != NULL && kept > 0)
        memcpy(grown, *block, kept * size);
    hl_free(*block);
    *block = grown;
    return HL_OK;
}

hl_status hl_strndup(char **out, const char *text, size_t n_bytes)
{
    *out = NULL;
    if (n_bytes == SIZE_MAX)
        return hl_fail(HL_NO_MEMORY, "a text of %zu bytes is more than memory can hold", n_bytes);

    char *copy = allocate(n_bytes + 1, 1);
    if (copy == NULL)
        return HL_NO_MEMORY;
    if (n_bytes > 0)
        memcpy(copy, text, n_bytes);
    copy[n_bytes] = '\0';
    *out          = copy;
    return HL_OK;
}

hl_status hl_strdup(char **out, const char *text)
{
    return hl_strndup(out, text, strlen(text));
}

void hl_free(void *block)
{
    if (block != NULL)
        hl_memory_release(malloc_usable_size(block));
    free(block);
}
