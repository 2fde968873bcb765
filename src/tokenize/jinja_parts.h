/* jinja_parts.h - what the files of the template interpreter share.
 *
 *     jinja_parse.c    text -> tokens -> tree
 *     jinja_value.c    values as Python has them: numbers, comparisons, str and repr, JSON
 *     jinja_text.c     strings: their methods, % and format
 *     jinja_filters.c  filters and tests
 *     jinja.c          runs a tree
 *
 * A rendering takes all its memory from arenas that are released together at its end, and an error
 * ends it with a longjmp to hl_jinja_render, so that no function here has anything to undo. */
#ifndef HL_TOKENIZE_JINJA_PARTS_H
#define HL_TOKENIZE_JINJA_PARTS_H

#include <setjmp.h>

#include "tokenize/jinja.h"

/* -------------------------------------------------------------------- memory and errors */

typedef struct hl_jchunk hl_jchunk;

/* Memory that is released all at once. */
typedef struct hl_jarena {
    hl_jchunk *chunks;
    char      *at; /* the next free byte, and the end of its chunk */
    char      *end;
    bool       packed; /* for bytes: neither aligned nor zeroed */
} hl_jarena;

/* Where errors go, and what has been used so far. */
typedef struct hl_jfault {
    jmp_buf     back;
    const char *where;
    size_t      n_memory;
    size_t      most_memory;
    int         line; /* of what runs now */
    hl_status   status;
    char        kind[40]; /* Python's name of the error: "TypeError" */
    char       *text;     /* the error's message; released by the function that set `back` */
} hl_jfault;

/* Ends the parse or the rendering with HL_BAD_INPUT. */
void hl_jfault_raise(hl_jfault *fault, const char *kind, const char *format, ...)
    __attribute__((noreturn, format(printf, 3, 4)));
/* The same for a message of any bytes. */
void hl_jfault_raise_bytes(hl_jfault *fault, const char *kind, hl_bytes text)
    __attribute__((noreturn));
/* Ends it with another status, whose message is stored already. */
void hl_jfault_end(hl_jfault *fault, hl_status status) __attribute__((noreturn));
/* Stores the message of hl_jinja_render and hl_jinja_parse for what was raised. */
hl_status hl_jfault_report(const hl_jfault *fault);

/* n_bytes zeroed bytes, aligned for anything (unless the arena is packed). */
void *hl_jarena_take(hl_jarena *arena, hl_jfault *fault, size_t n_bytes);
/* Makes `block`, the last n_old bytes that a packed arena gave, n_new bytes large where it lies;
 * false if it is not the last, or if its chunk is full. */
bool hl_jarena_extend(hl_jarena *arena, const void *block, size_t n_old, size_t n_new);
void hl_jarena_free(hl_jarena *arena);

/* -------------------------------------------------------------------------------- values */

typedef enum hl_jkind {
    HL_J_ABSENT = 0, /* no value: an argument that was not given */
    HL_J_UNDEFINED,
    HL_J_NONE,
    HL_J_BOOL,
    HL_J_INT,
    HL_J_FLOAT,
    HL_J_STRING,
    HL_J_LIST,
    HL_J_TUPLE,
    HL_J_DICT,
    HL_J_NAMESPACE,
    HL_J_RANGE,
    HL_J_GENERATOR, /* items that can be read once */
    HL_J_VIEW,      /* keys, values or items of a dictionary */
    HL_J_LOOP,
    HL_J_CALLABLE,
} hl_jkind;

typedef struct hl_jlist      hl_jlist;
typedef struct hl_jdict      hl_jdict;
typedef struct hl_jundefined hl_jundefined;
typedef struct hl_jrange     hl_jrange;
typedef struct hl_jloop      hl_jloop;
typedef struct hl_jcallable  hl_jcallable;
typedef struct hl_jrun       hl_jrun;
typedef struct hl_jnode      hl_jnode;

/* A value; small, and passed by value.  Strings do not change once they are made, so that they can
 * share their bytes. */
