/* progress.c - a progress bar of one line. */
#include "progress.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "command.h"

#define SECONDS_A_DRAWING 0.1
#define SECONDS_TO_GUESS  1.0 /* seconds before a rate and the time left are shown */
#define DEFAULT_WIDTH     80
#define MIN_BAR           10
#define MAX_BAR           40

/* ------------------------------------------------------------------- the line */

/* Formats a count: 999, 1.2 k, 12.3 k, 123 k, 1.2 M ... */
static void print_count(char *out, size_t n_bytes, double count)
{
    static const char *const units[] = { "", " k", " M", " G", " T" };
    int                      unit    = 0;

    while (count >= 999.5 && unit < 4) {
        count /= 1000.0;
        unit++;
    }
    snprintf(out, n_bytes, "%.*f%s", unit > 0 && count < 99.95 ? 1 : 0, count, units[unit]);
}

/* Formats a time: 0:07, 12:34, 1:02:03, 3 days. */
static void print_time(char *out, size_t n_bytes, double seconds)
{
    long long all = (long long)ceil(fmin(seconds, 1e12));

    if (all >= 2LL * 24 * 3600)
        snprintf(out, n_bytes, "%lld days", all / (24LL * 3600));
    else if (all >= 3600)
        snprintf(out, n_bytes, "%lld:%02lld:%02lld", all / 3600, all / 60 % 60, all % 60);
    else
        snprintf(out, n_bytes, "%lld:%02lld", all / 60, all % 60);
}

/* Formats everything after the bar, as far as it fits. */
static void print_numbers(char *out, size_t n_bytes, const hl_progress_view *view, int width)
{
    char tokens[32], rate[32] = "", left[32] = "";
    int  percent = (int)floor(100.0 * view->share);

    print_count(tokens, sizeof tokens, (double)view->n_tokens);
    if (view->rate > 0.0)
        print_count(rate, sizeof rate, view->rate);
    if (view->seconds >= 0.0)
        print_time(left, sizeof left, view->seconds);
    const char *end   = left[0] != '\0' ? " left" : "";
    const char *space = left[0] != '\0' ? "  " : "";
    int         length =
        snprintf(out, n_bytes, "%3d%%  %s tokens%s%s%s%s%s%s", percent, tokens,
                 rate[0] != '\0' ? "  " : "", rate, rate[0] != '\0' ? "/s" : "", space, left, end);
    if (length > width)
        length = snprintf(out, n_bytes, "%3d%%%s%s%s", percent, space, left, end);
    if (length > width)
        snprintf(out, n_bytes, "%3d%%", percent);
}

typedef struct line_writer {
    char  *out;
    size_t room;
    size_t used;
} line_writer;

static void put(line_writer *line, const char *text)
{
    size_t length = strlen(text);

    if (line->room - line->used <= length)
        return; /* only whole characters are written */
    memcpy(line->out + line->used, text, length + 1);
    line->used += length;
}

static void put_bar(line_writer *line, double share, int width)
{
    int n_done = (int)(share * width);

    for (int i = 0; i < width; i++)
        put(line, i < n_done ? "━" : "─");
}

size_t hl_progress_format(char *out, size_t n_bytes, const hl_progress_view *view, int width)
{
    line_writer      line = { out, n_bytes, 0 };
    hl_progress_view kept = *view;
    char             numbers[128];
    int              n_what = (int)strlen(view->what);

    kept.share = fmin(fmax(view->share, 0.0), 1.0);
    out[0]     = '\0';
    print_numbers(numbers, sizeof numbers, &kept, width);
    int  left     = width - (int)strlen(numbers);
    bool has_what = left >= n_what + 2;
    int  n_bar    = left - n_what - 4;
    if (has_what) {
        put(&line, view->what);
        put(&line, "  ");
    }
    if (has_what && n_bar >= MIN_BAR) {
        put_bar(&line, kept.share, n_bar < MAX_BAR ? n_bar : MAX_BAR);
        put(&line, "  ");
    }
    put(&line, numbers);
    return line.used;
}

/* ---------------------------------------------------------------- the terminal */

/* Returns one column less than the terminal has: a full line would wrap on some terminals. */
static int terminal_width(FILE *stream)
{
    struct winsize size = { 0 };

    if (ioctl(fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return DEFAULT_WIDTH - 1;
    return size.ws_col > 1 ? size.ws_col - 1 : 1;
}

void hl_progress_start(hl_progress_bar *progress, FILE *stream, const char *what, bool quiet)
{
    const char *terminal = getenv("TERM");
    bool        watched =
        !quiet && isatty(fileno(stream)) && terminal != NULL && strcmp(terminal, "dumb") != 0;

    *progress = (hl_progress_bar){ .stream = watched ? stream : NULL,
                                   .what   = what,
                                   .began  = hl_clock_now() };
}

static hl_progress_view look(const hl_progress_bar *progress, double share, int64_t n_tokens,
                             double now)
{
    double           passed = now - progress->began;
    double           gained = share - progress->first_share;
    hl_progress_view view   = { progress->what, share, n_tokens, 0.0, -1.0 };

    if (passed < SECONDS_TO_GUESS)
        return view;
    view.rate = (double)(n_tokens - progress->first_tokens) / passed;
    if (gained > 0.0)
        view.seconds = passed * (1.0 - share) / gained;
    return view;
}

void hl_progress_update(hl_progress_bar *progress, double share, int64_t n_tokens)
{
    char line[512];

    if (progress->stream == NULL)
        return;
    if (!progress->has_first) {
        progress->first_share  = share;
        progress->first_tokens = n_tokens;
        progress->has_first    = true;
    }
    double now = hl_clock_now();
    if (progress->is_shown && now - progress->drawn < SECONDS_A_DRAWING)
        return;
    hl_progress_view view = look(progress, share, n_tokens, now);
    hl_progress_format(line, sizeof line, &view, terminal_width(progress->stream));
    fprintf(progress->stream, "\r%s\033[K", line);
    fflush(progress->stream);
    progress->drawn    = now;
    progress->is_shown = true;
}

hl_status hl_progress_show(void *context, const hl_progress *progress)
{
    hl_progress_bar *bar = context;

    if (progress->stage != NULL && strcmp(progress->stage, bar->what) != 0) {
        hl_progress_end(bar);
        *bar = (hl_progress_bar){ .stream = bar->stream,
                                  .what   = progress->stage,
                                  .began  = hl_clock_now() };
    }
    hl_progress_update(bar, progress->share, progress->n_tokens);
    return hl_stop_asked() ? HL_CANCELLED : HL_OK;
}

void hl_progress_end(hl_progress_bar *progress)
{
    if (progress->stream == NULL || !progress->is_shown)
        return;
    fprintf(progress->stream, "\r\033[K");
    fflush(progress->stream);
    progress->is_shown = false;
}
