/* test_show.c - the output of `headlight show` for profiles with known numbers: cells, colors, and
 * pages that are not too wide. */
#include "made_profile.h"

enum { MOST_HEADS = 200, MOST_LAYERS = 200 };

/* Returns the program's output without its last newline; release with free. */
static char *run(const char *arguments, const char *path)
{
    const char *program = getenv("HEADLIGHT");
    char        command[4096];
    size_t      length = 0;
    char       *output = calloc(1, 1 << 20);

    assert_non_null(output);
    snprintf(command, sizeof command, "%s show %s %s",
             program != NULL ? program : "build/headlight", arguments, path);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    length = fread(output, 1, (1 << 20) - 1, pipe);
    assert_int_equal(pclose(pipe), 0);
    assert_true(length > 0);
    return output;
}

/* Copies the line that begins with this to a static buffer, without its end. */
static const char *line_of(const char *output, const char *beginning)
{
    static char line[4096];

    for (const char *at = output; at != NULL && *at != '\0'; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, beginning, strlen(beginning)) == 0) {
            snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
            return line;
        }
    }
    fail_msg("no line begins with '%s'", beginning);
    return NULL;
}

/* Returns the number of columns of the widest line, without escape sequences. */
static int widest(const char *output)
{
    int most = 0, width = 0;

    for (const char *at = output; *at != '\0'; at++) {
        if (*at == '\033')
            at += strcspn(at, "m");
        else if (*at == '\n')
            width = 0;
        else
            width += ((unsigned char)*at & 0xc0) != 0x80;
        most = width > most ? width : most;
    }
    return most;
}

/* Two layers: a uniform head, one on a single key, a broken one; and, in layer 1, one that gives
 * 0.6 to the previous token. */
static const char *small_profile(const char *folder)
{
    made_model  model = { .n_layers = 2, .n_heads = 3, .n_sequences = 4 };
    const char *path  = in_folder(folder, "small.profile");

    model.heads[0][1]   = (made_head){ .kind = MADE_SELF, .strength = 1.0 };
    model.heads[0][2]   = (made_head){ .kind = MADE_LOCAL, .strength = 0.5, .broken = true };
    model.heads[1][0]   = (made_head){ .kind = MADE_PREVIOUS, .strength = 0.6 };
    hl_profile *profile = made_profile(&model);
    assert_ok(hl_profile_write(profile, path));
    hl_profile_free(profile);
    return path;
}

/* Returns the normalized entropy of the head that gives 0.6 to the previous token, in %, rounded
 * down. */
static int known_figure(void)
{
    made_head head = { .kind = MADE_PREVIOUS, .strength = 0.6 };
    double    p[M_ROWS], h[3], sum = 0;

    for (int row = 15; row < M_ROWS; row++) {
        made_row(p, &head, 0, row, 600);
        made_entropies(h, p, 0, row + 1);
        sum += h[0] / log(row + 1.0);
    }
    return (int)floor(100.0 * sum / (M_ROWS - 15));
}

static void test_figures(void **state)
{
    char        folder[64], wanted[64];
    const char *path;

    (void)state;
    strcpy(folder, new_folder());
    path         = small_profile(folder);
    char *output = run("", path);
    /* Layers across, heads up, as on the page and in figures. */
    assert_string_equal(line_of(output, "L "), "L      0  1");
    assert_string_equal(line_of(output, "H2 "), "H2     - 99");
    assert_string_equal(line_of(output, "H1 "), "H1    00 99");
    snprintf(wanted, sizeof wanted, "H0    99 %02d", known_figure());
    assert_string_equal(line_of(output, "H0 "), wanted);
    assert_true(strstr(output, "\nH2 ") < strstr(output, "\nH0 "));
    assert_string_equal(line_of(output, "normalized entropy,"),
                        "normalized entropy, % (0 = all on one token, 100 = uniform)");
    assert_null(strchr(output, '\033'));
    assert_true(widest(output) <= 80);
    /* One key, then more and more, up to the context's last. */
    const char *positions = strstr(output, "\npositions\n");
    assert_non_null(positions);
    assert_non_null(strstr(line_of(positions, "  entropy "), "0.000 (0) to "));
    if (strstr(line_of(positions, "  entropy "), " (63)") == NULL)
        fail_msg("%s", line_of(positions, "  entropy "));
    assert_string_equal(line_of(positions, "  95% intervals"),
                        "  95% intervals of the entropy: up to 0.000 either way");
    free(output);

    /* Colors are not written to a pipe unless requested. */
    output           = run("--color truecolor", path);
    const char *line = strstr(output, "\nH1 ");
    for (int end = 0; end < 2; end++) { /* colors are those of the figures */
        hl_color color = hl_map_color(HL_MAP_ENTROPY, end);
        snprintf(wanted, sizeof wanted, "\033[38;5;%dm\033[48;2;%d;%d;%dm %s\033[0m",
                 end == 1 ? 16 : 231, color.red, color.green, color.blue, end == 1 ? "99" : "00");
        assert_non_null(strstr(line, wanted));
    }
    free(output);
    output = run("--color 256", path);
    line   = strstr(output, "\nH1 ");
    assert_non_null(strstr(line, "\033[38;5;16m\033[48;5;227m 99\033[0m"));
    assert_non_null(strstr(line, "\033[38;5;231m\033[48;5;53m 00\033[0m"));
    free(output);

    output = run("--by self", path);
    assert_string_equal(line_of(output, "self,"), "self, %");
    free(output);
    remove_folder(folder);
}

/* Writes a profile with the same number of heads in all layers except the last, which has one less;
 * the entropy rises from layer to layer. */
