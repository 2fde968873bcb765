/* profile_file.c - a profile as a safetensors file.
 *
 * Every table is a tensor (doc/profile.md), the means of the quantities lie beside them
 * for whoever opens the file with another program, and the metadata says what was
 * measured and how.  Nothing in the file says when, where or by whom: the same
 * measurement has the same bytes. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "formats/safetensors.h"
#include "stats/profile_file.h"
#include "stats/profile_tables.h"

/* -------------------------------------------------------------------- metadata */

static void add_number(hl_safetensors_writer *writer, const char *key, int64_t value)
{
    char text[24];

    snprintf(text, sizeof text, "%" PRId64, value);
    hl_safetensors_add_metadata(writer, key, text);
}

/* Numbers of heads, or names of settings, in one line; the caller frees it. */
static hl_status list_heads(char **out, const hl_profile *profile)
{
    enum { DIGITS = 6 };
    size_t    used   = 0;
    size_t    size   = (size_t)profile->n_layers * DIGITS + 1;
    hl_status status = HL_ALLOC(out, size);

    for (int64_t layer = 0; layer < profile->n_layers && status == HL_OK; layer++)
        used += (size_t)snprintf(*out + used, size - used, "%s%" PRId64, layer > 0 ? " " : "",
                                 profile->heads[layer]);
    return status;
}

static hl_status list_settings(char **out, const hl_profile *profile)
{
    size_t size = 1;
    size_t used = 0;

    for (size_t i = 0; i < profile->n_settings; i++)
        size += strlen(profile->settings[i].key) + 1;
    hl_status status = HL_ALLOC_ZEROED(out, size);
    for (size_t i = 0; i < profile->n_settings && status == HL_OK; i++)
        used += (size_t)snprintf(*out + used, size - used, "%s%s", i > 0 ? " " : "",
                                 profile->settings[i].key);
    return status;
}

static void add_types(hl_safetensors_writer *writer, const hl_profile *profile)
{
    char key[32];

    add_number(writer, "types", profile->n_types);
    for (int64_t type = 0; type < profile->n_types; type++) {
        snprintf(key, sizeof key, "type.%" PRId64, type);
        hl_safetensors_add_metadata(writer, key, profile->type_names[type]);
    }
}

static hl_status add_metadata(hl_safetensors_writer *writer, const hl_profile *profile)
{
    hl_status status = HL_OK;
    char     *heads  = NULL;
    char     *names  = NULL;

    HL_TRY(list_heads(&heads, profile));
    HL_TRY(list_settings(&names, profile));
    hl_safetensors_add_metadata(writer, "format", HL_PROFILE_FORMAT);
    hl_safetensors_add_metadata(writer, "heads", heads);
    add_number(writer, "buckets", profile->n_buckets);
    add_number(writer, "kept", profile->n_kept);
    add_types(writer, profile);
    hl_safetensors_add_metadata(writer, "settings", names);
    for (size_t i = 0; i < profile->n_settings; i++)
        hl_safetensors_add_metadata(writer, profile->settings[i].key, profile->settings[i].value);

done:
    hl_free(heads);
    hl_free(names);
    return status;
}

/* --------------------------------------------------------------------- tensors */

static void add_table(hl_safetensors_writer *writer, const hl_profile *profile, hl_table table)
{
    const hl_table_form *form = hl_table_form_of(table);
    hl_tensor tensor = { .name = form->name, .dtype = form->dtype, .data = profile->tables[table] };
    int64_t   count  = 1;

    tensor.n_dims = hl_table_shape(tensor.shape, profile, table);
    if (form->kind == HL_KIND_KEPT)
        tensor.shape[0] = hl_profile_kept(profile);
    for (int i = 0; i < tensor.n_dims; i++)
        count *= tensor.shape[i];
    tensor.n_bytes = (size_t)count * (hl_dtype_bits(form->dtype) / 8);
    hl_safetensors_add(writer, &tensor);
}

/* (L, H, Q); NaN where nothing was counted. */
static hl_status make_means(double **out, const hl_profile *profile)
{
    int64_t   count  = hl_table_count(profile, HL_TABLE_COUNT);
    hl_status status = HL_ALLOC(out, (size_t)count);

    for (int64_t i = 0; i < count && status == HL_OK; i++)
        (*out)[i] =
            hl_wide_mean(hl_wides(profile, HL_TABLE_SUM)[i], hl_counts(profile, HL_TABLE_COUNT)[i]);
    return status;
}

hl_status hl_profile_write_state(const hl_profile *profile, const char *path, const char *state)
{
    hl_status              status = HL_OK;
    hl_safetensors_writer *writer = NULL;
    double                *means  = NULL;
    hl_tensor              tensor = { .name = HL_PROFILE_MEAN, .dtype = HL_DTYPE_F64, .n_dims = 3 };

    HL_TRY(hl_safetensors_writer_new(&writer));
    HL_TRY(make_means(&means, profile));
    HL_TRY(add_metadata(writer, profile));
    if (state != NULL)
        hl_safetensors_add_metadata(writer, HL_PROFILE_STATE, state);
    for (hl_table table = 0; table < HL_N_TABLES; table++) {
        if (table != HL_TABLE_NLL_BROKEN || hl_profile_broken_losses(profile) > 0)
            add_table(writer, profile, table);
    }
    hl_table_shape(tensor.shape, profile, HL_TABLE_COUNT);
    tensor.data    = means;
    tensor.n_bytes = (size_t)hl_table_count(profile, HL_TABLE_COUNT) * sizeof *means;
    hl_safetensors_add(writer, &tensor);
    HL_TRY(hl_safetensors_write(writer, path));

done:
    hl_safetensors_writer_free(writer);
    hl_free(means);
    return status;
}

hl_status hl_profile_write(const hl_profile *profile, const char *path)
{
    return hl_profile_write_state(profile, path, NULL);
}
