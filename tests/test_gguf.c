/* test_gguf.c - GGUF files: valid ones, and one for every rule that a file can break. */
#include "gguf_support.h"

#include "base/dtype.h"

/* ----------------------------------------------------------------- accepted */

/* Makes a file with every type of value and two tensors with a gap between them. */
static image whole_image(void)
{
    image  file   = start_image(2, 14);
    double number = 0.25;
    float  small  = 1.5f;

    put_key(&file, "u8", HL_GGUF_U8);
    put_u8(&file, 200);
    put_key(&file, "i8", HL_GGUF_I8);
    put_u8(&file, 0xff);
    put_key(&file, "u16", HL_GGUF_U16);
    put(&file, "\xff\xff", 2);
    put_key(&file, "i16", HL_GGUF_I16);
    put(&file, "\xfe\xff", 2);
    put_key(&file, "u32", HL_GGUF_U32);
    put_u32(&file, 4000000000U);
    put_key(&file, "i32", HL_GGUF_I32);
    put_u32(&file, (uint32_t)-3);
    put_key(&file, "f32", HL_GGUF_F32);
    put(&file, &small, 4);
    put_key(&file, "bool", HL_GGUF_BOOL);
    put_u8(&file, 1);
    put_key(&file, "text", HL_GGUF_TEXT);
    put_text(&file, "llama");
    put_key(&file, "u64", HL_GGUF_U64);
    put_u64(&file, INT64_MAX);
    put_key(&file, "i64", HL_GGUF_I64);
    put_u64(&file, (uint64_t)INT64_MIN);
    put_key(&file, "f64", HL_GGUF_F64);
    put(&file, &number, 8);
    put_key(&file, "layers", HL_GGUF_ARRAY);
    put_u32(&file, HL_GGUF_U32);
    put_u64(&file, 3);
    for (uint32_t i = 0; i < 3; i++)
        put_u32(&file, 10 * i);
    put_key(&file, "words", HL_GGUF_ARRAY);
    put_u32(&file, HL_GGUF_TEXT);
    put_u64(&file, 3);
    put_text(&file, "one");
    put_text(&file, "");
    put_text(&file, "three");
    put_tensor(&file, "blk.0.weight", 32, 2, 8, 128);   /* Q8_0: 68 bytes */
    put_tensor(&file, "token_embd.weight", 3, 5, 0, 0); /* F32: 60 bytes */
    put_data(&file, 196);
    return file;
}

static void values_of_every_type_are_read(void **state)
{
    (void)state;
    image    made   = whole_image();
    hl_gguf *file   = accept_image(&made);
    int64_t  number = 0;
    double   real   = 0.0;
    bool     yes    = false;

    assert_int_equal(hl_gguf_n_values(file), 14);
    const struct {
        const char *key;
        int64_t     value;
    } integers[] = { { "u8", 200 },        { "i8", -1 },          { "u16", 65535 },
                     { "i16", -2 },        { "u32", 4000000000 }, { "i32", -3 },
                     { "u64", INT64_MAX }, { "i64", INT64_MIN } };
    for (size_t i = 0; i < 8; i++) {
        assert_ok(hl_gguf_get_int(&number, file, integers[i].key));
        assert_true(number == integers[i].value);
        assert_ok(hl_gguf_get_float(&real, file, integers[i].key));
        assert_true(real == (double)integers[i].value);
    }
    assert_ok(hl_gguf_get_float(&real, file, "f32"));
    assert_true(real == 1.5);
    assert_ok(hl_gguf_get_float(&real, file, "f64"));
    assert_true(real == 0.25);
    assert_ok(hl_gguf_get_bool(&yes, file, "bool"));
    assert_true(yes);
    hl_bytes text = { 0 };
    assert_ok(hl_gguf_get_text(&text, file, "text"));
    assert_true(hl_bytes_equal(text, "llama"));
    assert_false(hl_bytes_equal(text, "llam"));
    assert_false(hl_bytes_equal(text, "llamas"));
    assert_string_equal(hl_gguf_value_at(file, 0)->key, "u8");
    assert_null(hl_gguf_value_at(file, 14));
    hl_gguf_close(file);
    hl_gguf_close(NULL);
}

