/* test_gguf_write.c - written files are read back, byte for byte. */
#include "gguf_support.h"

#include "base/dtype.h"
#include "kernels/quant.h"

static const char *folder;

static hl_gguf_writer *new_writer(void)
{
    hl_gguf_writer *writer = NULL;
    assert_ok(hl_gguf_writer_new(&writer));
    return writer;
}

/* Writes, frees the writer and opens the file. */
static hl_gguf *write_and_open(hl_gguf_writer *writer)
{
    hl_gguf *file = NULL;
    assert_ok(hl_gguf_write(writer, in_folder(folder, "written.gguf")));
    hl_gguf_writer_free(writer);
    assert_ok(hl_gguf_open(&file, in_folder(folder, "written.gguf")));
    return file;
}

/* Checks that the writer's first error is returned, and that there is no file. */
static void refuse(hl_gguf_writer *writer, const char *fragment)
{
    assert_fails(HL_BAD_ARGUMENT, fragment,
                 hl_gguf_write(writer, in_folder(folder, "refused.gguf")));
    assert_int_not_equal(access(in_folder(folder, "refused.gguf"), F_OK), 0);
    hl_gguf_writer_free(writer);
}

static hl_tensor row(const char *name, hl_dtype dtype, int64_t count, const void *data)
{
    hl_tensor tensor = {
        .name = name, .dtype = dtype, .n_dims = 1, .shape = { count }, .data = data
    };
    assert_ok(hl_tensor_bytes(&tensor.n_bytes, &tensor));
    return tensor;
}

static void integers_are_kept(void **state)
{
    static const struct {
        hl_gguf_type type;
        int64_t      low, high;
    } ranges[] = {
        { HL_GGUF_U8, 0, UINT8_MAX },   { HL_GGUF_I8, INT8_MIN, INT8_MAX },
        { HL_GGUF_U16, 0, UINT16_MAX }, { HL_GGUF_I16, INT16_MIN, INT16_MAX },
        { HL_GGUF_U32, 0, UINT32_MAX }, { HL_GGUF_I32, INT32_MIN, INT32_MAX },
        { HL_GGUF_U64, 0, INT64_MAX },  { HL_GGUF_I64, INT64_MIN, INT64_MAX },
    };
    (void)state;

    for (size_t i = 0; i < 8; i++) {
        hl_gguf_writer *writer = new_writer();
        int64_t         low = 1, high = 1;
        hl_gguf_add_int(writer, "low", ranges[i].type, ranges[i].low);
        hl_gguf_add_int(writer, "high", ranges[i].type, ranges[i].high);
        hl_gguf *file = write_and_open(writer);
        assert_int_equal(hl_gguf_value_at(file, 1)->type, ranges[i].type);
        assert_ok(hl_gguf_get_int(&low, file, "low"));
        assert_ok(hl_gguf_get_int(&high, file, "high"));
        assert_true(low == ranges[i].low && high == ranges[i].high);
        hl_gguf_close(file);
        if (ranges[i].high < INT64_MAX) {
            writer = new_writer();
            hl_gguf_add_int(writer, "k", ranges[i].type, ranges[i].high + 1);
            refuse(writer, "key 'k': ");
        }
        if (ranges[i].low > INT64_MIN) {
            writer = new_writer();
            hl_gguf_add_int(writer, "k", ranges[i].type, ranges[i].low - 1);
            refuse(writer, "does not fit");
        }
    }
}

static void other_values_are_kept(void **state)
{
    const hl_bytes  words[]  = { { "one", 3 }, { "", 0 }, { "a\0b", 3 } };
    const int16_t   shorts[] = { -1, 2, 300 };
    hl_gguf_writer *writer   = new_writer();
    hl_gguf_array   array    = { 0 };
    hl_bytes        text     = { 0 };
    double          real = 0.0, wide = 0.0;
    int64_t         number = 0;
    bool            yes    = false;
    (void)state;

    hl_gguf_add_float(writer, "f32", HL_GGUF_F32, 0.1);
    hl_gguf_add_float(writer, "f64", HL_GGUF_F64, 0.1);
    hl_gguf_add_bool(writer, "bool", true);
    hl_gguf_add_text(writer, "text", "h\xc3\xa9");
    hl_gguf_add_texts(writer, "words", words, 3);
    hl_gguf_add_numbers(writer, "shorts", HL_GGUF_I16, shorts, 3);
    hl_gguf_add_numbers(writer, "nothing", HL_GGUF_F64, NULL, 0);
    hl_gguf *file = write_and_open(writer);
    assert_ok(hl_gguf_get_float(&real, file, "f32"));
    assert_ok(hl_gguf_get_float(&wide, file, "f64"));
    assert_true(real == (double)0.1f && wide == 0.1);
    assert_ok(hl_gguf_get_bool(&yes, file, "bool"));
    assert_true(yes);
    assert_ok(hl_gguf_get_text(&text, file, "text"));
    assert_true(hl_bytes_equal(text, "h\xc3\xa9"));
    assert_ok(hl_gguf_get_array(&array, file, "words"));
    assert_true(hl_gguf_array_text(&text, &array, 2) && text.n_bytes == 3);
    assert_memory_equal(text.data, "a\0b", 3);
    assert_ok(hl_gguf_get_array(&array, file, "shorts"));
    assert_true(hl_gguf_array_int(&number, &array, 2) && number == 300);
    assert_ok(hl_gguf_get_array(&array, file, "nothing"));
    assert_int_equal(array.count, 0);
    hl_gguf_close(file);
}

