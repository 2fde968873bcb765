/* fuzz_safetensors.c - any bytes at all, as a safetensors file.
 *
 * They are accepted or refused with a message.  What is accepted must keep the
 * reader's promises: tensors lie inside the file, in order and side by side, have
 * the size that dtype and shape ask for, and are found by their names. */
#include "formats/safetensors.h"
#include "fuzz.h"

static void check_tensor(const hl_tensor *tensor, const uint8_t *end)
{
    const uint8_t *data   = tensor->data;
    size_t         needed = 0;

    PROMISE(hl_tensor_bytes(&needed, tensor) == HL_OK && needed == tensor->n_bytes);
    PROMISE(hl_tensor_count(tensor) >= 0);
    PROMISE((size_t)(end - data) >= tensor->n_bytes);
    (void)hl_tensor_hash(tensor); /* the address sanitizer watches every byte */
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    hl_safetensors *file = NULL;

    if (hl_safetensors_parse(&file, bytes, n_bytes, "fuzz") != HL_OK)
        return refused(file);
    const uint8_t *next = NULL;
    for (size_t i = 0; i < hl_safetensors_count(file); i++) {
        const hl_tensor *tensor = hl_safetensors_at(file, i);
        check_tensor(tensor, bytes + n_bytes);
        PROMISE(next == NULL || tensor->data == next);
        PROMISE(hl_safetensors_find(file, tensor->name) == tensor);
        next = (const uint8_t *)tensor->data + tensor->n_bytes;
    }
    PROMISE(next == NULL || next == bytes + n_bytes);
    (void)hl_safetensors_metadata(file, "format");
    hl_safetensors_close(file);
    return 0;
}
