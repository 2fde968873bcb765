/* generate_monitor.c - shows a text on a terminal while it is generated.
 *
 * Text reaches the screen later than its token was drawn: a character may be incomplete, a possible
 * stop word is held back, tokens may be drawn again.  So tokens wait in a queue with the lengths of
 * their texts, and bytes that arrive belong to the first token in the queue. */
#include "generate_monitor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MIN_TEXT 40  /* columns of text that bars must leave */
#define MAX_TEXT 100 /* most columns of text beside a bar */
#define BAR_GAP  2
#define SCALE    3.0 /* spike score of the last color of the scale; the first one's is its negative */

/* --------------------------------------------------------------------- start */

int hl_monitor_n_bars(int64_t n_layers)
{
    return n_layers < HL_MONITOR_BARS ? (int)n_layers : HL_MONITOR_BARS;
}

static bool can_move(void)
{
    const char *terminal = getenv("TERM");

    return terminal != NULL && terminal[0] != '\0' && strcmp(terminal, "dumb") != 0;
}

void hl_monitor_start(hl_monitor *monitor, FILE *stream, hl_depth depth, int columns,
                      int64_t n_layers)
{
    int n_bars = hl_monitor_n_bars(n_layers);
    int text   = columns - n_bars - BAR_GAP - 1; /* a full line would wrap on some terminals */

    *monitor = (hl_monitor){ .stream = stream, .depth = depth, .plain = !can_move() };
    if (monitor->plain || text < MIN_TEXT) {
        monitor->width = columns;
        return;
    }
    monitor->n_bars = n_bars;
    monitor->width  = text < MAX_TEXT ? text : MAX_TEXT;
}

void hl_monitor_free(hl_monitor *monitor)
{
    free(monitor->queue);
}

/* ---------------------------------------------------------------------- colors */

/* Blue through gray to ochre, for text: readable on dark and on light terminals.  Red is kept for
 * spikes. */
static const hl_color strip[]      = { { 50, 115, 230 }, { 130, 134, 142 }, { 185, 128, 15 } };
static const int      strip_cube[] = { 33, 67, 245, 137, 136 };
static const hl_color spike_color  = { 225, 50, 50 };
static const int      spike_cube   = 160;

enum {
    N_STRIP_POINTS = sizeof strip / sizeof *strip,
    N_CUBE_STRIP   = sizeof strip_cube / sizeof *strip_cube,
    N_LEGEND       = 7
};

static uint8_t between(uint8_t low, uint8_t high, double share)
{
    return (uint8_t)lround((1.0 - share) * low + share * high);
}

static hl_color strip_color(double share)
{
    double          place = share * (N_STRIP_POINTS - 1);
    int             below = (int)place < N_STRIP_POINTS - 2 ? (int)place : N_STRIP_POINTS - 2;
    const hl_color *ends  = strip + below;

    return (hl_color){ between(ends[0].red, ends[1].red, place - below),
                       between(ends[0].green, ends[1].green, place - below),
                       between(ends[0].blue, ends[1].blue, place - below) };
}

static void set_color(const hl_monitor *monitor, hl_color color, int cube)
{
    if (monitor->depth == HL_DEPTH_TRUE)
        fprintf(monitor->stream, "\033[38;2;%d;%d;%dm", color.red, color.green, color.blue);
    else if (monitor->depth == HL_DEPTH_256)
        fprintf(monitor->stream, "\033[38;5;%dm", cube);
}

/* Sets the color of the following text: blue for a share of 0, ochre for 1. */
static void color_share(const hl_monitor *monitor, double share)
{
    double bounded = fmin(fmax(share, 0.0), 1.0);

    set_color(monitor, strip_color(bounded), strip_cube[(int)lround(bounded * (N_CUBE_STRIP - 1))]);
}

/* ----------------------------------------------------------------------- bars */

static const char *const blocks[] = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };

static void draw_block(const hl_monitor *monitor, double share)
{
    int level = (int)(fmin(fmax(share, 0.0), 1.0) * 7.999);

    hl_shade_text(monitor->stream, monitor->depth, share);
    fputs(blocks[level], monitor->stream);
}

/* Draws the bar of this line if necessary, and moves the cursor back. */
static void draw_bar(hl_monitor *monitor)
{
    if (monitor->n_bars == 0 || monitor->n_line == monitor->n_drawn)
        return;
    monitor->n_drawn = monitor->n_line;
    fprintf(monitor->stream, "\033[%dG", monitor->width + BAR_GAP + 1);
    for (int i = 0; i < monitor->n_bars; i++)
        draw_block(monitor, monitor->sums[i] / (double)monitor->n_line);
    hl_shade_end(monitor->stream, monitor->depth);
    fprintf(monitor->stream, "\033[%dG", monitor->column + 1);
}

