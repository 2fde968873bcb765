/* write_folder.c - a Hugging Face folder without some heads.
 *
 *     model.safetensors    all weights in one file, whatever shards they came from
 *     config.json          as it was, or with fewer heads (compact.h), more biases, or the
 *                          key n_ctx that llama.cpp's converter wants of a GPT-2
 *     modeling_*.py        where other code is needed to load that
 *     the rest             copied: tokenizer, generation_config.json, templates, cards
 *
 * Other weights in the folder (shards, indexes, other formats) are those of the whole
 * model and stay behind, as do folders in it. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "formats/safetensors.h"
#include "prune/compact.h"
#include "prune/new_biases.h"
#include "prune/slices.h"
#include "prune/write.h"

static const char *const loads_of[] = {
    [HL_COMPACT_PLAIN] = "transformers, as it is",
    [HL_COMPACT_CODE]  = "transformers with trust_remote_code=True",
    [HL_COMPACT_OURS]  = "headlight alone",
};

/* ------------------------------------------------------------------------ weights */

static hl_status write_weights(const hl_folder *folder, const hl_model *model,
                               const hl_head_plan *plan)
{
    hl_status              status = HL_OK;
    hl_slices             *slices = NULL;
    hl_new_biases         *biases = NULL;
    hl_safetensors_writer *writer = NULL;
    char                  *path   = NULL;
    char                  *heads  = NULL;

    HL_TRY(hl_slices_new(&slices, model, plan));
    HL_TRY(hl_new_biases_new(&biases, model, plan));
    HL_TRY(hl_safetensors_writer_new(&writer));
    for (size_t i = 0; i < hl_slices_count(slices); i++) {
        hl_tensor tensor = *hl_slices_at(slices, i);
        if (hl_head_plan_is_compact(plan, model->config))
            tensor.name = hl_compact_tensor_name(model->config, tensor.name);
        hl_safetensors_add(writer, &tensor);
    }
    for (size_t i = 0; i < hl_new_biases_count(biases); i++)
        hl_safetensors_add(writer, hl_new_biases_at(biases, i));
    HL_TRY(hl_prune_heads_text(&heads, model, plan));
    hl_safetensors_add_metadata(writer, "format", "pt");
    hl_safetensors_add_metadata(writer, "headlight.pruned_heads", heads);
    HL_TRY(hl_folder_join(&path, folder, "model.safetensors"));
    HL_TRY(hl_safetensors_write(writer, path));

done:
    hl_free(path);
    hl_free(heads);
    hl_safetensors_writer_free(writer);
    hl_new_biases_free(biases);
    hl_slices_free(slices);
    return status;
}

/* ------------------------------------------------------------------------ the rest */

/* Weights of the whole model, in whatever format, and hidden files. */
static bool stays_behind(const char *name)
{
    static const char *const endings[] = {
        ".safetensors", ".index.json", ".bin", ".gguf", ".h5",
        ".msgpack",     ".ot",         ".pt",  ".pth",  ".onnx"
    };

    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        if (hl_ends_with(name, endings[i]))
            return true;
    }
    return name[0] == '.';
}

static hl_status copy_one(const hl_folder *folder, const char *from_folder, const char *name)
{
    hl_status   status = HL_OK;
    char       *from   = NULL;
    char       *to     = NULL;
    struct stat about;

    HL_TRY(hl_path_join(&from, from_folder, name));
    if (stat(from, &about) == 0 && S_ISREG(about.st_mode)) { /* also through a link */
        HL_TRY(hl_folder_join(&to, folder, name));
        HL_TRY(hl_file_copy(to, from));
    }

done:
    hl_free(from);
    hl_free(to);
    return status;
}

static hl_status copy_rest(const hl_folder *folder, const char *from)
{
    hl_status status    = HL_OK;
    DIR      *directory = hl_sys_opendir(from);

    if (directory == NULL)
        return hl_fail(HL_IO, "%s: %s", from, strerror(errno));
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (!stays_behind(entry->d_name))
            HL_TRY(copy_one(folder, from, entry->d_name));
    }

done:
    closedir(directory);
    return status;
}

static hl_status write_text(const hl_folder *folder, const char *name, const char *text)
{
    hl_status  status = HL_OK;
    char      *path   = NULL;
    hl_writer *writer = NULL;

    HL_TRY(hl_folder_join(&path, folder, name));
    HL_TRY(hl_writer_open(&writer, path));
    hl_writer_write(writer, text, strlen(text));
    status = hl_writer_finish(writer);

done:
    hl_free(path);
    return status;
}