static void tensors_of_every_dtype_are_kept(void **state)
{
    static uint8_t  data[2048];
    hl_gguf_writer *writer   = new_writer();
    int             n_stored = 0;
    uint32_t        id       = 0;
    (void)state;

    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 7);
    hl_gguf_add_int(writer, HL_GGUF_ALIGNMENT, HL_GGUF_U32, 64);
    for (int dtype = 0; dtype < HL_DTYPE_COUNT; dtype++) {
        if (hl_dtype_to_ggml(&id, (hl_dtype)dtype)) {
            hl_tensor tensor = row(hl_dtype_name((hl_dtype)dtype), (hl_dtype)dtype, 256, data);
            hl_gguf_add_tensor(writer, &tensor);
            n_stored++;
        }
    }
    hl_tensor cube = { "cube", HL_DTYPE_F32, 4, { 2, 3, 4, 5 }, data, 480 };
    hl_gguf_add_tensor(writer, &cube);
    hl_gguf *file = write_and_open(writer);
    assert_int_equal(hl_gguf_count(file), n_stored + 1);
    for (int i = 0; i < n_stored; i++) {
        const hl_tensor *tensor = hl_gguf_at(file, (size_t)i);
        assert_string_equal(tensor->name, hl_dtype_name(tensor->dtype));
        assert_int_equal(tensor->shape[0], 256);
        assert_memory_equal(tensor->data, data, tensor->n_bytes);
        assert_int_equal((uintptr_t)tensor->data % 64, 0);
    }
    assert_memory_equal(hl_gguf_find(file, "cube")->shape, cube.shape, sizeof(int64_t) * 4);
    hl_gguf_close(file);
}

/* A copy of a real file, made value by value and tensor by tensor, has the same bytes. */
static void a_copied_model_is_the_same_file(void **state)
{
    const char     *source = "tests/data/gguf/llama3.gguf";
    hl_gguf_writer *writer = new_writer();
    hl_gguf        *file   = NULL;
    size_t          n_a = 0, n_b = 0;
    (void)state;

    assert_ok(hl_gguf_open(&file, source));
    for (size_t i = 0; i < hl_gguf_n_values(file); i++)
        hl_gguf_add_value(writer, hl_gguf_value_at(file, i));
    for (size_t i = 0; i < hl_gguf_count(file); i++)
        hl_gguf_add_tensor(writer, hl_gguf_at(file, i));
    assert_ok(hl_gguf_write(writer, in_folder(folder, "copy.gguf")));
    hl_gguf_writer_free(writer);
    hl_gguf_close(file);
    char *a = read_file(source, &n_a);
    char *b = read_file(in_folder(folder, "copy.gguf"), &n_b);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(a, b, n_a);
    free(a);
    free(b);
}

static void nested_arrays_are_copied(void **state)
{
    image           made   = { .n_bytes = 0 };
    hl_gguf_writer *writer = new_writer();
    hl_gguf_array   array  = { 0 };
    (void)state;

    put_u32(&made, HL_GGUF_ARRAY); /* [[1, 2], [3]] */
    put_u64(&made, 2);
    put_u32(&made, HL_GGUF_U8);
    put_u64(&made, 2);
    put(&made, "\1\2", 2);
    put_u32(&made, HL_GGUF_U8);
    put_u64(&made, 1);
    put_u8(&made, 3);
    hl_gguf_value value = { "nested", HL_GGUF_ARRAY, made.bytes, made.n_bytes, NULL };
    hl_gguf_add_value(writer, &value);
    hl_gguf *file = write_and_open(writer);
    assert_ok(hl_gguf_get_array(&array, file, "nested"));
    assert_int_equal(array.count, 2);
    const hl_gguf_value *again = hl_gguf_find_value(file, "nested");
    assert_int_equal(again->n_bytes, made.n_bytes);
    assert_memory_equal(again->bytes, made.bytes, made.n_bytes);
    hl_gguf_close(file);

    writer = new_writer();
    value.n_bytes--;
    hl_gguf_add_value(writer, &value);
    refuse(writer, "key 'nested': truncated");
    writer = new_writer();
    value.n_bytes += 2;
    hl_gguf_add_value(writer, &value);
    refuse(writer, "key 'nested': 40 bytes, the value has 39");
}

static void many_of_both_are_kept(void **state)
{
    enum { MANY = 1000 };
    hl_gguf_writer *writer = new_writer();
    float           data[MANY];
    char            name[16];
    (void)state;

    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "n%d", i);
        data[i]          = (float)i;
        hl_tensor tensor = row(name, HL_DTYPE_F32, 1, &data[i]);
        hl_gguf_add_tensor(writer, &tensor);
        hl_gguf_add_int(writer, name, HL_GGUF_I32, i);
    }
    hl_gguf *file = write_and_open(writer);
    for (int i = 0; i < MANY; i++) {
        int64_t number = 0;
        snprintf(name, sizeof name, "n%d", i);
        assert_ok(hl_gguf_get_int(&number, file, name));
        assert_int_equal(number, i);
        assert_memory_equal(hl_gguf_find(file, name)->data, &data[i], 4);
    }
    hl_gguf_close(file);
}

