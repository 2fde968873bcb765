/* test_log.c - who receives log messages; never two at once. */
#include "support.h"

#include <pthread.h>

#include "base/status.h"

typedef struct heard {
    int          n_messages;
    hl_log_level level;
    char         text[64];
} heard;

static void listen(void *context, hl_log_level level, const char *message)
{
    heard *h = context;
    h->n_messages++;
    h->level = level;
    snprintf(h->text, sizeof h->text, "%s", message);
}

static void nobody_listens_by_default(void **state)
{
    (void)state;
    heard h = { 0 };
    hl_log(HL_LOG_WARNING, "lost");
    hl_log_set(listen, &h, HL_LOG_DEBUG);
    hl_log_set(NULL, NULL, HL_LOG_DEBUG);
    hl_log(HL_LOG_WARNING, "lost too");
    assert_int_equal(h.n_messages, 0);
}

static void levels_below_the_lowest_are_not_made(void **state)
{
    (void)state;
    heard h = { 0 };
    hl_log_set(listen, &h, HL_LOG_INFO);
    hl_log(HL_LOG_DEBUG, "unheard");
    assert_int_equal(h.n_messages, 0);
    hl_log(HL_LOG_INFO, "%d of %d", 1, 2);
    assert_int_equal(h.n_messages, 1);
    assert_int_equal(h.level, HL_LOG_INFO);
    assert_string_equal(h.text, "1 of 2");
    hl_log(HL_LOG_WARNING, "loud");
    assert_int_equal(h.n_messages, 2);
    assert_int_equal(h.level, HL_LOG_WARNING);
    hl_log_set(NULL, NULL, HL_LOG_DEBUG);
}

static void long_messages_are_cut(void **state)
{
    (void)state;
    heard h = { 0 };
    char  text[3000];
    memset(text, 'b', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    hl_log_set(listen, &h, HL_LOG_INFO);
    hl_log(HL_LOG_INFO, "%s", text);
    assert_int_equal(h.n_messages, 1);
    assert_int_equal(h.text[62], 'b');
    hl_log_set(NULL, NULL, HL_LOG_DEBUG);
}

#define N_THREADS  4
#define N_MESSAGES 2000

static void *shout(void *unused)
{
    (void)unused;
    for (int i = 0; i < N_MESSAGES; i++)
        hl_log(HL_LOG_INFO, "message %d", i);
    return NULL;
}

/* The listener counts without a lock: a lost count, or a report of the thread sanitizer, would show
 * that two calls overlapped. */
static void threads_take_turns(void **state)
{
    (void)state;
    heard     h = { 0 };
    pthread_t threads[N_THREADS];

    hl_log_set(listen, &h, HL_LOG_INFO);
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, shout, NULL), 0);
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    hl_log_set(NULL, NULL, HL_LOG_DEBUG);
    assert_int_equal(h.n_messages, N_THREADS * N_MESSAGES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_listens_by_default),
        cmocka_unit_test(levels_below_the_lowest_are_not_made),
        cmocka_unit_test(long_messages_are_cut),
        cmocka_unit_test(threads_take_turns),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
