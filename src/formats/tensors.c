/* tensors.c - a single tensor, and all tensors of a model, from one file or many.
 *
 * A model is a list of open files and one list of all their tensors, borrowed from
 * the files and sorted by name.  What differs is how the files are found:
 *
 *     safetensors   model.safetensors.index.json has a weight_map from each tensor
 *                   to the shard that holds it.  Map and shards must agree;
 *                   other tensors of a shard are ignored, as
 *                   transformers does.
 *     GGUF          NAME-00001-of-0000N.gguf and its siblings; split.count is N,
 *                   split.no the part's number from 0, split.tensors.count the
 *                   number of tensors in all parts.
 *     llama2.c      always one file. */
#include "formats/tensors.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/dtype.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "formats/gguf.h"
#include "formats/llama2c.h"
#include "formats/safetensors.h"

#define SINGLE_FILE  "model.safetensors"
#define INDEX_FILE   "model.safetensors.index.json"
#define INDEX_ENDING ".safetensors.index.json"
#define MAX_PARTS    99999 /* the names have five digits */

/* --------------------------------------------------------- the size of one */

int64_t hl_tensor_count(const hl_tensor *tensor)
{
    int64_t count = 1;
    for (int i = 0; i < tensor->n_dims; i++)
        count *= tensor->shape[i];
    return count;
}

/* Multiplies the dimensions and `unit`, and checks each of them. */
static hl_status multiply_out(size_t *out, const hl_tensor *tensor, size_t unit)
{
    if (tensor->n_dims < 0 || tensor->n_dims > HL_MAX_TENSOR_DIMS)
        return hl_fail(HL_BAD_INPUT, "%d dimensions, wanted 0 to %d", tensor->n_dims,
                       HL_MAX_TENSOR_DIMS);
    for (int i = 0; i < tensor->n_dims; i++) {
        int64_t size = tensor->shape[i];
        if (size < 0 || (uint64_t)size > SIZE_MAX || !hl_size_multiply(&unit, unit, (size_t)size))
            return hl_fail(HL_BAD_INPUT, "dimension %d is %lld: negative, or the size overflows", i,
                           (long long)size);
    }
    *out = unit;
    return HL_OK;
}

/* Elements may be smaller than a byte, but a tensor must end at a byte boundary. */
static hl_status bytes_of_elements(size_t *out, const hl_tensor *tensor)
{
    size_t n_bits = 0;

    HL_NEED(multiply_out(&n_bits, tensor, hl_dtype_bits(tensor->dtype)));
    if (n_bits % 8 != 0)
        return hl_fail(HL_BAD_INPUT, "%zu bits of %s do not fill whole bytes", n_bits,
                       hl_dtype_name(tensor->dtype));
    *out = n_bits / 8;
    return HL_OK;
}

/* Each row must be a whole number of blocks.  A block has fewer than four bytes per value, so the
 * check for overflow counts four bytes per value. */
static hl_status bytes_of_blocks(size_t *out, const hl_tensor *tensor)
{
    hl_dtype_block block   = hl_dtype_block_of(tensor->dtype);
    size_t         n_four  = 0;
    int64_t        n_inner = tensor->n_dims > 0 ? tensor->shape[tensor->n_dims - 1] : 1;

    HL_NEED(multiply_out(&n_four, tensor, 4));
    if ((uint64_t)n_inner % block.n_values != 0)
        return hl_fail(HL_BAD_INPUT, "rows of %lld elements are not a multiple of %s's %zu",
                       (long long)n_inner, hl_dtype_name(tensor->dtype), block.n_values);
    *out = n_four / 4 / block.n_values * block.n_bytes;
    return HL_OK;
}

hl_status hl_tensor_bytes(size_t *out, const hl_tensor *tensor)
{
    if (hl_dtype_is_block(tensor->dtype))
        return bytes_of_blocks(out, tensor);
    if (hl_dtype_bits(tensor->dtype) == 0)
        return hl_fail(HL_BAD_INPUT, "%d is not a dtype", (int)tensor->dtype);
    return bytes_of_elements(out, tensor);
}

/* ------------------------------------------------------------------ by name */

