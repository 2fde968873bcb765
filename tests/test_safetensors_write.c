/* test_safetensors_write.c - the bytes that are written, and what is refused. */
#include "support.h"

#include "base/dtype.h"
#include "formats/safetensors.h"

static hl_tensor vector(const char *name, hl_dtype dtype, int64_t count, const void *data)
{
    return (hl_tensor){ .name    = name,
                        .dtype   = dtype,
                        .n_dims  = 1,
                        .shape   = { count },
                        .data    = data,
                        .n_bytes = (size_t)count * hl_dtype_bits(dtype) / 8 };
}

static hl_safetensors_writer *new_writer(void)
{
    hl_safetensors_writer *writer = NULL;
    assert_ok(hl_safetensors_writer_new(&writer));
    return writer;
}

/* Writes the file and reads it back as bytes; the caller frees them. */
static char *written_bytes(hl_safetensors_writer *writer, size_t *n_bytes)
{
    const char *folder = new_folder();
    const char *path   = in_folder(folder, "t.safetensors");
    assert_ok(hl_safetensors_write(writer, path));
    assert_int_equal(count_files(folder), 1);
    char *bytes = read_file(path, n_bytes);
    remove_folder(folder);
    return bytes;
}

static void bytes_are_exactly_the_format(void **state)
{
    (void)state;
    const char wanted[] = "\x88\0\0\0\0\0\0\0" /* 130 bytes, padded to 136 */
                          "{\"__metadata__\":{\"k\":\"v\"},"
                          "\"w\":{\"dtype\":\"U16\",\"shape\":[2],\"data_offsets\":[0,4]},"
                          "\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[4,5]}}"
                          "      "
                          "\1\0\2\0\3";
    const uint16_t         words[] = { 1, 2 };
    hl_safetensors_writer *writer  = new_writer();
    hl_tensor              scalar  = vector("a", HL_DTYPE_U8, 1, "\3");
    hl_tensor              wide    = vector("w", HL_DTYPE_U16, 2, words);
    size_t                 n_bytes = 0;

    scalar.n_dims = 0;
    hl_safetensors_add(writer, &scalar);
    hl_safetensors_add(writer, &wide);
    hl_safetensors_add_metadata(writer, "k", "v");
    char *bytes = written_bytes(writer, &n_bytes);
    assert_int_equal(n_bytes, sizeof wanted - 1);
    assert_memory_equal(bytes, wanted, n_bytes);
    free(bytes);
    hl_safetensors_writer_free(writer);
}

/* Data that are added later, the last tensor first, give the same bytes as a file written at
 * once. */
static void data_may_come_later(void **state)
{
    (void)state;
    const uint16_t         words[]  = { 1, 2 };
    hl_safetensors_writer *writer   = new_writer();
    hl_safetensors_writer *at_once  = new_writer();
    hl_tensor              tensor   = vector("w", HL_DTYPE_U16, 2, words);
    hl_tensor              bytes    = vector("a", HL_DTYPE_U8, 3, "\3\4\5");
    hl_writer             *file     = NULL;
    size_t                 n_wanted = 0, n_seen = 0;

    hl_safetensors_add(at_once, &bytes);
    hl_safetensors_add(at_once, &tensor);
    char       *wanted = written_bytes(at_once, &n_wanted);
    const char *folder = new_folder();
    const char *path   = in_folder(folder, "later.safetensors");
    tensor.data = bytes.data = NULL;
    hl_safetensors_add(writer, &bytes);
    hl_safetensors_add(writer, &tensor);
    assert_ok(hl_safetensors_begin(&file, writer, path));
    hl_writer_write_at(file, hl_safetensors_offset(writer, "a"), "\3\4\5", 3);
    hl_writer_write_at(file, hl_safetensors_offset(writer, "w"), words, sizeof words);
    assert_ok(hl_writer_finish(file));
    char *seen = read_file(path, &n_seen);
    assert_int_equal(n_seen, n_wanted);
    assert_memory_equal(seen, wanted, n_wanted);
    free(seen);
    free(wanted);
    hl_safetensors_writer_free(writer);
    hl_safetensors_writer_free(at_once);
    remove_folder(folder);
}

static void empty_file_is_valid(void **state)
{
    (void)state;
    hl_safetensors_writer *writer  = new_writer();
    size_t                 n_bytes = 0;
    char                  *bytes   = written_bytes(writer, &n_bytes);
    assert_int_equal(n_bytes, 16);
    assert_memory_equal(bytes, "\x08\0\0\0\0\0\0\0{}      ", 16);
    free(bytes);
    hl_safetensors_writer_free(writer);
    hl_safetensors_writer_free(NULL);
}

/* GGUF's block types come after these types. */
enum { N_DTYPES = HL_DTYPE_Q4_0 };

/* Makes one tensor of every dtype, added in one of two orders. */
static hl_safetensors_writer *writer_of_all_dtypes(bool backwards)
{
    static char            names[N_DTYPES][24];
    static const uint8_t   data[64] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
    hl_safetensors_writer *writer   = new_writer();
    for (int i = 0; i < N_DTYPES; i++) {
        int dtype = backwards ? N_DTYPES - 1 - i : i;
        snprintf(names[dtype], sizeof names[0], "of_%s", hl_dtype_name((hl_dtype)dtype));
        hl_tensor tensor = vector(names[dtype], (hl_dtype)dtype, 8, data);
        hl_safetensors_add(writer, &tensor);
    }
    return writer;
}

