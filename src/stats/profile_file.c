/* profile_file.c - a profile as a safetensors file.
 *
 * Every table is a tensor (doc/profile.md).  The means of the quantities are stored too, for other
 * programs; the metadata states what was measured and how.  The file does not contain time, place
 * or user, so the same measurement has the same bytes.
 *
 * A file that is read is untrusted.  The metadata gives a shape.  Exactly the tensors that follow
 * from it must exist, with their dtypes and shapes, so memory is allocated only for what the file
 * has.  Then values are checked: counts are within 0 .. tokens, sums within what that number of
 * values can reach, and ends are in order.  A file that passes cannot make a later sum overflow. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "formats/safetensors.h"
#include "stats/profile_tables.h"

/* The metadata's "format"; another number when programs of before can no longer read files.
 * Earlier ones are read: the first had no curves by position of kept sequences, the first two did
 * not know their documents, the first three had fewer means of sequences. */
#define FORMAT_NAME "headlight profile "
#define NEWEST      "4"
enum { FORMAT = 4 };
/* Means of the quantities, (L, H, Q) F64: for other programs, made anew when written. */
#define MEAN "mean"

enum { MAX_SETTINGS = 256 };

/* -------------------------------------------------------- writing: metadata */

static void add_number(hl_safetensors_writer *writer, const char *key, int64_t value)
{
    char text[24];

    snprintf(text, sizeof text, "%" PRId64, value);
    hl_safetensors_add_metadata(writer, key, text);
}

/* Lists the layers' numbers of heads in one line; the caller frees it. */
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
    HL_FREED char *heads = NULL;
    HL_FREED char *names = NULL;

    HL_NEED(list_heads(&heads, profile));
    HL_NEED(list_settings(&names, profile));
    hl_safetensors_add_metadata(writer, "format", FORMAT_NAME NEWEST);
    hl_safetensors_add_metadata(writer, "heads", heads);
    add_number(writer, "buckets", profile->n_buckets);
    add_number(writer, "kept", profile->n_kept);
    add_types(writer, profile);
    hl_safetensors_add_metadata(writer, "settings", names);
    for (size_t i = 0; i < profile->n_settings; i++)
        hl_safetensors_add_metadata(writer, profile->settings[i].key, profile->settings[i].value);
    return HL_OK;
}

/* --------------------------------------------------------- writing: tensors */

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

/* Computes the means (L, H, Q); NaN if nothing was counted. */
static hl_status make_means(double **out, const hl_profile *profile)
{
    int64_t   count  = hl_table_count(profile, HL_TABLE_COUNT);
    hl_status status = HL_ALLOC(out, (size_t)count);

    for (int64_t i = 0; i < count && status == HL_OK; i++)
        (*out)[i] =
            hl_wide_mean(hl_wides(profile, HL_TABLE_SUM)[i], hl_counts(profile, HL_TABLE_COUNT)[i]);
    return status;
}

/* Was anything counted in the table, or in that of its counts? */
static bool has_counts(const hl_profile *profile, hl_table table)
{
    const hl_table_form *form   = hl_table_form_of(table);
    hl_table             counts = form->kind == HL_KIND_COUNT ? table : form->counts;

    for (int64_t i = 0; i < hl_table_count(profile, counts); i++) {
        if (hl_counts(profile, counts)[i] > 0)
            return true;
    }
    return false;
}

hl_status hl_profile_write_state(const hl_profile *profile, const char *path, const char *state)
{
    HL_CLOSED(hl_safetensors_writer_free) hl_safetensors_writer *writer = NULL;

    HL_FREED double *means  = NULL;
    hl_tensor        tensor = { .name = MEAN, .dtype = HL_DTYPE_F64, .n_dims = 3 };

    HL_NEED(hl_safetensors_writer_new(&writer));
    HL_NEED(make_means(&means, profile));
    HL_NEED(add_metadata(writer, profile));
    if (state != NULL)
        hl_safetensors_add_metadata(writer, HL_PROFILE_STATE, state);
    for (hl_table table = 0; table < HL_N_TABLES; table++) {
        if (!hl_table_is_optional(table) || has_counts(profile, table))
            add_table(writer, profile, table);
    }
    hl_table_shape(tensor.shape, profile, HL_TABLE_COUNT);
    tensor.data    = means;
    tensor.n_bytes = (size_t)hl_table_count(profile, HL_TABLE_COUNT) * sizeof *means;
    hl_safetensors_add(writer, &tensor);
    return hl_safetensors_write(writer, path);
}

