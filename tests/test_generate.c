/* test_generate.c - generation, against a model that is run again for every token, and all the ways
 * in which a text ends. */
#include "model_support.h"

#include <math.h>

#define LLAMA "tests/data/families/llama3"

enum { N_PROMPT = 8, N_NEW = 12, D_VOCAB = 256 };

static const int64_t prompt[N_PROMPT] = { 5, 17, 200, 3, 99, 41, 7, 8 };

typedef struct story {
    hl_model     *model;
    hl_session   *session;
    hl_generator *generator;
} story;

static story begin(hl_session_options session, hl_generate_options options)
{
    story s = { .model = open_model(LLAMA) };

    session.wants |= HL_WANT_LAST_DRAW;
    assert_ok(hl_session_open(&s.session, s.model, &session));
    assert_ok(hl_generator_open(&s.generator, s.session, &options));
    assert_ok(hl_generator_prompt(s.generator, prompt, N_PROMPT));
    return s;
}

static void end(story *s)
{
    hl_generator_close(s->generator);
    hl_session_close(s->session);
    hl_model_close(s->model);
}

static hl_generated next(story *s)
{
    hl_generated token;
    assert_ok(hl_generator_next(&token, s->generator));
    return token;
}

/* ------------------------------------------------------------ against plain runs */

typedef struct last_row {
    double  entropy_sum;
    int64_t n_heads;
} last_row;

static hl_status add_last(void *context, const hl_layer_rows *rows)
{
    last_row *last = context;

    for (int64_t head = 0; head < rows->n_heads; head++)
        last->entropy_sum += rows->rows->entropy[head * rows->n_rows + rows->n_rows - 1];
    last->n_heads += rows->n_heads;
    return HL_OK;
}

/* Runs the whole text through a new session: returns the most likely token and its data. */
static hl_generated plain_step(const hl_model *model, const int64_t *tokens, int64_t n)
{
    last_row     last    = { 0 };
    hl_tap       tap     = { .context = &last, .layer = add_last };
    hl_session  *session = NULL;
    hl_generated step    = { 0 };
    double       sum     = 0.0;

    assert_ok(
        hl_session_open(&session, model, &(hl_session_options){ .wants = HL_WANT_LAST_LOGITS }));
    assert_ok(hl_session_feed(session, &(hl_feed){ .tokens = tokens, .n_tokens = n, .tap = &tap }));
    const float *logits = hl_session_logits(session, 0);
    for (int64_t i = 0; i < D_VOCAB; i++) {
        step.id = logits[i] > logits[step.id] ? i : step.id;
        sum += exp((double)logits[i]);
    }
    for (int64_t i = 0; i < D_VOCAB; i++)
        step.entropy -= exp(logits[i]) / sum * log(exp(logits[i]) / sum);
    step.logprob           = logits[step.id] - log(sum);
    step.attention_entropy = last.entropy_sum / (double)last.n_heads;
    hl_session_close(session);
    return step;
}

/* The last chunk of a prompt in chunks of 3 is shorter; its last row must be the one measured. */
static void greedy_text_is_what_the_model_says(void **state)
{
    int64_t tokens[N_PROMPT + N_NEW];
    story   s = begin((hl_session_options){ .n_chunk = 3 },
                      (hl_generate_options){ .max_tokens = N_NEW, .ignore_end = true });
    (void)state;

    memcpy(tokens, prompt, sizeof prompt);
    for (int i = 0; i < N_NEW; i++) {
        hl_generated token  = next(&s);
        hl_generated wanted = plain_step(s.model, tokens, N_PROMPT + i);

        assert_int_equal(token.id, wanted.id);
        assert_true(fabs(token.logprob - wanted.logprob) < 1e-5);
        assert_true(fabs(token.entropy - wanted.entropy) < 1e-5);
        assert_true(fabs(token.attention_entropy - wanted.attention_entropy) < 1e-5);
        assert_int_equal(token.stop, i == N_NEW - 1 ? HL_STOP_LENGTH : HL_STOP_NONE);
        tokens[N_PROMPT + i] = token.id;
    }
    end(&s);
}