static void what_is_written_is_read_back_aligned(void **state)
{
    (void)state;
    hl_safetensors_writer *writer  = writer_of_all_dtypes(false);
    hl_safetensors        *file    = NULL;
    size_t                 n_bytes = 0;
    char                  *bytes   = written_bytes(writer, &n_bytes);

    assert_ok(hl_safetensors_parse(&file, (const uint8_t *)bytes, n_bytes, "test"));
    assert_int_equal(hl_safetensors_count(file), N_DTYPES);
    for (size_t i = 0; i < N_DTYPES; i++) {
        const hl_tensor *tensor = hl_safetensors_at(file, i);
        size_t           offset = (size_t)((const char *)tensor->data - bytes);
        size_t           bits   = hl_dtype_bits(tensor->dtype);
        assert_int_equal(offset % (bits < 8 ? 1 : bits / 8), 0);
        assert_string_equal(tensor->name + 3, hl_dtype_name(tensor->dtype));
        assert_int_equal(((const uint8_t *)tensor->data)[3], 4);
    }
    hl_safetensors_close(file);
    free(bytes);
    hl_safetensors_writer_free(writer);
}

static void order_of_adding_does_not_matter(void **state)
{
    (void)state;
    hl_safetensors_writer *forwards  = writer_of_all_dtypes(false);
    hl_safetensors_writer *backwards = writer_of_all_dtypes(true);
    size_t                 n_a = 0, n_b = 0;
    char                  *a = written_bytes(forwards, &n_a);
    char                  *b = written_bytes(backwards, &n_b);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(a, b, n_a);
    free(a);
    free(b);
    hl_safetensors_writer_free(forwards);
    hl_safetensors_writer_free(backwards);
}

static void names_are_copied_and_escaped(void **state)
{
    (void)state;
    char                   name[] = "h\xc3\xa9 \"x\"\n";
    hl_tensor              tensor = vector(name, HL_DTYPE_U8, 1, "\7");
    hl_safetensors_writer *writer = new_writer();
    hl_safetensors        *file   = NULL;
    size_t                 n_bytes;

    hl_safetensors_add(writer, &tensor);
    memset(name, 'z', sizeof name - 1);
    char *bytes = written_bytes(writer, &n_bytes);
    assert_ok(hl_safetensors_parse(&file, (const uint8_t *)bytes, n_bytes, "test"));
    assert_non_null(hl_safetensors_find(file, "h\xc3\xa9 \"x\"\n"));
    hl_safetensors_close(file);
    free(bytes);
    hl_safetensors_writer_free(writer);
}

static void many_tensors_are_written(void **state)
{
    (void)state;
    enum { N_TENSORS = 1000 };
    hl_safetensors_writer *writer = new_writer();
    hl_safetensors        *file   = NULL;
    static int32_t         values[N_TENSORS];
    size_t                 n_bytes;

    for (int i = 0; i < N_TENSORS; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        values[i]        = i;
        hl_tensor tensor = vector(name, HL_DTYPE_I32, 1, &values[i]);
        hl_safetensors_add(writer, &tensor);
    }
    char *bytes = written_bytes(writer, &n_bytes);
    assert_ok(hl_safetensors_parse(&file, (const uint8_t *)bytes, n_bytes, "test"));
    assert_int_equal(hl_safetensors_count(file), N_TENSORS);
    for (int i = 0; i < N_TENSORS; i++) {
        char    name[16];
        int32_t value;
        snprintf(name, sizeof name, "t%d", i);
        memcpy(&value, hl_safetensors_find(file, name)->data, sizeof value);
        assert_int_equal(value, i);
    }
    hl_safetensors_close(file);
    free(bytes);
    hl_safetensors_writer_free(writer);
}

/* ----------------------------------------------------------------- refused */

/* Checks that adding this tensor makes write fail, with this in the message; valid tensors added
 * later do not help. */
static void refuse(const hl_tensor *tensor, const char *fragment)
{
    const char            *folder = new_folder();
    hl_safetensors_writer *writer = new_writer();
    hl_tensor              good   = vector("good", HL_DTYPE_U8, 1, "x");

    hl_safetensors_add(writer, tensor);
    hl_safetensors_add(writer, &good);
    hl_safetensors_add_metadata(writer, "k", "v");
    assert_fails(HL_BAD_ARGUMENT, fragment,
                 hl_safetensors_write(writer, in_folder(folder, "t.safetensors")));
    assert_fails(HL_BAD_ARGUMENT, "t.safetensors: ",
                 hl_safetensors_write(writer, in_folder(folder, "t.safetensors")));
    assert_int_equal(count_files(folder), 0);
    hl_safetensors_writer_free(writer);
    remove_folder(folder);
}

