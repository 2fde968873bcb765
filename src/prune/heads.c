/* heads.c - heads by name: "L5H1", "L5", and lists of them. */
#include "prune/heads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

enum { MAX_DIGITS = 9, MAX_SHOWN = 40 };

int64_t hl_heads_of(const hl_model *model, int64_t layer)
{
    hl_layer_info info = { 0 };

    return hl_model_get_layer(&info, model, layer) == HL_OK ? info.n_heads : 0;
}

/* ---------------------------------------------------------------------- words */

/* A letter and digits, from *word on; false if they are not there. */
static bool read_number(int64_t *out, const char **word, const char *end, char letter)
{
    const char *at    = *word;
    int64_t     value = 0;

    if (at == end || (*at != letter && *at != letter - 'A' + 'a'))
        return false;
    const char *digits = ++at;
    for (; at < end && *at >= '0' && *at <= '9' && at - digits < MAX_DIGITS; at++)
        value = 10 * value + (*at - '0');
    *out  = value;
    *word = at;
    return at > digits;
}

bool hl_head_read(hl_head *out, const char *word, size_t n_bytes)
{
    const char *at  = word;
    const char *end = word + n_bytes;

    *out = (hl_head){ 0, -1 };
    if (!read_number(&out->layer, &at, end, 'L'))
        return false;
    return at == end || (read_number(&out->head, &at, end, 'H') && at == end);
}

hl_status hl_head_parse(hl_head *out, const hl_model *model, const char *word, size_t n_bytes)
{
    const hl_model_info *info  = hl_model_get_info(model);
    int                  shown = n_bytes < MAX_SHOWN ? (int)n_bytes : MAX_SHOWN;

    if (!hl_head_read(out, word, n_bytes))
        return hl_fail(HL_BAD_ARGUMENT,
                       "'%.*s' is no head: wanted one like L5H1, or L5 for a layer", shown, word);
    if (out->layer >= info->n_layers)
        return hl_fail(HL_BAD_ARGUMENT, "%.*s: the model has layers L0 to L%lld", shown, word,
                       (long long)info->n_layers - 1);
    int64_t n_heads = hl_heads_of(model, out->layer);
    if (n_heads == 0)
        return hl_fail(HL_BAD_ARGUMENT, "%.*s: layer %lld of the model has no attention", shown,
                       word, (long long)out->layer);
    if (out->head >= n_heads)
        return hl_fail(HL_BAD_ARGUMENT, "%.*s: the layer has heads L%lldH0 to L%lldH%lld", shown,
                       word, (long long)out->layer, (long long)out->layer, (long long)n_heads - 1);
    return HL_OK;
}

/* ---------------------------------------------------------------------- lists */

static bool is_between(char letter)
{
    return letter == ',' || letter == ' ' || letter == '\t' || letter == '\n' || letter == '\r';
}

/* Marks what the words of a text name: marks (n_layers, n_heads). */
static hl_status mark_heads(uint8_t *marks, const hl_model *model, const char *text)
{
    int64_t width = hl_model_get_info(model)->n_heads;

    for (const char *at = text; *at != '\0';) {
        size_t  length = 0;
        hl_head named;

        while (at[length] != '\0' && !is_between(at[length]))
            length++;
        if (length > 0) {
            hl_status status = hl_head_parse(&named, model, at, length);
            if (status != HL_OK)
                return status;
            int64_t first = named.head >= 0 ? named.head : 0;
            int64_t last  = named.head >= 0 ? named.head : hl_heads_of(model, named.layer) - 1;
            memset(marks + named.layer * width + first, 1, (size_t)(last - first + 1));
        }
        at += length + (at[length] != '\0');
    }
    return HL_OK;
}

static hl_status list_marked(hl_head_list **out, const uint8_t *marks, int64_t n_layers,
                             int64_t n_heads)
{
    hl_status     status = HL_OK;
    hl_head_list *list   = NULL;

    HL_TRY(HL_ALLOC_ZEROED(&list, 1));
    for (int64_t i = 0; i < n_layers * n_heads; i++)
        list->n_heads += marks[i];
    HL_TRY(HL_ALLOC(&list->heads, (size_t)list->n_heads));
    for (int64_t i = 0, n = 0; i < n_layers * n_heads; i++) {
        if (marks[i] != 0)
            list->heads[n++] = (hl_head){ i / n_heads, i % n_heads };
    }
    *out = list;
    list = NULL;

done:
    hl_head_list_free(list);
    return status;
}

hl_status hl_head_list_parse(hl_head_list **out, const hl_model *model, const char *text)
{
    hl_status            status = HL_OK;
    const hl_model_info *info   = hl_model_get_info(model);
    uint8_t             *marks  = NULL;

    *out = NULL;
    HL_TRY(HL_ALLOC_ZEROED(&marks, (size_t)(info->n_layers * info->n_heads)));
    HL_TRY(mark_heads(marks, model, text));
    HL_TRY(list_marked(out, marks, info->n_layers, info->n_heads));
    if ((*out)->n_heads == 0) {
        hl_head_list_free(*out);
        *out   = NULL;
        status = hl_fail(HL_BAD_ARGUMENT, "a list of heads that names none");
    }

done:
    hl_free(marks);
    return status;
}

hl_status hl_head_list_text(char **out, const hl_head_list *list)
{
    enum { ROOM = 48 }; /* of one head and a comma, at most */
    char     *text   = NULL;
    size_t    used   = 0;
    hl_status status = HL_ALLOC_ZEROED(&text, (size_t)list->n_heads * ROOM + 1);

    for (int64_t i = 0; i < list->n_heads && status == HL_OK; i++)
        used += (size_t)snprintf(text + used, ROOM, "%sL%lldH%lld", i > 0 ? "," : "",
                                 (long long)list->heads[i].layer, (long long)list->heads[i].head);
    *out = text;
    return status;
}

void hl_head_list_free(hl_head_list *list)
{
    if (list == NULL)
        return;
    hl_free(list->heads);
    hl_free(list);
}
