/* route_prune.c - which heads could be removed, and at what cost; nothing is written.
 *
 *     rank      texts, a ranker and ratios  ->  heads in pruning order, and the heads that are
 *               removed at each ratio
 *     evaluate  texts and settings, each a list of disabled heads  ->  for each setting the loss on
 *               the texts, and how far the predictions are from those of all heads
 *     frontier  texts and a budget  ->  the cost of removing heads in several orders, on one half of
 *               the texts, and the heads to remove
 *
 * The numbers are those of `headlight rank` and `headlight sweep`.  Ablation, which runs a text
 * once per head, is too slow for a server. */

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "headlight/budget.h"
#include "measure/perplexity.h"
#include "model/model.h"
#include "prune/evaluate.h"
#include "prune/gates.h"
#include "serve/server.h"
#include "serve/texts.h"

#define RANK_TOKENS     32768 /* limit of tokens for rankers */
#define GRADIENT_TOKENS 4096  /* limit of tokens for rankers that need gradients */
#define EVALUATE_TOKENS 4096  /* limit of tokens for evaluations, which run the texts many times */
#define MAX_CONTEXT     512
#define LEAST_CONTEXT   32
#define LEAST_TOKENS    64                /* minimum number of tokens of an evaluated text */
#define N_WINDOWS       8                 /* minimum number of windows of a text, for an interval */
#define COUNTED_BYTES   ((size_t)1 << 16) /* longer texts have more than EVALUATE_TOKENS tokens */
#define MAX_RATIOS      16
#define MAX_SETTINGS    32
#define EVALUATE_BYTES  ((size_t)512 << 20)

static int64_t context_of(const hl_server *server)
{
    int64_t n_ctx = hl_engine_n_ctx(server->engine);

    return n_ctx < MAX_CONTEXT ? n_ctx : MAX_CONTEXT;
}

/* ----------------------------------------------------------------------- what is asked */

typedef struct rank_request {
    const json_t *input;
    hl_ranker     ranker;
    int64_t       seed;
    double        ratios[MAX_RATIOS]; /* (n_ratios) */
    int64_t       n_ratios;
} rank_request;

static hl_status read_ranker(hl_ranker *out, hl_look *look)
{
    const json_t *value = hl_look_member(look, "ranker");

    if (value != NULL && !json_is_string(value))
        return hl_fail(HL_BAD_INPUT, "ranker is %s, wanted a name", hl_json_kind(value));
    if (value != NULL)
        HL_NEED(hl_ranker_find(out, json_string_value(value)));
    if (*out == HL_RANKER_AUTO)
        *out = hl_ranker_default(look->server->model, true, 0.0);
    if (*out != HL_RANKER_ABLATION)
        return HL_OK;
    return hl_fail(HL_UNSUPPORTED, "ablation runs the text once per head, too long for a request; "
                                   "use headlight rank --by ablation");
}

static hl_status read_ratios(rank_request *out, hl_look *look)
{
    const json_t *list = hl_look_member(look, "ratios");
    size_t        n    = json_array_size(list);

    if (list != NULL && (!json_is_array(list) || n > MAX_RATIOS))
        return hl_fail(HL_BAD_INPUT, "ratios: wanted an array of at most %d numbers", MAX_RATIOS);
    for (size_t i = 0; i < n; i++) {
        double ratio = json_number_value(json_array_get(list, i));

        if (!json_is_number(json_array_get(list, i)) || !(ratio > 0.0 && ratio < 1.0))
            return hl_fail(HL_BAD_INPUT, "ratios: entry %zu is not between 0 and 1", i);
        out->ratios[out->n_ratios++] = ratio;
    }
    return HL_OK;
}

static hl_status read_input(const json_t **out, hl_look *look)
{
    *out = hl_look_member(look, "input");
    if (*out == NULL)
        return hl_fail(HL_BAD_INPUT, "wanted an object with input, a text or an array of texts");
    return HL_OK;
}

static hl_status read_rank(rank_request *out, hl_look *look)
{
    static const char *const known[] = { "model", "input", "ranker", "ratios", "seed", NULL };

    HL_NEED(hl_look_check(look, known));
    HL_NEED(read_ranker(&out->ranker, look));
    HL_NEED(read_ratios(out, look));
    HL_NEED(hl_json_get_int(&out->seed, look->root, "seed", "request"));
    return read_input(&out->input, look);
}

/* -------------------------------------------------------------------------- evidence */

