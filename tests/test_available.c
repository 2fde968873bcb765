/* test_available.c - free memory in made-up systems, and sessions that do not fit. */
#include "model_support.h"

#include <sys/stat.h>

#include "base/machine.h"

#define MIB ((size_t)1 << 20)

static char root[64];

/* Writes root/PATH and makes its folders. */
static void put(const char *path, const char *text)
{
    char name[512];

    snprintf(name, sizeof name, "%s/%s", root, path);
    for (char *slash = strchr(name + strlen(root) + 1, '/'); slash != NULL;
         slash       = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(name, 0777);
        *slash = '/';
    }
    write_file(name, text, strlen(text));
}

static void remove_below(const char *folder)
{
    char path[1024];
    DIR *directory = opendir(folder);

    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (unlink(path) != 0)
            remove_below(path);
    }
    closedir(directory);
    rmdir(folder);
}

static int set_up(void **state)
{
    (void)state;
    strcpy(root, new_folder());
    put("proc/meminfo",
        "MemTotal:       65536000 kB\nMemFree: 1 kB\nMemAvailable:   20480000 kB\n");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    remove_below(root);
    hl_memory_limit(0);
    return 0;
}

static void the_machine_alone(void **state)
{
    (void)state;
    assert_int_equal(hl_available_below(root), 20480000 * (size_t)1024);
    put("proc/self/cgroup", "0::/a/b\n");
    put("sys/fs/cgroup/a/b/memory.max", "max\n");
    put("sys/fs/cgroup/a/b/memory.current", "1000\n");
    assert_int_equal(hl_available_below(root), 20480000 * (size_t)1024);
}

static void a_group_and_what_is_above_it(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/a/b\n");
    put("sys/fs/cgroup/a/b/memory.max", "1000000000\n");
    put("sys/fs/cgroup/a/b/memory.current", "600000000\n");
    assert_int_equal(hl_available_below(root), 400000000);
    /* Pages of files can be released. */
    put("sys/fs/cgroup/a/b/memory.stat", "anon 5\nactive_file 100000000\ninactive_file 1\n");
    assert_int_equal(hl_available_below(root), 500000001);
    put("sys/fs/cgroup/a/memory.max", "700000000\n");
    put("sys/fs/cgroup/a/memory.current", "600000000\n");
    assert_int_equal(hl_available_below(root), 100000000);
    put("sys/fs/cgroup/a/memory.current", "700000001\n"); /* above the limit: 0, which differs from
                                                           * unknown */
    assert_int_equal(hl_available_below(root), 1);
}

static void groups_of_version_1(void **state)
{
    (void)state;
    put("proc/self/cgroup", "4:cpu,cpuacct:/x\n3:memory:/x\n");
    put("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "3000000\n");
    put("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "2000000\n");
    put("sys/fs/cgroup/memory/x/memory.stat", "total_inactive_file 500000\n");
    assert_int_equal(hl_available_below(root), 1500000);
}

static void cores_that_a_quota_pays_for(void **state)
{
    (void)state;
    assert_int_equal(hl_available_cores_below(root), 0);
    put("proc/self/cgroup", "0::/a/b\n");
    put("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    assert_int_equal(hl_available_cores_below(root), 0);
    put("sys/fs/cgroup/a/b/cpu.max", "250000 100000\n");
    assert_int_equal(hl_available_cores_below(root), 3);
    put("sys/fs/cgroup/a/cpu.max", "50000 100000\n"); /* the parent group leaves less */
    assert_int_equal(hl_available_cores_below(root), 1);
    put("proc/self/cgroup", "4:cpuset:/y\n3:cpuacct,cpu:/x\n");
    put("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
    assert_int_equal(hl_available_cores_below(root), 0);
    put("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "400000\n");
    assert_int_equal(hl_available_cores_below(root), 4);
}

static void nothing_known_is_0(void **state)
{
    (void)state;
    assert_int_equal(hl_available_below("/nowhere"), 0);
    assert_true(hl_memory_available() > MIB); /* on this machine */
}

static void sessions_beyond_the_limit_are_refused(void **state)
{
    hl_model          *model = NULL;
    hl_session        *first = NULL, *second = NULL;
    hl_session_options options = { .n_ctx = 64 };
    hl_session_memory  memory;
    size_t             weights = 0;
    hl_tensor_info     tensor;
    (void)state;

    assert_ok(hl_model_open(&model, "tests/data/families/llama3"));
    assert_ok(hl_session_measure(&memory, model, &options));
    for (int64_t i = 0; i < hl_model_get_info(model)->n_tensors; i++) {
        assert_ok(hl_model_get_tensor(&tensor, model, i));
        weights += tensor.n_bytes;
    }
    size_t whole = hl_memory_held() + weights + memory.cache_bytes + memory.work_bytes;

    hl_memory_limit(whole - 1);
    assert_fails(HL_LIMIT, "of memory for 64 tokens", hl_session_open(&first, model, &options));
    assert_null(first);
    hl_memory_limit(whole);
    assert_ok(hl_session_open(&first, model, &options));
    assert_fails(HL_LIMIT, "held already", hl_session_open(&second, model, &options));
    hl_session_close(first);
    assert_ok(hl_session_open(&second, model, &options)); /* there is room again */
    hl_session_close(second);
    hl_memory_limit(0);
    hl_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_machine_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_group_and_what_is_above_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(groups_of_version_1, set_up, tear_down),
        cmocka_unit_test_setup_teardown(cores_that_a_quota_pays_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nothing_known_is_0, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sessions_beyond_the_limit_are_refused, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("available", tests, NULL, NULL);
}
