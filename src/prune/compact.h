/* compact.h - the configuration of a Hugging Face model without the removed heads.
 *
 * There are three forms; the first that is possible is used:
 *
 *     PLAIN   all layers keep the same number of heads, and the family's own code takes the
 *             size of a head from config.json: only numbers there change
 *     CODE    config.json keeps the original numbers and gets
 *                 "per_layer_config": { "03": { "num_attention_heads": 20, ... } }
 *             and an auto_map to a small modeling_headlight_FAMILY.py that resizes the
 *             layers of the family's class (transformers: trust_remote_code=True)
 *     OURS    as CODE, without the code: only headlight opens it
 *
 * GPT-2 and BERT's relatives also get "pruned_heads", which transformers 4 reads. */
#ifndef HL_PRUNE_COMPACT_H
#define HL_PRUNE_COMPACT_H

#include "base/json.h"
#include "headlight/base.h"
#include "model/head_plan.h"

typedef enum hl_compact_form {
    HL_COMPACT_PLAIN = 0,
    HL_COMPACT_CODE,
    HL_COMPACT_OURS,
} hl_compact_form;

/* Returns HL_UNSUPPORTED, with the reason, for models whose heads depend on each other. */
hl_status hl_compact_check(const hl_config *config);

/* Changes `root`, a whole config.json, to fit the plan. */
hl_status hl_compact_config(hl_compact_form *form, json_t *root, const hl_config *config,
                            const hl_head_plan *plan);

/* Changes `root`, a whole config.json, to have biases in all attention layers. */
hl_status hl_compact_add_biases(json_t *root);

/* Returns { "3": [0, 5], ... }: by layer, the heads whose state in the plan is at least that one,
 * in the model's own numbering. A new reference; NULL if out of memory. */
json_t *hl_compact_heads(const hl_config *config, const hl_head_plan *plan, hl_head_fate least);

/* The name and text of the code for CODE; release the text with hl_free. */
#define HL_COMPACT_CODE_NAME 96
hl_status hl_compact_code(char name[HL_COMPACT_CODE_NAME], char **text, const json_t *root,
                          const hl_config *config);

/* Returns the name that the classes of transformers use for a tensor. Old names on disk are
 * translated for the family's own class, but not for code stored beside a model. */
const char *hl_compact_tensor_name(const hl_config *config, const char *name);

#endif
