/* test_safetensors.c - one test per check: each file breaks only one rule. */
#include "support.h"

#include <dirent.h>

#include "base/dtype.h"
#include "formats/safetensors.h"

/* A file in memory: length, header, then `n_data` bytes 0, 1, 2 ...  Its allocation has exactly its
 * size, so that the address sanitizer detects a read beyond it. */
typedef struct image {
    uint8_t *bytes;
    size_t   n_bytes;
} image;

static image new_image(const char *header, size_t n_header, size_t n_data)
{
    image file = { .n_bytes = 8 + n_header + n_data };
    file.bytes = malloc(file.n_bytes);
    assert_non_null(file.bytes);
    for (int i = 0; i < 8; i++)
        file.bytes[i] = (uint8_t)((uint64_t)n_header >> (8 * i));
    memcpy(file.bytes + 8, header, n_header);
    for (size_t i = 0; i < n_data; i++)
        file.bytes[8 + n_header + i] = (uint8_t)i;
    return file;
}

/* Checks that this header with that much data is refused, with this in the message. */
static void refuse(const char *header, size_t n_data, const char *fragment)
{
    hl_safetensors *file = (hl_safetensors *)&file;
    image           made = new_image(header, strlen(header), n_data);

    hl_status status = hl_safetensors_parse(&file, made.bytes, made.n_bytes, "x.safetensors");
    free(made.bytes);
    if (status != HL_BAD_INPUT)
        fail_msg("%s: %s, wanted bad input", header, hl_status_name(status));
    assert_null(file);
    assert_fails(HL_BAD_INPUT, "x.safetensors: ", status);
    assert_fails(HL_BAD_INPUT, fragment, status);
}

static hl_safetensors *accept(image *made, const char *header, size_t n_data)
{
    hl_safetensors *file = NULL;
    *made                = new_image(header, strlen(header), n_data);
    assert_ok(hl_safetensors_parse(&file, made->bytes, made->n_bytes, "x.safetensors"));
    return file;
}

static void release(hl_safetensors *file, image *made)
{
    hl_safetensors_close(file);
    free(made->bytes);
}

/* --------------------------------------------------------------- accepted */

static void tensors_are_found_with_their_bytes(void **state)
{
    (void)state;
    image           made;
    hl_safetensors *file =
        accept(&made,
               "{\"__metadata__\":{\"format\":\"pt\",\"empty\":\"\"},"
               "\"second\":{\"dtype\":\"I16\",\"shape\":[2],\"data_offsets\":[24,28]},"
               "\"first\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}   ",
               28);

    assert_int_equal(hl_safetensors_count(file), 2);
    const hl_tensor *first = hl_safetensors_find(file, "first");
    assert_ptr_equal(first, hl_safetensors_at(file, 0)); /* in the order of the data */
    assert_string_equal(first->name, "first");
    assert_int_equal(first->dtype, HL_DTYPE_F32);
    assert_int_equal(first->n_dims, 2);
    assert_int_equal(first->shape[0], 2);
    assert_int_equal(first->shape[1], 3);
    assert_int_equal(first->n_bytes, 24);
    assert_int_equal(hl_tensor_count(first), 6);
    assert_int_equal(((const uint8_t *)first->data)[23], 23);

    const hl_tensor *second = hl_safetensors_find(file, "second");
    assert_ptr_equal(second, hl_safetensors_at(file, 1));
    assert_int_equal(((const uint8_t *)second->data)[0], 24);

    assert_null(hl_safetensors_at(file, 2));
    assert_null(hl_safetensors_find(file, "third"));
    assert_null(hl_safetensors_find(file, "__metadata__"));
    assert_string_equal(hl_safetensors_metadata(file, "format"), "pt");
    assert_string_equal(hl_safetensors_metadata(file, "empty"), "");
    assert_null(hl_safetensors_metadata(file, "absent"));
    release(file, &made);
    hl_safetensors_close(NULL);
}

static void files_without_tensors_are_fine(void **state)
{
    (void)state;
    image           made;
    hl_safetensors *file = accept(&made, "{}", 0);
    assert_int_equal(hl_safetensors_count(file), 0);
    assert_null(hl_safetensors_find(file, "a"));
    assert_null(hl_safetensors_metadata(file, "a"));
    release(file, &made);
}

