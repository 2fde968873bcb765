/* test_tracer.c - the rows of a prompt and of a text, against `measure --rows` of the same tokens;
 * kinds, lookback, texts; rewinding; and files of both formats. */
#include "analysis_support.h"
#include "model_support.h"

#include <jansson.h>

#include "analysis/numbers.h"
#include "formats/safetensors.h"
#include "generate/tracer.h"
#include "stats/profile_add.h"
#include "stats/trace_parts.h"
#include "tokenize/unicode.h"

#define DEMO "models/demo"

enum { N_LAYERS = 8, N_HEADS = 8, N_CTX = 200, N_NEW = 100 };

static const char prompt_text[] =
    "The old man looked out at the sea, and said that he had not been there since the war.";

typedef struct story {
    hl_model     *model;
    hl_tokenizer *tokenizer;
    hl_session   *session;
    hl_tracer    *tracer;
    hl_generator *generator;
    hl_encoding  *prompt;
    int64_t       ids[N_CTX + 1]; /* ids of the whole text */
    int64_t       n_ids;
} story;

/* Prompts are fed in short chunks, except where the whole must be computed as in measuring. */
static int64_t n_chunk = 7;

static story begin(hl_tracer_options tracing, bool segments)
{
    story              s       = { .model = open_model(DEMO) };
    hl_session_options options = { .n_ctx      = N_CTX,
                                   .n_chunk    = n_chunk,
                                   .n_patterns = 1,
                                   .wants      = HL_WANT_LAST_LOGITS | HL_WANT_PATTERN,
                                   .n_threads  = 1 };
    uint8_t            kinds[N_CTX];

    assert_ok(hl_tokenizer_open(&s.tokenizer, DEMO));
    assert_ok(hl_tokenizer_encode(&s.prompt, s.tokenizer, prompt_text, strlen(prompt_text), NULL));
    assert_ok(hl_session_open(&s.session, s.model, &options));
    tracing.n_ctx     = N_CTX;
    tracing.tokenizer = s.tokenizer;
    assert_ok(hl_tracer_open(&s.tracer, s.model, &tracing));
    hl_generate_options generating = { .sample     = { .temperature = 0.9, .seed = 5 },
                                       .max_tokens = N_NEW,
                                       .ignore_end = true,
                                       .tap        = hl_tracer_tap(s.tracer) };
    if (segments) {
        generating.segments   = hl_tracer_segments(s.tracer);
        generating.n_segments = HL_N_KINDS;
    }
    assert_ok(hl_generator_open(&s.generator, s.session, &generating));
    s.n_ids = (int64_t)s.prompt->n_tokens;
    for (int64_t i = 0; i < s.n_ids; i++) {
        s.ids[i] = s.prompt->ids[i];
        kinds[i] = i == 0 ? HL_KIND_SPECIAL : HL_KIND_PROMPT;
    }
    assert_ok(hl_tracer_prompt(s.tracer, s.ids, kinds, s.n_ids));
    assert_ok(hl_generator_prompt(s.generator, s.ids, s.n_ids));
    return s;
}

static hl_stop step(story *s)
{
    hl_generated token;

    assert_ok(hl_generator_next(&token, s->generator));
    assert_ok(hl_tracer_add(s->tracer, &token));
    s->ids[s->n_ids++] = token.id;
    return token.stop;
}

static void end(story *s)
{
    hl_encoding_free(s->prompt);
    hl_generator_close(s->generator);
    hl_tracer_close(s->tracer);
    hl_session_close(s->session);
    hl_tokenizer_close(s->tokenizer);
    hl_model_close(s->model);
}

/* ---------------------------------------------------------------- measure --rows */

static void write_ids(const char *path, const int64_t *ids, int64_t n)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    for (int64_t i = 0; i < n; i++)
        fprintf(file, "%s%lld", i == 0 ? "[" : ",", (long long)ids[i]);
    fprintf(file, "]\n");
    assert_int_equal(fclose(file), 0);
}

