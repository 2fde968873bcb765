/* test_measure_device.c - measuring on a device: what it sums up and compares itself, against
 * results from its rows. */
#include "measure_support.h"

#include "base/dtype.h"
#include "formats/safetensors.h"

/* Norms and similarities of heads' outputs, which a device computes in another order. */
static void assert_same_likeness(const hl_profile *a, const hl_profile *b, int64_t layer)
{
    int64_t n_heads = hl_profile_heads_of(a, layer);
    double  before  = hl_profile_block_influence(a, layer);

    if (layer < hl_profile_n_layers(a) - 1) /* the last block is not finished */
        assert_true(fabs(before - hl_profile_block_influence(b, layer)) < 1e-6);
    for (int64_t head = 0; head < n_heads; head++) {
        double norm = hl_profile_output_norm(a, layer, head);

        assert_true(norm > 0.0);
        assert_true(fabs(norm - hl_profile_output_norm(b, layer, head)) < 1e-5 * norm);
        for (int64_t other = head + 1; other < n_heads; other++) {
            double alike = hl_profile_similarity(a, layer, head, other);
            double cka   = hl_profile_cka(a, layer, head, other);

            assert_true(fabs(alike - hl_profile_similarity(b, layer, head, other)) < 1e-6);
            assert_true(fabs(cka - hl_profile_cka(b, layer, head, other)) < 1e-5);
        }
    }
}

static void assert_same_moments(hl_moments a, hl_moments b)
{
    assert_memory_equal(&a, &b, sizeof a);
}

/* Sums of rows are equal to the bit. */
static void assert_same_rows(const hl_profile *a, const hl_profile *b, int64_t layer, int64_t head)
{
    for (int q = 0; q < HL_N_QUANTITIES; q++)
        assert_same_moments(hl_profile_moments(a, layer, head, (hl_quantity)q),
                            hl_profile_moments(b, layer, head, (hl_quantity)q));
    for (int metric = 0; metric < HL_N_PATTERN_METRICS; metric++)
        assert_same_moments(hl_profile_pattern(a, layer, head, (hl_pattern_metric)metric, false),
                            hl_profile_pattern(b, layer, head, (hl_pattern_metric)metric, false));
    for (int histogram = 0; histogram < HL_N_HISTOGRAMS; histogram++)
        assert_memory_equal(hl_profile_histogram(a, layer, head, (hl_histogram)histogram),
                            hl_profile_histogram(b, layer, head, (hl_histogram)histogram),
                            64 * sizeof(int64_t));
}

static void assert_same_shares(const hl_profile *a, const hl_profile *b, int64_t layer,
                               int64_t head)
{
    int64_t n_types = hl_profile_n_types(a);

    for (int64_t bucket = 0; bucket < hl_profile_n_buckets(a); bucket++) {
        for (int q = HL_Q_ENTROPY; q <= HL_Q_NORMALIZED; q++)
            assert_same_moments(hl_profile_by_position(a, layer, head, bucket, (hl_quantity)q),
                                hl_profile_by_position(b, layer, head, bucket, (hl_quantity)q));
    }
    for (int64_t type = 0; type < n_types; type++) {
        for (int q = HL_Q_ENTROPY; q <= HL_Q_RENYI2; q++)
            assert_same_moments(hl_profile_by_type(a, layer, head, type, (hl_quantity)q),
                                hl_profile_by_type(b, layer, head, type, (hl_quantity)q));
        for (int64_t to = 0; to < n_types; to++) {
            double before = hl_profile_lookback(a, layer, head, type, to);
            double after  = hl_profile_lookback(b, layer, head, type, to);

            assert_memory_equal(&before, &after, sizeof before);
        }
    }
}

/* A device sums up rows and compares heads itself, unless rows themselves are wanted; batches and
 * threads change no byte. */
static void a_device_sums_up_and_compares(void **state)
{
    const char        *folder = new_folder();
    work               w = open_work("tests/data/families/llama3", write_documents(folder, 256));
    hl_measure_options options = { .windows = { .n_ctx = 72, .n_batch = 3 }, .n_threads = 1 };
    char               path[2048];
    (void)state;

    snprintf(path, sizeof path, "%s", in_folder(folder, "rows.safetensors"));
    assert_ok(select_device("host"));
    hl_profile *summed      = measure(&w, &options);
    options.windows.n_batch = 2;
    options.n_threads       = 2;
    hl_profile *otherwise   = measure(&w, &options);
    options.rows_path       = path;
    hl_profile *by_row      = measure(&w, &options);
    assert_ok(select_device(NULL));
    assert_same_profile(otherwise, summed);
    for (int64_t layer = 0; layer < hl_profile_n_layers(summed); layer++) {
        assert_same_likeness(by_row, summed, layer);
        for (int64_t head = 0; head < hl_profile_heads_of(summed, layer); head++) {
            assert_same_rows(by_row, summed, layer, head);
            assert_same_shares(by_row, summed, layer, head);
        }
    }
    hl_profile_free(summed);
    hl_profile_free(otherwise);
    hl_profile_free(by_row);
    close_work(&w);
    remove_folder(folder);
}

