/* compact.c - config.json with fewer heads, and the code that reads it elsewhere.
 *
 * transformers 5 has the key per_layer_config, but the code of most families ignores it and
 * refuses to be built where it is set.  The generated file removes the table from the
 * configuration, lets the family build its layers at full size, and replaces the projections
 * whose sizes differ before any weight is loaded. */
#include "prune/compact.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

/* ----------------------------------------------------------------------- families */

/* How transformers builds a family's layers.  `layers` is a path from the base model; the other paths
 * start at a layer. */
typedef struct hf_family {
    const char *name;
    const char *layers;
    const char *attention;
    const char *q, *k, *v; /* q holds all three if k and v are NULL */
    const char *output;
    enum {
        FROM_WIDTH = 0, /* a head is hidden_size / heads: no PLAIN form       */
        FROM_CONFIG,    /* head_dim is read                                   */
        DIVISIBLE,      /* head_dim is read, but the number of heads must divide hidden_size */
    } head_size;
    bool v4_prunes;    /* transformers 4 reads pruned_heads */
    bool reads_config; /* the forward pass reads the number of heads from the config */
} hf_family;

#define LLAMA_NAMES                                                                                \
    "layers", "self_attn", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",             \
        "self_attn.o_proj"
#define BERT_NAMES                                                                                 \
    "encoder.layer", "attention.self", "attention.self.query", "attention.self.key",               \
        "attention.self.value", "attention.output.dense"

static const hf_family families[] = {
    { "llama", LLAMA_NAMES, DIVISIBLE, false, false },
    { "mistral", LLAMA_NAMES, FROM_CONFIG, false, false },
    { "mixtral", LLAMA_NAMES, FROM_CONFIG, false, false },
    { "qwen2", LLAMA_NAMES, FROM_CONFIG, false, false },
    { "qwen2_moe", LLAMA_NAMES, FROM_CONFIG, false, false },
    { "qwen3", LLAMA_NAMES, FROM_CONFIG, false, false },
    { "qwen3_moe", LLAMA_NAMES, FROM_CONFIG, false, false },
    { "gemma", LLAMA_NAMES, FROM_CONFIG, false, false },
    { "gemma2", LLAMA_NAMES, DIVISIBLE, false, false },
    { "gemma3", LLAMA_NAMES, DIVISIBLE, false, false },
    { "granite", LLAMA_NAMES, FROM_CONFIG, false, false },
    { "smollm3", LLAMA_NAMES, FROM_CONFIG, false, false },
    { "starcoder2", LLAMA_NAMES, FROM_CONFIG, false, false },
    { "cohere", LLAMA_NAMES, FROM_CONFIG, false, false },
    { "cohere2", LLAMA_NAMES, FROM_WIDTH, false, false },
    { "stablelm", LLAMA_NAMES, FROM_WIDTH, false, false },
    { "gpt_oss", LLAMA_NAMES, FROM_CONFIG, false, false },
    { "phi", "layers", "self_attn", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
      "self_attn.dense", FROM_CONFIG, false, false },
    { "phi3", "layers", "self_attn", "self_attn.qkv_proj", NULL, NULL, "self_attn.o_proj",
      FROM_CONFIG, false, true },
    { "gpt2", "h", "attn", "attn.c_attn", NULL, NULL, "attn.c_proj", FROM_WIDTH, true, false },
    { "gpt_bigcode", "h", "attn", "attn.c_attn", NULL, NULL, "attn.c_proj", FROM_WIDTH, false,
      false },
    { "gpt_neo", "h", "attn.attention", "attn.attention.q_proj", "attn.attention.k_proj",
      "attn.attention.v_proj", "attn.attention.out_proj", FROM_WIDTH, false, false },
    { "gptj", "h", "attn", "attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.out_proj", FROM_WIDTH,
      false, false },
    { "gpt_neox", "layers", "attention", "attention.query_key_value", NULL, NULL, "attention.dense",
      FROM_WIDTH, false, false },
    { "falcon", "h", "self_attention", "self_attention.query_key_value", NULL, NULL,
      "self_attention.dense", FROM_WIDTH, false, false },
    { "opt", "decoder.layers", "self_attn", "self_attn.q_proj", "self_attn.k_proj",
      "self_attn.v_proj", "self_attn.out_proj", FROM_WIDTH, false, false },
    { "bert", BERT_NAMES, FROM_WIDTH, true, false },
    { "roberta", BERT_NAMES, FROM_WIDTH, true, false },
    { "distilbert", "transformer.layer", "attention", "attention.q_lin", "attention.k_lin",
      "attention.v_lin", "attention.out_lin", FROM_WIDTH, true, false },
    { "modernbert", "layers", "attn", "attn.Wqkv", NULL, NULL, "attn.Wo", FROM_WIDTH, false,
      false },
};