typedef struct hl_jvalue {
    uint8_t  kind;    /* hl_jkind */
    uint8_t  role;    /* hl_chat_role of the message that it comes from */
    bool     markup;  /* a string that `safe` or `escape` made */
    uint8_t  view;    /* 'k', 'v' or 'i' of a view */
    uint32_t n_bytes; /* of a string */
    union {
        int64_t        integer; /* also booleans */
        double         real;
        const char    *bytes; /* UTF-8 */
        hl_jlist      *list;  /* lists, tuples and generators */
        hl_jdict      *dict;  /* dictionaries, namespaces and views */
        hl_jundefined *undefined;
        hl_jrange     *range;
        hl_jloop      *loop;
        hl_jcallable  *callable;
    };
    const uint8_t *roles; /* (n_bytes) of a string of several roles; NULL: all bytes have `role` */
} hl_jvalue;

struct hl_jlist {
    hl_jvalue *items;
    size_t     n;
    size_t     capacity;
    size_t     at;    /* the next item of a generator */
    bool       group; /* a pair that `groupby` made, with names for its parts */
};

struct hl_jdict {
    hl_jvalue *keys;
    hl_jvalue *values;
    size_t     n;
    size_t     capacity;
};

struct hl_jundefined {
    const char *kind;  /* the error that its use raises */
    hl_jvalue   hint;  /* the whole message, or absent */
    hl_jvalue   owner; /* the object that lacks it, or absent */
    hl_jvalue   name;
};

struct hl_jrange {
    int64_t begin, end, step;
};

/* Arguments of a call. */
typedef struct hl_jargs {
    hl_jvalue *items; /* (n) */
    size_t     n;
    hl_jdict   named;
} hl_jargs;

typedef hl_jvalue (*hl_jfunction)(hl_jrun *run, hl_jvalue self, hl_jvalue *args);
typedef hl_jvalue (*hl_jfunction_raw)(hl_jrun *run, hl_jvalue self, const hl_jargs *args);

/* A function by name, with the names of its parameters: "old new count".  The first `least` are
 * required; the others are absent if they are not given. */
typedef struct hl_jentry {
    const char      *name;
    hl_jfunction     call;
    const char      *parameters;
    int              least;
    hl_jfunction_raw raw; /* instead of `call`: takes the arguments as they are */
} hl_jentry;

#define HL_JINJA_PARAMETERS 8 /* at most */

typedef struct hl_jmacro hl_jmacro;

/* Something that can be called: a function, a method with its object, or a macro. */
struct hl_jcallable {
    const hl_jentry  *entry; /* NULL: a macro */
    hl_jvalue         self;
    const hl_jmacro  *macro;
    struct hl_jframe *frame; /* where the macro was defined */
};

static inline hl_jvalue hl_jnone(void)
{
    return (hl_jvalue){ .kind = HL_J_NONE };
}

static inline hl_jvalue hl_jbool(bool value)
{
    return (hl_jvalue){ .kind = HL_J_BOOL, .integer = value };
}

static inline hl_jvalue hl_jint(int64_t value)
{
    return (hl_jvalue){ .kind = HL_J_INT, .integer = value };
}

static inline hl_jvalue hl_jfloat(double value)
{
    return (hl_jvalue){ .kind = HL_J_FLOAT, .real = value };
}

/* Text that outlives the rendering. */
hl_jvalue hl_jtext(const char *text);

static inline bool hl_jis_text(hl_jvalue value)
{
    return value.kind == HL_J_STRING;
}

/* Python counts booleans as integers. */
static inline bool hl_jis_int(hl_jvalue value)
{
    return value.kind == HL_J_INT || value.kind == HL_J_BOOL;
}

static inline bool hl_jis_number(hl_jvalue value)
{
    return hl_jis_int(value) || value.kind == HL_J_FLOAT;
}

static inline double hl_jreal(hl_jvalue value)
{
    return value.kind == HL_J_FLOAT ? value.real : (double)value.integer;
}

static inline bool hl_jis(hl_jvalue value, const char *text)
{
    return value.kind == HL_J_STRING &&
           hl_bytes_equal((hl_bytes){ value.bytes, value.n_bytes }, text);
}

