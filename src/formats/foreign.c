/* foreign.c - weight files that headlight cannot read: names them and says how to convert them.
 *
 * A user who names the wrong file needs one sentence, not "bad magic": what the file is, and the
 * command that converts it.  A file is recognized by its first bytes, or by the ending of its name
 * if the format has no magic number.
 *
 * Pickles (PyTorch's .bin and .pt) are refused on purpose: reading one means running
 * the program that it contains. */
#define _GNU_SOURCE /* memmem; NOLINT(bugprone-reserved-identifier): the C library asks for it */
#include "formats/tensors.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"

/* The advice depends on the files beside this one (save_advice). */
#define SAVE_AS_SAFETENSORS NULL
#define CONVERT_AGAIN       "convert the original model again, with llama.cpp's convert_hf_to_gguf.py"
#define USE_THE_ORIGINAL    "use the safetensors of the original model"

typedef struct foreign_kind {
    const char *what;
    const char *advice; /* NULL: load and save it with transformers, if that can work */
    const char *start;  /* the bytes at `offset`; NULL: recognized by its name */
    size_t      n_start;
    size_t      offset;
    const char *ending; /* ending of the name; NULL: recognized by its bytes */
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

/* ------------------------------------------------------------------- advice */

/* Checkpoints that transformers' from_pretrained cannot load.  They are recognized by words in
 * their pickle, which PyTorch writes before the weights. */
static const char *other_software(const uint8_t *bytes, size_t n_bytes)
{
    static const struct {
        const char *word;
        const char *what;
    } signs[] = {
        { "fairseq", "a fairseq checkpoint" },
        { "optimizer_history", "a fairseq checkpoint" },
        { "n_audio_ctx", "an OpenAI checkpoint" },
        { "code/__torch__", "a TorchScript program" },
    };
    enum { LOOKED_AT = 1 << 22 };

    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        if (memmem(bytes, n_bytes < LOOKED_AT ? n_bytes : LOOKED_AT, signs[i].word,
                   strlen(signs[i].word)) != NULL)
            return signs[i].what;
    }
    return NULL;
}

/* Whether all characters are safe in a shell and in Python, so that the advice can be pasted. */
static bool is_plain(const char *text)
{
    return text[strspn(text,
                       "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-/+@")] ==
           '\0';
}

/* The transformers class that loads an architecture with its output head. */
static const char *loader_of(const json_t *config)
{
    static const struct {
        const char *ending;
        const char *loader;
    } known[] = {
        { "ForMaskedLM", "AutoModelForMaskedLM" },
        { "ForPreTraining", "AutoModelForPreTraining" },
        { "ForSequenceClassification", "AutoModelForSequenceClassification" },
        { "ForTokenClassification", "AutoModelForTokenClassification" },
        { "ForConditionalGeneration", "AutoModelForSeq2SeqLM" },
    };
    const char *architecture =
        json_string_value(json_array_get(json_object_get(config, "architectures"), 0));

    for (size_t i = 0; architecture != NULL && i < sizeof known / sizeof *known; i++) {
        if (hl_ends_with(architecture, known[i].ending))
            return known[i].loader;
    }
    /* GPT2LMHeadModel ends in Model as well, but has a head. */
    return architecture != NULL && hl_ends_with(architecture, "Model") &&
                   !hl_ends_with(architecture, "LMHeadModel")
               ? "AutoModel"
               : "AutoModelForCausalLM";
}

/* Writes how to convert a transformers checkpoint to safetensors.  `out` becomes "" if transformers
 * could not load it either, because no file says which model it is. */
static hl_status save_advice(char *out, size_t room, const char *folder)
{
    HL_CLOSED(json_decref) json_t *config = NULL;
    HL_FREED char                 *path   = NULL;

    out[0] = '\0';
    HL_NEED(hl_path_join(&path, folder, "config.json"));
    if (access(path, F_OK) != 0)
        return HL_OK;
    HL_NEED(hl_json_parse_file(&config, path));
    const char *loader = loader_of(config);
    if (is_plain(folder))
        snprintf(out, room,
                 "convert it, and its tokenizer, with transformers: python3 -c \"from transformers "
                 "import %s as M, AutoTokenizer as T; [k.from_pretrained('%s').save_pretrained("
                 "'%s-safetensors') for k in (M, T)]\"",
                 loader, folder, strcmp(folder, ".") == 0 ? "model" : folder);
    else
        snprintf(out, room,
                 "convert it, and its tokenizer, with transformers: from_pretrained, then "
                 "save_pretrained, of %s and AutoTokenizer",
                 loader);
    return HL_OK;
}

