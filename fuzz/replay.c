/* replay.c - feeds a fuzz target its stored corpus, without libFuzzer.
 *
 * Called as replay_NAME, it reads every file of fuzz/corpus/NAME, one test each, in TAP.  Each
 * input is in a block of exactly its size, so that a sanitizer notices a read beyond it.  The name
 * is printed before the input is run: after a crash it is the last line. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Reads exactly the file's bytes; NULL if it cannot be read. */
static uint8_t *read_exactly(const char *path, size_t *n_bytes)
{
    FILE    *file  = fopen(path, "rb");
    uint8_t *bytes = NULL;

    if (file == NULL)
        return NULL;
    fseek(file, 0, SEEK_END);
    long length = ftell(file);
    rewind(file);
    *n_bytes = length > 0 ? (size_t)length : 0;
    bytes    = malloc(*n_bytes > 0 ? *n_bytes : 1);
    if (bytes != NULL && fread(bytes, 1, *n_bytes, file) != *n_bytes) {
        free(bytes);
        bytes = NULL;
    }
    fclose(file);
    return bytes;
}

int main(int argc, char **argv)
{
    struct dirent **entries  = NULL;
    int             n_failed = 0;
    char            path[1024];

    const char *name   = argc > 0 ? strstr(argv[0], "replay_") : NULL;
    const char *target = name != NULL ? name + strlen("replay_") : "";
    snprintf(path, sizeof path, "fuzz/corpus/%s", target);
    int n_entries = scandir(path, &entries, is_visible, alphasort);
    if (n_entries <= 0) {
        printf("1..1\nnot ok 1 - %s: no corpus\n", path);
        return 1;
    }
    printf("1..%d\n", n_entries);
    for (int i = 0; i < n_entries; i++) {
        size_t n_bytes = 0;
        snprintf(path, sizeof path, "fuzz/corpus/%s/%s", target, entries[i]->d_name);
        printf("# %s\n", path);
        fflush(stdout);
        uint8_t *bytes = read_exactly(path, &n_bytes);
        if (bytes != NULL)
            LLVMFuzzerTestOneInput(bytes, n_bytes);
        else
            n_failed++;
        printf("%sok %d - %s\n", bytes != NULL ? "" : "not ", i + 1, entries[i]->d_name);
        free(bytes);
        free(entries[i]);
    }
    free(entries);
    return n_failed > 0;
}
