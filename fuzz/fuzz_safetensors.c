/* fuzz_safetensors.c - arbitrary bytes as a safetensors file.
 *
 * They are accepted or refused with a message.  An accepted file keeps the reader's promises:
 * tensors are inside the file, in order and adjacent, have the size of their dtype and shape, and
 * are found by name. */
#include "formats/safetensors.h"
#include "fuzz.h"

static void check_tensor(const hl_tensor *tensor, const uint8_t *end)
{
    const uint8_t *data   = tensor->data;
    size_t         needed = 0;

    PROMISE(hl_tensor_bytes(&needed, tensor) == HL_OK && needed == tensor->n_bytes);
    PROMISE(hl_tensor_count(tensor) >= 0);
    PROMISE((size_t)(end - data) >= tensor->n_bytes);
    (void)hl_tensor_hash(tensor); /* reads every byte, which the address sanitizer checks */
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
