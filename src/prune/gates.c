/* gates.c - heads by name, and a value for every head.
 *
 * A head is "L5H1", all heads of a layer are "L5"; lists of them are words with commas or spaces
 * between.  Gates come from such a list, from a tensor or from a JSON object:
 *
 *     { "L5H1": 0, "L7": 0.5, "L7H3": 1 }
 *
 * A layer's value applies to all its heads except those with a value of their own, in any order of
 * the object.  Heads without a value get 1. */
#include "prune/gates.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/head_kinds.h"
#include "base/dtype.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "formats/safetensors.h"

enum { MAX_SHOWN = 40 };

hl_status hl_head_check(const hl_config *config, hl_head head)
{
    if (head.layer < 0 || head.layer >= config->n_layers || head.head < 0 ||
        head.head >= config->layers[head.layer].n_heads)
        return hl_fail(HL_BAD_ARGUMENT, "the model has no head L%lldH%lld", (long long)head.layer,
                       (long long)head.head);
    return HL_OK;
}

int64_t hl_heads_of(const hl_model *model, int64_t layer)
{
    hl_layer_info info = { 0 };

    return hl_model_get_layer(&info, model, layer) == HL_OK ? info.n_heads : 0;
}

/* ---------------------------------------------------------------------- words */

/* Parses "L5H1" (one head) or "L5" (all heads of the layer, .head -1) of n_bytes. Fails with
 * HL_BAD_ARGUMENT, naming the word and the model's size, if there is no such head. */
static hl_status parse_head(hl_head *out, const hl_model *model, const char *word, size_t n_bytes)
{
    const hl_model_info *info  = hl_model_get_info(model);
    int                  shown = n_bytes < MAX_SHOWN ? (int)n_bytes : MAX_SHOWN;

    if (!hl_head_read(out, word, n_bytes))
        return hl_fail(HL_BAD_ARGUMENT,
                       "'%.*s' is not a head: wanted one like L5H1, or L5 for a layer", shown,
                       word);
    if (out->layer >= info->n_layers)
        return hl_fail(HL_BAD_ARGUMENT, "%.*s: the model has layers L0 to L%lld", shown, word,
                       (long long)info->n_layers - 1);
    int64_t n_heads = hl_heads_of(model, out->layer);
    if (n_heads == 0)
        return hl_fail(HL_BAD_ARGUMENT, "%.*s: layer %lld of the model has no attention", shown,
                       word, (long long)out->layer);
    if (out->head >= n_heads)
        return hl_fail(HL_BAD_ARGUMENT, "%.*s: the layer has heads L%lldH0 to L%lldH%lld", shown,
                       word, (long long)out->layer, (long long)out->layer, (long long)n_heads - 1);
    return HL_OK;
}

/* ---------------------------------------------------------------------- lists */

/* Marks the heads that a text names: marks (n_layers, n_heads). */
static hl_status mark_heads(uint8_t *marks, const hl_model *model, const char *text)
{
    int64_t width = hl_model_get_info(model)->n_heads;

    for (const char *at = text; *at != '\0';) {
        size_t  length = strcspn(at, ", \t\n\r");
        hl_head named;

        if (length > 0) {
            HL_NEED(parse_head(&named, model, at, length));
            int64_t first = named.head >= 0 ? named.head : 0;
            int64_t last  = named.head >= 0 ? named.head : hl_heads_of(model, named.layer) - 1;
            memset(marks + named.layer * width + first, 1, (size_t)(last - first + 1));
        }
        at += length + (at[length] != '\0');
    }
    return HL_OK;
}

static hl_status list_marked(hl_head_list **out, const uint8_t *marks, int64_t n_layers,
                             int64_t n_heads)
{
    HL_CLOSED(hl_head_list_free) hl_head_list *list = NULL;

    HL_NEED(HL_ALLOC_ZEROED(&list, 1));
    for (int64_t i = 0; i < n_layers * n_heads; i++)
        list->n_heads += marks[i];
    HL_NEED(HL_ALLOC(&list->heads, (size_t)list->n_heads));
    for (int64_t i = 0, n = 0; i < n_layers * n_heads; i++) {
        if (marks[i] != 0)
            list->heads[n++] = (hl_head){ i / n_heads, i % n_heads };
    }
    *out = hl_taken(&list);
    return HL_OK;
}

