/* test_report.c - reports: the one element with data, every array against its source, texts that
 * try to end the element, sizes, and parts that do not fit together. */
#include "report_support.h"

#include <sys/stat.h>

#include "render/palette.h"
#include "stats/trace_parts.h"

/* ----------------------------------------------------------------------- profiles */

static double induction_of(const hl_profile *p, int64_t l, int64_t h)
{
    return hl_profile_probe(p, l, h, HL_PROBE_INDUCTION);
}

static double band_of(const hl_profile *p, int64_t l, int64_t h)
{
    return hl_profile_pattern(p, l, h, HL_PM_BAND, true).mean;
}

static void check_means(json_t *profile_data, const hl_profile *profile)
{
    static const char *const keys[HL_N_QUANTITIES] = {
        "entropy", "normalized", "renyi2", "varentropy",    "peak",
        "self",    "previous",   "first",  "entropy_nosink"
    };
    static const struct {
        const char *key;
        double (*value)(const hl_profile *, int64_t, int64_t);
    } others[]             = { { "output_norm", hl_profile_output_norm },
                               { "induction", induction_of },
                               { "band", band_of } };
    const int64_t shape[2] = { hl_profile_n_layers(profile), hl_profile_n_heads(profile) };

    for (int q = 0; q < HL_N_QUANTITIES + 3; q++) {
        const char *key    = q < HL_N_QUANTITIES ? keys[q] : others[q - HL_N_QUANTITIES].key;
        json_t     *means  = json_object_get(profile_data, "means");
        double     *values = decode(json_object_get(means, key), shape, 2);

        for (int64_t i = 0; i < shape[0] * shape[1]; i++) {
            int64_t l = i / shape[1], h = i % shape[1];
            double  wanted = q < HL_N_QUANTITIES
                                 ? hl_profile_moments(profile, l, h, (hl_quantity)q).mean
                                 : others[q - HL_N_QUANTITIES].value(profile, l, h);
            assert_same(values[i], wanted, 1e-7 * fabs(wanted), key);
        }
        free(values);
    }
}

static void check_histogram(json_t *data, const hl_profile *profile, hl_histogram which)
{
    const int64_t shape[3] = { hl_profile_n_layers(profile), hl_profile_n_heads(profile), 64 };
    double       *counts   = decode(json_object_get(data, "counts"), shape, 3);
    double       *most     = decode(json_object_get(data, "max"), shape, 2);

    assert_int_equal(json_array_size(json_object_get(data, "edges")), 65);
    for (int64_t i = 0; i < shape[0] * shape[1] * 64; i++) {
        int64_t        place = i / 64;
        const int64_t *exact =
            hl_profile_histogram(profile, place / shape[1], place % shape[1], which);
        assert_same(most[place] * counts[i] / 255.0, (double)exact[i % 64],
                    most[place] / 510.0 + 1e-9, "a count");
    }
    free(counts);
    free(most);
}

static void check_positions(json_t *data, const hl_profile *profile)
{
    const int64_t shape[3] = { hl_profile_n_layers(profile), hl_profile_n_heads(profile),
                               hl_profile_n_buckets(profile) };
    double       *values   = decode(at(data, "positions.entropy"), shape, 3);

    assert_int_equal(json_array_size(at(data, "positions.edges")), shape[2] + 1);
    assert_int_equal(json_integer_value(at(data, "positions.edges.3")), 7);
    for (int64_t i = 0; i < shape[0] * shape[1] * shape[2]; i++) {
        int64_t place  = i / shape[2];
        double  wanted = hl_profile_by_position(profile, place / shape[1], place % shape[1],
                                                i % shape[2], HL_Q_ENTROPY)
                            .mean;
        assert_same(values[i], wanted, ldexp(wanted, -11) + 1e-7, "entropy at a position");
    }
    free(values);
}

