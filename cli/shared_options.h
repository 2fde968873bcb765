/* shared_options.h - parts of tables of options (options.h) that several commands have: which text,
 * which heads are off, which heads are meant, which ranker, how figures look. */
#ifndef HL_CLI_SHARED_OPTIONS_H
#define HL_CLI_SHARED_OPTIONS_H

#include <stdbool.h>

#include "headlight.h"
#include "options.h"

/* ------------------------------------------------------------------ which text */

/* For all commands that read some.
 *
 *     hl_corpus_arguments text = { 0 };
 *     hl_option options[HL_N_CORPUS_OPTIONS + 2];
 *     hl_corpus_options_list(options, &text);
 *     options[HL_N_CORPUS_OPTIONS]     = (hl_option){ "output", 'o', ... };
 *     options[HL_N_CORPUS_OPTIONS + 1] = (hl_option){ 0 };
 *     ... hl_options_parse ...
 *     code = hl_corpus_options_finish(&text, &usage, &common, rest.items + 1, rest.count - 1);
 *     if (code != HL_OPTIONS_GO_ON)
 *         return code;
 *     ... hl_corpus_open(&corpus, model, tokenizer, &text.corpus), text.windows ... */

enum { HL_N_CORPUS_OPTIONS = 12 };

/* For every command that cuts texts into windows; target: const char **. */
#define HL_SPECIAL_OPTION(target)                                                                  \
    {                                                                                              \
        "special", 0, HL_OPTION_CHOICE, (target), "window|document|none",                          \
            "around what the tokenizer adds <bos>, [CLS] ... (window)", 0, 0                       \
    }

/* What the option says; NULL: not given. */
hl_around hl_special_option(const char *given);

typedef struct hl_corpus_arguments {
    hl_corpus_options corpus;
    hl_window_options windows; /* context 0 where none was given: the command knows best */
    hl_option_list    types;
    const char       *format;
    const char       *part;
    const char       *special;
} hl_corpus_arguments;

/* Fills the first HL_N_CORPUS_OPTIONS entries of a table. */
void hl_corpus_options_list(hl_option *out, hl_corpus_arguments *arguments);

/* After parsing: the TEXT arguments, borrowed from argv.  HL_OPTIONS_GO_ON, or the exit status
 * after a complaint. */
int hl_corpus_options_finish(hl_corpus_arguments *arguments, const hl_usage *usage,
                             const hl_common *common, char **texts, int n_texts);

/* Tells on standard error what was passed over: empty documents, files that are no text. */
void hl_corpus_options_report(const char *command, const hl_corpus *corpus);

/* ------------------------------------------------ which heads are switched off */

/* --gates and --off, for all commands that run a model.
 *
 *     hl_gate_arguments gates = { 0 };
 *     const hl_option options[] = { ..., HL_GATE_OPTIONS(&gates), { 0 } };
 *     ... hl_options_parse, hl_model_open ...
 *     status = hl_gate_options_apply(model, &gates, "eval", quiet); */

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

/* -------------------------------------------- heads as people write them: L3H1 */

enum { HL_MOST_HEADS = 256 };

typedef struct hl_head_choices {
    hl_head_choice items[HL_MOST_HEADS];
    int64_t        count;
} hl_head_choices;

/* "L3H1,L5" (all heads of layer 5); false if it is not that, and then *bad is where. */
bool hl_heads_parse(hl_head_choices *out, const char *text, const char **bad);

/* ------------------------------------------------- rankers as people name them */

/* HL_OPTIONS_GO_ON, or what hl_options_refuse says of a name that is none, with the nearest. */
int hl_ranker_option(hl_ranker *out, const hl_usage *usage, const char *option, const char *name);

/* ------------------------------------------------------------ how figures look */

/* For commands that draw: where to, and how it looks.
 *
 *     hl_draw_arguments drawing = HL_DRAW_ARGUMENTS;
 *     hl_option options[] = { ..., HL_DRAW_OPTIONS(&drawing), { 0 } };
 *     ... hl_options_parse ...
 *     hl_draw_options how = hl_draw_options_of(&drawing); */

typedef struct hl_draw_arguments {
    const char *output; /* NULL: none was given */
    const char *theme;
    const char *title;
    const char *caption;
    double      width;
    double      dpi;
} hl_draw_arguments;

#define HL_DRAW_ARGUMENTS ((hl_draw_arguments){ .theme = "light" })

/* clang-format off */
#define HL_DRAW_OPTIONS(arguments)                                                                 \
    { "output", 'o', HL_OPTION_TEXT, &(arguments)->output, "FILE",                                 \
      "where to; .svg, .png or .pdf", 0, 0 },                                                      \
    { "theme", 0, HL_OPTION_CHOICE, &(arguments)->theme, "light|dark",                             \
      "for paper or for slides", 0, 0 },                                                           \
    { "title", 0, HL_OPTION_TEXT, &(arguments)->title, "TEXT",                                     \
      "above the figure; '' for none", 0, 0 },                                                     \
    { "caption", 0, HL_OPTION_TEXT, &(arguments)->caption, "TEXT",                                 \
      "in the caption: which model, which corpus", 0, 0 },                                         \
    { "width", 0, HL_OPTION_NUMBER, &(arguments)->width, "POINTS",                                 \
      "of the page, 1/72 inch (480)", 240, 2000 },                                                 \
    { "dpi", 0, HL_OPTION_NUMBER, &(arguments)->dpi, "N", "pixels an inch, of PNG (144)", 24, 1200 }
/* clang-format on */

/* From now on warnings of the library go to stderr, in this command's name: of characters that
 * no font has, for example. */
void hl_draw_listen(const char *command);

/* Borrows the texts. */
hl_draw_options hl_draw_options_of(const hl_draw_arguments *arguments);

#endif