static int compare_names(const void *left, const void *right)
{
    const hl_tensor *const *a = left;
    const hl_tensor *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

void hl_tensors_sort(const hl_tensor **by_name, size_t count)
{
    if (count > 0)
        qsort((void *)by_name, count, sizeof *by_name, compare_names);
}

const hl_tensor *hl_tensors_among(const hl_tensor *const *by_name, size_t count, const char *name)
{
    const hl_tensor         wanted = { .name = name };
    const hl_tensor        *key    = &wanted;
    const hl_tensor *const *found =
        bsearch(&key, (const void *)by_name, count, sizeof *by_name, compare_names);
    return found != NULL ? *found : NULL;
}

/* ------------------------------------------------------ tensors of a model */

struct hl_tensors {
    hl_tensors_kind   kind;
    char             *folder;
    hl_safetensors  **shards; /* (n_files), NULL for other formats */
    hl_gguf         **parts;  /* (n_files), NULL for other formats */
    hl_llama2c       *llama2c;
    size_t            n_files;
    const hl_tensor **tensors; /* (capacity), n_tensors used; file by file */
    const hl_tensor **by_name; /* (n_tensors) sorted by name */
    size_t            n_tensors;
    size_t            capacity;
};

/* -------------------------------------------------------------------- paths */

/* Removes slashes at the end: "dir//" becomes "dir", but "/" stays. */
static hl_status without_slashes(char **out, const char *folder)
{
    size_t length = strlen(folder);

    while (length > 1 && folder[length - 1] == '/')
        length--;
    return hl_strndup(out, folder, length);
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* Whether a path is PREFIX-00002-of-00003ENDING; returns the length of PREFIX and the count. */
static bool is_part_name(size_t *n_prefix, int *count, const char *path, const char *ending)
{
    enum { N_NUMBERS = sizeof "-00002-of-00003" - 1 };
    size_t n_path = strlen(path), n_tail = N_NUMBERS + strlen(ending);
    int    part = 0, length = 0;

    if (n_path < n_tail || !hl_ends_with(path, ending))
        return false;
    if (sscanf(path + n_path - n_tail, "-%5d-of-%5d%n", &part, count, &length) != 2 ||
        length != N_NUMBERS || part < 1 || part > *count)
        return false;
    *n_prefix = n_path - n_tail;
    return true;
}

/* ----------------------------------------------------------------- the list */

static hl_status add_tensor(hl_tensors *tensors, const hl_tensor *tensor)
{
    HL_NEED(HL_GROW(&tensors->tensors, &tensors->capacity, tensors->n_tensors, 1));
    tensors->tensors[tensors->n_tensors++] = tensor;
    return HL_OK;
}

/* Called after all files have added their tensors. */
static hl_status sort_tensors(hl_tensors *tensors, const char *where)
{
    size_t count = tensors->n_tensors;

    HL_NEED(HL_ALLOC(&tensors->by_name, count));
    for (size_t i = 0; i < count; i++)
        tensors->by_name[i] = tensors->tensors[i];
    hl_tensors_sort(tensors->by_name, count);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(tensors->by_name[i - 1]->name, tensors->by_name[i]->name) == 0)
            return hl_fail(HL_BAD_INPUT, "%s: tensor '%s' is in two of its files", where,
                           tensors->by_name[i]->name);
    }
    return HL_OK;
}

/* -------------------------------------------------------------- safetensors */

static hl_status open_single(hl_tensors *tensors, const char *path)
{
    HL_NEED(HL_ALLOC_ZEROED(&tensors->shards, 1));
    tensors->n_files = 1;
    HL_NEED(hl_safetensors_open(&tensors->shards[0], path));
    for (size_t i = 0; i < hl_safetensors_count(tensors->shards[0]); i++)
        HL_NEED(add_tensor(tensors, hl_safetensors_at(tensors->shards[0], i)));
    return sort_tensors(tensors, path);
}

