/* gates.c - a value for every head, from a list, a JSON object or a tensor.
 *
 *     { "L5H1": 0, "L7": 0.5, "L7H3": 1 }
 *
 * A layer's value is of all its heads but those that are named themselves, wherever in the
 * object they stand; what is not named is 1. */
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "formats/safetensors.h"
#include "prune/heads.h"

hl_status hl_gates_new(hl_gates **out, const hl_model *model)
{
    hl_status            status = HL_OK;
    const hl_model_info *info   = hl_model_get_info(model);
    hl_gates            *gates  = NULL;

    *out = NULL;
    HL_TRY(HL_ALLOC_ZEROED(&gates, 1));
    gates->n_layers = info->n_layers;
    gates->n_heads  = info->n_heads;
    HL_TRY(HL_ALLOC(&gates->values, (size_t)(info->n_layers * info->n_heads)));
    for (int64_t i = 0; i < info->n_layers * info->n_heads; i++)
        gates->values[i] = 1.0f;
    *out  = gates;
    gates = NULL;

done:
    hl_gates_free(gates);
    return status;
}

void hl_gates_free(hl_gates *gates)
{
    if (gates == NULL)
        return;
    hl_free(gates->values);
    hl_free(gates);
}

void hl_gates_set(hl_gates *gates, const hl_head_list *heads, float value)
{
    for (int64_t i = 0; i < heads->n_heads; i++)
        gates->values[heads->heads[i].layer * gates->n_heads + heads->heads[i].head] = value;
}

int64_t hl_gates_n_changed(const hl_gates *gates)
{
    int64_t count = 0;

    for (int64_t i = 0; i < gates->n_layers * gates->n_heads; i++)
        count += gates->values[i] != 1.0f;
    return count;
}

static hl_status check_value(double value, const char *where, const char *name)
{
    if (value >= 0.0 && value <= 1.0)
        return HL_OK;
    return hl_fail(HL_BAD_INPUT, "%s: the gate of %s is %g, wanted 0 to 1", where, name, value);
}

/* ----------------------------------------------------------------------- JSON */

/* One member; only layers, or only single heads. */
static hl_status read_member(hl_gates *gates, const hl_model *model, const char *name,
                             const json_t *value, const char *where, bool layers)
{
    hl_status status = HL_OK;
    hl_head   named;

    status = hl_head_parse(&named, model, name, strlen(name));
    if (status != HL_OK)
        return hl_fail_within(HL_BAD_INPUT, "%s", where);
    if (!json_is_number(value))
        return hl_fail(HL_BAD_INPUT, "%s: the gate of %s is %s, wanted a number", where, name,
                       hl_json_kind(value));
    HL_NEED(check_value(json_number_value(value), where, name));
    if ((named.head < 0) != layers)
        return HL_OK;
    float  *row   = gates->values + named.layer * gates->n_heads;
    int64_t first = layers ? 0 : named.head;
    int64_t end   = layers ? hl_heads_of(model, named.layer) : named.head + 1;
    for (int64_t head = first; head < end; head++)
        row[head] = (float)json_number_value(value);
    return status;
}

static hl_status read_members(hl_gates *gates, const hl_model *model, json_t *root,
                              const char *where, bool layers)
{
    const char *name;
    json_t     *value;

    json_object_foreach(root, name, value) {
        hl_status status = read_member(gates, model, name, value, where, layers);
        if (status != HL_OK)
            return status;
    }
    return HL_OK;
}

hl_status hl_gates_parse(hl_gates **out, const hl_model *model, const char *text, size_t n_bytes,
                         const char *where)
{
    hl_status status = HL_OK;
    hl_gates *gates  = NULL;
    json_t   *root   = NULL;

    *out = NULL;
    HL_TRY(hl_json_parse(&root, text, n_bytes, where));
    if (!json_is_object(root)) {
        status = hl_fail(HL_BAD_INPUT, "%s: %s, wanted an object like {\"L5H1\": 0}", where,
                         hl_json_kind(root));
        goto done;
    }
    HL_TRY(hl_gates_new(&gates, model));
    HL_TRY(read_members(gates, model, root, where, true));
    HL_TRY(read_members(gates, model, root, where, false));
    *out  = gates;
    gates = NULL;

done:
    hl_gates_free(gates);
    json_decref(root);
    return status;
}

static hl_status load_json(hl_gates **out, const hl_model *model, const char *path)
{
    hl_status status = HL_OK;
    hl_file   file   = { 0 };

    HL_TRY(hl_file_map(&file, path));
    HL_TRY(hl_gates_parse(out, model, (const char *)file.bytes, file.n_bytes, path));

done:
    hl_file_unmap(&file);
    return status;
}

/* --------------------------------------------------------------------- tensor */

static const hl_tensor *find_tensor(const hl_safetensors *file)
{
    const hl_tensor *named = hl_safetensors_find(file, "gates");

    return named == NULL && hl_safetensors_count(file) == 1 ? hl_safetensors_at(file, 0) : named;
}

/* `data` may be unaligned. */
static hl_status read_tensor(hl_gates *gates, const hl_model *model, const hl_tensor *tensor,
                             const char *path)
{
    if (tensor == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: no tensor 'gates'", path);
    if (tensor->dtype != HL_DTYPE_F32 || tensor->n_dims != 2 ||
        tensor->shape[0] != gates->n_layers || tensor->shape[1] != gates->n_heads)
        return hl_fail(HL_BAD_INPUT, "%s: '%s' is not F32 of shape [%lld, %lld]", path,
                       tensor->name, (long long)gates->n_layers, (long long)gates->n_heads);
    memcpy(gates->values, tensor->data, tensor->n_bytes);
    for (int64_t i = 0; i < gates->n_layers * gates->n_heads; i++) {
        int64_t layer = i / gates->n_heads;

        if (i % gates->n_heads >= hl_heads_of(model, layer))
            gates->values[i] = 1.0f;
        else if (!(gates->values[i] >= 0.0f && gates->values[i] <= 1.0f))
            return hl_fail(HL_BAD_INPUT, "%s: the gate of L%lldH%lld is %g, wanted 0 to 1", path,
                           (long long)layer, (long long)(i % gates->n_heads),
                           (double)gates->values[i]);
    }
    return HL_OK;
}

static hl_status load_tensor(hl_gates **out, const hl_model *model, const char *path)
{
    hl_status       status = HL_OK;
    hl_gates       *gates  = NULL;
    hl_safetensors *file   = NULL;

    HL_TRY(hl_safetensors_open(&file, path));
    HL_TRY(hl_gates_new(&gates, model));
    HL_TRY(read_tensor(gates, model, find_tensor(file), path));
    *out  = gates;
    gates = NULL;

done:
    hl_gates_free(gates);
    hl_safetensors_close(file);
    return status;
}

hl_status hl_gates_load(hl_gates **out, const hl_model *model, const char *path)
{
    const char *ending = strrchr(path, '.');

    *out = NULL;
    return ending != NULL && strcmp(ending, ".safetensors") == 0 ? load_tensor(out, model, path)
                                                                 : load_json(out, model, path);
}
