/* test_prune_gguf.c - pruned models as GGUF files: which heads each architecture removes, and
 * logits equal to those with gates of zero. */
#include "prune_support.h"

#include <sys/stat.h>

#include "base/dtype.h"
#include "base/json.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"

typedef void (*chooser)(choice *c, const hl_model *model);

typedef struct expectation {
    const char *family;
    chooser     choose_heads;
    const char *architecture;
    bool        gone; /* removed; false: zeroed */
} expectation;

/* What llama.cpp can load; doc/interop.md describes the runs. */
static const expectation expectations[] = {
    { "llama", choose_ragged, "deci", true },
    { "llama", choose_uniform, "llama", true },
    { "llama3", choose_ragged, "deci", true },
    { "llama3", choose_uniform, "llama", true },
    { "qwen2", choose_ragged, "deci", true },
    { "qwen2", choose_uniform, "deci", true }, /* in qwen2 itself, heads must cover the width */
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
    hl_bytes name = { 0 };

    assert_ok(hl_gguf_get_text(&name, hl_tensors_gguf(model->tensors), "general.architecture"));
    assert_true(hl_bytes_equal(name, wanted));
}

/* In f32 the numbers are the same, whether the model came from a folder or from a GGUF file. */
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
    hl_prune_report_clear(&report);
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
    check_file(path, &ragged, again); /* a file that is deci already, pruned once more */
    remove_folder(folder);
}

/* Families that have no form of their own: the file is copied, with zeros in its output projections. */
static void any_file_is_copied_with_zeros(void **state)
{
    static const char *const names[] = {
        "gguf2/jamba",   "gguf2/gemma3n",    "gguf2/deepseek_v3",      "gguf2/lfm2",
        "gguf2/qwen3_5", "gguf2/nemotron_h", "gguf2/granitemoehybrid", "gguf/gemma2"
    };
    char folder[64], path[128], from[2100];
    (void)state;

    snprintf(folder, sizeof folder, "%s", new_folder());
    snprintf(path, sizeof path, "%s/x.gguf", folder);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        hl_prune_report report;
        choice          c = { 0 };

        snprintf(from, sizeof from, "%s/%s.gguf", in_shared("golden"), names[i]);
        if (!path_exists(from))
            continue;
        hl_model *model = open_model(from);
        choose_ragged(&c, model);
        run wanted = run_gated(model, &c);
        assert_ok(hl_prune_write(&report, model, &c.list, NULL, path));
        assert_int_equal(report.form, HL_PRUNE_MASKED);
        assert_true(report.n_pruned > 0 && report.n_gone == 0);
        run    seen  = run_file(path);
        double error = difference(&wanted, &seen, N_TOKENS);
        if (!(error <= 1e-5))
            fail_msg("%s: off by %.2e", names[i], error);
        assert_fails(HL_UNSUPPORTED, "only a Hugging Face folder can be written as a folder",
                     hl_prune_write(NULL, model, &c.list,
                                    &(hl_prune_options){ .form = HL_PRUNE_MASKED }, folder));
        free(wanted.values);
        free(seen.values);
        hl_prune_report_clear(&report);
        hl_model_close(model);
    }
    remove_folder(folder);
}

/* Returns the error of a file of this type, against gates in f32. */
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

/* Blocks: whole ones become zeros in place, and a matrix whose heads share blocks changes its type. */
static void blocks_of_zeroed_heads(void **state)
{
    static const hl_dtype types[] = { HL_DTYPE_Q8_0, HL_DTYPE_Q4_0 };
    char                  folder[64], path[128], again[128];
    (void)state;

    snprintf(folder, sizeof folder, "%s", new_folder());
    snprintf(path, sizeof path, "%s/x.gguf", folder);
    snprintf(again, sizeof again, "%s/y.gguf", folder);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        hl_model *folder_model = open_model("tests/data/families/llama3");
        choice    none = { 0 }, c = { 0 };
        double    whole = error_of(folder_model, &none, types[i], path); /* of the type itself */

        hl_model *model = open_model(path);
        choose_ragged(&c, model);
        run wanted = run_gated(model, &c);
        assert_ok(hl_prune_write(NULL, model, &c.list,
                                 &(hl_prune_options){ .form = HL_PRUNE_MASKED }, again));
        run    seen  = run_file(again);
        double error = difference(&wanted, &seen, N_TOKENS);
        if (!(error <= whole)) /* the matrix is rounded once more */
            fail_msg("%s: off by %.2e", hl_dtype_name(types[i]), error);
        free(wanted.values);
        free(seen.values);
        hl_model_close(model);
        hl_model_close(folder_model);
    }
    remove_folder(folder);
}

