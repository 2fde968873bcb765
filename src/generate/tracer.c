/* tracer.c - a tap that turns the rows of a text into a trace.
 *
 *     position    0    1    2    3    4         the prompt is fed at once, then a
 *     tokens    [ a    b    c ]  d    e         token at a time
 *     rows        r0   r1   r2   r3
 *     entries     a:-  b:r0 c:r1 d:r2 e:r3      a row leads to the token after it
 *
 * The row of a position belongs to the entry `offset` after it.  That is 1, unless tokens were fed
 * that were not announced.
 *
 * The row before each generated token is also read whole, and compared with the one before
 * (stats/trace_parts.h). */
#include "generate/tracer.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"
#include "measure/measure.h"
#include "model/model.h"
#include "stats/profile_add.h"
#include "stats/trace_parts.h"
#include "tokenize/unicode.h"

/* ---------------------------------------------------------- numbers of a row */

hl_visible_keys hl_trace_seen(const hl_config *config, int64_t layer, int64_t position)
{
    const hl_layer_config *at   = &config->layers[layer];
    hl_profile_mask        mask = { .is_causal     = true,
                                    .has_window    = at->is_local,
                                    .window_left   = at->window_left,
                                    .window_sink   = at->window_sink,
                                    .window_blocks = at->window_blocks };

    return hl_profile_seen(&mask, position, position + 1);
}

/* Copies values `stride` apart in `from` to out (n_heads), which may be NULL; writes NaN where
 * `from` is NULL. */
static void put(float *out, const float *from, int64_t n_heads, int64_t stride)
{
    for (int64_t head = 0; out != NULL && head < n_heads; head++)
        out[head] = from != NULL ? from[head * stride] : NAN;
}

/* Writes entropies as shares of the largest possible one. */
static void put_shares(float *out, const float *from, int64_t n_heads, int64_t stride,
                       double inverse)
{
    for (int64_t head = 0; out != NULL && head < n_heads; head++)
        out[head] = (float)((double)from[head * stride] * inverse);
}

static double inverse_log(hl_trace_log *known, int64_t n)
{
    if (known->n != n)
        *known = (hl_trace_log){ n, n >= 2 ? 1.0 / log((double)n) : 0.0 };
    return known->inverse;
}

void hl_trace_read_row(float *const out[HL_N_TRACE_ROWS], hl_trace_log *known,
                       const hl_config *config, const hl_layer_rows *rows, int64_t sequence,
                       int64_t row)
{
    const hl_attention_result *from = rows->rows;
    hl_visible_keys seen    = hl_trace_seen(config, rows->layer, rows->start[sequence] + row);
    int64_t         n_keys  = hl_visible_count(seen);
    bool            others  = n_keys > (hl_visible_has(seen, 0) ? 1 : 0);
    int64_t         n_heads = rows->n_heads;
    int64_t         stride  = rows->n_rows;
    int64_t         at      = sequence * n_heads * stride + row;

    put(out[HL_TRACE_ENTROPY], from->entropy + at, n_heads, stride);
    put_shares(out[HL_TRACE_NORMALIZED], from->entropy + at, n_heads, stride,
               inverse_log(known, n_keys + (config->sinks ? 1 : 0)));
    put(out[HL_TRACE_CHANGE], NULL, n_heads, stride);
    put(out[HL_TRACE_RENYI2], from->renyi2 + at, n_heads, stride);
    put(out[HL_TRACE_ENTROPY_NOSINK], others ? from->entropy_nosink + at : NULL, n_heads, stride);
    for (int kind = 0; kind < HL_N_KINDS; kind++) {
        const float *mass =
            rows->n_segments == HL_N_KINDS ? from->segment_mass + at * HL_N_KINDS + kind : NULL;
        put(out[HL_TRACE_LOOKBACK + kind], mass, n_heads, stride * HL_N_KINDS);
    }
}

double hl_trace_spike(hl_spikes *spikes, const float *row, int64_t position, bool is_given)
{
    if (row == NULL || position < HL_NORMALIZED_KEYS - 1)
        return NAN;
    if (!is_given)
        return hl_spikes_score(spikes, row);
    hl_spikes_learn(spikes, row);
    return NAN;
}

/* ----------------------------------------------- names and numbers in a text */

/* There is no dictionary and no grammar.  So the first word of a sentence counts as a name, and
 * a name without a capital letter does not. */

