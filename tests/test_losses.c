/* test_losses.c - losses of a session, and divergences from kept rows, on the CPU and on the device
 * "host", compared with the session's logits; invalid requests. */
#include "model_support.h"

#include <math.h>
#include <string.h>

#include "base/status.h"
#include "kernels/logits.h"

#define LLAMA "tests/data/families/llama3"

enum { N_TOKENS = 20, N_BATCH = 3, D_VOCAB = 256 };

/* Some rows have no target. */
static int64_t token_at(int sequence, int64_t position)
{
    return (sequence * 41 + position * 37 + 3) % D_VOCAB;
}

static int64_t target_at(int sequence, int64_t position)
{
    return (sequence + position) % 5 != 0 ? token_at(sequence, position + 1) : -1;
}

typedef struct two_losses {
    double from_logits[N_BATCH][N_TOKENS];
    double told[N_BATCH][N_TOKENS];
    int    n_told;
} two_losses;

static hl_status lose(void *context, const hl_final_rows *rows)
{
    two_losses *both = context;

    for (int64_t row = 0; row < rows->n_rows; row++) {
        int64_t position = rows->start + row;
        int64_t target   = target_at((int)rows->sequence, position);

        if (rows->losses != NULL) {
            assert_true(isnan(rows->losses[row]) == (target < 0));
            assert_in_range(rows->tops[row], 0, D_VOCAB - 1);
            both->told[rows->sequence][position] = target >= 0 ? rows->losses[row] : 0.0;
            both->n_told++;
        } else if (target >= 0) {
            const float *logits = rows->logits + row * rows->d_vocab;

            both->from_logits[rows->sequence][position] =
                hl_logits_lse(logits, rows->d_vocab) - (double)logits[target];
        }
    }
    return HL_OK;
}

/* All rows, in chunks of seven. */
static void feed_all(two_losses *both, const hl_model *model, const char *device, uint32_t wants)
{
    hl_session        *session = NULL;
    hl_session_options options = {
        .n_ctx = 32, .n_batch = N_BATCH, .n_chunk = 7, .wants = wants, .device = device
    };
    hl_tap  tap = { .context = both, .final = lose, .wants = wants };
    int64_t tokens[N_BATCH * N_TOKENS], targets[N_BATCH * N_TOKENS];

    for (int i = 0; i < N_BATCH * N_TOKENS; i++) {
        tokens[i]  = token_at(i / N_TOKENS, i % N_TOKENS);
        targets[i] = target_at(i / N_TOKENS, i % N_TOKENS);
    }
    assert_ok(hl_session_open(&session, model, &options));
    assert_ok(hl_session_feed(
        session,
        &(hl_feed){ .tokens = tokens, .n_tokens = N_TOKENS, .targets = targets, .tap = &tap }));
    hl_session_close(session);
}

static void losses_are_those_of_logits(void **state)
{
    const char *const names[] = { "cpu", "host" };
    hl_model         *model   = open_model(LLAMA);
    (void)state;

    for (int i = 0; i < 2; i++) {
        two_losses both = { 0 };

        feed_all(&both, model, names[i], HL_WANT_LOGITS);
        feed_all(&both, model, names[i], HL_WANT_LOSSES);
        assert_int_equal(both.n_told, N_BATCH * N_TOKENS);
        for (int k = 0; k < N_BATCH * N_TOKENS; k++) {
            double a = both.from_logits[k / N_TOKENS][k % N_TOKENS];
            double b = both.told[k / N_TOKENS][k % N_TOKENS];

            assert_true(i == 0 ? a == b : fabs(a - b) <= 1e-12);
        }
    }
    hl_model_close(model);
}

