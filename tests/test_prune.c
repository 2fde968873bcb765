/* test_prune.c - heads by name, gates, rankings, and which heads are chosen. */
#include "made_profile.h"
#include "model_support.h"

#include <math.h>

#include "formats/safetensors.h"
#include "model/backward.h"
#include "model/model.h"
#include "model/weights.h"
#include "prune/gates.h"

#define LLAMA "tests/data/families/llama3" /* 3 layers of 4 heads, 2 KV heads */

/* --------------------------------------------------------------------- lists */

static void assert_list(const hl_model *model, const char *text, const char *wanted)
{
    hl_head_list *list  = NULL;
    char         *again = NULL;

    assert_ok(hl_head_list_parse(&list, model, text));
    assert_ok(hl_head_list_text(&again, list));
    assert_string_equal(again, wanted);
    hl_free(again);
    hl_head_list_free(list);
}

static void test_lists(void **state)
{
    hl_model     *model = open_model(LLAMA);
    hl_head_list *list  = NULL;
    (void)state;

    assert_list(model, "L1H2", "L1H2");
    assert_list(model, "L2H3,L0H1,L2H3", "L0H1,L2H3");
    assert_list(model, " l1 , L0H0\n", "L0H0,L1H0,L1H1,L1H2,L1H3");
    assert_fails(HL_BAD_ARGUMENT, "'H3' is not a head",
                 hl_head_list_parse(&list, model, "L1H1,H3"));
    assert_null(list);
    assert_fails(HL_BAD_ARGUMENT, "'L1H' is not a head", hl_head_list_parse(&list, model, "L1H"));
    assert_fails(HL_BAD_ARGUMENT, "'L1H1x' is not a head",
                 hl_head_list_parse(&list, model, "L1H1x"));
    assert_fails(HL_BAD_ARGUMENT, "'L-1' is not a head", hl_head_list_parse(&list, model, "L-1"));
    assert_fails(HL_BAD_ARGUMENT, "L9H0: the model has layers L0 to L2",
                 hl_head_list_parse(&list, model, "L0,L9H0"));
    assert_fails(HL_BAD_ARGUMENT, "L2H4: the layer has heads L2H0 to L2H3",
                 hl_head_list_parse(&list, model, "L2H4"));
    assert_fails(HL_BAD_ARGUMENT, "'L99999999999999999999' is not a head",
                 hl_head_list_parse(&list, model, "L99999999999999999999"));
    assert_fails(HL_BAD_ARGUMENT, "is empty", hl_head_list_parse(&list, model, " , "));
    hl_model_close(model);
}

/* --------------------------------------------------------------------- gates */

static hl_gates *parse_gates(const hl_model *model, const char *text)
{
    hl_gates *gates = NULL;
    assert_ok(hl_gates_parse(&gates, model, text, strlen(text), "here"));
    return gates;
}

static void assert_bad_gates(const hl_model *model, const char *text, const char *message)
{
    hl_gates *gates = NULL;
    assert_fails(HL_BAD_INPUT, message, hl_gates_parse(&gates, model, text, strlen(text), "here"));
    assert_null(gates);
}

static void test_gates(void **state)
{
    hl_model *model = open_model(LLAMA);
    /* A value for a head overrides one for its layer, in any order. */
    hl_gates *gates = parse_gates(model, "{\"L1H2\": 0.25, \"L1\": 0.5, \"L0H3\": 0}");
    (void)state;

    assert_int_equal(gates->n_layers, 3);
    assert_int_equal(gates->n_heads, 4);
    assert_int_equal(hl_gates_n_changed(gates), 5);
    for (int i = 0; i < 12; i++) {
        float wanted = i == 3 ? 0.0f : i == 6 ? 0.25f : i / 4 == 1 ? 0.5f : 1.0f;
        assert_true(gates->values[i] == wanted);
    }
    hl_gates_free(gates);
    assert_bad_gates(model, "[0, 1]", "here: an array, wanted an object like");
    assert_bad_gates(model, "{\"L1H9\": 0}", "here: L1H9: the layer has heads L1H0 to L1H3");
    assert_bad_gates(model, "{\"L1H1\": 1.5}", "here: the gate of L1H1 is 1.5, wanted 0 to 1");
    assert_bad_gates(model, "{\"L1H1\": -0.1}", "wanted 0 to 1");
    assert_bad_gates(model, "{\"L1H1\": \"off\"}", "is a string, wanted a number");
    assert_bad_gates(model, "{\"L1H1\": 0", "here");
    hl_model_close(model);
}

static void write_gates(const char *path, const float *values, int64_t n_layers, int64_t n_heads)
{
    hl_safetensors_writer *writer = NULL;
    hl_tensor              tensor = { .name    = "gates",
                                      .dtype   = HL_DTYPE_F32,
                                      .n_dims  = 2,
                                      .shape   = { n_layers, n_heads },
                                      .data    = values,
                                      .n_bytes = (size_t)(n_layers * n_heads) * sizeof *values };

    assert_ok(hl_safetensors_writer_new(&writer));
    hl_safetensors_add(writer, &tensor);
    assert_ok(hl_safetensors_write(writer, path));
    hl_safetensors_writer_free(writer);
}

static void test_gates_tensor(void **state)
{
    const char *folder = new_folder();
    const char *path   = in_folder(folder, "g.safetensors");
    hl_model   *model  = open_model(LLAMA);
    hl_gates   *gates  = NULL;
    float       values[12];
    (void)state;

    for (int i = 0; i < 12; i++)
        values[i] = (float)i / 12.0f;
    write_gates(path, values, 3, 4);
    assert_ok(hl_gates_load(&gates, model, path));
    assert_memory_equal(gates->values, values, sizeof values);
    hl_gates_free(gates);
    write_gates(path, values, 4, 3);
    assert_fails(HL_BAD_INPUT, "'gates' is not F32 of shape [3, 4]",
                 hl_gates_load(&gates, model, path));
    values[7] = NAN;
    write_gates(path, values, 3, 4);
    assert_fails(HL_BAD_INPUT, "the gate of L1H3 is nan", hl_gates_load(&gates, model, path));
    assert_fails(HL_NOT_FOUND, "nothing",
                 hl_gates_load(&gates, model, in_folder(folder, "nothing")));
    remove_folder(folder);
    hl_model_close(model);
}

