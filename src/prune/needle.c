/* needle.c - texts with needles, what a model makes of them, and which heads find them.
 *
 *     length x depth x sample  ->  text  ->  loss of the answer        every condition
 *                                        ->  where each head looks     other texts: the scores
 *
 * Texts depend on the seed and their place alone, so every condition reads the same ones. */
#include "headlight/needle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/sheet.h"
#include "base/interval.h"
#include "base/memory.h"
#include "base/status.h"
#include "model/model.h"
#include "model/sample.h"
#include "prune/gates.h"

enum { MOST_ANSWER = 32, LEAST_WORDS = 64, MOST_LENGTH = 1024, LEAST_HAY = 8 };
#define RETRIEVES 0.1 /* score of a retrieval head */

static const char *const things[] = { "lamp", "door", "book", "ring", "boat", "coin",
                                      "coat", "drum", "fork", "hat",  "key",  "map",
                                      "pen",  "rope", "bell", "cup" };
enum { N_THINGS = sizeof things / sizeof *things };

typedef struct needle_text {
    int64_t *tokens; /* (n_room) */
    size_t   n_room;
    int64_t  n_tokens;
    int64_t  answer; /* position of the first token of the answer */
    int64_t  n_answer;
    int64_t  places[MOST_ANSWER]; /* positions of the same tokens in the needle */
} needle_text;

typedef struct needle_work {
    const hl_model     *model;
    const hl_tokenizer *tokenizer;
    hl_needle_options   options; /* with defaults filled in */
    hl_needle          *found;
    int64_t            *words; /* (n_words) tokens that copy and pairs draw from */
    int64_t             n_words;
    hl_encoding        *hay; /* facts: the text */
    hl_session         *session;
    needle_text         text;
    int64_t            *targets; /* (longest) */
    int64_t             positions[MOST_ANSWER];
    double             *one;  /* (n_layers, n_heads) hits of the text at hand; borrowed */
    double              loss; /* sums of the text at hand */
    double              n_exact;
    int64_t             n_done; /* texts, for progress */
    int64_t             n_all;
} needle_work;

static void free_work(needle_work *work)
{
    hl_needle_free(work->found);
    hl_encoding_free(work->hay);
    hl_session_close(work->session);
    hl_free(work->words);
    hl_free(work->text.tokens);
    hl_free(work->targets);
}

const char *hl_needle_task_name(hl_needle_task task)
{
    static const char *const names[HL_N_NEEDLE_TASKS] = { "copy", "pairs", "facts" };

    return (unsigned)task < HL_N_NEEDLE_TASKS ? names[task] : "?";
}

/* ----------------------------------------------------------------------- texts */

/* Number n of those that belong to a text. */
static uint64_t draw(const needle_work *work, uint64_t text, uint64_t n)
{
    return hl_random_bits(hl_random_bits(work->options.seed, text), n);
}

/* Is the token a word of lower case, with the space before it? */
static hl_status is_word(bool *out, const hl_tokenizer *tokenizer, int64_t id)
{
    HL_FREED char *text = NULL;
    size_t         n    = 0;

    *out = false;
    if (hl_tokenizer_piece(tokenizer, id, NULL) == NULL ||
        hl_tokenizer_type(tokenizer, id) != HL_TOKEN_NORMAL)
        return HL_OK;
    HL_NEED(hl_tokenizer_decode(&text, &n, tokenizer, &id, 1, NULL));
    size_t first = n > 0 && text[0] == ' ';
    for (size_t i = first; i < n; i++) {
        if (text[i] < 'a' || text[i] > 'z')
            return HL_OK;
    }
    /* Some tokenizers drop the space of the first token. */
    *out = n - first >= 3 && (first == 1 || hl_tokenizer_piece(tokenizer, id, NULL)[0] != text[0]);
    return HL_OK;
}

/* Random words, or all tokens where there are too few. */
static hl_status list_words(needle_work *work)
{
    int64_t d_vocab = work->model->config->d_vocab;

    HL_NEED(HL_ALLOC(&work->words, (size_t)d_vocab));
    for (int64_t id = 0; work->tokenizer != NULL && id < d_vocab; id++) {
        bool is = false;

        HL_NEED(is_word(&is, work->tokenizer, id));
        if (is)
            work->words[work->n_words++] = id;
    }
    if (work->n_words >= LEAST_WORDS)
        return HL_OK;
    work->n_words = d_vocab;
    for (int64_t id = 0; id < d_vocab; id++)
        work->words[id] = id;
    return HL_OK;
}

static bool holds(const int64_t *tokens, int64_t n, int64_t token)
{
    for (int64_t i = 0; i < n; i++) {
        if (tokens[i] == token)
            return true;
    }
    return false;
}

/* Random words: `n_key` words of the needle are the question, `n_value` the answer.  No word of the
 * needle is elsewhere. */
