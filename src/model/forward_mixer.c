/* forward_mixer.c - branches with a state, and the states of sequences.
 *
 * A mixer is two products with a convolution, a recurrence and a gate between them: config.h has
 * each kind in one line.  Its state is part of the session: it continues from chunk to chunk, a
 * sequence that begins at position 0 begins with zeros, and after a rewind it is recovered. */
#include <string.h>

#include "base/status.h"
#include "model/forward.h"

/* -------------------------------------------------------------- one branch */

/* A branch that is being run. */
typedef struct mixing {
    hl_session             *session;
    hl_device_session      *d;
    const hl_device_mixer  *w;
    const hl_mixer_config  *config;
    const hl_device_places *places;
    hl_mixer                kind;
    float                  *state;  /* of the layer, for all sequences */
    int64_t                 stride; /* floats between sequences */
    int64_t                 inner;  /* n_heads d_head */
    int64_t                 keys;   /* n_groups d_state */
} mixing;

static mixing mixing_of(hl_session *session, int64_t layer)
{
    const hl_config *config = session->config;
    hl_mixer         kind   = config->layers[layer].mixer;

    return (mixing){ .session = session,
                     .d       = session->device,
                     .w       = &session->device->weights.layers[layer].mixer,
                     .config  = &config->mixer,
                     .places  = &session->device->inputs.places,
                     .kind    = kind,
                     .state   = session->states.layers[layer].now,
                     .stride  = hl_mixer_state_floats(config, kind),
                     .inner   = config->mixer.n_heads * config->mixer.d_head,
                     .keys    = config->mixer.n_groups * config->mixer.d_state };
}

static void *at(const mixing *m, void *rows, int64_t column)
{
    return (uint8_t *)rows + (size_t)column * m->d->size;
}

/* Convolves columns from `first` on of the first projection to rows.mix. */
static hl_status run_conv(const mixing *m, int64_t first)
{
    hl_device_session *d    = m->d;
    bool               bare = m->kind == HL_MIXER_CONV;
    hl_device_conv     conv = { .out      = bare ? d->rows.mixed : d->rows.mix,
                                .x        = at(m, d->rows.mix_in, bare ? 2 * m->inner : first),
                                .x_stride = m->w->in.n_out,
                                .weight   = m->w->conv.weight,
                                .bias     = m->w->conv.bias,
                                .state    = m->state,
                                .stride   = m->stride,
                                .width    = m->config->width,
                                .n        = m->config->n_channels,
                                .is_silu  = !bare,
                                .dtype    = d->dtype,
                                .places   = *m->places };

    if (bare) {
        conv.times = d->rows.mix_in;
        conv.after = at(m, d->rows.mix_in, m->inner);
    }
    return hl_device_checked(d, d->ops->conv(d->device, &conv), "convolution");
}

/* The recurrence from rows.mix to rows.mixed, apart from what differs between kinds. */
static hl_device_scan scan_of(const mixing *m)
{
    hl_device_session *d = m->d;

    return (hl_device_scan){
        .out      = d->rows.mixed,
        .x_stride = m->config->n_channels,
        .k_stride = m->config->n_channels,
        .dt_scale = 1.0f,
        .dt_low   = (float)m->config->dt_low,
        .dt_high  = (float)m->config->dt_high,
        .a        = m->w->decay.weight,
        .dt_bias  = m->w->dt_bias.weight,
        .skip     = m->w->skip.weight,
        .state    = m->state + hl_mixer_conv_floats(m->session->config, m->kind),
        .stride   = m->stride,
        .n_heads  = m->config->n_heads,
        .n_groups = m->config->n_groups,
        .is_tiled = m->config->is_tiled,
        .d_state  = m->config->d_state,
        .d_head   = m->config->d_head,
        .dtype    = d->dtype,
        .places   = *m->places,
    };
}

static hl_status run_scan(const mixing *m, const hl_device_scan *scan)
{
    return hl_device_checked(m->d, m->d->ops->scan(m->d->device, scan), "recurrence");
}

/* The gate on rows.mixed by column z of the first projection, with the norm of the kind. */
static hl_status run_gate(const mixing *m, int64_t z)
{
    hl_device_session *d       = m->d;
    int64_t            n_norms = m->config->n_norms;
    hl_device_gate     gate    = { .out        = d->rows.mixed,
                                   .x          = d->rows.mixed,
                                   .z          = at(m, d->rows.mix_in, z),
                                   .x_stride   = m->inner,
                                   .z_stride   = m->w->in.n_out,
                                   .activation = HL_ACTIVATION_SILU,
                                   .z_scale    = (float)m->config->factors[HL_MIX_Z],
                                   .scale      = (float)m->config->out_factor,
                                   .has_norm   = n_norms > 0,
                                   .norm_first = m->config->norm_first,
                                   .d_group    = n_norms > 0 ? m->inner / n_norms : m->inner,
                                   .weight     = m->w->norm.weight,
                                   .is_shared  = m->kind == HL_MIXER_DELTA,
                                   .eps        = (float)m->session->config->norm_eps,
                                   .dtype      = d->dtype,
                                   .n_rows     = m->places->n_batch * m->places->batch_rows,
                                   .n          = m->inner,
                                   .places     = *m->places };

    return hl_device_checked(d, d->ops->gate(d->device, &gate), "gate");
}

