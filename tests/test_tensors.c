/* test_tensors.c - a model's tensors in folders, shards, parts and single files. */
#include "support.h"

#include <dirent.h>
#include <sys/stat.h>
#include <time.h>

#include "formats/gguf.h"
#include "formats/llama2c.h"
#include "formats/safetensors.h"
#include "formats/tensors.h"

static const char *folder;

static const char *here(const char *name)
{
    return in_folder(folder, name);
}

static void write_text(const char *name, const char *text)
{
    write_file(here(name), text, strlen(text));
}

/* Every test starts with an empty folder. */
static int clear_folder(void **state)
{
    (void)state;
    visit_folder(folder, 1);
    return 0;
}

static hl_tensors *open_here(const char *name)
{
    hl_tensors *tensors = NULL;
    assert_ok(hl_tensors_open(&tensors, here(name)));
    return tensors;
}

static void refuse(const char *name, hl_status status, const char *fragment)
{
    hl_tensors *tensors = (hl_tensors *)&tensors;
    assert_fails(status, fragment, hl_tensors_open(&tensors, here(name)));
    assert_null(tensors);
}

static float number_of(const hl_tensors *tensors, const char *name)
{
    const hl_tensor *tensor = hl_tensors_find(tensors, name);
    float            value;

    if (tensor == NULL)
        fail_msg("no tensor %s", name);
    memcpy(&value, tensor->data, sizeof value);
    return value;
}

/* -------------------------------------------------------------- safetensors */

/* Writes a file with one tensor per letter, each of one number: "abc" has the tensors a, b, c. */
static void write_shard(const char *file, const char *letters)
{
    hl_safetensors_writer *writer = NULL;
    float                  numbers[8];

    assert_ok(hl_safetensors_writer_new(&writer));
    for (size_t i = 0; letters[i] != '\0'; i++) {
        char name[2]     = { letters[i], '\0' };
        numbers[i]       = (float)letters[i];
        hl_tensor tensor = { name, HL_DTYPE_F32, 1, { 1 }, &numbers[i], 4 };
        hl_safetensors_add(writer, &tensor);
    }
    assert_ok(hl_safetensors_write(writer, here(file)));
    hl_safetensors_writer_free(writer);
}

#define SHARD_1 "model-00001-of-00002.safetensors"
#define SHARD_2 "model-00002-of-00002.safetensors"
#define INDEX   "model.safetensors.index.json"

static void write_shards(void)
{
    write_shard(SHARD_1, "ac");
    write_shard(SHARD_2, "bd");
    write_text(INDEX, "{\"metadata\":{\"total_size\":16},\"weight_map\":{\"a\":\"" SHARD_1
                      "\",\"b\":\"" SHARD_2 "\",\"c\":\"" SHARD_1 "\",\"d\":\"" SHARD_2 "\"}}");
}

static void a_folder_with_one_file(void **state)
{
    (void)state;
    write_shard("model.safetensors", "xy");
    write_text("config.json", "{\"model_type\":\"llama\",\"quantization_config\":null}");
    hl_tensors *tensors = open_here("");
    assert_int_equal(hl_tensors_kind_of(tensors), HL_TENSORS_SAFETENSORS);
    assert_int_equal(hl_tensors_count(tensors), 2);
    assert_string_equal(hl_tensors_folder(tensors), folder);
    assert_true(number_of(tensors, "y") == 'y');
    assert_string_equal(hl_tensors_at(tensors, 0)->name, "x");
    assert_null(hl_tensors_at(tensors, 2));
    assert_null(hl_tensors_find(tensors, "z"));
    assert_null(hl_tensors_gguf(tensors));
    assert_null(hl_tensors_llama2c(tensors));
    hl_tensors_close(tensors);
    hl_tensors_close(NULL);

    tensors = open_here("model.safetensors"); /* the path of the file itself */
    assert_string_equal(hl_tensors_folder(tensors), folder);
    assert_int_equal(hl_tensors_count(tensors), 2);
    hl_tensors_close(tensors);
}

static void shards_make_one_model(void **state)
{
    static const char *const names[] = { "", INDEX, SHARD_1, SHARD_2 };
    (void)state;

    write_shards();
    for (size_t i = 0; i < 4; i++) {
        hl_tensors *tensors = open_here(names[i]);
        assert_int_equal(hl_tensors_count(tensors), 4);
        for (char letter = 'a'; letter <= 'd'; letter++)
            assert_true(number_of(tensors, (char[2]){ letter }) == letter);
        assert_string_equal(hl_tensors_at(tensors, 1)->name, "c"); /* in the order of the shards */
        hl_tensors_close(tensors);
    }
    write_shard(SHARD_2, "bdaz"); /* tensors that the map does not assign to the shard are
                                   * ignored */
    hl_tensors *tensors = open_here("");
    assert_int_equal(hl_tensors_count(tensors), 4);
    hl_tensors_close(tensors);
}

