/* jinja.c - runs the tree of a template.
 *
 * Names are looked up in frames: a loop's body, a macro, a block of `set`, `filter` or `call` and
 * `with` have one each, an `if` has none.  `set` writes to the innermost frame, so that what a loop
 * sets is gone after it.  A macro sees the frame that it was defined in.  The outermost frames are
 * the template's own, the variables that it was given, and the functions that always exist. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/status.h"
#include "tokenize/jinja_parts.h"

typedef enum outcome { GO_ON, BREAK, CONTINUE } outcome;

typedef struct variable {
    hl_jvalue name;
    hl_jvalue value;
} variable;

struct hl_jframe {
    hl_jframe *outer;
    variable  *variables;
    size_t     n, capacity;
};

struct hl_jloop {
    const hl_jnode *node;
    hl_jframe      *outer;
    hl_jiterator    items;
    hl_jvalue       iterable;
    hl_jvalue       before, current, after; /* after: read ahead, or absent */
    hl_jvalue       changed;                /* what `changed` saw last */
    int64_t         index0;
    int64_t         length; /* -1: not known yet */
    int64_t         depth0;
};

static hl_jvalue evaluate(hl_jrun *run, const hl_jnode *node);
static outcome   execute(hl_jrun *run, const hl_jnodes *body);

/* --------------------------------------------------------------------------- variables */

static bool same_name(hl_jvalue a, hl_jvalue b)
{
    return a.n_bytes == b.n_bytes && memcmp(a.bytes, b.bytes, a.n_bytes) == 0;
}

static variable *find_in(const hl_jframe *frame, hl_jvalue name)
{
    for (size_t i = frame->n; i-- > 0;) {
        if (same_name(frame->variables[i].name, name))
            return &frame->variables[i];
    }
    return NULL;
}

static void set_variable(hl_jrun *run, hl_jframe *frame, hl_jvalue name, hl_jvalue value)
{
    variable *old = find_in(frame, name);

    if (old != NULL) {
        old->value = value;
        return;
    }
    if (frame->n == frame->capacity) {
        size_t    capacity = frame->capacity != 0 ? 2 * frame->capacity : 8;
        variable *more     = hl_jtake(run, capacity, variable);
        if (frame->n > 0)
            memcpy(more, frame->variables, frame->n * sizeof *more);
        frame->variables = more;
        frame->capacity  = capacity;
    }
    frame->variables[frame->n++] = (variable){ name, value };
}

static hl_jframe *new_frame(hl_jrun *run, hl_jframe *outer)
{
    hl_jframe *frame = hl_jtake(run, 1, hl_jframe);

    frame->outer = outer;
    return frame;
}

static hl_jvalue look_up(hl_jrun *run, hl_jvalue name)
{
    for (const hl_jframe *frame = run->frame; frame != NULL; frame = frame->outer) {
        const variable *found = find_in(frame, name);
        hl_jstep(run, 1 + frame->n / 8);
        if (found != NULL)
            return found->value;
    }
    return hl_jundefined_name(run, (hl_jvalue){ 0 }, name);
}

/* ----------------------------------------------------------------------------- calling */

static hl_jvalue callable(hl_jrun *run, const hl_jentry *entry, hl_jvalue self)
{
    hl_jvalue value = { .kind = HL_J_CALLABLE, .callable = hl_jtake(run, 1, hl_jcallable) };

    value.callable->entry = entry;
    value.callable->self  = self;
    return value;
}

/* The number of the parameter of this name in "a b c", or -1. */
static int parameter_index(const char *parameters, hl_jvalue name)
{
    int i = 0;

    for (const char *at = parameters; *at != '\0'; i++) {
        size_t n = strcspn(at, " ");
        if (n == name.n_bytes && memcmp(at, name.bytes, n) == 0)
            return i;
        at += n + (at[n] == ' ');
    }
    return -1;
}

static int count_parameters(const char *parameters)
{
    int n = parameters[0] != '\0';

    for (const char *at = parameters; *at != '\0'; at++)
        n += *at == ' ';
    return n;
}

hl_jvalue hl_jcall_entry(hl_jrun *run, const hl_jentry *entry, hl_jvalue self, const hl_jargs *args)
{
    hl_jvalue values[HL_JINJA_PARAMETERS] = { { 0 } };

    hl_jstep(run, 1);
    if (entry->raw != NULL)
        return entry->raw(run, self, args);
    int most = count_parameters(entry->parameters);
    if (args->n > (size_t)most)
        hl_jraise(run, "TypeError", "%s() takes at most %d argument%s (%zu given)", entry->name,
                  most, most == 1 ? "" : "s", args->n);
    for (size_t i = 0; i < args->n; i++)
        values[i] = args->items[i];
    for (size_t i = 0; i < args->named.n; i++) {
        hl_jvalue name = args->named.keys[i];
        int       at   = parameter_index(entry->parameters, name);
        if (at < 0)
            hl_jraise(run, "TypeError", "%s() got an unexpected keyword argument '%.*s'",
                      entry->name, (int)name.n_bytes, name.bytes);
        if (values[at].kind != HL_J_ABSENT)
            hl_jraise(run, "TypeError", "%s() got multiple values for argument '%.*s'", entry->name,
                      (int)name.n_bytes, name.bytes);
        values[at] = args->named.values[i];
    }
    for (int i = 0; i < entry->least; i++) {
        if (values[i].kind == HL_J_ABSENT)
            hl_jraise(run, "TypeError", "%s() takes at least %d argument%s (%zu given)",
                      entry->name, entry->least, entry->least == 1 ? "" : "s",
                      args->n + args->named.n);
    }
    return entry->call(run, self, values);
}

/* Takes an argument by name out of the named ones; absent if it was not given. */
static hl_jvalue take_named(hl_jdict *named, hl_jvalue name)
{
    for (size_t i = 0; i < named->n; i++) {
        if (!same_name(named->keys[i], name))
            continue;
        hl_jvalue value = named->values[i];
        for (size_t k = i + 1; k < named->n; k++) {
            named->keys[k - 1]   = named->keys[k];
            named->values[k - 1] = named->values[k];
        }
        named->n--;
        return value;
    }
    return (hl_jvalue){ 0 };
}

/* A copy, since macros take named arguments out of it. */
static hl_jdict copy_named(hl_jrun *run, const hl_jdict *named)
{
    hl_jdict copy = { 0 };

    for (size_t i = 0; i < named->n; i++)
        hl_jdict_put(run, &copy, named->keys[i], named->values[i]);
    return copy;
}

static __attribute__((noreturn)) void refuse_arguments(hl_jrun *run, const hl_jmacro *macro,
                                                       const hl_jdict *named)
{
    hl_jvalue name =
        macro->name.kind == HL_J_ABSENT ? hl_jtext("None") : hl_jrepr(run, macro->name);

    if (named->n > 0) {
        hl_jvalue key = hl_jrepr(run, named->keys[0]);
        if (hl_jis(named->keys[0], "caller"))
            hl_jraise(run, "TypeError",
                      "macro %.*s was invoked with two values for the special caller argument. "
                      "This is most likely a bug.",
                      (int)name.n_bytes, name.bytes);
        hl_jraise(run, "TypeError", "macro %.*s takes no keyword argument %.*s", (int)name.n_bytes,
                  name.bytes, (int)key.n_bytes, key.bytes);
    }
    hl_jraise(run, "TypeError", "macro %.*s takes not more than %zu argument(s)", (int)name.n_bytes,
              name.bytes, macro->parameters.n);
}

