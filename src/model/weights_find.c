/* weights_find.c - names, from patterns.
 *
 * A pattern of a family's table becomes a name in four choices, all of which are
 * tried: the spelling (between '|'), the prefix (a folder's names come with or
 * without that of the base model), the ending, and for q the tensor of q alone or
 * that of q, k and v together.  Tables are searched in order; the first tensor
 * that exists is it. */
#include "model/weights_find.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"

/* ------------------------------------------------------------------- a name */

typedef struct name_buffer {
    char  *text; /* (HL_MAX_TENSOR_NAME) */
    size_t used;
} name_buffer;

static void append(name_buffer *name, const char *text, size_t length)
{
    size_t room = HL_MAX_TENSOR_NAME - 1 - name->used;

    if (length > room)
        length = room;
    memcpy(name->text + name->used, text, length);
    name->used += length;
    name->text[name->used] = '\0';
}

static void append_number(name_buffer *name, int64_t number)
{
    char digits[24];
    append(name, digits, (size_t)snprintf(digits, sizeof digits, "%lld", (long long)number));
}

/* prefix + pattern + ending; the first '*' is the layer, the second the part. */
static void make_name(char *out, const char *prefix, size_t n_prefix, const char *pattern,
                      size_t n_pattern, const hl_wanted *wanted, const char *ending)
{
    name_buffer name      = { out, 0 };
    int64_t     numbers[] = { wanted->layer, wanted->part };
    int         n_stars   = 0;

    append(&name, prefix, n_prefix);
    for (size_t i = 0; i < n_pattern; i++) {
        if (pattern[i] == '*')
            append_number(&name, numbers[n_stars++ > 0]);
        else
            append(&name, &pattern[i], 1);
    }
    append(&name, ending, strlen(ending));
}

static int count_stars(const char *pattern, size_t n_pattern)
{
    int count = 0;
    for (size_t i = 0; i < n_pattern; i++)
        count += pattern[i] == '*';
    return count;
}

/* ------------------------------------------------------------------ endings */

/* What comes after the pattern: up to two spellings. */
typedef struct endings {
    const char *all[2];
    const char *scales; /* MXFP4: of the second tensor */
} endings;

static endings endings_of(const hl_finder *finder, const hl_family_tensor *entry, bool is_bias)
{
    bool bare   = (entry->stored & HL_STORED_BARE) != 0;
    bool expert = entry->role == HL_ROLE_EXPERT_GATE_UP || entry->role == HL_ROLE_EXPERT_DOWN;

    if (bare && is_bias)
        return (endings){ { "_bias", NULL }, NULL };
    if (bare && expert && finder->config->mxfp4)
        return (endings){ { "_blocks", NULL }, "_scales" };
    if (bare)
        return (endings){ { "", NULL }, NULL };
    /* TensorFlow's names for a norm's weight and bias live on in old files. */
    if (hl_role_is_vector(entry->role))
        return is_bias ? (endings){ { ".bias", ".beta" }, NULL }
                       : (endings){ { ".weight", ".gamma" }, NULL };
    return (endings){ { is_bias ? ".bias" : ".weight", NULL }, NULL };
}

/* ------------------------------------------------------------------ looking */

static bool is_gguf(const hl_finder *finder)
{
    return finder->kind == HL_TENSORS_GGUF;
}

/* One spelling under all prefixes and endings. */
static bool try_spelling(hl_found *out, const hl_finder *finder, const hl_wanted *wanted,
                         const hl_family_tensor *entry, const char *pattern, size_t n_pattern)
{
    const char *prefix = is_gguf(finder) ? "" : finder->family->prefixes;
    endings     ends   = endings_of(finder, entry, wanted->is_bias);
    char        name[HL_MAX_TENSOR_NAME];

    for (;; prefix++) {
        size_t n_prefix = strcspn(prefix, "|");
        for (int i = 0; i < 2 && ends.all[i] != NULL; i++) {
            make_name(name, prefix, n_prefix, pattern, n_pattern, wanted, ends.all[i]);
            out->tensor = hl_tensors_find(finder->tensors, name);
            if (out->tensor == NULL)
                continue;
            strcpy(out->name, name);
            out->n_prefix = n_prefix;
            if (ends.scales != NULL) {
                make_name(name, prefix, n_prefix, pattern, n_pattern, wanted, ends.scales);
                out->scales = hl_tensors_find(finder->tensors, name);
            }
            return true;
        }
        prefix += n_prefix;
        if (*prefix == '\0')
            return false;
    }
}

