/* pipeline_json.c - normalizers, pre-tokenizers, decoders and post-processors from JSON.
 *
 * The first three are written alike: an object whose "type" names the step, or a
 * "Sequence" that holds others.  Sequences are flattened.  The post-processor, which
 * is different, comes last. */
#include "tokenize/pipeline_json.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "tokenize/unicode.h"

#define MAX_NESTING 16

/* What a reader of one step gets; `target` is the pipeline that it extends. */
typedef struct step_reader {
    const char *type;
    hl_status (*read)(void *target, const json_t *value, const char *where);
} step_reader;

/* Reads a step or a sequence of them, found under `list_key`. */
static hl_status read_steps(void *target, const step_reader *readers, const char *list_key,
                            const json_t *value, const char *where, int nesting)
{
    if (value == NULL || json_is_null(value))
        return HL_OK;
    const char *type = json_string_value(json_object_get(value, "type"));
    if (type == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: not an object with a \"type\"", where);
    if (nesting > MAX_NESTING)
        return hl_fail(HL_BAD_INPUT, "%s: sequences nested deeper than %d", where, MAX_NESTING);
    if (strcmp(type, "Sequence") == 0) {
        const json_t *list = json_object_get(value, list_key);
        if (!json_is_array(list))
            return hl_fail(HL_BAD_INPUT, "%s: a Sequence without '%s'", where, list_key);
        for (size_t i = 0; i < json_array_size(list); i++) {
            hl_status status =
                read_steps(target, readers, list_key, json_array_get(list, i), where, nesting + 1);
            if (status != HL_OK)
                return status;
        }
        return HL_OK;
    }
    for (const step_reader *reader = readers; reader->type != NULL; reader++) {
        if (strcmp(reader->type, type) == 0)
            return reader->read(target, value, where);
    }
    return hl_fail(HL_UNSUPPORTED, "%s: the type '%s' is not known", where, type);
}

/* ------------------------------------------------------------------- fields */

/* object[key] as a copy, `standard` if it is missing or null. */
static hl_status copy_text(hl_bytes *out, const json_t *object, const char *key,
                           const char *standard, const char *where)
{
    const char *text   = standard;
    char       *copy   = NULL;
    hl_status   status = hl_json_get_string(&text, object, key, where);

    if (status == HL_OK && text == NULL)
        status = hl_fail(HL_BAD_INPUT, "%s: '%s' is missing", where, key);
    if (status == HL_OK)
        status = hl_strdup(&copy, text);
    if (status == HL_OK)
        *out = (hl_bytes){ copy, strlen(copy) };
    return status;
}

/* {"String": s} or {"Regex": r}, under "pattern"; a plain string counts as String. */
static hl_status read_pattern(hl_pattern **pattern, hl_bytes *literal, const json_t *object,
                              const char *where)
{
    const json_t *value = json_object_get(object, "pattern");
    const char   *regex = json_string_value(json_object_get(value, "Regex"));

    if (regex != NULL) {
        hl_status status = hl_pattern_new(pattern, regex, strlen(regex));
        return status == HL_OK ? HL_OK : hl_fail_within(status, "%s", where);
    }
    if (json_is_string(value))
        return copy_text(literal, object, "pattern", NULL, where);
    if (!json_is_object(value))
        return hl_fail(HL_BAD_INPUT, "%s: 'pattern' is missing or neither String nor Regex", where);
    return copy_text(literal, value, "String", NULL, where);
}

static hl_status read_size(size_t *out, const json_t *object, const char *key, const char *where)
{
    int64_t   number = (int64_t)*out;
    hl_status status = hl_json_get_int(&number, object, key, where);
    if (status != HL_OK)
        return status;
    if (number < 0)
        return hl_fail(HL_BAD_INPUT, "%s: '%s' is %lld", where, key, (long long)number);
    *out = (size_t)number;
    return HL_OK;
}

/* -------------------------------------------------------------- normalizers */

static hl_status add_form(hl_normalizer *out, bool compose, bool compatible)
{
    return hl_normalizer_add(out, (hl_normalize_step){ .kind       = HL_NORMALIZE_FORM,
                                                       .compose    = compose,
                                                       .compatible = compatible });
}

static hl_status read_nfc(void *target, const json_t *value, const char *where)
{
    (void)value, (void)where;
    return add_form(target, true, false);
}

