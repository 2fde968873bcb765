/* test_series.c - the points of a training run: numbers, falls, alarms, and their file. */
#include "made_profile.h"

#include <sys/stat.h>

#include "analysis/series_parts.h"
#include "base/hash.h"

/* Makes a model whose attention is sharper than the healthy one's by this amount. */
static made_model sharper(double by)
{
    made_model model = healthy_model();

    for (int i = 0; i < M_LAYERS * M_HEADS; i++)
        model.heads[i / M_HEADS][i % M_HEADS].strength += by;
    return model;
}

static hl_status add_model(hl_series *series, const made_model *model, int64_t step,
                           const hl_series_options *options)
{
    hl_profile *profile = made_profile(model);
    char        name[32];

    snprintf(name, sizeof name, "checkpoint-%lld", (long long)step);
    hl_status status = hl_series_add(series, profile,
                                     &(hl_series_entry){ .name     = name,
                                                         .step     = step,
                                                         .n_bytes  = 1000 + step,
                                                         .modified = 1700000000000000000 + step,
                                                         .text     = 0x1234 },
                                     options);
    hl_profile_free(profile);
    return status;
}

static void add(hl_series *series, double by, int64_t step)
{
    made_model model = sharper(by);

    assert_ok(add_model(series, &model, step, NULL));
}

static hl_series *new_series(void)
{
    hl_series *series = NULL;

    assert_ok(hl_series_new(&series));
    return series;
}

/* ----------------------------------------------------------------------- points */

static void a_point_says_what_the_profile_says(void **state)
{
    made_model    model   = healthy_model();
    hl_profile   *profile = made_profile(&model);
    hl_series    *series  = new_series();
    hl_diagnoses *found   = NULL;
    double        sum     = 0;
    (void)state;

    add(series, 0, 500);
    const hl_series_point *point = hl_series_find(series, "checkpoint-500");
    assert_ptr_equal(point, hl_series_at(series, 0));
    assert_null(hl_series_find(series, "checkpoint-50"));
    for (int64_t i = 0; i < M_LAYERS * M_HEADS; i++) {
        double mean = hl_profile_moments(profile, i / M_HEADS, i % M_HEADS, HL_Q_ENTROPY).mean;
        assert_true(point->heads_entropy[i] == (float)mean);
        sum += mean;
    }
    assert_near(point->entropy, sum / (M_LAYERS * M_HEADS), 1e-12);
    assert_int_equal(point->n_tokens, hl_profile_n_tokens(profile));
    assert_int_equal(point->n_sequences, 12);
    assert_int_equal(point->n_bytes, 1500);
    assert_true(isnan(point->nll) && isnan(point->drop_errors));
    assert_int_equal(point->since, -1);
    assert_ok(hl_diagnose(&found, profile, NULL, NULL));
    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        assert_int_equal(point->verdicts[i], found->items[i].verdict);
        assert_string_equal(point->findings[i], found->items[i].finding);
        assert_string_equal(hl_diagnosis_name((size_t)i), found->items[i].name);
    }
    assert_null(hl_diagnosis_name(HL_N_DIAGNOSES));
    hl_diagnoses_free(found);
    hl_series_free(series);
    hl_profile_free(profile);
}

/* A run of three: it learns, which is not reported, and then collapses.  What `headlight diagnose NOW
 * BEFORE` says of two profiles is what the series says. */
