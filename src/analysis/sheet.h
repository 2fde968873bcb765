/* sheet.h - for the library's own tables: what headlight/analysis.h, which describes them, lacks. */
#ifndef HL_ANALYSIS_SHEET_H
#define HL_ANALYSIS_SHEET_H

#include "base/memory.h"
#include "headlight/analysis.h"

HL_CLOSES(hl_sheet_free, hl_sheet)
HL_CLOSES(hl_comparison_free, hl_comparison)
HL_CLOSES(hl_head_card_free, hl_head_card)

/* Names the layers in the column "layer", as the profile's setting "layers" has them: text and CSV show
 * the names, JSON has them as "layer_name".  NULL: layers are numbers. */
void hl_sheet_name_layers(hl_sheet *table, const char *layers);

/* Add several neighboring cells of one type. */
#define hl_sheet_put_ints(table, ...)                                                              \
    hl_sheet_add_ints(table, (const int64_t[]){ __VA_ARGS__ },                                     \
                      sizeof(const int64_t[]){ __VA_ARGS__ } / sizeof(int64_t))
void hl_sheet_add_ints(hl_sheet *table, const int64_t *values, size_t count);

#endif