/* Without a temperature, the same tokens are generated again; with a temperature, others. */
static void going_back(void **state)
{
    for (int warm = 0; warm < 2; warm++) {
        hl_generate_options options = {
            .sample     = { .temperature = 1.2 * warm, .repeat_penalty = 1.3, .repeat_last = 5 },
            .max_tokens = N_NEW,
            .ignore_end = true
        };
        int64_t tokens[N_PROMPT + N_NEW];
        story   s    = begin((hl_session_options){ 0 }, options);
        int     same = 0;
        (void)state;

        memcpy(tokens, prompt, sizeof prompt);
        for (int i = 0; i < N_NEW; i++)
            tokens[N_PROMPT + i] = next(&s).id;
        assert_fails(HL_BAD_ARGUMENT, "wanted 0 to 12",
                     hl_generator_rewind(s.generator, tokens, N_PROMPT - 1));
        assert_ok(hl_generator_rewind(s.generator, tokens, N_PROMPT + 2));
        for (int i = 2; i < N_NEW; i++) {
            hl_generated token = next(&s);
            same += token.id == tokens[N_PROMPT + i];
            assert_int_equal(token.stop, i == N_NEW - 1 ? HL_STOP_LENGTH : HL_STOP_NONE);
        }
        assert_true(warm ? same < N_NEW - 2 : same == N_NEW - 2);
        end(&s);
    }
}

/* Inserted tokens are read, and do not count for max_tokens. */
static void inserting(void **state)
{
    const int64_t more[3] = { 9, 77, 31 };
    int64_t       tokens[N_PROMPT + N_NEW + 3];
    story         s = begin((hl_session_options){ 0 },
                            (hl_generate_options){ .max_tokens = N_NEW, .ignore_end = true });
    int64_t       n = N_PROMPT;
    (void)state;

    memcpy(tokens, prompt, sizeof prompt);
    for (int i = 0; i < N_NEW; i++) {
        if (i == 5) {
            assert_ok(hl_generator_insert(s.generator, more, 3));
            for (int j = 0; j < 3; j++)
                tokens[n++] = more[j];
        }
        hl_generated token = next(&s);
        assert_int_equal(token.id, plain_step(s.model, tokens, n).id);
        assert_int_equal(token.stop, i == N_NEW - 1 ? HL_STOP_LENGTH : HL_STOP_NONE);
        tokens[n++] = token.id;
    }
    assert_fails(HL_BAD_ARGUMENT, "wanted 0 to 7",
                 hl_generator_rewind(s.generator, tokens, n - 8)); /* only tokens after the
                                                                    * insertion can be removed */
    end(&s);
}

static void a_seed_is_a_text_whatever_the_threads(void **state)
{
    hl_generate_options options = { .sample     = { .temperature = 1.5, .top_p = 0.95, .seed = 3 },
                                    .max_tokens = 40,
                                    .ignore_end = true };
    story               one     = begin((hl_session_options){ .n_threads = 1 }, options);
    story               two     = begin((hl_session_options){ .n_threads = 2 }, options);
    options.sample.seed         = 4;
    story other                 = begin((hl_session_options){ .n_threads = 1 }, options);
    int   differences           = 0;
    (void)state;

    for (int i = 0; i < 40; i++) {
        hl_generated a = next(&one), b = next(&two), c = next(&other);
        assert_int_equal(a.id, b.id);
        assert_true(a.logprob == b.logprob);
        differences += a.id != c.id;
    }
    assert_true(differences > 20);
    end(&one);
    end(&two);
    end(&other);
}

/* -------------------------------------------------------------------- endings */

