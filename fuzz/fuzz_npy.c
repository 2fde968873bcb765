/* fuzz_npy.c - arbitrary bytes as a .npy file.
 *
 * They are accepted or refused with a message.  Accepted data are inside the file, end with it, and
 * have the size of their dtype and shape. */
#include "formats/npy.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    hl_npy *file   = NULL;
    size_t  needed = 0;

    if (hl_npy_parse(&file, bytes, n_bytes, "fuzz") != HL_OK)
        return refused(file);
    const hl_tensor *tensor = hl_npy_tensor(file);
    const uint8_t   *data   = tensor->data;
    PROMISE(hl_npy_is(bytes, n_bytes));
    PROMISE(hl_tensor_bytes(&needed, tensor) == HL_OK && needed == tensor->n_bytes);
    PROMISE(hl_tensor_count(tensor) >= 0);
    PROMISE(data >= bytes && data + tensor->n_bytes == bytes + n_bytes);
    hl_npy_close(file);
    return 0;
}