/* The hash depends on the tensors, not on the files that store them. */
static void the_hash_is_of_the_tensors(void **state)
{
    (void)state;
    write_shards();
    hl_tensors *tensors = open_here("");
    uint64_t    spread  = hl_tensors_hash(tensors, 2);
    assert_true(spread == hl_tensors_hash(tensors, 1));
    hl_tensors_close(tensors);

    clear_folder(NULL);
    write_shard("model.safetensors", "dbca");
    tensors = open_here("");
    assert_true(spread == hl_tensors_hash(tensors, 2));
    hl_tensors_close(tensors);

    write_shard("model.safetensors", "abc");
    tensors = open_here("");
    assert_true(spread != hl_tensors_hash(tensors, 2));
    hl_tensors_close(tensors);
}

static void every_part_of_a_tensor_is_hashed(void **state)
{
    (void)state;
    static const float numbers[6] = { 1, 2, 3, 4, 5, 6 };
    static const float others[6]  = { 1, 2, 3, 4, 5, 7 };
    hl_tensor          tensor     = { "w", HL_DTYPE_F32, 2, { 2, 3 }, numbers, 24 };
    uint64_t           hash       = hl_tensor_hash(&tensor);

    hl_tensor changed = tensor;
    changed.name      = "v";
    assert_true(hl_tensor_hash(&changed) != hash);
    changed       = tensor;
    changed.dtype = HL_DTYPE_I32;
    assert_true(hl_tensor_hash(&changed) != hash);
    changed = (hl_tensor){ "w", HL_DTYPE_F32, 2, { 3, 2 }, numbers, 24 };
    assert_true(hl_tensor_hash(&changed) != hash);
    changed      = tensor;
    changed.data = others;
    assert_true(hl_tensor_hash(&changed) != hash);
}

static void incomplete_shards_are_refused(void **state)
{
    (void)state;
    write_shards();
    unlink(here(SHARD_2));
    refuse("", HL_NOT_FOUND, INDEX ": shard " SHARD_2 " is missing");
    write_shard(SHARD_2, "b");
    refuse("", HL_BAD_INPUT, "tensor 'd' is not in " SHARD_2);
    write_file(here(SHARD_2), "junk", 4);
    refuse("", HL_BAD_INPUT, SHARD_2 ": 4 bytes");
    unlink(here(INDEX));
    refuse(SHARD_1, HL_NOT_FOUND, "one of 2 shards, but " INDEX " is missing");
}

static void impossible_indices_are_refused(void **state)
{
    (void)state;
    write_text(INDEX, "{\"weight_map\":{\"a\":\"../a.safetensors\"}}");
    refuse("", HL_BAD_INPUT, "weight_map: 'a' is not mapped to the name of a file");
    write_text(INDEX, "{\"weight_map\":{\"a\":\"other/a.safetensors\"}}");
    refuse("", HL_BAD_INPUT, "weight_map: 'a' is not mapped to the name of a file");
    write_text(INDEX, "{\"weight_map\":{\"a\":1}}");
    refuse("", HL_BAD_INPUT, "'a' is not mapped");
    write_text(INDEX, "{\"weight_map\":{}}");
    refuse("", HL_BAD_INPUT, "weight_map is missing, empty");
    write_text(INDEX, "{\"weight_map\":[]}");
    refuse("", HL_BAD_INPUT, "weight_map is missing");
    write_text(INDEX, "{\"weight_map\"");
    refuse("", HL_BAD_INPUT, "JSON line 1");
}

/* --------------------------------------------------------------------- GGUF */

