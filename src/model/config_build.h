/* config_build.h - the steps from named values to a description.
 *
 * For config.c, config_layers.c, config_rope.c, config_check.c and the readers of
 * GGUF and llama2.c; others want config.h. */
#ifndef HL_MODEL_CONFIG_BUILD_H
#define HL_MODEL_CONFIG_BUILD_H

#include "headlight.h"
#include "model/config.h"
#include "model/family.h"
#include "model/fields.h"

/* Limits on what a file may claim: far beyond any model, and small enough that
 * products of three of them fit in 63 bits. */
#define HL_MAX_WIDTH   ((int64_t)1 << 20)
#define HL_MAX_HEADS   4096
#define HL_MAX_EXPERTS 4096
#define HL_MAX_VOCAB   ((int64_t)1 << 24)
#define HL_MAX_CONTEXT ((int64_t)1 << 30)

/* The whole way; *out is NULL on failure. */
hl_status hl_config_build(hl_config **out, const hl_family *family, const hl_fields *fields);

/* The steps, in order.  Each relies on those before it. */
hl_status hl_config_read_rope(hl_config *config, const hl_fields *fields);
/* For a GGUF file, what it says by the tensors it has. */
hl_status hl_config_read_gguf(hl_config *config, const hl_fields *fields);
hl_status hl_config_fill_rope(hl_config *config, const hl_fields *fields);
hl_status hl_config_make_layers(hl_config *config, const hl_family *family,
                                const hl_fields *fields);
/* The kind that a file calls by this key's value; left alone where it is missing. */
hl_status hl_config_read_rope_kind(hl_rope_kind *out, const hl_fields *fields, const char *json,
                                   const char *gguf);
hl_status hl_config_check(const hl_config *config, const char *where);

#endif