static hl_status go_on(void *context, const hl_progress *progress)
{
    (void)progress;
    return hl_look_go_on(context);
}

static hl_status take_evidence(hl_evidence *out, hl_look *look, const rank_request *request)
{
    const hl_server                                 *server = look->server;
    HL_SCOPED(hl_served_texts_close) hl_served_texts texts  = { 0 };

    if ((hl_ranker_needs(request->ranker) & HL_NEEDS_TEXTS) == 0)
        return HL_OK;
    HL_NEED(hl_served_texts_open(&texts, server, request->input, look->exchange));
    return hl_evidence_take(out, request->ranker, server->model, server->tokenizer, texts.corpus,
                            &(hl_evidence_options){ .windows = { .n_ctx      = context_of(server),
                                                                 .max_tokens = RANK_TOKENS },
                                                    .gradient_tokens = GRADIENT_TOKENS,
                                                    .n_threads       = server->options.n_threads,
                                                    .progress        = go_on,
                                                    .context         = look });
}

/* Returns the number of tokens that were run; 0 if no text was. */
static int64_t tokens_of(const hl_evidence *seen)
{
    if (seen->gradients != NULL)
        return seen->gradients->n_tokens;
    return seen->profile != NULL ? hl_profile_n_tokens(seen->profile) : 0;
}

/* --------------------------------------------------------------------------- ranking */

static json_t *name_of(int64_t layer, int64_t head)
{
    return json_sprintf("L%lldH%lld", (long long)layer, (long long)head);
}

static json_t *order_json(const hl_ranking *ranking)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < ranking->n_heads; i++)
        hl_json_add(&list, json_pack("{s:o, s:o}", "head",
                                     name_of(ranking->heads[i].layer, ranking->heads[i].head),
                                     "score", hl_json_number(ranking->heads[i].score)));
    return list;
}

static hl_status add_choice(json_t **list, const hl_ranking *ranking, double ratio)
{
    HL_CLOSED(hl_head_list_free) hl_head_list *chosen = NULL;

    HL_NEED(hl_ranking_choose(&chosen, ranking, &(hl_choice){ .ratio = ratio }));
    json_t *off = json_array();
    for (int64_t i = 0; i < chosen->n_heads; i++)
        hl_json_add(&off, name_of(chosen->heads[i].layer, chosen->heads[i].head));
    hl_json_add(list, json_pack("{s:f, s:o}", "ratio", ratio, "off", off));
    return HL_OK;
}

static hl_status rank_json(json_t **out, const hl_evidence *seen, const rank_request *request,
                           const hl_ranking *ranking)
{
    HL_CLOSED(json_decref) json_t *choices = json_array();
    const char                    *verdict = hl_ranker_verdict((size_t)ranking->ranker);

    for (int64_t i = 0; i < request->n_ratios; i++)
        HL_NEED(add_choice(&choices, ranking, request->ratios[i]));
    *out = json_pack("{s:s, s:s, s:b, s:I, s:o, s:O}", "object", "headlight.ranking", "ranker",
                     hl_ranker_name((size_t)ranking->ranker), "highest_first",
                     ranking->highest_first, "tokens", (json_int_t)tokens_of(seen), "heads",
                     order_json(ranking), "choices", choices);
    json_object_set_new(*out, "score", json_string(hl_ranker_summary((size_t)ranking->ranker)));
    if (verdict != NULL)
        json_object_set_new(*out, "verdict", json_string(verdict));
    return HL_OK;
}

hl_status hl_serve_rank(json_t **out, hl_look *look)
{
    rank_request                            request = { 0 };
    HL_SCOPED(hl_evidence_free) hl_evidence seen    = { 0 };
    HL_CLOSED(hl_ranking_free) hl_ranking  *ranking = NULL;

    HL_NEED(read_rank(&request, look));
    HL_NEED(hl_look_turn(look));
    HL_NEED(take_evidence(&seen, look, &request));
    HL_NEED(hl_evidence_rank(&ranking, &seen, request.ranker, look->server->model,
                             &(hl_rank_options){ .seed = (uint64_t)request.seed }));
    return rank_json(out, &seen, &request, ranking);
}

/* ------------------------------------------------------------------------- evaluating */

typedef struct settings {
    float  *gates; /* (count, n_layers, n_heads) */
    int64_t count;
} settings;

static void free_settings(settings *held)
{
    hl_free(held->gates);
}

