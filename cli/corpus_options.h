/* corpus_options.h - the options that say which text, for all commands that read some.
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
#ifndef HL_CLI_CORPUS_OPTIONS_H
#define HL_CLI_CORPUS_OPTIONS_H

#include "headlight.h"
#include "options.h"

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

#endif