static void arrays_are_read(void **state)
{
    (void)state;
    image         made   = whole_image();
    hl_gguf      *file   = accept_image(&made);
    hl_gguf_array array  = { 0 };
    hl_bytes      text   = { 0 };
    int64_t       number = 0;
    double        real   = 0.0;

    assert_ok(hl_gguf_get_array(&array, file, "layers"));
    assert_int_equal(array.count, 3);
    assert_true(hl_gguf_array_int(&number, &array, 2) && number == 20);
    assert_true(hl_gguf_array_float(&real, &array, 1) && real == 10.0);
    assert_false(hl_gguf_array_int(&number, &array, 3));
    assert_false(hl_gguf_array_text(&text, &array, 0));
    assert_ok(hl_gguf_get_array(&array, file, "words"));
    assert_true(hl_gguf_array_text(&text, &array, 2) && hl_bytes_equal(text, "three"));
    assert_true(hl_gguf_array_text(&text, &array, 1) && hl_bytes_equal(text, ""));
    assert_false(hl_gguf_array_text(&text, &array, 3));
    assert_false(hl_gguf_array_int(&number, &array, 0));
    hl_gguf_close(file);
}

static void missing_keys_leave_the_default(void **state)
{
    (void)state;
    image         made   = whole_image();
    hl_gguf      *file   = accept_image(&made);
    int64_t       number = 7;
    double        real   = 7.0;
    bool          yes    = true;
    hl_bytes      text   = { "seven", 5 };
    hl_gguf_array array  = { .count = 7 };

    assert_ok(hl_gguf_get_int(&number, file, "none"));
    assert_ok(hl_gguf_get_float(&real, file, "none"));
    assert_ok(hl_gguf_get_bool(&yes, file, "none"));
    assert_ok(hl_gguf_get_text(&text, file, "none"));
    assert_ok(hl_gguf_get_array(&array, file, "none"));
    assert_true(number == 7 && real == 7.0 && yes && text.n_bytes == 5 && array.count == 7);

    assert_fails(HL_BAD_INPUT, "x.gguf: key 'f32' is an f32, wanted an integer",
                 hl_gguf_get_int(&number, file, "f32"));
    assert_fails(HL_BAD_INPUT, "wanted a number", hl_gguf_get_float(&real, file, "text"));
    assert_fails(HL_BAD_INPUT, "wanted a boolean", hl_gguf_get_bool(&yes, file, "u8"));
    assert_fails(HL_BAD_INPUT, "wanted a text", hl_gguf_get_text(&text, file, "u8"));
    assert_fails(HL_BAD_INPUT, "wanted an array", hl_gguf_get_array(&array, file, "u8"));
    assert_true(number == 7 && real == 7.0 && yes);
    hl_gguf_close(file);
}

static void tensors_are_found_with_their_bytes(void **state)
{
    (void)state;
    image            made   = whole_image();
    hl_gguf         *file   = accept_image(&made);
    const hl_tensor *blocks = hl_gguf_find(file, "blk.0.weight");
    const hl_tensor *floats = hl_gguf_find(file, "token_embd.weight");

    assert_int_equal(hl_gguf_count(file), 2);
    assert_ptr_equal(blocks, hl_gguf_at(file, 0)); /* in the order of the file */
    assert_ptr_equal(floats, hl_gguf_at(file, 1));
    assert_null(hl_gguf_at(file, 2));
    assert_null(hl_gguf_find(file, "blk.0"));
    assert_int_equal(blocks->dtype, HL_DTYPE_Q8_0);
    assert_int_equal(blocks->n_bytes, 68);
    assert_int_equal(blocks->shape[0], 2); /* dimensions in the order of PyTorch */
    assert_int_equal(blocks->shape[1], 32);
    assert_int_equal(((const uint8_t *)blocks->data)[67], 128 + 67);
    assert_int_equal(floats->shape[0], 5);
    assert_int_equal(floats->shape[1], 3);
    assert_int_equal(((const uint8_t *)floats->data)[0], 0);
    hl_gguf_close(file);
}

static void version_2_is_the_same(void **state)
{
    (void)state;
    image made    = whole_image();
    made.bytes[4] = 2;
    hl_gguf *file = accept_image(&made);
    assert_int_equal(hl_gguf_n_values(file), 14);
    assert_int_equal(hl_gguf_count(file), 2);
    hl_gguf_close(file);
}

static void another_alignment_is_obeyed(void **state)
{
    (void)state;
    image file = start_image(1, 1);
    put_key(&file, "general.alignment", HL_GGUF_U32);
    put_u32(&file, 8);
    put_tensor(&file, "t", 2, 1, 0, 8);
    while (file.n_bytes % 8 != 0)
        put_u8(&file, 0);
    put(&file, "________ABCDEFGH", 16);
    hl_gguf *parsed = accept_image(&file);
    assert_memory_equal(hl_gguf_at(parsed, 0)->data, "ABCDEFGH", 8);
    hl_gguf_close(parsed);
}

