/* jinja_value.c - the values of templates, as Python has them.
 *
 * Memory, errors, containers, truth and comparisons, arithmetic, str and repr, JSON in and out. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"
#include "tokenize/jinja_parts.h"
#include "tokenize/unicode.h"

/* ------------------------------------------------------------------- memory and errors */

#define CHUNK_BYTES ((size_t)64 << 10)

struct hl_jchunk {
    hl_jchunk *next;
    size_t     n_bytes;
};

void hl_jfault_end(hl_jfault *fault, hl_status status)
{
    fault->status = status;
    longjmp(fault->back, 1);
}

void hl_jfault_raise_bytes(hl_jfault *fault, const char *kind, hl_bytes text)
{
    snprintf(fault->kind, sizeof fault->kind, "%s", kind);
    hl_status status = hl_strndup(&fault->text, text.data, text.n_bytes);
    hl_jfault_end(fault, status == HL_OK ? HL_BAD_INPUT : status);
}

void hl_jfault_raise(hl_jfault *fault, const char *kind, const char *format, ...)
{
    char    text[HL_MESSAGE_BYTES];
    va_list arguments;

    va_start(arguments, format);
    int n = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    hl_jfault_raise_bytes(fault, kind,
                          (hl_bytes){ text, n < (int)sizeof text ? (size_t)n : sizeof text - 1 });
}

hl_status hl_jfault_report(const hl_jfault *fault)
{
    if (fault->status != HL_BAD_INPUT)
        return fault->status; /* the message is stored */
    return hl_fail(HL_BAD_INPUT, "%s, line %d: %s: %s", fault->where, fault->line, fault->kind,
                   fault->text);
}

static __attribute__((noreturn)) void too_much(hl_jfault *fault, const char *what, size_t most)
{
    hl_jfault_end(fault, hl_fail(HL_LIMIT, "%s, line %d: the template needs more than %zu %s",
                                 fault->where, fault->line, most, what));
}

static void count_memory(hl_jfault *fault, size_t n_bytes)
{
    fault->n_memory += n_bytes;
    if (fault->n_memory > fault->most_memory)
        too_much(fault, "bytes of memory", fault->most_memory);
}

void *hl_jarena_take(hl_jarena *arena, hl_jfault *fault, size_t n_bytes)
{
    size_t rounded = arena->packed ? n_bytes : (n_bytes + 15) / 16 * 16;

    if (rounded > fault->most_memory)
        too_much(fault, "bytes of memory", fault->most_memory);
    if (arena->at == NULL || (size_t)(arena->end - arena->at) < rounded) {
        size_t     size  = rounded > CHUNK_BYTES / 4 ? 2 * rounded + 64 : CHUNK_BYTES;
        hl_jchunk *chunk = NULL;
        count_memory(fault, size);
        hl_status status = hl_alloc((void **)&chunk, 1, sizeof *chunk + 64 + size);
        if (status != HL_OK)
            hl_jfault_end(fault, status);
        chunk->next    = arena->chunks;
        chunk->n_bytes = size;
        arena->chunks  = chunk;
        arena->at      = (char *)chunk + 64;
        arena->end     = arena->at + size;
    }
    char *block = arena->at;
    arena->at += rounded;
    if (!arena->packed)
        memset(block, 0, rounded);
    return block;
}

bool hl_jarena_extend(hl_jarena *arena, const void *block, size_t n_old, size_t n_new)
{
    if (arena->at == NULL || (const char *)block + n_old != arena->at ||
        (size_t)(arena->end - arena->at) < n_new - n_old)
        return false;
    arena->at += n_new - n_old;
    return true;
}

void hl_jarena_free(hl_jarena *arena)
{
    while (arena->chunks != NULL) {
        hl_jchunk *next = arena->chunks->next;
        hl_free(arena->chunks);
        arena->chunks = next;
    }
    *arena = (hl_jarena){ 0 };
}

void *hl_jtake_items(hl_jrun *run, size_t n, size_t size)
{
    size_t n_bytes = 0;

    if (!hl_size_multiply(&n_bytes, n, size))
        too_much(&run->fault, "bytes of memory", run->fault.most_memory);
    return hl_jarena_take(&run->objects, &run->fault, n_bytes);
}

void hl_jstep(hl_jrun *run, size_t n)
{
    if (n > run->most_steps - run->n_steps)
        too_much(&run->fault, "steps", run->most_steps);
    run->n_steps += n;
}

void hl_jdeeper(hl_jrun *run)
{
    if (++run->depth > HL_JINJA_DEPTH)
        hl_jraise(run, "RecursionError", "maximum recursion depth exceeded");
}

/* ------------------------------------------------------------------------ growing texts */

static void reserve(hl_jrun *run, hl_jbuffer *buffer, size_t more)
{
    size_t needed = buffer->n_bytes + more;

    if (buffer->most != 0 && needed > buffer->most)
        too_much(&run->fault, "bytes of output", buffer->most);
    if (needed > UINT32_MAX)
        too_much(&run->fault, "bytes in a text", UINT32_MAX);
    if (needed <= buffer->capacity)
        return;
    size_t   capacity = needed < 64 ? 128 : 2 * needed;
    char    *bytes    = hl_jarena_take(&run->texts, &run->fault, capacity);
    uint8_t *roles    = hl_jarena_take(&run->roles, &run->fault, capacity);
    if (buffer->n_bytes > 0) {
        memcpy(bytes, buffer->bytes, buffer->n_bytes);
        memcpy(roles, buffer->roles, buffer->n_bytes);
    }
    buffer->bytes    = bytes;
    buffer->roles    = roles;
    buffer->capacity = capacity;
}

void hl_jput(hl_jrun *run, hl_jbuffer *buffer, const char *bytes, size_t n, uint8_t role)
{
    if (n == 0)
        return;
    hl_jwork(run, n);
    reserve(run, buffer, n);
    memcpy(buffer->bytes + buffer->n_bytes, bytes, n);
    memset(buffer->roles + buffer->n_bytes, role, n);
    buffer->n_bytes += n;
}

void hl_jput_text(hl_jrun *run, hl_jbuffer *buffer, const char *text)
{
    hl_jput(run, buffer, text, strlen(text), HL_ROLE_TEMPLATE);
}

void hl_jput_string(hl_jrun *run, hl_jbuffer *buffer, hl_jvalue string)
{
    size_t at = buffer->n_bytes;

    hl_jput(run, buffer, string.bytes, string.n_bytes, string.role);
    if (string.roles != NULL && string.n_bytes > 0)
        memcpy(buffer->roles + at, string.roles, string.n_bytes);
}

void hl_jput_character(hl_jrun *run, hl_jbuffer *buffer, uint32_t character, uint8_t role)
{
    char   bytes[4] = { 0 };
    size_t n        = hl_utf8_encode(bytes, character);

    hl_jput(run, buffer, bytes, n, role);
}

/* The text so far; the buffer must not be written to afterwards. */
hl_jvalue hl_jfinish(hl_jrun *run, const hl_jbuffer *buffer)
{
    hl_jvalue value = { .kind    = HL_J_STRING,
                        .bytes   = buffer->bytes != NULL ? buffer->bytes : "",
                        .n_bytes = (uint32_t)buffer->n_bytes };

    hl_jwork(run, buffer->n_bytes);
    if (buffer->n_bytes == 0)
        return value;
    value.role = buffer->roles[0];
    if (buffer->n_bytes > 1 && memcmp(buffer->roles, buffer->roles + 1, buffer->n_bytes - 1) != 0)
        value.roles = buffer->roles;
    return value;
}

