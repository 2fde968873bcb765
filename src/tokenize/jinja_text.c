/* jinja_text.c - strings of templates: their methods, % and format.
 *
 * All positions that a template sees count characters.  Every result keeps the roles of the bytes
 * that it is made of. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenize/jinja_parts.h"
#include "tokenize/unicode.h"

#define METHOD(name) static hl_jvalue name(hl_jrun *run, hl_jvalue self, hl_jvalue *args)

static bool given(hl_jvalue value)
{
    return value.kind != HL_J_ABSENT && value.kind != HL_J_NONE;
}

static hl_jvalue need_text(hl_jrun *run, hl_jvalue value, const char *what)
{
    if (value.kind == HL_J_UNDEFINED)
        hl_jundefined_raise(run, value);
    if (value.kind != HL_J_STRING)
        hl_jraise(run, "TypeError", "%s must be str, not %s", what, hl_jtype(value));
    return value;
}

bool hl_jis_space(uint32_t c)
{
    return hl_char_is(HL_CHAR_WHITESPACE, c) || (c >= 0x1c && c <= 0x1f);
}

/* The place of a word at or after byte `at`; the end of the text if there is none. */
static size_t find_at(hl_jrun *run, hl_jvalue text, size_t at, hl_jvalue word)
{
    const char *found = hl_find_bytes(text.bytes + at, text.n_bytes - at, word.bytes, word.n_bytes);
    size_t      place = found != NULL ? (size_t)(found - text.bytes) : text.n_bytes;

    hl_jwork(run, place - at);
    return place;
}

/* The last place of a word that ends at or before byte `end`; SIZE_MAX if there is none. */
static size_t find_last(hl_jrun *run, hl_jvalue text, size_t end, hl_jvalue word)
{
    hl_jwork(run, end);
    for (size_t at = end >= word.n_bytes ? end - word.n_bytes + 1 : 0; at-- > 0;) {
        if (word.n_bytes == 0 || memcmp(text.bytes + at, word.bytes, word.n_bytes) == 0)
            return at;
    }
    return SIZE_MAX;
}

/* ------------------------------------------------------------------------------ letters */

typedef enum letter_change { TO_UPPER, TO_LOWER, TO_TITLE, TO_SWAPPED } letter_change;

static void put_changed(hl_jrun *run, hl_jbuffer *out, uint32_t c, uint8_t role,
                        letter_change change)
{
    uint32_t letters[3];
    size_t   n = 0;

    if (change == TO_SWAPPED)
        change = hl_char_is(HL_CHAR_UPPER, c) ? TO_LOWER : TO_UPPER;
    if (change == TO_LOWER)
        n = hl_char_lowercase(letters, c);
    else
        n = hl_char_uppercase(letters, c, change == TO_TITLE);
    for (size_t i = 0; i < n; i++)
        hl_jput_character(run, out, letters[i], role);
}

static bool is_cased(uint32_t c)
{
    return hl_char_is(HL_CHAR_UPPER, c) || hl_char_is(HL_CHAR_LOWER, c) ||
           hl_char_is(HL_CHAR_TITLE, c);
}

/* A capital sigma becomes the final one if a letter stands before it and none behind it. */
static bool is_final_sigma(hl_jvalue text, size_t begin, size_t end, uint32_t c, uint32_t before)
{
    if (c != 0x3a3 || !is_cased(before))
        return false;
    (void)begin;
    return end >= text.n_bytes || !is_cased(hl_utf8_next(text.bytes, &end));
}

/* Changes the first character, or after other characters than letters, in one way and the others in
 * another way. */
static hl_jvalue change_letters(hl_jrun *run, hl_jvalue text, letter_change first,
                                letter_change rest, bool words)
{
    hl_jbuffer out    = { 0 };
    uint32_t   before = 0;
    bool       start  = true;

    for (size_t at = 0; at < text.n_bytes;) {
        size_t        begin  = at;
        uint8_t       role   = hl_jrole(text, at);
        uint32_t      c      = hl_utf8_next(text.bytes, &at);
        letter_change change = start ? first : rest;
        if (change == TO_LOWER && is_final_sigma(text, begin, at, c, before))
            hl_jput_character(run, &out, 0x3c2, role);
        else
            put_changed(run, &out, c, role, change);
        start  = words && !is_cased(c);
        before = c;
    }
    hl_jvalue value = hl_jfinish(run, &out);
    value.markup    = text.markup;
    return value;
}

hl_jvalue hl_jstring_upper(hl_jrun *run, hl_jvalue text)
{
    return change_letters(run, text, TO_UPPER, TO_UPPER, false);
}

hl_jvalue hl_jstring_lower(hl_jrun *run, hl_jvalue text)
{
    return change_letters(run, text, TO_LOWER, TO_LOWER, false);
}

hl_jvalue hl_jstring_capitalize(hl_jrun *run, hl_jvalue text)
{
    return change_letters(run, text, TO_TITLE, TO_LOWER, false);
}

METHOD(method_upper)
{
    (void)args;
    return hl_jstring_upper(run, self);
}

METHOD(method_lower)
{
    (void)args;
    return hl_jstring_lower(run, self);
}

METHOD(method_capitalize)
{
    (void)args;
    return hl_jstring_capitalize(run, self);
}

METHOD(method_title)
{
    (void)args;
    return change_letters(run, self, TO_TITLE, TO_LOWER, true);
}

METHOD(method_swapcase)
{
    (void)args;
    return change_letters(run, self, TO_SWAPPED, TO_SWAPPED, false);
}

/* ------------------------------------------------------------------- kinds of strings */

