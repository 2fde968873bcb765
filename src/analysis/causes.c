/* causes.c - what may be behind an alarm: hypotheses, each with what the profiles say for and against it
 * and what would tell it from the others.
 *
 * The causes are those of the literature on each anomaly.  A profile rarely proves one; what it
 * can show (losses, which heads, since when) is said, and the rest is a command to run.  Causes whose
 * evidence comes later, from a second text, keep their place in the list until it does. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/diagnose.h"
#include "analysis/grid.h"
#include "analysis/numbers.h"
#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"

/* The evidence for and against one hypothesis. */
typedef struct weighing {
    const hl_examination *e;
    const hl_diagnosis   *found;
    hl_text               supports;
    hl_text               against;
} weighing;

/* -------------------------------------------------------------- the evidence */

static double loss_of(const hl_profile *profile)
{
    return profile != NULL ? hl_profile_nll(profile).mean : (double)NAN;
}

/* Has the loss risen or fallen since the earlier profile of the same text? */
static void weigh_loss_rise(weighing *w)
{
    if (w->e->before == NULL || !hl_same_text(w->e->profile, w->e->before))
        return;
    double rise = loss_of(w->e->profile) - loss_of(w->e->before);
    if (rise > 0.0)
        hl_text_addf(&w->supports, "The loss rose by %.3f nats since the earlier profile.", rise);
    if (rise <= 0.0)
        hl_text_addf(&w->against, "The loss fell by %.3f nats since the earlier profile.", -rise);
}

/* Computes the share of the found heads that rest on the first, the previous or their own token. */
static void weigh_positional(weighing *w)
{
    int64_t n = 0;

    for (int64_t i = 0; i < w->found->n_heads; i++) {
        const hl_shown_by *at = &w->found->heads[i];
        n += hl_profile_mean(w->e->profile, at->layer, at->head, HL_Q_FIRST) >
                 hl_limit(w->e, HL_T_SINK_MASS) ||
             hl_profile_mean(w->e->profile, at->layer, at->head, HL_Q_SELF) >= 0.4 ||
             hl_profile_mean(w->e->profile, at->layer, at->head, HL_Q_PREVIOUS) >= 0.4;
    }
    hl_text_addf(2 * n > w->found->n_heads ? &w->supports : &w->against,
                 "%lld of the %lld heads look at the first, the previous or their own token.",
                 (long long)n, (long long)w->found->n_heads);
}

/* With random weights attention is almost uniform in all layers. */
static void weigh_untrained(weighing *w)
{
    HL_FREED double *means  = NULL;
    double           lowest = NAN, highest = NAN;

    if (hl_grid_means(&means, w->e->profile, HL_Q_NORMALIZED) != HL_OK)
        return;
    for (int64_t i = 0; i < hl_grid_size(w->e->profile); i++) {
        lowest  = fmin(lowest, means[i]); /* fmin and fmax ignore NaN */
        highest = fmax(highest, means[i]);
    }
    if (isnan(lowest))
        return;
    hl_text_addf(lowest > 0.95 ? &w->supports : &w->against,
                 "Heads have normalized entropies from %.3f to %.3f; random weights give all of "
                 "them about 1.",
                 lowest, highest);
    if (!isnan(loss_of(w->e->profile)))
        hl_text_addf(&w->against,
                     " The loss is %.3f nats: compare it with the logarithm of the "
                     "vocabulary's size.",
                     loss_of(w->e->profile));
}

static void weigh_domain(weighing *w)
{
    double here  = loss_of(w->e->profile);
    double there = loss_of(w->e->before);

    if (w->e->before == NULL || !hl_same_setting(w->e->profile, w->e->before, "model") ||
        isnan(here) || isnan(there))
        return;
    hl_text_addf(here > there + 0.5 ? &w->supports : &w->against,
                 "On the other text the same model has a loss of %.3f nats, here %.3f.", there,
                 here);
}

