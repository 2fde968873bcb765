/* test_measure.c - measuring: profiles against what others computed from the same tokens; the same
 * bytes with any batches, parts and interruptions. */
#include "measure_support.h"

#include <unistd.h>

#include "base/dtype.h"
#include "formats/safetensors.h"
#include "measure/measure.h"
#include "measure/verify.h"

#define DEMO "models/demo"

/* ----------------------------------------------------------------------- golden */

/* Returns the mean of a (L, B, H, S) tensor over sequences and the rows from `first` on. */
static double tensor_mean(const hl_tensor *tensor, int64_t layer, int64_t head, int64_t first)
{
    size_t  size = tensor->dtype == HL_DTYPE_F64 ? sizeof(double) : sizeof(float);
    int64_t B = tensor->shape[1], H = tensor->shape[2], S = tensor->shape[3];
    double  sum = 0.0;

    for (int64_t i = 0; i < B * (S - first); i++) {
        int64_t b = i / (S - first), row = first + i % (S - first);
        double  value;
        assert_ok(hl_dtype_to_f64(&value,
                                  (const char *)tensor->data +
                                      (size_t)(((layer * B + b) * H + head) * S + row) * size,
                                  tensor->dtype, 1));
        sum += value;
    }
    return sum / (double)(B * (S - first));
}

/* Returns the largest difference between the means of the profile and of the file; < 0: not in the
 * file. */
static double compare(const hl_profile *profile, const hl_safetensors *file, const char *name,
                      hl_quantity quantity, int64_t first)
{
    const hl_tensor *tensor = hl_safetensors_find(file, name);
    double           worst  = 0.0;

    if (tensor == NULL)
        return -1.0;
    for (int64_t layer = 0; layer < hl_profile_n_layers(profile); layer++) {
        for (int64_t head = 0; head < hl_profile_heads_of(profile, layer); head++) {
            hl_moments moments = hl_profile_moments(profile, layer, head, quantity);
            double     wanted  = tensor_mean(tensor, layer, head, first);
            /* A window hides the first key from later rows, whose 0 is not in the mean. */
            if (quantity == HL_Q_FIRST)
                wanted *= (double)(tensor->shape[1] * tensor->shape[3]) / (double)moments.count;
            worst = fmax(worst, fabs(moments.mean - wanted));
        }
    }
    return worst;
}

static void compare_family(const char *folder)
{
    const char     *expected = in_folder(folder, "expected.safetensors");
    work            w        = open_work(folder, expected);
    hl_safetensors *file     = NULL;
    bool            encoder  = hl_model_get_info(w.model)->is_encoder;
    double          worst    = 0.0;

    assert_ok(hl_safetensors_open(&file, in_folder(folder, "expected.safetensors")));
    int64_t     S = hl_safetensors_find(file, "tokens")->shape[1];
    hl_profile *profile =
        measure(&w, &(hl_measure_options){ .windows = { .n_ctx = S }, .n_threads = 1 });
    worst = fmax(worst, compare(profile, file, "entropy", HL_Q_ENTROPY, 0));
    worst = fmax(worst, compare(profile, file, "renyi2", HL_Q_RENYI2, 0));
    worst = fmax(worst, compare(profile, file, "peak", HL_Q_PEAK, 0));
    worst = fmax(worst, compare(profile, file, "self", HL_Q_SELF, 0));
    worst = fmax(worst, compare(profile, file, "first", HL_Q_FIRST, 0));
    worst = fmax(worst, compare(profile, file, "previous", HL_Q_PREVIOUS, 1));
    if (worst > 1e-6)
        fail_msg("%s%s: a mean is off by %.2g", folder, encoder ? " (encoder)" : "", worst);
    hl_profile_free(profile);
    hl_safetensors_close(file);
    close_work(&w);
}

static void means_are_those_of_the_golden_rows(void **state)
{
    (void)state;
    compare_family("tests/data/families/llama3");
    compare_family("tests/data/families/phi3");
    compare_family("tests/data/families/gpt_neox");
    compare_family("tests/data/families/starcoder2");
    compare_family(DEMO);
}

