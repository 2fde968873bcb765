/* jinja_parse.c - templates as trees.
 *
 *     text {{ expression }} text {% statement %} text {# comment #}
 *
 * The lexer cuts the whole source into tokens.  White space around tags goes as transformers
 * sets it: the line end after a block's or comment's end, and blanks between the start of
 * a line and a block or comment.  A minus in a tag removes all white space on its side; a plus keeps
 * all of it.
 *
 * The parser is one function per level of precedence, from the weakest:
 *
 *     a if b else c | or | and | not | == < in ... | + - | ~ | * / // % | ** | -a | a.b a[b] a(b)
 *     a|filter, a is test
 *
 * Filters and tests that do not exist are an error, except within an `if`, where it is one only
 * when they are used. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"
#include "tokenize/jinja_parts.h"
#include "tokenize/unicode.h"

typedef enum token_kind {
    TOKEN_DATA,
    TOKEN_OUTPUT,     /* {{ */
    TOKEN_OUTPUT_END, /* }} */
    TOKEN_BLOCK,      /* {% */
    TOKEN_BLOCK_END,  /* %} */
    TOKEN_NAME,
    TOKEN_NUMBER,
    TOKEN_STRING,
    TOKEN_OPERATOR,
    TOKEN_END,
} token_kind;

/* Operators of two characters have a letter of their own. */
enum { POWER = 'P', FLOOR = 'F', EQUAL = 'E', UNEQUAL = 'N', AT_LEAST = 'G', AT_MOST = 'L' };

typedef struct token {
    token_kind kind;
    char       op;
    int        line;
    hl_jvalue  value;
} token;

typedef struct parser {
    hl_jfault  fault;
    hl_jarena *arena;
    /* the lexer */
    const char *text;
    size_t      n_bytes;
    size_t      at;
    int         line;
    bool        line_start; /* the text before `at` ended a line */
    token      *tokens;
    size_t      n_tokens, capacity;
    /* the parser */
    const token *now;
    int          depth;
    int          loops;      /* loops around this place, within the function that it is in */
    hl_jmacro   *macros[16]; /* around this place */
    int          n_macros;
} parser;

#define SYNTAX(p, ...) hl_jfault_raise(&(p)->fault, "TemplateSyntaxError", __VA_ARGS__)

static void *take(parser *p, size_t n_bytes)
{
    return hl_jarena_take(p->arena, &p->fault, n_bytes);
}

/* Doubles an array that is full. */
static void *grow(parser *p, void *items, size_t n, size_t *capacity, size_t size)
{
    if (n < *capacity)
        return items;
    *capacity     = *capacity != 0 ? 2 * *capacity : 4;
    void *doubled = take(p, *capacity * size);
    if (n > 0)
        memcpy(doubled, items, n * size);
    return doubled;
}

/* ------------------------------------------------------------------------------ the lexer */

static void add_token(parser *p, token_kind kind, char op, hl_jvalue value)
{
    p->tokens                = grow(p, p->tokens, p->n_tokens, &p->capacity, sizeof *p->tokens);
    p->tokens[p->n_tokens++] = (token){ .kind = kind, .op = op, .line = p->line, .value = value };
}

static bool starts(const parser *p, size_t at, const char *word)
{
    size_t n = strlen(word);

    return at <= p->n_bytes && p->n_bytes - at >= n && memcmp(p->text + at, word, n) == 0;
}

/* Steps over `n` bytes, counting lines. */
static void skip(parser *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p->line += p->text[p->at + i] == '\n';
    p->at += n;
    p->fault.line = p->line;
    if (n > 0)
        p->line_start = p->text[p->at - 1] == '\n';
}

/* The length of the white space at `at`. */
static size_t space_at(const parser *p, size_t at)
{
    size_t begin = at;

    while (at < p->n_bytes) {
        size_t next = at;
        if (!hl_jis_space(hl_utf8_next(p->text, &next)))
            break;
        at = next;
    }
    return at - begin;
}

/* The length of the text without the white space at its end. */
static size_t without_space(const char *text, size_t n_bytes)
{
    while (n_bytes > 0) {
        size_t at = n_bytes - 1;
        while (at > 0 && hl_utf8_is_continuation(text[at]))
            at--;
        size_t next = at;
        if (!hl_jis_space(hl_utf8_next(text, &next)))
            break;
        n_bytes = at;
    }
    return n_bytes;
}

static bool all_space(const parser *p, size_t at, size_t end)
{
    return end > at && space_at(p, at) >= end - at;
}

static hl_jvalue bytes_value(const char *bytes, size_t n_bytes)
{
    return (hl_jvalue){ .kind = HL_J_STRING, .bytes = bytes, .n_bytes = (uint32_t)n_bytes };
}

/* Adds the text in front of a tag whose sign is '-', '+' or 0. */
static void add_data(parser *p, size_t end, char sign, bool is_output, bool line_start)
{
    const char *text = p->text + p->at;
    size_t      n    = end - p->at;

    if (sign == '-') {
        n = without_space(text, n);
    } else if (sign != '+' && !is_output) {
        size_t line = n;
        while (line > 0 && text[line - 1] != '\n')
            line--;
        if ((line > 0 || line_start) && all_space(p, p->at + line, end))
            n = line;
    }
    if (n > 0)
        add_token(p, TOKEN_DATA, 0, bytes_value(text, n));
    skip(p, end - p->at);
}

/* The sign after the start of a tag at `at`. */
static char sign_at(const parser *p, size_t at)
{
    return at < p->n_bytes && (p->text[at] == '-' || p->text[at] == '+') ? p->text[at] : '\0';
}

/* The length of the end of a block at `at`, with the white space that goes with it; 0: not here. */
static size_t block_end(const parser *p, size_t at, const char *end, bool trims)
{
    size_t n = strlen(end);

    if (starts(p, at, "-") && starts(p, at + 1, end))
        return 1 + n + space_at(p, at + 1 + n);
    if (starts(p, at, "+") && starts(p, at + 1, end))
        return 1 + n;
    if (!starts(p, at, end))
        return 0;
    return n + (trims && starts(p, at + n, "\n"));
}

/* Returns the length of "{% NAME %}" at `at`, or 0. */
static size_t lone_tag(const parser *p, size_t at, const char *name, bool trims)
{
    size_t begin = at;

    if (!starts(p, at, "{%"))
        return 0;
    at += 2 + (sign_at(p, at + 2) != 0);
    at += space_at(p, at);
    if (!starts(p, at, name))
        return 0;
    at += strlen(name);
    at += space_at(p, at);
    if (!trims && starts(p, at, "+"))
        return 0;
    size_t n = block_end(p, at, "%}", trims);
    return n != 0 ? at + n - begin : 0;
}

