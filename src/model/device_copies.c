/* device_copies.c - a short list under a lock. */
#include "model/device_copies.h"

#include <pthread.h>

#include "base/memory.h"
#include "base/status.h"

typedef struct copy {
    struct copy         *next;
    const hl_device_ops *ops;
    hl_dtype             dtype;
    void                *block; /* the device's */
} copy;

struct hl_device_copies {
    pthread_mutex_t lock;
    copy           *first;
};

hl_status hl_device_copies_new(hl_device_copies **out)
{
    hl_status status = HL_ALLOC_ZEROED(out, 1);

    if (status == HL_OK)
        pthread_mutex_init(&(*out)->lock, NULL);
    return status;
}

void hl_device_copies_free(hl_device_copies *copies)
{
    if (copies == NULL)
        return;
    while (copies->first != NULL) {
        copy *gone = copies->first;

        copies->first = gone->next;
        gone->ops->free(NULL, gone->block);
        hl_free(gone);
    }
    pthread_mutex_destroy(&copies->lock);
    hl_free(copies);
}

void *hl_device_copies_lock(hl_device_copies *copies, const hl_device_ops *ops, hl_dtype dtype)
{
    pthread_mutex_lock(&copies->lock);
    for (const copy *at = copies->first; at != NULL; at = at->next) {
        if (at->ops == ops && at->dtype == dtype)
            return at->block;
    }
    return NULL;
}

void hl_device_copies_unlock(hl_device_copies *copies)
{
    pthread_mutex_unlock(&copies->lock);
}

hl_status hl_device_copies_keep(hl_device_copies *copies, const hl_device_ops *ops, hl_dtype dtype,
                                void *block)
{
    copy     *made   = NULL;
    hl_status status = HL_ALLOC_ZEROED(&made, 1);

    if (status != HL_OK)
        return status;
    *made         = (copy){ .next = copies->first, .ops = ops, .dtype = dtype, .block = block };
    copies->first = made;
    return HL_OK;
}
