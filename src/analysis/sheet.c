/* sheet.c - small tables: cells in one growing array, row after row, and three ways to render them.
 *
 *     text   columns side by side, numbers to the right with their decimals, large ones as
 *            10,616,832, "-" for what was not measured; a last column of long text is wrapped at 80
 *     CSV    RFC 4180: a line of names, then values with all digits, nothing for what was
 *            not measured; facts are left out
 *     JSON   { "table", "title", "facts": {...}, "rows": [{...}] }, null for what was not
 *            measured */
#include "analysis/sheet.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"
#include "stats/profile.h"

enum { PAGE_WIDTH = 80, LEAST_WRAP = 24, GAP = 2 };

typedef union sheet_cell {
    double  real;
    int64_t whole; /* for INT and BOOL */
    struct {
        char *text;
        char *shown; /* the text made safe by hl_printable; NULL if it is already safe */
    };
} sheet_cell;

typedef struct sheet_fact {
    const char *name;
    char       *text;  /* NULL if the fact is a number */
    char       *shown; /* the text made safe, as in sheet_cell */
    double      number;
} sheet_fact;

typedef struct sheet_column {
    const char    *name; /* points into the sheet's `names` */
    hl_column_type type;
    int            decimals; /* number of decimals of a REAL, in text */
} sheet_column;

struct hl_sheet {
    const char   *name;
    const char   *title;
    sheet_column *columns; /* (n_columns) */
    char         *names;
    int64_t       n_columns;
    int64_t       n_shown; /* number of columns in text */
    int64_t       n_most;  /* number of rows in text; 0: all */
    sheet_cell   *cells;   /* (n_rows, n_columns) */
    int64_t       n_cells;
    size_t        room;
    sheet_fact   *facts; /* (n_facts) */
    int64_t       n_facts;
    char         *layers; /* names of layers, separated by spaces; NULL: numbers */
    hl_status     status; /* first error */
};

hl_status hl_sheet_new(hl_sheet **out, const char *name, const char *title, const char *columns)
{
    HL_CLOSED(hl_sheet_free) hl_sheet *table = NULL;
    char                              *rest  = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&table, 1));
    HL_NEED(hl_strdup(&table->names, columns));
    HL_NEED(HL_ALLOC(&table->columns, strlen(columns) / 2));
    for (char *word = strtok_r(table->names, " ", &rest); word != NULL;
         word       = strtok_r(NULL, " ", &rest)) {
        char *type = strchr(word, ':');

        if (strcmp(word, "|") == 0) {
            table->n_shown = table->n_columns;
            continue;
        }
        if (type == NULL)
            return hl_fail(HL_BAD_ARGUMENT, "table %s: column %s has no type", name, word);
        *type++                            = '\0';
        table->columns[table->n_columns++] = (sheet_column){
            .name     = word,
            .type     = *type == 't'   ? HL_COLUMN_TEXT
                        : *type == 'i' ? HL_COLUMN_INT
                        : *type == 'b' ? HL_COLUMN_BOOL
                        : *type == 'l' ? HL_COLUMN_LIST
                                       : HL_COLUMN_REAL,
            .decimals = *type - '0',
        };
    }
    if (table->n_columns == 0)
        return hl_fail(HL_BAD_ARGUMENT, "table %s has no columns", name);
    if (table->n_shown == 0)
        table->n_shown = table->n_columns;
    table->name  = name;
    table->title = title;
    *out         = hl_taken(&table);
    return HL_OK;
}

/* Do cells of this column own a text? */
static bool has_text(const sheet_column *column)
{
    return column->type == HL_COLUMN_TEXT || column->type == HL_COLUMN_LIST;
}

void hl_sheet_free(hl_sheet *table)
{
    if (table == NULL)
        return;
    for (int64_t i = 0; i < table->n_cells; i++) {
        if (!has_text(&table->columns[i % table->n_columns]))
            continue;
        hl_free(table->cells[i].text);
        hl_free(table->cells[i].shown);
    }
    for (int64_t i = 0; i < table->n_facts; i++) {
        hl_free(table->facts[i].text);
        hl_free(table->facts[i].shown);
    }
    hl_free(table->columns);
    hl_free(table->names);
    hl_free(table->layers);
    hl_free(table->cells);
    hl_free(table->facts);
    hl_free(table);
}

void hl_sheet_name_layers(hl_sheet *table, const char *layers)
{
    if (layers != NULL && table->layers == NULL && table->status == HL_OK)
        table->status = hl_strdup(&table->layers, layers);
}

