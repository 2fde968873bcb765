/* prune_parts.h - the parts of headlight prune: --repair, the timing of both models, and budgets.
 * Each has its options, its work and its output. */
#ifndef HL_CLI_PRUNE_PARTS_H
#define HL_CLI_PRUNE_PARTS_H

#include <jansson.h>

#include "evidence.h"
#include "headlight.h"
#include "options.h"

/* ------------------------------------------------------------------ repair */

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
/* After that: will there be a repair? */
bool hl_repair_is_planned(const hl_repair_work *work);
/* work->repair, unless none is wanted or possible. */
hl_status hl_repair_run(hl_repair_work *work, const hl_model *model, const hl_head_list *heads);
/* What it came to: lines of text; an object, or NULL. */
void    hl_repair_print(const hl_repair_work *work);
json_t *hl_repair_json(const hl_repair_work *work);
/* The state goes when all that was asked for is there. */
void hl_repair_done(hl_repair_work *work);
void hl_repair_close(hl_repair_work *work);

/* ------------------------------------------------------------------ timing */

/* The speed of both models, measured in turns, and their files. */
typedef struct hl_timing {
    bool          done;
    hl_speed_pair pair;
    size_t        files_before; /* bytes on disk */
    size_t        files_after;
} hl_timing;

/* Times the model and the one that was written at `path`, on the model's device. */
hl_status hl_timing_take(hl_timing *out, const hl_model *model, const char *before,
                         const char *path, const char *device, int32_t n_threads);
hl_status hl_timing_print(const hl_timing *timing); /* nothing if not done, as the next: NULL */
json_t   *hl_timing_json(const hl_timing *timing);

/* ----------------------------------------------------------------- budgets */

/* Budgets on the command line, and their frontier. */
typedef struct hl_budget_request {
    double         until_loss; /* -1: not given, as the next */
    double         until_kl;
    const char    *until_bytes; /* "100M" */
    size_t         n_bytes;     /* the same as a number; 0: not given */
    hl_option_list test_texts;
    const char    *keep; /* "sink,L0H1" */
} hl_budget_request;

/* clang-format off */
#define HL_BUDGET_OPTIONS(request)                                                                 \
    HL_NUMBER("until-loss", 0, &(request)->until_loss, "NATS",                                     \
              "as many heads as cost at most NATS per token (0.05)", 0, 1000),                     \
    HL_NUMBER("until-kl", 0, &(request)->until_kl, "NATS",                                         \
              "as many as move predictions at most this KL per token", 0, 1000),                   \
    HL_TEXT("until-bytes", 0, &(request)->until_bytes, "N",                                        \
            "as few as leave N bytes of tensors: 100M, 90Mi"),                                     \
    HL_LIST("test-text", 0, &(request)->test_texts, "FILE",                                        \
            "held-out text for budgets (every second window of --text)"),                          \
    HL_TEXT("keep", 0, &(request)->keep, "HEADS|TYPES", "heads that stay: L0,L5H1,induction")
/* clang-format on */

/* Is a budget given? */
bool hl_budget_given(const hl_budget_request *request);
/* Checks the values; has_text: --text is given.  Returns HL_EXIT_OK, or the exit status after a message. */
int hl_budget_refuse(hl_budget_request *request, const hl_usage *usage, bool has_text);

/* Reads --keep; types of heads are measured on the texts, into the evidence. */
hl_status hl_budget_keep(hl_head_list **out, hl_evidence *evidence, const hl_model *model,
                         const hl_budget_request *request, const hl_evidence_request *texts);

/* Prints what was tried and what is recommended. */
hl_status hl_budget_print(const hl_frontier *frontier);
json_t   *hl_budget_json(const hl_frontier *frontier);

#endif
