/* prune_repair.h - --repair of headlight prune: its options, the work, and its output. */
#ifndef HL_CLI_PRUNE_REPAIR_H
#define HL_CLI_PRUNE_REPAIR_H

#include <jansson.h>

#include "headlight.h"
#include "options.h"

/* The words of --repair, in their order; -1: not given. */
enum { HL_REPAIR_ATTENTION = 0, HL_REPAIR_NONE };

typedef struct hl_repair_request {
    int         wanted; /* -1: attention where a text is at hand */
    const char *state;  /* NULL: beside the output */
    bool        resume;
} hl_repair_request;

#define HL_REPAIR_OPTIONS(request)                                                                 \
    HL_ENUM("repair", 0, &(request)->wanted, "attention|none",                                     \
            "solve output projections again, on --text (attention, where there is one)"),          \
        HL_TEXT("state", 0, &(request)->state, "FILE", "where the repair's state is saved"),       \
        HL_FLAG("resume", 0, &(request)->resume, "continue from the state if it exists")

/* Texts to repair on, and how. */
typedef struct hl_repair_work {
    const hl_repair_request *request;
    const hl_option_list    *texts;
    const char              *tokenizer_path; /* NULL: the model's own */
    hl_window_options        windows;
    int32_t                  n_threads;
    bool                     quiet;
    const char              *output; /* the model to write */
    bool                     mean;   /* --mean is given */

    hl_repair *repair;    /* NULL: nothing was repaired */
    char       why[1024]; /* why nothing was repaired; "" if that needs no explanation */
    char      *state_path;
} hl_repair_work;

/* Is what was asked for possible at all?  To ask before long work. */
int hl_repair_refuse(const hl_repair_work *work, const hl_usage *usage);
/* As above, of the model. */
hl_status hl_repair_prepare(hl_repair_work *work, const hl_model *model);
/* work->repair, unless none is wanted or possible. */
hl_status hl_repair_run(hl_repair_work *work, const hl_model *model, const hl_head_list *heads);
/* What it came to: lines of text; an object, or NULL. */
void    hl_repair_print(const hl_repair_work *work);
json_t *hl_repair_json(const hl_repair_work *work);
/* The state goes when all that was asked for is there. */
void hl_repair_done(hl_repair_work *work);
void hl_repair_close(hl_repair_work *work);

#endif
