/* hub_cache.c - finds models by name in the Hugging Face cache.
 *
 *     CACHE/models--OWNER--NAME/snapshots/COMMIT/config.json, or .../NAME.gguf
 *
 * A user who writes "gpt2" instead of a path means the model of that name.  Nothing is opened here:
 * a message says where the cache has it. */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/status.h"
#include "formats/tensors.h"

/* Finds the Hugging Face cache by the variables of its own library; false if not even HOME is
 * set. */
static bool find_cache(char out[PATH_MAX])
{
    static const struct {
        const char *variable;
        const char *below;
    } places[] = {
        { "HF_HUB_CACHE", "" },
        { "HUGGINGFACE_HUB_CACHE", "" },
        { "HF_HOME", "/hub" },
        { "XDG_CACHE_HOME", "/huggingface/hub" },
        { "HOME", "/.cache/huggingface/hub" },
    };

    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *value = getenv(places[i].variable);
        if (value != NULL && value[0] != '\0')
            return snprintf(out, PATH_MAX, "%s%s", value, places[i].below) < PATH_MAX;
    }
    return false;
}

/* Whether the folder models--OWNER--NAME, or models--NAME, matches OWNER/NAME or NAME. */
static bool is_cached_as(const char *entry, const char *asked)
{
    static const char start[] = "models--";
    size_t            n_start = sizeof start - 1, n_asked = strlen(asked), n_entry = strlen(entry);

    if (strncmp(entry, start, n_start) != 0 || n_entry < n_start + n_asked)
        return false;
    const char *slash = strchr(asked, '/');
    if (slash == NULL) { /* the owner may be any */
        const char *end = entry + n_entry - n_asked;
        return strcmp(end, asked) == 0 && end[-1] == '-' && end[-2] == '-';
    }
    size_t n_owner = (size_t)(slash - asked);
    entry += n_start;
    return strncmp(entry, asked, n_owner) == 0 && strncmp(entry + n_owner, "--", 2) == 0 &&
           strcmp(entry + n_owner + 2, slash + 1) == 0;
}

/* The model in a snapshot: the folder if it has a config.json, else its first GGUF file. */
static bool model_of_snapshot(char out[PATH_MAX], const char *folder)
{
    char        config[PATH_MAX];
    const char *best = NULL;
    char        name[NAME_MAX + 1];

    if (snprintf(config, sizeof config, "%s/config.json", folder) < PATH_MAX &&
        access(config, F_OK) == 0)
        return snprintf(out, PATH_MAX, "%s", folder) < PATH_MAX;
    DIR *directory = hl_sys_opendir(folder);
    for (const struct dirent *found; directory != NULL && (found = readdir(directory)) != NULL;) {
        if (!hl_ends_with(found->d_name, ".gguf") || strstr(found->d_name, "mmproj") != NULL ||
            (best != NULL && strcmp(found->d_name, name) >= 0))
            continue;
        snprintf(name, sizeof name, "%s", found->d_name);
        best = name;
    }
    if (directory != NULL)
        closedir(directory);
    return best != NULL && snprintf(out, PATH_MAX, "%s/%s", folder, best) < PATH_MAX;
}

/* Finds the first snapshot, by name, that has a config.json; false if there is none.  Snapshots of
 * GGUF files have none: then it is the first such file. */
static bool find_snapshot(char out[PATH_MAX], const char *cache, const char *entry)
{
    char snapshots[PATH_MAX], best[PATH_MAX] = "";

    if (snprintf(snapshots, sizeof snapshots, "%s/%s/snapshots", cache, entry) >= PATH_MAX)
        return false;
    DIR *directory = hl_sys_opendir(snapshots);
    if (directory == NULL)
        return false;
    for (const struct dirent *found; (found = readdir(directory)) != NULL;) {
        char model[PATH_MAX], folder[PATH_MAX];
        int  n = snprintf(folder, sizeof folder, "%s/%s", snapshots, found->d_name);

        if (found->d_name[0] != '.' && n < PATH_MAX && model_of_snapshot(model, folder) &&
            (best[0] == '\0' || strcmp(model, best) < 0))
            snprintf(best, sizeof best, "%s", model);
    }
    closedir(directory);
    return best[0] != '\0' && snprintf(out, PATH_MAX, "%s", best) < PATH_MAX;
}

/* Whether the text looks like a name on Hugging Face, NAME or OWNER/NAME, and not like a path. */
static bool is_model_name(const char *path)
{
    static const char *const files[] = { ".gguf", ".safetensors", ".bin", ".json", ".npy", ".txt" };
    const char              *slash   = strchr(path, '/');

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (hl_ends_with(path, files[i]))
            return false;
    }
    return strchr("./-", path[0]) == NULL && /* nor may it be empty */
           (slash == NULL || (strchr(slash + 1, '/') == NULL && slash[1] != '\0'));
}

bool hl_hub_find(char *out, const char *name)
{
    char cache[PATH_MAX];
    bool is_cached = false;

    if (!is_model_name(name) || !find_cache(cache))
        return false;
    DIR *directory = hl_sys_opendir(cache);
    for (const struct dirent *entry;
         directory != NULL && !is_cached && (entry = readdir(directory)) != NULL;)
        is_cached = is_cached_as(entry->d_name, name) && find_snapshot(out, cache, entry->d_name);
    if (directory != NULL)
        closedir(directory);
    return is_cached;
}

hl_status hl_foreign_explain_missing(const char *path)
{
    char cache[PATH_MAX], snapshot[PATH_MAX];

    if (!is_model_name(path))
        return hl_fail(HL_NOT_FOUND, "%s: No such file or directory", path);
    if (!find_cache(cache))
        return hl_fail(HL_NOT_FOUND,
                       "%s: No such file or directory; a model is a local file or folder", path);
    if (hl_hub_find(snapshot, path))
        return hl_fail(HL_NOT_FOUND,
                       "%s: No such file or directory; a model is a local file or folder, and the "
                       "Hugging Face cache has this one in %s",
                       path, snapshot);
    return hl_fail(HL_NOT_FOUND,
                   "%s: No such file or directory; a model is a local file or folder, and the "
                   "Hugging Face cache, %s, has none of that name",
                   path, cache);
}
