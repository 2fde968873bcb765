/* verify_print.h - what `headlight verify` shows: tables, or JSON.
 *
 *     hl_verify_printer printer = { .n_cases = ..., .backends = ... };
 *     hl_verify_print_begin(&printer);
 *     hl_verify_print_case(&printer, report);      for every case, as it is done
 *     hl_verify_print_unread(&printer, path);      or this
 *     hl_verify_print_end(&printer);
 *
 * Text comes out case by case; JSON, being one object, at the end. */
#ifndef HL_CLI_VERIFY_PRINT_H
#define HL_CLI_VERIFY_PRINT_H

#include "headlight.h"
#include "options.h"
#include "terminal.h"

typedef enum hl_verify_style {
    HL_VERIFY_FULL = 0, /* a table for every case */
    HL_VERIFY_COMPACT,  /* a line for every case  */
    HL_VERIFY_JSON,
    HL_VERIFY_SILENT,
} hl_verify_style;

typedef struct hl_verify_printer {
    hl_verify_style    style;
    size_t             n_cases;
    const char *const *backends; /* those that are run, NULL-terminated */
    int                name_width;

    /* Kept from case to case. */
    hl_colours colours;
    size_t     n_failed;
    size_t     n_unread;
    char       failed[200]; /* the names of the first of them */
    void      *json;        /* the array of cases */
} hl_verify_printer;

void hl_verify_print_begin(hl_verify_printer *printer);
void hl_verify_print_case(hl_verify_printer *printer, const hl_verify_report *report);
/* The case could not be read or run; hl_error_message() says why. */
void hl_verify_print_unread(hl_verify_printer *printer, const char *path, hl_status status);
void hl_verify_print_end(hl_verify_printer *printer);

#endif