static void lex_raw(parser *p, size_t n_opening)
{
    skip(p, n_opening);
    bool line_start = p->line_start;
    for (size_t at = p->at; at < p->n_bytes; at++) {
        size_t n = lone_tag(p, at, "endraw", true);
        if (n == 0)
            continue;
        add_data(p, at, sign_at(p, at + 2), false, line_start);
        skip(p, n);
        return;
    }
    SYNTAX(p, "Missing end of raw directive");
}

static void lex_comment(parser *p)
{
    skip(p, 2 + (sign_at(p, p->at + 2) != 0));
    for (size_t at = p->at; at < p->n_bytes; at++) {
        size_t n = block_end(p, at, "#}", true);
        if (n == 0)
            continue;
        skip(p, at + n - p->at);
        return;
    }
    SYNTAX(p, "Missing end of comment tag");
}

/* ----- within tags */

static bool is_digit(char c, int base)
{
    int value = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : 99;
    return value < base;
}

/* Digits with single underscores between them; returns the place after them. */
static size_t digits(const parser *p, size_t at, int base)
{
    while (at < p->n_bytes &&
           (is_digit(p->text[at], base) ||
            (p->text[at] == '_' && at + 1 < p->n_bytes && is_digit(p->text[at + 1], base))))
        at++;
    return at;
}

static size_t plain_number(char *out, size_t room, const char *text, size_t n)
{
    size_t used = 0;

    for (size_t i = 0; i < n && used + 1 < room; i++) {
        if (text[i] != '_')
            out[used++] = text[i];
    }
    out[used] = '\0';
    return used;
}

static void lex_integer(parser *p, size_t end, int base)
{
    char   digits_only[80];
    size_t first = base == 10 ? 0 : 2;

    plain_number(digits_only, sizeof digits_only, p->text + p->at + first, end - p->at - first);
    errno           = 0;
    long long value = strtoll(digits_only, NULL, base);
    if (errno != 0 || end - p->at - first >= sizeof digits_only)
        SYNTAX(p, "an integer of more than 64 bits");
    add_token(p, TOKEN_NUMBER, 0, hl_jint(value));
    skip(p, end - p->at);
}

/* A number: 1, 1_000, 0xff, 1.5, 1e5. */
static void lex_number(parser *p)
{
    size_t begin = p->at, end = digits(p, begin, 10), fraction = end;
    char   text[400];

    if (p->text[begin] == '0' && begin + 1 < p->n_bytes) {
        char   letter = (char)(p->text[begin + 1] | 0x20);
        int    base   = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
        size_t last   = base != 10 ? digits(p, begin + 2, base) : 0;
        if (last > begin + 2) {
            lex_integer(p, last, base);
            return;
        }
    }
    bool after_dot = begin > 0 && p->text[begin - 1] == '.';
    if (starts(p, end, ".") && end + 1 < p->n_bytes && is_digit(p->text[end + 1], 10))
        fraction = digits(p, end + 1, 10);
    if (fraction < p->n_bytes && (p->text[fraction] | 0x20) == 'e') {
        size_t exponent = fraction + 1;
        if (exponent < p->n_bytes && (p->text[exponent] == '+' || p->text[exponent] == '-'))
            exponent++;
        if (exponent < p->n_bytes && is_digit(p->text[exponent], 10))
            fraction = digits(p, exponent, 10);
    }
    if (after_dot || fraction == end) {
        lex_integer(p, end, 10);
        return;
    }
    plain_number(text, sizeof text, p->text + begin, fraction - begin);
    add_token(p, TOKEN_NUMBER, 0, hl_jfloat(strtod(text, NULL)));
    skip(p, fraction - begin);
}

