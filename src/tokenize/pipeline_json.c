/* pipeline_json.c - normalizers, pre-tokenizers, decoders and post-processors from JSON.
 *
 * The first three are written alike: an object whose "type" names the step, or a
 * "Sequence" that holds others.  Sequences are flattened.  A step is a row of a table: what it is
 * where the file says nothing more, and which members of the object go where in it.  The
 * post-processor, which is different, comes last. */
#include "tokenize/tokenizer_json.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "tokenize/unicode.h"

#define MAX_NESTING 16
#define MARK        "\xe2\x96\x81" /* ▁ */

/* Adds the steps of one object, whose type is not Sequence, to the pipeline `target`. */
typedef hl_status (*step_adder)(void *target, const char *type, const json_t *value,
                                const char *where);

/* Reads a step or a sequence of them, found under `list_key`. */
static hl_status read_steps(void *target, step_adder add, const char *list_key, const json_t *value,
                            const char *where, int nesting)
{
    if (value == NULL || json_is_null(value))
        return HL_OK;
    const char *type = json_string_value(json_object_get(value, "type"));
    if (type == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: not an object with a \"type\"", where);
    if (nesting > MAX_NESTING)
        return hl_fail(HL_BAD_INPUT, "%s: sequences nested deeper than %d", where, MAX_NESTING);
    if (strcmp(type, "Sequence") != 0)
        return add(target, type, value, where);
    const json_t *list = json_object_get(value, list_key);
    if (!json_is_array(list))
        return hl_fail(HL_BAD_INPUT, "%s: a Sequence without '%s'", where, list_key);
    for (size_t i = 0; i < json_array_size(list); i++)
        HL_NEED(read_steps(target, add, list_key, json_array_get(list, i), where, nesting + 1));
    return HL_OK;
}

static hl_status unknown_type(const char *type, const char *where)
{
    return hl_fail(HL_UNSUPPORTED, "%s: the type '%s' is not known", where, type);
}

/* ------------------------------------------------------------------- fields */

typedef enum field_kind {
    NO_FIELD = 0,
    FLAG,        /* bool */
    SIZE,        /* size_t */
    TEXT,        /* hl_bytes: a copy */
    PATTERN,     /* hl_pattern *, or hl_bytes at `literal_at` */
    EXPRESSION,  /* hl_pattern * made from `standard`, unless the member is false */
    BEHAVIOR,    /* hl_split_behavior by name */
    SINGLE,      /* hl_split_behavior: isolated or contiguous, by a flag */
    PREPEND,     /* hl_prepend, from "prepend_scheme" and "add_prefix_space" */
    KEEPS_FIRST, /* bool: nothing is prepended, from the same members as PREPEND */
} field_kind;

/* A member of a step's object, and the place in the step that its value goes to. */
typedef struct field {
    field_kind  kind;
    const char *key;
    size_t      at;
    const char *standard; /* TEXT: value if the member is missing or null; NULL: the member is
                           * required */
    size_t      literal_at;
} field;

#define MAX_FIELDS 3

/* object[key] as a copy, `standard` if it is missing or null. */
static hl_status copy_text(hl_bytes *out, const json_t *object, const char *key,
                           const char *standard, const char *where)
{
    const char *text = standard;

    HL_NEED(hl_json_get_string(&text, object, key, where));
    if (text == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: '%s' is missing", where, key);
    return hl_bytes_copy(out, text, strlen(text));
}

static hl_status compile(hl_pattern **out, const char *expression, const char *where)
{
    return hl_fail_within(hl_pattern_new(out, expression, strlen(expression)), "%s", where);
}

/* Reads {"String": s} or {"Regex": r} under "pattern"; a plain string counts as String. */
static hl_status read_pattern(hl_pattern **pattern, hl_bytes *literal, const json_t *object,
                              const char *where)
{
    const json_t *value = json_object_get(object, "pattern");
    const char   *regex = json_string_value(json_object_get(value, "Regex"));

    if (regex != NULL)
        return compile(pattern, regex, where);
    if (json_is_string(value))
        return copy_text(literal, object, "pattern", NULL, where);
    if (!json_is_object(value))
        return hl_fail(HL_BAD_INPUT, "%s: 'pattern' is missing or neither String nor Regex", where);
    return copy_text(literal, value, "String", NULL, where);
}

static hl_status read_size(size_t *out, const json_t *object, const char *key, const char *where)
{
    int64_t number = (int64_t)*out;

    HL_NEED(hl_json_get_int(&number, object, key, where));
    if (number < 0)
        return hl_fail(HL_BAD_INPUT, "%s: '%s' is %lld", where, key, (long long)number);
    *out = (size_t)number;
    return HL_OK;
}

static hl_status read_behavior(hl_split_behavior *out, const json_t *value, const char *where)
{
    static const char *const names[] = { "Removed", "Isolated", "MergedWithPrevious",
                                         "MergedWithNext", "Contiguous" };
    const char              *name    = names[*out];

    HL_NEED(hl_json_get_string(&name, value, "behavior", where));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) == 0) {
            *out = (hl_split_behavior)i;
            return HL_OK;
        }
    }
    return hl_fail(HL_BAD_INPUT, "%s: no split behavior '%s'", where, name);
}

