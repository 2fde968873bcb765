/* added.c - finding added tokens.
 *
 * Few bytes of a text can start an added token (for most files only '<'), so the
 * search runs over bytes until one of them comes, and only there walks the set. */
#include "tokenize/added.h"

#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"
#include "tokenize/unicode.h"

#define MAX_ADDED (1 << 20)

hl_status hl_added_add(hl_added *added, hl_added_token token)
{
    if (token.content.n_bytes == 0)
        return HL_OK; /* an empty token would match everywhere */
    if (added->count >= MAX_ADDED)
        return hl_fail(HL_BAD_INPUT, "more than %d added tokens", MAX_ADDED);
    HL_NEED(HL_GROW(&added->items, &added->capacity, added->count, 1));
    HL_NEED(hl_bytes_copy(&token.content, token.content.data, token.content.n_bytes));
    added->items[added->count++] = token;
    return HL_OK;
}

/* Normalizes the contents of tokens that are searched for after normalizing. */
static hl_status normalize_contents(hl_added *added, const hl_normalizer *normalizer)
{
    hl_status              status      = HL_OK;
    hl_mapped_text_builder given       = { 0 };
    hl_mapped_text_builder builders[2] = { { 0 }, { 0 } };
    hl_matcher            *matcher     = NULL;
    size_t                 n_bytes     = 0;
    hl_mapped_text         text;

    for (size_t i = 0; i < added->count; i++)
        n_bytes += added->items[i].content.n_bytes;
    hl_budget budget = hl_budget_begin(n_bytes, NULL, NULL);
    given.budget = builders[0].budget = builders[1].budget = &budget;
    HL_TRY(hl_matcher_new(&matcher));
    hl_matcher_set_budget(matcher, &budget);
    for (size_t i = 0; i < added->count; i++) {
        hl_added_token *token = &added->items[i];
        hl_bytes        copy;
        if (!token->normalized)
            continue;
        HL_TRY(
            hl_mapped_text_from_bytes(&text, &given, token->content.data, token->content.n_bytes));
        HL_TRY(hl_normalizer_run(&text, normalizer, builders, matcher));
        HL_TRY(hl_budget_hand_on(&budget, text.n_bytes));
        HL_TRY(hl_bytes_copy(&copy, text.bytes, text.n_bytes));
        hl_bytes_free(&token->content);
        token->content = copy;
    }

done:
    hl_mapped_text_builder_free(&given);
    hl_mapped_text_builder_free(&builders[0]);
    hl_mapped_text_builder_free(&builders[1]);
    hl_matcher_free(matcher);
    return hl_fail_within(status, "added_tokens");
}

hl_status hl_added_finish(hl_added *added, const hl_normalizer *normalizer)
{
    if (normalizer->n_steps > 0)
        HL_NEED(normalize_contents(added, normalizer));
    for (size_t i = 0; i < added->count; i++) {
        hl_added_token *token = &added->items[i];
        HL_NEED(hl_prefixes_add(token->normalized ? &added->after_normalizing : &added->as_given,
                                token->content, (int32_t)i));
    }
    hl_prefixes_sort(&added->as_given);
    hl_prefixes_sort(&added->after_normalizing);
    return HL_OK;
}

void hl_added_free(hl_added *added)
{
    for (size_t i = 0; i < added->count; i++)
        hl_bytes_free(&added->items[i].content);
    hl_free(added->items);
    hl_prefixes_free(&added->as_given);
    hl_prefixes_free(&added->after_normalizing);
    *added = (hl_added){ 0 };
}

/* ------------------------------------------------------------------ searching */