/* The prompt has 8 of 10 tokens; two more are fed, and the token after them is not. */
static void a_full_context_ends_the_text(void **state)
{
    story s =
        begin((hl_session_options){ .n_ctx = 10 }, (hl_generate_options){ .ignore_end = true });
    hl_generated token;
    (void)state;

    assert_int_equal(next(&s).stop, HL_STOP_NONE);
    assert_int_equal(next(&s).stop, HL_STOP_NONE);
    assert_int_equal(next(&s).stop, HL_STOP_CONTEXT);
    assert_int_equal(hl_session_length(s.session, 0), 10);
    assert_fails(HL_BAD_ARGUMENT, "the text has ended", hl_generator_next(&token, s.generator));
    assert_int_equal(token.id, -1);
    end(&s);
}

static void the_model_ends_the_text(void **state)
{
    story   s = begin((hl_session_options){ 0 },
                      (hl_generate_options){ .max_tokens = 3, .ignore_end = true });
    int64_t third;
    (void)state;

    next(&s);
    next(&s);
    third = next(&s).id;
    end(&s);
    s                  = begin((hl_session_options){ 0 },
                               (hl_generate_options){ .max_tokens = 9, .end_ids = &third, .n_end_ids = 1 });
    hl_generated token = { 0 };
    for (int i = 0; i < 3 && token.stop == HL_STOP_NONE; i++)
        token = next(&s);
    assert_int_equal(token.stop, HL_STOP_END);
    assert_int_equal(token.id, third);
    end(&s);
}

/* A second prompt follows the generated text, including its last token. */
static void a_text_can_be_taken_up_again(void **state)
{
    int64_t tokens[N_PROMPT + 4];
    story   s = begin((hl_session_options){ 0 },
                      (hl_generate_options){ .max_tokens = 2, .ignore_end = true });
    (void)state;

    memcpy(tokens, prompt, sizeof prompt);
    tokens[N_PROMPT]     = next(&s).id;
    hl_generated last    = next(&s);
    tokens[N_PROMPT + 1] = last.id;
    assert_int_equal(last.stop, HL_STOP_LENGTH);
    tokens[N_PROMPT + 2] = 77;
    tokens[N_PROMPT + 3] = 78;
    assert_ok(hl_generator_prompt(s.generator, tokens + N_PROMPT + 2, 2));
    hl_generated token = next(&s);
    assert_int_equal(token.id, plain_step(s.model, tokens, N_PROMPT + 4).id);
    assert_int_equal(token.stop, HL_STOP_NONE);
    assert_int_equal(hl_session_length(s.session, 0), N_PROMPT + 4);
    end(&s);
}

/* ------------------------------------------------------------------- the other tap */

static hl_status count_layer(void *context, const hl_layer_rows *rows)
{
    *(int64_t *)context += rows->n_rows;
    return HL_OK;
}

static void another_tap_sees_every_row(void **state)
{
    int64_t n_rows = 0;
    hl_tap  tap    = { .context = &n_rows, .layer = count_layer };
    story   s      = begin((hl_session_options){ 0 },
                           (hl_generate_options){ .max_tokens = 3, .ignore_end = true, .tap = &tap });
    (void)state;

    next(&s);
    next(&s);
    next(&s);
    assert_int_equal(n_rows, hl_model_get_info(s.model)->n_layers * (N_PROMPT + 2));
    end(&s);
}

