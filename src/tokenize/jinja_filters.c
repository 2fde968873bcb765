/* jinja_filters.c - the filters and tests of templates: value|name(args), value is name(args). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenize/jinja_parts.h"
#include "tokenize/unicode.h"

#define FILTER(name)     static hl_jvalue name(hl_jrun *run, hl_jvalue value, hl_jvalue *args)
#define FILTER_RAW(name) static hl_jvalue name(hl_jrun *run, hl_jvalue value, const hl_jargs *args)

static bool given(hl_jvalue value)
{
    return value.kind != HL_J_ABSENT && value.kind != HL_J_NONE;
}

static int64_t int_or(hl_jrun *run, hl_jvalue value, int64_t otherwise)
{
    return value.kind == HL_J_ABSENT ? otherwise : hl_jindex(run, value);
}

const hl_jentry *hl_jentry_find(const hl_jentry *table, hl_bytes name)
{
    for (; table->name != NULL; table++) {
        if (hl_bytes_equal(name, table->name))
            return table;
    }
    return NULL;
}

static const hl_jentry *entry_by_value(hl_jrun *run, const hl_jentry *table, hl_jvalue name)
{
    const hl_jentry *entry = name.kind == HL_J_STRING
                                 ? hl_jentry_find(table, (hl_bytes){ name.bytes, name.n_bytes })
                                 : NULL;

    if (entry == NULL) {
        hl_jvalue text = hl_jrepr(run, name);
        hl_jraise(run, "TemplateRuntimeError", "No %s named %.*s.",
                  table == hl_jfilters ? "filter" : "test", (int)text.n_bytes, text.bytes);
    }
    return entry;
}

/* ---------------------------------------------------------------------- attributes */

/* One step of a path: digits are an index. */
static hl_jvalue path_step(hl_jrun *run, hl_jvalue item, hl_jvalue part)
{
    int64_t number = 0;
    bool    digits = part.n_bytes > 0;

    for (size_t i = 0; i < part.n_bytes; i++)
        digits = digits && part.bytes[i] >= '0' && part.bytes[i] <= '9';
    if (digits && hl_jread_int(run, &number, part, 10))
        return hl_jget_item(run, item, hl_jint(number));
    return hl_jget_item(run, item, part);
}

/* "a.b.0" of an item; a missing step becomes `otherwise` if that is given. */
static hl_jvalue get_path(hl_jrun *run, hl_jvalue item, hl_jvalue path, hl_jvalue otherwise)
{
    if (!given(path))
        return item;
    if (path.kind != HL_J_STRING)
        return hl_jget_item(run, item, path);
    for (size_t at = 0; at <= path.n_bytes;) {
        size_t end = at;
        while (end < path.n_bytes && path.bytes[end] != '.')
            end++;
        item = path_step(run, item, hl_jpart(path, at, end));
        if (item.kind == HL_J_UNDEFINED && given(otherwise))
            item = otherwise;
        at = end + 1;
    }
    return item;
}

static hl_jvalue ignore_case(hl_jrun *run, hl_jvalue value, hl_jvalue case_sensitive)
{
    return value.kind == HL_J_STRING && !hl_jtruth(run, case_sensitive)
               ? hl_jstring_lower(run, value)
               : value;
}

/* ------------------------------------------------------------------------- sorting */

/* Sorts items by their keys, stably; `reverse` keeps the order of equal ones, as Python does. */
static void merge_sort(hl_jrun *run, hl_jvalue *items, hl_jvalue *keys, size_t n, bool reverse)
{
    hl_jvalue *other_items = hl_jtake(run, n, hl_jvalue);
    hl_jvalue *other_keys  = hl_jtake(run, n, hl_jvalue);

    for (size_t width = 1; width < n; width *= 2) {
        for (size_t low = 0; low < n; low += 2 * width) {
            size_t middle = low + width < n ? low + width : n;
            size_t high   = low + 2 * width < n ? low + 2 * width : n;
            for (size_t a = low, b = middle, out = low; out < high; out++) {
                bool second = a == middle;
                if (a < middle && b < high)
                    second = reverse ? hl_jless(run, keys[a], keys[b], "<")
                                     : hl_jless(run, keys[b], keys[a], "<");
                size_t from      = second ? b++ : a++;
                other_items[out] = items[from];
                other_keys[out]  = keys[from];
            }
        }
        memcpy(items, other_items, n * sizeof *items);
        memcpy(keys, other_keys, n * sizeof *keys);
    }
}

/* The key of one or several attributes: "a,b". */
static hl_jvalue sort_key(hl_jrun *run, hl_jvalue item, hl_jvalue attribute, hl_jvalue sensitive)
{
    hl_jvalue key  = hl_jlist_new(run, HL_J_LIST);
    hl_jvalue none = { 0 };

    if (!given(attribute) || attribute.kind != HL_J_STRING) {
        hl_jlist_add(run, key.list,
                     ignore_case(run, get_path(run, item, attribute, none), sensitive));
        return key;
    }
    for (size_t at = 0; at <= attribute.n_bytes;) {
        size_t end = at;
        while (end < attribute.n_bytes && attribute.bytes[end] != ',')
            end++;
        hl_jvalue part = get_path(run, item, hl_jpart(attribute, at, end), none);
        hl_jlist_add(run, key.list, ignore_case(run, part, sensitive));
        at = end + 1;
    }
    return key;
}

static hl_jvalue sorted(hl_jrun *run, hl_jvalue value, hl_jvalue reverse, hl_jvalue sensitive,
                        hl_jvalue attribute)
{
    hl_jvalue  list = hl_jitems(run, value);
    hl_jvalue *keys = hl_jtake(run, list.list->n, hl_jvalue);

    for (size_t i = 0; i < list.list->n; i++)
        keys[i] = sort_key(run, list.list->items[i], attribute, sensitive);
    merge_sort(run, list.list->items, keys, list.list->n, hl_jtruth(run, reverse));
    return list;
}

FILTER(filter_sort)
{
    return sorted(run, value, args[0], args[1], args[2]);
}