/* -------------------------------------------------------------- model's gates */

static hl_status keep_logits(void *context, const hl_final_rows *rows)
{
    memcpy((float *)context + rows->start * rows->d_vocab, rows->logits,
           (size_t)(rows->n_rows * rows->d_vocab) * sizeof(float));
    return HL_OK;
}

static void run_tokens(float *logits, const hl_model *model, const float *gates)
{
    static const int64_t tokens[6] = { 5, 17, 200, 3, 99, 41 };
    hl_session          *session   = NULL;
    hl_tap               tap = { .context = logits, .final = keep_logits, .wants = HL_WANT_LOGITS };

    assert_ok(hl_session_open(&session, model,
                              &(hl_session_options){ .n_ctx = 8, .wants = HL_WANT_LOGITS }));
    assert_ok(hl_session_feed(
        session, &(hl_feed){ .tokens = tokens, .n_tokens = 6, .gates = gates, .tap = &tap }));
    hl_session_close(session);
}

/* The model's gates act like those of a feed; a feed's own gates have priority. */
static void test_model_gates(void **state)
{
    enum { N = 6 * 256 };
    static float plain[N], by_feed[N], by_model[N];
    hl_model    *model = open_model(LLAMA);
    hl_gates    *gates = parse_gates(model, "{\"L0H1\": 0, \"L2\": 0.5}");
    hl_gates    *open  = NULL;
    (void)state;

    assert_int_equal(hl_model_get_info(model)->d_vocab, 256);
    run_tokens(plain, model, NULL);
    run_tokens(by_feed, model, gates->values);
    assert_ok(hl_model_set_gates(model, gates->values));
    run_tokens(by_model, model, NULL);
    assert_memory_equal(by_model, by_feed, sizeof by_feed);
    assert_true(memcmp(by_model, plain, sizeof plain) != 0);
    assert_ok(hl_gates_new(&open, model));
    run_tokens(by_model, model, open->values);
    assert_memory_equal(by_model, plain, sizeof plain);

    assert_non_null(model->gates);
    gates->values[0] = 1.01f;
    assert_fails(HL_BAD_ARGUMENT, "the gate of L0H0 is 1.01",
                 hl_model_set_gates(model, gates->values));
    assert_non_null(model->gates); /* unchanged */
    assert_ok(hl_model_set_gates(model, open->values));
    assert_null(model->gates); /* all gates are 1 */
    hl_gates_free(gates);
    hl_gates_free(open);
    hl_model_close(model);
}

/* ------------------------------------------------------------------- rankings */

static hl_ranking *rank_profile(hl_ranker ranker, const hl_profile *profile,
                                const hl_rank_options *options)
{
    hl_ranking *ranking = NULL;
    assert_ok(hl_rank(&ranking, ranker, &(hl_rank_inputs){ .profile = profile }, options));
    return ranking;
}

/* Checks that every head occurs once, and that scores are sorted. */
static void check_order(const hl_ranking *ranking)
{
    bool seen[M_LAYERS][M_HEADS] = { { false } };

    for (int64_t i = 0; i < ranking->n_heads; i++) {
        const hl_ranked *head = &ranking->heads[i];

        assert_false(seen[head->layer][head->head]);
        seen[head->layer][head->head] = true;
        if (i > 0 && ranking->highest_first)
            assert_true(ranking->heads[i - 1].score >= head->score);
        else if (i > 0)
            assert_true(ranking->heads[i - 1].score <= head->score);
    }
}

static void test_rankings(void **state)
{
    made_model  model   = healthy_model();
    hl_profile *profile = made_profile(&model);
    (void)state;

    for (hl_ranker ranker = 0; ranker < HL_N_RANKERS; ranker++) {
        hl_ranking *ranking = NULL;
        hl_ranker   found;

        assert_ok(hl_ranker_find(&found, hl_ranker_name(ranker)));
        assert_int_equal(found, ranker);
        if (hl_rank(&ranking, ranker, &(hl_rank_inputs){ .profile = profile }, NULL) != HL_OK)
            continue;
        assert_int_equal(ranking->n_heads, model.n_layers * model.n_heads);
        assert_int_equal(ranking->highest_first, hl_ranker_takes_highest(ranker));
        check_order(ranking);
        hl_ranking_free(ranking);
    }
    hl_ranking *highest = rank_profile(HL_RANKER_ENTROPY, profile, NULL);
    hl_ranking *lowest =
        rank_profile(HL_RANKER_ENTROPY, profile, &(hl_rank_options){ .order = HL_ORDER_LOWEST });
    assert_true(highest->heads[0].score == hl_profile_moments(profile, highest->heads[0].layer,
                                                              highest->heads[0].head, HL_Q_ENTROPY)
                                               .mean);
    assert_true(highest->heads[0].score == lowest->heads[lowest->n_heads - 1].score);
    check_order(lowest);
    hl_ranking_free(highest);
    hl_ranking_free(lowest);
    hl_profile_free(profile);
}

static void test_random(void **state)
{
    made_model  model   = healthy_model();
    hl_profile *profile = made_profile(&model);
    hl_ranking *a       = rank_profile(HL_RANKER_RANDOM, profile, &(hl_rank_options){ .seed = 1 });
    hl_ranking *b       = rank_profile(HL_RANKER_RANDOM, profile, &(hl_rank_options){ .seed = 1 });
    hl_ranking *c       = rank_profile(HL_RANKER_RANDOM, profile, &(hl_rank_options){ .seed = 2 });
    size_t      n_bytes = (size_t)a->n_heads * sizeof *a->heads;
    (void)state;

    assert_memory_equal(a->heads, b->heads, n_bytes);
    assert_true(memcmp(a->heads, c->heads, n_bytes) != 0);
    hl_ranking_free(a);
    hl_ranking_free(b);
    hl_ranking_free(c);
    hl_profile_free(profile);
}

