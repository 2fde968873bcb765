/* sweep.c - rankings on one text, what they cost on another: the stages of the work.
 *
 *     measure    heads on the ranking text; each disabled alone, for the ranker that asks
 *     order      heads by every ranker, and by every seed (sweep_orders.c)
 *     evaluate   all settings of gates on the test text, each head alone among them, in one walk
 *     words      how often the last word of a text is predicted, if asked
 *     conclude   means, intervals and correlations, in tables and in words (sweep_verdict.c)
 *
 * Whatever takes time is put into the state under a name when it is done, so that a sweep that
 * resumes finds it there: rankings one by one, evaluations batch by batch, and setting by
 * setting of a batch when it is time to save. */
#include "prune/sweep_stages.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/machine.h"
#include "base/memory.h"
#include "base/status.h"
#include "kernels/gemm.h"
#include "measure/corpus.h"
#include "measure/perplexity.h"
#include "model/backward.h"
#include "model/model.h"
#include "prune/evaluate.h"
#include "prune/stream_walk.h"

enum {
    DEFAULT_SEEDS  = 10,
    MAX_SEEDS      = 100000,
    MAX_RATIOS     = 1000,
    DEFAULT_RATIOS = 8,
    MAX_KEY        = 512
};
#define DEFAULT_SAVE 30.0

static const char *const table_names[] = { "points", "random",  "correlation",
                                           "heads",  "savings", "repair" };

/* ----------------------------------------------------------------------- options */

static hl_status copy_rankers(hl_ranker **out, const hl_ranker *from, int64_t n)
{
    HL_NEED(HL_ALLOC(out, (size_t)n));
    if (n > 0)
        memcpy(*out, from, (size_t)n * sizeof *from);
    return HL_OK;
}

/* Chooses all rankers except random, which is always present, auto, which is one of the others, and
 * those that need the surgeon or gradients, where these cannot be. */
static hl_status choose_all(hl_sweep *s)
{
    HL_NEED(HL_ALLOC(&s->rankers, HL_N_RANKERS));
    s->options.n_rankers = 0;
    for (hl_ranker ranker = 0; ranker < HL_N_RANKERS; ranker++) {
        if (ranker == HL_RANKER_SURGEON &&
            (hl_lapack_check() != HL_OK || hl_walk_check(s->model) != HL_OK))
            continue;
        if ((hl_ranker_needs(ranker) & HL_NEEDS_GRADIENT) != 0 &&
            hl_backward_check(s->model) != HL_OK)
            continue;
        if (ranker != HL_RANKER_RANDOM && ranker != HL_RANKER_AUTO)
            s->rankers[s->options.n_rankers++] = ranker;
    }
    return HL_OK;
}

static hl_status check_rankers(const hl_sweep *s)
{
    for (int64_t i = 0; i < s->options.n_rankers; i++) {
        if (s->rankers[i] >= HL_N_RANKERS || s->rankers[i] == HL_RANKER_RANDOM)
            return hl_fail(
                HL_BAD_ARGUMENT,
                "sweep: random orders are always measured; leave random out of the rankers");
        if (s->rankers[i] == HL_RANKER_AUTO)
            return hl_fail(HL_BAD_ARGUMENT,
                           "sweep: auto is not a ranker of its own; name gradient or output-norm");
    }
    for (int64_t i = 0; i < s->options.n_iterative; i++) {
        if (s->iterative[i] >= HL_N_RANKERS || !hl_ranker_can_reselect(s->iterative[i]))
            return hl_fail(HL_BAD_ARGUMENT,
                           "sweep: %s does not use a text, so it cannot be iterative",
                           hl_ranker_name((size_t)s->iterative[i]));
    }
    if (s->options.n_rankers + s->options.n_iterative == 0)
        return hl_fail(HL_BAD_ARGUMENT, "sweep: no rankers");
    return HL_OK;
}

