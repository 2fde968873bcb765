/* shared_options.h - groups of options (options.h) that several commands share: texts, disabled
 * heads, chosen heads, rankers, the style of figures. */
#ifndef HL_CLI_SHARED_OPTIONS_H
#define HL_CLI_SHARED_OPTIONS_H

#include <stdbool.h>

#include "headlight.h"
#include "options.h"

/* ---------------------------------------------------------- choice of the text */

/* Options of all commands that read texts.
 *
 *     hl_corpus_arguments text = { 0 };
 *     hl_option options[] = { HL_CORPUS_OPTIONS(&text), HL_TEXT("output", ...), { 0 } };
 *     HL_PASS(hl_options_parse(&rest, &common, &usage, argc, argv));
 *     HL_PASS(hl_corpus_options_finish(&text, &usage, &common, rest.items + 1, rest.count - 1));
 *     ... hl_corpus_open(&corpus, model, tokenizer, &text.corpus), text.windows ... */

/* clang-format off */

/* For every command that cuts texts into windows; target: hl_around *. */
#define HL_SPECIAL_OPTION(target)                                                                  \
    HL_ENUM("special", 0, target, "window|document|none",                                          \
            "where the tokenizer's <bos>, [CLS] ... stand (window)")

/* For commands that use one text among other things; `where` says which option gives it. */
#define HL_WINDOW_OPTIONS(where, most, windows)                                                    \
    HL_INT("context", 'c', &(windows)->n_ctx, "N", where ": tokens per window", 1, INT64_MAX),     \
    HL_INT("max-tokens", 0, &(windows)->max_tokens, "N",                                           \
           where ": use at most N tokens (" most ")", 1, INT64_MAX),                               \
    HL_SPECIAL_OPTION(&(windows)->around)

#define HL_CORPUS_OPTIONS(a)                                                                       \
    HL_INT("context", 'c', &(a)->windows.n_ctx, "N", "tokens per window", 1, 1 << 24),             \
    HL_INT("stride", 0, &(a)->windows.stride, "N",                                                 \
           "tokens from one window to the next (--context)", 1, 1 << 24),                          \
    HL_INT("batch", 'b', &(a)->windows.n_batch, "N",                                               \
           "windows at a time (1; on a GPU up to 32)", 1, 1 << 16),                                \
    HL_INT("max-tokens", 0, &(a)->windows.max_tokens, "N", "stop after N tokens", 1, INT64_MAX),   \
    HL_FLAG("pack", 0, &(a)->windows.pack, "join documents, so that all windows are full"),        \
    HL_TEXT("part", 0, &(a)->part, "I/N", "measure only part I of N, from 1/N to N/N"),            \
    HL_INT("sample", 0, &(a)->corpus.n_sample, "N",                                                \
           "measure only N documents, drawn with --seed", 1, INT64_MAX),                           \
    HL_TEXT("field", 0, &(a)->corpus.field, "NAME",                                                \
            "member of JSONL lines that holds the text (text, messages)"),                         \
    HL_CHOICE("format", 0, &(a)->format, "text|jsonl", "format of all TEXTs (by name)"),           \
    HL_LIST("type", 0, &(a)->types, "NAME=REGEX",                                                  \
            "a type for tokens that match; may be repeated"),                                      \
    HL_TEXT("token-ids", 0, &(a)->corpus.token_ids, "FILE",                                        \
            "token ids instead of TEXT: JSON lines, safetensors, npy"),                            \
    HL_SPECIAL_OPTION(&(a)->windows.around)

/* For every command that accepts another tokenizer; target: const char **. */
#define HL_TOKENIZER_OPTION(target)                                                                \
    HL_TEXT("tokenizer", 0, target, "PATH", "use this tokenizer instead of the model's own")

/* clang-format on */

typedef struct hl_corpus_arguments {
    hl_corpus_options corpus;
    hl_window_options windows; /* context 0 if none was given; the command then chooses */
    hl_option_list    types;
    const char       *format;
    const char       *part;
} hl_corpus_arguments;

/* Call it after parsing. The TEXT arguments are borrowed from argv. */
int hl_corpus_options_finish(hl_corpus_arguments *arguments, const hl_usage *usage,
                             const hl_common *common, char **texts, int n_texts);

/* Opens the corpus and, if it needs one, the tokenizer: that of --tokenizer, or the model's own.
 * Both must be NULL before; the caller owns them afterwards. */
hl_status hl_corpus_options_open(hl_corpus **out, hl_tokenizer **tokenizer, const hl_model *model,
                                 const hl_corpus_arguments *arguments, const char *tokenizer_path);

/* Reports on standard error what was skipped: empty documents, and files that are not text. */
void hl_corpus_options_report(const char *command, const hl_corpus *corpus);

/* ----------------------------------------------------- heads that are disabled */

/* --gates and --off, for all commands that run a model.
 *
 *     hl_gate_arguments gates = { 0 };
 *     const hl_option options[] = { ..., HL_GATE_OPTIONS(&gates), { 0 } };
 *     ... hl_options_parse, hl_model_open ...
 *     status = hl_gate_options_apply(model, &gates, "eval", quiet); */

typedef struct hl_gate_arguments {
    const char *path; /* NULL: no file of gates */
    const char *off;  /* NULL: no head is disabled */
} hl_gate_arguments;

/* clang-format off */
#define HL_GATE_OPTIONS(arguments)                                                                 \
    HL_TEXT("gates", 0, &(arguments)->path, "FILE",                                                \
            "multiply the outputs of heads: JSON, safetensors"),                                   \
    HL_TEXT("off", 0, &(arguments)->off, "L5H1,L7", "disable these heads for this run")
