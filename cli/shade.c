/* shade.c - the entropy map, printed; and what a terminal can show. */
#include "shade.h"

#include <math.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Blue over violet to red, as text: neither so dark nor so light that it is lost on a terminal of
 * either kind. */
static const hl_colour strip[]      = { { 60, 120, 230 }, { 165, 90, 200 }, { 225, 65, 60 } };
static const int       strip_cube[] = { 33, 63, 99, 134, 169, 167, 160 };

enum {
    N_STRIP_POINTS = sizeof strip / sizeof *strip,
    N_CUBE_STRIP   = sizeof strip_cube / sizeof *strip_cube
};

static double clamp(double share)
{
    return fmin(fmax(share, 0.0), 1.0);
}

static uint8_t between(uint8_t low, uint8_t high, double share)
{
    return (uint8_t)lround((1.0 - share) * low + share * high);
}

static hl_colour strip_colour(double share)
{
    double           place = clamp(share) * (N_STRIP_POINTS - 1);
    int              below = (int)place < N_STRIP_POINTS - 2 ? (int)place : N_STRIP_POINTS - 2;
    const hl_colour *ends  = strip + below;

    return (hl_colour){ between(ends[0].red, ends[1].red, place - below),
                        between(ends[0].green, ends[1].green, place - below),
                        between(ends[0].blue, ends[1].blue, place - below) };
}

void hl_shade_background(FILE *stream, hl_depth depth, double share)
{
    char escape[HL_ESCAPE_BYTES];

    fputs(hl_terminal_cell(escape, depth, HL_MAP_ENTROPY, share), stream);
}

void hl_shade_text(FILE *stream, hl_depth depth, double share)
{
    char escape[HL_ESCAPE_BYTES];

    fputs(hl_terminal_text(escape, depth, HL_MAP_ENTROPY, share), stream);
}

void hl_shade_strip(FILE *stream, hl_depth depth, double share)
{
    hl_colour colour = strip_colour(share);

    if (depth == HL_DEPTH_TRUE)
        fprintf(stream, "\033[38;2;%d;%d;%dm", colour.red, colour.green, colour.blue);
    else if (depth == HL_DEPTH_256)
        fprintf(stream, "\033[38;5;%dm",
                strip_cube[(int)lround(clamp(share) * (N_CUBE_STRIP - 1))]);
}

void hl_shade_end(FILE *stream, hl_depth depth)
{
    fputs(hl_terminal_end(depth), stream);
}

/* ------------------------------------------------------------ the terminal */

int hl_terminal_width(FILE *stream)
{
    struct winsize size = { 0 };

    if (isatty(fileno(stream)) && ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return 80;
}
