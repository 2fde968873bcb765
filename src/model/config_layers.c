/* config_layers.c - what differs from layer to layer.
 *
 * Layers are first made alike, from what the description says of all of them.
 * Then come, each over the last: lists with an entry a layer (head counts of a
 * GGUF file), the pattern of windowed and full layers, the family's own rule, and
 * config.json's per_layer_config, which is how pruned models are written:
 *
 *     "per_layer_config": { "03": { "num_attention_heads": 20, "skip": ["mlp"] } } */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "model/config_build.h"

static void make_alike(hl_config *config)
{
    double scale =
        config->attn_scale != 0.0 ? config->attn_scale : 1.0 / sqrt((double)config->d_head);

    for (int64_t i = 0; i < config->n_layers; i++) {
        config->layers[i] = (hl_layer_config){
            .n_heads    = config->n_heads,
            .n_kv_heads = config->n_kv_heads,
            .d_mlp      = config->n_experts > 0 ? config->d_expert : config->d_mlp,
            .n_experts  = config->n_experts,
            .attn_scale = scale,
        };
    }
}

/* -------------------------------------------------------- lists of one a layer */

/* A list under this key goes to the member at `offset` of every layer. */
static hl_status spread(hl_config *config, const hl_fields *fields, const char *json,
                        const char *gguf, size_t offset)
{
    hl_status status = HL_OK;
    int64_t  *list   = NULL;
    bool      found  = false;
    size_t    count  = (size_t)config->n_layers;

    HL_TRY(HL_ALLOC(&list, count));
    HL_TRY(hl_fields_ints(list, &found, fields, json, gguf, count));
    for (size_t i = 0; found && i < count; i++)
        memcpy((char *)&config->layers[i] + offset, &list[i], sizeof list[i]);

done:
    hl_free(list);
    return status;
}

static hl_status spread_lists(hl_config *config, const hl_fields *fields)
{
    HL_NEED(
        spread(config, fields, NULL, "attention.head_count", offsetof(hl_layer_config, n_heads)));
    HL_NEED(spread(config, fields, NULL, "attention.head_count_kv",
                   offsetof(hl_layer_config, n_kv_heads)));
    if (config->n_experts == 0)
        HL_NEED(
            spread(config, fields, NULL, "feed_forward_length", offsetof(hl_layer_config, d_mlp)));
    return HL_OK;
}

/* ------------------------------------------------------------ windowed layers */

static hl_status read_layer_types(hl_config *config, const json_t *types, const char *where)
{
    if (!json_is_array(types) || json_array_size(types) != (size_t)config->n_layers)
        return hl_fail(HL_BAD_INPUT, "%s: 'layer_types' has %zu entries, wanted %lld", where,
                       json_array_size(types), (long long)config->n_layers);
    for (int64_t i = 0; i < config->n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        if (type == NULL)
            return hl_fail(HL_BAD_INPUT, "%s: 'layer_types' [%lld] is not a string", where,
                           (long long)i);
        config->layers[i].is_local = strcmp(type, "sliding_attention") == 0;
        if (!config->layers[i].is_local && strcmp(type, "full_attention") != 0)
            return hl_fail(HL_UNSUPPORTED,
                           "%s: 'layer_types' [%lld] is '%s', wanted full_attention or "
                           "sliding_attention",
                           where, (long long)i, type);
    }
    return HL_OK;
}

/* Without a list: one layer of every period is full; without a period none is. */
static bool is_local_by_period(const hl_config *config, int64_t layer)
{
    int64_t period = config->window_period;
    int64_t full   = config->full_first ? 0 : period - 1;

    return config->window > 0 && (period == 0 || layer % period != full);
}

static hl_status choose_local(hl_config *config, const hl_fields *fields)
{
    const json_t *types = json_object_get(fields->object, "layer_types");
    int64_t       listed[HL_MAX_LAYERS];
    bool          found = false;

    if (types != NULL && !json_is_null(types))
        return read_layer_types(config, types, fields->where);
    hl_status status = hl_fields_ints(listed, &found, fields, NULL,
                                      "attention.sliding_window_pattern", (size_t)config->n_layers);
    for (int64_t i = 0; status == HL_OK && i < config->n_layers; i++)
        config->layers[i].is_local = found ? listed[i] != 0 : is_local_by_period(config, i);
    return status;
}