/* Reads the gates of one list of heads. */
static hl_status read_setting(float *out, const json_t *off, const hl_model *model)
{
    const hl_model_info *info    = hl_model_get_info(model);
    int64_t              n_cells = info->n_layers * info->n_heads;
    const float         *own     = model->gates;
    hl_gates            *gates   = NULL;

    HL_NEED(hl_wire_gates(&gates, off, model, "settings"));
    for (int64_t i = 0; i < n_cells; i++)
        out[i] = gates != NULL ? gates->values[i] : own != NULL ? own[i] : 1.0f;
    hl_gates_free(gates);
    return HL_OK;
}

static hl_status read_settings(settings *out, hl_look *look)
{
    const hl_model      *model   = look->server->model;
    const hl_model_info *info    = hl_model_get_info(model);
    const json_t        *list    = hl_look_member(look, "settings");
    size_t               n       = json_array_size(list);
    size_t               n_cells = (size_t)(info->n_layers * info->n_heads);

    if (!json_is_array(list) || n == 0 || n > MAX_SETTINGS)
        return hl_fail(HL_BAD_INPUT, "settings: wanted an array of 1 to %d lists of heads",
                       MAX_SETTINGS);
    HL_NEED(HL_ALLOC(&out->gates, n * n_cells));
    out->count = (int64_t)n;
    for (size_t i = 0; i < n; i++)
        HL_NEED(read_setting(out->gates + i * n_cells, json_array_get(list, i), model));
    return HL_OK;
}

/* Counts the tokens of a text, looking only at its first bytes. */
static hl_status count_tokens(int64_t *count, const hl_look *look, const json_t *text)
{
    const char       *bytes    = json_string_value(text);
    size_t            n        = json_string_length(text);
    hl_encode_options options  = hl_served_encoding(look->exchange);
    hl_encoding      *encoding = NULL;

    if (bytes == NULL)
        return HL_OK; /* hl_served_texts_open refuses this later */
    n = n < COUNTED_BYTES ? n : COUNTED_BYTES;
    while (n > 0 && n < json_string_length(text) && ((unsigned char)bytes[n] & 0xC0) == 0x80)
        n--; /* does not cut inside a character */
    hl_status status = hl_tokenizer_encode(&encoding, look->server->tokenizer, bytes, n, &options);
    if (status == HL_OK)
        *count += (int64_t)encoding->n_tokens;
    hl_encoding_free(encoding);
    return status;
}

/* Chooses the window length if the request does not: short enough for N_WINDOWS windows, as their
 * differences give the confidence interval. Fails with HL_BAD_INPUT for a text that is too short to
 * evaluate a model. */
static hl_status choose_context(int64_t *out, hl_look *look, const json_t *input)
{
    int64_t most = context_of(look->server);
    int64_t n    = 0;

    if (!json_is_array(input))
        HL_NEED(count_tokens(&n, look, input));
    for (size_t i = 0; i < json_array_size(input) && n < EVALUATE_TOKENS; i++)
        HL_NEED(count_tokens(&n, look, json_array_get(input, i)));
    if (n < LEAST_TOKENS)
        return hl_fail(HL_BAD_INPUT,
                       "input has %lld token%s, wanted %d or more: a few tokens do not show what "
                       "heads are worth",
                       (long long)n, n == 1 ? "" : "s", LEAST_TOKENS);
    if (*out == 0)
        *out = n / N_WINDOWS > LEAST_CONTEXT ? n / N_WINDOWS : LEAST_CONTEXT;
    *out = *out < most ? *out : most;
    return HL_OK;
}

static hl_status read_context(int64_t *out, hl_look *look)
{
    const json_t *value = hl_look_member(look, "context");
    int64_t       most  = context_of(look->server);

    if (value == NULL)
        return HL_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 2 ||
        json_integer_value(value) > most)
        return hl_fail(HL_BAD_INPUT, "context: wanted a whole number from 2 to %lld",
                       (long long)most);
    *out = json_integer_value(value);
    return HL_OK;
}