static bool is_digit(uint32_t c)
{
    return hl_char_is(HL_CHAR_DECIMAL, c) || c == 0xb2 || c == 0xb3 || c == 0xb9 || c == 0x2070 ||
           (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
           (c >= 0x2460 && c <= 0x2468);
}

static bool has_kind(uint32_t c, char kind, bool first)
{
    switch (kind) {
    case 's':
        return hl_jis_space(c);
    case 'a':
        return hl_char_is(HL_CHAR_LETTER, c);
    case 'n':
        return hl_char_is(HL_CHAR_LETTER, c) || hl_char_is(HL_CHAR_NUMERIC, c);
    case 'd':
        return is_digit(c);
    case 'D':
        return hl_char_is(HL_CHAR_DECIMAL, c);
    case 'N':
        return hl_char_is(HL_CHAR_NUMERIC, c);
    case 'p':
        return c == ' ' || hl_char_is(HL_CHAR_PRINTABLE, c);
    case 'i':
        return c == '_' || hl_char_is(HL_CHAR_LETTER, c) ||
               (!first && hl_char_is(HL_CHAR_WORD, c) && c != 0x200c && c != 0x200d);
    default:
        return c < 0x80;
    }
}

static bool all_have(hl_jvalue text, char kind, bool empty)
{
    if (text.n_bytes == 0)
        return empty;
    for (size_t at = 0; at < text.n_bytes;) {
        bool first = at == 0;
        if (!has_kind(hl_utf8_next(text.bytes, &at), kind, first))
            return false;
    }
    return true;
}

/* Letters are of one case, and there is one. */
static bool all_cased(hl_jvalue text, hl_char_class wanted)
{
    bool seen = false;

    for (size_t at = 0; at < text.n_bytes;) {
        uint32_t c = hl_utf8_next(text.bytes, &at);
        if (is_cased(c) && !hl_char_is(wanted, c))
            return false;
        seen |= is_cased(c);
    }
    return seen;
}

static bool is_title(hl_jvalue text)
{
    bool seen = false, within = false;

    for (size_t at = 0; at < text.n_bytes;) {
        uint32_t c     = hl_utf8_next(text.bytes, &at);
        bool     lower = hl_char_is(HL_CHAR_LOWER, c);
        if (is_cased(c) && lower != within)
            return false;
        within = is_cased(c);
        seen |= within;
    }
    return seen;
}

bool hl_jstring_is(hl_jvalue text, const char *what)
{
    return strcmp(what, "upper") == 0 ? all_cased(text, HL_CHAR_UPPER)
                                      : all_cased(text, HL_CHAR_LOWER);
}

#define IS_METHOD(name, condition)                                                                 \
    METHOD(name)                                                                                   \
    {                                                                                              \
        (void)args;                                                                                \
        hl_jwork(run, self.n_bytes);                                                               \
        return hl_jbool(condition);                                                                \
    }

IS_METHOD(method_isupper, all_cased(self, HL_CHAR_UPPER))
IS_METHOD(method_islower, all_cased(self, HL_CHAR_LOWER))
IS_METHOD(method_istitle, is_title(self))
IS_METHOD(method_isspace, all_have(self, 's', false))
IS_METHOD(method_isalpha, all_have(self, 'a', false))
IS_METHOD(method_isalnum, all_have(self, 'n', false))
IS_METHOD(method_isdigit, all_have(self, 'd', false))
IS_METHOD(method_isdecimal, all_have(self, 'D', false))
IS_METHOD(method_isnumeric, all_have(self, 'N', false))
IS_METHOD(method_isascii, all_have(self, 'A', true))
IS_METHOD(method_isprintable, all_have(self, 'p', true))
IS_METHOD(method_isidentifier, all_have(self, 'i', false))

/* -------------------------------------------------------------------------- stripping */

static bool is_among(uint32_t c, hl_jvalue characters)
{
    if (!given(characters))
        return hl_jis_space(c);
    for (size_t at = 0; at < characters.n_bytes;) {
        if (hl_utf8_next(characters.bytes, &at) == c)
            return true;
    }
    return false;
}

hl_jvalue hl_jstring_strip(hl_jrun *run, hl_jvalue text, hl_jvalue characters, bool left,
                           bool right)
{
    size_t begin = 0, end = text.n_bytes;

    if (given(characters) && characters.kind != HL_J_STRING)
        hl_jraise(run, "TypeError", "strip arg must be None or str");
    while (left && begin < end) {
        size_t next = begin;
        hl_jwork(run, given(characters) ? characters.n_bytes : 0);
        if (!is_among(hl_utf8_next(text.bytes, &next), characters))
            break;
        begin = next;
    }
    while (right && end > begin) {
        size_t at = end - 1;
        hl_jwork(run, given(characters) ? characters.n_bytes : 0);
        while (hl_utf8_is_continuation(text.bytes[at]))
            at--;
        size_t next = at;
        if (!is_among(hl_utf8_next(text.bytes, &next), characters))
            break;
        end = at;
    }
    return hl_jpart(text, begin, end);
}

METHOD(method_strip)
{
    return hl_jstring_strip(run, self, args[0], true, true);
}

METHOD(method_lstrip)
{
    return hl_jstring_strip(run, self, args[0], true, false);
}

METHOD(method_rstrip)
{
    return hl_jstring_strip(run, self, args[0], false, true);
}

static bool starts_with(hl_jvalue text, hl_jvalue word)
{
    return word.n_bytes <= text.n_bytes && memcmp(text.bytes, word.bytes, word.n_bytes) == 0;
}

static bool ends_with(hl_jvalue text, hl_jvalue word)
{
    return word.n_bytes <= text.n_bytes &&
           memcmp(text.bytes + text.n_bytes - word.n_bytes, word.bytes, word.n_bytes) == 0;
}

METHOD(method_removeprefix)
{
    hl_jvalue word = need_text(run, args[0], "removeprefix() argument");

    return starts_with(self, word) ? hl_jpart(self, word.n_bytes, self.n_bytes) : self;
}

METHOD(method_removesuffix)
{
    hl_jvalue word = need_text(run, args[0], "removesuffix() argument");

    return word.n_bytes > 0 && ends_with(self, word)
               ? hl_jpart(self, 0, self.n_bytes - word.n_bytes)
               : self;
}

/* --------------------------------------------------------------------------- searching */

/* The part [start, end) in characters that most methods can be limited to; *before is the number of
 * characters before it. */
static hl_jvalue limited(hl_jrun *run, int64_t *before, hl_jvalue self, hl_jvalue begin,
                         hl_jvalue end)
{
    hl_jvalue bounds[3] = { begin, end, { 0 } };
    int64_t   first, last, step;

    *before = 0;
    if (!given(begin) && !given(end))
        return self;
    int64_t n = hl_jlength(run, self).integer;
    hl_jslice_bounds(run, &first, &last, &step, n, bounds);
    *before = first;
    if (given(begin) && hl_jis_int(begin) && begin.integer > n)
        return (hl_jvalue){ 0 }; /* nothing is found there, not even an empty word */
    return hl_jslice(run, self, bounds);
}

static hl_jvalue find_character(hl_jrun *run, hl_jvalue self, const hl_jvalue *args, bool last)
{
    int64_t   before = 0;
    hl_jvalue word   = need_text(run, args[0], "must be str: argument");
    hl_jvalue text   = limited(run, &before, self, args[1], args[2]);

    if (text.kind == HL_J_ABSENT)
        return hl_jint(-1);
    size_t at = last ? find_last(run, text, text.n_bytes, word) : find_at(run, text, 0, word);
    if (at == SIZE_MAX || at + word.n_bytes > text.n_bytes)
        return hl_jint(-1);
    if (!last && at == text.n_bytes && word.n_bytes > 0)
        return hl_jint(-1);
    return hl_jint(before + (int64_t)hl_utf8_count(text.bytes, at));
}

METHOD(method_find)
{
    return find_character(run, self, args, false);
}

METHOD(method_rfind)
{
    return find_character(run, self, args, true);
}

static hl_jvalue must_find(hl_jrun *run, hl_jvalue place)
{
    if (place.integer < 0)
        hl_jraise(run, "ValueError", "substring not found");
    return place;
}

METHOD(method_index)
{
    return must_find(run, find_character(run, self, args, false));
}

METHOD(method_rindex)
{
    return must_find(run, find_character(run, self, args, true));
}

METHOD(method_count)
{
    int64_t   before = 0, n = 0;
    hl_jvalue word = need_text(run, args[0], "must be str: argument");
    hl_jvalue text = limited(run, &before, self, args[1], args[2]);

    if (text.kind == HL_J_ABSENT)
        return hl_jint(0);
    if (word.n_bytes == 0)
        return hl_jint(hl_jlength(run, text).integer + 1);
    for (size_t at = 0; (at = find_at(run, text, at, word)) < text.n_bytes; at += word.n_bytes)
        n++;
    return hl_jint(n);
}

static hl_jvalue tests_end(hl_jrun *run, hl_jvalue self, const hl_jvalue *args, bool start)
{
    const char *name   = start ? "startswith" : "endswith";
    int64_t     before = 0;
    hl_jvalue   text   = limited(run, &before, self, args[1], args[2]);
    hl_jvalue   words  = args[0];

    if (words.kind == HL_J_UNDEFINED || (words.kind != HL_J_STRING && words.kind != HL_J_TUPLE))
        hl_jraise(run, "TypeError", "%s first arg must be str or a tuple of str, not %s", name,
                  hl_jtype(words));
    if (text.kind == HL_J_ABSENT)
        return hl_jbool(false);
    size_t n = words.kind == HL_J_TUPLE ? words.list->n : 1;
    for (size_t i = 0; i < n; i++) {
        hl_jvalue word = words.kind == HL_J_TUPLE ? words.list->items[i] : words;
        if (word.kind != HL_J_STRING)
            hl_jraise(run, "TypeError", "tuple for %s must only contain str, not %s", name,
                      hl_jtype(word));
        hl_jwork(run, word.n_bytes);
        if (start ? starts_with(text, word) : ends_with(text, word))
            return hl_jbool(true);
    }
    return hl_jbool(false);
}

METHOD(method_startswith)
{
    return tests_end(run, self, args, true);
}

METHOD(method_endswith)
{
    return tests_end(run, self, args, false);
}

hl_jvalue hl_jstring_replace(hl_jrun *run, hl_jvalue text, hl_jvalue old, hl_jvalue new,
                             int64_t count)
{
    hl_jbuffer out = { 0 };
    size_t     at  = 0;

    if (count < 0)
        count = INT64_MAX;
    if (old.n_bytes == 0) { /* between all characters */
        for (; count > 0; count--) {
            size_t begin = at;
            hl_jput_string(run, &out, new);
            hl_jstep(run, 1);
            if (at >= text.n_bytes)
                break;
            (void)hl_utf8_next(text.bytes, &at);
            hl_jput_string(run, &out, hl_jpart(text, begin, at));
        }
    }
    while (old.n_bytes > 0 && count-- > 0) {
        size_t found = find_at(run, text, at, old);
        if (found >= text.n_bytes)
            break;
        hl_jput_string(run, &out, hl_jpart(text, at, found));
        hl_jput_string(run, &out, new);
        at = found + old.n_bytes;
    }
    if (at == 0 && out.n_bytes == 0 && (old.n_bytes > 0 || new.n_bytes == 0))
        return text;
    hl_jput_string(run, &out, hl_jpart(text, at, text.n_bytes));
    hl_jvalue value = hl_jfinish(run, &out);
    value.markup    = text.markup;
    return value;
}

METHOD(method_replace)
{
    return hl_jstring_replace(run, self, need_text(run, args[0], "replace() argument 1"),
                              need_text(run, args[1], "replace() argument 2"),
                              args[2].kind != HL_J_ABSENT ? hl_jindex(run, args[2]) : -1);
}

/* --------------------------------------------------------------------------- splitting */

static void split_spaces(hl_jrun *run, hl_jlist *list, hl_jvalue text, int64_t most)
{
    size_t at = 0;

    for (;;) {
        hl_jvalue rest =
            hl_jstring_strip(run, hl_jpart(text, at, text.n_bytes), (hl_jvalue){ 0 }, true, false);
        size_t begin = text.n_bytes - rest.n_bytes, end = begin;
        if (rest.n_bytes == 0)
            return;
        if (most-- == 0) {
            hl_jlist_add(run, list, rest);
            return;
        }
        while (end < text.n_bytes) {
            size_t next = end;
            if (hl_jis_space(hl_utf8_next(text.bytes, &next)))
                break;
            end = next;
        }
        hl_jwork(run, end - begin);
        hl_jlist_add(run, list, hl_jpart(text, begin, end));
        at = end;
    }
}

static void reverse_items(hl_jlist *list)
{
    for (size_t i = 0; i + 1 < list->n - i; i++) {
        hl_jvalue item               = list->items[i];
        list->items[i]               = list->items[list->n - 1 - i];
        list->items[list->n - 1 - i] = item;
    }
}

static void split_spaces_from_end(hl_jrun *run, hl_jlist *list, hl_jvalue text, int64_t most)
{
    for (;;) {
        text         = hl_jstring_strip(run, text, (hl_jvalue){ 0 }, false, true);
        size_t begin = text.n_bytes;
        if (begin == 0)
            break;
        if (most-- == 0) {
            hl_jlist_add(run, list, text);
            break;
        }
        while (begin > 0) {
            size_t at = begin - 1;
            while (hl_utf8_is_continuation(text.bytes[at]))
                at--;
            size_t next = at;
            if (hl_jis_space(hl_utf8_next(text.bytes, &next)))
                break;
            begin = at;
        }
        hl_jwork(run, text.n_bytes - begin);
        hl_jlist_add(run, list, hl_jpart(text, begin, text.n_bytes));
        text = hl_jpart(text, 0, begin);
    }
    if (list->n > 1)
        reverse_items(list);
}

static void split_words(hl_jrun *run, hl_jlist *list, hl_jvalue text, hl_jvalue word, int64_t most)
{
    size_t at = 0, found;

    while (most-- > 0 && (found = find_at(run, text, at, word)) < text.n_bytes) {
        hl_jlist_add(run, list, hl_jpart(text, at, found));
        at = found + word.n_bytes;
    }
    hl_jlist_add(run, list, hl_jpart(text, at, text.n_bytes));
}

static void split_words_from_end(hl_jrun *run, hl_jlist *list, hl_jvalue text, hl_jvalue word,
                                 int64_t most)
{
    size_t end = text.n_bytes, found;

    while (most-- > 0 && (found = find_last(run, text, end, word)) != SIZE_MAX) {
        hl_jlist_add(run, list, hl_jpart(text, found + word.n_bytes, end));
        end = found;
    }
    hl_jlist_add(run, list, hl_jpart(text, 0, end));
    reverse_items(list);
}

static hl_jvalue split(hl_jrun *run, hl_jvalue self, const hl_jvalue *args, bool from_end)
{
    hl_jvalue list = hl_jlist_new(run, HL_J_LIST);
    int64_t   most = args[1].kind != HL_J_ABSENT ? hl_jindex(run, args[1]) : -1;

    if (most < 0)
        most = INT64_MAX;
    if (!given(args[0])) {
        (from_end ? split_spaces_from_end : split_spaces)(run, list.list, self, most);
        return list;
    }
    if (args[0].kind != HL_J_STRING)
        hl_jraise(run, "TypeError", "must be str or None, not %s", hl_jtype(args[0]));
    if (args[0].n_bytes == 0)
        hl_jraise(run, "ValueError", "empty separator");
    (from_end ? split_words_from_end : split_words)(run, list.list, self, args[0], most);
    return list;
}

METHOD(method_split)
{
    return split(run, self, args, false);
}

METHOD(method_rsplit)
{
    return split(run, self, args, true);
}

static bool is_line_end(uint32_t c)
{
    return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

hl_jvalue hl_jstring_lines(hl_jrun *run, hl_jvalue text, bool keep)
{
    hl_jvalue list  = hl_jlist_new(run, HL_J_LIST);
    size_t    begin = 0;

    hl_jwork(run, text.n_bytes);
    for (size_t at = 0; at < text.n_bytes;) {
        size_t   before = at;
        uint32_t c      = hl_utf8_next(text.bytes, &at);
        if (!is_line_end(c))
            continue;
        if (c == '\r' && at < text.n_bytes && text.bytes[at] == '\n')
            at++;
        hl_jlist_add(run, list.list, hl_jpart(text, begin, keep ? at : before));
        begin = at;
    }
    if (begin < text.n_bytes)
        hl_jlist_add(run, list.list, hl_jpart(text, begin, text.n_bytes));
    return list;
}

METHOD(method_splitlines)
{
    return hl_jstring_lines(run, self, hl_jtruth(run, args[0]));
}

static hl_jvalue partition(hl_jrun *run, hl_jvalue self, hl_jvalue word, bool last)
{
    hl_jvalue parts = hl_jlist_new(run, HL_J_TUPLE), empty = hl_jtext("");

    need_text(run, word, "must be str: argument");
    if (word.n_bytes == 0)
        hl_jraise(run, "ValueError", "empty separator");
    size_t at    = last ? find_last(run, self, self.n_bytes, word) : find_at(run, self, 0, word);
    bool   found = at < self.n_bytes;
    hl_jlist_add(run, parts.list, found ? hl_jpart(self, 0, at) : last ? empty : self);
    hl_jlist_add(run, parts.list, found ? hl_jpart(self, at, at + word.n_bytes) : empty);
    hl_jlist_add(run, parts.list,
                 found  ? hl_jpart(self, at + word.n_bytes, self.n_bytes)
                 : last ? self
                        : empty);
    return parts;
}

METHOD(method_partition)
{
    return partition(run, self, args[0], false);
}

METHOD(method_rpartition)
{
    return partition(run, self, args[0], true);
}

METHOD(method_join)
{
    hl_jbuffer out = { 0 };
    hl_jvalue  item;
    size_t     n = 0;

    if (!hl_jcan_iterate(args[0]))
        hl_jraise(run, "TypeError", "can only join an iterable");
    for (hl_jiterator i = hl_jiterate(run, args[0]); hl_jnext(run, &i, &item); n++) {
        if (item.kind != HL_J_STRING)
            hl_jraise(run, "TypeError", "sequence item %zu: expected str instance, %s found", n,
                      hl_jtype(item));
        if (n > 0)
            hl_jput_string(run, &out, self);
        hl_jput_string(run, &out,
                       self.markup && !item.markup ? hl_jstring_escape(run, item) : item);
    }
    hl_jvalue value = hl_jfinish(run, &out);
    value.markup    = self.markup;
    return value;
}

/* ---------------------------------------------------------------------------- padding */

static void put_times(hl_jrun *run, hl_jbuffer *out, hl_jvalue text, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        hl_jput_string(run, out, text);
}

static hl_jvalue pad(hl_jrun *run, hl_jvalue text, int64_t left, int64_t right, hl_jvalue fill)
{
    hl_jbuffer out = { 0 };

    put_times(run, &out, fill, left);
    hl_jput_string(run, &out, text);
    put_times(run, &out, fill, right);
    hl_jvalue value = hl_jfinish(run, &out);
    value.markup    = text.markup;
    return value;
}

static hl_jvalue fill_of(hl_jrun *run, hl_jvalue given_fill)
{
    if (!given(given_fill))
        return hl_jtext(" ");
    if (given_fill.kind != HL_J_STRING || hl_utf8_count(given_fill.bytes, given_fill.n_bytes) != 1)
        hl_jraise(run, "TypeError", "The fill character must be exactly one character long");
    return given_fill;
}

/* The odd blank goes where Python puts it. */
static hl_jvalue centered(hl_jrun *run, hl_jvalue text, int64_t width, hl_jvalue fill)
{
    int64_t more = width - hl_jlength(run, text).integer;

    if (more <= 0)
        return text;
    int64_t left = more / 2 + (more & width & 1);
    return pad(run, text, left, more - left, fill);
}

hl_jvalue hl_jstring_center(hl_jrun *run, hl_jvalue text, int64_t width)
{
    return centered(run, text, width, hl_jtext(" "));
}

METHOD(method_center)
{
    return centered(run, self, hl_jindex(run, args[0]), fill_of(run, args[1]));
}

METHOD(method_ljust)
{
    int64_t more = hl_jindex(run, args[0]) - hl_jlength(run, self).integer;

    return pad(run, self, 0, more, fill_of(run, args[1]));
}

METHOD(method_rjust)
{
    int64_t more = hl_jindex(run, args[0]) - hl_jlength(run, self).integer;

    return pad(run, self, more, 0, fill_of(run, args[1]));
}

METHOD(method_zfill)
{
    int64_t more        = hl_jindex(run, args[0]) - hl_jlength(run, self).integer;
    bool    signed_text = self.n_bytes > 0 && (self.bytes[0] == '+' || self.bytes[0] == '-');

    if (!signed_text || more <= 0)
        return pad(run, self, more, 0, hl_jtext("0"));
    return hl_jconcat(run, hl_jpart(self, 0, 1),
                      pad(run, hl_jpart(self, 1, self.n_bytes), more, 0, hl_jtext("0")));
}

METHOD(method_expandtabs)
{
    int64_t    size   = args[0].kind != HL_J_ABSENT ? hl_jindex(run, args[0]) : 8;
    int64_t    column = 0;
    hl_jbuffer out    = { 0 };

    for (size_t at = 0; at < self.n_bytes;) {
        size_t   begin = at;
        uint32_t c     = hl_utf8_next(self.bytes, &at);
        if (c == '\t') {
            int64_t n = size > 0 ? size - column % size : 0;
            put_times(run, &out, hl_jtext(" "), n);
            column += n;
            continue;
        }
        hl_jput_string(run, &out, hl_jpart(self, begin, at));
        column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
    return hl_jfinish(run, &out);
}

/* ---------------------------------------------------------------------------- escaping */

hl_jvalue hl_jstring_escape(hl_jrun *run, hl_jvalue text)
{
    static const char  special[]  = "&<>\"'";
    static const char *entities[] = { "&amp;", "&lt;", "&gt;", "&#34;", "&#39;" };
    hl_jbuffer         out        = { 0 };
    size_t             begin      = 0;

    for (size_t at = 0; !text.markup && at < text.n_bytes; at++) {
        const char *found = text.bytes[at] != '\0' ? strchr(special, text.bytes[at]) : NULL;
        if (found == NULL)
            continue;
        const char *entity = entities[found - special];
        hl_jput_string(run, &out, hl_jpart(text, begin, at));
        hl_jput(run, &out, entity, strlen(entity), hl_jrole(text, at));
        begin = at + 1;
    }
    if (begin > 0) {
        hl_jput_string(run, &out, hl_jpart(text, begin, text.n_bytes));
        text = hl_jfinish(run, &out);
    }
    text.markup = true;
    return text;
}

/* ------------------------------------------------------------------ reading numbers */

/* Copies the text without underscores between digits; false if it cannot be a number. */
static bool number_text(char *out, size_t room, hl_jvalue text)
{
    size_t n = 0;

    for (size_t i = 0; i < text.n_bytes; i++) {
        char c = text.bytes[i];
        if (c == '\0' || n + 1 >= room)
            return false;
        if (c != '_') {
            out[n++] = c;
            continue;
        }
        bool between = i > 0 && i + 1 < text.n_bytes && text.bytes[i - 1] != '_' &&
                       strchr("+-. \t\n", text.bytes[i - 1]) == NULL &&
                       strchr("+-. \t\n_", text.bytes[i + 1]) == NULL;
        if (!between)
            return false;
    }
    out[n] = '\0';
    return n > 0;
}

/* A number in Python has no hexadecimal fraction and no name but these. */
static bool only_decimal(const char *text)
{
    const char *word = text + (text[0] == '+' || text[0] == '-');

    if (strcasecmp(word, "inf") == 0 || strcasecmp(word, "infinity") == 0 ||
        strcasecmp(word, "nan") == 0)
        return true;
    return text[strspn(text, "+-.0123456789eE")] == '\0';
}

bool hl_jread_int(hl_jrun *run, int64_t *out, hl_jvalue text, int64_t base)
{
    char  digits[128];
    char *end  = NULL;
    text       = hl_jstring_strip(run, text, (hl_jvalue){ 0 }, true, true);
    bool  fits = number_text(digits, sizeof digits, text);
    char *from = digits + (fits && (digits[0] == '+' || digits[0] == '-'));

    if (!fits || base == 1 || base < 0 || base > 36)
        return false;
    bool prefix = from[0] == '0' && from[1] != '\0' && strchr("xXoObB", from[1]) != NULL;
    int  marked = !prefix ? 10 : (from[1] | 0x20) == 'x' ? 16 : (from[1] | 0x20) == 'o' ? 8 : 2;
    if (prefix && (base == 0 || base == marked)) {
        base = marked;
        memmove(from, from + 2, strlen(from + 2) + 1);
    } else if (base == 0) {
        base = 10;
        if (from[0] == '0' && from[strspn(from, "0")] != '\0')
            return false;
    }
    if (from[0] == '\0' || strchr("+- \t\n\r\f\v", from[0]) != NULL)
        return false;
    errno           = 0;
    long long value = strtoll(digits, &end, (int)base);
    if (*end != '\0')
        return false;
    if (errno == ERANGE)
        hl_jraise(run, "OverflowError", "an integer of more than 64 bits");
    *out = value;
    return true;
}

bool hl_jread_float(double *out, hl_jvalue text)
{
    char  digits[400];
    char *end = NULL;

    while (text.n_bytes > 0 && hl_jis_space((unsigned char)text.bytes[0]) &&
           (unsigned char)text.bytes[0] < 0x80)
        text = hl_jpart(text, 1, text.n_bytes);
    while (text.n_bytes > 0 && (unsigned char)text.bytes[text.n_bytes - 1] < 0x80 &&
           hl_jis_space((unsigned char)text.bytes[text.n_bytes - 1]))
        text = hl_jpart(text, 0, text.n_bytes - 1);
    if (!number_text(digits, sizeof digits, text) || !only_decimal(digits))
        return false;
    *out = strtod(digits, &end);
    return *end == '\0';
}

/* ------------------------------------------------------------------- formatting */

/* [[fill]align][sign][#][0][width][,][.precision][type] */
typedef struct format_spec {
    hl_jvalue fill;
    char      align; /* '<' '>' '^' '=' or 0 */
    char      sign;  /* '+', '-' or ' ' */
    bool      alternate;
    char      group; /* ',', '_' or 0 */
    int64_t   width;
    int64_t   precision; /* -1: none */
    char      type;      /* 0: none */
} format_spec;

#define MAX_WIDTH 1000000

static int64_t read_count(hl_jrun *run, hl_jvalue text, size_t *at)
{
    int64_t n = 0;

    for (; *at < text.n_bytes && text.bytes[*at] >= '0' && text.bytes[*at] <= '9'; (*at)++) {
        n = 10 * n + text.bytes[*at] - '0';
        if (n > MAX_WIDTH)
            hl_jraise(run, "ValueError", "Too many decimal digits in format string");
    }
    return n;
}

static char at_or_end(hl_jvalue text, size_t at)
{
    return at < text.n_bytes ? text.bytes[at] : '\0';
}

static bool is_align(char c)
{
    return c != '\0' && strchr("<>=^", c) != NULL;
}

static format_spec read_spec(hl_jrun *run, hl_jvalue text)
{
    format_spec spec = { .fill = hl_jtext(" "), .sign = '-', .precision = -1 };
    size_t      at = 0, next = 0;

    if (text.n_bytes > 0)
        (void)hl_utf8_next(text.bytes, &next);
    if (is_align(at_or_end(text, next)) && next > 0) {
        spec.fill  = hl_jpart(text, 0, next);
        spec.align = text.bytes[next];
        at         = next + 1;
    } else if (is_align(at_or_end(text, 0))) {
        spec.align = text.bytes[at++];
    }
    if (at < text.n_bytes && strchr("+- ", text.bytes[at]) != NULL)
        spec.sign = text.bytes[at++];
    if (at_or_end(text, at) == '#') {
        spec.alternate = true;
        at++;
    }
    if (at_or_end(text, at) == '0') {
        if (spec.align == 0) {
            spec.align = '=';
            spec.fill  = hl_jtext("0");
        }
        at++;
    }
    spec.width = read_count(run, text, &at);
    if (at_or_end(text, at) == ',' || at_or_end(text, at) == '_')
        spec.group = text.bytes[at++];
    if (at_or_end(text, at) == '.') {
        at++;
        size_t begin   = at;
        spec.precision = read_count(run, text, &at);
        if (at == begin)
            hl_jraise(run, "ValueError", "Format specifier missing precision");
    }
    if (at < text.n_bytes)
        spec.type = text.bytes[at++];
    if (at < text.n_bytes)
        hl_jraise(run, "ValueError", "Invalid format specifier");
    return spec;
}

static void put_padded(hl_jrun *run, hl_jbuffer *out, const format_spec *spec, hl_jvalue sign,
                       hl_jvalue body, char usual)
{
    char    align = spec->align != 0 ? spec->align : usual;
    int64_t more  = spec->width - hl_jlength(run, sign).integer - hl_jlength(run, body).integer;
    int64_t left  = more <= 0 || align == '<' ? 0 : align == '^' ? more / 2 : more;

    if (align == '=')
        hl_jput_string(run, out, sign);
    put_times(run, out, spec->fill, left);
    if (align != '=')
        hl_jput_string(run, out, sign);
    hl_jput_string(run, out, body);
    put_times(run, out, spec->fill, more > left ? more - left : 0);
}

/* Writes the digits of a value in a base, from the end of `out`; returns the first. */
static char *write_digits(char out[72], uint64_t value, unsigned base, bool upper)
{
    char *at = out + 71;

    *at = '\0';
    do {
        *--at = (upper ? "0123456789ABCDEF" : "0123456789abcdef")[value % base];
        value /= base;
    } while (value != 0);
    return at;
}

/* Puts separators between groups of digits of the part before the point. */
static hl_jvalue grouped(hl_jrun *run, const char *digits, char separator, int size)
{
    hl_jbuffer out   = { 0 };
    int        whole = (int)strspn(digits, "0123456789abcdefABCDEF");

    if (separator == 0)
        return hl_jstring(run, digits, strlen(digits), 0);
    for (int i = 0; i < whole; i++) {
        if (i > 0 && (whole - i) % size == 0)
            hl_jput(run, &out, &separator, 1, 0);
        hl_jput(run, &out, digits + i, 1, 0);
    }
    hl_jput_text(run, &out, digits + whole);
    return hl_jfinish(run, &out);
}

static hl_jvalue sign_text(char wanted, bool negative, const char *prefix, hl_jrun *run)
{
    const char *sign = negative ? "-" : wanted == '+' ? "+" : wanted == ' ' ? " " : "";

    return hl_jformat(run, "%s%s", sign, prefix);
}

static void format_int(hl_jrun *run, hl_jbuffer *out, const format_spec *spec, int64_t value)
{
    char        digits[72];
    char        type   = spec->type;
    unsigned    base   = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
    const char *prefix = !spec->alternate || base == 10 ? ""
                         : type == 'x'                  ? "0x"
                         : type == 'X'                  ? "0X"
                         : type == 'o'                  ? "0o"
                                                        : "0b";
    uint64_t    size   = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;

    if (spec->precision >= 0)
        hl_jraise(run, "ValueError", "Precision not allowed in integer format specifier");
    if (type == 'c') {
        hl_jbuffer one = { 0 };
        if (value < 0 || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
            hl_jraise(run, "OverflowError", "%%c arg not in range(0x110000)");
        hl_jput_character(run, &one, (uint32_t)value, 0);
        put_padded(run, out, spec, hl_jtext(""), hl_jfinish(run, &one), '<');
        return;
    }
    char *text = write_digits(digits, size, base, type == 'X');
    put_padded(run, out, spec, sign_text(spec->sign, value < 0, prefix, run),
               grouped(run, text, spec->group, base == 10 ? 3 : 4), '>');
}

static void format_float(hl_jrun *run, hl_jbuffer *out, const format_spec *spec, double value)
{
    char   text[HL_JINJA_NUMBER];
    bool   negative  = signbit(value) && !isnan(value);
    double size      = negative ? -value : value;
    int    precision = spec->precision >= 0 ? (int)spec->precision : 6;
    char   type      = spec->type;
    char   pattern[16];

    if (precision > 60)
        hl_jraise(run, "ValueError", "a precision of %d, at most 60", precision);
    if (!isfinite(value)) {
        snprintf(text, sizeof text, "%s",
                 type == 'F' || type == 'E' || type == 'G' ? isnan(value) ? "NAN" : "INF"
                 : isnan(value)                            ? "nan"
                                                           : "inf");
    } else if (type == 0 && spec->precision < 0) {
        hl_jfloat_text(text, size);
    } else if (type == '%') {
        snprintf(text, sizeof text, "%.*f%%", precision, 100.0 * size);
    } else {
        snprintf(pattern, sizeof pattern, "%%%s.*%c", spec->alternate ? "#" : "",
                 type == 0 || type == 'n' ? 'g' : type);
        snprintf(text, sizeof text, pattern, precision, size);
        if (type == 0 && strpbrk(text, ".e") == NULL)
            snprintf(text + strlen(text), sizeof text - strlen(text), ".0");
    }
    put_padded(run, out, spec, sign_text(spec->sign, negative, "", run),
               grouped(run, text, spec->group, 3), '>');
}

static void format_text(hl_jrun *run, hl_jbuffer *out, const format_spec *spec, hl_jvalue text)
{
    hl_jvalue bounds[3] = { { 0 }, { 0 }, { 0 } };

    if (spec->precision >= 0) {
        bounds[1] = hl_jint(spec->precision);
        text      = hl_jslice(run, text, bounds);
    }
    put_padded(run, out, spec, hl_jtext(""), text, '<');
}

/* format(value, spec) */
static void put_formatted(hl_jrun *run, hl_jbuffer *out, hl_jvalue value, hl_jvalue text)
{
    if (text.n_bytes == 0) {
        hl_jput_string(run, out, hl_jstr(run, value));
        return;
    }
    format_spec spec = read_spec(run, text);
    bool        real = spec.type != 0 && strchr("eEfFgG%", spec.type) != NULL;
    if (value.kind == HL_J_STRING && (spec.type == 0 || spec.type == 's')) {
        if (spec.align == '=')
            hl_jraise(run, "ValueError", "'=' alignment not allowed in string format specifier");
        format_text(run, out, &spec, value);
    } else if (hl_jis_number(value) &&
               (real || (value.kind == HL_J_FLOAT && (spec.type == 0 || spec.type == 'n')))) {
        format_float(run, out, &spec, hl_jreal(value));
    } else if (hl_jis_int(value) && (spec.type == 0 || strchr("bcdoxXn", spec.type) != NULL)) {
        format_int(run, out, &spec, value.integer);
    } else if (value.kind == HL_J_STRING || hl_jis_number(value)) {
        hl_jraise(run, "ValueError", "Unknown format code '%c' for object of type '%s'", spec.type,
                  hl_jtype(value));
    } else {
        hl_jraise(run, "TypeError", "unsupported format string passed to %s.__format__",
                  hl_jtype(value));
    }
}

/* ----- "... {0.name[key]!r:>10} ..." */

typedef struct formatter {
    const hl_jargs *args;
    int64_t         next; /* the number of the next field without a name; -1: fields are numbered */
    bool            escapes;
} formatter;

static hl_jvalue first_of_field(hl_jrun *run, formatter *f, hl_jvalue name)
{
    size_t  at     = 0;
    int64_t number = read_count(run, name, &at);

    if (name.n_bytes > 0 && at < name.n_bytes) {
        hl_jvalue *value = hl_jdict_find(run, &f->args->named, name);
        if (value == NULL)
            hl_jraise(run, "KeyError", "'%.*s'", (int)name.n_bytes, name.bytes);
        return *value;
    }
    if ((name.n_bytes == 0 && f->next < 0) || (name.n_bytes > 0 && f->next > 0))
        hl_jraise(
            run, "ValueError",
            name.n_bytes == 0
                ? "cannot switch from manual field specification to automatic field numbering"
                : "cannot switch from automatic field numbering to manual field specification");
    if (name.n_bytes == 0)
        number = f->next++;
    else
        f->next = -1;
    if (number >= (int64_t)f->args->n)
        hl_jraise(run, "IndexError", "tuple index out of range");
    return f->args->items[number];
}

static hl_jvalue field_value(hl_jrun *run, formatter *f, hl_jvalue name)
{
    size_t at = 0;

    while (at < name.n_bytes && name.bytes[at] != '.' && name.bytes[at] != '[')
        at++;
    hl_jvalue value = first_of_field(run, f, hl_jpart(name, 0, at));
    while (at < name.n_bytes) {
        bool   bracket = name.bytes[at] == '[';
        size_t begin   = ++at;
        while (at < name.n_bytes &&
               (bracket ? name.bytes[at] != ']' : name.bytes[at] != '.' && name.bytes[at] != '['))
            at++;
        hl_jvalue part = hl_jpart(name, begin, at);
        if (part.n_bytes == 0 || (bracket && at == name.n_bytes))
            hl_jraise(run, "ValueError", "Empty attribute in format string");
        size_t  digits = 0;
        int64_t number = read_count(run, part, &digits);
        if (!bracket)
            value = hl_jget_attribute(run, value, part);
        else
            value = hl_jget_item(run, value, digits == part.n_bytes ? hl_jint(number) : part);
        at += bracket;
    }
    return value;
}

static void put_format(hl_jrun *run, hl_jbuffer *out, formatter *f, hl_jvalue text, int depth);

/* A field without its braces. */
static void put_field(hl_jrun *run, hl_jbuffer *out, formatter *f, hl_jvalue field, int depth)
{
    size_t end = 0, brackets = 0;

    while (end < field.n_bytes &&
           (brackets > 0 || (field.bytes[end] != '!' && field.bytes[end] != ':'))) {
        brackets += field.bytes[end] == '[';
        brackets -= field.bytes[end] == ']' && brackets > 0;
        end++;
    }
    hl_jvalue value = field_value(run, f, hl_jpart(field, 0, end));
    if (at_or_end(field, end) == '!') {
        char kind = at_or_end(field, end + 1);
        if (kind != 's' && kind != 'r' && kind != 'a')
            hl_jraise(run, "ValueError", "Unknown conversion specifier '%c'", kind);
        value = kind == 's' ? hl_jstr(run, value) : hl_jrepr(run, value);
        end += 2;
    }
    hl_jbuffer spec = { 0 };
    if (at_or_end(field, end) == ':')
        put_format(run, &spec, f, hl_jpart(field, end + 1, field.n_bytes), depth + 1);
    hl_jvalue spec_text = hl_jfinish(run, &spec);
    if (!f->escapes) {
        put_formatted(run, out, value, spec_text);
        return;
    }
    hl_jbuffer text = { 0 };
    put_formatted(run, &text, value, spec_text);
    hl_jvalue plain = hl_jfinish(run, &text);
    plain.markup    = value.kind == HL_J_STRING && value.markup;
    hl_jput_string(run, out, hl_jstring_escape(run, plain));
}

static void put_format(hl_jrun *run, hl_jbuffer *out, formatter *f, hl_jvalue text, int depth)
{
    if (depth > 1)
        hl_jraise(run, "ValueError", "Max string recursion exceeded");
    for (size_t at = 0; at < text.n_bytes;) {
        char   c    = text.bytes[at];
        size_t open = 0, end = at + 1;
        if ((c == '{' || c == '}') && at_or_end(text, at + 1) == c) {
            hl_jput_string(run, out, hl_jpart(text, at, at + 1));
            at += 2;
            continue;
        }
        if (c == '}')
            hl_jraise(run, "ValueError", "Single '}' encountered in format string");
        if (c != '{') {
            while (end < text.n_bytes && text.bytes[end] != '{' && text.bytes[end] != '}')
                end++;
            hl_jput_string(run, out, hl_jpart(text, at, end));
            at = end;
            continue;
        }
        while (end < text.n_bytes && (open > 0 || text.bytes[end] != '}')) {
            open += text.bytes[end] == '{';
            open -= text.bytes[end] == '}';
            end++;
        }
        if (end == text.n_bytes)
            hl_jraise(run, "ValueError",
                      at + 1 == end ? "Single '{' encountered in format string"
                                    : "expected '}' before end of string");
        put_field(run, out, f, hl_jpart(text, at + 1, end), depth);
        at = end + 1;
    }
}

static hl_jvalue format_with(hl_jrun *run, hl_jvalue self, const hl_jargs *args)
{
    formatter  f   = { .args = args, .escapes = self.markup };
    hl_jbuffer out = { 0 };

    put_format(run, &out, &f, self, 0);
    hl_jvalue value = hl_jfinish(run, &out);
    value.markup    = self.markup;
    return value;
}

METHOD(method_format_map)
{
    hl_jargs all = { 0 };

    if (args[0].kind != HL_J_DICT)
        hl_jraise(run, "TypeError", "format_map() needs a dict, not %s", hl_jtype(args[0]));
    all.named = *args[0].dict;
    return format_with(run, self, &all);
}

/* ----- "%5.2f" % value */

typedef struct percent {
    hl_jvalue args;
    size_t    next;
} percent;

static hl_jvalue next_argument(hl_jrun *run, percent *p)
{
    if (p->args.kind == HL_J_TUPLE) {
        if (p->next >= p->args.list->n)
            hl_jraise(run, "TypeError", "not enough arguments for format string");
        return p->args.list->items[p->next++];
    }
    if (p->next++ > 0)
        hl_jraise(run, "TypeError", "not enough arguments for format string");
    return p->args;
}

/* "(name)" after the percent sign. */
static hl_jvalue named_argument(hl_jrun *run, const percent *p, hl_jvalue text, size_t *at)
{
    size_t begin = ++*at;

    while (*at < text.n_bytes && text.bytes[*at] != ')')
        (*at)++;
    if (*at == text.n_bytes)
        hl_jraise(run, "ValueError", "incomplete format key");
    hl_jvalue key = hl_jpart(text, begin, (*at)++);
    if (p->args.kind != HL_J_DICT)
        hl_jraise(run, "TypeError", "format requires a mapping");
    hl_jvalue *value = hl_jdict_find(run, p->args.dict, key);
    if (value == NULL)
        hl_jraise(run, "KeyError", "'%.*s'", (int)key.n_bytes, key.bytes);
    return *value;
}

static hl_jvalue as_integer(hl_jrun *run, hl_jvalue value, char type)
{
    if (value.kind == HL_J_UNDEFINED)
        hl_jundefined_raise(run, value);
    if (hl_jis_int(value))
        return value;
    if (value.kind == HL_J_FLOAT && (type == 'd' || type == 'i' || type == 'u') &&
        fabs(value.real) < 9e18)
        return hl_jint((int64_t)value.real);
    hl_jraise(run, "TypeError", "%%%c format: %s is required, not %s", type,
              type == 'd' || type == 'i' || type == 'u' ? "a real number" : "an integer",
              hl_jtype(value));
}

static void put_percent(hl_jrun *run, hl_jbuffer *out, format_spec *spec, hl_jvalue value,
                        bool markup)
{
    char type = spec->type;

    if (type == 's' || type == 'r' || type == 'a') {
        hl_jvalue text = type == 's' ? hl_jstr(run, value) : hl_jrepr(run, value);
        spec->align    = spec->align == '<' ? '<' : '>';
        spec->fill     = hl_jtext(" ");
        format_text(run, out, spec, markup ? hl_jstring_escape(run, text) : text);
    } else if (type == 'c' && value.kind == HL_J_STRING) {
        format_text(run, out, spec, value);
    } else if (strchr("eEfFgG", type) != NULL) {
        if (value.kind == HL_J_UNDEFINED)
            hl_jundefined_raise(run, value);
        if (!hl_jis_number(value))
            hl_jraise(run, "TypeError", "must be real number, not %s", hl_jtype(value));
        format_float(run, out, spec, hl_jreal(value));
    } else {
        value           = as_integer(run, value, type);
        spec->type      = type == 'i' || type == 'u' ? 'd' : type;
        int64_t digits  = spec->precision;
        spec->precision = -1;
        if (digits >= 0) { /* a precision is the least number of digits */
            spec->fill  = spec->align == '<' ? spec->fill : hl_jtext("0");
            spec->align = spec->align == '<' ? '<' : '=';
            spec->width = digits + (value.integer < 0) > spec->width ? digits + (value.integer < 0)
                                                                     : spec->width;
        }
        format_int(run, out, spec, value.integer);
    }
}

hl_jvalue hl_jstring_percent(hl_jrun *run, hl_jvalue format, hl_jvalue args)
{
    percent    p      = { .args = args };
    hl_jbuffer out    = { 0 };
    bool       mapped = false;

    for (size_t at = 0; at < format.n_bytes;) {
        format_spec spec  = { .fill = hl_jtext(" "), .sign = '-', .precision = -1 };
        size_t      begin = at;
        hl_jvalue   value = { 0 };
        while (at < format.n_bytes && format.bytes[at] != '%')
            at++;
        hl_jput_string(run, &out, hl_jpart(format, begin, at));
        if (at++ >= format.n_bytes)
            break;
        if (at_or_end(format, at) == '(') {
            value  = named_argument(run, &p, format, &at);
            mapped = true;
        }
        for (; at < format.n_bytes && strchr("#0- +", format.bytes[at]) != NULL; at++) {
            char flag = format.bytes[at];
            if (flag == '-') {
                spec.align = '<';
            } else if (flag == '0' && spec.align == 0) {
                spec.align = '=';
                spec.fill  = hl_jtext("0");
            } else if (flag == '#') {
                spec.alternate = true;
            } else if (flag == '+' || (flag == ' ' && spec.sign != '+')) {
                spec.sign = flag;
            }
        }
        if (at_or_end(format, at) == '*') {
            int64_t width = hl_jindex(run, next_argument(run, &p));
            spec.align    = width < 0 ? '<' : spec.align;
            spec.width    = width < 0 ? -width : width;
            if (spec.width > MAX_WIDTH)
                hl_jraise(run, "ValueError", "width too big");
            at++;
        } else {
            spec.width = read_count(run, format, &at);
        }
        if (spec.align == '<')
            spec.fill = hl_jtext(" ");
        if (at_or_end(format, at) == '.') {
            at++;
            spec.precision = read_count(run, format, &at);
        }
        while (at < format.n_bytes && strchr("hlL", format.bytes[at]) != NULL)
            at++;
        if (at >= format.n_bytes)
            hl_jraise(run, "ValueError", "incomplete format");
        spec.type = format.bytes[at++];
        if (spec.type == '%') {
            hl_jput_text(run, &out, "%");
            continue;
        }
        if (spec.type == '\0' || strchr("diuoxXeEfFgGcrsa", spec.type) == NULL)
            hl_jraise(run, "ValueError", "unsupported format character '%c' (0x%x) at index %zu",
                      spec.type, (unsigned char)spec.type, at - 1);
        if (value.kind == HL_J_ABSENT)
            value = next_argument(run, &p);
        put_percent(run, &out, &spec, value, format.markup);
    }
    bool all_used = args.kind == HL_J_TUPLE
                        ? p.next >= args.list->n
                        : p.next > 0 || mapped || args.kind == HL_J_DICT ||
                              args.kind == HL_J_LIST || args.kind == HL_J_RANGE ||
                              args.kind == HL_J_UNDEFINED;
    if (!all_used)
        hl_jraise(run, "TypeError", "not all arguments converted during string formatting");
    hl_jvalue value = hl_jfinish(run, &out);
    value.markup    = format.markup;
    return value;
}

/* ------------------------------------------------------------------------- the methods */

const hl_jentry hl_jstring_methods[] = {
    { "capitalize", method_capitalize, "", 0, NULL },
    { "casefold", method_lower, "", 0, NULL },
    { "center", method_center, "width fillchar", 1, NULL },
    { "count", method_count, "sub start end", 1, NULL },
    { "endswith", method_endswith, "suffix start end", 1, NULL },
    { "expandtabs", method_expandtabs, "tabsize", 0, NULL },
    { "find", method_find, "sub start end", 1, NULL },
    { "format", NULL, NULL, 0, format_with },
    { "format_map", method_format_map, "mapping", 1, NULL },
    { "index", method_index, "sub start end", 1, NULL },
    { "isalnum", method_isalnum, "", 0, NULL },
    { "isalpha", method_isalpha, "", 0, NULL },
    { "isascii", method_isascii, "", 0, NULL },
    { "isdecimal", method_isdecimal, "", 0, NULL },
    { "isdigit", method_isdigit, "", 0, NULL },
    { "isidentifier", method_isidentifier, "", 0, NULL },
    { "islower", method_islower, "", 0, NULL },
    { "isnumeric", method_isnumeric, "", 0, NULL },
    { "isprintable", method_isprintable, "", 0, NULL },
    { "isspace", method_isspace, "", 0, NULL },
    { "istitle", method_istitle, "", 0, NULL },
    { "isupper", method_isupper, "", 0, NULL },
    { "join", method_join, "iterable", 1, NULL },
    { "ljust", method_ljust, "width fillchar", 1, NULL },
    { "lower", method_lower, "", 0, NULL },
    { "lstrip", method_lstrip, "chars", 0, NULL },
    { "partition", method_partition, "sep", 1, NULL },
    { "removeprefix", method_removeprefix, "prefix", 1, NULL },
    { "removesuffix", method_removesuffix, "suffix", 1, NULL },
    { "replace", method_replace, "old new count", 2, NULL },
    { "rfind", method_rfind, "sub start end", 1, NULL },
    { "rindex", method_rindex, "sub start end", 1, NULL },
    { "rjust", method_rjust, "width fillchar", 1, NULL },
    { "rpartition", method_rpartition, "sep", 1, NULL },
    { "rsplit", method_rsplit, "sep maxsplit", 0, NULL },
    { "rstrip", method_rstrip, "chars", 0, NULL },
    { "split", method_split, "sep maxsplit", 0, NULL },
    { "splitlines", method_splitlines, "keepends", 0, NULL },
    { "startswith", method_startswith, "prefix start end", 1, NULL },
    { "strip", method_strip, "chars", 0, NULL },
    { "swapcase", method_swapcase, "", 0, NULL },
    { "title", method_title, "", 0, NULL },
    { "upper", method_upper, "", 0, NULL },
    { "zfill", method_zfill, "width", 1, NULL },
    { 0 },
};