/* The golden Mistral has a window, for which this architecture has no key. */
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

/* Lower precision costs a pruned model about as much as the whole one.  (Rows of an output
 * projection that lost heads may not be whole blocks any more; they are F16 then.) */
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

/* -------------------------------------------------------------------- stored types */

static const hl_tensor *tensor_of(const hl_model *model, const char *name)
{
    const hl_tensor *tensor = hl_tensors_find(model->tensors, name);

    if (tensor == NULL)
        fail_msg("no tensor '%s'", name);
    return tensor;
}

static int64_t file_type_of(const hl_model *model)
{
    int64_t number = -1;

    assert_ok(hl_gguf_get_int(&number, hl_tensors_gguf(model->tensors), "general.file_type"));
    return number;
}

/* Writes the model at `from` without the heads of `names` ("": with all heads). */
static void prune_to(hl_prune_report *report, const char *from, const char *names, hl_dtype dtype,
                     const char *path)
{
    hl_model        *model   = open_model(from);
    hl_head_list     none    = { 0 };
    hl_head_list    *heads   = NULL;
    hl_prune_options options = { .form = HL_PRUNE_GGUF, .dtype = dtype };

    if (names[0] != '\0')
        assert_ok(hl_head_list_parse(&heads, model, names));
    assert_ok(hl_prune_write(report, model, heads != NULL ? heads : &none, &options, path));
    hl_head_list_free(heads);
    hl_model_close(model);
}

/* Checks that rows `first`... of a stored matrix equal the rows of the written one, each from block
 * `skip` on. */
static void assert_rows(const hl_model *before, const hl_model *after, const char *name,
                        int64_t first, int64_t skip)
{
    const hl_tensor *was       = tensor_of(before, name);
    const hl_tensor *is        = tensor_of(after, name);
    hl_dtype_block   block     = hl_dtype_block_of(was->dtype);
    size_t           was_bytes = was->n_bytes / (size_t)was->shape[0];
    size_t           is_bytes  = is->n_bytes / (size_t)is->shape[0];

    assert_int_equal(is->dtype, was->dtype);
    assert_int_equal(is->shape[0], was->shape[0] - first);
    assert_int_equal(is_bytes, was_bytes - (size_t)skip * block.n_bytes);
    for (int64_t r = 0; r < is->shape[0]; r++)
        assert_memory_equal((const uint8_t *)is->data + (size_t)r * is_bytes,
                            (const uint8_t *)was->data + (size_t)(r + first) * was_bytes +
                                (size_t)skip * block.n_bytes,
                            is_bytes);
}

/* All matrices are Q4_0; heads have 16 values, so a block of 32 holds two.  Layer 0 loses both
 * queries of its first KV head, which are whole blocks; in layer 1 one of two is zeroed, half a
 * block. */
static void blocks_stay_as_they_are(void **state)
{
    static const char *const touched[] = { "blk.0.attn_q.weight", "blk.0.attn_k.weight",
                                           "blk.0.attn_v.weight", "blk.0.attn_output.weight",
                                           "blk.1.attn_output.weight" };
    char                     folder[64], whole[128], path[128];
    hl_prune_report          report;
    (void)state;

    snprintf(folder, sizeof folder, "%s", new_folder());
    snprintf(whole, sizeof whole, "%s/whole.gguf", folder);
    snprintf(path, sizeof path, "%s/x.gguf", folder);
    prune_to(&report, "tests/data/families/llama3", "", HL_DTYPE_Q4_0, whole);
    assert_int_equal(report.n_tensors, 0);
    assert_int_equal(report.file_type, HL_DTYPE_Q4_0);
    hl_prune_report_clear(&report);

    prune_to(&report, whole, "L0H0,L0H1,L1H2", HL_DTYPE_F32, path); /* F32: types are unchanged */
    hl_model *before = open_model(whole);
    hl_model *after  = open_model(path);
    for (size_t i = 0; i < hl_tensors_count(before->tensors); i++) {
        const hl_tensor *was  = hl_tensors_at(before->tensors, i);
        bool             kept = true;

        for (size_t k = 0; k < sizeof touched / sizeof *touched; k++)
            kept = kept && strcmp(touched[k], was->name) != 0;
        if (kept && was->n_dims == 2)
            assert_rows(before, after, was->name, 0, 0);
    }
    assert_rows(before, after, "blk.0.attn_q.weight", 32, 0);
    assert_rows(before, after, "blk.0.attn_k.weight", 16, 0);
    assert_rows(before, after, "blk.0.attn_v.weight", 16, 0);
    assert_rows(before, after, "blk.0.attn_output.weight", 0, 1);
    assert_int_equal(tensor_of(after, "blk.1.attn_output.weight")->dtype, HL_DTYPE_Q8_0);
    assert_int_equal(file_type_of(after), 2);

    /* The tensor that grew is named, with the reason. */
    assert_int_equal(report.n_tensors, 1);
    assert_string_equal(report.tensors[0].name, "blk.1.attn_output.weight");
    assert_int_equal(report.tensors[0].wanted, HL_DTYPE_Q4_0);
    assert_int_equal(report.tensors[0].written, HL_DTYPE_Q8_0);
    assert_int_equal(report.tensors[0].stored_bytes, 64 * 64 / 32 * 18);
    assert_int_equal(report.tensors[0].written_bytes, 64 * 64 / 32 * 34);
    assert_string_equal(report.tensors[0].why,
                        "heads are removed from inside its blocks of 32 values");
    hl_prune_report_clear(&report);
    hl_model_close(before);
    hl_model_close(after);
    remove_folder(folder);
}