static void means_of_every_family(void **state)
{
    DIR *families = opendir(in_shared("golden/families"));
    int  n        = 0;
    (void)state;

    if (families == NULL)
        skip();
    for (struct dirent *entry; (entry = readdir(families)) != NULL;) {
        char name[300];
        snprintf(name, sizeof name, "golden/families/%s", entry->d_name);
        if (entry->d_name[0] == '.')
            continue;
        char path[2048];
        snprintf(path, sizeof path, "%s", in_shared(name));
        compare_family(path);
        n++;
    }
    closedir(families);
    assert_int_equal(n, 34);
}

/* ---------------------------------------------------------- batches, parts, threads */

static const hl_measure_options plain_options = { .windows   = { .n_ctx = 32, .stride = 24 },
                                                  .seed      = 1,
                                                  .n_threads = 1 };

static void batches_and_parts_give_the_same_bytes(void **state)
{
    const char        *folder = new_folder();
    work               w = open_work("tests/data/families/llama3", write_documents(folder, 256));
    hl_profile        *whole   = measure(&w, &plain_options);
    hl_measure_options options = plain_options;
    hl_profile        *parts   = NULL;
    (void)state;

    for (int n_batch = 2; n_batch <= 8; n_batch += 3) {
        options.windows.n_batch = n_batch;
        hl_profile *profile     = measure(&w, &options);
        assert_same_profile(whole, profile);
        hl_profile_free(profile);
    }
    options.windows.n_parts = 4;
    for (int part = 3; part >= 0; part--) {
        options.windows.part    = part;
        options.windows.n_batch = 1 + part;
        hl_profile *profile     = measure(&w, &options);
        if (parts == NULL) {
            parts = profile;
            continue;
        }
        assert_ok(hl_profile_merge(parts, profile));
        hl_profile_free(profile);
    }
    assert_same_profile(whole, parts);
    assert_true(hl_profile_pattern(whole, 0, 0, HL_PM_PEAK, false).count > 20);
    assert_true(hl_profile_similarity(whole, 0, 0, 1) > 0.0);
    assert_true(hl_profile_cka(whole, 0, 0, 0) == 1.0);
    hl_profile_free(parts);
    hl_profile_free(whole);
    close_work(&w);
    remove_folder(folder);
}

static void threads_agree(void **state)
{
    const char        *folder = new_folder();
    work               w      = open_work("tests/data/families/phi3", write_documents(folder, 256));
    hl_measure_options options = plain_options;
    hl_profile        *one     = measure(&w, &options);
    (void)state;

    options.n_threads = 2;
    hl_profile *two   = measure(&w, &options);
    for (int64_t layer = 0; layer < hl_profile_n_layers(one); layer++) {
        for (int64_t i = 0; i < hl_profile_n_heads(one) * HL_N_QUANTITIES; i++) {
            hl_quantity quantity = (hl_quantity)(i % HL_N_QUANTITIES);
            hl_moments  a        = hl_profile_moments(one, layer, i / HL_N_QUANTITIES, quantity);
            hl_moments  b        = hl_profile_moments(two, layer, i / HL_N_QUANTITIES, quantity);
            assert_int_equal(a.count, b.count);
            assert_true(a.count == 0 || fabs(a.mean - b.mean) < 1e-6);
        }
    }
    hl_profile_free(one);
    hl_profile_free(two);
    close_work(&w);
    remove_folder(folder);
}

/* ---------------------------------------------------------------------- stopping */

typedef struct stopper {
    int after; /* batches */
} stopper;

static hl_status stop_after(void *context, const hl_progress *progress)
{
    stopper *s = context;

    assert_true(progress->share >= 0.0 && progress->share <= 1.0 && progress->n_tokens > 0);
    return --s->after == 0 ? HL_CANCELLED : HL_OK;
}