/* Reads n hexadecimal digits of an escape. */
static uint32_t read_hex(parser *p, const char **text, const char *end, int n)
{
    uint32_t value = 0;

    for (int i = 0; i < n; i++, (*text)++) {
        if (*text == end || !is_digit(**text, 16))
            SYNTAX(p, "truncated escape in a string: %d hexadecimal digits are needed", n);
        char c = **text;
        value  = value * 16 + (uint32_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
        SYNTAX(p, "escape in a string: U+%04X is not a character", value);
    return value;
}

/* Writes what the escape after a backslash stands for, and steps over it. */
static size_t read_escape(parser *p, char *out, const char **text, const char *end)
{
    static const char letters[] = "abfnrtv\\'\"";
    static const char values[]  = "\a\b\f\n\r\t\v\\'\"";
    char              c         = *(*text)++;
    const char       *known     = strchr(letters, c);

    if (c == '\n')
        return 0;
    if (c != '\0' && known != NULL) {
        out[0] = values[known - letters];
        return 1;
    }
    if (c == 'x' || c == 'u' || c == 'U')
        return hl_utf8_encode(out, read_hex(p, text, end, c == 'x' ? 2 : c == 'u' ? 4 : 8));
    if (c == 'N')
        SYNTAX(p, "escapes with the name of a character are not supported: \\N{...}");
    if (c >= '0' && c <= '7') {
        uint32_t value = (uint32_t)(c - '0');
        for (int i = 0; i < 2 && *text < end && **text >= '0' && **text <= '7'; i++)
            value = value * 8 + (uint32_t)(*(*text)++ - '0');
        return hl_utf8_encode(out, value);
    }
    out[0] = '\\';
    out[1] = c;
    return 2;
}

static void lex_string(parser *p)
{
    char   quote = p->text[p->at];
    size_t end   = p->at + 1;

    while (end < p->n_bytes && p->text[end] != quote)
        end += p->text[end] == '\\' ? 2 : 1;
    if (end >= p->n_bytes)
        SYNTAX(p, "unexpected char \"%c\" at %zu", quote, p->at);
    const char *text  = p->text + p->at + 1;
    const char *last  = p->text + end;
    char       *value = take(p, 4 * (end - p->at) + 4);
    size_t      n     = 0;
    while (text < last) {
        if (*text != '\\') {
            value[n++] = *text++;
            continue;
        }
        text++;
        /* A backslash before a character that is not ASCII stays; its other bytes follow. */
        n += read_escape(p, value + n, &text, last);
    }
    add_token(p, TOKEN_STRING, 0, bytes_value(value, n));
    skip(p, end + 1 - p->at);
}

/* The length of the name at `at`. */
static size_t name_at(const parser *p, size_t at)
{
    size_t begin = at;

    while (at < p->n_bytes) {
        size_t   next = at;
        uint32_t c    = hl_utf8_next(p->text, &next);
        if (!hl_char_is(HL_CHAR_WORD, c))
            break;
        at = next;
    }
    return at - begin;
}

static void lex_operator(parser *p, char *open, size_t *n_open, size_t room)
{
    static const struct {
        const char *text;
        char        op;
    } doubles[]                  = { { "//", FLOOR },   { "**", POWER },    { "==", EQUAL },
                                     { "!=", UNEQUAL }, { ">=", AT_LEAST }, { "<=", AT_MOST } };
    static const char singles[]  = "+-/*%~[](){}<>=.:|,;";
    static const char openings[] = "([{", closings[] = ")]}";

    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++) {
        if (starts(p, p->at, doubles[i].text)) {
            add_token(p, TOKEN_OPERATOR, doubles[i].op, (hl_jvalue){ 0 });
            skip(p, 2);
            return;
        }
    }
    char c = p->text[p->at];
    if (c == '\0' || strchr(singles, c) == NULL)
        SYNTAX(p, "unexpected char '%.*s' at %zu",
               (int)hl_utf8_length(p->text + p->at, p->n_bytes - p->at), p->text + p->at, p->at);
    if (strchr(openings, c) != NULL) {
        if (*n_open == room)
            SYNTAX(p, "more than %zu brackets within brackets", room);
        open[(*n_open)++] = closings[strchr(openings, c) - openings];
    } else if (strchr(closings, c) != NULL) {
        if (*n_open == 0)
            SYNTAX(p, "unexpected '%c'", c);
        if (open[--*n_open] != c)
            SYNTAX(p, "unexpected '%c', expected '%c'", c, open[*n_open]);
    }
    add_token(p, TOKEN_OPERATOR, c, (hl_jvalue){ 0 });
    skip(p, 1);
}

/* The tokens of a tag, up to its end. */
static void lex_tag(parser *p, bool is_output)
{
    char   open[2 * HL_JINJA_NESTING];
    size_t n_open = 0;

    add_token(p, is_output ? TOKEN_OUTPUT : TOKEN_BLOCK, 0, (hl_jvalue){ 0 });
    skip(p, 2 + (sign_at(p, p->at + 2) != 0));
    while (p->at < p->n_bytes) {
        const char *end    = is_output ? "}}" : "%}";
        size_t      length = n_open == 0 ? block_end(p, p->at, end, !is_output) : 0;
        if (length != 0 && !(is_output && p->text[p->at] == '+')) {
            add_token(p, is_output ? TOKEN_OUTPUT_END : TOKEN_BLOCK_END, 0, (hl_jvalue){ 0 });
            skip(p, length);
            return;
        }
        if ((length = space_at(p, p->at)) != 0) {
            skip(p, length);
        } else if (is_digit(p->text[p->at], 10)) {
            lex_number(p);
        } else if ((length = name_at(p, p->at)) != 0) {
            add_token(p, TOKEN_NAME, 0, bytes_value(p->text + p->at, length));
            skip(p, length);
        } else if (p->text[p->at] == '\'' || p->text[p->at] == '"') {
            lex_string(p);
        } else {
            lex_operator(p, open, &n_open, sizeof open);
        }
    }
}

static void lex(parser *p)
{
    p->line       = 1;
    p->line_start = true;
    while (p->at < p->n_bytes) {
        size_t begin = p->at;
        while (begin < p->n_bytes && !starts(p, begin, "{{") && !starts(p, begin, "{%") &&
               !starts(p, begin, "{#"))
            begin++;
        if (begin == p->n_bytes) {
            add_token(p, TOKEN_DATA, 0, bytes_value(p->text + p->at, begin - p->at));
            skip(p, begin - p->at);
            break;
        }
        bool   is_output = p->text[begin + 1] == '{';
        size_t raw       = lone_tag(p, begin, "raw", false);
        add_data(p, begin, sign_at(p, begin + 2), is_output, p->line_start);
        if (raw != 0)
            lex_raw(p, raw);
        else if (p->text[begin + 1] == '#')
            lex_comment(p);
        else
            lex_tag(p, is_output);
    }
    add_token(p, TOKEN_END, 0, (hl_jvalue){ 0 });
}

/* --------------------------------------------------------------------------- the parser */

static hl_jnode *parse_expression(parser *p);
static hl_jnode *parse_or(parser *p);
static hl_jnode *parse_unary(parser *p, bool with_filters);
static hl_jnode *parse_primary(parser *p);

static hl_jnode *new_node(parser *p, hl_jnode_kind kind)
{
    hl_jnode *node = take(p, sizeof *node);

    node->kind = (uint8_t)kind;
    node->line = p->now->line;
    return node;
}

static hl_jnode *new_pair(parser *p, hl_jnode_kind kind, hl_jnode *a, hl_jnode *b, int line)
{
    hl_jnode *node = new_node(p, kind);

    node->a    = a;
    node->b    = b;
    node->line = line;
    return node;
}

static void add_node(parser *p, hl_jnodes *list, hl_jnode *node)
{
    list->items            = grow(p, list->items, list->n, &list->capacity, sizeof *list->items);
    list->items[list->n++] = node;
}

static void step_on(parser *p)
{
    if (p->now->kind != TOKEN_END)
        p->now++;
    p->fault.line = p->now->line;
}

static bool is_op(const parser *p, char op)
{
    return p->now->kind == TOKEN_OPERATOR && p->now->op == op;
}

static bool is_name(const parser *p, const char *name)
{
    return p->now->kind == TOKEN_NAME && hl_jis(p->now->value, name);
}

static bool take_op(parser *p, char op)
{
    if (!is_op(p, op))
        return false;
    step_on(p);
    return true;
}

static bool take_name(parser *p, const char *name)
{
    if (!is_name(p, name))
        return false;
    step_on(p);
    return true;
}

/* A token, as messages describe it. */
static const char *describe(parser *p, const token *now)
{
    static const char *const kinds[] = { [TOKEN_DATA]       = "template data / text",
                                         [TOKEN_OUTPUT]     = "begin of print statement",
                                         [TOKEN_OUTPUT_END] = "end of print statement",
                                         [TOKEN_BLOCK]      = "begin of statement block",
                                         [TOKEN_BLOCK_END]  = "end of statement block",
                                         [TOKEN_NUMBER]     = "number",
                                         [TOKEN_STRING]     = "string",
                                         [TOKEN_END]        = "end of template" };
    char                    *text    = take(p, 64);

    if (now->kind == TOKEN_NAME || now->kind == TOKEN_STRING) {
        size_t n = now->value.n_bytes < 60 ? now->value.n_bytes : 60;
        memcpy(text, now->value.bytes, n);
        return text;
    }
    if (now->kind != TOKEN_OPERATOR)
        return kinds[now->kind];
    text[0] = now->op;
    return now->op == POWER      ? "**"
           : now->op == FLOOR    ? "//"
           : now->op == EQUAL    ? "=="
           : now->op == UNEQUAL  ? "!="
           : now->op == AT_LEAST ? ">="
           : now->op == AT_MOST  ? "<="
                                 : text;
}

static void expect_op(parser *p, char op)
{
    if (!take_op(p, op))
        SYNTAX(p, "expected token '%c', got '%s'", op, describe(p, p->now));
}

static void expect_name(parser *p, const char *name)
{
    if (!take_name(p, name))
        SYNTAX(p, "expected token '%s', got '%s'", name, describe(p, p->now));
}

static hl_jvalue any_name(parser *p)
{
    hl_jvalue name = p->now->value;

    if (p->now->kind != TOKEN_NAME)
        SYNTAX(p, "expected token 'name', got '%s'", describe(p, p->now));
    step_on(p);
    return name;
}

static void expect_block_end(parser *p)
{
    if (p->now->kind != TOKEN_BLOCK_END)
        SYNTAX(p, "expected token 'end of statement block', got '%s'", describe(p, p->now));
    step_on(p);
}

static void deeper(parser *p)
{
    if (++p->depth > HL_JINJA_NESTING)
        SYNTAX(p, "more than %d expressions or blocks within each other", HL_JINJA_NESTING);
}

/* Names that a macro gets only if it uses them. */
static void note_name(parser *p, hl_jvalue name)
{
    for (int i = 0; i < p->n_macros; i++) {
        p->macros[i]->uses_caller |= hl_jis(name, "caller");
        p->macros[i]->uses_kwargs |= hl_jis(name, "kwargs");
        p->macros[i]->uses_varargs |= hl_jis(name, "varargs");
    }
}

static hl_jnode *new_name(parser *p, hl_jvalue name)
{
    hl_jnode *node = new_node(p, HL_JN_NAME);

    node->value = name;
    return node;
}

static bool is_tuple_end(const parser *p, const char *end_name)
{
    return p->now->kind == TOKEN_OUTPUT_END || p->now->kind == TOKEN_BLOCK_END || is_op(p, ')') ||
           (end_name != NULL && is_name(p, end_name));
}

/* Expressions with commas between them are a tuple; one without a comma is itself. */
static hl_jnode *parse_tuple(parser *p, hl_jnode *(*parse)(parser *), const char *end_name,
                             bool in_parentheses)
{
    hl_jnode *tuple    = new_node(p, HL_JN_TUPLE);
    bool      is_tuple = false;

    while (!is_tuple_end(p, end_name)) {
        add_node(p, &tuple->items, parse(p));
        if (!is_op(p, ','))
            break;
        is_tuple = true;
        step_on(p);
    }
    if (!is_tuple && tuple->items.n == 1)
        return tuple->items.items[0];
    if (!is_tuple && !in_parentheses)
        SYNTAX(p, "Expected an expression, got '%s'", describe(p, p->now));
    return tuple;
}

/* The arguments of a call, from its parenthesis. */
static hl_jcall_args *parse_arguments(parser *p)
{
    hl_jcall_args *args  = take(p, sizeof *args);
    bool           first = true;

    expect_op(p, '(');
    while (!is_op(p, ')')) {
        if (!first) {
            expect_op(p, ',');
            if (is_op(p, ')'))
                break;
        }
        first      = false;
        bool valid = args->star_star == NULL;
        if (take_op(p, '*')) {
            valid      = valid && args->star == NULL;
            args->star = parse_expression(p);
        } else if (take_op(p, POWER)) {
            args->star_star = parse_expression(p);
        } else if (p->now->kind == TOKEN_NAME && p->now[1].kind == TOKEN_OPERATOR &&
                   p->now[1].op == '=') {
            hl_jnode *name = new_node(p, HL_JN_CONSTANT);
            name->value    = any_name(p);
            step_on(p);
            add_node(p, &args->names, name);
            add_node(p, &args->values, parse_expression(p));
        } else {
            valid = valid && args->star == NULL && args->names.n == 0;
            add_node(p, &args->items, parse_expression(p));
        }
        if (!valid)
            SYNTAX(p, "invalid syntax for function call expression");
    }
    expect_op(p, ')');
    return args;
}

static hl_jnode *parse_list(parser *p)
{
    hl_jnode *list = new_node(p, HL_JN_LIST);

    expect_op(p, '[');
    while (!is_op(p, ']')) {
        if (list->items.n > 0)
            expect_op(p, ',');
        if (is_op(p, ']'))
            break;
        add_node(p, &list->items, parse_expression(p));
    }
    expect_op(p, ']');
    return list;
}

static hl_jnode *parse_dict(parser *p)
{
    hl_jnode *dict = new_node(p, HL_JN_DICT);

    expect_op(p, '{');
    while (!is_op(p, '}')) {
        if (dict->items.n > 0)
            expect_op(p, ',');
        if (is_op(p, '}'))
            break;
        add_node(p, &dict->items, parse_expression(p));
        expect_op(p, ':');
        add_node(p, &dict->items, parse_expression(p));
    }
    expect_op(p, '}');
    return dict;
}

static hl_jnode *parse_word(parser *p)
{
    static const struct {
        const char *lower, *upper;
    } words[]      = { { "none", "None" }, { "false", "False" }, { "true", "True" } };
    hl_jnode *node = new_name(p, p->now->value);

    for (int i = 0; i < 3; i++) {
        if (!is_name(p, words[i].lower) && !is_name(p, words[i].upper))
            continue;
        node->kind  = HL_JN_CONSTANT;
        node->value = i == 0 ? hl_jnone() : hl_jbool(i == 2);
    }
    if (node->kind == HL_JN_NAME)
        note_name(p, node->value);
    step_on(p);
    return node;
}

/* Strings next to each other are one. */
static hl_jnode *parse_strings(parser *p)
{
    hl_jnode *node = new_node(p, HL_JN_CONSTANT);

    node->value = p->now->value;
    for (step_on(p); p->now->kind == TOKEN_STRING; step_on(p)) {
        size_t n     = node->value.n_bytes;
        char  *joint = take(p, n + p->now->value.n_bytes + 1);
        memcpy(joint, node->value.bytes, n);
        memcpy(joint + n, p->now->value.bytes, p->now->value.n_bytes);
        node->value = bytes_value(joint, n + p->now->value.n_bytes);
    }
    return node;
}

static hl_jnode *parse_primary(parser *p)
{
    hl_jnode *node = NULL;

    switch (p->now->kind) {
    case TOKEN_NAME:
        return parse_word(p);
    case TOKEN_STRING:
        return parse_strings(p);
    case TOKEN_NUMBER:
        node        = new_node(p, HL_JN_CONSTANT);
        node->value = p->now->value;
        step_on(p);
        return node;
    default:
        break;
    }
    deeper(p);
    if (take_op(p, '(')) {
        node = parse_tuple(p, parse_expression, NULL, true);
        expect_op(p, ')');
    } else if (is_op(p, '[')) {
        node = parse_list(p);
    } else if (is_op(p, '{')) {
        node = parse_dict(p);
    } else {
        SYNTAX(p, "unexpected '%s'", describe(p, p->now));
    }
    p->depth--;
    return node;
}

/* What stands in brackets: an index, or a slice. */
static hl_jnode *parse_subscribed(parser *p)
{
    hl_jnode *slice = new_node(p, HL_JN_SLICE);

    if (!is_op(p, ':')) {
        slice->a = parse_expression(p);
        if (!is_op(p, ':'))
            return slice->a;
    }
    expect_op(p, ':');
    if (!is_op(p, ':') && !is_op(p, ']') && !is_op(p, ','))
        slice->b = parse_expression(p);
    if (take_op(p, ':') && !is_op(p, ']') && !is_op(p, ','))
        slice->c = parse_expression(p);
    return slice;
}

static hl_jnode *parse_brackets(parser *p, hl_jnode *object)
{
    hl_jnode *node  = new_pair(p, HL_JN_ITEM, object, NULL, p->now->line);
    hl_jnode *tuple = new_node(p, HL_JN_TUPLE);

    expect_op(p, '[');
    while (!is_op(p, ']')) {
        if (tuple->items.n > 0)
            expect_op(p, ',');
        add_node(p, &tuple->items, parse_subscribed(p));
    }
    expect_op(p, ']');
    node->b = tuple->items.n == 1 ? tuple->items.items[0] : tuple;
    return node;
}

static hl_jnode *parse_call(parser *p, hl_jnode *callee)
{
    hl_jnode *node = new_pair(p, HL_JN_CALL, callee, NULL, p->now->line);

    node->args = parse_arguments(p);
    return node;
}

static hl_jnode *parse_dot(parser *p, hl_jnode *object)
{
    hl_jnode *node = new_pair(p, HL_JN_ATTRIBUTE, object, NULL, p->now->line);

    expect_op(p, '.');
    if (p->now->kind == TOKEN_NAME) {
        node->text = any_name(p);
    } else if (p->now->kind == TOKEN_NUMBER && p->now->value.kind == HL_J_INT) {
        node->kind = HL_JN_ITEM;
        node->b    = parse_primary(p);
    } else {
        SYNTAX(p, "expected name or number");
    }
    return node;
}

/* The number of postfixes counts as nesting, as evaluating them nests. */
static hl_jnode *parse_postfix(parser *p, hl_jnode *node)
{
    int depth = p->depth;

    for (;; deeper(p)) {
        if (is_op(p, '.'))
            node = parse_dot(p, node);
        else if (is_op(p, '['))
            node = parse_brackets(p, node);
        else if (is_op(p, '('))
            node = parse_call(p, node);
        else
            break;
    }
    p->depth = depth;
    return node;
}

/* A name with dots, as filters and tests may have. */
static hl_jvalue dotted_name(parser *p)
{
    hl_jvalue name = any_name(p);

    while (take_op(p, '.')) {
        hl_jvalue more  = any_name(p);
        char     *joint = take(p, name.n_bytes + more.n_bytes + 2);
        memcpy(joint, name.bytes, name.n_bytes);
        joint[name.n_bytes] = '.';
        memcpy(joint + name.n_bytes + 1, more.bytes, more.n_bytes);
        name = bytes_value(joint, (size_t)name.n_bytes + 1 + more.n_bytes);
    }
    return name;
}

/* The filter after a bar, or at the start of a filter block. */
static hl_jnode *parse_filter(parser *p, hl_jnode *value)
{
    hl_jnode *node = new_pair(p, HL_JN_FILTER, value, NULL, p->now->line);

    node->text  = dotted_name(p);
    node->entry = hl_jentry_find(hl_jfilters, (hl_bytes){ node->text.bytes, node->text.n_bytes });
    if (is_op(p, '('))
        node->args = parse_arguments(p);
    return node;
}

static hl_jnode *parse_filters(parser *p, hl_jnode *value)
{
    int depth = p->depth;

    for (; take_op(p, '|'); deeper(p))
        value = parse_filter(p, value);
    p->depth = depth;
    return value;
}

static hl_jnode *parse_test(parser *p, hl_jnode *value)
{
    hl_jnode *node    = new_pair(p, HL_JN_TEST, value, NULL, p->now->line);
    bool      negated = false;

    expect_name(p, "is");
    negated     = take_name(p, "not");
    node->text  = dotted_name(p);
    node->entry = hl_jentry_find(hl_jtests, (hl_bytes){ node->text.bytes, node->text.n_bytes });
    bool word   = p->now->kind == TOKEN_NAME && !is_name(p, "else") && !is_name(p, "or") &&
                !is_name(p, "and");
    if (is_op(p, '(')) {
        node->args = parse_arguments(p);
    } else if (word || p->now->kind == TOKEN_STRING || p->now->kind == TOKEN_NUMBER ||
               is_op(p, '[') || is_op(p, '{')) {
        if (is_name(p, "is"))
            SYNTAX(p, "You cannot chain multiple tests with is");
        node->args = take(p, sizeof *node->args);
        add_node(p, &node->args->items, parse_postfix(p, parse_primary(p)));
    }
    return negated ? new_pair(p, HL_JN_NOT, node, NULL, node->line) : node;
}

static hl_jnode *parse_filter_expression(parser *p, hl_jnode *node)
{
    int depth = p->depth;

    for (;; deeper(p)) {
        if (take_op(p, '|'))
            node = parse_filter(p, node);
        else if (is_name(p, "is"))
            node = parse_test(p, node);
        else if (is_op(p, '('))
            node = parse_call(p, node);
        else
            break;
    }
    p->depth = depth;
    return node;
}

static hl_jnode *parse_unary(parser *p, bool with_filters)
{
    hl_jnode *node = NULL;
    int       line = p->now->line;

    if (is_op(p, '-') || is_op(p, '+')) {
        hl_jnode_kind kind = is_op(p, '-') ? HL_JN_NEGATIVE : HL_JN_POSITIVE;
        deeper(p);
        step_on(p);
        node = new_pair(p, kind, parse_unary(p, false), NULL, line);
        p->depth--;
    } else {
        node = parse_primary(p);
    }
    node = parse_postfix(p, node);
    return with_filters ? parse_filter_expression(p, node) : node;
}

static hl_jnode *binary(parser *p, char op, hl_jnode *a, hl_jnode *b, int line)
{
    hl_jnode *node = new_pair(p, HL_JN_BINARY, a, b, line);

    node->op = op;
    return node;
}

/* Operators of one precedence, from the left; each nests the left side one deeper. */
static hl_jnode *parse_power(parser *p)
{
    hl_jnode *node  = parse_unary(p, true);
    int       depth = p->depth;

    for (; is_op(p, POWER); deeper(p)) {
        int line = p->now->line;
        step_on(p);
        node = binary(p, POWER, node, parse_unary(p, true), line);
    }
    p->depth = depth;
    return node;
}

static hl_jnode *parse_product(parser *p)
{
    hl_jnode *node  = parse_power(p);
    int       depth = p->depth;

    for (; is_op(p, '*') || is_op(p, '/') || is_op(p, FLOOR) || is_op(p, '%'); deeper(p)) {
        char op   = p->now->op;
        int  line = p->now->line;
        step_on(p);
        node = binary(p, op, node, parse_power(p), line);
    }
    p->depth = depth;
    return node;
}

static hl_jnode *parse_concat(parser *p)
{
    hl_jnode *first = parse_product(p);

    if (!is_op(p, '~'))
        return first;
    hl_jnode *node = new_node(p, HL_JN_CONCAT);
    add_node(p, &node->items, first);
    while (take_op(p, '~'))
        add_node(p, &node->items, parse_product(p));
    return node;
}

static hl_jnode *parse_sum(parser *p)
{
    hl_jnode *node  = parse_concat(p);
    int       depth = p->depth;

    for (; is_op(p, '+') || is_op(p, '-'); deeper(p)) {
        char op   = p->now->op;
        int  line = p->now->line;
        step_on(p);
        node = binary(p, op, node, parse_concat(p), line);
    }
    p->depth = depth;
    return node;
}

/* The sign of a comparison at this place, or 0; steps over it.  'i' is in, 'o' is not in. */
static char take_comparison(parser *p)
{
    static const char signs[] = { EQUAL, UNEQUAL, '<', '>', AT_LEAST, AT_MOST };

    for (size_t i = 0; i < sizeof signs; i++) {
        if (take_op(p, signs[i]))
            return signs[i];
    }
    if (take_name(p, "in"))
        return 'i';
    if (is_name(p, "not") && p->now[1].kind == TOKEN_NAME && hl_jis(p->now[1].value, "in")) {
        step_on(p);
        step_on(p);
        return 'o';
    }
    return '\0';
}

static hl_jnode *parse_comparison(parser *p)
{
    hl_jnode *first = parse_sum(p);
    hl_jnode *node  = NULL;
    char      signs[64], sign;
    size_t    n = 0;

    while ((sign = take_comparison(p)) != '\0') {
        if (node == NULL) {
            node = new_node(p, HL_JN_COMPARE);
            add_node(p, &node->items, first);
        }
        if (n >= sizeof signs)
            SYNTAX(p, "more than %zu comparisons in a row", n);
        signs[n++] = sign;
        add_node(p, &node->items, parse_sum(p));
    }
    if (node == NULL)
        return first;
    char *copy = take(p, n);
    memcpy(copy, signs, n);
    node->signs = copy;
    return node;
}

static hl_jnode *parse_not(parser *p)
{
    int line = p->now->line;

    if (!is_name(p, "not"))
        return parse_comparison(p);
    deeper(p);
    step_on(p);
    hl_jnode *node = new_pair(p, HL_JN_NOT, parse_not(p), NULL, line);
    p->depth--;
    return node;
}

static hl_jnode *parse_and(parser *p)
{
    hl_jnode *node  = parse_not(p);
    int       depth = p->depth;

    for (; is_name(p, "and"); deeper(p)) {
        int line = p->now->line;
        step_on(p);
        node = new_pair(p, HL_JN_AND, node, parse_not(p), line);
    }
    p->depth = depth;
    return node;
}

static hl_jnode *parse_or(parser *p)
{
    hl_jnode *node  = parse_and(p);
    int       depth = p->depth;

    for (; is_name(p, "or"); deeper(p)) {
        int line = p->now->line;
        step_on(p);
        node = new_pair(p, HL_JN_OR, node, parse_and(p), line);
    }
    p->depth = depth;
    return node;
}

static hl_jnode *parse_expression(parser *p)
{
    deeper(p);
    hl_jnode *value = parse_or(p);
    int       depth = p->depth;

    for (; is_name(p, "if"); deeper(p)) {
        int line = p->now->line;
        step_on(p);
        hl_jnode *node = new_pair(p, HL_JN_IF_ELSE, value, parse_or(p), line);
        if (take_name(p, "else"))
            node->c = parse_expression(p);
        value = node;
    }
    p->depth = depth - 1;
    return value;
}

/* ------------------------------------------------------------------------ statements */

/* Reads statements up to a tag with one of these names, which is the current token then. */
static void parse_body(parser *p, hl_jnodes *out, const char *const ends[]);

static void check_target(parser *p, const hl_jnode *target)
{
    if (target->kind == HL_JN_TUPLE) {
        for (size_t i = 0; i < target->items.n; i++)
            check_target(p, target->items.items[i]);
    } else if (target->kind != HL_JN_NAME && target->kind != HL_JN_NAMESPACE) {
        SYNTAX(p, "can't assign to '%s'",
               target->kind == HL_JN_CONSTANT ? "const"
               : target->kind == HL_JN_DICT   ? "dict"
               : target->kind == HL_JN_LIST   ? "list"
                                              : "expression");
    }
}

/* A name or namespace.attribute, or a tuple of them. */
static hl_jnode *parse_target_item(parser *p)
{
    if (p->now->kind == TOKEN_NAME && p->now[1].kind == TOKEN_OPERATOR && p->now[1].op == '.') {
        hl_jnode *node = new_node(p, HL_JN_NAMESPACE);
        node->value    = any_name(p);
        note_name(p, node->value);
        step_on(p);
        node->text = any_name(p);
        return node;
    }
    return parse_primary(p);
}

static hl_jnode *parse_target(parser *p, hl_jnode *(*item)(parser *), const char *end_name)
{
    hl_jnode *target = parse_tuple(p, item, end_name, false);

    check_target(p, target);
    return target;
}

static void parse_if(parser *p, hl_jnode *node)
{
    static const char *const ends[] = { "elif", "else", "endif", NULL };
    static const char *const last[] = { "endif", NULL };

    node->a = parse_tuple(p, parse_or, NULL, false);
    parse_body(p, &node->items, ends);
    if (take_name(p, "elif")) {
        hl_jnode *other = new_node(p, HL_JN_IF);
        add_node(p, &node->more, other);
        deeper(p);
        parse_if(p, other);
        p->depth--;
        return;
    }
    if (take_name(p, "else"))
        parse_body(p, &node->more, last);
    expect_name(p, "endif");
}

static void parse_for(parser *p, hl_jnode *node)
{
    static const char *const ends[] = { "endfor", "else", NULL };
    static const char *const last[] = { "endfor", NULL };

    node->a = parse_target(p, parse_primary, "in");
    expect_name(p, "in");
    node->b = parse_tuple(p, parse_or, "recursive", false);
    if (take_name(p, "if"))
        node->c = parse_expression(p);
    node->recursive = take_name(p, "recursive");
    p->loops++;
    parse_body(p, &node->items, ends);
    p->loops--;
    if (take_name(p, "else"))
        parse_body(p, &node->more, last);
    expect_name(p, "endfor");
}

static void parse_set(parser *p, hl_jnode *node)
{
    static const char *const ends[] = { "endset", NULL };

    node->a = parse_target(p, parse_target_item, NULL);
    if (take_op(p, '=')) {
        node->b = parse_tuple(p, parse_expression, NULL, false);
        return;
    }
    node->kind = HL_JN_SET_BLOCK;
    node->b    = parse_filters(p, NULL);
    parse_body(p, &node->items, ends);
    expect_name(p, "endset");
}

/* (a, b=1, c=2) */
static void parse_signature(parser *p, hl_jmacro *macro)
{
    expect_op(p, '(');
    while (!is_op(p, ')')) {
        if (macro->parameters.n > 0)
            expect_op(p, ',');
        add_node(p, &macro->parameters, new_name(p, any_name(p)));
        if (take_op(p, '='))
            add_node(p, &macro->defaults, parse_expression(p));
        else if (macro->defaults.n > 0)
            SYNTAX(p, "non-default argument follows default argument");
    }
    expect_op(p, ')');
}

/* The body of something that is called: break and continue do not reach out of it. */
static void parse_function(parser *p, hl_jmacro *macro, const char *end)
{
    const char *const ends[] = { end, NULL };
    int               loops  = p->loops;

    p->loops = 0;
    parse_body(p, &macro->body, ends);
    p->loops = loops;
    expect_name(p, end);
}

static void open_macro(parser *p, hl_jmacro *macro)
{
    if (p->n_macros == (int)(sizeof p->macros / sizeof *p->macros))
        SYNTAX(p, "more than %d macros within each other", p->n_macros);
    p->macros[p->n_macros++] = macro;
}

static void parse_macro(parser *p, hl_jnode *node)
{
    node->macro       = take(p, sizeof *node->macro);
    node->macro->name = any_name(p);
    open_macro(p, node->macro);
    parse_signature(p, node->macro);
    parse_function(p, node->macro, "endmacro");
    p->n_macros--;
}

static void parse_call_block(parser *p, hl_jnode *node)
{
    node->macro = take(p, sizeof *node->macro);
    if (is_op(p, '('))
        parse_signature(p, node->macro);
    node->a = parse_expression(p);
    if (node->a->kind != HL_JN_CALL)
        SYNTAX(p, "expected call");
    open_macro(p, node->macro);
    parse_function(p, node->macro, "endcall");
    p->n_macros--;
}

static void parse_filter_block(parser *p, hl_jnode *node)
{
    static const char *const ends[] = { "endfilter", NULL };

    node->b = parse_filters(p, parse_filter(p, NULL));
    parse_body(p, &node->items, ends);
    expect_name(p, "endfilter");
}

static void parse_with(parser *p, hl_jnode *node)
{
    static const char *const ends[] = { "endwith", NULL };

    while (p->now->kind != TOKEN_BLOCK_END) {
        if (node->more.n > 0)
            expect_op(p, ',');
        hl_jnode *target = parse_primary(p);
        check_target(p, target);
        add_node(p, &node->more, target);
        expect_op(p, '=');
        add_node(p, &node->more, parse_expression(p));
    }
    parse_body(p, &node->items, ends);
    expect_name(p, "endwith");
}

static void parse_block(parser *p, hl_jnode *node)
{
    static const char *const ends[] = { "endblock", NULL };

    node->value = any_name(p);
    while (take_name(p, "scoped") || take_name(p, "required"))
        ;
    parse_body(p, &node->items, ends);
    expect_name(p, "endblock");
    if (p->now->kind == TOKEN_NAME)
        step_on(p);
}

static void parse_generation(parser *p, hl_jnode *node)
{
    node->macro = take(p, sizeof *node->macro);
    parse_function(p, node->macro, "endgeneration");
}

static void parse_print(parser *p, hl_jnode *node)
{
    while (p->now->kind != TOKEN_BLOCK_END) {
        if (node->items.n > 0)
            expect_op(p, ',');
        add_node(p, &node->items, parse_expression(p));
    }
}

static void parse_loop_control(parser *p, hl_jnode *node)
{
    if (p->loops == 0)
        SYNTAX(p, "'%s' outside loop", node->kind == HL_JN_BREAK ? "break" : "continue");
}

/* Other templates: nothing can be loaded, which is an error when it is tried. */
static void parse_loads(parser *p, hl_jnode *node)
{
    (void)node;
    while (p->now->kind != TOKEN_BLOCK_END && p->now->kind != TOKEN_END)
        step_on(p);
}

static void parse_refused(parser *p, hl_jnode *node)
{
    (void)node;
    SYNTAX(p, "'autoescape' is not supported in chat templates");
}

static const struct {
    const char   *name;
    hl_jnode_kind kind;
    void (*parse)(parser *p, hl_jnode *node);
} statements[] = {
    { "if", HL_JN_IF, parse_if },
    { "for", HL_JN_FOR, parse_for },
    { "set", HL_JN_SET, parse_set },
    { "macro", HL_JN_MACRO, parse_macro },
    { "call", HL_JN_CALL_BLOCK, parse_call_block },
    { "filter", HL_JN_FILTER_BLOCK, parse_filter_block },
    { "with", HL_JN_WITH, parse_with },
    { "block", HL_JN_BLOCK, parse_block },
    { "generation", HL_JN_GENERATION, parse_generation },
    { "print", HL_JN_OUTPUT, parse_print },
    { "break", HL_JN_BREAK, parse_loop_control },
    { "continue", HL_JN_CONTINUE, parse_loop_control },
    { "include", HL_JN_LOADS, parse_loads },
    { "import", HL_JN_LOADS, parse_loads },
    { "from", HL_JN_LOADS, parse_loads },
    { "extends", HL_JN_LOADS, parse_loads },
    { "autoescape", HL_JN_LOADS, parse_refused },
};

static hl_jnode *parse_statement(parser *p)
{
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (!is_name(p, statements[i].name))
            continue;
        hl_jnode *node = new_node(p, statements[i].kind);
        deeper(p);
        step_on(p);
        statements[i].parse(p, node);
        p->depth--;
        return node;
    }
    if (p->now->kind != TOKEN_NAME)
        SYNTAX(p, "tag name expected");
    SYNTAX(p, "Encountered unknown tag '%s'.", describe(p, p->now));
}

