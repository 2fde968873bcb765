/* pattern.h - regular expressions as tokenizer files write them.
 *
 * PCRE2, with UTF and Unicode properties, and with the few differences from the
 * dialect of the reference implementation (Oniguruma) rewritten away.  Matching
 * has limits: an expression that would run forever is an error, not a hang.
 *
 * A pattern may be used by several threads; a matcher by one at a time. */
#ifndef HL_TOKENIZE_PATTERN_H
#define HL_TOKENIZE_PATTERN_H

#include "base/buffer.h"
#include "headlight/tokenizer.h"
#include "tokenize/budget.h"

typedef struct hl_pattern hl_pattern;
typedef struct hl_matcher hl_matcher;

/* Fails with HL_BAD_INPUT or HL_UNSUPPORTED and PCRE2's message. */
hl_status hl_pattern_new(hl_pattern **out, const char *expression, size_t n_bytes);
void      hl_pattern_free(hl_pattern *pattern);
HL_CLOSES(hl_pattern_free, hl_pattern)
/* The expression as it was given.  Borrowed. */
const char *hl_pattern_text(const hl_pattern *pattern);

hl_status hl_matcher_new(hl_matcher **out);
void      hl_matcher_free(hl_matcher *matcher);
HL_CLOSES(hl_matcher_free, hl_matcher)
/* The budget that searches spend from now on; borrowed.  NULL, the initial value: each search has
 * a bound of its own. */
void       hl_matcher_set_budget(hl_matcher *matcher, hl_budget *budget);
hl_budget *hl_matcher_budget(const hl_matcher *matcher);

/* Finds the leftmost match at or after `start` in valid UTF-8; *found is false if there is none.
 * The match may be empty. */
hl_status hl_pattern_find(hl_span *out, bool *found, const hl_pattern *pattern, hl_matcher *matcher,
                          const char *text, size_t n_bytes, size_t start);
/* All matches of a pattern, or of a needle if pattern is NULL, from left to right:
 *
 *     hl_search search = { .pattern = pattern, .matcher = matcher, .text = text };
 *     while (hl_search_next(&search))
 *         ... search.match ...
 *     HL_NEED(search.status);
 *
 * After an empty match the search continues after the next character.  An empty needle never
 * matches. */
typedef struct hl_search {
    const hl_pattern *pattern;
    hl_bytes          needle;
    hl_matcher       *matcher;
    hl_bytes          text;
    size_t            start; /* where the next match may begin; larger than the text's length when
                              * done */
    hl_span           match;
    hl_status         status;
} hl_search;

bool hl_search_next(hl_search *search);
/* Appends the text with every match replaced. */
hl_status hl_search_replace(hl_buffer *out, hl_search search, hl_bytes by);
/* The name of the last (*MARK:name) in the last match; "" if there is none. */
const char *hl_matcher_mark(const hl_matcher *matcher);

/* The rewritten expression, for tests; released with hl_free. */
hl_status hl_pattern_rewrite(char **out, size_t *n_out, const char *expression, size_t n_bytes);

#endif