static hl_jvalue pairs_of(hl_jrun *run, hl_jvalue dict)
{
    hl_jvalue list = hl_jlist_new(run, HL_J_LIST);

    for (size_t i = 0; i < dict.dict->n; i++)
        hl_jlist_add(run, list.list, hl_jpair(run, dict.dict->keys[i], dict.dict->values[i]));
    return list;
}

static __attribute__((noreturn)) void no_attribute(hl_jrun *run, hl_jvalue value, const char *name)
{
    if (value.kind == HL_J_UNDEFINED)
        hl_jundefined_raise(run, value);
    hl_jraise(run, "AttributeError", "'%s' object has no attribute '%s'", hl_jtype(value), name);
}

FILTER(filter_dictsort)
{
    bool by_value = hl_jis(args[1], "value");

    if (args[1].kind != HL_J_ABSENT && !by_value && !hl_jis(args[1], "key"))
        hl_jraise(run, "FilterArgumentError", "You can only sort by either \"key\" or \"value\"");
    if (value.kind != HL_J_DICT)
        no_attribute(run, value, "items");
    hl_jvalue  list = pairs_of(run, value);
    hl_jvalue *keys = hl_jtake(run, list.list->n, hl_jvalue);
    for (size_t i = 0; i < list.list->n; i++)
        keys[i] = ignore_case(run, list.list->items[i].list->items[by_value], args[0]);
    merge_sort(run, list.list->items, keys, list.list->n, hl_jtruth(run, args[2]));
    return list;
}

static hl_jvalue extreme(hl_jrun *run, hl_jvalue value, const hl_jvalue *args, bool largest)
{
    hl_jvalue item, best = { 0 }, best_key = { 0 }, none = { 0 };

    for (hl_jiterator i = hl_jiterate(run, value); hl_jnext(run, &i, &item);) {
        hl_jvalue key    = ignore_case(run, get_path(run, item, args[1], none), args[0]);
        bool      better = best.kind == HL_J_ABSENT || (largest ? hl_jless(run, best_key, key, ">")
                                                                : hl_jless(run, key, best_key, "<"));
        best             = better ? item : best;
        best_key         = better ? key : best_key;
    }
    return best.kind == HL_J_ABSENT
               ? hl_jundefined_hint(run, "No aggregated item, sequence was empty.")
               : best;
}

FILTER(filter_min)
{
    return extreme(run, value, args, false);
}

FILTER(filter_max)
{
    return extreme(run, value, args, true);
}

FILTER(filter_unique)
{
    hl_jvalue result = hl_jlist_new(run, HL_J_GENERATOR), seen = hl_jdict_new(run, HL_J_DICT);
    hl_jvalue item, none                                       = { 0 };

    for (hl_jiterator i = hl_jiterate(run, value); hl_jnext(run, &i, &item);) {
        hl_jvalue key = ignore_case(run, get_path(run, item, args[1], none), args[0]);
        if (hl_jdict_find(run, seen.dict, key) != NULL)
            continue;
        hl_jdict_put(run, seen.dict, key, hl_jnone());
        hl_jlist_add(run, result.list, item);
    }
    return result;
}

FILTER(filter_groupby)
{
    hl_jvalue  groups = hl_jlist_new(run, HL_J_LIST), last = { 0 };
    hl_jvalue  list = hl_jitems(run, value);
    hl_jvalue *keys = hl_jtake(run, list.list->n, hl_jvalue);

    for (size_t i = 0; i < list.list->n; i++)
        keys[i] = ignore_case(run, get_path(run, list.list->items[i], args[0], args[1]), args[2]);
    merge_sort(run, list.list->items, keys, list.list->n, false);
    for (size_t i = 0; i < list.list->n; i++) {
        hl_jvalue item = list.list->items[i];
        if (i == 0 || !hl_jequal(run, last, keys[i])) {
            hl_jvalue group =
                hl_jpair(run, get_path(run, item, args[0], args[1]), hl_jlist_new(run, HL_J_LIST));
            group.list->group = true;
            hl_jlist_add(run, groups.list, group);
        }
        last = keys[i];
        hl_jlist_add(run, groups.list->items[groups.list->n - 1].list->items[1].list, item);
    }
    return groups;
}

/* ---------------------------------------------------------------------- sequences */

FILTER(filter_first)
{
    hl_jvalue    item;
    hl_jiterator i = hl_jiterate(run, value);

    (void)args;
    return hl_jnext(run, &i, &item) ? item
                                    : hl_jundefined_hint(run, "No first item, sequence was empty.");
}

FILTER(filter_last)
{
    hl_jvalue bounds[3] = { hl_jint(-1), { 0 }, { 0 } };

    (void)args;
    if (value.kind == HL_J_GENERATOR || !hl_jcan_iterate(value))
        hl_jraise(run, "TypeError", "'%s' object is not reversible", hl_jtype(value));
    if (!hl_jtruth(run, value))
        return hl_jundefined_hint(run, "No last item, sequence was empty.");
    if (value.kind == HL_J_STRING)
        return hl_jslice(run, value, bounds);
    hl_jvalue list = hl_jitems(run, value);
    return list.list->items[list.list->n - 1];
}

FILTER(filter_length)
{
    (void)args;
    return hl_jlength(run, value);
}

FILTER(filter_list)
{
    (void)args;
    return hl_jitems(run, value);
}

FILTER(filter_reverse)
{
    hl_jvalue bounds[3] = { { 0 }, { 0 }, hl_jint(-1) };

    (void)args;
    if (value.kind == HL_J_STRING)
        return hl_jslice(run, value, bounds);
    if (!hl_jcan_iterate(value))
        hl_jraise(run, "FilterArgumentError", "argument must be iterable");
    hl_jvalue list = hl_jitems(run, value);
    hl_jvalue back = hl_jslice(run, list, bounds);
    back.kind      = value.kind == HL_J_GENERATOR ? HL_J_LIST : HL_J_GENERATOR;
    return back;
}

