/* test_session_sequences.c - feeds of some sequences only: each has the same results as if it were
 * alone, with its own length and gates, and other sequences are unchanged. */
#include "model_support.h"

#include <math.h>
#include <string.h>

enum { N_BATCH = 5, N_CTX = 64, N_PROMPT = 21, N_STEPS = 4, MAX_CELLS = 64 };

static const char *const models[] = {
    "tests/data/families/llama3",    "models/demo",
    "tests/data/hybrids/qwen3_5_vl", "tests/data/hybrids/falcon_h1",
    "tests/data/hybrids/jamba",      "tests/data/hybrids/lfm2",
};

/* All results of a feed for its last row, for up to N_BATCH sequences. */
typedef struct seen {
    int64_t n_batch;
    int64_t sequences[N_BATCH];
    int64_t n_cells;
    float   entropy[N_BATCH][MAX_CELLS];
    float   pattern[N_BATCH][MAX_CELLS][N_CTX];
} seen;

static hl_status keep_rows(void *context, const hl_layer_rows *rows)
{
    seen *s = context;

    s->n_batch = rows->n_batch;
    if (rows->layer == 0)
        s->n_cells = 0;
    for (int64_t b = 0; b < rows->n_batch; b++) {
        s->sequences[b] = rows->sequences[b];
        for (int64_t head = 0; head < rows->n_heads; head++) {
            int64_t at = (b * rows->n_heads + head) * rows->n_rows + rows->lengths[b] - 1;
            s->entropy[b][s->n_cells + head] = rows->rows->entropy[at];
            if (rows->n_patterns > 0)
                memcpy(s->pattern[b][s->n_cells + head],
                       rows->pattern + (b * rows->n_heads + head) * rows->n_patterns * rows->n_keys,
                       N_CTX * sizeof(float));
        }
    }
    s->n_cells += rows->n_heads;
    return HL_OK;
}

static hl_session *open_session(const hl_model *model, int64_t n_batch, int n_threads)
{
    hl_session *session = NULL;

    assert_ok(
        hl_session_open(&session, model,
                        &(hl_session_options){ .n_batch    = n_batch,
                                               .n_ctx      = N_CTX,
                                               .n_patterns = 1,
                                               .n_rows     = N_PROMPT,
                                               .n_threads  = n_threads,
                                               .wants = HL_WANT_LAST_LOGITS | HL_WANT_PATTERN }));
    return session;
}

static int64_t token_of(int64_t sequence, int64_t position)
{
    return (sequence * 37 + position * 11 + 5) % 150;
}

/* Feeds n tokens of each of the sequences, from its current length on. */
static void feed(seen *s, hl_session *session, const int64_t *sequences, const int64_t *texts,
                 int64_t n_sequences, int64_t n, const float *const *gates)
{
    int64_t tokens[N_BATCH * N_PROMPT], positions[N_BATCH];
    hl_tap  tap = { .context             = s,
                    .layer               = keep_rows,
                    .wants               = HL_WANT_PATTERN,
                    .pattern_positions   = positions,
                    .n_pattern_positions = 1,
                    .patterns_differ     = true };

    for (int64_t b = 0; b < n_sequences; b++) {
        int64_t start = hl_session_length(session, sequences[b]);
        for (int64_t i = 0; i < n; i++)
            tokens[b * n + i] = token_of(texts[b], start + i);
        positions[b] = start + n - 1;
    }
    assert_ok(hl_session_feed(session, &(hl_feed){ .tokens      = tokens,
                                                   .n_tokens    = n,
                                                   .tap         = &tap,
                                                   .sequences   = sequences,
                                                   .n_sequences = n_sequences,
                                                   .gates_each  = gates }));
}

/* Checks that number b of `all` equals `alone`, to the byte. */
static void assert_same(const seen *all, int64_t b, const seen *alone, const float *logits,
                        const float *logits_alone, int64_t d_vocab)
{
    assert_int_equal(all->n_cells, alone->n_cells);
    assert_memory_equal(all->entropy[b], alone->entropy[0], sizeof(float) * (size_t)all->n_cells);
    assert_memory_equal(all->pattern[b], alone->pattern[0],
                        sizeof *all->pattern[b] * (size_t)all->n_cells);
    assert_memory_equal(logits, logits_alone, sizeof(float) * (size_t)d_vocab);
}

/* Sequences 0, 1, 3 and 4 begin with prompts of 3, 8, 13 and 18 tokens; 3 has a disabled head. Then
 * they take steps together. */
