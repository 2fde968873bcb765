/* corpus.c - opening a corpus: files, then documents, then a sample of them.
 *
 * Reading it is corpus_reader.c's part. */
#include "measure/corpus.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "measure/corpus_parts.h"
#include "tokenize/tokenizer.h"

/* ------------------------------------------------------------------- options */

/* A text in memory, and what messages call it; name is NULL where texts are files. */
typedef struct memory_text {
    hl_bytes    bytes;
    const char *name;
} memory_text;

static hl_status check_options(const hl_tokenizer *tokenizer, const memory_text *memory,
                               const hl_corpus_options *options)
{
    if (options == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "corpus: no options");
    if (memory->name != NULL && options->n_inputs > 0)
        return hl_fail(HL_BAD_ARGUMENT, "corpus: either a text in memory or files, not both");
    size_t n_texts = options->n_inputs + (memory->name != NULL ? 1 : 0);
    if (n_texts == 0 && options->token_ids == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "no text given");
    if (n_texts > 0 && options->token_ids != NULL)
        return hl_fail(HL_BAD_ARGUMENT, "text and token ids cannot be combined");
    if (n_texts > 0 && tokenizer == NULL)
        return hl_fail(
            HL_BAD_ARGUMENT,
            "text needs a tokenizer, but none was found; name one with --tokenizer PATH");
    if (options->n_sample < 0)
        return hl_fail(HL_BAD_ARGUMENT, "a sample of %lld documents", (long long)options->n_sample);
    if (options->format < HL_TEXT_AUTO || options->format > HL_TEXT_JSONL)
        return hl_fail(HL_BAD_ARGUMENT, "no text format %d", (int)options->format);
    return HL_OK;
}

static int64_t choose_separator(const hl_tokenizer *tokenizer, const hl_model_info *info)
{
    int64_t id = tokenizer != NULL ? hl_tokenizer_special(tokenizer, HL_SPECIAL_EOS) : -1;

    if (id < 0 && info != NULL && info->n_eos_ids > 0 && info->eos_ids[0] < info->d_vocab)
        id = info->eos_ids[0];
    return id;
}

static hl_status set_vocabulary(hl_corpus *corpus, const hl_model *model,
                                const hl_tokenizer *tokenizer)
{
    const hl_model_info *info = model != NULL ? hl_model_get_info(model) : NULL;

    if (info == NULL && tokenizer == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "token ids need a model or a tokenizer to be checked by");
    corpus->tokenizer = tokenizer;
    corpus->n_vocab   = info != NULL ? info->d_vocab : (int64_t)hl_tokenizer_size(tokenizer);
    corpus->separator = choose_separator(tokenizer, info);
    return HL_OK;
}

/* -------------------------------------------------------- files to documents */

static hl_status index_file(hl_corpus *corpus, uint32_t number)
{
    const hl_text_file *file = &corpus->files.items[number];

    HL_SCOPED(hl_text_source_close) hl_text_source source = { 0 };

    HL_NEED(hl_text_source_open(&source, file));
    if (file->format == HL_TEXT_JSONL)
        HL_NEED(hl_documents_add_lines(&corpus->documents, &corpus->types, &source, number,
                                       corpus->field));
    else
        HL_NEED(hl_documents_add_text(&corpus->documents, &source, number));
    return HL_OK;
}

static hl_status index_inputs(hl_corpus *corpus, const memory_text *memory,
                              const hl_corpus_options *options)
{
    if (memory->name != NULL)
        HL_NEED(
            hl_text_files_add_memory(&corpus->files, memory->bytes, memory->name, options->format));
    for (size_t i = 0; i < options->n_inputs; i++)
        HL_NEED(hl_text_files_add(&corpus->files, options->inputs[i], options->format));
    for (size_t i = 0; i < corpus->files.count; i++)
        HL_NEED(index_file(corpus, (uint32_t)i));
    return HL_OK;
}

static hl_status index_ids(hl_corpus *corpus, const char *path)
{
    HL_SCOPED(hl_text_source_close) hl_text_source source = { 0 };

    corpus->has_ids = true;
    HL_NEED(hl_text_files_add(&corpus->files, path, HL_TEXT_JSONL));
    if (corpus->files.count != 1)
        return hl_fail(HL_BAD_INPUT, "%s: %zu files, wanted one file of token ids", path,
                       corpus->files.count);
    const hl_text_file *file = &corpus->files.items[0];
    HL_NEED(hl_id_table_open(&corpus->table, &corpus->has_table, file->path));
    if (corpus->has_table) {
        HL_NEED(hl_documents_add_rows(&corpus->documents, &corpus->table, corpus->n_vocab));
    } else {
        HL_NEED(hl_text_source_open(&source, file));
        HL_NEED(hl_documents_add_id_lines(&corpus->documents, &source, corpus->n_vocab));
    }
    return HL_OK;
}

static hl_status check_not_empty(const hl_corpus *corpus)
{
    const char *what = corpus->has_ids ? "token ids" : "text";

    if (corpus->documents.count > 0)
        return HL_OK;
    if (corpus->files.count == 1)
        return hl_fail(HL_BAD_INPUT, "%s: no %s in this file, nothing to measure",
                       corpus->files.items[0].path, what);
    return hl_fail(HL_BAD_INPUT, "%s and %zu more files: no %s in these files, nothing to measure",
                   corpus->files.items[0].path, corpus->files.count - 1, what);
}