static void add_to_line(hl_monitor *monitor, const hl_monitor_token *token)
{
    if (token->is_given)
        return;
    for (int i = 0; i < monitor->n_bars; i++)
        monitor->sums[i] += (double)token->layers[i];
    monitor->n_line++;
}

static void new_line(hl_monitor *monitor)
{
    fputc('\n', monitor->stream);
    monitor->column  = 0;
    monitor->n_line  = 0;
    monitor->n_drawn = 0;
    memset(monitor->sums, 0, sizeof monitor->sums);
}

/* ------------------------------------------------------------- looks and legend */

hl_monitor_token hl_monitor_look(const hl_monitor *monitor, const hl_trace *trace, int64_t token,
                                 double threshold)
{
    hl_traced_token  about    = hl_trace_describe(trace, token);
    int64_t          n_layers = hl_trace_n_layers(trace);
    hl_monitor_token look     = { .score     = about.spike,
                                  .is_spike  = about.spike > threshold,
                                  .is_entity = about.is_entity };

    for (int bar = 0; bar < monitor->n_bars; bar++) {
        int64_t begin = n_layers * bar / monitor->n_bars;
        int64_t end   = n_layers * (bar + 1) / monitor->n_bars;
        double  sum   = 0.0;

        for (int64_t layer = begin; layer < end; layer++) {
            double mean = hl_trace_layer_mean(trace, token, layer, HL_TRACE_NORMALIZED);
            sum += isnan(mean) ? 0.0 : mean;
        }
        look.layers[bar] = (float)(sum / (double)(end - begin));
    }
    return look;
}

static void explain(const hl_monitor *monitor, double threshold, int64_t n_spikes,
                    int64_t n_entities)
{
    FILE *stream = monitor->stream;

    if (monitor->depth != HL_DEPTH_NONE) {
        fputs("attention compared with the text before: focused ", stream);
        for (int i = 0; i < N_LEGEND; i++) {
            color_share(monitor, i / (N_LEGEND - 1.0));
            fputs("■", stream);
        }
        hl_shade_end(stream, monitor->depth);
        fputs(" diffuse; ", stream);
    }
    fprintf(stream, "%lld spike%s (z > %g, \033[4m", (long long)n_spikes, n_spikes == 1 ? "" : "s",
            threshold);
    set_color(monitor, spike_color, spike_cube);
    fprintf(stream, "%s\033[0m)", monitor->depth != HL_DEPTH_NONE ? "red" : "underlined");
    if (n_entities > 0)
        fprintf(stream, ", %lld at names (\033[1;4mbold\033[0m)", (long long)n_entities);
    fputc('\n', stream);
}

/* ----------------------------------------------------------------------- text */

/* Returns the approximate number of columns of a character: none for marks, two for wide ones. */
static int width_of(uint32_t c)
{
    static const uint32_t wide[][2] = { { 0x1100, 0x115f },  { 0x2e80, 0xa4cf },
                                        { 0xac00, 0xd7a3 },  { 0xf900, 0xfaff },
                                        { 0xfe30, 0xfe6f },  { 0xff00, 0xff60 },
                                        { 0xffe0, 0xffe6 },  { 0x1f300, 0x1faff },
                                        { 0x20000, 0x3fffd } };

    if ((c >= 0x300 && c < 0x370) || (c >= 0x200b && c < 0x2010) || (c >= 0xfe00 && c < 0xfe10))
        return 0;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        if (c >= wide[i][0] && c <= wide[i][1])
            return 2;
    }
    return 1;
}

/* Returns the first character and its number of bytes; U+FFFD if it is incomplete or invalid. */
static uint32_t next_character(size_t *n_used, const char *text, size_t n_bytes)
{
    const unsigned char *b      = (const unsigned char *)text;
    size_t               length = b[0] < 0x80 ? 1 : b[0] < 0xe0 ? 2 : b[0] < 0xf0 ? 3 : 4;
    uint32_t             c      = length == 1 ? b[0] : b[0] & (0x7fU >> length);

    *n_used = 1;
    if (length > n_bytes || (b[0] >= 0x80 && b[0] < 0xc2))
        return 0xfffd;
    for (size_t i = 1; i < length; i++) {
        if ((b[i] & 0xc0) != 0x80)
            return 0xfffd;
        c = c << 6 | (b[i] & 0x3fU);
    }
    *n_used = length;
    return c;
}

enum { SHOWN_BYTES = 16 };

/* Writes a character as it is shown on the terminal; returns its number of columns. */
static int show_character(char shown[SHOWN_BYTES], const char *text, size_t n_used, uint32_t c)
{
    size_t length = hl_printable(shown, SHOWN_BYTES, text, n_used, HL_PRINTABLE_LINES);

    if (c == '\t')
        shown[0] = ' ';
    return length == n_used && memcmp(shown, text, n_used) == 0 ? width_of(c)
           : c == 0xfffd || c == '\t'                           ? 1
                                                                : (int)length;
}

