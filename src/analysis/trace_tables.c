/* trace_tables.c - tables of a generated text: its tokens by where they come from, its named entities,
 * and how much it repeats itself.
 *
 * An entity is a word that begins with a capital letter or has a digit in it; the trace marks the token
 * at which it begins, and the tokens up to the next word belong to it.  Numbers of an entity are
 * those of its first token: the row that led to it is where a model that guesses would be diffuse. */
#include <math.h>
#include <string.h>

#include "analysis/sheet.h"
#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"
#include "stats/trace_parts.h"

/* -------------------------------------------------------------------- kinds */

/* What is averaged over tokens, in the order of the columns. */
enum { N_ROW_MEANS = 4, N_MEANS = N_ROW_MEANS + HL_N_KINDS + 3 };

typedef struct token_sums {
    int64_t n_tokens;
    int64_t n_spikes;
    double  sums[N_MEANS];
    int64_t counts[N_MEANS];
} token_sums;

static void add_value(token_sums *to, int which, double value)
{
    to->sums[which] += isnan(value) ? 0.0 : value;
    to->counts[which] += !isnan(value);
}

static void add_token(token_sums *to, const hl_trace *trace, int64_t token)
{
    static const hl_trace_rows rows[N_ROW_MEANS] = { HL_TRACE_ENTROPY, HL_TRACE_NORMALIZED,
                                                     HL_TRACE_RENYI2, HL_TRACE_ENTROPY_NOSINK };
    hl_generated               drawn             = hl_trace_token(trace, token);
    double                     spike             = hl_trace_describe(trace, token).spike;

    to->n_tokens++;
    to->n_spikes += spike > HL_SPIKE_THRESHOLD;
    for (int i = 0; i < N_ROW_MEANS; i++)
        add_value(to, i, hl_trace_mean(trace, token, rows[i]));
    for (int kind = 0; kind < HL_N_KINDS; kind++)
        add_value(to, N_ROW_MEANS + kind,
                  hl_trace_mean(trace, token, (hl_trace_rows)(HL_TRACE_LOOKBACK + kind)));
    add_value(to, N_ROW_MEANS + HL_N_KINDS, -drawn.logprob);
    add_value(to, N_ROW_MEANS + HL_N_KINDS + 1, drawn.entropy);
    add_value(to, N_ROW_MEANS + HL_N_KINDS + 2, spike);
}

static double mean_of(const token_sums *of, int which)
{
    return of->counts[which] > 0 ? of->sums[which] / (double)of->counts[which] : (double)NAN;
}

static const char kind_columns[] =
    "tokens:t count:i entropy:3 normalized:3 renyi2:3 entropy_nosink:3 to_prompt:3 to_special:3 "
    "to_generated:3 to_context:3 surprise:3 vocabulary:3 spike:2 spikes:i";

static void put_sums(hl_sheet *table, const char *name, const token_sums *sums)
{
    hl_sheet_put_text(table, "%s", name);
    hl_sheet_put_int(table, sums->n_tokens);
    for (int i = 0; i < N_MEANS; i++)
        hl_sheet_put_real(table, mean_of(sums, i));
    hl_sheet_put_int(table, sums->n_spikes);
}

/* Rows: each kind of token, then generated minus prompt, then entities and the other generated
 * tokens. */
static hl_status fill_kinds(hl_sheet *table, const hl_trace *trace)
{
    token_sums kinds[HL_N_KINDS] = { 0 }, entities = { 0 }, others = { 0 };

    for (int64_t i = 0; i < hl_trace_n_tokens(trace); i++) {
        hl_traced_token about = hl_trace_describe(trace, i);

        add_token(&kinds[about.kind], trace, i);
        if (about.kind == HL_KIND_GENERATED)
            add_token(about.is_entity ? &entities : &others, trace, i);
    }
    for (int kind = 0; kind < HL_N_KINDS; kind++) {
        if (kinds[kind].n_tokens > 0)
            put_sums(table, hl_token_kind_name((hl_token_kind)kind), &kinds[kind]);
    }
    if (kinds[HL_KIND_PROMPT].n_tokens > 0 && kinds[HL_KIND_GENERATED].n_tokens > 0) {
        hl_sheet_put_text(table, "generated - prompt");
        hl_sheet_put_int(table, HL_NO_INT);
        for (int i = 0; i < N_MEANS; i++)
            hl_sheet_put_real(table, mean_of(&kinds[HL_KIND_GENERATED], i) -
                                         mean_of(&kinds[HL_KIND_PROMPT], i));
        hl_sheet_put_int(table, HL_NO_INT);
    }
    if (entities.n_tokens > 0) {
        put_sums(table, "generated: begins an entity", &entities);
        put_sums(table, "generated: other tokens", &others);
    }
    return HL_OK;
}

/* ----------------------------------------------------------------- entities */

static const char entity_columns[] = "token:i kind:t text:t entropy:3 normalized:3 surprise:3 "
                                     "vocabulary:3 spike:2 is_spike:b";

enum { MOST_BYTES = 64 };

