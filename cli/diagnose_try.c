/* diagnose_try.c - measure, diagnose, adjust the model, and look again.
 *
 * What can be tried while a model runs, and what it is tried for:
 *
 *     entropy-collapse    attention temperature 2: flatter rows
 *     entropic-overload   attention temperature 0.5: sharper rows
 *
 * or whatever adjustment was asked for.  The other diagnoses are about weights, which is
 * said.  The loss stands beside the entropies: a mitigation that mends the one and ruins
 * the other is none. */
#include "diagnose_try.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "printable.h"
#include "quick_measure.h"
#include "sampling_try.h"
#include "values.h"
#include "wrap.h"

enum { MOST_TRIALS = 2 };

typedef struct trial {
    hl_adjustment adjustment;
    const char   *reason; /* the diagnosis; NULL: it was asked for */
} trial;

/* What is known of the model under one adjustment. */
typedef struct outcome {
    hl_diagnoses *found;
    double        fair; /* mean over heads */
    double        loss; /* nats a token */
} outcome;

/* ----------------------------------------------------------------- measuring */

static double mean_fair(const hl_profile *profile)
{
    double  sum   = 0.0;
    int64_t count = 0;

    for (int64_t layer = 0; layer < hl_profile_n_layers(profile); layer++) {
        for (int64_t head = 0; head < hl_profile_heads_of(profile, layer); head++) {
            double mean = hl_profile_moments(profile, layer, head, HL_Q_FAIR).mean;
            sum += isnan(mean) ? 0.0 : mean;
            count += !isnan(mean);
        }
    }
    return count > 0 ? sum / (double)count : NAN;
}

static hl_status examine(outcome *out, const hl_try_request *request,
                         const hl_adjustment *adjustment)
{
    hl_profile      *profile = NULL;
    hl_quick_request quick   = { .model_path = request->model_path,
                                 .adjustment = adjustment,
                                 .gates      = &request->gates,
                                 .command    = "diagnose",
                                 .texts      = (const char *const *)request->texts,
                                 .n_texts    = (size_t)request->n_texts,
                                 .windows    = request->windows,
                                 .nll        = true,
                                 .no_probe   = true,
                                 .n_threads  = request->n_threads,
                                 .quiet      = request->quiet || request->json };

    hl_status status = hl_quick_measure(&profile, &quick);
    if (status == HL_OK)
        status = hl_diagnose(&out->found, profile, NULL, request->thresholds);
    if (status == HL_OK) {
        out->fair = mean_fair(profile);
        out->loss = hl_profile_nll(profile).mean;
    }
    hl_profile_free(profile);
    return status;
}

/* -------------------------------------------------------------------- trials */

static bool is_present(const outcome *seen, const char *name)
{
    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        if (strcmp(seen->found->items[i].name, name) == 0)
            return seen->found->items[i].verdict == HL_VERDICT_FOUND;
    }
    return false;
}

static bool is_wanted(const hl_adjustment *a)
{
    return a->temperature != 0.0 || a->window != 0 || a->rope_base != 0.0 || a->rope_factor != 0.0;
}

static int choose_trials(trial out[MOST_TRIALS], const hl_try_request *request,
                         const outcome *before)
{
    int count = 0;

    if (is_wanted(&request->wanted)) {
        out[0] = (trial){ request->wanted, NULL };
        return 1;
    }
    if (is_present(before, "entropy-collapse"))
        out[count++] = (trial){ { .temperature = 2.0 }, "entropy-collapse" };
    if (is_present(before, "entropic-overload"))
        out[count++] = (trial){ { .temperature = 0.5 }, "entropic-overload" };
    return count;
}

static long long kept_keys(const hl_adjustment *a)
{
    return a->window == 0 || a->window_sink < 0 ? 0 : a->window_sink;
}

static void describe(char *out, size_t n_bytes, const hl_adjustment *a)
{
    size_t used = 0;

    out[0] = '\0';
    if (a->temperature != 0.0)
        used += (size_t)snprintf(out, n_bytes, "attention temperature %g", a->temperature);
    if (a->window != 0)
        used += (size_t)snprintf(out + used, n_bytes - used, "%swindow %lld and %lld first",
                                 used > 0 ? ", " : "", (long long)a->window, kept_keys(a));
    if (a->rope_base != 0.0)
        used += (size_t)snprintf(out + used, n_bytes - used, "%sRoPE base %g", used > 0 ? ", " : "",
                                 a->rope_base);
    if (a->rope_factor != 0.0)
        snprintf(out + used, n_bytes - used, "%sRoPE factor %g", used > 0 ? ", " : "",
                 a->rope_factor);
}

/* ---------------------------------------------------------------------- text */

static void print_number(double value, int width)
{
    if (isnan(value))
        printf(" %*s", width, "-");
    else
        printf(" %*.4g", width, value);
}

static void print_comparison(const trial *tried, const outcome *before, const outcome *after)
{
    char text[160];

    describe(text, sizeof text, &tried->adjustment);
    printf("tried %s", text);
    printf(tried->reason != NULL ? ", for %s\n\n" : "\n\n", tried->reason);
    printf("  %-18s %10s %10s   %-13s %s\n", "", "before", "after", "before", "after");
    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        const hl_diagnosis *was = &before->found->items[i];
        const hl_diagnosis *now = &after->found->items[i];

        printf("  %-18s", was->name);
        print_number(was->value, 10);
        print_number(now->value, 10);
        printf("   %-13s %s\n", hl_verdict_name(was->verdict), hl_verdict_name(now->verdict));
    }
    printf("  %-18s %10.4f %10.4f\n", "mean fair entropy", before->fair, after->fair);
    printf("  %-18s %10.4f %10.4f   nats a token\n\n", "loss", before->loss, after->loss);
}