/* Finds the nearest heads by comparing all pairs. */
static void check_twins(json_t *data, const hl_profile *profile)
{
    const int64_t shape[3] = { hl_profile_n_layers(profile), hl_profile_n_heads(profile), 3 };
    double       *heads    = decode(at(data, "twins.head"), shape, 3);
    double       *alike    = decode(at(data, "twins.similarity"), shape, 3);

    for (int64_t i = 0; i < shape[0] * shape[1]; i++) {
        int64_t layer = i / shape[1], head = i % shape[1];
        double  best = 0.0;

        for (int64_t other = 0; other < shape[1]; other++) {
            if (other != head)
                best = fmax(best, hl_profile_similarity(profile, layer, head, other));
        }
        assert_near(alike[3 * i], best, best / 2048.0);
        assert_true(alike[3 * i] >= alike[3 * i + 1] && alike[3 * i + 1] >= alike[3 * i + 2]);
        for (int rank = 0; rank < 3; rank++)
            assert_near(hl_profile_similarity(profile, layer, head, (int64_t)heads[3 * i + rank]),
                        alike[3 * i + rank], best / 2048.0);
        assert_true(heads[3 * i] != heads[3 * i + 1] && heads[3 * i + 1] != heads[3 * i + 2]);
    }
    free(heads);
    free(alike);
}

static void check_intervals(json_t *data, const hl_profile *profile)
{
    const int64_t shape[2] = { hl_profile_n_layers(profile), hl_profile_n_heads(profile) };
    hl_sheet     *heads    = NULL;
    double       *low      = decode(at(data, "intervals.normalized.low"), shape, 2);
    double       *high     = decode(at(data, "intervals.entropy.high"), shape, 2);

    assert_ok(hl_analyze(&heads, profile, "heads", NULL));
    for (int64_t i = 0; i < shape[0] * shape[1]; i++) {
        double wanted = hl_sheet_number(heads, i, hl_sheet_find(heads, "normalized_low"));
        assert_same(low[i], wanted, 1e-7, "normalized_low");
        wanted = hl_sheet_number(heads, i, hl_sheet_find(heads, "entropy_high"));
        assert_same(high[i], wanted, 1e-6, "entropy_high");
    }
    hl_sheet_free(heads);
    free(low);
    free(high);
}

static void profiles_are_told(void **state)
{
    made_model        model   = healthy_model();
    hl_profile       *profile = made_profile(&model);
    hl_report_profile named   = { "a \"name\" </script><b>&amp;\\", profile };
    hl_report         report  = { .title = "<title>", .profiles = &named, .n_profiles = 1 };
    json_t           *data    = write_and_read(&report);
    json_t           *first   = at(data, "profiles.0");
    (void)state;

    assert_string_equal(json_string_value(at(data, "format")), "headlight.report/1");
    assert_string_equal(json_string_value(at(data, "version")), hl_version());
    assert_string_equal(json_string_value(at(data, "title")), "<title>");
    assert_string_equal(json_string_value(at(data, "definitions.entropy.unit")), "nats or bits");
    assert_string_equal(json_string_value(at(first, "name")), named.name);
    assert_int_equal(json_integer_value(at(first, "model.layers")), M_LAYERS);
    assert_int_equal(json_integer_value(at(first, "corpus.context")), 64);
    check_means(first, profile);
    check_intervals(first, profile);
    check_histogram(at(first, "histogram"), profile, HL_HIST_NORMALIZED);
    check_histogram(at(first, "histogram_nosink"), profile, HL_HIST_NORMALIZED_NOSINK);
    check_positions(first, profile);
    check_twins(first, profile);
    assert_int_equal(json_array_size(at(first, "diagnoses")), HL_N_DIAGNOSES);
    assert_null(json_object_get(data, "tokens"));
    assert_null(json_object_get(data, "compare"));
    json_decref(data);
    hl_profile_free(profile);
}

