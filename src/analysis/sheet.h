/* sheet.h - a small table: how analyses are put into words.
 *
 *     HL_NEED(hl_sheet_new(&table, "heads", "Every head", "head:t normalized:3 peak:3"));
 *     hl_sheet_put_text(table, "L%dH%d", 3, 1);     cell after cell, row after row
 *     hl_sheet_put_reals(table, 0.25, 0.5);
 *     hl_sheet_fact_real(table, "context", 512);    what holds for the whole table
 *     HL_NEED(hl_sheet_finish(table));
 *
 * A table keeps its first error and turns later calls into nothing; finish reports it.
 * How others read and render tables is in headlight.h. */
#ifndef HL_ANALYSIS_SHEET_H
#define HL_ANALYSIS_SHEET_H

#include "base/interval.h"
#include "base/memory.h"
#include "headlight/analysis.h"

HL_CLOSES(hl_sheet_free, hl_sheet)
HL_CLOSES(hl_comparison_free, hl_comparison)

/* Columns are "NAME:TYPE NAME:TYPE ...". The type is t (text), i (integer), b (boolean), or, for
 * a real number, its number of decimals in text; CSV and JSON have all digits. Name and title
 * are borrowed literals. */
hl_status hl_sheet_new(hl_sheet **out, const char *name, const char *title, const char *columns);
/* Each call adds a cell, which must have its column's type. NaN and HL_NO_INT make empty cells. */
#define HL_NO_INT INT64_MIN
void hl_sheet_put_int(hl_sheet *table, int64_t value);
void hl_sheet_put_real(hl_sheet *table, double value);
void hl_sheet_put_bool(hl_sheet *table, bool value);
void hl_sheet_put_text(hl_sheet *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Add several neighboring cells of one type. */
#define hl_sheet_put_ints(table, ...)                                                              \
    hl_sheet_add_ints(table, (const int64_t[]){ __VA_ARGS__ },                                     \
                      sizeof(const int64_t[]){ __VA_ARGS__ } / sizeof(int64_t))
#define hl_sheet_put_reals(table, ...)                                                             \
    hl_sheet_add_reals(table, (const double[]){ __VA_ARGS__ },                                     \
                       sizeof(const double[]){ __VA_ARGS__ } / sizeof(double))
void hl_sheet_add_ints(hl_sheet *table, const int64_t *values, size_t count);
void hl_sheet_add_reals(hl_sheet *table, const double *values, size_t count);
/* Facts are printed in the order in which they are added. Names are literals. */
void hl_sheet_fact_real(hl_sheet *table, const char *name, double value);
void hl_sheet_fact_text(hl_sheet *table, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds three facts: how the table's intervals were made (or why there are none), their level,
 * and the number of units. */
void hl_sheet_fact_interval(hl_sheet *table, const hl_interval *interval);
/* Returns the first error; HL_INTERNAL if the last row is incomplete. */
hl_status hl_sheet_finish(hl_sheet *table);
/* Ends a function that makes a table: passes it to the caller, or releases it if `status` or
 * hl_sheet_finish is an error. */
hl_status hl_sheet_hand_over(hl_sheet **out, hl_sheet *table, hl_status status);

#endif
