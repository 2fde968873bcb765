/* cmd_demo.c - headlight demo: a demonstration on the bundled models.
 *
 * The demonstration is a table of command lines.  Each is run as if it had been typed; at the end
 * each is listed with its result, ready to be typed again. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"
#include "headlight.h"
#include "held.h"
#include "input.h"
#include "options.h"
#include "screen.h"
#include "values.h"

enum { LINE_BYTES = 4096, MOST_WORDS = 48 };

typedef struct demo_command {
    hl_common   common;
    const char *models; /* a folder */
    const char *output; /* a folder */
    const char *program;
} demo_command;

/* In command lines, {m} is the folder of the models and {o} the output folder. */
typedef struct demo_step {
    const char *doing; /* shown during the step: "measuring ..." */
    const char *look;  /* what the user should look at; NULL: the step is not listed at the end */
    int (*run)(int argc, char **argv);
    const char *line;
    bool        speaks; /* the step's output is shown; that of other steps is suppressed */
    bool        makes;  /* the step writes a file that a later step needs */
} demo_step;

/* Two steps that draw a figure, as SVG and as PNG. */
#define FIGURE(doing, look, run, line, name)                                                       \
    { doing, look, run, line " -o {o}/" name ".svg", false, true },                                \
    {                                                                                              \
        NULL, NULL, run, line " -o {o}/" name ".png", false, true                                  \
    }

#define PROMPT                                                                                     \
    "\"The quick brown fox jumps over the lazy dog. The quick brown fox sleeps while the lazy "    \
    "dog "                                                                                         \
    "runs.\""

static const demo_step steps[] = {
    { "measuring the demo model", "a profile, which show, draw, diagnose and compare read",
      hl_command_measure,
      "measure {m}/demo {m}/text -o {o}/demo.profile --context 256 --max-tokens 8192", false,
      true },
    { "measuring its sparse sibling",
      "the same model, trained further with a penalty on attention entropy", hl_command_measure,
      "measure {m}/demo-sparse {m}/text -o {o}/sparse.profile --context 256 --max-tokens 8192",
      false, true },
    { "the demo model at a glance",
      "every head, the layer profile, the extremes and the diagnoses in the terminal",
      hl_command_show, "show {o}/demo.profile", true, false },
    { NULL, "problems of the sparse model: collapse, sinks and redundancy, with evidence and fixes",
      hl_command_diagnose, "diagnose {o}/sparse.profile", false, false },
    FIGURE("drawing every head",
           "focused heads are dark; outlined: the first to prune by output norm", hl_command_draw,
           "draw {o}/demo.profile --candidates 8", "heatmap"),
    FIGURE("drawing the layers", "the middle layers are the most focused", hl_command_draw,
           "draw {o}/demo.profile --figure layers", "layers"),
    FIGURE("drawing both models",
           "both models on the same tokens: sparse training left stripes and steps",
           hl_command_compare,
           "compare {m}/demo {m}/demo-sparse --text {m}/text --context 256 --max-tokens 2048",
           "compare"),
    FIGURE("drawing one head on a prompt",
           "induction: the second 'brown fox' looks at what followed the first", hl_command_tokens,
           "tokens {m}/demo " PROMPT " --layer 7 --head 3 --inset L0H0,L3H1,L6H1", "tokens"),
    FIGURE("drawing the prediction of each layer",
           "the prediction sharpens layer by layer; framed: the token that follows in the text",
           hl_command_lens, "lens {m}/demo " PROMPT, "lens"),
    { "the demo model continues a text",
      "a trace: the attention statistics of every head for each generated token; a spike at token "
      "48",
      hl_command_generate,
      "generate {m}/demo \"The old man looked out at the sea, and said\" -n 96 -t 0.8 --top-k 40 "
      "--seed 11 --trace {o}/text.trace",
      true, true },
    { "the demo model gets into a loop", "a trace of a text that repeats 22 tokens",
      hl_command_generate,
      "generate {m}/demo \"Once upon a time\" -n 160 --ignore-end --raw --trace {o}/loop.trace",
      true, true },
    { NULL, "attention-locking finds the loop, in the text and in the rows of attention",
      hl_command_diagnose, "diagnose {o}/demo.profile --trace {o}/loop.trace", false, false },
    { "writing the report",
      "open it in a browser: both models, the prompt, the lens and the generated text",
      hl_command_report,
      "report {o}/demo.profile {o}/sparse.profile --trace {o}/text.trace --model {m}/demo "
      "--prompt " PROMPT " -o {o}/report.html",
      false, true },
    { "writing a report of the loop", "tab Over time: entropies come back every 22 tokens",
      hl_command_report, "report {o}/demo.profile --trace {o}/loop.trace -o {o}/loop.html", false,
      true },
};