/* Writes one part: tensors as in write_shard, and its metadata on the split. */
static void write_part(const char *file, const char *letters, int number, int count, int n_tensors)
{
    hl_gguf_writer *writer = NULL;
    float           numbers[8];

    assert_ok(hl_gguf_writer_new(&writer));
    if (count > 0) {
        hl_gguf_add_int(writer, "split.no", HL_GGUF_U16, number);
        hl_gguf_add_int(writer, "split.count", HL_GGUF_U16, count);
        hl_gguf_add_int(writer, "split.tensors.count", HL_GGUF_I32, n_tensors);
    }
    for (size_t i = 0; letters[i] != '\0'; i++) {
        char name[2]     = { letters[i], '\0' };
        numbers[i]       = (float)letters[i];
        hl_tensor tensor = { name, HL_DTYPE_F32, 1, { 1 }, &numbers[i], 4 };
        hl_gguf_add_tensor(writer, &tensor);
    }
    assert_ok(hl_gguf_write(writer, here(file)));
    hl_gguf_writer_free(writer);
}

#define PART_1 "m-00001-of-00003.gguf"
#define PART_2 "m-00002-of-00003.gguf"
#define PART_3 "m-00003-of-00003.gguf"

static void write_parts(void)
{
    write_part(PART_1, "", 0, 3, 3); /* only metadata, as in the first part of some splits */
    write_part(PART_2, "ba", 1, 3, 3);
    write_part(PART_3, "c", 2, 3, 3);
}

static void a_gguf_file(void **state)
{
    (void)state;
    write_part("model.gguf", "xy", 0, 0, 0);
    hl_tensors *tensors = open_here("model.gguf");
    assert_int_equal(hl_tensors_kind_of(tensors), HL_TENSORS_GGUF);
    assert_int_equal(hl_tensors_count(tensors), 2);
    assert_true(number_of(tensors, "x") == 'x');
    assert_non_null(hl_tensors_gguf(tensors));
    hl_tensors_close(tensors);
    write_part("one-00001-of-00001.gguf", "x", 0, 1, 1);
    tensors = open_here("one-00001-of-00001.gguf");
    hl_tensors_close(tensors);
}

static void parts_make_one_model(void **state)
{
    static const char *const names[] = { PART_1, PART_2, PART_3 };
    (void)state;

    write_parts();
    for (size_t i = 0; i < 3; i++) {
        hl_tensors *tensors = open_here(names[i]);
        int64_t     number  = -1;
        assert_int_equal(hl_tensors_count(tensors), 3);
        assert_true(number_of(tensors, "c") == 'c' && number_of(tensors, "a") == 'a');
        assert_ok(hl_gguf_get_int(&number, hl_tensors_gguf(tensors), "split.no"));
        assert_int_equal(number, 0);
        hl_tensors_close(tensors);
    }
}

static void incomplete_splits_are_refused(void **state)
{
    (void)state;
    write_parts();
    write_part(PART_3, "c", 1, 3, 3);
    refuse(PART_1, HL_BAD_INPUT, PART_3 ": split.no is 1 of 3, wanted 2 of 3");
    write_part(PART_3, "c", 2, 4, 3);
    refuse(PART_1, HL_BAD_INPUT, "split.no is 2 of 4");
    write_part(PART_3, "c", 0, 0, 0);
    refuse(PART_1, HL_BAD_INPUT, "split.no is -1 of -1");
    write_part(PART_3, "cd", 2, 3, 3);
    refuse(PART_1, HL_BAD_INPUT, "split.tensors.count is 3, the parts hold 4");
    write_part(PART_3, "a", 2, 3, 3);
    refuse(PART_1, HL_BAD_INPUT, "tensor 'a' is in two of its files");
    unlink(here(PART_2));
    refuse(PART_1, HL_NOT_FOUND, PART_1 ": part " PART_2 " is missing");
    write_part("renamed.gguf", "a", 0, 3, 3);
    refuse("renamed.gguf", HL_BAD_INPUT, "its name should end in -0000N-of-00003.gguf");
}

/* ----------------------------------------------------------------- llama2.c */

static void a_llama2c_file(void **state)
{
    const int32_t sizes[7]           = { 2, 1, 1, 1, 1, 3, 1 };
    uint8_t       bytes[28 + 4 * 36] = { 0 };
    (void)state;

    memcpy(bytes, sizes, sizeof sizes);
    write_file(here("stories.bin"), bytes, sizeof bytes);
    hl_tensors *tensors = open_here("stories.bin");
    assert_int_equal(hl_tensors_kind_of(tensors), HL_TENSORS_LLAMA2C);
    assert_int_equal(hl_tensors_count(tensors), 11);
    assert_non_null(hl_tensors_find(tensors, "model.layers.0.mlp.up_proj.weight"));
    assert_int_equal(hl_llama2c_config_of(hl_tensors_llama2c(tensors))->d_vocab, 3);
    hl_tensors_close(tensors);
}