static hl_status complete_ratios(hl_sweep *s, const hl_sweep_options *given)
{
    int64_t n = given->ratios != NULL ? given->n_ratios : DEFAULT_RATIOS;

    if (n < 1 || n > MAX_RATIOS)
        return hl_fail(HL_BAD_ARGUMENT, "sweep: %lld ratios, wanted 1 to %d", (long long)n,
                       MAX_RATIOS);
    HL_NEED(HL_ALLOC(&s->ratios, (size_t)n));
    for (int64_t i = 0; i < n; i++) {
        s->ratios[i] = given->ratios != NULL ? given->ratios[i] : (double)i / 10.0;
        if (!(s->ratios[i] >= 0.0 && s->ratios[i] < 1.0) ||
            (i > 0 && s->ratios[i] <= s->ratios[i - 1]))
            return hl_fail(HL_BAD_ARGUMENT,
                           "sweep: ratio %lld is %g; ratios must rise, be at least 0 and below 1",
                           (long long)i, s->ratios[i]);
    }
    s->options.n_ratios = n;
    return HL_OK;
}

static hl_status complete_options(hl_sweep *s, const hl_sweep_options *given)
{
    hl_sweep_options *o = &s->options;

    *o            = *given;
    o->n_seeds    = o->n_seeds != 0 ? o->n_seeds : DEFAULT_SEEDS;
    o->save_every = o->save_every > 0.0 ? o->save_every : DEFAULT_SAVE;
    o->n_ctx      = hl_config_ctx(s->model->config, o->n_ctx);
    if (o->n_seeds < 2 || o->n_seeds > MAX_SEEDS)
        return hl_fail(HL_BAD_ARGUMENT, "sweep: %lld seeds, wanted 2 to %d", (long long)o->n_seeds,
                       MAX_SEEDS);
    if (given->rankers != NULL)
        HL_NEED(copy_rankers(&s->rankers, given->rankers, given->n_rankers));
    else
        HL_NEED(choose_all(s));
    HL_NEED(copy_rankers(&s->iterative, given->iterative, given->n_iterative));
    HL_NEED(check_rankers(s));
    return complete_ratios(s, given);
}

/* ------------------------------------------------------------------------- texts */

static bool has_document(const hl_corpus *corpus, uint64_t hash)
{
    hl_document_info info;

    for (int64_t i = 0; i < hl_corpus_get_info(corpus)->n_documents; i++) {
        if (hl_corpus_get_document(&info, corpus, i) == HL_OK && info.hash == hash)
            return true;
    }
    return false;
}

/* A ranking made on the test text looks better than it is. */
static hl_status check_texts(const hl_sweep *s)
{
    hl_document_info info;

    for (int64_t i = 0; i < hl_corpus_get_info(s->test_corpus)->n_documents; i++) {
        HL_NEED(hl_corpus_get_document(&info, s->test_corpus, i));
        if (!s->options.shared_texts && has_document(s->rank_corpus, info.hash))
            return hl_fail(HL_BAD_ARGUMENT,
                           "%s (hash %016" PRIx64
                           ") is in both texts; rank on one text and test on "
                           "another (--same-text allows it)",
                           info.name, info.hash);
    }
    return HL_OK;
}

/* ------------------------------------------------------------------------- state */

static bool is_due(const hl_sweep *s)
{
    return hl_clock_seconds() - s->saved_at >= s->options.save_every;
}

hl_status hl_sweep_save(hl_sweep *s, bool in_any_case)
{
    if (!in_any_case && !is_due(s))
        return HL_OK;
    hl_status status = hl_sweep_state_save(s->state);
    s->saved_at      = hl_clock_seconds();
    return status;
}

/* Hashes the contents of lists. */
static uint64_t hash_lists(const hl_sweep *s)
{
    hl_hasher hasher;

    hl_hash_start(&hasher, 0);
    for (int64_t i = 0; i < s->options.n_rankers; i++)
        hl_hash_add_u64(&hasher, (uint64_t)s->rankers[i]);
    hl_hash_add_u64(&hasher, UINT64_MAX);
    for (int64_t i = 0; i < s->options.n_iterative; i++)
        hl_hash_add_u64(&hasher, (uint64_t)s->iterative[i]);
    hl_hash_add(&hasher, s->ratios, (size_t)s->options.n_ratios * sizeof *s->ratios);
    for (int64_t i = 0; i < s->options.n_words; i++) {
        const hl_word_text *text = &s->options.words[i];
        hl_hash_add(&hasher, text->tokens, (size_t)text->n_tokens * sizeof *text->tokens);
        hl_hash_add_u64(&hasher, (uint64_t)text->first);
    }
    return hl_hash_end(&hasher);
}

