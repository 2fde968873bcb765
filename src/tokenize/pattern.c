/* pattern.c - PCRE2 made to agree with Oniguruma.
 *
 * What is rewritten before compiling, outside and inside of brackets:
 *
 *     \s \S   PCRE2's also match U+180E, which is no longer white space
 *     \w \W   Oniguruma counts marks as parts of words, PCRE2 does not
 *     \h \H   hexadecimal digits there, horizontal space here
 *
 * Inside brackets \W and \H stay as they are: a class cannot hold a complement,
 * and no known tokenizer asks for one.  Class intersection ([a&&b]) is refused.
 *
 * Limits.  PCRE2 counts steps from each place where a match may begin, and does not say how many
 * they were; and one step may look at the whole text.  So a search is cut into tries that are
 * short, with the budget asked in between (budget.h):
 *
 *     places   a try looks for matches that begin within a window of bytes; behind the first
 *              window comes one twice as long, up to LAST_WINDOW
 *     steps    a try has FIRST_LIMIT steps a place, which nearly every match of a real tokenizer
 *              stays below; where that is not enough it is made again with twice as many, unless
 *              it would take longer than the budget has time left, as steps that look further
 *              each time take four times as long
 *
 * HEAP_LIMIT bounds the memory of a match.  \G, which asks where a try began, is refused. */
#include "tokenize/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <string.h>

#include "base/buffer.h"
#include "base/status.h"
#include "base/utf8.h"

#define MAX_PATTERN_BYTES 65536
#define FIRST_LIMIT       256U
#define LAST_LIMIT        0x40000000U /* limit of a search without a budget: MATCH_LIMIT */
#define MATCH_LIMIT       2000000U
#define FIRST_WINDOW      64
#define LAST_WINDOW       1024
#define STEPS_OF_A_TRY    256 /* smallest number of steps charged to the budget per try */
#define GROWTH            4.0 /* assumed growth of the time when the steps are doubled */
#define DEPTH_LIMIT       100000
#define HEAP_LIMIT_KIB    65536
#define JIT_STACK_MIN     32768
#define JIT_STACK_MAX     (1 << 20)

struct hl_pattern {
    pcre2_code *code;
    char       *text; /* the expression as it was written */
    bool        jit;
};

struct hl_matcher {
    pcre2_match_data    *data;
    pcre2_match_context *context;
    pcre2_jit_stack     *jit_stack;
    uint32_t             limit; /* the match limit that the context has */
    hl_budget           *budget;
};

/* ---------------------------------------------------------------- rewriting */

#define SPACES                                                                                     \
    "\\x{09}-\\x{0d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"           \
    "\\x{202f}\\x{205f}\\x{3000}"
#define NOT_SPACES                                                                                 \
    "\\x{00}-\\x{08}\\x{0e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}"                \
    "\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}"                 \
    "\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
#define WORDS "\\p{L}\\p{M}\\p{Nd}\\p{Pc}"
#define HEXES "0-9a-fA-F"

typedef struct replacement {
    char        letter;
    const char *outside;
    const char *inside; /* replacement inside brackets; NULL: unchanged */
} replacement;

static const replacement replacements[] = {
    { 's', "[" SPACES "]", SPACES }, { 'S', "[^" SPACES "]", NOT_SPACES },
    { 'w', "[" WORDS "]", WORDS },   { 'W', "[^" WORDS "]", NULL },
    { 'h', "[" HEXES "]", HEXES },   { 'H', "[^" HEXES "]", NULL },
};

typedef struct rewriter {
    const char *text;
    size_t      n_bytes;
    size_t      at;
    bool        inside; /* inside a bracketed class */
    hl_buffer   out;
} rewriter;

static bool looking_at(const rewriter *r, const char *wanted)
{
    size_t length = strlen(wanted);
    return r->n_bytes - r->at >= length && memcmp(r->text + r->at, wanted, length) == 0;
}

static hl_status copy(rewriter *r, size_t n_bytes)
{
    if (n_bytes > r->n_bytes - r->at)
        n_bytes = r->n_bytes - r->at;
    hl_status status = hl_buffer_append(&r->out, r->text + r->at, n_bytes);
    r->at += n_bytes;
    return status;
}