/* Only whole blocks are removed, so the other numbers do not change by a bit. */
static void blocks_that_stay_compute_the_same(void **state)
{
    char            folder[64], whole[128], path[128];
    hl_prune_report report;
    choice          c = { 0 };
    (void)state;

    snprintf(folder, sizeof folder, "%s", new_folder());
    snprintf(whole, sizeof whole, "%s/whole.gguf", folder);
    snprintf(path, sizeof path, "%s/x.gguf", folder);
    prune_to(NULL, "tests/data/families/llama3", "", HL_DTYPE_Q4_0, whole);
    hl_model *model = open_model(whole);
    choose(&c, 0, 0);
    choose(&c, 0, 1);
    choose(&c, 2, 2);
    choose(&c, 2, 3);
    run wanted = run_gated(model, &c);
    prune_to(&report, whole, "L0H0,L0H1,L2H2,L2H3", HL_DTYPE_F32, path);
    run seen = run_file(path);
    assert_true(difference(&wanted, &seen, N_TOKENS) <= 1e-5);
    assert_int_equal(report.n_gone, 4);
    assert_int_equal(report.n_tensors, 0);
    assert_true(report.tensor_bytes < model->info.tensor_bytes);
    free(wanted.values);
    free(seen.values);
    hl_prune_report_clear(&report);
    hl_model_close(model);
    remove_folder(folder);
}

/* Makes a Llama of width 40: only the rows of the MLP's output are multiples of 32 values. */
static void make_narrow(const char *folder)
{
    enum { WIDTH = 40, MLP = 64, VOCAB = 48, MOST = 64 * 64 };
    static const struct {
        const char *name;
        int64_t     rows, columns;
    } shapes[] = {
        { "model.embed_tokens.weight", VOCAB, WIDTH },
        { "model.norm.weight", WIDTH, 0 },
        { "model.layers.0.input_layernorm.weight", WIDTH, 0 },
        { "model.layers.0.post_attention_layernorm.weight", WIDTH, 0 },
        { "model.layers.0.self_attn.q_proj.weight", WIDTH, WIDTH },
        { "model.layers.0.self_attn.k_proj.weight", WIDTH, WIDTH },
        { "model.layers.0.self_attn.v_proj.weight", WIDTH, WIDTH },
        { "model.layers.0.self_attn.o_proj.weight", WIDTH, WIDTH },
        { "model.layers.0.mlp.gate_proj.weight", MLP, WIDTH },
        { "model.layers.0.mlp.up_proj.weight", MLP, WIDTH },
        { "model.layers.0.mlp.down_proj.weight", WIDTH, MLP },
    };
    static float           values[MOST];
    hl_safetensors_writer *writer = NULL;

    for (int i = 0; i < MOST; i++)
        values[i] = (float)((i * 37 + 11) % 101 - 50) / 200.0f;
    assert_ok(hl_safetensors_writer_new(&writer));
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        hl_tensor tensor = { .name   = shapes[i].name,
                             .dtype  = HL_DTYPE_F32,
                             .n_dims = shapes[i].columns > 0 ? 2 : 1,
                             .shape  = { shapes[i].rows, shapes[i].columns },
                             .data   = values };
        assert_ok(hl_tensor_bytes(&tensor.n_bytes, &tensor));
        hl_safetensors_add(writer, &tensor);
    }
    assert_ok(hl_safetensors_write(writer, in_folder(folder, "model.safetensors")));
    hl_safetensors_writer_free(writer);
    FILE *config = fopen(in_folder(folder, "config.json"), "w");
    assert_non_null(config);
    fprintf(config, "{ \"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], "
                    "\"hidden_size\": 40, \"num_attention_heads\": 4, \"num_hidden_layers\": 1, "
                    "\"intermediate_size\": 64, \"vocab_size\": 48, \"rms_norm_eps\": 1e-5, "
                    "\"max_position_embeddings\": 64, \"tie_word_embeddings\": true }");
    assert_int_equal(fclose(config), 0);
}