static hl_status make_random(needle_work *work, uint64_t number, int64_t length, double depth,
                             int64_t n_key, int64_t n_value)
{
    needle_text     *t = &work->text;
    hl_around_tokens around =
        work->tokenizer != NULL ? hl_tokenizer_around(work->tokenizer) : (hl_around_tokens){ 0 };
    int64_t  begin = (int64_t)around.n_before;
    int64_t  n_hay = length - begin - 2 * n_key - 2 * n_value;
    int64_t  place = begin + llround(depth * (double)n_hay);
    int64_t  needle[MOST_ANSWER];
    uint64_t n = 0;

    if (n_hay < LEAST_HAY)
        return hl_fail(HL_BAD_ARGUMENT,
                       "needle: a text of %lld tokens has no room for the needle; "
                       "the shortest has %lld",
                       (long long)length, (long long)(length - n_hay + LEAST_HAY));
    for (int64_t i = 0; i < n_key + n_value; i++) {
        do
            needle[i] = work->words[draw(work, number, n++) % (uint64_t)work->n_words];
        while (holds(needle, i, needle[i]));
    }
    t->n_tokens = length;
    t->answer   = length - n_value;
    t->n_answer = n_value;
    for (int64_t i = 0; i < length; i++) {
        int64_t inside = i - place, asked = i - (t->answer - n_key);

        if (i < begin)
            t->tokens[i] = around.before[i];
        else if (inside >= 0 && inside < n_key + n_value)
            t->tokens[i] = needle[inside];
        else if (asked >= 0)
            t->tokens[i] = needle[asked];
        else
            do
                t->tokens[i] = work->words[draw(work, number, n++) % (uint64_t)work->n_words];
            while (holds(needle, n_key + n_value, t->tokens[i]));
    }
    for (int64_t i = 0; i < n_value; i++)
        t->places[i] = place + n_key + i;
    return HL_OK;
}

/* ---------------------------------------------------------------------- facts */

static hl_status encode(hl_encoding **out, const needle_work *work, const char *text)
{
    return hl_tokenizer_encode(out, work->tokenizer, text, strlen(text), NULL);
}

/* The tokens [*first, *first + *n) of an encoded statement that form its code, the last digits. */
static void find_code(int64_t *first, int64_t *n, const hl_encoding *encoding, const char *text)
{
    size_t begin = strcspn(text, "0123456789");
    size_t end   = begin + strspn(text + begin, "0123456789");

    *first = *n = 0;
    for (int64_t i = 0; i < (int64_t)encoding->n_tokens; i++) {
        if (encoding->spans[i].end <= begin || encoding->spans[i].begin >= end)
            continue;
        *first = *n == 0 ? i : *first;
        *n     = i + 1 - *first;
    }
}

/* What stands around a user's message: [0, *before) and the rest of the encoding. */
static hl_status encode_turn(hl_encoding **out, int64_t *before, const hl_tokenizer *tokenizer)
{
    const hl_chat_message message = { "user", "text" };
    hl_chat              *chat    = NULL;
    hl_status             status  = HL_OK;
    int64_t               kept    = 0;

    HL_TRY(hl_chat_render(&chat, tokenizer, &message, 1, NULL));
    HL_TRY(hl_chat_encode(out, tokenizer, chat, &(hl_encode_options){ .add_special = true }));
    *before = -1;
    for (int64_t i = 0; i < (int64_t)(*out)->n_tokens; i++) {
        if ((*out)->roles[i] == HL_ROLE_USER && *before < 0)
            *before = kept;
        if ((*out)->roles[i] != HL_ROLE_USER)
            (*out)->ids[kept++] = (*out)->ids[i];
    }
    (*out)->n_tokens = (size_t)kept;
    *before          = *before < 0 ? kept : *before;

done:
    hl_chat_free(chat);
    return status;
}

/* The first place at or after `at` behind the end of a sentence of the haystack. */
static int64_t after_sentence(const needle_work *work, int64_t at, int64_t end)
{
    const char *text = work->options.text;

    while (at < end && at > 0 && text[work->hay->spans[at - 1].end - 1] != '.')
        at++;
    return at;
}

static void append(needle_text *t, const int64_t *ids, int64_t n)
{
    memcpy(t->tokens + t->n_tokens, ids, (size_t)n * sizeof *ids);
    t->n_tokens += n;
}

/* Parts of a text of facts; each is encoded by itself. */
typedef struct fact_parts {
    hl_encoding *told; /* " The code of the lamp is 483." */
    hl_encoding *asked;
    hl_encoding *answer; /* "The code of the lamp is 483." */
    hl_encoding *turn;   /* what stands around the message; NULL: nothing */
    int64_t      n_before;
} fact_parts;

static void free_parts(fact_parts *parts)
{
    hl_encoding_free(parts->told);
    hl_encoding_free(parts->asked);
    hl_encoding_free(parts->answer);
    hl_encoding_free(parts->turn);
}

