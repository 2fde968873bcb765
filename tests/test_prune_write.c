/* test_prune_write.c - folders written without heads: masked and compact ones give the results of
 * gates at zero, in every family, for uniform and other choices. */
#include "prune_support.h"

#include <signal.h>
#include <sys/resource.h>

#include "base/json.h"
#include "formats/safetensors.h"

typedef void (*chooser)(choice *c, const hl_model *model);

/* Chooses all heads of the second layer. */
static void choose_layer(choice *c, const hl_model *model)
{
    for (int64_t head = 0; head < model->config->layers[1].n_heads; head++)
        choose(c, 1, head);
}

static const chooser choosers[] = { choose_uniform, choose_ragged, choose_layer };

/* Returns a family of the shared golden data, or else our own of this name. */
static const char *family_path(const char *name)
{
    static char path[2048];

    snprintf(path, sizeof path, "%s/%s", in_shared("golden/families"), name);
    if (!path_exists(path))
        snprintf(path, sizeof path, "tests/data/families/%s", name);
    return path_exists(path) ? path : NULL;
}

/* ---------------------------------------------------------------- every family */

/* Writes one form, reads it back, and compares it with gates.  MASKED computes with the same
 * shapes, so the bytes are the same.  COMPACT sums in another order. */
static void check_form(const hl_model *model, const char *name, const choice *c, const run *wanted,
                       hl_prune_form form, const char *folder)
{
    char             path[256];
    hl_prune_report  report;
    hl_prune_options options = { .form = form };
    run              seen;
    double           error;

    snprintf(path, sizeof path, "%s/%s", folder, hl_prune_form_name(form));
    assert_ok(hl_prune_write(&report, model, &c->list, &options, path));
    assert_int_equal(report.n_pruned, c->list.n_heads);
    assert_int_equal(form == HL_PRUNE_MASKED, report.n_gone == 0);
    assert_int_equal(form == HL_PRUNE_MASKED, report.n_params == model->info.n_params);
    seen  = run_file(path);
    error = difference(wanted, &seen, N_TOKENS);
    if (!(error <= (form == HL_PRUNE_MASKED ? 0.0 : 1e-5)))
        fail_msg("%s %s: off by %.2e", name, hl_prune_form_name(form), error);
    free(seen.values);
    remove_folder(path);
}

static bool is_masked_only(const char *name)
{
    return strcmp(name, "bloom") == 0 || strcmp(name, "falcon_rw") == 0 ||
           strcmp(name, "olmo2") == 0;
}

static void check_family(const char *family, const char *name, const char *folder)
{
    hl_model *model = open_model(family);

    for (size_t i = 0; i < sizeof choosers / sizeof *choosers; i++) {
        choice c = { 0 };
        choosers[i](&c, model);
        run wanted = run_gated(model, &c);

        check_form(model, name, &c, &wanted, HL_PRUNE_MASKED, folder);
        if (is_masked_only(name))
            assert_fails(HL_UNSUPPORTED, "would change",
                         hl_prune_write(NULL, model, &c.list,
                                        &(hl_prune_options){ .form = HL_PRUNE_COMPACT },
                                        in_folder(folder, "x")));
        else
            check_form(model, name, &c, &wanted, HL_PRUNE_COMPACT, folder);
        free(wanted.values);
    }
    hl_model_close(model);
}

typedef void (*family_check)(const char *family, const char *name, const char *folder);

/* Runs a check for all families: of the shared golden data, or else our own. */
static void for_every_family(family_check check)
{
    char           folder[64];
    char           from[1024] = "tests/data/families";
    int            count      = 0;
    struct dirent *entry;

    snprintf(folder, sizeof folder, "%s", new_folder());
    if (path_exists(in_shared("golden/families")))
        snprintf(from, sizeof from, "%s", in_shared("golden/families"));
    DIR *families = opendir(from);
    assert_non_null(families);
    while ((entry = readdir(families)) != NULL) {
        char path[2048];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", from, entry->d_name);
        check(path, entry->d_name, folder);
        count++;
    }
    closedir(families);
    assert_true(count >= 4);
    remove_folder(folder);
}

