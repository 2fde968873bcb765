/* forward_inputs.c - a chunk's inputs besides weights and cache: tokens, places, frequencies,
 * gates.
 *
 * All inputs are sent in one copy.  Its layout is the same for chunks of the same shape, so that a
 * recorded step finds the next token's numbers at the same addresses. */
#include <string.h>

#include "base/status.h"
#include "model/config.h"
#include "model/forward.h"
#include "model/model.h"

/* The bound n_keys is a multiple of this; a recorded step is valid until it changes. */
enum { KEY_STEP = 1024 };

/* Takes `count` items at the same offset in both halves of the block. */
static void *take(hl_device_inputs *inputs, const void **there, int64_t count, size_t size)
{
    size_t at = inputs->used;

    inputs->used += ((size_t)count * size + 15) / 16 * 16;
    *there = (const uint8_t *)inputs->block.device + at;
    return (uint8_t *)inputs->block.host + at;
}

static int64_t *take_numbers(hl_device_inputs *inputs, const int64_t **there, int64_t count)
{
    return take(inputs, (const void **)there, count, sizeof(int64_t));
}

/* The largest size that hl_device_put_inputs needs. */
size_t hl_device_inputs_bytes(const hl_session *session)
{
    const hl_config *config  = session->config;
    int64_t          n_batch = session->options.n_batch;
    int64_t          numbers =
        4 * session->options.n_rows + 8 * n_batch + n_batch * session->options.n_sampled;
    int64_t floats = n_batch * config->n_layers * config->n_heads;

    for (int choice = 0; choice < HL_N_ROPES; choice++)
        floats += n_batch * (config->ropes[choice].n_dims / 2 + 8);
    return (size_t)numbers * sizeof(int64_t) + (size_t)floats * sizeof(float) + 32 * 16;
}

static void put_tokens(hl_device_inputs *inputs, const hl_chunk *chunk)
{
    const hl_feed *feed   = chunk->feed;
    int64_t        n_rows = chunk->n_batch * chunk->n_rows;
    int64_t       *tokens = take_numbers(inputs, &inputs->tokens, n_rows);
    int64_t       *types  = take_numbers(inputs, &inputs->types, n_rows);

    for (int64_t row = 0; row < n_rows; row++) {
        int64_t column = row / chunk->n_rows * feed->n_tokens + chunk->offset + row % chunk->n_rows;
        bool    real   = hl_chunk_has(chunk, row);

        tokens[row] = real ? feed->tokens[column] : 0;
        types[row]  = real && feed->token_types != NULL ? feed->token_types[column] : 0;
    }
}

static void put_targets(hl_device_inputs *inputs, const hl_chunk *chunk)
{
    int64_t n_rows = chunk->n_batch * chunk->n_rows;

    inputs->targets = NULL;
    if ((hl_chunk_wants(chunk) & HL_WANT_LOSSES) == 0)
        return;
    int64_t *targets = take_numbers(inputs, &inputs->targets, n_rows);
    for (int64_t row = 0; row < n_rows; row++)
        targets[row] = hl_chunk_has(chunk, row)
                           ? hl_chunk_target(chunk, row / chunk->n_rows, row % chunk->n_rows)
                           : -1;
}

/* Finds the last rows of the fed sequences.  If a step may be recorded, every sequence has an
 * entry, also one whose last row is in another chunk. */
static void put_last(hl_device_inputs *inputs, const hl_chunk *chunk, bool is_near)
{
    int64_t *last = take_numbers(inputs, &inputs->last, chunk->n_batch);

    inputs->n_last = 0;
    for (int64_t i = 0; i < chunk->n_batch; i++) {
        bool is_here = hl_chunk_has_last(chunk, i);

        if (is_near && !is_here)
            continue;
        inputs->last_of[inputs->n_last] = i;
        last[inputs->n_last++]          = is_here ? i * chunk->n_rows + chunk->lengths[i] - 1 : -1;
    }
}

static void put_places(hl_device_inputs *inputs, const hl_chunk *chunk)
{
    size_t   n_bytes   = (size_t)chunk->n_batch * sizeof(int64_t);
    int64_t *start     = take_numbers(inputs, &inputs->places.start, chunk->n_batch);
    int64_t *lengths   = take_numbers(inputs, &inputs->places.lengths, chunk->n_batch);
    int64_t *sequences = take_numbers(inputs, &inputs->places.sequences, chunk->n_batch);
    int64_t *ends      = take_numbers(inputs, &inputs->ends, chunk->n_batch);

    inputs->places.n_batch    = chunk->n_batch;
    inputs->places.batch_rows = chunk->n_rows;
    memcpy(start, chunk->start, n_bytes);
    memcpy(lengths, chunk->lengths, n_bytes);
    memcpy(sequences, chunk->sequences, n_bytes);
    memcpy(ends, chunk->ends, n_bytes);
}

