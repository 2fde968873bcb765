/* budget.h - how much one call may do with data from elsewhere.
 *
 * A tokenizer file is a program: its expressions backtrack, its replacements make text longer, and
 * its vocabulary decides how far a search looks ahead.  So every call that runs one on n bytes
 * carries a budget, linear in n, of which real tokenizers need a hundredth:
 *
 *     bytes   64 n + 1 MiB       of every text that is written on the way, and of all that is
 *                                handed on to the model or to the caller
 *     steps   32768 n + 2^26     counted by the loops and by PCRE2's match limit
 *     time    8 us n + 1 s       of this thread's processor time: what PCRE2 does not count
 *
 * Who spends steps is told HL_LIMIT once the budget is used up, and HL_CANCELLED when the caller
 * wants to stop.  The clock and the caller are asked every few thousand steps. */
#ifndef HL_TOKENIZE_BUDGET_H
#define HL_TOKENIZE_BUDGET_H

#include "headlight/tokenizer.h"

typedef struct hl_budget {
    size_t           n_input;    /* bytes that the call was given */
    size_t           most_bytes; /* of any text that it makes */
    size_t           n_output;   /* bytes handed on so far */
    int64_t          steps_left;
    int64_t          unchecked; /* steps until the clock and the caller are asked again */
    double           asked;     /* when the thread's clock was, by base/machine.h */
    double           begun;     /* by the thread's clock; below 0: not asked yet */
    hl_stop_callback stop;      /* NULL: nobody stops it */
    void            *context;   /* of stop */
} hl_budget;

/* For a call on n_input bytes. */
hl_budget hl_budget_begin(size_t n_input, hl_stop_callback stop, void *context);

/* Asks the clock and the caller now. */
hl_status hl_budget_check(hl_budget *budget);
/* HL_LIMIT if `seconds` more would be too many. */
hl_status hl_budget_foresee(hl_budget *budget, double seconds);
/* Processor time that this call has taken. */
double hl_budget_seconds(hl_budget *budget);
/* Counts bytes that are handed on. */
hl_status hl_budget_hand_on(hl_budget *budget, size_t n_bytes);
/* HL_LIMIT, with the numbers: a text of n_bytes would be too long. */
hl_status hl_budget_too_long(const hl_budget *budget, size_t n_bytes);

/* NULL is a budget without an end. */
static inline hl_status hl_budget_spend(hl_budget *budget, size_t n_steps)
{
    if (budget == NULL)
        return HL_OK;
    budget->unchecked -= (int64_t)n_steps;
    return budget->unchecked >= 0 ? HL_OK : hl_budget_check(budget);
}

#endif