static bool is_word_byte(unsigned char byte)
{
    return byte >= 0x80 || (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
           (byte >= 'A' && byte <= 'Z') || byte == '\'' || byte == '-';
}

/* Appends the token's bytes that belong to the word; returns true if the word may continue after
 * it. */
static bool add_part(hl_text *text, const hl_traced_token *token, bool is_first)
{
    size_t from = 0, to;

    while (is_first && from < token->n_bytes && !is_word_byte((unsigned char)token->text[from]))
        from++;
    for (to = from; to < token->n_bytes && is_word_byte((unsigned char)token->text[to]); to++)
        continue;
    if (to > from)
        hl_text_add(text, token->text + from, to - from);
    return to == token->n_bytes && (to > from || is_first);
}

/* Makes bytes of any origin printable: invalid ones become U+FFFD, and the text ends before the
 * first invisible character, such as a control character of a terminal. */
static void add_shown(hl_text *out, const char *bytes, size_t n_bytes)
{
    for (size_t at = 0; at < n_bytes;) {
        size_t n = hl_utf8_length(bytes + at, n_bytes - at), next = at;

        if (n == 0) {
            hl_text_addf(out, "\xef\xbf\xbd");
            at++;
            continue;
        }
        if (hl_character_is_unseen(hl_utf8_next(bytes, &next)))
            return;
        hl_text_add(out, bytes + at, n);
        at += n;
    }
}

/* Reads the word that begins at a token, including the tokens that continue it. */
static hl_status read_word(char **out, const hl_trace *trace, int64_t token)
{
    HL_SCOPED(hl_text_free) hl_text raw  = { 0 };
    hl_text                         text = { 0 };

    for (int64_t i = token; i < hl_trace_n_tokens(trace) && raw.n_bytes < MOST_BYTES; i++) {
        hl_traced_token about = hl_trace_describe(trace, i);
        if (!add_part(&raw, &about, i == token))
            break;
    }
    HL_NEED(raw.status);
    add_shown(&text, raw.bytes != NULL ? raw.bytes : "", raw.n_bytes);
    return hl_text_finish(out, &text);
}

static hl_status fill_entities(hl_sheet *table, const hl_trace *trace)
{
    for (int64_t i = 0; i < hl_trace_n_tokens(trace); i++) {
        hl_traced_token about = hl_trace_describe(trace, i);
        hl_generated    drawn = hl_trace_token(trace, i);
        HL_FREED char  *word  = NULL;

        if (!about.is_entity)
            continue;
        HL_NEED(read_word(&word, trace, i));
        hl_sheet_put_int(table, i);
        hl_sheet_put_text(table, "%s", hl_token_kind_name(about.kind));
        hl_sheet_put_text(table, "%s", word);
        hl_sheet_put_reals(table, hl_trace_mean(trace, i, HL_TRACE_ENTROPY),
                           hl_trace_mean(trace, i, HL_TRACE_NORMALIZED), -drawn.logprob,
                           drawn.entropy, about.spike);
        hl_sheet_put_bool(table, about.spike > HL_SPIKE_THRESHOLD);
    }
    return HL_OK;
}

/* --------------------------------------------------------------- repetition */

static const char repetition_columns[] =
    "tokens:i distinct_1:3 distinct_2:3 distinct_3:3 distinct_4:3 suffix:i distance:i period:i "
    "loop_first:i loop_tokens:i";

static hl_status fill_repetition(hl_sheet *table, const hl_trace *trace)
{
    hl_repetition found;

    HL_NEED(hl_trace_repetition(&found, trace));
    hl_sheet_put_int(table, found.n_tokens);
    hl_sheet_add_reals(table, found.distinct, HL_N_DISTINCT);
    hl_sheet_put_ints(table, found.suffix, found.suffix > 0 ? found.distance : HL_NO_INT,
                      found.period > 0 ? found.period : HL_NO_INT,
                      found.period > 0 ? found.first : HL_NO_INT, found.loop_tokens);
    return HL_OK;
}

/* ----------------------------------------------------------------- the list */

static const struct {
    const char *name;
    const char *summary;
    const char *title;
    const char *columns;
    hl_status (*fill)(hl_sheet *table, const hl_trace *trace);
} tables[] = {
    { "kinds", "of a trace: prompt against generated tokens, entities against others",
      "Tokens by where they come from: means over all heads", kind_columns, fill_kinds },
    { "entities", "of a trace: names and numbers, and how diffuse attention was before them",
      "Names and numbers", entity_columns, fill_entities },
    { "repetition", "of a trace: distinct n-grams, the longest repeated suffix, the longest loop",
      "How much the generated tokens repeat themselves", repetition_columns, fill_repetition },
};
enum { N_TABLES = sizeof tables / sizeof *tables };

const char *hl_trace_table_name(size_t index)
{
    return index < N_TABLES ? tables[index].name : NULL;
}

const char *hl_trace_table_summary(size_t index)
{
    return index < N_TABLES ? tables[index].summary : NULL;
}

hl_status hl_trace_analyze(hl_sheet **out, const hl_trace *trace, const char *name)
{
    HL_CLOSED(hl_sheet_free) hl_sheet *table = NULL;

    *out = NULL;
    for (size_t i = 0; i < N_TABLES; i++) {
        if (strcmp(name, tables[i].name) != 0)
            continue;
        HL_NEED(hl_sheet_new(&table, tables[i].name, tables[i].title, tables[i].columns));
        HL_NEED(tables[i].fill(table, trace));
        HL_NEED(hl_sheet_finish(table));
        *out = hl_taken(&table);
        return HL_OK;
    }
    return hl_fail(HL_BAD_ARGUMENT, "no table of a trace is called '%s'", name);
}