static void a_fall_is_the_diagnosis_of_two_profiles(void **state)
{
    made_model models[3] = { healthy_model(), healthy_model(), healthy_model() };
    hl_series *series    = new_series();
    (void)state;

    for (int i = 0; i < M_LAYERS * M_HEADS; i++) {
        made_head *head = &models[0].heads[i / M_HEADS][i % M_HEADS];
        *head           = (made_head){ .kind = MADE_LOCAL, .strength = 0.02, .wobble = 0.001 };
        models[2].heads[i / M_HEADS][i % M_HEADS] =
            (made_head){ .kind = MADE_CONTENT, .strength = 0.99 - 1e-4 * i };
    }
    models[0].loss = 8.3;
    models[1].loss = 4.0;
    models[2].loss = 4.4;
    for (int i = 0; i < 3; i++)
        assert_ok(add_model(series, &models[i], 100 * i, NULL));
    for (int i = 1; i < 3; i++) {
        const hl_series_point *point  = hl_series_at(series, i);
        hl_profile            *before = made_profile(&models[0]), *now = made_profile(&models[i]);
        hl_profile            *last  = made_profile(&models[i - 1]);
        hl_diagnoses          *found = NULL;

        /* The highest of the steps before is the first; since then the loss fell in both. */
        assert_int_equal(point->since, i == 1 ? 0 : 100);
        assert_true(point->drop_errors > 10.0 && point->drop > 0.1);
        assert_int_equal(point->verdicts[1], i == 1 ? HL_VERDICT_NOT_FOUND : HL_VERDICT_FOUND);
        assert_ok(hl_diagnose(&found, now, i == 1 ? before : last, NULL));
        assert_int_equal(point->verdicts[1], found->items[1].verdict);
        assert_near(point->drop_errors, found->items[1].errors, 1e-12);
        hl_diagnoses_free(found);
        /* Drift is looked for since the step just before. */
        assert_ok(hl_diagnose(&found, now, last, NULL));
        assert_int_equal(point->verdicts[8], found->items[8].verdict);
        assert_int_equal(point->verdicts[8], i == 1 ? HL_VERDICT_NOT_FOUND : HL_VERDICT_FOUND);
        hl_diagnoses_free(found);
        hl_profile_free(before);
        hl_profile_free(now);
        hl_profile_free(last);
    }
    const hl_series_point *point = hl_series_at(series, 2);
    assert_non_null(
        strstr(point->findings[1], "since step 100 the mean normalized entropy fell by"));
    assert_non_null(strstr(point->findings[1], "the loss rose by 0.400 nats"));
    hl_series_free(series);
}

/* The checkpoint after a high one has diverged: its remaining rows are much lower. */
static void a_diverged_checkpoint_is_no_collapse(void **state)
{
    hl_series *series = new_series();
    made_model model  = healthy_model();

    (void)state;
    add(series, 0, 100);
    for (int i = 0; i < M_LAYERS * M_HEADS; i++)
        model.heads[i / M_HEADS][i % M_HEADS] =
            (made_head){ .kind = MADE_PREVIOUS, .strength = 0.995, .broken = true };
    assert_ok(add_model(series, &model, 200, NULL));
    const hl_series_point *point = hl_series_at(series, 1);
    assert_int_equal(point->verdicts[0], HL_VERDICT_FOUND);
    assert_non_null(strstr(point->findings[0], "NaN or Inf rows"));
    assert_int_equal(point->verdicts[1], HL_VERDICT_NOT_RUN);
    assert_null(strstr(point->findings[1], "fell by"));
    hl_series_free(series);
}

static void falls_are_looked_for_among_the_last_steps(void **state)
{
    hl_series        *series = new_series();
    made_model        model  = sharper(0.03);
    hl_series_options two    = { .n_back = 2 };
    (void)state;

    /* Checkpoints may be measured in any order: steps count. */
    add(series, 0.01, 20);
    add(series, 0.00, 10);
    add(series, 0.02, 30);
    assert_int_equal(hl_series_at(series, 0)->since, -1);
    assert_int_equal(hl_series_at(series, 1)->since, -1);
    assert_int_equal(hl_series_at(series, 2)->since, 10);
    assert_ok(add_model(series, &model, 40, &two));
    assert_int_equal(hl_series_at(series, 3)->since, 20);
    double near = hl_series_at(series, 3)->drop_errors;
    assert_ok(add_model(series, &model, 40, NULL));
    assert_int_equal(hl_series_n_points(series), 4);
    assert_int_equal(hl_series_at(series, 3)->since, 10);
    assert_true(hl_series_at(series, 3)->drop_errors > near);
    /* A rise is a negative fall. */
    add(series, 0.0, 31);
    assert_true(hl_series_at(series, 4)->drop_errors < 0.5);
    hl_series_free(series);
}

