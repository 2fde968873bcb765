/* cmd_diagnose.c - headlight diagnose: what is wrong with a model's attention?
 *
 * With --try: measures, diagnoses, adjusts the model, and measures again.  These adjustments are
 * tried for these diagnoses, unless the command line gives others:
 *
 *     entropy-collapse    attention temperature 2: flatter rows
 *     entropic-overload   attention temperature 0.5: sharper rows
 *
 * Other diagnoses concern the weights; the output says so.  The loss is shown beside the entropies,
 * since an adjustment that improves one and ruins the other is not a mitigation. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "command.h"
#include "diagnoses.h"
#include "evidence.h"
#include "headlight.h"
#include "held.h"
#include "options.h"
#include "screen.h"
#include "shared_options.h"
#include "values.h"

typedef struct diagnose_request {
    hl_common      common;
    hl_arguments   paths; /* profiles; with --try, a model and texts */
    hl_thresholds  thresholds;
    hl_option_list given;   /* thresholds by name */
    const char    *fail_on; /* "a,b"; NULL: nothing fails */
    const char    *trace_path;
    const char    *training_path;
    const char    *gradient_model; /* with texts: gradients of its heads */
    hl_option_list gradient_texts;
    bool           verbose;
    /* --try, and what is for it alone. */
    bool                attempt;
    hl_window_options   windows;
    hl_adjust_arguments adjust; /* all 0: chosen by the findings */
    hl_gate_arguments   gates;
    double              sampling; /* sampling temperature; 0: the attention temperature, if one is
                                   * tried */
} diagnose_request;

/* ------------------------------------------------------ a sampling temperature */

/* A sampling temperature is often recommended against collapsed attention.  But attention comes
 * before sampling, so its rows on the same text cannot change.  To show this, both are measured in
 * two passes over the same tokens, with samplers at temperature 1 and at another temperature. */

/* Mean entropies in nats. */
typedef struct sampling_seen {
    double vocabulary; /* entropy of the distribution that the next token is drawn from */
    double attention;  /* entropy of the rows of all heads */
} sampling_seen;

typedef struct sampling_trial {
    double        temperature;
    int64_t       n_tokens; /* 0: not measured, since the text is not a plain file */
    sampling_seen before;   /* measured at temperature 1 */
    sampling_seen after;
} sampling_trial;

enum { MOST_TOKENS = 64, MOST_BYTES = 2048 };

typedef struct attention_sum {
    double  sum;
    int64_t count;
} attention_sum;

static hl_status add_layer(void *context, const hl_layer_rows *rows)
{
    attention_sum *total = context;

    for (int64_t head = 0; head < rows->n_heads; head++)
        total->sum += (double)rows->rows->entropy[head * rows->n_rows];
    total->count += rows->n_heads;
    return HL_OK;
}

static hl_status read_once(sampling_seen *out, const hl_model *model, const int64_t *ids,
                           int64_t n_tokens, double temperature, int32_t n_threads)
{
    HL_HELD(hl_session_close) hl_session *session = NULL;
    HL_HELD(hl_sampler_free) hl_sampler  *sampler = NULL;

    attention_sum      total   = { 0.0, 0 };
    hl_session_options options = { .n_ctx     = n_tokens,
                                   .wants     = HL_WANT_LAST_LOGITS,
                                   .n_threads = n_threads };
    hl_sample_options  sample  = { .temperature = temperature };
    hl_tap             tap     = { .context = &total, .layer = add_layer };

    *out = (sampling_seen){ 0.0, 0.0 };
    HL_NEED(hl_session_open(&session, model, &options));
    HL_NEED(hl_sampler_new(&sampler, hl_model_get_info(model)->d_vocab, &sample));
    for (int64_t i = 0; i < n_tokens; i++) {
        int64_t token = ids[i], count = 0;
        double  entropy = 0.0; /* entropy of the sampler's candidates */

        HL_NEED(
            hl_session_feed(session, &(hl_feed){ .tokens = &token, .n_tokens = 1, .tap = &tap }));
        HL_NEED(hl_sampler_draw(&token, sampler, hl_session_logits(session, 0)));
        const hl_candidate *among = hl_sampler_candidates(sampler, &count);
        for (int64_t k = 0; k < count; k++)
            entropy -=
                among[k].probability > 0.0 ? among[k].probability * log(among[k].probability) : 0.0;
        out->vocabulary += entropy / (double)n_tokens;
    }
    out->attention = total.count > 0 ? total.sum / (double)total.count : 0.0;
    return HL_OK;
}