/* ------------------------------------------------------- content, not names */

static void content_counts_not_the_name(void **state)
{
    (void)state;
    write_part("weights.bin", "g", 0, 0, 0);
    write_shard("weights.dat", "s");
    hl_tensors *tensors = open_here("weights.bin");
    assert_int_equal(hl_tensors_kind_of(tensors), HL_TENSORS_GGUF);
    hl_tensors_close(tensors);
    tensors = open_here("weights.dat");
    assert_int_equal(hl_tensors_kind_of(tensors), HL_TENSORS_SAFETENSORS);
    hl_tensors_close(tensors);

    write_text("junk.safetensors", "junk");
    refuse("junk.safetensors", HL_BAD_INPUT, "a safetensors file has at least 8");
    write_text("junk.gguf", "junk");
    refuse("junk.gguf", HL_BAD_INPUT, "not a GGUF file");
    write_text("junk", "junk");
    refuse("junk", HL_BAD_INPUT, "not a model: neither safetensors nor GGUF nor a llama2.c");
    write_text("empty", "");
    refuse("empty", HL_BAD_INPUT, "not a model");
    refuse("nothing", HL_NOT_FOUND, "nothing: No such file");
}

#define BYTES(text) text, sizeof text - 1

static void foreign_files_are_named(void **state)
{
    static const struct {
        const char *name, *what;
        const char *bytes;
        size_t      n_bytes;
    } files[] = {
        { "pytorch_model.bin", "a PyTorch checkpoint", BYTES("PK\003\004zip and so on") },
        { "model.pth", "a PyTorch checkpoint", BYTES("\x80\002\x8a\nl\xfc") },
        { "model.pt", "a PyTorch checkpoint", BYTES("anything") },
        { "weights.bin", "a pickle", BYTES("\x80\005\x95") },
        { "model.onnx", "an ONNX model", BYTES("\x08\x07") },
        { "tf_model.h5", "HDF5 weights of Keras or TensorFlow", BYTES("\x89HDF\r\n\x1a\n") },
        { "flax_model.msgpack", "Flax weights", BYTES("\xde") },
        { "model.tflite", "a TensorFlow Lite model", BYTES("\x1c\0\0\0TFL3") },
        { "old.bin", "a GGJT file from before GGUF", BYTES("tjgg\3\0\0\0") },
        { "model.safetensors", "Git LFS",
          BYTES("version https://git-lfs.github.com/spec/v1\noid") },
        { "model.gguf", "a web page", BYTES("<!DOCTYPE html><html>") },
        { "config.json", "a configuration, not weights", BYTES("{\"a\":1}") },
    };
    (void)state;

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        write_file(here(files[i].name), files[i].bytes, files[i].n_bytes);
        refuse(files[i].name, HL_UNSUPPORTED, files[i].what);
        refuse(files[i].name, HL_UNSUPPORTED, "which is not read here; ");
        unlink(here(files[i].name));
    }
}

static void foreign_folders_are_explained(void **state)
{
    (void)state;
    refuse("", HL_NOT_FOUND, "no weights here: wanted model.safetensors or");
    write_text("notes.bin", "");
    refuse("", HL_BAD_INPUT, "name the file with the weights, such as notes.bin");
    write_text("model.onnx", "");
    refuse("", HL_UNSUPPORTED, "model.onnx: an ONNX model");
    write_text("pytorch_model.bin", "");
    refuse("", HL_UNSUPPORTED,
           "pytorch_model.bin: a PyTorch checkpoint, which is not read here; no config.json lies "
           "beside it");
    write_text("q4.gguf", "");
    refuse("", HL_BAD_INPUT, "holds GGUF files; name one of them, such as q4.gguf");
    write_text("adapter_model.safetensors", "");
    refuse("", HL_UNSUPPORTED, "an adapter");
}

/* The suggested command loads the model with its output head, and saves the tokenizer as well. */
static void advice_fits_the_architecture(void **state)
{
    static const struct {
        const char *architecture, *loader;
    } cases[] = {
        { "LlamaForCausalLM", "AutoModelForCausalLM" },
        { "GPT2LMHeadModel", "AutoModelForCausalLM" },
        { "BertForMaskedLM", "AutoModelForMaskedLM" },
        { "BertModel", "AutoModel" },
    };
    char config[128], wanted[256];
    (void)state;

    write_text("pytorch_model.bin", "PK\003\004 archive/data.pkl");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(config, sizeof config, "{\"architectures\": [\"%s\"]}", cases[i].architecture);
        snprintf(wanted, sizeof wanted, "from transformers import %s as M, AutoTokenizer as T; ",
                 cases[i].loader);
        write_text("config.json", config);
        refuse("", HL_UNSUPPORTED, wanted);
        refuse("pytorch_model.bin", HL_UNSUPPORTED, wanted);
        refuse("pytorch_model.bin", HL_UNSUPPORTED, ".save_pretrained('");
    }
    write_text("config.json", "{}");
    refuse("", HL_UNSUPPORTED, "AutoModelForCausalLM");
}