FILTER(filter_join)
{
    hl_jbuffer out = { 0 };
    hl_jvalue  item, none = { 0 };
    hl_jvalue  between = args[0].kind != HL_J_ABSENT ? hl_jstr(run, args[0]) : hl_jtext("");
    size_t     n       = 0;

    for (hl_jiterator i = hl_jiterate(run, value); hl_jnext(run, &i, &item); n++) {
        if (n > 0)
            hl_jput_string(run, &out, between);
        hl_jput_string(run, &out, hl_jstr(run, get_path(run, item, args[1], none)));
    }
    return hl_jfinish(run, &out);
}

FILTER(filter_sum)
{
    hl_jvalue total = args[1].kind != HL_J_ABSENT ? args[1] : hl_jint(0), item, none = { 0 };

    if (total.kind == HL_J_STRING)
        hl_jraise(run, "TypeError", "sum() can't sum strings [use ''.join(seq) instead]");
    for (hl_jiterator i = hl_jiterate(run, value); hl_jnext(run, &i, &item);)
        total = hl_jbinary(run, '+', total, get_path(run, item, args[0], none));
    return total;
}

FILTER(filter_batch)
{
    hl_jvalue result = hl_jlist_new(run, HL_J_GENERATOR), row = { 0 }, item;
    int64_t   size = hl_jindex(run, args[0]);

    for (hl_jiterator i = hl_jiterate(run, value); hl_jnext(run, &i, &item);) {
        if (row.kind == HL_J_ABSENT || (int64_t)row.list->n == size) {
            row = hl_jlist_new(run, HL_J_LIST);
            hl_jlist_add(run, result.list, row);
        }
        hl_jlist_add(run, row.list, item);
    }
    while (row.kind != HL_J_ABSENT && given(args[1]) && (int64_t)row.list->n < size)
        hl_jlist_add(run, row.list, args[1]);
    return result;
}

FILTER(filter_slice)
{
    hl_jvalue result = hl_jlist_new(run, HL_J_GENERATOR), items = hl_jitems(run, value);
    int64_t   n = hl_jindex(run, args[0]), length = (int64_t)items.list->n, at = 0;

    if (n <= 0)
        hl_jraise(run, "ZeroDivisionError", "integer division or modulo by zero");
    for (int64_t i = 0; i < n; i++) {
        hl_jvalue part = hl_jlist_new(run, HL_J_LIST);
        int64_t   size = length / n + (i < length % n);
        for (int64_t k = 0; k < size; k++)
            hl_jlist_add(run, part.list, items.list->items[at++]);
        if (given(args[1]) && i >= length % n)
            hl_jlist_add(run, part.list, args[1]);
        hl_jlist_add(run, result.list, part);
    }
    return result;
}

FILTER(filter_items)
{
    (void)args;
    if (value.kind != HL_J_UNDEFINED && value.kind != HL_J_DICT)
        hl_jraise(run, "TypeError", "Can only get item pairs from a mapping.");
    hl_jvalue list = value.kind == HL_J_DICT ? pairs_of(run, value) : hl_jlist_new(run, HL_J_LIST);
    list.kind      = HL_J_GENERATOR;
    return list;
}

/* The arguments behind the first n. */
static hl_jargs rest_of(const hl_jargs *args, size_t n)
{
    hl_jargs rest = *args;

    rest.items += n;
    rest.n -= n;
    return rest;
}

FILTER_RAW(filter_map)
{
    hl_jvalue  result = hl_jlist_new(run, HL_J_GENERATOR), item;
    hl_jvalue *path   = hl_jdict_find(run, &args->named, hl_jtext("attribute"));
    hl_jvalue *other  = hl_jdict_find(run, &args->named, hl_jtext("default"));

    if (value.kind != HL_J_UNDEFINED && !hl_jtruth(run, value))
        return result;
    if (args->n == 0 && path == NULL)
        hl_jraise(run, "FilterArgumentError", "map requires a filter argument");
    if (args->n == 0 && args->named.n > 1 + (size_t)(other != NULL))
        hl_jraise(run, "FilterArgumentError", "Unexpected keyword argument");
    const hl_jentry *entry = args->n > 0 ? entry_by_value(run, hl_jfilters, args->items[0]) : NULL;
    hl_jargs         rest  = args->n > 0 ? rest_of(args, 1) : *args;
    for (hl_jiterator i = hl_jiterate(run, value); hl_jnext(run, &i, &item);)
        hl_jlist_add(run, result.list,
                     entry != NULL
                         ? hl_jcall_entry(run, entry, item, &rest)
                         : get_path(run, item, *path, other != NULL ? *other : (hl_jvalue){ 0 }));
    return result;
}

static hl_jvalue choose(hl_jrun *run, hl_jvalue value, const hl_jargs *args, bool wanted,
                        bool by_attribute)
{
    hl_jvalue        result = hl_jlist_new(run, HL_J_GENERATOR), item, path = { 0 };
    const hl_jentry *test = NULL;
    hl_jargs         rest = *args;

    if (!hl_jtruth(run, value))
        return result;
    if (by_attribute && args->n == 0)
        hl_jraise(run, "FilterArgumentError", "Missing parameter for attribute name");
    if (by_attribute) {
        path = rest.items[0];
        rest = rest_of(&rest, 1);
    }
    if (rest.n > 0) {
        test = entry_by_value(run, hl_jtests, rest.items[0]);
        rest = rest_of(&rest, 1);
    }
    for (hl_jiterator i = hl_jiterate(run, value); hl_jnext(run, &i, &item);) {
        hl_jvalue tested = get_path(run, item, path, (hl_jvalue){ 0 });
        if (test != NULL)
            tested = hl_jcall_entry(run, test, tested, &rest);
        if (hl_jtruth(run, tested) == wanted)
            hl_jlist_add(run, result.list, item);
    }
    return result;
}

FILTER_RAW(filter_select)
{
    return choose(run, value, args, true, false);
}

FILTER_RAW(filter_reject)
{
    return choose(run, value, args, false, false);
}

