/* normal_form.c - decompose, order, compose; one character at a time.
 *
 * utf8proc normalises whole strings, but does not say which character came from
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
#include "tokenize/normal_form.h"

#include "base/status.h"
#include "base/utf8.h"
#include "tokenize/buffer.h"
#include "tokenize/unicode.h"

/* No character below is part of a decomposition's tail or has a combining class. */
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
    letter       base;      /* may still grow */
    letters      blocked;   /* marks behind the base that it did not take */
    int          last_mark; /* the class of the last of them; 0: none */
    hl_status    status;
} former;

static void push(former *f, letters *list, letter item)
{
    if (f->status != HL_OK)
        return;
    f->status = HL_GROW(&list->items, &list->capacity, list->count, 1);
    if (f->status == HL_OK)
        list->items[list->count++] = item;
}

static void emit(former *f, letter item)
{
    hl_transform_put(&f->transform, item.code_point, item.change);
}

static void emit_base(former *f)
{
    if (f->has_base)
        emit(f, f->base);
    for (size_t i = 0; i < f->blocked.count; i++)
        emit(f, f->blocked.items[i]);
    f->blocked.count = 0;
    f->last_mark     = 0;
    f->has_base      = false;
}

/* The third step.  A mark is blocked by an earlier one of the same or a higher class. */
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
        emit(f, next);
    } else {
        push(f, &f->blocked, next);
        f->last_mark = next.combining;
    }
}

/* Insertion sort: there are rarely more than two marks.  A text of a million
 * marks on one base would be slow, so beyond a bound they stay as they are. */
static void order(letters *list)
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

static void flush(former *f)
{
    order(&f->pending);
    for (size_t i = 0; i < f->pending.count; i++) {
        if (f->compose)
            compose(f, f->pending.items[i]);
        else
            emit(f, f->pending.items[i]);
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
            flush(f);
        push(f, &f->pending, (letter){ parts[i], i > 0, combining });
    }
}

/* Characters that NFC does not change and that do not join what is before them. */
static bool is_quiet(uint32_t c)
{
    return c < 0x300 || (c >= 0x400 && c <= 0x482) || (c >= 0x5d0 && c <= 0x5ea) ||
           (c >= 0x621 && c <= 0x64a) || (c >= 0x2010 && c <= 0x2027) ||
           (c >= 0x2030 && c <= 0x205e) || (c >= 0x3041 && c <= 0x3096) ||
           (c >= 0x30a1 && c <= 0x30fa) || (c >= 0x4e00 && c <= 0x9fff) ||
           (c >= 0xac00 && c <= 0xd7a3);
}

/* Copies quiet characters from `at` on, all but the last, which a mark may follow. */
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
        flush(f);
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

hl_status hl_normal_form(hl_mapped_text *out, hl_mapped_text_builder *builder,
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
    flush(&f);
    emit_base(&f);
    if (f.status == HL_OK)
        f.status = hl_transform_end(out, &f.transform);
    hl_free(f.pending.items);
    hl_free(f.blocked.items);
    return f.status;
}