/* ------------------------------------------------------------------------------ the run */

typedef struct hl_jframe hl_jframe;

/* A growing text in a rendering's memory. */
typedef struct hl_jbuffer {
    char    *bytes;
    uint8_t *roles;
    size_t   n_bytes;
    size_t   capacity;
    size_t   most; /* largest number of bytes; 0: no limit but that of memory */
} hl_jbuffer;

struct hl_jrun {
    const hl_jinja       *jinja;
    const hl_jinja_input *input;
    hl_jfault             fault;
    hl_jarena             objects; /* values and frames */
    hl_jarena             texts;   /* bytes of strings: a string at the end can grow in place */
    hl_jarena             roles;   /* roles of the bytes in texts, likewise */
    size_t                n_steps;
    size_t                most_steps;
    int                   depth;
    hl_jbuffer           *out;
    hl_jframe            *frame;     /* the innermost */
    hl_jlist              generated; /* pairs of integers */
};

#define hl_jraise(run, ...)    hl_jfault_raise(&(run)->fault, __VA_ARGS__)
#define hl_jtake(run, n, type) ((type *)hl_jtake_items((run), (n), sizeof(type)))
void *hl_jtake_items(hl_jrun *run, size_t n, size_t size);
/* Counts steps, and ends the rendering if there are too many. */
void hl_jstep(hl_jrun *run, size_t n);
/* Counts the steps of work on n bytes. */
static inline void hl_jwork(hl_jrun *run, size_t n_bytes)
{
    hl_jstep(run, 1 + n_bytes / 32);
}
/* One more level of nesting; the caller takes it back. */
void hl_jdeeper(hl_jrun *run);

void      hl_jput(hl_jrun *run, hl_jbuffer *buffer, const char *bytes, size_t n, uint8_t role);
void      hl_jput_text(hl_jrun *run, hl_jbuffer *buffer, const char *text);
void      hl_jput_string(hl_jrun *run, hl_jbuffer *buffer, hl_jvalue string);
void      hl_jput_character(hl_jrun *run, hl_jbuffer *buffer, uint32_t character, uint8_t role);
hl_jvalue hl_jfinish(hl_jrun *run, const hl_jbuffer *buffer);

/* ----------------------------------------------------------------------- jinja_value.c */