static void scalars_and_empty_tensors_are_fine(void **state)
{
    (void)state;
    image           made;
    hl_safetensors *file =
        accept(&made,
               "{\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
               "\"z\":{\"dtype\":\"F32\",\"shape\":[3,0],\"data_offsets\":[0,0]},"
               "\"m\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[4,4]},"
               "\"c\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[4,5]},"
               "\"e\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[5,5]}}",
               5);
    assert_int_equal(hl_tensor_count(hl_safetensors_find(file, "b")), 1);
    assert_int_equal(hl_tensor_count(hl_safetensors_find(file, "z")), 0);
    const char *order[] = { "z", "b", "m", "c", "e" };
    for (size_t i = 0; i < 5; i++)
        assert_string_equal(hl_safetensors_at(file, i)->name, order[i]);
    release(file, &made);
}

static void every_dtype_is_accepted(void **state)
{
    (void)state;
    for (int i = 0; i < HL_DTYPE_Q4_0; i++) { /* the types before Q4_0, the first block type */
        char   header[256];
        image  made;
        size_t n_bytes = hl_dtype_bits((hl_dtype)i); /* size of 8 elements */
        snprintf(header, sizeof header,
                 "{\"t\":{\"dtype\":\"%s\",\"shape\":[2,4],\"data_offsets\":[0,%zu]}}",
                 hl_dtype_name((hl_dtype)i), n_bytes);
        hl_safetensors *file = accept(&made, header, n_bytes);
        assert_int_equal(hl_safetensors_at(file, 0)->dtype, i);
        release(file, &made);
    }
}

static void block_types_are_refused(void **state)
{
    (void)state;
    refuse("{\"t\":{\"dtype\":\"Q8_0\",\"shape\":[32],\"data_offsets\":[0,34]}}", 34,
           "tensor 't': dtype 'Q8_0' is not known");
}

static void odd_names_are_found(void **state)
{
    (void)state;
    image           made;
    hl_safetensors *file =
        accept(&made,
               "{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
               "\"h\xc3\xa9 \\\"x\\\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]},"
               "\"\\u00e8\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3],\"extra\":[]}}",
               3);
    assert_ptr_equal(hl_safetensors_find(file, ""), hl_safetensors_at(file, 0));
    assert_ptr_equal(hl_safetensors_find(file, "h\xc3\xa9 \"x\""), hl_safetensors_at(file, 1));
    assert_ptr_equal(hl_safetensors_find(file, "\xc3\xa8"), hl_safetensors_at(file, 2));
    release(file, &made);
}

static void many_tensors_are_all_found(void **state)
{
    (void)state;
    enum { N_TENSORS = 3000 };
    char  *header = malloc(N_TENSORS * 100);
    size_t at     = 0;
    image  made;

    assert_non_null(header);
    for (int i = 0; i < N_TENSORS; i++) { /* the names have another order than the data */
        int place = (i * 1237) % N_TENSORS;
        at += (size_t)sprintf(header + at,
                              "%c\"t%d\":{\"dtype\":\"U8\",\"shape\":[1],"
                              "\"data_offsets\":[%d,%d]}",
                              i == 0 ? '{' : ',', place, place, place + 1);
    }
    strcpy(header + at, "}");
    hl_safetensors *file = accept(&made, header, N_TENSORS);
    assert_int_equal(hl_safetensors_count(file), N_TENSORS);
    for (int i = 0; i < N_TENSORS; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        assert_ptr_equal(hl_safetensors_find(file, name), hl_safetensors_at(file, (size_t)i));
    }
    release(file, &made);
    free(header);
}

/* --------------------------------------------------------------- the length */

static void short_files_are_refused(void **state)
{
    (void)state;
    const uint8_t   bytes[8] = { 2 };
    hl_safetensors *file;
    for (size_t n = 0; n < 8; n++)
        assert_fails(HL_BAD_INPUT, "bytes, a safetensors file has at least 8",
                     hl_safetensors_parse(&file, bytes, n, "x"));
    assert_fails(HL_BAD_INPUT, "truncated: a header of 2 bytes in a file of 8",
                 hl_safetensors_parse(&file, bytes, 8, "x"));
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    const char *header = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
    image       made   = new_image(header, strlen(header), 8);
    for (size_t n = 0; n < made.n_bytes; n++) {
        hl_safetensors *file = NULL;
        uint8_t        *cut  = malloc(n > 0 ? n : 1);
        assert_non_null(cut);
        memcpy(cut, made.bytes, n);
        assert_int_equal(hl_safetensors_parse(&file, cut, n, "x"), HL_BAD_INPUT);
        assert_null(file);
        free(cut);
    }
    free(made.bytes);
}

