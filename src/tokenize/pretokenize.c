/* pretokenize.c - the steps of pre-tokenizers.
 *
 * A step that only splits turns one list of parts into another; the lists take
 * turns.  It is a stream of stretches that match or do not,
 *
 *     the | - | final | - | - | countdown        (a regular expression, say)
 *
 * and a `cutter` that joins or drops them as the behavior says.  A step that
 * changes the text writes a new one and the parts of that. */
#include "tokenize/pretokenize.h"

#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/status.h"
#include "base/utf8.h"
#include "tokenize/byte_level.h"
#include "tokenize/unicode.h"

#define MAX_STEPS 64

hl_status hl_pretokenizer_add(hl_split_step **out, hl_pretokenizer *pretokenizer,
                              hl_split_step step)
{
    if (pretokenizer->n_steps >= MAX_STEPS)
        return hl_fail(HL_BAD_INPUT, "more than %d pre-tokenizers", MAX_STEPS);
    HL_NEED(HL_GROW(&pretokenizer->steps, &pretokenizer->capacity, pretokenizer->n_steps, 1));
    *out  = &pretokenizer->steps[pretokenizer->n_steps++];
    **out = step;
    return HL_OK;
}

void hl_pretokenizer_free(hl_pretokenizer *pretokenizer)
{
    for (size_t i = 0; i < pretokenizer->n_steps; i++) {
        hl_pattern_free(pretokenizer->steps[i].pattern);
        hl_bytes_free(&pretokenizer->steps[i].literal);
    }
    hl_free(pretokenizer->steps);
    *pretokenizer = (hl_pretokenizer){ 0 };
}

void hl_split_space_free(hl_split_space *space)
{
    for (int i = 0; i < 2; i++) {
        hl_mapped_text_builder_free(&space->builders[i]);
        hl_free(space->parts[i].items);
    }
    *space = (hl_split_space){ 0 };
}

/* ------------------------------------------------------------------- cutting */

typedef struct cutter {
    hl_parts         *out;
    hl_split_behavior behavior;
    bool              invert;
    size_t            first;      /* index of the first part made from the current part */
    bool              last_match; /* whether the last stretch was a match */
    bool              holding;    /* MERGED_WITH_NEXT: a match waits for the next stretch */
    hl_part           held;
    hl_status         status;
} cutter;

static void add_part(cutter *c, hl_part part)
{
    if (part.begin == part.end || c->status != HL_OK)
        return;
    c->status = HL_GROW(&c->out->items, &c->out->capacity, c->out->count, 1);
    if (c->status == HL_OK)
        c->out->items[c->out->count++] = part;
}

static void extend_last(cutter *c, hl_part part)
{
    if (c->out->count > c->first)
        c->out->items[c->out->count - 1].end = part.end;
    else
        add_part(c, part);
}

static void release_held(cutter *c)
{
    if (c->holding)
        add_part(c, c->held);
    c->holding = false;
}

static void merge_with_next(cutter *c, hl_part part, bool match)
{
    if (match) {
        release_held(c);
        c->held    = part;
        c->holding = true;
    } else if (c->holding) {
        c->holding = false;
        add_part(c, (hl_part){ c->held.begin, part.end });
    } else {
        add_part(c, part);
    }
}

/* Adds the next stretch of the current part. */
static void cut(cutter *c, size_t begin, size_t end, bool match)
{
    hl_part part = { (uint32_t)begin, (uint32_t)end };

    match = match != c->invert;
    switch (c->behavior) {
    case HL_SPLIT_ISOLATED:
        add_part(c, part);
        break;
    case HL_SPLIT_REMOVED:
        if (!match)
            add_part(c, part);
        break;
    case HL_SPLIT_CONTIGUOUS:
        if (match == c->last_match)
            extend_last(c, part);
        else
            add_part(c, part);
        break;
    case HL_SPLIT_MERGED_WITH_PREVIOUS:
        if (match && !c->last_match)
            extend_last(c, part);
        else
            add_part(c, part);
        break;
    case HL_SPLIT_MERGED_WITH_NEXT:
        merge_with_next(c, part, match);
        break;
    }
    c->last_match = match;
}