/* Puts the parts together around the haystack, of which the text holds as much as has room. */
static hl_status join_parts(needle_work *work, const fact_parts *parts, const char *told,
                            uint64_t number, int64_t length, double depth)
{
    needle_text     *t       = &work->text;
    hl_around_tokens around  = hl_tokenizer_around(work->tokenizer);
    const int64_t   *before  = parts->turn != NULL ? parts->turn->ids : around.before;
    int64_t          n_front = parts->turn != NULL ? parts->n_before : (int64_t)around.n_before;
    int64_t          n_back  = parts->turn != NULL ? (int64_t)parts->turn->n_tokens - n_front : 0;
    int64_t          first, n, answer_first, n_answer;

    find_code(&first, &n, parts->told, told);
    find_code(&answer_first, &n_answer, parts->answer, told + 1);
    if (n < 1 || n > MOST_ANSWER || n != n_answer ||
        memcmp(parts->told->ids + first, parts->answer->ids + answer_first,
               (size_t)n * sizeof(int64_t)) != 0)
        return hl_fail(HL_UNSUPPORTED,
                       "needle: this tokenizer cuts '%s' differently in a text and in an answer",
                       told);
    int64_t n_hay = length - n_front - n_back - (int64_t)parts->told->n_tokens -
                    (int64_t)parts->asked->n_tokens - answer_first - n;
    int64_t n_all = (int64_t)work->hay->n_tokens;
    if (n_hay < LEAST_HAY || n_hay > n_all)
        return hl_fail(HL_BAD_ARGUMENT,
                       "needle: a text of %lld tokens needs %lld of the haystack, which has %lld",
                       (long long)length, (long long)n_hay, (long long)n_all);
    int64_t from  = (int64_t)(draw(work, number, 3) % (uint64_t)(n_all - n_hay + 1));
    int64_t place = after_sentence(work, from + llround(depth * (double)n_hay), from + n_hay);
    if (depth <= 0.0)
        place = from;
    t->n_tokens = 0;
    append(t, before, n_front);
    append(t, work->hay->ids + from, place - from);
    for (int64_t i = 0; i < n; i++)
        t->places[i] = t->n_tokens + first + i;
    append(t, parts->told->ids, (int64_t)parts->told->n_tokens);
    append(t, work->hay->ids + place, from + n_hay - place);
    append(t, parts->asked->ids, (int64_t)parts->asked->n_tokens);
    append(t, before + n_front, n_back);
    t->answer   = t->n_tokens + answer_first;
    t->n_answer = n;
    append(t, parts->answer->ids, answer_first + n);
    return HL_OK;
}

static hl_status make_facts(needle_work *work, uint64_t number, int64_t length, double depth)
{
    HL_SCOPED(free_parts) fact_parts parts   = { 0 };
    const char                      *thing   = things[draw(work, number, 1) % N_THINGS];
    int                              code    = 100 + (int)(draw(work, number, 2) % 900);
    bool                             is_chat = hl_tokenizer_chat_template(work->tokenizer) != NULL;
    char                             told[64], asked[64] = "";

    snprintf(told, sizeof told, " The code of the %s is %d.", thing, code);
    if (is_chat)
        snprintf(asked, sizeof asked, "\n\nWhat is the code of the %s?", thing);
    HL_NEED(encode(&parts.told, work, told));
    HL_NEED(encode(&parts.asked, work, asked));
    /* A continued text needs the space; an answer begins without. */
    HL_NEED(encode(&parts.answer, work, told + 1));
    if (is_chat)
        HL_NEED(encode_turn(&parts.turn, &parts.n_before, work->tokenizer));
    return join_parts(work, &parts, told, number, length, depth);
}

/* `number` identifies the text among all of the seed. */
static hl_status make_text(needle_work *work, uint64_t number, int64_t length, double depth)
{
    switch (work->options.task) {
    case HL_NEEDLE_PAIRS:
        return make_random(work, number, length, depth, 1, 1);
    case HL_NEEDLE_FACTS:
        return make_facts(work, number, length, depth);
    default:
        return make_random(work, number, length, depth, 4, 4);
    }
}

/* ------------------------------------------------------------------- reading them */

static hl_status add_losses(void *context, const hl_final_rows *rows)
{
    needle_work *work = context;

    for (int64_t row = 0; row < rows->n_rows; row++) {
        int64_t target = work->targets[rows->start + row];

        if (target < 0)
            continue;
        work->loss += rows->losses[row];
        work->n_exact += rows->tops[row] == target;
    }
    return HL_OK;
}

/* Counts the heads that have their largest probability on the token that is predicted next. */
static hl_status add_hits(void *context, const hl_layer_rows *rows)
{
    needle_work *work    = context;
    int64_t      n_heads = work->found->n_heads;

    for (int64_t i = 0; i < rows->n_heads * rows->n_patterns; i++) {
        int64_t      at  = i % rows->n_patterns;
        int64_t      row = rows->pattern_rows[at];
        const float *p   = rows->pattern + i * rows->n_keys;
        int64_t      n = rows->start[0] + row + 1, answer = 0, top = 0;

        if (row < 0)
            continue;
        for (int64_t key = 1; key < n; key++)
            top = p[key] > p[top] ? key : top;
        answer = n - work->text.answer;
        work->one[rows->layer * n_heads + i / rows->n_patterns] +=
            top == work->text.places[answer] ? 1.0 / (double)work->text.n_answer : 0.0;
    }
    return HL_OK;
}

