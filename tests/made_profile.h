/* made_profile.h - profiles of attention that follow a rule, made row by row.
 *
 * A head gives a share `strength` of each row to the keys that its kind determines, and spreads the
 * rest evenly.  Statistics of rows are computed from the probabilities by their definitions, in
 * double, and added to a real profile. */
#ifndef HL_TESTS_MADE_PROFILE_H
#define HL_TESTS_MADE_PROFILE_H

#include "analysis_support.h"

#include "stats/profile.h"

enum { M_LAYERS = 6, M_HEADS = 8, M_ROWS = 64, M_SAMPLED = 8, M_TYPES = 2 };

typedef enum made_kind {
    MADE_UNIFORM = 0,
    MADE_PREVIOUS,
    MADE_SELF,
    MADE_FIRST,
    MADE_LOCAL,   /* the last five keys */
    MADE_CONTENT, /* a key that depends on the sequence and the row, neither near nor first */
    /* The first key, and the rest on one other key: nothing is spread. */
    MADE_FIRST_AND_SELF,
    MADE_FIRST_AND_PREVIOUS,
} made_kind;

typedef struct made_head {
    made_kind kind;
    double    strength;
    double    wobble;    /* how much the strength varies between sequences */
    double    norm;      /* norm of the head's output; 0: 1 */
    double    induction; /* score of the probe */
    bool      broken;    /* entropies are NaN from row 10 on */
} made_head;

typedef struct made_model {
    int64_t     n_layers; /* up to M_LAYERS; the same limit holds for heads */
    int64_t     n_heads;
    int64_t     n_sequences;
    uint64_t    first_sequence; /* sequences are identified by number, as if by text */
    uint64_t    hash;
    const char *context; /* what the profile says; NULL: "64" */
    double      loss;    /* of every token, nats; 0: not measured */
    made_head   heads[M_LAYERS][M_HEADS];
} made_model;

/* Returns a number from 0 to 1 that depends only on these three. */
static inline double made_noise(uint64_t a, uint64_t b, uint64_t c)
{
    hl_random random = { a * 0x9e3779b97f4a7c15u + b * 0xbf58476d1ce4e5b9u + c };
    hl_random_next(&random);
    return uniform(&random);
}

/* Computes row `row` of a head, (M_ROWS), with 0 after the row's own key. */
static inline void made_row(double *p, const made_head *head, uint64_t sequence, int row,
                            uint64_t who)
{
    double strength = head->strength + head->wobble * (made_noise(sequence, 7, 7) - 0.5);
    int    n        = row + 1;
    int    far = row > 6 ? 1 + (int)(made_noise(sequence, (uint64_t)row, who) * (row - 5)) : row;

    bool rest_on_one = head->kind == MADE_FIRST_AND_SELF || head->kind == MADE_FIRST_AND_PREVIOUS;

    if (rest_on_one) {
        memset(p, 0, M_ROWS * sizeof *p);
        p[0] += strength;
        p[head->kind == MADE_FIRST_AND_SELF || row == 0 ? row : row - 1] += 1.0 - strength;
        return;
    }
    for (int key = 0; key < M_ROWS; key++)
        p[key] = key < n ? (1.0 - (head->kind == MADE_UNIFORM ? 0.0 : strength)) / n : 0.0;
    if (head->kind == MADE_PREVIOUS)
        p[row > 0 ? row - 1 : 0] += strength;
    if (head->kind == MADE_SELF)
        p[row] += strength;
    if (head->kind == MADE_FIRST)
        p[0] += strength;
    if (head->kind == MADE_CONTENT)
        p[far] += strength;
    for (int back = 0; head->kind == MADE_LOCAL && back < 5; back++)
        p[row > back ? row - back : 0] += strength / 5;
}

/* Computes entropy, collision entropy and varentropy of keys [from, n), renormalized. */
static inline void made_entropies(double out[3], const double *p, int from, int n)
{
    double total = 0, h = 0, squares = 0, second = 0;

    for (int key = from; key < n; key++)
        total += p[key];
    for (int key = from; key < n; key++) {
        double share = p[key] / total;
        if (share <= 0)
            continue;
        h -= share * log(share);
        squares += share * share;
        second += share * log(share) * log(share);
    }
    out[0] = h;
    out[1] = -log(squares);
    out[2] = second - h * h;
}

typedef struct made_layer {
    float values[9][M_HEADS][M_ROWS]; /* in the order of hl_quantity, NORMALIZED unused */
    float mass[M_HEADS][M_ROWS][M_TYPES];
    float pattern[M_HEADS][M_SAMPLED][M_ROWS];
} made_layer;

/* Every fourth token has type special. */
static inline int made_type(int position)
{
    return position % 4 == 0;
}

static inline void made_head_rows(made_layer *out, int at, const made_head *head, uint64_t sequence,
                                  uint64_t who)
{
    for (int row = 0; row < M_ROWS; row++) {
        double p[M_ROWS], all[3], rest[3] = { 0, 0, 0 }, peak = 0;

        made_row(p, head, sequence, row, who);
        made_entropies(all, p, 0, row + 1);
        if (row > 0)
            made_entropies(rest, p, 1, row + 1);
        for (int key = 0; key <= row; key++) {
            peak = fmax(peak, p[key]);
            out->mass[at][row][made_type(key)] += (float)p[key];
        }
        out->values[HL_Q_ENTROPY][at][row] =
            head->broken && row >= 10 ? NAN : (float)fmax(all[0], 0.0);
        out->values[HL_Q_RENYI2][at][row]         = (float)fmax(all[1], 0.0);
        out->values[HL_Q_VARENTROPY][at][row]     = (float)fmax(all[2], 0.0);
        out->values[HL_Q_PEAK][at][row]           = (float)peak;
        out->values[HL_Q_SELF][at][row]           = (float)p[row];
        out->values[HL_Q_PREVIOUS][at][row]       = row > 0 ? (float)p[row - 1] : 0.0f;
        out->values[HL_Q_FIRST][at][row]          = (float)p[0];
        out->values[HL_Q_ENTROPY_NOSINK][at][row] = (float)fmax(rest[0], 0.0);
        for (int key = 0; row % 8 == 7 && key < M_ROWS; key++)
            out->pattern[at][row / 8][key] = (float)p[key];
    }
}