/* The state's key covers everything that the numbers depend on. */
static hl_status open_state(hl_sweep *s)
{
    const hl_sweep_options *o     = &s->options;
    uint64_t                model = 0;
    hl_around_tokens        around;
    char                    key[MAX_KEY];

    HL_NEED(hl_model_hash(&model, s->model, o->n_threads));
    snprintf(key, sizeof key,
             "model %016" PRIx64 " rank %016" PRIx64 " test %016" PRIx64
             " rankers, ratios %016" PRIx64 " seeds %" PRId64 " from %" PRIu64 " layer max %" PRId64
             " empty %d groups %d tokens %" PRId64 " %" PRId64 " context %" PRId64,
             model, hl_corpus_get_info(s->rank_corpus)->hash,
             hl_corpus_get_info(s->test_corpus)->hash, hash_lists(s), o->n_seeds, o->seed,
             o->per_layer_max, o->empty_layers, o->groups, o->rank_tokens, o->test_tokens,
             o->n_ctx);
    HL_NEED(hl_corpus_around(&around, s->test_corpus));
    if (around.n_before + around.n_after > 0 && o->around != HL_AROUND_DOCUMENT)
        snprintf(key + strlen(key), sizeof key - strlen(key), " special %s",
                 hl_around_name(o->around));
    if (o->repair)
        snprintf(key + strlen(key), sizeof key - strlen(key), " repair");
    if (o->no_singles)
        snprintf(key + strlen(key), sizeof key - strlen(key), " no singles");
    HL_NEED(hl_sweep_state_new(&s->state, o->state_path, key));
    if (o->resume)
        HL_NEED(hl_sweep_state_load(s->state));
    s->saved_at = hl_clock_seconds();
    return HL_OK;
}

/* -------------------------------------------------------------------- evaluating */

/* Scores as a list: the number of windows, then (n_settings + 1, n_done, 3), the reference model
 * first. */
static int64_t list_length(const hl_evaluation *found, int64_t n_done)
{
    return 1 + 3 * n_done * (found->n_settings + 1);
}

static hl_scores *row_of(const hl_evaluation *found, int64_t setting)
{
    return setting < 0 ? found->dense : found->scores + setting * found->n_windows;
}

static hl_status keep_scores(hl_sweep *s, hl_evaluator *e, const char *name)
{
    const hl_evaluation *found  = hl_evaluator_result(e);
    int64_t              n_done = hl_evaluator_n_done(e);
    HL_FREED double     *list   = NULL;

    HL_NEED(HL_ALLOC(&list, (size_t)list_length(found, n_done)));
    list[0]     = (double)n_done;
    double *out = list + 1;
    for (int64_t setting = -1; setting < found->n_settings; setting++) {
        for (int64_t i = 0; i < n_done; i++, out += 3) {
            hl_scores_write(out, &row_of(found, setting)[i]);
        }
    }
    HL_NEED(hl_sweep_state_put(s->state, name, list, list_length(found, n_done)));
    return hl_sweep_save(s, false);
}

/* The file is untrusted: checks that numbers and counts are possible. */
static hl_status read_scores(const hl_evaluation *found, const double *in, int64_t n_done)
{
    for (int64_t setting = -1; setting < found->n_settings; setting++) {
        for (int64_t i = 0; i < n_done; i++, in += 3) {
            if (!hl_scores_read(&row_of(found, setting)[i], in, found->scored[i]))
                return hl_fail(HL_BAD_INPUT,
                               "the state's scores of setting %lld, window %lld, are impossible: "
                               "%g, %g, %g of %lld",
                               (long long)setting, (long long)i, in[0], in[1], in[2],
                               (long long)found->scored[i]);
        }
    }
    return HL_OK;
}

/* Tries every number of windows that the list could contain: its length must fit. */
static hl_status restore_scores(const hl_sweep *s, hl_evaluator *e, const char *name)
{
    const hl_evaluation *found = hl_evaluator_result(e);

    for (int64_t n_done = found->n_windows; n_done > 0; n_done--) {
        const double *list = hl_sweep_state_get(s->state, name, list_length(found, n_done));

        if (list == NULL || list[0] != (double)n_done)
            continue;
        HL_NEED(read_scores(found, list + 1, n_done));
        return hl_evaluator_skip(e, n_done);
    }
    return HL_OK;
}

