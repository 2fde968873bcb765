/* normalize.c - the steps of normalizers.
 *
 * Each step reads a text and writes a new one through a hl_transform, so that
 * every byte keeps its origin.  Steps that have nothing to do give back the text
 * they got, and for plain English most of them do. */
#include "tokenize/normalize.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"
#include "tokenize/buffer.h"
#include "tokenize/byte_level.h"
#include "tokenize/normal_form.h"
#include "tokenize/unicode.h"

#define MAX_STEPS 64

static void free_step(hl_normalize_step *step)
{
    hl_free((void *)step->needle.data);
    hl_free((void *)step->content.data);
    hl_pattern_free(step->pattern);
    hl_charsmap_free(step->charsmap);
}

hl_status hl_normalizer_add(hl_normalizer *normalizer, hl_normalize_step step)
{
    hl_status status = HL_OK;

    if (normalizer->n_steps >= MAX_STEPS)
        HL_TRY(hl_fail(HL_BAD_INPUT, "more than %d normalizers", MAX_STEPS));
    HL_TRY(HL_GROW(&normalizer->steps, &normalizer->capacity, normalizer->n_steps, 1));
    normalizer->steps[normalizer->n_steps++] = step;
    return HL_OK;

done:
    free_step(&step);
    return status;
}

void hl_normalizer_free(hl_normalizer *normalizer)
{
    for (size_t i = 0; i < normalizer->n_steps; i++)
        free_step(&normalizer->steps[i]);
    hl_free(normalizer->steps);
    *normalizer = (hl_normalizer){ 0 };
}

/* -------------------------------------------------- one character at a time */

static hl_status lowercase(hl_mapped_text *out, hl_mapped_text_builder *builder,
                           const hl_mapped_text *text)
{
    hl_transform transform = hl_transform_begin(text, builder);
    uint32_t     lower[2];

    for (size_t at = 0; at < text->n_bytes;) {
        size_t count = hl_char_lowercase(lower, hl_utf8_next(text->bytes, &at));
        for (size_t i = 0; i < count; i++)
            hl_transform_put(&transform, lower[i], i > 0);
    }
    return hl_transform_end(out, &transform);
}

