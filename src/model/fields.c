/* fields.c - named values, whichever file they come from.
 *
 * Both sources are converted to one small value (look_up), and all checks use that value.  So the
 * same limits hold for config.json and for GGUF metadata. */
#include "model/fields.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

#define MAX_KEY 128

typedef enum value_kind { NOTHING = 0, INTEGER, REAL, BOOLEAN, TEXT, OTHER } value_kind;

typedef struct value {
    value_kind    kind;
    int64_t       integer; /* also set for a boolean: 0 or 1 */
    double        real;    /* also set for an integer */
    const char   *text;    /* (n_text), not NUL-terminated */
    size_t        n_text;
    bool          is_list;
    size_t        n_entries;
    const json_t *json;         /* the value in config.json */
    hl_gguf_array array;        /* a list in GGUF */
    char          key[MAX_KEY]; /* the key under which it was found */
} value;

static const char *kind_name(value_kind kind)
{
    static const char *const names[] = { "missing",   "an integer", "a number with a fraction",
                                         "a boolean", "a string",   "a list or an object" };
    return names[kind];
}

/* ---------------------------------------------------------------- looking up */

static void take_json(value *out, const json_t *json)
{
    out->json = json;
    if (json == NULL || json_is_null(json)) {
        out->kind = NOTHING;
    } else if (json_is_integer(json)) {
        out->kind    = INTEGER;
        out->integer = json_integer_value(json);
        out->real    = (double)out->integer;
    } else if (json_is_real(json)) {
        out->kind = REAL;
        out->real = json_real_value(json);
    } else if (json_is_boolean(json)) {
        out->kind    = BOOLEAN;
        out->integer = json_is_true(json);
    } else if (json_is_string(json)) {
        out->kind   = TEXT;
        out->text   = json_string_value(json);
        out->n_text = json_string_length(json);
    } else {
        out->kind      = OTHER;
        out->is_list   = json_is_array(json);
        out->n_entries = json_array_size(json);
    }
}

/* Finds the first of "a|b|c" that the object has. */
static void look_up_json(value *out, const json_t *object, const char *keys)
{
    while (object != NULL && keys != NULL && *keys != '\0' && out->kind == NOTHING) {
        size_t length = strcspn(keys, "|");
        snprintf(out->key, sizeof out->key, "%.*s", (int)length, keys);
        take_json(out, json_object_get(object, out->key));
        keys += length + (keys[length] == '|');
    }
}

static void take_gguf(value *out, const hl_gguf *file)
{
    const hl_gguf_value *stored = hl_gguf_find_value(file, out->key);
    hl_bytes             text   = { 0 };
    bool                 truth  = false;

    if (stored == NULL)
        return;
    out->kind = OTHER;
    switch (stored->type) {
    case HL_GGUF_F32:
    case HL_GGUF_F64:
        if (hl_gguf_get_float(&out->real, file, out->key) == HL_OK)
            out->kind = REAL;
        break;
    case HL_GGUF_BOOL:
        if (hl_gguf_get_bool(&truth, file, out->key) == HL_OK)
            out->kind = BOOLEAN;
        out->integer = truth;
        break;
    case HL_GGUF_TEXT:
        if (hl_gguf_get_text(&text, file, out->key) == HL_OK)
            out->kind = TEXT;
        out->text   = text.data;
        out->n_text = text.n_bytes;
        break;
    case HL_GGUF_ARRAY:
        out->is_list   = hl_gguf_get_array(&out->array, file, out->key) == HL_OK;
        out->n_entries = out->array.count;
        break;
    default:
        if (hl_gguf_get_int(&out->integer, file, out->key) == HL_OK)
            out->kind = INTEGER;
        out->real = (double)out->integer;
    }
}

/* Finds the first of "a|b", each after "ARCHITECTURE.", that the metadata has. */
static void look_up_gguf(value *out, const hl_fields *fields, const char *keys)
{
    while (fields->gguf != NULL && keys != NULL && *keys != '\0' && out->kind == NOTHING) {
        size_t length = strcspn(keys, "|");
        if (keys[0] == '=')
            snprintf(out->key, sizeof out->key, "%.*s", (int)length - 1, keys + 1);
        else
            snprintf(out->key, sizeof out->key, "%s.%.*s", fields->architecture, (int)length, keys);
        take_gguf(out, fields->gguf);
        keys += length + (keys[length] == '|');
    }
}