/* The first group of every layer that attends, and one head more in the last of them if `ragged`. */
static void choose_attending(choice *c, const hl_model *model, bool ragged)
{
    int64_t last = 0;

    for (int64_t layer = 0; layer < model->config->n_layers; layer++) {
        const hl_layer_config *at    = &model->config->layers[layer];
        int64_t                group = at->n_heads > 0 ? at->n_heads / at->n_kv_heads : 0;

        for (int64_t head = 0; head < group; head++)
            choose(c, layer, head);
        last = group > 0 ? layer : last;
    }
    if (ragged)
        choose(c, last, model->config->layers[last].n_heads - 1);
}

/* Layers with a state stay as they are, and heads with a gate lose their part of it. */
static void hybrids_compute_the_same_without_their_heads(void **state)
{
    static const char *const names[] = { "qwen3_5_vl", "falcon_h1", "jamba", "lfm2" };
    char                     folder[64], from[128];
    (void)state;

    snprintf(folder, sizeof folder, "%s", new_folder());
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(from, sizeof from, "tests/data/hybrids/%s", names[i]);
        hl_model *model = open_model(from);
        for (int ragged = 0; ragged < 2; ragged++) {
            choice c = { 0 };

            choose_attending(&c, model, ragged != 0);
            run wanted = run_gated(model, &c);
            check_form(model, names[i], &c, &wanted, HL_PRUNE_MASKED, folder);
            check_form(model, names[i], &c, &wanted, HL_PRUNE_COMPACT, folder);
            free(wanted.values);
        }
        hl_model_close(model);
    }
    remove_folder(folder);
}

static void every_family_computes_the_same_without_its_heads(void **state)
{
    (void)state;
    for_every_family(check_family);
}

/* masked_logits (for encoders, masked_hidden) are what transformers computed with masked_heads
 * disabled; the tolerance is that of headlight verify. */
static void check_golden(const char *family, const char *name, const char *folder)
{
    char            path[256];
    hl_safetensors *expected = NULL;
    hl_model       *model    = open_model(family);
    choice          c        = { 0 };

    assert_ok(hl_safetensors_open(&expected, in_folder(family, "expected.safetensors")));
    const hl_tensor *heads = hl_safetensors_find(expected, "masked_heads");
    const hl_tensor *ids   = hl_safetensors_find(expected, "tokens");
    const hl_tensor *wanted =
        hl_safetensors_find(expected, model->info.is_encoder ? "masked_hidden" : "masked_logits");
    for (int64_t i = 0; i < heads->shape[0]; i++)
        choose(&c, ((const int64_t *)heads->data)[2 * i],
               ((const int64_t *)heads->data)[2 * i + 1]);
    for (hl_prune_form form = HL_PRUNE_MASKED; form <= HL_PRUNE_COMPACT; form++) {
        if (form == HL_PRUNE_COMPACT && is_masked_only(name))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, hl_prune_form_name(form));
        assert_ok(hl_prune_write(NULL, model, &c.list, &(hl_prune_options){ .form = form }, path));
        hl_model *written = open_model(path);
        run       seen    = run_ids(written, NULL, ids->data, ids->shape[1]); /* one sequence */
        for (int64_t i = 0; i < seen.n_tokens * seen.width; i++) {
            double error = fabs((double)seen.values[i] - (double)((const float *)wanted->data)[i]);
            if (!(error <= 2e-4))
                fail_msg("%s %s: off by %.2e", name, hl_prune_form_name(form), error);
        }
        free(seen.values);
        hl_model_close(written);
        remove_folder(path);
    }
    hl_safetensors_close(expected);
    hl_model_close(model);
}

static void every_family_computes_what_transformers_does(void **state)
{
    (void)state;
    for_every_family(check_golden);
}

