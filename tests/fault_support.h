/* fault_support.h - runs an operation again and again, each time with another of its calls failing.
 *
 * A trial is an operation, the folder that it writes to, and how to run it.  It first runs
 * undisturbed; the contents of the folder are then the expected ones.  After that call 1 fails,
 * then call 2, ...:
 *
 *     it fails       with a suitable code and a message, or
 *     it succeeds    if it can do without that call, with the same bytes as undisturbed.
 *
 * In both cases each file in the folder has either its previous or its expected contents,
 * completely. There are no other files, no open descriptors and, under the leak sanitizer, no lost
 * memory.  Reads and writes that are cut short or interrupted must all succeed.
 *
 * HEADLIGHT_FAULTS=all makes every call fail (and every seventh time all later allocations too); a
 * number makes that many of each kind fail, evenly spread; the default is a few. */
#ifndef HL_TESTS_FAULT_SUPPORT_H
#define HL_TESTS_FAULT_SUPPORT_H

#include "support.h"

#include <errno.h>
#include <sys/stat.h>

#include <jansson.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"

#define FEW_FAULTS   6 /* default number of faults of each kind */
#define SOME_FAULTS  7 /* with every seventh fault, all later calls fail too */
#define MAX_SNAPSHOT 64

typedef struct trial {
    const char *name;
    const char *folder;       /* folder that it writes to; NULL: none */
    const char *spare;        /* suffix of a file that a failure may leave there; NULL: none */
    void (*prepare)(void *);  /* puts the previous files into the folder; may be NULL */
    hl_status (*run)(void *); /* fills `message` */
    void (*after)(void *);    /* runs undisturbed after a failure; may be NULL */
    void   *context;
    int64_t most; /* number of faults of each kind for slow trials; 0: all */
} trial;

static char message[4096]; /* error message of the run */

#define SHOWN_PROBLEMS 5
static int n_problems; /* problems of this trial */

/* Reports a problem; only the first few are printed, but inject() fails for all of them. */
#define PROBLEM(format, ...)                                                                       \
    do {                                                                                           \
        if (n_problems++ < SHOWN_PROBLEMS)                                                         \
            printf("# " format "\n", __VA_ARGS__);                                                 \
    } while (0)

/* ----------------------------------------------------------------------- what is there */

typedef struct snapshot {
    int count;
    struct {
        char     name[512];
        uint64_t hash;
    } files[MAX_SNAPSHOT];
} snapshot;

static void look_into(snapshot *out, const char *root, const char *below)
{
    char path[1024], name[512];
    snprintf(path, sizeof path, "%s%s%s", root, below[0] != '\0' ? "/" : "", below);
    DIR *directory = opendir(path);

    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        struct stat about;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(name, sizeof name, "%s%s%s", below, below[0] != '\0' ? "/" : "", entry->d_name);
        snprintf(path, sizeof path, "%s/%s", root, name);
        assert_int_equal(lstat(path, &about), 0);
        if (S_ISDIR(about.st_mode)) {
            look_into(out, root, name);
            continue;
        }
        size_t n_bytes = 0;
        char  *bytes   = read_file(path, &n_bytes);
        assert_true(out->count < MAX_SNAPSHOT);
        snprintf(out->files[out->count].name, sizeof out->files->name, "%s", name);
        out->files[out->count++].hash = hl_hash(bytes, n_bytes, 0);
        free(bytes);
    }
    closedir(directory);
}

static snapshot look(const trial *t)
{
    snapshot out = { 0 };
    if (t->folder != NULL)
        look_into(&out, t->folder, "");
    return out;
}

static bool holds(const snapshot *s, const char *name, uint64_t hash)
{
    for (int i = 0; i < s->count; i++) {
        if (strcmp(s->files[i].name, name) == 0 && s->files[i].hash == hash)
            return true;
    }
    return false;
}

static bool is_spare(const trial *t, const char *name)
{
    size_t length = strlen(name), ending = t->spare != NULL ? strlen(t->spare) : 0;
    return ending > 0 && length > ending && strcmp(name + length - ending, t->spare) == 0;
}