FILTER_RAW(filter_selectattr)
{
    return choose(run, value, args, true, true);
}

FILTER_RAW(filter_rejectattr)
{
    return choose(run, value, args, false, true);
}

/* -------------------------------------------------------------------------- strings */

FILTER(filter_string)
{
    (void)args;
    return hl_jstr(run, value);
}

FILTER(filter_upper)
{
    (void)args;
    return hl_jstring_upper(run, hl_jstr(run, value));
}

FILTER(filter_lower)
{
    (void)args;
    return hl_jstring_lower(run, hl_jstr(run, value));
}

FILTER(filter_capitalize)
{
    (void)args;
    return hl_jstring_capitalize(run, hl_jstr(run, value));
}

/* Words begin after blanks, hyphens and opening brackets, and nowhere else. */
FILTER(filter_title)
{
    hl_jvalue  text = hl_jstr(run, value);
    hl_jbuffer out  = { 0 };

    (void)args;
    for (size_t at = 0; at < text.n_bytes;) {
        size_t begin = at, first = at;
        bool   separators = false, now = false;
        while (at < text.n_bytes) {
            size_t   next = at;
            uint32_t c    = hl_utf8_next(text.bytes, &next);
            now = hl_jis_space(c) || (c < 0x80 && strchr("-({[<", (int)c) != NULL && c != 0);
            if (at == begin)
                separators = now;
            else if (now != separators)
                break;
            at    = next;
            first = first == begin ? next : first;
        }
        hl_jput_string(run, &out, hl_jstring_upper(run, hl_jpart(text, begin, first)));
        hl_jput_string(run, &out, hl_jstring_lower(run, hl_jpart(text, first, at)));
    }
    return hl_jfinish(run, &out);
}

FILTER(filter_trim)
{
    return hl_jstring_strip(run, hl_jstr(run, value), args[0], true, true);
}

FILTER(filter_replace)
{
    hl_jvalue text = hl_jstr(run, value);

    text.markup = false;
    return hl_jstring_replace(run, text, hl_jstr(run, args[0]), hl_jstr(run, args[1]),
                              given(args[2]) ? hl_jindex(run, args[2]) : -1);
}

FILTER(filter_center)
{
    return hl_jstring_center(run, hl_jstr(run, value), int_or(run, args[0], 80));
}

static hl_jvalue spaces(hl_jrun *run, int64_t n)
{
    return hl_jbinary(run, '*', hl_jtext(" "), hl_jint(n));
}

FILTER(filter_indent)
{
    hl_jvalue width = args[0].kind != HL_J_ABSENT ? args[0] : hl_jint(4);
    bool      first = hl_jtruth(run, args[1]), blank = hl_jtruth(run, args[2]);
    hl_jvalue space = width.kind == HL_J_STRING ? width : spaces(run, hl_jindex(run, width));
    if (value.kind == HL_J_UNDEFINED)
        hl_jundefined_raise(run, value);
    if (value.kind == HL_J_LIST)
        no_attribute(run, value, "splitlines");
    if (value.kind != HL_J_STRING)
        hl_jraise(run, "TypeError", "unsupported operand type(s) for +=: '%s' and 'str'",
                  hl_jtype(value));
    hl_jvalue  text  = hl_jconcat(run, value, hl_jtext("\n"));
    hl_jvalue  lines = hl_jstring_lines(run, text, false);
    hl_jbuffer out   = { 0 };

    for (size_t i = 0; i < lines.list->n; i++) {
        hl_jvalue line = lines.list->items[i];
        if (i > 0)
            hl_jput_text(run, &out, "\n");
        if (i == 0 ? first : blank || line.n_bytes > 0)
            hl_jput_string(run, &out, space);
        hl_jput_string(run, &out, line);
    }
    hl_jvalue result = hl_jfinish(run, &out);
    result.markup    = value.markup;
    return result;
}

FILTER(filter_truncate)
{
    int64_t   most  = int_or(run, args[0], 255);
    hl_jvalue end   = args[2].kind != HL_J_ABSENT ? hl_jstr(run, args[2]) : hl_jtext("...");
    int64_t   slack = given(args[3]) ? hl_jindex(run, args[3]) : 5;
    int64_t   n = hl_jlength(run, value).integer, n_end = hl_jlength(run, end).integer;

    if (most < n_end)
        hl_jraise(run, "AssertionError", "expected length >= %lld, got %lld", (long long)n_end,
                  (long long)most);
    if (slack < 0)
        hl_jraise(run, "AssertionError", "expected leeway >= 0, got %lld", (long long)slack);
    if (n <= most + slack)
        return value;
    hl_jvalue bounds[3] = { { 0 }, hl_jint(most - n_end), { 0 } };
    hl_jvalue cut       = hl_jslice(run, hl_jstr(run, value), bounds);
    if (!hl_jtruth(run, args[1])) {
        size_t blank = cut.n_bytes;
        while (blank > 0 && cut.bytes[blank - 1] != ' ')
            blank--;
        cut = blank > 0 ? hl_jpart(cut, 0, blank - 1) : cut;
    }
    return hl_jbinary(run, '+', cut, end);
}

FILTER(filter_wordcount)
{
    hl_jvalue text   = hl_jstr(run, value);
    int64_t   n      = 0;
    bool      within = false;

    (void)args;
    hl_jwork(run, text.n_bytes);
    for (size_t at = 0; at < text.n_bytes;) {
        uint32_t c    = hl_utf8_next(text.bytes, &at);
        bool     word = c == '_' || hl_char_is(HL_CHAR_LETTER, c) || hl_char_is(HL_CHAR_NUMERIC, c);
        n += word && !within;
        within = word;
    }
    return hl_jint(n);
}