static void choose_ropes(hl_config *config)
{
    bool has_local = config->ropes[HL_ROPE_LOCAL].base != 0.0;

    for (int64_t i = 0; i < config->n_layers && config->position == HL_POSITION_ROPE; i++)
        config->layers[i].rope =
            config->layers[i].is_local && has_local ? HL_ROPE_LOCAL : HL_ROPE_MAIN;
}

/* A decoder's window counts keys up to the row's own; an encoder's lies around it. */
static void place_windows(hl_config *config)
{
    for (int64_t i = 0; i < config->n_layers; i++) {
        hl_layer_config *layer = &config->layers[i];
        layer->is_local        = layer->is_local && config->window > 0;
        if (layer->is_local && config->is_encoder)
            layer->window_left = layer->window_right = config->window / 2;
        else if (layer->is_local)
            layer->window_left = config->window - 1;
    }
}

/* ---------------------------------------------------------- per_layer_config */

static hl_status skip_parts(hl_layer_config *layer, const json_t *skip, const char *where)
{
    for (size_t i = 0; i < json_array_size(skip); i++) {
        const char *part = json_string_value(json_array_get(skip, i));
        if (part != NULL && strcmp(part, "attention") == 0)
            layer->n_heads = layer->n_kv_heads = 0;
        else if (part != NULL && strcmp(part, "mlp") == 0)
            layer->d_mlp = layer->n_experts = 0;
        else
            return hl_fail(HL_UNSUPPORTED,
                           "%s: 'per_layer_config' skips '%s', wanted attention or mlp", where,
                           part != NULL ? part : "?");
    }
    return HL_OK;
}

static hl_status read_layer(hl_layer_config *layer, const json_t *object, const char *where)
{
    hl_fields fields = { .where = where, .object = object, .outer = object };

    HL_NEED(hl_fields_int(&layer->n_heads, &fields, "num_attention_heads", NULL, 0, HL_MAX_HEADS));
    HL_NEED(
        hl_fields_int(&layer->n_kv_heads, &fields, "num_key_value_heads", NULL, 0, HL_MAX_HEADS));
    HL_NEED(hl_fields_int(&layer->d_mlp, &fields, "intermediate_size", NULL, 0, HL_MAX_WIDTH));
    return skip_parts(layer, json_object_get(object, "skip"), where);
}

static hl_status read_per_layer(hl_config *config, const hl_fields *fields)
{
    json_t     *table = json_object_get(fields->object, "per_layer_config");
    const char *key;
    json_t     *entry;

    if (table == NULL || json_is_null(table))
        return HL_OK;
    if (!json_is_object(table))
        return hl_fail(HL_BAD_INPUT, "%s: 'per_layer_config' is not an object", fields->where);
    json_object_foreach(table, key, entry) {
        char     *end   = NULL;
        long long index = strtoll(key, &end, 10);
        if (*key == '\0' || *end != '\0' || index < 0 || index >= config->n_layers)
            return hl_fail(HL_BAD_INPUT,
                           "%s: 'per_layer_config' names layer '%s', wanted 0 to %lld",
                           fields->where, key, (long long)config->n_layers - 1);
        hl_status status = read_layer(&config->layers[index], entry, fields->where);
        if (status != HL_OK)
            return status;
    }
    return HL_OK;
}

/* ------------------------------------------------------------------ the whole */

/* The description's own counts are the largest of any layer. */
static void sum_up(hl_config *config)
{
    config->n_heads = config->n_kv_heads = 0;
    for (int64_t i = 0; i < config->n_layers; i++) {
        const hl_layer_config *layer = &config->layers[i];
        if (layer->n_heads > config->n_heads)
            config->n_heads = layer->n_heads;
        if (layer->n_kv_heads > config->n_kv_heads)
            config->n_kv_heads = layer->n_kv_heads;
        if (layer->n_experts == 0 && layer->d_mlp > config->d_mlp)
            config->d_mlp = layer->d_mlp;
    }
}

hl_status hl_config_make_layers(hl_config *config, const hl_family *family, const hl_fields *fields)
{
    HL_NEED(HL_ALLOC_ZEROED(&config->layers, (size_t)config->n_layers));
    make_alike(config);
    HL_NEED(spread_lists(config, fields));
    HL_NEED(choose_local(config, fields));
    choose_ropes(config);
    if (family->layers != NULL)
        HL_NEED(family->layers(config, fields));
    HL_NEED(read_per_layer(config, fields));
    place_windows(config);
    sum_up(config);
    return HL_OK;
}