/* --------------------------------------------------------------------------- strings */

hl_jvalue hl_jtext(const char *text)
{
    return (hl_jvalue){ .kind = HL_J_STRING, .bytes = text, .n_bytes = (uint32_t)strlen(text) };
}

hl_jvalue hl_jstring(hl_jrun *run, const char *bytes, size_t n_bytes, uint8_t role)
{
    hl_jwork(run, n_bytes);
    if (n_bytes > UINT32_MAX)
        too_much(&run->fault, "bytes in a text", UINT32_MAX);
    char *copy = hl_jarena_take(&run->texts, &run->fault, n_bytes);
    if (n_bytes > 0)
        memcpy(copy, bytes, n_bytes);
    return (hl_jvalue){
        .kind = HL_J_STRING, .bytes = copy, .n_bytes = (uint32_t)n_bytes, .role = role
    };
}

hl_jvalue hl_jformat(hl_jrun *run, const char *format, ...)
{
    char    text[HL_MESSAGE_BYTES];
    va_list arguments;

    va_start(arguments, format);
    int n = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return hl_jstring(run, text, n < (int)sizeof text ? (size_t)n : sizeof text - 1,
                      HL_ROLE_TEMPLATE);
}

hl_jvalue hl_jpart(hl_jvalue string, size_t begin, size_t end)
{
    string.bytes += begin;
    string.n_bytes = (uint32_t)(end - begin);
    if (string.roles != NULL)
        string.roles += begin;
    return string;
}

/* The roles of a string as an array at the end of their arena. */
static uint8_t *spread_roles(hl_jrun *run, hl_jvalue left, hl_jvalue right)
{
    size_t   n     = (size_t)left.n_bytes + right.n_bytes;
    uint8_t *roles = NULL;

    if (left.roles != NULL && hl_jarena_extend(&run->roles, left.roles, left.n_bytes, n)) {
        roles = (uint8_t *)left.roles; /* grows behind what others see of it */
    } else {
        roles = hl_jarena_take(&run->roles, &run->fault, n);
        if (left.roles != NULL)
            memcpy(roles, left.roles, left.n_bytes);
        else
            memset(roles, left.role, left.n_bytes);
    }
    if (right.roles != NULL)
        memcpy(roles + left.n_bytes, right.roles, right.n_bytes);
    else
        memset(roles + left.n_bytes, right.role, right.n_bytes);
    return roles;
}

/* A text that grows piece by piece, as `text = text + piece`, is extended where it lies: otherwise
 * a long conversation would take the square of its length.  Nobody sees the bytes behind the end of
 * the arena, so a left side that ends exactly there can have them. */
hl_jvalue hl_jconcat(hl_jrun *run, hl_jvalue left, hl_jvalue right)
{
    size_t    n      = (size_t)left.n_bytes + right.n_bytes;
    hl_jvalue result = left;

    if (right.n_bytes == 0 || left.n_bytes == 0) {
        result        = right.n_bytes == 0 ? left : right;
        result.markup = left.markup;
        return result;
    }
    hl_jwork(run, right.n_bytes);
    if (n > UINT32_MAX)
        too_much(&run->fault, "bytes in a text", UINT32_MAX);
    if (!hl_jarena_extend(&run->texts, left.bytes, left.n_bytes, n)) {
        hl_jwork(run, left.n_bytes);
        char *bytes = hl_jarena_take(&run->texts, &run->fault, n);
        memcpy(bytes, left.bytes, left.n_bytes);
        result.bytes = bytes;
    }
    memcpy((char *)result.bytes + left.n_bytes, right.bytes, right.n_bytes);
    result.n_bytes = (uint32_t)n;
    if (left.roles != NULL || right.roles != NULL || left.role != right.role)
        result.roles = spread_roles(run, left, right);
    return result;
}

/* ------------------------------------------------------------------------ containers */

static void grow(hl_jrun *run, hl_jvalue **items, size_t n, size_t capacity)
{
    hl_jvalue *more = hl_jtake(run, capacity, hl_jvalue);

    if (n > 0)
        memcpy(more, *items, n * sizeof **items);
    *items = more;
}

hl_jvalue hl_jlist_new(hl_jrun *run, hl_jkind kind)
{
    return (hl_jvalue){ .kind = (uint8_t)kind, .list = hl_jtake(run, 1, hl_jlist) };
}

void hl_jlist_add(hl_jrun *run, hl_jlist *list, hl_jvalue item)
{
    hl_jstep(run, 1);
    if (list->n == list->capacity) {
        list->capacity = list->capacity != 0 ? 2 * list->capacity : 4;
        grow(run, &list->items, list->n, list->capacity);
    }
    list->items[list->n++] = item;
}

hl_jvalue hl_jpair(hl_jrun *run, hl_jvalue first, hl_jvalue second)
{
    hl_jvalue pair = hl_jlist_new(run, HL_J_TUPLE);

    hl_jlist_add(run, pair.list, first);
    hl_jlist_add(run, pair.list, second);
    return pair;
}

hl_jvalue hl_jdict_new(hl_jrun *run, hl_jkind kind)
{
    return (hl_jvalue){ .kind = (uint8_t)kind, .dict = hl_jtake(run, 1, hl_jdict) };
}

static void check_key(hl_jrun *run, hl_jvalue key)
{
    if (key.kind == HL_J_LIST || key.kind == HL_J_DICT)
        hl_jraise(run, "TypeError", "unhashable type: '%s'", hl_jtype(key));
    if (key.kind == HL_J_TUPLE) {
        for (size_t i = 0; i < key.list->n; i++)
            check_key(run, key.list->items[i]);
    }
}

hl_jvalue *hl_jdict_find(hl_jrun *run, const hl_jdict *dict, hl_jvalue key)
{
    check_key(run, key);
    hl_jstep(run, 1 + dict->n / 8);
    for (size_t i = 0; i < dict->n; i++) {
        if (key.kind == HL_J_STRING && dict->keys[i].kind == HL_J_STRING) {
            if (key.n_bytes == dict->keys[i].n_bytes &&
                memcmp(key.bytes, dict->keys[i].bytes, key.n_bytes) == 0)
                return &dict->values[i];
        } else if (hl_jequal(run, dict->keys[i], key)) {
            return &dict->values[i];
        }
    }
    return NULL;
}

static void add_member(hl_jrun *run, hl_jdict *dict, hl_jvalue key, hl_jvalue value)
{
    hl_jstep(run, 1);
    if (dict->n == dict->capacity) {
        dict->capacity = dict->capacity != 0 ? 2 * dict->capacity : 4;
        grow(run, &dict->keys, dict->n, dict->capacity);
        grow(run, &dict->values, dict->n, dict->capacity);
    }
    dict->keys[dict->n]     = key;
    dict->values[dict->n++] = value;
}

void hl_jdict_put(hl_jrun *run, hl_jdict *dict, hl_jvalue key, hl_jvalue value)
{
    hl_jvalue *old = hl_jdict_find(run, dict, key);

    if (old != NULL)
        *old = value;
    else
        add_member(run, dict, key, value);
}

/* ------------------------------------------------------------------- undefined values */

