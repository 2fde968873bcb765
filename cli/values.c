/* values.c - cells of tables, and what they and texts are in JSON. */
#include "values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "printable.h"

double hl_cell_number(const hl_sheet *table, int64_t row, const char *column)
{
    return hl_sheet_number(table, row, hl_sheet_find(table, column));
}

json_t *hl_value_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *hl_value_name(const char *name)
{
    return hl_value_text(name, strlen(name));
}

json_t *hl_value_text(const char *bytes, size_t n_bytes)
{
    size_t  length = 0;
    char   *valid  = hl_printable_utf8(&length, bytes, n_bytes);
    json_t *string = valid != NULL ? json_stringn(valid, length) : NULL;

    free(valid);
    return string;
}