static void what_was_stopped_goes_on_to_the_same_bytes(void **state)
{
    const char        *folder = new_folder();
    work               w = open_work("tests/data/families/llama3", write_documents(folder, 256));
    hl_profile        *whole   = measure(&w, &plain_options);
    hl_profile        *profile = NULL;
    char               path[2048];
    hl_measure_options options = plain_options;
    stopper            stop    = { 0 };
    int                n_stops = 0;
    (void)state;

    snprintf(path, sizeof path, "%s", in_folder(folder, "p.part"));
    options.state_path = path;
    options.resume     = true;
    options.progress   = stop_after;
    options.context    = &stop;
    for (;;) { /* interrupts after every three batches, with a different batch size each time */
        stop.after              = 3;
        options.windows.n_batch = 1 + n_stops % 2;
        hl_status status        = hl_measure(&profile, w.model, NULL, w.corpus, &options);
        if (status == HL_OK)
            break;
        assert_fails(HL_CANCELLED, "stopped after", status);
        assert_true(path_exists(path));
        n_stops++;
    }
    assert_true(n_stops >= 4);
    assert_same_profile(whole, profile);
    hl_profile_free(profile);

    options.progress      = NULL;
    options.windows.n_ctx = 31;
    assert_fails(HL_BAD_INPUT,
                 "p.part: this state was begun with other settings; use those, or remove the file "
                 "to start again: ",
                 hl_measure(&profile, w.model, NULL, w.corpus, &options));
    assert_fails(HL_BAD_INPUT, "'context': 32 and 31",
                 hl_measure(&profile, w.model, NULL, w.corpus, &options));
    options.windows.n_ctx      = 32;
    options.windows.max_tokens = 9;
    assert_fails(HL_BAD_INPUT, "max_tokens 0, not 9",
                 hl_measure(&profile, w.model, NULL, w.corpus, &options));
    options.windows.max_tokens = 0;
    options.windows.n_parts    = 2;
    assert_fails(HL_BAD_INPUT, "a number of parts of 1, not 2",
                 hl_measure(&profile, w.model, NULL, w.corpus, &options));
    options.windows.part = 1;
    assert_fails(HL_BAD_INPUT, "part 0, not 1",
                 hl_measure(&profile, w.model, NULL, w.corpus, &options));
    options.windows.part    = 0;
    options.windows.n_parts = 0;
    hl_profile_free(whole);
    close_work(&w);
    w = open_work("tests/data/families/llama3", "tests/data/families/llama3/expected.safetensors");
    options.windows.max_tokens = 0;
    assert_fails(HL_BAD_INPUT, "with another text",
                 hl_measure(&profile, w.model, NULL, w.corpus, &options));
    close_work(&w);
    remove_folder(folder);
}

/* -------------------------------------------------------- what else is measured */

/* The tap of a plain run, which adds up everything in plain sums. */
typedef struct plain_run {
    const hl_model *model;
    double          norms[8]; /* sums for layer 1's heads */
    double          influence;
    int64_t         n_rows;
} plain_run;

static void plain_norms(plain_run *run, const hl_layer_rows *rows)
{
    const hl_param *param  = hl_weights_get(run->model->weights, HL_ROLE_ATTN_O, rows->layer, 0);
    float          *weight = read_weight(&param->weight);

    for (int64_t i = 0; i < rows->lengths[0] * rows->n_heads; i++) {
        const float *z      = rows->z + i * rows->d_head;
        double       square = 0.0;
        for (int64_t out = 0; out < rows->d_model; out++) {
            double sum = 0.0;
            for (int64_t d = 0; d < rows->d_head; d++)
                sum += (double)z[d] *
                       (double)weight[(out * rows->n_heads + i % rows->n_heads) * rows->d_head + d];
            square += sum * sum;
        }
        run->norms[i % rows->n_heads] += sqrt(square);
    }
    free(weight);
}