static bool is_ideograph(uint32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
           (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b81f) ||
           (c >= 0x2b920 && c <= 0x2ceaf) || /* sic: the reference leaves a gap */
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

static hl_status space_ideographs(hl_mapped_text *out, hl_mapped_text_builder *builder,
                                  const hl_mapped_text *text)
{
    hl_transform transform = hl_transform_begin(text, builder);

    for (size_t at = 0; at < text->n_bytes;) {
        uint32_t c = hl_utf8_next(text->bytes, &at);
        if (!is_ideograph(c)) {
            hl_transform_put(&transform, c, 0);
            continue;
        }
        hl_transform_put(&transform, ' ', 0);
        hl_transform_put(&transform, c, 1);
        hl_transform_put(&transform, ' ', 1);
    }
    return hl_transform_end(out, &transform);
}

/* ------------------------------------------------------- removing and mapping */

/* What becomes of a character: itself, another, or REMOVED. */
#define REMOVED UINT32_MAX
typedef uint32_t (*mapping)(uint32_t c, int argument);

static uint32_t remove_class(uint32_t c, int char_class)
{
    return hl_char_is((hl_char_class)char_class, c) ? REMOVED : c;
}

static uint32_t clean(uint32_t c, int unused)
{
    (void)unused;
    if (c == '\t' || c == '\n' || c == '\r' || c == ' ')
        return ' ';
    if (c == 0 || c == HL_UTF8_REPLACEMENT || hl_char_is(HL_CHAR_CONTROL, c))
        return REMOVED;
    return hl_char_is(HL_CHAR_WHITESPACE, c) ? ' ' : c;
}

static uint32_t clean_for_translation(uint32_t c, int unused)
{
    (void)unused;
    if ((c >= 0x01 && c <= 0x08) || c == 0x0b || (c >= 0x0e && c <= 0x1f) || c == 0x7f ||
        c == 0x8f || c == 0x9f)
        return REMOVED;
    if (c == 0x09 || c == 0x0a || c == 0x0c || c == 0x0d || c == 0x1680 ||
        (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xfeff ||
        c == 0xfffd)
        return ' ';
    return c;
}

/* Removed characters are charged to the last one that stays; hence one is held back. */
static hl_status map_characters(hl_mapped_text *out, hl_mapped_text_builder *builder,
                                const hl_mapped_text *text, mapping map, int argument)
{
    hl_transform transform = hl_transform_begin(text, builder);
    uint32_t     held      = REMOVED;
    int          n_removed = 0;

    for (size_t at = 0; at < text->n_bytes;) {
        uint32_t c = map(hl_utf8_next(text->bytes, &at), argument);
        if (c == REMOVED) {
            n_removed++;
            continue;
        }
        if (held != REMOVED)
            hl_transform_put(&transform, held, -n_removed);
        else
            hl_transform_drop(&transform, (size_t)n_removed);
        held      = c;
        n_removed = 0;
    }
    if (held != REMOVED)
        hl_transform_put(&transform, held, -n_removed);
    return hl_transform_end(out, &transform);
}

/* -------------------------------------------------------- strip and prepend */

static hl_status strip(hl_mapped_text *out, const hl_mapped_text *text, bool left, bool right)
{
    size_t begin = 0;
    size_t end   = text->n_bytes;

    for (size_t at = 0; left && at < end;) {
        if (!hl_char_is(HL_CHAR_WHITESPACE, hl_utf8_next(text->bytes, &at)))
            break;
        begin = at;
    }
    while (right && end > begin) {
        size_t start = end - 1;
        while (hl_utf8_is_continuation(text->bytes[start]))
            start--;
        size_t at = start;
        if (!hl_char_is(HL_CHAR_WHITESPACE, hl_utf8_next(text->bytes, &at)))
            break;
        end = start;
    }
    *out = hl_mapped_text_slice(text, begin, end);
    return HL_OK;
}

/* The first character's origin is shared by what stands before it. */
static hl_status prepend(hl_mapped_text *out, hl_mapped_text_builder *builder,
                         const hl_mapped_text *text, hl_bytes content)
{
    *out = *text;
    if (text->n_bytes == 0 || content.n_bytes == 0)
        return HL_OK;
    builder->n_bytes = 0;
    hl_span first    = hl_mapped_text_origin(text, 0, 1);
    HL_NEED(hl_mapped_text_builder_add(builder, content.data, content.n_bytes,
                                       (hl_origin){ (uint32_t)first.begin, (uint32_t)first.end }));
    HL_NEED(hl_mapped_text_builder_copy(builder, text, 0, text->n_bytes));
    *out = hl_mapped_text_built(builder, text);
    return HL_OK;
}

/* ----------------------------------------------------------------- replacing */

/* The next match of a step's pattern or needle at or after `start`. */
static hl_status find_next(hl_span *out, bool *found, const hl_normalize_step *step,
                           const hl_mapped_text *text, size_t start, hl_matcher *matcher)
{
    if (step->pattern != NULL)
        return hl_pattern_find(out, found, step->pattern, matcher, text->bytes, text->n_bytes,
                               start);
    *found = false;
    if (step->needle.n_bytes == 0)
        return HL_OK;
    const char *place = hl_find_bytes(text->bytes + start, text->n_bytes - start, step->needle.data,
                                      step->needle.n_bytes);
    if (place != NULL) {
        size_t begin = (size_t)(place - text->bytes);
        *out         = (hl_span){ begin, begin + step->needle.n_bytes };
        *found       = true;
    }
    return HL_OK;
}

/* A replacement gets the origin of the last character that it replaces. */
static hl_status add_replacement(hl_mapped_text_builder *builder, const hl_mapped_text *text,
                                 hl_span match, hl_bytes content)
{
    hl_origin origin = { (uint32_t)text->origin, (uint32_t)text->origin };

    if (match.end > 0) {
        hl_span last = hl_mapped_text_origin(text, match.end - 1, match.end);
        origin       = (hl_origin){ (uint32_t)last.begin, (uint32_t)last.end };
    }
    return hl_mapped_text_builder_add(builder, content.data, content.n_bytes, origin);
}

static hl_status replace(hl_mapped_text *out, hl_mapped_text_builder *builder,
                         const hl_mapped_text *text, const hl_normalize_step *step,
                         hl_matcher *matcher)
{
    bool    found = false;
    hl_span match;
    size_t  copied = 0;
    size_t  start  = 0;

    *out             = *text;
    builder->n_bytes = 0;
    for (;;) {
        HL_NEED(find_next(&match, &found, step, text, start, matcher));
        if (!found)
            break;
        HL_NEED(hl_mapped_text_builder_copy(builder, text, copied, match.begin));
        HL_NEED(add_replacement(builder, text, match, step->content));
        copied = match.end;
        start  = match.end;
        if (match.begin == match.end) { /* an empty match: go on behind the next character */
            if (start >= text->n_bytes)
                break;
            (void)hl_utf8_next(text->bytes, &start);
        }
    }
    if (copied > 0 || builder->n_bytes > 0) {
        HL_NEED(hl_mapped_text_builder_copy(builder, text, copied, text->n_bytes));
        *out = hl_mapped_text_built(builder, text);
    }
    return HL_OK;
}

static hl_status spell_bytes(hl_mapped_text *out, hl_mapped_text_builder *builder,
                             const hl_mapped_text *text)
{
    builder->n_bytes = 0;
    hl_status status = hl_byte_level_spell(builder, text, 0, text->n_bytes);
    *out             = hl_mapped_text_built(builder, text);
    return status;
}

/* ------------------------------------------------------------------ all steps */

static hl_status run_step(hl_mapped_text *out, hl_mapped_text_builder *builder,
                          const hl_mapped_text *text, const hl_normalize_step *step,
                          hl_matcher *matcher)
{
    switch (step->kind) {
    case HL_NORMALIZE_FORM:
        return hl_normal_form(out, builder, text, step->compose, step->compatible);
    case HL_NORMALIZE_LOWERCASE:
        return lowercase(out, builder, text);
    case HL_NORMALIZE_REMOVE:
        return map_characters(out, builder, text, remove_class, step->char_class);
    case HL_NORMALIZE_CLEAN:
        return map_characters(out, builder, text, clean, 0);
    case HL_NORMALIZE_CHINESE:
        return space_ideographs(out, builder, text);
    case HL_NORMALIZE_NMT:
        return map_characters(out, builder, text, clean_for_translation, 0);
    case HL_NORMALIZE_STRIP:
        return strip(out, text, step->left, step->right);
    case HL_NORMALIZE_PREPEND:
        return prepend(out, builder, text, step->content);
    case HL_NORMALIZE_REPLACE:
        return replace(out, builder, text, step, matcher);
    case HL_NORMALIZE_CHARSMAP:
        return hl_charsmap_apply(out, builder, text, step->charsmap);
    case HL_NORMALIZE_BYTE_LEVEL:
        return spell_bytes(out, builder, text);
    }
    return hl_fail(HL_INTERNAL, "no such normalizer: %d", (int)step->kind);
}

/* As files name them. */
static const char *step_name(hl_normalize_kind kind)
{
    static const char *const names[] = {
        [HL_NORMALIZE_FORM]       = "Unicode form",
        [HL_NORMALIZE_LOWERCASE]  = "Lowercase",
        [HL_NORMALIZE_REMOVE]     = "StripAccents",
        [HL_NORMALIZE_CLEAN]      = "BertNormalizer",
        [HL_NORMALIZE_CHINESE]    = "BertNormalizer",
        [HL_NORMALIZE_NMT]        = "Nmt",
        [HL_NORMALIZE_STRIP]      = "Strip",
        [HL_NORMALIZE_PREPEND]    = "Prepend",
        [HL_NORMALIZE_REPLACE]    = "Replace",
        [HL_NORMALIZE_CHARSMAP]   = "Precompiled",
        [HL_NORMALIZE_BYTE_LEVEL] = "ByteLevel",
    };
    return names[kind];
}

static hl_status fail_in_step(hl_status status, const hl_normalize_step *step, size_t index)
{
    if (step->needle.data != NULL)
        return hl_fail_within(status, "normalizer %zu (%s '%.200s')", index, step_name(step->kind),
                              step->needle.data);
    return hl_fail_within(status, "normalizer %zu (%s)", index, step_name(step->kind));
}

hl_status hl_normalizer_run(hl_mapped_text *text, const hl_normalizer *normalizer,
                            hl_mapped_text_builder builders[2], hl_matcher *matcher)
{
    int next = 0;

    for (size_t i = 0; i < normalizer->n_steps; i++) {
        hl_mapped_text changed;
        hl_status      status =
            run_step(&changed, &builders[next], text, &normalizer->steps[i], matcher);
        if (status == HL_OK)
            status = hl_budget_spend(hl_matcher_budget(matcher), text->n_bytes);
        if (status != HL_OK)
            return fail_in_step(status, &normalizer->steps[i], i);
        /* A slice of the other builder must not be overwritten by the next step. */
        if (builders[next].bytes != NULL && changed.bytes == builders[next].bytes)
            next = 1 - next;
        *text = changed;
    }
    return HL_OK;
}
