/* test_local_models.c - models by name in folders laid out as Ollama and LM Studio do it. */
#define _GNU_SOURCE /* nftw */
#include "support.h"

#include <ftw.h>
#include <sys/stat.h>

#include "headlight/model.h"

static const char *home; /* also $HOME */

/* Writes a file below the home, and the folders that it is in. */
static void put(const char *path, const char *text)
{
    char folder[2048];

    snprintf(folder, sizeof folder, "%s/%s", home, path);
    for (char *slash = folder + strlen(home) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(folder, 0700);
        *slash = '/';
    }
    write_file(folder, text, strlen(text));
}

static void found(const char *name, const char *wanted)
{
    char *path = NULL;

    assert_ok(hl_model_find(&path, name));
    assert_string_equal(path, in_folder(home, wanted));
    hl_free(path);
}

static void missing(const char *name)
{
    char *path = NULL;

    assert_fails(HL_NOT_FOUND, "in Ollama's folder or in LM Studio's", hl_model_find(&path, name));
    assert_null(path);
}

static int set_up(void **state)
{
    (void)state;
    home = new_folder();
    setenv("HOME", home, 1);
    unsetenv("OLLAMA_MODELS");
    unsetenv("HF_HOME");
    unsetenv("HF_HUB_CACHE");
    unsetenv("HUGGINGFACE_HUB_CACHE");
    unsetenv("XDG_CACHE_HOME");
    return 0;
}

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *at)
{
    (void)about;
    (void)kind;
    (void)at;
    return remove(path);
}

static int tear_down(void **state)
{
    (void)state;
    return nftw(home, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* ----------------------------------------------------------------------- Ollama */

#define OLLAMA "models/manifests/"
#define A      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B      "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define LAYER(type, digest)                                                                        \
    "{\"mediaType\": \"application/vnd.ollama.image." type "\", \"digest\": \"" digest "\"}"
#define MANIFEST(layers) "{\"layers\": [" layers "]}"
#define OF(digest)       MANIFEST(LAYER("license", "sha256:" B) ", " LAYER("model", "sha256:" digest))

static void ollama_names(void **state)
{
    (void)state;
    put(".ollama/models/blobs/sha256-" A, "x");
    put(".ollama/models/blobs/sha256-" B, "x");
    put(".ollama/" OLLAMA "registry.ollama.ai/library/small/latest", OF(A));
    put(".ollama/" OLLAMA "registry.ollama.ai/library/small/1b", OF(B));
    put(".ollama/" OLLAMA "registry.ollama.ai/me/mine/q8", OF(B));
    put(".ollama/" OLLAMA "registry.ollama.ai/me/mine/q4", OF(A));
    put(".ollama/" OLLAMA "example.org/me/mine/latest", OF(B));
    found("small", ".ollama/models/blobs/sha256-" A);
    found("small:1b", ".ollama/models/blobs/sha256-" B);
    found("library/small", ".ollama/models/blobs/sha256-" A);
    found("example.org/me/mine", ".ollama/models/blobs/sha256-" B);
    found("me/mine", ".ollama/models/blobs/sha256-" A); /* no latest: the first by name */
    missing("small:2b");
    missing("other/small");
    assert_fails(HL_BAD_ARGUMENT, "no name", hl_model_find(&(char *){ NULL }, ""));
}

static void ollama_manifests_are_not_trusted(void **state)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{\"layers\": 3}",
        MANIFEST(LAYER("license", "sha256:" A)),
        MANIFEST(LAYER("model", "sha256:../../../../etc/passwd")),
        MANIFEST(LAYER("model", "md5:" A)),
        MANIFEST(LAYER("model", "sha256:" A "a")),
        MANIFEST(LAYER("model",
                       "sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")),
        MANIFEST("{\"mediaType\": 1, \"digest\": 2}"),
        OF("cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"), /* no such blob */
    };
    (void)state;

    put(".ollama/models/blobs/"
        "sha256-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "x");
    put(".ollama/models/blobs/sha256-" A, "x");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put(".ollama/" OLLAMA "registry.ollama.ai/library/odd/latest", bad[i]);
        missing("odd");
    }
    /* Names do not leave the folder. */
    put(".ollama/escape/latest", OF(A));
    put(".ollama/" OLLAMA "escape/latest", OF(A));
    missing("../../escape");
    missing("x/../escape");
    missing("small:..");
    missing("a/b/c/d");
    missing("library//small");
}

/* -------------------------------------------------------------------- LM Studio */

static void lm_studio_names(void **state)
{
    (void)state;
    put(".lmstudio/models/maker/tiny-GGUF/b.gguf", "x");
    put(".lmstudio/models/maker/tiny-GGUF/a.Q8_0.gguf", "x");
    put(".lmstudio/models/maker/tiny-GGUF/a-mmproj.gguf", "x");
    put(".lmstudio/models/early/tiny-GGUF/c.gguf", "x");
    put(".lmstudio/models/maker/folder/config.json", "{}");
    put(".lmstudio/models/maker/empty/readme", "x");
    put(".cache/lm-studio/models/old/kept/k.gguf", "x");
    found("maker/tiny-GGUF", ".lmstudio/models/maker/tiny-GGUF/a.Q8_0.gguf");
    found("tiny-GGUF", ".lmstudio/models/early/tiny-GGUF/c.gguf"); /* the first by name */
    found("b", ".lmstudio/models/maker/tiny-GGUF/b.gguf");
    found("maker/b.gguf", ".lmstudio/models/maker/tiny-GGUF/b.gguf");
    found("folder", ".lmstudio/models/maker/folder");
    found("kept", ".cache/lm-studio/models/old/kept/k.gguf");
    missing("a-mmproj.gguf");
    missing("empty");
    missing("maker/");
    missing("maker/tiny-GGUF/b");
    missing(".lmstudio");
    missing("maker/../maker/folder");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(ollama_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ollama_manifests_are_not_trusted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(lm_studio_names, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
