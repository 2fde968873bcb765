/* measure_state.c - the state from which an interrupted run continues.
 *
 * The state is a profile of the windows so far, with one line of metadata: the text, which part of
 * it is measured, and the place of the next window.  It is written under another name and renamed,
 * so that there is always a complete one. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "measure/measure.h"

#define FORMAT                                                                                     \
    "text %016" PRIx64 " max_tokens %" PRId64 " part %" PRId64 " of %" PRId64 " document %" PRId64 \
    " token %" PRId64 " windows %" PRId64 " counted %" PRId64 " overlap %" PRId64
#define SCAN_FORMAT                                                                                \
    "text %" SCNx64 " max_tokens %" SCNd64 " part %" SCNd64 " of %" SCNd64 " document %" SCNd64    \
    " token %" SCNd64 " windows %" SCNd64 " counted %" SCNd64 " overlap %" SCNd64

enum { N_FIELDS = 9, MAX_STATE = 400 };

typedef struct saved_state {
    uint64_t        text;
    int64_t         max_tokens;
    int64_t         part;
    int64_t         n_parts;
    hl_window_place place;
} saved_state;

static saved_state state_of(const hl_measuring *m)
{
    saved_state state = {
        .text       = hl_corpus_get_info(m->corpus)->hash,
        .max_tokens = m->options.windows.max_tokens,
        .part       = m->options.windows.part,
        .n_parts    = m->options.windows.n_parts,
        .place      = m->place,
    };

    return state;
}

hl_status hl_measure_save(const hl_measuring *m)
{
    saved_state s = state_of(m);
    char        text[MAX_STATE];

    if (m->options.state_path == NULL)
        return HL_OK;
    if (m->rows != NULL) {
        HL_NEED(hl_measure_rows_sync(m->rows));
    }
    snprintf(text, sizeof text, FORMAT, s.text, s.max_tokens, s.part, s.n_parts, s.place.document,
             s.place.token, s.place.n_windows, s.place.n_counted, s.place.overlap);
    return hl_profile_write_state(m->profile, m->options.state_path, text);
}

/* ------------------------------------------------------------------------ reading */

static hl_status parse_state(saved_state *out, const char *text, const char *path)
{
    char again[MAX_STATE] = "";

    *out  = (saved_state){ 0 };
    int n = text == NULL
                ? 0
                : sscanf(text, SCAN_FORMAT, &out->text, &out->max_tokens, &out->part, &out->n_parts,
                         &out->place.document, &out->place.token, &out->place.n_windows,
                         &out->place.n_counted, &out->place.overlap);
    if (n == N_FIELDS)
        snprintf(again, sizeof again, FORMAT, out->text, out->max_tokens, out->part, out->n_parts,
                 out->place.document, out->place.token, out->place.n_windows, out->place.n_counted,
                 out->place.overlap);
    if (n != N_FIELDS || strcmp(again, text) != 0)
        return hl_fail(HL_BAD_INPUT,
                       "%s: not the saved state of a measurement; remove it to start again", path);
    return HL_OK;
}

static hl_status differ(const char *path, const char *what, int64_t then, int64_t now)
{
    return hl_fail(HL_BAD_INPUT, "%s: was begun with %s %" PRId64 ", not %" PRId64, path, what,
                   then, now);
}

static hl_status check_state(const hl_measuring *m, const saved_state *saved)
{
    saved_state now  = state_of(m);
    const char *path = m->options.state_path;

    if (saved->text != now.text)
        return hl_fail(HL_BAD_INPUT,
                       "%s: this state was begun with another text (hash %016" PRIx64
                       ", now %016" PRIx64 "); remove it to start again",
                       path, saved->text, now.text);
    if (saved->max_tokens != now.max_tokens)
        return differ(path, "max_tokens", saved->max_tokens, now.max_tokens);
    if (saved->part != now.part)
        return differ(path, "part", saved->part, now.part);
    if (saved->n_parts != now.n_parts)
        return differ(path, "a number of parts of", saved->n_parts, now.n_parts);
    return HL_OK;
}

static hl_status load_state(hl_measuring *m)
{
    hl_status   status = HL_OK;
    hl_profile *saved  = NULL;
    char       *text   = NULL;
    saved_state state;

    HL_TRY(hl_profile_load_state(&saved, &text, m->options.state_path));
    HL_TRY(parse_state(&state, text, m->options.state_path));
    status = hl_profile_check_same(saved, m->profile);
    if (status != HL_OK)
        HL_TRY(hl_fail_within(status,
                              "%s: this state was begun with other settings; use those, or remove "
                              "the file to start again",
                              m->options.state_path));
    HL_TRY(check_state(m, &state));
    HL_TRY(hl_windows_seek(m->windows, &state.place));
    m->place = state.place;
    hl_profile_free(m->profile);
    m->profile = saved;
    saved      = NULL;

done:
    hl_profile_free(saved);
    hl_free(text);
    return status;
}

hl_status hl_measure_restore(bool *restored, hl_measuring *m)
{
    *restored =
        m->options.resume && m->options.state_path != NULL && hl_path_exists(m->options.state_path);
    return *restored ? load_state(m) : HL_OK;
}