/* A device's losses are those of the CPU, with another order of sums. */
static void a_device_has_the_losses(void **state)
{
    const char        *folder = new_folder();
    work               w = open_work("tests/data/families/llama3", write_documents(folder, 256));
    hl_measure_options options = { .windows   = { .n_ctx = 72, .stride = 40, .n_batch = 3 },
                                   .nll       = true,
                                   .n_threads = 1 };
    (void)state;

    hl_profile *on_cpu = measure(&w, &options);
    assert_ok(select_device("host"));
    hl_profile *on_device = measure(&w, &options);
    assert_ok(select_device(NULL));
    hl_moments a = hl_profile_nll(on_cpu), b = hl_profile_nll(on_device);
    assert_true(a.count > 0);
    assert_int_equal(a.count, b.count);
    assert_true(fabs(a.mean - b.mean) < 1e-5 && a.mean > 1.0);
    hl_profile_free(on_cpu);
    hl_profile_free(on_device);
    close_work(&w);
    remove_folder(folder);
}

/* Requests a stop after some batches, and counts all batches. */
typedef struct listener {
    int     n_batches;
    int     stop_after; /* 0: never */
    int64_t n_tokens;
} listener;

static hl_status hear(void *context, const hl_progress *progress)
{
    listener *l = context;

    assert_true(progress->n_tokens > l->n_tokens);
    l->n_tokens = progress->n_tokens;
    return ++l->n_batches == l->stop_after ? HL_CANCELLED : HL_OK;
}

/* Two batches run at a time: all are counted, whichever of them leads to a stop, and whenever the
 * state is saved. */
static void a_device_goes_on_where_it_stopped(void **state)
{
    const char        *folder = new_folder();
    work               w = open_work("tests/data/families/llama3", write_documents(folder, 256));
    listener           l = { 0 };
    hl_measure_options options = { .windows   = { .n_ctx = 72, .stride = 20, .n_batch = 1 },
                                   .nll       = true,
                                   .n_threads = 2,
                                   .progress  = hear,
                                   .context   = &l };
    hl_profile        *profile = NULL;
    char               path[2048];
    (void)state;

    snprintf(path, sizeof path, "%s", in_folder(folder, "state"));
    assert_ok(select_device("host"));
    hl_profile *whole  = measure(&w, &options);
    int         n_all  = l.n_batches;
    options.state_path = path;
    options.save_every = 1e-6; /* save after every batch */
    options.resume     = true;
    assert_true(n_all > 8);
    for (int stop_after = 1; stop_after <= 3; stop_after++) {
        l = (listener){ .stop_after = stop_after };
        assert_fails(HL_CANCELLED, "stopped after",
                     hl_measure(&profile, w.model, NULL, w.corpus, &options));
    }
    options.save_every = 30.0;
    l                  = (listener){ 0 };
    hl_profile *later  = measure(&w, &options);
    assert_in_range(l.n_batches, 1, n_all - 3);
    assert_ok(select_device(NULL));
    assert_same_profile(whole, later);
    hl_profile_free(whole);
    hl_profile_free(later);
    close_work(&w);
    remove_folder(folder);
}

/* Returns the number of batches if n_batch is not set; the results must be those of `wanted`. */
static int count_batches(const work *w, hl_measure_options options, const hl_profile *wanted)
{
    listener l = { 0 };

    options.progress     = hear;
    options.context      = &l;
    hl_profile *measured = measure(w, &options);
    assert_same_profile(wanted, measured);
    hl_profile_free(measured);
    return l.n_batches;
}

/* If n_batch is not set, a device takes up to 32 windows at a time, but not more than fit. */
static void a_device_chooses_its_batch(void **state)
{
    const char        *folder = new_folder();
    work               w = open_work("tests/data/families/llama3", write_documents(folder, 256));
    hl_measure_options options = { .windows   = { .n_ctx = 24, .stride = 4 },
                                   .no_probe  = true,
                                   .n_threads = 1 };
    hl_session_options session = { .n_ctx = 24, .n_batch = 32, .n_chunk = 24, .n_threads = 1 };
    hl_session_memory  memory  = { 0 };
    (void)state;

    assert_ok(select_device("host"));
    options.windows.n_batch = 1;
    hl_profile *wanted      = measure(&w, &options);
    int         n_windows   = count_batches(&w, options, wanted);
    options.windows.n_batch = 0;
    assert_true(n_windows > 32);
    assert_int_equal(count_batches(&w, options, wanted), (n_windows + 31) / 32);
    assert_ok(hl_session_measure(&memory, w.model, &session));
    hl_memory_limit(hl_memory_held() + hl_model_get_info(w.model)->n_params * 4 +
                    memory.cache_bytes + memory.work_bytes);
    int n_batches = count_batches(&w, options, wanted);
    hl_memory_limit(0);
    assert_in_range(n_batches, (n_windows + 15) / 16, n_windows);
    assert_ok(select_device(NULL));
    hl_profile_free(wanted);
    close_work(&w);
    remove_folder(folder);
}