/* q, k, v | z | b | a. */
static hl_status run_delta(const mixing *m)
{
    hl_device_session *d    = m->d;
    int64_t            z    = m->config->n_channels;
    hl_device_scan     scan = scan_of(m);

    HL_NEED(run_conv(m, 0));
    scan.kind        = HL_SCAN_DELTA;
    scan.q           = d->rows.mix;
    scan.k           = at(m, d->rows.mix, m->keys);
    scan.x           = at(m, d->rows.mix, 2 * m->keys);
    scan.beta        = at(m, d->rows.mix_in, z + m->inner);
    scan.dt          = at(m, d->rows.mix_in, z + m->inner + m->config->n_heads);
    scan.beta_stride = scan.dt_stride = m->w->in.n_out;
    HL_NEED(run_scan(m, &scan));
    return run_gate(m, z);
}

/* z | x, k, q | dt. */
static hl_status run_mamba2(const mixing *m)
{
    hl_device_session *d    = m->d;
    hl_device_scan     scan = scan_of(m);

    HL_NEED(run_conv(m, m->inner));
    scan.kind      = HL_SCAN_SSM;
    scan.x         = d->rows.mix;
    scan.k         = at(m, d->rows.mix, m->inner);
    scan.q         = at(m, d->rows.mix, m->inner + m->keys);
    scan.dt        = at(m, d->rows.mix_in, m->inner + m->config->n_channels);
    scan.dt_stride = m->w->in.n_out;
    scan.dt_scale  = (float)m->config->factors[HL_MIX_DT];
    HL_NEED(run_scan(m, &scan));
    return run_gate(m, 0);
}

/* Norms columns [column, column + n) of rows.mix_dt to the same place of its second half. */
static hl_status norm_part(const mixing *m, void **out, int64_t column, int64_t n,
                           const hl_device_vector *weight)
{
    hl_device_session *d      = m->d;
    int64_t            n_rows = m->places->n_batch * m->places->batch_rows;
    int64_t            width  = m->w->x.n_out;
    hl_device_gate     gate   = { .x        = at(m, d->rows.mix_dt, column),
                                  .x_stride = width,
                                  .scale    = 1.0f,
                                  .has_norm = true,
                                  .d_group  = n,
                                  .weight   = weight->weight,
                                  .eps      = (float)m->session->config->norm_eps,
                                  .dtype    = d->dtype,
                                  .n_rows   = n_rows,
                                  .n        = n,
                                  .places   = *m->places };

    *out = gate.out = at(m, d->rows.mix_dt, n_rows * (width + column));
    return hl_device_checked(d, d->ops->gate(d->device, &gate), "norm");
}

/* x | z. */
static hl_status run_mamba(const mixing *m)
{
    hl_device_session *d    = m->d;
    hl_device_scan     scan = scan_of(m);
    int64_t            rank = m->config->d_step;
    int64_t            n    = m->config->d_state;
    void              *parts[3];

    HL_NEED(run_conv(m, 0));
    HL_NEED(
        hl_device_multiply(m->session, d->rows.mix_dt, d->dtype, d->rows.mix, &m->w->x, m->places));
    HL_NEED(norm_part(m, &parts[0], 0, rank, &m->w->dt_norm));
    HL_NEED(norm_part(m, &parts[1], rank, n, &m->w->k_norm));
    HL_NEED(norm_part(m, &parts[2], rank + n, n, &m->w->q_norm));
    HL_NEED(
        hl_device_multiply(m->session, d->rows.mix_step, d->dtype, parts[0], &m->w->dt, m->places));
    scan.kind      = HL_SCAN_CHANNEL;
    scan.x         = d->rows.mix;
    scan.k         = parts[1];
    scan.q         = parts[2];
    scan.k_stride  = n;
    scan.dt        = d->rows.mix_step;
    scan.dt_stride = m->inner;
    HL_NEED(run_scan(m, &scan));
    return run_gate(m, m->inner);
}

void *hl_forward_mixed(const hl_session *session, int64_t layer)
{
    const hl_device_rows *rows = &session->device->rows;

    return session->config->layers[layer].n_heads > 0 ? rows->mlp : rows->branch;
}

hl_status hl_forward_mixer(hl_session *session, const hl_chunk *chunk, int64_t layer,
                           const void *input)
{
    const mixing       m = mixing_of(session, layer);
    hl_device_session *d = m.d;
    (void)chunk;

    HL_NEED(hl_device_multiply(session, d->rows.mix_in, d->dtype, input, &m.w->in, m.places));
    switch (m.kind) {
    case HL_MIXER_CONV:
        HL_NEED(run_conv(&m, 0));
        break;
    case HL_MIXER_DELTA:
        HL_NEED(run_delta(&m));
        break;
    case HL_MIXER_MAMBA2:
        HL_NEED(run_mamba2(&m));
        break;
    default:
        HL_NEED(run_mamba(&m));
        break;
    }
    return hl_device_multiply(session, hl_forward_mixed(session, layer), d->dtype, d->rows.mixed,
                              &m.w->out, m.places);
}

