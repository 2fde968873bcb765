/* figure.c - the table of figures, the page around each, and shared parts: units, color bars,
 * labels. */
#include "render/figure.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "base/utf8.h"
#include "headlight/analysis.h"
#include "stats/profile.h"

/* ------------------------------------------------------------------------ the table */

static const struct {
    const char *name;
    const char *summary;
    const char *title;
    hl_status (*draw)(hl_figure *figure);
    bool is_normalized; /* in any unit */
} figures[] = {
    { "heatmap", "entropy of every head: layers across, heads up, dark is focused",
      "Attention entropy of every head", hl_figure_heatmap, false },
    { "layers", "entropy by layer, with 95% intervals and a dot for each head", "Entropy by layer",
      hl_figure_layers, false },
    { "variance", "how much the heads of a layer differ", "Variance between the heads of a layer",
      hl_figure_variance, false },
    { "positions", "entropy by position in the window", "Entropy by position", hl_figure_positions,
      false },
    { "histograms", "distribution of the entropies of rows, layer by layer",
      "Entropies of single rows, by layer", hl_figure_histograms, true },
};

enum { N_FIGURES = sizeof figures / sizeof *figures };

const char *hl_figure_name(size_t index)
{
    return index < N_FIGURES ? figures[index].name : NULL;
}

const char *hl_figure_summary(size_t index)
{
    return index < N_FIGURES ? figures[index].summary : NULL;
}

/* -------------------------------------------------------------------------- hl_draw */

static hl_status complete_options(hl_draw_options *out, const hl_draw_options *options)
{
    *out = options != NULL ? *options : (hl_draw_options){ 0 };
    if (out->width == 0.0)
        out->width = 480.0;
    if (out->dpi == 0.0)
        out->dpi = 144.0;
    HL_NEED(hl_check_number("width", out->width, 240.0, 2000.0));
    HL_NEED(hl_check_number("dpi", out->dpi, 24.0, 1200.0));
    if (out->scale == HL_SCALE_CLASSES && out->unit != HL_UNIT_NATS)
        return hl_fail(HL_BAD_ARGUMENT, "--scale classes needs --unit nats");
    return HL_OK;
}

hl_status hl_figure_open(hl_figure *out, hl_canvas *canvas, const char *title,
                         const hl_draw_options *options)
{
    *out = (hl_figure){ .canvas = canvas, .default_title = title };
    HL_NEED(complete_options(&out->options, options));
    out->theme = hl_theme_colors_of(out->options.theme);
    return HL_OK;
}

hl_status hl_figure_open_plain(hl_figure *out, hl_canvas *canvas, const char *title,
                               const char *kind, const hl_draw_options *options)
{
    const hl_draw_options *given = &out->options;

    HL_NEED(hl_figure_open(out, canvas, title, options));
    if (given->unit != HL_UNIT_NATS)
        return hl_fail(HL_BAD_ARGUMENT, "--unit: %s are in nats", kind);
    if (given->scale != HL_SCALE_CONTINUOUS)
        return hl_fail(HL_BAD_ARGUMENT, "--scale: %s have no classes", kind);
    if (given->pruned != NULL || given->candidates != NULL || given->n_candidates != 0 ||
        given->candidates_by_entropy)
        return hl_fail(HL_BAD_ARGUMENT, "--pruned, --candidates: %s have no marks of heads", kind);
    return HL_OK;
}

hl_status hl_figure_draw(hl_canvas *canvas, const hl_profile *profile, const char *name,
                         const hl_draw_options *options)
{
    hl_figure figure;

    for (size_t i = 0; i < N_FIGURES; i++) {
        if (strcmp(figures[i].name, name) != 0)
            continue;
        HL_NEED(hl_figure_open(&figure, canvas, figures[i].title, options));
        figure.profile = profile;
        figure.key     = figure.options.unit == HL_UNIT_NORMALIZED || figures[i].is_normalized
                             ? "normalized"
                             : "entropy";
        return figures[i].draw(&figure);
    }
    return hl_fail(HL_BAD_ARGUMENT, "no figure is called '%s'", name);
}

