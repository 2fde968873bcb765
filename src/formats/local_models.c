/* local_models.c - finds models by name where other programs keep them.
 *
 *     Hugging Face   hub_cache.c
 *     Ollama         MODELS/manifests/HOST/NAMESPACE/NAME/TAG   JSON; its layer of the type
 *                                                               ...ollama.image.model has a digest
 *                    MODELS/blobs/sha256-HEX                    the GGUF file of that digest
 *     LM Studio      MODELS/PUBLISHER/NAME/FILE.gguf, or a folder with config.json there
 *
 * Nothing is opened but the manifest, and nothing is downloaded.  Of several files the first by name
 * is taken. */
#include <dirent.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "formats/tensors.h"
#include "headlight/model.h"

__attribute__((format(printf, 2, 3))) static bool join(char out[PATH_MAX], const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    int n = vsnprintf(out, PATH_MAX, format, arguments);
    va_end(arguments);
    return n >= 0 && n < PATH_MAX;
}

static bool is_file(const char *path)
{
    struct stat about;

    return stat(path, &about) == 0 && S_ISREG(about.st_mode);
}

/* Writes the first entry by name that the test accepts, and returns true if there is one. */
static bool first_entry(char out[NAME_MAX + 1], const char                                *folder,
                        bool (*accept)(const char *name, const void *context), const void *context)
{
    DIR *directory = hl_sys_opendir(folder);

    out[0] = '\0';
    for (const struct dirent *found; directory != NULL && (found = readdir(directory)) != NULL;) {
        if (found->d_name[0] != '.' && accept(found->d_name, context) &&
            (out[0] == '\0' || strcmp(found->d_name, out) < 0))
            snprintf(out, NAME_MAX + 1, "%s", found->d_name);
    }
    if (directory != NULL)
        closedir(directory);
    return out[0] != '\0';
}

static bool any_name(const char *name, const void *context)
{
    (void)name;
    (void)context;
    return true;
}

/* A projector of images is not a language model. */
static bool is_gguf(const char *name, const void *context)
{
    (void)context;
    return hl_ends_with(name, ".gguf") && strstr(name, "mmproj") == NULL;
}

/* ----------------------------------------------------------------------- Ollama */

typedef struct ollama_name {
    char host[256];
    char space[256];
    char model[256];
    char tag[256]; /* "": none was given */
} ollama_name;

/* Splits [[HOST/]NAMESPACE/]NAME[:TAG]; false if a part is missing or could leave the folder. */
static bool split_ollama(ollama_name *out, const char *name)
{
    char        copy[1024];
    const char *parts[3];
    int         n = 0;

    if (snprintf(copy, sizeof copy, "%s", name) >= (int)sizeof copy)
        return false;
    char *colon = strrchr(copy, ':');
    *out        = (ollama_name){ .host = "registry.ollama.ai", .space = "library" };
    if (colon != NULL && strchr(colon, '/') == NULL) {
        snprintf(out->tag, sizeof out->tag, "%s", colon + 1);
        *colon = '\0';
    }
    for (char *rest = copy, *part; (part = strsep(&rest, "/")) != NULL; n++) {
        if (n == 3 || part[0] == '\0' || part[0] == '.')
            return false;
        parts[n] = part;
    }
    if (n > 2)
        snprintf(out->host, sizeof out->host, "%s", parts[n - 3]);
    if (n > 1)
        snprintf(out->space, sizeof out->space, "%s", parts[n - 2]);
    snprintf(out->model, sizeof out->model, "%s", parts[n - 1]);
    return out->tag[0] != '.';
}

/* The digest of the layer that holds the weights; false if the manifest has none that is a digest. */
static bool read_digest(char out[65], const char *manifest)
{
    json_t *root  = NULL;
    bool    found = false;

    if (hl_json_parse_file(&root, manifest) != HL_OK)
        return false;
    const json_t *layers = json_object_get(root, "layers");
    for (size_t i = 0; i < json_array_size(layers) && !found; i++) {
        const json_t *layer  = json_array_get(layers, i);
        const char   *type   = json_string_value(json_object_get(layer, "mediaType"));
        const char   *digest = json_string_value(json_object_get(layer, "digest"));

        found = type != NULL && strcmp(type, "application/vnd.ollama.image.model") == 0 &&
                digest != NULL && strncmp(digest, "sha256:", 7) == 0 && strlen(digest) == 7 + 64 &&
                strspn(digest + 7, "0123456789abcdef") == 64;
        if (found)
            memcpy(out, digest + 7, 65);
    }
    json_decref(root);
    return found;
}

