/* normal_form.h - Unicode normal forms (NFC, NFD, NFKC, NFKD) with origins. */
#ifndef HL_TOKENIZE_NORMAL_FORM_H
#define HL_TOKENIZE_NORMAL_FORM_H

#include "tokenize/mapped_text.h"

/* *out is in `builder`, or is *text itself where the text is in that form already. */
hl_status hl_normal_form(hl_mapped_text *out, hl_mapped_text_builder *builder,
                         const hl_mapped_text *text, bool compose, bool compatible);

#endif
