/* head_marks.c - heads by name and by numbers, as marks. */
#include "render/head_marks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/grid.h"
#include "base/memory.h"
#include "base/status.h"

/* ---------------------------------------------------------------------------- lists */

/* The digits at *at; -1 if there are none, or too many. */
static int64_t read_index(const char **at)
{
    int64_t value = -1;

    while (**at >= '0' && **at <= '9' && value < HL_PROFILE_MAX_LAYERS + HL_PROFILE_MAX_HEADS) {
        value = (value < 0 ? 0 : value * 10) + (**at - '0');
        (*at)++;
    }
    return value;
}

/* "L5H1" or "L5"; moves *at behind it.  head -1: all of the layer. */
static bool read_head(const char **at, int64_t *layer, int64_t *head)
{
    *head = -1;
    if (**at != 'L' && **at != 'l')
        return false;
    (*at)++;
    *layer = read_index(at);
    if (**at == 'H' || **at == 'h') {
        (*at)++;
        *head = read_index(at);
        if (*head < 0)
            return false;
    }
    return *layer >= 0 && (**at == ',' || **at == '\0');
}

typedef void (*mark_head)(hl_head_marks *marks, int64_t place);

static hl_status mark_list(hl_head_marks *marks, const hl_profile *profile, const char *list,
                           mark_head mark)
{
    int64_t n_heads = hl_profile_n_heads(profile);

    for (const char *at = list, *word = at; *at != '\0'; word = at) {
        int64_t layer = 0, head = 0;
        bool    good = read_head(&at, &layer, &head);
        if (!good || layer >= hl_profile_n_layers(profile) ||
            head >= hl_profile_heads_of(profile, layer))
            return hl_fail(HL_BAD_ARGUMENT,
                           "'%.*s' is no head: wanted L0H0 to L%lldH%lld, or L0 for a layer",
                           (int)strcspn(word, ","), word,
                           (long long)hl_profile_n_layers(profile) - 1, (long long)n_heads - 1);
        for (int64_t h = 0; h < hl_profile_heads_of(profile, layer); h++) {
            if (head < 0 || h == head)
                mark(marks, layer * n_heads + h);
        }
        at += *at == ',';
    }
    return HL_OK;
}

static void mark_pruned(hl_head_marks *marks, int64_t place)
{
    marks->n_pruned += !marks->pruned[place];
    marks->pruned[place] = true;
}

static void mark_candidate(hl_head_marks *marks, int64_t place)
{
    if (marks->ranks[place] == 0)
        marks->ranks[place] = ++marks->n_candidates;
}

/* ----------------------------------------------------------------------- by numbers */

/* A head that writes nothing has a gate of 0, or might as well. */
static void mark_silent(hl_head_marks *marks, const hl_profile *profile)
{
    HL_EACH_HEAD(profile, layer, head)
    {
        if (hl_profile_output_norm(profile, layer, head) == 0.0)
            mark_pruned(marks, layer * hl_profile_n_heads(profile) + head);
    }
}

/* How soon each head would go, the higher the sooner: the lowest output norms first, or where the
 * options say so the highest entropies.  out (grid), NaN where there is no head. */
static hl_status order_heads(double **out, const hl_figure *figure)
{
    const hl_profile *profile = figure->profile;
    hl_status         status  = HL_OK;
    bool              any     = false;

    if (figure->options.candidates_by_entropy)
        return hl_grid_means(out, profile, hl_figure_quantity(figure));
    HL_NEED(hl_grid_means(out, profile, HL_Q_ENTROPY));
    HL_EACH_HEAD(profile, layer, head)
    {
        double norm = hl_profile_output_norm(profile, layer, head);

        (*out)[layer * hl_profile_n_heads(profile) + head] = -norm;
        any                                                = any || !isnan(norm);
    }
    if (!any)
        status = hl_fail(HL_BAD_INPUT, "candidates go by output norm, which the profile does not "
                                       "hold: measure again, name the heads, or take them by "
                                       "entropy");
    return status;
}

/* The first of them among heads that are still there; the first of equal ones. */
static hl_status mark_first(hl_head_marks *marks, const hl_figure *figure)
{
    hl_status status = HL_OK;
    double   *values = NULL;

    HL_TRY(order_heads(&values, figure));
    for (int64_t rank = 0; rank < figure->options.n_candidates; rank++) {
        int64_t best = -1;
        for (int64_t i = 0; i < hl_grid_size(figure->profile); i++) {
            if (!isnan(values[i]) && !marks->pruned[i] && marks->ranks[i] == 0 &&
                (best < 0 || values[i] > values[best]))
                best = i;
        }
        if (best < 0)
            break;
        mark_candidate(marks, best);
    }

done:
    hl_free(values);
    return status;
}

hl_status hl_head_marks_read(hl_head_marks *out, const hl_figure *figure)
{
    const hl_draw_options *options = &figure->options;
    size_t                 size    = (size_t)hl_grid_size(figure->profile);

    HL_NEED(HL_ALLOC_ZEROED(&out->pruned, size));
    HL_NEED(HL_ALLOC_ZEROED(&out->ranks, size));
    mark_silent(out, figure->profile);
    if (options->pruned != NULL)
        HL_NEED(mark_list(out, figure->profile, options->pruned, mark_pruned));
    if (options->candidates != NULL)
        HL_NEED(mark_list(out, figure->profile, options->candidates, mark_candidate));
    else if (options->n_candidates > 0)
        HL_NEED(mark_first(out, figure));
    return HL_OK;
}

void hl_head_marks_free(hl_head_marks *marks)
{
    hl_free(marks->pruned);
    hl_free(marks->ranks);
    *marks = (hl_head_marks){ 0 };
}