hl_jvalue hl_jstring(hl_jrun *run, const char *bytes, size_t n_bytes, uint8_t role);
hl_jvalue hl_jformat(hl_jrun *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
hl_jvalue hl_jpart(hl_jvalue string, size_t begin, size_t end); /* bytes [begin, end) */
hl_jvalue hl_jconcat(hl_jrun *run, hl_jvalue left, hl_jvalue right);
/* The roles of byte i. */
static inline uint8_t hl_jrole(hl_jvalue string, size_t i)
{
    return string.roles != NULL ? string.roles[i] : string.role;
}

hl_jvalue hl_jlist_new(hl_jrun *run, hl_jkind kind);
void      hl_jlist_add(hl_jrun *run, hl_jlist *list, hl_jvalue item);
hl_jvalue hl_jpair(hl_jrun *run, hl_jvalue first, hl_jvalue second);
hl_jvalue hl_jdict_new(hl_jrun *run, hl_jkind kind);
/* The value of a key, or NULL.  Fails if the key cannot be one. */
hl_jvalue *hl_jdict_find(hl_jrun *run, const hl_jdict *dict, hl_jvalue key);
void       hl_jdict_put(hl_jrun *run, hl_jdict *dict, hl_jvalue key, hl_jvalue value);
hl_jvalue  hl_jundefined_hint(hl_jrun *run, const char *hint);
hl_jvalue  hl_jundefined_name(hl_jrun *run, hl_jvalue owner, hl_jvalue name);
hl_jvalue  hl_junsafe(hl_jrun *run, hl_jvalue owner, hl_jvalue name);
/* Raises what the use of an undefined value raises. */
void hl_jundefined_raise(hl_jrun *run, hl_jvalue value) __attribute__((noreturn));

/* Python's name of the type. */
const char *hl_jtype(hl_jvalue value);
bool        hl_jtruth(hl_jrun *run, hl_jvalue value);
bool        hl_jequal(hl_jrun *run, hl_jvalue a, hl_jvalue b);
/* a < b, where `sign` is the comparison that messages name. */
bool      hl_jless(hl_jrun *run, hl_jvalue a, hl_jvalue b, const char *sign);
bool      hl_jcontains(hl_jrun *run, hl_jvalue container, hl_jvalue item);
hl_jvalue hl_jlength(hl_jrun *run, hl_jvalue value);
hl_jvalue hl_jbinary(hl_jrun *run, char op, hl_jvalue a, hl_jvalue b);
hl_jvalue hl_jnegative(hl_jrun *run, hl_jvalue value, bool positive);
hl_jvalue hl_jstr(hl_jrun *run, hl_jvalue value);
hl_jvalue hl_jrepr(hl_jrun *run, hl_jvalue value);
hl_jvalue hl_jfrom_json(hl_jrun *run, const json_t *json, uint8_t role);
hl_jvalue hl_jto_json(hl_jrun *run, hl_jvalue value, const hl_jvalue *options);
/* An index in [0, length], as Python clamps it; for a step below 0 in [-1, length - 1]. */
void hl_jslice_bounds(hl_jrun *run, int64_t *begin, int64_t *end, int64_t *step, int64_t length,
                      const hl_jvalue bounds[3]);
hl_jvalue hl_jslice(hl_jrun *run, hl_jvalue value, const hl_jvalue bounds[3]);
int64_t   hl_jindex(hl_jrun *run, hl_jvalue value); /* an integer, or TypeError */
/* The shortest text that reads as the same number. */
#define HL_JINJA_NUMBER 400
void hl_jfloat_text(char out[HL_JINJA_NUMBER], double value);

/* Iterating: `for (hl_jiterator i = hl_jiterate(run, value); hl_jnext(run, &i, &item);)` */
typedef struct hl_jiterator {
    hl_jvalue value;
    size_t    at;
    int64_t   number;
} hl_jiterator;

bool         hl_jcan_iterate(hl_jvalue value);
hl_jiterator hl_jiterate(hl_jrun *run, hl_jvalue value);
bool         hl_jnext(hl_jrun *run, hl_jiterator *iterator, hl_jvalue *item);
/* All items, as a new list. */
hl_jvalue hl_jitems(hl_jrun *run, hl_jvalue value);

/* ------------------------------------------------------------------------ jinja_text.c */

extern const hl_jentry hl_jstring_methods[];
hl_jvalue              hl_jstring_percent(hl_jrun *run, hl_jvalue format, hl_jvalue args);
hl_jvalue hl_jstring_strip(hl_jrun *run, hl_jvalue text, hl_jvalue characters, bool left,
                           bool right);
hl_jvalue hl_jstring_replace(hl_jrun *run, hl_jvalue text, hl_jvalue old, hl_jvalue other,
                             int64_t count);
hl_jvalue hl_jstring_upper(hl_jrun *run, hl_jvalue text);
hl_jvalue hl_jstring_lower(hl_jrun *run, hl_jvalue text);
hl_jvalue hl_jstring_capitalize(hl_jrun *run, hl_jvalue text);
hl_jvalue hl_jstring_center(hl_jrun *run, hl_jvalue text, int64_t width);
hl_jvalue hl_jstring_lines(hl_jrun *run, hl_jvalue text, bool keep);
hl_jvalue hl_jstring_escape(hl_jrun *run, hl_jvalue text);
bool      hl_jstring_is(hl_jvalue text, const char *what); /* "upper", "lower", "space", ... */
bool      hl_jis_space(uint32_t character);
/* The number that a text spells, as int() and float() read it; false: none. */
bool hl_jread_int(hl_jrun *run, int64_t *out, hl_jvalue text, int64_t base);
bool hl_jread_float(double *out, hl_jvalue text);

/* --------------------------------------------------------------------- jinja_filters.c */

extern const hl_jentry hl_jfilters[];
extern const hl_jentry hl_jtests[];
const hl_jentry       *hl_jentry_find(const hl_jentry *table, hl_bytes name);

/* ------------------------------------------------------------------------------ jinja.c */

/* obj.name, and obj[key]. */
hl_jvalue hl_jget_attribute(hl_jrun *run, hl_jvalue object, hl_jvalue name);
hl_jvalue hl_jget_item(hl_jrun *run, hl_jvalue object, hl_jvalue key);
hl_jvalue hl_jcall(hl_jrun *run, hl_jvalue callee, const hl_jargs *args);
/* Calls an entry of a table with arguments for its parameters. */
hl_jvalue hl_jcall_entry(hl_jrun *run, const hl_jentry *entry, hl_jvalue self,
                         const hl_jargs *args);

/* -------------------------------------------------------------------------------- trees */

typedef enum hl_jnode_kind {
    /* expressions */
    HL_JN_CONSTANT,
    HL_JN_NAME,
    HL_JN_TUPLE,
    HL_JN_LIST,
    HL_JN_DICT,    /* items: key, value, key, value, ... */
    HL_JN_IF_ELSE, /* a if b else c */
    HL_JN_AND,
    HL_JN_OR,
    HL_JN_NOT,
    HL_JN_COMPARE, /* items[0] signs[0] items[1] signs[1] items[2] ... */
    HL_JN_BINARY,
    HL_JN_NEGATIVE,
    HL_JN_POSITIVE,
    HL_JN_CONCAT,
    HL_JN_ATTRIBUTE,
    HL_JN_ITEM,
    HL_JN_SLICE, /* a : b : c */
    HL_JN_CALL,
    HL_JN_FILTER, /* a is NULL in the filters of a block */
    HL_JN_TEST,
    HL_JN_NAMESPACE, /* name.text of `set name.text = ...` */
    /* statements */
    HL_JN_DATA,
    HL_JN_OUTPUT,
    HL_JN_IF,        /* a; items; more: else */
    HL_JN_FOR,       /* for a in b if c; items; more: else */
    HL_JN_SET,       /* a = b */
    HL_JN_SET_BLOCK, /* a, with filters b */
    HL_JN_MACRO,
    HL_JN_CALL_BLOCK,   /* a: the call; macro: the body */
    HL_JN_FILTER_BLOCK, /* b: the filters */
    HL_JN_WITH,         /* more: target, value, target, value, ... */
    HL_JN_BLOCK,
    HL_JN_GENERATION,
    HL_JN_BREAK,
    HL_JN_CONTINUE,
    HL_JN_LOADS, /* include and its kin: there is nothing to load from */
} hl_jnode_kind;

/* Positions in the tree are pointers into the template's arena. */
typedef struct hl_jnodes {
    hl_jnode **items;
    size_t     n;
    size_t     capacity;
} hl_jnodes;

typedef struct hl_jcall_args {
    hl_jnodes items;
    hl_jnodes names; /* constants */
    hl_jnodes values;
    hl_jnode *star;
    hl_jnode *star_star;
} hl_jcall_args;

struct hl_jmacro {
    hl_jvalue name;       /* absent: the body of a call block */
    hl_jnodes parameters; /* names */
    hl_jnodes defaults;   /* of the last parameters */
    hl_jnodes body;
    bool      uses_caller, uses_kwargs, uses_varargs;
};

struct hl_jnode {
    uint8_t          kind;
    char             op;        /* of HL_JN_BINARY */
    bool             recursive; /* of HL_JN_FOR */
    int              line;
    hl_jvalue        value; /* a constant, or a name */
    hl_jvalue        text;  /* the name of an attribute, filter or test */
    hl_jnode        *a, *b, *c;
    hl_jnodes        items, more;
    const char      *signs;
    hl_jcall_args   *args;
    hl_jmacro       *macro;
    const hl_jentry *entry; /* of a filter or test; NULL: there is none of this name */
};

struct hl_jinja {
    char     *where;
    hl_jarena arena;
    hl_jnodes body;
};

/* The largest nesting of a template, and of what it calls. */
#define HL_JINJA_NESTING 150
#define HL_JINJA_DEPTH   1500

#endif
