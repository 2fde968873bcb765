/* sheet.c - cells in one growing array, row after row. */
#include "analysis/sheet.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "analysis/sheet_data.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"

hl_status hl_sheet_new(hl_sheet **out, const char *name, const char *title,
                       const hl_column *columns)
{
    hl_sheet *table  = NULL;
    hl_status status = HL_ALLOC_ZEROED(&table, 1);

    *out = table;
    if (status != HL_OK)
        return status;
    table->name    = name;
    table->title   = title;
    table->columns = columns;
    while (columns[table->n_columns].name != NULL)
        table->n_columns++;
    return HL_OK;
}

void hl_sheet_free(hl_sheet *table)
{
    if (table == NULL)
        return;
    for (int64_t i = 0; i < table->n_cells; i++) {
        if (table->columns[i % table->n_columns].type != HL_COLUMN_TEXT)
            continue;
        hl_free(table->cells[i].text);
        hl_free(table->cells[i].shown);
    }
    for (int64_t i = 0; i < table->n_facts; i++) {
        hl_free(table->facts[i].text);
        hl_free(table->facts[i].shown);
    }
    hl_free(table->cells);
    hl_free(table->facts);
    hl_free(table);
}

/* ------------------------------------------------------------------ filling */

/* The place of the next cell, which must be of this type; NULL after an error. */
static hl_cell *next_cell(hl_sheet *table, hl_column_type type)
{
    if (table->status != HL_OK)
        return NULL;
    const hl_column *column = &table->columns[table->n_cells % table->n_columns];
    if (column->type != type) {
        table->status = hl_fail(HL_INTERNAL, "table %s: column %s is of another type", table->name,
                                column->name);
        return NULL;
    }
    if (table->n_cells == table->room) {
        int64_t room = table->room < 256 ? 256 : 2 * table->room;
        table->status =
            hl_realloc((void **)&table->cells, (size_t)table->room, (size_t)room, sizeof(hl_cell));
        if (table->status != HL_OK)
            return NULL;
        table->room = room;
    }
    return &table->cells[table->n_cells++];
}

void hl_sheet_put_int(hl_sheet *table, int64_t value)
{
    hl_cell *cell = next_cell(table, HL_COLUMN_INT);

    if (cell != NULL)
        cell->whole = value;
}

void hl_sheet_put_real(hl_sheet *table, double value)
{
    hl_cell *cell = next_cell(table, HL_COLUMN_REAL);

    if (cell != NULL)
        cell->real = value;
}

void hl_sheet_put_bool(hl_sheet *table, bool value)
{
    hl_cell *cell = next_cell(table, HL_COLUMN_BOOL);

    if (cell != NULL)
        cell->whole = value;
}

/* What the format gives, however long, and what is shown of it where that is something else. */
static hl_status format_text(char **out, char **shown, const char *format, va_list arguments)
{
    va_list again;

    va_copy(again, arguments);
    int       length = vsnprintf(NULL, 0, format, again);
    hl_status status = length < 0 ? hl_fail(HL_INTERNAL, "cannot format '%s'", format)
                                  : hl_alloc((void **)out, (size_t)length + 1, 1);
    va_end(again);
    if (status != HL_OK)
        return status;
    vsnprintf(*out, (size_t)length + 1, format, arguments);
    size_t n_shown = hl_printable(NULL, 0, *out, (size_t)length, HL_PRINTABLE_LINE);
    if (n_shown == (size_t)length && hl_utf8_find_bad(*out, n_shown) == n_shown)
        return HL_OK; /* only U+FFFD may have the length of what it replaces */
    status = hl_alloc((void **)shown, n_shown + 1, 1);
    if (status == HL_OK)
        hl_printable(*shown, n_shown + 1, *out, (size_t)length, HL_PRINTABLE_LINE);
    return status;
}

