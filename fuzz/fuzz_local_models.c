/* fuzz_local_models.c - an arbitrary name of a model, and arbitrary bytes as Ollama's manifest of one.
 *
 *     maker/model:tag          the first line: the name that is asked for
 *     {"layers": [ ...         the manifest of the model "small", up to the end
 *
 * Around them are folders of Ollama's and LM Studio's with a few files.  What is found is either the
 * name itself, a path, or a file in one of these folders. */
#define _GNU_SOURCE /* nftw */
#include "fuzz_file.h"

#include <ftw.h>
#include <sys/stat.h>

#include "headlight/model.h"

#define DIGEST "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define SMALL  ".ollama/models/manifests/registry.ollama.ai/library/small/latest"

static const char *const files[] = {
    ".ollama/models/blobs/sha256-" DIGEST,
    ".ollama/models/manifests/registry.ollama.ai/me/mine/q4",
    ".lmstudio/models/maker/tiny-GGUF/a.gguf",
    ".lmstudio/models/maker/tiny-GGUF/a-mmproj.gguf",
    ".lmstudio/models/maker/folder/config.json",
    ".cache/lm-studio/models/old/kept/k.gguf",
};

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *at)
{
    (void)about;
    (void)kind;
    (void)at;
    return remove(path);
}

static void remove_all(void)
{
    nftw(fuzz_folder_path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void put(const char *name, const uint8_t *bytes, size_t n_bytes)
{
    char folder[FUZZ_PATH_BYTES];

    snprintf(folder, sizeof folder, "%s/%s", fuzz_folder(), name);
    for (char *slash = folder + strlen(fuzz_folder()) + 1; (slash = strchr(slash, '/')) != NULL;
         slash++) {
        *slash = '\0';
        mkdir(folder, 0700);
        *slash = '/';
    }
    fuzz_file(name, bytes, n_bytes);
}

static void set_up(void)
{
    static const char manifest[] =
        "{\"layers\": [{\"mediaType\": \"application/vnd.ollama.image.model\","
        " \"digest\": \"sha256:" DIGEST "\"}]}";
    static const char *const unset[] = { "OLLAMA_MODELS", "HF_HOME", "HF_HUB_CACHE",
                                         "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME" };

    setenv("HOME", fuzz_folder(), 1);
    atexit(remove_all);
    for (size_t i = 0; i < sizeof unset / sizeof *unset; i++)
        unsetenv(unset[i]);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        put(files[i], (const uint8_t *)manifest, sizeof manifest - 1);
}

static bool is_below(const char *path, const char *folder)
{
    size_t n = strlen(folder);

    return strncmp(path, folder, n) == 0 && path[n] == '/';
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    const uint8_t *newline = memchr(bytes, '\n', n_bytes);
    size_t         n_name  = newline != NULL ? (size_t)(newline - bytes) : n_bytes;
    size_t         n_line  = newline != NULL ? n_name + 1 : n_name;
    char          *name = strndup((const char *)bytes, n_name), *found = NULL;
    struct stat    about;

    PROMISE(name != NULL);
    if (fuzz_folder_path[0] == '\0')
        set_up();
    put(SMALL, bytes + n_line, n_bytes - n_line);
    if (hl_model_find(&found, name) != HL_OK) {
        free(name);
        return refused(found);
    }
    /* A path is returned even if it cannot be read: opening it says why. */
    PROMISE(strcmp(found, name) == 0 ||
            (stat(found, &about) == 0 && strstr(found, "/../") == NULL &&
             (is_below(found, fuzz_folder()) || is_below(found, "/usr/share/ollama") ||
              is_below(found, "/var/lib/ollama"))));
    hl_free(found);
    free(name);
    return 0;
}
