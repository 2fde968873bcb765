/* shade.c - colours of numbers.
 *
 * Five control points, chosen so that CIE lightness rises by about the same from each to
 * the next (16, 36, 54, 72, 91), joined by straight lines in sRGB. */
#include "shade.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const hl_rgb points[] = {
    { 58, 18, 92 }, { 49, 84, 148 }, { 34, 142, 140 }, { 118, 194, 100 }, { 250, 231, 72 },
};

enum { N_POINTS = sizeof points / sizeof *points };

/* ------------------------------------------------------------------ the map */

static unsigned char between(unsigned char low, unsigned char high, double share)
{
    return (unsigned char)lround((1.0 - share) * low + share * high);
}

hl_rgb hl_shade(double share)
{
    double place = fmin(fmax(share, 0.0), 1.0) * (N_POINTS - 1);
    int    below = (int)place < N_POINTS - 2 ? (int)place : N_POINTS - 2;
    double part  = place - below;

    return (hl_rgb){
        between(points[below].red, points[below + 1].red, part),
        between(points[below].green, points[below + 1].green, part),
        between(points[below].blue, points[below + 1].blue, part),
    };
}

/* Relative luminance, as for contrast ratios on the web. */
static double luminance(hl_rgb colour)
{
    const unsigned char parts[]   = { colour.red, colour.green, colour.blue };
    const double        weights[] = { 0.2126, 0.7152, 0.0722 };
    double              sum       = 0.0;

    for (int i = 0; i < 3; i++) {
        double part = parts[i] / 255.0;
        sum += weights[i] * (part <= 0.04045 ? part / 12.92 : pow((part + 0.055) / 1.055, 2.4));
    }
    return sum;
}

bool hl_shade_is_light(hl_rgb colour)
{
    return luminance(colour) > 0.179; /* where black and white contrast alike */
}

/* ----------------------------------------------------------------- escapes */

/* The nearest colour of the 6 x 6 x 6 cube of 256-colour terminals. */
static int cube_index(hl_rgb colour)
{
    static const int    levels[] = { 0, 95, 135, 175, 215, 255 };
    const unsigned char parts[]  = { colour.red, colour.green, colour.blue };
    int                 index    = 0;

    for (int i = 0; i < 3; i++) {
        int best = 0;
        for (int level = 1; level < 6; level++) {
            if (abs(levels[level] - parts[i]) < abs(levels[best] - parts[i]))
                best = level;
        }
        index = 6 * index + best;
    }
    return 16 + index;
}

static void put_colour(FILE *stream, hl_depth depth, int kind, hl_rgb colour)
{
    if (depth == HL_DEPTH_TRUE)
        fprintf(stream, "\033[%d;2;%d;%d;%dm", kind, colour.red, colour.green, colour.blue);
    else if (depth == HL_DEPTH_256)
        fprintf(stream, "\033[%d;5;%dm", kind, cube_index(colour));
}

void hl_shade_background(FILE *stream, hl_depth depth, hl_rgb colour)
{
    const hl_rgb black = { 0, 0, 0 }, white = { 255, 255, 255 };

    put_colour(stream, depth, 38, hl_shade_is_light(colour) ? black : white);
    put_colour(stream, depth, 48, colour);
}

void hl_shade_text(FILE *stream, hl_depth depth, hl_rgb colour)
{
    put_colour(stream, depth, 38, colour);
}

void hl_shade_end(FILE *stream, hl_depth depth)
{
    if (depth != HL_DEPTH_NONE)
        fputs("\033[0m", stream);
}

/* ------------------------------------------------------------ the terminal */

static bool is_set(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0';
}

static hl_depth guess_depth(FILE *stream)
{
    const char *terminal = getenv("TERM");
    const char *colours  = getenv("COLORTERM");

    if (is_set("NO_COLOR") || terminal == NULL || strcmp(terminal, "dumb") == 0 ||
        !isatty(fileno(stream)))
        return HL_DEPTH_NONE;
    if (colours != NULL && (strcmp(colours, "truecolor") == 0 || strcmp(colours, "24bit") == 0))
        return HL_DEPTH_TRUE;
    return strstr(terminal, "256color") != NULL ? HL_DEPTH_256 : HL_DEPTH_NONE;
}

hl_depth hl_shade_depth(FILE *stream, const char *wanted)
{
    if (strcmp(wanted, "truecolor") == 0)
        return HL_DEPTH_TRUE;
    if (strcmp(wanted, "256") == 0)
        return HL_DEPTH_256;
    return strcmp(wanted, "never") == 0 ? HL_DEPTH_NONE : guess_depth(stream);
}

int hl_terminal_width(FILE *stream)
{
    struct winsize size = { 0 };

    if (isatty(fileno(stream)) && ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return 80;
}