/* Adds the words of a line to lines of at most `width` characters; longer words are cut. */
static void wrap_line(hl_jrun *run, hl_jbuffer *out, hl_jvalue line, int64_t width, bool cuts,
                      hl_jvalue between)
{
    hl_jvalue row = hl_jtext(""), blanks = hl_jtext("");
    int64_t   used = 0;
    bool      any  = false;

    for (size_t at = 0; at < line.n_bytes;) {
        size_t begin = at;
        bool   blank = line.bytes[at] == ' ';
        while (at < line.n_bytes && (line.bytes[at] == ' ') == blank)
            at++;
        hl_jvalue word = hl_jpart(line, begin, at);
        int64_t   n    = hl_jlength(run, word).integer;
        if (blank) {
            blanks = used > 0 || !any ? word : hl_jtext("");
            continue;
        }
        int64_t n_blank = hl_jlength(run, blanks).integer;
        if (used + n_blank + n <= width) {
            row    = hl_jconcat(run, hl_jconcat(run, row, blanks), word);
            used   = used + n_blank + n;
            blanks = hl_jtext("");
            continue;
        }
        if (cuts && n > width && used + n_blank < width) { /* fills the line with its beginning */
            hl_jvalue bounds[3] = { { 0 }, hl_jint(width - used - n_blank), { 0 } };
            hl_jvalue head      = hl_jslice(run, word, bounds);
            row                 = hl_jconcat(run, hl_jconcat(run, row, blanks), head);
            used                = width;
            at                  = begin + head.n_bytes;
        } else {
            at = begin;
        }
        if (used > 0) {
            if (any)
                hl_jput_string(run, out, between);
            hl_jput_string(run, out, row);
            any  = true;
            row  = hl_jtext("");
            used = 0;
        } else if (!cuts) { /* a long word has a line of its own */
            row  = word;
            used = n;
            at   = begin + word.n_bytes;
        }
        blanks = hl_jtext("");
    }
    if (used > 0) {
        if (any)
            hl_jput_string(run, out, between);
        hl_jput_string(run, out, row);
    }
}

FILTER(filter_wordwrap)
{
    int64_t    width   = int_or(run, args[0], 79);
    bool       cuts    = args[1].kind == HL_J_ABSENT || hl_jtruth(run, args[1]);
    hl_jvalue  between = given(args[2]) ? hl_jstr(run, args[2]) : hl_jtext("\n");
    hl_jbuffer out     = { 0 };

    if (value.kind != HL_J_STRING)
        no_attribute(run, value, "splitlines");
    if (width <= 0)
        hl_jraise(run, "ValueError", "invalid width %lld (must be > 0)", (long long)width);
    hl_jvalue lines = hl_jstring_lines(run, value, false);
    for (size_t i = 0; i < lines.list->n; i++) {
        if (i > 0)
            hl_jput_string(run, &out, between);
        wrap_line(run, &out, lines.list->items[i], width, cuts, between);
    }
    return hl_jfinish(run, &out);
}

FILTER(filter_escape)
{
    (void)args;
    return hl_jstring_escape(run, hl_jstr(run, value));
}

FILTER(filter_forceescape)
{
    hl_jvalue text = hl_jstr(run, value);

    (void)args;
    text.markup = false;
    return hl_jstring_escape(run, text);
}

FILTER(filter_safe)
{
    hl_jvalue text = hl_jstr(run, value);

    (void)args;
    text.markup = true;
    return text;
}

/* Without tags and comments, with single blanks; the entities that `escape` writes are undone. */
FILTER(filter_striptags)
{
    hl_jvalue  text = hl_jstr(run, value);
    hl_jbuffer out  = { 0 };
    hl_jvalue  word, none = { 0 };

    (void)args;
    for (size_t at = 0; at < text.n_bytes;) {
        bool        comment = text.n_bytes - at >= 4 && memcmp(text.bytes + at, "<!--", 4) == 0;
        const char *end     = comment || text.bytes[at] == '<'
                                  ? hl_find_bytes(text.bytes + at, text.n_bytes - at,
                                              comment ? "-->" : ">", comment ? 3 : 1)
                                  : NULL;
        size_t      next    = at + 1;
        if (end != NULL)
            next = (size_t)(end - text.bytes) + (comment ? 3 : 1);
        else
            hl_jput_string(run, &out, hl_jpart(text, at, next));
        hl_jwork(run, next - at);
        at = next;
    }
    hl_jvalue args_of_split[2] = { none, none };
    hl_jvalue words            = hl_jentry_find(hl_jstring_methods, (hl_bytes){ "split", 5 })
                          ->call(run, hl_jfinish(run, &out), args_of_split);
    hl_jbuffer joint = { 0 };
    size_t     n     = 0;
    for (hl_jiterator i = hl_jiterate(run, words); hl_jnext(run, &i, &word); n++) {
        if (n > 0)
            hl_jput_text(run, &joint, " ");
        hl_jput_string(run, &joint, word);
    }
    static const char *const entities[][2] = { { "&lt;", "<" },   { "&gt;", ">" },
                                               { "&#34;", "\"" }, { "&quot;", "\"" },
                                               { "&#39;", "'" },  { "&amp;", "&" } };
    text                                   = hl_jfinish(run, &joint);
    for (size_t i = 0; i < sizeof entities / sizeof *entities; i++)
        text =
            hl_jstring_replace(run, text, hl_jtext(entities[i][0]), hl_jtext(entities[i][1]), -1);
    return text;
}