static hl_status format_of(hl_format *out, const char *path)
{
    static const char *const endings[] = { ".svg", ".png", ".pdf" };
    size_t                   n_bytes   = strlen(path);

    for (int i = 0; i < 3; i++) {
        if (n_bytes > 4 && strcmp(path + n_bytes - 4, endings[i]) == 0) {
            *out = (hl_format)i;
            return HL_OK;
        }
    }
    return hl_fail(HL_BAD_ARGUMENT, "%s: the name must end in .svg, .png or .pdf", path);
}

hl_status hl_figure_canvas(hl_canvas **out, const char *path, const hl_draw_options *options)
{
    hl_format       format   = HL_FORMAT_SVG;
    hl_draw_options complete = { 0 };

    *out = NULL;
    HL_NEED(format_of(&format, path));
    HL_NEED(complete_options(&complete, options));
    return hl_canvas_open(out, format, complete.dpi);
}

hl_status hl_draw(const hl_profile *profile, const char *figure, const char *path,
                  const hl_draw_options *options)
{
    HL_CLOSED(hl_canvas_close) hl_canvas *canvas = NULL;

    HL_NEED(hl_figure_canvas(&canvas, path, options));
    HL_NEED(hl_figure_draw(canvas, profile, figure, options));
    return hl_canvas_write(canvas, path);
}

/* ------------------------------------------------------------- page, title, caption */

#define MARGIN        16.0
#define TITLE_HEIGHT  24.0
#define CAPTION_ABOVE 12.0
#define CAPTION_LINE  10.5

enum { CAPTION_BYTES = 2048, MAX_CAPTION_LINES = 32 };

hl_text_style hl_figure_small(const hl_figure *figure, hl_anchor anchor, hl_stand stand)
{
    return (hl_text_style){ figure->theme->muted, HL_TEXT_SMALL, false, anchor, stand, 0.0 };
}

hl_text_style hl_figure_normal(const hl_figure *figure, hl_anchor anchor, hl_stand stand)
{
    return (hl_text_style){ figure->theme->text, HL_TEXT_NORMAL, false, anchor, stand, 0.0 };
}

hl_map hl_figure_blues(const hl_figure *figure)
{
    return figure->options.theme == HL_THEME_DARK ? HL_MAP_BLUES_DARK : HL_MAP_BLUES;
}

const char *hl_figure_more(const hl_figure *figure)
{
    return figure->options.theme == HL_THEME_DARK ? "lighter" : "darker";
}

hl_stroke hl_figure_axis_stroke(const hl_figure *figure)
{
    return (hl_stroke){ figure->theme->axis, 0.6, 0.0 };
}

double hl_figure_inner_width(const hl_figure *figure)
{
    return figure->options.width - 2.0 * MARGIN;
}

static const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

/* Describes the measurement of a profile. */
static void describe_profile(char *out, size_t n_bytes, const hl_profile *profile)
{
    const char *family  = hl_profile_setting(profile, "family");
    const char *context = hl_profile_setting(profile, "context");

    int64_t n_layers  = hl_profile_n_layers(profile);
    int64_t n_heads   = hl_profile_n_heads(profile);
    int64_t n_tokens  = hl_profile_n_tokens(profile);
    int64_t n_windows = hl_profile_all_sequences(profile);

    /* Non-breaking spaces keep n and its number together. */
    snprintf(out, n_bytes,
             "%s, %lld layer%s \u00d7 %lld head%s; context\u00a0%s; n\u00a0=\u00a0%lld token%s in "
             "%lld window%s.",
             family != NULL ? family : "model", (long long)n_layers, plural(n_layers),
             (long long)n_heads, plural(n_heads), context != NULL ? context : "unknown",
             (long long)n_tokens, plural(n_tokens), (long long)n_windows, plural(n_windows));
}

/* Returns the definition with this key in the table of analysis/definitions.c. */
static const hl_definition *definition_of(const char *key)
{
    for (size_t i = 0; hl_definition_at(i) != NULL; i++) {
        const hl_definition *entry = hl_definition_at(i);

        if (entry->key != NULL && strcmp(entry->key, key) == 0)
            return entry;
    }
    return NULL;
}