static value look_up(const hl_fields *fields, const char *json, const char *gguf)
{
    value found = { 0 };

    look_up_json(&found, fields->object, json);
    if (found.kind == NOTHING && fields->outer != fields->object)
        look_up_json(&found, fields->outer, json);
    look_up_gguf(&found, fields, gguf);
    return found;
}

static hl_status wrong_type(const hl_fields *fields, const value *seen, const char *wanted)
{
    return hl_fail(HL_BAD_INPUT, "%s: '%s' is %s, wanted %s", fields->where, seen->key,
                   kind_name(seen->kind), wanted);
}

/* ------------------------------------------------------------------- getters */

bool hl_fields_have(const hl_fields *fields, const char *json, const char *gguf)
{
    return look_up(fields, json, gguf).kind != NOTHING;
}

hl_status hl_fields_int(int64_t *out, const hl_fields *fields, const char *json, const char *gguf,
                        int64_t low, int64_t high)
{
    value seen = look_up(fields, json, gguf);

    if (seen.kind == NOTHING)
        return HL_OK;
    if (seen.kind != INTEGER)
        return wrong_type(fields, &seen, "an integer");
    if (seen.integer < low || seen.integer > high)
        return hl_fail(HL_BAD_INPUT, "%s: '%s' is %lld, wanted %lld to %lld", fields->where,
                       seen.key, (long long)seen.integer, (long long)low, (long long)high);
    *out = seen.integer;
    return HL_OK;
}

hl_status hl_fields_double(double *out, const hl_fields *fields, const char *json, const char *gguf)
{
    value seen = look_up(fields, json, gguf);

    if (seen.kind == NOTHING)
        return HL_OK;
    if (seen.kind != INTEGER && seen.kind != REAL)
        return wrong_type(fields, &seen, "a number");
    if (!isfinite(seen.real))
        return hl_fail(HL_BAD_INPUT, "%s: '%s' is not finite", fields->where, seen.key);
    *out = seen.real;
    return HL_OK;
}

hl_status hl_fields_bool(bool *out, const hl_fields *fields, const char *json, const char *gguf)
{
    value seen = look_up(fields, json, gguf);

    if (seen.kind == NOTHING)
        return HL_OK;
    if (seen.kind != BOOLEAN)
        return wrong_type(fields, &seen, "a boolean");
    *out = seen.integer != 0;
    return HL_OK;
}

hl_status hl_fields_text(char *out, const hl_fields *fields, const char *json, const char *gguf)
{
    value seen = look_up(fields, json, gguf);

    if (seen.kind == NOTHING)
        return HL_OK;
    if (seen.kind != TEXT)
        return wrong_type(fields, &seen, "a string");
    snprintf(out, HL_MAX_FIELD_TEXT, "%.*s", (int)seen.n_text, seen.text);
    return HL_OK;
}

/* --------------------------------------------------------------------- lists */

static hl_status list_entry(int64_t *out, const hl_fields *fields, const value *list, size_t index)
{
    value entry = { 0 };

    if (fields->gguf == NULL)
        take_json(&entry, json_array_get(list->json, index));
    else if (hl_gguf_array_int(&entry.integer, &list->array, index))
        entry.kind = INTEGER;
    if (entry.kind != INTEGER && entry.kind != BOOLEAN)
        return hl_fail(HL_BAD_INPUT, "%s: '%s' [%zu] is %s, wanted an integer", fields->where,
                       list->key, index, kind_name(entry.kind));
    *out = entry.integer;
    return HL_OK;
}

hl_status hl_fields_ints(int64_t *out, bool *found, const hl_fields *fields, const char *json,
                         const char *gguf, size_t count)
{
    value seen = look_up(fields, json, gguf);

    *found = seen.is_list;
    if (seen.is_list && seen.n_entries != count)
        return hl_fail(HL_BAD_INPUT, "%s: '%s' has %zu entries, wanted %zu", fields->where,
                       seen.key, seen.n_entries, count);
    for (size_t i = 0; i < seen.n_entries; i++)
        HL_NEED(list_entry(&out[i], fields, &seen, i));
    return HL_OK;
}