/* Scores given as numbers: NaN comes last in both orders; equal ones are ordered by place. */
static void test_scores(void **state)
{
    hl_model   *model     = open_model(LLAMA);
    double      rise[12]  = { 3, 1, NAN, 2, 1, 0, -1, 5, 5, 4, NAN, 6 };
    hl_ranking *ranking   = NULL;
    int         order[12] = { 6, 5, 1, 4, 3, 0, 9, 7, 8, 11, 2, 10 };
    (void)state;

    assert_ok(hl_rank(&ranking, HL_RANKER_ABLATION,
                      &(hl_rank_inputs){ .model = model, .ablation = rise }, NULL));
    for (int i = 0; i < 12; i++)
        assert_int_equal(ranking->heads[i].layer * 4 + ranking->heads[i].head, order[i]);
    hl_ranking_free(ranking);
    assert_ok(hl_rank(&ranking, HL_RANKER_ABLATION,
                      &(hl_rank_inputs){ .model = model, .ablation = rise },
                      &(hl_rank_options){ .order = HL_ORDER_HIGHEST }));
    assert_int_equal(ranking->heads[0].layer * 4 + ranking->heads[0].head, 11);
    assert_true(isnan(ranking->heads[10].score) && isnan(ranking->heads[11].score));
    hl_ranking_free(ranking);
    hl_model_close(model);
}

static void test_needs(void **state)
{
    made_model     made    = healthy_model();
    hl_profile    *profile = made_profile(&made);
    hl_model      *model   = open_model(LLAMA);
    hl_ranking    *ranking = NULL;
    hl_ranker      ranker;
    hl_rank_inputs inputs = { .model = model };
    (void)state;

    assert_fails(HL_BAD_ARGUMENT, "ranking by entropy needs a profile",
                 hl_rank(&ranking, HL_RANKER_ENTROPY, &inputs, NULL));
    assert_fails(HL_BAD_ARGUMENT, "ranking by gradient needs gradients, so a model",
                 hl_rank(&ranking, HL_RANKER_GRADIENT, &inputs, NULL));
    assert_fails(HL_BAD_ARGUMENT, "ranking by ablation needs the loss with each head disabled",
                 hl_rank(&ranking, HL_RANKER_ABLATION, &inputs, NULL));
    inputs.profile = profile; /* 6 layers */
    assert_fails(HL_BAD_INPUT, "layers, the model 3",
                 hl_rank(&ranking, HL_RANKER_ENTROPY, &inputs, NULL));
    inputs = (hl_rank_inputs){ .profile = profile };
    assert_fails(HL_BAD_ARGUMENT, "ranking by weight needs the model",
                 hl_rank(&ranking, HL_RANKER_WEIGHT, &inputs, NULL));
    assert_fails(HL_BAD_ARGUMENT, "needs a profile or a model",
                 hl_rank(&ranking, HL_RANKER_RANDOM, &(hl_rank_inputs){ 0 }, NULL));
    assert_fails(HL_BAD_ARGUMENT, "no ranker is called 'entropi'",
                 hl_ranker_find(&ranker, "entropi"));
    assert_null(ranking);
    hl_profile_free(profile);
    hl_model_close(model);
}

/* -------------------------------------------------------------------- weights */

/* Returns the norm of rows and columns [first, first + n), from the whole matrix. */
static double part_norm(const hl_model *model, hl_role role, int64_t layer, int64_t first,
                        int64_t n, bool columns)
{
    const hl_weight *weight = &hl_weights_get(model->weights, role, layer, 0)->weight;
    float           *values = read_weight(weight);
    double           sum    = 0.0;

    for (int64_t i = 0; i < weight->n_rows * weight->n_columns; i++) {
        int64_t at = columns ? i % weight->n_columns : i / weight->n_columns;
        if (at >= first && at < first + n)
            sum += (double)values[i] * (double)values[i];
    }
    free(values);
    return sqrt(sum);
}

/* AUTO follows the sweeps as far as there is evidence, and is never entropy. */
static void test_auto(void **state)
{
    made_model     made    = healthy_model();
    hl_profile    *profile = made_profile(&made);
    hl_model      *model   = open_model(LLAMA);
    hl_ranking    *ranking = NULL;
    double         gradient[M_LAYERS * M_HEADS];
    hl_rank_inputs inputs = { .profile = profile };
    (void)state;

    for (int i = 0; i < M_LAYERS * M_HEADS; i++)
        gradient[i] = (double)((i * 29 + 7) % 48);
    assert_int_equal((hl_ranker){ 0 }, HL_RANKER_AUTO);
    assert_ok(hl_rank(&ranking, HL_RANKER_AUTO, &inputs, NULL));
    assert_int_equal(ranking->ranker, HL_RANKER_OUTPUT_NORM);
    assert_false(ranking->highest_first);
    hl_ranking_free(ranking);
    inputs.gradient = gradient;
    assert_ok(hl_rank(&ranking, HL_RANKER_AUTO, &inputs, NULL));
    assert_int_equal(ranking->ranker, HL_RANKER_GRADIENT);
    hl_ranking_free(ranking);
    assert_fails(HL_BAD_ARGUMENT, "needs a profile with output norms",
                 hl_rank(&ranking, HL_RANKER_AUTO, &(hl_rank_inputs){ .model = model }, NULL));

    assert_int_equal(hl_ranker_default(model, true, 0.0), HL_RANKER_GRADIENT);
    assert_int_equal(hl_ranker_default(model, true, 0.2), HL_RANKER_GRADIENT);
    assert_int_equal(hl_ranker_default(model, true, 0.3), HL_RANKER_OUTPUT_NORM);
    assert_int_equal(hl_ranker_default(model, false, 0.0), HL_RANKER_OUTPUT_NORM);
    assert_int_equal(hl_ranker_default(NULL, true, 0.0), HL_RANKER_OUTPUT_NORM);
    assert_non_null(strstr(hl_ranker_verdict(HL_RANKER_ENTROPY), "more than a random order"));
    assert_null(hl_ranker_verdict(HL_RANKER_GRADIENT));
    assert_null(hl_ranker_verdict(HL_RANKER_OUTPUT_NORM));
    hl_model_close(model);
    hl_profile_free(profile);
}

static double score_at(const hl_ranking *ranking, int64_t layer, int64_t head)
{
    for (int64_t i = 0; i < ranking->n_heads; i++) {
        if (ranking->heads[i].layer == layer && ranking->heads[i].head == head)
            return ranking->heads[i].score;
    }
    fail_msg("no L%lldH%lld", (long long)layer, (long long)head);
    return NAN;
}