static void begin_part(cutter *c)
{
    c->first      = c->out->count;
    c->last_match = false;
    c->holding    = false;
}

/* ------------------------------------------------------------- what to cut at */

/* Adds the stretch between two matches, unless it is empty, and a match [begin, end); `*done` is
 * the end of the previous match. */
static void cut_match(cutter *c, size_t *done, size_t begin, size_t end)
{
    if (begin > *done)
        cut(c, *done, begin, false);
    cut(c, begin, end, true);
    *done = end;
}

/* Adds what follows the last match of a part. */
static void cut_rest(cutter *c, size_t done, hl_part part)
{
    if (done < part.end)
        cut(c, done, part.end, false);
}

/* Cuts at the matches of the step's pattern or literal; an empty match cuts, too. */
static void cut_at_matches(cutter *c, const hl_split_step *step, const hl_mapped_text *text,
                           hl_part part, hl_matcher *matcher)
{
    size_t    done   = part.begin;
    hl_search search = { .pattern = step->pattern,
                         .needle  = step->literal,
                         .matcher = matcher,
                         .text    = { text->bytes + part.begin, part.end - part.begin } };

    while (c->status == HL_OK && hl_search_next(&search))
        cut_match(c, &done, part.begin + search.match.begin, part.begin + search.match.end);
    if (c->status == HL_OK)
        c->status = search.status;
    cut_rest(c, done, part);
}

static void cut_at_class(cutter *c, const hl_split_step *step, const hl_mapped_text *text,
                         hl_part part)
{
    size_t done = part.begin;

    for (size_t at = part.begin; at < part.end;) {
        size_t   begin = at;
        uint32_t seen  = hl_utf8_next(text->bytes, &at);
        if (!hl_char_is((hl_char_class)step->char_class, seen))
            continue;
        cut_match(c, &done, begin, at);
    }
    cut_rest(c, done, part);
}

static void cut_at_length(cutter *c, const hl_split_step *step, const hl_mapped_text *text,
                          hl_part part)
{
    size_t count = 0;
    size_t done  = part.begin;

    for (size_t at = part.begin; at < part.end;) {
        (void)hl_utf8_next(text->bytes, &at);
        if (++count < step->length && at < part.end)
            continue;
        cut(c, done, at, true);
        done  = at;
        count = 0;
    }
}

/* The step's pattern matches runs of one script and marks them with its name.  Characters that it
 * does not match (spaces, unassigned ones) belong to the run before them.  As in the reference
 * implementation, characters before the first script are lost. */
static void cut_at_script(cutter *c, const hl_split_step *step, const hl_mapped_text *text,
                          hl_part part, hl_matcher *matcher)
{
    const char *bytes   = text->bytes + part.begin;
    size_t      n_bytes = part.end - part.begin;
    size_t      done    = n_bytes;
    char        last[8] = "";
    bool        found   = true;
    hl_span     match;

    for (size_t start = 0; start < n_bytes; start = match.end) {
        c->status = hl_pattern_find(&match, &found, step->pattern, matcher, bytes, n_bytes, start);
        if (c->status != HL_OK || !found)
            break;
        if (strcmp(last, hl_matcher_mark(matcher)) == 0)
            continue;
        if (last[0] != '\0')
            cut(c, part.begin + done, part.begin + match.begin, true);
        snprintf(last, sizeof last, "%s", hl_matcher_mark(matcher));
        done = match.begin;
    }
    if (done < n_bytes)
        cut(c, part.begin + done, part.end, true);
}

static hl_status split_parts(hl_parts *out, const hl_parts *parts, const hl_mapped_text *text,
                             const hl_split_step *step, hl_matcher *matcher)
{
    cutter c = { .out = out, .behavior = step->behavior, .invert = step->invert };

    for (size_t i = 0; i < parts->count && c.status == HL_OK; i++) {
        begin_part(&c);
        switch (step->kind) {
        case HL_SPLIT_CLASS:
            cut_at_class(&c, step, text, parts->items[i]);
            break;
        case HL_SPLIT_LENGTH:
            cut_at_length(&c, step, text, parts->items[i]);
            break;
        case HL_SPLIT_SCRIPT:
            cut_at_script(&c, step, text, parts->items[i], matcher);
            break;
        default:
            cut_at_matches(&c, step, text, parts->items[i], matcher);
            break;
        }
        release_held(&c);
    }
    return c.status;
}

