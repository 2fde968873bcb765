/* test_cli_monitor.c - the bytes that the monitor of `headlight generate` writes on screens of
 * given sizes; and commands within limits. */
#include "support.h"

#include <math.h>
#include <signal.h>

#include "child.h"
#include "generate_monitor.h"

typedef struct screen {
    hl_monitor monitor;
    FILE      *stream;
    char      *text;
    size_t     n_text;
} screen;

static screen *open_screen(hl_depth depth, int columns, int64_t n_layers)
{
    static screen s;

    s        = (screen){ 0 };
    s.stream = open_memstream(&s.text, &s.n_text);
    assert_non_null(s.stream);
    hl_monitor_start(&s.monitor, s.stream, depth, columns, n_layers);
    return &s;
}

/* Writes a token with the same share in all layers. */
static void put(screen *s, const char *text, double score, double share, bool spike, bool entity)
{
    hl_monitor_token token = {
        .n_bytes = strlen(text), .score = score, .is_spike = spike, .is_entity = entity
    };

    for (int i = 0; i < HL_MONITOR_BARS; i++)
        token.layers[i] = (float)share;
    assert_true(hl_monitor_expect(&s->monitor, &token));
    hl_monitor_show(&s->monitor, text, strlen(text));
}

static void expect(screen *s, const char *wanted)
{
    fflush(s->stream);
    assert_string_equal(s->text, wanted);
    fclose(s->stream);
    free(s->text);
    hl_monitor_free(&s->monitor);
}

/* ---------------------------------------------------------------------- the text */

static void colors_and_underlines(void **state)
{
    screen *s = open_screen(HL_DEPTH_256, 30, 2); /* too narrow for bars */
    (void)state;

    put(s, "low", -3.0, 0.0, false, false);
    put(s, " usual", 0.0, 0.0, false, false);
    put(s, " high", 2.9, 0.0, false, false);
    put(s, " far", -9.0, 0.0, false, false); /* beyond the scale: the first color */
    put(s, " new", NAN, 0.0, false, false);  /* too few rows before it for a score */
    put(s, " odd", 3.5, 0.0, true, false);
    put(s, " Name", 9.0, 0.0, true, true);
    hl_monitor_finish(&s->monitor, 3.0, 2, 1);
    expect(s, "\033[38;5;33mlow\033[0m\033[38;5;245m usual\033[0m\033[38;5;136m high\033[0m"
              "\033[38;5;33m far\033[0m new\033[38;5;160m\033[4m odd\033[0m"
              "\033[38;5;160m\033[1;4m Name\033[0m\n"
              "attention compared with the text before: focused \033[38;5;33m■\033[38;5;67m■"
              "\033[38;5;67m■\033[38;5;245m■\033[38;5;137m■\033[38;5;137m■\033[38;5;136m■"
              "\033[0m diffuse; 2 spikes (z > 3, \033[4m\033[38;5;160mred\033[0m), 1 at names "
              "(\033[1;4mbold\033[0m)\n");
}

/* Red is for spikes alone: no score of the scale gives a color in which red is the strongest part by
 * far. */
static void only_spikes_are_red(void **state)
{
    (void)state;
    for (int i = -40; i <= 40; i++) {
        screen *s = open_screen(HL_DEPTH_TRUE, 30, 1);
        int     red, green, blue;

        put(s, "x", i / 10.0, 0.0, i > 30, false);
        fflush(s->stream);
        assert_int_equal(sscanf(s->text, "\033[38;2;%d;%d;%dm", &red, &green, &blue), 3);
        assert_int_equal(red > 2 * green && red > 2 * blue, i > 30);
        fclose(s->stream);
        free(s->text);
        hl_monitor_free(&s->monitor);
    }
}

static void a_bar_of_layers_redraws(void **state)
{
    screen *s = open_screen(HL_DEPTH_NONE, 50, 3);
    (void)state;

    assert_int_equal(s->monitor.width, 44);
    put(s, "one", 2.0, 0.0, false, false);
    put(s, " two\n", 2.0, 1.0, false, false); /* the mean of both */
    put(s, "three", 2.0, 0.5, false, false);
    hl_monitor_finish(&s->monitor, 3.0, 0, 0);
    expect(s, "one\033[47G▁▁▁\033[4G two\n\033[47G███\033[1Gthree\033[47G▆▆▆\033[6G\n"
              "0 spikes (z > 3, \033[4munderlined\033[0m)\n");
}

/* A word that does not fit goes to the next line, without its space; a word longer than a line is
 * cut. */
