/* summary.c - what was found in a profile, in three sentences: layers, heads, checks.
 *
 * A sentence is a list of parts, and a part that claims something names its evidence: a head, a range
 * of layers, a check.  The page makes links of them, a terminal prints their texts one after the
 * other.  A sentence says no more than the numbers allow: layers that differ by less than their
 * uncertainty are called alike, and an uncertain type of a head is called uncertain. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "analysis/diagnose.h"
#include "analysis/grid.h"
#include "analysis/head_kinds.h"
#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"

enum { SHOWS_BYTES = sizeof((hl_summary_part *)0)->shows };

/* ------------------------------------------------------------------------ parts */

typedef struct writing {
    hl_summary       *summary;
    const hl_profile *profile;
    int               sentence;
    hl_status         status; /* the first failure */
} writing;

/* Adds a part whose evidence is `shows`; "": it claims nothing by itself. */
__attribute__((format(printf, 3, 4))) static void say(writing *w, const char *shows,
                                                      const char *format, ...)
{
    char    text[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (w->status == HL_OK)
        w->status = HL_GROW_ONE(&w->summary->parts, w->summary->n_parts);
    if (w->status != HL_OK)
        return;
    hl_summary_part *part = &w->summary->parts[w->summary->n_parts];
    *part                 = (hl_summary_part){ .sentence = w->sentence };
    snprintf(part->shows, sizeof part->shows, "%s", shows);
    w->status = hl_strdup(&part->text, text);
    w->summary->n_parts += w->status == HL_OK;
}

/* ----------------------------------------------------------------------- layers */

/* The layers of which every one is lower than all others, as one range that contains the lowest.
 * It takes at most half of the layers, and none that is further than a quarter of the range from the
 * lowest. */
static void find_focused(int64_t *first, int64_t *last, const hl_layer_profile *layers)
{
    const double *means = layers->means;
    double        limit = means[layers->shape.minimum] + 0.25 * layers->shape.range;
    int64_t       begin = layers->shape.minimum, end = begin, measured = 0;

    *first = *last = begin;
    for (int64_t i = 0; i < layers->n_layers; i++)
        measured += !isnan(means[i]);
    for (int64_t taken = 1; 2 * (taken + 1) <= measured; taken++) {
        double below     = begin > 0 ? means[begin - 1] : NAN;
        double above     = end + 1 < layers->n_layers ? means[end + 1] : NAN;
        bool   goes_down = !isnan(below) && !(below > above);
        double next      = goes_down ? below : above;

        if (!(next <= limit))
            return;
        begin -= goes_down;
        end += !goes_down;
        /* The range counts only where no layer outside is as low as one inside. */
        double highest = means[begin], lowest = INFINITY;
        for (int64_t i = 0; i < layers->n_layers; i++) {
            if (i >= begin && i <= end)
                highest = fmax(highest, means[i]);
            else if (!isnan(means[i]))
                lowest = fmin(lowest, means[i]);
        }
        if (highest < lowest) {
            *first = begin;
            *last  = end;
        }
    }
}

static int64_t highest_layer(const hl_layer_profile *layers)
{
    int64_t best = layers->shape.minimum;

    for (int64_t i = 0; i < layers->n_layers; i++)
        best = layers->means[i] > layers->means[best] ? i : best;
    return best;
}

static void name_layers(char room[SHOWS_BYTES], const hl_profile *profile, int64_t first,
                        int64_t last)
{
    char begin[HL_HEAD_NAME_BYTES], end[HL_HEAD_NAME_BYTES];

    hl_profile_head_name(begin, profile, first, -1);
    hl_profile_head_name(end, profile, last, -1);
    snprintf(room, SHOWS_BYTES, "%.12s%s%.12s", begin, first == last ? "" : "-",
             first == last ? "" : end);
}

static void say_focused_layers(writing *w, const hl_layer_profile *layers, const char *what,
                               const char *unit)
{
    char    shows[SHOWS_BYTES], one[HL_HEAD_NAME_BYTES], other[HL_HEAD_NAME_BYTES];
    int64_t first, last, top = highest_layer(layers);
    double  low = layers->means[layers->shape.minimum], high = low;

    find_focused(&first, &last, layers);
    for (int64_t i = first; i <= last; i++)
        high = fmax(high, layers->means[i]);
    name_layers(shows, w->profile, first, last);
    if (first == last)
        say(w, shows, "Layer %s is the most focused", hl_layer_word(one, w->profile, first));
    else
        say(w, shows, "Layers %s\u2013%s are the most focused",
            hl_layer_word(one, w->profile, first), hl_layer_word(other, w->profile, last));
    say(w, "", ": %s %.2f", what, low);
    if (last > first)
        say(w, "", " to %.2f", high);
    say(w, "", "%s; the most diffuse is ", unit);
    name_layers(shows, w->profile, top, top);
    say(w, shows, "layer %s", hl_layer_word(one, w->profile, top));
    say(w, "", " with %.2f.", layers->means[top]);
}

static hl_status say_layers(writing *w, const hl_profile *profile)
{
    const char *what = "normalized entropy", *unit = "";
    double      flat = hl_threshold_of(NULL, HL_T_FLAT_ERRORS);
    char        all[SHOWS_BYTES];

    HL_CLOSED(hl_layer_profile_free) hl_layer_profile *layers = NULL;
    HL_CLOSED(hl_layer_profile_free) hl_layer_profile *nats   = NULL;

    HL_NEED(hl_layer_profile_new(&layers, profile, HL_Q_NORMALIZED, flat));
    HL_NEED(hl_layer_profile_new(&nats, profile, HL_Q_ENTROPY, flat));
    const hl_layer_profile *of = layers;
    if (layers->shape.minimum < 0) { /* no row sees enough keys for normalized entropies */
        of   = nats;
        what = "entropy";
        unit = " nats";
    }
    if (of->shape.minimum < 0) {
        say(w, "", "No row of attention was measured.");
        return HL_OK;
    }
    const hl_layer_shape *shape  = &of->shape;
    double                low    = of->means[shape->minimum];
    bool                  unsure = !isnan(shape->error) && shape->range < flat * shape->error;

    name_layers(all, w->profile, 0, of->n_layers - 1);
    if (of->n_layers == 1)
        say(w, all, "The only layer has a mean %s of %.2f%s.", what, low, unit);
    else if (shape->flat || unsure) {
        say(w, all, "All layers are about equally focused");
        say(w, "", ": %s %.2f to %.2f%s%s.", what, low, low + shape->range, unit,
            unsure ? ", which is within its uncertainty" : "");
    } else
        say_focused_layers(w, of, what, unit);
    return HL_OK;
}

/* ------------------------------------------------------------------------ heads */

/* The head of a type whose number is the highest. */
typedef struct best_head {
    int64_t      layer;
    int64_t      head;
    int64_t      n; /* heads of the type */
    hl_head_type type;
} best_head;

/* The best head of each type, and the most focused one, by the quantity; .layer -1: none. */
static void find_heads(best_head best[HL_N_HEAD_KINDS], best_head *focused,
                       const hl_profile *profile, hl_quantity quantity)
{
    double lowest = INFINITY;

    for (int kind = 0; kind < HL_N_HEAD_KINDS; kind++)
        best[kind] = (best_head){ .layer = -1 };
    *focused = (best_head){ .layer = -1 };
    HL_EACH_HEAD(profile, layer, head)
    {
        hl_head_type type  = hl_head_type_of(profile, layer, head);
        best_head   *of    = &best[type.kind];
        double       value = hl_profile_mean(profile, layer, head, quantity);

        if (of->layer < 0 || type.value > of->type.value)
            *of = (best_head){ layer, head, of->n, type };
        of->n++;
        if (value < lowest) { /* false for NaN */
            lowest   = value;
            *focused = (best_head){ layer, head, 0, type };
        }
    }
}

/* Returns the head whose action the sentence names: the clearest that copies, else the clearest that
 * looks back; NULL if there is none. */
static const best_head *find_deed(const best_head best[HL_N_HEAD_KINDS])
{
    for (int kind = HL_HEAD_INDUCTION; kind <= HL_HEAD_PREVIOUS; kind++) {
        if (best[kind].layer >= 0)
            return &best[kind];
    }
    return NULL;
}

/* Ends the sentence with what a head does; `name` "": the head was named before. */
static void say_deed(writing *w, const best_head *of, const char *name)
{
    bool        copies = of->type.kind == HL_HEAD_INDUCTION;
    const char *deed   = copies ? "copies" : "looks back";

    if (name[0] != '\0')
        say(w, name, "%s %s", name, deed);
    else
        say(w, "", "%s", deed);
    say(w, "", ": %s%.0f%% of its attention is on %s%s.",
        copies ? "on repeated random tokens, " : "", 100.0 * of->type.value,
        copies ? "what followed the last occurrence" : "the previous token",
        of->type.is_uncertain ? " (the type is uncertain)" : "");
}

/* Heads that rest on the first token are the most focused of all, but say little. */
static void say_heads(writing *w, const hl_profile *profile)
{
    best_head   best[HL_N_HEAD_KINDS], focused;
    const char *what     = "normalized entropy";
    hl_quantity quantity = HL_Q_NORMALIZED;
    char        name[HL_HEAD_NAME_BYTES], deed_name[HL_HEAD_NAME_BYTES];
    int64_t     n_heads = 0;

    find_heads(best, &focused, profile, quantity);
    if (focused.layer < 0) {
        quantity = HL_Q_ENTROPY;
        what     = "mean entropy in nats";
        find_heads(best, &focused, profile, quantity);
    }
    if (focused.layer < 0)
        return;
    for (int kind = 0; kind < HL_HEAD_UNKNOWN; kind++)
        n_heads += best[kind].n;
    const best_head *sink = &best[HL_HEAD_SINK], *deed = find_deed(best);
    bool             one = false; /* the deed is that of the head named first */
    w->sentence++;
    if (3 * sink->n >= n_heads) {
        hl_profile_head_name(name, w->profile, sink->layer, sink->head);
        say(w, "type sink", "%lld of %lld heads rest on the first token", (long long)sink->n,
            (long long)n_heads);
        say(w, "", ", most of all ");
        say(w, name, "%s", name);
        say(w, "", " with %.0f%%", 100.0 * sink->type.value);
    } else {
        one = deed != NULL && deed->layer == focused.layer && deed->head == focused.head;
        hl_profile_head_name(name, w->profile, focused.layer, focused.head);
        say(w, name, "%s is the most focused head", name);
        say(w, "", " (%s%s%s %.2f)", one ? "" : hl_head_kind_name(focused.type.kind),
            one ? "" : ", ", what, hl_profile_mean(profile, focused.layer, focused.head, quantity));
    }
    say(w, "", deed == NULL ? "." : one ? " and " : "; ");
    if (deed != NULL)
        say_deed(w, deed,
                 one ? "" : hl_profile_head_name(deed_name, w->profile, deed->layer, deed->head));
}

/* ----------------------------------------------------------------------- checks */

static void say_checks(writing *w, const hl_diagnoses *found)
{
    int n_found = 0, n_passed = 0, n_not_run = 0, n_said = 0;

    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        const hl_diagnosis *item = &found->items[i];

        if (item->kind != HL_CHECK_ALARM)
            continue;
        n_found += item->verdict == HL_VERDICT_FOUND;
        n_passed += item->verdict == HL_VERDICT_NOT_FOUND;
        n_not_run += item->verdict == HL_VERDICT_NOT_RUN;
    }
    w->sentence++;
    if (n_passed + n_found == 0) {
        say(w, "checks", "No check could be run");
        say(w, "", ".");
    } else if (n_found == 0) {
        say(w, "checks", "No check found a problem");
        say(w, "", ": %d passed, %d not run.", n_passed, n_not_run);
    } else {
        say(w, "checks", "%d check%s found a problem", n_found, n_found == 1 ? "" : "s");
        say(w, "", ": ");
        for (int i = 0; i < HL_N_DIAGNOSES; i++) {
            const hl_diagnosis *item = &found->items[i];

            if (item->kind != HL_CHECK_ALARM || item->verdict != HL_VERDICT_FOUND)
                continue;
            say(w, item->name, "%s", item->name);
            n_said++;
            say(w, "", n_said == n_found ? "; " : n_said + 1 == n_found ? " and " : ", ");
        }
        say(w, "", "%d passed, %d not run.", n_passed, n_not_run);
    }
}