/* Returns the character at *at and moves *at past it. */
static uint32_t next(const char *text, size_t end, size_t *at)
{
    if (hl_utf8_length(text + *at, end - *at) > 0)
        return hl_utf8_next(text, at);
    *at += 1;
    return HL_UTF8_REPLACEMENT;
}

/* Most characters are ASCII and need no table. */
static bool is_word(uint32_t c)
{
    if (c < 0x80)
        return (c | 0x20) - 'a' < 26 || c - '0' < 10 || c == '_';
    return hl_char_is(HL_CHAR_WORD, c);
}

static bool is_numeric(uint32_t c)
{
    return c < 0x80 ? c - '0' < 10 : hl_char_is(HL_CHAR_NUMERIC, c);
}

static bool is_capital(uint32_t c)
{
    if (c < 0x80)
        return c - 'A' < 26;
    uint32_t lower[2];
    size_t   count = hl_char_lowercase(lower, c);

    return count > 0 && lower[0] != c;
}

/* Whether the text ends in the middle of a word. */
static bool ends_in_word(const char *text, size_t n_bytes)
{
    size_t at = n_bytes;

    while (at > 0 && n_bytes - at < 3 && hl_utf8_is_continuation(text[at - 1]))
        at--;
    if (at == 0)
        return false;
    at--;
    return is_word(next(text, n_bytes, &at));
}

bool hl_begins_entity(const char *text, size_t begin, size_t end)
{
    bool     in_word = ends_in_word(text, begin);
    size_t   at      = begin;
    uint32_t c       = 0;

    while (at < end) {
        c = next(text, end, &at);
        if (is_word(c))
            break;
        in_word = false;
    }
    if (in_word || !is_word(c))
        return false;
    bool found  = is_capital(c) || is_numeric(c);
    bool lone_i = c == 'I'; /* the English pronoun is not a name */
    while ((!found || lone_i) && at < end) {
        c = next(text, end, &at);
        if (!is_word(c))
            break;
        found  = found || is_numeric(c);
        lone_i = false;
    }
    return found && !lone_i;
}

/* ------------------------------------------------------------------ a tracer */

struct hl_tracer {
    const hl_config  *config;
    hl_tracer_options options;
    hl_trace         *trace;
    hl_tap            tap;
    hl_spikes        *spikes;
    hl_decode_stream *stream;   /* NULL: no tokenizer */
    uint8_t          *segments; /* (n_ctx) the kinds of tokens by position */
    int64_t           position; /* position of the row that predicts the next token */
    int64_t           whole;    /* `position` if that row is read whole; else -1 */
    int64_t           offset;   /* entry of a row minus its position */
    int64_t           learn;    /* first entry of the prompt that is not learned yet */
    int64_t           learn_to; /* end of the entries that are not learned yet */
    int64_t           last;     /* position of the previous whole row, or -1 */
    float            *previous; /* (n_layers, n_heads, n_ctx) the previous whole row, or NULL */
    hl_trace_log      log;
};

/* ---------------------------------------------------------------------- rows */

/* Computes how far each head's whole row has moved: from the row directly before it or, after going
 * back, from the last one at the same position. */
static void trace_change(hl_tracer *tracer, const hl_layer_rows *rows, float *out)
{
    hl_visible_keys now    = hl_trace_seen(tracer->config, rows->layer, tracer->whole);
    hl_visible_keys before = hl_trace_seen(tracer->config, rows->layer, tracer->last);
    bool            known =
        tracer->last >= 0 && tracer->whole - tracer->last <= 1 && tracer->whole >= tracer->last;

    for (int64_t head = 0; head < rows->n_heads; head++) {
        int64_t      cell     = rows->layer * tracer->trace->n_heads + head;
        const float *p        = rows->pattern + head * rows->n_patterns * rows->n_keys;
        float       *previous = tracer->previous + cell * tracer->options.n_ctx;

        out[cell] = known ? (float)hl_row_change(p, previous, now, before) : NAN;
        memcpy(previous, p, (size_t)now.end * sizeof *p);
    }
}

/* Copies the statistics of one row from the kernels' results.  The change is not known yet; if
 * the row is traced again, it stays as it was. */
