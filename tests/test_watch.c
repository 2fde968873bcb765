/* test_watch.c - reactions to spikes: the text, the tracer and the report are consistent. */
#include "model_support.h"

#include <jansson.h>

#define DEMO "models/demo"

enum { N_CTX = 200, N_NEW = 120 };

static const char prompt_text[] =
    "The old man looked out at the sea, and said that he had not been there since the war.";

/* A text that is watched. */
typedef struct story {
    hl_model     *model;
    hl_tokenizer *tokenizer;
    hl_session   *session;
    hl_watch     *watch;
    hl_generator *generator;
    int64_t       ids[2 * N_CTX]; /* ids of the tokens that stay */
    int64_t       n_ids;
    int64_t       n_prompt;
    int           n_acts[HL_WATCH_ASKED_OUT + 1];
    hl_watched    last; /* the last token that was a spike */
} story;

static story begin(hl_watch_options options)
{
    story               s          = { .model = open_model(DEMO) };
    hl_session_options  session    = { .n_ctx = N_CTX, .wants = HL_WANT_LAST_DRAW, .n_threads = 1 };
    hl_generate_options generating = { .sample     = { .temperature = 1.3, .seed = 5 },
                                       .max_tokens = N_NEW,
                                       .ignore_end = true };
    hl_encoding        *prompt     = NULL;

    hl_watch_session(&session);
    assert_ok(hl_tokenizer_open(&s.tokenizer, DEMO));
    assert_ok(hl_tokenizer_encode(&prompt, s.tokenizer, prompt_text, strlen(prompt_text), NULL));
    s.n_prompt = s.n_ids = (int64_t)prompt->n_tokens;
    for (int64_t i = 0; i < s.n_ids; i++)
        s.ids[i] = prompt->ids[i];
    hl_encoding_free(prompt);
    assert_ok(hl_session_open(&s.session, s.model, &session));
    assert_ok(hl_watch_open(&s.watch, s.model, s.tokenizer, N_CTX, &options));
    hl_watch_generator(&generating, s.watch);
    assert_ok(hl_generator_open(&s.generator, s.session, &generating));
    assert_ok(hl_watch_begin(s.watch, s.generator, s.ids, NULL, s.n_ids));
    assert_ok(hl_generator_prompt(s.generator, s.ids, s.n_ids));
    return s;
}

static void end(story *s)
{
    hl_generator_close(s->generator);
    hl_watch_close(s->watch);
    hl_session_close(s->session);
    hl_tokenizer_close(s->tokenizer);
    hl_model_close(s->model);
}

static int64_t n_traced(const story *s)
{
    return hl_trace_n_tokens(hl_tracer_trace(hl_watch_tracer(s->watch)));
}

/* Generates the whole text; after each token the trace and the text have the same length. */
static void write_text(story *s)
{
    hl_generated token   = { 0 };
    hl_watched   watched = { 0 };

    while (token.stop == HL_STOP_NONE && !watched.ends) {
        assert_ok(hl_generator_next(&token, s->generator));
        assert_ok(hl_watch_add(&watched, s->watch, &token));
        s->ids[s->n_ids++] = token.id;
        s->n_ids -= watched.n_back;
        s->n_acts[watched.act]++;
        if (watched.act != HL_WATCH_NOTHING)
            s->last = watched;
        if (watched.n_back > 0)
            token.stop = HL_STOP_NONE;
        s->n_ids += watched.n_inserted_tokens;
        assert_int_equal(n_traced(s), s->n_ids);
    }
}

static void spikes_are_seen_and_counted(void **state)
{
    hl_watch_options options = hl_watch_defaults();
    int64_t          n_entities;
    (void)state;

    options.threshold = 1.0;
    story s           = begin(options);
    write_text(&s);
    assert_int_equal(s.n_ids, s.n_prompt + N_NEW);
    assert_true(s.n_acts[HL_WATCH_SPIKE] > 0);
    assert_int_equal(s.n_acts[HL_WATCH_SPIKE], hl_watch_n_spikes(s.watch, &n_entities));
    assert_true(n_entities <= s.n_acts[HL_WATCH_SPIKE]);
    assert_true(s.last.z > 1.0);
    assert_true(s.last.n_bytes > 0);
    end(&s);
}