/* Rewrites a backslash and the character after it. */
static hl_status rewrite_escape(rewriter *r)
{
    char letter = r->at + 1 < r->n_bytes ? r->text[r->at + 1] : '\0';

    if (letter == 'G' && !r->inside)
        return hl_fail(HL_UNSUPPORTED, "\\G in a regular expression");
    for (size_t i = 0; i < sizeof replacements / sizeof *replacements; i++) {
        const char *text = r->inside ? replacements[i].inside : replacements[i].outside;
        if (replacements[i].letter == letter && text != NULL) {
            r->at += 2;
            return hl_buffer_append_text(&r->out, text);
        }
    }
    return copy(r, 2);
}

/* "[" opens a class, in which a "]" at the very start is an ordinary character. */
static hl_status rewrite_opening(rewriter *r)
{
    r->inside = true;
    if (looking_at(r, "[^]"))
        return copy(r, 3);
    return copy(r, looking_at(r, "[]") || looking_at(r, "[^") ? 2 : 1);
}

/* Inside a class, "[:alpha:]" is copied as a whole; any other "[" is an ordinary character, in
 * PCRE2 too. */
static hl_status rewrite_inside(rewriter *r)
{
    if (looking_at(r, "&&"))
        return hl_fail(HL_UNSUPPORTED, "class intersection (&&) in a regular expression");
    if (looking_at(r, "[:")) {
        const char *end = memchr(r->text + r->at, ']', r->n_bytes - r->at);
        if (end != NULL && end[-1] == ':')
            return copy(r, (size_t)(end - (r->text + r->at)) + 1);
    }
    if (r->text[r->at] == ']')
        r->inside = false;
    return copy(r, 1);
}

static void free_rewriter(rewriter *r)
{
    hl_buffer_free(&r->out);
}

hl_status hl_pattern_rewrite(char **out, size_t *n_out, const char *expression, size_t n_bytes)
{
    HL_SCOPED(free_rewriter) rewriter r = { .text = expression, .n_bytes = n_bytes };

    *out = NULL;
    while (r.at < n_bytes) {
        if (r.text[r.at] == '\\')
            HL_NEED(rewrite_escape(&r));
        else if (r.inside)
            HL_NEED(rewrite_inside(&r));
        else if (r.text[r.at] == '[')
            HL_NEED(rewrite_opening(&r));
        else
            HL_NEED(copy(&r, 1));
    }
    HL_NEED(hl_buffer_append(&r.out, "", 1)); /* a terminator, not counted */
    *out   = hl_taken(&r.out.data);
    *n_out = r.out.n_bytes - 1;
    return HL_OK;
}

/* ---------------------------------------------------------------- compiling */

static hl_status compile(hl_pattern *pattern, const char *expression, size_t n_bytes)
{
    int         code = 0;
    size_t      at   = 0;
    PCRE2_UCHAR message[256];

    pattern->code = pcre2_compile(
        (PCRE2_SPTR)expression, n_bytes,
        PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT, &code, &at, NULL);
    if (pattern->code == NULL) {
        pcre2_get_error_message(code, message, sizeof message);
        return hl_fail(HL_BAD_INPUT, "regular expression '%.200s', at %zu: %s", expression, at,
                       (const char *)message);
    }
    /* JIT is optional: without it matching is slower. */
    pattern->jit = pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE) == 0;
    return HL_OK;
}

hl_status hl_pattern_new(hl_pattern **out, const char *expression, size_t n_bytes)
{
    size_t                                 n_written = 0;
    HL_CLOSED(hl_pattern_free) hl_pattern *pattern   = NULL;
    HL_FREED char                         *rewritten = NULL;

    *out = NULL;
    if (n_bytes > MAX_PATTERN_BYTES)
        return hl_fail(HL_BAD_INPUT, "a regular expression of %zu bytes, at most %d", n_bytes,
                       MAX_PATTERN_BYTES);
    HL_NEED(HL_ALLOC_ZEROED(&pattern, 1));
    HL_NEED(hl_strndup(&pattern->text, expression, n_bytes));
    HL_NEED(hl_pattern_rewrite(&rewritten, &n_written, expression, n_bytes));
    HL_NEED(compile(pattern, rewritten, n_written));
    *out = hl_taken(&pattern);
    return HL_OK;
}