static hl_status read_nfd(void *target, const json_t *value, const char *where)
{
    (void)value, (void)where;
    return add_form(target, false, false);
}

static hl_status read_nfkc(void *target, const json_t *value, const char *where)
{
    (void)value, (void)where;
    return add_form(target, true, true);
}

static hl_status read_nfkd(void *target, const json_t *value, const char *where)
{
    (void)value, (void)where;
    return add_form(target, false, true);
}

static hl_status read_lowercase(void *target, const json_t *value, const char *where)
{
    (void)value, (void)where;
    return hl_normalizer_add(target, (hl_normalize_step){ .kind = HL_NORMALIZE_LOWERCASE });
}

static hl_status read_strip_accents(void *target, const json_t *value, const char *where)
{
    (void)value, (void)where;
    return hl_normalizer_add(
        target, (hl_normalize_step){ .kind = HL_NORMALIZE_REMOVE, .char_class = HL_CHAR_MARK });
}

static hl_status read_nmt(void *target, const json_t *value, const char *where)
{
    (void)value, (void)where;
    return hl_normalizer_add(target, (hl_normalize_step){ .kind = HL_NORMALIZE_NMT });
}

static hl_status read_byte_level_normalizer(void *target, const json_t *value, const char *where)
{
    (void)value, (void)where;
    return hl_normalizer_add(target, (hl_normalize_step){ .kind = HL_NORMALIZE_BYTE_LEVEL });
}

static hl_status read_strip(void *target, const json_t *value, const char *where)
{
    hl_normalize_step step   = { .kind = HL_NORMALIZE_STRIP, .left = true, .right = true };
    hl_status         status = hl_json_get_bool(&step.left, value, "strip_left", where);

    if (status == HL_OK)
        status = hl_json_get_bool(&step.right, value, "strip_right", where);
    return status == HL_OK ? hl_normalizer_add(target, step) : status;
}

static hl_status read_prepend(void *target, const json_t *value, const char *where)
{
    hl_normalize_step step   = { .kind = HL_NORMALIZE_PREPEND };
    hl_status         status = copy_text(&step.content, value, "prepend", NULL, where);

    return status == HL_OK ? hl_normalizer_add(target, step) : status;
}

static hl_status read_replace(void *target, const json_t *value, const char *where)
{
    hl_status         status = HL_OK;
    hl_normalize_step step   = { .kind = HL_NORMALIZE_REPLACE };

    HL_TRY(read_pattern(&step.pattern, &step.needle, value, where));
    HL_TRY(copy_text(&step.content, value, "content", NULL, where));
    return hl_normalizer_add(target, step);

done:
    hl_pattern_free(step.pattern);
    hl_free((void *)step.needle.data);
    return status;
}

static hl_status read_precompiled(void *target, const json_t *value, const char *where)
{
    hl_normalize_step step = { .kind = HL_NORMALIZE_CHARSMAP };
    const char       *text = json_string_value(json_object_get(value, "precompiled_charsmap"));

    if (text == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: Precompiled without 'precompiled_charsmap'", where);
    if (text[0] == '\0')
        return HL_OK; /* no rules */
    hl_status status = hl_charsmap_from_base64(&step.charsmap, text);
    if (status != HL_OK)
        return hl_fail_within(status, "%s", where);
    return hl_normalizer_add(target, step);
}

/* Four steps in a fixed order, each optional. */
static hl_status read_bert_normalizer(void *target, const json_t *value, const char *where)
{
    bool clean = true, chinese = true, lower = true;

    HL_NEED(hl_json_get_bool(&clean, value, "clean_text", where));
    HL_NEED(hl_json_get_bool(&chinese, value, "handle_chinese_chars", where));
    HL_NEED(hl_json_get_bool(&lower, value, "lowercase", where));
    bool strip = lower; /* what null means */
    HL_NEED(hl_json_get_bool(&strip, value, "strip_accents", where));
    if (clean)
        HL_NEED(hl_normalizer_add(target, (hl_normalize_step){ .kind = HL_NORMALIZE_CLEAN }));
    if (chinese)
        HL_NEED(hl_normalizer_add(target, (hl_normalize_step){ .kind = HL_NORMALIZE_CHINESE }));
    if (strip) {
        HL_NEED(add_form(target, false, false));
        HL_NEED(hl_normalizer_add(target, (hl_normalize_step){ .kind       = HL_NORMALIZE_REMOVE,
                                                               .char_class = HL_CHAR_ACCENT }));
    }
    if (lower)
        HL_NEED(read_lowercase(target, value, where));
    return HL_OK;
}

hl_status hl_normalizer_from_json(hl_normalizer *out, const json_t *value, const char *where)
{
    static const step_reader readers[] = {
        { "NFC", read_nfc },
        { "NFD", read_nfd },
        { "NFKC", read_nfkc },
        { "NFKD", read_nfkd },
        { "Lowercase", read_lowercase },
        { "StripAccents", read_strip_accents },
        { "Nmt", read_nmt },
        { "ByteLevel", read_byte_level_normalizer },
        { "Strip", read_strip },
        { "Prepend", read_prepend },
        { "Replace", read_replace },
        { "Precompiled", read_precompiled },
        { "BertNormalizer", read_bert_normalizer },
        { NULL, NULL },
    };
    return read_steps(out, readers, "normalizers", value, where, 0);
}

/* ----------------------------------------------------------- pre-tokenizers */

static hl_status read_behavior(hl_split_behavior *out, const json_t *value, const char *where)
{
    static const char *const names[] = { "Removed", "Isolated", "MergedWithPrevious",
                                         "MergedWithNext", "Contiguous" };
    const char              *name    = names[*out];
    hl_status                status  = hl_json_get_string(&name, value, "behavior", where);

    if (status != HL_OK)
        return status;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) == 0) {
            *out = (hl_split_behavior)i;
            return HL_OK;
        }
    }
    return hl_fail(HL_BAD_INPUT, "%s: no split behavior '%s'", where, name);
}