/* ------------------------------------------------------ steps that change text */

/* Text and parts under construction. */
typedef struct rebuild {
    hl_mapped_text_builder *builder;
    hl_parts               *parts;
} rebuild;

static hl_status add_rebuilt(rebuild *r, size_t begin)
{
    if (r->builder->n_bytes == begin)
        return HL_OK;
    HL_NEED(HL_GROW(&r->parts->items, &r->parts->capacity, r->parts->count, 1));
    r->parts->items[r->parts->count++] =
        (hl_part){ (uint32_t)begin, (uint32_t)r->builder->n_bytes };
    return HL_OK;
}

/* Puts `prefix` in front of a part, with the origin of its first character. */
static hl_status add_prefix(rebuild *r, const hl_mapped_text *text, hl_part part,
                            const char *prefix, size_t n_prefix)
{
    hl_span first = hl_mapped_text_origin(text, part.begin, part.begin + 1);
    return hl_mapped_text_builder_add(r->builder, prefix, n_prefix,
                                      (hl_origin){ (uint32_t)first.begin, (uint32_t)first.end });
}

static bool starts_with(const hl_mapped_text *text, hl_part part, hl_bytes prefix)
{
    return part.end - part.begin >= prefix.n_bytes &&
           memcmp(text->bytes + part.begin, prefix.data, prefix.n_bytes) == 0;
}

static hl_status metaspace_part(rebuild *r, const hl_split_step *step, const hl_mapped_text *text,
                                hl_part part)
{
    hl_bytes mark   = step->literal;
    bool     wanted = step->prepend == HL_PREPEND_ALWAYS ||
                  (step->prepend == HL_PREPEND_FIRST &&
                   hl_mapped_text_origin(text, part.begin, part.begin + 1).begin == 0);

    if (wanted && text->bytes[part.begin] != ' ' && !starts_with(text, part, mark))
        HL_NEED(add_prefix(r, text, part, mark.data, mark.n_bytes));
    for (size_t at = part.begin; at < part.end;) {
        if (text->bytes[at] == ' ') {
            hl_span space = hl_mapped_text_origin(text, at, at + 1);
            HL_NEED(hl_mapped_text_builder_add(
                r->builder, mark.data, mark.n_bytes,
                (hl_origin){ (uint32_t)space.begin, (uint32_t)space.end }));
            at++;
            continue;
        }
        const char *next = memchr(text->bytes + at, ' ', part.end - at);
        size_t      stop = next != NULL ? (size_t)(next - text->bytes) : part.end;
        HL_NEED(hl_mapped_text_builder_copy(r->builder, text, at, stop));
        at = stop;
    }
    return HL_OK;
}

/* Copies bytes; stand-ins become the bytes that they stand for. */
static hl_status restore_bytes(hl_mapped_text_builder *builder, const hl_mapped_text *text,
                               hl_part part)
{
    size_t done = part.begin;

    for (size_t at = part.begin; at < part.end; at++) {
        if (!hl_mapped_text_is_stand_in(text, at))
            continue;
        HL_NEED(hl_mapped_text_builder_copy(builder, text, done, at));
        hl_origin origin = text->align[at];
        HL_NEED(hl_mapped_text_builder_add(builder, text->original + origin.begin, 1, origin));
        at += 2;
        done = at + 1;
    }
    return hl_mapped_text_builder_copy(builder, text, done, part.end);
}