static hl_status open_session(needle_work *work, const hl_model *model, bool with_rows)
{
    int64_t longest = 0;

    hl_session_close(work->session);
    work->session = NULL;
    for (int64_t i = 0; i < work->found->n_lengths; i++)
        longest = work->found->lengths[i] > longest ? work->found->lengths[i] : longest;
    return hl_session_open(&work->session, model,
                           &(hl_session_options){ .n_ctx      = longest,
                                                  .wants      = with_rows
                                                                    ? HL_WANT_LOSSES | HL_WANT_PATTERN
                                                                    : HL_WANT_LOSSES,
                                                  .n_patterns = with_rows ? MOST_ANSWER : 0,
                                                  .n_threads  = work->options.n_threads });
}

/* Reads the text that was made. */
static hl_status read_text(needle_work *work, const float *gates, bool with_rows)
{
    needle_text *t   = &work->text;
    hl_tap       tap = { .context = work,
                         .final   = add_losses,
                         .layer   = with_rows ? add_hits : NULL,
                         .wants   = with_rows ? HL_WANT_LOSSES | HL_WANT_PATTERN : HL_WANT_LOSSES,
                         .pattern_positions   = work->positions,
                         .n_pattern_positions = with_rows ? t->n_answer : 0 };

    for (int64_t i = 0; i < t->n_tokens; i++)
        work->targets[i] = -1;
    for (int64_t i = 0; i < t->n_answer; i++) {
        work->targets[t->answer - 1 + i] = t->tokens[t->answer + i];
        work->positions[i]               = t->answer - 1 + i;
    }
    work->loss = work->n_exact = 0.0;
    HL_NEED(hl_session_rewind(work->session, 0, 0));
    HL_NEED(hl_session_feed(work->session, &(hl_feed){ .tokens   = t->tokens,
                                                       .n_tokens = t->n_tokens,
                                                       .targets  = work->targets,
                                                       .gates    = gates,
                                                       .tap      = &tap }));
    if (!isfinite(work->loss))
        return hl_fail(HL_BAD_INPUT, "needle: the loss of a text of %lld tokens is not finite",
                       (long long)t->n_tokens);
    work->n_done++;
    hl_progress progress = { .stage     = with_rows ? "scores" : "needles",
                             .share     = (double)work->n_done / (double)work->n_all,
                             .n_windows = work->n_done };
    return work->options.progress == NULL
               ? HL_OK
               : work->options.progress(work->options.context, &progress);
}

/* Texts of scores have other numbers than those of losses. */
static uint64_t number_of(int64_t text, bool is_scored)
{
    return 2 * (uint64_t)text + (is_scored ? 1 : 0);
}

/* ---------------------------------------------------------------------- scores */

static double score_of(const hl_needle *needle, int64_t head)
{
    int64_t size = needle->n_layers * needle->n_heads;
    double  sum  = 0.0;

    for (int64_t text = 0; text < needle->n_scored; text++)
        sum += needle->scores[text * size + head];
    return sum / (double)needle->n_scored;
}

static int compare_scores(const void *left, const void *right)
{
    const hl_ranked *a = left, *b = right;

    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    if (a->layer != b->layer)
        return a->layer < b->layer ? -1 : 1;
    return a->head < b->head ? -1 : a->head > b->head;
}

static hl_status find_scores(needle_work *work)
{
    hl_needle *found = work->found;
    int64_t    size = found->n_layers * found->n_heads, per_cell = work->options.n_ranked;

    found->n_scored = found->n_lengths * found->n_depths * per_cell;
    HL_NEED(hl_alloc_zeroed((void **)&found->scores, (size_t)found->n_scored,
                            (size_t)size * sizeof *found->scores));
    HL_NEED(HL_ALLOC(&found->ranked, (size_t)size));
    HL_NEED(open_session(work, work->model, true));
    for (int64_t i = 0; i < found->n_scored; i++) {
        int64_t cell = i / per_cell;

        work->one = found->scores + i * size;
        HL_NEED(make_text(work, number_of(i, true), found->lengths[cell / found->n_depths],
                          found->depths[cell % found->n_depths]));
        hl_status status = read_text(work, NULL, true);
        work->one        = NULL;
        HL_NEED(status);
    }
    for (int64_t layer = 0; layer < found->n_layers; layer++) {
        for (int64_t head = 0; head < hl_heads_of(work->model, layer); head++)
            found->ranked[found->n_ranked++] =
                (hl_ranked){ layer, head, score_of(found, layer * found->n_heads + head) };
    }
    if (found->n_ranked == 0)
        return hl_fail(HL_UNSUPPORTED, "needle: %s has no attention heads", work->model->path);
    qsort(found->ranked, (size_t)found->n_ranked, sizeof *found->ranked, compare_scores);
    return HL_OK;
}