static hl_jnode *parse_output(parser *p)
{
    hl_jnode *node = new_node(p, HL_JN_OUTPUT);

    step_on(p);
    add_node(p, &node->items, parse_tuple(p, parse_expression, NULL, false));
    if (p->now->kind != TOKEN_OUTPUT_END)
        SYNTAX(p, "expected token 'end of print statement', got '%s'", describe(p, p->now));
    step_on(p);
    return node;
}

/* Statements up to a tag of one of these names (NULL: up to the end), whose name is current then. */
static void parse_until(parser *p, hl_jnodes *out, const char *const ends[])
{
    while (p->now->kind != TOKEN_END) {
        if (p->now->kind == TOKEN_DATA) {
            hl_jnode *node = new_node(p, HL_JN_DATA);
            node->value    = p->now->value;
            add_node(p, out, node);
            step_on(p);
            continue;
        }
        if (p->now->kind == TOKEN_OUTPUT) {
            add_node(p, out, parse_output(p));
            continue;
        }
        step_on(p); /* a block begins */
        for (int i = 0; ends != NULL && ends[i] != NULL; i++) {
            if (is_name(p, ends[i]))
                return;
        }
        add_node(p, out, parse_statement(p));
        expect_block_end(p);
    }
    if (ends != NULL)
        SYNTAX(p, "Unexpected end of template. Jinja was looking for the following tags: '%s'.",
               ends[0]);
}

