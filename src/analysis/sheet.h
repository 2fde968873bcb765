/* sheet.h - a small table: how analyses are put into words.
 *
 *     static const hl_column columns[] = {
 *         { "head", HL_COLUMN_TEXT, 0 }, { "fair", HL_COLUMN_REAL, 3 }, { 0 },
 *     };
 *     HL_TRY(hl_sheet_new(&table, "heads", "Every head", columns));
 *     hl_sheet_put_text(table, "L%dH%d", 3, 1);     cell after cell, row after row
 *     hl_sheet_put_real(table, 0.25);
 *     hl_sheet_fact_real(table, "context", 512);    what holds for the whole table
 *     HL_TRY(hl_sheet_finish(table));
 *
 * A table keeps its first error and turns later calls into nothing; finish reports it.
 * How others read and render tables is in headlight.h. */
#ifndef HL_ANALYSIS_SHEET_H
#define HL_ANALYSIS_SHEET_H

#include "headlight/analysis.h"

typedef struct hl_column {
    const char    *name; /* a literal; NULL ends a list */
    hl_column_type type;
    int            decimals; /* of REAL, in text; CSV and JSON have all digits */
} hl_column;

/* name, title and columns are borrowed: literals. */
hl_status hl_sheet_new(hl_sheet **out, const char *name, const char *title,
                       const hl_column *columns);
/* A cell; each must be of its column's type.  NaN and HL_NO_INT are empty cells. */
#define HL_NO_INT INT64_MIN
void hl_sheet_put_int(hl_sheet *table, int64_t value);
void hl_sheet_put_real(hl_sheet *table, double value);
void hl_sheet_put_bool(hl_sheet *table, bool value);
void hl_sheet_put_text(hl_sheet *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Facts print in the order in which they are added; names are literals. */
void hl_sheet_fact_real(hl_sheet *table, const char *name, double value);
void hl_sheet_fact_text(hl_sheet *table, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The first error; HL_INTERNAL when the last row is not whole. */
hl_status hl_sheet_finish(hl_sheet *table);
/* Ends a function that makes a table: finishes it and gives it away, or releases it where `status`
 * or finishing says that it failed. */
hl_status hl_sheet_hand_over(hl_sheet **out, hl_sheet *table, hl_status status);

#endif