/* Gives the parameters their values, in the macro's frame, which is the current one. */
static void bind_parameters(hl_jrun *run, const hl_jmacro *macro, const hl_jargs *args)
{
    hl_jdict named = copy_named(run, &args->named);
    size_t   n     = macro->parameters.n;
    bool explicit  = false;
    hl_jvalue values[64];

    if (n > sizeof values / sizeof *values)
        hl_jraise(run, "TypeError", "a macro with %zu parameters, at most 64", n);
    for (size_t i = 0; i < n; i++) {
        hl_jvalue name = macro->parameters.items[i]->value;
        explicit |= hl_jis(name, "caller");
        values[i] = i < args->n ? args->items[i] : take_named(&named, name);
    }
    if (macro->uses_caller && !explicit) {
        hl_jvalue caller = take_named(&named, hl_jtext("caller"));
        if (caller.kind == HL_J_ABSENT || caller.kind == HL_J_NONE)
            caller = hl_jundefined_hint(run, "No caller defined");
        set_variable(run, run->frame, hl_jtext("caller"), caller);
    }
    if (macro->uses_kwargs) {
        hl_jvalue rest = hl_jdict_new(run, HL_J_DICT);
        *rest.dict     = named;
        set_variable(run, run->frame, hl_jtext("kwargs"), rest);
    } else if (named.n > 0) {
        refuse_arguments(run, macro, &named);
    }
    if (macro->uses_varargs) {
        hl_jvalue rest = hl_jlist_new(run, HL_J_TUPLE);
        for (size_t i = n; i < args->n; i++)
            hl_jlist_add(run, rest.list, args->items[i]);
        set_variable(run, run->frame, hl_jtext("varargs"), rest);
    } else if (args->n > n) {
        refuse_arguments(run, macro, &named);
    }
    for (size_t i = 0; i < n; i++) {
        size_t first = n - macro->defaults.n; /* the first parameter with a default */
        if (values[i].kind == HL_J_ABSENT && i >= first)
            values[i] = evaluate(run, macro->defaults.items[i - first]);
        if (values[i].kind == HL_J_ABSENT) {
            hl_jvalue name = macro->parameters.items[i]->value;
            hl_jvalue hint =
                hl_jformat(run, "parameter '%.*s' was not provided", (int)name.n_bytes, name.bytes);
            values[i]                 = hl_jundefined_name(run, (hl_jvalue){ 0 }, name);
            values[i].undefined->hint = hint;
        }
        set_variable(run, run->frame, macro->parameters.items[i]->value, values[i]);
    }
}

/* Runs a body with its output in a text of its own. */
static hl_jvalue capture(hl_jrun *run, const hl_jnodes *body, outcome *how)
{
    hl_jbuffer  text  = { 0 };
    hl_jbuffer *outer = run->out;

    run->out       = &text;
    outcome result = execute(run, body);
    run->out       = outer;
    if (how != NULL)
        *how = result;
    return hl_jfinish(run, &text);
}

static hl_jvalue call_macro(hl_jrun *run, const hl_jcallable *called, const hl_jargs *args)
{
    hl_jframe *caller = run->frame;

    hl_jdeeper(run);
    run->frame = new_frame(run, called->frame);
    bind_parameters(run, called->macro, args);
    hl_jvalue text = capture(run, &called->macro->body, NULL);
    run->frame     = caller;
    run->depth--;
    return text;
}

static hl_jvalue run_loop_again(hl_jrun *run, hl_jloop *loop, const hl_jargs *args);

hl_jvalue hl_jcall(hl_jrun *run, hl_jvalue callee, const hl_jargs *args)
{
    hl_jstep(run, 1);
    if (callee.kind == HL_J_UNDEFINED)
        hl_jundefined_raise(run, callee);
    if (callee.kind == HL_J_LOOP)
        return run_loop_again(run, callee.loop, args);
    if (callee.kind != HL_J_CALLABLE)
        hl_jraise(run, "TypeError", "'%s' object is not callable", hl_jtype(callee));
    if (callee.callable->entry == NULL)
        return call_macro(run, callee.callable, args);
    return hl_jcall_entry(run, callee.callable->entry, callee.callable->self, args);
}

/* Evaluates arguments; `caller` is the body of a call block, or absent. */
static hl_jargs evaluate_arguments(hl_jrun *run, const hl_jcall_args *args, hl_jvalue caller)
{
    hl_jargs  result = { 0 };
    hl_jvalue list   = hl_jlist_new(run, HL_J_LIST), item;

    for (size_t i = 0; args != NULL && i < args->items.n; i++)
        hl_jlist_add(run, list.list, evaluate(run, args->items.items[i]));
    for (size_t i = 0; args != NULL && i < args->names.n; i++)
        hl_jdict_put(run, &result.named, args->names.items[i]->value,
                     evaluate(run, args->values.items[i]));
    if (caller.kind != HL_J_ABSENT)
        hl_jdict_put(run, &result.named, hl_jtext("caller"), caller);
    if (args != NULL && args->star != NULL) {
        hl_jvalue more = evaluate(run, args->star);
        for (hl_jiterator i = hl_jiterate(run, more); hl_jnext(run, &i, &item);)
            hl_jlist_add(run, list.list, item);
    }
    if (args != NULL && args->star_star != NULL) {
        hl_jvalue more = evaluate(run, args->star_star);
        if (more.kind != HL_J_DICT)
            hl_jraise(run, "TypeError", "argument after ** must be a mapping, not %s",
                      hl_jtype(more));
        for (size_t i = 0; i < more.dict->n; i++) {
            if (more.dict->keys[i].kind != HL_J_STRING)
                hl_jraise(run, "TypeError", "keywords must be strings");
            hl_jdict_put(run, &result.named, more.dict->keys[i], more.dict->values[i]);
        }
    }
    result.items = list.list->items;
    result.n     = list.list->n;
    return result;
}

/* ------------------------------------------------------------------------ attributes */

#define METHOD(name) static hl_jvalue name(hl_jrun *run, hl_jvalue self, hl_jvalue *args)

static hl_jvalue view_of(hl_jvalue dict, char what)
{
    dict.kind = HL_J_VIEW;
    dict.view = (uint8_t)what;
    return dict;
}

METHOD(dict_items)
{
    (void)run;
    (void)args;
    return view_of(self, 'i');
}

METHOD(dict_keys)
{
    (void)run;
    (void)args;
    return view_of(self, 'k');
}

METHOD(dict_values)
{
    (void)run;
    (void)args;
    return view_of(self, 'v');
}

METHOD(dict_get)
{
    hl_jvalue *found = hl_jdict_find(run, self.dict, args[0]);

    return found != NULL ? *found : args[1].kind != HL_J_ABSENT ? args[1] : hl_jnone();
}

METHOD(dict_copy)
{
    hl_jvalue copy = hl_jdict_new(run, HL_J_DICT);

    (void)args;
    for (size_t i = 0; i < self.dict->n; i++)
        hl_jdict_put(run, copy.dict, self.dict->keys[i], self.dict->values[i]);
    return copy;
}

METHOD(dict_fromkeys)
{
    hl_jvalue dict = hl_jdict_new(run, HL_J_DICT), key;

    (void)self;
    for (hl_jiterator i = hl_jiterate(run, args[0]); hl_jnext(run, &i, &key);)
        hl_jdict_put(run, dict.dict, key, args[1].kind != HL_J_ABSENT ? args[1] : hl_jnone());
    return dict;
}