/* The report has the types of `show` and the findings of `diagnose`. */
static void types_and_diagnoses_are_told(void **state)
{
    made_model model          = healthy_model();
    model.heads[2][3]         = (made_head){ .kind = MADE_FIRST, .strength = 0.9, .norm = 1e-30 };
    hl_profile       *profile = made_profile(&model);
    hl_report_profile named   = { "one", profile };
    hl_report         report  = { .profiles = &named, .n_profiles = 1 };
    json_t           *data    = write_and_read(&report);
    json_t           *first   = at(data, "profiles.0");
    hl_sheet         *types   = NULL;
    hl_diagnoses     *found   = NULL;
    const int64_t     shape[] = { M_LAYERS, M_HEADS };
    double           *index   = decode(at(first, "types.index"), shape, 2);
    int               n_verdicts[3] = { 0 };
    (void)state;

    assert_ok(hl_analyze(&types, profile, "head-types", NULL));
    for (int64_t i = 0; i < M_LAYERS * M_HEADS; i++) {
        json_t *name = json_array_get(at(first, "types.names"), (size_t)index[i]);
        assert_string_equal(json_string_value(name),
                            hl_sheet_text(types, i, hl_sheet_find(types, "type")));
    }
    assert_ok(hl_diagnose(&found, profile, NULL, NULL));
    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        json_t *item = json_array_get(at(first, "diagnoses"), (size_t)i);
        assert_string_equal(json_string_value(at(item, "name")), found->items[i].name);
        assert_string_equal(json_string_value(at(item, "finding")), found->items[i].finding);
        assert_int_equal(json_is_true(at(item, "fired")),
                         found->items[i].verdict == HL_VERDICT_FOUND);
        assert_int_equal(json_is_true(at(item, "ran")),
                         found->items[i].verdict != HL_VERDICT_NOT_RUN);
        assert_int_equal(json_is_true(at(item, "below")), found->items[i].below);
        assert_string_equal(json_string_value(at(item, "verdict")),
                            hl_verdict_name(found->items[i].verdict));
        n_verdicts[found->items[i].verdict]++;
        assert_int_equal(json_array_size(at(item, "heads")), found->items[i].n_heads);
        if (strcmp(found->items[i].name, "sink-heads") == 0) {
            assert_true(json_is_true(at(item, "fired")));
            assert_int_equal(json_integer_value(at(item, "heads.0.layer")), 2);
            assert_int_equal(json_integer_value(at(item, "heads.0.head")), 3);
            assert_int_equal(json_integer_value(at(item, "layers.0")), 2);
        }
    }
    for (int verdict = HL_VERDICT_NOT_FOUND; verdict <= HL_VERDICT_NOT_RUN; verdict++)
        assert_true(n_verdicts[verdict] > 0); /* the profile has checks with each verdict */
    hl_diagnoses_free(found);
    hl_sheet_free(types);

    /* A type has the same color in every report, whatever the number of its heads. */
    static const char *const themes[] = { "types.colors.light", "types.colors.dark" };
    for (size_t theme = 0; theme < 2; theme++) {
        json_t *colors = at(first, themes[theme]);
        assert_int_equal(json_array_size(colors), json_array_size(at(first, "types.names")));
        for (size_t i = 0; i < json_array_size(colors); i++) {
            hl_color c = i < HL_N_SERIES ? hl_theme_colors_of((hl_theme)theme)->series[i]
                                         : hl_theme_colors_of((hl_theme)theme)->hatch;
            char     wanted[8];
            snprintf(wanted, sizeof wanted, "#%02x%02x%02x", c.red, c.green, c.blue);
            assert_string_equal(json_string_value(json_array_get(colors, i)), wanted);
            for (size_t j = 0; j < i; j++)
                assert_string_not_equal(json_string_value(json_array_get(colors, j)), wanted);
        }
    }
    free(index);
    json_decref(data);
    hl_profile_free(profile);
}