/* Do deep blocks change the residual stream less? */
static void weigh_depth(weighing *w)
{
    int64_t n     = hl_profile_n_layers(w->e->profile);
    double  early = 0.0, late = 0.0;

    for (int64_t layer = 0; layer < n / 2; layer++) {
        early += hl_profile_block_influence(w->e->profile, layer);
        late += hl_profile_block_influence(w->e->profile, n - 1 - layer);
    }
    if (n < 2 || isnan(early) || isnan(late))
        return;
    early /= (double)(n / 2);
    late /= (double)(n / 2);
    hl_text_addf(late < 0.5 * early ? &w->supports : &w->against,
                 "Mean block influence of the first half %.3f, of the second half %.3f.", early,
                 late);
}

/* Is the damage confined to a few heads? */
static void weigh_few(weighing *w)
{
    hl_text_addf(10 * w->found->n_heads <= w->e->n_counted + w->e->n_broken ? &w->supports
                                                                            : &w->against,
                 "%lld of %lld heads are concerned.", (long long)w->found->n_heads,
                 (long long)(w->e->n_counted + w->e->n_broken));
}

static void weigh_many(weighing *w)
{
    hl_text_addf(2 * w->found->n_heads > w->e->n_counted + w->e->n_broken ? &w->supports
                                                                          : &w->against,
                 "%lld of %lld heads are concerned.", (long long)w->found->n_heads,
                 (long long)(w->e->n_counted + w->e->n_broken));
}

/* A head that writes nothing at all has zeroed weights. */
static void weigh_zeroed(weighing *w)
{
    int64_t n = 0;

    for (int64_t i = 0; i < w->found->n_heads; i++)
        n += w->found->heads[i].value == 0.0;
    hl_text_addf(n > 0 ? &w->supports : &w->against, "%lld of the %lld heads write exactly zero.",
                 (long long)n, (long long)w->found->n_heads);
}

/* Do the weights have fewer bits than those of the earlier profile? */
static void weigh_dtype(weighing *w)
{
    const char *now    = hl_profile_setting(w->e->profile, "dtype");
    const char *before = w->e->before != NULL ? hl_profile_setting(w->e->before, "dtype") : NULL;

    if (now == NULL || before == NULL)
        return;
    if (strcmp(now, before) != 0)
        hl_text_addf(&w->supports, "Weights are stored as %s, before as %s.", now, before);
    else
        hl_text_addf(&w->against, "Weights are stored as %s in both.", now);
}

static void weigh_overflow(weighing *w)
{
    const char *dtype = hl_profile_setting(w->e->profile, "dtype");

    if (dtype != NULL)
        hl_text_addf(strcmp(dtype, "F16") == 0 ? &w->supports : &w->against,
                     "Weights are stored as %s.", dtype);
}

static void weigh_short(weighing *w)
{
    const char *context = hl_profile_setting(w->e->profile, "context");
    bool        is_long = context != NULL && strlen(context) >= 3;

    if (context != NULL)
        hl_text_addf(is_long ? &w->against : &w->supports, "Windows have %s tokens.", context);
}

/* The finding has already counted how often the text repeats itself. */
static void weigh_loop(weighing *w)
{
    bool loops = strstr(w->found->finding, "repeats") != NULL;

    hl_text_addf(loops ? &w->supports : &w->against,
                 loops ? "The text repeats itself, as the finding says."
                       : "The text does not end in a loop of up to 64 tokens.");
}

static void weigh_still(weighing *w)
{
    bool loops = strstr(w->found->finding, "repeats") != NULL;

    hl_text_addf(loops ? &w->against : &w->supports,
                 loops ? "A repeated text alone makes attention repeat."
                       : "Attention does not change while the text does.");
}

/* ----------------------------------------------------------------- the list */

