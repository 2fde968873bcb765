/* sheet_write.c - one table, three ways: for people, for spreadsheets, for programs.
 *
 *     text   columns side by side, numbers to the right with their decimals, large ones as
 *            10,616,832, "-" for what was not measured; a last column of long text is wrapped at 80
 *     CSV    RFC 4180: a line of names, then values with all digits, nothing for what was
 *            not measured; facts are left out
 *     JSON   { "table", "title", "facts": {...}, "rows": [{...}] }, null for what was not
 *            measured */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/sheet_data.h"
#include "analysis/text.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"

enum { PAGE_WIDTH = 80, LEAST_WRAP = 24, GAP = 2 };

static const hl_cell *cell_at(const hl_sheet *table, int64_t row, int64_t column)
{
    return &table->cells[row * table->n_columns + column];
}

/* --------------------------------------------------------------------- text */

/* The text of a cell as it may be shown: names in it come from files that anybody may have made. */
static const char *shown_text(const hl_cell *cell)
{
    return cell->shown != NULL ? cell->shown : cell->text;
}

/* A whole number with its digits in groups of three: 10,616,832. */
static void group_digits(char room[32], double number)
{
    char digits[32];
    int  n_digits = snprintf(digits, sizeof digits, "%.0f", fabs(number));
    int  at       = 0;

    if (number < 0.0 && strcmp(digits, "0") != 0)
        room[at++] = '-';
    for (int i = 0; i < n_digits; i++) {
        if (i > 0 && (n_digits - i) % 3 == 0)
            room[at++] = ',';
        room[at++] = digits[i];
    }
    room[at] = '\0';
}

/* A cell as people read it; borrowed from the table or from `room`. */
static const char *plain_cell(char room[32], const hl_sheet *table, int64_t row, int64_t column)
{
    const hl_cell   *cell = cell_at(table, row, column);
    const hl_column *kind = &table->columns[column];

    switch (kind->type) {
    case HL_COLUMN_TEXT:
        return shown_text(cell);
    case HL_COLUMN_BOOL:
        return cell->whole != 0 ? "yes" : "no";
    case HL_COLUMN_INT:
        if (cell->whole == HL_NO_INT)
            return "-";
        snprintf(room, 32, "%lld", (long long)cell->whole);
        return room;
    default:
        if (isnan(cell->real))
            return "-";
        /* A small number must not look like none. */
        bool small = cell->real != 0.0 && fabs(cell->real) < 0.5 * pow(10.0, -kind->decimals);
        if (small || !(fabs(cell->real) < 1e15))
            snprintf(room, 32, "%.0e", cell->real);
        else if (kind->decimals == 0 || fabs(cell->real) >= 1e7)
            group_digits(room, cell->real);
        else
            snprintf(room, 32, "%.*f", kind->decimals, cell->real);
        return room;
    }
}

static void measure_columns(int64_t *widths, const hl_sheet *table)
{
    for (int64_t column = 0; column < table->n_columns; column++) {
        widths[column] = hl_text_width(table->columns[column].name);
        for (int64_t row = 0; row < hl_sheet_n_rows(table); row++) {
            char    room[32];
            int64_t width = hl_text_width(plain_cell(room, table, row, column));

            widths[column] = width > widths[column] ? width : widths[column];
        }
    }
}

/* As many bytes of the text, cut between words, as fit into the width. */
static size_t fitting_bytes(const char *text, int64_t width)
{
    size_t  last_space = 0;
    size_t  i          = 0;
    int64_t used       = 0;

    for (; text[i] != '\0'; i++) {
        if (text[i] == ' ')
            last_space = i;
        used += ((unsigned char)text[i] & 0xc0) != 0x80;
        if (used > width)
            return last_space > 0 ? last_space : i;
    }
    return i;
}

