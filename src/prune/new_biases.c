/* new_biases.c - four vectors a layer, named after the weights that they stand beside. */
#include "prune/new_biases.h"

#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"

enum { N_ROLES = 4 };

static const hl_role roles[N_ROLES] = { HL_ROLE_ATTN_Q, HL_ROLE_ATTN_K, HL_ROLE_ATTN_V,
                                        HL_ROLE_ATTN_O };

struct hl_new_biases {
    hl_tensor *tensors; /* (n) names and data are ours */
    size_t     n;
};

/* ----------------------------------------------------------------- who has a place */

static bool is_listed(const char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0)
            return true;
    }
    return false;
}

hl_status hl_new_biases_check(const hl_config *config, hl_prune_form form)
{
    /* attention_bias gives q, k, v and the output one; in GGUF, attn_output.bias is read. */
    static const char *const folders[] = { "llama",   "qwen3",   "qwen3_moe", "granite",
                                           "smollm3", "gemma",   "gemma2",    "gemma3",
                                           "cohere",  "cohere2", "olmo2" };
    static const char *const files[]   = { "llama", "mistral", "deci" };
    bool                     to_file   = form == HL_PRUNE_GGUF;

    if ((config->biases & HL_BIAS_O) != 0)
        return HL_OK;
    if ((config->biases & HL_BIAS_QKV) == 0 &&
        (to_file ? is_listed(files, sizeof files / sizeof *files, config->family)
                 : is_listed(folders, sizeof folders / sizeof *folders, config->family)))
        return HL_OK;
    return hl_fail(HL_UNSUPPORTED,
                   "a %s has no output bias, and none can be added that %s would load: means of "
                   "heads have no place in it",
                   config->family, to_file ? "llama.cpp" : "transformers");
}

/* ------------------------------------------------------------------------- tensors */

/* "...o_proj.bias" for "...o_proj.weight". */
static hl_status name_bias(char **out, const char *weight)
{
    size_t stem = strlen(weight);
    size_t room = stem + 8;

    if (stem > 7 && strcmp(weight + stem - 7, ".weight") == 0)
        stem -= 7;
    hl_status status = HL_ALLOC(out, room);
    if (status == HL_OK)
        snprintf(*out, room, "%.*s.bias", (int)stem, weight);
    return status;
}

static int64_t length_of(const hl_config *config, const hl_layer_plan *plan, hl_role role)
{
    if (role == HL_ROLE_ATTN_O)
        return config->d_model;
    return (role == HL_ROLE_ATTN_Q ? plan->n_heads : plan->n_kv_heads) * config->d_head;
}

static hl_status add_bias(hl_new_biases *biases, const hl_model *model, const hl_layer_plan *plan,
                          int64_t layer, hl_role role)
{
    hl_status       status = HL_OK;
    const hl_param *param  = hl_weights_get(model->weights, role, layer, 0);
    char           *name   = NULL;
    uint8_t        *data   = NULL;
    int64_t         length = length_of(model->config, plan, role);

    if (param == NULL) /* a layer without attention */
        return HL_OK;
    hl_tensor tensor = { .dtype = param->weight.tensor->dtype, .n_dims = 1, .shape = { length } };
    HL_TRY(hl_tensor_bytes(&tensor.n_bytes, &tensor));
    HL_TRY(HL_ALLOC_ZEROED(&data, tensor.n_bytes));
    if (role == HL_ROLE_ATTN_O)
        HL_TRY(hl_dtype_from_f32(data, tensor.dtype, plan->bias, (size_t)length));
    HL_TRY(name_bias(&name, param->weight.tensor->name));
    tensor.name                  = name;
    tensor.data                  = data;
    biases->tensors[biases->n++] = tensor;
    data                         = NULL;

done:
    hl_free(data);
    return status;
}

hl_status hl_new_biases_new(hl_new_biases **out, const hl_model *model, const hl_head_plan *plan)
{
    hl_status      status   = HL_OK;
    hl_new_biases *biases   = NULL;
    int64_t        n_layers = hl_head_plan_adds_biases(plan, model->config) ? plan->n_layers : 0;

    *out = NULL;
    HL_TRY(HL_ALLOC_ZEROED(&biases, 1));
    HL_TRY(HL_ALLOC_ZEROED(&biases->tensors, (size_t)n_layers * N_ROLES));
    for (int64_t i = 0; i < n_layers * N_ROLES; i++)
        HL_TRY(
            add_bias(biases, model, &plan->layers[i / N_ROLES], i / N_ROLES, roles[i % N_ROLES]));
    *out   = biases;
    biases = NULL;

done:
    hl_new_biases_free(biases);
    return status;
}

void hl_new_biases_free(hl_new_biases *biases)
{
    if (biases == NULL)
        return;
    for (size_t i = 0; i < biases->n; i++) {
        hl_free((void *)biases->tensors[i].name);
        hl_free((void *)biases->tensors[i].data);
    }
    hl_free(biases->tensors);
    hl_free(biases);
}

size_t hl_new_biases_count(const hl_new_biases *biases)
{
    return biases->n;
}

const hl_tensor *hl_new_biases_at(const hl_new_biases *biases, size_t index)
{
    return &biases->tensors[index];
}