/* The name of a cell's layer; NULL if it holds none, or if layers have numbers only. */
static const char *layer_name(char room[HL_HEAD_NAME_BYTES], const hl_sheet *table,
                              const sheet_cell *cell, const sheet_column *column)
{
    if (table->layers == NULL || cell->whole == HL_NO_INT || strcmp(column->name, "layer") != 0)
        return NULL;
    return hl_head_name_among(room, table->layers, cell->whole, -1);
}

/* ------------------------------------------------------------------ filling */

/* Returns the next cell, which must have this type; NULL after an error. */
static sheet_cell *next_cell(hl_sheet *table, hl_column_type type)
{
    if (table->status != HL_OK)
        return NULL;
    const sheet_column *column = &table->columns[table->n_cells % table->n_columns];
    if (column->type != type) {
        table->status = hl_fail(HL_INTERNAL, "table %s: column %s is of another type", table->name,
                                column->name);
        return NULL;
    }
    table->status = HL_GROW(&table->cells, &table->room, (size_t)table->n_cells, 1);
    return table->status == HL_OK ? &table->cells[table->n_cells++] : NULL;
}

void hl_sheet_put_int(hl_sheet *table, int64_t value)
{
    sheet_cell *cell = next_cell(table, HL_COLUMN_INT);

    if (cell != NULL)
        cell->whole = value;
}

void hl_sheet_put_real(hl_sheet *table, double value)
{
    sheet_cell *cell = next_cell(table, HL_COLUMN_REAL);

    if (cell != NULL)
        cell->real = value;
}

void hl_sheet_put_bool(hl_sheet *table, bool value)
{
    sheet_cell *cell = next_cell(table, HL_COLUMN_BOOL);

    if (cell != NULL)
        cell->whole = value;
}

/* A list is kept as its digits, "576,1536", for text and JSON alike. */
void hl_sheet_put_list(hl_sheet *table, const int64_t *values, size_t count)
{
    sheet_cell *cell = next_cell(table, HL_COLUMN_LIST);
    hl_text     list = { 0 };

    if (cell == NULL)
        return;
    *cell = (sheet_cell){ 0 };
    for (size_t i = 0; i < count; i++)
        hl_text_addf(&list, "%s%lld", i > 0 ? "," : "", (long long)values[i]);
    table->status = hl_text_finish(&cell->text, &list);
}

void hl_sheet_add_ints(hl_sheet *table, const int64_t *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        hl_sheet_put_int(table, values[i]);
}

void hl_sheet_add_reals(hl_sheet *table, const double *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        hl_sheet_put_real(table, values[i]);
}

/* Formats a text of any length, and makes a safe copy if it is not safe to print. */
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
        return HL_OK; /* Only U+FFFD may have the length of what it replaces. */
    status = hl_alloc((void **)shown, n_shown + 1, 1);
    if (status == HL_OK)
        hl_printable(*shown, n_shown + 1, *out, (size_t)length, HL_PRINTABLE_LINE);
    return status;
}

void hl_sheet_put_text(hl_sheet *table, const char *format, ...)
{
    sheet_cell *cell = next_cell(table, HL_COLUMN_TEXT);
    va_list     arguments;

    if (cell == NULL)
        return;
    cell->text  = NULL;
    cell->shown = NULL;
    va_start(arguments, format);
    table->status = format_text(&cell->text, &cell->shown, format, arguments);
    va_end(arguments);
}

static sheet_fact *next_fact(hl_sheet *table, const char *name)
{
    if (table->status == HL_OK)
        table->status = HL_GROW_ONE(&table->facts, table->n_facts);
    if (table->status != HL_OK)
        return NULL;
    table->facts[table->n_facts] = (sheet_fact){ .name = name };
    return &table->facts[table->n_facts++];
}

void hl_sheet_fact_real(hl_sheet *table, const char *name, double value)
{
    sheet_fact *fact = next_fact(table, name);

    if (fact != NULL)
        fact->number = value;
}

void hl_sheet_fact_text(hl_sheet *table, const char *name, const char *format, ...)
{
    sheet_fact *fact = next_fact(table, name);
    va_list     arguments;

    if (fact == NULL)
        return;
    va_start(arguments, format);
    table->status = format_text(&fact->text, &fact->shown, format, arguments);
    va_end(arguments);
}

void hl_sheet_fact_interval(hl_sheet *table, const hl_interval *interval)
{
    char reason[80];

    hl_interval_reason(reason, sizeof reason, interval);
    hl_sheet_fact_text(table, "interval", "%s",
                       reason[0] != '\0' ? reason : hl_interval_method(interval->units));
    hl_sheet_fact_real(table, "interval level", interval->level);
    hl_sheet_fact_real(table, "interval n", (double)interval->n);
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

static const sheet_cell *cell_at(const hl_sheet *table, int64_t row, int64_t column)
{
    return &table->cells[row * table->n_columns + column];
}

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

    const sheet_cell *cell = cell_at(table, row, column);

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
    return column >= 0 && has_text(&table->columns[column]) ? cell_at(table, row, column)->text
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

void hl_sheet_shorten(hl_sheet *table, int64_t n_rows)
{
    table->n_most = n_rows;
}

/* ------------------------------------------------------------------ as text */

/* Returns the text of a cell as it may be printed: it can hold names from untrusted files. */
static const char *shown_text(const sheet_cell *cell)
{
    return cell->shown != NULL ? cell->shown : cell->text;
}

/* Writes an integer with its digits in groups of three, such as 10,616,832; returns `room`. */
static const char *group_digits(char room[32], double number)
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
    return room;
}