/* Matrices that could not get their type are named, and the file states its actual type, not the
 * requested one. */
static void types_that_do_not_fit_are_told(void **state)
{
    char            folder[64], from[128], path[128];
    hl_prune_report report;
    (void)state;

    snprintf(folder, sizeof folder, "%s", new_folder());
    snprintf(from, sizeof from, "%s/narrow", folder);
    snprintf(path, sizeof path, "%s/x.gguf", folder);
    assert_int_equal(mkdir(from, 0777), 0);
    make_narrow(from);
    prune_to(&report, from, "", HL_DTYPE_Q4_0, path);
    assert_int_equal(report.n_tensors, 7); /* all matrices except ffn_down */
    for (int64_t i = 0; i < report.n_tensors; i++) {
        assert_int_equal(report.tensors[i].wanted, HL_DTYPE_Q4_0);
        assert_int_equal(report.tensors[i].written, HL_DTYPE_F16);
        assert_string_equal(report.tensors[i].why,
                            "rows of 40 values are not a multiple of its blocks of 32");
        assert_null(strstr(report.tensors[i].name, "ffn_down"));
    }
    assert_int_equal(report.file_type, HL_DTYPE_F16);
    hl_model *written = open_model(path);
    assert_int_equal(file_type_of(written), 1); /* mostly F16 */
    assert_int_equal(tensor_of(written, "blk.0.ffn_down.weight")->dtype, HL_DTYPE_Q4_0);
    hl_model_close(written);
    hl_prune_report_clear(&report);
    remove_folder(from);
    remove_folder(folder);
}

/* The default saves the most: a file for a file or a file's name, a smaller folder for a folder. */
static void the_default_form_saves(void **state)
{
    char            folder[64], path[128];
    hl_prune_report report;
    hl_head_list   *heads = NULL;
    hl_model       *model = open_model("tests/data/families/llama3");
    (void)state;

    snprintf(folder, sizeof folder, "%s", new_folder());
    snprintf(path, sizeof path, "%s/x", folder);
    assert_ok(hl_head_list_parse(&heads, model, "L0H0,L0H1"));
    assert_ok(hl_prune_write(&report, model, heads, NULL, path));
    assert_int_equal(report.form, HL_PRUNE_COMPACT);
    assert_true(report.tensor_bytes < model->info.tensor_bytes);
    hl_prune_report_clear(&report);
    remove_folder(path);
    snprintf(path, sizeof path, "%s/x.gguf", folder);
    assert_ok(hl_prune_write(&report, model, heads, NULL, path));
    assert_int_equal(report.form, HL_PRUNE_GGUF);
    hl_prune_report_clear(&report);
    hl_model_close(model);
    model = open_model("tests/data/gguf/llama3.gguf");
    snprintf(path, sizeof path, "%s/y", folder);
    assert_ok(hl_prune_write(&report, model, heads, NULL, path));
    assert_int_equal(report.form, HL_PRUNE_GGUF);
    assert_true(report.tensor_bytes < model->info.tensor_bytes);
    hl_prune_report_clear(&report);
    hl_head_list_free(heads);
    hl_model_close(model);
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_compute_what_gates_give),
        cmocka_unit_test(any_file_is_copied_with_zeros),
        cmocka_unit_test(blocks_of_zeroed_heads),
        cmocka_unit_test(gguf_files_can_be_pruned),
        cmocka_unit_test(mistral_without_a_window),
        cmocka_unit_test(other_types_open_and_run),
        cmocka_unit_test(blocks_stay_as_they_are),
        cmocka_unit_test(blocks_that_stay_compute_the_same),
        cmocka_unit_test(types_that_do_not_fit_are_told),
        cmocka_unit_test(the_default_form_saves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
