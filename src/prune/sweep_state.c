/* sweep_state.c - named lists of numbers, kept in memory and in a safetensors file. */
#include "prune/sweep_state.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"
#include "formats/safetensors.h"

#define KEY "headlight.sweep"

typedef struct state_list {
    char   *name;
    double *values;
    int64_t count;
} state_list;

struct hl_sweep_state {
    char       *path; /* NULL: kept in memory only */
    char       *key;
    state_list *lists; /* (n_lists) */
    size_t      n_lists;
};

hl_status hl_sweep_state_new(hl_sweep_state **out, const char *path, const char *key)
{
    HL_CLOSED(hl_sweep_state_free) hl_sweep_state *state = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&state, 1));
    HL_NEED(hl_strdup(&state->key, key));
    if (path != NULL)
        HL_NEED(hl_strdup(&state->path, path));
    *out = hl_taken(&state);
    return HL_OK;
}

void hl_sweep_state_free(hl_sweep_state *state)
{
    if (state == NULL)
        return;
    for (size_t i = 0; i < state->n_lists; i++) {
        hl_free(state->lists[i].name);
        hl_free(state->lists[i].values);
    }
    hl_free(state->lists);
    hl_free(state->path);
    hl_free(state->key);
    hl_free(state);
}

/* ------------------------------------------------------------------------ lists */

static state_list *find(const hl_sweep_state *state, const char *name)
{
    for (size_t i = 0; i < state->n_lists; i++) {
        if (strcmp(state->lists[i].name, name) == 0)
            return &state->lists[i];
    }
    return NULL;
}

/* Returns the list of that name, or a new empty one. */
static hl_status find_or_add(state_list **out, hl_sweep_state *state, const char *name)
{
    HL_FREED char *copy = NULL;

    *out = find(state, name);
    if (*out != NULL)
        return HL_OK;
    HL_NEED(hl_strdup(&copy, name));
    HL_NEED(HL_GROW_ONE(&state->lists, state->n_lists));
    *out  = &state->lists[state->n_lists++];
    **out = (state_list){ .name = copy };
    copy  = NULL;
    return HL_OK;
}

hl_status hl_sweep_state_put(hl_sweep_state *state, const char *name, const double *values,
                             int64_t count)
{
    state_list      *list = NULL;
    HL_FREED double *copy = NULL;

    HL_NEED(HL_ALLOC(&copy, (size_t)count));
    HL_NEED(find_or_add(&list, state, name));
    memcpy(copy, values, (size_t)count * sizeof *values);
    hl_free(list->values);
    list->values = copy;
    list->count  = count;
    copy         = NULL;
    return HL_OK;
}

const double *hl_sweep_state_get(const hl_sweep_state *state, const char *name, int64_t count)
{
    const state_list *list = find(state, name);

    return list != NULL && list->count == count ? list->values : NULL;
}

/* ------------------------------------------------------------------------- file */

hl_status hl_sweep_state_save(const hl_sweep_state *state)
{
    HL_CLOSED(hl_safetensors_writer_free) hl_safetensors_writer *writer = NULL;

    if (state->path == NULL)
        return HL_OK;
    HL_NEED(hl_safetensors_writer_new(&writer));
    hl_safetensors_add_metadata(writer, KEY, state->key);
    for (size_t i = 0; i < state->n_lists; i++) {
        const state_list *list = &state->lists[i];

        hl_safetensors_add(writer, &(hl_tensor){ .name    = list->name,
                                                 .dtype   = HL_DTYPE_F64,
                                                 .n_dims  = 1,
                                                 .shape   = { list->count },
                                                 .data    = list->values,
                                                 .n_bytes = (size_t)list->count * sizeof(double) });
    }
    return hl_safetensors_write(writer, state->path);
}

static hl_status check_key(const hl_sweep_state *state, const hl_safetensors *file)
{
    const char *key = hl_safetensors_metadata(file, KEY);

    if (key == NULL)
        return hl_fail(HL_BAD_INPUT,
                       "%s: not the state of a sweep; remove it or name another with --state",
                       state->path);
    if (strcmp(key, state->key) != 0)
        return hl_fail(HL_BAD_INPUT,
                       "%s: this state was begun with other settings (%s; now %s); use those, or "
                       "remove the file to start again",
                       state->path, key, state->key);
    return HL_OK;
}

static hl_status read_list(hl_sweep_state *state, const hl_tensor *tensor)
{
    HL_FREED double *values = NULL;

    if (tensor->dtype != HL_DTYPE_F64 || tensor->n_dims != 1)
        return hl_fail(HL_BAD_INPUT, "%s: tensor '%s' is not a list of F64", state->path,
                       tensor->name);
    /* The file's bytes may be unaligned, so they are copied. */
    HL_NEED(HL_ALLOC(&values, (size_t)tensor->shape[0]));
    memcpy(values, tensor->data, (size_t)tensor->shape[0] * sizeof *values);
    return hl_sweep_state_put(state, tensor->name, values, tensor->shape[0]);
}

hl_status hl_sweep_state_load(hl_sweep_state *state)
{
    HL_CLOSED(hl_safetensors_close) hl_safetensors *file = NULL;
    struct stat                                     about;

    if (state->path == NULL || (stat(state->path, &about) != 0 && errno == ENOENT))
        return HL_OK;
    HL_NEED(hl_safetensors_open(&file, state->path));
    HL_NEED(check_key(state, file));
    for (size_t i = 0; i < hl_safetensors_count(file); i++)
        HL_NEED(read_list(state, hl_safetensors_at(file, i)));
    return HL_OK;
}