static void the_text_ends_before_a_spike(void **state)
{
    hl_watch_options options = hl_watch_defaults();
    (void)state;

    options.threshold = 1.0;
    options.on_spike  = HL_ON_SPIKE_STOP;
    story s           = begin(options);
    write_text(&s);
    assert_int_equal(s.n_acts[HL_WATCH_STOPPED], 1);
    assert_true(s.last.ends);
    assert_int_equal(s.last.token, s.n_ids - s.n_prompt);
    end(&s);
}

static void tokens_are_drawn_again(void **state)
{
    hl_watch_options options = hl_watch_defaults();
    (void)state;

    options.threshold    = 1.0;
    options.on_spike     = HL_ON_SPIKE_RESAMPLE;
    options.resample_max = 1;
    story s              = begin(options);
    write_text(&s);
    assert_int_equal(s.n_ids, s.n_prompt + N_NEW);
    assert_true(s.n_acts[HL_WATCH_RESAMPLED] > 0);
    assert_true(s.n_acts[HL_WATCH_RESAMPLED] >= s.n_acts[HL_WATCH_KEPT]);
    end(&s);
}

/* ------------------------------------------------------------------ questions */

typedef struct oracle {
    const char *text;
    const char *problem;
    int         n_asked;
} oracle;

static void answer(void *context, hl_watch_answer *out, const char *question)
{
    oracle *o    = context;
    json_t *root = json_loads(question, 0, NULL);

    o->n_asked++;
    assert_non_null(root);
    assert_true(json_real_value(json_object_get(json_object_get(root, "spike"), "z")) > 1.0);
    assert_int_equal(
        strncmp(json_string_value(json_object_get(root, "text")), prompt_text, strlen(prompt_text)),
        0);
    json_decref(root);
    out->text    = o->text;
    out->n_bytes = strlen(o->text);
    snprintf(out->problem, sizeof out->problem, "%s", o->problem);
}

static story ask(oracle *o, int64_t ask_max)
{
    hl_watch_options options = hl_watch_defaults();

    options.threshold = 1.0;
    options.on_spike  = HL_ON_SPIKE_ASK;
    options.ask_max   = ask_max;
    options.ask       = answer;
    options.context   = o;
    story s           = begin(options);
    write_text(&s);
    return s;
}

static void answers_take_the_place_of_tokens(void **state)
{
    oracle o = { .text = " and then", .problem = "" };
    story  s = ask(&o, 2);
    (void)state;

    assert_int_equal(o.n_asked, 2);
    assert_int_equal(s.n_acts[HL_WATCH_ASKED], 2);
    assert_true(s.n_acts[HL_WATCH_ASKED_OUT] > 0);
    assert_true(s.n_ids > s.n_prompt + N_NEW);
    end(&s);
}

static void bad_answers_change_nothing(void **state)
{
    const oracle bad[] = { { " and then", "it failed", 0 }, { "\xff", "", 0 }, { "", "", 0 } };
    (void)state;

    for (int i = 0; i < 3; i++) {
        oracle o = bad[i];
        story  s = ask(&o, 1);

        assert_int_equal(o.n_asked, 1);
        assert_int_equal(s.n_ids, s.n_prompt + N_NEW);
        end(&s);
    }
}

static void impossible_options_are_refused(void **state)
{
    hl_watch        *watch   = NULL;
    hl_watch_options options = hl_watch_defaults();
    hl_model        *model   = open_model(DEMO);
    (void)state;

    options.on_spike = HL_ON_SPIKE_ASK;
    assert_int_equal(hl_watch_open(&watch, model, NULL, N_CTX, &options), HL_BAD_ARGUMENT);
    options.on_spike = HL_ON_SPIKE_STOP;
    assert_int_equal(hl_watch_open(&watch, model, NULL, 0, &options), HL_BAD_ARGUMENT);
    assert_null(watch);
    hl_watch_close(NULL);
    hl_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spikes_are_seen_and_counted),
        cmocka_unit_test(the_text_ends_before_a_spike),
        cmocka_unit_test(tokens_are_drawn_again),
        cmocka_unit_test(answers_take_the_place_of_tokens),
        cmocka_unit_test(bad_answers_change_nothing),
        cmocka_unit_test(impossible_options_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