/* ------------------------------------------------------------------ conditions */

static hl_status new_condition(hl_needle_condition **out, hl_needle *found, const char *name,
                               int64_t n_sets, int64_t n_disabled)
{
    hl_needle_condition *c = &found->conditions[found->n_conditions++];

    snprintf(c->name, sizeof c->name, "%s", name);
    c->n_sets     = n_sets;
    c->n_disabled = n_disabled;
    HL_NEED(HL_ALLOC(&c->disabled, (size_t)(n_sets * n_disabled + 1)));
    HL_NEED(HL_ALLOC(&c->losses, (size_t)(n_sets * found->n_texts)));
    HL_NEED(HL_ALLOC(&c->exact, (size_t)(n_sets * found->n_texts)));
    *out = c;
    return HL_OK;
}

/* Reads every text once per set. */
static hl_status run_condition(needle_work *work, const hl_model *model, hl_needle_condition *c)
{
    const hl_needle                   *found = work->found;
    HL_CLOSED(hl_gates_free) hl_gates *gates = NULL;

    HL_NEED(open_session(work, model, false));
    HL_NEED(hl_gates_new(&gates, model));
    for (int64_t set = 0; set < c->n_sets; set++) {
        const hl_head_list list = { c->disabled + set * c->n_disabled, c->n_disabled };

        for (int64_t i = 0; i < found->n_layers * found->n_heads; i++)
            gates->values[i] = 1.0f;
        hl_gates_set(gates, &list, 0.0f);
        for (int64_t i = 0; i < found->n_texts; i++) {
            int64_t cell = i / found->n_samples;

            HL_NEED(make_text(work, number_of(i, false), found->lengths[cell / found->n_depths],
                              found->depths[cell % found->n_depths]));
            HL_NEED(read_text(work, c->n_disabled > 0 ? gates->values : NULL, false));
            c->losses[set * found->n_texts + i] = work->loss / (double)work->text.n_answer;
            c->exact[set * found->n_texts + i]  = work->n_exact / (double)work->text.n_answer;
        }
    }
    return HL_OK;
}

/* How many heads are disabled by default: those that retrieve, at least one, at most a quarter. */
static int64_t count_disabled(const needle_work *work)
{
    const hl_needle *found = work->found;
    int64_t          n = 0, most = found->n_ranked / 4 > 0 ? found->n_ranked / 4 : 1;

    while (n < found->n_ranked && found->ranked[n].score >= RETRIEVES)
        n++;
    return n < 1 ? 1 : n > most ? most : n;
}

/* Draws heads other than the first n_disabled of the ranking, each once per set. */
static void draw_heads(const needle_work *work, hl_needle_condition *c)
{
    const hl_needle *found    = work->found;
    int64_t          n_others = found->n_ranked - c->n_disabled;

    for (int64_t set = 0; set < c->n_sets; set++) {
        hl_head *heads = c->disabled + set * c->n_disabled;
        uint64_t n     = 0;

        for (int64_t i = 0; i < c->n_disabled; i++) {
            bool is_new = false;

            while (!is_new) {
                uint64_t         bits = draw(work, UINT64_MAX - (uint64_t)set, n++);
                const hl_ranked *drawn =
                    &found->ranked[c->n_disabled + (int64_t)(bits % (uint64_t)n_others)];

                is_new = true;
                for (int64_t k = 0; k < i; k++)
                    is_new =
                        is_new && !(heads[k].layer == drawn->layer && heads[k].head == drawn->head);
                heads[i] = (hl_head){ drawn->layer, drawn->head };
            }
        }
    }
}

static hl_status run_all(needle_work *work)
{
    hl_needle               *found   = work->found;
    const hl_needle_options *options = &work->options;
    hl_needle_condition     *c       = NULL;
    int64_t n_disabled = options->n_disabled != 0 ? options->n_disabled : count_disabled(work);

    if (n_disabled > found->n_ranked / 2)
        return hl_fail(
            HL_BAD_ARGUMENT,
            "needle: %lld of %lld heads are to be disabled, at most half can be: as many "
            "others are disabled for comparison",
            (long long)n_disabled, (long long)found->n_ranked);
    HL_NEED(HL_ALLOC_ZEROED(&found->conditions, (size_t)(3 + options->n_others)));
    HL_NEED(new_condition(&c, found, "all heads", 1, 0));
    HL_NEED(run_condition(work, work->model, c));
    if (n_disabled > 0) {
        HL_NEED(new_condition(&c, found, "without the top heads", 1, n_disabled));
        for (int64_t i = 0; i < n_disabled; i++)
            c->disabled[i] = (hl_head){ found->ranked[i].layer, found->ranked[i].head };
        HL_NEED(run_condition(work, work->model, c));
        HL_NEED(new_condition(&c, found, "without random heads", options->n_random, n_disabled));
        draw_heads(work, c);
        HL_NEED(run_condition(work, work->model, c));
    }
    for (int64_t i = 0; i < options->n_others; i++) {
        HL_NEED(new_condition(&c, found, options->others[i].name, 1, 0));
        HL_NEED(run_condition(work, options->others[i].model, c));
    }
    return HL_OK;
}