hl_status hl_profile_write(const hl_profile *profile, const char *path)
{
    return hl_profile_write_state(profile, path, NULL);
}

/* -------------------------------------------------------- reading: metadata */

static hl_status need(const char **out, const hl_safetensors *file, const char *key)
{
    *out = hl_safetensors_metadata(file, key);
    if (*out == NULL)
        return hl_fail(HL_BAD_INPUT, "metadata '%s' is missing", key);
    return HL_OK;
}

static bool read_number(int64_t *out, const char **text)
{
    int64_t value  = 0;
    int     digits = 0;

    for (; **text >= '0' && **text <= '9' && digits < 10; (*text)++, digits++)
        value = value * 10 + (**text - '0');
    *out = value;
    return digits > 0;
}

static hl_status need_number(int64_t *out, const hl_safetensors *file, const char *key)
{
    const char *text = NULL;

    HL_NEED(need(&text, file, key));
    const char *rest = text;
    if (!read_number(out, &rest) || *rest != '\0')
        return hl_fail(HL_BAD_INPUT, "metadata '%s' is '%.40s', wanted a number", key, text);
    return HL_OK;
}

static hl_status read_heads(int64_t heads[HL_PROFILE_MAX_LAYERS], int64_t *n_layers,
                            const hl_safetensors *file)
{
    const char *text = NULL;

    HL_NEED(need(&text, file, "heads"));
    for (*n_layers = 0; *n_layers < HL_PROFILE_MAX_LAYERS; text++) {
        if (!read_number(&heads[(*n_layers)++], &text) || (*text != ' ' && *text != '\0'))
            return hl_fail(HL_BAD_INPUT, "metadata 'heads' is not a list of numbers");
        if (*text == '\0')
            return HL_OK;
    }
    return hl_fail(HL_BAD_INPUT, "metadata 'heads' has more than %d layers", HL_PROFILE_MAX_LAYERS);
}

static hl_status read_types(const char *names[HL_PROFILE_MAX_TYPES], int64_t *n_types,
                            const hl_safetensors *file)
{
    char key[24];

    HL_NEED(need_number(n_types, file, "types"));
    for (int64_t type = 0; type < *n_types && type < HL_PROFILE_MAX_TYPES; type++) {
        snprintf(key, sizeof key, "type.%" PRId64, type);
        HL_NEED(need(&names[type], file, key));
    }
    return HL_OK;
}

/* Returns 1 to FORMAT; 0: not one of them. */
static int format_of(const hl_safetensors *file)
{
    const char *format = hl_safetensors_metadata(file, "format");
    size_t      length = strlen(FORMAT_NAME);

    if (format == NULL || strncmp(format, FORMAT_NAME, length) != 0 || strlen(format) != length + 1)
        return 0;
    int number = format[length] - '0';
    return number >= 1 && number <= FORMAT ? number : 0;
}

/* The first format whose files have the table. */
static int format_with(hl_table table)
{
    return table >= HL_FIRST_OF_FORMAT_4   ? 4
           : table >= HL_FIRST_OF_FORMAT_3 ? 3
           : table >= HL_FIRST_OF_FORMAT_2 ? 2
                                           : 1;
}