/* Finds the rows of the last logits of every sequence, for draws. */
static void put_kept(hl_device_inputs *inputs, const hl_session *session, const hl_chunk *chunk)
{
    inputs->kept = NULL;
    if ((session->options.wants & HL_WANT_LAST_DRAW) == 0 || session->device->ops->is_near)
        return;
    int64_t *kept = take_numbers(inputs, &inputs->kept, session->options.n_batch);
    for (int64_t i = 0; i < session->options.n_batch; i++)
        kept[i] = -1;
    for (int64_t i = 0; i < chunk->n_batch; i++)
        kept[chunk->sequences[i]] = hl_chunk_has_last(chunk, i) ? i : -1;
}

static void put_frequencies(hl_device_inputs *inputs, const hl_session *session,
                            const hl_chunk *chunk)
{
    for (hl_rope_choice choice = HL_ROPE_MAIN; choice < HL_N_ROPES; choice++) {
        const hl_rope *rope    = &session->config->ropes[choice];
        int64_t        n_pairs = rope->n_dims / 2;
        float         *out     = take(inputs, (const void **)&inputs->frequencies[choice],
                                      chunk->n_batch * n_pairs, sizeof *out);
        float         *factors =
            take(inputs, (const void **)&inputs->factors[choice], chunk->n_batch, sizeof *factors);

        for (int64_t i = 0; i < chunk->n_batch && n_pairs > 0; i++) {
            hl_rope_frequencies(out + i * n_pairs, rope, chunk->ends[i]);
            factors[i] = (float)hl_rope_attention_factor(rope, chunk->ends[i]);
        }
    }
}

static void put_gates(hl_device_inputs *inputs, const hl_session *session, const hl_chunk *chunk)
{
    const hl_feed *feed  = chunk->feed;
    int64_t        count = session->config->n_layers * session->config->n_heads;
    const float   *gates = feed->gates != NULL ? feed->gates : session->model->gates;
    int64_t        n     = feed->gates_each != NULL ? chunk->n_batch : 1;

    inputs->gates        = NULL;
    inputs->gates_differ = feed->gates_each != NULL;
    if (gates == NULL && feed->gates_each == NULL)
        return;
    float *out = take(inputs, (const void **)&inputs->gates, n * count, sizeof *out);
    for (int64_t i = 0; i < n * count; i++) {
        const float *own = inputs->gates_differ ? feed->gates_each[i / count] : NULL;

        own    = own != NULL ? own : gates;
        out[i] = own != NULL ? own[i % count] : 1.0f;
    }
}

/* Lists the rows that the tap samples, sequence by sequence.  A near device needs no list. */
static void put_sampled(hl_device_inputs *inputs, const hl_chunk *chunk, bool is_near)
{
    const hl_tap *tap = chunk->feed->tap;

    inputs->sampled   = NULL;
    inputs->n_sampled = 0;
    if (tap == NULL || tap->sampled_positions == NULL || is_near)
        return;
    inputs->n_sampled = chunk->n_batch * tap->n_sampled_positions;
    int64_t *rows     = take_numbers(inputs, &inputs->sampled, inputs->n_sampled);
    for (int64_t i = 0; i < inputs->n_sampled; i++) {
        int64_t sequence = i / tap->n_sampled_positions;
        int64_t row      = tap->sampled_positions[i] - chunk->start[sequence];
        bool    is_here  = row >= 0 && row < chunk->lengths[sequence];

        rows[i] = is_here ? sequence * chunk->n_rows + row : -1;
    }
}

static int64_t bound_keys(const hl_session *session, const hl_chunk *chunk)
{
    int64_t longest = 1;

    /* The widths of biases and segments depend on n_keys. */
    if (session->device->ops->is_near || chunk->feed->segments != NULL ||
        session->config->position == HL_POSITION_ALIBI_FALCON)
        return session->options.n_ctx;
    for (int64_t i = 0; i < chunk->n_batch; i++)
        longest = chunk->ends[i] > longest ? chunk->ends[i] : longest;
    longest = (longest + KEY_STEP - 1) / KEY_STEP * KEY_STEP;
    return longest < session->options.n_ctx ? longest : session->options.n_ctx;
}

hl_status hl_device_put_inputs(hl_session *session, const hl_chunk *chunk)
{
    hl_device_session *d      = session->device;
    hl_device_inputs  *inputs = &d->inputs;
    bool               near   = d->ops->is_near;
    size_t             all    = (size_t)(session->options.n_batch * session->options.n_ctx);

    inputs->used = 0;
    put_tokens(inputs, chunk);
    put_targets(inputs, chunk);
    put_places(inputs, chunk);
    put_last(inputs, chunk, near);
    put_kept(inputs, session, chunk);
    put_frequencies(inputs, session, chunk);
    put_gates(inputs, session, chunk);
    put_sampled(inputs, chunk, near);
    inputs->n_keys = bound_keys(session, chunk);
    HL_NEED(hl_device_checked(
        d, d->ops->copy_in(d->device, inputs->block.device, inputs->block.host, inputs->used),
        "inputs"));
    if (near)
        d->rows.segments = (uint8_t *)chunk->feed->segments; /* the buffer is only read */
    else if (chunk->feed->segments != NULL)
        HL_NEED(hl_device_checked(
            d, d->ops->copy_in(d->device, d->rows.segments, chunk->feed->segments, all), "inputs"));
    return HL_OK;
}