/* Writes phi3 with 3e38 in one place of its output head, so that some rows have an infinite
 * logit. */
static void write_infinite_model(const char *folder)
{
    static float           head[256 * 64];
    hl_safetensors        *file   = NULL;
    hl_safetensors_writer *writer = NULL;
    size_t                 n_bytes;
    char                  *config = read_file("tests/data/families/phi3/config.json", &n_bytes);

    write_file(in_folder(folder, "config.json"), config, n_bytes);
    hl_free(config);
    assert_ok(hl_safetensors_open(&file, "tests/data/families/phi3/model.safetensors"));
    assert_ok(hl_safetensors_writer_new(&writer));
    for (size_t i = 0; i < hl_safetensors_count(file); i++) {
        hl_tensor tensor = *hl_safetensors_at(file, i);
        if (strcmp(tensor.name, "lm_head.weight") == 0) {
            assert_ok(hl_dtype_to_f32(head, tensor.data, tensor.dtype, 256 * 64));
            head[5 * 64 + 7] = 3e38f;
            tensor.dtype     = HL_DTYPE_F32;
            tensor.data      = (const void *)head;
            tensor.n_bytes   = sizeof head;
        }
        hl_safetensors_add(writer, &tensor);
    }
    assert_ok(hl_safetensors_write(writer, in_folder(folder, "model.safetensors")));
    hl_safetensors_writer_free(writer);
    hl_safetensors_close(file);
}

/* Losses that are not finite are counted, on a device too; a profile stores the count. */
static void losses_that_are_not_finite(void **state)
{
    enum { N = 60 };
    static const char *const devices[] = { NULL, "host" };
    const char              *folder    = new_folder();
    const char              *ids       = in_folder(folder, "ids.jsonl");
    FILE                    *file      = fopen(ids, "w");
    int64_t                  tokens[N];
    (void)state;

    for (int i = 0; i < N; i++) {
        tokens[i] = (i * 37 + i * i) % 256;
        fprintf(file, "%s%d%s", i == 0 ? "[" : ", ", (int)tokens[i], i == N - 1 ? "]\n" : "");
    }
    fclose(file);
    write_infinite_model(folder);
    work w = open_work(folder, ids);
    for (int i = 0; i < 2; i++) {
        hl_measure_options options = {
            .windows = { .n_ctx = 64 }, .nll = true, .no_probe = true, .n_threads = 1
        };
        hl_perplexity *perplexity = NULL;
        hl_profile    *again      = NULL;
        hl_nll         nll;
        double         of_tokens[N];
        int64_t        n_broken = 0, first = -1;

        assert_ok(select_device(devices[i]));
        assert_ok(
            hl_perplexity_open(&perplexity, w.model, &(hl_perplexity_options){ .n_ctx = 64 }));
        assert_ok(hl_perplexity_add(
            &nll, perplexity,
            &(hl_scored_text){ .tokens = tokens, .n_tokens = N, .nll = of_tokens }));
        for (int j = 1; j < N; j++) {
            bool broken = !(fabs(of_tokens[j]) < 0x1p23);
            first       = broken && n_broken == 0 ? j : first;
            n_broken += broken;
        }
        assert_in_range(n_broken, 5, N - 5); /* some rows, but not all */
        assert_int_equal(nll.n_scored, N - 1);
        assert_int_equal(nll.n_broken, n_broken);
        assert_int_equal(nll.first_broken, first);
        assert_true(isnan(nll.sum) && isnan(nll.mean) && isnan(nll.perplexity));
        assert_int_equal(hl_perplexity_total(perplexity).n_broken, n_broken);
        hl_perplexity_close(perplexity);

        hl_profile *profile = measure(&w, &options);
        assert_int_equal(hl_profile_broken_losses(profile), n_broken);
        assert_int_equal(hl_profile_nll(profile).count, N - 1 - n_broken);
        assert_true(isnan(hl_profile_nll(profile).mean));
        assert_ok(hl_profile_write(profile, in_folder(folder, "p")));
        assert_ok(hl_profile_load(&again, in_folder(folder, "p")));
        assert_ok(hl_profile_merge(again, profile));
        assert_int_equal(hl_profile_broken_losses(again), 2 * n_broken);
        hl_profile_free(again);
        hl_profile_free(profile);

        hl_evaluation *found = NULL;
        assert_fails(HL_BAD_INPUT, "losses are NaN or infinite",
                     hl_evaluate(&found, w.model, w.corpus, NULL, 0,
                                 &(hl_evaluate_options){ .windows = { .n_ctx = 64 } }));
        assert_ok(select_device(NULL));
    }
    close_work(&w);
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_sums_up_and_compares),
        cmocka_unit_test(a_device_has_the_losses),
        cmocka_unit_test(a_device_goes_on_where_it_stopped),
        cmocka_unit_test(a_device_chooses_its_batch),
        cmocka_unit_test(losses_that_are_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
