/* draw_options.c - how figures look, from the command line. */
#include "draw_options.h"

#include <string.h>

#include "command.h"

static void complain(void *command, hl_log_level level, const char *message)
{
    (void)level;
    hl_complain(command, "%s", message);
}

void hl_draw_listen(const char *command)
{
    hl_log_set(complain, (void *)(uintptr_t)command, HL_LOG_WARNING);
}

hl_draw_options hl_draw_options_of(const hl_draw_arguments *arguments)
{
    return (hl_draw_options){
        .title   = arguments->title,
        .caption = arguments->caption,
        .theme   = strcmp(arguments->theme, "dark") == 0 ? HL_THEME_DARK : HL_THEME_LIGHT,
        .width   = arguments->width,
        .dpi     = arguments->dpi,
    };
}
