/* ranker_option.h - rankers as people name them on a command line. */
#ifndef HL_CLI_RANKER_OPTION_H
#define HL_CLI_RANKER_OPTION_H

#include "headlight.h"
#include "options.h"

/* HL_OPTIONS_GO_ON, or what hl_options_refuse says of a name that is none, with the nearest. */
int hl_ranker_option(hl_ranker *out, const hl_usage *usage, const char *option, const char *name);

#endif