static void trace_row(hl_tracer *tracer, const hl_layer_rows *rows, int64_t row, int64_t entry,
                      bool again)
{
    const hl_trace *trace  = tracer->trace;
    int64_t         offset = hl_trace_offset(trace, entry);
    float          *to[HL_N_TRACE_ROWS];

    if (offset < 0)
        return; /* the prompt is longer than the number of kept rows */
    for (int i = 0; i < HL_N_TRACE_ROWS; i++)
        to[i] = trace->rows[i] + offset + rows->layer * trace->n_heads;
    if (again)
        to[HL_TRACE_CHANGE] = NULL;
    hl_trace_read_row(to, &tracer->log, tracer->config, rows, 0, row);
}

static hl_status check_position(const hl_tracer *tracer, int64_t position)
{
    if (position == tracer->position && position < tracer->options.n_ctx)
        return HL_OK;
    return hl_fail(HL_BAD_ARGUMENT, "trace: a row at position %lld, wanted %lld, below %lld",
                   (long long)position, (long long)tracer->position,
                   (long long)tracer->options.n_ctx);
}

/* Makes room for the entries of a chunk: at once for a prompt, then by doubling.  With `forget`,
 * all room is taken at the start. */
static hl_status reserve(hl_tracer *tracer, int64_t n_entries)
{
    int64_t most = tracer->options.n_ctx + 1;
    int64_t more = 2 * tracer->trace->capacity;

    if (n_entries <= tracer->trace->capacity)
        return HL_OK;
    more = more < most ? more : most;
    return hl_trace_reserve(tracer->trace, more > n_entries ? more : n_entries);
}

/* Records that the row at `position` predicts the next token. */
static void look_at(hl_tracer *tracer, int64_t position)
{
    int64_t every = tracer->options.change_every;
    bool    whole = tracer->previous != NULL && (every == 0 || position % every < 2);

    tracer->position = position;
    tracer->whole    = whole ? position : -1;
}

static hl_status trace_layer(void *context, const hl_layer_rows *rows)
{
    hl_tracer *tracer = context;
    hl_trace  *trace  = tracer->trace;
    int64_t    first  = rows->start[0] + tracer->offset; /* entry of row 0 */
    int64_t    end    = rows->start[0] + rows->lengths[0];

    if (end - 1 > tracer->position)
        HL_NEED(check_position(tracer, end - 1));
    HL_NEED(reserve(tracer, first + rows->lengths[0]));
    for (int64_t row = 0; row < rows->lengths[0]; row++) {
        if (first + row >= 0)
            trace_row(tracer, rows, row, first + row, false);
    }
    if (end - 1 < tracer->position)
        return HL_OK; /* more of the prompt will come */
    if (tracer->whole >= 0 && rows->n_patterns > 0)
        trace_change(tracer, rows, hl_trace_at(trace, end - 1 + tracer->offset, HL_TRACE_CHANGE));
    if (rows->layer == tracer->config->n_layers - 1) {
        tracer->last = tracer->whole >= 0 ? tracer->whole : tracer->last;
        look_at(tracer, tracer->position + 1);
    }
    return HL_OK;
}

/* ------------------------------------------------------------ open and close */

static hl_status open_stream(hl_tracer *tracer)
{
    hl_decode_stream_close(tracer->stream);
    tracer->stream = NULL;
    if (tracer->options.tokenizer == NULL)
        return HL_OK;
    return hl_decode_stream_open(&tracer->stream, tracer->options.tokenizer,
                                 &(hl_decode_options){ .skip_special = true });
}

static hl_status allocate(hl_tracer *tracer, const hl_model *model)
{
    int64_t n_heads = hl_model_get_info(model)->n_heads;
    int64_t n_cells = tracer->config->n_layers * n_heads;
    size_t  n_ctx   = (size_t)tracer->options.n_ctx;
    int64_t n_kept  = HL_SPIKE_MAX_ROWS + 1 + tracer->options.n_back;

    HL_NEED(hl_trace_new(&tracer->trace, tracer->config->n_layers, n_heads,
                         tracer->options.forget ? n_kept : 0));
    /* With `forget`, the kept rows take little memory, and a live view cannot wait for growth. */
    if (tracer->options.forget)
        HL_NEED(hl_trace_reserve(tracer->trace, tracer->options.n_ctx + 1));
    HL_NEED(hl_spikes_new(&tracer->spikes, n_cells, tracer->options.n_back));
    HL_NEED(HL_ALLOC(&tracer->segments, n_ctx));
    memset(tracer->segments, HL_KIND_GENERATED, n_ctx);
    if (!tracer->options.no_change)
        HL_NEED(
            hl_alloc_zeroed((void **)&tracer->previous, (size_t)n_cells, n_ctx * sizeof(float)));
    return open_stream(tracer);
}

