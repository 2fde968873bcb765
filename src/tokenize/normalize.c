/* normalize.c - the steps of normalizers.
 *
 * Each step reads a text and writes a new one through a hl_transform, so that
 * every byte keeps its origin.  Steps that have nothing to do give back the text
 * they got, and for plain English most of them do. */
#include "tokenize/normalize.h"

#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"
#include "tokenize/byte_level.h"
#include "tokenize/unicode.h"

#define MAX_STEPS 64

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
           (c >= 0x2b920 && c <= 0x2ceaf) || /* the gap is in the reference implementation too */
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

/* The result of a character that is removed. */
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

/* Removed characters are charged to the last one that stays, so one is held back. */
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

/* Prepends content; it shares the origin of the first character. */
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
    size_t    copied = 0;
    hl_search search = { .pattern = step->pattern,
                         .needle  = step->needle,
                         .matcher = matcher,
                         .text    = { text->bytes, text->n_bytes } };

    *out             = *text;
    builder->n_bytes = 0;
    while (hl_search_next(&search)) {
        HL_NEED(hl_mapped_text_builder_copy(builder, text, copied, search.match.begin));
        HL_NEED(add_replacement(builder, text, search.match, step->content));
        copied = search.match.end;
    }
    HL_NEED(search.status);
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

/* -------------------------------------------------- Unicode's normal forms
 *
 * utf8proc normalizes whole strings, but does not say which character came from
 * where.  So its tables are asked character by character, and the algorithm of
 * Unicode's chapter 3.11 is written out here:
 *
 *     decompose   é          ->  e, U+0301
 *     order       marks behind a base, by combining class, stably
 *     compose     e, U+0301  ->  é   unless a mark between them blocks
 *
 * Each decomposed character carries its `change` (mapped_text.h): 0 for the first of a
 * source character, +1 for the others.  Composing adds the two and takes one
 * off, so é -> e, U+0301 -> é ends as 0, a plain replacement, and e, U+0301 of
 * the source end as -1, one character that swallows the next.
 *
 * Most text is in NFC already, and most of it in characters that NFC leaves
 * alone whatever stands beside them; runs of these are copied. */

/* No character below this is a later part of a decomposition or has a combining class. */
#define FIRST_FOLLOWER 0x300U

typedef struct letter {
    uint32_t code_point;
    int      change;
    int      combining;
} letter;

typedef struct letters {
    letter *items;
    size_t  count;
    size_t  capacity;
} letters;

typedef struct former {
    hl_transform transform;
    bool         compose;
    bool         compatible;
    letters      pending; /* one base and its marks, decomposed, not yet ordered */
    bool         has_base;
    letter       base;      /* the base, which may still be composed with a mark */
    letters      blocked;   /* marks after the base that were not composed with it */
    int          last_mark; /* the class of the last one in `blocked`; 0: none */
    hl_status    status;
} former;

static void push_letter(former *f, letters *list, letter item)
{
    if (f->status != HL_OK)
        return;
    f->status = HL_GROW(&list->items, &list->capacity, list->count, 1);
    if (f->status == HL_OK)
        list->items[list->count++] = item;
}

static void emit_letter(former *f, letter item)
{
    hl_transform_put(&f->transform, item.code_point, item.change);
}

static void emit_base(former *f)
{
    if (f->has_base)
        emit_letter(f, f->base);
    for (size_t i = 0; i < f->blocked.count; i++)
        emit_letter(f, f->blocked.items[i]);
    f->blocked.count = 0;
    f->last_mark     = 0;
    f->has_base      = false;
}

/* Composes.  A mark is blocked by an earlier one of the same or a higher class. */
static void compose(former *f, letter next)
{
    uint32_t whole;
    bool     free = f->last_mark == 0 || f->last_mark < next.combining;

    if (f->has_base && free && next.code_point >= FIRST_FOLLOWER &&
        hl_char_compose(&whole, f->base.code_point, next.code_point)) {
        f->base.code_point = whole;
        f->base.change += next.change - 1;
    } else if (next.combining == 0) {
        emit_base(f);
        f->base     = next;
        f->has_base = true;
    } else if (!f->has_base) {
        emit_letter(f, next);
    } else {
        push_letter(f, &f->blocked, next);
        f->last_mark = next.combining;
    }
}

/* Insertion sort, since there are rarely more than two marks.  Beyond a bound the marks stay in
 * their order: sorting a million marks on one base would take too long. */