static void plain_influence(plain_run *run, const hl_layer_rows *rows)
{
    for (int64_t row = 0; row < rows->lengths[0]; row++) {
        const float *a  = rows->resid_pre + row * rows->d_model;
        const float *b  = rows->resid_post + row * rows->d_model;
        double       ab = 0.0, aa = 0.0, bb = 0.0;
        for (int64_t i = 0; i < rows->d_model; i++) {
            ab += (double)a[i] * (double)b[i];
            aa += (double)a[i] * (double)a[i];
            bb += (double)b[i] * (double)b[i];
        }
        run->influence += 1.0 - ab / sqrt(aa * bb);
    }
}

static hl_status watch_plainly(void *context, const hl_layer_rows *rows)
{
    plain_run *run = context;

    if (rows->layer == 1) {
        plain_norms(run, rows);
        plain_influence(run, rows);
        run->n_rows += rows->lengths[0];
    }
    return HL_OK;
}

static void norms_influence_and_loss_are_right(void **state)
{
    work            w       = open_work(DEMO, DEMO "/expected.safetensors");
    hl_safetensors *file    = NULL;
    plain_run       run     = { .model = w.model };
    hl_tap          tap     = { .context = &run,
                                .layer   = watch_plainly,
                                .wants   = HL_WANT_Z | HL_WANT_RESID_PRE | HL_WANT_RESID_POST };
    hl_session     *session = NULL;
    (void)state;

    assert_ok(hl_safetensors_open(&file, DEMO "/expected.safetensors"));
    const hl_tensor *tokens  = hl_safetensors_find(file, "tokens");
    hl_profile      *profile = measure(
             &w, &(hl_measure_options){ .windows = { .n_ctx = 32 }, .nll = true, .n_threads = 1 });
    assert_ok(
        hl_session_open(&session, w.model,
                        &(hl_session_options){ .n_ctx = 256, .wants = tap.wants, .n_threads = 1 }));
    for (int i = 0; i < 16; i++) { /* windows of 32 tokens, short enough that every row is
                                    * sampled */
        int64_t ids[32];
        memcpy(ids, (const char *)tokens->data + (size_t)i * sizeof ids, sizeof ids);
        assert_ok(hl_session_rewind(session, 0, 0));
        assert_ok(
            hl_session_feed(session, &(hl_feed){ .tokens = ids, .n_tokens = 32, .tap = &tap }));
    }
    double layer_mean = 0.0;
    for (int head = 0; head < 8; head++)
        layer_mean += run.norms[head] / 8.0;
    for (int head = 0; head < 8; head++)
        assert_true(fabs(hl_profile_output_norm(profile, 1, head) - run.norms[head] / layer_mean) <
                    1e-5);
    assert_true(fabs(hl_profile_block_influence(profile, 1) - run.influence / (double)run.n_rows) <
                1e-5);
    assert_false(isnan(hl_profile_block_influence(profile, 7))); /* the last block, measured with
                                                                  * the loss */

    hl_profile_free(profile);

    profile = measure(
        &w, &(hl_measure_options){ .windows = { .n_ctx = 256 }, .nll = true, .n_threads = 1 });
    const hl_tensor *losses = hl_safetensors_find(file, "nll");
    double           sum    = 0.0;
    for (int64_t i = 0; i < 2 * 255; i++) {
        float value;
        memcpy(&value, (const float *)losses->data + i, sizeof value);
        sum += (double)value;
    }
    assert_int_equal(hl_profile_nll(profile).count, 2 * 255);
    assert_true(fabs(hl_profile_nll(profile).mean - sum / 510.0) < 1e-5);
    hl_session_close(session);
    hl_profile_free(profile);
    hl_safetensors_close(file);
    close_work(&w);
}

/* Returns the head with the largest score: layer * 8 + head. */
static int64_t best_head(const hl_profile *profile, hl_probe probe)
{
    int64_t best = 0;

    for (int64_t i = 1; i < 64; i++) {
        if (hl_profile_probe(profile, i / 8, i % 8, probe) >
            hl_profile_probe(profile, best / 8, best % 8, probe))
            best = i;
    }
    return best;
}

/* models/card.json has what PyTorch found on other random sequences: induction in L7H3, 0.60 to
 * 0.67, previous in L6H3, 0.43 to 0.57, and no duplicate above 0.04. */