hl_status hl_fields_doubles(double *out, bool *found, const hl_fields *fields, const char *json,
                            const char *gguf, size_t count)
{
    value seen = look_up(fields, json, gguf);

    *found = seen.is_list;
    if (seen.is_list && seen.n_entries != count)
        return hl_fail(HL_BAD_INPUT, "%s: '%s' has %zu entries, wanted %zu", fields->where,
                       seen.key, seen.n_entries, count);
    for (size_t i = 0; i < seen.n_entries; i++) {
        const json_t *entry = json_array_get(seen.json, i);
        bool is_number      = fields->gguf != NULL ? hl_gguf_array_float(&out[i], &seen.array, i)
                                                   : json_is_number(entry);

        if (fields->gguf == NULL && is_number)
            out[i] = json_number_value(entry);
        if (!is_number || isnan(out[i]))
            return hl_fail(HL_BAD_INPUT, "%s: '%s' [%zu] is not a number", fields->where, seen.key,
                           i);
    }
    return HL_OK;
}

/* Like hl_fields_int; for a list, the largest number. */
static hl_status read_count(int64_t *out, const hl_fields *fields, const char *json,
                            const char *gguf, int64_t low, int64_t high)
{
    value   seen    = look_up(fields, json, gguf);
    int64_t largest = low;

    if (!seen.is_list)
        return hl_fields_int(out, fields, json, gguf, low, high);
    for (size_t i = 0; i < seen.n_entries; i++) {
        int64_t entry = 0;
        HL_NEED(list_entry(&entry, fields, &seen, i));
        if (entry < 0 || entry > high)
            return hl_fail(HL_BAD_INPUT, "%s: '%s' [%zu] is %lld, wanted 0 to %lld", fields->where,
                           seen.key, i, (long long)entry, (long long)high);
        largest = entry > largest ? entry : largest;
    }
    *out = largest;
    return HL_OK;
}

/* -------------------------------------------------------------------- tables */

static const struct {
    const char   *name;
    hl_activation activation;
} activation_names[] = {
    { "gelu", HL_ACTIVATION_GELU },
    { "gelu_python", HL_ACTIVATION_GELU },
    { "gelu_new", HL_ACTIVATION_GELU_TANH },
    { "gelu_tanh", HL_ACTIVATION_GELU_TANH },
    { "gelu_pytorch_tanh", HL_ACTIVATION_GELU_TANH },
    { "gelu_fast", HL_ACTIVATION_GELU_TANH }, /* another name for the same formula */
    { "quick_gelu", HL_ACTIVATION_GELU_QUICK },
    { "silu", HL_ACTIVATION_SILU },
    { "swish", HL_ACTIVATION_SILU },
    { "relu", HL_ACTIVATION_RELU },
    { "relu2", HL_ACTIVATION_RELU_SQUARED },
    { "xielu", HL_ACTIVATION_XIELU },
};

const char *hl_activation_name(hl_activation activation)
{
    static const char *const names[] = {
        [HL_ACTIVATION_GELU]           = "gelu",
        [HL_ACTIVATION_GELU_TANH]      = "gelu_tanh",
        [HL_ACTIVATION_GELU_QUICK]     = "quick_gelu",
        [HL_ACTIVATION_SILU]           = "silu",
        [HL_ACTIVATION_RELU]           = "relu",
        [HL_ACTIVATION_RELU_SQUARED]   = "relu2",
        [HL_ACTIVATION_SWIGLU_CLAMPED] = "clamped swiglu",
        [HL_ACTIVATION_XIELU]          = "xielu",
        [HL_ACTIVATION_SIGMOID]        = "sigmoid",
        [HL_ACTIVATION_SILU_SCALED]    = "scaled silu",
    };
    return names[activation];
}

static hl_status read_activation(hl_activation *out, const hl_fields *fields, const hl_field *field)
{
    char      name[HL_MAX_FIELD_TEXT] = "";
    hl_status status                  = hl_fields_text(name, fields, field->json, field->gguf);

    if (status != HL_OK || name[0] == '\0')
        return status;
    for (size_t i = 0; i < sizeof activation_names / sizeof *activation_names; i++) {
        if (strcmp(name, activation_names[i].name) == 0) {
            *out = activation_names[i].activation;
            return HL_OK;
        }
    }
    return hl_fail(HL_UNSUPPORTED, "%s: the activation '%s' is not one that headlight knows",
                   fields->where, name);
}