static hl_status read_shape(hl_profile **out, const hl_safetensors *file)
{
    const char      *format = NULL;
    const char      *names[HL_PROFILE_MAX_TYPES];
    int64_t          heads[HL_PROFILE_MAX_LAYERS];
    int64_t          n_buckets = 0;
    int64_t          n_kept    = 0;
    hl_profile_shape shape     = { .heads = heads, .type_names = names };

    HL_NEED(need(&format, file, "format"));
    if (format_of(file) == 0)
        return hl_fail(HL_BAD_INPUT, "format '%.40s', wanted '" FORMAT_NAME NEWEST "'", format);
    HL_NEED(read_heads(heads, &shape.n_layers, file));
    HL_NEED(read_types(names, &shape.n_types, file));
    HL_NEED(need_number(&n_buckets, file, "buckets"));
    HL_NEED(need_number(&n_kept, file, "kept"));
    return hl_profile_new_shape(out, &shape, n_buckets, n_kept);
}

static hl_status read_setting(hl_profile *profile, const hl_safetensors *file, const char *name,
                              size_t n_bytes)
{
    HL_FREED char *key   = NULL;
    const char    *value = NULL;

    HL_NEED(hl_strndup(&key, name, n_bytes));
    HL_NEED(need(&value, file, key));
    return hl_profile_set(profile, key, value);
}

static hl_status read_settings(hl_profile *profile, const hl_safetensors *file)
{
    const char *names = NULL;

    HL_NEED(need(&names, file, "settings"));
    for (int n = 0; *names != '\0'; n++) {
        size_t n_bytes = strcspn(names, " ");

        if (n == MAX_SETTINGS)
            return hl_fail(HL_BAD_INPUT, "more than %d settings", MAX_SETTINGS);
        HL_NEED(read_setting(profile, file, names, n_bytes));
        names += n_bytes + (names[n_bytes] == ' ' ? 1 : 0);
    }
    return HL_OK;
}

/* --------------------------------------------------------- reading: tensors */

static void print_shape(char out[128], const int64_t *shape, int n_dims)
{
    size_t used = 0;

    out[0] = '\0';
    for (int i = 0; i < n_dims && used < 100; i++)
        used += (size_t)snprintf(out + used, 128 - used, "%s%" PRId64, i > 0 ? "," : "", shape[i]);
}

static hl_status check_tensor(const hl_tensor *tensor, hl_dtype dtype, const int64_t *shape,
                              int n_dims)
{
    char wanted[128];
    char seen[128];

    if (tensor->dtype != dtype)
        return hl_fail(HL_BAD_INPUT, "tensor '%s' is %s, wanted %s", tensor->name,
                       hl_dtype_name(tensor->dtype), hl_dtype_name(dtype));
    if (tensor->n_dims == n_dims &&
        memcmp(tensor->shape, shape, (size_t)n_dims * sizeof *shape) == 0)
        return HL_OK;
    print_shape(wanted, shape, n_dims);
    print_shape(seen, tensor->shape, tensor->n_dims);
    return hl_fail(HL_BAD_INPUT, "tensor '%s' has shape [%s], wanted [%s]", tensor->name, seen,
                   wanted);
}

/* *out is NULL for what files of earlier formats lack, and for tables without counts. */
static hl_status find_table(const hl_tensor **out, const hl_safetensors *file,
                            const hl_profile *profile, hl_table table)
{
    const hl_table_form *form = hl_table_form_of(table);
    int64_t              shape[HL_TABLE_DIMS];
    int                  n_dims = hl_table_shape(shape, profile, table);

    *out = hl_safetensors_find(file, form->name);
    if (*out == NULL && format_of(file) < format_with(table))
        return HL_OK;
    if (*out == NULL && hl_table_is_optional(table))
        return HL_OK;
    if (*out == NULL)
        return hl_fail(HL_BAD_INPUT, "tensor '%s' is missing", form->name);
    /* The file determines how many sequences are kept; this is checked against the totals. */
    if (form->kind == HL_KIND_KEPT && (*out)->n_dims == n_dims && (*out)->shape[0] >= 0 &&
        (*out)->shape[0] <= profile->n_kept)
        shape[0] = (*out)->shape[0];
    return check_tensor(*out, form->dtype, shape, n_dims);
}

