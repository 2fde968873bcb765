/* prompt_view.h - what the commands that show one prompt share: its options, drawing options, and
 * views as JSON.
 *
 *     hl_view_arguments view = { 0 };
 *     hl_option options[] = { HL_VIEW_OPTIONS(&view), { 0 } };
 *     HL_PASS(hl_options_parse(&rest, &common, &usage, argc, argv));
 *     HL_PASS(hl_view_options_finish(&view, &usage, &common, &rest));
 *     ... hl_opened_prompt_open(&opened, &view.source), view.draw, view.print */
#ifndef HL_CLI_PROMPT_VIEW_H
#define HL_CLI_PROMPT_VIEW_H

#include "headlight.h"
#include "options.h"
#include "prompt.h"

/* ------------------------------------------------------------ the command line */

typedef struct hl_view_arguments {
    hl_prompt_source  source;
    hl_draw_arguments draw; /* output NULL: print to the terminal */
    const char       *zoom; /* the argument of --zoom */
    bool              beyond;
    /* The fields below are derived from the arguments. */
    hl_print_options print;
    int64_t          zoom_begin; /* both 0: all tokens */
    int64_t          zoom_end;
} hl_view_arguments;

/* clang-format off */
#define HL_VIEW_OPTIONS(a)                                                                         \
    HL_TEXT("output", 'o', &(a)->draw.output, "FILE",                                              \
            "figure to write: .svg, .png or .pdf (the terminal)"),                                 \
    HL_TEXT("zoom", 'z', &(a)->zoom, "A:B", "show only tokens A to B - 1"),                        \
    HL_TEXT("file", 'f', &(a)->source.file, "FILE", "file of the prompt; - is standard input"),    \
    HL_FLAG("chat", 'c', &(a)->source.chat,                                                        \
            "the prompt is a user's turn, in the model's format"),                                 \
    HL_TEXT("system", 0, &(a)->source.system, "TEXT", "with --chat, the system message"),          \
    HL_FLAG("ids", 0, &(a)->source.ids, "the prompt is token ids, as in '5 17 3'"),                \
    HL_TOKENIZER_OPTION(&(a)->source.tokenizer),                                                   \
    HL_FLAG("beyond", 0, &(a)->beyond, "allow more tokens than the model was trained with"),       \
    HL_LOOK_OPTIONS(&(a)->draw, "text for the caption"),                                           \
    HL_GATE_OPTIONS(&(a)->source.gates)
/* clang-format on */

/* Call it after parsing. MODEL and PROMPT are borrowed from argv. */
int hl_view_options_finish(hl_view_arguments *arguments, const hl_usage *usage,
                           const hl_common *common, const hl_arguments *rest);

/* --------------------------------------------------------------- views as JSON */

/* Views are written to standard output number by number: the JSON tree of a long prompt would take
 * gigabytes. */

/* Rows of attention end with the last visible token. HL_NO_MEMORY is the only failure. */
hl_status hl_view_json_tokens(const hl_token_view *view);
hl_status hl_view_json_lens(const hl_lens_view *view);

#endif