static void empty_and_scalar_tensors_are_fine(void **state)
{
    (void)state;
    image file = start_image(3, 0);
    put_tensor(&file, "empty", 0, 7, 0, 0);
    put_text(&file, "scalar");
    put_u32(&file, 0);
    put_u32(&file, 0);
    put_u64(&file, 0);
    put_tensor(&file, "end", 32, 0, 2, 32);
    put_data(&file, 32);
    hl_gguf *parsed = accept_image(&file);
    assert_int_equal(hl_gguf_find(parsed, "empty")->n_bytes, 0);
    assert_int_equal(hl_gguf_find(parsed, "scalar")->n_bytes, 4);
    assert_int_equal(hl_gguf_find(parsed, "scalar")->n_dims, 0);
    hl_gguf_close(parsed);

    file   = start_image(0, 0); /* the file ends without padding */
    parsed = accept_image(&file);
    assert_int_equal(hl_gguf_count(parsed), 0);
    hl_gguf_close(parsed);
}

static void nested_arrays_are_read(void **state)
{
    (void)state;
    hl_gguf_array outer = { 0 };
    hl_bytes      text  = { 0 };
    image         file  = start_image(0, 1);

    put_key(&file, "nested", HL_GGUF_ARRAY); /* [[], ["a", "bc"]] */
    put_u32(&file, HL_GGUF_ARRAY);
    put_u64(&file, 2);
    put_u32(&file, HL_GGUF_U8);
    put_u64(&file, 0);
    put_u32(&file, HL_GGUF_TEXT);
    put_u64(&file, 2);
    put_text(&file, "a");
    put_text(&file, "bc");
    hl_gguf *parsed = accept_image(&file);
    assert_ok(hl_gguf_get_array(&outer, parsed, "nested"));
    assert_int_equal(outer.count, 2);
    assert_false(hl_gguf_array_text(&text, &outer, 1)); /* elements are arrays */
    hl_gguf_close(parsed);
}

/* ------------------------------------------------------------------ refused */

static void every_truncation_is_refused(void **state)
{
    (void)state;
    image made = whole_image();
    for (size_t n = 0; n < made.n_bytes; n++) {
        image    cut  = made;
        hl_gguf *file = NULL;
        cut.n_bytes   = n;
        assert_int_equal(parse_image(&file, &cut), HL_BAD_INPUT);
        assert_null(file);
    }
}

static void other_files_are_refused_by_name(void **state)
{
    (void)state;
    image file = start_image(0, 0);
    memcpy(file.bytes, "ggjt", 4);
    refuse_image(&file, HL_BAD_INPUT, "not a GGUF file");
    file          = start_image(0, 0);
    file.bytes[4] = 1;
    refuse_image(&file, HL_UNSUPPORTED, "GGUF version 1, wanted 2 or 3");
    file.bytes[4] = 4;
    refuse_image(&file, HL_UNSUPPORTED, "GGUF version 4");
    memcpy(file.bytes + 4, "\0\0\0\3", 4);
    refuse_image(&file, HL_UNSUPPORTED, "a big-endian GGUF file (version 3)");
}

static void impossible_counts_are_refused(void **state)
{
    (void)state;
    image file = start_image(0, UINT64_MAX);
    refuse_image(&file, HL_BAD_INPUT, "18446744073709551615 keys in 0 bytes, at most 65536");
    file = start_image(UINT64_MAX, 0);
    refuse_image(&file, HL_BAD_INPUT, "18446744073709551615 tensors in 0 bytes");
    file = start_image(0, 100);
    put_data(&file, 1000); /* 100 keys need 1300 bytes */
    refuse_image(&file, HL_BAD_INPUT, "100 keys in 1008 bytes");
}

static void impossible_values_are_refused(void **state)
{
    (void)state;
    image file = start_image(0, 1);
    put_key(&file, "k", 13);
    put_u64(&file, 0);
    refuse_image(&file, HL_BAD_INPUT, "key 'k': type 13, the last known is 12");

    file = start_image(0, 1);
    put_key(&file, "k", HL_GGUF_BOOL);
    put_u8(&file, 2);
    refuse_image(&file, HL_BAD_INPUT, "key 'k': a boolean of 2");

    file = start_image(0, 1);
    put_key(&file, "k", HL_GGUF_TEXT);
    put_u64(&file, UINT64_MAX);
    refuse_image(&file, HL_BAD_INPUT, "key 'k': truncated: 18446744073709551615 bytes wanted");
}