/* ------------------------------------------------------ states of sequences */

/* Copies a sequence's states of all layers to the kept ones, or back. */
static hl_status copy_states(const hl_session *session, int64_t sequence, bool back)
{
    const hl_device_session *d = session->device;

    for (int64_t i = 0; i < session->config->n_layers; i++) {
        const hl_session_state *state = &session->states.layers[i];
        int64_t n = hl_mixer_state_floats(session->config, session->config->layers[i].mixer);

        if (state->now == NULL)
            continue;
        /* Rows of 16 floats, so that a device copies them side by side. */
        HL_NEED(hl_device_checked(
            d,
            d->ops->copy_rows(
                d->device,
                &(hl_device_copy_rows){ .out = (back ? state->now : state->kept) + sequence * n,
                                        .x   = (back ? state->kept : state->now) + sequence * n,
                                        .out_dtype  = HL_DTYPE_F32,
                                        .x_dtype    = HL_DTYPE_F32,
                                        .out_stride = 16,
                                        .x_stride   = 16,
                                        .n_rows     = n / 16,
                                        .n          = 16 }),
            "states"));
    }
    return HL_OK;
}

void hl_states_begin(hl_session *session, const hl_chunk *chunk)
{
    for (int64_t i = 0; i < chunk->n_batch && session->states.layers != NULL; i++) {
        if (chunk->lengths[i] > 0)
            session->states.at[chunk->sequences[i]] = -1;
    }
}

/* Notes the tokens of a chunk.  After whole chunks, which a rewind for other tokens returns to, the
 * states are kept. */
hl_status hl_states_extend(hl_session *session, const hl_chunk *chunk)
{
    hl_session_states *states = &session->states;
    const hl_feed     *feed   = chunk->feed;
    int64_t            n_ctx  = session->options.n_ctx;

    for (int64_t i = 0; i < chunk->n_batch && states->layers != NULL; i++) {
        int64_t sequence = chunk->sequences[i];
        int64_t end      = chunk->ends[i];

        for (int64_t row = 0; row < chunk->lengths[i]; row++) {
            int64_t column = i * feed->n_tokens + chunk->offset + row;
            int64_t at     = sequence * n_ctx + chunk->start[i] + row;

            states->tokens[at] = (int32_t)feed->tokens[column];
        }
        if (chunk->lengths[i] > 0)
            states->at[sequence] = end;
        if (feed->first_layer > 0 || feed->n_layers > 0) {
            states->kept[sequence] = 0; /* only some layers ran */
        } else if (chunk->lengths[i] > 1 && end % session->options.n_chunk == 0) {
            HL_NEED(copy_states(session, sequence, false));
            states->kept[sequence] = end;
        }
    }
    return HL_OK;
}

/* Feeds tokens [from, length) of a sequence again, as many at a time as the session has rows. */
static hl_status feed_again(hl_session *session, const hl_feed *feed, int64_t index, int64_t from,
                            hl_status (*run)(hl_session *, const hl_feed *))
{
    int64_t           sequence = hl_feed_sequence(feed, index);
    int64_t           length   = session->length[sequence];
    const int32_t    *known    = session->states.tokens + sequence * session->options.n_ctx;
    hl_status         status   = HL_OK;
    HL_FREED int64_t *tokens   = NULL;
    hl_feed           again    = { .gates = feed->gates, .sequences = &sequence, .n_sequences = 1 };

    if (feed->gates_each != NULL && feed->gates_each[index] != NULL)
        again.gates = feed->gates_each[index];
    HL_NEED(HL_ALLOC(&tokens, (size_t)(length - from)));
    for (int64_t i = from; i < length; i++)
        tokens[i - from] = known[i];
    session->length[sequence] = from;
    for (int64_t at = from; at < length && status == HL_OK; at += again.n_tokens) {
        int64_t room   = session->options.n_rows;
        again.tokens   = tokens + (at - from);
        again.n_tokens = length - at < room ? length - at : room;
        status         = run(session, &again);
    }
    session->length[sequence] = length;
    return status;
}

hl_status hl_states_recover(hl_session *session, const hl_feed *feed,
                            hl_status (*run)(hl_session *session, const hl_feed *feed))
{
    hl_session_states *states = &session->states;

    for (int64_t i = 0; i < hl_feed_count(session, feed) && states->layers != NULL; i++) {
        int64_t sequence = hl_feed_sequence(feed, i);
        int64_t length   = session->length[sequence];

        if (hl_feed_length(feed, i) == 0)
            continue;
        if (states->kept[sequence] > length) /* the state is of tokens that are gone */
            states->kept[sequence] = 0;
        if (length == 0 || length == states->at[sequence])
            continue;
        int64_t from = states->kept[sequence];
        if (from > 0) {
            HL_NEED(copy_states(session, sequence, true));
            states->at[sequence] = from;
        }
        if (from < length)
            HL_NEED(feed_again(session, feed, i, from, run));
    }
    return HL_OK;
}