static void parse_body(parser *p, hl_jnodes *out, const char *const ends[])
{
    take_op(p, ':');
    expect_block_end(p);
    parse_until(p, out, ends);
}

/* ------------------------------------------------------- filters and tests that exist */

static void check_nodes(parser *p, const hl_jnodes *nodes, bool soft);

/* Fails for an unknown filter or test, unless it stands within an `if`. */
static void check_node(parser *p, const hl_jnode *node, bool soft)
{
    if (node == NULL)
        return;
    if ((node->kind == HL_JN_FILTER || node->kind == HL_JN_TEST) && node->entry == NULL && !soft) {
        p->fault.line = node->line;
        hl_jfault_raise(&p->fault, "TemplateAssertionError", "No %s named '%.*s'.",
                        node->kind == HL_JN_FILTER ? "filter" : "test", (int)node->text.n_bytes,
                        node->text.bytes);
    }
    bool within = soft || node->kind == HL_JN_IF || node->kind == HL_JN_IF_ELSE;
    bool block  = node->kind == HL_JN_FILTER_BLOCK || node->kind == HL_JN_SET_BLOCK;
    check_node(p, node->a, within);
    check_node(p, node->b, within && !block);
    check_node(p, node->c, within && node->kind != HL_JN_FOR);
    bool scope =
        node->kind == HL_JN_FOR || node->kind == HL_JN_WITH || block || node->kind == HL_JN_BLOCK;
    check_nodes(p, &node->items, within && !scope);
    check_nodes(p, &node->more, within && node->kind != HL_JN_FOR);
    if (node->args != NULL) {
        check_nodes(p, &node->args->items, within);
        check_nodes(p, &node->args->values, within);
        check_node(p, node->args->star, within);
        check_node(p, node->args->star_star, within);
    }
    if (node->macro != NULL) {
        check_nodes(p, &node->macro->defaults, false);
        check_nodes(p, &node->macro->body, false);
    }
}

