/* foreign.c - weights that are not read here: what they are, and how to convert them.
 *
 * Somebody who points at the wrong file wants one sentence, not "bad magic": what the
 * file is, and the command that makes something readable of it.  A file is known
 * by its first bytes where a format has such, else by the ending of its name.
 *
 * Pickles (PyTorch's .bin and .pt) are refused on purpose: reading one means running
 * the program that it contains. */
#include "formats/foreign.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/path.h"
#include "base/status.h"

#define SAVE_AS_SAFETENSORS                                                                        \
    "convert it with transformers: AutoModel.from_pretrained(OLD).save_pretrained(NEW)"
#define CONVERT_AGAIN    "convert the original model again, with llama.cpp's convert_hf_to_gguf.py"
#define USE_THE_ORIGINAL "use the safetensors of the original model"

typedef struct foreign_kind {
    const char *what;
    const char *advice;
    const char *start; /* the bytes at `offset`; NULL: known by its name */
    size_t      n_start;
    size_t      offset;
    const char *ending; /* of the name; NULL: known by its bytes */
} foreign_kind;

#define STARTS_WITH(bytes)    (bytes), sizeof(bytes) - 1, 0, NULL
#define HAS_AT(offset, bytes) (bytes), sizeof(bytes) - 1, (offset), NULL
#define ENDS_WITH(text)       NULL, 0, 0, (text)

static const foreign_kind kinds[] = {
    { "a Git LFS pointer (the weights themselves were not downloaded)", "run 'git lfs pull' there",
      STARTS_WITH("version https://git-lfs") },
    { "a PyTorch checkpoint", SAVE_AS_SAFETENSORS, STARTS_WITH("PK\003\004") },
    { "a PyTorch checkpoint", SAVE_AS_SAFETENSORS, STARTS_WITH("\x80\x02") },
    { "a pickle", SAVE_AS_SAFETENSORS, STARTS_WITH("\x80\x03") },
    { "a pickle", SAVE_AS_SAFETENSORS, STARTS_WITH("\x80\x04") },
    { "a pickle", SAVE_AS_SAFETENSORS, STARTS_WITH("\x80\x05") },
    { "HDF5 weights of Keras or TensorFlow", SAVE_AS_SAFETENSORS, STARTS_WITH("\x89HDF\r\n") },
    { "a TensorFlow Lite model", USE_THE_ORIGINAL, HAS_AT(4, "TFL3") },
    { "a NumPy array", USE_THE_ORIGINAL, STARTS_WITH("\x93NUMPY") },
    { "a GGML file from before GGUF", CONVERT_AGAIN, STARTS_WITH("lmgg") },
    { "a GGMF file from before GGUF", CONVERT_AGAIN, STARTS_WITH("fmgg") },
    { "a GGJT file from before GGUF", CONVERT_AGAIN, STARTS_WITH("tjgg") },
    { "a GGLA adapter", "merge it into its model first", STARTS_WITH("algg") },
    { "a web page, not a model", "download it again", STARTS_WITH("<!DOCTYPE") },
    { "a web page, not a model", "download it again", STARTS_WITH("<!doctype") },
    { "a web page, not a model", "download it again", STARTS_WITH("<html") },
    { "an ONNX model", USE_THE_ORIGINAL, ENDS_WITH(".onnx") },
    { "Flax weights", SAVE_AS_SAFETENSORS, ENDS_WITH(".msgpack") },
    { "HDF5 weights of Keras or TensorFlow", SAVE_AS_SAFETENSORS, ENDS_WITH(".h5") },
    { "a TensorFlow checkpoint", SAVE_AS_SAFETENSORS, ENDS_WITH(".ckpt.index") },
    { "a checkpoint of PyTorch or TensorFlow", SAVE_AS_SAFETENSORS, ENDS_WITH(".ckpt") },
    { "a PyTorch checkpoint", SAVE_AS_SAFETENSORS, ENDS_WITH(".pt") },
    { "a PyTorch checkpoint", SAVE_AS_SAFETENSORS, ENDS_WITH(".pth") },
    { "a TensorFlow Lite model", USE_THE_ORIGINAL, ENDS_WITH(".tflite") },
    { "weights of rust-bert", USE_THE_ORIGINAL, ENDS_WITH(".ot") },
    { "a TensorRT engine", USE_THE_ORIGINAL, ENDS_WITH(".engine") },
    { "a Core ML model", USE_THE_ORIGINAL, ENDS_WITH(".mlmodel") },
    { "a configuration, not weights", "give the folder that it lies in", ENDS_WITH(".json") },
};

static bool is_kind(const foreign_kind *kind, const char *path, const uint8_t *bytes,
                    size_t n_bytes)
{
    if (kind->start == NULL)
        return hl_ends_with(path, kind->ending);
    return n_bytes >= kind->offset + kind->n_start &&
           memcmp(bytes + kind->offset, kind->start, kind->n_start) == 0;
}

hl_status hl_foreign_check_file(const char *path, const uint8_t *bytes, size_t n_bytes)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (is_kind(&kinds[i], path, bytes, n_bytes))
            return hl_fail(HL_UNSUPPORTED, "%s: %s, which is not read here; %s", path,
                           kinds[i].what, kinds[i].advice);
    }
    return HL_OK;
}

