/* route_measure.c - texts in, what every head does on them out: means and diagnoses.
 *
 * The same measurement as `headlight measure` makes, of at most MAX_TOKENS tokens; the texts go
 * through a file of JSON lines, which is gone afterwards. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/status.h"
#include "serve/server.h"

#define MAX_TEXTS  1024
#define MAX_TOKENS 32768
#define PATH_BYTES 4096

typedef struct measuring {
    hl_server   *server;
    hl_exchange *exchange;
    char         path[PATH_BYTES]; /* of the file with the texts; "": none yet */
    hl_corpus   *corpus;
    hl_profile  *profile;
} measuring;

/* ------------------------------------------------------------------------------- texts */

/* {"text": ...} and a line end. */
static hl_status write_text(FILE *file, const json_t *text)
{
    if (!json_is_string(text))
        return hl_fail(HL_BAD_INPUT, "input has %s in it, wanted texts", hl_json_kind(text));
    json_t *line = json_pack("{s:O}", "text", text);
    int     bad  = line == NULL || json_dumpf(line, file, JSON_COMPACT) != 0;

    json_decref(line);
    if (bad || fputc('\n', file) == EOF)
        return hl_fail(HL_IO, "the texts cannot be kept: %s", strerror(errno));
    return HL_OK;
}

static hl_status write_texts(FILE *file, const json_t *input)
{
    hl_status status = HL_OK;
    size_t    n      = json_array_size(input);

    if (json_is_string(input))
        return write_text(file, input);
    if (!json_is_array(input) || n == 0 || n > MAX_TEXTS)
        return hl_fail(HL_BAD_INPUT, "input: wanted a text or an array of 1 to %d texts",
                       MAX_TEXTS);
    for (size_t i = 0; i < n && status == HL_OK; i++)
        status = write_text(file, json_array_get(input, i));
    return status;
}

static hl_status keep_texts(measuring *m, const json_t *input)
{
    const char *folder = getenv("TMPDIR");
    int         length = snprintf(m->path, sizeof m->path, "%s/headlight-XXXXXX",
                          folder != NULL && folder[0] != '\0' ? folder : "/tmp");
    int         file   = length < (int)sizeof m->path ? hl_sys_mkstemp(m->path) : -1;
    FILE       *stream = file >= 0 ? fdopen(file, "w") : NULL;

    if (stream == NULL) {
        m->path[0] = '\0';
        return hl_fail(HL_IO, "the texts cannot be kept: %s", strerror(errno));
    }
    hl_status status = write_texts(stream, input);
    if (fclose(stream) != 0 && status == HL_OK)
        status = hl_fail(HL_IO, "the texts cannot be kept: %s", strerror(errno));
    return status;
}

/* --------------------------------------------------------------------------- measuring */

static hl_status stop_if_gone(void *context, const hl_measure_progress *progress)
{
    (void)progress;
    return hl_exchange_is_gone(context) ? HL_CANCELLED : HL_OK;
}

static hl_status measure(measuring *m, const json_t *input)
{
    hl_status          status  = HL_OK;
    const hl_server   *server  = m->server;
    const char        *path    = m->path;
    hl_corpus_options  texts   = { .inputs = &path, .n_inputs = 1, .format = HL_TEXT_JSONL };
    hl_measure_options options = { .windows   = { .context    = hl_engine_n_ctx(server->engine),
                                                  .max_tokens = MAX_TOKENS },
                                   .n_threads = server->options.n_threads,
                                   .progress  = stop_if_gone,
                                   .context   = m->exchange };

    HL_TRY(keep_texts(m, input));
    HL_TRY(hl_corpus_open(&m->corpus, server->model, server->tokenizer, &texts));
    HL_TRY(hl_measure(&m->profile, server->model, server->tokenizer, m->corpus, &options));

done:
    return status;
}

/* ------------------------------------------------------------------------------- JSON */

static json_t *means_of(const hl_profile *profile, hl_quantity quantity)
{
    json_t *layers = json_array();

    for (int64_t layer = 0; layer < hl_profile_n_layers(profile); layer++) {
        json_t *heads = json_array();
        for (int64_t head = 0; head < hl_profile_n_heads(profile); head++)
            hl_json_add(&heads,
                        hl_wire_number(hl_profile_moments(profile, layer, head, quantity).mean));
        hl_json_add(&layers, heads);
    }
    return layers;
}