METHOD(list_count)
{
    hl_jvalue item;
    int64_t   n = 0;

    for (hl_jiterator i = hl_jiterate(run, self); hl_jnext(run, &i, &item);)
        n += hl_jequal(run, item, args[0]);
    return hl_jint(n);
}

METHOD(list_index)
{
    hl_jvalue item;
    int64_t   at = 0;

    for (hl_jiterator i = hl_jiterate(run, self); hl_jnext(run, &i, &item); at++) {
        if (hl_jequal(run, item, args[0]))
            return hl_jint(at);
    }
    if (self.kind == HL_J_TUPLE)
        hl_jraise(run, "ValueError", "tuple.index(x): x not in tuple");
    hl_jvalue text = hl_jrepr(run, args[0]);
    hl_jraise(run, "ValueError", "%.*s is not in %s", (int)text.n_bytes, text.bytes,
              hl_jtype(self));
}

METHOD(list_copy)
{
    (void)args;
    return hl_jitems(run, self);
}

METHOD(number_is_integer)
{
    (void)run;
    (void)args;
    return hl_jbool(self.real == (double)(int64_t)self.real);
}

METHOD(number_bit_length)
{
    uint64_t size = self.integer < 0 ? 0 - (uint64_t)self.integer : (uint64_t)self.integer;
    int64_t  n    = 0;

    (void)run;
    (void)args;
    for (; size != 0; size >>= 1)
        n++;
    return hl_jint(n);
}

METHOD(number_itself)
{
    (void)run;
    (void)args;
    return self;
}

/* Methods that would change their object are known, but cannot be used. */
#define UNSAFE(name)                                                                               \
    {                                                                                              \
        name, NULL, NULL, 0, NULL                                                                  \
    }

static const hl_jentry dict_methods[] = {
    { "items", dict_items, "", 0, NULL },
    { "keys", dict_keys, "", 0, NULL },
    { "values", dict_values, "", 0, NULL },
    { "get", dict_get, "key default", 1, NULL },
    { "copy", dict_copy, "", 0, NULL },
    { "fromkeys", dict_fromkeys, "iterable value", 1, NULL },
    UNSAFE("clear"),
    UNSAFE("pop"),
    UNSAFE("popitem"),
    UNSAFE("setdefault"),
    UNSAFE("update"),
    { 0 },
};

static const hl_jentry list_methods[] = {
    { "count", list_count, "value", 1, NULL },
    { "index", list_index, "value", 1, NULL },
    { "copy", list_copy, "", 0, NULL },
    UNSAFE("append"),
    UNSAFE("clear"),
    UNSAFE("extend"),
    UNSAFE("insert"),
    UNSAFE("pop"),
    UNSAFE("remove"),
    UNSAFE("reverse"),
    UNSAFE("sort"),
    { 0 },
};

static const hl_jentry tuple_methods[] = {
    { "count", list_count, "value", 1, NULL },
    { "index", list_index, "value", 1, NULL },
    { 0 },
};

static const hl_jentry int_methods[] = {
    { "bit_length", number_bit_length, "", 0, NULL },
    { "conjugate", number_itself, "", 0, NULL },
    { 0 },
};

static const hl_jentry float_methods[] = {
    { "is_integer", number_is_integer, "", 0, NULL },
    { "conjugate", number_itself, "", 0, NULL },
    { 0 },
};

static const hl_jentry *methods_of(hl_jvalue object)
{
    switch (object.kind) {
    case HL_J_STRING:
        return hl_jstring_methods;
    case HL_J_DICT:
        return dict_methods;
    case HL_J_LIST:
        return list_methods;
    case HL_J_TUPLE:
    case HL_J_RANGE:
        return tuple_methods;
    case HL_J_BOOL:
    case HL_J_INT:
        return int_methods;
    case HL_J_FLOAT:
        return float_methods;
    default:
        return NULL;
    }
}

/* ----- loop.index and its kin */

/* Reads the next item that the loop's condition lets through. */
static bool fetch(hl_jrun *run, hl_jloop *loop, hl_jvalue *item);

static hl_jvalue peek(hl_jrun *run, hl_jloop *loop)
{
    if (loop->after.kind == HL_J_ABSENT && !fetch(run, loop, &loop->after))
        loop->after = (hl_jvalue){ 0 };
    return loop->after;
}

static int64_t loop_length(hl_jrun *run, hl_jloop *loop)
{
    hl_jvalue item;

    if (loop->length >= 0)
        return loop->length;
    if (loop->node->c == NULL && loop->iterable.kind != HL_J_GENERATOR) {
        loop->length = hl_jlength(run, loop->iterable).integer;
        return loop->length;
    }
    hl_jvalue rest = hl_jlist_new(run, HL_J_LIST);
    bool      read = loop->after.kind != HL_J_ABSENT;
    while (fetch(run, loop, &item))
        hl_jlist_add(run, rest.list, item);
    loop->length = (int64_t)rest.list->n + loop->index0 + 1 + read;
    /* They have passed the condition already. */
    loop->items    = hl_jiterate(run, rest);
    loop->iterable = rest;
    return loop->length;
}

static hl_jvalue loop_cycle_raw(hl_jrun *run, hl_jvalue self, const hl_jargs *args)
{
    if (args->n == 0)
        hl_jraise(run, "TypeError", "no items for cycling given");
    return args->items[self.loop->index0 % (int64_t)args->n];
}

static hl_jvalue loop_changed_raw(hl_jrun *run, hl_jvalue self, const hl_jargs *args)
{
    hl_jvalue now = hl_jlist_new(run, HL_J_TUPLE);

    for (size_t i = 0; i < args->n; i++)
        hl_jlist_add(run, now.list, args->items[i]);
    if (self.loop->changed.kind != HL_J_ABSENT && hl_jequal(run, self.loop->changed, now))
        return hl_jbool(false);
    self.loop->changed = now;
    return hl_jbool(true);
}

static const hl_jentry loop_methods[] = {
    { "cycle", NULL, NULL, 0, loop_cycle_raw },
    { "changed", NULL, NULL, 0, loop_changed_raw },
    { 0 },
};

/* Absent if loops have no such attribute. */
static hl_jvalue loop_attribute(hl_jrun *run, hl_jloop *loop, hl_jvalue name)
{
    if (hl_jis(name, "index"))
        return hl_jint(loop->index0 + 1);
    if (hl_jis(name, "index0"))
        return hl_jint(loop->index0);
    if (hl_jis(name, "first"))
        return hl_jbool(loop->index0 == 0);
    if (hl_jis(name, "last"))
        return hl_jbool(peek(run, loop).kind == HL_J_ABSENT);
    if (hl_jis(name, "length"))
        return hl_jint(loop_length(run, loop));
    if (hl_jis(name, "revindex"))
        return hl_jint(loop_length(run, loop) - loop->index0);
    if (hl_jis(name, "revindex0"))
        return hl_jint(loop_length(run, loop) - loop->index0 - 1);
    if (hl_jis(name, "depth"))
        return hl_jint(loop->depth0 + 1);
    if (hl_jis(name, "depth0"))
        return hl_jint(loop->depth0);
    if (hl_jis(name, "previtem"))
        return loop->index0 > 0 ? loop->before
                                : hl_jundefined_hint(run, "there is no previous item");
    if (hl_jis(name, "nextitem")) {
        hl_jvalue next = peek(run, loop);
        return next.kind != HL_J_ABSENT ? next : hl_jundefined_hint(run, "there is no next item");
    }
    hl_jvalue        self  = { .kind = HL_J_LOOP, .loop = loop };
    const hl_jentry *entry = hl_jentry_find(loop_methods, (hl_bytes){ name.bytes, name.n_bytes });
    return entry != NULL ? callable(run, entry, self) : (hl_jvalue){ 0 };
}