/* What is present and cannot be mended by running the model otherwise. */
static void print_untried(const outcome *before)
{
    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        const hl_diagnosis *item = &before->found->items[i];

        if (item->verdict != HL_VERDICT_FOUND || i < MOST_TRIALS)
            continue;
        printf("%s: ", item->name);
        hl_print_wrapped(item->mitigation, (int)strlen(item->name) + 2);
    }
}

static void print_sampling(const hl_sampling_trial *tried)
{
    if (tried->n_tokens == 0)
        return;
    printf("sampling temperature %g instead, on the first %lld tokens\n\n", tried->temperature,
           (long long)tried->n_tokens);
    printf("  %-18s %10s %10s\n", "", "before", "after");
    printf("  %-18s %10.4f %10.4f   nats\n", "vocabulary entropy", tried->before.vocabulary,
           tried->after.vocabulary);
    printf("  %-18s %10.4f %10.4f   nats\n\n", "attention entropy", tried->before.attention,
           tried->after.attention);
}

static void print_text(const trial *trials, int n_trials, const outcome *before,
                       const outcome *after, const hl_sampling_trial *sampling)
{
    for (int i = 0; i < n_trials; i++)
        print_comparison(&trials[i], before, &after[i]);
    if (n_trials == 0)
        printf("nothing is present that running the model otherwise could mend\n");
    print_sampling(sampling);
    print_untried(before);
}

/* ---------------------------------------------------------------------- JSON */

static json_t *json_outcome(const outcome *seen)
{
    json_t *verdicts = json_object();

    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        const hl_diagnosis *item = &seen->found->items[i];
        json_object_set_new(verdicts, item->name,
                            json_pack("{s:s, s:o}", "verdict", hl_verdict_name(item->verdict),
                                      "value", hl_value_number(item->value)));
    }
    return json_pack("{s:o, s:o, s:o}", "fair", hl_value_number(seen->fair), "loss",
                     hl_value_number(seen->loss), "diagnoses", verdicts);
}

static json_t *json_seen(const hl_sampling_seen *seen)
{
    return json_pack("{s:o, s:o}", "vocabulary_entropy", hl_value_number(seen->vocabulary),
                     "attention_entropy", hl_value_number(seen->attention));
}

static json_t *json_sampling(const hl_sampling_trial *tried)
{
    if (tried->n_tokens == 0)
        return json_null();
    return json_pack("{s:f, s:I, s:o, s:o}", "temperature", tried->temperature, "tokens",
                     (json_int_t)tried->n_tokens, "before", json_seen(&tried->before), "after",
                     json_seen(&tried->after));
}

static void print_json(const trial *trials, int n_trials, const outcome *before,
                       const outcome *after, const hl_sampling_trial *sampling)
{
    json_t *tried = json_array();

    for (int i = 0; i < n_trials; i++) {
        const hl_adjustment *a = &trials[i].adjustment;
        json_array_append_new(tried,
                              json_pack("{s:f, s:I, s:I, s:f, s:f, s:s?, s:o}", "temperature",
                                        a->temperature, "window", (json_int_t)a->window,
                                        "window_sink", (json_int_t)kept_keys(a), "rope_base",
                                        a->rope_base, "rope_factor", a->rope_factor, "for",
                                        trials[i].reason, "after", json_outcome(&after[i])));
    }
    json_t *root = json_pack("{s:o, s:o, s:o}", "before", json_outcome(before), "tried", tried,
                             "sampling", json_sampling(sampling));
    hl_put_json(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    printf("\n");
    json_decref(root);
}

/* ----------------------------------------------------------------- the whole */

/* With what was asked for, or else as warm as attention was made. */
static hl_status try_sampling(hl_sampling_trial *out, const hl_try_request *request,
                              const trial *trials, int n_trials)
{
    double temperature = request->sampling;

    if (temperature == 0.0 && n_trials > 0)
        temperature = trials[0].adjustment.temperature;
    if (temperature == 0.0)
        return HL_OK;
    return hl_sampling_try(out, request->model_path, request->texts[0], temperature,
                           request->n_threads);
}

int hl_diagnose_try(const hl_try_request *request)
{
    outcome           before             = { 0 };
    outcome           after[MOST_TRIALS] = { { 0 } };
    trial             trials[MOST_TRIALS];
    hl_sampling_trial sampling = { 0 };
    int               n_trials = 0;
    hl_status         status   = examine(&before, request, NULL);

    if (status == HL_OK)
        n_trials = choose_trials(trials, request, &before);
    for (int i = 0; i < n_trials && status == HL_OK; i++)
        status = examine(&after[i], request, &trials[i].adjustment);
    if (status == HL_OK)
        status = try_sampling(&sampling, request, trials, n_trials);
    if (status != HL_OK)
        hl_complain("diagnose", "%s", hl_explain(status));
    else if (request->json)
        print_json(trials, n_trials, &before, after, &sampling);
    else if (!request->quiet)
        print_text(trials, n_trials, &before, after, &sampling);
    hl_diagnoses_free(before.found);
    for (int i = 0; i < MOST_TRIALS; i++)
        hl_diagnoses_free(after[i].found);
    return hl_exit_for(status);
}
