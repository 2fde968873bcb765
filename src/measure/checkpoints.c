/* checkpoints.c - finds the checkpoints in a folder, and their training steps.
 *
 *     FOLDER/checkpoint-500/{config.json,model.safetensors,optimizer.pt,...}
 *     FOLDER/step_1000.gguf
 *     FOLDER/step_2000-00001-of-00003.gguf, and its other parts
 *
 * No file is opened.  An incomplete checkpoint looks like a complete one, so callers must wait
 * until its size and time no longer change. */
#include "measure/measure.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/buffer.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"

HL_CLOSES(hl_checkpoints_free, hl_checkpoints)

#define MAX_CHECKPOINTS ((int64_t)1 << 20)

/* ------------------------------------------------------------------------- names */

/* Compares without case; the ending must not be the whole name. */
static bool has_ending(const char *name, const char *ending)
{
    size_t n = strlen(name), n_ending = strlen(ending);

    return n > n_ending && strcasecmp(name + n - n_ending, ending) == 0;
}

/* Returns the length of an ending such as "-00002-of-00003.gguf", and the number of the part; 0 if
 * there is none. */
static size_t split_ending(const char *name, int *part)
{
    enum { LENGTH = sizeof "-00002-of-00003.gguf" - 1 };
    size_t      n  = strlen(name);
    const char *at = name + n - LENGTH;

    if (n <= LENGTH || !has_ending(name, ".gguf") || at[0] != '-' ||
        strncmp(at + 6, "-of-", 4) != 0)
        return 0;
    for (int i = 1; i < 15; i++) {
        if ((i < 6 || i > 9) && !isdigit((unsigned char)at[i]))
            return 0;
    }
    *part = atoi(at + 1);
    return LENGTH;
}

/* Returns the number at the start of a text; -1 if there is none or it has too many digits. */
static int64_t leading_number(const char *text)
{
    size_t  n     = strspn(text, "0123456789");
    int64_t value = 0;

    if (n == 0 || n > 18)
        return -1;
    for (size_t i = 0; i < n; i++)
        value = 10 * value + (text[i] - '0');
    return value;
}

/* Returns the number after a word in a name, as in "step=20" or "Step 20"; -1 if there is none. */
static int64_t number_behind(const char *name, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = name; *at != '\0'; at++) {
        const char *rest = at + n;
        if (strncasecmp(at, word, n) != 0)
            continue;
        int64_t value = leading_number(rest + strspn(rest, "-_=.: "));
        if (value >= 0)
            return value;
    }
    return -1;
}

static int64_t last_number(const char *name, size_t length)
{
    while (length > 0 && !isdigit((unsigned char)name[length - 1]))
        length--;
    while (length > 0 && isdigit((unsigned char)name[length - 1]))
        length--;
    return leading_number(name + length);
}

int64_t hl_checkpoint_step(const char *name)
{
    static const char *const words[] = { "step", "steps",     "checkpoint", "ckpt",
                                         "iter", "iteration", "epoch" };
    int                      part    = 0;
    size_t                   ending  = split_ending(name, &part);
    int64_t                  step    = -1;

    for (size_t i = 0; i < sizeof words / sizeof *words && step < 0; i++)
        step = number_behind(name, words[i]);
    if (ending == 0 && has_ending(name, ".gguf"))
        ending = strlen(".gguf");
    return step >= 0 ? step : last_number(name, strlen(name) - ending);
}

/* ------------------------------------------------------------------------- files */

static void add_file(hl_checkpoint *checkpoint, const struct stat *about)
{
    int64_t modified = (int64_t)about->st_mtim.tv_sec * 1000000000 + about->st_mtim.tv_nsec;

    checkpoint->n_bytes += (int64_t)about->st_size;
    if (modified > checkpoint->modified)
        checkpoint->modified = modified;
}

/* Files may disappear at any time; a missing file is not an error. */
static hl_status look_at(struct stat *about, bool *there, const char *folder, const char *name)
{
    char     *path   = NULL;
    hl_status status = hl_path_join(&path, folder, name);

    *there = status == HL_OK && stat(path, about) == 0;
    hl_free(path);
    return status;
}

/* Adds up sizes and times of config.json and weights; *is_model is true if both exist. */
static hl_status look_into(hl_checkpoint *checkpoint, bool *is_model)
{
    hl_status   status    = HL_OK;
    DIR        *folder    = opendir(checkpoint->path);
    bool        is_config = false, is_weights = false;
    struct stat about;

    *is_model = false;
    for (const struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        bool there  = false;
        bool config = strcmp(entry->d_name, "config.json") == 0;
        bool weights =
            has_ending(entry->d_name, ".safetensors") || has_ending(entry->d_name, ".bin");

        if (!config && !weights)
            continue;
        HL_TRY(look_at(&about, &there, checkpoint->path, entry->d_name));
        if (!there || !S_ISREG(about.st_mode))
            continue;
        add_file(checkpoint, &about);
        is_config  = is_config || config;
        is_weights = is_weights || weights;
    }
    *is_model = is_config && is_weights;

done:
    if (folder != NULL)
        closedir(folder);
    return status;
}

