/* test_cpu.c - the results of machine.c, compared with what Linux reports about the processor. */
#include "support.h"

#include "base/machine.h"

/* Returns whether `flag` is in the first "flags" line of /proc/cpuinfo; -1 if there is no such
 * line. */
static int linux_says(const char *flag)
{
    char  line[16384];
    int   found = -1;
    FILE *file  = fopen("/proc/cpuinfo", "r");

    if (file == NULL)
        return -1;
    while (found < 0 && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "flags", 5) != 0)
            continue;
        found = 0;
        for (char *word = strtok(line, " \t\n"); word != NULL; word = strtok(NULL, " \t\n"))
            found |= strcmp(word, flag) == 0;
    }
    fclose(file);
    return found;
}

static void agrees_with_the_system(void **state)
{
    (void)state;
    const hl_cpu *cpu = hl_cpu_features();
#if defined(__x86_64__)
    if (linux_says("fpu") < 0)
        skip();
    bool avx2   = linux_says("avx2") && linux_says("fma") && linux_says("f16c");
    bool avx512 = avx2 && linux_says("avx512f") && linux_says("avx512bw") &&
                  linux_says("avx512dq") && linux_says("avx512vl");
    assert_int_equal(cpu->avx2, avx2);
    assert_int_equal(cpu->avx512, avx512);
    assert_int_equal(cpu->vnni, avx512 && linux_says("avx512_vnni"));
    assert_false(cpu->neon);
#elif defined(__aarch64__)
    assert_true(cpu->neon);
    assert_false(cpu->avx2 || cpu->avx512);
#else
    assert_false(cpu->neon || cpu->avx2 || cpu->avx512);
#endif
}

static void is_looked_up_once(void **state)
{
    (void)state;
    assert_ptr_equal(hl_cpu_features(), hl_cpu_features());
}

static void name_is_trimmed(void **state)
{
    (void)state;
    const char *name   = hl_cpu_features()->name;
    size_t      length = strnlen(name, sizeof hl_cpu_features()->name);
    assert_true(length < sizeof hl_cpu_features()->name);
    if (length == 0)
        skip();
    assert_int_not_equal(name[0], ' ');
    assert_int_not_equal(name[length - 1], ' ');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_system),
        cmocka_unit_test(is_looked_up_once),
        cmocka_unit_test(name_is_trimmed),
    };
    return cmocka_run_group_tests_name("cpu", tests, NULL, NULL);
}