static void two_profiles_are_compared(void **state)
{
    made_model  model        = healthy_model();
    hl_profile *a            = made_profile(&model);
    model.heads[1][1]        = (made_head){ .kind = MADE_SELF, .strength = 0.9, .norm = 1.0 };
    hl_profile       *b      = made_profile(&model);
    hl_report_profile both[] = { { "A", a }, { "B \xff", b } };
    hl_report         report = { .profiles = both, .n_profiles = 2 };
    json_t           *data   = write_and_read(&report);
    hl_comparison    *found  = NULL;
    (void)state;

    assert_ok(hl_compare(&found, a, b, NULL));
    assert_int_equal(json_integer_value(at(data, "compare.significant")), found->n_significant);
    assert_string_equal(json_string_value(at(data, "compare.names.1")), "B \xef\xbf\xbd");
    json_t *heads = at(data, "compare.tables.heads.rows");
    assert_int_equal(json_array_size(heads), M_LAYERS * M_HEADS);
    for (int64_t i = 0; i < M_LAYERS * M_HEADS; i++) {
        double wanted = hl_sheet_number(found->heads, i, hl_sheet_find(found->heads, "difference"));
        json_t *row   = json_array_get(heads, (size_t)i);
        assert_same(json_number_value(at(row, "difference")), wanted, 1e-6, "difference");
    }
    hl_comparison_free(found);
    json_decref(data);
    hl_profile_free(a);
    hl_profile_free(b);
}

/* Layers may lack heads that others have. */
static void heads_that_are_not_there(void **state)
{
    const int64_t            heads[] = { 2, 1 };
    static const char *const names[] = { "all" };
    hl_profile              *profile = NULL;
    (void)state;

    assert_ok(hl_profile_new(&profile, &(hl_profile_shape){ 2, heads, 64, 1, names }));
    hl_report_profile named  = { "ragged", profile };
    hl_report         report = { .profiles = &named, .n_profiles = 1 };
    json_t           *data   = write_and_read(&report);
    double           *values = decode(at(data, "profiles.0.means.entropy"), (int64_t[]){ 2, 2 }, 2);
    assert_true(isnan(values[0]) && isnan(values[3])); /* nothing was counted */
    assert_int_equal(json_integer_value(at(data, "profiles.0.n_heads.1")), 1);
    assert_null(json_object_get(at(data, "profiles.0"), "intervals"));
    free(values);
    json_decref(data);
    hl_profile_free(profile);
}

/* ------------------------------------------------------------------------- traces */

static hl_trace *made_trace(int64_t n_tokens, int64_t n_layers, int64_t n_heads)
{
    static const char *const texts[] = { "</script>", "<!--", "\"\\", "\xff\xfe", "a\tb\n",
                                         "\xe4",      "&lt;", "",     "\u2028",   "\x01" };
    hl_trace                *trace   = NULL;

    assert_ok(hl_trace_new(&trace, n_layers, n_heads, 0));
    assert_ok(hl_trace_reserve(trace, n_tokens));
    for (int64_t i = 0; i < n_tokens; i++) {
        const char *text = texts[i % 10];
        for (int64_t cell = 0; cell < n_layers * n_heads; cell++)
            hl_trace_at(trace, i, HL_TRACE_ENTROPY)[cell] =
                i == 0 ? NAN : (float)((double)(cell + i) / 100.0);
        assert_ok(hl_trace_push(trace, 100 + i, (hl_token_kind)(i % HL_N_KINDS)));
        assert_ok(hl_trace_append_text(trace, text, strlen(text)));
        trace->numbers[HL_TRACE_SPIKE][i]      = i == 7 ? 4.5 : i == 8 ? NAN : 1.0;
        trace->numbers[HL_TRACE_VOCABULARY][i] = 0.25 * (double)i;
    }
    return trace;
}