/* --------------------------------------------------------------------- options */

static hl_status check_options(const needle_work *work)
{
    const hl_needle_options *o      = &work->options;
    const hl_config         *config = work->model->config;

    if (config->is_encoder)
        return hl_fail(HL_UNSUPPORTED, "%s is an encoder, which does not predict the next token",
                       work->model->path);
    if ((unsigned)o->task >= HL_N_NEEDLE_TASKS)
        return hl_fail(HL_BAD_ARGUMENT, "needle: there is no task %d", (int)o->task);
    if (o->task == HL_NEEDLE_FACTS && (work->tokenizer == NULL || o->text == NULL))
        return hl_fail(HL_BAD_ARGUMENT, "needle: facts need a tokenizer and a text");
    if (o->n_lengths > HL_NEEDLE_MOST || o->n_depths > HL_NEEDLE_MOST ||
        o->n_others > HL_NEEDLE_MOST || o->n_samples > 100000 || o->n_ranked > 100000 ||
        o->n_random > 1000)
        return hl_fail(HL_BAD_ARGUMENT,
                       "needle: at most %d lengths, depths and models, 100000 texts and 1000 sets",
                       HL_NEEDLE_MOST);
    if (o->n_samples < 0 || o->n_ranked < 0 || o->n_random < 0 || o->n_disabled < -1)
        return hl_fail(HL_BAD_ARGUMENT, "needle: a number of texts, heads or sets is negative");
    for (int64_t i = 0; i < o->n_depths; i++) {
        if (!(o->depths[i] >= 0.0 && o->depths[i] <= 1.0))
            return hl_fail(HL_BAD_ARGUMENT, "needle: a depth of %g, wanted 0 to 1", o->depths[i]);
    }
    for (int64_t i = 0; i < o->n_others; i++) {
        const hl_config *other = o->others[i].model->config;

        if (other->d_vocab != config->d_vocab || other->is_encoder)
            return hl_fail(HL_BAD_INPUT,
                           "%s has a vocabulary of %lld tokens, and %s one of %lld: they cannot "
                           "read the same texts",
                           o->others[i].model->path, (long long)other->d_vocab, work->model->path,
                           (long long)config->d_vocab);
    }
    return HL_OK;
}

static hl_status set_lengths(needle_work *work)
{
    hl_needle               *found = work->found;
    const hl_needle_options *o     = &work->options;
    int64_t                  most  = hl_config_ctx(work->model->config, 0);

    most = most < MOST_LENGTH ? most : MOST_LENGTH;
    HL_NEED(HL_ALLOC(&found->lengths, HL_NEEDLE_MOST));
    HL_NEED(HL_ALLOC(&found->depths, HL_NEEDLE_MOST));
    for (int64_t i = 0; i < o->n_lengths; i++)
        found->lengths[found->n_lengths++] = o->lengths[i];
    for (int64_t length = 64; length <= most && o->n_lengths == 0; length *= 2)
        found->lengths[found->n_lengths++] = length;
    if (found->n_lengths == 0)
        found->lengths[found->n_lengths++] = most;
    for (int64_t i = 0; i < found->n_lengths; i++) {
        if (found->lengths[i] < 2 || found->lengths[i] > work->model->config->n_ctx)
            return hl_fail(HL_BAD_ARGUMENT, "needle: a length of %lld, wanted 2 to %lld",
                           (long long)found->lengths[i], (long long)work->model->config->n_ctx);
    }
    found->n_depths = o->n_depths > 0 ? o->n_depths : 5;
    for (int64_t i = 0; i < found->n_depths; i++)
        found->depths[i] = o->n_depths > 0 ? o->depths[i] : 0.25 * (double)i;
    return HL_OK;
}