static hl_jvalue new_undefined(hl_jrun *run, const char *kind, hl_jvalue hint, hl_jvalue owner,
                               hl_jvalue name)
{
    hl_jvalue value = { .kind = HL_J_UNDEFINED, .undefined = hl_jtake(run, 1, hl_jundefined) };

    *value.undefined = (hl_jundefined){ kind, hint, owner, name };
    return value;
}

hl_jvalue hl_jundefined_hint(hl_jrun *run, const char *hint)
{
    hl_jvalue none = { 0 };

    return new_undefined(run, "UndefinedError", hl_jformat(run, "%s", hint), none, none);
}

hl_jvalue hl_jundefined_name(hl_jrun *run, hl_jvalue owner, hl_jvalue name)
{
    return new_undefined(run, "UndefinedError", (hl_jvalue){ 0 }, owner, name);
}

hl_jvalue hl_junsafe(hl_jrun *run, hl_jvalue owner, hl_jvalue name)
{
    hl_jvalue hint = hl_jformat(run, "access to attribute '%.*s' of '%s' object is unsafe.",
                                (int)name.n_bytes, name.bytes, hl_jtype(owner));

    return new_undefined(run, "SecurityError", hint, owner, name);
}

static const char *module_of(hl_jvalue value)
{
    switch (value.kind) {
    case HL_J_NAMESPACE:
        return "jinja2.utils.";
    case HL_J_LOOP:
        return "jinja2.runtime.";
    case HL_J_CALLABLE:
        return value.callable->entry == NULL ? "jinja2.runtime." : "";
    case HL_J_STRING:
        return value.markup ? "markupsafe." : "";
    default:
        return "";
    }
}

void hl_jundefined_raise(hl_jrun *run, hl_jvalue value)
{
    const hl_jundefined *what  = value.undefined;
    hl_jbuffer           text  = { 0 };
    hl_jvalue            owner = what->owner;

    if (what->hint.kind != HL_J_ABSENT) {
        hl_jput_string(run, &text, what->hint);
    } else if (owner.kind == HL_J_ABSENT) {
        hl_jput_string(run, &text, hl_jrepr(run, what->name));
        hl_jput_text(run, &text, " is undefined");
    } else {
        bool attribute = what->name.kind == HL_J_STRING;
        hl_jput_text(run, &text, attribute ? "'" : "");
        if (owner.kind == HL_J_NONE) {
            hl_jput_text(run, &text, "None");
        } else {
            hl_jput_text(run, &text, module_of(owner));
            hl_jput_text(run, &text, hl_jtype(owner));
            hl_jput_text(run, &text, " object");
        }
        hl_jput_text(run, &text, attribute ? "' has no attribute " : " has no element ");
        hl_jput_string(run, &text, hl_jrepr(run, what->name));
    }
    hl_jvalue message = hl_jfinish(run, &text);
    hl_jfault_raise_bytes(&run->fault, what->kind, (hl_bytes){ message.bytes, message.n_bytes });
}

/* ---------------------------------------------------------------- types, truth, order */

const char *hl_jtype(hl_jvalue value)
{
    switch (value.kind) {
    case HL_J_ABSENT:
    case HL_J_NONE:
        return "NoneType";
    case HL_J_UNDEFINED:
        return "Undefined";
    case HL_J_BOOL:
        return "bool";
    case HL_J_INT:
        return "int";
    case HL_J_FLOAT:
        return "float";
    case HL_J_STRING:
        return value.markup ? "Markup" : "str";
    case HL_J_LIST:
        return "list";
    case HL_J_TUPLE:
        return value.list->group ? "_GroupTuple" : "tuple";
    case HL_J_DICT:
        return "dict";
    case HL_J_NAMESPACE:
        return "Namespace";
    case HL_J_RANGE:
        return "range";
    case HL_J_GENERATOR:
        return "generator";
    case HL_J_VIEW:
        return value.view == 'k' ? "dict_keys" : value.view == 'v' ? "dict_values" : "dict_items";
    case HL_J_LOOP:
        return "LoopContext";
    default:
        return value.callable->entry == NULL ? "Macro" : "function";
    }
}

static int64_t range_length(const hl_jrange *range)
{
    if (range->step > 0)
        return range->end > range->begin ? (range->end - range->begin - 1) / range->step + 1 : 0;
    return range->begin > range->end ? (range->begin - range->end - 1) / -range->step + 1 : 0;
}

bool hl_jtruth(hl_jrun *run, hl_jvalue value)
{
    (void)run;
    switch (value.kind) {
    case HL_J_ABSENT:
    case HL_J_UNDEFINED:
    case HL_J_NONE:
        return false;
    case HL_J_BOOL:
    case HL_J_INT:
        return value.integer != 0;
    case HL_J_FLOAT:
        return value.real != 0.0;
    case HL_J_STRING:
        return value.n_bytes > 0;
    case HL_J_LIST:
    case HL_J_TUPLE:
        return value.list->n > 0;
    case HL_J_DICT:
    case HL_J_VIEW:
        return value.dict->n > 0;
    case HL_J_RANGE:
        return range_length(value.range) > 0;
    case HL_J_LOOP:
        return hl_jlength(run, value).integer > 0;
    default:
        return true;
    }
}

static bool equal_items(hl_jrun *run, const hl_jlist *a, const hl_jlist *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        if (!hl_jequal(run, a->items[i], b->items[i]))
            return false;
    }
    return true;
}

static bool equal_members(hl_jrun *run, const hl_jdict *a, const hl_jdict *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        const hl_jvalue *other = hl_jdict_find(run, b, a->keys[i]);
        if (other == NULL || !hl_jequal(run, a->values[i], *other))
            return false;
    }
    return true;
}

static bool equal_ranges(const hl_jrange *a, const hl_jrange *b)
{
    int64_t n = range_length(a);

    return n == range_length(b) &&
           (n == 0 || (a->begin == b->begin && (n == 1 || a->step == b->step)));
}

static bool equal(hl_jrun *run, hl_jvalue a, hl_jvalue b)
{
    switch (a.kind) {
    case HL_J_NONE:
    case HL_J_UNDEFINED:
        return true;
    case HL_J_STRING:
        hl_jwork(run, a.n_bytes);
        return a.n_bytes == b.n_bytes && memcmp(a.bytes, b.bytes, a.n_bytes) == 0;
    case HL_J_LIST:
    case HL_J_TUPLE:
        return equal_items(run, a.list, b.list);
    case HL_J_DICT:
        return equal_members(run, a.dict, b.dict);
    case HL_J_VIEW:
        return a.dict == b.dict && a.view == b.view;
    case HL_J_RANGE:
        return equal_ranges(a.range, b.range);
    default:
        return a.callable == b.callable;
    }
}

bool hl_jequal(hl_jrun *run, hl_jvalue a, hl_jvalue b)
{
    hl_jstep(run, 1);
    if (hl_jis_int(a) && hl_jis_int(b))
        return a.integer == b.integer;
    if (hl_jis_number(a) && hl_jis_number(b))
        return hl_jreal(a) == hl_jreal(b);
    if (a.kind != b.kind)
        return false;
    hl_jdeeper(run);
    bool same = equal(run, a, b);
    run->depth--;
    return same;
}

static int compare_bytes(hl_jvalue a, hl_jvalue b)
{
    size_t n     = a.n_bytes < b.n_bytes ? a.n_bytes : b.n_bytes;
    int    order = n > 0 ? memcmp(a.bytes, b.bytes, n) : 0;

    return order != 0 ? order : a.n_bytes < b.n_bytes ? -1 : a.n_bytes > b.n_bytes;
}

