/* attention_cases.h - random attention problems for the tests of the operator.
 *
 * A case owns every buffer of a problem, its forward outputs and its gradients.
 * Cases are drawn from a seed: sizes of 0, 1 and ragged sizes are common, and
 * every option appears alone and with others. */
#ifndef HL_TESTS_ATTENTION_CASES_H
#define HL_TESTS_ATTENTION_CASES_H

#include "headlight.h"

enum { CASE_STATISTICS = 10 };

typedef struct attention_outputs {
    float   *out;
    float   *statistics[CASE_STATISTICS]; /* in the order of case_statistic_name */
    int64_t *argmax;
    float   *segment_mass;
    float   *received[2]; /* from all queries, and from the last third */
    float   *dq, *dk, *dv, *dgates, *dsinks;
} attention_outputs;

typedef struct attention_case {
    hl_attention problem;
    float        max_score; /* bound on |score|, for the rounding term */
    float       *grad_out, *grad_entropy, *grad_lse;
    float       *q, *k, *v; /* the values before rounding to the problem's dtype */
    void        *owned[32];
    int          n_owned;
} attention_case;

const char *case_statistic_name(int index);

/* Draws a random problem of at most `largest` queries and keys. */
void case_draw(attention_case *c, uint64_t seed, int64_t largest);
/* Draws a problem of one or two rows against thousands of keys. */
void case_draw_decode(attention_case *c, uint64_t seed);
/* Puts NaN, +inf or -inf into one to three places of q, k, v or the key bias. */
void case_spoil(attention_case *c);
void case_free(attention_case *c);
/* Returns one line for messages, in a static buffer. */
const char *case_describe(const attention_case *c);

void case_outputs_new(attention_outputs *o, const attention_case *c);
void case_outputs_free(attention_outputs *o);
/* Runs the forward pass, then the backward pass and hl_attention_received on its results; fails the test on an error. */
void case_run(attention_outputs *o, const attention_case *c, const char *backend);

/* Numbers of elements of the outputs. */
int64_t case_n_rows(const attention_case *c);
int64_t case_n_queries(const attention_case *c); /* elements of q  */
int64_t case_n_keys(const attention_case *c);    /* elements of k  */
int64_t case_n_values(const attention_case *c);  /* elements of v  */
int64_t case_n_out(const attention_case *c);     /* elements of out */
int64_t case_n_received(const attention_case *c);

#endif