static void a_threshold_decides(void **state)
{
    hl_series        *series     = new_series();
    hl_thresholds     thresholds = hl_thresholds_default();
    hl_series_options options    = { .thresholds = &thresholds };
    made_model        first = healthy_model(), model = healthy_model();
    (void)state;

    for (int i = 0; i < M_LAYERS * M_HEADS; i++)
        model.heads[i / M_HEADS][i % M_HEADS] =
            (made_head){ .kind = MADE_CONTENT, .strength = 0.9 - 1e-3 * i };
    first.loss = 4.0;
    model.loss = 4.1;
    assert_ok(add_model(series, &first, 1, NULL));
    assert_ok(hl_threshold_set(&thresholds, "collapse-errors", 1000));
    assert_ok(add_model(series, &model, 2, &options));
    assert_int_equal(hl_series_at(series, 1)->verdicts[1], HL_VERDICT_NOT_FOUND);
    assert_true(hl_series_at(series, 1)->drop_errors > 4);
    assert_ok(add_model(series, &model, 2, NULL));
    assert_int_equal(hl_series_at(series, 1)->verdicts[1], HL_VERDICT_FOUND);
    hl_series_free(series);
}

static void a_checkpoint_measured_again_takes_its_place(void **state)
{
    hl_series *series = new_series();
    (void)state;

    add(series, 0, 1);
    add(series, 0, 2);
    double before = hl_series_at(series, 0)->entropy;
    add(series, 0.1, 1);
    assert_int_equal(hl_series_n_points(series), 2);
    assert_int_equal(hl_series_at(series, 0)->step, 2);
    assert_int_equal(hl_series_at(series, 1)->step, 1);
    assert_true(hl_series_at(series, 1)->entropy < before);
    hl_series_free(series);
}

static void what_cannot_be_compared_is_refused(void **state)
{
    hl_series  *series  = new_series();
    made_model  model   = healthy_model();
    hl_profile *profile = made_profile(&model);
    (void)state;

    add(series, 0, 1);
    assert_fails(HL_BAD_INPUT, "x: measured on another text (0000000000000007)",
                 hl_series_add(series, profile,
                               &(hl_series_entry){ .name = "x", .step = 2, .text = 7 }, NULL));
    assert_fails(HL_BAD_ARGUMENT, "needs a name",
                 hl_series_add(series, profile, &(hl_series_entry){ .name = "" }, NULL));
    assert_fails(HL_BAD_ARGUMENT, "needs a name",
                 hl_series_add(series, profile, &(hl_series_entry){ .name = "\xff" }, NULL));
    assert_fails(
        HL_BAD_ARGUMENT, "x: step -1",
        hl_series_add(series, profile, &(hl_series_entry){ .name = "x", .step = -1 }, NULL));
    model.context = "32";
    assert_fails(HL_BAD_INPUT, "its context is 32, but 64 in the series",
                 add_model(series, &model, 2, NULL));
    model             = healthy_model();
    model.n_sequences = 3;
    assert_fails(HL_BAD_INPUT, "tokens were measured, but", add_model(series, &model, 2, NULL));
    model.n_heads = 4;
    assert_fails(HL_BAD_INPUT, "6 layers of up to 4 heads, but 6 of 8 in the series",
                 add_model(series, &model, 2, NULL));
    assert_int_equal(hl_series_n_points(series), 1);
    hl_profile_free(profile);
    hl_series_free(series);
    hl_series_free(NULL);
}

/* ------------------------------------------------------------------------- file */

