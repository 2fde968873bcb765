/* fuzz_gguf_write.c - a GGUF file of arbitrary values and tensors, written and read back.
 *
 * The input chooses the contents.  The reader must find the same keys, types and values, and the
 * same tensors, dtypes, shapes and bytes, in the same order; a copy made value by value is the same
 * file. */
#include "base/dtype.h"
#include "formats/gguf.h"
#include "fuzz_choices.h"
#include "fuzz_file.h"

enum { MAX_KEYS = 12, MAX_TENSORS = 6, MAX_BYTES = 1 << 14, MAX_ITEMS = 9 };

typedef struct made_tensor {
    char      name[24];
    hl_tensor tensor;
    uint8_t   data[MAX_BYTES];
} made_tensor;

typedef struct made_value {
    hl_gguf_type type;
    int64_t      number;
    double       real;
    char         text[8];
    size_t       count; /* number of elements of an array */
} made_value;

static made_tensor tensors[MAX_TENSORS];
static made_value  values[MAX_KEYS];

/* -------------------------------------------------------------------------- making */

static const hl_gguf_type scalars[] = { HL_GGUF_U8,  HL_GGUF_I8,  HL_GGUF_U16, HL_GGUF_I16,
                                        HL_GGUF_U32, HL_GGUF_I32, HL_GGUF_U64, HL_GGUF_I64 };

static void add_value(hl_gguf_writer *writer, const char *key, made_value *value, choices *from)
{
    int32_t  items[MAX_ITEMS];
    hl_bytes texts[MAX_ITEMS];
    int64_t  kind = choose(from, 0, 5);

    *value         = (made_value){ .number = choose(from, 0, 127), .real = choose_noise(from) };
    value->count   = (size_t)choose(from, 0, MAX_ITEMS);
    value->text[0] = (char)choose(from, 0, 255);
    for (size_t i = 0; i < MAX_ITEMS; i++) {
        items[i] = (int32_t)value->number + (int32_t)i;
        texts[i] = (hl_bytes){ value->text, i % 2 };
    }
    switch (kind) {
    case 0:
        value->type = scalars[choose(from, 0, 7)];
        hl_gguf_add_int(writer, key, value->type, value->number);
        break;
    case 1:
        value->type = choose_bool(from) ? HL_GGUF_F64 : HL_GGUF_F32;
        hl_gguf_add_float(writer, key, value->type, value->real);
        break;
    case 2:
        value->type = HL_GGUF_BOOL;
        hl_gguf_add_bool(writer, key, value->number % 2 == 1);
        break;
    case 3:
        value->type = HL_GGUF_TEXT;
        hl_gguf_add_text(writer, key, value->text);
        break;
    case 4:
        value->type = HL_GGUF_ARRAY;
        hl_gguf_add_numbers(writer, key, HL_GGUF_I32, items, value->count);
        break;
    default:
        value->type   = HL_GGUF_ARRAY;
        value->number = -1; /* -1 marks texts */
        hl_gguf_add_texts(writer, key, texts, value->count);
        break;
    }
}

/* Makes a tensor; false if GGUF does not have the dtype. */
static bool make_tensor(made_tensor *made, int index, choices *from)
{
    hl_tensor *tensor = &made->tensor;

    snprintf(made->name, sizeof made->name, "t%d.weight", index);
    *tensor        = (hl_tensor){ .name = made->name, .data = made->data };
    tensor->dtype  = (hl_dtype)choose(from, 0, HL_DTYPE_COUNT - 1);
    tensor->n_dims = (int)choose(from, 1, HL_GGUF_MAX_DIMS);
    for (int i = 0; i < tensor->n_dims; i++)
        tensor->shape[i] = choose(from, 1, 4);
    tensor->shape[tensor->n_dims - 1] *= (int64_t)hl_dtype_block_of(tensor->dtype).n_values;
    if (hl_tensor_bytes(&tensor->n_bytes, tensor) != HL_OK || tensor->n_bytes > MAX_BYTES)
        return false;
    for (size_t i = 0; i < tensor->n_bytes; i++)
        made->data[i] = (uint8_t)(int)(choose_noise(from) * 127.0f);
    return true;
}

/* ------------------------------------------------------------------------ reading */

static void check_array(const hl_gguf *file, const char *key, const made_value *value)
{
    hl_gguf_array array = { .count = 0 };

    PROMISE(hl_gguf_get_array(&array, file, key) == HL_OK && array.count == value->count);
    for (size_t i = 0; i < array.count; i++) {
        int64_t  number = 0;
        hl_bytes text   = { "", 0 };

        if (value->number >= 0)
            PROMISE(hl_gguf_array_int(&number, &array, i) && number == value->number + (int64_t)i);
        else
            PROMISE(hl_gguf_array_text(&text, &array, i) && text.n_bytes == i % 2 &&
                    (text.n_bytes == 0 || text.data[0] == value->text[0]));
    }
}