/* Removes an incomplete character at the end of cut text. */
static size_t whole_characters(const char *text, size_t n_bytes)
{
    while (n_bytes > 0 && ((unsigned char)text[n_bytes - 1] & 0xc0) == 0x80)
        n_bytes--;
    if (n_bytes > 0 && ((unsigned char)text[n_bytes - 1] & 0xc0) == 0xc0)
        n_bytes--;
    return n_bytes;
}

/* Reads the first bytes of a plain file; 0 for anything else. */
static size_t read_beginning(char *out, const char *path)
{
    struct stat about;
    size_t      n_bytes = 0;

    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode))
        return 0;
    FILE *file = fopen(path, "rb");
    if (file != NULL) {
        n_bytes = fread(out, 1, MOST_BYTES, file);
        fclose(file);
    }
    return n_bytes == MOST_BYTES ? whole_characters(out, n_bytes) : n_bytes;
}

/* Reads the beginning of a text twice, token by token, and samples after each step. */
static hl_status sample_twice(sampling_trial *out, const diagnose_request *request,
                              double temperature)
{
    char    text[MOST_BYTES];
    size_t  n_bytes   = read_beginning(text, request->paths.items[1]);
    int32_t n_threads = request->common.n_threads;

    HL_HELD(hl_model_close) hl_model         *model     = NULL;
    HL_HELD(hl_tokenizer_close) hl_tokenizer *tokenizer = NULL;
    HL_HELD(hl_encoding_free) hl_encoding    *encoding  = NULL;

    *out = (sampling_trial){ .temperature = temperature };
    if (n_bytes == 0)
        return HL_OK;
    HL_NEED(hl_model_open(&model, request->paths.items[0]));
    if (hl_model_get_info(model)->is_encoder)
        return HL_OK;
    HL_NEED(hl_tokenizer_option(&tokenizer, model, NULL));
    HL_NEED(hl_tokenizer_encode(&encoding, tokenizer, text, n_bytes, NULL));
    int64_t n_ctx = hl_model_get_info(model)->n_ctx;
    int64_t most  = n_ctx > 0 && n_ctx < MOST_TOKENS ? n_ctx : MOST_TOKENS;
    int64_t n     = (int64_t)encoding->n_tokens < most ? (int64_t)encoding->n_tokens : most;
    if (n == 0)
        return HL_OK;
    HL_NEED(read_once(&out->before, model, encoding->ids, n, 1.0, n_threads));
    HL_NEED(read_once(&out->after, model, encoding->ids, n, temperature, n_threads));
    out->n_tokens = n;
    return HL_OK;
}

/* ---------------------------------------------------------- trying mitigations */

enum { MOST_TRIALS = 2 };

typedef struct trial {
    hl_adjustment adjustment;
    const char   *reason; /* the diagnosis that the adjustment is tried for; NULL: requested by the
                           * user */
} trial;

/* Results of the model under one adjustment. */
typedef struct outcome {
    hl_diagnoses *found;
    double        normalized; /* mean over heads */
    double        loss;       /* nats per token */
} outcome;

typedef struct trials {
    outcome        before;
    int            n_trials;
    trial          tried[MOST_TRIALS];
    outcome        after[MOST_TRIALS];
    sampling_trial sampling;
} trials;