static hl_safetensors *measure_rows(const char *folder, const story *s)
{
    hl_safetensors *rows    = NULL;
    hl_corpus      *corpus  = NULL;
    hl_profile     *profile = NULL;
    char            ids[256], path[256];

    strcpy(ids, in_folder(folder, "ids.jsonl"));
    strcpy(path, in_folder(folder, "rows"));
    write_ids(ids, s->ids, s->n_ids);
    assert_ok(hl_corpus_open(&corpus, s->model, NULL, &(hl_corpus_options){ .token_ids = ids }));
    assert_ok(hl_measure(&profile, s->model, NULL, corpus,
                         &(hl_measure_options){ .windows   = { .n_ctx = s->n_ids },
                                                .rows_path = path,
                                                .no_probe  = true,
                                                .n_threads = 1 }));
    hl_profile_free(profile);
    hl_corpus_close(corpus);
    assert_ok(hl_safetensors_open(&rows, path));
    return rows;
}

static double largest(const hl_tensor *tensor, int64_t count)
{
    double most = 0.0;
    for (int64_t i = 0; i < count; i++)
        most = fmax(most, fabs((double)((const float *)tensor->data)[i]));
    return most;
}

/* Decoded rows are sums in another order, and those of the prompt may be too: OpenBLAS has other
 * kernels for small products, which a shorter prompt uses and a whole window does not.  The
 * tolerance is that of metrics.md, 8 * 2^-24 * max|s|; a row's lse is slightly larger than its
 * largest score. */
static void compare(const hl_trace *trace, hl_trace_rows which, const hl_safetensors *rows,
                    const char *name, int64_t n_prompt)
{
    const hl_tensor *tensor   = hl_safetensors_find(rows, name);
    const float     *wanted   = tensor->data;
    int64_t          n        = tensor->shape[3];
    int64_t          count    = N_LAYERS * N_HEADS * n;
    double           loose    = 8.0 * 0x1p-24 * largest(hl_safetensors_find(rows, "lse"), count);
    double           worst[2] = { 0.0, 0.0 };

    assert_int_equal(hl_trace_n_tokens(trace), n);
    for (int64_t i = 0; i < count; i++) {
        int64_t cell = i / n, row = i % n;
        if (row + 1 >= n)
            continue; /* the last row predicts no token */
        double got  = hl_trace_row(trace, row + 1, cell / N_HEADS, cell % N_HEADS, which);
        double away = fabs(got - (double)wanted[i]);
        worst[row >= n_prompt] = fmax(worst[row >= n_prompt], away);
    }
    printf("# %s: prompt %.2g, generated %.2g (at most %.2g)\n", name, worst[0], worst[1], loose);
    assert_true(worst[0] <= loose && worst[1] <= loose);
}

static void rows_are_those_of_measure(void **state)
{
    const char *folder = new_folder();
    (void)state;

    n_chunk = 0;
    story s = begin((hl_tracer_options){ 0 }, true);
    n_chunk = 7;
    while (step(&s) == HL_STOP_NONE)
        continue;
    hl_safetensors *rows = measure_rows(folder, &s);
    compare(hl_tracer_trace(s.tracer), HL_TRACE_ENTROPY, rows, "entropy", s.n_ids - N_NEW);
    compare(hl_tracer_trace(s.tracer), HL_TRACE_RENYI2, rows, "renyi2", s.n_ids - N_NEW);
    hl_safetensors_close(rows);
    end(&s);
    remove_folder(folder);
}

/* ------------------------------------------------------------ what rows look at */

/* Results from complete rows: lookback by kind, and entropy without the first key. */
typedef struct whole {
    const hl_tap *inner;
    double        lookback[N_LAYERS][N_HEADS][HL_N_KINDS];
    double        nosink[N_LAYERS][N_HEADS];
    const story  *story;
} whole;

static hl_status watch_whole(void *context, const hl_layer_rows *rows)
{
    whole  *w    = context;
    int64_t keys = rows->start[0] + rows->lengths[0];

    for (int64_t head = 0; head < rows->n_heads && rows->n_patterns > 0; head++) {
        const float *p    = rows->pattern + head * rows->n_keys;
        double      *mass = w->lookback[rows->layer][head];
        double       rest = 0.0, sum = 0.0;

        memset(mass, 0, sizeof w->lookback[0][0]);
        for (int64_t key = 0; key < keys; key++)
            mass[hl_trace_describe(hl_tracer_trace(w->story->tracer), key).kind] += p[key];
        for (int64_t key = 1; key < keys; key++)
            rest += p[key];
        for (int64_t key = 1; key < keys; key++)
            sum -= p[key] > 0.0f ? p[key] / rest * log(p[key] / rest) : 0.0;
        w->nosink[rows->layer][head] = sum;
    }
    return w->inner->layer(w->inner->context, rows);
}