hl_status hl_head_list_parse(hl_head_list **out, const hl_model *model, const char *text)
{
    hl_status            status = HL_OK;
    const hl_model_info *info   = hl_model_get_info(model);
    HL_FREED uint8_t    *marks  = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&marks, (size_t)(info->n_layers * info->n_heads)));
    HL_NEED(mark_heads(marks, model, text));
    HL_NEED(list_marked(out, marks, info->n_layers, info->n_heads));
    if ((*out)->n_heads == 0) {
        hl_head_list_free(*out);
        *out   = NULL;
        status = hl_fail(HL_BAD_ARGUMENT, "the list of heads is empty");
    }
    return status;
}

/* ----------------------------------------------------------- heads and types */

/* Finds the type of that name; returns false if there is none. */
static bool find_kind(hl_head_kind *out, const char *word, size_t n_bytes)
{
    for (int kind = 0; kind < HL_HEAD_UNKNOWN; kind++) {
        const char *name = hl_head_kind_name((hl_head_kind)kind);

        *out = (hl_head_kind)kind;
        if (strlen(name) == n_bytes && memcmp(name, word, n_bytes) == 0)
            return true;
    }
    return false;
}

static hl_status refuse_word(const char *word, size_t n_bytes)
{
    char   types[256] = "";
    size_t used       = 0;

    for (int kind = 0; kind < HL_HEAD_UNKNOWN; kind++)
        used += (size_t)snprintf(types + used, sizeof types - used, "%s%s", kind > 0 ? ", " : "",
                                 hl_head_kind_name((hl_head_kind)kind));
    return hl_fail(HL_BAD_ARGUMENT,
                   "'%.*s' is neither a head, like L5H1 or L5 for a layer, nor a type of heads: "
                   "there are %s",
                   n_bytes < MAX_SHOWN ? (int)n_bytes : MAX_SHOWN, word, types);
}

hl_status hl_head_words_need_profile(bool *out, const hl_model *model, const char *text)
{
    hl_head      head;
    hl_head_kind kind;

    *out = false;
    for (const char *at = text; *at != '\0';) {
        size_t length = strcspn(at, ", \t\n\r");

        if (length > 0 && find_kind(&kind, at, length))
            *out = true;
        else if (length > 0 && !hl_head_read(&head, at, length))
            return refuse_word(at, length);
        else if (length > 0)
            HL_NEED(parse_head(&head, model, at, length));
        at += length + (at[length] != '\0');
    }
    return HL_OK;
}

static void mark_kind(uint8_t *marks, const hl_model *model, const hl_profile *profile,
                      hl_head_kind kind)
{
    const hl_model_info *info = hl_model_get_info(model);

    for (int64_t i = 0; i < info->n_layers * info->n_heads; i++) {
        int64_t layer = i / info->n_heads, head = i % info->n_heads;

        if (head < hl_heads_of(model, layer) && hl_head_type_of(profile, layer, head).kind == kind)
            marks[i] = 1;
    }
}

hl_status hl_head_list_select(hl_head_list **out, const hl_model *model, const hl_profile *profile,
                              const char *text)
{
    const hl_model_info *info  = hl_model_get_info(model);
    HL_FREED uint8_t    *marks = NULL;
    bool                 types = false;
    hl_head_kind         kind;

    *out = NULL;
    HL_NEED(hl_head_words_need_profile(&types, model, text));
    if (types && profile == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "types of heads need a profile, so a model and a text");
    if (types && hl_profile_n_layers(profile) != info->n_layers)
        return hl_fail(HL_BAD_INPUT, "the profile has %lld layers, the model %lld",
                       (long long)hl_profile_n_layers(profile), (long long)info->n_layers);
    HL_NEED(HL_ALLOC_ZEROED(&marks, (size_t)(info->n_layers * info->n_heads)));
    for (const char *at = text; *at != '\0';) {
        size_t length   = strcspn(at, ", \t\n\r");
        char   word[64] = "";

        if (find_kind(&kind, at, length)) {
            mark_kind(marks, model, profile, kind);
        } else {
            snprintf(word, sizeof word, "%.*s", (int)length, at);
            HL_NEED(mark_heads(marks, model, word));
        }
        at += length + (at[length] != '\0');
    }
    return list_marked(out, marks, info->n_layers, info->n_heads);
}