static void order_marks(letters *list)
{
    enum { MOST = 256 };

    if (list->count > MOST)
        return;
    for (size_t i = 1; i < list->count; i++) {
        letter item = list->items[i];
        size_t at   = i;
        for (; at > 0 && item.combining != 0 && list->items[at - 1].combining > item.combining;
             at--)
            list->items[at] = list->items[at - 1];
        list->items[at] = item;
    }
}

static void flush_pending(former *f)
{
    order_marks(&f->pending);
    for (size_t i = 0; i < f->pending.count; i++) {
        if (f->compose)
            compose(f, f->pending.items[i]);
        else
            emit_letter(f, f->pending.items[i]);
    }
    f->pending.count = 0;
}

static void add_character(former *f, uint32_t code_point)
{
    uint32_t parts[HL_MAX_DECOMPOSITION] = { code_point };
    size_t   n_parts                     = 1;

    if (code_point >= (f->compatible ? 0xa0U : 0xc0U))
        n_parts = hl_char_decompose(parts, code_point, f->compatible);
    for (size_t i = 0; i < n_parts; i++) {
        int combining = parts[i] < FIRST_FOLLOWER ? 0 : hl_char_combining_class(parts[i]);
        if (combining == 0)
            flush_pending(f);
        push_letter(f, &f->pending, (letter){ parts[i], i > 0, combining });
    }
}

/* True for characters that NFC does not change and that do not compose with the one before. */
static bool is_quiet(uint32_t c)
{
    return c < 0x300 || (c >= 0x400 && c <= 0x482) || (c >= 0x5d0 && c <= 0x5ea) ||
           (c >= 0x621 && c <= 0x64a) || (c >= 0x2010 && c <= 0x2027) ||
           (c >= 0x2030 && c <= 0x205e) || (c >= 0x3041 && c <= 0x3096) ||
           (c >= 0x30a1 && c <= 0x30fa) || (c >= 0x4e00 && c <= 0x9fff) ||
           (c >= 0xac00 && c <= 0xd7a3);
}

/* Copies quiet characters, starting at `at`; all but the last one, which a mark may follow. */
static size_t keep_quiet(former *f, const hl_mapped_text *text, size_t at)
{
    size_t last = at;

    for (size_t next = at; next < text->n_bytes;) {
        size_t begin = next;
        if (!is_quiet(hl_utf8_next(text->bytes, &next)))
            break;
        last = begin;
    }
    if (last > at) {
        flush_pending(f);
        emit_base(f);
        hl_transform_keep(&f->transform, last);
    }
    return last;
}

static bool is_ascii(const hl_mapped_text *text)
{
    for (size_t i = 0; i < text->n_bytes; i++) {
        if ((unsigned char)text->bytes[i] >= 0x80)
            return false;
    }
    return true;
}

/* *out is in `builder`, or is *text itself if the text already has that form. */
static hl_status normal_form(hl_mapped_text *out, hl_mapped_text_builder *builder,
                             const hl_mapped_text *text, bool compose_too, bool compatible)
{
    former f = {
        .transform  = hl_transform_begin(text, builder),
        .compose    = compose_too,
        .compatible = compatible,
    };

    if (is_ascii(text)) {
        *out = *text;
        return HL_OK;
    }
    for (size_t at = 0; at < text->n_bytes && f.status == HL_OK;) {
        if (compose_too && !compatible)
            at = keep_quiet(&f, text, at);
        add_character(&f, hl_utf8_next(text->bytes, &at));
    }
    flush_pending(&f);
    emit_base(&f);
    if (f.status == HL_OK)
        f.status = hl_transform_end(out, &f.transform);
    hl_free(f.pending.items);
    hl_free(f.blocked.items);
    return f.status;
}

/* ---------------------------------------------- SentencePiece's compiled rules
 *
 * A trie in one array, and the replacements behind it:
 *
 *     offset  size   what
 *     0       4      T, the size of the trie in bytes, little-endian
 *     4       T      the trie: units of 32 bits (a "double array")
 *     4 + T   rest   replacements, each ended by a NUL
 *
 * A unit packs  label (bits 0-7, and 31 for a leaf),  has_leaf (8),  offset
 * (10-30, times 256 if bit 9 is set).  From unit u the child for byte c is at
 * u.position ^ u.offset ^ c, and is real if its label is c.  A leaf's low 31
 * bits say where the replacement starts.
 *
 * Text is taken one user-perceived character at a time.  One of fewer than six
 * bytes whose beginning is in the trie is replaced by the first, shortest match,
 * all of it: combining marks behind it vanish.  That looks wrong, but it is what
 * the models were trained with.  Otherwise its code points are looked up singly. */

#define SHORT_BYTES 6

struct hl_charsmap {
    uint32_t *units; /* (n_units) */
    size_t    n_units;
    char     *replacements; /* ends with a NUL */
    size_t    n_replacements;
};

