/* test_checkpoints.c - the checkpoints in a folder, and their steps. */
#include "measure/measure.h"
#include "support.h"

#include <fcntl.h>
#include <sys/stat.h>

static void steps_are_read_from_names(void **state)
{
    static const struct {
        const char *name;
        int64_t     step;
    } cases[] = {
        { "checkpoint-500", 500 },
        { "step_1000.gguf", 1000 },
        { "Step 20", 20 },
        { "steps=7", 7 },
        { "epoch=3-step=1200", 1200 },
        { "epoch_3", 3 },
        { "global_step0042", 42 },
        { "iter_0001000", 1000 },
        { "iteration-8-f16.gguf", 8 },
        { "step100-Q8_0.gguf", 100 },
        { "model-300.gguf", 300 },
        { "step9-00001-of-00003.gguf", 9 },
        { "model-12-00001-of-00003.gguf", 12 },
        { "12", 12 },
        { "0", 0 },
        { "123456789012345678", 123456789012345678 },
        { "1234567890123456789", -1 },
        { "final", -1 },
        { "step", -1 },
        { "step-final.gguf", -1 },
        { "model-00001-of-00003.gguf", -1 },
        { ".gguf", -1 },
        { "", -1 },
    };
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (hl_checkpoint_step(cases[i].name) != cases[i].step)
            fail_msg("'%s' is of step %lld, wanted %lld", cases[i].name,
                     (long long)hl_checkpoint_step(cases[i].name), (long long)cases[i].step);
    }
}

static void put(const char *folder, const char *name, const char *text, int64_t seconds)
{
    const char           *path     = in_folder(folder, name);
    const struct timespec times[2] = { { .tv_sec = seconds }, { .tv_sec = seconds } };

    write_file(path, text, strlen(text));
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* Makes a folder with files, "a b", each with its name as contents. */
static void put_folder(const char *folder, const char *name, const char *files)
{
    char path[512], file[64];

    snprintf(path, sizeof path, "%s", in_folder(folder, name));
    assert_int_equal(mkdir(path, 0777), 0);
    for (int length = 0; sscanf(files, "%63s%n", file, &length) == 1; files += length)
        put(path, file, file, 1000);
}

static void drop_folder(const char *folder, const char *name)
{
    char path[512];

    snprintf(path, sizeof path, "%s", in_folder(folder, name));
    remove_folder(path);
}

static void assert_is(const hl_checkpoint *checkpoint, const char *name, int64_t step,
                      int64_t n_bytes, int64_t seconds)
{
    assert_string_equal(checkpoint->name, name);
    assert_string_equal(strrchr(checkpoint->path, '/') + 1, name);
    assert_int_equal(checkpoint->step, step);
    assert_int_equal(checkpoint->n_bytes, n_bytes);
    assert_int_equal(checkpoint->modified, seconds * 1000000000);
}

static void models_are_found_and_sorted(void **state)
{
    static const char *const folders[][2] = {
        { "checkpoint-900", "config.json model.safetensors optimizer.pt" },
        { "checkpoint-1000", "config.json pytorch_model.bin" },
        { "checkpoint-20", "config.json" }, /* the weights are missing */
        { "checkpoint-30", "model.safetensors" },
        { "tmp-checkpoint-40", "config.json model.safetensors" },
        { ".checkpoint-50", "config.json model.safetensors" },
        { "final", "config.json model.safetensors" },
        { "best", "config.json model.safetensors" },
        { "bad-\xff-7", "config.json model.safetensors" },
    };
    enum { N_FOLDERS = sizeof folders / sizeof *folders };
    const char     *here  = new_folder();
    hl_checkpoints *found = NULL;
    (void)state;

    for (int i = 0; i < N_FOLDERS; i++)
        put_folder(here, folders[i][0], folders[i][1]);
    put(here, "step5.gguf", "12345", 70);
    put(here, "step6-00001-of-00002.gguf", "1", 80);
    put(here, "step6-00002-of-00002.gguf", "22", 90);
    put(here, "step60-00002-of-00002.gguf", "4444", 99);
    put(here, "notes-7.txt", "7", 1);

    assert_ok(hl_checkpoints_list(&found, here));
    assert_int_equal(found->count, 4);
    assert_is(&found->items[0], "step5.gguf", 5, 5, 70);
    assert_is(&found->items[1], "step6-00001-of-00002.gguf", 6, 3, 90);
    assert_is(&found->items[2], "checkpoint-900", 900, 11 + 17, 1000);
    assert_is(&found->items[3], "checkpoint-1000", 1000, 11 + 17, 1000);
    assert_int_equal(found->n_unnumbered, 2);
    assert_string_equal(found->first_unnumbered, "best");
    hl_checkpoints_free(found);

    for (int i = 0; i < N_FOLDERS; i++)
        drop_folder(here, folders[i][0]);
    remove_folder(here);
}

static void folders_may_be_empty_or_missing(void **state)
{
    const char     *here  = new_folder();
    hl_checkpoints *found = NULL;
    (void)state;

    assert_ok(hl_checkpoints_list(&found, here));
    assert_int_equal(found->count, 0);
    assert_null(found->first_unnumbered);
    hl_checkpoints_free(found);
    put(here, "file", "", 1);
    assert_fails(HL_IO, "file: Not a directory",
                 hl_checkpoints_list(&found, in_folder(here, "file")));
    assert_fails(HL_NOT_FOUND, "nowhere: No such file",
                 hl_checkpoints_list(&found, in_folder(here, "nowhere")));
    assert_null(found);
    hl_checkpoints_free(NULL);
    remove_folder(here);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_read_from_names),
        cmocka_unit_test(models_are_found_and_sorted),
        cmocka_unit_test(folders_may_be_empty_or_missing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