hl_status hl_head_list_text(char **out, const hl_head_list *list)
{
    enum { ROOM = 48 }; /* maximum bytes of one head and a comma */
    char     *text   = NULL;
    size_t    used   = 0;
    hl_status status = HL_ALLOC_ZEROED(&text, (size_t)list->n_heads * ROOM + 1);

    for (int64_t i = 0; i < list->n_heads && status == HL_OK; i++)
        used += (size_t)snprintf(text + used, ROOM, "%sL%lldH%lld", i > 0 ? "," : "",
                                 (long long)list->heads[i].layer, (long long)list->heads[i].head);
    *out = text;
    return status;
}

void hl_head_list_free(hl_head_list *list)
{
    if (list == NULL)
        return;
    hl_free(list->heads);
    hl_free(list);
}

/* ---------------------------------------------------------------------- gates */

hl_status hl_gates_new(hl_gates **out, const hl_model *model)
{
    const hl_model_info               *info  = hl_model_get_info(model);
    HL_CLOSED(hl_gates_free) hl_gates *gates = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&gates, 1));
    gates->n_layers = info->n_layers;
    gates->n_heads  = info->n_heads;
    HL_NEED(HL_ALLOC(&gates->values, (size_t)(info->n_layers * info->n_heads)));
    for (int64_t i = 0; i < info->n_layers * info->n_heads; i++)
        gates->values[i] = 1.0f;
    *out = hl_taken(&gates);
    return HL_OK;
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

/* Reads one member; the keys must be all layers or all single heads. */
static hl_status read_member(hl_gates *gates, const hl_model *model, const char *name,
                             const json_t *value, const char *where, bool layers)
{
    hl_head named;

    if (parse_head(&named, model, name, strlen(name)) != HL_OK)
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
    return HL_OK;
}

hl_status hl_gates_parse(hl_gates **out, const hl_model *model, const char *text, size_t n_bytes,
                         const char *where)
{
    HL_CLOSED(hl_gates_free) hl_gates *gates = NULL;
    HL_CLOSED(json_decref) json_t     *root  = NULL;
    const char                        *name;
    json_t                            *value;

    *out = NULL;
    HL_NEED(hl_json_parse(&root, text, n_bytes, where));
    if (!json_is_object(root))
        return hl_fail(HL_BAD_INPUT, "%s: %s, wanted an object like {\"L5H1\": 0}", where,
                       hl_json_kind(root));
    HL_NEED(hl_gates_new(&gates, model));
    for (int pass = 0; pass < 2; pass++) {
        json_object_foreach(root, name, value) {
            HL_NEED(read_member(gates, model, name, value, where, pass == 0));
        }
    }
    *out = hl_taken(&gates);
    return HL_OK;
}

static hl_status load_json(hl_gates **out, const hl_model *model, const char *path)
{
    HL_SCOPED(hl_file_unmap) hl_file file = { 0 };

    HL_NEED(hl_file_map(&file, path));
    return hl_gates_parse(out, model, (const char *)file.bytes, file.n_bytes, path);
}

/* --------------------------------------------------------------------- tensor */

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
    HL_CLOSED(hl_gates_free) hl_gates              *gates = NULL;
    HL_CLOSED(hl_safetensors_close) hl_safetensors *file  = NULL;

    HL_NEED(hl_safetensors_open(&file, path));
    HL_NEED(hl_gates_new(&gates, model));
    const hl_tensor *found = hl_safetensors_find(file, "gates");
    if (found == NULL && hl_safetensors_count(file) == 1)
        found = hl_safetensors_at(file, 0);
    HL_NEED(read_tensor(gates, model, found, path));
    *out = hl_taken(&gates);
    return HL_OK;
}

hl_status hl_gates_load(hl_gates **out, const hl_model *model, const char *path)
{
    const char *ending = strrchr(path, '.');

    *out = NULL;
    return ending != NULL && strcmp(ending, ".safetensors") == 0 ? load_tensor(out, model, path)
                                                                 : load_json(out, model, path);
}