static const struct {
    const char *check;
    const char *name;
    void (*weigh)(weighing *w); /* NULL if profiles hold no evidence on this cause */
    const char *command;
} causes[] = {
    { "dead-or-broken", "damaged file", weigh_few,
      "Get the file again, compare the checksums, and run headlight verify." },
    { "dead-or-broken", "overflow of 16-bit weights or activations", weigh_overflow,
      "Measure the same model with f32 weights (headlight measure)." },
    { "dead-or-broken", "training that diverged", weigh_many,
      "Measure the earlier checkpoints (headlight watch), and find the first broken one." },

    { "entropy-collapse", HL_CAUSE_OVERFITTING, NULL,
      "Measure the training text with headlight measure --nll, and give that profile to headlight "
      "diagnose with --training: a gap of losses tells." },
    { "entropy-collapse", "reward misalignment", NULL,
      "Compare with the model before reinforcement learning (headlight compare), and the distinct "
      "n-grams of several generated texts (headlight generate --trace, headlight show)." },
    { "entropy-collapse", "learning rate too high", weigh_loss_rise,
      "Measure the checkpoints around the fall with headlight watch --nll: a rising loss tells." },
    { "entropy-collapse", "sharp by design: sinks, positional heads, an entropy penalty",
      weigh_positional, "Disable the heads (headlight eval --off) and compare the losses." },

    { "entropic-overload", "untrained weights", weigh_untrained,
      "Compare with a profile of random weights of the same shapes (headlight diagnose with two "
      "profiles)." },
    { "entropic-overload", HL_CAUSE_VANISHING, weigh_depth,
      "Compare the gradients of the heads layer by layer (headlight rank --by gradient)." },
    { "entropic-overload", "text outside of the model's domain", weigh_domain,
      "Measure a text of the model's domain with --nll, and give headlight diagnose both "
      "profiles." },
    { "entropic-overload", "position of the norms (post-norm)", NULL,
      "Read the architecture with headlight info." },

    { "attention-locking", "a text that repeats itself", weigh_loop,
      "Generate with another seed or a sampling temperature (headlight generate --temperature)." },
    { "attention-locking", "context drift: the cache has become a sink", weigh_still,
      "Generate with --window and --window-sink, which forgets old keys." },
    { "attention-locking", "RoPE beyond the length it was trained for", NULL,
      "Generate with --rope-factor 2, or with a shorter prompt." },

    { "flat-profile", "untrained weights", weigh_untrained,
      "Compare with a profile of random weights of the same shapes." },
    { "flat-profile", "deep layers that learned little (curse of depth)", weigh_depth,
      "Prune the deep layers' heads and see the loss (headlight sweep)." },
    { "flat-profile", "windows too short to distinguish layers", weigh_short,
      "Measure with a longer --context." },

    { "head-redundancy", "untrained weights", weigh_untrained,
      "Compare with a profile of random weights of the same shapes." },
    { "head-redundancy", "more heads than the task needs", NULL,
      "Remove the weaker heads and see the loss (headlight sweep)." },
    { "head-redundancy", HL_CAUSE_VANISHING, weigh_depth,
      "Compare the gradients of the heads layer by layer (headlight rank --by gradient)." },

    { "inactive-heads", "zeroed or pruned weights", weigh_zeroed,
      "List zeroed heads with headlight info." },
    { "inactive-heads", "heads that training left unused", weigh_few,
      "Disable the heads (headlight eval --off) and compare the losses." },

    { "head-drift", "one damaged or replaced head", weigh_few,
      "Put the earlier weights of these heads back, and measure again." },
    { "head-drift", "quantization", weigh_dtype,
      "Quantize with more bits (headlight prune --count 0 --as gguf --type q8_0), and compare." },
    { "head-drift", "training that became unstable", weigh_many,
      "Measure the checkpoints between the two with headlight watch --nll." },
};
enum { N_CAUSES = sizeof causes / sizeof *causes };

/* ------------------------------------------------------------------- adding */

static hl_status weigh(hl_cause *out, size_t which, const hl_diagnosis *found,
                       const hl_examination *frame)
{
    weighing w = { .e = frame, .found = found };

    out->name = causes[which].name;
    if (causes[which].weigh != NULL)
        causes[which].weigh(&w);
    /* Both texts are finished even after an error, because finishing releases memory. */
    hl_status supports = hl_text_finish(&out->supports, &w.supports);
    hl_status against  = hl_text_finish(&out->against, &w.against);
    HL_NEED(supports);
    HL_NEED(against);
    return hl_strdup(&out->command, causes[which].command);
}