/* Fills in the defaults, and makes room. */
static hl_status prepare(needle_work *work)
{
    hl_needle_options *o     = &work->options;
    hl_needle         *found = NULL;

    HL_NEED(check_options(work));
    o->n_samples = o->n_samples > 0 ? o->n_samples : 4;
    o->n_ranked  = o->n_ranked > 0 ? o->n_ranked : 2;
    o->n_random  = o->n_random > 0 ? o->n_random : 5;
    HL_NEED(HL_ALLOC_ZEROED(&work->found, 1));
    found            = work->found;
    found->task      = o->task;
    found->n_layers  = work->model->config->n_layers;
    found->n_heads   = work->model->config->n_heads;
    found->n_samples = o->n_samples;
    HL_NEED(set_lengths(work));
    found->n_texts  = found->n_lengths * found->n_depths * found->n_samples;
    int64_t n_cells = found->n_lengths * found->n_depths;
    int64_t n_runs  = 1 + o->n_others + (o->n_disabled >= 0 ? 1 + o->n_random : 0);
    work->n_all     = n_cells * o->n_ranked + n_runs * found->n_texts;
    int64_t room    = 0;
    for (int64_t i = 0; i < found->n_lengths; i++)
        room = found->lengths[i] > room ? found->lengths[i] : room;
    HL_NEED(HL_ALLOC(&work->text.tokens, (size_t)room));
    HL_NEED(HL_ALLOC(&work->targets, (size_t)room));
    if (o->task == HL_NEEDLE_FACTS)
        return hl_tokenizer_encode(&work->hay, work->tokenizer, o->text, o->n_text, NULL);
    return list_words(work);
}

hl_status hl_needle_run(hl_needle **out, const hl_model *model, const hl_tokenizer *tokenizer,
                        const hl_needle_options *options)
{
    HL_SCOPED(free_work) needle_work work = { .model = model, .tokenizer = tokenizer };

    *out = NULL;
    if (options != NULL)
        work.options = *options;
    HL_NEED(prepare(&work));
    HL_NEED(find_scores(&work));
    HL_NEED(run_all(&work));
    *out = hl_taken(&work.found);
    return HL_OK;
}

void hl_needle_free(hl_needle *needle)
{
    if (needle == NULL)
        return;
    for (int64_t i = 0; i < needle->n_conditions; i++) {
        hl_free(needle->conditions[i].disabled);
        hl_free(needle->conditions[i].losses);
        hl_free(needle->conditions[i].exact);
    }
    hl_free(needle->conditions);
    hl_free(needle->lengths);
    hl_free(needle->depths);
    hl_free(needle->scores);
    hl_free(needle->ranked);
    hl_free(needle);
}

/* --------------------------------------------------------------------- results */

/* The interval of a mean over texts, and over sets of which each gives a mean of its own. */
static hl_interval interval_of(double *mean, const double *values, int64_t n_sets, int64_t n,
                               double *room)
{
    double sum = 0.0, squares = 0.0;

    for (int64_t i = 0; i < n_sets * n; i++)
        sum += values[i];
    *mean = sum / (double)(n_sets * n);
    for (int64_t i = 0; i < n; i++) { /* without text i */
        double own = 0.0;
        for (int64_t set = 0; set < n_sets; set++)
            own += values[set * n + i];
        room[i] = n > 1 ? (sum - own) / (double)(n_sets * (n - 1)) : NAN;
    }
    hl_error error = hl_jackknife_error(*mean, room, n, HL_SCALE_PLAIN);
    for (int64_t set = 0; set < n_sets && n_sets > 1; set++) {
        double own = 0.0;
        for (int64_t i = 0; i < n; i++)
            own += values[set * n + i] / (double)n;
        squares += (own - *mean) * (own - *mean);
    }
    if (n_sets > 1)
        error =
            hl_error_add(error, (hl_error){ .variance = squares / (double)(n_sets * (n_sets - 1)),
                                            .freedom  = (double)(n_sets - 1) });
    return hl_interval_of(*mean, error, HL_SCALE_PLAIN, n, HL_UNITS_DOCUMENTS);
}

/* Copies what belongs to a length and depth, less `base` where that is given. */
static int64_t select_texts(double *out, const hl_needle *needle, const double *values,
                            int64_t n_sets, const double *base, int64_t length, int64_t depth)
{
    int64_t n = 0;

    for (int64_t set = 0; set < n_sets; set++) {
        for (int64_t i = 0; i < needle->n_texts; i++) {
            int64_t cell = i / needle->n_samples;

            if ((length >= 0 && cell / needle->n_depths != length) ||
                (depth >= 0 && cell % needle->n_depths != depth))
                continue;
            out[n++] = values[set * needle->n_texts + i] - (base != NULL ? base[i] : 0.0);
        }
    }
    return n / n_sets;
}

hl_status hl_needle_score_of(hl_needle_score *out, const hl_needle *needle, int64_t condition,
                             int64_t length, int64_t depth)
{
    const hl_needle_condition *c      = &needle->conditions[condition];
    HL_FREED double           *values = NULL, *room = NULL;
    int64_t                    n = 0;

    HL_NEED(HL_ALLOC(&values, (size_t)(c->n_sets * needle->n_texts)));
    HL_NEED(HL_ALLOC(&room, (size_t)needle->n_texts));
    n                  = select_texts(values, needle, c->losses, c->n_sets, NULL, length, depth);
    out->loss_interval = interval_of(&out->loss, values, c->n_sets, n, room);
    n = select_texts(values, needle, c->losses, c->n_sets, needle->conditions[0].losses, length,
                     depth);
    out->rise_interval = interval_of(&out->rise, values, c->n_sets, n, room);
    n                  = select_texts(values, needle, c->exact, c->n_sets, NULL, length, depth);
    interval_of(&out->exact, values, c->n_sets, n, room);
    return HL_OK;
}