static void the_probe_finds_the_heads_that_others_found(void **state)
{
    work        w       = open_work(DEMO, DEMO "/expected.safetensors");
    hl_profile *profile = measure(
        &w, &(hl_measure_options){ .windows = { .n_ctx = 64, .max_tokens = 64 }, .n_threads = 1 });
    (void)state;

    assert_int_equal(best_head(profile, HL_PROBE_INDUCTION), 7 * 8 + 3);
    assert_int_equal(best_head(profile, HL_PROBE_PREVIOUS), 6 * 8 + 3);
    assert_true(fabs(hl_profile_probe(profile, 7, 3, HL_PROBE_INDUCTION) - 0.66) < 0.1);
    assert_true(fabs(hl_profile_probe(profile, 6, 3, HL_PROBE_PREVIOUS) - 0.54) < 0.1);
    assert_true(hl_profile_probe(profile, 7, 6, HL_PROBE_DUPLICATE) < 0.06);
    hl_profile_free(profile);
    close_work(&w);
}

/* Each token counts once, whether or not windows overlap. */
static void overlapping_windows_count_every_token_once(void **state)
{
    work        w    = open_work(DEMO, DEMO "/expected.safetensors");
    hl_profile *half = measure(&w, &(hl_measure_options){ .windows  = { .n_ctx = 64, .stride = 32 },
                                                          .nll      = true,
                                                          .no_probe = true,
                                                          .n_threads = 1 });
    (void)state;

    assert_int_equal(hl_profile_n_tokens(half), 512);
    assert_int_equal(hl_profile_moments(half, 0, 0, HL_Q_ENTROPY).count, 512);
    assert_int_equal(hl_profile_nll(half).count, 510);
    assert_true(isnan(hl_profile_probe(half, 0, 0, HL_PROBE_INDUCTION)));
    hl_profile_free(half);
    close_work(&w);
}

/* -sum p ln(p + epsilon) of pattern0, which others computed. */
static void the_formula_with_epsilon(void **state)
{
    const char     *folder  = "tests/data/families/llama3";
    work            w       = open_work(folder, in_folder(folder, "expected.safetensors"));
    hl_safetensors *file    = NULL;
    hl_profile     *profile = measure(
            &w, &(hl_measure_options){
                    .windows = { .n_ctx = 32, .max_tokens = 32 }, .epsilon = 1e-8, .n_threads = 1 });
    (void)state;

    assert_ok(hl_safetensors_open(&file, in_folder(folder, "expected.safetensors")));
    const hl_tensor *pattern = hl_safetensors_find(file, "pattern0"); /* (H, S, S) */
    for (int64_t head = 0; head < pattern->shape[0]; head++) {
        double sum = 0.0;
        for (int64_t i = 0; i < 32 * 32; i++) {
            float p;
            memcpy(&p, (const float *)pattern->data + head * 32 * 32 + i, sizeof p);
            sum -= (double)p * log((double)p + 1e-8);
        }
        assert_true(fabs(hl_profile_mean(profile, 0, head, HL_Q_ENTROPY) - sum / 32.0) < 1e-6);
        assert_int_equal(hl_profile_pattern(profile, 0, head, HL_PM_PEAK, false).count, 31);
    }
    assert_string_equal(hl_profile_setting(profile, "epsilon"), "1e-08");
    hl_safetensors_close(file);
    hl_profile_free(profile);
    close_work(&w);
}

/* Returns the mean of a tensor [L, B, H, S] for one head, from row `first` of each window on. */
static double mean_of_head(const hl_safetensors *file, const char *name, int64_t layer,
                           int64_t head, int64_t first)
{
    const hl_tensor *tensor = hl_safetensors_find(file, name);
    double           sum    = 0.0;
    int64_t          count  = 0;

    assert_non_null(tensor);
    for (int64_t i = 0; i < tensor->shape[1] * tensor->shape[3]; i++) {
        int64_t window = i / tensor->shape[3], row = i % tensor->shape[3];
        int64_t at =
            ((layer * tensor->shape[1] + window) * tensor->shape[2] + head) * tensor->shape[3] +
            row;
        float value;
        memcpy(&value, (const float *)tensor->data + at, sizeof value);
        if (row < first || isnan(value))
            continue;
        sum += (double)value;
        count++;
    }
    return sum / (double)count;
}