static void traces_are_told(void **state)
{
    enum { N = 12 };
    hl_trace *trace  = made_trace(N, 2, 3);
    hl_report report = { .trace = trace };
    json_t   *data   = write_and_read(&report);
    double   *values = decode(at(data, "trace.entropy"), (int64_t[]){ 2, 3, N }, 3);
    double   *layers = decode(at(data, "trace.layer_entropy"), (int64_t[]){ 2, N }, 2);
    (void)state;

    static const char *const wanted[N] = {
        "</script>", "<!--",         "\"\\",      "\xef\xbf\xbd\xef\xbf\xbd",
        "a\tb\n",    "\xef\xbf\xbd", "&lt;",      "",
        "\u2028",    "\x01",         "</script>", "<!--"
    };
    for (int i = 0; i < N; i++) {
        json_t *text = json_array_get(at(data, "trace.texts"), (size_t)i);
        assert_string_equal(json_string_value(text), wanted[i]);
        assert_int_equal(json_integer_value(json_array_get(at(data, "trace.kinds"), (size_t)i)),
                         i % HL_N_KINDS);
        assert_same(layers[N + i], i == 0 ? NAN : (4 + i) / 100.0, 1e-4, "a layer's mean");
        for (int cell = 0; cell < 6; cell++)
            assert_same(values[cell * N + i], i == 0 ? NAN : (cell + i) / 100.0, 1e-4, "a row");
    }
    assert_string_equal(json_string_value(at(data, "trace.tables.kinds.table")), "kinds");
    assert_int_equal(json_array_size(at(data, "trace.tables.repetition.rows")), 1);
    assert_int_equal(json_array_size(at(data, "trace.spikes")), 1);
    assert_int_equal(json_integer_value(at(data, "trace.spikes.0")), 7);
    assert_true(json_is_null(at(data, "trace.spike.8")));
    assert_true(json_is_null(at(data, "trace.logprob.3")));
    assert_near(json_number_value(at(data, "trace.vocab_entropy.5")), 1.25, 1e-9);
    free(values);
    free(layers);
    json_decref(data);
    hl_trace_free(trace);
}

/* With more rows than half precision is used for, values become bytes, with NaN. */
static void many_rows_become_bytes(void **state)
{
    enum { LAYERS = 40, HEADS = 50, N = 600 };
    hl_trace *trace  = made_trace(N, LAYERS, HEADS);
    hl_report report = { .trace = trace };
    json_t   *data   = write_and_read(&report);
    double   *values = decode(at(data, "trace.entropy"), (int64_t[]){ LAYERS, HEADS, N }, 3);
    double    scale  = json_number_value(at(data, "trace.entropy.scale"));
    (void)state;

    assert_string_equal(json_string_value(at(data, "trace.entropy.dtype")), "u8");
    assert_true(scale < 0.026); /* ln 601 in 254 steps */
    for (int64_t i = 0; i < LAYERS * HEADS * N; i++) {
        double wanted =
            (double)hl_trace_row(trace, i % N, i / N / HEADS, i / N % HEADS, HL_TRACE_ENTROPY);
        assert_same(values[i], wanted > 254.0 * scale ? 254.0 * scale : wanted, 0.501 * scale,
                    "a row");
    }
    free(values);
    json_decref(data);
    hl_trace_free(trace);
}

/* ------------------------------------------------------------------------ prompts */

