/* test_losses.c - the losses that a session tells, on the CPU and on the device "host", against those
 * of the logits that it tells; which targets it refuses. */
#include "model_support.h"

#include <math.h>

#include "model/logits.h"

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
        int64_t top      = -1;

        if (rows->losses != NULL) {
            assert_true(isnan(rows->losses[row]) == (target < 0));
            assert_in_range(rows->tops[row], 0, D_VOCAB - 1);
            both->told[rows->sequence][position] = target >= 0 ? rows->losses[row] : 0.0;
            both->n_told++;
        } else if (target >= 0) {
            both->from_logits[rows->sequence][position] =
                hl_logits_loss(&top, rows->logits + row * rows->d_vocab, rows->d_vocab, target);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_those_of_logits),
        cmocka_unit_test(targets_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