/* A device that keeps its logits draws the same tokens as the CPU, with the same data. */
static void a_device_draws_the_same(void **state)
{
    static const hl_sample_options all[] = {
        { .temperature = 0.0, .repeat_penalty = 1.3 },
        { .temperature = 1.0, .seed = 2 },
        { .temperature = 0.8, .top_k = 12, .top_p = 0.9, .seed = 3 },
        { .temperature = 1.3, .top_p = 0.8, .repeat_penalty = 1.1, .repeat_last = 6, .seed = 4 },
        { .temperature = 1.0, .min_p = 0.1, .seed = 5 },
    };
    (void)state;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        hl_generate_options options = { .sample = all[i], .ignore_end = true };
        story               cpu     = begin((hl_session_options){ 0 }, options);
        story               device  = begin((hl_session_options){ .device = "host" }, options);

        assert_null(hl_session_logits(device.session, 0));
        for (int step = 0; step < N_NEW; step++) {
            hl_generated a = next(&cpu), b = next(&device);

            assert_int_equal(a.id, b.id);
            assert_true(fabs(a.logprob - b.logprob) < 1e-4);
            assert_true(fabs(a.entropy - b.entropy) < 1e-4);
            assert_true(fabs(a.varentropy - b.varentropy) < 1e-3);
            assert_true(fabs(a.attention_entropy - b.attention_entropy) < 1e-4);
        }
        end(&cpu);
        end(&device);
    }
}

/* --------------------------------------------------------------------- mistakes */

static void mistakes_are_named(void **state)
{
    hl_model     *model     = open_model(LLAMA);
    hl_session   *session   = NULL;
    hl_generator *generator = NULL;
    hl_generated  token;
    (void)state;

    assert_fails(HL_BAD_ARGUMENT, "session is NULL", hl_generator_open(&generator, NULL, NULL));
    assert_ok(hl_session_open(&session, model, NULL));
    assert_fails(HL_BAD_ARGUMENT, "lacks HL_WANT_LAST_DRAW",
                 hl_generator_open(&generator, session, NULL));
    hl_session_close(session);
    hl_session_options options = { .wants = HL_WANT_LAST_LOGITS, .n_batch = 2 };
    assert_ok(hl_session_open(&session, model, &options));
    assert_fails(HL_BAD_ARGUMENT, "2 sequences, wanted 1",
                 hl_generator_open(&generator, session, NULL));
    hl_session_close(session);
    options.n_batch = 1;
    assert_ok(hl_session_open(&session, model, &options));
    assert_fails(HL_BAD_ARGUMENT, "top_p is 2",
                 hl_generator_open(&generator, session,
                                   &(hl_generate_options){ .sample = { .top_p = 2.0 } }));
    assert_ok(hl_generator_open(&generator, session, NULL));
    assert_fails(HL_BAD_ARGUMENT, "no prompt yet", hl_generator_next(&token, generator));
    assert_fails(HL_BAD_ARGUMENT, "a prompt of 0 tokens",
                 hl_generator_prompt(generator, prompt, 0));
    hl_generator_close(generator);
    hl_session_close(session);
    options.n_ctx = N_PROMPT - 1;
    assert_ok(hl_session_open(&session, model, &options));
    assert_ok(hl_generator_open(&generator, session, NULL));
    assert_fails(HL_LIMIT, "the prompt has 8 tokens, but a context of 7 has room for only 7",
                 hl_generator_prompt(generator, prompt, N_PROMPT));
    hl_generator_close(generator);
    hl_session_close(session);
    hl_model_close(model);
}

static void stops_have_names(void **state)
{
    (void)state;
    assert_string_equal(hl_stop_name(HL_STOP_NONE), "");
    assert_string_equal(hl_stop_name(HL_STOP_END), "end");
    assert_string_equal(hl_stop_name(HL_STOP_LENGTH), "length");
    assert_string_equal(hl_stop_name(HL_STOP_CONTEXT), "context");
    assert_string_equal(hl_stop_name(HL_STOP_WORD), "stop");
    assert_string_equal(hl_stop_name((hl_stop)99), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_text_is_what_the_model_says),
        cmocka_unit_test(going_back),
        cmocka_unit_test(inserting),
        cmocka_unit_test(a_seed_is_a_text_whatever_the_threads),
        cmocka_unit_test(a_full_context_ends_the_text),
        cmocka_unit_test(the_model_ends_the_text),
        cmocka_unit_test(a_text_can_be_taken_up_again),
        cmocka_unit_test(another_tap_sees_every_row),
        cmocka_unit_test(a_device_draws_the_same),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(stops_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