static double mean_normalized(const hl_profile *profile)
{
    double  sum   = 0.0;
    int64_t count = 0;

    for (int64_t layer = 0; layer < hl_profile_n_layers(profile); layer++) {
        for (int64_t head = 0; head < hl_profile_heads_of(profile, layer); head++) {
            double mean = hl_profile_moments(profile, layer, head, HL_Q_NORMALIZED).mean;
            sum += isnan(mean) ? 0.0 : mean;
            count += !isnan(mean);
        }
    }
    return count > 0 ? sum / (double)count : NAN;
}

static hl_status examine(outcome *out, const diagnose_request *request,
                         const hl_adjustment *adjustment)
{
    HL_HELD(hl_profile_free) hl_profile *profile = NULL;
    hl_quick_request                     quick   = {
                              .model_path = request->paths.items[0],
                              .adjustment = adjustment,
                              .gates      = &request->gates,
                              .command    = "diagnose",
                              .texts      = (const char *const *)request->paths.items + 1,
                              .n_texts    = (size_t)request->paths.count - 1,
                              .windows    = request->windows,
                              .nll        = true,
                              .no_probe   = true,
                              .n_threads  = request->common.n_threads,
                              .quiet      = request->common.quiet || request->common.json,
    };

    HL_NEED(hl_quick_measure(&profile, &quick));
    HL_NEED(hl_diagnose(&out->found, profile, NULL, &request->thresholds));
    out->normalized = mean_normalized(profile);
    out->loss       = hl_profile_nll(profile).mean;
    return HL_OK;
}

/* ---------------------------------------------------------- adjustments to try */

static bool is_present(const outcome *seen, const char *name)
{
    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        if (strcmp(seen->found->items[i].name, name) == 0)
            return seen->found->items[i].verdict == HL_VERDICT_FOUND;
    }
    return false;
}

static int choose_trials(trial out[MOST_TRIALS], const diagnose_request *request,
                         const outcome *before)
{
    int count = 0;

    if (hl_adjust_options_given(&request->adjust.adjustment)) {
        out[0] = (trial){ hl_adjust_options_of(&request->adjust), NULL };
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

/* -------------------------------------------------------------- trials as text */

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
    printf("  %-18s %10.4f %10.4f\n", "normalized entropy", before->normalized, after->normalized);
    printf("  %-18s %10.4f %10.4f   nats per token\n\n", "loss", before->loss, after->loss);
}

/* Lists findings that no adjustment can address. */
static void print_untried(const outcome *before)
{
    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        const hl_diagnosis *item = &before->found->items[i];

        if (item->verdict != HL_VERDICT_FOUND || item->kind != HL_CHECK_ALARM ||
            strcmp(item->name, "entropy-collapse") == 0 ||
            strcmp(item->name, "entropic-overload") == 0)
            continue;
        printf("%s: ", item->name);
        hl_print_wrapped(item->mitigation, (int)strlen(item->name) + 2);
    }
}

static void print_sampling(const sampling_trial *tried)
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

static void print_trials(const trials *t)
{
    for (int i = 0; i < t->n_trials; i++)
        print_comparison(&t->tried[i], &t->before, &t->after[i]);
    if (t->n_trials == 0)
        printf("no finding has an inference-time fix to try\n");
    print_sampling(&t->sampling);
    print_untried(&t->before);
}

/* -------------------------------------------------------------- trials as JSON */

static json_t *json_outcome(const outcome *seen)
{
    json_t *verdicts = json_object();

    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        const hl_diagnosis *item = &seen->found->items[i];
        json_object_set_new(verdicts, item->name,
                            HL_OBJECT(HL_IS("verdict", hl_verdict_name(item->verdict)),
                                      HL_IS("value", item->value)));
    }
    return HL_OBJECT(HL_IS("normalized", seen->normalized), HL_IS("loss", seen->loss),
                     HL_IS("diagnoses", verdicts));
}