static void lookback_and_nosink_by_hand(void **state)
{
    story        s = begin((hl_tracer_options){ 0 }, true);
    static whole w;
    (void)state;

    hl_generator_close(s.generator);
    w.inner                        = hl_tracer_tap(s.tracer);
    w.story                        = &s;
    hl_tap tap                     = *w.inner;
    tap.layer                      = watch_whole;
    tap.context                    = &w;
    hl_feed              feed      = { .n_tokens   = 1,
                                       .tap        = &tap,
                                       .segments   = hl_tracer_segments(s.tracer),
                                       .n_segments = HL_N_KINDS };
    static const int64_t others[2] = { 7, 9 };
    static const uint8_t kinds[2]  = { HL_KIND_CONTEXT, HL_KIND_CONTEXT };
    for (int i = 0; i < 20; i++) {
        int64_t id    = 100 + 3 * i;
        int64_t entry = hl_trace_n_tokens(hl_tracer_trace(s.tracer));
        if (i == 10) { /* inserts a token here */
            assert_ok(hl_tracer_prompt(s.tracer, others, kinds, 2));
            feed.tokens   = others;
            feed.n_tokens = 2;
            entry += 2;
        } else {
            assert_ok(hl_tracer_add(s.tracer, &(hl_generated){ .id = id }));
            feed.tokens   = &id;
            feed.n_tokens = 1;
            entry += 1;
        }
        assert_ok(hl_session_feed(s.session, &feed));
        for (int cell = 0; cell < N_LAYERS * N_HEADS; cell++) {
            int    layer = cell / N_HEADS, head = cell % N_HEADS;
            double total = 0.0;
            for (int kind = 0; kind < HL_N_KINDS; kind++) {
                /* The row predicts a token that does not exist yet: use the internal function. */
                double share = (double)hl_trace_at(hl_tracer_trace(s.tracer), entry,
                                                   (hl_trace_rows)(HL_TRACE_LOOKBACK + kind))[cell];
                assert_near(share, w.lookback[layer][head][kind], 1e-5);
                total += share;
            }
            assert_near(total, 1.0, 1e-5);
            assert_near(
                hl_trace_at(hl_tracer_trace(s.tracer), entry, HL_TRACE_ENTROPY_NOSINK)[cell],
                w.nosink[layer][head], 2e-5);
        }
    }
    s.generator = NULL;
    end(&s);
}

static void without_segments_no_lookback(void **state)
{
    story s = begin((hl_tracer_options){ 0 }, false);
    (void)state;

    step(&s);
    assert_true(isnan(hl_trace_mean(hl_tracer_trace(s.tracer), s.n_ids - 1, HL_TRACE_LOOKBACK)));
    end(&s);
}

/* ------------------------------------------------------------------ kinds, text */

static void a_token_is_described(void **state)
{
    story s = begin((hl_tracer_options){ 0 }, true);
    char  text[4096];
    (void)state;

    while (step(&s) == HL_STOP_NONE)
        continue;
    const hl_trace *trace    = hl_tracer_trace(s.tracer);
    int64_t         n_prompt = s.n_ids - N_NEW;
    size_t          n_text   = 0;
    for (int64_t i = 0; i < s.n_ids; i++) {
        hl_traced_token about = hl_trace_describe(trace, i);
        assert_int_equal(about.kind, i == 0         ? HL_KIND_SPECIAL
                                     : i < n_prompt ? HL_KIND_PROMPT
                                                    : HL_KIND_GENERATED);
        assert_int_equal(isnan(hl_trace_token(trace, i).logprob), i < n_prompt);
        assert_true(n_text + about.n_bytes < sizeof text);
        memcpy(text + n_text, about.text, about.n_bytes);
        n_text += about.n_bytes;
        /* 16 keys are needed, and then the same number of rows. */
        if (i >= n_prompt)
            assert_int_equal(isnan(about.spike), i < 32);
        else
            assert_true(isnan(about.spike));
    }
    assert_memory_equal(text, prompt_text, strlen(prompt_text));
    end(&s);
}

