/* test_prune_gguf.c - pruned models as GGUF files: what is taken out in which architecture,
 * and the logits that gates of zero give. */
#include "prune_support.h"

#include "base/json.h"
#include "formats/gguf.h"

typedef void (*chooser)(choice *c, const hl_model *model);

typedef struct expectation {
    const char *family;
    chooser     choose_heads;
    const char *architecture;
    bool        gone; /* else zeroed */
} expectation;

/* What llama.cpp loads; doc/interop.md has the runs. */
static const expectation expectations[] = {
    { "llama", choose_ragged, "deci", true },
    { "llama", choose_uniform, "llama", true },
    { "llama3", choose_ragged, "deci", true },
    { "llama3", choose_uniform, "llama", true },
    { "qwen2", choose_ragged, "deci", true },
    { "qwen2", choose_uniform, "deci", true }, /* its own wants heads that cover the width */
    { "qwen3", choose_ragged, "qwen3", false },
    { "qwen3", choose_uniform, "qwen3", true },
    { "gpt2", choose_ragged, "gpt2", false },
    { "gpt2", choose_uniform, "gpt2", false },
    { "olmo2", choose_uniform, "olmo2", false },
    { "starcoder2", choose_uniform, "starcoder2", false },
};

static const char *family_path(const char *name)
{
    static char path[2048];

    snprintf(path, sizeof path, "%s/%s", in_shared("golden/families"), name);
    if (!path_exists(path))
        snprintf(path, sizeof path, "tests/data/families/%s", name);
    return path_exists(path) ? path : NULL;
}

static void check_architecture(const hl_model *model, const char *wanted)
{
    hl_gguf_text name = { 0 };

    assert_ok(hl_gguf_get_text(&name, hl_tensors_gguf(model->tensors), "general.architecture"));
    assert_true(hl_gguf_text_is(name, wanted));
}

/* In f32 the same numbers, wherever they came from: a folder or a GGUF file. */
static void check_file(const char *from, const expectation *e, const char *path)
{
    hl_model       *model = open_model(from);
    choice          c     = { 0 };
    hl_prune_report report;

    e->choose_heads(&c, model);
    run wanted = run_gated(model, &c);
    assert_ok(hl_prune_write(&report, model, &c.list, &(hl_prune_options){ .form = HL_PRUNE_GGUF },
                             path));
    hl_model *written = open_model(path);
    check_architecture(written, e->architecture);
    assert_int_equal(report.n_pruned, c.list.n_heads);
    assert_int_equal(report.n_gone > 0, e->gone);
    run    seen  = run_tokens(written, NULL, N_TOKENS);
    double error = difference(&wanted, &seen, N_TOKENS);
    if (!(error <= 1e-5))
        fail_msg("%s as %s: off by %.2e", from, e->architecture, error);
    free(wanted.values);
    free(seen.values);
    hl_model_close(written);
    hl_model_close(model);
}

static void files_compute_what_gates_give(void **state)
{
    char folder[64], path[128];
    int  count = 0;
    (void)state;

    snprintf(folder, sizeof folder, "%s", new_folder());
    snprintf(path, sizeof path, "%s/x.gguf", folder);
    for (size_t i = 0; i < sizeof expectations / sizeof *expectations; i++) {
        const char *from = family_path(expectations[i].family);
        if (from == NULL)
            continue;
        check_file(from, &expectations[i], path);
        count++;
    }
    assert_true(count >= 3);
    remove_folder(folder);
}

static void gguf_files_can_be_pruned(void **state)
{
    expectation ragged = { "llama3", choose_ragged, "deci", true };
    char        folder[64], path[128], again[128];
    (void)state;

    snprintf(folder, sizeof folder, "%s", new_folder());
    snprintf(path, sizeof path, "%s/x.gguf", folder);
    snprintf(again, sizeof again, "%s/y.gguf", folder);
    check_file("tests/data/gguf/llama3.gguf", &ragged, path);
    check_file(path, &ragged, again); /* and what is deci already, once more */
    remove_folder(folder);
}

/* The golden Mistral has a window, which this architecture has no key for. */
static void mistral_without_a_window(void **state)
{
    expectation ragged  = { "mistral", choose_ragged, "deci", true };
    expectation uniform = { "mistral", choose_uniform, "llama", true };
    char        folder[64], path[128], made[128], from[2048];
    (void)state;

    if (family_path("mistral") == NULL)
        skip();
    snprintf(from, sizeof from, "%s", family_path("mistral"));
    snprintf(folder, sizeof folder, "%s", new_folder());
    snprintf(path, sizeof path, "%s/x.gguf", folder);
    snprintf(made, sizeof made, "%s/mistral", folder);

    hl_model *model = open_model(from);
    assert_fails(HL_UNSUPPORTED, "sees a window of 12 keys",
                 hl_prune_write(NULL, model, &(hl_head_list){ 0 },
                                &(hl_prune_options){ .form = HL_PRUNE_GGUF }, path));
    assert_false(path_exists(path));
    assert_ok(hl_prune_write(NULL, model, &(hl_head_list){ 0 }, NULL, made)); /* a copy */
    hl_model_close(model);

    json_t *config = json_load_file(in_folder(made, "config.json"), 0, NULL);
    json_object_set_new(config, "sliding_window", json_null());
    assert_int_equal(json_dump_file(config, in_folder(made, "config.json"), 0), 0);
    json_decref(config);
    check_file(made, &ragged, path);
    check_file(made, &uniform, path);
    remove_folder(made);
    remove_folder(folder);
}

/* How far a file of this type is from what gates give in f32. */
static double error_of(const hl_model *model, const choice *c, hl_dtype dtype, const char *path)
{
    run wanted = run_gated(model, c);

    assert_ok(hl_prune_write(NULL, model, &c->list,
                             &(hl_prune_options){ .form = HL_PRUNE_GGUF, .dtype = dtype }, path));
    run    seen  = run_file(path);
    double error = difference(&wanted, &seen, N_TOKENS);
    free(wanted.values);
    free(seen.values);
    return error;
}

/* Fewer bits cost a pruned model about what they cost the whole one.  (Rows of an output
 * projection that lost heads may be no whole blocks any more: they are F16 then.) */
static void other_types_open_and_run(void **state)
{
    static const hl_dtype types[] = { HL_DTYPE_F16, HL_DTYPE_BF16, HL_DTYPE_Q8_0, HL_DTYPE_Q4_0 };
    char                  folder[64], path[128];
    hl_model             *model = open_model("tests/data/families/llama3");
    choice                none  = { 0 };
    choice                some  = { 0 };
    (void)state;

    snprintf(folder, sizeof folder, "%s", new_folder());
    snprintf(path, sizeof path, "%s/x.gguf", folder);
    choose_ragged(&some, model);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        double whole  = error_of(model, &none, types[i], path);
        double pruned = error_of(model, &some, types[i], path);
        if (!(pruned <= 3.0 * whole + 1e-5))
            fail_msg("%s: off by %.2e, the whole model by %.2e", hl_dtype_name(types[i]), pruned,
                     whole);
    }
    assert_fails(
        HL_UNSUPPORTED, "not Q6_K",
        hl_prune_write(NULL, model, &some.list,
                       &(hl_prune_options){ .form = HL_PRUNE_GGUF, .dtype = HL_DTYPE_Q6_K },
                       in_folder(folder, "y")));
    hl_model_close(model);
    assert_int_equal(count_files(folder), 1);
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_compute_what_gates_give),
        cmocka_unit_test(gguf_files_can_be_pruned),
        cmocka_unit_test(mistral_without_a_window),
        cmocka_unit_test(other_types_open_and_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
