/* session_feed.c - a feed: checked, then cut into chunks that are run one after the other.
 *
 * A chunk has at most n_chunk rows of every sequence; an encoder, whose rows see what comes
 * after them, has one chunk. */
#include <string.h>

#include "base/status.h"
#include "model/device.h"
#include "model/session.h"
#include "model/tap.h"

enum { STEADY_ROWS = 32 };

/* ------------------------------------------------------------------- checks */

static hl_status check_sequences(const hl_session *session, const hl_feed *feed)
{
    if (feed->sequences == NULL) {
        if (feed->gates_each != NULL)
            return hl_fail(HL_BAD_ARGUMENT, "feed: gates of each sequence, but not which they are");
        return HL_OK;
    }
    if (feed->lengths != NULL)
        return hl_fail(HL_BAD_ARGUMENT, "feed: chosen sequences have no lengths of their own");
    for (int64_t i = 0; i < feed->n_sequences; i++) {
        int64_t before = i > 0 ? feed->sequences[i - 1] : -1;

        if (feed->sequences[i] <= before || feed->sequences[i] >= session->options.n_batch)
            return hl_fail(HL_BAD_ARGUMENT, "feed: sequence %lld after %lld, of %lld",
                           (long long)feed->sequences[i], (long long)before,
                           (long long)session->options.n_batch);
    }
    return HL_OK;
}

/* Do the largest chunk's rows fit? */
static hl_status check_rows(const hl_session *session, const hl_feed *feed)
{
    const hl_session_options *options = &session->options;
    int64_t longest = feed->n_tokens < options->n_chunk ? feed->n_tokens : options->n_chunk;

    if (options->steady && feed->sequences == NULL && longest < STEADY_ROWS)
        longest = options->n_chunk < STEADY_ROWS ? options->n_chunk : STEADY_ROWS;
    if (longest == 0 || hl_feed_count(session, feed) <= options->n_rows / longest)
        return HL_OK;
    return hl_fail(HL_BAD_ARGUMENT,
                   "feed: %lld rows of %lld sequences, the session was opened for %lld in all",
                   (long long)longest, (long long)hl_feed_count(session, feed),
                   (long long)options->n_rows);
}

static hl_status check_tokens(const hl_session *session, const hl_feed *feed, int64_t sequence)
{
    const hl_config *config = session->config;

    for (int64_t i = 0; i < hl_feed_length(feed, sequence); i++) {
        int64_t column = sequence * feed->n_tokens + i;
        int64_t token  = feed->tokens[column];
        int64_t type   = feed->token_types != NULL ? feed->token_types[column] : 0;

        if (token < 0 || token >= config->d_vocab)
            return hl_fail(HL_BAD_ARGUMENT,
                           "token %lld of sequence %lld is %lld, the model knows 0 to %lld",
                           (long long)i, (long long)sequence, (long long)token,
                           (long long)config->d_vocab - 1);
        if (type < 0 || (type > 0 && type >= config->n_token_types))
            return hl_fail(HL_BAD_ARGUMENT, "token type %lld, the model has %lld", (long long)type,
                           (long long)config->n_token_types);
    }
    return HL_OK;
}

static hl_status check_length(const hl_session *session, const hl_feed *feed, int64_t index)
{
    int64_t length   = hl_feed_length(feed, index);
    int64_t sequence = hl_feed_sequence(feed, index);

    if (length < 0 || length > feed->n_tokens)
        return hl_fail(HL_BAD_ARGUMENT, "sequence %lld: %lld tokens of %lld", (long long)sequence,
                       (long long)length, (long long)feed->n_tokens);
    if (length > session->options.n_ctx - session->length[sequence])
        return hl_fail(HL_LIMIT,
                       "sequence %lld: %lld tokens after %lld are more than the context of %lld",
                       (long long)sequence, (long long)length, (long long)session->length[sequence],
                       (long long)session->options.n_ctx);
    return HL_OK;
}

static hl_status check_patterns(const hl_session *session, const hl_feed *feed)
{
    if (feed->tap == NULL || (feed->tap->wants & HL_WANT_PATTERN) == 0 ||
        feed->tap->patterns_differ)
        return HL_OK;
    for (int64_t i = 1; i < hl_feed_count(session, feed); i++) {
        int64_t first = hl_feed_sequence(feed, 0);
        int64_t other = hl_feed_sequence(feed, i);

        if (session->length[other] != session->length[first])
            return hl_fail(HL_UNSUPPORTED,
                           "patterns: sequence %lld has %lld tokens and sequence %lld %lld, but a "
                           "position must be the same row in all",
                           (long long)other, (long long)session->length[other], (long long)first,
                           (long long)session->length[first]);
    }
    return HL_OK;
}