static const hf_family *find_family(const char *name)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (strcmp(families[i].name, name) == 0)
            return &families[i];
    }
    return NULL;
}

hl_status hl_compact_check(const hl_config *config)
{
    const char *reason = NULL;

    if (config->position == HL_POSITION_ALIBI || config->position == HL_POSITION_ALIBI_FALCON)
        reason = "ALiBi's slopes depend on the number of heads, so those of the remaining heads "
                 "would change";
    else if (config->qk_norm == HL_HEAD_NORM_ALL)
        reason =
            "its norms of q and k span all heads, so those of the remaining heads would change";
    else if (config->latent.d_latent > 0)
        reason = "its heads read one latent row, and no configuration has heads of their own "
                 "number per layer for it";
    else if (config->inner_norms)
        reason = "a norm spans what all heads write, so that of the remaining heads would change";
    for (int64_t i = 0; i < config->n_layers && reason == NULL; i++) {
        if (config->layers[i].kv_layer != i && !config->is_encoder)
            reason = "layers use the keys and values of other layers";
    }
    if (reason == NULL)
        return HL_OK;
    return hl_fail(HL_UNSUPPORTED, "heads cannot be removed from this %s: %s; use --as masked",
                   config->family, reason);
}

/* -------------------------------------------------------------------- config.json */

/* Returns the part that describes the text model. */
static json_t *text_part(json_t *root)
{
    json_t *nested = json_object_get(root, "text_config");
    return json_is_object(nested) ? nested : root;
}

static const char *architecture_of(const json_t *root)
{
    return json_string_value(json_array_get(json_object_get(root, "architectures"), 0));
}

static hl_status set_json(json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) != 0)
        return hl_fail(HL_NO_MEMORY, "out of memory for config.json");
    return HL_OK;
}

static hl_status set_int(json_t *object, const char *key, int64_t value)
{
    return set_json(object, key, json_integer(value));
}

/* Llama's class requires a number of heads that divides the width; Mistral's is the same without
 * that requirement. */
static bool is_also_mistral(const json_t *root, const hl_config *config, const hl_head_plan *plan)
{
    const char *architecture = architecture_of(root);

    return strcmp(config->family, "llama") == 0 && config->biases == 0 &&
           !hl_head_plan_adds_biases(plan, config) && architecture != NULL &&
           strncmp(architecture, "Llama", 5) == 0;
}

static hl_status call_it_mistral(json_t *root)
{
    char name[64];

    snprintf(name, sizeof name, "Mistral%.48s", architecture_of(root) + strlen("Llama"));
    HL_NEED(set_json(root, "architectures", json_pack("[s]", name)));
    HL_NEED(set_json(root, "model_type", json_string("mistral")));
    return set_json(root, "sliding_window", json_null());
}

static bool fits_plain(const json_t *root, const hl_config *config, const hl_head_plan *plan,
                       const hf_family *family)
{
    int64_t n_heads = plan->layers[0].n_heads;

    if (family == NULL || family->head_size == FROM_WIDTH || !hl_head_plan_is_uniform(plan) ||
        json_object_get(text_part((json_t *)root), "per_layer_config") != NULL)
        return false;
    return family->head_size == FROM_CONFIG || config->d_model % n_heads == 0 ||
           is_also_mistral(root, config, plan);
}