/* x > y and x <= y are decided by y < x. */
static __attribute__((noreturn)) void refuse_order(hl_jrun *run, hl_jvalue a, hl_jvalue b,
                                                   const char *sign)
{
    bool swapped = strcmp(sign, ">") == 0 || strcmp(sign, "<=") == 0;

    hl_jraise(run, "TypeError", "'%s' not supported between instances of '%s' and '%s'", sign,
              hl_jtype(swapped ? b : a), hl_jtype(swapped ? a : b));
}

bool hl_jless(hl_jrun *run, hl_jvalue a, hl_jvalue b, const char *sign)
{
    hl_jstep(run, 1);
    if (hl_jis_int(a) && hl_jis_int(b))
        return a.integer < b.integer;
    if (hl_jis_number(a) && hl_jis_number(b))
        return hl_jreal(a) < hl_jreal(b);
    if (a.kind == HL_J_UNDEFINED)
        hl_jundefined_raise(run, a);
    if (b.kind == HL_J_UNDEFINED)
        hl_jundefined_raise(run, b);
    if (a.kind == HL_J_STRING && b.kind == HL_J_STRING)
        return compare_bytes(a, b) < 0; /* the order of UTF-8 is that of characters */
    if (a.kind != b.kind || (a.kind != HL_J_LIST && a.kind != HL_J_TUPLE))
        refuse_order(run, a, b, sign);
    hl_jdeeper(run);
    size_t n = a.list->n < b.list->n ? a.list->n : b.list->n, i = 0;
    while (i < n && hl_jequal(run, a.list->items[i], b.list->items[i]))
        i++;
    bool less =
        i < n ? hl_jless(run, a.list->items[i], b.list->items[i], sign) : a.list->n < b.list->n;
    run->depth--;
    return less;
}

bool hl_jcontains(hl_jrun *run, hl_jvalue container, hl_jvalue item)
{
    hl_jvalue candidate;

    if (container.kind == HL_J_STRING) {
        if (item.kind == HL_J_UNDEFINED || item.kind != HL_J_STRING)
            hl_jraise(run, "TypeError", "'in <string>' requires string as left operand, not %s",
                      hl_jtype(item));
        hl_jwork(run, container.n_bytes);
        return item.n_bytes == 0 ||
               hl_find_bytes(container.bytes, container.n_bytes, item.bytes, item.n_bytes) != NULL;
    }
    if (container.kind == HL_J_DICT || (container.kind == HL_J_VIEW && container.view == 'k'))
        return hl_jdict_find(run, container.dict, item) != NULL;
    if (!hl_jcan_iterate(container))
        hl_jraise(run, "TypeError", "argument of type '%s' is not iterable", hl_jtype(container));
    for (hl_jiterator i = hl_jiterate(run, container); hl_jnext(run, &i, &candidate);) {
        if (hl_jequal(run, candidate, item))
            return true;
    }
    return false;
}

hl_jvalue hl_jlength(hl_jrun *run, hl_jvalue value)
{
    switch (value.kind) {
    case HL_J_STRING:
        hl_jwork(run, value.n_bytes);
        return hl_jint((int64_t)hl_utf8_count(value.bytes, value.n_bytes));
    case HL_J_LIST:
    case HL_J_TUPLE:
        return hl_jint((int64_t)value.list->n);
    case HL_J_DICT:
    case HL_J_VIEW:
        return hl_jint((int64_t)value.dict->n);
    case HL_J_RANGE:
        return hl_jint(range_length(value.range));
    case HL_J_UNDEFINED:
        return hl_jint(0);
    case HL_J_LOOP:
        return hl_jget_attribute(run, value, hl_jtext("length"));
    default:
        hl_jraise(run, "TypeError", "object of type '%s' has no len()", hl_jtype(value));
    }
}

/* ------------------------------------------------------------------------- iterating */

bool hl_jcan_iterate(hl_jvalue value)
{
    switch (value.kind) {
    case HL_J_UNDEFINED:
    case HL_J_STRING:
    case HL_J_LIST:
    case HL_J_TUPLE:
    case HL_J_DICT:
    case HL_J_RANGE:
    case HL_J_GENERATOR:
    case HL_J_VIEW:
        return true;
    default:
        return false;
    }
}

hl_jiterator hl_jiterate(hl_jrun *run, hl_jvalue value)
{
    if (!hl_jcan_iterate(value))
        hl_jraise(run, "TypeError", "'%s' object is not iterable", hl_jtype(value));
    return (hl_jiterator){ .value  = value,
                           .number = value.kind == HL_J_RANGE ? value.range->begin : 0 };
}

static bool next_member(hl_jrun *run, hl_jiterator *i, hl_jvalue *item)
{
    const hl_jdict *dict = i->value.dict;

    if (i->at >= dict->n)
        return false;
    size_t at = i->at++;
    if (i->value.kind == HL_J_VIEW && i->value.view == 'i')
        *item = hl_jpair(run, dict->keys[at], dict->values[at]);
    else
        *item =
            i->value.kind == HL_J_VIEW && i->value.view == 'v' ? dict->values[at] : dict->keys[at];
    return true;
}

bool hl_jnext(hl_jrun *run, hl_jiterator *i, hl_jvalue *item)
{
    hl_jlist *list = i->value.list;

    hl_jstep(run, 1);
    switch (i->value.kind) {
    case HL_J_STRING:
        if (i->at >= i->value.n_bytes)
            return false;
        size_t begin = i->at;
        (void)hl_utf8_next(i->value.bytes, &i->at);
        *item        = hl_jpart(i->value, begin, i->at);
        item->markup = false;
        return true;
    case HL_J_LIST:
    case HL_J_TUPLE:
        if (i->at >= list->n)
            return false;
        *item = list->items[i->at++];
        return true;
    case HL_J_GENERATOR:
        if (list->at >= list->n)
            return false;
        *item = list->items[list->at++];
        return true;
    case HL_J_RANGE:
        if (i->at++ >= (size_t)range_length(i->value.range))
            return false;
        *item = hl_jint(i->number);
        i->number += i->value.range->step; /* ranges are far from the ends of 64 bits */
        return true;
    case HL_J_DICT:
    case HL_J_VIEW:
        return next_member(run, i, item);
    default:
        return false;
    }
}

hl_jvalue hl_jitems(hl_jrun *run, hl_jvalue value)
{
    hl_jvalue list = hl_jlist_new(run, HL_J_LIST), item;

    for (hl_jiterator i = hl_jiterate(run, value); hl_jnext(run, &i, &item);)
        hl_jlist_add(run, list.list, item);
    return list;
}

/* -------------------------------------------------------------------------- slicing */

int64_t hl_jindex(hl_jrun *run, hl_jvalue value)
{
    if (value.kind == HL_J_UNDEFINED)
        hl_jundefined_raise(run, value);
    if (!hl_jis_int(value))
        hl_jraise(run, "TypeError", "'%s' object cannot be interpreted as an integer",
                  hl_jtype(value));
    return value.integer;
}

static int64_t clamp(int64_t index, int64_t length, bool backwards)
{
    if (index < 0)
        index = index < -length ? -1 : index + length;
    if (index < 0)
        return backwards ? -1 : 0;
    return index > length - backwards ? length - backwards : index;
}