/* Scores made of several measurements, by the formulas of doc/metrics.md. tests/cli/gradient.py
 * holds them against PyTorch, from the text on. */
static void test_combined(void **state)
{
    enum { ALL = M_LAYERS * M_HEADS };
    made_model     made    = healthy_model();
    hl_profile    *profile = made_profile(&made);
    hl_ranking    *ranking = NULL;
    double         gradient[ALL], norms[3 * ALL];
    double         least = INFINITY, most = -INFINITY, h_least = INFINITY, h_most = -INFINITY;
    hl_rank_inputs inputs = { .profile = profile, .gradient = gradient, .weight_norms = norms };
    (void)state;

    for (int i = 0; i < 3 * ALL; i++)
        norms[i] = 0.5 + (double)((i * 13 + 5) % 31);
    for (int i = 0; i < ALL; i++) {
        double h = hl_profile_moments(profile, i / M_HEADS, i % M_HEADS, HL_Q_NORMALIZED).mean;

        gradient[i] = 2.0 + (double)((i * 29 + 7) % 48);
        least       = fmin(least, gradient[i]);
        most        = fmax(most, gradient[i]);
        h_least     = fmin(h_least, h);
        h_most      = fmax(h_most, h);
    }
    assert_ok(hl_rank(&ranking, HL_RANKER_HIES, &inputs, NULL));
    check_order(ranking);
    for (int i = 0; i < ALL; i++) {
        double h = hl_profile_moments(profile, i / M_HEADS, i % M_HEADS, HL_Q_NORMALIZED).mean;

        assert_float_equal(score_at(ranking, i / M_HEADS, i % M_HEADS),
                           0.5 * (gradient[i] - least) / (most - least) +
                               0.5 * (1.0 - (h - h_least) / (h_most - h_least)),
                           1e-12);
    }
    hl_ranking_free(ranking);
    assert_ok(hl_rank(&ranking, HL_RANKER_GNORM, &inputs, NULL));
    check_order(ranking);
    for (int i = 0; i < ALL; i++)
        assert_float_equal(score_at(ranking, i / M_HEADS, i % M_HEADS),
                           norms[i] * norms[ALL + i] * norms[2 * ALL + i], 1e-9);
    hl_ranking_free(ranking);
    assert_ok(hl_rank(&ranking, HL_RANKER_VARIANCE, &inputs, NULL));
    check_order(ranking);
    for (int layer = 0; layer < M_LAYERS; layer++) {
        double mean = 0.0, variance = 0.0;

        for (int head = 0; head < M_HEADS; head++)
            mean += hl_profile_moments(profile, layer, head, HL_Q_ENTROPY).mean / M_HEADS;
        for (int head = 0; head < M_HEADS; head++) {
            double h = hl_profile_moments(profile, layer, head, HL_Q_ENTROPY).mean;
            variance += (h - mean) * (h - mean) / M_HEADS;
        }
        for (int head = 0; head < M_HEADS; head++)
            assert_float_equal(score_at(ranking, layer, head), variance, 1e-12);
    }
    hl_ranking_free(ranking);
    assert_ok(hl_rank(&ranking, HL_RANKER_RECEIVED, &inputs, NULL));
    check_order(ranking);
    assert_float_equal(score_at(ranking, 2, 3),
                       1.0 - hl_profile_moments(profile, 2, 3, HL_Q_SELF).mean -
                           hl_profile_moments(profile, 2, 3, HL_Q_FIRST).mean,
                       1e-12);
    hl_ranking_free(ranking);
    inputs.weight_norms = NULL;
    assert_fails(HL_BAD_ARGUMENT, "ranking by gnorm needs the norms of the gradients of weights",
                 hl_rank(&ranking, HL_RANKER_GNORM, &inputs, NULL));
    hl_profile_free(profile);
}

/* What heads write, and the size of the columns of W_O that it meets. */
static void test_outputs(void **state)
{
    hl_model        *model  = open_model("tests/data/families/llama3");
    const hl_config *config = model->config;
    int64_t          d = config->d_head, wide = config->n_heads * d;
    int64_t          count   = config->n_layers * wide;
    double          *mean    = malloc((size_t)count * sizeof *mean);
    double          *spread  = malloc((size_t)count * sizeof *spread);
    hl_head_moments  moments = { config->n_layers, config->n_heads, d, 10, mean, spread };
    hl_rank_inputs   inputs  = { .model = model, .moments = &moments };
    hl_ranking      *moving = NULL, *wanda = NULL;
    (void)state;

    for (int64_t i = 0; i < count; i++) {
        mean[i]   = (double)((i * 7) % 13) - 6.0;
        spread[i] = 0.25 * (double)((i * 11) % 17);
    }
    assert_ok(hl_rank(&moving, HL_RANKER_FLUCTUATION, &inputs, NULL));
    assert_ok(hl_rank(&wanda, HL_RANKER_WANDA, &inputs, NULL));
    for (int64_t layer = 0; layer < config->n_layers; layer++) {
        const hl_weight *weight = &hl_weights_get(model->weights, HL_ROLE_ATTN_O, layer, 0)->weight;
        float           *w      = read_weight(weight);
        double           scores[256], sizes[256], sum = 0.0, squares = 0.0;

        assert_true(wide <= 256);
        for (int64_t j = 0; j < wide; j++) {
            double sum_squares = 0.0, sum_sizes = 0.0, m = mean[layer * wide + j];

            for (int64_t i = 0; i < weight->n_rows; i++) {
                sum_squares += (double)w[i * wide + j] * (double)w[i * wide + j];
                sum_sizes += fabs((double)w[i * wide + j]);
            }
            scores[j] = spread[layer * wide + j] * sum_squares;
            sizes[j]  = sqrt(m * m + 0.9 * spread[layer * wide + j]) * sum_sizes;
            sum += scores[j];
            squares += scores[j] * scores[j];
        }
        double deviation = sqrt((squares - sum * sum / (double)wide) / (double)(wide - 1));
        for (int64_t head = 0; head < config->n_heads; head++) {
            double a = 0.0, b = 0.0;

            for (int64_t j = head * d; j < (head + 1) * d; j++) {
                a += (scores[j] - sum / (double)wide) / deviation / (double)d;
                b += sizes[j] / (double)d;
            }
            assert_float_equal(score_at(moving, layer, head), a, 1e-9);
            assert_float_equal(score_at(wanda, layer, head), b, 1e-9 * b);
        }
        free(w);
    }
    inputs.moments = NULL;
    hl_ranking_free(moving);
    assert_fails(HL_BAD_ARGUMENT, "ranking by fluctuation needs the moments of what heads write",
                 hl_rank(&moving, HL_RANKER_FLUCTUATION, &inputs, NULL));
    hl_ranking_free(wanda);
    hl_model_close(model);
    free(mean);
    free(spread);
}

