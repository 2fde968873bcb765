/* show_print.h - a profile on one screen. */
#ifndef HL_CLI_SHOW_PRINT_H
#define HL_CLI_SHOW_PRINT_H

#include "headlight.h"
#include "shade.h"

typedef struct hl_show_request {
    const char       *path;
    const hl_profile *profile;
    const char       *by; /* a column of the table of heads; NULL: fair */
    hl_depth          depth;
    uint64_t          seed;
} hl_show_request;

/* Both return the library's status; nothing has been printed where they fail. */
hl_status hl_show_print(const hl_show_request *request);
hl_status hl_show_print_json(const hl_show_request *request);

#endif