static hl_status read_split(void *target, const json_t *value, const char *where)
{
    hl_split_step step = { .behavior = HL_SPLIT_ISOLATED };

    HL_NEED(read_behavior(&step.behavior, value, where));
    HL_NEED(hl_json_get_bool(&step.invert, value, "invert", where));
    HL_NEED(read_pattern(&step.pattern, &step.literal, value, where));
    step.kind = step.pattern != NULL ? HL_SPLIT_PATTERN : HL_SPLIT_LITERAL;
    return hl_pretokenizer_add(target, step);
    return HL_OK;
}

static hl_status add_class(hl_pretokenizer *out, hl_char_class char_class,
                           hl_split_behavior behavior)
{
    return hl_pretokenizer_add(out, (hl_split_step){ .kind       = HL_SPLIT_CLASS,
                                                     .behavior   = behavior,
                                                     .char_class = (int)char_class });
}

static hl_status read_digits(void *target, const json_t *value, const char *where)
{
    bool      single = false;
    hl_status status = hl_json_get_bool(&single, value, "individual_digits", where);

    if (status != HL_OK)
        return status;
    return add_class(target, HL_CHAR_NUMERIC, single ? HL_SPLIT_ISOLATED : HL_SPLIT_CONTIGUOUS);
}

static hl_status read_punctuation(void *target, const json_t *value, const char *where)
{
    hl_split_behavior behavior = HL_SPLIT_ISOLATED;
    hl_status         status   = read_behavior(&behavior, value, where);

    return status == HL_OK ? add_class(target, HL_CHAR_PUNCTUATION, behavior) : status;
}

static hl_status read_whitespace_split(void *target, const json_t *value, const char *where)
{
    (void)value, (void)where;
    return add_class(target, HL_CHAR_WHITESPACE, HL_SPLIT_REMOVED);
}

static hl_status read_bert_pretokenizer(void *target, const json_t *value, const char *where)
{
    hl_status status = read_whitespace_split(target, value, where);
    return status == HL_OK ? add_class(target, HL_CHAR_PUNCTUATION, HL_SPLIT_ISOLATED) : status;
}

/* Words in the sense of the regex crate, and whatever else is not white space. */
static hl_status read_whitespace(void *target, const json_t *value, const char *where)
{
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}"
    static const char expression[] = "[" WORD "]+|[^" WORD "\\s]+";
#undef WORD
    hl_split_step step = { .behavior = HL_SPLIT_REMOVED, .invert = true };

    (void)value, (void)where;
    hl_status status = hl_pattern_new(&step.pattern, expression, sizeof expression - 1);
    return status == HL_OK ? hl_pretokenizer_add(target, step) : status;
}