static json_t *json_seen(const sampling_seen *seen)
{
    return HL_OBJECT(HL_IS("vocabulary_entropy", seen->vocabulary),
                     HL_IS("attention_entropy", seen->attention));
}

static json_t *json_sampling(const sampling_trial *tried)
{
    if (tried->n_tokens == 0)
        return json_null();
    return HL_OBJECT(HL_IS("temperature", tried->temperature), HL_IS("tokens", tried->n_tokens),
                     HL_IS("before", json_seen(&tried->before)),
                     HL_IS("after", json_seen(&tried->after)));
}

static void print_trials_json(const trials *t)
{
    json_t *tried = json_array();

    for (int i = 0; i < t->n_trials; i++) {
        const hl_adjustment *a = &t->tried[i].adjustment;
        json_array_append_new(
            tried, HL_OBJECT(HL_IS("temperature", a->temperature), HL_IS("window", a->window),
                             HL_IS("window_sink", kept_keys(a)), HL_IS("rope_base", a->rope_base),
                             HL_IS("rope_factor", a->rope_factor), HL_IS("for", t->tried[i].reason),
                             HL_IS("after", json_outcome(&t->after[i]))));
    }
    hl_print_json(HL_OBJECT(HL_IS("before", json_outcome(&t->before)), HL_IS("tried", tried),
                            HL_IS("sampling", json_sampling(&t->sampling))),
                  JSON_INDENT(1) | JSON_REAL_PRECISION(9));
}

/* ------------------------------------------------------------------ all trials */

static hl_status try_all(trials *t, const diagnose_request *request)
{
    HL_NEED(examine(&t->before, request, NULL));
    t->n_trials = choose_trials(t->tried, request, &t->before);
    for (int i = 0; i < t->n_trials; i++)
        HL_NEED(examine(&t->after[i], request, &t->tried[i].adjustment));
    /* Uses the requested sampling temperature, or else that of attention. */
    double temperature = request->sampling;
    if (temperature == 0.0 && t->n_trials > 0)
        temperature = t->tried[0].adjustment.temperature;
    if (temperature != 0.0)
        HL_NEED(sample_twice(&t->sampling, request, temperature));
    if (request->common.json)
        print_trials_json(t);
    else if (!request->common.quiet)
        print_trials(t);
    return HL_OK;
}

/* With --try the arguments are MODEL TEXT... */
static int try_mitigations(const diagnose_request *request, const hl_usage *usage)
{
    trials t = { 0 };

    if (request->paths.count < 2)
        return hl_options_refuse(usage, "--try needs a MODEL and a TEXT; got %d arguments",
                                 request->paths.count);
    if (request->fail_on != NULL || request->trace_path != NULL)
        return hl_options_refuse(usage, "--try and %s cannot be combined",
                                 request->fail_on != NULL ? "--fail-on" : "--trace");
    int code = hl_finish("diagnose", try_all(&t, request));
    hl_diagnoses_free(t.before.found);
    for (int i = 0; i < MOST_TRIALS; i++)
        hl_diagnoses_free(t.after[i].found);
    return code;
}

/* ------------------------------------------------------------------ diagnosing */