/* Undefined values are NaN; means over the others are those of the profile. */
static void rows_have_the_means_of_the_profile(const hl_safetensors *file,
                                               const hl_profile     *profile)
{
    static const struct {
        const char *name;
        hl_quantity quantity;
        int         n_undefined; /* rows at a window's beginning for which it is undefined */
        int64_t     first;       /* first row that the profile counts */
    } all[] = {
        { "entropy", HL_Q_ENTROPY, 0, 0 },
        { "normalized", HL_Q_NORMALIZED, 1, 15 },
        { "renyi2", HL_Q_RENYI2, 0, 0 },
        { "varentropy", HL_Q_VARENTROPY, 0, 0 },
        { "peak", HL_Q_PEAK, 0, 0 },
        { "self", HL_Q_SELF, 0, 0 },
        { "previous", HL_Q_PREVIOUS, 1, 0 },
        { "first", HL_Q_FIRST, 0, 0 },
        { "entropy_nosink", HL_Q_ENTROPY_NOSINK, 1, 0 },
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const float *values =
            hl_safetensors_find(file, all[i].name)->data; /* values of L0H0 from here on */
        const void *lengths = hl_safetensors_find(file, "lengths")->data;
        float       value;
        for (int64_t window = 0; window < N_DOCUMENTS; window++) {
            int64_t length, n_heads = hl_safetensors_find(file, all[i].name)->shape[2];
            memcpy(&length, (const int64_t *)lengths + window, sizeof length);
            for (int64_t row = 0; row < length; row++) {
                memcpy(&value, values + window * n_heads * 72 + row, sizeof value);
                assert_true(isnan(value) == (row < all[i].n_undefined));
            }
        }
        double seen   = mean_of_head(file, all[i].name, 2, 1, all[i].first);
        double wanted = hl_profile_mean(profile, 2, 1, all[i].quantity);
        if (!(fabs(seen - wanted) < 1e-7))
            fail_msg("%s: the rows' mean is %.9g, the profile's %.9g", all[i].name, seen, wanted);
    }
}

/* verify compares rows with the model's results, also for files that have 0 where a row does not
 * define a probability, and for files with fewer statistics. */
static void rows_can_be_verified(const char *path, const char *folder)
{
    static const char *const before[] = {
        "tokens", "lengths", "entropy", "renyi2",   "peak",
        "self",   "first",   "lse",     "previous", "varentropy"
    };
    hl_verify_report      *report = NULL;
    hl_safetensors        *file   = NULL;
    hl_safetensors_writer *writer = NULL;
    char                   older[2048];
    void                  *zeroed = NULL;

    for (int round = 0; round < 2; round++) {
        assert_ok(hl_verify_model(&report, "tests/data/families/llama3",
                                  &(hl_verify_options){ .backend       = hl_backend_name(),
                                                        .expected_path = round ? older : path }));
        assert_true(report->passed && report->n_entries == 8);
        hl_verify_report_free(report);
        if (round == 1)
            break;
        snprintf(older, sizeof older, "%s", in_folder(folder, "older.safetensors"));
        assert_ok(hl_safetensors_open(&file, path));
        assert_ok(hl_safetensors_writer_new(&writer));
        for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
            hl_tensor tensor = *hl_safetensors_find(file, before[i]);
            if (strcmp(before[i], "previous") == 0) {
                float *values = zeroed = malloc(tensor.n_bytes);
                assert_non_null(values);
                memcpy(values, tensor.data, tensor.n_bytes);
                for (int64_t at = 0; at < hl_tensor_count(&tensor); at += tensor.shape[3])
                    values[at] = 0.0f;
                tensor.data = values;
            }
            hl_safetensors_add(writer, &tensor);
        }
        assert_ok(hl_safetensors_write(writer, older));
        hl_safetensors_writer_free(writer);
        hl_safetensors_close(file);
        free(zeroed);
    }
}

