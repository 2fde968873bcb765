/* measure_support.h - a model, and a text to measure it on. */
#ifndef HL_TESTS_MEASURE_SUPPORT_H
#define HL_TESTS_MEASURE_SUPPORT_H

#include "model_support.h"
#include "profile_support.h"

typedef struct work {
    hl_model  *model;
    hl_corpus *corpus;
} work;

static inline work open_work(const char *model_path, const char *token_ids)
{
    work w = { .model = open_model(model_path) };

    assert_ok(
        hl_corpus_open(&w.corpus, w.model, NULL, &(hl_corpus_options){ .token_ids = token_ids }));
    return w;
}

static inline void close_work(work *w)
{
    hl_corpus_close(w->corpus);
    hl_model_close(w->model);
}

static inline hl_profile *measure(const work *w, const hl_measure_options *options)
{
    hl_profile *profile = NULL;
    assert_ok(hl_measure(&profile, w->model, NULL, w->corpus, options));
    return profile;
}

enum { N_DOCUMENTS = 13 };

/* Writes token ids of documents of various lengths; returns the path of the file. */
static inline const char *write_documents(const char *folder, int64_t d_vocab)
{
    const char *path  = in_folder(folder, "ids.jsonl");
    FILE       *file  = fopen(path, "w");
    uint64_t    state = 3;

    assert_non_null(file);
    for (int document = 0; document < N_DOCUMENTS; document++) {
        int length = 1 + document * document % 71;
        fputc('[', file);
        for (int i = 0; i < length; i++)
            fprintf(file, "%s%d", i > 0 ? "," : "", (int)(made_random(&state) * (double)d_vocab));
        fputs("]\n", file);
    }
    fclose(file);
    return path;
}

#endif