static void check_value(const hl_gguf *file, const char *key, const made_value *value)
{
    int64_t  number = 0;
    double   real   = 0.0;
    bool     yes    = false;
    hl_bytes text   = { "", 0 };

    PROMISE(hl_gguf_find_value(file, key) != NULL);
    PROMISE(hl_gguf_find_value(file, key)->type == value->type);
    if (value->type == HL_GGUF_ARRAY) {
        check_array(file, key, value);
    } else if (value->type == HL_GGUF_TEXT) {
        PROMISE(hl_gguf_get_text(&text, file, key) == HL_OK && hl_bytes_equal(text, value->text));
    } else if (value->type == HL_GGUF_BOOL) {
        PROMISE(hl_gguf_get_bool(&yes, file, key) == HL_OK && yes == (value->number % 2 == 1));
    } else if (value->type == HL_GGUF_F32 || value->type == HL_GGUF_F64) {
        PROMISE(hl_gguf_get_float(&real, file, key) == HL_OK && real == value->real);
    } else {
        PROMISE(hl_gguf_get_int(&number, file, key) == HL_OK && number == value->number);
    }
}

static void check_tensor(const hl_tensor *seen, const hl_tensor *made)
{
    PROMISE(strcmp(seen->name, made->name) == 0 && seen->dtype == made->dtype);
    PROMISE(seen->n_dims == made->n_dims && seen->n_bytes == made->n_bytes);
    for (int i = 0; i < made->n_dims; i++)
        PROMISE(seen->shape[i] == made->shape[i]);
    PROMISE(memcmp(seen->data, made->data, made->n_bytes) == 0);
}

/* Copies a file; the copy must have the same bytes except padding. */
static void copy(const hl_gguf *file, const char *path)
{
    hl_gguf_writer *writer = NULL;
    hl_gguf        *again  = NULL;

    PROMISE(hl_gguf_writer_new(&writer) == HL_OK);
    for (size_t i = 0; i < hl_gguf_n_values(file); i++)
        hl_gguf_add_value(writer, hl_gguf_value_at(file, i));
    for (size_t i = 0; i < hl_gguf_count(file); i++)
        hl_gguf_add_tensor(writer, hl_gguf_at(file, i));
    PROMISE(hl_gguf_write(writer, path) == HL_OK);
    PROMISE(hl_gguf_open(&again, path) == HL_OK);
    PROMISE(hl_gguf_n_values(again) == hl_gguf_n_values(file));
    for (size_t i = 0; i < hl_gguf_n_values(file); i++) {
        const hl_gguf_value *a = hl_gguf_value_at(file, i), *b = hl_gguf_value_at(again, i);
        PROMISE(strcmp(a->key, b->key) == 0 && a->type == b->type && a->n_bytes == b->n_bytes);
        PROMISE(memcmp(a->bytes, b->bytes, a->n_bytes) == 0);
    }
    for (size_t i = 0; i < hl_gguf_count(file); i++)
        check_tensor(hl_gguf_at(again, i), hl_gguf_at(file, i));
    hl_gguf_close(again);
    hl_gguf_writer_free(writer);
}

/* ---------------------------------------------------------------------------- both */

static void read_back(const char *path, const char *twin, int n_keys, int n_tensors)
{
    hl_gguf *file = NULL;
    char     key[16];

    PROMISE(hl_gguf_open(&file, path) == HL_OK);
    PROMISE(hl_gguf_count(file) == (size_t)n_tensors);
    for (int i = 0; i < n_keys; i++) {
        snprintf(key, sizeof key, "key.%d", i);
        check_value(file, key, &values[i]);
    }
    for (int i = 0; i < n_tensors; i++)
        check_tensor(hl_gguf_at(file, (size_t)i), &tensors[i].tensor);
    copy(file, twin);
    hl_gguf_close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    choices         from      = { bytes, n_bytes, 1 };
    hl_gguf_writer *writer    = NULL;
    int             n_tensors = 0;
    char            path[FUZZ_PATH_BYTES], twin[FUZZ_PATH_BYTES], key[16];

    choose_seed(&from);
    snprintf(path, sizeof path, "%s/made.gguf", fuzz_folder());
    snprintf(twin, sizeof twin, "%s/twin.gguf", fuzz_folder());
    PROMISE(hl_gguf_writer_new(&writer) == HL_OK);
    if (choose_bool(&from)) /* an alignment of 8 to 256 */
        hl_gguf_add_int(writer, HL_GGUF_ALIGNMENT, HL_GGUF_U32, 1 << choose(&from, 3, 8));
    int n_keys = (int)choose(&from, 0, MAX_KEYS);
    for (int i = 0; i < n_keys; i++) {
        snprintf(key, sizeof key, "key.%d", i);
        add_value(writer, key, &values[i], &from);
    }
    int n_wanted = (int)choose(&from, 0, MAX_TENSORS);
    for (int i = 0; i < n_wanted; i++) {
        if (!make_tensor(&tensors[n_tensors], i, &from))
            continue;
        hl_gguf_add_tensor(writer, &tensors[n_tensors++].tensor);
    }
    if (hl_gguf_write(writer, path) == HL_OK)
        read_back(path, twin, n_keys, n_tensors);
    else
        PROMISE(hl_error_message()[0] != '\0'); /* GGUF does not have the dtype */
    hl_gguf_writer_free(writer);
    return 0;
}
