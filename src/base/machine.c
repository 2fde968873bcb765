/* machine.c - asks the processor, the system and its control groups what is available. */
#include "base/machine.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* ------------------------------------------------------------------------------------------ time */

double hl_clock_seconds(void)
{
    struct timespec time = { 0 };

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* --------------------------------------------------------------------------------- the processor */

/* The processor is asked once, on first use.  On x86 a feature counts only if the system also saves
 * its registers on a task switch.  The compiler's __builtin_cpu_supports checks both (CPUID and
 * XCR0).  It has no portable name for F16C, so that one bit is read from CPUID; F16C uses the
 * registers of AVX2, which were checked.  On arm64 NEON always exists. */

static hl_cpu         features;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#if defined(__x86_64__)

static bool has_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

/* Reads the brand string: 48 bytes in three leaves, padded with spaces at either end. */
static void read_name(char name[64])
{
    unsigned words[12];
    char     text[sizeof words + 1] = { 0 };

    for (unsigned leaf = 0; leaf < 3; leaf++) {
        unsigned *word = &words[4 * leaf];
        if (__get_cpuid(0x80000002U + leaf, &word[0], &word[1], &word[2], &word[3]) == 0)
            return;
    }
    memcpy(text, words, sizeof words);

    const char *start  = text + strspn(text, " ");
    size_t      length = strlen(start);
    while (length > 0 && start[length - 1] == ' ')
        length--;
    memcpy(name, start, length);
    name[length] = '\0';
}

static void look_up(void)
{
    __builtin_cpu_init();
    features.avx2   = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    features.avx512 = features.avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
    features.vnni = features.avx512 && __builtin_cpu_supports("avx512vnni");
    features.bf16 = features.avx512 && __builtin_cpu_supports("avx512bf16");
    read_name(features.name);
}

#else

static void look_up(void)
{
#if defined(__aarch64__)
    features.neon = true;
#endif
}

#endif

const hl_cpu *hl_cpu_features(void)
{
    (void)pthread_once(&once, look_up);
    return &features;
}

/* ------------------------------------------------------------------------------ memory and cores */

/* From /proc/meminfo and the files of control groups:
 *
 *     /proc/meminfo        MemAvailable:   22072832 kB
 *     /proc/self/cgroup    0::/user.slice/x.service        version 2
 *                          4:memory:/x                     version 1
 *
 *     version 2  /sys/fs/cgroup/PATH/         memory.max             memory.current
 *     version 1  /sys/fs/cgroup/memory/PATH/  memory.limit_in_bytes  memory.usage_in_bytes
 *     both       memory.stat: how much of it is pages of files
 *
 *     version 2  /sys/fs/cgroup/PATH/      cpu.max: "150000 100000", quota and period in us, or "max"
 *     version 1  /sys/fs/cgroup/cpu/PATH/  cpu.cfs_quota_us (-1: no quota)  cpu.cfs_period_us
 *
 * A group's limit also holds for all groups below it, so the groups above are read as well, up to
 * the root.  Inside a container the root is the container's own group. */

#define MAX_PATH 4096

typedef struct group_files {
    const char *hierarchy; /* folder of this version's groups */
    const char *limit;
    const char *usage;         /* name of the file of memory in use, or of the CPU period; NULL:
                                * `limit` has both numbers */
    const char *file_pages[2]; /* names of these pages in memory.stat */
} group_files;

/* How much of a resource a group leaves; SIZE_MAX if it sets no limit. */
typedef size_t (*left_function)(const group_files *files, const char *folder);

/* The number in a line "NAME 123", or "NAME:   123 kB" in bytes; 0 if there is no such line. */
static size_t find_number(const char *path, const char *name)
{
    FILE  *file   = fopen(path, "re");
    size_t number = 0, length = strlen(name);
    char   line[256];

    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, name, length) != 0 || (line[length] != ' ' && line[length] != ':'))
            continue;
        number = strtoull(line + length + 1, NULL, 10) * (strstr(line, " kB") != NULL ? 1024 : 1);
        break;
    }
    if (file != NULL)
        fclose(file);
    return number;
}

/* The first line of a file; false if the file does not exist or is empty. */
static bool read_line(char out[64], const char *folder, const char *name)
{
    char path[MAX_PATH + 64];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    bool  read = file != NULL && fgets(out, 64, file) != NULL;
    if (file != NULL)
        fclose(file);
    return read;
}

/* The number that a file consists of; false for "max", and if the file does not exist. */
static bool read_number(size_t *out, const char *folder, const char *name)
{
    char line[64];

    if (!read_line(line, folder, name) || line[0] < '0' || line[0] > '9')
        return false;
    *out = strtoull(line, NULL, 10);
    return true;
}

