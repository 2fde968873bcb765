/* heads.c - the heads of a model with the lowest and the highest entropy.
 *
 *     heads MODEL TEXT
 *
 * Measures the model on a text file and prints the three heads of lowest and of highest entropy,
 * and the problems that diagnose finds. */
#include <stdio.h>
#include <stdlib.h>

#include <headlight.h>

typedef struct ranked_head {
    int64_t layer, head;
    double  entropy; /* mean over all rows, in nats */
} ranked_head;

static int by_entropy(const void *a, const void *b)
{
    double x = ((const ranked_head *)a)->entropy, y = ((const ranked_head *)b)->entropy;
    return (x > y) - (x < y);
}

static hl_status measure(hl_profile **out, const char *path, const char *text)
{
    hl_model          *model     = NULL;
    hl_tokenizer      *tokenizer = NULL;
    hl_corpus         *corpus    = NULL;
    hl_corpus_options  input     = { .inputs = &text, .n_inputs = 1 };
    hl_measure_options options   = { .windows = { .n_ctx = 256, .max_tokens = 2048 } };
    hl_status          status    = hl_model_open(&model, path);

    if (status == HL_OK)
        status = hl_tokenizer_open(&tokenizer, path);
    if (status == HL_OK)
        status = hl_corpus_open(&corpus, model, tokenizer, &input);
    if (status == HL_OK)
        status = hl_measure(out, model, tokenizer, corpus, &options);
    hl_corpus_close(corpus);
    hl_tokenizer_close(tokenizer);
    hl_model_close(model);
    return status;
}

static hl_status show_heads(const hl_profile *profile)
{
    int64_t      n_layers = hl_profile_n_layers(profile), n_heads = hl_profile_n_heads(profile);
    ranked_head *heads = malloc((size_t)(n_layers * n_heads) * sizeof *heads);
    int64_t      count = 0;

    if (heads == NULL)
        return HL_NO_MEMORY;
    for (int64_t layer = 0; layer < n_layers; layer++)
        for (int64_t head = 0; head < hl_profile_heads_of(profile, layer); head++)
            heads[count++] =
                (ranked_head){ layer, head,
                               hl_profile_moments(profile, layer, head, HL_Q_ENTROPY).mean };
    qsort(heads, (size_t)count, sizeof *heads, by_entropy);
    for (int64_t i = 0; i < count; i++)
        if (i < 3 || i >= count - 3)
            printf("%s  L%lldH%lld  %.3f nats\n", i < 3 ? "sharpest" : "flattest",
                   (long long)heads[i].layer, (long long)heads[i].head, heads[i].entropy);
    free(heads);
    return HL_OK;
}

static hl_status show_diagnoses(const hl_profile *profile)
{
    hl_diagnoses *found  = NULL;
    hl_status     status = hl_diagnose(&found, profile, NULL, NULL);

    for (int i = 0; status == HL_OK && i < HL_N_DIAGNOSES; i++)
        if (found->items[i].verdict == HL_VERDICT_FOUND)
            printf("%s: %s\n", found->items[i].name, found->items[i].finding);
    hl_diagnoses_free(found);
    return status;
}

int main(int argc, char **argv)
{
    hl_profile *profile = NULL;

    if (argc != 3) {
        fprintf(stderr, "usage: heads MODEL TEXT\n");
        return 2;
    }
    hl_status status = measure(&profile, argv[1], argv[2]);
    if (status == HL_OK)
        status = show_heads(profile);
    if (status == HL_OK)
        status = show_diagnoses(profile);
    hl_profile_free(profile);
    if (status != HL_OK)
        fprintf(stderr, "%s\n", hl_error_message());
    return status == HL_OK ? 0 : 3;
}