static hl_status evaluate(hl_evaluation **out, hl_look *look, const json_t *input, int64_t context,
                          const settings *asked)
{
    const hl_server                                 *server = look->server;
    HL_SCOPED(hl_served_texts_close) hl_served_texts texts  = { 0 };
    hl_evaluate_options options = { .windows = { .n_ctx = context, .max_tokens = EVALUATE_TOKENS },
                                    .memory_bytes = EVALUATE_BYTES,
                                    .n_threads    = server->options.n_threads,
                                    .progress     = go_on,
                                    .context      = look };

    HL_NEED(hl_served_texts_open(&texts, server, input, look->exchange));
    HL_NEED(hl_evaluate(out, server->model, texts.corpus, asked->gates, asked->count, &options));
    if ((*out)->n_scored == 0)
        return hl_fail(HL_BAD_INPUT, "the text is too short: it needs at least two tokens");
    return HL_OK;
}

/* Returns [low, high] in nats per token: the 95% confidence interval of the cost of the heads, over
 * windows. Returns null with too few of them. */
static json_t *interval_json(const hl_evaluation *found, int64_t setting)
{
    hl_interval interval = hl_evaluation_rise(found, setting);

    if (isnan(interval.low))
        return json_null();
    return json_pack("[o, o]", hl_json_number(interval.low), hl_json_number(interval.high));
}

static json_t *evaluation_json(const hl_evaluation *found)
{
    double  n     = (double)found->n_scored;
    double  dense = hl_evaluation_total(found, -1).nll;
    json_t *list  = json_array();

    for (int64_t i = 0; i < found->n_settings; i++) {
        hl_scores scores = hl_evaluation_total(found, i);

        hl_json_add(&list,
                    json_pack("{s:o, s:o, s:o, s:o, s:o}", "nll", hl_json_number(scores.nll / n),
                              "agreement", hl_json_number((double)scores.n_same / n), "kl",
                              hl_json_number(scores.kl / n), "change",
                              hl_json_number((scores.nll - dense) / n), "interval",
                              interval_json(found, i)));
    }
    return json_pack("{s:s, s:I, s:I, s:I, s:o, s:o}", "object", "headlight.evaluation", "tokens",
                     (json_int_t)found->n_scored, "context", (json_int_t)found->n_ctx, "windows",
                     (json_int_t)found->n_windows, "nll", hl_json_number(dense / n), "settings",
                     list);
}

hl_status hl_serve_evaluate(json_t **out, hl_look *look)
{
    static const char *const          known[] = { "model", "input", "settings", "context", NULL };
    HL_SCOPED(free_settings) settings asked   = { 0 };
    const json_t                     *input   = NULL;
    int64_t                           context = 0;
    HL_CLOSED(hl_evaluation_free) hl_evaluation *found = NULL;

    HL_NEED(hl_look_check(look, known));
    HL_NEED(read_settings(&asked, look));
    HL_NEED(read_context(&context, look));
    HL_NEED(read_input(&input, look));
    HL_NEED(choose_context(&context, look, input));
    HL_NEED(hl_look_turn(look));
    HL_NEED(evaluate(&found, look, input, context, &asked));
    *out = evaluation_json(found);
    return HL_OK;
}

/* -------------------------------------------------------------------------- budgets */

#define MAX_ORDERS 3

HL_CLOSES(hl_frontier_free, hl_frontier)

typedef struct frontier_request {
    const json_t     *input;
    hl_budget_options options;
    hl_ranker         rankers[MAX_ORDERS];
    int64_t           seed;
} frontier_request;

/* A budget above 0, where it is given. */
static hl_status read_budget(double *out, hl_look *look, const char *name)
{
    const json_t *value = hl_look_member(look, name);

    if (value == NULL)
        return HL_OK;
    *out = json_number_value(value);
    if (!json_is_number(value) || !(*out > 0.0 && *out < 1e15))
        return hl_fail(HL_BAD_INPUT, "%s: wanted a number above 0", name);
    return HL_OK;
}

static hl_status read_orders(frontier_request *out, hl_look *look)
{
    const json_t *list = hl_look_member(look, "rankers");
    size_t        n    = json_array_size(list);

    if (list != NULL && (!json_is_array(list) || n < 1 || n > MAX_ORDERS))
        return hl_fail(HL_BAD_INPUT, "rankers: wanted an array of 1 to %d names", MAX_ORDERS);
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_array_get(list, i));

        if (name == NULL || hl_ranker_find(&out->rankers[i], name) != HL_OK ||
            out->rankers[i] == HL_RANKER_AUTO || out->rankers[i] == HL_RANKER_ABLATION)
            return hl_fail(HL_BAD_INPUT,
                           "rankers: entry %zu is not the name of a ranker, or ablation, "
                           "which runs the text once per head",
                           i);
    }
    out->options.rankers   = list != NULL ? out->rankers : NULL;
    out->options.n_rankers = (int64_t)n;
    return HL_OK;
}