/* Writes the definition of what the figure shows as a sentence, or "". */
static void write_definition(char *out, size_t n_bytes, const hl_figure *figure)
{
    const hl_definition *entry = figure->key != NULL ? definition_of(figure->key) : NULL;

    out[0] = '\0';
    if (entry != NULL)
        snprintf(out, n_bytes, " %s: %s.%s", entry->title, entry->text,
                 figure->options.unit == HL_UNIT_BITS ? " One bit is 0.693 nats." : "");
}

/* Writes the caption: what is shown, its definition, the caller's text, then the profile's
 * description. */
static void write_caption(char *out, const hl_figure *figure, const char *what)
{
    const char *words = figure->options.caption != NULL ? figure->options.caption : "";
    bool        both  = what[0] != '\0' && words[0] != '\0';
    char        defined[512];

    write_definition(defined, sizeof defined, figure);
    int used = snprintf(out, CAPTION_BYTES - 1, "%s%s%s%s%s", what, defined, both ? " " : "", words,
                        words[0] != '\0' ? "." : "");

    if (figure->profile == NULL || used < 0 || used >= CAPTION_BYTES - 1)
        return;
    out[used] = ' ';
    describe_profile(out + used + 1, CAPTION_BYTES - (size_t)used - 1, figure->profile);
}

/* Cuts text into lines in place, at spaces; returns their number.  A word that is too long gets its
 * own line. */
static int wrap(char *lines[MAX_CAPTION_LINES], const hl_figure *figure, char *text,
                const hl_text_style *style)
{
    int   n_lines = 0;
    char *start   = text;
    char *fits    = NULL; /* the last space up to which the line is short enough */

    lines[n_lines++] = start;
    for (char *at = text; *at != '\0' && n_lines < MAX_CAPTION_LINES; at++) {
        if (*at != ' ' && at[1] != '\0')
            continue;
        char *end    = at[1] == '\0' ? at + 1 : at;
        char  kept   = *end;
        *end         = '\0';
        double width = hl_canvas_text_width(figure->canvas, start, style);
        *end         = kept;
        if (width > hl_figure_inner_width(figure) && fits != NULL) {
            *fits            = '\0';
            start            = fits + 1;
            lines[n_lines++] = start;
            fits             = NULL;
        }
        if (*at == ' ')
            fits = at;
    }
    return n_lines;
}

static bool has_title(const hl_figure *figure)
{
    return figure->options.title == NULL || figure->options.title[0] != '\0';
}

static void draw_title(const hl_figure *figure)
{
    const char   *title = figure->options.title;
    hl_text_style style = { figure->theme->text, HL_TEXT_TITLE, true,
                            HL_ANCHOR_START,     HL_STAND_TOP,  0.0 };

    if (!has_title(figure))
        return;
    title = title != NULL ? title : figure->default_title;
    /* A title that is too long is set in a smaller size. */
    double width = hl_canvas_text_width(figure->canvas, title, &style);
    if (width > hl_figure_inner_width(figure))
        style.size *= hl_figure_inner_width(figure) / width;
    hl_canvas_text(figure->canvas, MARGIN, MARGIN, title, &style);
}

hl_box hl_figure_begin(hl_figure *figure, double height, const char *what)
{
    char          caption[CAPTION_BYTES];
    char         *lines[MAX_CAPTION_LINES];
    hl_text_style style       = hl_figure_small(figure, HL_ANCHOR_START, HL_STAND_TOP);
    double        top         = MARGIN + (has_title(figure) ? TITLE_HEIGHT : 0.0);
    double        caption_top = top + height + CAPTION_ABOVE;

    write_caption(caption, figure, what);
    int n_lines = caption[0] != '\0' ? wrap(lines, figure, caption, &style) : 0;
    hl_canvas_page(figure->canvas, figure->options.width,
                   ceil(caption_top + n_lines * CAPTION_LINE + MARGIN - 4.0),
                   figure->theme->background);
    draw_title(figure);
    for (int i = 0; i < n_lines; i++)
        hl_canvas_text(figure->canvas, MARGIN, caption_top + i * CAPTION_LINE, lines[i], &style);
    return (hl_box){ MARGIN, top, hl_figure_inner_width(figure), height };
}