/* What all of Python's objects have, and no template may use. */
static bool is_internal(hl_jvalue name)
{
    static const char *const names[] = {
        "__class__",   "__doc__",     "__init__",      "__new__",          "__dir__",
        "__eq__",      "__ne__",      "__hash__",      "__repr__",         "__str__",
        "__dict__",    "__reduce__",  "__reduce_ex__", "__format__",       "__getattribute__",
        "__setattr__", "__delattr__", "__sizeof__",    "__subclasshook__", "__init_subclass__",
        "__module__",
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (hl_jis(name, names[i]))
            return true;
    }
    return false;
}

/* getattr of Python, in the sandbox; absent: the object has no such attribute. */
static hl_jvalue python_attribute(hl_jrun *run, hl_jvalue object, hl_jvalue name)
{
    const hl_jentry *methods = methods_of(object);
    const hl_jentry *entry =
        methods != NULL ? hl_jentry_find(methods, (hl_bytes){ name.bytes, name.n_bytes }) : NULL;

    if (object.kind == HL_J_UNDEFINED)
        hl_jundefined_raise(run, object);
    if (entry != NULL)
        return entry->call == NULL && entry->raw == NULL ? hl_junsafe(run, object, name)
                                                         : callable(run, entry, object);
    if (object.kind == HL_J_NAMESPACE) {
        hl_jvalue *found = hl_jdict_find(run, object.dict, name);
        return found != NULL ? *found : (hl_jvalue){ 0 };
    }
    if (object.kind == HL_J_LOOP)
        return loop_attribute(run, object.loop, name);
    if (hl_jis_number(object) && hl_jis(name, "real"))
        return hl_jnegative(run, object, true);
    if (hl_jis_number(object) && hl_jis(name, "imag"))
        return hl_jis_int(object) ? hl_jint(0) : hl_jfloat(0.0);
    if (object.kind == HL_J_TUPLE && object.list->group && hl_jis(name, "grouper"))
        return object.list->items[0];
    if (object.kind == HL_J_TUPLE && object.list->group && hl_jis(name, "list"))
        return object.list->items[1];
    if (object.kind == HL_J_CALLABLE && object.callable->entry == NULL && hl_jis(name, "name"))
        return object.callable->macro->name.kind != HL_J_ABSENT ? object.callable->macro->name
                                                                : hl_jnone();
    if (is_internal(name))
        return hl_junsafe(run, object, name);
    return (hl_jvalue){ 0 };
}

/* obj[key] of Python; absent: TypeError or LookupError. */
static hl_jvalue python_item(hl_jrun *run, hl_jvalue object, hl_jvalue key)
{
    if (object.kind == HL_J_UNDEFINED)
        hl_jundefined_raise(run, object);
    if (object.kind == HL_J_DICT) {
        if (key.kind == HL_J_LIST || key.kind == HL_J_DICT)
            return (hl_jvalue){ 0 };
        hl_jvalue *found = hl_jdict_find(run, object.dict, key);
        return found != NULL ? *found : (hl_jvalue){ 0 };
    }
    if (!hl_jis_int(key))
        return (hl_jvalue){ 0 };
    bool sequence = object.kind == HL_J_LIST || object.kind == HL_J_TUPLE ||
                    object.kind == HL_J_STRING || object.kind == HL_J_RANGE;
    int64_t n  = sequence ? hl_jlength(run, object).integer : 0;
    int64_t at = key.integer < 0 ? key.integer + n : key.integer;
    if (at < 0 || at >= n)
        return (hl_jvalue){ 0 };
    if (object.kind == HL_J_RANGE)
        return hl_jint(object.range->begin + at * object.range->step);
    if (object.kind != HL_J_STRING)
        return object.list->items[at];
    hl_jvalue bounds[3] = { hl_jint(at), hl_jint(at + 1), { 0 } };
    hl_jvalue character = hl_jslice(run, object, bounds);
    return character;
}

hl_jvalue hl_jget_attribute(hl_jrun *run, hl_jvalue object, hl_jvalue name)
{
    hl_jvalue value = python_attribute(run, object, name);

    if (value.kind == HL_J_ABSENT)
        value = python_item(run, object, name);
    return value.kind != HL_J_ABSENT ? value : hl_jundefined_name(run, object, name);
}

hl_jvalue hl_jget_item(hl_jrun *run, hl_jvalue object, hl_jvalue key)
{
    hl_jvalue value = python_item(run, object, key);

    if (value.kind == HL_J_ABSENT && key.kind == HL_J_STRING)
        value = python_attribute(run, object, key);
    return value.kind != HL_J_ABSENT ? value : hl_jundefined_name(run, object, key);
}

/* ------------------------------------------------------------------------ expressions */

static hl_jvalue evaluate_slice(hl_jrun *run, hl_jvalue object, const hl_jnode *slice)
{
    hl_jvalue bounds[3] = { { 0 } };

    bounds[0] = slice->a != NULL ? evaluate(run, slice->a) : bounds[0];
    bounds[1] = slice->b != NULL ? evaluate(run, slice->b) : bounds[1];
    bounds[2] = slice->c != NULL ? evaluate(run, slice->c) : bounds[2];
    if (object.kind == HL_J_UNDEFINED)
        hl_jundefined_raise(run, object);
    if (object.kind == HL_J_DICT)
        hl_jraise(run, "TypeError", "unhashable type: 'slice'");
    if (object.kind != HL_J_STRING && object.kind != HL_J_LIST && object.kind != HL_J_TUPLE &&
        object.kind != HL_J_RANGE)
        hl_jraise(run, "TypeError", "'%s' object is not subscriptable", hl_jtype(object));
    return hl_jslice(run, object, bounds);
}

static bool compares(hl_jrun *run, char sign, hl_jvalue a, hl_jvalue b)
{
    static const hl_bytes names[] = { { "<", 1 }, { ">", 1 }, { "<=", 2 }, { ">=", 2 } };
    const char           *signs   = "<>LG";

    switch (sign) {
    case 'E':
        return hl_jequal(run, a, b);
    case 'N':
        return !hl_jequal(run, a, b);
    case 'i':
        return hl_jcontains(run, b, a);
    case 'o':
        return !hl_jcontains(run, b, a);
    default:
        return hl_jtruth(
            run, hl_jentry_find(hl_jtests, names[strchr(signs, sign) - signs])->call(run, a, &b));
    }
}

static hl_jvalue evaluate_comparison(hl_jrun *run, const hl_jnode *node)
{
    hl_jvalue left = evaluate(run, node->items.items[0]);

    for (size_t i = 1; i < node->items.n; i++) {
        hl_jvalue right = evaluate(run, node->items.items[i]);
        run->fault.line = node->line;
        if (!compares(run, node->signs[i - 1], left, right))
            return hl_jbool(false);
        left = right;
    }
    return hl_jbool(true);
}

static hl_jvalue evaluate_sequence(hl_jrun *run, const hl_jnode *node)
{
    hl_jvalue list = hl_jlist_new(run, node->kind == HL_JN_LIST ? HL_J_LIST : HL_J_TUPLE);

    for (size_t i = 0; i < node->items.n; i++)
        hl_jlist_add(run, list.list, evaluate(run, node->items.items[i]));
    return list;
}

