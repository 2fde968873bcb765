/* budget.h - bounds the work that untrusted data can cause in one call.
 *
 * A tokenizer file is a program: its expressions backtrack, its replacements make text longer, and
 * its vocabulary decides how far a search looks ahead.  So every call that runs one on n bytes
 * carries a budget, linear in n, of which real tokenizers need a hundredth:
 *
 *     bytes   64 n + 1 MiB       for every intermediate text, and for all that is passed on to
 *                                the model or to the caller
 *     steps   32768 n + 2^26     counted by the loops and by PCRE2's match limit
 *     time    8 us n + 1 s       of this thread's CPU time, for work that PCRE2 does not count
 *
 * Spending steps returns HL_LIMIT once the budget is used up, and HL_CANCELLED when the caller
 * wants to stop.  The clock and the caller's callback are checked every few thousand steps. */
#ifndef HL_TOKENIZE_BUDGET_H
#define HL_TOKENIZE_BUDGET_H

#include "headlight/tokenizer.h"

typedef struct hl_budget {
    size_t           n_input;    /* bytes of the call's input */
    size_t           most_bytes; /* largest size of any text that the call makes */
    size_t           n_output;   /* bytes passed on so far */
    int64_t          steps_left;
    int64_t          unchecked; /* steps until the clock and the callback are checked again */
    double           asked;     /* hl_clock_seconds when the thread's clock was last read */
    double           begun;     /* the thread's clock at the start; below 0: not read yet */
    hl_stop_callback stop;      /* NULL: the call cannot be stopped */
    void            *context;   /* passed to `stop` */
} hl_budget;

/* The budget of a call on n_input bytes. */
hl_budget hl_budget_begin(size_t n_input, hl_stop_callback stop, void *context);

/* Checks the clock and the callback now. */
hl_status hl_budget_check(hl_budget *budget);
/* HL_LIMIT if `seconds` more would exceed the time budget. */
hl_status hl_budget_foresee(hl_budget *budget, double seconds);
/* The CPU time that this call has used. */
double hl_budget_seconds(hl_budget *budget);
/* Counts bytes that are passed on to the model or to the caller. */
hl_status hl_budget_hand_on(hl_budget *budget, size_t n_bytes);
/* Fails with HL_LIMIT: the message says that a text of n_bytes is too long, and the limit. */
hl_status hl_budget_too_long(const hl_budget *budget, size_t n_bytes);

/* Counts steps.  A NULL budget is unlimited. */
static inline hl_status hl_budget_spend(hl_budget *budget, size_t n_steps)
{
    if (budget == NULL)
        return HL_OK;
    budget->unchecked -= (int64_t)n_steps;
    return budget->unchecked >= 0 ? HL_OK : hl_budget_check(budget);
}

#endif