hl_status hl_tracer_open(hl_tracer **out, const hl_model *model, const hl_tracer_options *options)
{
    HL_CLOSED(hl_tracer_close) hl_tracer *tracer = NULL;
    const hl_config                      *config = model->config;

    *out = NULL;
    if (config->is_encoder || options->n_ctx < 1)
        return hl_fail(HL_BAD_ARGUMENT, "trace: %s with a context of %lld generates nothing",
                       model->path, (long long)options->n_ctx);
    HL_NEED(HL_ALLOC_ZEROED(&tracer, 1));
    tracer->config  = config;
    tracer->options = *options;
    tracer->offset  = 1;
    tracer->last    = -1;
    tracer->tap     = (hl_tap){ .context = tracer, .layer = trace_layer };
    if (!options->no_change) {
        tracer->tap.wants               = HL_WANT_PATTERN;
        tracer->tap.pattern_positions   = &tracer->whole;
        tracer->tap.n_pattern_positions = 1;
    }
    HL_NEED(allocate(tracer, model));
    *out = hl_taken(&tracer);
    return HL_OK;
}

void hl_tracer_close(hl_tracer *tracer)
{
    if (tracer == NULL)
        return;
    hl_trace_free(tracer->trace);
    hl_spikes_free(tracer->spikes);
    hl_decode_stream_close(tracer->stream);
    hl_free(tracer->segments);
    hl_free(tracer->previous);
    hl_free(tracer);
}

const hl_tap *hl_tracer_tap(const hl_tracer *tracer)
{
    return &tracer->tap;
}

const uint8_t *hl_tracer_segments(const hl_tracer *tracer)
{
    return tracer->segments;
}

const hl_trace *hl_tracer_trace(const hl_tracer *tracer)
{
    return tracer->trace;
}

/* -------------------------------------------------------------------- tokens */

/* Adds a token, and the text that it stands for. */
static hl_status push_token(hl_tracer *tracer, int64_t id, hl_token_kind kind)
{
    hl_trace   *trace   = tracer->trace;
    const char *text    = "";
    size_t      n_bytes = 0;
    size_t      before  = trace->n_text;

    HL_NEED(hl_trace_push(trace, id, kind));
    if (tracer->stream == NULL)
        return HL_OK;
    HL_NEED(hl_decode_stream_push(&text, &n_bytes, tracer->stream, id));
    HL_NEED(hl_trace_append_text(trace, text, n_bytes));
    trace->entities[trace->n_tokens - 1] =
        n_bytes > 0 && hl_begins_entity(trace->text, before, trace->n_text);
    return HL_OK;
}

/* The position at which the next token will be fed. */
static int64_t next_position(const hl_tracer *tracer)
{
    return tracer->trace->n_tokens - tracer->offset + 1;
}

void hl_tracer_begin(hl_tracer *tracer, int64_t position)
{
    tracer->offset = tracer->trace->n_tokens - position;
    look_at(tracer, position);
}

hl_status hl_tracer_prompt(hl_tracer *tracer, const int64_t *tokens, const uint8_t *kinds,
                           int64_t n_tokens)
{
    int64_t first = next_position(tracer);
    int64_t entry = tracer->trace->n_tokens;

    if (n_tokens < 1 || first < 0 || n_tokens > tracer->options.n_ctx - first)
        return hl_fail(HL_LIMIT, "trace: %lld tokens from position %lld on, in a context of %lld",
                       (long long)n_tokens, (long long)first, (long long)tracer->options.n_ctx);
    for (int64_t i = 0; i < n_tokens; i++) {
        hl_token_kind kind = kinds != NULL ? (hl_token_kind)kinds[i] : HL_KIND_PROMPT;

        if (kind >= HL_N_KINDS)
            return hl_fail(HL_BAD_ARGUMENT, "trace: token %lld is of kind %d", (long long)i, kind);
        tracer->segments[first + i] = (uint8_t)kind;
        HL_NEED(push_token(tracer, tokens[i], kind));
    }
    /* The last row of a prompt predicts a token that is scored, so it is not learned before. */
    tracer->learn    = entry + 1;
    tracer->learn_to = tracer->segments[first] != HL_KIND_CONTEXT ? entry + n_tokens : 0;
    look_at(tracer, first + n_tokens - 1);
    return HL_OK;
}