static void put_quoted(hl_jrun *run, hl_jbuffer *out, hl_jvalue text, bool query)
{
    for (size_t i = 0; i < text.n_bytes; i++) {
        unsigned char c = (unsigned char)text.bytes[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     (c != 0 && strchr("_.-~", c) != NULL) || (c == '/' && !query);
        if (plain)
            hl_jput_string(run, out, hl_jpart(text, i, i + 1));
        else if (c == ' ' && query)
            hl_jput(run, out, "+", 1, hl_jrole(text, i));
        else
            hl_jput_string(run, out, hl_jformat(run, "%%%02X", c));
    }
}

FILTER(filter_urlencode)
{
    hl_jbuffer out = { 0 };
    hl_jvalue  item;
    size_t     n = 0;

    (void)args;
    if (value.kind == HL_J_STRING || !hl_jcan_iterate(value)) {
        put_quoted(run, &out, hl_jstr(run, value), false);
        return hl_jfinish(run, &out);
    }
    hl_jvalue pairs = value.kind == HL_J_DICT ? pairs_of(run, value) : value;
    for (hl_jiterator i = hl_jiterate(run, pairs); hl_jnext(run, &i, &item); n++) {
        if ((item.kind != HL_J_TUPLE && item.kind != HL_J_LIST) || item.list->n != 2)
            hl_jraise(run, "ValueError", "urlencode needs pairs");
        if (n > 0)
            hl_jput_text(run, &out, "&");
        put_quoted(run, &out, hl_jstr(run, item.list->items[0]), true);
        hl_jput_text(run, &out, "=");
        put_quoted(run, &out, hl_jstr(run, item.list->items[1]), true);
    }
    return hl_jfinish(run, &out);
}

FILTER(filter_xmlattr)
{
    hl_jbuffer out       = { 0 };
    bool       autospace = args[0].kind == HL_J_ABSENT || hl_jtruth(run, args[0]);

    if (value.kind != HL_J_DICT)
        no_attribute(run, value, "items");
    for (size_t i = 0; i < value.dict->n; i++) {
        hl_jvalue key = hl_jstr(run, value.dict->keys[i]), one = value.dict->values[i];
        if (one.kind == HL_J_NONE || one.kind == HL_J_UNDEFINED)
            continue;
        for (size_t k = 0; k < key.n_bytes; k++) {
            if (key.bytes[k] == '\0' || strchr(" \t\n\r\f\v/>=", key.bytes[k]) != NULL)
                hl_jraise(run, "ValueError", "Invalid character in attribute name: '%.*s'",
                          (int)key.n_bytes, key.bytes);
        }
        if (out.n_bytes > 0 || autospace)
            hl_jput_text(run, &out, " ");
        hl_jput_string(run, &out, hl_jstring_escape(run, key));
        hl_jput_text(run, &out, "=\"");
        hl_jput_string(run, &out, hl_jstring_escape(run, hl_jstr(run, one)));
        hl_jput_text(run, &out, "\"");
    }
    return hl_jfinish(run, &out);
}

FILTER_RAW(filter_format)
{
    hl_jvalue all = hl_jlist_new(run, HL_J_TUPLE);

    if (args->n > 0 && args->named.n > 0)
        hl_jraise(run, "FilterArgumentError",
                  "can't handle positional and keyword arguments at the same time");
    for (size_t i = 0; i < args->n; i++)
        hl_jlist_add(run, all.list, args->items[i]);
    if (args->named.n > 0) {
        all       = hl_jdict_new(run, HL_J_DICT);
        *all.dict = args->named;
    }
    return hl_jstring_percent(run, hl_jstr(run, value), all);
}

/* -------------------------------------------------------------------------- numbers */

FILTER(filter_abs)
{
    (void)args;
    if (value.kind == HL_J_UNDEFINED || !hl_jis_number(value))
        hl_jraise(run, "TypeError", "bad operand type for abs(): '%s'", hl_jtype(value));
    bool negative = value.kind == HL_J_FLOAT ? signbit(value.real) : value.integer < 0;
    return hl_jnegative(run, value, !negative);
}

/* int(value) of Python; false where it raises TypeError or ValueError. */
static bool to_int(hl_jrun *run, int64_t *out, hl_jvalue value)
{
    double real = 0.0;

    if (value.kind == HL_J_UNDEFINED)
        hl_jundefined_raise(run, value);
    if (hl_jis_int(value)) {
        *out = value.integer;
        return true;
    }
    if (value.kind == HL_J_FLOAT)
        real = value.real;
    else if (value.kind != HL_J_STRING || !hl_jread_float(&real, value))
        return false;
    if (!isfinite(real)) {
        if (value.kind == HL_J_FLOAT && isinf(real))
            hl_jraise(run, "OverflowError", "cannot convert float infinity to integer");
        return false;
    }
    if (fabs(real) >= 9.2e18)
        hl_jraise(run, "OverflowError", "an integer of more than 64 bits");
    *out = (int64_t)real;
    return true;
}

FILTER(filter_int)
{
    int64_t   result    = 0;
    int64_t   base      = int_or(run, args[1], 10);
    hl_jvalue otherwise = args[0].kind != HL_J_ABSENT ? args[0] : hl_jint(0);

    if (value.kind == HL_J_STRING && hl_jread_int(run, &result, value, base))
        return hl_jint(result);
    return to_int(run, &result, value) ? hl_jint(result) : otherwise;
}

FILTER(filter_float)
{
    double real = 0.0;

    if (value.kind == HL_J_UNDEFINED)
        hl_jundefined_raise(run, value);
    if (hl_jis_number(value))
        return hl_jfloat(hl_jreal(value));
    if (value.kind == HL_J_STRING && hl_jread_float(&real, value))
        return hl_jfloat(real);
    return args[0].kind != HL_J_ABSENT ? args[0] : hl_jfloat(0.0);
}

/* round(value, digits), correct for the value that the float has. */
static double round_to(hl_jrun *run, double value, int64_t digits)
{
    if (!isfinite(value) || digits > 30)
        return value;
    if (digits < -300)
        return 0.0;
    if (digits < 0) {
        double unit = pow(10.0, (double)-digits);
        return nearbyint(value / unit) * unit;
    }
    hl_jbuffer text = { 0 };
    hl_jput_string(run, &text, hl_jformat(run, "%.*f", (int)digits, value));
    hl_jput(run, &text, "", 1, 0);
    return strtod(text.bytes, NULL);
}

FILTER(filter_round)
{
    int64_t digits = int_or(run, args[0], 0);
    bool    up = hl_jis(args[1], "ceil"), down = hl_jis(args[1], "floor");

    if (args[1].kind != HL_J_ABSENT && !up && !down && !hl_jis(args[1], "common"))
        hl_jraise(run, "FilterArgumentError", "method must be common, ceil or floor");
    if (!hl_jis_number(value))
        hl_jraise(run, "TypeError", "type %s doesn't define __round__ method", hl_jtype(value));
    if (up || down) {
        double unit   = pow(10.0, (double)digits);
        double scaled = hl_jreal(value) * unit;
        return hl_jfloat((up ? ceil(scaled) : floor(scaled)) / unit);
    }
    if (hl_jis_int(value) && digits >= 0)
        return hl_jint(value.integer);
    double rounded = round_to(run, hl_jreal(value), digits);
    return hl_jis_int(value) ? hl_jint((int64_t)rounded) : hl_jfloat(rounded);
}

FILTER(filter_filesizeformat)
{
    static const char prefixes[] = "kMGTPEZY";
    bool              binary     = hl_jtruth(run, args[0]);
    double            base = binary ? 1024.0 : 1000.0, n = 0.0;

    if (value.kind == HL_J_STRING ? !hl_jread_float(&n, value) : !hl_jis_number(value))
        hl_jraise(run, "ValueError", "could not convert to float");
    n = value.kind == HL_J_STRING ? n : hl_jreal(value);
    if (n == 1.0)
        return hl_jtext("1 Byte");
    if (n < base)
        return hl_jformat(run, "%lld Bytes", (long long)n);
    double unit = base * base;
    size_t i    = 0;
    for (; i + 1 < sizeof prefixes - 1 && n >= unit; i++)
        unit *= base;
    char prefix = binary && i == 0 ? 'K' : prefixes[i];
    return hl_jformat(run, "%.1f %c%sB", base * n / unit, prefix, binary ? "i" : "");
}

/* ---------------------------------------------------------------------------- others */

FILTER(filter_default)
{
    bool missing =
        value.kind == HL_J_UNDEFINED || (hl_jtruth(run, args[1]) && !hl_jtruth(run, value));

    return !missing ? value : args[0].kind != HL_J_ABSENT ? args[0] : hl_jtext("");
}

FILTER(filter_attr)
{
    hl_jvalue found = hl_jget_attribute(run, value, hl_jstr(run, args[0]));

    /* Only attributes, no members: a dictionary's methods, for example. */
    bool member =
        found.kind != HL_J_UNDEFINED && found.kind != HL_J_CALLABLE && value.kind == HL_J_DICT;
    return member ? hl_jundefined_name(run, value, args[0]) : found;
}

FILTER(filter_tojson)
{
    return hl_jto_json(run, value, args);
}

const hl_jentry hl_jfilters[] = {
    { "abs", filter_abs, "", 0, NULL },
    { "attr", filter_attr, "name", 1, NULL },
    { "batch", filter_batch, "linecount fill_with", 1, NULL },
    { "capitalize", filter_capitalize, "", 0, NULL },
    { "center", filter_center, "width", 0, NULL },
    { "count", filter_length, "", 0, NULL },
    { "d", filter_default, "default_value boolean", 0, NULL },
    { "default", filter_default, "default_value boolean", 0, NULL },
    { "dictsort", filter_dictsort, "case_sensitive by reverse", 0, NULL },
    { "e", filter_escape, "", 0, NULL },
    { "escape", filter_escape, "", 0, NULL },
    { "filesizeformat", filter_filesizeformat, "binary", 0, NULL },
    { "first", filter_first, "", 0, NULL },
    { "float", filter_float, "default", 0, NULL },
    { "forceescape", filter_forceescape, "", 0, NULL },
    { "format", NULL, NULL, 0, filter_format },
    { "groupby", filter_groupby, "attribute default case_sensitive", 1, NULL },
    { "indent", filter_indent, "width first blank", 0, NULL },
    { "int", filter_int, "default base", 0, NULL },
    { "items", filter_items, "", 0, NULL },
    { "join", filter_join, "d attribute", 0, NULL },
    { "last", filter_last, "", 0, NULL },
    { "length", filter_length, "", 0, NULL },
    { "list", filter_list, "", 0, NULL },
    { "lower", filter_lower, "", 0, NULL },
    { "map", NULL, NULL, 0, filter_map },
    { "max", filter_max, "case_sensitive attribute", 0, NULL },
    { "min", filter_min, "case_sensitive attribute", 0, NULL },
    { "reject", NULL, NULL, 0, filter_reject },
    { "rejectattr", NULL, NULL, 0, filter_rejectattr },
    { "replace", filter_replace, "old new count", 2, NULL },
    { "reverse", filter_reverse, "", 0, NULL },
    { "round", filter_round, "precision method", 0, NULL },
    { "safe", filter_safe, "", 0, NULL },
    { "select", NULL, NULL, 0, filter_select },
    { "selectattr", NULL, NULL, 0, filter_selectattr },
    { "slice", filter_slice, "slices fill_with", 1, NULL },
    { "sort", filter_sort, "reverse case_sensitive attribute", 0, NULL },
    { "string", filter_string, "", 0, NULL },
    { "striptags", filter_striptags, "", 0, NULL },
    { "sum", filter_sum, "attribute start", 0, NULL },
    { "title", filter_title, "", 0, NULL },
    { "tojson", filter_tojson, "ensure_ascii indent separators sort_keys", 0, NULL },
    { "trim", filter_trim, "chars", 0, NULL },
    { "truncate", filter_truncate, "length killwords end leeway", 0, NULL },
    { "unique", filter_unique, "case_sensitive attribute", 0, NULL },
    { "upper", filter_upper, "", 0, NULL },
    { "urlencode", filter_urlencode, "", 0, NULL },
    { "wordcount", filter_wordcount, "", 0, NULL },
    { "wordwrap", filter_wordwrap, "width break_long_words wrapstring break_on_hyphens", 0, NULL },
    { "xmlattr", filter_xmlattr, "autospace", 0, NULL },
    { 0 },
};

/* ------------------------------------------------------------------------------ tests */

#define TEST_IS(name, condition)                                                                   \
    static hl_jvalue name(hl_jrun *run, hl_jvalue value, hl_jvalue *args)                          \
    {                                                                                              \
        (void)run;                                                                                 \
        (void)value;                                                                               \
        (void)args;                                                                                \
        return hl_jbool(condition);                                                                \
    }

static bool is_multiple(hl_jrun *run, hl_jvalue value, hl_jvalue divisor, int64_t rest)
{
    return hl_jequal(run, hl_jbinary(run, '%', value, divisor), hl_jint(rest));
}

static bool is_same(hl_jvalue a, hl_jvalue b)
{
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case HL_J_NONE:
        return true;
    case HL_J_STRING:
        return a.bytes == b.bytes && a.n_bytes == b.n_bytes;
    default:
        return a.integer == b.integer;
    }
}