static void check_weights(const char *path)
{
    hl_model        *model   = open_model(path);
    const hl_config *config  = model->config;
    hl_ranking      *ranking = NULL;

    assert_ok(hl_rank(&ranking, HL_RANKER_WEIGHT, &(hl_rank_inputs){ .model = model }, NULL));
    for (int64_t i = 0; i < ranking->n_heads; i++) {
        int64_t layer = ranking->heads[i].layer, d = config->d_head;
        int64_t head   = ranking->heads[i].head;
        int64_t kv     = head / (config->layers[layer].n_heads / config->layers[layer].n_kv_heads);
        double  wanted = part_norm(model, HL_ROLE_ATTN_Q, layer, head * d, d, false) *
                        part_norm(model, HL_ROLE_ATTN_K, layer, kv * d, d, false) *
                        part_norm(model, HL_ROLE_ATTN_V, layer, kv * d, d, false) *
                        part_norm(model, HL_ROLE_ATTN_O, layer, head * d, d, true);

        assert_float_equal(ranking->heads[i].score, wanted, 1e-9 * wanted);
        assert_true(i == 0 || ranking->heads[i - 1].score <= ranking->heads[i].score);
    }
    hl_ranking_free(ranking);
    hl_model_close(model);
}

static void test_weights(void **state)
{
    (void)state;
    check_weights(LLAMA);
    check_weights("tests/data/families/phi3");
    check_weights("tests/data/families/gpt_neox");
}

/* ------------------------------------------------------------------- choosing */

static hl_ranking *rank_places(const hl_model *model)
{
    double      scores[12];
    hl_ranking *ranking = NULL;

    for (int i = 0; i < 12; i++)
        scores[i] = i;
    assert_ok(hl_rank(&ranking, HL_RANKER_ABLATION,
                      &(hl_rank_inputs){ .model = model, .ablation = scores }, NULL));
    return ranking;
}

static void assert_choice(const hl_ranking *ranking, hl_choice choice, const char *wanted)
{
    hl_head_list *list = NULL;
    char         *text = NULL;

    assert_ok(hl_ranking_choose(&list, ranking, &choice));
    assert_ok(hl_head_list_text(&text, list));
    assert_string_equal(text, wanted);
    hl_free(text);
    hl_head_list_free(list);
}

/* Two query heads per KV head: which are removed together, and how many groups. */
static void test_groups(void **state)
{
    static const double scores[12] = { 5, 9, 1, 8, 3, 3, 0, 9, 7, 7, 2, 3 };
    hl_model           *model      = open_model(LLAMA);
    hl_model           *other      = open_model("models/demo");
    hl_ranking         *ranking    = NULL;
    hl_head_list       *list       = NULL;
    (void)state;

    assert_ok(hl_rank(&ranking, HL_RANKER_ABLATION,
                      &(hl_rank_inputs){ .model = model, .ablation = scores }, NULL));
    assert_ok(hl_ranking_group(ranking, model));
    /* Group means are 7, 4.5; 3, 4.5; 7, 2.5; equal ones are ordered by layer.  Each head keeps its
     * score. */
    assert_choice(ranking, (hl_choice){ .count = 12, .empty_layers = true },
                  "L2H2,L2H3,L1H0,L1H1,L0H2,L0H3,L1H2,L1H3,L0H0,L0H1,L2H0,L2H1");
    assert_true(ranking->heads[1].score == 3.0);
    /* A layer that would keep no head does not give its second group. */
    assert_choice(ranking, (hl_choice){ .count = 6 }, "L2H2,L2H3,L1H0,L1H1,L0H2,L0H3");
    /* The nearest number; of two, the lower one. */
    assert_choice(ranking, (hl_choice){ .count = 3 }, "L2H2,L2H3");
    assert_choice(ranking, (hl_choice){ .count = 1 }, "");
    assert_choice(ranking, (hl_choice){ .count = 5, .per_layer_max = 3 }, "L2H2,L2H3,L1H0,L1H1");
    assert_fails(HL_BAD_ARGUMENT,
                 "7 of 12 heads are to be removed, but only 6 can be in whole groups",
                 hl_ranking_choose(&list, ranking, &(hl_choice){ .count = 7 }));
    /* Grouped again, with the highest first. */
    ranking->highest_first = true;
    assert_ok(hl_ranking_group(ranking, model));
    assert_choice(ranking, (hl_choice){ .count = 4 }, "L0H0,L0H1,L2H0,L2H1");
    assert_fails(HL_BAD_INPUT, "the ranking has 3 layers, the model 8",
                 hl_ranking_group(ranking, other));
    hl_ranking_free(ranking);
    hl_model_close(other);
    hl_model_close(model);
}

/* Groups with an unmeasured head come last, in both orders and in any layer; several such groups
 * are ordered by place. */
static void test_groups_that_were_not_measured(void **state)
{
    static const double scores[12] = { 5, NAN, 1, 8, 3, 3, 0, 9, 7, 7, NAN, NAN };
    hl_model           *model      = open_model(LLAMA);
    hl_ranking         *ranking    = NULL;
    (void)state;

    assert_ok(hl_rank(&ranking, HL_RANKER_ABLATION,
                      &(hl_rank_inputs){ .model = model, .ablation = scores }, NULL));
    assert_ok(hl_ranking_group(ranking, model));
    assert_choice(ranking, (hl_choice){ .count = 12, .empty_layers = true },
                  "L1H0,L1H1,L0H2,L0H3,L1H2,L1H3,L2H0,L2H1,L0H0,L0H1,L2H2,L2H3");
    ranking->highest_first = true;
    assert_ok(hl_ranking_group(ranking, model));
    assert_choice(ranking, (hl_choice){ .count = 12, .empty_layers = true },
                  "L2H0,L2H1,L0H2,L0H3,L1H2,L1H3,L1H0,L1H1,L0H0,L0H1,L2H2,L2H3");
    hl_ranking_free(ranking);
    hl_model_close(model);
}

