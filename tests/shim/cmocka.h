/* cmocka.h (shim) - the part of cmocka that the kernel tests use, in one header.
 *
 * It is only for cross compilers: Debian has no cmocka for static programs of another architecture.
 * A failing check prints its place and jumps back to the runner, which reports the test in TAP and
 * continues with the next, as cmocka does. */
#ifndef HL_TESTS_SHIM_CMOCKA_H
#define HL_TESTS_SHIM_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*test)(void **state);
};

enum { SHIM_RUNNING, SHIM_FAILED, SHIM_SKIPPED };

/* One per program, whichever of its files include this header. */
__attribute__((weak)) jmp_buf shim_runner;

__attribute__((format(printf, 3, 4), noreturn)) static inline void
shim_fail(const char *file, int line, const char *format, ...)
{
    va_list arguments;

    printf("# %s:%d: ", file, line);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    longjmp(shim_runner, SHIM_FAILED);
}

#define cmocka_unit_test(function)                                                                 \
    {                                                                                              \
#function, function                                                                        \
    }

#define fail_msg(...) shim_fail(__FILE__, __LINE__, __VA_ARGS__)
#define fail()        shim_fail(__FILE__, __LINE__, "failed")
#define skip()        longjmp(shim_runner, SHIM_SKIPPED)

#define shim_check(condition, ...)                                                                 \
    do {                                                                                           \
        if (!(condition))                                                                          \
            shim_fail(__FILE__, __LINE__, __VA_ARGS__);                                            \
    } while (0)

#define assert_true(c)     shim_check((c), "%s is false", #c)
#define assert_false(c)    shim_check(!(c), "%s is true", #c)
#define assert_non_null(p) shim_check((p) != NULL, "%s is NULL", #p)
#define assert_null(p)     shim_check((p) == NULL, "%s is not NULL", #p)
#define assert_int_equal(a, b)                                                                     \
    shim_check((intmax_t)(a) == (intmax_t)(b), "%s = %jd, wanted %jd", #a, (intmax_t)(a),          \
               (intmax_t)(b))
#define assert_int_not_equal(a, b)                                                                 \
    shim_check((intmax_t)(a) != (intmax_t)(b), "%s = %jd, wanted another", #a, (intmax_t)(a))
#define assert_string_equal(a, b)                                                                  \
    shim_check(strcmp((a), (b)) == 0, "%s = \"%s\", wanted \"%s\"", #a, (a), (b))
#define assert_memory_equal(a, b, n) shim_check(memcmp((a), (b), (n)) == 0, "%s differs", #a)

__attribute__((format(printf, 1, 2))) static inline void print_message(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("# ");
    vprintf(format, arguments);
    va_end(arguments);
}

typedef int (*shim_fixture)(void **state);

static inline int shim_run_group(const struct CMUnitTest *tests, size_t n_tests, shim_fixture setup,
                                 shim_fixture teardown)
{
    static size_t i; /* static: they must survive the jump */
    static int    n_failed;
    static void  *state;

    printf("1..%zu\n", n_tests);
    if (setup != NULL && setup(&state) != 0)
        return 1;
    for (i = 0; i < n_tests; i++) {
        int outcome = setjmp(shim_runner);
        if (outcome == SHIM_RUNNING)
            tests[i].test(&state);
        n_failed += outcome == SHIM_FAILED;
        printf("%sok %zu - %s%s\n", outcome == SHIM_FAILED ? "not " : "", i + 1, tests[i].name,
               outcome == SHIM_SKIPPED ? " # SKIP" : "");
        fflush(stdout);
    }
    if (teardown != NULL)
        teardown(&state);
    return n_failed;
}

#define cmocka_run_group_tests_name(name, tests, setup, teardown)                                  \
    shim_run_group(tests, sizeof(tests) / sizeof((tests)[0]), setup, teardown)
#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    cmocka_run_group_tests_name("", tests, setup, teardown)

#endif
