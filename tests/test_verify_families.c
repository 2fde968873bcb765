/* test_verify_families.c - each family of golden/families2, and its GGUF file, against transformers.
 *
 * The test prints a line for every family there: whether its folder and its GGUF file agree, or why
 * not.  Families in tests/data/families2 must agree: whole, in chunks of 7 tokens and token by token.
 * Without the data, beside the checkout, the test is skipped.
 *
 *     make check TESTS=test_verify_families && build/tests/test_verify_families */
#include "model_support.h"

#include <dirent.h>

#include "measure/verify.h"

enum { FOLDER = 1, GGUF = 2 };

/* A line for each family that must agree: its name, then "folder", "gguf" or both. */
static const char LIST[] = "tests/data/families2";

/* Statistics may differ by 2e-4 at most, logits, hidden states and the lens by 3e-4 of the largest
 * value. */
static double bar_of(const hl_verify_entry *entry)
{
    return entry->relative || strncmp(entry->output, "lens_", 5) == 0 ? 3e-4 : 2e-4;
}

/* Verifies one form in one way; writes why it does not agree. */
static bool agrees_so(char *why, size_t n_bytes, const char *path, const char *expected,
                      hl_verify_options options)
{
    hl_verify_report *report = NULL;
    bool              agrees = true;

    options.expected_path = expected;
    options.backend       = hl_backend_name();
    options.n_threads     = 1;
    if (hl_verify_model(&report, path, &options) != HL_OK) {
        const char *message = hl_error_message();
        const char *start   = strstr(message, ": ");
        message             = start != NULL ? start + 2 : message;
        snprintf(why, n_bytes, "%.*s",
                 (int)(strstr(message, ".  ") != NULL ? strstr(message, ".  ") - message : 120),
                 message);
        return false;
    }
    for (size_t i = 0; i < report->n_entries && agrees; i++) {
        const hl_verify_entry *entry = &report->entries[i];

        agrees = entry->error <= bar_of(entry);
        if (!agrees)
            snprintf(why, n_bytes, "%s is off by %.1e%s, %s", entry->output, entry->error,
                     entry->relative ? " of the largest value" : "",
                     options.decode    ? "token by token"
                     : options.n_chunk ? "in chunks"
                                       : "fed whole");
    }
    hl_verify_report_free(report);
    return agrees;
}

static bool agrees(char *why, size_t n_bytes, const char *path, const char *expected)
{
    static const hl_verify_options ways[] = { { 0 }, { .n_chunk = 7 }, { .decode = true } };

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (!agrees_so(why, n_bytes, path, expected, ways[i]))
            return false;
    }
    return true;
}

static bool says(const char *line, size_t n_line, const char *word)
{
    const char *at = strstr(line, word);

    return at != NULL && at < line + n_line;
}

static int wanted_forms(const char *list, const char *name)
{
    size_t n_name = strlen(name), n_line;

    for (const char *line = list; *line != '\0'; line += n_line + (line[n_line] == '\n')) {
        n_line = strcspn(line, "\n");
        if (strncmp(line, name, n_name) == 0 && line[n_name] == ' ') {
            return (says(line, n_line, " folder") ? FOLDER : 0) |
                   (says(line, n_line, " gguf") ? GGUF : 0);
        }
    }
    return 0;
}

/* Prints a family's line; returns the number of its forms that must agree and do not. */
static int check_family(const char *list, const char *name)
{
    char folder[256], gguf[256], expected[320], why[256] = "", line[600];
    int  wanted = wanted_forms(list, name), seen = 0;

    snprintf(folder, sizeof folder, "golden/families2/%s", name);
    snprintf(folder, sizeof folder, "%s", in_shared(folder));
    snprintf(gguf, sizeof gguf, "golden/gguf2/%s.gguf", name);
    snprintf(gguf, sizeof gguf, "%s", in_shared(gguf));
    snprintf(expected, sizeof expected, "%s/expected.safetensors", folder);

    bool passes = agrees(why, sizeof why, folder, expected);
    snprintf(line, sizeof line, "# %s: %s", name, passes ? "passes" : why);
    seen |= passes ? FOLDER : 0;
    if (path_exists(gguf)) {
        size_t n = strlen(line);
        passes   = agrees(why, sizeof why, gguf, expected);
        snprintf(line + n, sizeof line - n, "; GGUF: %s", passes ? "passes" : why);
        seen |= passes ? GGUF : 0;
    }
    print_message("%s%s\n", line, (seen & ~wanted) != 0 ? " (add it to the list)" : "");
    return ((wanted & ~seen) & FOLDER) / FOLDER + ((wanted & ~seen) & GGUF) / GGUF;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_family(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && strchr(entry->d_name, '.') == NULL;
}

static void families_agree(void **state)
{
    struct dirent **entries = NULL;
    int             n_wrong = 0, n_listed = 0, n_found = 0;
    size_t          n_bytes;
    (void)state;

    if (!path_exists(in_shared("golden/families2")))
        skip();
    char *list = read_file(LIST, &n_bytes);
    int   n    = scandir(in_shared("golden/families2"), &entries, is_family, by_name);
    assert_true(n > 0);
    for (size_t i = 0; i < n_bytes; i++)
        n_listed += list[i] == '\n';
    for (int i = 0; i < n; i++) {
        n_found += wanted_forms(list, entries[i]->d_name) != 0;
        n_wrong += check_family(list, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    free(list);
    assert_int_equal(n_found, n_listed);
    assert_int_equal(n_wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