static void prompts_are_told(void **state)
{
    hl_model       *model  = NULL;
    hl_prompt_maps *maps   = NULL;
    hl_lens_view   *lens   = NULL;
    int64_t         ids[9] = { 1, 5, 9, 5, 9, 2, 7, 1, 5 };
    hl_prompt       prompt = { .tokens = ids, .n_tokens = 9 };
    (void)state;

    assert_ok(hl_model_open(&model, "tests/data/families/llama3"));
    assert_ok(hl_prompt_maps_new(&maps, model, &prompt, NULL));
    assert_ok(hl_lens_view_new(&lens, model, &prompt, NULL));
    hl_free(maps->tokens[2].text);
    assert_non_null(maps->tokens[2].text = strdup("</script\xc3>"));
    hl_report report = { .maps = maps, .lens = lens };
    json_t   *data   = write_and_read(&report);
    int64_t   n_maps = maps->n_maps - 1, cells = maps->n_cells;
    double   *bytes = decode(at(data, "tokens.maps.data"), (int64_t[]){ n_maps, cells }, 2);
    double   *peaks = decode(at(data, "tokens.maps.row_peak"), (int64_t[]){ n_maps, 9 }, 2);
    double   *mean  = decode(at(data, "tokens.mean"), &cells, 1);
    double   *rows =
        decode(at(data, "tokens.entropy"), (int64_t[]){ maps->n_layers, maps->n_heads, 9 }, 3);
    double *guess = decode(at(data, "lens.entropy"), (int64_t[]){ lens->n_layers + 1, 9 }, 2);

    assert_string_equal(json_string_value(at(data, "tokens.texts.2")), "</script\xef\xbf\xbd>");
    assert_string_equal(json_string_value(at(data, "tokens.maps.packed")), "triangle");
    assert_int_equal(json_integer_value(at(data, "tokens.maps.heads.1.1")), 1);
    for (int64_t i = 0; i < n_maps * cells; i++)
        assert_true(bytes[i] == maps->cells[cells + i]);
    for (int64_t i = 0; i < cells; i++)
        assert_true(mean[i] == maps->cells[i]);
    for (int64_t i = 0; i < n_maps * 9; i++)
        assert_near(peaks[i], (double)maps->peaks[9 + i], 0.0005);
    for (int64_t i = 0; i < maps->n_layers * maps->n_heads * 9; i++)
        assert_near(rows[i], (double)maps->entropy[i], 0.001);
    for (int64_t i = 0; i < (lens->n_layers + 1) * 9; i++) {
        json_t *place =
            json_array_get(json_array_get(at(data, "lens.top"), (size_t)(i / 9)), (size_t)(i % 9));
        json_t *text = json_array_get(at(data, "lens.strings"), (size_t)json_integer_value(place));
        assert_string_equal(json_string_value(text), lens->guesses[i].text);
        assert_near(guess[i], (double)lens->entropy[i], (double)lens->entropy[i] / 2048.0 + 1e-6);
    }
    free(bytes), free(peaks), free(mean), free(rows), free(guess);
    json_decref(data);
    free(maps->tokens[2].text);
    maps->tokens[2].text = NULL;
    hl_prompt_maps_free(maps);
    hl_lens_view_free(lens);
    hl_model_close(model);
}

/* --------------------------------------------------------------------------- size */

/* Adds a sequence with rows for every head and type, with complete rows for similarities. */
static void add_large_sequence(hl_profile *profile, uint64_t seed, int64_t n_layers,
                               int64_t n_heads, float *room, float *pattern)
{
    enum { ROWS = 32 };
    int64_t   start = 0, length = ROWS, zero = 0, sampled[2] = { 15, 31 };
    uint64_t  hash = (seed + 1) * 0x9e3779b97f4a7c15u;
    uint8_t   types[ROWS];
    hl_random random = { seed };

    for (int i = 0; i < ROWS; i++)
        types[i] = (uint8_t)(i % HL_PROFILE_MAX_TYPES);
    hl_profile_batch batch = { 1, &length, &zero, &hash, types, ROWS, &zero, 0, &zero, 1 };
    assert_ok(hl_profile_begin(profile, &batch));
    for (int64_t layer = 0; layer < n_layers; layer++) {
        float *mass = room + 9 * n_heads * ROWS;
        for (int64_t i = 0; i < 9 * n_heads * ROWS; i++)
            room[i] = (float)(uniform(&random) * log((double)(i % ROWS) + 1.0));
        for (int64_t i = 0; i < n_heads * ROWS * HL_PROFILE_MAX_TYPES; i++)
            mass[i] = 1.0f / HL_PROFILE_MAX_TYPES;
        for (int64_t i = 0; i < n_heads * 2 * ROWS; i++)
            pattern[i] = i % ROWS <= sampled[i / ROWS % 2] ? (float)uniform(&random) / 16.0f : 0.0f;
        hl_attention_result statistics = { .entropy = room };
        float             **parts[]    = { &statistics.entropy,     &statistics.renyi2,
                                           &statistics.varentropy,  &statistics.peak,
                                           &statistics.self,        &statistics.previous,
                                           &statistics.first,       &statistics.entropy_nosink,
                                           &statistics.segment_mass };
        for (int i = 0; i < 8; i++)
            *parts[i] = room + i * n_heads * ROWS;
        *parts[8]          = mass;
        hl_layer_rows rows = { .layer        = layer,
                               .n_batch      = 1,
                               .n_rows       = ROWS,
                               .n_heads      = n_heads,
                               .start        = &start,
                               .lengths      = &length,
                               .rows         = &statistics,
                               .n_segments   = HL_PROFILE_MAX_TYPES,
                               .pattern      = pattern,
                               .pattern_rows = sampled,
                               .n_patterns   = 2,
                               .n_keys       = ROWS };
        assert_ok(hl_profile_layer(profile, &rows, &(hl_profile_mask){ .is_causal = true }));
        for (int64_t head = 0; head < n_heads; head++)
            hl_profile_norm(profile, -1, layer, head, 0.5 + uniform(&random));
        hl_profile_influence(profile, layer, uniform(&random));
    }
    assert_ok(hl_profile_end(profile));
}