/* Begins the style of a token; returns false if it has none. */
static bool begin_style(const hl_monitor *monitor, const hl_monitor_token *token)
{
    bool colored = !token->is_given && !isnan(token->score) && monitor->depth != HL_DEPTH_NONE;

    if (monitor->plain)
        return false;
    if (token->is_given)
        fputs("\033[2m", monitor->stream);
    if (colored && token->is_spike)
        set_color(monitor, spike_color, spike_cube);
    else if (colored)
        color_share(monitor, (token->score + SCALE) / (2.0 * SCALE));
    if (token->is_spike)
        fputs(token->is_entity ? "\033[1;4m" : "\033[4m", monitor->stream);
    return token->is_given || colored || token->is_spike;
}

static void end_style(const hl_monitor *monitor, bool begun)
{
    if (begun)
        fputs("\033[0m", monitor->stream);
}

/* Returns the number of columns up to the next place where a line may be broken. */
static int word_width(const char *text, size_t n_bytes)
{
    char shown[SHOWN_BYTES];
    int  width = 0;

    for (size_t at = 0, used = 0; at < n_bytes; at += used) {
        uint32_t c = next_character(&used, text + at, n_bytes - at);
        if (at > 0 && (c == ' ' || c == '\n'))
            break;
        width += show_character(shown, text + at, used, c);
    }
    return width;
}

/* Breaks the line before a word that does not fit; drops a space there. */
static bool breaks_line(hl_monitor *monitor, const char *text, size_t n_bytes)
{
    int width = word_width(text, n_bytes);

    if (monitor->column == 0 || monitor->column + width <= monitor->width)
        return false;
    if (text[0] != ' ' && monitor->column < monitor->width)
        return false; /* in the middle of a word the line is filled */
    draw_bar(monitor);
    new_line(monitor);
    return text[0] == ' ';
}

static void put_character(hl_monitor *monitor, const char *text, size_t n_used, uint32_t c)
{
    char shown[SHOWN_BYTES];

    monitor->column += show_character(shown, text, n_used, c);
    fputs(shown, monitor->stream);
}

/* Shows a part of one token's text in the token's style. */
static void show_part(hl_monitor *monitor, const hl_monitor_token *token, const char *text,
                      size_t n_bytes)
{
    bool begun = begin_style(monitor, token);

    for (size_t at = 0, used = 0; at < n_bytes; at += used) {
        uint32_t c = next_character(&used, text + at, n_bytes - at);

        if (c == '\n') {
            end_style(monitor, begun);
            draw_bar(monitor);
            new_line(monitor);
            begun = at + used < n_bytes && begin_style(monitor, token);
        } else if (monitor->n_bars == 0 || !breaks_line(monitor, text + at, n_bytes - at)) {
            put_character(monitor, text + at, used, c);
        }
    }
    end_style(monitor, begun);
}

bool hl_monitor_expect(hl_monitor *monitor, const hl_monitor_token *token)
{
    if (monitor->n_queue == monitor->capacity) {
        size_t            capacity = 2 * monitor->capacity + 16;
        hl_monitor_token *grown    = realloc(monitor->queue, capacity * sizeof *grown);
        if (grown == NULL)
            return false;
        monitor->queue    = grown;
        monitor->capacity = capacity;
    }
    monitor->queue[monitor->n_queue++] = *token;
    return true;
}

void hl_monitor_show(hl_monitor *monitor, const char *text, size_t n_bytes)
{
    static const hl_monitor_token nobody = { .score = NAN };
    size_t                        first  = 0;

    while (n_bytes > 0) {
        hl_monitor_token *token = first < monitor->n_queue ? &monitor->queue[first] : NULL;
        size_t n_part = token != NULL && token->n_bytes < n_bytes ? token->n_bytes : n_bytes;

        bool ends = token != NULL && token->n_bytes == n_part;

        /* A line end belongs to the line before it. */
        if (ends && n_part > 0 && text[0] == '\n')
            add_to_line(monitor, token);
        if (n_part > 0)
            show_part(monitor, token != NULL ? token : &nobody, text, n_part);
        if (ends && (n_part == 0 || text[0] != '\n'))
            add_to_line(monitor, token);
        if (token != NULL)
            token->n_bytes -= n_part;
        first += ends;
        text += n_part;
        n_bytes -= n_part;
    }
    memmove(monitor->queue, monitor->queue + first,
            (monitor->n_queue - first) * sizeof *monitor->queue);
    monitor->n_queue -= first;
    draw_bar(monitor);
    fflush(monitor->stream);
}

void hl_monitor_finish(hl_monitor *monitor, double threshold, int64_t n_spikes, int64_t n_entities)
{
    if (monitor->column > 0) {
        draw_bar(monitor);
        new_line(monitor);
    }
    if (!monitor->plain)
        explain(monitor, threshold, n_spikes, n_entities);
    fflush(monitor->stream);
}