/* The tap may want the losses of tokens: which? */
static hl_status check_targets(const hl_session *session, const hl_feed *feed)
{
    if (feed->tap == NULL || (feed->tap->wants & HL_WANT_LOSSES) == 0)
        return HL_OK;
    if (feed->targets == NULL && feed->n_tokens > 0)
        return hl_fail(HL_BAD_ARGUMENT, "feed: losses are wanted, but there are no targets");
    for (int64_t i = 0; i < hl_feed_count(session, feed); i++) {
        for (int64_t j = 0; j < hl_feed_length(feed, i); j++) {
            int64_t target = feed->targets[i * feed->n_tokens + j];

            if (target < -1 || target >= session->config->d_vocab)
                return hl_fail(HL_BAD_ARGUMENT,
                               "target %lld of sequence %lld is %lld, the model knows 0 to %lld",
                               (long long)j, (long long)hl_feed_sequence(feed, i),
                               (long long)target, (long long)session->config->d_vocab - 1);
        }
    }
    return HL_OK;
}

static hl_status check_room(const hl_session *session, const hl_feed *feed)
{
    if (feed->kept_by != NULL)
        return hl_fail(HL_BAD_ARGUMENT, "feed: rows are kept, and compared with another session's");
    for (int64_t i = 0; i < hl_feed_count(session, feed); i++) {
        if (hl_feed_length(feed, i) > session->options.n_kept)
            return hl_fail(
                HL_LIMIT, "feed: %lld rows of sequence %lld to keep, the session has room for %lld",
                (long long)hl_feed_length(feed, i), (long long)hl_feed_sequence(feed, i),
                (long long)session->options.n_kept);
    }
    return HL_OK;
}

/* Can the keeper's rows be compared with the session's at all? */
static hl_status check_keeper(const hl_session *session, const hl_session *keeper)
{
    if (hl_device_ops_of(session) != hl_device_ops_of(keeper))
        return hl_fail(HL_BAD_ARGUMENT, "feed: rows are kept on another device");
    if (keeper->config->d_vocab != session->config->d_vocab)
        return hl_fail(HL_BAD_ARGUMENT, "feed: rows of %lld logits compared with rows of %lld",
                       (long long)session->config->d_vocab, (long long)keeper->config->d_vocab);
    return HL_OK;
}

static hl_status check_kept_rows(const hl_session *session, const hl_session *keeper,
                                 const hl_feed *feed, int64_t index)
{
    int64_t sequence = hl_feed_sequence(feed, index);
    int64_t start    = session->length[sequence];
    int64_t length   = hl_feed_length(feed, index);

    if (sequence < keeper->options.n_batch && hl_kept_has(keeper->kept[sequence], start, length))
        return HL_OK;
    return hl_fail(HL_BAD_ARGUMENT,
                   "feed: no logits are kept for positions %lld to %lld of sequence %lld",
                   (long long)start, (long long)(start + length - 1), (long long)sequence);
}

/* Rows can be compared with those that are kept, or be kept themselves. */
static hl_status check_kept(const hl_session *session, const hl_feed *feed)
{
    const hl_session *keeper = feed->kept_by != NULL ? feed->kept_by : session;

    if (feed->tap == NULL || feed->tap->final == NULL ||
        (feed->tap->wants & HL_WANT_DIVERGENCE) == 0)
        return feed->keeps_logits ? hl_fail(HL_BAD_ARGUMENT,
                                            "feed: logits are kept where the tap wants divergence")
                                  : HL_OK;
    if (feed->keeps_logits)
        return check_room(session, feed);
    HL_NEED(check_keeper(session, keeper));
    for (int64_t i = 0; i < hl_feed_count(session, feed); i++)
        HL_NEED(check_kept_rows(session, keeper, feed, i));
    return HL_OK;
}

/* What a sequence had makes room for what comes. */
static void begin_keeping(hl_session *session, const hl_feed *feed)
{
    for (int64_t i = 0; i < hl_feed_count(session, feed) && feed->keeps_logits; i++) {
        int64_t sequence = hl_feed_sequence(feed, i);

        session->kept[sequence].begin = session->length[sequence];
        session->kept[sequence].end   = session->length[sequence];
    }
}