/* ------------------------------------------------------------------- config.json */

static hl_status read_json(json_t **out, const char *folder, const char *name)
{
    hl_status status = HL_OK;
    char     *path   = NULL;
    hl_file   file   = { 0 };

    HL_TRY(hl_path_join(&path, folder, name));
    HL_TRY(hl_file_map(&file, path));
    HL_TRY(hl_json_parse(out, (const char *)file.bytes, file.n_bytes, path));

done:
    hl_file_unmap(&file);
    hl_free(path);
    return status;
}

/* As text, in 15 digits where these say all that is there: 0.1, not 0.10000000000000001.
 * Release with hl_free; NULL when memory ran out. */
static char *json_text(const json_t *root)
{
    char   *text = hl_json_dump(root, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    json_t *back = NULL;

    if (text == NULL)
        return NULL;
    hl_status status = hl_json_parse(&back, text, strlen(text), "config.json");
    if (status != HL_OK || !json_equal(root, back)) {
        hl_free(text);
        text = status != HL_NO_MEMORY ? hl_json_dump(root, JSON_INDENT(2)) : NULL;
    }
    json_decref(back);
    return text;
}

/* llama.cpp's converter looks for the context of a GPT-2 under the key n_ctx, which transformers
 * no longer writes.  True if it was added. */
static bool add_context(json_t *root)
{
    const json_t *type    = json_object_get(root, "model_type");
    json_t       *context = json_object_get(root, "n_positions");

    if (!json_is_string(type) || strcmp(json_string_value(type), "gpt2") != 0 ||
        !json_is_integer(context) || json_object_get(root, "n_ctx") != NULL)
        return false;
    return json_object_set(root, "n_ctx", context) == 0;
}

/* Writes config.json only where it differs from the one that was copied. */
static hl_status write_config(const char **loads, const hl_folder *folder, const hl_model *model,
                              const hl_head_plan *plan)
{
    hl_status       status = HL_OK;
    hl_compact_form form   = HL_COMPACT_PLAIN;
    json_t         *root   = NULL;
    char           *text   = NULL;
    char           *code   = NULL;
    char            name[HL_COMPACT_CODE_NAME];
    bool            is_compact  = hl_head_plan_is_compact(plan, model->config);
    bool            adds_biases = hl_head_plan_adds_biases(plan, model->config);

    HL_TRY(read_json(&root, hl_tensors_folder(model->tensors), "config.json"));
    if (!add_context(root) && !is_compact && !adds_biases)
        goto done;
    if (is_compact)
        HL_TRY(hl_compact_config(&form, root, model->config, plan));
    if (adds_biases)
        HL_TRY(hl_compact_add_biases(root));
    text = json_text(root);
    if (text == NULL)
        HL_TRY(hl_fail(HL_NO_MEMORY, "out of memory for config.json"));
    HL_TRY(write_text(folder, "config.json", text));
    if (form == HL_COMPACT_CODE) {
        HL_TRY(hl_compact_code(name, &code, root, model->config));
        HL_TRY(write_text(folder, name, code));
    }
    *loads = loads_of[form];

done:
    hl_free(code);
    hl_free(text); /* jansson's */
    json_decref(root);
    return status;
}

/* ---------------------------------------------------------------------- the whole */

/* Does it open, before anybody else sees it? */
static hl_status try_folder(const hl_folder *folder)
{
    hl_status status = HL_OK;
    hl_model *model  = NULL;
    char     *path   = NULL;

    HL_TRY(hl_folder_join(&path, folder, "model.safetensors"));
    HL_TRY(hl_model_open(&model, path));

done:
    hl_model_close(model);
    hl_free(path);
    return status;
}

hl_status hl_prune_write_folder(const char **loads, const hl_model *model, const hl_head_plan *plan,
                                const char *path)
{
    hl_status  status = HL_OK;
    hl_folder *folder = NULL;

    HL_TRY(hl_folder_create(&folder, path));
    HL_TRY(copy_rest(folder, hl_tensors_folder(model->tensors)));
    *loads = loads_of[HL_COMPACT_PLAIN];
    HL_TRY(write_config(loads, folder, model, plan));
    HL_TRY(write_weights(folder, model, plan));
    HL_TRY(try_folder(folder));
    HL_TRY(hl_folder_finish(&folder));

done:
    hl_folder_abandon(folder);
    return status;
}