static hl_jvalue evaluate_dict(hl_jrun *run, const hl_jnode *node)
{
    hl_jvalue dict = hl_jdict_new(run, HL_J_DICT);

    for (size_t i = 0; i < node->items.n; i += 2) {
        hl_jvalue key = evaluate(run, node->items.items[i]);
        hl_jdict_put(run, dict.dict, key, evaluate(run, node->items.items[i + 1]));
    }
    return dict;
}

static hl_jvalue evaluate_concat(hl_jrun *run, const hl_jnode *node)
{
    hl_jvalue text = { .kind = HL_J_STRING, .bytes = "" };

    for (size_t i = 0; i < node->items.n; i++) {
        hl_jvalue part = hl_jstr(run, evaluate(run, node->items.items[i]));
        part.markup    = false;
        text           = hl_jconcat(run, text, part);
    }
    return text;
}

/* A filter or test; `value` is what it is applied to. */
static hl_jvalue apply_entry(hl_jrun *run, const hl_jnode *node, hl_jvalue value)
{
    hl_jargs args = evaluate_arguments(run, node->args, (hl_jvalue){ 0 });

    run->fault.line = node->line;
    if (node->entry == NULL)
        hl_jraise(run, "TemplateRuntimeError", "No %s named '%.*s' found.",
                  node->kind == HL_JN_FILTER ? "filter" : "test", (int)node->text.n_bytes,
                  node->text.bytes);
    return hl_jcall_entry(run, node->entry, value, &args);
}

static hl_jvalue evaluate_if_else(hl_jrun *run, const hl_jnode *node)
{
    char hint[128];

    if (hl_jtruth(run, evaluate(run, node->b)))
        return evaluate(run, node->a);
    if (node->c != NULL)
        return evaluate(run, node->c);
    snprintf(hint, sizeof hint,
             "the inline if-expression on line %d evaluated to false and no else section was "
             "defined.",
             node->line);
    return hl_jundefined_hint(run, hint);
}

static hl_jvalue evaluate_binary(hl_jrun *run, const hl_jnode *node)
{
    hl_jvalue a = evaluate(run, node->a);
    hl_jvalue b = evaluate(run, node->b);

    run->fault.line = node->line;
    return hl_jbinary(run, node->op, a, b);
}

static hl_jvalue evaluate_call(hl_jrun *run, const hl_jnode *node, hl_jvalue caller)
{
    hl_jvalue callee = evaluate(run, node->a);
    hl_jargs  args   = evaluate_arguments(run, node->args, caller);

    run->fault.line = node->line;
    return hl_jcall(run, callee, &args);
}

static hl_jvalue evaluate_item(hl_jrun *run, const hl_jnode *node)
{
    hl_jvalue object = evaluate(run, node->a);

    if (node->b->kind == HL_JN_SLICE)
        return evaluate_slice(run, object, node->b);
    hl_jvalue key   = evaluate(run, node->b);
    run->fault.line = node->line;
    return hl_jget_item(run, object, key);
}

static hl_jvalue evaluate_node(hl_jrun *run, const hl_jnode *node)
{
    hl_jvalue value;

    switch (node->kind) {
    case HL_JN_CONSTANT:
        return node->value;
    case HL_JN_NAME:
        return look_up(run, node->value);
    case HL_JN_TUPLE:
    case HL_JN_LIST:
        return evaluate_sequence(run, node);
    case HL_JN_DICT:
        return evaluate_dict(run, node);
    case HL_JN_IF_ELSE:
        return evaluate_if_else(run, node);
    case HL_JN_AND:
        value = evaluate(run, node->a);
        return hl_jtruth(run, value) ? evaluate(run, node->b) : value;
    case HL_JN_OR:
        value = evaluate(run, node->a);
        return hl_jtruth(run, value) ? value : evaluate(run, node->b);
    case HL_JN_NOT:
        return hl_jbool(!hl_jtruth(run, evaluate(run, node->a)));
    case HL_JN_COMPARE:
        return evaluate_comparison(run, node);
    case HL_JN_BINARY:
        return evaluate_binary(run, node);
    case HL_JN_NEGATIVE:
    case HL_JN_POSITIVE:
        return hl_jnegative(run, evaluate(run, node->a), node->kind == HL_JN_POSITIVE);
    case HL_JN_CONCAT:
        return evaluate_concat(run, node);
    case HL_JN_ATTRIBUTE:
        value           = evaluate(run, node->a);
        run->fault.line = node->line;
        return hl_jget_attribute(run, value, node->text);
    case HL_JN_ITEM:
        return evaluate_item(run, node);
    case HL_JN_CALL:
        return evaluate_call(run, node, (hl_jvalue){ 0 });
    case HL_JN_FILTER:
    case HL_JN_TEST:
        return apply_entry(run, node, evaluate(run, node->a));
    default:
        hl_jraise(run, "TemplateSyntaxError", "a slice outside of brackets");
    }
}

static hl_jvalue evaluate(hl_jrun *run, const hl_jnode *node)
{
    hl_jstep(run, 1);
    hl_jdeeper(run);
    run->fault.line = node->line;
    hl_jvalue value = evaluate_node(run, node);
    run->depth--;
    return value;
}

/* The filters of a block, applied to its text; `node` is NULL if there are none. */
static hl_jvalue apply_filters(hl_jrun *run, const hl_jnode *node, hl_jvalue text)
{
    if (node == NULL)
        return text;
    return apply_entry(run, node, apply_filters(run, node->a, text));
}

/* ------------------------------------------------------------------------ statements */

static void assign(hl_jrun *run, const hl_jnode *target, hl_jvalue value);

static void unpack(hl_jrun *run, const hl_jnode *target, hl_jvalue value)
{
    size_t    n = target->items.n, got = 0;
    hl_jvalue item;

    if (value.kind == HL_J_LOOP || !hl_jcan_iterate(value))
        hl_jraise(run, "TypeError", "cannot unpack non-iterable %s object", hl_jtype(value));
    hl_jvalue items = hl_jlist_new(run, HL_J_LIST);
    for (hl_jiterator i = hl_jiterate(run, value); hl_jnext(run, &i, &item); got++) {
        if (got == n)
            hl_jraise(run, "ValueError", "too many values to unpack (expected %zu)", n);
        hl_jlist_add(run, items.list, item);
    }
    if (got < n)
        hl_jraise(run, "ValueError", "not enough values to unpack (expected %zu, got %zu)", n, got);
    for (size_t i = 0; i < n; i++)
        assign(run, target->items.items[i], items.list->items[i]);
}

static void assign(hl_jrun *run, const hl_jnode *target, hl_jvalue value)
{
    if (target->kind == HL_JN_NAME) {
        set_variable(run, run->frame, target->value, value);
        return;
    }
    if (target->kind == HL_JN_TUPLE) {
        unpack(run, target, value);
        return;
    }
    hl_jvalue object = look_up(run, target->value);
    if (object.kind != HL_J_NAMESPACE)
        hl_jraise(run, "TemplateRuntimeError", "cannot assign attribute on non-namespace object");
    hl_jdict_put(run, object.dict, target->text, value);
}