static hl_status read_prepend_scheme(hl_prepend *out, const json_t *value, const char *where)
{
    const char *scheme = "always";
    bool        prefix = true;

    HL_NEED(hl_json_get_string(&scheme, value, "prepend_scheme", where));
    HL_NEED(hl_json_get_bool(&prefix, value, "add_prefix_space", where));
    if (!prefix || strcmp(scheme, "never") == 0)
        *out = HL_PREPEND_NEVER;
    else if (strcmp(scheme, "first") == 0)
        *out = HL_PREPEND_FIRST;
    else if (strcmp(scheme, "always") == 0)
        *out = HL_PREPEND_ALWAYS;
    else
        return hl_fail(HL_BAD_INPUT, "%s: no prepend_scheme '%s'", where, scheme);
    return HL_OK;
}

static hl_status read_field(char *step, const field *f, const json_t *value, const char *where)
{
    void      *out     = step + f->at;
    bool       flag    = f->kind == EXPRESSION;
    hl_prepend prepend = HL_PREPEND_ALWAYS;

    switch (f->kind) {
    case FLAG:
        return hl_json_get_bool(out, value, f->key, where);
    case SIZE:
        return read_size(out, value, f->key, where);
    case TEXT:
        return copy_text(out, value, f->key, f->standard, where);
    case PATTERN:
        return read_pattern(out, (hl_bytes *)(void *)(step + f->literal_at), value, where);
    case EXPRESSION:
        if (f->key != NULL)
            HL_NEED(hl_json_get_bool(&flag, value, f->key, where));
        return flag ? compile(out, f->standard, where) : HL_OK;
    case BEHAVIOR:
        return read_behavior(out, value, where);
    case SINGLE:
        HL_NEED(hl_json_get_bool(&flag, value, f->key, where));
        *(hl_split_behavior *)out = flag ? HL_SPLIT_ISOLATED : HL_SPLIT_CONTIGUOUS;
        return HL_OK;
    case PREPEND:
        return read_prepend_scheme(out, value, where);
    case KEEPS_FIRST:
        HL_NEED(read_prepend_scheme(&prepend, value, where));
        *(bool *)out = prepend == HL_PREPEND_NEVER;
        return HL_OK;
    case NO_FIELD:
        break;
    }
    return HL_OK;
}

static hl_status read_fields(void *step, const field fields[MAX_FIELDS], const json_t *value,
                             const char *where)
{
    for (int i = 0; i < MAX_FIELDS; i++)
        HL_NEED(read_field(step, &fields[i], value, where));
    return HL_OK;
}

/* -------------------------------------------------------------- normalizers */