static void a_series_comes_back(void **state)
{
    const char *here   = new_folder();
    hl_series  *series = new_series(), *loaded = NULL;
    made_model  model = healthy_model();
    size_t      n_first, n_second;
    (void)state;

    model.heads[2][3].broken = true;
    assert_fails(HL_BAD_ARGUMENT, "without a point",
                 hl_series_write(series, in_folder(here, "empty")));
    add(series, 0, 100);
    assert_ok(add_model(series, &model, 200, NULL));
    add(series, 0.1, 300);
    assert_int_equal(hl_series_at(series, 1)->verdicts[0], HL_VERDICT_FOUND);
    assert_ok(hl_series_write(series, in_folder(here, "first")));
    assert_ok(hl_series_load(&loaded, in_folder(here, "first")));
    assert_ok(hl_series_write(loaded, in_folder(here, "second")));
    char *first  = read_file(in_folder(here, "first"), &n_first);
    char *second = read_file(in_folder(here, "second"), &n_second);
    assert_int_equal(n_first, n_second);
    assert_memory_equal(first, second, n_first);
    assert_int_equal(hl_series_n_layers(loaded), M_LAYERS);
    assert_true(hl_series_at(loaded, 2)->drop_errors == hl_series_at(series, 2)->drop_errors);
    /* A series that was read continues like one that was not. */
    add(series, 0.05, 400);
    add(loaded, 0.05, 400);
    char *line = NULL, *other = NULL;
    assert_ok(hl_series_render(&line, series, 3));
    assert_ok(hl_series_render(&other, loaded, 3));
    assert_string_equal(line, other);
    hl_free(other);
    assert_fails(HL_BAD_ARGUMENT, "point 4 of a series of 4", hl_series_render(&other, loaded, 4));
    hl_free(line);
    free(first);
    free(second);
    hl_series_free(series);
    hl_series_free(loaded);
    remove_folder(here);
}

/* Members that had other names: normalized was fair, drop_errors was fall. */
static void a_series_of_an_earlier_version_is_read(void **state)
{
    hl_series *series = new_series(), *old = NULL;
    char      *line = NULL, text[20000], *name;
    (void)state;

    add(series, 0, 100);
    add(series, 0.1, 200);
    assert_ok(hl_series_render(&line, series, 1));
    snprintf(text, sizeof text,
             "{\"format\": \"headlight series 1\", \"layers\": %d, \"heads\": %d, \"text\": "
             "\"00000000000004d2\", \"settings\": {}}\n%s\n",
             M_LAYERS, M_HEADS, line);
    while ((name = strstr(text, "normalized\"")) != NULL) {
        memcpy(name, "fair", 4);
        memmove(name + 4, name + 10, strlen(name + 10) + 1);
    }
    name = strstr(text, "drop_errors");
    assert_non_null(name);
    memcpy(name, "fall", 4);
    memmove(name + 4, name + 11, strlen(name + 11) + 1);
    assert_ok(hl_series_parse(&old, text, strlen(text), "f"));
    assert_true(hl_series_at(old, 0)->drop_errors == hl_series_at(series, 1)->drop_errors);
    assert_true(hl_series_at(old, 0)->normalized == hl_series_at(series, 1)->normalized);
    assert_false(isnan(hl_series_at(old, 0)->drop_errors));
    hl_free(line);
    hl_series_free(series);
    hl_series_free(old);
}

#define BEGINNING                                                                                  \
    "{\"format\": \"headlight series 1\", \"layers\": 1, \"heads\": 1, \"text\": "                 \
    "\"00000000000004d2\", \"settings\": {}}\n"

