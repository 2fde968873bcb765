/* llama_bench.c - runs a child process and reads the JSON that it writes. */
#include "llama_bench.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "base/status.h"
#include "series.h"

enum { MAX_ANSWER = 1 << 16 };

const char *hl_llama_bench_path(bool is_ik)
{
    const char *name = is_ik ? "HEADLIGHT_IK_BENCH" : "HEADLIGHT_LLAMA_BENCH";
    const char *path = getenv(name);

    if (path == NULL || path[0] == '\0') {
        hl_fail(HL_NOT_FOUND, "set %s to the path of %s llama-bench", name,
                is_ik ? "ik_llama.cpp's" : "llama.cpp's");
        return NULL;
    }
    if (access(path, X_OK) != 0) {
        hl_fail(HL_NOT_FOUND, "%s: %s cannot be run", name, path);
        return NULL;
    }
    return path;
}

/* In the child: becomes llama-bench.  Its standard error shows progress and is discarded.
 * ik_llama.cpp's has no -d; its -gp times what is generated after a prompt. */
static void become(const hl_llama_test *test, int output)
{
    char        prompt[24], gen[24], depth[24], pair[48], threads[24], runs[24];
    int         silence       = open("/dev/null", O_WRONLY);
    const char *arguments[32] = { "llama-bench", "-m", test->model, "-t",  threads,
                                  "-r",          runs, "-o",        "json" };
    int         n             = 9;

    snprintf(prompt, sizeof prompt, "%lld", (long long)test->n_prompt);
    snprintf(gen, sizeof gen, "%lld", (long long)test->n_gen);
    snprintf(depth, sizeof depth, "%lld", (long long)test->n_depth);
    snprintf(pair, sizeof pair, "%lld,%lld", (long long)test->n_depth, (long long)test->n_gen);
    snprintf(threads, sizeof threads, "%d", test->n_threads);
    snprintf(runs, sizeof runs, "%d", test->n_runs);
    arguments[n++] = "-p";
    arguments[n++] = prompt;
    arguments[n++] = "-n";
    arguments[n++] = test->is_ik ? "0" : gen;
    if (test->is_ik) {
        arguments[n++] = "-rtr";
        arguments[n++] = "1";
    }
    if (test->is_ik && test->n_gen > 0) {
        arguments[n++] = "-gp";
        arguments[n++] = pair;
    } else if (!test->is_ik) {
        arguments[n++] = "-d";
        arguments[n++] = depth;
    }
    arguments[n] = NULL;
    dup2(output, STDOUT_FILENO);
    dup2(silence, STDERR_FILENO);
    execv(test->program, (char *const *)arguments);
    _exit(127);
}

/* Reads the child's whole output as a text. */
static size_t read_all(char *out, size_t n_bytes, int input)
{
    size_t  length = 0;
    ssize_t n_read = 0;

    while (length + 1 < n_bytes && (n_read = read(input, out + length, n_bytes - 1 - length)) > 0)
        length += (size_t)n_read;
    out[length] = '\0';
    return length;
}

static hl_status run(char *answer, size_t n_bytes, size_t *length, const hl_llama_test *test)
{
    const char *path   = test->program;
    int         result = 0;
    int         ends[2]; /* { read, write } */

    if (pipe(ends) != 0)
        return hl_fail(HL_IO, "no pipe for %s", path);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        become(test, ends[1]);
    }
    close(ends[1]);
    *length = child > 0 ? read_all(answer, n_bytes, ends[0]) : 0;
    close(ends[0]);
    if (child < 0 || waitpid(child, &result, 0) != child)
        return hl_fail(HL_IO, "cannot run %s", path);
    if (result != 0)
        return hl_fail(HL_BAD_INPUT, "%s -m %s failed: status %d", path, test->model,
                       WIFEXITED(result) ? WEXITSTATUS(result) : -1);
    return HL_OK;
}

static hl_status least_of(double *seconds, const json_t *samples)
{
    bench_series series = { .count = 0 };

    for (size_t i = 0; i < json_array_size(samples); i++)
        bench_series_add(&series, 1e-9 * json_number_value(json_array_get(samples, i)));
    *seconds = bench_series_min(&series);
    return *seconds > 0.0 ? HL_OK : hl_fail(HL_BAD_INPUT, "llama-bench gave no samples_ns");
}

static void read_name(char *out, size_t n_bytes, const json_t *test, bool is_ik)
{
    const char *commit = json_string_value(json_object_get(test, "build_commit"));

    snprintf(out, n_bytes, "%s, build %lld (%.32s)", is_ik ? "ik_llama.cpp" : "llama.cpp",
             (long long)json_integer_value(json_object_get(test, "build_number")),
             commit != NULL ? commit : "?");
}

hl_status hl_llama_bench(hl_llama_run *out, const hl_llama_test *test)
{
    static char   answer[MAX_ANSWER];
    hl_status     status = HL_OK;
    json_t       *root   = NULL;
    const json_t *first  = NULL;
    size_t        length = 0;

    HL_TRY(run(answer, sizeof answer, &length, test));
    char *begin = memchr(answer, '[', length); /* lines before it are notes */
    if (begin == NULL)
        return hl_fail(HL_BAD_INPUT, "llama-bench wrote no JSON");
    HL_TRY(hl_json_parse(&root, begin, length - (size_t)(begin - answer), "llama-bench"));
    first = json_array_get(root, 0);
    read_name(out->name, sizeof out->name, first, test->is_ik);
    HL_TRY(least_of(&out->seconds, json_object_get(first, "samples_ns")));

done:
    json_decref(root);
    return status;
}