static void entities_are_capitals_and_digits(void **state)
{
    static const struct {
        const char *before, *token;
        bool        is_entity;
    } cases[] = {
        { "", "Paris", true },     { "in", " Paris", true }, { "in ", "Paris", true },
        { "in", " paris", false }, { "iP", "Hone", false },  { "in", " (Rome", true },
        { "in", " 1984", true },   { "in", " x86", true },   { "x", "86", false },
        { "in", " ", false },      { "in", ".", false },     { "nach", " Österreich", true },
        { "nach", " öl", false },  { "é", "A", false },      { "in\xc3", "\xa9", false },
        { "", "", false },         { "end.", "Then", true }, { "to", " \"New York", true },
        { "and", " I", false },    { "", "I’m", false },     { "King James", " II", true },
        { "in", " Italy", true },  { "", "I9", true },       { "and", " I.", false },
    };
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64];
        snprintf(text, sizeof text, "%s%s", cases[i].before, cases[i].token);
        bool got = hl_begins_entity(text, strlen(cases[i].before), strlen(text));
        if (got != cases[i].is_entity)
            fail_msg("'%s' after '%s'", cases[i].token, cases[i].before);
    }
}

/* ASCII characters, which are classified without tables, have the same classes as in the tables. */
static void ascii_is_as_unicode_has_it(void **state)
{
    (void)state;

    for (uint32_t c = 1; c < 0x80; c++) {
        char     text[] = { 'x', ' ', (char)c, '\0' };
        char     word[] = { (char)c, 'A', '\0' };
        uint32_t lower[2];
        bool     is_word    = hl_char_is(HL_CHAR_WORD, c);
        bool     is_capital = hl_char_lowercase(lower, c) > 0 && lower[0] != c;

        assert_int_equal(hl_begins_entity(text, 1, 3),
                         is_word && c != 'I' && (is_capital || hl_char_is(HL_CHAR_NUMERIC, c)));
        assert_int_equal(hl_begins_entity(word, 1, 2), !is_word);
    }
}

/* ---------------------------------------------------------------------- going back */

/* A text that was rewound and drawn again has the same trace as a text drawn without a rewind. */
static void going_back_leaves_no_trace(void **state)
{
    story s = begin((hl_tracer_options){ .n_back = 16 }, true);
    (void)state;

    for (int i = 0; i < 40; i++)
        step(&s);
    int64_t first[10];
    memcpy(first, s.ids + s.n_ids - 10, sizeof first);
    s.n_ids -= 10;
    assert_ok(hl_tracer_rewind(s.tracer, s.n_ids));
    assert_ok(hl_generator_rewind(s.generator, s.ids, s.n_ids));
    assert_int_equal(hl_trace_n_tokens(hl_tracer_trace(s.tracer)), s.n_ids);
    for (int i = 0; i < 10; i++)
        step(&s);
    assert_true(memcmp(first, s.ids + s.n_ids - 10, sizeof first) != 0); /* the draws differ */
    /* The same tokens without a rewind. */
    story straight = begin((hl_tracer_options){ .n_back = 16 }, true);
    hl_generator_close(straight.generator);
    straight.generator = NULL;
    for (; straight.n_ids < s.n_ids; straight.n_ids++) {
        int64_t id   = s.ids[straight.n_ids];
        hl_feed feed = { .tokens     = &id,
                         .n_tokens   = 1,
                         .tap        = hl_tracer_tap(straight.tracer),
                         .segments   = hl_tracer_segments(straight.tracer),
                         .n_segments = HL_N_KINDS };
        assert_ok(hl_tracer_add(straight.tracer, &(hl_generated){ .id = id }));
        assert_ok(hl_session_feed(straight.session, &feed));
    }
    for (int64_t i = 0; i < s.n_ids; i++) {
        hl_traced_token a = hl_trace_describe(hl_tracer_trace(s.tracer), i);
        hl_traced_token b = hl_trace_describe(hl_tracer_trace(straight.tracer), i);
        assert_true(a.spike == b.spike || (isnan(a.spike) && isnan(b.spike)));
        assert_int_equal(a.n_bytes, b.n_bytes);
        assert_memory_equal(a.text, b.text, a.n_bytes);
        for (int which = 0; which < HL_N_TRACE_ROWS; which++) {
            double x = hl_trace_mean(hl_tracer_trace(s.tracer), i, (hl_trace_rows)which);
            double y = hl_trace_mean(hl_tracer_trace(straight.tracer), i, (hl_trace_rows)which);
            if (which != HL_TRACE_CHANGE) /* after a rewind the previous row is missing */
                assert_true(x == y || (isnan(x) && isnan(y)));
        }
    }
    assert_fails(HL_BAD_ARGUMENT, "wanted 0 to 16", hl_tracer_rewind(s.tracer, s.n_ids - 17));
    assert_fails(HL_BAD_ARGUMENT, "wanted 0 to 40",
                 hl_generator_rewind(s.generator, s.ids, s.n_ids - 41));
    end(&straight);
    end(&s);
}

