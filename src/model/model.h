/* model.h - an opened model, as the library's other parts use it.
 *
 * The public half is in headlight.h.  Everything here is constant once the model is open (and
 * possibly adjusted or gated), and any number of threads may read it. */
#ifndef HL_MODEL_MODEL_H
#define HL_MODEL_MODEL_H

#include "base/memory.h"
#include "formats/tensors.h"
#include "headlight/model.h"
#include "model/config.h"
#include "model/device_copies.h"
#include "model/weights.h"

HL_CLOSES(hl_model_close, hl_model)

#define HL_DEVICE_NAME 32 /* bytes of a device's name, NUL included */

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