static void no_heads_leave_the_bytes_as_they_are(void **state)
{
    char      folder[64];
    hl_model *model  = open_model("tests/data/families/llama3");
    run       wanted = run_tokens(model, NULL, N_TOKENS);
    (void)state;

    snprintf(folder, sizeof folder, "%s", new_folder());
    for (hl_prune_form form = HL_PRUNE_MASKED; form <= HL_PRUNE_COMPACT; form++) {
        char path[128];
        snprintf(path, sizeof path, "%s/x", folder);
        assert_ok(hl_prune_write(NULL, model, &(hl_head_list){ 0 },
                                 &(hl_prune_options){ .form = form }, path));
        run seen = run_file(path);
        assert_memory_equal(seen.values, wanted.values,
                            sizeof(float) * (size_t)(N_TOKENS * wanted.width));
        free(seen.values);
        remove_folder(path);
    }
    free(wanted.values);
    hl_model_close(model);
    remove_folder(folder);
}

/* -------------------------------------------------------------------- what is in them */

/* Only the output projections change: all other tensors and files are equal, byte for byte. */
static void masked_changes_the_output_projection_alone(void **state)
{
    char        folder[64], path[128];
    const char *from  = "tests/data/families/llama3"; /* in three shards */
    hl_model   *model = open_model(from);
    choice      c     = { 0 };
    size_t      n_config, n_copy, n_changed = 0;
    (void)state;

    snprintf(folder, sizeof folder, "%s", new_folder());
    snprintf(path, sizeof path, "%s/x", folder);
    choose(&c, 1, 2);
    assert_ok(hl_prune_write(NULL, model, &c.list, NULL, path));
    hl_model *written = open_model(path);
    assert_int_equal(hl_tensors_count(written->tensors), hl_tensors_count(model->tensors));
    for (size_t i = 0; i < hl_tensors_count(model->tensors); i++) {
        const hl_tensor *a = hl_tensors_at(model->tensors, i);
        const hl_tensor *b = hl_tensors_find(written->tensors, a->name);
        assert_non_null(b);
        assert_int_equal(b->dtype, a->dtype);
        assert_int_equal(b->n_bytes, a->n_bytes);
        if (memcmp(a->data, b->data, a->n_bytes) == 0)
            continue;
        assert_string_equal(a->name, "model.layers.1.self_attn.o_proj.weight");
        n_changed++;
    }
    assert_int_equal(n_changed, 1);
    hl_model_close(written);

    char *config = read_file(in_folder(from, "config.json"), &n_config);
    char *copy   = read_file(in_folder(path, "config.json"), &n_copy);
    assert_int_equal(n_copy, n_config);
    assert_memory_equal(copy, config, n_config);
    free(config);
    free(copy);
    assert_true(path_exists(in_folder(path, "generation_config.json")));
    assert_int_equal(count_files(path), 3); /* no shards, no index, no expected.safetensors */
    hl_model_close(model);
    remove_folder(path);
    remove_folder(folder);
}

static json_t *read_config(const char *folder)
{
    size_t  n_bytes;
    char   *text = read_file(in_folder(folder, "config.json"), &n_bytes);
    json_t *root = NULL;

    assert_ok(hl_json_parse(&root, text, n_bytes, "config.json"));
    free(text);
    return root;
}

static int64_t get_int(const json_t *object, const char *key)
{
    assert_true(json_is_integer(json_object_get(object, key)));
    return json_integer_value(json_object_get(object, key));
}

static void compact(const char *path, const char *from, chooser choose_heads)
{
    hl_model *model = open_model(from);
    choice    c     = { 0 };

    choose_heads(&c, model);
    assert_ok(hl_prune_write(NULL, model, &c.list, &(hl_prune_options){ .form = HL_PRUNE_COMPACT },
                             path));
    hl_model_close(model);
}

