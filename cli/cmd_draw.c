/* cmd_draw.c - headlight draw: a figure of a profile, to an SVG, PNG or PDF file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "headlight.h"
#include "held.h"
#include "options.h"
#include "shared_options.h"
#include "values.h"

typedef struct draw_command {
    hl_common         common;
    hl_draw_arguments drawing;
    const char       *path;
    const char       *figure;
    const char       *candidates; /* a number, or names of heads */
    enum { BY_OUTPUT_NORM, BY_ENTROPY } by;
} draw_command;

static int list_figures(void)
{
    for (size_t i = 0; hl_figure_name(i) != NULL; i++)
        printf("%-12s %s\n", hl_figure_name(i), hl_figure_summary(i));
    return HL_EXIT_DONE;
}

/* Reads "12", the number of heads by entropy, or "L5H1,L7H3", a list of heads. */
static void read_candidates(hl_draw_options *options, const char *text)
{
    char *end = NULL;

    if (text == NULL)
        return;
    options->n_candidates = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || options->n_candidates < 0) {
        options->n_candidates = 0;
        options->candidates   = text;
    }
}

static hl_status draw(const draw_command *command)
{
    HL_HELD(hl_profile_free) hl_profile *profile = NULL;
    hl_draw_options                      how     = command->drawing.how;

    HL_NEED(hl_profile_load(&profile, command->path));
    how.seed = command->common.seed;
    read_candidates(&how, command->candidates);
    how.candidates_by_entropy = command->by == BY_ENTROPY;
    hl_draw_listen("draw");
    HL_NEED(hl_draw(profile, command->figure, command->drawing.output, &how));
    if (command->common.json)
        printf("{\n  \"figure\": \"%s\",\n  \"ok\": true\n}\n", command->figure);
    else if (!command->common.quiet)
        printf("%s: %s\n", hl_shown(command->drawing.output), command->figure);
    return HL_OK;
}

int hl_command_draw(int argc, char **argv)
{
    draw_command     command = { .figure = "heatmap" };
    hl_draw_options *how     = &command.drawing.how;
    hl_arguments     rest;

    hl_option options[] = {
        HL_TEXT("figure", 'f', &command.figure, "NAME",
                "which figure (heatmap); 'list' prints all"),
        HL_DRAW_OPTIONS(&command.drawing),
        HL_ENUM("unit", 0, &how->unit, "nats|bits|normalized", "unit of entropy"),
        HL_ENUM("scale", 0, &how->scale, "continuous|classes",
                "color scale of the heatmap; classes: six, in nats"),
        HL_TEXT("pruned", 0, &how->pruned, "HEADS",
                "heads to hatch in the heatmap: L5H1,L7 (all of layer 7)"),
        HL_TEXT("candidates", 0, &command.candidates, "N|HEADS",
                "outline pruning candidates with their rank: N heads, or a list"),
        HL_ENUM("candidates-by", 0, &command.by, "output-norm|entropy",
                "ranker of --candidates N (output-norm); entropy was worse than chance"),
        { 0 },
    };
    hl_usage usage = {
        "draw", "PROFILE -o FILE",
        "Draws a publication-ready figure of a profile: a heatmap of all heads, the layer\n"
        "profile, the variance between heads, entropy by position, or histograms.  The\n"
        "ending of FILE chooses the format.",
        options
    };

    HL_PASS(hl_options_parse(&rest, &command.common, &usage, argc, argv));
    if (strcmp(command.figure, "list") == 0)
        return list_figures();
    if (rest.count != 1)
        return hl_options_refuse(&usage, "give one PROFILE; got %d", rest.count);
    if (command.drawing.output == NULL)
        return hl_options_refuse(
            &usage, "-o FILE is missing; its ending chooses the format: .svg, .png or .pdf");
    HL_PASS(hl_options_check_name(&usage, "figure", "figure", command.figure, hl_figure_name,
                                  "; 'list' prints all"));
    command.path = rest.items[0];
    return hl_finish("draw", draw(&command));
}