static inline void add_made_layer(hl_profile *profile, made_layer *layer, int64_t number,
                                  int64_t n_heads)
{
    static int64_t      sampled[M_SAMPLED];
    int64_t             start = 0, length = M_ROWS;
    hl_attention_result statistics = {
        .entropy        = layer->values[HL_Q_ENTROPY][0],
        .renyi2         = layer->values[HL_Q_RENYI2][0],
        .varentropy     = layer->values[HL_Q_VARENTROPY][0],
        .peak           = layer->values[HL_Q_PEAK][0],
        .self           = layer->values[HL_Q_SELF][0],
        .previous       = layer->values[HL_Q_PREVIOUS][0],
        .first          = layer->values[HL_Q_FIRST][0],
        .entropy_nosink = layer->values[HL_Q_ENTROPY_NOSINK][0],
        .segment_mass   = layer->mass[0][0],
    };
    hl_layer_rows rows = {
        .layer        = number,
        .n_batch      = 1,
        .n_rows       = M_ROWS,
        .n_heads      = n_heads,
        .start        = &start,
        .lengths      = &length,
        .rows         = &statistics,
        .pattern      = layer->pattern[0][0],
        .pattern_rows = sampled,
        .n_patterns   = M_SAMPLED,
        .n_keys       = M_ROWS,
    };
    hl_profile_mask mask = { .is_causal = true };

    for (int i = 0; i < M_SAMPLED; i++)
        sampled[i] = 8 * i + 7;
    assert_ok(hl_profile_layer(profile, &rows, &mask));
}

static inline void add_made_sequence(hl_profile *profile, const made_model *model,
                                     uint64_t sequence)
{
    static made_layer layer;
    int64_t           length = M_ROWS, zero = 0, document = (int64_t)sequence;
    uint64_t          hash = (sequence + 1) * 0x9e3779b97f4a7c15u;
    uint8_t           types[M_ROWS];
    hl_profile_batch  batch = { .n_batch   = 1,
                                .lengths   = &length,
                                .first_row = &zero,
                                .hashes    = &hash,
                                .types     = types,
                                .context   = M_ROWS,
                                .documents = &document,
                                .starts    = &zero,
                                .n_threads = 1 };

    for (int i = 0; i < M_ROWS; i++)
        types[i] = (uint8_t)made_type(i);
    assert_ok(hl_profile_begin(profile, &batch));
    for (int64_t l = 0; l < model->n_layers; l++) {
        memset(&layer, 0, sizeof layer);
        for (int64_t h = 0; h < model->n_heads; h++) {
            const made_head *head = &model->heads[l][h];
            /* Heads of equal strength attend to the same content: they are copies. */
            made_head_rows(&layer, (int)h, head, sequence, (uint64_t)(1000.0 * head->strength));
            hl_profile_norm(profile, -1, l, h, head->norm != 0 ? head->norm : 1.0);
        }
        add_made_layer(profile, &layer, l, model->n_heads);
        hl_profile_influence(profile, l, 0.1 + 0.01 * (double)l);
    }
    for (int i = 0; i < M_ROWS && model->loss > 0.0; i++)
        hl_profile_loss(profile, model->loss);
    assert_ok(hl_profile_end(profile));
}

static inline hl_profile *made_profile(const made_model *model)
{
    static const char *const names[M_TYPES] = { "prompt", "special" };
    int64_t                  heads[M_LAYERS];
    hl_profile              *profile = NULL;

    for (int64_t l = 0; l < model->n_layers; l++)
        heads[l] = model->n_heads;
    assert_ok(hl_profile_new(
        &profile, &(hl_profile_shape){ model->n_layers, heads, M_ROWS, M_TYPES, names }));
    assert_ok(hl_profile_set_hash(profile, "model", model->hash));
    assert_ok(hl_profile_set(profile, "context", model->context != NULL ? model->context : "64"));
    for (int64_t i = 0; i < model->n_sequences; i++)
        add_made_sequence(profile, model, model->first_sequence + (uint64_t)i);
    for (int64_t l = 0; l < model->n_layers; l++) {
        for (int64_t h = 0; h < model->n_heads; h++)
            hl_profile_set_probe(profile, l, h, HL_PROBE_INDUCTION, model->heads[l][h].induction);
    }
    return profile;
}

/* Six layers of eight heads of all kinds, with no two heads alike. */
static inline made_model healthy_model(void)
{
    static const made_kind kinds[M_HEADS] = { MADE_UNIFORM, MADE_PREVIOUS, MADE_SELF,
                                              MADE_CONTENT, MADE_LOCAL,    MADE_CONTENT,
                                              MADE_CONTENT, MADE_CONTENT };
    made_model             model = { .n_layers = M_LAYERS, .n_heads = M_HEADS, .n_sequences = 12 };

    for (int l = 0; l < M_LAYERS; l++) {
        for (int h = 0; h < M_HEADS; h++)
            model.heads[l][h] = (made_head){ .kind     = kinds[(h + l) % M_HEADS],
                                             .strength = 0.45 + 0.05 * h + 0.01 * l,
                                             .wobble   = 0.05,
                                             .norm     = 1.0 };
    }
    return model;
}

#endif
