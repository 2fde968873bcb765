/* mapped_text.c - views, builders, and transforms that keep origins. */
#include "tokenize/mapped_text.h"

#include <string.h>

#include "base/buffer.h"
#include "base/status.h"
#include "base/utf8.h"

/* ------------------------------------------------------------------- views */

hl_mapped_text hl_mapped_text_slice(const hl_mapped_text *text, size_t begin, size_t end)
{
    return (hl_mapped_text){
        .bytes    = text->bytes + begin,
        .n_bytes  = end - begin,
        .align    = text->align != NULL ? text->align + begin : NULL,
        .origin   = text->origin + begin,
        .original = text->original,
    };
}

/* The origin of one byte. */
static hl_origin origin_at(const hl_mapped_text *text, size_t at)
{
    if (text->align != NULL)
        return text->align[at];
    size_t begin = at;
    size_t end   = at + 1;
    while (begin > 0 && hl_utf8_is_continuation(text->bytes[begin]))
        begin--;
    while (end < text->n_bytes && hl_utf8_is_continuation(text->bytes[end]))
        end++;
    return (hl_origin){ (uint32_t)(text->origin + begin), (uint32_t)(text->origin + end) };
}

hl_span hl_mapped_text_origin(const hl_mapped_text *text, size_t begin, size_t end)
{
    hl_span span = { origin_at(text, begin).begin, origin_at(text, end - 1).end };
    /* Removing and reordering characters can leave origins out of order. */
    if (span.end < span.begin)
        span.end = span.begin;
    return span;
}

bool hl_mapped_text_is_stand_in(const hl_mapped_text *text, size_t at)
{
    return text->align != NULL && text->n_bytes - at >= 3 &&
           memcmp(text->bytes + at, "\xef\xbf\xbd", 3) == 0 &&
           text->align[at].end - text->align[at].begin == 1;
}

/* ---------------------------------------------------------------- builders */

void hl_mapped_text_builder_free(hl_mapped_text_builder *builder)
{
    hl_free(builder->bytes);
    hl_free(builder->align);
    *builder = (hl_mapped_text_builder){ 0 };
}

static hl_status reserve(hl_mapped_text_builder *builder, size_t more)
{
    if (more > HL_MAX_MAPPED_TEXT - builder->n_bytes)
        return hl_fail(HL_LIMIT, "normalized text of more than %u bytes", HL_MAX_MAPPED_TEXT);
    if (builder->budget != NULL && more > builder->budget->most_bytes - builder->n_bytes)
        return hl_budget_too_long(builder->budget, builder->n_bytes + more);
    HL_NEED(hl_budget_spend(builder->budget, more));
    HL_NEED(HL_GROW(&builder->bytes, &builder->bytes_capacity, builder->n_bytes, more));
    return HL_GROW(&builder->align, &builder->align_capacity, builder->n_bytes, more);
}

hl_status hl_mapped_text_builder_add(hl_mapped_text_builder *builder, const char *bytes,
                                     size_t n_bytes, hl_origin origin)
{
    HL_NEED(reserve(builder, n_bytes));
    for (size_t i = 0; i < n_bytes; i++) {
        builder->bytes[builder->n_bytes + i] = bytes[i];
        builder->align[builder->n_bytes + i] = origin;
    }
    builder->n_bytes += n_bytes;
    return HL_OK;
}

hl_status hl_mapped_text_builder_copy(hl_mapped_text_builder *builder, const hl_mapped_text *from,
                                      size_t begin, size_t end)
{
    hl_status status = reserve(builder, end - begin);
    if (status != HL_OK || begin == end)
        return status;
    memcpy(builder->bytes + builder->n_bytes, from->bytes + begin, end - begin);
    hl_origin *align = builder->align + builder->n_bytes;
    for (size_t at = begin; at < end; at++)
        *align++ = origin_at(from, at);
    builder->n_bytes += end - begin;
    return HL_OK;
}