static void refuse_array(uint32_t type, uint64_t count, const char *fragment)
{
    image file = start_image(0, 1);
    put_key(&file, "a", HL_GGUF_ARRAY);
    put_u32(&file, type);
    put_u64(&file, count);
    put_data(&file, 64);
    refuse_image(&file, HL_BAD_INPUT, fragment);
}

static void impossible_arrays_are_refused(void **state)
{
    (void)state;
    refuse_array(13, 1, "key 'a': an array of type 13");
    refuse_array(HL_GGUF_U8, 1000000000, "key 'a': truncated: 1000000000 bytes wanted");
    refuse_array(HL_GGUF_F64, UINT64_MAX / 4, "its size overflows");
    refuse_array(HL_GGUF_F64, UINT64_MAX, "its size overflows");
    refuse_array(HL_GGUF_TEXT, 1000000000, "truncated: an array of 1000000000 in the last");
    refuse_array(HL_GGUF_TEXT, UINT64_MAX, "truncated: an array of 18446744073709551615");
    refuse_array(HL_GGUF_ARRAY, UINT64_MAX, "truncated: an array of 18446744073709551615");
}

/* Makes [[[ ... ]]] with `depth` brackets. */
static image nested_image(int depth)
{
    image file = start_image(0, 1);
    put_key(&file, "a", HL_GGUF_ARRAY);
    for (int i = 1; i < depth; i++) {
        put_u32(&file, HL_GGUF_ARRAY);
        put_u64(&file, 1);
    }
    put_u32(&file, HL_GGUF_U8);
    put_u64(&file, 1);
    put_u8(&file, 42);
    return file;
}

static void deep_arrays_are_refused(void **state)
{
    (void)state;
    image    made = nested_image(8);
    hl_gguf *file = accept_image(&made);
    hl_gguf_close(file);
    made = nested_image(9);
    refuse_image(&made, HL_BAD_INPUT, "key 'a': arrays nested more than 8 deep");
    made = nested_image(300);
    refuse_image(&made, HL_BAD_INPUT, "arrays nested more than 8 deep");
}

static void impossible_names_are_refused(void **state)
{
    static const char *const bad[] = { "\x80",      "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                       "a\xe2\x82", "\xff",     "\xe0\x80\x80" };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        image file = start_image(0, 1);
        put_key(&file, bad[i], HL_GGUF_U8);
        put_u8(&file, 1);
        refuse_image(&file, HL_BAD_INPUT, "a key is not valid UTF-8");
        file = start_image(1, 0);
        put_tensor(&file, bad[i], 1, 1, 0, 0);
        put_data(&file, 4);
        refuse_image(&file, HL_BAD_INPUT, "the name of a tensor is not valid UTF-8");
    }
    image file = start_image(0, 1);
    put_u64(&file, 3);
    put(&file, "a\0b", 3);
    put_u32(&file, HL_GGUF_U8);
    put_u8(&file, 1);
    refuse_image(&file, HL_BAD_INPUT, "a key is not valid UTF-8");
    file = start_image(0, 1);
    put_key(&file, "", HL_GGUF_U8);
    put_u8(&file, 1);
    refuse_image(&file, HL_BAD_INPUT, "a key has 0 bytes, wanted 1 to 65535");
    file = start_image(1, 0);
    put_tensor(&file, "0123456789012345678901234567890123456789012345678901234567890123456", 1, 1,
               0, 0);
    put_data(&file, 4);
    refuse_image(&file, HL_BAD_INPUT, "the name of a tensor has 67 bytes, wanted 1 to 64");
}

static void duplicates_are_refused(void **state)
{
    (void)state;
    image file = start_image(0, 3);
    for (int i = 0; i < 3; i++) {
        put_key(&file, i == 1 ? "other" : "same", HL_GGUF_U8);
        put_u8(&file, 1);
    }
    refuse_image(&file, HL_BAD_INPUT, "key 'same' is there twice");
    file = start_image(2, 0);
    put_tensor(&file, "same", 1, 1, 0, 0);
    put_tensor(&file, "same", 1, 1, 0, 32);
    put_data(&file, 36);
    refuse_image(&file, HL_BAD_INPUT, "tensor 'same' is there twice");
}