/* There is a residual stream to start from: the feed's, or one that is kept. */
static hl_status check_stream(const hl_session *session, const hl_feed *feed)
{
    HL_NEED(
        hl_check_count("session: first_layer", feed->first_layer, 0, session->config->n_layers));
    if (feed->stream == NULL && feed->first_layer != 0)
        HL_NEED(hl_streams_check(session, feed));
    return HL_OK;
}

static hl_status check_feed(const hl_session *session, const hl_feed *feed)
{
    if (feed == NULL || feed->n_tokens < 0 || (feed->tokens == NULL && feed->n_tokens > 0))
        return hl_fail(HL_BAD_ARGUMENT, "feed: no tokens");
    if (feed->segments != NULL)
        HL_NEED(hl_check_count("session: n_segments", feed->n_segments, 1, HL_MAX_SEGMENTS));
    HL_NEED(check_sequences(session, feed));
    HL_NEED(check_rows(session, feed));
    HL_NEED(hl_tap_check(feed->tap, &session->options, hl_feed_count(session, feed)));
    HL_NEED(check_patterns(session, feed));
    for (int64_t i = 0; i < hl_feed_count(session, feed); i++) {
        HL_NEED(check_length(session, feed, i));
        HL_NEED(check_tokens(session, feed, i));
    }
    HL_NEED(check_targets(session, feed));
    HL_NEED(check_stream(session, feed));
    return check_kept(session, feed);
}

/* ------------------------------------------------------------------- chunks */

/* Columns [offset, offset + n_rows) of the feed. */
static void place_chunk(hl_chunk *chunk, const hl_session *session, int64_t offset)
{
    int64_t longest = 0;

    chunk->offset = offset;
    for (int64_t i = 0; i < chunk->n_batch; i++) {
        int64_t sequence = hl_feed_sequence(chunk->feed, i);
        int64_t left     = hl_feed_length(chunk->feed, i) - offset;

        left                = left > session->options.n_chunk ? session->options.n_chunk : left;
        left                = left < 0 ? 0 : left;
        chunk->sequences[i] = sequence;
        chunk->lengths[i]   = left;
        chunk->start[i]     = session->length[sequence];
        chunk->ends[i]      = session->length[sequence] + left;
        longest             = left > longest ? left : longest;
    }
    /* Attention over fewer rows than a vector has lanes takes another way, which rounds
     * differently: whether it does must not depend on the longest of the batch.  Chosen
     * sequences are all as long. */
    if (session->options.steady && chunk->feed->sequences == NULL && longest > 0 &&
        longest < STEADY_ROWS)
        longest = session->options.n_chunk < STEADY_ROWS ? session->options.n_chunk : STEADY_ROWS;
    chunk->n_rows = longest;
}

static hl_status run_chunks(hl_session *session, const hl_feed *feed)
{
    int64_t  n_batch = session->options.n_batch;
    hl_chunk chunk   = { .feed      = feed,
                         .n_batch   = hl_feed_count(session, feed),
                         .start     = session->places,
                         .lengths   = session->places + n_batch,
                         .ends      = session->places + 2 * n_batch,
                         .sequences = session->places + 3 * n_batch };

    begin_keeping(session, feed);
    hl_streams_begin(session, feed);
    for (int64_t offset = 0;; offset += session->options.n_chunk) {
        place_chunk(&chunk, session, offset);
        if (chunk.n_rows == 0)
            return HL_OK;
        hl_status status = hl_forward(session, &chunk);
        if (status != HL_OK)
            return status;
        hl_streams_extend(session, &chunk);
        for (int64_t i = 0; i < chunk.n_batch; i++) {
            session->length[chunk.sequences[i]] = chunk.ends[i];
            if (feed->keeps_logits)
                session->kept[chunk.sequences[i]].end = chunk.ends[i];
        }
    }
}

hl_status hl_session_feed(hl_session *session, const hl_feed *feed)
{
    if (session == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "feed: session is NULL");
    if (session->config->is_encoder)
        memset(session->length, 0, (size_t)session->options.n_batch * sizeof *session->length);
    hl_status status = check_feed(session, feed);
    return status == HL_OK ? run_chunks(session, feed) : status;
}
