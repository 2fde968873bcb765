/* prune_budget.h - for prune: a budget instead of a number of heads, and heads that are kept. */
#ifndef HL_CLI_PRUNE_BUDGET_H
#define HL_CLI_PRUNE_BUDGET_H

#include <jansson.h>

#include "evidence.h"
#include "headlight.h"
#include "options.h"

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
void    hl_budget_print(const hl_frontier *frontier);
json_t *hl_budget_json(const hl_frontier *frontier);

#endif