/* ------------------------------------------------------------------- the summary */

hl_status hl_summary_new(hl_summary **out, const hl_profile *profile, const hl_diagnoses *found)
{
    HL_CLOSED(hl_summary_free) hl_summary     *summary = NULL;
    HL_CLOSED(hl_diagnoses_free) hl_diagnoses *own     = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&summary, 1));
    if (found == NULL)
        HL_NEED(hl_diagnose(&own, profile, NULL, NULL));
    writing w = { .summary = summary, .profile = profile };
    HL_NEED(say_layers(&w, profile));
    say_heads(&w, profile);
    say_checks(&w, found != NULL ? found : own);
    summary->n_sentences = w.sentence + 1;
    if (w.status == HL_OK) {
        *out    = summary;
        summary = NULL;
    }
    return w.status;
}

hl_status hl_summary_sentence(char **out, const hl_summary *summary, int64_t sentence)
{
    hl_text text = { 0 };

    for (int64_t i = 0; i < summary->n_parts; i++) {
        if (summary->parts[i].sentence == sentence)
            hl_text_addf(&text, "%s", summary->parts[i].text);
    }
    return hl_text_finish(out, &text);
}

void hl_summary_free(hl_summary *summary)
{
    if (summary == NULL)
        return;
    for (int64_t i = 0; i < summary->n_parts; i++)
        hl_free(summary->parts[i].text);
    hl_free(summary->parts);
    hl_free(summary);
}