static hl_status refuse_kind(const char *path, const char *folder, const foreign_kind *kind,
                             const uint8_t *bytes, size_t n_bytes)
{
    char        advice[768];
    const char *other = kind->advice == NULL ? other_software(bytes, n_bytes) : NULL;

    if (other != NULL)
        return hl_fail(HL_UNSUPPORTED,
                       "%s: %s, which is neither read here nor loaded by transformers; use a "
                       "version of the model in Hugging Face's format, with safetensors",
                       path, other);
    if (kind->advice == NULL)
        HL_NEED(save_advice(advice, sizeof advice, folder));
    if (kind->advice == NULL && advice[0] == '\0')
        return hl_fail(
            HL_UNSUPPORTED,
            "%s: %s, which is not read here; no config.json lies beside it that would say "
            "how to convert it: use the safetensors of the original model",
            path, kind->what);
    return hl_fail(HL_UNSUPPORTED, "%s: %s, which is not read here; %s", path, kind->what,
                   kind->advice != NULL ? kind->advice : advice);
}

hl_status hl_foreign_check_file(const char *path, const uint8_t *bytes, size_t n_bytes)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!is_kind(&kinds[i], path, bytes, n_bytes))
            continue;
        HL_FREED char *folder = NULL;
        HL_NEED(hl_path_folder(&folder, path));
        return refuse_kind(path, folder, &kinds[i], bytes, n_bytes);
    }
    return HL_OK;
}

/* ------------------------------------------------------------ quantization */

/* Returns the method that quantized the weights; NULL if there is none or headlight reads it. */
static const char *quantizer(const json_t *config)
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
    return strcmp(method, "mxfp4") == 0 ? NULL : method; /* headlight reads it */
}

static hl_status check_config(const char *path)
{
    HL_CLOSED(json_decref) json_t *config = NULL;

    HL_NEED(hl_json_parse_file(&config, path));
    const char *method = quantizer(config);
    if (method == NULL) /* models with images keep the language model's settings in text_config */
        method = quantizer(json_object_get(config, "text_config"));
    if (method != NULL)
        return hl_fail(HL_UNSUPPORTED,
                       "%s: weights quantized by %s are not read here; use the original model or "
                       "a GGUF file of it, or load it with transformers, call dequantize() and "
                       "save_pretrained(NEW)",
                       path, method);
    return HL_OK;
}

hl_status hl_foreign_check_folder(const char *folder)
{
    HL_FREED char *config = NULL;
    HL_FREED char *gptq   = NULL;

    HL_NEED(hl_path_join(&config, folder, "config.json"));
    HL_NEED(hl_path_join(&gptq, folder, "quantize_config.json"));
    if (access(config, F_OK) == 0)
        HL_NEED(check_config(config));
    if (access(gptq, F_OK) == 0)
        return hl_fail(HL_UNSUPPORTED,
                       "%s: weights quantized by gptq are not read here; use the original model or "
                       "a GGUF file of it",
                       gptq);
    return HL_OK;
}

/* ------------------------------------------------------------------ folders */

/* How well a file's name identifies the folder's format; 0: not at all. */
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

/* Finds the file whose name says most, the first by name among equals; "" if none says anything. */
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

/* Explains a file by its contents, not by its name alone. */
static hl_status explain_file(const char *folder, const char *name)
{
    static const foreign_kind        checkpoint = { .what = "a PyTorch checkpoint" };
    HL_FREED char                   *path       = NULL;
    HL_SCOPED(hl_file_unmap) hl_file file       = { 0 };

    HL_NEED(hl_path_join(&path, folder, name));
    HL_NEED(hl_file_map(&file, path));
    HL_NEED(hl_foreign_check_file(path, file.bytes, file.n_bytes));
    return refuse_kind(path, folder, &checkpoint, file.bytes, file.n_bytes);
}

hl_status hl_foreign_explain_folder(const char *folder)
{
    char name[256];

    HL_NEED(most_telling(name, sizeof name, folder));
    switch (weight_of(name)) {
    case 5:
        return hl_fail(HL_UNSUPPORTED,
                       "%s: an adapter (%s), not a model; merge it into its model first", folder,
                       name);
    case 4:
        return hl_fail(HL_BAD_INPUT, "%s: holds GGUF files; name one of them, such as %s", folder,
                       name);
    case 3:
    case 2:
        return explain_file(folder, name);
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