void hl_jslice_bounds(hl_jrun *run, int64_t *begin, int64_t *end, int64_t *step, int64_t length,
                      const hl_jvalue bounds[3])
{
    for (int i = 0; i < 3; i++) {
        if (bounds[i].kind != HL_J_ABSENT && bounds[i].kind != HL_J_NONE && !hl_jis_int(bounds[i]))
            hl_jraise(run, "TypeError",
                      "slice indices must be integers or None or have an __index__ method");
    }
    bool given[3];
    for (int i = 0; i < 3; i++)
        given[i] = hl_jis_int(bounds[i]);
    *step = given[2] ? bounds[2].integer : 1;
    if (*step == 0)
        hl_jraise(run, "ValueError", "slice step cannot be zero");
    if (*step < -length - 1)
        *step = -length - 1;
    if (*step > length + 1)
        *step = length + 1;
    bool back = *step < 0;
    *begin    = given[0] ? clamp(bounds[0].integer, length, back) : back ? length - 1 : 0;
    *end      = given[1] ? clamp(bounds[1].integer, length, back) : back ? -1 : length;
}

static hl_jvalue slice_text(hl_jrun *run, hl_jvalue text, const hl_jvalue bounds[3])
{
    int64_t    begin, end, step, n = (int64_t)hl_utf8_count(text.bytes, text.n_bytes);
    bool       ascii  = n == (int64_t)text.n_bytes;
    hl_jbuffer result = { 0 };

    hl_jwork(run, text.n_bytes);
    hl_jslice_bounds(run, &begin, &end, &step, n, bounds);
    size_t *starts = NULL; /* of characters */
    if (!ascii) {
        starts    = hl_jtake(run, (size_t)n + 1, size_t);
        size_t at = 0;
        for (int64_t i = 0; i < n; i++) {
            starts[i] = at;
            (void)hl_utf8_next(text.bytes, &at);
        }
        starts[n] = at;
    }
#define BYTE_OF(i) (ascii ? (size_t)(i) : starts[i])
    if (step == 1)
        return hl_jpart(text, BYTE_OF(begin), BYTE_OF(end > begin ? end : begin));
    for (int64_t i = begin; step > 0 ? i < end : i > end; i += step)
        hl_jput_string(run, &result, hl_jpart(text, BYTE_OF(i), BYTE_OF(i + 1)));
#undef BYTE_OF
    hl_jvalue value = hl_jfinish(run, &result);
    value.markup    = text.markup;
    return value;
}

hl_jvalue hl_jslice(hl_jrun *run, hl_jvalue value, const hl_jvalue bounds[3])
{
    int64_t begin, end, step;

    if (value.kind == HL_J_STRING)
        return slice_text(run, value, bounds);
    if (value.kind == HL_J_RANGE) {
        hl_jrange *range = hl_jtake(run, 1, hl_jrange);
        hl_jslice_bounds(run, &begin, &end, &step, range_length(value.range), bounds);
        *range =
            (hl_jrange){ value.range->begin + begin * value.range->step,
                         value.range->begin + end * value.range->step, value.range->step * step };
        return (hl_jvalue){ .kind = HL_J_RANGE, .range = range };
    }
    hl_jvalue result = hl_jlist_new(run, value.kind);
    hl_jslice_bounds(run, &begin, &end, &step, (int64_t)value.list->n, bounds);
    for (int64_t i = begin; step > 0 ? i < end : i > end; i += step)
        hl_jlist_add(run, result.list, value.list->items[i]);
    return result;
}

/* ------------------------------------------------------------------------ arithmetic */

static __attribute__((noreturn)) void refuse_operands(hl_jrun *run, const char *op, hl_jvalue a,
                                                      hl_jvalue b)
{
    hl_jraise(run, "TypeError", "unsupported operand type(s) for %s: '%s' and '%s'", op,
              hl_jtype(a), hl_jtype(b));
}

static hl_jvalue checked(hl_jrun *run, bool overflow, int64_t value)
{
    if (overflow)
        hl_jraise(run, "OverflowError", "an integer of more than 64 bits");
    return hl_jint(value);
}