void hl_pattern_free(hl_pattern *pattern)
{
    if (pattern == NULL)
        return;
    pcre2_code_free(pattern->code);
    hl_free(pattern->text);
    hl_free(pattern);
}

const char *hl_pattern_text(const hl_pattern *pattern)
{
    return pattern->text;
}

/* ----------------------------------------------------------------- matching */

hl_status hl_matcher_new(hl_matcher **out)
{
    HL_CLOSED(hl_matcher_free) hl_matcher *matcher = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&matcher, 1));
    matcher->data    = pcre2_match_data_create(1, NULL);
    matcher->context = pcre2_match_context_create(NULL);
    if (matcher->data == NULL || matcher->context == NULL)
        return hl_fail(HL_NO_MEMORY, "out of memory for regular expressions");
    matcher->limit = FIRST_LIMIT;
    pcre2_set_match_limit(matcher->context, matcher->limit);
    pcre2_set_depth_limit(matcher->context, DEPTH_LIMIT);
    pcre2_set_heap_limit(matcher->context, HEAP_LIMIT_KIB);
    matcher->jit_stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX, NULL);
    if (matcher->jit_stack != NULL) /* the stack is NULL if there is no JIT */
        pcre2_jit_stack_assign(matcher->context, NULL, matcher->jit_stack);
    *out = hl_taken(&matcher);
    return HL_OK;
}

void hl_matcher_free(hl_matcher *matcher)
{
    if (matcher == NULL)
        return;
    pcre2_match_data_free(matcher->data);
    pcre2_match_context_free(matcher->context);
    pcre2_jit_stack_free(matcher->jit_stack);
    hl_free(matcher);
}

void hl_matcher_set_budget(hl_matcher *matcher, hl_budget *budget)
{
    matcher->budget = budget;
}

hl_budget *hl_matcher_budget(const hl_matcher *matcher)
{
    return matcher->budget;
}

static hl_status match_failed(int code)
{
    PCRE2_UCHAR message[256];

    pcre2_get_error_message(code, message, sizeof message);
    if (code == PCRE2_ERROR_MATCHLIMIT || code == PCRE2_ERROR_DEPTHLIMIT ||
        code == PCRE2_ERROR_HEAPLIMIT || code == PCRE2_ERROR_JIT_STACKLIMIT)
        return hl_fail(HL_LIMIT, "takes too long on this text (%s)", (const char *)message);
    return hl_fail(HL_INTERNAL, "matching failed: %s", (const char *)message);
}

static void set_limit(hl_matcher *matcher, uint32_t limit)
{
    if (matcher->limit != limit)
        pcre2_set_match_limit(matcher->context, limit);
    matcher->limit = limit;
}

/* Runs PCRE2 for matches that begin in [start, last]. */
static int try_once(const hl_pattern *pattern, hl_matcher *matcher, hl_bytes text, size_t start,
                    size_t last)
{
    PCRE2_SPTR subject = (PCRE2_SPTR)text.data;

    pcre2_set_offset_limit(matcher->context, last);
    if (pattern->jit)
        return pcre2_jit_match(pattern->code, subject, text.n_bytes, start, 0, matcher->data,
                               matcher->context);
    return pcre2_match(pattern->code, subject, text.n_bytes, start, PCRE2_NO_UTF_CHECK,
                       matcher->data, matcher->context);
}

/* Like try_once, with more and more steps, as far as the budget allows. */
static hl_status try_window(int *code, const hl_pattern *pattern, hl_matcher *matcher,
                            hl_bytes text, size_t start, size_t last)
{
    hl_budget *budget = matcher->budget;
    double     before = 0.0;

    set_limit(matcher, FIRST_LIMIT);
    HL_NEED(hl_budget_spend(budget, STEPS_OF_A_TRY));
    *code = try_once(pattern, matcher, text, start, last);
    while (*code == PCRE2_ERROR_MATCHLIMIT && matcher->limit < LAST_LIMIT) {
        if (budget == NULL && matcher->limit >= MATCH_LIMIT)
            break;
        HL_NEED(hl_budget_spend(budget, matcher->limit));
        double now = budget != NULL ? hl_budget_seconds(budget) : 0.0;
        if (budget != NULL && before > 0.0)
            HL_NEED(hl_budget_foresee(budget, GROWTH * (now - before)));
        before = now;
        set_limit(matcher, 2 * matcher->limit);
        *code = try_once(pattern, matcher, text, start, last);
    }
    return HL_OK;
}