static void large_models_fit(void **state)
{
    enum { LAYERS = 80, HEADS = 64 };
    static const char *const names[] = { "a", "b", "c", "d", "e", "f", "g", "h" };
    const char              *folder  = new_folder();
    const char              *path    = in_folder(folder, "large.html");
    hl_profile              *profile = NULL;
    int64_t                  heads[LAYERS];
    struct stat              file;
    (void)state;

    for (int i = 0; i < LAYERS; i++)
        heads[i] = HEADS;
    assert_ok(hl_profile_new(&profile, &(hl_profile_shape){ LAYERS, heads, 131072, 8, names }));
    float *room    = malloc(sizeof *room * 32 * HEADS * 17);
    float *pattern = malloc(sizeof *pattern * 32 * HEADS * 2);
    for (uint64_t i = 0; i < 2; i++)
        add_large_sequence(profile, i, LAYERS, HEADS, room, pattern);
    hl_report_profile named  = { "large", profile };
    hl_report         report = { .profiles = &named, .n_profiles = 1 };
    assert_ok(hl_report_write(&report, path));
    assert_int_equal(stat(path, &file), 0);
    print_message("# 80 x 64: %lld bytes\n", (long long)file.st_size);
    assert_true(file.st_size < 3000000);
    json_t *data = read_data(path);
    check_means(at(data, "profiles.0"), profile);
    check_twins(at(data, "profiles.0"), profile);
    json_decref(data);
    remove_folder(folder);
    free(room);
    free(pattern);
    hl_profile_free(profile);
}

/* ------------------------------------------------------------------------ refusals */

static void parts_must_belong(void **state)
{
    const char       *folder  = new_folder();
    const char       *path    = in_folder(folder, "report.html");
    made_model        model   = healthy_model();
    hl_profile       *profile = made_profile(&model);
    hl_trace         *trace   = made_trace(3, 2, 3);
    hl_report_profile both[]  = { { "six", profile }, { "five", NULL } };
    hl_report         report  = { 0 };
    (void)state;

    model.n_layers  = 5;
    hl_profile *few = made_profile(&model);
    both[1].profile = few;
    assert_fails(HL_BAD_ARGUMENT, "nothing to report", hl_report_write(&report, path));
    report = (hl_report){ .profiles = both, .n_profiles = 2 };
    assert_fails(HL_BAD_INPUT, "five has 5 layers of up to 8 heads, but six has 6 of up to 8",
                 hl_report_write(&report, path));
    report = (hl_report){ .profiles = both, .n_profiles = 1, .trace = trace };
    assert_fails(HL_BAD_INPUT, "the trace has 2 layers of up to 3 heads",
                 hl_report_write(&report, path));
    hl_model_info other = { .n_layers = 12, .n_heads = 12 };
    report              = (hl_report){ .profiles = both, .n_profiles = 1, .model = &other };
    assert_fails(HL_BAD_INPUT, "the model has 12 layers of up to 12",
                 hl_report_write(&report, path));
    report = (hl_report){ .profiles = both, .n_profiles = 1 };
    assert_fails(HL_NOT_FOUND, "none",
                 hl_report_write(&report, in_folder(folder, "none/report.html")));
    assert_int_equal(count_files(folder), 0);
    remove_folder(folder);
    hl_trace_free(trace);
    hl_profile_free(few);
    hl_profile_free(profile);
}