static hl_status fill_conditions(hl_sheet *table, const hl_needle *needle)
{
    for (int64_t i = 0; i < needle->n_conditions; i++) {
        const hl_needle_condition *c = &needle->conditions[i];
        hl_needle_score            s;

        HL_NEED(hl_needle_score_of(&s, needle, i, -1, -1));
        if (i == 0)
            hl_sheet_fact_interval(table, &s.loss_interval);
        hl_sheet_put_text(table, "%s", c->name);
        hl_sheet_put_ints(table, c->n_disabled, c->n_sets);
        hl_sheet_put_reals(table, s.loss, s.loss_interval.low, s.loss_interval.high, s.exact);
        if (i > 0)
            hl_sheet_put_reals(table, s.rise, s.rise_interval.low, s.rise_interval.high);
        else
            hl_sheet_put_reals(table, NAN, NAN, NAN);
    }
    return HL_OK;
}

static hl_status fill_cells(hl_sheet *table, const hl_needle *needle)
{
    for (int64_t i = 0; i < needle->n_conditions; i++) {
        for (int64_t cell = 0; cell < needle->n_lengths * needle->n_depths; cell++) {
            int64_t         length = cell / needle->n_depths, depth = cell % needle->n_depths;
            hl_needle_score s;

            HL_NEED(hl_needle_score_of(&s, needle, i, length, depth));
            hl_sheet_put_text(table, "%s", needle->conditions[i].name);
            hl_sheet_put_int(table, needle->lengths[length]);
            hl_sheet_put_real(table, needle->depths[depth]);
            hl_sheet_put_int(table, needle->n_samples);
            hl_sheet_put_reals(table, s.loss, s.loss_interval.low, s.loss_interval.high, s.exact);
        }
    }
    return HL_OK;
}

static hl_status fill_heads(hl_sheet *table, const hl_needle *needle)
{
    int64_t          size = needle->n_layers * needle->n_heads, n = needle->n_scored;
    HL_FREED double *without = NULL;

    HL_NEED(HL_ALLOC(&without, (size_t)n));
    for (int64_t i = 0; i < needle->n_ranked; i++) {
        const hl_ranked *head = &needle->ranked[i];
        int64_t          at   = head->layer * needle->n_heads + head->head;

        for (int64_t k = 0; k < n; k++)
            without[k] =
                n > 1 ? (head->score * (double)n - needle->scores[k * size + at]) / (double)(n - 1)
                      : NAN;
        hl_interval interval =
            hl_jackknife(head->score, without, n, HL_SCALE_PLAIN, HL_UNITS_DOCUMENTS);
        if (i == 0)
            hl_sheet_fact_interval(table, &interval);
        hl_sheet_put_int(table, i + 1);
        hl_sheet_put_text(table, "L%lldH%lld", (long long)head->layer, (long long)head->head);
        hl_sheet_put_ints(table, head->layer, head->head);
        hl_sheet_put_reals(table, head->score, fmax(interval.low, 0.0) + 0.0 * interval.low,
                           fmin(interval.high, 1.0) + 0.0 * interval.high);
        hl_sheet_put_bool(table, head->score >= RETRIEVES);
    }
    return HL_OK;
}

hl_status hl_needle_sheet(hl_sheet **out, const hl_needle *needle, const char *name)
{
    static const struct {
        const char *name, *title, *columns;
        hl_status (*fill)(hl_sheet *table, const hl_needle *needle);
    } tables[] = {
        { "conditions", "Loss of the needle",
          "condition:t disabled:i sets:i loss:3 loss_low:3 loss_high:3 exact:3 rise:3 rise_low:3 "
          "rise_high:3",
          fill_conditions },
        { "cells", "Loss of the needle by length and depth",
          "condition:t length:i depth:2 texts:i loss:3 loss_low:3 loss_high:3 exact:3",
          fill_cells },
        { "heads", "Retrieval scores",
          "rank:i name:t layer:i head:i score:3 score_low:3 score_high:3 retrieves:b", fill_heads },
    };
    hl_sheet *table = NULL;

    *out = NULL;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        if (strcmp(tables[i].name, name) != 0)
            continue;
        HL_NEED(hl_sheet_new(&table, tables[i].name, tables[i].title, tables[i].columns));
        hl_status status = tables[i].fill(table, needle);
        hl_sheet_fact_text(table, "task", "%s", hl_needle_task_name(needle->task));
        hl_sheet_fact_real(
            table, "texts",
            (double)(strcmp(name, "heads") == 0 ? needle->n_scored : needle->n_texts));
        return hl_sheet_hand_over(out, table, status);
    }
    return hl_fail(HL_BAD_ARGUMENT, "needle: no table '%s'; there are conditions, cells, heads",
                   name);
}