static void impossible_tensors_are_refused(void **state)
{
    (void)state;
    hl_tensor tensor = vector("t", HL_DTYPE_U8, 4, "abcd");
    tensor.n_bytes   = 3;
    refuse(&tensor, "tensor 't': 3 bytes of data, dtype and shape need 4");

    tensor = vector("t", HL_DTYPE_U8, 4, NULL);
    refuse(&tensor, "tensor 't': data is NULL");

    tensor          = vector("t", HL_DTYPE_U8, 4, "abcd");
    tensor.shape[0] = -4;
    refuse(&tensor, "dimension 0 is -4");

    tensor          = vector("t", HL_DTYPE_U8, 0, "");
    tensor.n_dims   = 2;
    tensor.shape[0] = tensor.shape[1] = (int64_t)1 << 32;
    refuse(&tensor, "overflows");

    tensor        = vector("t", HL_DTYPE_U8, 1, "a");
    tensor.n_dims = HL_MAX_TENSOR_DIMS + 1;
    refuse(&tensor, "9 dimensions");
    tensor.n_dims = -1;
    refuse(&tensor, "-1 dimensions");

    tensor = vector("t", HL_DTYPE_F4, 3, "ab");
    refuse(&tensor, "12 bits of F4");

    tensor       = vector("t", HL_DTYPE_U8, 1, "a");
    tensor.dtype = HL_DTYPE_COUNT;
    refuse(&tensor, "is not a dtype");
    tensor         = vector("t", HL_DTYPE_Q8_0, 32, "a");
    tensor.n_bytes = 34;
    refuse(&tensor, "safetensors files hold no Q8_0");
}

static void impossible_names_are_refused(void **state)
{
    (void)state;
    hl_tensor tensor = vector("__metadata__", HL_DTYPE_U8, 1, "a");
    refuse(&tensor, "cannot be called __metadata__");
    tensor.name = NULL;
    refuse(&tensor, "cannot be called NULL");
}

/* Checks for the two refusals below that this writer cannot write. */
static void assert_unwritable(hl_safetensors_writer *writer, const char *fragment)
{
    const char *folder = new_folder();
    assert_fails(HL_BAD_ARGUMENT, fragment,
                 hl_safetensors_write(writer, in_folder(folder, "t.safetensors")));
    assert_int_equal(count_files(folder), 0);
    hl_safetensors_writer_free(writer);
    remove_folder(folder);
}

static void duplicate_names_are_refused(void **state)
{
    (void)state;
    hl_tensor              tensor = vector("same", HL_DTYPE_U8, 1, "a");
    hl_tensor              other  = vector("same", HL_DTYPE_U16, 1, "ab");
    hl_safetensors_writer *writer = new_writer();
    hl_safetensors_add(writer, &tensor);
    hl_safetensors_add(writer, &other);
    assert_unwritable(writer, "tensor 'same' was added twice");

    writer = new_writer();
    hl_safetensors_add_metadata(writer, "k", "1");
    hl_safetensors_add_metadata(writer, "k", "2");
    assert_unwritable(writer, "metadata 'k' was already added");
}

static void bad_utf8_is_refused(void **state)
{
    (void)state;
    hl_tensor              tensor = vector("a\xff", HL_DTYPE_U8, 1, "a");
    hl_safetensors_writer *writer = new_writer();
    hl_safetensors_add(writer, &tensor);
    assert_unwritable(writer, "the name is not valid UTF-8");

    writer = new_writer();
    hl_safetensors_add_metadata(writer, "k", "\xc3");
    assert_unwritable(writer, "metadata 'k' is not valid UTF-8");
    writer = new_writer();
    hl_safetensors_add_metadata(writer, "\xc3", "v");
    assert_unwritable(writer, "is not valid UTF-8");
}

static void unwritable_target_is_reported(void **state)
{
    (void)state;
    hl_safetensors_writer *writer = new_writer();
    hl_tensor              tensor = vector("t", HL_DTYPE_U8, 1, "a");
    hl_safetensors_add(writer, &tensor);
    assert_fails(HL_NOT_FOUND, "/nowhere/t", hl_safetensors_write(writer, "/nowhere/t"));
    assert_fails(HL_BAD_ARGUMENT, "/dev/full", hl_safetensors_write(writer, "/dev/full"));

    size_t n_bytes; /* the writer is still usable */
    free(written_bytes(writer, &n_bytes));
    hl_safetensors_writer_free(writer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_exactly_the_format),
        cmocka_unit_test(data_may_come_later),
        cmocka_unit_test(empty_file_is_valid),
        cmocka_unit_test(what_is_written_is_read_back_aligned),
        cmocka_unit_test(order_of_adding_does_not_matter),
        cmocka_unit_test(names_are_copied_and_escaped),
        cmocka_unit_test(many_tensors_are_written),
        cmocka_unit_test(impossible_tensors_are_refused),
        cmocka_unit_test(impossible_names_are_refused),
        cmocka_unit_test(duplicate_names_are_refused),
        cmocka_unit_test(bad_utf8_is_refused),
        cmocka_unit_test(unwritable_target_is_reported),
    };
    return cmocka_run_group_tests_name("safetensors_write", tests, NULL, NULL);
}