static void every_row_goes_to_a_file(void **state)
{
    const char     *folder = new_folder();
    work            w      = open_work("tests/data/families/llama3", write_documents(folder, 256));
    hl_safetensors *file   = NULL;
    char            path[2048];
    (void)state;

    snprintf(path, sizeof path, "%s", in_folder(folder, "rows.safetensors"));
    hl_profile *profile = measure(
        &w, &(hl_measure_options){
                .windows = { .n_ctx = 72, .n_batch = 3 }, .rows_path = path, .n_threads = 1 });
    assert_ok(hl_safetensors_open(&file, path));
    const hl_tensor *entropy = hl_safetensors_find(file, "entropy");
    const hl_tensor *lengths = hl_safetensors_find(file, "lengths");
    assert_int_equal(entropy->shape[1], N_DOCUMENTS);
    assert_int_equal(entropy->shape[3], 72);
    double  sum   = 0.0;
    int64_t count = 0;
    for (int64_t i = 0; i < N_DOCUMENTS * 72; i++) { /* layer 2, head 1 */
        int64_t length;
        float   value;
        int64_t at = ((2 * N_DOCUMENTS + i / 72) * entropy->shape[2] + 1) * 72 + i % 72;
        memcpy(&length, (const int64_t *)lengths->data + i / 72, sizeof length);
        memcpy(&value, (const float *)entropy->data + at, sizeof value);
        assert_true(isnan(value) == (i % 72 >= length));
        sum += isnan(value) ? 0.0 : (double)value;
        count += isnan(value) ? 0 : 1;
    }
    assert_int_equal(hl_profile_n_tokens(profile), count);
    assert_true(fabs(hl_profile_mean(profile, 2, 1, HL_Q_ENTROPY) - sum / (double)count) < 1e-10);
    rows_have_the_means_of_the_profile(file, profile);
    const char *const others[] = { "tokens", "lse", "normalized_nosink" };
    for (int i = 0; i < 3; i++)
        assert_non_null(hl_safetensors_find(file, others[i]));
    hl_safetensors_close(file);
    rows_can_be_verified(path, folder);
    hl_profile_free(profile);
    close_work(&w);
    remove_folder(folder);
}

static void impossible_options_are_refused(void **state)
{
    work w =
        open_work("tests/data/families/llama3", "tests/data/families/llama3/expected.safetensors");
    hl_profile *profile = NULL;
    (void)state;

    assert_fails(HL_LIMIT, "exceeds the model's limit",
                 hl_measure(&profile, w.model, NULL, w.corpus,
                            &(hl_measure_options){ .windows = { .n_ctx = 1 << 20 } }));
    assert_fails(
        HL_BAD_ARGUMENT, "must not be negative",
        hl_measure(&profile, w.model, NULL, w.corpus, &(hl_measure_options){ .epsilon = -1.0 }));
    /* Messages do not name the command; the program adds its name. */
    assert_null(strstr(hl_error_message(), "measure:"));
    assert_fails(HL_BAD_ARGUMENT, "no text", hl_measure(&profile, w.model, NULL, NULL, NULL));
    close_work(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(means_are_those_of_the_golden_rows),
        cmocka_unit_test(means_of_every_family),
        cmocka_unit_test(batches_and_parts_give_the_same_bytes),
        cmocka_unit_test(threads_agree),
        cmocka_unit_test(what_was_stopped_goes_on_to_the_same_bytes),
        cmocka_unit_test(norms_influence_and_loss_are_right),
        cmocka_unit_test(the_probe_finds_the_heads_that_others_found),
        cmocka_unit_test(overlapping_windows_count_every_token_once),
        cmocka_unit_test(the_formula_with_epsilon),
        cmocka_unit_test(every_row_goes_to_a_file),
        cmocka_unit_test(impossible_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