/* Checks that a file of one tensor over 64 bytes of data is refused. */
static void refuse_tensor(uint64_t inner, uint64_t outer, uint32_t type, uint64_t offset,
                          hl_status status, const char *fragment)
{
    image file = start_image(1, 0);
    put_tensor(&file, "t", inner, outer, type, offset);
    put_data(&file, 64);
    refuse_image(&file, status, fragment);
    refuse_image(&file, status, "tensor 't': ");
}

static void impossible_tensors_are_refused(void **state)
{
    (void)state;
    refuse_tensor(4, 5, 0, 0, HL_BAD_INPUT, "80 bytes at offset 0 lie outside the data of 64");
    refuse_tensor(4, 4, 0, 32, HL_BAD_INPUT, "64 bytes at offset 32 lie outside");
    refuse_tensor(4, 4, 0, UINT64_MAX - 31, HL_BAD_INPUT, "lie outside");
    refuse_tensor(0, 4, 0, 96, HL_BAD_INPUT, "0 bytes at offset 96 lie outside");
    refuse_tensor(4, 1, 0, 16, HL_BAD_INPUT, "offset 16 is not a multiple of 32");
    refuse_tensor(UINT64_MAX, 1, 0, 0, HL_BAD_INPUT, "a dimension of 18446744073709551615");
    refuse_tensor(UINT32_MAX, UINT32_MAX, 0, 0, HL_BAD_INPUT, "the size overflows");
    refuse_tensor(1ULL << 31, 1ULL << 33, 8, 0, HL_BAD_INPUT, "the size overflows");
    refuse_tensor(33, 1, 8, 0, HL_BAD_INPUT, "rows of 33 elements are not a multiple of Q8_0's 32");
    refuse_tensor(128, 2, 12, 0, HL_BAD_INPUT, "rows of 128 elements are not a multiple of Q4_K's");
    refuse_tensor(4, 1, 40, 0, HL_UNSUPPORTED, "its type 40 (NVFP4) is not read here");
    refuse_tensor(4, 1, 4, 0, HL_UNSUPPORTED, "type 4 (Q4_2)");
    refuse_tensor(4, 1, 1000, 0, HL_UNSUPPORTED, "type 1000 (unknown");

    image file = start_image(1, 0);
    put_text(&file, "t");
    put_u32(&file, 5);
    put_data(&file, 128);
    refuse_image(&file, HL_BAD_INPUT, "tensor 't': 5 dimensions, at most 4");
}

static void overlapping_tensors_are_refused(void **state)
{
    (void)state;
    image file = start_image(2, 0);
    put_tensor(&file, "first", 9, 1, 0, 0); /* 36 bytes */
    put_tensor(&file, "second", 1, 1, 0, 32);
    put_data(&file, 64);
    refuse_image(&file, HL_BAD_INPUT, "tensor 'second' overlaps tensor 'first'");
}

static void impossible_alignments_are_refused(void **state)
{
    const uint32_t bad[] = { 0, 3, 48, 1U << 17, UINT32_MAX };
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        image file = start_image(0, 1);
        put_key(&file, "general.alignment", HL_GGUF_U32);
        put_u32(&file, bad[i]);
        refuse_image(&file, HL_BAD_INPUT, "wanted a power of two up to 65536");
    }
    image file = start_image(0, 1);
    put_key(&file, "general.alignment", HL_GGUF_TEXT);
    put_text(&file, "32");
    refuse_image(&file, HL_BAD_INPUT, "general.alignment is not a u32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_of_every_type_are_read),
        cmocka_unit_test(arrays_are_read),
        cmocka_unit_test(missing_keys_leave_the_default),
        cmocka_unit_test(tensors_are_found_with_their_bytes),
        cmocka_unit_test(version_2_is_the_same),
        cmocka_unit_test(another_alignment_is_obeyed),
        cmocka_unit_test(empty_and_scalar_tensors_are_fine),
        cmocka_unit_test(nested_arrays_are_read),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(other_files_are_refused_by_name),
        cmocka_unit_test(impossible_counts_are_refused),
        cmocka_unit_test(impossible_values_are_refused),
        cmocka_unit_test(impossible_arrays_are_refused),
        cmocka_unit_test(deep_arrays_are_refused),
        cmocka_unit_test(impossible_names_are_refused),
        cmocka_unit_test(duplicates_are_refused),
        cmocka_unit_test(impossible_tensors_are_refused),
        cmocka_unit_test(overlapping_tensors_are_refused),
        cmocka_unit_test(impossible_alignments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