hl_mapped_text hl_mapped_text_built(const hl_mapped_text_builder *builder,
                                    const hl_mapped_text         *from)
{
    return (hl_mapped_text){
        .bytes    = builder->bytes != NULL ? builder->bytes : "",
        .n_bytes  = builder->n_bytes,
        .align    = builder->align,
        .original = from->original,
    };
}

hl_status hl_mapped_text_from_bytes(hl_mapped_text *out, hl_mapped_text_builder *builder,
                                    const char *bytes, size_t n_bytes)
{
    hl_status status = HL_OK;

    if (n_bytes == 0)
        bytes = ""; /* `bytes` may be NULL */
    hl_mapped_text given = { .bytes = bytes, .n_bytes = n_bytes, .original = bytes };
    if (n_bytes > HL_MAX_MAPPED_TEXT)
        return hl_fail(HL_LIMIT, "a text of %zu bytes, at most %u", n_bytes, HL_MAX_MAPPED_TEXT);
    *out             = given;
    builder->n_bytes = 0;
    size_t at        = 0;
    for (size_t bad; (bad = at + hl_utf8_find_bad(bytes + at, n_bytes - at)) < n_bytes;) {
        /* The text between two errors is valid, so its characters can be found. */
        hl_mapped_text good = hl_mapped_text_slice(&given, at, bad);
        HL_NEED(hl_mapped_text_builder_copy(builder, &good, 0, good.n_bytes));
        HL_NEED(hl_mapped_text_builder_add(builder, "\xef\xbf\xbd", 3,
                                           (hl_origin){ (uint32_t)bad, (uint32_t)bad + 1 }));
        at = bad + 1;
    }
    if (at == 0)
        return status;
    hl_mapped_text rest = hl_mapped_text_slice(&given, at, n_bytes);
    HL_NEED(hl_mapped_text_builder_copy(builder, &rest, 0, rest.n_bytes));
    *out = hl_mapped_text_built(builder, &given);
    return status;
}

/* -------------------------------------------------------------- transforms */

hl_transform hl_transform_begin(const hl_mapped_text *from, hl_mapped_text_builder *to)
{
    to->n_bytes = 0;
    return (hl_transform){ .from = from, .to = to };
}

static void consume(hl_transform *transform)
{
    if (transform->at < transform->from->n_bytes)
        (void)hl_utf8_next(transform->from->bytes, &transform->at);
}

void hl_transform_drop(hl_transform *transform, size_t n_characters)
{
    for (size_t i = 0; i < n_characters; i++)
        consume(transform);
}

void hl_transform_keep(hl_transform *transform, size_t end)
{
    if (transform->status == HL_OK && end > transform->at)
        transform->status =
            hl_mapped_text_builder_copy(transform->to, transform->from, transform->at, end);
    transform->at = end;
}

void hl_transform_put(hl_transform *transform, uint32_t code_point, int change)
{
    const hl_mapped_text *from   = transform->from;
    hl_origin             origin = { (uint32_t)from->origin, (uint32_t)from->origin };
    char                  bytes[4];

    if (transform->status != HL_OK)
        return;
    if (change <= 0 && transform->at < from->n_bytes)
        origin = origin_at(from, transform->at);
    else if (transform->at > 0)
        origin = origin_at(from, transform->at - 1);
    else if (from->align != NULL && from->n_bytes > 0)
        origin.begin = origin.end = from->align[0].begin;
    transform->status =
        hl_mapped_text_builder_add(transform->to, bytes, hl_utf8_encode(bytes, code_point), origin);
    if (change <= 0)
        hl_transform_drop(transform, (size_t)(1 - change));
}

hl_status hl_transform_end(hl_mapped_text *out, const hl_transform *transform)
{
    const hl_mapped_text         *from = transform->from;
    const hl_mapped_text_builder *to   = transform->to;

    if (transform->status != HL_OK)
        return transform->status;
    if (to->n_bytes == from->n_bytes &&
        (to->n_bytes == 0 || memcmp(to->bytes, from->bytes, to->n_bytes) == 0))
        *out = *from;
    else
        *out = hl_mapped_text_built(to, from);
    return HL_OK;
}
