/* test_cli_progress.c - the text of the progress bar at a given width, and when it is shown. */
#define _XOPEN_SOURCE 700 /* for terminals without a screen */
#include "support.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "progress.h"

/* Counts one column per character. */
static int columns(const char *text)
{
    int count = 0;

    for (; *text != '\0'; text++)
        count += ((unsigned char)*text & 0xc0) != 0x80;
    return count;
}

static void a_line_says_everything(void **state)
{
    (void)state;
    hl_progress_view view = { "measuring", 0.5, 1234567, 8400, 125 };
    char             line[512];

    size_t length = hl_progress_format(line, sizeof line, &view, 79);
    assert_int_equal(length, strlen(line));
    assert_string_equal(
        line, "measuring  ━━━━━━━━━━━━━━──────────────   50%  1.2 M tokens  8.4 k/s  2:05 left");
}

static void narrow_terminals_get_less(void **state)
{
    (void)state;
    hl_progress_view view = { "measuring", 0.999, 999, 12.5, 3600 };
    char             line[512];

    for (int width = 4; width < 200; width++) {
        hl_progress_format(line, sizeof line, &view, width);
        assert_true(columns(line) <= width);
        assert_non_null(strstr(line, "99%"));
        assert_true(width < 20 || strstr(line, "1:00:00 left") != NULL);
        assert_true(width < 50 || strstr(line, "999 tokens  12/s") != NULL ||
                    strstr(line, "999 tokens  13/s") != NULL);
        assert_true(width < 70 || strstr(line, "━─") != NULL || strstr(line, "━━") != NULL);
    }
    hl_progress_format(line, 8, &view, 100); /* a short buffer is never overrun */
    assert_true(strlen(line) < 8);
}

static void counts_and_times(void **state)
{
    (void)state;
    static const struct {
        hl_progress_view view;
        const char      *text;
    } cases[] = {
        { { "x", 0, 0, 0, -1 }, "  0%  0 tokens" },
        { { "x", 0, 999, 0, -1 }, "  0%  999 tokens" },
        { { "x", 0, 1000, 0, 0 }, "  0%  1.0 k tokens  0:00 left" },
        { { "x", 0.01, 99949, 0, 59.5 }, "  1%  99.9 k tokens  1:00 left" },
        { { "x", 1, 99950, 1, 3599 }, "100%  100 k tokens  1/s  59:59 left" },
        { { "x", 2, 1000000, 1, 3600 }, "100%  1.0 M tokens  1/s  1:00:00 left" },
        { { "x", -1, 5, 1, 3.0 * 86400 }, "  0%  5 tokens  1/s  3 days left" },
    };
    char line[512];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hl_progress_format(line, sizeof line, &cases[i].view, 79);
        if (strstr(line, cases[i].text) == NULL)
            fail_msg("'%s' is not in '%s'", cases[i].text, line);
    }
}

static void nothing_goes_to_a_file(void **state)
{
    (void)state;
    hl_progress_bar progress;
    FILE           *file = tmpfile();

    assert_non_null(file);
    hl_progress_start(&progress, file, "measuring", false);
    hl_progress_update(&progress, 0.5, 100);
    hl_progress_end(&progress);
    assert_int_equal(ftell(file), 0);
    fclose(file);
}

/* Reads what was written, in pieces, until nothing more arrives. */
static void read_all(char *out, size_t n_bytes, int master)
{
    struct pollfd waiting = { .fd = master, .events = POLLIN };
    size_t        n       = 0;

    while (n + 1 < n_bytes && poll(&waiting, 1, 500) == 1) {
        ssize_t more = read(master, out + n, n_bytes - n - 1);
        assert_true(more > 0);
        n += (size_t)more;
    }
    out[n] = '\0';
}

/* Opens a terminal of 60 columns and compares what was written to it. */
static void a_terminal_gets_a_line_and_loses_it(void **state)
{
    (void)state;
    struct winsize  size   = { .ws_row = 24, .ws_col = 60 };
    int             master = posix_openpt(O_RDWR | O_NOCTTY);
    char            seen[4096];
    hl_progress_bar progress;

    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0)
        skip();
    FILE *terminal = fopen(ptsname(master), "r+");
    if (terminal == NULL) /* a chroot may have /dev/ptmx, but no /dev/pts */
        skip();
    assert_int_equal(ioctl(fileno(terminal), TIOCSWINSZ, &size), 0);
    setenv("TERM", "xterm", 1);
    hl_progress_start(&progress, terminal, "measuring", true);
    hl_progress_update(&progress, 0.5, 100); /* quiet: nothing */
    hl_progress_start(&progress, terminal, "measuring", false);
    hl_progress_update(&progress, 0.25, 100);
    progress.drawn += 1e6;
    hl_progress_update(&progress, 0.26, 101); /* too early to be drawn */
    hl_progress_end(&progress);
    hl_progress_end(&progress);
    read_all(seen, sizeof seen, master);
    assert_string_equal(seen, "\rmeasuring  ━━━━━━━───────────────────────   25%  100 tokens\033[K"
                              "\r\033[K");
    fclose(terminal);
    close(master);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_says_everything),
        cmocka_unit_test(narrow_terminals_get_less),
        cmocka_unit_test(counts_and_times),
        cmocka_unit_test(nothing_goes_to_a_file),
        cmocka_unit_test(a_terminal_gets_a_line_and_loses_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