/* What to mention where nothing was found: the first spelling, and how it would lie. */
static void name_missing(hl_found *out, const hl_finder *finder, const hl_wanted *wanted,
                         const hl_family_tensor *entry)
{
    bool        outside = is_gguf(finder) || wanted->role == HL_ROLE_LM_HEAD;
    const char *prefix  = outside ? "" : finder->prefix;

    make_name(out->name, prefix, strlen(prefix), entry->name, strcspn(entry->name, "|"), wanted,
              endings_of(finder, entry, wanted->is_bias).all[0]);
    out->role    = entry->role;
    out->stored  = entry->stored;
    out->stacked = count_stars(entry->name, strcspn(entry->name, "|")) < 2;
}

static bool try_entry(hl_found *out, const hl_finder *finder, const hl_wanted *wanted,
                      const hl_family_tensor *entry)
{
    const char *pattern = entry->name;

    if (out->name[0] == '\0')
        name_missing(out, finder, wanted, entry);
    while (*pattern != '\0') {
        size_t n_pattern = strcspn(pattern, "|");
        if (try_spelling(out, finder, wanted, entry, pattern, n_pattern)) {
            out->role    = entry->role;
            out->stored  = entry->stored;
            out->stacked = count_stars(pattern, n_pattern) < 2;
            return true;
        }
        pattern += n_pattern + (pattern[n_pattern] == '|');
    }
    return false;
}

static bool try_table(hl_found *out, const hl_finder *finder, const hl_wanted *wanted,
                      const hl_family_tensor *table)
{
    hl_role fused = hl_role_fused(wanted->role);

    for (; table != NULL && table->name != NULL; table++) {
        if ((table->role == wanted->role || table->role == fused) &&
            try_entry(out, finder, wanted, table))
            return true;
    }
    return false;
}

hl_found hl_find_tensor(const hl_finder *finder, const hl_wanted *wanted)
{
    const hl_family_tensor *const *tables =
        is_gguf(finder) ? finder->family->gguf : finder->family->tensors;
    hl_found found = { .role = wanted->role };

    if (finder->kind == HL_TENSORS_LLAMA2C && try_table(&found, finder, wanted, hl_llama2c_tensors))
        return found;
    for (int i = 0; i < HL_MAX_TABLES && tables[i] != NULL; i++) {
        if (try_table(&found, finder, wanted, tables[i]))
            return found;
    }
    if (is_gguf(finder))
        try_table(&found, finder, wanted, hl_gguf_tensors);
    return found;
}

void hl_finder_learn_prefix(hl_finder *finder)
{
    hl_wanted embedding = { HL_ROLE_EMBED, -1, 0, false };
    hl_found  found     = hl_find_tensor(finder, &embedding);

    /* Without an embedding the first of the list is as good as any. */
    if (found.tensor != NULL)
        snprintf(finder->prefix, sizeof finder->prefix, "%.*s", (int)found.n_prefix, found.name);
    else
        snprintf(finder->prefix, sizeof finder->prefix, "%.*s",
                 (int)strcspn(finder->family->prefixes, "|"), finder->family->prefixes);
}

/* ------------------------------------------------------------------ buffers */

bool hl_is_buffer(const hl_tensor *tensor)
{
    static const char *const known[] = {
        ".masked_bias",
        ".inv_freq",
        "position_ids",
        "token_type_ids",
        "rope_freqs.weight",
        "rope_factors_long.weight",
        "rope_factors_short.weight",
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (hl_ends_with(tensor->name, known[i]))
            return true;
    }
    /* The causal mask of GPT-2, GPT-Neo, GPT-J and GPT-NeoX. */
    return tensor->n_dims == 4 && (hl_ends_with(tensor->name, ".attn.bias") ||
                                   hl_ends_with(tensor->name, ".attention.bias"));
}