static hl_status add_precompiled(hl_normalizer *out, const json_t *value, const char *where)
{
    hl_normalize_step *step = NULL;
    const char        *text = json_string_value(json_object_get(value, "precompiled_charsmap"));

    if (text == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: Precompiled without 'precompiled_charsmap'", where);
    if (text[0] == '\0')
        return HL_OK; /* no rules */
    HL_NEED(hl_normalizer_add(&step, out, (hl_normalize_step){ .kind = HL_NORMALIZE_CHARSMAP }));
    return hl_fail_within(hl_charsmap_from_base64(&step->charsmap, text), "%s", where);
}

/* Adds up to five steps in a fixed order. */
static hl_status add_bert_normalizer(hl_normalizer *out, const json_t *value, const char *where)
{
    bool               clean = true, chinese = true, lower = true;
    hl_normalize_step *step = NULL;

    HL_NEED(hl_json_get_bool(&clean, value, "clean_text", where));
    HL_NEED(hl_json_get_bool(&chinese, value, "handle_chinese_chars", where));
    HL_NEED(hl_json_get_bool(&lower, value, "lowercase", where));
    bool strip = lower; /* the meaning of null */
    HL_NEED(hl_json_get_bool(&strip, value, "strip_accents", where));

    const struct {
        bool              wanted;
        hl_normalize_step step;
    } steps[] = {
        { clean, { .kind = HL_NORMALIZE_CLEAN } },
        { chinese, { .kind = HL_NORMALIZE_CHINESE } },
        { strip, { .kind = HL_NORMALIZE_FORM } },
        { strip, { .kind = HL_NORMALIZE_REMOVE, .char_class = HL_CHAR_ACCENT } },
        { lower, { .kind = HL_NORMALIZE_LOWERCASE } },
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        if (steps[i].wanted)
            HL_NEED(hl_normalizer_add(&step, out, steps[i].step));
    }
    return HL_OK;
}

static hl_status add_normalizer(void *target, const char *type, const json_t *value,
                                const char *where)
{
#define AT(member) .at = offsetof(hl_normalize_step, member)
    static const struct {
        const char       *type;
        hl_normalize_step step;
        field             fields[MAX_FIELDS];
    } forms[] = {
        { "NFC", { .kind = HL_NORMALIZE_FORM, .compose = true }, { { 0 } } },
        { "NFD", { .kind = HL_NORMALIZE_FORM }, { { 0 } } },
        { "NFKC", { .kind = HL_NORMALIZE_FORM, .compose = true, .compatible = true }, { { 0 } } },
        { "NFKD", { .kind = HL_NORMALIZE_FORM, .compatible = true }, { { 0 } } },
        { "Lowercase", { .kind = HL_NORMALIZE_LOWERCASE }, { { 0 } } },
        { "StripAccents", { .kind = HL_NORMALIZE_REMOVE, .char_class = HL_CHAR_MARK }, { { 0 } } },
        { "Nmt", { .kind = HL_NORMALIZE_NMT }, { { 0 } } },
        { "ByteLevel", { .kind = HL_NORMALIZE_BYTE_LEVEL }, { { 0 } } },
        { "Strip",
          { .kind = HL_NORMALIZE_STRIP, .left = true, .right = true },
          { { FLAG, "strip_left", AT(left) }, { FLAG, "strip_right", AT(right) } } },
        { "Prepend", { .kind = HL_NORMALIZE_PREPEND }, { { TEXT, "prepend", AT(content) } } },
        { "Replace",
          { .kind = HL_NORMALIZE_REPLACE },
          { { PATTERN, "pattern", AT(pattern), .literal_at = offsetof(hl_normalize_step, needle) },
            { TEXT, "content", AT(content) } } },
    };
#undef AT
    hl_normalize_step *step = NULL;

    if (strcmp(type, "BertNormalizer") == 0)
        return add_bert_normalizer(target, value, where);
    if (strcmp(type, "Precompiled") == 0)
        return add_precompiled(target, value, where);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (strcmp(forms[i].type, type) != 0)
            continue;
        HL_NEED(hl_normalizer_add(&step, target, forms[i].step));
        return read_fields(step, forms[i].fields, value, where);
    }
    return unknown_type(type, where);
}

hl_status hl_normalizer_from_json(hl_normalizer *out, const json_t *value, const char *where)
{
    return read_steps(out, add_normalizer, "normalizers", value, where, 0);
}

/* ----------------------------------------------------------- pre-tokenizers */