static size_t memory_left(const group_files *files, const char *folder)
{
    size_t limit = 0, usage = 0;
    char   path[MAX_PATH + 64];

    if (!read_number(&limit, folder, files->limit) || !read_number(&usage, folder, files->usage))
        return SIZE_MAX;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    size_t pages =
        find_number(path, files->file_pages[0]) + find_number(path, files->file_pages[1]);
    usage = usage > pages ? usage - pages : 0;
    return limit > usage ? limit - usage : 1;
}

/* The CPU quota of a group, in thousandths of a core. */
static size_t cores_left(const group_files *files, const char *folder)
{
    size_t    quota = 0, period = 0;
    char      line[64];
    long long numbers[2] = { 0 };

    if (files->usage != NULL) {
        if (!read_number(&quota, folder, files->limit) ||
            !read_number(&period, folder, files->usage) || period == 0)
            return SIZE_MAX;
        return quota * 1000 / period;
    }
    if (!read_line(line, folder, files->limit) ||
        sscanf(line, "%lld %lld", &numbers[0], &numbers[1]) != 2 || numbers[0] <= 0 ||
        numbers[1] <= 0 || numbers[0] > INT32_MAX)
        return SIZE_MAX;
    return (size_t)(numbers[0] * 1000 / numbers[1]);
}

/* The minimum of what a group and the groups above it leave. */
static size_t left_by_all(left_function left_by, const group_files *files, const char *root,
                          const char *group)
{
    size_t least = SIZE_MAX;
    char   folder[MAX_PATH];
    int    top    = snprintf(folder, sizeof folder, "%s%s", root, files->hierarchy);
    int    length = snprintf(folder, sizeof folder, "%s%s%s", root, files->hierarchy, group);

    if (top < 0 || length < top || length >= (int)sizeof folder)
        return SIZE_MAX;
    for (;;) {
        size_t left = left_by(files, folder);
        least       = left < least ? left : least;
        char *slash = strrchr(folder, '/');
        if (slash == NULL || slash < folder + top)
            return least;
        *slash = '\0';
    }
}

/* A resource that control groups limit. */
typedef struct resource {
    const char   *controller; /* name of the controller in version 1 */
    group_files   version_1;
    group_files   version_2;
    left_function left_by;
} resource;

static const resource memory = {
    "memory",
    { "/sys/fs/cgroup/memory",
      "memory.limit_in_bytes",
      "memory.usage_in_bytes",
      { "total_active_file", "total_inactive_file" } },
    { "/sys/fs/cgroup", "memory.max", "memory.current", { "active_file", "inactive_file" } },
    memory_left,
};
static const resource cores = {
    "cpu",
    { "/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "cpu.cfs_period_us", { NULL, NULL } },
    { "/sys/fs/cgroup", "cpu.max", NULL, { NULL, NULL } },
    cores_left,
};

/* True if `name` is in a list such as "cpu,cpuacct". */
static bool names(const char *list, const char *name)
{
    size_t length = strlen(name);

    for (const char *at = strstr(list, name); at != NULL; at = strstr(at + 1, name)) {
        if ((at == list || at[-1] == ',') && (at[length] == '\0' || at[length] == ','))
            return true;
    }
    return false;
}

/* What the group in a line of /proc/self/cgroup leaves: NUMBER:CONTROLLERS:PATH. */
static size_t left_by_line(const resource *wanted, const char *root, char *line)
{
    char *controllers = strchr(line, ':');
    char *path        = controllers != NULL ? strchr(controllers + 1, ':') : NULL;

    if (path == NULL)
        return SIZE_MAX;
    *path++                   = '\0';
    path[strcspn(path, "\n")] = '\0';
    if (strcmp(controllers + 1, "") == 0)
        return left_by_all(wanted->left_by, &wanted->version_2, root, path);
    if (names(controllers + 1, wanted->controller))
        return left_by_all(wanted->left_by, &wanted->version_1, root, path);
    return SIZE_MAX;
}

static size_t left_by_groups(const resource *wanted, const char *root)
{
    size_t least = SIZE_MAX;
    char   path[MAX_PATH], line[MAX_PATH];

    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        size_t left = left_by_line(wanted, root, line);
        least       = left < least ? left : least;
    }
    if (file != NULL)
        fclose(file);
    return least;
}

size_t hl_available_below(const char *root)
{
    char   path[MAX_PATH];
    size_t least = left_by_groups(&memory, root);

    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    size_t machine = find_number(path, "MemAvailable");
    if (machine > 0 && machine < least)
        least = machine;
    return least != SIZE_MAX ? least : 0;
}

size_t hl_memory_available(void)
{
    return hl_available_below("");
}

int hl_available_cores_below(const char *root)
{
    size_t thousandths = left_by_groups(&cores, root);

    return thousandths >= (size_t)INT32_MAX ? 0 : (int)((thousandths + 999) / 1000);
}