static bool is_known(const char *name)
{
    for (hl_table table = 0; table < HL_N_TABLES; table++) {
        if (strcmp(name, hl_table_form_of(table)->name) == 0)
            return true;
    }
    return strcmp(name, MEAN) == 0;
}

static hl_status check_tensors(const hl_safetensors *file, const hl_profile *profile)
{
    const hl_tensor *tensor = NULL;
    int64_t          shape[HL_TABLE_DIMS];
    int              n_dims = hl_table_shape(shape, profile, HL_TABLE_COUNT);

    for (size_t i = 0; i < hl_safetensors_count(file); i++) {
        const char *name = hl_safetensors_at(file, i)->name;
        if (!is_known(name))
            return hl_fail(HL_BAD_INPUT, "tensor '%.80s' is not part of a profile", name);
    }
    for (hl_table table = 0; table < HL_N_TABLES; table++)
        HL_NEED(find_table(&tensor, file, profile, table));
    tensor = hl_safetensors_find(file, MEAN);
    if (tensor != NULL)
        HL_NEED(check_tensor(tensor, HL_DTYPE_F64, shape, n_dims));
    return HL_OK;
}

static hl_status check_kept(const hl_tensor *tensor, const hl_profile *profile)
{
    int64_t wanted = hl_profile_kept(profile);

    if (tensor->shape[0] == wanted)
        return HL_OK;
    return hl_fail(HL_BAD_INPUT, "tensor '%s' has %" PRId64 " sequences, wanted %" PRId64,
                   tensor->name, tensor->shape[0], wanted);
}

/* Marks means of sequences as missing. */
static void forget_means(const hl_profile *profile, hl_table table)
{
    float *means = hl_floats(profile, table);

    for (int64_t i = 0; i < hl_table_count(profile, table); i++)
        means[i] = NAN;
}

static hl_status copy_tables(hl_profile *profile, const hl_safetensors *file)
{
    const hl_tensor *tensor = NULL;

    for (hl_table table = 0; table < HL_N_TABLES; table++) {
        HL_NEED(find_table(&tensor, file, profile, table));
        if (tensor != NULL)
            memcpy(profile->tables[table], tensor->data, tensor->n_bytes);
        else if (table == HL_TABLE_KEPT_POSITIONS || table == HL_TABLE_MORE)
            forget_means(profile, table);
        if (tensor != NULL && table >= HL_FIRST_KEPT) /* the totals are read before these tables */
            HL_NEED(check_kept(tensor, profile));
    }
    return HL_OK;
}

/* ---------------------------------------------------------- reading: values */

static hl_status bad_value(hl_table table, int64_t at, const char *why)
{
    return hl_fail(HL_BAD_INPUT, "tensor '%s' [%" PRId64 "]: %s", hl_table_form_of(table)->name, at,
                   why);
}

static hl_status check_totals(const hl_profile *profile)
{
    const int64_t *totals = hl_counts(profile, HL_TABLE_TOTALS);

    if (totals[0] < 0 || totals[0] > HL_MAX_COUNT)
        return bad_value(HL_TABLE_TOTALS, 0, "not a number of tokens");
    if (totals[1] < 0 || totals[1] > totals[0])
        return bad_value(HL_TABLE_TOTALS, 1, "not a number of sequences of that many tokens");
    return HL_OK;
}

/* Returns true if element `at` of a table by head belongs to a head that the layer lacks. */
static bool is_beyond(const hl_profile *profile, hl_table table, int64_t at)
{
    int64_t shape[HL_TABLE_DIMS];
    int     n_dims  = hl_table_shape(shape, profile, table);
    int64_t n_cells = profile->n_layers * profile->n_heads;

    if (n_dims < 2 || shape[0] != profile->n_layers || shape[1] != profile->n_heads)
        return false;
    int64_t cell = at / (hl_table_count(profile, table) / n_cells);
    return cell % profile->n_heads >= profile->heads[cell / profile->n_heads];
}

