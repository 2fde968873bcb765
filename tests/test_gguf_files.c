/* test_gguf_files.c - GGUF files in practice: too large to be read at once, and llama.cpp's own. */
#include "gguf_support.h"

#include <dirent.h>
#include <sys/stat.h>
#include <time.h>

/* ------------------------------------------------------------- large files */

/* Writes these bytes with 16 GiB of zeros after them, which take no disk space. */
static void write_sparse(const char *path, const image *start)
{
    write_file(path, start->bytes, start->n_bytes);
    assert_int_equal(truncate(path, (off_t)16 << 30), 0);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void large_files_cost_nothing(void **state)
{
    (void)state;
    const char *folder = new_folder();
    const char *path   = in_folder(folder, "large.gguf");
    hl_gguf    *file   = NULL;
    image       made   = start_image(1, 1);

    put_key(&made, "a", HL_GGUF_ARRAY); /* 10^9 numbers are valid if the file has them */
    put_u32(&made, HL_GGUF_U8);
    put_u64(&made, 0);
    put_tensor(&made, "t", 1 << 20, 4000, 0, 0);
    write_sparse(path, &made);
    double begin = seconds();
    assert_ok(hl_gguf_open(&file, path));
    assert_true(seconds() - begin < 0.5);
    assert_true(hl_gguf_at(file, 0)->n_bytes == (size_t)4000 << 22);
    hl_gguf_close(file);

    made = start_image(0, 1);
    put_key(&made, "a", HL_GGUF_ARRAY);
    put_u32(&made, HL_GGUF_U8);
    put_u64(&made, 1000000000);
    write_sparse(path, &made);
    begin = seconds();
    assert_ok(hl_gguf_open(&file, path));
    assert_true(seconds() - begin < 0.5);
    hl_gguf_close(file);

    made = start_image(0, 1);
    put_key(&made, "a", HL_GGUF_ARRAY);
    put_u32(&made, HL_GGUF_TEXT);
    put_u64(&made, 1000000000);
    write_sparse(path, &made);
    begin = seconds();
    assert_fails(HL_BAD_INPUT, "an array of 1000000000, at most 16777216",
                 hl_gguf_open(&file, path));
    assert_true(seconds() - begin < 0.5);
    remove_folder(folder);
}

/* -------------------------------------------------------------- real files */

/* Checks that all tensors are inside the file and that every array of texts can be read. */
static void check_file(const char *path)
{
    hl_gguf      *file  = NULL;
    hl_gguf_array words = { 0 };
    hl_bytes      text  = { 0 };

    assert_ok(hl_gguf_open(&file, path));
    assert_non_null(hl_gguf_find(file, "token_embd.weight"));
    assert_ok(hl_gguf_get_text(&text, file, "general.architecture"));
    assert_true(text.n_bytes > 0);
    assert_ok(hl_gguf_get_array(&words, file, "tokenizer.ggml.tokens"));
    assert_true(words.count > 0);
    for (size_t i = 0; i < words.count; i++)
        assert_true(hl_gguf_array_text(&text, &words, i));
    hl_gguf_close(file);
}

static int check_folder(const char *path)
{
    char folder[1024];
    DIR *directory = opendir(path);
    int  n_files   = 0;

    if (directory == NULL)
        skip();
    snprintf(folder, sizeof folder, "%s", path);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        size_t length = strlen(entry->d_name);
        if (length > 5 && strcmp(entry->d_name + length - 5, ".gguf") == 0) {
            check_file(in_folder(folder, entry->d_name));
            n_files++;
        }
    }
    closedir(directory);
    return n_files;
}

static void converted_models_are_read(void **state)
{
    (void)state;
    assert_int_equal(check_folder("tests/data/gguf"), 2);
}

static void all_converted_models_are_read(void **state)
{
    (void)state;
    assert_true(check_folder(in_shared("golden/gguf")) >= 26);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_files_cost_nothing),
        cmocka_unit_test(converted_models_are_read),
        cmocka_unit_test(all_converted_models_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