static int compare_texts(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* Lists the names of the shards, each once and in order; borrowed from the map. */
static hl_status list_shards(const char ***out, size_t *n_out, json_t *map, const char *where)
{
    size_t                count = 0, n_kept = 0;
    const char           *tensor;
    json_t               *value;
    HL_FREED const char **names = NULL;

    HL_NEED(HL_ALLOC(&names, json_object_size(map)));
    json_object_foreach(map, tensor, value) {
        const char *name = json_string_value(value);
        if (name == NULL || name[0] == '\0' || strchr(name, '/') != NULL || name[0] == '.')
            return hl_fail(HL_BAD_INPUT, "%s: weight_map: '%s' is not mapped to the name of a file",
                           where, tensor);
        names[count++] = name;
    }
    qsort((void *)names, count, sizeof *names, compare_texts);
    for (size_t i = 0; i < count; i++) {
        if (n_kept == 0 || strcmp(names[n_kept - 1], names[i]) != 0)
            names[n_kept++] = names[i];
    }
    *out   = hl_taken(&names);
    *n_out = n_kept;
    return HL_OK;
}

static hl_status add_shard(hl_tensors *tensors, const char *name, const json_t *map,
                           const char *where)
{
    hl_safetensors **shard = &tensors->shards[tensors->n_files];
    HL_FREED char   *path  = NULL;

    HL_NEED(hl_path_join(&path, tensors->folder, name));
    hl_status status = hl_safetensors_open(shard, path);
    if (status == HL_NOT_FOUND)
        return hl_fail(HL_NOT_FOUND, "%s: shard %s is missing", where, name);
    HL_NEED(status);
    tensors->n_files++;
    for (size_t i = 0; i < hl_safetensors_count(*shard); i++) {
        const hl_tensor *tensor = hl_safetensors_at(*shard, i);
        const char      *mapped = json_string_value(json_object_get(map, tensor->name));
        if (mapped != NULL && strcmp(mapped, name) == 0)
            HL_NEED(add_tensor(tensors, tensor));
    }
    return HL_OK;
}

/* Checks that every tensor of the map is in its shard. */
static hl_status check_map(const hl_tensors *tensors, json_t *map, const char *where)
{
    const char *name;
    json_t     *value;

    json_object_foreach(map, name, value) {
        if (hl_tensors_find(tensors, name) == NULL)
            return hl_fail(HL_BAD_INPUT, "%s: tensor '%s' is not in %s", where, name,
                           json_string_value(value));
    }
    return HL_OK;
}

static hl_status open_index(hl_tensors *tensors, const char *path)
{
    size_t                         n_shards = 0;
    HL_CLOSED(json_decref) json_t *index    = NULL;
    HL_FREED const char          **names    = NULL;

    HL_NEED(hl_json_parse_file(&index, path));
    json_t *map = json_object_get(index, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0)
        return hl_fail(HL_BAD_INPUT, "%s: weight_map is missing, empty or not an object", path);
    HL_NEED(list_shards(&names, &n_shards, map, path));
    HL_NEED(HL_ALLOC_ZEROED(&tensors->shards, n_shards));
    for (size_t i = 0; i < n_shards; i++)
        HL_NEED(add_shard(tensors, names[i], map, path));
    HL_NEED(sort_tensors(tensors, path));
    return check_map(tensors, map, path);
}

/* Opens a single file, or one shard of those that an index in its folder lists. */
static hl_status open_safetensors(hl_tensors *tensors, const char *path)
{
    size_t         n_prefix = 0;
    int            count    = 0;
    HL_FREED char *index    = NULL;

    if (!is_part_name(&n_prefix, &count, path, ".safetensors"))
        return open_single(tensors, path);
    HL_NEED(HL_ALLOC(&index, n_prefix + sizeof INDEX_ENDING));
    snprintf(index, n_prefix + sizeof INDEX_ENDING, "%.*s" INDEX_ENDING, (int)n_prefix, path);
    if (!exists(index) && count > 1)
        return hl_fail(HL_NOT_FOUND, "%s: one of %d shards, but %s is missing", path, count,
                       hl_path_name(index));
    return exists(index) ? open_index(tensors, index) : open_single(tensors, path);
}

static hl_status open_folder(hl_tensors *tensors)
{
    HL_FREED char *single = NULL;
    HL_FREED char *index  = NULL;

    HL_NEED(hl_foreign_check_folder(tensors->folder));
    HL_NEED(hl_path_join(&single, tensors->folder, SINGLE_FILE));
    HL_NEED(hl_path_join(&index, tensors->folder, INDEX_FILE));
    if (exists(single))
        return open_single(tensors, single);
    return exists(index) ? open_index(tensors, index) : hl_foreign_explain_folder(tensors->folder);
}

/* --------------------------------------------------------------------- GGUF */

static hl_status add_part(hl_tensors *tensors, const char *path)
{
    hl_gguf **part = &tensors->parts[tensors->n_files];

    HL_NEED(hl_gguf_open(part, path));
    tensors->n_files++;
    for (size_t i = 0; i < hl_gguf_count(*part); i++)
        HL_NEED(add_tensor(tensors, hl_gguf_at(*part, i)));
    return HL_OK;
}

/* Checks that split.no and split.count match the name. */
static hl_status check_part(const hl_gguf *part, int number, int count)
{
    int64_t said_number = -1, said_count = -1;

    HL_NEED(hl_gguf_get_int(&said_number, part, "split.no"));
    HL_NEED(hl_gguf_get_int(&said_count, part, "split.count"));
    if (said_number != number || said_count != count)
        return hl_fail(HL_BAD_INPUT, "%s: split.no is %lld of %lld, wanted %d of %d",
                       hl_gguf_where(part), (long long)said_number, (long long)said_count, number,
                       count);
    return HL_OK;
}

static hl_status open_parts(hl_tensors *tensors, const char *path, size_t n_prefix, int count)
{
    size_t         room = strlen(path) + 1;
    HL_FREED char *name = NULL;

    HL_NEED(HL_ALLOC(&name, room));
    HL_NEED(HL_ALLOC_ZEROED(&tensors->parts, (size_t)count));
    for (int i = 0; i < count; i++) {
        snprintf(name, room, "%.*s-%05d-of-%05d.gguf", (int)n_prefix, path, i + 1, count);
        hl_status status = add_part(tensors, name);
        if (status == HL_NOT_FOUND)
            return hl_fail(HL_NOT_FOUND, "%s: part %s is missing", path, hl_path_name(name));
        HL_NEED(status);
        HL_NEED(check_part(tensors->parts[i], i, count));
    }
    int64_t n_wanted = (int64_t)tensors->n_tensors;
    HL_NEED(hl_gguf_get_int(&n_wanted, tensors->parts[0], "split.tensors.count"));
    if (n_wanted != (int64_t)tensors->n_tensors)
        return hl_fail(HL_BAD_INPUT, "%s: split.tensors.count is %lld, the parts hold %zu", path,
                       (long long)n_wanted, tensors->n_tensors);
    return HL_OK;
}

/* The number of parts that the file belongs to; 1 if the file does not say. */
static hl_status count_parts(int64_t *out, const char *path)
{
    HL_CLOSED(hl_gguf_close) hl_gguf *file = NULL;

    *out = 1;
    HL_NEED(hl_gguf_open(&file, path));
    HL_NEED(hl_gguf_get_int(out, file, "split.count"));
    if (*out < 0 || *out > MAX_PARTS)
        return hl_fail(HL_BAD_INPUT, "%s: split.count is %lld, at most %d", path, (long long)*out,
                       MAX_PARTS);
    return HL_OK;
}

static hl_status open_gguf(hl_tensors *tensors, const char *path)
{
    int64_t n_parts  = 1;
    size_t  n_prefix = 0;
    int     count    = 0;

    tensors->kind = HL_TENSORS_GGUF;
    HL_NEED(count_parts(&n_parts, path));
    if (n_parts > 1) {
        if (!is_part_name(&n_prefix, &count, path, ".gguf") || count != n_parts)
            return hl_fail(HL_BAD_INPUT,
                           "%s: one of %lld parts, so its name should end in -0000N-of-%05lld.gguf",
                           path, (long long)n_parts, (long long)n_parts);
        HL_NEED(open_parts(tensors, path, n_prefix, count));
    } else {
        HL_NEED(HL_ALLOC_ZEROED(&tensors->parts, 1));
        HL_NEED(add_part(tensors, path));
    }
    return sort_tensors(tensors, path);
}

/* ----------------------------------------------------------------- llama2.c */

static hl_status open_llama2c(hl_tensors *tensors, const char *path)
{
    tensors->kind = HL_TENSORS_LLAMA2C;
    HL_NEED(hl_llama2c_open(&tensors->llama2c, path));
    tensors->n_files = 1;
    for (size_t i = 0; i < hl_llama2c_count(tensors->llama2c); i++)
        HL_NEED(add_tensor(tensors, hl_llama2c_at(tensors->llama2c, i)));
    return sort_tensors(tensors, path);
}

/* ----------------------------------------------------------- kinds of files */

typedef enum content {
    CONTENT_UNKNOWN = 0,
    CONTENT_SAFETENSORS,
    CONTENT_GGUF,
    CONTENT_LLAMA2C,
} content;

/* Checks the length of a JSON header, then its beginning. */
static bool looks_like_safetensors(const uint8_t *bytes, size_t n_bytes)
{
    uint64_t length;

    if (n_bytes < sizeof length + 1 || bytes[sizeof length] != '{')
        return false;
    memcpy(&length, bytes, sizeof length);
    return length <= HL_SAFETENSORS_MAX_HEADER;
}

static hl_status look_inside(content *out, const char *path)
{
    HL_SCOPED(hl_file_unmap) hl_file file = { 0 };

    *out = CONTENT_UNKNOWN;
    HL_NEED(hl_file_map(&file, path));
    if (file.n_bytes >= 4 && memcmp(file.bytes, "GGUF", 4) == 0)
        *out = CONTENT_GGUF;
    else if (looks_like_safetensors(file.bytes, file.n_bytes))
        *out = CONTENT_SAFETENSORS;
    else if (hl_llama2c_recognize(file.bytes, file.n_bytes))
        *out = CONTENT_LLAMA2C;
    else
        return hl_foreign_check_file(path, file.bytes, file.n_bytes);
    return HL_OK;
}

static hl_status open_file(hl_tensors *tensors, const char *path)
{
    content inside = CONTENT_UNKNOWN;

    if (hl_ends_with(path, INDEX_ENDING)) {
        HL_NEED(hl_foreign_check_folder(tensors->folder));
        return open_index(tensors, path);
    }
    HL_NEED(look_inside(&inside, path));
    switch (inside) {
    case CONTENT_GGUF:
        return open_gguf(tensors, path);
    case CONTENT_LLAMA2C:
        return open_llama2c(tensors, path);
    case CONTENT_SAFETENSORS:
        HL_NEED(hl_foreign_check_folder(tensors->folder));
        return open_safetensors(tensors, path);
    default: /* the ending selects the reader, which then reports what is wrong */
        if (hl_ends_with(path, ".safetensors"))
            return open_single(tensors, path);
        if (hl_ends_with(path, ".gguf"))
            return open_gguf(tensors, path);
        return hl_fail(HL_BAD_INPUT,
                       "%s: not a model: neither safetensors nor GGUF nor a llama2.c checkpoint",
                       path);
    }
}

hl_status hl_tensors_open(hl_tensors **out, const char *path)
{
    struct stat                             info;
    bool                                    is_there  = stat(path, &info) == 0;
    bool                                    is_folder = is_there && S_ISDIR(info.st_mode);
    HL_CLOSED(hl_tensors_close) hl_tensors *tensors   = NULL;

    *out = NULL;
    if (!is_there && errno == ENOENT)
        return hl_foreign_explain_missing(path);
    HL_NEED(HL_ALLOC_ZEROED(&tensors, 1));
    HL_NEED(is_folder ? without_slashes(&tensors->folder, path)
                      : hl_path_folder(&tensors->folder, path));
    HL_NEED(is_folder ? open_folder(tensors) : open_file(tensors, path));
    *out = hl_taken(&tensors);
    return HL_OK;
}

void hl_tensors_close(hl_tensors *tensors)
{
    if (tensors == NULL)
        return;
    for (size_t i = 0; i < tensors->n_files && tensors->shards != NULL; i++)
        hl_safetensors_close(tensors->shards[i]);
    for (size_t i = 0; i < tensors->n_files && tensors->parts != NULL; i++)
        hl_gguf_close(tensors->parts[i]);
    hl_llama2c_close(tensors->llama2c);
    hl_free(tensors->shards);
    hl_free(tensors->parts);
    hl_free((void *)tensors->tensors);
    hl_free((void *)tensors->by_name);
    hl_free(tensors->folder);
    hl_free(tensors);
}

/* ------------------------------------------------------------------- lookup */

hl_tensors_kind hl_tensors_kind_of(const hl_tensors *tensors)
{
    return tensors->kind;
}

const char *hl_tensors_folder(const hl_tensors *tensors)
{
    return tensors->folder;
}

size_t hl_tensors_count(const hl_tensors *tensors)
{
    return tensors->n_tensors;
}

const hl_tensor *hl_tensors_at(const hl_tensors *tensors, size_t index)
{
    return index < tensors->n_tensors ? tensors->tensors[index] : NULL;
}

const char *hl_tensors_file_of(const hl_tensors *tensors, const hl_tensor *tensor)
{
    for (size_t i = 0; i < tensors->n_files; i++) {
        if (tensors->shards != NULL &&
            hl_safetensors_find(tensors->shards[i], tensor->name) == tensor)
            return hl_safetensors_where(tensors->shards[i]);
        if (tensors->parts != NULL && hl_gguf_find(tensors->parts[i], tensor->name) == tensor)
            return hl_gguf_where(tensors->parts[i]);
    }
    return NULL;
}

const hl_tensor *hl_tensors_find(const hl_tensors *tensors, const char *name)
{
    return hl_tensors_among(tensors->by_name, tensors->n_tensors, name);
}

const struct hl_gguf *hl_tensors_gguf(const hl_tensors *tensors)
{
    return tensors->kind == HL_TENSORS_GGUF ? tensors->parts[0] : NULL;
}

const struct hl_llama2c *hl_tensors_llama2c(const hl_tensors *tensors)
{
    return tensors->llama2c;
}

/* --------------------------------------------------------- which model is it?
 *
 * Each tensor is hashed by itself: name, dtype, shape, bytes.  The model's hash is the sum of
 * those, so that neither the order of tensors nor the files they lie in matter, and threads can
 * share the work.  Every byte is read: two checkpoints of one training run differ in all tensors,
 * but a pruned or edited copy may differ in a few. */

uint64_t hl_tensor_hash(const hl_tensor *tensor)
{
    const char *dtype = hl_dtype_name(tensor->dtype);
    hl_hasher   hasher;

    hl_hash_start(&hasher, 0);
    hl_hash_add(&hasher, tensor->name, strlen(tensor->name) + 1);
    hl_hash_add(&hasher, dtype, strlen(dtype) + 1);
    hl_hash_add_u64(&hasher, (uint64_t)tensor->n_dims);
    for (int i = 0; i < tensor->n_dims; i++)
        hl_hash_add_u64(&hasher, (uint64_t)tensor->shape[i]);
    hl_hash_add(&hasher, tensor->data, tensor->n_bytes);
    return hl_hash_end(&hasher);
}

typedef struct hash_job {
    const hl_tensors *tensors;
    _Atomic(uint64_t) sum;
} hash_job;

static void hash_some(void *context, int64_t first, int64_t end, int member)
{
    hash_job *job = context;
    (void)member;

    for (int64_t i = first; i < end; i++)
        atomic_fetch_add(&job->sum, hl_tensor_hash(hl_tensors_at(job->tensors, (size_t)i)));
}

uint64_t hl_tensors_hash(const hl_tensors *tensors, int32_t n_threads)
{
    int64_t  n_tensors = (int64_t)hl_tensors_count(tensors);
    hash_job job       = { tensors, (uint64_t)n_tensors };

    hl_parallel(hl_threads(n_threads), n_tensors, 1, hash_some, &job);
    return atomic_load(&job.sum);
}
