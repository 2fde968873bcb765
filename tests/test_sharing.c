/* test_sharing.c - objects that the headers allow threads to share: a model, a tokenizer, a corpus
 * and a profile, all at once; and what each thread has for itself.  Most useful under the thread
 * sanitizer. */
#include "support.h"

#include <math.h>
#include <pthread.h>

enum { N_SHARERS = 3, N_QUANTITIES = 3 };

static const char text[] =
    "Alice was beginning to get very tired of sitting by her sister on the bank, and of having "
    "nothing "
    "to do: once or twice she had peeped into the book her sister was reading, but it had no "
    "pictures or "
    "conversations in it, and what is the use of a book, thought Alice, without pictures?";

typedef struct shared {
    hl_model     *model;
    hl_tokenizer *tokenizer;
    hl_corpus    *corpus;
    hl_profile   *profile; /* measured from the corpus */
} shared;

/* Results of one thread, which the main thread checks. */
typedef struct sharer {
    const shared *all;
    hl_status     status;
    bool          same_profile;
    double        nll;
    int64_t       top;          /* the most likely token after the text */
    char          message[256]; /* message of its own last failing call */
    pthread_t     thread;
} sharer;

static bool same_moments(const hl_profile *a, const hl_profile *b)
{
    for (int64_t layer = 0; layer < hl_profile_n_layers(a); layer++) {
        for (int64_t head = 0; head < hl_profile_heads_of(a, layer); head++) {
            for (int quantity = 0; quantity < N_QUANTITIES; quantity++) {
                hl_moments one = hl_profile_moments(a, layer, head, (hl_quantity)quantity);
                hl_moments two = hl_profile_moments(b, layer, head, (hl_quantity)quantity);
                if (one.count != two.count || one.mean != two.mean)
                    return false;
            }
        }
    }
    return true;
}

static hl_status measure_all(hl_profile **out, const shared *all)
{
    return hl_measure(out, all->model, all->tokenizer, all->corpus,
                      &(hl_measure_options){ .windows = { .n_ctx = 32 }, .n_threads = 2 });
}

static hl_status measure_once_more(sharer *own)
{
    hl_profile *profile = NULL;
    hl_status   status  = measure_all(&profile, own->all);

    own->same_profile = status == HL_OK && same_moments(profile, own->all->profile);
    hl_profile_free(profile);
    return status;
}

static hl_status read_text(sharer *own)
{
    hl_encoding   *encoding   = NULL;
    hl_session    *session    = NULL;
    hl_perplexity *perplexity = NULL;
    hl_nll         nll        = { 0 };
    hl_status      status =
        hl_tokenizer_encode(&encoding, own->all->tokenizer, text, sizeof text - 1, NULL);

    if (status == HL_OK)
        status = hl_session_open(
            &session, own->all->model,
            &(hl_session_options){ .n_ctx = 128, .wants = HL_WANT_LAST_TOP, .n_threads = 2 });
    if (status == HL_OK)
        status =
            hl_session_feed(session, &(hl_feed){ .tokens   = encoding->ids,
                                                 .n_tokens = (int64_t)encoding->n_tokens,
                                                 .tap = &(hl_tap){ .wants = HL_WANT_LAST_TOP } });
    if (status == HL_OK) {
        own->top = hl_session_top(session, 0);
        status   = hl_perplexity_open(&perplexity, own->all->model,
                                      &(hl_perplexity_options){ .n_ctx = 32, .n_threads = 2 });
    }
    if (status == HL_OK)
        status = hl_perplexity_add(
            &nll, perplexity,
            &(hl_scored_text){ .tokens = encoding->ids, .n_tokens = (int64_t)encoding->n_tokens });
    own->nll = nll.sum;
    hl_perplexity_close(perplexity);
    hl_session_close(session);
    hl_encoding_free(encoding);
    return status;
}

static void *share(void *context)
{
    sharer   *own   = context;
    hl_model *model = NULL;
    char      path[64];

    own->status = read_text(own);
    if (own->status == HL_OK)
        own->status = measure_once_more(own);
    snprintf(path, sizeof path, "no-such-model-%p", context);
    if (hl_model_open(&model, path) == HL_OK)
        own->status = HL_INTERNAL;
    snprintf(own->message, sizeof own->message, "%s", hl_error_message());
    return NULL;
}

static void threads_share_what_is_const(void **state)
{
    (void)state;
    shared      all              = { 0 };
    sharer      alone            = { .all = &all };
    sharer      found[N_SHARERS] = { 0 };
    const char *types[]          = { "name=Alice" };
    char        path[64];

    assert_ok(hl_model_open(&all.model, "models/demo"));
    assert_ok(hl_tokenizer_open(&all.tokenizer, "models/demo"));
    assert_ok(hl_corpus_open_bytes(&all.corpus, all.model, all.tokenizer, text, sizeof text - 1,
                                   "alice.txt",
                                   &(hl_corpus_options){ .types = types, .n_types = 1 }));
    assert_ok(measure_all(&all.profile, &all));
    assert_ok(read_text(&alone));
    assert_true(isfinite(alone.nll) && alone.nll > 0);

    assert_int_not_equal(hl_model_open(&(hl_model *){ NULL }, "mine"), HL_OK);
    for (int i = 0; i < N_SHARERS; i++) {
        found[i].all = &all;
        assert_int_equal(pthread_create(&found[i].thread, NULL, share, &found[i]), 0);
    }
    /* Settings of the process may be changed at any time. */
    hl_memory_limit((size_t)1 << 40);
    hl_memory_limit(0);
    hl_log_set(NULL, NULL, HL_LOG_DEBUG);
    for (int i = 0; i < N_SHARERS; i++)
        assert_int_equal(pthread_join(found[i].thread, NULL), 0);

    for (int i = 0; i < N_SHARERS; i++) {
        assert_int_equal(found[i].status, HL_OK);
        assert_true(found[i].same_profile);
        assert_true(found[i].nll == alone.nll);
        assert_int_equal(found[i].top, alone.top);
        snprintf(path, sizeof path, "no-such-model-%p", (void *)&found[i]);
        assert_non_null(strstr(found[i].message, path));
    }
    assert_non_null(strstr(hl_error_message(), "mine"));

    hl_profile_free(all.profile);
    hl_corpus_close(all.corpus);
    hl_tokenizer_close(all.tokenizer);
    hl_model_close(all.model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_share_what_is_const),
    };
    return cmocka_run_group_tests_name("sharing", tests, NULL, NULL);
}