/* ---------------------------------------------------------------------------- units */

hl_quantity hl_figure_quantity(const hl_figure *figure)
{
    return figure->options.unit == HL_UNIT_NORMALIZED ? HL_Q_NORMALIZED : HL_Q_ENTROPY;
}

double hl_figure_factor(const hl_figure *figure)
{
    return figure->options.unit == HL_UNIT_BITS ? 1.0 / 0.69314718055994530942 : 1.0;
}

const char *hl_figure_unit(const hl_figure *figure)
{
    static const char *const names[] = { "nats", "bits", "" };

    return names[figure->options.unit];
}

const char *hl_figure_unit_label(const hl_figure *figure)
{
    static const char *const names[] = { "Entropy (nats)", "Entropy (bits)", "Normalized entropy" };

    return names[figure->options.unit];
}

hl_status hl_figure_scale(hl_axis *out, const hl_figure *figure, const double *values,
                          int64_t n_values)
{
    double top = NAN;

    for (int64_t i = 0; i < n_values; i++)
        top = fmax(top, values[i]); /* fmax skips NaN */
    if (isnan(top))
        return hl_fail(
            HL_BAD_INPUT,
            "the profile has no %s: only %lld tokens were measured; measure a longer text",
            figure->options.unit == HL_UNIT_NORMALIZED
                ? "row that saw at least 16 keys, and so no normalized entropy"
                : "row, and so no entropy",
            (long long)hl_profile_n_tokens(figure->profile));
    if (figure->options.unit == HL_UNIT_NORMALIZED)
        top = 1.0;
    *out = hl_axis_around(0.0, fmax(top, 1e-6), 5);
    return HL_OK;
}

/* --------------------------------------------------------------------------- labels */

double hl_figure_label_width(const hl_figure *figure, const hl_axis *axis)
{
    hl_text_style style  = hl_figure_small(figure, HL_ANCHOR_START, HL_STAND_MIDDLE);
    double        widest = 0.0;
    char          room[HL_NUMBER_BYTES];

    for (int64_t i = 0; i <= axis->n_steps; i++) {
        hl_axis_label(room, axis, hl_axis_tick(axis, i));
        widest = fmax(widest, hl_canvas_text_width(figure->canvas, room, &style));
    }
    return widest;
}

const char *hl_figure_index_name(char room[HL_HEAD_NAME_BYTES], const hl_figure *figure,
                                 int64_t index, const char *axis)
{
    const hl_profile *profile = figure->profile != NULL ? figure->profile : figure->named;

    if (profile != NULL && strcmp(axis, "Layer") == 0 &&
        hl_profile_setting(profile, "layers") != NULL)
        return hl_profile_head_name(room, profile, index, -1);
    snprintf(room, HL_HEAD_NAME_BYTES, "%lld", (long long)index);
    return room;
}

static double index_width(const hl_figure *figure, int64_t n)
{
    char          room[HL_HEAD_NAME_BYTES];
    hl_text_style style = hl_figure_small(figure, HL_ANCHOR_MIDDLE, HL_STAND_TOP);

    /* "Layer" names are at least as wide as numbers. */
    return hl_canvas_text_width(figure->canvas, hl_figure_index_name(room, figure, n - 1, "Layer"),
                                &style);
}

double hl_figure_indices_width(const hl_figure *figure, int64_t n, const char *lowest)
{
    hl_text_style style = hl_figure_small(figure, HL_ANCHOR_MIDDLE, HL_STAND_TOP);
    double named = lowest != NULL ? hl_canvas_text_width(figure->canvas, lowest, &style) : 0.0;

    return HL_TEXT_NORMAL + 6.0 + fmax(index_width(figure, n), named) + 5.0;
}