/* clang-format on */

/* Sets the model's gates; --off overrides the file. Reports the number of heads concerned on
 * standard error, unless quiet. */
hl_status hl_gate_options_apply(hl_model *model, const hl_gate_arguments *arguments,
                                const char *command, bool quiet);
/* Returns true if --gates or --off is given. */
bool hl_gate_options_given(const hl_gate_arguments *arguments);

/* ---------------------------------------- choice of the model and the tokenizer */

/* Opens a model on the device of --device; "cpu" and NULL leave the choice to the environment. */
hl_status hl_model_open_on(hl_model **out, const char *path, const char *device);
/* Opens a model in this way and sets its gates with hl_gate_options_apply. */
hl_status hl_model_options_open(hl_model **out, const char *path, const char *device,
                                const hl_gate_arguments *gates, const char *command, bool quiet);
/* Returns HL_EXIT_OK if the model can continue a text; encoders cannot. */
int hl_model_must_write(const hl_model *model, const char *path, const char *command);
/* Opens the tokenizer of --tokenizer or, if that is NULL, the model's own. */
hl_status hl_tokenizer_option(hl_tokenizer **out, const hl_model *model, const char *asked);
/* As hl_tokenizer_option, for commands that require a tokenizer: returns an exit status. If the
 * model has none, the message says what to do. */
int hl_tokenizer_needed(hl_tokenizer **out, const hl_model *model, const char *asked,
                        const char *command);

/* -------------------------------------- a model that runs otherwise than trained */

typedef struct hl_adjust_arguments {
    hl_adjustment adjustment; /* all 0: the model as trained */
    int64_t       window_sink;
} hl_adjust_arguments;

#define HL_ADJUST_ARGUMENTS ((hl_adjust_arguments){ .window_sink = 1 })

/* clang-format off */

/* `where` precedes each help text. */
#define HL_TEMPERATURE_OPTION(where, a)                                                            \
    HL_NUMBER("temperature", 0, &(a)->adjustment.temperature, "T",                                 \
              where "attention scores divided by T", 0, 1000)
#define HL_ADJUST_OPTIONS(where, a)                                                                \
    HL_INT("window", 0, &(a)->adjustment.window, "N",                                              \
           where "rows see N keys and the first ones", 1, INT64_MAX),                              \
    HL_INT("window-sink", 0, &(a)->window_sink, "K", "with --window: first keys kept (1)", 0,      \
           INT64_MAX),                                                                             \
    HL_NUMBER("rope-base", 0, &(a)->adjustment.rope_base, "B", where "change the base of RoPE", 1, \
              INT64_MAX),                                                                          \
    HL_NUMBER("rope-factor", 0, &(a)->adjustment.rope_factor, "F",                                 \
              where "divide RoPE positions by F", 0, 1000000)
/* clang-format on */

/* Returns true if any adjustment is given. */
bool hl_adjust_options_given(const hl_adjustment *adjustment);
/* Returns the adjustment; its window_sink comes from the options. */
hl_adjustment hl_adjust_options_of(const hl_adjust_arguments *arguments);

/* -------------------------------------------- heads as people write them: L3H1 */

enum { HL_MOST_HEADS = 256 };

typedef struct hl_head_choices {
    hl_head items[HL_MOST_HEADS];
    int64_t count;
} hl_head_choices;

/* Parses "L3H1,L5" (L5: all heads of layer 5). Returns false if it is not valid; *bad is then the
 * place of the error. */
bool hl_heads_parse(hl_head_choices *out, const char *text, const char **bad);

/* ------------------------------------------------- rankers as people name them */

/* Returns HL_EXIT_OK, or what hl_options_refuse returns for an unknown name; the message suggests
 * the nearest. */
int hl_ranker_option(hl_ranker *out, const hl_usage *usage, const char *option, const char *name);

/* ------------------------------------------------------------ how figures look */

/* Options of commands that draw: the file, and the style.
 *
 *     hl_draw_arguments drawing = { 0 };
 *     hl_option options[] = { ..., HL_DRAW_OPTIONS(&drawing), { 0 } };
 *     HL_PASS(hl_options_parse(...));
 *     ... hl_draw(profile, "heatmap", drawing.output, &drawing.how) */

typedef struct hl_draw_arguments {
    const char     *output; /* NULL: not given */
    hl_draw_options how;
} hl_draw_arguments;

/* clang-format off */
#define HL_DRAW_OPTIONS(arguments)                                                                 \
    HL_TEXT("output", 'o', &(arguments)->output, "FILE", "figure to write: .svg, .png or .pdf"),   \
    HL_LOOK_OPTIONS(arguments, "model and corpus, for the caption")
#define HL_LOOK_OPTIONS(arguments, of_caption)                                                     \
    HL_ENUM("theme", 0, &(arguments)->how.theme, "light|dark", "colors for paper or slides"),      \
    HL_TEXT("title", 0, &(arguments)->how.title, "TEXT", "title of the figure; '' for none"),      \
    HL_TEXT("caption", 0, &(arguments)->how.caption, "TEXT", of_caption),                          \
    HL_NUMBER("width", 0, &(arguments)->how.width, "POINTS", "width, 1/72 inch (480)", 240,        \
              2000),                                                                               \
    HL_NUMBER("dpi", 0, &(arguments)->how.dpi, "N", "pixels per inch of a PNG (144)", 24, 1200)
/* clang-format on */

/* From now on the library's warnings go to stderr in this command's name; for example, about
 * characters that no font has. */
void hl_draw_listen(const char *command);

#endif
