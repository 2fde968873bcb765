/* report_diagnoses.c - diagnoses as a report's data. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "render/report.h"

/* "entropy-collapse" to "Entropy collapse"; returns `out`. */
static const char *title_of(char out[64], const char *name)
{
    snprintf(out, 64, "%s", name);
    for (char *at = out; *at != '\0'; at++)
        *at = *at == '-' ? ' ' : *at;
    out[0] = (char)toupper((unsigned char)out[0]);
    return out;
}

/* What is present is serious if the model suffers from it; the rest tells what can be taken out. */
static const char *severity_of(const hl_diagnosis *item)
{
    static const char *const serious[] = { "entropy-collapse", "entropic-overload",
                                           "attention-locking", "dead-or-broken" };

    if (item->verdict != HL_VERDICT_FOUND)
        return item->verdict == HL_VERDICT_NOT_FOUND ? "none" : "unknown";
    for (size_t i = 0; i < sizeof serious / sizeof *serious; i++) {
        if (strcmp(item->name, serious[i]) == 0)
            return "serious";
    }
    return "notice";
}

static void set_heads(hl_report_out *out, json_t *object, const hl_diagnosis *item,
                      int64_t n_layers)
{
    json_t *heads  = hl_report_list(out);
    json_t *layers = hl_report_list(out);

    for (int64_t i = 0; i < item->n_heads; i++)
        hl_report_append(out, heads,
                         json_pack("{s:I, s:I, s:o}", "layer", (json_int_t)item->heads[i].layer,
                                   "head", (json_int_t)item->heads[i].head, "value",
                                   hl_report_number(item->heads[i].value)));
    for (int64_t layer = 0; layer < n_layers; layer++) {
        bool has = false;

        for (int64_t i = 0; i < item->n_heads; i++)
            has = has || item->heads[i].layer == layer;
        if (has)
            hl_report_append(out, layers, json_integer(layer));
    }
    hl_report_set(out, object, "heads", heads);
    hl_report_set(out, object, "layers", layers);
}

static json_t *diagnosis_json(hl_report_out *out, const hl_diagnosis *item, int64_t n_layers)
{
    json_t *object = hl_report_object(out);
    char    title[64];

    hl_report_set(out, object, "name", hl_report_text(item->name));
    hl_report_set(out, object, "title", hl_report_text(title_of(title, item->name)));
    /* The words that pages of earlier reports know; `fired` and `ran` say the same. */
    static const char *const words[] = { "absent", "present", "not measured" };
    hl_report_set(out, object, "verdict", hl_report_text(words[item->verdict]));
    hl_report_set(out, object, "fired", json_boolean(item->verdict == HL_VERDICT_FOUND));
    hl_report_set(out, object, "ran", json_boolean(item->verdict != HL_VERDICT_NOT_RUN));
    hl_report_set(out, object, "below", json_boolean(item->below));
    hl_report_set(out, object, "severity", hl_report_text(severity_of(item)));
    hl_report_set(out, object, "finding", hl_report_text(item->finding));
    hl_report_set(out, object, "rule", hl_report_text(item->rule));
    hl_report_set(out, object, "value", hl_report_number(item->value));
    hl_report_set(out, object, "threshold", hl_report_number(item->threshold));
    hl_report_set(out, object, "evidence", hl_report_text(item->evidence));
    hl_report_set(out, object, "source", hl_report_text(item->source));
    hl_report_set(out, object, "counter", hl_report_text(item->against));
    hl_report_set(out, object, "mitigation", hl_report_text(item->mitigation));
    hl_report_set(out, object, "measure", hl_report_text(item->measure));
    set_heads(out, object, item, n_layers);
    return object;
}

json_t *hl_report_diagnoses_json(hl_report_out *out, const hl_profile *profile,
                                 const hl_trace *trace)
{
    hl_diagnoses *found = NULL;
    json_t       *list  = hl_report_list(out);

    if (hl_report_check(out, hl_diagnose(&found, profile, NULL, NULL)) && trace != NULL)
        hl_report_check(out, hl_diagnose_trace(found, trace, NULL));
    for (int i = 0; out->status == HL_OK && i < HL_N_DIAGNOSES; i++)
        hl_report_append(out, list,
                         diagnosis_json(out, &found->items[i], hl_profile_n_layers(profile)));
    hl_diagnoses_free(found);
    return list;
}