static void impossible_lengths_are_refused(void **state)
{
    (void)state;
    hl_safetensors *file;
    const uint8_t   huge[16]  = { 255, 255, 255, 255, 255, 255, 255, 255, '{', '}' };
    const uint8_t   above[16] = { 0x01, 0xe1, 0xf5, 0x05, 0, 0, 0, 0, '{', '}' }; /* 100000001 */
    const uint8_t   below[16] = { 0x00, 0xe1, 0xf5, 0x05, 0, 0, 0, 0, '{', '}' };
    const uint8_t   none[8]   = { 0 };
    assert_fails(HL_BAD_INPUT, "18446744073709551615 bytes, at most 100000000",
                 hl_safetensors_parse(&file, huge, 16, "x"));
    assert_fails(HL_BAD_INPUT, "100000001 bytes, at most 100000000",
                 hl_safetensors_parse(&file, above, 16, "x"));
    assert_fails(HL_BAD_INPUT, "truncated", hl_safetensors_parse(&file, below, 16, "x"));
    assert_fails(HL_BAD_INPUT, "does not start with '{'",
                 hl_safetensors_parse(&file, none, 8, "x"));
}

/* --------------------------------------------------------------- the header */

static void headers_that_are_not_objects_are_refused(void **state)
{
    (void)state;
    refuse("[]", 0, "does not start with '{'");
    refuse(" {}", 0, "does not start with '{'");
    refuse("{", 0, "JSON line 1");
    refuse("{} {}", 0, "JSON line 1");
    refuse("{\"a\":1}", 0, "tensor 'a': not described by an object");
    refuse("{\"a\":null}", 0, "tensor 'a': not described by an object");
}

static void bad_text_in_headers_is_refused(void **state)
{
    (void)state;
    char   deep[400] = "{\"a\":";
    size_t at        = strlen(deep);
    memset(deep + at, '[', 100);
    memset(deep + at + 100, ']', 100);
    strcpy(deep + at + 200, "}");
    refuse(deep, 0, "nested 101 deep");
    refuse("{\"\xff\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, "not UTF-8");
    refuse("{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, "NUL");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
           "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
           2, "duplicate");
    refuse("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
           "duplicate");
    refuse("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, "duplicate");
}

static void bad_metadata_is_refused(void **state)
{
    (void)state;
    refuse("{\"__metadata__\":[]}", 0, "__metadata__ is not an object");
    refuse("{\"__metadata__\":\"a\"}", 0, "__metadata__ is not an object");
    refuse("{\"__metadata__\":{\"a\":1}}", 0, "__metadata__ 'a' is not a string");
    refuse("{\"__metadata__\":{\"a\":\"b\",\"c\":{}}}", 0, "__metadata__ 'c' is not a string");
}

static void bad_dtypes_are_refused(void **state)
{
    (void)state;
    refuse("{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "tensor 'a': dtype is missing");
    refuse("{\"a\":{\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "not a string");
    refuse("{\"a\":{\"dtype\":\"F128\",\"shape\":[1],\"data_offsets\":[0,16]}}", 16,
           "tensor 'a': dtype 'F128' is not known");
    refuse("{\"a\":{\"dtype\":\"u8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
           "'u8' is not known");
}

static void bad_shapes_are_refused(void **state)
{
    (void)state;
    refuse("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "shape is missing");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}", 1, "shape is missing");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}", 1,
           "shape [0] is not an integer >= 0");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1.0],\"data_offsets\":[0,1]}}", 1,
           "shape [1] is not an integer >= 0");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[\"1\"],\"data_offsets\":[0,1]}}", 1,
           "shape [0] is not an integer >= 0");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1,
           "9 dimensions, at most 8");
}

static void overflowing_shapes_are_refused(void **state)
{
    (void)state;
    /* 2^32 * 2^32 wraps around to 0, which would seem to need no bytes at all. */
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
           "dimension 1 is 4294967296: negative, or the size overflows");
    refuse("{\"a\":{\"dtype\":\"F64\",\"shape\":[9223372036854775807],\"data_offsets\":[0,8]}}", 8,
           "overflows");
    refuse("{\"a\":{\"dtype\":\"F64\",\"shape\":[288230376151711744],\"data_offsets\":[0,0]}}", 0,
           "overflows"); /* 2^58 * 64 bits */
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[9223372036854775808],\"data_offsets\":[0,0]}}", 0,
           "9223372036854775808 is not an integer of 64 bits");
}

static void half_bytes_are_refused(void **state)
{
    (void)state;
    refuse("{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2,
           "12 bits of F4 do not fill whole bytes");
    refuse("{\"a\":{\"dtype\":\"F6_E2M3\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2,
           "12 bits of F6_E2M3");
}

/* -------------------------------------------------------------- the offsets */