/* The current walk over settings, as a list: windows before its batch, settings walked, scores. */
enum { WALK_HEAD = 2, WALK_NAME = 160 };

static hl_status keep_walk(hl_sweep *s, const hl_evaluator *e, const char *name)
{
    int64_t          n      = hl_evaluator_n_walked(e);
    int64_t          length = WALK_HEAD + hl_evaluator_walk_length(e, n);
    HL_FREED double *list   = NULL;
    char             walk[WALK_NAME];

    snprintf(walk, sizeof walk, "%s.walk", name);
    HL_NEED(HL_ALLOC(&list, (size_t)length));
    list[0] = (double)hl_evaluator_n_done(e);
    list[1] = (double)n;
    hl_evaluator_get_walk(list + WALK_HEAD, e);
    return hl_sweep_state_put(s->state, walk, list, length);
}

/* Finds the number of settings that fits the list's length, as restore_scores does for windows. */
static hl_status restore_walk(const hl_sweep *s, hl_evaluator *e, const char *name)
{
    char walk[WALK_NAME];

    snprintf(walk, sizeof walk, "%s.walk", name);
    for (int64_t n = hl_evaluator_result(e)->n_settings; n > 0 && !hl_evaluator_is_done(e); n--) {
        const double *list =
            hl_sweep_state_get(s->state, walk, WALK_HEAD + hl_evaluator_walk_length(e, n));

        if (list != NULL && list[0] == (double)hl_evaluator_n_done(e) && list[1] == (double)n)
            return hl_evaluator_set_walk(e, list + WALK_HEAD, n);
    }
    return HL_OK;
}

/* After a step: whole batches are stored at once, walks when a save is due. */
static hl_status keep_step(hl_sweep *s, hl_evaluator *e, const char *name)
{
    if (hl_evaluator_n_walked(e) == 0)
        return keep_scores(s, e, name);
    if (!is_due(s))
        return HL_OK;
    HL_NEED(keep_walk(s, e, name));
    return hl_sweep_save(s, true);
}

static hl_status show_progress(void *context, const hl_progress *progress)
{
    const hl_sweep *s    = context;
    hl_progress     mine = *progress;

    mine.stage = s->stage;
    return s->options.progress == NULL ? HL_OK : s->options.progress(s->options.context, &mine);
}

hl_status hl_sweep_evaluate(hl_evaluation **out, hl_sweep *s, const hl_corpus *corpus,
                            const float *gates, int64_t n_settings, int64_t max_tokens,
                            const char *name)
{
    HL_CLOSED(hl_evaluator_close) hl_evaluator *e       = NULL;
    hl_evaluate_options                         options = { .windows = { .n_ctx = s->options.n_ctx,
                                                                         .max_tokens = max_tokens,
                                                                         .around = s->options.around },
                                                            .memory_bytes = s->options.memory_bytes,
                                                            .n_threads    = s->options.n_threads,
                                                            .progress     = show_progress,
                                                            .context      = s };

    *out = NULL;
    HL_NEED(hl_evaluator_open(&e, s->model, corpus, gates, n_settings, &options));
    HL_NEED(restore_scores(s, e, name));
    HL_NEED(restore_walk(s, e, name));
    while (!hl_evaluator_is_done(e)) {
        hl_status status = hl_evaluator_step(e);
        if (status == HL_OK)
            status = keep_step(s, e, name);
        if (status == HL_CANCELLED) /* a stopped sweep saves what it has */
            (void)(hl_evaluator_n_walked(e) > 0 ? keep_walk(s, e, name) : keep_scores(s, e, name));
        HL_NEED(status);
    }
    *out = hl_evaluator_take(e);
    return HL_OK;
}

/* ----------------------------------------------------------------- last words */

/* Counts how often a setting of gates predicts the last word of a text, as in LAMBADA. A word is
 * right if each of its tokens is the most likely one, given the true tokens before it. Each text is
 * run whole under every setting of an order and ratio; equal settings run once. Counts are stored
 * in the state; -1 marks those still to come. */
