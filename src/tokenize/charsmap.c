/* charsmap.c - a trie in one array, and the replacements behind it.
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
#include "tokenize/charsmap.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"
#include "tokenize/buffer.h"
#include "tokenize/unicode.h"

#define SHORT_BYTES 6

struct hl_charsmap {
    uint32_t *units; /* (n_units) */
    size_t    n_units;
    char     *replacements; /* ends with a NUL */
    size_t    n_replacements;
};

/* ------------------------------------------------------------------ reading */

hl_status hl_charsmap_new(hl_charsmap **out, const uint8_t *blob, size_t n_bytes)
{
    hl_status    status = HL_OK;
    hl_charsmap *map    = NULL;

    *out = NULL;
    if (n_bytes < 4)
        return hl_fail(HL_BAD_INPUT, "a charsmap of %zu bytes, at least 4", n_bytes);
    size_t n_trie = blob[0] | (size_t)blob[1] << 8 | (size_t)blob[2] << 16 | (size_t)blob[3] << 24;
    if (n_trie > n_bytes - 4 || n_trie % 4 != 0)
        return hl_fail(HL_BAD_INPUT, "a charsmap of %zu bytes with a trie of %zu", n_bytes, n_trie);

    size_t n_text = n_bytes - 4 - n_trie;
    HL_TRY(HL_ALLOC_ZEROED(&map, 1));
    HL_TRY(HL_ALLOC(&map->units, n_trie / 4));
    HL_TRY(hl_strndup(&map->replacements, (const char *)blob + 4 + n_trie, n_text));
    map->n_units        = n_trie / 4;
    map->n_replacements = n_text + 1;
    for (size_t i = 0; i < map->n_units; i++) {
        const uint8_t *unit = blob + 4 + 4 * i;
        map->units[i] =
            unit[0] | (uint32_t)unit[1] << 8 | (uint32_t)unit[2] << 16 | (uint32_t)unit[3] << 24;
    }
    if (hl_utf8_find_bad(map->replacements, n_text) < n_text)
        HL_TRY(hl_fail(HL_BAD_INPUT, "a charsmap whose replacements are not UTF-8"));
    *out = map;
    map  = NULL;

done:
    hl_charsmap_free(map);
    return status;
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
    hl_status status = HL_OK;
    size_t    length = strlen(text);
    size_t    n_blob = 0;
    uint8_t  *blob   = NULL;
    uint32_t  bits   = 0;
    int       n_bits = 0;

    *out = NULL;
    while (length > 0 && text[length - 1] == '=')
        length--;
    HL_TRY(HL_ALLOC(&blob, length / 4 * 3 + 3));
    for (size_t i = 0; i < length; i++) {
        int value = base64_value(text[i]);
        if (value < 0)
            HL_TRY(hl_fail(HL_BAD_INPUT, "a charsmap that is not base64, at %zu", i));
        bits = bits << 6 | (uint32_t)value;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            blob[n_blob++] = (uint8_t)(bits >> n_bits);
        }
    }
    HL_TRY(hl_charsmap_new(out, blob, n_blob));

done:
    hl_free(blob);
    return status;
}

/* ----------------------------------------------------------------- looking up */

static uint32_t unit_offset(uint32_t unit)
{
    return unit >> 10 << ((unit & 1U << 9) >> 6);
}

/* The replacement of the shortest beginning of the bytes that has one; NULL if none. */
static const char *find(const hl_charsmap *map, const char *bytes, size_t n_bytes)
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

/* ---------------------------------------------------------------- replacing */

/* One character is held back: what vanishes without a trace is charged to it. */
typedef struct replacer {
    hl_transform transform;
    bool         has_last;
    uint32_t     last;
    int          change;
} replacer;

static void put(replacer *r, uint32_t code_point, int change)
{
    if (r->has_last)
        hl_transform_put(&r->transform, r->last, r->change);
    r->has_last = true;
    r->last     = code_point;
    r->change   = change;
}

static int count_characters(const char *bytes, size_t n_bytes)
{
    int count = 0;
    for (size_t i = 0; i < n_bytes; i++)
        count += !hl_utf8_is_continuation(bytes[i]);
    return count;
}

/* `old_count` characters become the replacement: one for one as far as it goes, then
 * insertions, or the last one swallows the rest. */
static void replace(replacer *r, int old_count, const char *replacement)
{
    size_t length    = strlen(replacement);
    int    new_count = count_characters(replacement, length);
    int    index     = 0;

    for (size_t at = 0; at < length; index++)
        put(r, hl_utf8_next(replacement, &at), index >= old_count);
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
        const char *whole = find(map, bytes, n_bytes);
        if (whole != NULL) {
            replace(r, count_characters(bytes, n_bytes), whole);
            return;
        }
    }
    for (size_t at = 0; at < n_bytes;) {
        size_t      begin      = at;
        uint32_t    code_point = hl_utf8_next(bytes, &at);
        const char *single     = find(map, bytes + begin, at - begin);
        if (single != NULL)
            replace(r, 1, single);
        else
            put(r, code_point, 0);
    }
}

/* The end of the user-perceived character that begins at `begin`. */
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