/* The last column, over as many lines as it takes. */
static void add_wrapped(hl_text *out, const char *text, int64_t start)
{
    int64_t width = PAGE_WIDTH - start > LEAST_WRAP ? PAGE_WIDTH - start : LEAST_WRAP;

    for (;;) {
        size_t n_bytes = fitting_bytes(text, width);
        hl_text_add(out, text, n_bytes);
        text += n_bytes;
        if (*text == '\0')
            return;
        text += *text == ' ';
        hl_text_add(out, "\n", 1);
        hl_text_pad(out, start);
    }
}

static void add_line(hl_text *out, const hl_sheet *table, const int64_t *widths, int64_t row)
{
    int64_t start = 0;

    for (int64_t column = 0; column < table->n_columns; column++) {
        char        room[32];
        const char *text =
            row < 0 ? table->columns[column].name : plain_cell(room, table, row, column);
        int64_t space = widths[column] - hl_text_width(text);
        bool    words = table->columns[column].type == HL_COLUMN_TEXT;
        bool    last  = column == table->n_columns - 1;

        if (words && last) {
            add_wrapped(out, text, start);
        } else {
            hl_text_pad(out, words ? 0 : space);
            hl_text_addf(out, "%s", text);
            hl_text_pad(out, GAP + (words ? space : 0));
        }
        start += widths[column] + GAP;
    }
    hl_text_end_line(out);
}

static void add_grouped(hl_text *out, double number)
{
    char room[32];

    group_digits(room, number);
    hl_text_addf(out, "%s", room);
}

static void add_facts(hl_text *out, const hl_sheet *table)
{
    int64_t longest = 0;

    for (int64_t i = 0; i < table->n_facts; i++) {
        int64_t width = hl_text_width(table->facts[i].name);
        longest       = width > longest ? width : longest;
    }
    if (table->n_facts > 0)
        hl_text_add(out, "\n", 1);
    for (int64_t i = 0; i < table->n_facts; i++) {
        const hl_fact *fact = &table->facts[i];

        hl_text_addf(out, "%s", fact->name);
        hl_text_pad(out, longest - hl_text_width(fact->name) + GAP);
        if (fact->text != NULL)
            add_wrapped(out, fact->shown != NULL ? fact->shown : fact->text, longest + GAP);
        else if (isnan(fact->number))
            hl_text_add(out, "-", 1);
        else if (fabs(fact->number) >= 1e6 && fabs(fact->number) < 1e15)
            add_grouped(out, fact->number);
        else
            hl_text_addf(out, "%.6g", fact->number);
        hl_text_add(out, "\n", 1);
    }
}

static hl_status write_text(hl_text *out, const hl_sheet *table)
{
    int64_t  *widths = NULL;
    hl_status status = HL_ALLOC(&widths, (size_t)table->n_columns);

    if (status != HL_OK)
        return status;
    measure_columns(widths, table);
    hl_text_addf(out, "%s\n\n", table->title);
    if (hl_sheet_n_rows(table) == 0)
        hl_text_addf(out, "nothing to show\n");
    for (int64_t row = -1; row < hl_sheet_n_rows(table) && hl_sheet_n_rows(table) > 0; row++)
        add_line(out, table, widths, row);
    add_facts(out, table);
    hl_free(widths);
    return HL_OK;
}

/* ---------------------------------------------------------------------- CSV */

/* The fewest digits that read back as the same number. */
static void add_exact(hl_text *out, double number)
{
    char room[40];

    for (int digits = 15; digits <= 17; digits++) {
        snprintf(room, sizeof room, "%.*g", digits, number);
        if (strtod(room, NULL) == number)
            break;
    }
    hl_text_addf(out, "%s", room);
}

/* A spreadsheet takes a text that begins with one of these signs for a formula and runs it; an
 * apostrophe before it makes it a text again. */
static void add_quoted(hl_text *out, const char *text)
{
    const char *mark = text[0] != '\0' && strchr("=+-@\t\r", text[0]) != NULL ? "'" : "";

    if (strpbrk(text, ",\"\r\n") == NULL) {
        hl_text_addf(out, "%s%s", mark, text);
        return;
    }
    hl_text_addf(out, "\"%s", mark);
    for (; *text != '\0'; text++)
        hl_text_add(out, *text == '"' ? "\"\"" : text, *text == '"' ? 2 : 1);
    hl_text_add(out, "\"", 1);
}