static hl_status read_delimiter(void *target, const json_t *value, const char *where)
{
    hl_split_step step   = { .kind = HL_SPLIT_LITERAL, .behavior = HL_SPLIT_REMOVED };
    hl_status     status = copy_text(&step.literal, value, "delimiter", NULL, where);

    return status == HL_OK ? hl_pretokenizer_add(target, step) : status;
}

static hl_status read_fixed_length(void *target, const json_t *value, const char *where)
{
    hl_split_step step   = { .kind = HL_SPLIT_LENGTH, .behavior = HL_SPLIT_ISOLATED, .length = 5 };
    hl_status     status = read_size(&step.length, value, "length", where);

    if (status == HL_OK && step.length == 0)
        status = hl_fail(HL_BAD_INPUT, "%s: FixedLength of 0", where);
    return status == HL_OK ? hl_pretokenizer_add(target, step) : status;
}

static hl_status read_scripts(void *target, const json_t *value, const char *where)
{
    hl_split_step step = { .kind = HL_SPLIT_SCRIPT, .behavior = HL_SPLIT_ISOLATED };

    (void)value, (void)where;
    hl_status status = hl_script_pattern_new(&step.pattern);
    return status == HL_OK ? hl_pretokenizer_add(target, step) : status;
}

static hl_status read_prepend_scheme(hl_prepend *out, const json_t *value, const char *where)
{
    const char *scheme = "always";
    bool        prefix = true;
    hl_status   status = hl_json_get_string(&scheme, value, "prepend_scheme", where);

    if (status == HL_OK)
        status = hl_json_get_bool(&prefix, value, "add_prefix_space", where);
    if (status != HL_OK)
        return status;
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

static hl_status read_metaspace(void *target, const json_t *value, const char *where)
{
    hl_split_step step   = { .kind = HL_SPLIT_METASPACE, .split = true };
    hl_status     status = read_prepend_scheme(&step.prepend, value, where);

    if (status == HL_OK)
        status = hl_json_get_bool(&step.split, value, "split", where);
    if (status == HL_OK)
        status = copy_text(&step.literal, value, "replacement", "\xe2\x96\x81", where);
    return status == HL_OK ? hl_pretokenizer_add(target, step) : status;
}

static hl_status read_byte_level(void *target, const json_t *value, const char *where)
{
    hl_split_step step    = { .kind         = HL_SPLIT_BYTE_LEVEL,
                              .behavior     = HL_SPLIT_ISOLATED,
                              .prefix_space = true };
    bool          pattern = true;
    hl_status     status  = hl_json_get_bool(&step.prefix_space, value, "add_prefix_space", where);

    if (status == HL_OK)
        status = hl_json_get_bool(&pattern, value, "use_regex", where);
    if (status == HL_OK && pattern)
        status = hl_pattern_new(&step.pattern, HL_GPT2_PATTERN, strlen(HL_GPT2_PATTERN));
    return status == HL_OK ? hl_pretokenizer_add(target, step) : status;
}

hl_status hl_pretokenizer_from_json(hl_pretokenizer *out, const json_t *value, const char *where)
{
    static const step_reader readers[] = {
        { "Split", read_split },
        { "ByteLevel", read_byte_level },
        { "Metaspace", read_metaspace },
        { "Digits", read_digits },
        { "Punctuation", read_punctuation },
        { "Whitespace", read_whitespace },
        { "WhitespaceSplit", read_whitespace_split },
        { "BertPreTokenizer", read_bert_pretokenizer },
        { "CharDelimiterSplit", read_delimiter },
        { "FixedLength", read_fixed_length },
        { "UnicodeScripts", read_scripts },
        { NULL, NULL },
    };
    return read_steps(out, readers, "pretokenizers", value, where, 0);
}

/* ----------------------------------------------------------------- decoders */

static hl_status decode_byte_level(void *target, const json_t *value, const char *where)
{
    (void)value, (void)where;
    return hl_decoder_add(target, (hl_decode_step){ .kind = HL_DECODE_BYTE_LEVEL });
}

static hl_status decode_byte_fallback(void *target, const json_t *value, const char *where)
{
    (void)value, (void)where;
    return hl_decoder_add(target, (hl_decode_step){ .kind = HL_DECODE_BYTE_FALLBACK });
}

static hl_status decode_fuse(void *target, const json_t *value, const char *where)
{
    (void)value, (void)where;
    return hl_decoder_add(target, (hl_decode_step){ .kind = HL_DECODE_FUSE });
}

static hl_status decode_metaspace(void *target, const json_t *value, const char *where)
{
    hl_decode_step step    = { .kind = HL_DECODE_METASPACE };
    hl_prepend     prepend = HL_PREPEND_ALWAYS;
    hl_status      status  = read_prepend_scheme(&prepend, value, where);

    step.keep_first = prepend == HL_PREPEND_NEVER;
    if (status == HL_OK)
        status = copy_text(&step.content, value, "replacement", "\xe2\x96\x81", where);
    return status == HL_OK ? hl_decoder_add(target, step) : status;
}

static hl_status decode_wordpiece(void *target, const json_t *value, const char *where)
{
    hl_decode_step step   = { .kind = HL_DECODE_WORDPIECE, .cleanup = true };
    hl_status      status = hl_json_get_bool(&step.cleanup, value, "cleanup", where);

    if (status == HL_OK)
        status = copy_text(&step.content, value, "prefix", "##", where);
    return status == HL_OK ? hl_decoder_add(target, step) : status;
}

static hl_status decode_strip(void *target, const json_t *value, const char *where)
{
    hl_decode_step step   = { .kind = HL_DECODE_STRIP };
    hl_status      status = read_size(&step.start, value, "start", where);

    if (status == HL_OK)
        status = read_size(&step.stop, value, "stop", where);
    if (status == HL_OK)
        status = copy_text(&step.content, value, "content", " ", where);
    return status == HL_OK ? hl_decoder_add(target, step) : status;
}

static hl_status decode_replace(void *target, const json_t *value, const char *where)
{
    hl_status      status = HL_OK;
    hl_decode_step step   = { .kind = HL_DECODE_REPLACE };

    HL_TRY(read_pattern(&step.pattern, &step.content, value, where));
    HL_TRY(copy_text(&step.other, value, "content", NULL, where));
    return hl_decoder_add(target, step);

done:
    hl_pattern_free(step.pattern);
    hl_free((void *)step.content.data);
    return status;
}

static hl_status decode_suffix(void *target, const json_t *value, const char *where)
{
    hl_decode_step step   = { .kind = HL_DECODE_SUFFIX };
    hl_status      status = copy_text(&step.content, value, "suffix", "</w>", where);

    return status == HL_OK ? hl_decoder_add(target, step) : status;
}

static hl_status decode_ctc(void *target, const json_t *value, const char *where)
{
    hl_status      status = HL_OK;
    hl_decode_step step   = { .kind = HL_DECODE_CTC, .cleanup = true };

    HL_TRY(hl_json_get_bool(&step.cleanup, value, "cleanup", where));
    HL_TRY(copy_text(&step.content, value, "pad_token", "<pad>", where));
    HL_TRY(copy_text(&step.other, value, "word_delimiter_token", "|", where));
    return hl_decoder_add(target, step);

done:
    hl_free((void *)step.content.data);
    return status;
}

hl_status hl_decoder_from_json(hl_decoder *out, const json_t *value, const char *where)
{
    static const step_reader readers[] = {
        { "ByteLevel", decode_byte_level },
        { "Metaspace", decode_metaspace },
        { "WordPiece", decode_wordpiece },
        { "ByteFallback", decode_byte_fallback },
        { "Fuse", decode_fuse },
        { "Strip", decode_strip },
        { "Replace", decode_replace },
        { "BPEDecoder", decode_suffix },
        { "CTC", decode_ctc },
        { NULL, NULL },
    };
    out->present = value != NULL && !json_is_null(value);
    return read_steps(out, readers, "decoders", value, where, 0);
}

/* ----------------------------------------------------------- post-processors
 *
 * Only texts by themselves are encoded, never pairs, so what matters of a template is which
 * special tokens stand before and after "$A":
 *
 *     "single": [ {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
 *                 {"Sequence":     {"id": "A",     "type_id": 0}}, ... ],
 *     "special_tokens": { "[CLS]": {"id": "[CLS]", "ids": [2], ... } } */

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
        HL_NEED(hl_fail(HL_UNSUPPORTED, "%s: the type '%s' is not known", where, type));
    }
    return HL_OK;
}

hl_status hl_postprocessor_from_json(hl_postprocessor *out, const json_t *value, const char *where)
{
    return read_postprocessor(out, value, where, 0);
}
