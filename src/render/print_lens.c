/* print_lens.c - the lens in a terminal.
 *
 *           at        the       sea
 *      2    the       sea       ,
 *      1    the       same      was
 *      0    the       same      .
 *
 * With colours, the entropy is behind the token; without, a figure follows it.  What does not
 * fit beside each other goes on below. */
#include <math.h>
#include <stdio.h>

#include "base/memory.h"
#include "base/status.h"
#include "render/output.h"
#include "render/terminal.h"

enum { LAYER = 5, CELL = 10, FIGURE = 5, LEAST_WIDTH = 40, USUAL_WIDTH = 80 };

typedef struct lens_print {
    hl_output           output;
    const hl_lens_view *view;
    hl_depth            depth;
    double              top; /* of entropies */
} lens_print;

/* Columns that a token takes: its name, the figure, and a space in front. */
static int cell_width(hl_depth depth)
{
    return 1 + CELL + (depth == HL_DEPTH_NONE ? FIGURE : 0);
}

static void put_guess(lens_print *p, int64_t place)
{
    const hl_view_token *guess   = &p->view->guesses[place];
    double               entropy = (double)p->view->entropy[place];
    char                 escape[HL_ESCAPE_BYTES];

    hl_output_print(&p->output, "%s", guess->is_marked ? ">" : " ");
    if (!isnan(entropy))
        hl_output_print(&p->output, "%s",
                        hl_terminal_cell(escape, p->depth, HL_MAP_DIFFERENCE, entropy / p->top));
    hl_terminal_put(&p->output, guess->text, CELL, HL_ALIGN_LEFT);
    hl_output_print(&p->output, "%s", hl_terminal_end(p->depth));
    if (p->depth == HL_DEPTH_NONE && isnan(entropy))
        hl_output_print(&p->output, "%*s", FIGURE, "-");
    else if (p->depth == HL_DEPTH_NONE)
        hl_output_print(&p->output, "%*.1f", FIGURE, entropy);
}

static void put_panel(lens_print *p, int64_t first, int64_t n)
{
    hl_output_print(&p->output, "\n%*s", LAYER, "");
    for (int64_t i = first; i < first + n; i++) {
        hl_output_print(&p->output, "%s", p->view->tokens[i].is_marked ? "*" : " ");
        hl_terminal_put(&p->output, p->view->tokens[i].text, cell_width(p->depth) - 1,
                        HL_ALIGN_LEFT);
    }
    for (int64_t row = p->view->n_layers; row >= 0; row--) {
        char label[24] = "emb";

        if (row > 0)
            snprintf(label, sizeof label, "%lld", (long long)(row - 1));
        hl_output_print(&p->output, "\n%*s ", LAYER - 1, label);
        for (int64_t i = first; i < first + n; i++)
            put_guess(p, row * p->view->n_tokens + i);
    }
    hl_output_print(&p->output, "\n");
}

static void put_legend(lens_print *p)
{
    hl_output_print(
        &p->output,
        "\n"
        "Above: tokens that were read. Below: layers, up from the embedding (emb), with\n"
        "the most likely next token after each; > is the one that does follow.\n");
    if (p->depth == HL_DEPTH_NONE) {
        hl_output_print(&p->output, "Figures: entropy over the vocabulary, nats.\n");
        return;
    }
    hl_output_print(&p->output, "Entropy 0 ");
    hl_terminal_ramp(&p->output, p->depth, HL_MAP_DIFFERENCE, 16);
    hl_output_print(&p->output, " %.1f nats\n", p->top);
}

hl_status hl_print_lens(char **out, const hl_lens_view *view, const hl_print_options *print)
{
    hl_status  status = HL_OK;
    int        width  = print != NULL && print->width > 0 ? print->width : USUAL_WIDTH;
    lens_print p      = { .view  = view,
                          .depth = print != NULL ? print->depth : HL_DEPTH_NONE,
                          .top   = log((double)(view->d_vocab > 2 ? view->d_vocab : 2)) };
    int64_t n_across  = ((width > LEAST_WIDTH ? width : LEAST_WIDTH) - LAYER) / cell_width(p.depth);

    *out = NULL;
    hl_output_print(&p.output, "%s, %lld layers, tokens %lld to %lld of %lld\n", view->family,
                    (long long)view->n_layers, (long long)view->first,
                    (long long)(view->first + view->n_tokens - 1), (long long)view->n_prompt);
    for (int64_t first = 0; first < view->n_tokens; first += n_across) {
        int64_t left = view->n_tokens - first;
        put_panel(&p, first, left < n_across ? left : n_across);
    }
    put_legend(&p);
    hl_output_add(&p.output, "", 1);
    HL_TRY(p.output.status);
    *out           = p.output.bytes;
    p.output.bytes = NULL;

done:
    hl_output_free(&p.output);
    return status;
}