static bool find_ollama(char out[PATH_MAX], const char *models, const char *name)
{
    ollama_name asked;
    char        folder[PATH_MAX], manifest[PATH_MAX], tag[NAME_MAX + 1], digest[65];

    if (!split_ollama(&asked, name) ||
        !join(folder, "%s/manifests/%s/%s/%s", models, asked.host, asked.space, asked.model))
        return false;
    if (asked.tag[0] == '\0') {
        snprintf(asked.tag, sizeof asked.tag, "latest");
        if (join(manifest, "%s/latest", folder) && !is_file(manifest) &&
            first_entry(tag, folder, any_name, NULL))
            snprintf(asked.tag, sizeof asked.tag, "%.255s", tag);
    }
    return join(manifest, "%s/%s", folder, asked.tag) && is_file(manifest) &&
           read_digest(digest, manifest) && join(out, "%s/blobs/sha256-%s", models, digest) &&
           is_file(out);
}

/* -------------------------------------------------------------------- LM Studio */

/* The model in a folder: the folder itself, or the first GGUF file in it. */
static bool model_in(char out[PATH_MAX], const char *folder)
{
    char config[PATH_MAX], file[NAME_MAX + 1];

    if (first_entry(file, folder, is_gguf, NULL))
        return join(out, "%s/%s", folder, file);
    return join(config, "%s/config.json", folder) && is_file(config) && join(out, "%s", folder);
}

/* Whether a file is NAME or NAME.gguf. */
static bool is_called(const char *file, const void *context)
{
    const char *name = context;
    size_t      n    = strlen(name);

    return strncmp(file, name, n) == 0 && (file[n] == '\0' || strcmp(file + n, ".gguf") == 0) &&
           is_gguf(file, NULL);
}

/* A model of this name among the entries of a folder. */
typedef struct search {
    const char *folder;
    const char *name;
} search;

static bool has_called(const char *entry, const void *context)
{
    const search *s = context;
    char          folder[PATH_MAX], file[NAME_MAX + 1];

    return join(folder, "%s/%s", s->folder, entry) && first_entry(file, folder, is_called, s->name);
}

/* One publisher's folder, with the name of a model or of a file. */
static bool find_of(char out[PATH_MAX], const char *publisher, const char *name)
{
    search s = { publisher, name };
    char   folder[PATH_MAX], entry[NAME_MAX + 1], file[NAME_MAX + 1];

    if (join(folder, "%s/%s", publisher, name) && model_in(out, folder))
        return true;
    return first_entry(entry, publisher, has_called, &s) &&
           join(folder, "%s/%s", publisher, entry) && first_entry(file, folder, is_called, name) &&
           join(out, "%s/%s", folder, file);
}

static bool publishes(const char *entry, const void *context)
{
    const search *s = context;
    char          publisher[PATH_MAX], found[PATH_MAX];

    return join(publisher, "%s/%s", s->folder, entry) && find_of(found, publisher, s->name);
}

static bool find_lm_studio(char out[PATH_MAX], const char *models, const char *name)
{
    search      s = { models, name };
    char        publisher[PATH_MAX], entry[NAME_MAX + 1];
    const char *slash = strchr(name, '/');

    if (name[0] == '.' || name[0] == '\0' || strstr(name, "/.") != NULL)
        return false;
    if (slash == NULL)
        return first_entry(entry, models, publishes, &s) &&
               join(publisher, "%s/%s", models, entry) && find_of(out, publisher, name);
    return strchr(slash + 1, '/') == NULL && slash[1] != '\0' &&
           join(publisher, "%s/%.*s", models, (int)(slash - name), name) &&
           find_of(out, publisher, slash + 1);
}

/* ---------------------------------------------------------------- all of the places */

typedef bool (*finder)(char out[PATH_MAX], const char *folder, const char *name);

/* A folder is a variable's value with this behind it; without a variable, the path alone. */
static const struct {
    finder      find;
    const char *variable;
    const char *below;
} places[] = {
    { find_ollama, "OLLAMA_MODELS", "" },
    { find_ollama, "HOME", "/.ollama/models" },
    { find_ollama, NULL, "/usr/share/ollama/.ollama/models" },
    { find_ollama, NULL, "/var/lib/ollama/.ollama/models" },
    { find_lm_studio, "HOME", "/.lmstudio/models" },
    { find_lm_studio, "HOME", "/.cache/lm-studio/models" },
};

hl_status hl_model_find(char **out, const char *name)
{
    char found[PATH_MAX], folder[PATH_MAX];

    *out = NULL;
    if (name == NULL || name[0] == '\0')
        return hl_fail(HL_BAD_ARGUMENT, "hl_model_find: no name");
    if (hl_path_exists(name))
        return hl_strdup(out, name);
    if (hl_hub_find(found, name))
        return hl_strdup(out, found);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *value = places[i].variable != NULL ? getenv(places[i].variable) : "";

        if (value == NULL || (places[i].variable != NULL && value[0] == '\0') ||
            !join(folder, "%s%s", value, places[i].below))
            continue;
        if (places[i].find(found, folder, name))
            return hl_strdup(out, found);
    }
    return hl_fail(
        HL_NOT_FOUND,
        "%s: no file or folder of that name, and no such model in the Hugging Face cache, "
        "in Ollama's folder or in LM Studio's",
        name);
}