const char hl_figure_other_caption[] = "A gray column with a line is a layer without attention.";

bool hl_figure_has_other_layers(const hl_profile *profile)
{
    for (int64_t layer = 0; layer < hl_profile_n_layers(profile); layer++) {
        if (hl_profile_heads_of(profile, layer) == 0)
            return true;
    }
    return false;
}

void hl_figure_other_layers(hl_figure *figure, const hl_profile *profile, hl_box grid)
{
    int64_t   n_layers = hl_profile_n_layers(profile);
    double    width    = grid.width / (double)n_layers;
    hl_stroke stroke   = hl_figure_axis_stroke(figure);

    for (int64_t layer = 0; layer < n_layers; layer++) {
        hl_box box    = { grid.x + width * (double)layer, grid.y, width, grid.height };
        double middle = box.x + width / 2.0;
        char   name[HL_HEAD_NAME_BYTES + 20], room[HL_HEAD_NAME_BYTES];

        if (hl_profile_heads_of(profile, layer) > 0)
            continue;
        snprintf(name, sizeof name, "%s has no attention",
                 hl_profile_head_name(room, profile, layer, -1));
        hl_canvas_begin(figure->canvas, name);
        hl_canvas_rectangle(figure->canvas, box, figure->theme->grid);
        hl_canvas_line(figure->canvas, (hl_point){ middle, box.y },
                       (hl_point){ middle, box.y + box.height }, &stroke);
        hl_canvas_end(figure->canvas);
    }
}

void hl_figure_indices_across(hl_figure *figure, hl_box box, int64_t n, const char *name)
{
    double        distance = box.width / (double)n;
    double        bottom   = box.y + box.height;
    int64_t       every    = hl_label_every(distance, index_width(figure, n) + 5.0);
    hl_text_style small    = hl_figure_small(figure, HL_ANCHOR_MIDDLE, HL_STAND_TOP);
    hl_text_style normal   = hl_figure_normal(figure, HL_ANCHOR_MIDDLE, HL_STAND_TOP);
    char          room[HL_HEAD_NAME_BYTES];

    for (int64_t i = 0; i < n; i += every) {
        hl_canvas_text(figure->canvas, box.x + ((double)i + 0.5) * distance, bottom + 5.0,
                       hl_figure_index_name(room, figure, i, name), &small);
    }
    hl_canvas_text(figure->canvas, box.x + box.width / 2.0, bottom + 18.0, name, &normal);
}

void hl_figure_indices_up(hl_figure *figure, hl_box box, int64_t n, const char *lowest,
                          const char *name)
{
    double        distance = box.height / (double)n;
    int64_t       every    = hl_label_every(distance, HL_TEXT_SMALL + 2.0);
    hl_text_style small    = hl_figure_small(figure, HL_ANCHOR_END, HL_STAND_MIDDLE);
    hl_text_style normal   = hl_figure_normal(figure, HL_ANCHOR_MIDDLE, HL_STAND_BASE);
    char          room[HL_HEAD_NAME_BYTES];

    for (int64_t i = 0; i < n; i++) {
        int64_t index = i - (lowest != NULL);
        if (index >= 0 && (index % every != 0 || (index == 0 && lowest != NULL && every > 1)))
            continue; /* in low rows, layer 0 has no label, to make room for the name below it */
        hl_canvas_text(
            figure->canvas, box.x - 5.0, box.y + box.height - ((double)i + 0.5) * distance,
            index < 0 ? lowest : hl_figure_index_name(room, figure, index, name), &small);
    }
    normal.degrees = 90.0;
    hl_canvas_text(figure->canvas,
                   box.x - hl_figure_indices_width(figure, n, lowest) + HL_TEXT_NORMAL,
                   box.y + box.height / 2.0, name, &normal);
}

/* --------------------------------------------------------------- words that fit */

