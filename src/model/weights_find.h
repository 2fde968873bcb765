/* weights_find.h - from a role to the tensor that holds it. */
#ifndef HL_MODEL_WEIGHTS_FIND_H
#define HL_MODEL_WEIGHTS_FIND_H

#include "formats/tensors.h"
#include "headlight.h"
#include "model/family.h"

#define HL_MAX_TENSOR_NAME 256

/* Where to look.  `prefix` is the one that the embedding was found under. */
typedef struct hl_finder {
    const hl_tensors *tensors;
    const hl_config  *config;
    const hl_family  *family;
    hl_tensors_kind   kind;
    char              prefix[64];
} hl_finder;

/* Which tensor: of a role, of a layer (-1: of the model), of a part. */
typedef struct hl_wanted {
    hl_role role;
    int64_t layer;
    int64_t part;
    bool    is_bias;
} hl_wanted;

typedef struct hl_found {
    const hl_tensor *tensor;                   /* NULL: not there */
    const hl_tensor *scales;                   /* MXFP4 in two tensors */
    hl_role          role;                     /* as stored: ATTN_QKV where q was wanted; as
                                                * it would be where there is no tensor */
    uint32_t         stored;                   /* HL_STORED_... */
    bool             stacked;                  /* the parts lie in one tensor */
    size_t           n_prefix;                 /* of its name: the family\'s prefix */
    char             name[HL_MAX_TENSOR_NAME]; /* as it is, or as it should be */
} hl_found;

/* The tensor that a role's weight or bias is in, by the family's tables. */
hl_found hl_find_tensor(const hl_finder *finder, const hl_wanted *wanted);
/* Sets the prefix from the embedding's name. */
void hl_finder_learn_prefix(hl_finder *finder);

/* Does a model's code fill this tensor in by itself?  Masks, frequencies, indices. */
bool hl_is_buffer(const hl_tensor *tensor);

#endif