/* Checks that each file has its previous or its expected contents, under its name. */
static void check_files(const trial *t, const snapshot *before, const snapshot *wanted, int64_t nth)
{
    snapshot now = look(t);

    for (int i = 0; i < now.count; i++) {
        const char *name = now.files[i].name;
        if (!holds(before, name, now.files[i].hash) && !holds(wanted, name, now.files[i].hash) &&
            !is_spare(t, name))
            PROBLEM("%s: call %lld: '%s' is neither the old file nor the new one (%s)", t->name,
                    (long long)nth, name, message);
    }
    for (int i = 0; i < before->count; i++) {
        const char *name = before->files[i].name;
        bool        kept = holds(&now, name, before->files[i].hash);
        for (int j = 0; j < wanted->count && !kept; j++)
            kept = strcmp(wanted->files[j].name, name) == 0 &&
                   holds(&now, name, wanted->files[j].hash);
        if (!kept && !is_spare(t, name))
            PROBLEM("%s: call %lld: '%s' is lost (%s)", t->name, (long long)nth, name, message);
    }
}

static void check_same(const trial *t, const snapshot *wanted, int64_t nth)
{
    snapshot now = look(t);

    for (int i = 0; i < wanted->count; i++) {
        if (!holds(&now, wanted->files[i].name, wanted->files[i].hash))
            PROBLEM("%s: call %lld failed, the rest went well, but '%s' is another", t->name,
                    (long long)nth, wanted->files[i].name);
    }
    if (now.count != wanted->count)
        PROBLEM("%s: call %lld: %d files, wanted %d", t->name, (long long)nth, now.count,
                wanted->count);
}

static int open_descriptors(void)
{
    return count_files("/proc/self/fd");
}

/* Waits for the number of open descriptors: a server closes a connection only when its thread gets
 * to it. */
static int settled_descriptors(int wanted)
{
    for (int i = 0; i < 1000 && open_descriptors() > wanted; i++)
        usleep(10000);
    return open_descriptors();
}

static void empty_folder(const char *folder)
{
    DIR *directory = opendir(folder);

    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (unlink(path) != 0) {
            empty_folder(path);
            assert_int_equal(rmdir(path), 0);
        }
    }
    closedir(directory);
}

/* -------------------------------------------------------------------------- the trials */

static void prepare(const trial *t)
{
    message[0] = '\0';
    if (t->folder != NULL)
        empty_folder(t->folder);
    if (t->prepare != NULL)
        t->prepare(t->context);
}

static bool may_end_so(hl_fault_kind kind, hl_status status)
{
    switch (kind) {
    case HL_FAULT_MEMORY:
        return status == HL_OK || status == HL_NO_MEMORY;
    case HL_FAULT_CALL: /* a failed mapping is reported as a lack of memory */
        return status == HL_OK || status == HL_IO || status == HL_NO_MEMORY;
    default:
        return status == HL_OK;
    }
}

static const char *const fault_names[] = { "none", "memory", "calls", "short", "interrupted" };

static bool fail_nth(const trial *t, hl_fault_kind kind, int64_t nth, bool stays,
                     const snapshot *wanted)
{
    bool fired = false;

    prepare(t);
    snapshot before = look(t);
    int      n_open = open_descriptors();
    hl_fault_arm(kind, nth, stays);
    hl_status status = t->run(t->context);
    hl_fault_disarm(&fired);

    if (!may_end_so(kind, status) || (status != HL_OK && message[0] == '\0'))
        PROBLEM("%s, %s, call %lld: %s: '%s'", t->name, fault_names[kind], (long long)nth,
                hl_status_name(status), message);
    if (status == HL_OK)
        check_same(t, wanted, nth);
    else
        check_files(t, &before, wanted, nth);
    if (status != HL_OK && t->after != NULL)
        t->after(t->context);
    int n_open_now = settled_descriptors(n_open);
    if (n_open_now > n_open)
        PROBLEM("%s, %s, call %lld: %d descriptors, were %d", t->name, fault_names[kind],
                (long long)nth, n_open_now, n_open);
    return fired;
}