static hl_status write_plain(json_t *root, const hl_config *config, const hl_head_plan *plan,
                             const hf_family *family)
{
    json_t *text = text_part(root);

    HL_NEED(set_int(text, "num_attention_heads", plan->layers[0].n_heads));
    HL_NEED(set_int(text, "num_key_value_heads", plan->layers[0].n_kv_heads));
    HL_NEED(set_int(text, "head_dim", config->layers[0].d_head));
    if (family->head_size == DIVISIBLE && config->d_model % plan->layers[0].n_heads != 0)
        HL_NEED(call_it_mistral(root));
    return HL_OK;
}

/* Returns this layer's existing entry, under "3" or "03"; otherwise a new one. */
static json_t *take_entry(json_t *table, int64_t layer)
{
    const char *key;
    json_t     *entry;

    json_object_foreach(table, key, entry) {
        if (strtoll(key, NULL, 10) == layer)
            return json_incref(entry);
    }
    return json_object();
}

static hl_status write_table(json_t *root, const hl_head_plan *plan)
{
    json_t                        *text  = text_part(root);
    HL_CLOSED(json_decref) json_t *table = json_object();
    int digits                           = snprintf(NULL, 0, "%lld", (long long)plan->n_layers - 1);

    for (int64_t i = 0; i < plan->n_layers; i++) {
        json_t *entry = take_entry(json_object_get(text, "per_layer_config"), i);
        char    key[24];

        snprintf(key, sizeof key, "%0*lld", digits, (long long)i);
        HL_NEED(set_json(table, key, entry));
        HL_NEED(set_int(entry, "num_attention_heads", plan->layers[i].n_heads));
        HL_NEED(set_int(entry, "num_key_value_heads", plan->layers[i].n_kv_heads));
    }
    return set_json(text, "per_layer_config", hl_taken(&table));
}

json_t *hl_compact_heads(const hl_config *config, const hl_head_plan *plan, hl_head_fate least)
{
    json_t *table = json_object();

    for (int64_t i = 0; i < plan->n_layers; i++) {
        json_t *heads = json_array();
        char    key[24];

        for (int64_t head = 0; head < config->layers[i].n_heads; head++) {
            if (plan->layers[i].heads[head] >= least)
                hl_json_add(&heads, json_integer(head));
        }
        snprintf(key, sizeof key, "%lld", (long long)i);
        if (heads == NULL || json_array_size(heads) > 0)
            hl_json_put(&table, key, heads);
        else
            json_decref(heads);
    }
    return table;
}

/* Is this a plain class name, rather than something else that Python would run? */
static bool is_class_name(const char *name)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";

    return name != NULL && name[0] != '\0' && strlen(name) < 64 &&
           strspn(name, letters) == strlen(name) && !(name[0] >= '0' && name[0] <= '9');
}

/* Returns the Auto class that loads an architecture; NULL if it is not known. */
static const char *auto_class(const char *architecture)
{
    static const struct {
        const char *ending;
        const char *auto_class;
    } known[] = {
        { "ForCausalLM", "AutoModelForCausalLM" },
        { "LMHeadModel", "AutoModelForCausalLM" },
        { "ForMaskedLM", "AutoModelForMaskedLM" },
        { "ForSequenceClassification", "AutoModelForSequenceClassification" },
        { "Model", "AutoModel" },
    };
    size_t n = architecture != NULL ? strlen(architecture) : 0;

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t n_ending = strlen(known[i].ending);
        if (n > n_ending && strcmp(architecture + n - n_ending, known[i].ending) == 0)
            return known[i].auto_class;
    }
    return NULL;
}

static hl_status write_auto_map(json_t *root, const hl_config *config)
{
    json_t     *map  = json_object_get(root, "auto_map");
    const char *kind = auto_class(architecture_of(root));
    char        text[128];

    if (!json_is_object(map)) {
        map = json_object();
        HL_NEED(set_json(root, "auto_map", map));
    }
    snprintf(text, sizeof text, "modeling_headlight_%s.HeadlightConfig", config->family);
    HL_NEED(set_json(map, "AutoConfig", json_string(text)));
    snprintf(text, sizeof text, "modeling_headlight_%s.%.64s", config->family,
             architecture_of(root));
    return set_json(map, kind, json_string(text));
}

