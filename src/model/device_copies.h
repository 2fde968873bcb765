/* device_copies.h - the weights of a model in the memory of devices, for all its sessions.
 *
 * The first session of a model on a device copies them there; they stay until the model is closed,
 * and later sessions use them.  Only one session at a time may look for copies and fill missing
 * ones:
 *
 *     void *block = hl_device_copies_lock(copies, ops, dtype);
 *     if (block == NULL) { ...allocate and fill one...; hl_device_copies_keep(copies, ...); }
 *     hl_device_copies_unlock(copies); */
#ifndef HL_MODEL_DEVICE_COPIES_H
#define HL_MODEL_DEVICE_COPIES_H

#include "headlight/base.h"
#include "kernels/device.h"

typedef struct hl_device_copies hl_device_copies;

hl_status hl_device_copies_new(hl_device_copies **out);
/* Frees all copies; call it after all sessions are closed.  NULL is fine. */
void hl_device_copies_free(hl_device_copies *copies);

/* The weights of this type on this device, borrowed; NULL: there are none yet. */
void *hl_device_copies_lock(hl_device_copies *copies, const hl_device_ops *ops, hl_dtype dtype);
void  hl_device_copies_unlock(hl_device_copies *copies);
/* Called while locked: passes ownership of a filled block to the copies, unless this fails. */
hl_status hl_device_copies_keep(hl_device_copies *copies, const hl_device_ops *ops, hl_dtype dtype,
                                void *block);

#endif
