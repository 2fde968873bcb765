/* route_measure.c - measures every head on given texts: means and diagnoses.
 *
 * The measurement is that of `headlight measure`, on at most MAX_TOKENS tokens.  On request the
 * answer has all data of a report. */
#include "base/status.h"
#include "render/report_parts.h"
#include "serve/server.h"
#include "serve/texts.h"
#include "stats/profile.h"

#define MAX_TOKENS 32768

/* --------------------------------------------------------------------------- measuring */

static hl_status stop_if_gone(void *context, const hl_progress *progress)
{
    (void)progress;
    return hl_look_go_on(context);
}

static hl_status measure(hl_profile **out, hl_look *look, const json_t *input)
{
    const hl_server                                 *server = look->server;
    HL_SCOPED(hl_served_texts_close) hl_served_texts texts  = { 0 };
    hl_measure_options options = { .windows   = { .n_ctx      = hl_engine_n_ctx(server->engine),
                                                  .max_tokens = MAX_TOKENS },
                                   .n_threads = server->options.n_threads,
                                   .progress  = stop_if_gone,
                                   .context   = look };

    HL_NEED(hl_served_texts_open(&texts, server, input, look->exchange));
    return hl_measure(out, server->model, server->tokenizer, texts.corpus, &options);
}

/* ------------------------------------------------------------------------------- JSON */

static json_t *means_of(const hl_profile *profile, hl_quantity quantity)
{
    json_t *layers = json_array();

    for (int64_t layer = 0; layer < hl_profile_n_layers(profile); layer++) {
        json_t *heads = json_array();
        for (int64_t head = 0; head < hl_profile_n_heads(profile); head++)
            hl_json_add(&heads,
                        hl_json_number(hl_profile_moments(profile, layer, head, quantity).mean));
        hl_json_add(&layers, heads);
    }
    return layers;
}

static json_t *all_means(const hl_profile *profile)
{
    static const char *const names[HL_N_QUANTITIES] = { HL_EACH_QUANTITY(HL_QUANTITY_NAME) };
    json_t                  *means                  = json_object();

    for (int i = 0; i < HL_N_QUANTITIES; i++)
        hl_json_put(&means, names[i], means_of(profile, (hl_quantity)i));
    return means;
}

static json_t *diagnoses_of(const hl_profile *profile)
{
    hl_diagnoses *found = NULL;
    json_t       *list  = json_array();

    hl_status status = hl_diagnose(&found, profile, NULL, NULL);
    if (status == HL_NO_MEMORY)
        hl_json_add(&list, NULL);
    if (status != HL_OK)
        return list;
    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        const hl_diagnosis *item = &found->items[i];
        hl_json_add(&list,
                    json_pack("{s:s, s:s, s:s, s:o, s:o, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:o}",
                              "name", item->name, "kind",
                              item->kind == HL_CHECK_ALARM ? "alarm" : "observation", "verdict",
                              hl_verdict_name(item->verdict), "value", hl_json_number(item->value),
                              "threshold", hl_json_number(item->threshold), "unit", item->unit,
                              "evidence", item->evidence, "rule", item->rule, "finding",
                              item->finding, "against", item->against, "usual", item->usual,
                              "mitigation", item->mitigation, "heads", hl_report_heads(item)));
    }
    hl_diagnoses_free(found);
    return list;
}

static json_t *summary_of(const hl_server *server, const hl_profile *profile)
{
    int64_t n_tokens = hl_profile_n_tokens(profile);

    return json_pack(
        "{s:s, s:s, s:I, s:b, s:I, s:I, s:I, s:o, s:o}", "object", "headlight.profile", "model",
        server->model_name, "tokens", (json_int_t)n_tokens, "cut", n_tokens >= MAX_TOKENS,
        "sequences", (json_int_t)hl_profile_all_sequences(profile), "layers",
        (json_int_t)hl_profile_n_layers(profile), "heads", (json_int_t)hl_profile_n_heads(profile),
        "means", all_means(profile), "diagnoses", diagnoses_of(profile));
}

/* Adds the profile in the form of reports: with types, histograms and intervals. */
static hl_status add_report(json_t *answer, const hl_server *server, const hl_profile *profile)
{
    hl_report_out     out    = { 0 };
    hl_report_profile about  = { .name = server->model_name, .profile = profile };
    hl_report         report = { .profiles   = &about,
                                 .n_profiles = 1,
                                 .model      = hl_model_get_info(server->model) };
    json_t           *object = hl_report_profile_json(&out, &report, 0);

    if (out.status == HL_OK && json_object_set_new(answer, "report", object) != 0)
        return hl_fail(HL_NO_MEMORY, "out of memory for a report");
    if (out.status != HL_OK)
        json_decref(object);
    return out.status;
}

/* ------------------------------------------------------------------------------ the route */

static hl_status read_request(const json_t **input, bool *wants_report, hl_look *look)
{
    static const char *const known[] = { "model", "input", "report", NULL };

    HL_NEED(hl_look_check(look, known));
    const json_t *report = hl_look_member(look, "report");
    if (report != NULL && !json_is_boolean(report))
        return hl_fail(HL_BAD_INPUT, "report is %s, wanted true or false", hl_json_kind(report));
    *wants_report = json_is_true(report);
    *input        = hl_look_member(look, "input");
    if (*input == NULL)
        return hl_fail(HL_BAD_INPUT, "wanted an object with input, a text or an array of texts");
    return HL_OK;
}

hl_status hl_serve_measure(json_t **out, hl_look *look)
{
    const json_t                          *input   = NULL;
    bool                                   report  = false;
    HL_CLOSED(hl_profile_free) hl_profile *profile = NULL;
    HL_CLOSED(json_decref) json_t         *answer  = NULL;

    HL_NEED(read_request(&input, &report, look));
    HL_NEED(hl_look_turn(look));
    HL_NEED(measure(&profile, look, input));
    answer = summary_of(look->server, profile);
    if (report)
        HL_NEED(add_report(answer, look->server, profile));
    *out = hl_taken(&answer);
    return HL_OK;
}