static void check_nodes(parser *p, const hl_jnodes *nodes, bool soft)
{
    for (size_t i = 0; i < nodes->n; i++)
        check_node(p, nodes->items[i], soft);
}

/* ------------------------------------------------------------------------------- opening */

/* Line ends of all kinds become \n, and one at the end of the text is dropped. */
static void normalize_lines(parser *p, const char *text, size_t n_bytes)
{
    char  *lines = take(p, n_bytes + 1);
    size_t n     = 0;

    for (size_t i = 0; i < n_bytes; i++) {
        if (text[i] == '\r' && i + 1 < n_bytes && text[i + 1] == '\n')
            continue;
        lines[n++] = text[i] == '\r' ? '\n' : text[i];
    }
    if (n > 0 && lines[n - 1] == '\n')
        n--;
    p->text    = lines;
    p->n_bytes = n;
}

/* The part that may end with a longjmp. */
static hl_status parse(parser *p, hl_jinja *template, const char *text, size_t n_bytes)
{
    if (setjmp(p->fault.back) != 0)
        return hl_jfault_report(&p->fault);
    p->arena = &template->arena;
    normalize_lines(p, text, n_bytes);
    lex(p);
    p->now        = p->tokens;
    p->fault.line = p->now->line;
    parse_until(p, &template->body, NULL);
    check_nodes(p, &template->body, false);
    return HL_OK;
}

hl_status hl_jinja_parse(hl_jinja **out, const char *text, size_t n_bytes, const char *where)
{
    HL_CLOSED(hl_jinja_free) hl_jinja *template = NULL;
    HL_FREED parser *p                          = NULL;

    *out       = NULL;
    size_t bad = hl_utf8_find_bad(text, n_bytes);
    if (bad < n_bytes)
        return hl_fail(HL_BAD_INPUT, "%s: byte %zu is not valid UTF-8", where, bad);
    HL_NEED(HL_ALLOC_ZEROED(&template, 1));
    HL_NEED(HL_ALLOC_ZEROED(&p, 1));
    HL_NEED(hl_strdup(&template->where, where));
    p->fault.where       = template->where;
    p->fault.most_memory = ((size_t)16 << 20) + 1024 * n_bytes;
    hl_status status     = parse(p, template, text, n_bytes);
    hl_free(p->fault.text);
    HL_NEED(status);
    *out = hl_taken(&template);
    return HL_OK;
}

void hl_jinja_free(hl_jinja *template)
{
    if (template == NULL)
        return;
    hl_free(template->where);
    hl_jarena_free(&template->arena);
    hl_free(template);
}