/* Forgetting rows changes neither scores nor the rows that are kept. */
static void forgetting_changes_nothing_else(void **state)
{
    story whole_story = begin((hl_tracer_options){ 0 }, true);
    story short_story = begin((hl_tracer_options){ .forget = true, .no_change = true }, true);
    (void)state;

    for (int i = 0; i < N_NEW; i++) {
        step(&whole_story);
        step(&short_story);
        const hl_trace *a = hl_tracer_trace(whole_story.tracer);
        const hl_trace *b = hl_tracer_trace(short_story.tracer);
        int64_t         n = whole_story.n_ids - 1;
        double          x = hl_trace_describe(a, n).spike, y = hl_trace_describe(b, n).spike;
        assert_true(x == y || (isnan(x) && isnan(y)));
        assert_true(hl_trace_mean(a, n, HL_TRACE_RENYI2) == hl_trace_mean(b, n, HL_TRACE_RENYI2));
        assert_true(isnan(hl_trace_mean(b, n, HL_TRACE_CHANGE)));
    }
    end(&whole_story);
    end(&short_story);
}

/* -------------------------------------------------------------------------- files */

static void both_files_say_the_same(void **state)
{
    const char *folder = new_folder();
    story       s      = begin((hl_tracer_options){ 0 }, true);
    hl_trace   *read   = NULL;
    char        line[1 << 16];
    (void)state;

    for (int i = 0; i < 30; i++)
        step(&s);
    const hl_trace *trace = hl_tracer_trace(s.tracer);
    assert_ok(hl_trace_write(trace, in_folder(folder, "a.trace")));
    assert_ok(hl_trace_write(trace, in_folder(folder, "a.jsonl")));
    assert_ok(hl_trace_load(&read, in_folder(folder, "a.trace")));
    FILE *file = fopen(in_folder(folder, "a.jsonl"), "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    for (int64_t i = 0; i < s.n_ids; i++) {
        hl_traced_token about = hl_trace_describe(read, i);
        assert_non_null(fgets(line, sizeof line, file));
        json_t *object = json_loads(line, 0, NULL);
        assert_non_null(object);
        assert_int_equal(json_integer_value(json_object_get(object, "id")), s.ids[i]);
        assert_string_equal(json_string_value(json_object_get(object, "kind")),
                            hl_token_kind_name(about.kind));
        assert_memory_equal(json_string_value(json_object_get(object, "text")), about.text,
                            about.n_bytes);
        double spike = json_number_value(json_object_get(object, "spike"));
        assert_true(isnan(about.spike) ? json_is_null(json_object_get(object, "spike"))
                                       : spike == about.spike);
        json_t *layer = json_array_get(json_object_get(object, "renyi2"), 3);
        double  cell  = hl_trace_row(read, i, 3, 5, HL_TRACE_RENYI2);
        assert_true(i == 0 ? layer == NULL
                           : (float)json_number_value(json_array_get(layer, 5)) == (float)cell);
        assert_true(i == 0 || hl_trace_row(trace, i, 3, 5, HL_TRACE_RENYI2) == cell);
        json_decref(object);
    }
    assert_null(fgets(line, sizeof line, file));
    fclose(file);
    hl_trace_free(read);
    end(&s);
    remove_folder(folder);
}