static void equal_layers_need_no_code(void **state)
{
    char folder[64], path[128];
    (void)state;

    snprintf(folder, sizeof folder, "%s", new_folder());
    snprintf(path, sizeof path, "%s/x", folder);
    compact(path, "tests/data/families/phi3", choose_uniform);
    json_t *config = read_config(path);
    assert_int_equal(get_int(config, "num_attention_heads"), 2);
    assert_int_equal(get_int(config, "num_key_value_heads"), 2);
    assert_int_equal(get_int(config, "head_dim"), 16);
    assert_null(json_object_get(config, "per_layer_config"));
    assert_null(json_object_get(config, "auto_map"));
    json_decref(config);
    assert_false(path_exists(in_folder(path, "modeling_headlight_phi3.py")));
    remove_folder(path);
    remove_folder(folder);
}

static void other_layers_have_a_table_and_code(void **state)
{
    char   folder[64], path[128];
    size_t n_bytes;
    (void)state;

    snprintf(folder, sizeof folder, "%s", new_folder());
    snprintf(path, sizeof path, "%s/x", folder);
    compact(path, "tests/data/families/gpt_neox", choose_ragged);
    json_t *config = read_config(path);
    json_t *table  = json_object_get(config, "per_layer_config");
    assert_int_equal(get_int(config, "num_attention_heads"), 4); /* unchanged */
    assert_int_equal(get_int(json_object_get(table, "0"), "num_attention_heads"), 3);
    assert_int_equal(get_int(json_object_get(table, "2"), "num_key_value_heads"), 1);
    assert_string_equal(json_string_value(json_object_get(json_object_get(config, "auto_map"),
                                                          "AutoModelForCausalLM")),
                        "modeling_headlight_gpt_neox.GPTNeoXForCausalLM");
    json_decref(config);
    char *code = read_file(in_folder(path, "modeling_headlight_gpt_neox.py"), &n_bytes);
    assert_non_null(strstr(code, "from transformers import GPTNeoXForCausalLM as BASE\n"));
    assert_non_null(strstr(code, "HEAD_DIM = 16\n"));
    free(code);
    remove_folder(path);
    remove_folder(folder);
}

/* The removed heads have the original's numbers, as transformers 4 requires. */
static void gpt2_says_which_heads_went(void **state)
{
    char        folder[64], path[128];
    const char *from = family_path("gpt2");
    (void)state;

    if (from == NULL)
        skip();
    snprintf(folder, sizeof folder, "%s", new_folder());
    snprintf(path, sizeof path, "%s/x", folder);
    compact(path, from, choose_ragged);
    json_t *config = read_config(path);
    json_t *pruned = json_object_get(json_object_get(config, "pruned_heads"), "1");
    assert_int_equal(json_array_size(pruned), 2);
    assert_int_equal(json_integer_value(json_array_get(pruned, 0)), 0);
    assert_int_equal(json_integer_value(json_array_get(pruned, 1)), 3);
    json_decref(config);
    remove_folder(path);
    remove_folder(folder);
}

/* Six heads do not divide a width of 64, as Llama's class requires. */
static void choose_first_group(choice *c, const hl_model *model)
{
    for (int64_t layer = 0; layer < model->config->n_layers; layer++) {
        choose(c, layer, 0);
        choose(c, layer, 1);
    }
}

static void a_llama_of_odd_heads_is_a_mistral(void **state)
{
    char folder[64], path[128], from[1024];
    (void)state;

    snprintf(from, sizeof from, "%s", in_shared("models/stories260K/derived-hf"));
    if (!path_exists(from))
        skip();
    snprintf(folder, sizeof folder, "%s", new_folder());
    snprintf(path, sizeof path, "%s/x", folder);
    compact(path, from, choose_first_group);
    json_t *config = read_config(path);
    assert_string_equal(json_string_value(json_object_get(config, "model_type")), "mistral");
    assert_int_equal(get_int(config, "num_attention_heads"), 6);
    json_decref(config);

    hl_model *model = open_model(from);
    choice    c     = { 0 };
    choose_first_group(&c, model);
    run wanted = run_gated(model, &c);
    run seen   = run_file(path);
    assert_true(difference(&wanted, &seen, N_TOKENS) <= 1e-5);
    free(wanted.values);
    free(seen.values);
    hl_model_close(model);
    remove_folder(path);
    remove_folder(folder);
}

