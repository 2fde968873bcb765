/* surgeon.h - what the removal of each head costs if the others make up for it as well as they can. */
#ifndef HL_PRUNE_SURGEON_H
#define HL_PRUNE_SURGEON_H

#include "headlight/prune.h"

/* The scale of a layer's squared errors. */
typedef enum hl_surgeon_scale {
    HL_SURGEON_VARIANCE = 0, /* of the residual stream behind its attention */
    HL_SURGEON_ROWS,         /* each row by the stream's square there */
    HL_SURGEON_KL,           /* KL divergence that zeroing its first heads causes, over their error */
} hl_surgeon_scale;

hl_status hl_surgeon_scaled(double *out, const hl_model *model, const hl_corpus *corpus,
                            const hl_surgeon_options *options, hl_surgeon_scale scale, bool marginal);

#endif