/* Returns the exit status: 1 if a diagnosis of --fail-on was found. */
static int report(const diagnose_request *request, const hl_profile *profile,
                  const hl_diagnoses *found)
{
    bool failed = false;

    for (int i = 0; i < HL_N_DIAGNOSES; i++)
        failed = failed || (found->items[i].verdict == HL_VERDICT_FOUND &&
                            hl_diagnosis_is_listed(request->fail_on, found->items[i].name));
    if (request->common.json)
        hl_print_json(HL_OBJECT(HL_IS("profile", hl_value_name(request->paths.items[0])),
                                HL_IS("failed", failed),
                                HL_IS("diagnoses", hl_diagnoses_json(found))),
                      JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    else if (!request->common.quiet)
        hl_diagnoses_print(found, profile, request->paths.items[0], request->verbose);
    for (int i = 0; i < HL_N_DIAGNOSES && request->fail_on != NULL; i++) {
        const hl_diagnosis *item = &found->items[i];
        if (!hl_diagnosis_is_listed(request->fail_on, item->name))
            continue;
        if (item->verdict == HL_VERDICT_FOUND)
            hl_complain("diagnose", "%s was found", item->name);
        else if (item->verdict == HL_VERDICT_NOT_RUN && strcmp(request->fail_on, "any") != 0)
            hl_complain("diagnose", "%s was not run (%s), so --fail-on cannot tell", item->name,
                        item->finding);
    }
    return failed ? HL_EXIT_NO : HL_EXIT_OK;
}

/* Gradient norms of the queries and keys of all heads, over the first windows of a text. */
static hl_status add_gradients(hl_diagnoses *found, const diagnose_request *request)
{
    hl_corpus_options   text = { .inputs   = request->gradient_texts.items,
                                 .n_inputs = (size_t)request->gradient_texts.count };
    hl_gradient_options how  = { .windows   = request->windows,
                                 .n_threads = request->common.n_threads };

    HL_HELD(hl_model_close) hl_model         *model     = NULL;
    HL_HELD(hl_tokenizer_close) hl_tokenizer *tokenizer = NULL;
    HL_HELD(hl_corpus_close) hl_corpus       *corpus    = NULL;
    HL_HELD(hl_gradients_free) hl_gradients  *gradients = NULL;

    HL_NEED(hl_model_open(&model, request->gradient_model));
    HL_NEED(hl_tokenizer_option(&tokenizer, model, NULL));
    HL_NEED(hl_corpus_open(&corpus, model, tokenizer, &text));
    HL_NEED(hl_gate_gradients(&gradients, model, corpus, &how));
    int64_t n_cells = gradients->n_layers * gradients->n_heads; /* queries, then keys */
    for (int i = 0; i < 2; i++)
        HL_NEED(hl_diagnose_gradients(found, i == 0 ? "queries" : "keys",
                                      gradients->weight_norms + i * n_cells, gradients->n_layers,
                                      gradients->n_heads));
    return HL_OK;
}

static int diagnose(const diagnose_request *request)
{
    HL_HELD(hl_profile_free) hl_profile     *profile  = NULL;
    HL_HELD(hl_profile_free) hl_profile     *before   = NULL;
    HL_HELD(hl_profile_free) hl_profile     *training = NULL;
    HL_HELD(hl_trace_free) hl_trace         *trace    = NULL;
    HL_HELD(hl_diagnoses_free) hl_diagnoses *found    = NULL;

    HL_CALL("diagnose", hl_profile_load(&profile, request->paths.items[0]));
    if (request->paths.count > 1)
        HL_CALL("diagnose", hl_profile_load(&before, request->paths.items[1]));
    HL_CALL("diagnose", hl_diagnose(&found, profile, before, &request->thresholds));
    if (request->trace_path != NULL) { /* locking is found in traces only */
        HL_CALL("diagnose", hl_trace_load(&trace, request->trace_path));
        HL_CALL("diagnose", hl_diagnose_trace(found, trace, &request->thresholds));
    }
    if (request->training_path != NULL) {
        HL_CALL("diagnose", hl_profile_load(&training, request->training_path));
        HL_CALL("diagnose", hl_diagnose_training(found, profile, training));
    }
    if (request->gradient_model != NULL)
        HL_CALL("diagnose", add_gradients(found, request));
    return report(request, profile, found);
}

/* ----------------------------------------------------------------- the command */

static const char about[] =
    "Checks a profile for what a person should act on (alarms), and describes what\n"
    "most models have (observations).  Each check states its rule, the size of the\n"
    "effect, the smallest effect that matters, and how sure the effect is.  What was\n"
    "found comes with the heads that show it, the same number in released models,\n"
    "possible causes with the evidence for and against each, and what to do.\n"
    "BEFORE is a profile to compare with: an earlier checkpoint on the same text,\n"
    "the model before quantization, or the same shapes with random weights.\n"
    "\n"
    "With --try a model is measured on texts, and again under the mitigation that\n"
    "fits each finding, or under the given one.  The output shows what changed,\n"
    "the loss included.\n"
    "\n"
    "Alarms: dead-or-broken, entropy-collapse, entropic-overload, attention-locking,\n"
    "flat-profile, head-redundancy, inactive-heads, head-drift.\n"
    "Observations: sink-heads, previous-token-heads, alike-heads, alike-sinks.\n"
    "\n"
    "Thresholds and their defaults: collapse-share 0.5, collapse-entropy 0.05,\n"
    "collapse-drop 0.1, collapse-errors 4, collapse-new 0.2, overload-share 0.9,\n"
    "overload-entropy 0.9, overload-change 0.05, locking-window 64, locking-change 0.05,\n"
    "locking-spread 0.01, locking-loop 0.02, locking-tokens 32, flat-range 0.03, flat-errors 2,\n"
    "redundancy-share 0.5, redundancy-similarity 0.9, inactive-norm 0.1,\n"
    "drift-loss 0.05, drift-entropy 0.1, sink-mass 0.3, previous-mass 0.4,\n"
    "broken-rows 0.";

int hl_command_diagnose(int argc, char **argv)
{
    diagnose_request request = { .thresholds = hl_thresholds_default(),
                                 .windows    = { .max_tokens = 8192 },
                                 .adjust     = HL_ADJUST_ARGUMENTS };

    hl_option options[] = {
        HL_TEXT("fail-on", 0, &request.fail_on, "NAME,...",
                "exit with status 1 if one of these finds something (any: all alarms)"),
        HL_LIST("threshold", 0, &request.given, "NAME=VALUE", "change a threshold (repeatable)"),
        HL_TEXT("trace", 0, &request.trace_path, "FILE",
                "trace of 'headlight generate --trace', for attention-locking"),
        HL_TEXT("training", 0, &request.training_path, "PROFILE",
                "the model on its training text, to detect overfitting"),
        HL_TEXT("model", 0, &request.gradient_model, "MODEL",
                "with --text: gradients of its heads, to detect vanishing gradients"),
        HL_LIST("text", 0, &request.gradient_texts, "PATH", "--model: the text (repeatable)"),
        HL_FLAG("verbose", 'v', &request.verbose,
                "print heads, counter-evidence and mitigation of every check"),
        HL_FLAG("try", 0, &request.attempt, "measure MODEL on TEXT without and with mitigations"),
        HL_TEMPERATURE_OPTION("--try: ", &request.adjust),
        HL_NUMBER("sampling-temperature", 0, &request.sampling, "T",
                  "--try: effect of sampling at temperature T", 0, 1000),
        HL_ADJUST_OPTIONS("--try: ", &request.adjust),
        HL_WINDOW_OPTIONS("--try", "8192", &request.windows),
        HL_GATE_OPTIONS(&request.gates),
        { 0 },
    };
    hl_usage usage = { "diagnose", "PROFILE [BEFORE] | --try MODEL TEXT...", about, options };

    HL_PASS(hl_options_parse(&request.paths, &request.common, &usage, argc, argv));
    HL_PASS(hl_threshold_options_set(&request.thresholds, &request.given, &usage));
    HL_PASS(hl_diagnosis_list_check(request.fail_on, &usage));
    if (request.attempt)
        return try_mitigations(&request, &usage);
    if ((request.gradient_model != NULL) != (request.gradient_texts.count > 0))
        return hl_options_refuse(&usage, "--model and --text: gradients need both");
    if (hl_gate_options_given(&request.gates))
        return hl_options_refuse(&usage, "--gates and --off need --try, which runs a model");
    if (request.paths.count < 1 || request.paths.count > 2)
        return hl_options_refuse(&usage, "give one profile, or two to compare with BEFORE; got %d",
                                 request.paths.count);
    return diagnose(&request);
}