static bool is_sequence(hl_jvalue value)
{
    return value.kind == HL_J_STRING || value.kind == HL_J_LIST || value.kind == HL_J_TUPLE ||
           value.kind == HL_J_DICT || value.kind == HL_J_RANGE || value.kind == HL_J_UNDEFINED;
}

static bool exists(const hl_jentry *table, hl_jvalue name)
{
    return name.kind == HL_J_STRING &&
           hl_jentry_find(table, (hl_bytes){ name.bytes, name.n_bytes }) != NULL;
}

TEST_IS(test_odd, is_multiple(run, value, hl_jint(2), 1))
TEST_IS(test_even, is_multiple(run, value, hl_jint(2), 0))
TEST_IS(test_divisibleby, is_multiple(run, value, args[0], 0))
TEST_IS(test_defined, value.kind != HL_J_UNDEFINED)
TEST_IS(test_undefined, value.kind == HL_J_UNDEFINED)
TEST_IS(test_filter, exists(hl_jfilters, value))
TEST_IS(test_test, exists(hl_jtests, value))
TEST_IS(test_none, value.kind == HL_J_NONE)
TEST_IS(test_boolean, value.kind == HL_J_BOOL)
TEST_IS(test_false, value.kind == HL_J_BOOL && value.integer == 0)
TEST_IS(test_true, value.kind == HL_J_BOOL && value.integer == 1)
TEST_IS(test_integer, value.kind == HL_J_INT)
TEST_IS(test_float, value.kind == HL_J_FLOAT)
TEST_IS(test_lower, hl_jstring_is(hl_jstr(run, value), "lower"))
TEST_IS(test_upper, hl_jstring_is(hl_jstr(run, value), "upper"))
TEST_IS(test_string, value.kind == HL_J_STRING)
TEST_IS(test_mapping, value.kind == HL_J_DICT)
TEST_IS(test_number, hl_jis_number(value))
TEST_IS(test_sequence, is_sequence(value))
TEST_IS(test_iterable, hl_jcan_iterate(value) || value.kind == HL_J_LOOP)
TEST_IS(test_callable,
        value.kind == HL_J_CALLABLE || value.kind == HL_J_LOOP || value.kind == HL_J_UNDEFINED)