/* Reads x and stores 1/x or 1/sqrt(x); x must be > 0. */
static hl_status read_reciprocal(double *out, const hl_fields *fields, const hl_field *field)
{
    double    x      = 0.0;
    hl_status status = hl_fields_double(&x, fields, field->json, field->gguf);

    if (status != HL_OK || !hl_fields_have(fields, field->json, field->gguf))
        return status;
    if (!(x > 0.0))
        return hl_fail(HL_BAD_INPUT, "%s: '%s' is %g, wanted more than 0", fields->where,
                       fields->object != NULL ? field->json : field->gguf, x);
    *out = field->kind == HL_FIELD_RSQRT ? 1.0 / sqrt(x) : 1.0 / x;
    return HL_OK;
}

static hl_status read_biases(uint32_t *out, const hl_fields *fields, const hl_field *field)
{
    uint32_t  bits   = (uint32_t)field->low;
    bool      set    = (*out & bits) != 0;
    hl_status status = hl_fields_bool(&set, fields, field->json, field->gguf);

    *out = set ? *out | bits : *out & ~bits;
    return status;
}

static hl_status read_not(bool *out, const hl_fields *fields, const hl_field *field)
{
    bool      inverse = !*out;
    hl_status status  = hl_fields_bool(&inverse, fields, field->json, field->gguf);

    *out = !inverse;
    return status;
}

/* Is the key there, with null as its value? */
static bool is_null(const hl_fields *fields, const hl_field *field)
{
    return json_is_null(json_object_get(fields->object, field->json));
}

/* The number of entries of a list, or of letters of a text. */
static hl_status read_length(int64_t *out, const hl_fields *fields, const hl_field *field)
{
    value   seen   = look_up(fields, field->json, field->gguf);
    int64_t length = (int64_t)(seen.is_list ? seen.n_entries : seen.n_text);

    if (seen.kind == NOTHING)
        return HL_OK;
    if (!seen.is_list && seen.kind != TEXT)
        return wrong_type(fields, &seen, "a list or a string");
    if (length < field->low || length > field->high)
        return hl_fail(HL_BAD_INPUT, "%s: '%s' has %lld entries, wanted %lld to %lld",
                       fields->where, seen.key, (long long)length, (long long)field->low,
                       (long long)field->high);
    *out = length;
    return HL_OK;
}

static hl_status read_field(hl_config *config, const hl_fields *fields, const hl_field *field)
{
    void *member = (char *)config + field->offset;

    switch (field->kind) {
    case HL_FIELD_INT:
        return hl_fields_int(member, fields, field->json, field->gguf, field->low, field->high);
    case HL_FIELD_INT_OR_NULL:
        if (is_null(fields, field))
            *(int64_t *)member = 0;
        return hl_fields_int(member, fields, field->json, field->gguf, field->low, field->high);
    case HL_FIELD_DOUBLE_OR_NULL:
        if (is_null(fields, field))
            *(double *)member = 0.0;
        return hl_fields_double(member, fields, field->json, field->gguf);
    case HL_FIELD_COUNT:
        return read_count(member, fields, field->json, field->gguf, field->low, field->high);
    case HL_FIELD_DOUBLE:
        return hl_fields_double(member, fields, field->json, field->gguf);
    case HL_FIELD_BOOL:
        return hl_fields_bool(member, fields, field->json, field->gguf);
    case HL_FIELD_NOT:
        return read_not(member, fields, field);
    case HL_FIELD_INVERSE:
    case HL_FIELD_RSQRT:
        return read_reciprocal(member, fields, field);
    case HL_FIELD_ACTIVATION:
        return read_activation(member, fields, field);
    case HL_FIELD_LENGTH:
        return read_length(member, fields, field);
    case HL_FIELD_BIASES:
        return read_biases(member, fields, field);
    }
    return hl_fail(HL_INTERNAL, "a field of kind %d", (int)field->kind);
}

hl_status hl_fields_read(hl_config *config, const hl_fields *fields, const hl_field *table)
{
    for (; table != NULL && (table->json != NULL || table->gguf != NULL); table++) {
        HL_NEED(read_field(config, fields, table));
    }
    return HL_OK;
}

/* -------------------------------------------------------------------------- what a GGUF file has */

bool hl_fields_have_tensor(const hl_fields *fields, const char *name)
{
    return fields->tensors != NULL && hl_tensors_find(fields->tensors, name) != NULL;
}

int64_t hl_fields_tensor_size(const hl_fields *fields, const char *name, int dim)
{
    const hl_tensor *tensor =
        fields->tensors != NULL ? hl_tensors_find(fields->tensors, name) : NULL;
    return tensor != NULL && dim < tensor->n_dims ? tensor->shape[dim] : 0;
}
