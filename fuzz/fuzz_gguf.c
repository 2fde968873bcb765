/* fuzz_gguf.c - arbitrary bytes as a GGUF file.
 *
 * They are accepted or refused with a message.  An accepted file keeps the reader's promises:
 * tensors are inside the file, do not overlap, have the size of their dtype and shape, are found by
 * name, and their blocks can be decoded; every value and every element of an array can be read. */
#include <string.h>

#include "base/dtype.h"
#include "formats/gguf.h"
#include "fuzz.h"
#include "kernels/quant.h"

static void check_tensor(const hl_gguf *file, const hl_tensor *tensor, const uint8_t *end)
{
    float          values[256];
    size_t         needed = 0;
    hl_dtype_block block  = hl_dtype_block_of(tensor->dtype);

    PROMISE(hl_tensor_bytes(&needed, tensor) == HL_OK && needed == tensor->n_bytes);
    PROMISE((size_t)(end - (const uint8_t *)tensor->data) >= tensor->n_bytes);
    PROMISE(hl_gguf_find(file, tensor->name) == tensor);
    if (tensor->n_bytes >= block.n_bytes) {
        const uint8_t *last = (const uint8_t *)tensor->data + tensor->n_bytes - block.n_bytes;
        PROMISE(hl_dequantize(values, tensor->dtype, tensor->data, block.n_values) == HL_OK);
        PROMISE(hl_dequantize(values, tensor->dtype, last, block.n_values) == HL_OK);
    }
}

/* Reads up to `n_most` elements, including those of inner arrays. */
static void read_array(const hl_gguf_array *array, const uint8_t *end, size_t n_most)
{
    for (size_t i = 0; i < array->count && i < n_most; i++) {
        int64_t  number = 0;
        double   real   = 0.0;
        hl_bytes text;

        (void)hl_gguf_array_int(&number, array, i);
        (void)hl_gguf_array_float(&real, array, i);
        if (hl_gguf_array_text(&text, array, i))
            PROMISE((size_t)(end - (const uint8_t *)text.data) >= text.n_bytes);
    }
}

static void check_value(const hl_gguf *file, const hl_gguf_value *value, const uint8_t *end)
{
    int64_t       number  = 0;
    double        real    = 0.0;
    bool          yes     = false;
    size_t        n_bytes = 0;
    hl_bytes      text    = { "", 0 };
    hl_gguf_array array   = { .count = 0 };

    PROMISE(hl_gguf_find_value(file, value->key) == value);
    PROMISE(hl_gguf_measure(&n_bytes, value->type, value->bytes, value->n_bytes) == HL_OK);
    PROMISE(n_bytes == value->n_bytes);
    (void)hl_gguf_get_int(&number, file, value->key);
    (void)hl_gguf_get_float(&real, file, value->key);
    (void)hl_gguf_get_bool(&yes, file, value->key);
    if (hl_gguf_get_text(&text, file, value->key) == HL_OK)
        PROMISE(!hl_bytes_equal(text, "llama") || text.n_bytes == 5);
    (void)hl_gguf_get_array(&array, file, value->key);
    read_array(&array, end, 64);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    hl_gguf *file = NULL;

    if (hl_gguf_parse(&file, bytes, n_bytes, "fuzz") != HL_OK)
        return refused(file);
    for (size_t i = 0; i < hl_gguf_count(file); i++)
        check_tensor(file, hl_gguf_at(file, i), bytes + n_bytes);
    for (size_t i = 0; i < hl_gguf_n_values(file); i++)
        check_value(file, hl_gguf_value_at(file, i), bytes + n_bytes);
    hl_gguf_close(file);
    return 0;
}