static hl_status byte_level_part(rebuild *r, const hl_split_step *step, const hl_mapped_text *text,
                                 hl_part part)
{
    hl_bytes space = { " ", 1 };

    if (step->pattern == NULL && step->prefix_space && !starts_with(text, part, space)) {
        if (step->keep_bytes)
            HL_NEED(add_prefix(r, text, part, " ", 1));
        else
            HL_NEED(add_prefix(r, text, part, "\xc4\xa0", 2)); /* Ġ */
    }
    if (step->keep_bytes)
        HL_NEED(restore_bytes(r->builder, text, part));
    else
        HL_NEED(hl_byte_level_spell(r->builder, text, part.begin, part.end));
    return HL_OK;
}

/* Puts a space in front of every part that does not begin with one. */
static hl_status prefix_part(rebuild *r, const hl_mapped_text *text, hl_part part)
{
    hl_bytes space = { " ", 1 };

    if (!starts_with(text, part, space))
        HL_NEED(add_prefix(r, text, part, " ", 1));
    return hl_mapped_text_builder_copy(r->builder, text, part.begin, part.end);
}

/* -------------------------------------------------------------------- running */

/* Parts and text between steps; `now` is the index of the space that holds the parts. */
typedef struct run_state {
    hl_mapped_text  text;
    hl_split_space *space;
    int             now;
    int             builder; /* index of the builder to write to next */
    hl_matcher     *matcher;
} run_state;

static hl_status split(run_state *run, const hl_split_step *step)
{
    hl_parts *next = &run->space->parts[1 - run->now];
    next->count    = 0;
    hl_status status =
        split_parts(next, &run->space->parts[run->now], &run->text, step, run->matcher);
    run->now = 1 - run->now;
    return status;
}

/* Writes every part again; `which` is 'm'etaspace, 'b'yte level or 'p'refix. */
static hl_status rewrite(run_state *run, const hl_split_step *step, char which)
{
    const hl_parts *parts = &run->space->parts[run->now];
    rebuild         r = { &run->space->builders[run->builder], &run->space->parts[1 - run->now] };

    r.builder->n_bytes = 0;
    r.parts->count     = 0;
    for (size_t i = 0; i < parts->count; i++) {
        size_t begin = r.builder->n_bytes;
        if (which == 'm')
            HL_NEED(metaspace_part(&r, step, &run->text, parts->items[i]));
        else if (which == 'b')
            HL_NEED(byte_level_part(&r, step, &run->text, parts->items[i]));
        else
            HL_NEED(prefix_part(&r, &run->text, parts->items[i]));
        HL_NEED(add_rebuilt(&r, begin));
    }
    run->text    = hl_mapped_text_built(r.builder, &run->text);
    run->builder = 1 - run->builder;
    run->now     = 1 - run->now;
    return HL_OK;
}

static hl_status run_metaspace(run_state *run, const hl_split_step *step)
{
    hl_split_step at_mark = { .kind     = HL_SPLIT_LITERAL,
                              .behavior = HL_SPLIT_MERGED_WITH_NEXT,
                              .literal  = step->literal };
    hl_status     status  = rewrite(run, step, 'm');

    return status == HL_OK && step->split ? split(run, &at_mark) : status;
}

/* Adds a prefix, splits and spells; each only if the step asks for it. */
static hl_status run_byte_level(run_state *run, const hl_split_step *step)
{
    if (step->pattern != NULL && step->prefix_space)
        HL_NEED(rewrite(run, step, 'p'));
    if (step->pattern != NULL)
        HL_NEED(split(run, step));
    bool as_it_is = step->keep_bytes && run->text.align == NULL &&
                    !(step->prefix_space && step->pattern == NULL);
    if (!as_it_is)
        HL_NEED(rewrite(run, step, 'b'));
    return HL_OK;
}