/* Searches window by window. */
static hl_status search(int *code, const hl_pattern *pattern, hl_matcher *matcher, hl_bytes text,
                        size_t start)
{
    /* Without JIT, every try searches the rest of the text for the first byte of a match. */
    size_t most   = pattern->jit ? LAST_WINDOW : LAST_WINDOW + text.n_bytes / 64;
    size_t window = FIRST_WINDOW;

    for (;;) {
        size_t last = window < text.n_bytes - start ? start + window : text.n_bytes;
        HL_NEED(try_window(code, pattern, matcher, text, start, last));
        if (*code != PCRE2_ERROR_NOMATCH || last == text.n_bytes)
            break;
        if (window == most && matcher->budget != NULL)
            HL_NEED(hl_budget_check(matcher->budget));
        start = last + 1;
        while (start < text.n_bytes && hl_utf8_is_continuation(text.data[start]))
            start++;
        window = 2 * window < most ? 2 * window : most;
    }
    return HL_OK;
}

hl_status hl_pattern_find(hl_span *out, bool *found, const hl_pattern *pattern, hl_matcher *matcher,
                          const char *text, size_t n_bytes, size_t start)
{
    int       code   = 0;
    hl_status status = search(&code, pattern, matcher, (hl_bytes){ text, n_bytes }, start);

    *found = false;
    if (status == HL_OK && code < 0 && code != PCRE2_ERROR_NOMATCH)
        status = match_failed(code);
    HL_NEED(hl_fail_within(status, "regular expression '%.200s'", pattern->text));
    if (code == PCRE2_ERROR_NOMATCH)
        return HL_OK;

    const PCRE2_SIZE *place = pcre2_get_ovector_pointer(matcher->data);
    if (place[0] < start || place[1] < place[0]) /* \K can have this effect */
        return hl_fail(HL_BAD_INPUT, "regular expression '%.200s' matches backwards (\\K)",
                       pattern->text);
    *out   = (hl_span){ place[0], place[1] };
    *found = true;
    return HL_OK;
}

bool hl_search_next(hl_search *s)
{
    size_t n_bytes = s->text.n_bytes;
    bool   found   = false;

    if (s->start > n_bytes)
        return false;
    if (s->pattern != NULL) {
        s->status = hl_pattern_find(&s->match, &found, s->pattern, s->matcher, s->text.data,
                                    n_bytes, s->start);
    } else if (s->needle.n_bytes > 0) {
        const char *place = hl_find_bytes(s->text.data + s->start, n_bytes - s->start,
                                          s->needle.data, s->needle.n_bytes);
        found             = place != NULL;
        size_t begin      = found ? (size_t)(place - s->text.data) : 0;
        s->match          = (hl_span){ begin, begin + s->needle.n_bytes };
    }
    if (s->status != HL_OK || !found)
        return false;
    s->start = s->match.end;
    if (s->match.begin == s->match.end && s->start < n_bytes)
        (void)hl_utf8_next(s->text.data, &s->start);
    else if (s->match.begin == s->match.end)
        s->start = n_bytes + 1;
    return true;
}

hl_status hl_search_replace(hl_buffer *out, hl_search search, hl_bytes by)
{
    const char *text = search.text.data;
    size_t      at   = 0;

    while (hl_search_next(&search)) {
        HL_NEED(hl_buffer_append(out, text + at, search.match.begin - at));
        HL_NEED(hl_buffer_append(out, by.data, by.n_bytes));
        at = search.match.end;
    }
    HL_NEED(search.status);
    return hl_buffer_append(out, text + at, search.text.n_bytes - at);
}

const char *hl_matcher_mark(const hl_matcher *matcher)
{
    PCRE2_SPTR mark = pcre2_get_mark(matcher->data);
    return mark != NULL ? (const char *)mark : "";
}