static void add_csv_cell(hl_text *out, const hl_sheet *table, int64_t row, int64_t column)
{
    const hl_cell *cell = cell_at(table, row, column);

    switch (table->columns[column].type) {
    case HL_COLUMN_TEXT:
        add_quoted(out, shown_text(cell));
        break;
    case HL_COLUMN_BOOL:
        hl_text_addf(out, "%s", cell->whole != 0 ? "true" : "false");
        break;
    case HL_COLUMN_INT:
        if (cell->whole != HL_NO_INT)
            hl_text_addf(out, "%lld", (long long)cell->whole);
        break;
    case HL_COLUMN_REAL:
        if (isfinite(cell->real))
            add_exact(out, cell->real);
        break;
    }
}

static void write_csv(hl_text *out, const hl_sheet *table)
{
    for (int64_t column = 0; column < table->n_columns; column++) {
        hl_text_addf(out, "%s", column > 0 ? "," : "");
        add_quoted(out, table->columns[column].name);
    }
    hl_text_addf(out, "\r\n");
    for (int64_t row = 0; row < hl_sheet_n_rows(table); row++) {
        for (int64_t column = 0; column < table->n_columns; column++) {
            hl_text_addf(out, "%s", column > 0 ? "," : "");
            add_csv_cell(out, table, row, column);
        }
        hl_text_addf(out, "\r\n");
    }
}

/* --------------------------------------------------------------------- JSON */

static json_t *json_number(double number)
{
    return isfinite(number) ? json_real(number) : json_null();
}

static json_t *json_cell(const hl_sheet *table, int64_t row, int64_t column)
{
    const hl_cell *cell = cell_at(table, row, column);

    switch (table->columns[column].type) {
    case HL_COLUMN_TEXT:
        return hl_json_text(cell->text, strlen(cell->text));
    case HL_COLUMN_BOOL:
        return json_boolean(cell->whole);
    case HL_COLUMN_INT:
        return cell->whole != HL_NO_INT ? json_integer(cell->whole) : json_null();
    default:
        return json_number(cell->real);
    }
}

static json_t *json_row(const hl_sheet *table, int64_t row)
{
    json_t *object = json_object();

    for (int64_t column = 0; column < table->n_columns; column++)
        hl_json_put(&object, table->columns[column].name, json_cell(table, row, column));
    return object;
}

/* What cannot be made is NULL, and so is all that it would be part of: one look at the end. */
static hl_status write_json(hl_text *out, const hl_sheet *table)
{
    json_t *facts = json_object();
    json_t *rows  = json_array();

    for (int64_t i = 0; i < table->n_facts; i++)
        hl_json_put(&facts, table->facts[i].name,
                    table->facts[i].text != NULL ? json_string(table->facts[i].text)
                                                 : json_number(table->facts[i].number));
    for (int64_t row = 0; row < hl_sheet_n_rows(table); row++)
        hl_json_add(&rows, json_row(table, row));
    json_t *root = json_pack("{s:s, s:s, s:o, s:o}", "table", table->name, "title", table->title,
                             "facts", facts, "rows", rows);
    char   *text = hl_json_dump(root, JSON_INDENT(1));

    json_decref(root);
    if (text == NULL)
        return hl_fail(HL_NO_MEMORY, "table %s: out of memory for its JSON", table->name);
    hl_text_addf(out, "%s\n", text);
    hl_free(text);
    return HL_OK;
}

hl_status hl_sheet_render(char **out, const hl_sheet *table, hl_sheet_format format)
{
    hl_text   text   = { 0 };
    hl_status status = HL_OK;

    *out = NULL;
    if (format == HL_SHEET_TEXT)
        status = write_text(&text, table);
    else if (format == HL_SHEET_CSV)
        write_csv(&text, table);
    else
        status = write_json(&text, table);
    if (text.status == HL_OK)
        text.status = status;
    return hl_text_finish(out, &text);
}
