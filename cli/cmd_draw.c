/* cmd_draw.c - headlight draw: a figure of a profile, to an SVG, PNG or PDF file. */
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "headlight.h"
#include "nearest.h"
#include "options.h"

typedef struct draw_command {
    hl_common   common;
    const char *path;
    const char *figure;
    const char *output;
    const char *theme;
    const char *unit;
    const char *scale;
    const char *title;
    const char *caption;
    double      width;
    double      dpi;
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

static int draw(const draw_command *command)
{
    hl_profile     *profile = NULL;
    hl_draw_options options = {
        .title   = command->title,
        .caption = command->caption,
        .theme   = strcmp(command->theme, "dark") == 0 ? HL_THEME_DARK : HL_THEME_LIGHT,
        .unit    = unit_of(command->unit),
        .scale   = strcmp(command->scale, "classes") == 0 ? HL_SCALE_CLASSES : HL_SCALE_CONTINUOUS,
        .width   = command->width,
        .dpi     = command->dpi,
        .seed    = (uint64_t)command->common.seed,
    };
    hl_status status = hl_profile_load(&profile, command->path);

    if (status == HL_OK)
        status = hl_draw(profile, command->figure, command->output, &options);
    if (status != HL_OK)
        hl_complain("draw", "%s", hl_error_message());
    else if (command->common.json)
        printf("{\n  \"figure\": \"%s\",\n  \"ok\": true\n}\n", command->figure);
    else if (!command->common.quiet)
        printf("%s: %s\n", command->output, command->figure);
    hl_profile_free(profile);
    return hl_exit_for(status);
}

int hl_command_draw(int argc, char **argv)
{
    draw_command command = {
        .figure = "heatmap", .theme = "light", .unit = "nats", .scale = "continuous"
    };
    hl_arguments rest;

    hl_option options[] = {
        { "figure", 'f', HL_OPTION_TEXT, &command.figure, "NAME",
          "which figure (heatmap); 'list' names them", 0, 0 },
        { "output", 'o', HL_OPTION_TEXT, &command.output, "FILE", "where to; .svg, .png or .pdf", 0,
          0 },
        { "theme", 0, HL_OPTION_CHOICE, &command.theme, "light|dark", "for paper or for slides", 0,
          0 },
        { "unit", 0, HL_OPTION_CHOICE, &command.unit, "nats|bits|normalised", "of entropy", 0, 0 },
        { "scale", 0, HL_OPTION_CHOICE, &command.scale, "continuous|classes",
          "of the heatmap; six classes, in nats", 0, 0 },
        { "title", 0, HL_OPTION_TEXT, &command.title, "TEXT", "above the figure; '' for none", 0,
          0 },
        { "caption", 0, HL_OPTION_TEXT, &command.caption, "TEXT",
          "in the caption: which model, which corpus", 0, 0 },
        { "width", 0, HL_OPTION_NUMBER, &command.width, "POINTS", "of the page, 1/72 inch (480)",
          240, 2000 },
        { "dpi", 0, HL_OPTION_NUMBER, &command.dpi, "N", "pixels an inch, of PNG (144)", 24, 1200 },
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
    if (command.output == NULL)
        return hl_options_refuse(&usage, "wanted -o FILE, ending in .svg, .png or .pdf");
    if (!is_figure(command.figure))
        return refuse_figure(&usage, command.figure);
    command.path = rest.items[0];
    return draw(&command);
}