/* A type with two rows adds two steps. */
static hl_status add_pretokenizer(void *target, const char *type, const json_t *value,
                                  const char *where)
{
/* Characters of words as the regex crate defines them; the expression then splits off all other
 * characters except white space. */
#define WORD       "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}"
#define WORDS      "[" WORD "]+|[^" WORD "\\s]+"
#define AT(member) .at = offsetof(hl_split_step, member)
    static const struct {
        const char   *type;
        hl_split_step step;
        field         fields[MAX_FIELDS];
    } forms[] = {
        { "Split",
          { .kind = HL_SPLIT_PATTERN, .behavior = HL_SPLIT_ISOLATED },
          { { BEHAVIOR, "behavior", AT(behavior) },
            { FLAG, "invert", AT(invert) },
            { PATTERN, "pattern", AT(pattern), .literal_at = offsetof(hl_split_step, literal) } } },
        { "ByteLevel",
          { .kind = HL_SPLIT_BYTE_LEVEL, .behavior = HL_SPLIT_ISOLATED, .prefix_space = true },
          { { FLAG, "add_prefix_space", AT(prefix_space) },
            { EXPRESSION, "use_regex", AT(pattern), HL_GPT2_PATTERN } } },
        { "Metaspace",
          { .kind = HL_SPLIT_METASPACE, .split = true },
          { { PREPEND, "prepend_scheme", AT(prepend) },
            { FLAG, "split", AT(split) },
            { TEXT, "replacement", AT(literal), MARK } } },
        { "Digits",
          { .kind = HL_SPLIT_CLASS, .char_class = HL_CHAR_NUMERIC },
          { { SINGLE, "individual_digits", AT(behavior) } } },
        { "Punctuation",
          { .kind       = HL_SPLIT_CLASS,
            .behavior   = HL_SPLIT_ISOLATED,
            .char_class = HL_CHAR_PUNCTUATION },
          { { BEHAVIOR, "behavior", AT(behavior) } } },
        { "Whitespace",
          { .kind = HL_SPLIT_PATTERN, .behavior = HL_SPLIT_REMOVED, .invert = true },
          { { EXPRESSION, NULL, AT(pattern), WORDS } } },
        { "WhitespaceSplit",
          { .kind       = HL_SPLIT_CLASS,
            .behavior   = HL_SPLIT_REMOVED,
            .char_class = HL_CHAR_WHITESPACE },
          { { 0 } } },
        { "BertPreTokenizer",
          { .kind       = HL_SPLIT_CLASS,
            .behavior   = HL_SPLIT_REMOVED,
            .char_class = HL_CHAR_WHITESPACE },
          { { 0 } } },
        { "BertPreTokenizer",
          { .kind       = HL_SPLIT_CLASS,
            .behavior   = HL_SPLIT_ISOLATED,
            .char_class = HL_CHAR_PUNCTUATION },
          { { 0 } } },
        { "CharDelimiterSplit",
          { .kind = HL_SPLIT_LITERAL, .behavior = HL_SPLIT_REMOVED },
          { { TEXT, "delimiter", AT(literal) } } },
        { "FixedLength",
          { .kind = HL_SPLIT_LENGTH, .behavior = HL_SPLIT_ISOLATED, .length = 5 },
          { { SIZE, "length", AT(length) } } },
        { "UnicodeScripts", { .kind = HL_SPLIT_SCRIPT, .behavior = HL_SPLIT_ISOLATED }, { { 0 } } },
    };
#undef AT
#undef WORDS
#undef WORD
    hl_split_step *step  = NULL;
    bool           known = false;

    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (strcmp(forms[i].type, type) != 0)
            continue;
        known = true;
        HL_NEED(hl_pretokenizer_add(&step, target, forms[i].step));
        HL_NEED(read_fields(step, forms[i].fields, value, where));
        if (step->kind == HL_SPLIT_PATTERN && step->pattern == NULL)
            step->kind = HL_SPLIT_LITERAL;
        if (step->kind == HL_SPLIT_LENGTH && step->length == 0)
            return hl_fail(HL_BAD_INPUT, "%s: FixedLength of 0", where);
        if (step->kind == HL_SPLIT_SCRIPT)
            HL_NEED(hl_script_pattern_new(&step->pattern));
    }
    return known ? HL_OK : unknown_type(type, where);
}

hl_status hl_pretokenizer_from_json(hl_pretokenizer *out, const json_t *value, const char *where)
{
    return read_steps(out, add_pretokenizer, "pretokenizers", value, where, 0);
}

/* ----------------------------------------------------------------- decoders */