hl_status hl_causes_add(hl_diagnosis *result, const hl_examination *frame)
{
    if (result->verdict != HL_VERDICT_FOUND || result->kind != HL_CHECK_ALARM)
        return HL_OK;
    for (size_t i = 0; i < N_CAUSES; i++) {
        if (strcmp(causes[i].check, result->name) != 0)
            continue;
        HL_NEED(HL_GROW_ONE(&result->causes, result->n_causes));
        hl_cause *cause = &result->causes[result->n_causes++];
        *cause          = (hl_cause){ 0 };
        HL_NEED(weigh(cause, i, result, frame));
    }
    return HL_OK;
}

void hl_causes_release(hl_diagnosis *result)
{
    for (int64_t i = 0; i < result->n_causes; i++) {
        hl_free(result->causes[i].supports);
        hl_free(result->causes[i].against);
        hl_free(result->causes[i].command);
    }
    hl_free(result->causes);
}

/* -------------------------------------------------------------- more evidence */

/* Adds a sentence for or against to all causes of this name. */
static hl_status add_evidence(hl_diagnoses *found, const char *name, bool supports,
                              const char *sentence)
{
    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        for (int64_t j = 0; j < found->items[i].n_causes; j++) {
            hl_cause *cause = &found->items[i].causes[j];
            char    **side  = supports ? &cause->supports : &cause->against;
            hl_text   text  = { 0 };

            if (strcmp(cause->name, name) != 0)
                continue;
            hl_text_addf(&text, "%s%s%s", *side, (*side)[0] != '\0' ? " " : "", sentence);
            hl_free(*side);
            *side = NULL;
            HL_NEED(hl_text_finish(side, &text));
        }
    }
    return HL_OK;
}

hl_status hl_diagnose_gradients(hl_diagnoses *found, const char *of, const double *gradients,
                                int64_t n_layers, int64_t n_heads)
{
    const double vanished = 0.01; /* relative to the largest layer mean */
    double       lowest = NAN, highest = NAN;
    int64_t      where = -1;
    char         sentence[200];

    for (int64_t layer = 0; layer < n_layers; layer++) {
        double mean = hl_mean(gradients + layer * n_heads, n_heads);

        highest = fmax(highest, mean); /* fmax ignores NaN */
        if (mean < lowest || (isnan(lowest) && !isnan(mean))) {
            lowest = mean;
            where  = layer;
        }
    }
    if (where < 0)
        return hl_fail(HL_BAD_ARGUMENT, "the gradients of %lld layers are NaN or infinite",
                       (long long)n_layers);
    snprintf(
        sentence, sizeof sentence,
        "Gradient norms of the heads' %s, mean of a layer, range from %.2g (layer %lld) to %.2g.",
        of, lowest, (long long)where, highest);
    return add_evidence(found, HL_CAUSE_VANISHING, lowest < vanished * highest, sentence);
}

hl_status hl_diagnose_training(hl_diagnoses *found, const hl_profile *profile,
                               const hl_profile *training)
{
    const double matters = 0.2; /* nats per token */
    double       gap     = loss_of(profile) - loss_of(training);
    char         sentence[160];

    if (!hl_same_setting(profile, training, "model"))
        return hl_fail(
            HL_BAD_INPUT,
            "the training profile is of another model: its hash is %.40s, wanted %.40s",
            hl_profile_setting(training, "model") != NULL ? hl_profile_setting(training, "model")
                                                          : "not known",
            hl_profile_setting(profile, "model") != NULL ? hl_profile_setting(profile, "model")
                                                         : "not known");
    if (isnan(gap))
        return hl_fail(HL_BAD_INPUT, "one of the two profiles has no loss: measure with --nll");
    snprintf(sentence, sizeof sentence,
             "The loss is %.3f nats on the training text and %.3f here, a gap of %.3f.",
             loss_of(training), loss_of(profile), gap);
    return add_evidence(found, HL_CAUSE_OVERFITTING, gap >= matters, sentence);
}
