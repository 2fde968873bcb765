/* byte_level.c - bytes to characters and back. */
#include "tokenize/byte_level.h"

#include "base/status.h"
#include "base/utf8.h"

#define FIRST_EXTRA 0x100U
#define N_EXTRAS    68U

/* True for bytes that another character stands for: 0-32, 127-160, 173. */
static bool is_extra(uint32_t byte)
{
    return byte <= 32 || (byte >= 127 && byte <= 160) || byte == 173;
}

uint32_t hl_byte_level_character(uint8_t byte)
{
    if (!is_extra(byte))
        return byte;
    if (byte <= 32)
        return FIRST_EXTRA + byte;
    return byte == 173 ? FIRST_EXTRA + N_EXTRAS - 1 : FIRST_EXTRA + 33U + (byte - 127U);
}

/* Returns the byte that a character stands for, or -1. */
static int byte_of(uint32_t code_point)
{
    if (code_point < FIRST_EXTRA)
        return is_extra(code_point) ? -1 : (int)code_point;
    uint32_t extra = code_point - FIRST_EXTRA;
    if (extra >= N_EXTRAS)
        return -1;
    return extra <= 32 ? (int)extra : extra == N_EXTRAS - 1 ? 173 : (int)(extra - 33 + 127);
}

static hl_status spell(hl_mapped_text_builder *builder, uint8_t byte, hl_origin origin)
{
    char bytes[4];
    return hl_mapped_text_builder_add(builder, bytes,
                                      hl_utf8_encode(bytes, hl_byte_level_character(byte)), origin);
}

hl_status hl_byte_level_spell(hl_mapped_text_builder *builder, const hl_mapped_text *text,
                              size_t begin, size_t end)
{
    for (size_t at = begin; at < end;) {
        hl_span   span   = hl_mapped_text_origin(text, at, at + 1);
        hl_origin origin = { (uint32_t)span.begin, (uint32_t)span.end };
        if (hl_mapped_text_is_stand_in(text, at)) {
            HL_NEED(spell(builder, (uint8_t)text->original[span.begin], origin));
            at += 3;
        } else {
            HL_NEED(spell(builder, (uint8_t)text->bytes[at++], origin));
        }
    }
    return HL_OK;
}

hl_status hl_byte_level_spell_bytes(hl_buffer *out, hl_bytes bytes)
{
    for (size_t i = 0; i < bytes.n_bytes; i++)
        HL_NEED(hl_buffer_append_code_point(out, hl_byte_level_character((uint8_t)bytes.data[i])));
    return HL_OK;
}

hl_status hl_byte_level_read(hl_buffer *out, hl_bytes spelling)
{
    size_t start = out->n_bytes;

    if (hl_utf8_find_bad(spelling.data, spelling.n_bytes) < spelling.n_bytes)
        return hl_buffer_append(out, spelling.data, spelling.n_bytes);
    for (size_t at = 0; at < spelling.n_bytes;) {
        int byte = byte_of(hl_utf8_next(spelling.data, &at));
        if (byte < 0) {
            out->n_bytes = start;
            return hl_buffer_append(out, spelling.data, spelling.n_bytes);
        }
        char c = (char)byte;
        HL_NEED(hl_buffer_append(out, &c, 1));
    }
    return HL_OK;
}