static void targets_are_checked(void **state)
{
    hl_model   *model     = open_model(LLAMA);
    hl_session *session   = NULL;
    int64_t     tokens[2] = { 3, 4 }, bad[2] = { 1, D_VOCAB };
    two_losses  both = { 0 };
    hl_tap      tap  = { .context = &both, .final = lose, .wants = HL_WANT_LOSSES };
    hl_feed     feed = { .tokens = tokens, .n_tokens = 2, .tap = &tap };
    (void)state;

    assert_ok(hl_session_open(&session, model, &(hl_session_options){ .wants = HL_WANT_LOSSES }));
    assert_fails(HL_BAD_ARGUMENT, "there are no targets", hl_session_feed(session, &feed));
    feed.targets = bad;
    assert_fails(HL_BAD_ARGUMENT, "target 1 of sequence 0 is 256, the model knows 0 to 255",
                 hl_session_feed(session, &feed));
    bad[1] = -2;
    assert_fails(HL_BAD_ARGUMENT, "is -2", hl_session_feed(session, &feed));
    hl_session_close(session);
    hl_model_close(model);
}

/* ------------------------------------------------------------------ rows compared */

typedef struct two_rows {
    float  logits[2][N_BATCH][N_TOKENS][D_VOCAB]; /* kept rows, then rows with heads disabled */
    double told[N_BATCH][N_TOKENS];
    int    at;
} two_rows;

static hl_status see_rows(void *context, const hl_final_rows *rows)
{
    two_rows *both = context;

    for (int64_t row = 0; row < rows->n_rows; row++) {
        memcpy(both->logits[both->at][rows->sequence][rows->start + row],
               rows->logits + row * D_VOCAB, D_VOCAB * sizeof(float));
        both->told[rows->sequence][rows->start + row] = rows->divergence[row];
    }
    return HL_OK;
}

static void check_told(const two_rows *both)
{
    double most = 0.0;

    for (int k = 0; k < N_BATCH * N_TOKENS; k++) {
        int    b = k / N_TOKENS, i = k % N_TOKENS;
        double wanted = divergence_of(both->logits[0][b][i], both->logits[1][b][i], D_VOCAB);

        if (fabs(both->told[b][i] - wanted) > 1e-6 * (1.0 + wanted))
            fail_msg("row %d of %d: %g, by the definition %g", i, b, both->told[b][i], wanted);
        most = fmax(most, wanted);
    }
    assert_true(most > 1e-3); /* disabling heads must have an effect */
}

static void rows_are_compared_with_those_kept(void **state)
{
    static two_rows   both;
    const char *const names[] = { "cpu", "host" };
    hl_model         *model   = open_model(LLAMA);
    uint32_t          wants   = HL_WANT_LOGITS | HL_WANT_DIVERGENCE;
    hl_tap            tap     = { .context = &both, .final = see_rows, .wants = wants };
    float             gates[64 * 64];
    int64_t           tokens[N_BATCH * N_TOKENS];
    (void)state;

    for (int i = 0; i < 64 * 64; i++)
        gates[i] = (float)(i % 3 != 0);
    for (int i = 0; i < N_BATCH * N_TOKENS; i++)
        tokens[i] = token_at(i / N_TOKENS, i % N_TOKENS);
    for (int i = 0; i < 2; i++) {
        hl_session        *session = NULL;
        hl_session_options options = {
            .n_ctx = 32, .n_batch = N_BATCH, .n_chunk = 7, .wants = wants, .device = names[i]
        };
        hl_feed feed = { .tokens = tokens, .n_tokens = N_TOKENS, .tap = &tap };

        assert_ok(hl_session_open(&session, model, &options));
        both.at           = 0;
        feed.keeps_logits = true;
        assert_ok(hl_session_feed(session, &feed));
        for (int k = 0; k < N_BATCH * N_TOKENS; k++)
            assert_true(both.told[k / N_TOKENS][k % N_TOKENS] == 0.0);
        for (int k = 0; k < N_BATCH; k++)
            assert_ok(hl_session_rewind(session, k, 0));
        feed.keeps_logits = false;
        assert_ok(hl_session_feed(session, &feed)); /* the same tokens again: exactly 0 */
        for (int k = 0; k < N_BATCH * N_TOKENS; k++)
            assert_true(both.told[k / N_TOKENS][k % N_TOKENS] == 0.0);
        for (int k = 0; k < N_BATCH; k++)
            assert_ok(hl_session_rewind(session, k, 0));
        both.at    = 1;
        feed.gates = gates;
        assert_ok(hl_session_feed(session, &feed));
        check_told(&both);
        hl_session_close(session);
    }
    hl_model_close(model);
}