static hl_status check_counts(const hl_profile *profile, hl_table table)
{
    const int64_t *counts = hl_counts(profile, table);
    int64_t        most   = hl_counts(profile, HL_TABLE_TOTALS)[0];
    int64_t        count  = hl_table_count(profile, table);

    for (int64_t i = 0; i < count; i++) {
        if (counts[i] < 0 || counts[i] > most)
            return bad_value(table, i, "not a count of that many tokens");
        if (counts[i] != 0 && is_beyond(profile, table, i))
            return bad_value(table, i, "a head that its layer does not have");
    }
    return HL_OK;
}

/* Returns the count for the sum in element `at` of a table. */
static int64_t count_of(const hl_profile *profile, hl_table table, int64_t at, int64_t count)
{
    const int64_t *counts = hl_counts(profile, hl_table_form_of(table)->counts);

    if (table == HL_TABLE_LOOKBACK)
        return counts[at / profile->n_types * HL_N_BY_TYPE];
    if (table == HL_TABLE_DISTANCE_SUM || table == HL_TABLE_KERNEL_SUM)
        return counts[at / (count / profile->n_layers)];
    return counts[at];
}

static hl_status check_wides(const hl_profile *profile, hl_table table)
{
    const hl_wide *sums    = hl_wides(profile, table);
    int64_t        count   = hl_table_count(profile, table) / 2;
    bool           squares = hl_table_form_of(table)->kind == HL_KIND_SQUARES;

    for (int64_t i = 0; i < count; i++) {
        hl_wide most = (hl_wide)count_of(profile, table, i, count) << (squares ? 86 : 63);
        if (sums[i] > most || sums[i] < (squares ? 0 : -most))
            return bad_value(table, i, "more than that many values can add up to");
    }
    return HL_OK;
}

static hl_status check_units(const hl_profile *profile, hl_table table)
{
    const int64_t *sums  = hl_counts(profile, table);
    int64_t        count = hl_table_count(profile, table);

    for (int64_t i = 0; i < count; i++) {
        int64_t most = count_of(profile, table, i, count) << 22;
        if (sums[i] > most || sums[i] < -most)
            return bad_value(table, i, "more than that many values can add up to");
    }
    return HL_OK;
}

static hl_status check_ends(const hl_profile *profile)
{
    const float   *min    = hl_floats(profile, HL_TABLE_MIN);
    const float   *max    = hl_floats(profile, HL_TABLE_MAX);
    const int64_t *counts = hl_counts(profile, HL_TABLE_COUNT);

    for (int64_t i = 0; i < hl_table_count(profile, HL_TABLE_MIN); i++) {
        bool empty = min[i] == INFINITY && max[i] == -INFINITY;
        bool right =
            counts[i] == 0 ? empty : isfinite(min[i]) && isfinite(max[i]) && min[i] <= max[i];
        if (!right)
            return bad_value(HL_TABLE_MIN, i, "min and max do not fit the count");
    }
    return HL_OK;
}

static hl_status check_histograms(const hl_profile *profile)
{
    static const hl_quantity of[HL_N_HISTOGRAMS] = { HL_Q_ENTROPY, HL_Q_ENTROPY_NOSINK, HL_Q_PEAK };
    const int64_t           *bins                = hl_counts(profile, HL_TABLE_HISTOGRAM);
    const int64_t           *counts              = hl_counts(profile, HL_TABLE_COUNT);

    for (int64_t i = 0; i < profile->n_layers * profile->n_heads * HL_N_HISTOGRAMS; i++) {
        int     histogram = (int)(i % HL_N_HISTOGRAMS);
        int64_t count     = counts[i / HL_N_HISTOGRAMS * HL_N_QUANTITIES + of[histogram]];
        int64_t total     = 0;

        for (int bin = 0; bin < HL_N_BINS; bin++)
            total += bins[i * HL_N_BINS + bin];
        if (total > count || (histogram == HL_HIST_PEAK && total != count))
            return bad_value(HL_TABLE_HISTOGRAM, i * HL_N_BINS, "does not fit the count of rows");
    }
    return HL_OK;
}

