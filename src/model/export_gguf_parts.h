/* export_gguf_parts.h - the inside of export_gguf.h.
 *
 *     export_gguf.c          which architecture; metadata; the whole
 *     export_gguf_tensors.c  tensors: their names, and rows as they are stored */
#ifndef HL_MODEL_EXPORT_GGUF_PARTS_H
#define HL_MODEL_EXPORT_GGUF_PARTS_H

#include "model/export_gguf.h"
#include "model/family.h"

struct hl_gguf_export {
    const hl_model     *model;
    const hl_head_plan *plan;   /* NULL: all heads stay */
    const hl_family    *family; /* whose names are used */
    const char         *architecture;
    bool                fused_qkv;
    hl_dtype            dtype;                     /* or HL_GGUF_AS_STORED */
    int64_t             n_of_type[HL_DTYPE_COUNT]; /* matrices that were written so */
    hl_prune_tensor    *notes;                     /* of matrices that are not so, or grew */
    int64_t             n_notes;
    hl_gguf_writer     *writer;
    void              **blocks; /* converted tensors, until the file is written */
    size_t              n_blocks;
    size_t              max_blocks;
    float              *row; /* the longest */
};

/* All tensors of a layer (-1: of the model) to the writer. */
hl_status hl_gguf_export_tensors(hl_gguf_export *file, int64_t layer);
/* What a rope divides its frequencies by, where that is not in the metadata. */
hl_status hl_gguf_export_rope_factors(hl_gguf_export *file);

#endif
