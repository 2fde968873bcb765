/* cost.c - the heads that a text needs least, and the cost of disabling them.
 *
 *     cost MODEL RATIO <TEXT
 *
 * Ranks heads by the gradient of the loss, disables the first RATIO of them, and compares the rise
 * of the loss with the sum of the costs of single heads. */
#include <stdio.h>
#include <stdlib.h>

#include <headlight.h>

enum { N_CTX = 128, N_TOKENS = 256 };

static const hl_window_options windows = { .n_ctx = N_CTX, .max_tokens = N_TOKENS };

static bool choose(hl_head_list **out, const hl_model *model, const hl_corpus *corpus, double ratio)
{
    hl_gradient_options options   = { .windows = windows };
    hl_gradients       *gradients = NULL;
    hl_ranking         *ranking   = NULL;
    hl_rank_inputs      inputs    = { .model = model };
    bool                ok        = hl_gate_gradients(&gradients, model, corpus, &options) == HL_OK;

    if (ok)
        inputs.gradient = gradients->magnitude;
    ok = ok && hl_rank(&ranking, HL_RANKER_GRADIENT, &inputs, NULL) == HL_OK &&
         hl_ranking_choose(out, ranking, &(hl_choice){ .ratio = ratio }) == HL_OK;
    hl_ranking_free(ranking);
    hl_gradients_free(gradients);
    return ok;
}

static bool show_together(const hl_model *model, const hl_corpus *corpus, const hl_head_list *heads)
{
    hl_evaluate_options options = { .windows = windows };
    hl_gates           *gates   = NULL;
    hl_evaluation      *found   = NULL;
    char               *names   = NULL;
    bool ok = hl_head_list_text(&names, heads) == HL_OK && hl_gates_new(&gates, model) == HL_OK;

    if (ok)
        hl_gates_set(gates, heads, 0.0f);
    ok = ok && hl_evaluate(&found, model, corpus, gates->values, 1, &options) == HL_OK;
    if (ok)
        printf("without %s: %.4f nats a token, %.4f with all heads\n", names,
               hl_evaluation_total(found, 0).nll / (double)found->n_scored,
               hl_evaluation_total(found, -1).nll / (double)found->n_scored);
    hl_evaluation_free(found);
    hl_gates_free(gates);
    hl_free(names);
    return ok;
}

static bool show_alone(const hl_model *model, const hl_corpus *corpus, const hl_head_list *heads)
{
    const hl_model_info *info    = hl_model_get_info(model);
    hl_evaluate_options  options = { .windows = windows };
    size_t               n_cells = (size_t)(info->n_layers * info->n_heads);
    double              *rises   = hl_memory_allocate(n_cells * sizeof *rises);
    double               sum     = 0.0;
    bool                 ok = rises != NULL && hl_ablate(rises, model, corpus, &options) == HL_OK;

    for (int64_t i = 0; ok && i < heads->n_heads; i++)
        sum += rises[heads->heads[i].layer * info->n_heads + heads->heads[i].head];
    if (ok)
        printf("one at a time they cost %.4f nats in all\n", sum);
    hl_free(rises);
    return ok;
}

int main(int argc, char **argv)
{
    static char       bytes[1 << 16];
    hl_corpus_options options   = { 0 };
    hl_model         *model     = NULL;
    hl_tokenizer     *tokenizer = NULL;
    hl_corpus        *corpus    = NULL;
    hl_head_list     *heads     = NULL;

    if (argc != 3) {
        fprintf(stderr, "usage: cost MODEL RATIO <TEXT\n");
        return 2;
    }
    size_t n_bytes = fread(bytes, 1, sizeof bytes, stdin);
    bool   ok      = hl_model_open(&model, argv[1]) == HL_OK &&
              hl_tokenizer_open(&tokenizer, argv[1]) == HL_OK &&
              hl_corpus_open_bytes(&corpus, model, tokenizer, bytes, n_bytes, "text", &options) ==
                  HL_OK &&
              choose(&heads, model, corpus, strtod(argv[2], NULL)) &&
              show_together(model, corpus, heads) && show_alone(model, corpus, heads);
    if (!ok)
        fprintf(stderr, "%s\n", hl_error_message());
    hl_head_list_free(heads);
    hl_corpus_close(corpus);
    hl_tokenizer_close(tokenizer);
    hl_model_close(model);
    return ok ? 0 : 3;
}
