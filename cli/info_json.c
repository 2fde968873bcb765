/* info_json.c - the JSON of `headlight info`: the same facts, under the names that
 * headlight.h has for them. */
#include <jansson.h>
#include <stdio.h>

#include "info_print.h"
#include "printable.h"
#include "values.h"

static void set_int(json_t *object, const char *key, int64_t value)
{
    json_object_set_new(object, key, json_integer(value));
}

static void set_text(json_t *object, const char *key, const char *value)
{
    json_object_set_new(object, key, json_string(value));
}

static void set_bool(json_t *object, const char *key, bool value)
{
    json_object_set_new(object, key, json_boolean(value));
}

static void set_sizes(json_t *root, const hl_model_info *info)
{
    set_int(root, "n_params", info->n_params);
    set_int(root, "n_layers", info->n_layers);
    set_int(root, "n_heads", info->n_heads);
    set_int(root, "n_kv_heads", info->n_kv_heads);
    set_int(root, "d_model", info->d_model);
    set_int(root, "d_head", info->d_head);
    set_int(root, "d_mlp", info->d_mlp);
    set_int(root, "d_vocab", info->d_vocab);
    set_int(root, "n_ctx", info->n_ctx);
    set_int(root, "n_experts", info->n_experts);
    set_int(root, "n_experts_used", info->n_experts_used);
    set_int(root, "d_expert", info->d_expert);
    set_int(root, "n_tensors", info->n_tensors);
    set_int(root, "tensor_bytes", (int64_t)info->tensor_bytes);
    set_int(root, "kv_bytes_f32", (int64_t)info->kv_bytes_f32);
    set_int(root, "kv_bytes_f16", (int64_t)info->kv_bytes_f16);
}

static void set_memory(json_t *root, const hl_session_memory *memory)
{
    json_object_set_new(root, "memory",
                        json_pack("{s:I, s:I, s:I}", "n_ctx", (json_int_t)memory->n_ctx,
                                  "cache_bytes", (json_int_t)memory->cache_bytes, "work_bytes",
                                  (json_int_t)memory->work_bytes));
}

static void set_parts(json_t *root, const hl_model_info *info)
{
    set_bool(root, "is_encoder", info->is_encoder);
    set_text(root, "norm", info->norm);
    set_text(root, "norm_place", info->norm_place);
    set_text(root, "residual", info->residual);
    set_text(root, "position", info->position);
    set_text(root, "rope", info->rope);
    json_object_set_new(root, "rope_base", json_real(info->rope_base));
    set_text(root, "activation", info->activation);
    set_bool(root, "is_gated", info->is_gated);
    set_bool(root, "is_tied", info->is_tied);
    set_bool(root, "has_head", info->has_head);
    set_bool(root, "has_sinks", info->has_sinks);
}

static void set_tokens(json_t *root, const hl_model_info *info)
{
    json_t *eos = json_array();

    for (int i = 0; i < info->n_eos_ids; i++)
        json_array_append_new(eos, json_integer(info->eos_ids[i]));
    set_int(root, "bos_id", info->bos_id);
    set_int(root, "pad_id", info->pad_id);
    json_object_set_new(root, "eos_ids", eos);
    json_t *foreign = json_array();
    for (int i = 0; i < info->n_foreign_ids; i++)
        json_array_append_new(foreign, json_integer(info->foreign_ids[i]));
    json_object_set_new(root, "foreign_ids", foreign);
}

static json_t *layer_object(const hl_layer_info *layer)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:b, s:f}", "n_heads", (json_int_t)layer->n_heads,
                     "n_kv_heads", (json_int_t)layer->n_kv_heads, "d_mlp", (json_int_t)layer->d_mlp,
                     "n_experts", (json_int_t)layer->n_experts, "window", (json_int_t)layer->window,
                     "has_rope", layer->has_rope, "rope_base", layer->rope_base);
}

static json_t *layer_array(const hl_model *model)
{
    json_t       *array = json_array();
    hl_layer_info layer;

    for (int64_t i = 0; i < hl_model_get_info(model)->n_layers; i++) {
        if (hl_model_get_layer(&layer, model, i) == HL_OK)
            json_array_append_new(array, layer_object(&layer));
    }
    return array;
}