/* If transformers cannot load a file, it is not suggested. */
static void other_software_is_told_apart(void **state)
{
    static const struct {
        const char *bytes, *what;
    } cases[] = {
        { "PK\003\004 archive/data.pkl fairseq.dataclass", "a fairseq checkpoint" },
        { "PK\003\004 args model optimizer_history", "a fairseq checkpoint" },
        { "\x80\002 dims n_mels n_audio_ctx model_state_dict", "an OpenAI checkpoint" },
        { "PK\003\004 clip/code/__torch__", "a TorchScript program" },
    };
    (void)state;

    write_text("config.json", "{\"architectures\": [\"LlamaForCausalLM\"]}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hl_tensors *none = NULL;

        write_text("model.pt", cases[i].bytes);
        refuse("model.pt", HL_UNSUPPORTED, cases[i].what);
        refuse("", HL_UNSUPPORTED, cases[i].what);
        assert_int_equal(hl_tensors_open(&none, here("model.pt")), HL_UNSUPPORTED);
        assert_null(strstr(hl_error_message(), "from_pretrained"));
    }
}

/* For a name on Hugging Face, the error says where its cache is and whether it has the model. */
static void a_model_in_the_cache_is_found(void **state)
{
    hl_tensors *none = NULL;
    (void)state;

    setenv("HF_HUB_CACHE", here(""), 1);
    assert_fails(HL_NOT_FOUND, "has none of that name", hl_tensors_open(&none, "tiny"));
    assert_non_null(strstr(hl_error_message(), here("")));
    assert_fails(HL_NOT_FOUND, "a/b/c: No such file or directory", hl_tensors_open(&none, "a/b/c"));
    assert_null(strstr(hl_error_message(), "cache"));

    static const char *const folders[] = { "models--some--tiny", "models--some--tiny/snapshots",
                                           "models--some--tiny/snapshots/abc" };
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        assert_int_equal(mkdir(here(folders[i]), 0700), 0);
    assert_fails(HL_NOT_FOUND, "has none of that name", hl_tensors_open(&none, "some/tiny"));
    write_text("models--some--tiny/snapshots/abc/config.json", "{}");
    assert_fails(HL_NOT_FOUND, "models--some--tiny/snapshots/abc",
                 hl_tensors_open(&none, "some/tiny"));
    assert_fails(HL_NOT_FOUND, "models--some--tiny/snapshots/abc", hl_tensors_open(&none, "tiny"));
    assert_fails(HL_NOT_FOUND, "has none of that name", hl_tensors_open(&none, "iny"));
    assert_fails(HL_NOT_FOUND, "has none of that name", hl_tensors_open(&none, "other/tiny"));
    unlink(here("models--some--tiny/snapshots/abc/config.json"));
    for (size_t i = sizeof folders / sizeof *folders; i-- > 0;)
        rmdir(here(folders[i]));
    unsetenv("HF_HUB_CACHE");
}

static void refuse_config(const char *config, const char *method)
{
    char fragment[100];
    write_text("config.json", config);
    snprintf(fragment, sizeof fragment, "config.json: weights quantized by %s are not read",
             method);
    refuse("", HL_UNSUPPORTED, fragment);
    refuse("model.safetensors", HL_UNSUPPORTED, "dequantize()");
}

static void foreign_quantization_is_named(void **state)
{
    static const char *const methods[] = { "gptq", "awq", "bitsandbytes", "fp8", "hqq" };
    (void)state;

    write_shard("model.safetensors", "x");
    for (size_t i = 0; i < 5; i++) {
        char config[100];
        snprintf(config, sizeof config, "{\"quantization_config\":{\"quant_method\":\"%s\"}}",
                 methods[i]);
        refuse_config(config, methods[i]);
    }
    refuse_config("{\"quantization_config\":{\"load_in_4bit\":true}}", "bitsandbytes");
    refuse_config("{\"quantization_config\":{}}", "a method that config.json does not name");
    refuse_config("{\"text_config\":{\"quantization_config\":{\"quant_method\":\"awq\"}}}", "awq");
    write_text("config.json", "{\"quantization_config\":{\"quant_method\":\"mxfp4\"}}");
    hl_tensors_close(open_here("")); /* gpt_oss can be read */
    write_text("config.json", "{");
    refuse("", HL_BAD_INPUT, "config.json: JSON line 1");
    write_text("config.json", "{}");
    write_text("quantize_config.json", "{\"bits\":4}");
    refuse("", HL_UNSUPPORTED, "quantize_config.json: weights quantized by gptq");
}