static hl_status add_decoder(void *target, const char *type, const json_t *value, const char *where)
{
#define AT(member) .at = offsetof(hl_decode_step, member)
    static const struct {
        const char    *type;
        hl_decode_step step;
        field          fields[MAX_FIELDS];
    } forms[] = {
        { "ByteLevel", { .kind = HL_DECODE_BYTE_LEVEL }, { { 0 } } },
        { "ByteFallback", { .kind = HL_DECODE_BYTE_FALLBACK }, { { 0 } } },
        { "Fuse", { .kind = HL_DECODE_FUSE }, { { 0 } } },
        { "Metaspace",
          { .kind = HL_DECODE_METASPACE },
          { { KEEPS_FIRST, "prepend_scheme", AT(keep_first) },
            { TEXT, "replacement", AT(content), MARK } } },
        { "WordPiece",
          { .kind = HL_DECODE_WORDPIECE, .cleanup = true },
          { { FLAG, "cleanup", AT(cleanup) }, { TEXT, "prefix", AT(content), "##" } } },
        { "Strip",
          { .kind = HL_DECODE_STRIP },
          { { SIZE, "start", AT(start) },
            { SIZE, "stop", AT(stop) },
            { TEXT, "content", AT(content), " " } } },
        { "Replace",
          { .kind = HL_DECODE_REPLACE },
          { { PATTERN, "pattern", AT(pattern), .literal_at = offsetof(hl_decode_step, content) },
            { TEXT, "content", AT(other) } } },
        { "BPEDecoder", { .kind = HL_DECODE_SUFFIX }, { { TEXT, "suffix", AT(content), "</w>" } } },
        { "CTC",
          { .kind = HL_DECODE_CTC, .cleanup = true },
          { { FLAG, "cleanup", AT(cleanup) },
            { TEXT, "pad_token", AT(content), "<pad>" },
            { TEXT, "word_delimiter_token", AT(other), "|" } } },
    };
#undef AT
    hl_decode_step *step = NULL;

    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (strcmp(forms[i].type, type) != 0)
            continue;
        HL_NEED(hl_decoder_add(&step, target, forms[i].step));
        return read_fields(step, forms[i].fields, value, where);
    }
    return unknown_type(type, where);
}

hl_status hl_decoder_from_json(hl_decoder *out, const json_t *value, const char *where)
{
    out->present = value != NULL && !json_is_null(value);
    return read_steps(out, add_decoder, "decoders", value, where, 0);
}

/* ----------------------------------------------------------- post-processors
 *
 * Only texts by themselves are encoded, never pairs, so what matters of a template is which
 * special tokens stand before and after "$A":
 *
 *     "single": [ {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
 *                 {"Sequence":     {"id": "A",     "type_id": 0}}, ... ],
 *     "special_tokens": { "[CLS]": {"id": "[CLS]", "ids": [2], ... } } */

/* Reads an element of an array as an id. */
static hl_status get_id(int32_t *out, const json_t *array, size_t index, const char *where)
{
    const json_t *value = json_array_get(array, index);
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) >= HL_MAX_VOCAB)
        return hl_fail(HL_BAD_INPUT, "%s: not a token id", where);
    *out = (int32_t)json_integer_value(value);
    return HL_OK;
}

/* Reads a template from left to right; everything after $A is stored as `after`. */
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
        HL_NEED(hl_postprocessor_add(reader->out, reader->seen_text, id));
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

static hl_status read_trim(hl_postprocessor *out, const json_t *value, const char *where)
{
    bool trim = true, prefix = true;

    HL_NEED(hl_json_get_bool(&trim, value, "trim_offsets", where));
    HL_NEED(hl_json_get_bool(&prefix, value, "add_prefix_space", where));
    if (trim) {
        out->trim         = true;
        out->prefix_space = prefix;
    }
    return HL_OK;
}

/* "cls": ["[CLS]", 101], "sep": ["[SEP]", 102] */
static hl_status read_cls_sep(hl_postprocessor *out, const json_t *value, const char *where)
{
    int32_t cls = 0, sep = 0;

    HL_NEED(get_id(&cls, json_object_get(value, "cls"), 1, where));
    HL_NEED(get_id(&sep, json_object_get(value, "sep"), 1, where));
    HL_NEED(hl_postprocessor_add(out, false, cls));
    return hl_postprocessor_add(out, true, sep);
}

static hl_status read_postprocessor(hl_postprocessor *out, const json_t *value, const char *where,
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
            HL_NEED(read_postprocessor(out, json_array_get(list, i), where, nesting + 1));
    } else {
        return hl_fail(HL_UNSUPPORTED, "%s: the type '%s' is not known", where, type);
    }
    return HL_OK;
}

hl_status hl_postprocessor_from_json(hl_postprocessor *out, const json_t *value, const char *where)
{
    return read_postprocessor(out, value, where, 0);
}
