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

const char *hl_llama_bench_path(void)
{
    const char *path = getenv("HEADLIGHT_LLAMA_BENCH");

    if (path == NULL || path[0] == '\0') {
        hl_fail(HL_NOT_FOUND, "set HEADLIGHT_LLAMA_BENCH to the path of llama-bench");
        return NULL;
    }
    if (access(path, X_OK) != 0) {
        hl_fail(HL_NOT_FOUND, "HEADLIGHT_LLAMA_BENCH: %s cannot be run", path);
        return NULL;
    }
    return path;
}

/* In the child: becomes llama-bench.  Its standard error shows progress and is discarded. */
static void become(const char *path, const hl_llama_test *test, int output)
{
    char numbers[5][24];
    int  silence = open("/dev/null", O_WRONLY);

    snprintf(numbers[0], sizeof numbers[0], "%lld", (long long)test->n_prompt);
    snprintf(numbers[1], sizeof numbers[1], "%lld", (long long)test->n_gen);
    snprintf(numbers[2], sizeof numbers[2], "%lld", (long long)test->n_depth);
    snprintf(numbers[3], sizeof numbers[3], "%d", test->n_threads);
    snprintf(numbers[4], sizeof numbers[4], "%d", test->n_runs);
    dup2(output, STDOUT_FILENO);
    dup2(silence, STDERR_FILENO);
    execl(path, "llama-bench", "-m", test->model, "-p", numbers[0], "-n", numbers[1], "-d",
          numbers[2], "-t", numbers[3], "-r", numbers[4], "-o", "json", (char *)NULL);
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
    const char *path   = hl_llama_bench_path();
    int         result = 0;
    int         ends[2]; /* { read, write } */

    if (path == NULL)
        return HL_NOT_FOUND;
    if (pipe(ends) != 0)
        return hl_fail(HL_IO, "no pipe for %s", path);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        become(path, test, ends[1]);
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

static hl_status median_of(double *seconds, const json_t *samples)
{
    bench_series series = { .count = 0 };

    for (size_t i = 0; i < json_array_size(samples); i++)
        bench_series_add(&series, 1e-9 * json_number_value(json_array_get(samples, i)));
    *seconds = bench_series_median(&series);
    return *seconds > 0.0 ? HL_OK : hl_fail(HL_BAD_INPUT, "llama-bench gave no samples_ns");
}

static void read_name(char *out, size_t n_bytes, const json_t *test)
{
    const char *commit = json_string_value(json_object_get(test, "build_commit"));

    snprintf(out, n_bytes, "llama.cpp, build %lld (%.32s)",
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
    HL_TRY(hl_json_parse(&root, answer, length, "llama-bench"));
    first = json_array_get(root, 0);
    read_name(out->name, sizeof out->name, first);
    HL_TRY(median_of(&out->seconds, json_object_get(first, "samples_ns")));

done:
    json_decref(root);
    return status;
}