/* Returns true if the character belongs to the one before it: a mark, a joiner, a skin tone. */
static bool continues(const char *text)
{
    size_t   at = 0;
    uint32_t c  = hl_utf8_length(text, strlen(text)) > 0 ? hl_utf8_next(text, &at) : 0;

    return (c >= 0x300 && c <= 0x36f) || c == 0x200c || c == 0x200d ||
           (c >= 0xfe00 && c <= 0xfe0f) || (c >= 0x1f3fb && c <= 0x1f3ff);
}

/* Returns the start of the last character. */
static size_t step_back(const char *text, size_t length)
{
    do {
        length--;
        while (length > 0 && hl_utf8_is_continuation(text[length]))
            length--;
    } while (length > 0 && continues(text + length));
    return length;
}

void hl_figure_shorten(const hl_figure *figure, char *text, size_t n_bytes, double width,
                       const hl_text_style *style)
{
    static const char ellipsis[] = "\u2026";
    size_t            length     = strlen(text);

    if (length + sizeof ellipsis > n_bytes)
        length = step_back(text, n_bytes - sizeof ellipsis + 1);
    else if (hl_canvas_text_width(figure->canvas, text, style) <= width)
        return;
    do {
        length = length > 0 ? step_back(text, length) : 0;
        memcpy(text + length, ellipsis, sizeof ellipsis);
    } while (length > 0 && hl_canvas_text_width(figure->canvas, text, style) > width);
}

const char *hl_figure_copy(char *out, size_t n_bytes, const char *text)
{
    snprintf(out, n_bytes, "%s", text);
    out[strlen(out) - hl_utf8_incomplete(out, strlen(out))] = '\0';
    return out;
}

/* ----------------------------------------------------------------------- color bar */

#define BAR_WIDTH 9.0

double hl_figure_color_bar_width(const hl_figure *figure, const hl_axis *axis)
{
    return BAR_WIDTH + 5.0 + hl_figure_label_width(figure, axis) + 5.0 + HL_TEXT_NORMAL;
}

void hl_figure_bar_frame(hl_figure *figure, hl_box box, hl_map map)
{
    hl_stroke stroke = hl_figure_axis_stroke(figure);

    box.width = BAR_WIDTH;
    hl_canvas_ramp(figure->canvas, box, map, 64, true);
    /* The outline is needed because an end of the ramp may have the page's color. */
    hl_canvas_outline(figure->canvas, box, &stroke);
}

void hl_figure_bar_tick(hl_figure *figure, hl_box box, double share, const char *label)
{
    hl_text_style small  = hl_figure_small(figure, HL_ANCHOR_START, HL_STAND_MIDDLE);
    hl_stroke     stroke = hl_figure_axis_stroke(figure);
    double        y      = box.y + box.height * (1.0 - share);

    hl_canvas_line(figure->canvas, (hl_point){ box.x + BAR_WIDTH, y },
                   (hl_point){ box.x + BAR_WIDTH + 2.5, y }, &stroke);
    hl_canvas_text(figure->canvas, box.x + BAR_WIDTH + 5.0, y, label, &small);
}

void hl_figure_bar_name(hl_figure *figure, hl_box box, double width, const char *name)
{
    hl_text_style normal = hl_figure_normal(figure, HL_ANCHOR_MIDDLE, HL_STAND_BASE);

    normal.degrees = 90.0;
    hl_canvas_text(figure->canvas, box.x + width, box.y + box.height / 2.0, name, &normal);
}

void hl_figure_color_bar(hl_figure *figure, hl_box box, hl_map map, const hl_axis *axis,
                         const char *name)
{
    char room[HL_NUMBER_BYTES];
    /* A short bar may have too many ticks to label all of them. */
    int64_t every = hl_label_every(box.height / (double)axis->n_steps, HL_TEXT_SMALL + 2.0);

    hl_figure_bar_frame(figure, box, map);
    for (int64_t i = 0; i <= axis->n_steps; i += every) {
        double tick = hl_axis_tick(axis, i);
        hl_figure_bar_tick(figure, box, hl_axis_share(axis, tick), hl_axis_label(room, axis, tick));
    }
    hl_figure_bar_name(figure, box, hl_figure_color_bar_width(figure, axis), name);
}