/* Rows can be compared only if some were kept. */
static void what_is_not_kept_is_refused(void **state)
{
    static two_rows both;
    hl_model       *model     = open_model(LLAMA);
    hl_session     *session   = NULL;
    int64_t         tokens[4] = { 3, 4, 5, 6 };
    uint32_t        wants     = HL_WANT_LOGITS | HL_WANT_DIVERGENCE;
    hl_tap          tap       = { .context = &both, .final = see_rows, .wants = wants };
    hl_feed         feed      = { .tokens = tokens, .n_tokens = 4, .tap = &tap };
    (void)state;

    assert_ok(hl_session_open(&session, model,
                              &(hl_session_options){ .n_ctx = 8, .wants = wants, .n_kept = 3 }));
    assert_fails(HL_BAD_ARGUMENT, "no logits are kept for positions 0 to 3 of sequence 0",
                 hl_session_feed(session, &feed));
    feed.keeps_logits = true;
    assert_fails(HL_LIMIT, "4 rows of sequence 0 to keep, the session has room for 3",
                 hl_session_feed(session, &feed));
    feed.n_tokens = 3;
    assert_ok(hl_session_feed(session, &feed));
    feed.keeps_logits = false;
    assert_fails(HL_BAD_ARGUMENT, "no logits are kept for positions 3 to 5",
                 hl_session_feed(session, &feed));
    assert_ok(hl_session_rewind(session, 0, 1));
    feed.n_tokens = 2;
    assert_ok(hl_session_feed(session, &feed));
    feed.keeps_logits = true; /* positions 3 and 4, which replace 0 to 2 */
    assert_ok(hl_session_feed(session, &feed));
    assert_ok(hl_session_rewind(session, 0, 2));
    feed.keeps_logits = false;
    assert_fails(HL_BAD_ARGUMENT, "positions 2 to 3", hl_session_feed(session, &feed));
    feed.keeps_logits = true;
    feed.kept_by      = session;
    assert_fails(HL_BAD_ARGUMENT, "are kept, and compared", hl_session_feed(session, &feed));
    tap.wants = HL_WANT_LOGITS;
    assert_fails(HL_BAD_ARGUMENT, "logits are kept where the tap wants divergence",
                 hl_session_feed(session, &feed));
    hl_session_close(session);
    hl_model_close(model);
}

/* Fails at the second chunk: rows of the first chunk are kept, the others are not. */
static hl_status dislike(void *context, const hl_final_rows *rows)
{
    (void)context;
    return rows->start >= 2 ? hl_fail(HL_IO, "disliked") : HL_OK;
}

static void what_failed_is_not_kept(void **state)
{
    static two_rows both;
    hl_model       *model     = open_model(LLAMA);
    hl_session     *session   = NULL;
    int64_t         tokens[4] = { 3, 4, 5, 6 };
    uint32_t        wants     = HL_WANT_LOGITS | HL_WANT_DIVERGENCE;
    hl_tap          tap       = { .context = &both, .final = dislike, .wants = wants };
    hl_feed         feed = { .tokens = tokens, .n_tokens = 4, .tap = &tap, .keeps_logits = true };
    (void)state;

    assert_ok(hl_session_open(&session, model,
                              &(hl_session_options){ .n_ctx = 8, .n_chunk = 2, .wants = wants }));
    assert_fails(HL_IO, "disliked", hl_session_feed(session, &feed));
    assert_ok(hl_session_rewind(session, 0, 0));
    tap.final         = see_rows;
    feed.keeps_logits = false;
    assert_fails(HL_BAD_ARGUMENT, "positions 0 to 3", hl_session_feed(session, &feed));
    feed.n_tokens = 2;
    assert_ok(hl_session_feed(session, &feed));
    hl_session_close(session);
    hl_model_close(model);
}