#define WORDS "words"

static hl_status check_text(const hl_word_text *text, int64_t index)
{
    if (text->first < 1 || text->n_word < 1 || text->first > text->n_tokens - text->n_word)
        return hl_fail(HL_BAD_ARGUMENT,
                       "last word %lld: %lld tokens from %lld on, in a text of %lld: wanted some, "
                       "and one before them",
                       (long long)index, (long long)text->n_word, (long long)text->first,
                       (long long)text->n_tokens);
    return HL_OK;
}

static hl_status longest_text(int64_t *out, const hl_sweep *s)
{
    *out = 0;
    for (int64_t i = 0; i < s->options.n_words; i++) {
        const hl_word_text *text = &s->options.words[i];
        HL_NEED(check_text(text, i));
        *out = text->n_tokens > *out ? text->n_tokens : *out;
    }
    return HL_OK;
}

static bool is_right(const hl_word_text *text, const int64_t *top)
{
    for (int64_t i = text->first; i < text->first + text->n_word; i++) {
        if (top[i] != text->tokens[i])
            return false;
    }
    return true;
}

/* Counts the words that are predicted; top has room for the longest text. */
static hl_status count_right(double *out, const hl_sweep *s, const float *gates, int64_t *top)
{
    HL_CLOSED(hl_perplexity_close) hl_perplexity *perplexity = NULL;
    hl_perplexity_options                         options    = { .n_ctx     = s->options.n_ctx,
                                                                 .gates     = gates,
                                                                 .n_threads = s->options.n_threads };
    hl_nll                                        unasked;

    *out = 0.0;
    if (s->options.around == HL_AROUND_WINDOW && s->tokenizer != NULL)
        options.around = hl_tokenizer_around(s->tokenizer);
    HL_NEED(hl_perplexity_open(&perplexity, s->model, &options));
    for (int64_t i = 0; i < s->options.n_words; i++) {
        const hl_word_text *text = &s->options.words[i];
        HL_NEED(hl_perplexity_add(
            &unasked, perplexity,
            &(hl_scored_text){ .tokens = text->tokens, .n_tokens = text->n_tokens, .top = top }));
        *out += is_right(text, top);
    }
    return HL_OK;
}

/* Returns an earlier setting with the same gates, or -1. */
static int64_t find_equal(const hl_sweep *s, int64_t setting)
{
    const float *gates   = s->gates + setting * s->n_gates;
    size_t       n_bytes = (size_t)s->n_gates * sizeof *gates;

    for (int64_t i = 0; i < setting; i++) {
        if (memcmp(s->gates + i * s->n_gates, gates, n_bytes) == 0)
            return i;
    }
    return -1;
}

/* The file is untrusted: accepts only possible counts. */
static void restore_words(hl_sweep *s)
{
    int64_t       n    = s->first_single;
    const double *kept = hl_sweep_state_get(s->state, WORDS, n);

    for (int64_t i = 0; i < n; i++) {
        bool good     = kept != NULL && kept[i] >= 0.0 && kept[i] <= (double)s->options.n_words;
        s->n_right[i] = good ? kept[i] : -1.0;
    }
}

static hl_status count_setting(hl_sweep *s, int64_t setting, int64_t *top)
{
    int64_t equal = find_equal(s, setting);

    if (s->n_right[setting] >= 0.0)
        return HL_OK;
    if (equal >= 0) {
        s->n_right[setting] = s->n_right[equal];
        return HL_OK;
    }
    HL_NEED(count_right(&s->n_right[setting], s, s->gates + setting * s->n_gates, top));
    HL_NEED(hl_sweep_state_put(s->state, WORDS, s->n_right, s->first_single));
    return hl_sweep_save(s, false);
}

static hl_status count_words(hl_sweep *s)
{
    HL_FREED int64_t *top     = NULL;
    int64_t           longest = 0;

    if (s->options.n_words == 0)
        return HL_OK;
    HL_NEED(longest_text(&longest, s));
    HL_NEED(HL_ALLOC(&top, (size_t)longest));
    HL_NEED(HL_ALLOC(&s->n_right, (size_t)s->first_single));
    restore_words(s);
    for (int64_t i = 0; i < s->first_single; i++) {
        HL_NEED(count_setting(s, i, top));
        HL_NEED(show_progress(s, &(hl_progress){ .share = (double)(i + 1) / (double)s->first_single,
                                                 .n_tokens = (i + 1) * s->options.n_words }));
    }
    return HL_OK;
}