/* Returns the number of terminal columns of a UTF-8 text: one per character. */
static int64_t text_width(const char *text)
{
    int64_t width = 0;

    for (; *text != '\0'; text++)
        width += !hl_utf8_is_continuation(*text);
    return width;
}

static void pad(hl_text *text, int64_t n_spaces)
{
    if (n_spaces > 0)
        hl_text_addf(text, "%*s", (int)n_spaces, "");
}

/* Ends a line, and removes spaces at its end. */
static void end_line(hl_text *text)
{
    while (text->n_bytes > 0 && text->bytes[text->n_bytes - 1] == ' ')
        text->n_bytes--;
    hl_text_add(text, "\n", 1);
}

/* Returns a cell as text for people, borrowed from the table or from `room`. */
static const char *plain_cell(char room[HL_HEAD_NAME_BYTES], const hl_sheet *table, int64_t row,
                              int64_t column)
{
    const sheet_cell   *cell = cell_at(table, row, column);
    const sheet_column *kind = &table->columns[column];

    switch (kind->type) {
    case HL_COLUMN_TEXT:
    case HL_COLUMN_LIST:
        return shown_text(cell);
    case HL_COLUMN_BOOL:
        return cell->whole != 0 ? "yes" : "no";
    case HL_COLUMN_INT:
        if (cell->whole == HL_NO_INT)
            return "-";
        if (layer_name(room, table, cell, kind) == NULL)
            snprintf(room, HL_HEAD_NAME_BYTES, "%lld", (long long)cell->whole);
        return room;
    default:
        if (isnan(cell->real))
            return "-";
        /* A small number must not be printed as 0. */
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

/* Returns the number of bytes of the text, cut between words, that fit into the width; a first word
 * that does not fit stays whole, so that a path can be copied. */
static size_t fitting_bytes(const char *text, int64_t width)
{
    size_t  last_space = 0;
    size_t  i          = 0;
    int64_t used       = 0;

    for (; text[i] != '\0'; i++) {
        if (text[i] == ' ')
            last_space = i;
        used += ((unsigned char)text[i] & 0xc0) != 0x80;
        if (used > width && last_space > 0)
            return last_space;
    }
    return i;
}

/* Writes the last column over several lines if necessary. */
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
        pad(out, start);
    }
}

static void add_line(hl_text *out, const hl_sheet *table, const int64_t *widths, int64_t row)
{
    int64_t start = 0;

    for (int64_t column = 0; column < table->n_shown; column++) {
        char        room[HL_HEAD_NAME_BYTES];
        const char *text =
            row < 0 ? table->columns[column].name : plain_cell(room, table, row, column);
        int64_t space = widths[column] - text_width(text);
        bool    words = table->columns[column].type == HL_COLUMN_TEXT;
        bool    last  = column == table->n_shown - 1;

        if (words && last) {
            add_wrapped(out, text, start);
        } else {
            pad(out, words ? 0 : space);
            hl_text_addf(out, "%s", text);
            pad(out, GAP + (words ? space : 0));
        }
        start += widths[column] + GAP;
    }
    end_line(out);
}

static void add_facts(hl_text *out, const hl_sheet *table)
{
    int64_t longest = 0;

    for (int64_t i = 0; i < table->n_facts; i++) {
        int64_t width = text_width(table->facts[i].name);
        longest       = width > longest ? width : longest;
    }
    if (table->n_facts > 0)
        hl_text_add(out, "\n", 1);
    for (int64_t i = 0; i < table->n_facts; i++) {
        const sheet_fact *fact = &table->facts[i];
        char              room[HL_HEAD_NAME_BYTES];

        hl_text_addf(out, "%s", fact->name);
        pad(out, longest - text_width(fact->name) + GAP);
        if (fact->text != NULL)
            add_wrapped(out, fact->shown != NULL ? fact->shown : fact->text, longest + GAP);
        else if (isnan(fact->number))
            hl_text_add(out, "-", 1);
        else if (fabs(fact->number) >= 1e6 && fabs(fact->number) < 1e15)
            hl_text_addf(out, "%s", group_digits(room, fact->number));
        else
            hl_text_addf(out, "%.6g", fact->number);
        hl_text_add(out, "\n", 1);
    }
}