static bool fetch(hl_jrun *run, hl_jloop *loop, hl_jvalue *item)
{
    hl_jframe *frame  = run->frame;
    bool       wanted = false;

    while (!wanted && hl_jnext(run, &loop->items, item)) {
        wanted = true;
        /* Items behind loop.length have passed the condition. */
        if (loop->node->c == NULL || loop->length >= 0)
            break;
        run->frame = new_frame(run, loop->outer);
        assign(run, loop->node->a, *item);
        wanted     = hl_jtruth(run, evaluate(run, loop->node->c));
        run->frame = frame;
    }
    return wanted;
}

static bool next_item(hl_jrun *run, hl_jloop *loop, hl_jvalue *item)
{
    if (loop->after.kind != HL_J_ABSENT) {
        *item       = loop->after;
        loop->after = (hl_jvalue){ 0 };
    } else if (!fetch(run, loop, item)) {
        return false;
    }
    loop->index0++;
    loop->before  = loop->current;
    loop->current = *item;
    return true;
}

static void run_loop(hl_jrun *run, const hl_jnode *node, hl_jframe *outer, hl_jvalue iterable,
                     int64_t depth0)
{
    hl_jloop  *loop  = hl_jtake(run, 1, hl_jloop);
    hl_jframe *frame = run->frame;
    hl_jvalue  item;
    hl_jvalue  self = { .kind = HL_J_LOOP, .loop = loop };
    outcome    how  = GO_ON;

    *loop           = (hl_jloop){ .node     = node,
                                  .outer    = outer,
                                  .iterable = iterable,
                                  .items    = hl_jiterate(run, iterable),
                                  .index0   = -1,
                                  .length   = -1,
                                  .depth0   = depth0 };
    hl_jframe *body = new_frame(run, outer);
    while (how != BREAK && next_item(run, loop, &item)) {
        hl_jstep(run, 1);
        body->n    = 0;
        run->frame = body;
        set_variable(run, body, hl_jtext("loop"), self);
        assign(run, node->a, item);
        how = execute(run, &node->items);
    }
    if (loop->index0 < 0) {
        run->frame = new_frame(run, outer);
        (void)execute(run, &node->more);
    }
    run->frame = frame;
}

static hl_jvalue run_loop_again(hl_jrun *run, hl_jloop *loop, const hl_jargs *args)
{
    hl_jbuffer  text  = { 0 };
    hl_jbuffer *outer = run->out;

    if (!loop->node->recursive)
        hl_jraise(run, "TypeError",
                  "The loop must have the 'recursive' marker to be called recursively.");
    if (args->n != 1)
        hl_jraise(run, "TypeError", "loop() takes one argument, got %zu", args->n);
    hl_jdeeper(run);
    run->out = &text;
    run_loop(run, loop->node, loop->outer, args->items[0], loop->depth0 + 1);
    run->out = outer;
    run->depth--;
    return hl_jfinish(run, &text);
}

static hl_jvalue new_macro(hl_jrun *run, const hl_jmacro *macro)
{
    hl_jvalue value = callable(run, NULL, (hl_jvalue){ 0 });

    value.callable->macro = macro;
    value.callable->frame = run->frame;
    return value;
}

/* Runs a body in a frame of its own and returns its text. */
static hl_jvalue capture_block(hl_jrun *run, const hl_jnode *node, outcome *how)
{
    hl_jframe *frame = run->frame;

    run->frame     = new_frame(run, frame);
    hl_jvalue text = capture(run, &node->items, how);
    text           = apply_filters(run, node->b, text);
    run->frame     = frame;
    return text;
}

static outcome run_with(hl_jrun *run, const hl_jnode *node)
{
    hl_jframe *outer = run->frame, *inner = new_frame(run, outer);

    for (size_t i = 0; i < node->more.n; i += 2) {
        run->frame      = outer; /* values do not see the new variables */
        hl_jvalue value = evaluate(run, node->more.items[i + 1]);
        run->frame      = inner;
        assign(run, node->more.items[i], value);
    }
    run->frame  = inner;
    outcome how = execute(run, &node->items);
    run->frame  = outer;
    return how;
}

/* The text of a `generation` block, whose place is kept. */
static void run_generation(hl_jrun *run, const hl_jnode *node)
{
    hl_jargs  none  = { 0 };
    hl_jvalue macro = new_macro(run, node->macro);
    hl_jvalue text  = call_macro(run, macro.callable, &none);
    size_t    begin = run->out->n_bytes;

    hl_jput_string(run, run->out, text);
    hl_jlist_add(run, &run->generated, hl_jint((int64_t)begin));
    hl_jlist_add(run, &run->generated, hl_jint((int64_t)run->out->n_bytes));
}

static void print(hl_jrun *run, hl_jvalue value)
{
    hl_jput_string(run, run->out, hl_jstr(run, value));
}

static outcome execute_node(hl_jrun *run, const hl_jnode *node)
{
    outcome how = GO_ON;

    switch (node->kind) {
    case HL_JN_DATA:
        hl_jput_string(run, run->out, node->value);
        return GO_ON;
    case HL_JN_OUTPUT:
        for (size_t i = 0; i < node->items.n; i++)
            print(run, evaluate(run, node->items.items[i]));
        return GO_ON;
    case HL_JN_IF:
        return execute(run, hl_jtruth(run, evaluate(run, node->a)) ? &node->items : &node->more);
    case HL_JN_FOR:
        run_loop(run, node, run->frame, evaluate(run, node->b), 0);
        return GO_ON;
    case HL_JN_SET:
        assign(run, node->a, evaluate(run, node->b));
        return GO_ON;
    case HL_JN_SET_BLOCK:
        assign(run, node->a, capture_block(run, node, &how));
        return how;
    case HL_JN_MACRO:
        set_variable(run, run->frame, node->macro->name, new_macro(run, node->macro));
        return GO_ON;
    case HL_JN_CALL_BLOCK:
        print(run, evaluate_call(run, node->a, new_macro(run, node->macro)));
        return GO_ON;
    case HL_JN_FILTER_BLOCK:
        print(run, capture_block(run, node, &how));
        return how;
    case HL_JN_WITH:
        return run_with(run, node);
    case HL_JN_BLOCK:
        return execute(run, &node->items);
    case HL_JN_GENERATION:
        run_generation(run, node);
        return GO_ON;
    case HL_JN_BREAK:
        return BREAK;
    case HL_JN_CONTINUE:
        return CONTINUE;
    default:
        hl_jraise(run, "TypeError", "no loader for this environment specified");
    }
}

static outcome execute(hl_jrun *run, const hl_jnodes *body)
{
    outcome how = GO_ON;

    hl_jdeeper(run);
    for (size_t i = 0; i < body->n && how == GO_ON; i++) {
        hl_jstep(run, 1);
        run->fault.line = body->items[i]->line;
        how             = execute_node(run, body->items[i]);
    }
    run->depth--;
    return how;
}

/* ------------------------------------------------------- functions that always exist */

#define MAX_RANGE 100000 /* as Jinja2's sandbox has it */

