/* test_indexer.c - sparse attention: how much of the full softmax's mass lies on the keys that an indexer
 * chose.  The first layer of a sparse model and of the same model without a limit read the same rows, so
 * the full model's probabilities of the chosen keys must add up to what the sparse one reports. */
#include "model_support.h"

#include "kernels/pattern.h"
#include "kernels/row_sums.h"
#include "model/session.h"
#include "profile_support.h"

enum { N = 41, HEADS = 4, CHOSEN = 12 };

/* The first layer's rows of one sequence. */
typedef struct first_layer {
    float  pattern[HEADS * N * N];
    double recall[HEADS * N]; /* NAN: not reported */
} first_layer;

static hl_status keep_first(void *context, const hl_layer_rows *rows)
{
    first_layer          *out  = context;
    const hl_pattern_row *full = rows->observed->full;

    if (rows->layer != 0)
        return HL_OK;
    for (int64_t i = 0; i < HEADS * N; i++) {
        memcpy(out->pattern + i * N, rows->pattern + i * rows->n_keys, N * sizeof(float));
        out->recall[i] =
            full != NULL ? exp(rows->observed->exact[i].lse - full[i].lse) : (double)NAN;
    }
    return HL_OK;
}

static void run(first_layer *out, const char *path)
{
    int64_t            tokens[N], positions[N];
    hl_session        *session = NULL;
    hl_model          *model   = open_model(path);
    hl_session_options options = {
        .n_ctx = N, .n_patterns = N, .wants = HL_WANT_PATTERN, .n_threads = 1
    };
    hl_tap  tap  = { .context             = out,
                     .layer               = keep_first,
                     .wants               = HL_WANT_PATTERN,
                     .pattern_positions   = positions,
                     .n_pattern_positions = N };
    hl_feed feed = { .tokens = tokens, .n_tokens = N, .tap = &tap };

    for (int64_t i = 0; i < N; i++) {
        tokens[i]    = (7 * i * i + 3 * i + 5) % 150;
        positions[i] = i;
    }
    assert_ok(hl_session_open(&session, model, &options));
    assert_ok(hl_session_feed(session, &feed));
    hl_session_close(session);
    hl_model_close(model);
}

/* Copies the checkpoint, with an indexer that chooses all keys. */
static void copy_without_limit(const char *folder, const char *from)
{
    static const char key[] = "\"index_topk\": ";
    size_t            n_bytes;
    char              path[600];

    snprintf(path, sizeof path, "%s/model.safetensors", from);
    char *bytes = read_file(path, &n_bytes);
    write_file(in_folder(folder, "model.safetensors"), bytes, n_bytes);
    free(bytes);
    snprintf(path, sizeof path, "%s/config.json", from);
    bytes    = read_file(path, &n_bytes);
    char *at = strstr(bytes, key);
    assert_non_null(at);
    at += strlen(key);
    assert_int_equal(atoi(at), CHOSEN);
    memcpy(at, "99", 2);
    write_file(in_folder(folder, "config.json"), bytes, n_bytes);
    free(bytes);
}

static void recall_is_the_mass_of_the_chosen_keys(void **state)
{
    const char        *folder = *state;
    char               sparse[512];
    static first_layer all, some;

    snprintf(sparse, sizeof sparse, "%s", in_shared("golden/families2/deepseek_v32_sparse"));
    if (!path_exists(sparse))
        skip();
    copy_without_limit(folder, sparse);
    run(&all, folder);
    run(&some, sparse);
    for (int64_t i = 0; i < HEADS * N; i++) {
        double mass     = 0.0;
        int    n_chosen = 0;

        assert_true(isnan(all.recall[i]));
        for (int64_t key = 0; key < N; key++) {
            bool is_chosen = some.pattern[i * N + key] > 0.0f;

            mass += is_chosen ? (double)all.pattern[i * N + key] : 0.0;
            n_chosen += is_chosen;
        }
        assert_true(n_chosen <= CHOSEN);
        assert_float_equal(some.recall[i], mass, 1e-5);
        if (i % N < CHOSEN)
            assert_float_equal(some.recall[i], 1.0, 1e-5);
    }
}

/* Only profiles of sparse models have the tables; files without them load, and parts add up. */
static void profiles_keep_recall(void **state)
{
    static made_sequence made;
    const char          *path = in_folder(*state, "a.profile");
    hl_profile *empty = new_made_profile(), *whole = new_made_profile(), *part = new_made_profile(),
               *read = NULL;

    make_sequence(&made, 1);
    add_made(whole, &made);
    hl_profile_recall_add(whole, 1, 0, 0.25);
    hl_profile_recall_add(part, 1, 0, 0.75);
    assert_ok(hl_profile_merge(whole, part));
    assert_float_equal(hl_profile_recall(whole, 1, 0).mean, 0.5, 1e-9);
    assert_int_equal(hl_profile_recall(whole, 0, 0).count, 0);
    assert_ok(hl_profile_write(whole, path));
    assert_ok(hl_profile_load(&read, path));
    assert_float_equal(hl_profile_recall(read, 1, 0).mean, 0.5, 1e-9);
    assert_int_equal(hl_profile_recall(read, 1, 0).count, 2);
    hl_profile_free(read);
    assert_ok(hl_profile_write(empty, path));
    assert_ok(hl_profile_load(&read, path));
    assert_int_equal(hl_profile_recall(read, 1, 0).count, 0);
    hl_profile_free(read);
    hl_profile_free(empty);
    hl_profile_free(whole);
    hl_profile_free(part);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(recall_is_the_mass_of_the_chosen_keys, open_folder,
                                        close_folder),
        cmocka_unit_test_setup_teardown(profiles_keep_recall, open_folder, close_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
