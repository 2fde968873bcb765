/* memory.h - allocation with overflow checks and 64-byte alignment.
 *
 * Sizes come as (count, size) pairs, so that a product that overflows is a
 * clear HL_NO_MEMORY instead of a short buffer.  Everything here is released
 * with hl_free, which accepts NULL.
 *
 * All of it is counted (hl_memory_held in headlight.h).  An allocation that would exceed the bound
 * set with hl_memory_limit fails with HL_NO_MEMORY and a message that has the numbers. */
#ifndef HL_BASE_MEMORY_H
#define HL_BASE_MEMORY_H

#include "headlight/base.h"

#define HL_ALIGNMENT 64

/* *out gets `count` items of `size` bytes, 64-byte aligned; NULL on failure.
 * A zero-sized request gives a valid, unique pointer. */
hl_status hl_alloc(void **out, size_t count, size_t size);
hl_status hl_alloc_zeroed(void **out, size_t count, size_t size);
/* Grow (or shrink) a block of hl_alloc, keeping min(old, new) contents; on failure the
 * block is untouched. */
hl_status hl_realloc(void **block, size_t old_count, size_t new_count, size_t size);
hl_status hl_strdup(char **out, const char *text);
hl_status hl_strndup(char **out, const char *text, size_t n_bytes);

/* For memory that another library allocates on our behalf.  Reserving counts n_bytes as held, or
 * fails with HL_NO_MEMORY; releasing the same number undoes it. */
hl_status hl_memory_reserve(size_t n_bytes);
void      hl_memory_release(size_t n_bytes);
/* The bound set with hl_memory_limit, in bytes; 0: no bound. */
size_t hl_memory_limited_to(void);

/* HL_ALLOC(&pointer, count) takes the item size from the pointer's type. */
#define HL_ALLOC(pointer, count) hl_alloc((void **)(pointer), (count), sizeof **(pointer))
#define HL_ALLOC_ZEROED(pointer, count)                                                            \
    hl_alloc_zeroed((void **)(pointer), (count), sizeof **(pointer))

/* Variables that are released when their scope ends, so that a failure can return at once:
 *
 *     HL_FREED char *name = NULL;                         memory, with hl_free
 *     HL_SCOPED(hl_buffer_free) hl_buffer text = { 0 };   a struct, released by address
 *     HL_CLOSED(hl_tensors_close) hl_tensors *tensors = NULL;
 *
 * The last form takes any function that has an HL_CLOSES line beside its declaration; that function
 * must accept NULL.  To hand such a variable to the caller, take it out with hl_taken. */
#define HL_SCOPED(release) __attribute__((cleanup(release)))
#define HL_FREED           HL_SCOPED(hl_free_at)
#define HL_CLOSED(close)   HL_SCOPED(close##_at)
#define HL_CLOSES(close, type)                                                                     \
    static inline void close##_at(type **held)                                                     \
    {                                                                                              \
        close(*held);                                                                              \
    }

/* Returns the pointer stored at `held` and sets it to NULL. */
void *hl_taken(void *held);
void  hl_free_at(void *held);

/* a*b and a+b.  On overflow they return false and leave *out unchanged. */
bool hl_size_multiply(size_t *out, size_t a, size_t b);
bool hl_size_add(size_t *out, size_t a, size_t b);

#endif