/* --------------------------------------------------------------------- the whole */

static hl_status run(hl_sweep *s)
{
    HL_NEED(hl_sweep_make_orders(s));
    s->stage = "evaluating";
    HL_NEED(hl_sweep_evaluate(&s->test, s, s->test_corpus, s->gates, s->n_settings,
                              s->options.test_tokens, "test"));
    HL_NEED(hl_sweep_save(s, true));
    s->stage = "last words";
    HL_NEED(count_words(s));
    HL_NEED(hl_sweep_save(s, true));
    HL_NEED(hl_sweep_run_repairs(s));
    HL_NEED(hl_sweep_save(s, true));
    return hl_sweep_conclude(s);
}

hl_status hl_sweep_run(hl_sweep **out, hl_model *model, const hl_tokenizer *tokenizer,
                       const hl_corpus *rank_corpus, const hl_corpus *test_corpus,
                       const hl_sweep_options *options)
{
    static const hl_sweep_options      defaults = { 0 };
    HL_CLOSED(hl_sweep_free) hl_sweep *s        = NULL;

    *out = NULL;
    if (model == NULL || rank_corpus == NULL || test_corpus == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "sweep: no model or no text");
    HL_NEED(HL_ALLOC_ZEROED(&s, 1));
    s->model       = model;
    s->tokenizer   = tokenizer;
    s->rank_corpus = rank_corpus;
    s->test_corpus = test_corpus;
    HL_NEED(complete_options(s, options != NULL ? options : &defaults));
    HL_NEED(check_texts(s));
    HL_NEED(hl_model_set_gates(model, NULL));
    HL_NEED(open_state(s));
    hl_status status = run(s);
    if (status == HL_CANCELLED) { /* keeps the message of the stop */
        (void)hl_sweep_save(s, true);
        return hl_fail(HL_CANCELLED, "stopped while %s", s->stage);
    }
    HL_NEED(status);
    *out = hl_taken(&s);
    return HL_OK;
}

void hl_sweep_free(hl_sweep *s)
{
    if (s == NULL)
        return;
    for (int64_t i = 0; i < s->n_orders && s->orders != NULL; i++)
        hl_ranking_free(s->orders[i].ranking);
    for (size_t i = 0; i < sizeof s->tables / sizeof *s->tables; i++)
        hl_sheet_free(s->tables[i]);
    for (size_t i = 0; i < s->n_verdict; i++)
        hl_free(s->verdict[i]);
    hl_free(s->verdict);
    hl_sweep_state_free(s->state);
    hl_evaluation_free(s->test);
    hl_free(s->n_right);
    hl_free(s->mended);
    hl_free(s->is_mended);
    hl_free(s->mended_rises);
    hl_free(s->why_not);
    hl_free(s->rankers);
    hl_free(s->iterative);
    hl_free(s->ratios);
    hl_free(s->orders);
    hl_free(s->n_off);
    hl_free(s->gates);
    hl_free(s->heads);
    hl_free(s->left);
    hl_free(s->work);
    hl_free(s->points);
    hl_free(s->bands);
    hl_free(s->rises);
    hl_free(s->correlations);
    hl_free(s);
}

/* --------------------------------------------------------------------- questions */

const char *hl_sweep_table_name(size_t index)
{
    return index < sizeof table_names / sizeof *table_names ? table_names[index] : NULL;
}

const hl_sheet *hl_sweep_table(const hl_sweep *sweep, const char *name)
{
    for (size_t i = 0; hl_sweep_table_name(i) != NULL; i++) {
        if (strcmp(name, table_names[i]) == 0)
            return sweep->tables[i];
    }
    return NULL;
}

const char *hl_sweep_verdict(const hl_sweep *sweep, size_t index)
{
    return index < sweep->n_verdict ? sweep->verdict[index] : NULL;
}

const hl_evaluation *hl_sweep_evaluation(const hl_sweep *sweep)
{
    return sweep->test;
}
