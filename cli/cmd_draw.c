/* cmd_draw.c - headlight draw: a figure of a profile, to an SVG, PNG or PDF file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "headlight.h"
#include "options.h"
#include "shared_options.h"
#include "values.h"

typedef struct draw_command {
    hl_common         common;
    hl_draw_arguments drawing;
    const char       *path;
    const char       *figure;
    const char       *unit;
    const char       *scale;
    const char       *pruned;
    const char       *candidates; /* a number, or names */
    const char       *candidates_by;
} draw_command;

static int list_figures(void)
{
    for (size_t i = 0; hl_figure_name(i) != NULL; i++)
        printf("%-12s %s\n", hl_figure_name(i), hl_figure_summary(i));
    return HL_EXIT_OK;
}

static bool is_figure(const char *name)
{
    for (size_t i = 0; hl_figure_name(i) != NULL; i++) {
        if (strcmp(hl_figure_name(i), name) == 0)
            return true;
    }
    return false;
}

static int refuse_figure(const hl_usage *usage, const char *name)
{
    hl_nearest nearest = { .wanted = name };

    for (size_t i = 0; hl_figure_name(i) != NULL; i++)
        hl_nearest_offer(&nearest, hl_figure_name(i));
    if (nearest.word != NULL)
        return hl_options_refuse(usage, "--figure: no figure is called '%s' (did you mean '%s'?)",
                                 name, nearest.word);
    return hl_options_refuse(usage, "--figure: no figure is called '%s'; 'list' lists them", name);
}

static hl_entropy_unit unit_of(const char *name)
{
    if (strcmp(name, "bits") == 0)
        return HL_UNIT_BITS;
    return strcmp(name, "normalised") == 0 ? HL_UNIT_NORMALISED : HL_UNIT_NATS;
}

/* "12": so many by entropy; "L5H1,L7H3": these. */
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

static int draw(const draw_command *command)
{
    hl_profile     *profile = NULL;
    hl_draw_options options = hl_draw_options_of(&command->drawing);
    hl_status       status  = hl_profile_load(&profile, command->path);

    options.unit = unit_of(command->unit);
    options.seed = (uint64_t)command->common.seed;
    if (strcmp(command->scale, "classes") == 0)
        options.scale = HL_SCALE_CLASSES;
    options.pruned = command->pruned;
    read_candidates(&options, command->candidates);
    options.candidates_by_entropy =
        command->candidates_by != NULL && strcmp(command->candidates_by, "entropy") == 0;

    hl_draw_listen("draw");
    if (status == HL_OK)
        status = hl_draw(profile, command->figure, command->drawing.output, &options);
    if (status != HL_OK)
        hl_complain("draw", "%s", hl_explain(status));
    else if (command->common.json)
        printf("{\n  \"figure\": \"%s\",\n  \"ok\": true\n}\n", command->figure);
    else if (!command->common.quiet)
        printf("%s: %s\n", hl_shown(command->drawing.output), command->figure);
    hl_profile_free(profile);
    return hl_exit_for(status);
}

int hl_command_draw(int argc, char **argv)
{
    draw_command command = {
        .drawing = HL_DRAW_ARGUMENTS, .figure = "heatmap", .unit = "nats", .scale = "continuous"
    };
    hl_arguments rest;

    hl_option options[] = {
        { "figure", 'f', HL_OPTION_TEXT, &command.figure, "NAME",
          "which figure (heatmap); 'list' names them", 0, 0 },
        HL_DRAW_OPTIONS(&command.drawing),
        { "unit", 0, HL_OPTION_CHOICE, &command.unit, "nats|bits|normalised", "of entropy", 0, 0 },
        { "scale", 0, HL_OPTION_CHOICE, &command.scale, "continuous|classes",
          "of the heatmap; six classes, in nats", 0, 0 },
        { "pruned", 0, HL_OPTION_TEXT, &command.pruned, "HEADS",
          "hatched in the heatmap: L5H1,L7 (all of layer 7)", 0, 0 },
        { "candidates", 0, HL_OPTION_TEXT, &command.candidates, "N|HEADS",
          "outlined in it with their rank: N by output norm, or a list", 0, 0 },
        { "candidates-by", 0, HL_OPTION_CHOICE, &command.candidates_by, "output-norm|entropy",
          "which go first (output-norm); entropy did worse than chance", 0, 0 },
        { 0 },
    };
    hl_usage usage = {
        "draw", "PROFILE -o FILE",
        "Draws a figure of a profile, fit for a paper: a heatmap of all heads, the\n"
        "layer profile, the variance between heads, entropy by position, histograms.\n"
        "The ending of the file says which format it gets.",
        options
    };

    int code = hl_options_parse(&rest, &command.common, &usage, argc, argv);
    if (code != HL_OPTIONS_GO_ON)
        return code;
    if (strcmp(command.figure, "list") == 0)
        return list_figures();
    if (rest.count != 1)
        return hl_options_refuse(&usage, "wanted one PROFILE, got %d", rest.count);
    if (command.drawing.output == NULL)
        return hl_options_refuse(&usage, "wanted -o FILE, ending in .svg, .png or .pdf");
    if (!is_figure(command.figure))
        return refuse_figure(&usage, command.figure);
    command.path = rest.items[0];
    return draw(&command);
}
