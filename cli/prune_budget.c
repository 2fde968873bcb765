/* prune_budget.c - budgets of prune: their options, and the frontier that comes of them. */
#include "prune_parts.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "held.h"
#include "screen.h"
#include "values.h"

/* --------------------------------------------------------------------- options */

bool hl_budget_given(const hl_budget_request *request)
{
    return request->until_loss >= 0.0 || request->until_kl >= 0.0 || request->until_bytes != NULL;
}

/* "100M" is 100 million, "90Mi" 90 times 2 to the 20th; false for anything else. */
static bool read_size(size_t *out, const char *text)
{
    static const char letters[] = "kmgt";
    char             *end       = NULL;
    double            number    = strtod(text, &end);
    double            unit      = 1.0;

    if (end == text || !isfinite(number))
        return false;
    if (*end != '\0') {
        const char *letter = strchr(letters, *end | 0x20);
        bool        binary = letter != NULL && end[1] == 'i';

        if (letter == NULL)
            return false;
        unit = pow(binary ? 1024.0 : 1000.0, (double)(letter - letters + 1));
        end += binary ? 2 : 1;
    }
    if (*end == 'B')
        end++;
    number *= unit;
    if (*end != '\0' || !(number >= 1.0) || !(number < 9e15))
        return false;
    *out = (size_t)number;
    return true;
}

int hl_budget_refuse(hl_budget_request *request, const hl_usage *usage, bool has_text)
{
    if (request->until_bytes != NULL && !read_size(&request->n_bytes, request->until_bytes))
        return hl_options_refuse(
            usage, "--until-bytes: '%s' is not a number of bytes, such as 100M or 90Mi",
            request->until_bytes);
    if (request->until_loss == 0.0 || request->until_kl == 0.0)
        return hl_options_refuse(usage, "%s 0: every head costs something; wanted more than 0",
                                 request->until_loss == 0.0 ? "--until-loss" : "--until-kl");
    if (hl_budget_given(request) && !has_text)
        return hl_options_refuse(usage, "a budget needs --text FILE: heads are ranked on one part "
                                        "of it, and their cost is measured on another");
    return HL_EXIT_OK;
}

hl_status hl_budget_keep(hl_head_list **out, hl_evidence *evidence, const hl_model *model,
                         const hl_budget_request *request, const hl_evidence_request *texts)
{
    bool      types  = false;
    hl_status status = hl_head_words_need_profile(&types, model, request->keep);

    *out = NULL;
    if (status == HL_OK && types && texts->n_texts > 0) {
        hl_evidence_request wanted = *texts;

        wanted.ranker =
            HL_RANKER_RETRIEVAL; /* retrieval needs everything that determines a head's type */
        status = hl_evidence_from_texts(evidence, model, &wanted);
    }
    if (status == HL_OK)
        status = hl_head_list_select(out, model, evidence->profile, request->keep);
    return status;
}

/* ------------------------------------------------------------------ for people */

static void print_budget(const hl_frontier *f)
{
    const char *joint = "";

    printf("Budget: ");
    if (f->budget.until_loss > 0.0) {
        printf("the loss rises by at most %g nats per token", f->budget.until_loss);
        joint = ", ";
    }
    if (f->budget.until_kl > 0.0) {
        printf("%sthe KL from the unpruned model is at most %g nats per token", joint,
               f->budget.until_kl);
        joint = ", ";
    }
    if (f->budget.until_bytes > 0)
        printf("%sat most %s bytes of tensors", joint, hl_grouped((int64_t)f->budget.until_bytes));
    printf(".\n");
}

hl_status hl_budget_print(const hl_frontier *f)
{
    HL_HELD(hl_sheet_free) hl_sheet *table = NULL;
    const hl_frontier_point         *best  = &f->points[f->recommended];

    print_budget(f);
    HL_NEED(hl_frontier_sheet(&table, f));
    printf("\n");
    HL_NEED(hl_print_sheet(table, HL_SHEET_TEXT));
    printf("\nAll were run on held-out text, %s.\n",
           f->budget.repair ? "repaired on the text that heads were ranked on"
                            : "with heads disabled and no repair");
    printf("best: no other is smaller and costs less; fits: within the budget, by the interval's "
           "upper end.\nRecommended: %lld of %lld heads by %s%s\n\n",
           (long long)best->n_off, (long long)f->n_heads, hl_ranker_name((size_t)best->ranker),
           f->all_went ? ", which are all that may go: the budget is not used up" : "");
    return HL_OK;
}

/* --------------------------------------------------------------------- as JSON */

static json_t *limit(double value)
{
    return value > 0.0 ? json_real(value) : NULL;
}

json_t *hl_budget_json(const hl_frontier *f)
{
    const hl_frontier_point *best  = NULL;
    hl_sheet                *table = NULL;
    json_t                  *root  = NULL;

    if (f == NULL)
        return NULL;
    best = &f->points[f->recommended];
    root = HL_OBJECT(
        HL_IS("until_loss", limit(f->budget.until_loss)),
        HL_IS("until_kl", limit(f->budget.until_kl)),
        HL_IS("until_bytes", limit((double)f->budget.until_bytes)),
        HL_IS("repaired", f->budget.repair), HL_IS("ranker", hl_ranker_name((size_t)best->ranker)),
        HL_IS("heads", best->n_off), HL_IS("rise", best->rise), HL_IS("rise_low", best->rise_low),
        HL_IS("rise_high", best->rise_high), HL_IS("kl", best->kl), HL_IS("all_went", f->all_went));
    if (hl_frontier_sheet(&table, f) == HL_OK)
        (void)hl_set_sheet(root, table);
    hl_sheet_free(table);
    return root;
}