/* Output files of other commands, and files that imitate them. */
static void tables_of_others_are_checked(void **state)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        { "", "table.json" },
        { "[1]", "no tables.heads" },
        { "{\"tables\": 3}", "no tables.heads" },
        { "{\"tables\": {\"points\": {\"rows\": []}}}", "no tables.heads" },
        { "{\"tables\": {\"heads\": {}}}", "tables.heads has no list of rows" },
        { "{\"tables\": {\"heads\": {\"rows\": [{}, 7]}}}", "tables.heads.rows[1] is a" },
        { "{\"tables\": {\"heads\": {\"rows\": [{\"layer\": 6, \"head\": 0}]}}}",
          "tables.heads.rows[0]: L6H0 does not exist: the profile has 6 layers of up to 8 heads" },
        { "{\"tables\": {\"heads\": {\"rows\": [{\"layer\": 0, \"head\": -1}]}}}", "L0H-1" },
    };
    static const char good[] = "{\"a\": \"x</script>\", \"b\": \"y\", \"tables\": {\"heads\": "
                               "{\"rows\": [{\"layer\": 5, \"head\": 7, \"q\": 0.5}]}}}";
    const char       *folder = new_folder();
    char              table[96];
    made_model        model   = healthy_model();
    hl_profile       *profile = made_profile(&model);
    hl_report_profile named   = { "one", profile };
    hl_report         report  = { .profiles = &named, .n_profiles = 1, .compare_path = table };
    (void)state;

    snprintf(table, sizeof table, "%s/table.json", folder);
    assert_fails(HL_NOT_FOUND, "table.json",
                 hl_report_write(&report, in_folder(folder, "report.html")));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file(table, bad[i].text, strlen(bad[i].text));
        assert_fails(HL_BAD_INPUT, bad[i].why,
                     hl_report_write(&report, in_folder(folder, "report.html")));
    }
    assert_int_equal(count_files(folder), 1);
    write_file(table, good, strlen(good));
    assert_ok(hl_report_write(&report, in_folder(folder, "report.html")));
    json_t *data = read_data(in_folder(folder, "report.html"));
    assert_string_equal(json_string_value(at(data, "compare.names.0")), "x</script>");
    assert_near(json_number_value(at(data, "compare.tables.heads.rows.0.q")), 0.5, 0.0);
    json_decref(data);
    report.compare_path = NULL;
    report.sweep_path   = table;
    assert_fails(HL_BAD_INPUT, "not what 'headlight sweep --json' prints",
                 hl_report_write(&report, in_folder(folder, "report.html")));
    hl_profile_free(profile);
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(profiles_are_told),         cmocka_unit_test(types_and_diagnoses_are_told),
        cmocka_unit_test(two_profiles_are_compared), cmocka_unit_test(heads_that_are_not_there),
        cmocka_unit_test(traces_are_told),           cmocka_unit_test(many_rows_become_bytes),
        cmocka_unit_test(prompts_are_told),          cmocka_unit_test(large_models_fit),
        cmocka_unit_test(parts_must_belong),         cmocka_unit_test(tables_of_others_are_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