static void bad_files_are_refused(void **state)
{
    static const struct {
        const char *text;
        const char *fragment;
    } cases[] = {
        { "", "f, line 1: is missing" },
        { "[]", "f, line 1: is an array, wanted an object" },
        { "{", "f, line 1" },
        { "{\"format\": \"headlight series 2\"}", "its format is 'headlight series 2', wanted" },
        { "{\"format\": 3}", "format" },
        { "{\"format\": \"headlight series 1\"}", "'layers' is missing, wanted an integer" },
        { "{\"format\": \"headlight series 1\", \"layers\": 0}",
          "'layers' is 0, wanted one from 1" },
        { "{\"format\": \"headlight series 1\", \"layers\": 1, \"heads\": 99999999}",
          "'heads' is 99999999, wanted one from 1 to 1024" },
        { "{\"format\": \"headlight series 1\", \"layers\": 1, \"heads\": 1, \"text\": \"x\"}",
          "'text' is 'x', wanted 16 hexadecimal digits" },
        { "{\"format\": \"headlight series 1\", \"layers\": 1, \"heads\": 1, \"text\": "
          "\"00000000000004d2\"}",
          "'settings' is missing" },
        { BEGINNING "{}", "f, line 2: it has no name" },
        { BEGINNING "{\"name\": \"a\"}", "f, line 2: 'step' is missing" },
        { BEGINNING "{\"name\": \"a\", \"step\": -1}", "'step' is -1, wanted one from 0" },
        { BEGINNING "\n", "f, line 2" },
    };
    hl_series *series = NULL;
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_fails(HL_BAD_INPUT, cases[i].fragment,
                     hl_series_parse(&series, cases[i].text, strlen(cases[i].text), "f"));
        assert_null(series);
    }
    assert_ok(hl_series_parse(&series, BEGINNING, strlen(BEGINNING), "f"));
    assert_int_equal(hl_series_n_points(series), 0);
    hl_series_free(series);
    assert_fails(HL_NOT_FOUND, "nowhere", hl_series_load(&series, "/nowhere"));
}

/* Changes every member of a valid line in turn. */
static void spoilt_lines_are_refused(void **state)
{
    static const char *const changes[][3] = {
        { "\"step\": 5", "\"step\": 5.5", "'step' is" },
        { "\"bytes\": 1005", "\"bytes\": -1", "'bytes' is -1" },
        { "\"sequences\": 12", "\"sequences\": []", "'sequences' is an array" },
        { "\"since\": -1", "\"since\": -2", "'since' is -2" },
        { "\"verdict\": \"not found\"", "\"verdict\": \"asleep\"",
          "no verdict is called 'asleep'" },
        { "\"sink-heads\"", "\"sink-hats\"", "'diagnoses' has no object 'sink-heads'" },
        { "\"heads_normalized\": [[", "\"heads_normalized\": [[1, ",
          "'heads_normalized' is not 6 lists of 8" },
        { "\"heads_entropy\": [[", "\"heads_entropy\": [[], [", "is not 6 lists of 8" },
        { "\"level\": 0", "\"level\": \"0\", \"l\": 0", "level" },
    };
    const char *here   = new_folder();
    hl_series  *series = new_series(), *loaded = NULL;
    size_t      n_bytes;
    (void)state;

    add(series, 0, 5);
    assert_ok(hl_series_write(series, in_folder(here, "s")));
    char *good = read_file(in_folder(here, "s"), &n_bytes);
    char *bad  = malloc(n_bytes + 100);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        const char *at = strstr(good, changes[i][0]);
        assert_non_null(at);
        snprintf(bad, n_bytes + 100, "%.*s%s%s", (int)(at - good), good, changes[i][1],
                 at + strlen(changes[i][0]));
        assert_fails(HL_BAD_INPUT, changes[i][2], hl_series_parse(&loaded, bad, strlen(bad), "f"));
    }
    /* The spellings of earlier versions. */
    const char *at = strstr(good, "\"verdict\": \"not found\"");
    snprintf(bad, n_bytes + 100, "%.*s\"verdict\": \"present\"%s", (int)(at - good), good,
             at + strlen("\"verdict\": \"not found\""));
    assert_ok(hl_series_parse(&loaded, bad, strlen(bad), "f"));
    assert_int_equal(hl_series_at(loaded, 0)->verdicts[0], HL_VERDICT_FOUND);
    hl_series_free(loaded);
    loaded = NULL;
    /* The same name twice. */
    const char *second = strchr(good, '\n') + 1;
    char       *twice  = malloc(2 * n_bytes);
    snprintf(twice, 2 * n_bytes, "%s%s", good, second);
    assert_fails(HL_BAD_INPUT, "f, line 3: 'checkpoint-5' was there before",
                 hl_series_parse(&loaded, twice, strlen(twice), "f"));
    free(twice);
    free(bad);
    free(good);
    hl_series_free(series);
    remove_folder(here);
}

