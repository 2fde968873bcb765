/* budget.c - steps, bytes and time, each linear in the input. */
#include "tokenize/budget.h"

#include <time.h>

#include "base/machine.h"
#include "base/status.h"

#define BYTES_EACH   64
#define BYTES_BASE   ((size_t)1 << 20)
#define STEPS_EACH   32768
#define STEPS_BASE   (INT64_C(1) << 26)
#define SECONDS_EACH 8e-6
#define SECONDS_BASE 1.0
#define CHECK_EVERY  4096 /* steps */
#define ASK_SECONDS  1e-3

/* A text of more bytes than this is refused before a budget matters; the products fit. */
#define MOST_INPUT ((size_t)1 << 40)

hl_budget hl_budget_begin(size_t n_input, hl_stop_callback stop, void *context)
{
    size_t n = n_input < MOST_INPUT ? n_input : MOST_INPUT;

    return (hl_budget){ .n_input    = n,
                        .most_bytes = BYTES_EACH * n + BYTES_BASE,
                        .steps_left = STEPS_EACH * (int64_t)n + STEPS_BASE,
                        .unchecked  = CHECK_EVERY,
                        .begun      = -1.0,
                        .stop       = stop,
                        .context    = context };
}

static double most_seconds(const hl_budget *budget)
{
    return SECONDS_EACH * (double)budget->n_input + SECONDS_BASE;
}

/* The clock starts here, on the first call, since most texts are done before it. */
double hl_budget_seconds(hl_budget *budget)
{
    struct timespec time = { 0 };

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    double now = (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
    if (budget->begun < 0.0)
        budget->begun = now;
    return now - budget->begun;
}

hl_status hl_budget_foresee(hl_budget *budget, double seconds)
{
    if (hl_budget_seconds(budget) + seconds <= most_seconds(budget))
        return HL_OK;
    return hl_fail(HL_LIMIT, "takes too long on this text: more than %.1f s for %zu bytes",
                   most_seconds(budget), budget->n_input);
}

hl_status hl_budget_check(hl_budget *budget)
{
    budget->steps_left -= CHECK_EVERY - budget->unchecked;
    budget->unchecked = CHECK_EVERY;
    if (budget->stop != NULL && budget->stop(budget->context))
        return hl_fail(HL_CANCELLED, "stopped by the caller");
    if (budget->steps_left < 0)
        return hl_fail(HL_LIMIT, "takes too long on this text: more than %lld steps for %zu bytes",
                       (long long)STEPS_EACH * (long long)budget->n_input + STEPS_BASE,
                       budget->n_input);
    /* Reading the thread's clock is a system call; hl_clock_seconds is not. */
    double now = hl_clock_seconds();
    if (now - budget->asked < ASK_SECONDS)
        return HL_OK;
    budget->asked = now;
    return hl_budget_foresee(budget, 0.0);
}

hl_status hl_budget_too_long(const hl_budget *budget, size_t n_bytes)
{
    return hl_fail(HL_LIMIT, "makes %zu bytes or more out of %zu; at most %zu are allowed", n_bytes,
                   budget->n_input, budget->most_bytes);
}

hl_status hl_budget_hand_on(hl_budget *budget, size_t n_bytes)
{
    budget->n_output += n_bytes;
    return budget->n_output <= budget->most_bytes ? HL_OK
                                                  : hl_budget_too_long(budget, budget->n_output);
}