static void sum_up(hl_corpus *corpus)
{
    corpus->info = (hl_corpus_info){
        .n_documents   = (int64_t)corpus->documents.count,
        .n_files       = (int64_t)corpus->files.count,
        .n_empty       = corpus->documents.n_empty,
        .n_skipped     = corpus->files.n_skipped,
        .first_skipped = corpus->files.first_skipped,
        .type_names    = (const char *const *)corpus->types.names,
        .n_types       = corpus->types.n_types,
    };
    for (size_t i = 0; i < corpus->documents.count; i++) {
        corpus->info.n_bytes += corpus->documents.items[i].n_bytes;
        corpus->info.hash += corpus->documents.items[i].hash;
    }
}

/* ------------------------------------------------------------ open and close */

static hl_status fill_corpus(hl_corpus *corpus, const memory_text *memory,
                             const hl_corpus_options *options)
{
    corpus->encoding = (hl_encode_options){ .plain   = options->plain,
                                            .stop    = options->stop,
                                            .context = options->context };
    if (options->field != NULL)
        HL_NEED(hl_strdup(&corpus->field, options->field));
    HL_NEED(hl_types_open(&corpus->types, options->types, options->n_types));
    if (options->token_ids != NULL)
        HL_NEED(index_ids(corpus, options->token_ids));
    else
        HL_NEED(index_inputs(corpus, memory, options));
    HL_NEED(check_not_empty(corpus));
    if (options->n_sample > 0)
        HL_NEED(hl_documents_sample(&corpus->documents, options->n_sample, options->seed));
    HL_NEED(hl_types_finish(&corpus->types));
    sum_up(corpus);
    return HL_OK;
}

static hl_status open_corpus(hl_corpus **out, const hl_model *model, const hl_tokenizer *tokenizer,
                             const memory_text *memory, const hl_corpus_options *options)
{
    HL_CLOSED(hl_corpus_close) hl_corpus *corpus = NULL;

    *out = NULL;
    HL_NEED(check_options(tokenizer, memory, options));
    HL_NEED(HL_ALLOC_ZEROED(&corpus, 1));
    HL_NEED(set_vocabulary(corpus, model, tokenizer));
    HL_NEED(fill_corpus(corpus, memory, options));
    *out = hl_taken(&corpus);
    return HL_OK;
}

hl_status hl_corpus_open(hl_corpus **out, const hl_model *model, const hl_tokenizer *tokenizer,
                         const hl_corpus_options *options)
{
    return open_corpus(out, model, tokenizer, &(memory_text){ 0 }, options);
}

hl_status hl_corpus_open_bytes(hl_corpus **out, const hl_model *model,
                               const hl_tokenizer *tokenizer, const void *bytes, size_t n_bytes,
                               const char *name, const hl_corpus_options *options)
{
    *out = NULL;
    if (bytes == NULL || name == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "corpus: no bytes, or no name for them");
    return open_corpus(out, model, tokenizer, &(memory_text){ { bytes, n_bytes }, name }, options);
}

void hl_corpus_close(hl_corpus *corpus)
{
    if (corpus == NULL)
        return;
    hl_text_files_free(&corpus->files);
    hl_documents_free(&corpus->documents);
    hl_types_close(&corpus->types);
    hl_id_table_close(&corpus->table);
    hl_free(corpus->field);
    hl_free(corpus);
}

/* ----------------------------------------------------------------- questions */

const hl_corpus_info *hl_corpus_get_info(const hl_corpus *corpus)
{
    return &corpus->info;
}

hl_status hl_corpus_get_document(hl_document_info *out, const hl_corpus *corpus, int64_t document)
{
    if (document < 0 || document >= corpus->info.n_documents)
        return hl_fail(HL_BAD_ARGUMENT, "document %lld, wanted 0 to %lld", (long long)document,
                       (long long)corpus->info.n_documents - 1);
    const hl_document *item = &corpus->documents.items[document];
    *out                    = (hl_document_info){ .n_bytes = item->n_bytes, .hash = item->hash };
    hl_name_line(out->name, sizeof out->name, corpus->files.items[item->file].path, item->line);
    return HL_OK;
}

const char *hl_around_name(size_t around)
{
    static const char *const names[] = { "window", "document", "none" };

    return around < sizeof names / sizeof *names ? names[around] : NULL;
}

hl_status hl_corpus_around(hl_around_tokens *out, const hl_corpus *corpus)
{
    hl_around_tokens around = { 0 };

    *out = around;
    if (corpus->has_ids || corpus->tokenizer == NULL)
        return HL_OK;
    around = hl_tokenizer_around(corpus->tokenizer);
    for (size_t i = 0; i < around.n_before + around.n_after; i++) {
        int64_t id = i < around.n_before ? around.before[i] : around.after[i - around.n_before];
        if (id < 0 || id >= corpus->n_vocab)
            return hl_fail(HL_BAD_INPUT,
                           "the tokenizer adds id %lld around a text, but the model has only %lld "
                           "tokens: this is the tokenizer of another model",
                           (long long)id, (long long)corpus->n_vocab);
    }
    *out = around;
    return HL_OK;
}

int64_t hl_corpus_separator(const hl_corpus *corpus)
{
    return corpus->separator;
}

uint64_t hl_corpus_bytes_of(const hl_corpus *corpus, int64_t document)
{
    return corpus->documents.items[document].n_bytes;
}