/* Models with different vocabularies cannot be compared. */
static void other_vocabularies_are_refused(void **state)
{
    hl_model          *model   = open_model(LLAMA);
    hl_model          *wide    = open_model("models/demo");
    hl_session        *session = NULL, *other = NULL;
    int64_t            token   = 3;
    hl_session_options options = { .n_ctx = 4, .wants = HL_WANT_DIVERGENCE };
    hl_tap             tap     = { .final = dislike, .wants = HL_WANT_DIVERGENCE };
    hl_feed feed = { .tokens = &token, .n_tokens = 1, .tap = &tap, .keeps_logits = true };
    (void)state;

    assert_ok(hl_session_open(&session, model, &options));
    assert_ok(hl_session_open(&other, wide, &options));
    assert_ok(hl_session_feed(other, &feed));
    feed.keeps_logits = false;
    feed.kept_by      = other;
    assert_fails(HL_BAD_ARGUMENT, "rows of 256 logits compared with rows of",
                 hl_session_feed(session, &feed));
    hl_session_close(session);
    hl_session_close(other);
    hl_model_close(model);
    hl_model_close(wide);
}

/* Two sessions on one device: rows of one are compared with kept rows of the other. */
static void another_session_keeps_rows(void **state)
{
    static two_rows   both;
    const char *const names[]  = { "cpu", "host" };
    hl_model         *model    = open_model(LLAMA);
    uint32_t          wants    = HL_WANT_LOGITS | HL_WANT_DIVERGENCE;
    hl_tap            tap      = { .context = &both, .final = see_rows, .wants = wants };
    hl_session       *kept[2]  = { NULL, NULL };
    hl_session       *other[2] = { NULL, NULL };
    int64_t           tokens[N_TOKENS];
    (void)state;

    for (int i = 0; i < N_TOKENS; i++)
        tokens[i] = token_at(0, i);
    for (int i = 0; i < 2; i++) {
        hl_session_options options = { .n_ctx = 32, .wants = wants, .device = names[i] };
        hl_feed            feed    = { .tokens = tokens, .n_tokens = N_TOKENS, .tap = &tap };

        assert_ok(hl_session_open(&kept[i], model, &options));
        options.n_kept = -1;
        assert_ok(hl_session_open(&other[i], model, &options));
        feed.keeps_logits = true;
        assert_ok(hl_session_feed(kept[i], &feed));
        assert_fails(HL_LIMIT, "has room for 0", hl_session_feed(other[i], &feed));
        feed.keeps_logits = false;
        feed.kept_by      = kept[i];
        assert_ok(hl_session_feed(other[i], &feed));
        for (int k = 0; k < N_TOKENS; k++)
            assert_true(both.told[0][k] == 0.0);
        assert_ok(hl_session_rewind(other[i], 0, 0));
        feed.kept_by = kept[0];
        if (i == 1)
            assert_fails(HL_BAD_ARGUMENT, "another device", hl_session_feed(other[i], &feed));
    }
    for (int i = 0; i < 2; i++) {
        hl_session_close(kept[i]);
        hl_session_close(other[i]);
    }
    hl_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_those_of_logits),
        cmocka_unit_test(targets_are_checked),
        cmocka_unit_test(rows_are_compared_with_those_kept),
        cmocka_unit_test(what_is_not_kept_is_refused),
        cmocka_unit_test(what_failed_is_not_kept),
        cmocka_unit_test(other_vocabularies_are_refused),
        cmocka_unit_test(another_session_keeps_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