hl_status hl_compact_add_biases(json_t *root)
{
    return set_json(text_part(root), "attention_bias", json_true());
}

hl_status hl_compact_config(hl_compact_form *form, json_t *root, const hl_config *config,
                            const hl_head_plan *plan)
{
    const hf_family *family = find_family(config->family);

    HL_NEED(hl_compact_check(config));
    *form = HL_COMPACT_PLAIN;
    if (fits_plain(root, config, plan, family))
        return write_plain(root, config, plan, family);
    HL_NEED(write_table(root, plan));
    *form = HL_COMPACT_OURS;
    if (family == NULL || text_part(root) != root || config->qk_norm == HL_HEAD_NORM_EACH ||
        auto_class(architecture_of(root)) == NULL || !is_class_name(architecture_of(root)))
        return HL_OK;
    *form = HL_COMPACT_CODE;
    HL_NEED(write_auto_map(root, config));
    if (family->v4_prunes && json_object_get(root, "pruned_heads") == NULL)
        HL_NEED(set_json(root, "pruned_heads", hl_compact_heads(config, plan, HL_HEAD_GONE)));
    return HL_OK;
}

/* ---------------------------------------------------------------------- the code */

static const char code_head[] =
    "\"\"\"%s with its own number of attention heads in every layer.\n"
    "\n"
    "Written by headlight prune, with the weights beside it.  The numbers are in config.json,\n"
    "under per_layer_config.  Load it with trust_remote_code=True.\n"
    "\"\"\"\n"
    "import copy\n"
    "from operator import attrgetter\n"
    "\n"
    "import torch\n"
    "from torch import nn\n"
    "from transformers import %s as BASE\n"
    "from transformers.pytorch_utils import Conv1D\n"
    "\n"
    "LAYERS = \"%s\"  # of the base model\n"
    "ATTENTION = \"%s\"  # of a layer, as what follows\n";