hl_status hl_charsmap_new(hl_charsmap **out, const uint8_t *blob, size_t n_bytes)
{
    HL_CLOSED(hl_charsmap_free) hl_charsmap *map = NULL;

    *out = NULL;
    if (n_bytes < 4)
        return hl_fail(HL_BAD_INPUT, "a charsmap of %zu bytes, at least 4", n_bytes);
    size_t n_trie = blob[0] | (size_t)blob[1] << 8 | (size_t)blob[2] << 16 | (size_t)blob[3] << 24;
    if (n_trie > n_bytes - 4 || n_trie % 4 != 0)
        return hl_fail(HL_BAD_INPUT, "a charsmap of %zu bytes with a trie of %zu", n_bytes, n_trie);

    size_t n_text = n_bytes - 4 - n_trie;
    HL_NEED(HL_ALLOC_ZEROED(&map, 1));
    HL_NEED(HL_ALLOC(&map->units, n_trie / 4));
    HL_NEED(hl_strndup(&map->replacements, (const char *)blob + 4 + n_trie, n_text));
    map->n_units        = n_trie / 4;
    map->n_replacements = n_text + 1;
    for (size_t i = 0; i < map->n_units; i++) {
        const uint8_t *unit = blob + 4 + 4 * i;
        map->units[i] =
            unit[0] | (uint32_t)unit[1] << 8 | (uint32_t)unit[2] << 16 | (uint32_t)unit[3] << 24;
    }
    if (hl_utf8_find_bad(map->replacements, n_text) < n_text)
        return hl_fail(HL_BAD_INPUT, "a charsmap whose replacements are not UTF-8");
    *out = hl_taken(&map);
    return HL_OK;
}

void hl_charsmap_free(hl_charsmap *map)
{
    if (map == NULL)
        return;
    hl_free(map->units);
    hl_free(map->replacements);
    hl_free(map);
}

static hl_status append_u32(hl_buffer *out, uint32_t value)
{
    uint8_t bytes[4] = { (uint8_t)value, (uint8_t)(value >> 8), (uint8_t)(value >> 16),
                         (uint8_t)(value >> 24) };

    return hl_buffer_append(out, bytes, sizeof bytes);
}

hl_status hl_charsmap_write(hl_buffer *out, const hl_charsmap *map)
{
    HL_NEED(append_u32(out, (uint32_t)(4 * map->n_units)));
    for (size_t i = 0; i < map->n_units; i++)
        HL_NEED(append_u32(out, map->units[i]));
    return hl_buffer_append(out, map->replacements, map->n_replacements - 1);
}

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

hl_status hl_charsmap_from_base64(hl_charsmap **out, const char *text)
{
    size_t            length = strlen(text);
    size_t            n_blob = 0;
    uint32_t          bits   = 0;
    int               n_bits = 0;
    HL_FREED uint8_t *blob   = NULL;

    *out = NULL;
    while (length > 0 && text[length - 1] == '=')
        length--;
    HL_NEED(HL_ALLOC(&blob, length / 4 * 3 + 3));
    for (size_t i = 0; i < length; i++) {
        int value = base64_value(text[i]);
        if (value < 0)
            return hl_fail(HL_BAD_INPUT, "a charsmap that is not base64, at %zu", i);
        bits = bits << 6 | (uint32_t)value;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            blob[n_blob++] = (uint8_t)(bits >> n_bits);
        }
    }
    return hl_charsmap_new(out, blob, n_blob);
}

static uint32_t unit_offset(uint32_t unit)
{
    return unit >> 10 << ((unit & 1U << 9) >> 6);
}

/* Returns the replacement of the shortest prefix that has one; NULL if none has. */
static const char *find_rule(const hl_charsmap *map, const char *bytes, size_t n_bytes)
{
    size_t at = map->n_units > 0 ? unit_offset(map->units[0]) : 0;

    for (size_t i = 0; i < n_bytes; i++) {
        unsigned char c = (unsigned char)bytes[i];
        at ^= c;
        if (c == 0 || at >= map->n_units)
            return NULL;
        uint32_t unit = map->units[at];
        if ((unit & 0x800000ffU) != c)
            return NULL;
        at ^= unit_offset(unit);
        if ((unit >> 8 & 1) != 0) {
            uint32_t place = at < map->n_units ? map->units[at] & 0x7fffffffU : UINT32_MAX;
            if (place >= map->n_replacements || hl_utf8_is_continuation(map->replacements[place]))
                return NULL;
            return map->replacements + place;
        }
    }
    return NULL;
}