enum { N_STEPS = sizeof steps / sizeof *steps };

/* --------------------------------------------------------------------- a command line */

/* Writes the step's line with its folders; false if the line is too long. */
static bool write_line(char out[LINE_BYTES], const demo_step *step, const demo_command *command)
{
    size_t used = 0;

    for (const char *at = step->line; *at != '\0'; at++) {
        bool        is_model = strncmp(at, "{m}", 3) == 0;
        bool        is_out   = strncmp(at, "{o}", 3) == 0;
        const char *piece    = is_model ? command->models : is_out ? command->output : at;
        size_t      n_bytes  = is_model || is_out ? strlen(piece) : 1;

        if (used + n_bytes >= LINE_BYTES)
            return false;
        memcpy(out + used, piece, n_bytes);
        used += n_bytes;
        at += is_model || is_out ? 2 : 0;
    }
    out[used] = '\0';
    return true;
}

/* Splits a line into words at spaces, except within quotes.  A folder with a space in its name
 * would become two words. */
static int split(char *words[MOST_WORDS], char *line)
{
    int n_words = 0;

    for (char *at = line + strspn(line, " "); *at != '\0' && n_words < MOST_WORDS - 4;) {
        bool quoted      = *at == '"';
        words[n_words++] = at += quoted;
        at += strcspn(at, quoted ? "\"" : " ");
        if (*at != '\0')
            *at++ = '\0';
        at += strspn(at, " ");
    }
    words[n_words] = NULL;
    return n_words;
}

static int run_step(const demo_step *step, const demo_command *command)
{
    char  line[LINE_BYTES];
    char  quiet[] = "--quiet", threads[] = "--threads", n_threads[32];
    char *words[MOST_WORDS];

    if (!write_line(line, step, command))
        return hl_give_up(HL_EXIT_USAGE, "demo", "the names of the folders are too long");
    int n_words = split(words, line);
    /* hl_command_measure gets --quiet instead: it would show a progress bar and a summary. */
    if (!step->speaks && (step->run != hl_command_measure || command->common.quiet)) {
        words[n_words++] = quiet;
        words[n_words]   = NULL;
    }
    if (command->common.n_threads > 0) {
        snprintf(n_threads, sizeof n_threads, "%lld", (long long)command->common.n_threads);
        words[n_words++] = threads;
        words[n_words++] = n_threads;
        words[n_words]   = NULL;
    }
    return step->run(n_words, words);
}

/* Runs a step with its standard output suppressed. */
static int run_unheard(const demo_step *step, const demo_command *command)
{
    fflush(stdout);
    int output  = dup(STDOUT_FILENO);
    int nowhere = open("/dev/null", O_WRONLY);

    if (output < 0 || nowhere < 0)
        return hl_give_up(HL_EXIT_RESOURCES, "demo", "/dev/null: %s", strerror(errno));
    dup2(nowhere, STDOUT_FILENO);
    int code = run_step(step, command);
    fflush(stdout);
    dup2(output, STDOUT_FILENO);
    close(output);
    close(nowhere);
    return code;
}

/* ------------------------------------------------------------------------- all of them */