static hl_status check_places(const hl_profile *profile)
{
    const int64_t *places = hl_counts(profile, HL_TABLE_PLACE);
    const int64_t *broken = hl_counts(profile, HL_TABLE_BROKEN);

    for (int64_t i = 0; i < hl_table_count(profile, HL_TABLE_BROKEN); i++) {
        bool none  = places[2 * i] == -1 && places[2 * i + 1] == -1;
        bool there = places[2 * i] >= 0 && places[2 * i + 1] >= 0;
        if (broken[i] > 0 ? !there : !none)
            return bad_value(HL_TABLE_PLACE, 2 * i, "does not fit the count of broken rows");
    }
    return HL_OK;
}

static hl_status check_scores(const hl_profile *profile)
{
    double *scores = profile->tables[HL_TABLE_PROBE];

    for (int64_t i = 0; i < hl_table_count(profile, HL_TABLE_PROBE); i++) {
        if (isnan(scores[i]))
            scores[i] = (double)NAN; /* all NaNs get the same bits, whatever the file has */
        else if (scores[i] < 0.0 || scores[i] > 1.0)
            return bad_value(HL_TABLE_PROBE, i, "not between 0 and 1");
    }
    return HL_OK;
}

/* Returns the number of a table's elements for the sequences that are kept now. */
static int64_t kept_count(const hl_profile *profile, hl_table table)
{
    return hl_table_count(profile, table) / profile->n_kept * hl_profile_kept(profile);
}

static hl_status check_kept_means(const hl_profile *profile, hl_table table)
{
    float *means = hl_floats(profile, table);

    for (int64_t i = 0; i < kept_count(profile, table); i++) {
        if (isnan(means[i]))
            means[i] = NAN;
        else if (!hl_fixed_fits((double)means[i]))
            return bad_value(table, i, "not a mean");
    }
    return HL_OK;
}

static hl_status check_sequences(const hl_profile *profile)
{
    const uint64_t *hashes = profile->tables[HL_TABLE_HASHES];
    const int64_t  *counts = hl_counts(profile, HL_TABLE_KEPT_COUNTS);
    int64_t         most   = hl_counts(profile, HL_TABLE_TOTALS)[0] * profile->n_layers;

    for (int64_t i = 1; i < hl_profile_kept(profile); i++) {
        if (hashes[i] < hashes[i - 1])
            return bad_value(HL_TABLE_HASHES, i, "the hashes do not rise");
    }
    for (int64_t i = 0; i < kept_count(profile, HL_TABLE_KEPT_COUNTS); i++) {
        if (counts[i] < 0 || counts[i] > most * profile->n_heads) /* the product is at most 2^60 */
            return bad_value(HL_TABLE_KEPT_COUNTS, i, "not a count of that many tokens");
    }
    HL_NEED(check_kept_means(profile, HL_TABLE_MEANS));
    HL_NEED(check_kept_means(profile, HL_TABLE_MORE));
    return check_kept_means(profile, HL_TABLE_KEPT_POSITIONS);
}

static hl_status check_table(const hl_profile *profile, hl_table table)
{
    switch (hl_table_form_of(table)->kind) {
    case HL_KIND_COUNT:
        return table == HL_TABLE_TOTALS ? HL_OK : check_counts(profile, table);
    case HL_KIND_WIDE:
    case HL_KIND_SQUARES:
        return check_wides(profile, table);
    case HL_KIND_UNIT:
        return check_units(profile, table);
    default:
        return HL_OK;
    }
}

static hl_status check_values(const hl_profile *profile)
{
    HL_NEED(check_totals(profile));
    for (hl_table table = 0; table < HL_N_TABLES; table++)
        HL_NEED(check_table(profile, table));
    HL_NEED(check_ends(profile));
    HL_NEED(check_histograms(profile));
    HL_NEED(check_places(profile));
    HL_NEED(check_scores(profile));
    return check_sequences(profile);
}

/* ------------------------------------------------------- reading: the whole */