static void write_wide(const char *path, int64_t n_layers, int64_t n_heads)
{
    static float             entropy[MOST_HEADS][M_ROWS], other[MOST_HEADS][M_ROWS];
    static const char *const names[] = { "prompt" };
    int64_t                  heads[MOST_LAYERS];
    uint8_t                  types[M_ROWS] = { 0 };
    int64_t                  length = M_ROWS, zero = 0;
    uint64_t                 hash       = 1;
    hl_profile              *profile    = NULL;
    hl_profile_batch         batch      = { .n_batch   = 1,
                                            .lengths   = &length,
                                            .first_row = &zero,
                                            .hashes    = &hash,
                                            .types     = types,
                                            .context   = M_ROWS,
                                            .documents = &zero,
                                            .starts    = &zero,
                                            .n_threads = 1 };
    hl_attention_result      statistics = { .entropy        = entropy[0],
                                            .renyi2         = other[0],
                                            .varentropy     = other[0],
                                            .peak           = other[0],
                                            .self           = other[0],
                                            .previous       = other[0],
                                            .first          = other[0],
                                            .entropy_nosink = other[0] };

    for (int64_t layer = 0; layer < n_layers; layer++)
        heads[layer] = n_heads - (layer == n_layers - 1);
    assert_ok(hl_profile_new(&profile, &(hl_profile_shape){ n_layers, heads, M_ROWS, 1, names }));
    assert_ok(hl_profile_begin(profile, &batch));
    for (int64_t layer = 0; layer < n_layers; layer++) {
        hl_layer_rows   rows = { .layer   = layer,
                                 .n_batch = 1,
                                 .n_rows  = M_ROWS,
                                 .n_heads = heads[layer],
                                 .start   = &zero,
                                 .lengths = &length,
                                 .rows    = &statistics };
        hl_profile_mask mask = { .is_causal = true };

        for (int64_t i = 0; i < n_heads * M_ROWS; i++)
            entropy[i / M_ROWS][i % M_ROWS] =
                (float)(log(i % M_ROWS + 1.0) * ((double)layer + 0.5) / (double)n_layers);
        assert_ok(hl_profile_layer(profile, &rows, &mask));
    }
    assert_ok(hl_profile_end(profile));
    assert_ok(hl_profile_write(profile, path));
    hl_profile_free(profile);
}

static int count_lines(const char *output, const char *beginning)
{
    int count = 0;

    for (const char *at = output; (at = strstr(at, beginning)) != NULL; at++)
        count++;
    return count;
}

/* Every layer has its place within 80 columns, for any number of layers and heads. */
static void test_wide_pages(void **state)
{
    static const int64_t sizes[][2] = { { 2, 3 },   { 25, 4 },  { 26, 4 },  { 37, 12 }, { 38, 12 },
                                        { 48, 25 }, { 48, 40 }, { 75, 12 }, { 76, 3 },  { 80, 64 },
                                        { 126, 8 }, { 3, 128 }, { 2, 200 } };
    static const char   *modes[]    = { "", "--color 256", "--color truecolor" };
    char                 folder[64];

    (void)state;
    strcpy(folder, new_folder());
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const char *path = in_folder(folder, "wide.profile");
        write_wide(path, sizes[i][0], sizes[i][1]);
        for (int mode = 0; mode < 3; mode++) {
            char *output = run(modes[mode], path);
            if (widest(output) > 80)
                fail_msg("%lld layers, '%s': %d columns", (long long)sizes[i][0], modes[mode],
                         widest(output));
            line_of(output, "H0 ");
            assert_true(count_lines(output, "\nH0 ") == count_lines(output, "\nL "));
            free(output);
        }
    }
    remove_folder(folder);
}

static void test_blocks(void **state)
{
    char        folder[64];
    const char *path;

    (void)state;
    strcpy(folder, new_folder());
    path = in_folder(folder, "wide.profile");
    write_wide(path, 48, 2); /* layer l has a normalized entropy of (l + 0.5) / 48 */
    char *output = run("", path);
    assert_int_equal(count_lines(output, "\nH0 "), 2);
    assert_non_null(strstr(output,
                           "\nL      0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 "
                           "20 21 22 23\nH1    01 03 05 07 09 11 13 15 17 19 21 23 26 28 30 32 "
                           "34 36 38 40 42 44 46 48\n"));
    assert_non_null(strstr(output, "\nL     24 25 26 "));
    /* The last layer has one head less. */
    assert_non_null(strstr(output, " 94 96   \nH0    51 "));
    free(output);
    output = run("--color 256", path); /* one block, with cells of one column */
    assert_int_equal(count_lines(output, "\nH0 "), 1);
    free(output);

    write_wide(path, 40, 40); /* two blocks of 40 lines would be too high: tenths in one column */
    output = run("", path);
    assert_string_equal(line_of(output, "L "), "L    0        8        16       24       32");
    assert_string_equal(line_of(output, "H0 "),
                        "H0   00001111 22223333 44445555 66667777 88889999");
    assert_string_equal(line_of(output, "H39 "),
                        "H39  00001111 22223333 44445555 66667777 8888999 ");
    free(output);

    write_wide(path, 4, 160); /* each line shows three heads */
    output = run("", path);
    line_of(output, "each line is the mean of 3 heads");
    assert_string_equal(line_of(output, "H159 "), "H159  12 37 62   ");
    assert_string_equal(line_of(output, "H0 "), "H0    12 37 62 87");
    free(output);
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_wide_pages),
        cmocka_unit_test(test_blocks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