hl_status hl_pretokenizer_run(const hl_parts **out, hl_mapped_text *text,
                              const hl_pretokenizer *pre, hl_split_space *space,
                              hl_matcher *matcher)
{
    hl_status status = HL_OK;
    run_state run    = { .text = *text, .space = space, .matcher = matcher };

    space->parts[0].count = 0;
    if (text->n_bytes > 0) {
        HL_NEED(HL_GROW(&space->parts[0].items, &space->parts[0].capacity, 0, 1));
        space->parts[0].items[space->parts[0].count++] = (hl_part){ 0, (uint32_t)text->n_bytes };
    }
    for (size_t i = 0; i < pre->n_steps; i++) {
        const hl_split_step *step = &pre->steps[i];
        if (step->kind == HL_SPLIT_METASPACE)
            status = run_metaspace(&run, step);
        else if (step->kind == HL_SPLIT_BYTE_LEVEL)
            status = run_byte_level(&run, step);
        else
            status = split(&run, step);
        if (status == HL_OK)
            status = hl_budget_spend(hl_matcher_budget(matcher), run.text.n_bytes);
        HL_NEED(hl_fail_within(status, "pre-tokenizer %zu", i));
    }
    *text = run.text;
    *out  = &space->parts[run.now];
    return status;
}

/* ------------------------------------------------------------------- scripts
 *
 * A regular expression that matches runs of one script:
 *
 *     [\x{30fc}\p{sc:Hiragana}...]+(*MARK:h)|...|\p{sc:Latin}+(*MARK:67)|...
 *
 * The mark says which alternative it was; "sc:" asks for the one script that a character belongs
 * to, not for all that use it.  Han and the Japanese scripts count as one, as in SentencePiece; a
 * space is of no script. */

/* Unicode 14, which is what PCRE2 10.42 knows; without those in the text above. */
static const char scripts[] =
    "Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah "
    "Batak Bengali Bhaiksuki Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal "
    "Carian Caucasian_Albanian Chakma Cham Cherokee Chorasmian Coptic Cuneiform Cypriot "
    "Cypro_Minoan Cyrillic Deseret Devanagari Dives_Akuru Dogra Duployan "
    "Egyptian_Hieroglyphs Elbasan Elymaic Ethiopic Georgian Glagolitic Gothic Grantha Greek "
    "Gujarati Gunjala_Gondi Gurmukhi Hangul Hanifi_Rohingya Hanunoo Hatran Hebrew "
    "Imperial_Aramaic Inherited Inscriptional_Pahlavi Inscriptional_Parthian Javanese "
    "Kaithi Kannada Kayah_Li Kharoshthi Khitan_Small_Script Khmer Khojki Khudawadi Lao "
    "Latin Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian Mahajani Makasar Malayalam "
    "Mandaic Manichaean Marchen Masaram_Gondi Medefaidrin Meetei_Mayek Mende_Kikakui "
    "Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani Myanmar "
    "Nabataean Nandinagari New_Tai_Lue Newa Nko Nushu Nyiakeng_Puachue_Hmong Ogham Ol_Chiki "
    "Old_Hungarian Old_Italic Old_North_Arabian Old_Permic Old_Persian Old_Sogdian "
    "Old_South_Arabian Old_Turkic Old_Uyghur Oriya Osage Osmanya Pahawh_Hmong Palmyrene "
    "Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic Samaritan Saurashtra "
    "Sharada Shavian Siddham SignWriting Sinhala Sogdian Sora_Sompeng Soyombo Sundanese "
    "Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tamil Tangsa "
    "Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Toto Ugaritic Vai Vithkuqi Wancho "
    "Warang_Citi Yezidi Yi Zanabazar_Square";

hl_status hl_script_pattern_new(hl_pattern **out)
{
    HL_SCOPED(hl_text_free) hl_text expression = { 0 };
    size_t                          i          = 0;

    *out = NULL;
    hl_text_addf(&expression, "[\\x{30fc}\\p{sc:Hiragana}\\p{sc:Katakana}\\p{sc:Han}]+(*MARK:h)"
                              "|(?:(?![ \\x{30fc}])\\p{sc:Common})+(*MARK:c)");
    for (const char *name = scripts; *name != '\0'; name += strspn(name, " "), i++) {
        size_t length = strcspn(name, " ");
        hl_text_addf(&expression, "|\\p{sc:%.*s}+(*MARK:%zu)", (int)length, name, i);
        name += length;
    }
    HL_NEED(expression.status);
    return hl_pattern_new(out, expression.bytes, expression.n_bytes);
}
