/* postprocess_json.c - the post-processor of a tokenizer.json.
 *
 * Only texts by themselves are encoded, never pairs, so what matters of a
 * template is which special tokens stand before and after "$A":
 *
 *     "single": [ {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
 *                 {"Sequence":     {"id": "A",     "type_id": 0}}, ... ],
 *     "special_tokens": { "[CLS]": {"id": "[CLS]", "ids": [2], ... } } */
#include <string.h>

#include "base/json.h"
#include "base/status.h"
#include "tokenize/pipeline_json.h"

#define MAX_NESTING 16

/* An element of an array that must be an id. */
static hl_status get_id(int32_t *out, const json_t *array, size_t index, const char *where)
{
    const json_t *value = json_array_get(array, index);
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) >= HL_MAX_VOCAB)
        return hl_fail(HL_BAD_INPUT, "%s: not a token id", where);
    *out = (int32_t)json_integer_value(value);
    return HL_OK;
}

/* -------------------------------------------------------- TemplateProcessing */

/* A template is read from left to right; everything behind $A is `after`. */
typedef struct template_reader {
    hl_postprocessor *out;
    const json_t     *special_tokens;
    bool              seen_text;
    const char       *where;
} template_reader;

static hl_status add_special(template_reader *reader, const char *name)
{
    const json_t *ids = json_object_get(json_object_get(reader->special_tokens, name), "ids");
    int32_t       id  = 0;

    if (!json_is_array(ids))
        return hl_fail(HL_BAD_INPUT, "%s: the template's '%s' is not among its special_tokens",
                       reader->where, name);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        HL_NEED(get_id(&id, ids, i, reader->where));
        if (reader->seen_text)
            HL_NEED(hl_postprocessor_add_after(reader->out, id));
        else
            HL_NEED(hl_postprocessor_add_before(reader->out, id));
    }
    return HL_OK;
}

/* The short form: "$A", "$A:0", "$0", "[CLS]", "[CLS]:0". */
static hl_status read_short_piece(template_reader *reader, const char *text)
{
    char        name[256];
    const char *colon  = strrchr(text, ':');
    bool        typed  = colon != NULL && colon[1] >= '0' && colon[1] <= '9';
    size_t      length = typed ? (size_t)(colon - text) : strlen(text);

    if (text[0] == '$') {
        reader->seen_text = true;
        return HL_OK;
    }
    if (length >= sizeof name)
        return hl_fail(HL_BAD_INPUT, "%s: a template piece of %zu bytes", reader->where, length);
    memcpy(name, text, length);
    name[length] = '\0';
    return add_special(reader, name);
}

static hl_status read_piece(template_reader *reader, const json_t *piece)
{
    const json_t *special = json_object_get(piece, "SpecialToken");
    const char   *name    = json_string_value(json_object_get(special, "id"));

    if (json_is_string(piece))
        return read_short_piece(reader, json_string_value(piece));
    if (name != NULL)
        return add_special(reader, name);
    if (json_object_get(piece, "Sequence") == NULL)
        return hl_fail(HL_BAD_INPUT,
                       "%s: a template piece that is neither SpecialToken nor Sequence",
                       reader->where);
    reader->seen_text = true;
    return HL_OK;
}

static hl_status read_template(hl_postprocessor *out, const json_t *value, const char *where)
{
    const json_t   *pieces = json_object_get(value, "single");
    template_reader reader = { .out            = out,
                               .special_tokens = json_object_get(value, "special_tokens"),
                               .where          = where };

    if (!json_is_array(pieces))
        return hl_fail(HL_BAD_INPUT, "%s: TemplateProcessing without an array 'single'", where);
    for (size_t i = 0; i < json_array_size(pieces); i++)
        HL_NEED(read_piece(&reader, json_array_get(pieces, i)));
    return HL_OK;
}

/* --------------------------------------------------------------- the others */

static hl_status read_trim(hl_postprocessor *out, const json_t *value, const char *where)
{
    bool      trim   = true;
    bool      prefix = true;
    hl_status status = hl_json_get_bool(&trim, value, "trim_offsets", where);

    if (status == HL_OK)
        status = hl_json_get_bool(&prefix, value, "add_prefix_space", where);
    if (status == HL_OK && trim) {
        out->trim         = true;
        out->prefix_space = prefix;
    }
    return status;
}

/* "cls": ["[CLS]", 101], "sep": ["[SEP]", 102] */
static hl_status read_cls_sep(hl_postprocessor *out, const json_t *value, const char *where)
{
    int32_t cls = 0;
    int32_t sep = 0;

    HL_NEED(get_id(&cls, json_object_get(value, "cls"), 1, where));
    HL_NEED(get_id(&sep, json_object_get(value, "sep"), 1, where));
    HL_NEED(hl_postprocessor_add_before(out, cls));
    return hl_postprocessor_add_after(out, sep);
}

static hl_status read_any(hl_postprocessor *out, const json_t *value, const char *where,
                          int nesting)
{
    const char *type = json_string_value(json_object_get(value, "type"));

    if (value == NULL || json_is_null(value))
        return HL_OK;
    if (type == NULL || nesting > MAX_NESTING)
        return hl_fail(HL_BAD_INPUT, "%s: %s", where,
                       type == NULL ? "not an object with a \"type\"" : "nested too deep");
    if (strcmp(type, "TemplateProcessing") == 0) {
        HL_NEED(read_template(out, value, where));
    } else if (strcmp(type, "ByteLevel") == 0) {
        HL_NEED(read_trim(out, value, where));
    } else if (strcmp(type, "BertProcessing") == 0) {
        HL_NEED(read_cls_sep(out, value, where));
    } else if (strcmp(type, "RobertaProcessing") == 0) {
        HL_NEED(read_trim(out, value, where));
        HL_NEED(read_cls_sep(out, value, where));
    } else if (strcmp(type, "Sequence") == 0) {
        const json_t *list = json_object_get(value, "processors");
        for (size_t i = 0; i < json_array_size(list); i++)
            HL_NEED(read_any(out, json_array_get(list, i), where, nesting + 1));
    } else {
        HL_NEED(hl_fail(HL_UNSUPPORTED, "%s: the type '%s' is not known", where, type));
    }
    return HL_OK;
}

hl_status hl_postprocessor_from_json(hl_postprocessor *out, const json_t *value, const char *where)
{
    return read_any(out, value, where, 0);
}