static const char code_body[] =
    "\n"
    "\n"
    "class HeadlightConfig(BASE.config_class):\n"
    "    \"\"\"The family's, with the table kept aside: its own code does not know it.\"\"\"\n"
    "\n"
    "    @classmethod\n"
    "    def from_dict(cls, config_dict, **kwargs):\n"
    "        config_dict = dict(config_dict)\n"
    "        heads = config_dict.pop(\"per_layer_config\", None)\n"
    "        heads = config_dict.pop(\"headlight_heads\", heads)\n"
    "        result = super().from_dict(config_dict, **kwargs)\n"
    "        config = result[0] if isinstance(result, tuple) else result\n"
    "        config.headlight_heads = heads\n"
    "        return result\n"
    "\n"
    "    def to_dict(self):\n"
    "        output = super().to_dict()\n"
    "        heads = output.pop(\"headlight_heads\", None)\n"
    "        if heads is not None:\n"
    "            output[\"per_layer_config\"] = heads\n"
    "        return output\n"
    "\n"
    "\n"
    "def sized(old, n_in, n_out):\n"
    "    \"\"\"A map of another size: of the same kind, with a bias where it had one.\"\"\"\n"
    "    if isinstance(old, Conv1D):\n"
    "        return Conv1D(n_out, n_in)\n"
    "    return type(old)(n_in, n_out, bias=old.bias is not None)\n"
    "\n"
    "\n"
    "def replace(layer, path, n_in, n_out):\n"
    "    owner, _, name = path.rpartition(\".\")\n"
    "    owner = attrgetter(owner)(layer)\n"
    "    setattr(owner, name, sized(getattr(owner, name), n_in, n_out))\n"
    "\n"
    "\n"
    "def resize(layer, width, heads, kv_heads):\n"
    "    sizes = {\"q\": heads * HEAD_DIM, \"kv\": kv_heads * HEAD_DIM}\n"
    "    sizes[\"qkv\"] = sizes[\"q\"] + 2 * sizes[\"kv\"]\n"
    "    for path, rows in INPUTS.items():\n"
    "        replace(layer, path, width, sizes[rows])\n"
    "    replace(layer, OUTPUT, sizes[\"q\"], width)\n"
    "\n"
    "    attention = attrgetter(ATTENTION)(layer)\n"
    "    numbers = {\n"
    "        \"num_heads\": heads,\n"
    "        \"num_attention_heads\": heads,\n"
    "        \"n_heads\": heads,\n"
    "        \"num_key_value_heads\": kv_heads,\n"
    "        \"num_kv_heads\": kv_heads,\n"
    "        \"kv_heads\": kv_heads,\n"
    "        \"num_key_value_groups\": heads // kv_heads,\n"
    "        \"embed_dim\": sizes[\"q\"],\n"
    "        \"split_size\": sizes[\"q\"],\n"
    "        \"all_head_size\": sizes[\"q\"],\n"
    "        \"kv_dim\": sizes[\"kv\"],\n"
    "    }\n"
    "    for name, number in numbers.items():\n"
    "        if hasattr(attention, name):\n"
    "            setattr(attention, name, number)\n"
    "    if hasattr(attention, \"sinks\"):\n"
    "        attention.sinks = nn.Parameter(torch.empty(heads, dtype=attention.sinks.dtype))\n"
    "    if READS_CONFIG:  # while it runs\n"
    "        attention.config = copy.copy(attention.config)\n"
    "        attention.config.num_attention_heads = heads\n"
    "\n"
    "\n"
    "class %s(BASE):\n"
    "    config_class = HeadlightConfig\n"
    "\n"
    "    @classmethod\n"
    "    def is_custom_code(cls):\n"
    "        \"\"\"No: names and layouts of weights are the family's, as are the rules for "
    "them.\"\"\"\n"
    "        return False\n"
    "\n"
    "    def __init__(self, config, *args, **kwargs):\n"
    "        super().__init__(config, *args, **kwargs)\n"
    "        layers = attrgetter(LAYERS)(self.base_model)\n"
    "        for index, numbers in (getattr(config, \"headlight_heads\", None) or {}).items():\n"
    "            heads, kv_heads = numbers[\"num_attention_heads\"], "
    "numbers[\"num_key_value_heads\"]\n"
    "            resize(layers[int(index)], config.hidden_size, heads, kv_heads)\n";

static void write_inputs(char *out, size_t room, const hf_family *family)
{
    if (family->k == NULL)
        snprintf(out, room, "INPUTS = {\"%s\": \"qkv\"}\n", family->q);
    else
        snprintf(out, room, "INPUTS = {\"%s\": \"q\", \"%s\": \"kv\", \"%s\": \"kv\"}\n", family->q,
                 family->k, family->v);
}

hl_status hl_compact_code(char name[HL_COMPACT_CODE_NAME], char **text, const json_t *root,
                          const hl_config *config)
{
    const hf_family *family       = find_family(config->family);
    const char      *architecture = architecture_of(root);
    const size_t     room         = sizeof code_head + sizeof code_body + 1024;
    char             inputs[256];

    *text = NULL;
    assert(family != NULL && is_class_name(architecture)); /* otherwise the form is not CODE */
    HL_NEED(HL_ALLOC(text, room));
    snprintf(name, HL_COMPACT_CODE_NAME, "modeling_headlight_%s.py", config->family);
    write_inputs(inputs, sizeof inputs, family);
    size_t used = (size_t)snprintf(*text, room, code_head, architecture, architecture,
                                   family->layers, family->attention);
    used += (size_t)snprintf(
        *text + used, room - used, "%sOUTPUT = \"%s\"\nHEAD_DIM = %lld\nREADS_CONFIG = %s\n",
        inputs, family->output, (long long)config->d_head, family->reads_config ? "True" : "False");
    snprintf(*text + used, room - used, code_body, architecture);
    return HL_OK;
}

const char *hl_compact_tensor_name(const hl_config *config, const char *name)
{
    bool is_neox_head =
        strcmp(config->family, "gpt_neox") == 0 && strcmp(name, "embed_out.weight") == 0;

    return is_neox_head ? "lm_head.weight" : name;
}