static hl_status write_text(hl_text *out, const hl_sheet *table)
{
    HL_FREED int64_t *widths = NULL;
    int64_t           n_rows = hl_sheet_n_rows(table);

    if (table->n_most > 0 && table->n_most < n_rows)
        n_rows = table->n_most;
    HL_NEED(HL_ALLOC(&widths, (size_t)table->n_shown));
    for (int64_t column = 0; column < table->n_shown; column++) {
        widths[column] = text_width(table->columns[column].name);
        for (int64_t row = 0; row < n_rows; row++) {
            char    room[HL_HEAD_NAME_BYTES];
            int64_t width = text_width(plain_cell(room, table, row, column));

            widths[column] = width > widths[column] ? width : widths[column];
        }
    }
    hl_text_addf(out, "%s\n\n", table->title);
    if (n_rows == 0)
        hl_text_addf(out, "nothing to show\n");
    for (int64_t row = -1; row < n_rows && n_rows > 0; row++)
        add_line(out, table, widths, row);
    if (n_rows < hl_sheet_n_rows(table))
        hl_text_addf(out, "... and %lld more\n", (long long)(hl_sheet_n_rows(table) - n_rows));
    add_facts(out, table);
    return HL_OK;
}

/* ------------------------------------------------------------------- as CSV */

/* Writes the fewest digits that are read back as the same number. */
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

/* A spreadsheet evaluates a text that begins with one of these signs as a formula. An apostrophe
 * before it prevents that. */
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
    const sheet_cell *cell = cell_at(table, row, column);
    char              room[HL_HEAD_NAME_BYTES];

    switch (table->columns[column].type) {
    case HL_COLUMN_TEXT:
    case HL_COLUMN_LIST:
        add_quoted(out, shown_text(cell));
        break;
    case HL_COLUMN_BOOL:
        hl_text_addf(out, "%s", cell->whole != 0 ? "true" : "false");
        break;
    case HL_COLUMN_INT:
        if (layer_name(room, table, cell, &table->columns[column]) != NULL)
            hl_text_addf(out, "%s", room);
        else if (cell->whole != HL_NO_INT)
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

/* ------------------------------------------------------------------ as JSON */

static json_t *json_list(const char *digits)
{
    json_t *list = json_array();

    while (*digits != '\0') {
        char *end = NULL;

        hl_json_add(&list, json_integer(strtoll(digits, &end, 10)));
        digits = end + (*end == ',');
    }
    return list;
}

static json_t *json_cell(const hl_sheet *table, int64_t row, int64_t column)
{
    const sheet_cell *cell = cell_at(table, row, column);

    switch (table->columns[column].type) {
    case HL_COLUMN_TEXT:
        return hl_json_text(cell->text, strlen(cell->text));
    case HL_COLUMN_BOOL:
        return json_boolean(cell->whole);
    case HL_COLUMN_INT:
        return cell->whole != HL_NO_INT ? json_integer(cell->whole) : json_null();
    case HL_COLUMN_LIST:
        return json_list(cell->text);
    default:
        return hl_json_number(cell->real);
    }
}

/* If a value cannot be made it is NULL, and so are all values that contain it. One check at the
 * end is therefore enough. */
static hl_status write_json(hl_text *out, const hl_sheet *table)
{
    json_t *facts = json_object();
    json_t *rows  = json_array();

    for (int64_t i = 0; i < table->n_facts; i++)
        hl_json_put(&facts, table->facts[i].name,
                    table->facts[i].text != NULL ? json_string(table->facts[i].text)
                                                 : hl_json_number(table->facts[i].number));
    for (int64_t row = 0; row < hl_sheet_n_rows(table); row++) {
        json_t *object = json_object();
        char    room[HL_HEAD_NAME_BYTES];

        for (int64_t column = 0; column < table->n_columns; column++) {
            hl_json_put(&object, table->columns[column].name, json_cell(table, row, column));
            if (table->columns[column].type == HL_COLUMN_INT &&
                layer_name(room, table, cell_at(table, row, column), &table->columns[column]) !=
                    NULL)
                hl_json_put(&object, "layer_name", json_string(room));
        }
        hl_json_add(&rows, object);
    }
    json_auto_t   *root = json_pack("{s:s, s:s, s:o, s:o}", "table", table->name, "title",
                                    table->title, "facts", facts, "rows", rows);
    HL_FREED char *text = hl_json_dump(root, JSON_INDENT(1));

    if (text == NULL)
        return hl_fail(HL_NO_MEMORY, "table %s: out of memory for its JSON", table->name);
    hl_text_addf(out, "%s\n", text);
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
