/* shade.c - colours of numbers.
 *
 * Five control points, chosen so that CIE lightness rises by about the same from each to
 * the next (16, 36, 54, 72, 91), joined by straight lines in sRGB.  The 6 x 6 x 6 cube of
 * 256-colour terminals has too few colours near that line, whose nearest ones look grey; so
 * nine of the cube were picked that go the same way (lightness 21 to 97, always rising). */
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

/* Blue over violet to red, as text: neither so dark nor so light that it is lost on a
 * terminal of either kind. */
static const hl_rgb strip[]      = { { 60, 120, 230 }, { 165, 90, 200 }, { 225, 65, 60 } };
static const int    strip_cube[] = { 33, 63, 99, 134, 169, 167, 160 };

enum {
    N_STRIP_POINTS = sizeof strip / sizeof *strip,
    N_CUBE_STRIP   = sizeof strip_cube / sizeof *strip_cube
};

static const int cube[] = { 53, 55, 25, 30, 36, 77, 149, 185, 227 };

enum { N_CUBE = sizeof cube / sizeof *cube };

/* ------------------------------------------------------------------ the map */

static unsigned char between(unsigned char low, unsigned char high, double share)
{
    return (unsigned char)lround((1.0 - share) * low + share * high);
}

static double clamp(double share)
{
    return fmin(fmax(share, 0.0), 1.0);
}

static int cube_index(double share)
{
    return cube[(int)lround(clamp(share) * (N_CUBE - 1))];
}

/* What a colour of the cube looks like: 16 + 36 red + 6 green + blue. */
static hl_rgb cube_colour(int index)
{
    static const unsigned char levels[] = { 0, 95, 135, 175, 215, 255 };

    return (hl_rgb){ levels[(index - 16) / 36], levels[(index - 16) / 6 % 6],
                     levels[(index - 16) % 6] };
}

/* The colour at a share of the way along the lines between some. */
static hl_rgb along(const hl_rgb *colours, int count, double share)
{
    double place = clamp(share) * (count - 1);
    int    below = (int)place < count - 2 ? (int)place : count - 2;
    double part  = place - below;

    return (hl_rgb){
        between(colours[below].red, colours[below + 1].red, part),
        between(colours[below].green, colours[below + 1].green, part),
        between(colours[below].blue, colours[below + 1].blue, part),
    };
}

hl_rgb hl_shade(double share, hl_depth depth)
{
    return depth == HL_DEPTH_256 ? cube_colour(cube_index(share)) : along(points, N_POINTS, share);
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

static void put_colour(FILE *stream, hl_depth depth, int kind, double share)
{
    hl_rgb colour = hl_shade(share, depth);

    if (depth == HL_DEPTH_TRUE)
        fprintf(stream, "\033[%d;2;%d;%d;%dm", kind, colour.red, colour.green, colour.blue);
    else if (depth == HL_DEPTH_256)
        fprintf(stream, "\033[%d;5;%dm", kind, cube_index(share));
}

void hl_shade_background(FILE *stream, hl_depth depth, double share)
{
    if (depth == HL_DEPTH_NONE)
        return;
    /* 16 and 231 are the black and the white of the cube: themes leave them alone. */
    fprintf(stream, "\033[38;5;%dm", hl_shade_is_light(hl_shade(share, depth)) ? 16 : 231);
    put_colour(stream, depth, 48, share);
}

void hl_shade_text(FILE *stream, hl_depth depth, double share)
{
    put_colour(stream, depth, 38, share);
}

void hl_shade_strip(FILE *stream, hl_depth depth, double share)
{
    hl_rgb colour = along(strip, N_STRIP_POINTS, share);

    if (depth == HL_DEPTH_TRUE)
        fprintf(stream, "\033[38;2;%d;%d;%dm", colour.red, colour.green, colour.blue);
    else if (depth == HL_DEPTH_256)
        fprintf(stream, "\033[38;5;%dm",
                strip_cube[(int)lround(clamp(share) * (N_CUBE_STRIP - 1))]);
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
