/* engine_support.h - requests for an engine, and the events of their jobs. */
#ifndef HL_TESTS_ENGINE_SUPPORT_H
#define HL_TESTS_ENGINE_SUPPORT_H

#include "model_support.h"

#include <math.h>
#include <string.h>

#include "generate/engine.h"

#define LLAMA "tests/data/families/llama3"
#define NEOX  "tests/data/families/gpt_neox"

enum { N_JOBS = 16, N_CTX = 128, CHUNK = 16, MAX_TEXT = 160, D_VOCAB = 256, MAX_CELLS = 64 };

#define ALL_ROWS (((1u << HL_N_TRACE_ROWS) - 1) & ~HL_JOB_ROWS(HL_TRACE_CHANGE))

/* -------------------------------------------------------------------- requests */

typedef struct request {
    int64_t        prompt[N_CTX];
    float          gates[MAX_CELLS];
    hl_head        heads[2];
    hl_job_options options; /* options whose pointers refer to the members below */
} request;

static inline uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Makes request number `index`, with various lengths, samplers, gates and outputs. */
static inline void make_request(request *r, int index)
{
    uint32_t random = (uint32_t)index * 7919u + 1;

    *r                    = (request){ 0 };
    r->options.tokens     = r->prompt;
    r->options.n_tokens   = 1 + next_random(&random) % 70;
    r->options.max_tokens = 1 + next_random(&random) % 25;
    r->options.ignore_end = true;
    for (int64_t i = 0; i < r->options.n_tokens; i++)
        r->prompt[i] = 2 + next_random(&random) % (D_VOCAB - 2);
    if (index % 3 == 1)
        r->options.sample = (hl_sample_options){
            .temperature = 0.9, .top_k = 40, .repeat_penalty = 1.1, .seed = (uint64_t)index
        };
    if (index % 4 == 2) {
        for (int i = 0; i < MAX_CELLS; i++)
            r->gates[i] = i % 5 == 0 ? 0.0f : 1.0f;
        r->options.gates = r->gates;
    }
    if (index % 2 == 1) {
        r->options.n_top           = 5;
        r->options.rows            = ALL_ROWS;
        r->heads[0]                = (hl_head){ 2, 3 };
        r->heads[1]                = (hl_head){ 0, 1 };
        r->options.pattern_heads   = r->heads;
        r->options.n_pattern_heads = 2;
    }
}

static inline hl_engine *open_engine(const hl_model *model, hl_engine_options options)
{
    hl_engine *engine = NULL;

    options.n_ctx     = options.n_ctx != 0 ? options.n_ctx : N_CTX;
    options.n_chunk   = CHUNK;
    options.n_threads = options.n_threads != 0 ? options.n_threads : 2;
    assert_ok(hl_engine_open(&engine, model, &options));
    return engine;
}

static inline hl_job *submit(hl_engine *engine, const hl_job_options *options)
{
    hl_job *job = NULL;
    assert_ok(hl_engine_submit(&job, engine, options));
    return job;
}

static inline hl_engine_counts counts_of(hl_engine *engine)
{
    hl_engine_counts counts;
    hl_engine_count(&counts, engine);
    return counts;
}

/* ----------------------------------------------------------------- transcripts */

/* Everything that a job reported. */
typedef struct transcript {
    int64_t      n;
    hl_generated tokens[MAX_TEXT];
    int64_t      positions[MAX_TEXT];
    bool         from_prompt[MAX_TEXT];
    uint64_t     hash; /* hash of what the events point to */
    bool         cancelled;
} transcript;

static inline uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ ((const uint8_t *)bytes)[i]) * UINT64_C(1099511628211);
    return hash;
}

static inline void note(transcript *t, const hl_job_event *event, const hl_model_info *info)
{
    int64_t n_values = __builtin_popcount(event->rows) * info->n_layers * info->n_heads;

    assert_true(t->n < MAX_TEXT);
    t->tokens[t->n]      = event->token;
    t->positions[t->n]   = event->position;
    t->from_prompt[t->n] = event->from_prompt;
    t->n++;
    t->hash = hash_bytes(t->hash, event->top, sizeof *event->top * (size_t)event->n_top);
    t->hash = hash_bytes(t->hash, event->values, sizeof(float) * (size_t)n_values);
    t->hash = hash_bytes(t->hash, event->patterns,
                         sizeof(float) * (size_t)(event->n_patterns * event->n_keys));
}

/* Takes the events that arrive within `seconds`; returns true when the job is over. */
static inline bool take(transcript *t, hl_job *job, double seconds, const hl_model_info *info)
{
    hl_job_event event;

    assert_ok(hl_job_wait(&event, job, seconds));
    if (event.kind == HL_JOB_TOKEN)
        note(t, &event, info);
    t->cancelled = event.cancelled;
    return event.kind == HL_JOB_END;
}

static inline void take_all(transcript *t, hl_job *job, const hl_model_info *info)
{
    *t = (transcript){ 0 };
    while (!take(t, job, 60.0, info))
        continue;
}

/* Compares tokens bit by bit, except for padding in structs. */
static inline void assert_same_tokens(const hl_generated *a, const hl_generated *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(a[i].id, b[i].id);
        assert_memory_equal(&a[i], &b[i], offsetof(hl_generated, stop));
        assert_int_equal(a[i].stop, b[i].stop);
    }
}

static inline void assert_same_transcript(const transcript *a, const transcript *b)
{
    assert_int_equal(a->n, b->n);
    assert_same_tokens(a->tokens, b->tokens, a->n);
    for (int64_t i = 0; i < a->n; i++)
        assert_int_equal(a->positions[i], b->positions[i]);
    assert_true(a->hash == b->hash);
}

#endif
