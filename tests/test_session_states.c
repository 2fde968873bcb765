/* test_session_states.c - layers with a state: a session gives the same results however a text is cut
 * into feeds, whatever it had before, and after every rewind, on the CPU and on a device. */
#include "model_support.h"

#include <math.h>
#include <string.h>

#include "model/session.h"

enum { N_CTX = 96, N_TEXT = 90, N_CHUNK = 16 };

static const char *const models[] = {
    "tests/data/hybrids/qwen3_5_vl", /* gated attention and gated delta rule */
    "tests/data/hybrids/falcon_h1",  /* attention and Mamba-2 in every layer */
    "tests/data/hybrids/jamba",      /* Mamba, and mixtures */
    "tests/data/hybrids/lfm2",       /* short convolutions */
};
enum { N_MODELS = sizeof models / sizeof *models };

static int64_t token_of(int64_t text, int64_t position)
{
    return (text * 41 + position * position * 7 + position * 13 + 3) % 149;
}

static hl_session *open_session(const hl_model *model, int64_t n_batch, int64_t n_chunk,
                                int64_t n_rows, const char *device)
{
    hl_session        *session = NULL;
    hl_session_options options = { .n_batch   = n_batch,
                                   .n_ctx     = N_CTX,
                                   .n_chunk   = n_chunk,
                                   .n_rows    = n_rows,
                                   .n_threads = 2,
                                   .device    = device,
                                   .wants     = HL_WANT_LAST_LOGITS };

    assert_ok(hl_session_open(&session, model, &options));
    return session;
}

/* Feeds positions [first, end) of a text to a sequence. */
static void feed(hl_session *session, int64_t sequence, int64_t text, int64_t first, int64_t end)
{
    int64_t tokens[N_TEXT];

    assert_int_equal(hl_session_length(session, sequence), first);
    for (int64_t i = first; i < end; i++)
        tokens[i - first] = token_of(text, i);
    assert_ok(hl_session_feed(session, &(hl_feed){ .tokens      = tokens,
                                                   .n_tokens    = end - first,
                                                   .sequences   = &sequence,
                                                   .n_sequences = 1 }));
}

/* The last logits of a text of n tokens, fed whole to a new session. */
static float *logits_of(const hl_model *model, int64_t text, int64_t n, const char *device)
{
    int64_t     d_vocab = hl_model_get_info(model)->d_vocab;
    float      *out     = calloc((size_t)d_vocab, sizeof *out);
    hl_session *session = open_session(model, 1, N_CTX, 0, device);

    feed(session, 0, text, 0, n);
    memcpy(out, hl_session_logits(session, 0), (size_t)d_vocab * sizeof *out);
    hl_session_close(session);
    return out;
}

/* Compares a sequence's last logits with those of `text` fed alone. */
static void assert_is(const hl_session *session, int64_t sequence, int64_t text, const char *device)
{
    int64_t      d_vocab = session->config->d_vocab;
    int64_t      n       = hl_session_length(session, sequence);
    const float *seen    = hl_session_logits(session, sequence);
    float       *wanted  = logits_of(session->model, text, n, device);
    float        most = 0.0f, worst = 0.0f;

    for (int64_t i = 0; i < d_vocab; i++) {
        most  = fmaxf(most, fabsf(wanted[i]));
        worst = fmaxf(worst, fabsf(wanted[i] - seen[i]));
    }
    if (!(worst <= 1e-4f * most))
        fail_msg("%s, %lld tokens: off by %g of %g", session->model->path, (long long)n,
                 (double)worst, (double)most);
    free(wanted);
}

/* A text in feeds of every length from 1 on, in chunks. */
static void any_division(const hl_model *model, const char *device)
{
    hl_session *session = open_session(model, 1, 5, 0, device);
    int64_t     n       = 0;

    for (int64_t step = 1; n + step <= N_TEXT; n += step++)
        feed(session, 0, 2, n, n + step);
    assert_is(session, 0, 2, device);
    hl_session_close(session);
}