static void run_together(const char *path, int n_threads)
{
    hl_model            *model   = open_model(path);
    const hl_model_info *info    = hl_model_get_info(model);
    hl_session          *all     = open_session(model, N_BATCH, n_threads);
    hl_session          *one     = open_session(model, 1, 1);
    static const int64_t which[] = { 0, 1, 3, 4 };
    float                off[MAX_CELLS];
    seen                *together = calloc(1, sizeof *together), *alone = calloc(1, sizeof *alone);
    const float         *gates[4] = { NULL, NULL, off, NULL };

    for (int i = 0; i < MAX_CELLS; i++)
        off[i] = i == 1 ? 0.0f : 1.0f;
    for (int i = 0; i < 4; i++)
        feed(together, all, &which[i], &which[i], 1, 3 + 5 * i, &gates[i]);
    for (int step = 0; step < N_STEPS; step++) {
        feed(together, all, which, which, 4, 1, gates);
        assert_int_equal(together->n_batch, 4);
        assert_memory_equal(together->sequences, which, sizeof which);
        for (int i = 0; i < 4; i++) {
            assert_ok(hl_session_rewind(one, 0, 0));
            feed(alone, one, &(int64_t){ 0 }, &which[i], 1, 3 + 5 * i, &gates[i]);
            for (int k = 0; k <= step; k++)
                feed(alone, one, &(int64_t){ 0 }, &which[i], 1, 1, &gates[i]);
            assert_same(together, i, alone, hl_session_logits(all, which[i]),
                        hl_session_logits(one, 0), info->d_vocab);
        }
    }
    assert_int_equal(hl_session_length(all, 2), 0);
    assert_int_equal(hl_session_length(all, 4), 18 + N_STEPS);
    free(alone);
    free(together);
    hl_session_close(one);
    hl_session_close(all);
    hl_model_close(model);
}

static void each_is_as_if_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        run_together(models[i], 1);
        run_together(models[i], 3);
    }
}

/* A plain feed of the same tokens agrees, and gates have an effect. */
static void gates_are_of_one_sequence(void **state)
{
    hl_model   *model = open_model(models[0]);
    hl_session *all   = open_session(model, N_BATCH, 1);
    hl_session *plain = open_session(model, 1, 1);
    float       off[MAX_CELLS], on[256];
    int64_t     tokens[3] = { token_of(7, 0), token_of(7, 1), token_of(7, 2) };
    seen        s;
    (void)state;

    for (int i = 0; i < MAX_CELLS; i++)
        off[i] = i < 3 ? 0.0f : 1.0f;
    feed(&s, all, (int64_t[]){ 1, 2 }, (int64_t[]){ 7, 7 }, 2, 3, (const float *[]){ NULL, off });
    memcpy(on, hl_session_logits(all, 1), sizeof on);
    assert_memory_not_equal(on, hl_session_logits(all, 2), sizeof on);
    for (int gated = 0; gated < 2; gated++) {
        assert_ok(hl_session_rewind(plain, 0, 0));
        assert_ok(hl_session_feed(
            plain, &(hl_feed){ .tokens = tokens, .n_tokens = 3, .gates = gated ? off : NULL }));
        assert_memory_equal(hl_session_logits(plain, 0), hl_session_logits(all, 1 + gated),
                            sizeof on);
    }
    hl_session_close(plain);
    hl_session_close(all);
    hl_model_close(model);
}

static void impossible_choices_are_refused(void **state)
{
    hl_model   *model     = open_model(models[0]);
    hl_session *session   = open_session(model, N_BATCH, 1);
    int64_t     tokens[2] = { 1, 2 }, lengths[2] = { 1, 1 }, many[N_BATCH * N_PROMPT] = { 0 };
    int64_t     falling[2] = { 2, 1 }, twice[2] = { 1, 1 }, beyond[2] = { 1, N_BATCH };
    hl_feed     feed = { .tokens = tokens, .n_tokens = 1, .n_sequences = 2 };
    (void)state;

    feed.sequences = falling;
    assert_fails(HL_BAD_ARGUMENT, "sequence 1 follows sequence 2; they must rise and stay below 5",
                 hl_session_feed(session, &feed));
    feed.sequences = twice;
    assert_fails(HL_BAD_ARGUMENT, "sequence 1 follows sequence 1", hl_session_feed(session, &feed));
    feed.sequences = beyond;
    assert_fails(HL_BAD_ARGUMENT, "sequence 5 follows sequence 1; they must rise and stay below 5",
                 hl_session_feed(session, &feed));
    feed.sequences = (int64_t[]){ 0, 1 };
    feed.lengths   = lengths;
    assert_fails(HL_BAD_ARGUMENT, "lengths of their own", hl_session_feed(session, &feed));
    feed = (hl_feed){ .tokens = many, .n_tokens = N_PROMPT };
    assert_fails(HL_BAD_ARGUMENT, "21 rows of 5 sequences, the session was opened for 21 in all",
                 hl_session_feed(session, &feed));
    hl_session_close(session);
    hl_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_as_if_alone),
        cmocka_unit_test(gates_are_of_one_sequence),
        cmocka_unit_test(impossible_choices_are_refused),
    };
    return cmocka_run_group_tests_name("session_sequences", tests, NULL, NULL);
}