/* Calls __lsan_do_recoverable_leak_check in builds with the address sanitizer. */
#if defined(__SANITIZE_ADDRESS__)
#define FINDS_LEAKS
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FINDS_LEAKS
#endif
#endif
#ifdef FINDS_LEAKS
#include <sanitizer/lsan_interface.h>
#define LEAKS() __lsan_do_recoverable_leak_check()
#else
#define LEAKS() 0
#endif

/* Returns the number of faults of each kind. */
static int64_t wanted_faults(void)
{
    const char *wanted = getenv("HEADLIGHT_FAULTS");

    if (wanted != NULL && strcmp(wanted, "all") == 0)
        return INT64_MAX;
    return wanted != NULL && atoll(wanted) > 0 ? atoll(wanted) : FEW_FAULTS;
}

static int64_t count_calls(const trial *t, hl_fault_kind kind)
{
    prepare(t);
    hl_fault_arm(kind, INT64_MAX, false);
    hl_status status = t->run(t->context);
    int64_t   n      = hl_fault_disarm(NULL);

    if (status != HL_OK)
        fail_msg("%s, undisturbed: %s: '%s'", t->name, hl_status_name(status), message);
    return n;
}

static int64_t fail_each(const trial *t, hl_fault_kind kind, bool stays, const snapshot *wanted)
{
    int64_t n_calls = count_calls(t, kind), n_fired = 0;
    int64_t least = stays && wanted_faults() > FEW_FAULTS ? SOME_FAULTS : 1;
    int64_t step  = n_calls / wanted_faults();

    step = step > least ? step : least;
    if (t->most > 0 && n_calls / step > t->most)
        step = n_calls / t->most;
    for (int64_t nth = 1; nth <= n_calls; nth += step)
        n_fired += fail_nth(t, kind, nth, stays, wanted);
    if (LEAKS() != 0)
        PROBLEM("%s, %s: memory is lost", t->name, fault_names[kind]);
    return n_fired;
}

/* Injects all kinds of faults; prints the number of each. */
static inline void inject(const trial *t)
{
    n_problems = 0;
    count_calls(t, HL_FAULT_NONE); /* the first run allocates what is kept from then on */
    count_calls(t, HL_FAULT_NONE);
    snapshot wanted = look(t);

    int64_t memory      = fail_each(t, HL_FAULT_MEMORY, false, &wanted);
    int64_t exhausted   = fail_each(t, HL_FAULT_MEMORY, true, &wanted);
    int64_t calls       = fail_each(t, HL_FAULT_CALL, false, &wanted);
    int64_t short_ones  = fail_each(t, HL_FAULT_SHORT, false, &wanted);
    int64_t interrupted = fail_each(t, HL_FAULT_INTERRUPTED, false, &wanted);
    printf("# faults %-24s %6lld memory %6lld memory and all after %5lld calls %4lld short %4lld "
           "interrupted\n",
           t->name, (long long)memory, (long long)exhausted, (long long)calls,
           (long long)short_ones, (long long)interrupted);
    fflush(stdout);
    if (n_problems > 0)
        fail_msg("%s: %d problems", t->name, n_problems);
}

/* Called by main: uses one thread, so that calls have the same order in each run, and only the
 * tests that match HEADLIGHT_FAULTS_ONLY. */
static inline void start_faults(void)
{
    const char *only = getenv("HEADLIGHT_FAULTS_ONLY");

    setenv("OMP_NUM_THREADS", "1", 1);
    if (only != NULL)
        cmocka_set_test_filter(only);
}

/* ------------------------------------------------------------------------------ jansson */

static void *json_malloc(size_t n_bytes)
{
    return hl_fault(HL_FAULT_MEMORY) ? NULL : malloc(n_bytes);
}

/* Makes the allocations of jansson fail too. */
static inline void inject_json(void)
{
    json_set_alloc_funcs(json_malloc, free);
}

#endif