METHOD(function_range)
{
    int64_t first = hl_jindex(run, args[0]);
    int64_t step  = args[2].kind != HL_J_ABSENT ? hl_jindex(run, args[2]) : 1;
    bool    one   = args[1].kind == HL_J_ABSENT;
    int64_t begin = one ? 0 : first, end = one ? first : hl_jindex(run, args[1]);

    (void)self;
    if (step == 0)
        hl_jraise(run, "ValueError", "range() arg 3 must not be zero");
    hl_jvalue value = { .kind = HL_J_RANGE, .range = hl_jtake(run, 1, hl_jrange) };
    *value.range    = (hl_jrange){ begin, end, step };
    /* In double precision, since differences of 64-bit numbers can overflow. */
    double n = ((double)end - (double)begin) / (double)step;
    if (n > MAX_RANGE || (n > 0 && hl_jlength(run, value).integer > MAX_RANGE))
        hl_jraise(run, "OverflowError",
                  "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                  MAX_RANGE);
    if (n <= 0)
        *value.range = (hl_jrange){ begin, begin, step };
    return value;
}

/* Adds the items of a mapping, or pairs, and named values. */
static void fill_dict(hl_jrun *run, hl_jdict *dict, const char *name, const hl_jargs *args)
{
    hl_jvalue pair;

    if (args->n > 1)
        hl_jraise(run, "TypeError", "%s expected at most 1 argument, got %zu", name, args->n);
    hl_jvalue from = args->n == 1 ? args->items[0] : hl_jlist_new(run, HL_J_LIST);
    if (from.kind == HL_J_DICT) {
        for (size_t i = 0; i < from.dict->n; i++)
            hl_jdict_put(run, dict, from.dict->keys[i], from.dict->values[i]);
    } else {
        size_t n = 0;
        for (hl_jiterator i = hl_jiterate(run, from); hl_jnext(run, &i, &pair); n++) {
            if (!hl_jcan_iterate(pair))
                hl_jraise(run, "TypeError",
                          "cannot convert dictionary update sequence element #%zu to a sequence",
                          n);
            hl_jvalue items = hl_jitems(run, pair);
            if (items.list->n != 2)
                hl_jraise(run, "ValueError",
                          "dictionary update sequence element #%zu has length %zu; 2 is required",
                          n, items.list->n);
            hl_jdict_put(run, dict, items.list->items[0], items.list->items[1]);
        }
    }
    for (size_t i = 0; i < args->named.n; i++)
        hl_jdict_put(run, dict, args->named.keys[i], args->named.values[i]);
}

static hl_jvalue function_dict(hl_jrun *run, hl_jvalue self, const hl_jargs *args)
{
    hl_jvalue dict = hl_jdict_new(run, HL_J_DICT);

    (void)self;
    fill_dict(run, dict.dict, "dict", args);
    return dict;
}

static hl_jvalue function_namespace(hl_jrun *run, hl_jvalue self, const hl_jargs *args)
{
    hl_jvalue space = hl_jdict_new(run, HL_J_NAMESPACE);

    (void)self;
    fill_dict(run, space.dict, "dict", args);
    return space;
}

METHOD(function_raise_exception)
{
    hl_jvalue text = hl_jstr(run, args[0]);

    (void)self;
    hl_jfault_raise_bytes(&run->fault, "TemplateError", (hl_bytes){ text.bytes, text.n_bytes });
}

METHOD(function_strftime_now)
{
    char      format[256], text[1024] = "";
    struct tm now;
    time_t    seconds = run->input->now != NULL ? (time_t)*run->input->now : time(NULL);

    (void)self;
    if (args[0].kind != HL_J_STRING)
        hl_jraise(run, "TypeError", "strftime() argument 1 must be str, not %s", hl_jtype(args[0]));
    if (args[0].n_bytes >= sizeof format)
        hl_jraise(run, "ValueError", "a format of %u bytes, at most %zu", args[0].n_bytes,
                  sizeof format - 1);
    memcpy(format, args[0].bytes, args[0].n_bytes);
    format[args[0].n_bytes] = '\0';
    if ((run->input->now != NULL ? gmtime_r(&seconds, &now) : localtime_r(&seconds, &now)) == NULL)
        hl_jraise(run, "ValueError", "the time is out of range");
    /* Names of months and days are in the process's locale, which the program leaves at "C".  What
     * strftime writes may not be UTF-8 if the locale is another one. */
    size_t n = strftime(text, sizeof text, format, &now);
    return hl_jstring(run, text, n, HL_ROLE_TEMPLATE);
}

/* cycler(a, b): next(), current, reset(). joiner(", "): "" at first.  Both keep their place in a
 * namespace. */
METHOD(cycler_next)
{
    hl_jvalue *at    = hl_jdict_find(run, self.dict, hl_jtext(" at"));
    hl_jvalue *items = hl_jdict_find(run, self.dict, hl_jtext(" items"));
    hl_jvalue  now   = items->list->items[at->integer];

    (void)args;
    at->integer = (at->integer + 1) % (int64_t)items->list->n;
    hl_jdict_put(run, self.dict, hl_jtext("current"), items->list->items[at->integer]);
    return now;
}

METHOD(cycler_reset)
{
    (void)args;
    hl_jdict_find(run, self.dict, hl_jtext(" at"))->integer = 0;
    hl_jdict_put(run, self.dict, hl_jtext("current"),
                 hl_jdict_find(run, self.dict, hl_jtext(" items"))->list->items[0]);
    return hl_jnone();
}

static const hl_jentry cycler_methods[] = {
    { "next", cycler_next, "", 0, NULL },
    { "reset", cycler_reset, "", 0, NULL },
    { 0 },
};

static hl_jvalue function_cycler(hl_jrun *run, hl_jvalue self, const hl_jargs *args)
{
    hl_jvalue space = hl_jdict_new(run, HL_J_NAMESPACE), items = hl_jlist_new(run, HL_J_LIST);

    (void)self;
    if (args->n == 0)
        hl_jraise(run, "RuntimeError", "at least one item has to be provided");
    for (size_t i = 0; i < args->n; i++)
        hl_jlist_add(run, items.list, args->items[i]);
    hl_jdict_put(run, space.dict, hl_jtext(" at"), hl_jint(0));
    hl_jdict_put(run, space.dict, hl_jtext(" items"), items);
    hl_jdict_put(run, space.dict, hl_jtext("current"), args->items[0]);
    hl_jdict_put(run, space.dict, hl_jtext("next"), callable(run, &cycler_methods[0], space));
    hl_jdict_put(run, space.dict, hl_jtext("reset"), callable(run, &cycler_methods[1], space));
    return space;
}

METHOD(joiner_call)
{
    hl_jvalue *used  = hl_jdict_find(run, self.dict, hl_jtext("used"));
    bool       first = !hl_jtruth(run, *used);

    (void)args;
    *used = hl_jbool(true);
    return first ? hl_jtext("") : *hl_jdict_find(run, self.dict, hl_jtext("sep"));
}

static const hl_jentry joiner_entry = { "joiner", joiner_call, "", 0, NULL };

METHOD(function_joiner)
{
    hl_jvalue space = hl_jdict_new(run, HL_J_NAMESPACE);

    (void)self;
    hl_jdict_put(run, space.dict, hl_jtext("sep"),
                 args[0].kind != HL_J_ABSENT ? args[0] : hl_jtext(", "));
    hl_jdict_put(run, space.dict, hl_jtext("used"), hl_jbool(false));
    return callable(run, &joiner_entry, space);
}

static const hl_jentry functions[] = {
    { "range", function_range, "start stop step", 1, NULL },
    { "dict", NULL, NULL, 0, function_dict },
    { "namespace", NULL, NULL, 0, function_namespace },
    { "raise_exception", function_raise_exception, "message", 1, NULL },
    { "strftime_now", function_strftime_now, "format", 1, NULL },
    { "cycler", NULL, NULL, 0, function_cycler },
    { "joiner", function_joiner, "sep", 0, NULL },
    { 0 },
};

/* --------------------------------------------------------------------------- rendering */

static void set_named(hl_jrun *run, const char *name, hl_jvalue value)
{
    set_variable(run, run->frame, hl_jtext(name), value);
}

hl_chat_role hl_chat_role_of(const char *name)
{
    if (name == NULL)
        return HL_ROLE_USER;
    if (strcmp(name, "system") == 0 || strcmp(name, "developer") == 0)
        return HL_ROLE_SYSTEM;
    if (strcmp(name, "tool") == 0 || strcmp(name, "function") == 0 || strcmp(name, "ipython") == 0)
        return HL_ROLE_TOOL;
    return strcmp(name, "assistant") == 0 || strcmp(name, "model") == 0 ? HL_ROLE_ASSISTANT
                                                                        : HL_ROLE_USER;
}

static uint8_t role_of(const json_t *message)
{
    return (uint8_t)hl_chat_role_of(json_string_value(json_object_get(message, "role")));
}

/* A message: all of it but the name of its role belongs to that role. */
static hl_jvalue message_value(hl_jrun *run, const json_t *message)
{
    hl_jvalue value = hl_jfrom_json(run, message, role_of(message));

    value.role = HL_ROLE_TEMPLATE;
    if (value.kind != HL_J_DICT)
        return value;
    for (size_t i = 0; i < value.dict->n; i++) {
        value.dict->keys[i].role = HL_ROLE_TEMPLATE;
        if (hl_jis(value.dict->keys[i], "role"))
            value.dict->values[i].role = HL_ROLE_TEMPLATE;
    }
    return value;
}

static const struct {
    const char *name;
    hl_special  which;
} special_names[] = {
    { "bos_token", HL_SPECIAL_BOS },   { "eos_token", HL_SPECIAL_EOS },
    { "unk_token", HL_SPECIAL_UNK },   { "sep_token", HL_SPECIAL_SEP },
    { "pad_token", HL_SPECIAL_PAD },   { "cls_token", HL_SPECIAL_CLS },
    { "mask_token", HL_SPECIAL_MASK },
};

static void set_input(hl_jrun *run)
{
    const hl_jinja_input *input     = run->input;
    hl_jvalue             messages  = hl_jlist_new(run, HL_J_LIST);
    json_t               *variables = (json_t *)input->variables;

    run->frame = new_frame(run, NULL);
    for (const hl_jentry *entry = functions; entry->name != NULL; entry++)
        set_named(run, entry->name, callable(run, entry, (hl_jvalue){ 0 }));
    run->frame = new_frame(run, run->frame);
    for (size_t i = 0; i < json_array_size(input->messages); i++)
        hl_jlist_add(run, messages.list, message_value(run, json_array_get(input->messages, i)));
    for (size_t i = 0; i < sizeof special_names / sizeof *special_names; i++) {
        hl_bytes text = input->special[special_names[i].which];
        if (text.data != NULL)
            set_named(run, special_names[i].name, hl_jstring(run, text.data, text.n_bytes, 0));
    }
    set_named(run, "tools", hl_jnone());
    set_named(run, "documents", hl_jnone());
    /* Whoever sends variables may not write the template's own markers with them. */
    for (void *at = json_object_iter(variables); at != NULL;
         at       = json_object_iter_next(variables, at)) {
        hl_jvalue value = hl_jfrom_json(run, json_object_iter_value(at), HL_ROLE_SYSTEM);
        set_named(run, json_object_iter_key(at), value);
    }
    set_named(run, "messages", messages);
    set_named(run, "add_generation_prompt", hl_jbool(input->add_generation_prompt));
    run->frame = new_frame(run, run->frame);
}

/* The part that may end with a longjmp. */
static hl_status render(hl_jrun *run, hl_jbuffer *out)
{
    if (setjmp(run->fault.back) != 0)
        return hl_jfault_report(&run->fault);
    set_input(run);
    run->out = out;
    (void)execute(run, &run->jinja->body);
    return HL_OK;
}

static hl_status copy_out(hl_jinja_page *page, const hl_jrun *run, const hl_jbuffer *out)
{
    hl_span *spans = NULL;

    HL_NEED(hl_strndup(&page->text, out->n_bytes > 0 ? out->bytes : "", out->n_bytes));
    HL_NEED(HL_ALLOC(&page->roles, out->n_bytes));
    if (out->n_bytes > 0)
        memcpy(page->roles, out->roles, out->n_bytes);
    HL_NEED(HL_ALLOC(&spans, run->generated.n / 2));
    for (size_t i = 0; i + 1 < run->generated.n; i += 2)
        spans[i / 2] = (hl_span){ (size_t)run->generated.items[i].integer,
                                  (size_t)run->generated.items[i + 1].integer };
    page->n_bytes     = out->n_bytes;
    page->generated   = spans;
    page->n_generated = run->generated.n / 2;
    return HL_OK;
}

static hl_status copy_refusal(hl_jinja_page *page, const hl_jfault *fault)
{
    HL_SCOPED(hl_text_free) hl_text text = { 0 };

    if (fault->status != HL_BAD_INPUT)
        return HL_OK;
    hl_text_addf(&text, "%s: %s", fault->kind, fault->text);
    return hl_text_finish(&page->refusal, &text);
}

/* What a rendering may cost grows with what it is given. */
static hl_jinja_limits limits_of(const hl_jinja_input *input)
{
    hl_jinja_limits limits   = input->limits;
    HL_FREED char  *messages = hl_json_dump(input->messages, JSON_COMPACT);
    HL_FREED char  *variables =
        input->variables != NULL ? hl_json_dump(input->variables, JSON_COMPACT) : NULL;
    size_t n =
        (messages != NULL ? strlen(messages) : 0) + (variables != NULL ? strlen(variables) : 0);

    if (limits.n_steps == 0)
        limits.n_steps = 4000000 + 256 * n;
    if (limits.n_memory == 0)
        limits.n_memory = ((size_t)64 << 20) + 1024 * n;
    if (limits.n_output == 0)
        limits.n_output = ((size_t)4 << 20) + 64 * n;
    return limits;
}

hl_status hl_jinja_render(hl_jinja_page        *page, const hl_jinja *template,
                          const hl_jinja_input *input)
{
    HL_FREED hl_jrun *run    = NULL;
    hl_jinja_limits   limits = limits_of(input);
    hl_jbuffer        out    = { .most = limits.n_output };

    *page = (hl_jinja_page){ 0 };
    HL_NEED(HL_ALLOC_ZEROED(&run, 1));
    run->jinja             = template;
    run->input             = input;
    run->fault.where       = template->where;
    run->fault.most_memory = limits.n_memory;
    run->most_steps        = limits.n_steps;
    run->texts.packed      = true;
    run->roles.packed      = true;
    hl_status status       = render(run, &out);
    if (status == HL_OK)
        status = copy_out(page, run, &out);
    else if (copy_refusal(page, &run->fault) != HL_OK)
        status = HL_NO_MEMORY;
    page->n_steps  = run->n_steps;
    page->n_memory = run->fault.n_memory;
    hl_free(run->fault.text);
    hl_jarena_free(&run->objects);
    hl_jarena_free(&run->texts);
    hl_jarena_free(&run->roles);
    return status;
}

void hl_jinja_page_free(hl_jinja_page *page)
{
    hl_free(page->text);
    hl_free(page->roles);
    hl_free(page->generated);
    hl_free(page->refusal);
    *page = (hl_jinja_page){ 0 };
}