static void mistakes_are_kept_until_the_end(void **state)
{
    static const uint8_t data[64] = { 0 };
    hl_gguf_writer      *writer   = new_writer();
    hl_tensor            tensor   = row("t", HL_DTYPE_F32, 4, data);
    (void)state;

    hl_gguf_add_int(writer, "k", HL_GGUF_U8, 1);
    hl_gguf_add_text(writer, "k", "again");
    refuse(writer, "refused.gguf: key 'k' was added twice");
    writer = new_writer();
    hl_gguf_add_tensor(writer, &tensor);
    hl_gguf_add_tensor(writer, &tensor);
    refuse(writer, "tensor 't' was added twice");
    writer = new_writer();
    hl_gguf_add_float(writer, "k", HL_GGUF_I32, 1.0);
    hl_gguf_add_int(writer, "j", HL_GGUF_U8, 1000); /* the first error is kept */
    refuse(writer, "key 'k': type 5 is not a float");
    writer = new_writer();
    hl_gguf_add_int(writer, "k", HL_GGUF_TEXT, 1);
    refuse(writer, "does not fit type 8");
    writer = new_writer();
    hl_gguf_add_numbers(writer, "k", HL_GGUF_TEXT, data, 1);
    refuse(writer, "key 'k': 1 elements of type 8");
    writer = new_writer();
    hl_gguf_add_int(writer, HL_GGUF_ALIGNMENT, HL_GGUF_U32, 3);
    refuse(writer, "general.alignment is 3");
    writer = new_writer();
    hl_gguf_add_int(writer, HL_GGUF_ALIGNMENT, HL_GGUF_U64, 32);
    refuse(writer, "must be a u32");
    writer = new_writer();
    hl_gguf_add_bool(writer, "", true);
    refuse(writer, "key '' has 0 bytes");

    tensor.n_bytes = 15;
    writer         = new_writer();
    hl_gguf_add_tensor(writer, &tensor);
    refuse(writer, "tensor 't': 15 bytes of data, dtype and shape need 16");
    writer = new_writer();
    tensor = row("t", HL_DTYPE_BOOL, 4, data);
    hl_gguf_add_tensor(writer, &tensor);
    refuse(writer, "GGUF files hold no BOOL");
    writer = new_writer();
    tensor = (hl_tensor){ "t", HL_DTYPE_F32, 5, { 1, 1, 1, 1, 1 }, data, 4 };
    hl_gguf_add_tensor(writer, &tensor);
    refuse(writer, "5 dimensions, at most 4");
    writer = new_writer();
    tensor = row("t", HL_DTYPE_F32, 1, NULL);
    hl_gguf_add_tensor(writer, &tensor);
    refuse(writer, "data is NULL");
    hl_gguf_writer_free(NULL);
}

static void nowhere_to_write_is_an_error(void **state)
{
    hl_gguf_writer *writer = new_writer();
    (void)state;
    assert_fails(HL_NOT_FOUND, "none/x.gguf",
                 hl_gguf_write(writer, in_folder(folder, "none/x.gguf")));
    hl_gguf_writer_free(writer);
}

/* ------------------------------------------------------------ quantized rows */

static void quantized_tensors_are_read_back(void **state)
{
    float           x[64], back[64];
    uint8_t         blocks[68];
    hl_gguf_writer *writer = new_writer();
    (void)state;

    for (int i = 0; i < 64; i++)
        x[i] = (float)(i - 31);
    assert_ok(hl_quantize(blocks, HL_DTYPE_Q8_0, x, 64));
    hl_tensor tensor = row("w", HL_DTYPE_Q8_0, 64, blocks);
    hl_gguf_add_tensor(writer, &tensor);
    hl_gguf         *file  = write_and_open(writer);
    const hl_tensor *found = hl_gguf_find(file, "w");
    assert_ok(hl_dequantize(back, found->dtype, found->data, 64));
    for (int i = 0; i < 64; i++)
        assert_true(back[i] - x[i] < 0.13f && x[i] - back[i] < 0.13f);
    hl_gguf_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_are_kept),
        cmocka_unit_test(other_values_are_kept),
        cmocka_unit_test(tensors_of_every_dtype_are_kept),
        cmocka_unit_test(a_copied_model_is_the_same_file),
        cmocka_unit_test(nested_arrays_are_copied),
        cmocka_unit_test(many_of_both_are_kept),
        cmocka_unit_test(mistakes_are_kept_until_the_end),
        cmocka_unit_test(nowhere_to_write_is_an_error),
        cmocka_unit_test(quantized_tensors_are_read_back),
    };
    folder   = new_folder();
    int code = cmocka_run_group_tests(tests, NULL, NULL);
    remove_folder(folder);
    return code;
}