TEST_IS(test_sameas, is_same(value, args[0]))
TEST_IS(test_escaped, value.kind == HL_J_STRING && value.markup)
TEST_IS(test_in, hl_jcontains(run, args[0], value))
TEST_IS(test_eq, hl_jequal(run, value, args[0]))
TEST_IS(test_ne, !hl_jequal(run, value, args[0]))
TEST_IS(test_lt, hl_jless(run, value, args[0], "<"))
TEST_IS(test_gt, hl_jless(run, args[0], value, ">"))

/* a <= b is not b < a, but for NaN. */
static bool at_most(hl_jrun *run, hl_jvalue a, hl_jvalue b, const char *sign)
{
    if (hl_jis_number(a) && hl_jis_number(b))
        return hl_jless(run, a, b, sign) || hl_jequal(run, a, b);
    return !hl_jless(run, b, a, sign);
}

TEST_IS(test_le, at_most(run, value, args[0], "<="))
TEST_IS(test_ge, at_most(run, args[0], value, ">="))

const hl_jentry hl_jtests[] = {
    { "!=", test_ne, "other", 1, NULL },
    { "<", test_lt, "other", 1, NULL },
    { "<=", test_le, "other", 1, NULL },
    { "==", test_eq, "other", 1, NULL },
    { ">", test_gt, "other", 1, NULL },
    { ">=", test_ge, "other", 1, NULL },
    { "boolean", test_boolean, "", 0, NULL },
    { "callable", test_callable, "", 0, NULL },
    { "defined", test_defined, "", 0, NULL },
    { "divisibleby", test_divisibleby, "num", 1, NULL },
    { "eq", test_eq, "other", 1, NULL },
    { "equalto", test_eq, "other", 1, NULL },
    { "escaped", test_escaped, "", 0, NULL },
    { "even", test_even, "", 0, NULL },
    { "false", test_false, "", 0, NULL },
    { "filter", test_filter, "", 0, NULL },
    { "float", test_float, "", 0, NULL },
    { "ge", test_ge, "other", 1, NULL },
    { "greaterthan", test_gt, "other", 1, NULL },
    { "gt", test_gt, "other", 1, NULL },
    { "in", test_in, "seq", 1, NULL },
    { "integer", test_integer, "", 0, NULL },
    { "iterable", test_iterable, "", 0, NULL },
    { "le", test_le, "other", 1, NULL },
    { "lessthan", test_lt, "other", 1, NULL },
    { "lower", test_lower, "", 0, NULL },
    { "lt", test_lt, "other", 1, NULL },
    { "mapping", test_mapping, "", 0, NULL },
    { "ne", test_ne, "other", 1, NULL },
    { "none", test_none, "", 0, NULL },
    { "number", test_number, "", 0, NULL },
    { "odd", test_odd, "", 0, NULL },
    { "sameas", test_sameas, "other", 1, NULL },
    { "sequence", test_sequence, "", 0, NULL },
    { "string", test_string, "", 0, NULL },
    { "test", test_test, "", 0, NULL },
    { "true", test_true, "", 0, NULL },
    { "undefined", test_undefined, "", 0, NULL },
    { "upper", test_upper, "", 0, NULL },
    { 0 },
};