/* Writes a file as the first release did. */
static void format_1_is_read(void **state)
{
    static const float     rows[12]   = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 };
    static const int64_t   ids[2]     = { 4, 5 };
    static const double    numbers[2] = { -1.5, -2.5 };
    static const char     *names[] = { "logprob", "vocabulary.entropy", "vocabulary.varentropy" };
    static const char     *cells[] = { "entropy", "normalized", "change" };
    const char            *folder  = new_folder();
    const char            *path    = in_folder(folder, "old.trace");
    hl_safetensors_writer *writer  = NULL;
    hl_trace              *trace   = NULL;
    (void)state;

    assert_ok(hl_safetensors_writer_new(&writer));
    hl_safetensors_add_metadata(writer, "format", "headlight trace 1");
    hl_safetensors_add(writer, &(hl_tensor){ .name    = "tokens",
                                             .dtype   = HL_DTYPE_I64,
                                             .n_dims  = 1,
                                             .shape   = { 2 },
                                             .data    = ids,
                                             .n_bytes = sizeof ids });
    for (int i = 0; i < 3; i++) {
        hl_safetensors_add(writer, &(hl_tensor){ .name    = names[i],
                                                 .dtype   = HL_DTYPE_F64,
                                                 .n_dims  = 1,
                                                 .shape   = { 2 },
                                                 .data    = numbers,
                                                 .n_bytes = 16 });
        hl_safetensors_add(writer, &(hl_tensor){ .name    = cells[i],
                                                 .dtype   = HL_DTYPE_F32,
                                                 .n_dims  = 3,
                                                 .shape   = { 2, 2, 3 },
                                                 .data    = rows,
                                                 .n_bytes = 48 });
    }
    assert_ok(hl_safetensors_write(writer, path));
    hl_safetensors_writer_free(writer);
    assert_ok(hl_trace_load(&trace, path));
    hl_traced_token about = hl_trace_describe(trace, 1);
    assert_true(about.kind == HL_KIND_GENERATED && isnan(about.spike) && about.n_bytes == 0);
    assert_true(hl_trace_token(trace, 1).logprob == -2.5);
    assert_true(hl_trace_row(trace, 1, 1, 2, HL_TRACE_CHANGE) == 12.0);
    assert_true(isnan(hl_trace_mean(trace, 1, HL_TRACE_RENYI2)));
    hl_trace_free(trace);
    remove_folder(folder);
}

/* ------------------------------------------------------------------------ change */

enum { N_KEYS = 40 };

/* Draws a row of probabilities, 0 for keys that are not seen; a sink may have a share. */
static void draw_row(float p[N_KEYS], hl_visible_keys seen, hl_random *random)
{
    double sum = 0.0;

    for (int key = 0; key < N_KEYS; key++) {
        double u = (double)(hl_random_next(random) >> 11) * 0x1p-53;
        p[key]   = hl_visible_has(seen, key) ? (float)(u * u * u) : 0.0f;
        sum += (double)p[key];
    }
    for (int key = 0; key < N_KEYS; key++)
        p[key] /= (float)(sum + 0.1);
}

/* The definition: half the distance over the keys that both see, with everything else as one
 * outcome. */
static double change_by_key(const float *p, const float *q, hl_visible_keys now,
                            hl_visible_keys before)
{
    double apart = 0.0, p_rest = 1.0, q_rest = 1.0;

    for (int key = 0; key < N_KEYS; key++) {
        if (!hl_visible_has(now, key) || !hl_visible_has(before, key))
            continue;
        apart += fabs((double)p[key] - (double)q[key]);
        p_rest -= (double)p[key];
        q_rest -= (double)q[key];
    }
    return 0.5 * (apart + fabs(p_rest - q_rest));
}

static void change_is_that_of_keys_both_see(void **state)
{
    hl_random random = { 3 };
    (void)state;

    for (int window = 0; window < 12; window++) {
        for (int sink = 0; sink < 6; sink++) {
            hl_profile_mask mask = { .is_causal   = true,
                                     .has_window  = window > 0,
                                     .window_left = window,
                                     .window_sink = sink };
            for (int64_t position = 1; position < N_KEYS; position++) {
                hl_visible_keys now    = hl_profile_seen(&mask, position, position + 1);
                hl_visible_keys before = hl_profile_seen(&mask, position - 1, position);
                float           p[N_KEYS], q[N_KEYS];

                draw_row(p, now, &random);
                draw_row(q, before, &random);
                assert_near(hl_row_change(p, q, now, before), change_by_key(p, q, now, before),
                            1e-12);
                assert_near(hl_row_change(p, q, now, now), change_by_key(p, q, now, now), 1e-12);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_those_of_measure),
        cmocka_unit_test(lookback_and_nosink_by_hand),
        cmocka_unit_test(without_segments_no_lookback),
        cmocka_unit_test(a_token_is_described),
        cmocka_unit_test(entities_are_capitals_and_digits),
        cmocka_unit_test(ascii_is_as_unicode_has_it),
        cmocka_unit_test(going_back_leaves_no_trace),
        cmocka_unit_test(forgetting_changes_nothing_else),
        cmocka_unit_test(both_files_say_the_same),
        cmocka_unit_test(format_1_is_read),
        cmocka_unit_test(change_is_that_of_keys_both_see),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
