/* sheet_data.h - what a table holds, for sheet.c and sheet_write.c alone. */
#ifndef HL_ANALYSIS_SHEET_DATA_H
#define HL_ANALYSIS_SHEET_DATA_H

#include "analysis/sheet.h"

typedef union hl_cell {
    double  real;
    int64_t whole; /* INT and BOOL */
    struct {
        char *text;
        char *shown; /* the text through hl_printable; NULL: the text is harmless as it is */
    };
} hl_cell;

typedef struct hl_fact {
    const char *name;
    char       *text;  /* NULL: it is a number */
    char       *shown; /* as in a cell */
    double      number;
} hl_fact;

struct hl_sheet {
    const char      *name;
    const char      *title;
    const hl_column *columns; /* (n_columns) */
    int64_t          n_columns;
    hl_cell         *cells; /* (n_rows, n_columns) */
    int64_t          n_cells;
    int64_t          room;
    hl_fact         *facts; /* (n_facts) */
    int64_t          n_facts;
    hl_status        status; /* the first error */
};

#endif