/* ------------------------------------------------------------------ event files */

/* RFC 3720, appendix B.4, and the usual nine digits. */
static void crc_of_known_texts(void **state)
{
    uint8_t zeros[32] = { 0 }, ones[32], up[32];
    (void)state;

    memset(ones, 0xff, sizeof ones);
    for (int i = 0; i < 32; i++)
        up[i] = (uint8_t)i;
    assert_int_equal(hl_crc32c(zeros, 32), 0x8a9136aa);
    assert_int_equal(hl_crc32c(ones, 32), 0x62a8ab43);
    assert_int_equal(hl_crc32c(up, 32), 0x46dd794e);
    assert_int_equal(hl_crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(hl_crc32c("", 0), 0);
}

#define EVENTS "events.out.tfevents.0000000000.headlight"

static ino_t file_number(const char *path)
{
    struct stat about;

    assert_int_equal(stat(path, &about), 0);
    return about.st_ino;
}

static void assert_same_file(const char *path, const char *wanted, size_t n_wanted)
{
    size_t n_bytes;
    char  *bytes = read_file(path, &n_bytes);

    assert_int_equal(n_bytes, n_wanted);
    assert_memory_equal(bytes, wanted, n_wanted);
    free(bytes);
}

static void events_are_appended(void **state)
{
    const char *here   = new_folder();
    hl_series  *series = new_series();
    char        path[256];
    size_t      n_first, n_whole;
    (void)state;

    snprintf(path, sizeof path, "%s", in_folder(here, EVENTS));
    add(series, 0, 10);
    assert_ok(hl_series_write_events(series, here));
    char *first = read_file(path, &n_first);
    ino_t inode = file_number(path);
    assert_ok(hl_series_write_events(series, here));
    assert_same_file(path, first, n_first);
    add(series, 0, 20);
    assert_ok(hl_series_write_events(series, here));
    char *whole = read_file(path, &n_whole);
    assert_true(n_whole > n_first);
    assert_memory_equal(whole, first, n_first);
    assert_int_equal(file_number(path), inode); /* the file is the same, so open readers see what is
                                                 * appended */

    /* A file that a crash cut off is completed. */
    assert_int_equal(truncate(path, (off_t)n_whole - 7), 0);
    assert_ok(hl_series_write_events(series, here));
    assert_same_file(path, whole, n_whole);
    assert_int_equal(file_number(path), inode);
    /* A file of another series, or a damaged one, is rewritten. */
    whole[n_first + 3] ^= 1;
    write_file(path, whole, n_whole);
    whole[n_first + 3] ^= 1;
    assert_ok(hl_series_write_events(series, here));
    assert_same_file(path, whole, n_whole);
    assert_int_equal(count_files(here), 1);
    free(first);
    free(whole);
    hl_series_free(series);
    remove_folder(here);
}

static void events_need_a_folder(void **state)
{
    hl_series *series = new_series();
    (void)state;

    add(series, 0, 10);
    assert_fails(HL_IO, "/nowhere/at/all: No such file",
                 hl_series_write_events(series, "/nowhere/at/all"));
    hl_series_free(series);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_point_says_what_the_profile_says),
        cmocka_unit_test(a_fall_is_the_diagnosis_of_two_profiles),
        cmocka_unit_test(a_diverged_checkpoint_is_no_collapse),
        cmocka_unit_test(falls_are_looked_for_among_the_last_steps),
        cmocka_unit_test(a_threshold_decides),
        cmocka_unit_test(a_checkpoint_measured_again_takes_its_place),
        cmocka_unit_test(what_cannot_be_compared_is_refused),
        cmocka_unit_test(a_series_comes_back),
        cmocka_unit_test(a_series_of_an_earlier_version_is_read),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(spoilt_lines_are_refused),
        cmocka_unit_test(crc_of_known_texts),
        cmocka_unit_test(events_are_appended),
        cmocka_unit_test(events_need_a_folder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
