/* draw_options.h - the options of commands that draw: where to, and how it looks.
 *
 *     hl_draw_arguments drawing = HL_DRAW_ARGUMENTS;
 *     hl_option options[] = { ..., HL_DRAW_OPTIONS(&drawing), { 0 } };
 *     ... hl_options_parse ...
 *     hl_draw_options how = hl_draw_options_of(&drawing); */
#ifndef HL_CLI_DRAW_OPTIONS_H
#define HL_CLI_DRAW_OPTIONS_H

#include "headlight.h"
#include "options.h"

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