/* One character is held back: characters that are removed are charged to it. */
typedef struct replacer {
    hl_transform transform;
    bool         has_last;
    uint32_t     last;
    int          change;
} replacer;

static void put_character(replacer *r, uint32_t code_point, int change)
{
    if (r->has_last)
        hl_transform_put(&r->transform, r->last, r->change);
    r->has_last = true;
    r->last     = code_point;
    r->change   = change;
}

/* Replaces `old_count` characters: first one for one; then the rest is inserted, or the last
 * character consumes the old ones that are left. */
static void replace_whole(replacer *r, int old_count, const char *replacement)
{
    size_t length    = strlen(replacement);
    int    new_count = (int)hl_utf8_count(replacement, length);
    int    index     = 0;

    for (size_t at = 0; at < length; index++)
        put_character(r, hl_utf8_next(replacement, &at), index >= old_count);
    if (new_count >= old_count)
        return;
    if (r->has_last)
        r->change -= old_count - new_count;
    else
        hl_transform_drop(&r->transform, (size_t)(old_count - new_count));
}

static void replace_grapheme(replacer *r, const hl_charsmap *map, const char *bytes, size_t n_bytes)
{
    if (n_bytes < SHORT_BYTES) {
        const char *whole = find_rule(map, bytes, n_bytes);
        if (whole != NULL) {
            replace_whole(r, (int)hl_utf8_count(bytes, n_bytes), whole);
            return;
        }
    }
    for (size_t at = 0; at < n_bytes;) {
        size_t      begin      = at;
        uint32_t    code_point = hl_utf8_next(bytes, &at);
        const char *single     = find_rule(map, bytes + begin, at - begin);
        if (single != NULL)
            replace_whole(r, 1, single);
        else
            put_character(r, code_point, 0);
    }
}

/* Returns the end of the user-perceived character that begins at `begin`. */
static size_t grapheme_end(const hl_mapped_text *text, size_t begin)
{
    int32_t  state = 0;
    size_t   end   = begin;
    uint32_t left  = hl_utf8_next(text->bytes, &end);

    while (end < text->n_bytes) {
        size_t   next  = end;
        uint32_t right = hl_utf8_next(text->bytes, &next);
        if (hl_char_grapheme_break(left, right, &state))
            break;
        left = right;
        end  = next;
    }
    return end;
}

hl_status hl_charsmap_apply(hl_mapped_text *out, hl_mapped_text_builder *builder,
                            const hl_mapped_text *text, const hl_charsmap *map)
{
    replacer r = { .transform = hl_transform_begin(text, builder) };

    for (size_t at = 0; at < text->n_bytes;) {
        size_t end = grapheme_end(text, at);
        replace_grapheme(&r, map, text->bytes + at, end - at);
        at = end;
    }
    if (r.has_last)
        hl_transform_put(&r.transform, r.last, r.change);
    return hl_transform_end(out, &r.transform);
}

/* --------------------------------------------------------------- all steps */

hl_status hl_normalizer_add(hl_normalize_step **out, hl_normalizer *normalizer,
                            hl_normalize_step step)
{
    if (normalizer->n_steps >= MAX_STEPS)
        return hl_fail(HL_BAD_INPUT, "more than %d normalizers", MAX_STEPS);
    HL_NEED(HL_GROW(&normalizer->steps, &normalizer->capacity, normalizer->n_steps, 1));
    *out  = &normalizer->steps[normalizer->n_steps++];
    **out = step;
    return HL_OK;
}

void hl_normalizer_free(hl_normalizer *normalizer)
{
    for (size_t i = 0; i < normalizer->n_steps; i++) {
        hl_normalize_step *step = &normalizer->steps[i];
        hl_bytes_free(&step->needle);
        hl_bytes_free(&step->content);
        hl_pattern_free(step->pattern);
        hl_charsmap_free(step->charsmap);
    }
    hl_free(normalizer->steps);
    *normalizer = (hl_normalizer){ 0 };
}

static hl_status run_step(hl_mapped_text *out, hl_mapped_text_builder *builder,
                          const hl_mapped_text *text, const hl_normalize_step *step,
                          hl_matcher *matcher)
{
    switch (step->kind) {
    case HL_NORMALIZE_FORM:
        return normal_form(out, builder, text, step->compose, step->compatible);
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

/* Returns the name of a step in tokenizer files. */
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
        HL_NEED(fail_in_step(status, &normalizer->steps[i], i));
        /* The next step must not overwrite a slice of the other builder. */
        if (builders[next].bytes != NULL && changed.bytes == builders[next].bytes)
            next = 1 - next;
        *text = changed;
    }
    return HL_OK;
}
