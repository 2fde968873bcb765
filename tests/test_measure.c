/* test_measure.c - measuring: profiles against what others computed of the same tokens; the
 * same bytes whatever the batches, parts and interruptions. */
#include "model_support.h"
#include "profile_support.h"

#include <unistd.h>

#include "base/dtype.h"
#include "formats/safetensors.h"
#include "measure/measure.h"

#define DEMO "models/demo"

typedef struct work {
    hl_model  *model;
    hl_corpus *corpus;
} work;

static work open_work(const char *model_path, const char *token_ids)
{
    work w = { .model = open_model(model_path) };

    assert_ok(
        hl_corpus_open(&w.corpus, w.model, NULL, &(hl_corpus_options){ .token_ids = token_ids }));
    return w;
}

static void close_work(work *w)
{
    hl_corpus_close(w->corpus);
    hl_model_close(w->model);
}

static hl_profile *measure(const work *w, const hl_measure_options *options)
{
    hl_profile *profile = NULL;
    assert_ok(hl_measure(&profile, w->model, NULL, w->corpus, options));
    return profile;
}

/* ----------------------------------------------------------------------- golden */

/* The mean of a (L, B, H, S) tensor over sequences and the rows from `first` on. */
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

/* The largest difference between the profile's means and the file's; < 0: not in the file. */
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
            /* A window hides key 0 from later rows, whose 0 is in no mean. */
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
        measure(&w, &(hl_measure_options){ .windows = { .context = S }, .n_threads = 1 });
    worst = fmax(worst, compare(profile, file, "entropy", HL_Q_ENTROPY, 0));
    worst = fmax(worst, compare(profile, file, "renyi2", HL_Q_RENYI2, 0));
    worst = fmax(worst, compare(profile, file, "peak", HL_Q_PEAK, 0));
    worst = fmax(worst, compare(profile, file, "diagonal", HL_Q_SELF, 0));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(means_are_those_of_the_golden_rows),
        cmocka_unit_test(means_of_every_family),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
