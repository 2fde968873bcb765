/* fuzz_llama2c.c - arbitrary bytes as a checkpoint of llama2.c and as its tokenizer.
 *
 * They are accepted or refused with a message.  In an accepted file, tensors are inside the file,
 * one after another, and are found by name; pieces are inside the file. */
#include "formats/llama2c.h"
#include "fuzz.h"

static void read_checkpoint(const uint8_t *bytes, size_t n_bytes)
{
    hl_llama2c *file       = NULL;
    bool        recognized = hl_llama2c_recognize(bytes, n_bytes);

    if (hl_llama2c_parse(&file, bytes, n_bytes, "fuzz") != HL_OK) {
        refused(file);
        return;
    }
    PROMISE(recognized);
    const uint8_t *next = bytes;
    for (size_t i = 0; i < hl_llama2c_count(file); i++) {
        const hl_tensor *tensor = hl_llama2c_at(file, i);
        const uint8_t   *data   = tensor->data;
        size_t           needed = 0;

        PROMISE(hl_tensor_bytes(&needed, tensor) == HL_OK && needed == tensor->n_bytes);
        PROMISE(data > next && (size_t)(bytes + n_bytes - data) >= needed);
        next = data + needed - 1;
    }
    PROMISE(hl_llama2c_config_of(file)->n_layers > 0);
    hl_llama2c_close(file);
}

static void read_tokenizer(const uint8_t *bytes, size_t n_bytes)
{
    hl_llama2c_tokenizer *tokenizer = NULL;
    volatile char         sink      = 0;

    if (hl_llama2c_tokenizer_parse(&tokenizer, bytes, n_bytes, "fuzz") != HL_OK) {
        refused(tokenizer);
        return;
    }
    for (size_t i = 0; i < hl_llama2c_tokenizer_count(tokenizer); i++) {
        const hl_llama2c_piece *piece = hl_llama2c_tokenizer_at(tokenizer, i);
        if (piece->n_bytes > 0) /* the address sanitizer checks the first and the last byte */
            sink = (char)(piece->bytes[0] + piece->bytes[piece->n_bytes - 1]);
    }
    (void)sink;
    hl_llama2c_tokenizer_close(tokenizer);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    read_checkpoint(bytes, n_bytes);
    read_tokenizer(bytes, n_bytes);
    return 0;
}