static hl_status read_profile(hl_profile **out, const hl_safetensors *file)
{
    HL_CLOSED(hl_profile_free) hl_profile *profile = NULL;

    *out = NULL;
    HL_NEED(read_shape(&profile, file));
    HL_NEED(read_settings(profile, file));
    HL_NEED(check_tensors(file, profile));
    HL_NEED(hl_profile_allocate(profile));
    HL_NEED(copy_tables(profile, file));
    HL_NEED(check_values(profile));
    *out = hl_taken(&profile);
    return HL_OK;
}

hl_status hl_profile_parse(hl_profile **out, const void *bytes, size_t n_bytes, const char *where)
{
    hl_status       status = HL_OK;
    hl_safetensors *file   = NULL;

    *out = NULL;
    HL_TRY(hl_safetensors_parse(&file, bytes, n_bytes, where));
    status = read_profile(out, file);
    if (status != HL_OK)
        hl_fail_within(status, "%s", where);

done:
    hl_safetensors_close(file);
    return status;
}

/* If a model is given instead of a profile, the error says so, rather than what is wrong with its
 * bytes. */
static hl_status check_kind(const char *path)
{
    hl_status status   = HL_OK;
    hl_file   file     = { 0 };
    char     *inside   = NULL;
    bool      is_model = false;
    uint64_t  n_header = UINT64_MAX;

    if (hl_path_is_folder(path)) {
        HL_TRY(hl_path_join(&inside, path, "config.json"));
        status =
            hl_fail(HL_BAD_INPUT,
                    hl_path_exists(inside)
                        ? "%s: this is a model, not a profile; run headlight measure on it first"
                        : "%s: this is a folder, not a profile",
                    path);
        goto done;
    }
    HL_TRY(hl_file_map(&file, path));
    is_model = file.n_bytes >= 4 && memcmp(file.bytes, "GGUF", 4) == 0;
    if (file.n_bytes > sizeof n_header && file.bytes[sizeof n_header] == '{')
        memcpy(&n_header, file.bytes, sizeof n_header);
    if (is_model)
        status =
            hl_fail(HL_BAD_INPUT,
                    "%s: this is a model, not a profile; run headlight measure on it first", path);
    else if (n_header > HL_SAFETENSORS_MAX_HEADER)
        status =
            hl_fail(HL_BAD_INPUT, "%s: not a profile; headlight measure writes profiles", path);

done:
    hl_file_unmap(&file);
    hl_free(inside);
    return status;
}

/* Loads a profile; `state` is NULL if the work will not be continued. */
static hl_status load(hl_profile **out, char **state, const char *path)
{
    hl_status       status = HL_OK;
    hl_safetensors *file   = NULL;

    *out = NULL;
    HL_TRY(check_kind(path));
    HL_TRY(hl_safetensors_open(&file, path));
    const char *format = hl_safetensors_metadata(file, "format");
    if (format == NULL || strncmp(format, "headlight", strlen("headlight")) != 0)
        HL_TRY(
            hl_fail(HL_BAD_INPUT,
                    "%s: safetensors, but not a profile; if it is a model, run headlight measure "
                    "on it first",
                    path));
    status = read_profile(out, file);
    if (status != HL_OK)
        HL_TRY(hl_fail_within(status, "%s", path));
    const char *text = hl_safetensors_metadata(file, HL_PROFILE_STATE);
    if (state == NULL || text == NULL)
        goto done;
    /* What it lacks of the windows so far could not be had any more. */
    if (format_of(file) != FORMAT)
        HL_TRY(hl_fail(HL_BAD_INPUT,
                       "%s: begun by an earlier version, and this one cannot continue it; remove "
                       "the file to start again",
                       path));
    HL_TRY(hl_strdup(state, text));

done:
    hl_safetensors_close(file);
    if (status != HL_OK) {
        hl_profile_free(*out);
        *out = NULL;
    }
    return status;
}

hl_status hl_profile_load_state(hl_profile **out, char **state, const char *path)
{
    *state = NULL;
    return load(out, state, path);
}

hl_status hl_profile_load(hl_profile **out, const char *path)
{
    return load(out, NULL, path);
}
