/* byte_level.h - GPT-2's way of spelling bytes as characters.
 *
 * Each of the 256 bytes has a printable character that stands for it: itself for
 * 33-126, 161-172 and 174-255, and U+0100 onwards for the other 68 in order, so
 * that a space is Ġ (U+0120) and a line feed Ċ.  Byte-level vocabularies are
 * written in this spelling. */
#ifndef HL_TOKENIZE_BYTE_LEVEL_H
#define HL_TOKENIZE_BYTE_LEVEL_H

#include "base/buffer.h"
#include "base/json_reader.h"
#include "tokenize/mapped_text.h"

/* The character for a byte. */
uint32_t hl_byte_level_character(uint8_t byte);

/* Appends the spelling of [begin, end) of a text, with origins.  A stand-in for an invalid byte
 * is spelled as that byte. */
hl_status hl_byte_level_spell(hl_mapped_text_builder *builder, const hl_mapped_text *text,
                              size_t begin, size_t end);
/* Appends the spelling of plain bytes. */
hl_status hl_byte_level_spell_bytes(hl_buffer *out, hl_bytes bytes);
/* Appends the bytes that a spelling stands for.  If some character does not stand for a byte,
 * appends the spelling itself. */
hl_status hl_byte_level_read(hl_buffer *out, hl_bytes spelling);

#endif