/* ------------------------------------------------------------- large files */

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void sixteen_gibibytes_open_at_once(void **state)
{
    char header[200], file[208];
    (void)state;

    snprintf(
        header, sizeof header,
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[65536,65536],\"data_offsets\":[0,17179869184]}}");
    uint64_t length = strlen(header);
    memcpy(file, &length, 8);
    memcpy(file + 8, header, length);
    write_file(here("model.safetensors"), file, 8 + length);
    assert_int_equal(truncate(here("model.safetensors"), (off_t)(8 + length + (1ULL << 34))), 0);

    double      begin   = seconds();
    hl_tensors *tensors = open_here("");
    double      taken   = seconds() - begin;
    assert_true(hl_tensors_find(tensors, "w")->n_bytes == 1ULL << 34);
    assert_int_equal(((const uint8_t *)hl_tensors_at(tensors, 0)->data)[(1ULL << 34) - 1], 0);
    hl_tensors_close(tensors);
    print_message("16 GiB opened in %.2f ms\n", 1e3 * taken);
    assert_true(taken < 0.5);
}

/* -------------------------------------------------------------- real models */

static void every_golden_family_opens(void **state)
{
    char path[1024];
    DIR *directory = opendir(in_shared("golden/families"));
    int  n_opened  = 0;
    (void)state;

    if (directory == NULL)
        skip();
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        hl_tensors *tensors = NULL;
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "golden/families/%s", entry->d_name);
        assert_ok(hl_tensors_open(&tensors, in_shared(path)));
        assert_true(hl_tensors_count(tensors) > 10);
        n_opened++;
        hl_tensors_close(tensors);
    }
    closedir(directory);
    assert_true(n_opened >= 34);
}

static void one_model_in_four_formats(void **state)
{
    static const struct {
        const char     *path;
        hl_tensors_kind kind;
    } files[] = {
        { "models/stories260K/derived-hf", HL_TENSORS_SAFETENSORS },
        { "models/stories260K/stories260K.gguf", HL_TENSORS_GGUF },
        { "models/stories260K/stories260K.bin", HL_TENSORS_LLAMA2C },
        { "models/stories260K/stories260K_v1.bin", HL_TENSORS_LLAMA2C },
    };
    (void)state;

    if (access(in_shared(files[0].path), F_OK) != 0)
        skip();
    for (size_t i = 0; i < 4; i++) {
        hl_tensors *tensors = NULL;
        assert_ok(hl_tensors_open(&tensors, in_shared(files[i].path)));
        assert_int_equal(hl_tensors_kind_of(tensors), files[i].kind);
        assert_true(hl_tensors_count(tensors) == 47 || files[i].kind == HL_TENSORS_GGUF);
        hl_tensors_close(tensors);
    }
}

#define TEST(function) cmocka_unit_test_setup(function, clear_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_folder_with_one_file),
        TEST(shards_make_one_model),
        TEST(the_hash_is_of_the_tensors),
        TEST(every_part_of_a_tensor_is_hashed),
        TEST(incomplete_shards_are_refused),
        TEST(impossible_indices_are_refused),
        TEST(a_gguf_file),
        TEST(parts_make_one_model),
        TEST(incomplete_splits_are_refused),
        TEST(a_llama2c_file),
        TEST(content_counts_not_the_name),
        TEST(foreign_files_are_named),
        TEST(foreign_folders_are_explained),
        TEST(advice_fits_the_architecture),
        TEST(other_software_is_told_apart),
        TEST(a_model_in_the_cache_is_found),
        TEST(foreign_quantization_is_named),
        TEST(sixteen_gibibytes_open_at_once),
        TEST(every_golden_family_opens),
        TEST(one_model_in_four_formats),
    };
    folder   = new_folder();
    int code = cmocka_run_group_tests(tests, NULL, NULL);
    remove_folder(folder);
    return code;
}