static void test_choosing(void **state)
{
    hl_model     *model   = open_model(LLAMA);
    hl_ranking   *ranking = rank_places(model);
    hl_head_list *list    = NULL;
    (void)state;

    assert_choice(ranking, (hl_choice){ 0 }, "");
    assert_choice(ranking, (hl_choice){ .count = 2 }, "L0H0,L0H1");
    /* One head stays in layer 0. */
    assert_choice(ranking, (hl_choice){ .count = 5 }, "L0H0,L0H1,L0H2,L1H0,L1H1");
    assert_choice(ranking, (hl_choice){ .count = 5, .empty_layers = true },
                  "L0H0,L0H1,L0H2,L0H3,L1H0");
    assert_choice(ranking, (hl_choice){ .count = 4, .per_layer_max = 2 }, "L0H0,L0H1,L1H0,L1H1");
    assert_choice(ranking, (hl_choice){ .ratio = 0.25 }, "L0H0,L0H1,L0H2");
    assert_choice(ranking, (hl_choice){ .ratio = 0.04 }, "");
    assert_choice(ranking, (hl_choice){ .ratio = 0.05 }, "L0H0");
    assert_choice(ranking, (hl_choice){ .count = 9 },
                  "L0H0,L0H1,L0H2,L1H0,L1H1,L1H2,L2H0,L2H1,L2H2");
    assert_fails(HL_BAD_ARGUMENT,
                 "12 of 12 heads are to be removed, but only 9 can be: every layer keeps one "
                 "(--empty-layers allows more)",
                 hl_ranking_choose(&list, ranking, &(hl_choice){ .ratio = 1.0 }));
    assert_fails(HL_BAD_ARGUMENT, "7 of 12 heads are to be removed, but only 6 can be",
                 hl_ranking_choose(&list, ranking, &(hl_choice){ .count = 7, .per_layer_max = 2 }));
    assert_fails(HL_BAD_ARGUMENT, "a ratio of 1.5",
                 hl_ranking_choose(&list, ranking, &(hl_choice){ .ratio = 1.5 }));
    assert_null(list);
    hl_ranking_free(ranking);
    hl_model_close(model);
}

/* ------------------------------------------------------------------ gradients */

/* Over a text: means of the windows' gradients, and of their magnitudes. */
/* The places of heads by their definition: a paired t-test of every two heads over the windows, which
 * are equally long here.  The quantiles of t for 4 and 7 degrees of freedom are those of a printed
 * table. */
static void check_places(const hl_ranking *ranking, const double *values, int64_t n, int64_t width)
{
    double  t       = n == 5 ? 2.776445 : 2.364624;
    int64_t n_heads = ranking->n_heads, n_known = 0;

    assert_true(n == 5 || n == 8);
    assert_non_null(ranking->places);
    for (int64_t i = 0; i < n_heads; i++) {
        int64_t at    = ranking->heads[i].layer * width + ranking->heads[i].head;
        int64_t first = 1, last = n_heads;

        for (int64_t j = 0; j < n_heads; j++) {
            int64_t other = ranking->heads[j].layer * width + ranking->heads[j].head;
            double  mean = 0.0, square = 0.0;

            for (int64_t k = 0; k < n; k++)
                mean += (values[k * n_heads + at] - values[k * n_heads + other]) / (double)n;
            for (int64_t k = 0; k < n; k++)
                square += pow(values[k * n_heads + at] - values[k * n_heads + other] - mean, 2.0);
            if (j == i || !(fabs(mean) > t * sqrt(square / (double)(n * (n - 1)))))
                continue;
            n_known++;
            first += j < i;
            last -= j > i;
        }
        assert_int_equal(ranking->places[i].first, first);
        assert_int_equal(ranking->places[i].last, last);
        assert_true(ranking->places[i].interval.low <= ranking->heads[i].score &&
                    ranking->heads[i].score <= ranking->places[i].interval.high);
        assert_int_equal(ranking->places[i].interval.n, n);
    }
    assert_true(n_known > 0 && n_known < n_heads * (n_heads - 1)); /* else nothing was tested */
}

static hl_corpus *open_random(const hl_model *model, const char *path, int n_tokens)
{
    char       text[8000];
    size_t     used   = 0;
    hl_corpus *corpus = NULL;
    hl_random  random = { 3 };

    for (int i = 0; i < n_tokens; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%c%lld", i == 0 ? '[' : ',',
                                 (long long)hl_random_below(&random, 250));
    used += (size_t)snprintf(text + used, sizeof text - used, "]\n");
    write_file(path, text, used);
    assert_ok(hl_corpus_open(&corpus, model, NULL, &(hl_corpus_options){ .token_ids = path }));
    return corpus;
}

