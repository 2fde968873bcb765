/* stop.c - a signal becomes a question that work asks now and then. */
#include "stop.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t asked;

static void ask(int signal)
{
    (void)signal;
    asked = 1;
}

void hl_stop_watch(void)
{
    struct sigaction action = { .sa_handler = ask, .sa_flags = (int)SA_RESETHAND };

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool hl_stop_asked(void)
{
    return asked != 0;
}