/* A compact model can be pruned again, with heads numbered anew. */
static void compact_models_are_models(void **state)
{
    char folder[64], path[128], again[128];
    (void)state;

    snprintf(folder, sizeof folder, "%s", new_folder());
    snprintf(path, sizeof path, "%s/x", folder);
    snprintf(again, sizeof again, "%s/y", folder);
    compact(path, "tests/data/families/gpt_neox", choose_ragged);
    hl_model *model = open_model(path);
    choice    c     = { 0 };
    choose(&c, 0, 2);
    choose(&c, 1, 0);
    run wanted = run_gated(model, &c);
    assert_ok(hl_prune_write(NULL, model, &c.list, &(hl_prune_options){ .form = HL_PRUNE_COMPACT },
                             again));
    run seen = run_file(again);
    assert_true(difference(&wanted, &seen, N_TOKENS) <= 1e-5);
    free(wanted.values);
    free(seen.values);
    hl_model_close(model);
    remove_folder(path);
    remove_folder(again);
    remove_folder(folder);
}

/* ------------------------------------------------------------------- norms of heads */

/* Writes a family's model with added norms of q and k, one tensor for all heads or one for each,
 * with numbers that differ from head to head. */
static void add_norms(const char *path, const char *from, const char *flag, const char *q,
                      const char *k, bool each)
{
    enum { D = 16, N_Q = 4, N_K = 2, N_LAYERS = 3 };
    static float           values[N_LAYERS][2][N_Q][D];
    hl_safetensors_writer *writer = NULL;
    hl_tensors            *base   = NULL;

    assert_int_equal(mkdir(path, 0777), 0);
    assert_ok(hl_tensors_open(&base, from));
    assert_ok(hl_safetensors_writer_new(&writer));
    for (size_t i = 0; i < hl_tensors_count(base); i++)
        hl_safetensors_add(writer, hl_tensors_at(base, i));
    for (int i = 0; i < N_LAYERS * 2 * N_Q * D; i++)
        (&values[0][0][0][0])[i] = 0.5f + (float)(i * 7 % 41) / 41.0f;
    for (int layer = 0; layer < N_LAYERS; layer++) {
        for (int which = 0; which < 2; which++) {
            int n_heads = which == 0 ? N_Q : N_K;
            for (int head = 0; head < (each ? n_heads : 1); head++) {
                char      name[128];
                hl_tensor tensor = { .name   = name,
                                     .n_dims = each ? 1 : 2,
                                     .shape  = { each ? D : n_heads, each ? 0 : D },
                                     .data   = values[layer][which][head] };

                snprintf(name, sizeof name, which == 0 ? q : k, layer, head);
                assert_ok(hl_tensor_bytes(&tensor.n_bytes, &tensor));
                hl_safetensors_add(writer, &tensor);
            }
        }
    }
    assert_ok(hl_safetensors_write(writer, in_folder(path, "model.safetensors")));
    hl_safetensors_writer_free(writer);
    hl_tensors_close(base);

    json_t *config = read_config(from);
    json_object_set_new(config, flag, json_true());
    assert_int_equal(json_dump_file(config, in_folder(path, "config.json"), 0), 0);
    json_decref(config);
}

static void norms_of_heads_go_with_them(void **state)
{
    char        folder[64], path[128], from[2048];
    const char *names[] = { "stablelm", "cohere" };
    (void)state;

    snprintf(folder, sizeof folder, "%s", new_folder());
    snprintf(path, sizeof path, "%s/x", folder);
    for (int i = 0; i < 2; i++) {
        bool each = i == 0;
        if (family_path(names[i]) == NULL)
            continue;
        snprintf(from, sizeof from, "%s", family_path(names[i]));
        add_norms(path, from, each ? "qk_layernorm" : "use_qk_norm",
                  each ? "model.layers.%d.self_attn.q_layernorm.norms.%d.weight"
                       : "model.layers.%d.self_attn.q_norm.weight",
                  each ? "model.layers.%d.self_attn.k_layernorm.norms.%d.weight"
                       : "model.layers.%d.self_attn.k_norm.weight",
                  each);
        check_family(path, names[i], folder);
        remove_folder(path);
    }
    remove_folder(folder);
}