static void test_places(void **state)
{
    const char     *folder    = new_folder();
    const char     *path      = in_folder(folder, "ids.jsonl");
    hl_model       *model     = open_model(LLAMA);
    int64_t         n_heads   = hl_model_get_info(model)->n_heads;
    int64_t         size      = hl_model_get_info(model)->n_layers * n_heads;
    hl_corpus      *corpus    = open_random(model, path, 8 * 48);
    hl_profile     *profile   = NULL;
    hl_gradients   *gradients = NULL;
    hl_ranking     *ranking   = NULL;
    hl_rank_options options   = { .places = true };
    double          values[8 * 64];
    (void)state;

    assert_true(size <= 64);
    assert_ok(hl_measure(&profile, model, NULL, corpus,
                         &(hl_measure_options){ .windows = { .n_ctx = 48 }, .no_probe = true }));
    assert_int_equal(hl_profile_n_sequences(profile), 8);
    for (int64_t i = 0; i < 8 * size; i++)
        values[i] = hl_profile_sequence_mean(profile, i / size, i % size / n_heads, i % n_heads,
                                             HL_Q_RENYI2);
    ranking = rank_profile(HL_RANKER_RENYI2, profile, &options);
    check_places(ranking, values, 8, n_heads);
    hl_ranking_free(ranking);

    /* Gradients; five windows. */
    assert_ok(hl_gate_gradients(
        &gradients, model, corpus,
        &(hl_gradient_options){ .windows = { .n_ctx = 48, .max_tokens = 5 * 48 } }));
    assert_int_equal(gradients->n_windows, 5);
    for (int64_t i = 0; i < size; i++) {
        double sum = 0.0;
        for (int64_t k = 0; k < 5; k++)
            sum += gradients->each[k * size + i];
        assert_true(fabs(sum / 5.0 - gradients->magnitude[i]) < 1e-12);
    }
    hl_rank_inputs inputs = { .model     = model,
                              .gradient  = gradients->magnitude,
                              .gradients = gradients };
    assert_ok(hl_rank(&ranking, HL_RANKER_GRADIENT, &inputs, &options));
    check_places(ranking, gradients->each, 5, n_heads);
    hl_ranking_free(ranking);

    /* Weights are known exactly, and not per window; and nothing is compared unasked. */
    assert_ok(hl_rank(&ranking, HL_RANKER_WEIGHT, &inputs, &options));
    assert_null(ranking->places);
    hl_ranking_free(ranking);
    assert_null((ranking = rank_profile(HL_RANKER_RENYI2, profile, NULL))->places);
    hl_ranking_free(ranking);
    hl_gradients_free(gradients);
    hl_profile_free(profile);
    hl_corpus_close(corpus);
    hl_model_close(model);
    remove_folder(folder);
}

static void test_gradients(void **state)
{
    const char         *folder        = new_folder();
    const char         *path          = in_folder(folder, "ids.jsonl");
    const char         *text          = "[5,17,200,3,99,41,7,8,120,64,33,21]\n[90,255]\n[1]\n";
    hl_model           *model         = open_model(LLAMA);
    hl_corpus          *corpus        = NULL;
    hl_gradients       *found         = NULL;
    hl_backward        *backward      = NULL;
    hl_gradient_options options       = { .windows = { .n_ctx = 8 }, .n_threads = 1 };
    const int64_t       windows[3][8] = { { 5, 17, 200, 3, 99, 41, 7, 8 },
                                          { 120, 64, 33, 21 },
                                          { 90, 255 } };
    const int64_t       lengths[3]    = { 8, 4, 2 };
    double              sum[12] = { 0 }, sizes[12] = { 0 }, one[12], nll, nll_sum = 0.0;
    (void)state;

    write_file(path, text, strlen(text));
    assert_ok(hl_corpus_open(&corpus, model, NULL, &(hl_corpus_options){ .token_ids = path }));
    assert_ok(hl_gate_gradients(&found, model, corpus, &options));
    assert_ok(hl_backward_open(&backward, model, 8, 1));
    for (int w = 0; w < 3; w++) {
        assert_ok(hl_backward_run(one, &nll, backward, windows[w], lengths[w], 1));
        nll_sum += nll;
        for (int i = 0; i < 12; i++) {
            sum[i] += one[i];
            sizes[i] += fabs(one[i]);
        }
    }
    assert_int_equal(found->n_windows, 3);
    assert_int_equal(found->n_tokens, 7 + 3 + 1);
    assert_float_equal(found->nll, nll_sum / 3, 1e-12);
    for (int i = 0; i < 12; i++) {
        assert_float_equal(found->mean[i], sum[i] / 3, 1e-12);
        assert_float_equal(found->magnitude[i], sizes[i] / 3, 1e-12);
    }
    hl_backward_close(backward);
    hl_gradients_free(found);
    options.windows.stride = 4;
    assert_fails(HL_BAD_ARGUMENT, "stride 4 and n_batch 0, wanted 0",
                 hl_gate_gradients(&found, model, corpus, &options));
    options.windows = (hl_window_options){ .n_ctx = 8, .n_batch = 2 };
    assert_fails(HL_BAD_ARGUMENT, "stride 0 and n_batch 2, wanted 0",
                 hl_gate_gradients(&found, model, corpus, &options));
    assert_null(found);
    hl_corpus_close(corpus);
    hl_model_close(model);
    remove_folder(folder);
}

/* Mean and variance of z over the text, whatever the windows. */
typedef struct moments_check {
    double  sum, squares; /* of one output */
    int64_t n;
} moments_check;

static hl_status add_output(void *context, const hl_layer_rows *rows)
{
    moments_check *c = context;

    for (int64_t r = 0; r < rows->lengths[0] && rows->layer == 1; r++) {
        double z = (double)rows->z[(r * rows->n_heads + 2) * rows->d_head + 3];
        c->sum += z;
        c->squares += z * z;
        c->n++;
    }
    return HL_OK;
}

static void test_moments(void **state)
{
    const char      *folder        = new_folder();
    const char      *path          = in_folder(folder, "ids.jsonl");
    const char      *text          = "[5,17,200,3,99,41,7,8,120,64,33,21]\n[90,255]\n";
    const int64_t    windows[3][8] = { { 5, 17, 200, 3, 99, 41, 7, 8 },
                                       { 120, 64, 33, 21 },
                                       { 90, 255 } };
    const int64_t    lengths[3]    = { 8, 4, 2 };
    hl_model        *model         = open_model(LLAMA);
    hl_corpus       *corpus        = NULL;
    hl_session      *session       = NULL;
    hl_head_moments *found         = NULL;
    moments_check    check         = { 0 };
    hl_tap           tap           = { .context = &check, .layer = add_output, .wants = HL_WANT_Z };
    (void)state;

    write_file(path, text, strlen(text));
    assert_ok(hl_corpus_open(&corpus, model, NULL, &(hl_corpus_options){ .token_ids = path }));
    assert_ok(hl_head_moments_take(&found, model, corpus,
                                   &(hl_moments_options){ .windows = { .n_ctx = 8 } }));
    assert_ok(
        hl_session_open(&session, model, &(hl_session_options){ .n_ctx = 8, .wants = HL_WANT_Z }));
    for (int w = 0; w < 3; w++) {
        assert_ok(hl_session_rewind(session, 0, 0));
        assert_ok(hl_session_feed(
            session, &(hl_feed){ .tokens = windows[w], .n_tokens = lengths[w], .tap = &tap }));
    }
    int64_t at   = (1 * found->n_heads + 2) * found->d_head + 3;
    double  mean = check.sum / (double)check.n;
    assert_int_equal(found->n_rows, 14);
    assert_int_equal(check.n, 14);
    assert_float_equal(found->mean[at], mean, 1e-9);
    assert_float_equal(found->variance[at], (check.squares - 14.0 * mean * mean) / 13.0, 1e-9);
    hl_head_moments_free(found);
    assert_fails(HL_BAD_INPUT, "the text has 1 tokens",
                 hl_head_moments_take(&found, model, corpus,
                                      &(hl_moments_options){ .windows = { .max_tokens = 1 } }));
    assert_null(found);
    hl_session_close(session);
    hl_corpus_close(corpus);
    hl_model_close(model);
    remove_folder(folder);
}