/* ------------------------------------------------------------ quantisation */

/* What quantised the weights; NULL if nothing did, or in a way that we read. */
static const char *quantiser(const json_t *config)
{
    const json_t *settings = json_object_get(config, "quantization_config");
    const char   *method   = json_string_value(json_object_get(settings, "quant_method"));

    if (!json_is_object(settings))
        return NULL;
    if (method == NULL && (json_is_true(json_object_get(settings, "load_in_8bit")) ||
                           json_is_true(json_object_get(settings, "load_in_4bit"))))
        return "bitsandbytes";
    if (method == NULL)
        return "a method that config.json does not name";
    return strcmp(method, "mxfp4") == 0 ? NULL : method; /* gpt_oss: blocks and scales apart */
}

static hl_status check_config(const char *path)
{
    hl_status status = HL_OK;
    hl_file   file   = { 0 };
    json_t   *config = NULL;

    HL_TRY(hl_file_map(&file, path));
    HL_TRY(hl_json_parse(&config, (const char *)file.bytes, file.n_bytes, path));
    const char *method = quantiser(config);
    if (method == NULL) /* models that see keep the language model's settings apart */
        method = quantiser(json_object_get(config, "text_config"));
    if (method != NULL)
        status = hl_fail(HL_UNSUPPORTED,
                         "%s: weights quantised by %s are not read here; use the original model or "
                         "a GGUF file of it, or load it with transformers, call dequantize() and "
                         "save_pretrained(NEW)",
                         path, method);

done:
    json_decref(config);
    hl_file_unmap(&file);
    return status;
}

hl_status hl_foreign_check_folder(const char *folder)
{
    size_t    room   = strlen(folder) + sizeof "/quantize_config.json";
    char     *path   = NULL;
    hl_status status = HL_ALLOC(&path, room);

    if (status != HL_OK)
        return status;
    snprintf(path, room, "%s/config.json", folder);
    if (access(path, F_OK) == 0)
        HL_TRY(check_config(path));
    snprintf(path, room, "%s/quantize_config.json", folder);
    if (access(path, F_OK) == 0)
        HL_TRY(hl_fail(HL_UNSUPPORTED,
                       "%s: weights quantised by gptq are not read here; use the original model or "
                       "a GGUF file of it",
                       path));

done:
    hl_free(path);
    return status;
}

/* ------------------------------------------------------------------ folders */

/* How much a file's name says about what the folder is; 0: nothing. */
static int weight_of(const char *name)
{
    if (strcmp(name, "adapter_model.safetensors") == 0)
        return 5;
    if (hl_ends_with(name, ".gguf"))
        return 4;
    if (strcmp(name, "pytorch_model.bin") == 0 || strcmp(name, "pytorch_model.bin.index.json") == 0)
        return 3;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (kinds[i].ending != NULL && !hl_ends_with(name, ".json") &&
            hl_ends_with(name, kinds[i].ending))
            return 2;
    }
    return hl_ends_with(name, ".safetensors") || hl_ends_with(name, ".bin") ? 1 : 0;
}

/* The file that tells most, of equals the first by name; "" if none does. */
static hl_status most_telling(char *out, size_t room, const char *folder)
{
    DIR *directory = hl_sys_opendir(folder);
    int  best      = 0;

    out[0] = '\0';
    if (directory == NULL)
        return hl_fail(HL_IO, "%s: the folder cannot be read", folder);
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        int weight = weight_of(entry->d_name);
        if (weight > best || (weight == best && weight > 0 && strcmp(entry->d_name, out) < 0)) {
            best = weight;
            snprintf(out, room, "%s", entry->d_name);
        }
    }
    closedir(directory);
    return HL_OK;
}

hl_status hl_foreign_explain_folder(const char *folder)
{
    char      name[256];
    hl_status status = most_telling(name, sizeof name, folder);

    if (status != HL_OK)
        return status;
    switch (weight_of(name)) {
    case 5:
        return hl_fail(HL_UNSUPPORTED,
                       "%s: an adapter (%s), not a model; merge it into its model first", folder,
                       name);
    case 4:
        return hl_fail(HL_BAD_INPUT, "%s: holds GGUF files; name one of them, such as %s", folder,
                       name);
    case 3:
        return hl_fail(HL_UNSUPPORTED,
                       "%s: its weights are a PyTorch checkpoint (%s), which is not read "
                       "here; " SAVE_AS_SAFETENSORS,
                       folder, name);
    case 2:
        status = hl_foreign_check_file(name, (const uint8_t *)"", 0);
        return hl_fail_within(status, "%s", folder);
    case 1:
        return hl_fail(HL_BAD_INPUT,
                       "%s: no model.safetensors here; name the file with the weights, such as %s",
                       folder, name);
    default:
        return hl_fail(HL_NOT_FOUND,
                       "%s: no weights here: wanted model.safetensors or "
                       "model.safetensors.index.json",
                       folder);
    }
}