/* Finds the next match at or after *at: its item, or -1, and its place. */
static hl_status find_next(int *found, hl_span *out, const hl_prefixes *set,
                           const hl_mapped_text *text, size_t at, hl_budget *budget)
{
    *found = -1;
    for (; at < text->n_bytes && *found < 0; at++) {
        unsigned char byte = (unsigned char)text->bytes[at];
        if (set->first[byte] == set->first[byte + 1U])
            continue;
        hl_prefix_walk walk = hl_prefixes_begin(set);
        for (size_t end = at; end < text->n_bytes;) {
            if (!hl_prefixes_step(set, &walk, text->bytes[end++]))
                break;
            int item = hl_prefixes_match(set, &walk);
            if (item >= 0) {
                *found = item;
                *out   = (hl_span){ at, end };
            }
        }
        HL_NEED(hl_budget_spend(budget, 4 * walk.depth));
    }
    return HL_OK;
}

/* Returns the character that ends at `end`, which is not 0; *begin is where it starts. */
static uint32_t character_before(const hl_mapped_text *text, size_t end, size_t *begin)
{
    *begin = end - 1;
    while (*begin > 0 && hl_utf8_is_continuation(text->bytes[*begin]))
        (*begin)--;
    size_t at = *begin;
    return hl_utf8_next(text->bytes, &at);
}

static bool stands_alone(const hl_mapped_text *text, hl_span span)
{
    size_t at = span.end;

    if (span.begin > 0 &&
        hl_char_is(HL_CHAR_WORD, character_before(text, span.begin, &(size_t){ 0 })))
        return false;
    return at >= text->n_bytes || !hl_char_is(HL_CHAR_WORD, hl_utf8_next(text->bytes, &at));
}

/* Extends a match by the white space around it, but not to before `floor`. */
static hl_span take_space(const hl_mapped_text *text, hl_span span, const hl_added_token *token,
                          size_t floor)
{
    while (token->strip_left && span.begin > floor) {
        size_t begin;
        if (!hl_char_is(HL_CHAR_WHITESPACE, character_before(text, span.begin, &begin)))
            break;
        span.begin = begin;
    }
    while (token->strip_right && span.end < text->n_bytes) {
        size_t at = span.end;
        if (!hl_char_is(HL_CHAR_WHITESPACE, hl_utf8_next(text->bytes, &at)))
            break;
        span.end = at;
    }
    return span;
}

static bool is_allowed(const hl_mapped_text *text, hl_span span, const hl_added_token *token,
                       const hl_added_filter *filter)
{
    if (token->single_word && !stands_alone(text, span))
        return false;
    if (!token->special)
        return true;
    if (filter->plain)
        return false;
    size_t at = hl_mapped_text_origin(text, span.begin, span.end).begin;
    for (size_t i = 0; i < filter->n_parts; i++) {
        const hl_chat_part *part = &filter->parts[i];
        if (part->role != HL_ROLE_TEMPLATE && at >= part->span.begin && at < part->span.end)
            return false;
    }
    return true;
}

static hl_status add_stretch(hl_stretches *out, size_t begin, size_t end, int item)
{
    if (begin == end)
        return HL_OK;
    HL_NEED(HL_GROW(&out->items, &out->capacity, out->count, 1));
    out->items[out->count++] = (hl_stretch){ { begin, end }, item };
    return HL_OK;
}

hl_status hl_added_split(hl_stretches *out, const hl_added *added, const hl_prefixes *set,
                         const hl_mapped_text *text, const hl_added_filter *filter,
                         hl_budget *budget)
{
    hl_span span = { 0, 0 };
    size_t  done = 0;
    size_t  at   = 0;
    int     item = -1;

    out->count = 0;
    while (set->count > 0) {
        HL_NEED(find_next(&item, &span, set, text, at, budget));
        if (item < 0)
            break;
        const hl_added_token *token = &added->items[item];
        at                          = span.end;
        HL_NEED(hl_budget_spend(budget, filter->n_parts));
        if (!is_allowed(text, span, token, filter))
            continue;
        span = take_space(text, span, token, done);
        HL_NEED(add_stretch(out, done, span.begin, -1));
        HL_NEED(add_stretch(out, span.begin, span.end, item));
        done = span.end;
        at   = done > at ? done : at;
    }
    return add_stretch(out, done, text->n_bytes, -1);
}