static hl_status read_frontier(frontier_request *out, hl_look *look)
{
    static const char *const known[] = { "model",       "input",   "until_loss", "until_kl",
                                         "until_bytes", "rankers", "context",    "seed",
                                         "repair",      NULL };
    double                   bytes   = 0.0;
    const json_t            *repair  = hl_look_member(look, "repair");

    HL_NEED(hl_look_check(look, known));
    HL_NEED(read_budget(&out->options.until_loss, look, "until_loss"));
    HL_NEED(read_budget(&out->options.until_kl, look, "until_kl"));
    HL_NEED(read_budget(&bytes, look, "until_bytes"));
    out->options.until_bytes = (size_t)bytes;
    if (repair != NULL && !json_is_boolean(repair))
        return hl_fail(HL_BAD_INPUT, "repair: wanted true or false");
    out->options.repair =
        repair != NULL ? json_is_true(repair) : hl_repair_check(look->server->model) == HL_OK;
    HL_NEED(read_orders(out, look));
    HL_NEED(hl_json_get_int(&out->seed, look->root, "seed", "request"));
    HL_NEED(read_context(&out->options.windows.n_ctx, look));
    HL_NEED(read_input(&out->input, look));
    if (out->options.windows.n_ctx == 0) { /* both halves have their windows */
        HL_NEED(choose_context(&out->options.windows.n_ctx, look, out->input));
        out->options.windows.n_ctx = out->options.windows.n_ctx / 2 > LEAST_CONTEXT
                                         ? out->options.windows.n_ctx / 2
                                         : LEAST_CONTEXT;
    }
    return HL_OK;
}

static json_t *point_json(const hl_frontier_point *p)
{
    return json_pack("{s:s, s:I, s:I, s:o, s:[o, o], s:o, s:o, s:b, s:b}", "ranker",
                     hl_ranker_name((size_t)p->ranker), "heads", (json_int_t)p->n_off, "bytes",
                     (json_int_t)p->tensor_bytes, "change", hl_json_number(p->rise), "interval",
                     hl_json_number(p->rise_low), hl_json_number(p->rise_high), "kl",
                     hl_json_number(p->kl), "agreement", hl_json_number(p->same), "fits", p->fits,
                     "best", p->is_best);
}

static json_t *frontier_json(const hl_frontier *f)
{
    json_t *points = json_array();
    json_t *off    = json_array();

    for (int64_t i = 0; i < f->n_points; i++)
        hl_json_add(&points, point_json(&f->points[i]));
    for (int64_t i = 0; i < f->heads->n_heads; i++)
        hl_json_add(&off, name_of(f->heads->heads[i].layer, f->heads->heads[i].head));
    return json_pack("{s:s, s:b, s:I, s:I, s:I, s:o, s:I, s:o, s:I, s:o, s:b}", "object",
                     "headlight.frontier", "repaired", f->budget.repair, "tokens",
                     (json_int_t)f->n_scored, "context", (json_int_t)f->n_ctx, "windows",
                     (json_int_t)f->n_windows, "nll", hl_json_number(f->nll), "bytes",
                     (json_int_t)f->tensor_bytes, "points", points, "recommended",
                     (json_int_t)f->recommended, "off", off, "all_went", f->all_went);
}

hl_status hl_serve_frontier(json_t **out, hl_look *look)
{
    const hl_server                                 *server   = look->server;
    frontier_request                                 request  = { 0 };
    HL_SCOPED(hl_served_texts_close) hl_served_texts texts    = { 0 };
    HL_CLOSED(hl_frontier_free) hl_frontier         *frontier = NULL;

    HL_NEED(read_frontier(&request, look));
    HL_NEED(hl_look_turn(look));
    request.options.windows.max_tokens = EVALUATE_TOKENS;
    request.options.seed               = (uint64_t)request.seed;
    request.options.memory_bytes       = EVALUATE_BYTES;
    request.options.n_threads          = server->options.n_threads;
    request.options.progress           = go_on;
    request.options.context            = look;
    HL_NEED(hl_served_texts_open(&texts, server, request.input, look->exchange));
    HL_NEED(hl_frontier_find(&frontier, server->model, server->tokenizer, texts.corpus, NULL,
                             &request.options));
    *out = frontier_json(frontier);
    return HL_OK;
}
