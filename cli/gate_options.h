/* gate_options.h - --gates and --off, for all commands that run a model.
 *
 *     hl_gate_arguments gates = { 0 };
 *     const hl_option options[] = { ..., HL_GATE_OPTIONS(&gates), { 0 } };
 *     ... hl_options_parse, hl_model_open ...
 *     status = hl_gate_options_apply(model, &gates, "eval", quiet); */
#ifndef HL_CLI_GATE_OPTIONS_H
#define HL_CLI_GATE_OPTIONS_H

#include "headlight.h"
#include "options.h"

typedef struct hl_gate_arguments {
    const char *path; /* NULL: all heads as they are */
    const char *off;  /* NULL: none */
} hl_gate_arguments;

enum { HL_N_GATE_OPTIONS = 2 };

/* Entries of a table of options. */
#define HL_GATE_OPTIONS(arguments)                                                                 \
    { "gates",                                                                                     \
      0,                                                                                           \
      HL_OPTION_TEXT,                                                                              \
      &(arguments)->path,                                                                          \
      "FILE",                                                                                      \
      "multiply heads' outputs: JSON, safetensors",                                                \
      0,                                                                                           \
      0 },                                                                                         \
    {                                                                                              \
        "off", 0, HL_OPTION_TEXT, &(arguments)->off, "L5H1,L7", "switch off these heads", 0, 0     \
    }

/* Sets the model's gates, those of --off over those of the file, and says on standard error how
 * many heads are concerned, unless it is to be quiet. */
hl_status hl_gate_options_apply(hl_model *model, const hl_gate_arguments *arguments,
                                const char *command, bool quiet);

#endif
