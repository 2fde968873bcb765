/* values.h - cells of tables, and what they and texts are in JSON. */
#ifndef HL_CLI_VALUES_H
#define HL_CLI_VALUES_H

#include <jansson.h>

#include "headlight.h"

/* By the name of its column; NaN where there is no such column or no number. */
double hl_cell_number(const hl_sheet *table, int64_t row, const char *column);

/* JSON has neither NaN nor infinities: null. */
json_t *hl_value_number(double value);
/* A string of any bytes (printable.h); NULL when memory is out. */
json_t *hl_value_text(const char *bytes, size_t n_bytes);
/* The same for a name or path, which may be of any bytes, too. */
json_t *hl_value_name(const char *name);

#endif
