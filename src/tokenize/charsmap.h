/* charsmap.h - SentencePiece's precompiled normalisation rules. */
#ifndef HL_TOKENIZE_CHARSMAP_H
#define HL_TOKENIZE_CHARSMAP_H

#include "tokenize/buffer.h"
#include "tokenize/mapped_text.h"

typedef struct hl_charsmap hl_charsmap;

/* From the blob, or from its base64.  The blob is copied. */
hl_status hl_charsmap_new(hl_charsmap **out, const uint8_t *blob, size_t n_bytes);
hl_status hl_charsmap_from_base64(hl_charsmap **out, const char *text);
void      hl_charsmap_free(hl_charsmap *map);
/* The blob again, appended. */
hl_status hl_charsmap_write(hl_buffer *out, const hl_charsmap *map);

hl_status hl_charsmap_apply(hl_mapped_text *out, hl_mapped_text_builder *builder,
                            const hl_mapped_text *text, const hl_charsmap *map);

#endif