/* Adds the other parts of a split file, which are in the same folder. */
static hl_status add_parts(hl_checkpoint *checkpoint, const char *folder_path)
{
    hl_status   status = HL_OK;
    DIR        *folder = opendir(folder_path);
    int         part   = 0;
    size_t      kept   = strlen(checkpoint->name) - split_ending(checkpoint->name, &part);
    struct stat about;

    for (const struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        bool   there  = false;
        size_t ending = split_ending(entry->d_name, &part);

        if (ending == 0 || part == 1 || strlen(entry->d_name) - ending != kept ||
            strncmp(entry->d_name, checkpoint->name, kept) != 0)
            continue;
        HL_TRY(look_at(&about, &there, folder_path, entry->d_name));
        if (there)
            add_file(checkpoint, &about);
    }

done:
    if (folder != NULL)
        closedir(folder);
    return status;
}

/* -------------------------------------------------------------------------- list */

static void release(hl_checkpoint *checkpoint)
{
    hl_free(checkpoint->path);
    hl_free(checkpoint->name);
    *checkpoint = (hl_checkpoint){ 0 };
}

void hl_checkpoints_free(hl_checkpoints *checkpoints)
{
    if (checkpoints == NULL)
        return;
    for (int64_t i = 0; i < checkpoints->count; i++)
        release(&checkpoints->items[i]);
    hl_free(checkpoints->items);
    hl_free(checkpoints->first_unnumbered);
    hl_free(checkpoints);
}

static bool is_passed_over(const char *name)
{
    size_t n = strlen(name);

    return name[0] == '.' || strncmp(name, "tmp", 3) == 0 || hl_utf8_find_bad(name, n) != n;
}

/* Fills in a checkpoint that has path and name; *is_model is false if it is not a checkpoint. */
static hl_status examine(hl_checkpoint *checkpoint, bool *is_model, const char *folder)
{
    struct stat about;
    int         part = 1;

    *is_model = false;
    if (stat(checkpoint->path, &about) != 0)
        return HL_OK;
    if (S_ISDIR(about.st_mode))
        return look_into(checkpoint, is_model);
    if (!S_ISREG(about.st_mode) || !has_ending(checkpoint->name, ".gguf"))
        return HL_OK;
    bool is_split = split_ending(checkpoint->name, &part) > 0;
    *is_model     = part == 1;
    add_file(checkpoint, &about);
    return is_split && *is_model ? add_parts(checkpoint, folder) : HL_OK;
}

/* Appends the checkpoint, whose texts it takes over. */
static hl_status append(hl_checkpoints *found, hl_checkpoint *checkpoint)
{
    HL_NEED(HL_GROW_ONE(&found->items, found->count));
    found->items[found->count++] = *checkpoint;
    *checkpoint                  = (hl_checkpoint){ 0 };
    return HL_OK;
}

/* Counts a name without a number and keeps the first in alphabetical order, since folders have no
 * order. */
static hl_status leave_out(hl_checkpoints *found, const char *name)
{
    found->n_unnumbered++;
    if (found->first_unnumbered != NULL && strcmp(found->first_unnumbered, name) <= 0)
        return HL_OK;
    hl_free(found->first_unnumbered);
    found->first_unnumbered = NULL;
    return hl_strdup(&found->first_unnumbered, name);
}

static hl_status add_entry(hl_checkpoints *found, const char *folder, const char *name)
{
    HL_SCOPED(release) hl_checkpoint checkpoint = { 0 };

    bool is_model = false;

    if (found->count >= MAX_CHECKPOINTS)
        return hl_fail(HL_LIMIT, "%s: more than %lld checkpoints", folder,
                       (long long)MAX_CHECKPOINTS);
    HL_NEED(hl_path_join(&checkpoint.path, folder, name));
    HL_NEED(hl_strdup(&checkpoint.name, name));
    HL_NEED(examine(&checkpoint, &is_model, folder));
    checkpoint.step = hl_checkpoint_step(name);
    if (is_model && checkpoint.step >= 0)
        HL_NEED(append(found, &checkpoint));
    else if (is_model)
        HL_NEED(leave_out(found, name));
    return HL_OK;
}

static int by_step(const void *left, const void *right)
{
    const hl_checkpoint *a = left;
    const hl_checkpoint *b = right;

    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    return strcmp(a->name, b->name);
}

hl_status hl_checkpoints_list(hl_checkpoints **out, const char *folder)
{
    hl_status       status = HL_OK;
    hl_checkpoints *found  = NULL;
    DIR            *opened = opendir(folder);

    *out = NULL;
    if (opened == NULL)
        return hl_fail(errno == ENOENT ? HL_NOT_FOUND : HL_IO, "%s: %s", folder, strerror(errno));
    HL_TRY(HL_ALLOC_ZEROED(&found, 1));
    for (const struct dirent *entry; (entry = readdir(opened)) != NULL;) {
        if (!is_passed_over(entry->d_name))
            HL_TRY(add_entry(found, folder, entry->d_name));
    }
    if (found->count > 1)
        qsort(found->items, (size_t)found->count, sizeof *found->items, by_step);
    *out  = found;
    found = NULL;

done:
    closedir(opened);
    hl_checkpoints_free(found);
    return status;
}