void hl_sheet_put_text(hl_sheet *table, const char *format, ...)
{
    hl_cell *cell = next_cell(table, HL_COLUMN_TEXT);
    va_list  arguments;

    if (cell == NULL)
        return;
    cell->text  = NULL;
    cell->shown = NULL;
    va_start(arguments, format);
    table->status = format_text(&cell->text, &cell->shown, format, arguments);
    va_end(arguments);
}

static hl_fact *next_fact(hl_sheet *table, const char *name)
{
    if (table->status == HL_OK)
        table->status = hl_realloc((void **)&table->facts, (size_t)table->n_facts,
                                   (size_t)table->n_facts + 1, sizeof(hl_fact));
    if (table->status != HL_OK)
        return NULL;
    table->facts[table->n_facts] = (hl_fact){ .name = name };
    return &table->facts[table->n_facts++];
}

void hl_sheet_fact_real(hl_sheet *table, const char *name, double value)
{
    hl_fact *fact = next_fact(table, name);

    if (fact != NULL)
        fact->number = value;
}

void hl_sheet_fact_text(hl_sheet *table, const char *name, const char *format, ...)
{
    hl_fact *fact = next_fact(table, name);
    va_list  arguments;

    if (fact == NULL)
        return;
    va_start(arguments, format);
    table->status = format_text(&fact->text, &fact->shown, format, arguments);
    va_end(arguments);
}

hl_status hl_sheet_finish(hl_sheet *table)
{
    if (table->status == HL_OK && table->n_cells % table->n_columns != 0)
        table->status =
            hl_fail(HL_INTERNAL, "table %s: its last row has %lld of %lld cells", table->name,
                    (long long)(table->n_cells % table->n_columns), (long long)table->n_columns);
    return table->status;
}

hl_status hl_sheet_hand_over(hl_sheet **out, hl_sheet *table, hl_status status)
{
    if (status == HL_OK)
        status = hl_sheet_finish(table);
    if (status == HL_OK)
        *out = table;
    else
        hl_sheet_free(table);
    return status;
}

/* ------------------------------------------------------------------ reading */

const char *hl_sheet_name(const hl_sheet *table)
{
    return table->name;
}

const char *hl_sheet_title(const hl_sheet *table)
{
    return table->title;
}

int64_t hl_sheet_n_rows(const hl_sheet *table)
{
    return table->n_cells / table->n_columns;
}

int64_t hl_sheet_n_columns(const hl_sheet *table)
{
    return table->n_columns;
}

const char *hl_sheet_column_name(const hl_sheet *table, int64_t column)
{
    return table->columns[column].name;
}

hl_column_type hl_sheet_column_type(const hl_sheet *table, int64_t column)
{
    return table->columns[column].type;
}

int64_t hl_sheet_find(const hl_sheet *table, const char *name)
{
    for (int64_t column = 0; column < table->n_columns; column++) {
        if (strcmp(table->columns[column].name, name) == 0)
            return column;
    }
    return -1;
}

double hl_sheet_number(const hl_sheet *table, int64_t row, int64_t column)
{
    if (column < 0)
        return NAN;

    const hl_cell *cell = &table->cells[row * table->n_columns + column];

    switch (table->columns[column].type) {
    case HL_COLUMN_REAL:
        return cell->real;
    case HL_COLUMN_INT:
    case HL_COLUMN_BOOL:
        return cell->whole == HL_NO_INT ? NAN : (double)cell->whole;
    default:
        return NAN;
    }
}

const char *hl_sheet_text(const hl_sheet *table, int64_t row, int64_t column)
{
    return column >= 0 && table->columns[column].type == HL_COLUMN_TEXT
               ? table->cells[row * table->n_columns + column].text
               : "";
}

double hl_sheet_fact(const hl_sheet *table, const char *name)
{
    for (int64_t i = 0; i < table->n_facts; i++) {
        if (strcmp(table->facts[i].name, name) == 0)
            return table->facts[i].text == NULL ? table->facts[i].number : NAN;
    }
    return NAN;
}
