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

/* Columns are "NAME:TYPE NAME:TYPE ...", where the type is t (text), i (integer), b (boolean) or, of a
 * real number, how many decimals it has in text; CSV and JSON have all digits.  Name and title are
 * borrowed: literals. */
hl_status hl_sheet_new(hl_sheet **out, const char *name, const char *title, const char *columns);
/* A cell; each must be of its column's type.  NaN and HL_NO_INT are empty cells. */
#define HL_NO_INT INT64_MIN
void hl_sheet_put_int(hl_sheet *table, int64_t value);
void hl_sheet_put_real(hl_sheet *table, double value);
void hl_sheet_put_bool(hl_sheet *table, bool value);
void hl_sheet_put_text(hl_sheet *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Several cells of one type, side by side. */
#define hl_sheet_put_ints(table, ...)                                                              \
    hl_sheet_add_ints(table, (const int64_t[]){ __VA_ARGS__ },                                     \
                      sizeof(const int64_t[]){ __VA_ARGS__ } / sizeof(int64_t))
#define hl_sheet_put_reals(table, ...)                                                             \
    hl_sheet_add_reals(table, (const double[]){ __VA_ARGS__ },                                     \
                       sizeof(const double[]){ __VA_ARGS__ } / sizeof(double))
void hl_sheet_add_ints(hl_sheet *table, const int64_t *values, size_t count);
void hl_sheet_add_reals(hl_sheet *table, const double *values, size_t count);
/* Facts print in the order in which they are added; names are literals. */
void hl_sheet_fact_real(hl_sheet *table, const char *name, double value);
void hl_sheet_fact_text(hl_sheet *table, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Three facts: how the intervals of the table were made, or why there are none, their level, and the
 * number of units. */
void hl_sheet_fact_interval(hl_sheet *table, const hl_interval *interval);
/* The first error; HL_INTERNAL when the last row is not whole. */
hl_status hl_sheet_finish(hl_sheet *table);
/* Ends a function that makes a table: finishes it and gives it away, or releases it where `status`
 * or finishing says that it failed. */
hl_status hl_sheet_hand_over(hl_sheet **out, hl_sheet *table, hl_status status);

#endif