/* --------------------------------------------------------------------------- refused */

static void bad_requests_write_nothing(void **state)
{
    char      folder[64];
    hl_model *model = open_model("tests/data/families/phi3");
    hl_model *gguf  = open_model("tests/data/gguf/llama3.gguf");
    choice    c     = { 0 };
    choice    wrong = { 0 };
    (void)state;

    snprintf(folder, sizeof folder, "%s", new_folder());
    choose(&c, 0, 0);
    choose(&wrong, 0, 4);
    assert_fails(HL_BAD_ARGUMENT, "no head L0H4",
                 hl_prune_write(NULL, model, &wrong.list, NULL, in_folder(folder, "x")));
    assert_fails(HL_BAD_ARGUMENT, "exists already",
                 hl_prune_write(NULL, model, &c.list, NULL, folder));
    assert_fails(HL_NOT_FOUND, "cannot create",
                 hl_prune_write(NULL, model, &c.list, NULL, in_folder(folder, "no/x")));
    assert_fails(HL_UNSUPPORTED, "use --as gguf",
                 hl_prune_write(NULL, gguf, &c.list, &(hl_prune_options){ .form = HL_PRUNE_MASKED },
                                in_folder(folder, "x")));
    assert_fails(HL_BAD_ARGUMENT, "empty", hl_prune_write(NULL, model, &c.list, NULL, ""));
    assert_int_equal(count_files(folder), 0);
    hl_model_close(gguf);
    hl_model_close(model);
    remove_folder(folder);
}

/* A limit on the size of files replaces a disk that becomes full. */
static void a_full_disk_leaves_nothing(void **state)
{
    static const rlim_t room[] = { 0, 500, 4000, 60000 };
    char                folder[64];
    hl_model           *model = open_model("tests/data/families/phi3");
    choice              c     = { 0 };
    struct rlimit       before;
    (void)state;

    snprintf(folder, sizeof folder, "%s", new_folder());
    choose_ragged(&c, model);
    signal(SIGXFSZ, SIG_IGN); /* the write then fails instead */
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    for (size_t i = 0; i < sizeof room / sizeof *room; i++) {
        for (hl_prune_form form = HL_PRUNE_MASKED; form <= HL_PRUNE_COMPACT; form++) {
            struct rlimit limit = { room[i], before.rlim_max };
            assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
            hl_status status = hl_prune_write(
                NULL, model, &c.list, &(hl_prune_options){ .form = form }, in_folder(folder, "x"));
            assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
            assert_int_equal(status, HL_IO);
            assert_non_null(strstr(hl_error_message(), "too large"));
            assert_int_equal(count_files(folder), 0);
        }
    }
    hl_model_close(model);
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hybrids_compute_the_same_without_their_heads),
        cmocka_unit_test(every_family_computes_the_same_without_its_heads),
        cmocka_unit_test(every_family_computes_what_transformers_does),
        cmocka_unit_test(no_heads_leave_the_bytes_as_they_are),
        cmocka_unit_test(masked_changes_the_output_projection_alone),
        cmocka_unit_test(equal_layers_need_no_code),
        cmocka_unit_test(other_layers_have_a_table_and_code),
        cmocka_unit_test(gpt2_says_which_heads_went),
        cmocka_unit_test(a_llama_of_odd_heads_is_a_mistral),
        cmocka_unit_test(compact_models_are_models),
        cmocka_unit_test(norms_of_heads_go_with_them),
        cmocka_unit_test(bad_requests_write_nothing),
        cmocka_unit_test(a_full_disk_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