static void announce(const demo_step *step, const demo_command *command)
{
    hl_colors colors = hl_terminal_colors(stdout);

    if (step->doing == NULL || command->common.quiet)
        return;
    printf("%s%s%s\n%s", colors.bold, step->doing, colors.plain, step->speaks ? "\n" : "");
    fflush(stdout);
}

/* Lists the results, each with the line that made it. */
static void print_end(const demo_command *command)
{
    hl_colors colors = hl_terminal_colors(stdout);
    char      line[LINE_BYTES];

    printf("\n%sResults, and the command that made each%s\n", colors.bold, colors.plain);
    for (int i = 0; i < N_STEPS; i++) {
        if (steps[i].look == NULL || !write_line(line, &steps[i], command))
            continue;
        printf("\n# %s\n%s %s\n", steps[i].look, hl_shown(command->program), hl_shown(line));
    }
    printf("\nFigures are in %s, as .svg and .png.  %s/report.html shows everything on one page.\n",
           hl_shown(command->output), hl_shown(command->output));
}

static bool make_folder(const char *path)
{
    struct stat found;

    if (mkdir(path, 0777) == 0)
        return true;
    int why = errno;
    if (why == EEXIST && stat(path, &found) == 0 && S_ISDIR(found.st_mode))
        return true;
    hl_complain("demo", "%s: %s", path, why == EEXIST ? "is not a folder" : strerror(why));
    return false;
}

static int run_all(const demo_command *command)
{
    for (int i = 0; i < N_STEPS; i++) {
        bool unheard = steps[i].speaks && command->common.quiet;

        if (unheard && !steps[i].makes)
            continue;
        announce(&steps[i], command);
        int code = unheard ? run_unheard(&steps[i], command) : run_step(&steps[i], command);
        if (steps[i].speaks && !unheard)
            printf("\n");
        /* diagnose exits with HL_EXIT_NO on purpose here: it finds a problem. */
        if (code != HL_EXIT_OK && code != HL_EXIT_NO)
            return code;
    }
    if (!command->common.quiet)
        print_end(command);
    return HL_EXIT_OK;
}

int hl_command_demo(int argc, char **argv)
{
    demo_command command = { .output = "headlight-demo", .program = "headlight" };
    char         found[PATH_MAX];
    hl_arguments rest;

    hl_option options[] = {
        HL_TEXT("output", 'o', &command.output, "FOLDER",
                "folder for the results (headlight-demo)"),
        HL_TEXT("models", 0, &command.models, "FOLDER",
                "folder with demo, demo-sparse and text (the installed ones)"),
        HL_TEXT("as", 0, &command.program, "NAME",
                "program name in the printed commands (headlight)"),
        { 0 },
    };
    hl_usage usage = {
        "demo", "[-o FOLDER]",
        "Runs the tour of headlight: measures the two bundled models on the bundled texts,\n"
        "shows the heads, layers and diagnoses of one, draws figures of both, writes\n"
        "report.html into FOLDER, and ends with the list of results and the command that\n"
        "made each.",
        options
    };

    HL_PASS(hl_options_parse(&rest, &command.common, &usage, argc, argv));
    if (rest.count > 0)
        return hl_options_refuse(
            &usage, "unexpected argument '%s'; -o FOLDER says where the results go", rest.items[0]);
    if (command.common.json)
        return hl_options_refuse(&usage, "demo has no --json; the commands that it runs do");
    if (command.models == NULL)
        command.models = hl_bundled_models(found);
    if (command.models == NULL)
        return hl_give_up(HL_EXIT_INPUT, "demo",
                          "share/headlight/models was not found beside the program; name it with "
                          "--models FOLDER");
    if (strchr(command.output, ' ') != NULL || strchr(command.models, ' ') != NULL)
        return hl_options_refuse(&usage, "the name of a folder contains a space; use one without");
    return make_folder(command.output) ? run_all(&command) : HL_EXIT_INPUT;
}