static int64_t floor_divide(int64_t a, int64_t b)
{
    int64_t quotient = a / b;

    return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

static double floor_modulo(double a, double b)
{
    double rest = fmod(a, b);

    if (rest != 0.0 && (rest < 0.0) != (b < 0.0))
        rest += b;
    return rest != 0.0 ? rest : copysign(0.0, b);
}

static hl_jvalue power(hl_jrun *run, hl_jvalue a, hl_jvalue b)
{
    if (hl_jis_int(a) && hl_jis_int(b) && b.integer >= 0) {
        int64_t result = 1, base = a.integer;
        bool    overflow = false;
        if (base == 0 || base == 1 || base == -1)
            return hl_jint(b.integer == 0 ? 1 : base == -1 && b.integer % 2 == 0 ? 1 : base);
        for (int64_t i = 0; i < b.integer && !overflow; i++)
            overflow = __builtin_mul_overflow(result, base, &result);
        return checked(run, overflow, result);
    }
    if (hl_jreal(a) == 0.0 && hl_jreal(b) < 0.0)
        hl_jraise(run, "ZeroDivisionError", "0.0 cannot be raised to a negative power");
    double result = pow(hl_jreal(a), hl_jreal(b));
    if (isinf(result) && !isinf(hl_jreal(a)) && !isinf(hl_jreal(b)))
        hl_jraise(run, "OverflowError", "(34, 'Numerical result out of range')");
    return hl_jfloat(result);
}

static hl_jvalue integers(hl_jrun *run, char op, int64_t a, int64_t b)
{
    int64_t result = 0;
    bool    fits   = true;

    switch (op) {
    case '+':
        fits = !__builtin_add_overflow(a, b, &result);
        break;
    case '-':
        fits = !__builtin_sub_overflow(a, b, &result);
        break;
    case '*':
        fits = !__builtin_mul_overflow(a, b, &result);
        break;
    case '/':
        if (b == 0)
            hl_jraise(run, "ZeroDivisionError", "division by zero");
        return hl_jfloat((double)a / (double)b);
    default:
        if (b == 0)
            hl_jraise(run, "ZeroDivisionError",
                      op == 'F' ? "integer division or modulo by zero" : "integer modulo by zero");
        if (b != -1)
            result = op == 'F' ? floor_divide(a, b) : a - floor_divide(a, b) * b;
        else if (op == 'F')
            fits = !__builtin_sub_overflow((int64_t)0, a, &result);
        break;
    }
    return checked(run, !fits, result);
}

static hl_jvalue reals(hl_jrun *run, char op, double a, double b)
{
    if ((op == '/' || op == 'F' || op == '%') && b == 0.0)
        hl_jraise(run, "ZeroDivisionError",
                  op == '/'   ? "float division by zero"
                  : op == 'F' ? "float floor division by zero"
                              : "float modulo");
    switch (op) {
    case '+':
        return hl_jfloat(a + b);
    case '-':
        return hl_jfloat(a - b);
    case '*':
        return hl_jfloat(a * b);
    case '/':
        return hl_jfloat(a / b);
    case 'F':
        return hl_jfloat(floor((a - floor_modulo(a, b)) / b + 0.5));
    default:
        return hl_jfloat(floor_modulo(a, b));
    }
}

static hl_jvalue repeat(hl_jrun *run, hl_jvalue value, int64_t n)
{
    if (value.kind == HL_J_STRING) {
        hl_jbuffer text = { 0 };
        for (int64_t i = 0; i < n; i++) {
            hl_jstep(run, 1);
            hl_jput_string(run, &text, value);
        }
        hl_jvalue result = hl_jfinish(run, &text);
        result.markup    = value.markup;
        return result;
    }
    hl_jvalue list = hl_jlist_new(run, value.kind);
    for (int64_t i = 0; i < n; i++) {
        hl_jstep(run, 1);
        for (size_t k = 0; k < value.list->n; k++)
            hl_jlist_add(run, list.list, value.list->items[k]);
    }
    return list;
}

static hl_jvalue add(hl_jrun *run, hl_jvalue a, hl_jvalue b)
{
    if (a.kind == HL_J_STRING && b.kind == HL_J_STRING) {
        if (a.markup != b.markup) { /* the side that is not safe is escaped */
            a = a.markup ? a : hl_jstring_escape(run, a);
            b = b.markup ? b : hl_jstring_escape(run, b);
        }
        return hl_jconcat(run, a, b);
    }
    if (a.kind == HL_J_STRING && !a.markup)
        hl_jraise(run, "TypeError", "can only concatenate str (not \"%s\") to str", hl_jtype(b));
    if (a.kind != HL_J_LIST && a.kind != HL_J_TUPLE)
        refuse_operands(run, "+", a, b);
    if (a.kind != b.kind)
        hl_jraise(run, "TypeError", "can only concatenate %s (not \"%s\") to %s", hl_jtype(a),
                  hl_jtype(b), hl_jtype(a));
    hl_jvalue list = hl_jlist_new(run, a.kind);
    for (size_t i = 0; i < a.list->n; i++)
        hl_jlist_add(run, list.list, a.list->items[i]);
    for (size_t i = 0; i < b.list->n; i++)
        hl_jlist_add(run, list.list, b.list->items[i]);
    return list;
}

static bool is_sequence(hl_jvalue value)
{
    return value.kind == HL_J_STRING || value.kind == HL_J_LIST || value.kind == HL_J_TUPLE;
}

static hl_jvalue merge(hl_jrun *run, hl_jvalue a, hl_jvalue b)
{
    hl_jvalue dict = hl_jdict_new(run, HL_J_DICT);

    for (size_t i = 0; i < a.dict->n; i++)
        hl_jdict_put(run, dict.dict, a.dict->keys[i], a.dict->values[i]);
    for (size_t i = 0; i < b.dict->n; i++)
        hl_jdict_put(run, dict.dict, b.dict->keys[i], b.dict->values[i]);
    return dict;
}

hl_jvalue hl_jbinary(hl_jrun *run, char op, hl_jvalue a, hl_jvalue b)
{
    const char  single[2] = { op, '\0' };
    const char *name      = op == 'P' ? "** or pow()" : op == 'F' ? "//" : single;

    if (hl_jis_number(a) && hl_jis_number(b)) {
        if (op == 'P')
            return power(run, a, b);
        return hl_jis_int(a) && hl_jis_int(b) ? integers(run, op, a.integer, b.integer)
                                              : reals(run, op, hl_jreal(a), hl_jreal(b));
    }
    if (op == '%' && a.kind == HL_J_STRING)
        return hl_jstring_percent(run, a, b);
    if (a.kind == HL_J_UNDEFINED)
        hl_jundefined_raise(run, a);
    if (b.kind == HL_J_UNDEFINED)
        hl_jundefined_raise(run, b);
    if (op == '+')
        return add(run, a, b);
    if (op == '|' && a.kind == HL_J_DICT && b.kind == HL_J_DICT)
        return merge(run, a, b);
    if (op == '*' && is_sequence(a) && hl_jis_int(b))
        return repeat(run, a, b.integer);
    if (op == '*' && is_sequence(b) && hl_jis_int(a))
        return repeat(run, b, a.integer);
    if (op == '*' && (is_sequence(a) || is_sequence(b)))
        hl_jraise(run, "TypeError", "can't multiply sequence by non-int of type '%s'",
                  hl_jtype(is_sequence(a) ? b : a));
    refuse_operands(run, name, a, b);
}

hl_jvalue hl_jnegative(hl_jrun *run, hl_jvalue value, bool positive)
{
    int64_t result = 0;

    if (value.kind == HL_J_UNDEFINED)
        hl_jundefined_raise(run, value);
    if (!hl_jis_number(value))
        hl_jraise(run, "TypeError", "bad operand type for unary %s: '%s'", positive ? "+" : "-",
                  hl_jtype(value));
    if (value.kind == HL_J_FLOAT)
        return hl_jfloat(positive ? value.real : -value.real);
    if (positive)
        return hl_jint(value.integer);
    bool overflow = __builtin_sub_overflow((int64_t)0, value.integer, &result);
    return checked(run, overflow, result);
}

/* -------------------------------------------------------------------- str and repr */

void hl_jfloat_text(char out[HL_JINJA_NUMBER], double value)
{
    char digits[40];
    int  n = 1;

    if (!isfinite(value)) {
        snprintf(out, HL_JINJA_NUMBER, "%s", isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
        return;
    }
    while (snprintf(digits, sizeof digits, "%.*e", n - 1, value) > 0 &&
           strtod(digits, NULL) != value && n < 17)
        n++;
    int exponent = (int)strtol(strchr(digits, 'e') + 1, NULL, 10);
    if (exponent >= -4 && exponent < 16) {
        int decimals = n - 1 - exponent;
        snprintf(out, HL_JINJA_NUMBER, "%.*f", decimals > 1 ? decimals : 1, value);
        return;
    }
    char *tail = strchr(digits, 'e');
    *tail      = '\0';
    snprintf(out, HL_JINJA_NUMBER, "%se%c%02d", digits, exponent < 0 ? '-' : '+', abs(exponent));
}

/* What repr of a string shows as it is. */
static bool is_printable(uint32_t c)
{
    if (c < 0x20 || c == 0x7f)
        return false;
    if (c < 0x7f)
        return true;
    return hl_char_is(HL_CHAR_PRINTABLE, c);
}

static void repr_string(hl_jrun *run, hl_jbuffer *out, hl_jvalue text)
{
    bool single = memchr(text.bytes, '\'', text.n_bytes) != NULL;
    bool both   = single && memchr(text.bytes, '"', text.n_bytes) != NULL;
    char quote  = single && !both ? '"' : '\'';

    hl_jput_text(run, out, text.markup ? "Markup(" : "");
    hl_jput(run, out, &quote, 1, text.role);
    for (size_t at = 0; at < text.n_bytes;) {
        uint8_t  role  = hl_jrole(text, at);
        size_t   begin = at;
        uint32_t c     = hl_utf8_next(text.bytes, &at);
        char     escape[16];
        if (c == (uint32_t)quote || c == '\\')
            snprintf(escape, sizeof escape, "\\%c", (char)c);
        else if (c == '\n' || c == '\r' || c == '\t')
            snprintf(escape, sizeof escape, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        else if (!is_printable(c))
            snprintf(escape, sizeof escape,
                     c < 0x100     ? "\\x%02x"
                     : c < 0x10000 ? "\\u%04x"
                                   : "\\U%08x",
                     c);
        else
            escape[0] = '\0';
        if (escape[0] != '\0')
            hl_jput(run, out, escape, strlen(escape), role);
        else
            hl_jput(run, out, text.bytes + begin, at - begin, role);
    }
    hl_jput(run, out, &quote, 1, text.role);
    hl_jput_text(run, out, text.markup ? ")" : "");
}

static void put_repr(hl_jrun *run, hl_jbuffer *out, hl_jvalue value);

static void repr_items(hl_jrun *run, hl_jbuffer *out, const hl_jlist *list, const char *brackets)
{
    hl_jput(run, out, brackets, 1, HL_ROLE_TEMPLATE);
    for (size_t i = 0; i < list->n; i++) {
        if (i > 0)
            hl_jput_text(run, out, ", ");
        put_repr(run, out, list->items[i]);
    }
    if (brackets[0] == '(' && list->n == 1)
        hl_jput_text(run, out, ",");
    hl_jput(run, out, brackets + 1, 1, HL_ROLE_TEMPLATE);
}

static void repr_members(hl_jrun *run, hl_jbuffer *out, hl_jvalue value, const char *before,
                         const char *after)
{
    hl_jput_text(run, out, before);
    for (size_t i = 0; i < value.dict->n; i++) {
        hl_jput_text(run, out, i > 0 ? ", " : "");
        hl_jput_text(run, out, value.view == 'i' ? "(" : "");
        if (value.view != 'v')
            put_repr(run, out, value.dict->keys[i]);
        hl_jput_text(run, out, value.view == 'i' ? ", " : value.view == 0 ? ": " : "");
        if (value.view != 'k')
            put_repr(run, out, value.dict->values[i]);
        hl_jput_text(run, out, value.view == 'i' ? ")" : "");
    }
    hl_jput_text(run, out, after);
}

static void repr_callable(hl_jrun *run, hl_jbuffer *out, const hl_jcallable *callable)
{
    if (callable->entry != NULL) {
        hl_jput_string(run, out, hl_jformat(run, "<function %s>", callable->entry->name));
    } else if (callable->macro->name.kind == HL_J_ABSENT) {
        hl_jput_text(run, out, "<Macro anonymous>");
    } else {
        hl_jput_text(run, out, "<Macro ");
        put_repr(run, out, callable->macro->name);
        hl_jput_text(run, out, ">");
    }
}

static void put_scalar(hl_jrun *run, hl_jbuffer *out, hl_jvalue value)
{
    char text[HL_JINJA_NUMBER];

    if (value.kind == HL_J_FLOAT)
        hl_jfloat_text(text, value.real);
    else if (value.kind == HL_J_BOOL)
        snprintf(text, sizeof text, "%s", value.integer ? "True" : "False");
    else
        snprintf(text, sizeof text, "%lld", (long long)value.integer);
    hl_jput(run, out, text, strlen(text), value.role);
}

static void put_range(hl_jrun *run, hl_jbuffer *out, const hl_jrange *range)
{
    hl_jput_string(
        run, out,
        hl_jformat(run, range->step == 1 ? "range(%lld, %lld)" : "range(%lld, %lld, %lld)",
                   (long long)range->begin, (long long)range->end, (long long)range->step));
}

static void put_repr(hl_jrun *run, hl_jbuffer *out, hl_jvalue value)
{
    hl_jstep(run, 1);
    hl_jdeeper(run);
    switch (value.kind) {
    case HL_J_ABSENT:
    case HL_J_NONE:
        hl_jput(run, out, "None", 4, value.role);
        break;
    case HL_J_UNDEFINED:
        hl_jput_text(run, out, "Undefined");
        break;
    case HL_J_BOOL:
    case HL_J_INT:
    case HL_J_FLOAT:
        put_scalar(run, out, value);
        break;
    case HL_J_STRING:
        repr_string(run, out, value);
        break;
    case HL_J_LIST:
        repr_items(run, out, value.list, "[]");
        break;
    case HL_J_TUPLE:
        repr_items(run, out, value.list, "()");
        break;
    case HL_J_DICT:
        repr_members(run, out, value, "{", "}");
        break;
    case HL_J_NAMESPACE:
        repr_members(run, out, value, "<Namespace {", "}>");
        break;
    case HL_J_RANGE:
        put_range(run, out, value.range);
        break;
    case HL_J_GENERATOR:
        hl_jput_text(run, out, "<generator object>");
        break;
    case HL_J_VIEW:
        hl_jput_text(run, out, hl_jtype(value));
        repr_members(run, out, value, "([", "])");
        break;
    case HL_J_LOOP:
        hl_jput_text(run, out, "<LoopContext ");
        put_repr(run, out, hl_jget_attribute(run, value, hl_jtext("index")));
        hl_jput_text(run, out, "/");
        put_repr(run, out, hl_jget_attribute(run, value, hl_jtext("length")));
        hl_jput_text(run, out, ">");
        break;
    default:
        repr_callable(run, out, value.callable);
        break;
    }
    run->depth--;
}

hl_jvalue hl_jrepr(hl_jrun *run, hl_jvalue value)
{
    hl_jbuffer out = { 0 };

    put_repr(run, &out, value);
    return hl_jfinish(run, &out);
}

hl_jvalue hl_jstr(hl_jrun *run, hl_jvalue value)
{
    if (value.kind == HL_J_STRING)
        return value;
    return value.kind == HL_J_UNDEFINED ? hl_jtext("") : hl_jrepr(run, value);
}

/* ------------------------------------------------------------------------------ JSON */

static hl_jvalue from_array(hl_jrun *run, const json_t *json, uint8_t role)
{
    hl_jvalue list = hl_jlist_new(run, HL_J_LIST);

    for (size_t i = 0; i < json_array_size(json); i++)
        hl_jlist_add(run, list.list, hl_jfrom_json(run, json_array_get(json, i), role));
    list.role = role;
    return list;
}

/* Keys of an object are unique, and need not be compared.  Members are visited through iterators
 * that only look, so that threads can share the value. */
static hl_jvalue from_object(hl_jrun *run, const json_t *json, uint8_t role)
{
    hl_jvalue dict   = hl_jdict_new(run, HL_J_DICT);
    json_t   *object = (json_t *)json;

    for (void *i = json_object_iter(object); i != NULL; i = json_object_iter_next(object, i)) {
        const char *key = json_object_iter_key(i);
        add_member(run, dict.dict, hl_jstring(run, key, strlen(key), role),
                   hl_jfrom_json(run, json_object_iter_value(i), role));
    }
    dict.role = role;
    return dict;
}

static hl_jvalue from_scalar(hl_jrun *run, const json_t *json, uint8_t role)
{
    switch (json_typeof(json)) {
    case JSON_STRING:
        return hl_jstring(run, json_string_value(json), json_string_length(json), role);
    case JSON_INTEGER:
        return hl_jint(json_integer_value(json));
    case JSON_REAL:
        return hl_jfloat(json_real_value(json));
    case JSON_NULL:
        return hl_jnone();
    default:
        return hl_jbool(json_is_true(json));
    }
}

hl_jvalue hl_jfrom_json(hl_jrun *run, const json_t *json, uint8_t role)
{
    hl_jvalue value;

    hl_jstep(run, 1);
    hl_jdeeper(run);
    if (json_is_array(json))
        value = from_array(run, json, role);
    else if (json_is_object(json))
        value = from_object(run, json, role);
    else
        value = from_scalar(run, json, role);
    run->depth--;
    value.role = role;
    return value;
}

typedef struct json_writer {
    hl_jbuffer out;
    bool       ascii, sorted, pretty;
    hl_jvalue  indent, between, colon;
} json_writer;

/* A string with JSON's escapes; all bytes keep their roles. */
static void put_json_string(hl_jrun *run, json_writer *w, hl_jvalue text)
{
    static const char characters[] = "\"\\\n\r\t\b\f", letters[] = "\"\\nrtbf";
    uint8_t           role = text.n_bytes > 0 ? hl_jrole(text, 0) : text.role;

    hl_jput(run, &w->out, "\"", 1, role);
    for (size_t at = 0; at < text.n_bytes;) {
        size_t   begin = at;
        uint32_t c     = hl_utf8_next(text.bytes, &at);
        char     escape[16];
        role              = hl_jrole(text, begin);
        const char *named = c < 0x80 && c != 0 ? strchr(characters, (int)c) : NULL;
        if (named != NULL)
            snprintf(escape, sizeof escape, "\\%c", letters[named - characters]);
        else if (c < 0x20 || (w->ascii && c >= 0x7f && c < 0x10000))
            snprintf(escape, sizeof escape, "\\u%04x", c);
        else if (w->ascii && c >= 0x10000)
            snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xd7c0 + (c >> 10),
                     0xdc00 + (c & 0x3ff));
        else
            escape[0] = '\0';
        if (escape[0] != '\0')
            hl_jput(run, &w->out, escape, strlen(escape), role);
        else
            hl_jput(run, &w->out, text.bytes + begin, at - begin, role);
    }
    hl_jput(run, &w->out, "\"", 1, role);
}

static void put_json(hl_jrun *run, json_writer *w, hl_jvalue value, int level);

static void put_line(hl_jrun *run, json_writer *w, int level)
{
    if (!w->pretty)
        return;
    hl_jput_text(run, &w->out, "\n");
    for (int i = 0; i < level; i++)
        hl_jput_string(run, &w->out, w->indent);
}

static void put_json_array(hl_jrun *run, json_writer *w, hl_jvalue value, int level)
{
    hl_jput(run, &w->out, "[", 1, value.role);
    for (size_t i = 0; i < value.list->n; i++) {
        if (i > 0)
            hl_jput(run, &w->out, w->between.bytes, w->between.n_bytes, value.role);
        put_line(run, w, level + 1);
        put_json(run, w, value.list->items[i], level + 1);
    }
    if (value.list->n > 0)
        put_line(run, w, level);
    hl_jput(run, &w->out, "]", 1, value.role);
}

/* A key as JSON has it: a string. */
static hl_jvalue json_key(hl_jrun *run, hl_jvalue key)
{
    switch (key.kind) {
    case HL_J_STRING:
        return key;
    case HL_J_NONE:
        return hl_jtext("null");
    case HL_J_BOOL:
        return hl_jtext(key.integer ? "true" : "false");
    case HL_J_INT:
    case HL_J_FLOAT:
        return hl_jrepr(run, key);
    default:
        hl_jraise(run, "TypeError", "keys must be str, int, float, bool or None, not %s",
                  hl_jtype(key));
    }
}

/* The order of the members: of the keys, if they are to be sorted. */
static size_t *member_order(hl_jrun *run, const json_writer *w, const hl_jdict *dict)
{
    size_t *order = hl_jtake(run, dict->n, size_t);

    for (size_t i = 0; i < dict->n; i++) {
        size_t at = i;
        while (w->sorted && at > 0 &&
               hl_jless(run, dict->keys[i], dict->keys[order[at - 1]], "<")) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
    return order;
}

static void put_json_object(hl_jrun *run, json_writer *w, hl_jvalue value, int level)
{
    const size_t *order = member_order(run, w, value.dict);

    hl_jput(run, &w->out, "{", 1, value.role);
    for (size_t i = 0; i < value.dict->n; i++) {
        if (i > 0)
            hl_jput(run, &w->out, w->between.bytes, w->between.n_bytes, value.role);
        put_line(run, w, level + 1);
        put_json_string(run, w, json_key(run, value.dict->keys[order[i]]));
        hl_jput(run, &w->out, w->colon.bytes, w->colon.n_bytes, value.role);
        put_json(run, w, value.dict->values[order[i]], level + 1);
    }
    if (value.dict->n > 0)
        put_line(run, w, level);
    hl_jput(run, &w->out, "}", 1, value.role);
}

static void put_json_scalar(hl_jrun *run, json_writer *w, hl_jvalue value)
{
    char text[HL_JINJA_NUMBER];

    if (value.kind == HL_J_NONE)
        snprintf(text, sizeof text, "null");
    else if (value.kind == HL_J_BOOL)
        snprintf(text, sizeof text, "%s", value.integer ? "true" : "false");
    else if (value.kind == HL_J_INT)
        snprintf(text, sizeof text, "%lld", (long long)value.integer);
    else if (!isfinite(value.real))
        snprintf(text, sizeof text, "%s",
                 isnan(value.real) ? "NaN"
                 : value.real > 0  ? "Infinity"
                                   : "-Infinity");
    else
        hl_jfloat_text(text, value.real);
    hl_jput(run, &w->out, text, strlen(text), value.role);
}

static void put_json(hl_jrun *run, json_writer *w, hl_jvalue value, int level)
{
    hl_jstep(run, 1);
    hl_jdeeper(run);
    switch (value.kind) {
    case HL_J_STRING:
        put_json_string(run, w, value);
        break;
    case HL_J_NONE:
    case HL_J_BOOL:
    case HL_J_INT:
    case HL_J_FLOAT:
        put_json_scalar(run, w, value);
        break;
    case HL_J_LIST:
    case HL_J_TUPLE:
        put_json_array(run, w, value, level);
        break;
    case HL_J_DICT:
        put_json_object(run, w, value, level);
        break;
    default:
        hl_jraise(run, "TypeError", "Object of type %s is not JSON serializable", hl_jtype(value));
    }
    run->depth--;
}

static hl_jvalue separator(hl_jrun *run, hl_jvalue pair, size_t which)
{
    if ((pair.kind != HL_J_LIST && pair.kind != HL_J_TUPLE) || pair.list->n != 2 ||
        pair.list->items[which].kind != HL_J_STRING)
        hl_jraise(run, "TypeError", "tojson: separators must be two strings");
    return pair.list->items[which];
}

/* options: ensure_ascii, indent, separators, sort_keys */
hl_jvalue hl_jto_json(hl_jrun *run, hl_jvalue value, const hl_jvalue *options)
{
    json_writer w     = { 0 };
    bool        given = options[2].kind != HL_J_ABSENT && options[2].kind != HL_J_NONE;

    w.ascii  = hl_jtruth(run, options[0]);
    w.pretty = options[1].kind != HL_J_ABSENT && options[1].kind != HL_J_NONE;
    w.sorted = hl_jtruth(run, options[3]);
    if (w.pretty && options[1].kind == HL_J_STRING)
        w.indent = options[1];
    else if (w.pretty)
        w.indent = repeat(run, hl_jtext(" "), hl_jindex(run, options[1]));
    w.between = given ? separator(run, options[2], 0) : hl_jtext(w.pretty ? "," : ", ");
    w.colon   = given ? separator(run, options[2], 1) : hl_jtext(": ");
    put_json(run, &w, value, 0);
    return hl_jfinish(run, &w.out);
}