/* Rewinds to positions before and after kept states, with another text from there on. */
static void rewinds(const hl_model *model, const char *device)
{
    static const int64_t to[] = { 1, N_CHUNK - 1, N_CHUNK, N_CHUNK + 1, 40, 3 * N_CHUNK, 70, 89 };
    hl_session          *session = open_session(model, 1, N_CHUNK, 0, device);

    for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
        int64_t both[N_TEXT];

        assert_ok(hl_session_rewind(session, 0, 0));
        feed(session, 0, 3, 0, N_TEXT);
        assert_ok(hl_session_rewind(session, 0, to[i]));
        for (int64_t j = 0; j < N_TEXT; j++)
            both[j] = token_of(j < to[i] ? 3 : 4, j);
        assert_ok(hl_session_feed(
            session, &(hl_feed){ .tokens = both + to[i], .n_tokens = N_TEXT - to[i] }));
        hl_session  *plain = open_session(model, 1, N_CTX, 0, device);
        const float *seen  = hl_session_logits(session, 0);
        assert_ok(hl_session_feed(plain, &(hl_feed){ .tokens = both, .n_tokens = N_TEXT }));
        const float *wanted = hl_session_logits(plain, 0);
        for (int64_t j = 0; j < session->config->d_vocab; j++)
            assert_true(fabsf(seen[j] - wanted[j]) <= 1e-4f * fmaxf(1.0f, fabsf(wanted[j])) * 4.0f);
        hl_session_close(plain);
    }
    hl_session_close(session);
}

/* A state that was kept of one text is not used for the next: 32 tokens in chunks of 16, then another
 * text in steps, which keep nothing, and back to where the first had been kept. */
static void kept_states_end_with_their_text(const hl_model *model, const char *device)
{
    hl_session *session = open_session(model, 1, N_CHUNK, 0, device);

    feed(session, 0, 5, 0, 2 * N_CHUNK);
    assert_ok(hl_session_rewind(session, 0, 0));
    for (int64_t i = 0; i < 2 * N_CHUNK + 3; i++)
        feed(session, 0, 6, i, i + 1);
    assert_is(session, 0, 6, device);
    assert_ok(hl_session_rewind(session, 0, 2 * N_CHUNK + 1));
    feed(session, 0, 6, 2 * N_CHUNK + 1, 2 * N_CHUNK + 2);
    assert_is(session, 0, 6, device);
    hl_session_close(session);
}

/* Tokens are fed again in pieces that fit into the session's rows. */
static void recovery_needs_no_more_rows(const hl_model *model, const char *device)
{
    hl_session *session = open_session(model, 3, N_CTX, 24, device);

    for (int64_t i = 0; i < 72; i += 24)
        feed(session, 1, 7, i, i + 24);
    feed(session, 2, 8, 0, 20);
    assert_ok(hl_session_rewind(session, 1, 71));
    feed(session, 1, 7, 71, 72);
    assert_is(session, 1, 7, device);
    feed(session, 2, 8, 20, 21);
    assert_is(session, 2, 8, device);
    hl_session_close(session);
}

static void check_models(const char *device)
{
    for (int i = 0; i < N_MODELS; i++) {
        hl_model *model = open_model(models[i]);

        any_division(model, device);
        rewinds(model, device);
        kept_states_end_with_their_text(model, device);
        recovery_needs_no_more_rows(model, device);
        hl_model_close(model);
    }
}

static void states_are_part_of_a_session(void **state)
{
    (void)state;
    check_models("cpu");
}

static void states_are_part_of_a_session_on_a_device(void **state)
{
    (void)state;
    check_models("host");
}

/* Every back end that this machine has gives the same results, within rounding. */
static void back_ends_agree(void **state)
{
    (void)state;
    for (int i = 0; i < N_MODELS; i++) {
        hl_model *model = open_model(models[i]);
        int64_t   n     = hl_model_get_info(model)->d_vocab;

        assert_ok(hl_backend_select("scalar"));
        float *wanted = logits_of(model, 9, 67, "cpu");
        for (const char *const *name = hl_backend_names(); *name != NULL; name++) {
            if (strcmp(*name, "cuda") == 0 || hl_backend_select(*name) != HL_OK)
                continue;
            float *seen = logits_of(model, 9, 67, "cpu");
            for (int64_t j = 0; j < n; j++)
                assert_true(fabsf(seen[j] - wanted[j]) <= 4e-4f * fmaxf(1.0f, fabsf(wanted[j])));
            free(seen);
        }
        free(wanted);
        hl_model_close(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_are_part_of_a_session),
        cmocka_unit_test(states_are_part_of_a_session_on_a_device),
        cmocka_unit_test(back_ends_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