static void lines_break_between_words(void **state)
{
    screen *s = open_screen(HL_DEPTH_NONE, 46, 1);
    char    wanted[512];
    (void)state;

    assert_int_equal(s->monitor.width, 42);
    put(s, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 2.0, 0.0, false, false); /* 36 columns */
    put(s, " seven77", 2.0, 0.0, false, false);
    put(s, " bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", 2.0, 0.0, false, false); /* 44
                                                                                      * columns */
    hl_monitor_finish(&s->monitor, 3.0, 0, 0);
    snprintf(wanted, sizeof wanted,
             "%.36s\033[45G▁\033[37G\nseven77\033[45G▁\033[8G\n%.42s\nbb\033[45G▁\033[3G\n"
             "0 spikes (z > 3, \033[4munderlined\033[0m)\n",
             "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb");
    expect(s, wanted);
}

/* Text may arrive late and in pieces that are not tokens; each piece has its token's style. */
static void text_finds_its_token(void **state)
{
    screen          *s     = open_screen(HL_DEPTH_NONE, 30, 1);
    hl_monitor_token given = { .n_bytes = 4, .score = NAN, .is_given = true };
    hl_monitor_token spike = { .n_bytes = 3, .score = 2.0, .is_spike = true };
    hl_monitor_token empty = { .n_bytes = 0, .score = 2.0 };
    (void)state;

    hl_monitor_expect(&s->monitor, &given);
    hl_monitor_expect(&s->monitor, &empty);
    hl_monitor_expect(&s->monitor, &spike);
    hl_monitor_show(&s->monitor, "gi", 2);
    hl_monitor_show(&s->monitor, "veabc", 5);
    hl_monitor_show(&s->monitor, "rest", 4); /* belongs to no token */
    expect(s, "\033[2mgi\033[0m\033[2mve\033[0m\033[4mabc\033[0mrest");
}

/* A model must not move the cursor, nor break the screen with invalid text. */
static void control_characters_are_spelled_out(void **state)
{
    screen *s = open_screen(HL_DEPTH_NONE, 30, 1);
    (void)state;

    put(s, "a\033[2Jb\rc\tt\xff\xc2\x9bz", 2.0, 0.0, false, false);
    put(s, "日\xe6", 2.0, 0.0, false, false);
    assert_int_equal(s->monitor.column, 25);
    expect(s, "a\\x1b[2Jb\\x0dc t\xef\xbf\xbd\\x9bz日\xef\xbf\xbd");
}

static void many_layers_share_bars(void **state)
{
    (void)state;
    assert_int_equal(hl_monitor_n_bars(8), 8);
    assert_int_equal(hl_monitor_n_bars(80), HL_MONITOR_BARS);
}

/* ---------------------------------------------------------------------- commands */

static void commands_read_and_write_at_once(void **state)
{
    const size_t    n      = 200000; /* more than a pipe holds */
    char           *input  = malloc(n);
    hl_child_result result = { 0 };
    hl_child_limits limits = { 20.0, 1000000 };
    (void)state;

    memset(input, 'x', n);
    assert_true(hl_child_run(&result, "cat", input, n, limits));
    assert_int_equal(result.n_bytes, n);
    assert_memory_equal(result.output, input, n);
    free(result.output);
    assert_true(hl_child_run(&result, "exec <&-; echo done", input, n, limits));
    assert_string_equal(result.output, "done\n");
    free(result.output);
    assert_true(hl_child_run(&result, "true", input, n, limits));
    assert_string_equal(result.output, "");
    free(result.output);
    free(input);
}

static void commands_are_bounded(void **state)
{
    hl_child_result result = { 0 };
    (void)state;

    assert_false(hl_child_run(&result, "sleep 30", "", 0, (hl_child_limits){ 0.05, 100 }));
    assert_null(result.output);
    assert_string_equal(result.problem, "it took more than 0.05 s and was killed");
    assert_true(hl_child_run(&result, "printf 12345", "", 0, (hl_child_limits){ 20.0, 5 }));
    free(result.output);
    assert_false(hl_child_run(&result, "printf 123456", "", 0, (hl_child_limits){ 20.0, 5 }));
    assert_string_equal(result.problem, "it printed more than 5 bytes");
    struct sigaction now;
    sigaction(SIGPIPE, NULL, &now);
    assert_true(now.sa_handler == SIG_DFL); /* unchanged */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(colors_and_underlines),
        cmocka_unit_test(only_spikes_are_red),
        cmocka_unit_test(a_bar_of_layers_redraws),
        cmocka_unit_test(lines_break_between_words),
        cmocka_unit_test(text_finds_its_token),
        cmocka_unit_test(control_characters_are_spelled_out),
        cmocka_unit_test(many_layers_share_bars),
        cmocka_unit_test(commands_read_and_write_at_once),
        cmocka_unit_test(commands_are_bounded),
    };

    setenv("TERM", "xterm", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
