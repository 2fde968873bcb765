/* fuzz_folder.c - arbitrary bytes as a folder of files that claim to be a model.
 *
 *     @@config.json
 *     {"model_type": "llama", ...}
 *     @@model.safetensors
 *     ...
 *
 * A line with two at-signs and one of the names below begins a file, which ends with the newline
 * before the next such line, or with the input.  The folder and each of its files is opened as a
 * model and as a tokenizer; what can be opened runs on a few tokens. */
#define _GNU_SOURCE /* memmem */
#include "fuzz_file.h"

static const char *const names[] = {
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
    "model.gguf",
    "model-00001-of-00002.gguf",
    "model-00002-of-00002.gguf",
    "model.bin",
    "pytorch_model.bin",
    "model.onnx",
    "tokenizer.json",
    "tokenizer.bin",
};

enum { N_NAMES = sizeof names / sizeof *names, N_TOKENS = 3, MAX_VALUES = 1 << 20 };

/* ------------------------------------------------------------------------ the folder */

/* Returns the name on a line that begins at `at`, or N_NAMES. */
static int name_at(const uint8_t *at, const uint8_t *end)
{
    for (int i = 0; i < N_NAMES; i++) {
        size_t length = strlen(names[i]);
        if ((size_t)(end - at) > length && memcmp(at, names[i], length) == 0 && at[length] == '\n')
            return i;
    }
    return N_NAMES;
}

/* Returns the next line that begins a file; `end` if there is none. */
static const uint8_t *find_file(const uint8_t *at, const uint8_t *end, int *name)
{
    for (; at < end; at++) {
        at = memmem(at, (size_t)(end - at), "@@", 2);
        if (at == NULL)
            break;
        *name = name_at(at + 2, end);
        if (*name < N_NAMES)
            return at;
    }
    return end;
}

static void write_files(bool there[N_NAMES], const uint8_t *bytes, const uint8_t *end)
{
    int            name = N_NAMES, next_name = N_NAMES;
    const uint8_t *at = find_file(bytes, end, &name);

    while (at < end) {
        const uint8_t *first = at + 2 + strlen(names[name]) + 1;
        const uint8_t *next  = find_file(first, end, &next_name);
        size_t         n     = (size_t)(next - first) - (next < end && next > first);

        fuzz_file(names[name], first, n);
        there[name] = true;
        at          = next;
        name        = next_name;
    }
}

/* ---------------------------------------------------------------------- what opens */

static void run(const hl_model *model)
{
    const hl_model_info *info             = hl_model_get_info(model);
    hl_session_options   options          = { .n_ctx = N_TOKENS, .n_chunk = 2, .n_threads = 1 };
    hl_session          *session          = NULL;
    const int64_t        tokens[N_TOKENS] = { 0, info->d_vocab - 1, 0 };

    options.wants = info->is_encoder ? HL_WANT_HIDDEN : HL_WANT_LAST_LOGITS;
    if (info->n_layers * info->d_model > MAX_VALUES || info->d_vocab > MAX_VALUES ||
        hl_session_open(&session, model, &options) != HL_OK)
        return;
    if (hl_session_feed(session, &(hl_feed){ .tokens = tokens, .n_tokens = N_TOKENS }) == HL_OK)
        PROMISE(hl_session_length(session, 0) == N_TOKENS);
    hl_session_close(session);
}

static void open_path(const char *path)
{
    hl_model     *model     = NULL;
    hl_tokenizer *tokenizer = NULL;
    hl_encoding  *encoding  = NULL;

    if (hl_model_open(&model, path) == HL_OK)
        run(model);
    else
        refused(model);
    hl_model_close(model);
    if (hl_tokenizer_open(&tokenizer, path) != HL_OK)
        refused(tokenizer);
    else if (hl_tokenizer_encode(&encoding, tokenizer, "Hello, a b", 10, NULL) != HL_OK)
        refused(encoding);
    hl_encoding_free(encoding);
    hl_tokenizer_close(tokenizer);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    bool there[N_NAMES] = { false };
    char path[FUZZ_PATH_BYTES];

    (void)fuzz_folder();
    fuzz_folder_clear();
    write_files(there, bytes, bytes + n_bytes);
    open_path(fuzz_folder());
    for (int i = 0; i < N_NAMES; i++) {
        snprintf(path, sizeof path, "%s/%s", fuzz_folder(), names[i]);
        if (there[i])
            open_path(path);
    }
    return 0;
}
