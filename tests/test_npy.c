/* test_npy.c - NumPy's files: what is read, and the errors for what is not.
 *
 * The bytes of `saved_by_numpy` are those of numpy.save(..., arange(6, dtype='<f4').reshape(2, 3)),
 * in the layout of its format document. */
#include "support.h"

#include "formats/npy.h"

static const char saved_by_numpy[] =
    "\x93NUMPY\x01\x00\x76\x00"
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
    "                                                          \n"
    "\x00\x00\x00\x00\x00\x00\x80\x3f\x00\x00\x00\x40\x00\x00\x40\x40\x00\x00\x80\x40"
    "\x00\x00\xa0\x40";

enum { MAX_FILE = 512 };

/* Makes a version 1 file with this header, followed by n_data zeros. */
static size_t make_file(uint8_t out[MAX_FILE], const char *header, size_t n_data)
{
    size_t length = strlen(header);

    assert_true(10 + length + n_data <= MAX_FILE);
    memset(out, 0, MAX_FILE);
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = (uint8_t)length;
    out[9] = (uint8_t)(length >> 8);
    memcpy(out + 10, header, length);
    return 10 + length + n_data;
}

static void a_file_of_numpy(void **state)
{
    (void)state;
    hl_npy *file = NULL;
    float   values[6];

    assert_int_equal(sizeof saved_by_numpy - 1, 128 + 24);
    assert_ok(hl_npy_parse(&file, (const uint8_t *)saved_by_numpy, sizeof saved_by_numpy - 1, "x"));
    const hl_tensor *tensor = hl_npy_tensor(file);
    assert_int_equal(tensor->dtype, HL_DTYPE_F32);
    assert_int_equal(tensor->n_dims, 2);
    assert_int_equal(tensor->shape[0], 2);
    assert_int_equal(tensor->shape[1], 3);
    memcpy(values, tensor->data, sizeof values);
    for (int i = 0; i < 6; i++)
        assert_true(values[i] == (float)i);
    hl_npy_close(file);
    hl_npy_close(NULL);
}

static void it_is_read_from_disk(void **state)
{
    (void)state;
    const char *folder = new_folder();
    const char *path   = in_folder(folder, "a.npy");
    hl_npy     *file   = NULL;

    write_file(path, saved_by_numpy, sizeof saved_by_numpy - 1);
    assert_ok(hl_npy_open(&file, path));
    assert_int_equal(hl_tensor_count(hl_npy_tensor(file)), 6);
    hl_npy_close(file);
    assert_fails(HL_NOT_FOUND, "b.npy: No such file",
                 hl_npy_open(&file, in_folder(folder, "b.npy")));
    assert_null(file);
    remove_folder(folder);
}

static void every_type_of_element(void **state)
{
    (void)state;
    static const struct {
        const char *descr;
        hl_dtype    dtype;
        size_t      size;
    } kinds[] = {
        { "<f2", HL_DTYPE_F16, 2 }, { "<f4", HL_DTYPE_F32, 4 }, { "<f8", HL_DTYPE_F64, 8 },
        { "|i1", HL_DTYPE_I8, 1 },  { "<i2", HL_DTYPE_I16, 2 }, { "<i4", HL_DTYPE_I32, 4 },
        { "<i8", HL_DTYPE_I64, 8 }, { "|u1", HL_DTYPE_U8, 1 },  { "<u2", HL_DTYPE_U16, 2 },
        { "<u4", HL_DTYPE_U32, 4 }, { "<u8", HL_DTYPE_U64, 8 }, { "|b1", HL_DTYPE_BOOL, 1 },
    };
    uint8_t bytes[MAX_FILE];
    char    header[128];

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        hl_npy *file = NULL;
        snprintf(header, sizeof header, "{\"shape\": (5,), 'descr': '%s', 'fortran_order': True}",
                 kinds[i].descr);
        assert_ok(hl_npy_parse(&file, bytes, make_file(bytes, header, 5 * kinds[i].size), "x"));
        assert_int_equal(hl_npy_tensor(file)->dtype, kinds[i].dtype);
        hl_npy_close(file);
    }
}

static void what_is_refused_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t      n_data;
        hl_status   status;
        const char *fragment;
    } cases[] = {
        { "{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}", 4, HL_UNSUPPORTED,
          "x: elements of type '>f4', wanted little-endian" },
        { "{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", 8, HL_UNSUPPORTED, "'<c8'" },
        { "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", 4, HL_UNSUPPORTED,
          "structured" },
        { "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 1)}", 4, HL_UNSUPPORTED,
          "Fortran order" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 4, HL_BAD_INPUT,
          "x: 4 bytes of data, the shape asks for 8" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 12, HL_BAD_INPUT,
          "12 bytes of data, the shape asks for 8" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 8)}", 0,
          HL_BAD_INPUT, "overflows" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", 0,
          HL_BAD_INPUT, "a smaller number" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1)}", 4,
          HL_BAD_INPUT, "more than 8 dimensions" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", 4, HL_BAD_INPUT,
          "wanted a number" },
        { "{'descr': '<f4', 'fortran_order': 1, 'shape': (1,)}", 4, HL_BAD_INPUT, "True or False" },
        { "{'descr': '<f4', 'shape': (1,)}", 4, HL_BAD_INPUT, "descr, fortran_order and shape" },
        { "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False}", 4, HL_BAD_INPUT,
          "once each" },
        { "{'descr': '<f4' 'fortran_order': False}", 4, HL_BAD_INPUT, "',' or '}'" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} more", 4, HL_BAD_INPUT,
          "nothing more" },
        { "{'descr", 0, HL_BAD_INPUT, "the end of a string" },
        { "", 0, HL_BAD_INPUT, "wanted '{'" },
    };
    uint8_t bytes[MAX_FILE];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hl_npy *file = (hl_npy *)&file;
        size_t  n    = make_file(bytes, cases[i].header, cases[i].n_data);
        assert_fails(cases[i].status, cases[i].fragment, hl_npy_parse(&file, bytes, n, "x"));
        assert_null(file);
    }
}

static void a_file_that_ends_too_early(void **state)
{
    (void)state;
    hl_npy *file = NULL;
    uint8_t bytes[sizeof saved_by_numpy];

    memcpy(bytes, saved_by_numpy, sizeof bytes);
    for (size_t n = 0; n < sizeof saved_by_numpy - 1; n++) {
        hl_status status = hl_npy_parse(&file, bytes, n, "x");
        assert_true(status == HL_BAD_INPUT || (n == 6 && status == HL_UNSUPPORTED));
        assert_null(file);
    }
    bytes[6] = 4;
    assert_fails(HL_UNSUPPORTED, "version 4, wanted 1 to 3",
                 hl_npy_parse(&file, bytes, sizeof bytes - 1, "x"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_of_numpy),
        cmocka_unit_test(it_is_read_from_disk),
        cmocka_unit_test(every_type_of_element),
        cmocka_unit_test(what_is_refused_is_named),
        cmocka_unit_test(a_file_that_ends_too_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