static void bad_offsets_are_refused(void **state)
{
    (void)state;
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "data_offsets is missing");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, "array of two");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,1]}}", 1, "array of two");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[-1,0]}}", 1,
           "data_offsets [0] is not an integer >= 0");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,true]}}", 1,
           "data_offsets [1] is not an integer >= 0");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,0]}}", 1,
           "[1, 0] lie outside the data of 1 bytes");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 1,
           "[0, 2] lie outside the data of 1 bytes");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[9223372036854775806,"
           "9223372036854775807]}}",
           1, "outside");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
           "span 4 bytes, dtype and shape need 8");
}

static void holes_overlaps_and_rests_are_refused(void **state)
{
    (void)state;
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", 2,
           "tensor 'a' begins at 1, wanted 0 (a hole before it)");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
           "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
           3, "tensor 'b' begins at 2, wanted 1 (a hole before it)");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
           "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
           3, "tensor 'b' begins at 1, wanted 2 (it overlaps another)");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
           "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
           2, "tensor 'b' begins at 0, wanted 2 (it overlaps another)");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
           "\"z\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[1,1]}}",
           2, "tensor 'z' begins at 1, wanted 2");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 3,
           "3 bytes of data, the tensors fill only 2");
    refuse("{}", 1, "1 bytes of data, the tensors fill only 0");
}

/* ------------------------------------------------------------------- files */

static void files_are_opened_by_path(void **state)
{
    (void)state;
    const char     *folder = new_folder();
    const char     *path   = in_folder(folder, "a.safetensors");
    const char     *header = "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}";
    image           made   = new_image(header, strlen(header), 3);
    hl_safetensors *file   = NULL;

    write_file(path, made.bytes, made.n_bytes);
    assert_ok(hl_safetensors_open(&file, path));
    assert_memory_equal(hl_safetensors_find(file, "a")->data, "\0\1\2", 3);
    hl_safetensors_close(file);

    write_file(path, made.bytes, made.n_bytes - 1);
    assert_fails(HL_BAD_INPUT, path, hl_safetensors_open(&file, path));
    assert_null(file);
    write_file(path, "", 0);
    assert_fails(HL_BAD_INPUT, "0 bytes", hl_safetensors_open(&file, path));
    assert_fails(HL_NOT_FOUND, "absent", hl_safetensors_open(&file, in_folder(folder, "absent")));
    assert_fails(HL_BAD_INPUT, "directory", hl_safetensors_open(&file, folder));
    free(made.bytes);
    remove_folder(folder);
}

/* Files that the reference implementation wrote, if they are available. */
static void files_of_the_reference_are_accepted(void **state)
{
    (void)state;
    const char *shared = getenv("HEADLIGHT_SHARED");
    if (shared == NULL)
        skip();
    char folder[1024];
    snprintf(folder, sizeof folder, "%s/golden/attention", shared);
    DIR *directory = opendir(folder);
    if (directory == NULL)
        skip();

    int n_files = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (strstr(entry->d_name, ".safetensors") == NULL)
            continue;
        hl_safetensors *file = NULL;
        assert_ok(hl_safetensors_open(&file, in_folder(folder, entry->d_name)));
        assert_non_null(hl_safetensors_find(file, "q"));
        hl_safetensors_close(file);
        n_files++;
    }
    closedir(directory);
    assert_true(n_files > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_found_with_their_bytes),
        cmocka_unit_test(files_without_tensors_are_fine),
        cmocka_unit_test(scalars_and_empty_tensors_are_fine),
        cmocka_unit_test(every_dtype_is_accepted),
        cmocka_unit_test(block_types_are_refused),
        cmocka_unit_test(odd_names_are_found),
        cmocka_unit_test(many_tensors_are_all_found),
        cmocka_unit_test(short_files_are_refused),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(impossible_lengths_are_refused),
        cmocka_unit_test(headers_that_are_not_objects_are_refused),
        cmocka_unit_test(bad_text_in_headers_is_refused),
        cmocka_unit_test(bad_metadata_is_refused),
        cmocka_unit_test(bad_dtypes_are_refused),
        cmocka_unit_test(bad_shapes_are_refused),
        cmocka_unit_test(overflowing_shapes_are_refused),
        cmocka_unit_test(half_bytes_are_refused),
        cmocka_unit_test(bad_offsets_are_refused),
        cmocka_unit_test(holes_overlaps_and_rests_are_refused),
        cmocka_unit_test(files_are_opened_by_path),
        cmocka_unit_test(files_of_the_reference_are_accepted),
    };
    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