/* Records the beginning of each stage as one letter. */
static hl_status note_stage(void *context, const hl_progress *progress)
{
    char *noted = context;

    if (progress->share == 0.0)
        strncat(noted, progress->stage, 1);
    return HL_OK;
}

static hl_status stop_at_once(void *context, const hl_progress *progress)
{
    (void)context;
    (void)progress;
    return HL_CANCELLED;
}

/* What a ranker requires is taken once, and the ranking is that of hl_rank. */
static void test_evidence(void **state)
{
    const char         *folder    = new_folder();
    const char         *path      = in_folder(folder, "ids.jsonl");
    const char         *text      = "[5,17,200,3,99,41,7,8,120,64,33,21]\n[90,255]\n[1]\n";
    hl_model           *model     = open_model(LLAMA);
    hl_corpus          *corpus    = NULL;
    hl_gradients       *gradients = NULL;
    hl_ranking         *ranking = NULL, *wanted = NULL;
    hl_evidence         evidence  = { 0 };
    char                noted[16] = "";
    hl_evidence_options options   = { .windows         = { .n_ctx = 8 },
                                      .gradient_tokens = 8,
                                      .n_threads       = 1,
                                      .progress        = note_stage,
                                      .context         = noted };
    (void)state;

    write_file(path, text, strlen(text));
    assert_ok(hl_corpus_open(&corpus, model, NULL, &(hl_corpus_options){ .token_ids = path }));
    assert_ok(hl_evidence_take(&evidence, HL_RANKER_WEIGHT, model, NULL, corpus, &options));
    assert_null(evidence.profile);
    assert_ok(hl_evidence_take(&evidence, HL_RANKER_SINK, model, NULL, corpus, &options));
    assert_int_equal(hl_profile_n_tokens(evidence.profile), 15);
    assert_null(evidence.gradients);
    assert_ok(
        hl_evidence_take(&evidence, HL_RANKER_ENTROPY_GRADIENT, model, NULL, corpus, &options));
    assert_ok(hl_evidence_take(&evidence, HL_RANKER_ABLATION, model, NULL, corpus, &options));
    assert_ok(hl_evidence_take(&evidence, HL_RANKER_ABLATION, model, NULL, corpus, &options));
    assert_string_equal(noted, "mga");
    assert_ok(hl_evidence_take(&evidence, HL_RANKER_WANDA, model, NULL, corpus, &options));
    assert_ok(hl_evidence_take(&evidence, HL_RANKER_FLUCTUATION, model, NULL, corpus, &options));
    assert_true(isnan(hl_profile_probe(evidence.profile, 0, 0, HL_PROBE_INDUCTION)));
    assert_ok(hl_evidence_take(&evidence, HL_RANKER_RETRIEVAL, model, NULL, corpus, &options));
    assert_ok(hl_evidence_take(&evidence, HL_RANKER_RETRIEVAL, model, NULL, corpus, &options));
    assert_string_equal(noted, "mgaom"); /* measured once more, with the probe */
    assert_false(isnan(hl_profile_probe(evidence.profile, 0, 0, HL_PROBE_INDUCTION)));

    assert_ok(
        hl_gate_gradients(&gradients, model, corpus,
                          &(hl_gradient_options){ .windows = { .n_ctx = 8, .max_tokens = 8 } }));
    assert_ok(hl_rank(&wanted, HL_RANKER_GRADIENT,
                      &(hl_rank_inputs){ .model = model, .gradient = gradients->magnitude }, NULL));
    assert_ok(hl_evidence_rank(&ranking, &evidence, HL_RANKER_GRADIENT, model, NULL));
    for (int64_t i = 0; i < wanted->n_heads; i++)
        assert_memory_equal(&ranking->heads[i], &wanted->heads[i], sizeof wanted->heads[i]);
    hl_evidence_free(&evidence);
    assert_null(evidence.profile);

    options.progress = stop_at_once;
    assert_int_equal(hl_evidence_take(&evidence, HL_RANKER_ABLATION, model, NULL, corpus, &options),
                     HL_CANCELLED);
    assert_null(evidence.ablation);
    hl_ranking_free(wanted);
    hl_ranking_free(ranking);
    hl_gradients_free(gradients);
    hl_corpus_close(corpus);
    hl_model_close(model);
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),        cmocka_unit_test(test_gates),
        cmocka_unit_test(test_gates_tensor), cmocka_unit_test(test_model_gates),
        cmocka_unit_test(test_rankings),     cmocka_unit_test(test_random),
        cmocka_unit_test(test_scores),       cmocka_unit_test(test_needs),
        cmocka_unit_test(test_weights),      cmocka_unit_test(test_choosing),
        cmocka_unit_test(test_groups),       cmocka_unit_test(test_groups_that_were_not_measured),
        cmocka_unit_test(test_auto),         cmocka_unit_test(test_places),
        cmocka_unit_test(test_gradients),    cmocka_unit_test(test_evidence),
        cmocka_unit_test(test_combined),     cmocka_unit_test(test_outputs),
        cmocka_unit_test(test_moments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