static json_t *all_means(const hl_profile *profile)
{
    static const char *const names[HL_N_QUANTITIES] = {
        [HL_Q_ENTROPY] = "entropy",       [HL_Q_FAIR] = "fair",   [HL_Q_RENYI2] = "renyi2",
        [HL_Q_VARENTROPY] = "varentropy", [HL_Q_PEAK] = "peak",   [HL_Q_SELF] = "self",
        [HL_Q_PREVIOUS] = "previous",     [HL_Q_FIRST] = "first", [HL_Q_NOSINK] = "nosink",
    };
    json_t *means = json_object();

    for (int i = 0; i < HL_N_QUANTITIES; i++)
        hl_json_put(&means, names[i], means_of(profile, (hl_quantity)i));
    return means;
}

static json_t *heads_of(const hl_diagnosis *item)
{
    json_t *heads = json_array();

    for (int64_t i = 0; i < item->n_heads; i++)
        hl_json_add(&heads, json_pack("{s:I, s:I, s:o}", "layer", (json_int_t)item->heads[i].layer,
                                      "head", (json_int_t)item->heads[i].head, "value",
                                      hl_wire_number(item->heads[i].value)));
    return heads;
}

static json_t *diagnoses_of(const hl_profile *profile)
{
    hl_diagnoses *found = NULL;
    json_t       *list  = json_array();

    hl_status status = hl_diagnose(&found, profile, NULL, NULL);
    if (status == HL_NO_MEMORY)
        hl_json_add(&list, NULL);
    if (status != HL_OK)
        return list;
    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        const hl_diagnosis *item = &found->items[i];
        hl_json_add(&list,
                    json_pack("{s:s, s:s, s:o, s:o, s:s, s:s, s:s, s:s, s:s, s:o}", "name",
                              item->name, "verdict", hl_verdict_name(item->verdict), "value",
                              hl_wire_number(item->value), "threshold",
                              hl_wire_number(item->threshold), "evidence", item->evidence, "rule",
                              item->rule, "finding", item->finding, "against", item->against,
                              "mitigation", item->mitigation, "heads", heads_of(item)));
    }
    hl_diagnoses_free(found);
    return list;
}

static json_t *summary_of(const hl_server *server, const hl_profile *profile)
{
    int64_t n_tokens = hl_profile_n_tokens(profile);

    return json_pack(
        "{s:s, s:s, s:I, s:b, s:I, s:I, s:I, s:o, s:o}", "object", "headlight.profile", "model",
        server->model_name, "tokens", (json_int_t)n_tokens, "cut", n_tokens >= MAX_TOKENS,
        "sequences", (json_int_t)hl_profile_all_sequences(profile), "layers",
        (json_int_t)hl_profile_n_layers(profile), "heads", (json_int_t)hl_profile_n_heads(profile),
        "means", all_means(profile), "diagnoses", diagnoses_of(profile));
}

/* ------------------------------------------------------------------------------ the route */

static hl_status check_members(const json_t *root)
{
    const char   *key;
    const json_t *value;

    if (json_object_get(root, "input") == NULL)
        return hl_fail(HL_BAD_INPUT, "wanted an object with input, a text or an array of texts");
    json_object_foreach((json_t *)root, key, value) {
        if (strcmp(key, "input") != 0 && strcmp(key, "model") != 0)
            return hl_fail(HL_BAD_INPUT, "Unrecognized request argument supplied: %.40s", key);
    }
    return HL_OK;
}

void hl_serve_measure(void *context, hl_exchange *exchange)
{
    measuring m    = { .server = context, .exchange = exchange };
    json_t   *root = NULL;

    if (!hl_server_body(&root, exchange))
        return;
    hl_status status = check_members(root);
    if (status == HL_OK) {
        pthread_mutex_lock(&m.server->looking);
        status = hl_exchange_is_gone(exchange) ? HL_CANCELLED
                                               : measure(&m, json_object_get(root, "input"));
        pthread_mutex_unlock(&m.server->looking);
    }
    if (status == HL_OK)
        hl_server_answer(exchange, 200, summary_of(m.server, m.profile));
    else
        hl_server_fail(exchange, status, NULL);
    hl_profile_free(m.profile);
    hl_corpus_close(m.corpus);
    if (m.path[0] != '\0')
        unlink(m.path);
    json_decref(root);
}
