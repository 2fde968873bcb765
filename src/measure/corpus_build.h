/* corpus_build.h - what a corpus is made of: for corpus.c, which opens it, and
 * corpus_reader.c, which reads it.  Nothing changes once it is open. */
#ifndef HL_MEASURE_CORPUS_BUILD_H
#define HL_MEASURE_CORPUS_BUILD_H

#include "headlight.h"
#include "measure/corpus_files.h"
#include "measure/corpus_ids.h"
#include "measure/corpus_index.h"
#include "measure/corpus_types.h"

struct hl_corpus {
    const hl_tokenizer *tokenizer; /* NULL: token ids only */
    int64_t             n_vocab;
    int32_t             separator;
    hl_text_files       files;
    hl_documents        documents;
    hl_types            types;
    bool                has_ids;   /* documents are token ids ...  */
    bool                has_table; /* ... and rows of this:        */
    hl_id_table         table;
    char               *field; /* NULL: the usual ones */
    bool                plain;
    hl_corpus_info      info;
};

#endif
