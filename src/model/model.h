/* model.h - an opened model, as the library's other parts use it.
 *
 * The public half is in headlight.h.  Everything here is constant once the model is open (and
 * possibly adjusted or gated), and any number of threads may read it. */
#ifndef HL_MODEL_MODEL_H
#define HL_MODEL_MODEL_H

#include "base/memory.h"
#include "formats/tensors.h"
#include "headlight/model.h"
#include "kernels/device.h"
#include "model/config.h"
#include "model/weights.h"

HL_CLOSES(hl_model_close, hl_model)

#define HL_DEVICE_NAME 32 /* bytes of a device's name, NUL included */

/* The weights of a model in the memory of devices, for all its sessions.
 *
 * The first session of a model on a device copies them there; they stay until the model is closed,
 * and later sessions use them.  Only one session at a time may look for copies and fill missing
 * ones:
 *
 *     void *block = hl_device_copies_lock(copies, ops, dtype);
 *     if (block == NULL) { ...allocate and fill one...; hl_device_copies_keep(copies, ...); }
 *     hl_device_copies_unlock(copies); */

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

struct hl_model {
    char         *path;
    hl_tensors   *tensors;
    hl_config    *config;
    hl_weights   *weights;
    hl_model_info info;
    hl_adjustment adjusted;  /* all 0: the model runs as it was trained */
    float        *gates;     /* (n_layers, n_heads); NULL: all 1 */
    float        *positions; /* (n_ctx, d_model) a computed table of positions, or NULL */
    struct hl_param
        *replaced; /* (n_layers) its own output projections while a repair is set, or NULL */
    hl_device_copies *copies;                 /* device copies of its weights; has its own lock */
    char              device[HL_DEVICE_NAME]; /* device of its sessions; "": not specified */
};

#endif