/* The score of the row that predicted an entry's token. */
static double score(hl_tracer *tracer, int64_t entry, bool is_given)
{
    return hl_trace_spike(tracer->spikes, hl_trace_at(tracer->trace, entry, HL_TRACE_NORMALIZED),
                          entry - tracer->offset, is_given);
}

hl_status hl_tracer_add(hl_tracer *tracer, const hl_generated *token)
{
    hl_trace *trace = tracer->trace;
    int64_t   entry = trace->n_tokens;

    for (int64_t i = tracer->learn; i < tracer->learn_to; i++)
        (void)score(tracer, i, true);
    tracer->learn_to = 0;
    HL_NEED(reserve(tracer, entry + 1));
    HL_NEED(push_token(tracer, token->id, HL_KIND_GENERATED));
    trace->numbers[HL_TRACE_LOGPROB][entry]    = token->logprob;
    trace->numbers[HL_TRACE_VOCABULARY][entry] = token->entropy;
    trace->numbers[HL_TRACE_VARENTROPY][entry] = token->varentropy;
    trace->numbers[HL_TRACE_SPIKE][entry]      = score(tracer, entry, false);
    return HL_OK;
}

/* Restarts the stream and decodes all remaining tokens: the bytes it holds back depend on them. */
static hl_status rewind_text(hl_tracer *tracer)
{
    hl_status   status  = open_stream(tracer);
    const char *text    = "";
    size_t      n_bytes = 0;

    for (int64_t i = 0; i < tracer->trace->n_tokens && tracer->stream != NULL; i++)
        HL_NEED(hl_decode_stream_push(&text, &n_bytes, tracer->stream, tracer->trace->ids[i]));
    return status;
}

hl_status hl_tracer_rewind(hl_tracer *tracer, int64_t n_tokens)
{
    int64_t n_back = tracer->trace->n_tokens - n_tokens;

    if (n_tokens < 1 || n_back < 0 || n_back > tracer->options.n_back)
        return hl_fail(HL_BAD_ARGUMENT, "trace: back by %lld tokens, wanted 0 to %lld",
                       (long long)n_back, (long long)tracer->options.n_back);
    hl_spikes_rewind(tracer->spikes, n_back);
    hl_trace_cut(tracer->trace, n_tokens);
    for (int64_t i = next_position(tracer); i >= 0 && i < tracer->options.n_ctx; i++)
        tracer->segments[i] = HL_KIND_GENERATED;
    HL_NEED(rewind_text(tracer));
    hl_tracer_begin(tracer, n_tokens - tracer->offset);
    return HL_OK;
}

/* ---------------------------------------------------------------- once more */

static hl_status retrace_layer(void *context, const hl_layer_rows *rows)
{
    hl_tracer *tracer = context;
    int64_t    first  = rows->start[0] + tracer->offset;

    for (int64_t row = 0; row < rows->lengths[0]; row++) {
        if (first + row < tracer->trace->n_tokens)
            trace_row(tracer, rows, row, first + row, true);
    }
    return HL_OK;
}

hl_status hl_tracer_retrace(hl_tracer *tracer, const hl_model *model, const float *gates,
                            int32_t n_threads)
{
    HL_CLOSED(hl_session_close) hl_session *session = NULL;
    hl_session_options                      options = { .n_ctx      = tracer->options.n_ctx,
                                                        .n_chunk    = HL_PIECE,
                                                        .n_threads  = n_threads,
                                                        .beyond_ctx = true,
                                                        .steady     = true };
    hl_tap                                  tap     = { .context = tracer, .layer = retrace_layer };
    hl_feed                                 feed    = { .tokens     = tracer->trace->ids,
                                                        .n_tokens   = tracer->trace->n_tokens,
                                                        .gates      = gates,
                                                        .segments   = tracer->segments,
                                                        .n_segments = HL_N_KINDS,
                                                        .tap        = &tap };

    if (tracer->options.forget || tracer->offset != 1)
        return hl_fail(HL_BAD_ARGUMENT, "trace: not all of its text and rows are known");
    /* The last token may stand at the end of the context; its row is not needed. */
    feed.n_tokens -= feed.n_tokens > tracer->options.n_ctx;
    HL_NEED(hl_session_open(&session, model, &options));
    return hl_session_feed(session, &feed);
}