static json_t *tensor_object(const hl_tensor_info *tensor)
{
    json_t *shape = json_array();

    for (int i = 0; i < tensor->n_dims; i++)
        json_array_append_new(shape, json_integer(tensor->shape[i]));
    return json_pack("{s:o, s:s, s:b, s:s, s:o, s:I}", "name", hl_value_name(tensor->name), "role",
                     tensor->role, "is_bias", tensor->is_bias, "dtype",
                     hl_dtype_name(tensor->dtype), "shape", shape, "n_bytes",
                     (json_int_t)tensor->n_bytes);
}

static json_t *tensor_array(const hl_model *model)
{
    json_t        *array = json_array();
    hl_tensor_info tensor;

    for (int64_t i = 0; i < hl_model_get_info(model)->n_tensors; i++) {
        if (hl_model_get_tensor(&tensor, model, i) == HL_OK)
            json_array_append_new(array, tensor_object(&tensor));
    }
    return array;
}

/* Tensors and bytes of every dtype that occurs. */
static json_t *dtype_object(const hl_model *model)
{
    json_t        *object = json_object();
    hl_tensor_info tensor;

    for (int64_t i = 0; i < hl_model_get_info(model)->n_tensors; i++) {
        if (hl_model_get_tensor(&tensor, model, i) != HL_OK)
            continue;
        const char *name  = hl_dtype_name(tensor.dtype);
        json_t     *entry = json_object_get(object, name);
        json_int_t  count = json_integer_value(json_object_get(entry, "n_tensors"));
        json_int_t  bytes = json_integer_value(json_object_get(entry, "n_bytes"));
        json_object_set_new(object, name,
                            json_pack("{s:I, s:I}", "n_tensors", count + 1, "n_bytes",
                                      bytes + (json_int_t)tensor.n_bytes));
    }
    return object;
}

/* A piece that is not UTF-8 has no place in JSON: null. */
static json_t *special_object(const hl_tokenizer *tokenizer)
{
    static const char *const names[HL_SPECIAL_COUNT] = { "bos", "eos", "unk",  "sep",
                                                         "pad", "cls", "mask", "eot" };
    json_t                  *object                  = json_object();

    for (int i = 0; i < HL_SPECIAL_COUNT; i++) {
        int32_t     id      = hl_tokenizer_special(tokenizer, (hl_special)i);
        size_t      n_bytes = 0;
        const char *piece   = id >= 0 ? hl_tokenizer_piece(tokenizer, id, &n_bytes) : NULL;
        json_t     *text    = piece != NULL ? json_stringn(piece, n_bytes) : NULL;
        if (id >= 0)
            json_object_set_new(
                object, names[i],
                json_pack("{s:i, s:o}", "id", (int)id, "piece", text != NULL ? text : json_null()));
    }
    return object;
}

static json_t *tokenizer_object(const hl_tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        return json_null();
    return json_pack("{s:s, s:I, s:o}", "kind", hl_tokenizer_kind(tokenizer), "size",
                     (json_int_t)hl_tokenizer_size(tokenizer), "special",
                     special_object(tokenizer));
}

void hl_info_print_json(const hl_info_request *request)
{
    const hl_model      *model = request->model;
    const hl_model_info *info  = hl_model_get_info(model);
    json_t              *root  = json_object();

    set_text(root, "path", request->path);
    set_text(root, "family", info->family);
    set_text(root, "format", info->format);
    set_sizes(root, info);
    set_memory(root, &request->memory);
    set_parts(root, info);
    set_tokens(root, info);
    json_object_set_new(root, "dtypes", dtype_object(model));
    json_object_set_new(root, "layers", layer_array(model));
    json_object_set_new(root, "tokenizer", tokenizer_object(request->tokenizer));
    if (request->tensors)
        json_object_set_new(root, "tensors", tensor_array(model));
    hl_put_json(root, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    printf("\n");
    json_decref(root);
}
